//! What happened.

use serde_json::Value;
use toft::{change::Event, issue::Put, plan::Past};

use super::{
    View, data,
    page::{Ink, Page, clean, short},
};

fn line(page: &mut Page, event: &Event) {
    let worktree = event.place.worktree.as_deref().map(|name| format!(" ({})", clean(name))).unwrap_or_default();
    let detail = particulars(event);
    page.line(format!(
        "{}  {}  {}{worktree}  {} {}  {}",
        event.seq,
        page.moment(event.at),
        clean(&event.actor),
        event.verb,
        page.ink(Ink::Id, &event.entity),
        page.ink(Ink::Faint, &detail)
    ));
}

/// The particulars of an event; of a change of an issue, what was written.
pub(super) fn particulars(event: &Event) -> String {
    let said = |name: &str, value: &Value| match value {
        Value::String(text) => format!("{name}={}", short(text, 60)),
        other => format!("{name}={}", short(&other.to_string(), 60)),
    };
    let written = event.detail.get("now").and_then(|puts| serde_json::from_value::<Vec<Put>>(puts.clone()).ok());
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

pub(crate) struct History {
    pub(crate) events: Vec<Event>,
    /// Of an issue: what version control remembers.
    pub(crate) past: Vec<Past>,
}

impl View for History {
    fn kind(&self) -> &'static str {
        "events"
    }

    fn json(&self) -> Value {
        match self.past.is_empty() {
            true => data(&self.events),
            false => serde_json::json!({ "events": self.events, "commits": self.past }),
        }
    }

    fn ids(&self) -> Vec<String> {
        self.events.iter().map(|event| event.seq.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        self.events.iter().for_each(|event| line(page, event));
        for Past { revision, at, by, ledger, changes, .. } in &self.past {
            let said = changes.iter().map(|change| short(change, 60)).collect::<Vec<_>>().join(", ");
            let revision = page.ink(Ink::Id, &clean(revision));
            page.line(format!("commit {revision}  {}  {}  ledger {ledger}  {said}", clean(at), clean(by)));
        }
    }
}

/// One event, for a stream of them.
pub(crate) struct EventLine(pub(crate) Event);

impl View for EventLine {
    fn kind(&self) -> &'static str {
        "event"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.seq.to_string()]
    }

    fn text(&self, page: &mut Page) {
        line(page, &self.0);
    }
}
