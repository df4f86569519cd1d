//! Workspaces.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use toft::time::parse_duration;

use super::{positive, work::Hold};

const EXAMPLES: &str = "\
Examples:
  toft claim --ws                 take work, and a directory of its own to do it in
  cd \"$(toft ws path @)\"          go to the one of what I hold
  toft ws list                    what is in each, and whether it has landed
  toft ws gc                      take down what has landed and nobody needs
  toft ws rm NAME --rescue        put everything in it away, then take it down
  toft ws restore NAME            bring it back, byte for byte
  toft ws rescues                 what was put away: when, how much, what

Configuration, in .git/toft/config.toml or ~/.config/toft/config.toml: [workspaces] keep, most, max_age, max_count, max_bytes, root,
instant, warm, rescue_ignored, rescue_max_age; [workspaces.setup] copy, link, ports, run, ready. docs/guides/workspaces.md says what each does.";

/// Directories to work in, each isolated from every other.
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
    /// One of them
    Show(OneWs),
    /// Where one is
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
    /// List rescues with their age, their size and what they hold
    Rescues(OneWs),
    /// Delete a rescue for good
    DropRescue(DropRescue),
    /// Restore a removed workspace from its rescue
    Restore(RestoreWs),
    /// Create workspaces ahead of time
    Pool {
        /// Number of prepared workspaces; 0 removes them
        count: usize,
    },
    /// What to tell programs that run in one: export NAME=VALUE lines
    Env(OneWs),
    /// Adopt a worktree that was created by hand
    Adopt {
        /// Where it is
        path: PathBuf,
    },
    /// Record that the work in one has landed, however it was merged
    Landed(OneWs),
    /// Keep a workspace until it is unpinned
    Pin(OneWs),
    /// Unpin a workspace
    Unpin(OneWs),
}

const SHELL_EXAMPLES: &str = "\
Examples:
  eval \"$(toft shell bash)\"       in ~/.bashrc
  eval \"$(toft shell zsh)\"        in ~/.zshrc
  toft shell fish | source         in ~/.config/fish/config.fish
  tcd tf-a41c                      go to the workspace of an issue";

/// Print a shell function.
#[derive(Args, Debug)]
#[command(after_help = SHELL_EXAMPLES)]
pub(crate) struct Shell {
    /// The shell; the one that SHELL names when left out
    pub(crate) shell: Option<ShellKind>,
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
    /// The issue or task that is worked on in it
    #[arg(required_unless_present = "name")]
    pub(crate) id: Option<String>,
    /// What to call it and its branch; after the issue or task when left out
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
    /// The commit or branch to start from; what the main checkout is on when left out
    #[arg(long, value_name = "REV")]
    pub(crate) base: Option<String>,
    /// Clone instead of worktree: its own branches, hooks and configuration
    #[arg(long)]
    pub(crate) clone: bool,
    /// Skip the setup: copy, link and run nothing
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
    /// Workspace, by name, path or id, or by its issue or task; by default the current one; @ is that of the task you hold
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
    /// Its workspace, by name or id
    #[arg(value_name = "WS")]
    pub(crate) id: String,
    /// The rescue: its number, or its commit
    #[arg(long, value_name = "RESCUE")]
    pub(crate) at: String,
}

/// Bring one back.
#[derive(Args, Debug)]
pub(crate) struct RestoreWs {
    #[command(flatten)]
    pub(crate) one: OneWs,
    /// The rescue: its number, or its commit; the one it was taken down with when left out
    #[arg(long, value_name = "RESCUE")]
    pub(crate) at: Option<String>,
    /// Under another name, beside the one that is there
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
