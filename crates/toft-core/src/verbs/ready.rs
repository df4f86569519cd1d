//! Ready: what can start now, and why the rest cannot.

use serde::{Deserialize, Serialize};

use super::{Verb, Work, sweep};
use crate::{
    flow::{Task, TaskStatus},
    ready::{self, Queue, Reason},
    refusal::Verdict,
    repository::Scope,
    store::{Access, TaskQuery},
};

/// What can start now, best first.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// From where.
    pub scope: Scope,
    /// Only tasks with all of these labels.
    pub labels: Vec<String>,
    /// At most so many.
    pub limit: usize,
    /// Also say why open tasks cannot start.
    pub explain: bool,
}

/// What can start, and what cannot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Ready, best first.
    pub ready: Vec<Task>,
    /// There are more.
    pub more: bool,
    /// Open tasks that cannot start, if that was asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_ready: Vec<NotReady>,
}

/// A task and why it cannot start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotReady {
    /// The task.
    pub task: Task,
    /// Everything that holds it back.
    pub reasons: Vec<Reason>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "ready";
    const ACCESS: Access = Access::Read;

    fn run(self, work: &mut Work<'_>) -> Verdict<Outcome> {
        let mut freed = self.freed(work)?;
        let mut queue = Queue::open(work.tx, &self.scope, work.now.wall, self.limit.clamp(1, 64) + 1)?;
        let mut ready = Vec::new();
        let mut head = queue.next(work.tx)?;
        while ready.len() <= self.limit {
            let take_freed = match (&head, freed.last()) {
                (Some((rank, _)), Some((other, _))) => other < rank,
                (None, Some(_)) => true,
                (_, None) => false,
            };
            let task = if take_freed {
                freed.pop().map(|(_, task)| task)
            } else {
                let next = queue.next(work.tx)?;
                std::mem::replace(&mut head, next).map(|(_, task)| task)
            };
            let Some(task) = task else { break };
            if self.fits(&task) {
                ready.push(task);
            }
        }
        let more = ready.len() > self.limit;
        ready.truncate(self.limit);
        let not_ready = if self.explain { self.explain(work)? } else { Vec::new() };
        Ok(Outcome { ready, more, not_ready })
    }
}

impl Request {
    fn fits(&self, task: &Task) -> bool {
        self.scope.covers(&task.place) && self.labels.iter().all(|label| task.labels.contains(label))
    }

    /// Tasks whose hold is lost and which the next claim would take back; worst first.
    fn freed(&self, work: &mut Work<'_>) -> Verdict<Vec<(String, Task)>> {
        let mut freed = Vec::new();
        for (lease, _) in sweep::look(work, true)?.lost {
            if let Some(task) = free_task(work, &lease.task)? {
                freed.push((ready::rank(&task), task));
            }
        }
        freed.sort_by(|a, b| b.0.cmp(&a.0));
        Ok(freed)
    }

    fn explain(&self, work: &mut Work<'_>) -> Verdict<Vec<NotReady>> {
        let open = [TaskStatus::Pending, TaskStatus::Leased, TaskStatus::Running, TaskStatus::Waiting];
        let query = TaskQuery { scope: self.scope.clone(), statuses: open.to_vec(), ..TaskQuery::default() };
        let mut not_ready = Vec::new();
        for task in work.tx.tasks(&query)? {
            if not_ready.len() >= self.limit {
                break;
            }
            if !self.fits(&task) {
                continue;
            }
            let reasons = why(work, &task)?;
            if !reasons.is_empty() {
                not_ready.push(NotReady { task, reasons });
            }
        }
        Ok(not_ready)
    }
}

/// The task as it would be once its lost hold is taken back, if it could start then.
fn free_task(work: &mut Work<'_>, id: &crate::id::TaskId) -> Verdict<Option<Task>> {
    let Some(mut task) = work.tx.task(id)? else { return Ok(None) };
    task.state = sweep::after_loss(&task, work.now.wall);
    let mut workflow = work.require_workflow(&task.workflow)?;
    workflow.full = false;
    let dependencies = work.tx.dependencies(id)?;
    let reasons = ready::reasons(&task, &workflow, &dependencies, &[], work.now.wall);
    Ok(reasons.is_empty().then_some(task))
}

/// Why a task cannot start now; empty if it can.
pub(super) fn why(work: &mut Work<'_>, task: &Task) -> Verdict<Vec<Reason>> {
    let workflow = work.require_workflow(&task.workflow)?;
    let dependencies = work.tx.dependencies(&task.id)?;
    let gates = work.tx.gates(&task.id)?;
    Ok(ready::reasons(task, &workflow, &dependencies, &gates, work.now.wall))
}
