//! Wiring toft into coding agents: what each wants is a table, how a file is changed keeps everything else in it.
//!
//! `guard.rs` is git's hook before a push, `harness.rs` the table, `edit.rs` changes texts, `record.rs` remembers what was there before, so that `--remove`
//! can give every byte back. Nothing is written that was not shown.

mod client;
mod edit;
mod guard;
mod harness;
mod probe;
mod record;

use std::{
    fs,
    path::{Path, PathBuf},
};

pub(crate) use self::{
    client::ClientAnswer,
    guard::{Guard, GuardStatus, stand},
    harness::{Dialect, HARNESSES, Harness},
    probe::{answer_probe, probes},
};
use self::{
    harness::{Change, Piece},
    record::Records,
};
use crate::exit::Failure;

/// A larger file is none that people write settings or rules in.
const LARGEST: u64 = 8 << 20;

/// Where files are written.
#[derive(Clone, Debug)]
pub(crate) struct SetupTarget {
    /// The checkout, or the user's home.
    root: PathBuf,
    /// Where what was there before is remembered.
    records: PathBuf,
    user: bool,
    /// The directory of the store, which sandboxes of clients must let through.
    store: Option<PathBuf>,
}

impl SetupTarget {
    /// Files in a checkout.
    pub(crate) fn project(root: PathBuf, state: &Path) -> Self {
        Self { root, records: state.join("setup"), user: false, store: None }
    }

    /// The file that a name stands for. Links are followed, in a checkout only to what is inside of it.
    fn real(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.root.join(name);
        let refuse = |problem: &str| {
            let message = format!("{} {problem}", path.display());
            Failure::stopped(message, "choose agents whose files are not symlinks; nothing was written")
        };
        let linked = path.ancestors().take_while(|part| *part != self.root).any(Path::is_symlink);
        if !linked {
            return Ok(path);
        }
        // A file that is not there yet is behind a link if its directory is.
        let there = path.ancestors().find(|part| part.symlink_metadata().is_ok()).unwrap_or(&path);
        let missing = path.strip_prefix(there).unwrap_or(Path::new(""));
        let real = fs::canonicalize(there).map_err(|_| refuse("is behind a broken symlink"))?;
        let real = if missing.as_os_str().is_empty() { real } else { real.join(missing) };
        let root = fs::canonicalize(&self.root).unwrap_or_else(|_| self.root.clone());
        match self.user || real.starts_with(root) {
            true => Ok(real),
            false => Err(refuse("is behind a symlink that leads out of the checkout")),
        }
    }

    /// Files in the user's home.
    pub(crate) fn user(home: PathBuf, state: &Path, store: Option<PathBuf>) -> Self {
        Self { root: home, records: state.join("setup"), user: true, store }
    }
}

/// One file that changes.
#[derive(Clone, Debug)]
pub(crate) struct FileChange {
    pub(crate) path: PathBuf,
    /// As people call it.
    pub(crate) name: String,
    /// What is in it; nothing if it is not there.
    pub(crate) before: Option<String>,
    /// What will be in it; nothing if it goes.
    pub(crate) after: Option<String>,
}

/// The harnesses that seem to be used here.
pub(crate) fn detected(target: &SetupTarget, home: &Path) -> Vec<&'static Harness> {
    HARNESSES.iter().filter(|harness| harness.is_used(&target.root, home)).collect()
}

/// What writing for these harnesses would change.
pub(crate) fn wire(target: &SetupTarget, harnesses: &[&Harness]) -> Result<Vec<FileChange>, Failure> {
    changes(target, harnesses, edit::add)
}

/// What taking everything away again would change. What nobody touched since becomes what it was, byte for byte; of the
/// rest only what is toft's goes.
pub(crate) fn unwire(target: &SetupTarget, harnesses: &[&Harness]) -> Result<Vec<FileChange>, Failure> {
    let records = Records::at(&target.records);
    let mut all = changes(target, harnesses, |text, change| Ok(edit::take(text, change)))?;
    // A file whose last piece went may have been ours, or empty before.
    let touched = pieces(target, harnesses).into_iter().map(|(name, _)| name);
    let mut names: Vec<String> = touched.collect();
    names.dedup();
    for name in names {
        let path = target.real(&name)?;
        let Some(before) = records.before(&path, read(&path)?.as_deref()) else { continue };
        let now = read(&path)?;
        all.retain(|changed| changed.path != path);
        if before != now {
            all.push(FileChange { path, name, before: now, after: before });
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

/// Whether a harness has toft's MCP server in one of its files.
pub(crate) fn is_wired(harness: &Harness, targets: &[SetupTarget]) -> Result<bool, Failure> {
    for target in targets {
        for (name, change) in pieces(target, &[harness]) {
            if !matches!(change, Change::Key(..) | Change::Table(..)) {
                continue;
            }
            // A file that cannot be changed is a problem of setup.
            let now = read(&target.root.join(name))?;
            if now.is_some() && edit::add(now.as_deref(), &change).is_ok_and(|after| after == now) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Writes what was shown.
pub(crate) fn apply(target: &SetupTarget, all: &[FileChange], wiring: bool) -> Result<(), Failure> {
    let records = Records::at(&target.records);
    let every: Vec<&Harness> = HARNESSES.iter().collect();
    let pieces = pieces(target, &every);
    for changed in all {
        let now = read(&changed.path)?;
        if now != changed.before {
            let message = format!("{} changed after the diff was shown", changed.name);
            return Err(Failure::stopped(message, "nothing was written to it; run it again"));
        }
        if wiring {
            // What toft wrote earlier is not what was there before toft.
            let own = pieces.iter().filter(|(name, _)| *name == changed.name).map(|(_, change)| change);
            let clean = own.fold(changed.before.clone(), |text, change| edit::take(text.as_deref(), change));
            let after = changed.after.as_deref().unwrap_or_default();
            records.keep(&changed.path, changed.before.as_deref(), clean, after)?;
        }
        match &changed.after {
            Some(text) => record::write(&changed.path, text, false)?,
            None => record::remove(&changed.path, &target.root)?,
        }
        if !wiring {
            records.forget(&changed.path)?;
        }
    }
    Ok(())
}

fn pieces(target: &SetupTarget, harnesses: &[&Harness]) -> Vec<(String, Change)> {
    let mut all: Vec<(String, Change)> = Vec::new();
    for harness in harnesses {
        for Piece { project, user, change } in harness.pieces(target.store.as_deref()) {
            let name = if target.user { user } else { project };
            // Several read the same file.
            if let Some(name) = name
                && !all.iter().any(|(known, same)| *known == name && *same == change)
            {
                all.push((name, change));
            }
        }
    }
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

fn changes(
    target: &SetupTarget,
    harnesses: &[&Harness],
    edit: impl Fn(Option<&str>, &Change) -> Result<Option<String>, String>,
) -> Result<Vec<FileChange>, Failure> {
    let mut all: Vec<FileChange> = Vec::new();
    for (name, change) in pieces(target, harnesses) {
        let path = target.real(&name)?;
        let known = all.iter().position(|changed| changed.path == path);
        let before = match known {
            Some(at) => all[at].before.clone(),
            None => read(&path)?,
        };
        let now = known.map_or_else(|| before.clone(), |at| all[at].after.clone());
        if let (Change::Whole(whole), Some(text)) = (&change, &now)
            && text != whole
            && Records::at(&target.records).before(&path, Some(text)).is_none()
        {
            // Somebody's own file of that name stays theirs.
            continue;
        }
        let after = edit(now.as_deref(), &change).map_err(|problem| {
            Failure::stopped(
                format!("{name} cannot be changed: {problem}"),
                "fix the file, or choose other agents; nothing was written",
            )
        })?;
        match known {
            Some(at) => all[at].after = after,
            None => all.push(FileChange { path, name, before, after }),
        }
    }
    all.retain(|changed| changed.before != changed.after);
    Ok(all)
}

/// What is in a file; nothing if there is none. A link is followed, as whoever reads it does.
fn read(path: &Path) -> Result<Option<String>, Failure> {
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file() || meta.len() > LARGEST) {
        return Err(Failure::stopped(
            format!("{} is not a regular file, or larger than 8 MiB", path.display()),
            "move it elsewhere",
        ));
    }
    match fs::read(path) {
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => Ok(Some(text)),
            Err(_) => Err(Failure::stopped(format!("{} is not UTF-8", path.display()), "move it elsewhere")),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::stopped(format!("{} cannot be read: {error}", path.display()), "")),
    }
}

#[cfg(test)]
mod tests;
