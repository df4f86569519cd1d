//! What happened.

use serde_json::json;
use toft::{change::Event, plan::Past, views::particulars};

use super::{
    CommandView,
    page::{Ink, Page, clean, short},
    view::data,
};

fn line(page: &mut Page, event: &Event) {
    let worktree = event.place.worktree.as_deref().map(|name| format!(" ({})", clean(name))).unwrap_or_default();
    let who = format!("{}{worktree}", clean(&event.actor));
    let what = format!("{} {}", event.verb, page.ink(Ink::Id, &event.entity));
    let detail = Page::words(page.faint(particulars(event)));
    page.row([event.seq.to_string(), page.moment(event.at), who, what, detail]);
}

pub(crate) fn view_history<'a>(events: &'a [Event], past: &'a [Past]) -> CommandView<'a> {
    let data = match past.is_empty() {
        true => data(events),
        false => json!({ "events": events, "commits": past }),
    };
    CommandView::new("events", data, events.iter().map(|event| event.seq), move |page| {
        events.iter().for_each(|event| line(page, event));
        for Past { revision, at, by, ledger, changes, .. } in past {
            let said = changes.iter().map(|change| short(change, 60)).collect::<Vec<_>>().join(", ");
            let revision = format!("commit {}", page.id(revision));
            page.row([revision, clean(at), clean(by), format!("ledger {ledger}"), Page::words(said)]);
        }
    })
}

/// One event, for a stream of them.
pub(crate) fn view_event(event: &Event) -> CommandView<'_> {
    CommandView::new("event", event, [event.seq], move |page| line(page, event))
}
