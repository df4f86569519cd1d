//! The copy of the repository's own ledger on a toft server: every clone adds what it writes, and reads what others wrote.
//!
//! Only a ledger beside the repository is exchanged, and only by those who keep it: a file in a working tree is its user's, and
//! the plan of a contributor is private.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use toft_core::{
    id::RepositoryId,
    issue::outgoing::{Doubt, Finding},
    store::Access,
    wire::LedgerEnd,
};
use toft_ledger::{
    file::{FileStamp, LedgerLock},
    line::{self, Line, LineOrigin},
    record::Record,
};
use toft_session::error::{Error, io};
use toft_vcs::exchange::{self, Files};

use super::{Ledger, LedgerKind, Plan, copy::lines_of, place::ISSUES, purge::MARK};

/// What was read so short a time ago is not read again.
const FRESH: Duration = Duration::from_secs(1);
/// How often lines are sent again because another clone was faster.
const ROUNDS: usize = 20;
/// A copy in this many pieces is replaced by one.
const MANY: usize = 100;

/// What was exchanged last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct CopyMemo {
    /// The server, and the repository there.
    of: String,
    /// How far the server's copy was read.
    end: String,
    /// The file of issues as far as it was sent: its identity and its length.
    identity: (u64, u64),
    sent: u64,
    /// Issues that were not sent, because something in them looks like a secret.
    held: BTreeSet<String>,
}

/// A ledger and its copy.
struct Copied<'p> {
    ledger: &'p Ledger,
    repository: &'p RepositoryId,
    memo: CopyMemo,
    /// As it is written.
    kept: CopyMemo,
    path: PathBuf,
}

impl Plan<'_> {
    /// Exchanges the repository's own ledger with the server of this session. What does not work now is said, and done the
    /// next time.
    pub fn follow_server(&self) {
        self.exchange_with_server(FRESH).unwrap_or_else(|error| {
            self.session.note(format!("issues were not exchanged with the server: {error}"));
        });
    }

    /// Sends what was written, however short ago the copy was read.
    pub fn tell_server(&self) {
        if self.has_news() {
            self.exchange_with_server(Duration::ZERO).unwrap_or_else(|error| {
                self.session.note(format!("issues were not exchanged with the server: {error}"));
            });
        }
    }

    /// The ledger that is exchanged, and its repository.
    fn copied_ledger(&self) -> Option<(&Ledger, &RepositoryId)> {
        let repository = self.session.located().repository.as_ref()?;
        let own = |ledger: &&Ledger| {
            let here = ledger.of.is_none() && ledger.elsewhere.is_none() && ledger.url.is_none();
            ledger.place == LedgerKind::Branch && here && !ledger.read_only && !ledger.kept_by_others
        };
        let ledger = self.ledgers.iter().find(own).filter(|_| !self.contributor && self.aside.is_none())?;
        Some((ledger, repository))
    }

    /// The server that a ledger is exchanged with.
    pub(super) fn server_of(&self, ledger: &Ledger) -> Option<String> {
        let (own, repository) = self.copied_ledger()?;
        let exchanged = own.name == ledger.name && self.session.may_read_ledger(repository, Duration::ZERO);
        exchanged.then(|| self.session.located().store.to_string())
    }

    fn copied(&self) -> Option<Copied<'_>> {
        let (ledger, repository) = self.copied_ledger()?;
        let path = ledger.lock.with_extension("server.json");
        let of = format!("{} {repository}", self.session.located().store);
        let memo: Option<CopyMemo> = fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
        let memo = memo.filter(|memo| memo.of == of).unwrap_or_else(|| CopyMemo { of, ..CopyMemo::default() });
        Some(Copied { ledger, repository, kept: memo.clone(), memo, path })
    }

    /// Whether the ledger has lines that were not sent.
    fn has_news(&self) -> bool {
        let Some((_, repository)) = self.copied_ledger() else { return false };
        self.session.may_read_ledger(repository, Duration::ZERO)
            && self.copied().is_some_and(|copied| {
                let stamp = FileStamp::at(&copied.ledger.issues()).ok().flatten();
                stamp.is_some_and(|stamp| stamp.identity != copied.memo.identity || stamp.size != copied.memo.sent)
            })
    }

    fn exchange_with_server(&self, age: Duration) -> Result<(), Error> {
        let Some((ledger, repository)) = self.copied_ledger() else { return Ok(()) };
        if !self.session.may_read_ledger(repository, age) {
            return Ok(());
        }
        // Another process does it already.
        let lock = ledger.lock.with_extension("server.lock");
        let patience = if age.is_zero() { FRESH } else { Duration::ZERO };
        let Some(_turn) = LedgerLock::take_within(&lock, patience).map_err(io("lock", &lock))? else { return Ok(()) };
        let Some(mut copied) = self.copied() else { return Ok(()) };
        for _ in 0..ROUNDS {
            if self.exchange_once(&mut copied)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads, then sends; false if another clone added something meanwhile.
    fn exchange_once(&self, copied: &mut Copied<'_>) -> Result<bool, Error> {
        let issues = copied.ledger.issues();
        let before = FileStamp::at(&issues).map_err(io("read", &issues))?;
        // It keeps none, or not for this token.
        let Some(received) = self.receive(copied)? else { return Ok(true) };
        let Some(stamp) = FileStamp::at(&issues).map_err(io("read", &issues))? else { return Ok(true) };
        let grown = stamp.identity == copied.memo.identity && stamp.size >= copied.memo.sent;
        let mut lines = match grown {
            true => self.written_since(copied, before.map_or(0, |before| before.size), &stamp, &received)?,
            false => self.beyond_copy(copied)?,
        };
        self.hold_secrets(copied, &mut lines);
        let text: String = lines.into_values().flatten().map(|line| line + "\n").collect();
        let (end, mut done, mut pieces) = (copied.memo.end.parse().unwrap_or_default(), true, 0);
        if !text.is_empty() {
            let Some(sent) = self.session.add_to_ledger(copied.repository, end, text.as_bytes(), false)? else {
                return Ok(true);
            };
            if sent.added {
                copied.memo.end = sent.end;
                pieces = sent.pieces;
            }
            done = sent.added;
        }
        if done {
            (copied.memo.identity, copied.memo.sent) = (stamp.identity, stamp.size);
            self.keep_memo(copied)?;
        }
        if pieces >= MANY {
            self.replace_copy(copied)?;
        }
        Ok(done)
    }

    /// Takes in what the server has and this clone has not read; returns the issues.
    fn receive(&self, copied: &mut Copied<'_>) -> Result<Option<HashSet<String>>, Error> {
        let mut received = HashSet::new();
        loop {
            let after: LedgerEnd = copied.memo.end.parse().unwrap_or_default();
            let Some(part) = self.session.load_ledger(copied.repository, after)? else { return Ok(None) };
            if !part.text.is_empty() {
                let files = Files::from([(ISSUES.to_owned(), part.text)]);
                received.extend(lines_of(&files)?.into_keys());
                self.take_in(copied.ledger, &files, false)?;
            }
            let more = part.end != after;
            copied.memo.end = part.end.to_string();
            if !more {
                return Ok(Some(received));
            }
        }
    }

    /// The lines that were added to the file since it was sent. What stands behind `before` may be what was just received.
    fn written_since(
        &self,
        copied: &Copied<'_>,
        before: u64,
        stamp: &FileStamp,
        received: &HashSet<String>,
    ) -> Result<BTreeMap<String, Vec<String>>, Error> {
        let (mut lines, path) = (BTreeMap::<String, Vec<String>>::new(), copied.ledger.issues());
        if stamp.size == copied.memo.sent && copied.memo.held.is_empty() {
            return Ok(lines);
        }
        let mut text = String::new();
        let read = File::open(&path).and_then(|mut file| {
            file.seek(SeekFrom::Start(copied.memo.sent))?;
            file.take(stamp.size - copied.memo.sent).read_to_string(&mut text)
        });
        read.map_err(io("read", &path))?;
        let (own, mut at) = (self.replica()?, copied.memo.sent);
        for written in text.split_inclusive('\n') {
            let known = at >= before;
            at += written.len() as u64;
            let Some(Line { record, .. }) = readable(written) else { continue };
            let ours = || record.registers().values().any(|register| register.clock.replica == own);
            if !known || !received.contains(record.id()) || ours() {
                lines.entry(record.id().to_owned()).or_default().push(written.trim_end().to_owned());
            }
        }
        for id in &copied.memo.held {
            lines.entry(id.clone()).or_default();
        }
        self.refresh()?;
        let index = self.index(Access::Read)?;
        let mut theirs = None;
        for (id, lines) in &mut lines {
            let Some(row) = index.line(&copied.ledger.name, id)? else { continue };
            let purged = row.line.contains(MARK);
            if purged || lines.is_empty() {
                // Nothing but the tombstone is left of it; or it was held back as a whole.
                *lines = vec![row.line];
            } else if row.issue()?.deleted.is_some() {
                // What was written and deleted before others had it leaves no trace there.
                let there = match &theirs {
                    Some(there) => there,
                    None => theirs.insert(self.whole_copy(copied)?.into_keys().collect::<HashSet<_>>()),
                };
                if !there.contains(id) {
                    lines.clear();
                }
            }
        }
        Ok(lines)
    }

    /// The parts of all issues that the server's copy does not have.
    fn beyond_copy(&self, copied: &Copied<'_>) -> Result<BTreeMap<String, Vec<String>>, Error> {
        let theirs = self.whole_copy(copied)?;
        let mut lines = BTreeMap::new();
        for (id, ours) in records(&exchange::read_files(&copied.ledger.dir)?)? {
            let new = match theirs.get(&id) {
                Some(theirs) => {
                    let mut both = theirs.clone();
                    both.merge(ours.clone());
                    if both == *theirs { Vec::new() } else { line::write_new(&both, theirs) }
                }
                None if ours.field("deleted").is_some() => Vec::new(),
                None => line::write_all(&ours),
            };
            if !new.is_empty() {
                lines.insert(id, new);
            }
        }
        Ok(lines)
    }

    /// Everything that the server's copy has.
    fn whole_copy(&self, copied: &Copied<'_>) -> Result<BTreeMap<String, Record>, Error> {
        let (mut text, mut after) = (Vec::new(), LedgerEnd::default());
        while let Some(part) = self.session.load_ledger(copied.repository, after)? {
            let more = part.end != after;
            if part.end.generation != after.generation {
                text.clear();
            }
            text.extend(part.text);
            after = part.end;
            if !more {
                break;
            }
        }
        records(&Files::from([(ISSUES.to_owned(), text)]))
    }

    /// Leaves out issues in which something looks like a secret.
    fn hold_secrets(&self, copied: &mut Copied<'_>, lines: &mut BTreeMap<String, Vec<String>>) {
        let each = lines.iter().flat_map(|(id, lines)| lines.iter().map(move |line| (id.as_str(), line.as_str())));
        let doubts = self.doubts(each);
        let secret = |doubt: Doubt| if let Doubt::Secret(finding) = doubt { Some(finding) } else { None };
        let known = std::mem::take(&mut copied.memo.held);
        for Finding { id, issue, .. } in doubts.into_iter().filter_map(secret) {
            if !known.contains(&issue) {
                self.session.note(format!(
                    "{issue} is not sent to the server: something in it looks like a secret; if it is none: toft sync --allow {id}"
                ));
            }
            lines.remove(&issue);
            copied.memo.held.insert(issue);
        }
    }

    /// Replaces the server's copy by what is here, which has all of it; returns whether nobody was faster.
    fn replace_copy(&self, copied: &mut Copied<'_>) -> Result<bool, Error> {
        let mut lines: BTreeMap<String, Vec<String>> = records(&exchange::read_files(&copied.ledger.dir)?)?
            .into_iter()
            .map(|(id, record)| (id, line::write_all(&record)))
            .collect();
        self.hold_secrets(copied, &mut lines);
        let text: String = lines.into_values().flatten().map(|line| line + "\n").collect();
        let end = copied.memo.end.parse().unwrap_or_default();
        let sent = self.session.add_to_ledger(copied.repository, end, text.as_bytes(), true)?;
        let Some(sent) = sent.filter(|sent| sent.added) else { return Ok(false) };
        copied.memo.end = sent.end;
        self.keep_memo(copied)?;
        Ok(true)
    }

    /// Removes from the server's copy what this ledger no longer has; returns whether it is gone there, or `None` without a copy.
    pub(super) fn purge_copy(&self, ledger: &Ledger) -> Result<Option<bool>, Error> {
        if self.server_of(ledger).is_none() {
            return Ok(None);
        }
        let lock = ledger.lock.with_extension("server.lock");
        let _turn = LedgerLock::take(&lock).map_err(io("lock", &lock))?;
        let Some(mut copied) = self.copied() else { return Ok(None) };
        for _ in 0..ROUNDS {
            if self.receive(&mut copied)?.is_none() {
                return Ok(None);
            }
            if self.replace_copy(&mut copied)? {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    fn keep_memo(&self, copied: &mut Copied<'_>) -> Result<(), Error> {
        if copied.memo == copied.kept {
            return Ok(());
        }
        let text = serde_json::to_string(&copied.memo).unwrap_or_default();
        let draft = copied.path.with_extension("new");
        let kept = toft_store::private::write(&draft, text).and_then(|()| fs::rename(&draft, &copied.path));
        kept.map_err(io("write", &copied.path))?;
        copied.kept = copied.memo.clone();
        Ok(())
    }
}

/// A line that toft wrote.
fn readable(text: &str) -> Option<Line> {
    line::read(text.trim_end()).ok().filter(|line| line.made == LineOrigin::Written && line.broken.is_empty())
}

/// The issues of a ledger's files, merged.
fn records(files: &Files) -> Result<BTreeMap<String, Record>, Error> {
    let mut records = BTreeMap::<String, Record>::new();
    for (id, lines) in lines_of(files)? {
        for line in lines.into_iter().filter(|line| line.made == LineOrigin::Written) {
            match records.get_mut(&id) {
                Some(known) => known.merge(line.record),
                None => drop(records.insert(id.clone(), line.record)),
            }
        }
    }
    Ok(records)
}
