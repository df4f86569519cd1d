//! Puts rows down, one statement each.

use rusqlite::{Connection, ToSql, params};
use serde::Serialize;
use toft_core::{
    change::{Change, Event, QueueEntry, Receipt, Write},
    checkpoint::Checkpoint,
    flow::{Attempt, Dependency, Task, TaskState, Workflow},
    gate::Gate,
    id::TaskId,
    lease::Lease,
    message::Delivery,
    repository::Place,
    store::{Result, StoreError},
    time::millis,
};

use super::{
    failed,
    rows::{TaskBody, holder_word},
    sql,
};

fn execute(connection: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<usize> {
    let doing = failed("write a row");
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute(values)).map_err(doing)
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::Failed { doing: "write JSON".into(), cause: error.to_string() })
}

/// A unit variant's word, as serde writes it.
fn word(value: &impl Serialize) -> Result<String> {
    Ok(json(value)?.trim_matches('"').to_owned())
}

fn repository(place: &Place) -> Option<&str> {
    place.repository.as_ref().map(|id| id.as_str())
}

pub(super) fn apply(connection: &Connection, change: &Change) -> Result<()> {
    for write in &change.writes {
        put(connection, write)?;
    }
    let Event { seq: _, at, actor, place, entity, verb, detail, op, part } = &change.event;
    execute(
        connection,
        sql!("event_append"),
        params![at.0, actor, repository(place), place.worktree, entity, verb, json(detail)?, op.as_str(), part],
    )?;
    Ok(())
}

pub(super) fn put(connection: &Connection, write: &Write) -> Result<()> {
    match write {
        Write::Repository(row) => execute(connection, sql!("repository_put"), params![row.id.as_str(), json(row)?]),
        Write::Worktree(row) => {
            execute(connection, sql!("worktree_put"), params![row.repository.as_str(), row.name, json(row)?])
        }
        Write::Workflow(row) => workflow(connection, row),
        Write::Task(row) => task(connection, row),
        Write::TaskState(id, state) => task_state(connection, id, state),
        Write::Dependency(row) => dependency(connection, sql!("dependency_put"), row),
        Write::DropDependency(row) => dependency(connection, sql!("dependency_drop"), row),
        Write::Lease(row) => lease(connection, row),
        Write::RenewLease(row) => renew_lease(connection, row),
        Write::DropLease(task) => execute(connection, sql!("lease_drop"), params![task.as_str()]),
        Write::Attempt(row) => attempt(connection, row),
        Write::Checkpoint(row) => checkpoint(connection, row),
        Write::State(task, key, value) => {
            execute(connection, sql!("state_put"), params![task.as_str(), key, json(value)?])
        }
        Write::Agent(row) => execute(connection, sql!("agent_put"), params![row.id.as_str(), row.name, json(row)?]),
        Write::Message(row) => execute(connection, sql!("message_put"), params![row.id.as_str(), json(row)?]),
        Write::Delivery(row) => delivery(connection, row),
        Write::Gate(row) => gate(connection, row),
        Write::Template(row) => execute(connection, sql!("template_put"), params![row.name, row.version, json(row)?]),
        Write::Queue(QueueEntry { task, lane, rank }) => {
            execute(connection, sql!("queue_put"), params![task.as_str(), lane, rank])
        }
        Write::DropQueue(task) => execute(connection, sql!("queue_drop"), params![task.as_str()]),
        Write::Receipt(Receipt { op, actor, verb, outcome, at }) => {
            execute(connection, sql!("receipt_put"), params![op.as_str(), actor, verb, json(outcome)?, at.0])
        }
    }
    .map(drop)
}

fn workflow(connection: &Connection, row: &Workflow) -> Result<usize> {
    execute(
        connection,
        sql!("workflow_put"),
        params![
            row.id.as_str(),
            repository(&row.place),
            row.place.worktree,
            row.status.as_str(),
            row.lane_open(),
            row.created.0,
            json(row)?
        ],
    )
}

fn task(connection: &Connection, row: &Task) -> Result<usize> {
    let Task {
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
    } = row.clone();
    let body = json(&TaskBody { name, brief, priority, labels, requires, paths, parallel_group, plan, max_attempts })?;
    execute(
        connection,
        sql!("task_put"),
        params![id.as_str(), workflow.as_str(), order, repository(&place), place.worktree, created.0, body],
    )?;
    let TaskState { status, attempt, fence, open_blockers, unblocks, not_before, outcome, updated } = &state;
    let outcome = outcome.as_ref().map(json).transpose()?;
    execute(
        connection,
        sql!("task_state_put"),
        params![
            id.as_str(),
            workflow.as_str(),
            status.as_str(),
            attempt,
            *fence as i64,
            open_blockers,
            unblocks,
            not_before.map(|at| at.0),
            outcome,
            updated.0
        ],
    )
}

fn task_state(connection: &Connection, id: &TaskId, state: &TaskState) -> Result<usize> {
    let TaskState { status, attempt, fence, open_blockers, unblocks, not_before, outcome, updated } = state;
    let outcome = outcome.as_ref().map(json).transpose()?;
    execute(
        connection,
        sql!("task_state_set"),
        params![
            id.as_str(),
            status.as_str(),
            attempt,
            *fence as i64,
            open_blockers,
            unblocks,
            not_before.map(|at| at.0),
            outcome,
            updated.0
        ],
    )
}

fn dependency(connection: &Connection, sql: &str, row: &Dependency) -> Result<usize> {
    let Dependency { task, on, kind } = row;
    execute(connection, sql, params![task.as_str(), on.as_str(), kind.as_str()])
}

fn lease(connection: &Connection, row: &Lease) -> Result<usize> {
    let Lease { task, workflow, repository, agent, fence, acquired, ttl, cap, renewed, renewed_tick, check_at, holder } =
        row;
    execute(
        connection,
        sql!("lease_put"),
        params![
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
            holder.as_ref().map(holder_word)
        ],
    )
}

fn renew_lease(connection: &Connection, row: &Lease) -> Result<usize> {
    let Lease { task, fence, ttl, cap, renewed, renewed_tick, check_at, .. } = row;
    let values = params![
        task.as_str(),
        fence.id.as_str(),
        millis(*ttl),
        millis(*cap),
        renewed.0,
        renewed_tick.ms,
        renewed_tick.epoch,
        check_at
    ];
    execute(connection, sql!("lease_renew"), values)
}

fn attempt(connection: &Connection, row: &Attempt) -> Result<usize> {
    let Attempt { task, fence, lease, agent, place, started, ended, result, reason, cost } = row;
    let result = result.as_ref().map(word).transpose()?;
    execute(
        connection,
        sql!("attempt_put"),
        params![
            task.as_str(),
            *fence as i64,
            lease.as_str(),
            agent.as_str(),
            repository(place),
            place.worktree,
            started.0,
            ended.map(|at| at.0),
            result,
            reason,
            cost
        ],
    )
}

fn checkpoint(connection: &Connection, row: &Checkpoint) -> Result<usize> {
    execute(connection, sql!("checkpoint_put"), params![row.task.as_str(), row.seq as i64, json(row)?])
}

fn delivery(connection: &Connection, row: &Delivery) -> Result<usize> {
    let Delivery { message, recipient, state, rank } = row;
    execute(connection, sql!("delivery_put"), params![recipient, rank, message.as_str(), word(state)?])
}

fn gate(connection: &Connection, row: &Gate) -> Result<usize> {
    execute(
        connection,
        sql!("gate_put"),
        params![
            row.id.as_str(),
            row.task.as_str(),
            repository(&row.place),
            row.place.worktree,
            row.created.0,
            row.asks(),
            json(row)?
        ],
    )
}
