//! Retention: what may be forgotten once it is old enough. Work itself never is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A kind of row that may be forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Old {
    /// Lines of history; the newest is kept, whatever its age, so that numbers go on where they were.
    Events,
    /// Messages that everyone they went to has seen.
    Messages,
    /// Ended attempts at tasks that are done, skipped or cancelled.
    Attempts,
    /// Answers kept for whoever repeats an operation.
    Receipts,
}

impl Old {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Events, Self::Messages, Self::Attempts, Self::Receipts];

    /// The word users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Messages => "messages",
            Self::Attempts => "attempts",
            Self::Receipts => "receipts",
        }
    }
}

/// How long each kind is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// History.
    pub events: Duration,
    /// Messages.
    pub messages: Duration,
    /// Attempts.
    pub attempts: Duration,
    /// Receipts.
    pub receipts: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Self { events: DAY * 90, messages: DAY * 30, attempts: DAY * 90, receipts: DAY * 7 }
    }
}

impl Retention {
    /// The same for every kind.
    pub fn all(keep: Duration) -> Self {
        Self { events: keep, messages: keep, attempts: keep, receipts: keep }
    }

    /// How long this kind is kept.
    pub fn of(&self, what: Old) -> Duration {
        match what {
            Old::Events => self.events,
            Old::Messages => self.messages,
            Old::Attempts => self.attempts,
            Old::Receipts => self.receipts,
        }
    }
}
