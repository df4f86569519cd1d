//! How a slot ends what it holds: the outcome is reported, the task released.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use toft_core::{
    flow::{Ending, ProviderRefusal, Report, TaskStatus},
    refusal::Refusal,
    verbs::{
        claim::Claimed,
        facts,
        finish::{self, How, WaitFor},
        report, stop,
    },
};
use toft_session::{error::Error, provider::RestingAgent, recipe::UsageLimit};

use super::super::budget::Spent;
use super::{AttemptEnd, LONGEST_REST, LONGEST_WAIT, REST, Slot, SlotEvent};

impl Slot {
    /// The lease could not be renewed: another agent may have the task now, and this attempt does not count.
    pub(super) fn lost(&self, claimed: &Claimed, why: &str, ran_ms: u64) -> Result<(), Error> {
        let (task, issue) = (claimed.task.id.to_string(), claimed.issue.clone());
        let message = format!("stopped before the task could be given to another: {why}");
        let told = message.clone();
        let (how, parked, cost, tokens) = ("lost".into(), false, None, None);
        self.events.send(SlotEvent::Ended { task, issue, how, message: told, parked, ran_ms, cost, tokens });
        self.patiently(|| self.give_back(claimed, &message))
    }

    /// Records a failure, which counts as an attempt.
    pub(super) fn fail(&self, claimed: &Claimed, message: &str) -> Result<(), Error> {
        let (task, issue) = (claimed.task.id.to_string(), claimed.issue.clone());
        let request = finish::Request {
            id: Some(task.clone()),
            fence: Some(claimed.lease.fence()),
            how: How::Failed,
            message: self.mask.mask(message),
            ..finish::Request::default()
        };
        let outcome = self.work().finish(&self.name, None, request)?;
        let (message, parked) = (self.mask.mask(message), outcome.task.state.status == TaskStatus::Failed);
        let (how, ran_ms, cost, tokens) = ("failed".into(), 0, None, None);
        self.events.send(SlotEvent::Ended { task, issue, how, message, parked, ran_ms, cost, tokens });
        Ok(())
    }

    pub(super) fn conclude(&self, claimed: &Claimed, came: AttemptEnd) -> Result<(), Error> {
        let (task, fence) = (&claimed.task, claimed.lease.fence());
        let AttemptEnd { seen, report, cost, order, verified } = came;
        let (ran_ms, tokens) =
            (report.ran_ms, report.usage.map(|usage| usage.input_tokens.saturating_add(usage.output_tokens)));
        let ended = |how: &str, message: String, parked: bool| {
            let (task, issue) = (task.id.to_string(), claimed.issue.clone());
            let how = how.to_owned();
            self.events.send(SlotEvent::Ended { task, issue, how, message, parked, ran_ms, cost, tokens });
        };
        if let Some(order) = order.filter(|_| seen.ending == Ending::Stopped) {
            let (message, how) = (order.to_string(), if order.park { "parked" } else { "released" });
            let request = stop::Obey { task: task.id.clone(), fence, report, cost };
            let outcome = self.patiently(|| self.work().obey_stop(&self.name, request.clone()))?;
            ended(how, message, outcome.task.state.status == TaskStatus::Failed);
            return Ok(());
        }
        match seen.refusal() {
            Some(refused) => self.note_refusal(refused.clone()),
            None if seen.ending == Ending::Exited(0) && !self.rules.agent.is_empty() => {
                RestingAgent::served(&self.rules.agent);
            }
            None => {}
        }
        let (mut how, mut message) = seen.judge();
        let mut choices = seen.word.choices.clone();
        if !matches!(how, How::Waiting(WaitFor::Human)) {
            choices.clear();
        }
        if matches!(how, How::Failed | How::Release | How::Handoff)
            && seen.refusal().is_none()
            && let Some(question) = self.over_limit(claimed, &report, cost, &message)?
        {
            (how, message) = (How::Waiting(WaitFor::Human), question);
        }
        let word = word(&how);
        let request = finish::Request {
            id: Some(task.id.to_string()),
            fence: Some(fence.clone()),
            how,
            message: message.clone(),
            choices,
            cost,
            report: Some(report.clone()),
            offer: None,
            verified,
        };
        match self.patiently(|| self.work().finish(&self.name, None, request.clone())) {
            Ok(outcome) => {
                ended(word, message, outcome.task.state.status == TaskStatus::Failed);
                return Ok(());
            }
            // The agent ended its hold itself, or somebody else did: what was seen is told all the same.
            Err(Error::Refused(Refusal::FenceStale { .. } | Refusal::NotHolder { .. })) => {}
            Err(error) => return Err(error),
        }
        let request = report::Request { task: task.id.clone(), fence, report, cost };
        let attempt = self.patiently(|| self.session().perform_as(&self.name, None, request.clone()))?;
        let now = self.session().perform(facts::TaskRow { task: task.id.clone() })?;
        let parked = now.as_ref().is_some_and(|task| task.state.status == TaskStatus::Failed);
        let how = serde_json::to_value(attempt.result).unwrap_or_default();
        ended(how.as_str().unwrap_or("lost"), attempt.reason.unwrap_or_default(), parked);
        if let Some(now) = now {
            self.work().tidy_after(&self.name, &now);
        }
        Ok(())
    }

    /// What a person is asked if one more attempt at a task would pass its limit.
    fn over_limit(
        &self,
        claimed: &Claimed,
        report: &Report,
        cost: Option<f64>,
        message: &str,
    ) -> Result<Option<String>, Error> {
        if self.rules.task_limit == UsageLimit::default() {
            return Ok(None);
        }
        let look = facts::TaskAttempts { task: claimed.task.id.clone() };
        let mut attempts = self.patiently(|| self.session().perform(look.clone()))?;
        if let Some(this) = attempts.iter_mut().find(|attempt| attempt.fence == claimed.lease.fence) {
            (this.report, this.cost) = (Some(report.clone()), cost);
        }
        let why = Spent::of(&attempts).passes(self.rules.task_limit, 0);
        let asked = "Any answer allows one more attempt; toft close ends it";
        Ok(why.map(|why| format!("It is not done ({message}). {why}. {asked}.")))
    }

    /// The agent rests from now on, in every slot and repository of this user.
    fn note_refusal(&self, refusal: ProviderRefusal) {
        if let Err(error) = RestingAgent::note(&self.rules.agent, refusal) {
            self.events.send(SlotEvent::Problem { text: error.to_string() });
        }
    }

    pub(super) fn return_unbegun(&self, claimed: &Claimed) -> Result<(), Error> {
        let (id, fence) = (Some(claimed.task.id.to_string()), Some(claimed.lease.fence()));
        let message = "released before it began".to_owned();
        self.work()
            .finish(&self.name, None, finish::Request { id, fence, message, ..finish::Request::default() })
            .map(drop)
    }

    /// Releases leases without work: tasks that an agent claimed by hand besides its own and left, and tasks that this
    /// process holds without knowing it, because the answer to a claim was lost.
    pub(super) fn let_go_of_others(&self) -> Result<(), Error> {
        let this = self.session().machine().this_process();
        let unknown = self.repository().asked.borrow().is_none();
        let mut left = self.session().run(&self.name, None, facts::OwnLeases {})?;
        // What follows another process is free when that ends, and counts as lost.
        left.retain(|lease| lease.holder.is_none() || unknown && lease.holder == this);
        for lease in left {
            let (id, fence) = (Some(lease.task.to_string()), Some(lease.fence));
            let message = "nobody works on it".to_owned();
            let request = finish::Request { id, fence, message, ..finish::Request::default() };
            match self.work().finish(&self.name, None, request) {
                Ok(_) | Err(Error::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Retries a report for as long as the store cannot be reached, so that finished work is not done twice.
    fn patiently<T>(&self, mut tell_store: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let (until, mut rest) = (Instant::now() + LONGEST_WAIT, REST);
        loop {
            match tell_store() {
                Err(Error::Store(error)) if Instant::now() < until && !self.stop.load(Ordering::Relaxed) => {
                    self.events.send(SlotEvent::Problem { text: error.to_string() });
                    self.rest_unless_stopped(rest);
                    rest = (rest * 2).min(LONGEST_REST);
                }
                told => return told,
            }
        }
    }

    fn rest_unless_stopped(&self, span: Duration) {
        let until = Instant::now() + span;
        while Instant::now() < until && !self.stop.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(50));
        }
    }

    pub(super) fn give_back(&self, claimed: &Claimed, message: &str) -> Result<(), Error> {
        let (id, fence) = (Some(claimed.task.id.to_string()), Some(claimed.lease.fence()));
        let message = self.mask.mask(message);
        let request = finish::Request { id, fence, message, ..finish::Request::default() };
        match self.work().finish(&self.name, None, request) {
            Ok(_) | Err(Error::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn word(how: &How) -> &'static str {
    match how {
        How::Done(_) => "done",
        How::Failed => "failed",
        How::Release => "released",
        How::Handoff => "handoff",
        How::Waiting(_) => "waiting",
    }
}
