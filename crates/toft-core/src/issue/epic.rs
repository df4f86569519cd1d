//! Epics follow their parts: an epic closes with its last open part, and opens again with a part that does.
//!
//! The command that changes a part writes what follows; readers never do.

use super::{
    CLOSED, Closed, DEFERRED, EPIC, Issue, OPEN, Put,
    edit::{By, told},
    proposal::ProposalSide,
};
use crate::refusal::VerbResult;

/// Why an epic is closed that closed with its last part.
pub const PARTS_CLOSED: &str = "all its parts are closed";

/// The parts of an epic, after one of them changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpicParts {
    /// How many are still to be done.
    pub open: u64,
    /// Whether any of them is closed; deleted parts do not count.
    pub any_closed: bool,
}

/// What is written about an epic after one of its parts changed; nothing for any other issue.
///
/// An epic that is assigned, that names a template or that is in progress has work of its own, and stays open until that
/// is done. One that was closed by hand stays closed.
pub fn follow_parts(issue: &Issue, parts: EpicParts, by: &By<'_>) -> VerbResult<Vec<Put>> {
    if issue.kind != EPIC || issue.deleted.is_some() || ProposalSide::of(issue) != ProposalSide::Own {
        return Ok(Vec::new());
    }
    let status = |status: &str| Put::Field("status".into(), Some(status.into()));
    let own_work = issue.assignee.is_some() || issue.template.is_some();
    match issue.status.as_str() {
        OPEN | DEFERRED if parts.open == 0 && parts.any_closed && !own_work => {
            let (at, by, reason) = (by.now, by.actor.to_owned(), PARTS_CLOSED.to_owned());
            let closed = Closed { at, by, reason, outcome: None, with_parts: true };
            Ok(vec![status(CLOSED), Put::Field("closed".into(), Some(told(&closed)?))])
        }
        CLOSED if parts.open > 0 && issue.closed.as_ref().is_some_and(|closed| closed.with_parts) => {
            Ok(vec![status(OPEN), Put::Field("closed".into(), None)])
        }
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    const BY: By<'static> = By { actor: "Ana", now: Timestamp(7), word: "" };

    fn epic(status: &str) -> Issue {
        Issue { id: "tf-1".into(), kind: EPIC.into(), status: status.into(), ..Issue::default() }
    }

    fn status_after(issue: &Issue, open: u64, any_closed: bool) -> Option<String> {
        let puts = follow_parts(issue, EpicParts { open, any_closed }, &BY).unwrap();
        puts.iter().find_map(|put| match put {
            Put::Field(name, Some(value)) if name == "status" => value.as_str().map(str::to_owned),
            _ => None,
        })
    }

    #[test]
    fn closes_with_the_last_open_part_only() {
        assert_eq!(status_after(&epic(OPEN), 1, true), None);
        assert_eq!(status_after(&epic(OPEN), 0, true).as_deref(), Some(CLOSED));
        assert_eq!(status_after(&epic(DEFERRED), 0, true).as_deref(), Some(CLOSED));
        assert_eq!(status_after(&epic(OPEN), 0, false), None, "its parts were all deleted");
        let task = Issue { kind: "task".into(), ..epic(OPEN) };
        assert_eq!(status_after(&task, 0, true), None);
    }

    #[test]
    fn with_work_of_its_own_stays_open() {
        assert_eq!(status_after(&epic("in_progress"), 0, true), None);
        assert_eq!(status_after(&Issue { assignee: Some("blue".into()), ..epic(OPEN) }, 0, true), None);
        assert_eq!(status_after(&Issue { template: Some("ship".into()), ..epic(OPEN) }, 0, true), None);
    }

    #[test]
    fn opens_again_only_if_it_closed_by_itself() {
        let closed = |with_parts| Closed {
            at: Timestamp(1),
            by: String::new(),
            reason: String::new(),
            outcome: None,
            with_parts,
        };
        let by_itself = Issue { closed: Some(closed(true)), ..epic(CLOSED) };
        let by_hand = Issue { closed: Some(closed(false)), ..epic(CLOSED) };
        assert_eq!(status_after(&by_itself, 1, true).as_deref(), Some(OPEN));
        assert_eq!(status_after(&by_itself, 0, true), None);
        assert_eq!(status_after(&by_hand, 1, true), None);
    }
}
