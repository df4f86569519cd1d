//! Who may ask for a workspace, go on with one, or take it down.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use proptest::prelude::*;
use toft_core::{
    lease::Fence,
    refusal::{Refusal, VerbError},
    testing::Stage,
    verbs::workspace::{List, Listed, Move, Pin, Provide, Provided},
    workspace::WorkspaceState,
};

fn wanted(name: &str, task: Option<&str>) -> Provide {
    Provide {
        name: name.into(),
        path: format!("/w/{name}"),
        source: "/stage".into(),
        branch: Some(name.into()),
        own_branch: true,
        base: "abc".into(),
        onto: Some("main".into()),
        task: task.map(str::to_owned),
        most: 3,
        ..Provide::default()
    }
}

fn given(stage: &Stage, request: Provide) -> Provided {
    let provided = stage.perform("ann", request).unwrap();
    let request = Move::to(&provided.workspace.id, WorkspaceState::Ready);
    Provided { workspace: stage.perform("ann", request).unwrap(), ..provided }
}

fn refusal(stop: VerbError) -> Refusal {
    match stop {
        VerbError::Refused(refusal) => refusal,
        VerbError::Failed(error) => panic!("{error}"),
    }
}

fn listed(stage: &Stage) -> Vec<Listed> {
    stage.perform("ann", List { scope: stage.scope(), all: false, limit: 0 }).unwrap()
}

#[test]
fn a_task_has_one_workspace_and_the_next_holder_goes_on_in_it() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    let held = stage.claim("ann").unwrap();
    let task = held.task.id.to_string();
    let first = given(&stage, wanted("x", Some(&task)));
    assert!(!first.begun);
    let taken = stage.perform("bob", wanted("y", Some(&task))).unwrap_err();
    assert!(matches!(refusal(taken), Refusal::LeaseHeld { .. }));
    stage.clock.advance(Duration::from_secs(11));
    stage.claim("bob").unwrap();
    let again = stage.perform("bob", wanted("y", Some(&task))).unwrap();
    assert_eq!((again.workspace.id, again.begun), (first.workspace.id.clone(), true));
    for fence in [Some(held.lease.fence()), None] {
        let remove = Move { fence, ..Move::to(&first.workspace.id, WorkspaceState::Removing) };
        let refused = refusal(stage.perform("ann", remove).unwrap_err());
        assert!(matches!(refused, Refusal::FenceStale { .. } | Refusal::LeaseHeld { .. }), "{refused}");
    }
}

#[test]
fn over_the_limit_none_is_made_and_what_could_go_is_named() {
    let stage = Stage::memory();
    for name in ["a", "b", "c"] {
        given(&stage, wanted(name, None));
    }
    stage.perform("ann", Pin { id: "a".into(), pinned: true }).unwrap();
    let refused = refusal(stage.perform("ann", wanted("d", None)).unwrap_err());
    let Refusal::NoRoom { there: 3, most: 3, could_go } = refused else { panic!("{refused}") };
    assert!(could_go.contains(&"b".to_owned()) && !could_go.contains(&"a".to_owned()), "{could_go:?}");
    let pinned = stage.perform("ann", Move { fence: None, ..remove(&stage, "a") }).unwrap_err();
    assert!(matches!(refusal(pinned), Refusal::WrongState { .. }));
    for to in [WorkspaceState::Removing, WorkspaceState::Removed] {
        stage.perform("ann", Move { to, ..remove(&stage, "b") }).unwrap();
    }
    given(&stage, wanted("d", None));
}

fn remove(stage: &Stage, name: &str) -> Move {
    let row = listed(stage).into_iter().find(|row| row.workspace.name == name).unwrap();
    Move::to(&row.workspace.id, WorkspaceState::Removing)
}

#[test]
fn ports_are_leased_to_one_at_a_time() {
    let stage = Stage::memory();
    let with_ports = |name: &str| Provide { ports: vec!["web".into()], free: vec![7, 8], ..wanted(name, None) };
    let first = given(&stage, with_ports("a"));
    let second = given(&stage, with_ports("b"));
    assert_eq!((first.workspace.ports["web"], second.workspace.ports["web"]), (7, 8));
    let none = stage.perform("ann", with_ports("c")).unwrap_err();
    assert!(matches!(refusal(none), Refusal::Invalid { .. }));
    stage.perform("ann", remove(&stage, "a")).unwrap();
    stage.perform("ann", Move::to(&first.workspace.id, WorkspaceState::Removed)).unwrap();
    assert_eq!(given(&stage, with_ports("c")).workspace.ports["web"], 7);
}

#[test]
fn one_made_ahead_is_taken_by_one_and_left_alone_by_gc() {
    let stage = Stage::memory();
    let ahead = given(&stage, Provide { pooled: true, fresh: true, branch: None, ..wanted("pool", None) });
    let now = listed(&stage);
    assert!(now[0].idle("here", ahead.workspace.used, None).is_err());
    let taken = stage.perform("ann", wanted("x", None)).unwrap();
    assert!(taken.ahead && taken.workspace.id == ahead.workspace.id && taken.workspace.name == "x");
    assert_eq!(taken.workspace.state, WorkspaceState::Provisioning, "until it is turned into what is wanted");
    assert!(!stage.perform("ann", wanted("y", None)).unwrap().ahead);
}

proptest! {
    /// Whatever is asked in whatever order: a row moves only as states allow, names are unique among what is there,
    /// no port is leased twice, and no more are there than may be.
    #[test]
    fn no_sequence_of_requests_breaks_a_workspace(moves in prop::collection::vec((0u8..6, 0usize..5, 0usize..5), 1..60)) {
        const STATES: [WorkspaceState; 5] = [
            WorkspaceState::Provisioning, WorkspaceState::Ready, WorkspaceState::Removing, WorkspaceState::Removed,
            WorkspaceState::Quarantined,
        ];
        let stage = Stage::memory();
        for (what, a, b) in moves {
            let name = format!("w{a}");
            let before = stage.perform("ann", List { scope: stage.scope(), all: true, limit: 0 }).unwrap();
            let outcome = match what {
                0..=2 => {
                    let ports = if b % 2 == 0 { vec!["web".to_owned()] } else { Vec::new() };
                    let request = Provide { ports, free: vec![1, 2, 3, 4], pooled: b == 4, fresh: b == 4, ..wanted(&name, None) };
                    stage.perform("ann", request).map(drop)
                }
                3 => stage.perform("ann", Pin { id: name, pinned: b % 2 == 0 }).map(drop),
                _ => match before.get(a) {
                    Some(row) => {
                        let request = Move { most: 3, ..Move::to(&row.workspace.id, STATES[b]) };
                        stage.perform("ann", request).map(drop)
                    }
                    None => Ok(()),
                },
            };
            prop_assert!(!matches!(outcome, Err(VerbError::Failed(_))), "{outcome:?}");
            let after = stage.perform("ann", List { scope: stage.scope(), all: true, limit: 0 }).unwrap();
            for row in &after {
                let known = before.iter().find(|old| old.workspace.id == row.workspace.id);
                let (now, then) = (row.workspace.state, known.map(|old| old.workspace.state));
                let taken_over = known.is_some_and(|old| old.workspace.pooled && !row.workspace.pooled);
                prop_assert!(then.is_none_or(|then| then == now || then.may_become(now) || taken_over), "{then:?} {now:?}");
            }
            let live: Vec<_> = after.iter().filter(|row| row.workspace.state.live()).collect();
            let mut names: Vec<_> = live.iter().map(|row| &row.workspace.name).collect();
            let mut ports: Vec<_> = live.iter().flat_map(|row| row.workspace.ports.values()).collect();
            let (all_names, all_ports) = (names.len(), ports.len());
            names.sort();
            names.dedup();
            ports.sort();
            ports.dedup();
            prop_assert_eq!((names.len(), ports.len()), (all_names, all_ports));
            prop_assert!(live.len() <= 3);
        }
    }
}

#[test]
fn a_fence_that_is_none_is_refused() {
    let stage = Stage::memory();
    stage.flow("one", &["only"]);
    let held = stage.claim("ann").unwrap();
    let fence = Fence { number: held.lease.fence + 1, ..held.lease.fence() };
    let request = Provide { fence: Some(fence), ..wanted("x", Some(held.task.id.as_str())) };
    assert!(matches!(refusal(stage.perform("ann", request).unwrap_err()), Refusal::FenceStale { .. }));
}
