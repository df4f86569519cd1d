//! Files that processes of one user on one machine share: locks and counters that need not survive a restart.
//!
//! They are never in a shared temporary directory, where another user could have created a link or a lock first. If
//! this user has no directory of their own, processes work without these files.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

use super::url::digest;
use crate::{clock::boot_id, private};

/// Opens a file for this boot of this machine, named after `what`.
pub(super) fn open(what: &str) -> Option<File> {
    let path = dir()?.join(digest(&format!("{}/{what}", boot_id())));
    let mut options = private::options();
    options.read(true).write(true).create(true).truncate(false);
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nix::libc::O_NOFOLLOW);
    options.open(path).ok()
}

/// The user's runtime directory, or a directory in their home.
fn dir() -> Option<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = || named("XDG_STATE_HOME").or_else(|| named("HOME").map(|home| home.join(".local/state")));
    let runtime = named("XDG_RUNTIME_DIR").filter(|dir| ours(dir)).map(|dir| dir.join("toft"));
    runtime.into_iter().chain(state().map(|dir| dir.join("toft/run"))).find(|dir| {
        // Whether it could be created shows in whether it is there and ours.
        let _ = private::create_dir_all(dir);
        ours(dir)
    })
}

/// A real directory that belongs to this user, and that nobody else may enter.
fn ours(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let me = nix::unistd::geteuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|meta| meta.is_dir() && meta.uid() == me && meta.mode() & 0o077 == 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn only_a_directory_of_ones_own_is_used() {
        let base = tempfile::tempdir().unwrap();
        let [own, open, link] = ["own", "open", "link"].map(|name| base.path().join(name));
        private::create_dir(&own).unwrap();
        private::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        symlink(&own, &link).unwrap();
        assert!(ours(&own));
        assert!(!ours(&open) && !ours(&link) && !ours(&base.path().join("none")));
    }
}
