//! No sequence of verbs breaks an invariant: random operations on the memory store, audited after each.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use proptest::prelude::*;
use toft_core::{
    flow::{Evidence, PlanTask, WorkflowPlan},
    id::OpId,
    lease::{Fence, Lease},
    refusal::{Refusal, VerbError},
    store::{Access, EventQuery, LeasesOf, TaskQuery},
    testing::{Bytes, Play, Stage},
    time::Timestamp,
    verbs::{self, Operation, answer, claim, finish, flow, renew, save, send, undo},
};

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, max_shrink_iters: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_verbs_breaks_an_invariant(moves in prop::collection::vec(any::<Bytes>(), 1..80)) {
        let mut play = Play::on(Stage::memory());
        for bytes in moves {
            play.step(bytes);
            play.check();
        }
    }

    /// Whatever happened before, an undo changes nothing that another agent holds, finished, or built upon.
    #[test]
    fn undo_never_touches_what_another_holds_finished_or_built_upon(
        moves in prop::collection::vec(any::<Bytes>(), 1..60),
        undos in prop::collection::vec((0usize..6, any::<bool>()), 1..8),
    ) {
        const ACTORS: [&str; 6] = ["planner", "boss", "agent-0", "agent-1", "agent-2", "agent-3"];
        let mut play = Play::on(Stage::memory());
        for bytes in moves {
            play.step(bytes);
        }
        for (who, redo) in undos {
            let actor = ACTORS[who];
            let own = play.stage.holds(actor);
            let before = of_others(&play.stage, &own);
            play.undo(actor, redo);
            play.check();
            prop_assert_eq!(before, of_others(&play.stage, &own));
        }
    }
}

/// What must not change when somebody takes something back: others' live holds, everything that was ever worked on and was
/// not their own hold, and tasks that work elsewhere waits for.
fn of_others(stage: &Stage, own: &[Lease]) -> Vec<String> {
    let mut tx = stage.store.begin(Access::Read).unwrap();
    let mut rows: Vec<String> = Vec::new();
    for lease in tx.leases(&LeasesOf::Repository(None)).unwrap() {
        if !own.iter().any(|mine| mine.task == lease.task) {
            rows.push(format!("{} held under {}", lease.task, lease.fence));
        }
    }
    for task in tx.tasks(&TaskQuery::default()).unwrap() {
        // Giving one's own hold back is what the undo of a claim is.
        if own.iter().any(|mine| mine.task == task.id) {
            continue;
        }
        let worked_on = task.state.fence > 0;
        let dependents = tx.dependents(&task.id).unwrap();
        let built_upon = dependents.iter().any(|edge| {
            tx.task(&edge.task).unwrap().is_some_and(|other| other.workflow != task.workflow && other.state.fence > 0)
        });
        if worked_on || built_upon {
            rows.push(format!("{} {:?} {:?}", task.id, task.state.status, task.state.outcome));
        }
    }
    rows
}

#[test]
fn what_was_undone_can_be_done_again() {
    let stage = Stage::memory();
    let undo = |actor: &str, redo: bool| {
        let scope = stage.scope();
        let last = stage.perform(actor, undo::Last { scope: scope.clone(), count: 1, undone: redo }).unwrap().pop();
        let op = last.expect("there is an operation").op;
        stage.perform(actor, undo::Take { op, scope, redo })
    };
    let made = stage.flow("chain", &["a", "b<-a"]);
    undo("planner", false).unwrap();
    assert!(stage.ready().is_empty());
    undo("planner", true).unwrap();
    assert_eq!(stage.ready(), ["a"]);
    stage.claim("w").unwrap();
    let stop = undo("planner", false).unwrap_err();
    assert!(matches!(stop, VerbError::Refused(Refusal::CannotUndo { .. })), "{stop}");
    assert_eq!(stage.holds("w").len(), 1, "the hold stands");
    undo("w", false).unwrap();
    assert_eq!(stage.ready(), ["a"], "a claim is given back");
    let move_to = |to| flow::Move { id: made.workflow.id.to_string(), to, reason: None };
    stage.perform("boss", move_to(flow::Step::Pause)).unwrap();
    stage.perform("other", move_to(flow::Step::Resume)).unwrap();
    stage.perform("other", move_to(flow::Step::Pause)).unwrap();
    assert!(undo("boss", false).is_err(), "others moved it since");
}

#[test]
fn a_workflow_that_was_undone_stays_undone_once_another_task_waits_for_it() {
    let stage = Stage::memory();
    let scope = stage.scope();
    let undo = |redo: bool| {
        let last = stage.perform("planner", undo::Last { scope: scope.clone(), count: 1, undone: redo }).unwrap();
        stage.perform("planner", undo::Take { op: last[0].op.clone(), scope: scope.clone(), redo })
    };
    stage.flow("first", &["a"]);
    let given_up = stage.flow("second", &["b"]).tasks[0].id.to_string();
    undo(false).unwrap();
    let claim = stage.claim("w").unwrap();
    let wait = finish::Request {
        id: Some(claim.task.id.to_string()),
        fence: Some(claim.lease.fence()),
        how: finish::How::Waiting(finish::WaitFor::Task(given_up)),
        message: "needs b".into(),
        ..finish::Request::default()
    };
    stage.perform("w", wait).unwrap();
    assert!(matches!(undo(true), Err(VerbError::Refused(Refusal::CannotUndo { .. }))), "w waits for what was given up");
}

fn fence_is_stale(stop: &VerbError) -> bool {
    matches!(stop, VerbError::Refused(Refusal::FenceStale { .. }))
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
    let saved =
        save::Request { id: id.clone(), fence: fence.clone(), message: Some("late".into()), ..Default::default() };
    assert!(fence_is_stale(&stage.perform("slow", saved).unwrap_err()));
    let stated = save::Request {
        id: id.clone(),
        fence: fence.clone(),
        state: Some(("k".into(), 1.into())),
        ..Default::default()
    };
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
    let request = save::Request {
        id: Some(held.task.id.to_string()),
        fence: Some(forged),
        message: Some("x".into()),
        ..Default::default()
    };
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
    let op = |request: &str| Some(Operation { id: OpId::known("op_mine"), request: request.into() });
    let (op, changed) = (op("the one"), op("another"));
    let request = || claim::Request { scope: stage.scope(), ..Default::default() };
    let once = stage.perform_as_op("a", request(), op.clone()).unwrap();
    let before = history(&stage);
    let twice = stage.perform_as_op("a", request(), op.clone()).unwrap();
    assert_eq!(once, twice);
    assert_eq!(history(&stage), before);
    let stranger = stage.perform_as_op("b", request(), op.clone()).unwrap_err();
    assert!(matches!(stranger, VerbError::Refused(Refusal::OpReused { .. })));
    let changed = stage.perform_as_op("a", request(), changed).unwrap_err();
    assert!(matches!(changed, VerbError::Refused(Refusal::OpReused { .. })));
    let other = stage.perform_as_op("a", renew::Request::default(), op).unwrap_err();
    assert!(matches!(other, VerbError::Refused(Refusal::OpReused { .. })));
}

#[test]
fn a_name_alone_writes_nothing_on_a_held_task() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    let held = stage.claim("ana").unwrap();
    let id = Some(held.task.id.to_string());
    let before = history(&stage);
    let named = |name: &str, fence: Option<Fence>| {
        let request = finish::Request { id: id.clone(), fence, ..Default::default() };
        stage.perform(name, request).unwrap_err()
    };
    let other = named("ana", None);
    assert!(matches!(other, VerbError::Refused(Refusal::OtherSession { .. })), "{other}");
    let stranger = named("bob", None);
    assert!(matches!(stranger, VerbError::Refused(Refusal::LeaseHeld { .. })), "{stranger}");
    let thief = named("bob", Some(held.lease.fence()));
    assert!(matches!(thief, VerbError::Refused(Refusal::LeaseHeld { .. })), "{thief}");
    assert_eq!(history(&stage), before);
    let shown =
        format!("{:?}", stage.perform("bob", verbs::log::Request { limit: 100, ..Default::default() }).unwrap());
    assert!(!shown.contains(held.lease.id.as_str()), "history shows nobody's fence");
}

#[test]
fn a_clock_that_went_back_strands_no_retry_and_no_timer() {
    let stage = Stage::memory();
    stage.flow("two", &["flaky", "patient"]);
    const YEAR: i64 = 365 * 86_400_000;
    for how in [finish::How::Failed, finish::How::Waiting(finish::WaitFor::Timer(Duration::from_secs(5)))] {
        stage.claim("w").unwrap();
        stage.clock.step_wall(YEAR);
        finish_as(&stage, "w", how);
        stage.clock.step_wall(-YEAR);
    }
    assert!(stage.claim("w").is_err(), "neither is due yet");
    stage.perform("w", verbs::sweep::Request {}).unwrap();
    stage.clock.advance(Duration::from_secs(11));
    assert!(stage.claim("w").is_ok() && stage.claim("v").is_ok(), "both are due");
}

#[test]
fn an_issue_that_cannot_be_started_leaves_nothing_behind() {
    let stage = Stage::memory();
    let tasks = vec![PlanTask { name: "t".into(), repository: Some("nowhere".into()), ..Default::default() }];
    let plan = WorkflowPlan { title: "p".into(), tasks, ..Default::default() };
    let (extends, variables) = (None, std::collections::BTreeMap::new());
    stage
        .perform("boss", verbs::template::Put { name: "bad".into(), description: None, extends, variables, plan })
        .unwrap();
    stage.flow("other", &["fine"]);
    let offer = |id: &str, template: Option<&str>| {
        let issue = serde_json::json!({ "id": id, "title": id, "status": "open", "priority": 0, "template": template });
        let issue = serde_json::from_value(issue).unwrap();
        verbs::issue::Offer { issue, ledger: "main".into(), rank: "0".into(), said_at: Timestamp(0), reasons: vec![] }
    };
    let request = claim::Request {
        offers: vec![offer("tf-broken", Some("bad")), offer("tf-sound", None)],
        count: 3,
        scope: stage.scope(),
        ..Default::default()
    };
    let claimed = stage.perform("w", request.clone()).unwrap().claims;
    let names: Vec<_> = claimed.iter().map(|claimed| claimed.task.spec.name.as_str()).collect();
    assert_eq!(names, ["tf-sound", "fine"], "the others are taken");
    let flows = stage.perform("w", flow::List { all: true, limit: 9, ..Default::default() }).unwrap();
    assert_eq!(flows.len(), 2, "no workflow was left for the broken one: {flows:?}");
    let alone = claim::Request { offers: vec![offer("tf-broken", Some("bad"))], ..request };
    let stop = stage.perform("v", alone).unwrap_err();
    let VerbError::Refused(Refusal::NothingReady { unstartable: Some(found), .. }) = &stop else { panic!("{stop}") };
    assert_eq!(found.issue, "tf-broken");
    assert!(found.why.contains("nowhere"), "and it says why: {stop}");
}

#[test]
fn done_needs_evidence() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    let held = stage.claim("a").unwrap();
    let how = finish::How::Done(Evidence::NoChange("  ".into()));
    let request = finish::Request { id: Some(held.task.id.to_string()), how, ..Default::default() };
    let stop = stage.finish("a", request).unwrap_err();
    assert!(matches!(stop, VerbError::Refused(Refusal::NeedsEvidence)));
}

#[test]
fn a_question_survives_the_agent_that_asked_it() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    let held = stage.claim_by_process("asker", 1).unwrap();
    let how = finish::How::Waiting(finish::WaitFor::Human);
    let id = held.task.id.to_string();
    stage
        .finish(
            "asker",
            finish::Request { id: Some(id.clone()), how, message: "blue or red?".into(), ..Default::default() },
        )
        .unwrap();
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
    let plan = WorkflowPlan {
        title: "loop".into(),
        tasks: toft_core::testing::plan_tasks(&["a<-c", "b<-a", "c<-b"]),
        ..WorkflowPlan::default()
    };
    let source = toft_core::flow::Source::Prompt { text: "loop".into() };
    let stop = stage.perform("p", flow::New { plan, source, hold: false }).unwrap_err();
    assert!(matches!(stop, VerbError::Refused(Refusal::Cycle { path }) if path.len() == 4));
    let made = stage.flow("line", &["a", "b<-a"]);
    let held = stage.claim("w").unwrap();
    let how = finish::How::Waiting(finish::WaitFor::Task(made.tasks[1].id.to_string()));
    let stop = stage.finish("w", finish::Request { id: Some(held.task.id.to_string()), how, ..Default::default() });
    assert!(matches!(stop.unwrap_err(), VerbError::Refused(Refusal::Cycle { .. })));
}

#[test]
fn ready_order_is_labels_priority_unblocking_age_then_plan() {
    let stage = Stage::memory();
    let mut plan = WorkflowPlan {
        title: "order".into(),
        tasks: toft_core::testing::plan_tasks(&["plain", "hub", "x<-hub", "urgent", "found", "aside", "red"]),
        ..WorkflowPlan::default()
    };
    plan.tasks[3].priority = Some(0);
    plan.tasks[4].labels = vec!["discovered:blocker".into()];
    plan.tasks[4].priority = Some(4);
    plan.tasks[5].labels = vec!["discovered:related".into()];
    plan.tasks[6].labels = vec!["baseline-failure".into()];
    plan.tasks[6].priority = Some(4);
    stage.flow_with(plan);
    stage.clock.advance(Duration::from_secs(1));
    stage.flow("younger", &["late"]);
    assert_eq!(stage.ready(), ["red", "found", "urgent", "hub", "plain", "late", "aside"]);
}

#[test]
fn a_workflow_never_exceeds_its_parallel_limit() {
    let stage = Stage::memory();
    let plan = WorkflowPlan {
        title: "narrow".into(),
        max_parallel: Some(2),
        tasks: toft_core::testing::plan_tasks(&["a", "b", "c"]),
        ..WorkflowPlan::default()
    };
    stage.flow_with(plan);
    let first = stage.claim("one").unwrap();
    stage.claim("two").unwrap();
    assert!(stage.claim("three").is_err());
    let how = finish::How::Done(Evidence::Commit("c1".into()));
    stage.finish("one", finish::Request { id: Some(first.task.id.to_string()), how, ..Default::default() }).unwrap();
    assert_eq!(stage.claim("three").unwrap().task.spec.name, "c");
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

fn task_named(stage: &Stage, name: &str) -> toft_core::flow::Task {
    let mut tx = stage.store.begin(Access::Read).unwrap();
    let tasks = tx.tasks(&Default::default()).unwrap();
    tasks.into_iter().find(|task| task.spec.name == name).unwrap()
}

fn finish_as(stage: &Stage, agent: &str, how: finish::How) {
    stage.finish(agent, finish::Request { how, message: "m".into(), ..Default::default() }).unwrap();
}

#[test]
fn replanning_away_a_chain_releases_each_dependent_once() {
    let stage = Stage::memory();
    let mut plan = WorkflowPlan {
        title: "p".into(),
        tasks: toft_core::testing::plan_tasks(&["t1", "t2", "t3<-t2,t4", "t4"]),
        ..WorkflowPlan::default()
    };
    plan.tasks[1].on_failure_of = vec!["t1".into()];
    let made = stage.flow_with(plan);
    let tasks = toft_core::testing::plan_tasks(&["t3<-t4", "t4"]);
    let workflow = made.workflow.id.to_string();
    stage.perform("boss", verbs::replan::Request { workflow, tasks }).unwrap();
    assert_eq!(stage.ready(), ["t4"]);
    assert_eq!(task_named(&stage, "t3").state.open_blockers, 1);
}

#[test]
fn a_workflow_whose_last_task_ended_while_paused_completes_when_it_resumes() {
    let stage = Stage::memory();
    let made = stage.flow("p", &["only"]);
    stage.claim("a").unwrap();
    let id = made.workflow.id.to_string();
    stage.perform("boss", flow::Move { id: id.clone(), to: flow::Step::Pause, reason: None }).unwrap();
    finish_as(&stage, "a", finish::How::Done(Evidence::Commit("c".into())));
    let resumed = stage.perform("boss", flow::Move { id, to: flow::Step::Resume, reason: None }).unwrap();
    assert_eq!(resumed.status.as_str(), "completed");
}

#[test]
fn a_task_for_a_failure_that_can_no_longer_happen_is_skipped_at_once() {
    let stage = Stage::memory();
    let made = stage.flow("p", &["build", "other"]);
    stage.claim("a").unwrap();
    finish_as(&stage, "a", finish::How::Done(Evidence::Commit("c".into())));
    let mut tasks = toft_core::testing::plan_tasks(&["mourn"]);
    tasks[0].on_failure_of = vec!["build".into()];
    let workflow = made.workflow.id.to_string();
    stage.perform("boss", verbs::replan::Add { workflow, tasks }).unwrap();
    assert_eq!(task_named(&stage, "mourn").state.status.as_str(), "skipped");
}

#[test]
fn replanning_with_fewer_attempts_than_were_used_gives_a_fresh_start() {
    let stage = Stage::memory();
    let made = stage.flow("p", &["only"]);
    for _ in 0..2 {
        stage.claim("a").unwrap();
        finish_as(&stage, "a", finish::How::Failed);
        stage.clock.advance(Duration::from_secs(3_600));
    }
    let mut tasks = toft_core::testing::plan_tasks(&["only"]);
    tasks[0].max_attempts = Some(2);
    let workflow = made.workflow.id.to_string();
    stage.perform("boss", verbs::replan::Request { workflow, tasks }).unwrap();
    assert_eq!(stage.ready(), ["only"]);
}

#[test]
fn a_turned_around_dependency_is_no_cycle() {
    let stage = Stage::memory();
    let made = stage.flow("p", &["a<-b", "b"]);
    let tasks = toft_core::testing::plan_tasks(&["b<-a", "a"]);
    let workflow = made.workflow.id.to_string();
    stage.perform("boss", verbs::replan::Request { workflow, tasks }).unwrap();
    assert_eq!(stage.ready(), ["a"]);
}

#[test]
fn a_due_retry_of_a_full_workflow_is_not_offered() {
    let stage = Stage::memory();
    let tasks = toft_core::testing::plan_tasks(&["a", "b"]);
    stage.flow_with(WorkflowPlan { title: "p".into(), max_parallel: Some(1), tasks, ..WorkflowPlan::default() });
    stage.claim("x").unwrap();
    finish_as(&stage, "x", finish::How::Failed);
    stage.claim_by_process("y", 1).unwrap();
    stage.clock.advance(Duration::from_secs(30));
    assert!(stage.ready().is_empty());
    assert!(stage.claim("z").is_err());
}

#[test]
fn an_abandoned_workflow_releases_nothing_that_waited_for_it() {
    let stage = Stage::memory();
    let mut plan = WorkflowPlan {
        title: "p".into(),
        tasks: toft_core::testing::plan_tasks(&["t1", "t2"]),
        ..WorkflowPlan::default()
    };
    plan.tasks[1].on_failure_of = vec!["t1".into()];
    let made = stage.flow_with(plan);
    let t2 = task_named(&stage, "t2").id;
    stage.flow("q", &[&format!("outside<-{t2}")]);
    let id = made.workflow.id.to_string();
    stage.perform("boss", flow::Move { id, to: flow::Step::Abandon, reason: None }).unwrap();
    assert_eq!(task_named(&stage, "t2").state.status.as_str(), "cancelled");
    assert!(stage.ready().is_empty());
}

#[test]
fn an_answer_reaches_whoever_takes_the_task_next() {
    let stage = Stage::memory();
    stage.flow("p", &["only"]);
    let held = stage.claim("asker").unwrap();
    finish_as(&stage, "asker", finish::How::Waiting(finish::WaitFor::Human));
    stage.perform("boss", answer::Request { id: held.task.id.to_string(), answer: "red".into() }).unwrap();
    let next = stage.claim("next").unwrap();
    assert_eq!(next.answers[0].opened.as_ref().unwrap().answer, "red");
}
