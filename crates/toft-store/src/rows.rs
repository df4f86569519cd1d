//! Converts between rows and entities. Every entity is destructured and constructed field by field, so that a forgotten
//! column does not compile.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use toft_core::{
    agent::Agent,
    change::{Event, QueueEntry, Receipt},
    flow::{Attempt, AttemptResult, Dependency, DependencyKind, Task, TaskState, TaskStatus},
    id::{AgentId, LeaseId, OpId, RepositoryId, TaskId, WorkflowId, WorkspaceId},
    lease::{Fence, Holder, Lease},
    message::{InboxItem, Message},
    repository::Place,
    store::{Result, StoreError},
    time::{Tick, Timestamp},
    workspace::Workspace,
};

use crate::{
    unknown::{StoredBody, Unknown},
    value::Row,
};

/// Parts of rows that are stored as JSON beside columns.
pub(crate) const TASK: &str = "tasks";
pub(crate) const OUTCOME: &str = "outcomes";
pub(crate) const REPORT: &str = "reports";

/// Reads columns one after the other.
pub(crate) struct Cells<'r> {
    table: &'static str,
    row: &'r dyn Row,
    next: usize,
    unknown: Option<&'r Unknown>,
}

impl<'r> Cells<'r> {
    pub(crate) fn of(table: &'static str, row: &'r dyn Row) -> Self {
        Self { table, row, next: 0, unknown: None }
    }

    /// Keeps the bodies that are read until they are written again.
    pub(crate) fn keeping(self, unknown: Option<&'r Unknown>) -> Self {
        Self { unknown, ..self }
    }

    fn step(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    pub(crate) fn optional_text(&mut self) -> Result<Option<String>> {
        let at = self.step();
        self.row.text(at)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        self.optional_text()?.ok_or_else(|| self.missing())
    }

    /// Whether the next column is not null.
    #[cfg(feature = "postgres")]
    pub(crate) fn has_text(&self) -> Result<bool> {
        Ok(self.row.text(self.next)?.is_some())
    }

    pub(crate) fn optional_int(&mut self) -> Result<Option<i64>> {
        let at = self.step();
        self.row.int(at)
    }

    pub(crate) fn int(&mut self) -> Result<i64> {
        self.optional_int()?.ok_or_else(|| self.missing())
    }

    fn real(&mut self) -> Result<Option<f64>> {
        let at = self.step();
        self.row.real(at)
    }

    fn missing(&self) -> StoreError {
        self.unreadable(format!("column {} is empty", self.next))
    }

    fn id<T>(&mut self, known: impl Fn(String) -> T) -> Result<T> {
        self.text().map(known)
    }

    fn repository(&mut self) -> Result<Option<RepositoryId>> {
        Ok(self.optional_text()?.map(RepositoryId::known))
    }

    fn place(&mut self) -> Result<Place> {
        Ok(Place { repository: self.repository()?, worktree: self.optional_text()? })
    }

    fn time(&mut self) -> Result<Timestamp> {
        self.int().map(Timestamp)
    }

    fn span(&mut self) -> Result<Duration> {
        Ok(Duration::from_millis(self.int()? as u64))
    }

    fn word<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<T> {
        let word = self.text()?;
        read(&word).ok_or_else(|| self.unreadable(format!("`{word}` is no word toft knows")))
    }

    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let text = self.text()?;
        serde_json::from_str(&text).map_err(|error| self.unreadable(error.to_string()))
    }

    fn optional_json<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        match self.optional_text()? {
            Some(text) => serde_json::from_str(&text).map(Some).map_err(|error| self.unreadable(error.to_string())),
            None => Ok(None),
        }
    }

    /// A row that is stored as JSON.
    pub(crate) fn body<T: StoredBody>(&mut self) -> Result<T> {
        let text = self.text()?;
        let row: T = serde_json::from_str(&text).map_err(|error| self.unreadable(error.to_string()))?;
        if let Some(unknown) = self.unknown {
            unknown.keep(T::TABLE, row.key(), text, &row);
        }
        Ok(row)
    }

    /// A workspace of a list. If its body cannot be read, it becomes a placeholder that says so; the others stay
    /// readable.
    pub(crate) fn listed_workspace(&mut self) -> Result<Workspace> {
        match self.body() {
            Ok(row) => Ok(row),
            Err(error) => {
                self.next = 1;
                let (id, repository) = (self.id(WorkspaceId::known)?, self.id(RepositoryId::known)?);
                Ok(Workspace::unreadable(id, repository, self.time()?, error.to_string()))
            }
        }
    }

    /// A part of the row `key` that is stored as JSON.
    fn part<T: Serialize + DeserializeOwned>(&mut self, part: &'static str, key: &str) -> Result<Option<T>> {
        let Some(text) = self.optional_text()? else { return Ok(None) };
        let read: T = serde_json::from_str(&text).map_err(|error| self.unreadable(error.to_string()))?;
        if let Some(unknown) = self.unknown {
            unknown.keep(part, key.to_owned(), text, &read);
        }
        Ok(Some(read))
    }

    fn unreadable(&self, cause: String) -> StoreError {
        StoreError::Unreadable {
            table: self.table.into(),
            id: self.row.text(0).ok().flatten().unwrap_or_default(),
            cause,
        }
    }
}

pub(crate) fn task(cells: &mut Cells<'_>) -> Result<Task> {
    let id = cells.id(TaskId::known)?;
    let workflow = cells.id(WorkflowId::known)?;
    let order = cells.int()? as u32;
    let place = cells.place()?;
    let created = cells.time()?;
    let spec = cells.part(TASK, id.as_str())?.ok_or_else(|| cells.missing())?;
    let state = TaskState {
        status: cells.word(TaskStatus::from_word)?,
        attempt: cells.int()? as u32,
        fence: cells.int()? as u64,
        open_blockers: cells.int()? as u32,
        unblocks: cells.int()? as u32,
        not_before: cells.optional_int()?.map(Timestamp),
        outcome: cells.part(OUTCOME, id.as_str())?,
        updated: cells.time()?,
    };
    Ok(Task { id, workflow, order, spec, place, created, state })
}

pub(crate) fn queue_entry(cells: &mut Cells<'_>) -> Result<QueueEntry> {
    Ok(QueueEntry {
        task: cells.id(TaskId::known)?,
        lane: cells.text()?,
        rank: cells.text()?,
        workflow: cells.id(WorkflowId::known)?,
        worktree: cells.optional_text()?,
        labels: cells.optional_json()?.unwrap_or_default(),
    })
}

pub(crate) fn queued(cells: &mut Cells<'_>) -> Result<(QueueEntry, Task)> {
    let (lane, rank) = (cells.text()?, cells.text()?);
    let (worktree, labels) = (cells.optional_text()?, cells.optional_json()?.unwrap_or_default());
    let task = task(cells)?;
    Ok((QueueEntry { task: task.id.clone(), lane, rank, workflow: task.workflow.clone(), worktree, labels }, task))
}

pub(crate) fn dependency(cells: &mut Cells<'_>) -> Result<Dependency> {
    Ok(Dependency {
        task: cells.id(TaskId::known)?,
        on: cells.id(TaskId::known)?,
        kind: cells.word(DependencyKind::from_word)?,
    })
}

pub(crate) fn dependency_with_status(cells: &mut Cells<'_>) -> Result<(Dependency, Option<TaskStatus>)> {
    Ok((dependency(cells)?, cells.optional_text()?.and_then(|word| TaskStatus::from_word(&word))))
}

pub(crate) fn progress(cells: &mut Cells<'_>) -> Result<(TaskStatus, u64)> {
    Ok((cells.word(TaskStatus::from_word)?, cells.int()? as u64))
}

pub(crate) fn lease(cells: &mut Cells<'_>) -> Result<Lease> {
    let task = cells.id(TaskId::known)?;
    let workflow = cells.id(WorkflowId::known)?;
    let repository = cells.repository()?;
    let agent = cells.id(AgentId::known)?;
    let fence = Fence { number: cells.int()? as u64, id: cells.id(LeaseId::known)? };
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
        renewed_tick: Tick { epoch: cells.text()?, ms: cells.int()? },
        check_at: cells.int()?,
        holder: match cells.optional_text()? {
            Some(text) => Some(holder(&text).ok_or_else(|| cells.unreadable(format!("`{text}` is no process")))?),
            None => None,
        },
        seen: watchers(cells)?,
    })
}

fn watchers(cells: &mut Cells<'_>) -> Result<Vec<Tick>> {
    let pairs: Option<Vec<(String, i64)>> = cells.optional_json()?;
    Ok(pairs.unwrap_or_default().into_iter().map(|(epoch, ms)| Tick { epoch, ms }).collect())
}

/// A process as one sortable word: the host first, so that the processes of a host are adjacent.
pub(crate) fn holder_word(holder: &Holder) -> String {
    let Holder { host, boot, pid, started } = holder;
    format!("{host}|{boot}|{pid:010}|{started}")
}

pub(crate) fn holder(word: &str) -> Option<Holder> {
    let mut parts = word.split('|');
    let mut next = || parts.next();
    Some(Holder {
        host: next()?.to_owned(),
        boot: next()?.to_owned(),
        pid: next()?.parse().ok()?,
        started: next()?.parse().ok()?,
    })
}

pub(crate) fn attempt(cells: &mut Cells<'_>) -> Result<Attempt> {
    let (task, fence) = (cells.id(TaskId::known)?, cells.int()? as u64);
    let key = attempt_key(&task, fence);
    Ok(Attempt {
        task,
        fence,
        lease: cells.id(LeaseId::known)?,
        agent: cells.id(AgentId::known)?,
        place: cells.place()?,
        started: cells.time()?,
        ended: cells.optional_int()?.map(Timestamp),
        result: match cells.optional_text()? {
            Some(word) => Some(
                serde_json::from_value::<AttemptResult>(Value::String(word))
                    .map_err(|error| cells.unreadable(error.to_string()))?,
            ),
            None => None,
        },
        reason: cells.optional_text()?,
        cost: cells.real()?,
        report: cells.part(REPORT, &key)?,
    })
}

pub(crate) fn attempt_key(task: &TaskId, fence: u64) -> String {
    format!("{task}/{fence}")
}

pub(crate) fn event(cells: &mut Cells<'_>) -> Result<Event> {
    Ok(Event {
        seq: cells.int()? as u64,
        at: cells.time()?,
        actor: cells.text()?,
        place: cells.place()?,
        entity: cells.text()?,
        verb: cells.text()?,
        detail: cells.json()?,
        op: cells.id(OpId::known)?,
        part: cells.int()? as u32,
    })
}

pub(crate) fn receipt(cells: &mut Cells<'_>) -> Result<Receipt> {
    Ok(Receipt {
        op: cells.id(OpId::known)?,
        actor: cells.text()?,
        verb: cells.text()?,
        request: cells.text()?,
        outcome: cells.json()?,
        at: cells.time()?,
    })
}

pub(crate) fn letter(cells: &mut Cells<'_>) -> Result<InboxItem> {
    let message: Message = cells.body()?;
    let state =
        serde_json::from_value(Value::String(cells.text()?)).map_err(|error| cells.unreadable(error.to_string()))?;
    let from: Option<Agent> = cells.part(Agent::TABLE, message.from.as_str())?;
    let from_name = from.map_or_else(|| message.from.to_string(), |agent| agent.name);
    let read_at = cells.optional_int()?.map(Timestamp);
    Ok(InboxItem { message, from_name, read_at, state })
}
