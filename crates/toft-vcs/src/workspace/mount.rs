//! Mounts of workspaces: overlays by the kernel and by fuse-overlayfs, and read-only bind mounts of bases.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use nix::errno::Errno;

use super::WorkspaceError;
use crate::{command::Run, lock};

/// How long an unmounted overlay may take to end, and how often that is checked.
const ENDING: Duration = Duration::from_millis(1_500);
const PAUSE: Duration = Duration::from_millis(50);

/// The implementation of an overlay. Each writes markers into the layer that only the same implementation interprets
/// correctly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverlayKind {
    Kernel,
    Fuse,
}

impl OverlayKind {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "overlayfs",
            Self::Fuse => "fuse-overlayfs",
        }
    }

    pub(super) fn named(text: &str) -> Option<Self> {
        [Self::Kernel, Self::Fuse].into_iter().find(|kind| kind.as_str() == text)
    }
}

/// The directories of one overlay.
pub(super) struct Stack {
    pub(super) lower: PathBuf,
    pub(super) upper: PathBuf,
    pub(super) work: PathBuf,
}

impl Stack {
    fn options(&self, work: &Path) -> String {
        let (lower, upper) = (self.lower.display(), self.upper.display());
        format!("lowerdir={lower},upperdir={upper},workdir={}", work.display())
    }
}

/// The state of a mount point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OverlayState {
    Mounted,
    Empty,
    /// The daemon was killed: every access fails until it is unmounted.
    Dead,
}

pub(super) fn state(at: &Path) -> OverlayState {
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev());
    let Some(parent) = at.parent() else { return OverlayState::Empty };
    match (device(at), device(parent)) {
        (Ok(here), Ok(there)) if here != there => OverlayState::Mounted,
        (Err(error), _) if is_dead(&error) => OverlayState::Dead,
        _ => OverlayState::Empty,
    }
}

fn is_dead(error: &io::Error) -> bool {
    [Errno::ENOTCONN, Errno::ECONNABORTED].iter().any(|dead| error.raw_os_error() == Some(*dead as i32))
}

/// Mounts an overlay with the given implementation.
#[cfg(target_os = "linux")]
pub(super) fn attach(kind: OverlayKind, stack: &Stack, at: &Path) -> io::Result<()> {
    use nix::mount::{MsFlags, mount};
    match kind {
        OverlayKind::Fuse => fused(stack, at),
        OverlayKind::Kernel => {
            let options = format!("{},redirect_dir=on,index=off", stack.options(&stack.work));
            mount(Some("toft"), at, Some("overlay"), MsFlags::empty(), Some(options.as_str())).map_err(Into::into)
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn attach(kind: OverlayKind, stack: &Stack, at: &Path) -> io::Result<()> {
    match kind {
        OverlayKind::Fuse => fused(stack, at),
        OverlayKind::Kernel => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn fused(stack: &Stack, at: &Path) -> io::Result<()> {
    let mut run = Run::mounting("fuse-overlayfs", at.parent().unwrap_or(at)).map_err(io::Error::other)?;
    // The daemon serves every user of the workspace, so it must not inherit the environment of the attempt that
    // happened to start it.
    run.command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    match run.args(["-o", &stack.options(&stack.work)]).arg(at).end() {
        Ok(ended) if ended.code == 0 => Ok(()),
        Ok(ended) => Err(io::Error::other(format!("fuse-overlayfs failed with exit code {}", ended.code))),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Moves a mount to another directory without mounting its layer twice. Returns false if this user may not do that.
#[cfg(target_os = "linux")]
pub(super) fn shift(from: &Path, to: &Path) -> Result<bool, WorkspaceError> {
    use nix::mount::{MsFlags, mount};
    const NONE: Option<&str> = None;
    match mount(Some(from), to, NONE, MsFlags::MS_BIND, NONE) {
        Ok(()) => {}
        Err(Errno::EPERM) => return Ok(false),
        Err(error) => return Err(lock::io("mount", to)(error.into())),
    }
    unmount(from).inspect_err(|_| drop(detach(to, true)))?;
    Ok(true)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn shift(_from: &Path, _to: &Path) -> Result<bool, WorkspaceError> {
    Ok(false)
}

/// Why a layer must not be mounted now: another mount of it exists that this process does not see at the mount point.
/// Two mounts of one layer would overwrite each other's changes. A mount that was just detached takes a moment to end,
/// so this waits briefly.
pub(super) fn in_use(stack: &Stack) -> Option<String> {
    let until = Instant::now() + ENDING;
    loop {
        let why = in_use_now(stack)?;
        if Instant::now() >= until {
            return Some(why);
        }
        thread::sleep(PAUSE);
    }
}

fn in_use_now(stack: &Stack) -> Option<String> {
    if let Some(pid) = daemon_of(&stack.upper) {
        return Some(format!("process {pid} (fuse-overlayfs) serves its files elsewhere"));
    }
    let elsewhere = namespace_with(&stack.upper);
    if let Some(pid) = elsewhere {
        return Some(format!("it is mounted in the mount namespace of process {pid}"));
    }
    kernel_has(stack).then(|| "its last mount was detached while a process worked in it".to_owned())
}

/// Whether the kernel has an overlay with this upper directory in any mount namespace. It is tested with a mount that
/// the kernel always refuses; the error code tells whether the directory is in use.
#[cfg(target_os = "linux")]
fn kernel_has(stack: &Stack) -> bool {
    use nix::mount::{MsFlags, mount};
    let options = format!("{},index=on", stack.options(&stack.upper));
    let at = stack.upper.as_path();
    match mount(Some("toft"), at, Some("overlay"), MsFlags::empty(), Some(options.as_str())) {
        Err(error) => error == Errno::EBUSY,
        Ok(()) => {
            // This kernel accepts the mount, so the test tells nothing; undo it.
            let _ = detach(at, true);
            false
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn kernel_has(_stack: &Stack) -> bool {
    false
}

/// The processes that are visible in `/proc`, each with its directory there.
fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_string_lossy().parse().ok()?, entry.path())))
}

/// The fuse-overlayfs daemon of a layer, in any mount namespace.
fn daemon_of(upper: &Path) -> Option<u32> {
    let wanted = [b"upperdir=", upper.as_os_str().as_bytes()].concat();
    let serves = |(_, dir): &(u32, PathBuf)| {
        let words = fs::read(dir.join("cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"fuse-overlayfs"))
            && words.any(|word| word.split(|byte| *byte == b',').any(|option| option == wanted))
    };
    processes().find(serves).map(|(pid, _)| pid)
}

/// A process in another mount namespace in which an overlay of this layer is mounted.
fn namespace_with(upper: &Path) -> Option<u32> {
    let space = |dir: &Path| fs::read_link(dir.join("ns").join("mnt")).ok();
    let mut seen = vec![space(Path::new("/proc/self"))?];
    for (pid, dir) in processes() {
        let Some(other) = space(&dir).filter(|other| !seen.contains(other)) else { continue };
        let found = mounts(&dir)
            .into_iter()
            .any(|mount| mount.kind == "overlay" && mount.has(&format!("upperdir={}", upper.display())));
        if found {
            return Some(pid);
        }
        seen.push(other);
    }
    None
}

/// A line of `mountinfo`.
struct Mount {
    at: PathBuf,
    kind: String,
    read_only: bool,
    options: String,
}

impl Mount {
    fn has(&self, option: &str) -> bool {
        self.options.split(',').any(|known| known == option)
    }
}

/// The mounts in the namespace of a process.
fn mounts(process: &Path) -> Vec<Mount> {
    let text = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    let parse = |line: &str| {
        let (front, back) = line.split_once(" - ")?;
        let (front, back): (Vec<_>, Vec<_>) = (front.split(' ').collect(), back.split(' ').collect());
        let plain = |text: &str| {
            text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        };
        Some(Mount {
            at: PathBuf::from(plain(front.get(4)?)),
            read_only: front.get(5)?.split(',').any(|option| option == "ro"),
            kind: (*back.first()?).to_owned(),
            options: plain(back.get(2)?),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Whether a directory is a read-only bind mount of itself.
pub(super) fn is_frozen(dir: &Path) -> bool {
    mounts(Path::new("/proc/self")).iter().rev().find(|mount| mount.at == dir).is_some_and(|mount| mount.read_only)
}

/// Makes a directory read-only by a bind mount of itself, if this user may mount. This protects files that many
/// workspaces share from any program.
#[cfg(target_os = "linux")]
pub(super) fn freeze(dir: &Path) {
    use nix::mount::{MsFlags, mount};
    const NONE: Option<&str> = None;
    if mount(Some(dir), dir, NONE, MsFlags::MS_BIND, NONE).is_ok() {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        if mount(NONE, dir, NONE, flags, NONE).is_err() {
            thaw(dir);
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn freeze(_dir: &Path) {}

/// Removes the read-only bind mount, so that the directory can be deleted.
#[cfg(target_os = "linux")]
pub(super) fn thaw(dir: &Path) {
    use nix::mount::{MntFlags, umount2};
    let count = mounts(Path::new("/proc/self")).iter().filter(|mount| mount.at == dir).count();
    for _ in 0..count {
        // Overlays keep their lower directory. If the unmount fails, the later deletion fails too and reports the
        // reason.
        let _ = umount2(dir, MntFlags::MNT_DETACH);
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn thaw(_dir: &Path) {}

/// Unmounts everything at a directory, including dead mounts.
pub(super) fn unmount(at: &Path) -> Result<(), WorkspaceError> {
    const MOST: usize = 32;
    for _ in 0..MOST {
        match state(at) {
            OverlayState::Empty => return Ok(()),
            OverlayState::Mounted => unmount_once(at)?,
            OverlayState::Dead => take_down_dead(at)?,
        }
    }
    Err(WorkspaceError::Busy { what: at.display().to_string() })
}

fn unmount_once(at: &Path) -> Result<(), WorkspaceError> {
    let stays = || WorkspaceError::Stays { why: "a process has files open in it".into() };
    match detach(at, false) {
        Ok(true) => Ok(()),
        Ok(false) => Err(stays()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let run = Run::mounting("fusermount3", at.parent().unwrap_or(at))?;
            run.arg("-u").arg(at).ok().map(drop).map_err(|_| stays())
        }
        Err(cause) => Err(lock::io("unmount", at)(cause)),
    }
}

/// Unmounts the mount of a killed daemon. Processes in it have lost access already.
fn take_down_dead(at: &Path) -> Result<(), WorkspaceError> {
    match detach(at, true) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Run::mounting("fusermount3", at.parent().unwrap_or(at))?.args(["-u", "-z"]).arg(at).ok()?;
            Ok(())
        }
        Err(cause) => Err(lock::io("unmount", at)(cause)),
    }
}

/// Unmounts; returns false if the mount is in use.
#[cfg(target_os = "linux")]
fn detach(at: &Path, lazily: bool) -> io::Result<bool> {
    use nix::mount::{MntFlags, umount2};
    match umount2(at, if lazily { MntFlags::MNT_DETACH } else { MntFlags::empty() }) {
        Ok(()) => Ok(true),
        Err(Errno::EBUSY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn detach(_at: &Path, _lazily: bool) -> io::Result<bool> {
    Err(io::ErrorKind::PermissionDenied.into())
}
