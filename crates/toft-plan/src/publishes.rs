//! What a ledger publishes from this clone, and under which names.

use std::path::PathBuf;

use serde::Serialize;
use toft_core::secret;
use toft_session::{config::Names, error::Error};
use toft_vcs::exchange::{self, Contact, DirectoryExchange, LEDGER_BRANCH};

use super::{Ledger, LedgerKind, Plan, sync::own};

/// What leaves with a ledger.
const ALL: &str = "every issue with its comments and history of changes, deleted ones that were shared as tombstones";

/// What a ledger publishes from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Publishes {
    pub ledger: String,
    /// The kind of the ledger.
    pub place: LedgerKind,
    /// Its directory.
    pub dir: PathBuf,
    /// The remote with which it is exchanged, and its URL without a password.
    pub remote: Option<(String, String)>,
    /// The branch there that toft writes to.
    pub branch: Option<String>,
    /// Describes what a sync sends.
    pub sends: String,
    /// Which names it contains: git's author, or the agents'.
    pub names: Names,
    /// The name that would be written now.
    pub name: String,
    /// This clone's id in clocks: random, generated once for this clone.
    pub replica: String,
}

impl Plan<'_> {
    /// What a ledger publishes from here; nothing is requested from a remote.
    pub fn publishes(&self, name: &str) -> Result<Publishes, Error> {
        let ledger = self.called(name)?;
        let reach = match ledger.place {
            LedgerKind::Branch | LedgerKind::Tree => self.reach(),
            LedgerKind::Planning | LedgerKind::Shared => Contact { remote: None, ..self.reach() },
        };
        let around = match ledger.place {
            LedgerKind::Branch | LedgerKind::Tree => Some(self.checkout.clone()),
            LedgerKind::Planning | LedgerKind::Shared if ledger.dir.exists() => toft_vcs::find(&ledger.dir)?,
            LedgerKind::Planning | LedgerKind::Shared => None,
        };
        let remote = match &around {
            Some(around) => exchange::remote(around, reach)?.map(|(name, url)| (name, secret::masked(&url))),
            None => None,
        };
        let (branch, sends) = self.sends(ledger, reach, around.is_some())?;
        let sync = &self.session.located().sync;
        Ok(Publishes {
            ledger: ledger.name.clone(),
            place: ledger.place,
            dir: ledger.dir.clone(),
            branch: branch.filter(|_| remote.is_some()),
            sends: match (self.server_of(ledger), remote.is_some()) {
                (Some(server), true) => format!("{sends}; {server} has the same at once"),
                (Some(server), false) => format!("to {server}, at once: {ALL}"),
                (None, true) => sends,
                (None, false) => "nothing: it has no remote".to_owned(),
            },
            remote,
            names: sync.names,
            name: self.name_of(&self.session.located().agent).to_owned(),
            replica: self.replica()?.to_string(),
        })
    }

    /// The branch that a sync writes to, and what it sends there.
    fn sends(&self, ledger: &Ledger, reach: Contact<'_>, versioned: bool) -> Result<(Option<String>, String), Error> {
        let all = ALL;
        Ok(match ledger.place {
            _ if ledger.read_only => (None, "nothing: it is read only here".to_owned()),
            _ if !versioned => (None, "nothing: it is not under version control".to_owned()),
            LedgerKind::Branch if ledger.kept_by_others => {
                (None, "nothing; toft propose sends one issue, on a branch of its own".to_owned())
            }
            LedgerKind::Branch => (Some(reach.branch.unwrap_or(LEDGER_BRANCH).to_owned()), all.to_owned()),
            LedgerKind::Tree => (None, "nothing; its file leaves with your commits".to_owned()),
            LedgerKind::Planning | LedgerKind::Shared if !ledger.dir.exists() => (None, "nothing yet".to_owned()),
            LedgerKind::Planning | LedgerKind::Shared => match own(ledger, reach)? {
                Some(DirectoryExchange::Shared(_, why)) => (None, format!("nothing: {why}")),
                _ => (Some(LEDGER_BRANCH.to_owned()), all.to_owned()),
            },
        })
    }
}
