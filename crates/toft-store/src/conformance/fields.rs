//! Round trips: written rows are read back, field by field, for every kind of row.

use std::{collections::BTreeMap, time::Duration};

use toft_core::{
    agent::{Agent, AgentState, Role},
    change::{QueueEntry, Receipt, Write},
    checkpoint::{Checkpoint, CheckpointKind, Detail},
    flow::{
        Attempt, AttemptResult, Dependency, DependencyKind, Ending, Evidence, Outcome, PlanTask, ProviderRefusal,
        ProviderRefusalKind, Report, ReviewedWork, Source, Task, TaskSpec, TaskState, TaskStatus, Template, Usage,
        Variable, Verified, Workflow, WorkflowPlan, WorkflowStatus,
    },
    gate::{Gate, GateKind, Opened},
    id::{
        AgentId, CheckpointId, GateId, LandingId, LeaseId, MessageId, OpId, RepositoryId, TaskId, TemplateId,
        WorkflowId, WorkspaceId,
    },
    lease::{Fence, Holder, Lease},
    message::{Address, Delivery, DeliveryState, Message, MessageKind},
    repository::{Place, Repository, Worktree},
    store::{QueueKey, QueueScan, WorkspaceQuery},
    time::{Tick, Timestamp},
    workspace::{Left, Workspace, WorkspaceKind, WorkspaceState},
};

use super::Pair;

pub(super) fn at(n: i64) -> Timestamp {
    Timestamp(1_800_000_000_000 + n)
}

pub(super) fn place() -> Place {
    Place { repository: Some(RepositoryId::known("rp_a")), worktree: Some("side".into()) }
}

/// A workflow in which no field has its default.
pub(super) fn workflow(id: &str) -> Workflow {
    Workflow {
        id: WorkflowId::known(id),
        title: "Ship \"it\" — 家".into(),
        source: Source::External { reference: "PROJ-7".into() },
        status: WorkflowStatus::Running,
        reason: Some("because".into()),
        priority: 1,
        plan_summary: Some("in steps".into()),
        max_parallel: Some(3),
        budget: Some(2.5),
        spent: 0.25,
        full: true,
        template: Some("ship@2".into()),
        config: BTreeMap::from([("region".to_owned(), serde_json::json!({ "name": "eu" }))]),
        ended_by: Some("blue".into()),
        repositories: vec![RepositoryId::known("rp_a"), RepositoryId::known("rp_b")],
        ledger_updated: true,
        unlanded: 2,
        tasks: 9,
        place: place(),
        created: at(1),
        updated: at(2),
    }
}

/// A task in which no field has its default.
pub(super) fn task(id: &str, workflow: &str) -> Task {
    Task {
        id: TaskId::known(id),
        workflow: WorkflowId::known(workflow),
        order: 4,
        spec: TaskSpec {
            name: "build".into(),
            brief: "line\nbreak\tand \u{1b} escape".into(),
            priority: 0,
            labels: vec!["rust".into(), "discovered:blocker".into()],
            requires: vec!["gpu".into()],
            paths: vec!["src/lib.rs".into()],
            parallel_group: Some(2),
            plan: Some("first this".into()),
            max_attempts: 7,
            assigned_to: Some("blue".into()),
            reviews: Some(ReviewedWork {
                landing: LandingId::known("ln_1"),
                tip: "abc".into(),
                authors: vec!["green".into()],
            }),
        },
        place: place(),
        created: at(3),
        state: state(TaskStatus::Running),
    }
}

fn state(status: TaskStatus) -> TaskState {
    TaskState {
        status,
        attempt: 2,
        fence: 5,
        open_blockers: 3,
        unblocks: 8,
        not_before: Some(at(4)),
        outcome: Some(Outcome {
            summary: "so far".into(),
            evidence: Some(Evidence::Artifact("a.tar".into())),
            verified: vec![Verified { command: "make test".into(), exit: 0, commit: "abc".into() }],
        }),
        updated: at(5),
    }
}

pub(super) fn lease(task: &str) -> Lease {
    Lease {
        task: TaskId::known(task),
        workflow: WorkflowId::known("wf_1"),
        repository: Some(RepositoryId::known("rp_a")),
        agent: AgentId::known("ag_1"),
        fence: Fence { number: 5, id: LeaseId::known(format!("ls_{task}")) },
        acquired: at(6),
        ttl: Duration::from_millis(1_500),
        cap: Duration::from_millis(9_500),
        renewed: at(7),
        renewed_tick: Tick { epoch: "boot-1".into(), ms: 70 },
        seen: vec![Tick { epoch: "boot-9".into(), ms: 71 }],
        check_at: 80,
        holder: Some(Holder { host: "here".into(), boot: "boot-1".into(), pid: 42, started: 99 }),
    }
}

pub(super) fn agent(id: &str, name: &str) -> Agent {
    Agent {
        id: AgentId::known(id),
        name: name.into(),
        role: Role::Coordinator,
        capabilities: vec!["gpu".into(), "rust".into()],
        runtime: Some("claude".into()),
        host: "here".into(),
        machine: "build-7".into(),
        state: AgentState::Draining,
        note: Some("a new disk".into()),
        assigned: true,
        drained: true,
        seen: at(8),
        created: at(9),
    }
}

pub(super) fn attempt(task: &str, fence: u64) -> Attempt {
    Attempt {
        task: TaskId::known(task),
        fence,
        lease: LeaseId::known("ls_1"),
        agent: AgentId::known("ag_1"),
        place: place(),
        started: at(10),
        ended: Some(at(11)),
        result: Some(AttemptResult::ProcessGone),
        reason: Some("killed".into()),
        cost: Some(0.75),
        report: Some(Report {
            ending: Ending::Exited(3),
            ran_ms: 1_500,
            host: "here".into(),
            log: "/state/attempts/tk_1/5/log".into(),
            workspace: "tf-1".into(),
            usage: Some(Usage { input_tokens: 7, output_tokens: 9 }),
            refused: Some(ProviderRefusal {
                kind: ProviderRefusalKind::RateLimit,
                message: "429".into(),
                wait_s: Some(60),
            }),
        }),
    }
}

pub(super) fn checkpoint(seq: u64) -> Checkpoint {
    Checkpoint {
        id: CheckpointId::known(format!("cp_{seq}")),
        task: TaskId::known("tk_1"),
        fence: 5,
        seq,
        kind: CheckpointKind::Decision,
        summary: "we chose".into(),
        detail: Some(Detail::Inline(serde_json::json!({ "why": [1, 2.5, null, "x"] }))),
        files: vec!["a".into(), "b".into()],
        commit: Some("abc".into()),
        parent: Some(CheckpointId::known("cp_0")),
        agent: AgentId::known("ag_1"),
        place: place(),
        created: at(12),
    }
}

/// A workspace in which no field has its default.
pub(super) fn workspace(id: &str, n: i64) -> Workspace {
    Workspace {
        id: WorkspaceId::known(id),
        repository: RepositoryId::known("rp_a"),
        name: "tf-1".into(),
        kind: WorkspaceKind::Clone,
        path: "/w/é".into(),
        host: "h".into(),
        source: "/src".into(),
        branch: Some("tf-1".into()),
        own_branch: true,
        base: "abc".into(),
        onto: Some("main".into()),
        task: Some(TaskId::known("tk_1")),
        state: WorkspaceState::Removing,
        pooled: true,
        pinned: true,
        created: at(n),
        used: at(9),
        reason: Some("because".into()),
        overlay_base: Some("abc".into()),
        ports: [("web".to_owned(), 20_001)].into(),
        rescue: Some("def".into()),
        landed: Some("abc".into()),
        left: vec![Left { path: "data".into(), bytes: 7 }],
    }
}

pub fn workspaces_are_listed_newest_first_and_those_that_are_gone_only_when_asked(pair: &Pair) {
    let gone = Workspace { state: WorkspaceState::Removed, ..workspace("ws_3", 3) };
    let other = Workspace { repository: RepositoryId::known("rp_b"), ..workspace("ws_4", 4) };
    let all = [workspace("ws_1", 1), workspace("ws_2", 2), gone, other];
    pair.write(&all.map(Write::Workspace));
    let ids = |repository: Option<&str>, live, limit| {
        let query = WorkspaceQuery { repository: repository.map(RepositoryId::known), live, limit };
        pair.read(|tx| tx.workspaces(&query)).into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(ids(None, true, 0), ["ws_4", "ws_2", "ws_1"]);
    assert_eq!(ids(Some("rp_a"), true, 0), ["ws_2", "ws_1"]);
    assert_eq!(ids(Some("rp_a"), false, 2), ["ws_3", "ws_2"]);
    assert_eq!(pair.read(|tx| tx.ids("ws_", 9)).len(), 4);
}

pub(super) fn gate(id: &str, task: &str) -> Gate {
    Gate {
        id: GateId::known(id),
        task: TaskId::known(task),
        kind: GateKind::Human { question: "which?".into(), choices: vec!["this".into()] },
        asked_by: "blue".into(),
        place: place(),
        created: at(13),
        opened: None,
    }
}

pub(super) fn message(id: &str, priority: u8, created: i64) -> Message {
    Message {
        id: MessageId::known(id),
        thread: MessageId::known("msg_first"),
        from: AgentId::known("ag_1"),
        to: Address::Holder(TaskId::known("tk_1")),
        kind: MessageKind::Question,
        priority,
        subject: Some("a sign of life".into()),
        reply_to: Some(MessageId::known("msg_before")),
        body: "are you there?\u{0} \\ '".into(),
        task: Some(TaskId::known("tk_1")),
        needs_ack: true,
        expires: Some(at(1_000)),
        created: at(created),
    }
}

fn template() -> Template {
    Template {
        id: TemplateId::known("tmpl_1"),
        name: "ship".into(),
        version: 2,
        description: Some("how we ship".into()),
        removed: Some(at(40)),
        extends: Some("base".into()),
        variables: BTreeMap::from([(
            "what".to_owned(),
            Variable { default: Some("it".into()), about: Some("the thing".into()) },
        )]),
        plan: WorkflowPlan {
            title: "Ship {{what}}".into(),
            summary: Some("s".into()),
            priority: Some(3),
            max_parallel: Some(2),
            budget: Some(1.5),
            config: BTreeMap::from([("region".to_owned(), serde_json::json!(["eu", 1]))]),
            tasks: vec![PlanTask {
                name: "a".into(),
                brief: "b".into(),
                needs: vec!["n".into()],
                informed_by: vec!["i".into()],
                on_failure_of: vec!["f".into()],
                parallel_group: Some(1),
                priority: Some(4),
                labels: vec!["l".into()],
                requires: vec!["r".into()],
                paths: vec!["p".into()],
                plan: Some("how".into()),
                max_attempts: Some(9),
                repository: Some("api".into()),
            }],
        },
        created: at(14),
    }
}

pub(super) fn base() -> Vec<Write> {
    vec![Write::Workflow(workflow("wf_1")), Write::Task(task("tk_1", "wf_1")), Write::Agent(agent("ag_1", "blue"))]
}

/// Each row is built without a default value, so that a column that is not written or not read is detected.
pub fn every_field_of_every_row_comes_back(pair: &Pair) {
    let id = TaskId::known("tk_1");
    let repository = Repository {
        id: RepositoryId::known("rp_a"),
        name: "api".into(),
        vcs: "jj".into(),
        common_dir: "/r/.git".into(),
        roots: vec!["4b825dc".into()],
        remotes: vec!["example.org/team/app".into()],
        clone_url: Some("https://git.example/x".into()),
        created: at(20),
    };
    let worktree =
        Worktree { repository: repository.id.clone(), name: "side".into(), path: "/r/side".into(), seen: at(21) };
    let dependency = Dependency { task: id.clone(), on: TaskId::known("tk_9"), kind: DependencyKind::OnFailure };
    let entry = QueueEntry {
        task: id.clone(),
        lane: "rp_a".into(),
        rank: "02f".into(),
        workflow: WorkflowId::known("wf_1"),
        worktree: Some("main".into()),
        labels: vec!["a b".into(), "l\"ü".into()],
    };
    let receipt = Receipt {
        op: OpId::known("op_1"),
        actor: "blue".into(),
        verb: "claim".into(),
        request: "digest".into(),
        outcome: serde_json::json!({ "claims": [] }),
        at: at(22),
    };
    let letter = message("msg_1", 2, 30);
    let delivery = Delivery {
        message: letter.id.clone(),
        recipient: "human".into(),
        state: DeliveryState::Acked,
        rank: "2a".into(),
        read_at: Some(at(31)),
    };
    let opened = Opened { at: at(15), by: "boss".into(), answer: "red".into() };
    let gate = Gate { opened: Some(opened), ..gate("gt_1", "tk_1") };
    let workspace = workspace("ws_1", 3);
    let mut writes = base();
    writes.extend([
        Write::Repository(repository.clone()),
        Write::Worktree(worktree.clone()),
        Write::Dependency(dependency.clone()),
        Write::Lease(lease("tk_1")),
        Write::Attempt(attempt("tk_1", 5)),
        Write::Checkpoint(checkpoint(1)),
        Write::State(id.clone(), "step".into(), serde_json::json!([{ "deep": "value" }])),
        Write::Message(letter.clone()),
        Write::Delivery(delivery),
        Write::Gate(gate.clone()),
        Write::Workspace(workspace.clone()),
        Write::Template(template()),
        Write::Queue(entry.clone()),
        Write::Receipt(receipt.clone()),
    ]);
    pair.write(&writes);

    assert_eq!(pair.read(|tx| tx.repositories()), std::slice::from_ref(&repository));
    assert_eq!(pair.read(|tx| tx.worktrees(&repository.id)), [worktree]);
    assert_eq!(pair.read(|tx| tx.workflow(&WorkflowId::known("wf_1"))), Some(workflow("wf_1")));
    assert_eq!(pair.read(|tx| tx.task(&id)), Some(task("tk_1", "wf_1")));
    assert_eq!(pair.read(|tx| tx.dependencies(&id)), [(dependency, None)]);
    assert_eq!(pair.read(|tx| tx.lease(&id)), Some(lease("tk_1")));
    assert_eq!(pair.read(|tx| tx.attempts(&id)), [attempt("tk_1", 5)]);
    assert_eq!(pair.read(|tx| tx.checkpoints(&id, 0)), [checkpoint(1)]);
    assert_eq!(pair.read(|tx| tx.state(&id, "step")), Some(serde_json::json!([{ "deep": "value" }])));
    assert_eq!(pair.read(|tx| tx.states(&id)).len(), 1);
    assert_eq!(pair.read(|tx| tx.agent(&AgentId::known("ag_1"))), Some(agent("ag_1", "blue")));
    assert_eq!(pair.read(|tx| tx.message(&letter.id)), Some(letter.clone()));
    let inbox = pair.read(|tx| tx.inbox("human", false, 0));
    assert_eq!((inbox[0].message.clone(), inbox[0].state), (letter, DeliveryState::Acked));
    assert_eq!(inbox[0].read_at, Some(at(31)));
    assert_eq!(inbox[0].from_name, "blue");
    assert_eq!(pair.read(|tx| tx.gates(&id)), [gate]);
    assert_eq!(pair.read(|tx| tx.workspace(&workspace.id)), Some(workspace));
    assert_eq!(pair.read(|tx| tx.template("ship", None)), Some(template()));
    assert_eq!(pair.read(|tx| tx.queue_entry(&id)), Some(entry.clone()));
    assert_eq!(pair.read(|tx| tx.queue_entry(&entry.task)), Some(entry.clone()));
    let keys = [QueueKey::All, QueueKey::Workflow(entry.workflow.clone()), QueueKey::Worktree("main".into())];
    for key in keys.into_iter().chain(entry.labels.iter().cloned().map(QueueKey::Label)) {
        let lanes = &["rp_a".to_owned()];
        let scan = QueueScan { lanes, key: &key, after: "", upto: None, limit: 0, taking: false };
        assert_eq!(pair.read(|tx| tx.queued(&scan)), [(entry.clone(), task("tk_1", "wf_1"))]);
    }
    assert_eq!(pair.read(|tx| tx.receipt(&receipt.op)), Some(receipt));
}

/// An update that forgets a column would keep the old value.
pub fn every_field_of_a_row_that_changes_is_overwritten(pair: &Pair) {
    let id = TaskId::known("tk_1");
    pair.write(&base());
    let mut open = attempt("tk_1", 5);
    (open.ended, open.result, open.reason, open.cost) = (None, None, None, None);
    pair.write(&[Write::Lease(lease("tk_1")), Write::Attempt(open)]);

    let changed = Workflow { status: WorkflowStatus::Paused, title: "other".into(), spent: 9.0, ..workflow("wf_1") };
    let retried = TaskState {
        status: TaskStatus::Pending,
        attempt: 0,
        fence: 6,
        open_blockers: 0,
        unblocks: 0,
        not_before: None,
        outcome: None,
        updated: at(99),
    };
    let mut renamed = task("tk_1", "wf_1");
    renamed.spec = TaskSpec { name: "test".into(), brief: String::new(), labels: vec![], ..renamed.spec };
    let renewed = Lease {
        ttl: Duration::from_millis(7),
        cap: Duration::from_millis(8),
        renewed: at(70),
        renewed_tick: Tick { epoch: "boot-2".into(), ms: 71 },
        check_at: 72,
        ..lease("tk_1")
    };
    let agent = Agent { name: "red".into(), state: AgentState::Gone, ..agent("ag_1", "blue") };
    pair.write(&[
        Write::Workflow(changed.clone()),
        Write::Task(renamed.clone()),
        Write::TaskState(id.clone(), retried.clone()),
        Write::RenewLease(renewed.clone()),
        Write::Attempt(attempt("tk_1", 5)),
        Write::Agent(agent.clone()),
    ]);
    assert_eq!(pair.read(|tx| tx.workflow(&changed.id)), Some(changed));
    assert_eq!(pair.read(|tx| tx.task(&id)), Some(Task { state: retried, ..renamed }));
    assert_eq!(pair.read(|tx| tx.lease(&id)), Some(renewed));
    assert_eq!(pair.read(|tx| tx.attempts(&id)), [attempt("tk_1", 5)]);
    assert_eq!(pair.read(|tx| tx.agent_named("red")), Some(agent));
    assert_eq!(pair.read(|tx| tx.agent_named("blue")), None);
}
