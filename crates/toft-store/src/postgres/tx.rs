//! Answers queries: fetches the rows of a query once, and answers from [`ReadSet`].

use std::sync::MutexGuard;

use serde_json::Value as Json;
use toft_core::{
    agent::Agent,
    change::{Change, Event, QueueEntry, Receipt, Write},
    checkpoint::Checkpoint,
    flow::{Attempt, Dependency, Task, TaskStatus, Template, Workflow},
    gate::Gate,
    id::{AgentId, GateId, LandingId, MessageId, OpId, RepositoryId, TaskId, WorkflowId, WorkspaceId},
    landing::{Landing, Verdict},
    lease::Lease,
    message::{InboxItem, Message},
    repository::{Repository, Scope, Worktree},
    store::{
        Access, EventQuery, LandingQuery, LeasesOf, Prefetch, QueueScan, Result, StoreError, StoreTx, TaskQuery,
        WorkflowQuery, WorkspaceQuery,
    },
    time::{Now, Timestamp},
    token::Token,
    workspace::Workspace,
};

use super::{
    load::{
        Load, counts_of, load_agent, load_attempt, load_checkpoint, load_dependency, load_dependency_on, load_gate,
        load_landing, load_lease, load_letter, load_listed_workspace, load_message, load_queue_entry, load_receipt,
        load_repository, load_state, load_task, load_template, load_token, load_verdict, load_workflow, load_workspace,
        load_worktree,
    },
    migrate,
    open::PostgresStore,
    read_set::{AskedQuery, ReadSet},
    server_time::ServerTime,
    sql,
    wire::{BEGIN, Statement, Wire, WireError, WireRow},
};
use crate::{
    query::Query,
    rows::{self, Cells},
    unknown::Unknown,
    value::{Bind, Value, kept},
};

/// A query that is about to be sent.
pub(super) struct Question {
    table: &'static str,
    pub(super) query: Query,
    values: Vec<Value<'static>>,
    load: Load,
}

pub(super) fn question(table: &'static str, query: Query, values: &[Value<'_>], load: Load) -> Question {
    Question { table, query, values: values.iter().map(Value::keep).collect(), load }
}

pub(super) struct PostgresTx<'a> {
    pub(super) store: &'a PostgresStore,
    pub(super) wire: MutexGuard<'a, Option<Wire>>,
    pub(super) access: Access,
    pub(super) moment: Option<ServerTime>,
    pub(super) reads: ReadSet,
    pub(super) unknown: Unknown,
    /// A transaction is open on the server.
    pub(super) open: bool,
    /// Number of statements that have read, each with its own snapshot.
    pub(super) looks: usize,
    /// Take the write lock at BEGIN, because the previous attempt conflicted.
    pub(super) alone: bool,
    conflicted: bool,
}

impl<'a> PostgresTx<'a> {
    pub(super) fn new(store: &'a PostgresStore, wire: MutexGuard<'a, Option<Wire>>, access: Access) -> Self {
        let alone = access == Access::Write && store.was_overtaken();
        let (reads, unknown) = (ReadSet::default(), Unknown::default());
        Self { store, wire, access, moment: None, reads, unknown, open: false, looks: 0, alone, conflicted: false }
    }

    /// Maps an error before the commit: nothing was written, so the verb may run again.
    pub(super) fn troubled(&mut self, trouble: &WireError) -> StoreError {
        self.conflicted = true;
        self.store.judge(&mut self.wire, trouble)
    }

    /// Sends statements together, with the BEGIN before the first.
    pub(super) fn fetch(&mut self, batch: &[Statement]) -> Result<Vec<Vec<WireRow>>> {
        let begin = match self.access {
            Access::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Access::Write => BEGIN,
        };
        let first = !self.open;
        let space = kept![self.store.space()];
        let Some(wire) = self.wire.as_mut() else { return Err(StoreError::Conflict) };
        let settings = wire.local_settings.clone().filter(|_| first);
        let mut sends: Vec<(&str, &[Value<'_>])> = Vec::with_capacity(batch.len() + 6);
        if first {
            sends.push((begin, &[]));
            sends.extend(settings.as_ref().map(|text| (text.as_str(), [].as_slice())));
            sends.extend(self.alone.then_some((sql!("turn"), space.as_slice())));
            sends.push((sql!("moment"), &space));
        }
        let ahead = sends.len();
        sends.extend(batch.iter().map(|(text, values)| (text.as_str(), values.as_slice())));
        let answered = wire.send(&sends);
        self.open = true;
        self.looks += batch.len();
        let mut rows = match answered {
            Ok(rows) => rows,
            Err(trouble) => return Err(self.upgraded(&trouble).unwrap_or_else(|| self.troubled(&trouble))),
        };
        if first {
            let row = rows.drain(..ahead).next_back().and_then(|rows| rows.into_iter().next());
            self.moment = row.as_ref().map(ServerTime::of).transpose()?;
            // Somebody may have upgraded the store since this process opened it.
            self.moment.as_ref().map_or(Ok(()), |moment| migrate::require_current(moment.schema))?;
        }
        Ok(rows)
    }

    /// Sends the queries that are not answered yet, in one round trip.
    pub(super) fn ask_all(&mut self, questions: Vec<Question>) -> Result<()> {
        let new: Vec<Question> =
            questions.into_iter().filter(|asked| !self.reads.knows(asked.query, &asked.values)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let batch: Vec<_> =
            new.iter().map(|asked| self.store.of_space(&printed(asked.query.postgres()), &asked.values)).collect();
        let answers = self.fetch(&batch)?;
        for (asked, rows) in new.into_iter().zip(answers) {
            self.take_in(asked, &rows)?;
        }
        Ok(())
    }

    pub(super) fn take_in(&mut self, question: Question, rows: &[WireRow]) -> Result<()> {
        let kept = (self.access == Access::Write).then_some(&self.unknown);
        let mut fingerprint = 0;
        for row in rows {
            fingerprint ^= row.number(row.len() - 1)?;
            (question.load)(&mut self.reads, &mut Cells::of(question.table, row).keeping(kept))?;
        }
        let Question { query, values, .. } = question;
        let fingerprint = (!rows.is_empty() || !only_what_else(query)).then_some(fingerprint);
        self.reads.asked.push(AskedQuery { query, values, fingerprint });
        Ok(())
    }

    fn ask(&mut self, table: &'static str, query: Query, values: &[Value<'_>], load: Load) -> Result<()> {
        if self.reads.knows(query, values) {
            return Ok(());
        }
        self.ask_all(vec![question(table, query, values, load)])
    }

    /// Rows directly from the server, without validation at commit.
    fn look<T>(
        &mut self,
        table: &'static str,
        text: &str,
        values: &[Value<'_>],
        read: impl Fn(&mut Cells<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let rows = self.fetch(&[self.store.of_space(text, values)])?.remove(0);
        rows.iter().map(|row| read(&mut Cells::of(table, row))).collect()
    }

    fn counts(&mut self, workflow: &WorkflowId) -> Result<()> {
        if self.reads.knows_counts(workflow) || self.reads.is_new(workflow) {
            return Ok(());
        }
        let text = Query::workflow_progress.postgres();
        let found = self.look("progress", text, &kept![workflow.as_str()], counts_of)?;
        self.reads.take_counts(workflow.clone(), found.into_iter().next().map(|(_, counts)| counts));
        Ok(())
    }

    /// Fetches the rows that the writes depend on, in one round trip.
    fn prepare(&mut self, writes: &[Write]) -> Result<()> {
        let mut needed = Vec::new();
        for write in writes {
            match write {
                // What queues is not leased.
                Write::Lease(row) if self.reads.candidates.contains_key(&row.task) => {}
                Write::Lease(Lease { task, .. }) | Write::RenewLease(Lease { task, .. }) | Write::DropLease(task)
                    if !self.reads.tables.leases.contains_key(task) =>
                {
                    needed.push(question("leases", Query::lease_get, &kept![task.as_str()], load_lease));
                }
                Write::Task(row) if self.reads.is_new(&row.workflow) => {}
                Write::Task(Task { id, .. }) | Write::TaskState(id, _) if !self.reads.tables.tasks.contains_key(id) => {
                    needed.push(question("tasks", Query::task_get, &kept![id.as_str()], load_task));
                }
                Write::Workflow(row) if !self.reads.tables.workflows.contains_key(&row.id) => {
                    needed.push(question("workflows", Query::workflow_get, &kept![row.id.as_str()], load_workflow));
                }
                Write::Agent(row) if !self.reads.tables.agents.contains_key(&row.id) => {
                    needed.push(question("agents", Query::agent_named, &kept![row.name], load_agent));
                }
                Write::Receipt(row) => {
                    needed.push(question("receipts", Query::receipt_get, &kept![row.op.as_str()], load_receipt));
                }
                _ => {}
            }
        }
        self.ask_all(needed)
    }
}

impl Drop for PostgresTx<'_> {
    fn drop(&mut self) {
        if self.open
            && let Some(wire) = self.wire.as_mut()
            && !wire.end_transaction(self.alone)
        {
            *self.wire = None;
        }
        if !self.conflicted {
            self.store.clear_retries();
        }
    }
}

/// Queries whose empty result is not validated at commit. A row that appears in the meantime is found by the next
/// claim.
fn only_what_else(query: Query) -> bool {
    matches!(query, Query::lease_overdue | Query::queue_list | Query::workflow_open_lanes)
}

/// A query whose rows end with a fingerprint.
pub(super) fn printed(text: &str) -> String {
    format!("SELECT q.*, hash_record_extended(q, 0) AS row_print FROM (\n{text}) q")
}

/// Words separated and enclosed by spaces, so that one search finds a whole word.
fn words<'w>(words: impl Iterator<Item = &'w str>) -> String {
    words.fold(String::new(), |text, word| if text.is_empty() { format!(" {word} ") } else { format!("{text}{word} ") })
}

fn repository(scope: &Scope) -> Option<&str> {
    scope.repository.as_ref().map(|id| id.as_str())
}

pub(super) fn overdue_values(wall: Timestamp, host: Option<&str>, limit: Option<i64>) -> Vec<Value<'static>> {
    // A holder's word starts with its host and `|`, and `}` is what comes after that.
    let (from, upto) = (host.map(|host| format!("{host}|")), host.map(|host| format!("{host}}}")));
    kept![wall.0, limit, from, upto].to_vec()
}

impl StoreTx for PostgresTx<'_> {
    fn prefetch(&mut self, ahead: Prefetch<'_>) -> Result<()> {
        match ahead {
            Prefetch::Unknown => Ok(()),
            Prefetch::Claim { actor, scope, head, leases, timers } => {
                self.foresee_claim(actor, scope, head, [leases, timers])
            }
            Prefetch::Hold { task } => self.foresee_hold(task),
        }
    }

    fn validate_reads(&mut self) -> Result<()> {
        self.confirm_reads()
    }

    fn now(&mut self) -> Result<Now> {
        if let Some(now) = self.store.own_clock() {
            return Ok(now);
        }
        if self.moment.is_none() {
            self.fetch(&[])?;
        }
        let wall = self.moment.as_ref().map_or(0, |moment| moment.wall);
        Ok(Now { wall: Timestamp(wall), tick: self.store.tick() })
    }

    fn newest_event_at(&mut self) -> Result<Option<Timestamp>> {
        if self.moment.is_none() {
            self.fetch(&[])?;
        }
        Ok(self.moment.as_ref().and_then(|moment| moment.newest_event).map(Timestamp))
    }

    fn receipt(&mut self, op: &OpId) -> Result<Option<Receipt>> {
        self.ask("receipts", Query::receipt_get, &kept![op.as_str()], load_receipt)?;
        self.reads.tables.receipt(op)?.map(|receipt| self.stand_by(receipt)).transpose()
    }

    fn ids(&mut self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let values = kept![prefix, format!("{prefix}\u{7f}"), limit as u64];
        let mut ids = self.look("ids", Query::id_search.postgres(), &values, |cells| cells.text())?;
        ids.extend(self.reads.tables.ids(prefix, limit)?);
        ids.sort();
        ids.dedup();
        ids.truncate(limit);
        Ok(ids)
    }

    fn repositories(&mut self) -> Result<Vec<Repository>> {
        self.ask("repositories", Query::repository_list, &[], load_repository)?;
        self.reads.tables.repositories()
    }

    fn worktrees(&mut self, repository: &RepositoryId) -> Result<Vec<Worktree>> {
        self.ask("worktrees", Query::worktree_list, &kept![repository.as_str()], load_worktree)?;
        self.reads.tables.worktrees(repository)
    }

    fn workflow(&mut self, id: &WorkflowId) -> Result<Option<Workflow>> {
        if !self.reads.tables.workflows.contains_key(id) {
            self.ask("workflows", Query::workflow_get, &kept![id.as_str()], load_workflow)?;
        }
        self.reads.tables.workflow(id)
    }

    fn workflows(&mut self, query: &WorkflowQuery) -> Result<Vec<Workflow>> {
        let statuses = words(query.statuses.iter().map(|status| status.as_str()));
        let limit = self.reads.widen(query.limit);
        let values = kept![repository(&query.scope), query.scope.worktree, statuses, limit];
        self.ask("workflows", Query::workflow_list, &values, load_workflow)?;
        self.reads.tables.workflows(query)
    }

    fn workflow_of_issue(&mut self, issue: &str) -> Result<Option<Workflow>> {
        self.ask("workflows", Query::workflow_of_issue, &kept![issue], load_workflow)?;
        self.reads.tables.workflow_of_issue(issue)
    }

    fn ledger_pending(&mut self, repository: Option<&RepositoryId>, limit: usize) -> Result<Vec<Workflow>> {
        let asked = kept![self.reads.widen(limit), repository.map(|id| id.as_str())];
        self.ask("workflows", Query::workflow_untold, &asked, load_workflow)?;
        self.reads.tables.ledger_pending(repository, limit)
    }

    fn progress(&mut self, workflow: &WorkflowId) -> Result<Vec<(TaskStatus, u64)>> {
        self.counts(workflow)?;
        let counts = self.reads.progress(workflow);
        let known = TaskStatus::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0);
        Ok(known.map(|(status, count)| (status, count as u64)).collect())
    }

    fn has_unblocked(&mut self, workflow: &WorkflowId) -> Result<bool> {
        self.reads.rely_on_candidates_of(workflow);
        let values = kept![workflow.as_str(), self.reads.widen(1)];
        self.ask("tasks", Query::workflow_has_unblocked, &values, load_task)?;
        self.reads.tables.has_unblocked(workflow)
    }

    fn task(&mut self, id: &TaskId) -> Result<Option<Task>> {
        if !self.reads.tables.tasks.contains_key(id) {
            self.ask("tasks", Query::task_get, &kept![id.as_str()], load_task)?;
        }
        self.reads.rely_on_candidate(id);
        self.reads.tables.task(id)
    }

    fn tasks(&mut self, query: &TaskQuery) -> Result<Vec<Task>> {
        let statuses = words(query.statuses.iter().map(|status| status.as_str()));
        let (repository, worktree) = (repository(&query.scope), &query.scope.worktree);
        let limit = self.reads.widen(query.limit);
        match &query.workflow {
            Some(workflow) => {
                self.reads.rely_on_candidates_of(workflow);
                let values = kept![workflow.as_str(), repository, worktree, statuses, limit];
                self.ask("tasks", Query::task_list_of_workflow, &values, load_task)?;
            }
            None if query.statuses == [TaskStatus::Failed] => {
                self.ask("tasks", Query::task_list_failed, &kept![repository, worktree, limit], load_task)?;
            }
            None => {
                let values = kept![repository, worktree, statuses, limit];
                self.ask("tasks", Query::task_list_recent, &values, load_task)?;
            }
        }
        self.reads.tables.tasks(query)
    }

    fn dependencies(&mut self, task: &TaskId) -> Result<Vec<(Dependency, Option<TaskStatus>)>> {
        self.ask("dependencies", Query::dependency_list, &kept![task.as_str()], load_dependency_on)?;
        self.reads.tables.dependencies(task)
    }

    fn dependents(&mut self, on: &TaskId) -> Result<Vec<Dependency>> {
        self.ask("dependencies", Query::dependent_list, &kept![on.as_str()], load_dependency)?;
        self.reads.tables.dependents(on)
    }

    fn lease(&mut self, task: &TaskId) -> Result<Option<Lease>> {
        // A lease that is known came with an answer that must stand; that there is none must be asked.
        if !self.reads.tables.leases.contains_key(task) {
            self.ask("leases", Query::lease_get, &kept![task.as_str()], load_lease)?;
        }
        self.reads.tables.lease(task)
    }

    fn leases(&mut self, of: &LeasesOf) -> Result<Vec<Lease>> {
        match of {
            LeasesOf::Agent(id) => self.ask("leases", Query::lease_of_agent, &kept![id.as_str()], load_lease),
            LeasesOf::Workflow(id) => self.ask("leases", Query::lease_of_workflow, &kept![id.as_str()], load_lease),
            LeasesOf::Repository(id) => {
                let id = id.as_ref().map(|id| id.as_str());
                self.ask("leases", Query::lease_of_repository, &kept![id], load_lease)
            }
        }?;
        self.reads.tables.leases(of)
    }

    fn overdue(&mut self, wall: Timestamp, host: Option<&str>, limit: usize) -> Result<Vec<Lease>> {
        let values = overdue_values(wall, host, self.reads.widen(limit));
        self.ask("leases", Query::lease_overdue, &values, load_lease)?;
        self.reads.tables.overdue(wall, host, limit)
    }

    fn attempts(&mut self, task: &TaskId) -> Result<Vec<Attempt>> {
        self.ask("attempts", Query::attempt_list, &kept![task.as_str()], load_attempt)?;
        self.reads.tables.attempts(task)
    }

    fn checkpoints(&mut self, task: &TaskId, limit: usize) -> Result<Vec<Checkpoint>> {
        let values = kept![task.as_str(), self.reads.widen(limit)];
        self.ask("checkpoints", Query::checkpoint_list, &values, load_checkpoint)?;
        self.reads.tables.checkpoints(task, limit)
    }

    fn state(&mut self, task: &TaskId, key: &str) -> Result<Option<Json>> {
        self.ask("states", Query::state_get, &kept![task.as_str(), key], load_state)?;
        self.reads.tables.state(task, key)
    }

    fn states(&mut self, task: &TaskId) -> Result<Vec<(String, Json)>> {
        self.ask("states", Query::state_list, &kept![task.as_str()], load_state)?;
        self.reads.tables.states(task)
    }

    fn agent(&mut self, id: &AgentId) -> Result<Option<Agent>> {
        if !self.reads.tables.agents.contains_key(id) {
            self.ask("agents", Query::agent_get, &kept![id.as_str()], load_agent)?;
        }
        self.reads.tables.agent(id)
    }

    fn agent_named(&mut self, name: &str) -> Result<Option<Agent>> {
        self.ask("agents", Query::agent_named, &kept![name], load_agent)?;
        self.reads.tables.agent_named(name)
    }

    fn agents(&mut self) -> Result<Vec<Agent>> {
        self.ask("agents", Query::agent_list, &[], load_agent)?;
        self.reads.tables.agents()
    }

    fn message(&mut self, id: &MessageId) -> Result<Option<Message>> {
        self.ask("messages", Query::message_get, &kept![id.as_str()], load_message)?;
        self.reads.tables.message(id)
    }

    fn inbox(&mut self, recipient: &str, unread_only: bool, limit: usize) -> Result<Vec<InboxItem>> {
        let query = if unread_only { Query::delivery_unread } else { Query::delivery_inbox };
        let values = kept![recipient, self.reads.widen(limit)];
        self.ask("deliveries", query, &values, load_letter)?;
        self.reads.tables.inbox(recipient, unread_only, limit)
    }

    fn gates(&mut self, task: &TaskId) -> Result<Vec<Gate>> {
        self.ask("gates", Query::gate_list, &kept![task.as_str()], load_gate)?;
        self.reads.tables.gates(task)
    }

    fn gate(&mut self, id: &GateId) -> Result<Option<Gate>> {
        self.ask("gates", Query::gate_get, &kept![id.as_str()], load_gate)?;
        self.reads.tables.gate(id)
    }

    fn unopened_gates(&mut self, scope: &Scope, limit: usize) -> Result<Vec<Gate>> {
        let values = kept![repository(scope), scope.worktree, self.reads.widen(limit)];
        self.ask("gates", Query::gate_unopened, &values, load_gate)?;
        self.reads.tables.unopened_gates(scope, limit)
    }

    fn workspace(&mut self, id: &WorkspaceId) -> Result<Option<Workspace>> {
        self.ask("workspaces", Query::workspace_get, &kept![id.as_str()], load_workspace)?;
        self.reads.tables.workspace(id)
    }

    fn workspaces(&mut self, query: &WorkspaceQuery) -> Result<Vec<Workspace>> {
        let repository = query.repository.as_ref().map(|id| id.to_string());
        let values = kept![repository, query.live, self.reads.widen(query.limit)];
        self.ask("workspaces", Query::workspace_list, &values, load_listed_workspace)?;
        self.reads.tables.workspaces(query)
    }

    fn landing(&mut self, id: &LandingId) -> Result<Option<Landing>> {
        self.ask("landings", Query::landing_get, &kept![id.as_str()], load_landing)?;
        self.reads.tables.landing(id)
    }

    fn landings(&mut self, query: &LandingQuery) -> Result<Vec<Landing>> {
        let repository = query.repository.as_ref().map(|id| id.to_string());
        let values = kept![repository, query.live, self.reads.widen(query.limit)];
        self.ask("landings", Query::landing_list, &values, load_landing)?;
        self.reads.tables.landings(query)
    }

    fn verdict(&mut self, key: &str) -> Result<Option<Verdict>> {
        self.ask("verdicts", Query::verdict_get, &kept![key], load_verdict)?;
        self.reads.tables.verdict(key)
    }

    fn flaky_verdicts(&mut self, repository: &RepositoryId) -> Result<Vec<Verdict>> {
        self.ask("verdicts", Query::verdict_list_flaky, &kept![repository.as_str()], load_verdict)?;
        self.reads.tables.flaky_verdicts(repository)
    }

    fn token(&mut self, digest: &str) -> Result<Option<Token>> {
        self.ask("tokens", Query::token_get, &kept![digest], load_token)?;
        self.reads.tables.token(digest)
    }

    fn tokens(&mut self) -> Result<Vec<Token>> {
        self.ask("tokens", Query::token_list, &kept![], load_token)?;
        self.reads.tables.tokens()
    }

    fn template(&mut self, name: &str, version: Option<u32>) -> Result<Option<Template>> {
        match version {
            Some(version) => self.ask("templates", Query::template_get, &kept![name, version], load_template),
            None => self.ask("templates", Query::template_newest, &kept![name], load_template),
        }?;
        self.reads.tables.template(name, version)
    }

    fn templates(&mut self) -> Result<Vec<Template>> {
        self.ask("templates", Query::template_list, &[], load_template)?;
        self.reads.tables.templates()
    }

    fn open_lanes(&mut self, scope: &Scope) -> Result<Vec<Workflow>> {
        self.ask("workflows", Query::workflow_open_lanes, &[], load_workflow)?;
        self.reads.tables.open_lanes(scope)
    }

    fn queued(&mut self, scan: &QueueScan<'_>) -> Result<Vec<(QueueEntry, Task)>> {
        self.read_queue(scan)?;
        self.reads.tables.queued(scan)
    }

    fn lanes(&mut self, prefixes: &[String], limit: usize) -> Result<Vec<String>> {
        self.find_lanes(prefixes, limit)
    }

    fn queue_entry(&mut self, task: &TaskId) -> Result<Option<QueueEntry>> {
        self.ask("queue", Query::queue_get, &kept![task.as_str()], load_queue_entry)?;
        self.reads.tables.queue_entry(task)
    }

    fn events(&mut self, query: &EventQuery) -> Result<Vec<Event>> {
        let text = match (&query.entity, query.newest) {
            (None, false) => Query::event_list,
            (None, true) => Query::event_list_newest,
            (Some(_), false) => Query::event_of_entity,
            (Some(_), true) => Query::event_of_entity_newest,
        };
        let limit = i64::try_from(query.limit).ok().filter(|limit| *limit > 0);
        let scope = (repository(&query.scope), &query.scope.worktree);
        let mut values = kept![query.after.min(i64::MAX as u64), scope.0, scope.1, limit].to_vec();
        values.extend(query.entity.as_ref().map(Bind::bind));
        let mut events = self.look("events", text.postgres(), &values, rows::event)?;
        if query.newest {
            events.reverse();
        }
        Ok(events)
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        self.write_derived(&change.writes)?;
        self.reads.events.push(change.event.clone());
        Ok(())
    }

    fn write_derived(&mut self, writes: &[Write]) -> Result<()> {
        if self.access == Access::Read {
            return Err(StoreError::Failed { doing: "write".into(), cause: "the transaction only reads".into() });
        }
        self.prepare(writes)?;
        for write in writes {
            match self.reads.write(write) {
                // The reads may come from different snapshots; retry under the lock before reporting an error.
                Err(_) if !self.alone => return Err(self.troubled(&WireError::inconsistent())),
                done => done?,
            }
        }
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.validate_and_commit()
    }
}
