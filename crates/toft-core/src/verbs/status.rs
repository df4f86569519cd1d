//! Status: which agent works on what, and what needs a person.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Verb, VerbContext, assign, find, flow, sweep};
use crate::{
    agent::{Agent, Presence},
    flow::{Task, TaskStatus, WorkflowStatus},
    gate::GateKind,
    id::TaskId,
    may::May,
    message::{HUMAN, MessageKind},
    refusal::VerbResult,
    repository::Scope,
    schema::JsonSchema,
    store::{Access, LeasesOf, TaskQuery, WorkspaceQuery},
    time::Timestamp,
    token::TokenRole,
};

/// An overview of the work.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StatusRequest")]
#[serde(default)]
pub struct Request {
    pub scope: Scope,
    /// Maximum number of rows of each kind.
    #[serde(default = "super::usual_limit")]
    pub limit: usize,
}

/// The current work, decisions for a person, and the progress of workflows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "StatusOutcome")]
pub struct Outcome {
    /// Every live lease in scope.
    pub working: Vec<Working>,
    /// There are more leases.
    pub more: bool,
    /// Decisions that only a person can make.
    pub needs_you: Vec<NeedsYou>,
    /// Workflows that have not ended.
    pub workflows: Vec<flow::Listed>,
}

/// One lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Working {
    pub agent: String,
    pub task: Task,
    /// The issue whose only task this is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
    /// The worktree from which it was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<String>,
    /// The workspace in which it is worked on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// When it was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When the lease ends unless it is renewed.
    pub until: Timestamp,
    /// Seconds since the holder's last sign of life.
    pub silent_s: u64,
    /// The lease is lost; the next claim ends it.
    pub lost: bool,
    /// What all attempts at the task have cost, as far as that was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The last checkpoint message of the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A decision that only a person can make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum NeedsYou {
    /// A question of a waiting task.
    Question {
        /// The gate to answer.
        gate: String,
        /// The waiting task.
        task: TaskId,
        /// The issue whose only task this is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issue: Option<String>,
        /// The name of the task.
        #[serde(default)]
        name: String,
        /// The agent that asked.
        from: String,
        /// When it asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
        /// The question.
        text: String,
        /// Answers that the agent proposes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        choices: Vec<String>,
        /// Number of tasks that wait for it.
        behind: u32,
    },
    /// A task that failed for good.
    Failed {
        task: TaskId,
        /// The issue whose only task this is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issue: Option<String>,
        name: String,
        /// The reason.
        text: String,
        /// Number of tasks that wait for it.
        behind: u32,
    },
    /// A workflow that has spent its budget.
    Budget {
        workflow: String,
        title: String,
        budget: f64,
        /// The amount spent.
        spent: f64,
    },
    /// A task that is assigned to an agent that is offline.
    Assigned {
        task: TaskId,
        /// The issue whose only task this is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        issue: Option<String>,
        name: String,
        /// The agent.
        to: String,
        /// Seconds since that agent's last sign of life; absent if no such agent is registered.
        silent_s: Option<u64>,
        /// The task is no longer reserved for that agent: the next claim that finds nothing else frees it.
        free: bool,
    },
    /// A message.
    Message {
        id: String,
        /// The sender.
        from: String,
        text: String,
    },
    /// A kind that only a newer toft knows.
    #[serde(other)]
    Other,
}

impl NeedsYou {
    fn behind(&self) -> u32 {
        match self {
            Self::Question { behind, .. } | Self::Failed { behind, .. } => *behind + 1,
            Self::Budget { .. } | Self::Assigned { .. } => 1,
            Self::Message { .. } | Self::Other => 0,
        }
    }
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "status";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let (working, more) = self.working(work)?;
        let list = flow::List { scope: self.scope.clone(), limit: self.limit, ..flow::List::default() };
        let workflows = list.run(work)?;
        let needs_you = self.needs_you(work, &workflows)?;
        Ok(Outcome { working, more, needs_you, workflows })
    }
}

impl Request {
    fn working(&self, work: &mut VerbContext<'_>) -> VerbResult<(Vec<Working>, bool)> {
        let lost: Vec<_> = sweep::look(work, true)?.lost.into_iter().map(|(lease, _)| lease.task).collect();
        let leases = work.tx.leases(&LeasesOf::Repository(self.scope.repository.clone()))?;
        let query =
            WorkspaceQuery { repository: self.scope.repository.clone(), live: true, ..WorkspaceQuery::default() };
        let workspaces = if leases.is_empty() { Vec::new() } else { work.tx.workspaces(&query)? };
        let mut working = Vec::new();
        let mut more = false;
        for lease in leases {
            let Some(task) = work.tx.task(&lease.task)? else { continue };
            let attempts = work.tx.attempts(&task.id)?;
            let worktree = attempts.last().and_then(|attempt| attempt.place.worktree.clone());
            if self.scope.worktree.is_some() && self.scope.worktree != worktree {
                continue;
            }
            if working.len() == self.limit {
                more = true;
                break;
            }
            let workspace = workspaces.iter().find(|known| known.task.as_ref() == Some(&task.id));
            working.push(Working {
                workspace: workspace.map(|known| known.name.clone()),
                agent: work.agent_name(&lease.agent)?,
                worktree,
                since: attempts.last().map(|attempt| attempt.started),
                cost: attempts.iter().filter_map(|attempt| attempt.cost).reduce(|sum, cost| sum + cost),
                until: lease.expires(),
                silent_s: work.now.since(&lease.renewed_tick, lease.renewed).as_secs(),
                lost: lost.contains(&task.id),
                note: work.tx.checkpoints(&task.id, 1)?.pop().map(|checkpoint| checkpoint.summary),
                issue: find::issue_of(work.tx, &task)?,
                task,
            });
        }
        Ok((working, more))
    }

    /// Whether the issue of a failed task has another workflow since.
    fn taken_up_again(
        &self,
        work: &mut VerbContext<'_>,
        task: &Task,
        seen: &mut BTreeSet<(String, String)>,
    ) -> VerbResult<bool> {
        let workflow = work.require_workflow(&task.workflow)?;
        let Some(issue) = workflow.issue() else { return Ok(false) };
        let other = seen.iter().any(|(known, by)| known == issue && *by != workflow.id.as_str());
        seen.insert((issue.to_owned(), workflow.id.to_string()));
        Ok(other || work.tx.workflow_of_issue(issue)?.is_some_and(|live| live.id != workflow.id))
    }

    /// Adds ready tasks that are assigned to an offline agent.
    fn assigned(&self, work: &mut VerbContext<'_>, needs: &mut Vec<NeedsYou>) -> VerbResult<()> {
        for (to, tasks) in assign::assigned(work, &self.scope)? {
            let agent = work.tx.agent_named(&to)?;
            let holds = match &agent {
                Some(agent) => !work.tx.leases(&LeasesOf::Agent(agent.id.clone()))?.is_empty(),
                None => false,
            };
            let now = work.now.wall;
            let away = |agent: &Agent| {
                matches!(agent.presence(holds, now, work.policy.ttl), Presence::Offline | Presence::Removed)
            };
            if !agent.as_ref().is_none_or(away) {
                continue;
            }
            let free = agent.as_ref().is_none_or(|agent| !agent.awaited(now));
            let silent_s = agent.map(|agent| now.since(agent.seen).as_secs());
            for task in tasks.into_iter().take(self.limit) {
                let issue = find::issue_of(work.tx, &task)?;
                let (task, name, to) = (task.id, task.spec.name, to.clone());
                needs.push(NeedsYou::Assigned { task, issue, name, to, silent_s, free });
            }
        }
        Ok(())
    }

    /// The decisions for a person, sorted by the number of waiting tasks.
    fn needs_you(&self, work: &mut VerbContext<'_>, workflows: &[flow::Listed]) -> VerbResult<Vec<NeedsYou>> {
        let mut needs = Vec::new();
        for flow::Listed { workflow, .. } in workflows.iter().filter(|listed| listed.workflow.overspent()) {
            needs.push(NeedsYou::Budget {
                workflow: workflow.id.to_string(),
                title: workflow.title.clone(),
                budget: workflow.budget.unwrap_or_default(),
                spent: workflow.spent,
            });
        }
        for gate in work.tx.unopened_gates(&self.scope, self.limit)? {
            let (text, choices) = match &gate.kind {
                GateKind::Human { question, choices } => (question.clone(), choices.clone()),
                GateKind::Command { command } => (format!("run `{command}`"), Vec::new()),
                GateKind::Timer { .. } => continue,
            };
            let Some(task) = work.tx.task(&gate.task)?.filter(|task| task.state.status == TaskStatus::Waiting) else {
                continue;
            };
            let behind = task.state.unblocks;
            needs.push(NeedsYou::Question {
                gate: gate.id.to_string(),
                issue: find::issue_of(work.tx, &task)?,
                name: task.spec.name,
                since: Some(gate.created),
                task: gate.task,
                from: gate.asked_by,
                text,
                choices,
                behind,
            });
        }
        let failed = TaskQuery {
            scope: self.scope.clone(),
            statuses: vec![TaskStatus::Failed],
            limit: self.limit,
            ..TaskQuery::default()
        };
        let mut seen = BTreeSet::new();
        for task in work.tx.tasks(&failed)? {
            // Newest first: of several that failed for one issue, only the last counts.
            let abandoned = work.require_workflow(&task.workflow)?.status == WorkflowStatus::Abandoned;
            if abandoned || self.taken_up_again(work, &task, &mut seen)? {
                continue;
            }
            let issue = find::issue_of(work.tx, &task)?;
            let (behind, outcome) = (task.state.unblocks, task.state.outcome);
            let text = outcome.map_or_else(|| "its leases were lost".to_owned(), |outcome| outcome.summary);
            needs.push(NeedsYou::Failed { task: task.id, issue, name: task.spec.name, text, behind });
        }
        self.assigned(work, &mut needs)?;
        for letter in work.tx.inbox(HUMAN, true, self.limit)? {
            let asked = letter.message.kind == MessageKind::Question && letter.message.task.is_some();
            if !asked {
                needs.push(NeedsYou::Message {
                    id: letter.message.id.to_string(),
                    from: letter.from_name,
                    text: letter.message.body,
                });
            }
        }
        needs.sort_by_key(|need| std::cmp::Reverse(need.behind()));
        Ok(needs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flow::{Source, WorkflowPlan},
        testing::{Stage, plan_tasks},
        verbs::stop,
    };

    #[test]
    fn a_task_is_named_by_its_issue_if_the_issue_has_no_other() {
        for (tasks, expected) in [(&["a"][..], Some("tf-1")), (&["a", "b"], None)] {
            let stage = Stage::memory();
            let plan = WorkflowPlan { title: "Ship".into(), tasks: plan_tasks(tasks), ..WorkflowPlan::default() };
            let source = Source::Issue { id: "tf-1".into(), ledger: "branch".into() };
            stage.perform("planner", flow::New { plan, source, hold: false }).unwrap();
            let claimed = stage.claim("ana").unwrap();
            let status = || stage.perform("ana", Request { scope: stage.scope(), limit: 10 }).unwrap();
            assert_eq!(status().working[0].issue.as_deref(), expected);
            let (id, reason) = (claimed.task.id.to_string(), String::new());
            stage.perform("ana", stop::Request { id, park: true, reason }).unwrap();
            let NeedsYou::Failed { issue, .. } = &status().needs_you[0] else { panic!("{:?}", status()) };
            assert_eq!(issue.as_deref(), expected);
        }
    }
}
