//! Brings the index up to the files: nothing where nothing changed, the tail where something was appended, else all.

use std::{
    collections::{BTreeSet, HashSet},
    fs::File,
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};
use toft_core::{issue::Issue, store::Access};
use toft_ledger::{
    clock::Clock,
    file::{Bad, Found, Look, scan},
    line,
};
use toft_store::sqlite::index::{FileState, IndexTx};

use super::{Ledger, Plan, place::ISSUES};
use crate::error::{Error, io};

/// A file that changed less long before it was looked at may have changed again in the same tick of its clock.
const FINE_TICK: i64 = 10_000_000;
const COARSE_TICK: i64 = 2_000_000_000;
/// How much before a tail must be what it was.
const BEFORE: u64 = 4096;
/// How many troubles of a file are remembered.
const TROUBLES: usize = 100;

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// What is new in it.
    New,
    /// The same, right after it was written here.
    Own,
    /// All of it.
    All,
}

/// Something in a ledger that is not as it should be. Nothing is lost by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Which file.
    pub file: String,
    /// Where in it.
    pub at: u64,
    /// What.
    pub problem: String,
}

impl Plan<'_> {
    /// Brings the index up to every ledger seen from here.
    pub(super) fn refresh(&self) -> Result<(), Error> {
        self.forget_unseen()?;
        for ledger in &self.ledgers {
            let mut files = ledger.files()?;
            let index = self.index(Access::Read)?;
            files.extend(index.files()?.into_iter().filter(|(of, _)| *of == ledger.name).map(|(_, file)| file));
            files.sort();
            files.dedup();
            let mut stale = Vec::new();
            let mut rest = Vec::new();
            for file in files {
                let look = Look::at(&ledger.dir.join(&file)).map_err(io("read", &ledger.dir))?;
                let known = index.file(&ledger.name, &file)?;
                if fresh(known.as_ref(), look.as_ref()) { rest.push(file) } else { stale.push(file) }
            }
            drop(index);
            if stale.is_empty() {
                continue;
            }
            let index = self.index(Access::Write)?;
            let mut dropped = false;
            for file in stale {
                dropped |= self.ingest(&index, ledger, &file, How::New)?;
            }
            // What one file no longer says another may.
            for file in rest.iter().filter(|_| dropped) {
                self.ingest(&index, ledger, file, How::All)?;
            }
            index.commit()?;
        }
        Ok(())
    }

    /// Drops what ledgers said that are no longer seen from here.
    fn forget_unseen(&self) -> Result<(), Error> {
        let seen = |name: &str| self.ledgers.iter().any(|ledger| ledger.name == name);
        let unseen = |index: &IndexTx<'_>| -> Result<Vec<(String, String)>, Error> {
            Ok(index.files()?.into_iter().filter(|(ledger, _)| !seen(ledger)).collect())
        };
        if unseen(&self.index(Access::Read)?)?.is_empty() {
            return Ok(());
        }
        let index = self.index(Access::Write)?;
        let (mut changed, mut around) = (BTreeSet::new(), BTreeSet::new());
        for (ledger, file) in unseen(&index)? {
            for id in index.ids_of(&ledger, &file)? {
                around.extend(index.around(&id)?);
                index.drop_issue(&ledger, &id)?;
                changed.insert(id);
            }
            index.drop_file(&ledger, &file)?;
        }
        index.settle(&changed, &around)?;
        Ok(index.commit()?)
    }

    /// Takes in what was just appended to a ledger.
    pub(super) fn follow(&self, ledger: &Ledger) -> Result<(), Error> {
        let index = self.index(Access::Write)?;
        self.ingest(&index, ledger, ISSUES, How::Own)?;
        Ok(index.commit()?)
    }

    /// Reads what is new in a file; says whether issues are no longer in it.
    fn ingest(&self, index: &IndexTx<'_>, ledger: &Ledger, file: &str, how: How) -> Result<bool, Error> {
        let path = ledger.dir.join(file);
        let known = index.file(&ledger.name, file)?;
        let mut open = match File::open(&path) {
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
        let look = Look::of(&open.metadata().map_err(io("read", &path))?);
        let tail = known.as_ref().filter(|known| {
            how != How::All
                && known.identity == look.identity
                && known.ingested <= look.size
                && known.size < look.size
                && before(&mut open, known.ingested).is_ok_and(|print| print == known.tail)
        });
        let newest = known.as_ref().and_then(|known| known.newest.parse().ok()).unwrap_or_default();
        let mut reading = Reading::new(index, ledger, file, newest, self);
        let from = tail.map_or(0, |tail| tail.ingested);
        reading.blank = index.is_blank(&ledger.name)?;
        if let Some(tail) = tail {
            reading.tail = true;
            reading.troubles = serde_json::from_str(&tail.troubles).unwrap_or_default();
        }
        let ingested = scan(&mut open, from, |found| reading.take(found)).map_err(|error| error.at(&path))?;
        let dropped = tail.is_none() && reading.drop_unseen()?;
        let state = FileState {
            identity: look.identity,
            size: look.size,
            written: look.written,
            // Nobody else of us writes while we hold the turn.
            looked: if how == How::Own { i64::MAX } else { now_nanos() },
            ingested,
            tail: before(&mut open, ingested).map_err(io("read", &path))?,
            newest: reading.newest.to_string(),
            troubles: serde_json::to_string(&reading.troubles).unwrap_or_default(),
        };
        index.put_file(&ledger.name, file, &state)?;
        reading.settle()?;
        Ok(dropped)
    }

    /// What is not as it should be in the ledgers seen from here.
    pub fn troubles(&self) -> Result<Vec<Trouble>, Error> {
        let index = self.look()?;
        let mut troubles = Vec::new();
        for (ledger, file) in index.files()? {
            let state = index.file(&ledger, &file)?.unwrap_or_default();
            troubles.extend(serde_json::from_str::<Vec<Trouble>>(&state.troubles).unwrap_or_default());
        }
        Ok(troubles)
    }
}

/// Is what is remembered of a file all there is to know of it?
fn fresh(known: Option<&FileState>, look: Option<&Look>) -> bool {
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

/// A print of what stands before a place in a file.
pub(super) fn before(file: &mut File, place: u64) -> std::io::Result<String> {
    let from = place.saturating_sub(BEFORE);
    let mut bytes = vec![0; (place - from) as usize];
    file.seek(SeekFrom::Start(from))?;
    file.read_exact(&mut bytes)?;
    Ok(blake3::hash(&bytes).to_hex()[..16].to_owned())
}

/// What can go wrong while reading.
pub(super) enum Failed {
    Io(std::io::Error),
    Other(Error),
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl<E: Into<Error>> From<E> for Failed {
    fn from(error: E) -> Self {
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

/// A file being read into the index.
struct Reading<'r> {
    index: &'r IndexTx<'r>,
    ledger: &'r str,
    file: &'r str,
    plan: &'r Plan<'r>,
    newest: Clock,
    /// Only what was appended is read: it adds to what is known.
    tail: bool,
    /// Nothing of this ledger is known.
    blank: bool,
    seen: HashSet<String>,
    changed: BTreeSet<String>,
    around_before: BTreeSet<String>,
    troubles: Vec<Trouble>,
}

impl<'r> Reading<'r> {
    fn new(index: &'r IndexTx<'r>, ledger: &'r Ledger, file: &'r str, newest: Clock, plan: &'r Plan<'r>) -> Self {
        Self {
            index,
            ledger: &ledger.name,
            file,
            plan,
            newest,
            tail: false,
            blank: false,
            seen: HashSet::new(),
            changed: BTreeSet::new(),
            around_before: BTreeSet::new(),
            troubles: Vec::new(),
        }
    }

    fn trouble(&mut self, at: u64, problem: String) {
        if self.troubles.len() < TROUBLES {
            self.troubles.push(Trouble { file: self.file.to_owned(), at, problem });
        }
    }

    fn take(&mut self, found: Found<'_>) -> Result<(), Failed> {
        match found {
            Found::Marker => {
                let problem = "a merge left conflict markers; both sides were taken";
                if !self.troubles.iter().any(|trouble| trouble.problem == problem) {
                    self.trouble(0, problem.into());
                }
            }
            Found::Bad(Bad { at, reason, start, .. }) => self.trouble(at, format!("{reason}: {start}")),
            Found::Text(text) => self.take_line(text)?,
        }
        Ok(())
    }

    fn take_line(&mut self, text: &str) -> Result<(), Error> {
        // An untouched line that stands there once is what it is.
        if line::untouched(text)
            && let Ok(issue) = serde_json::from_str::<Issue>(text)
            && !self.seen.contains(&issue.id)
            && let Some(newest) = line::newest(text)
        {
            let id = issue.id.clone();
            if self.blank {
                self.newest = self.newest.max(newest);
                self.index.put_new(self.ledger, self.file, &issue, text)?;
                self.changed.insert(id.clone());
                self.seen.insert(id);
                return Ok(());
            }
            let known = self.index.line(self.ledger, &id)?;
            if !known.as_ref().is_some_and(|known| self.tail || known.file != self.file) {
                self.seen.insert(id);
                self.newest = self.newest.max(newest);
                if known.is_none_or(|known| known.line != text) {
                    self.put(&issue, text)?;
                }
                return Ok(());
            }
        }
        self.merge_line(text)
    }

    /// A line somebody touched, or one of several for an issue.
    fn merge_line(&mut self, text: &str) -> Result<(), Error> {
        let read = match line::read(text) {
            Ok(read) => read,
            Err(error) => {
                self.trouble(0, format!("{error}: {}", text.chars().take(80).collect::<String>()));
                return Ok(());
            }
        };
        let id = read.record.id().to_owned();
        let known = self.index.line(self.ledger, &id)?;
        let before = known.as_ref().and_then(|known| line::read(&known.line).ok()).map(|known| known.record);
        let elsewhere = known.as_ref().is_some_and(|known| known.file != self.file);
        let again = !self.seen.insert(id) || self.tail || elsewhere;
        let mut record = match read.sound {
            true => read.record,
            false => {
                self.newest = Clock::after(self.newest, (now_nanos() / 1_000_000) as u64, self.plan.replica()?);
                read.record.adopted(before.as_ref(), self.newest)
            }
        };
        if again && let Some(before) = before {
            record.merge(before);
        }
        self.newest = self.newest.max(record.newest());
        let line = line::write(&record);
        let issue: Issue = match serde_json::from_str(&line) {
            Ok(issue) => issue,
            Err(error) => {
                self.trouble(0, format!("{error}: {}", text.chars().take(80).collect::<String>()));
                return Ok(());
            }
        };
        if known.is_none_or(|known| known.line != line || known.file != self.file) {
            self.put(&issue, &line)?;
        }
        Ok(())
    }

    fn put(&mut self, issue: &Issue, line: &str) -> Result<(), Error> {
        if self.changed.insert(issue.id.clone()) {
            self.around_before.extend(self.index.around(&issue.id)?);
        }
        self.index.put(self.ledger, self.file, issue, line)?;
        Ok(())
    }

    /// The index follows the file: what it no longer says is not there.
    fn drop_unseen(&mut self) -> Result<bool, Error> {
        let mut dropped = false;
        for id in self.index.ids_of(self.ledger, self.file)? {
            if !self.seen.contains(&id) {
                self.around_before.extend(self.index.around(&id)?);
                self.index.drop_issue(self.ledger, &id)?;
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
