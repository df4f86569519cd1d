//! The plan: issues in ledgers, an index of what they say, and what a store knows of who is on them.
//!
//! `place.rs` says where ledgers are, `hydrate.rs` brings the index up to their files, `write.rs` is the one way a ledger
//! is changed, `undo.rs` takes that back, `run.rs` ties issues to the workflows that are on them, `compact.rs` puts a
//! ledger in order, `text.rs`, `exchange.rs` and `beads.rs` are other forms.

mod beads;
mod compact;
mod exchange;
mod hydrate;
mod place;
mod run;
mod text;
mod undo;
mod write;

use std::{path::PathBuf, sync::OnceLock};

use toft_core::{
    issue::{
        Issue, NO_AUTO_CLAIM,
        ready::{Reason, standing},
    },
    refusal::Refusal,
    store::{self, Access, StoreError},
    time::Timestamp,
    verbs::issue::{Offer, On, OnIt},
};
use toft_ledger::clock::Replica;
pub use toft_store::sqlite::index::Asked;
use toft_store::{
    SqliteStore,
    sqlite::index::{IndexTx, Indexed},
};

pub(crate) use self::place::{add, make_tree_ledger, plan_in_private, remove};
pub use self::{
    compact::Compaction,
    exchange::{Export, Import, Imported},
    hydrate::Trouble,
    place::{Ledger, Place},
    text::many,
    write::Wrote,
};
use crate::{engine::Engine, error::Error, session::Toft};

/// How many ids an ambiguous prefix names.
const NAMED: usize = 5;

/// Issues as this checkout sees them.
pub struct Plan<'t> {
    toft: &'t Toft,
    ledgers: Vec<Ledger>,
    index: OnceLock<Index<'t>>,
    state: PathBuf,
    worktree: &'t str,
    replica: OnceLock<Replica>,
}

/// Where the index is: beside the rows it is asked with, or in a file of its own.
enum Index<'t> {
    Store(&'t SqliteStore),
    Own(Box<SqliteStore>),
}

/// An issue with where it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The issue.
    pub issue: Issue,
    /// Its ledger.
    pub ledger: String,
    /// Its place in the order of ready work; empty while it cannot start.
    pub rank: String,
    /// From when on it can start.
    pub opens: Option<Timestamp>,
}

impl Found {
    fn of(row: &Indexed) -> Result<Self, Error> {
        Ok(Self { issue: row.issue()?, ledger: row.ledger.clone(), rank: row.rank.clone(), opens: row.opens })
    }

    /// Can it start, as far as the plan knows?
    pub fn ready(&self, now: Timestamp) -> bool {
        self.opens.is_some_and(|opens| opens <= now)
    }
}

impl<'t> Plan<'t> {
    pub(crate) fn open(toft: &'t Toft) -> Result<Option<Self>, Error> {
        let Some(checkout) = &toft.located().checkout else { return Ok(None) };
        let ledgers = place::ledgers(checkout)?;
        let (state, index, replica) = (checkout.state_dir(), OnceLock::new(), OnceLock::new());
        Ok(Some(Self { toft, ledgers, index, state, worktree: &checkout.worktree, replica }))
    }

    /// This clone's name in clocks; looked up, or made, when something is written.
    fn replica(&self) -> Result<Replica, Error> {
        if let Some(known) = self.replica.get() {
            return Ok(*known);
        }
        let replica = place::replica(&self.state)?;
        Ok(*self.replica.get_or_init(|| replica))
    }

    /// Where the index is kept; opened, or made, when it is first needed.
    fn store(&self) -> Result<&SqliteStore, Error> {
        if self.index.get().is_none() {
            // Two worktrees may see two versions of a ledger in the tree, and a store elsewhere may serve other
            // repositories: each has an index of its own then.
            let same = self.ledgers.iter().all(|ledger| ledger.place != Place::Tree);
            let index = match self.toft.engine() {
                Engine::File(store) if same && self.toft.located().own_store() => Index::Store(store),
                _ => Index::Own(Box::new(SqliteStore::create(&own_index(&self.state, self.worktree))?)),
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

    /// A look at the index, which is brought up to the files first.
    fn look(&self) -> Result<IndexTx<'_>, Error> {
        self.refresh()?;
        self.index(Access::Read)
    }

    /// The ledgers seen from here, the one that is written to unless told otherwise first.
    pub fn ledgers(&self) -> &[Ledger] {
        &self.ledgers
    }

    /// Nobody has written an issue down here yet.
    fn unwritten(&self) -> bool {
        !self.ledgers.iter().any(|ledger| ledger.dir.exists())
    }

    /// When it is.
    pub fn now(&self) -> Result<Timestamp, Error> {
        Ok(store::ask(self.toft.store(), |tx| tx.now())?.wall)
    }

    /// The issue that a whole id or a unique prefix names.
    pub fn find(&self, text: &str) -> Result<Found, Error> {
        if self.unwritten() {
            return Err(Refusal::NotFound { what: "issue", text: text.to_owned() }.into());
        }
        let index = self.look()?;
        Found::of(&named(&index, text)?)
    }

    /// The same, for who looks again when it is their turn to write: a whole id that is known is enough.
    fn find_to_write(&self, text: &str) -> Result<Found, Error> {
        let known = if self.unwritten() { None } else { self.index(Access::Read)?.issue(text)? };
        known.map_or_else(|| self.find(text), |row| Found::of(&row))
    }

    /// An issue by its whole id, if any ledger here has it.
    pub fn known(&self, id: &str) -> Result<Option<Found>, Error> {
        self.look()?.issue(id)?.as_ref().map(Found::of).transpose()
    }

    /// The issue that `text` names, if it names one at all.
    pub fn named(&self, text: &str) -> Result<Option<Found>, Error> {
        match self.find(text) {
            Ok(found) => Ok(Some(found)),
            Err(Error::Refused(Refusal::NotFound { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Issues by what they are, newest first.
    pub fn list(&self, asked: &Asked) -> Result<Vec<Found>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        self.look()?.list(asked)?.iter().map(Found::of).collect()
    }

    /// Whether there are any issues at all.
    pub fn any(&self) -> Result<bool, Error> {
        Ok(!self.unwritten() && self.look()?.any()?)
    }

    /// How many issues there are, and how many are unfinished.
    pub fn counts(&self) -> Result<(u64, u64), Error> {
        if self.unwritten() {
            return Ok((0, 0));
        }
        Ok(self.look()?.counts()?)
    }

    /// The best issues with these labels that can start, up to `limit`; to take one, only such as may be taken unasked
    /// and can be written to.
    pub fn offers(&self, labels: &[String], to_take: bool, limit: usize) -> Result<Vec<Offer>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        let now = self.now()?;
        let index = self.look()?;
        let mut offers: Vec<Offer> = Vec::new();
        let not = if to_take { Some(NO_AUTO_CLAIM) } else { None };
        for row in index.ready(now, labels, not, limit)? {
            let Found { issue, ledger, rank, .. } = Found::of(&row)?;
            let writable = self.ledgers.iter().any(|known| known.name == ledger && !known.read_only);
            if (writable || !to_take) && offers.last().is_none_or(|last| last.issue.id != issue.id) {
                offers.push(Offer { issue, ledger, rank, reasons: Vec::new() });
            }
        }
        Ok(offers)
    }

    /// One issue as something to start, with what keeps it from starting.
    pub fn offer(&self, text: &str) -> Result<Offer, Error> {
        let Found { issue, ledger, rank, .. } = self.find(text)?;
        let reasons = self.held(&issue)?;
        Ok(Offer { issue, ledger, rank, reasons })
    }

    /// What keeps an issue from starting now, as far as the plan knows.
    fn held(&self, issue: &Issue) -> Result<Vec<Reason>, Error> {
        let now = self.now()?;
        let index = self.index(Access::Read)?;
        let Some(node) = index.node(&issue.id)? else { return Ok(Vec::new()) };
        Ok(standing(&mut index.nodes(), &node)?.reasons(now))
    }

    /// Everything that keeps an issue from starting now.
    pub fn why(&self, issue: &Issue) -> Result<Vec<Reason>, Error> {
        let mut reasons = self.held(issue)?;
        if let Some(On { workflow, holder: Some(_) }) = self.toft.perform(OnIt { issue: issue.id.clone() })? {
            reasons.push(Reason::Running { workflow: workflow.id.to_string() });
        }
        Ok(reasons)
    }

    /// Open issues that cannot start now, newest first, and why.
    pub fn not_ready(&self, limit: usize) -> Result<Vec<Offer>, Error> {
        let now = self.now()?;
        let mut offers = Vec::new();
        for found in self.list(&Asked::default())?.into_iter().filter(|found| !found.ready(now)).take(limit) {
            let reasons = self.why(&found.issue)?;
            offers.push(Offer { issue: found.issue, ledger: found.ledger, rank: found.rank, reasons });
        }
        Ok(offers)
    }

    /// What needs an issue.
    pub fn needed_by(&self, id: &str) -> Result<Vec<Found>, Error> {
        self.look()?.needed_by(id)?.iter().map(Found::of).collect()
    }

    /// Needs that no ledger here can show.
    pub fn dangling(&self, limit: usize) -> Result<Vec<(String, String)>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        Ok(self.look()?.dangling(limit)?)
    }
}

fn own_index(state: &std::path::Path, worktree: &str) -> PathBuf {
    state.join("index").join(format!("{worktree}.db"))
}

/// The row that a whole id or a unique prefix names.
fn named(index: &IndexTx<'_>, text: &str) -> Result<Indexed, Error> {
    if let Some(row) = index.issue(text)? {
        return Ok(row);
    }
    let prefixes = [text.to_owned(), format!("{}{text}", toft_core::issue::PREFIX)];
    let mut candidates = Vec::new();
    for prefix in prefixes {
        if candidates.is_empty() && !text.is_empty() {
            candidates = index.ids(&prefix, NAMED + 1)?;
        }
    }
    match candidates.as_slice() {
        [] => Err(Refusal::NotFound { what: "issue", text: text.to_owned() }.into()),
        [one] => index.issue(one)?.ok_or_else(|| {
            StoreError::Unreadable { table: "issues", id: one.clone(), cause: "it is gone".into() }.into()
        }),
        many => {
            let candidates = many.iter().take(NAMED).cloned().collect();
            Err(Refusal::Ambiguous { text: text.to_owned(), candidates }.into())
        }
    }
}
