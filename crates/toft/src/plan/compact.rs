//! Puts a ledger in order: one line for each issue, sorted; what has long been over goes to the archive.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::Duration,
};

use serde::Serialize;
use toft_core::{issue::Issue, store::Access, time::Timestamp};
use toft_ledger::{
    file::{Found, Look, Turn, scan},
    line::{self, Line},
    record::Record,
};
use toft_store::sqlite::index::Indexed;

use super::{
    Ledger, Plan,
    hydrate::{Failed, print},
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

/// Lines by id.
type Lines = BTreeMap<String, String>;
/// Lines by file.
type Files = BTreeMap<String, Lines>;

impl Plan<'_> {
    /// Puts every ledger in order.
    pub fn compact(&self, archive_after: Duration) -> Result<Vec<Compaction>, Error> {
        let before = self.now()?.minus(archive_after);
        let writable = self.ledgers.iter().filter(|ledger| !ledger.read_only);
        let mut all = Vec::new();
        for ledger in writable {
            match self.compact_one(ledger, before) {
                Ok(one) => all.push(one),
                Err(error) => self.leave_out(ledger, error)?,
            }
        }
        Ok(all)
    }

    /// How many pieces that nobody understands are kept beside ledgers.
    pub fn set_aside_count(&self) -> usize {
        let count = |ledger: &Ledger| fs::read_dir(ledger.quarantine()).map_or(0, Iterator::count);
        self.ledgers.iter().map(count).sum()
    }

    pub(super) fn compact_one(&self, ledger: &Ledger, before: Timestamp) -> Result<Compaction, Error> {
        let turn = Turn::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
        loop {
            let looks = looks(ledger)?;
            let (wanted, now) = self.sorted(ledger, before)?;
            let mut quarantined = 0;
            for file in ledger.files()? {
                quarantined += quarantine(ledger, &ledger.dir.join(&file))?;
            }
            // A checkout may have put other files there meanwhile, whose issues must not vanish.
            if self::looks(ledger)? != looks {
                continue;
            }
            let archived = wanted
                .iter()
                .filter(|(file, _)| *file != ISSUES)
                .map(|(file, lines)| {
                    lines.keys().filter(|id| !now.get(file).is_some_and(|now| now.contains_key(*id))).count()
                })
                .sum();
            // First everything is where it will be and where it was, then only where it will be.
            let mut written = BTreeMap::new();
            for (file, lines) in &wanted {
                let both: Lines = now
                    .get(file)
                    .into_iter()
                    .flatten()
                    .chain(lines)
                    .map(|(id, line)| (id.clone(), line.clone()))
                    .collect();
                written.extend(replace(&turn, &ledger.dir.join(file), &both)?.map(|new| (file.clone(), new)));
            }
            for file in now.keys() {
                let lines = wanted.get(file).cloned().unwrap_or_default();
                written.extend(replace(&turn, &ledger.dir.join(file), &lines)?.map(|new| (file.clone(), new)));
            }
            // Where every issue stayed in its file, the index knows what is in it now.
            let ids = |files: &Files| -> Vec<(String, Vec<String>)> {
                files.iter().map(|(file, lines)| (file.clone(), lines.keys().cloned().collect())).collect()
            };
            match ids(&wanted) == ids(&now) && quarantined == 0 {
                true => self.rewritten(ledger, &written)?,
                false => self.refresh_in_turn(Some(ledger))?,
            }
            let issues = wanted.values().map(BTreeMap::len).sum();
            return Ok(Compaction { ledger: ledger.name.clone(), issues, archived, quarantined });
        }
    }

    /// Every line of a ledger by the file it belongs in, and by the file it is in; read anew from all of them.
    fn sorted(&self, ledger: &Ledger, before: Timestamp) -> Result<(Files, Files), Error> {
        let (mut wanted, mut now) = (Files::new(), Files::new());
        self.refresh_in_turn(Some(ledger))?;
        let mut rows = self.index(Access::Read)?.all_of(&ledger.name)?;
        if !agree(ledger, &rows)? {
            let index = self.index(Access::Write)?;
            self.ingest_all(&index, ledger)?;
            rows = index.all_of(&ledger.name)?;
            index.commit()?;
        }
        for row in rows {
            let issue = row.issue()?;
            let belongs = match over(&issue) {
                Some(at) if at < before => format!("{ARCHIVE}/{}.jsonl", &at.to_string()[..4]),
                _ => ISSUES.to_owned(),
            };
            wanted.entry(belongs).or_default().insert(issue.id.clone(), row.line.clone());
            now.entry(row.file).or_default().insert(issue.id, row.line);
        }
        for file in ledger.files()?.into_iter().filter(|file| ledger.dir.join(file).exists()) {
            now.entry(file).or_default();
        }
        Ok((wanted, now))
    }
}

/// Does the index have everything that the files say? Lines that are there letter by letter are; others must add nothing.
fn agree(ledger: &Ledger, rows: &[Indexed]) -> Result<bool, Error> {
    let known: HashSet<&str> = rows.iter().map(|row| row.line.as_str()).collect();
    let mut records: Option<BTreeMap<String, Record>> = None;
    for file in ledger.files()? {
        let path = ledger.dir.join(file);
        let text = match fs::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(Error::Io { doing: "read", path, cause }),
        };
        for text in text.lines().filter(|text| !text.is_empty() && !known.contains(text)) {
            let Ok(Line { record, sound: true }) = line::read(text) else { return Ok(false) };
            let records = records.get_or_insert_with(|| {
                let read = |row: &Indexed| line::read(&row.line).ok().map(|line| line.record);
                rows.iter().filter_map(read).map(|record| (record.id().to_owned(), record)).collect()
            });
            let Some(row) = records.get(record.id()) else { return Ok(false) };
            let mut both = row.clone();
            both.merge(record);
            if both != *row {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// How every file of a ledger looks.
pub(super) fn looks(ledger: &Ledger) -> Result<Vec<(String, Option<Look>)>, Error> {
    let mut looks = Vec::new();
    for file in ledger.files()? {
        let path = ledger.dir.join(&file);
        looks.push((file, Look::at(&path).map_err(io("read", &path))?));
    }
    Ok(looks)
}

/// Writes a file anew, if it says anything else; gives how it looks then, and its content's print.
fn replace(turn: &Turn, path: &Path, lines: &Lines) -> Result<Option<(Look, String)>, Error> {
    let mut content = String::new();
    for line in lines.values() {
        content.push_str(line);
        content.push('\n');
    }
    if fs::read(path).is_ok_and(|now| now == content.as_bytes()) {
        return Ok(None);
    }
    let look = turn.replace(path, |out| out.write_all(content.as_bytes())).map_err(io("write", path))?;
    Ok(Some((look, print(content.as_bytes()))))
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
    set_aside(ledger, &texts)
}

/// Keeps pieces of a ledger that nobody understands, each in a file named by its content.
pub(super) fn set_aside(ledger: &Ledger, pieces: &[Vec<u8>]) -> Result<usize, Error> {
    let dir = ledger.quarantine();
    for piece in pieces {
        fs::create_dir_all(&dir).map_err(io("make", &dir))?;
        let kept = dir.join(format!("{}.txt", &blake3::hash(piece).to_hex()[..16]));
        let mut out = File::create(&kept).map_err(io("write", &kept))?;
        std::io::Write::write_all(&mut out, piece).and_then(|()| out.sync_all()).map_err(io("write", &kept))?;
    }
    Ok(pieces.len())
}

fn unreadable(text: &str) -> bool {
    match line::read(text) {
        Ok(read) => serde_json::from_str::<Issue>(&line::write(&read.record)).is_err(),
        Err(_) => true,
    }
}
