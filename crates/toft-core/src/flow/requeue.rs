//! Keeps the queue consistent with the rows from which it is derived.

use super::{TaskStatus, Workflow};
use crate::{
    change::Write,
    flow::Task,
    ready,
    refusal::VerbResult,
    store::{LeasesOf, TaskQuery},
    verbs::VerbContext,
};

/// Writes the current queue entry of a task, or removes it from the queue.
pub(crate) fn place_in_queue(work: &mut VerbContext<'_>, task: &Task, workflow: &Workflow) -> VerbResult<()> {
    let gates = match task.state.status {
        TaskStatus::Waiting => work.tx.gates(&task.id)?,
        _ => Vec::new(),
    };
    let write = match ready::entry(task, workflow, &gates, work.now.wall) {
        Some(entry) => Write::Queue(entry),
        None => Write::DropQueue(task.id.clone()),
    };
    Ok(work.tx.write_derived(&[write])?)
}

/// Updates the queue entry of every open task of a workflow, after a change to the workflow itself.
pub(crate) fn requeue(work: &mut VerbContext<'_>, workflow: &Workflow) -> VerbResult<()> {
    let query = TaskQuery {
        workflow: Some(workflow.id.clone()),
        statuses: vec![TaskStatus::Pending, TaskStatus::Waiting],
        ..TaskQuery::default()
    };
    for task in work.tx.tasks(&query)? {
        place_in_queue(work, &task, workflow)?;
    }
    Ok(())
}

/// Opens or closes the lane of a limited workflow after a task was claimed or released.
pub(crate) fn refresh_room(work: &mut VerbContext<'_>, workflow: &mut Workflow) -> VerbResult<()> {
    let Some(limit) = workflow.max_parallel else { return Ok(()) };
    let held = work.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))?.len();
    let full = held >= limit as usize;
    if full != workflow.full {
        workflow.full = full;
        work.tx.write_derived(&[Write::Workflow(workflow.clone())])?;
    }
    Ok(())
}
