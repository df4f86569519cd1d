//! Reads databases of other tools as issues: checkpoint databases of LangGraph, and caw's workflows. The databases are
//! not changed, and the same entry always becomes the same issue. From a database that serves several projects, only
//! the entries of this project are read, or those that the user asked for.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use toft_core::{
    flow::{self, PlanTask, Variable},
    issue::{BLOCKS, CLOSED, EPIC, IN_PROGRESS, OPEN},
    time::Timestamp,
    verbs::template,
};
use toft_ledger::{
    clock::{Clock, Replica},
    line::Line,
    record::{Key, Record, Set},
};
use toft_session::error::Error;
use toft_store::sqlite::foreign::{self, Cell, Row};

use super::{msgpack, write::id_of};

/// Number of a thread's last checkpoints that become comments.
const LAST: usize = 20;
/// Maximum length of a value in text.
const SHOWN: usize = 400;

/// The entries of a database, those that could not be read, and those that were left out.
#[derive(Default)]
pub(super) struct StoreContents {
    pub(super) lines: Vec<Line>,
    pub(super) templates: Vec<template::Put>,
    pub(super) unreadable: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl StoreContents {
    fn nothing(why: &str) -> Self {
        Self { unreadable: vec![why.to_owned()], ..Self::default() }
    }
}

/// Maximum number of names in a note.
const NAMED: usize = 5;

/// Selects entries of a database.
pub(super) struct ImportFilter<'w> {
    /// The directories of this project.
    pub(super) roots: Vec<PathBuf>,
    /// Names that the user asked for; `*` matches anything.
    pub(super) only: &'w [String],
    /// Whether the database is inside the project.
    pub(super) own: bool,
}

impl ImportFilter<'_> {
    /// Whether an entry with these names and paths is selected.
    fn takes(&self, names: &[&str], places: &BTreeSet<PathBuf>, unplaced: bool) -> bool {
        if !self.only.is_empty() {
            return self.only.iter().any(|pattern| names.iter().any(|name| fits(pattern, name)));
        }
        let here = |place: &PathBuf| self.roots.iter().any(|root| place.starts_with(root));
        self.own || places.iter().any(here) || places.is_empty() && unplaced
    }

    /// A note about the entries that were left out.
    fn left(&self, what: &str, names: &[String]) -> Option<String> {
        let some: Vec<&str> = names.iter().take(NAMED).map(String::as_str).collect();
        let more = if names.len() > NAMED { ", …" } else { "" };
        let why = if self.only.is_empty() {
            "do not name this project; --only NAME takes them"
        } else {
            "were not asked for"
        };
        (!names.is_empty()).then(|| format!("left {} {what} that {why}: {}{more}", names.len(), some.join(", ")))
    }
}

/// Whether a text matches a pattern, in which `*` matches anything.
fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices().map(|(at, _)| at).chain([rest.len()]).any(|at| fits(after, &rest[at..]))
        }),
    }
}

/// Absolute paths in a value.
fn paths(value: &Value, found: &mut BTreeSet<PathBuf>) {
    match value {
        Value::String(text) if Path::new(text).is_absolute() && !text.contains('\n') => drop(found.insert(text.into())),
        Value::Array(values) => values.iter().for_each(|value| paths(value, found)),
        Value::Object(values) => values.values().for_each(|value| paths(value, found)),
        _ => {}
    }
}

/// An issue that is being assembled.
struct IssueDraft {
    record: Record,
    clock: Clock,
}

impl IssueDraft {
    fn new(system: &str, name: &str, at: Timestamp) -> Self {
        // A replica's name is never longer.
        let replica: Replica = system[..system.len().min(8)].parse().unwrap_or_default();
        let clock = Clock { ms: at.0.max(0) as u64, count: 0, replica };
        let mut writing = Self { record: Record::new(id_of(&format!("{system}\n{name}")), clock), clock };
        writing.put(
            Key::Member(Set::External, format!("{system}:{name}").into()),
            &json!({ "system": system, "ref": name }),
        );
        writing.put(Key::label(&format!("imported:{system}")), &json!(format!("imported:{system}")));
        writing.field("created", &json!({ "at": at }));
        writing
    }

    fn put(&mut self, key: Key, value: &Value) {
        self.record.set(key, self.clock, Some(value.to_string().into()));
    }

    fn field(&mut self, name: &str, value: &Value) {
        self.put(Key::field(name), value);
    }

    fn say(&mut self, id: &str, at: Timestamp, by: &str, text: &str) {
        self.put(Key::comment(id), &json!({ "id": id, "at": at, "by": by, "text": text }));
    }

    fn line(self) -> Line {
        Line::dated(self.record)
    }
}

/// The first of these columns with a value.
fn of(row: &Row, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| row.get(*name).map(Cell::text).filter(|text| !text.is_empty()))
}

fn short(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// Parses a time: ISO 8601, SQLite's own format, or a number of seconds, milliseconds, microseconds or nanoseconds
/// since 1970.
fn moment(text: &str) -> Timestamp {
    if let Ok(number) = text.parse::<i64>() {
        return Timestamp(match number {
            ..0 => 0,
            0..=100_000_000_000 => number * 1_000,
            100_000_000_001..=100_000_000_000_000 => number,
            100_000_000_000_001..=100_000_000_000_000_000 => number / 1_000,
            _ => number / 1_000_000,
        });
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return Timestamp((seconds.clamp(0.0, 1e11) * 1_000.0) as i64);
    }
    let forms = [text.to_owned(), format!("{}Z", text.replacen(' ', "T", 1))];
    forms.iter().find_map(|form| serde_json::from_value(json!(form)).ok()).unwrap_or_default()
}

/// The selected threads of a LangGraph checkpoint database.
pub(super) fn langgraph(path: &Path, wanted: &ImportFilter<'_>) -> Result<StoreContents, Error> {
    let mut tables = foreign::read(path, &["checkpoints"])?;
    let Some(rows) = tables.remove("checkpoints").filter(|rows| rows.iter().all(|row| row.contains_key("thread_id")))
    else {
        return Ok(StoreContents::nothing("there is no table of checkpoints with threads"));
    };
    let mut threads: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows {
        threads.entry(of(&row, &["thread_id"]).unwrap_or_default()).or_default().push(row);
    }
    let (mut found, mut left) = (StoreContents::default(), Vec::new());
    for (thread, mut rows) in threads {
        // Their ids sort by time.
        rows.sort_by_key(|row| of(row, &["checkpoint_id", "thread_ts"]));
        let states: Vec<Value> = rows.iter().map(|row| decoded(row, "checkpoint")).collect();
        let mut places = BTreeSet::new();
        states.iter().for_each(|state| paths(&state["channel_values"], &mut places));
        if !wanted.takes(&[&thread], &places, false) {
            left.push(thread);
            continue;
        }
        let bad = states.iter().filter(|state| state.is_null()).count();
        if bad > 0 {
            let problem = format!("{thread}: {bad} checkpoints have an unknown encoding; their ids were kept");
            found.unreadable.push(problem);
        }
        let at = |state: &Value| state["ts"].as_str().map(moment).unwrap_or_default();
        let first = states.first().map(at).unwrap_or_default();
        let last = states.iter().rev().find(|state| !state.is_null()).unwrap_or(&Value::Null);
        let mut issue = IssueDraft::new("langgraph", &thread, at(last).max(first));
        issue.field("created", &json!({ "at": first }));
        let values = &last["channel_values"];
        let title = ["title", "issue_title", "task", "brief", "input"].iter().find_map(|name| values[*name].as_str());
        let title = title.and_then(|title| title.lines().find(|line| !line.trim().is_empty())).unwrap_or(&thread);
        issue.field("title", &json!(short(title)));
        issue.field("type", &json!("task"));
        let pending = values
            .as_object()
            .into_iter()
            .flatten()
            .any(|(name, value)| name.starts_with("branch:") && !value.is_null() || name == "__start__");
        let ended = ["done", "completed", "complete", "finished", "success"];
        let said = values["status"].as_str().unwrap_or_default();
        let over = !pending && ended.contains(&said);
        issue.field("status", &json!(if over { CLOSED } else { OPEN }));
        if over {
            issue.field("closed", &json!({ "at": at(last), "reason": said }));
        }
        issue.field("body", &json!(described(values, &thread)));
        for (row, state) in rows.iter().zip(&states).rev().take(LAST).rev() {
            let id = of(row, &["checkpoint_id", "thread_ts"]).unwrap_or_default();
            let metadata = decoded(row, "metadata");
            let step = metadata["step"].as_i64().map(|step| format!(" step {step}")).unwrap_or_default();
            let source = metadata["source"].as_str().unwrap_or("checkpoint");
            let wrote =
                metadata["writes"].as_object().map(|writes| writes.keys().cloned().collect::<Vec<_>>().join(", "));
            let wrote = wrote.filter(|wrote| !wrote.is_empty()).map(|wrote| format!(": {wrote}")).unwrap_or_default();
            issue.say(&id, at(state).max(first), "langgraph", &short(&format!("{source}{step}{wrote} ({id})")));
        }
        found.lines.push(issue.line());
    }
    found.notes.extend(wanted.left("threads", &left));
    Ok(found)
}

/// A value that LangGraph wrote, in the format that its row names.
fn decoded(row: &Row, name: &str) -> Value {
    match row.get(name) {
        Some(Cell::Blob(bytes)) => {
            let json = || serde_json::from_slice(bytes).ok();
            let packed = || msgpack::read(bytes);
            let first = of(row, &["type"]).unwrap_or_default();
            let value = if name == "checkpoint" && first == "msgpack" {
                packed().or_else(json)
            } else {
                json().or_else(packed)
            };
            value.unwrap_or_default()
        }
        Some(Cell::Text(text)) => serde_json::from_str(text).unwrap_or_default(),
        _ => Value::Null,
    }
}

/// The channel values of a LangGraph thread, one line each.
fn described(values: &Value, thread: &str) -> String {
    let mut text = format!("LangGraph thread {thread}\n");
    for (name, value) in values.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
        let said = match value {
            Value::String(said) => said.clone(),
            other => other.to_string(),
        };
        text.push_str(&format!("\n{name}: {}", short(&said)));
    }
    text
}

const CAW_TABLES: [&str; 7] = [
    "workflows",
    "tasks",
    "task_dependencies",
    "checkpoints",
    "repositories",
    "workflow_repositories",
    "workflow_templates",
];

/// The selected workflows of caw's database with their tasks, and every template.
pub(super) fn caw(path: &Path, wanted: &ImportFilter<'_>) -> Result<StoreContents, Error> {
    let mut tables = foreign::read(path, &CAW_TABLES)?;
    let mut take = |name: &str| tables.remove(name).unwrap_or_default();
    let (workflows, tasks) = (take("workflows"), take("tasks"));
    let (deps, checkpoints) = (take("task_dependencies"), take("checkpoints"));
    let (repositories, of_workflows) = (take("repositories"), take("workflow_repositories"));
    let templates = take("workflow_templates");
    if workflows.is_empty() && tasks.is_empty() && templates.is_empty() {
        return Ok(StoreContents::nothing("there are no workflows, tasks or templates in it"));
    }
    let mut found = StoreContents::default();
    let mut left = BTreeMap::new();
    for row in &workflows {
        let (id, name) = (of(row, &["id"]).unwrap_or_default(), of(row, &["name", "title"]).unwrap_or_default());
        let theirs = of_workflows.iter().filter(|row| of(row, &["workflow_id"]).as_deref() == Some(&id));
        let theirs: BTreeSet<_> = theirs.filter_map(|row| of(row, &["repository_id"])).collect();
        let there = repositories.iter().filter(|row| of(row, &["id"]).is_some_and(|id| theirs.contains(&id)));
        let places = there.filter_map(|row| of(row, &["path"])).map(PathBuf::from).collect();
        if !wanted.takes(&[&id, &name], &places, true) {
            left.insert(id, name);
        }
    }
    let named = |name: &str| id_of(&format!("caw\n{name}"));
    for (row, epic) in workflows.iter().map(|row| (row, true)).chain(tasks.iter().map(|row| (row, false))) {
        let Some(name) = of(row, &["id"]) else {
            found.unreadable.push("a row without an id".into());
            continue;
        };
        let workflow = if epic { Some(name.clone()) } else { of(row, &["workflow_id"]) };
        if workflow.as_ref().is_some_and(|workflow| left.contains_key(workflow)) {
            continue;
        }
        let written = of(row, &["created_at", "created"]).map(|text| moment(&text)).unwrap_or_default();
        let changed = of(row, &["updated_at", "updated", "completed_at"]).map(|text| moment(&text)).unwrap_or(written);
        let changed = changed.max(written);
        let mut issue = IssueDraft::new("caw", &name, changed);
        issue.field("created", &json!({ "at": written }));
        issue.field("title", &json!(short(&of(row, &["title", "name", "summary"]).unwrap_or_else(|| name.clone()))));
        issue.field("type", &json!(if epic { EPIC } else { "task" }));
        caw_status(&mut issue, row, changed);
        let texts = [
            ("body", &["description", "source_content", "prompt"][..]),
            ("design", &["plan", "plan_summary", "initial_plan"][..]),
        ];
        for (field, columns) in texts {
            if let Some(text) = of(row, columns) {
                issue.field(field, &json!(text));
            }
        }
        if let Some(workflow) = workflow.filter(|_| !epic) {
            issue.field("parent", &json!(named(&workflow)));
        }
        for dep in deps.iter().filter(|dep| !epic && of(dep, &["task_id"]).as_deref() == Some(&name)) {
            if let Some(on) = of(dep, &["depends_on_id", "depends_on", "dependency_id", "on_task_id"]) {
                let on = named(&on);
                let kind = of(dep, &["dependency_type", "type", "kind"]).unwrap_or_else(|| BLOCKS.to_owned());
                issue.put(Key::dep(&on, &kind), &json!({ "on": on, "kind": kind }));
            }
        }
        for row in checkpoints.iter().filter(|row| of(row, &["task_id"]).as_deref() == Some(&name)) {
            let id = of(row, &["id"]).unwrap_or_default();
            let at = of(row, &["created_at", "created"]).map(|text| moment(&text)).unwrap_or(changed);
            let kind = of(row, &["checkpoint_type", "type", "kind"]).unwrap_or_default();
            let summary = of(row, &["summary", "detail", "content"]).unwrap_or_default();
            issue.say(&id, at, "caw", &format!("{kind}: {}", short(&summary)));
        }
        found.lines.push(issue.line());
    }
    for row in &templates {
        match caw_template(row) {
            Some(template) => found.templates.push(template),
            None => found.unreadable.push(format!("template {}", of(row, &["name", "id"]).unwrap_or_default())),
        }
    }
    found.notes.extend(wanted.left("workflows", &left.into_values().collect::<Vec<_>>()));
    Ok(found)
}

/// Sets the status and the result of a workflow or task of caw.
fn caw_status(issue: &mut IssueDraft, row: &Row, changed: Timestamp) {
    let said = of(row, &["status", "state"]).unwrap_or_default();
    let status = match said.as_str() {
        "completed" | "done" | "skipped" | "abandoned" | "cancelled" => CLOSED,
        "in_progress" | "running" | "planning" => IN_PROGRESS,
        _ => OPEN,
    };
    issue.field("status", &json!(status));
    let outcome = of(row, &["outcome", "result"]);
    let detail = of(row, &["outcome_detail"]).map(|text| serde_json::from_str(&text).unwrap_or_else(|_| json!(text)));
    if status == CLOSED {
        let mut closed = json!({ "at": changed, "reason": outcome.as_ref().unwrap_or(&said) });
        if outcome.is_some() || detail.is_some() {
            closed["outcome"] = json!({ "status": said, "outcome": outcome, "detail": detail });
        }
        issue.field("closed", &closed);
        return;
    }
    issue.field("notes", &json!(format!("caw: {said}")));
    if let Some(outcome) = outcome {
        let detail =
            detail.map(|detail| format!("\n{}", detail.as_str().map_or_else(|| detail.to_string(), str::to_owned)));
        issue.say("outcome", changed, "caw", &format!("outcome: {outcome}{}", detail.unwrap_or_default()));
    }
}

/// A template of caw: tasks by name, and variables for all texts.
fn caw_template(row: &Row) -> Option<template::Put> {
    let name = of(row, &["name"])?;
    let text = of(row, &["template"])?;
    let told: Value = serde_json::from_str(&text).ok()?;
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut groups: Vec<String> = Vec::new();
    let mut tasks = Vec::new();
    for task in told["tasks"].as_array()? {
        let group = task["parallel_group"].as_str().map(|group| {
            let known = groups.iter().position(|known| known == group);
            known.unwrap_or_else(|| {
                groups.push(group.to_owned());
                groups.len() - 1
            })
        });
        tasks.push(PlanTask {
            name: task["name"].as_str()?.to_owned(),
            brief: task["description"].as_str().unwrap_or_default().to_owned(),
            needs: texts(&task["depends_on"]),
            parallel_group: group.and_then(|group| u32::try_from(group).ok()),
            paths: texts(&task["files_likely_affected"]),
            ..PlanTask::default()
        });
    }
    let holes =
        text.split("{{").skip(1).filter_map(|rest| rest.split_once("}}")).map(|(hole, _)| hole.trim().to_owned());
    let word = |name: &String| !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
    let variables = texts(&told["variables"]).into_iter().chain(holes).filter(word);
    let plan = flow::WorkflowPlan {
        title: name.clone(),
        summary: of(row, &["description"]),
        tasks,
        ..flow::WorkflowPlan::default()
    };
    Some(template::Put {
        name,
        description: of(row, &["description"]),
        extends: None,
        variables: variables.map(|name| (name, Variable::default())).collect(),
        plan,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text, fit) in
            [("a", "a", true), ("a*", "ab", true), ("*", "", true), ("*b*d", "abcd", true), ("a*b", "abc", false)]
        {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }

    #[test]
    fn numbers_are_moments_in_whatever_unit() {
        let at = Timestamp(1_700_000_000_000);
        for text in ["1700000000", "1700000000.0", "1700000000000", "1700000000000000", "1700000000000000000"] {
            assert_eq!(moment(text), at, "{text}");
        }
        assert_eq!(moment("-5"), Timestamp(0));
    }
}
