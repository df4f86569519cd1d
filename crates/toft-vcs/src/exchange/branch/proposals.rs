//! Proposals on branches: one issue each, on top of the remote's ledger, in the ledger's own repository.

use std::collections::BTreeMap;

use super::{
    super::{Exchange as _, ExchangeError, Files, classify_failure, content, refs},
    Branch, PROPOSAL_PREFIX, Proposal, tracking,
};
use crate::RunError;

impl Branch {
    /// Issues that branches of the remote proposed at the last fetch.
    pub(super) fn proposals(&self) -> Result<Vec<Proposal>, ExchangeError> {
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
