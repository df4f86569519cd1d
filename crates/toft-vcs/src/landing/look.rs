//! Looks at finished work and at what has landed: what it changes, and whether it merges.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::Path,
};

use toft_core::landing::WorkChanges;

use super::{LandingRepository, TRAILER};
use crate::{Vcs, command::Run, git_run::Git, lock::io, workspace::WorkspaceError};

/// Maximum number of commits of a target that are searched for landings.
const SEARCHED: &str = "--max-count=2000";

/// A commit as `git log --raw` shows it.
#[derive(Default)]
struct LoggedCommit {
    parents: Vec<String>,
    subject: String,
    files: Vec<String>,
    submodules: Vec<(String, String)>,
}

impl LoggedCommit {
    fn read(part: &str) -> Option<(String, Self)> {
        let mut fields = part.splitn(3, '\u{2}');
        let (head, subject, raw) = (fields.next()?, fields.next()?, fields.next().unwrap_or_default());
        let mut names = head.split_whitespace().map(str::to_owned);
        let commit = names.next()?;
        let mut found = Self { parents: names.collect(), subject: subject.to_owned(), ..Self::default() };
        let mut words = raw.split('\0').map(|word| word.trim_start_matches('\n')).filter(|word| !word.is_empty());
        while let (Some(facts), Some(path)) = (words.next(), words.next()) {
            let facts: Vec<&str> = facts.split(' ').collect();
            if facts.get(1) == Some(&"160000") {
                found.submodules.push((path.to_owned(), facts.get(3).copied().unwrap_or_default().to_owned()));
            }
            found.files.push(path.to_owned());
        }
        Some((commit, found))
    }
}

/// Objects that are of no use later.
pub(super) struct ObjectsAside {
    dir: tempfile::TempDir,
    known: OsString,
}

impl ObjectsAside {
    /// Lets git write objects here, and read those of the repository, too.
    pub(super) fn of(&self, run: Run) -> Run {
        run.env("GIT_OBJECT_DIRECTORY", self.dir.path()).env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &self.known)
    }
}

impl LandingRepository {
    /// A place for objects of one question: the repository stays as it is.
    pub(super) fn objects_aside(&self) -> Result<ObjectsAside, WorkspaceError> {
        let dir = tempfile::tempdir().map_err(io("make", &std::env::temp_dir()))?;
        let known = std::env::join_paths([self.common.join("objects")]).unwrap_or_default();
        Ok(ObjectsAside { dir, known })
    }

    /// Which of these pairs of commits merge, and the files in which the others conflict. Nothing is written.
    pub fn forecast(&self, pairs: &[(String, String)]) -> Result<Vec<Option<Vec<String>>>, WorkspaceError> {
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let aside = self.objects_aside()?;
        let mut run = self.git.run(Vec::<String>::new())?;
        if let Some(file) = &self.attributes {
            run = run.arg("-c").arg(format!("core.attributesFile={}", file.path().display()));
        }
        run = run.args(["merge-tree", "--stdin", "--name-only", "--no-messages", "--allow-unrelated-histories"]);
        run = aside.of(run);
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

    /// What the commits of each tip change, without those that `target` has. Merges count for nothing.
    pub fn changes(&self, target: &str, tips: &[String]) -> Result<Vec<WorkChanges>, WorkspaceError> {
        let feed: String = tips.iter().map(|tip| format!("{tip}\n")).chain([format!("^{target}\n")]).collect();
        let log = |args: &[&str]| -> Result<String, WorkspaceError> {
            let run = self.git.run(["log", "--stdin", "-z", "--no-renames"])?.args(args);
            Ok(String::from_utf8_lossy(&run.ok_fed(|to| to.write_all(feed.as_bytes()))?).into_owned())
        };
        let said = log(&["--raw", "--no-abbrev", "--format=%x01%H %P%x02%s%x02"])?;
        let commits: BTreeMap<String, LoggedCommit> = said.split('\u{1}').filter_map(LoggedCommit::read).collect();
        let said = log(&["--name-only", "--diff-filter=AM", "-G^(<<<<<<<|>>>>>>>) ", "--format=%x01%H"])?;
        let mut marked: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for part in said.split('\u{1}').filter(|part| !part.is_empty()) {
            let mut words = part.split('\0').map(|word| word.trim_start_matches('\n')).filter(|word| !word.is_empty());
            if let Some(commit) = words.next() {
                marked.insert(commit.to_owned(), words.map(str::to_owned).collect());
            }
        }
        let mut all = Vec::new();
        for tip in tips {
            let mut changes = WorkChanges { contained: !commits.contains_key(tip), ..WorkChanges::default() };
            let (mut seen, mut open, mut suspects) = (BTreeSet::new(), vec![tip.clone()], BTreeSet::new());
            while let Some(commit) = open.pop() {
                let Some(found) = commits.get(&commit).filter(|_| seen.insert(commit.clone())) else { continue };
                changes.merges |= found.parents.len() > 1;
                changes.files.extend(found.files.iter().cloned());
                changes.submodules.extend(found.submodules.iter().cloned());
                suspects.extend(marked.get(&commit).into_iter().flatten());
                open.extend(found.parents.iter().cloned());
            }
            changes.subject = commits.get(tip).map(|found| found.subject.clone()).unwrap_or_default();
            for name in suspects {
                // A later commit may have removed them.
                let content = self.git.run(["cat-file", "blob", &format!("{tip}:{name}")])?.end()?;
                if content.code == 0 && has_markers(&content.out) {
                    changes.markers.push(name.clone());
                }
            }
            all.push(changes);
        }
        Ok(all)
    }

    /// Commits of a piece of work that the target and landed work do not have, and that were made before `since`, in seconds.
    pub fn older_commits(
        &self,
        target: &str,
        tip: &str,
        landed: &[String],
        since: i64,
    ) -> Result<Vec<String>, WorkspaceError> {
        let own = self.commits_beyond(target, landed, &[tip.to_owned()], "%ct")?;
        let is_older = |at: &str| at.parse().is_ok_and(|at: i64| at < since);
        Ok(own.into_iter().filter(|(at, _)| is_older(at)).map(|(_, what)| what).collect())
    }

    /// Commits of a piece of work that the target and landed work do not have, and that one of its bases has.
    pub fn commits_of_bases(
        &self,
        target: &str,
        tip: &str,
        landed: &[String],
        bases: &[String],
    ) -> Result<Vec<String>, WorkspaceError> {
        let before = self.commits_beyond(target, landed, bases, "%H")?;
        if before.is_empty() {
            return Ok(Vec::new());
        }
        let own: BTreeSet<String> =
            self.commits_beyond(target, landed, &[tip.to_owned()], "%H")?.into_iter().map(|(id, _)| id).collect();
        Ok(before.into_iter().filter(|(id, _)| own.contains(id)).map(|(_, what)| what).collect())
    }

    /// Commits that lead to `tips` and that neither the target nor landed work has: a word of each, and its short name with
    /// its subject.
    fn commits_beyond(
        &self,
        target: &str,
        landed: &[String],
        tips: &[String],
        word: &str,
    ) -> Result<Vec<(String, String)>, WorkspaceError> {
        let without = landed.iter().map(String::as_str).chain([target]).map(|commit| format!("^{commit}\n"));
        let asked: String = tips.iter().map(|tip| format!("{tip}\n")).chain(without).collect();
        let format = format!("--format={word} %h %s");
        let run = self.git.run(["log", "--ignore-missing", "--stdin", "--no-merges", &format])?;
        let said = run.ok_fed(|to| to.write_all(asked.as_bytes()))?;
        let said = String::from_utf8_lossy(&said).into_owned();
        let lines = said.lines().filter_map(|line| line.split_once(' '));
        Ok(lines.map(|(word, what)| (word.to_owned(), what.to_owned())).collect())
    }

    /// What a commit changes since it left `target`, in the format of git.
    pub fn diff(&self, target: &str, tip: &str) -> Result<Vec<u8>, WorkspaceError> {
        Ok(self.run_diff(target, tip)?.ok()?)
    }

    pub(super) fn run_diff(&self, target: &str, tip: &str) -> Result<Run, WorkspaceError> {
        let ask = ["diff", "--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/"];
        Ok(self.git.run(ask)?.arg(format!("{target}...{tip}")))
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
