//! What was exchanged, proposed, moved, and what may not leave.

use serde_json::{Value, json};
use toft::{
    Names,
    plan::{Guarded, LedgerKind, Proposed, Publishes, Purged, SyncStatus, Synced, Wrote},
};

use super::{
    View, data,
    page::{Ink, Page, clean, short},
};

pub(crate) struct SyncDone {
    pub(crate) all: Vec<Synced>,
    pub(crate) try_only: bool,
}

impl View for SyncDone {
    fn kind(&self) -> &'static str {
        "sync"
    }

    fn json(&self) -> Value {
        data(&self.all)
    }

    fn ids(&self) -> Vec<String> {
        self.all.iter().map(|one| one.ledger.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for one in &self.all {
            let ledger = page.ink(Ink::Head, &one.ledger);
            page.line(format!("{ledger}  {}", outcome(one, self.try_only)));
            for came in &one.came {
                let why = came.why.as_ref().map(|why| format!(" ({})", short(why, 100))).unwrap_or_default();
                let id = page.ink(Ink::Id, &clean(&came.issue));
                let what = match came.news {
                    "landed" => "is in their ledger now, awaiting a decision".to_owned(),
                    "accepted" => "was accepted; your copy now follows theirs".to_owned(),
                    "rejected" => format!("is private again{why}"),
                    _ => "was updated with their changes".to_owned(),
                };
                page.line(format!("  {id} \"{}\" {what}", short(&came.title, 60)));
            }
        }
        if self.all.is_empty() {
            page.line("There is no ledger here yet: `toft add \"title\"` creates one.");
        }
    }
}

fn outcome(one: &Synced, try_only: bool) -> String {
    let with = one.remote.as_deref().map(|remote| format!(" with {}", clean(remote))).unwrap_or_default();
    let from = one.remote.as_deref().map(|remote| format!(" from {}", clean(remote))).unwrap_or_default();
    let said = one.said.iter().map(|said| short(said, 160)).collect::<Vec<_>>().join("; ");
    let counts = match (one.received, one.sent) {
        (0, 0) => "nothing new".to_owned(),
        (received, sent) => format!("{received} in, {sent} out"),
    };
    let races = if one.races > 0 { format!(", after {} lost races", one.races) } else { String::new() };
    let rewritten = if one.rewritten { "; the remote's history was rewritten, yours is unchanged" } else { "" };
    let waits = match one.place {
        LedgerKind::Tree => "; not committed yet",
        _ => "; your changes stay here, `toft propose` proposes an issue",
    };
    match one.how {
        _ if try_only && !one.how.failed() && one.how != SyncStatus::Offline && one.how != SyncStatus::Unversioned => {
            format!("would exchange{with}: {counts}")
        }
        SyncStatus::Synced => {
            let said = if said.is_empty() { String::new() } else { format!("; {said}") };
            format!("synced{with}: {counts}{races}{rewritten}{said}")
        }
        SyncStatus::Received => {
            let committed = if said.is_empty() { waits.to_owned() } else { format!("; {said}") };
            match one.received {
                0 if said.is_empty() => format!("nothing new{from}{rewritten}"),
                received => format!("received{from}: {received} in{committed}{rewritten}"),
            }
        }
        SyncStatus::Recorded => {
            let committed = if said.is_empty() { String::new() } else { format!("; {said}") };
            format!("not shared: it has no remote{committed}")
        }
        SyncStatus::Left => "read only: its owner updates it".to_owned(),
        SyncStatus::Unversioned => "not shared: it is not under version control".to_owned(),
        SyncStatus::Offline => format!("offline: nothing is lost, the next sync sends it ({said})"),
        SyncStatus::NotFound => format!("no repository{with}: nothing is lost ({said})"),
        SyncStatus::Denied => format!("access denied{with}: {said}"),
        SyncStatus::Protected => format!("push rejected{with}: {said}"),
        SyncStatus::Conflict => format!("conflict: {said}"),
        SyncStatus::Outrun => format!("other clones kept pushing first{with}; try again"),
        SyncStatus::Held => format!("held back: {said}"),
        SyncStatus::Failed => format!("failed{with}: {said}"),
    }
}

pub(crate) struct ProposalsMade(pub(crate) Vec<Proposed>);

impl View for ProposalsMade {
    fn kind(&self) -> &'static str {
        "proposals"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|made| made.issue.id.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for Proposed { issue, to, place, branch, sent_to, private, labels } in &self.0 {
            let id = page.ink(Ink::Id, &clean(&issue.id));
            page.line(format!("Proposed {id} \"{}\" to ledger {to}", short(&issue.title, 60)));
            match (branch, sent_to, place) {
                (Some(branch), Some(remote), _) => {
                    page.line(format!("  its branch {branch} is on {}; open a pull request from it", clean(remote)));
                }
                (Some(branch), None, _) => {
                    let id = clean(&issue.id);
                    page.line(format!(
                        "  {branch} is not sent: toft propose {id} --push REMOTE, then open a pull request"
                    ));
                }
                (None, _, LedgerKind::Tree) => page.line("  one more line in .toft/issues.jsonl, for your next commit"),
                (None, ..) => page.line("  its maintainer decides: toft accept, toft reject"),
            }
            if !private.is_empty() {
                let named = private.iter().map(|id| clean(id)).collect::<Vec<_>>().join(", ");
                page.line(format!("  left out: {named}, which is not visible there; propose it too if it should be"));
            }
            if !labels.is_empty() {
                let named = clean(&labels.join(", "));
                page.line(format!(
                    "  left out: labels that are not used there ({named}); --with labels publishes them"
                ));
            }
        }
    }
}

pub(crate) struct IssuesDecided {
    pub(crate) wrote: Vec<Wrote>,
    pub(crate) did: &'static str,
    /// There are several ledgers, so the text names the issue's.
    pub(crate) several: bool,
}

impl View for IssuesDecided {
    fn kind(&self) -> &'static str {
        "issues"
    }

    fn json(&self) -> Value {
        self.wrote.iter().map(|wrote| super::issues::row(&wrote.issue, &wrote.ledger)).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.wrote.iter().map(|wrote| wrote.issue.id.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for Wrote { issue, ledger, .. } in &self.wrote {
            let id = page.ink(Ink::Id, &clean(&issue.id));
            let ledger = if self.several { format!(" (ledger {ledger})") } else { String::new() };
            page.line(format!("{} {id} \"{}\"{ledger}", self.did, short(&issue.title, 60)));
        }
    }
}

pub(crate) struct IssuesMoved {
    pub(crate) moved: Vec<Wrote>,
    pub(crate) try_only: bool,
}

impl View for IssuesMoved {
    fn kind(&self) -> &'static str {
        "moved"
    }

    fn json(&self) -> Value {
        self.moved.iter().map(|wrote| json!({ "id": wrote.issue.id, "ledger": wrote.ledger })).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.moved.iter().map(|wrote| wrote.issue.id.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        let did = if self.try_only { "Would move" } else { "Moved" };
        for Wrote { issue, ledger, .. } in &self.moved {
            let id = page.ink(Ink::Id, &clean(&issue.id));
            page.line(format!("{did} {id} \"{}\" to ledger {ledger}", short(&issue.title, 60)));
        }
        if self.moved.is_empty() {
            page.line("All issues are in that ledger already.");
        }
    }
}

/// What was found in text that would be published: a short id of each, and what it is.
pub(crate) struct FindingsShown(pub(crate) Vec<(String, String)>);

impl View for FindingsShown {
    fn kind(&self) -> &'static str {
        "findings"
    }

    fn json(&self) -> Value {
        self.0.iter().map(|(id, what)| json!({ "id": id, "what": what })).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|(id, _)| id.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for (id, what) in &self.0 {
            page.line(format!("Finding {id}  {}", short(what, 200)));
        }
    }
}

pub(crate) struct GuardShown(pub(crate) Guarded);

impl View for GuardShown {
    fn kind(&self) -> &'static str {
        "outgoing"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.leaks.iter().map(|leak| leak.issue.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        let Guarded { issues, leaks, doubts, .. } = &self.0;
        for leak in leaks {
            let id = page.ink(Ink::Id, &clean(&leak.issue));
            let revision: String = leak.revision.chars().take(10).collect();
            page.line(format!("{id} {}: {} in commit {revision}", leak.why, clean(&leak.path)));
        }
        for doubt in doubts {
            page.line(format!("Finding {}  {}", doubt.id, short(&doubt.what, 200)));
        }
        if leaks.is_empty() && doubts.is_empty() {
            page.line(match issues {
                0 => "No issue would be published.".to_owned(),
                1 => "1 issue would be published, as intended.".to_owned(),
                count => format!("{count} issues would be published, as intended."),
            });
        }
    }
}

pub(crate) struct PurgeDone {
    pub(crate) purged: Purged,
    pub(crate) try_only: bool,
}

impl View for PurgeDone {
    fn kind(&self) -> &'static str {
        "purge"
    }

    fn json(&self) -> Value {
        data(&self.purged)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.purged.issue.clone()]
    }

    fn text(&self, page: &mut Page) {
        let Purged { issue, ledger, place, remote, commits, branches, clones, left, store, .. } = &self.purged;
        let id = page.ink(Ink::Id, &clean(issue));
        let did = if self.try_only { "Would purge" } else { "Purged" };
        let own = left.is_empty() && *place != LedgerKind::Tree;
        let history = match remote {
            Some(remote) if own => format!(": {commits} commits rewritten here and on {}", clean(remote)),
            None if own => format!(": {commits} commits rewritten here"),
            _ => ": only the file was changed".to_owned(),
        };
        page.line(format!("{did} {id} from ledger {ledger}{history}"));
        left.iter().for_each(|why| page.line(format!("  not done: {}", short(why, 200))));
        page.line("Copies that toft cannot reach:");
        if let Some(remote) = remote {
            let remote = clean(remote);
            page.line(format!("  {remote}: until its server deletes unreachable commits; its forks and backups"));
        }
        for branch in branches {
            page.line(format!("  branch {} is built on the old history; delete it", clean(branch)));
        }
        for clone in clones {
            let (replica, last) = (clean(&clone.replica), clone.last);
            page.line(format!(
                "  clone {replica}, last write {last}: until its next sync, then its own unreachable commits"
            ));
        }
        page.line("  this clone: unreachable commits until git's next gc");
        page.line(format!("  `toft history`, in the store {}", clean(store)));
    }
}

pub(crate) struct LedgersShown(pub(crate) Vec<Publishes>);

impl View for LedgersShown {
    fn kind(&self) -> &'static str {
        "publishes"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|shown| shown.ledger.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for shown in &self.0 {
            let Publishes { ledger, place, dir, remote, branch, sends, names, name, replica } = shown;
            let head = page.ink(Ink::Head, ledger);
            page.line(format!("{head}  {}  {}", place.as_str(), clean(&dir.display().to_string())));
            let to = match (remote, branch) {
                (Some((remote, url)), Some(branch)) => {
                    format!("branch {} of {} ({})", clean(branch), clean(remote), clean(url))
                }
                (Some((remote, url)), None) => format!("{} ({})", clean(remote), clean(url)),
                (None, _) => "no remote".to_owned(),
            };
            page.line(format!("  exchanged with  {to}"));
            page.line(format!("  sync sends      {}", clean(sends)));
            let (other, means) = match names {
                Names::Author => ("agent", "git's author, for all agents"),
                Names::Agent => ("author", "the agent's own name"),
            };
            page.line(format!("  name written    {} ({means}; [sync] names = \"{other}\" changes it)", clean(name)));
            page.line(format!(
                "  clocks          replica {replica}: random, created once for this clone, used in all its writes"
            ));
        }
    }
}
