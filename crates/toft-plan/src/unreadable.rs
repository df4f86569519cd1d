//! A ledger that cannot be read is one bad row: everything else continues, and every command reports it beside its
//! outcome.

use std::{path::Path, sync::PoisonError};

use toft_core::store::Access;
use toft_session::error::Error;

use super::{Ledger, LedgerKind, Plan, place::ISSUES};

impl Plan<'_> {
    /// Refuses a ledger that is missing now. If it had a file before, no new, empty one is created: a disk that is not
    /// mounted looks like that.
    pub(super) fn check_there(&self, ledger: &Ledger) -> Result<(), Error> {
        ledger.check_there()?;
        let path = ledger.issues();
        let shared = matches!(ledger.place, LedgerKind::Planning | LedgerKind::Shared) && self.aside.is_none();
        if !shared || path.exists() || self.index(Access::Read)?.file(&ledger.name, ISSUES)?.is_none() {
            return Ok(());
        }
        let why = "it existed before; is its disk mounted? `toft ledger remove` removes it from the list";
        let cause = std::io::Error::new(std::io::ErrorKind::NotFound, why);
        Err(Error::Io { doing: "find", path, cause })
    }

    /// Continues without a ledger that cannot be read: its last known content is used. An error of the store is
    /// returned.
    pub(super) fn leave_out(&self, ledger: &Ledger, error: Error) -> Result<(), Error> {
        if matches!(error, Error::Store(_)) {
            return Err(error);
        }
        self.session
            .note(format!("ledger `{}` cannot be read now, so its last known content is used: {error}", ledger.name));
        let mut bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        bad.insert(ledger.name.clone(), error.to_string());
        Ok(())
    }

    /// Ledgers that cannot be read now, with the reason.
    pub fn unreadable(&self) -> Result<Vec<(String, String)>, Error> {
        self.refresh()?;
        let bad = self.bad.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(bad.iter().map(|(name, why)| (name.clone(), why.clone())).collect())
    }

    /// The ledgers of this checkout, each with the reason if it cannot be read.
    pub fn examined_ledgers(&self) -> Result<Vec<Ledger>, Error> {
        let bad = self.unreadable()?;
        let mut ledgers = self.ledgers.clone();
        for ledger in &mut ledgers {
            ledger.problem = bad.iter().find(|(name, _)| *name == ledger.name).map(|(_, why)| why.clone());
        }
        Ok(ledgers)
    }

    /// The directory of the caller relative to the repository, with `/` as separator.
    pub(super) fn path_here(&self) -> String {
        let dir = std::fs::canonicalize(&self.session.located().dir).unwrap_or_default();
        let within = dir.strip_prefix(&self.checkout.root).unwrap_or(Path::new(""));
        let parts: Vec<_> = within.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
        parts.join("/")
    }
}
