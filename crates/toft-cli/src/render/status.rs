//! The overview: what needs a person, what is worked on, what is ready.

use std::time::Duration;

use serde_json::{Value, json};
use toft::{
    plan::{FoundIssue, Orphan},
    provider::RestingAgent,
    verbs::{flow, status},
    views::{RepositoryStatus, StatusView},
};

use super::{
    CommandView, issues,
    page::{Ink, Page, after, clean, cut, short, shown_id},
    view::data,
};

pub(crate) fn view_status(status: &StatusView) -> CommandView<'_> {
    let StatusView { repositories, resting, paused, .. } = status;
    let row = |repository: &RepositoryStatus| {
        let mut row = repository_json(repository);
        row["resting"] = data(resting);
        row["paused"] = data(paused);
        row
    };
    let rows = match repositories.as_slice() {
        [one @ RepositoryStatus { name: None, .. }] => row(one),
        many => many.iter().map(row).collect(),
    };
    let working = repositories.iter().flat_map(|repository| &repository.outcome.working);
    let ids = working.map(|row| shown_id(row.task.id.as_str(), row.issue.as_deref()));
    CommandView::new("status", rows, ids, move |page| {
        for repository in repositories {
            let mut part = page.part();
            repository_text(&mut part, repository);
            if let Some(name) = repository.name.as_ref().filter(|_| !part.text().is_empty()) {
                page.line(page.ink(Ink::Head, &format!("{}:", clean(name))));
            }
            page.verbatim(part.text());
        }
        for RestingAgent { agent, until, refusal, .. } in resting {
            let (agent, until, why) = (clean(agent), page.moment(*until), short(&refusal.message, 100));
            let kind = refusal.kind.as_str();
            page.line(format!("{agent} rests until {until}: {kind} ({why}); toft pause --off {agent} ends that"));
        }
        if !paused.is_empty() {
            let names: Vec<String> = paused.iter().map(|name| clean(name)).collect();
            page.line(format!("Paused: {}; toft pause --off NAME ends that", names.join(", ")));
        }
        if page.text().is_empty() {
            page.line("No work in progress. `toft ready` lists what can start, `toft add \"title\"` adds an issue.");
        }
    })
}

fn repository_json(repository: &RepositoryStatus) -> Value {
    let rows = |found: &[FoundIssue]| -> Value {
        found.iter().map(|found| issues::row(&found.issue, &found.ledger)).collect()
    };
    let orphan = |(found, orphan): &(FoundIssue, Orphan)| {
        let mut row = issues::row(&found.issue, &found.ledger);
        row["orphan"] = match orphan {
            Orphan::StoreGone => json!({ "kind": "store_gone" }),
            Orphan::Silent(age) => json!({ "kind": "silent", "age_s": age.as_secs() }),
            Orphan::Elsewhere(age) => json!({ "kind": "elsewhere", "age_s": age.as_secs() }),
        };
        row
    };
    let mut row = data(&repository.outcome);
    if let Some(name) = &repository.name {
        row["repository"] = name.as_str().into();
    }
    row["broken"] = data(&repository.broken);
    row["proposals"] = rows(&repository.proposals);
    row["proposed"] = rows(&repository.proposed);
    row["unlanded"] = data(&repository.unlanded);
    row["orphans"] = repository.orphans.iter().map(orphan).collect();
    row
}

fn repository_text(page: &mut Page, repository: &RepositoryStatus) {
    let outcome = &repository.outcome;
    super::land::write_unlanded_work(page, &repository.unlanded);
    needs_you(page, &outcome.needs_you, &repository.proposals);
    working(page, outcome);
    // An issue with one task that is worked on was shown above.
    let shown = |listed: &&flow::Listed| {
        let worked_on = outcome.working.iter().any(|row| row.task.workflow == listed.workflow.id);
        worked_on && listed.workflow.tasks == 1 && listed.workflow.issue().is_some()
    };
    // What is done and not landed was counted above.
    let finished = |listed: &&flow::Listed| listed.workflow.unlanded > 0 && listed.open() == 0;
    outcome.workflows.iter().filter(|listed| !shown(listed) && !finished(listed)).for_each(|listed| {
        super::flows::line(page, listed, "");
    });
    if !repository.orphans.is_empty() {
        page.end_table();
    }
    for (FoundIssue { issue, .. }, orphan) in &repository.orphans {
        page.row([page.id(&issue.id), short(&issue.title, 60), Page::words(orphan.explained())]);
    }
    for FoundIssue { issue, .. } in &repository.proposed {
        let landed = issue.origin.as_ref().is_some_and(|origin| origin.landed);
        let how = if landed { "is in their ledger, awaiting a decision" } else { "awaits its merge" };
        page.row([format!("Proposed {}", page.id(&issue.id)), short(&issue.title, 60), how.to_owned()]);
    }
    if !repository.broken.is_empty() {
        page.line(page.ink(Ink::Head, "Broken workspaces"));
        repository.broken.iter().for_each(|seen| super::workspaces::broken(page, seen));
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
            "  {id}  {by} proposes: {title}\n    toft show {id} · toft accept {id} · toft close {id} -m \"…\""
        ));
    }
    for need in needs {
        page.line(match need {
            NeedsYou::Question { task, issue, from, text, choices, behind, .. } => {
                let (from, text, waits) = (clean(from), short(text, 100), waits(*behind));
                let id = shown_id(task.as_str(), issue.as_deref());
                // What an agent proposes is no part of a command that a person may copy.
                let proposed: Vec<String> =
                    choices.iter().map(|choice| format!("\n      {}", short(choice, 70))).collect();
                format!("  {id}  {from} asks: {text}{waits}{}\n    toft answer {id} \"…\"", proposed.concat())
            }
            NeedsYou::Failed { task, issue, name, text, behind } => {
                let (name, text, waits) = (short(name, 50), short(text, 70), waits(*behind));
                let id = shown_id(task.as_str(), issue.as_deref());
                format!("  {id}  failed: {name} ({text}){waits}\n    toft show {id} --log · toft retry {id}")
            }
            NeedsYou::Budget { workflow, title, budget, spent } => {
                format!(
                    "  {workflow}  {} spent {spent} of {budget}: toft flow edit {workflow} --budget N",
                    short(title, 50)
                )
            }
            NeedsYou::Assigned { task, issue, name, to, silent_s, free } => {
                let (name, to) = (short(name, 50), clean(to));
                let id = shown_id(task.as_str(), issue.as_deref());
                let span = |seconds| toft::time::span(Duration::from_secs(seconds));
                let away = silent_s.map_or_else(|| "unregistered".to_owned(), |s| format!("offline for {}", span(s)));
                let next = if *free { "; the next claim that finds nothing else takes it" } else { "" };
                format!("  {id}  {name} is assigned to {to}, {away}{next}\n    toft edit {id} --assignee \"\"")
            }
            NeedsYou::Message { id, from, text } => {
                format!("  {id}  {}: {}\n    toft agent inbox --human", clean(from), short(text, 100))
            }
            NeedsYou::Other => "  An entry that needs a newer toft".to_owned(),
        });
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
        let worktree = after(" in ", place);
        let state = if row.lost {
            "lease lost, can be claimed".to_owned()
        } else {
            format!("until {}", page.moment(row.until))
        };
        let note = row.note.as_deref().map(|note| format!(": {}", short(note, 70))).unwrap_or_default();
        let id = page.id(shown_id(row.task.id.as_str(), row.issue.as_deref()));
        let doing = format!("{}{worktree} ({state}){note}", clean(&row.agent));
        page.row([format!("  {id}"), short(&row.task.spec.name, 50), Page::words(doing)]);
    }
    cut(page, outcome.more, outcome.working.len());
}
