//! A repository's configuration for setting up a new workspace, and the user's approval of its commands.
//!
//! Commands run only after the user trusted that exact text. Approvals are stored outside of any repository.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};
use toft_core::schema::JsonSchema;

use serde::{Deserialize, Serialize};
use toft_store::private;

use crate::{
    config::state_home,
    error::{Error, io},
};

/// What makes a fresh checkout usable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Untracked files and directories to copy from the main checkout. Copies share disk blocks where the file system can.
    pub copy: Vec<String>,
    /// Untracked files and directories to link to those of the main checkout.
    pub link: Vec<String>,
    /// Names of ports. Each workspace gets its own number for each, in the variable `TOFT_PORT_NAME`.
    pub ports: Vec<String>,
    /// Commands to run in a new workspace, in order.
    pub run: Vec<String>,
    /// A command that succeeds once the workspace is usable.
    pub ready: Option<String>,
    /// The user wrote it; it needs no trust.
    #[serde(skip)]
    pub(crate) own: bool,
}

/// The user's approval of one exact text, stored outside of any repository.
pub struct Approval(PathBuf);

impl Approval {
    /// The approval of a text, for a repository.
    pub fn of(what: &impl Serialize) -> Self {
        let text = serde_json::to_string(what).unwrap_or_default();
        Self(state_home().join("trust").join(blake3::hash(text.as_bytes()).to_hex().as_str()))
    }

    /// Whether the user approved it.
    pub fn given(&self) -> bool {
        self.0.is_file()
    }

    /// Approves the text, or revokes the approval.
    pub fn set(&self, yes: bool, text: &str) -> Result<(), Error> {
        let path = &self.0;
        if !yes {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io("remove", path)(error)),
                _ => Ok(()),
            };
        }
        if let Some(dir) = path.parent() {
            private::create_dir_all(dir).map_err(io("make", dir))?;
        }
        private::write(path, text).map_err(io("write", path))
    }
}

impl Setup {
    /// The commands that would run, as a person reads them before trusting them.
    pub fn commands(&self) -> Vec<String> {
        self.run.iter().chain(&self.ready).cloned().collect()
    }

    /// Whether the user trusted that exact text for this repository.
    pub fn trusted(&self, repository: &str) -> bool {
        self.own || self.commands().is_empty() || self.approval(repository).given()
    }

    /// Trusts that exact text for this repository, or revokes the trust.
    pub fn trust(&self, repository: &str, yes: bool) -> Result<(), Error> {
        self.approval(repository).set(yes, &self.commands().join("\n"))
    }

    fn approval(&self, repository: &str) -> Approval {
        Approval::of(&(repository, self.commands()))
    }

    /// Refuses port names that cannot be variable names, and invalid paths.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (key, paths) in [("copy", &self.copy), ("link", &self.link)] {
            for path in paths {
                inside(path).map_err(|problem| format!("workspaces.setup.{key}: {problem}"))?;
            }
        }
        match self.ports.iter().find(|name| !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_'))
        {
            Some(name) => Err(format!("workspaces.setup.ports: `{name}` is no name for a variable")),
            None => Ok(()),
        }
    }
}

/// A path below a checkout.
pub(crate) fn inside(text: &str) -> Result<(), String> {
    let path = Path::new(text);
    let own = path.components().all(|part| matches!(part, Component::Normal(name) if name != ".git"));
    match own && !text.is_empty() {
        true => Ok(()),
        false => Err(format!("`{text}` is not a path inside the checkout")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_inside_the_checkout_are_taken() {
        for path in ["../x", "/etc/passwd", "a/../../b", ".git/config", "a/.git", "", "./x"] {
            assert!(Setup { copy: vec![path.into()], ..Setup::default() }.check().is_err(), "{path}");
        }
        let fine = Setup { copy: vec![".env".into(), "a/b".into()], ports: vec!["web".into()], ..Setup::default() };
        assert_eq!(fine.check(), Ok(()));
        assert!(Setup { ports: vec!["a b".into()], ..Setup::default() }.check().is_err());
    }
}
