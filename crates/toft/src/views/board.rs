//! The board: every issue in the column of its stage.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use toft_core::{
    flow::{TaskStatus, Workflow, WorkflowStatus},
    issue::stage::{IssueStage, StageFacts},
    landing::LandingState,
    verbs::{land::ListedLanding, status},
};
use toft_plan::{FoundIssue, IssueFilter};
use toft_session::Error;

use super::{RepositorySource, RowAction, landing_name, landing_state, queue};

/// Leases and workflows that are looked at.
const MOST: usize = 2_000;
/// Issues that a card says it needs.
const NAMED: usize = 3;
/// Issues that were closed last.
const CLOSED: usize = 50;

/// Issues by stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoardView {
    pub columns: Vec<BoardColumn>,
}

/// One stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BoardColumn {
    pub stage: IssueStage,
    /// How many there are, shown or not.
    pub total: usize,
    pub cards: Vec<Card>,
}

/// An issue, or a workflow that no issue asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Card {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    pub id: String,
    /// The id as people see it.
    pub shown: String,
    pub title: String,
    pub priority: u8,
    pub labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// What was said last, or what it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// It waits for a person.
    pub needs_you: bool,
    /// How many open issues need it.
    pub unblocks: usize,
    pub actions: Vec<RowAction>,
}

/// A question to a person.
struct AskedQuestion {
    gate: String,
    text: String,
    /// The answers that the agent proposes.
    choices: Vec<String>,
}

/// What is known of the issues of one repository.
#[derive(Default)]
struct Known {
    /// By issue: the agent, and what it said last.
    held: BTreeMap<String, (String, Option<String>)>,
    /// By issue: the question that waits for a person.
    asks: BTreeMap<String, AskedQuestion>,
    landings: BTreeMap<String, ListedLanding>,
    /// Issues whose work landed and was taken back.
    taken_back: BTreeSet<String>,
    /// By issue whose task failed for good: why.
    failed: BTreeMap<String, String>,
    started: BTreeSet<String>,
    unblocks: BTreeMap<String, usize>,
}

impl BoardView {
    /// Looks at repositories, with at most `limit` cards in each column.
    pub fn of(sources: &[RepositorySource<'_>], limit: usize) -> Result<Self, Error> {
        let mut columns: BTreeMap<IssueStage, Vec<Card>> =
            IssueStage::ALL.into_iter().map(|stage| (stage, Vec::new())).collect();
        for source in sources {
            for (stage, card) in cards(source)? {
                columns.entry(stage).or_default().push(card);
            }
        }
        Ok(Self::with(columns, limit))
    }

    pub(super) fn with(columns: BTreeMap<IssueStage, Vec<Card>>, limit: usize) -> Self {
        let column = |(stage, mut cards): (IssueStage, Vec<Card>)| {
            let total = cards.len();
            if !matches!(stage, IssueStage::Landed) {
                cards.sort_by_key(|card| (!card.needs_you, card.priority));
            }
            cards.truncate(limit);
            BoardColumn { stage, total, cards }
        };
        Self { columns: columns.into_iter().map(column).collect() }
    }
}

fn cards(source: &RepositorySource<'_>) -> Result<Vec<(IssueStage, Card)>, Error> {
    let RepositorySource { toft, scope, name, ledgers, .. } = source;
    let request = status::Request { scope: scope.clone(), limit: MOST };
    let outcome = toft.work().act(&toft.located().agent, None, request)?;
    let plan = toft.plan()?.filter(|_| *ledgers);
    let mut known = Known::default();
    let issues: BTreeMap<String, String> = outcome
        .workflows
        .iter()
        .map(|listed| (listed.workflow.id.to_string(), listed.workflow.issue().unwrap_or_default().to_owned()))
        .collect();
    for row in outcome.working.iter().filter(|row| !row.lost) {
        let workflow = row.task.workflow.to_string();
        let issue = row.issue.clone().or_else(|| issues.get(&workflow).cloned().filter(|issue| !issue.is_empty()));
        known.held.insert(issue.unwrap_or(workflow), (row.agent.clone(), row.note.clone()));
    }
    for need in &outcome.needs_you {
        match need {
            status::NeedsYou::Question { issue: Some(issue), gate, text, choices, .. } => {
                let asked = AskedQuestion { gate: gate.clone(), text: text.clone(), choices: choices.clone() };
                known.asks.insert(issue.clone(), asked);
            }
            status::NeedsYou::Failed { issue: Some(issue), text, .. } => {
                known.failed.insert(issue.clone(), text.clone());
            }
            _ => {}
        }
    }
    let landings = toft.work().landings(&[], CLOSED)?;
    known.taken_back = queue::taken_back(&landings);
    for entry in landings.into_iter().filter(|entry| entry.landing.state.live()) {
        known.landings.insert(landing_name(&entry.landing), entry);
    }
    let (mut cards, mut needs) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    let mut parts: BTreeMap<String, usize> = BTreeMap::new();
    if let Some(plan) = &plan {
        known.started = plan.started()?;
        let (now, open) = (plan.now()?, plan.list(&IssueFilter::default())?);
        known.unblocks = unblocks(&open);
        let is_open: BTreeSet<&str> = open.iter().map(|found| found.issue.id.as_str()).collect();
        for whole in open.iter().filter_map(|found| found.issue.parent.as_ref()) {
            *parts.entry(whole.clone()).or_default() += 1;
        }
        for found in &open {
            let on: Vec<String> = found.issue.blockers().filter(|on| is_open.contains(on)).map(str::to_owned).collect();
            if !on.is_empty() {
                needs.insert(found.issue.id.clone(), on);
            }
        }
        let closed = IssueFilter { status: Some("closed".into()), limit: CLOSED, ..IssueFilter::default() };
        for found in open.into_iter().chain(plan.list(&closed)?) {
            let id = &found.issue.id;
            let untouched = !known.held.contains_key(id) && !known.landings.contains_key(id);
            let why = match known.started.contains(id) && untouched {
                true => plan.why_started(id)?.map(|reason| reason.to_string()),
                false => None,
            };
            cards.push(card(&known, &found, found.ready(now), why));
        }
    }
    // What no issue asked for.
    for listed in outcome.workflows.iter().filter(|listed| listed.workflow.issue().is_none()) {
        let id = listed.workflow.id.to_string();
        let held = known.held.get(&id);
        let facts = WorkflowFacts::of(&listed.workflow, &listed.progress, held.is_some());
        cards.push((
            facts.stage,
            Card {
                title: listed.workflow.title.clone(),
                priority: listed.workflow.priority,
                agent: held.map(|(agent, _)| agent.clone()),
                note: facts.note.or_else(|| held.and_then(|(_, note)| note.clone())),
                shown: id.clone(),
                id,
                actions: facts.actions,
                ..Card::default()
            },
        ));
    }
    let ids: Vec<String> = cards.iter().map(|(_, card)| card.id.clone()).collect();
    let (shown, dir) = (source.shorten(&ids.iter().map(String::as_str).collect::<Vec<_>>()), source.dir());
    let short: BTreeMap<&str, &str> = ids.iter().map(String::as_str).zip(shown.iter().map(String::as_str)).collect();
    for ((stage, card), shown) in cards.iter_mut().zip(&shown) {
        if let (IssueStage::Planned, None, Some(on)) = (*stage, &card.note, needs.get(&card.id)) {
            let mut on: Vec<&str> = on.iter().map(|id| short.get(id.as_str()).copied().unwrap_or(id)).collect();
            let more = on.len().saturating_sub(NAMED);
            on.truncate(NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            card.note = Some(format!("needs {}{more}", on.join(", ")));
        }
        if let (IssueStage::Planned, None, Some(open)) = (*stage, &card.note, parts.get(&card.id)) {
            card.note = Some(if *open == 1 { "one part is open".to_owned() } else { format!("{open} parts are open") });
        }
        card.repository.clone_from(name);
        card.shown.clone_from(shown);
        card.actions = RowAction::about(std::mem::take(&mut card.actions), &card.title, dir.as_ref());
    }
    Ok(cards)
}

/// What people see of a workflow that no issue asked for.
pub(super) struct WorkflowFacts {
    pub(super) stage: IssueStage,
    /// Why none of its tasks can be claimed.
    pub(super) note: Option<String>,
    pub(super) actions: Vec<RowAction>,
}

impl WorkflowFacts {
    pub(super) fn of(workflow: &Workflow, progress: &BTreeMap<String, u64>, held: bool) -> Self {
        let count = |status: &TaskStatus| progress.get(status.as_str()).copied().unwrap_or_default();
        let open: u64 = TaskStatus::ALL.iter().filter(|status| status.open()).map(count).sum();
        let paused = workflow.status == WorkflowStatus::Paused;
        let note = match workflow.budget.filter(|_| workflow.overspent()) {
            _ if open == 0 => None,
            _ if paused => Some("paused".to_owned()),
            Some(budget) => Some(format!("it spent {:.2} of {budget:.2}", workflow.spent)),
            None => None,
        };
        let ready = note.is_none() && count(&TaskStatus::Pending) > 0;
        let waiting = note.is_none() && (open > 0 || workflow.status == WorkflowStatus::Failed);
        let closed = matches!(workflow.status, WorkflowStatus::Completed | WorkflowStatus::Abandoned);
        let stage = StageFacts { closed, held, ready, waiting: waiting && !ready, landing: None }.stage();
        let mut actions = Vec::new();
        if open > 0 {
            actions.push(RowAction::pause_work(workflow.id.as_str(), paused));
            actions.extend(workflow.budget.map(|_| RowAction::raise(workflow.id.as_str())));
        }
        Self { stage, note, actions }
    }
}

/// By issue, how many open issues cannot start before it is closed, directly or not.
pub(super) fn unblocks(open: &[FoundIssue]) -> BTreeMap<String, usize> {
    let mut direct: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for found in open {
        for on in found.issue.blockers() {
            direct.entry(on).or_default().push(&found.issue.id);
        }
    }
    let count = |id: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![id]);
        while let Some(id) = next.pop() {
            next.extend(direct.get(id).into_iter().flatten().filter(|needs| seen.insert(**needs)));
        }
        seen.len()
    };
    direct.keys().map(|id| ((*id).to_owned(), count(id))).collect()
}

fn card(known: &Known, found: &FoundIssue, ready: bool, why: Option<String>) -> (IssueStage, Card) {
    let issue = &found.issue;
    let (held, landing) = (known.held.get(&issue.id), known.landings.get(&issue.id));
    let facts = StageFacts {
        closed: issue.closed.is_some(),
        held: held.is_some(),
        waiting: why.is_some() || known.failed.contains_key(&issue.id),
        ready: ready || known.started.contains(&issue.id),
        landing: landing.map(|entry| (entry.landing.state, entry.waits.as_ref())),
    };
    let stage = facts.stage();
    let asks = known.asks.get(&issue.id);
    let mut actions = Vec::new();
    let failed = known.failed.get(&issue.id).map(|text| format!("failed: {text}"));
    let note = match (held, landing.filter(|entry| failed.is_none() || entry.landing.state != LandingState::Bounced)) {
        _ if issue.closed.is_some() => known.taken_back.contains(&issue.id).then(|| {
            actions.push(RowAction::reopen(&issue.id));
            "landed, and taken back".to_owned()
        }),
        (Some((_, note)), _) => {
            actions.extend([RowAction::tell(&issue.id), RowAction::stop(&issue.id)]);
            note.clone()
        }
        (None, Some(entry)) => {
            actions.extend(queue::actions(entry, &issue.id));
            Some(landing_state(entry))
        }
        (None, None) => {
            actions.extend(failed.as_ref().map(|_| RowAction::retry(&issue.id)));
            failed.or_else(|| asks.map(|asked| asked.text.clone())).or(why)
        }
    };
    if let Some(AskedQuestion { gate, choices, .. }) = asks {
        actions.splice(0..0, RowAction::answers(gate, choices));
    }
    let card = Card {
        repository: None,
        id: issue.id.clone(),
        shown: issue.id.clone(),
        title: issue.title.clone(),
        priority: issue.priority,
        labels: issue.labels.clone(),
        agent: match (held, landing) {
            (Some((agent, _)), _) => Some(agent.clone()),
            (None, Some(entry)) => Some(entry.landing.author.clone()),
            (None, None) => issue.assignee.clone().filter(|_| matches!(stage, IssueStage::Planned | IssueStage::Ready)),
        },
        note,
        needs_you: asks.is_some() || known.failed.contains_key(&issue.id),
        unblocks: known.unblocks.get(&issue.id).copied().filter(|_| issue.closed.is_none()).unwrap_or_default(),
        actions,
    };
    (stage, card)
}
