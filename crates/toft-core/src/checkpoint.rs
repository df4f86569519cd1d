//! Checkpoints: saved notes of progress on a task, from which another agent can continue.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{AgentId, CheckpointId, TaskId},
    repository::Place,
    schema::JsonSchema,
    time::Timestamp,
};

/// Details up to this size are stored in the row; larger ones become blobs beside the store.
pub const INLINE_LIMIT: usize = 16 * 1024;

/// One checkpoint. Each names its parent, and is written only if the parent is still the newest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// Stable id.
    pub id: CheckpointId,
    pub task: TaskId,
    /// The fence number of the lease under which it was written.
    pub fence: u64,
    /// Its number within the task, from 1.
    pub seq: u64,
    /// What kind of note it is.
    pub kind: CheckpointKind,
    /// One paragraph from which the next holder can continue.
    pub summary: String,
    /// Structured content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    /// Files that it mentions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Commit that it mentions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The previous checkpoint of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<CheckpointId>,
    /// The agent that wrote it.
    pub agent: AgentId,
    /// Where it was written.
    pub place: Place,
    /// When it was written.
    pub created: Timestamp,
}

/// The kind of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// How the task will be done.
    Plan,
    /// A changed plan.
    Replan,
    /// Progress so far.
    #[default]
    Progress,
    /// A decision and its reason.
    Decision,
    /// A problem.
    Error,
    /// How a problem was solved.
    Recovery,
    /// Information for the next holder.
    Handoff,
    /// The task is complete.
    Complete,
}

/// Structured content of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Detail {
    /// Too large for a row: stored as a content-addressed blob beside the store.
    Blob {
        /// BLAKE3 hash of the JSON text.
        blob: String,
        /// Its size in bytes.
        bytes: u64,
    },
    /// Stored in the row.
    Inline(Value),
}
