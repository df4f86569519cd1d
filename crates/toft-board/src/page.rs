//! The page around the screens.

use std::sync::Arc;

use axum::{Extension, extract::State, response::Html};
use maud::{DOCTYPE, Markup, html};
use toft::views::{RowAction, Screen};

use crate::{
    access::{BoardAccess, Nonce},
    people::PeopleBoards,
    place::NAMES,
};

pub(crate) async fn index(
    State(access): State<Arc<BoardAccess>>,
    Extension(Nonce(nonce)): Extension<Nonce>,
) -> Html<String> {
    let people = access.people();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "toft" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="/assets/board.css" nonce=(nonce);
                script type="module" src="/assets/board.js" nonce=(nonce) {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    h1 #where .hidden {}
                    div.brand { strong { "toft" } " " span #title {} }
                    nav aria-label="Screens" {
                        @for (n, (screen, name)) in NAMES.iter().enumerate() {
                            a href={"/?screen=" (name)} data-screen=(name) title={"key " (n + 1)} {
                                (Screen::title(*screen)) @if *screen == Screen::NeedsYou { " " span #needed .count hidden {} }
                            }
                        }
                    }
                    div.tools {
                        label { span.hidden { "Filter" } input #filter type="search" placeholder="Filter  /" autocomplete="off"; }
                        span #actions {}
                        @if people.is_some() { button type="button" #sign-out hidden { "Sign out" } }
                        button type="button" #help title="Keys  (key ?)" { "?" }
                    }
                }
                p #trouble role="status" hidden {}
                p #nothing role="status" hidden {}
                div #columns hidden {}
                @if let Some(people) = people { (sign_in_form(people)) }
                main #main tabindex="0" { p.empty { "Loading…" } noscript { p { "The board needs JavaScript; toft top and toft status show the same." } } }
                dialog #ask aria-labelledby="ask-title" {
                    form method="dialog" {
                        h2 #ask-title {}
                        pre #ask-preview tabindex="0" hidden {}
                        ul #ask-comments hidden {}
                        label #ask-label { span {} textarea #ask-said rows="3" {} small { "Enter sends it, Shift+Enter begins a line" } }
                        p.command { code #ask-line {} }
                        menu { button value="cancel" formnovalidate { "Cancel" } button #ask-do .primary value="do" {} }
                    }
                }
                dialog #keys aria-labelledby="keys-title" {
                    form method="dialog" {
                        h2 #keys-title { "Keys" }
                        dl {
                            @for (keys, what) in KEYS { dt { @for key in *keys { kbd { (key) } " " } } dd { (what) } }
                        }
                        menu { button value="cancel" { "Close" } }
                    }
                }
                div #said role="status" aria-live="polite" {}
            }
        }
    };
    Html(page.into_string())
}

/// What can be done on every page.
pub(crate) fn page_buttons(actions: &[RowAction]) -> Markup {
    html! {
        @for action in actions {
            button type="button" data-action=(action.key) data-line=(action.line()) data-asks=[action.asks]
                data-preview=[action.preview.as_ref().map(|_| "")] title={(action.line()) "  (key " (action.key) ")"}
                data-label=(if action.key == 'n' { "new issue" } else { action.label.as_str() }) { (action.label.as_str()) }
        }
    }
}

/// What a person without a session sees at a server.
fn sign_in_form(people: &PeopleBoards) -> Markup {
    html! {
        form #sign-in hidden {
            h2 { "Sign in" }
            @if people.knows_provider() {
                p { button type="button" #provider .primary { "Sign in with your account" } }
                p #provider-address hidden { "Open " a #provider-link target="_blank" rel="noopener noreferrer" { "the sign-in page" } " and check that it shows " strong #provider-code {} "." }
            }
            input type="text" name="username" value="toft" autocomplete="username" hidden;
            label { "Token" input #token type="password" autocomplete="current-password" required; }
            p { button { "Sign in with a token" } }
            p.faint { "An admin makes a token: " code { "toft token create NAME --role viewer" } }
        }
    }
}

/// What keys do.
const KEYS: &[(&[&str], &str)] = &[
    (&["1", "…", "7"], "a screen"),
    (&["j", "k"], "the next, the previous item"),
    (&["←", "→"], "the column to the left, to the right"),
    (&["Enter"], "open the issue"),
    (&["a"], "answer, approve or accept"),
    (&["A", "…"], "an answer that the agent proposes"),
    (&["r"], "return, reject or retry"),
    (&["t", "s", "p"], "tell the agent something, stop it, pause or resume it"),
    (&["l", "v"], "land after a preview, revert"),
    (&["d", "o", "h"], "the changes, the log, the history of an issue"),
    (&["c"], "comment on the line of a diff, or on the issue"),
    (&["n"], "a new issue"),
    (&["u"], "undo your last operation, after a preview"),
    (&["/"], "filter"),
    (&["Esc"], "no filter, back"),
    (&["?"], "these keys"),
];
