//! A ledger beside a git repository: a ref of its own here, an orphan branch on the other side, written by plumbing.
//! Nothing of the user's is looked at or touched: no HEAD, no index, no file.

use std::{fs, path::PathBuf, time::Duration};

use super::{
    Contact, Exchange, ExchangeError, Fetched, Files, ISSUES, Sent, content, git_dir, pack, read_files, refs,
    understood, unsent,
};
use crate::{Checkout, RunError, git_run::Git};

/// Where the ledger is recorded.
pub(super) const HERE: &str = "refs/toft/ledger";
/// What the other side calls it.
const THERE: &str = "refs/heads/toft";
/// How branches are called that propose an issue.
const PROPOSE: &str = "toft-propose/";

/// The exchange of a ledger that is no part of any working tree.
pub struct Branch {
    git: Git,
    git_dir: PathBuf,
    dir: PathBuf,
    remote: Option<(String, refs::Abroad)>,
    here: Option<String>,
    theirs: Option<String>,
    /// What the other side has, with its proposals.
    seen: Option<String>,
    /// Files of a commit that were read.
    read: Option<(String, Files)>,
    /// Who commits.
    who: Option<String>,
    patience: Duration,
}

/// An issue that somebody proposes on a branch of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The issue.
    pub id: String,
    /// The ledger's files on that branch.
    pub files: Files,
}

impl Branch {
    /// The ledger in `dir` of a checkout under git, or under Jujutsu, which has a git repository behind it.
    pub fn open(checkout: &Checkout, dir: &std::path::Path, reach: Contact<'_>) -> Result<Option<Self>, ExchangeError> {
        let Some(git_dir) = git_dir(checkout) else { return Ok(None) };
        let git = Git::of(&git_dir)?;
        let remote = match refs::choose(&git_dir, reach.remote)? {
            Some((name, url)) => Some((name, refs::abroad(&git_dir, &url, reach.patience)?)),
            None => None,
        };
        let here = refs::resolve(&git, &git_dir, HERE)?;
        let mut branch = Self {
            git,
            git_dir,
            dir: dir.to_owned(),
            remote,
            here,
            theirs: None,
            seen: None,
            read: None,
            who: None,
            patience: reach.patience,
        };
        branch.theirs = branch.known(THERE)?;
        Ok(Some(branch))
    }

    /// Where a branch of the other side was when it was last fetched.
    fn known(&self, branch: &str) -> Result<Option<String>, RunError> {
        match self.remote() {
            Some(remote) => refs::resolve(&self.git, &self.git_dir, &tracking(remote, branch)),
            None => Ok(None),
        }
    }

    /// The ledger's files in a commit.
    fn files_at(&mut self, commit: &str) -> Result<Files, RunError> {
        if let Some((_, files)) = self.read.as_ref().filter(|(known, _)| known == commit) {
            return Ok(files.clone());
        }
        let files = content::at(&self.git, commit, "")?;
        self.read = Some((commit.to_owned(), files.clone()));
        Ok(files)
    }

    /// Writes a commit that holds exactly `files`; gives its name. The ref points to it.
    fn commit(&mut self, name: &str, parents: &[&str], files: &Files, message: &str) -> Result<String, ExchangeError> {
        let who = match &self.who {
            Some(who) => who.clone(),
            None => self.git.run(["var", "GIT_COMMITTER_IDENT"])?.maybe()?.unwrap_or_else(|| {
                let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
                format!("toft <toft@localhost> {now} +0000")
            }),
        };
        self.who = Some(who.clone());
        self.git.run(["-c", "pack.compression=1", "fast-import", "--quiet", "--force", "--done"])?.ok_fed(|to| {
            writeln!(to, "commit {name}\ncommitter {who}\ndata {}\n{message}", message.len())?;
            for (n, parent) in parents.iter().enumerate() {
                writeln!(to, "{} {parent}", if n == 0 { "from" } else { "merge" })?;
            }
            writeln!(to, "deleteall")?;
            for (name, bytes) in files {
                writeln!(to, "M 100644 inline {name}\ndata {}", bytes.len())?;
                to.write_all(bytes)?;
                writeln!(to)?;
            }
            writeln!(to, "done")
        })?;
        let made = refs::resolve(&self.git, &self.git_dir, name)?;
        made.ok_or_else(|| ExchangeError::InTheWay(format!("git made no commit for {name}")))
    }

    /// A name for everything that is known of the other side.
    fn look(&self) -> Option<String> {
        let below = self.git_dir.join(tracking(self.remote()?, &format!("refs/heads/{PROPOSE}")));
        let mut seen: Vec<String> = self.theirs.iter().cloned().collect();
        for entry in fs::read_dir(below).into_iter().flatten().flatten() {
            let commit = fs::read_to_string(entry.path()).unwrap_or_default();
            seen.push(format!("{} {}", entry.file_name().to_string_lossy(), commit.trim()));
        }
        seen.sort();
        (!seen.is_empty()).then(|| seen.join(", "))
    }

    fn point(&mut self, to: String) -> Result<(), ExchangeError> {
        self.git.run(["update-ref", HERE, &to])?.ok()?;
        self.here = Some(to);
        Ok(())
    }

    /// Issues that branches of the other side propose, as they were last fetched.
    fn proposals(&self) -> Result<Vec<Proposal>, ExchangeError> {
        let Some(remote) = self.remote() else { return Ok(Vec::new()) };
        let below = tracking(remote, &format!("refs/heads/{PROPOSE}"));
        if !refs::any_below(&self.git_dir, &below) {
            return Ok(Vec::new());
        }
        let listed = self.git.run(["for-each-ref", "--format=%(refname)", &below])?.text()?;
        let mut proposals = Vec::new();
        for name in listed.lines() {
            let id = name.strip_prefix(&below).unwrap_or_default().to_owned();
            // One that is no ledger, or too large to be one, proposes nothing.
            if let Ok(files) = content::at(&self.git, name, "") {
                proposals.push(Proposal { id, files });
            }
        }
        Ok(proposals)
    }

    /// Whether anything of the other side is known.
    pub fn fetched_before(&self) -> bool {
        self.theirs.is_some()
    }

    /// Makes a branch that adds one issue to what the other side has: `edited` is its files with that issue. Gives the
    /// branch's name.
    pub fn propose(&mut self, id: &str, edited: &Files, message: &str) -> Result<String, ExchangeError> {
        self.refuse_checked_out(id)?;
        let (name, parents) = (format!("{PROPOSE}{id}"), self.theirs.clone());
        self.commit(&format!("refs/heads/{name}"), parents.as_deref().as_slice(), edited, message)?;
        Ok(name)
    }

    /// Sends a branch that proposes an issue to a remote; nothing sent takes it away there.
    pub fn send_proposal(&self, id: &str, to: &str, there: bool) -> Result<(), ExchangeError> {
        let url = self.url_of(to)?;
        let branch = format!("refs/heads/{PROPOSE}{id}");
        let what = if there { format!("+{branch}:{branch}") } else { format!(":{branch}") };
        let sent = refs::abroad(&self.git_dir, &url, self.patience)?.push(to, &what);
        match sent {
            Err(RunError::Failed { said, .. }) if !there && said.contains("remote ref does not exist") => Ok(()),
            sent => sent.map_err(|error| understood(error, to)),
        }
    }

    /// Where a remote is.
    pub fn url_of(&self, remote: &str) -> Result<String, ExchangeError> {
        let known = refs::choose(&self.git_dir, Some(remote))?.map(|(_, url)| url);
        known.ok_or_else(|| ExchangeError::InTheWay(format!("there is no remote `{remote}`")))
    }

    /// Fetches the branch that proposes an issue from anywhere: a remote, or a URL.
    pub fn fetch_proposal(&self, from: &str, id: &str) -> Result<Proposal, ExchangeError> {
        if from.starts_with('-') {
            return Err(ExchangeError::InTheWay(format!("`{from}` is no place to fetch from")));
        }
        let name = format!("refs/toft/offered/{id}");
        let refs = format!("+refs/heads/{PROPOSE}{id}:{name}");
        if !refs::abroad(&self.git_dir, from, self.patience)?.fetch(from, &refs, &[])? {
            return Err(ExchangeError::InTheWay(format!("{from} has no branch {PROPOSE}{id}")));
        }
        Ok(Proposal { id: id.to_owned(), files: content::at(&self.git, &name, "")? })
    }

    /// A branch that somebody stands on is theirs for as long as they do.
    fn refuse_checked_out(&self, id: &str) -> Result<(), ExchangeError> {
        let branch = format!("refs/heads/{PROPOSE}{id}");
        match self.git.run(["for-each-ref", "--format=%(worktreepath)", &branch])?.maybe()? {
            Some(path) if !path.trim().is_empty() => {
                let path = path.trim();
                Err(ExchangeError::InTheWay(format!(
                    "{PROPOSE}{id} is checked out in {path}; switch to another branch first"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Takes the branch that proposes an issue away here.
    pub fn withdraw(&self, id: &str) -> Result<(), ExchangeError> {
        self.refuse_checked_out(id)?;
        Ok(self.git.run(["update-ref", "-d", &format!("refs/heads/{PROPOSE}{id}")])?.ok().map(drop)?)
    }

    /// Whether a branch of a remote proposes this issue; asks the remote.
    pub fn proposed_at(&self, remote: &str, id: &str) -> Result<bool, ExchangeError> {
        let url = self.url_of(remote)?;
        let branch = format!("refs/heads/{PROPOSE}{id}");
        let git = refs::abroad(&self.git_dir, &url, self.patience)?;
        let ended = git.run(["ls-remote", "--exit-code", "--upload-pack=git-upload-pack", remote, &branch])?.end()?;
        match ended.code {
            0 => Ok(true),
            2 => Ok(false),
            _ => Err(understood(ended.ok("git ls-remote".into()).err().unwrap_or(RunError::Missing("git")), remote)),
        }
    }
}

/// Where a branch of a remote is kept here, out of everybody's sight.
fn tracking(remote: &str, branch: &str) -> String {
    format!("refs/toft/remotes/{remote}/{}", branch.trim_start_matches("refs/heads/"))
}

impl Exchange for Branch {
    fn remote(&self) -> Option<&str> {
        self.remote.as_ref().map(|(name, _)| name.as_str())
    }

    fn fetch(&mut self) -> Result<Fetched, ExchangeError> {
        let Some((remote, git)) = &self.remote else { return Ok(Fetched::default()) };
        let refs = format!("+{THERE}*:{}*", tracking(remote, THERE));
        git.fetch(remote, &refs, &["--prune"])?;
        let before = self.theirs.take();
        self.theirs = self.known(THERE)?;
        let rewritten = match (&before, &self.theirs) {
            // What we sent ourselves goes on from what was there.
            (Some(_), Some(now)) if self.here.as_ref() == Some(now) => false,
            (Some(before), Some(now)) => !refs::ancestor(&self.git, before, now)?,
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
        let (here, theirs) = (self.here.clone(), self.theirs.clone());
        if let Some(theirs) = &theirs
            && self.files_at(theirs)? == files
        {
            let moved = here.as_ref() != Some(theirs);
            if moved {
                self.point(theirs.clone())?;
            }
            return Ok(moved);
        }
        let ahead = match (&here, &theirs) {
            (Some(here), Some(theirs)) => refs::ancestor(&self.git, theirs, here)?,
            (_, None) => true,
            (None, Some(_)) => false,
        };
        if let Some(here) = &here
            && ahead
            && self.files_at(here)? == files
        {
            return Ok(false);
        }
        if here.is_none() && theirs.is_none() && files.is_empty() {
            return Ok(false);
        }
        let mut parents: Vec<&str> = Vec::new();
        if !ahead {
            parents.extend(theirs.as_deref());
        }
        if let Some(here) = &here
            && (ahead || !refs::ancestor(&self.git, here, parents[0])?)
        {
            parents.push(here);
        }
        self.here = Some(self.commit(HERE, &parents, &files, message)?);
        Ok(true)
    }

    fn send(&mut self) -> Result<Sent, ExchangeError> {
        let (Some((remote, git)), Some(here)) = (&self.remote, &self.here) else { return Ok(Sent::Same) };
        if self.theirs.as_ref() == Some(here) {
            return Ok(Sent::Same);
        }
        let what = format!("{here}:{THERE}");
        match git.push(remote, &what) {
            Ok(()) => {
                // The next fetch sees it there.
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

    fn before(&mut self) -> Result<Option<Files>, ExchangeError> {
        let first = match (&self.here, &self.theirs) {
            (Some(here), Some(theirs)) if !refs::ancestor(&self.git, theirs, here)? => theirs.clone(),
            (Some(one), _) | (None, Some(one)) => one.clone(),
            (None, None) => return Ok(Some(Files::new())),
        };
        Ok(Some(self.files_at(&first)?))
    }

    fn tidy(&self, memo: &std::path::Path) {
        let tips: Vec<&str> = self.here.iter().chain(&self.theirs).map(String::as_str).collect();
        let file = fs::metadata(self.dir.join(ISSUES)).map_or(0, |meta| meta.len());
        pack::tidy(&self.git, &self.git_dir, &tips, file, memo);
        if let Some((_, there)) = &self.remote
            && let Some(theirs) = &self.theirs
        {
            there.tidy(theirs, file, memo);
        }
    }

    fn offered(&self) -> Result<Vec<Proposal>, ExchangeError> {
        self.proposals()
    }
}
