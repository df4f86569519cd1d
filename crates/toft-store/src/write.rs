//! Writes rows, one statement each, for every engine.

use serde::Serialize;
use toft_core::{
    change::{Event, QueueEntry, Receipt, Write},
    checkpoint::Checkpoint,
    flow::{Attempt, Dependency, IssueState, Task, TaskState, Workflow},
    gate::Gate,
    id::TaskId,
    lease::Lease,
    message::Delivery,
    repository::Place,
    retention::RetentionKind,
    store::{Result, StoreError},
    time::{Tick, Timestamp, millis},
    workspace::Workspace,
};

use crate::{
    query::Query,
    rows::{OUTCOME, REPORT, TASK, attempt_key, holder_word},
    unknown::Unknown,
    value::{Value, values},
};

/// Runs one statement.
pub(crate) type Execute<'e> = dyn FnMut(Query, &[Value<'_>]) -> Result<()> + 'e;

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::Failed { doing: "write JSON".into(), cause: error.to_string() })
}

/// The name of a unit variant, as serde writes it.
fn word(value: &impl Serialize) -> Result<String> {
    Ok(json(value)?.trim_matches('"').to_owned())
}

fn repository(place: &Place) -> Option<&str> {
    place.repository.as_ref().map(|id| id.as_str())
}

pub(crate) fn append(execute: &mut Execute<'_>, event: &Event) -> Result<()> {
    let Event { seq: _, at, actor, place, entity, verb, detail, op, part } = event;
    execute(
        Query::event_append,
        &values![
            at.0,
            actor,
            repository(place),
            place.worktree.as_ref(),
            entity,
            verb,
            json(detail)?,
            op.as_str(),
            *part
        ],
    )
}

pub(crate) fn put(execute: &mut Execute<'_>, unknown: &Unknown, write: &Write) -> Result<()> {
    match write {
        Write::Repository(row) => execute(Query::repository_put, &values![row.id.as_str(), unknown.body(row)?]),
        Write::Worktree(row) => {
            execute(Query::worktree_put, &values![row.repository.as_str(), row.name, unknown.body(row)?])
        }
        Write::Workflow(row) => workflow(execute, unknown, row),
        Write::Task(row) => task(execute, unknown, row),
        Write::TaskState(id, state) => task_state(execute, unknown, id, state),
        Write::Dependency(row) => dependency(execute, Query::dependency_put, row),
        Write::DropDependency(row) => dependency(execute, Query::dependency_drop, row),
        Write::Lease(row) => lease(execute, row),
        Write::RenewLease(row) => renew_lease(execute, row),
        Write::DropLease(task) => execute(Query::lease_drop, &values![task.as_str()]),
        Write::Attempt(row) => attempt(execute, unknown, row),
        Write::Checkpoint(row) => checkpoint(execute, unknown, row),
        Write::State(task, key, value) => execute(Query::state_put, &values![task.as_str(), key, json(value)?]),
        Write::Agent(row) => execute(Query::agent_put, &values![row.id.as_str(), row.name, unknown.body(row)?]),
        Write::Message(row) => execute(Query::message_put, &values![row.id.as_str(), unknown.body(row)?]),
        Write::Delivery(row) => delivery(execute, row),
        Write::Gate(row) => gate(execute, unknown, row),
        Write::Workspace(row) => workspace(execute, unknown, row),
        Write::Landing(row) => {
            let (id, repository) = (row.id.as_str(), row.repository.as_str());
            execute(Query::landing_put, &values![id, repository, row.created.0, row.state.live(), unknown.body(row)?])
        }
        Write::Verdict(row) => {
            let (key, repository) = (row.key.as_str(), row.repository.as_str());
            execute(Query::verdict_put, &values![key, repository, row.is_flaky(), unknown.body(row)?])
        }
        Write::Token(row) => execute(Query::token_put, &values![row.digest, row.name, unknown.body(row)?]),
        Write::Template(row) => execute(Query::template_put, &values![row.name, row.version, unknown.body(row)?]),
        Write::Queue(row) => queue_entry(execute, row),
        Write::DropQueue(task) => execute(Query::queue_drop, &values![task.as_str()]),
        Write::Receipt(Receipt { op, actor, verb, request, outcome, at }) => {
            execute(Query::receipt_put, &values![op.as_str(), actor, verb, request, json(outcome)?, at.0])
        }
    }
}

fn queue_entry(execute: &mut Execute<'_>, row: &QueueEntry) -> Result<()> {
    let QueueEntry { task, lane, rank, workflow, worktree, labels } = row;
    let labels = if labels.is_empty() { None } else { Some(json(labels)?) };
    execute(Query::queue_put, &values![task.as_str(), lane, rank, workflow.as_str(), worktree, labels])
}

/// Statements that delete a batch, each with its values; the row count of the last one is returned.
pub(crate) fn forget(
    what: RetentionKind,
    before: Timestamp,
    now: Timestamp,
    limit: usize,
) -> Vec<(Query, Vec<Value<'static>>)> {
    let limit = Value::Int(i64::try_from(limit).ok());
    let (at, text) = (Value::Int(Some(before.0)), Value::Text(Some(before.to_string().into())));
    let both = |query, since: &Value<'static>| (query, vec![since.clone(), limit.clone()]);
    match what {
        RetentionKind::Events => vec![(Query::event_forget, vec![at, limit, Value::Int(Some(now.0))])],
        RetentionKind::Messages => vec![both(Query::delivery_forget, &text), both(Query::message_forget, &text)],
        RetentionKind::Attempts => vec![both(Query::attempt_forget, &at)],
        RetentionKind::Checkpoints => vec![both(Query::checkpoint_forget, &text)],
        // Kept apart from rows.
        RetentionKind::Blobs => Vec::new(),
        RetentionKind::Workspaces => vec![both(Query::workspace_forget, &text)],
        RetentionKind::Agents => vec![both(Query::agent_inbox_forget, &text), both(Query::agent_forget, &text)],
        RetentionKind::Receipts => vec![both(Query::receipt_forget, &at)],
    }
}

fn workflow(execute: &mut Execute<'_>, unknown: &Unknown, row: &Workflow) -> Result<()> {
    execute(
        Query::workflow_put,
        &values![
            row.id.as_str(),
            repository(&row.place),
            row.place.worktree,
            row.status.as_str(),
            row.lane_open(),
            row.created.0,
            unknown.body(row)?,
            row.issue(),
            row.issue_state().map(IssueState::as_str),
            row.ledger_pending()
        ],
    )
}

fn task(execute: &mut Execute<'_>, unknown: &Unknown, row: &Task) -> Result<()> {
    let Task { id, workflow, order, spec, place, created, state } = row;
    let body = unknown.merged(TASK, id.to_string(), spec)?;
    execute(
        Query::task_put,
        &values![id.as_str(), workflow.as_str(), order, repository(place), place.worktree, created.0, body],
    )?;
    state_columns(id, state, unknown, |columns| {
        execute(Query::task_state_put, &[&values![id.as_str(), workflow.as_str()], columns].concat())
    })
}

/// The state of a task, also if it is not there yet.
#[cfg(feature = "postgres")]
pub(crate) fn whole_task_state(execute: &mut Execute<'_>, unknown: &Unknown, row: &Task) -> Result<()> {
    let Task { id, workflow, state, .. } = row;
    state_columns(id, state, unknown, |columns| {
        execute(Query::task_state_put, &[&values![id.as_str(), workflow.as_str()], columns].concat())
    })
}

fn task_state(execute: &mut Execute<'_>, unknown: &Unknown, id: &TaskId, state: &TaskState) -> Result<()> {
    state_columns(id, state, unknown, |columns| {
        execute(Query::task_state_set, &[&values![id.as_str()], columns].concat())
    })
}

/// The columns of a task's state, in order.
fn state_columns(
    id: &TaskId,
    state: &TaskState,
    unknown: &Unknown,
    put: impl FnOnce(&[Value<'_>]) -> Result<()>,
) -> Result<()> {
    let TaskState { status, attempt, fence, open_blockers, unblocks, not_before, outcome, updated } = state;
    let outcome = outcome.as_ref().map(|outcome| unknown.merged(OUTCOME, id.to_string(), outcome)).transpose()?;
    put(&values![
        status.as_str(),
        attempt,
        fence,
        open_blockers,
        unblocks,
        not_before.map(|at| at.0),
        outcome,
        updated.0
    ])
}

fn dependency(execute: &mut Execute<'_>, query: Query, row: &Dependency) -> Result<()> {
    let Dependency { task, on, kind } = row;
    execute(query, &values![task.as_str(), on.as_str(), kind.as_str()])
}

fn lease(execute: &mut Execute<'_>, row: &Lease) -> Result<()> {
    let Lease {
        task,
        workflow,
        repository,
        agent,
        fence,
        acquired,
        ttl,
        cap,
        renewed,
        renewed_tick,
        seen,
        check_at,
        holder,
    } = row;
    execute(
        Query::lease_put,
        &values![
            task.as_str(),
            workflow.as_str(),
            repository.as_ref().map(|id| id.as_str()),
            agent.as_str(),
            fence.number as i64,
            fence.id.as_str(),
            acquired.0,
            millis(*ttl),
            millis(*cap),
            renewed.0,
            renewed_tick.epoch,
            renewed_tick.ms,
            check_at,
            holder.as_ref().map(holder_word),
            watchers(seen)?
        ],
    )
}

/// The machines that watch a lease, as JSON; absent if there are none, which is almost always.
fn watchers(seen: &[Tick]) -> Result<Option<String>> {
    let pairs: Vec<(&str, i64)> = seen.iter().map(|tick| (tick.epoch.as_str(), tick.ms)).collect();
    if pairs.is_empty() { Ok(None) } else { json(&pairs).map(Some) }
}

fn renew_lease(execute: &mut Execute<'_>, row: &Lease) -> Result<()> {
    let Lease { task, fence, ttl, cap, renewed, renewed_tick, seen, check_at, .. } = row;
    execute(
        Query::lease_renew,
        &values![
            task.as_str(),
            fence.id.as_str(),
            millis(*ttl),
            millis(*cap),
            renewed.0,
            renewed_tick.ms,
            renewed_tick.epoch,
            check_at,
            watchers(seen)?
        ],
    )
}

fn attempt(execute: &mut Execute<'_>, unknown: &Unknown, row: &Attempt) -> Result<()> {
    let Attempt { task, fence, lease, agent, place, started, ended, result, reason, cost, report } = row;
    let key = || attempt_key(task, *fence);
    let report = report.as_ref().map(|report| unknown.merged(REPORT, key(), report)).transpose()?;
    let result = result.as_ref().map(word).transpose()?;
    execute(
        Query::attempt_put,
        &values![
            task.as_str(),
            fence,
            lease.as_str(),
            agent.as_str(),
            repository(place),
            place.worktree,
            started.0,
            ended.map(|at| at.0),
            result,
            reason,
            cost,
            report
        ],
    )
}

fn checkpoint(execute: &mut Execute<'_>, unknown: &Unknown, row: &Checkpoint) -> Result<()> {
    execute(Query::checkpoint_put, &values![row.task.as_str(), row.seq as i64, unknown.body(row)?])
}

fn delivery(execute: &mut Execute<'_>, row: &Delivery) -> Result<()> {
    let Delivery { message, recipient, state, rank, read_at } = row;
    let read_at = read_at.map(|at| at.0);
    execute(Query::delivery_put, &values![recipient, rank, message.as_str(), word(state)?, read_at])
}

fn workspace(execute: &mut Execute<'_>, unknown: &Unknown, row: &Workspace) -> Result<()> {
    let (id, repository) = (row.id.as_str(), row.repository.as_str());
    if row.is_unreadable() {
        let cause = row.reason.clone().unwrap_or_default();
        return Err(StoreError::Failed { doing: format!("write over the row of workspace {id}"), cause });
    }
    execute(Query::workspace_put, &values![id, repository, row.created.0, row.state.live(), unknown.body(row)?])
}

fn gate(execute: &mut Execute<'_>, unknown: &Unknown, row: &Gate) -> Result<()> {
    execute(
        Query::gate_put,
        &values![
            row.id.as_str(),
            row.task.as_str(),
            repository(&row.place),
            row.place.worktree,
            row.created.0,
            row.asks(),
            unknown.body(row)?
        ],
    )
}
