//! Issues that a ledger records as in progress, although no agent can be working on them: the store with the claim is
//! gone, or the clone that made it has been silent for long. They are opened again, with the reason.

use std::{collections::BTreeMap, time::Duration};

use toft_core::{
    issue::{CLOSED, IN_PROGRESS, edit},
    time::Timestamp,
    verbs::{
        facts,
        issue::Pending,
        log,
        status::{self, NeedsYou},
    },
};
use toft_ledger::{clock::Clock, line, record::Key};
use toft_session::{error::Error, session::random_ids};

use super::{FoundIssue, IssueFilter, Plan};

/// A claim of another clone, or of another store of this clone, is respected for this long after it was written.
const HONOURED: Duration = Duration::from_secs(24 * 3_600);

/// Why an issue without a holder is recorded as in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Orphan {
    /// This clone claimed it, but its only store does not contain the claim.
    StoreGone,
    /// Another clone, or another store, claimed it this long ago; it was silent since.
    Silent(Duration),
    /// Another clone, or another store, claimed it recently: it is not changed.
    Elsewhere(Duration),
}

impl Orphan {
    /// What happens to it, and when.
    pub fn explained(&self) -> String {
        let hours = |span: &Duration| span.as_secs() / 3_600;
        match self {
            Self::StoreGone => {
                "is in progress, and the store that had its claim no longer exists: the next claim reopens it"
                    .to_owned()
            }
            Self::Silent(age) => {
                format!(
                    "was claimed elsewhere {} h ago, and nothing was heard since: the next claim opens it again",
                    hours(age)
                )
            }
            Self::Elsewhere(age) => format!(
                "was claimed in another clone or store {} h ago: it is not offered for {} h",
                hours(age),
                hours(&HONOURED)
            ),
        }
    }
}

impl Plan<'_> {
    /// Leaves out of a status what is about issues that were closed: closing one was the decision.
    pub fn leave_out_closed(&self, status: &mut status::Outcome) -> Result<(), Error> {
        let mut known: BTreeMap<String, bool> = BTreeMap::new();
        let mut is_closed = |id: &str| match known.get(id) {
            Some(closed) => Ok::<bool, Error>(*closed),
            None => {
                let closed = self.known(id)?.is_some_and(|found| found.issue.status == CLOSED);
                known.insert(id.to_owned(), closed);
                Ok(closed)
            }
        };
        let mut needs = Vec::new();
        for need in std::mem::take(&mut status.needs_you) {
            let issue = match &need {
                NeedsYou::Question { issue, .. }
                | NeedsYou::Failed { issue, .. }
                | NeedsYou::Assigned { issue, .. } => issue.as_deref(),
                _ => None,
            };
            if !issue.map_or(Ok(false), &mut is_closed)? {
                needs.push(need);
            }
        }
        status.needs_you = needs;
        let mut workflows = Vec::new();
        for listed in std::mem::take(&mut status.workflows) {
            if !listed.workflow.issue().map_or(Ok(false), &mut is_closed)? {
                workflows.push(listed);
            }
        }
        status.workflows = workflows;
        Ok(())
    }

    /// Issues that are recorded as in progress without an active workflow in this store.
    pub fn orphans(&self) -> Result<Vec<(FoundIssue, Orphan)>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        let claimed = IssueFilter { status: Some(IN_PROGRESS.into()), ..IssueFilter::default() };
        let (now, mut orphans) = (self.now()?, Vec::new());
        // The index may share its connection with the store: one is asked after the other.
        let rows = {
            let index = self.look()?;
            self.laid(&index, index.list(&claimed)?)?
        };
        let pending =
            if rows.is_empty() { Vec::new() } else { self.session.perform(Pending { scope: self.session.scope() })? };
        let ledger_pending: Vec<String> =
            pending.iter().filter_map(|news| news.workflow.issue()).map(str::to_owned).collect();
        for row in rows {
            let found = FoundIssue::of(&row)?;
            let progress = facts::IssueProgress { issue: found.issue.id.clone() };
            if self.session.perform(progress)? != facts::IssueStage::Idle
                || ledger_pending.contains(&found.issue.id)
                || self.store_had(&found.issue.id)?
            {
                continue;
            }
            // A line that was touched by hand has no clock of its own for the status: its age cannot be told.
            let Some(clock) = line::read(&row.line)
                .ok()
                .and_then(|line| line.record.registers().get(&Key::field("status")).map(|register| register.clock))
            else {
                continue;
            };
            let orphan = self.judge(clock, now)?;
            orphans.push((found, orphan));
        }
        Ok(orphans)
    }

    fn judge(&self, claimed: Clock, now: Timestamp) -> Result<Orphan, Error> {
        let age = now.since(Timestamp(i64::try_from(claimed.ms).unwrap_or(i64::MAX)));
        let ours = claimed.replica == self.replica()?;
        Ok(match age >= HONOURED {
            _ if ours && self.session.located().own_store() && self.uses_one_store() => Orphan::StoreGone,
            true => Orphan::Silent(age),
            false => Orphan::Elsewhere(age),
        })
    }

    /// Whether this store ever had the issue's claim. Then nothing is lost: it recorded the end in a ledger, perhaps in
    /// the copy in a workspace's own tree.
    fn store_had(&self, issue: &str) -> Result<bool, Error> {
        const CLAIMED: [&str; 4] = ["issue.started", "issue.released", "issue.closed", "issue.reopened"];
        let events = self.session.perform(log::Request {
            issue: Some(issue.to_owned()),
            limit: 50,
            ..log::Request::default()
        })?;
        Ok(events.iter().any(|event| CLAIMED.contains(&event.verb.as_str())))
    }

    /// Whether this clone was never registered with a store other than its own.
    fn uses_one_store(&self) -> bool {
        !self.state.join("stores").exists()
    }

    /// Opens every issue again whose claim is lost for good; returns their number.
    pub fn free_orphans(&self) -> Result<usize, Error> {
        let mut freed = 0;
        for (found, orphan) in self.orphans()? {
            let reason = match orphan {
                Orphan::StoreGone => "the store that had its claim is gone".to_owned(),
                Orphan::Silent(age) => format!("claimed elsewhere {} h ago, and silent since", age.as_secs() / 3_600),
                Orphan::Elsewhere(_) => continue,
            };
            let ledger = match self.route(Some(&found.ledger), None) {
                Ok(ledger) => ledger,
                // It is opened again from where it can be written.
                Err(Error::Refused(_)) => continue,
                Err(error) => return Err(error),
            };
            let (now, word) = (self.now()?, random_ids().word());
            self.change_in(ledger, &found.issue.id, "issue.released", |_, issue| {
                // Whoever was faster has opened it, and may be on it by now.
                let mut puts = if *issue == found.issue { edit::give_back(issue) } else { Vec::new() };
                if !puts.is_empty() {
                    puts.push(edit::comment(
                        &format!("Open again: {reason}"),
                        &edit::By { actor: "toft", now, word: &word },
                    ));
                }
                Ok(puts)
            })?;
            freed += 1;
        }
        Ok(freed)
    }
}
