//! Lists of issues and tasks, and queries that are saved under names.

use std::collections::BTreeSet;

use toft::{
    Toft,
    flow::TaskStatus,
    plan::{FoundIssue, IssueFilter, Plan, UnknownValue},
    time::Timestamp,
    verbs::{agent, list},
};

use super::{App, Done, Reached, word};
use crate::{
    args,
    exit::Failure,
    render::{Everything, IssueList, Names, QueryForgotten, SavedQueries, TaskList},
};

pub(super) fn list(app: &App<'_>, args: &args::List) -> Done {
    if args.saved {
        return app.show(&SavedQueries(app.open()?.ledgers().queries()?));
    }
    if let Some(name) = &args.forget {
        let name = name.trim_start_matches('@');
        app.open()?.ledgers().forget_query(name)?;
        return app.show(&QueryForgotten(name.to_owned()));
    }
    let saved = match args.kind.as_deref().and_then(|kind| kind.strip_prefix('@')) {
        Some(name) => Some(app.open()?.ledgers().query(name)?),
        None => None,
    };
    let asked = asked(args, saved.as_ref());
    let kind = args.kind.as_deref().filter(|_| saved.is_none());
    let of_workflow = kind.filter(|kind| !["issues", "tasks"].contains(kind));
    if kind.is_some_and(|kind| kind != "issues") && args.save.is_some() {
        return Err(Failure::invalid("--save: only a query about issues is saved", "leave KIND out"));
    }
    if of_workflow.is_none()
        && !args.reach.all_repos
        && args.reach.worktree.is_none()
        && kind != Some("tasks")
        && let toft = app.open()?
        && let Some(plan) = toft.plan()?
        && (args.kind.is_some() || args.at.is_some() || args.save.is_some() || plan.any()?)
    {
        return match &args.at {
            Some(when) => issues(app, toft, &plan.at(when)?, args, &asked),
            None => issues(app, toft, &plan, args, &asked),
        };
    }
    let reached = app.reach(&args.reach)?;
    let mut issues = issues_of(app, &reached, args, &asked, kind != Some("tasks") && of_workflow.is_none())?;
    if args.kind.as_deref().is_some_and(|_| kind.is_none_or(|kind| kind == "issues")) {
        return app.show(&issues);
    }
    let status = match &args.status {
        // A status of issues is none of tasks.
        Some(text) => match word::<TaskStatus>("status", text) {
            Ok(status) => Some(status),
            Err(_) if !issues.issues.is_empty() => return app.show(&issues),
            Err(failure) => return Err(failure),
        },
        None => None,
    };
    let (mut tasks, mut more, mut names) = (Vec::new(), false, Names::default());
    for Reached { toft, scope, name, .. } in reached {
        let request = list::Request {
            scope,
            workflow: of_workflow.map(str::to_owned),
            status,
            all: args.all,
            labels: args.labels.clone(),
            search: args.search.clone(),
            limit: args.limit,
        };
        let mut outcome = app.perform(toft, request)?;
        more |= outcome.more;
        outcome.tasks.retain(|row| names.add(row.task.id.as_str(), name.as_ref()));
        tasks.extend(outcome.tasks);
    }
    let tasks = TaskList { tasks, more, names };
    match args.reach.all_repos && args.kind.is_none() {
        true => {
            issues.several = true;
            app.show(&Everything { issues, tasks })
        }
        false => app.show(&tasks),
    }
}

/// The issues of every repository that is reached, each once.
fn issues_of(
    app: &App<'_>,
    reached: &[Reached<'_>],
    args: &args::List,
    asked: &IssueFilter,
    wanted: bool,
) -> Result<IssueList, Failure> {
    let mut list = IssueList {
        issues: Vec::new(),
        total: 0,
        more: false,
        now: Timestamp::default(),
        several: true,
        names: Names::default(),
        started: BTreeSet::new(),
    };
    for Reached { toft, name, ledgers, .. } in reached.iter().filter(|_| wanted && args.reach.all_repos) {
        let Some(plan) = toft.plan()?.filter(|_| *ledgers) else { continue };
        list.now = plan.now()?;
        let mut found = plan.list(asked)?;
        list.total += plan.count(asked)?;
        list.more |= found.len() > args.limit;
        found.truncate(args.limit);
        list.started.extend(started(&plan, &found)?);
        found.retain(|found| list.names.add(&found.issue.id, name.as_ref()));
        list.issues.extend(found);
        app.heard(toft, name.as_ref());
    }
    Ok(list)
}

/// Those of these issues that were started and cannot be claimed now.
fn started(plan: &Plan<'_>, issues: &[FoundIssue]) -> Result<BTreeSet<String>, Failure> {
    let mut started = plan.started()?;
    started.retain(|id| issues.iter().any(|found| found.issue.id == *id && found.issue.unfinished()));
    let mut waiting = BTreeSet::new();
    for id in started {
        if plan.why_started(&id)?.is_some() {
            waiting.insert(id);
        }
    }
    Ok(waiting)
}

/// What is asked for: a saved query, and whatever is typed besides it.
fn asked(args: &args::List, saved: Option<&IssueFilter>) -> IssueFilter {
    let saved = saved.cloned().unwrap_or_default();
    IssueFilter {
        status: args.status.clone().or(saved.status),
        all: args.all || saved.all,
        labels: saved.labels.into_iter().chain(args.labels.clone()).collect(),
        search: args.search.clone().or(saved.search),
        ledger: args.ledger.clone().or(saved.ledger),
        kind: args.issue_type.clone().or(saved.kind),
        priority: args.priority.or(saved.priority),
        assignee: args.assignee.clone().or(saved.assignee),
        parent: args.parent.clone().or(saved.parent),
        blocked: args.blocked || saved.blocked,
        by_priority: args.sort.map_or(saved.by_priority, |sort| sort == args::IssueOrder::Priority),
        limit: args.limit + 1,
    }
}

/// The first of the values, and how many more there are.
fn some(values: &[String]) -> String {
    const SHOWN: usize = 20;
    let shown = values[..values.len().min(SHOWN)].join(", ");
    match values.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Issues by what they are.
fn issues(app: &App<'_>, toft: &Toft, plan: &Plan<'_>, args: &args::List, asked: &IssueFilter) -> Done {
    let asked = plan.resolve_filter(asked)?;
    let mut issues = plan.list(&asked)?;
    if issues.is_empty() {
        let agents = match &asked.assignee {
            Some(_) => toft.perform(agent::List { all: true })?.into_iter().map(|shown| shown.agent.name).collect(),
            None => Vec::new(),
        };
        if let Some(UnknownValue { field, value, known }) = plan.unknown_value(&asked, &agents)? {
            let help = match known.is_empty() {
                true => format!("no issue has one; leave --{field} out"),
                false => format!("use {}", some(&known)),
            };
            return Err(Failure::invalid(format!("{field}: `{value}` is not known"), &help));
        }
    }
    let more = issues.len() > args.limit;
    issues.truncate(args.limit);
    let total = if more { plan.count(&asked)? } else { issues.len() as u64 };
    if let Some(name) = &args.save {
        let name = name.trim_start_matches('@');
        toft.ledgers().save_query(name, &asked)?;
        toft.note(format!("saved; `toft list @{name}` asks it again"));
    }
    let several = plan.ledgers().len() > 1 && asked.ledger.is_none();
    let (now, started) = (plan.now()?, started(plan, &issues)?);
    app.show(&IssueList { issues, total, more, now, several, names: Names::default(), started })
}
