//! What must not land, whatever the check says.

use std::path::Path;

use toft_core::landing::{Landing, LandingOffer, LandingState, WorkChanges, taken_back};
use toft_session::error::Error;

use crate::{Lander, lander::short_commit};

/// How many past landings are searched for work that was taken back, or that a remote has.
const MAX_PAST_LANDINGS: usize = 500;

/// Milliseconds in a second: the store counts in the first, git in the second.
const MS_PER_SECOND: i64 = 1_000;

/// Work that landed and was taken back, and the commit that did it.
pub(crate) struct RevertedWork {
    tip: String,
    reverted_by: String,
}

impl Lander<'_> {
    /// Returns why a piece of work must not land, if so.
    pub(crate) fn policy_violation(
        &self,
        landing: &Landing,
        changes: &WorkChanges,
        base: &str,
        reverted: &[RevertedWork],
    ) -> Result<Option<String>, Error> {
        // First, because git would merge such work without a conflict, and nothing later would notice.
        if let Some(why) = self.part_lost_by_merge(landing, base, reverted)? {
            return Ok(Some(why));
        }
        let setup = &self.work.session().located().workspaces.setup;
        let is_made_by_setup =
            |path: &str| setup.link.iter().chain(&setup.copy).any(|made| Path::new(path).starts_with(made));
        let missing_submodule = self.missing_submodule(&changes.submodules)?;
        if let Some(why) = changes.must_not_land(is_made_by_setup, missing_submodule) {
            return Ok(Some(why));
        }
        match self.repository.remote_branch(&landing.offer.target) {
            Some(branch) => self.work.must_not_be_published(&branch.remote, &landing.offer.tip, base),
            None => Ok(None),
        }
    }

    /// Lists the work that was taken back from a target.
    pub(crate) fn reverted_work(&self, target: &str) -> Result<Vec<RevertedWork>, Error> {
        let past: Vec<Landing> =
            self.work.landings(&[], MAX_PAST_LANDINGS)?.into_iter().map(|entry| entry.landing).collect();
        let reverted = taken_back(past.iter().filter(|landing| landing.offer.target == target)).into_iter();
        let pairs =
            reverted.map(|(work, by)| RevertedWork { tip: work.offer.tip.clone(), reverted_by: by.offer.tip.clone() });
        Ok(pairs.collect())
    }

    /// Returns why a merge would leave out a part of the work, if so: the work is built on commits that the target has
    /// and that were taken back there, so git takes them for merged already.
    fn part_lost_by_merge(
        &self,
        landing: &Landing,
        base: &str,
        reverted: &[RevertedWork],
    ) -> Result<Option<String>, Error> {
        if landing.reverts.is_some() {
            return Ok(None);
        }
        let LandingOffer { tip, target, .. } = &landing.offer;
        let contains = |commit: &str, ancestor_of: &str| self.repository.contains(commit, ancestor_of);
        for RevertedWork { tip: old, reverted_by } in reverted {
            if contains(old, tip)? && contains(old, base)? && !contains(reverted_by, tip)? {
                let (old, by) = (short_commit(old), short_commit(reverted_by));
                return Ok(Some(format!(
                    "It is built on {old}, which landed and was taken back from {target} by {by}: a merge would leave \
                     that part out. Merge {target} into it and take up what is still wanted (git revert {by}), or put \
                     only the new commits on {target} (git rebase --onto {target} {old})."
                )));
            }
        }
        Ok(None)
    }

    /// Lists the tips of landed work, if the target is a branch of a remote.
    pub(crate) fn landed_tips(&self, target: &str) -> Result<Vec<String>, Error> {
        if self.repository.remote_branch(target).is_none() {
            return Ok(Vec::new());
        }
        let past = self.work.landings(&[], MAX_PAST_LANDINGS)?.into_iter();
        let landed = past.filter(|entry| entry.landing.state == LandingState::Landed);
        Ok(landed.map(|entry| entry.landing.offer.tip).collect())
    }

    /// Returns why work may not be pushed as it is, if so: it was begun on top of commits that neither the remote nor
    /// landed work has. They are the user's own, and only the user publishes them.
    pub(crate) fn unpushed_start(
        &self,
        landing: &Landing,
        base: &str,
        landed_tips: &[String],
    ) -> Result<Option<String>, Error> {
        let (Some(remote), Some(task)) = (self.repository.remote_branch(&landing.offer.target), &landing.task) else {
            return Ok(None);
        };
        let LandingOffer { tip, bases, .. } = &landing.offer;
        let unpushed = if !bases.is_empty() {
            self.repository.commits_of_bases(base, tip, landed_tips, bases)?
        } else if let Some(begun) = self.work.begun(task)? {
            // Work without a workspace has no recorded base; what is older than its first claim is not its own.
            self.repository.older_commits(base, tip, landed_tips, begun.0.div_euclid(MS_PER_SECOND))?
        } else {
            return Ok(None);
        };
        let name = landing.issue.as_deref().unwrap_or(landing.id.as_str());
        Ok(unpushed_message(&unpushed, name, &format!("{}/{}", remote.remote, remote.branch)))
    }

    /// Returns a changed submodule whose commit no checkout of it on this machine has.
    fn missing_submodule<'c>(&self, changed: &'c [(String, String)]) -> Result<Option<&'c (String, String)>, Error> {
        for submodule in changed {
            let (path, commit) = submodule;
            if !self.repository.submodule_has(&self.checkout.main_root(), path, commit)? {
                return Ok(Some(submodule));
            }
        }
        Ok(None)
    }
}

fn unpushed_message(unpushed: &[String], name: &str, remote: &str) -> Option<String> {
    let first = unpushed.first()?;
    let (commits, them) = match unpushed.len() {
        1 => ("a commit".to_owned(), "it"),
        count => (format!("{count} commits"), "them"),
    };
    Some(format!(
        "{name} does not land now: it was begun on top of {commits} that {remote} does not have ({first}). Push {them} \
         yourself first, or have it rebased: toft review {name} --return -m \"rebase it onto {remote}\""
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpushed_commits_are_counted_and_named() {
        let one = unpushed_message(&["abc Fix".into()], "tf-1", "origin/main").unwrap();
        assert!(one.contains("a commit that origin/main does not have (abc Fix). Push it yourself"), "{one}");
        let two = unpushed_message(&["abc Fix".into(), "def Add".into()], "tf-1", "origin/main").unwrap();
        assert!(two.contains("2 commits that origin/main does not have (abc Fix). Push them yourself"), "{two}");
        assert_eq!(unpushed_message(&[], "tf-1", "origin/main"), None);
    }
}
