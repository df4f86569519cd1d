//! Consequences of ending or releasing a task: dependents, the queue, the workflow.

use serde_json::json;

use super::{
    AttemptResult, DependencyKind, Report, Task, TaskState, TaskStatus, Workflow, WorkflowStatus, place_in_queue,
    refresh_room,
};
use crate::{
    change::Write,
    id::{TaskId, WorkflowId},
    lease::Lease,
    refusal::VerbResult,
    time::Timestamp,
    verbs::VerbContext,
};

/// The writes that end a lease: its row is deleted and its attempt is closed.
pub(crate) fn end_lease(
    work: &mut VerbContext<'_>,
    lease: &Lease,
    result: AttemptResult,
    reason: Option<String>,
    seen: Option<(Option<f64>, Option<Report>)>,
) -> VerbResult<Vec<Write>> {
    let (cost, report) = seen.unwrap_or_default();
    let mut writes = vec![Write::DropLease(lease.task.clone())];
    let attempts = work.tx.attempts(&lease.task)?;
    if let Some(mut attempt) = attempts.into_iter().find(|attempt| attempt.fence == lease.fence.number) {
        attempt.ended = Some(work.now.wall);
        attempt.result = Some(result);
        attempt.reason = reason;
        attempt.cost = cost;
        attempt.report = report;
        writes.push(Write::Attempt(attempt));
    }
    Ok(writes)
}

/// Updates dependents, the queue and the workflow after a status change from `from`. The task row is already written.
/// Returns the updated workflow.
pub(crate) fn propagate(work: &mut VerbContext<'_>, task: &Task, from: TaskStatus) -> VerbResult<Workflow> {
    let mut moved = vec![(task.clone(), from)];
    if let Some(skipped) = skip_if_pointless(work, task)? {
        moved.push((skipped, task.state.status));
    }
    let mut touched = Vec::new();
    while let Some((task, from)) = moved.pop() {
        let status = task.state.status;
        if status.open() {
            continue;
        }
        for dependency in work.tx.dependents(&task.id)? {
            let kind = dependency.kind;
            let released = kind.holds_back(from) && !kind.holds_back(status);
            let pointless = kind == DependencyKind::OnFailure && ended_well(status, from);
            if !released && !pointless {
                continue;
            }
            let Some(mut waiting) = work.tx.task(&dependency.task)?.filter(|task| task.state.status.open()) else {
                continue;
            };
            if released {
                waiting.state.open_blockers = waiting.state.open_blockers.saturating_sub(1);
                work.tx.write_derived(&[Write::TaskState(waiting.id.clone(), waiting.state.clone())])?;
                if waiting.state.open_blockers == 0 {
                    let workflow = work.require_workflow(&waiting.workflow)?;
                    place_in_queue(work, &waiting, &workflow)?;
                }
            }
            if pointless && let Some(skipped) = skip(work, &waiting, &task.id)? {
                touched.push(skipped.workflow.clone());
                moved.push((skipped, waiting.state.status));
            }
        }
    }
    touched.sort();
    touched.dedup();
    for id in touched.into_iter().filter(|id| *id != task.workflow) {
        conclude(work, &id)?;
    }
    conclude(work, &task.workflow)
}

/// Whether a task whose status was `from` ended without having failed.
fn ended_well(status: TaskStatus, from: TaskStatus) -> bool {
    match status {
        TaskStatus::Done | TaskStatus::Cancelled => true,
        TaskStatus::Skipped => from != TaskStatus::Failed,
        _ => false,
    }
}

/// Skips on-failure tasks whose target has already ended without failing.
pub(crate) fn skip_pointless(work: &mut VerbContext<'_>, tasks: &[TaskId]) -> VerbResult<()> {
    for id in tasks {
        let ended = work.tx.dependencies(id)?.into_iter().find(|(dependency, status)| {
            dependency.kind == DependencyKind::OnFailure
                && status.is_some_and(|status| ended_well(status, TaskStatus::Pending))
        });
        if let (Some((dependency, _)), Some(task)) = (ended, work.tx.task(id)?)
            && let Some(skipped) = skip(work, &task, &dependency.on)?
        {
            propagate(work, &skipped, task.state.status)?;
        }
    }
    Ok(())
}

/// Skips a task that runs only if another fails, once that other has ended without failing.
fn skip_if_pointless(work: &mut VerbContext<'_>, task: &Task) -> VerbResult<Option<Task>> {
    if task.state.open_blockers == 0 {
        return Ok(None);
    }
    let ended_well = work.tx.dependencies(&task.id)?.into_iter().find(|(dependency, status)| {
        dependency.kind == DependencyKind::OnFailure && matches!(status, Some(TaskStatus::Done | TaskStatus::Cancelled))
    });
    match ended_well {
        Some((dependency, _)) => skip(work, task, &dependency.on),
        None => Ok(None),
    }
}

fn skip(work: &mut VerbContext<'_>, task: &Task, because: &TaskId) -> VerbResult<Option<Task>> {
    if !matches!(task.state.status, TaskStatus::Pending | TaskStatus::Waiting) {
        return Ok(None);
    }
    let state = TaskState { status: TaskStatus::Skipped, updated: work.now.wall, ..task.state.clone() };
    let task = Task { state, ..task.clone() };
    work.record_system(
        task.id.as_str(),
        "task.skipped",
        json!({ "reason": format!("{because} did not fail") }),
        vec![Write::TaskState(task.id.clone(), task.state.clone()), Write::DropQueue(task.id.clone())],
    )?;
    Ok(Some(task))
}

/// Ends a running workflow when its last task has ended, or when no task can continue because one failed.
pub(crate) fn conclude(work: &mut VerbContext<'_>, id: &WorkflowId) -> VerbResult<Workflow> {
    use TaskStatus::{Failed, Leased, Pending, Running, Waiting};
    let mut workflow = work.require_workflow(id)?;
    refresh_room(work, &mut workflow)?;
    if workflow.status != WorkflowStatus::Running {
        return Ok(workflow);
    }
    let counts = work.tx.progress(id)?;
    let any = |statuses: &[TaskStatus]| counts.iter().any(|(status, count)| *count > 0 && statuses.contains(status));
    let open = any(&[Leased, Running, Waiting, Pending]);
    let failed = !any(&[Leased, Running, Waiting]) && any(&[Failed]);
    let (status, verb) = match (open, failed) {
        // Everything is done, and not landed yet.
        (false, false) if workflow.unlanded > 0 => {
            ledger_changed(work, &mut workflow)?;
            return Ok(workflow);
        }
        (false, false) => (WorkflowStatus::Completed, "flow.completed"),
        (false, true) => (WorkflowStatus::Failed, "flow.failed"),
        (true, true) if !work.tx.has_unblocked(id)? => (WorkflowStatus::Failed, "flow.failed"),
        (true, _) => return Ok(workflow),
    };
    workflow.status = status;
    workflow.ended_by = (status == WorkflowStatus::Completed).then(|| work.actor.to_owned());
    workflow.ledger_updated = false;
    workflow.updated = work.now.wall;
    work.record_system(id.as_str(), verb, json!({ "title": workflow.title }), vec![Write::Workflow(workflow.clone())])?;
    Ok(workflow)
}

/// Marks the ledger of the workflow's issue for an update, because the holder of the issue changed.
pub(crate) fn ledger_changed(work: &mut VerbContext<'_>, workflow: &mut Workflow) -> VerbResult<()> {
    if workflow.issue().is_some() && workflow.ledger_updated {
        workflow.ledger_updated = false;
        work.tx.write_derived(&[Write::Workflow(workflow.clone())])?;
    }
    Ok(())
}

/// When a task that failed `attempts` times may be retried.
pub(crate) fn retry_at(work: &VerbContext<'_>, attempts: u32) -> Timestamp {
    let doubled = work.policy.backoff.saturating_mul(1 << attempts.saturating_sub(1).min(16));
    work.now.wall.plus(doubled.min(work.policy.backoff_max))
}
