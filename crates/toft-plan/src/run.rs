//! Issues and their workflows: a claim starts one, and its end closes the issue.

use toft_core::{
    flow::WorkflowStatus,
    issue::edit,
    refusal::Refusal,
    verbs::{
        claim,
        contest::REPLICA,
        flow,
        issue::{News, On, OnIt, Pending, Told},
    },
};
use toft_session::error::Error;

use super::{Ledger, Plan, Wrote, noted::noted};

/// Minimum number of issues that are offered to a claim; other agents may take some of them in the meantime.
const OFFERED: usize = 16;

impl Plan<'_> {
    /// Adds the plan's offers to a claim request. Only issues whose ledger can be written are offered; returns the
    /// problem with the first that cannot.
    pub fn offer_to(&self, actor: &str, request: &mut claim::Request) -> Result<Option<Error>, Error> {
        let _span = self.session.engine().read_span();
        self.tell();
        let Some(text) = &request.id else {
            let mut hindered = None;
            let mut offers = self.offers(actor, &request.labels, true, OFFERED.max(request.count * 2))?;
            for ledger in &self.ledgers {
                if offers.iter().any(|offer| offer.ledger == ledger.name)
                    && let Err(error) = self.route(Some(&ledger.name), None).and_then(Ledger::check_writable)
                {
                    offers.retain(|offer| offer.ledger != ledger.name);
                    hindered = hindered.or(Some(error));
                }
            }
            request.offers = offers;
            return Ok(hindered);
        };
        match self.offer(text) {
            Ok(offer) => {
                self.route(Some(&offer.ledger), None)?.check_writable()?;
                request.id = Some(offer.issue.id.clone());
                request.offers = vec![offer];
                Ok(None)
            }
            Err(Error::Refused(Refusal::NotFound { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the assignee of an issue that is not in progress to the ledger.
    pub fn assign(&self, id: &str, to: Option<&str>) -> Result<Wrote, Error> {
        self.change(id, "issue.edited", |_, issue| Ok(edit::assign(issue, to)?))
    }

    /// Before an issue is closed or deleted by a user: checks that no agent holds it, and abandons its workflow.
    pub(super) fn let_go(&self, id: &str, why: &str) -> Result<(), Error> {
        match self.session.perform(OnIt { issue: id.to_owned() })? {
            None => Ok(()),
            Some(On { holder: Some(holder), .. }) => Err(Refusal::WrongState {
                id: id.to_owned(),
                state: format!("held by {holder}"),
                wanted: "who holds it finishes it, or gives it back".into(),
            }
            .into()),
            Some(On { workflow, .. }) => {
                let reason = Some(why.to_owned()).filter(|why| !why.is_empty());
                let request = flow::Move { id: workflow.id.to_string(), to: flow::Step::Abandon, reason };
                self.session.perform(request).map(drop)
            }
        }
    }

    /// Updates ledgers with the current state of their issues. If a ledger cannot be written, it is updated after the
    /// next verb, and the problem becomes a note.
    pub fn tell(&self) {
        if self.unwritten() {
            return;
        }
        let _span = self.session.engine().read_span();
        let pending = match self.session.perform(Pending { scope: self.session.scope() }) {
            Ok(pending) => pending,
            Err(error) => return self.session.note_failure("the ledgers were not told yet", &error),
        };
        for news in pending {
            let issue = news.workflow.issue().unwrap_or_default().to_owned();
            match self.tell_one(&issue, news) {
                Ok(()) => {}
                // Its ledger cannot be seen or written from here; it is told from where it can.
                Err(Error::Refused(_)) => {}
                Err(error) => self.session.note(format!("the ledger is not updated for {issue} yet: {error}")),
            }
        }
    }

    fn tell_one(&self, issue: &str, news: News) -> Result<(), Error> {
        let News { workflow, holder, outcome, ended_by, finished, bounced } = &news;
        let now = self.now()?;
        let found = self.find_as_read(issue)?;
        let ledger = self.route(Some(&found.ledger), None)?;
        // A claim that another clone wrote is not ours to give back.
        let theirs = holder.is_none() && self.claimed_elsewhere(ledger, &found.issue.id)?;
        // While others wrote, the store may have moved on, or this have been told.
        let is_news = || Ok(self.session.perform(Pending { scope: self.session.scope() })?.contains(&news));
        let wrote =
            self.change_quietly_if(ledger, &found.issue.id, is_news, |issue| match (workflow.status, holder) {
                (WorkflowStatus::Completed, _) => {
                    let summary = outcome.as_ref().map(|outcome| outcome.summary.clone()).unwrap_or_default();
                    let outcome = toft_core::json::to_value(&outcome).ok().filter(|outcome| !outcome.is_null());
                    let actor = ended_by.as_deref().map_or("toft", |actor| self.name_of(actor));
                    let by = edit::By { actor, now, word: "" };
                    Ok(edit::close(issue, &summary, outcome, &by)?)
                }
                (WorkflowStatus::Failed, _) if !theirs => {
                    let reason = outcome.as_ref().map_or("its leases were lost", |outcome| outcome.summary.as_str());
                    // Two that tell it at once say the same.
                    let word = format!("{}-{}", workflow.id, workflow.updated.0);
                    Ok(edit::park(issue, reason, &edit::By { actor: "toft", now, word: &word }))
                }
                (_, None) | (WorkflowStatus::Abandoned | WorkflowStatus::Failed, _) if theirs => Ok(Vec::new()),
                // It stays in progress until it has landed.
                (WorkflowStatus::Running | WorkflowStatus::Paused, None) if *finished => {
                    Ok(edit::start(issue, self.name_of(ended_by.as_deref().unwrap_or("toft"))))
                }
                (WorkflowStatus::Running | WorkflowStatus::Paused, None) if *bounced => Ok(edit::reopen(issue)),
                (WorkflowStatus::Abandoned, _) | (_, None) => Ok(edit::give_back(issue)),
                (_, Some(holder)) => Ok(edit::start(issue, self.name_of(holder))),
            })?;
        let Some(wrote) = wrote else { return Ok(()) };
        let (mut noted, epics) = (noted(&wrote), self.follow_epics(std::slice::from_ref(&wrote)));
        if let Some(noted) = &mut noted {
            noted.detail[REPLICA] = self.replica()?.to_string().into();
        }
        self.session.perform(Told { news, noted, epics })
    }
}

#[cfg(test)]
mod tests {
    use toft_core::verbs::finish;

    use super::*;
    use crate::fixture::repository;

    #[test]
    fn news_that_came_too_late_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (session, ids) = repository(dir.path(), "one", &["Late"]);
        let (plan, id) = (Plan::open(&session).unwrap().unwrap(), &ids[0]);
        let pending = || session.perform(Pending { scope: session.scope() }).unwrap();
        let status = || plan.find(id).unwrap().issue.status;
        let claim = || {
            let mut request = claim::Request { id: Some(id.clone()), ..claim::Request::default() };
            plan.offer_to("ana", &mut request).unwrap();
            session.perform(request).unwrap().claims.remove(0)
        };
        let claimed = claim();
        let started = pending().remove(0);
        plan.tell();
        assert_eq!(status(), "in_progress");
        let fence = Some(claimed.lease.fence());
        session.perform(finish::Request { fence, ..finish::Request::default() }).unwrap();
        let released = pending().remove(0);
        plan.tell();
        assert_eq!(status(), "open");
        plan.tell_one(id, started).unwrap();
        assert_eq!(status(), "open", "it is not in progress any more");
        claim();
        plan.tell();
        plan.tell_one(id, released).unwrap();
        assert_eq!(status(), "in_progress", "it is in progress again");
    }
}
