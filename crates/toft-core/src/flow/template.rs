//! Templates: named, versioned plans with variables.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::plan::{PlanTask, WorkflowPlan};
use crate::{
    schema::JsonSchema,
    {id::TemplateId, refusal::Refusal, time::Timestamp},
};

/// A plan with variables. A changed template is a new version; old versions are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Template {
    /// Stable id of this version.
    pub id: TemplateId,
    pub name: String,
    /// The version, from 1.
    pub version: u32,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// When the template of this name was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Timestamp>,
    /// The name of the template that it extends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Variable>,
    /// The plan, in which `{{name}}` refers to a variable.
    pub plan: WorkflowPlan,
    /// When this version was written.
    pub created: Timestamp,
}

/// A variable of a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Variable {
    /// The default value; without one, a value must be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

impl Template {
    /// This template on top of the one it extends: its tasks replace those of the same name, the rest are added.
    #[must_use]
    pub fn over(mut self, base: Self) -> Self {
        let mut variables = base.variables;
        variables.extend(self.variables);
        self.variables = variables;
        self.description = self.description.or(base.description);
        let mut config = base.plan.config;
        config.extend(self.plan.config);
        self.plan.config = config;
        let mut tasks = base.plan.tasks;
        for task in self.plan.tasks {
            match tasks.iter_mut().find(|known| known.name == task.name) {
                Some(known) => *known = task,
                None => tasks.push(task),
            }
        }
        self.plan.tasks = tasks;
        self.plan.summary = self.plan.summary.or(base.plan.summary);
        self.plan.max_parallel = self.plan.max_parallel.or(base.plan.max_parallel);
        self.plan.budget = self.plan.budget.or(base.plan.budget);
        self.plan.priority = self.plan.priority.or(base.plan.priority);
        self
    }

    /// The plan with every variable filled in. Missing and unknown variables are errors that name them.
    pub fn fill(&self, given: &BTreeMap<String, String>) -> Result<WorkflowPlan, Refusal> {
        let mut values = BTreeMap::new();
        let mut missing = BTreeSet::new();
        for (name, variable) in &self.variables {
            match given.get(name).or(variable.default.as_ref()) {
                Some(value) => {
                    values.insert(name.as_str(), value.as_str());
                }
                None => {
                    missing.insert(name.clone());
                }
            }
        }
        let unknown: Vec<_> = given.keys().filter(|name| !self.variables.contains_key(*name)).cloned().collect();
        if !unknown.is_empty() {
            return Err(Refusal::UnknownVariables { unknown, known: self.variables.keys().cloned().collect() });
        }
        let mut fill = |text: &str| substitute(text, &values, &mut missing);
        let mut plan = self.plan.clone();
        plan.title = fill(&plan.title);
        plan.summary = plan.summary.as_deref().map(&mut fill);
        for value in plan.config.values_mut() {
            if let Value::String(text) = value {
                *text = fill(text);
            }
        }
        for task in &mut plan.tasks {
            fill_task(task, &mut fill);
        }
        if missing.is_empty() {
            Ok(plan)
        } else {
            Err(Refusal::MissingVariables { names: missing.into_iter().collect() })
        }
    }
}

fn fill_task(task: &mut PlanTask, fill: &mut impl FnMut(&str) -> String) {
    task.name = fill(&task.name);
    task.brief = fill(&task.brief);
    task.plan = task.plan.as_deref().map(&mut *fill);
    for list in [
        &mut task.labels,
        &mut task.requires,
        &mut task.paths,
        &mut task.needs,
        &mut task.informed_by,
        &mut task.on_failure_of,
    ] {
        for text in list {
            *text = fill(text);
        }
    }
}

/// Replaces `{{name}}`; values are not expanded again, so untrusted text cannot reach other variables.
fn substitute(text: &str, values: &BTreeMap<&str, &str>, missing: &mut BTreeSet<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let Some(length) = rest[start..].find("}}") else { break };
        let name = rest[start + 2..start + length].trim();
        out.push_str(&rest[..start]);
        match values.get(name) {
            Some(value) => out.push_str(value),
            None => {
                missing.insert(name.to_owned());
            }
        }
        rest = &rest[start + length + 2..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        serde_json::from_str(text).unwrap()
    }

    fn base() -> Template {
        template(
            r#"{"id":"tmpl_1","name":"fix","version":1,"created":"2026-01-01T00:00:00Z",
                "variables":{"what":{},"who":{"default":"anyone"}},
                "plan":{"title":"Fix {{what}}","tasks":[{"name":"mend","brief":"{{ what }} by {{who}}"}]}}"#,
        )
    }

    #[test]
    fn variables_are_filled_and_values_are_not_looked_into() {
        let plan = base().fill(&[("what".into(), "{{who}}".into())].into()).unwrap();
        assert_eq!(plan.title, "Fix {{who}}");
        assert_eq!(plan.tasks[0].brief, "{{who}} by anyone");
    }

    #[test]
    fn missing_and_unknown_variables_are_named() {
        let missing = base().fill(&BTreeMap::new()).unwrap_err();
        assert!(matches!(missing, Refusal::MissingVariables { names } if names == ["what"]));
        let unknown = base().fill(&[("wat".into(), String::new())].into()).unwrap_err();
        assert!(matches!(unknown, Refusal::UnknownVariables { unknown, .. } if unknown == ["wat"]));
    }

    #[test]
    fn an_extending_template_replaces_tasks_by_name_and_adds_the_rest() {
        let top = template(
            r#"{"id":"tmpl_2","name":"fix-hard","version":1,"created":"2026-01-01T00:00:00Z","extends":"fix",
                "plan":{"title":"Fix {{what}} well","tasks":[{"name":"mend","brief":"carefully"},{"name":"review"}]}}"#,
        );
        let both = top.over(base());
        let names: Vec<_> = both.plan.tasks.iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["mend", "review"]);
        assert_eq!(both.plan.tasks[0].brief, "carefully");
        assert!(both.variables.contains_key("who"));
    }
}
