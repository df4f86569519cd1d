//! Overlay workspaces: an overlay over a read-only checkout (the base) that several workspaces share.
//!
//! Beside the workspaces, `.bases/` contains the bases (`base.rs`), and `.layers/ID/` the changes of one workspace.
//! Git, editors and rescues see an ordinary worktree. After a reboot, or when the mount's daemon was killed, the next
//! command mounts the workspace again.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use toft_core::workspace::Workspace;

use super::{
    WorkspaceBackend, WorkspaceError,
    base::{self, BASES},
    git, look,
    mount::{self, OverlayKind, OverlayState, Stack},
    probe::{self, Probed, TRIAL},
    remove,
};
use crate::{git_run::Git, lock};

/// The reason of git's lock on such a worktree: its directory is empty while it is not mounted, and must not be pruned.
pub(super) const LOCKED: &str = "toft mounts it";
/// A repository with a smaller index is checked out as fast without an overlay.
const SMALLEST_INDEX: u64 = 150 << 10;
const LAYERS: &str = ".layers";
/// Suffix of the directory beside a workspace that keeps files written there while it was not mounted.
const UNMOUNTED: &str = ".unmounted-";

impl WorkspaceBackend {
    /// How workspaces in a directory can share files, and why faster methods do not work.
    pub fn instant_in(&self, dir: &Path) -> Result<Probed, WorkspaceError> {
        self.system().sharing_in(self, dir, false)
    }

    /// The same, tested now even if the result is cached. Leaves nothing in the directory.
    pub fn try_instant_in(&self, dir: &Path) -> Result<Probed, WorkspaceError> {
        self.system().sharing_in(self, dir, true)
    }

    /// Whether the repository is large enough to be worth sharing.
    pub fn worth_sharing(&self) -> bool {
        self.system().has_git_files() && worthwhile(self)
    }

    /// Waits for the lock on bases, to use or to remove one.
    pub fn bases_turn(&self) -> Result<lock::RepoLock, WorkspaceError> {
        lock::RepoLock::wait(&self.state, "bases")
    }

    /// The name of a base in `dir` for workspaces of `commit`. `warm` copies build artefacts into a new base.
    pub fn base_for(
        &self,
        dir: &Path,
        commit: &str,
        warm: impl FnOnce(&Path) -> io::Result<Option<SystemTime>>,
    ) -> Result<String, WorkspaceError> {
        base::provide(self, dir, commit, warm)
    }

    /// Removes bases in `dir` that are not in `used`, except the newest. Returns their number.
    pub fn tidy_bases(&self, dir: &Path, used: &[String]) -> Result<usize, WorkspaceError> {
        crate::git_view::forget_left(&std::env::temp_dir());
        base::tidy(dir, used)
    }

    /// Makes a workspace usable: mounts it if necessary, and repairs its links if its repository was moved. Returns
    /// notes for the user.
    pub fn open(&self, workspace: &Workspace) -> Result<Vec<String>, WorkspaceError> {
        let notes = ensure(self, workspace)?;
        self.repair(workspace);
        Ok(notes)
    }

    /// The directory that contains only this workspace's own files.
    pub fn own_bytes_at(workspace: &Workspace) -> PathBuf {
        own_bytes_at(workspace)
    }

    /// Whether a directory beside workspaces keeps files that were written to one while it was not mounted.
    pub fn written_unmounted(name: &str) -> bool {
        written_unmounted(name)
    }

    /// Whether a name beside workspaces is one of toft's own directories.
    pub fn beside(name: &str) -> bool {
        ours(name) || remove::is_trash(name)
    }
}

/// The layer of a workspace, and its base.
struct Layer {
    base: PathBuf,
    commit: String,
    dir: PathBuf,
}

impl Layer {
    fn of(workspace: &Workspace) -> Option<Self> {
        let commit = workspace.overlay_base.clone()?;
        let beside = beside(workspace);
        let (base, dir) = (beside.join(BASES).join(&commit), beside.join(LAYERS).join(workspace.id.as_str()));
        Some(Self { base, commit, dir })
    }

    fn upper(&self) -> PathBuf {
        self.dir.join("up")
    }

    fn stack(&self) -> Stack {
        Stack { lower: base::tree(&self.base), upper: self.upper(), work: self.dir.join("work") }
    }

    /// The overlay implementation that it was first mounted with.
    fn kind(&self) -> Option<OverlayKind> {
        OverlayKind::named(fs::read_to_string(self.dir.join("kind")).ok()?.trim())
    }
}

/// The directory that contains the workspace.
fn beside(workspace: &Workspace) -> &Path {
    let path = Path::new(&workspace.path);
    path.parent().unwrap_or(path)
}

/// Whether a name beside workspaces is that of the bases or layers.
fn ours(name: &str) -> bool {
    name == BASES || name == LAYERS || name.starts_with(TRIAL) || name.starts_with(crate::recorded::FILE)
}

/// Whether a name beside workspaces has the suffix [`UNMOUNTED`].
fn written_unmounted(name: &str) -> bool {
    name.contains(UNMOUNTED)
}

/// Mounts a workspace, unless it is mounted or being removed. Returns notes for the user.
pub(super) fn ensure(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<Vec<String>, WorkspaceError> {
    let path = Path::new(&workspace.path);
    let mut notes = Vec::new();
    let Some(layer) = Layer::of(workspace).filter(|layer| layer.dir.is_dir()) else { return Ok(notes) };
    if mount::state(path) == OverlayState::Mounted {
        return Ok(notes);
    }
    // Two mounts of one layer would corrupt it, so only one process at a time mounts. During a removal the layer is
    // mounted elsewhere.
    let _turn = turn(backend, workspace)?;
    let waiting = remove::aside(workspace).0;
    let put_aside = mount::state(&waiting) == OverlayState::Dead || remove::exists(&waiting)?;
    if mount::state(path) == OverlayState::Mounted || !layer.dir.is_dir() || put_aside {
        return Ok(notes);
    }
    mount::unmount(path)?;
    fs::create_dir_all(path).map_err(lock::io("make", path))?;
    take_link(&layer, path)?;
    if remove::exists(&path.join(".git"))? {
        return Err(WorkspaceError::PathTaken { path: path.to_owned() });
    }
    if fs::read_dir(path).map_err(lock::io("read", path))?.next().is_some() {
        notes.push(set_aside(path)?);
    }
    mount(backend, workspace, &layer, path)?;
    Ok(notes)
}

/// Moves files that were written while a workspace was not mounted to a directory beside it.
fn set_aside(path: &Path) -> Result<String, WorkspaceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let free = (1..).map(|n| path.with_file_name(format!("{name}{UNMOUNTED}{n}"))).find(|to| !to.exists());
    let to = free.unwrap_or_else(|| path.with_file_name(format!("{name}{UNMOUNTED}0")));
    fs::rename(path, &to).map_err(lock::io("put aside", path))?;
    fs::create_dir(path).map_err(lock::io("make", path))?;
    Ok(format!("files were written to {} while it was not mounted; they are in {}", path.display(), to.display()))
}

/// Waits for the lock to mount or unmount a workspace.
fn turn(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<lock::RepoLock, WorkspaceError> {
    lock::RepoLock::wait(&backend.state, &format!("mount-{}", workspace.id))
}

/// Mounts an existing layer. Rebuilds its base if that was deleted or changed.
fn mount(backend: &WorkspaceBackend, workspace: &Workspace, layer: &Layer, at: &Path) -> Result<(), WorkspaceError> {
    let stack = layer.stack();
    if let Some(why) = mount::in_use(&stack) {
        return Err(WorkspaceError::NotWhole {
            why: format!("{} cannot be mounted a second time: {why}", workspace.name),
            next: "work on it there, or end that process; then try again".to_owned(),
        });
    }
    let rebuilt = base::fit(backend, &layer.base, &layer.commit, |_| Ok(None)).map_err(|error| match error {
        WorkspaceError::Run(error) => WorkspaceError::NotWhole {
            why: format!("the checkout that {} stands on is gone and cannot be built again: {error}", workspace.name),
            next: format!("git fetch commit {}; what was changed in it is in {}", layer.commit, stack.upper.display()),
        },
        other => other,
    })?;
    attach(layer, layer.kind(), &workspace.name, at)?;
    if rebuilt {
        // The inodes are new, so git's index must be refreshed. The command fails if files differ, which is fine.
        backend.git_in(workspace, at)?.run(["update-index", "-q", "--refresh"])?.patience(git::CHECKOUT).end()?;
    }
    Ok(())
}

/// Mounts a layer with the implementation it was created with. If a crash came before that was recorded, tries each.
fn attach(layer: &Layer, kind: Option<OverlayKind>, name: &str, at: &Path) -> Result<(), WorkspaceError> {
    let stack = layer.stack();
    for dir in [&stack.upper, &stack.work] {
        fs::create_dir_all(dir).map_err(lock::io("make", dir))?;
    }
    let kinds = kind.map_or(vec![OverlayKind::Kernel, OverlayKind::Fuse], |kind| vec![kind]);
    let mut why = String::new();
    for kind in kinds {
        match mount::attach(kind, &stack, at) {
            Ok(()) => {
                let file = layer.dir.join("kind");
                return fs::write(&file, kind.as_str()).map_err(lock::io("write", &file));
            }
            Err(error) => why = format!("{}: {error}", kind.as_str()),
        }
    }
    Err(WorkspaceError::NotWhole {
        why: format!("{name} is not mounted, and this process cannot mount it ({why})"),
        next: format!("toft ws path {name}, outside of any sandbox, as the user who made it"),
    })
}

/// Fills a new worktree with copies of a base that share its disk blocks.
pub(super) fn copy_base(workspace: &Workspace, base: &str, inside: &Git) -> Result<(), WorkspaceError> {
    let (path, base_dir) = (Path::new(&workspace.path), beside(workspace).join(BASES).join(base));
    let index = inside.git_dir().join("index");
    probe::copy(&base::tree(&base_dir).join("."), path)?;
    look::copy_index(&base::index(&base_dir), &index)?;
    // The copies have other inodes and change times than the index records, so refresh it.
    inside.run(["update-index", "-q", "--refresh"])?.patience(git::CHECKOUT).ok()?;
    if base != workspace.base {
        return git::check_out(inside);
    }
    Ok(())
}

/// Whether the repository is large enough for a checkout to be slow.
fn worthwhile(backend: &WorkspaceBackend) -> bool {
    fs::metadata(backend.common_dir.join("index")).is_ok_and(|meta| meta.len() >= SMALLEST_INDEX)
        && !backend.common_dir.join("info").join("sparse-checkout").exists()
}

/// Fills a new worktree, which contains only the `.git` file, by mounting a layer over its base.
pub(super) fn fill(backend: &WorkspaceBackend, workspace: &Workspace, inside: &Git) -> Result<(), WorkspaceError> {
    let Some(layer) = Layer::of(workspace) else { return Ok(()) };
    let path = Path::new(&workspace.path);
    // When a workspace is restored, its base may be gone.
    base::fit(backend, &layer.base, &layer.commit, |_| Ok(None))?;
    let index = inside.git_dir().join("index");
    look::copy_index(&base::index(&layer.base), &index)?;
    // From here on the layer exists, so after a crash the next command mounts it.
    take_link(&layer, path)?;
    attach(&layer, probe::known(backend.git()?, beside(workspace)).kind, &workspace.name, path)?;
    if workspace.overlay_base.as_ref() != Some(&workspace.base) {
        git::check_out(inside)?;
    }
    Ok(())
}

/// Moves the `.git` file into the layer: the mount would hide it.
fn take_link(layer: &Layer, path: &Path) -> Result<(), WorkspaceError> {
    let (link, upper) = (path.join(".git"), layer.upper());
    // After a crash, the layer may lack this directory.
    fs::create_dir_all(&upper).map_err(lock::io("make", &upper))?;
    match link.is_file() && !upper.join(".git").exists() {
        true => fs::rename(&link, upper.join(".git")).map_err(lock::io("move", &link)),
        false => Ok(()),
    }
}

/// Whether the layer of a workspace exists; true for a workspace without an overlay.
pub(super) fn has_layer(workspace: &Workspace) -> bool {
    Layer::of(workspace).is_none_or(|layer| layer.dir.is_dir())
}

/// Moves a workspace to a path where no user finds it, or back.
pub(super) fn shift(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    from: &Path,
    to: &Path,
) -> Result<(), WorkspaceError> {
    let Some(layer) = Layer::of(workspace) else {
        return fs::rename(from, to).map_err(lock::io("put aside", from));
    };
    let _turn = turn(backend, workspace)?;
    fs::create_dir_all(to).map_err(lock::io("make", to))?;
    let shifted = mount::shift(from, to).inspect_err(|_| drop_empty(to))?;
    if !shifted {
        mount::unmount(from).inspect_err(|_| drop_empty(to))?;
        mount(backend, workspace, &layer, to)?;
    }
    drop_empty(from);
    Ok(())
}

/// Removes the target directory of an interrupted [`shift`], if the workspace is still mounted at its own path.
pub(super) fn forget_unshifted(workspace: &Workspace, to: &Path) {
    let here = Layer::of(workspace).is_some() && mount::state(Path::new(&workspace.path)) == OverlayState::Mounted;
    if here && mount::state(to) != OverlayState::Mounted {
        drop_empty(to);
    }
}

/// Mounts a workspace at its temporary path, where it was before a reboot.
pub(super) fn ensure_at(backend: &WorkspaceBackend, workspace: &Workspace, at: &Path) -> Result<(), WorkspaceError> {
    let _turn = turn(backend, workspace)?;
    match Layer::of(workspace) {
        Some(layer) if mount::state(at) != OverlayState::Mounted => {
            mount::unmount(at)?;
            mount(backend, workspace, &layer, at)
        }
        _ => Ok(()),
    }
}

/// Unmounts a workspace and moves its files to the path where they may be deleted.
pub(super) fn give_up(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    waiting: &Path,
    gone: &Path,
) -> Result<(), WorkspaceError> {
    let Some(layer) = Layer::of(workspace) else {
        return fs::rename(waiting, gone).map_err(lock::io("put aside", waiting));
    };
    let _turn = turn(backend, workspace)?;
    mount::unmount(waiting)?;
    mount::unmount(Path::new(&workspace.path))?;
    fs::rename(&layer.dir, gone).map_err(lock::io("put aside", &layer.dir))?;
    drop_empty(waiting);
    Ok(())
}

/// Removes the layer of an incomplete workspace.
pub(super) fn discard(workspace: &Workspace) -> Result<(), WorkspaceError> {
    match Layer::of(workspace) {
        Some(layer) => {
            mount::unmount(Path::new(&workspace.path))?;
            remove::tree(&layer.dir)
        }
        None => Ok(()),
    }
}

/// Removes a mount point if it is empty.
pub(super) fn drop_empty(dir: &Path) {
    let _ = fs::remove_dir(dir);
}

/// The directory that contains only this workspace's own files.
fn own_bytes_at(workspace: &Workspace) -> PathBuf {
    Layer::of(workspace).map_or_else(|| PathBuf::from(&workspace.path), |layer| layer.upper())
}
