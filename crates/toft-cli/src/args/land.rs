//! Arguments of commands that land work.

use clap::{Args, Subcommand};

const LAND_EXAMPLES: &str = "\
Examples:
  toft land                        # land everything that is finished
  toft land -n                     # what would land, in which order, and what conflicts
  toft land tf-a41c                # land this issue's work
  toft land list                   # finished work and what it waits for
  toft land show tf-a41c           # why it was sent back
  toft land revert tf-a41c         # take it back

A check in the configuration has to pass before the branch moves:
  [land]
  check = [\"cargo test\"]";

/// Land finished work: merge it, check it, move the branch.
#[derive(Args, Debug)]
#[command(after_help = LAND_EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Land {
    #[command(subcommand)]
    pub(crate) command: Option<LandCommand>,
    /// Issues or tasks whose work is to land [default: all that is ready]
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Only show what would land
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Only if this is the finished commit: what came after it was not looked at
    #[arg(long, value_name = "COMMIT", requires = "ids")]
    pub(crate) commit: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LandCommand {
    /// List finished work, in the order in which it lands
    List {
        /// Include the last work that has landed
        #[arg(long)]
        all: bool,
    },
    /// Show the way of one piece of work: where it is, and why it was sent back
    Show {
        /// Issue, task or landing
        id: String,
    },
    /// Do not land it; its issue is closed as if it had
    Withdraw {
        /// Issue, task or landing
        id: String,
        /// Why
        #[arg(short, long, default_value = "")]
        message: String,
    },
    /// Take back what has landed, by another landing that is checked like any other
    Revert {
        /// Issue, task or landing
        id: String,
    },
    /// List checks that failed and passed on the same files
    Flaky,
}

const REVIEW_EXAMPLES: &str = "\
Examples:
  toft review                      # what waits for review
  toft review tf-a41c              # its diff and reports
  toft review tf-a41c --approve
  toft review tf-a41c --return -m \"Handle the empty list\" --at src/a.rs:12 \"this panics\"";

/// Review finished work: show it, approve it, or return it with comments.
#[derive(Args, Debug)]
#[command(after_help = REVIEW_EXAMPLES)]
pub(crate) struct Review {
    /// Issue, task or landing
    pub(crate) id: Option<String>,
    /// Approve it
    #[arg(long, requires = "id", group = "verdict")]
    pub(crate) approve: bool,
    /// Return it to an agent, with what has to change
    #[arg(long = "return", requires = "id", group = "verdict")]
    pub(crate) send_back: bool,
    /// What has to change, or what you say to the approval
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// A comment at a line
    #[arg(long, num_args = 2, value_names = ["FILE:LINE", "TEXT"], requires = "verdict", allow_hyphen_values = true)]
    pub(crate) at: Vec<String>,
    /// Only if this is the finished commit: what came after it was not looked at
    #[arg(long, value_name = "COMMIT", requires = "verdict")]
    pub(crate) commit: Option<String>,
}
