//! What machines send beside verbs, and where it is kept.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    body::{Bytes, to_bytes},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde_json::json;
use toft_core::{token::Token, wire::MACHINE_HEADER};
use toft_session::{
    engine::Home,
    error::{Error, io},
};
use tokio::sync::Semaphore;

use super::{ServeRules, answer::plain, server_state::ServerState};
use crate::objects::Objects;

/// Large requests that are read at once, of all tokens and of one: each is held in memory.
const AT_ONCE: usize = 16;
const OF_ONE_TOKEN: usize = 4;
/// How long after its lease an agent may add to its log.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// Logs whose length is remembered.
const REMEMBERED: usize = 10_000;

/// Commits, logs and ledgers of all spaces.
pub(super) struct ServedObjects {
    pub(super) objects: Objects,
    /// Room for large requests.
    pub(super) room: Semaphore,
    /// Large requests that are read now, by token.
    uploads: Arc<Mutex<HashMap<String, usize>>>,
    /// How long logs are, by path.
    lengths: Mutex<HashMap<String, u64>>,
    /// Fences that were live, and when: an agent that has finished still says its last words.
    fences: Mutex<HashMap<String, Instant>>,
}

impl ServedObjects {
    /// The place that the rules name; beside the store if that is a file.
    pub(super) fn open(rules: &ServeRules) -> Result<Option<Self>, Error> {
        let beside = match &rules.store {
            Home::File(path) => Some(path.with_extension("objects").display().to_string()),
            Home::Server(_) | Home::Remote(_) => None,
        };
        let Some(location) = rules.objects.clone().or(beside) else { return Ok(None) };
        let objects = Objects::open(&location).map_err(io("open", &PathBuf::from(&location)))?;
        Ok(Some(Self {
            objects,
            room: Semaphore::new(AT_ONCE),
            uploads: Arc::default(),
            lengths: Mutex::default(),
            fences: Mutex::default(),
        }))
    }

    /// Counts a large request of a token, if it may send another one.
    pub(super) fn admit(&self, digest: &str) -> Option<UploadCount> {
        let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        let count = uploads.entry(digest.to_owned()).or_default();
        if *count >= OF_ONE_TOKEN {
            return None;
        }
        *count += 1;
        Some(UploadCount { digest: digest.to_owned(), uploads: self.uploads.clone() })
    }

    /// Forgets how long a log is: another server may have added to it.
    pub(super) fn forget_length(&self, path: &[&str]) {
        self.lengths.lock().unwrap_or_else(PoisonError::into_inner).remove(&path.join("/"));
    }

    /// Whether a fence was live a short time ago.
    pub(super) fn was_live(&self, fence: &str) -> bool {
        let fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        fences.get(fence).is_some_and(|at| at.elapsed() < LAST_WORDS)
    }

    /// Notes that a fence is live.
    pub(super) fn note_live(&self, fence: String) {
        let mut fences = self.fences.lock().unwrap_or_else(PoisonError::into_inner);
        if fences.len() >= REMEMBERED {
            fences.retain(|_, at| at.elapsed() < LAST_WORDS);
        }
        fences.insert(fence, Instant::now());
    }

    /// How long a log is.
    pub(super) async fn length(&self, path: &[&str]) -> std::io::Result<u64> {
        let key = path.join("/");
        if let Some(known) = self.lengths.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(*known);
        }
        let length = self.pieces(path).await?.last().map_or(0, |piece| piece.offset + piece.length);
        self.remember(key, length);
        Ok(length)
    }

    /// Adds a piece of `length` bytes at the end of a log, which is at `offset`. Without its secrets it may be shorter.
    pub(super) async fn append(&self, path: &[&str], offset: u64, length: u64, text: Bytes) -> std::io::Result<u64> {
        let name = LogPiece { offset, length }.name();
        let whole: Vec<&str> = path.iter().copied().chain([name.as_str()]).collect();
        self.objects.put(&whole, text).await?;
        self.remember(path.join("/"), offset + length);
        Ok(offset + length)
    }

    /// The pieces of a log, in order.
    pub(super) async fn pieces(&self, path: &[&str]) -> std::io::Result<Vec<LogPiece>> {
        Ok(self.objects.list(path).await?.iter().filter_map(|name| LogPiece::named(name)).collect())
    }

    /// What a piece of a log says.
    pub(super) async fn piece(&self, path: &[&str], piece: &LogPiece) -> std::io::Result<Bytes> {
        let name = piece.name();
        let whole: Vec<&str> = path.iter().copied().chain([name.as_str()]).collect();
        let (found, _) = self.objects.get(&whole).await?.unwrap_or_default();
        to_bytes(found, usize::MAX).await.map_err(std::io::Error::other)
    }

    fn remember(&self, key: String, length: u64) {
        let mut lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        if lengths.len() >= REMEMBERED {
            lengths.clear();
        }
        lengths.insert(key, length);
    }
}

/// A large request that is counted while it is read.
pub(super) struct UploadCount {
    digest: String,
    uploads: Arc<Mutex<HashMap<String, usize>>>,
}

impl Drop for UploadCount {
    fn drop(&mut self) {
        let mut uploads = self.uploads.lock().unwrap_or_else(PoisonError::into_inner);
        match uploads.get_mut(&self.digest) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(uploads.remove(&self.digest)),
        }
    }
}

/// A piece of a log: where it begins, and how long it was when it was sent.
pub(super) struct LogPiece {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl LogPiece {
    fn name(&self) -> String {
        format!("{:020}-{}", self.offset, self.length)
    }

    fn named(name: &str) -> Option<Self> {
        let (offset, length) = name.split_once('-')?;
        Some(Self { offset: offset.parse().ok()?, length: length.parse().ok()? })
    }
}

/// Whether a token is used on the machine that it is for, as that says.
pub(super) fn on_its_machine(token: &Token, headers: &HeaderMap) -> bool {
    let named = headers.get(MACHINE_HEADER).and_then(|value| value.to_str().ok());
    token.host.as_deref().is_none_or(|host| named == Some(host))
}

/// This server has no place for commits, logs and ledgers.
pub(super) fn no_place() -> Response {
    plain(
        StatusCode::NOT_IMPLEMENTED,
        "this server keeps no commits, logs and ledgers: toft serve --objects names a place",
    )
}

/// What the place for objects says is for the server's own log, not for callers.
pub(super) fn broken(state: &ServerState, error: &std::io::Error) -> Response {
    state.log.event("objects_failed", json!({ "error": error.to_string() }));
    plain(StatusCode::SERVICE_UNAVAILABLE, "the place for commits, logs and ledgers cannot be reached")
}
