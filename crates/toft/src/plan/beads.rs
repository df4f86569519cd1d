//! Issues as beads has them, in and out, with nothing lost on the way.

use serde_json::{Map, Value, json};
use toft_core::time::Timestamp;
use toft_ledger::{
    clock::{Clock, Replica},
    line,
    record::{Key, Record, Set},
};

/// What beads calls a field, and what we do.
const FIELDS: [(&str, &str); 9] = [
    ("title", "title"),
    ("description", "body"),
    ("design", "design"),
    ("acceptance_criteria", "acceptance"),
    ("notes", "notes"),
    ("status", "status"),
    ("priority", "priority"),
    ("issue_type", "type"),
    ("assignee", "assignee"),
];

/// Fields that become others, or members of a set.
const TAKEN_APART: [&str; 10] = [
    "id",
    "created_at",
    "created_by",
    "closed_at",
    "close_reason",
    "labels",
    "dependencies",
    "comments",
    "deleted_at",
    "external_ref",
];

/// An issue of beads as a record. The same issue is the same record, so that importing twice changes nothing.
pub(super) fn record(issue: &Map<String, Value>) -> Result<Record, String> {
    let text = |name: &str| issue.get(name).and_then(Value::as_str);
    let id = text("id").ok_or("an issue without an id")?;
    let written: Timestamp = ["updated_at", "created_at"]
        .into_iter()
        .find_map(|name| serde_json::from_value(issue.get(name)?.clone()).ok())
        .unwrap_or_default();
    let replica: Replica = "beads".parse().map_err(|_| "no replica")?;
    let clock = Clock { ms: written.0.max(0) as u64, count: 0, replica };
    let mut record = Record::new(id, clock);
    let mut put = |key: Key, value: Value| record.write(key, clock, Some(value.to_string().into()));
    for (name, value) in issue {
        match FIELDS.iter().find(|(theirs, _)| theirs == name) {
            Some((_, "status")) if value == "tombstone" => put(Key::field("status"), "closed".into()),
            Some((_, ours)) => put(Key::field(ours), value.clone()),
            None if TAKEN_APART.contains(&name.as_str()) => {}
            None => put(Key::field(&format!("beads.{name}")), value.clone()),
        }
    }
    if let Some(at) = issue.get("created_at") {
        put(Key::field("created"), stamped(at, issue.get("created_by"), None));
    }
    if let Some(at) = issue.get("closed_at") {
        put(Key::field("closed"), stamped(at, None, issue.get("close_reason")));
    }
    if let Some(at) = issue.get("deleted_at") {
        put(Key::field("deleted"), stamped(at, issue.get("deleted_by"), issue.get("delete_reason")));
    }
    for label in list(issue, "labels").filter_map(Value::as_str) {
        put(Key::label(label), label.into());
    }
    for dep in list(issue, "dependencies") {
        let of = |name: &str| dep.get(name).and_then(Value::as_str);
        let (Some(on), Some(kind)) = (of("depends_on_id"), of("type")) else {
            return Err(format!("{id}: a dependency without a target or a type"));
        };
        if kind == "parent-child" {
            put(Key::field("parent"), on.into());
        }
        let mut member = json!({ "on": on, "kind": kind });
        let rest = dep
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| !["depends_on_id", "type"].contains(&name.as_str()));
        rest.for_each(|(name, value)| member[format!("beads.{name}")] = value.clone());
        put(Key::dep(on, kind), member);
    }
    for said in list(issue, "comments") {
        let said_id = match said.get("id") {
            Some(Value::String(id)) if !id.is_empty() => id.clone(),
            Some(Value::Number(id)) => id.to_string(),
            _ => blake3::hash(said.to_string().as_bytes()).to_hex()[..12].to_owned(),
        };
        let member = json!({ "id": said_id, "at": said.get("created_at"), "by": said.get("author"), "text": said.get("text"), "beads": said });
        put(Key::Member(Set::Comments, said_id.into()), member);
    }
    if let Some(name) = text("external_ref") {
        put(Key::Member(Set::External, format!("beads:{name}").into()), json!({ "system": "beads", "ref": name }));
    }
    Ok(record)
}

/// What a file of deletions says, as issues: an old beads kept them apart. What the ledger has keeps what it says.
pub fn deletions(ledger: &str, deleted: &str) -> String {
    let parse = |text: &str| serde_json::from_str::<Map<String, Value>>(text).ok();
    let known: std::collections::BTreeMap<String, Map<String, Value>> = ledger
        .lines()
        .filter_map(parse)
        .filter_map(|issue| Some((issue.get("id")?.as_str()?.to_owned(), issue)))
        .collect();
    let mut lines = String::new();
    for row in deleted.lines().filter_map(parse) {
        let Some(id) = row.get("id").and_then(Value::as_str) else { continue };
        let mut issue = known.get(id).cloned().unwrap_or_default();
        let at = row.get("ts").or_else(|| row.get("timestamp")).cloned().unwrap_or_default();
        issue.insert("id".into(), id.into());
        for (name, value) in [
            ("updated_at", Some(&at)),
            ("deleted_at", Some(&at)),
            ("deleted_by", row.get("by").or(row.get("actor"))),
            ("delete_reason", row.get("reason")),
        ] {
            issue.extend(value.map(|value| (name.to_owned(), value.clone())));
        }
        lines.push_str(&Value::Object(issue).to_string());
        lines.push('\n');
    }
    lines
}

fn list<'i>(issue: &'i Map<String, Value>, name: &str) -> impl Iterator<Item = &'i Value> {
    issue.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn stamped(at: &Value, by: Option<&Value>, reason: Option<&Value>) -> Value {
    let mut stamp = json!({ "at": at });
    for (name, value) in [("by", by), ("reason", reason)] {
        if let Some(value) = value {
            stamp[name] = value.clone();
        }
    }
    stamp
}

/// A line of a ledger as beads would have it.
pub(super) fn issue(text: &str) -> Option<Value> {
    let record = line::read(text).ok()?.record;
    let field = |name: &str| record.field(name).and_then(|value| serde_json::from_str::<Value>(value).ok());
    let mut issue = Map::new();
    issue.insert("id".into(), record.id().into());
    for (theirs, ours) in FIELDS {
        if let Some(value) = field(ours) {
            issue.insert(theirs.into(), value);
        }
    }
    let of = |stamp: &Option<Value>, name: &str| stamp.as_ref().and_then(|stamp| stamp.get(name)).cloned();
    let (created, closed, deleted) = (field("created"), field("closed"), field("deleted"));
    let stamps = [
        ("created_at", of(&created, "at")),
        ("created_by", of(&created, "by")),
        ("closed_at", of(&closed, "at")),
        ("close_reason", of(&closed, "reason")),
        ("deleted_at", of(&deleted, "at")),
        ("deleted_by", of(&deleted, "by")),
        ("delete_reason", of(&deleted, "reason")),
    ];
    issue.extend(stamps.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    for (key, register) in record.registers() {
        if let (Key::Field(name), Some(value)) = (key, &register.value)
            && let Some(theirs) = name.strip_prefix("beads.")
        {
            issue.insert(theirs.to_owned(), serde_json::from_str(value).ok()?);
        }
    }
    let members = |set: Set| -> Vec<Value> {
        record.members(set).filter_map(|(_, member)| serde_json::from_str(member).ok()).collect()
    };
    let mut deps: Vec<Value> = members(Set::Deps).iter().map(|dep| dependency(record.id(), dep)).collect();
    if let Some(parent) = field("parent")
        && !deps.iter().any(|dep| dep["type"] == "parent-child")
    {
        deps.push(json!({ "issue_id": record.id(), "depends_on_id": parent, "type": "parent-child" }));
    }
    let said = members(Set::Comments).into_iter().map(|said| comment(record.id(), said)).collect::<Vec<_>>();
    for (name, rows) in [("labels", members(Set::Labels)), ("dependencies", deps), ("comments", said)] {
        if !rows.is_empty() {
            issue.insert(name.into(), rows.into());
        }
    }
    if let Some(name) =
        members(Set::External).iter().find(|row| row["system"] == "beads").and_then(|row| row.get("ref"))
    {
        issue.insert("external_ref".into(), name.clone());
    }
    Some(Value::Object(issue))
}

fn dependency(id: &str, dep: &Value) -> Value {
    let mut theirs = json!({ "issue_id": id, "depends_on_id": dep["on"], "type": dep["kind"] });
    for (name, value) in dep.as_object().into_iter().flatten() {
        if let Some(name) = name.strip_prefix("beads.") {
            theirs[name] = value.clone();
        }
    }
    theirs
}

fn comment(id: &str, mut said: Value) -> Value {
    match said.get_mut("beads").map(Value::take) {
        Some(theirs) => theirs,
        None => {
            json!({ "id": said["id"], "issue_id": id, "author": said["by"], "text": said["text"], "created_at": said["at"] })
        }
    }
}
