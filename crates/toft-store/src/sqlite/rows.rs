//! Rows and entities. Every entity is taken apart and put together field by field, so that a forgotten
//! column does not compile.

use std::time::Duration;

use rusqlite::Row;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use toft_core::{
    agent::Agent,
    change::{Event, QueueEntry, Receipt},
    flow::{Attempt, AttemptResult, Dependency, DependencyKind, Task, TaskState, TaskStatus},
    id::{AgentId, LeaseId, OpId, RepositoryId, TaskId, WorkflowId},
    lease::{Fence, Holder, Lease},
    message::{Letter, Message},
    repository::Place,
    store::{Result, StoreError},
    time::{Tick, Timestamp},
};

use super::failed;

/// What a task is told and never asked for by column.
#[derive(Serialize, Deserialize)]
pub(super) struct TaskBody {
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub brief: String,
    pub priority: u8,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_group: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    pub max_attempts: u32,
}

/// Reads columns one after the other.
pub(super) struct Cells<'r, 's> {
    table: &'static str,
    row: &'r Row<'s>,
    next: usize,
}

impl<'r, 's> Cells<'r, 's> {
    pub(super) fn of(table: &'static str, row: &'r Row<'s>) -> Self {
        Self { table, row, next: 0 }
    }

    pub(super) fn get<T: rusqlite::types::FromSql>(&mut self) -> Result<T> {
        self.next += 1;
        self.row.get(self.next - 1).map_err(failed("read a column"))
    }

    fn id<T>(&mut self, known: impl Fn(String) -> T) -> Result<T> {
        self.get().map(known)
    }

    fn repository(&mut self) -> Result<Option<RepositoryId>> {
        Ok(self.get::<Option<String>>()?.map(RepositoryId::known))
    }

    fn place(&mut self) -> Result<Place> {
        Ok(Place { repository: self.repository()?, worktree: self.get()? })
    }

    fn time(&mut self) -> Result<Timestamp> {
        self.get().map(Timestamp)
    }

    fn span(&mut self) -> Result<Duration> {
        Ok(Duration::from_millis(self.get::<i64>()? as u64))
    }

    fn word<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        let word: String = self.get()?;
        read(&word).ok_or_else(|| self.unreadable(format!("`{word}` is no word toft knows")))
    }

    pub(super) fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let text: String = self.get()?;
        serde_json::from_str(&text).map_err(|error| self.unreadable(error.to_string()))
    }

    fn optional_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        match self.get::<Option<String>>()? {
            Some(text) => serde_json::from_str(&text).map(Some).map_err(|error| self.unreadable(error.to_string())),
            None => Ok(None),
        }
    }

    fn unreadable(&self, cause: String) -> StoreError {
        StoreError::Unreadable { table: self.table, id: self.row.get(0).unwrap_or_default(), cause }
    }
}

pub(super) fn task(cells: &mut Cells<'_, '_>) -> Result<Task> {
    let id = cells.id(TaskId::known)?;
    let workflow = cells.id(WorkflowId::known)?;
    let order = cells.get()?;
    let place = cells.place()?;
    let created = cells.time()?;
    let TaskBody { name, brief, priority, labels, requires, paths, parallel_group, plan, max_attempts } =
        cells.json()?;
    let state = TaskState {
        status: cells.word(TaskStatus::from_word)?,
        attempt: cells.get()?,
        fence: cells.get::<i64>()? as u64,
        open_blockers: cells.get()?,
        unblocks: cells.get()?,
        not_before: cells.get::<Option<i64>>()?.map(Timestamp),
        outcome: cells.optional_json()?,
        updated: cells.time()?,
    };
    Ok(Task {
        id,
        workflow,
        name,
        brief,
        order,
        priority,
        labels,
        requires,
        paths,
        parallel_group,
        plan,
        max_attempts,
        place,
        created,
        state,
    })
}

pub(super) fn queue_entry(cells: &mut Cells<'_, '_>) -> Result<QueueEntry> {
    Ok(QueueEntry { task: cells.id(TaskId::known)?, lane: cells.get()?, rank: cells.get()? })
}

pub(super) fn queued(cells: &mut Cells<'_, '_>) -> Result<(QueueEntry, Task)> {
    let (lane, rank) = (cells.get()?, cells.get()?);
    let task = task(cells)?;
    Ok((QueueEntry { task: task.id.clone(), lane, rank }, task))
}

pub(super) fn dependency(cells: &mut Cells<'_, '_>) -> Result<Dependency> {
    Ok(Dependency {
        task: cells.id(TaskId::known)?,
        on: cells.id(TaskId::known)?,
        kind: cells.word(DependencyKind::from_word)?,
    })
}

pub(super) fn dependency_with_status(cells: &mut Cells<'_, '_>) -> Result<(Dependency, Option<TaskStatus>)> {
    Ok((dependency(cells)?, cells.get::<Option<String>>()?.and_then(|word| TaskStatus::from_word(&word))))
}

pub(super) fn progress(cells: &mut Cells<'_, '_>) -> Result<(TaskStatus, u64)> {
    Ok((cells.word(TaskStatus::from_word)?, cells.get::<i64>()? as u64))
}

pub(super) fn lease(cells: &mut Cells<'_, '_>) -> Result<Lease> {
    let task = cells.id(TaskId::known)?;
    let workflow = cells.id(WorkflowId::known)?;
    let repository = cells.repository()?;
    let agent = cells.id(AgentId::known)?;
    let fence = Fence { number: cells.get::<i64>()? as u64, id: cells.id(LeaseId::known)? };
    Ok(Lease {
        task,
        workflow,
        repository,
        agent,
        fence,
        acquired: cells.time()?,
        ttl: cells.span()?,
        cap: cells.span()?,
        renewed: cells.time()?,
        renewed_tick: Tick { epoch: cells.get()?, ms: cells.get()? },
        check_at: cells.get()?,
        holder: match cells.get::<Option<String>>()? {
            Some(text) => Some(holder(&text).ok_or_else(|| cells.unreadable(format!("`{text}` is no process")))?),
            None => None,
        },
    })
}

/// A process as one sortable word: the host first, so that a host's processes stand together.
pub(super) fn holder_word(holder: &Holder) -> String {
    let Holder { host, boot, pid, started } = holder;
    format!("{host}|{boot}|{pid:010}|{started}")
}

pub(super) fn holder(word: &str) -> Option<Holder> {
    let mut parts = word.split('|');
    let mut next = || parts.next();
    Some(Holder {
        host: next()?.to_owned(),
        boot: next()?.to_owned(),
        pid: next()?.parse().ok()?,
        started: next()?.parse().ok()?,
    })
}

pub(super) fn attempt(cells: &mut Cells<'_, '_>) -> Result<Attempt> {
    Ok(Attempt {
        task: cells.id(TaskId::known)?,
        fence: cells.get::<i64>()? as u64,
        lease: cells.id(LeaseId::known)?,
        agent: cells.id(AgentId::known)?,
        place: cells.place()?,
        started: cells.time()?,
        ended: cells.get::<Option<i64>>()?.map(Timestamp),
        result: match cells.get::<Option<String>>()? {
            Some(word) => Some(
                serde_json::from_value::<AttemptResult>(Value::String(word))
                    .map_err(|error| cells.unreadable(error.to_string()))?,
            ),
            None => None,
        },
        reason: cells.get()?,
        cost: cells.get()?,
    })
}

pub(super) fn event(cells: &mut Cells<'_, '_>) -> Result<Event> {
    Ok(Event {
        seq: cells.get::<i64>()? as u64,
        at: cells.time()?,
        actor: cells.get()?,
        place: cells.place()?,
        entity: cells.get()?,
        verb: cells.get()?,
        detail: cells.json()?,
        op: cells.id(OpId::known)?,
        part: cells.get()?,
    })
}

pub(super) fn receipt(cells: &mut Cells<'_, '_>) -> Result<Receipt> {
    Ok(Receipt {
        op: cells.id(OpId::known)?,
        actor: cells.get()?,
        verb: cells.get()?,
        outcome: cells.json()?,
        at: cells.time()?,
    })
}

pub(super) fn letter(cells: &mut Cells<'_, '_>) -> Result<Letter> {
    let message: Message = cells.json()?;
    let state =
        serde_json::from_value(Value::String(cells.get()?)).map_err(|error| cells.unreadable(error.to_string()))?;
    let from: Option<Agent> = cells.optional_json()?;
    let from_name = from.map_or_else(|| message.from.to_string(), |agent| agent.name);
    Ok(Letter { message, from_name, state })
}
