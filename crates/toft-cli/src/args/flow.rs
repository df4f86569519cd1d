//! Workflows and templates.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Reach, positive};

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Create a workflow from a title and tasks
    #[command(alias = "create")]
    New(NewFlow),
    /// Create a workflow from a plan file (.toml, .yaml, .json)
    Apply(Apply),
    /// Create a workflow from a template
    From(FromTemplate),
    /// Show a workflow with its tasks
    Show {
        /// Workflow
        id: String,
        /// Maximum number of tasks
        #[arg(long, default_value_t = super::FLOW_ROWS, value_parser = positive)]
        limit: usize,
    },
    /// List workflows, newest first
    #[command(alias = "ls")]
    List {
        /// Include ended workflows
        #[arg(long)]
        all: bool,
        /// Only workflows with this status
        #[arg(long)]
        status: Option<String>,
        /// Maximum number of rows
        #[arg(long, default_value_t = super::ROWS, value_parser = positive)]
        limit: usize,
        #[command(flatten)]
        reach: Reach,
    },
    /// Start a held workflow
    Start(One),
    /// Pause a workflow: its tasks are no longer offered
    Pause(One),
    /// Resume a paused workflow
    Resume(One),
    /// Abandon a workflow: leases are revoked, open tasks cancelled
    Abandon(One),
    /// Change the limits of a workflow: parallel tasks, budget
    Limit {
        /// Workflow
        id: String,
        /// Maximum number of tasks held at the same time
        #[arg(long, value_name = "N", required_unless_present = "budget")]
        max_parallel: Option<u32>,
        /// Maximum total cost of all attempts
        #[arg(long)]
        budget: Option<f64>,
    },
    /// Add a task to a workflow
    Add {
        /// Workflow
        workflow: String,
        /// Name of the task
        name: String,
        /// Repository of the task, by name or id, if the workflow spans several
        #[arg(long, value_name = "NAME")]
        repository: Option<String>,
        #[command(flatten)]
        task: TaskFields,
    },
    /// Replace the open tasks of a workflow by a new plan file
    Replan {
        /// Workflow
        workflow: String,
        /// Plan file
        file: PathBuf,
    },
    /// Retry a failed task
    Retry {
        /// Issue or task
        task: String,
        /// Reason
        #[arg(short, long, default_value = "")]
        message: String,
    },
    /// Skip a task
    Skip {
        /// Issue or task
        task: String,
        /// Reason
        #[arg(short, long, default_value = "")]
        message: String,
    },
    /// Manage templates
    #[command(subcommand)]
    Template(TemplateCommand),
}

/// Create a workflow from a title and tasks.
#[derive(Args, Debug, Default)]
pub(crate) struct NewFlow {
    /// Title
    pub(crate) title: String,
    /// Task to add, repeatable [default: one task with the workflow's title]
    #[arg(long = "task", value_name = "NAME")]
    pub(crate) tasks: Vec<String>,
    /// Maximum number of tasks held at the same time
    #[arg(long, value_name = "N")]
    pub(crate) max_parallel: Option<u32>,
    /// Maximum total cost of all attempts
    #[arg(long)]
    pub(crate) budget: Option<f64>,
    /// Create the workflow without starting it; without --task it has no tasks yet
    #[arg(long)]
    pub(crate) hold: bool,
    /// Name of the work in another system, such as a ticket or a URL
    #[arg(long, value_name = "REF")]
    pub(crate) external: Option<String>,
    /// Value that agents of the workflow can read: JSON or plain text; repeatable
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) config: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) task: TaskFields,
}

/// What a task can be given.
#[derive(Args, Debug, Default)]
pub(crate) struct TaskFields {
    /// Description of the work
    #[arg(short = 'd', long)]
    pub(crate) brief: Option<String>,
    /// Priority; P0 is the most urgent
    #[arg(short, long, value_name = "P0..P4", value_parser = super::priority)]
    pub(crate) priority: Option<u8>,
    /// Label to add; repeatable
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Task that must be done first, by name or id; repeatable
    #[arg(long, value_name = "TASK")]
    pub(crate) needs: Vec<String>,
    /// Capability that the agent must have; repeatable
    #[arg(long, value_name = "TAG")]
    pub(crate) requires: Vec<String>,
    /// Maximum number of attempts
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<u32>,
}

/// Create a workflow from a plan file.
#[derive(Args, Debug)]
pub(crate) struct Apply {
    /// Plan file
    pub(crate) file: PathBuf,
    /// Create the workflow without starting it
    #[arg(long)]
    pub(crate) hold: bool,
}

/// Create a workflow from a template.
#[derive(Args, Debug)]
pub(crate) struct FromTemplate {
    /// Template: name or name@version
    pub(crate) template: String,
    /// Value of a template variable; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) values: Vec<(String, String)>,
    /// Create the workflow without starting it
    #[arg(long)]
    pub(crate) hold: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| format!("`{text}` has no `=`; write name=value"))
}

/// One workflow, and why.
#[derive(Args, Debug)]
pub(crate) struct One {
    /// Workflow
    pub(crate) id: String,
    /// Reason
    #[arg(short, long)]
    pub(crate) message: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Store a template file; a changed file becomes a new version
    Put {
        /// Template file (.toml, .yaml, .json)
        file: PathBuf,
    },
    /// List templates
    #[command(alias = "ls")]
    List,
    /// Show a template with its variables and tasks, inherited ones included
    Show {
        /// Template: name or name@version
        name: String,
    },
    /// Remove a template; its workflows are kept
    #[command(alias = "rm")]
    Remove {
        /// Template
        name: String,
    },
}
