//! Save: write a checkpoint or a step's value under the fence, and renew the lease.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Verb, VerbContext, find};
use crate::{
    change::Write,
    checkpoint::{Checkpoint, CheckpointKind, Detail},
    flow::{Task, TaskStatus},
    id::{CheckpointId, TaskId},
    lease::Fence,
    may::May,
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::{Access, Prefetch},
    time::Timestamp,
    token::TokenRole,
};

/// Save progress on a held task. Without a message or a value it only renews the lease.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SaveRequest")]
#[serde(default)]
pub struct Request {
    /// The task, by id or prefix; `@` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The fence; that of the caller's own lease if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// Information for the next holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The kind of checkpoint.
    pub kind: CheckpointKind,
    /// Structured content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Detail>,
    /// Files that it mentions.
    pub files: Vec<String>,
    /// Commit that it mentions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Fails unless this is still the newest checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<CheckpointId>,
    /// A value to store under a key. Writing the same value again changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<(String, Value)>,
    /// A new time to live.
    #[serde(
        default,
        rename = "ttl_ms",
        with = "crate::time::as_optional_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<u64>")]
    pub ttl: Option<Duration>,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SaveOutcome")]
pub struct Outcome {
    pub task: TaskId,
    /// The checkpoint, if there was a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Checkpoint>,
    /// The key, if there was a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether the value was new.
    #[serde(default)]
    pub changed: bool,
    /// When the lease ends unless it is renewed.
    pub expires: Timestamp,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "save";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> =
        May::of(TokenRole::Worker).or_agent(|request, job| job.proves(request.fence.as_ref(), request.id.as_deref()));

    fn prefetch<'a>(&'a self, _actor: &'a str) -> Prefetch<'a> {
        Prefetch::Hold { task: self.id.as_deref().unwrap_or_default() }
    }

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let mut task = find::task(work, self.id.as_deref().unwrap_or("@"))?;
        let lease = work.require_hold(&task.id, self.fence.as_ref())?.renew(&work.now, self.ttl);
        let expires = lease.expires();
        work.tx.write_derived(&[Write::RenewLease(lease.clone())])?;
        work.register_caller()?;
        if self.message.is_some() || self.state.is_some() {
            start(work, &mut task)?;
        }
        let key = self.state.as_ref().map(|(key, _)| key.clone());
        let changed = match &self.state {
            Some((key, value)) => put_state(work, &task.id, key, value)?,
            None => false,
        };
        let checkpoint = match &self.message {
            Some(summary) => Some(self.checkpoint(work, &task, lease.fence.number, lease.agent.clone(), summary)?),
            None => None,
        };
        Ok(Outcome { task: task.id, checkpoint, key, changed, expires })
    }
}

impl Request {
    fn checkpoint(
        &self,
        work: &mut VerbContext<'_>,
        task: &Task,
        fence: u64,
        agent: crate::id::AgentId,
        summary: &str,
    ) -> VerbResult<Checkpoint> {
        let newest = work.tx.checkpoints(&task.id, 1)?.pop();
        if let Some(parent) = &self.parent
            && newest.as_ref().map(|checkpoint| &checkpoint.id) != Some(parent)
        {
            return Err(
                Refusal::ParentMoved { task: task.id.clone(), newest: newest.map(|checkpoint| checkpoint.id) }.into()
            );
        }
        let checkpoint = Checkpoint {
            id: CheckpointId::generate(work.ids),
            task: task.id.clone(),
            fence,
            seq: newest.as_ref().map_or(0, |checkpoint| checkpoint.seq) + 1,
            kind: self.kind,
            summary: summary.to_owned(),
            detail: self.detail.clone(),
            files: self.files.clone(),
            commit: self.commit.clone(),
            parent: newest.map(|checkpoint| checkpoint.id),
            agent,
            place: work.place.clone(),
            created: work.now.wall,
        };
        work.record(
            task.id.as_str(),
            "save",
            json!({ "checkpoint": checkpoint.id, "kind": checkpoint.kind, "summary": checkpoint.summary }),
            vec![Write::Checkpoint(checkpoint.clone())],
        )?;
        Ok(checkpoint)
    }
}

fn put_state(work: &mut VerbContext<'_>, task: &TaskId, key: &str, value: &Value) -> VerbResult<bool> {
    if key.is_empty() {
        return Err(Refusal::Invalid { field: "key".into(), problem: "a key needs a name".into() }.into());
    }
    if work.tx.state(task, key)?.as_ref() == Some(value) {
        return Ok(false);
    }
    work.record(
        task.as_str(),
        "state",
        json!({ "key": key }),
        vec![Write::State(task.clone(), key.to_owned(), value.clone())],
    )?;
    Ok(true)
}

/// Changes a leased task to running at the first sign of work.
pub(super) fn start(work: &mut VerbContext<'_>, task: &mut Task) -> VerbResult<()> {
    if task.state.status == TaskStatus::Leased {
        task.state.status = TaskStatus::Running;
        task.state.updated = work.now.wall;
        work.tx.write_derived(&[Write::TaskState(task.id.clone(), task.state.clone())])?;
    }
    Ok(())
}
