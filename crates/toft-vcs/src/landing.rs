//! Builds commits that would be the next tip of a target branch, and moves the target to them.
//!
//! Nothing here needs a working directory: `merge-tree` merges, `commit-tree` records. A ref only moves from the value
//! that the caller names.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::{
    Checkout, Vcs,
    command::Run,
    exchange::{ancestor, anonymous},
    git_run::Git,
    lock::{io, retry},
    workspace::WorkspaceError,
};

/// Where finished commits are kept until they have landed.
const QUEUE: &str = "refs/toft/queue/";
/// Where the result waits while the target is checked out.
const LANDED: &str = "refs/toft/landed/";
/// Maximum number of commits of a target that are searched for landings.
const SEARCHED: &str = "--max-count=2000";
/// The trailer that names a landing and its tip.
pub const TRAILER: &str = "Toft-Landing";

/// How commits get into the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MergeWay {
    /// A merge commit.
    #[default]
    Merge,
    /// One commit with all changes.
    Squash,
    /// Each commit again, on top of the target.
    Rebase,
}

/// A commit that would be the target's next tip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateCommit {
    pub commit: String,
    pub tree: String,
}

/// The result of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merged {
    /// It merged.
    Clean(CandidateCommit),
    /// These files conflict.
    Conflict(Vec<String>),
    /// The target has all of it already.
    Nothing,
}

/// What a commit changes, and what must not land.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    pub files: Vec<String>,
    /// Added or changed submodules, with their commits.
    pub submodules: Vec<(String, String)>,
    /// Files with conflict markers in added lines.
    pub markers: Vec<String>,
}

/// A checkout that has a branch checked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetCheckout {
    pub dir: PathBuf,
}

/// A repository in which work lands.
pub struct LandingRepository {
    git: Git,
    common: PathBuf,
    attributes: Option<NamedTempFile>,
    /// The user has a name and an address for commits.
    has_name: OnceCell<bool>,
}

impl LandingRepository {
    /// The repository of a checkout. In files that match `union`, both sides of a conflict are kept.
    pub fn open(checkout: &Checkout, union: &[String]) -> Result<Self, WorkspaceError> {
        let common = match checkout.vcs {
            Vcs::Git => checkout.common_dir.clone(),
            Vcs::Jj if checkout.common_dir.join("store/git").is_dir() => checkout.common_dir.join("store/git"),
            Vcs::Jj => checkout.common_dir.clone(),
            Vcs::Hg | Vcs::Sl | Vcs::None => {
                return Err(WorkspaceError::NotFor { what: "landing", vcs: checkout.vcs.as_str() });
            }
        };
        let attributes = match union {
            [] => None,
            patterns => {
                let file = NamedTempFile::with_prefix("toft-attributes-");
                let mut file = file.map_err(io("make", &std::env::temp_dir()))?;
                for pattern in patterns {
                    let quoted = pattern.replace('\\', "\\\\").replace('"', "\\\"");
                    writeln!(file, "\"{quoted}\" merge=union").map_err(io("write", Path::new("attributes")))?;
                }
                Some(file)
            }
        };
        Ok(Self { git: Git::of(&common)?, common, attributes, has_name: OnceCell::new() })
    }

    /// The commit of a branch, by its full or short name.
    pub fn commit(&self, name: &str) -> Result<Option<String>, WorkspaceError> {
        let name = format!("{}^{{commit}}", full_name(name));
        Ok(self.git.run(["rev-parse", "--verify", "--quiet", "--end-of-options", &name])?.maybe()?)
    }

    /// The commit on which the next landing is built: the target's, or the result that waits for it. Returns it with
    /// the target's own commit.
    pub fn newest(&self, target: &str) -> Result<Option<(String, String)>, WorkspaceError> {
        let Some(here) = self.commit(target)? else { return Ok(None) };
        let waiting = self.commit(&landed_ref(target))?;
        Ok(Some(match waiting {
            Some(waiting) if waiting != here && ancestor(&self.git, &here, &waiting)? => (waiting, here),
            _ => (here.clone(), here),
        }))
    }

    /// A result that waits for a target and that the target does not contain, because it moved on meanwhile.
    pub fn diverged(&self, target: &str) -> Result<Option<String>, WorkspaceError> {
        let (Some(here), Some(waiting)) = (self.commit(target)?, self.commit(&landed_ref(target))?) else {
            return Ok(None);
        };
        let related = ancestor(&self.git, &here, &waiting)? || ancestor(&self.git, &waiting, &here)?;
        Ok((!related).then_some(waiting))
    }

    /// Whether a commit is in the history of another.
    pub fn contains(&self, commit: &str, ancestor_of: &str) -> Result<bool, WorkspaceError> {
        Ok(ancestor(&self.git, commit, ancestor_of)?)
    }

    /// The tree of a commit.
    pub fn tree(&self, commit: &str) -> Result<String, WorkspaceError> {
        Ok(self.git.run(["rev-parse", "--verify", "--end-of-options", &format!("{commit}^{{tree}}")])?.text()?)
    }

    /// The first line of a commit's message.
    pub fn subject(&self, commit: &str) -> Result<String, WorkspaceError> {
        Ok(self.git.run(["log", "-1", "--format=%s", "--end-of-options", commit])?.text()?)
    }

    /// Keeps a commit until it has landed.
    pub fn pin(&self, name: &str, commit: &str) -> Result<(), WorkspaceError> {
        Ok(retry(|| self.git.run(["update-ref", &format!("{QUEUE}{name}"), commit])?.ok()).map(drop)?)
    }

    /// Fetches a commit from a clone, and keeps it until it has landed.
    pub fn pin_from(&self, clone: &Path, name: &str, commit: &str) -> Result<(), WorkspaceError> {
        let abroad = Git::of_remotes(&self.common)?;
        let spec = format!("+{commit}:{QUEUE}{name}");
        let allowed = ["-c", "uploadpack.allowAnySHA1InWant=true"];
        let run = abroad.run(allowed)?.args(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"]);
        Ok(run.arg(clone).arg(spec).ok().map(drop)?)
    }

    /// Lets go of a commit that has landed.
    pub fn unpin(&self, name: &str) -> Result<(), WorkspaceError> {
        Ok(retry(|| self.git.run(["update-ref", "-d", &format!("{QUEUE}{name}")])?.ok()).map(drop)?)
    }

    /// Merges a commit into another. The message gets the trailers.
    pub fn candidate(
        &self,
        onto: &str,
        tip: &str,
        way: MergeWay,
        subject: &str,
        trailers: &[(String, String)],
    ) -> Result<Merged, WorkspaceError> {
        if way == MergeWay::Rebase {
            return self.rebased(onto, tip, trailers);
        }
        let tree = match self.merge(None, onto, tip)? {
            Ok(tree) => tree,
            Err(files) => return Ok(Merged::Conflict(files)),
        };
        let message = message(subject, "", trailers);
        let commit = match way {
            MergeWay::Merge => self.record(&["-p", onto, "-p", tip, "-m", &message, &tree])?.text()?,
            MergeWay::Squash | MergeWay::Rebase => self.again(&tree, onto, tip, &message)?,
        };
        Ok(Merged::Clean(CandidateCommit { commit, tree }))
    }

    /// A commit on top of `onto` that takes back what came with `landed` after `before`.
    pub fn reverted(&self, onto: &str, landed: &str, before: &str, subject: &str) -> Result<Merged, WorkspaceError> {
        let tree = match self.merge(Some(landed), onto, before)? {
            Ok(tree) => tree,
            Err(files) => return Ok(Merged::Conflict(files)),
        };
        if tree == self.tree(onto)? {
            return Ok(Merged::Nothing);
        }
        let message = message(subject, &format!("This takes back {landed}."), &[]);
        let commit = self.record(&["-p", onto, "-m", &message, &tree])?.text()?;
        Ok(Merged::Clean(CandidateCommit { commit, tree }))
    }

    /// A commit that needs a committer.
    fn record(&self, args: &[&str]) -> Result<Run, WorkspaceError> {
        let has_name = match self.has_name.get() {
            Some(known) => *known,
            None => {
                let asked = self.git.run(["var", "GIT_COMMITTER_IDENT"])?.maybe()?.is_some();
                *self.has_name.get_or_init(|| asked)
            }
        };
        let run = self.git.run(["commit-tree"])?.args(args);
        Ok(if has_name { run } else { anonymous(run) })
    }

    /// A tree as a commit with the author of another commit.
    fn again(&self, tree: &str, parent: &str, like: &str, message: &str) -> Result<String, WorkspaceError> {
        let said = self.git.run(["log", "-1", "--format=%an%x00%ae%x00%ad", "--date=raw", like])?.text()?;
        let mut author = said.split('\0');
        let mut commit = self.record(&["-p", parent, "-m", message, tree])?;
        for name in ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE"] {
            commit = commit.env(name, author.next().unwrap_or_default());
        }
        Ok(commit.text()?)
    }

    fn rebased(&self, onto: &str, tip: &str, trailers: &[(String, String)]) -> Result<Merged, WorkspaceError> {
        let range = format!("{onto}..{tip}");
        let listed = self.git.run(["rev-list", "--reverse", "--topo-order", "--no-merges", &range])?.text()?;
        let commits: Vec<&str> = listed.lines().collect();
        let (mut at, mut tree) = (onto.to_owned(), self.tree(onto)?);
        for (number, commit) in commits.iter().enumerate() {
            let merged = match self.merge(Some(&format!("{commit}^")), &at, commit)? {
                Ok(merged) => merged,
                Err(files) => return Ok(Merged::Conflict(files)),
            };
            let last = number + 1 == commits.len();
            if merged == tree && !last {
                continue;
            }
            let said = self.git.run(["log", "-1", "--format=%B", commit])?.text()?;
            let (subject, body) = said.split_once('\n').unwrap_or((&said, ""));
            let text = message(subject, body, if last { trailers } else { &[] });
            at = self.again(&merged, &at, commit, &text)?;
            tree = merged;
        }
        match at == onto {
            true => Ok(Merged::Nothing),
            false => Ok(Merged::Clean(CandidateCommit { commit: at, tree })),
        }
    }

    /// The merged tree, or the files that conflict.
    fn merge(&self, base: Option<&str>, onto: &str, tip: &str) -> Result<Result<String, Vec<String>>, WorkspaceError> {
        let mut run = self.git.run(Vec::<String>::new())?;
        if let Some(file) = &self.attributes {
            run = run.arg("-c").arg(format!("core.attributesFile={}", file.path().display()));
        }
        run = run.args(["merge-tree", "--write-tree", "--name-only", "--no-messages", "-z"]);
        if let Some(base) = base {
            run = run.arg(format!("--merge-base={base}"));
        }
        let ended = run.args([onto, tip]).end()?;
        if !(0..=1).contains(&ended.code) {
            ended.ok("git merge-tree".into())?;
            return Ok(Err(Vec::new()));
        }
        let mut words = ended.out.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned());
        let tree = words.next().unwrap_or_default();
        if ended.code == 0 {
            return Ok(Ok(tree));
        }
        let mut files: Vec<String> = words.filter(|word| !word.is_empty()).collect();
        files.sort();
        files.dedup();
        Ok(Err(files))
    }

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
        let said = self.git.run(["log", SEARCHED, &grep, &format, "--end-of-options", branch])?.text()?;
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

    /// Checkouts in which a branch is checked out.
    pub fn checkouts(&self, target: &str) -> Result<Vec<TargetCheckout>, WorkspaceError> {
        let listed = self.git.run(["worktree", "list", "--porcelain", "-z"])?.ok()?;
        let wanted = format!("branch {}", full_name(target));
        let (mut found, mut dir) = (Vec::new(), PathBuf::new());
        for line in listed.split(|byte| *byte == 0).map(|line| String::from_utf8_lossy(line).into_owned()) {
            if let Some(path) = line.strip_prefix("worktree ") {
                dir = PathBuf::from(path);
            } else if line == wanted {
                found.push(TargetCheckout { dir: dir.clone() });
            }
        }
        Ok(found)
    }

    /// Moves a branch that is checked out nowhere, if it is still where it was; returns whether it was.
    pub fn move_branch(&self, target: &str, to: &str, from: &str) -> Result<bool, WorkspaceError> {
        self.swap(&full_name(target), to, from)
    }

    /// Moves the result that waits for a target, if it is still where it was.
    pub fn move_waiting(&self, target: &str, to: &str, from: Option<&str>) -> Result<bool, WorkspaceError> {
        self.swap(&landed_ref(target), to, from.unwrap_or(""))
    }

    fn swap(&self, name: &str, to: &str, from: &str) -> Result<bool, WorkspaceError> {
        let ended = self.git.run(["update-ref", "-m", "toft land", "--create-reflog", name, to, from])?.end()?;
        if ended.code == 0 {
            return Ok(true);
        }
        // Another value, or another process that moves it right now.
        match self.git.run(["rev-parse", "--verify", "--quiet", name])?.maybe()?.as_deref() == Some(from) {
            false => Ok(false),
            true if ended.err.contains("lock") => Ok(false),
            true => Ok(ended.ok(format!("git update-ref {name}")).map(|_| true)?),
        }
    }

    /// Forgets a result that its target has taken up.
    pub fn forget_waiting(&self, target: &str) -> Result<(), WorkspaceError> {
        let name = landed_ref(target);
        match self.commit(&name)? {
            Some(at) => Ok(retry(|| self.git.run(["update-ref", "-d", &name, &at])?.ok()).map(drop)?),
            None => Ok(()),
        }
    }

    /// Forgets a result that its target contains.
    pub fn forget_waiting_of(&self, target: &str, own: &str) -> Result<(), WorkspaceError> {
        match self.commit(&landed_ref(target))? {
            Some(waiting) if self.contains(&waiting, own)? => self.forget_waiting(target),
            _ => Ok(()),
        }
    }

    /// Moves a branch together with the checkout that has it checked out, as `git merge --ff-only` does: what is
    /// changed or untracked in the way stops it. Returns the reason if it stays where it is.
    pub fn move_checkout(&self, at: &TargetCheckout, to: &str) -> Result<Option<String>, WorkspaceError> {
        let git = Git::inside(&self.common, &at.dir)?;
        let run =
            git.run(["-c", "merge.ff=only", "-c", "merge.autoStash=false", "merge", "--ff-only", "--quiet", to])?;
        let ended = run.env("GIT_OPTIONAL_LOCKS", "1").end()?;
        if ended.code == 0 {
            return Ok(None);
        }
        let said = ended.err.lines().filter(|line| !line.starts_with("hint:")).map(str::trim).collect::<Vec<_>>();
        Ok(Some(said.join(" ")))
    }

    /// Checks a commit out in a repository of its own, which shares the objects. Ignored files of the last check stay;
    /// everything else is as in the commit.
    pub fn check_out(&self, dir: &Path, commit: &str) -> Result<(), WorkspaceError> {
        if self.check_out_in(dir, commit).is_ok() {
            return Ok(());
        }
        // The last check may have broken it.
        for path in [dir, &dir.with_extension("index")] {
            if fs::symlink_metadata(path).is_ok() {
                remove_all(path)?;
            }
        }
        self.check_out_in(dir, commit)
    }

    fn check_out_in(&self, dir: &Path, commit: &str) -> Result<(), WorkspaceError> {
        let own = dir.join(".git");
        fs::create_dir_all(dir).map_err(io("make", dir))?;
        // A repository that the last check wrote to is not used again, only its files are.
        if fs::symlink_metadata(&own).is_ok() {
            remove_all(&own)?;
        }
        let outside = Git::outside(dir);
        outside.run(["init", "--quiet", "--template=", "--initial-branch=check"])?.ok()?;
        let alternates = own.join("objects/info/alternates");
        let objects = self.common.join("objects");
        fs::write(&alternates, format!("{}\n", objects.display())).map_err(io("write", &alternates))?;
        // The index stays where no check sees it, so that files which are the same are not written again.
        let index = dir.with_extension("index");
        let git = Git::made(dir).on_index(&index);
        git.run(["update-ref", "--no-deref", "HEAD", commit])?.ok()?;
        git.run(["reset", "--quiet", "--hard", commit])?.ok()?;
        git.run(["clean", "--quiet", "-ffd"])?.ok()?;
        let tree = git.run(["write-tree"])?.text()?;
        let dirty = git.run(["status", "--porcelain", "--untracked-files=all"])?.text()?;
        if tree != self.tree(commit)? || !dirty.is_empty() {
            let why = "the check's files differ from its commit".into();
            return Err(WorkspaceError::NotWhole { why, next: String::new() });
        }
        fs::copy(&index, own.join("index")).map_err(io("copy", &index)).map(drop)
    }
}

/// Deletes a directory of toft's own with everything in it.
fn remove_all(path: &Path) -> Result<(), WorkspaceError> {
    let gone = match fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    gone.map_err(io("remove", path))
}

fn has_markers(content: &[u8]) -> bool {
    let starts = |sign: &[u8]| content.split(|byte| *byte == b'\n').any(|line| line.starts_with(sign));
    starts(b"<<<<<<< ") && starts(b">>>>>>> ") && starts(b"=======")
}

/// The full name of a branch.
fn full_name(name: &str) -> String {
    match name.starts_with("refs/") {
        true => name.to_owned(),
        false => format!("refs/heads/{name}"),
    }
}

/// Where the result waits for a target.
pub fn landed_ref(target: &str) -> String {
    format!("{LANDED}{target}")
}

/// A commit message: the subject in one line, the body, the trailers.
fn message(subject: &str, body: &str, trailers: &[(String, String)]) -> String {
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text = line(subject);
    if !body.trim().is_empty() {
        text.push_str(&format!("\n\n{}", body.trim()));
    }
    if !trailers.is_empty() {
        text.push_str("\n\n");
        text.extend(trailers.iter().map(|(name, value)| format!("{name}: {}\n", line(value))));
    }
    text
}
