//! The overview: what needs a person, what is worked on, what is ready.

use serde_json::Value;
use toft::{
    id::RepositoryId,
    plan::{FoundIssue, Orphan},
    time::Timestamp,
    verbs::status,
    workspaces::{Overview, SeenWorkspace},
};

use super::{
    View, data, issues,
    page::{Ink, Page, clean, short},
    tasks::cut,
};

pub(crate) struct StatusView {
    /// Of each repository, with its name where there are several.
    pub(crate) outcomes: Vec<(Option<String>, status::Outcome)>,
    pub(crate) repositories: Vec<Option<RepositoryId>>,
    /// What there is to say of workspaces.
    pub(crate) workspaces: Overview,
    pub(crate) now: Timestamp,
    /// What others propose here.
    pub(crate) proposals: Vec<FoundIssue>,
    /// What was proposed from here.
    pub(crate) waiting: Vec<FoundIssue>,
    /// Issues that are in progress and that nobody in this store is on.
    pub(crate) orphans: Vec<(FoundIssue, Orphan)>,
}

impl View for StatusView {
    fn kind(&self) -> &'static str {
        "status"
    }

    fn json(&self) -> Value {
        match self.outcomes.as_slice() {
            [(None, one)] => {
                let mut row = data(one);
                row["collisions"] = data(&self.workspaces.collisions);
                row["broken"] = data(&self.workspaces.broken);
                if let Some(at) = self.workspaces.as_of {
                    row["workspaces_as_of"] = data(&at);
                }
                row["proposals"] =
                    self.proposals.iter().map(|found| issues::row(&found.issue, &found.ledger)).collect();
                row
            }
            many => {
                let named = |((name, outcome), id): (&(Option<String>, status::Outcome), &Option<RepositoryId>)| {
                    let mut row = data(outcome);
                    row["repository"] = name.as_deref().into();
                    let of = |seen: &&SeenWorkspace| id.as_ref() == Some(&seen.listed.workspace.repository);
                    row["broken"] = self.workspaces.broken.iter().filter(of).map(data).collect();
                    row
                };
                many.iter().zip(&self.repositories).map(named).collect()
            }
        }
    }

    fn ids(&self) -> Vec<String> {
        self.outcomes.iter().flat_map(|(_, outcome)| &outcome.working).map(|row| row.task.id.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        for (name, outcome) in &self.outcomes {
            let idle = outcome.working.is_empty() && outcome.needs_you.is_empty() && outcome.workflows.is_empty();
            if let Some(name) = name.as_ref().filter(|_| !idle) {
                page.line(page.ink(Ink::Head, &format!("{}:", clean(name))));
            }
            needs_you(page, &outcome.needs_you, &self.proposals);
            working(page, outcome);
            // An issue with one task that is worked on was shown above.
            let shown = |listed: &&toft::verbs::flow::Listed| {
                let worked_on = outcome.working.iter().any(|row| row.task.workflow == listed.workflow.id);
                worked_on && listed.workflow.tasks == 1 && listed.workflow.issue().is_some()
            };
            outcome.workflows.iter().filter(|listed| !shown(listed)).for_each(|listed| {
                super::flows::line(page, listed, "");
            });
        }
        for (FoundIssue { issue, .. }, orphan) in &self.orphans {
            let id = page.ink(Ink::Id, &clean(&issue.id));
            page.line(format!("{id}  {}  {}", short(&issue.title, 60), orphan.explained()));
        }
        for FoundIssue { issue, .. } in &self.waiting {
            let (id, origin) = (page.ink(Ink::Id, &clean(&issue.id)), issue.origin.clone().unwrap_or_default());
            let how = if origin.landed { "is in their ledger, awaiting a decision" } else { "awaits its merge" };
            page.line(format!("Proposed {id}  {}  {how}", short(&issue.title, 60)));
        }
        if !self.workspaces.broken.is_empty() {
            page.line(page.ink(Ink::Head, "Broken workspaces"));
            self.workspaces.broken.iter().for_each(|seen| super::workspaces::broken(page, seen));
        }
        super::workspaces::collisions(page, &self.workspaces.collisions);
        let age = self.workspaces.as_of.map(|at| self.now.since(at)).filter(|age| age.as_secs() > 0);
        if let Some(age) = age {
            let old = span(age.as_secs());
            page.line(
                page.ink(Ink::Faint, &format!("Workspace state is up to {old} old; `toft ws list` refreshes it.")),
            );
        }
        if self.workspaces.unseen > 0 {
            let count = self.workspaces.unseen;
            let what = if count == 1 { "1 workspace has".to_owned() } else { format!("{count} workspaces have") };
            page.line(page.ink(Ink::Faint, &format!("{what} not been examined yet; run `toft ws list`.")));
        }
        if page.text().is_empty() {
            page.line("No work in progress. `toft ready` lists what can start, `toft add \"title\"` adds an issue.");
        }
    }
}

fn needs_you(page: &mut Page, needs: &[status::NeedsYou], proposals: &[FoundIssue]) {
    use status::NeedsYou;
    if !needs.is_empty() || !proposals.is_empty() {
        page.line(page.ink(Ink::Head, "Needs you"));
    }
    for FoundIssue { issue, .. } in proposals {
        let by = issue.origin.as_ref().map(|origin| clean(&origin.by)).unwrap_or_default();
        let (id, title) = (clean(&issue.id), short(&issue.title, 60));
        page.line(format!(
            "  {id}  {by} proposes: {title}\n    toft show {id} · toft accept {id} · toft reject {id} -m \"…\""
        ));
    }
    for need in needs {
        page.line(match need {
            NeedsYou::Question { task, issue, from, text, behind, .. } => {
                let (from, text, waits) = (clean(from), short(text, 100), waits(*behind));
                let id = issue.as_deref().map_or_else(|| task.to_string(), clean);
                format!("  {id}  {from} asks: {text}{waits}\n    toft answer {id} \"…\"")
            }
            NeedsYou::Failed { task, issue, name, text, behind } => {
                let (name, text, waits) = (short(name, 50), short(text, 70), waits(*behind));
                let id = issue.as_deref().map_or_else(|| task.to_string(), clean);
                format!("  {id}  failed: {name} ({text}){waits}\n    toft show {id} --log · toft flow retry {id}")
            }
            NeedsYou::Budget { workflow, title, budget, spent } => {
                format!(
                    "  {workflow}  {} spent {spent} of {budget}: toft flow limit {workflow} --budget N",
                    short(title, 50)
                )
            }
            NeedsYou::Assigned { task, name, to, silent_s, free } => {
                let (name, to) = (short(name, 50), clean(to));
                let away = silent_s.map_or_else(|| "unregistered".to_owned(), |s| format!("offline for {}", span(s)));
                let next = if *free { "; the next claim that finds nothing else takes it" } else { "" };
                format!("  {task}  {name} is assigned to {to}, {away}{next}\n    toft assign {task} --none")
            }
            NeedsYou::Message { id, from, text } => {
                format!("  {id}  {}: {}\n    toft agent inbox --human", clean(from), short(text, 100))
            }
            NeedsYou::Other => "  An entry that needs a newer toft".to_owned(),
        });
    }
}

/// Seconds in the unit that a person would use.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3_600),
    }
}

fn waits(behind: u32) -> String {
    match behind {
        0 => String::new(),
        1 => ", 1 task waits for it".to_owned(),
        more => format!(", {more} tasks wait for it"),
    }
}

fn working(page: &mut Page, outcome: &status::Outcome) {
    if !outcome.working.is_empty() {
        page.line(page.ink(Ink::Head, "Working"));
    }
    for row in &outcome.working {
        let place = row.workspace.as_deref().map(|name| format!("workspace {name}")).or(row.worktree.clone());
        let worktree = place.as_deref().map(|name| format!(" in {}", clean(name))).unwrap_or_default();
        let state = if row.lost {
            "lease lost, can be claimed".to_owned()
        } else {
            format!("until {}", page.moment(row.until))
        };
        let note = row.note.as_deref().map(|note| format!(": {}", short(note, 70))).unwrap_or_default();
        let of = outcome.workflows.iter().find(|known| known.workflow.id == row.task.workflow);
        let issue = of.filter(|known| known.workflow.tasks == 1).and_then(|known| known.workflow.issue());
        let id = page.ink(Ink::Id, &issue.map_or_else(|| row.task.id.to_string(), clean));
        page.line(format!(
            "  {id}  {}  {}{worktree} ({state}){note}",
            short(&row.task.spec.name, 50),
            clean(&row.agent)
        ));
    }
    cut(page, outcome.more, outcome.working.len());
}
