//! Details of checkpoints too large for a row: files beside the store, named by what is in them.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::error::{Error, io};

fn file(store: &Path, blob: &str) -> PathBuf {
    store.with_file_name("blobs").join(blob)
}

/// Keeps a text under the name of its content; it is on disk before anything refers to it.
pub(crate) fn keep(store: &Path, blob: &str, text: &str) -> Result<(), Error> {
    let path = file(store, blob);
    if !path.exists() {
        let dir = path.with_file_name("");
        fs::create_dir_all(&dir).map_err(io("make", &dir))?;
        let draft = path.with_extension(std::process::id().to_string());
        let mut out = fs::File::create(&draft).map_err(io("write", &draft))?;
        out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).map_err(io("write", &draft))?;
        fs::rename(&draft, &path).map_err(io("write", &path))?;
        fs::File::open(&dir).and_then(|dir| dir.sync_all()).map_err(io("write", &dir))?;
    }
    Ok(())
}

/// A text that was kept.
pub(crate) fn load(store: &Path, blob: &str) -> Result<String, Error> {
    let path = file(store, blob);
    fs::read_to_string(&path).map_err(io("read", &path))
}
