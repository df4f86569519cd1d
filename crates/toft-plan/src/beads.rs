//! Reads and writes issues in the format of beads without loss. `twoway.rs` decides what an import changes.

use serde_json::{Map, Value, json};
use toft_core::{
    issue::{CLOSED, OPEN},
    time::Timestamp,
};
use toft_ledger::{
    clock::{Clock, Replica},
    record::{Key, Record, Set},
};

/// Names of fields in beads and in a ledger.
const FIELDS: [(&str, &str); 12] = [
    ("title", "title"),
    ("description", "body"),
    ("design", "design"),
    ("acceptance_criteria", "acceptance"),
    ("notes", "notes"),
    ("status", "status"),
    ("priority", "priority"),
    ("issue_type", "type"),
    ("assignee", "assignee"),
    ("owner", "owner"),
    ("due_at", "due"),
    ("defer_until", "defer_until"),
];

/// Fields that are converted to other fields, or to members of a set.
const TAKEN_APART: [&str; 12] = [
    "id",
    "created_at",
    "created_by",
    "closed_at",
    "close_reason",
    "labels",
    "dependencies",
    "comments",
    "deleted_at",
    "deleted_by",
    "delete_reason",
    "external_ref",
];

/// Fields of a deleted issue, which are meaningless once it is restored.
pub(super) const OF_DELETED: [&str; 4] =
    ["beads.status", "beads.deleted_by", "beads.delete_reason", "beads.original_type"];

/// Values that clear a field: its name in beads and in toft, and an empty text or null.
pub(super) const CLEARED: [(&str, &str, Option<&str>); 9] = [
    ("description", "body", Some("")),
    ("design", "design", Some("")),
    ("acceptance_criteria", "acceptance", Some("")),
    ("notes", "notes", Some("")),
    ("assignee", "assignee", Some("")),
    ("owner", "owner", Some("")),
    ("due_at", "due", None),
    ("defer_until", "defer_until", None),
    ("external_ref", "external_ref", None),
];

/// The field with the time of the last change in beads.
pub(super) const UPDATED: &str = "beads.updated_at";
/// The status of a deleted issue in beads.
const TOMBSTONE: &str = "tombstone";
/// The kind of dependency that names the parent of an issue.
pub(super) const PARENT_CHILD: &str = "parent-child";
/// The key of toft's mark in the metadata of an issue.
const MARK: &str = "toft";

/// The replica name in the clocks of everything that beads wrote.
pub(super) fn replica() -> Replica {
    "beads".parse().unwrap_or_default()
}

/// When beads last changed an issue.
pub(super) fn updated(row: &Map<String, Value>) -> Option<Timestamp> {
    ["updated_at", "created_at"].into_iter().find_map(|name| moment(row.get(name)?))
}

fn moment(value: &Value) -> Option<Timestamp> {
    serde_json::from_value(value.clone()).ok()
}

/// The mark that an export of toft left in an issue of beads.
pub(super) fn mark(row: &Map<String, Value>) -> Option<&str> {
    row.get("metadata")?.get(MARK)?.as_str()
}

/// Writes a mark into the metadata of an issue, which beads keeps unchanged.
pub(super) fn put_mark(row: &mut Map<String, Value>, mark: &str) {
    let metadata = row.entry("metadata").or_insert_with(|| json!({}));
    if let Some(metadata) = metadata.as_object_mut() {
        metadata.insert(MARK.into(), mark.into());
    }
}

/// An issue of beads as a record. The same issue always gives the same record, so that importing it in two clones is
/// one change. A clock later than `now` is not trusted.
pub(super) fn record(issue: &Map<String, Value>, now: u64) -> Result<Record, String> {
    let text = |name: &str| issue.get(name).and_then(Value::as_str);
    let id = text("id").ok_or("an issue without an id")?;
    let written = updated(issue).unwrap_or_default();
    let clock = Clock { ms: (written.0.max(0) as u64).min(now), count: 0, replica: replica() };
    let mut record = Record::new(id, clock);
    let mut put = |key: Key, value: Value| record.write(key, clock, Some(value.to_string().into()));
    let tombstone = text("status") == Some(TOMBSTONE);
    for (name, value) in issue {
        match FIELDS.iter().find(|(theirs, _)| theirs == name) {
            Some((_, "status")) if tombstone => put(Key::field("status"), CLOSED.into()),
            Some((_, "due" | "defer_until")) if moment(value).is_none() => {
                put(Key::field(&format!("beads.{name}")), value.clone());
            }
            Some((_, ours)) => put(Key::field(ours), value.clone()),
            None if TAKEN_APART.contains(&name.as_str()) => {}
            None if name == "metadata" => {
                let mut value = value.clone();
                let marked = value.as_object_mut().and_then(|metadata| metadata.remove(MARK)).is_some();
                if !(marked && value == json!({})) {
                    put(Key::field("beads.metadata"), value);
                }
            }
            None => put(Key::field(&format!("beads.{name}")), value.clone()),
        }
    }
    if let Some(at) = issue.get("created_at") {
        put(Key::field("created"), stamped(at, issue.get("created_by"), None));
    }
    if let Some(at) = issue.get("closed_at").filter(|at| !at.is_null()) {
        put(Key::field("closed"), stamped(at, None, issue.get("close_reason")));
    }
    let deleted = issue.get("deleted_at").filter(|at| !at.is_null());
    if let Some(at) = deleted.or(issue.get("updated_at").filter(|_| tombstone)) {
        put(Key::field("deleted"), stamped(at, issue.get("deleted_by"), issue.get("delete_reason")));
        put(Key::field("beads.status"), issue.get("status").cloned().unwrap_or_else(|| TOMBSTONE.into()));
    }
    for label in list(issue, "labels").filter_map(Value::as_str) {
        put(Key::label(label), label.into());
    }
    for dep in list(issue, "dependencies") {
        let of = |name: &str| dep.get(name).and_then(Value::as_str);
        let (Some(on), Some(kind)) = (of("depends_on_id"), of("type")) else {
            return Err(format!("{id}: a dependency without a target or a type"));
        };
        if kind == PARENT_CHILD {
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

/// The entries of a file of deletions as issues: old versions of beads kept them separately. Issues in the ledger take
/// precedence.
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

/// A record as an issue of beads.
pub(super) fn row(record: &Record) -> Map<String, Value> {
    let field = |name: &str| record.field(name).and_then(|value| serde_json::from_str::<Value>(value).ok());
    let mut issue = Map::new();
    let deleted = field("deleted");
    for (key, register) in record.registers() {
        if let (Key::Field(name), Some(value)) = (key, &register.value)
            && let Some(theirs) = name.strip_prefix("beads.")
            && (deleted.is_some() || !OF_DELETED.contains(&&**name))
            && let Ok(value) = serde_json::from_str(value)
        {
            issue.insert(theirs.to_owned(), value);
        }
    }
    let status = issue.remove("status").unwrap_or_else(|| TOMBSTONE.into());
    issue.insert("id".into(), record.id().into());
    // An issue without a priority would be a most urgent one there.
    for (name, value) in [("status", json!(OPEN)), ("priority", json!(2)), ("issue_type", json!("task"))] {
        issue.insert(name.into(), value);
    }
    for (theirs, ours) in FIELDS {
        issue.extend(field(ours).map(|value| (theirs.to_owned(), value)));
    }
    let of = |stamp: &Option<Value>, name: &str| stamp.as_ref().and_then(|stamp| stamp.get(name)).cloned();
    let (created, mut closed) = (field("created"), field("closed"));
    if issue["status"] == CLOSED && deleted.is_none() {
        // It takes no closed issue without the moment.
        closed = closed.or_else(|| Some(json!({ "at": at_seconds(record.newest().ms as i64 / 1_000) })));
    }
    if deleted.is_some() {
        issue.insert("status".into(), status);
    }
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
    let members = |set: Set| -> Vec<Value> {
        record.members(set).filter_map(|(_, member)| serde_json::from_str(member).ok()).collect()
    };
    let (parents, mut deps): (Vec<Value>, Vec<Value>) =
        members(Set::Deps).into_iter().partition(|dep| dep["kind"] == PARENT_CHILD);
    match field("parent").filter(|parent| !parent.is_null()) {
        Some(parent) if parents.iter().any(|dep| dep["on"] == parent) => deps.extend(parents),
        Some(parent) => deps.push(json!({ "on": parent, "kind": PARENT_CHILD })),
        None => {}
    }
    let deps: Vec<Value> = deps.iter().map(|dep| dependency(record.id(), dep)).collect();
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
    issue
}

/// A time in the format of beads, in whole seconds.
pub(super) fn at_seconds(seconds: i64) -> Value {
    let text = Timestamp(seconds.saturating_mul(1_000)).to_string();
    text.replacen(".000Z", "Z", 1).into()
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
