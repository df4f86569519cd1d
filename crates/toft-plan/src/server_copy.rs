//! The copy of the repository's own ledger on a toft server: every clone adds what it writes, and reads what others wrote.
//!
//! Only a ledger beside the repository is exchanged, and only by those who keep it: a file in a working tree is its user's, and
//! the plan of a contributor is private.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use toft_core::{
    id::RepositoryId,
    issue::outgoing::{Doubt, Finding},
    store::{Access, StoreError},
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
const ROUNDS: usize = 10;
/// A copy in this many pieces is replaced by one.
const MANY: usize = 100;
/// Parts in which a copy is read, at most: a server that goes on and on is not listened to.
const PARTS: usize = 200;

/// What was exchanged last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct CopyMemo {
    /// The server, and the repository there.
    of: String,
    /// How far the server's copy was read.
    end: String,
    /// The file of issues as far as it was exchanged: its length, the digest of that, and when it was written.
    length: u64,
    digest: String,
    written: i64,
    /// Issues that the server does not have: something in them looks like a secret, or they were deleted before they were sent.
    unsent: BTreeSet<String>,
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

/// What a server has that this clone has not read.
struct ReadCopy {
    text: Vec<u8>,
    end: LedgerEnd,
    /// It has less than it had: it was restored from a backup.
    is_older: bool,
}

/// What was just read of a server's copy.
#[derive(Default)]
struct Received {
    issues: HashSet<String>,
    lines: HashSet<String>,
}

/// Lines to send, by issue.
type Outgoing = BTreeMap<String, Vec<String>>;

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

    /// Whether the ledger was written since it was exchanged.
    fn has_news(&self) -> bool {
        let Some((ledger, repository)) = self.copied_ledger() else { return false };
        self.session.may_read_ledger(repository, Duration::ZERO)
            && FileStamp::at(&ledger.issues()).ok().flatten().is_some_and(|stamp| {
                self.copied()
                    .is_some_and(|Copied { memo, .. }| (memo.length, memo.written) != (stamp.size, stamp.written))
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
        let path = copied.ledger.issues();
        let mut file = ExchangedFile::read(&path, &copied.memo)?;
        let mut known = file.begins_with(&copied.memo);
        if !known {
            // It was put in order, or another one was put in its place: what it lacks may be there.
            copied.memo.end = String::new();
        }
        // It keeps none, or not for this token.
        let Some(read) = self.read_copy(copied, copied.memo.end.parse().unwrap_or_default())? else { return Ok(true) };
        let mut received = Received::default();
        if !read.text.is_empty() {
            let lines = read.text.split(|byte| *byte == b'\n');
            received.lines = lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect();
            let files = Files::from([(ISSUES.to_owned(), read.text)]);
            received.issues = lines_of(&files)?.into_keys().collect();
            self.take_in(copied.ledger, &files, false)?;
        }
        copied.memo.end = read.end.to_string();
        let before = file.length;
        if !received.issues.is_empty() {
            file = ExchangedFile::read(&path, &copied.memo)?;
            // Another process may have put it in order meanwhile.
            known &= file.begins_with(&copied.memo);
        }
        let mut lines = match known && !read.is_older {
            true => self.written_since(copied, before, &file, &received)?,
            false => self.beyond_copy(copied)?,
        };
        self.hold_secrets(copied, &mut lines);
        lines.retain(|_, lines| !lines.is_empty());
        let (issues, text): (Vec<String>, Vec<String>) =
            lines.into_iter().map(|(id, lines)| (id, lines.join("\n") + "\n")).unzip();
        let (text, mut done, mut replace) = (text.concat(), true, false);
        if !text.is_empty() {
            let end = copied.memo.end.parse().unwrap_or_default();
            let sent = self.session.add_to_ledger(copied.repository, end, text.as_bytes(), false)?;
            let Some(sent) = sent else { return Ok(true) };
            done = sent.added;
            // One that ended, and has no next one, is replaced by who has read it.
            replace = sent.over || sent.added && sent.pieces >= MANY;
            if sent.added {
                copied.memo.end = sent.end;
            }
        }
        if replace && !done {
            done = self.replace_copy(copied)?;
            replace = false;
        }
        if done {
            copied.memo.unsent.retain(|issue| !issues.contains(issue));
            if let Some(text) = &file.text {
                (copied.memo.length, copied.memo.written) = (file.length, file.written);
                copied.memo.digest = blake3::hash(text).to_hex().to_string();
            }
            self.keep_memo(copied)?;
        }
        if replace {
            self.replace_copy(copied)?;
        }
        Ok(done)
    }

    /// What the server's copy has after `after`; nothing if it keeps none.
    fn read_copy(&self, copied: &Copied<'_>, after: LedgerEnd) -> Result<Option<ReadCopy>, Error> {
        let mut read = ReadCopy { text: Vec::new(), end: after, is_older: false };
        for _ in 0..PARTS {
            let Some(part) = self.session.load_ledger(copied.repository, read.end)? else { return Ok(None) };
            if part.end < read.end || part.end.generation != read.end.generation {
                // All of it is read again.
                read.is_older |= part.end < read.end;
                read.text.clear();
            }
            let more = part.end != read.end;
            read.text.extend(part.text);
            read.end = part.end;
            if !more {
                return Ok(Some(read));
            }
        }
        let cause = "it has no end".to_owned();
        Err(StoreError::Failed { doing: "read the server's copy of the ledger".into(), cause }.into())
    }

    /// Everything that the server's copy has.
    fn whole_copy(&self, copied: &Copied<'_>) -> Result<BTreeMap<String, Record>, Error> {
        records(&Files::from([(ISSUES.to_owned(), self.whole_text(copied)?)]))
    }

    fn whole_text(&self, copied: &Copied<'_>) -> Result<Vec<u8>, Error> {
        Ok(self.read_copy(copied, LedgerEnd::default())?.map(|read| read.text).unwrap_or_default())
    }

    /// The lines that were added to the file since it was exchanged, and issues that may be sent now. What stands behind `before`
    /// may be what was just received.
    fn written_since(
        &self,
        copied: &mut Copied<'_>,
        before: u64,
        file: &ExchangedFile,
        received: &Received,
    ) -> Result<Outgoing, Error> {
        let (mut lines, own) = (Outgoing::new(), self.replica()?);
        let mut at = copied.memo.length;
        let tail = file.text.as_deref().and_then(|text| text.get(usize::try_from(at).ok()?..)).unwrap_or_default();
        for written in tail.split_inclusive(|byte| *byte == b'\n') {
            let new = at >= before;
            at += written.len() as u64;
            let Some((Line { record, .. }, text)) = readable(written) else { continue };
            let ours = || record.registers().values().any(|register| register.clock.replica == own);
            // Its answer was lost.
            if received.lines.contains(&text) {
                continue;
            }
            if !new || !received.issues.contains(record.id()) || ours() {
                lines.entry(record.id().to_owned()).or_default().push(text);
            }
        }
        for id in &copied.memo.unsent {
            lines.entry(id.clone()).or_default();
        }
        if lines.is_empty() {
            return Ok(lines);
        }
        self.refresh()?;
        let (index, mut theirs) = (self.index(Access::Read)?, None);
        for (id, lines) in &mut lines {
            let Some(row) = index.line(&copied.ledger.name, id)? else { continue };
            let (purged, unsent, new) = (row.line.contains(MARK), copied.memo.unsent.contains(id), !lines.is_empty());
            let deleted = row.issue()?.deleted.is_some() && !purged;
            if deleted && new && theirs.is_none() {
                theirs = Some(self.whole_copy(copied)?);
            }
            let there = received.issues.contains(id) || theirs.as_ref().is_some_and(|theirs| theirs.contains_key(id));
            if deleted && !there {
                // What was written and deleted before others had it leaves no trace there.
                lines.clear();
                copied.memo.unsent.insert(id.clone());
            } else if purged || unsent && !(deleted && new) {
                // Nothing but the tombstone is left of it; or the server has nothing that a part would complete.
                *lines = vec![row.line];
            }
        }
        Ok(lines)
    }

    /// The parts of all issues that the server's copy does not have.
    fn beyond_copy(&self, copied: &mut Copied<'_>) -> Result<Outgoing, Error> {
        let theirs = self.whole_copy(copied)?;
        let mut lines = Outgoing::new();
        for (id, ours) in records(&exchange::read_files(&copied.ledger.dir)?)? {
            let new = match theirs.get(&id) {
                Some(theirs) => {
                    let mut both = theirs.clone();
                    both.merge(ours.clone());
                    if both == *theirs { Vec::new() } else { line::write_new(&both, theirs) }
                }
                None if is_private_tombstone(&ours) => {
                    copied.memo.unsent.insert(id.clone());
                    Vec::new()
                }
                None => line::write_all(&ours),
            };
            if !new.is_empty() {
                lines.insert(id, new);
            }
        }
        Ok(lines)
    }

    /// Leaves out issues in which something looks like a secret.
    fn hold_secrets(&self, copied: &mut Copied<'_>, lines: &mut Outgoing) {
        for Finding { id, issue, .. } in self.secrets_in(lines) {
            lines.remove(&issue);
            if copied.memo.unsent.insert(issue.clone()) {
                self.session.note(format!(
                    "{issue} is not sent to the server: something in it looks like a secret; if it is none: toft sync --allow {id}"
                ));
            }
        }
    }

    fn secrets_in(&self, lines: &Outgoing) -> Vec<Finding> {
        let each = lines.iter().flat_map(|(id, lines)| lines.iter().map(move |line| (id.as_str(), line.as_str())));
        let secret = |doubt: Doubt| if let Doubt::Secret(finding) = doubt { Some(finding) } else { None };
        self.doubts(each).into_iter().filter_map(secret).collect()
    }

    /// Replaces the server's copy by what is here, which has all of it; returns whether nobody was faster. What the server does
    /// not have and must not get stays here, and what it has stays there.
    fn replace_copy(&self, copied: &mut Copied<'_>) -> Result<bool, Error> {
        let text = self.whole_text(copied)?;
        let theirs = records(&Files::from([(ISSUES.to_owned(), text.clone())]))?;
        let all = records(&exchange::read_files(&copied.ledger.dir)?)?;
        let sent = |(id, ours): &(&String, &Record)| theirs.contains_key(*id) || !is_private_tombstone(ours);
        let mut lines: Outgoing =
            all.iter().filter(sent).map(|(id, ours)| (id.clone(), line::write_all(ours))).collect();
        for Finding { issue, .. } in self.secrets_in(&lines) {
            match theirs.get(&issue) {
                Some(theirs) => drop(lines.insert(issue, line::write_all(theirs))),
                None => {
                    lines.remove(&issue);
                    copied.memo.unsent.insert(issue);
                }
            }
        }
        for (id, theirs) in theirs {
            lines.entry(id).or_insert_with(|| line::write_all(&theirs));
        }
        // What this toft does not understand another one may; but nothing stays of what was purged.
        let purged: Vec<&String> =
            all.iter().filter(|(_, ours)| ours.field("purged").is_some()).map(|(id, _)| id).collect();
        let odd = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && readable(line).is_none());
        let odd = odd
            .filter_map(|line| std::str::from_utf8(line).ok())
            .filter(|line| !purged.iter().any(|id| line.contains(*id)));
        lines.insert(String::new(), odd.map(str::to_owned).collect());
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
            let Some(read) = self.read_copy(&copied, copied.memo.end.parse().unwrap_or_default())? else {
                return Ok(None);
            };
            let files = Files::from([(ISSUES.to_owned(), read.text)]);
            self.take_in(ledger, &files, false)?;
            copied.memo.end = read.end.to_string();
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

/// The file of issues, as it is now.
struct ExchangedFile {
    /// Nothing if it is as it was exchanged.
    text: Option<Vec<u8>>,
    length: u64,
    written: i64,
}

impl ExchangedFile {
    fn read(path: &Path, memo: &CopyMemo) -> Result<Self, Error> {
        let stamp = FileStamp::at(path).map_err(io("read", path))?;
        // What is written meanwhile is read the next time.
        let (length, written) = stamp.map_or((0, 0), |stamp| (stamp.size, stamp.written));
        if (length, written) == (memo.length, memo.written) && !memo.digest.is_empty() {
            return Ok(Self { text: None, length, written });
        }
        match fs::read(path) {
            Ok(mut text) => {
                // A line that is written right now is read the next time.
                text.truncate(text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
                Ok(Self { length: text.len() as u64, text: Some(text), written })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Self { text: Some(Vec::new()), length: 0, written })
            }
            Err(error) => Err(io("read", path)(error)),
        }
    }

    /// Whether what was exchanged is still there, at its beginning.
    fn begins_with(&self, memo: &CopyMemo) -> bool {
        let Some(text) = &self.text else { return true };
        let exchanged = usize::try_from(memo.length).ok().and_then(|length| text.get(..length));
        exchanged.is_some_and(|text| blake3::hash(text).to_hex().as_str() == memo.digest)
    }
}

/// A line that toft wrote, and its text.
fn readable(bytes: &[u8]) -> Option<(Line, String)> {
    let text = std::str::from_utf8(bytes).ok()?.trim_end();
    let line = line::read(text).ok().filter(|line| line.made == LineOrigin::Written && line.broken.is_empty())?;
    Some((line, text.to_owned()))
}

/// Whether an issue was deleted; of a purged one there is nothing left to hide.
fn is_private_tombstone(record: &Record) -> bool {
    record.field("deleted").is_some() && record.field("purged").is_none()
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
