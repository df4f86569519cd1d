//! Repositories and worktrees that were moved by hand: repairs the links between them, or reports the new path.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use nix::{
    fcntl::{OFlag, open, openat, renameat},
    sys::stat::Mode,
};
use toft_core::workspace::Workspace;

use super::WorkspaceBackend;

impl WorkspaceBackend {
    /// Repairs the links between a moved repository and one of its workspaces. Returns whether that succeeded. toft
    /// wrote both ends: the link in the workspace, and its entry in the repository. Nothing is executed, and no target
    /// of a link is followed.
    pub fn repair(&self, workspace: &Workspace) -> bool {
        let dir = Path::new(&workspace.path);
        let mended = self.system().repair(self, workspace);
        // Record the new path, so that commands in the workspace accept the repository.
        mended && dir.parent().is_some_and(|beside| crate::recorded::note(beside, &self.common_dir).is_ok())
    }

    /// The repository's entry of a worktree: the one that names its directory.
    pub(super) fn entry_of(&self, workspace: &Workspace) -> Option<PathBuf> {
        crate::git::entry_of(&self.common_dir, Path::new(&workspace.path))
    }

    /// The new path of a worktree that was moved with `git worktree move`.
    pub fn moved_to(&self, workspace: &Workspace) -> Option<PathBuf> {
        let entry = self.common_dir.join("worktrees").join(Path::new(&workspace.path).file_name()?);
        let link = crate::read(&entry.join("gitdir")).ok()??;
        let target = crate::git::link_target(&entry, &link);
        let dir = target.parent()?;
        (dir != Path::new(&workspace.path) && dir.is_dir()).then(|| dir.to_owned())
    }
}

/// Whether a small file names a path that does not exist.
pub(super) fn leads_nowhere(link: &Path, place: impl Fn(&str) -> Option<PathBuf>) -> bool {
    fs::symlink_metadata(link).is_ok_and(|seen| seen.is_file())
        && fs::read_to_string(link).is_ok_and(|text| place(&text).is_some_and(|place| !place.exists()))
}

/// Replaces a small file below a workspace. No link on the path is followed, not even one that is created at this
/// moment.
pub(super) fn replace(dir: &Path, below: &[&str], name: &str, text: &str) -> io::Result<()> {
    let directory = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = open(dir, directory, Mode::empty())?;
    for part in below {
        at = openat(&at, *part, directory, Mode::empty())?;
    }
    let draft = format!("{name}.toft-{}", std::process::id());
    let new = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = fs::File::from(openat(&at, draft.as_str(), new, Mode::from_bits_truncate(0o644))?);
    file.write_all(text.as_bytes())?;
    Ok(renameat(&at, draft.as_str(), &at, name)?)
}
