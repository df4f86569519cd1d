//! Targets that are branches of a remote: work lands in them by a push, from the commit that the remote is known to have.

use std::time::Duration;

use super::LandingRepository;
use crate::{
    exchange::{ExchangeError, refs},
    lock::retry,
    workspace::WorkspaceError,
};

/// How long a remote may take to answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A branch of a remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteBranch {
    pub remote: String,
    pub branch: String,
    /// The address of the remote.
    pub url: String,
}

impl RemoteBranch {
    /// The branch that `REMOTE/BRANCH` names, if there is such a remote.
    pub(super) fn of(git_dir: &std::path::Path, name: &str) -> Result<Option<Self>, WorkspaceError> {
        let fits = |remote: &str| name.strip_prefix(remote).and_then(|rest| rest.strip_prefix('/'));
        let remotes = refs::remotes(git_dir)?;
        let found = remotes.into_iter().find_map(|(remote, url)| {
            let branch = fits(&remote).filter(|branch| !branch.is_empty())?.to_owned();
            Some(Self { remote, branch, url })
        });
        Ok(found)
    }

    /// The ref that says where it was when the remote was last asked.
    pub(super) fn tracking(&self) -> String {
        format!("refs/remotes/{}/{}", self.remote, self.branch)
    }
}

impl LandingRepository {
    /// The branch of a remote that a target is, if that is where work is pushed.
    pub fn remote_branch(&self, target: &str) -> Option<&RemoteBranch> {
        self.pushed.as_ref().filter(|(name, _)| name == target).map(|(_, branch)| branch)
    }

    /// Whether work is pushed to a branch of a remote.
    pub fn pushes(&self) -> bool {
        self.pushed.is_some()
    }

    /// Whether `REMOTE/BRANCH` names a remote of this repository.
    pub fn names_remote(&self, name: &str) -> Result<bool, WorkspaceError> {
        Ok(RemoteBranch::of(&self.common, name)?.is_some())
    }

    /// Asks the remote where its branch is; nothing happens for a branch of this repository.
    pub fn refresh(&self, target: &str) -> Result<(), ExchangeError> {
        let Some(at) = self.remote_branch(target) else { return Ok(()) };
        let spec = format!("+refs/heads/{}:{}", at.branch, at.tracking());
        let git = refs::remote_git(&self.common, &at.url, PATIENCE)?;
        match git.fetch(&at.remote, &[&spec], &[])? {
            true => Ok(()),
            false => Err(ExchangeError::Conflict(format!("{} has no branch {}", at.remote, at.branch))),
        }
    }

    /// Moves the branch of a remote from a commit to another; returns whether it was still there.
    pub fn push(&self, target: &str, to: &str, from: &str) -> Result<bool, ExchangeError> {
        let Some(at) = self.remote_branch(target) else { return Ok(false) };
        let (git, name) = (refs::remote_git(&self.common, &at.url, PATIENCE)?, format!("refs/heads/{}", at.branch));
        let Err(failed) = git.replace(&at.remote, &format!("{to}:{name}"), &name, from) else {
            // It was pushed: what this clone knows of it is said again when it is asked for the next time.
            drop(self.track(at, to));
            return Ok(true);
        };
        // Another push came first, or its answer was lost.
        self.refresh(target)?;
        match self.commit_of(&at.tracking())? {
            Some(now) if now == to => Ok(true),
            Some(now) if now != from => Ok(false),
            _ => Err(crate::exchange::classify_failure(failed, &at.remote)),
        }
    }

    /// Pushes a commit as a branch of a remote that toft made there at `was`, or makes.
    pub fn push_branch(&self, remote: &str, branch: &str, to: &str, was: &str) -> Result<(), ExchangeError> {
        let (git, name) =
            (refs::remote_git(&self.common, &self.url_of(remote)?, PATIENCE)?, format!("refs/heads/{branch}"));
        let asked = git.run(["ls-remote", "--quiet", remote, &name])?.text()?;
        let was = match asked.split_whitespace().next() {
            // A push whose answer was lost is not repeated.
            Some(now) if now == to => return Ok(()),
            Some(now) if now == was => was,
            Some(_) => {
                let why = format!(
                    "{remote} has other commits on {branch} than toft pushed there; take them into the work first"
                );
                return Err(ExchangeError::Conflict(why));
            }
            // The forge deleted it.
            None => "",
        };
        let pushed = git.replace(remote, &format!("{to}:{name}"), &name, was);
        pushed.map_err(|failed| crate::exchange::classify_failure(failed, remote))
    }

    /// The address of a remote.
    pub fn url_of(&self, remote: &str) -> Result<String, ExchangeError> {
        let found = refs::remotes(&self.common)?.into_iter().find(|(name, _)| name == remote);
        found.map(|(_, url)| url).ok_or_else(|| ExchangeError::Conflict(format!("there is no remote `{remote}`")))
    }

    fn track(&self, at: &RemoteBranch, to: &str) -> Result<(), WorkspaceError> {
        Ok(retry(|| self.git.run(["update-ref", "-m", "toft land", &at.tracking(), to])?.ok()).map(drop)?)
    }
}
