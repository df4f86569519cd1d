//! What a claim with a filter finds, and what it is told when it finds nothing.

use toft_core::{
    flow::{PlanTask, WorkflowPlan},
    refusal::{Refusal, VerbError},
    testing::{Stage, plan_tasks},
    verbs::{self, claim},
};

#[test]
fn a_search_by_several_labels_ends_and_says_so() {
    let stage = Stage::memory();
    let labelled = |n: usize, labels: &[&str]| PlanTask {
        name: format!("t{n}"),
        labels: labels.iter().map(ToString::to_string).collect(),
        ..PlanTask::default()
    };
    let mut tasks: Vec<_> = (0..2_400).map(|n| labelled(n, &[["a", "b"][n % 2]])).collect();
    tasks.extend([labelled(2_400, &["a", "b"]), labelled(2_401, &["a", "rare"])]);
    stage.flow_with(WorkflowPlan { title: "many".into(), tasks, ..WorkflowPlan::default() });
    let claim = |labels: &[&str]| {
        let labels = labels.iter().map(ToString::to_string).collect();
        stage.claim_with("me", claim::Request { labels, scope: stage.scope(), ..Default::default() })
    };
    let Err(VerbError::Refused(refusal @ Refusal::NothingReady { examined: Some(1_000..1_100), .. })) =
        claim(&["a", "b"])
    else {
        panic!("it is found only behind more than a thousand that match in part")
    };
    assert!(refusal.to_string().contains("the search ended after 10"), "{refusal}");
    // The rarer label leads to it, whichever is named first.
    assert_eq!(claim(&["a", "rare"]).unwrap().task.spec.name, "t2401");
    assert!(matches!(claim(&["a", "rare"]), Err(VerbError::Refused(Refusal::NothingReady { examined: None, .. }))));
}

#[test]
fn a_claim_is_told_which_capabilities_it_lacks_and_waits_for_none_of_them() {
    let stage = Stage::memory();
    let requiring = |name: &str, requires: &[&str]| PlanTask {
        name: name.into(),
        requires: requires.iter().map(ToString::to_string).collect(),
        ..PlanTask::default()
    };
    let tasks = vec![requiring("both", &["rust", "gpu", "rust"]), requiring("one", &["gpu"]), requiring("none", &[])];
    stage.flow_with(WorkflowPlan { title: "able".into(), tasks, max_parallel: Some(3), ..WorkflowPlan::default() });
    assert_eq!(stage.claim("plain").unwrap().task.spec.name, "none");
    let Err(VerbError::Refused(Refusal::NothingReady { lacking, .. })) = stage.claim("plain") else {
        panic!("it can do nothing else")
    };
    assert_eq!(lacking, ["gpu", "rust"]);
    let register = verbs::agent::Register {
        name: Some("able".into()),
        capabilities: vec!["gpu".into(), "more".into()],
        ..Default::default()
    };
    stage.perform("able", register).unwrap();
    assert_eq!(stage.claim("able").unwrap().task.spec.name, "one");
    let Err(VerbError::Refused(Refusal::NothingReady { lacking, .. })) = stage.claim("able") else {
        panic!("it can do nothing else")
    };
    assert_eq!(lacking, ["rust"]);
}

#[test]
fn a_claim_of_many_steps_over_a_workflow_that_it_fills() {
    let stage = Stage::memory();
    let limited =
        WorkflowPlan { title: "limited".into(), max_parallel: Some(1), priority: Some(0), ..WorkflowPlan::default() };
    stage.flow_with(WorkflowPlan { tasks: plan_tasks(&["a", "b", "c"]), ..limited });
    stage.flow("open", &["d", "e"]);
    let request = claim::Request { count: 3, scope: stage.scope(), ..Default::default() };
    let claims = stage.perform("me", request).unwrap().claims;
    assert_eq!(claims.iter().map(|claim| claim.task.spec.name.as_str()).collect::<Vec<_>>(), ["a", "d", "e"]);
}
