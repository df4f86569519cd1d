//! Beside workspaces: which repositories they were made of. An agent can rewrite everything in its workspace, but not this file,
//! so that a command in a workspace acts on that repository or on none.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use crate::{Checkout, FindError, git_view::plain_file};

/// The file's name: repositories, one path to a line.
pub(crate) const FILE: &str = ".repositories";

fn listed(dir: &Path) -> Vec<PathBuf> {
    let text = plain_file(&dir.join(FILE)).ok().flatten().unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| PathBuf::from(std::ffi::OsStr::from_bytes(line))).collect()
}

/// Notes that workspaces in `dir` are made of the repository at `common`. Repositories that are gone are forgotten.
pub(crate) fn note(dir: &Path, common: &Path) -> io::Result<()> {
    let mut all = listed(dir);
    if all.iter().any(|known| known == common) {
        return Ok(());
    }
    all.retain(|known| known.exists());
    all.push(common.to_owned());
    let draft = dir.join(format!("{FILE}-{}", std::process::id()));
    let text: Vec<u8> = all.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\n"].concat()).collect();
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, dir.join(FILE)))
}

/// Refuses a workspace at `dir` that is found to belong elsewhere. One whose repository was moved is believed.
pub(crate) fn check(dir: &Path, found: Option<&Checkout>) -> Result<(), FindError> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(()) };
    if name.as_bytes().starts_with(b".") {
        return Ok(());
    }
    let all = listed(parent);
    let belongs = |known: &PathBuf| found.is_some_and(|found| found.common_dir == *known);
    match all.iter().find(|known| known.exists()) {
        Some(repository) if !all.iter().any(belongs) => {
            Err(FindError::Changed { path: dir.to_owned(), repository: repository.clone() })
        }
        _ => Ok(()),
    }
}
