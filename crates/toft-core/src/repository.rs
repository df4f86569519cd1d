//! Repositories and their worktrees.

use serde::{Deserialize, Serialize};

use crate::{
    schema::JsonSchema,
    {id::RepositoryId, time::Timestamp},
};

/// One project, in all of its checkouts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Repository {
    /// Stable id, stored beside the VCS's own data.
    pub id: RepositoryId,
    /// Directory name, for display.
    pub name: String,
    /// `git`, `jj`, `hg`, `sl` or `none`.
    pub vcs: String,
    /// The directory that all its worktrees share.
    pub common_dir: String,
    /// The root commits of its history; empty if no clone could determine them so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<String>,
    /// Its clones and remotes, each in one canonical spelling.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remotes: Vec<String>,
    /// The address from which machines of a fleet clone it. Only coordinators name one: nothing that a clone says of itself is
    /// followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_url: Option<String>,
    /// When it was first seen.
    pub created: Timestamp,
}

/// Checks an address to clone from: `https://HOST/PATH`, `ssh://…` or `USER@HOST:PATH`, without a password.
pub fn check_clone_url(url: &str) -> Result<(), String> {
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) && !text.starts_with('-');
    let host = match url.split_once("://") {
        Some(("https" | "ssh", rest)) => rest.split('/').next().unwrap_or_default(),
        Some(_) => return Err("only https:// and ssh:// addresses are cloned".to_owned()),
        None => match url.split_once(':') {
            Some((host, path)) if host.contains('@') && plain(path) => host,
            _ => return Err("that is no address; write https://HOST/PATH, ssh://… or USER@HOST:PATH".to_owned()),
        },
    };
    let (user, name) = host.rsplit_once('@').unwrap_or(("git", host));
    match () {
        () if !plain(url) || !plain(name) || !plain(user) => Err("that is no address".to_owned()),
        () if url.starts_with("https://") && host.contains('@') || user.contains([':', '%']) => {
            Err("an address that many machines read has no password; each machine brings its own".to_owned())
        }
        () => Ok(()),
    }
}

/// Prefix of a remote that is a directory on a machine; the machine's name follows.
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

    /// Adds the roots and remotes that another of its clones knows.
    pub fn learn(&mut self, roots: &[String], remotes: &[String]) {
        for (known, new) in [(&mut self.roots, roots), (&mut self.remotes, remotes)] {
            known.extend(new.iter().filter(|one| !known.contains(one)).cloned().collect::<Vec<_>>());
        }
    }
}

/// One checkout of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Worktree {
    pub repository: RepositoryId,
    /// The VCS's own name for it; `main` for the main one.
    pub name: String,
    /// The path where it was last seen.
    pub path: String,
    /// When it was last seen.
    pub seen: Timestamp,
}

impl Worktree {
    /// The name of the main worktree.
    pub const MAIN: &str = "main";
}

/// Where a row was written: recorded on every workflow, task, attempt, checkpoint and event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// The repository, unless the store is used outside of any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<RepositoryId>,
    /// The worktree within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
}

/// The rows that a query covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Scope {
    /// Only this repository; every repository of the store if absent.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_addresses_are_cloned() {
        for url in ["https://git.example/team/shop.git", "ssh://git@git.example/shop", "git@git.example:team/shop.git"]
        {
            assert_eq!(check_clone_url(url), Ok(()), "{url}");
        }
        for url in [
            "",
            "/srv/shop.git",
            "file:///srv/shop.git",
            "http://git.example/shop",
            "ext::sh -c x",
            "https://ana:secret@git.example/shop",
            "https://ghp_0123@git.example/shop",
            "ssh://git%3asecret@git.example/shop",
            "https://-oProxyCommand=x/shop",
            "-oProxyCommand=x@y:z",
            "ssh://-oProxyCommand=x/y",
            "git@git.example:-x",
            "https://git.example/a b",
        ] {
            assert!(check_clone_url(url).is_err(), "{url}");
        }
    }
}
