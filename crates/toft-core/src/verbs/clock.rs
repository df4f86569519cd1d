//! Handles a wall clock that was set back: times that were computed on the wrong clock are computed again.
//!
//! Leases do not need this: they expire on monotonic clocks. Retries, timers and the next check of a lease are
//! wall-clock times. An event from the future shows the step: events are in commit order, so the first write after the
//! step sees it.

use serde_json::json;

use super::VerbContext;
use crate::{
    change::Write,
    flow::{Task, TaskStatus, WorkflowStatus, place_in_queue},
    gate::GateKind,
    ready,
    refusal::VerbResult,
    repository::Scope,
    store::{LeasesOf, QueueKey, QueueScan, StoreTx, TaskQuery, WorkflowQuery},
    time::Timestamp,
};

/// Synchronized clocks may differ by this much.
const TOLERANCE_MS: i64 = 2_000;

/// The time of the newest event, if it is later than the wall clock.
pub(super) fn stepped_back(work: &mut VerbContext<'_>) -> VerbResult<Option<Timestamp>> {
    let now = work.now.wall;
    Ok(work.tx.newest_event_at()?.filter(|at| at.0 > now.0 + TOLERANCE_MS))
}

/// Computes every time again that was set by a clock that was ahead of this one.
pub(super) fn mend_if_stepped_back(work: &mut VerbContext<'_>) -> VerbResult<()> {
    let now = work.now.wall;
    let Some(newest) = stepped_back(work)? else { return Ok(()) };
    // If the verb refuses, the sweep that is run again alone does this too.
    work.swept += 1;
    let mut timers = 0u64;
    for task in waiting(work.tx)? {
        timers += u64::from(mend_timer(work, task)?);
    }
    let mut leases = 0u64;
    for mut lease in work.tx.leases(&LeasesOf::Repository(None))? {
        if lease.check_at > now.plus(lease.ttl).0 {
            lease.check_at = now.0;
            work.tx.write_derived(&[Write::RenewLease(lease)])?;
            leases += 1;
        }
    }
    let detail = json!({ "by_ms": newest.0 - now.0, "timers": timers, "leases": leases });
    work.record_system("clock", "clock.stepped_back", detail, Vec::new())
}

/// Every task that waits for a time: in the queue, or in a paused workflow.
fn waiting(tx: &mut dyn StoreTx) -> VerbResult<Vec<Task>> {
    let mut waiting = Vec::new();
    let paused = WorkflowQuery { statuses: vec![WorkflowStatus::Paused], ..WorkflowQuery::default() };
    for workflow in tx.workflows(&paused)? {
        let statuses = vec![TaskStatus::Pending, TaskStatus::Waiting];
        waiting.extend(tx.tasks(&TaskQuery { workflow: Some(workflow.id), statuses, ..TaskQuery::default() })?);
    }
    for home in ready::homes(tx, &Scope::default())? {
        let lanes = [ready::timers(&home)];
        let scan = QueueScan { lanes: &lanes, key: &QueueKey::All, after: "", upto: None, limit: 0, taking: false };
        waiting.extend(tx.queued(&scan)?.into_iter().map(|(_, task)| task));
    }
    Ok(waiting)
}

/// Restarts a timer that was set in the future, with its original duration.
fn mend_timer(work: &mut VerbContext<'_>, mut task: Task) -> VerbResult<bool> {
    let now = work.now.wall;
    let again = |set: Timestamp, until: Timestamp| Timestamp(now.0 + (until.0 - set.0).max(0));
    let ahead = |set: Timestamp| set.0 > now.0 + TOLERANCE_MS;
    let mut mended = false;
    if let Some(until) = task.state.not_before
        && ahead(task.state.updated)
    {
        task.state.not_before = Some(again(task.state.updated, until));
        task.state.updated = now;
        work.tx.write_derived(&[Write::TaskState(task.id.clone(), task.state.clone())])?;
        mended = true;
    }
    for mut gate in work.tx.gates(&task.id)? {
        if let GateKind::Timer { until } = gate.kind
            && ahead(gate.created)
        {
            gate.kind = GateKind::Timer { until: again(gate.created, until) };
            gate.created = now;
            work.tx.write_derived(&[Write::Gate(gate)])?;
            mended = true;
        }
    }
    if mended {
        let workflow = work.require_workflow(&task.workflow)?;
        place_in_queue(work, &task, &workflow)?;
    }
    Ok(mended)
}
