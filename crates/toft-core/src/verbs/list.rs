//! List: tasks by their properties.

use serde::{Deserialize, Serialize};

use super::{Verb, VerbContext, find};
use crate::{
    flow::{Task, TaskStatus},
    may::May,
    refusal::VerbResult,
    repository::Scope,
    schema::JsonSchema,
    store::{Access, TaskQuery},
    token::TokenRole,
};

/// Tasks, newest first; of one workflow in plan order.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ListRequest")]
#[serde(default)]
pub struct Request {
    pub scope: Scope,
    /// Of this workflow, by id or prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// Only with this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    /// Include tasks that have ended.
    pub all: bool,
    /// Only with all of these labels.
    pub labels: Vec<String>,
    /// Only with this text in name or brief.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Maximum number of tasks.
    #[serde(default = "super::usual_limit")]
    pub limit: usize,
}

/// Tasks, and whether there are more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ListOutcome")]
pub struct Outcome {
    /// The tasks, each with its holder.
    pub tasks: Vec<Listed>,
    /// There are more.
    pub more: bool,
}

/// A task with its holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ListedTask")]
pub struct Listed {
    #[serde(flatten)]
    pub task: Task,
    /// The name of its holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "list";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let workflow = match &self.workflow {
            Some(text) => Some(find::workflow(work, text)?.id),
            None => None,
        };
        let statuses = match self.status {
            Some(status) => vec![status],
            None if self.all => Vec::new(),
            None => {
                TaskStatus::ALL.into_iter().filter(|status| status.open() || *status == TaskStatus::Failed).collect()
            }
        };
        let filtered = !self.labels.is_empty() || self.search.is_some();
        let query = TaskQuery {
            workflow,
            scope: self.scope.clone(),
            statuses,
            limit: if filtered { 0 } else { self.limit.saturating_add(1) },
        };
        let mut tasks: Vec<_> = work.tx.tasks(&query)?;
        let needle = self.search.as_deref().map(str::to_lowercase);
        tasks.retain(|task| {
            self.labels.iter().all(|label| task.spec.labels.contains(label))
                && needle.as_ref().is_none_or(|needle| {
                    task.spec.name.to_lowercase().contains(needle) || task.spec.brief.to_lowercase().contains(needle)
                })
        });
        let more = tasks.len() > self.limit;
        tasks.truncate(self.limit);
        let mut listed = Vec::with_capacity(tasks.len());
        for task in tasks {
            let holder = match work.tx.lease(&task.id)? {
                Some(lease) => Some(work.agent_name(&lease.agent)?),
                None => None,
            };
            listed.push(Listed { task, holder });
        }
        Ok(Outcome { tasks: listed, more })
    }
}
