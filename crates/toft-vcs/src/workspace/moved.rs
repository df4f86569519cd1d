//! Repositories and worktrees that were moved by hand: the links between them are mended, or it is said where they went.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use toft_core::workspace::{Workspace, WorkspaceKind};

use super::Ground;
use crate::Vcs;

impl Ground {
    /// Mends the links between a repository that was moved and a worktree of it; whether that helped. Both ends are toft's own:
    /// the workspace, and its entry in the repository.
    pub fn repair(&self, workspace: &Workspace) -> bool {
        let (dir, entry) = (Path::new(&workspace.path), self.entry_of(workspace));
        let (Vcs::Git, WorkspaceKind::Worktree, Some(entry)) = (self.vcs, workspace.kind, entry) else { return false };
        let link = dir.join(".git");
        let broken = fs::symlink_metadata(&link).is_ok_and(|seen| seen.is_file())
            && fs::read_to_string(&link).is_ok_and(|text| {
                text.trim().strip_prefix("gitdir: ").is_some_and(|target| !Path::new(target).exists())
            });
        broken
            && crate::read(&entry.join("gitdir"))
                .is_ok_and(|text| text.is_some_and(|text| Path::new(text.trim()) == link))
            && replace(&link, &format!("gitdir: {}\n", entry.display())).is_ok()
    }

    /// Where a worktree is now that was moved with `git worktree move`.
    pub fn moved_to(&self, workspace: &Workspace) -> Option<PathBuf> {
        let link = crate::read(&self.entry_of(workspace)?.join("gitdir")).ok()??;
        let dir = Path::new(link.trim()).parent()?;
        (dir != Path::new(&workspace.path) && dir.is_dir()).then(|| dir.to_owned())
    }

    /// What the repository keeps of a worktree, found by its directory's name, as git names it.
    fn entry_of(&self, workspace: &Workspace) -> Option<PathBuf> {
        let entry = self.common_dir.join("worktrees").join(Path::new(&workspace.path).file_name()?);
        entry.is_dir().then_some(entry)
    }
}

/// Replaces a small file by another of the same name, never through a link.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension(format!("toft-{}", std::process::id()));
    let mut file = fs::File::options().write(true).create_new(true).open(&draft)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    fs::rename(&draft, path)
}
