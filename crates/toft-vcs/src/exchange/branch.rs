//! A ledger that no commit of the user holds: a bare repository of toft's own, exchanged as one branch of the remote of
//! the git repository that it belongs to. That repository is read for its remotes, and never written.

mod proposals;

use std::{fs, path::PathBuf, time::Duration};

use super::{
    Contact, Exchange, ExchangeError, Fetched, Files, ISSUES, Sent, Site, content, git_dir,
    ledger_repository::{LEDGER_BRANCH, LEDGER_REF, LedgerRepository},
    owned, read_files, refs, rewrite, unsent,
};
use crate::{Checkout, RunError, git_run::Git};

/// The branch of a ledger on a remote before it was called `toft-ledger`. Its name excludes those of branches below it.
const FORMER_BRANCH: &str = "refs/heads/toft";
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
    /// The branch of the remote on which an earlier toft exchanges the ledger, if it did.
    former_branch: Option<String>,
    /// The ledger's place on that branch.
    former_prefix: String,
    /// The commit of that branch, as fetched.
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
        let mut branch = Self::open_part(checkout, dir, String::new(), reach)?;
        if let Some(branch) = &mut branch {
            branch.former_branch = (branch.there == LEDGER_REF).then(|| FORMER_BRANCH.to_owned());
        }
        Ok(branch)
    }

    /// The ledger in a directory of a repository that holds only ledgers. An earlier toft committed it to the branch that
    /// is checked out.
    pub(super) fn open_own(site: &Site, prefix: String, reach: Contact<'_>) -> Result<Option<Self>, ExchangeError> {
        let mut branch = Self::open_part(&site.checkout, &site.dir, prefix, reach)?;
        if let Some(branch) = &mut branch {
            let head = fs::read_to_string(branch.project.join("HEAD")).unwrap_or_default();
            let checked_out = head.strip_prefix("ref: ").map(|name| name.trim().to_owned());
            branch.former_branch = checked_out.filter(|name| *name != branch.there);
            branch.former_prefix.clone_from(&site.prefix);
        }
        Ok(branch)
    }

    fn open_part(
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
        let mut repository = LedgerRepository::open(&checkout.state_dir(), &project, reach.dry_run)?;
        let remote = match refs::choose(&project, reach.remote)? {
            Some((name, url)) => {
                let git = refs::ledger_git(&project, &repository.dir, &name, &url, reach.patience)?;
                Some((name, git))
            }
            None => None,
        };
        let here = refs::resolve(&repository.git, &repository.dir, LEDGER_REF)?;
        let notes = std::mem::take(&mut repository.notes);
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
            former_branch: None,
            former_prefix: String::new(),
            former: None,
            who: None,
            notes,
            patience: reach.patience,
        };
        branch.theirs = branch.known(&branch.there)?;
        Ok(Some(branch))
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

    /// Looks at the branch of an earlier toft, as just fetched: other clones may still write to it.
    fn find_former(&mut self) -> Result<(), ExchangeError> {
        self.former = match &self.former_branch {
            Some(name) => self.known(name)?,
            None => None,
        };
        if let Some(former) = &self.former
            && self.other_content(former, &self.former_prefix)?.is_some()
        {
            self.former = None;
        }
        if self.theirs.is_none() && self.former_branch.as_deref() == Some(FORMER_BRANCH) {
            // Its history goes on under the new name.
            self.theirs.clone_from(&self.former);
        } else if self.theirs.is_none()
            && self.former.is_some()
            && let Some(name) = &self.former_branch
        {
            let name = name.trim_start_matches("refs/heads/");
            self.notes
                .push(format!("the branch `{name}` is read; from now on the ledger is the branch `{LEDGER_BRANCH}`"));
        }
        Ok(())
    }

    /// True while the remote has the ledger under its former name only.
    fn is_renamed(&self) -> bool {
        self.former.is_some() && self.theirs == self.former
    }

    /// Deletes the branch of an earlier toft, whose content is on the new one now. One that has changed since is read at
    /// the next fetch.
    fn delete_former(&mut self, was_renamed: bool) {
        let Some(former) = self.former.take_if(|_| self.former_branch.as_deref() == Some(FORMER_BRANCH)) else {
            return;
        };
        let Some((remote, git)) = &self.remote else { return };
        match git.delete(remote, &[(FORMER_BRANCH.to_owned(), former)]) {
            Ok(true) => {
                self.notes.push(format!(
                    "the branch `toft` of {remote} is `{LEDGER_BRANCH}` now; where git fetched it: git remote prune {remote}"
                ));
                // A purge that follows leaves nothing behind; the next fetch would remove it anyway.
                let _ = self
                    .repository
                    .git
                    .run(["update-ref", "-d", &tracking(remote, FORMER_BRANCH)])
                    .and_then(|run| run.ok());
            }
            Ok(false) => {}
            Err(error) if was_renamed => self.notes.push(format!(
                "the ledger is `{LEDGER_BRANCH}` of {remote} now; its branch `toft` could not be deleted: {error}"
            )),
            // That was said when the ledger moved.
            Err(_) => {}
        }
    }

    /// What a commit contains besides ledgers.
    fn other_content(&self, commit: &str, prefix: &str) -> Result<Option<String>, RunError> {
        match prefix.is_empty() {
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
            Some(theirs) if self.here.as_ref() != Some(theirs) => self.other_content(theirs, &self.prefix)?,
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
        let mut seen: Vec<String> = self.theirs.iter().chain(&self.former).cloned().collect();
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
}

/// The local tracking ref of a remote branch, outside of refs/remotes so that git's commands do not list it.
fn tracking(remote: &str, branch: &str) -> String {
    format!("refs/toft/remotes/{remote}/{}", branch.trim_start_matches("refs/heads/"))
}

/// A refspec for one branch that the remote need not have: only a pattern may match nothing.
fn optional_refspec(branch: &str, to: &str) -> String {
    let split = |name: &str| {
        let last = name.char_indices().last().map_or(0, |(at, _)| at);
        format!("{}*{}", &name[..last], &name[last..])
    };
    format!("+{}:{}", split(branch), split(to))
}

impl Exchange for Branch {
    fn remote(&self) -> Option<&str> {
        self.remote.as_ref().map(|(name, _)| name.as_str())
    }

    fn fetch(&mut self) -> Result<Fetched, ExchangeError> {
        let Some((remote, git)) = &self.remote else { return Ok(Fetched::default()) };
        let below = |branch: &str| format!("+{branch}*:{}*", tracking(remote, branch));
        let mut refs = vec![below(&format!("{}/", self.there)), below(&format!("refs/heads/{PROPOSAL_PREFIX}"))];
        refs.push(optional_refspec(&self.there, &tracking(remote, &self.there)));
        if let Some(former) = self.former_branch.as_ref().filter(|former| **former != self.there) {
            refs.push(optional_refspec(former, &tracking(remote, former)));
            refs.push(format!("^{former}/*"));
        }
        let refs: Vec<&str> = refs.iter().map(String::as_str).collect();
        git.fetch(remote, &refs, &["--prune", "--no-filter"])?;
        self.asked = true;
        let before = self.theirs.take();
        self.theirs = self.known(&self.there)?;
        self.refuse_other_branch()?;
        self.find_former()?;
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
        let mut files = match self.theirs.clone() {
            Some(commit) => self.files_at(&commit)?,
            None => Files::new(),
        };
        // The reader of a ledger merges lines of one issue.
        if let Some(former) = self.former.as_ref().filter(|_| !self.is_renamed()) {
            for (name, bytes) in content::at(&self.repository.git, former, &self.former_prefix)? {
                files.entry(name).or_default().extend(bytes);
            }
        }
        Ok(files)
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
        let was_renamed = self.is_renamed();
        if self.remote.is_some() && self.here.is_some() && self.theirs == self.here && !was_renamed {
            self.delete_former(false);
            return Ok(Sent::Same);
        }
        let (Some((remote, git)), Some(here)) = (&self.remote, &self.here) else { return Ok(Sent::Same) };
        let what = format!("{here}:{}", self.there);
        let sent = match &self.replaces {
            // What was rewritten has its old history under the former name.
            Some(was) if !was_renamed => git.replace(remote, &what, &self.there, was),
            _ => git.push(remote, &what),
        };
        match sent {
            Ok(()) => {
                if self.replaces.take().is_some() {
                    self.repository.git.run(["update-ref", &tracking(remote, &self.there), here])?.ok()?;
                }
                // After a normal push, the next fetch updates the tracking ref.
                self.theirs = Some(here.clone());
                self.delete_former(was_renamed);
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
        if let Some(remote) = self.remote() {
            known.push(tracking(remote, &format!("refs/heads/{PROPOSAL_PREFIX}")));
            known.extend(self.former_branch.iter().map(|former| tracking(remote, former)));
        }
        let listed = self.repository.git.run(["for-each-ref", "--format=%(refname)"])?.args(&known).text()?;
        for name in listed.lines() {
            let paths = [ISSUES, super::ARCHIVE].map(|path| format!("{}{path}", self.prefix));
            let words = ["log", "-1", "--format=%H", &format!("-S{text}"), name, "--", &paths[0], &paths[1]];
            if self.repository.git.run(words)?.maybe()?.is_some() {
                let shown = name.trim_start_matches("refs/heads/").trim_start_matches("refs/toft/remotes/");
                found.push(shown.to_owned());
            }
        }
        // A user's own git fetches every branch.
        let project = Git::of(&self.project)?;
        let fetched = ["refs/remotes/*/toft-ledger", "refs/remotes/*/toft", "refs/toft/ledger"];
        let listed = project.run(["for-each-ref", "--format=%(refname)"])?.args(fetched).text()?;
        for name in listed.lines() {
            if project.run(["log", "-1", "--format=%H", &format!("-S{text}"), name, "--"])?.maybe()?.is_some() {
                found.push(format!("{} of your repository", name.trim_start_matches("refs/remotes/")));
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

    fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
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
