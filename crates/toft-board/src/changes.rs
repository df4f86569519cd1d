//! What changed at a place since a tab was told last. Items know when their HTML changed, so nothing is kept for a tab.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use axum::{
    Extension, Json,
    extract::Query,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use toft::{Error, text::clean};

use crate::{
    BoardState,
    items::{ItemList, lists, note_list},
    locked,
    page::page_buttons,
    place::{BoardPlace, PlaceQuery},
    read,
};

/// Places that are remembered.
const PLACES: usize = 32;
/// Without a change, time alone may change what is seen: leases end, and agents write files.
const FRESH: Duration = Duration::from_secs(5);
/// What is over does not change; it is read again because the store may have been away.
const PAST_FRESH: Duration = Duration::from_secs(60);

/// What was rendered last, by place.
pub(crate) struct RenderCache {
    /// Differs for every start of the board: numbers of another one say nothing.
    epoch: String,
    /// Rises with every item that changes.
    version: u64,
    places: HashMap<BoardPlace, Arc<Rendered>>,
}

/// A place as it was rendered.
struct Rendered {
    /// The change of the stores that it shows.
    change: u64,
    at: Instant,
    version: u64,
    lists: Vec<RenderedList>,
}

struct RenderedList {
    list: ItemList,
    /// When each item changed.
    changed: Vec<u64>,
    /// When the order changed.
    ordered: u64,
}

/// What a tab has.
#[derive(Debug, Deserialize)]
pub(crate) struct SinceQuery {
    epoch: String,
    since: u64,
}

#[derive(Serialize)]
struct ChangesAnswer<'a> {
    /// What is shown.
    title: &'a str,
    epoch: &'a str,
    version: u64,
    /// Why what is shown may be old.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<&'static str>,
    /// What can be done on every page, as HTML; for a tab that has nothing yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    actions: Option<String>,
    lists: Vec<ListChanges<'a>>,
}

#[derive(Serialize)]
struct ListChanges<'a> {
    id: &'a str,
    head: &'a str,
    empty: &'a str,
    /// Keys and HTML of items that changed.
    set: Vec<(&'a str, &'a str)>,
    /// All keys in their order, if that changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<Vec<&'a str>>,
}

pub(crate) async fn changes(
    Extension(state): Extension<Arc<BoardState>>,
    Query(place): Query<PlaceQuery>,
    Query(SinceQuery { epoch, since }): Query<SinceQuery>,
) -> Response {
    let Some(place) = place.place() else { return (StatusCode::NOT_FOUND, "there is no such page").into_response() };
    let wanted = place.clone();
    let (rendered, trouble) = match read(&state, move |state| rendered(state, &wanted)).await {
        Ok(Some(rendered)) => (rendered, None),
        // What was seen last stays.
        Ok(None) => match locked(&state.renders).places.get(&place).cloned() {
            Some(last) => (last, Some(SILENT)),
            None => return (StatusCode::SERVICE_UNAVAILABLE, SILENT).into_response(),
        },
        Err(refused) => return refused,
    };
    let known = locked(&state.renders).epoch.clone();
    let since = if known == epoch { since } else { 0 };
    let title = clean(&state.title);
    let actions = (since == 0).then(|| page_buttons(&state.views.actions()).into_string());
    let (version, lists) = (rendered.version, rendered.since(since));
    Json(ChangesAnswer { title: &title, epoch: &known, version, trouble, actions, lists }).into_response()
}

/// What is said if a read takes long.
const SILENT: &str = "the store does not answer";

/// The place as it is now; as it was rendered last if nothing changed since.
fn rendered(state: &BoardState, place: &BoardPlace) -> Result<Arc<Rendered>, Error> {
    let change = *state.changes.borrow();
    let known = locked(&state.renders).places.get(place).cloned();
    if let Some(known) = known {
        let age = known.at.elapsed();
        let is_past = matches!(place, BoardPlace::Earlier { .. });
        if known.change == change && age < FRESH || is_past && age < PAST_FRESH {
            // A token may have been revoked meanwhile.
            if state.views.are_of_server() {
                state.views.cursor()?;
            }
            return Ok(known);
        }
    }
    let at = Instant::now();
    let mut lists = lists(&state.views, place)?;
    lists.extend(note_list(place, &state.notes()));
    state.read_ms.store(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    Ok(locked(&state.renders).add(place, change, at, lists))
}

impl RenderCache {
    pub(crate) fn new() -> io::Result<Self> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self { epoch: blake3::hash(&bytes).to_hex()[..16].to_owned(), version: 0, places: HashMap::new() })
    }

    /// Compares a place with how it was before.
    fn add(&mut self, place: &BoardPlace, change: u64, at: Instant, lists: Vec<ItemList>) -> Arc<Rendered> {
        self.version += 1;
        let before = self.places.get(place).cloned();
        let rendered = lists.into_iter().map(|list| {
            let old = before.iter().flat_map(|before| &before.lists).find(|old| old.list.id == list.id);
            let known: HashMap<&str, (u64, &str)> = old
                .into_iter()
                .flat_map(|old| old.list.items.iter().zip(&old.changed))
                .map(|(item, changed)| (item.key.as_str(), (*changed, item.html.as_str())))
                .collect();
            let changed = list.items.iter().map(|item| match known.get(item.key.as_str()) {
                Some((changed, html)) if *html == item.html => *changed,
                _ => self.version,
            });
            let changed = changed.collect();
            let same_order = |old: &RenderedList| {
                old.list.items.len() == list.items.len()
                    && old.list.items.iter().zip(&list.items).all(|(old, new)| old.key == new.key)
            };
            let ordered = old.filter(|old| same_order(old)).map_or(self.version, |old| old.ordered);
            RenderedList { list, changed, ordered }
        });
        let rendered = Arc::new(Rendered { change, at, version: self.version, lists: rendered.collect() });
        if self.places.len() >= PLACES
            && let Some(oldest) = self.places.iter().min_by_key(|(_, old)| old.at).map(|(place, _)| place.clone())
        {
            self.places.remove(&oldest);
        }
        self.places.insert(place.clone(), rendered.clone());
        rendered
    }
}

impl Rendered {
    fn since(&self, since: u64) -> Vec<ListChanges<'_>> {
        self.lists.iter().map(|list| list.since(since)).collect()
    }
}

impl RenderedList {
    fn since(&self, since: u64) -> ListChanges<'_> {
        let Self { list, changed, ordered } = self;
        let new = list.items.iter().zip(changed).filter(|(_, changed)| **changed > since);
        ListChanges {
            id: &list.id,
            head: &list.head,
            empty: list.empty,
            set: new.map(|(item, _)| (item.key.as_str(), item.html.as_str())).collect(),
            order: (*ordered > since).then(|| list.items.iter().map(|item| item.key.as_str()).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use toft::views::Screen;

    use super::*;
    use crate::items::ListItem;

    fn list(items: &[(&str, &str)]) -> Vec<ItemList> {
        let items = items
            .iter()
            .map(|(key, html)| ListItem { key: (*key).into(), html: (*html).into(), actions: Vec::new() })
            .collect();
        vec![ItemList { id: "a".into(), head: String::new(), empty: "", items }]
    }

    #[test]
    fn only_what_changed_is_sent() {
        let (mut renders, place) = (RenderCache::new().unwrap(), BoardPlace::Screen(Screen::Agents));
        let mut add = |items: &[(&str, &str)]| renders.add(&place, 0, Instant::now(), list(items));
        let first = add(&[("x", "1"), ("y", "2")]);
        let all = &first.since(0)[0];
        assert_eq!((all.set.len(), all.order.as_deref()), (2, Some(&["x", "y"][..])));
        let second = add(&[("x", "1"), ("y", "3")]);
        let new = &second.since(first.version)[0];
        assert_eq!((new.set.as_slice(), &new.order), (&[("y", "3")][..], &None));
        let third = add(&[("y", "3"), ("z", "4")]);
        let new = &third.since(second.version)[0];
        assert_eq!((new.set.as_slice(), new.order.as_deref()), (&[("z", "4")][..], Some(&["y", "z"][..])));
        // A tab that slept gets both changes.
        assert_eq!(third.since(first.version)[0].set, [("y", "3"), ("z", "4")]);
    }
}
