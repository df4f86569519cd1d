//! What must not land, whatever the check says.

use std::path::Path;

use toft_core::landing::Landing;
use toft_session::error::Error;
use toft_vcs::landing::Changes;

use crate::Lander;

/// How many names a message lists.
const NAMED: usize = 5;

impl Lander<'_> {
    /// What a piece of work changes; or why it must not land.
    pub(crate) fn inspect(&self, base: &str, landing: &Landing) -> Result<Result<Changes, String>, Error> {
        let changes = self.repository.changes(base, &landing.offer.tip)?;
        let contained = changes.files.is_empty() && self.repository.contains(&landing.offer.tip, base)?;
        if changes.files.is_empty() && !contained {
            let why =
                "It changes nothing. Commit the change, or finish with the reason: toft finish --no-change \"…\".";
            return Ok(Err(why.to_owned()));
        }
        if !changes.markers.is_empty() {
            return Ok(Err(format!(
                "These files contain conflict markers: {}. Resolve them and commit.",
                named(&changes.markers)
            )));
        }
        let secret: Vec<String> = changes.files.iter().filter(|path| is_private(path)).cloned().collect();
        if !secret.is_empty() {
            return Ok(Err(format!(
                "These files look private: {}. Remove them from the commits of this branch.",
                named(&secret)
            )));
        }
        let setup = &self.work.session().located().workspaces.setup;
        let made = |path: &&String| {
            setup.link.iter().chain(&setup.copy).any(|made| Path::new(path.as_str()).starts_with(made))
        };
        let made: Vec<String> = changes.files.iter().filter(made).cloned().collect();
        if !made.is_empty() {
            return Ok(Err(format!(
                "These files were made by the setup of the workspace, and must not be committed: {}.",
                named(&made)
            )));
        }
        if let Some((path, commit)) = self.unknown_submodule(&changes.submodules)? {
            return Ok(Err(format!(
                "The submodule {path} is at {commit}, which this repository cannot find. Push it first."
            )));
        }
        Ok(Ok(changes))
    }

    /// A submodule whose commit no checkout of it on this machine has.
    fn unknown_submodule<'c>(&self, changed: &'c [(String, String)]) -> Result<Option<(&'c str, &'c str)>, Error> {
        for (path, commit) in changed {
            if !self.repository.submodule_has(&self.checkout.main_root(), path, commit)? {
                return Ok(Some((path, commit)));
            }
        }
        Ok(None)
    }
}

fn named(paths: &[String]) -> String {
    match paths.len() > NAMED {
        true => format!("{} and {} more", paths[..NAMED].join(", "), paths.len() - NAMED),
        false => paths.join(", "),
    }
}

/// Whether a file's name says that it holds secrets: `.env` and its variants, except examples, and private keys.
fn is_private(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let example = ["example", "sample", "template", "dist", "test", "defaults"];
    let env = name == ".env" || name.strip_prefix(".env.").is_some_and(|rest| !example.contains(&rest));
    env || matches!(name, "id_rsa" | "id_ed25519" | "id_ecdsa" | ".netrc" | ".pgpass")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_hold_secrets_are_known_by_their_names() {
        for path in [".env", "a/.env", ".env.local", "x/id_rsa", ".netrc"] {
            assert!(is_private(path), "{path}");
        }
        for path in [".env.example", "env", "a.env", ".environment", "src/id_rsa.rs", ".env.template"] {
            assert!(!is_private(path), "{path}");
        }
    }
}
