//! What happened.

use serde_json::Value;
use toft::{change::Event, plan::Past, views::particulars};

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
