//! Details of checkpoints too large for a row: files beside the store, named by what is in them.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use serde_json::Value;
use toft_core::checkpoint::{Detail, INLINE_LIMIT};

use crate::error::{Error, io};

fn file(store: &Path, blob: &str) -> PathBuf {
    store.with_file_name("blobs").join(blob)
}

/// A value as a checkpoint keeps it. A large one is on disk before anything refers to it.
pub(crate) fn keep(store: &Path, value: Value) -> Result<Detail, Error> {
    let text = value.to_string();
    if text.len() <= INLINE_LIMIT {
        return Ok(Detail::Inline(value));
    }
    let blob = blake3::hash(text.as_bytes()).to_hex().to_string();
    let path = file(store, &blob);
    if !path.exists() {
        let dir = path.with_file_name("");
        fs::create_dir_all(&dir).map_err(io("make", &dir))?;
        let draft = path.with_extension(std::process::id().to_string());
        let mut out = fs::File::create(&draft).map_err(io("write", &draft))?;
        out.write_all(text.as_bytes()).and_then(|()| out.sync_all()).map_err(io("write", &draft))?;
        fs::rename(&draft, &path).map_err(io("write", &path))?;
        fs::File::open(&dir).and_then(|dir| dir.sync_all()).map_err(io("write", &dir))?;
    }
    Ok(Detail::Blob { blob, bytes: text.len() as u64 })
}

/// The value a checkpoint's detail stands for.
pub(crate) fn load(store: &Path, detail: &Detail) -> Result<Value, Error> {
    match detail {
        Detail::Inline(value) => Ok(value.clone()),
        Detail::Blob { blob, .. } => {
            let path = file(store, blob);
            let text = fs::read_to_string(&path).map_err(io("read", &path))?;
            serde_json::from_str(&text).map_err(|error| io("read", &path)(error.into()))
        }
    }
}
