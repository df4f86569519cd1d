//! Records beside workspaces which repositories they were created from. An agent can rewrite everything in its
//! workspace, but not this file, so a command in a workspace acts on the recorded repository or on none.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use crate::{Checkout, FindError, git_view::plain_file};

/// The file that lists the repositories, one path per line.
pub(crate) const FILE: &str = ".repositories";

fn listed(dir: &Path) -> Vec<PathBuf> {
    let text = plain_file(&dir.join(FILE)).ok().flatten().unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| PathBuf::from(std::ffi::OsStr::from_bytes(line))).collect()
}

/// Records that workspaces in `dir` belong to the repository at `common`. Repositories that no longer exist are
/// dropped.
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

/// Refuses a workspace at `dir` that claims to belong to another repository. If no recorded repository exists any more,
/// it was moved, and the claim is accepted.
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
