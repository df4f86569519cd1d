//! What follows when a task ends or is given back: dependents, the queue, the workflow.

use serde_json::json;

use super::{
    AttemptResult, DependencyKind, Task, TaskState, TaskStatus, Workflow, WorkflowStatus, place_in_queue, refresh_room,
};
use crate::{
    change::Write,
    lease::Lease,
    refusal::Verdict,
    time::Timestamp,
    verbs::Work,
};

/// Writes that end a hold: the lease goes, its attempt is closed.
pub(crate) fn free(
    work: &mut Work<'_>,
    lease: &Lease,
    result: AttemptResult,
    reason: Option<String>,
    cost: Option<f64>,
) -> Verdict<Vec<Write>> {
    let mut writes = vec![Write::DropLease(lease.task.clone())];
    let attempts = work.tx.attempts(&lease.task)?;
    if let Some(mut attempt) = attempts.into_iter().find(|attempt| attempt.fence == lease.fence.number) {
        attempt.ended = Some(work.now.wall);
        attempt.result = Some(result);
        attempt.reason = reason;
        attempt.cost = cost;
        writes.push(Write::Attempt(attempt));
    }
    Ok(writes)
}

/// Carries through what a task's new status means for everything that hangs on it. The status is already written.
pub(crate) fn settle(work: &mut Work<'_>, task: &Task) -> Verdict<()> {
    let mut ended = vec![task.clone()];
    let mut touched = vec![task.workflow.clone()];
    while let Some(task) = ended.pop() {
        for dependency in work.tx.dependents(&task.id)? {
            let Some(mut waiting) = work.tx.task(&dependency.task)? else { continue };
            if !waiting.state.status.open() {
                continue;
            }
            let released = match dependency.kind {
                DependencyKind::Informs => false,
                DependencyKind::Blocks => task.state.status.releases(),
                DependencyKind::OnFailure => task.state.status == TaskStatus::Failed,
            };
            if released {
                waiting.state.open_blockers = waiting.state.open_blockers.saturating_sub(1);
                work.tx.derive(&[Write::TaskState(waiting.id.clone(), waiting.state.clone())])?;
                if waiting.state.open_blockers == 0 {
                    let workflow = work.require_workflow(&waiting.workflow)?;
                    place_in_queue(work, &waiting, &workflow)?;
                }
            } else if dependency.kind == DependencyKind::OnFailure
                && !task.state.status.open()
                && !waiting.state.status.held()
            {
                waiting.state =
                    TaskState { status: TaskStatus::Skipped, updated: work.now.wall, ..waiting.state };
                let reason = format!("{} did not fail", task.id);
                work.by_itself(
                    waiting.id.as_str(),
                    "task.skipped",
                    json!({ "reason": reason }),
                    vec![
                        Write::TaskState(waiting.id.clone(), waiting.state.clone()),
                        Write::DropQueue(waiting.id.clone()),
                    ],
                )?;
                touched.push(waiting.workflow.clone());
                ended.push(waiting);
            }
        }
    }
    touched.sort();
    touched.dedup();
    for id in touched {
        let mut workflow = work.require_workflow(&id)?;
        refresh_room(work, &mut workflow)?;
        conclude(work, workflow)?;
    }
    Ok(())
}

/// Ends a running workflow when its last task has ended, or when nothing can move because one failed.
fn conclude(work: &mut Work<'_>, mut workflow: Workflow) -> Verdict<()> {
    use TaskStatus::{Failed, Leased, Pending, Running, Waiting};
    if workflow.status != WorkflowStatus::Running {
        return Ok(());
    }
    let id = workflow.id.clone();
    let open = work.tx.has_task(&id, &[Leased, Running, Waiting, Pending])?;
    let failed = (!open || !work.tx.has_task(&id, &[Leased, Running, Waiting])?) && work.tx.has_task(&id, &[Failed])?;
    let (status, verb) = match (open, failed) {
        (false, false) => (WorkflowStatus::Completed, "flow.completed"),
        (false, true) => (WorkflowStatus::Failed, "flow.failed"),
        (true, true) if !work.tx.has_unblocked(&id)? => (WorkflowStatus::Failed, "flow.failed"),
        (true, _) => return Ok(()),
    };
    workflow.status = status;
    workflow.updated = work.now.wall;
    work.by_itself(id.as_str(), verb, json!({ "title": workflow.title }), vec![Write::Workflow(workflow)])
}

/// When a task that failed `attempts` times may be tried again.
pub(crate) fn retry_at(work: &Work<'_>, attempts: u32) -> Timestamp {
    let doubled = work.policy.backoff.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    work.now.wall.plus(doubled.min(work.policy.backoff_max))
}
