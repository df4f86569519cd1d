//! Merges pairs of commits with `git merge-tree`, without keeping what it writes.

use std::path::Path;

use super::WorkspaceError;
use crate::{git_run::Git, lock::io};

/// The result of a trial merge.
pub(super) struct MergeResult {
    pub(super) clean: bool,
    pub(super) tree: String,
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
        // The names of conflicting files follow, up to an empty one.
        let _conflicts = words.by_ref().take_while(|word| !word.is_empty()).count();
        merged.push(MergeResult { clean: status == b"1", tree: String::from_utf8_lossy(tree).into_owned() });
    }
    match merged.len() == pairs.len() {
        true => Ok(merged),
        false => Err(WorkspaceError::Stays { why: "git merge-tree did not answer for every pair".to_owned() }),
    }
}
