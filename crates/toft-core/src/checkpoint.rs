//! Checkpoints: complete, resumable notes of progress on a task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    id::{AgentId, CheckpointId, TaskId},
    repository::Place,
    time::Timestamp,
};

/// Details up to this size are kept in the row; larger ones become blobs beside the store.
pub const INLINE_LIMIT: usize = 16 * 1024;

/// One note of progress. Each names the one before it, and is written only if that is still the newest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// Stable id.
    pub id: CheckpointId,
    /// On which task.
    pub task: TaskId,
    /// Written under the lease with this number.
    pub fence: u64,
    /// 1 for the task's first.
    pub seq: u64,
    /// What it notes.
    pub kind: CheckpointKind,
    /// One paragraph a successor can start from.
    pub summary: String,
    /// Anything structured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    /// Files it speaks of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Commit it speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The one before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<CheckpointId>,
    /// Who wrote it.
    pub agent: AgentId,
    /// Where it was written.
    pub place: Place,
    /// When.
    pub created: Timestamp,
}

/// What a checkpoint notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointKind {
    /// How it will be done.
    Plan,
    /// How it will be done now.
    Replan,
    /// How far it is.
    #[default]
    Progress,
    /// What was decided, and why.
    Decision,
    /// What went wrong.
    Error,
    /// How it was mended.
    Recovery,
    /// What the next holder must know.
    Handoff,
    /// That it is complete.
    Complete,
}

/// Structured content of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Detail {
    /// Too large for a row: content-addressed, beside the store.
    Blob {
        /// BLAKE3 of the JSON text.
        blob: String,
        /// Its size.
        bytes: u64,
    },
    /// In the row.
    Inline(Value),
}
