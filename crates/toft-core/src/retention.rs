//! Retention: which rows may be deleted once they are old enough. Work itself is never deleted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// A kind of row that may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetentionKind {
    /// Entries of the event log, oldest first. The newest is kept, whatever its age, so that numbering continues. An
    /// event from the future, written under a wrong clock, is kept and does not protect older ones.
    Events,
    /// Messages that every recipient has seen.
    Messages,
    /// Ended attempts at tasks that are done, skipped or cancelled.
    Attempts,
    /// Checkpoints of tasks that are done, skipped or cancelled; the newest of each task is kept.
    Checkpoints,
    /// Large details that no checkpoint references.
    Blobs,
    /// Rows of removed workspaces without a rescue.
    Workspaces,
    /// Agents that hold nothing and were not seen for a long time, with their inboxes. Paused agents are kept.
    Agents,
    /// Recorded answers to operations.
    Receipts,
}

impl RetentionKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Events,
        Self::Attempts,
        Self::Checkpoints,
        Self::Blobs,
        Self::Workspaces,
        Self::Agents,
        // After agents: what only a forgotten inbox kept goes too.
        Self::Messages,
        Self::Receipts,
    ];

    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Messages => "messages",
            Self::Attempts => "attempts",
            Self::Checkpoints => "checkpoints",
            Self::Blobs => "blobs",
            Self::Workspaces => "workspaces",
            Self::Agents => "agents",
            Self::Receipts => "receipts",
        }
    }
}

/// How long each kind is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// History.
    pub events: Duration,
    pub messages: Duration,
    pub attempts: Duration,
    pub checkpoints: Duration,
    /// Blobs, since they were last written.
    pub blobs: Duration,
    /// Workspaces, since they were last used.
    pub workspaces: Duration,
    /// Agents, since they were last seen.
    pub agents: Duration,
    pub receipts: Duration,
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Default for Retention {
    fn default() -> Self {
        Self {
            events: DAY * 90,
            messages: DAY * 30,
            attempts: DAY * 90,
            checkpoints: DAY * 90,
            blobs: DAY,
            workspaces: DAY * 90,
            agents: DAY * 30,
            receipts: DAY * 7,
        }
    }
}

impl Retention {
    /// The same, with another age for history and for what belongs to ended work.
    #[must_use]
    pub fn keeping_history(self, keep: Duration) -> Self {
        Self { events: keep, attempts: keep, checkpoints: keep, workspaces: keep, ..self }
    }

    /// The same for every kind, except that a blob is written before the row that refers to it, and that an agent may be
    /// between two tasks: those are kept for an hour and a day at least.
    #[must_use]
    pub fn all(keep: Duration) -> Self {
        Self {
            events: keep,
            messages: keep,
            attempts: keep,
            checkpoints: keep,
            blobs: keep.max(HOUR),
            workspaces: keep,
            agents: keep.max(DAY),
            receipts: keep,
        }
    }

    /// How long this kind is kept.
    #[must_use]
    pub fn of(&self, what: RetentionKind) -> Duration {
        match what {
            RetentionKind::Events => self.events,
            RetentionKind::Messages => self.messages,
            RetentionKind::Attempts => self.attempts,
            RetentionKind::Checkpoints => self.checkpoints,
            RetentionKind::Blobs => self.blobs,
            RetentionKind::Workspaces => self.workspaces,
            RetentionKind::Agents => self.agents,
            RetentionKind::Receipts => self.receipts,
        }
    }
}
