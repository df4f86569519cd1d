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
    Names, View, data, issues,
    page::{Ink, Page, clean, short},
};

/// `name [label]` of a task, as lists show it.
fn title(task: &Task) -> String {
    let labels =
        if task.spec.labels.is_empty() { String::new() } else { format!(" [{}]", clean(&task.spec.labels.join(", "))) };
    format!("{}{labels}", short(&task.spec.name, 70))
}

fn worktree(task: &Task) -> String {
    task.place.worktree.as_deref().map(|name| format!("  ({})", clean(name))).unwrap_or_default()
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

pub(super) fn cut(page: &mut Page, more: bool, shown: usize) {
    if more {
        page.line(page.ink(Ink::Faint, &format!("… {shown} shown; use --limit for more")));
    }
}

pub(crate) struct Ready {
    pub(crate) outcome: ready::Outcome,
    /// Issues that cannot start, with why, if that was asked.
    pub(crate) issues: Vec<Offer>,
    pub(crate) names: Names,
}

impl View for Ready {
    fn kind(&self) -> &'static str {
        "ready"
    }

    fn json(&self) -> Value {
        if self.outcome.not_ready.is_empty() && self.issues.is_empty() {
            self.names.json(data(&self.outcome.ready))
        } else {
            json!({ "ready": self.outcome.ready, "not_ready": self.outcome.not_ready, "issues": self.issues })
        }
    }

    fn more(&self) -> Option<bool> {
        Some(self.outcome.more)
    }

    fn ids(&self) -> Vec<String> {
        self.outcome.ready.iter().map(|item| item.id().to_owned()).collect()
    }

    fn text(&self, page: &mut Page) {
        for item in &self.outcome.ready {
            let task = match item {
                ready::Item::Task(task) => task,
                ready::Item::Issue(offer) => {
                    let id = page.ink(Ink::Id, &clean(&offer.issue.id));
                    let repository = page.ink(Ink::Faint, &self.names.text(&offer.issue.id));
                    page.line(format!("{id}  P{}  {}{repository}", offer.issue.priority, issues::title(&offer.issue)));
                    continue;
                }
            };
            let id = page.ink(Ink::Id, task.id.as_str());
            let needs = if task.spec.requires.is_empty() {
                String::new()
            } else {
                format!("  needs an agent that can {}", clean(&task.spec.requires.join(", ")))
            };
            page.line(format!(
                "{id}  P{}  {}{}",
                task.spec.priority,
                title(task),
                page.ink(Ink::Faint, &format!("{}{needs}{}", worktree(task), self.names.text(task.id.as_str())))
            ));
        }
        if self.outcome.ready.is_empty() {
            let bare = self.outcome.not_ready.is_empty() && self.issues.is_empty();
            let next = " `toft ready --explain` shows why, `toft add \"title\"` adds an issue.";
            page.line(format!("Nothing is ready.{}", if bare { next } else { "" }));
        }
        cut(page, self.outcome.more, self.outcome.ready.len());
        for Offer { issue, reasons, .. } in &self.issues {
            let id = page.ink(Ink::Id, &clean(&issue.id));
            let reasons: Vec<_> = reasons.iter().map(ToString::to_string).collect();
            page.line(format!(
                "{id}  not ready: {}  {}",
                issues::title(issue),
                page.ink(Ink::Faint, &page.told(&reasons.join("; ")))
            ));
        }
        for row in &self.outcome.not_ready {
            let id = page.ink(Ink::Id, row.task.id.as_str());
            let reasons: Vec<_> = row.reasons.iter().map(ToString::to_string).collect();
            page.line(format!(
                "{id}  not ready: {}  {}",
                title(&row.task),
                page.ink(Ink::Faint, &page.told(&reasons.join("; ")))
            ));
        }
    }
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
}

impl View for Claims {
    fn kind(&self) -> &'static str {
        "claim"
    }

    fn json(&self) -> Value {
        let rows: Vec<_> = self.outcome.claims.iter().map(|claimed| self.one(claimed)).collect();
        match rows.as_slice() {
            [one] if !self.many => one.clone(),
            _ => rows.into(),
        }
    }

    fn ids(&self) -> Vec<String> {
        let id = |claimed: &claim::Claimed| named(&claimed.task, claimed.issue.as_deref(), &claimed.workflow_title);
        self.outcome.claims.iter().map(id).collect()
    }

    fn text(&self, page: &mut Page) {
        for claim::Claimed { task, lease, workflow_title, issue, resume, answers, sent_back } in &self.outcome.claims {
            let id = page.ink(Ink::Id, &named(task, issue.as_deref(), workflow_title));
            page.line(format!("Claimed {id} \"{}\" until {}", short(&task.spec.name, 70), page.moment(lease.expires)));
            if *workflow_title != task.spec.name {
                let issue = issue.as_ref().map(|issue| format!("{} ", clean(issue)));
                page.line(format!(
                    "  in {}{}",
                    issue.unwrap_or_else(|| format!("{} ", task.workflow)),
                    short(workflow_title, 70)
                ));
            }
            if let Some(given) = self.workspaces.get(&task.id) {
                super::workspaces::place(page, &given.workspace);
                given.notes.iter().for_each(|note| page.line(format!("  {}", clean(note))));
            }
            page.block("  ", &task.spec.brief);
            if let Some(checkpoint) = resume {
                page.line(format!("  continue from: {}", clean(&checkpoint.summary)));
            }
            answers.iter().for_each(|gate| answer(page, gate));
            if let Some(bounce) = sent_back {
                page.line(format!("  it was sent back ({}):", bounce.reason.as_str()));
                page.block("    ", &bounce.message);
            }
        }
    }
}

/// The outcome was reported to the runner, which verifies it.
pub(crate) struct FinishReported;

impl View for FinishReported {
    fn kind(&self) -> &'static str {
        "finish_reported"
    }

    fn json(&self) -> Value {
        json!({ "verified": false })
    }

    fn ids(&self) -> Vec<String> {
        Vec::new()
    }

    fn text(&self, page: &mut Page) {
        page.line("Reported. The runner verifies it as soon as you end: stop working and exit.");
    }
}

pub(crate) struct Saved {
    pub(crate) saved: save::Outcome,
    /// What was said to the agent meanwhile.
    pub(crate) letters: Vec<InboxItem>,
}

impl View for Saved {
    fn kind(&self) -> &'static str {
        "save"
    }

    fn json(&self) -> Value {
        let mut row = data(&self.saved);
        if !self.letters.is_empty() {
            row["messages"] = data(&self.letters);
        }
        row
    }

    fn ids(&self) -> Vec<String> {
        self.saved.checkpoint.iter().map(|checkpoint| checkpoint.id.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        let until = page.moment(self.saved.expires);
        let what = match (&self.saved.checkpoint, &self.saved.key) {
            (Some(checkpoint), _) => format!("Saved checkpoint {}", checkpoint.seq),
            (None, Some(key)) if self.saved.changed => format!("Stored `{}`", clean(key)),
            (None, Some(key)) => format!("`{}` is unchanged", clean(key)),
            (None, None) => "Renewed the lease".to_owned(),
        };
        page.line(format!("{what}; the lease lasts until {until}"));
        for letter in &self.letters {
            page.line(format!("Message from {}: {}", clean(&letter.from_name), clean(&letter.message.body)));
        }
    }
}

pub(crate) struct Finished {
    pub(crate) outcome: finish::Outcome,
    /// What became of its workspace.
    pub(crate) workspace: Option<Tidied>,
}

impl View for Finished {
    fn kind(&self) -> &'static str {
        "finish"
    }

    fn json(&self) -> Value {
        let mut row = data(&self.outcome);
        if let Some(workspace) = &self.workspace {
            row["workspace"] = data(workspace);
        }
        row
    }

    fn ids(&self) -> Vec<String> {
        let finish::Outcome { task, issue, workflow_title, .. } = &self.outcome;
        vec![named(task, issue.as_deref(), workflow_title)]
    }

    fn text(&self, page: &mut Page) {
        let finish::Outcome { task, issue, workflow_title, .. } = &self.outcome;
        let name = named(task, issue.as_deref(), workflow_title);
        page.line(format!("{name} \"{}\" is {}", short(&task.spec.name, 70), task.state.status.as_str()));
        if let Some(at) = task.state.not_before.filter(|_| task.state.status.open()) {
            page.line(format!(
                "  retried after {} (attempt {} of {})",
                page.moment(at),
                task.state.attempt + 1,
                task.spec.max_attempts
            ));
        }
        match &self.outcome.gate {
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
        if self.outcome.landing.as_ref().is_some_and(|landing| landing.offer.closes) && issue.is_some() {
            page.line("  its issue is closed when the commits have landed: toft land");
        }
        if !self.outcome.unblocked.is_empty() {
            let ids: Vec<_> = self.outcome.unblocked.iter().map(ToString::to_string).collect();
            page.line(format!("  unblocked {}", ids.join(", ")));
        }
        if self.outcome.workflow_status != WorkflowStatus::Running && *workflow_title != task.spec.name {
            page.line(format!("  {} is {}", self.outcome.workflow, self.outcome.workflow_status.as_str()));
        }
        if let Some(Tidied { name, gone, why, .. }) = &self.workspace {
            let fate = if *gone { "removed" } else { "kept" };
            page.line(format!("  workspace {} {fate}: {}", clean(name), clean(why)));
        }
    }
}

pub(crate) struct Answered(pub(crate) answer::Outcome);

impl View for Answered {
    fn kind(&self) -> &'static str {
        "answer"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.task.id.to_string()]
    }

    fn text(&self, page: &mut Page) {
        let answer::Outcome { gate, task } = &self.0;
        let asked = match &gate.kind {
            GateKind::Human { question, .. } => short(question, 70),
            GateKind::Command { command } => short(command, 70),
            GateKind::Timer { .. } => gate.id.to_string(),
        };
        let state = match task.state.status {
            TaskStatus::Pending if task.state.open_blockers == 0 => "ready again",
            status => status.as_str(),
        };
        page.line(format!("Answered \"{asked}\"; \"{}\" is {state}", short(&task.spec.name, 70)));
    }
}

pub(crate) struct TasksDecided(pub(crate) Vec<Task>);

impl View for TasksDecided {
    fn kind(&self) -> &'static str {
        "tasks"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|task| task.id.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        for task in &self.0 {
            page.line(format!("{} \"{}\" is {}", task.id, short(&task.spec.name, 70), task.state.status.as_str()));
        }
    }
}

/// The tasks that `toft retry --all` would retry, by id.
pub(crate) struct TasksToRetry(pub(crate) Vec<String>);

impl View for TasksToRetry {
    fn kind(&self) -> &'static str {
        "tasks"
    }

    fn json(&self) -> Value {
        self.0.iter().map(|id| json!({ "id": id })).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.0.clone()
    }

    fn text(&self, page: &mut Page) {
        self.0.iter().for_each(|id| page.line(format!("Would retry {id}")));
    }
}

pub(crate) struct TaskAssigned(pub(crate) Task);

impl View for TaskAssigned {
    fn kind(&self) -> &'static str {
        "task"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.id.to_string()]
    }

    fn text(&self, page: &mut Page) {
        let to = match &self.0.spec.assigned_to {
            Some(name) => format!("is assigned to {}", clean(name)),
            None => "is no longer assigned".to_owned(),
        };
        page.line(format!("{} \"{}\" {to}", self.0.id, short(&self.0.spec.name, 70)));
    }
}

pub(crate) struct TaskList {
    pub(crate) tasks: Vec<list::Listed>,
    pub(crate) more: bool,
    pub(crate) names: Names,
}

impl View for TaskList {
    fn kind(&self) -> &'static str {
        "tasks"
    }

    fn json(&self) -> Value {
        self.names.json(data(&self.tasks))
    }

    fn more(&self) -> Option<bool> {
        Some(self.more)
    }

    fn ids(&self) -> Vec<String> {
        self.tasks.iter().map(|row| row.task.id.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        for list::Listed { task, holder } in &self.tasks {
            let id = page.ink(Ink::Id, task.id.as_str());
            let holder = holder.as_deref().map(|name| format!("  {}", clean(name))).unwrap_or_default();
            page.line(format!(
                "{id}  {}  P{}  {}{holder}{}",
                page.status(task.state.status),
                task.spec.priority,
                title(task),
                page.ink(Ink::Faint, &format!("{}{}", worktree(task), self.names.text(task.id.as_str())))
            ));
        }
        if self.tasks.is_empty() {
            page.line("No tasks. `toft add \"title\"` adds an issue.");
        }
        cut(page, self.more, self.tasks.len());
    }
}

pub(crate) struct Shown(pub(crate) Box<show::ShownTask>);

impl View for Shown {
    fn kind(&self) -> &'static str {
        "task"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.task.id.to_string()]
    }

    fn text(&self, page: &mut Page) {
        let show::ShownTask { task, workflow_title, .. } = &*self.0;
        let id = page.ink(Ink::Id, task.id.as_str());
        page.line(format!(
            "{id}  {}P{}  {}{}",
            page.status(task.state.status),
            task.spec.priority,
            title(task),
            worktree(task)
        ));
        page.line(format!("  in {} {}", task.workflow, short(workflow_title, 70)));
        page.block("  ", &task.spec.brief);
        if let Some(plan) = &self.0.plan_summary {
            page.line(format!("  plan: {}", short(plan, 100)));
        }
        if let Some(name) = &task.spec.assigned_to {
            page.line(format!("  assigned to {}", clean(name)));
        }
        if let Some(workspace) = &self.0.workspace {
            page.line(format!("  in {}", clean(&workspace.path)));
        }
        if let Some(holder) = &self.0.holder {
            page.line(format!(
                "  held by {} until {} (fence {})",
                clean(&holder.agent),
                page.moment(holder.until),
                holder.fence
            ));
        }
        if let Some(outcome) = &task.state.outcome {
            page.line(format!("  outcome: {}", clean(&outcome.summary)));
        }
        for (dependency, status) in &self.0.needs {
            let status = status.map_or("not found", |status| status.as_str());
            let how = match dependency.kind {
                DependencyKind::Blocks => "needs",
                DependencyKind::Informs => "informed by",
                DependencyKind::OnFailure => "only if it fails:",
            };
            page.line(format!("  {how} {} ({status})", dependency.on));
        }
        for dependency in &self.0.needed_by {
            page.line(format!("  needed by {}", dependency.task));
        }
        if let Some(at) = task.state.not_before.filter(|_| task.state.status == TaskStatus::Pending) {
            page.line(format!("  not before {}", page.moment(at)));
        }
        for gate in &self.0.gates {
            if gate.opened.is_some() {
                answer(page, gate);
            } else if task.state.status == TaskStatus::Waiting {
                let timer = matches!(gate.kind, GateKind::Timer { .. });
                let what = if timer { page.told(gate) } else { clean(&gate.to_string()) };
                page.line(format!("  waits for {what}"));
            }
        }
        for reason in self.0.why.iter().flatten() {
            page.line(format!("  not ready: {}", page.told(reason)));
        }
        if self.0.why.as_ref().is_some_and(Vec::is_empty) {
            page.line("  It can start now.");
        }
        self.history(page);
    }
}

impl Shown {
    fn history(&self, page: &mut Page) {
        for view in &self.0.attempts {
            let attempt = &view.attempt;
            let result = attempt
                .result
                .map_or("in progress".to_owned(), |result| data(&result).as_str().unwrap_or_default().to_owned());
            let reason = attempt.reason.as_deref().map(|text| format!(": {}", short(text, 70))).unwrap_or_default();
            page.line(format!("  attempt {} by {}: {result}{reason}", attempt.fence, clean(&view.agent_name)));
        }
        for checkpoint in &self.0.checkpoints {
            page.line(format!("  checkpoint {}: {}", checkpoint.seq, clean(&checkpoint.summary)));
        }
        for (key, value) in &self.0.state {
            page.line(format!("  {} = {}", clean(key), short(&value.to_string(), 70)));
        }
        for event in &self.0.events {
            page.line(
                page.ink(Ink::Faint, &format!("  {} {} {}", page.moment(event.at), clean(&event.actor), event.verb)),
            );
        }
    }
}
