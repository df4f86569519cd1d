//! Puts a ledger in order: one line for each issue, sorted; what has long been over goes to the archive.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::Duration,
};

use serde::Serialize;
use toft_core::{issue::Issue, store::Access, time::Timestamp};
use toft_ledger::{
    file::{Found, Look, Turn, scan},
    line,
};

use super::{
    Ledger, Plan,
    hydrate::Failed,
    place::{ARCHIVE, ISSUES},
};
use crate::error::{Error, io};

/// What putting a ledger in order did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compaction {
    /// Which ledger.
    pub ledger: String,
    /// How many issues it has.
    pub issues: usize,
    /// How many went to the archive.
    pub archived: usize,
    /// How many pieces nobody understands were set aside.
    pub quarantined: usize,
}

/// Lines by id, each with whether it moves.
type Lines = BTreeMap<String, (String, bool)>;

impl Plan<'_> {
    /// Puts every ledger in order.
    pub fn compact(&self, archive_after: Duration) -> Result<Vec<Compaction>, Error> {
        let before = self.now()?.minus(archive_after);
        let writable = self.ledgers.iter().filter(|ledger| !ledger.read_only);
        writable.map(|ledger| self.compact_one(ledger, before)).collect()
    }

    fn compact_one(&self, ledger: &Ledger, before: Timestamp) -> Result<Compaction, Error> {
        let turn = Turn::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
        let path = ledger.issues();
        loop {
            let look = Look::at(&path).map_err(io("read", &path))?;
            self.refresh()?;
            let mut files = self.sorted(ledger, before)?;
            let quarantined = quarantine(ledger, &path)?;
            // A checkout may have put another file there meanwhile, whose issues must not vanish.
            if Look::at(&path).map_err(io("read", &path))? != look {
                continue;
            }
            let hot = files.remove(ISSUES).unwrap_or_default();
            let mut archived = 0;
            for (file, lines) in &files {
                archived += lines.values().filter(|(_, moved)| *moved).count();
                self.replace(&turn, &ledger.dir.join(file), lines)?;
            }
            if look.is_some() {
                self.replace(&turn, &path, &hot)?;
            }
            self.refresh()?;
            let issues = hot.len() + files.values().map(BTreeMap::len).sum::<usize>();
            return Ok(Compaction { ledger: ledger.name.clone(), issues, archived, quarantined });
        }
    }

    /// Every line of a ledger by the file it belongs in, and whether it moves there now.
    fn sorted(&self, ledger: &Ledger, before: Timestamp) -> Result<BTreeMap<String, Lines>, Error> {
        let mut files: BTreeMap<String, Lines> = BTreeMap::new();
        let index = self.index(Access::Read)?;
        for file in ledger.files()? {
            for id in index.ids_of(&ledger.name, &file)? {
                let Some(row) = index.line(&ledger.name, &id)? else { continue };
                let belongs = match over(&row.issue()?) {
                    Some(at) if at < before => format!("{ARCHIVE}/{}.jsonl", &at.to_string()[..4]),
                    _ => ISSUES.to_owned(),
                };
                let moved = belongs != file;
                files.entry(belongs).or_default().insert(id, (row.line, moved));
            }
        }
        Ok(files)
    }

    fn replace(&self, turn: &Turn, path: &Path, lines: &Lines) -> Result<(), Error> {
        let mut content = String::new();
        for (line, _) in lines.values() {
            content.push_str(line);
            content.push('\n');
        }
        if fs::read(path).is_ok_and(|now| now == content.as_bytes()) {
            return Ok(());
        }
        turn.replace(path, |out| out.write_all(content.as_bytes())).map_err(io("write", path)).map(drop)
    }
}

/// When an issue was over for good.
fn over(issue: &Issue) -> Option<Timestamp> {
    match (&issue.deleted, &issue.closed) {
        (Some(deleted), _) => Some(deleted.at),
        (None, Some(closed)) if !issue.unfinished() => Some(closed.at),
        _ => None,
    }
}

/// Keeps what nobody understands in a file of its own, by its content, before the ledger is written anew.
fn quarantine(ledger: &Ledger, path: &Path) -> Result<usize, Error> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(cause) => return Err(Error::Io { doing: "read", path: path.to_owned(), cause }),
    };
    let (mut texts, mut places) = (Vec::new(), Vec::new());
    let scanned = scan::<Failed>(&mut file, 0, |found| {
        match found {
            Found::Bad(bad) => places.push((bad.at, bad.bytes)),
            Found::Text(text) if unreadable(text) => texts.push(text.as_bytes().to_vec()),
            _ => {}
        }
        Ok(())
    });
    scanned.map_err(|failed| failed.at(path))?;
    for (at, bytes) in places {
        let mut piece = Vec::new();
        file.seek(SeekFrom::Start(at)).map_err(io("read", path))?;
        file.by_ref().take(bytes).read_to_end(&mut piece).map_err(io("read", path))?;
        texts.push(piece);
    }
    let dir = ledger.quarantine();
    for piece in &texts {
        fs::create_dir_all(&dir).map_err(io("make", &dir))?;
        let kept = dir.join(format!("{}.txt", &blake3::hash(piece).to_hex()[..16]));
        let mut out = File::create(&kept).map_err(io("write", &kept))?;
        std::io::Write::write_all(&mut out, piece).and_then(|()| out.sync_all()).map_err(io("write", &kept))?;
    }
    Ok(texts.len())
}

fn unreadable(text: &str) -> bool {
    match line::read(text) {
        Ok(read) => serde_json::from_str::<Issue>(&line::write(&read.record)).is_err(),
        Err(_) => true,
    }
}
