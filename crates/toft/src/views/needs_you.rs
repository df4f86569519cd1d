//! What needs a person, the most urgent first.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;
use toft_core::{
    id::LandingId,
    landing::{Landing, LandingWait},
    time::Timestamp,
    verbs::{facts, status::NeedsYou},
};
use toft_land::PendingUpdate;
use toft_plan::{FoundIssue, IssueFilter};
use toft_session::Error;

use super::{
    RepositorySource, RepositoryStatus, RowAction, StatusView, board::unblocks, landing_name, queue::forecast,
};

/// Rows of each kind.
const MOST: usize = 200;
/// Finished work of which is told what its agent said.
const EXPLAINED: usize = 50;

/// What needs a person.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NeedsYouView {
    pub rows: Vec<Need>,
    /// How many agents work now.
    pub working: usize,
    /// How much finished work has not landed.
    pub unlanded: usize,
    /// What is worth knowing beside it.
    pub notes: Vec<String>,
}

/// One thing that needs a person.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Need {
    pub kind: NeedKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// What it is about: an issue, a task, or empty.
    pub id: String,
    /// The id as people see it.
    pub shown: String,
    pub title: String,
    /// Who asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The question, or what is wrong.
    pub text: String,
    /// How many tasks or issues wait for it.
    pub behind: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    pub actions: Vec<RowAction>,
}

/// What kind of decision is needed; those that block most come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NeedKind {
    /// The target does not pass the check.
    Red,
    /// An agent asks.
    Question,
    /// Finished work has to be approved.
    Review,
    /// A task failed for good.
    Failed,
    /// A workflow has spent its budget.
    Budget,
    /// The provider refuses an agent for now.
    Resting,
    /// Work is assigned to an agent that is away.
    Assigned,
    /// Another clone proposes an issue.
    Proposal,
    /// What landed waits for a checkout.
    TakeUp,
    /// A message.
    Message,
}

impl NeedKind {
    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Red => "red target",
            Self::Question => "question",
            Self::Review => "review",
            Self::Failed => "failed",
            Self::Budget => "budget",
            Self::Resting => "resting",
            Self::Assigned => "assigned",
            Self::Proposal => "proposal",
            Self::TakeUp => "take up",
            Self::Message => "message",
        }
    }
}

impl NeedsYouView {
    /// Looks at repositories.
    pub fn of(sources: &[RepositorySource<'_>]) -> Result<Self, Error> {
        let status = StatusView::of(sources, MOST)?;
        let mut view = Self::default();
        for (source, repository) in sources.iter().zip(&status.repositories) {
            view.add(source, repository)?;
        }
        for resting in &status.resting {
            let id = resting.agent.clone();
            view.rows.push(Need {
                text: format!("{}: {}", resting.refusal.kind.as_str(), resting.refusal.message),
                title: format!("rests until {}", resting.until),
                shown: id.clone(),
                actions: vec![RowAction::end_rest(&id)],
                ..Need::new(NeedKind::Resting, id)
            });
        }
        // A task that waits stands for an agent that could work.
        view.rows.sort_by_key(|need| (Reverse(need.behind), need.kind, need.since));
        Ok(view)
    }

    fn add(&mut self, source: &RepositorySource<'_>, status: &RepositoryStatus) -> Result<(), Error> {
        let mut rows: Vec<Need> = status.outcome.needs_you.iter().filter_map(need).collect();
        let landings = source.toft.work().landings(&[], 0)?;
        let forecast = forecast(source, &landings)?;
        // Each of two that do not fit says so.
        let mut conflicts: BTreeMap<&LandingId, Vec<String>> = BTreeMap::new();
        for known in forecast.values().filter(|known| !known.conflicts.is_empty()) {
            let (own, files) = (&known.entry.landing, known.conflicts.join(", "));
            let other = known.against.as_ref().and_then(|id| landings.iter().find(|entry| entry.landing.id == *id));
            let name = other.map_or(own.offer.target.clone(), |entry| format!("\"{}\"", entry.landing.title));
            conflicts.entry(&own.id).or_default().push(format!("conflicts with {name} in {files}"));
            if let Some(other) = other {
                let said = format!("\"{}\" conflicts with it in {files}", own.title);
                conflicts.entry(&other.landing.id).or_default().push(said);
            }
        }
        for entry in &landings {
            if entry.waits == Some(LandingWait::Review) && entry.landing.review_task.is_none() {
                let id = landing_name(&entry.landing);
                let Landing { author, offer, .. } = &entry.landing;
                let mut text = format!("{author} finished it; approve it to land in {}", offer.target);
                if rows.len() < EXPLAINED
                    && let Some(said) = finished_with(source, &entry.landing)?
                {
                    text = format!("{text}\n{said}");
                }
                for conflict in conflicts.get(&entry.landing.id).into_iter().flatten() {
                    text = format!("{text}\n{conflict}");
                }
                rows.push(Need {
                    title: entry.landing.title.clone(),
                    text,
                    since: Some(entry.landing.updated),
                    actions: vec![RowAction::approve(&id, &offer.tip), RowAction::send_back(&id, &offer.tip)],
                    ..Need::new(NeedKind::Review, id)
                });
            }
        }
        for FoundIssue { issue, .. } in &status.proposals {
            rows.push(Need {
                title: issue.title.clone(),
                from: issue.origin.as_ref().map(|origin| origin.by.clone()),
                text: "is proposed for this ledger".to_owned(),
                actions: vec![RowAction::accept(&issue.id), RowAction::reject(&issue.id)],
                ..Need::new(NeedKind::Proposal, issue.id.clone())
            });
        }
        for target in &status.unlanded.red_targets {
            rows.push(Need {
                title: target.clone(),
                text: "does not pass the check: nothing lands before it does".to_owned(),
                actions: vec![RowAction::land_all()],
                ..Need::new(NeedKind::Red, String::new())
            });
        }
        for PendingUpdate { target, dir, command, .. } in &status.unlanded.pending_updates {
            rows.push(Need {
                title: target.clone(),
                text: format!("what landed waits: run {command} in {dir}"),
                ..Need::new(NeedKind::TakeUp, String::new())
            });
        }
        if let Some(plan) = source.toft.plan()?.filter(|_| source.ledgers && !rows.is_empty()) {
            let unblocks = unblocks(&plan.list(&IssueFilter::default())?);
            for need in &mut rows {
                let issues = unblocks.get(&need.id).copied().unwrap_or_default();
                need.behind = need.behind.max(u32::try_from(issues).unwrap_or(u32::MAX));
            }
        }
        let ids: Vec<&str> = rows.iter().map(|need| need.id.as_str()).collect();
        let (shown, dir) = (source.shorten(&ids), source.dir());
        for (mut need, shown) in rows.into_iter().zip(shown) {
            need.actions = RowAction::about(need.actions, &need.title, dir.as_ref());
            self.rows.push(Need { shown, repository: source.name.clone(), ..need });
        }
        self.working += status.outcome.working.iter().filter(|row| !row.lost).count();
        self.unlanded += status.unlanded.finished;
        for (FoundIssue { issue, .. }, orphan) in &status.orphans {
            self.notes.push(format!("{} {}: {}", issue.id, issue.title, orphan.explained()));
        }
        for broken in &status.broken {
            let trouble = broken.trouble.as_deref().unwrap_or("is broken");
            self.notes.push(format!("workspace {}: {trouble}", broken.listed.workspace.name));
        }
        Ok(())
    }
}

/// What an agent said when it finished work.
fn finished_with(source: &RepositorySource<'_>, landing: &Landing) -> Result<Option<String>, Error> {
    let Some(task) = landing.task.clone() else { return Ok(None) };
    let toft = source.toft;
    let attempts = toft.work().act(&toft.located().agent, None, facts::TaskAttempts { task })?;
    Ok(attempts.into_iter().rev().find_map(|attempt| attempt.reason.filter(|said| !said.is_empty())))
}

impl Need {
    fn new(kind: NeedKind, id: String) -> Self {
        Self {
            kind,
            repository: None,
            shown: id.clone(),
            id,
            title: String::new(),
            from: None,
            text: String::new(),
            behind: 0,
            since: None,
            actions: Vec::new(),
        }
    }
}

fn need(entry: &NeedsYou) -> Option<Need> {
    let named = |task: &str, issue: &Option<String>| issue.clone().unwrap_or_else(|| task.to_owned());
    Some(match entry {
        NeedsYou::Question { gate, task, issue, name, from, since, text, choices, behind } => {
            let id = named(task.as_str(), issue);
            Need {
                title: name.clone(),
                from: Some(from.clone()),
                text: text.clone(),
                behind: *behind,
                since: *since,
                actions: RowAction::answers(gate, choices),
                ..Need::new(NeedKind::Question, id)
            }
        }
        NeedsYou::Failed { task, issue, name, text, behind } => {
            let id = named(task.as_str(), issue);
            Need {
                title: name.clone(),
                text: text.clone(),
                behind: *behind,
                actions: vec![RowAction::retry(&id)],
                ..Need::new(NeedKind::Failed, id)
            }
        }
        NeedsYou::Budget { workflow, title, budget, spent } => Need {
            title: title.clone(),
            text: format!("spent {spent} of {budget}"),
            actions: vec![RowAction::raise(workflow)],
            ..Need::new(NeedKind::Budget, workflow.clone())
        },
        NeedsYou::Assigned { task, issue, name, to, free, .. } => {
            let id = named(task.as_str(), issue);
            let next = if *free { "; the next claim that finds nothing else takes it" } else { "" };
            Need {
                title: name.clone(),
                text: format!("is assigned to {to}, which is away{next}"),
                actions: vec![RowAction::unassign(&id)],
                ..Need::new(NeedKind::Assigned, id)
            }
        }
        NeedsYou::Message { id, from, text } => Need {
            from: Some(from.clone()),
            text: text.clone(),
            actions: vec![RowAction::read_messages()],
            ..Need::new(NeedKind::Message, id.clone())
        },
        NeedsYou::Other => return None,
    })
}
