//! Sharing: sync, proposals, moves.

use clap::Args;

/// Exchange ledgers with other clones: fetch, merge, commit, push. Being offline is not an error.
#[derive(Args, Debug)]
#[command(after_help = "\
A ledger beside a git or jj repository is exchanged as the branch `toft-ledger` of its remote; your repository is not changed. A \
planning or shared ledger is committed, pulled and pushed in its own repository. For a ledger in the working tree, toft merges the \
remote's copy into yours and leaves committing to you.

Examples:
  toft sync                         # all ledgers
  toft sync -n                      # show what would be received and sent
  toft sync --commit                # also commit the ledger in the working tree, that file alone
  toft sync team                    # only this ledger
  toft sync --allow 3f9a2c1d04be    # send a finding that is not a secret")]
pub(crate) struct Sync {
    /// Ledger [default: all]
    pub(crate) ledger: Option<String>,
    /// Dry run: show what would change
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Commit the ledger in the working tree, and nothing else
    #[arg(long)]
    pub(crate) commit: bool,
    /// Do not warn about many or long issues. Secrets are held back all the same: see --allow
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Send text that looks like a secret, by the id of the finding; repeatable
    #[arg(long, value_name = "FINDING")]
    pub(crate) allow: Vec<String>,
}

/// Propose an issue to another ledger, under the same id. Private fields are not published.
#[derive(Args, Debug)]
#[command(after_help = "\
A ledger beside the repository gets a branch `toft-propose/ID`, sent with --push; one in the working tree gets a line. First toft lists \
private ids and titles, paths and secrets in the text (exit 4), each with an id for --allow.

Examples:
  toft propose tf-a41c                         # to the repository's own ledger
  toft propose tf-a41c --push origin           # also push its branch to your fork
  toft propose tf-a41c --allow 3f9ab0c2d41e    # publish this finding as it is
  toft propose tf-a41c --to team")]
pub(crate) struct Propose {
    /// Issues to propose
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,
    /// Withdraw the proposal of these issues
    #[arg(long, conflicts_with_all = ["to", "push", "with", "without", "allow"])]
    pub(crate) withdraw: bool,
    /// Ledger to propose to [default: upstream, the repository's own]
    #[arg(long, value_name = "LEDGER", alias = "target")]
    pub(crate) to: Option<String>,
    /// Push the branch of the proposal to this remote
    #[arg(long, value_name = "REMOTE", num_args = 0..=1, default_missing_value = "origin")]
    pub(crate) push: Option<String>,
    /// Also publish these fields
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// Do not publish these fields
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) without: Vec<String>,
    /// Publish a finding as it is, now and later, by its id
    #[arg(long, value_name = "FINDING", value_delimiter = ',')]
    pub(crate) allow: Vec<String>,
}

/// Accept a proposed issue.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft accept tf-a41c
  toft accept tf-a41c --from https://example.org/ana/project.git    # from a fork's branch")]
pub(crate) struct Accept {
    /// Issues
    #[arg(required = true)]
    pub(crate) ids: Vec<String>,
    /// First fetch the branch of the proposal from this remote or URL
    #[arg(long, value_name = "REMOTE|URL")]
    pub(crate) from: Option<String>,
}

/// Move issues to another ledger. Ids and history stay the same; a tombstone is left in the old ledger.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft move tf-a41c tf-7f3a --to planning
  toft move --to planning --filter author=me
  toft move --to team --filter label=db --filter status=open -n")]
pub(crate) struct Move {
    /// Issues
    pub(crate) ids: Vec<String>,
    /// Target ledger
    #[arg(long, value_name = "LEDGER")]
    pub(crate) to: String,
    /// Only issues that match, of those named or of all: author=NAME (or me), assignee=, label=, status=, type=, ledger=; repeatable
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) filter: Vec<String>,
    /// Dry run: list the issues
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// Also move notes and comments out of a private ledger
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Check that this installation works, or what commits would publish.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  toft doctor                        # check the store, ledgers, workspaces and hooks
  toft doctor --outgoing             # check commits that no remote has for private text
  toft doctor --outgoing main..fix   # the same for a range
  toft doctor --upgrade              # upgrade the store to the schema of this version")]
pub(crate) struct Doctor {
    /// Check what commits would publish: those of RANGE, or those that no remote has
    #[arg(long, value_name = "RANGE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) outgoing: Option<String>,
    /// With --outgoing: allow all findings except secrets
    #[arg(short, long, requires = "outgoing")]
    pub(crate) yes: bool,
    /// With --outgoing: allow a finding, now and later, by its id
    #[arg(long, value_name = "FINDING", value_delimiter = ',', requires = "outgoing")]
    pub(crate) allow: Vec<String>,
    /// Upgrade the store to the schema of this version. Stop processes of older versions first
    #[arg(long, conflicts_with = "outgoing")]
    pub(crate) upgrade: bool,
}
