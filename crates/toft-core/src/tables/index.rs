//! What queries look rows up by.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

use super::Tables;
use crate::{
    agent::Agent,
    change::QueueEntry,
    checkpoint::Checkpoint,
    flow::{Dependency, Task, TaskStatus, Workflow},
    gate::Gate,
    id::{AgentId, CheckpointId, GateId, TaskId, WorkflowId},
};

/// A set of ids under each key; a key without ids is not there.
type Under<K, V> = BTreeMap<K, BTreeSet<V>>;

#[derive(Clone, Default)]
pub(super) struct Indexes {
    tasks_of_workflow: Under<WorkflowId, TaskId>,
    /// Pending tasks without open blockers.
    unblocked: Under<WorkflowId, TaskId>,
    counts: BTreeMap<WorkflowId, BTreeMap<TaskStatus, u64>>,
    dependents: Under<TaskId, Dependency>,
    checkpoints_of_task: Under<TaskId, (u64, CheckpointId)>,
    agents_by_name: BTreeMap<String, AgentId>,
    gates_of_task: Under<TaskId, GateId>,
    /// Tasks by lane and rank.
    ranks: Under<String, (String, TaskId)>,
    open_lanes: BTreeSet<WorkflowId>,
    workflows_of_issue: Under<String, WorkflowId>,
}

fn put<K: Ord + Clone, V: Ord>(index: &mut Under<K, V>, key: &K, value: V) {
    match index.get_mut(key) {
        Some(values) => drop(values.insert(value)),
        None => drop(index.insert(key.clone(), BTreeSet::from([value]))),
    }
}

fn drop_from<K: Ord, V: Ord>(index: &mut Under<K, V>, key: &K, value: &V) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}

fn all<'i, K: Ord + Borrow<Q>, Q: Ord + ?Sized, V>(
    index: &'i Under<K, V>,
    key: &Q,
) -> impl DoubleEndedIterator<Item = &'i V> {
    index.get(key).into_iter().flatten()
}

fn is_unblocked(task: &Task) -> bool {
    task.state.status == TaskStatus::Pending && task.state.open_blockers == 0
}

impl Indexes {
    pub(super) fn task(&mut self, old: Option<&Task>, new: Option<&Task>) {
        if let Some(task) = old {
            drop_from(&mut self.tasks_of_workflow, &task.workflow, &task.id);
            drop_from(&mut self.unblocked, &task.workflow, &task.id);
            if let Some(count) =
                self.counts.get_mut(&task.workflow).and_then(|counts| counts.get_mut(&task.state.status))
            {
                *count -= 1;
            }
        }
        if let Some(task) = new {
            put(&mut self.tasks_of_workflow, &task.workflow, task.id.clone());
            if is_unblocked(task) {
                put(&mut self.unblocked, &task.workflow, task.id.clone());
            }
            *self.counts.entry(task.workflow.clone()).or_default().entry(task.state.status).or_default() += 1;
        }
    }

    pub(super) fn dependency(&mut self, row: &Dependency, there: bool) {
        match there {
            true => put(&mut self.dependents, &row.on, row.clone()),
            false => drop_from(&mut self.dependents, &row.on, row),
        }
    }

    pub(super) fn checkpoint(&mut self, old: Option<&Checkpoint>, new: Option<&Checkpoint>) {
        if let Some(row) = old {
            drop_from(&mut self.checkpoints_of_task, &row.task, &(row.seq, row.id.clone()));
        }
        if let Some(row) = new {
            put(&mut self.checkpoints_of_task, &row.task, (row.seq, row.id.clone()));
        }
    }

    pub(super) fn agent(&mut self, old: Option<&Agent>, new: Option<&Agent>) {
        if let Some(row) = old {
            self.agents_by_name.remove(&row.name);
        }
        if let Some(row) = new {
            self.agents_by_name.insert(row.name.clone(), row.id.clone());
        }
    }

    pub(super) fn gate(&mut self, old: Option<&Gate>, new: Option<&Gate>) {
        if let Some(row) = old {
            drop_from(&mut self.gates_of_task, &row.task, &row.id);
        }
        if let Some(row) = new {
            put(&mut self.gates_of_task, &row.task, row.id.clone());
        }
    }

    pub(super) fn queue(&mut self, old: Option<&QueueEntry>, new: Option<&QueueEntry>) {
        if let Some(row) = old {
            drop_from(&mut self.ranks, &row.lane, &(row.rank.clone(), row.task.clone()));
        }
        if let Some(row) = new {
            put(&mut self.ranks, &row.lane, (row.rank.clone(), row.task.clone()));
        }
    }

    pub(super) fn workflow(&mut self, old: Option<&Workflow>, new: Option<&Workflow>) {
        if let Some(row) = old {
            self.open_lanes.remove(&row.id);
            if let Some(issue) = row.issue() {
                drop_from(&mut self.workflows_of_issue, &issue.to_owned(), &row.id);
            }
        }
        if let Some(row) = new {
            if row.lane_open() {
                self.open_lanes.insert(row.id.clone());
            }
            if let Some(issue) = row.issue() {
                put(&mut self.workflows_of_issue, &issue.to_owned(), row.id.clone());
            }
        }
    }

    pub(super) fn tasks_of_workflow(&self, id: &WorkflowId) -> impl Iterator<Item = &TaskId> {
        all(&self.tasks_of_workflow, id)
    }

    pub(super) fn has_unblocked(&self, id: &WorkflowId) -> bool {
        self.unblocked.contains_key(id)
    }

    pub(super) fn progress(&self, id: &WorkflowId) -> Vec<(TaskStatus, u64)> {
        let counts = self.counts.get(id).into_iter().flatten();
        counts.filter(|(_, count)| **count > 0).map(|(status, count)| (*status, *count)).collect()
    }

    pub(super) fn dependents(&self, on: &TaskId) -> impl Iterator<Item = &Dependency> {
        all(&self.dependents, on)
    }

    /// Newest first.
    pub(super) fn checkpoints_of(&self, task: &TaskId) -> impl Iterator<Item = &CheckpointId> {
        all(&self.checkpoints_of_task, task).rev().map(|(_, id)| id)
    }

    pub(super) fn agent_named(&self, name: &str) -> Option<&AgentId> {
        self.agents_by_name.get(name)
    }

    pub(super) fn gates_of(&self, task: &TaskId) -> impl Iterator<Item = &GateId> {
        all(&self.gates_of_task, task)
    }

    /// Tasks of a lane whose rank is between these two, in order.
    pub(super) fn ranked(&self, lane: &str, after: &str, upto: Option<&str>) -> impl Iterator<Item = &TaskId> {
        let from = (after.to_owned(), TaskId::known(""));
        let of_lane = self.ranks.get(lane).into_iter();
        let above = of_lane.flat_map(move |ranks| ranks.range((Bound::Included(from.clone()), Bound::Unbounded)));
        let (after, upto) = (after.to_owned(), upto.map(str::to_owned));
        let above = above.skip_while(move |(rank, _)| *rank == after);
        above.take_while(move |(rank, _)| upto.as_ref().is_none_or(|upto| rank < upto)).map(|(_, task)| task)
    }

    /// Lanes whose names begin so, in order.
    pub(super) fn lanes(&self, prefix: &str) -> impl Iterator<Item = &String> {
        let prefix = prefix.to_owned();
        self.ranks.range(prefix.clone()..).map(|(lane, _)| lane).take_while(move |lane| lane.starts_with(&prefix))
    }

    pub(super) fn open_lanes(&self) -> impl Iterator<Item = &WorkflowId> {
        self.open_lanes.iter()
    }

    pub(super) fn workflows_of_issue(&self, issue: &str) -> impl Iterator<Item = &WorkflowId> {
        all(&self.workflows_of_issue, issue)
    }
}

impl Tables {
    /// Makes the indexes again, after rows were removed together.
    pub(super) fn index_again(&mut self) {
        let mut indexes = Indexes::default();
        self.tasks.values().for_each(|row| indexes.task(None, Some(row)));
        self.dependencies.iter().for_each(|row| indexes.dependency(row, true));
        self.checkpoints.values().for_each(|row| indexes.checkpoint(None, Some(row)));
        self.agents.values().for_each(|row| indexes.agent(None, Some(row)));
        self.gates.values().for_each(|row| indexes.gate(None, Some(row)));
        self.queue.values().for_each(|row| indexes.queue(None, Some(row)));
        self.workflows.values().for_each(|row| indexes.workflow(None, Some(row)));
        self.indexes = indexes;
    }
}
