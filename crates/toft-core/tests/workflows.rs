//! What becomes of tasks when their workflow is held, paused, replanned or given up, and of the questions they asked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use toft_core::{
    flow::{Evidence, PlanTask, Task, TaskStatus},
    ready::Reason,
    refusal::{Refusal, VerbError},
    testing::{Stage, plan_tasks},
    verbs::{self, answer, claim, finish, flow, ready, replan, save},
};

fn step(stage: &Stage, id: &str, to: flow::Step) -> Result<(), VerbError> {
    stage.perform("boss", flow::Move { id: id.into(), to, reason: None }).map(drop)
}

fn claim_named(stage: &Stage, agent: &str, id: &str) -> Result<claim::Claimed, VerbError> {
    stage.claim_with(agent, claim::Request { id: Some(id.into()), scope: stage.scope(), ..Default::default() })
}

/// Ends the only hold of an agent with a question; returns the gate.
fn ask(stage: &Stage, agent: &str, question: &str) -> String {
    let how = finish::How::Waiting(finish::WaitFor::Human);
    let ended = stage.finish(agent, finish::Request { how, message: question.into(), ..Default::default() }).unwrap();
    ended.gate.unwrap().id.to_string()
}

fn finish_done(stage: &Stage, agent: &str) {
    let how = finish::How::Done(Evidence::NoChange("it was right".into()));
    stage.finish(agent, finish::Request { how, ..Default::default() }).unwrap();
}

fn questions(stage: &Stage) -> Vec<String> {
    let status = stage.perform("boss", verbs::status::Request { scope: stage.scope(), limit: 10 }).unwrap();
    let text = |need: verbs::status::NeedsYou| match need {
        verbs::status::NeedsYou::Question { text, .. } => Some(text),
        _ => None,
    };
    status.needs_you.into_iter().filter_map(text).collect()
}

#[test]
fn a_workflow_is_held_paused_replanned_and_abandoned() {
    let stage = Stage::memory();
    let plan =
        toft_core::flow::WorkflowPlan { title: "p".into(), tasks: plan_tasks(&["a", "b"]), ..Default::default() };
    let source = toft_core::flow::Source::Prompt { text: "p".into() };
    let made = stage.perform("planner", flow::New { plan, source, hold: true }).unwrap();
    let id = made.workflow.id.to_string();
    assert!(stage.claim("w").is_err(), "it is held");
    step(&stage, &id, flow::Step::Resume).unwrap();
    step(&stage, &id[..9], flow::Step::Resume).unwrap();
    claim_named(&stage, "w", &id).unwrap();
    step(&stage, &id, flow::Step::Pause).unwrap();
    assert!(stage.claim("v").is_err(), "it is paused");
    let save = || {
        stage.perform(
            "w",
            save::Request { message: Some("on".into()), fence: stage.fence("w", None), ..Default::default() },
        )
    };
    save().unwrap();
    step(&stage, &id, flow::Step::Resume).unwrap();
    let late = vec![PlanTask { name: "c".into(), needs: vec!["b".into()], ..PlanTask::default() }];
    stage.perform("boss", replan::Add { workflow: id.clone(), tasks: late }).unwrap();
    let tasks = plan_tasks(&["a", "d"]);
    let outcome = stage.perform("boss", replan::Request { workflow: id.clone(), tasks }).unwrap();
    assert_eq!((outcome.kept, outcome.added), (vec!["a".to_owned()], vec!["d".to_owned()]));
    assert_eq!(outcome.skipped, ["b", "c"]);
    let hold = stage.holds("w").remove(0);
    step(&stage, &id, flow::Step::Abandon).unwrap();
    let fence = Some(hold.fence.clone());
    let saved =
        save::Request { id: Some(hold.task.to_string()), fence, message: Some("late".into()), ..Default::default() };
    assert!(stage.perform("w", saved).is_err(), "its lease ended with the workflow");
    assert!(step(&stage, &id, flow::Step::Resume).is_err(), "what was given up stays so");
}

#[test]
fn a_plan_that_changes_takes_nothing_from_who_is_at_work() {
    let stage = Stage::memory();
    let made = stage.flow("p", &["keep", "held", "gone"]);
    let id = |n: usize| made.tasks[n].id.to_string();
    claim_named(&stage, "h", &id(1)).unwrap();
    claim_named(&stage, "g", &id(2)).unwrap();
    let mut tasks = plan_tasks(&["keep<-new", "held<-new", "new<-held"]);
    tasks[1].brief = "v2".into();
    stage.perform("boss", replan::Request { workflow: made.workflow.id.to_string(), tasks }).unwrap();
    let fence = stage.fence("h", None);
    let saved = save::Request { message: Some("still at it".into()), fence, ..Default::default() };
    stage.perform("h", saved).unwrap();
    finish_done(&stage, "g");
    finish_done(&stage, "h");
    for name in ["new", "keep"] {
        assert_eq!(stage.claim("h").unwrap().task.spec.name, name);
        finish_done(&stage, "h");
    }
    let audit = stage.perform("auditor", verbs::audit::Request { events: 0 }).unwrap();
    assert!(audit.broken.is_empty(), "{:?}", audit.broken);
}

#[test]
fn a_question_is_answered_once() {
    let stage = Stage::memory();
    let made = stage.flow("p", &["only"]);
    stage.claim("w").unwrap();
    let gate = ask(&stage, "w", "red or blue?");
    let say = |id: &str| stage.perform("boss", answer::Request { id: id.into(), answer: "red".into() });
    say(&gate).unwrap();
    for id in [gate, made.tasks[0].id.to_string()] {
        assert!(matches!(say(&id), Err(VerbError::Refused(Refusal::NotFound { .. }))), "{id}");
    }
}

#[test]
fn questions_of_work_that_was_given_up_ask_nobody() {
    let stage = Stage::memory();
    let made = stage.flow("p", &["skipped", "abandoned"]);
    for question in ["skip me?", "abandon me?"] {
        stage.claim("w").unwrap();
        ask(&stage, "w", question);
    }
    let task = made.tasks[0].id.to_string();
    stage.perform("boss", replan::Decide { task, retry: false, reason: "no".into() }).unwrap();
    assert_eq!(questions(&stage), ["abandon me?"]);
    step(&stage, made.workflow.id.as_str(), flow::Step::Abandon).unwrap();
    assert!(questions(&stage).is_empty());
    let task = made.tasks[1].id.to_string();
    // Whatever is said to it, it is not revived.
    let _ = stage.perform("boss", answer::Request { id: task.clone(), answer: "late".into() });
    assert!(claim_named(&stage, "w", &task).is_err());
    let row = |task: &Task| stage.perform("boss", verbs::facts::TaskRow { task: task.id.clone() }).unwrap().unwrap();
    let states = made.tasks.iter().map(|task| row(task).state.status);
    assert_eq!(states.collect::<Vec<_>>(), [TaskStatus::Skipped, TaskStatus::Cancelled]);
}

#[test]
fn each_task_that_cannot_start_says_why() {
    let stage = Stage::memory();
    let mut tasks = plan_tasks(&["a", "b", "c<-a", "d"]);
    tasks[3].requires = vec!["gpu".into()];
    let plan = toft_core::flow::WorkflowPlan { title: "p".into(), max_parallel: Some(1), tasks, ..Default::default() };
    let made = stage.flow_with(plan);
    stage.claim("w").unwrap();
    let request = ready::Request { scope: stage.scope(), limit: 10, explain: true, ..Default::default() };
    let outcome = stage.perform("w", request).unwrap();
    assert!(outcome.ready.is_empty());
    let why = |name: &str| &outcome.not_ready.iter().find(|row| row.task.spec.name == name).unwrap().reasons;
    assert!(why("b").iter().any(|reason| matches!(reason, Reason::ParallelLimit { .. })), "{:?}", why("b"));
    assert!(why("c").iter().any(|reason| matches!(reason, Reason::Blocked { .. })), "{:?}", why("c"));
    finish_done(&stage, "w");
    let Err(VerbError::Refused(Refusal::NotReady { reasons, .. })) =
        claim_named(&stage, "w", made.tasks[3].id.as_str())
    else {
        panic!("it cannot do that")
    };
    assert!(matches!(reasons[..], [Reason::MissingCapability { .. }]), "{reasons:?}");
}

#[test]
fn a_value_is_kept_for_the_next_holder_and_written_once() {
    let stage = Stage::memory();
    stage.flow("p", &["steps"]);
    stage.claim("w").unwrap();
    let put = || {
        let state = Some(("step-1".to_owned(), serde_json::json!({ "rows": 12 })));
        stage.perform("w", save::Request { state, fence: stage.fence("w", None), ..Default::default() }).unwrap()
    };
    assert!(put().changed);
    assert!(!put().changed, "the same value again changes nothing");
    let how = finish::How::Handoff;
    stage.finish("w", finish::Request { how, message: "the rest is easy".into(), ..Default::default() }).unwrap();
    let next = stage.claim("next").unwrap();
    assert_eq!(next.resume.unwrap().summary, "the rest is easy");
}

#[test]
fn a_task_has_failed_for_good_after_its_last_attempt() {
    let stage = Stage::memory();
    let mut tasks = plan_tasks(&["only"]);
    tasks[0].max_attempts = Some(2);
    stage.flow_with(toft_core::flow::WorkflowPlan { title: "p".into(), tasks, ..Default::default() });
    for status in [TaskStatus::Pending, TaskStatus::Failed] {
        stage.claim("w").unwrap();
        let ended = stage.finish("w", finish::Request { how: finish::How::Failed, ..Default::default() }).unwrap();
        assert_eq!(ended.task.state.status, status);
        assert!(stage.claim("w").is_err(), "it rests, or has failed");
        stage.clock.advance(std::time::Duration::from_secs(3_600));
    }
}
