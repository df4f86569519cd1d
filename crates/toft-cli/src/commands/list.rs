//! Lists of issues and tasks.

use std::collections::BTreeSet;

use toft::{
    Toft,
    flow::TaskStatus,
    plan::{FoundIssue, IssueFilter, IssueSearch, SearchProblem, SearchResult, UnknownValue},
    time::Timestamp,
    verbs::{agent, list},
};

use super::{App, Done, RepositorySource, plan, word};
use crate::{
    args,
    exit::Failure,
    render::{Graph, IssueList, Names, TaskList, view_everything},
};

/// What a list is of.
enum ListTarget {
    /// Issues if there are any, else tasks; both in several repositories.
    Default,
    Issues,
    Tasks,
    Workflow(String),
}

impl ListTarget {
    fn parse(kind: Option<&str>) -> Self {
        match kind {
            None => Self::Default,
            Some("issues") => Self::Issues,
            Some("tasks") => Self::Tasks,
            Some(kind) => Self::Workflow(kind.to_owned()),
        }
    }

    /// Refuses flags that mean nothing for this list.
    fn check(&self, args: &args::List) -> Result<(), Failure> {
        match self {
            Self::Tasks if args.graph.is_some() => {
                Err(Failure::invalid("--graph draws issues", "toft flow show WORKFLOW draws its tasks"))
            }
            Self::Tasks | Self::Workflow(_) if args.at.is_some() && args.graph.is_none() => {
                Err(Failure::invalid("--at: only issues are listed as of a time", "leave --at out"))
            }
            Self::Issues if args.reach.worktree.is_some() => Err(Failure::invalid(
                "--worktree: issues belong to no worktree",
                "toft list tasks --worktree NAME lists the tasks of one",
            )),
            _ => Ok(()),
        }
    }
}

pub(super) fn list(app: &App<'_>, args: &args::List) -> Done {
    let target = ListTarget::parse(args.kind.as_deref());
    target.check(args)?;
    let (filter, one_worktree) = (issue_filter(args), args.reach.worktree.is_some());
    if let Some(format) = args.graph {
        return graph(app, args, filter, format);
    }
    let all_repos = args.reach.all_repos;
    match &target {
        ListTarget::Issues if all_repos => {
            let (issues, problems) = issues_of(app, &app.reach(&args.reach)?, args, &filter)?;
            if let Some(problem) = problems.into_iter().next() {
                return Err(refused(problem));
            }
            app.show(&issues.view())
        }
        ListTarget::Issues => issues(app, args, &filter),
        ListTarget::Default if all_repos && !one_worktree => everything(app, args, &filter),
        ListTarget::Default if !one_worktree && issues_are_meant(app, args)? => issues(app, args, &filter),
        ListTarget::Workflow(workflow) => tasks(app, args, Some(workflow)),
        ListTarget::Default | ListTarget::Tasks => tasks(app, args, None),
    }
}

/// Whether `toft list` without a kind lists issues.
fn issues_are_meant(app: &App<'_>, args: &args::List) -> Result<bool, Failure> {
    let Some(plan) = app.open()?.plan()? else { return Ok(false) };
    Ok(args.at.is_some() || plan.any()?)
}

fn tasks(app: &App<'_>, args: &args::List, workflow: Option<&String>) -> Done {
    let status = args.status.as_deref().map(|text| word::<TaskStatus>("status", text)).transpose()?;
    app.show(&tasks_of(app, &app.reach(&args.reach)?, args, workflow, status)?.view())
}

/// The tasks of every repository that is reached.
fn tasks_of(
    app: &App<'_>,
    reached: &[RepositorySource<'_>],
    args: &args::List,
    workflow: Option<&String>,
    status: Option<TaskStatus>,
) -> Result<TaskList, Failure> {
    let (mut tasks, mut more, mut names) = (Vec::new(), false, Names::default());
    for RepositorySource { toft, scope, name, .. } in reached {
        let request = list::Request {
            scope: scope.clone(),
            workflow: workflow.cloned(),
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
    more |= tasks.len() > args.limit;
    tasks.truncate(args.limit);
    Ok(TaskList { tasks, more, names })
}

/// Issues and tasks of every repository.
fn everything(app: &App<'_>, args: &args::List, filter: &IssueFilter) -> Done {
    let reached = app.reach(&args.reach)?;
    let (issues, problems) = issues_of(app, &reached, args, filter)?;
    let status = args.status.as_deref().map(|text| word::<TaskStatus>("status", text)).transpose();
    let tasks = match &status {
        Ok(status) => tasks_of(app, &reached, args, None, *status)?,
        // No task has a status that only issues have.
        Err(_) => TaskList { tasks: Vec::new(), more: false, names: Names::default() },
    };
    for problem in problems {
        match problem {
            SearchProblem::Unknown(UnknownValue { field: "status", value, known }) => {
                let Err(tasks) = &status else { continue };
                let of_tasks = tasks.help.as_deref().unwrap_or_default();
                let help = format!("for issues use {}; for tasks {of_tasks}", some(&known));
                return Err(Failure::invalid(format!("status: `{value}` is not known"), &help));
            }
            SearchProblem::Unknown(UnknownValue { field: "label", .. }) if !tasks.tasks.is_empty() => {}
            problem => return Err(refused(problem)),
        }
    }
    app.show(&view_everything(&issues, &tasks))
}

/// The issues of every repository that is reached, each once; and why there are none.
fn issues_of(
    app: &App<'_>,
    reached: &[RepositorySource<'_>],
    args: &args::List,
    filter: &IssueFilter,
) -> Result<(IssueList, Vec<SearchProblem>), Failure> {
    let mut search = IssueSearch::new(filter, args.limit, true);
    let (mut now, mut names, mut waiting) = (None, Names::default(), BTreeSet::new());
    for RepositorySource { toft, name, .. } in reached.iter().filter(|reached| reached.ledgers) {
        let Some(plan) = toft.plan()? else { continue };
        if now.is_none() {
            now = Some(plan.now()?);
        }
        let found = search.ask(&plan, || known_agents(toft, filter))?;
        waiting.extend(plan.waiting_after_start(found)?);
        for found in found {
            names.add(&found.issue.id, name.as_ref());
        }
        app.heard(toft, name.as_ref());
    }
    let problems = search.problems();
    let SearchResult { issues, total, more, .. } = search.finish();
    let now = now.unwrap_or_default();
    Ok((IssueList { issues, total, more, now, several: true, names, waiting }, problems))
}

/// Draws issues with what they need; those that are connected to one issue, if it was named.
fn graph(app: &App<'_>, args: &args::List, filter: IssueFilter, format: args::GraphFormat) -> Done {
    let toft = app.open()?;
    let now_plan = plan::plan(toft)?;
    let plan = match &args.at {
        Some(when) => now_plan.at(when)?,
        None => now_plan,
    };
    let (issues, more) = match args.kind.as_deref().filter(|kind| *kind != "issues") {
        Some(id) => {
            // They may be closed, and anywhere in the plan.
            let all = plan.list(&IssueFilter { all: true, ..filter })?;
            let mut connected = connected_to(plan.find(id)?.issue.id, all);
            let more = connected.len() > args.limit;
            connected.truncate(args.limit);
            (connected, more)
        }
        None => {
            let mut search = IssueSearch::new(&filter, args.limit, false);
            search.ask(&plan, || known_agents(toft, &filter))?;
            if let Some(problem) = search.problems().into_iter().next() {
                return Err(refused(problem));
            }
            let SearchResult { issues, more, .. } = search.finish();
            (issues, more)
        }
    };
    let (now, started) = (plan.now()?, plan.waiting_after_start(&issues)?);
    app.show(&Graph { issues, format, more, now, started }.view())
}

/// The issues from which one leads to the other by dependencies and parents.
fn connected_to(id: String, mut issues: Vec<FoundIssue>) -> Vec<FoundIssue> {
    let mut near = BTreeSet::from([id]);
    loop {
        let before = near.len();
        for FoundIssue { issue, .. } in &issues {
            let ties: Vec<&str> = issue.blockers().chain(issue.parent.as_deref()).collect();
            if near.contains(&issue.id) || ties.iter().any(|tie| near.contains(*tie)) {
                near.insert(issue.id.clone());
                near.extend(ties.into_iter().map(str::to_owned));
            }
        }
        if near.len() == before {
            break;
        }
    }
    issues.retain(|found| near.contains(&found.issue.id));
    issues
}

/// The filter that the flags ask for.
fn issue_filter(args: &args::List) -> IssueFilter {
    IssueFilter {
        status: args.status.clone(),
        all: args.all,
        labels: args.labels.clone(),
        search: args.search.clone(),
        ledger: args.ledger.clone(),
        kind: args.issue_type.clone(),
        priority: args.priority,
        assignee: args.assignee.clone(),
        parent: args.parent.clone(),
        blocked: args.blocked,
        by_priority: args.sort == Some(args::IssueOrder::Priority),
        limit: 0,
    }
}

/// The agents that an assignee may be, if one is asked for.
fn known_agents(toft: &Toft, filter: &IssueFilter) -> Result<Vec<String>, toft::Error> {
    match &filter.assignee {
        Some(_) => Ok(toft.perform(agent::List { all: true })?.into_iter().map(|shown| shown.agent.name).collect()),
        None => Ok(Vec::new()),
    }
}

fn refused(problem: SearchProblem) -> Failure {
    match problem {
        SearchProblem::Refused(error) => error.into(),
        SearchProblem::Unknown(UnknownValue { field, value, known }) => {
            let help = match known.is_empty() {
                true => format!("no issue has one; leave --{field} out"),
                false => format!("use {}", some(&known)),
            };
            Failure::invalid(format!("{field}: `{value}` is not known"), &help)
        }
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

/// The issues of this checkout, now or as of a time.
fn issues(app: &App<'_>, args: &args::List, filter: &IssueFilter) -> Done {
    let toft = app.open()?;
    let mut search = IssueSearch::new(filter, args.limit, false);
    let Some(plan) = toft.plan()? else {
        let SearchResult { issues, total, more, .. } = search.finish();
        let (now, names, waiting) = (Timestamp::default(), Names::default(), BTreeSet::new());
        return app.show(&IssueList { issues, total, more, now, several: false, names, waiting }.view());
    };
    let plan = match &args.at {
        Some(when) => plan.at(when)?,
        None => plan,
    };
    let waiting = plan.waiting_after_start(search.ask(&plan, || known_agents(toft, filter))?)?;
    if let Some(problem) = search.problems().into_iter().next() {
        return Err(refused(problem));
    }
    let several = plan.ledgers().len() > 1 && filter.ledger.is_none();
    let SearchResult { issues, total, more, .. } = search.finish();
    app.show(&IssueList { issues, total, more, now: plan.now()?, several, names: Names::default(), waiting }.view())
}
