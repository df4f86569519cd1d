//! A server, and its tokens.

use std::path::Path;

use serde_json::json;
use toft::{repository::Repository, token::Token, wire::SentToken};

use super::{
    CommandView,
    page::{after, clean, counted},
};

/// The address of the board.
pub(crate) fn view_opened_board(url: &str) -> CommandView<'_> {
    CommandView::new("board", json!({ "url": url }), [url], move |page| {
        page.line(format!("Open {url}"));
        page.line("It opens once, in one browser. Enter prints another address; Ctrl-C ends.");
    })
}

/// A server that listens; `board` is the address of its board, if it has one.
pub(crate) fn view_serving<'a>(url: &'a str, store: &'a str, board: Option<&'a str>) -> CommandView<'a> {
    let mut data = json!({ "url": url, "store": store });
    if let Some(board) = board {
        data["board"] = board.into();
    }
    CommandView::new("serving", data, [url], move |page| {
        page.line(format!("Serving {} at {url}", clean(store)));
        page.line("On another machine: toft login URL, then toft init --store URL");
        if let Some(board) = board {
            page.line(format!("Board: {board}"));
        }
    })
}

/// A login, whose token is in `file`.
pub(crate) fn view_login<'a>(server: &str, known: &SentToken, file: &Path) -> CommandView<'a> {
    let SentToken { name, role, space } = known;
    let data = json!({ "server": server, "name": name, "role": role, "space": space });
    let (user, server, space, file) = (clean(name), clean(server), clean(space), file.display());
    let line = format!("You are {user} ({role}) in space {space} on {server}; the token is in {file}");
    CommandView::of_line("login", data, [name], line)
}

pub(crate) fn view_new_token<'a>(secret: &'a str, made: &'a Token) -> CommandView<'a> {
    let Token { name, role, expires, .. } = made;
    let data = json!({ "token": secret, "name": name, "role": role, "expires": expires });
    CommandView::new("token", data, [secret], move |page| {
        page.line(secret);
        let until = expires.map_or_else(|| "until it is revoked".to_owned(), |at| format!("until {at}"));
        page.line(format!("For {} ({role}), {until}. It is not shown again.", clean(name)));
    })
}

pub(crate) fn view_repositories(repositories: &[Repository]) -> CommandView<'_> {
    CommandView::new("repositories", repositories, repositories.iter().map(|repository| &repository.id), move |page| {
        for Repository { id, name, clone_url, .. } in repositories {
            let from = clone_url.as_deref().map_or_else(|| "not cloned by machines".to_owned(), clean);
            page.row([clean(name), id.to_string(), from]);
        }
        if repositories.is_empty() {
            page.line("No repositories; toft init registers one.");
        }
    })
}

pub(crate) fn view_tokens(tokens: &[Token]) -> CommandView<'_> {
    CommandView::new("tokens", tokens, tokens.iter().map(|token| &token.name), move |page| {
        for Token { name, role, host, by, expires, .. } in tokens {
            let host = after("on ", host.as_ref());
            let until = expires.map(|at| format!("until {at}")).unwrap_or_default();
            page.row([clean(name), role.to_string(), host, format!("by {}", clean(by)), until]);
        }
        if tokens.is_empty() {
            page.line("No tokens; toft token create makes one.");
        }
    })
}

pub(crate) fn view_revoked_tokens(name: &str, count: usize) -> CommandView<'_> {
    let tokens = if count == 1 { "the token".to_owned() } else { counted(count, "token") };
    let line = format!("Revoked {tokens} of {}.", clean(name));
    CommandView::of_line("revoked", json!({ "name": name, "count": count }), [name], line)
}
