//! Plans: the input from which a person or an agent makes a workflow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::task::TaskSpec;
use crate::{refusal::Refusal, schema::JsonSchema};

/// How work is divided into tasks. The schema of a plan file in TOML, YAML or JSON.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowPlan {
    pub title: String,
    /// A description of how the work is divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// 0 is most urgent; the default is 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Maximum number of tasks held at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Maximum total cost of its attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// Free-form settings for the agents of the workflow, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub config: BTreeMap<String, Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<PlanTask>,
}

/// One task of a plan. It refers to other tasks by their name in the plan, or by id.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanTask {
    /// Short name, unique in the plan.
    pub name: String,
    /// The work to do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub brief: String,
    /// Tasks that must be done before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Tasks whose outcome it receives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub informed_by: Vec<String>,
    /// Starts only if these fail for good; otherwise it is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on_failure_of: Vec<String>,
    /// Waits for every task of a lower group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_group: Option<u32>,
    /// 0 is most urgent; the default is the priority of the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Plain labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Capability tags that its holder must offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Paths it expects to touch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// How it will be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Fails for good after this many attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// The repository to work in, by id or name; required if a workflow spans several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
}

impl PlanTask {
    /// The task specification, with defaults for what the plan omits.
    pub fn spec(&self, priority: u8, max_attempts: u32, assigned_to: Option<String>) -> TaskSpec {
        TaskSpec {
            name: self.name.clone(),
            brief: self.brief.clone(),
            priority: self.priority.unwrap_or(priority),
            labels: self.labels.clone(),
            requires: self.requires.clone(),
            paths: self.paths.clone(),
            parallel_group: self.parallel_group,
            plan: self.plan.clone(),
            max_attempts: self.max_attempts.unwrap_or(max_attempts),
            assigned_to,
            reviews: None,
        }
    }
}

impl WorkflowPlan {
    /// A plan with a single task of the same name.
    #[must_use]
    pub fn single(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            tasks: vec![PlanTask { name: title.to_owned(), ..PlanTask::default() }],
            ..Self::default()
        }
    }
}

/// Checks a plan by itself: names, priorities, cycles among its own tasks.
pub fn check_names(tasks: &[PlanTask]) -> Result<(), Refusal> {
    let invalid = |field: &str, problem: String| Refusal::Invalid { field: field.into(), problem };
    let mut index = BTreeMap::new();
    for (position, task) in tasks.iter().enumerate() {
        if task.name.trim().is_empty() {
            return Err(invalid("tasks.name", format!("task {} has no name", position + 1)));
        }
        if task.priority.is_some_and(|priority| priority > 4) {
            return Err(invalid("tasks.priority", format!("`{}` has a priority over 4", task.name)));
        }
        if task.max_attempts == Some(0) {
            return Err(invalid("tasks.max_attempts", format!("`{}` may never be tried", task.name)));
        }
        if index.insert(task.name.as_str(), position).is_some() {
            return Err(invalid("tasks.name", format!("two tasks are called `{}`", task.name)));
        }
    }
    Ok(())
}
