//! Issues: written, listed, shown.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toft::{
    change::Event,
    issue::{
        Dep, Issue,
        proposal::{PROPOSED, ProposalSide},
        ready::IssueReason,
        route::Route,
    },
    plan::{Compaction, Exported, FoundIssue, Imported, Ledger, Overlay, Wrote},
    time::Timestamp,
    verbs::{issue::On, undo::Undo},
    views::particulars,
    workspace::Workspace,
};

use super::{
    CommandView, Names,
    page::{Ink, Page, after, clean, short},
    view::data,
};

/// An issue with the ledger it is in.
pub(super) fn row(issue: &Issue, ledger: &str) -> Value {
    let mut row = data(issue);
    row["ledger"] = ledger.into();
    row
}

/// Writes another issue, as this one is tied to it.
fn write_tied(page: &mut Page, tie: &str, id: &str, found: Option<&FoundIssue>) {
    let id = clean(id);
    match found {
        Some(FoundIssue { issue, .. }) => page.row([format!("  {tie} {id}"), standing(issue), title(issue)]),
        None => page.line(format!("  {tie} {id}, which is in no ledger here")),
    }
}

/// How far an issue is, in one word.
fn standing(issue: &Issue) -> String {
    let status = if issue.deleted.is_some() { "deleted".to_owned() } else { clean(&issue.status) };
    match (ProposalSide::of(issue), issue.visibility.as_deref()) {
        _ if issue.deleted.is_some() => status,
        (ProposalSide::Mirror, _) => format!("{status}, accepted"),
        (_, Some(PROPOSED)) => format!("{status}, proposed"),
        _ => status,
    }
}

/// Where a proposal comes from, or went.
fn proposal(issue: &Issue) -> Option<String> {
    let origin = issue.origin.as_ref()?;
    Some(match (ProposalSide::of(issue), origin.landed) {
        (ProposalSide::Offered, _) => format!(", proposed by {}", clean(&origin.by)),
        (ProposalSide::Mirror, _) => format!(", follows ledger {}", clean(&origin.to)),
        _ if origin.to.is_empty() => return None,
        (_, true) => format!(", proposed to ledger {}, awaiting a decision", clean(&origin.to)),
        (_, false) => format!(", proposed to ledger {}", clean(&origin.to)),
    })
}

/// `title [labels]`, as lists show it.
pub(super) fn title(issue: &Issue) -> String {
    let labels =
        if issue.labels.is_empty() { String::new() } else { format!(" [{}]", clean(&issue.labels.join(", "))) };
    format!("{}{labels}", short(&issue.title, 70))
}

/// ` (status, ledger)` after an issue: its status unless the verb says it, its ledger if there are several.
fn aside(status: Option<String>, ledger: Option<&String>) -> String {
    let parts: Vec<String> = status.into_iter().chain(ledger.map(|ledger| format!("ledger {ledger}"))).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// An issue that was written. `did` says how; `several` ledgers mean that the text names its own.
pub(crate) fn view_written_issue<'a>(wrote: &'a Wrote, did: &'a str, several: bool) -> CommandView<'a> {
    let Wrote { issue, ledger, before, .. } = wrote;
    CommandView::new("issue", row(issue, ledger), [&issue.id], move |page| {
        let did = if before.is_none() { "Nothing to change in" } else { did };
        let status = Some(standing(issue)).filter(|status| {
            !matches!((did, status.as_str()), ("Added", "open") | ("Closed", "closed") | ("Deleted", "deleted"))
        });
        let aside = aside(status, Some(ledger).filter(|_| several));
        page.line(format!("{did} {} \"{}\"{aside}", page.id(&issue.id), short(&issue.title, 70)));
    })
}

/// Issues that were written, as [`view_written_issue`] says of one.
pub(crate) fn view_written_issues<'a>(wrote: &'a [Wrote], did: &'a str, several: bool) -> CommandView<'a> {
    let rows: Vec<_> = wrote.iter().map(|wrote| row(&wrote.issue, &wrote.ledger)).collect();
    CommandView::new("issues", rows, wrote.iter().map(|wrote| &wrote.issue.id), move |page| {
        for Wrote { issue, ledger, .. } in wrote {
            let aside = aside(None, Some(ledger).filter(|_| several));
            page.line(format!("{did} {} \"{}\"{aside}", page.id(&issue.id), short(&issue.title, 70)));
        }
        if wrote.is_empty() {
            page.line("Nothing was written.");
        }
    })
}

pub(crate) struct IssueList {
    pub(crate) issues: Vec<FoundIssue>,
    /// How many match, whatever the limit.
    pub(crate) total: u64,
    pub(crate) more: bool,
    pub(crate) now: Timestamp,
    /// There are several ledgers, so each issue says which it is in.
    pub(crate) several: bool,
    pub(crate) names: Names,
    /// Issues that were started and cannot be claimed now: what is open of them waits or rests.
    pub(crate) waiting: BTreeSet<String>,
}

impl IssueList {
    /// Whether an issue can be claimed now, by its id at least.
    fn is_ready(&self, found: &FoundIssue) -> bool {
        found.ready(self.now) && found.issue.unfinished() && !self.waiting.contains(&found.issue.id)
    }

    /// How near an issue is to being claimed, in a word or two.
    fn readiness(&self, found: &FoundIssue) -> &'static str {
        match (self.is_ready(found), found.issue.only_by_name()) {
            (true, false) => "ready",
            (true, true) => "ready, by id only",
            (false, _) if found.issue.unfinished() && found.ready(self.now) => "started",
            (false, _) => "",
        }
    }

    pub(crate) fn view(&self) -> CommandView<'_> {
        let Self { issues, total, more, several, names, .. } = self;
        let row = |found: &FoundIssue| {
            let mut row = row(&found.issue, &found.ledger);
            row["ready"] = self.is_ready(found).into();
            row
        };
        let rows = names.json(issues.iter().map(row).collect());
        CommandView::new("issues", rows, issues.iter().map(|found| &found.issue.id), move |page| {
            for found @ FoundIssue { issue, ledger, .. } in issues {
                let ledger = if *several { format!("({ledger})") } else { String::new() };
                let asides = [
                    after("", issue.assignee.as_ref()),
                    self.readiness(found).to_owned(),
                    ledger,
                    names.text(&issue.id),
                ];
                let cells = [page.id(&issue.id), format!("P{}", issue.priority), standing(issue), title(issue)];
                page.row(cells.into_iter().chain(asides.map(|aside| page.faint(aside))));
            }
            if issues.is_empty() {
                page.line("No issues.");
            }
            if *more {
                page.line(page.faint(format!("… {} of {total} shown; use --limit for more", issues.len())));
            }
        })
        .with_more(*more)
        .with_total(*total)
    }
}

pub(crate) struct IssueShown {
    pub(crate) found: FoundIssue,
    /// What is laid over it.
    pub(crate) overlay: Option<Overlay>,
    pub(crate) why: Option<Vec<IssueReason>>,
    pub(crate) on: Option<On>,
    /// Where it is worked on.
    pub(crate) workspace: Option<Workspace>,
    pub(crate) children: Vec<FoundIssue>,
    /// What it is tied to, if that is known here.
    pub(crate) needs: Vec<(Dep, Option<FoundIssue>)>,
    pub(crate) needed_by: Vec<FoundIssue>,
    pub(crate) history: Vec<Event>,
}

impl IssueShown {
    pub(crate) fn view(&self) -> CommandView<'_> {
        CommandView::new("issue", self.json(), [&self.found.issue.id], move |page| {
            let FoundIssue { issue, ledger, .. } = &self.found;
            page.row([page.id(&issue.id), format!("P{}", issue.priority), standing(issue), title(issue)]);
            let facts = [
                after(", assigned to ", issue.assignee.as_ref()),
                after(", owned by ", issue.owner.as_ref()),
                after(", part of ", issue.parent.as_ref()),
                proposal(issue).unwrap_or_default(),
            ];
            page.line(format!("  {} in ledger {ledger}{}", clean(&issue.kind), facts.concat()));
            if let Some(created) = &issue.created {
                let by = after(" by ", Some(&created.by).filter(|by| !by.is_empty()));
                page.line(format!("  created at {}{by}", page.moment(created.at)));
            }
            if let Some(Overlay { ledger, fields }) = &self.overlay {
                let fields = clean(&fields.join(", "));
                page.line(format!("  your private changes, kept in ledger {ledger} only: {fields}"));
            }
            for (dep, found) in &self.needs {
                let kind = if dep.blocks() { "needs".to_owned() } else { clean(&dep.kind) };
                write_tied(page, &kind, &dep.on, found.as_ref());
            }
            for found in &self.needed_by {
                write_tied(page, "needed by", &found.issue.id, Some(found));
            }
            if let Some(until) = issue.defer_until {
                page.line(format!("  deferred until {}", page.moment(until)));
            }
            if let Some(due) = issue.due {
                page.line(format!("  due {}", page.moment(due)));
            }
            for child in &self.children {
                let FoundIssue { issue, .. } = child;
                page.row([format!("  has {}", clean(&issue.id)), clean(&issue.status), title(issue)]);
            }
            if let Some(Workspace { path, branch, .. }) = &self.workspace {
                page.line(format!("  in {}{}", clean(path), after(" on ", branch.as_ref())));
            }
            if let Some(On { workflow, holder }) = &self.on {
                let who = match holder {
                    Some(name) => format!("held by {}", clean(name)),
                    None if workflow.unlanded > 0 => "finished, not landed: toft land".to_owned(),
                    None => "not claimed now".to_owned(),
                };
                page.line(format!("  workflow {} ({who})", workflow.id));
            }
            let texts = [
                ("", &issue.body),
                ("Design: ", &issue.design),
                ("Done when: ", &issue.acceptance),
                ("Notes: ", &issue.notes),
            ];
            for (head, text) in texts {
                if let Some(text) = text {
                    page.block("  ", &format!("{head}{text}"));
                }
            }
            for said in &issue.comments {
                page.line(format!("  {} {}: {}", page.moment(said.at), clean(&said.by), clean(&said.text)));
            }
            if let Some(closed) = &issue.closed {
                let when = page.moment(closed.at);
                page.line(format!("  closed by {} at {when}: {}", clean(&closed.by), clean(&closed.reason)));
                if let Some(Value::Object(evidence)) =
                    closed.outcome.as_ref().and_then(|outcome| outcome.get("evidence"))
                {
                    for (kind, shown) in evidence {
                        page.line(format!("  evidence: {} {}", clean(kind), clean(shown.as_str().unwrap_or_default())));
                    }
                }
            }
            if let Some(deleted) = &issue.deleted {
                let (by, at, why) = (clean(&deleted.by), page.moment(deleted.at), clean(&deleted.reason));
                page.line(format!("  deleted by {by} at {at}: {why} (`toft reopen` brings it back)"));
            }
            for event in &self.history {
                let cells = [page.moment(event.at), clean(&event.actor), clean(&event.verb), particulars(event)];
                let [at, actor, verb, told] = cells.map(|cell| page.faint(cell));
                page.row([format!("  {at}"), actor, verb, Page::words(told)]);
            }
            match self.why.as_deref() {
                Some([]) => page.line("  It can start now."),
                Some(reasons) => {
                    reasons.iter().for_each(|reason| page.line(format!("  not ready: {}", page.told(reason))));
                }
                None => {}
            }
        })
    }

    fn json(&self) -> Value {
        let mut shown = row(&self.found.issue, &self.found.ledger);
        shown["workflow"] = json!(self.on.as_ref().map(|on| &on.workflow.id));
        if let Some(Workspace { name, path, branch, state, .. }) = &self.workspace {
            shown["workspace"] = json!({ "name": name, "path": path, "branch": branch, "state": state });
        }
        shown["needed_by"] = self.needed_by.iter().map(|found| found.issue.id.clone()).collect();
        shown["children"] = self.children.iter().map(|child| child.issue.id.clone()).collect();
        shown["history"] = data(&self.history);
        if let Some(overlay) = &self.overlay {
            shown["overlay"] = data(overlay);
        }
        if let Some(why) = &self.why {
            shown["not_ready"] = data(why);
        }
        shown
    }
}

pub(crate) fn view_undone(undone: &[Undo], dry_run: bool, redo: bool) -> CommandView<'_> {
    let (kind, did) = match (redo, dry_run) {
        (false, true) => ("undo", "Would undo"),
        (false, false) => ("undo", "Undid"),
        (true, true) => ("redo", "Would redo"),
        (true, false) => ("redo", "Redid"),
    };
    CommandView::new(kind, undone, undone.iter().flat_map(|undo| &undo.entities), move |page| {
        for undo in undone {
            page.line(format!("{did} {} of {}", clean(&undo.what), clean(&undo.entities.join(", "))));
        }
        if let (true, false, [undo]) = (dry_run, redo, undone) {
            page.line(format!("  only this: toft undo --last {}", undo.op));
        }
    })
}

pub(crate) fn view_compactions(compactions: &[Compaction]) -> CommandView<'_> {
    CommandView::new("compact", compactions, compactions.iter().map(|done| &done.ledger), move |page| {
        for Compaction { ledger, issues, archived, broken } in compactions {
            page.line(format!("Ledger {ledger}: {issues} issues, {archived} moved to the archive"));
            if *broken > 0 {
                page.line(format!("  {broken} broken lines are kept as they are; `toft doctor` lists them"));
            }
        }
    })
}

pub(crate) fn view_import(imported: &Imported) -> CommandView<'_> {
    CommandView::new("import", imported, [&imported.ledger], move |page| {
        let Imported { ledger, read, changed, unreadable, notes } = imported;
        page.line(format!("Read {read} issues; {changed} of them were new or newer (ledger {ledger})"));
        unreadable.iter().for_each(|problem| page.line(format!("  left out: {}", clean(problem))));
        notes.iter().for_each(|note| page.line(format!("  {}", clean(note))));
    })
}

pub(crate) fn view_export(exported: &Exported) -> CommandView<'_> {
    CommandView::new("export", exported, [exported.file.display()], move |page| {
        let Exported { file, issues, written, imported } = exported;
        let file = clean(&file.display().to_string());
        page.line(format!("Imported {} changes, wrote {written} of {issues} issues to {file}", imported.changed));
        imported.unreadable.iter().for_each(|problem| page.line(format!("  kept as it is: {}", clean(problem))));
        imported.notes.iter().for_each(|note| page.line(format!("  {}", clean(note))));
    })
}

pub(crate) fn view_ledgers(ledgers: &[Ledger]) -> CommandView<'_> {
    CommandView::new("ledgers", ledgers, ledgers.iter().map(|ledger| &ledger.name), move |page| {
        for Ledger { name, place, dir, read_only, first, kept_by_others, of, url, problem, routes, .. } in ledgers {
            let mode = match (read_only, kept_by_others) {
                (true, _) => "read only",
                (_, true) => "maintained by others, your changes to its issues stay private",
                _ => "read and write",
            };
            let first = if *first { ", new issues go here" } else { "" };
            let dir = clean(&dir.display().to_string());
            page.row([name.as_str(), place.as_str(), &format!("{mode}{first}"), &Page::words(dir)]);
            page.detail("  the ledger of ", of.as_ref().map(|repository| repository.display().to_string()));
            if let Some(url) = url {
                page.line(format!("  a copy of {}; `toft sync` exchanges it", clean(url)));
            }
            for route in routes {
                page.line(format!("  new issues {} go here", conditions(route)));
            }
            if let Some(problem) = problem {
                page.line(format!("  {}: {}", page.ink(Ink::Bad, "cannot be read"), clean(problem)));
            }
        }
    })
}

/// Describes which new issues a route takes.
fn conditions(route: &Route) -> String {
    let role = route.role.map(|role| data(&role).as_str().unwrap_or_default().to_owned());
    let mut parts = vec![
        after("of type ", route.kind.as_ref()),
        after("with label ", route.label.as_ref()),
        after("added in ", route.path.as_ref()),
        after("of a ", role),
    ];
    parts.retain(|part| !part.is_empty());
    parts.join(" and ")
}
