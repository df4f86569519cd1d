//! Looks at finished work and at what has landed: what it changes, and whether it merges.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{LandingRepository, TRAILER};
use crate::{Vcs, git_run::Git, lock::io, workspace::WorkspaceError};

/// Maximum number of commits of a target that are searched for landings.
const SEARCHED: &str = "--max-count=2000";

/// What a commit changes, and what must not land.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub files: Vec<String>,
    /// Added or changed submodules, with their commits.
    pub submodules: Vec<(String, String)>,
    /// Files with conflict markers in added lines.
    pub markers: Vec<String>,
}

impl LandingRepository {
    /// Which of these pairs of commits merge, and the files in which the others conflict. Nothing is written.
    pub fn forecast(&self, pairs: &[(String, String)]) -> Result<Vec<Option<Vec<String>>>, WorkspaceError> {
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let aside = tempfile::tempdir().map_err(io("make", &std::env::temp_dir()))?;
        let mut run = self.git.run(Vec::<String>::new())?;
        if let Some(file) = &self.attributes {
            run = run.arg("-c").arg(format!("core.attributesFile={}", file.path().display()));
        }
        run = run.args(["merge-tree", "--stdin", "--name-only", "--no-messages", "--allow-unrelated-histories"]);
        let objects = std::env::join_paths([self.common.join("objects")]).unwrap_or_default();
        run = run.env("GIT_OBJECT_DIRECTORY", aside.path()).env("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects);
        let feed: String = pairs.iter().map(|(one, other)| format!("{one} {other}\n")).collect();
        let said = run.ok_fed(|to| to.write_all(feed.as_bytes()))?;
        let mut words = said.split(|byte| *byte == 0);
        let mut merged = Vec::new();
        while let (Some(status), Some(_)) = (words.next().filter(|word| !word.is_empty()), words.next()) {
            let names = words.by_ref().take_while(|word| !word.is_empty());
            let mut files: Vec<String> = names.map(|name| String::from_utf8_lossy(name).into_owned()).collect();
            files.sort();
            files.dedup();
            merged.push((status != b"1").then_some(files));
        }
        match merged.len() == pairs.len() {
            true => Ok(merged),
            false => Err(WorkspaceError::Stays { why: "git merge-tree did not answer for every commit".to_owned() }),
        }
    }

    /// The files that the commits of each tip change, without those that `target` has. Merges count for nothing.
    pub fn changed_files(&self, target: &str, tips: &[String]) -> Result<Vec<BTreeSet<String>>, WorkspaceError> {
        let run = self.git.run(["log", "-z", "--name-only", "--no-renames", "--format=%x01%H %P", "--stdin"])?;
        let feed: String = tips.iter().map(|tip| format!("{tip}\n")).chain([format!("^{target}\n")]).collect();
        let said = run.ok_fed(|to| to.write_all(feed.as_bytes()))?;
        let mut commits: BTreeMap<String, (Vec<String>, Vec<String>)> = BTreeMap::new();
        for part in String::from_utf8_lossy(&said).split('\u{1}').filter(|part| !part.is_empty()) {
            let (head, files) = part.split_once('\0').unwrap_or((part, ""));
            let mut names = head.split_whitespace().map(str::to_owned);
            let Some(commit) = names.next() else { continue };
            let files = files.split('\0').map(|file| file.trim_start_matches('\n'));
            let files = files.filter(|file| !file.is_empty()).map(str::to_owned).collect();
            commits.insert(commit, (names.collect(), files));
        }
        let mut changed = Vec::new();
        for tip in tips {
            let (mut files, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![tip.clone()]);
            while let Some(commit) = open.pop() {
                if let Some((parents, own)) = commits.get(&commit).filter(|_| seen.insert(commit.clone())) {
                    files.extend(own.iter().cloned());
                    open.extend(parents.iter().cloned());
                }
            }
            changed.push(files);
        }
        Ok(changed)
    }

    /// What a commit changes since it left `target`.
    pub fn changes(&self, target: &str, tip: &str) -> Result<Changes, WorkspaceError> {
        let Some(base) = self.git.run(["merge-base", target, tip])?.maybe()? else {
            return Err(WorkspaceError::NoBase { text: tip.to_owned() });
        };
        let raw = self.git.run(["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-abbrev", &base, tip])?.ok()?;
        let mut words = raw.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        let mut changes = Changes::default();
        while let (Some(facts), Some(path)) = (words.next().filter(|word| !word.is_empty()), words.next()) {
            let facts: Vec<&str> = facts.split(' ').collect();
            if facts.get(1) == Some(&"160000") {
                changes.submodules.push((path.clone(), facts.get(3).copied().unwrap_or_default().to_owned()));
            }
            changes.files.push(path);
        }
        let signs = "-G^(<<<<<<<|>>>>>>>) ";
        let marked = ["diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=AM", signs, &base, tip];
        let marked = self.git.run(marked)?.ok()?;
        let names = marked.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        for name in names.map(|name| String::from_utf8_lossy(name).into_owned()) {
            // The change may also have removed markers.
            let content = self.git.run(["cat-file", "blob", &format!("{tip}:{name}")])?.ok()?;
            if has_markers(&content) {
                changes.markers.push(name);
            }
        }
        Ok(changes)
    }

    /// What a commit changes since it left `target`, in the format of git.
    pub fn diff(&self, target: &str, tip: &str) -> Result<Vec<u8>, WorkspaceError> {
        let ask = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", &format!("{target}...{tip}")];
        Ok(self.git.run(ask)?.ok()?)
    }

    /// Whether a branch of a submodule, as the user's checkout has it, contains a commit. Where the submodule is not checked
    /// out, nothing is known of it.
    pub fn submodule_has(&self, checkout: &Path, path: &str, commit: &str) -> Result<bool, WorkspaceError> {
        let dir = checkout.join(path);
        let Some(found) = crate::find(&dir)?.filter(|found| found.root == dir && found.vcs == Vcs::Git) else {
            return Ok(true);
        };
        let git = Git::foreign(&dir, &found.common_dir)?;
        Ok(git.run(["cat-file", "-e", &format!("{commit}^{{commit}}")])?.end()?.code == 0)
    }

    /// Landings that a branch contains, with their tips, by the trailers of its newest commits.
    pub fn landed_in(&self, branch: &str) -> Result<BTreeMap<(String, String), String>, WorkspaceError> {
        let format = format!("--format=%H%x00%(trailers:key={TRAILER},valueonly,separator=%x20)%x00");
        let grep = format!("--grep=^{TRAILER}: ");
        let said =
            self.git.run(["log", SEARCHED, "--first-parent", &grep, &format, "--end-of-options", branch])?.text()?;
        let mut found = BTreeMap::new();
        let mut words = said.split('\0').map(str::trim);
        while let (Some(commit), Some(value)) = (words.next().filter(|word| !word.is_empty()), words.next()) {
            let value: Vec<&str> = value.split_whitespace().collect();
            for pair in value.chunks_exact(2) {
                found.insert((pair[0].to_owned(), pair[1].to_owned()), commit.to_owned());
            }
        }
        Ok(found)
    }

    /// The last commits of a branch that changed one of these files, and the landings that their trailers name.
    pub fn landings_of_files(
        &self,
        since: &str,
        branch: &str,
        files: &[String],
    ) -> Result<Vec<String>, WorkspaceError> {
        // A range and paths in one question would leave out merges whose first parent is outside of the range.
        let new = self.git.run(["rev-list", "--first-parent", &format!("{since}..{branch}")])?.text()?;
        let format = format!("--format=%H %(trailers:key={TRAILER},valueonly,separator=%x20)");
        let mut run = self.git.run(["log", "--first-parent", "--max-count=200", &format, branch, "--"])?;
        run = run.args(files.iter().map(|file| format!(":(top,literal){file}")));
        let said = run.text()?;
        let mut found: Vec<String> = Vec::new();
        for line in said.lines() {
            let mut words = line.split_whitespace();
            let is_new = words.next().is_some_and(|commit| new.lines().any(|known| known == commit));
            if let Some(id) = words.next().filter(|id| is_new && !found.iter().any(|known| known == id)) {
                found.push(id.to_owned());
            }
        }
        Ok(found)
    }
}

fn has_markers(content: &[u8]) -> bool {
    let starts = |sign: &[u8]| content.split(|byte| *byte == b'\n').any(|line| line.starts_with(sign));
    starts(b"<<<<<<< ") && starts(b">>>>>>> ") && starts(b"=======")
}
