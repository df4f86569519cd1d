//! Epics follow their parts: the command that wrote about a part then writes about its epic (`core/issue/epic.rs`).

use std::collections::BTreeSet;

use toft_core::{
    issue::{CLOSED, EPIC, Issue, Put, epic::follow_parts},
    verbs::issue::{Noted, OnIt},
};
use toft_session::error::Error;

use super::{Plan, Wrote, draft::Draft, noted::noted};

/// Nothing is nested deeper.
const DEEPEST: usize = 100;

/// Whether a write can matter to the epic of an issue. A closing that is asked for again matters: the first may have been
/// interrupted.
fn matters(Wrote { issue, before, .. }: &Wrote) -> bool {
    const FIELDS: [&str; 3] = ["status", "deleted", "parent"];
    match before {
        None => issue.status == CLOSED,
        Some(before) => {
            before.now.iter().any(|put| matches!(put, Put::Field(name, _) if FIELDS.contains(&name.as_ref())))
        }
    }
}

impl Plan<'_> {
    /// Closes epics whose last open part was written about, and opens those again that closed with it. Gives what history
    /// says of them. An epic that cannot be written is left as it is, which is noted.
    pub(super) fn follow_epics(&self, wrote: &[Wrote]) -> Vec<Noted> {
        let parents = wrote.iter().filter(|wrote| matters(wrote)).filter_map(|wrote| wrote.issue.parent.clone());
        self.follow_each(parents.collect())
    }

    /// The same for epics of parts that were taken in from another clone.
    pub(super) fn follow_each(&self, epics: BTreeSet<String>) -> Vec<Noted> {
        let mut followed = Vec::new();
        for epic in epics {
            let mut next = Some(epic);
            for _ in 0..DEEPEST {
                let Some(id) = next.take() else { break };
                match self.follow_one(&id) {
                    Ok(Some(wrote)) => {
                        self.session.note(said(&wrote.issue));
                        followed.extend(noted(&wrote));
                        next = wrote.issue.parent;
                    }
                    Ok(None) => {}
                    // Whoever can write to its ledger closes it.
                    Err(Error::Refused(_)) => {}
                    Err(error) => self.session.note(format!("the epic {id} was not changed: {error}")),
                }
            }
        }
        followed
    }

    fn follow_one(&self, id: &str) -> Result<Option<Wrote>, Error> {
        let Some(found) = self.known(id)?.filter(|found| found.issue.kind == EPIC) else { return Ok(None) };
        let ledger = self.route(Some(&found.ledger), None)?;
        let now = self.now()?;
        let follow = |draft: &mut Draft<'_>| {
            let issue = draft.issue(id)?;
            let puts = follow_parts(&issue, draft.parts_of(id)?, &self.by("", now))?;
            draft.change(&issue, &puts)
        };
        if self.rehearse(ledger, follow)?.before.is_none() {
            return Ok(None);
        }
        // A workflow on an epic is work of its own, and closes it at its end.
        if found.issue.status != CLOSED && self.session.perform(OnIt { issue: id.to_owned() })?.is_some() {
            return Ok(None);
        }
        let wrote = self.write(ledger, follow)?;
        Ok(wrote.before.is_some().then_some(wrote))
    }
}

fn said(epic: &Issue) -> String {
    match &epic.closed {
        Some(closed) => format!("the epic {} \"{}\" is closed too: {}", epic.id, epic.title, closed.reason),
        None => format!("the epic {} \"{}\" is open again: one of its parts is", epic.id, epic.title),
    }
}
