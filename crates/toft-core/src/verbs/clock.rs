//! The wall clock went back: whatever was timed on the clock that was ahead is timed again.
//!
//! Leases need none of this: they expire on monotonic clocks. Retries, timers and the next look at a lease are moments on
//! the wall. An event from the future is the sign: events are in commit order, so the first write after the step sees it.

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

/// Clocks that are kept in step may differ by this much.
const TOLERANCE_MS: i64 = 2_000;

/// When the newest event was written, if the wall clock has not come so far yet.
pub(super) fn stepped_back(work: &mut VerbContext<'_>) -> VerbResult<Option<Timestamp>> {
    let now = work.now.wall;
    Ok(work.tx.newest_event_at()?.filter(|at| at.0 > now.0 + TOLERANCE_MS))
}

/// Times everything again that was timed on a clock that was ahead of this one.
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

/// Every task that waits for its time to come: in the queue, or in a workflow that was paused.
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

/// A timer that was set in the future begins now, for the time it was set for.
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
