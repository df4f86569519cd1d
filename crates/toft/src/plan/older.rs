//! Stores of other tools, read as issues: checkpoint databases of LangGraph, and caw's workflows. Nothing of theirs is
//! changed, and the same thing read twice is the same issue.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Value, json};
use toft_core::{
    issue::{BLOCKS, CLOSED, EPIC, IN_PROGRESS, OPEN},
    time::Timestamp,
};
use toft_ledger::{
    clock::{Clock, Replica},
    line::Line,
    record::{Key, Record, Set},
};
use toft_store::sqlite::foreign::{self, Cell, Row};

use super::{msgpack, write::id_of};
use crate::error::Error;

/// How many of a thread's last checkpoints become comments.
const LAST: usize = 20;
/// How much of a value is kept in words.
const SHOWN: usize = 400;

/// Issues that were found, and what could not be read.
pub(super) struct Found {
    pub(super) lines: Vec<Line>,
    pub(super) unreadable: Vec<String>,
}

/// One issue being put together.
struct Writing {
    record: Record,
    clock: Clock,
}

impl Writing {
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

/// The first of these columns that has something in it.
fn of(row: &Row, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| row.get(*name)).map(Cell::text).filter(|text| !text.is_empty())
}

fn short(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}

/// A moment as databases write it: ISO 8601, SQLite's own form, or seconds or milliseconds since 1970.
fn moment(text: &str) -> Timestamp {
    if let Ok(number) = text.parse::<i64>() {
        return Timestamp(if number > 100_000_000_000 { number } else { number.saturating_mul(1_000).max(0) });
    }
    let forms = [text.to_owned(), format!("{}Z", text.replacen(' ', "T", 1))];
    forms.iter().find_map(|form| serde_json::from_value(json!(form)).ok()).unwrap_or_default()
}

/// Every thread of a LangGraph checkpoint database.
pub(super) fn langgraph(path: &Path) -> Result<Found, Error> {
    let mut tables = foreign::read(path)?;
    let Some(rows) = tables.remove("checkpoints").filter(|rows| rows.iter().all(|row| row.contains_key("thread_id")))
    else {
        return Ok(Found {
            lines: Vec::new(),
            unreadable: vec!["there is no table of checkpoints with threads".into()],
        });
    };
    let mut threads: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for row in rows {
        threads.entry(of(&row, &["thread_id"]).unwrap_or_default()).or_default().push(row);
    }
    let (mut lines, mut unreadable) = (Vec::new(), Vec::new());
    for (thread, mut rows) in threads {
        // Their ids sort by time.
        rows.sort_by_key(|row| of(row, &["checkpoint_id", "thread_ts"]));
        let states: Vec<Value> = rows.iter().map(|row| decoded(row, "checkpoint")).collect();
        let bad = states.iter().filter(|state| state.is_null()).count();
        if bad > 0 {
            unreadable
                .push(format!("{thread}: {bad} checkpoints are in a form nobody here reads; their ids were kept"));
        }
        let at = |state: &Value| state["ts"].as_str().map(moment).unwrap_or_default();
        let first = states.first().map(at).unwrap_or_default();
        let last = states.iter().rev().find(|state| !state.is_null()).unwrap_or(&Value::Null);
        let mut issue = Writing::new("langgraph", &thread, at(last).max(first));
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
        lines.push(issue.line());
    }
    Ok(Found { lines, unreadable })
}

/// A value that LangGraph wrote, in whichever form it says.
fn decoded(row: &Row, name: &str) -> Value {
    match row.get(name) {
        Some(Cell::Bytes(bytes)) => {
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

/// What a thread had in mind, a line for each value.
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

/// Every workflow and task of caw's database.
pub(super) fn caw(path: &Path) -> Result<Found, Error> {
    let mut tables = foreign::read(path)?;
    let mut take = |name: &str| tables.remove(name).unwrap_or_default();
    let (workflows, tasks) = (take("workflows"), take("tasks"));
    let (deps, checkpoints) = (take("task_dependencies"), take("checkpoints"));
    if workflows.is_empty() && tasks.is_empty() {
        return Ok(Found { lines: Vec::new(), unreadable: vec!["there are no workflows or tasks in it".into()] });
    }
    let (mut lines, mut unreadable) = (Vec::new(), Vec::new());
    let named = |name: &str| id_of(&format!("caw\n{name}"));
    for (row, epic) in workflows.iter().map(|row| (row, true)).chain(tasks.iter().map(|row| (row, false))) {
        let Some(name) = of(row, &["id"]) else {
            unreadable.push("a row without an id".into());
            continue;
        };
        let written = of(row, &["created_at", "created"]).map(|text| moment(&text)).unwrap_or_default();
        let changed = of(row, &["updated_at", "updated", "completed_at"]).map(|text| moment(&text)).unwrap_or(written);
        let mut issue = Writing::new("caw", &name, changed.max(written));
        issue.field("created", &json!({ "at": written }));
        issue.field("title", &json!(short(&of(row, &["title", "name", "summary"]).unwrap_or_else(|| name.clone()))));
        issue.field("type", &json!(if epic { EPIC } else { "task" }));
        let said = of(row, &["status", "state"]).unwrap_or_default();
        let status = match said.as_str() {
            "completed" | "done" | "skipped" | "abandoned" | "cancelled" => CLOSED,
            "in_progress" | "running" | "planning" => IN_PROGRESS,
            _ => OPEN,
        };
        issue.field("status", &json!(status));
        if status == CLOSED {
            issue.field("closed", &json!({ "at": changed.max(written), "reason": said }));
        } else {
            issue.field("notes", &json!(format!("caw: {said}")));
        }
        let texts = [
            ("body", &["description", "source_content", "prompt"][..]),
            ("design", &["plan", "plan_summary", "initial_plan"][..]),
        ];
        for (field, columns) in texts {
            if let Some(text) = of(row, columns) {
                issue.field(field, &json!(text));
            }
        }
        if let Some(workflow) = of(row, &["workflow_id"]).filter(|_| !epic) {
            issue.field("parent", &json!(named(&workflow)));
        }
        for dep in deps.iter().filter(|dep| !epic && of(dep, &["task_id"]).as_deref() == Some(&name)) {
            if let Some(on) = of(dep, &["depends_on_id", "depends_on", "dependency_id", "on_task_id"]) {
                let on = named(&on);
                issue.put(Key::dep(&on, BLOCKS), &json!({ "on": on, "kind": BLOCKS }));
            }
        }
        for row in checkpoints.iter().filter(|row| of(row, &["task_id"]).as_deref() == Some(&name)) {
            let id = of(row, &["id"]).unwrap_or_default();
            let at = of(row, &["created_at", "created"]).map(|text| moment(&text)).unwrap_or(changed);
            let kind = of(row, &["checkpoint_type", "type", "kind"]).unwrap_or_default();
            let summary = of(row, &["summary", "detail", "content"]).unwrap_or_default();
            issue.say(&id, at, "caw", &format!("{kind}: {}", short(&summary)));
        }
        lines.push(issue.line());
    }
    Ok(Found { lines, unreadable })
}
