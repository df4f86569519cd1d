//! Details of checkpoints that are too large for a row: files beside the store, named by the hash of their content.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use toft_core::time::Timestamp;
use toft_store::private;

use crate::{
    error::{Error, io},
    session::random_ids,
};

fn file(store: &Path, blob: &str) -> PathBuf {
    store.with_file_name("blobs").join(blob)
}

/// Stores a text under the hash of its content; it is on disk before a row references it.
pub(crate) fn keep(store: &Path, blob: &str, text: &str) -> Result<(), Error> {
    let path = file(store, blob);
    // One that is there already is as good as new: the caller is about to refer to it.
    let touched = private::options().write(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
    if touched.is_err() {
        let dir = path.with_file_name("");
        private::create_dir_all(&dir).map_err(io("make", &dir))?;
        // Two threads may keep the same text at once.
        let draft = path.with_extension(random_ids().word());
        let mut out = private::create(&draft).map_err(io("write", &draft))?;
        out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).map_err(io("write", &draft))?;
        fs::rename(&draft, &path).map_err(io("write", &path))?;
        fs::File::open(&dir).and_then(|dir| dir.sync_all()).map_err(io("write", &dir))?;
    }
    Ok(())
}

/// Loads a stored text.
pub(crate) fn load(store: &Path, blob: &str) -> Result<String, Error> {
    let path = file(store, blob);
    fs::read_to_string(&path).map_err(io("read", &path))
}

/// Removes up to `limit` blobs that were last written before a time and are not referenced. `referenced` is called
/// after the directory was read, and only if there is a candidate.
pub(crate) fn forget(
    store: &Path,
    before: Timestamp,
    limit: usize,
    referenced: impl FnOnce() -> Result<BTreeSet<String>, Error>,
) -> Result<usize, Error> {
    let dir = store.with_file_name("blobs");
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(cause) => return Err(io("read", &dir)(cause)),
    };
    let before = SystemTime::UNIX_EPOCH + Duration::from_millis(before.0.unsigned_abs());
    let old = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).is_ok_and(|at| at < before);
    let mut candidates: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| old(path)).collect();
    if candidates.is_empty() {
        return Ok(0);
    }
    let referenced = referenced()?;
    candidates.retain(|path| path.file_name().is_some_and(|name| !referenced.contains(&*name.to_string_lossy())));
    candidates.truncate(limit);
    for path in &candidates {
        fs::remove_file(path).map_err(io("remove", path))?;
    }
    Ok(candidates.len())
}
