//! Determines how workspaces can share files in a directory. Each method is tested before it is used, once per boot,
//! file system and user.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    WorkspaceError,
    mount::{self, OverlayKind, Stack},
};
use crate::{command::Run, git_run::Git, lock};

pub(super) const TRIAL: &str = ".trial-";
const KNOWN: &str = ".works-";
/// Version of the tests: results of earlier versions are not used.
const PROBE: u32 = 2;
/// Git maps a file of this size into memory instead of reading it.
const MAPPED: usize = 256 << 10;

/// How workspaces share the files of a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// An overlay over it.
    Overlay,
    /// Copies that share its disk blocks.
    Copy,
}

/// The result for a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probed {
    /// The method to use, if any works.
    pub sharing: Option<Sharing>,
    /// The overlay implementation that works.
    pub(super) kind: Option<OverlayKind>,
    /// Why faster methods are not used.
    pub why: Vec<String>,
    /// It was tested now, not read from the cache.
    pub fresh: bool,
}

impl Probed {
    /// The name of the method for display.
    pub fn name(&self) -> &'static str {
        match (self.sharing, self.kind) {
            (Some(Sharing::Overlay), Some(kind)) => kind.as_str(),
            (Some(Sharing::Copy), _) => COPIES,
            _ => NOTHING,
        }
    }
}

const COPIES: &str = "reflink copies";
const NOTHING: &str = "plain checkouts";

/// The result for a directory, from the cache if it was tested since boot.
pub(super) fn known(git: &Git, dir: &Path) -> Probed {
    let bases = dir.join(super::base::BASES);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let file = bases.join(format!("{KNOWN}{}", boot.trim()));
    let key = key(dir);
    if let Some(found) = fs::read_to_string(&file).ok().and_then(|text| read(&text, &key)) {
        return found;
    }
    if let Err(error) = fs::create_dir_all(&bases) {
        return Probed { sharing: None, kind: None, why: vec![error.to_string()], fresh: true };
    }
    let found = attempt(git, dir);
    if !boot.is_empty() {
        let text = format!("{key}\n{}\n{}\n", found.name(), found.why.join("\n"));
        // If the result cannot be written, the next command tests again.
        let _ = fs::write(&file, text);
    }
    found
}

/// The cache key: test version, file system, user and user namespace.
fn key(dir: &Path) -> String {
    let device = fs::metadata(dir).map(|meta| meta.dev()).unwrap_or_default();
    let space = fs::read_link("/proc/self/ns/user").unwrap_or_default();
    format!("{PROBE} {device} {} {}", nix::unistd::geteuid(), space.display())
}

fn read(text: &str, key: &str) -> Option<Probed> {
    let mut lines = text.lines();
    let (known, name) = (lines.next()?, lines.next()?);
    let kind = OverlayKind::named(name);
    let sharing = match name {
        COPIES => Some(Sharing::Copy),
        NOTHING => None,
        _ => Some(kind.map(|_| Sharing::Overlay)?),
    };
    let why = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    (known == key).then_some(Probed { sharing, kind, why, fresh: false })
}

/// Tests one method after the other. Leaves no files behind.
pub(super) fn attempt(git: &Git, dir: &Path) -> Probed {
    let mut why = Vec::new();
    let one_line = |text: String| text.lines().collect::<Vec<_>>().join(" ");
    for kind in [OverlayKind::Kernel, OverlayKind::Fuse] {
        match try_overlay(git, kind, dir) {
            Ok(()) => return Probed { sharing: Some(Sharing::Overlay), kind: Some(kind), why, fresh: true },
            Err(reason) => why.push(one_line(format!("{}: {reason}", kind.as_str()))),
        }
    }
    let sharing = match try_copy(dir) {
        Ok(()) => Some(Sharing::Copy),
        Err(_) => {
            why.push(format!("{COPIES}: this file system cannot share blocks"));
            None
        }
    };
    Probed { sharing, kind: None, why, fresh: true }
}

fn trial(dir: &Path) -> Result<tempfile::TempDir, WorkspaceError> {
    let bases = dir.join(super::base::BASES);
    let place = if bases.is_dir() { bases } else { dir.to_owned() };
    tempfile::Builder::new().prefix(TRIAL).tempdir_in(&place).map_err(lock::io("make", &place))
}

/// Tests whether a file can be copied so that both share their blocks.
fn try_copy(dir: &Path) -> Result<(), WorkspaceError> {
    let trial = trial(dir)?;
    let file = trial.path().join("file");
    fs::write(&file, vec![7; 1 << 16]).map_err(lock::io("write", &file))?;
    copy(&file, &trial.path().join("copy"))
}

/// Copies with shared blocks, or fails.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), WorkspaceError> {
    let how: &[&str] = if cfg!(target_os = "macos") { &["-a", "-c"] } else { &["-a", "--reflink=always"] };
    Run::copying(to.parent().unwrap_or(to))?.args(how).arg(from).arg(to).patience(super::git::CHECKOUT).ok()?;
    Ok(())
}

/// Mounts a small overlay and tests it. Leaves no files behind.
fn try_overlay(git: &Git, kind: OverlayKind, dir: &Path) -> Result<(), String> {
    if dir.to_string_lossy().contains([',', ':', '\\']) {
        return Err("the path contains a comma, colon or backslash".to_owned());
    }
    let trial = trial(dir).map_err(|error| error.to_string())?;
    let [lower, upper, work, at] = ["lower", "upper", "work", "at"].map(|name| trial.path().join(name));
    let told = |error: std::io::Error| error.to_string();
    for dir in [&lower.join("dir").join("sub"), &upper, &work, &at] {
        fs::create_dir_all(dir).map_err(told)?;
    }
    for name in ["file", "linked", "locked", "dir/sub/deep"] {
        fs::write(lower.join(name), "below").map_err(told)?;
    }
    fs::write(lower.join("mapped"), vec![b'a'; MAPPED]).map_err(told)?;
    let stack = Stack { lower, upper, work };
    mount::attach(kind, &stack, &at).map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => "this user may not mount it".to_owned(),
        _ => error.to_string(),
    })?;
    let behaves = behaves(git, &stack.lower, &at);
    let unmounted = mount::unmount(&at).map_err(|error| error.to_string());
    behaves?;
    unmounted
}

/// Tests operations that programs expect to work, on files and directories of the lower layer.
fn behaves(git: &Git, lower: &Path, at: &Path) -> Result<(), String> {
    let check = |well: bool, what: &str| if well { Ok(()) } else { Err(what.to_owned()) };
    let same = |dir: &Path| fs::metadata(dir.join("file")).map(|meta| (meta.ino(), meta.mtime_nsec())).ok();
    check(same(at).is_some() && same(at) == same(lower), "files do not keep their inode and time")?;
    check(fs::write(at.join("file"), "above").is_ok(), "files cannot be written")?;
    let kept = fs::read_to_string(lower.join("file")).is_ok_and(|text| text == "below");
    check(kept, "what is written reaches the files below")?;
    fs::rename(at.join("dir"), at.join("moved")).map_err(|error| format!("directories cannot be renamed ({error})"))?;
    let deep = at.join("moved").join("sub").join("deep");
    let moved = fs::read_to_string(&deep).is_ok_and(|text| text == "below") && !at.join("dir").exists();
    check(moved, "a renamed directory loses its files")?;
    let (one, two) = (at.join("linked"), at.join("other"));
    fs::hard_link(&one, &two).map_err(|error| format!("files cannot be linked ({error})"))?;
    check(fs::write(&one, "through").is_ok(), "linked files cannot be written")?;
    let inode = |path: &PathBuf| fs::metadata(path).map(|meta| meta.ino()).ok();
    let shared = inode(&one) == inode(&two) && fs::read_to_string(&two).is_ok_and(|text| text == "through");
    check(shared, "a hard link becomes a file of its own")?;
    check(locks(&at.join("locked")).is_ok_and(|held| held), "locks do not keep others out")?;
    check(maps(git, at).is_ok_and(|mapped| mapped), "a mapped file does not show what was written")
}

/// Whether a lock on a file excludes a second one.
fn locks(path: &Path) -> std::io::Result<bool> {
    let open = || fs::File::options().read(true).write(true).open(path);
    let (one, two) = (open()?, open()?);
    one.try_lock().map_err(std::io::Error::other)?;
    Ok(matches!(two.try_lock(), Err(fs::TryLockError::WouldBlock)))
}

/// Whether a program that maps a file into memory, as git does with large ones, sees recent writes.
fn maps(git: &Git, at: &Path) -> Result<bool, WorkspaceError> {
    let file = at.join("mapped");
    let hash = || git.run(["hash-object", "--no-filters"])?.arg(&file).text();
    let before = hash()?;
    let text = vec![b'b'; MAPPED];
    fs::write(&file, &text).map_err(lock::io("write", &file))?;
    let read = git.run(["hash-object", "--no-filters", "--stdin"])?.ok_fed(|to| to.write_all(&text))?;
    let after = hash()?;
    Ok(after != before && after == String::from_utf8_lossy(&read).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_believed_only_where_it_was_found() {
        let text = "2 7 0 user:[1]\nreflink copies\noverlayfs: this user may not mount it\n";
        let found = read(text, "2 7 0 user:[1]").unwrap();
        assert_eq!((found.sharing, found.fresh, found.why.len()), (Some(Sharing::Copy), false, 1));
        assert_eq!(read(text, "2 8 0 user:[1]"), None);
        assert_eq!(read("overlays", "2 7 0 user:[1]"), None);
        let none = read("k\nplain checkouts\n", "k").unwrap();
        assert_eq!((none.sharing, none.name()), (None, NOTHING));
        let fuse = read("k\nfuse-overlayfs\n", "k").unwrap();
        assert_eq!((fuse.sharing, fuse.kind), (Some(Sharing::Overlay), Some(OverlayKind::Fuse)));
    }
}
