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
  toft ws rescues                 # list rescues

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
    #[command(alias = "new", alias = "add")]
    Create(CreateWs),
    /// List workspaces and what is in them
    #[command(alias = "ls", alias = "status")]
    List(ListWs),
    /// Show a workspace
    Show(OneWs),
    /// Print the path of a workspace
    #[command(alias = "cd")]
    Path(OneWs),
    /// Remove a workspace; refused while it holds work that exists nowhere else
    #[command(alias = "remove", alias = "delete")]
    Rm(RmWs),
    /// Remove workspaces of ended tasks and landed work
    #[command(alias = "prune", alias = "clean")]
    Gc(GcWs),
    /// Save everything in a workspace as a rescue, and keep the workspace
    #[command(alias = "snapshot")]
    Rescue(RescueWs),
    /// List rescues with their age, size and content
    Rescues(OneWs),
    /// Delete a rescue permanently
    DropRescue(DropRescue),
    /// Restore a removed workspace from its rescue
    Restore(RestoreWs),
    /// Create workspaces ahead of time
    Pool {
        /// Number of prepared workspaces; 0 removes them
        count: usize,
    },
    /// Print the environment variables of a workspace as export lines
    Env(OneWs),
    /// Adopt a worktree that was created by hand
    Adopt {
        /// Path of the worktree
        path: PathBuf,
    },
    /// Record that a workspace's work has landed, however it was merged
    Landed(OneWs),
    /// Keep a workspace until it is unpinned
    Pin(OneWs),
    /// Unpin a workspace
    Unpin(OneWs),
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
#[derive(Args, Debug, Default)]
pub(crate) struct CreateWs {
    /// Issue or task
    #[arg(required_unless_present = "name")]
    pub(crate) id: Option<String>,
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
#[derive(Args, Debug, Default)]
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

/// Every one.
#[derive(Args, Debug)]
pub(crate) struct ListWs {
    /// Include removed workspaces
    #[arg(long)]
    pub(crate) all: bool,
    /// Maximum number of rows
    #[arg(long, default_value_t = super::ROWS, value_parser = positive)]
    pub(crate) limit: usize,
}

/// One of them.
#[derive(Args, Debug, Default)]
pub(crate) struct OneWs {
    /// Workspace, by name, path or id, or by its issue or task; @ is that of the task you hold [default: the current one]
    #[arg(value_name = "WS", add = clap_complete::ArgValueCompleter::new(super::complete::workspaces))]
    pub(crate) id: Option<String>,
}

/// Take one down.
#[derive(Args, Debug, Default)]
pub(crate) struct RmWs {
    #[command(flatten)]
    pub(crate) one: OneWs,
    /// Save unlanded work as a rescue first
    #[arg(long)]
    pub(crate) rescue: bool,
    /// Include large ignored files and directories
    #[arg(long, requires = "rescue")]
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

/// Delete a rescue.
#[derive(Args, Debug)]
pub(crate) struct DropRescue {
    /// Workspace of the rescue, by name or id
    #[arg(value_name = "WS")]
    pub(crate) id: String,
    /// Rescue, by number or commit
    #[arg(long, value_name = "RESCUE")]
    pub(crate) at: String,
}

/// Bring one back.
#[derive(Args, Debug)]
pub(crate) struct RestoreWs {
    #[command(flatten)]
    pub(crate) one: OneWs,
    /// Rescue, by number or commit [default: the one saved when the workspace was removed]
    #[arg(long, value_name = "RESCUE")]
    pub(crate) at: Option<String>,
    /// Restore under another name, beside the existing workspace
    #[arg(long)]
    pub(crate) name: Option<String>,
}

/// Remove workspaces that are no longer needed.
#[derive(Args, Debug)]
pub(crate) struct GcWs {
    /// Also remove workspaces unused for this long, after a rescue
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) older_than: Option<Duration>,
    /// Dry run: show what would be removed
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}
