//! The rows that a transaction has read and changed.
//!
//! Rows that were read go into [`Tables`], and so do rows that are written; queries are answered from there, so a
//! transaction sees its own changes before the server does. Every query is stored with a fingerprint of its answer.

use std::collections::{BTreeMap, BTreeSet};

use toft_core::{
    change::{Event, Write},
    flow::{Task, TaskStatus, Workflow},
    id::{LeaseId, OpId, TaskId, WorkflowId},
    lease::Lease,
    store::{QueueKey, Result},
    tables::{RowKey, Tables},
};

use crate::{
    query::Query,
    value::{Bind, Value},
};

/// Number of statuses of a task.
const STATUSES: usize = TaskStatus::ALL.len();

/// Number of tasks per status, in the order of `TaskStatus::ALL`; or the change of these numbers.
pub(super) type Counts = [i64; STATUSES];

/// A query with its values, and a fingerprint of the answer if it must be validated at commit.
pub(super) struct AskedQuery {
    pub(super) query: Query,
    pub(super) values: Vec<Value<'static>>,
    pub(super) fingerprint: Option<i64>,
}

/// The conclusion of a rule from the counts of a workflow: the remaining statuses, including this transaction's
/// changes.
pub(super) struct Concluded {
    pub(super) workflow: WorkflowId,
    pub(super) changes: Counts,
    pub(super) left: String,
}

/// A task in the queue: its position and its fingerprint.
pub(super) struct Candidate {
    pub(super) rank: String,
    pub(super) lane: String,
    pub(super) fingerprint: i64,
}

/// A part of the queue from which a claim chooses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueRange {
    pub(super) lanes: Vec<String>,
    pub(super) key: QueueKey,
}

#[derive(Default)]
pub(super) struct ReadSet {
    /// The rows as this transaction sees them.
    pub(super) tables: Tables,
    pub(super) asked: Vec<AskedQuery>,
    pub(super) concluded: Vec<Concluded>,
    pub(super) candidates: BTreeMap<TaskId, Candidate>,
    pub(super) events: Vec<Event>,
    /// Parts of the queue whose first entries were fetched, and how many of them.
    pub(super) heads: Vec<(QueueRange, usize)>,
    /// Parts of the queue that were read including the entries that other claims had marked.
    pub(super) marked: BTreeSet<QueueRange>,
    /// A check was skipped because it succeeded a moment ago.
    pub(super) on_trust: bool,
    /// Counts on the server.
    counts: BTreeMap<WorkflowId, Option<Counts>>,
    /// Workflow and status of tasks on the server.
    stored: BTreeMap<TaskId, (WorkflowId, TaskStatus)>,
    /// Leases on the server.
    leased: BTreeMap<TaskId, LeaseId>,
    touched: BTreeSet<RowKey>,
    /// New workflows, whose tasks are also new.
    made: BTreeSet<WorkflowId>,
}

impl ReadSet {
    pub(super) fn knows(&self, query: Query, values: &[Value<'_>]) -> bool {
        self.asked.iter().any(|asked| asked.query == query && asked.values == values)
    }

    /// A limit that is still sufficient if every row changed in this transaction drops out of the answer.
    pub(super) fn widen(&self, limit: usize) -> Option<i64> {
        i64::try_from(limit)
            .ok()
            .filter(|limit| *limit > 0)
            .map(|limit| limit.saturating_add(self.touched.len() as i64))
    }

    fn fresh(&self, key: &RowKey) -> bool {
        !self.touched.contains(key)
    }

    pub(super) fn take_task(&mut self, task: Task) {
        let fresh = self.fresh(&RowKey::Task(task.id.clone())) && self.fresh(&RowKey::TaskState(task.id.clone()));
        // What was only seen in the queue gives way to what was asked for.
        if fresh && (!self.tables.tasks.contains_key(&task.id) || self.candidates.contains_key(&task.id)) {
            self.stored.insert(task.id.clone(), (task.workflow.clone(), task.state.status));
            self.tables.set(&RowKey::Task(task.id.clone()), Some(Write::Task(task)));
        }
    }

    pub(super) fn take_lease(&mut self, lease: Lease) {
        if self.fresh(&RowKey::Lease(lease.task.clone())) && !self.tables.leases.contains_key(&lease.task) {
            self.leased.insert(lease.task.clone(), lease.fence.id.clone());
            self.tables.set(&RowKey::Lease(lease.task.clone()), Some(Write::Lease(lease)));
        }
    }

    pub(super) fn take_workflow(&mut self, workflow: Workflow) {
        let key = RowKey::Workflow(workflow.id.clone());
        if self.fresh(&key) && !self.tables.workflows.contains_key(&workflow.id) {
            self.tables.set(&key, Some(Write::Workflow(workflow)));
        }
    }

    /// Loads a row as it was read, unless it was changed here or is already loaded.
    pub(super) fn take(&mut self, row: Write) -> Result<()> {
        match row {
            Write::Task(task) => self.take_task(task),
            Write::Lease(lease) => self.take_lease(lease),
            Write::Workflow(workflow) => self.take_workflow(workflow),
            row if self.fresh(&RowKey::of(&row)) => self.tables.write(&row)?,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn take_counts(&mut self, workflow: WorkflowId, counts: Option<Counts>) {
        self.counts.entry(workflow).or_insert(counts);
    }

    pub(super) fn knows_counts(&self, workflow: &WorkflowId) -> bool {
        self.counts.contains_key(workflow)
    }

    /// Number of tasks per status of a workflow, including this transaction's changes; records the conclusion.
    pub(super) fn progress(&mut self, workflow: &WorkflowId) -> Counts {
        let changes = self.changes().remove(workflow).unwrap_or_default();
        let stored = self.counts.get(workflow).copied().flatten();
        let mut counts = stored.unwrap_or_default();
        for (count, change) in counts.iter_mut().zip(changes) {
            *count += change;
        }
        let left = match stored {
            Some(_) => counts.iter().map(|count| if *count > 0 { '1' } else { '0' }).collect(),
            None => "none".to_owned(),
        };
        self.concluded.push(Concluded { workflow: workflow.clone(), changes, left });
        counts
    }

    /// The changes of this transaction to the counts of each workflow.
    pub(super) fn changes(&self) -> BTreeMap<WorkflowId, Counts> {
        let mut changes: BTreeMap<WorkflowId, Counts> = BTreeMap::new();
        for key in &self.touched {
            let (RowKey::Task(id) | RowKey::TaskState(id)) = key else { continue };
            if matches!(key, RowKey::TaskState(_)) && self.touched.contains(&RowKey::Task(id.clone())) {
                continue;
            }
            if let Some((workflow, status)) = self.stored.get(id) {
                changes.entry(workflow.clone()).or_default()[place(*status)] -= 1;
            }
            if let Some(task) = self.tables.tasks.get(id) {
                changes.entry(task.workflow.clone()).or_default()[place(task.state.status)] += 1;
            }
        }
        changes.retain(|_, changes| changes.iter().any(|change| *change != 0));
        changes
    }

    pub(super) fn is_new(&self, workflow: &WorkflowId) -> bool {
        self.made.contains(workflow)
    }

    pub(super) fn write(&mut self, write: &Write) -> Result<()> {
        if let Write::Workflow(row) = write
            && !self.tables.workflows.contains_key(&row.id)
        {
            self.made.insert(row.id.clone());
        }
        self.tables.write(write)?;
        self.touched.insert(RowKey::of(write));
        Ok(())
    }

    pub(super) fn unchanged(&self) -> bool {
        self.touched.is_empty() && self.events.is_empty()
    }

    pub(super) fn leaves_receipt(&self) -> bool {
        self.touched.iter().any(|key| matches!(key, RowKey::Receipt(_)))
    }

    /// The operation of this transaction, if it writes an event or a receipt.
    pub(super) fn op(&self) -> Option<OpId> {
        let receipt = self.touched.iter().find_map(|key| match key {
            RowKey::Receipt(op) => Some(op.clone()),
            _ => None,
        });
        receipt.or_else(|| self.events.first().map(|event| event.op.clone()))
    }

    /// From now on a candidate is validated at commit.
    pub(super) fn rely_on_candidate(&mut self, id: &TaskId) {
        let Some(fingerprint) = self.candidates.get(id).map(|candidate| candidate.fingerprint) else { return };
        let values = vec![id.as_str().bind().keep()];
        if !self.knows(Query::task_get, &values) {
            self.asked.push(AskedQuery { query: Query::task_get, values, fingerprint: Some(fingerprint) });
        }
    }

    /// From now on every candidate of a workflow is validated at commit.
    pub(super) fn rely_on_candidates_of(&mut self, workflow: &WorkflowId) {
        let of = |id: &&TaskId| self.tables.tasks.get(*id).is_some_and(|task| task.workflow == *workflow);
        let ids: Vec<TaskId> = self.candidates.keys().filter(of).cloned().collect();
        ids.iter().for_each(|id| self.rely_on_candidate(id));
    }

    /// Candidates that were removed from the queue.
    pub(super) fn claimed(&self) -> Vec<TaskId> {
        let taken =
            |id: &&TaskId| self.touched.contains(&RowKey::Queue((*id).clone())) && !self.tables.queue.contains_key(*id);
        self.candidates.keys().filter(taken).cloned().collect()
    }

    /// The rows to write at commit: each row once, in its current state.
    pub(super) fn writes(&self) -> Vec<Write> {
        let mut writes = Vec::new();
        for key in &self.touched {
            match key {
                RowKey::TaskState(id) if self.touched.contains(&RowKey::Task(id.clone())) => {}
                RowKey::Lease(task) => self.lease(task, &mut writes),
                key => writes.extend(self.tables.row(key).or_else(|| match key {
                    RowKey::Dependency(row) => Some(Write::DropDependency(row.clone())),
                    RowKey::Queue(task) => Some(Write::DropQueue(task.clone())),
                    _ => None,
                })),
            }
        }
        writes
    }

    /// Takes a row back to what it was before a write, and whether it had been written before that.
    pub(super) fn take_back(&mut self, key: &RowKey, was: Option<Write>, touched: bool) {
        if was.is_none()
            && let RowKey::Workflow(id) = key
        {
            self.made.remove(id);
        }
        self.tables.set(key, was);
        if !touched {
            self.touched.remove(key);
        }
    }

    /// Whether a row was written.
    pub(super) fn is_touched(&self, key: &RowKey) -> bool {
        self.touched.contains(key)
    }

    /// From now on the rows as they are here are those of the server.
    pub(super) fn settle(&mut self) {
        for key in std::mem::take(&mut self.touched) {
            match key {
                RowKey::Task(id) | RowKey::TaskState(id) => match self.tables.tasks.get(&id) {
                    Some(task) => drop(self.stored.insert(id, (task.workflow.clone(), task.state.status))),
                    None => drop(self.stored.remove(&id)),
                },
                RowKey::Lease(task) => match self.tables.leases.get(&task) {
                    Some(lease) => drop(self.leased.insert(task, lease.fence.id.clone())),
                    None => drop(self.leased.remove(&task)),
                },
                _ => {}
            }
        }
        self.events.clear();
        self.made.clear();
        self.tables.receipts.clear();
    }

    /// The write for the same lease if it is renewed; otherwise a new lease replaces the one on the server.
    fn lease(&self, task: &TaskId, writes: &mut Vec<Write>) {
        let (stored, now) = (self.leased.get(task), self.tables.leases.get(task));
        match (stored, now) {
            (Some(id), Some(lease)) if lease.fence.id == *id => writes.push(Write::RenewLease(lease.clone())),
            (Some(_), Some(lease)) => {
                writes.push(Write::DropLease(task.clone()));
                writes.push(Write::Lease(lease.clone()));
            }
            (None, Some(lease)) => writes.push(Write::Lease(lease.clone())),
            (Some(_), None) => writes.push(Write::DropLease(task.clone())),
            (None, None) => {}
        }
    }
}

fn place(status: TaskStatus) -> usize {
    TaskStatus::ALL.iter().position(|known| *known == status).unwrap_or_default()
}
