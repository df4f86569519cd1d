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
    Names, View, data,
    page::{Ink, Page, clean, short},
};

/// An issue with the ledger it is in.
pub(super) fn row(issue: &Issue, ledger: &str) -> Value {
    let mut row = data(issue);
    row["ledger"] = ledger.into();
    row
}

/// Another issue, as one is tied to it.
fn tied(id: &str, found: Option<&FoundIssue>) -> String {
    match found {
        Some(found) => format!("{}  {}  {}", clean(id), standing(&found.issue), title(&found.issue)),
        None => format!("{}, which is in no ledger here", clean(id)),
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

pub(crate) struct IssueWritten {
    pub(crate) wrote: Wrote,
    pub(crate) did: &'static str,
    /// There are several ledgers, so the text names the issue's.
    pub(crate) several: bool,
}

impl View for IssueWritten {
    fn kind(&self) -> &'static str {
        "issue"
    }

    fn json(&self) -> Value {
        row(&self.wrote.issue, &self.wrote.ledger)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.wrote.issue.id.clone()]
    }

    fn text(&self, page: &mut Page) {
        let Wrote { issue, ledger, before, .. } = &self.wrote;
        let id = page.ink(Ink::Id, &clean(&issue.id));
        let did = if before.is_none() { "Nothing to change in" } else { self.did };
        let status = Some(standing(issue)).filter(|status| {
            !matches!((did, status.as_str()), ("Added", "open") | ("Closed", "closed") | ("Deleted", "deleted"))
        });
        let aside = aside(status, Some(ledger).filter(|_| self.several));
        page.line(format!("{did} {id} \"{}\"{aside}", short(&issue.title, 70)));
    }
}

pub(crate) struct IssuesWritten {
    pub(crate) wrote: Vec<Wrote>,
    /// What was done to them.
    pub(crate) did: &'static str,
    /// There are several ledgers, so the text names the issue's.
    pub(crate) several: bool,
}

impl View for IssuesWritten {
    fn kind(&self) -> &'static str {
        "issues"
    }

    fn json(&self) -> Value {
        self.wrote.iter().map(|wrote| row(&wrote.issue, &wrote.ledger)).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.wrote.iter().map(|wrote| wrote.issue.id.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for Wrote { issue, ledger, .. } in &self.wrote {
            let id = page.ink(Ink::Id, &clean(&issue.id));
            let aside = aside(None, Some(ledger).filter(|_| self.several));
            page.line(format!("{} {id} \"{}\"{aside}", self.did, short(&issue.title, 70)));
        }
        if self.wrote.is_empty() {
            page.line("Nothing was written.");
        }
    }
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
}

impl View for IssueList {
    fn kind(&self) -> &'static str {
        "issues"
    }

    fn json(&self) -> Value {
        let row = |found: &FoundIssue| {
            let mut row = row(&found.issue, &found.ledger);
            row["ready"] = self.is_ready(found).into();
            row
        };
        self.names.json(self.issues.iter().map(row).collect())
    }

    fn total(&self) -> Option<u64> {
        Some(self.total)
    }

    fn more(&self) -> Option<bool> {
        Some(self.more)
    }

    fn ids(&self) -> Vec<String> {
        self.issues.iter().map(|found| found.issue.id.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for found in &self.issues {
            let issue = &found.issue;
            let id = page.ink(Ink::Id, &clean(&issue.id));
            let ready = match (self.is_ready(found), issue.only_by_name()) {
                (true, false) => "  ready",
                (true, true) => "  ready, by id only",
                (false, _) if issue.unfinished() && found.ready(self.now) => "  started",
                (false, _) => "",
            };
            let who = issue.assignee.as_deref().map(|name| format!("  {}", clean(name))).unwrap_or_default();
            let ledger = if self.several { format!("  ({})", found.ledger) } else { String::new() };
            let repository = self.names.text(&issue.id);
            page.line(format!(
                "{id}  P{}  {}  {}{}",
                issue.priority,
                standing(issue),
                title(issue),
                page.ink(Ink::Faint, &format!("{who}{ready}{ledger}{repository}"))
            ));
        }
        if self.issues.is_empty() {
            page.line("No issues.");
        }
        if self.more {
            let shown = format!("… {} of {} shown; use --limit for more", self.issues.len(), self.total);
            page.line(page.ink(Ink::Faint, &shown));
        }
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

impl View for IssueShown {
    fn kind(&self) -> &'static str {
        "issue"
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

    fn ids(&self) -> Vec<String> {
        vec![self.found.issue.id.clone()]
    }

    fn text(&self, page: &mut Page) {
        let FoundIssue { issue, ledger, .. } = &self.found;
        let id = page.ink(Ink::Id, &clean(&issue.id));
        page.line(format!("{id}  P{}  {}  {}", issue.priority, standing(issue), title(issue)));
        let who = |word: &str, name: &Option<String>| name.as_ref().map(|name| format!(", {word} {}", clean(name)));
        let facts = [
            who("assigned to", &issue.assignee),
            who("owned by", &issue.owner),
            who("part of", &issue.parent),
            proposal(issue),
        ];
        page.line(format!(
            "  {} in ledger {ledger}{}",
            clean(&issue.kind),
            facts.into_iter().flatten().collect::<String>()
        ));
        if let Some(created) = &issue.created {
            let by = Some(clean(&created.by)).filter(|by| !by.is_empty()).map(|by| format!(" by {by}"));
            page.line(format!("  created at {}{}", page.moment(created.at), by.unwrap_or_default()));
        }
        if let Some(Overlay { ledger, fields }) = &self.overlay {
            let fields = clean(&fields.join(", "));
            page.line(format!("  your private changes, kept in ledger {ledger} only: {fields}"));
        }
        for (dep, found) in &self.needs {
            let kind = if dep.blocks() { "needs".to_owned() } else { clean(&dep.kind) };
            page.line(format!("  {kind} {}", tied(&dep.on, found.as_ref())));
        }
        for found in &self.needed_by {
            page.line(format!("  needed by {}", tied(&found.issue.id, Some(found))));
        }
        if let Some(until) = issue.defer_until {
            page.line(format!("  deferred until {}", page.moment(until)));
        }
        if let Some(due) = issue.due {
            page.line(format!("  due {}", page.moment(due)));
        }
        for child in &self.children {
            page.line(format!(
                "  has {}  {}  {}",
                clean(&child.issue.id),
                clean(&child.issue.status),
                title(&child.issue)
            ));
        }
        if let Some(workspace) = &self.workspace {
            let branch = workspace.branch.as_deref().map(|name| format!(" on {}", clean(name))).unwrap_or_default();
            page.line(format!("  in {}{branch}", clean(&workspace.path)));
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
            if let Some(Value::Object(evidence)) = closed.outcome.as_ref().and_then(|outcome| outcome.get("evidence")) {
                for (kind, shown) in evidence {
                    page.line(format!("  evidence: {} {}", clean(kind), clean(shown.as_str().unwrap_or_default())));
                }
            }
        }
        if let Some(deleted) = &issue.deleted {
            page.line(format!(
                "  deleted by {} at {}: {} (`toft restore` restores it)",
                clean(&deleted.by),
                page.moment(deleted.at),
                clean(&deleted.reason)
            ));
        }
        for event in &self.history {
            let told = particulars(event);
            let line = format!("  {}  {}  {}  {told}", page.moment(event.at), clean(&event.actor), clean(&event.verb));
            page.line(page.ink(Ink::Faint, &line));
        }
        match self.why.as_deref() {
            Some([]) => page.line("  It can start now."),
            Some(reasons) => {
                reasons.iter().for_each(|reason| page.line(format!("  not ready: {}", page.told(reason))));
            }
            None => {}
        }
    }
}

pub(crate) struct UndoDone {
    pub(crate) undone: Vec<Undo>,
    pub(crate) dry_run: bool,
    pub(crate) redo: bool,
}

impl View for UndoDone {
    fn kind(&self) -> &'static str {
        if self.redo { "redo" } else { "undo" }
    }

    fn json(&self) -> Value {
        data(&self.undone)
    }

    fn ids(&self) -> Vec<String> {
        self.undone.iter().flat_map(|undo| undo.entities.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        let did = match (self.redo, self.dry_run) {
            (false, true) => "Would undo",
            (false, false) => "Undid",
            (true, true) => "Would redo",
            (true, false) => "Redid",
        };
        for undo in &self.undone {
            page.line(format!("{did} {} of {}", clean(&undo.what), clean(&undo.entities.join(", "))));
        }
        if let (true, false, [undo]) = (self.dry_run, self.redo, self.undone.as_slice()) {
            page.line(format!("  only this: toft undo --last {}", undo.op));
        }
    }
}

pub(crate) struct Compacted(pub(crate) Vec<Compaction>);

impl View for Compacted {
    fn kind(&self) -> &'static str {
        "compact"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|done| done.ledger.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for Compaction { ledger, issues, archived, broken } in &self.0 {
            page.line(format!("Ledger {ledger}: {issues} issues, {archived} moved to the archive"));
            if *broken > 0 {
                page.line(format!("  {broken} broken lines are kept as they are; `toft doctor` lists them"));
            }
        }
    }
}

pub(crate) struct ImportDone(pub(crate) Imported);

impl View for ImportDone {
    fn kind(&self) -> &'static str {
        "import"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.ledger.clone()]
    }

    fn text(&self, page: &mut Page) {
        let Imported { ledger, read, changed, unreadable, notes } = &self.0;
        page.line(format!("Read {read} issues; {changed} of them were new or newer (ledger {ledger})"));
        unreadable.iter().for_each(|problem| page.line(format!("  left out: {}", clean(problem))));
        notes.iter().for_each(|note| page.line(format!("  {}", clean(note))));
    }
}

pub(crate) struct ExportDone(pub(crate) Exported);

impl View for ExportDone {
    fn kind(&self) -> &'static str {
        "export"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.file.display().to_string()]
    }

    fn text(&self, page: &mut Page) {
        let Exported { file, issues, written, imported } = &self.0;
        let file = clean(&file.display().to_string());
        page.line(format!("Imported {} changes, wrote {written} of {issues} issues to {file}", imported.changed));
        imported.unreadable.iter().for_each(|problem| page.line(format!("  kept as it is: {}", clean(problem))));
        imported.notes.iter().for_each(|note| page.line(format!("  {}", clean(note))));
    }
}

pub(crate) struct LedgerList(pub(crate) Vec<Ledger>);

impl View for LedgerList {
    fn kind(&self) -> &'static str {
        "ledgers"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|ledger| ledger.name.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for Ledger { name, place, dir, read_only, first, kept_by_others, of, url, problem, routes, .. } in &self.0 {
            let mode = match (read_only, kept_by_others) {
                (true, _) => "read only",
                (_, true) => "maintained by others, your changes to its issues stay private",
                _ => "read and write",
            };
            let first = if *first { ", new issues go here" } else { "" };
            page.line(format!("{name}  {}  {mode}{first}  {}", place.as_str(), clean(&dir.display().to_string())));
            if let Some(repository) = of {
                page.line(format!("  the ledger of {}", clean(&repository.display().to_string())));
            }
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
    }
}

/// Describes which new issues a route takes.
fn conditions(route: &Route) -> String {
    let role = route.role.map(|role| data(&role).as_str().unwrap_or_default().to_owned());
    let parts = [
        route.kind.as_ref().map(|kind| format!("of type {}", clean(kind))),
        route.label.as_ref().map(|label| format!("with label {}", clean(label))),
        route.path.as_ref().map(|path| format!("added in {}", clean(path))),
        role.map(|role| format!("of a {role}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}
