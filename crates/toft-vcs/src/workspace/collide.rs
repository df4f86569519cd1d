//! Finds workspaces that cannot be merged with each other, by `git merge-tree` on every pair of their commits.
//!
//! Pairs that change no common path cannot conflict and are skipped. A path that is a directory on the other side
//! counts as common. If one side deletes files and the other adds some, git may detect a renamed directory, so such
//! pairs are merged too. The result for a pair of commits never changes and is cached.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::{WorkspaceBackend, WorkspaceError};
use crate::{command::Run, git_run::Git, lock::io};

/// The cache file.
const PAIRS: &str = "pairs.json";
/// Maximum number of changed paths that are kept for a head.
const MOST_PATHS: usize = 2_000;

/// Two commits that git cannot merge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conflict {
    pub heads: (String, String),
    /// The conflicting paths.
    pub paths: Vec<String>,
}

/// Work in progress: commits that have not landed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InProgress {
    /// Pairs that git cannot merge.
    pub conflicts: Vec<Conflict>,
    /// Paths that are changed by the commits up to a head.
    pub changed: BTreeMap<String, Vec<String>>,
}

#[derive(Default, Serialize, Deserialize)]
struct Pairs {
    /// Hash of the heads and targets for which `found` was computed.
    about: u64,
    found: InProgress,
    /// Conflicting paths by pair of commits; empty if they merge.
    known: BTreeMap<String, Vec<String>>,
}

/// The result of a trial merge.
pub(super) struct MergeResult {
    pub(super) clean: bool,
    pub(super) tree: String,
    paths: Vec<String>,
}

/// Merges pairs of commits in one git process. The objects that it writes are discarded.
pub(super) fn merge(git: &Git, objects: &[&Path], pairs: &[(&str, &str)]) -> Result<Vec<MergeResult>, WorkspaceError> {
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let aside = tempfile::tempdir().map_err(io("make", Path::new("a temporary directory")))?;
    let all = std::env::join_paths(objects).unwrap_or_default();
    let ask = ["merge-tree", "--stdin", "--name-only", "--no-messages", "--allow-unrelated-histories"];
    let run = git.run(ask)?.env("GIT_OBJECT_DIRECTORY", aside.path()).env("GIT_ALTERNATE_OBJECT_DIRECTORIES", all);
    let feed: String = pairs.iter().map(|(one, other)| format!("{one} {other}\n")).collect();
    let said = run.ok_fed(|to| to.write_all(feed.as_bytes()))?;
    let mut words = said.split(|byte| *byte == 0);
    let mut merged = Vec::new();
    while let (Some(status), Some(tree)) = (words.next().filter(|word| !word.is_empty()), words.next()) {
        let names = words.by_ref().take_while(|word| !word.is_empty());
        let mut paths: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        paths.sort();
        paths.dedup();
        merged.push(MergeResult { clean: status == b"1", tree: String::from_utf8_lossy(tree).into_owned(), paths });
    }
    match merged.len() == pairs.len() {
        true => Ok(merged),
        false => Err(WorkspaceError::Stays { why: "git merge-tree did not answer for every pair".to_owned() }),
    }
}

impl WorkspaceBackend {
    /// The work in progress at these heads, without commits that `targets` contain. `clones` are repositories with some
    /// of the commits.
    pub fn in_progress(
        &self,
        heads: &BTreeSet<String>,
        targets: &BTreeSet<String>,
        clones: &[std::path::PathBuf],
    ) -> Result<InProgress, WorkspaceError> {
        if !self.system().has_git_files() || heads.is_empty() {
            return Ok(InProgress::default());
        }
        let mut hasher = DefaultHasher::new();
        (heads, targets).hash(&mut hasher);
        let about = hasher.finish();
        let mut pairs: Pairs = self.recalled(PAIRS);
        if pairs.about == about {
            return Ok(pairs.found);
        }
        let objects: Vec<_> =
            [self.common_dir.join("objects")].into_iter().chain(clones.iter().map(|dir| dir.join("objects"))).collect();
        let shared = std::env::join_paths(&objects).unwrap_or_default();
        let git = self.git()?;
        let ask = |args: &[&str]| -> Result<Run, WorkspaceError> {
            Ok(git.run(args)?.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &shared))
        };
        // A missing commit would make git fail for all.
        let there = |names: &BTreeSet<String>| -> Result<Vec<String>, WorkspaceError> {
            let feed: String = names.iter().map(|name| format!("{name}\n")).collect();
            let said = ask(&["cat-file", "--batch-check"])?.ok_fed(|to| to.write_all(feed.as_bytes()))?;
            let said = String::from_utf8_lossy(&said).into_owned();
            let commits = said.lines().filter_map(|line| line.split_once(" commit ").map(|(name, _)| name.to_owned()));
            Ok(commits.collect())
        };
        let (heads, targets) = (there(heads)?, there(targets)?);
        let all: Vec<&String> = heads.iter().chain(&targets).collect();
        let common = match all.len() {
            0 => None,
            _ => ask(&["merge-base", "--octopus"])?.args(&all).maybe()?,
        };
        let log =
            ask(&["log", "-z", "-m", "--no-renames", "--name-status", "--no-show-signature", "--format=%x01%H %P"])?;
        let log = log.args(&all).args(common.iter().flat_map(|common| ["--not", common])).ok()?;
        let history = CommitHistory::read(&log);
        let landed = history.reach(targets.iter());
        let open: Vec<(String, HashSet<usize>)> =
            heads.into_iter().map(|head| (head.clone(), history.reach([&head]))).collect();
        let open: Vec<_> = open.into_iter().filter(|(_, reach)| !reach.is_subset(&landed)).collect();
        let mut tried: Vec<(&str, &str)> = Vec::new();
        for (n, (one, ours)) in open.iter().enumerate() {
            for (other, theirs) in &open[n + 1..] {
                if history.meet(ours, theirs) {
                    tried.push((one, other));
                }
            }
        }
        let name = |(one, other): &(&str, &str)| format!("{one} {other}");
        let unknown: Vec<(&str, &str)> =
            tried.iter().filter(|pair| !pairs.known.contains_key(&name(pair))).copied().collect();
        let places: Vec<&Path> = objects.iter().map(std::path::PathBuf::as_path).collect();
        for (pair, merged) in unknown.iter().zip(merge(git, &places, &unknown)?) {
            // A conflict without a path is still a conflict.
            let paths = if merged.paths.is_empty() { vec![".".to_owned()] } else { merged.paths };
            pairs.known.insert(name(pair), if merged.clean { Vec::new() } else { paths });
        }
        pairs.known.retain(|known, _| tried.iter().any(|pair| name(pair) == *known));
        let conflicts = tried.iter().filter_map(|pair| {
            let paths = pairs.known.get(&name(pair)).filter(|paths| !paths.is_empty())?.clone();
            Some(Conflict { heads: (pair.0.to_owned(), pair.1.to_owned()), paths })
        });
        let conflicts = conflicts.collect();
        let changed = open.iter().map(|(head, reach)| (head.clone(), history.paths(reach, &landed))).collect();
        pairs.found = InProgress { conflicts, changed };
        pairs.about = about;
        self.remember(PAIRS, &pairs);
        Ok(pairs.found)
    }
}

/// Commits with the paths that each changes.
#[derive(Default)]
struct CommitHistory {
    numbers: HashMap<String, usize>,
    commits: Vec<ChangedPaths>,
}

#[derive(Default)]
struct ChangedPaths {
    parents: Vec<String>,
    paths: BTreeSet<String>,
    adds: bool,
    deletes: bool,
}

impl CommitHistory {
    /// Parses the output of `git log -z --name-status`: each commit begins with a byte that no path contains, followed
    /// by status letters and paths.
    fn read(log: &[u8]) -> Self {
        let mut history = Self::default();
        let mut at = None;
        let mut words = log.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            if let Some(header) = word.strip_prefix(b"\x01") {
                let text = String::from_utf8_lossy(header).into_owned();
                let mut names = text.split_ascii_whitespace().map(str::to_owned);
                let Some(name) = names.next() else { continue };
                let next = history.commits.len();
                let number = *history.numbers.entry(name).or_insert(next);
                if number == next {
                    history.commits.push(ChangedPaths { parents: names.collect(), ..ChangedPaths::default() });
                }
                at = Some(number);
                continue;
            }
            let letter = word.strip_prefix(b"\n").unwrap_or(word);
            let (Some(path), Some(commit)) = (words.next(), at.and_then(|at| history.commits.get_mut(at))) else {
                break;
            };
            commit.adds |= letter.starts_with(b"A");
            commit.deletes |= letter.starts_with(b"D");
            commit.paths.insert(String::from_utf8_lossy(path).into_owned());
        }
        history
    }

    /// The heads and all their ancestors.
    fn reach<'h>(&self, heads: impl IntoIterator<Item = &'h String>) -> HashSet<usize> {
        let mut reached = HashSet::new();
        let mut look: Vec<usize> = heads.into_iter().filter_map(|head| self.numbers.get(head).copied()).collect();
        while let Some(at) = look.pop() {
            if reached.insert(at) {
                look.extend(self.commits[at].parents.iter().filter_map(|name| self.numbers.get(name).copied()));
            }
        }
        reached
    }

    /// Paths that the commits in `reach` change, without those in `without`.
    fn paths(&self, reach: &HashSet<usize>, without: &HashSet<usize>) -> Vec<String> {
        let own: BTreeSet<&String> = reach.difference(without).flat_map(|at| &self.commits[*at].paths).collect();
        own.into_iter().take(MOST_PATHS).cloned().collect()
    }

    /// Whether merging two histories may conflict. A history that contains the other cannot.
    fn meet(&self, ours: &HashSet<usize>, theirs: &HashSet<usize>) -> bool {
        let side = |reach: &HashSet<usize>, without: &HashSet<usize>| {
            let mut side = ChangedPaths::default();
            for commit in reach.difference(without).map(|at| &self.commits[*at]) {
                side.paths.extend(commit.paths.iter().cloned());
                side.adds |= commit.adds;
                side.deletes |= commit.deletes;
            }
            side
        };
        let (one, other) = (side(ours, theirs), side(theirs, ours));
        if one.paths.is_empty() || other.paths.is_empty() {
            return false;
        }
        let below = |side: &ChangedPaths, path: &String| {
            Path::new(path).ancestors().skip(1).any(|part| part.to_str().is_some_and(|part| side.paths.contains(part)))
        };
        one.adds && other.deletes
            || one.deletes && other.adds
            || one.paths.iter().any(|path| other.paths.contains(path) || below(&other, path))
            || other.paths.iter().any(|path| below(&one, path))
            || self.crossed(ours, theirs)
    }

    /// Whether two histories have several merge bases, which git then merges first.
    fn crossed(&self, ours: &HashSet<usize>, theirs: &HashSet<usize>) -> bool {
        let shared: HashSet<usize> = ours.intersection(theirs).copied().collect();
        let inner: HashSet<usize> = shared
            .iter()
            .flat_map(|at| self.commits[*at].parents.iter().filter_map(|name| self.numbers.get(name).copied()))
            .collect();
        shared.difference(&inner).count() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: &[(&str, &str, &str)]) -> CommitHistory {
        let log: Vec<String> =
            lines.iter().map(|(name, parents, files)| format!("\x01{name} {parents}\0\n{files}")).collect();
        CommitHistory::read(log.join("").as_bytes())
    }

    #[test]
    fn pairs_are_tried_where_their_paths_meet() {
        let all = history(&[
            ("a", "o", "M\0src/x\0"),
            ("b", "o", "M\0src/y\0"),
            ("c", "o", "M\0src/x\0"),
            ("d", "o", "A\0src/x/deep\0"),
            ("e", "o", "D\0old/z\0"),
            ("f", "a", "M\0src/y\0"),
        ]);
        let meet = |one: &str, other: &str| {
            let reach = |name: &str| all.reach([&name.to_owned()]);
            all.meet(&reach(one), &reach(other))
        };
        assert!(meet("a", "c"), "the same path");
        assert!(!meet("a", "b"), "other paths");
        assert!(meet("a", "d") && meet("d", "a"), "a file and a directory");
        assert!(meet("d", "e"), "one adds where the other may have renamed a directory");
        assert!(!meet("a", "f"), "one builds on the other");
        assert!(meet("b", "f"));
    }
}
