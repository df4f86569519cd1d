//! Workflows and templates.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Reach, positive};

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Make a workflow from words, with one task or those you name
    #[command(alias = "create")]
    New(NewFlow),
    /// Make a workflow from a plan file (.toml, .yaml, .json)
    Apply(Apply),
    /// Make a workflow from a template
    From(FromTemplate),
    /// A workflow with its tasks
    Show {
        /// The workflow
        id: String,
        /// Maximum number of tasks
        #[arg(long, default_value_t = super::FLOW_ROWS, value_parser = positive)]
        limit: usize,
    },
    /// Workflows, newest first
    #[command(alias = "ls")]
    List {
        /// Include closed issues and ended tasks
        #[arg(long)]
        all: bool,
        /// Only rows with this status
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
    /// Change what it may do at once, or spend
    Limit {
        /// The workflow
        id: String,
        /// Maximum number of tasks held at once
        #[arg(long, value_name = "N", required_unless_present = "budget")]
        max_parallel: Option<u32>,
        /// Maximum cost of all attempts together
        #[arg(long)]
        budget: Option<f64>,
    },
    /// Add a task
    Add {
        /// The workflow
        workflow: String,
        /// The task's name
        name: String,
        /// The repository it is to be done in, by name or id, if the workflow spans several
        #[arg(long, value_name = "NAME")]
        repository: Option<String>,
        #[command(flatten)]
        task: TaskFields,
    },
    /// Replace what is still open by a new plan file
    Replan {
        /// The workflow
        workflow: String,
        /// The plan
        file: PathBuf,
    },
    /// Try a failed task again
    Retry {
        /// The task
        task: String,
        /// Why
        #[arg(short, long, default_value = "")]
        message: String,
    },
    /// Skip a task
    Skip {
        /// The task
        task: String,
        /// Why
        #[arg(short, long, default_value = "")]
        message: String,
    },
    /// Templates
    #[command(subcommand)]
    Template(TemplateCommand),
}

/// Make a workflow from words.
#[derive(Args, Debug, Default)]
pub(crate) struct NewFlow {
    /// What it is about
    pub(crate) title: String,
    /// A task; without any, the title is the only one
    #[arg(long = "task", value_name = "NAME")]
    pub(crate) tasks: Vec<String>,
    /// Maximum number of tasks held at once
    #[arg(long, value_name = "N")]
    pub(crate) max_parallel: Option<u32>,
    /// Maximum cost of all attempts together
    #[arg(long)]
    pub(crate) budget: Option<f64>,
    /// Do not start it yet; without tasks, leave it to be planned
    #[arg(long)]
    pub(crate) hold: bool,
    /// What another system calls it, such as a ticket or a URL
    #[arg(long, value_name = "REF")]
    pub(crate) external: Option<String>,
    /// Something its agents are to know: JSON, or plain text
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
    /// Label to add
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// A task that must be done first, by name or id
    #[arg(long, value_name = "TASK")]
    pub(crate) needs: Vec<String>,
    /// A capability its holder must have
    #[arg(long, value_name = "TAG")]
    pub(crate) requires: Vec<String>,
    /// Maximum number of attempts
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<u32>,
}

/// Make a workflow from a plan file.
#[derive(Args, Debug)]
pub(crate) struct Apply {
    /// The plan
    pub(crate) file: PathBuf,
    /// Do not start it yet
    #[arg(long)]
    pub(crate) hold: bool,
}

/// Make a workflow from a template.
#[derive(Args, Debug)]
pub(crate) struct FromTemplate {
    /// name, or name@version
    pub(crate) template: String,
    /// A variable's value
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) values: Vec<(String, String)>,
    /// Do not start it yet
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
    /// The workflow
    pub(crate) id: String,
    /// Why
    #[arg(short, long)]
    pub(crate) message: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Keep a template file; a changed one is a new version
    Put {
        /// The template (.toml, .yaml, .json)
        file: PathBuf,
    },
    /// Every template
    #[command(alias = "ls")]
    List,
    /// A template with everything it extends: variables and tasks
    Show {
        /// name, or name@version
        name: String,
    },
    /// Remove a template; workflows made from it stay
    #[command(alias = "rm")]
    Remove {
        /// The template
        name: String,
    },
}
