//! Finished work on its way into its target, as text and JSON.
//!
//! JSON is the library's own data: a view changes nothing of it. Text is written top down, one `write_` function for
//! each kind of row, and passes [`clean`] wherever it comes from outside.

use toft::{
    land::{LandSummary, LandingForecast, PendingUpdate, UnlandedWork, UpdatedCheckout},
    landing::{Landing, LandingState, Verdict},
    verbs::land::ListedLanding,
    views::{landing_name, landing_state},
};

use super::{
    CommandView,
    page::{Ink, Page, clean, counted},
    view::data,
};

/// Told where work lands without a check.
const UNCHECKED_HINT: &str =
    "No check is configured: set `check` in [land] of .toft/config.toml or ~/.config/toft/config.toml.";

/// Characters of a commit in a row.
const SHORT_COMMIT_CHARS: usize = 10;

/// What would land: `toft land -n`; `unchecked` if no check is configured.
pub(crate) fn view_land_forecast(all: &[LandingForecast], unchecked: bool) -> CommandView<'_> {
    let names = all.iter().map(|forecast| landing_name(&forecast.entry.landing));
    CommandView::new("land_forecast", all, names, move |page| {
        if all.is_empty() {
            page.line("Nothing is finished and not landed.");
            return;
        }
        for forecast in all {
            let conflicts = conflicts_text(all, forecast).map(|text| page.ink(Ink::Bad, &text));
            write_landing_row(page, &forecast.entry, conflicts.as_deref());
        }
        if unchecked {
            page.line(UNCHECKED_HINT);
        }
    })
}

fn conflicts_text(all: &[LandingForecast], forecast: &LandingForecast) -> Option<String> {
    if forecast.conflicts.is_empty() {
        return None;
    }
    let earlier = forecast.against.as_ref().and_then(|id| all.iter().find(|other| other.entry.landing.id == *id));
    let with = earlier.map(|earlier| format!(" with {}", clean(&landing_name(&earlier.entry.landing))));
    Some(format!("conflicts{} in {}", with.unwrap_or_default(), clean(&forecast.conflicts.join(", "))))
}

/// A list of finished work.
pub(crate) fn view_landings(landings: &[ListedLanding]) -> CommandView<'_> {
    CommandView::new("landings", landings, landings.iter().map(|entry| landing_name(&entry.landing)), move |page| {
        if landings.is_empty() {
            page.line("Nothing waits.");
        }
        landings.iter().for_each(|entry| write_landing_row(page, entry, None));
    })
}

/// One piece of finished work, with its history.
pub(crate) fn view_landing(entry: &ListedLanding) -> CommandView<'_> {
    CommandView::new("landing", entry, [landing_name(&entry.landing)], move |page| {
        write_landing_details(page, entry);
    })
}

/// One piece of finished work and its diff, for a reviewer.
pub(crate) fn view_review<'a>(entry: &'a ListedLanding, diff: &'a str) -> CommandView<'a> {
    let mut row = data(entry);
    row["diff"] = diff.into();
    CommandView::new("review", row, [landing_name(&entry.landing)], move |page| {
        write_landing_details(page, entry);
        super::diff::lines(page, diff);
    })
    .in_pager()
}

/// What a lander did: `toft land`.
pub(crate) fn view_land_summary(summary: &LandSummary) -> CommandView<'_> {
    CommandView::new("land", summary, summary.landed.iter().map(landing_name), move |page| {
        summary.landed.iter().for_each(|landing| write_landed(page, landing));
        summary.proposed.iter().for_each(|landing| write_proposed(page, landing));
        summary.bounced.iter().for_each(|landing| write_bounced(page, landing));
        still_waiting(summary).for_each(|entry| write_landing_row(page, entry, None));
        summary.named.iter().for_each(|entry| write_landing_row(page, entry, None));
        write_counts(page, summary);
        if summary.unchecked && !summary.landed.is_empty() {
            page.line(UNCHECKED_HINT);
        }
        summary.notes.iter().for_each(|note| page.line(clean(note)));
        summary.updated_checkouts.iter().for_each(|checkout| write_updated_checkout(page, checkout));
        summary.pending_updates.iter().for_each(|pending| write_pending_update(page, pending));
    })
}

/// Queued work without a row of its own yet: what was proposed is still queued.
fn still_waiting(summary: &LandSummary) -> impl Iterator<Item = &ListedLanding> {
    let LandSummary { waiting, bounced, proposed, .. } = summary;
    let has_row = move |entry: &ListedLanding| bounced.iter().chain(proposed).any(|row| row.id == entry.landing.id);
    waiting.iter().filter(move |entry| !has_row(entry))
}

fn write_counts(page: &mut Page, summary: &LandSummary) {
    let LandSummary { landed, bounced, waiting, named, updated_checkouts, checks, .. } = summary;
    let any_work = !landed.is_empty() || !bounced.is_empty() || !waiting.is_empty();
    if !any_work {
        if updated_checkouts.is_empty() && named.is_empty() {
            page.line("Nothing is finished and not landed.");
        }
        return;
    }
    let checks = if *checks == 0 { String::new() } else { format!(", {}", counted(*checks, "check")) };
    page.line(format!("{} landed, {} sent back, {} waiting{checks}", landed.len(), bounced.len(), waiting.len()));
}

/// A person's decision about finished work: a participle such as `approved`, `sent back`, `withdrawn`.
pub(crate) fn view_landing_decision<'a>(landing: &'a Landing, decision: &'a str) -> CommandView<'a> {
    CommandView::new("reviewed", landing, [landing_name(landing)], move |page| {
        page.row([format!("{decision} {}", id_of(page, landing)), clean(&landing.title)]);
        if landing.state != LandingState::Withdrawn {
            return;
        }
        if let Some(issue) = &landing.issue {
            page.line(format!("Its issue is closed as if it had landed; toft reopen {issue} opens it again."));
        }
        page.detail("Its pull request stays open: ", landing.pull_request.as_ref().map(|request| &request.url));
    })
}

/// Checks that failed and passed on the same files.
pub(crate) fn view_flaky_checks(verdicts: &[Verdict]) -> CommandView<'_> {
    CommandView::new("flaky_checks", verdicts, verdicts.iter().map(|verdict| &verdict.tree), move |page| {
        if verdicts.is_empty() {
            page.line("No check has failed and passed on the same files.");
        }
        for verdict in verdicts {
            let passed = verdict.runs.iter().filter(|run| run.passed).count();
            let passed = format!("passed {passed} of {}", verdict.runs.len());
            page.row([short_commit(&verdict.tree), &passed]);
            if let Some(failed) = verdict.runs.iter().find(|run| !run.passed) {
                page.line(format!("  {}", first_line(&failed.message)));
                page.line(format!("  {}", clean(&failed.log)));
            }
        }
    })
}

/// Writes what has not landed, each with the command that is next. Nothing is written if everything has landed.
pub(super) fn write_unlanded_work(page: &mut Page, unlanded: &UnlandedWork) {
    if let Some(summary) = unlanded.summary() {
        let next_step = match unlanded {
            UnlandedWork { finished: 0, bounced, waits_for_answer, .. } if bounced == waits_for_answer => {
                "  (answer below)"
            }
            UnlandedWork { finished: 0, .. } => "  (toft run goes on with it)",
            UnlandedWork { clean: 0, review, .. } if *review > 0 => "  (toft review)",
            _ => "  (toft land)",
        };
        page.line(format!("{}{next_step}", page.ink(Ink::Head, &summary)));
    }
    for target in &unlanded.red_targets {
        let problem = format!("{} does not pass the check: nothing lands before it does", clean(target));
        page.line(format!("{}  (toft land says why)", page.ink(Ink::Bad, &problem)));
    }
    for PendingUpdate { target, command, dir, .. } in &unlanded.pending_updates {
        page.line(format!("What landed in {} waits: run {command} in {}", clean(target), clean(dir)));
    }
}

/// Writes a row of the queue: id, title, state, and what else there is to say.
fn write_landing_row(page: &mut Page, entry: &ListedLanding, suffix: Option<&str>) {
    let (id, title) = (id_of(page, &entry.landing), clean(&entry.landing.title));
    page.row([id, title, page.faint(landing_state(entry)), Page::words(suffix.unwrap_or_default())]);
}

fn write_landing_details(page: &mut Page, entry: &ListedLanding) {
    write_landing_row(page, entry, None);
    let landing = &entry.landing;
    page.line(format!("  {} at {}, by {}", landing.id, short_commit(&landing.offer.tip), clean(&landing.author)));
    page.line(format!("  into {}", clean(&landing.offer.target)));
    page.detail("  pull request ", landing.pull_request.as_ref().map(|request| &request.url));
    if let Some(id) = &landing.reverted_by {
        page.line(format!("  taken back by {id}; its issue is as it was: toft reopen ID to do it again"));
    }
    page.detail("  approved by ", landing.approval.as_ref().map(|approval| &approval.by));
    for bounce in &landing.bounces {
        page.line(format!("  sent back ({}) at {}:", bounce.reason.as_str(), short_commit(&bounce.tip)));
        page.block("    ", &bounce.message);
    }
}

fn write_landed(page: &mut Page, landing: &Landing) {
    let commit = landing.landed.as_ref().map_or("", |landed| short_commit(&landed.commit));
    let landed = page.ink(Ink::Good, "landed");
    page.row([format!("{landed} {}", id_of(page, landing)), clean(&landing.title), commit.to_owned()]);
}

fn write_proposed(page: &mut Page, landing: &Landing) {
    let url = landing.pull_request.as_ref().map_or("", |request| request.url.as_str());
    page.row([format!("pull request {}", id_of(page, landing)), clean(&landing.title), Page::words(clean(url))]);
}

fn write_bounced(page: &mut Page, landing: &Landing) {
    let why = landing.bounces.last().map(|bounce| first_line(&bounce.message)).unwrap_or_default();
    let sent_back = page.ink(Ink::Bad, "sent back");
    page.row([format!("{sent_back} {}", id_of(page, landing)), clean(&landing.title), Page::words(why)]);
}

fn write_updated_checkout(page: &mut Page, checkout: &UpdatedCheckout) {
    let UpdatedCheckout { target, commit, dir } = checkout;
    page.line(format!("{} is now at {} in {}", clean(target), short_commit(commit), clean(dir)));
}

fn write_pending_update(page: &mut Page, pending: &PendingUpdate) {
    let PendingUpdate { target, dir, why, command } = pending;
    let (target, dir, why) = (clean(target), clean(dir), clean(why));
    page.line(format!("{target} was not updated in {dir} ({why}). Take it up there: {command}"));
}

/// The id that people type, in its colour.
fn id_of(page: &Page, landing: &Landing) -> String {
    page.id(landing_name(landing))
}

fn short_commit(commit: &str) -> &str {
    commit.get(..SHORT_COMMIT_CHARS).unwrap_or(commit)
}

fn first_line(text: &str) -> String {
    clean(text.lines().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text_of(summary: &LandSummary) -> String {
        view_land_summary(summary).laid_out(false, None, &str::to_owned)
    }

    #[test]
    fn empty_run_says_that_nothing_is_finished() {
        assert_eq!(text_of(&LandSummary::default()), "Nothing is finished and not landed.\n");
    }

    #[test]
    fn pending_update_names_the_command_and_the_reason() {
        let pending = PendingUpdate {
            target: "main".into(),
            dir: "/src/shop".into(),
            why: "main is checked out there".into(),
            command: "toft land".into(),
        };
        let summary = LandSummary { pending_updates: vec![pending], ..LandSummary::default() };
        let line = "main was not updated in /src/shop (main is checked out there). Take it up there: toft land\n";
        assert!(text_of(&summary).ends_with(line));
    }

    /// Scripts read these keys: a renamed field keeps its key.
    #[test]
    fn json_keys_of_a_summary_are_stable() {
        let json = view_land_summary(&LandSummary::default()).json();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["bounced", "checks", "landed", "take_up", "unchecked", "updated", "waiting"]);
    }
}
