//! Instant workspaces: an overlay over a frozen checkout, on which others stand too.
//!
//! Beside the workspaces, `.bases/` holds checkouts that nobody changes (`base.rs`) and `.layers/ID/` what one workspace
//! changed. Git, editors and rescues see an ordinary worktree. After a restart of the machine, and when the program that
//! served it was killed, it is mounted again at the next look.

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

/// Why git has such a worktree locked: its directory is empty until it is mounted, and must not be pruned then.
pub(super) const LOCKED: &str = "toft mounts it";
/// A checkout of fewer bytes of index is made as fast without.
const SMALLEST_INDEX: u64 = 150 << 10;
const LAYERS: &str = ".layers";
/// Files that were written where a workspace was not mounted are kept beside it under its name and this.
const UNMOUNTED: &str = ".unmounted-";

impl WorkspaceBackend {
    /// How workspaces can share files in a directory, and why not in a faster way.
    pub fn instant_in(&self, dir: &Path) -> Result<Probed, WorkspaceError> {
        self.system().sharing_in(self, dir, false)
    }

    /// Tries how workspaces can share files in a directory, whatever is known, and leaves nothing there.
    pub fn try_instant_in(&self, dir: &Path) -> Result<Probed, WorkspaceError> {
        self.system().sharing_in(self, dir, true)
    }

    /// Whether a checkout takes long enough to be worth sharing.
    pub fn worth_sharing(&self) -> bool {
        self.system().has_git_files() && worthwhile(self)
    }

    /// The turn for standing on a base or removing one.
    pub fn bases_turn(&self) -> Result<lock::RepoLock, WorkspaceError> {
        lock::RepoLock::wait(&self.state, "bases")
    }

    /// A frozen checkout in `dir` for workspaces of `commit` to stand on; a new one is made warm by `warm`.
    pub fn base_for(
        &self,
        dir: &Path,
        commit: &str,
        warm: impl FnOnce(&Path) -> io::Result<Option<SystemTime>>,
    ) -> Result<String, WorkspaceError> {
        base::provide(self, dir, commit, warm)
    }

    /// Removes frozen checkouts in `dir` that nobody stands on, but for the newest; gives how many.
    pub fn tidy_bases(&self, dir: &Path, used: &[String]) -> Result<usize, WorkspaceError> {
        crate::git_view::forget_left(&std::env::temp_dir());
        base::tidy(dir, used)
    }

    /// Sees to it that a workspace is there to be worked in: mounted, as after a restart of the machine, and linked with its
    /// repository, wherever that was moved to. Gives what is worth knowing about it.
    pub fn open(&self, workspace: &Workspace) -> Result<Vec<String>, WorkspaceError> {
        let notes = ensure(self, workspace)?;
        self.repair(workspace);
        Ok(notes)
    }

    /// The directory with what a workspace alone takes on disk.
    pub fn own_bytes_at(workspace: &Workspace) -> PathBuf {
        own_bytes_at(workspace)
    }

    /// Whether a name beside workspaces holds what was written where one was not mounted.
    pub fn written_unmounted(name: &str) -> bool {
        written_unmounted(name)
    }

    /// Whether a name beside workspaces is something they stand on.
    pub fn beside(name: &str) -> bool {
        ours(name) || remove::is_trash(name)
    }
}

/// Where the layer of a workspace is.
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

    /// The overlay it was first mounted with.
    fn kind(&self) -> Option<OverlayKind> {
        OverlayKind::named(fs::read_to_string(self.dir.join("kind")).ok()?.trim())
    }
}

/// The directory that a workspace is in.
fn beside(workspace: &Workspace) -> &Path {
    let path = Path::new(&workspace.path);
    path.parent().unwrap_or(path)
}

/// Whether a name beside workspaces is one of these.
fn ours(name: &str) -> bool {
    name == BASES || name == LAYERS || name.starts_with(TRIAL) || name.starts_with(crate::recorded::FILE)
}

/// Whether a directory beside workspaces holds what was written where one was not mounted.
fn written_unmounted(name: &str) -> bool {
    name.contains(UNMOUNTED)
}

/// Mounts a workspace where it belongs, unless it is, or is being taken down. Gives what is worth knowing about it.
pub(super) fn ensure(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<Vec<String>, WorkspaceError> {
    let path = Path::new(&workspace.path);
    let mut notes = Vec::new();
    let Some(layer) = Layer::of(workspace).filter(|layer| layer.dir.is_dir()) else { return Ok(notes) };
    if mount::state(path) == OverlayState::Mounted {
        return Ok(notes);
    }
    // Two mounts of one layer would tear it: one process at a time mounts, and while it is taken down it is mounted
    // elsewhere.
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
        return Err(WorkspaceError::InTheWay { path: path.to_owned() });
    }
    if fs::read_dir(path).map_err(lock::io("read", path))?.next().is_some() {
        notes.push(set_aside(path)?);
    }
    mount(backend, workspace, &layer, path)?;
    Ok(notes)
}

/// Keeps what was written where a workspace was not mounted beside it.
fn set_aside(path: &Path) -> Result<String, WorkspaceError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let free = (1..).map(|n| path.with_file_name(format!("{name}{UNMOUNTED}{n}"))).find(|to| !to.exists());
    let to = free.unwrap_or_else(|| path.with_file_name(format!("{name}{UNMOUNTED}0")));
    fs::rename(path, &to).map_err(lock::io("put aside", path))?;
    fs::create_dir(path).map_err(lock::io("make", path))?;
    Ok(format!("files were written to {} while it was not mounted; they are in {}", path.display(), to.display()))
}

/// The turn of the process that mounts or unmounts a workspace.
fn turn(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<lock::RepoLock, WorkspaceError> {
    lock::RepoLock::wait(&backend.state, &format!("mount-{}", workspace.id))
}

/// Mounts a layer that was mounted before. Its base is built again if it is gone or was changed.
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
        // Git knows files by their inode, too, and those are new. Files that differ make it fail, and are as they are.
        backend.git_in(workspace, at)?.run(["update-index", "-q", "--refresh"])?.patience(git::CHECKOUT).end()?;
    }
    Ok(())
}

/// Mounts a layer with the overlay it was made with; one of an earlier toft with the one that works.
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

/// Fills a new worktree with copies of a base, which share its blocks.
pub(super) fn copy_base(workspace: &Workspace, base: &str, inside: &Git) -> Result<(), WorkspaceError> {
    let (path, base_dir) = (Path::new(&workspace.path), beside(workspace).join(BASES).join(base));
    let index = inside.git_dir().join("index");
    probe::copy(&base::tree(&base_dir).join("."), path)?;
    look::copy_index(&base::index(&base_dir), &index)?;
    // Git knows files by more than what was copied; it looks at each once.
    inside.run(["update-index", "-q", "--refresh"])?.patience(git::CHECKOUT).ok()?;
    if base != workspace.base {
        return git::check_out(inside);
    }
    Ok(())
}

/// Whether a checkout is worth it: large enough to be slow.
fn worthwhile(backend: &WorkspaceBackend) -> bool {
    fs::metadata(backend.common_dir.join("index")).is_ok_and(|meta| meta.len() >= SMALLEST_INDEX)
        && !backend.common_dir.join("info").join("sparse-checkout").exists()
}

/// Fills a new worktree, which has only git's link in it, by standing on its base.
pub(super) fn fill(backend: &WorkspaceBackend, workspace: &Workspace, inside: &Git) -> Result<(), WorkspaceError> {
    let Some(layer) = Layer::of(workspace) else { return Ok(()) };
    let path = Path::new(&workspace.path);
    // One that is brought back may find its base gone.
    base::fit(backend, &layer.base, &layer.commit, |_| Ok(None))?;
    let index = inside.git_dir().join("index");
    look::copy_index(&base::index(&layer.base), &index)?;
    // From here on there is a layer, and the next command mounts it after a crash.
    take_link(&layer, path)?;
    attach(&layer, probe::known(backend.git()?, beside(workspace)).kind, &workspace.name, path)?;
    if workspace.overlay_base.as_ref() != Some(&workspace.base) {
        git::check_out(inside)?;
    }
    Ok(())
}

/// Git's link to the repository is the layer's; below it nothing may be hidden.
fn take_link(layer: &Layer, path: &Path) -> Result<(), WorkspaceError> {
    let (link, upper) = (path.join(".git"), layer.upper());
    // A crash may have left a layer without this.
    fs::create_dir_all(&upper).map_err(lock::io("make", &upper))?;
    match link.is_file() && !upper.join(".git").exists() {
        true => fs::rename(&link, upper.join(".git")).map_err(lock::io("move", &link)),
        false => Ok(()),
    }
}

/// Whether there is still something of a workspace below.
pub(super) fn has_layer(workspace: &Workspace) -> bool {
    Layer::of(workspace).is_none_or(|layer| layer.dir.is_dir())
}

/// Moves a workspace to where nobody finds it by its name; back again too.
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

/// Removes the directory that was made for a workspace which a crash then kept where it was.
pub(super) fn forget_unshifted(workspace: &Workspace, to: &Path) {
    let here = Layer::of(workspace).is_some() && mount::state(Path::new(&workspace.path)) == OverlayState::Mounted;
    if here && mount::state(to) != OverlayState::Mounted {
        drop_empty(to);
    }
}

/// Mounts what was put aside before the machine was started again.
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

/// From here on it may be deleted.
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

/// Takes away what was begun and never handed over.
pub(super) fn discard(workspace: &Workspace) -> Result<(), WorkspaceError> {
    match Layer::of(workspace) {
        Some(layer) => {
            mount::unmount(Path::new(&workspace.path))?;
            remove::tree(&layer.dir)
        }
        None => Ok(()),
    }
}

/// Removes what was only there to be mounted at; what was put there meanwhile stays.
pub(super) fn drop_empty(dir: &Path) {
    let _ = fs::remove_dir(dir);
}

/// What a workspace takes by itself.
fn own_bytes_at(workspace: &Workspace) -> PathBuf {
    Layer::of(workspace).map_or_else(|| PathBuf::from(&workspace.path), |layer| layer.upper())
}
