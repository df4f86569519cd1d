//! Sessions of one name: each claims by hand, is slow, and may write after its hold was lost. What a session writes counts
//! only under its own fence.

use std::time::Duration;

use toft_core::{
    flow::Evidence,
    lease::Fence,
    verbs::{
        claim,
        finish::{self, How},
        save,
    },
};

use super::{
    Bug,
    world::{Answer, Call, World},
};

/// The name that both sessions have.
const NAME: &str = "ana";

enum State {
    Idle { until: u64 },
    Claiming(Box<Call<claim::Outcome>>),
    Holding { task: String, fence: Fence, until: u64 },
    Saving { task: String, fence: Fence, call: Box<Call<save::Outcome>> },
    Finishing { task: String, fence: Fence, call: Box<Call<finish::Outcome>> },
}

pub(crate) struct Session {
    host: usize,
    state: State,
}

impl Session {
    pub(crate) fn new(host: usize, n: usize) -> Self {
        Self { host, state: State::Idle { until: 1_000 * n as u64 } }
    }

    pub(crate) fn step(&mut self, world: &mut World) {
        self.state = match std::mem::replace(&mut self.state, State::Idle { until: 0 }) {
            State::Idle { until } if until <= world.time => self.claim(world),
            State::Claiming(call) => match call.take(world.time) {
                Err(call) => State::Claiming(Box::new(call)),
                Ok(Answer::Came(outcome)) => match outcome.claims.into_iter().next() {
                    Some(claimed) => {
                        // Longer than its lease lasts, as often as not.
                        let until = world.time + world.below(9_000);
                        let (task, fence) = (claimed.task.id.to_string(), claimed.lease.fence());
                        State::Holding { task, fence, until }
                    }
                    None => self.rest(world),
                },
                Ok(_) => self.rest(world),
            },
            State::Holding { task, fence, until } if until <= world.time => self.save(world, task, fence),
            State::Saving { task, fence, call } => match call.take(world.time) {
                Err(call) => State::Saving { task, fence, call: Box::new(call) },
                Ok(_) => self.finish(world, task, fence),
            },
            State::Finishing { task, fence, call } => match call.take(world.time) {
                Err(call) => State::Finishing { task, fence, call: Box::new(call) },
                Ok(Answer::Unknown) => self.finish(world, task, fence),
                Ok(_) => self.rest(world),
            },
            other => other,
        };
    }

    fn rest(&self, world: &mut World) -> State {
        State::Idle { until: world.time + 3_000 + world.below(6_000) }
    }

    fn claim(&self, world: &mut World) -> State {
        let ttl = Some(Duration::from_secs(4));
        let request = claim::Request { scope: World::scope(), ttl, ..Default::default() };
        State::Claiming(Box::new(world.call(self.host, NAME, &[], None, request)))
    }

    /// The fence that goes with a write: this session's own.
    fn fence(&self, world: &World, task: &str, own: &Fence) -> Option<Fence> {
        match world.bug {
            Some(Bug::NameInsteadOfFence) => world.live_fence(task),
            _ => Some(own.clone()),
        }
    }

    fn save(&self, world: &mut World, task: String, own: Fence) -> State {
        let (id, fence) = (Some(task.clone()), self.fence(world, &task, &own));
        let request = save::Request { id, fence, message: Some("slowly".into()), ..save::Request::default() };
        let live = world.live_fence(&task);
        let call = world.call(self.host, NAME, std::slice::from_ref(&own), None, request);
        self.check(world, &task, &own, live.as_ref(), "save");
        State::Saving { task, fence: own, call: Box::new(call) }
    }

    fn finish(&self, world: &mut World, task: String, own: Fence) -> State {
        let (id, fence) = (Some(task.clone()), self.fence(world, &task, &own));
        let how = How::Done(Evidence::NoChange("by hand".into()));
        let request = finish::Request { id, fence, how, message: "m".into(), ..finish::Request::default() };
        let live = world.live_fence(&task);
        let call = world.call(self.host, NAME, std::slice::from_ref(&own), None, request);
        self.check(world, &task, &own, live.as_ref(), "finish");
        State::Finishing { task, fence: own, call: Box::new(call) }
    }

    /// A session that lost its hold ends nobody else's. A hold whose time is over may be swept by the same call, but then its
    /// task is not done.
    fn check(&self, world: &mut World, task: &str, own: &Fence, live: Option<&Fence>, what: &str) {
        let Some(live) = live.filter(|live| *live != own) else { return };
        if what == "finish" && world.live_fence(task).as_ref() != Some(live) && world.is_done(task) {
            world.broken = Some(format!("a stale session's {what} ended the hold {live} on {task}"));
        }
    }
}
