//! Randomized tests: bytes become verbs, which are performed on a stage and audited. Two stages with the same bytes
//! must return the same answers and end in the same state, with any store.

use std::{collections::BTreeMap, fmt::Debug, time::Duration};

use super::Stage;
use crate::{
    flow::{Evidence, PlanTask, Source, TaskStatus, WorkflowPlan},
    id::TaskId,
    lease::{Fence, Holder},
    ready,
    refusal::{Refusal, VerbError, VerbResult},
    repository::Scope,
    store::{Access, EventQuery, LeasesOf, Result, StoreTx, TaskQuery, WorkflowQuery},
    verbs::{self, answer, audit, claim, finish, flow, renew, replan, save, send, undo},
};

const LABELS: [&str; 3] = ["x", "y", "discovered:related"];
const CAPABILITIES: [&str; 2] = ["gpu", "rust"];

/// One step: the verb and its arguments are derived from these bytes.
pub type Bytes = [u8; 6];

/// A stage, and what its agents know.
pub struct Play {
    pub stage: Stage,
    flows: Vec<String>,
    fences: BTreeMap<String, Vec<Fence>>,
}

impl Play {
    /// A new play.
    pub fn on(mut stage: Stage) -> Self {
        stage.by_wire = false;
        Self { stage, flows: Vec::new(), fences: BTreeMap::new() }
    }

    /// Performs one step and returns the answer.
    pub fn step(&mut self, bytes: Bytes) -> String {
        let [what, who, which, how, more, last] = bytes;
        let agent = format!("agent-{}", who % 4);
        match what % 32 {
            0..=2 => self.make_flow(bytes),
            3..=9 => self.claim(&agent, which, how),
            10..=11 => self.claim_named(&agent, which),
            12..=14 => self.save(&agent, which, how),
            15..=20 => self.finish(&agent, which, how, more),
            21 if how.is_multiple_of(2) => self.register(&agent, which),
            21 => said(self.stage.perform(&agent, renew::Request::default())),
            22..=23 => self.with_task(which, |play, id| {
                said(play.stage.perform("boss", answer::Request { id, answer: "yes".into() }))
            }),
            24..=25 => self.with_flow(which, |play, id| {
                let to = match how % 8 {
                    0..=2 => flow::Step::Pause,
                    3..=6 => flow::Step::Resume,
                    _ => flow::Step::Abandon,
                };
                said(play.stage.perform("boss", flow::Move { id, to, reason: None }))
            }),
            26 if how % 3 == 0 => self.with_task(which, |play, id| {
                let to = (more % 4 != 0).then_some(agent);
                said(play.stage.perform("boss", verbs::assign::Request { id, to }))
            }),
            26 => self.with_task(which, |play, task| {
                let decision = replan::Decide { task, retry: how % 2 == 0, reason: "r".into() };
                said(play.stage.perform("boss", decision))
            }),
            27 => self.with_flow(which, |play, workflow| {
                let tasks = chain(&[how % 6, more % 6, last % 6]);
                said(play.stage.perform("boss", replan::Request { workflow, tasks }))
            }),
            28 => self.with_flow(which, |play, workflow| {
                let needs = vec![format!("t{}", more % 4)];
                let tasks = vec![PlanTask { name: format!("a{how}"), needs, ..PlanTask::default() }];
                said(play.stage.perform("boss", replan::Add { workflow, tasks }))
            }),
            29 => {
                self.stage.processes.kill(u32::from(which % 5) + 1);
                "killed".into()
            }
            30 => self.undo(["planner", "boss", agent.as_str()][usize::from(which % 3)], how.is_multiple_of(3)),
            _ => {
                self.stage.clock.advance(Duration::from_secs(u64::from(which % 80)));
                "passed".into()
            }
        }
    }

    /// Undoes the last operation of an agent, or redoes the last one that was undone.
    pub fn undo(&mut self, actor: &str, redo: bool) -> String {
        let scope = self.stage.scope();
        let last = self.stage.perform(actor, undo::Last { scope: scope.clone(), count: 1, undone: redo });
        match last.map(|mut last| last.pop()) {
            Ok(Some(undo)) => said(self.stage.perform(actor, undo::Take { op: undo.op, scope, redo })),
            Ok(None) => "nothing to undo".into(),
            Err(stop) => said::<()>(Err(stop)),
        }
    }

    fn make_flow(&mut self, [_, who, which, how, more, last]: Bytes) -> String {
        let tasks = 1 + usize::from(who % 5);
        let limit = |byte: u8| (!byte.is_multiple_of(3)).then(|| u32::from(byte % 3));
        let mut plan = WorkflowPlan {
            title: format!("flow {which}"),
            max_parallel: limit(which),
            budget: limit(how).map(f64::from),
            ..WorkflowPlan::default()
        };
        for position in 0..tasks {
            let dice = usize::from(more).wrapping_mul(position + 3).wrapping_add(usize::from(last) * 7);
            let needs = if position > 0 && dice % 2 == 0 { vec![format!("t{}", dice % position)] } else { vec![] };
            let on_failure_of =
                if position > 1 && dice % 3 == 0 { vec![format!("t{}", dice % position)] } else { vec![] };
            plan.tasks.push(PlanTask {
                name: format!("t{position}"),
                priority: Some((dice % 5) as u8),
                needs,
                on_failure_of,
                parallel_group: (dice % 4 == 3).then_some((dice % 3) as u32),
                max_attempts: Some(1 + (dice % 3) as u32),
                labels: some_of(&LABELS, dice / 5),
                requires: if dice % 7 < 2 { some_of(&CAPABILITIES, 1 + dice / 7) } else { vec![] },
                ..PlanTask::default()
            });
        }
        let source = Source::Prompt { text: "p".into() };
        let made = self.stage.perform("planner", flow::New { plan, source, hold: last % 5 == 0 });
        if let Ok(made) = &made {
            self.flows.push(made.workflow.id.to_string());
        }
        said(made)
    }

    fn claim(&mut self, agent: &str, which: u8, how: u8) -> String {
        let holder = how.is_multiple_of(2).then(|| Holder {
            host: if how.is_multiple_of(16) { "there".into() } else { "here".into() },
            boot: "boot-1".into(),
            pid: 1 + u32::from(how % 5),
            started: 1,
        });
        let count = usize::from(which % 3);
        let labels = if which.is_multiple_of(4) { some_of(&LABELS, usize::from(how / 8)) } else { vec![] };
        let worktree = which.is_multiple_of(5).then(|| if how.is_multiple_of(3) { "other" } else { "main" }.into());
        let scope = Scope { worktree, ..self.stage.scope() };
        let id = which.is_multiple_of(7).then(|| self.flows.get(usize::from(how) % self.flows.len().max(1)).cloned());
        let request = claim::Request { id: id.flatten(), count, labels, holder, scope, ..Default::default() };
        let claimed = self.stage.perform(agent, request.clone());
        let left = self.best_by_rule(agent, &request).expect("facts can be read");
        match &claimed {
            Ok(outcome) => {
                let last = outcome.claims.iter().map(|claim| ready::rank(&claim.task)).max();
                assert!(left.is_none() || left > last, "{agent} claimed {last:?} and left {left:?}");
            }
            Err(VerbError::Refused(Refusal::NothingReady { .. })) => {
                assert_eq!(left, None, "{agent} was told that nothing is ready");
            }
            Err(_) => {}
        }
        self.remember(&claimed);
        said(claimed)
    }

    fn register(&mut self, agent: &str, which: u8) -> String {
        let capabilities = some_of(&CAPABILITIES, usize::from(which));
        let request = verbs::agent::Register { name: Some(agent.into()), capabilities, ..Default::default() };
        said(self.stage.perform(agent, request))
    }

    fn claim_named(&mut self, agent: &str, which: u8) -> String {
        self.with_task(which, |play, id| {
            let claimed = play.stage.perform(agent, claim::Request { id: Some(id), ..Default::default() });
            play.remember(&claimed);
            said(claimed)
        })
    }

    fn remember(&mut self, claimed: &VerbResult<claim::Outcome>) {
        for claim in claimed.iter().flat_map(|outcome| &outcome.claims) {
            self.fences.entry(claim.task.id.to_string()).or_default().push(claim.lease.fence());
        }
    }

    fn fence(&self, task: &str, how: u8) -> Option<Fence> {
        let fences = self.fences.get(task)?;
        match how % 3 {
            0 => None,
            1 => fences.first().cloned(),
            _ => fences.last().cloned(),
        }
    }

    fn save(&mut self, agent: &str, which: u8, how: u8) -> String {
        self.with_task(which, |play, id| {
            let fence = play.fence(&id, how);
            if how.is_multiple_of(5) {
                let request = send::Request {
                    to: "human".into(),
                    body: "hello".into(),
                    task: Some(id),
                    fence,
                    ..Default::default()
                };
                return said(play.stage.perform(agent, request));
            }
            let state = (how % 4 == 1).then(|| (format!("k{}", how % 3), how.into()));
            let request =
                save::Request { id: Some(id), fence, message: Some("note".into()), state, ..Default::default() };
            said(play.stage.perform(agent, request))
        })
    }

    fn finish(&mut self, agent: &str, which: u8, how: u8, more: u8) -> String {
        self.with_task(which, |play, id| {
            let fence = play.fence(&id, more);
            let how = match how % 8 {
                0..=2 => finish::How::Done(Evidence::Commit("abc".into())),
                3 => finish::How::Failed,
                4 => finish::How::Release,
                5 => finish::How::Waiting(finish::WaitFor::Human),
                6 => finish::How::Waiting(finish::WaitFor::Timer(Duration::from_secs(20))),
                _ => match play.task(more) {
                    Some(other) => finish::How::Waiting(finish::WaitFor::Task(other)),
                    None => finish::How::Handoff,
                },
            };
            let request = finish::Request {
                id: Some(id),
                fence,
                how,
                choices: Vec::new(),
                message: "m".into(),
                cost: Some(0.5),
                report: None,
                offer: None,
                verified: Vec::new(),
            };
            said(play.stage.perform(agent, request))
        })
    }

    fn with_task(&mut self, n: u8, act: impl FnOnce(&mut Self, String) -> String) -> String {
        match self.task(n) {
            Some(id) => act(self, id),
            None => "no task".into(),
        }
    }

    fn with_flow(&mut self, n: u8, act: impl FnOnce(&mut Self, String) -> String) -> String {
        if self.flows.is_empty() {
            return "no flow".into();
        }
        let id = self.flows[usize::from(n) % self.flows.len()].clone();
        act(self, id)
    }

    fn task(&self, n: u8) -> Option<String> {
        let mut tx = self.stage.store.begin(Access::Read).expect("a store can be read");
        let mut ids: Vec<_> = tx.tasks(&TaskQuery::default()).expect("tasks can be read");
        ids.sort_by(|a, b| a.id.cmp(&b.id));
        (!ids.is_empty()).then(|| ids[usize::from(n) % ids.len()].id.to_string())
    }

    /// The rank of the task that the rule lets `agent` claim first.
    fn best_by_rule(&self, agent: &str, request: &claim::Request) -> Result<Option<String>> {
        let ready = self.ready_by_rule()?;
        let mut tx = self.stage.store.begin(Access::Read)?;
        let can = tx.agent_named(agent)?.map(|agent| agent.capabilities).unwrap_or_default();
        for id in ready {
            let Some(task) = tx.task(&id)? else { continue };
            if request.id.as_ref().is_none_or(|id| task.workflow.as_str() == id)
                && request.labels.iter().all(|label| task.spec.labels.contains(label))
                && request.scope.covers(&task.place)
                && task.lacking(&can).is_empty()
                && !task.assigned_elsewhere(agent)
            {
                return Ok(Some(ready::rank(&task)));
            }
        }
        Ok(None)
    }

    /// Panics if an invariant is broken, or if the queue offers a task that the rule does not call ready.
    pub fn check(&self) {
        let outcome = self.stage.perform("auditor", audit::Request { events: usize::MAX }).expect("an audit");
        assert!(outcome.broken.is_empty(), "{:#?}", outcome.broken);
        let expected = self.unassigned(self.ready_by_rule().expect("facts can be read"));
        let request = verbs::ready::Request { scope: self.stage.scope(), limit: 10_000, ..Default::default() };
        let listed = self.stage.perform("looker", request).expect("looking never fails").ready;
        let offered: Vec<_> =
            listed.into_iter().map(|item| TaskId::known(item.id())).filter(|id| expected.contains(id)).collect();
        assert_eq!(offered, expected, "the queue offers what the rule calls ready, in its order");
        for label in LABELS {
            let labels = vec![label.to_owned()];
            let request =
                verbs::ready::Request { labels, scope: self.stage.scope(), limit: 10_000, ..Default::default() };
            let listed = self.stage.perform("looker", request).expect("looking never fails").ready;
            let offered: Vec<_> = listed
                .iter()
                .map(verbs::ready::Item::id)
                .filter(|id| expected.iter().any(|known| known.as_str() == *id))
                .collect();
            let labelled = self.labelled(label, &expected).expect("facts can be read");
            assert_eq!(offered, labelled, "a label's index offers what the rule calls ready, in its order");
        }
    }

    fn unassigned(&self, mut ids: Vec<TaskId>) -> Vec<TaskId> {
        let mut tx = self.stage.store.begin(Access::Read).expect("a store can be read");
        ids.retain(|id| tx.task(id).expect("a task can be read").is_some_and(|task| task.spec.assigned_to.is_none()));
        ids
    }

    fn labelled(&self, label: &str, ids: &[TaskId]) -> Result<Vec<String>> {
        let mut tx = self.stage.store.begin(Access::Read)?;
        let mut labelled = Vec::new();
        for id in ids {
            if tx.task(id)?.is_some_and(|task| task.spec.labels.iter().any(|known| known == label)) {
                labelled.push(id.to_string());
            }
        }
        Ok(labelled)
    }

    fn ready_by_rule(&self) -> Result<Vec<TaskId>> {
        let mut tx = self.stage.store.begin(Access::Read)?;
        let now = tx.now()?.wall;
        let mut ready = Vec::new();
        for task in tx.tasks(&TaskQuery::default())? {
            let shown = task.state.outcome.as_ref().is_some_and(|outcome| outcome.evidence.is_some());
            assert_eq!(task.state.status == TaskStatus::Done, shown, "done means evidence");
            let Some(workflow) = tx.workflow(&task.workflow)? else { continue };
            let dependencies = tx.dependencies(&task.id)?;
            let gates = tx.gates(&task.id)?;
            if ready::reasons(&task, &workflow, &dependencies, &gates, now).is_empty() {
                ready.push((ready::rank(&task), task.id));
            }
        }
        ready.sort();
        Ok(ready.into_iter().map(|(_, id)| id).collect())
    }

    /// The whole content of the store, in a fixed order.
    pub fn dump(&self) -> String {
        let mut tx = self.stage.store.begin(Access::Read).expect("a store can be read");
        dump(tx.as_mut()).expect("everything can be read")
    }
}

fn dump(tx: &mut dyn StoreTx) -> Result<String> {
    let mut lines = vec![
        format!("{:?}", tx.repositories()?),
        format!("{:?}", tx.workflows(&WorkflowQuery::default())?),
        format!("{:?}", tx.agents()?),
        format!("{:?}", tx.leases(&LeasesOf::Repository(None))?),
        format!("{:?}", tx.inbox("human", false, 0)?),
        format!("{:?}", tx.events(&EventQuery { limit: usize::MAX, ..EventQuery::default() })?),
    ];
    for task in tx.tasks(&TaskQuery::default())? {
        lines.push(format!("{:?}", tx.dependencies(&task.id)?));
        lines.push(format!("{:?}", tx.dependents(&task.id)?));
        lines.push(format!("{:?}", tx.attempts(&task.id)?));
        lines.push(format!("{:?}", tx.checkpoints(&task.id, 0)?));
        lines.push(format!("{:?}", tx.states(&task.id)?));
        lines.push(format!("{:?}", tx.gates(&task.id)?));
        lines.push(format!("{:?}", tx.queue_entry(&task.id)?));
        lines.push(format!("{task:?}"));
    }
    Ok(lines.join("\n"))
}

/// The words whose bits are set.
fn some_of(words: &[&str], bits: usize) -> Vec<String> {
    words.iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1).map(|(_, word)| (*word).to_owned()).collect()
}

fn chain(names: &[u8]) -> Vec<PlanTask> {
    let mut tasks: Vec<PlanTask> = Vec::new();
    for n in names {
        let name = format!("t{n}");
        if !tasks.iter().any(|task| task.name == name) {
            let needs = tasks.last().map(|task| task.name.clone()).into_iter().collect();
            tasks.push(PlanTask { name, needs, ..PlanTask::default() });
        }
    }
    tasks
}

fn said<T: Debug>(verdict: VerbResult<T>) -> String {
    match verdict {
        Ok(outcome) => format!("{outcome:?}"),
        Err(VerbError::Refused(refusal)) => format!("{refusal:?}"),
        Err(VerbError::Failed(error)) => panic!("the store failed: {error}"),
    }
}
