//! Rows in memory, with the implementation of every query of a store.
//!
//! This is the reference for the queries in [`crate::store::StoreTx`]: the memory store consists of it, and a remote
//! store also answers from it, once it has fetched the rows that a query needs.

mod answer;
mod index;
mod row;

use std::collections::{BTreeMap, BTreeSet};

pub use serde_json::Value as Json;
use serde_json::Value;

use crate::{
    agent::{Agent, AgentState},
    change::{Event, QueueEntry, Receipt},
    checkpoint::Checkpoint,
    flow::{Attempt, Dependency, DependencyKind, IssueState, Task, TaskStatus, Template, Workflow},
    gate::Gate,
    id::{AgentId, CheckpointId, GateId, LandingId, MessageId, OpId, RepositoryId, TaskId, WorkflowId, WorkspaceId},
    landing::{Landing, Verdict},
    lease::Lease,
    message::{Delivery, DeliveryState, InboxItem, Message},
    repository::{Place, Repository, Scope, Worktree},
    retention::RetentionKind,
    store::{
        EventQuery, LandingQuery, LeasesOf, QueueKey, QueueScan, Result, TaskQuery, WorkflowQuery, WorkspaceQuery,
    },
    time::Timestamp,
    token::Token,
    workspace::Workspace,
};

pub use row::RowKey;

use index::Indexes;

/// Rows of every kind. They are changed with [`Tables::write`] and [`Tables::set`], which keep the indexes true.
#[derive(Clone, Default)]
pub struct Tables {
    pub repositories: BTreeMap<RepositoryId, Repository>,
    pub worktrees: BTreeMap<(RepositoryId, String), Worktree>,
    pub workflows: BTreeMap<WorkflowId, Workflow>,
    pub tasks: BTreeMap<TaskId, Task>,
    pub dependencies: BTreeSet<Dependency>,
    pub leases: BTreeMap<TaskId, Lease>,
    pub attempts: BTreeMap<(TaskId, u64), Attempt>,
    pub checkpoints: BTreeMap<CheckpointId, Checkpoint>,
    pub states: BTreeMap<(TaskId, String), Value>,
    pub agents: BTreeMap<AgentId, Agent>,
    pub messages: BTreeMap<MessageId, Message>,
    pub deliveries: BTreeMap<(String, MessageId), Delivery>,
    pub gates: BTreeMap<GateId, Gate>,
    pub workspaces: BTreeMap<WorkspaceId, Workspace>,
    pub landings: BTreeMap<LandingId, Landing>,
    pub verdicts: BTreeMap<String, Verdict>,
    /// Tokens, by digest.
    pub tokens: BTreeMap<String, Token>,
    pub templates: BTreeMap<(String, u32), Template>,
    pub queue: BTreeMap<TaskId, QueueEntry>,
    pub receipts: BTreeMap<OpId, Receipt>,
    pub events: Vec<Event>,
    indexes: Indexes,
}

fn limited<T>(rows: impl Iterator<Item = T>, limit: usize) -> Vec<T> {
    rows.take(if limit == 0 { usize::MAX } else { limit }).collect()
}

impl Tables {
    pub fn receipt(&self, op: &OpId) -> Result<Option<Receipt>> {
        Ok(self.receipts.get(op).cloned())
    }

    pub fn ids(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let t = self;
        let mut ids: Vec<String> = t
            .tasks
            .keys()
            .map(ToString::to_string)
            .chain(t.workflows.keys().map(ToString::to_string))
            .chain(t.agents.keys().map(ToString::to_string))
            .chain(t.gates.keys().map(ToString::to_string))
            .chain(t.workspaces.keys().map(ToString::to_string))
            .chain(t.landings.keys().map(ToString::to_string))
            .filter(|id| id.starts_with(prefix))
            .collect();
        ids.sort();
        ids.truncate(limit);
        Ok(ids)
    }

    pub fn repositories(&self) -> Result<Vec<Repository>> {
        Ok(self.repositories.values().cloned().collect())
    }

    pub fn worktrees(&self, repository: &RepositoryId) -> Result<Vec<Worktree>> {
        Ok(self.worktrees.values().filter(|row| row.repository == *repository).cloned().collect())
    }

    pub fn workflow(&self, id: &WorkflowId) -> Result<Option<Workflow>> {
        Ok(self.workflows.get(id).cloned())
    }

    pub fn workflows(&self, query: &WorkflowQuery) -> Result<Vec<Workflow>> {
        let mut rows: Vec<_> = self
            .workflows
            .values()
            .filter(|row| row.seen_from(&query.scope))
            .filter(|row| query.statuses.is_empty() || query.statuses.contains(&row.status))
            .cloned()
            .collect();
        rows.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        Ok(limited(rows.into_iter(), query.limit))
    }

    pub fn workflow_of_issue(&self, issue: &str) -> Result<Option<Workflow>> {
        let of_issue = self.indexes.workflows_of_issue(issue).filter_map(|id| self.workflows.get(id));
        Ok(of_issue.into_iter().find(|workflow| workflow.issue_state() == Some(IssueState::Live)).cloned())
    }

    pub fn ledger_pending(&self, repository: Option<&RepositoryId>, limit: usize) -> Result<Vec<Workflow>> {
        let here = |place: &Place| repository.is_none() || place.repository.as_ref() == repository;
        let ledger_pending = |workflow: &&Workflow| workflow.ledger_pending() && here(&workflow.place);
        Ok(limited(self.workflows.values().filter(ledger_pending).cloned(), limit))
    }

    pub fn progress(&self, workflow: &WorkflowId) -> Result<Vec<(TaskStatus, u64)>> {
        Ok(self.indexes.progress(workflow))
    }

    pub fn has_unblocked(&self, workflow: &WorkflowId) -> Result<bool> {
        Ok(self.indexes.has_unblocked(workflow))
    }

    pub fn task(&self, id: &TaskId) -> Result<Option<Task>> {
        Ok(self.tasks.get(id).cloned())
    }

    pub fn tasks(&self, query: &TaskQuery) -> Result<Vec<Task>> {
        let fits = |task: &&Task| {
            query.scope.covers(&task.place)
                && (query.statuses.is_empty() || query.statuses.contains(&task.state.status))
        };
        let mut rows: Vec<_> = match &query.workflow {
            Some(id) => {
                let of_workflow = self.indexes.tasks_of_workflow(id).filter_map(|id| self.tasks.get(id));
                of_workflow.filter(fits).cloned().collect()
            }
            None => self.tasks.values().filter(fits).cloned().collect(),
        };
        if query.workflow.is_some() {
            rows.sort_by(|a, b| (a.order, &a.id).cmp(&(b.order, &b.id)));
        } else {
            rows.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        }
        Ok(limited(rows.into_iter(), query.limit))
    }

    pub fn dependencies(&self, task: &TaskId) -> Result<Vec<(Dependency, Option<TaskStatus>)>> {
        let status = |id: &TaskId| self.tasks.get(id).map(|task| task.state.status);
        let first = Dependency { task: task.clone(), on: TaskId::known(""), kind: DependencyKind::Blocks };
        let of_task = self.dependencies.range(first..).take_while(|row| row.task == *task);
        Ok(of_task.map(|row| (row.clone(), status(&row.on))).collect())
    }

    pub fn dependents(&self, on: &TaskId) -> Result<Vec<Dependency>> {
        Ok(self.indexes.dependents(on).cloned().collect())
    }

    pub fn lease(&self, task: &TaskId) -> Result<Option<Lease>> {
        Ok(self.leases.get(task).cloned())
    }

    pub fn leases(&self, of: &LeasesOf) -> Result<Vec<Lease>> {
        let fits = |lease: &&Lease| match of {
            LeasesOf::Agent(id) => lease.agent == *id,
            LeasesOf::Workflow(id) => lease.workflow == *id,
            LeasesOf::Repository(None) => true,
            LeasesOf::Repository(id) => lease.repository == *id,
        };
        Ok(self.leases.values().filter(fits).cloned().collect())
    }

    pub fn newest_event_at(&self) -> Result<Option<Timestamp>> {
        Ok(self.events.last().map(|event| event.at))
    }

    pub fn overdue(&self, wall: Timestamp, host: Option<&str>, limit: usize) -> Result<Vec<Lease>> {
        let local = |lease: &Lease| lease.holder.as_ref().is_some_and(|holder| Some(holder.host.as_str()) == host);
        let due = |lease: &&Lease| lease.check_at <= wall.0 || local(lease);
        let mut rows: Vec<_> = self.leases.values().filter(due).cloned().collect();
        rows.sort_by(|a, b| (a.check_at, &a.task).cmp(&(b.check_at, &b.task)));
        Ok(limited(rows.into_iter(), limit))
    }

    pub fn attempts(&self, task: &TaskId) -> Result<Vec<Attempt>> {
        Ok(self.attempts.range((task.clone(), 0)..=(task.clone(), u64::MAX)).map(|(_, row)| row.clone()).collect())
    }

    pub fn checkpoints(&self, task: &TaskId, limit: usize) -> Result<Vec<Checkpoint>> {
        let newest_first = self.indexes.checkpoints_of(task).filter_map(|id| self.checkpoints.get(id));
        Ok(limited(newest_first.cloned(), limit))
    }

    pub fn state(&self, task: &TaskId, key: &str) -> Result<Option<Value>> {
        Ok(self.states.get(&(task.clone(), key.to_owned())).cloned())
    }

    pub fn states(&self, task: &TaskId) -> Result<Vec<(String, Value)>> {
        let mine = self.states.range((task.clone(), String::new())..).take_while(|((id, _), _)| id == task);
        Ok(mine.map(|((_, key), value)| (key.clone(), value.clone())).collect())
    }

    pub fn agent(&self, id: &AgentId) -> Result<Option<Agent>> {
        Ok(self.agents.get(id).cloned())
    }

    pub fn agent_named(&self, name: &str) -> Result<Option<Agent>> {
        Ok(self.indexes.agent_named(name).and_then(|id| self.agents.get(id)).cloned())
    }

    pub fn agents(&self) -> Result<Vec<Agent>> {
        let mut rows: Vec<_> = self.agents.values().cloned().collect();
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(rows)
    }

    pub fn message(&self, id: &MessageId) -> Result<Option<Message>> {
        Ok(self.messages.get(id).cloned())
    }

    pub fn inbox(&self, recipient: &str, unread_only: bool, limit: usize) -> Result<Vec<InboxItem>> {
        let mut mine: Vec<_> = self
            .deliveries
            .range((recipient.to_owned(), MessageId::known(""))..)
            .take_while(|((to, _), _)| to == recipient)
            .map(|(_, row)| row)
            .filter(|row| !unread_only || row.state == DeliveryState::Queued)
            .collect();
        mine.sort_by(|a, b| a.rank.cmp(&b.rank));
        let letters = mine.into_iter().filter_map(|delivery| {
            let message = self.messages.get(&delivery.message)?.clone();
            let from = self.agents.get(&message.from);
            let from_name = from.map_or_else(|| message.from.to_string(), |agent| agent.name.clone());
            Some(InboxItem { message, from_name, read_at: delivery.read_at, state: delivery.state })
        });
        Ok(limited(letters, limit))
    }

    pub fn gates(&self, task: &TaskId) -> Result<Vec<Gate>> {
        let mut rows: Vec<_> = self.indexes.gates_of(task).filter_map(|id| self.gates.get(id)).cloned().collect();
        rows.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        Ok(rows)
    }

    pub fn gate(&self, id: &GateId) -> Result<Option<Gate>> {
        Ok(self.gates.get(id).cloned())
    }

    pub fn unopened_gates(&self, scope: &Scope, limit: usize) -> Result<Vec<Gate>> {
        let mut rows: Vec<_> =
            self.gates.values().filter(|row| row.asks() && scope.covers(&row.place)).cloned().collect();
        rows.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        Ok(limited(rows.into_iter(), limit))
    }

    pub fn workspace(&self, id: &WorkspaceId) -> Result<Option<Workspace>> {
        Ok(self.workspaces.get(id).cloned())
    }

    pub fn workspaces(&self, query: &WorkspaceQuery) -> Result<Vec<Workspace>> {
        let fits = |row: &&Workspace| {
            query.repository.as_ref().is_none_or(|id| row.repository == *id) && (!query.live || row.state.live())
        };
        let mut rows: Vec<_> = self.workspaces.values().filter(fits).cloned().collect();
        rows.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        Ok(limited(rows.into_iter(), query.limit))
    }

    pub fn landing(&self, id: &LandingId) -> Result<Option<Landing>> {
        Ok(self.landings.get(id).cloned())
    }

    pub fn landings(&self, query: &LandingQuery) -> Result<Vec<Landing>> {
        let fits = |row: &&Landing| {
            query.repository.as_ref().is_none_or(|id| row.repository == *id) && (!query.live || row.state.live())
        };
        let mut rows: Vec<_> = self.landings.values().filter(fits).cloned().collect();
        rows.sort_by(|a, b| (b.created, &b.id).cmp(&(a.created, &a.id)));
        Ok(limited(rows.into_iter(), query.limit))
    }

    pub fn verdict(&self, key: &str) -> Result<Option<Verdict>> {
        Ok(self.verdicts.get(key).cloned())
    }

    pub fn token(&self, digest: &str) -> Result<Option<Token>> {
        Ok(self.tokens.get(digest).cloned())
    }

    pub fn tokens(&self) -> Result<Vec<Token>> {
        let mut all: Vec<Token> = self.tokens.values().cloned().collect();
        all.sort_by(|a, b| (&a.name, &a.digest).cmp(&(&b.name, &b.digest)));
        Ok(all)
    }

    pub fn flaky_verdicts(&self, repository: &RepositoryId) -> Result<Vec<Verdict>> {
        Ok(self.verdicts.values().filter(|row| row.repository == *repository && row.is_flaky()).cloned().collect())
    }

    pub fn template(&self, name: &str, version: Option<u32>) -> Result<Option<Template>> {
        let mut named = self.templates.values().filter(|row| row.name == name);
        Ok(match version {
            Some(version) => named.find(|row| row.version == version).cloned(),
            None => named.next_back().cloned(),
        })
    }

    pub fn templates(&self) -> Result<Vec<Template>> {
        let newest: BTreeMap<_, _> = self.templates.values().map(|row| (row.name.clone(), row)).collect();
        Ok(newest.into_values().cloned().collect())
    }

    pub fn open_lanes(&self, scope: &Scope) -> Result<Vec<Workflow>> {
        let fits = |row: &&Workflow| scope.repository.as_ref().is_none_or(|id| row.repositories.contains(id));
        let open = self.indexes.open_lanes().filter_map(|id| self.workflows.get(id));
        Ok(open.filter(fits).cloned().collect())
    }

    pub fn queued(&self, scan: &QueueScan<'_>) -> Result<Vec<(QueueEntry, Task)>> {
        let QueueScan { lanes, key, after, upto, limit, taking: _ } = *scan;
        let under = |row: &QueueEntry| match key {
            QueueKey::All => true,
            QueueKey::Workflow(id) => row.workflow == *id,
            QueueKey::Worktree(name) => row.worktree.as_ref() == Some(name),
            QueueKey::Label(label) => row.labels.contains(label),
        };
        let mut rows: Vec<(&QueueEntry, &Task)> = Vec::new();
        for lane in lanes {
            let ranked = self.indexes.ranked(lane, after, upto).filter_map(|id| self.queue.get(id));
            let found = ranked.filter(|row| under(row)).filter_map(|row| Some((row, self.tasks.get(&row.task)?)));
            rows.extend(found.take(if limit == 0 { usize::MAX } else { limit }));
        }
        rows.sort_by(|a, b| a.0.rank.cmp(&b.0.rank));
        Ok(limited(rows.into_iter().map(|(row, task)| (row.clone(), task.clone())), limit))
    }

    pub fn lanes(&self, prefixes: &[String], limit: usize) -> Result<Vec<String>> {
        let under = |prefix: &String| limited(self.indexes.lanes(prefix).cloned(), limit);
        let lanes: BTreeSet<String> = prefixes.iter().flat_map(under).collect();
        Ok(lanes.into_iter().collect())
    }

    pub fn queue_entry(&self, task: &TaskId) -> Result<Option<QueueEntry>> {
        Ok(self.queue.get(task).cloned())
    }

    pub fn events(&self, query: &EventQuery) -> Result<Vec<Event>> {
        let mut rows: Vec<_> = self
            .events
            .iter()
            .filter(|row| row.seq > query.after)
            .filter(|row| query.entity.as_ref().is_none_or(|entity| row.entity == *entity))
            .filter(|row| query.scope.covers(&row.place))
            .cloned()
            .collect();
        if query.newest {
            let surplus = rows.len().saturating_sub(query.limit);
            rows.drain(..surplus);
        } else {
            rows.truncate(query.limit);
        }
        Ok(rows)
    }

    pub fn forget(&mut self, what: RetentionKind, before: Timestamp, now: Timestamp, limit: usize) -> usize {
        let mut left = limit;
        let mut goes = |old: bool| {
            let goes = old && left > 0;
            left -= usize::from(goes);
            goes
        };
        let tasks = &self.tasks;
        let over = |id: &TaskId| {
            use TaskStatus::{Cancelled, Done, Skipped};
            tasks.get(id).is_some_and(|task| matches!(task.state.status, Done | Skipped | Cancelled))
        };
        match what {
            RetentionKind::Events => {
                let newest = self.events.last().map(|event| event.seq);
                let mut front = true;
                self.events.retain(|event| {
                    front = front && (event.at < before || event.at > now);
                    !goes(front && event.at < before && Some(event.seq) != newest)
                });
            }
            RetentionKind::Messages => {
                let unread: BTreeSet<_> = self
                    .deliveries
                    .values()
                    .filter(|row| row.state == DeliveryState::Queued)
                    .map(|row| row.message.clone())
                    .collect();
                self.messages.retain(|id, message| !goes(message.created < before && !unread.contains(id)));
                let messages = &self.messages;
                self.deliveries.retain(|_, row| messages.contains_key(&row.message));
            }
            RetentionKind::Attempts => self
                .attempts
                .retain(|(task, _), row| !goes(row.ended.is_some_and(|ended| ended < before) && over(task))),
            RetentionKind::Checkpoints => {
                let mut newest = BTreeMap::new();
                for row in self.checkpoints.values() {
                    let seq = newest.entry(row.task.clone()).or_insert(row.seq);
                    *seq = row.seq.max(*seq);
                }
                self.checkpoints
                    .retain(|_, row| !goes(row.created < before && over(&row.task) && newest[&row.task] > row.seq));
            }
            // Kept apart from rows.
            RetentionKind::Blobs => {}
            RetentionKind::Workspaces => {
                self.workspaces.retain(|_, row| !goes(row.used < before && !row.state.live() && row.rescue.is_none()));
            }
            RetentionKind::Agents => {
                let holders: BTreeSet<_> = self.leases.values().map(|lease| lease.agent.clone()).collect();
                let idle = |row: &Agent| row.state != AgentState::Draining && !holders.contains(&row.id);
                let mut gone = BTreeSet::new();
                self.agents.retain(|id, row| {
                    let goes = goes(row.seen < before && idle(row));
                    gone.extend(goes.then(|| id.to_string()));
                    !goes
                });
                self.deliveries.retain(|(recipient, _), _| !gone.contains(recipient));
            }
            RetentionKind::Receipts => self.receipts.retain(|_, row| !goes(row.at < before)),
        }
        self.index_again();
        limit - left
    }
}
