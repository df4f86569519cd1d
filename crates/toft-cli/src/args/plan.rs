//! Issues.

use clap::{Args, Subcommand};
use toft::time::parse_duration;

use clap_complete::ArgValueCompleter;

use super::{complete, positive, priority};

/// Add issues.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft add \"Pin the orders schema\" -p 1 -l db
  toft add \"Migrate orders\" --needs tf-a41c
  toft add - < plan.md          a list: each item an issue, nested items its parts
  toft add - < issues.jsonl     a line each: {\"title\": …, \"name\": …, \"needs\": [names]}")]
pub(crate) struct Add {
    /// Title; - reads several issues from standard input
    pub(crate) title: String,
    /// Type: task, bug, feature, epic, chore, decision, or any word
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,
    #[command(flatten)]
    pub(crate) fields: Fields,
    /// Ledger to write to
    #[arg(long, value_name = "NAME")]
    pub(crate) ledger: Option<String>,
}

/// What can be said of an issue.
#[derive(Args, Debug, Default)]
pub(crate) struct Fields {
    /// Priority; P0 is the most urgent
    #[arg(short, long, value_name = "P0..P4", value_parser = priority)]
    pub(crate) priority: Option<u8>,
    /// Label to add
    #[arg(short, long = "label", value_name = "LABEL")]
    pub(crate) labels: Vec<String>,
    /// Issue that must be closed first
    #[arg(long, value_name = "ID")]
    pub(crate) needs: Vec<String>,
    /// Issue that this one was discovered from
    #[arg(long, value_name = "ID")]
    pub(crate) discovered_from: Vec<String>,
    /// Related issue
    #[arg(long, value_name = "ID")]
    pub(crate) related: Vec<String>,
    /// Parent issue
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// Description
    #[arg(short = 'd', long, alias = "description", value_name = "TEXT")]
    pub(crate) body: Option<String>,
    /// Design
    #[arg(long, value_name = "TEXT")]
    pub(crate) design: Option<String>,
    /// Acceptance criteria
    #[arg(long, value_name = "TEXT")]
    pub(crate) acceptance: Option<String>,
    /// Notes
    #[arg(long, value_name = "TEXT")]
    pub(crate) notes: Option<String>,
    /// Owner
    #[arg(long, value_name = "NAME")]
    pub(crate) owner: Option<String>,
    /// Template for its workflow
    #[arg(long, value_name = "NAME")]
    pub(crate) template: Option<String>,
    /// Due date, or the time until then: 2026-12-01, 3d
    #[arg(long, value_name = "DATE|DUR")]
    pub(crate) due: Option<String>,
    /// Defer for this long
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub(crate) defer: Option<std::time::Duration>,
}

/// Change issues: fields, labels, dependencies, comments.
#[derive(Args, Debug, Default)]
#[command(after_help = "\
Examples:
  toft edit tf-a41c -p P0 -l db --needs tf-7f3a
  toft edit tf-a41c tf-7f3a -p P1 --due 2026-12-01
  toft edit tf-a41c --close \"the schema is pinned\"
  toft edit tf-a41c -m \"see the log of the nightly run\"
  toft edit tf-a41c                 opens title and description in $EDITOR")]
pub(crate) struct EditIssue {
    /// The issues
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
    /// Label to remove
    #[arg(long, value_name = "LABEL")]
    pub(crate) unlabel: Vec<String>,
    /// Remove a dependency
    #[arg(long, value_name = "ID")]
    pub(crate) unneeds: Vec<String>,
    /// Add a comment
    #[arg(short = 'm', long, alias = "message", value_name = "TEXT")]
    pub(crate) comment: Option<String>,
    /// Clear the defer date
    #[arg(long, conflicts_with = "defer")]
    pub(crate) undefer: bool,
    /// Assign the issue to this agent; an empty name assigns it to nobody
    #[arg(long, value_name = "AGENT", add = ArgValueCompleter::new(complete::agents))]
    pub(crate) assignee: Option<String>,
    /// Close the issue, with a reason
    #[arg(long, value_name = "REASON", conflicts_with = "reopen")]
    pub(crate) close: Option<String>,
    /// Reopen the issue
    #[arg(long)]
    pub(crate) reopen: bool,
    /// open, deferred or closed; claim and finish set the others
    #[arg(long, value_name = "STATUS", conflicts_with_all = ["close", "reopen", "defer", "undefer"])]
    pub(crate) status: Option<String>,
}

/// Close issues, with a reason. An agent that holds the work uses `toft finish` instead.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  toft close tf-a41c tf-7f3a -m \"no longer needed\"")]
pub(crate) struct Close {
    /// The issues
    #[arg(value_name = "ID", required = true, add = ArgValueCompleter::new(complete::issues))]
    pub(crate) ids: Vec<String>,
    /// Why
    #[arg(short = 'm', long, default_value = "", alias = "message")]
    pub(crate) reason: String,
}

/// Delete an issue.
#[derive(Args, Debug)]
pub(crate) struct Delete {
    /// The issue
    #[arg(add = ArgValueCompleter::new(complete::issues))]
    pub(crate) id: String,
    /// Why
    #[arg(short = 'm', long, default_value = "", alias = "message")]
    pub(crate) reason: String,
}

/// Restore a deleted issue.
#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// The issue
    pub(crate) id: String,
}

/// Undo your last operations.
#[derive(Args, Debug)]
#[command(after_help = "\
Issues become what they were, a claim is given back, a workflow nobody worked on is given up. What others may
have acted on stays, and so does what somebody wrote over since.

Examples:
  toft undo -n     what the next undo would take back
  toft undo 3      the last three")]
pub(crate) struct Undo {
    /// Number of operations
    #[arg(default_value = "1", value_parser = positive)]
    pub(crate) count: usize,
    /// Dry run: show what would be undone
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Redo what you undid.
#[derive(Args, Debug)]
#[command(after_help = "\
Issues are written again, a workflow that was given up is there again, a claim is made again if the task is free. Nothing is
done again that others have changed since.

Examples:
  toft redo -n     what the next redo would do
  toft redo        the last that was undone")]
pub(crate) struct Redo {
    /// Number of operations
    #[arg(default_value = "1", value_parser = positive)]
    pub(crate) count: usize,
    /// Dry run: show what would be redone
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

/// Ledgers.
#[derive(Args, Debug)]
pub(crate) struct LedgerArgs {
    #[command(subcommand)]
    pub(crate) command: LedgerCommand,
}

/// What can be done with ledgers.
#[derive(Debug, Subcommand)]
pub(crate) enum LedgerCommand {
    /// The ledgers seen from here; new issues go to the first one unless a route or --ledger says otherwise
    List,
    /// What ledgers publish from this clone: to which branch, and under which names
    Show {
        /// Which; every one when left out
        name: Option<String>,
    },
    /// See another ledger: that of a repository, of a remote, or any directory
    #[command(after_help = "\
Of a repository in which toft is set up, its own ledger is meant, wherever it keeps that: on its branch,
in its working tree, or where its own `ledger default` points. Any other directory is a ledger by itself.
A remote's ledger is copied to a repository of toft's own, and exchanged by `toft sync`.

Examples:
  toft ledger add team ../team-plans
  toft ledger add api ~/src/api --read-only
  toft ledger add org https://example.org/org/plans.git")]
    Add {
        /// What to call it
        name: String,
        /// A repository, a directory, or the URL of a git remote
        place: String,
        /// Never write to it
        #[arg(long)]
        read_only: bool,
    },
    /// Send new issues to this ledger unless a route, a parent or --ledger says otherwise
    Default {
        /// Which; . is the repository's own
        name: String,
    },
    /// Route new issues to a ledger by type, label, path or role
    #[command(after_help = "\
--ledger beats the ledger of a parent, which beats a route by type, label or path, which beats a route by
role, which beats the default. Of several routes that fit, the first one counts.

Examples:
  toft ledger route team --type bug
  toft ledger route design --label ux
  toft ledger route docs --path docs/guide
  toft ledger route . --role maintainer")]
    Route {
        /// Where they go; . is the repository's own ledger
        ledger: String,
        /// Issues of this type
        #[arg(short = 't', long = "type", value_name = "TYPE")]
        kind: Option<String>,
        /// Issues with this label
        #[arg(short, long)]
        label: Option<String>,
        /// Issues written in this directory of the repository, or below it
        #[arg(long)]
        path: Option<String>,
        /// Issues of users with this role: maintainer or contributor
        #[arg(long)]
        role: Option<String>,
        /// Take this route back
        #[arg(long)]
        remove: bool,
    },
    /// Whether routes by role apply: auto or explicit
    Mode {
        /// auto: by role too; explicit: only by type, label and path
        mode: String,
    },
    /// No longer see a ledger; it stays as it is
    Remove {
        /// Which
        name: String,
    },
}

/// Put ledgers in order.
#[derive(Args, Debug)]
pub(crate) struct Compact {
    /// Issues closed longer ago than this go to the archive
    #[arg(long, value_name = "DUR", default_value = "14d", value_parser = parse_duration)]
    pub(crate) archive_after: std::time::Duration,
}

/// Take issues in from elsewhere.
#[derive(Args, Debug)]
#[command(
    after_help = "Nothing of the other tool is changed, and importing again changes nothing that is known.\n\nExamples:\n  toft import beads .beads             its ledger, its deletions, and whether you plan in private\n  toft import caw ~/.caw/workflows.db\n  toft import langgraph ~/.agentos/issue_workflow.db --only 'issue-*'\n  toft import jsonl backup.jsonl\n  toft import markdown plan.md"
)]
pub(crate) struct Import {
    /// beads; jsonl: lines as a ledger has them; markdown: a list, again and again as it grows; caw, langgraph: their
    /// databases
    #[arg(value_parser = ["beads", "jsonl", "markdown", "caw", "langgraph"])]
    pub(crate) form: String,
    /// The file, or a .beads directory; - for standard input
    pub(crate) file: String,
    /// Into this ledger
    #[arg(long, value_name = "NAME")]
    pub(crate) ledger: Option<String>,
    /// Workflows of caw or threads of LangGraph to import, by name or id; * stands for anything
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
}

/// Give issues out.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toft export jsonl > backup.jsonl\n  toft export beads .beads             import what beads changed, then write what changed here\n  toft export beads | bd import -      the same for a beads with a database, after toft import beads"
)]
pub(crate) struct Export {
    /// beads, jsonl, csv; schema: what a line of a ledger may say, as a JSON schema
    #[arg(value_parser = ["beads", "jsonl", "csv", "schema"])]
    pub(crate) form: String,
    /// Beads file or .beads directory to update in place; without it, issues go to standard output
    pub(crate) file: Option<String>,
    /// Ledger for issues that only beads has
    #[arg(long, value_name = "NAME", requires = "file")]
    pub(crate) ledger: Option<String>,
    /// As of a revision or time
    #[arg(long, value_name = "REV|TIME", conflicts_with = "file")]
    pub(crate) at: Option<String>,
}

/// The plan as a picture.
#[derive(Args, Debug)]
pub(crate) struct Graph {
    /// Only this issue and those it is connected to, closed ones too
    pub(crate) id: Option<String>,
    /// Include closed issues
    #[arg(long)]
    pub(crate) all: bool,
    /// For tools that draw Mermaid
    #[arg(long, conflicts_with = "dot")]
    pub(crate) mermaid: bool,
    /// For Graphviz
    #[arg(long)]
    pub(crate) dot: bool,
    /// A picture: toft graph --svg > plan.svg
    #[arg(long, conflicts_with_all = ["dot", "mermaid"])]
    pub(crate) svg: bool,
    /// Maximum number of issues
    #[arg(long, default_value = "200", value_parser = positive)]
    pub(crate) limit: usize,
}
