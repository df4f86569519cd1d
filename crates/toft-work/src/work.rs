//! Work on issues and tasks: runs a verb in the store, and updates ledgers and workspaces.
//!
//! The store decides, in one transaction. Ledger and workspace preconditions are checked first. A failure after the commit does
//! not fail the command: it becomes a note ([`take_notes`](toft_session::Session::take_notes)), and the next command retries.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

use toft_core::{
    flow::{Evidence, Task},
    id::{OpId, TaskId},
    lease::{Fence, Holder, Liveness, Processes as _},
    refusal::Refusal,
    verbs::{
        Operation, Verb, claim, facts, find,
        finish::{self, How},
        ready, sweep,
        undo::{self, Undo, UndoAction, Undone},
    },
    workspace::Keep,
};
use toft_plan::Plan;
use toft_session::{error::Error, holds::Held, processes};

use crate::{Work, workspaces::Tidied};

/// How long to wait for killed processes to end.
const KILLED: Duration = Duration::from_secs(2);

/// An operation: its id, and a digest of the request.
pub fn operation(id: &str, request: &str) -> Operation {
    Operation { id: OpId::known(id), request: blake3::hash(request.as_bytes()).to_hex()[..32].to_owned() }
}

impl Work<'_> {
    /// Runs a verb as `actor`, then updates the ledgers.
    pub fn act<V: Verb>(&self, actor: &str, op: Option<Operation>, verb: V) -> Result<V::Outcome, Error> {
        self.act_waiting(None, actor, op, verb, Duration::ZERO)
    }

    /// Does the same; `plan` is that of this session, if the caller has just opened it.
    fn act_waiting<V: Verb>(
        &self,
        plan: Option<&Plan<'_>>,
        actor: &str,
        op: Option<Operation>,
        verb: V,
        wait: Duration,
    ) -> Result<V::Outcome, Error> {
        let outcome = self.perform_waiting(actor, op, verb, wait);
        // A claim that found nothing may still have ended expired leases.
        if V::ENDS && matches!(outcome, Ok(_) | Err(Error::Refused(_))) {
            // After a wait its ledgers may be others.
            self.tell_ledgers(plan.filter(|_| wait.is_zero()));
        }
        outcome
    }

    /// Writes the current status of issues to the ledgers. A failure becomes a note; the next verb that can end a workflow
    /// retries.
    fn tell_ledgers(&self, plan: Option<&Plan<'_>>) {
        match plan {
            Some(plan) => plan.tell(),
            None => match Plan::open(self.session) {
                Ok(Some(plan)) => plan.tell(),
                Ok(None) => {}
                Err(error) => self.note_failure("the ledgers were not told yet", &error),
            },
        }
        // Work that was claimed in another repository of a shared store may have ended here.
        if !self.located().own_store()
            && let Err(error) = self.tell_ledgers_elsewhere()
        {
            self.note_failure("the ledgers of other repositories were not told yet", &error);
        }
    }

    /// Claims as `actor`: a task, or an issue of the plan, which starts its workflow.
    pub fn claim(
        &self,
        plan: Option<&Plan<'_>>,
        actor: &str,
        op: Option<Operation>,
        request: claim::Request,
    ) -> Result<claim::Outcome, Error> {
        self.claim_within(plan, actor, op, request, Duration::ZERO)
    }

    fn claim_within(
        &self,
        plan: Option<&Plan<'_>>,
        actor: &str,
        op: Option<Operation>,
        mut request: claim::Request,
        wait: Duration,
    ) -> Result<claim::Outcome, Error> {
        if let (true, Some(text)) = (request.take_over, &request.id) {
            let task = self.run(actor, None, find::TaskNamed { text: self.whole_id(text)? })?;
            request.id = Some(task.to_string());
            let row = self.run(actor, None, facts::TaskRow { task: task.clone() })?;
            let held = row.is_some_and(|row| row.state.status.held());
            if let Some(pid) = self.living_session(actor, &task).filter(|_| held) {
                let state = format!("held by another session that still runs (process {pid})");
                let wanted = "it is finished there, or that process is ended first".to_owned();
                return Err(Refusal::WrongState { id: task.to_string(), state, wanted }.into());
            }
        }
        let hindered = match plan {
            Some(plan) => plan.offer_to(actor, &mut request)?,
            None => None,
        };
        let outcome = match self.act_waiting(plan, actor, op.clone(), request.clone(), wait) {
            // Nothing is ready: end agents whose runner is gone, reopen issues whose claimer is gone, then retry.
            Err(Error::Refused(Refusal::NothingReady { .. } | Refusal::IssueNotReady { .. }))
                if self.end_orphaned_agents()? | self.free_orphans() =>
            {
                if let Some(plan) = plan {
                    plan.offer_to(actor, &mut request)?;
                }
                self.act(actor, op, request)
            }
            Err(Error::Refused(Refusal::NotReady { .. } | Refusal::LeaseHeld { .. }))
                if self.end_orphaned_agents()? =>
            {
                self.act(actor, op, request)
            }
            outcome => outcome,
        };
        match (outcome, hindered) {
            // Nothing is ready because the ledger with ready issues cannot be written.
            (Err(Error::Refused(Refusal::NothingReady { .. })), Some(hindered)) => Err(hindered),
            (outcome, _) => outcome,
        }
    }

    /// Kills the agents on this machine whose slot and runner were killed together: no other agent gets their tasks
    /// while they run. Returns whether there were any.
    fn end_orphaned_agents(&self) -> Result<bool, Error> {
        let running = processes::attempts_of_others();
        if running.is_empty() {
            return Ok(false);
        }
        let held = self.perform(facts::LeaseHolders { leases: running })?;
        let dead = |holder: &Holder| self.machine().liveness(holder) == Liveness::Dead;
        let orphaned = held.into_iter().filter(|(_, holder)| dead(holder));
        let orphaned: Vec<String> = orphaned.map(|(lease, _)| lease).collect();
        if orphaned.is_empty() {
            return Ok(false);
        }
        self.note(format!(
            "ended {} processes of agents whose runner was killed",
            processes::end_stragglers(&orphaned)
        ));
        let until = Instant::now() + KILLED;
        while orphaned.iter().any(|lease| processes::attempts().contains(lease)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }

    /// Opens issues again whose claim is lost for good; returns whether there were any.
    fn free_orphans(&self) -> bool {
        let freed = Plan::open(self.session).and_then(|plan| plan.map_or(Ok(0), |plan| plan.free_orphans()));
        freed.unwrap_or_else(|error| {
            self.note(format!("issues that are in progress elsewhere were not checked: {error}"));
            0
        }) > 0
    }

    /// Ends a lease as `actor`.
    pub fn finish(
        &self,
        actor: &str,
        op: Option<Operation>,
        request: finish::Request,
    ) -> Result<finish::Outcome, Error> {
        let outcome = self.give_back(actor, op, request)?;
        // Examining a workspace that is kept would take longer than everything else.
        if self.located().workspaces.keep != Keep::Always {
            self.tidy_after(actor, &outcome.task);
        }
        Ok(outcome)
    }

    fn give_back(
        &self,
        actor: &str,
        op: Option<Operation>,
        request: finish::Request,
    ) -> Result<finish::Outcome, Error> {
        let mut request = request;
        let fence = request.fence.clone();
        if let How::Done(Evidence::Commit(commit)) = &mut request.how
            && !commit.trim().is_empty()
        {
            let text = request.id.clone().unwrap_or_else(|| "@".to_owned());
            let task = self.run(actor, None, find::TaskNamed { text })?;
            if self.stands(&task, fence.as_ref())? {
                *commit = self.checked_evidence(&task, commit)?;
                request.offer = self.landing_offer(&task, commit)?;
            }
        }
        let outcome = self.act(actor, op, request)?;
        if let Some(fence) = fence {
            self.drop_hold(actor, &Held { task: outcome.task.id.clone(), fence });
        }
        Ok(outcome)
    }

    /// Whether a lease is live: only then is its evidence checked.
    fn stands(&self, task: &TaskId, fence: Option<&Fence>) -> Result<bool, Error> {
        let Some(fence) = fence else { return Ok(false) };
        Ok(!self.perform(facts::LiveLeases { holds: vec![(task.clone(), fence.clone())] })?.is_empty())
    }

    /// Ends a lease as `actor`, and returns what happened to its workspace: it was removed if the configuration allows
    /// it, or what is in it.
    pub fn finish_and_tidy(
        &self,
        actor: &str,
        op: Option<Operation>,
        request: finish::Request,
    ) -> Result<(finish::Outcome, Option<Tidied>), Error> {
        let outcome = self.give_back(actor, op, request)?;
        let tidied = self.tidy_after(actor, &outcome.task);
        Ok((outcome, tidied))
    }

    /// Removes the workspace of an ended task, if the configuration allows it. A failure does not affect the task.
    pub fn tidy_after(&self, actor: &str, task: &Task) -> Option<Tidied> {
        self.let_go_of_workspace(actor, task).unwrap_or_else(|error| {
            self.note_failure("its workspace was not changed", &error);
            None
        })
    }

    /// What can start now: tasks, and issues without a workflow.
    pub fn ready(&self, request: ready::Request) -> Result<ready::Outcome, Error> {
        self.ready_for(&self.located().agent, request)
    }

    /// The same for `actor`.
    pub fn ready_for(&self, actor: &str, mut request: ready::Request) -> Result<ready::Outcome, Error> {
        let plan = Plan::open(self.session)?;
        let mut asked = request.limit + 1;
        loop {
            if let Some(plan) = &plan {
                request.offers = plan.offers(actor, &request.labels, request.mine, asked)?;
            }
            let all = request.offers.len() < asked;
            let outcome = self.run(actor, None, request.clone())?;
            // A stale ledger may offer issues that are already claimed, so fetch more.
            if all || outcome.ready.len() >= request.limit {
                return Ok(outcome);
            }
            asked *= 4;
        }
    }

    /// Undoes the last operations of `actor`, newest first, as long as each can be undone; with `try_only`, only lists
    /// them.
    pub fn undo(&self, actor: &str, count: usize, try_only: bool) -> Result<Vec<Undo>, Error> {
        let mut tried = BTreeSet::new();
        self.each_of_the_last(actor, count, false, |undo| match try_only {
            true => self.try_issues(undo, &mut tried, |plan, issues| plan.take_back(issues, true)),
            false => self.take_back(actor, undo),
        })
    }

    /// Redoes operations that `actor` undid, the last first; with `try_only`, only lists them.
    pub fn redo(&self, actor: &str, count: usize, try_only: bool) -> Result<Vec<Undo>, Error> {
        let mut tried = BTreeSet::new();
        self.each_of_the_last(actor, count, true, |undo| match try_only {
            true => self.try_issues(undo, &mut tried, |plan, issues| plan.put_again(issues, true)),
            false => self.put_again(actor, undo),
        })
    }

    /// Refuses an undo or redo that would fail. `tried` are the issues of earlier operations in the same request, whose
    /// result is not known yet.
    fn try_issues(
        &self,
        undo: &Undo,
        tried: &mut BTreeSet<String>,
        attempt: impl FnOnce(&Plan<'_>, &[undo::Before]) -> Result<Vec<toft_plan::Wrote>, Error>,
    ) -> Result<(), Error> {
        undo.allowed()?;
        let UndoAction::Issues { issues } = &undo.way else { return Ok(()) };
        if !issues.iter().any(|before| tried.contains(&before.issue)) {
            attempt(&self.own_plan()?, issues)?;
        }
        tried.extend(issues.iter().map(|before| before.issue.clone()));
        Ok(())
    }

    /// The plan of this repository; an error if there is none.
    fn own_plan(&self) -> Result<Plan<'_>, Error> {
        Plan::open(self.session)?.ok_or_else(|| Error::NoRepository { dir: PathBuf::from(".") })
    }

    fn each_of_the_last(
        &self,
        actor: &str,
        count: usize,
        undone: bool,
        mut each: impl FnMut(&Undo) -> Result<(), Error>,
    ) -> Result<Vec<Undo>, Error> {
        let last = self.perform_as(actor, None, undo::Last { scope: self.scope(), count, undone })?;
        let mut done = Vec::new();
        for undo in last {
            match each(&undo) {
                Ok(()) => done.push(undo),
                Err(error) if done.is_empty() => return Err(error),
                // Earlier operations are done. Repeating the command reports this error.
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Takes back an operation, if it is the actor's last one.
    pub fn undo_last(&self, actor: &str, op: &str, dry_run: bool) -> Result<Vec<Undo>, Error> {
        let last = self.perform_as(actor, None, undo::Last { scope: self.scope(), count: 1, undone: false })?;
        let Some(undo) = last.into_iter().find(|undo| undo.op.as_str() == op) else {
            let why = "it is not the last operation any more".to_owned();
            return Err(Refusal::CannotUndo { what: op.to_owned(), entity: actor.to_owned(), why }.into());
        };
        if !dry_run {
            self.take_back(actor, &undo)?;
        }
        Ok(vec![undo])
    }

    fn take_back(&self, actor: &str, undo: &Undo) -> Result<(), Error> {
        undo.allowed()?;
        let UndoAction::Issues { issues } = &undo.way else {
            let take = undo::Take { op: undo.op.clone(), scope: self.scope(), redo: false };
            let undone = self.act(actor, None, take)?;
            if let UndoAction::Release { holds } = &undone.way {
                self.drop_holds_on(actor, holds.iter().map(|(task, _)| task.as_str()));
            }
            return Ok(());
        };
        self.own_plan()?.take_back(issues, false)?;
        self.say_undone(actor, undo, false);
        Ok(())
    }

    fn put_again(&self, actor: &str, undo: &Undo) -> Result<(), Error> {
        undo.allowed()?;
        let UndoAction::Issues { issues } = &undo.way else {
            let take = undo::Take { op: undo.op.clone(), scope: self.scope(), redo: true };
            return self.act(actor, None, take).map(drop);
        };
        self.own_plan()?.put_again(issues, false)?;
        self.say_undone(actor, undo, true);
        Ok(())
    }

    /// Records an undo. The ledger is already changed, so the undo is valid even if it cannot be recorded.
    fn say_undone(&self, actor: &str, undo: &Undo, redo: bool) {
        if let Err(error) = self.perform_as(actor, None, Undone { undo: undo.clone(), redo }) {
            self.note(format!("the event was not recorded yet: {error}"));
        }
    }

    fn drop_holds_on<'a>(&self, actor: &str, tasks: impl Iterator<Item = &'a str>) {
        let mine = self.session_holds(actor);
        for task in tasks {
            for held in mine.iter().filter(|held| held.task.as_str() == task) {
                self.drop_hold(actor, held);
            }
        }
    }

    /// Claims as `actor`, and waits up to `patience` until a task is ready.
    pub fn claim_waiting(
        &self,
        actor: &str,
        op: Option<&Operation>,
        request: &claim::Request,
        patience: Duration,
    ) -> Result<claim::Outcome, Error> {
        let until = Instant::now() + patience;
        loop {
            let waits_there = self.engine().waits();
            let pulse = if waits_there { 0 } else { self.engine().change_counter()? };
            let wait = if waits_there { until.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
            let plan = Plan::open(self.session)?;
            let refused = match self.claim_within(plan.as_ref(), actor, op.cloned(), request.clone(), wait) {
                Err(Error::Refused(
                    refusal @ (Refusal::NothingReady { .. }
                    | Refusal::LeaseHeld { .. }
                    | Refusal::OtherSession { .. }
                    | Refusal::NotReady { .. }
                    | Refusal::IssueNotReady { .. }),
                )) => refusal,
                other => return other,
            };
            let goes_on = match waits_there {
                true => Instant::now() < until,
                false => self.wait_until_promising(actor, request, pulse, until)?,
            };
            if !goes_on {
                return Err(refused.into());
            }
        }
    }

    /// Waits until a claim may succeed; false on timeout. Reads only, except to sweep expired leases.
    fn wait_until_promising(
        &self,
        actor: &str,
        request: &claim::Request,
        mut pulse: u64,
        until: Instant,
    ) -> Result<bool, Error> {
        while Instant::now() < until {
            pulse = self.wait_for_change(pulse, until.min(Instant::now() + self.engine().look_again_after()))?;
            // A lease of another machine that has gone silent runs out only while it is watched.
            if self.run(actor, None, sweep::Wanted {})? {
                self.act(actor, None, sweep::Request {})?;
            }
            let promising = match &request.id {
                Some(_) => true,
                None => {
                    let look = ready::Request {
                        scope: request.scope.clone(),
                        labels: request.labels.clone(),
                        limit: 1,
                        mine: true,
                        ..ready::Request::default()
                    };
                    !self.ready_for(actor, look)?.ready.is_empty()
                }
            };
            if promising {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
