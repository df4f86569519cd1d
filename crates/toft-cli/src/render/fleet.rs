//! A server, and its tokens.

use std::path::PathBuf;

use serde_json::{Value, json};
use toft::{
    repository::Repository,
    token::{Token, TokenRole},
    wire::SentToken,
};

use super::{
    View, data,
    page::{Page, clean},
};

pub(crate) struct Serving {
    pub(crate) url: String,
    pub(crate) store: String,
    /// The address of the board, if it is served.
    pub(crate) board: Option<String>,
}

/// The address of the board.
pub(crate) struct BoardOpened {
    pub(crate) url: String,
}

impl View for BoardOpened {
    fn kind(&self) -> &'static str {
        "board"
    }

    fn json(&self) -> Value {
        json!({ "url": self.url })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.url.clone()]
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("Open {}", self.url));
        page.line("It opens once, in one browser. Enter prints another address; Ctrl-C ends.");
    }
}

impl View for Serving {
    fn kind(&self) -> &'static str {
        "serving"
    }

    fn json(&self) -> Value {
        let mut shown = json!({ "url": self.url, "store": self.store });
        if let Some(board) = &self.board {
            shown["board"] = board.as_str().into();
        }
        shown
    }

    fn ids(&self) -> Vec<String> {
        vec![self.url.clone()]
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("Serving {} at {}", clean(&self.store), self.url));
        page.line("On another machine: toft login URL, then toft init --store URL");
        if let Some(board) = &self.board {
            page.line(format!("Board: {board}"));
        }
    }
}

pub(crate) struct LoggedIn {
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) role: TokenRole,
    pub(crate) space: String,
    pub(crate) file: PathBuf,
}

impl LoggedIn {
    pub(crate) fn of(server: &str, known: SentToken, file: PathBuf) -> Self {
        let SentToken { name, role, space } = known;
        Self { server: server.to_owned(), name, role, space, file }
    }
}

impl View for LoggedIn {
    fn kind(&self) -> &'static str {
        "login"
    }

    fn json(&self) -> Value {
        json!({ "server": self.server, "name": self.name, "role": self.role, "space": self.space })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn text(&self, page: &mut Page) {
        let Self { server, name, role, space, file } = self;
        let (name, server, space) = (clean(name), clean(server), clean(space));
        page.line(format!("You are {name} ({role}) in space {space} on {server}; the token is in {}", file.display()));
    }
}

pub(crate) struct TokenMade {
    pub(crate) secret: String,
    pub(crate) made: Token,
}

impl View for TokenMade {
    fn kind(&self) -> &'static str {
        "token"
    }

    fn json(&self) -> Value {
        let Token { name, role, expires, .. } = &self.made;
        json!({ "token": self.secret, "name": name, "role": role, "expires": expires })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.secret.clone()]
    }

    fn text(&self, page: &mut Page) {
        page.line(self.secret.clone());
        let Token { name, role, expires, .. } = &self.made;
        let until = expires.map_or_else(|| "until it is revoked".to_owned(), |at| format!("until {at}"));
        page.line(format!("For {} ({role}), {until}. It is not shown again.", clean(name)));
    }
}

pub(crate) struct RepositoryList(pub(crate) Vec<Repository>);

impl View for RepositoryList {
    fn kind(&self) -> &'static str {
        "repositories"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|repository| repository.id.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        for Repository { id, name, clone_url, .. } in &self.0 {
            let from = clone_url.as_deref().map_or_else(|| "not cloned by machines".to_owned(), clean);
            page.line(format!("{}  {id}  {from}", clean(name)));
        }
        if self.0.is_empty() {
            page.line("No repositories; toft init registers one.");
        }
    }
}

pub(crate) struct TokenList(pub(crate) Vec<Token>);

impl View for TokenList {
    fn kind(&self) -> &'static str {
        "tokens"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|token| token.name.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for Token { name, role, host, by, expires, .. } in &self.0 {
            let host = host.as_ref().map(|host| format!("  on {}", clean(host))).unwrap_or_default();
            let until = expires.map(|at| format!("  until {at}")).unwrap_or_default();
            page.line(format!("{}  {role}{host}  by {}{until}", clean(name), clean(by)));
        }
        if self.0.is_empty() {
            page.line("No tokens; toft token create makes one.");
        }
    }
}

pub(crate) struct TokensRevoked {
    pub(crate) name: String,
    pub(crate) count: usize,
}

impl View for TokensRevoked {
    fn kind(&self) -> &'static str {
        "revoked"
    }

    fn json(&self) -> Value {
        json!({ "name": self.name, "count": self.count })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn text(&self, page: &mut Page) {
        let tokens = if self.count == 1 { "the token".to_owned() } else { format!("{} tokens", self.count) };
        page.line(format!("Revoked {tokens} of {}.", clean(&self.name)));
    }
}
