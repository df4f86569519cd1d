//! Commits, ledgers and logs, which go beside verbs.

use std::time::Duration;

use toft_core::{
    id::{RepositoryId, TaskId},
    lease::Fence,
    store::Result as StoreResult,
    wire::{FENCE_HEADER, LEDGER_END_HEADER, LOG_END_HEADER, LedgerEnd, MACHINE_HEADER, SentLedger, SentLogLength},
};
use ureq::http::StatusCode;

use crate::{ANSWER, LARGEST, Patience, RemoteStore, only_failed};

/// How long a bundle of commits may take.
const BUNDLE: Duration = Duration::from_secs(300);

/// A ledger is not asked for as long as other things: the next command does it again.
const LEDGER_PATIENCE: Patience = Patience { answer: Duration::from_secs(10), tries: Some(Duration::from_secs(2)) };

/// A part of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPart {
    pub text: Vec<u8>,
    /// The offset from which the next part is read.
    pub end: u64,
}

/// A part of a ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerPart {
    pub text: Vec<u8>,
    /// From here on the next part is read, and lines are added.
    pub end: LedgerEnd,
}

impl RemoteStore {
    /// The lines of a ledger after `after`, or all of its newest generation; nothing if the server keeps none, or not for
    /// this token.
    pub fn ledger(
        &self,
        machine: &str,
        repository: &RepositoryId,
        after: LedgerEnd,
    ) -> StoreResult<Option<LedgerPart>> {
        let path = format!("/v1/ledgers/{repository}?after={after}");
        let machine = [(MACHINE_HEADER, machine)];
        let asked = self.send("GET", &path, &machine, None, LEDGER_PATIENCE, true);
        let mut answer = self.note_exchange(asked)?;
        match answer.status() {
            StatusCode::NOT_IMPLEMENTED | StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => Ok(None),
            StatusCode::OK => {
                let end = answer.headers().get(LEDGER_END_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
                let text = answer.body_mut().with_config().limit(LARGEST).read_to_vec();
                let text = text.map_err(|error| self.unreachable(error.to_string()))?;
                let end = end.unwrap_or(after);
                self.note_ledger(repository, end);
                Ok(Some(LedgerPart { text, end }))
            }
            _ => self.text(answer).map(|_| None).map_err(only_failed),
        }
    }

    /// Adds lines to a ledger that ends at `at`; with `replace` they are its next generation. Nothing if this token does not
    /// add to ledgers.
    pub fn add_to_ledger(
        &self,
        machine: &str,
        repository: &RepositoryId,
        at: LedgerEnd,
        lines: &[u8],
        replace: bool,
    ) -> StoreResult<Option<SentLedger>> {
        let path = format!("/v1/ledgers/{repository}?at={at}&replace={replace}");
        let machine = [(MACHINE_HEADER, machine)];
        let asked = self.send("PUT", &path, &machine, Some(lines), LEDGER_PATIENCE, true);
        let answer = self.note_exchange(asked)?;
        match answer.status() {
            StatusCode::NOT_IMPLEMENTED | StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => Ok(None),
            _ => {
                let sent = self.read::<SentLedger>(answer).map_err(only_failed)?;
                if let Some(end) = sent.end.parse().ok().filter(|_| sent.added) {
                    self.note_ledger(repository, end);
                }
                Ok(Some(sent))
            }
        }
    }

    /// Sends commits as a bundle of git; returns whether the server has a place for them.
    pub fn send_commits(
        &self,
        machine: &str,
        repository: &RepositoryId,
        commit: &str,
        bundle: &[u8],
    ) -> StoreResult<bool> {
        let path = format!("/v1/commits/{repository}/{commit}");
        let answer = self.send("PUT", &path, &[(MACHINE_HEADER, machine)], Some(bundle), BUNDLE, true)?;
        match answer.status() {
            StatusCode::NOT_IMPLEMENTED => Ok(false),
            _ => self.text(answer).map(|_| true).map_err(only_failed),
        }
    }

    /// The bundle with a commit, if the server has it.
    pub fn commits(&self, machine: &str, repository: &RepositoryId, commit: &str) -> StoreResult<Option<Vec<u8>>> {
        let path = format!("/v1/commits/{repository}/{commit}");
        let mut answer = self.send("GET", &path, &[(MACHINE_HEADER, machine)], None, BUNDLE, true)?;
        match answer.status() {
            StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => Ok(None),
            StatusCode::OK => {
                let bundle = answer.body_mut().with_config().limit(LARGEST).read_to_vec();
                bundle.map(Some).map_err(|error| self.unreachable(error.to_string()))
            }
            _ => self.text(answer).map(|_| None).map_err(only_failed),
        }
    }

    /// Adds to the log of an attempt; returns how much of it the server has, if it keeps logs.
    pub fn append_log(
        &self,
        machine: &str,
        task: &TaskId,
        fence: &Fence,
        offset: u64,
        piece: &[u8],
    ) -> StoreResult<Option<u64>> {
        let path = format!("/v1/logs/{task}/{}?offset={offset}", fence.number);
        let headers = [(MACHINE_HEADER, machine), (FENCE_HEADER, &fence.to_string())];
        let answer = self.send("PUT", &path, &headers, Some(piece), ANSWER, true)?;
        match answer.status() {
            StatusCode::NOT_IMPLEMENTED | StatusCode::NOT_FOUND => Ok(None),
            _ => Ok(Some(self.read::<SentLogLength>(answer).map_err(only_failed)?.length)),
        }
    }

    /// A part of the log of an attempt, from an offset on.
    pub fn log(&self, task: &TaskId, fence: u64, offset: u64) -> StoreResult<LogPart> {
        let path = format!("/v1/logs/{task}/{fence}?offset={offset}");
        let mut answer = self.send("GET", &path, &[], None, ANSWER, true)?;
        match answer.status() {
            StatusCode::NOT_IMPLEMENTED | StatusCode::NOT_FOUND => Ok(LogPart { text: Vec::new(), end: offset }),
            StatusCode::OK => {
                let end = answer.headers().get(LOG_END_HEADER).and_then(|value| value.to_str().ok()?.parse().ok());
                let text = answer.body_mut().with_config().limit(LARGEST).read_to_vec();
                let text = text.map_err(|error| self.unreachable(error.to_string()))?;
                Ok(LogPart { text, end: end.unwrap_or(offset) })
            }
            _ => self.text(answer).map(|_| LogPart::default()).map_err(only_failed),
        }
    }
}
