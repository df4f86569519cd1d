//! What happened, the newest first.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use toft_core::{
    change::Event,
    events::kind_of,
    id::TaskId,
    issue::Put,
    text::{clean, short},
    time::Timestamp,
    verbs::{facts::TaskNames, log},
};
use toft_session::Error;

use super::RepositorySource;

/// Characters of a text that are shown.
const LONGEST: usize = 200;

/// The newest events.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HistoryView {
    pub rows: Vec<HistoryRow>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryRow {
    pub seq: u64,
    pub at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    pub actor: String,
    pub verb: String,
    /// What the actor did.
    pub said: String,
    /// What that means.
    pub meaning: String,
    /// What it is about: the issue of a task, if that is its only one.
    pub entity: String,
    /// The id as people see it.
    pub shown: String,
    /// The title of that issue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub text: String,
}

impl HistoryRow {
    /// Whether there is more to see of what it is about: issues, tasks, workflows and agents have a page.
    #[must_use]
    pub fn has_page(&self) -> bool {
        let kind = self.verb.split('.').next().unwrap_or_default();
        if self.verb == "land.checked" {
            return false;
        }
        ["agent", "claim", "epic", "flow", "issue", "land", "save", "state", "task"].contains(&kind)
            || self.verb == "lease.lost"
    }
}

impl HistoryView {
    /// The newest events of repositories, at most so many of each.
    pub fn of(sources: &[RepositorySource<'_>], limit: usize) -> Result<Self, Error> {
        let mut view = Self::default();
        for source in sources {
            let request = log::Request { scope: source.scope.clone(), limit, ..log::Request::default() };
            let events = source.toft.work().act(&source.toft.located().agent, None, request)?;
            view.rows.extend(rows(source, &events)?);
        }
        view.rows.sort_by_key(|row| std::cmp::Reverse((row.at, row.seq)));
        Ok(view)
    }

    /// Events before one of them: of the numbers before it, at most so many.
    pub fn before(sources: &[RepositorySource<'_>], before: u64, limit: usize) -> Result<Self, Error> {
        let mut view = Self::default();
        let newest = Self::of(sources, 1)?.rows.first().map_or(0, |row| row.seq);
        let mut end = before.min(newest + 1);
        // Events of other repositories have numbers, too.
        while let [source] = sources
            && view.rows.is_empty()
            && end > 1
        {
            let after = end.saturating_sub(limit as u64 + 1);
            let scope = source.scope.clone();
            let request = log::Request { scope, after: Some(after), limit, ..log::Request::default() };
            let mut events = source.toft.work().act(&source.toft.located().agent, None, request)?;
            events.retain(|event| event.seq < end);
            view.rows = rows(source, &events)?;
            end = after + 1;
        }
        view.rows.sort_by_key(|row| std::cmp::Reverse(row.seq));
        Ok(view)
    }
}

/// Events as rows, in their order.
pub(super) fn rows(source: &RepositorySource<'_>, events: &[Event]) -> Result<Vec<HistoryRow>, Error> {
    let issues = issues_of_tasks(source, events, false)?;
    let ids: Vec<&str> =
        events.iter().map(|event| issues.get(&event.entity).unwrap_or(&event.entity).as_str()).collect();
    let plan = source.toft.plan()?.filter(|_| source.ledgers);
    let mut titles: BTreeMap<&str, Option<String>> = BTreeMap::new();
    for (id, event) in ids.iter().zip(events) {
        if let (Some(plan), false) = (&plan, titles.contains_key(id)) {
            let found = if about_issue(event) { plan.known(id)? } else { None };
            titles.insert(id, found.map(|found| found.issue.title));
        }
    }
    // An agent is known by its name.
    let name = |event: &Event| {
        let name = event.detail.get("name").and_then(Value::as_str).filter(|_| event.verb.starts_with("agent."));
        name.map(str::to_owned)
    };
    let row = |((event, id), shown): ((&Event, &&str), String)| HistoryRow {
        seq: event.seq,
        at: event.at,
        repository: source.name.clone(),
        actor: event.actor.clone(),
        verb: event.verb.clone(),
        said: said(event).to_owned(),
        meaning: kind_of(&event.verb).map_or(event.verb.as_str(), |kind| kind.meaning).to_owned(),
        entity: (*id).to_owned(),
        shown: name(event).unwrap_or(shown),
        title: titles.get(id).cloned().flatten(),
        text: essence(event),
    };
    Ok(events.iter().zip(&ids).zip(source.shorten(&ids)).map(row).collect())
}

/// What was done, in the past tense.
fn said(event: &Event) -> &str {
    match (event.verb.as_str(), event.detail.get("state").and_then(Value::as_str)) {
        ("agent.told", Some("draining")) => "paused",
        ("agent.told", Some("active")) => "resumed",
        ("message.sent", _) if event.detail.get("kind").is_some_and(|kind| kind == "question") => "sent a question",
        ("land.landed", _) if event.detail.get("reverts").is_some() => "took back",
        (verb, _) => kind_of(verb).map_or(verb, |kind| kind.said),
    }
}

/// By task that an event is about: the issue whose only task it is, or with `parts` that it belongs to; or the task itself.
pub(super) fn issues_of_tasks(
    source: &RepositorySource<'_>,
    events: &[Event],
    parts: bool,
) -> Result<BTreeMap<String, String>, Error> {
    let tasks: BTreeSet<&str> =
        events.iter().map(|event| event.entity.as_str()).filter(|id| id.starts_with(TaskId::PREFIX)).collect();
    let tasks: Vec<TaskId> = tasks.into_iter().map(TaskId::known).collect();
    if tasks.is_empty() {
        return Ok(BTreeMap::new());
    }
    let names =
        source.toft.work().act(&source.toft.located().agent, None, TaskNames { tasks: tasks.clone(), parts })?;
    Ok(tasks.iter().map(ToString::to_string).zip(names).collect())
}

/// Whether an event may be about an issue.
fn about_issue(event: &Event) -> bool {
    !["agent", "message", "repository", "token", "ws"].contains(&event.verb.split('.').next().unwrap_or_default())
}

/// What people want to know of an event: a text that somebody wrote, or what was changed.
fn essence(event: &Event) -> String {
    const TEXTS: [&str; 6] = ["summary", "message", "answer", "reason", "note", "name"];
    let text = |name: &str| event.detail.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    match event.verb.as_str() {
        // The title says it.
        "issue.added" | "issue.started" | "issue.finished" | "issue.released" | "claim" | "agent.registered" => {
            String::new()
        }
        "issue.edited" => particulars(event),
        "issue.closed" => {
            let closed = puts(event).into_iter().find_map(|put| match put {
                Put::Field(name, Some(value)) if name == "closed" => value["reason"].as_str().map(str::to_owned),
                _ => None,
            });
            closed.map(|reason| short(&reason, LONGEST)).unwrap_or_default()
        }
        "issue.reverted" => {
            let names = puts(event).into_iter().map(|put| match put {
                Put::Field(name, _) => clean(&name),
                Put::Label(..) => "labels".to_owned(),
                Put::Dep(..) => "dependencies".to_owned(),
                Put::Comment(_) | Put::Unsay(_) => "comments".to_owned(),
            });
            let names: BTreeSet<String> = names.collect();
            names.into_iter().collect::<Vec<_>>().join(", ")
        }
        "agent.told" => text("note").map(|note| short(note, LONGEST)).unwrap_or_default(),
        "land.landed" => text("commit").map(|commit| format!("as {}", short(commit, 10))).unwrap_or_default(),
        "flow.new" => text("title").map(|title| short(title, LONGEST)).unwrap_or_default(),
        _ => TEXTS.into_iter().find_map(text).map(|text| short(text, LONGEST)).unwrap_or_default(),
    }
}

/// What a change of an issue wrote.
fn puts(event: &Event) -> Vec<Put> {
    let now = event.detail.get("now").cloned();
    now.and_then(|puts| toft_core::json::from_value(&puts).ok()).unwrap_or_default()
}

/// The particulars of an event; of a change of an issue, what was written.
#[must_use]
pub fn particulars(event: &Event) -> String {
    let said = |name: &str, value: &Value| match value {
        Value::String(text) => format!("{name}={}", short(text, 60)),
        other => format!("{name}={}", short(&other.to_string(), 60)),
    };
    let written = event.detail.get("now").and_then(|puts| toft_core::json::from_value::<Vec<Put>>(puts).ok());
    let empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let words: Vec<String> = match (written, &event.detail) {
        (Some(puts), _) if event.verb != "issue.added" => puts
            .iter()
            .map(|put| match put {
                Put::Field(name, Some(value)) if name == "closed" => closed(value),
                Put::Field(name, Some(value)) => said(name, value),
                Put::Field(name, None) => format!("-{}", clean(name)),
                Put::Label(word, there) => format!("{}{}", if *there { "+" } else { "-" }, clean(word)),
                Put::Dep(dep, there) => {
                    let kind = if dep.blocks() { "needs".to_owned() } else { clean(&dep.kind) };
                    format!("{}{kind} {}", if *there { "+" } else { "-" }, clean(&dep.on))
                }
                Put::Comment(said) => format!("\"{}\"", short(&said.text, 60)),
                Put::Unsay(_) => "-comment".to_owned(),
            })
            .collect(),
        (_, Value::Object(fields)) => fields
            .iter()
            .filter(|(name, value)| !empty(value) && !["was", "now"].contains(&name.as_str()))
            .map(|(name, value)| said(name, value))
            .collect(),
        _ => Vec::new(),
    };
    words.join(" ")
}

/// How an issue was closed: the reason, and the evidence.
fn closed(value: &Value) -> String {
    let text =
        |value: &Value, most: usize| value.as_str().filter(|text| !text.is_empty()).map(|text| short(text, most));
    let reason = text(&value["reason"], 60).map(|reason| format!(" \"{reason}\"")).unwrap_or_default();
    let evidence = value["outcome"]["evidence"].as_object().and_then(|kinds| kinds.iter().next());
    let evidence = evidence.and_then(|(kind, shown)| {
        let most = if kind == "commit" { 12 } else { 60 };
        Some(format!(" ({}: {})", clean(&kind.replace('_', " ")), text(shown, most)?))
    });
    format!("closed{reason}{}", evidence.unwrap_or_default())
}
