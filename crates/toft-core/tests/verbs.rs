//! No sequence of verbs breaks an invariant: random operations on the memory store, audited after each.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use toft_core::{
    flow::{Evidence, Plan, PlanTask, TaskStatus},
    id::OpId,
    lease::{Fence, Holder},
    refusal::Stop,
    store::{Access, EventQuery},
    testing::Stage,
    verbs::{self, answer, audit, claim, finish, flow, renew, replan, save, send},
};

#[derive(Clone, Debug)]
enum Op {
    Flow { tasks: Vec<(u8, Vec<u8>, Option<u8>)>, max_parallel: Option<u32>, budget: Option<u8> },
    Claim { agent: u8, count: u8, pid: Option<u8> },
    ClaimNamed { agent: u8, task: u8 },
    Save { agent: u8, task: u8, stale: bool },
    Finish { agent: u8, task: u8, how: u8, stale: bool },
    Renew { agent: u8 },
    Answer { task: u8 },
    Move { flow: u8, step: u8 },
    Retry { task: u8, retry: bool },
    Replan { flow: u8, names: Vec<u8> },
    Add { flow: u8, name: u8, needs: u8 },
    Pass { seconds: u16 },
    Kill { pid: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    let task = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..3), prop::option::of(0u8..3));
    prop_oneof![
        2 => (prop::collection::vec(task, 1..6), prop::option::of(1u32..3), prop::option::of(1u8..4))
            .prop_map(|(tasks, max_parallel, budget)| Op::Flow { tasks, max_parallel, budget }),
        8 => (0u8..4, 1u8..3, prop::option::of(1u8..6)).prop_map(|(agent, count, pid)| Op::Claim { agent, count, pid }),
        2 => (0u8..4, any::<u8>()).prop_map(|(agent, task)| Op::ClaimNamed { agent, task }),
        3 => (0u8..4, any::<u8>(), any::<bool>()).prop_map(|(agent, task, stale)| Op::Save { agent, task, stale }),
        8 => (0u8..4, any::<u8>(), 0u8..8, any::<bool>())
            .prop_map(|(agent, task, how, stale)| Op::Finish { agent, task, how, stale }),
        1 => (0u8..4).prop_map(|agent| Op::Renew { agent }),
        2 => any::<u8>().prop_map(|task| Op::Answer { task }),
        2 => (any::<u8>(), 0u8..8).prop_map(|(flow, step)| Op::Move { flow, step }),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(task, retry)| Op::Retry { task, retry }),
        1 => (any::<u8>(), prop::collection::vec(any::<u8>(), 1..4)).prop_map(|(flow, names)| Op::Replan { flow, names }),
        1 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(|(flow, name, needs)| Op::Add { flow, name, needs }),
        3 => (0u16..80).prop_map(|seconds| Op::Pass { seconds }),
        1 => (1u8..6).prop_map(|pid| Op::Kill { pid }),
    ]
}

struct Play {
    stage: Stage,
    flows: Vec<String>,
    tasks: Vec<String>,
    fences: BTreeMap<String, Vec<Fence>>,
}

impl Play {
    fn new() -> Self {
        Self { stage: Stage::memory(), flows: vec![], tasks: vec![], fences: BTreeMap::new() }
    }

    fn task(&self, n: u8) -> Option<String> {
        (!self.tasks.is_empty()).then(|| self.tasks[n as usize % self.tasks.len()].clone())
    }

    fn flow(&self, n: u8) -> Option<String> {
        (!self.flows.is_empty()).then(|| self.flows[n as usize % self.flows.len()].clone())
    }

    fn refresh(&mut self) {
        let mut tx = self.stage.store.begin(Access::Read).unwrap();
        self.tasks = tx.tasks(&Default::default()).unwrap().into_iter().map(|task| task.id.to_string()).collect();
        self.tasks.sort();
    }

    fn fence(&self, task: &str, stale: bool) -> Option<Fence> {
        let fences = self.fences.get(task)?;
        if stale { fences.first().cloned() } else { fences.last().cloned() }
    }

    fn step(&mut self, op: Op) {
        let agent = |n: u8| format!("agent-{n}");
        let faults = |result: Result<(), Stop>| {
            if let Err(Stop::Failed(error)) = result {
                panic!("the store failed: {error}");
            }
        };
        match op {
            Op::Flow { tasks, max_parallel, budget } => {
                let mut plan = Plan { title: "flow".into(), max_parallel, budget: budget.map(f64::from), ..Plan::default() };
                for (position, (name, needs, group)) in tasks.into_iter().enumerate() {
                    let needed = |n: &u8| format!("t{}", *n as usize % position.max(1));
                    plan.tasks.push(PlanTask {
                        name: format!("t{position}"),
                        priority: Some(name % 5),
                        needs: if position > 0 { needs.iter().map(needed).collect() } else { vec![] },
                        on_failure_of: if position > 1 && name % 7 == 0 { vec!["t0".into()] } else { vec![] },
                        parallel_group: group.map(u32::from),
                        max_attempts: Some(1 + u32::from(name % 3)),
                        ..PlanTask::default()
                    });
                }
                let source = toft_core::flow::Source::Prompt { text: "p".into() };
                let made = self.stage.perform("planner", flow::New { plan, source, hold: false });
                if let Ok(made) = &made {
                    self.flows.push(made.workflow.id.to_string());
                }
                faults(made.map(drop));
            }
            Op::Claim { agent: n, count, pid } => {
                let holder = pid.map(|pid| Holder {
                    host: "here".into(),
                    boot: "boot-1".into(),
                    pid: pid.into(),
                    started: 1,
                });
                let request = claim::Request { count: count.into(), holder, scope: self.stage.scope(), ..Default::default() };
                let claimed = self.stage.perform(&agent(n), request);
                self.remember(claimed.as_ref().ok());
                faults(claimed.map(drop));
            }
            Op::ClaimNamed { agent: n, task } => {
                let Some(task) = self.task(task) else { return };
                let claimed = self.stage.perform(&agent(n), claim::Request { id: Some(task), ..Default::default() });
                self.remember(claimed.as_ref().ok());
                faults(claimed.map(drop));
            }
            Op::Save { agent: n, task, stale } => {
                let Some(task) = self.task(task) else { return };
                let fence = self.fence(&task, stale);
                let request = save::Request { id: Some(task), fence, message: Some("note".into()), ..Default::default() };
                faults(self.stage.perform(&agent(n), request).map(drop));
            }
            Op::Finish { agent: n, task, how, stale } => {
                let Some(task) = self.task(task) else { return };
                let fence = self.fence(&task, stale);
                let how = match how {
                    0..=2 => finish::How::Done(Evidence::Commit("abc".into())),
                    3 => finish::How::Failed,
                    4 => finish::How::Release,
                    5 => finish::How::Waiting(finish::WaitFor::Human),
                    6 => finish::How::Waiting(finish::WaitFor::Timer(Duration::from_secs(20))),
                    _ => match self.task(how.wrapping_mul(31)) {
                        Some(other) => finish::How::Waiting(finish::WaitFor::Task(other)),
                        None => finish::How::Handoff,
                    },
                };
                let request = finish::Request { id: Some(task), fence, how, message: "m".into(), cost: Some(0.5) };
                faults(self.stage.perform(&agent(n), request).map(drop));
            }
            Op::Renew { agent: n } => faults(self.stage.perform(&agent(n), renew::Request::default()).map(drop)),
            Op::Answer { task } => {
                let Some(id) = self.task(task) else { return };
                faults(self.stage.perform("boss", answer::Request { id, answer: "yes".into() }).map(drop));
            }
            Op::Move { flow, step } => {
                let Some(id) = self.flow(flow) else { return };
                let to = match step {
                    0..=2 => flow::Step::Pause,
                    3..=6 => flow::Step::Resume,
                    _ => flow::Step::Abandon,
                };
                faults(self.stage.perform("boss", flow::Move { id, to, reason: None }).map(drop));
            }
            Op::Retry { task, retry } => {
                let Some(task) = self.task(task) else { return };
                faults(self.stage.perform("boss", replan::Decide { task, retry, reason: "r".into() }).map(drop));
            }
            Op::Replan { flow, names } => {
                let Some(workflow) = self.flow(flow) else { return };
                let mut seen = std::collections::BTreeSet::new();
                let mut tasks: Vec<PlanTask> = Vec::new();
                for n in names {
                    let name = format!("t{}", n % 6);
                    if seen.insert(name.clone()) {
                        let needs = tasks.last().map(|task| task.name.clone()).into_iter().collect();
                        tasks.push(PlanTask { name, needs, ..PlanTask::default() });
                    }
                }
                faults(self.stage.perform("boss", replan::Request { workflow, tasks }).map(drop));
            }
            Op::Add { flow, name, needs } => {
                let Some(workflow) = self.flow(flow) else { return };
                let tasks = vec![PlanTask {
                    name: format!("a{name}"),
                    needs: vec![format!("t{}", needs % 4)],
                    ..PlanTask::default()
                }];
                faults(self.stage.perform("boss", replan::Add { workflow, tasks }).map(drop));
            }
            Op::Pass { seconds } => self.stage.clock.advance(Duration::from_secs(seconds.into())),
            Op::Kill { pid } => self.stage.processes.kill(pid.into()),
        }
    }

    fn remember(&mut self, claimed: Option<&claim::Outcome>) {
        for claim in claimed.into_iter().flat_map(|outcome| &outcome.claims) {
            self.fences.entry(claim.task.id.to_string()).or_default().push(claim.lease.fence());
        }
    }

    fn check(&self) {
        let outcome = self.stage.perform("auditor", audit::Request { events: usize::MAX }).unwrap();
        assert!(outcome.broken.is_empty(), "{:#?}", outcome.broken);
        let mut tx = self.stage.store.begin(Access::Read).unwrap();
        let now = tx.now().unwrap().wall;
        let mut expected = Vec::new();
        for task in tx.tasks(&Default::default()).unwrap() {
            assert_eq!(task.state.status == TaskStatus::Done, task.state.outcome.as_ref().is_some_and(|o| o.evidence.is_some()));
            let workflow = tx.workflow(&task.workflow).unwrap().unwrap();
            let dependencies = tx.dependencies(&task.id).unwrap();
            let gates = tx.gates(&task.id).unwrap();
            if toft_core::ready::reasons(&task, &workflow, &dependencies, &gates, now).is_empty() {
                expected.push((toft_core::ready::rank(&task), task.id));
            }
        }
        expected.sort();
        let expected: Vec<_> = expected.into_iter().map(|(_, id)| id).collect();
        drop(tx);
        let request = verbs::ready::Request { scope: self.stage.scope(), limit: 10_000, ..Default::default() };
        let listed: Vec<_> = self.stage.perform("looker", request).unwrap().ready;
        let listed: Vec<_> = listed.into_iter().filter(|task| task.state.status != TaskStatus::Leased).collect();
        let offered: Vec<_> = listed.iter().map(|task| task.id.clone()).filter(|id| expected.contains(id)).collect();
        assert_eq!(offered, expected, "the queue offers exactly what the rule calls ready, in its order");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_verbs_breaks_an_invariant(ops in prop::collection::vec(op(), 1..60)) {
        let mut play = Play::new();
        for op in ops {
            play.step(op);
            play.refresh();
            play.check();
        }
    }
}

fn fence_is_stale(stop: &Stop) -> bool {
    matches!(stop, Stop::Refused(toft_core::refusal::Refusal::FenceStale { .. }))
}

#[test]
fn a_stale_fence_changes_nothing() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    let old = stage.claim("slow").unwrap();
    stage.clock.advance(Duration::from_secs(11));
    let new = stage.claim("quick").unwrap();
    assert_eq!(new.task.id, old.task.id);
    assert_eq!((old.lease.fence, new.lease.fence), (1, 2));
    let before = history(&stage);
    let id = Some(old.task.id.to_string());
    let fence = Some(old.lease.fence());
    let saved = save::Request { id: id.clone(), fence: fence.clone(), message: Some("late".into()), ..Default::default() };
    assert!(fence_is_stale(&stage.perform("slow", saved).unwrap_err()));
    let stated = save::Request { id: id.clone(), fence: fence.clone(), state: Some(("k".into(), 1.into())), ..Default::default() };
    assert!(fence_is_stale(&stage.perform("slow", stated).unwrap_err()));
    let finished = finish::Request { id: id.clone(), fence: fence.clone(), ..Default::default() };
    assert!(fence_is_stale(&stage.perform("slow", finished).unwrap_err()));
    let renewed = renew::Request { holds: vec![(old.task.id.clone(), old.lease.fence())], ttl: None };
    assert!(fence_is_stale(&stage.perform("slow", renewed).unwrap_err()));
    let sent = send::Request { to: "human".into(), body: "hi".into(), task: id, fence, ..Default::default() };
    assert!(fence_is_stale(&stage.perform("slow", sent).unwrap_err()));
    assert_eq!(history(&stage), before);
}

#[test]
fn the_same_number_with_another_lease_id_is_stale() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    let held = stage.claim("a").unwrap();
    let forged = Fence { number: held.lease.fence, id: toft_core::id::LeaseId::known("ls_restored0000") };
    let request = save::Request { id: Some(held.task.id.to_string()), fence: Some(forged), message: Some("x".into()), ..Default::default() };
    assert!(fence_is_stale(&stage.perform("a", request).unwrap_err()));
}

#[test]
fn expired_lease_returns_task_to_ready() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    stage.claim("slow").unwrap();
    assert!(stage.ready().is_empty());
    stage.clock.advance(Duration::from_secs(10));
    assert_eq!(stage.ready(), ["only"]);
}

#[test]
fn a_killed_holder_frees_its_task_at_the_next_look() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    stage.claim_by_process("agent", 1).unwrap();
    assert!(stage.ready().is_empty());
    stage.processes.kill(1);
    assert_eq!(stage.ready(), ["only"]);
    assert_eq!(stage.claim("other").unwrap().lease.fence, 2);
}

#[test]
fn a_living_holder_keeps_its_lease_past_its_time_and_loses_it_at_the_cap() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    stage.claim_by_process("agent", 1).unwrap();
    stage.clock.advance(Duration::from_secs(59));
    assert!(stage.claim("other").is_err());
    stage.clock.advance(Duration::from_secs(2));
    assert_eq!(stage.claim("other").unwrap().lease.fence, 2);
}

#[test]
fn a_task_that_kills_its_worker_is_parked_and_asks_a_human() {
    let stage = Stage::memory();
    stage.flow("one", &["poison"]);
    for _ in 0..3 {
        stage.claim("victim").unwrap();
        stage.clock.advance(Duration::from_secs(11));
    }
    assert!(stage.claim("victim").is_err());
    let status = stage.perform("boss", verbs::status::Request { scope: stage.scope(), limit: 10 }).unwrap();
    assert!(matches!(&status.needs_you[0], verbs::status::NeedsYou::Failed { name, .. } if name == "poison"));
}

#[test]
fn replaying_an_operation_answers_as_before_and_changes_nothing() {
    let stage = Stage::memory();
    stage.flow("two", &["first", "second"]);
    let op = Some(OpId::known("op_mine"));
    let request = || claim::Request { scope: stage.scope(), ..Default::default() };
    let once = stage.perform_as_op("a", request(), op.clone()).unwrap();
    let before = history(&stage);
    let twice = stage.perform_as_op("a", request(), op.clone()).unwrap();
    assert_eq!(once, twice);
    assert_eq!(history(&stage), before);
    let other = stage.perform_as_op("a", renew::Request::default(), op).unwrap_err();
    assert!(matches!(other, Stop::Refused(toft_core::refusal::Refusal::OpReused { .. })));
}

#[test]
fn done_needs_evidence() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    let held = stage.claim("a").unwrap();
    let how = finish::How::Done(Evidence::NoChange("  ".into()));
    let request = finish::Request { id: Some(held.task.id.to_string()), how, ..Default::default() };
    let stop = stage.perform("a", request).unwrap_err();
    assert!(matches!(stop, Stop::Refused(toft_core::refusal::Refusal::NeedsEvidence)));
}

#[test]
fn a_question_survives_the_agent_that_asked_it() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    let held = stage.claim_by_process("asker", 1).unwrap();
    let how = finish::How::Waiting(finish::WaitFor::Human);
    let id = held.task.id.to_string();
    stage.perform("asker", finish::Request { id: Some(id.clone()), how, message: "blue or red?".into(), ..Default::default() }).unwrap();
    stage.processes.kill(1);
    stage.clock.advance(Duration::from_secs(100_000));
    let status = stage.perform("boss", verbs::status::Request { scope: stage.scope(), limit: 10 }).unwrap();
    assert!(matches!(&status.needs_you[0], verbs::status::NeedsYou::Question { text, .. } if text == "blue or red?"));
    assert!(stage.ready().is_empty());
    stage.perform("boss", answer::Request { id, answer: "red".into() }).unwrap();
    assert_eq!(stage.ready(), ["only"]);
}

#[test]
fn tasks_that_wait_for_each_other_are_refused() {
    let stage = Stage::memory();
    let plan = Plan { title: "loop".into(), tasks: toft_core::testing::plan_tasks(&["a<-c", "b<-a", "c<-b"]), ..Plan::default() };
    let source = toft_core::flow::Source::Prompt { text: "loop".into() };
    let stop = stage.perform("p", flow::New { plan, source, hold: false }).unwrap_err();
    assert!(matches!(stop, Stop::Refused(toft_core::refusal::Refusal::Cycle { path }) if path.len() == 4));
    let made = stage.flow("line", &["a", "b<-a"]);
    let held = stage.claim("w").unwrap();
    let how = finish::How::Waiting(finish::WaitFor::Task(made.tasks[1].id.to_string()));
    let stop = stage.perform("w", finish::Request { id: Some(held.task.id.to_string()), how, ..Default::default() });
    assert!(matches!(stop.unwrap_err(), Stop::Refused(toft_core::refusal::Refusal::Cycle { .. })));
}

#[test]
fn ready_order_is_blockers_priority_unblocking_age_then_plan() {
    let stage = Stage::memory();
    let mut plan = Plan { title: "order".into(), tasks: toft_core::testing::plan_tasks(&["plain", "hub", "x<-hub", "urgent", "found"]), ..Plan::default() };
    plan.tasks[3].priority = Some(0);
    plan.tasks[4].labels = vec!["discovered:blocker".into()];
    plan.tasks[4].priority = Some(4);
    stage.flow_with(plan);
    stage.clock.advance(Duration::from_secs(1));
    stage.flow("younger", &["late"]);
    assert_eq!(stage.ready(), ["found", "urgent", "hub", "plain", "late"]);
}

#[test]
fn a_workflow_never_exceeds_its_parallel_limit() {
    let stage = Stage::memory();
    let plan = Plan { title: "narrow".into(), max_parallel: Some(2), tasks: toft_core::testing::plan_tasks(&["a", "b", "c"]), ..Plan::default() };
    stage.flow_with(plan);
    let first = stage.claim("one").unwrap();
    stage.claim("two").unwrap();
    assert!(stage.claim("three").is_err());
    let how = finish::How::Done(Evidence::Commit("c1".into()));
    stage.perform("one", finish::Request { id: Some(first.task.id.to_string()), how, ..Default::default() }).unwrap();
    assert_eq!(stage.claim("three").unwrap().task.name, "c");
}

#[test]
fn a_refused_verb_leaves_no_trace() {
    let stage = Stage::memory();
    let before = history(&stage);
    assert!(stage.claim("nobody").is_err());
    assert_eq!(history(&stage), before);
    assert!(stage.store.begin(Access::Read).unwrap().agent_named("nobody").unwrap().is_none());
}

fn history(stage: &Stage) -> usize {
    let mut tx = stage.store.begin(Access::Read).unwrap();
    tx.events(&EventQuery { limit: usize::MAX, ..EventQuery::default() }).unwrap().len()
}
