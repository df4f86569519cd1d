//! Builds commits that would be the next tip of a target branch, and moves the target to them.
//!
//! Nothing here needs a working directory: `merge-tree` merges, `commit-tree` records. A ref only moves from the value
//! that the caller names.

mod bundle;
mod check_out;
mod look;
mod remote;

use std::{
    cell::OnceCell,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

pub use self::{bundle::BundleTaken, remote::RemoteBranch};

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
/// Maximum number of characters of a subject.
const LONGEST_SUBJECT: usize = 200;
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

/// A checkout that has a branch checked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetCheckout {
    pub dir: PathBuf,
    /// It is being rebased there.
    pub rebasing: bool,
}

/// A repository in which work lands.
pub struct LandingRepository {
    git: Git,
    common: PathBuf,
    attributes: Option<NamedTempFile>,
    /// The user has a name and an address for commits.
    has_name: OnceCell<bool>,
    /// The checkout of a Jujutsu repository whose git files no other program sees.
    jj: Option<PathBuf>,
    /// toft's own directory, which an agent in a sandbox cannot write, unlike refs.
    state: PathBuf,
    /// The branch of a remote that work is pushed to, with the name of the target.
    pushed: Option<(String, RemoteBranch)>,
}

impl LandingRepository {
    /// The repository of a checkout. In files that match `union`, both sides of a conflict are kept. Work whose target is
    /// `pushed`, as `REMOTE/BRANCH`, is pushed there.
    pub fn open(checkout: &Checkout, union: &[String], pushed: Option<&str>) -> Result<Self, WorkspaceError> {
        let common = match checkout.vcs {
            Vcs::Git => checkout.common_dir.clone(),
            Vcs::Jj if checkout.common_dir.join("store/git").is_dir() => {
                // Git's files are jj's own: they have a bookmark once it is exported.
                Run::jj(&checkout.root)?.args(["git", "export"]).ok()?;
                checkout.common_dir.join("store/git")
            }
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
        let apart = checkout.vcs == Vcs::Jj && common != checkout.common_dir;
        let jj = apart.then(|| checkout.root.clone());
        let pushed = match pushed.filter(|name| name.contains('/')) {
            Some(name) => RemoteBranch::of(&common, name)?.map(|branch| (name.to_owned(), branch)),
            None => None,
        };
        Ok(Self {
            git: Git::of(&common)?,
            common,
            attributes,
            has_name: OnceCell::new(),
            jj,
            state: checkout.state_dir(),
            pushed,
        })
    }

    /// The commit of a branch, by its full or short name.
    pub fn commit(&self, name: &str) -> Result<Option<String>, WorkspaceError> {
        match self.remote_branch(name) {
            Some(branch) => self.commit_of(&branch.tracking()),
            None => self.commit_of(&full_name(name)),
        }
    }

    /// The commit of a ref.
    fn commit_of(&self, name: &str) -> Result<Option<String>, WorkspaceError> {
        let name = format!("{name}^{{commit}}");
        Ok(self.git.run(["rev-parse", "--verify", "--quiet", "--end-of-options", &name])?.maybe()?)
    }

    /// The commit on which the next landing is built: the target's, or the result that waits for it. Returns it with
    /// the target's own commit.
    pub fn newest(&self, target: &str) -> Result<Option<(String, String)>, WorkspaceError> {
        let Some(here) = self.commit(target)? else { return Ok(None) };
        let waiting = self.waiting(target)?;
        Ok(Some(match waiting {
            Some(waiting) if waiting != here && ancestor(&self.git, &here, &waiting)? => (waiting, here),
            _ => (here.clone(), here),
        }))
    }

    /// The branch that work lands in if nothing says which: that of the remote's HEAD, or `main` or `master`.
    pub fn default_branch(&self) -> Result<Option<String>, WorkspaceError> {
        let remote = self.git.run(["symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD"])?.maybe()?;
        let remote = remote.and_then(|name| name.strip_prefix("origin/").map(str::to_owned));
        for name in remote.into_iter().chain(["main", "master"].map(str::to_owned)) {
            if self.commit(&name)?.is_some() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Whether a result waits for a target; read from files.
    pub fn has_waiting(&self, target: &str) -> Result<bool, WorkspaceError> {
        Ok(attestation(&self.state, target).is_file() || has_ref(&self.common, &landed_ref(target))?)
    }

    /// A result that waits for a target and that the target does not contain, because it moved on meanwhile.
    pub fn diverged(&self, target: &str) -> Result<Option<String>, WorkspaceError> {
        let (Some(here), Some(waiting)) = (self.commit(target)?, self.waiting(target)?) else {
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

    /// Lets go of commits that have landed.
    pub fn unpin(&self, names: &[String]) -> Result<(), WorkspaceError> {
        if names.is_empty() {
            return Ok(());
        }
        let lines: String = names.iter().map(|name| format!("delete {QUEUE}{name}\n")).collect();
        let delete = || self.git.run(["update-ref", "--stdin"])?.ok_fed(|to| to.write_all(lines.as_bytes()));
        Ok(retry(delete).map(drop)?)
    }

    /// The commits that are kept, each with its name.
    pub fn pinned(&self) -> Result<Vec<(String, String)>, WorkspaceError> {
        let listed = self.git.run(["for-each-ref", "--format=%(refname) %(objectname)", QUEUE])?.text()?;
        let pair = |line: &str| {
            let (name, commit) = line.split_once(' ')?;
            Some((name.strip_prefix(QUEUE)?.to_owned(), commit.to_owned()))
        };
        Ok(listed.lines().filter_map(pair).collect())
    }

    /// The names under which commits are kept.
    pub fn pins(&self) -> Result<Vec<String>, WorkspaceError> {
        Ok(self.pinned()?.into_iter().map(|(name, _)| name).collect())
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
        let merges = self.git.run(["rev-list", "--merges", "--max-count=1", &range])?.text()?;
        if !merges.is_empty() {
            // What was resolved in a merge is in no other commit: all of it becomes one.
            return self.candidate(onto, tip, MergeWay::Squash, &self.subject(tip)?, trailers);
        }
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
            // Only toft says what a commit is for toft; git reads trailers in any case.
            let own = |line: &str| line.trim_start().get(..5).is_some_and(|start| start.eq_ignore_ascii_case("toft-"));
            let subject = if own(subject) { subject.trim_start().get(5..).unwrap_or_default() } else { subject };
            let body: Vec<&str> = body.lines().filter(|line| !own(line)).collect();
            let body = body.join("\n");
            let text = message(subject, &body, if last { trailers } else { &[] });
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
        if ended.err.contains("unknown option") {
            let why = "git 2.40 or newer is needed to land by rebase and to take work back".to_owned();
            return Err(WorkspaceError::Stays { why });
        }
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

    /// Checkouts in which a branch is checked out.
    pub fn checkouts(&self, target: &str) -> Result<Vec<TargetCheckout>, WorkspaceError> {
        if self.remote_branch(target).is_some() {
            return Ok(Vec::new());
        }
        let listed = self.git.run(["worktree", "list", "--porcelain", "-z"])?.ok()?;
        let wanted = format!("branch {}", full_name(target));
        let (mut found, mut dir) = (Vec::new(), PathBuf::new());
        for line in listed.split(|byte| *byte == 0).map(|line| String::from_utf8_lossy(line).into_owned()) {
            if let Some(path) = line.strip_prefix("worktree ") {
                dir = PathBuf::from(path);
            } else if line == wanted {
                found.push(TargetCheckout { dir: dir.clone(), rebasing: false });
            }
        }
        // A checkout whose directory was deleted shows nothing.
        found.retain(|at| at.dir.is_dir());
        found.extend(self.rebased_in(&full_name(target))?.map(|dir| TargetCheckout { dir, rebasing: true }));
        Ok(found)
    }

    /// The checkout in which a branch is being rebased.
    fn rebased_in(&self, name: &str) -> Result<Option<PathBuf>, WorkspaceError> {
        let linked = fs::read_dir(self.common.join("worktrees")).into_iter().flatten().flatten();
        for own in linked.map(|entry| entry.path()).chain([self.common.clone()]) {
            for state in ["rebase-merge/head-name", "rebase-apply/head-name"] {
                if crate::read(&own.join(state))?.is_some_and(|text| text.trim() == name) {
                    let link = crate::read(&own.join("gitdir"))?;
                    let dir = link.map(PathBuf::from).unwrap_or_else(|| self.common.clone());
                    return Ok(Some(dir.parent().map_or_else(|| dir.clone(), Path::to_owned)));
                }
            }
        }
        Ok(None)
    }

    /// Moves a branch that is checked out nowhere, if it is still where it was; returns whether it was.
    pub fn move_branch(&self, target: &str, to: &str, from: &str) -> Result<bool, WorkspaceError> {
        self.swap(&full_name(target), to, from)
    }

    /// Moves the result that waits for a target, if it is still where it was.
    pub fn move_waiting(&self, target: &str, to: &str, from: Option<&str>) -> Result<bool, WorkspaceError> {
        let file = attestation(&self.state, target);
        let known = crate::read(&file)?.unwrap_or_default();
        // Killed before the ref moves, both are known.
        attest(&file, &format!("{to}\n{known}"))?;
        let there = self.commit(&landed_ref(target))?;
        // What another put there is replaced.
        let is_known = |at: &&str| known.lines().any(|line| line == *at);
        let from = if there.as_deref() == from { from } else { there.as_deref().filter(|at| !is_known(at)) };
        let moved = self.swap(&landed_ref(target), to, from.unwrap_or(""))?;
        match moved {
            // It was moved; that the file still names the commit before it is no harm.
            true => drop(attest(&file, &format!("{to}\n"))),
            false => attest(&file, &known)?,
        }
        Ok(moved)
    }

    /// The result that waits for a target, if toft made it wait.
    pub fn waiting(&self, target: &str) -> Result<Option<String>, WorkspaceError> {
        let there = self.commit(&landed_ref(target))?;
        if let Some(at) = &there
            && is_attested(&self.state, target, at)?
        {
            return Ok(there);
        }
        // An agent moved or deleted the ref; what toft knows is the truth.
        let known = crate::read(&attestation(&self.state, target))?.unwrap_or_default();
        known.lines().next().map_or(Ok(None), |commit| self.commit_of(commit))
    }

    fn swap(&self, name: &str, to: &str, from: &str) -> Result<bool, WorkspaceError> {
        let moved = retry(|| {
            let ended = self.git.run(["update-ref", "-m", "toft land", "--create-reflog", name, to, from])?.end()?;
            if ended.code == 0 {
                return Ok(true);
            }
            let now = self.git.run(["rev-parse", "--verify", "--quiet", name])?.maybe()?.unwrap_or_default();
            match now == from {
                // It was moved meanwhile.
                false => Ok(false),
                // Another process moves it right now, or left its lock.
                true => ended.ok(format!("git update-ref {name}")).map(|_| true),
            }
        });
        Ok(moved?)
    }

    /// Tells Jujutsu of branches that were moved, where its git files are its own.
    pub fn import(&self) -> Result<(), WorkspaceError> {
        match &self.jj {
            Some(root) => Ok(Run::jj(root)?.args(["git", "import"]).ok().map(drop)?),
            None => Ok(()),
        }
    }

    /// Forgets a result that its target has taken up.
    pub fn forget_waiting(&self, target: &str) -> Result<(), WorkspaceError> {
        let name = landed_ref(target);
        if let Some(at) = self.commit(&name)? {
            retry(|| self.git.run(["update-ref", "-d", &name, &at])?.ok())?;
        }
        let file = attestation(&self.state, target);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io("remove", &file)(error)),
            _ => Ok(()),
        }
    }

    /// Forgets a result that its target contains.
    pub fn forget_waiting_of(&self, target: &str, own: &str) -> Result<(), WorkspaceError> {
        match self.waiting(target)? {
            Some(waiting) if self.contains(&waiting, own)? => self.forget_waiting(target),
            _ => Ok(()),
        }
    }

    /// Moves a branch together with the checkout that has it checked out, as `git merge --ff-only` does: what is
    /// changed or untracked in the way stops it. Returns the reason if it stays where it is.
    pub fn move_checkout(&self, at: &TargetCheckout, to: &str) -> Result<Option<String>, WorkspaceError> {
        let git = Git::inside(&self.common, &at.dir)?;
        let run = git.run([
            "-c",
            "merge.ff=only",
            "-c",
            "merge.autoStash=false",
            "merge",
            "--ff-only",
            "--no-overwrite-ignore",
            "--quiet",
            to,
        ])?;
        let ended = run.env("GIT_OPTIONAL_LOCKS", "1").end()?;
        if ended.code == 0 {
            return Ok(None);
        }
        let said = ended.err.lines().filter(|line| !line.starts_with("hint:")).map(str::trim).collect::<Vec<_>>();
        Ok(Some(said.join(" ")))
    }
}

/// The full name of a branch.
fn full_name(name: &str) -> String {
    match name.starts_with("refs/") {
        true => name.to_owned(),
        false => format!("refs/heads/{name}"),
    }
}

/// Whether a ref is there, or may be: with the reftable format only git knows.
pub(crate) fn has_ref(common: &Path, name: &str) -> Result<bool, crate::FindError> {
    if common.join(name).is_file() || common.join("reftable").is_dir() {
        return Ok(true);
    }
    Ok(crate::read(&common.join("packed-refs"))?.is_some_and(|text| text.lines().any(|line| line.ends_with(name))))
}

/// The file that says which results toft made wait for a target.
fn attestation(state: &Path, target: &str) -> PathBuf {
    state.join("landed").join(target.replace('/', "%"))
}

fn attest(file: &Path, text: &str) -> Result<(), WorkspaceError> {
    let dir = file.parent().unwrap_or(file);
    crate::private::create_dir_all(dir).map_err(io("make", dir))?;
    let mut draft = NamedTempFile::new_in(dir).map_err(io("write", file))?;
    draft.write_all(text.as_bytes()).map_err(io("write", file))?;
    draft.persist(file).map(drop).map_err(|error| io("write", file)(error.error))
}

/// Whether toft itself made this commit wait for a target: an agent can write the ref.
pub(crate) fn is_attested(state: &Path, target: &str, commit: &str) -> Result<bool, crate::FindError> {
    Ok(crate::read(&attestation(state, target))?.is_some_and(|known| known.lines().any(|line| line == commit)))
}

/// Where the result waits for a target.
pub fn landed_ref(target: &str) -> String {
    format!("{LANDED}{target}")
}

/// A commit message: the subject in one line, the body, the trailers.
fn message(subject: &str, body: &str, trailers: &[(String, String)]) -> String {
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut text: String = line(subject).chars().take(LONGEST_SUBJECT).collect();
    if !body.trim().is_empty() {
        text.push_str(&format!("\n\n{}", body.trim()));
    }
    if !trailers.is_empty() {
        text.push_str("\n\n");
        text.extend(trailers.iter().map(|(name, value)| format!("{name}: {}\n", line(value))));
    }
    text
}
