//! init, where, doctor, gc.

use std::path::PathBuf;

use toft::{
    doctor::{Health, examine},
    plan::{IssueFilter, PrivatePlanning},
    retention::{Retention, RetentionKind},
};

use super::{App, Done, asked, plan, setup, share, upkeep};
use crate::{
    args::{Doctor, Gc, Init, Trust},
    exit::Failure,
    render::{Initialised, Place, view_doctor, view_forgotten, view_trust},
};

pub(super) fn init(app: &App<'_>, args: &Init) -> Done {
    let (toft, new) = toft::Toft::init(&app.config()?, args.no_vcs)?;
    if let Some(url) = &args.clone_url {
        return super::fleet::clone_from(app, url);
    }
    if args.tree {
        let before =
            toft.plan()?.map_or(Ok(0), |plan| plan.list(&IssueFilter::default()).map(|issues| issues.len()))?;
        toft.ledgers().keep_issues_in_tree()?;
        let after = toft.plan()?.map_or(Ok(0), |plan| plan.list(&IssueFilter::default()).map(|issues| issues.len()))?;
        if after < before {
            toft.note(format!(
                "{} open issues stay in the ledger beside the repository, which is no longer listed; to move them, run \
                 `toft export jsonl` before and `toft import jsonl` after this command",
                before - after
            ));
        }
    }
    if args.maintainer {
        toft.ledgers().plan_in_public()?;
    }
    let private = match args.contributor {
        true => {
            let mut how = PrivatePlanning { dir: args.planning.clone(), upstream: args.upstream.clone() };
            if how.dir.is_none() && !args.no_input {
                let answer = asked("Repository for your private issues [default: toft creates one]: ")?;
                how.dir = answer.filter(|answer| !answer.is_empty()).map(PathBuf::from);
            }
            Some(toft.ledgers().plan_in_private(&how)?)
        }
        false => None,
    };
    let located = toft.located().clone();
    let hint = match &located.checkout {
        Some(checkout) => toft::plan::hint(checkout)?,
        None => false,
    };
    let waiting = match &located.checkout {
        Some(checkout) => toft::plan::waiting(checkout)?,
        None => false,
    };
    let guard = match (&located.checkout, args.contributor && !args.no_guard) {
        (Some(checkout), true) => Some(crate::setup::stand(checkout, true)?),
        _ => None,
    };
    let changed = args.tree || args.contributor || args.maintainer;
    let registered = toft.newly_registered() && !new;
    let public = args.maintainer;
    app.show(&Initialised { located, new, registered, private, guard, hint, changed, waiting, public }.view())
}

pub(super) fn locate(app: &App<'_>) -> Done {
    app.show(&place(app)?.view())
}

/// The store, repository and worktree in use; also if the store cannot be asked.
fn place(app: &App<'_>) -> Result<Place, Failure> {
    let located = toft::locate(&app.config()?)?;
    let workspace = match located.store.missing() {
        false => app.open().ok().and_then(|toft| toft.work().workspace_here().ok()).flatten(),
        true => None,
    };
    Ok(Place { located, workspace })
}

pub(super) fn doctor(app: &App<'_>, args: &Doctor) -> Done {
    if args.upgrade {
        return upkeep::migrate(app);
    }
    if let Some(range) = &args.outgoing {
        return share::outgoing(app, range, args.yes, &args.allow);
    }
    let place = place(app)?;
    let toft = match app.open() {
        Ok(toft) => toft,
        Err(failure) => return app.show_failed(&view_doctor(&place, &[]), failure),
    };
    let mut checks = examine(toft);
    checks.extend(setup::guarded(toft)?);
    checks.extend(setup::hook_checks(toft.located())?);
    let failed = checks.iter().filter(|check| check.health == Health::Fail).count();
    let view = view_doctor(&place, &checks);
    match failed {
        0 => app.show(&view),
        _ => app.show_failed(&view, Failure::unhealthy(failed)),
    }
}

pub(super) fn trust(app: &App<'_>, args: &Trust) -> Done {
    let located = toft::locate(&app.config()?)?;
    let repository = located.repository.as_ref().map(ToString::to_string).unwrap_or_default();
    let setup = &located.workspaces.setup;
    let list = toft::plan::Ledgers::carried_ledgers(&located)?;
    if args.yes || args.revoke {
        setup.trust(&repository, args.yes)?;
        for commands in [&located.land.check, &located.verify] {
            commands.trust(&repository, args.yes)?;
        }
        if let Some(list) = &list {
            list.trust(&repository, args.yes)?;
        }
    }
    if let (true, Some(list)) = (args.yes, &list) {
        toft::plan::Ledgers::prepare_carried_ledgers(&located, list)?;
    }
    // What runs before work is done is usually the check.
    let early = Some(&located.verify).filter(|early| **early != located.land.check);
    let checks: Vec<_> = early.into_iter().chain([&located.land.check]).collect();
    let trusted = setup.trusted(&repository)
        && checks.iter().all(|commands| commands.trusted(&repository))
        && list.as_ref().is_none_or(|list| list.trusted(&repository));
    let ledgers = list.map(|list| list.lines()).unwrap_or_default();
    let commands = setup.commands().into_iter().chain(checks.iter().flat_map(|checks| checks.commands.clone()));
    app.show(&view_trust(&commands.collect::<Vec<_>>(), &ledgers, trusted))
}

pub(super) fn gc(app: &App<'_>, args: &Gc) -> Done {
    if args.ledgers {
        return plan::compact(app, args.archive_after);
    }
    let toft = app.open()?;
    let retention = match args.older_than {
        Some(keep) => Retention::all(keep),
        None => toft.located().retention.clone(),
    };
    let outcome =
        toft.forget_old(&retention, |what, count| app.output.progress(&format!("{count} {}", what.as_str())))?;
    app.output.progress("");
    let logs = toft.attempts().forget_logs(retention.of(RetentionKind::Attempts))?;
    let bytes = toft.reclaim()?;
    app.show(&view_forgotten(&outcome.gone, logs, bytes))
}
