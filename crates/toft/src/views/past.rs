//! The board as it was: from the events, and where they do not reach, from the plan that was committed by then.

use std::{cmp::Reverse, collections::BTreeMap};

use toft_core::{
    id::TaskId,
    issue::{
        IN_PROGRESS, Issue,
        stage::{IssueStage, StageFacts},
    },
    landing::{LandingState, LandingWait},
    repository::Scope,
    rewind::PlanState,
    time::Timestamp,
    verbs::{
        facts::TaskNames,
        log,
        status::{self, NeedsYou},
    },
};
use toft_plan::IssueFilter;
use toft_session::Error;

use super::{BoardView, Card, RepositorySource, history::issues_of_tasks, landing_name};

/// Leases that are looked at, and cards of a column.
const MOST: usize = 2_000;
/// Events that are read in one step.
const EVENTS: usize = 1_000;

impl BoardView {
    /// Repositories as they were at a time; their plans alone, if `when` is a revision or before the events that are kept.
    pub fn at(sources: &[RepositorySource<'_>], when: &str) -> Result<Self, Error> {
        let time = serde_json::from_value::<Timestamp>(when.into()).ok();
        let mut columns: BTreeMap<IssueStage, Vec<Card>> =
            IssueStage::ALL.into_iter().map(|stage| (stage, Vec::new())).collect();
        let (mut missing, mut read) = (None, false);
        for source in sources.iter().filter(|source| source.ledgers) {
            let rewound = time.map(|at| rewound_cards(source, at)).transpose()?.flatten();
            let cards = match rewound.map_or_else(|| committed_cards(source, when), Ok) {
                Ok(cards) => cards,
                Err(error) => {
                    missing = Some(error);
                    continue;
                }
            };
            read = true;
            let ids: Vec<&str> = cards.iter().map(|(_, card)| card.id.as_str()).collect();
            let shown = source.shorten(&ids);
            for ((stage, card), shown) in cards.into_iter().zip(shown) {
                columns.entry(stage).or_default().push(Card { repository: source.name.clone(), shown, ..card });
            }
        }
        match missing.filter(|_| !read) {
            Some(error) => Err(error),
            None => Ok(Self::with(columns, MOST)),
        }
    }
}

/// From what is there now and the events since; none if the log does not reach so far back.
fn rewound_cards(source: &RepositorySource<'_>, at: Timestamp) -> Result<Option<Vec<(IssueStage, Card)>>, Error> {
    let (toft, work) = (source.toft, source.toft.work());
    let (agent, scope) = (&toft.located().agent, &source.scope);
    // First, so that what is written meanwhile is in the events.
    let request = status::Request { scope: scope.clone(), limit: MOST };
    let (status, landings) = (work.act(agent, None, request)?, work.landings(&[], 0)?);
    let Some(plan) = toft.plan()? else { return Ok(None) };
    let everything = IssueFilter { all: true, ..IssueFilter::default() };
    let mut past = PlanState::default();
    for mut issue in plan.list(&everything)?.into_iter().map(|found| found.issue) {
        // What another clone closed has no event here.
        issue.closed.take_if(|closed| closed.at > at);
        past.issues.insert(issue.id.clone(), issue);
    }
    let tasks: Vec<TaskId> = status.working.iter().map(|row| row.task.id.clone()).collect();
    let issues = work.act(agent, None, TaskNames { tasks, parts: true })?;
    for (row, issue) in status.working.into_iter().zip(issues) {
        past.at_work.entry(issue).or_default().insert(row.task.id.to_string(), row.agent);
    }
    for entry in landings.iter().filter(|entry| entry.landing.state == LandingState::Queued) {
        let review = matches!(entry.waits, Some(LandingWait::Review));
        past.queued.insert(landing_name(&entry.landing), review);
    }
    for issue in plan.started()? {
        let untouched = !past.at_work.contains_key(&issue) && !past.queued.contains_key(&issue);
        if untouched && plan.why_started(&issue)?.is_some() {
            past.waiting.insert(issue);
        }
    }
    for need in status.needs_you {
        if let NeedsYou::Question { issue: Some(issue), .. } | NeedsYou::Failed { issue: Some(issue), .. } = need {
            past.waiting.insert(issue);
        }
    }
    if !undo(source, &mut past, at)? {
        return Ok(None);
    }
    let mut stages = past.stages(at);
    stages.sort_by_key(|(issue, _)| Reverse(issue.closed.as_ref().map(|closed| closed.at)));
    let cards = stages.into_iter().map(|(issue, stage)| (stage, card(issue, past.agent_on(&issue.id))));
    Ok(Some(cards.collect()))
}

/// Takes back every event since a time, newest first. False if the log does not reach so far back.
fn undo(source: &RepositorySource<'_>, past: &mut PlanState, at: Timestamp) -> Result<bool, Error> {
    let read = |scope: &Scope, after: Option<u64>| {
        let (work, agent) = (source.toft.work(), &source.toft.located().agent);
        work.act(agent, None, log::Request { scope: scope.clone(), after, limit: EVENTS, ..log::Request::default() })
    };
    let mut end = u64::MAX;
    loop {
        // Events of other repositories have numbers, too.
        let after = (end < u64::MAX).then(|| end.saturating_sub(EVENTS as u64 + 1));
        let mut events = read(&source.scope, after)?;
        events.retain(|event| event.seq < end);
        events.sort_by_key(|event| Reverse(event.seq));
        let mut names = issues_of_tasks(source, &events, false)?;
        for (task, issue) in issues_of_tasks(source, &events, true)? {
            if names.get(&task).is_some_and(|name| *name != issue) {
                past.in_parts.insert(issue.clone());
                names.insert(task, issue);
            }
        }
        for event in events.iter().filter(|event| event.at > at) {
            past.undo(event, names.get(&event.entity).unwrap_or(&event.entity));
        }
        if events.iter().any(|event| event.at <= at) {
            return Ok(true);
        }
        end = match (after, events.last()) {
            (Some(after), _) if after > 0 => after + 1,
            (None, Some(event)) if event.seq > 1 => event.seq,
            _ => return Ok(read(&Scope::default(), Some(0))?.first().is_none_or(|event| event.seq == 1)),
        };
    }
}

/// From the ledgers that were committed by then. Who worked on what is not in them.
fn committed_cards(source: &RepositorySource<'_>, when: &str) -> Result<Vec<(IssueStage, Card)>, Error> {
    let Some(plan) = source.toft.plan()? else { return Ok(Vec::new()) };
    let past = plan.at(when)?;
    let now = past.now()?;
    let all = IssueFilter { all: true, ..IssueFilter::default() };
    let mut all = past.list(&all)?;
    all.sort_by_key(|found| Reverse(found.issue.closed.as_ref().map(|closed| closed.at)));
    let cards = all.into_iter().map(|found| {
        let facts = StageFacts {
            closed: found.issue.closed.is_some(),
            held: found.issue.status == IN_PROGRESS,
            ready: found.ready(now),
            ..StageFacts::default()
        };
        (facts.stage(), card(&found.issue, found.issue.assignee.as_deref()))
    });
    Ok(cards.collect())
}

fn card(issue: &Issue, agent: Option<&str>) -> Card {
    Card {
        id: issue.id.clone(),
        title: issue.title.clone(),
        priority: issue.priority,
        labels: issue.labels.clone(),
        agent: agent.map(str::to_owned),
        ..Card::default()
    }
}
