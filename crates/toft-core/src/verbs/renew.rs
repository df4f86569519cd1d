//! Renew: renew leases, several in one transaction.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Verb, VerbContext};
use crate::{
    change::Write,
    id::TaskId,
    lease::Fence,
    may::May,
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::{Access, LeasesOf},
    time::Timestamp,
    token::TokenRole,
};

/// Renew these leases; every lease of the caller's session if none is named.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RenewRequest")]
#[serde(default)]
pub struct Request {
    /// The tasks, each with its fence.
    pub holds: Vec<(TaskId, Fence)>,
    /// A new time to live.
    #[serde(
        default,
        rename = "ttl_ms",
        with = "crate::time::as_optional_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<u64>")]
    pub ttl: Option<Duration>,
}

/// The leases that were renewed, and those that were lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RenewOutcome")]
pub struct Outcome {
    /// Each renewed task with the new end of its lease.
    pub renewed: Vec<(TaskId, Timestamp)>,
    /// Tasks that are no longer held.
    pub lost: Vec<TaskId>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "renew";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker).or_agent(|request, job| job.holds_alone(&request.holds));

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let me = work.register_caller()?;
        let mut outcome = Outcome { renewed: Vec::new(), lost: Vec::new() };
        let mut leases = Vec::new();
        if self.holds.is_empty() {
            leases = work.tx.leases(&LeasesOf::Agent(me.id))?;
            leases.retain(|lease| work.holds.contains(&lease.fence));
        } else {
            for (task, fence) in &self.holds {
                match work.tx.lease(task)? {
                    Some(lease) if lease.fence == *fence && lease.agent == me.id => leases.push(lease),
                    _ => outcome.lost.push(task.clone()),
                }
            }
        }
        if leases.is_empty() {
            return match self.holds.into_iter().next() {
                Some((task, fence)) => Err(work
                    .require_hold(&task, Some(&fence))
                    .err()
                    .unwrap_or_else(|| Refusal::FenceStale { task, yours: fence, holder: None }.into())),
                None => Err(Refusal::HoldsNothing { agent: me.name }.into()),
            };
        }
        let mut writes = Vec::with_capacity(leases.len());
        for lease in leases {
            let lease = lease.renew(&work.now, self.ttl);
            outcome.renewed.push((lease.task.clone(), lease.expires()));
            writes.push(Write::RenewLease(lease));
        }
        work.tx.write_derived(&writes)?;
        Ok(outcome)
    }
}
