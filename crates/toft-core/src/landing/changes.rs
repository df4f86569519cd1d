//! What finished work changes, and what must not land.

use std::collections::BTreeSet;

/// How many names a message lists.
const NAMED: usize = 5;

/// What the commits of a piece of work change, without those that the target has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkChanges {
    /// The first line of the newest commit's message.
    pub subject: String,
    /// Every file that one of the commits adds, changes or deletes.
    pub files: BTreeSet<String>,
    /// Added or changed submodules, with their commits.
    pub submodules: Vec<(String, String)>,
    /// Files with conflict markers.
    pub markers: Vec<String>,
    /// Some of the commits are merges.
    pub merges: bool,
    /// The target has all of them.
    pub contained: bool,
}

impl WorkChanges {
    /// Why this must not land, if so. `made` says which files the setup of a workspace makes; `unknown` names a submodule
    /// whose commit cannot be found.
    #[must_use]
    pub fn must_not_land(&self, made: impl Fn(&str) -> bool, unknown: Option<&(String, String)>) -> Option<String> {
        if self.contained {
            return None;
        }
        let among =
            |is: &dyn Fn(&str) -> bool| -> Vec<String> { self.files.iter().filter(|path| is(path)).cloned().collect() };
        let (private, made) = (among(&is_private), among(&made));
        if self.files.is_empty() && !self.merges {
            let next = "Commit the change, or finish with the reason: toft finish --no-change \"…\".";
            return Some(format!("It changes nothing. {next}"));
        }
        if !self.markers.is_empty() {
            let names = named(&self.markers);
            return Some(format!("These files contain conflict markers: {names}. Resolve them and commit."));
        }
        if !private.is_empty() {
            let names = named(&private);
            return Some(format!("These files look private: {names}. Take them out of the commits of this branch."));
        }
        if !made.is_empty() {
            let names = named(&made);
            let why = "were made by the setup of the workspace, and must not be committed";
            return Some(format!("These files {why}: {names}."));
        }
        unknown.map(|(path, commit)| {
            format!("The submodule {path} is at {commit}, which this repository cannot find. Push it first.")
        })
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

    #[test]
    fn what_must_not_land_is_refused_with_its_reason() {
        let changes = |files: &[&str]| WorkChanges {
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            ..WorkChanges::default()
        };
        let refused = |changes: &WorkChanges| changes.must_not_land(|path| path.starts_with("node_modules"), None);
        assert_eq!(refused(&changes(&["a"])), None);
        assert!(refused(&changes(&[])).unwrap().contains("changes nothing"));
        assert_eq!(refused(&WorkChanges { merges: true, ..changes(&[]) }), None);
        assert_eq!(refused(&WorkChanges { contained: true, ..changes(&[".env"]) }), None);
        assert!(
            refused(&WorkChanges { markers: vec!["a".into()], ..changes(&["a"]) }).unwrap().contains("markers: a.")
        );
        assert!(refused(&changes(&["a", ".env"])).unwrap().contains("private: .env."));
        assert!(refused(&changes(&["node_modules/x"])).unwrap().contains("setup of the workspace"));
        let unknown = ("lib".to_owned(), "1234".to_owned());
        assert!(
            changes(&["lib"]).must_not_land(|_| false, Some(&unknown)).unwrap().contains("submodule lib is at 1234")
        );
    }
}
