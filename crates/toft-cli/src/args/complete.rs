//! What the shell completes: ids of issues, with their titles, and names of agents and workspaces.
//!
//! A completion that cannot be answered offers nothing: the user is typing, and errors belong to the command. A server is not
//! asked, for it may not answer soon.

use std::ffi::OsStr;

use clap_complete::CompletionCandidate;
use toft::{
    Toft,
    plan::IssueFilter,
    verbs::{agent, workspace},
};

/// A shell shows no more than this.
const MOST: usize = 100;

/// The store of this directory, if it is a file.
fn here() -> Option<Toft> {
    let located = toft::locate(&toft::Config::default()).ok().filter(|located| located.store.file().is_some())?;
    Toft::at(located).ok()
}

/// Open issues whose id begins as typed; `@` is the task that the caller holds.
pub(super) fn issues(typed: &OsStr) -> Vec<CompletionCandidate> {
    let found = || {
        let toft = here()?;
        toft.plan().ok()??.list(&IssueFilter { limit: MOST, ..IssueFilter::default() }).ok()
    };
    let rows = found().unwrap_or_default().into_iter().map(|found| (found.issue.id, found.issue.title));
    beginning(typed, rows.chain([("@".to_owned(), "what I hold".to_owned())]))
}

/// Registered agents.
pub(super) fn agents(typed: &OsStr) -> Vec<CompletionCandidate> {
    let found = || here()?.perform(agent::List { all: false }).ok();
    beginning(typed, found().unwrap_or_default().into_iter().map(|shown| (shown.agent.name, String::new())))
}

/// Workspaces of this repository, by name.
pub(super) fn workspaces(typed: &OsStr) -> Vec<CompletionCandidate> {
    let found = || {
        let toft = here()?;
        toft.perform(workspace::List { scope: toft.scope(), all: false, limit: MOST }).ok()
    };
    beginning(typed, found().unwrap_or_default().into_iter().map(|row| (row.workspace.name, String::new())))
}

fn beginning(typed: &OsStr, rows: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy();
    // The shell puts a candidate on the command line as it is: nothing that a shell reads as more than a word.
    let word = |name: &str| name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.@/".contains(letter));
    let fitting = rows.filter(|(name, _)| name.starts_with(&*typed) && word(name));
    let candidate = |(name, about): (String, String)| {
        let about = toft::text::clean(&about);
        CompletionCandidate::new(name).help((!about.is_empty()).then(|| about.into()))
    };
    fitting.map(candidate).collect()
}
