//! sync, propose, withdraw, accept, reject, move, and the guard.

use toft::{
    plan::{Asked, How, Plan, Wish},
    vcs::exchange::Range,
};

use super::{App, Done, plan, said_yes};
use crate::{
    args,
    exit::Failure,
    render::{GuardShown, IssueWritten, IssuesMoved, ProposalsMade, SyncDone},
};

/// What git calls a commit that is not there.
const NOTHING: char = '0';

pub(super) fn sync(app: &App<'_>, args: &args::Sync) -> Done {
    let plan = plan::plan(app.open()?)?;
    let mut wish = Wish {
        ledger: args.ledger.clone(),
        try_only: args.dry_run,
        commit: args.commit,
        sure: args.yes,
        ..Wish::default()
    };
    let step = |ledger: &str, what: &str| app.output.progress(&format!("{ledger}: {what}"));
    let mut all = plan.sync(&wish, step)?;
    app.output.progress("");
    let held: Vec<String> = all.iter().filter(|one| one.how == How::Held).flat_map(|one| one.said.clone()).collect();
    let doubts = held.iter().map(|doubt| format!("  {}\n", toft::text::clean(doubt))).collect::<String>();
    if !held.is_empty() && said_yes(&format!("About to send:\n{doubts}"), "Send it?")? {
        wish.sure = true;
        all = plan.sync(&wish, step)?;
        app.output.progress("");
    }
    let (failed, held) = (all.iter().any(|one| one.how.failed()), all.iter().any(|one| one.how == How::Held));
    let shown = app.show(&SyncDone { all, try_only: args.dry_run });
    match (held, failed) {
        (true, _) => Err(Failure::held("something doubtful was not sent", "look at it, then toft sync --yes sends it")),
        (_, true) => Err(Failure::stopped("not every ledger was exchanged", "each line above says what is in the way")),
        _ => shown,
    }
}

pub(super) fn propose(app: &App<'_>, args: &args::Propose) -> Done {
    let plan = plan::plan(app.open()?)?;
    let mut made = Vec::new();
    for id in &args.ids {
        made.push(plan.propose(id, args.to.as_deref(), args.push.as_deref())?);
    }
    app.show(&ProposalsMade(made))
}

pub(super) fn withdraw(app: &App<'_>, args: &args::Withdraw) -> Done {
    let wrote = plan::plan(app.open()?)?.withdraw(&args.id)?;
    app.show(&IssueWritten { wrote, did: "Withdrew" })
}

pub(super) fn accept(app: &App<'_>, args: &args::Accept) -> Done {
    let wrote = plan::plan(app.open()?)?.accept(&args.id)?;
    app.show(&IssueWritten { wrote, did: "Accepted" })
}

pub(super) fn reject(app: &App<'_>, args: &args::Reject) -> Done {
    let wrote = plan::plan(app.open()?)?.reject(&args.id, &args.reason)?;
    app.show(&IssueWritten { wrote, did: "Rejected" })
}

pub(super) fn move_issues(app: &App<'_>, args: &args::Move) -> Done {
    let toft = app.open()?;
    let plan = plan::plan(toft)?;
    let mut ids = args.ids.clone();
    if !args.filter.is_empty() {
        ids.extend(fitting(&plan, &args.filter, &args.to, &toft.located().agent)?);
    }
    if ids.is_empty() {
        return match args.filter.is_empty() {
            true => Err(Failure::invalid("no issue was named", "name issues, or --filter author=me")),
            false => Err(Failure::nothing("no issue fits", "toft list --all shows them")),
        };
    }
    let moved = plan.move_to(&ids, &args.to, args.dry_run)?;
    app.show(&IssuesMoved { moved, try_only: args.dry_run })
}

/// Issues outside of a ledger that fit every filter.
fn fitting(plan: &Plan<'_>, filters: &[String], to: &str, me: &str) -> Result<Vec<String>, Failure> {
    let known = "author, assignee, label, status, type, ledger";
    let mut wanted = Vec::new();
    for filter in filters {
        let (field, value) = filter.split_once('=').ok_or_else(|| {
            Failure::invalid(format!("`{filter}` is no filter"), &format!("FIELD=VALUE, with one of {known}"))
        })?;
        if !known.split(", ").any(|name| name == field) {
            return Err(Failure::invalid(format!("`{field}` is nothing to filter by"), &format!("use {known}")));
        }
        wanted.push((field, if value == "me" { me } else { value }));
    }
    let all = plan.list(&Asked { all: true, ..Asked::default() })?;
    let fits = |found: &&toft::plan::Found| {
        found.ledger != to
            && wanted.iter().all(|(field, value)| match *field {
                "author" => found.issue.created.as_ref().is_some_and(|created| created.by == *value),
                "assignee" => found.issue.assignee.as_deref() == Some(value),
                "label" => found.issue.labels.iter().any(|label| label == value),
                "status" => found.issue.status == *value,
                "type" => found.issue.kind == *value,
                _ => found.ledger == *value,
            })
    };
    Ok(all.iter().filter(fits).map(|found| found.issue.id.clone()).collect())
}

/// Looks at what commits would publish.
pub(super) fn outgoing(app: &App<'_>, range: &str, yes: bool) -> Done {
    let range = if range.is_empty() { Range::Unpublished } else { Range::Named(range.to_owned()) };
    guard(app, &[range], yes)
}

fn guard(app: &App<'_>, ranges: &[Range], yes: bool) -> Done {
    let plan = plan::plan(app.open()?)?;
    let mut all = toft::plan::Guarded::default();
    for range in ranges {
        let found = plan.guard(range)?;
        all.issues += found.issues;
        all.leaks.extend(found.leaks);
        all.doubts.extend(found.doubts);
    }
    let (leaks, doubts) = (all.leaks.len(), all.doubts.len());
    let shown = app.show(&GuardShown(all));
    match (leaks, doubts) {
        (0, 0) => shown,
        (0, _) if yes => shown,
        (0, _) => Err(Failure::held(
            format!("{doubts} things are worth a look before they leave"),
            "look at them; toft doctor --outgoing --yes lets them pass",
        )),
        _ => Err(Failure::held(
            format!("{leaks} lines may not leave"),
            "take them out of these commits; toft propose offers an issue the right way",
        )),
    }
}

/// What git asks before it pushes: closed on pollution, open on anything else that goes wrong.
pub(super) fn before_push(app: &App<'_>, remote: &str, said: &str) -> Done {
    let mut ranges = Vec::new();
    for line in said.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(commit), Some(_), Some(there)) = (words.next(), words.next(), words.next()) else { continue };
        let real = |name: &str| !name.trim_matches(NOTHING).is_empty();
        // The ledger's own branches are what sync sends.
        let own = line.split(' ').nth(2).is_some_and(|name| name == "refs/heads/toft");
        if real(commit) && !own {
            let there = Some(there.to_owned()).filter(|there| real(there));
            ranges.push(Range::Pushing { commit: commit.to_owned(), remote: remote.to_owned(), there });
        }
    }
    match app.open_if_any()? {
        Some(_) => guard(app, &ranges, false),
        None => Ok(std::process::ExitCode::SUCCESS),
    }
}
