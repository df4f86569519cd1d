//! Rights: which role may do what to the work of others.
//!
//! The table is a guard against mistakes, not a security boundary: every agent of one user can run any command under
//! any name. It prevents an agent with one task from ending, replanning or answering for the whole fleet.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    agent::Role,
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    verbs::VerbContext,
};

/// An action that only some roles may perform. Every role may perform actions that are not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Abandon a workflow: cancel its tasks and revoke its leases.
    Abandon,
    /// Replace the plan of a workflow.
    Replan,
    /// Retry or skip a task of a plan.
    Decide,
    /// Change what a workflow may spend or run at once.
    Limit,
    /// Answer a question that was asked of a person.
    Answer,
    /// Stop the work of another agent.
    Stop,
    /// Pause or resume another agent.
    Pause,
    /// Assign work to an agent, or take an assignment back.
    Assign,
    /// Unregister another agent.
    Unregister,
    /// Remove a template.
    RemoveTemplate,
    /// Land finished work, send it back or withdraw it.
    Land,
    /// Approve finished work, or return it.
    Review,
    /// Change the role of a registered agent.
    ChangeRole,
}

impl Action {
    /// Every action, in the order of the table.
    pub const ALL: [Self; 13] = [
        Self::Abandon,
        Self::Replan,
        Self::Decide,
        Self::Limit,
        Self::Answer,
        Self::Stop,
        Self::Pause,
        Self::Assign,
        Self::Unregister,
        Self::RemoveTemplate,
        Self::Land,
        Self::Review,
        Self::ChangeRole,
    ];

    /// The table: the roles that may do it.
    #[must_use]
    pub fn roles(self) -> &'static [Role] {
        match self {
            Self::ChangeRole => &[Role::Human],
            _ => &[Role::Coordinator, Role::Human],
        }
    }

    /// May an agent with this role do it?
    #[must_use]
    pub fn allows(self, role: Role) -> bool {
        self.roles().contains(&role)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abandon => "abandon a workflow",
            Self::Replan => "replan a workflow",
            Self::Decide => "retry or skip a task of a plan",
            Self::Limit => "change the limits of a workflow",
            Self::Answer => "answer a question asked of a human",
            Self::Stop => "stop another agent",
            Self::Pause => "pause or resume another agent",
            Self::Assign => "assign work",
            Self::Unregister => "unregister another agent",
            Self::RemoveTemplate => "remove a template",
            Self::Land => "land work",
            Self::Review => "review the work of others",
            Self::ChangeRole => "change the role of an agent",
        })
    }
}

/// The roles that may perform an action, as part of a sentence.
pub(crate) fn named(roles: &[Role]) -> String {
    let names: Vec<_> = roles
        .iter()
        .map(|role| match role {
            Role::Worker => "a worker",
            Role::Coordinator => "a coordinator",
            Role::Human => "a human",
        })
        .collect();
    names.join(" or ")
}

/// The table as text, one action on a line.
#[must_use]
pub fn table() -> String {
    let width = Action::ALL.iter().map(|action| action.to_string().len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  worker  coordinator  human\n", "");
    for action in Action::ALL {
        let [worker, coordinator, human] =
            [Role::Worker, Role::Coordinator, Role::Human].map(|role| if action.allows(role) { "yes" } else { "-" });
        text.push_str(&format!("{:width$}  {worker:6}  {coordinator:11}  {human}\n", action.to_string()));
    }
    text.trim_end().to_owned()
}

/// Refuses an action that the caller's role does not allow. Every verb that acts on the work of others calls this.
pub(crate) fn require(work: &mut VerbContext<'_>, action: Action) -> VerbResult<()> {
    let role = work.role()?;
    if action.allows(role) {
        return Ok(());
    }
    Err(Refusal::NotAllowed { agent: work.actor.to_owned(), role, action }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        agent::AgentState,
        refusal::VerbError,
        testing::Stage,
        verbs::{agent, answer, flow, replan, stop, template},
    };

    fn refused<T>(verdict: VerbResult<T>) -> Option<Action> {
        match verdict.err()? {
            VerbError::Refused(Refusal::NotAllowed { action, .. }) => Some(action),
            _ => None,
        }
    }

    fn registered(role: Role) -> Stage {
        let mut stage = Stage::memory();
        stage.person = false;
        let register = agent::Register { name: Some("kim".into()), role: Some(role), ..Default::default() };
        stage.perform("kim", register).unwrap();
        stage.perform("other", agent::Register { name: Some("other".into()), ..Default::default() }).unwrap();
        stage
    }

    /// Performs everything in the table on a running workflow that another agent works on.
    fn tried(stage: &Stage) -> Vec<Option<Action>> {
        let made = stage.flow("Ship", &["a"]);
        let id = made.workflow.id.to_string();
        let task = made.tasks[0].id.to_string();
        stage.claim("other").unwrap();
        let other = || Some("other".to_owned());
        vec![
            refused(stage.perform("kim", stop::Request { id: task.clone(), ..Default::default() })),
            refused(stage.perform("kim", replan::Request { workflow: id.clone(), tasks: vec![] })),
            refused(stage.perform("kim", replan::Decide { task: task.clone(), retry: true, reason: String::new() })),
            refused(stage.perform("kim", flow::Limit { id: id.clone(), max_parallel: Some(2), budget: None })),
            refused(stage.perform(
                "kim",
                agent::Tell { agent: other(), state: AgentState::Draining, note: None, drained: false },
            )),
            refused(
                stage.perform("kim", agent::Register { name: other(), role: Some(Role::Human), ..Default::default() }),
            ),
            refused(stage.perform("kim", agent::Remove { agent: other() })),
            refused(stage.perform("kim", crate::verbs::assign::Request { id: task, to: other() })),
            refused(stage.perform("kim", template::Remove { name: "none".into() })),
            refused(stage.perform("kim", flow::Move { id, to: flow::Step::Abandon, reason: None })),
        ]
    }

    #[test]
    fn a_worker_ends_and_decides_nothing_for_others() {
        let stage = registered(Role::Worker);
        let none: Vec<_> = tried(&stage).into_iter().map(|refused| refused.is_none()).collect();
        assert_eq!(none, [false; 10]);
        // Its own it may pause, stop and unregister.
        stage
            .perform(
                "kim",
                agent::Tell { agent: Some("kim".into()), state: AgentState::Draining, note: None, drained: false },
            )
            .unwrap();
        stage
            .perform("kim", agent::Tell { agent: None, state: AgentState::Active, note: None, drained: false })
            .unwrap();
        stage.perform("kim", agent::Remove { agent: Some("kim".into()) }).unwrap();
    }

    #[test]
    fn a_coordinator_may_do_all_but_change_roles() {
        let refusals: Vec<_> = tried(&registered(Role::Coordinator)).into_iter().flatten().collect();
        assert_eq!(refusals, [Action::ChangeRole]);
    }

    #[test]
    fn a_person_may_do_everything_however_the_name_is_registered() {
        let mut stage = registered(Role::Worker);
        stage.person = true;
        assert_eq!(tried(&stage).into_iter().flatten().count(), 0);
    }

    #[test]
    fn a_question_is_answered_by_no_worker_and_a_command_is() {
        use crate::verbs::finish::{How, Request, WaitFor};
        let stage = registered(Role::Worker);
        stage.flow("Ship", &["a", "b"]);
        for (wait, allowed) in [(WaitFor::Human, false), (WaitFor::Command("make".into()), true)] {
            let task = stage.claim("other").unwrap().task.id.to_string();
            let waiting = Request { how: How::Waiting(wait), message: "which?".into(), ..Request::default() };
            stage.finish("other", waiting).unwrap();
            let answered = stage.perform("kim", answer::Request { id: task, answer: "that".into() });
            assert_eq!(refused(answered).is_none(), allowed);
        }
    }

    #[test]
    fn the_refusal_says_who_may() {
        let (agent, role) = ("kim".to_owned(), Role::Worker);
        let said = Refusal::NotAllowed { agent: agent.clone(), role, action: Action::Abandon }.to_string();
        assert_eq!(said, "worker `kim` may not abandon a workflow; a coordinator or a human may");
        let said = Refusal::NotAllowed { agent, role, action: Action::ChangeRole }.to_string();
        assert_eq!(said, "worker `kim` may not change the role of an agent; only a human may");
        assert_eq!(table().lines().count(), Action::ALL.len() + 1);
    }
}
