//! Agents: who works on what, where, and what they said last.

use std::collections::BTreeMap;

use serde::Serialize;
use toft_core::{
    agent::{AgentState, Presence, Role},
    flow::WorkflowStatus,
    time::Timestamp,
    verbs::{agent, status},
};
use toft_session::Error;

use super::{CommandDir, RepositorySource, RowAction};

/// Leases that are looked at.
const MOST: usize = 2_000;

/// Every agent, those at work first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AgentsView {
    pub rows: Vec<AgentRow>,
    /// Work that cost something, or may cost only so much.
    pub budgets: Vec<BudgetRow>,
    /// Of these, how many are offline and not shown.
    pub offline: usize,
}

/// What a piece of work has cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BudgetRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Its issue, or the workflow.
    pub id: String,
    /// The id as people see it.
    pub shown: String,
    pub title: String,
    pub spent: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    pub paused: bool,
    pub actions: Vec<RowAction>,
}

/// An agent, with a task if it holds one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AgentRow {
    pub name: String,
    pub presence: Presence,
    pub machine: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The issue or task that it holds; empty if none.
    pub id: String,
    /// The id as people see it.
    pub shown: String,
    pub title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// When it claimed that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Seconds since its last sign of life.
    pub silent_s: u64,
    /// Its lease is lost; the next claim ends it.
    pub lost: bool,
    /// It claims nothing after what it holds.
    pub paused: bool,
    /// It asked a person, and holds nothing until that is answered.
    pub waits: bool,
    /// What it saved last, or what it asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the task has cost so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    pub actions: Vec<RowAction>,
}

impl AgentsView {
    /// Looks at repositories. Agents that are offline are counted only.
    pub fn of(sources: &[RepositorySource<'_>]) -> Result<Self, Error> {
        let mut view = Self::default();
        // One store may serve several repositories: an agent is shown once for each task, and once if it has none.
        let mut seen = BTreeMap::new();
        for source in sources {
            let me = &source.toft.located().agent;
            for listed in source.toft.work().act(me, None, agent::List { all: false })? {
                let key = (source.toft.located().store.to_string(), listed.agent.name.clone());
                seen.entry(key).or_insert((listed, source.dir()));
            }
            view.add_working(source, &seen)?;
        }
        for (listed, dir) in seen.into_values() {
            // Those that wait for an answer are rows already.
            let waits = view.rows.iter().any(|row| row.waits && row.name == listed.agent.name);
            match listed.presence {
                _ if !listed.holds.is_empty() || waits || listed.agent.role == Role::Human => {}
                Presence::Offline | Presence::Removed => view.offline += 1,
                presence => {
                    let name = listed.agent.name.clone();
                    let action =
                        if presence == Presence::Paused { RowAction::resume(&name) } else { RowAction::pause(&name) };
                    view.rows.push(AgentRow {
                        presence,
                        machine: listed.agent.machine_name().to_owned(),
                        runtime: listed.agent.runtime,
                        repository: None,
                        id: String::new(),
                        shown: String::new(),
                        title: String::new(),
                        workspace: None,
                        since: None,
                        silent_s: listed.silent_s,
                        lost: false,
                        paused: presence == Presence::Paused,
                        waits: false,
                        note: listed.agent.note,
                        cost: None,
                        actions: RowAction::about([action], &name, dir.as_ref()),
                        name,
                    });
                }
            }
        }
        view.rows.sort_by(|one, other| {
            let order = |row: &AgentRow| (row.id.is_empty(), !row.waits, row.since, row.name.clone());
            order(one).cmp(&order(other))
        });
        Ok(view)
    }

    fn add_working(
        &mut self,
        source: &RepositorySource<'_>,
        agents: &BTreeMap<(String, String), (agent::Listed, Option<CommandDir>)>,
    ) -> Result<(), Error> {
        let RepositorySource { toft, scope, name, .. } = source;
        let request = status::Request { scope: scope.clone(), limit: MOST };
        let status::Outcome { working, needs_you, workflows, .. } =
            toft.work().act(&toft.located().agent, None, request)?;
        let ids: Vec<String> =
            working.iter().map(|row| row.issue.clone().unwrap_or_else(|| row.task.id.to_string())).collect();
        let shown = source.shorten(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        let (store, dir) = (toft.located().store.to_string(), source.dir());
        for ((row, id), shown) in working.into_iter().zip(ids).zip(shown) {
            let listed = agents.get(&(store.clone(), row.agent.clone())).map(|(listed, _)| listed);
            let paused = listed.is_some_and(|listed| listed.agent.state == AgentState::Draining);
            let pause = if paused { RowAction::resume(&row.agent) } else { RowAction::pause(&row.agent) };
            let actions = [RowAction::tell(&id), RowAction::stop(&id), pause];
            self.rows.push(AgentRow {
                presence: listed.map_or(Presence::Working, |listed| listed.presence),
                machine: listed.map(|listed| listed.agent.machine_name().to_owned()).unwrap_or_default(),
                runtime: listed.and_then(|listed| listed.agent.runtime.clone()),
                repository: name.clone(),
                workspace: row.workspace.or(row.worktree),
                since: row.since,
                silent_s: row.silent_s,
                lost: row.lost,
                paused,
                waits: false,
                note: row.note,
                cost: row.cost,
                actions: RowAction::about(actions, &row.task.spec.name, dir.as_ref()),
                title: row.task.spec.name,
                name: row.agent,
                id,
                shown,
            });
        }
        for listed in workflows.iter().filter(|listed| listed.workflow.spent > 0.0 || listed.workflow.budget.is_some())
        {
            let workflow = &listed.workflow;
            let (id, paused) = (workflow.id.as_str(), workflow.status == WorkflowStatus::Paused);
            let mut actions = vec![RowAction::pause_work(id, paused)];
            actions.extend(workflow.budget.map(|_| RowAction::raise(id)));
            let about = workflow.issue().unwrap_or(id).to_owned();
            self.budgets.push(BudgetRow {
                repository: name.clone(),
                shown: source.shorten(&[&about]).swap_remove(0),
                title: workflow.title.clone(),
                spent: workflow.spent,
                budget: workflow.budget,
                paused,
                actions: RowAction::about(actions, &workflow.title, dir.as_ref()),
                id: about,
            });
        }
        for need in needs_you {
            let status::NeedsYou::Question { gate, task, issue, name: title, from, since, text, choices, .. } = need
            else {
                continue;
            };
            let id = issue.unwrap_or_else(|| task.to_string());
            let listed = agents.get(&(store.clone(), from.clone())).map(|(listed, _)| listed);
            self.rows.push(AgentRow {
                presence: listed.map_or(Presence::Idle, |listed| listed.presence),
                machine: listed.map(|listed| listed.agent.machine_name().to_owned()).unwrap_or_default(),
                runtime: listed.and_then(|listed| listed.agent.runtime.clone()),
                repository: name.clone(),
                shown: source.shorten(&[&id]).swap_remove(0),
                workspace: None,
                since,
                silent_s: listed.map(|listed| listed.silent_s).unwrap_or_default(),
                lost: false,
                paused: listed.is_some_and(|listed| listed.agent.state == AgentState::Draining),
                waits: true,
                note: Some(text),
                cost: None,
                actions: RowAction::about(RowAction::answers(&gate, &choices), &title, dir.as_ref()),
                title,
                name: from,
                id,
            });
        }
        Ok(())
    }
}
