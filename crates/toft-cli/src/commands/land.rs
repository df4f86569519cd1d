//! Landing and reviewing finished work.

use std::process::ExitCode;

use toft::{
    LandingDiff,
    land::{LandEvent, Lander},
    landing::LandingState,
    runner::perform_check,
    verbs::land::{Flaky, Move, Review as ReviewWork, Step},
};

use super::{App, Done};
use crate::{
    args::{Land, LandCommand, Review},
    exit::Failure,
    render::{FlakyChecks, LandDone, LandForecast, LandList, LandShown, ReviewShown, Reviewed},
};

/// How many landings of the past `toft land list --all` shows.
const PAST: usize = 50;

pub(super) fn land(app: &App<'_>, args: &Land) -> Done {
    let toft = app.open()?;
    let work = toft.work();
    match &args.command {
        None if args.dry_run => app.show(&LandForecast {
            forecast: Lander::of(work, true)?.only_as_seen(args.commit.clone()).forecast(&args.ids)?,
            unchecked: toft.located().land.check.commands.is_empty(),
        }),
        None => land_now(app, &Lander::of(work, true)?.only_as_seen(args.commit.clone()), &args.ids),
        Some(LandCommand::Revert { id }) => {
            let lander = Lander::of(work, true)?;
            let queued = lander.revert(id)?;
            land_now(app, &lander, &[queued.id.to_string()])
        }
        Some(LandCommand::List { all }) => app.show(&LandList(work.landings(&[], if *all { PAST } else { 0 })?)),
        Some(LandCommand::Show { id }) => {
            let found = work.landings(std::slice::from_ref(id), 0)?;
            let missing = || Failure::invalid(format!("{id} has no finished work"), "toft land list");
            let entry = found.into_iter().next().ok_or_else(missing)?;
            app.show(&LandShown(entry))
        }
        Some(LandCommand::Withdraw { id, message }) => {
            let request = Move { id: work.whole_id(id)?, to: Step::Withdraw, reason: message.clone() };
            let landing = work.act(&toft.located().agent, app.op(), request)?;
            app.show(&Reviewed { landing, what: "withdrawn" })
        }
        Some(LandCommand::Flaky) => {
            let Some(repository) = toft.located().repository.clone() else { return app.show(&FlakyChecks(Vec::new())) };
            app.show(&FlakyChecks(toft.perform(Flaky { repository })?))
        }
    }
}

/// Lands, and shows what came of it.
fn land_now(app: &App<'_>, lander: &Lander<'_>, ids: &[String]) -> Done {
    let mut say = |event: &LandEvent| app.output.progress(&toft::text::clean(&told(event)));
    let summary = lander.land(ids, &mut say)?;
    app.output.progress("");
    if let Some(why) = summary.blocked.first().cloned() {
        return app.show_failed(&LandDone(summary), Failure::stopped(why, "run toft land again when that is mended"));
    }
    let Some(why) = summary.red.clone() else { return app.show(&LandDone(summary)) };
    let failure = Failure::stopped(
        format!("nothing lands before the target itself is mended: {why}"),
        "mend the branch, then run toft land again",
    );
    app.show_failed(&LandDone(summary), failure)
}

fn told(event: &LandEvent) -> String {
    match event {
        LandEvent::Waiting { target } => format!("another toft lands in {target}; waiting"),
        LandEvent::Checking { count: 0, .. } => "checking the target".to_owned(),
        LandEvent::Checking { count: 1, .. } => "checking 1 piece of work".to_owned(),
        LandEvent::Checking { count, .. } => format!("checking {count} pieces of work"),
        LandEvent::Checked { passed: true, .. } => "the check passed".to_owned(),
        LandEvent::Checked { passed: false, .. } => "the check failed".to_owned(),
        LandEvent::Landed { landing } => format!("landed: {}", landing.title),
        LandEvent::Proposed { landing } => {
            let url = landing.pull_request.as_ref().map_or("", |request| request.url.as_str());
            format!("pull request: {} {url}", landing.title)
        }
        LandEvent::Bounced { landing, reason, .. } => format!("sent back ({}): {}", reason.as_str(), landing.title),
        LandEvent::Note { text } => text.clone(),
    }
}

pub(super) fn review(app: &App<'_>, args: &Review) -> Done {
    let toft = app.open()?;
    let work = toft.work();
    let Some(id) = &args.id else {
        let mut waiting = work.landings(&[], 0)?;
        waiting.retain(|entry| entry.landing.state == LandingState::Queued && entry.landing.needs_review());
        return app.show(&LandList(waiting));
    };
    if !args.approve && !args.send_back {
        let found = work.landings(std::slice::from_ref(id), 0)?.into_iter().next();
        let missing = || Failure::invalid(format!("{id} has no finished work"), "toft review lists what waits");
        let entry = found.ok_or_else(missing)?;
        let diff = match work.diff_of_landing(&entry.landing)? {
            None => return app.show(&LandShown(entry)),
            Some(LandingDiff::Text(diff)) => String::from_utf8_lossy(&diff).into_owned(),
            Some(LandingDiff::Missing(why)) => {
                toft.note(why);
                return app.show(&LandShown(entry));
            }
        };
        return app.show(&ReviewShown { diff, entry });
    }
    let comments: Vec<(String, String)> = args.at.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    let mut message = args.message.clone().unwrap_or_default();
    for (place, text) in &comments {
        message.push_str(&format!("\n{place}: {text}"));
    }
    let file = |place: &String| place.rsplit_once(':').map_or(place.clone(), |(file, _)| file.to_owned());
    let mut files: Vec<String> = comments.iter().map(|(place, _)| file(place)).collect();
    files.dedup();
    let request = ReviewWork {
        id: work.whole_id(id)?,
        tip: args.commit.clone(),
        approve: args.approve,
        message: message.trim().to_owned(),
        files,
        as_holder: super::confined::is(),
    };
    let landing = work.act(&toft.located().agent, app.op(), request)?;
    app.show(&Reviewed { landing, what: if args.approve { "approved" } else { "sent back" } })
}

/// Runs a check for a lander, which sends the order.
pub(super) fn checked(app: &App<'_>) -> Done {
    let end = perform_check(&toft::Mask::from_environment([]))?;
    app.output.lines(&[serde_json::to_string(&end).unwrap_or_default()]);
    Ok(ExitCode::SUCCESS)
}
