//! What must not land, even if it passes the check.

use std::path::Path;

use toft_core::landing::{Landing, LandingOffer, LandingState, WorkChanges, taken_back};
use toft_session::error::Error;

use crate::Lander;

/// How many past landings are looked at.
const PAST: usize = 500;

/// The tip of work that was taken back, and the commit that did it.
pub(crate) struct TakenBack {
    tip: String,
    by: String,
}

impl Lander<'_> {
    /// Why a piece of work must not land, if so.
    pub(crate) fn must_not_land(
        &self,
        landing: &Landing,
        changes: &WorkChanges,
        base: &str,
        taken_back: &[TakenBack],
    ) -> Result<Option<String>, Error> {
        if let Some(why) = self.would_lose(landing, base, taken_back)? {
            return Ok(Some(why));
        }
        let setup = &self.work.session().located().workspaces.setup;
        let made = |path: &str| setup.link.iter().chain(&setup.copy).any(|made| Path::new(path).starts_with(made));
        if let Some(why) = changes.must_not_land(made, self.unknown_submodule(&changes.submodules)?) {
            return Ok(Some(why));
        }
        match self.repository.remote_branch(&landing.offer.target) {
            Some(branch) => self.work.must_not_be_published(&branch.remote, &landing.offer.tip, base),
            None => Ok(None),
        }
    }

    /// The work that was taken back from a target.
    pub(crate) fn taken_back(&self, target: &str) -> Result<Vec<TakenBack>, Error> {
        let past: Vec<Landing> = self.work.landings(&[], PAST)?.into_iter().map(|entry| entry.landing).collect();
        let here = past.iter().filter(|landing| landing.offer.target == target);
        let found = taken_back(here).into_iter();
        Ok(found.map(|(work, by)| TakenBack { tip: work.offer.tip.clone(), by: by.offer.tip.clone() }).collect())
    }

    /// Whether a merge would drop a part of the work: it is built on commits that the target has already, and that were taken
    /// back there.
    fn would_lose(&self, landing: &Landing, base: &str, taken_back: &[TakenBack]) -> Result<Option<String>, Error> {
        let (tip, target) = (&landing.offer.tip, &landing.offer.target);
        for TakenBack { tip: old, by } in taken_back {
            let has = |commit: &str, of: &str| self.repository.contains(commit, of);
            if landing.reverts.is_none() && has(old, tip)? && has(old, base)? && !has(by, tip)? {
                let (old, by) = (short(old), short(by));
                return Ok(Some(format!(
                    "It is built on {old}, which landed and was taken back from {target} by {by}: a merge would leave that \
                     part out. Merge {target} into it and take up what is still wanted (git revert {by}), or put only the new \
                     commits on {target} (git rebase --onto {target} {old})."
                )));
            }
        }
        Ok(None)
    }

    /// The commits of work that has landed, if the target is a remote's.
    pub(crate) fn landed_tips(&self, target: &str) -> Result<Vec<String>, Error> {
        if self.repository.remote_branch(target).is_none() {
            return Ok(Vec::new());
        }
        let past = self.work.landings(&[], PAST)?;
        let landed = past.into_iter().filter(|entry| entry.landing.state == LandingState::Landed);
        Ok(landed.map(|entry| entry.landing.offer.tip).collect())
    }

    /// Why a piece of work may not be pushed as it is, if so: it brings commits that it was begun on top of, and that neither
    /// the remote nor other landed work has. They are the user's, who has not pushed them. Work that has no workspace was
    /// begun when its task was claimed.
    pub(crate) fn brings_older_commits(
        &self,
        landing: &Landing,
        base: &str,
        landed: &[String],
    ) -> Result<Option<String>, Error> {
        let (Some(branch), Some(task)) = (self.repository.remote_branch(&landing.offer.target), &landing.task) else {
            return Ok(None);
        };
        let LandingOffer { tip, bases, .. } = &landing.offer;
        let older = match bases.is_empty() {
            false => self.repository.commits_of_bases(base, tip, landed, bases)?,
            true => match self.work.begun(task)? {
                Some(begun) => self.repository.older_commits(base, tip, landed, begun.0.div_euclid(1_000))?,
                None => return Ok(None),
            },
        };
        let Some(first) = older.first() else { return Ok(None) };
        let name = landing.issue.as_deref().unwrap_or(landing.id.as_str());
        Ok(Some(format!(
            "{name} does not land now: it was begun on top of {} that {}/{} does not have ({first}). Push {} \
             yourself first, or have it rebased: toft review {name} --return -m \"rebase it onto {}/{}\"",
            if older.len() == 1 { "a commit".to_owned() } else { format!("{} commits", older.len()) },
            branch.remote,
            branch.branch,
            if older.len() == 1 { "it" } else { "them" },
            branch.remote,
            branch.branch,
        )))
    }

    /// A submodule whose commit no checkout of it on this machine has.
    fn unknown_submodule<'c>(&self, changed: &'c [(String, String)]) -> Result<Option<&'c (String, String)>, Error> {
        for submodule in changed {
            let (path, commit) = submodule;
            if !self.repository.submodule_has(&self.checkout.main_root(), path, commit)? {
                return Ok(Some(submodule));
            }
        }
        Ok(None)
    }
}

/// A commit as people see it.
fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}
