//! Repositories and the worktrees they are seen through.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{id::RepositoryId, time::Timestamp};

/// One project, wherever it is checked out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Repository {
    /// Stable id, kept beside the VCS's own data.
    pub id: RepositoryId,
    /// Directory name, for people.
    pub name: String,
    /// `git`, `jj`, `hg`, `sl` or `none`.
    pub vcs: String,
    /// The directory all its worktrees share.
    pub common_dir: String,
    /// Commits that its history begins with; none if no clone could tell so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<String>,
    /// Where its clones are and what they are exchanged with, each in one spelling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<String>,
    /// First seen.
    pub created: Timestamp,
}

/// How a remote begins that is a directory of a machine, whose name follows.
pub const MACHINE_PREFIX: char = '@';

impl Repository {
    /// Is a clone one of this repository? Clones name a remote in common, or one of them is the other's remote. One that was
    /// never cloned over a network shares its first commits. Histories that begin apart are never one repository, and a fork
    /// that names nothing in common is another.
    #[must_use]
    pub fn has_clone(&self, roots: &[String], remotes: &[String]) -> bool {
        let shares = |ours: &[String], theirs: &[String]| ours.iter().any(|one| theirs.contains(one));
        let apart = !self.roots.is_empty() && !roots.is_empty() && !shares(&self.roots, roots);
        let alone = |remotes: &[String]| remotes.iter().all(|remote| remote.starts_with(MACHINE_PREFIX));
        let first_commits = (alone(&self.remotes) || alone(remotes)) && shares(&self.roots, roots);
        !apart && (shares(&self.remotes, remotes) || first_commits)
    }

    /// Learns what another of its clones knows.
    pub fn learn(&mut self, roots: &[String], remotes: &[String]) {
        for (known, new) in [(&mut self.roots, roots), (&mut self.remotes, remotes)] {
            known.extend(new.iter().filter(|one| !known.contains(one)).cloned().collect::<Vec<_>>());
        }
    }
}

/// One checkout of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// The repository, unless the store is used outside of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryId>,
    /// The worktree within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
}

/// Which rows a question is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Scope {
    /// Only this repository; every one in the store when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryId>,
    /// Only this worktree of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
}

impl Scope {
    /// Does a row from `place` belong?
    #[must_use]
    pub fn covers(&self, place: &Place) -> bool {
        (self.repository.is_none() || self.repository == place.repository)
            && (self.worktree.is_none() || self.worktree == place.worktree)
    }
}
