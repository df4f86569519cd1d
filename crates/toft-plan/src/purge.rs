//! Removes an issue from a ledger's history: local files, recorded commits, and the remote's branch.
//!
//! A tombstone remains that only records the purge. It wins over every copy that other clones still have.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde::Serialize;
use serde_json::json;
use toft_core::{issue::edit::PURGED, refusal::Refusal, store::Access, time::Timestamp};
use toft_ledger::{
    file::LedgerLock,
    line,
    record::{Key, Record},
};
use toft_session::error::{Error, io};
use toft_vcs::exchange::{Branch, Contact, DirectoryExchange, Exchange, ExchangeError, History, Sent};

use super::{
    Ledger, LedgerKind, Plan,
    copy::new_text,
    place::ISSUES,
    sync::{own, refuse_foreign, repository_lock},
    synced::{SyncOptions, Synced},
    unshared::contains,
};

/// Identifies the line of a purged issue.
pub(super) const MARK: &str = "\"purged\":true";
/// How often a purge restarts because other clones pushed in the meantime.
const ROUNDS: usize = 8;
/// Maximum number of commits of a project that are counted.
const COUNTED: usize = 1_000;

/// An issue that was purged, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Purged {
    pub issue: String,
    pub ledger: String,
    /// The kind of the ledger.
    pub place: LedgerKind,
    /// The remote whose branch is rewritten.
    pub remote: Option<String>,
    /// Number of commits that contained it.
    pub commits: usize,
    /// The remote's branch no longer contains it.
    pub sent: bool,
    /// Other branches that still contain it.
    pub branches: Vec<String>,
    /// Other clones that wrote to this ledger; each has its own copy until its next sync.
    pub clones: Vec<OtherClone>,
    /// Steps that toft cannot do here.
    pub left: Vec<String>,
    /// The store, whose log has what was written.
    pub store: String,
}

/// Another clone, from the clocks of a ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherClone {
    /// Its replica name.
    pub replica: String,
    /// When it last wrote.
    pub last: Timestamp,
}

impl Plan<'_> {
    /// Removes an issue from its ledger's files and history. With `try_only`, only reports what would be done.
    pub fn purge(&self, text: &str, try_only: bool) -> Result<Purged, Error> {
        self.recall(text)?;
        let found = self.find(text)?;
        let (id, ledger) = (found.issue.id, self.called(&found.ledger)?);
        if ledger.kept_by_others {
            let (state, wanted) = ("in a ledger that others keep".into(), "ask them to purge it".into());
            return Err(Refusal::WrongState { id, state, wanted }.into());
        }
        ledger.check_writable()?;
        let mut purged = Purged {
            issue: id,
            ledger: ledger.name.clone(),
            place: ledger.place,
            remote: None,
            commits: 0,
            sent: false,
            branches: Vec::new(),
            clones: self.writers(ledger)?,
            store: self.session.located().store.to_string(),
            left: Vec::new(),
        };
        let around = match ledger.place {
            LedgerKind::Planning | LedgerKind::Shared => toft_vcs::find(&ledger.dir)?,
            LedgerKind::Branch | LedgerKind::Tree => None,
        };
        let lock = match &around {
            Some(around) => repository_lock(&around.common_dir),
            None => ledger.lock.with_extension("sync.lock"),
        };
        let _turn = LedgerLock::take(&lock).map_err(io("lock", &lock))?;
        let reach = Contact { dry_run: try_only, ..self.reach() };
        let way: Option<Box<dyn Exchange>> = match ledger.place {
            LedgerKind::Branch => {
                Branch::open(self.checkout, &ledger.dir, reach)?.map(|branch| Box::new(branch) as Box<_>)
            }
            LedgerKind::Tree => None,
            LedgerKind::Planning | LedgerKind::Shared => match own(ledger, reach)? {
                Some(DirectoryExchange::Exclusive(own)) => Some(own),
                Some(DirectoryExchange::Shared(..)) | None => None,
            },
        };
        match way {
            Some(mut way) => self.purge_history(ledger, way.as_mut(), try_only, &mut purged)?,
            None => self.purge_file(ledger, try_only, &mut purged)?,
        }
        if !try_only {
            let server = &self.session.located().store;
            match self.purge_copy(ledger) {
                Ok(None | Some(true)) => {}
                Ok(Some(false)) => {
                    purged.left.push(format!("{server} has it still: other clones wrote all the time; purge it again"));
                }
                Err(error) => purged.left.push(format!("{server} may have it still ({error}); purge it again")),
            }
        }
        Ok(purged)
    }

    /// Purges an issue from a ledger whose commits belong to the user: only its file is changed.
    fn purge_file(&self, ledger: &Ledger, try_only: bool, purged: &mut Purged) -> Result<(), Error> {
        purged.commits = History::of_dir(&ledger.dir)?.of_issue(&purged.issue, COUNTED)?.len();
        if purged.commits > 0 {
            let count = purged.commits;
            purged.left.push(format!("{count} commits in {} have it; their history is yours", ledger.dir.display()));
        }
        if try_only { Ok(()) } else { self.purge_here(ledger, &purged.issue) }
    }

    fn purge_history(
        &self,
        ledger: &Ledger,
        way: &mut dyn Exchange,
        try_only: bool,
        purged: &mut Purged,
    ) -> Result<(), Error> {
        let id = purged.issue.clone();
        purged.remote = way.remote().map(str::to_owned);
        for _ in 0..ROUNDS {
            let mut theirs = None;
            if purged.remote.is_some() {
                way.fetch()?;
                let files = way.theirs()?;
                refuse_foreign(&way.foreign_commits()?)?;
                if !try_only {
                    self.take_in(ledger, &files, false)?;
                }
                theirs = Some(files);
            }
            purged.branches = way.also_in(&id)?;
            match way.purge(&|line: &[u8]| !names(line, &id)) {
                Ok(commits) => purged.commits = commits,
                Err(ExchangeError::Conflict(why)) => purged.left = vec![why],
                Err(error) => return Err(error.into()),
            }
            if try_only {
                return Ok(());
            }
            self.purge_here(ledger, &id)?;
            self.put_in_order(ledger, &BTreeSet::new())?;
            let turn = LedgerLock::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
            if theirs.is_some() {
                let files = toft_vcs::exchange::read_files(&ledger.dir)?;
                let (wish, mut synced) = (SyncOptions { sure: true, ..SyncOptions::default() }, Synced::new(ledger));
                if self.holds_back(&new_text(&files, theirs.as_ref()), &wish, &mut synced)? {
                    return Err(Refusal::Secret { found: synced.said.join("; ") }.into());
                }
            }
            way.record("toft: purge")?;
            drop(turn);
            if purged.remote.is_none() {
                return Ok(way.forget_unreachable()?);
            }
            match way.send()? {
                Sent::Done | Sent::Same => {
                    purged.sent = true;
                    return Ok(way.forget_unreachable()?);
                }
                Sent::LostRace(_) => {}
            }
        }
        let said = "other clones kept pushing first; try again".to_owned();
        Err(ExchangeError::Conflict(said).into())
    }

    /// Removes an issue from a ledger's local files, except for a tombstone without text.
    fn purge_here(&self, ledger: &Ledger, id: &str) -> Result<(), Error> {
        let (clock, at) = (self.clock(ledger)?, self.now()?);
        let mut record = Record::new(id, clock);
        let deleted = json!({ "at": at, "reason": PURGED }).to_string();
        record.set(Key::field("deleted"), clock, Some(deleted.into()));
        record.set(Key::field("purged"), clock, Some("true".into()));
        let tombstone = line::write(&record);
        let turn = LedgerLock::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
        for file in ledger.files()? {
            let path = ledger.dir.join(&file);
            let bytes = match fs::read(&path) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(cause) => return Err(Error::Io { doing: "read", path, cause }),
            };
            let stays = |line: &&[u8]| !names(line.strip_suffix(b"\n").unwrap_or(line), id);
            let mut rest: Vec<u8> =
                bytes.split_inclusive(|byte| *byte == b'\n').filter(stays).flatten().copied().collect();
            if file == ISSUES {
                if rest.last().is_some_and(|last| *last != b'\n') {
                    rest.push(b'\n');
                }
                rest.extend_from_slice(tombstone.as_bytes());
                rest.push(b'\n');
            }
            if rest != bytes {
                turn.replace(&path, |out| out.write_all(&rest)).map_err(io("write", &path))?;
            }
        }
        self.refresh_in_turn(Some(ledger))?;
        drop(turn);
        self.forget_kept(ledger, id)?;
        self.forget_uncommitted(ledger, &[id])
    }

    /// Other clones that wrote to a ledger, from its clocks.
    fn writers(&self, ledger: &Ledger) -> Result<Vec<OtherClone>, Error> {
        let own = self.replica()?;
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        self.refresh()?;
        for row in self.index(Access::Read)?.all_of(&ledger.name)? {
            let Ok(line) = line::read(&row.line) else { continue };
            for clock in line.record.registers().values().map(|register| register.clock) {
                if clock.replica != own && clock.replica != toft_ledger::clock::Replica::HAND {
                    let ms = last.entry(clock.replica.to_string()).or_default();
                    *ms = clock.ms.max(*ms);
                }
            }
        }
        let known = |(replica, ms): (String, u64)| OtherClone { replica, last: Timestamp(ms as i64) };
        Ok(last.into_iter().map(known).collect())
    }
}

/// Whether a line is about an issue: its own, or one that cannot be read and contains the id.
fn names(text: &[u8], id: &str) -> bool {
    match std::str::from_utf8(text).ok().and_then(|text| line::read(text).ok()) {
        Some(line) => line.record.id() == id,
        None => contains(text, id),
    }
}
