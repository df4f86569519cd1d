//! Commits, ledgers and logs on a toft server.

use std::time::Duration;

use toft_client::{LedgerPart, LogPart};
use toft_core::{
    id::{RepositoryId, TaskId},
    lease::{Fence, Processes as _},
    store::StoreError,
    wire::{LARGEST_BUNDLE, LedgerEnd, SentLedger},
};

use crate::{config::variable, engine::Engine, error::Error, land::ServerShare, person::MARK, session::Session};

impl Session {
    /// Whether finished commits go to a server.
    pub fn sends_commits(&self) -> bool {
        matches!(self.engine(), Engine::Remote(_)) && self.located().sync.server == ServerShare::All
    }

    /// Sends a commit as a bundle; returns whether the server has it now. Why it does not take it is a note.
    pub fn send_commits(&self, repository: &RepositoryId, commit: &str, bundle: &[u8]) -> Result<bool, Error> {
        let Engine::Remote(remote) = self.engine() else { return Ok(false) };
        if bundle.len() > LARGEST_BUNDLE {
            let (mib, most) = (bundle.len() >> 20, LARGEST_BUNDLE >> 20);
            self.note(format!("its commits stay on this machine: they have {mib} MiB, and a server takes {most} MiB"));
            return Ok(false);
        }
        let kept = match remote.send_commits(self.machine().disks(), repository, commit, bundle) {
            // Who cannot be reached now can be later; what a server refuses it refuses again.
            Err(error @ StoreError::Unreachable { .. }) => return Err(error.into()),
            Err(error) => {
                self.note(format!("its commits stay on this machine: {error}"));
                return Ok(false);
            }
            Ok(kept) => kept,
        };
        if !kept {
            self.note(format!("its commits stay on this machine: {} keeps none", self.located().store));
        }
        Ok(kept)
    }

    /// The bundle with a commit, if the server has it.
    pub fn load_commits(&self, repository: &RepositoryId, commit: &str) -> Result<Option<Vec<u8>>, Error> {
        match self.engine() {
            Engine::Remote(remote) => Ok(remote.commits(self.machine().disks(), repository, commit)?),
            _ => Ok(None),
        }
    }

    /// Adds to the log of an attempt; returns how much of it the server has, if it keeps logs.
    pub fn append_log(&self, task: &TaskId, fence: &Fence, offset: u64, piece: &[u8]) -> Result<Option<u64>, Error> {
        match self.engine() {
            Engine::Remote(remote) => Ok(remote.append_log(self.machine().disks(), task, fence, offset, piece)?),
            _ => Ok(None),
        }
    }

    /// A part of the log of an attempt on another machine, from an offset on.
    pub fn load_log(&self, task: &TaskId, fence: u64, offset: u64) -> Result<Option<LogPart>, Error> {
        match self.engine() {
            Engine::Remote(remote) => Ok(Some(remote.log(task, fence, offset)?)),
            _ => Ok(None),
        }
    }

    /// Whether the repository's ledger is exchanged with a server, and was not read there for this long.
    pub fn may_read_ledger(&self, repository: &RepositoryId, age: Duration) -> bool {
        match self.engine() {
            // The token of a runner's agent is for its task: its runner exchanges what it writes.
            Engine::Remote(_) if variable(MARK).is_some() => false,
            Engine::Remote(remote) => {
                self.located().sync.server >= ServerShare::Issues && !remote.has_read_ledger(repository, age)
            }
            _ => false,
        }
    }

    /// The lines of a ledger that the server has after `after`, if it keeps ledgers.
    pub fn load_ledger(&self, repository: &RepositoryId, after: LedgerEnd) -> Result<Option<LedgerPart>, Error> {
        match self.engine() {
            Engine::Remote(remote) => Ok(remote.ledger(self.machine().disks(), repository, after)?),
            _ => Ok(None),
        }
    }

    /// Adds lines to the server's copy of a ledger, which ends at `at`; with `replace`, they are all of it.
    pub fn add_to_ledger(
        &self,
        repository: &RepositoryId,
        at: LedgerEnd,
        lines: &[u8],
        replace: bool,
    ) -> Result<Option<SentLedger>, Error> {
        match self.engine() {
            Engine::Remote(remote) => {
                Ok(remote.add_to_ledger(self.machine().disks(), repository, at, lines, replace)?)
            }
            _ => Ok(None),
        }
    }
}
