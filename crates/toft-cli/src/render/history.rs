//! What happened.

use serde_json::Value;
use toft::change::Event;

use super::{
    View, data,
    page::{Ink, Page, clean, short},
};

fn line(page: &mut Page, event: &Event) {
    let worktree = event.place.worktree.as_deref().map(|name| format!(" ({})", clean(name))).unwrap_or_default();
    let detail = match &event.detail {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| match value {
                Value::String(text) => format!("{name}={}", short(text, 60)),
                other => format!("{name}={}", short(&other.to_string(), 60)),
            })
            .collect::<Vec<_>>()
            .join(" "),
        _ => String::new(),
    };
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
