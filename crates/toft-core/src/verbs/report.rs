//! Report: a runner's observations of an attempt that its agent ended itself.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext};
use crate::{
    change::Write,
    flow::{Attempt, Outcome, Report, TaskStatus, given_back, propagate},
    id::TaskId,
    lease::Fence,
    may::May,
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// Add a runner's report to an attempt. Both parts of the fence must match, so only its own runner can do this.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ReportRequest")]
pub struct Request {
    pub task: TaskId,
    /// The fence of its lease.
    pub fence: Fence,
    pub report: Report,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Verb for Request {
    type Outcome = Attempt;
    const NAME: &'static str = "report";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Attempt> {
        let found = work.tx.attempts(&self.task)?.into_iter().find(|attempt| attempt.fence() == self.fence);
        let Some(mut attempt) = found else {
            return Err(
                Refusal::NotFound { what: "attempt".into(), text: format!("{} {}", self.task, self.fence) }.into()
            );
        };
        if !work.speaks_for_agent(&attempt.agent)? {
            work.require_token(TokenRole::Admin, "the attempt is of another")?;
        }
        attempt.report = Some(self.report);
        attempt.cost = attempt.cost.or(self.cost);
        let detail =
            json!({ "fence": self.fence.number, "ending": attempt.report.as_ref().map(|report| report.ending) });
        work.record(self.task.as_str(), "task.reported", detail, vec![Write::Attempt(attempt.clone())])?;
        give_up(work, &self.task)?;
        Ok(attempt)
    }
}

/// Fails a task for good if agents released it as often as it may be attempted; otherwise it would never end.
fn give_up(work: &mut VerbContext<'_>, id: &TaskId) -> VerbResult<()> {
    let times = given_back(&work.tx.attempts(id)?);
    let Some(mut task) = work.tx.task(id)?.filter(|task| task.state.status == TaskStatus::Pending) else {
        return Ok(());
    };
    if times < task.spec.max_attempts as usize {
        return Ok(());
    }
    let summary = format!("released {times} times");
    task.state.status = TaskStatus::Failed;
    task.state.attempt = task.spec.max_attempts;
    task.state.updated = work.now.wall;
    task.state.outcome = Some(Outcome { summary: summary.clone(), ..Outcome::default() });
    let writes = vec![Write::TaskState(task.id.clone(), task.state.clone()), Write::DropQueue(task.id.clone())];
    work.record_system(id.as_str(), "task.failed", json!({ "message": summary }), writes)?;
    propagate(work, &task, TaskStatus::Pending).map(drop)
}
