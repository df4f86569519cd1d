//! What must not land, even if it passes the check.

use std::path::Path;

use toft_core::landing::{Landing, WorkChanges};
use toft_session::error::Error;

use crate::Lander;

impl Lander<'_> {
    /// Why a piece of work must not land, if so.
    pub(crate) fn must_not_land(
        &self,
        landing: &Landing,
        changes: &WorkChanges,
        base: &str,
    ) -> Result<Option<String>, Error> {
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
