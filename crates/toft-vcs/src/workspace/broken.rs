//! Detects broken workspaces by reading files only: no program is started in a directory that is not as toft created
//! it, and a broken workspace does not affect the others.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use toft_core::workspace::{Workspace, WorkspaceKind};

use super::{WorkspaceBackend, overlay};
use crate::git_view::plain_file;

/// A problem with a workspace, and the command that helps. No such command deletes anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceTrouble {
    /// The problem.
    pub what: String,
    /// The command to run.
    pub help: String,
}

impl WorkspaceBackend {
    /// The problem with a workspace's directory or its link to the repository; `None` if both are intact.
    pub fn trouble(&self, workspace: &Workspace) -> Option<WorkspaceTrouble> {
        let path = Path::new(&workspace.path);
        let trouble = |what: String, help: String| Some(WorkspaceTrouble { what, help });
        let show = || format!("toft ws list {}", workspace.name);
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => {}
            Ok(meta) => {
                let kind = if meta.is_symlink() { "a symbolic link" } else { "a file" };
                return trouble(format!("{kind} is in its place"), format!("ls -l {}", quoted(path)));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mountable = workspace.overlay_base.is_some() && overlay::has_layer(workspace);
                return if mountable { None } else { self.gone(workspace, path) };
            }
            Err(error) => return Some(unreadable(workspace, path, &error)),
        }
        if let Err(error) = fs::read_dir(path) {
            return Some(unreadable(workspace, path, &error));
        }
        // An unmounted layer is an empty directory; the next command mounts it.
        if !self.system().has_git_files() || workspace.overlay_base.is_some() && same_disk(path) {
            return None;
        }
        let link = path.join(".git");
        let found = match fs::symlink_metadata(&link) {
            Ok(meta) => Some(meta),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Some(unreadable(workspace, path, &error)),
        };
        match (workspace.kind, found) {
            (WorkspaceKind::InPlace, _) => None,
            (WorkspaceKind::Clone, Some(meta)) if meta.is_dir() && crate::git::unexpected_file_in(&link).is_some() => {
                crate::git::unexpected_file_in(&link).as_deref().map(no_file)
            }
            (WorkspaceKind::Clone, Some(meta)) if meta.is_dir() && link.join("HEAD").is_file() => None,
            (WorkspaceKind::Clone, _) => trouble("its repository (.git) is gone".to_owned(), show()),
            (WorkspaceKind::Worktree, None) => match self.entry_of(workspace) {
                Some(_) => trouble("its .git file is gone".to_owned(), self.repair_command()),
                None => trouble("its .git file and git's record of it are gone".to_owned(), self.again(workspace)),
            },
            (WorkspaceKind::Worktree, Some(meta)) if !meta.is_file() => {
                trouble("its .git is not the file that toft made".to_owned(), format!("ls -la {}", quoted(&link)))
            }
            (WorkspaceKind::Worktree, Some(_)) => self.link_trouble(workspace, path, &link),
        }
    }

    /// Another clone on this machine to which a worktree belongs, according to the files on both sides. Clones that
    /// share a store see each other's workspaces.
    pub fn other_clone(&self, workspace: &Workspace) -> Option<PathBuf> {
        if !self.system().has_git_files() || workspace.kind != WorkspaceKind::Worktree {
            return None;
        }
        let link = Path::new(&workspace.path).join(".git");
        let text = String::from_utf8(plain_file(&link).ok()??).ok()?;
        let record = link.parent()?.join(text.trim_end().strip_prefix("gitdir: ")?);
        let back = String::from_utf8(plain_file(&record.join("gitdir")).ok()??).ok()?;
        let same = |one: &Path, other: &Path| fs::canonicalize(one).ok() == fs::canonicalize(other).ok();
        let worktrees = record.parent()?;
        let shared = worktrees.parent()?;
        let other =
            !same(shared, &self.common_dir) && worktrees.ends_with("worktrees") && shared.join("HEAD").is_file();
        if !other || !record.join("HEAD").is_file() || !same(&record.join(back.trim_end()), &link) {
            return None;
        }
        let main = shared.parent().filter(|_| shared.ends_with(".git"));
        Some(main.unwrap_or(shared).to_owned())
    }

    /// The problem with the `.git` file that links a worktree to its repository.
    fn link_trouble(&self, workspace: &Workspace, path: &Path, link: &Path) -> Option<WorkspaceTrouble> {
        let text = match plain_file(link) {
            Ok(text) => String::from_utf8_lossy(&text.unwrap_or_default()).into_owned(),
            Err(error) => {
                return Some(WorkspaceTrouble { what: error.to_string(), help: format!("ls -l {}", quoted(link)) });
            }
        };
        let target = path.join(text.trim_end().trim_start_matches("gitdir: "));
        let ours = target.parent().and_then(|dir| fs::canonicalize(dir).ok())
            == fs::canonicalize(self.common_dir.join("worktrees")).ok();
        if ours && let Some(odd) = crate::git::unexpected_file_in(&target) {
            return Some(no_file(&odd));
        }
        if ours && target.join("HEAD").is_file() {
            return None;
        }
        let what = match (target.exists(), ours) {
            (true, false) => format!("its .git file names another repository, {}", target.display()),
            (true, true) => format!("git's record of it, {}, has no HEAD", target.display()),
            (false, _) => format!("git's record of it, {}, is gone", target.display()),
        };
        let help = match self.entry_of(workspace) {
            Some(entry) if entry.join("HEAD").is_file() => self.repair_command(),
            _ => self.again(workspace),
        };
        Some(WorkspaceTrouble { what, help })
    }

    /// The problem if the workspace's path does not exist.
    fn gone(&self, workspace: &Workspace, path: &Path) -> Option<WorkspaceTrouble> {
        let parent = path.parent().unwrap_or(path);
        if let Some(moved) = self.moved_to(workspace) {
            let what = format!("its directory was moved to {}", moved.display());
            return Some(WorkspaceTrouble { what, help: format!("toft ws create --adopt {}", quoted(&moved)) });
        }
        if !parent.exists() {
            let what = format!("{} is not there; its disk may not be mounted", parent.display());
            return Some(WorkspaceTrouble { what, help: "mount".to_owned() });
        }
        Some(WorkspaceTrouble { what: "its directory is gone".to_owned(), help: self.again(workspace) })
    }

    /// The command that repairs the link between a worktree and its repository.
    fn repair_command(&self) -> String {
        // Not the current checkout, which may be the broken one.
        let main = self.common_dir.parent().filter(|_| self.common_dir.ends_with(".git"));
        format!("git -C {} worktree repair", quoted(main.unwrap_or(&self.common_dir)))
    }

    /// The command that creates a workspace for the same work again.
    fn again(&self, workspace: &Workspace) -> String {
        let from = workspace.branch.as_ref().map(|name| format!(" --base {name}")).unwrap_or_default();
        match &workspace.task {
            Some(_) if !Path::new(&workspace.path).exists() => format!("toft ws create {}", workspace.name),
            _ => format!("toft ws create --name {}-again{from}", workspace.name),
        }
    }
}

/// The problem if a workspace cannot be read.
fn unreadable(workspace: &Workspace, path: &Path, error: &io::Error) -> WorkspaceTrouble {
    if error.kind() == io::ErrorKind::PermissionDenied {
        let closed = fs::symlink_metadata(path).is_ok_and(|meta| meta.mode() & 0o500 != 0o500);
        let help = if closed { format!("chmod u+rwx {}", quoted(path)) } else { format!("ls -ld {}", quoted(path)) };
        return WorkspaceTrouble { what: "it cannot be read: permission denied".to_owned(), help };
    }
    // A dead mount gives one of several errors; opening the workspace mounts it again.
    WorkspaceTrouble { what: format!("it cannot be read: {error}"), help: format!("toft ws path {}", workspace.name) }
}

/// The problem if a path where git expects a file is something else.
fn no_file(path: &Path) -> WorkspaceTrouble {
    WorkspaceTrouble {
        what: format!("{}: {}", path.display(), crate::git::UNEXPECTED_FILE),
        help: format!("ls -l {}", quoted(path)),
    }
}

/// Quotes a path for a shell.
pub fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@%".contains(letter);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Whether nothing is mounted at a directory: it is on the same device as its parent.
fn same_disk(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    path.parent().is_some_and(|parent| device(path) == device(parent))
}
