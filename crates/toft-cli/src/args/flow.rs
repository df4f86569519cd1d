//! Workflows and templates.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::ArgValueCompleter;

use super::{Reach, complete, positive};

#[derive(Debug, Subcommand)]
pub(crate) enum FlowCommand {
    /// Create a workflow: from a title and tasks, a plan file, or a template
    New(NewFlow),
    /// Change a workflow: its limits, one more task, or all open tasks
    Edit(EditFlow),
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
    /// Pause a workflow: its tasks are no longer offered
    Pause(One),
    /// Resume a paused workflow, or start a held one
    Resume(One),
    /// Abandon a workflow: leases are revoked, open tasks cancelled
    Abandon(One),
    /// Manage templates
    #[command(subcommand)]
    Template(TemplateCommand),
}

/// Create a workflow: from a title and tasks, a plan file, or a template.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft flow new \"Rename the API\" --task server --task client
  toft flow new --file plan.toml
  toft flow new --template release@2 --set version=1.4")]
pub(crate) struct NewFlow {
    /// Title
    #[arg(required_unless_present_any = ["file", "template"], conflicts_with_all = ["file", "template"])]
    pub(crate) title: Option<String>,
    /// Plan file (.toml, .yaml, .json)
    #[arg(long, value_name = "PLAN", conflicts_with = "template", conflicts_with_all = TITLE_ONLY_ARGUMENTS)]
    pub(crate) file: Option<PathBuf>,
    /// Template: name or name@version
    #[arg(long, value_name = "NAME", conflicts_with_all = TITLE_ONLY_ARGUMENTS)]
    pub(crate) template: Option<String>,
    /// Value of a template variable; repeatable
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair, requires = "template", conflicts_with_all = ["title", "file"])]
    pub(crate) values: Vec<(String, String)>,
    /// Task to add, repeatable [default: one task with the workflow's title]
    #[arg(long = "task", value_name = "NAME")]
    pub(crate) tasks: Vec<String>,
    /// Maximum number of tasks held at the same time
    #[arg(long, value_name = "N")]
    pub(crate) max_parallel: Option<u32>,
    /// Maximum total cost of all attempts
    #[arg(long)]
    pub(crate) budget: Option<f64>,
    /// Do not start it yet
    #[arg(long)]
    pub(crate) hold: bool,
    /// Name of the work in another system, such as a ticket or a URL
    #[arg(hide_short_help = true, long, value_name = "REF")]
    pub(crate) external: Option<String>,
    /// Value that agents of the workflow can read: JSON or plain text; repeatable
    #[arg(hide_short_help = true, long = "config", value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) config: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) task: TaskFields,
}

/// Arguments of a workflow from a title; a plan file and a template contain these values.
const TITLE_ONLY_ARGUMENTS: [&str; 11] = [
    "tasks",
    "max_parallel",
    "budget",
    "external",
    "config",
    "brief",
    "priority",
    "labels",
    "needs",
    "requires",
    "max_attempts",
];

/// What a task can be given.
#[derive(Args, Debug)]
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

impl TaskFields {
    /// Returns whether a field is given.
    pub(crate) fn any_given(&self) -> bool {
        let Self { brief, priority, labels, needs, requires, max_attempts } = self;
        let listed = [labels, needs, requires].into_iter().any(|list| !list.is_empty());
        listed || brief.is_some() || priority.is_some() || max_attempts.is_some()
    }
}

/// Change a workflow: its limits, one more task, or all open tasks.
#[derive(Args, Debug)]
pub(crate) struct EditFlow {
    /// Workflow
    pub(crate) id: String,
    /// Maximum number of tasks held at the same time
    #[arg(long, value_name = "N")]
    pub(crate) max_parallel: Option<u32>,
    /// Maximum total cost of all attempts
    #[arg(long)]
    pub(crate) budget: Option<f64>,
    /// Plan file whose tasks replace the open ones
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["add", "max_parallel", "budget"])]
    pub(crate) file: Option<PathBuf>,
    /// Task to add
    #[arg(long, value_name = "NAME", conflicts_with_all = ["max_parallel", "budget"])]
    pub(crate) add: Option<String>,
    /// Repository of the task, by name or id, if the workflow spans several
    #[arg(long, value_name = "NAME", requires = "add", conflicts_with_all = ["max_parallel", "budget", "file"])]
    pub(crate) repository: Option<String>,
    #[command(flatten)]
    pub(crate) task: TaskFields,
}

/// Retry failed work.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft retry tf-a41c -m \"the fixture is mended\"
  toft retry --all --failed-by \"rate limit\"")]
pub(crate) struct Retry {
    /// Issues or tasks
    #[arg(value_name = "ID", required_unless_present = "all", add = ArgValueCompleter::new(complete::issues))]
    pub(crate) ids: Vec<String>,
    /// Everything that failed for good
    #[arg(long, conflicts_with = "ids")]
    pub(crate) all: bool,
    /// With --all: only what failed for a reason that contains this text
    #[arg(long, value_name = "TEXT", requires = "all", conflicts_with = "ids")]
    pub(crate) failed_by: Option<String>,
    /// With --all: show what would be retried
    #[arg(short = 'n', long, requires = "all", conflicts_with = "ids")]
    pub(crate) dry_run: bool,
    /// Reason
    #[arg(short, long, default_value = "")]
    pub(crate) message: String,
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
