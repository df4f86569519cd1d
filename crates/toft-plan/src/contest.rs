//! Issues that were claimed in two clones: notifies the user of the clone that syncs, and the other clone through the
//! ledger.

use std::collections::BTreeSet;

use toft_core::{
    issue::edit,
    refusal::Refusal,
    verbs::contest::{self, Contest, Outcome},
};
use toft_ledger::{
    line,
    record::{Key, Record},
};
use toft_session::error::Error;

use super::{Ledger, Plan, copy::Lines, write::issue_of};

impl Plan<'_> {
    /// Finds which issues of these lines are also worked on in this clone, and whether a ledger has to record again
    /// that an issue is held.
    pub(super) fn find_contests(&self, lines: &Lines, try_only: bool) -> Result<(Vec<Contest>, bool), Error> {
        let mut contests = Vec::new();
        if try_only || lines.is_empty() {
            return Ok((contests, false));
        }
        let open: BTreeSet<String> =
            self.session.perform(contest::Open { scope: self.session.scope() })?.into_iter().collect();
        let mut still_held = false;
        for line in lines.iter().filter(|(id, _)| open.contains(*id)).flat_map(|(_, lines)| lines) {
            let written_there = self.status_from_elsewhere(&line.record)?;
            let status = line.record.registers().get(&Key::field("status"));
            let replica = status.map(|register| register.clock.replica.to_string());
            let request = contest::Request { issue: issue_of(&line.record)?, written_there, replica };
            match self.session.perform(request) {
                Ok(Outcome::Known) => {}
                Ok(Outcome::StillHeld) => still_held = true,
                Ok(Outcome::Contested(contest)) => contests.push(contest),
                // Who only reads claims nothing that another could have claimed, too.
                Err(Error::Refused(Refusal::TokenDenied { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((contests, still_held))
    }

    /// Notifies the user here, and the other clone with a comment in the ledger, which has the issue by now.
    pub(super) fn tell_contests(&self, ledger: &Ledger, contests: Vec<Contest>) -> Result<(), Error> {
        for contest in contests {
            if let (Some(here), Some(said)) = (&contest.here, contest.said()) {
                let by = edit::By { actor: here, now: self.now()?, word: &contest.comment };
                let said = edit::comment(&said, &by);
                self.write(ledger, |draft| {
                    let issue = draft.issue(&contest.issue)?;
                    draft.change(&issue, &[said])
                })?;
            }
            self.session.note(contest.to_string());
        }
        Ok(())
    }

    /// Whether another clone wrote the status of an issue in a ledger. Unknown if several clones share the store.
    pub(super) fn claimed_elsewhere(&self, ledger: &Ledger, id: &str) -> Result<bool, Error> {
        if !self.session.located().own_store() {
            return Ok(false);
        }
        let row = self.look()?.line(&ledger.name, id)?;
        match row.and_then(|row| line::read(&row.line).ok()) {
            Some(line) => self.status_from_elsewhere(&line.record),
            None => Ok(false),
        }
    }

    fn status_from_elsewhere(&self, record: &Record) -> Result<bool, Error> {
        match record.registers().get(&Key::field("status")) {
            Some(register) => Ok(register.clock.replica != self.replica()?),
            None => Ok(false),
        }
    }
}
