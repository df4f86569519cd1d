//! Workspaces.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use toft::time::parse_duration;

use super::{positive, work::Hold};

const EXAMPLES: &str = "\
Examples:
  toft claim --ws                 # claim a task, and create a workspace for it
  cd \"$(toft ws path @)\"          # change to the workspace of the task you hold
  toft ws list                    # show what each contains, and whether it has landed
  toft ws gc                      # remove workspaces whose work has landed
  toft ws rm NAME --rescue        # save everything as a rescue, then remove the workspace
  toft ws restore NAME            # restore it from its rescue
  toft ws restore                 # list rescues

Configuration: the tables [workspaces] and [workspaces.setup] in .git/toft/config.toml or ~/.config/toft/config.toml. See \
docs/guides/workspaces.md for the keys.";

/// Manage workspaces: one directory for each task.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ws {
    #[command(subcommand)]
    pub(crate) command: WsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WsCommand {
    /// Create a workspace for an issue or task, or print the existing one
    Create(CreateWs),
    /// List workspaces and what is in them; with a name, show that one
    #[command(alias = "ls")]
    List(ListWs),
    /// Print the path of a workspace
    Path(PathWs),
    /// Remove a workspace; refused while it holds work that exists nowhere else
    Rm(RmWs),
    /// Remove workspaces of ended tasks and landed work
    Gc(GcWs),
    /// Save everything in a workspace as a rescue, and keep the workspace
    Rescue(RescueWs),
    /// Restore a removed workspace from its rescue; without a name, list rescues
    Restore(RestoreWs),
    /// Keep a workspace whatever becomes of its task
    Keep(KeepWs),
}

/// A shell that the function can be printed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellKind {
    /// bash, and every other shell with POSIX functions.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

/// Make one.
#[derive(Args, Debug)]
pub(crate) struct CreateWs {
    /// Issue or task
    #[arg(required_unless_present_any = ["name", "adopt", "ahead"])]
    pub(crate) id: Option<String>,
    /// Adopt the worktree at this path, which was created by hand
    #[arg(long, value_name = "DIR", conflicts_with_all = ["id", "name", "in_place", "base", "clone", "plain"])]
    pub(crate) adopt: Option<PathBuf>,
    /// Number of workspaces to prepare for later claims; 0 removes them
    #[arg(long, value_name = "N", conflicts_with_all = ["id", "name", "in_place", "base", "clone", "plain", "adopt"])]
    pub(crate) ahead: Option<usize>,
    /// Name of the workspace and its branch [default: that of the issue or task]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Use the current checkout; toft never removes it
    #[arg(long, conflicts_with_all = ["base", "clone"])]
    pub(crate) in_place: bool,
    #[command(flatten)]
    pub(crate) from: From,
    #[command(flatten)]
    pub(crate) hold: Hold,
}

/// What it is made from.
#[derive(Args, Debug)]
pub(crate) struct From {
    /// Commit or branch to start from [default: the main checkout's HEAD]
    #[arg(long, value_name = "REV")]
    pub(crate) base: Option<String>,
    /// Create a clone instead of a worktree: with its own branches, hooks and configuration
    #[arg(long)]
    pub(crate) clone: bool,
    /// Skip the setup: do not copy, link or run anything
    #[arg(long)]
    pub(crate) plain: bool,
}

/// Every one, or one of them.
#[derive(Args, Debug)]
pub(crate) struct ListWs {
    /// Show this workspace: by name, path or id, or by its issue or task
    #[arg(value_name = "WS", add = clap_complete::ArgValueCompleter::new(super::complete::workspaces))]
    pub(crate) id: Option<String>,
    /// Include removed workspaces
    #[arg(long)]
    pub(crate) all: bool,
    /// Maximum number of rows
    #[arg(long, default_value_t = super::ROWS, value_parser = positive)]
    pub(crate) limit: usize,
}

/// One of them.
#[derive(Args, Debug)]
pub(crate) struct OneWs {
    /// Workspace, by name, path or id, or by its issue or task; @ is that of the task you hold [default: the current one]
    #[arg(value_name = "WS", add = clap_complete::ArgValueCompleter::new(super::complete::workspaces))]
    pub(crate) id: Option<String>,
}

/// Where one is.
#[derive(Args, Debug)]
pub(crate) struct PathWs {
    #[command(flatten)]
    pub(crate) one: OneWs,
    /// Print its environment variables as export lines instead
    #[arg(long)]
    pub(crate) env: bool,
}

/// Keep one.
#[derive(Args, Debug)]
pub(crate) struct KeepWs {
    #[command(flatten)]
    pub(crate) one: OneWs,
    /// Keep it no longer
    #[arg(long)]
    pub(crate) off: bool,
}

/// Take one down.
#[derive(Args, Debug)]
pub(crate) struct RmWs {
    #[command(flatten)]
    pub(crate) one: OneWs,
    /// Save unlanded work as a rescue first
    #[arg(long)]
    pub(crate) rescue: bool,
    /// Record first that its work has landed, however it was merged
    #[arg(long, conflicts_with = "rescue")]
    pub(crate) landed: bool,
    /// Include large ignored files and directories
    #[arg(long, requires = "rescue", conflicts_with = "landed")]
    pub(crate) ignored: bool,
    #[command(flatten)]
    pub(crate) hold: Hold,
}

/// Put one away.
#[derive(Args, Debug)]
pub(crate) struct RescueWs {
    #[command(flatten)]
    pub(crate) one: OneWs,
    /// Include large ignored files and directories
    #[arg(long)]
    pub(crate) ignored: bool,
}

/// Bring one back.
#[derive(Args, Debug)]
pub(crate) struct RestoreWs {
    /// Workspace, by name, path or id, or by its issue or task
    #[arg(value_name = "WS", add = clap_complete::ArgValueCompleter::new(super::complete::workspaces))]
    pub(crate) id: Option<String>,
    /// Rescue, by number or commit [default: the one saved when the workspace was removed]
    #[arg(long, value_name = "RESCUE", requires = "id")]
    pub(crate) at: Option<String>,
    /// Restore under another name, beside the existing workspace
    #[arg(long, requires = "id")]
    pub(crate) name: Option<String>,
}

/// Remove workspaces that are no longer needed.
#[derive(Args, Debug)]
pub(crate) struct GcWs {
    /// Also remove workspaces unused for this long, after a rescue
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) older_than: Option<Duration>,
    /// Delete one rescue of this workspace permanently instead; --at names it
    #[arg(long, value_name = "WS", requires = "at", conflicts_with_all = ["older_than", "dry_run"])]
    pub(crate) rescue: Option<String>,
    /// Rescue, by number or commit
    #[arg(long, value_name = "RESCUE", requires = "rescue", conflicts_with_all = ["older_than", "dry_run"])]
    pub(crate) at: Option<String>,
    /// Dry run: show what would be removed
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}
