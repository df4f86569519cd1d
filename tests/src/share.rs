//! Clones that share a ledger, as stories see them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Home, snapshot};

/// A version control that a ledger's own repository can be under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vcs {
    /// git.
    Git,
    /// Jujutsu, with git's directory beside it.
    JjColocated,
    /// Jujutsu alone.
    Jj,
    /// Mercurial.
    Hg,
    /// Sapling, played by a script that speaks to Mercurial.
    Sl,
}

impl Vcs {
    /// Every one.
    pub const ALL: [Self; 5] = [Self::Git, Self::JjColocated, Self::Jj, Self::Hg, Self::Sl];

    /// Makes a repository that others exchange with.
    pub fn remote(self, home: &Home, name: &str) -> PathBuf {
        let dir = home.path().join(name);
        fs::create_dir(&dir).unwrap();
        match self {
            Self::Hg | Self::Sl => drop(home.run(&dir, "hg", &["init"])),
            _ => drop(home.run(&dir, "git", &["init", "-q", "--bare", "-b", "main"])),
        }
        dir
    }

    /// Clones it.
    pub fn clone(self, home: &Home, remote: &Path, name: &str) -> PathBuf {
        let (dir, from) = (home.path().join(name), remote.to_str().unwrap());
        let base = home.path();
        match self {
            Self::Git => {
                home.run(base, "git", &["init", "-q", "-b", "main", name]);
                home.run(&dir, "git", &["remote", "add", "origin", from]);
            }
            Self::Jj | Self::JjColocated => {
                let colocate = if self == Self::Jj { "--no-colocate" } else { "--colocate" };
                home.run(base, "jj", &["git", "init", colocate, name]);
                home.run(&dir, "jj", &["git", "remote", "add", "origin", from]);
            }
            Self::Hg => drop(home.run(base, "hg", &["clone", "-q", from, name])),
            Self::Sl => {
                home.run(base, "hg", &["clone", "-q", from, name]);
                fs::rename(dir.join(".hg"), dir.join(".sl")).unwrap();
            }
        }
        dir
    }
}

/// Puts a `sl` on the path that plays Sapling: it moves the directory to where Mercurial looks, and back.
#[cfg(unix)]
pub fn play_sapling(home: &mut Home) {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = home.path().join("sapling");
    fs::create_dir(&bin).unwrap();
    let script = r#"#!/bin/sh
# Sapling takes Mercurial's words here; `push --to NAME` is the one that differs, and `main` is its branch.
root=$PWD
while [ ! -d "$root/.sl" ] && [ "$root" != / ]; do root=$(dirname "$root"); done
n=$#
for word in "$@"; do
    shift
    case "$word" in
        --to) skip=1; continue ;;
        main) if [ -n "$skip" ]; then skip=; continue; fi; word=default ;;
    esac
    set -- "$@" "$word"
done
mv "$root/.sl" "$root/.hg" || exit 255
hg "$@"
code=$?
mv "$root/.hg" "$root/.sl"
exit $code
"#;
    let path = bin.join("sl");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let before = home.variable("PATH");
    home.set("PATH", &format!("{}:{before}", bin.display()));
}

/// A project in git with a clone of its own, whose shared ledger `team` is in `ledger`.
pub fn project_with(home: &Home, name: &str, ledger: &Path) -> PathBuf {
    let repo = home.repo(name);
    home.toft(&repo, &["ledger", "add", "team", ledger.to_str().unwrap()]).ok();
    repo
}

/// How each ledger fared in a sync.
pub fn synced(home: &Home, repo: &Path, args: &[&str]) -> BTreeMap<String, Value> {
    let mut all = vec!["sync", "--json"];
    all.extend(args);
    let said = home.toft(repo, &all);
    let value: Value = serde_json::from_str(said.out.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {said:?}"));
    let rows = value["data"].as_array().unwrap_or_else(|| panic!("{said:?}"));
    rows.iter().map(|row| (row["ledger"].as_str().unwrap().to_owned(), row.clone())).collect()
}

/// Everything of the user's in a git checkout: files, index, HEAD, branches, stash, what is in progress; not toft's own.
pub fn users(repo: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let git = repo.join(".git");
    let theirs = |path: &Path| match path.strip_prefix(&git) {
        Ok(own) => {
            let own = own.to_string_lossy();
            !["toft", "objects", "refs/toft", "logs/refs/toft", "refs/remotes", "logs/refs/remotes", "packed-refs"]
                .iter()
                .any(|name| own.starts_with(name))
        }
        Err(_) => true,
    };
    snapshot(repo).into_iter().filter(|(path, _)| theirs(path)).collect()
}

/// A bare repository with one commit on main, and clones of it with a store.
pub fn cloned(home: &Home, names: &[&str]) -> (PathBuf, Vec<PathBuf>) {
    let remote = Vcs::Git.remote(home, "remote.git");
    let first = home.git("first");
    home.run(&first, "git", &["push", "-q", remote.to_str().unwrap(), "main"]);
    let clones = names.iter().map(|name| another(home, &remote, name)).collect();
    (remote, clones)
}

/// One more clone, with a store.
pub fn another(home: &Home, remote: &Path, name: &str) -> PathBuf {
    home.run(home.path(), "git", &["clone", "-q", remote.to_str().unwrap(), name]);
    let dir = home.path().join(name);
    home.toft(&dir, &["init"]).ok();
    dir
}

/// How the ledger beside a repository fared in a sync.
pub fn branch(home: &Home, repo: &Path) -> Value {
    synced(home, repo, &["branch"]).remove("branch").unwrap()
}

/// How the shared ledger `team` fared in a sync.
pub fn team(home: &Home, repo: &Path) -> Value {
    synced(home, repo, &["team"]).remove("team").unwrap()
}

/// Everything that can be read off a repository that others see: every commit that any ref leads to, with its message, author
/// and text.
pub fn published(home: &Home, remote: &Path) -> String {
    home.run(remote, "git", &["log", "-p", "--all", "--format=fuller"])
}

/// Branches of a repository.
pub fn branches(home: &Home, remote: &Path) -> Vec<String> {
    let said = home.run(remote, "git", &["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
    said.lines().map(str::to_owned).collect()
}
