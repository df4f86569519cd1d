//! Views as HTML, item by item. Every text goes through maud, which escapes it.

use std::{collections::HashMap, time::Duration};

use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use toft::{
    Error,
    agent::Presence,
    landing::LandingState,
    text::clean,
    time::{Timestamp, span},
    views::{
        AgentRow, AgentsView, BoardColumn, BoardView, BudgetRow, Card, HistoryRow, HistoryView, MachineRow, Need,
        QueueRow, RowAction, ScreenView, Views,
    },
};

use crate::{
    graph::drawing,
    issue_page::issue_lists,
    place::{BoardPlace, source},
};

/// Events of a page of history.
const EVENTS: usize = 300;

/// A row or a card, by what it is about.
pub(crate) struct ListItem {
    pub(crate) key: String,
    pub(crate) html: String,
    pub(crate) actions: Vec<RowAction>,
}

/// A list with what stands above it.
pub(crate) struct ItemList {
    pub(crate) id: String,
    /// HTML.
    pub(crate) head: String,
    /// What is said if it has no item.
    pub(crate) empty: &'static str,
    pub(crate) items: Vec<ListItem>,
}

/// The lists of a place.
pub(crate) fn lists(views: &Views, place: &BoardPlace) -> Result<Vec<ItemList>, Error> {
    let sources = views.sources();
    let several = sources.len() > 1;
    Ok(match place {
        BoardPlace::Screen(toft::views::Screen::History) => {
            vec![history_list(&HistoryView::of(&sources, EVENTS)?, several)]
        }
        BoardPlace::Screen(screen) => screen_lists(&ScreenView::of(&sources, *screen)?, several),
        BoardPlace::Earlier { before } => vec![history_list(&HistoryView::before(&sources, *before, EVENTS)?, several)],
        BoardPlace::Issue { repository, id } => issue_lists(&source(views, repository.as_deref())?, id)?,
    })
}

/// What was said beside the outcomes, where a person looks first.
pub(crate) fn note_list(place: &BoardPlace, notes: &[String]) -> Option<ItemList> {
    let shown = *place == BoardPlace::Screen(toft::views::Screen::NeedsYou) && !notes.is_empty();
    let row = |note: &String| item(note.clone(), &[], &html! { p.says { (clean(note)) } });
    shown.then(|| list("said", "Notes", "", notes.iter().map(row)))
}

fn screen_lists(view: &ScreenView, several: bool) -> Vec<ItemList> {
    match view {
        ScreenView::NeedsYou(view) => {
            let notes = view.notes.iter().map(|note| item(note.clone(), &[], &html! { p.says { (clean(note)) } }));
            let mut lists = vec![list("needs-you", "Needs you", "Nothing needs you.", view.rows.iter().map(need_item))];
            if !view.notes.is_empty() {
                lists.push(list("notes", "Worth knowing", "", notes));
            }
            lists
        }
        ScreenView::Agents(view) => agent_lists(view),
        ScreenView::Board(view) => board_lists(view, "There is no issue yet. n adds one; toft run starts agents."),
        ScreenView::Queue(view) => {
            let (past, live): (Vec<&QueueRow>, Vec<&QueueRow>) =
                view.rows.iter().partition(|row| matches!(row.state, LandingState::Landed | LandingState::Withdrawn));
            let red = view.red.iter().map(|target| {
                item(
                    target.clone(),
                    &[],
                    &html! { p.bad { (clean(target)) " does not pass its check: nothing lands before it does." } },
                )
            });
            let mut lists = vec![
                list(
                    "queue",
                    "Finished, in the order of landing",
                    "No finished work waits. What agents finish is checked and merged here.",
                    live.into_iter().map(queue_item),
                ),
                list("landed", "Landed", "Nothing has landed yet.", past.into_iter().map(queue_item)),
            ];
            if !view.red.is_empty() {
                lists.insert(0, list("red", "Red", "", red));
            }
            lists
        }
        ScreenView::Graph(view) => {
            let svg = (!view.rows.is_empty()).then(|| item("graph".into(), &[], &drawing(view)));
            let head = if view.more { "Plan: the first issues of many" } else { "Plan" };
            vec![list("graph", head, "The plan has no open issue.", svg.into_iter())]
        }
        ScreenView::History(view) => vec![history_list(view, several)],
        ScreenView::Machines(view) => {
            vec![list("machines", "Machines", "No agent was here yet.", view.rows.iter().map(machine_item))]
        }
    }
}

fn agent_lists(view: &AgentsView) -> Vec<ItemList> {
    let (idle, busy): (Vec<&AgentRow>, Vec<&AgentRow>) = view.rows.iter().partition(|row| row.id.is_empty());
    let (waits, lost) =
        (view.rows.iter().filter(|row| row.waits).count(), view.rows.iter().filter(|row| row.lost).count());
    let working = busy.len() - waits - lost;
    let head = html! {
        "At work" @if working > 0 { " " span.count { (working) } }
        @if waits > 0 { " " span.bad { "wait for you " span.count { (waits) } } }
        @if lost > 0 { " " span.bad { "lease lost " span.count { (lost) } } }
    };
    let agents = list("agents", "", "No agent is at work. toft run starts some.", busy.into_iter().map(agent_item));
    let mut lists = vec![ItemList { head: head.into_string(), ..agents }];
    if !view.budgets.is_empty() {
        lists.push(list("cost", "Cost", "", view.budgets.iter().map(budget_item)));
    }
    if !idle.is_empty() {
        lists.push(list("idle", "Without work", "", idle.into_iter().map(agent_item)));
    }
    lists
}

fn board_lists(view: &BoardView, hint: &'static str) -> Vec<ItemList> {
    let column = |column: &BoardColumn| {
        let name = column.stage.as_str();
        let cards = column.cards.iter().map(card_item);
        let list = list(&format!("column-{name}"), "", "", cards);
        let more = column.total.saturating_sub(column.cards.len());
        let head = html! {
            (name) " " span.count { (column.total) }
            @if more > 0 { " " span.faint { (more) " not shown" } }
        };
        ItemList { head: head.into_string(), ..list }
    };
    let empty = view.columns.iter().all(|column| column.total == 0);
    empty
        .then(|| list("hint", "", hint, std::iter::empty()))
        .into_iter()
        .chain(view.columns.iter().map(column))
        .collect()
}

fn history_list(view: &HistoryView, several: bool) -> ItemList {
    let earlier = view.rows.last().filter(|row| !several && row.seq > 1).map(|row| {
        let body = html! { a.earlier href={"/?screen=history&before=" (row.seq)} { "Earlier" } };
        item("earlier".into(), &[], &body)
    });
    list(
        "history",
        "History",
        "Nothing happened here.",
        view.rows.iter().map(|row| history_item(row, true)).chain(earlier),
    )
}

pub(crate) fn list(id: &str, head: &str, empty: &'static str, items: impl Iterator<Item = ListItem>) -> ItemList {
    let mut items: Vec<ListItem> = items.collect();
    // The page tells items apart by their keys.
    let mut known = HashMap::new();
    for item in &mut items {
        let count = known.entry(item.key.clone()).and_modify(|count| *count += 1).or_insert(1);
        if *count > 1 {
            item.key = format!("{} ({count})", item.key);
        }
    }
    ItemList { id: id.to_owned(), head: html! { (head) }.into_string(), empty, items }
}

pub(crate) fn item(key: String, actions: &[RowAction], body: &Markup) -> ListItem {
    let html = html! {
        (body)
        @if !actions.is_empty() { div.actions { @for action in actions { (button(action)) } } }
    };
    ListItem { key, html: html.into_string(), actions: actions.to_vec() }
}

/// A button; the command behind it is its title.
fn button(action: &RowAction) -> Markup {
    let line = action.line();
    html! {
        button type="button" data-action=(action.key) data-line=(line) data-asks=[action.asks] data-about=(clean(&action.title))
            data-preview=[action.preview.as_ref().map(|_| "")] title={(clean(&line)) "  (key " (action.key) ")"} { (clean(&action.label)) }
    }
}

/// A link to an issue or a task, by its id.
pub(crate) fn link(repository: Option<&String>, id: &str, shown: &str) -> Markup {
    html! { @if !id.is_empty() { a.id href=(address(repository, id)) { (clean(shown)) } } }
}

/// A title that leads to its issue; the id beside it is the link of the keyboard.
fn title(repository: Option<&String>, id: &str, title: &str) -> Markup {
    html! {
        @if id.is_empty() { span.title { (clean(title)) } }
        @else { a.title tabindex="-1" href=(address(repository, id)) { (clean(title)) } }
    }
}

/// The address of an issue's page.
pub(crate) fn address(repository: Option<&String>, id: &str) -> String {
    let repository = repository.filter(|name| !name.is_empty());
    let repository = repository.map(|name| format!("&repository={}", encoded(name))).unwrap_or_default();
    format!("/issue?id={}{repository}", encoded(id))
}

/// A part of an address.
fn encoded(text: &str) -> String {
    const ESCAPED_CHARACTERS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(text, ESCAPED_CHARACTERS).to_string()
}

/// A time; the page says how long ago it was.
pub(crate) fn time(at: Timestamp) -> Markup {
    html! { time datetime=(at) data-at=(at.0) {} }
}

fn repository_name(repository: Option<&String>) -> Markup {
    html! { @if let Some(name) = repository.filter(|name| !name.is_empty()) { span.repository { (clean(name)) } } }
}

fn key(repository: Option<&String>, id: &str) -> String {
    format!("{} {id}", repository.map_or("", String::as_str))
}

fn need_item(need: &Need) -> ListItem {
    let body = html! {
        div.row {
            span class={"badge " (need.kind.as_str().replace(' ', "-"))} { (need.kind.as_str()) }
            strong { (title(need.repository.as_ref(), &need.id, &need.title)) }
            (link(need.repository.as_ref(), &need.id, &need.shown))
            (repository_name(need.repository.as_ref()))
            @if need.behind > 0 { span.waits { (need.behind) @if need.behind == 1 { " waits for it" } @else { " wait for it" } } }
            @if let Some(since) = need.since { (time(since)) }
        }
        @if !need.text.is_empty() {
            p.says { @if let Some(from) = &need.from { b { (clean(from)) } ": " } (lines(&need.text)) }
        }
    };
    let key = format!("{} {} {}", need.kind.as_str(), key(need.repository.as_ref(), &need.id), need.title);
    item(key, &need.actions, &body)
}

/// A text whose lines stay lines.
pub(crate) fn lines(text: &str) -> Markup {
    html! { @for (n, line) in text.lines().enumerate() { @if n > 0 { br; } (clean(line)) } }
}

fn agent_item(row: &AgentRow) -> ListItem {
    let (class, state) = match row.presence {
        _ if row.lost => ("bad", "lease lost"),
        _ if row.waits => ("bad", "waits for you"),
        Presence::Working => ("busy", "at work"),
        Presence::Idle if !row.id.is_empty() => ("busy", "at work"),
        Presence::Idle => ("faint", "idle"),
        Presence::Paused => ("faint", "paused"),
        Presence::Offline => ("faint", "offline"),
        Presence::Removed => ("faint", "removed"),
    };
    let body = html! {
        div.row {
            span class={"dot " (class)} {} strong { (clean(&row.name)) }
            span class={"state " (class)} { (state) @if row.paused && !row.id.is_empty() { ", then paused" } }
            (link(row.repository.as_ref(), &row.id, &row.shown))
            (title(row.repository.as_ref(), &row.id, &row.title))
            (repository_name(row.repository.as_ref()))
            span.spacer {}
            @if let Some(cost) = row.cost { span.cost { (money(cost)) } }
            span.faint { (clean(&row.machine)) @if let Some(runtime) = &row.runtime { " · " (clean(runtime)) } }
            @if let Some(since) = row.since { (time(since)) }
        }
        @if let Some(note) = &row.note { p.says { (lines(note)) } }
    };
    item(format!("{} {}", row.name, row.id), &row.actions, &body)
}

fn money(amount: f64) -> String {
    format!("{amount:.2}")
}

fn budget_item(row: &BudgetRow) -> ListItem {
    let body = html! {
        div.row {
            strong.title { (clean(&row.title)) }
            (link(row.repository.as_ref(), &row.id, &row.shown))
            @if row.paused { span.badge { "paused" } }
            span.spacer {}
            span { (money(row.spent)) @if let Some(budget) = row.budget { " of " (money(budget)) } }
            @if let Some(budget) = row.budget {
                meter aria-label={"spent of the budget of " (clean(&row.title))} min="0" max=(money(budget.max(0.01))) high=(money(budget * 0.8)) value=(money(row.spent)) {}
            }
        }
    };
    item(row.id.clone(), &row.actions, &body)
}

fn card_item(card: &Card) -> ListItem {
    let body = html! {
        div.row {
            (link(card.repository.as_ref(), &card.id, &card.shown))
            span.priority { "P" (card.priority) }
            @if card.needs_you { span.badge.question { "needs you" } }
            (repository_name(card.repository.as_ref()))
        }
        p { (title(card.repository.as_ref(), &card.id, &card.title)) }
        @if card.agent.is_some() || card.unblocks > 0 || !card.labels.is_empty() {
            div.row {
                @if let Some(agent) = &card.agent { span.agent { (clean(agent)) } }
                @for label in &card.labels { span.label { (clean(label)) } }
                @if card.unblocks > 0 { span.waits { "unblocks " (card.unblocks) } }
            }
        }
        @if let Some(note) = &card.note { p.says { (lines(note)) } }
    };
    item(key(card.repository.as_ref(), &card.id), &card.actions, &body)
}

fn queue_item(row: &QueueRow) -> ListItem {
    let class = match row.state {
        LandingState::Queued if row.conflicts.is_empty() => "busy",
        LandingState::Landed if row.actions.is_empty() => "faint",
        LandingState::Landed => "good",
        LandingState::Withdrawn => "faint",
        LandingState::Queued | LandingState::Bounced => "bad",
    };
    let body = html! {
        div.row {
            span class={"badge " (class)} { @if row.conflicts.is_empty() { (clean(&row.waits)) } @else { "conflict" } }
            strong { (title(row.repository.as_ref(), &row.id, &row.title)) }
            (link(row.repository.as_ref(), &row.id, &row.shown))
            (repository_name(row.repository.as_ref()))
            span.spacer {}
            span.agent { (clean(&row.author)) }
            span.faint { "into " (clean(&row.target)) }
            (time(row.updated))
        }
        @if !row.conflicts.is_empty() {
            p.says.bad {
                @if row.waits != "ready to land" { (clean(&row.waits)) "; " }
                "conflicts" @if let Some(against) = &row.against { " with " (clean(against)) } " in " (clean(&row.conflicts.join(", ")))
            }
        }
        @if let Some(said) = &row.sent_back { p.says { (lines(said)) } }
    };
    item(key(row.repository.as_ref(), &row.id), &row.actions, &body)
}

/// An event; with what it is about, if that is not what the page is about.
pub(crate) fn history_item(row: &HistoryRow, about: bool) -> ListItem {
    let body = html! {
        div.row {
            (time(row.at))
            strong { (clean(&row.actor)) }
            p {
                span title={(clean(&row.verb)) ": " (clean(&row.meaning))} { (clean(if about { &row.said } else { row.said.trim_end_matches(':') })) }
                @if about && row.has_page() { " " (link(row.repository.as_ref(), &row.entity, &row.shown)) }
                @if let Some(text) = row.title.as_ref().filter(|_| about) { " " (title(row.repository.as_ref(), &row.entity, text)) }
                @if !row.text.is_empty() { " " span.says { (clean(&row.text)) } }
            }
            (repository_name(row.repository.as_ref()))
        }
    };
    item(format!("{} {}", row.repository.as_deref().unwrap_or_default(), row.seq), &[], &body)
}

fn machine_item(row: &MachineRow) -> ListItem {
    let body = html! {
        div.row {
            strong { (clean(&row.name)) }
            @for (count, state) in [(row.working, "at work"), (row.idle, "idle"), (row.paused, "paused"), (row.offline, "offline")] {
                @if count > 0 { span { (count) " " (state) } }
            }
            span.spacer {}
            span.faint { "seen " (span(Duration::from_secs(row.silent_s))) " ago" }
        }
        @if let Some(note) = &row.note { p.says { (lines(note)) } }
    };
    item(row.name.clone(), &row.actions, &body)
}
