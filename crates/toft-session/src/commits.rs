//! Commits and logs on a toft server.

use toft_client::LogPart;
use toft_core::{
    id::{RepositoryId, TaskId},
    lease::{Fence, Processes as _},
    store::StoreError,
    wire::LARGEST_BUNDLE,
};

use crate::{engine::Engine, error::Error, session::Session};

impl Session {
    /// Whether finished commits go to a server.
    pub fn sends_commits(&self) -> bool {
        matches!(self.engine(), Engine::Remote(_)) && self.located().land.send
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
}
