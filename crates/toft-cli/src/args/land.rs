//! Arguments of `toft land` and `toft review`: what a user types, and what it means. Nothing is done with it here.
//!
//! Doc comments of arguments are the help text, and their `Debug` text goes into the digest of `--op`.

use clap::{Args, Subcommand};

const LAND_EXAMPLES: &str = "\
Examples:
  toft land                        # land everything that is finished
  toft land -n                     # what would land, in which order, and what conflicts
  toft land tf-a41c                # land this issue's work
  toft land list                   # finished work and what it waits for
  toft land show tf-a41c           # why it was sent back
  toft land revert tf-a41c         # take it back";

/// Land finished work: merge it, check it, move the branch.
#[derive(Args, Debug)]
#[command(after_help = LAND_EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct LandArgs {
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
pub(crate) struct ReviewArgs {
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

/// What a reviewer decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewDecision {
    Approve,
    SendBack,
}

/// A reviewer's comment at a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineComment<'a> {
    /// `FILE:LINE`.
    pub(crate) place: &'a str,
    pub(crate) text: &'a str,
}

impl ReviewArgs {
    /// Returns the decision; none if the work is only shown. Both flags at once are refused by clap.
    pub(crate) fn decision(&self) -> Option<ReviewDecision> {
        match (self.approve, self.send_back) {
            (true, _) => Some(ReviewDecision::Approve),
            (_, true) => Some(ReviewDecision::SendBack),
            (false, false) => None,
        }
    }

    /// Returns the comments of `--at`, which takes two values each time.
    pub(crate) fn line_comments(&self) -> Vec<LineComment<'_>> {
        self.at.chunks_exact(2).map(|pair| LineComment { place: &pair[0], text: &pair[1] }).collect()
    }
}

impl LineComment<'_> {
    pub(crate) fn file(&self) -> &str {
        self.place.rsplit_once(':').map_or(self.place, |(file, _)| file)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ReviewLine {
        #[command(flatten)]
        args: ReviewArgs,
    }

    fn parse_review(line: &[&str]) -> Result<ReviewArgs, clap::Error> {
        let words = ["review"].iter().chain(line);
        ReviewLine::try_parse_from(words).map(|line| line.args)
    }

    #[test]
    fn review_takes_one_decision_and_needs_an_id_for_it() {
        assert_eq!(parse_review(&["tf-1"]).unwrap().decision(), None);
        assert_eq!(parse_review(&["tf-1", "--return"]).unwrap().decision(), Some(ReviewDecision::SendBack));
        assert!(parse_review(&["tf-1", "--approve", "--return"]).is_err());
        assert!(parse_review(&["--approve"]).is_err());
    }

    #[test]
    fn line_comments_are_pairs_of_place_and_text() {
        let args = parse_review(&["tf-1", "--return", "--at", "src/a.rs:12", "this panics"]).unwrap();
        let comments = args.line_comments();
        assert_eq!(comments, [LineComment { place: "src/a.rs:12", text: "this panics" }]);
        assert_eq!(comments[0].file(), "src/a.rs");
    }
}
