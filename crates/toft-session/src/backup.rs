//! Backups: everything that belongs to a store in one file, and its restoration.
//!
//! A backup contains the rows, the blobs, and for a repository's own store the repository's id, its ledger, its
//! settings and the logs of attempts. Restoring never deletes: existing data is kept under another name.

use std::{
    fs,
    path::{Path, PathBuf},
};

use toft_core::{store::StoreError, time::Timestamp, verbs::facts};
use toft_store::{
    SqliteStore, private,
    sqlite::archive::{self, Archive, ArchivedFile},
};
use toft_vcs::ID_FILE;

use crate::{
    engine::{Engine, Home, Open},
    error::{Error, io},
    locate::Located,
    registry,
    session::Session,
};

/// Files of the state directory that a backup contains besides the store. A restore writes each file only if it does
/// not exist.
const STATE: [&str; 5] = [ID_FILE, "ledgers.json", "config.toml", "ledger", "attempts"];
/// Number of rows of a server that are read from a backup at a time.
#[cfg(feature = "postgres")]
const BATCH: usize = 500;

/// The content of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    pub file: PathBuf,
    /// Number of blobs in it.
    pub blobs: usize,
    /// Number of other files in it.
    pub files: usize,
}

/// The result of a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    pub store: String,
    /// When the backup was made.
    pub made: String,
    /// Where the previous store is now: a file, or a space on the server.
    pub aside: Option<String>,
    /// Number of files that were written beside the store.
    pub files: usize,
    /// Files that were not changed, because they differ from the backup's.
    pub left: Vec<PathBuf>,
}

impl Session {
    /// Writes a verified backup. In a directory, a new file is created; a file must not exist.
    pub fn backup(&self, target: &Path) -> Result<Backup, Error> {
        let now = self.perform(facts::Clock {})?.now;
        let file = match target.is_dir() {
            true => target.join(format!("toft-{}.backup", stamp(now))),
            false => target.to_owned(),
        };
        if fs::symlink_metadata(&file).is_ok() {
            let reason = "something is there already".to_owned();
            return Err(StoreError::Unsuitable { path: file.display().to_string(), reason }.into());
        }
        let draft = file.with_extension(format!("draft-{}", std::process::id()));
        let written = self.write_backup(&draft, now);
        let (blobs, files) = match written {
            Ok(written) => written,
            Err(error) => {
                // A draft that cannot be removed now is seen by its name.
                let _ = fs::remove_file(&draft);
                return Err(error);
            }
        };
        fs::rename(&draft, &file).map_err(io("write", &file))?;
        Ok(Backup { file, blobs, files })
    }

    fn write_backup(&self, draft: &Path, now: Timestamp) -> Result<(usize, usize), Error> {
        let located = self.located();
        let (archive, kind, schema) = match self.engine() {
            Engine::Remote(_) => {
                return Err(Error::OnServer { server: located.store.to_string(), doing: "backs its store up" });
            }
            Engine::File(store) => {
                let archive = Archive::create(draft, |draft| store.backup(draft))?;
                let schema = archive.schema()?;
                (archive, "sqlite", schema)
            }
            #[cfg(feature = "postgres")]
            Engine::Server(store) => {
                let archive = Archive::create(draft, |_| Ok(()))?;
                let schema = store.dump(|table, row| archive.add_row(table, row))?;
                (archive, "postgres", schema)
            }
        };
        for (name, value) in [
            ("format", "1"),
            ("engine", kind),
            ("schema", &schema.to_string()),
            ("version", env!("CARGO_PKG_VERSION")),
            ("made", &now.to_string()),
            ("store", &located.store.to_string()),
        ] {
            archive.describe(name, value)?;
        }
        let (mut blobs, mut files) = (0, 0);
        if let Some(dir) = located.store.file().and_then(Path::parent) {
            let mut found = Vec::new();
            let owned = ["blobs"].into_iter().chain(STATE.into_iter().filter(|_| located.own_store()));
            for name in owned {
                collect(dir, Path::new(name), &mut found)?;
            }
            for path in found {
                let content = fs::read(dir.join(&path)).map_err(io("read", &path))?;
                let hash = blake3::hash(&content).to_hex().to_string();
                let counted = if path.starts_with("blobs") { &mut blobs } else { &mut files };
                *counted += 1;
                archive.add_file(&ArchivedFile { path: path.to_string_lossy().into_owned(), hash, content })?;
            }
        }
        if kind == "sqlite"
            && let [blob, ..] = archive.missing_blobs()?.as_slice()
        {
            return Err(StoreError::Unreadable {
                table: "blobs".into(),
                id: blob.clone(),
                cause: "it is not there".into(),
            }
            .into());
        }
        archive.finish()?;
        Ok((blobs, files))
    }
}

/// Files below `path` in `dir`, which may be missing. Links are not followed, and temporary directories are skipped.
fn collect(dir: &Path, path: &Path, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    let full = dir.join(path);
    let meta = match fs::symlink_metadata(&full) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(io("read", &full)(cause)),
    };
    if meta.is_file() {
        found.push(path.to_owned());
    } else if meta.is_dir() {
        for entry in fs::read_dir(&full).map_err(io("read", &full))? {
            let name = entry.map_err(io("read", &full))?.file_name();
            if name != "tmp" {
                collect(dir, &path.join(name), found)?;
            }
        }
    }
    Ok(())
}

/// Restores a backup to the store that `located` names. An existing, intact store is refused without `replace`.
pub fn restore(located: &Located, file: &Path, replace: bool) -> Result<Restored, Error> {
    let archive = Archive::open(file)?;
    let about = |name: &str| archive.about(name).map(Option::unwrap_or_default);
    let (kind, made) = (about("engine")?, about("made")?);
    let aside = format!("before-restore-{}", stamp(now()));
    let aside = match (&located.store, kind.as_str()) {
        (Home::File(path), "sqlite") => {
            archive.schema()?;
            restore_file(&archive, path, replace, &aside)?
        }
        #[cfg(feature = "postgres")]
        (Home::Server(url), "postgres") => restore_server(&archive, url, replace, &aside)?,
        (store, kind) => {
            let reason = format!("it is of a {kind} store, and {store} is another kind");
            return Err(StoreError::Unsuitable { path: file.display().to_string(), reason }.into());
        }
    };
    let (mut files, mut left) = (0, Vec::new());
    if let Some(dir) = located.store.file().and_then(Path::parent) {
        archive.files(|kept| -> Result<(), Error> {
            match write_back(dir, &kept, located.own_store())? {
                Some(true) => files += 1,
                Some(false) => left.push(dir.join(&kept.path)),
                None => {}
            }
            Ok(())
        })?;
    }
    // Opened once: an older schema is upgraded now, and what cannot be opened is told now.
    Engine::open(&located.store, Open::Known)?;
    if let Some(store) = located.store.file() {
        registry::remember(store)?;
    }
    Ok(Restored { store: located.store.to_string(), made, aside, files, left })
}

fn restore_file(archive: &Archive, path: &Path, replace: bool, aside: &str) -> Result<Option<String>, Error> {
    match SqliteStore::open_briefly(path) {
        Ok(_) if !replace => {
            let store = path.display().to_string();
            return Err(Error::StoreThere { store });
        }
        Ok(_) | Err(StoreError::Missing { .. } | StoreError::Damaged { .. } | StoreError::Newer { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    if let Some(dir) = path.parent() {
        private::create_dir_all(dir).map_err(io("make", dir))?;
    }
    let draft = path.with_extension("restoring");
    archive.extract_store(&draft)?;
    Ok(archive::replace(path, &draft, aside)?.map(|kept| kept.display().to_string()))
}

#[cfg(feature = "postgres")]
fn restore_server(archive: &Archive, url: &str, replace: bool, aside: &str) -> Result<Option<String>, Error> {
    let known = toft_store::postgres::SCHEMA_VERSION;
    match archive.about("schema")?.and_then(|text| text.parse().ok()).unwrap_or_default() {
        found if found > known => return Err(StoreError::Newer { found, known }.into()),
        found if found < known => return Err(StoreError::Older { found, known }.into()),
        _ => {}
    }
    let store = toft_store::PostgresStore::create(url)?;
    let empty = store.is_empty()?;
    if !empty && !replace {
        return Err(Error::StoreThere { store: store.shown().to_owned() });
    }
    let mut last = 0;
    store.load((!empty).then_some(aside), || {
        let rows = archive.rows(last, BATCH)?;
        last = rows.last().map_or(last, |(n, ..)| *n);
        Ok(rows.into_iter().map(|(_, table, row)| (table, row)).collect())
    })?;
    Ok((!empty).then(|| format!("space {aside}")))
}

/// Writes a file of a backup if it does not exist. `None` if it exists with the same content, or belongs to a state
/// directory that this store does not have; `false` if another file is in its place.
fn write_back(dir: &Path, kept: &ArchivedFile, own: bool) -> Result<Option<bool>, Error> {
    let path = Path::new(&kept.path);
    let inside = path.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if !inside || blake3::hash(&kept.content).to_hex().as_str() != kept.hash {
        let reason = format!("{} in it is not what was put there", kept.path);
        return Err(StoreError::Damaged { place: "the backup".into(), reason }.into());
    }
    if !own && !path.starts_with("blobs") {
        return Ok(None);
    }
    let target = dir.join(path);
    match fs::read(&target) {
        Ok(there) if there == kept.content => return Ok(None),
        // The rows that were restored belong to this id, and to no other.
        Ok(there) if kept.path == ID_FILE => {
            let aside = dir.join(format!("{ID_FILE}.before-restore"));
            private::write(&aside, there).map_err(io("write", &aside))?;
        }
        Ok(_) => return Ok(Some(false)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(cause) => return Err(io("read", &target)(cause)),
    }
    if let Some(dir) = target.parent() {
        private::create_dir_all(dir).map_err(io("make", dir))?;
    }
    let draft = target.with_extension(format!("draft-{}", std::process::id()));
    private::write(&draft, &kept.content).map_err(io("write", &draft))?;
    fs::rename(&draft, &target).map_err(io("write", &target))?;
    Ok(Some(true))
}

fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A time to the millisecond as part of a file name: `20261116t022509123z`.
fn stamp(at: Timestamp) -> String {
    at.to_string().to_ascii_lowercase().chars().filter(char::is_ascii_alphanumeric).collect()
}
