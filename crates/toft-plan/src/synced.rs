//! Options and result of a sync.

use std::{collections::BTreeSet, time::Instant};

use serde::Serialize;
use toft_session::error::Error;
use toft_vcs::exchange::ExchangeError;

use super::{Ledger, LedgerKind, propose::ProposalEnd};

/// Options of a sync.
#[derive(Clone, Debug, Default)]
pub struct SyncOptions {
    /// Only this ledger.
    pub ledger: Option<String>,
    /// Only report what would be done.
    pub try_only: bool,
    /// Commit ledgers in the working tree.
    pub commit: bool,
    /// Send even very many or very long issues.
    pub sure: bool,
    /// Start nothing after this time.
    pub until: Option<Instant>,
    /// Start with this ledger, then those after it, then the others.
    pub from: Option<String>,
}

/// The result for a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncStatus {
    /// Both sides have the same content.
    Synced,
    /// The remote's changes are here; ours are sent when the user commits or proposes them.
    Received,
    /// Changes are recorded here, and there is no remote.
    Recorded,
    /// It has no version control; its owner has to copy it.
    Unversioned,
    /// It is read-only here, so its owner has to update it.
    Left,
    /// The remote cannot be reached; all changes are kept here.
    Offline,
    /// There is no repository at the remote's URL.
    NotFound,
    /// The remote denied access.
    Denied,
    /// The remote rejected the push.
    Protected,
    /// Something other than the ledger causes a conflict.
    Conflict,
    /// Other clones were faster every time.
    Outrun,
    /// A finding must be confirmed before anything is sent.
    Held,
    /// Another error.
    Failed,
}

impl SyncStatus {
    /// Whether the user must do something.
    pub fn failed(self) -> bool {
        matches!(
            self,
            Self::NotFound | Self::Denied | Self::Protected | Self::Conflict | Self::Outrun | Self::Held | Self::Failed
        )
    }
}

/// The result for one ledger.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Synced {
    pub ledger: String,
    /// Its kind.
    pub place: LedgerKind,
    pub remote: Option<String>,
    /// The result.
    pub how: SyncStatus,
    /// Number of issues that were received or changed.
    pub received: usize,
    /// Number of issues that were sent.
    pub sent: usize,
    /// Number of lost races.
    pub races: u32,
    /// The remote's history was replaced; ours was not.
    pub rewritten: bool,
    /// Results of proposals.
    pub came: Vec<ProposalEnd>,
    /// Messages of the remote, or findings.
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
            ExchangeError::Conflict(_) => SyncStatus::Conflict,
            ExchangeError::Failed(_) => SyncStatus::Failed,
        };
        self.said.push(error.to_string());
    }
}

/// The result of merging another copy's lines.
pub(super) struct TakenLines {
    /// Number of issues that changed, or would change.
    pub(super) changed: usize,
    /// Number of lines that cannot be read, or only in part.
    pub(super) broken: usize,
    /// Issues that are in the other copy's archive and not in ours.
    pub(super) archived: BTreeSet<String>,
}

/// Why the sync of one ledger stopped.
pub(super) enum SyncTrouble {
    /// An error of the exchange: it concerns that ledger only.
    Exchange(ExchangeError),
    /// A local error.
    Here(Error),
}

impl From<ExchangeError> for SyncTrouble {
    fn from(error: ExchangeError) -> Self {
        Self::Exchange(error)
    }
}

impl From<Error> for SyncTrouble {
    fn from(error: Error) -> Self {
        Self::Here(error)
    }
}
