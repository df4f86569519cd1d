//! `toft land`: lands finished work, and shows or changes its queue.

use std::process::ExitCode;

use toft::{
    Toft, Work,
    land::{LandEvent, Lander},
    runner::perform_check,
    verbs::land::{Flaky, ListedLanding, Move, Step},
};

use super::{App, Done};
use crate::{
    args::{LandArgs, LandCommand},
    exit::Failure,
    render::{
        view_flaky_checks, view_land_forecast, view_land_summary, view_landing, view_landing_decision, view_landings,
    },
};

/// How many past landings `toft land list --all` shows.
const MAX_PAST_LANDINGS: usize = 50;

pub(super) fn cmd_land(app: &App<'_>, args: &LandArgs) -> Done {
    let toft = app.open()?;
    match &args.command {
        None if args.dry_run => forecast_landing(app, toft, args),
        None => land_and_show(app, &open_lander(toft, args)?, &args.ids),
        Some(LandCommand::Revert { id }) => revert_landing(app, &open_lander(toft, args)?, id),
        Some(LandCommand::List { all }) => list_landings(app, toft, *all),
        Some(LandCommand::Show { id }) => show_landing(app, toft, id),
        Some(LandCommand::Withdraw { id, message }) => withdraw_landing(app, toft, id, message),
        Some(LandCommand::Flaky) => list_flaky_checks(app, toft),
    }
}

/// Runs one check for a lander, which sends the order on standard input.
pub(super) fn cmd_checked(app: &App<'_>) -> Done {
    let end = perform_check(&toft::Mask::from_environment([]))?;
    app.output.lines(&[serde_json::to_string(&end).unwrap_or_default()]);
    Ok(ExitCode::SUCCESS)
}

/// Finds the work of an issue or task, or a landing. `where_to_look` is the next step if there is none.
pub(super) fn find_landing(work: Work<'_>, id: &str, where_to_look: &str) -> Result<ListedLanding, Failure> {
    let found = work.landings(&[id.to_owned()], 0)?;
    found.into_iter().next().ok_or_else(|| Failure::invalid(format!("{id} has no finished work"), where_to_look))
}

fn open_lander<'t>(toft: &'t Toft, args: &LandArgs) -> Result<Lander<'t>, Failure> {
    Ok(Lander::open(toft.work())?.called_here().with_reviewed_tip(args.commit.clone()))
}

fn forecast_landing(app: &App<'_>, toft: &Toft, args: &LandArgs) -> Done {
    let forecast = open_lander(toft, args)?.forecast(&args.ids)?;
    app.show(&view_land_forecast(&forecast, toft.located().land.check.commands.is_empty()))
}

/// Lands, and shows the summary. A target that nothing can land in is a failure, with what landed elsewhere.
fn land_and_show(app: &App<'_>, lander: &Lander<'_>, ids: &[String]) -> Done {
    let mut show_progress = |event: &LandEvent| app.output.progress(&toft::text::clean(&progress_text(event)));
    let summary = lander.land(ids, &mut show_progress)?;
    // The summary takes the place of the line of progress.
    app.output.progress("");
    let failure = if let Some(why) = summary.blocked.first() {
        Failure::stopped(why.clone(), "run toft land again when that is mended")
    } else if let Some(why) = &summary.red {
        let problem = format!("nothing lands before the target itself is mended: {why}");
        Failure::stopped(problem, "mend the branch, then run toft land again")
    } else {
        return app.show(&view_land_summary(&summary));
    };
    app.show_failed(&view_land_summary(&summary), failure)
}

/// Queues the commit that takes a landing back, and lands it at once.
fn revert_landing(app: &App<'_>, lander: &Lander<'_>, id: &str) -> Done {
    let queued = lander.revert(id)?;
    land_and_show(app, lander, &[queued.id.to_string()])
}

fn list_landings(app: &App<'_>, toft: &Toft, with_past: bool) -> Done {
    let past = if with_past { MAX_PAST_LANDINGS } else { 0 };
    app.show(&view_landings(&toft.work().landings(&[], past)?))
}

fn show_landing(app: &App<'_>, toft: &Toft, id: &str) -> Done {
    app.show(&view_landing(&find_landing(toft.work(), id, "toft land list")?))
}

fn withdraw_landing(app: &App<'_>, toft: &Toft, id: &str, reason: &str) -> Done {
    let work = toft.work();
    let request = Move { id: work.whole_id(id)?, to: Step::Withdraw, reason: reason.to_owned() };
    let landing = work.act(&toft.located().agent, app.op(), request)?;
    app.show(&view_landing_decision(&landing, "withdrawn"))
}

fn list_flaky_checks(app: &App<'_>, toft: &Toft) -> Done {
    let verdicts = match toft.located().repository.clone() {
        Some(repository) => toft.perform(Flaky { repository })?,
        None => Vec::new(),
    };
    app.show(&view_flaky_checks(&verdicts))
}

/// Tells an event in one line of progress.
fn progress_text(event: &LandEvent) -> String {
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
