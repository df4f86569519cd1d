//! Finds the processes that use a directory: they have a file open below it, in any mount namespace.
//!
//! A process of another user that cannot be inspected counts if that user could write to the directory, or if its
//! command line names it. See `docs/decisions/0028-kept.md`.

use std::{path::Path, thread, time::Duration};

/// How often a process must be seen in a directory to count; a process that only reads it briefly is gone by then.
const LOOKS: usize = 10;
const PAUSE: Duration = Duration::from_millis(40);

/// A process that uses a directory for longer than a moment, if one can be found.
pub fn process_in(dir: &Path) -> Option<u32> {
    let mut found = None;
    for _ in 0..LOOKS {
        found = holders(dir).into_iter().next();
        found?;
        thread::sleep(PAUSE);
    }
    found
}

/// The processes that use a directory now. For this process only its current directory counts.
#[cfg(target_os = "linux")]
pub fn holders(dir: &Path) -> Vec<u32> {
    linux::holders(dir)
}

/// Without `/proc`, only the current process can be checked.
#[cfg(not(target_os = "linux"))]
pub fn holders(dir: &Path) -> Vec<u32> {
    let here = std::env::current_dir().is_ok_and(|cwd| cwd.starts_with(dir));
    here.then(std::process::id).into_iter().collect()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        collections::{BTreeMap, BTreeSet},
        ffi::OsString,
        fs,
        io::ErrorKind,
        os::unix::{ffi::OsStringExt, fs::MetadataExt},
        path::{Path, PathBuf},
    };

    /// Device and inode number: identifies a file under any path.
    type Inode = (u64, u64);

    pub(super) fn holders(dir: &Path) -> Vec<u32> {
        let me = std::process::id();
        let here = fs::read_link("/proc/self/ns/mnt").ok();
        let Ok(device) = fs::metadata(dir).map(|meta| meta.dev()) else { return Vec::new() };
        let place = DeviceAndInode::of(dir);
        let mut spaces: BTreeMap<PathBuf, bool> = BTreeMap::new();
        // Open files of processes in other mount namespaces that have no path in this one.
        let mut unnamed: Vec<(u32, BTreeSet<Inode>)> = Vec::new();
        let mut found = Vec::new();
        for pid in pids() {
            let proc = PathBuf::from(format!("/proc/{pid}"));
            if points_in(&proc.join("cwd"), dir) {
                found.push(pid);
                continue;
            }
            if pid == me {
                continue;
            }
            match is_in(&proc, dir) {
                Some(true) => {
                    found.push(pid);
                    continue;
                }
                None => {
                    if may_be_in(&proc, dir) {
                        found.push(pid);
                    }
                    continue;
                }
                Some(false) => {}
            }
            let space = fs::read_link(proc.join("ns").join("mnt")).ok().filter(|space| Some(space) != here.as_ref());
            let Some(space) = space else { continue };
            let mounted = || place.as_ref().is_some_and(|place| place.is_mounted_in(&proc, dir));
            if *spaces.entry(space).or_insert_with(mounted) {
                found.push(pid);
            } else {
                let files = without_name(&proc, device);
                if !files.is_empty() {
                    unnamed.push((pid, files));
                }
            }
        }
        if !unnamed.is_empty() {
            let below = inodes(dir);
            found.extend(unnamed.into_iter().filter(|(_, files)| !files.is_disjoint(&below)).map(|(pid, _)| pid));
        }
        found
    }

    fn pids() -> Vec<u32> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    fn points_in(link: &Path, dir: &Path) -> bool {
        fs::read_link(link).is_ok_and(|to| to.starts_with(dir))
    }

    /// Whether a process has a file open below `dir`, by path; `None` if this user may not inspect it.
    fn is_in(proc: &Path, dir: &Path) -> Option<bool> {
        for link in ["root", "exe"] {
            match fs::read_link(proc.join(link)) {
                Ok(to) if to.starts_with(dir) => return Some(true),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
                _ => {}
            }
        }
        let open = match fs::read_dir(proc.join("fd")) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return None,
            // The process has ended.
            Err(_) => return Some(false),
        };
        if open.flatten().any(|entry| points_in(&entry.path(), dir)) {
            return Some(true);
        }
        let maps = fs::read(proc.join("maps")).unwrap_or_default();
        let mapped = maps.split(|byte| *byte == b'\n').filter_map(|line| {
            let start = line.iter().position(|byte| *byte == b'/')?;
            Some(PathBuf::from(OsString::from_vec(line[start..].to_vec())))
        });
        Some(mapped.into_iter().any(|file| file.starts_with(dir)))
    }

    /// Whether a process that this user may not inspect may use a directory: its command line names it, or its user
    /// could write there. Root could write anywhere, so for processes of root only the command line counts.
    fn may_be_in(proc: &Path, dir: &Path) -> bool {
        let name = dir.as_os_str().as_encoded_bytes();
        let told = fs::read(proc.join("cmdline")).unwrap_or_default();
        if told.windows(name.len()).any(|part| part == name) {
            return true;
        }
        let status = fs::read_to_string(proc.join("status")).unwrap_or_default();
        let ids = |key: &str| -> Vec<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        let (users, mut groups) = (ids("Uid:"), ids("Gid:"));
        groups.extend(ids("Groups:"));
        let may = |path: &Path, bits: u32| {
            fs::metadata(path).is_ok_and(|meta| {
                let shift = match () {
                    () if users.contains(&meta.uid()) => 6,
                    () if groups.contains(&meta.gid()) => 3,
                    () => 0,
                };
                meta.mode() >> shift & bits == bits
            })
        };
        let own = nix::unistd::geteuid().as_raw();
        let other = users.first().is_some_and(|user| *user != 0 && *user != own);
        other && may(dir, 0o3) && dir.ancestors().skip(1).all(|above| may(above, 0o1))
    }

    /// Open files of a process in another mount namespace that are on `device` and have another path, or none, in this
    /// namespace.
    fn without_name(proc: &Path, device: u64) -> BTreeSet<Inode> {
        let inode = |path: &Path| fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
        let open = fs::read_dir(proc.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
        let links = ["cwd", "root", "exe"].map(|link| proc.join(link)).into_iter().chain(open);
        let elsewhere = links.filter_map(|link| {
            let found = inode(&link).filter(|(on, _)| *on == device)?;
            let named = fs::read_link(&link).ok().and_then(|name| inode(&name));
            (named != Some(found)).then_some(found)
        });
        elsewhere.collect()
    }

    fn inodes(dir: &Path) -> BTreeSet<Inode> {
        let mut found = BTreeSet::new();
        let mut look = vec![dir.to_owned()];
        while let Some(at) = look.pop() {
            let Ok(meta) = fs::symlink_metadata(&at) else { continue };
            found.insert((meta.dev(), meta.ino()));
            if meta.is_dir() {
                look.extend(fs::read_dir(&at).into_iter().flatten().flatten().map(|entry| entry.path()));
            }
        }
        found
    }

    /// The location of a directory on its device, which is the same in every mount namespace.
    struct DeviceAndInode {
        device: String,
        path: PathBuf,
    }

    impl DeviceAndInode {
        fn of(dir: &Path) -> Option<Self> {
            let mounts = mounts(Path::new("/proc/self"));
            let around = mounts.into_iter().filter(|mount| dir.starts_with(&mount.at));
            // Of several mounts at the same path, the last one is visible.
            let mount = around.max_by_key(|mount| mount.at.components().count())?;
            let rest = dir.strip_prefix(&mount.at).ok()?;
            Some(Self { device: mount.device, path: mount.root.join(rest) })
        }

        /// Whether a process has the directory, or a part of it, mounted at another path.
        fn is_mounted_in(&self, proc: &Path, dir: &Path) -> bool {
            let own = |mount: &MountedRoot| mount.device == self.device && mount.root.starts_with(&self.path);
            mounts(proc).iter().any(|mount| own(mount) && mount.at != dir)
        }
    }

    struct MountedRoot {
        device: String,
        root: PathBuf,
        at: PathBuf,
    }

    fn mounts(proc: &Path) -> Vec<MountedRoot> {
        let text = fs::read_to_string(proc.join("mountinfo")).unwrap_or_default();
        let path = |word: &str| PathBuf::from(word.replace("\\040", " ").replace("\\134", "\\"));
        let mount = |line: &str| {
            let mut words = line.split(' ').skip(2);
            Some(MountedRoot { device: words.next()?.to_owned(), root: path(words.next()?), at: path(words.next()?) })
        };
        text.lines().filter_map(mount).collect()
    }
}
