//! Answers queries inside one transaction.

use std::sync::{
    MutexGuard,
    atomic::{AtomicU64, Ordering},
};

use rusqlite::{
    Connection, ToSql, params,
    types::{ToSqlOutput, ValueRef},
};
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
        Access, EventQuery, LandingQuery, LeasesOf, QueueKey, QueueScan, Result, StoreTx, TaskQuery, WorkflowQuery,
        WorkspaceQuery,
    },
    time::{Now, Timestamp},
    token::Token,
    workspace::Workspace,
};

use super::{failed, migrate, open::SqliteStore, sql, turn::WriteTicket, wal::Wal};
use crate::{
    clock::TimeSource,
    query::{Query, query_of},
    rows::{self, Cells},
    unknown::{StoredBody, Unknown},
    value::{Row, Value},
    write,
};

pub(super) struct SqliteTx<'a> {
    connection: MutexGuard<'a, Connection>,
    clock: &'a dyn TimeSource,
    wal: &'a Wal,
    commits: &'a AtomicU64,
    open: bool,
    writes: bool,
    /// Its snapshot stays for the next read.
    shared: bool,
    unknown: Unknown,
    /// Held until the end of the transaction; the last field, so that it is dropped last.
    _turn: Option<WriteTicket<'a>>,
}

impl<'a> SqliteTx<'a> {
    pub(super) fn begin(
        connection: MutexGuard<'a, Connection>,
        turn: Option<WriteTicket<'a>>,
        access: Access,
        store: &'a SqliteStore,
    ) -> Result<Self> {
        match (access, connection.is_autocommit()) {
            (Access::Read, true) => run(&connection, "BEGIN DEFERRED")?,
            (Access::Read, false) => {}
            (Access::Write, true) => run(&connection, "BEGIN IMMEDIATE")?,
            (Access::Write, false) => {
                run(&connection, "ROLLBACK")?;
                run(&connection, "BEGIN IMMEDIATE")?;
            }
        }
        let (clock, wal, commits) = store.parts();
        let tx = Self {
            connection,
            clock,
            wal,
            commits,
            open: true,
            writes: access == Access::Write,
            shared: access == Access::Read && store.shares_snapshot(),
            unknown: Unknown::default(),
            _turn: turn,
        };
        // Another process may have upgraded the store since this one opened it.
        migrate::require_current(&tx.connection)?;
        Ok(tx)
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Runs one statement; returns the number of changed rows.
    pub(super) fn change(&self, query: Query, values: &[Value<'_>]) -> Result<usize> {
        execute(&self.connection, query.sqlite(), values)
    }

    /// Writes rows in order.
    fn put_down(&self, mut writes: &[Write]) -> Result<()> {
        let run = &mut |query: Query, values: &[Value<'_>]| self.change(query, values).map(drop);
        let unqueue = &mut |_: Query, values: &[Value<'_>]| {
            execute(&self.connection, sql!("task_state_set_unqueued"), values).map(drop)
        };
        loop {
            writes = match writes {
                [] => return Ok(()),
                [state @ Write::TaskState(id, _), Write::DropQueue(task), rest @ ..] if id == task => {
                    write::put(unqueue, &self.unknown, state)?;
                    rest
                }
                [write, rest @ ..] => {
                    write::put(run, &self.unknown, write)?;
                    rest
                }
            };
        }
    }

    fn list<T>(
        &self,
        table: &'static str,
        query: Query,
        values: &[&dyn ToSql],
        read: impl Fn(&mut Cells<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.rows(table, query.sqlite(), values, read)
    }

    fn rows<T>(
        &self,
        table: &'static str,
        text: &str,
        values: &[&dyn ToSql],
        read: impl Fn(&mut Cells<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let doing = failed("read rows");
        let mut statement = self.connection.prepare_cached(text).map_err(&doing)?;
        let mut found = statement.query(values).map_err(&doing)?;
        let (mut rows, kept) = (Vec::new(), self.writes.then_some(&self.unknown));
        while let Some(row) = found.next().map_err(&doing)? {
            rows.push(read(&mut Cells::of(table, row).keeping(kept))?);
        }
        Ok(rows)
    }

    fn one<T>(
        &self,
        table: &'static str,
        query: Query,
        values: &[&dyn ToSql],
        read: impl Fn(&mut Cells<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        Ok(self.list(table, query, values, read)?.pop())
    }

    fn body<T: StoredBody>(&self, table: &'static str, query: Query, values: &[&dyn ToSql]) -> Result<Option<T>> {
        self.one(table, query, values, |cells| cells.body())
    }

    fn bodies<T: StoredBody>(&self, table: &'static str, query: Query, values: &[&dyn ToSql]) -> Result<Vec<T>> {
        self.list(table, query, values, |cells| cells.body())
    }
}

impl Drop for SqliteTx<'_> {
    fn drop(&mut self) {
        if self.open && !self.shared && !self.connection.is_autocommit() {
            // Rolling back can only fail if SQLite already has.
            let _ = run(&self.connection, "ROLLBACK");
        }
    }
}

pub(super) fn run(connection: &Connection, sql: &'static str) -> Result<()> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(drop).map_err(failed(sql))
}

fn execute(connection: &Connection, text: &str, values: &[Value<'_>]) -> Result<usize> {
    let doing = failed("write a row");
    let mut statement = connection.prepare_cached(text).map_err(&doing)?;
    statement.execute(rusqlite::params_from_iter(values)).map_err(doing)
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
            Self::Int(Some(number)) => ValueRef::Integer(*number),
            Self::Real(Some(number)) => ValueRef::Real(*number),
            Self::Text(None) | Self::Int(None) | Self::Real(None) => ValueRef::Null,
        }))
    }
}

impl Row for rusqlite::Row<'_> {
    fn text(&self, column: usize) -> Result<Option<String>> {
        self.get(column).map_err(failed("read a column"))
    }

    fn int(&self, column: usize) -> Result<Option<i64>> {
        self.get(column).map_err(failed("read a column"))
    }

    fn real(&self, column: usize) -> Result<Option<f64>> {
        self.get(column).map_err(failed("read a column"))
    }
}

/// SQLite treats a negative limit as none.
fn limit(limit: usize) -> i64 {
    if limit == 0 { -1 } else { i64::try_from(limit).unwrap_or(-1) }
}

fn repository(scope: &Scope) -> Option<&str> {
    scope.repository.as_ref().map(|id| id.as_str())
}

/// Words separated and enclosed by spaces, so that one `instr` finds a whole word.
fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.fold(String::new(), |text, word| if text.is_empty() { format!(" {word} ") } else { format!("{text}{word} ") })
}

impl StoreTx for SqliteTx<'_> {
    fn now(&mut self) -> Result<Now> {
        Ok(self.clock.now())
    }

    fn newest_event_at(&mut self) -> Result<Option<Timestamp>> {
        self.one("events", Query::event_newest_at, params![], |cells| cells.int().map(Timestamp))
    }

    fn receipt(&mut self, op: &OpId) -> Result<Option<Receipt>> {
        self.one("receipts", Query::receipt_get, params![op.as_str()], rows::receipt)
    }

    fn ids(&mut self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let upto = format!("{prefix}\u{7f}");
        self.list("ids", Query::id_search, params![prefix, upto, limit as i64], |cells| cells.text())
    }

    fn repositories(&mut self) -> Result<Vec<Repository>> {
        self.bodies("repositories", Query::repository_list, params![])
    }

    fn worktrees(&mut self, repository: &RepositoryId) -> Result<Vec<Worktree>> {
        self.bodies("worktrees", Query::worktree_list, params![repository.as_str()])
    }

    fn workflow(&mut self, id: &WorkflowId) -> Result<Option<Workflow>> {
        self.body("workflows", Query::workflow_get, params![id.as_str()])
    }

    fn workflows(&mut self, query: &WorkflowQuery) -> Result<Vec<Workflow>> {
        let statuses = words(query.statuses.iter().map(|status| status.as_str()));
        self.bodies(
            "workflows",
            Query::workflow_list,
            params![repository(&query.scope), query.scope.worktree, statuses, limit(query.limit)],
        )
    }

    fn workflow_of_issue(&mut self, issue: &str) -> Result<Option<Workflow>> {
        self.body("workflows", Query::workflow_of_issue, params![issue])
    }

    fn ledger_pending(&mut self, repository: Option<&RepositoryId>, count: usize) -> Result<Vec<Workflow>> {
        let repository = repository.map(|id| id.as_str());
        self.bodies("workflows", Query::workflow_untold, params![limit(count), repository])
    }

    fn progress(&mut self, workflow: &WorkflowId) -> Result<Vec<(TaskStatus, u64)>> {
        let mut counts =
            self.list("task_states", Query::workflow_progress, params![workflow.as_str()], rows::progress)?;
        counts.sort();
        Ok(counts)
    }

    fn has_unblocked(&mut self, workflow: &WorkflowId) -> Result<bool> {
        let found =
            self.one("task_states", Query::workflow_has_unblocked, params![workflow.as_str()], |cells| cells.int())?;
        Ok(found == Some(1))
    }

    fn task(&mut self, id: &TaskId) -> Result<Option<Task>> {
        self.one("tasks", Query::task_get, params![id.as_str()], rows::task)
    }

    fn tasks(&mut self, query: &TaskQuery) -> Result<Vec<Task>> {
        let statuses = words(query.statuses.iter().map(|status| status.as_str()));
        let (repository, worktree) = (repository(&query.scope), &query.scope.worktree);
        let limit = limit(query.limit);
        match &query.workflow {
            Some(workflow) => self.list(
                "tasks",
                Query::task_list_of_workflow,
                params![workflow.as_str(), repository, worktree, statuses, limit],
                rows::task,
            ),
            None if query.statuses == [TaskStatus::Failed] => {
                self.list("tasks", Query::task_list_failed, params![repository, worktree, limit], rows::task)
            }
            None => {
                self.list("tasks", Query::task_list_recent, params![repository, worktree, statuses, limit], rows::task)
            }
        }
    }

    fn dependencies(&mut self, task: &TaskId) -> Result<Vec<(Dependency, Option<TaskStatus>)>> {
        let mut found =
            self.list("dependencies", Query::dependency_list, params![task.as_str()], rows::dependency_with_status)?;
        found.sort();
        Ok(found)
    }

    fn dependents(&mut self, on: &TaskId) -> Result<Vec<Dependency>> {
        let mut found = self.list("dependencies", Query::dependent_list, params![on.as_str()], rows::dependency)?;
        found.sort();
        Ok(found)
    }

    fn lease(&mut self, task: &TaskId) -> Result<Option<Lease>> {
        self.one("leases", Query::lease_get, params![task.as_str()], rows::lease)
    }

    fn leases(&mut self, of: &LeasesOf) -> Result<Vec<Lease>> {
        match of {
            LeasesOf::Agent(id) => self.list("leases", Query::lease_of_agent, params![id.as_str()], rows::lease),
            LeasesOf::Workflow(id) => self.list("leases", Query::lease_of_workflow, params![id.as_str()], rows::lease),
            LeasesOf::Repository(id) => {
                self.list("leases", Query::lease_of_repository, params![id.as_ref().map(|id| id.as_str())], rows::lease)
            }
        }
    }

    fn overdue(&mut self, wall: Timestamp, host: Option<&str>, limit: usize) -> Result<Vec<Lease>> {
        // A holder's word starts with its host and `|`, and `}` is what comes after that.
        let (from, upto) = (host.map(|host| format!("{host}|")), host.map(|host| format!("{host}}}")));
        let values = params![wall.0, self::limit(limit), from, upto];
        self.list("leases", Query::lease_overdue, values, rows::lease)
    }

    fn attempts(&mut self, task: &TaskId) -> Result<Vec<Attempt>> {
        self.list("attempts", Query::attempt_list, params![task.as_str()], rows::attempt)
    }

    fn checkpoints(&mut self, task: &TaskId, limit: usize) -> Result<Vec<Checkpoint>> {
        self.bodies("checkpoints", Query::checkpoint_list, params![task.as_str(), self::limit(limit)])
    }

    fn state(&mut self, task: &TaskId, key: &str) -> Result<Option<Json>> {
        self.one("states", Query::state_get, params![task.as_str(), key], |cells| cells.json())
    }

    fn states(&mut self, task: &TaskId) -> Result<Vec<(String, Json)>> {
        self.list("states", Query::state_list, params![task.as_str()], |cells| Ok((cells.text()?, cells.json()?)))
    }

    fn agent(&mut self, id: &AgentId) -> Result<Option<Agent>> {
        self.body("agents", Query::agent_get, params![id.as_str()])
    }

    fn agent_named(&mut self, name: &str) -> Result<Option<Agent>> {
        self.body("agents", Query::agent_named, params![name])
    }

    fn agents(&mut self) -> Result<Vec<Agent>> {
        self.bodies("agents", Query::agent_list, params![])
    }

    fn message(&mut self, id: &MessageId) -> Result<Option<Message>> {
        self.body("messages", Query::message_get, params![id.as_str()])
    }

    fn inbox(&mut self, recipient: &str, unread_only: bool, limit: usize) -> Result<Vec<InboxItem>> {
        let query = if unread_only { Query::delivery_unread } else { Query::delivery_inbox };
        self.list("deliveries", query, params![recipient, self::limit(limit)], rows::letter)
    }

    fn gates(&mut self, task: &TaskId) -> Result<Vec<Gate>> {
        self.bodies("gates", Query::gate_list, params![task.as_str()])
    }

    fn gate(&mut self, id: &GateId) -> Result<Option<Gate>> {
        self.body("gates", Query::gate_get, params![id.as_str()])
    }

    fn unopened_gates(&mut self, scope: &Scope, limit: usize) -> Result<Vec<Gate>> {
        self.bodies("gates", Query::gate_unopened, params![repository(scope), scope.worktree, self::limit(limit)])
    }

    fn landing(&mut self, id: &LandingId) -> Result<Option<Landing>> {
        self.body("landings", Query::landing_get, params![id.as_str()])
    }

    fn landings(&mut self, query: &LandingQuery) -> Result<Vec<Landing>> {
        let repository = query.repository.as_ref().map(|id| id.as_str());
        let values = params![repository, query.live, limit(query.limit)];
        self.bodies("landings", Query::landing_list, values)
    }

    fn verdict(&mut self, key: &str) -> Result<Option<Verdict>> {
        self.body("verdicts", Query::verdict_get, params![key])
    }

    fn flaky_verdicts(&mut self, repository: &RepositoryId) -> Result<Vec<Verdict>> {
        self.bodies("verdicts", Query::verdict_list_flaky, params![repository.as_str()])
    }

    fn token(&mut self, digest: &str) -> Result<Option<Token>> {
        self.body("tokens", Query::token_get, params![digest])
    }

    fn tokens(&mut self) -> Result<Vec<Token>> {
        self.bodies("tokens", Query::token_list, params![])
    }

    fn workspace(&mut self, id: &WorkspaceId) -> Result<Option<Workspace>> {
        self.body("workspaces", Query::workspace_get, params![id.as_str()])
    }

    fn workspaces(&mut self, query: &WorkspaceQuery) -> Result<Vec<Workspace>> {
        let repository = query.repository.as_ref().map(|id| id.as_str());
        let values = params![repository, query.live, limit(query.limit)];
        self.list("workspaces", Query::workspace_list, values, |cells| cells.listed_workspace())
    }

    fn template(&mut self, name: &str, version: Option<u32>) -> Result<Option<Template>> {
        match version {
            Some(version) => self.body("templates", Query::template_get, params![name, version]),
            None => self.body("templates", Query::template_newest, params![name]),
        }
    }

    fn templates(&mut self) -> Result<Vec<Template>> {
        self.bodies("templates", Query::template_list, params![])
    }

    fn open_lanes(&mut self, scope: &Scope) -> Result<Vec<Workflow>> {
        let mut lanes: Vec<Workflow> = self.bodies("workflows", Query::workflow_open_lanes, params![])?;
        lanes.retain(|row| scope.repository.as_ref().is_none_or(|id| row.repositories.contains(id)));
        Ok(lanes)
    }

    fn queued(&mut self, scan: &QueueScan<'_>) -> Result<Vec<(QueueEntry, Task)>> {
        let (query, key) = query_of(scan.key);
        let text = match scan.key {
            QueueKey::Worktree(name) if name == Worktree::MAIN => sql!("queue_list_of_main"),
            _ => query.sqlite(),
        };
        let (upto, limit) = (scan.upto.unwrap_or("~"), limit(scan.limit));
        let mut found = Vec::new();
        for lane in scan.lanes {
            let mut values: Vec<&dyn ToSql> = vec![lane, &scan.after, &upto, &limit];
            values.extend(key.as_ref().map(|key| key as &dyn ToSql));
            found.extend(self.rows("queue", text, &values, rows::queued)?);
        }
        if scan.lanes.len() > 1 {
            found.sort_by(|(a, _), (b, _)| a.rank.cmp(&b.rank));
            found.truncate(if scan.limit == 0 { found.len() } else { scan.limit });
        }
        Ok(found)
    }

    fn lanes(&mut self, prefixes: &[String], count: usize) -> Result<Vec<String>> {
        let mut lanes = Vec::new();
        for prefix in prefixes {
            let upto = format!("{prefix}{}", char::MAX);
            lanes.extend(
                self.list("queue", Query::queue_lanes, params![prefix, upto, limit(count)], |cells| cells.text())?,
            );
        }
        lanes.sort();
        lanes.dedup();
        Ok(lanes)
    }

    fn queue_entry(&mut self, task: &TaskId) -> Result<Option<QueueEntry>> {
        self.one("queue", Query::queue_get, params![task.as_str()], rows::queue_entry)
    }

    fn events(&mut self, query: &EventQuery) -> Result<Vec<Event>> {
        let (after, limit) = (i64::try_from(query.after).unwrap_or(i64::MAX), limit(query.limit));
        let scope = [&repository(&query.scope) as &dyn ToSql, &query.scope.worktree];
        let mut values: Vec<&dyn ToSql> = vec![&after, scope[0], scope[1], &limit];
        let text = match (&query.entity, query.newest) {
            (None, false) => Query::event_list,
            (None, true) => Query::event_list_newest,
            (Some(_), false) => Query::event_of_entity,
            (Some(_), true) => Query::event_of_entity_newest,
        };
        if let Some(entity) = &query.entity {
            values.push(entity);
        }
        let mut events = self.list("events", text, &values, rows::event)?;
        if query.newest {
            events.reverse();
        }
        Ok(events)
    }

    fn apply(&mut self, change: &Change) -> Result<()> {
        self.put_down(&change.writes)?;
        write::append(&mut |query, values| self.change(query, values).map(drop), &change.event)
    }

    fn write_derived(&mut self, writes: &[Write]) -> Result<()> {
        self.put_down(writes)
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        if self.shared {
            return Ok(());
        }
        run(&self.connection, "COMMIT")?;
        self.open = false;
        self.wal.after_commit(&self.connection);
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
