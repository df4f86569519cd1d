//! Updates the index from the files: nothing if nothing changed, the tail if lines were appended, otherwise everything.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use toft_core::{issue::Issue, store::Access};
use toft_ledger::{
    clock::Clock,
    combine::Lines,
    file::{Bad, FileStamp, FoundLine, LedgerLock, scan},
    line,
    open::{self, For},
};
use toft_session::error::{Error, io};
use toft_store::sqlite::index::{Around, FileState, IndexTx};

use super::{Ledger, Plan, place::ISSUES};

/// A file that changed less than this before it was read may have changed again in the same clock tick.
const FINE_TICK: i64 = 10_000_000;
const COARSE_TICK: i64 = 2_000_000_000;
/// Maximum number of problems that are stored for a file.
const TROUBLES: usize = 100;
/// File size from which more memory is used.
const MUCH: u64 = 4 << 20;
/// How long a reader waits for writers.
const PATIENCE: Duration = Duration::from_secs(5);

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The new part.
    New,
    /// The same, right after this process wrote it from `start`.
    Own { start: u64 },
    /// All of it.
    All,
}

/// A problem in a ledger. Nothing is lost because of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerTrouble {
    pub file: String,
    /// The offset in bytes.
    pub at: u64,
    /// The line number.
    #[serde(default)]
    pub line: u64,
    /// The issue, if a field of it has an invalid value.
    #[serde(default)]
    pub issue: Option<String>,
    /// A merge conflict is not resolved.
    #[serde(default)]
    pub conflict: bool,
    pub problem: String,
}

impl Plan<'_> {
    /// Updates the index from every ledger of this checkout.
    pub(super) fn refresh(&self) -> Result<(), Error> {
        self.refresh_in_turn(None)
    }

    /// The same for a caller that holds the lock of one of the ledgers. The other ledgers are read under their locks,
    /// too: waiting for a writer that is about to update the index avoids that many processes read the same lines at
    /// once.
    pub(super) fn refresh_in_turn(&self, mine: Option<&Ledger>) -> Result<(), Error> {
        self.forget_unseen()?;
        for ledger in &self.ledgers {
            match self.refresh_one(ledger, mine) {
                // Only who is about to write to a ledger needs it.
                Err(error) if mine.is_none_or(|mine| mine.name != ledger.name) => self.leave_out(ledger, error)?,
                refreshed => refreshed?,
            }
        }
        Ok(())
    }

    fn refresh_one(&self, ledger: &Ledger, mine: Option<&Ledger>) -> Result<(), Error> {
        self.check_there(ledger)?;
        let mut stale = self.stale(ledger)?;
        if stale.is_empty() {
            return Ok(());
        }
        let patience = if mine.is_some() { Duration::ZERO } else { PATIENCE };
        let turn = match mine {
            Some(mine) if mine.name == ledger.name => None,
            // Who may not write here may read, and who waits too long as well.
            _ => LedgerLock::take_within(&ledger.lock, patience).ok().flatten(),
        };
        if turn.is_some() {
            self.store()?.end_snapshot();
            stale = self.stale(ledger)?;
        }
        if !stale.is_empty() {
            self.ingest_stale(ledger, &stale)?;
        }
        Ok(())
    }

    /// Files of a ledger that differ from their state in the index.
    fn stale(&self, ledger: &Ledger) -> Result<Vec<String>, Error> {
        let mut files = ledger.files()?;
        let index = self.index(Access::Read)?;
        files.extend(index.files()?.into_iter().filter(|(of, _)| *of == ledger.name).map(|(_, file)| file));
        files.sort();
        files.dedup();
        let mut stale = Vec::new();
        for file in files {
            let look = FileStamp::at(&ledger.dir.join(&file)).map_err(io("read", &ledger.dir))?;
            if !fresh(index.file(&ledger.name, &file)?.as_ref(), look.as_ref()) {
                stale.push(file);
            }
        }
        Ok(stale)
    }

    fn ingest_stale(&self, ledger: &Ledger, stale: &[String]) -> Result<(), Error> {
        let index = self.index(Access::Write)?;
        let mut dropped = false;
        for file in stale {
            dropped |= self.ingest(&index, ledger, file, How::New)?;
        }
        if dropped {
            // What one file no longer says another may.
            self.ingest_all(&index, ledger)?;
        }
        Ok(index.commit()?)
    }

    /// Reads every file of a ledger from the start.
    pub(super) fn ingest_all(&self, index: &IndexTx<'_>, ledger: &Ledger) -> Result<(), Error> {
        for file in ledger.files()? {
            self.ingest(index, ledger, &file, How::All)?;
        }
        Ok(())
    }

    /// Removes ledgers from the index that this checkout no longer uses.
    fn forget_unseen(&self) -> Result<(), Error> {
        let seen = |name: &str| self.ledgers.iter().any(|ledger| ledger.name == name);
        let unseen = |index: &IndexTx<'_>| -> Result<Vec<(String, String)>, Error> {
            Ok(index.files()?.into_iter().filter(|(ledger, _)| !seen(ledger)).collect())
        };
        if unseen(&self.index(Access::Read)?)?.is_empty() {
            return Ok(());
        }
        let index = self.index(Access::Write)?;
        let (mut changed, mut around) = (BTreeSet::new(), Around::default());
        for (ledger, file) in unseen(&index)? {
            for id in index.ids_of(&ledger, &file)? {
                index.around(&id, &mut around)?;
                index.drop_issue(&ledger, &id)?;
                self.lay_again(&index, &id)?;
                changed.insert(id);
            }
            index.drop_file(&ledger, &file)?;
        }
        index.settle(&changed, &around)?;
        Ok(index.commit()?)
    }

    /// Reads lines that were just appended to a ledger, from `start`.
    pub(super) fn follow(&self, ledger: &Ledger, start: u64) -> Result<(), Error> {
        let index = self.index(Access::Write)?;
        self.ingest(&index, ledger, ISSUES, How::Own { start })?;
        Ok(index.commit()?)
    }

    /// Updates the state of files that were just compacted: the same issues in other lines, with the new stamps and
    /// fingerprints.
    pub(super) fn rewritten(
        &self,
        ledger: &Ledger,
        files: &BTreeMap<String, (FileStamp, String)>,
    ) -> Result<(), Error> {
        if files.is_empty() {
            return Ok(());
        }
        let index = self.index(Access::Write)?;
        for (file, (look, fingerprint)) in files {
            let known = index.file(&ledger.name, file)?.unwrap_or_default();
            let state = FileState {
                identity: look.identity,
                size: look.size,
                written: look.written,
                looked: 0,
                ingested: look.size,
                tail: serde_json::to_string(&Prints(vec![(look.size, fingerprint.clone())])).unwrap_or_default(),
                newest: known.newest,
                troubles: String::new(),
            };
            index.put_file(&ledger.name, file, &state)?;
        }
        Ok(index.commit()?)
    }

    /// Reads the new part of a file; returns whether issues are no longer in it.
    fn ingest(&self, index: &IndexTx<'_>, ledger: &Ledger, file: &str, how: How) -> Result<bool, Error> {
        let path = ledger.dir.join(file);
        let known = index.file(&ledger.name, file)?;
        let looked = now_nanos();
        let mut open = match open::open(&ledger.dir, file, For::Reading, 0) {
            Ok(open) => open,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let mut reading = Reading::new(index, ledger, file, Clock::ZERO, self);
                let dropped = reading.drop_unseen()?;
                index.drop_file(&ledger.name, file)?;
                reading.settle()?;
                return Ok(dropped);
            }
            Err(cause) => return Err(Error::Io { doing: "read", path, cause }),
        };
        let look = FileStamp::of(&open.metadata().map_err(io("read", &path))?);
        let covered =
            |known: &FileState| (known.identity, known.size, known.written) == (look.identity, look.size, look.written);
        if matches!(how, How::Own { .. }) && known.as_ref().is_some_and(covered) {
            // Somebody who only reads was faster.
            return Ok(false);
        }
        let tail = match known.as_ref().filter(|known| known.identity == look.identity && known.size <= look.size) {
            Some(known) => {
                let prints = Prints::parse(&known.tail).filter(|prints| prints.len() == known.ingested);
                let same = |prints: &Prints, open: &mut File| match how {
                    How::All => Ok(false),
                    // Nothing came between the last look and what we wrote, but perhaps the end of a torn line.
                    How::Own { start } => Ok(known.size == start || known.size + 1 == start),
                    How::New => prints.hold(open),
                };
                match prints {
                    Some(prints) if same(&prints, &mut open).map_err(io("read", &path))? => Some(prints),
                    _ => None,
                }
            }
            None => None,
        };
        let newest = known.as_ref().and_then(|known| known.newest.parse().ok()).unwrap_or_default();
        let mut reading = Reading::new(index, ledger, file, newest, self);
        reading.blank = index.is_blank(&ledger.name)?;
        if tail.is_none() && look.size > MUCH {
            index.make_room()?;
        }
        if tail.is_some() {
            reading.tail = true;
            let troubles = known.as_ref().map(|known| known.troubles.as_str()).unwrap_or_default();
            reading.troubles = serde_json::from_str(troubles).unwrap_or_default();
        }
        let from = tail.as_ref().map_or(0, Prints::len);
        let ingested = scan(&mut open, from, |found| reading.take(found)).map_err(|error| error.at(&path))?;
        reading.finish()?;
        let dropped = tail.is_none() && reading.drop_unseen()?;
        let prints = tail.unwrap_or_default().and(&mut open, ingested).map_err(io("read", &path))?;
        let state = FileState {
            identity: look.identity,
            size: look.size,
            written: look.written,
            // Nobody else of us writes while we hold the turn.
            looked: if matches!(how, How::Own { .. }) { i64::MAX } else { looked },
            ingested,
            tail: serde_json::to_string(&prints).unwrap_or_default(),
            newest: reading.newest.to_string(),
            troubles: serde_json::to_string(&reading.troubles).unwrap_or_default(),
        };
        index.put_file(&ledger.name, file, &state)?;
        reading.settle()?;
        Ok(dropped)
    }

    /// Whether a ledger's files had problems when they were last read.
    pub(super) fn troubled(&self, ledger: &Ledger) -> Result<bool, Error> {
        let index = self.index(Access::Read)?;
        for file in ledger.files()? {
            let state = index.file(&ledger.name, &file)?.unwrap_or_default();
            if !matches!(state.troubles.as_str(), "" | "[]") {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The problems in the ledgers of this checkout.
    pub fn troubles(&self) -> Result<Vec<LedgerTrouble>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        let index = self.look()?;
        let mut troubles = Vec::new();
        for (ledger, file) in index.files()? {
            let state = index.file(&ledger, &file)?.unwrap_or_default();
            let found = serde_json::from_str::<Vec<LedgerTrouble>>(&state.troubles).unwrap_or_default();
            if found.is_empty() {
                continue;
            }
            let path = self.called(&ledger)?.dir.join(&file);
            let text = open::read(&self.called(&ledger)?.dir, &file).map_err(io("read", &path))?;
            let line_at = |at: u64| text.iter().take(at as usize).filter(|byte| **byte == b'\n').count() as u64 + 1;
            let told = |trouble: LedgerTrouble| LedgerTrouble {
                file: path.display().to_string(),
                line: line_at(trouble.at),
                ..trouble
            };
            troubles.extend(found.into_iter().map(told));
        }
        Ok(troubles)
    }
}

/// Whether the stored state of a file is up to date.
fn fresh(known: Option<&FileState>, look: Option<&FileStamp>) -> bool {
    match (known, look) {
        (None, None) => true,
        (Some(known), Some(look)) => {
            let tick = if look.written % 1_000_000_000 == 0 { COARSE_TICK } else { FINE_TICK };
            (known.identity, known.size, known.written) == (look.identity, look.size, look.written)
                && known.looked.saturating_sub(look.written) > tick
        }
        _ => false,
    }
}

pub(super) fn now_nanos() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |at| at.as_nanos() as i64)
}

/// The content of a file when it was read, in pieces: the length and the fingerprint of each.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Prints(Vec<(u64, String)>);

impl Prints {
    /// More pieces than this are merged into one.
    const MOST: usize = 64;

    fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|(bytes, _)| bytes).sum()
    }

    /// Whether the file still begins with all of them.
    fn hold(&self, file: &mut File) -> std::io::Result<bool> {
        let mut at = 0;
        for (bytes, fingerprint) in &self.0 {
            if fingerprint_of(file, at, *bytes)?.as_ref() != Some(fingerprint) {
                return Ok(false);
            }
            at += bytes;
        }
        Ok(true)
    }

    /// These pieces, and the one after them up to an offset in the file.
    fn and(mut self, file: &mut File, upto: u64) -> std::io::Result<Self> {
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        let from = self.len();
        self.0.extend(fingerprint_of(file, from, upto - from)?.map(|fingerprint| (upto - from, fingerprint)));
        Ok(self)
    }
}

/// The fingerprint of a piece of a file.
pub(super) fn fingerprint(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..24].to_owned()
}

/// The fingerprint of a piece of a file; none if the file is too short.
fn fingerprint_of(file: &mut File, from: u64, bytes: u64) -> std::io::Result<Option<String>> {
    let mut hasher = blake3::Hasher::new();
    file.seek(SeekFrom::Start(from))?;
    let read = std::io::copy(&mut file.by_ref().take(bytes), &mut hasher)?;
    Ok((read == bytes).then(|| hasher.finalize().to_hex()[..24].to_owned()))
}

/// An error while reading.
pub(super) enum Failed {
    Io(std::io::Error),
    Other(Error),
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<toft_core::store::StoreError> for Failed {
    fn from(error: toft_core::store::StoreError) -> Self {
        Self::Other(error.into())
    }
}

impl Failed {
    pub(super) fn at(self, path: &Path) -> Error {
        match self {
            Self::Io(cause) => Error::Io { doing: "read", path: path.to_owned(), cause },
            Self::Other(error) => error,
        }
    }
}

/// A file that is being read into the index.
struct Reading<'r, 'p> {
    index: &'r IndexTx<'r>,
    ledger: &'r str,
    file: &'r str,
    plan: &'r Plan<'p>,
    newest: Clock,
    /// Only the appended part is read: it adds to what is known.
    tail: bool,
    /// The index contains nothing of this ledger.
    blank: bool,
    /// Issues with several lines: their lines, and the offset of the first.
    several: BTreeMap<String, (u64, Lines)>,
    seen: HashSet<String>,
    changed: BTreeSet<String>,
    around_before: Around,
    troubles: Vec<LedgerTrouble>,
}

impl<'r, 'p> Reading<'r, 'p> {
    fn new(index: &'r IndexTx<'r>, ledger: &'r Ledger, file: &'r str, newest: Clock, plan: &'r Plan<'p>) -> Self {
        Self {
            index,
            ledger: &ledger.name,
            file,
            plan,
            newest,
            tail: false,
            blank: false,
            several: BTreeMap::new(),
            seen: HashSet::new(),
            changed: BTreeSet::new(),
            around_before: Around::default(),
            troubles: Vec::new(),
        }
    }

    fn trouble(&mut self, at: u64, problem: String) {
        self.add_trouble(LedgerTrouble {
            file: self.file.to_owned(),
            at,
            line: 0,
            issue: None,
            conflict: false,
            problem,
        });
    }

    fn add_trouble(&mut self, trouble: LedgerTrouble) {
        if self.troubles.len() < TROUBLES && !self.troubles.contains(&trouble) {
            self.troubles.push(trouble);
        }
    }

    fn take(&mut self, found: FoundLine<'_>) -> Result<(), Failed> {
        match found {
            FoundLine::Marker => {
                let problem = "a merge left conflict markers; both sides were taken".to_owned();
                let file = self.file.to_owned();
                self.add_trouble(LedgerTrouble { file, at: 0, line: 0, issue: None, conflict: true, problem });
            }
            FoundLine::Bad(Bad { at, reason, start, .. }) => self.trouble(at, format!("{reason}: {start}")),
            FoundLine::Text { at, text } => self.take_line(at, text)?,
        }
        Ok(())
    }

    fn take_line(&mut self, at: u64, text: &str) -> Result<(), Error> {
        // An untouched line that stands there once is what it is.
        if line::untouched(text)
            && let Ok(issue) = serde_json::from_str::<Issue>(text)
            && line::is_id(&issue.id)
            && !self.seen.contains(&issue.id)
            && !self.several.contains_key(&issue.id)
            && let Some(newest) = line::newest(text)
        {
            let known = if self.blank { None } else { self.index.line(self.ledger, &issue.id)? };
            if !known.as_ref().is_some_and(|known| self.tail || known.file != self.file) {
                self.newest = self.newest.max(newest);
                self.seen.insert(issue.id.clone());
                if self.blank {
                    self.changed.insert(issue.id.clone());
                    self.plan.put_row(self.index, self.ledger, self.file, (&issue, text), true)?;
                } else if known.is_none_or(|known| known.line != text) {
                    self.put(&issue, text)?;
                }
                return Ok(());
            }
        }
        match line::read(text) {
            Ok(line) => {
                for (field, problem) in &line.broken {
                    self.trouble(at, format!("`{field}` of {} {problem}", line.record.id()));
                }
                self.several.entry(line.record.id().to_owned()).or_insert_with(|| (at, Lines::default())).1.add(line);
            }
            Err(error) => self.trouble(at, format!("{error}: {}", text.chars().take(80).collect::<String>())),
        }
        Ok(())
    }

    /// After reading: writes the merged lines of each issue.
    fn finish(&mut self) -> Result<(), Error> {
        for (id, (at, mut lines)) in std::mem::take(&mut self.several) {
            let known = self.index.line(self.ledger, &id)?;
            let elsewhere = known.as_ref().is_some_and(|known| known.file != self.file);
            let again = !self.seen.insert(id.clone()) || self.tail || elsewhere;
            let before = known.as_ref().and_then(|known| line::read(&known.line).ok()).map(|known| known.record);
            if again && let Some(before) = &before {
                lines.add_record(before.clone());
            }
            let Some(record) = lines.resolve(before.as_ref()) else { continue };
            self.newest = self.newest.max(record.newest());
            let line = line::write(&record);
            match Issue::read(&line) {
                Ok((issue, wrong)) => {
                    self.troubles.retain(|trouble| trouble.issue.as_ref() != Some(&id));
                    for (field, problem) in wrong {
                        let (file, problem) = (self.file.to_owned(), format!("`{field}` of {id}: {problem}"));
                        let issue = Some(id.clone());
                        self.add_trouble(LedgerTrouble { file, at, line: 0, issue, conflict: false, problem });
                    }
                    if known.is_none_or(|known| known.line != line || known.file != self.file) {
                        self.put(&issue, &line)?;
                    }
                }
                Err(error) => self.trouble(at, format!("{id}: {error}")),
            }
        }
        Ok(())
    }

    fn put(&mut self, issue: &Issue, line: &str) -> Result<(), Error> {
        if self.changed.insert(issue.id.clone()) {
            self.index.around(&issue.id, &mut self.around_before)?;
        }
        self.plan.put_row(self.index, self.ledger, self.file, (issue, line), false)
    }

    /// Removes issues from the index that are no longer in the file.
    fn drop_unseen(&mut self) -> Result<bool, Error> {
        let mut dropped = false;
        for id in self.index.ids_of(self.ledger, self.file)? {
            if !self.seen.contains(&id) {
                self.index.around(&id, &mut self.around_before)?;
                self.index.drop_issue(self.ledger, &id)?;
                if self.plan.layer().is_some_and(|layer| layer.name == self.ledger) {
                    self.plan.lay_again(self.index, &id)?;
                }
                self.changed.insert(id);
                dropped = true;
            }
        }
        Ok(dropped)
    }

    fn settle(self) -> Result<(), Error> {
        Ok(self.index.settle(&self.changed, &self.around_before)?)
    }
}
