//! What a lander tells its caller: events while it works, and a summary at the end.

use serde::Serialize;
use toft_core::{
    landing::{BounceReason, Landing},
    verbs::land::ListedLanding,
};

/// What a lander does, as it happens.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case", tag = "type")]
pub enum LandEvent {
    /// Another lander works on this target; this one waits for its lock.
    Waiting {
        target: String,
    },
    /// A check starts on a candidate with `count` landings; none if the target itself is checked.
    Checking {
        count: usize,
        landings: Vec<String>,
    },
    Checked {
        passed: bool,
        ms: u64,
        landings: Vec<String>,
    },
    Landed {
        landing: Box<Landing>,
    },
    /// A pull request was opened, or updated, for this work.
    Proposed {
        landing: Box<Landing>,
    },
    Bounced {
        landing: Box<Landing>,
        reason: BounceReason,
        message: String,
    },
    /// A person should know this; it stops nothing.
    Note {
        text: String,
    },
}

/// What one run of a lander came to.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LandSummary {
    pub landed: Vec<Landing>,
    pub bounced: Vec<Landing>,
    /// Work with a pull request that was opened or updated in this run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub proposed: Vec<Landing>,
    /// Work that is still queued, each with what it waits for.
    pub waiting: Vec<ListedLanding>,
    /// How many checks ran; verdicts that were known already do not count.
    pub checks: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Why the target fails the check without any of this work. Nothing lands before that is fixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub red: Option<String>,
    /// The work that the caller named, if none of it can land.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub named: Vec<ListedLanding>,
    /// Why nothing lands in a target now: it does not exist, or its remote does not answer or refuses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blocked: Vec<String>,
    /// Whether no check is configured.
    pub unchecked: bool,
    #[serde(rename = "updated")]
    pub updated_checkouts: Vec<UpdatedCheckout>,
    #[serde(rename = "take_up")]
    pub pending_updates: Vec<PendingUpdate>,
}

/// A checkout that was moved to the newest commit of its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UpdatedCheckout {
    pub target: String,
    pub dir: String,
    pub commit: String,
}

/// A landed result that a checkout of its target has not taken yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PendingUpdate {
    pub target: String,
    /// The checkout that has the target checked out.
    pub dir: String,
    pub why: String,
    /// The command that updates the checkout; it has to run there.
    pub command: String,
}
