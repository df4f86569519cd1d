//! One issue: its text, why it does not move, attempts, changes, log and history.

use maud::{Markup, html};
use toft::{
    Error,
    text::clean,
    time::{Timestamp, span},
    views::{AttemptRow, IssueView, LineComments, RepositorySource},
};

use crate::items::{ItemList, history_item, item, lines, link, list, time};

/// Notes that are seen at once.
const NOTES: usize = 5;

/// The lists of an issue's page. Its changes and its log are texts that the page asks for in parts.
pub(crate) fn issue_lists(source: &RepositorySource<'_>, id: &str) -> Result<Vec<ItemList>, Error> {
    let view = IssueView::of(source, id)?;
    let single = |id: &str, body: &Markup| list(id, "", "", std::iter::once(item(id.to_owned(), &[], body)));
    let text = |name: &str, title: &str| {
        html! { board-text kind=(name) data-title=(title) data-issue=(view.id) data-comments=[view.line_comments().map(LineComments::as_str)] {} }
    };
    let mut lists = vec![list("issue", "", "", std::iter::once(item(view.id.clone(), &view.actions, &header(&view))))];
    if !(view.text.is_empty() && view.related().iter().all(|(_, issues)| issues.is_empty()) && view.notes.is_empty()) {
        lists.push(single("about", &about(&view)));
    }
    if !view.attempts.is_empty() {
        lists.push(list(
            "attempts",
            "Attempts",
            "",
            std::iter::once(item("attempts".into(), &[], &attempts(&view.attempts))),
        ));
    }
    if !view.conversation.is_empty() {
        let said = view.conversation.iter().enumerate().map(|(n, said)| {
            let body = html! {
                div.row { b { (clean(&said.by)) } span.faint { (said.what) } (time(said.at)) }
                p.says { (lines(&said.text)) }
            };
            item(n.to_string(), &[], &body)
        });
        lists.push(list("conversation", "What was said", "", said));
    }
    lists.push(single("changes", &text("diff", "Changes")));
    if !view.attempts.is_empty() {
        lists.push(single("log", &text("log", "Log")));
    }
    lists.push(list("history", "History", "", view.history.iter().rev().map(|row| history_item(row, false))));
    Ok(lists)
}

fn header(view: &IssueView) -> Markup {
    html! {
        div.row {
            span.id { (clean(&view.shown)) }
            @if let Some(stage) = view.stage {
                span class={"badge stage-" (stage.as_str())} { (stage.as_str()) }
                span.priority { "P" (view.priority) }
            }
            @for label in &view.labels { span.label { (clean(label)) } }
            @if let Some(agent) = &view.agent { span.agent { (clean(agent)) } }
            @if let Some(landing) = &view.landing { span.faint { (clean(landing)) } }
        }
        h1 { (clean(&view.title)) }
        @for question in &view.questions { p.says.bad { "asks you: " (lines(question)) } }
        @for why in &view.why { p.says.bad { "waits: " (clean(why)) } }
        @if let Some(path) = &view.workspace { p.faint { code { (clean(path)) } } }
    }
}

fn about(view: &IssueView) -> Markup {
    html! {
        @for (heading, text) in &view.text {
            section { @if !heading.is_empty() { h2 { (clean(heading)) } } p.text { (lines(text)) } }
        }
        @for (heading, issues) in view.related() {
            @if !issues.is_empty() {
                section {
                    h2 { (heading) }
                    ul { @for named in issues {
                        li { (link(view.repository.as_ref(), &named.id, &named.shown)) " " (clean(&named.title)) " " span.faint { (clean(&named.status)) } }
                    } }
                }
            }
        }
        @let (earlier, last) = view.notes.split_at(view.notes.len().saturating_sub(NOTES));
        @if !last.is_empty() {
            section {
                h2 { "Notes of the agent" }
                @if !earlier.is_empty() {
                    details { summary.faint { (earlier.len()) " earlier" } (notes(earlier)) }
                }
                (notes(last))
            }
        }
    }
}

fn notes(notes: &[(Timestamp, String)]) -> Markup {
    html! { ul { @for (at, note) in notes { li { (time(*at)) " " (lines(note)) } } } }
}

/// Attempts one after the other; the page draws the time that each took, and shortens the time between them.
fn attempts(attempts: &[AttemptRow]) -> Markup {
    let mut before = None;
    html! {
        board-timeline aria-hidden="true" {}
        ol.attempts {
            @for attempt in attempts {
                @if let Some(ended) = before.replace(attempt.ended) {
                    @if let Some(ended) = ended.filter(|ended| attempt.started > *ended) {
                        li.gap { "nobody for " (span(attempt.started.since(ended))) }
                    }
                }
                li data-from=(attempt.started.0) data-to=[attempt.ended.map(|ended| ended.0)] {
                    div.row {
                        strong { (clean(&attempt.agent)) }
                        @match attempt.ended {
                            Some(ended) => { span { "worked " (span(ended.since(attempt.started))) } }
                            None => { span.busy { "is at work" } }
                        }
                        @if let Some(cost) = attempt.cost { span.cost { (format!("{cost:.2}")) } }
                        (time(attempt.started))
                    }
                    @if !attempt.result.is_empty() { p.says { (lines(&attempt.result)) } }
                }
            }
        }
    }
}
