//! Sync: exchanges every ledger with its remote, under any version control. Fetch, merge, compact, check what would be
//! sent, record, send; each ledger separately, and being offline is not an error.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use toft_core::issue::{
    outgoing::{Doubt, Finding},
    proposal,
};
use toft_ledger::{
    file::{FileStamp, LedgerLock},
    line::LineOrigin,
};
use toft_session::error::{Error, io};
use toft_vcs::exchange::{self, Branch, Contact, DirectoryExchange, Exchange, ExchangeError, Files, Sent, Tree};

use super::{
    Ledger, LedgerKind, Plan,
    compact::looks,
    copy::{New, lines_of, message, new_text, news},
    index_refresh::now_nanos,
    pace::Pace,
    past::changes,
    synced::{SyncOptions, SyncStatus, SyncTrouble, Synced, TakenLines},
    write::issue_of,
};

/// Closed issues stay in the main file for this long.
const ARCHIVE_AFTER: Duration = Duration::from_secs(14 * 24 * 3_600);
/// How long lost races are retried.
const PATIENCE: Duration = Duration::from_secs(300);
/// Maximum time that an automatic sync adds to a command.
const BY_ITSELF: Duration = Duration::from_secs(3);
/// Give up after this many rejected pushes while the remote tip did not change.
const STILL: u32 = 8;
/// A file that was read this long after it changed has not changed since in the same clock tick.
const TICK: i64 = 20_000_000;

/// The stamps of a ledger's files: name, identity, size, time of change.
type Looks = Vec<(String, (u64, u64), u64, i64)>;

/// The state after the last sync of a ledger: if nothing changed since, there is nothing to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SyncMemo {
    tip: Option<String>,
    looks: Looks,
    looked: i64,
}

impl SyncMemo {
    /// Whether the state is up to date. A file that changed just before may have changed again within the same clock
    /// tick.
    fn holds(&self, tip: Option<&String>, looks: &Looks) -> bool {
        let settled = || self.looks.iter().all(|(.., written)| self.looked - written > TICK);
        self.looked > 0 && self.tip.as_ref() == tip && self.looks == *looks && settled()
    }
}

impl Plan<'_> {
    /// Exchanges every ledger of this checkout; `step` reports the progress.
    pub fn sync(&self, wish: &SyncOptions, mut step: impl FnMut(&str, &str)) -> Result<Vec<Synced>, Error> {
        if let Some(name) = &wish.ledger {
            self.called(name)?;
        }
        let mut all = Vec::new();
        let first = wish.from.as_ref().and_then(|name| self.ledgers.iter().position(|known| known.name == *name));
        let (before, from) = self.ledgers.split_at(first.unwrap_or(0));
        let in_turn = from.iter().chain(before);
        for ledger in in_turn.filter(|known| wish.ledger.as_ref().is_none_or(|name| *name == known.name)) {
            if wish.until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            let mut synced = Synced::new(ledger);
            let exchanged = self
                .check_there(ledger)
                .and_then(|()| self.sync_one(ledger, wish, &mut synced, &mut |what| step(&ledger.name, what)));
            if let Err(error) = exchanged {
                synced.how = SyncStatus::Failed;
                synced.said.push(error.to_string());
            }
            all.push(synced);
        }
        Ok(all)
    }

    fn sync_one(
        &self,
        ledger: &Ledger,
        wish: &SyncOptions,
        synced: &mut Synced,
        step: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        if ledger.read_only && ledger.url.is_none() {
            synced.how = SyncStatus::Left;
            return Ok(());
        }
        let around = match ledger.place {
            LedgerKind::Planning | LedgerKind::Shared if ledger.dir.exists() && ledger.elsewhere.is_none() => {
                toft_vcs::find(&ledger.dir)?
            }
            _ => None,
        };
        if around.as_ref().is_some_and(|around| around.common_dir == self.checkout.common_dir) {
            synced.how = SyncStatus::Conflict;
            let dir = ledger.dir.display();
            synced
                .said
                .push(format!("{dir} is in this project's own repository; a ledger like that is committed with it"));
            return Ok(());
        }
        // Ledgers that share a repository take turns.
        let lock = match &around {
            Some(around) => repository_lock(&around.common_dir),
            None => ledger.lock.with_extension("sync.lock"),
        };
        let patience = wish.until.map_or(PATIENCE, |_| Duration::ZERO);
        let _turn = match wish.try_only {
            // Who only looks is in nobody's way.
            true => None,
            false => match LedgerLock::take_within(&lock, patience).map_err(io("lock", &lock))? {
                Some(turn) => Some(turn),
                None => {
                    synced.how = SyncStatus::Outrun;
                    synced.said.push("another sync of this ledger goes on and on".into());
                    return Ok(());
                }
            },
        };
        let left = wish.until.map(|until| until.saturating_duration_since(Instant::now()));
        let reach = left.map_or_else(|| self.reach(), |patience| Contact { patience, ..self.reach() });
        let reach = Contact { dry_run: wish.try_only, ..reach };
        let (checkout, place, reach) = match &ledger.elsewhere {
            Some(other) => (&other.checkout, other.place, Contact { remote: None, ..reach }),
            None => (self.home, ledger.place, reach),
        };
        let exchanged = match place {
            LedgerKind::Branch => match Branch::open(checkout, &ledger.dir, reach) {
                Ok(Some(mut branch)) => self.sync_branch(ledger, &mut branch, wish, synced, step),
                Ok(None) => unversioned(synced),
                Err(error) => Err(SyncTrouble::Exchange(error)),
            },
            LedgerKind::Tree => match Tree::open(checkout, &ledger.dir, reach) {
                _ if !ledger.dir.exists() => Ok(()),
                Ok(mut tree) => self.sync_tree(ledger, &mut tree, wish, synced, step),
                Err(error) => Err(SyncTrouble::Exchange(error)),
            },
            LedgerKind::Planning | LedgerKind::Shared => match own(ledger, reach) {
                _ if !ledger.dir.exists() => Ok(()),
                Ok(Some(DirectoryExchange::Exclusive(mut own))) => {
                    let exchanged = self.exchange(ledger, own.as_mut(), wish, synced, step);
                    synced.said.append(&mut own.take_notes());
                    exchanged.map(drop)
                }
                Ok(Some(DirectoryExchange::Shared(mut tree, why))) => {
                    let done = self.sync_tree(ledger, &mut tree, wish, synced, step);
                    synced.said.push(format!(
                        "{why}: toft commits and sends nothing there; commit the ledger with them, or give it a repository of its own"
                    ));
                    done
                }
                Ok(None) => unversioned(synced),
                Err(error) => Err(SyncTrouble::Exchange(error)),
            },
        };
        match exchanged {
            Ok(()) => Ok(()),
            Err(SyncTrouble::Exchange(error)) => {
                synced.fails(&error);
                Ok(())
            }
            Err(SyncTrouble::Here(error)) => Err(error),
        }
    }

    /// The remote with which the repository's own ledger is exchanged, if configured.
    pub(super) fn reach(&self) -> Contact<'_> {
        let said = self.session.located().sync.remote.as_deref();
        let branch = self.session.located().sync.branch.as_deref();
        Contact { branch, ..Contact::to(said.or_else(|| self.upstream.as_deref().filter(|_| self.contributor))) }
    }

    /// Exchanges ledgers if the configuration asks for it and the last sync is long enough ago; failures are retried
    /// the next time. Each time another ledger is the first: a remote that does not answer may use up the time.
    pub fn sync_by_itself(&self) -> Result<(), Error> {
        let Some(every) = self.session.located().sync.auto else { return Ok(()) };
        let last = self.state.join("sync").join("last");
        let age = || std::fs::metadata(&last).ok()?.modified().ok()?.elapsed().ok();
        if age().is_some_and(|age| age < every) {
            return Ok(());
        }
        let lock = self.state.join("sync").join("last.lock");
        let Some(turn) = LedgerLock::take_within(&lock, Duration::ZERO).map_err(io("lock", &lock))? else {
            return Ok(());
        };
        let before = std::fs::read_to_string(&last).ok();
        let before = self.ledgers.iter().position(|ledger| before.as_ref() == Some(&ledger.name));
        let next = before.map_or(0, |before| (before + 1) % self.ledgers.len().max(1));
        let from = self.ledgers.get(next).map(|ledger| ledger.name.clone());
        // Whether or not it works, the next try is as long away: nobody is kept waiting by a remote that is gone.
        let name = from.clone().unwrap_or_default();
        turn.replace(&last, |file| file.write_all(name.as_bytes())).map_err(io("write", &last))?;
        let wish = SyncOptions { until: Some(Instant::now() + BY_ITSELF), from, ..SyncOptions::default() };
        self.sync(&wish, |_, _| {}).map(drop)
    }

    /// Checks whether the remote of each ledger responds. Changes nothing.
    pub fn ask_others(&self, patience: Duration) -> Vec<(String, Result<Option<String>, ExchangeError>)> {
        let ask = |ledger: &Ledger| match ledger.place {
            LedgerKind::Branch | LedgerKind::Tree => exchange::ask(self.checkout, Contact { patience, ..self.reach() }),
            LedgerKind::Planning | LedgerKind::Shared => match toft_vcs::find(&ledger.dir) {
                _ if let Some(other) = &ledger.elsewhere => {
                    exchange::ask(&other.checkout, Contact { patience, ..Contact::to(None) })
                }
                Ok(Some(checkout)) => exchange::ask(&checkout, Contact { patience, ..Contact::to(None) }),
                _ => Ok(None),
            },
        };
        self.ledgers.iter().map(|ledger| (ledger.name.clone(), ask(ledger))).collect()
    }

    fn sync_branch(
        &self,
        ledger: &Ledger,
        branch: &mut Branch,
        wish: &SyncOptions,
        synced: &mut Synced,
        step: &mut dyn FnMut(&str),
    ) -> Result<(), SyncTrouble> {
        let exchanged = self.exchange(ledger, branch, wish, synced, step);
        synced.said.append(&mut branch.take_notes());
        let theirs = exchanged?;
        if ledger.kept_by_others && !wish.try_only && matches!(synced.how, SyncStatus::Received | SyncStatus::Synced) {
            let gone = |remote: &str, id: &str| Ok(!branch.proposed_at(remote, id)?);
            synced.came = self.follow_proposals(ledger, theirs.as_ref(), gone)?;
            self.clear_decided(branch, &synced.came)?;
        }
        Ok(())
    }

    fn sync_tree(
        &self,
        ledger: &Ledger,
        tree: &mut Tree,
        wish: &SyncOptions,
        synced: &mut Synced,
        step: &mut dyn FnMut(&str),
    ) -> Result<(), SyncTrouble> {
        let theirs_to_keep = ledger.kept_by_others && ledger.place == LedgerKind::Tree;
        let commit = wish.commit && ledger.place == LedgerKind::Tree;
        synced.remote = tree.remote().map(str::to_owned);
        synced.how = if synced.remote.is_some() { SyncStatus::Received } else { SyncStatus::Recorded };
        if let Some(remote) = &synced.remote {
            step(&format!("asking {remote}"));
            match tree.fetch() {
                Ok(_) => {
                    let theirs = tree.theirs()?;
                    if theirs_to_keep {
                        // The file is upstream's; what comes in through it would go out again with the next commit.
                        if !wish.try_only {
                            synced.came = self.follow_proposals(ledger, Some(&theirs), |_, _| Ok(false))?;
                        }
                    } else {
                        let taken = self.take_in(ledger, &theirs, wish.try_only)?;
                        synced.takes(&taken);
                    }
                }
                Err(error) => synced.fails(&error),
            }
        }
        if !wish.try_only && !theirs_to_keep && (synced.received > 0 || commit) {
            self.put_in_order(ledger, &BTreeSet::new())?;
        }
        // A workspace does not commit in the checkout that the work was claimed from.
        let here = ledger.elsewhere.is_none() && self.home.root == self.checkout.root;
        if commit && !wish.try_only && here {
            step("committing");
            let turn = LedgerLock::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
            if tree.commit("toft: issues")? {
                synced.said.push("committed".into());
            }
            drop(turn);
        }
        Ok(())
    }

    /// Exchanges a ledger that may be recorded and sent. Returns the remote's files, if they were read.
    fn exchange(
        &self,
        ledger: &Ledger,
        way: &mut dyn Exchange,
        wish: &SyncOptions,
        synced: &mut Synced,
        step: &mut dyn FnMut(&str),
    ) -> Result<Option<Files>, SyncTrouble> {
        synced.remote = way.remote().map(str::to_owned);
        let keeps = !(ledger.read_only || ledger.kept_by_others && ledger.place == LedgerKind::Branch);
        let (memo_path, begun) = (self.memo_path(ledger), Instant::now());
        let memo: SyncMemo = std::fs::read_to_string(&memo_path)
            .ok()
            .and_then(|text| serde_json::from_str(&text).ok())
            .unwrap_or_default();
        let (mut away, mut still, mut before) = (None, 0, None);
        let mut pace = Pace::begin(memo_path.with_extension("pace"), !wish.try_only && wish.until.is_none());
        loop {
            let (mut theirs, mut archived) = (None, BTreeSet::new());
            if let Some(remote) = &synced.remote {
                step(&format!("asking {remote}"));
                match way.fetch() {
                    Ok(fetched) => {
                        synced.rewritten |= fetched.rewritten;
                        if synced.races == 0 && memo.holds(fetched.tip.as_ref(), &self.looks(ledger)?) {
                            synced.how = if keeps { SyncStatus::Synced } else { SyncStatus::Received };
                            return Ok(None);
                        }
                        let files = way.theirs()?;
                        step("merging");
                        let taken = self.take_in(ledger, &files, wish.try_only)?;
                        synced.takes(&taken);
                        (theirs, archived) = (Some(files), taken.archived);
                    }
                    Err(
                        error @ (ExchangeError::Offline { .. }
                        | ExchangeError::NotFound { .. }
                        | ExchangeError::Denied { .. }),
                    ) => away = Some(error),
                    Err(error) => return Err(error.into()),
                }
            }
            if keeps {
                let offered = way.offered()?;
                synced.received += self.take_offered(ledger, &offered, wish.try_only)?;
            }
            if !wish.try_only {
                if let Some(theirs) = theirs.as_ref().filter(|_| keeps) {
                    self.forget_unshared(ledger, theirs, synced.rewritten)?;
                }
                self.put_in_order(ledger, &archived)?;
            }
            // Nobody writes between the look at what leaves and its record.
            let turn = match wish.try_only {
                true => None,
                false => Some(LedgerLock::take(&ledger.lock).map_err(io("lock", &ledger.lock))?),
            };
            let files = exchange::read_files(&ledger.dir)?;
            let news = news(&files, theirs.as_ref());
            if keeps && synced.remote.is_some() && away.is_none() {
                refuse_foreign(&way.foreign_commits()?)?;
                let mut leaving = new_text(&files, theirs.as_ref());
                leaving.extend(way.unsent_lines()?.into_iter().map(|line| ("a recorded commit".to_owned(), line)));
                synced.sent = news.len();
                if self.holds_back(&leaving, wish, synced)? {
                    return Ok(theirs);
                }
            }
            if wish.try_only {
                match &away {
                    Some(error) => synced.fails(error),
                    None => synced.how = SyncStatus::Received,
                }
                return Ok(theirs);
            }
            let unsent = away.is_some() && !way.squashes();
            let seen = (now_nanos(), self.looks(ledger)?);
            if !unsent {
                step("recording");
                let mut said = message(&news);
                if news.is_empty() {
                    said = exchange::told(&said, &[]);
                } else if let Some(before) = way.before()? {
                    said = exchange::told(&said, &changes(&before, &files));
                }
                way.record(&said)?;
            }
            drop(turn);
            if let Some(error) = away.take() {
                synced.fails(&error);
                return Ok(theirs);
            }
            if synced.remote.is_none() {
                synced.how = SyncStatus::Recorded;
                return Ok(theirs);
            }
            if !keeps {
                synced.how = SyncStatus::Received;
                self.remember(way, &memo_path, seen)?;
                return Ok(theirs);
            }
            step("sending");
            let there = way.seen().map(str::to_owned);
            let moved = there != memo.tip;
            match way.send()? {
                Sent::Done | Sent::Same => {
                    synced.how = SyncStatus::Synced;
                    self.remember(way, &memo_path, seen)?;
                    pace.won(moved);
                    // What another clone purged is not kept here either.
                    if synced.rewritten {
                        way.forget_unreachable()?;
                    }
                    way.tidy();
                    return Ok(theirs);
                }
                Sent::LostRace(said) if still > STILL => {
                    // The remote tip never moved, so the remote is rejecting the push.
                    synced.how = SyncStatus::Protected;
                    synced.said.push(said);
                    return Ok(theirs);
                }
                Sent::LostRace(_)
                    if begun.elapsed() < PATIENCE && wish.until.is_none_or(|until| Instant::now() < until) =>
                {
                    still = if before == there { still + 1 } else { 0 };
                    before = there;
                    synced.races += 1;
                    pace.lost();
                }
                Sent::LostRace(_) => {
                    synced.how = SyncStatus::Outrun;
                    return Ok(theirs);
                }
            }
        }
    }

    /// Checks lines that are about to be sent, and stops if something in them looks like a secret. Very many or very
    /// long issues only become a note.
    pub(super) fn holds_back(
        &self,
        leaving: &[(String, String)],
        wish: &SyncOptions,
        synced: &mut Synced,
    ) -> Result<bool, Error> {
        let doubts = self.doubts(leaving.iter().map(|(id, line)| (id.as_str(), line.as_str())));
        let (doubts, large): (Vec<Doubt>, Vec<Doubt>) =
            doubts.into_iter().partition(|doubt| matches!(doubt, Doubt::Secret(_)));
        for remark in large.iter().map(ToString::to_string).filter(|_| !wish.sure) {
            if !synced.said.contains(&remark) {
                synced.said.push(remark);
            }
        }
        if doubts.is_empty() {
            return Ok(false);
        }
        synced.how = SyncStatus::Held;
        synced.sent = 0;
        synced.said.extend(doubts.iter().map(ToString::to_string));
        let named = |doubt: Doubt| if let Doubt::Secret(Finding { id, .. }) = doubt { Some(id) } else { None };
        synced.findings.extend(doubts.into_iter().filter_map(named));
        Ok(true)
    }

    fn memo_path(&self, ledger: &Ledger) -> std::path::PathBuf {
        self.state.join("sync").join(format!("{}.json", ledger.name))
    }

    /// Stores the state of both sides at the time of recording; later writes are for the next sync.
    fn remember(&self, way: &dyn Exchange, path: &std::path::Path, seen: (i64, Looks)) -> Result<(), Error> {
        let (looked, looks) = seen;
        let memo = SyncMemo { tip: way.seen().map(str::to_owned), looks, looked };
        let text = serde_json::to_string(&memo).unwrap_or_default();
        // Whoever syncs this ledger has the turn; a memo that is lost costs a longer look.
        let draft = path.with_extension("new");
        let dir = path.parent().unwrap_or(path);
        toft_store::private::create_dir_all(dir)
            .and_then(|()| toft_store::private::write(&draft, text))
            .and_then(|()| std::fs::rename(&draft, path))
            .map_err(io("write", path))
    }

    fn looks(&self, ledger: &Ledger) -> Result<Looks, Error> {
        let flat = |(name, look): (String, Option<FileStamp>)| {
            let FileStamp { identity, size, written } = look?;
            Some((name, identity, size, written))
        };
        Ok(looks(ledger)?.into_iter().filter_map(flat).collect())
    }

    /// Compacts a ledger, if needed.
    pub(super) fn put_in_order(&self, ledger: &Ledger, archived: &BTreeSet<String>) -> Result<(), Error> {
        if !ledger.dir.exists() {
            return Ok(());
        }
        let before = self.now()?.minus(ARCHIVE_AFTER);
        self.compact_one(ledger, before, archived).map(drop)
    }

    /// Merges another copy of a ledger into ours.
    pub(super) fn take_in(&self, ledger: &Ledger, files: &Files, try_only: bool) -> Result<TakenLines, Error> {
        let New { lines, verbatim, archived } = New::of(ledger, files)?;
        let broken = verbatim.len();
        let (contests, still_held) = self.find_contests(&lines, try_only)?;
        if lines.is_empty() && verbatim.is_empty() {
            return Ok(TakenLines { changed: 0, broken, archived });
        }
        let build = |draft: &mut super::draft::Draft<'_>| {
            for line in lines.into_values().flatten() {
                draft.take(line)?;
            }
            verbatim.into_iter().for_each(|line| draft.keep(line));
            Ok((draft.changes(), draft.parents()?))
        };
        let written = if try_only { self.rehearse(ledger, build) } else { self.write_received(ledger, build) };
        if written.is_err() {
            // Nobody asks about them again.
            contests.iter().for_each(|contest| self.session.note(contest.to_string()));
        }
        let (changed, epics) = written?;
        // Two clones may each have closed one of the last two parts. Who keeps the ledger closes their epic.
        if !try_only && !ledger.kept_by_others && !ledger.read_only {
            self.note_with("issue.followed", Vec::new(), self.follow_each(epics));
        }
        self.tell_contests(ledger, contests)?;
        if still_held {
            self.tell();
        }
        Ok(TakenLines { changed, broken, archived })
    }

    /// Merges issues that others propose on branches: one issue from each branch, and only if it is new.
    pub(super) fn take_offered(
        &self,
        ledger: &Ledger,
        offered: &[exchange::Proposal],
        try_only: bool,
    ) -> Result<usize, Error> {
        if offered.is_empty() {
            return Ok(0);
        }
        let mut lines = Vec::new();
        for proposal in offered {
            let found = lines_of(&proposal.files)?.remove(&proposal.id).unwrap_or_default();
            lines.extend(found.into_iter().filter(|line| line.made == LineOrigin::Written && line.broken.is_empty()));
        }
        let build = |draft: &mut super::draft::Draft<'_>| {
            for line in lines {
                let (id, offered) = (line.record.id().to_owned(), issue_of(&line.record)?);
                let known = if draft.has(&id)? { Some(draft.issue(&id)?) } else { None };
                if proposal::believed(&offered, known.as_ref()) {
                    draft.take(line)?;
                }
            }
            Ok(draft.changes())
        };
        if try_only { self.rehearse(ledger, build) } else { self.write_received(ledger, build) }
    }
}

/// The exchange backend of a ledger in a directory of its own. Remote and branch of the project are not for it.
pub(super) fn own(ledger: &Ledger, reach: Contact<'_>) -> Result<Option<DirectoryExchange>, ExchangeError> {
    let reach = Contact { remote: None, branch: None, ..reach };
    exchange::of_directory(&ledger.dir, ledger.place == LedgerKind::Planning, reach)
}

/// Refuses to send a user's commit.
pub(super) fn refuse_foreign(commits: &[String]) -> Result<(), ExchangeError> {
    let Some(first) = commits.first() else { return Ok(()) };
    let count = commits.len();
    Err(ExchangeError::Conflict(format!(
        "{count} commits there are not toft's and not sent yet (`{first}`); push them yourself, then sync again"
    )))
}

/// The lock file for syncs of one repository.
pub(super) fn repository_lock(common_dir: &std::path::Path) -> std::path::PathBuf {
    let print = blake3::hash(common_dir.as_os_str().as_encoded_bytes()).to_hex();
    toft_session::config::state_home().join("locks").join(format!("{}.sync.lock", &print[..16]))
}

fn unversioned(synced: &mut Synced) -> Result<(), SyncTrouble> {
    synced.how = SyncStatus::Unversioned;
    Ok(())
}

#[cfg(test)]
mod tests;
