//! Setting a workspace up: what a repository says makes a fresh checkout usable.
//!
//! Files are copied from the main checkout and links made by declaration alone; commands run only after somebody on
//! this machine trusted that exact text. Approvals are kept outside of any repository.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    net::TcpListener,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use toft_core::workspace::Workspace;
use toft_vcs::{shell, workspace::behind_link};

use crate::{
    config::state_home,
    error::{Error, io},
};

/// How long one command may take.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// Ports are leased from here on.
const FIRST_PORT: u16 = 20_000;
/// So many of them.
const PORTS: u16 = 10_000;

/// What makes a fresh checkout usable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Setup {
    /// Untracked files and directories, copied from the main checkout; sharing their blocks where the disk can.
    pub copy: Vec<String>,
    /// Untracked files and directories, linked to those of the main checkout.
    pub link: Vec<String>,
    /// Names of ports: each workspace gets numbers of its own, as `TOFT_PORT_NAME`.
    pub ports: Vec<String>,
    /// Commands, in order.
    pub run: Vec<String>,
    /// A command that succeeds once the workspace can be worked in.
    pub ready: Option<String>,
    /// The user wrote it; it needs no trust.
    #[serde(skip)]
    pub(crate) own: bool,
}

impl Setup {
    /// What would be executed, as a person reads it before trusting it.
    pub fn commands(&self) -> Vec<String> {
        self.run.iter().chain(&self.ready).cloned().collect()
    }

    /// Whether somebody trusted that exact text for this repository.
    pub fn trusted(&self, repository: &str) -> bool {
        self.own || self.commands().is_empty() || self.approval(repository).is_file()
    }

    /// Trusts that exact text for this repository, or no longer.
    pub fn trust(&self, repository: &str, yes: bool) -> Result<(), Error> {
        let path = self.approval(repository);
        if !yes {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io("remove", &path)(error)),
                _ => Ok(()),
            };
        }
        if let Some(dir) = path.parent() {
            toft_store::private::create_dir_all(dir).map_err(io("make", dir))?;
        }
        toft_store::private::write(&path, self.commands().join("\n")).map_err(io("write", &path))
    }

    fn approval(&self, repository: &str) -> PathBuf {
        let text = serde_json::to_string(&(repository, self.commands())).unwrap_or_default();
        state_home().join("trust").join(blake3::hash(text.as_bytes()).to_hex().as_str())
    }

    /// Names that may be asked for, as variables.
    pub(crate) fn check(&self) -> Result<(), String> {
        for path in self.copy.iter().chain(&self.link) {
            inside(path)?;
        }
        match self.ports.iter().find(|name| !name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_'))
        {
            Some(name) => Err(format!("workspaces.setup.ports: `{name}` is no name for a variable")),
            None => Ok(()),
        }
    }

    /// Ports that nobody listens on now, to choose from.
    pub(crate) fn free_ports(&self, seed: u16) -> Vec<u16> {
        // A few more than are needed: another workspace may have leased some.
        let wanted = if self.ports.is_empty() { 0 } else { self.ports.len() + 64 };
        let candidates = (0..PORTS).map(|n| FIRST_PORT + (seed.wrapping_add(n)) % PORTS);
        candidates.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).take(wanted).collect()
    }

    /// Sets a workspace up; `step` is told what goes on. Everything that is said is in the log. Gives what was missing.
    pub(crate) fn run(
        &self,
        from: &Path,
        workspace: &Workspace,
        log: &Path,
        mut step: impl FnMut(&str),
    ) -> Result<Vec<String>, Error> {
        let mut missing = Vec::new();
        let to = Path::new(&workspace.path);
        if let Some(dir) = log.parent() {
            toft_store::private::create_dir_all(dir).map_err(io("make", dir))?;
        }
        let mut told = toft_store::private::create(log).map_err(io("write", log))?;
        for (paths, link) in [(&self.copy, false), (&self.link, true)] {
            for path in paths {
                step(path);
                let (source, target) = (from.join(path), to.join(path));
                let what = if behind_link(from, Path::new(path)) || behind_link(to, Path::new(path)) {
                    missing.push(format!("{path} is behind a link, and is not taken"));
                    "is behind a link"
                } else if fs::symlink_metadata(&source).is_err() {
                    missing.push(format!("{path} is not in {} to be taken", from.display()));
                    "is not there to be taken"
                } else if fs::symlink_metadata(&target).is_ok() {
                    "is there already"
                } else if link {
                    make_room(&target)?;
                    std::os::unix::fs::symlink(&source, &target).map_err(io("link", &target))?;
                    "linked"
                } else {
                    make_room(&target)?;
                    copy(&source, &target)?;
                    "copied"
                };
                writeln!(told, "{path}: {what}").map_err(io("write", log))?;
            }
        }
        drop(told);
        for command in self.commands() {
            step(&command);
            shell(to, &command, &variables(workspace), log, PATIENCE)
                .map_err(|error| Error::Setup { log: log.to_owned(), why: error.to_string() })?;
        }
        Ok(missing)
    }
}

/// What a workspace tells whatever runs in it.
pub fn variables(workspace: &Workspace) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::from([("TOFT_WORKSPACE".to_owned(), workspace.path.clone())]);
    variables.extend(workspace.task.as_ref().map(|task| ("TOFT_TASK".to_owned(), task.to_string())));
    for (name, port) in &workspace.ports {
        variables.insert(format!("TOFT_PORT_{}", name.to_ascii_uppercase()), port.to_string());
    }
    variables
}

/// A path below a checkout.
pub(crate) fn inside(text: &str) -> Result<(), String> {
    let path = Path::new(text);
    let own = path.components().all(|part| matches!(part, Component::Normal(name) if name != ".git"));
    match own && !text.is_empty() {
        true => Ok(()),
        false => Err(format!("workspaces.setup: `{text}` is not a path inside the checkout")),
    }
}

fn make_room(target: &Path) -> Result<(), Error> {
    match target.parent() {
        Some(dir) => fs::create_dir_all(dir).map_err(io("make", dir)),
        None => Ok(()),
    }
}

/// Copies a file, a link or everything in a directory. The system shares blocks where the disk can.
pub(crate) fn copy(source: &Path, target: &Path) -> Result<(), Error> {
    let meta = fs::symlink_metadata(source).map_err(io("read", source))?;
    if meta.is_symlink() {
        let to = fs::read_link(source).map_err(io("read", source))?;
        std::os::unix::fs::symlink(to, target).map_err(io("link", target))
    } else if meta.is_dir() {
        fs::create_dir(target).map_err(io("make", target))?;
        for entry in fs::read_dir(source).map_err(io("read", source))? {
            let entry = entry.map_err(io("read", source))?;
            copy(&entry.path(), &target.join(entry.file_name()))?;
        }
        Ok(())
    } else {
        fs::copy(source, target).map(drop).map_err(io("copy", target))
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
