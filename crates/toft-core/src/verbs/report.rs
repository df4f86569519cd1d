//! Report: what a runner saw of an attempt that its agent ended itself.

use serde_json::json;

use super::{Verb, Work};
use crate::{
    change::Write,
    flow::{Attempt, Report},
    id::TaskId,
    lease::Fence,
    refusal::{Refusal, Verdict},
    store::Access,
};

/// Add what was seen to an attempt. Only its own runner can: both parts of the fence must match.
#[derive(Clone, Debug)]
pub struct Request {
    /// At which task.
    pub task: TaskId,
    /// The hold it was made under.
    pub fence: Fence,
    /// What was seen.
    pub report: Report,
    /// What it cost.
    pub cost: Option<f64>,
}

impl Verb for Request {
    type Outcome = Attempt;
    const NAME: &'static str = "report";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut Work<'_>) -> Verdict<Attempt> {
        let found = work.tx.attempts(&self.task)?.into_iter().find(|attempt| attempt.fence() == self.fence);
        let Some(mut attempt) = found else {
            return Err(Refusal::NotFound { what: "attempt", text: format!("{} {}", self.task, self.fence) }.into());
        };
        attempt.report = Some(self.report);
        attempt.cost = attempt.cost.or(self.cost);
        let detail = json!({ "fence": self.fence, "ending": attempt.report.as_ref().map(|report| report.ending) });
        work.did(self.task.as_str(), "task.reported", detail, vec![Write::Attempt(attempt.clone())])?;
        Ok(attempt)
    }
}
