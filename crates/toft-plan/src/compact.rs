//! Compacts a ledger: one line for each issue, sorted; issues that were closed long ago go to the archive.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    io::Cursor,
    time::Duration,
};

use serde::Serialize;
use toft_core::{issue::Issue, store::Access, time::Timestamp};
use toft_ledger::{
    file::{Bad, FileStamp, FoundLine, LedgerLock, scan},
    line, open,
    record::Record,
};
use toft_session::error::{Error, io};
use toft_store::sqlite::index::Indexed;

use super::{
    Ledger, Plan,
    index_refresh::fingerprint,
    place::{ARCHIVE, ISSUES},
};

/// The result of compacting a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Compaction {
    pub ledger: String,
    /// Number of its issues.
    pub issues: usize,
    /// Number of issues that were archived.
    pub archived: usize,
    /// Number of lines that cannot be read and are kept unchanged.
    pub broken: usize,
}

/// Lines by id.
type Lines = BTreeMap<String, String>;
/// Lines by file.
type Files = BTreeMap<String, Lines>;
/// Lines that cannot be read, by file.
type Kept = BTreeMap<String, BTreeSet<Vec<u8>>>;

impl Plan<'_> {
    /// Compacts every ledger.
    pub fn compact(&self, archive_after: Duration) -> Result<Vec<Compaction>, Error> {
        let before = self.now()?.minus(archive_after);
        let writable = self.ledgers.iter().filter(|ledger| !ledger.read_only && !ledger.kept_by_others);
        let mut all = Vec::new();
        for ledger in writable {
            match self.compact_one(ledger, before, &BTreeSet::new()) {
                Ok(one) => all.push(one),
                Err(error) => self.leave_out(ledger, error)?,
            }
        }
        Ok(all)
    }

    /// Compacts a ledger. Issues that were closed before a time are archived, and so are those that `archived` names,
    /// if they are closed: an issue in the archive of one clone is in the archive of every other, whatever their
    /// clocks.
    pub(super) fn compact_one(
        &self,
        ledger: &Ledger,
        before: Timestamp,
        archived: &BTreeSet<String>,
    ) -> Result<Compaction, Error> {
        let turn = LedgerLock::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
        loop {
            let looks = looks(ledger)?;
            let (wanted, now) = self.sorted(ledger, before, archived)?;
            let kept = kept(ledger)?;
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
                written.extend(replace(&turn, ledger, file, &both, kept.get(file))?.map(|new| (file.clone(), new)));
            }
            for file in now.keys() {
                let lines = wanted.get(file).cloned().unwrap_or_default();
                written.extend(replace(&turn, ledger, file, &lines, kept.get(file))?.map(|new| (file.clone(), new)));
            }
            // Where every issue stayed in its file, the index knows what is in it now.
            let ids = |files: &Files| -> Vec<(String, Vec<String>)> {
                files.iter().map(|(file, lines)| (file.clone(), lines.keys().cloned().collect())).collect()
            };
            let broken = kept.values().map(BTreeSet::len).sum();
            match ids(&wanted) == ids(&now) && broken == 0 && !self.troubled(ledger)? {
                true => self.rewritten(ledger, &written)?,
                false => self.refresh_in_turn(Some(ledger))?,
            }
            let issues = wanted.values().map(BTreeMap::len).sum();
            return Ok(Compaction { ledger: ledger.name.clone(), issues, archived, broken });
        }
    }

    /// Every line of a ledger by its target file, and by its current file; read again from all files.
    fn sorted(&self, ledger: &Ledger, before: Timestamp, archived: &BTreeSet<String>) -> Result<(Files, Files), Error> {
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
                Some(at) if at < before || row.file != ISSUES || archived.contains(&issue.id) => {
                    format!("{ARCHIVE}/{}.jsonl", &at.to_string()[..4])
                }
                _ => ISSUES.to_owned(),
            };
            let lines = in_parts(&row.line);
            wanted.entry(belongs).or_default().insert(issue.id.clone(), lines.clone());
            now.entry(row.file).or_default().insert(issue.id, lines);
        }
        for file in ledger.files()?.into_iter().filter(|file| ledger.dir.join(file).exists()) {
            now.entry(file).or_default();
        }
        Ok((wanted, now))
    }
}

/// Whether the index contains everything in the files. Identical lines are in the index; others must add nothing.
fn agree(ledger: &Ledger, rows: &[Indexed]) -> Result<bool, Error> {
    let known: HashSet<&str> = rows.iter().map(|row| row.line.as_str()).collect();
    let mut records: Option<BTreeMap<String, Record>> = None;
    for file in ledger.files()? {
        let path = ledger.dir.join(&file);
        let text = match open::read(&ledger.dir, &file) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(Error::Io { doing: "read", path, cause }),
        };
        for text in text.lines().filter(|text| !text.is_empty() && !known.contains(text)) {
            let Ok(line) = line::read(text) else { return Ok(false) };
            if !line.is_dated() {
                return Ok(false);
            }
            let record = line.record;
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

/// The stamp of every file of a ledger.
pub(super) fn looks(ledger: &Ledger) -> Result<Vec<(String, Option<FileStamp>)>, Error> {
    let mut looks = Vec::new();
    for file in ledger.files()? {
        let path = ledger.dir.join(&file);
        looks.push((file, FileStamp::at(&path).map_err(io("read", &path))?));
    }
    Ok(looks)
}

/// Replaces a file if its content differs; returns its new stamp and the fingerprint of its content.
fn replace(
    turn: &LedgerLock,
    ledger: &Ledger,
    file: &str,
    lines: &Lines,
    kept: Option<&BTreeSet<Vec<u8>>>,
) -> Result<Option<(FileStamp, String)>, Error> {
    let mut content = Vec::new();
    let kept = kept.into_iter().flatten().map(Vec::as_slice);
    for line in lines.values().map(String::as_bytes).chain(kept) {
        content.extend(line);
        content.push(b'\n');
    }
    if open::read(&ledger.dir, file).is_ok_and(|now| now == content) {
        return Ok(None);
    }
    let path = ledger.dir.join(file);
    let look = turn.replace(&path, |out| out.write_all(&content)).map_err(io("write", &path))?;
    Ok(Some((look, fingerprint(&content))))
}

/// A record's line as it is written: several lines, if it is very long.
fn in_parts(text: &str) -> String {
    const LONG: usize = 1 << 20;
    match line::read(text) {
        Ok(line) if text.len() > LONG => line::write_all(&line.record).join("\n"),
        _ => text.to_owned(),
    }
}

/// When an issue was closed or deleted.
fn over(issue: &Issue) -> Option<Timestamp> {
    match (&issue.deleted, &issue.closed) {
        (Some(deleted), _) => Some(deleted.at),
        (None, Some(closed)) if !issue.unfinished() => Some(closed.at),
        _ => None,
    }
}

/// Lines of a ledger that cannot be read, or only in part. They are kept byte for byte: another program, or a newer
/// toft, may be able to read them.
fn kept(ledger: &Ledger) -> Result<Kept, Error> {
    let mut kept = Kept::new();
    for file in ledger.files()? {
        let Some(bytes) = ledger.read(&file)? else { continue };
        let found = not_understood(&bytes).map_err(io("read", &ledger.dir.join(&file)))?;
        if !found.is_empty() {
            kept.insert(file, found);
        }
    }
    Ok(kept)
}

/// Lines of a file that cannot be read, or only in part.
pub(super) fn not_understood(bytes: &[u8]) -> std::io::Result<BTreeSet<Vec<u8>>> {
    let mut kept = BTreeSet::new();
    scan::<std::io::Error>(Cursor::new(bytes), 0, |found| {
        match found {
            FoundLine::Bad(Bad { at, bytes: length, .. }) => {
                let piece = &bytes[at as usize..(at + length).min(bytes.len() as u64) as usize];
                kept.insert(piece.strip_suffix(b"\n").unwrap_or(piece).to_vec());
            }
            FoundLine::Text { text, .. } if line::read(text).map_or(true, |line| !line.broken.is_empty()) => {
                kept.insert(line::on_one_line(text).as_bytes().to_vec());
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(kept)
}
