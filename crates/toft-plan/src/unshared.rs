//! Issues that were deleted or moved before another clone had them: they leave no text except on this machine.
//!
//! Their lines are removed from the ledger and kept beside the repository's state, so that `toft reopen` and `toft
//! undo` can restore them.

use std::{collections::HashSet, fs, path::PathBuf};

use toft_core::{issue::proposal::ProposalSide, refusal::Refusal, store::Access};
use toft_ledger::{file::LedgerLock, line};
use toft_session::error::{Error, io};
use toft_vcs::exchange::{self, Files};

use super::{Ledger, LedgerKind, Plan};

impl Plan<'_> {
    /// The file of lines that were removed from a ledger and never shared.
    fn kept_here(&self, ledger: &str) -> PathBuf {
        self.state.join("deleted").join(format!("{ledger}.jsonl"))
    }

    /// Removes tombstones that the remote never had from a ledger. If its history was replaced, other clones may know
    /// the issues from before: then a tombstone without text is kept.
    pub(super) fn forget_unshared(&self, ledger: &Ledger, theirs: &Files, rewritten: bool) -> Result<(), Error> {
        let there = |id: &str| theirs.values().any(|bytes| contains(bytes, id));
        let gone = self.tombstones(ledger, |id| !there(id))?;
        match rewritten {
            _ if gone.is_empty() => Ok(()),
            true => self.write_received(ledger, |draft| gone.iter().try_for_each(|id| draft.clear(id, &["deleted"]))),
            false => self.take_away(ledger, &gone),
        }
    }

    /// The same for issues of a ledger in the working tree, which the user may commit at any time: they are removed
    /// immediately if no commit contains them.
    pub(super) fn forget_uncommitted(&self, ledger: &Ledger, ids: &[&str]) -> Result<(), Error> {
        if ledger.place != LedgerKind::Tree {
            return Ok(());
        }
        let mut gone = self.tombstones(ledger, |id| ids.contains(&id))?;
        for id in ids {
            if gone.contains(*id) && exchange::committed(self.checkout, &ledger.dir, id)? {
                gone.remove(*id);
            }
        }
        if gone.is_empty() { Ok(()) } else { self.take_away(ledger, &gone) }
    }

    /// Deleted issues of a ledger, without rejected proposals: their proposer must receive the tombstone.
    fn tombstones(&self, ledger: &Ledger, wanted: impl Fn(&str) -> bool) -> Result<HashSet<String>, Error> {
        self.refresh()?;
        let mut found = HashSet::new();
        for row in self.index(Access::Read)?.all_of(&ledger.name)? {
            if !row.line.contains("\"deleted\":{") || row.line.contains(super::purge::MARK) {
                continue;
            }
            let issue = row.issue()?;
            let own = issue.origin.is_none() && ProposalSide::of(&issue) == ProposalSide::Own;
            if own && issue.deleted.is_some() && wanted(&issue.id) {
                found.insert(issue.id);
            }
        }
        Ok(found)
    }

    /// Removes every line of these issues from a ledger, and keeps them here.
    fn take_away(&self, ledger: &Ledger, ids: &HashSet<String>) -> Result<(), Error> {
        let turn = LedgerLock::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
        for file in ledger.files()? {
            let path = ledger.dir.join(&file);
            let Some(bytes) = ledger.read(&file)? else { continue };
            let id_of = |bytes: &[u8]| {
                let line = line::read(std::str::from_utf8(bytes).ok()?.trim_end()).ok()?;
                Some(line.record.id().to_owned()).filter(|id| ids.contains(id))
            };
            let (gone, rest): (Vec<&[u8]>, Vec<&[u8]>) =
                bytes.split_inclusive(|byte| *byte == b'\n').partition(|line| id_of(line).is_some());
            if gone.is_empty() {
                continue;
            }
            // What a move left behind is whole in the other ledger.
            let titled: HashSet<String> =
                gone.iter().filter(|line| contains(line, "\"title\":")).filter_map(|line| id_of(line)).collect();
            let told: Vec<&[u8]> = gone
                .iter()
                .filter(|line| id_of(line).is_some_and(|id| titled.contains(&id)))
                .map(|line| line.trim_ascii_end())
                .collect();
            if !told.is_empty() {
                let aside = self.kept_here(&ledger.name);
                turn.append(&aside, &told).map_err(io("write", &aside))?;
            }
            turn.replace(&path, |out| out.write_all(&rest.concat())).map_err(io("write", &path))?;
        }
        self.refresh_in_turn(Some(ledger))
    }

    /// Puts a deleted issue that was never shared back into its ledger, still deleted, if no ledger contains it.
    pub fn recall(&self, text: &str) -> Result<(), Error> {
        match self.find(text) {
            Err(Error::Refused(Refusal::NotFound { .. })) => {}
            found => return found.map(drop),
        }
        for ledger in &self.ledgers {
            let kept = fs::read_to_string(self.kept_here(&ledger.name)).unwrap_or_default();
            let named = |id: &str| id == text || id.strip_prefix(toft_core::issue::PREFIX) == Some(text);
            let lines = kept.lines().filter_map(|text| line::read(text).ok());
            let lines: Vec<line::Line> = lines.filter(|line| named(line.record.id())).collect();
            if !lines.is_empty() {
                return self.write_received(ledger, |draft| lines.into_iter().try_for_each(|line| draft.take(line)));
            }
        }
        Ok(())
    }

    /// Deletes the kept lines of an issue.
    pub(super) fn forget_kept(&self, ledger: &Ledger, id: &str) -> Result<(), Error> {
        let path = self.kept_here(&ledger.name);
        let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
        let rest: String = text.split_inclusive('\n').filter(|line| !line.contains(id)).collect();
        let turn = LedgerLock::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
        turn.replace(&path, |out| out.write_all(rest.as_bytes())).map_err(io("write", &path)).map(drop)
    }
}

pub(super) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
