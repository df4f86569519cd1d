//! Workflows, their tasks, and the plans they come from.

mod plan;
mod provider;
mod report;
mod requeue;
mod settle;
mod task;
mod template;
mod workflow;

pub use plan::{PlanTask, WorkflowPlan, check_names};
pub use provider::{ProviderRefusal, ProviderRefusalKind};
pub(crate) use report::given_back;
pub use report::{Ending, Report, SaidOutcome, Seen, Usage, Word, builds_on};
pub(crate) use requeue::{place_in_queue, refresh_room, requeue};
pub(crate) use settle::{conclude, end_lease, ledger_changed, propagate, retry_at, skip_pointless};
pub use task::{
    Attempt, AttemptResult, Dependency, DependencyKind, Evidence, Outcome, ReviewedWork, StopOrder, Task, TaskSpec,
    TaskState, TaskStatus, Verified,
};
pub use template::{Template, Variable};
pub use workflow::{IssueState, Source, Workflow, WorkflowStatus};
