//! Ends lost leases. Claims and other verbs run this when they need it, so no daemon is necessary.

use serde::{Deserialize, Serialize};
use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
};

use serde_json::json;

use super::{Verb, VerbContext, clock};
use crate::{
    change::Write,
    flow::{AttemptResult, Task, TaskState, TaskStatus, end_lease, ledger_changed, place_in_queue, propagate},
    lease::{Holder, Lease, LeaseStatus, Liveness, Lost, Processes},
    may::May,
    refusal::VerbResult,
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// End every lost lease, and do nothing else.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SweepRequest")]
pub struct Request {}

impl Verb for Request {
    type Outcome = usize;
    const NAME: &'static str = "sweep";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<usize> {
        sweep(work, true)
    }
}

/// Whether a sweep is needed: another machine renewed a lease last, it seems silent, and this machine does not watch it
/// yet; or timers were set by a clock that was ahead.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SweepWanted")]
pub struct Wanted {}

impl Verb for Wanted {
    type Outcome = bool;
    const NAME: &'static str = "sweep.wanted";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<bool> {
        let stepped_back = clock::stepped_back(work)?.is_some();
        Ok(stepped_back || look(work, false)?.due.iter().any(|lease| lease.begins_watch(&work.now)))
    }
}

/// Checks each process once, however many leases it holds.
struct Remembered<'a> {
    processes: &'a dyn Processes,
    known: RefCell<BTreeMap<Holder, Liveness>>,
    attempts: OnceCell<BTreeSet<String>>,
}

impl Processes for Remembered<'_> {
    fn host(&self) -> &str {
        self.processes.host()
    }

    fn liveness(&self, holder: &Holder) -> Liveness {
        let mut known = self.known.borrow_mut();
        *known.entry(holder.clone()).or_insert_with(|| self.processes.liveness(holder))
    }

    fn attempts(&self) -> BTreeSet<String> {
        self.attempts.get_or_init(|| self.processes.attempts()).clone()
    }
}

/// Maximum number of leases that one check reads.
pub(super) const AT_ONCE: usize = 64;

/// The result of a check.
pub(super) struct Look {
    /// Lost leases.
    pub(super) lost: Vec<(Lease, Lost)>,
    /// Leases that were due for a check and are valid.
    due: Vec<Lease>,
}

/// All lost leases, and the valid ones that were due for a check. A thorough check also examines every process on this
/// host.
pub(super) fn look(work: &mut VerbContext<'_>, thorough: bool) -> VerbResult<Look> {
    let (host, limit) = if thorough { (Some(work.processes.host()), 0) } else { (None, AT_ONCE) };
    let suspects = work.tx.overdue(work.now.wall, host, limit)?;
    let processes = Remembered { processes: work.processes, known: RefCell::default(), attempts: OnceCell::new() };
    let (mut lost, mut due) = (Vec::new(), Vec::new());
    for lease in suspects {
        match lease.standing(&work.now, &processes) {
            // What another's machine would have to say of its processes, nobody else says.
            LeaseStatus::Lost(Lost::ProcessGone) if !work.speaks_for_agent(&lease.agent)? => {}
            LeaseStatus::Lost(why) => lost.push((lease, why)),
            LeaseStatus::Live if lease.due(&work.now) => due.push(lease),
            LeaseStatus::Live => {}
        }
    }
    Ok(Look { lost, due })
}

/// Ends lost leases; returns how many.
pub(super) fn sweep(work: &mut VerbContext<'_>, thorough: bool) -> VerbResult<usize> {
    let Look { lost, due } = look(work, thorough)?;
    let mut watched = 0;
    for lease in due {
        watched += usize::from(lease.begins_watch(&work.now));
        let lease = lease.examined(&work.now);
        work.tx.write_derived(&[Write::RenewLease(lease)])?;
    }
    if watched > 0 {
        // Whatever moves the next look ahead leaves an event: that is how a clock that went back since is known.
        work.record_system("leases", "lease.watched", json!({ "count": watched }), Vec::new())?;
    }
    let count = lost.len();
    // A watch that began is kept even if the verb refuses.
    work.swept += count + watched;
    for (lease, why) in lost {
        take_back(work, &lease, why)?;
    }
    Ok(count)
}

/// Ends one lost lease: the task is retried, or fails for good and waits for a person.
pub(super) fn take_back(work: &mut VerbContext<'_>, lease: &Lease, why: Lost) -> VerbResult<()> {
    let result = match why {
        Lost::Expired => AttemptResult::Expired,
        Lost::ProcessGone => AttemptResult::ProcessGone,
    };
    let mut writes = end_lease(work, lease, result, None, None)?;
    let Some(mut task) = work.tx.task(&lease.task)? else { return Ok(()) };
    let from = task.state.status;
    task.state = after_loss(&task, work.now.wall);
    writes.push(Write::TaskState(task.id.clone(), task.state.clone()));
    let agent = work.agent_name(&lease.agent)?;
    work.record_system(
        task.id.as_str(),
        "lease.lost",
        json!({ "why": why, "agent": agent, "fence": lease.fence.number, "attempt": task.state.attempt, "status": task.state.status }),
        writes,
    )?;
    let mut workflow = work.require_workflow(&task.workflow)?;
    ledger_changed(work, &mut workflow)?;
    place_in_queue(work, &task, &workflow)?;
    propagate(work, &task, from).map(drop)
}

/// A task's state after its lease is lost.
pub(super) fn after_loss(task: &Task, now: crate::time::Timestamp) -> TaskState {
    let attempt = task.state.attempt + 1;
    let status = if attempt >= task.spec.max_attempts { TaskStatus::Failed } else { TaskStatus::Pending };
    TaskState { attempt, status, updated: now, ..task.state.clone() }
}
