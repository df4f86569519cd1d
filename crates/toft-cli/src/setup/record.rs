//! What was in a file before toft wrote to it, so that it can be given back byte for byte.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::exit::Failure;

/// Where records are kept.
pub(super) struct Records {
    dir: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Record {
    path: PathBuf,
    /// What was there; nothing if no file was.
    before: Option<String>,
    /// What was written.
    after: String,
}

impl Records {
    pub(super) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn file(&self, path: &Path) -> PathBuf {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '+' };
        let name: String = path.display().to_string().chars().map(plain).collect();
        // Long paths end alike more often than they begin alike.
        let start = name.len().saturating_sub(180);
        self.dir.join(format!("{}.json", &name[start..]))
    }

    fn load(&self, path: &Path) -> Option<Record> {
        let record: Record = serde_json::from_slice(&fs::read(self.file(path)).ok()?).ok()?;
        (record.path == path).then_some(record)
    }

    /// What was there before, if what was written is still there as it was.
    #[expect(clippy::option_option, reason = "no record is not the same as no file")]
    pub(super) fn before(&self, path: &Path, now: Option<&str>) -> Option<Option<String>> {
        self.load(path).filter(|record| Some(record.after.as_str()) == now).map(|record| record.before)
    }

    /// Remembers what was there: what was there before the first time, as long as nobody wrote since, else what is there
    /// now without toft.
    pub(super) fn keep(
        &self,
        path: &Path,
        now: Option<&str>,
        clean: Option<String>,
        after: &str,
    ) -> Result<(), Failure> {
        let before = self.before(path, now).unwrap_or(clean);
        let record = Record { path: path.to_owned(), before, after: after.to_owned() };
        let text = serde_json::to_string_pretty(&record).map_err(|error| failed(path, &error.to_string()))?;
        write(&self.file(path), &text, true)
    }

    pub(super) fn forget(&self, path: &Path) -> Result<(), Failure> {
        match fs::remove_file(self.file(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, &error.to_string())),
            _ => Ok(()),
        }
    }
}

/// Writes a file whole or not at all. A link stays one, and so do permissions.
pub(super) fn write(path: &Path, text: &str, private: bool) -> Result<(), Failure> {
    let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let dir = real.parent().unwrap_or(Path::new("."));
    let draft = real.with_extension(format!("toft-{}", std::process::id()));
    // One that is private stays so while it is written.
    let private = private
        || fs::metadata(&real)
            .is_ok_and(|meta| std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o077 == 0);
    let written = (|| {
        fs::create_dir_all(dir)?;
        let mut options = fs::File::options();
        options.write(true).create_new(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, if private { 0o600 } else { 0o666 });
        io::Write::write_all(&mut options.open(&draft)?, text.as_bytes())?;
        if let Ok(meta) = fs::metadata(&real) {
            fs::set_permissions(&draft, meta.permissions())?;
        }
        fs::File::open(&draft)?.sync_all()?;
        fs::rename(&draft, &real)
    })();
    written.map_err(|error| {
        // The draft may never have been there.
        let _ = fs::remove_file(&draft);
        failed(path, &error.to_string())
    })
}

/// Removes a file, and the directories that are empty then, below `root`.
pub(super) fn remove(path: &Path, root: &Path) -> Result<(), Failure> {
    fs::remove_file(path).map_err(|error| failed(path, &error.to_string()))?;
    for dir in path.ancestors().skip(1).take_while(|dir| *dir != root && dir.starts_with(root)) {
        // One that holds anything else stays.
        if fs::remove_dir(dir).is_err() {
            break;
        }
    }
    Ok(())
}

fn failed(path: &Path, cause: &str) -> Failure {
    Failure::stopped(format!("{} could not be written: {cause}", path.display()), "nothing else was touched")
}
