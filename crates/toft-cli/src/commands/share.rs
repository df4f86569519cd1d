//! sync, propose, withdraw, accept, reject, move, and the guard.

use toft::{
    issue::proposal::Fields,
    plan::{Doubtful, ProposeOptions, SyncOptions, SyncStatus},
    refusal::Refusal,
    vcs::{
        RunError,
        exchange::{ExchangeError, Range},
        workspace::WorkspaceError,
    },
};

use super::{App, Done, plan, said_yes};
use crate::{
    args,
    exit::Failure,
    render::{
        view_findings, view_moved_issues, view_outgoing, view_proposals, view_purge, view_sync, view_written_issues,
    },
};

/// What git calls a commit that is not there.
const NOTHING: char = '0';

pub(super) fn sync(app: &App<'_>, args: &args::Sync) -> Done {
    let plan = plan::plan(app.open()?)?;
    plan.allow_findings(&args.allow)?;
    let wish = SyncOptions {
        ledger: args.ledger.clone(),
        try_only: args.dry_run,
        commit: args.commit,
        sure: args.yes,
        ..SyncOptions::default()
    };
    let step = |ledger: &str, what: &str| app.output.progress(&format!("{ledger}: {what}"));
    let all = plan.sync(&wish, step)?;
    app.output.progress("");
    let (failed, held) = (all.iter().any(|one| one.how.failed()), all.iter().any(|one| one.how == SyncStatus::Held));
    let view = view_sync(&all, args.dry_run);
    match (held, failed) {
        (true, _) => {
            let help = "remove a real secret with toft edit; toft sync --allow FINDING sends that finding";
            app.show_failed(&view, Failure::held("text that looks like a secret was not sent", help))
        }
        (_, true) => {
            let help = "each ledger above shows its problem";
            app.show_failed(&view, Failure::stopped("not every ledger was exchanged", help))
        }
        _ => app.show(&view),
    }
}

pub(super) fn propose(app: &App<'_>, args: &args::Propose) -> Done {
    if args.withdraw {
        return withdraw(app, &args.ids);
    }
    let plan = plan::plan(app.open()?)?;
    let fields = Fields::choose(&args.with, &args.without).map_err(toft::Error::from)?;
    plan.allow_findings(&args.allow)?;
    let (to, send_to) = (args.to.clone(), args.push.clone());
    match plan.propose(&args.ids, &ProposeOptions { to, send_to, fields }) {
        Err(toft::Error::Refused(Refusal::Findings { findings })) => {
            let held = match findings.len() {
                1 => "nothing was published: 1 finding needs a decision".to_owned(),
                count => format!("nothing was published: {count} findings need a decision"),
            };
            let help =
                "remove it with toft edit, leave the field out with --without FIELD, or publish it with --allow ID";
            app.show_failed(&view_findings(&findings), Failure::held(held, help))
        }
        proposed => app.show(&view_proposals(&proposed?)),
    }
}

fn withdraw(app: &App<'_>, ids: &[String]) -> Done {
    let plan = plan::plan(app.open()?)?;
    plan::write_each(app, ids, "Withdrew", |id, _| Ok(plan.withdraw(id)?))
}

pub(super) fn accept(app: &App<'_>, args: &args::Accept) -> Done {
    let plan = plan::plan(app.open()?)?;
    let mut wrote = Vec::new();
    for id in &args.ids {
        if let Some(from) = &args.from {
            plan.fetch_proposal(id, from)?;
        }
        wrote.push(plan.accept(id)?);
    }
    app.show(&view_written_issues(&wrote, "Accepted", plan::several(app.open()?)?))
}

pub(super) fn move_issues(app: &App<'_>, args: &args::Move) -> Done {
    let toft = app.open()?;
    let plan = plan::plan(toft)?;
    let mut ids = args.ids.clone();
    if !args.filter.is_empty() {
        ids = plan.fitting(&ids, &args.filter, &args.to, &toft.located().agent)?;
    }
    if ids.is_empty() {
        return match args.filter.is_empty() {
            true => Err(Failure::invalid("no issue was named", "name issues, or --filter author=me")),
            false => Err(Failure::nothing("no issue fits", "toft list --all shows them")),
        };
    }
    let moved = plan.move_to(&ids, &args.to, args.dry_run, args.yes)?;
    app.show(&view_moved_issues(&moved, args.dry_run))
}

pub(super) fn purge(app: &App<'_>, args: &args::Delete) -> Done {
    let plan = plan::plan(app.open()?)?;
    let purged = plan.purge(&args.id, true)?;
    if args.dry_run {
        return app.show(&view_purge(&purged, true));
    }
    if let Some(remote) = purged.remote.as_ref().filter(|_| !args.yes) {
        let (commits, remote) = (purged.commits, toft::text::clean(remote));
        let shown = format!("About to rewrite {commits} commits of the ledger here and on {remote}.\n");
        if !said_yes(&shown, "Rewrite them?")? {
            let help = "toft delete --purge -n shows what would be rewritten; --yes does not ask";
            return Err(Failure::held("nothing was purged", help));
        }
    }
    let purged = plan.purge(&args.id, false)?;
    app.show(&view_purge(&purged, false))
}

/// How what leaves is looked at.
#[derive(Default)]
struct Look {
    /// Let everything doubtful pass but secrets.
    yes: bool,
    /// Say nothing when everything passes.
    silent: bool,
}

/// Looks at what commits would publish.
pub(super) fn outgoing(app: &App<'_>, range: &str, yes: bool, allow: &[String]) -> Done {
    let range = if range.is_empty() { Range::Unpublished } else { Range::Named(range.to_owned()) };
    plan::plan(app.open()?)?.allow_findings(allow)?;
    guard(app, &[range], &[], &Look { yes, silent: false })
}

fn guard(app: &App<'_>, ranges: &[Range], refs: &[(String, String)], look: &Look) -> Done {
    let plan = plan::plan(app.open()?)?;
    let mut all = toft::plan::Guarded { doubts: plan.guard_refs(refs)?, ..Default::default() };
    for range in ranges {
        let found = match plan.guard(range) {
            // What cannot be looked at does not leave unseen.
            Err(toft::Error::Exchange(ExchangeError::Failed(WorkspaceError::Run(
                error @ (RunError::TooMuch { .. } | RunError::Late { .. }),
            )))) => {
                let help = "push less at once, or toft doctor --outgoing RANGE a part of it";
                return Err(Failure::held(format!("there is more to look at than can be: {error}"), help));
            }
            found => found?,
        };
        all.issues += found.issues;
        all.leaks.extend(found.leaks);
        all.doubts.extend(found.doubts);
    }
    let passes = |doubt: &Doubtful| look.yes && !doubt.secret;
    let (allowed, held): (Vec<Doubtful>, Vec<Doubtful>) = all.doubts.iter().cloned().partition(passes);
    let leaks = all.leaks.len();
    let view = view_outgoing(&all);
    if leaks > 0 {
        let help = "remove them from these commits (git rebase -i); toft propose publishes an issue";
        return app.show_failed(&view, Failure::held(format!("may not leave: {leaks}"), help));
    }
    plan.allow(&allowed)?;
    if held.is_empty() {
        return if look.silent { Ok(std::process::ExitCode::SUCCESS) } else { app.show(&view) };
    }
    let help = match held.iter().any(|doubt| doubt.secret) {
        true => "a real secret: remove it; else toft doctor --outgoing --allow ID allows it from now on",
        false => "look; toft doctor --outgoing --allow ID, or --yes for all, lets these pass from now on",
    };
    app.show_failed(&view, Failure::held(format!("worth a look before it leaves: {}", held.len()), help))
}

/// What git asks before it pushes: closed on pollution, open on anything else that goes wrong.
pub(super) fn before_push(app: &App<'_>, remote: &str, said: &str) -> Done {
    let (mut ranges, mut refs) = (Vec::new(), Vec::new());
    for line in said.lines() {
        // The first word is what was asked to be pushed, and may itself contain spaces.
        let mut words = line.rsplit(' ');
        let (Some(there), Some(name), Some(commit)) = (words.next(), words.next(), words.next()) else {
            return Err(Failure::held(format!("cannot read which refs are pushed: `{line}`"), "push again"));
        };
        // An option of git is none.
        if ![commit, there].iter().all(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return Err(Failure::held(format!("cannot read which refs are pushed: `{line}`"), "push again"));
        }
        let real = |name: &str| !name.trim_matches(NOTHING).is_empty();
        if real(commit) {
            let there = Some(there.to_owned()).filter(|there| real(there));
            refs.push((name.to_owned(), commit.to_owned()));
            ranges.push(Range::Pushing { commit: commit.to_owned(), remote: remote.to_owned(), there });
        }
    }
    match app.open_if_any()? {
        Some(_) => guard(app, &ranges, &refs, &Look { silent: true, ..Look::default() }),
        None => Ok(std::process::ExitCode::SUCCESS),
    }
}
