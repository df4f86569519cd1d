//! Plan and template files in TOML, YAML or JSON, distinguished by their extension.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use toft_core::{
    flow::{PlanTask, Variable, WorkflowPlan},
    verbs::template::Put,
};
use toft_session::error::{Error, io};

/// Reads a plan.
pub fn load_plan(path: &Path) -> Result<WorkflowPlan, Error> {
    load(path)
}

/// Reads a template: a plan with a name and variables.
pub fn load_template(path: &Path) -> Result<Put, Error> {
    let file: TemplateFile = load(path)?;
    let TemplateFile {
        name,
        description,
        extends,
        variables,
        title,
        summary,
        priority,
        max_parallel,
        budget,
        config,
        tasks,
    } = file;
    let plan = WorkflowPlan { title, summary, priority, max_parallel, budget, config, tasks };
    Ok(Put { name, description, extends, variables, plan })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateFile {
    name: String,
    description: Option<String>,
    extends: Option<String>,
    #[serde(default)]
    variables: BTreeMap<String, Variable>,
    title: String,
    summary: Option<String>,
    priority: Option<u8>,
    max_parallel: Option<u32>,
    budget: Option<f64>,
    #[serde(default)]
    config: BTreeMap<String, Value>,
    #[serde(default)]
    tasks: Vec<PlanTask>,
}

fn load<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let wrong = |problem: String| Error::PlanFile { path: path.display().to_string(), problem };
    let text = fs::read_to_string(path).map_err(io("read", path))?;
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("toml") => toml::from_str(&text).map_err(|error| wrong(error.message().to_owned())),
        Some("yaml" | "yml") => serde_yaml_ng::from_str(&text).map_err(|error| wrong(error.to_string())),
        Some("json") => serde_json::from_str(&text).map_err(|error| wrong(error.to_string())),
        _ => Err(wrong("a plan's name ends in .toml, .yaml or .json".into())),
    }
}
