//! Repositories and the worktrees they are seen through.

use serde::{Deserialize, Serialize};

use crate::{id::RepositoryId, time::Timestamp};

/// One project, wherever it is checked out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repository {
    /// Stable id, kept beside the VCS's own data.
    pub id: RepositoryId,
    /// Directory name, for people.
    pub name: String,
    /// `git`, `jj`, `hg`, `sl` or `none`.
    pub vcs: String,
    /// The directory all its worktrees share.
    pub common_dir: String,
    /// First seen.
    pub created: Timestamp,
}

/// One checkout of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// Whose checkout.
    pub repository: RepositoryId,
    /// The VCS's own name for it; `main` for the main one.
    pub name: String,
    /// Where it was last seen.
    pub path: String,
    /// Last seen.
    pub seen: Timestamp,
}

impl Worktree {
    /// The main one's name.
    pub const MAIN: &str = "main";
}

/// Where a row comes from: written on every workflow, task, attempt, checkpoint and event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The repository, unless the store is used outside of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryId>,
    /// The worktree within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
}

/// Which rows a question is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only this repository; every one in the store when absent.
    pub repository: Option<RepositoryId>,
    /// Only this worktree of it.
    pub worktree: Option<String>,
}

impl Scope {
    /// Does a row from `place` belong?
    pub fn covers(&self, place: &Place) -> bool {
        (self.repository.is_none() || self.repository == place.repository)
            && (self.worktree.is_none() || self.worktree == place.worktree)
    }
}
