//! The stores that this user has created, so that one query can cover all of them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use toft_store::private;

use crate::{
    config::state_home,
    error::{Error, io},
};

fn dir() -> PathBuf {
    state_home().join("stores")
}

/// Registers a store. Each has a small file, so that two processes never overwrite each other's list.
pub(crate) fn remember(store: &Path) -> Result<(), Error> {
    let store = fs::canonicalize(store).map_err(io("find", store))?;
    let text = store.to_string_lossy();
    let (dir, entry) = (dir(), entry(&text));
    if entry.exists() {
        return Ok(());
    }
    private::create_dir_all(&dir).map_err(io("make", &dir))?;
    private::write(&entry, text.as_bytes()).map_err(io("write", &entry))
}

/// Whether this user registered the store at this path. A store that came with a cloned tree was not registered.
pub(crate) fn knows(store: &Path) -> bool {
    let Ok(store) = fs::canonicalize(store) else { return false };
    entry(&store.to_string_lossy()).is_file()
}

fn entry(store: &str) -> PathBuf {
    dir().join(&blake3::hash(store.as_bytes()).to_hex()[..16])
}

/// Every registered store that still exists.
pub fn registered_stores() -> Result<Vec<PathBuf>, Error> {
    let dir = dir();
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(io("read", &dir)(cause)),
    };
    let mut stores = Vec::new();
    for entry in entries {
        let path = entry.map_err(io("read", &dir))?.path();
        let store = PathBuf::from(fs::read_to_string(&path).map_err(io("read", &path))?);
        if store.exists() {
            stores.push(store);
        }
    }
    stores.sort();
    Ok(stores)
}
