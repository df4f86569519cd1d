//! Issues.

use clap::{Args, Subcommand};
use toft::time::parse_duration;

use clap_complete::ArgValueCompleter;

use super::{complete, positive, priority};

/// Add issues.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft add \"Pin the orders schema\" -p P1 -l db
  toft add \"Migrate orders\" --needs tf-a41c
  toft add - < plan.md          # a Markdown list: an issue for each item, nested items are parts
  toft add - < issues.jsonl     # an issue on each line: {\"title\": …, \"name\": …, \"needs\": [names]}")]
pub(crate) struct Add {
    /// Title; - reads several issues from standard input
    pub(crate) title: String,
    /// Type: task, bug, feature, epic, chore, decision, or any word
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    #[command(flatten)]
    pub(crate) fields: Fields,
    /// Ledger to write to [default: see `toft ledger list`]
    #[arg(long, value_name = "NAME")]
    pub(crate) ledger: Option<String>,
}

/// What can be said of an issue.
#[derive(Args, Debug)]
pub(crate) struct Fields {
    /// Priority; P0 is the most urgent
    #[arg(short, long, value_name = "P0..P4", value_parser = priority)]
    pub(crate) priority: Option<u8>,
    /// Label to add; repeatable
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Issue that must be closed first; repeatable
    #[arg(long, value_name = "ID")]
    pub(crate) needs: Vec<String>,
    /// Issue that this one was discovered from; repeatable
    #[arg(hide_short_help = true, long, value_name = "ID")]
    pub(crate) discovered_from: Vec<String>,
    /// Related issue; repeatable
    #[arg(hide_short_help = true, long, value_name = "ID")]
    pub(crate) related: Vec<String>,
    /// Parent issue
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Description
    #[arg(short = 'd', long, alias = "description", value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// Design
    #[arg(hide_short_help = true, long, value_name = "TEXT")]
    pub(crate) design: Option<String>,
    /// Acceptance criteria
    #[arg(hide_short_help = true, long, value_name = "TEXT")]
    pub(crate) acceptance: Option<String>,
    /// Notes
    #[arg(hide_short_help = true, long, value_name = "TEXT")]
    pub(crate) notes: Option<String>,
    /// Owner
    #[arg(hide_short_help = true, long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Template for its workflow
    #[arg(hide_short_help = true, long, value_name = "NAME")]
    pub(crate) template: Option<String>,
    /// Due date, or the time until then: 2026-12-01, 3d
    #[arg(hide_short_help = true, long, value_name = "DATE|DUR")]
    pub(crate) due: Option<String>,
    /// Defer for this long
    #[arg(hide_short_help = true, long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) defer: Option<std::time::Duration>,
}

/// Change issues: fields, labels, dependencies, comments.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft edit tf-a41c -p P0 -l db --needs tf-7f3a
  toft edit tf-a41c -m \"see the log of the nightly run\"
  toft edit tf-a41c                 # opens title and description in $EDITOR")]
pub(crate) struct EditIssue {
    /// Issues
    #[arg(value_name = "ID", required = true, add = ArgValueCompleter::new(complete::issues))]
    pub(crate) ids: Vec<String>,
    /// Open title and description in $VISUAL or $EDITOR
    #[arg(short, long)]
    pub(crate) editor: bool,
    /// Title
    #[arg(long)]
    pub(crate) title: Option<String>,
    /// Type: task, bug, feature, epic, chore, decision, or any word
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    #[command(flatten)]
    pub(crate) fields: Fields,
    /// Label to remove; repeatable
    #[arg(long, value_name = "LABEL")]
    pub(crate) unlabel: Vec<String>,
    /// Dependency to remove; repeatable
    #[arg(long, value_name = "ID")]
    pub(crate) unneeds: Vec<String>,
    /// Add a comment
    #[arg(short = 'm', long, alias = "message", value_name = "TEXT")]
    pub(crate) comment: Option<String>,
    /// Assign the issue to this agent; an empty name assigns it to nobody
    #[arg(long, value_name = "AGENT", add = ArgValueCompleter::new(complete::agents))]
    pub(crate) assignee: Option<String>,
    /// Close the issue, for this reason
    #[arg(long = "tool-close", hide = true, conflicts_with = "reopen")]
    pub(crate) close: Option<String>,
    /// Reopen the issue
    #[arg(long = "tool-reopen", hide = true)]
    pub(crate) reopen: bool,
}

/// Reopen issues that were closed, deferred or deleted, or that a store left in progress that is gone.
#[derive(Args, Debug)]
pub(crate) struct Reopen {
    /// Issues
    #[arg(value_name = "ID", required = true, add = ArgValueCompleter::new(complete::issues))]
    pub(crate) ids: Vec<String>,
    /// Add a comment
    #[arg(short = 'm', long, alias = "message", value_name = "TEXT")]
    pub(crate) comment: Option<String>,
}

/// Close issues, or reject proposals, with a reason, which the author of a proposal gets with the next sync. An agent that holds the
/// work uses `toft finish` instead.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  toft close tf-a41c tf-7f3a -m \"no longer needed\"")]
pub(crate) struct Close {
    /// Issues, or tasks of workflows to skip
    #[arg(value_name = "ID", required = true, add = ArgValueCompleter::new(complete::issues))]
    pub(crate) ids: Vec<String>,
    /// Reason
    #[arg(short = 'm', long, default_value = "", alias = "message")]
    pub(crate) reason: String,
}

/// Delete an issue; reopen brings it back. With --purge, remove its text from the ledger's history: its files, its commits, and the
/// branch of its remote.
#[derive(Args, Debug)]
#[command(after_help = "\
A purge leaves a tombstone without text, which removes the text from every other clone at that clone's next sync. toft does not rewrite \
the history of your working tree: there it changes only the file. It lists who has copies. A secret that was shared must still be replaced.

Examples:
  toft delete tf-a41c -m \"a duplicate\"
  toft delete tf-a41c --purge -n     # show what would be rewritten, and who has copies
  toft delete tf-a41c --purge")]
pub(crate) struct Delete {
    /// Issue
    #[arg(add = ArgValueCompleter::new(complete::issues))]
    pub(crate) id: String,
    /// Reason
    #[arg(short = 'm', long, default_value = "", alias = "message", conflicts_with = "purge")]
    pub(crate) reason: String,
    /// Remove the issue's text from the history of its ledger; reopen cannot bring it back
    #[arg(long)]
    pub(crate) purge: bool,
    /// With --purge: show what would be done
    #[arg(short = 'n', long, requires = "purge")]
    pub(crate) dry_run: bool,
    /// With --purge: do not ask before rewriting the remote's branch
    #[arg(short, long, requires = "purge")]
    pub(crate) yes: bool,
}

/// Undo your last operations, where that is safe.
#[derive(Args, Debug)]
#[command(after_help = "\
Undo restores issues, releases claims, and abandons workflows that no agent has worked on. It refuses to undo operations that \
others may have acted on, or whose result was overwritten since. A claim that was undone is not made again: claim the issue.

Examples:
  toft undo -n     # show what the next undo would do
  toft undo 3      # undo the last three operations
  toft undo --redo # bring back the last operation that was undone")]
pub(crate) struct Undo {
    /// Number of operations
    #[arg(default_value = "1", value_parser = positive)]
    pub(crate) count: usize,
    /// Dry run: show what would be undone
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Bring back operations that you undid, the last one first
    #[arg(long)]
    pub(crate) redo: bool,
    /// Only if this is your last operation, as `toft undo -n` names it
    #[arg(long, value_name = "OP", conflicts_with_all = ["count", "dry_run", "redo"])]
    pub(crate) last: Option<String>,
}

/// Manage the ledgers that this clone sees.
#[derive(Args, Debug)]
pub(crate) struct LedgerArgs {
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

/// What can be done with ledgers.
#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// List ledgers; new issues go to the first one, unless a route or --ledger names another
    List,
    /// Show what ledgers publish from this clone: to which branch, and under which names
    Show {
        /// Ledger [default: all]
        name: Option<String>,
    },
    /// Add a ledger: that of a repository, of a remote, or any directory
    #[command(after_help = "\
The path of a repository in which toft is set up adds that repository's own ledger, wherever it is kept: beside the repository, \
in its working tree, or where its `ledger default` points. Any other directory is itself a ledger. toft keeps a copy of a remote's \
ledger, and `toft sync` exchanges it.

Examples:
  toft ledger add team ../team-plans
  toft ledger add api ~/src/api --read-only
  toft ledger add org https://example.org/org/plans.git")]
    Add {
        /// Name of the ledger
        name: String,
        /// Repository, directory, or URL of a git remote
        place: String,
        /// Never write to it
        #[arg(long)]
        read_only: bool,
    },
    /// Set the ledger for new issues, unless a route, a parent or --ledger names another
    Default {
        /// Ledger; . is the repository's own
        name: String,
    },
    /// Route new issues to a ledger by type, label, path or role
    #[command(after_help = "\
The first of these that applies names the ledger: --ledger, the parent's ledger, a route by type, label or path, a route by role, \
the default. If several routes match, the first one applies.

Examples:
  toft ledger route team --type bug
  toft ledger route design --label ux
  toft ledger route docs --path docs/guide
  toft ledger route . --role maintainer")]
    Route {
        /// Ledger that the issues go to; . is the repository's own
        ledger: String,
        /// Issues of this type
        #[arg(short = 't', long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Issues with this label
        #[arg(short, long)]
        label: Option<String>,
        /// Issues added in this directory of the repository, or below it
        #[arg(long)]
        path: Option<String>,
        /// Issues of users with this role: maintainer or contributor
        #[arg(long)]
        role: Option<String>,
        /// Remove this route
        #[arg(long)]
        remove: bool,
    },
    /// Set whether routes by role apply: auto or explicit
    Mode {
        /// auto: routes by role apply; explicit: only routes by type, label and path apply
        mode: String,
    },
    /// Remove a ledger from this clone's list; its files are kept
    Remove {
        /// Ledger
        name: String,
    },
}

/// Import issues: beads, jsonl, markdown, caw, langgraph.
#[derive(Args, Debug)]
#[command(
    after_help = "The other tool's data is not changed. Importing again adds only what is new or newer.\n\nExamples:\n  toft import beads .beads             # issues, deletions, and whether you plan in private\n  toft import caw ~/.caw/workflows.db\n  toft import langgraph ~/.agentos/issue_workflow.db --only 'issue-*'\n  toft import jsonl backup.jsonl\n  toft import markdown plan.md"
)]
pub(crate) struct Import {
    /// Format: beads; jsonl, the lines of a ledger; markdown, a list that may be imported again as it grows; caw and langgraph,
    /// their databases
    #[arg(value_parser = ["beads", "jsonl", "markdown", "caw", "langgraph"])]
    pub(crate) form: String,
    /// File, or a .beads directory; - reads standard input
    pub(crate) file: String,
    /// Ledger to import into
    #[arg(long, value_name = "NAME")]
    pub(crate) ledger: Option<String>,
    /// Workflows of caw or threads of LangGraph to import, by name or id; * matches anything; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
}

/// Export issues: beads, jsonl, csv, schema.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toft export jsonl > backup.jsonl\n  toft export schema                   # of the lines of a ledger\n  toft export schema claim             # of one call of the library; `calls`: of all\n  toft export beads .beads             # import what beads changed, then write what changed here\n  toft export beads | bd import -      # the same for beads with a database, after toft import beads"
)]
pub(crate) struct Export {
    /// Format: beads, jsonl, csv; schema prints the JSON schema of a ledger's lines, or of a call
    #[arg(value_parser = ["beads", "jsonl", "csv", "schema"])]
    pub(crate) form: String,
    /// Beads file or .beads directory to update in place; without it, issues go to standard output. With schema: a call
    #[arg(value_name = "FILE|CALL")]
    pub(crate) file: Option<String>,
    /// Ledger for issues that only beads has
    #[arg(long, value_name = "NAME", requires = "file")]
    pub(crate) ledger: Option<String>,
    /// Export issues as of a revision or time
    #[arg(long, value_name = "REV|TIME", conflicts_with = "file")]
    pub(crate) at: Option<String>,
}
