//! One issue with everything that belongs to it: its text, why it does not move, attempts, changes, log.

use std::collections::BTreeSet;

use serde::Serialize;
use toft_core::{
    flow::{AttemptResult, TaskStatus},
    gate::GateKind,
    issue::{
        Issue,
        stage::{IssueStage, StageFacts},
    },
    landing::{BounceReason, LandingState},
    message::{InboxItem, MessageKind},
    refusal::Refusal,
    time::Timestamp,
    verbs::{context, facts::TaskLetters, flow, land::ListedLanding, log, show},
};
use toft_plan::{FoundIssue, IssueFilter, Plan};
use toft_session::Error;
use toft_work::LandingDiff;

use super::{DiffView, HistoryRow, RepositorySource, RowAction, WorkflowFacts, history::rows, landing_state, queue};

/// Events that are shown.
const HISTORY: usize = 100;

/// Issues that wait for one are named up to so many.
const MOST_WAITING: usize = 100;
/// Characters of a line, and bytes of a text, that are shown.
const LONGEST: usize = 1_000;
const LARGEST: usize = 4 << 20;

/// An issue, or a task that no issue asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IssueView {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    pub id: String,
    /// The id as people see it.
    pub shown: String,
    pub title: String,
    /// How far it is; an agent has no stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<IssueStage>,
    pub priority: u8,
    pub labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Sections of text, with their headings.
    pub text: Vec<(String, String)>,
    /// Why nobody can start it now.
    pub why: Vec<String>,
    /// What it is part of.
    pub whole: Vec<NamedIssue>,
    /// Issues that name it as their parent.
    pub parts: Vec<NamedIssue>,
    /// What it needs first.
    pub needs: Vec<NamedIssue>,
    /// What can start when it is closed.
    pub unblocks: Vec<NamedIssue>,
    /// Questions that are not answered.
    pub questions: Vec<String>,
    /// Attempts at it, oldest first.
    pub attempts: Vec<AttemptRow>,
    /// What agents saved, newest first.
    pub notes: Vec<(Timestamp, String)>,
    /// What people and agents said to each other about it, oldest first.
    pub conversation: Vec<SaidRow>,
    /// What its finished work waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landing: Option<String>,
    /// Its finished work may still be returned.
    pub returnable: bool,
    pub history: Vec<HistoryRow>,
    pub actions: Vec<RowAction>,
}

/// How comments on lines of its changes reach an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LineComments {
    /// Together, with the review.
    WithReview,
    /// Each at once, to the agent that works on it.
    AtOnce,
}

impl LineComments {
    /// The word in addresses and attributes.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WithReview => "with_review",
            Self::AtOnce => "at_once",
        }
    }
}

/// An issue that another one names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NamedIssue {
    pub id: String,
    /// The id as people see it.
    pub shown: String,
    pub title: String,
    pub status: String,
}

/// Something that was said about an issue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SaidRow {
    pub at: Timestamp,
    pub by: String,
    /// What it was: asked, answered, told, finished, sent back.
    pub what: &'static str,
    pub text: String,
}

/// One attempt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AttemptRow {
    pub agent: String,
    pub started: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How it ended, and why.
    pub result: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl IssueView {
    /// Issues that belong to it, by what they are to it.
    #[must_use]
    pub fn related(&self) -> [(&'static str, &[NamedIssue]); 4] {
        [("Part of", &self.whole), ("Parts", &self.parts), ("Needs first", &self.needs), ("Unblocks", &self.unblocks)]
    }

    /// An action with comments on lines of its changes, each with its place: return, approve, or comment for the agent that
    /// works on it. Nothing if it is not possible now.
    #[must_use]
    pub fn commented(&self, key: char, comments: &[(String, String)]) -> Option<RowAction> {
        let own = |key: char| self.actions.iter().find(|own| own.key == key);
        match (self.line_comments()?, key, comments) {
            (LineComments::WithReview, 'r' | 'a', _) => Some(own(key)?.clone().with_comments(comments)),
            (LineComments::AtOnce, 'c', [(place, _)]) => {
                Some(RowAction::tell_about_line(&self.id, place).like(own('t')?))
            }
            _ => None,
        }
    }

    /// How comments on lines of its changes reach an agent; nothing if they reach none.
    #[must_use]
    pub fn line_comments(&self) -> Option<LineComments> {
        match self.actions.iter().any(|action| action.key == 't') {
            _ if self.returnable => Some(LineComments::WithReview),
            true => Some(LineComments::AtOnce),
            false => None,
        }
    }

    /// Looks at one issue or task.
    pub fn of(source: &RepositorySource<'_>, id: &str) -> Result<Self, Error> {
        let toft = source.toft;
        let me = &toft.located().agent;
        let plan = toft.plan()?;
        let issue = match &plan {
            Some(plan) => plan.named(id)?.map(|found| (found.ready(plan.now().unwrap_or_default()), found.issue)),
            None => None,
        };
        let task = some(toft.work().act(me, None, context::Request { id: id.to_owned() }))?.map(|facts| facts.task);
        let shown_task = match &task {
            Some(task) => {
                let request = show::Request { id: task.id.to_string(), why: true, ..show::Request::default() };
                match toft.work().act(me, None, show::Request { limit: HISTORY, ..request })? {
                    show::Outcome::Task(shown) => Some(shown),
                    _ => None,
                }
            }
            None => None,
        };
        let landing = some(toft.work().landings(&[id.to_owned()], 0))?.and_then(|found| found.into_iter().next());
        let mut view = Self::empty(source, id);
        if let (Some((ready, issue)), Some(plan)) = (&issue, &plan) {
            view.add_issue(source, plan, issue, *ready)?;
        }
        let facts = StageFacts {
            closed: match (&issue, &task) {
                (Some((_, issue)), _) => issue.closed.is_some(),
                (None, task) => task.as_ref().is_some_and(|task| has_ended(task.state.status)),
            },
            held: shown_task.as_ref().is_some_and(|shown| shown.holder.is_some()),
            waiting: shown_task.as_ref().is_some_and(|shown| {
                shown.task.state.status == TaskStatus::Failed || shown.gates.iter().any(|gate| gate.opened.is_none())
            }),
            ready: issue.as_ref().is_none_or(|(ready, _)| *ready) || shown_task.is_some(),
            landing: landing.as_ref().map(|entry| (entry.landing.state, entry.waits.as_ref())),
        };
        view.stage = Some(facts.stage());
        let name = issue.as_ref().map(|(_, issue)| issue.id.clone());
        let mut about = task.map(|task| task.id.to_string()).filter(|_| name.is_none());
        if let (None, None, None) = (&issue, &shown_task, &landing) {
            let request = show::Request { id: id.to_owned(), limit: HISTORY, ..show::Request::default() };
            match toft.work().act(me, None, request)? {
                show::Outcome::Workflow(shown) => {
                    about = Some(shown.workflow.id.to_string());
                    view.add_workflow(source, &shown);
                }
                show::Outcome::Agent(listed) => {
                    about = Some(listed.agent.id.to_string());
                    (view.title, view.stage) = (format!("agent {}", listed.agent.name), None);
                }
                show::Outcome::Task(_) | show::Outcome::State { .. } => {}
            }
        }
        if let Some(shown) = shown_task {
            let told = TaskLetters { task: shown.task.id.clone(), read: true };
            view.add_told(toft.work().act(me, None, told)?);
            view.add_task(*shown);
        }
        if let Some(entry) = &landing {
            view.add_landing(entry);
        }
        view.conversation.sort();
        // What is on its way needs no reason.
        if !matches!(view.stage, Some(IssueStage::Planned | IssueStage::Working)) || facts.held {
            view.why.clear();
        }
        view.why = view.why.iter().map(|why| toft.shorten_ids(why)).collect();
        let history = log::Request {
            id: about,
            issue: name.clone(),
            scope: source.scope.clone(),
            limit: HISTORY,
            ..log::Request::default()
        };
        view.history = rows(source, &toft.work().act(me, None, history)?)?;
        if issue.as_ref().is_some_and(|(_, issue)| issue.closed.is_some()) {
            view.actions.push(RowAction::reopen(&view.id));
        }
        if name.is_some() {
            view.actions.push(RowAction::comment(&view.id));
        }
        view.actions = RowAction::about(view.actions, &view.title, source.dir().as_ref());
        view.shown = source.shorten(&[&view.id]).swap_remove(0);
        Ok(view)
    }

    fn empty(source: &RepositorySource<'_>, id: &str) -> Self {
        Self {
            repository: source.name.clone(),
            id: id.to_owned(),
            shown: String::new(),
            title: String::new(),
            stage: Some(IssueStage::Planned),
            priority: 0,
            labels: Vec::new(),
            agent: None,
            workspace: None,
            text: Vec::new(),
            why: Vec::new(),
            whole: Vec::new(),
            parts: Vec::new(),
            needs: Vec::new(),
            unblocks: Vec::new(),
            questions: Vec::new(),
            attempts: Vec::new(),
            notes: Vec::new(),
            conversation: Vec::new(),
            landing: None,
            returnable: false,
            history: Vec::new(),
            actions: Vec::new(),
        }
    }

    fn add_issue(
        &mut self,
        source: &RepositorySource<'_>,
        plan: &Plan<'_>,
        issue: &Issue,
        ready: bool,
    ) -> Result<(), Error> {
        self.id.clone_from(&issue.id);
        self.title.clone_from(&issue.title);
        (self.priority, self.labels, self.agent) = (issue.priority, issue.labels.clone(), issue.assignee.clone());
        let parts =
            [("", &issue.body), ("Design", &issue.design), ("Acceptance", &issue.acceptance), ("Notes", &issue.notes)];
        for (heading, text) in parts {
            self.text.extend(text.clone().map(|text| (heading.to_owned(), text)));
        }
        for comment in &issue.comments {
            self.text.push((format!("{} said", comment.by), comment.text.clone()));
        }
        if !ready && issue.closed.is_none() {
            self.why = plan.why(issue)?.iter().map(ToString::to_string).collect();
        }
        let mut needs = Vec::new();
        for on in issue.blockers() {
            needs.extend(plan.known(on)?);
        }
        let named = |found: Vec<FoundIssue>| -> Vec<NamedIssue> {
            let ids: Vec<&str> = found.iter().map(|found| found.issue.id.as_str()).collect();
            let shown = source.shorten(&ids);
            let named = found.iter().zip(shown).map(|(found, shown)| NamedIssue {
                id: found.issue.id.clone(),
                shown,
                title: found.issue.title.clone(),
                status: found.issue.status.clone(),
            });
            named.collect()
        };
        self.needs = named(needs);
        self.whole = named(
            issue.parent.iter().map(|whole| plan.known(whole)).flat_map(Result::transpose).collect::<Result<_, _>>()?,
        );
        let parts = IssueFilter { parent: Some(issue.id.clone()), all: true, ..IssueFilter::default() };
        self.parts = named(plan.list(&parts)?);
        self.unblocks = named(waiting_for(plan, &issue.id)?);
        Ok(())
    }

    fn add_task(&mut self, shown: show::ShownTask) {
        if self.title.is_empty() {
            self.title = shown.task.spec.name.clone();
            self.text.push((String::new(), shown.task.spec.brief.clone()));
        }
        self.workspace = shown.workspace.map(|workspace| workspace.path);
        for gate in shown.gates.iter().filter(|gate| gate.opened.is_none()) {
            if let Some(question) = question(&gate.kind) {
                self.questions.push(question);
                self.actions.extend(RowAction::answers(gate.id.as_str(), choices(&gate.kind)));
            }
        }
        if let Some(holder) = shown.holder {
            self.agent = Some(holder.agent);
            self.actions.extend([RowAction::tell(&self.id), RowAction::stop(&self.id)]);
        } else {
            self.why.extend(shown.why.iter().flatten().map(ToString::to_string));
            if shown.task.state.status == TaskStatus::Failed {
                self.actions.push(RowAction::retry(&self.id));
            }
        }
        for gate in &shown.gates {
            if let Some(text) = question(&gate.kind) {
                let by = gate.asked_by.clone();
                self.conversation.push(SaidRow { at: gate.created, by, what: "asked", text });
            }
            if let Some(opened) = gate.opened.as_ref().filter(|opened| !opened.answer.is_empty()) {
                let (by, text) = (opened.by.clone(), opened.answer.clone());
                self.conversation.push(SaidRow { at: opened.at, by, what: "answered", text });
            }
        }
        for view in &shown.attempts {
            let done = view.attempt.result == Some(AttemptResult::Done);
            if let (Some(at), Some(text)) = (view.attempt.ended.filter(|_| done), &view.attempt.reason) {
                let (by, text) = (view.agent_name.clone(), text.clone());
                self.conversation.push(SaidRow { at, by, what: "finished", text });
            }
        }
        self.notes = shown.checkpoints.into_iter().map(|saved| (saved.created, saved.summary)).collect();
        self.attempts = shown
            .attempts
            .into_iter()
            .map(|view| {
                let result = view.attempt.result.map(|result| result.as_str().to_owned()).unwrap_or_default();
                let reason = view.attempt.reason.filter(|_| view.attempt.ended.is_some());
                AttemptRow {
                    agent: view.agent_name,
                    started: view.attempt.started,
                    ended: view.attempt.ended,
                    result: reason.map_or_else(|| result.clone(), |reason| format!("{result}: {reason}")),
                    cost: view.attempt.cost,
                }
            })
            .collect();
    }

    /// What people told the agents on it. Who was told reads it with the next command, or tool call.
    fn add_told(&mut self, letters: Vec<InboxItem>) {
        for letter in letters.into_iter().filter(|letter| letter.message.kind == MessageKind::Status) {
            let what = match letter.read_at {
                Some(_) => "told the agent, which has read it",
                None => "told the agent, which has not read it yet",
            };
            let InboxItem { message, from_name, .. } = letter;
            self.conversation.push(SaidRow { at: message.created, by: from_name, what, text: message.body });
        }
    }

    fn add_workflow(&mut self, source: &RepositorySource<'_>, shown: &flow::Shown) {
        let flow::Shown { workflow, progress, tasks } = shown;
        self.title.clone_from(&workflow.title);
        self.priority = workflow.priority;
        self.agent = tasks.iter().find_map(|task| task.holder.clone());
        let facts = WorkflowFacts::of(workflow, progress, self.agent.is_some());
        self.stage = Some(facts.stage);
        self.why.extend(facts.note);
        self.actions = facts.actions;
        let ids: Vec<&str> = tasks.iter().map(|shown| shown.task.id.as_str()).collect();
        let named = |(flow::ShownTask { task, holder, needs }, short): (&flow::ShownTask, String)| {
            let holder = holder.as_ref().map(|holder| format!(", {holder}")).unwrap_or_default();
            let needs = if needs.is_empty() { String::new() } else { format!(", needs {}", needs.join(", ")) };
            let status = format!("{}{holder}{needs}", task.state.status.as_str());
            NamedIssue { id: task.id.to_string(), shown: short, title: task.spec.name.clone(), status }
        };
        self.parts = tasks.iter().zip(source.shorten(&ids)).map(named).collect();
    }

    fn add_landing(&mut self, entry: &ListedLanding) {
        if self.title.is_empty() {
            self.title.clone_from(&entry.landing.title);
        }
        self.landing = Some(landing_state(entry));
        self.agent = self.agent.take().filter(|_| self.stage == Some(IssueStage::Working));
        self.agent.get_or_insert_with(|| entry.landing.author.clone());
        self.returnable = entry.landing.state == LandingState::Queued;
        self.actions.extend(queue::actions(entry, &self.id));
        for bounce in &entry.landing.bounces {
            let by = match bounce.reason {
                BounceReason::Review => "a reviewer".to_owned(),
                reason => format!("toft ({})", reason.as_str()),
            };
            let text = bounce.message.clone();
            self.conversation.push(SaidRow { at: bounce.at, by, what: "sent it back", text });
        }
    }

    /// What its agents changed, in the format of git: of finished work, what would land.
    pub fn diff(source: &RepositorySource<'_>, id: &str) -> Result<DiffView, Error> {
        if !source.is_clone {
            return Ok(DiffView::missing(
                "it is shown in a clone: toft review, toft show --diff, or the board there".to_owned(),
            ));
        }
        let work = source.toft.work();
        let landing = some(work.landings(&[id.to_owned()], 0))?.and_then(|found| found.into_iter().next());
        let queued = landing.filter(|entry| entry.landing.state == LandingState::Queued);
        if let Some(diff) = queued.map(|entry| work.diff_of_landing(&entry.landing)).transpose()?.flatten() {
            return Ok(match diff {
                LandingDiff::Text(diff) => DiffView::of(&readable(&String::from_utf8_lossy(&diff))),
                LandingDiff::Missing(why) => DiffView::missing(why),
            });
        }
        let none = || DiffView::missing("it has no workspace here".to_owned());
        let Ok(all) = source.toft.workspaces() else { return Ok(none()) };
        let Some(named) = some(all.named(Some(id)))? else { return Ok(none()) };
        let Some(workspace) = some(all.open(&named))? else { return Ok(none()) };
        let diff = all.diff(&workspace, false);
        Ok(diff.map_or_else(|error| DiffView::missing(error.to_string()), |diff| DiffView::of(&readable(&diff))))
    }
}

/// Whether nothing more happens to a task by itself or by a person's decision.
fn has_ended(status: TaskStatus) -> bool {
    matches!(status, TaskStatus::Done | TaskStatus::Skipped | TaskStatus::Cancelled)
}

/// Open issues that cannot start before this one is closed, directly or not; those that name it first.
fn waiting_for(plan: &Plan<'_>, id: &str) -> Result<Vec<FoundIssue>, Error> {
    let mut waiting: Vec<FoundIssue> = Vec::new();
    let (mut seen, mut next) = (BTreeSet::from([id.to_owned()]), 0);
    let mut on = id.to_owned();
    while waiting.len() < MOST_WAITING {
        let needed = plan.needed_by(&on)?.into_iter().filter(|found| found.issue.unfinished());
        waiting.extend(needed.filter(|found| seen.insert(found.issue.id.clone())));
        let Some(found) = waiting.get(next) else { break };
        on.clone_from(&found.issue.id);
        next += 1;
    }
    Ok(waiting)
}

/// A text that a person can look at: lines of a reasonable length, and not too many.
pub(super) fn readable(text: &str) -> String {
    let mut readable = String::new();
    for line in text.lines() {
        match line.char_indices().nth(LONGEST) {
            Some((cut, _)) => readable.extend([&line[..cut], " […]"]),
            None => readable.push_str(line),
        }
        readable.push('\n');
        if readable.len() > LARGEST {
            readable.push_str("[…]\n");
            break;
        }
    }
    readable
}

/// Answers that an agent proposes.
fn choices(kind: &GateKind) -> &[String] {
    match kind {
        GateKind::Human { choices, .. } => choices,
        GateKind::Command { .. } | GateKind::Timer { .. } => &[],
    }
}

/// What a gate asks of a person.
fn question(kind: &GateKind) -> Option<String> {
    match kind {
        GateKind::Human { question, .. } => Some(question.clone()),
        GateKind::Command { command } => Some(format!("run `{command}`")),
        GateKind::Timer { .. } => None,
    }
}

/// Nothing, if there is no such thing.
pub(super) fn some<T>(found: Result<T, Error>) -> Result<Option<T>, Error> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Error::Refused(Refusal::NotFound { .. } | Refusal::WrongState { .. } | Refusal::Invalid { .. })) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
