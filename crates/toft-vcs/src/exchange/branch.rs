//! A ledger that no commit of the user holds: a bare repository of toft's own, exchanged as one branch of the remote of
//! the git repository that it belongs to. That repository is read for its remotes, and never written.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

use super::{
    Contact, Exchange, ExchangeError, Fetched, Files, ISSUES, Sent, classify_failure, content, git_dir,
    ledger_repository::{LEDGER_BRANCH, LEDGER_REF, LedgerRepository},
    owned, read_files, refs, rewrite, unsent,
};
use crate::{Checkout, RunError, git_run::Git};

/// The branch of a ledger on a remote before it was called `toft-ledger`. Its name excludes those of branches below it.
const FORMER_BRANCH: &str = "refs/heads/toft";
/// That branch, as fetched.
const FORMER_FETCHED: &str = "refs/toft/former";
/// Prefix of proposal branches.
const PROPOSAL_PREFIX: &str = "toft-propose/";

/// The exchange of a ledger that is not part of a working tree.
pub struct Branch {
    repository: LedgerRepository,
    /// The git directory of the project.
    project: PathBuf,
    /// The ledger's files.
    dir: PathBuf,
    /// The ledger's place among others on the same branch: empty, or ending in `/`.
    prefix: String,
    remote: Option<(String, refs::RemoteGit)>,
    /// The ref of the ledger on the remote.
    there: String,
    here: Option<String>,
    theirs: Option<String>,
    /// The remote was fetched, so `theirs` is its current state.
    asked: bool,
    /// The commit that the remote must still be at when a force push replaces its history.
    replaces: Option<String>,
    /// The state of the remote, with its proposals.
    seen: Option<String>,
    /// The files of a commit that was read.
    read: Option<(String, Files)>,
    /// The commit of the branch that the ledger was exchanged as before, on a remote that has no other.
    former: Option<String>,
    /// The committer.
    who: Option<String>,
    /// Changes of the ledger's own repositories, for the user.
    notes: Vec<String>,
    patience: Duration,
}

/// An issue that is proposed on a branch of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The issue.
    pub id: String,
    /// The ledger's files on that branch.
    pub files: Files,
}

impl Branch {
    /// The ledger in `dir` beside a checkout under git, or under Jujutsu with a git backend.
    pub fn open(checkout: &Checkout, dir: &std::path::Path, reach: Contact<'_>) -> Result<Option<Self>, ExchangeError> {
        Self::open_part(checkout, dir, String::new(), reach)
    }

    /// The same for one of several ledgers on the branch.
    pub(super) fn open_part(
        checkout: &Checkout,
        dir: &std::path::Path,
        prefix: String,
        reach: Contact<'_>,
    ) -> Result<Option<Self>, ExchangeError> {
        let Some(project) = git_dir(checkout) else { return Ok(None) };
        // Neither can be written to git as it is.
        if prefix.starts_with('"') || prefix.contains('\n') {
            return Err(ExchangeError::Conflict(format!("{} has a name that git cannot import", dir.display())));
        }
        let repository = LedgerRepository::open(&checkout.state_dir(), &project)?;
        let remote = match refs::choose(&project, reach.remote)? {
            Some((name, url)) => {
                let git = refs::ledger_git(&project, &repository.dir, &name, &url, reach.patience)?;
                Some((name, git))
            }
            None => None,
        };
        let here = refs::resolve(&repository.git, &repository.dir, LEDGER_REF)?;
        let moved = repository.has_moved;
        let notes = moved.then(|| format!("the ledger's history moved to {}", repository.dir.display()));
        let mut branch = Self {
            repository,
            project,
            dir: dir.to_owned(),
            prefix,
            remote,
            there: format!("refs/heads/{}", reach.branch.unwrap_or(LEDGER_BRANCH)),
            here,
            theirs: None,
            asked: false,
            replaces: None,
            seen: None,
            read: None,
            former: None,
            who: None,
            notes: notes.into_iter().collect(),
            patience: reach.patience,
        };
        branch.theirs = branch.known(&branch.there)?;
        Ok(Some(branch))
    }

    /// Takes the changes of the ledger's own repositories that the user was not told of.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// The commit of a ref in the ledger's repository.
    fn resolve(&self, name: &str) -> Result<Option<String>, RunError> {
        refs::resolve(&self.repository.git, &self.repository.dir, name)
    }

    /// The commit of a remote branch at the last fetch.
    fn known(&self, branch: &str) -> Result<Option<String>, RunError> {
        match self.remote() {
            Some(remote) => self.resolve(&tracking(remote, branch)),
            None => Ok(None),
        }
    }

    /// The ledger's files in a commit.
    fn files_at(&mut self, commit: &str) -> Result<Files, RunError> {
        if let Some((_, files)) = self.read.as_ref().filter(|(known, _)| known == commit) {
            return Ok(files.clone());
        }
        let files = content::at(&self.repository.git, commit, &self.prefix)?;
        self.read = Some((commit.to_owned(), files.clone()));
        Ok(files)
    }

    /// Fetches the ledger under its former name, from a remote that has none under the present one.
    fn fetch_former(&self) -> Result<Option<String>, ExchangeError> {
        let Some((remote, git)) = self.remote.as_ref().filter(|_| self.there == LEDGER_REF) else { return Ok(None) };
        if !git.fetch(remote, &[&format!("+{FORMER_BRANCH}:{FORMER_FETCHED}")], &["--no-filter"])? {
            return Ok(None);
        }
        let commit = self.resolve(FORMER_FETCHED)?;
        self.repository.git.run(["update-ref", "-d", FORMER_FETCHED])?.ok()?;
        match &commit {
            Some(former) if self.other_content(former)?.is_none() => Ok(commit),
            _ => Ok(None),
        }
    }

    /// What a commit contains besides ledgers.
    fn other_content(&self, commit: &str) -> Result<Option<String>, RunError> {
        match self.prefix.is_empty() {
            true => owned::not_a_ledger(&self.repository.git, commit),
            false => {
                let paths = owned::paths(&self.repository.git, commit)?;
                Ok(owned::foreign(paths.iter().map(String::as_str)).map(str::to_owned))
            }
        }
    }

    /// Refuses a branch of that name that is not a ledger: it is neither read nor written.
    fn refuse_other_branch(&self) -> Result<(), ExchangeError> {
        let Some(remote) = self.remote() else { return Ok(()) };
        let name = self.there.trim_start_matches("refs/heads/");
        let advice = "no ledger is written there; choose another name with [sync] branch = \"…\" in toft's config.toml";
        let other = match &self.theirs {
            Some(theirs) if self.here.as_ref() != Some(theirs) => self.other_content(theirs)?,
            _ => None,
        };
        if let Some(path) = other {
            let said = format!("branch `{name}` of {remote} holds other files ({path}): {advice}");
            return Err(ExchangeError::Conflict(said));
        }
        let below = tracking(remote, &format!("{}/", self.there));
        if self.theirs.is_none()
            && let Some(taken) =
                self.repository.git.run(["for-each-ref", "--count=1", "--format=%(refname)", &below])?.maybe()?
            && let Some(taken) = taken.strip_prefix(&below).filter(|taken| !taken.is_empty())
        {
            let said = format!("{remote} has a branch `{name}/{taken}`, so none can be called `{name}`: {advice}");
            return Err(ExchangeError::Conflict(said));
        }
        Ok(())
    }

    /// The parent of the next commit. After a fetch, the remote's newest commit: local commits that were never pushed are
    /// dropped, so that only the current content of the files is published. Without a fetch, our own newest commit, else
    /// the remote's newest that is known.
    fn base(&self) -> Option<String> {
        if self.asked { self.theirs.clone() } else { self.here.clone().or_else(|| self.theirs.clone()) }
    }

    /// Writes a commit whose ledger is exactly `files`, and updates the ref; returns its hash. Other files of the
    /// parent are kept.
    fn commit(
        &mut self,
        name: &str,
        parent: Option<&str>,
        files: &Files,
        message: &str,
    ) -> Result<String, ExchangeError> {
        let before = parent.map(|parent| self.files_at(parent)).transpose()?.unwrap_or_default();
        let gone: Vec<&String> = before.keys().filter(|path| !files.contains_key(*path)).collect();
        let who = match &self.who {
            Some(who) => who.clone(),
            // A project may have a name and an address of its own.
            None => Git::of(&self.project)?.run(["var", "GIT_COMMITTER_IDENT"])?.maybe()?.unwrap_or_else(|| {
                let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
                format!("toft <toft@localhost> {now} +0000")
            }),
        };
        self.who = Some(who.clone());
        let prefix = &self.prefix;
        self.repository.git.run(["-c", "pack.compression=1", "fast-import", "--quiet", "--force", "--done"])?.ok_fed(
            |to| {
                if parent.is_none() {
                    writeln!(to, "reset {name}\n")?;
                }
                writeln!(to, "commit {name}\ncommitter {who}\ndata {}\n{message}", message.len())?;
                if let Some(parent) = parent {
                    writeln!(to, "from {parent}")?;
                }
                for path in gone {
                    writeln!(to, "D {prefix}{path}")?;
                }
                for (name, bytes) in files {
                    writeln!(to, "M 100644 inline {prefix}{name}\ndata {}", bytes.len())?;
                    to.write_all(bytes)?;
                    writeln!(to)?;
                }
                writeln!(to, "done")
            },
        )?;
        let made = self.resolve(name)?;
        made.ok_or_else(|| ExchangeError::Conflict(format!("git made no commit for {name}")))
    }

    /// A text that identifies the remote's state as last fetched: its ledger commit and its proposals.
    fn look(&self) -> Option<String> {
        let below = tracking(self.remote()?, &format!("refs/heads/{PROPOSAL_PREFIX}"));
        let mut seen: Vec<String> = self.theirs.iter().cloned().collect();
        if refs::any_below(&self.repository.dir, &below) {
            let words = ["for-each-ref", "--format=%(refname) %(objectname)", &below];
            let listed = self.repository.git.run(words).and_then(|run| run.text()).unwrap_or_default();
            seen.extend(listed.lines().filter_map(|line| line.strip_prefix(&below)).map(str::to_owned));
        }
        seen.sort();
        (!seen.is_empty()).then(|| seen.join(", "))
    }

    fn point(&mut self, to: String) -> Result<(), ExchangeError> {
        self.repository.git.run(["update-ref", LEDGER_REF, &to])?.ok()?;
        self.here = Some(to);
        Ok(())
    }

    /// Issues that branches of the remote proposed at the last fetch.
    fn proposals(&self) -> Result<Vec<Proposal>, ExchangeError> {
        let Some(remote) = self.remote() else { return Ok(Vec::new()) };
        let below = tracking(remote, &format!("refs/heads/{PROPOSAL_PREFIX}"));
        if !refs::any_below(&self.repository.dir, &below) {
            return Ok(Vec::new());
        }
        let listed = self.repository.git.run(["for-each-ref", "--format=%(refname)", &below])?.text()?;
        let mut proposals = Vec::new();
        for name in listed.lines() {
            let id = name.strip_prefix(&below).unwrap_or_default().to_owned();
            // A branch that is not a ledger, or too large, proposes nothing.
            if let Ok(files) = content::at(&self.repository.git, name, "") {
                proposals.push(Proposal { id, files });
            }
        }
        Ok(proposals)
    }

    /// Whether the remote was ever fetched.
    pub fn fetched_before(&self) -> bool {
        self.theirs.is_some()
    }

    /// Creates a branch that adds one issue to the remote's state: `edited` contains its files with that issue. Returns
    /// the name of the branch.
    pub fn propose(&mut self, id: &str, edited: &Files, message: &str) -> Result<String, ExchangeError> {
        let (name, parent) = (format!("{PROPOSAL_PREFIX}{id}"), self.theirs.clone());
        self.commit(&format!("refs/heads/{name}"), parent.as_deref(), edited, message)?;
        Ok(name)
    }

    /// Sends a proposal branch to a remote.
    pub fn send_proposal(&self, id: &str, to: &str) -> Result<(), ExchangeError> {
        let branch = format!("refs/heads/{PROPOSAL_PREFIX}{id}");
        let sent = self.git_for(to)?.push(to, &format!("+{branch}:{branch}"));
        sent.map_err(|error| classify_failure(error, to))
    }

    /// Git for a remote of the project, or for a URL.
    fn git_for(&self, remote: &str) -> Result<refs::RemoteGit, ExchangeError> {
        let url = match remote.contains(':') || remote.starts_with(['/', '.']) {
            true => remote.to_owned(),
            false => self.url_of(remote)?,
        };
        Ok(refs::ledger_git(&self.project, &self.repository.dir, remote, &url, self.patience)?)
    }

    /// The URL of a remote.
    pub fn url_of(&self, remote: &str) -> Result<String, ExchangeError> {
        let known = refs::choose(&self.project, Some(remote))?.map(|(_, url)| url);
        known.ok_or_else(|| ExchangeError::Conflict(format!("there is no remote `{remote}`")))
    }

    /// Fetches a proposal branch from a remote or a URL.
    pub fn fetch_proposal(&self, from: &str, id: &str) -> Result<Proposal, ExchangeError> {
        if from.starts_with('-') {
            return Err(ExchangeError::Conflict(format!("`{from}` is neither a remote nor a URL")));
        }
        let name = format!("refs/toft/offered/{id}");
        let refs = format!("+refs/heads/{PROPOSAL_PREFIX}{id}:{name}");
        if !self.git_for(from)?.fetch(from, &[&refs], &["--no-filter"])? {
            return Err(ExchangeError::Conflict(format!("{from} has no branch {PROPOSAL_PREFIX}{id}")));
        }
        let files = content::at(&self.repository.git, &name, "");
        self.repository.git.run(["update-ref", "-d", &name])?.ok()?;
        Ok(Proposal { id: id.to_owned(), files: files? })
    }

    /// Issues that local branches propose.
    pub fn proposed_here(&self) -> Result<Vec<String>, ExchangeError> {
        let below = format!("refs/heads/{PROPOSAL_PREFIX}");
        let listed = self.repository.git.run(["for-each-ref", "--format=%(refname)", &below])?.text()?;
        Ok(listed.lines().filter_map(|name| name.strip_prefix(&below)).map(str::to_owned).collect())
    }

    /// Deletes proposal branches: locally, and on the remote that each was pushed to if it is still at the pushed commit.
    /// One without a local copy is deleted on the remote if `ours` accepts its files.
    pub fn clear_proposals(
        &self,
        decided: &BTreeMap<String, String>,
        ours: impl Fn(&str, &Files) -> bool,
    ) -> Result<(), ExchangeError> {
        let mut remotes: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
        let mut here = Vec::new();
        for (id, remote) in decided {
            let name = format!("refs/heads/{PROPOSAL_PREFIX}{id}");
            let sent = match self.resolve(&name)? {
                Some(commit) => {
                    here.push((name.clone(), commit.clone()));
                    Some(commit)
                }
                None if remote.is_empty() => None,
                None => self.ours_at(remote, id, &ours)?,
            };
            if let Some(commit) = sent.filter(|_| !remote.is_empty()) {
                remotes.entry(remote).or_default().push((name, commit));
            }
        }
        for (remote, branches) in remotes {
            let git = self.git_for(remote)?;
            git.delete(remote, &branches).map_err(|error| classify_failure(error, remote))?;
        }
        for (name, commit) in here {
            self.repository.git.run(["update-ref", "-d", &name, &commit])?.ok()?;
        }
        Ok(())
    }

    /// The commit of a proposal branch on a remote, if it is ours.
    fn ours_at(
        &self,
        remote: &str,
        id: &str,
        ours: &impl Fn(&str, &Files) -> bool,
    ) -> Result<Option<String>, ExchangeError> {
        let name = format!("refs/toft/offered/{id}");
        let from = self.git_for(remote)?;
        if !from.fetch(remote, &[&format!("+refs/heads/{PROPOSAL_PREFIX}{id}:{name}")], &["--no-filter"])? {
            return Ok(None);
        }
        let commit = self.resolve(&name)?;
        let files = content::at(&self.repository.git, &name, "");
        self.repository.git.run(["update-ref", "-d", &name])?.ok()?;
        Ok(commit.filter(|_| files.is_ok_and(|files| ours(id, &files))))
    }

    /// Whether a branch of a remote proposes this issue; queries the remote.
    pub fn proposed_at(&self, remote: &str, id: &str) -> Result<bool, ExchangeError> {
        let branch = format!("refs/heads/{PROPOSAL_PREFIX}{id}");
        let git = self.git_for(remote)?;
        let ended = git.run(["ls-remote", "--exit-code", "--upload-pack=git-upload-pack", remote, &branch])?.end()?;
        match ended.code {
            0 => Ok(true),
            2 => Ok(false),
            _ => Err(classify_failure(
                ended.ok("git ls-remote".into()).err().unwrap_or(RunError::Missing("git")),
                remote,
            )),
        }
    }
}

/// The local tracking ref of a remote branch, outside of refs/remotes so that git's commands do not list it.
fn tracking(remote: &str, branch: &str) -> String {
    format!("refs/toft/remotes/{remote}/{}", branch.trim_start_matches("refs/heads/"))
}

impl Exchange for Branch {
    fn remote(&self) -> Option<&str> {
        self.remote.as_ref().map(|(name, _)| name.as_str())
    }

    fn fetch(&mut self) -> Result<Fetched, ExchangeError> {
        let Some((remote, git)) = &self.remote else { return Ok(Fetched::default()) };
        let below = |branch: &str| format!("+{branch}*:{}*", tracking(remote, branch));
        let (ledger, proposals) = (below(&self.there), below(&format!("refs/heads/{PROPOSAL_PREFIX}")));
        let all = format!("refs/heads/{PROPOSAL_PREFIX}").starts_with(&self.there);
        let refs: &[&str] = if all { &[&ledger] } else { &[&ledger, &proposals] };
        git.fetch(remote, refs, &["--prune", "--no-filter"])?;
        self.asked = true;
        let before = self.theirs.take();
        self.theirs = self.known(&self.there)?;
        self.refuse_other_branch()?;
        self.former = if self.theirs.is_none() { self.fetch_former()? } else { None };
        self.theirs = self.theirs.take().or_else(|| self.former.clone());
        let rewritten = match (&before, &self.theirs) {
            // We pushed this commit ourselves, on top of the previous one.
            (Some(_), Some(now)) if self.here.as_ref() == Some(now) => false,
            (Some(before), Some(now)) => !refs::ancestor(&self.repository.git, before, now)?,
            (Some(_), None) => true,
            (None, _) => false,
        };
        self.seen = self.look();
        Ok(Fetched { tip: self.seen.clone(), rewritten })
    }

    fn theirs(&mut self) -> Result<Files, ExchangeError> {
        match self.theirs.clone() {
            Some(commit) => Ok(self.files_at(&commit)?),
            None => Ok(Files::new()),
        }
    }

    fn record(&mut self, message: &str) -> Result<bool, ExchangeError> {
        let files = read_files(&self.dir)?;
        let (here, base) = (self.here.clone(), self.base());
        if let Some(base) = &base
            && self.files_at(base)? == files
        {
            let moved = here.as_ref() != Some(base);
            if moved {
                self.point(base.clone())?;
            }
            return Ok(moved);
        }
        if base.is_none() && files.is_empty() {
            return Ok(false);
        }
        // A commit that was recorded but not accepted by the remote yet is pushed again unchanged.
        if let Some(here) = here.as_ref().filter(|_| here != base)
            && self.repository.git.run(["rev-parse", "--verify", "--quiet", &format!("{here}^")])?.maybe()? == base
            && self.files_at(here)? == files
        {
            return Ok(false);
        }
        self.here = Some(self.commit(LEDGER_REF, base.as_deref(), &files, message)?);
        Ok(true)
    }

    fn send(&mut self) -> Result<Sent, ExchangeError> {
        let (Some((remote, git)), Some(here)) = (&self.remote, &self.here) else { return Ok(Sent::Same) };
        if self.theirs.as_ref() == Some(here) && self.former.is_none() {
            return Ok(Sent::Same);
        }
        let what = format!("{here}:{}", self.there);
        let sent = match &self.replaces {
            // What was rewritten has its old history under the former name.
            Some(was) if self.former.is_none() => git.replace(remote, &what, &self.there, was),
            _ => git.push(remote, &what),
        };
        match sent {
            Ok(()) => {
                if let Some(former) = self.former.take() {
                    self.notes.push(match git.delete(remote, &[(FORMER_BRANCH.to_owned(), former)]) {
                        Ok(()) => format!("the branch `toft` of {remote} is `{LEDGER_BRANCH}` now"),
                        Err(error) => format!("the ledger is `{LEDGER_BRANCH}` of {remote} now; `toft` stays: {error}"),
                    });
                }
                if self.replaces.take().is_some() {
                    self.repository.git.run(["update-ref", &tracking(remote, &self.there), here])?.ok()?;
                }
                // After a normal push, the next fetch updates the tracking ref.
                self.theirs = Some(here.clone());
                self.seen = self.look();
                Ok(Sent::Done)
            }
            Err(error) => unsent(error, remote),
        }
    }

    fn seen(&self) -> Option<&str> {
        self.seen.as_deref()
    }

    fn purge(&mut self, keep: &dyn Fn(&[u8]) -> bool) -> Result<usize, ExchangeError> {
        let Some(base) = self.base() else { return Ok(0) };
        self.files_at(&base)?;
        let rewritten = rewrite::without(&self.repository.git, &self.repository.dir, &base, &self.prefix, keep)?;
        if self.asked {
            self.replaces = self.theirs.replace(rewritten.tip);
        } else {
            self.here = Some(rewritten.tip);
        }
        Ok(rewritten.commits)
    }

    fn also_in(&self, text: &str) -> Result<Vec<String>, ExchangeError> {
        let mut found = Vec::new();
        let mut known = vec![format!("refs/heads/{PROPOSAL_PREFIX}"), "refs/toft/offered/".to_owned()];
        known.extend(self.remote().map(|remote| tracking(remote, &format!("refs/heads/{PROPOSAL_PREFIX}"))));
        let listed = self.repository.git.run(["for-each-ref", "--format=%(refname)"])?.args(&known).text()?;
        for name in listed.lines() {
            let paths = [ISSUES, super::ARCHIVE].map(|path| format!("{}{path}", self.prefix));
            let words = ["log", "-1", "--format=%H", &format!("-S{text}"), name, "--", &paths[0], &paths[1]];
            if self.repository.git.run(words)?.maybe()?.is_some() {
                let shown = name.trim_start_matches("refs/heads/").trim_start_matches("refs/toft/remotes/");
                found.push(shown.to_owned());
            }
        }
        Ok(found)
    }

    fn before(&mut self) -> Result<Option<Files>, ExchangeError> {
        match self.base() {
            Some(first) => Ok(Some(self.files_at(&first)?)),
            None => Ok(Some(Files::new())),
        }
    }

    fn tidy(&self) {
        self.repository.collect_garbage(fs::metadata(self.dir.join(ISSUES)).map_or(0, |meta| meta.len()));
    }

    fn forget_unreachable(&self) -> Result<(), ExchangeError> {
        Ok(self.repository.forget_unreachable()?)
    }

    fn offered(&self) -> Result<Vec<Proposal>, ExchangeError> {
        self.proposals()
    }

    fn foreign_commits(&mut self) -> Result<Vec<String>, ExchangeError> {
        Ok(Vec::new())
    }

    fn squashes(&self) -> bool {
        true
    }

    fn unsent_lines(&mut self) -> Result<Vec<String>, ExchangeError> {
        Ok(Vec::new())
    }
}
