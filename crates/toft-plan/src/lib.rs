//! The plan: issues in ledgers, an index of them, and their workflows in the store.
//!
//! `place.rs` says where ledgers are, `known.rs` which a clone was told of (by `settings.rs`), `unreadable.rs` what happens with a bad one, `index_refresh.rs` brings the index up to their files, `write.rs` is the one way a ledger
//! is changed, `noted.rs` what the log says of it, `undo.rs` takes that back, `run.rs` ties issues to the workflows that are on them, `compact.rs` puts a
//! ledger in order. `sync.rs` exchanges ledgers with other clones (`copy.rs` is what they have, `synced.rs` how it went), `server_copy.rs` with a toft server, `offer.rs` offers an issue of one to another, `propose.rs` follows what becomes of that,
//! `unshared.rs` keeps the text of what nobody else ever had, `purge.rs` takes an issue out of a ledger's history, `guard.rs` looks at what is about to leave, `past.rs` at what was. `text.rs`, `import_export.rs` and `beads.rs` are other
//! forms, `twoway.rs` what an import of beads changes, `older.rs` the stores of other tools,
//! `orphans.rs` what is left of claims whose store or clone is gone. `overlay.rs` lays private changes over issues that others keep,
//! `contest.rs` tells of issues that two clones claimed, `epics.rs` lets epics follow their parts,

mod beads;
mod beads_directory;
mod compact;
mod contest;
mod copy;
mod draft;
mod epics;
mod filters;
#[cfg(test)]
mod fixture;
mod guard;
mod import_export;
mod index_refresh;
mod known;
mod msgpack;
mod noted;
mod offer;
mod older;
mod orphans;
mod overlay;
mod pace;
mod past;
mod place;
pub mod plan_file;
mod propose;
mod publishes;
mod purge;
mod run;
mod search;
mod server_copy;
mod settings;
mod short;
mod sync;
mod synced;
mod text;
mod twoway;
mod undo;
mod unreadable;
mod unshared;
mod write;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Mutex, OnceLock},
};

pub use self::{
    beads_directory::BeadsDirectory,
    compact::Compaction,
    filters::UnknownValue,
    guard::{Doubtful, Guarded, LeakingLine},
    import_export::{Export, Exported, Import, Imported, Older},
    index_refresh::LedgerTrouble,
    known::Carried,
    offer::{ProposeOptions, Proposed},
    orphans::Orphan,
    overlay::Overlay,
    past::Past,
    place::{Ledger, LedgerKind, PrivatePlanning, hint, waiting},
    propose::ProposalEnd,
    publishes::Publishes,
    purge::{OtherClone, Purged},
    search::{IssueSearch, SearchProblem, SearchResult},
    short::shorten_ids,
    synced::{SyncOptions, SyncStatus, Synced},
    text::many,
    write::Wrote,
};
use toft_core::{
    issue::{
        Issue,
        ready::{IssueReason, readiness},
        route::Routing,
    },
    ready::assigned_rank,
    refusal::Refusal,
    store::{Access, StoreError},
    time::Timestamp,
    verbs::{
        assign::Awaited,
        facts,
        issue::{Offer, WhyStarted},
    },
};
use toft_ledger::{clock::Replica, record::Key};
use toft_session::{config::Names, engine::Engine, error::Error, session::Session};
pub use toft_store::sqlite::index::IssueFilter;
use toft_store::{
    SqliteStore,
    sqlite::index::{AssignedTo, IndexTx, Indexed},
};
use toft_vcs::Checkout;

/// The ledgers of a session and their settings.
#[derive(Clone, Copy)]
pub struct Ledgers<'s> {
    session: &'s Session,
}

impl<'s> Ledgers<'s> {
    /// The ledgers of this session.
    pub fn of(session: &'s Session) -> Self {
        Self { session }
    }
}

impl std::ops::Deref for Ledgers<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

/// Maximum number of ids that are listed for an ambiguous prefix.
const NAMED: usize = 5;

/// The issues of a checkout.
pub struct Plan<'t> {
    session: &'t Session,
    checkout: &'t Checkout,
    /// The checkout whose own ledger is used: in a workspace, the one from which its work was claimed.
    home: &'t Checkout,
    ledgers: Vec<Ledger>,
    /// The user does not maintain the repository's own ledger.
    contributor: bool,
    /// The remote with that ledger in this case.
    upstream: Option<String>,
    routing: Routing,
    /// Ledgers that cannot be read now, with the reason.
    bad: Mutex<BTreeMap<String, String>>,
    index: OnceLock<Index<'t>>,
    state: PathBuf,
    worktree: &'t str,
    replica: OnceLock<Replica>,
    /// A ledger was seen.
    written: OnceLock<()>,
    /// The name of people in ledgers; looked up at the first write.
    author: OnceLock<String>,
    /// The files of a plan at an earlier time.
    aside: Option<past::Aside>,
}

/// The location of the index: in the store's file, or in a file of its own.
enum Index<'t> {
    Store(&'t SqliteStore),
    Own(Box<SqliteStore>),
}

/// An issue with its ledger.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FoundIssue {
    pub issue: Issue,
    pub ledger: String,
    /// Its rank in the order of ready work; empty while it cannot start.
    pub rank: String,
    /// The time from which it can start.
    pub opens: Option<Timestamp>,
}

impl FoundIssue {
    fn of(row: &Indexed) -> Result<Self, Error> {
        Ok(Self { issue: row.issue()?, ledger: row.ledger.clone(), rank: row.rank.clone(), opens: row.opens })
    }

    /// Whether it can start, as far as the plan knows.
    pub fn ready(&self, now: Timestamp) -> bool {
        self.opens.is_some_and(|opens| opens <= now)
    }
}

impl<'t> Plan<'t> {
    /// Opens the plan of the session's checkout; `None` outside of a checkout.
    pub fn open(session: &'t Session) -> Result<Option<Self>, Error> {
        let Some(checkout) = &session.located().checkout else { return Ok(None) };
        let home = Ledgers::of(session).ledger_home()?;
        let place::SeenLedgers { ledgers, contributor, upstream, routing } = place::ledgers(session, home)?;
        let plan = Self {
            session,
            checkout,
            home,
            ledgers,
            contributor,
            upstream,
            routing,
            bad: Mutex::default(),
            index: OnceLock::new(),
            state: checkout.state_dir(),
            worktree: &home.worktree,
            replica: OnceLock::new(),
            written: OnceLock::new(),
            author: OnceLock::new(),
            aside: None,
        };
        plan.follow_server();
        Ok(Some(plan))
    }

    /// This clone's replica name in clocks; looked up or generated at the first write.
    fn replica(&self) -> Result<Replica, Error> {
        if let Some(known) = self.replica.get() {
            return Ok(*known);
        }
        let replica = place::replica(&self.state)?;
        Ok(*self.replica.get_or_init(|| replica))
    }

    /// The name of an actor in ledgers: git's author, unless the configuration asks for agent names.
    pub fn name_of<'a>(&'a self, actor: &'a str) -> &'a str {
        match self.session.located().sync.names {
            Names::Agent => actor,
            Names::Author => self.author.get_or_init(|| {
                toft_vcs::exchange::author(self.checkout).unwrap_or_else(toft_session::locate::user_name)
            }),
        }
    }

    /// The store of the index; opened or created when it is first needed.
    fn store(&self) -> Result<&SqliteStore, Error> {
        if self.index.get().is_none() {
            // Two worktrees may see two versions of a ledger in the tree, and a store elsewhere may serve other
            // repositories: each has an index of its own then.
            let same = self.ledgers.iter().all(|ledger| ledger.place != LedgerKind::Tree);
            let index = match self.session.engine() {
                _ if let Some(aside) = &self.aside => {
                    Index::Own(Box::new(SqliteStore::create_derived(&aside.index())?))
                }
                Engine::File(store) if same && self.session.located().own_store() => Index::Store(store),
                _ => Index::Own(Box::new(SqliteStore::create_derived(&own_index(&self.state, self.worktree))?)),
            };
            self.index.get_or_init(|| index);
        }
        match self.index.get() {
            Some(Index::Store(store)) => Ok(store),
            Some(Index::Own(store)) => Ok(store),
            None => Err(StoreError::Missing { path: "the index".into() }.into()),
        }
    }

    fn index(&self, access: Access) -> Result<IndexTx<'_>, Error> {
        Ok(self.store()?.index(access)?)
    }

    /// A read transaction on the index, after it was updated from the files.
    fn look(&self) -> Result<IndexTx<'_>, Error> {
        self.refresh()?;
        self.index(Access::Read)
    }

    /// The ledgers of this checkout; the default for writes is the first.
    pub fn ledgers(&self) -> &[Ledger] {
        &self.ledgers
    }

    /// The other repository whose own ledger has this name here, if any.
    pub fn repository_of(&self, ledger: &str) -> Option<PathBuf> {
        self.ledgers.iter().find(|known| known.name == ledger)?.of.clone()
    }

    /// Whether no issue was ever written in this checkout.
    fn unwritten(&self) -> bool {
        self.written.get().is_none() && {
            let found = self.ledgers.iter().any(|ledger| ledger.dir.exists());
            if found {
                self.written.get_or_init(|| ());
            }
            !found
        }
    }

    /// The current time.
    pub fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.session.perform(facts::Clock {})?.now)
    }

    /// The issue with a whole id or a unique prefix.
    pub fn find(&self, text: &str) -> Result<FoundIssue, Error> {
        if self.unwritten() {
            return Err(Refusal::NotFound { what: "issue".into(), text: text.to_owned() }.into());
        }
        let index = self.look()?;
        FoundIssue::of(&self.row_of(&index, text)?)
    }

    /// The same for a caller that needs no more than what was read last, as one that just wrote it: a known whole id is enough.
    pub fn find_as_read(&self, text: &str) -> Result<FoundIssue, Error> {
        let known = match self.unwritten() {
            true => None,
            false => self.copy_of(&self.index(Access::Read)?, text)?,
        };
        known.map_or_else(|| self.find(text), |row| FoundIssue::of(&row))
    }

    /// An issue by its whole id, if a ledger here contains it.
    pub fn known(&self, id: &str) -> Result<Option<FoundIssue>, Error> {
        self.copy_of(&self.look()?, id)?.as_ref().map(FoundIssue::of).transpose()
    }

    /// The issue that `text` names, if any.
    pub fn named(&self, text: &str) -> Result<Option<FoundIssue>, Error> {
        match self.find(text) {
            Ok(found) => Ok(Some(found)),
            Err(Error::Refused(Refusal::NotFound { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Issues with an active workflow in the store of this clone.
    pub fn started(&self) -> Result<BTreeSet<String>, Error> {
        self.session.perform(facts::StartedIssues { scope: self.session.scope() })
    }

    /// Those of these issues that work was started on and that cannot be claimed now.
    pub fn waiting_after_start(&self, issues: &[FoundIssue]) -> Result<BTreeSet<String>, Error> {
        let open: BTreeSet<&str> =
            issues.iter().filter(|found| found.issue.unfinished()).map(|found| found.issue.id.as_str()).collect();
        let mut waiting = BTreeSet::new();
        for id in self.started()?.into_iter().filter(|id| open.contains(id.as_str())) {
            if self.why_started(&id)?.is_some() {
                waiting.insert(id);
            }
        }
        Ok(waiting)
    }

    /// Issues that match a filter, newest first.
    pub fn list(&self, asked: &IssueFilter) -> Result<Vec<FoundIssue>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        let index = self.look()?;
        let rows = self.laid(&index, index.list(asked)?)?;
        let mut found: Vec<FoundIssue> = rows.iter().map(FoundIssue::of).collect::<Result<_, _>>()?;
        // One that stands in several ledgers is shown as the first of them has it; copies follow each other.
        let place = |found: &FoundIssue| self.ledgers.iter().position(|ledger| ledger.name == found.ledger);
        found.dedup_by(|next, kept| {
            let same = next.issue.id == kept.issue.id;
            if same && place(next) < place(kept) {
                std::mem::swap(next, kept);
            }
            same
        });
        Ok(found)
    }

    /// An issue as it is displayed, by its whole id.
    fn copy_of(&self, index: &IndexTx<'_>, id: &str) -> Result<Option<Indexed>, Error> {
        Ok(self.preferred(self.laid(index, index.copies(id)?)?))
    }

    /// The copy of an issue to use if several ledgers contain it: that of the first ledger.
    fn preferred(&self, copies: Vec<Indexed>) -> Option<Indexed> {
        let place = |row: &Indexed| self.ledgers.iter().position(|ledger| ledger.name == row.ledger);
        // One that was moved left a tombstone behind.
        let gone = |row: &Indexed| row.issue().map_or(true, |issue| issue.deleted.is_some());
        match copies.len() {
            0 | 1 => copies.into_iter().next(),
            _ => copies.into_iter().min_by_key(|row| (gone(row), place(row))),
        }
    }

    /// The row with a whole id or a unique prefix.
    fn row_of(&self, index: &IndexTx<'_>, text: &str) -> Result<Indexed, Error> {
        match self.copy_of(index, text)? {
            Some(row) => Ok(row),
            None => {
                let id = whole_id(index, text)?;
                // An overlay whose issue is not on this branch is no issue.
                self.copy_of(index, &id)?
                    .ok_or_else(|| Refusal::NotFound { what: "issue".into(), text: text.to_owned() }.into())
            }
        }
    }

    /// Whether there are any issues at all.
    pub fn any(&self) -> Result<bool, Error> {
        Ok(!self.unwritten() && self.look()?.any()?)
    }

    /// The number of issues, and of unfinished issues.
    pub fn counts(&self) -> Result<(u64, u64), Error> {
        if self.unwritten() {
            return Ok((0, 0));
        }
        Ok(self.look()?.counts()?)
    }

    /// The best issues with these labels that can start, up to `limit`; with `to_take`, only issues that can be claimed
    /// without an id and written to.
    pub fn offers(&self, actor: &str, labels: &[String], to_take: bool, limit: usize) -> Result<Vec<Offer>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        let _span = self.store()?.read_span();
        let now = self.now()?;
        // The index may share its connection with the store: one is asked after the other.
        let assignees = self.look()?.assignees()?;
        let mine = assignees.iter().any(|name| name == actor);
        let names: Vec<String> = assignees.into_iter().filter(|name| name != actor).collect();
        let mut kept = match names.is_empty() {
            true => Vec::new(),
            false => self.session.perform(Awaited { names })?,
        };
        let index = self.index(Access::Read)?;
        let mut rows = Vec::new();
        if mine {
            let own = index.ready(now, labels, to_take, &AssignedTo::To(actor.to_owned()), limit)?;
            rows.extend(own.into_iter().map(|row| Indexed { rank: assigned_rank(&row.rank), ..row }));
            kept.push(actor.to_owned());
        }
        rows.extend(index.ready(now, labels, to_take, &AssignedTo::NotTo(kept), limit)?);
        rows.truncate(limit);
        let mut offers: Vec<Offer> = Vec::new();
        for row in self.laid(&index, rows)? {
            let FoundIssue { issue, ledger, rank, .. } = FoundIssue::of(&row)?;
            let writable = self.ledgers.iter().any(|known| known.name == ledger && !known.read_only);
            if (writable || !to_take) && offers.last().is_none_or(|last| last.issue.id != issue.id) {
                let said_at = said_at(&row, &issue);
                offers.push(Offer { issue, ledger, rank, said_at, reasons: Vec::new() });
            }
        }
        Ok(offers)
    }

    /// One issue as an offer, with the reasons why it cannot start.
    pub fn offer(&self, text: &str) -> Result<Offer, Error> {
        let FoundIssue { issue, ledger, rank, .. } = self.find(text)?;
        let reasons = self.held(&issue)?;
        let row = self.copy_of(&self.index(Access::Read)?, &issue.id)?;
        let said_at = row.map_or_else(|| made_at(&issue), |row| said_at(&row, &issue));
        Ok(Offer { issue, ledger, rank, said_at, reasons })
    }

    /// The reasons in the plan why an issue cannot start now.
    fn held(&self, issue: &Issue) -> Result<Vec<IssueReason>, Error> {
        let now = self.now()?;
        let index = self.index(Access::Read)?;
        let Some(node) = index.node(&issue.id)? else { return Ok(Vec::new()) };
        Ok(readiness(&mut index.nodes(), &node)?.reasons(now))
    }

    /// Every reason why an issue cannot start now.
    pub fn why(&self, issue: &Issue) -> Result<Vec<IssueReason>, Error> {
        let mut reasons = self.held(issue)?;
        reasons.extend(self.why_started(&issue.id)?);
        Ok(reasons)
    }

    /// What keeps the work that was started on an issue from being claimed; nothing if none was, or if it can be.
    pub fn why_started(&self, id: &str) -> Result<Option<IssueReason>, Error> {
        self.session.perform(WhyStarted { issue: id.to_owned() })
    }

    /// Open issues that cannot start now, newest first, and why.
    pub fn not_ready(&self, limit: usize) -> Result<Vec<Offer>, Error> {
        let now = self.now()?;
        let mut offers = Vec::new();
        for found in self.list(&IssueFilter::default())?.into_iter().filter(|found| !found.ready(now)).take(limit) {
            let reasons = self.why(&found.issue)?;
            let said_at = made_at(&found.issue);
            offers.push(Offer { issue: found.issue, ledger: found.ledger, rank: found.rank, said_at, reasons });
        }
        Ok(offers)
    }

    /// The issues that need an issue.
    pub fn needed_by(&self, id: &str) -> Result<Vec<FoundIssue>, Error> {
        let index = self.look()?;
        let rows = self.laid(&index, index.needed_by(id)?)?;
        let mut found: Vec<FoundIssue> = rows.iter().map(FoundIssue::of).collect::<Result<_, _>>()?;
        found.dedup_by(|next, kept| next.issue.id == kept.issue.id);
        Ok(found)
    }

    /// Dependencies on issues that no ledger here contains.
    pub fn dangling(&self, limit: usize) -> Result<Vec<(String, String)>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        Ok(self.look()?.dangling(limit)?)
    }

    /// Issues in a dependency cycle, which a merge can create; the first of each can start.
    pub fn circles(&self, limit: usize) -> Result<Vec<Vec<String>>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        Ok(self.look()?.circles(limit)?.into_iter().map(|circle| circle.into_iter().collect()).collect())
    }
}

fn own_index(state: &std::path::Path, worktree: &str) -> PathBuf {
    state.join("index").join(format!("{worktree}.db"))
}

/// When a ledger last recorded the status of an issue.
fn said_at(row: &Indexed, issue: &Issue) -> Timestamp {
    let line = toft_ledger::line::read(&row.line).ok();
    let register = line.as_ref().and_then(|line| line.record.registers().get(&Key::field("status")));
    let ms = register.and_then(|register| i64::try_from(register.clock.ms).ok()).filter(|ms| *ms > 0);
    ms.map_or_else(|| made_at(issue), Timestamp)
}

fn made_at(issue: &Issue) -> Timestamp {
    issue.created.as_ref().map(|made| made.at).unwrap_or_default()
}

/// The id with a unique prefix.
fn whole_id(index: &IndexTx<'_>, text: &str) -> Result<String, Error> {
    let prefixes = [text.to_owned(), format!("{}{text}", toft_core::issue::PREFIX)];
    let mut candidates = Vec::new();
    for prefix in prefixes {
        if candidates.is_empty() && !text.is_empty() {
            candidates = index.ids(&prefix, NAMED + 1)?;
        }
    }
    match candidates.as_slice() {
        [] => Err(Refusal::NotFound { what: "issue".into(), text: text.to_owned() }.into()),
        [one] => Ok(one.clone()),
        many => {
            let candidates = many.iter().take(NAMED).cloned().collect();
            Err(Refusal::Ambiguous { text: text.to_owned(), candidates }.into())
        }
    }
}
