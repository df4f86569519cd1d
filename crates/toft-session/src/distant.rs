//! Verbs on a server: what it cannot see of this machine is told with them.

use std::time::Duration;

use toft_client::RemoteStore;
use toft_core::{
    id::OpId,
    lease::{Holder, Liveness},
    refusal::{Refusal, VerbError, VerbResult},
    store::{Access, StoreError},
    verbs::{AnyRun, Caller, Operation, VerbRun, facts},
    wire::{SentCall, SentCaller, SentPolicy},
};

/// Runs a verb on the server. If a lease is in its way that follows a process of this machine, the server is told which
/// of these processes have ended: nobody else can tell.
pub(crate) fn perform(
    remote: &RemoteStore,
    caller: &mut Caller<'_>,
    run: &mut dyn AnyRun,
    wait: Duration,
) -> VerbResult<()> {
    let mut call = call_of(caller, run)?;
    let refused = match remote.call(&call, run, Duration::ZERO) {
        Err(VerbError::Refused(refusal)) if run.access() == Access::Write && is_in_the_way(&refusal) => refusal,
        other => return other,
    };
    let mut look = VerbRun::new(facts::HostProcesses {});
    let looking = SentCall { op: None, ..call_of(caller, &look)? };
    remote.call(&looking, &mut look, Duration::ZERO)?;
    let followed = look.into_outcome()?;
    let has_ended = |holder: &Holder| caller.processes.liveness(holder) == Liveness::Dead;
    call.caller.ended = followed.into_iter().filter(has_ended).collect();
    if call.caller.ended.is_empty() && wait.is_zero() {
        return Err(refused.into());
    }
    if !call.caller.ended.is_empty() {
        call.caller.running = caller.processes.attempts();
    }
    remote.call(&call, run, wait)
}

/// Whether a lease that has ended may be the reason.
fn is_in_the_way(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::NothingReady { .. }
            | Refusal::LeaseHeld { .. }
            | Refusal::OtherSession { .. }
            | Refusal::NotReady { .. }
            | Refusal::IssueNotReady { .. }
    )
}

fn call_of(caller: &mut Caller<'_>, run: &dyn AnyRun) -> VerbResult<SentCall> {
    let request = run
        .request()
        .map_err(|error| StoreError::Failed { doing: "write a request".into(), cause: error.to_string() })?;
    let op = match (caller.op.take(), run.access()) {
        (None, Access::Write) => {
            let digest = blake3::hash(request.to_string().as_bytes()).to_hex()[..32].to_owned();
            Some(Operation { id: OpId::generate(caller.ids), request: digest })
        }
        (op, _) => op,
    };
    Ok(SentCall {
        caller: SentCaller {
            agent: caller.actor.to_owned(),
            place: caller.place.clone(),
            host: caller.processes.host().to_owned(),
            disks: caller.processes.disks().to_owned(),
            machine: caller.processes.machine_name().to_owned(),
            holds: caller.holds.to_vec(),
            role: caller.role,
            policy: Some(SentPolicy::from(caller.policy)),
            ..SentCaller::default()
        },
        op,
        request,
    })
}
