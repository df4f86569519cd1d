//! Instant workspaces: an overlay over a frozen checkout, on which others stand too.
//!
//! Beside the workspaces, `.bases/NAME/` holds a checkout that nobody changes, with an index that fits it, and
//! `.layers/ID/` what one workspace changed. Git, editors and rescues see an ordinary worktree. After a restart of the
//! machine it is mounted again by whoever needs it next.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use toft_core::workspace::Workspace;

use super::{Ground, WorkspaceError, git, remove};
use crate::{command::Run, git_run::Git, lock};

/// Why git has such a worktree locked: its directory is empty until it is mounted, and must not be pruned then.
pub(super) const LOCKED: &str = "toft mounts it";
/// A base that differs from what is wanted in more files than one in so many is not worth standing on.
const ONE_IN: usize = 8;
/// A checkout of fewer bytes of index is made as fast without.
const SMALLEST_INDEX: u64 = 150 << 10;

/// Where the layer of a workspace is.
struct Layer {
    base: PathBuf,
    dir: PathBuf,
}

impl Layer {
    fn of(workspace: &Workspace) -> Option<Self> {
        let name = workspace.stands_on.as_ref()?;
        let beside = beside(workspace);
        Some(Self { base: beside.join(BASES).join(name), dir: beside.join(LAYERS).join(workspace.id.as_str()) })
    }

    fn upper(&self) -> PathBuf {
        self.dir.join("up")
    }
}

/// The directory that a workspace is in.
fn beside(workspace: &Workspace) -> &Path {
    let path = Path::new(&workspace.path);
    path.parent().unwrap_or(path)
}

const BASES: &str = ".bases";
const LAYERS: &str = ".layers";
const TRIAL: &str = ".trial-";

/// Whether a name beside workspaces is one of these.
pub(super) fn ours(name: &str) -> bool {
    name == BASES || name == LAYERS || name.starts_with(TRIAL) || name.starts_with(crate::recorded::FILE)
}

/// Whether something is mounted at `path`.
fn mounted(path: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    path.parent().is_some_and(|parent| device(path).is_some() && device(path) != device(parent))
}

/// Mounts a workspace where it belongs, unless it is, or is being taken down.
pub(super) fn ensure(ground: &Ground, workspace: &Workspace) -> Result<(), WorkspaceError> {
    let path = Path::new(&workspace.path);
    let Some(layer) = Layer::of(workspace).filter(|layer| layer.dir.is_dir() && !mounted(path)) else { return Ok(()) };
    // Two mounts of one layer would tear it: one process at a time mounts, and while it is taken down it is mounted
    // elsewhere.
    let _turn = turn(ground, workspace)?;
    if mounted(path) || !layer.dir.is_dir() || remove::exists(&remove::aside(workspace).0)? {
        return Ok(());
    }
    fs::create_dir_all(path).map_err(lock::io("make", path))?;
    take_link(&layer, path)?;
    if fs::read_dir(path).map_err(lock::io("read", path))?.next().is_some() {
        return Err(WorkspaceError::Stays {
            why: format!("files were written to {} while it was away", path.display()),
        });
    }
    mount(&layer, path)
}

/// The turn of whoever mounts or unmounts a workspace.
fn turn(ground: &Ground, workspace: &Workspace) -> Result<lock::Turn, WorkspaceError> {
    lock::Turn::wait(&ground.state, &format!("mount-{}", workspace.id))
}

fn mount(layer: &Layer, at: &Path) -> Result<(), WorkspaceError> {
    let (upper, work) = (layer.upper(), layer.dir.join("work"));
    for dir in [&upper, &work] {
        fs::create_dir_all(dir).map_err(lock::io("make", dir))?;
    }
    let lower = layer.base.join("tree");
    if !lower.is_dir() {
        return Err(lock::io("stand on", &lower)(io::ErrorKind::NotFound.into()));
    }
    let options = format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    attach(&options, at)
}

#[cfg(target_os = "linux")]
fn attach(options: &str, at: &Path) -> Result<(), WorkspaceError> {
    use nix::mount::{MsFlags, mount};
    let more = format!("{options},redirect_dir=on,index=off");
    match mount(Some("toft"), at, Some("overlay"), MsFlags::empty(), Some(more.as_str())) {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::EPERM) => fused(options, at),
        Err(error) => Err(lock::io("mount", at)(error.into())),
    }
}

#[cfg(not(target_os = "linux"))]
fn attach(options: &str, at: &Path) -> Result<(), WorkspaceError> {
    fused(options, at)
}

/// For users who may not mount.
fn fused(options: &str, at: &Path) -> Result<(), WorkspaceError> {
    Run::mounting("fuse-overlayfs", at.parent().unwrap_or(at))?.args(["-o", options]).arg(at).ok()?;
    Ok(())
}

/// Unmounts whatever is mounted, as often as it is.
fn unmount(at: &Path) -> Result<(), WorkspaceError> {
    const MOST: usize = 32;
    for _ in 0..MOST {
        if !mounted(at) {
            return Ok(());
        }
        unmount_once(at)?;
    }
    Err(WorkspaceError::Busy { what: at.display().to_string() })
}

fn unmount_once(at: &Path) -> Result<(), WorkspaceError> {
    let stays = || WorkspaceError::Stays { why: "somebody has files open in it".into() };
    match detach(at) {
        Ok(true) => Ok(()),
        Ok(false) => Err(stays()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let run = Run::mounting("fusermount3", at.parent().unwrap_or(at))?;
            run.arg("-u").arg(at).ok().map(drop).map_err(|_| stays())
        }
        Err(cause) => Err(lock::io("unmount", at)(cause)),
    }
}

/// Unmounts; false if somebody is at work there.
#[cfg(target_os = "linux")]
fn detach(at: &Path) -> io::Result<bool> {
    match nix::mount::umount(at) {
        Ok(()) => Ok(true),
        Err(nix::errno::Errno::EBUSY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn detach(_at: &Path) -> io::Result<bool> {
    Err(io::ErrorKind::PermissionDenied.into())
}

/// How workspaces can share files in a directory: tried once for each start of the machine.
pub(super) fn works(dir: &Path) -> Result<Sharing, String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let known = dir.join(BASES).join(format!(".works-{}", boot.trim()));
    match fs::read_to_string(&known).as_deref() {
        Ok(OVERLAYS) => return Ok(Sharing::Overlay),
        Ok(COPIES) => return Ok(Sharing::Copy),
        _ => {}
    }
    fs::create_dir_all(dir.join(BASES)).map_err(|error| error.to_string())?;
    let tried = attempt(dir).map_err(|error| error.to_string())?;
    if !boot.is_empty() {
        // It is only tried again if this cannot be kept.
        let _ = fs::write(&known, if tried == Sharing::Overlay { OVERLAYS } else { COPIES });
    }
    Ok(tried)
}

const OVERLAYS: &str = "overlays";
const COPIES: &str = "copies";

/// How workspaces share the files of a frozen checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By a layer over it.
    Overlay,
    /// By copies that share its blocks on disk.
    Copy,
}

/// Tries one way, then the other. Leaves nothing.
pub(super) fn attempt(dir: &Path) -> Result<Sharing, WorkspaceError> {
    let odd = dir.to_string_lossy().contains([',', ':', '\\']);
    match try_overlay(dir) {
        Ok(()) if !odd => Ok(Sharing::Overlay),
        overlay => match try_copy(dir) {
            Ok(()) => Ok(Sharing::Copy),
            Err(copy) => Err(overlay.err().unwrap_or(copy)),
        },
    }
}

/// Copies a file so that both share their blocks.
fn try_copy(dir: &Path) -> Result<(), WorkspaceError> {
    let trial = tempfile::Builder::new().prefix(TRIAL).tempdir_in(dir).map_err(lock::io("make", dir))?;
    let file = trial.path().join("file");
    fs::write(&file, vec![7; 1 << 16]).map_err(lock::io("write", &file))?;
    copy(&file, &trial.path().join("copy"))
}

/// Copies so that blocks are shared, or not at all.
fn copy(from: &Path, to: &Path) -> Result<(), WorkspaceError> {
    let how: &[&str] = if cfg!(target_os = "macos") { &["-a", "-c"] } else { &["-a", "--reflink=always"] };
    Run::copying(to.parent().unwrap_or(to))?.args(how).arg(from).arg(to).patience(git::CHECKOUT).ok()?;
    Ok(())
}

/// Fills a new worktree with copies of a base, which share its blocks.
pub(super) fn copy_base(workspace: &Workspace, base: &str, inside: &Git) -> Result<(), WorkspaceError> {
    let (path, base_dir) = (Path::new(&workspace.path), beside(workspace).join(BASES).join(base));
    let index = inside.git_dir().join("index");
    copy(&base_dir.join("tree").join("."), path)?;
    fs::copy(base_dir.join("index"), &index).map_err(lock::io("copy", &index))?;
    if base != workspace.base {
        return git::check_out(inside);
    }
    // Git knows files by more than what was copied; it looks at each once.
    inside.run(["update-index", "-q", "--refresh"])?.patience(git::CHECKOUT).ok()?;
    Ok(())
}

/// Mounts a small overlay, writes in it, and sees that what is below stays as it is. Leaves nothing.
fn try_overlay(dir: &Path) -> Result<(), WorkspaceError> {
    let bases = dir.join(BASES);
    let place = if bases.is_dir() { &bases } else { dir };
    let trial = tempfile::Builder::new().prefix(TRIAL).tempdir_in(place).map_err(lock::io("make", place))?;
    let layer = Layer { base: trial.path().join("base"), dir: trial.path().join("layer") };
    let (file, at) = (layer.base.join("tree").join("file"), trial.path().join("at"));
    for dir in [&layer.base.join("tree"), &at] {
        fs::create_dir_all(dir).map_err(lock::io("make", dir))?;
    }
    fs::write(&file, "below").map_err(lock::io("write", &file))?;
    mount(&layer, &at)?;
    let same = fs::metadata(at.join("file")).map(|meta| (meta.ino(), meta.mtime_nsec()));
    let expected = fs::metadata(&file).map(|meta| (meta.ino(), meta.mtime_nsec()));
    let wrote = fs::write(at.join("file"), "above");
    unmount(&at)?;
    let kept = fs::read_to_string(&file).is_ok_and(|text| text == "below");
    match wrote.is_ok() && kept && same.ok() == expected.ok() {
        true => Ok(()),
        false => Err(WorkspaceError::Stays { why: "an overlay did not keep what is below apart".into() }),
    }
}

/// Whether a checkout is worth it: large enough to be slow.
pub(super) fn worthwhile(ground: &Ground) -> bool {
    fs::metadata(ground.common_dir.join("index")).is_ok_and(|meta| meta.len() >= SMALLEST_INDEX)
        && !ground.common_dir.join("info").join("sparse-checkout").exists()
}

/// A base to stand on: the one of this commit, one that is close, or a new one, made warm by `warm`.
pub(super) fn base(
    ground: &Ground,
    dir: &Path,
    commit: &str,
    warm: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<String, WorkspaceError> {
    let bases = dir.join(BASES);
    if bases.join(commit).is_dir() {
        return Ok(commit.to_owned());
    }
    if let Some(close) = newest(&bases)
        && near(ground, &bases.join(&close), &close, commit)?
    {
        return Ok(close);
    }
    let git = ground.git()?;
    let new = bases.join(format!(".new-{}", std::process::id()));
    remove::tree(&new)?;
    let (tree, index) = (new.join("tree"), new.join("index"));
    fs::create_dir_all(&tree).map_err(lock::io("make", &tree))?;
    let run = git.run(["read-tree", "-u", "--reset", "--no-recurse-submodules", commit])?;
    run.env("GIT_WORK_TREE", &tree).env("GIT_INDEX_FILE", &index).patience(git::CHECKOUT).ok()?;
    warm(&tree).map_err(lock::io("fill", &tree))?;
    fs::rename(&new, bases.join(commit)).map_err(lock::io("keep", &new))?;
    Ok(commit.to_owned())
}

/// The base that was made last.
fn newest(bases: &Path) -> Option<String> {
    let entries = fs::read_dir(bases).ok()?.flatten();
    let named = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let dated = named.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.file_name())));
    dated.max().map(|(_, name)| name.to_string_lossy().into_owned())
}

/// Whether a base differs from what is wanted in few files only.
fn near(ground: &Ground, base: &Path, from: &str, to: &str) -> Result<bool, WorkspaceError> {
    let run = ground.git()?.run(["diff-tree", "-r", "--name-only", "-z", from, to])?;
    let ended = run.end()?;
    let different = ended.out.iter().filter(|byte| **byte == 0).count();
    let entry = 90;
    let all = fs::metadata(base.join("index")).map_or(0, |meta| meta.len()) as usize / entry;
    Ok(ended.code == 0 && different * ONE_IN <= all)
}

/// Fills a new worktree, which has only git's link in it, by standing on its base.
pub(super) fn fill(workspace: &Workspace, inside: &Git) -> Result<(), WorkspaceError> {
    let Some(layer) = Layer::of(workspace) else { return Ok(()) };
    let (path, upper) = (Path::new(&workspace.path), layer.upper());
    let index = inside.git_dir().join("index");
    fs::copy(layer.base.join("index"), &index).map_err(lock::io("copy", &index))?;
    // From here on there is a layer, and whoever comes after a crash mounts it.
    fs::create_dir_all(&upper).map_err(lock::io("make", &upper))?;
    take_link(&layer, path)?;
    mount(&layer, path)?;
    if workspace.stands_on.as_ref() != Some(&workspace.base) {
        git::check_out(inside)?;
    }
    Ok(())
}

/// Git's link to the repository is the layer's; below it nothing may be hidden.
fn take_link(layer: &Layer, path: &Path) -> Result<(), WorkspaceError> {
    let (link, upper) = (path.join(".git"), layer.upper());
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
pub(super) fn shift(ground: &Ground, workspace: &Workspace, from: &Path, to: &Path) -> Result<(), WorkspaceError> {
    let Some(layer) = Layer::of(workspace) else {
        return fs::rename(from, to).map_err(lock::io("put aside", from));
    };
    let _turn = turn(ground, workspace)?;
    unmount(from)?;
    fs::create_dir_all(to).map_err(lock::io("make", to))?;
    mount(&layer, to)?;
    drop_empty(from);
    Ok(())
}

/// Mounts what was put aside before the machine was started again.
pub(super) fn ensure_at(ground: &Ground, workspace: &Workspace, at: &Path) -> Result<(), WorkspaceError> {
    let _turn = turn(ground, workspace)?;
    match Layer::of(workspace) {
        Some(layer) if !mounted(at) => mount(&layer, at),
        _ => Ok(()),
    }
}

/// From here on it may be deleted.
pub(super) fn give_up(
    ground: &Ground,
    workspace: &Workspace,
    waiting: &Path,
    gone: &Path,
) -> Result<(), WorkspaceError> {
    let Some(layer) = Layer::of(workspace) else {
        return fs::rename(waiting, gone).map_err(lock::io("put aside", waiting));
    };
    let _turn = turn(ground, workspace)?;
    unmount(waiting)?;
    unmount(Path::new(&workspace.path))?;
    fs::rename(&layer.dir, gone).map_err(lock::io("put aside", &layer.dir))?;
    drop_empty(waiting);
    Ok(())
}

/// Takes away what was begun and never handed over.
pub(super) fn discard(workspace: &Workspace) -> Result<(), WorkspaceError> {
    match Layer::of(workspace) {
        Some(layer) => {
            unmount(Path::new(&workspace.path))?;
            remove::tree(&layer.dir)
        }
        None => Ok(()),
    }
}

/// Removes what was only there to be mounted at; what somebody put there meanwhile stays.
pub(super) fn drop_empty(dir: &Path) {
    let _ = fs::remove_dir(dir);
}

/// Removes bases that nobody stands on, but for the newest; gives how many.
pub(super) fn tidy(dir: &Path, used: &[String]) -> Result<usize, WorkspaceError> {
    let bases = dir.join(BASES);
    let last = newest(&bases);
    let Ok(entries) = fs::read_dir(&bases) else { return Ok(0) };
    let mut gone = 0;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let needed = used.contains(&name) || last.as_ref() == Some(&name) || name.starts_with(".works-");
        if entry.path().is_dir() && !needed {
            remove::tree(&entry.path())?;
            gone += 1;
        }
    }
    Ok(gone)
}

/// What a workspace takes by itself.
pub(super) fn own_bytes_at(workspace: &Workspace) -> PathBuf {
    Layer::of(workspace).map_or_else(|| PathBuf::from(&workspace.path), |layer| layer.upper())
}
