//! What must not land, whatever the check says.

use std::path::Path;

use toft_session::error::Error;
use toft_vcs::landing::Changes;

use crate::Lander;

/// How many names a message lists.
const NAMED: usize = 5;

impl Lander<'_> {
    /// Why a piece of work must not land, if so.
    pub(crate) fn must_not_land(&self, changes: &Changes) -> Result<Option<String>, Error> {
        if changes.contained {
            return Ok(None);
        }
        let among = |names: &dyn Fn(&str) -> bool| -> Vec<String> {
            changes.files.iter().filter(|path| names(path)).cloned().collect()
        };
        let setup = &self.work.session().located().workspaces.setup;
        let made = |path: &str| setup.link.iter().chain(&setup.copy).any(|made| Path::new(path).starts_with(made));
        let (private, made) = (among(&is_private), among(&made));
        let why = if changes.files.is_empty() && !changes.merges {
            "It changes nothing. Commit the change, or finish with the reason: toft finish --no-change \"…\"."
                .to_owned()
        } else if !changes.markers.is_empty() {
            format!("These files contain conflict markers: {}. Resolve them and commit.", named(&changes.markers))
        } else if !private.is_empty() {
            format!("These files look private: {}. Take them out of the commits of this branch.", named(&private))
        } else if !made.is_empty() {
            let named = named(&made);
            format!("These files were made by the setup of the workspace, and must not be committed: {named}.")
        } else if let Some((path, commit)) = self.unknown_submodule(&changes.submodules)? {
            format!("The submodule {path} is at {commit}, which this repository cannot find. Push it first.")
        } else {
            return Ok(None);
        };
        Ok(Some(why))
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
