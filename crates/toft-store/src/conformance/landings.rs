//! Landings and the verdicts of checks.

use toft_core::{
    change::Write,
    id::{LandingId, RepositoryId, TaskId, WorkflowId, WorkspaceId},
    landing::{
        Bounce, BounceReason, CheckRun, LandedAs, Landing, LandingOffer, LandingState, PullRequest, Reviewer, Verdict,
        WorkApproval,
    },
    store::LandingQuery,
};

use super::{Pair, fields::at};

/// A landing in which no field has its default.
fn landing(id: &str, n: i64, state: LandingState) -> Landing {
    Landing {
        id: LandingId::known(id),
        repository: RepositoryId::known("rp_a"),
        title: "Ship \"it\" — 家".into(),
        task: Some(TaskId::known("tk_1")),
        workflow: Some(WorkflowId::known("wf_1")),
        issue: Some("tf-1".into()),
        author: "blue".into(),
        offer: LandingOffer {
            target: "main".into(),
            tip: "abc".into(),
            host: "here".into(),
            clone: "/r/.git".into(),
            workspace: Some(WorkspaceId::known("ws_1")),
            branch: Some("toft/x".into()),
            bases: vec!["ab0".into()],
            sent: true,
            taken: true,
            private: true,
            closes: true,
            review: Reviewer::Agent("eve".into()),
        },
        priority: 1,
        state,
        approval: Some(WorkApproval { by: "ana".into(), tip: "abc".into(), at: at(3) }),
        review_task: Some(TaskId::known("tk_8")),
        pull_request: Some(Box::new(PullRequest {
            number: 7,
            url: "https://forge.example/7".into(),
            remote: "origin".into(),
            branch: "work".into(),
            tip: "abc".into(),
        })),
        reverts: Some(LandingId::known("ln_8")),
        reverted_by: Some(LandingId::known("ln_7")),
        bounces: vec![Bounce {
            reason: BounceReason::Conflict,
            at: at(2),
            tip: "old".into(),
            target: "def".into(),
            message: "both\nsides".into(),
            files: vec!["a b".into()],
            against: vec![LandingId::known("ln_9")],
        }],
        landed: Some(LandedAs {
            commit: "fed".into(),
            before: "ef".into(),
            at: at(4),
            by: "ana".into(),
            checked: Some("c".into()),
        }),
        created: at(n),
        updated: at(5),
    }
}

pub fn landings_are_kept_whole_and_listed_newest_first(pair: &Pair) {
    let all = [
        landing("ln_1", 1, LandingState::Queued),
        landing("ln_2", 2, LandingState::Bounced),
        landing("ln_3", 3, LandingState::Landed),
        Landing { repository: RepositoryId::known("rp_b"), ..landing("ln_4", 4, LandingState::Queued) },
    ];
    pair.write(&all.clone().map(Write::Landing));
    let ids = |repository: Option<&str>, live, limit| {
        let query = LandingQuery { repository: repository.map(RepositoryId::known), live, limit };
        pair.read(|tx| tx.landings(&query)).into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(None, true, 0), ["ln_4", "ln_2", "ln_1"]);
    assert_eq!(ids(Some("rp_a"), true, 0), ["ln_2", "ln_1"]);
    assert_eq!(ids(Some("rp_a"), false, 2), ["ln_3", "ln_2"]);
    assert_eq!(pair.read(|tx| tx.landing(&all[0].id)).as_ref(), Some(&all[0]));
    assert_eq!(pair.read(|tx| tx.ids("ln_", 9)).len(), 4);
    pair.write(&[Write::Landing(landing("ln_1", 1, LandingState::Withdrawn))]);
    assert_eq!(ids(Some("rp_a"), true, 0), ["ln_2"]);
}

pub fn verdicts_are_found_by_tree_and_those_that_changed_are_listed(pair: &Pair) {
    let run = |passed| CheckRun { passed, at: at(1), ms: 7, message: "said".into(), log: "/l".into() };
    let verdict = |tree: &str, runs: &[bool]| {
        let repository = RepositoryId::known("rp_a");
        let runs = runs.iter().map(|passed| run(*passed)).collect();
        Verdict { key: Verdict::key(&repository, tree, "c"), repository, tree: tree.into(), runs }
    };
    let all = [verdict("t1", &[true]), verdict("t2", &[false]), verdict("t3", &[false, true])];
    pair.write(&all.clone().map(Write::Verdict));
    assert_eq!(pair.read(|tx| tx.verdict(&all[1].key)).as_ref(), Some(&all[1]));
    assert_eq!(pair.read(|tx| tx.verdict("other")), None);
    let flaky = || pair.read(|tx| tx.flaky_verdicts(&RepositoryId::known("rp_a")));
    assert_eq!(flaky(), [all[2].clone()]);
    pair.write(&[Write::Verdict(verdict("t2", &[false, true]))]);
    assert_eq!(flaky().len(), 2);
    assert_eq!(pair.read(|tx| tx.flaky_verdicts(&RepositoryId::known("rp_b"))), []);
}
