//! What happened.

use serde_json::Value;
use toft::{change::Event, issue::Put};

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
    let words: Vec<String> = match (written, &event.detail) {
        (Some(puts), _) if event.verb != "issue.added" => puts
            .iter()
            .map(|put| match put {
                Put::Field(name, Some(value)) => said(name, value),
                Put::Field(name, None) => format!("-{}", clean(name)),
                Put::Label(word, there) => format!("{}{}", if *there { "+" } else { "-" }, clean(word)),
                Put::Dep(dep, there) => {
                    format!("{}{} {}", if *there { "+" } else { "-" }, clean(&dep.kind), clean(&dep.on))
                }
                Put::Comment(said) => format!("\"{}\"", short(&said.text, 60)),
                Put::Unsay(_) => "-comment".to_owned(),
            })
            .collect(),
        (_, Value::Object(fields)) => fields
            .iter()
            .filter(|(name, value)| !value.is_null() && !["was", "now"].contains(&name.as_str()))
            .map(|(name, value)| said(name, value))
            .collect(),
        _ => Vec::new(),
    };
    words.join(" ")
}

pub(crate) struct History(pub(crate) Vec<Event>);

impl View for History {
    fn kind(&self) -> &'static str {
        "events"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|event| event.seq.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        self.0.iter().for_each(|event| line(page, event));
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
