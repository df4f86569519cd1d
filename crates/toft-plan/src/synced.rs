//! What is wanted of a sync, and how it went.

use std::{collections::BTreeSet, time::Instant};

use serde::Serialize;
use toft_vcs::exchange::ExchangeError;

use super::{Ledger, LedgerKind, propose::ProposalEnd};

/// What somebody wants of a sync.
#[derive(Clone, Debug, Default)]
pub struct SyncOptions {
    /// Only this ledger.
    pub ledger: Option<String>,
    /// Only say what would be done.
    pub try_only: bool,
    /// Commit ledgers in the working tree.
    pub commit: bool,
    /// Very many or very long issues may be sent.
    pub sure: bool,
    /// Begin nothing after this moment.
    pub until: Option<Instant>,
}

/// How far a ledger came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncStatus {
    /// Both sides have the same.
    Synced,
    /// The other side's news is here; ours goes there when somebody commits, or proposes.
    Received,
    /// It is recorded here, and there is nobody to send it to.
    Recorded,
    /// It has no version control; copying it is up to its owner.
    Unversioned,
    /// It is read and never written here, so it is its owner's to bring up to date.
    Left,
    /// The other side cannot be reached; everything waits here.
    Offline,
    /// There is no repository where the remote's URL points.
    NotFound,
    /// The other side does not let us in.
    Denied,
    /// The other side does not take it.
    Protected,
    /// Something else than the ledger is in the way.
    InTheWay,
    /// Others were faster again and again.
    Outrun,
    /// Something doubtful is not sent unless somebody says so.
    Held,
    /// Something else failed.
    Failed,
}

impl SyncStatus {
    /// Is there something somebody must do?
    pub fn failed(self) -> bool {
        matches!(
            self,
            Self::NotFound | Self::Denied | Self::Protected | Self::InTheWay | Self::Outrun | Self::Held | Self::Failed
        )
    }
}

/// How it went with one ledger.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Synced {
    /// Which.
    pub ledger: String,
    /// What kind of place it is in.
    pub place: LedgerKind,
    /// With whom.
    pub remote: Option<String>,
    /// How far it came.
    pub how: SyncStatus,
    /// How many issues came in, or changed by what did.
    pub received: usize,
    /// How many issues went out.
    pub sent: usize,
    /// How often others were faster.
    pub races: u32,
    /// The other side's history was replaced; nothing of ours was.
    pub rewritten: bool,
    /// What came of proposals.
    pub came: Vec<ProposalEnd>,
    /// What was heard, or what is in doubt.
    pub said: Vec<String>,
    /// Secrets that were found, by the name that `--allow` takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

impl Synced {
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self {
            ledger: ledger.name.clone(),
            place: ledger.place,
            remote: None,
            how: SyncStatus::Synced,
            received: 0,
            sent: 0,
            races: 0,
            rewritten: false,
            came: Vec::new(),
            said: Vec::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn takes(&mut self, taken: &TakenLines) {
        self.received += taken.changed;
        if taken.broken > 0 {
            let count = taken.broken;
            self.said.push(format!("kept {count} broken lines of theirs as they are; `toft doctor` lists them"));
        }
    }

    pub(super) fn fails(&mut self, error: &ExchangeError) {
        self.how = match error {
            ExchangeError::Offline { .. } => SyncStatus::Offline,
            ExchangeError::NotFound { .. } => SyncStatus::NotFound,
            ExchangeError::Denied { .. } => SyncStatus::Denied,
            ExchangeError::Protected { .. } => SyncStatus::Protected,
            ExchangeError::InTheWay(_) => SyncStatus::InTheWay,
            ExchangeError::Failed(_) => SyncStatus::Failed,
        };
        self.said.push(error.to_string());
    }
}

/// What came of another copy's lines.
pub(super) struct TakenLines {
    /// How many issues changed, or would.
    pub(super) changed: usize,
    /// How many lines are not understood, or in part only.
    pub(super) broken: usize,
    /// Issues that are in the other copy's archive and not in ours.
    pub(super) archived: BTreeSet<String>,
}
