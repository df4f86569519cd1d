//! Tasks: ready, claimed, saved, finished, shown, listed.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toft::{
    flow::{DependencyKind, Task, TaskStatus, WorkflowStatus},
    gate::{Gate, GateKind},
    id::TaskId,
    message::InboxItem,
    plan::FoundIssue,
    verbs::{answer, claim, finish, issue::Offer, list, ready, save, show},
    workspaces::{Given, Tidied},
};

use super::{
    CommandView, Names, issues,
    page::{Page, after, after_words, clean, cut, short},
    view::{NO_IDS, data},
};

/// `name [label]` of a task, as lists show it.
fn title(task: &Task) -> String {
    let labels =
        if task.spec.labels.is_empty() { String::new() } else { format!(" [{}]", clean(&task.spec.labels.join(", "))) };
    format!("{}{labels}", short(&task.spec.name, 70))
}

fn worktree(task: &Task) -> String {
    task.place.worktree.as_deref().map(|name| format!("({})", clean(name))).unwrap_or_default()
}

/// `"name"` of a task, as messages say it.
fn quoted(task: &Task) -> String {
    format!("\"{}\"", short(&task.spec.name, 70))
}

/// What a task is called: by its issue, where that has no other task.
fn named(task: &Task, issue: Option<&str>, workflow_title: &str) -> String {
    match issue {
        Some(issue) if task.spec.name == workflow_title => clean(issue),
        _ => task.id.to_string(),
    }
}

/// What was asked and answered.
fn answer(page: &mut Page, gate: &Gate) {
    if let Some(opened) = &gate.opened {
        let asked = match &gate.kind {
            GateKind::Human { question, .. } => question.as_str(),
            GateKind::Command { command } => command.as_str(),
            GateKind::Timer { .. } => return,
        };
        page.line(format!("  {} answered \"{}\": {}", clean(&opened.by), short(asked, 70), clean(&opened.answer)));
    }
}

/// Work that can start. `issues` cannot, with why, if that was asked.
pub(crate) fn view_ready<'a>(outcome: &'a ready::Outcome, issues: &'a [Offer], names: &'a Names) -> CommandView<'a> {
    let ready::Outcome { ready, not_ready, more, .. } = outcome;
    let only_ready = not_ready.is_empty() && issues.is_empty();
    let data = match only_ready {
        true => names.json(data(ready)),
        false => json!({ "ready": ready, "not_ready": not_ready, "issues": issues }),
    };
    CommandView::new("ready", data, ready.iter().map(ready::Item::id), move |page| {
        for item in ready {
            let (id, repository) = (page.id(item.id()), page.faint(names.text(item.id())));
            page.row(match item {
                ready::Item::Task(task) => {
                    let needs = after_words("needs an agent that can ", &task.spec.requires);
                    let (worktree, needs) = (page.faint(worktree(task)), page.faint(needs));
                    vec![id, format!("P{}", task.spec.priority), title(task), worktree, needs, repository]
                }
                ready::Item::Issue(offer) => {
                    let (none, title) = (String::new(), issues::title(&offer.issue));
                    vec![id, format!("P{}", offer.issue.priority), title, none.clone(), none, repository]
                }
            });
        }
        if ready.is_empty() {
            let next = " `toft ready --explain` shows why, `toft add \"title\"` adds an issue.";
            page.line(format!("Nothing is ready.{}", if only_ready { next } else { "" }));
        }
        cut(page, *more, ready.len());
        page.end_table();
        for Offer { issue, reasons, .. } in issues {
            write_not_ready(page, &issue.id, &issues::title(issue), reasons);
        }
        for row in not_ready {
            write_not_ready(page, row.task.id.as_str(), &title(&row.task), &row.reasons);
        }
    })
    .with_more(*more)
}

fn write_not_ready(page: &mut Page, id: &str, title: &str, reasons: &[impl ToString]) {
    let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    let reasons = page.faint(page.told(&reasons.join("; ")));
    page.row([page.id(id), format!("not ready: {title}"), Page::words(reasons)]);
}

/// What was claimed; several only when several were asked for.
pub(crate) struct Claims {
    pub(crate) outcome: claim::Outcome,
    /// Issues they are done for, by id.
    pub(crate) issues: BTreeMap<String, FoundIssue>,
    /// Where they are to be done, by task.
    pub(crate) workspaces: BTreeMap<TaskId, Given>,
    pub(crate) many: bool,
}

impl Claims {
    fn one(&self, claimed: &claim::Claimed) -> Value {
        let mut row = data(claimed);
        let issue = claimed.issue.as_ref().and_then(|id| self.issues.get(id));
        row["issue"] = issue.map_or(Value::Null, |found| issues::row(&found.issue, &found.ledger));
        row["workspace"] = self.workspaces.get(&claimed.task.id).map_or(Value::Null, data);
        row
    }

    pub(crate) fn view(&self) -> CommandView<'_> {
        let claims = &self.outcome.claims;
        let mut rows = claims.iter().map(|claimed| self.one(claimed));
        let data = match claims.as_slice() {
            [_] if !self.many => rows.next().unwrap_or_default(),
            _ => rows.collect(),
        };
        let id = |claimed: &claim::Claimed| named(&claimed.task, claimed.issue.as_deref(), &claimed.workflow_title);
        CommandView::new("claim", data, claims.iter().map(id), move |page| {
            for claim::Claimed { task, lease, workflow_title, issue, resume, answers, sent_back } in claims {
                let id = page.id(named(task, issue.as_deref(), workflow_title));
                page.line(format!("Claimed {id} {} until {}", quoted(task), page.moment(lease.expires)));
                if *workflow_title != task.spec.name {
                    let of = issue.as_ref().map_or_else(|| task.workflow.to_string(), |issue| clean(issue));
                    page.line(format!("  in {of} {}", short(workflow_title, 70)));
                }
                if let Some(given) = self.workspaces.get(&task.id) {
                    super::workspaces::place(page, &given.workspace);
                    given.notes.iter().for_each(|note| page.line(format!("  {}", clean(note))));
                }
                page.block("  ", &task.spec.brief);
                page.detail("  continue from: ", resume.as_ref().map(|checkpoint| &checkpoint.summary));
                answers.iter().for_each(|gate| answer(page, gate));
                if let Some(bounce) = sent_back {
                    page.line(format!("  it was sent back ({}):", bounce.reason.as_str()));
                    page.block("    ", &bounce.message);
                }
            }
        })
    }
}

/// The outcome was reported to the runner, which verifies it.
pub(crate) fn view_reported_finish() -> CommandView<'static> {
    let line = "Reported. The runner verifies it as soon as you end: stop working and exit.";
    CommandView::of_line("finish_reported", json!({ "verified": false }), NO_IDS, line.to_owned())
}

pub(crate) fn view_save<'a>(saved: &'a save::Outcome, letters: &'a [InboxItem]) -> CommandView<'a> {
    let mut row = data(saved);
    if !letters.is_empty() {
        row["messages"] = data(letters);
    }
    CommandView::new("save", row, saved.checkpoint.iter().map(|checkpoint| &checkpoint.id), move |page| {
        let until = page.moment(saved.expires);
        let what = match (&saved.checkpoint, &saved.key) {
            (Some(checkpoint), _) => format!("Saved checkpoint {}", checkpoint.seq),
            (None, Some(key)) if saved.changed => format!("Stored `{}`", clean(key)),
            (None, Some(key)) => format!("`{}` is unchanged", clean(key)),
            (None, None) => "Renewed the lease".to_owned(),
        };
        page.line(format!("{what}; the lease lasts until {until}"));
        for letter in letters {
            page.line(format!("Message from {}: {}", clean(&letter.from_name), clean(&letter.message.body)));
        }
    })
}

pub(crate) fn view_finish<'a>(outcome: &'a finish::Outcome, workspace: Option<&'a Tidied>) -> CommandView<'a> {
    let finish::Outcome { task, issue, workflow_title, .. } = outcome;
    let name = named(task, issue.as_deref(), workflow_title);
    let mut row = data(outcome);
    if let Some(workspace) = workspace {
        row["workspace"] = data(workspace);
    }
    CommandView::new("finish", row, [name.clone()], move |page| {
        page.line(format!("{name} {} is {}", quoted(task), task.state.status.as_str()));
        if let Some(at) = task.state.not_before.filter(|_| task.state.status.open()) {
            let (next, last) = (task.state.attempt + 1, task.spec.max_attempts);
            page.line(format!("  retried after {} (attempt {next} of {last})", page.moment(at)));
        }
        match &outcome.gate {
            Some(Gate { kind: GateKind::Timer { until }, .. }) => {
                page.line(format!("  waits until {}", page.moment(*until)));
            }
            Some(_) => page.line(format!("  waits for an answer: toft answer {name} \"…\"")),
            None => {}
        }
        if task.state.status == TaskStatus::Failed {
            page.line(format!("  all attempts are used up: toft retry {name} · toft close {name}"));
        } else if task.state.open_blockers > 0 {
            page.line(format!("  waits for other tasks: toft show {name} --why"));
        }
        if outcome.landing.as_ref().is_some_and(|landing| landing.offer.closes) && issue.is_some() {
            page.line("  its issue is closed when the commits have landed: toft land");
        }
        if !outcome.unblocked.is_empty() {
            let ids: Vec<_> = outcome.unblocked.iter().map(ToString::to_string).collect();
            page.line(format!("  unblocked {}", ids.join(", ")));
        }
        if outcome.workflow_status != WorkflowStatus::Running && *workflow_title != task.spec.name {
            page.line(format!("  {} is {}", outcome.workflow, outcome.workflow_status.as_str()));
        }
        if let Some(Tidied { name, gone, why, .. }) = workspace {
            let fate = if *gone { "removed" } else { "kept" };
            page.line(format!("  workspace {} {fate}: {}", clean(name), clean(why)));
        }
    })
}

pub(crate) fn view_answer(outcome: &answer::Outcome) -> CommandView<'_> {
    let answer::Outcome { gate, task } = outcome;
    let asked = match &gate.kind {
        GateKind::Human { question, .. } => short(question, 70),
        GateKind::Command { command } => short(command, 70),
        GateKind::Timer { .. } => gate.id.to_string(),
    };
    let state = match task.state.status {
        TaskStatus::Pending if task.state.open_blockers == 0 => "ready again",
        status => status.as_str(),
    };
    let line = format!("Answered \"{asked}\"; {} is {state}", quoted(task));
    CommandView::of_line("answer", outcome, [&task.id], line)
}

pub(crate) fn view_decided_tasks(tasks: &[Task]) -> CommandView<'_> {
    CommandView::new("tasks", tasks, tasks.iter().map(|task| &task.id), move |page| {
        for task in tasks {
            page.line(format!("{} {} is {}", task.id, quoted(task), task.state.status.as_str()));
        }
    })
}

/// The tasks that `toft retry --all` would retry, by id.
pub(crate) fn view_tasks_to_retry(tasks: &[String]) -> CommandView<'_> {
    let rows: Value = tasks.iter().map(|id| json!({ "id": id })).collect();
    CommandView::new("tasks", rows, tasks, move |page| {
        tasks.iter().for_each(|id| page.line(format!("Would retry {id}")));
    })
}

pub(crate) fn view_assigned_task(task: &Task) -> CommandView<'_> {
    let to = match &task.spec.assigned_to {
        Some(name) => format!("is assigned to {}", clean(name)),
        None => "is no longer assigned".to_owned(),
    };
    CommandView::of_line("task", task, [&task.id], format!("{} {} {to}", task.id, quoted(task)))
}

pub(crate) struct TaskList {
    pub(crate) tasks: Vec<list::Listed>,
    pub(crate) more: bool,
    pub(crate) names: Names,
}

impl TaskList {
    pub(crate) fn view(&self) -> CommandView<'_> {
        let Self { tasks, more, names } = self;
        CommandView::new("tasks", names.json(data(tasks)), tasks.iter().map(|row| &row.task.id), move |page| {
            for list::Listed { task, holder } in tasks {
                let (id, status) = (page.id(task.id.as_str()), page.status(task.state.status));
                let (holder, worktree) = (after("", holder.as_ref()), page.faint(worktree(task)));
                let repository = page.faint(names.text(task.id.as_str()));
                page.row([id, status, format!("P{}", task.spec.priority), title(task), holder, worktree, repository]);
            }
            if tasks.is_empty() {
                page.line("No tasks. `toft add \"title\"` adds an issue.");
            }
            cut(page, *more, tasks.len());
        })
        .with_more(*more)
    }
}

pub(crate) fn view_task(shown: &show::ShownTask) -> CommandView<'_> {
    CommandView::new("task", shown, [&shown.task.id], move |page| {
        let show::ShownTask { task, workflow_title, .. } = shown;
        let (id, status) = (page.id(task.id.as_str()), page.status(task.state.status));
        page.row([id, status, format!("P{}", task.spec.priority), title(task), worktree(task)]);
        page.line(format!("  in {} {}", task.workflow, short(workflow_title, 70)));
        page.block("  ", &task.spec.brief);
        if let Some(plan) = &shown.plan_summary {
            page.line(format!("  plan: {}", short(plan, 100)));
        }
        page.detail("  assigned to ", task.spec.assigned_to.as_ref());
        page.detail("  in ", shown.workspace.as_ref().map(|workspace| &workspace.path));
        if let Some(holder) = &shown.holder {
            let (agent, until) = (clean(&holder.agent), page.moment(holder.until));
            page.line(format!("  held by {agent} until {until} (fence {})", holder.fence));
        }
        page.detail("  outcome: ", task.state.outcome.as_ref().map(|outcome| &outcome.summary));
        for (dependency, status) in &shown.needs {
            let status = status.map_or("not found", |status| status.as_str());
            let how = match dependency.kind {
                DependencyKind::Blocks => "needs",
                DependencyKind::Informs => "informed by",
                DependencyKind::OnFailure => "only if it fails:",
            };
            page.line(format!("  {how} {} ({status})", dependency.on));
        }
        for dependency in &shown.needed_by {
            page.line(format!("  needed by {}", dependency.task));
        }
        if let Some(at) = task.state.not_before.filter(|_| task.state.status == TaskStatus::Pending) {
            page.line(format!("  not before {}", page.moment(at)));
        }
        for gate in &shown.gates {
            if gate.opened.is_some() {
                answer(page, gate);
            } else if task.state.status == TaskStatus::Waiting {
                let timer = matches!(gate.kind, GateKind::Timer { .. });
                let what = if timer { page.told(gate) } else { clean(&gate.to_string()) };
                page.line(format!("  waits for {what}"));
            }
        }
        for reason in shown.why.iter().flatten() {
            page.line(format!("  not ready: {}", page.told(reason)));
        }
        if shown.why.as_ref().is_some_and(Vec::is_empty) {
            page.line("  It can start now.");
        }
        write_history(page, shown);
    })
}

fn write_history(page: &mut Page, shown: &show::ShownTask) {
    for view in &shown.attempts {
        let attempt = &view.attempt;
        let result = attempt
            .result
            .map_or("in progress".to_owned(), |result| data(&result).as_str().unwrap_or_default().to_owned());
        let reason = attempt.reason.as_deref().map(|text| format!(": {}", short(text, 70))).unwrap_or_default();
        page.line(format!("  attempt {} by {}: {result}{reason}", attempt.fence, clean(&view.agent_name)));
    }
    for checkpoint in &shown.checkpoints {
        page.line(format!("  checkpoint {}: {}", checkpoint.seq, clean(&checkpoint.summary)));
    }
    for (key, value) in &shown.state {
        page.line(format!("  {} = {}", clean(key), short(&value.to_string(), 70)));
    }
    for event in &shown.events {
        let line = format!("  {} {} {}", page.moment(event.at), clean(&event.actor), event.verb);
        page.line(page.faint(line));
    }
}
