//! Sharing: sync, proposals, moves.

use clap::Args;

/// Exchange every ledger with other clones: bring in, merge, record, send. Offline is no error.
#[derive(Args, Debug)]
#[command(after_help = "\
A ledger beside a git or jj repository travels as the branch `toft` of its remote; nothing of
yours is touched: no HEAD, no index, no file. A planning or shared ledger is committed, pulled and
pushed in its own repository, whatever that is. Of a ledger in the working tree only the other
side's copy is merged into yours; committing is up to you.

Examples:
  toft sync                 every ledger seen from here
  toft sync -n              what would come and go
  toft sync --commit        and commit the ledger in the working tree, that file alone
  toft sync team            only this ledger
  toft sync --allow 3f9a2c1d04be    a finding that is no secret may leave")]
pub(crate) struct Sync {
    /// Only this ledger
    pub(crate) ledger: Option<String>,
    /// Dry run: show what would change
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Commit the ledger in the working tree, and nothing else
    #[arg(long)]
    pub(crate) commit: bool,
    /// Do not remark on very many or very long issues. Never sends a secret: see --allow
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Send text that looks like a secret, by the name of the finding
    #[arg(long, value_name = "FINDING")]
    pub(crate) allow: Vec<String>,
}

/// Offer an issue to another ledger, under the same id. Notes, comments and private needs stay with you.
#[derive(Args, Debug)]
#[command(after_help = "\
To a ledger in the working tree that is one more line, for your next commit. To one beside the
repository it is a branch `toft-propose/ID` with one commit on top of what upstream has; toft
removes the branch when the proposal is decided.

Published by default: title, type, priority, body, design, acceptance, due, when it was written, deps
and parent that upstream can see, and labels that upstream uses. --with adds: created (who wrote
it), labels (all of them), comments, notes, owner, assignee, defer_until, template, closed (who
closed it, and why).

Before anything is written, toft looks for private ids and titles, paths of this machine, and
secrets in what would be published, and lists them (exit 4). Each finding has a short id for --allow.

Examples:
  toft propose tf-a41c                         to the repository's own ledger
  toft propose tf-a41c --push origin           and send its branch to your fork
  toft propose tf-a41c --without design,labels
  toft propose tf-a41c --allow 3f9ab0c2d41e    publish this finding as it is
  toft propose tf-a41c --to team")]
pub(crate) struct Propose {
    /// Issues to propose
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,
    /// Ledger to propose to; the repository's own by default, which is also called upstream
    #[arg(long, value_name = "LEDGER", alias = "target")]
    pub(crate) to: Option<String>,
    /// Send the branch that proposes it to this remote
    #[arg(long, value_name = "REMOTE", num_args = 0..=1, default_missing_value = "origin")]
    pub(crate) push: Option<String>,
    /// Publish these fields, too
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// Leave these fields out
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) without: Vec<String>,
    /// Publish a finding as it is, now and later, by the id that the refusal lists
    #[arg(long, value_name = "FINDING", value_delimiter = ',')]
    pub(crate) allow: Vec<String>,
}

/// Take a proposal back.
#[derive(Args, Debug)]
pub(crate) struct Withdraw {
    /// Which issue
    pub(crate) id: String,
}

/// Take what somebody proposed into the plan.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft accept tf-a41c
  toft accept tf-a41c --from https://example.org/ana/project.git    from a fork's branch")]
pub(crate) struct Accept {
    /// Which issues
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,
    /// Fetch the branch that proposes it from this remote or URL first
    #[arg(long, value_name = "REMOTE|URL")]
    pub(crate) from: Option<String>,
}

/// Refuse what somebody proposed; they hear why on their next sync.
#[derive(Args, Debug)]
pub(crate) struct Reject {
    /// Which issue
    pub(crate) id: String,
    /// Why
    #[arg(short = 'm', long, alias = "message")]
    pub(crate) reason: String,
}

/// Move issues to another ledger: same ids, same history, a tombstone where they were.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft move tf-a41c tf-7f3a --to planning
  toft move --to planning --filter author=me
  toft move --to team --filter label=db --filter status=open -n")]
pub(crate) struct Move {
    /// Which issues
    pub(crate) ids: Vec<String>,
    /// To which ledger
    #[arg(long, value_name = "LEDGER")]
    pub(crate) to: String,
    /// Only those that fit, of the named ones or of all: author=NAME (or me), assignee=, label=, status=, type=, ledger=
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) filter: Vec<String>,
    /// Dry run: list them
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Notes and comments may leave a private ledger, too
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Take an issue out of a ledger's history: its files, its commits, and the branch of its remote.
#[derive(Args, Debug)]
#[command(after_help = "\
What is left is a tombstone without text, which takes the text out of every other clone at its next
sync. The history of a ledger in your working tree is yours: there only the file is changed. Says
who has copies; a secret that was shared must be replaced all the same.

Examples:
  toft purge tf-a41c -n     what would be rewritten, and who has copies
  toft purge tf-a41c")]
pub(crate) struct Purge {
    /// Which issue
    pub(crate) id: String,
    /// Dry run: show what would be done
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Do not ask before the remote's branch is rewritten
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Check that this installation works, or what commits would publish.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft doctor                        everything, on this machine
  toft doctor --outgoing             commits that no remote has: would they publish what is private?
  toft doctor --outgoing main..fix   the same for a range")]
pub(crate) struct Doctor {
    /// Look at what commits would publish: those of RANGE, or those that no remote has
    #[arg(long, value_name = "RANGE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) outgoing: Option<String>,
    /// With --outgoing: let everything doubtful leave, except what looks like a secret
    #[arg(short, long, requires = "outgoing")]
    pub(crate) yes: bool,
    /// With --outgoing: let a finding leave, now and later, by the id that is listed
    #[arg(long, value_name = "FINDING", value_delimiter = ',', requires = "outgoing")]
    pub(crate) allow: Vec<String>,
}
