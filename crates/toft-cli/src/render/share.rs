//! What was exchanged, proposed, moved, and what may not leave.

use serde_json::json;
use toft::{
    Names,
    plan::{Guarded, LedgerKind, Proposed, Publishes, Purged, SyncStatus, Synced, Wrote},
};

use super::{
    CommandView,
    page::{Ink, Page, after, clean, short},
};

pub(crate) fn view_sync(all: &[Synced], try_only: bool) -> CommandView<'_> {
    CommandView::new("sync", all, all.iter().map(|one| &one.ledger), move |page| {
        for one in all {
            page.row([page.ink(Ink::Head, &one.ledger), Page::words(outcome(one, try_only))]);
            for came in &one.came {
                let why = came.why.as_ref().map(|why| format!(" ({})", short(why, 100))).unwrap_or_default();
                let what = match came.news {
                    "landed" => "is in their ledger now, awaiting a decision".to_owned(),
                    "accepted" => "was accepted; your copy now follows theirs".to_owned(),
                    "rejected" => format!("is private again{why}"),
                    _ => "was updated with their changes".to_owned(),
                };
                page.line(format!("  {} \"{}\" {what}", page.id(&came.issue), short(&came.title, 60)));
            }
        }
        if all.is_empty() {
            page.line("There is no ledger here yet: `toft add \"title\"` creates one.");
        }
    })
}

fn outcome(one: &Synced, try_only: bool) -> String {
    let (with, from) = (after(" with ", one.remote.as_ref()), after(" from ", one.remote.as_ref()));
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

pub(crate) fn view_proposals(proposals: &[Proposed]) -> CommandView<'_> {
    CommandView::new("proposals", proposals, proposals.iter().map(|made| &made.issue.id), move |page| {
        for Proposed { issue, to, place, branch, sent_to, private, labels } in proposals {
            page.line(format!("Proposed {} \"{}\" to ledger {to}", page.id(&issue.id), short(&issue.title, 60)));
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
                (None, ..) => page.line("  its maintainer decides: toft accept, toft close"),
            }
            if !private.is_empty() {
                let named = private.iter().map(|id| clean(id)).collect::<Vec<_>>().join(", ");
                page.line(format!("  left out: {named}, which is not visible there; propose it too if it should be"));
            }
            if !labels.is_empty() {
                let named = clean(&labels.join(", "));
                let unused = format!("labels that are not used there ({named})");
                page.line(format!("  left out: {unused}; --with labels publishes them"));
            }
        }
    })
}

pub(crate) fn view_moved_issues(moved: &[Wrote], try_only: bool) -> CommandView<'_> {
    let row = |wrote: &Wrote| json!({ "id": wrote.issue.id, "ledger": wrote.ledger });
    let rows: Vec<_> = moved.iter().map(row).collect();
    CommandView::new("moved", rows, moved.iter().map(|wrote| &wrote.issue.id), move |page| {
        let did = if try_only { "Would move" } else { "Moved" };
        for Wrote { issue, ledger, .. } in moved {
            page.line(format!("{did} {} \"{}\" to ledger {ledger}", page.id(&issue.id), short(&issue.title, 60)));
        }
        if moved.is_empty() {
            page.line("All issues are in that ledger already.");
        }
    })
}

/// What was found in text that would be published: a short id of each, and what it is.
pub(crate) fn view_findings(findings: &[(String, String)]) -> CommandView<'_> {
    let rows: Vec<_> = findings.iter().map(|(id, what)| json!({ "id": id, "what": what })).collect();
    CommandView::new("findings", rows, findings.iter().map(|(id, _)| id), move |page| {
        findings.iter().for_each(|(id, what)| write_finding(page, id, what));
    })
}

fn write_finding(page: &mut Page, id: &str, what: &str) {
    page.row([format!("Finding {id}"), Page::words(short(what, 200))]);
}

pub(crate) fn view_outgoing(guarded: &Guarded) -> CommandView<'_> {
    CommandView::new("outgoing", guarded, guarded.leaks.iter().map(|leak| &leak.issue), move |page| {
        let Guarded { issues, leaks, doubts, .. } = guarded;
        for leak in leaks {
            let (id, path) = (page.id(&leak.issue), clean(&leak.path));
            let revision: String = leak.revision.chars().take(10).collect();
            page.line(format!("{id} {}: {path} in commit {revision}", leak.why));
        }
        doubts.iter().for_each(|doubt| write_finding(page, &doubt.id, &doubt.what));
        if leaks.is_empty() && doubts.is_empty() {
            page.line(match issues {
                0 => "No issue would be published.".to_owned(),
                1 => "1 issue would be published, as intended.".to_owned(),
                count => format!("{count} issues would be published, as intended."),
            });
        }
    })
}

pub(crate) fn view_purge(purged: &Purged, try_only: bool) -> CommandView<'_> {
    CommandView::new("purge", purged, [&purged.issue], move |page| {
        let Purged { issue, ledger, place, remote, commits, branches, clones, left, store, .. } = purged;
        let id = page.id(issue);
        let did = if try_only { "Would purge" } else { "Purged" };
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
            page.line(format!("  clone {replica}, last write {last}: until its next sync"));
        }
        page.line(format!("  `toft history`, in the store {}", clean(store)));
    })
}

pub(crate) fn view_publications(publications: &[Publishes]) -> CommandView<'_> {
    CommandView::new("publishes", publications, publications.iter().map(|shown| &shown.ledger), move |page| {
        for shown in publications {
            let Publishes { ledger, place, dir, remote, branch, sends, names, name, replica } = shown;
            let dir = clean(&dir.display().to_string());
            page.row([&page.ink(Ink::Head, ledger), place.as_str(), &dir]);
            let to = match (remote, branch) {
                (Some((remote, url)), Some(branch)) => {
                    format!("branch {} of {} ({})", clean(branch), clean(remote), clean(url))
                }
                (Some((remote, url)), None) => format!("{} ({})", clean(remote), clean(url)),
                (None, _) => "no remote".to_owned(),
            };
            page.row(["  exchanged with".to_owned(), Page::words(to)]);
            page.row(["  sync sends".to_owned(), Page::words(clean(sends))]);
            let (other, means) = match names {
                Names::Author => ("agent", "git's author, for all agents"),
                Names::Agent => ("author", "the agent's own name"),
            };
            let name = format!("{} ({means}; [sync] names = \"{other}\" changes it)", clean(name));
            page.row(["  name written".to_owned(), Page::words(name)]);
            let replica = format!("replica {replica}: random, created once for this clone, used in all its writes");
            page.row(["  clocks".to_owned(), Page::words(replica)]);
        }
    })
}
