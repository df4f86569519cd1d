//! What a tab shows: a screen, or an issue.

use serde::Deserialize;
use toft::{
    Error,
    refusal::Refusal,
    views::{RepositorySource, Screen, Views},
};

/// A place of the board, as an address names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize)]
pub(crate) struct PlaceQuery {
    #[serde(default)]
    screen: String,
    #[serde(default)]
    repository: Option<String>,
    #[serde(default)]
    id: Option<String>,
    /// Events before this one.
    #[serde(default)]
    before: Option<u64>,
}

/// A place of the board.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BoardPlace {
    Screen(Screen),
    /// Events before one of them.
    Earlier {
        before: u64,
    },
    Issue {
        repository: Option<String>,
        id: String,
    },
}

/// The names of screens in addresses.
pub(crate) const NAMES: [(Screen, &str); 7] = [
    (Screen::NeedsYou, "needs-you"),
    (Screen::Agents, "agents"),
    (Screen::Board, "board"),
    (Screen::Queue, "queue"),
    (Screen::Graph, "graph"),
    (Screen::History, "history"),
    (Screen::Machines, "machines"),
];

impl PlaceQuery {
    /// The place, if there is such a one.
    pub(crate) fn place(self) -> Option<BoardPlace> {
        let empty = |text: &String| text.is_empty();
        if self.screen == "issue" {
            let repository = self.repository.filter(|name| !name.is_empty());
            return Some(BoardPlace::Issue { repository, id: self.id.filter(|id| !empty(id))? });
        }
        let screen = NAMES.iter().find(|(_, name)| *name == self.screen).map(|(screen, _)| *screen)?;
        Some(match (screen, self.before) {
            (Screen::History, Some(before)) => BoardPlace::Earlier { before },
            _ => BoardPlace::Screen(screen),
        })
    }
}

/// The repository of a place.
pub(crate) fn source<'a>(views: &'a Views, repository: Option<&str>) -> Result<RepositorySource<'a>, Error> {
    let gone = || Refusal::NotFound { what: "repository".into(), text: repository.unwrap_or_default().to_owned() };
    Ok(views.source(repository).ok_or_else(gone)?)
}
