//! Assign: assign a task to an agent, or remove the assignment.
//!
//! An assigned task is in a lane of its agent ([`crate::ready`]), so claims of other agents skip nothing. If an agent
//! is removed, or silent for a day, the next claim that finds nothing else frees its work. Work assigned to a person
//! stays assigned.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find, send};
use crate::{
    agent::{Agent, AgentState},
    change::Write,
    flow::{Task, TaskStatus, place_in_queue},
    may::May,
    message::{Address, MessageKind},
    queue::assigned_lanes,
    refusal::{Refusal, VerbResult},
    repository::Scope,
    rights::{self, Action},
    schema::JsonSchema,
    store::{Access, QueueKey, QueueScan},
    token::TokenRole,
};

/// Maximum number of tasks of one agent that are freed at once.
const AT_ONCE: usize = 256;

/// Assign a task that is not held, or remove the assignment.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AssignRequest")]
pub struct Request {
    /// The task, by id or prefix, or an issue that is worked on.
    pub id: String,
    /// The agent, by name or id; absent to remove the assignment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Verb for Request {
    type Outcome = Task;
    const NAME: &'static str = "assign";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Task> {
        rights::require(work, Action::Assign)?;
        let mut task = find::task(work, &self.id)?;
        if !matches!(task.state.status, TaskStatus::Pending | TaskStatus::Waiting) {
            let (id, state) = (task.id.to_string(), task.state.status.as_str().into());
            let wanted = "only open work that nobody holds is assigned".into();
            return Err(Refusal::WrongState { id, state, wanted }.into());
        }
        let agent = self.to.as_deref().map(|text| assignable(work, text)).transpose()?;
        let to = agent.as_ref().map(|agent| agent.name.clone());
        if task.spec.assigned_to == to {
            return Ok(task);
        }
        let me = work.register_caller()?;
        let from = std::mem::replace(&mut task.spec.assigned_to, to);
        let mut writes = vec![Write::Task(task.clone())];
        if let Some(agent) = agent.as_ref().filter(|agent| !agent.assigned) {
            writes.push(Write::Agent(Agent { assigned: true, ..agent.clone() }));
        }
        let verb = if agent.is_some() { "task.assigned" } else { "task.unassigned" };
        work.record(task.id.as_str(), verb, json!({ "to": task.spec.assigned_to, "from": from }), writes)?;
        let workflow = work.require_workflow(&task.workflow)?;
        place_in_queue(work, &task, &workflow)?;
        if let Some(agent) = agent.filter(|agent| agent.id != me.id) {
            let body = format!("{} \"{}\" is assigned to you: toft claim {}", task.id, task.spec.name, task.id);
            let (to, inbox) = (Address::Agent(agent.id.clone()), [agent.id.to_string()]);
            send::deliver(work, &to, MessageKind::Assignment, 2, &body, Some(&task.id), &inbox)?;
        }
        Ok(task)
    }
}

/// Check whether work may be assigned to this agent. For issues in a ledger; `assign` checks it itself.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AssignCheck")]
pub struct Check {
    /// The agent, by name or id; absent to remove an assignment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Verb for Check {
    type Outcome = Option<Agent>;
    const NAME: &'static str = "assign.check";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Option<Agent>> {
        rights::require(work, Action::Assign)?;
        self.to.as_deref().map(|text| assignable(work, text)).transpose()
    }
}

/// The agents among these names whose assigned work is reserved for them.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AssignAwaited")]
pub struct Awaited {
    /// Names, as in ledgers.
    #[serde(default)]
    pub names: Vec<String>,
}

impl Verb for Awaited {
    type Outcome = Vec<String>;
    const NAME: &'static str = "assign.awaited";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<String>> {
        let mut awaited = Vec::new();
        for name in self.names {
            if is_awaited(work, &name)? {
                awaited.push(name);
            }
        }
        Ok(awaited)
    }
}

fn assignable(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Agent> {
    let agent = find::agent(work, text)?;
    if agent.state == AgentState::Gone {
        let wanted = "register it again first (toft agent register)".into();
        return Err(Refusal::WrongState { id: agent.name, state: "removed".into(), wanted }.into());
    }
    Ok(agent)
}

/// Whether work assigned to this name is reserved. A name that belongs to no agent reserves nothing.
pub(super) fn is_awaited(work: &mut VerbContext<'_>, name: &str) -> VerbResult<bool> {
    let now = work.now.wall;
    Ok(work.tx.agent_named(name)?.is_some_and(|agent| agent.awaited(now)))
}

/// Ready tasks in scope that are assigned, with the name of the agent.
pub(super) fn assigned(work: &mut VerbContext<'_>, scope: &Scope) -> VerbResult<Vec<(String, Vec<Task>)>> {
    let mut assigned = Vec::new();
    for (lane, name) in assigned_lanes(work.tx, scope)? {
        let lanes = [lane];
        let scan =
            QueueScan { lanes: &lanes, key: &QueueKey::All, after: "", upto: None, limit: AT_ONCE, taking: false };
        let tasks = work.tx.queued(&scan)?.into_iter().map(|(_, task)| task).collect();
        assigned.push((name, tasks));
    }
    Ok(assigned)
}

/// Ready tasks in scope that are assigned to removed or silent agents.
pub(super) fn stranded(work: &mut VerbContext<'_>, scope: &Scope) -> VerbResult<Vec<Task>> {
    let mut stranded = Vec::new();
    for (name, tasks) in assigned(work, scope)? {
        if !is_awaited(work, &name)? {
            stranded.extend(tasks);
        }
    }
    Ok(stranded)
}

/// Frees tasks that are assigned to removed or silent agents; returns how many.
pub(super) fn free_stranded(work: &mut VerbContext<'_>, scope: &Scope) -> VerbResult<usize> {
    let tasks = stranded(work, scope)?;
    let count = tasks.len();
    for task in tasks {
        free(work, task)?;
    }
    Ok(count)
}

/// Frees every ready task of an agent. Other tasks are freed when they become ready.
pub(super) fn free_all_of(work: &mut VerbContext<'_>, name: &str) -> VerbResult<()> {
    for (of, tasks) in assigned(work, &Scope::default())? {
        for task in tasks.into_iter().filter(|_| of == name) {
            free(work, task)?;
        }
    }
    Ok(())
}

fn free(work: &mut VerbContext<'_>, mut task: Task) -> VerbResult<()> {
    let from = task.spec.assigned_to.take();
    let detail = json!({ "from": from, "reason": "its agent is removed or was silent for a day" });
    work.record_system(task.id.as_str(), "task.unassigned", detail, vec![Write::Task(task.clone())])?;
    let workflow = work.require_workflow(&task.workflow)?;
    place_in_queue(work, &task, &workflow)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        agent::Role,
        refusal::VerbError,
        testing::Stage,
        verbs::{agent, claim, finish},
    };

    fn known(stage: &Stage, name: &str, role: Role) {
        let register = agent::Register { name: Some(name.into()), role: Some(role), ..Default::default() };
        stage.perform(name, register).unwrap();
    }

    fn assign(stage: &Stage, task: &str, to: Option<&str>) -> Task {
        stage.perform("ana", Request { id: task.into(), to: to.map(Into::into) }).unwrap()
    }

    fn audit(stage: &Stage) {
        let outcome = stage.perform("auditor", crate::verbs::audit::Request { events: 0 }).unwrap();
        assert!(outcome.broken.is_empty(), "{:?}", outcome.broken);
    }

    #[test]
    fn an_assigned_task_is_claimed_by_its_agent_alone_and_first() {
        let stage = Stage::memory();
        known(&stage, "bob", Role::Worker);
        let made = stage.flow("Ship", &["a", "b", "c"]);
        let (b, c) = (made.tasks[1].id.to_string(), made.tasks[2].id.to_string());
        assign(&stage, &b, Some("bob"));
        assign(&stage, &c, Some("bob"));
        audit(&stage);
        assert_eq!(stage.claim("amy").unwrap().task.spec.name, "a");
        assert!(matches!(stage.claim("amy"), Err(VerbError::Refused(Refusal::NothingReady { .. }))));
        let named = claim::Request { id: Some(b.clone()), scope: stage.scope(), ..Default::default() };
        assert!(matches!(stage.claim_with("amy", named), Err(VerbError::Refused(Refusal::NotReady { .. }))));
        stage.flow("Urgent", &["u"]);
        assert_eq!(stage.claim("bob").unwrap().task.spec.name, "b", "what is assigned goes first");
        // Given back, it is anybody's.
        stage.finish("bob", finish::Request { how: finish::How::Release, ..Default::default() }).unwrap();
        audit(&stage);
        let named = claim::Request { id: Some(b), scope: stage.scope(), ..Default::default() };
        stage.claim_with("amy", named).unwrap();
        assign(&stage, &c, None);
        audit(&stage);
        let ready = stage.ready();
        assert_eq!(ready, ["u", "c"]);
    }

    #[test]
    fn an_agent_that_is_gone_keeps_no_work_and_a_person_does() {
        let stage = Stage::memory();
        for (name, role) in [("bob", Role::Worker), ("eve", Role::Worker), ("pat", Role::Human)] {
            known(&stage, name, role);
        }
        let made = stage.flow("Ship", &["a", "b", "c"]);
        let ids: Vec<_> = made.tasks.iter().map(|task| task.id.to_string()).collect();
        for (id, to) in ids.iter().zip(["bob", "eve", "pat"]) {
            assign(&stage, id, Some(to));
        }
        stage.perform("ana", agent::Remove { agent: Some("bob".into()) }).unwrap();
        assert_eq!(stage.ready(), ["a"], "removed");
        assert_eq!(stage.claim("amy").unwrap().task.spec.name, "a");
        assert!(stage.claim("amy").is_err());
        stage.clock.advance(Duration::from_secs(25 * 3600));
        assert_eq!(stage.ready(), ["a", "b"], "silent for a day, and a lease that ran out");
        let mut names: Vec<_> = (0..2).map(|_| stage.claim("amy").unwrap().task.spec.name).collect();
        names.sort();
        assert_eq!(names, ["a", "b"]);
        assert!(stage.claim("amy").is_err(), "a person's work waits");
        assert_eq!(stage.claim("pat").unwrap().task.spec.name, "c");
        audit(&stage);
    }

    #[test]
    fn an_agent_that_holds_something_is_not_removed() {
        let stage = Stage::memory();
        let task = stage.flow("Ship", &["a"]).tasks.remove(0);
        stage.claim("bob").unwrap();
        let refused = stage.perform("ana", agent::Remove { agent: Some("bob".into()) }).unwrap_err().to_string();
        assert!(refused.contains(task.id.as_str()), "{refused}");
        stage.finish("bob", finish::Request { how: finish::How::Release, ..Default::default() }).unwrap();
        stage.perform("ana", agent::Remove { agent: Some("bob".into()) }).unwrap();
        assert!(matches!(stage.claim("bob"), Err(VerbError::Refused(Refusal::AgentPaused { .. }))));
        assert!(stage.perform("ana", agent::List::default()).unwrap().iter().all(|row| row.agent.name != "bob"));
        known(&stage, "bob", Role::Worker);
        stage.claim("bob").unwrap();
    }

    #[test]
    fn an_agent_is_offline_once_it_was_silent_for_longer_than_a_lease_lasts() {
        use crate::agent::Presence;
        let stage = Stage::memory();
        known(&stage, "bob", Role::Worker);
        let seen = || {
            let listed = stage.perform("ana", agent::List::default()).unwrap();
            listed.into_iter().find(|row| row.agent.name == "bob").unwrap().presence
        };
        assert_eq!(seen(), Presence::Idle);
        stage
            .perform(
                "ana",
                agent::Tell { agent: Some("bob".into()), state: AgentState::Draining, note: None, drained: false },
            )
            .unwrap();
        assert_eq!(seen(), Presence::Paused);
        stage.clock.advance(stage.policy.ttl * 2);
        assert_eq!(seen(), Presence::Offline);
        known(&stage, "bob", Role::Worker);
        assert_eq!(seen(), Presence::Idle, "registering again is a sign of life");
        stage.flow("Ship", &["a"]);
        stage.claim_by_process("bob", 1).unwrap();
        stage.clock.advance(stage.policy.ttl * 2);
        assert_eq!(seen(), Presence::Working, "its process lives");
        stage.processes.kill(1);
        assert_eq!(seen(), Presence::Offline);
    }
}
