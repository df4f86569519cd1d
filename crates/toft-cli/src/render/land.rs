//! Finished work on its way into its target, as text and JSON.
//!
//! JSON is the library's own data: a view changes nothing of it. Text is written top down, one `write_` function for
//! each kind of row, and passes [`clean`] wherever it comes from outside.

use serde_json::{Value, json};
use toft::{
    id::LandingId,
    land::{LandSummary, LandingForecast, PendingUpdate, UnlandedWork, UpdatedCheckout},
    landing::{Landing, LandingState, Verdict},
    verbs::land::ListedLanding,
    views::{landing_name, landing_state},
};

use super::{
    View,
    page::{Ink, Page, clean},
};

/// Told where work lands without a check.
const UNCHECKED_HINT: &str =
    "No check is configured: set `check` in [land] of .toft/config.toml or ~/.config/toft/config.toml.";

/// Characters of a commit in a row.
const SHORT_COMMIT_CHARS: usize = 10;

/// What would land: `toft land -n`.
pub(crate) struct LandForecastView {
    pub(crate) forecast: Vec<LandingForecast>,
    /// Whether no check is configured.
    pub(crate) unchecked: bool,
}

impl View for LandForecastView {
    fn kind(&self) -> &'static str {
        "land_forecast"
    }

    fn json(&self) -> Value {
        json!(self.forecast)
    }

    fn ids(&self) -> Vec<String> {
        self.forecast.iter().map(|forecast| landing_name(&forecast.entry.landing)).collect()
    }

    fn text(&self, page: &mut Page) {
        if self.forecast.is_empty() {
            page.line("Nothing is finished and not landed.");
            return;
        }
        for forecast in &self.forecast {
            let conflicts = self.conflicts_text(forecast).map(|text| page.ink(Ink::Bad, &text));
            write_landing_row(page, &forecast.entry, conflicts.as_deref());
        }
        if self.unchecked {
            page.line(UNCHECKED_HINT);
        }
    }
}

impl LandForecastView {
    fn conflicts_text(&self, forecast: &LandingForecast) -> Option<String> {
        if forecast.conflicts.is_empty() {
            return None;
        }
        let earlier = forecast.against.as_ref().and_then(|id| self.name_of(id));
        let with = earlier.map(|name| format!(" with {name}")).unwrap_or_default();
        Some(format!("conflicts{with} in {}", clean(&forecast.conflicts.join(", "))))
    }

    fn name_of(&self, id: &LandingId) -> Option<String> {
        let forecast = self.forecast.iter().find(|forecast| forecast.entry.landing.id == *id)?;
        Some(clean(&landing_name(&forecast.entry.landing)))
    }
}

/// A list of finished work.
pub(crate) struct LandingListView(pub(crate) Vec<ListedLanding>);

impl View for LandingListView {
    fn kind(&self) -> &'static str {
        "landings"
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|entry| landing_name(&entry.landing)).collect()
    }

    fn text(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("Nothing waits.");
        }
        for entry in &self.0 {
            write_landing_row(page, entry, None);
        }
    }
}

/// One piece of finished work, with its history.
pub(crate) struct LandingView(pub(crate) ListedLanding);

impl View for LandingView {
    fn kind(&self) -> &'static str {
        "landing"
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![landing_name(&self.0.landing)]
    }

    fn text(&self, page: &mut Page) {
        write_landing_details(page, &self.0);
    }
}

/// One piece of finished work and its diff, for a reviewer.
pub(crate) struct ReviewView {
    pub(crate) entry: ListedLanding,
    pub(crate) diff: String,
}

impl View for ReviewView {
    fn in_pager(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "review"
    }

    fn json(&self) -> Value {
        let mut row = json!(self.entry);
        row["diff"] = self.diff.as_str().into();
        row
    }

    fn ids(&self) -> Vec<String> {
        vec![landing_name(&self.entry.landing)]
    }

    fn text(&self, page: &mut Page) {
        write_landing_details(page, &self.entry);
        super::diff::lines(page, &self.diff);
    }
}

/// What a lander did: `toft land`.
pub(crate) struct LandSummaryView(pub(crate) LandSummary);

impl View for LandSummaryView {
    fn kind(&self) -> &'static str {
        "land"
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.landed.iter().map(landing_name).collect()
    }

    fn text(&self, page: &mut Page) {
        let summary = &self.0;
        summary.landed.iter().for_each(|landing| write_landed(page, landing));
        summary.proposed.iter().for_each(|landing| write_proposed(page, landing));
        summary.bounced.iter().for_each(|landing| write_bounced(page, landing));
        self.still_waiting().for_each(|entry| write_landing_row(page, entry, None));
        summary.named.iter().for_each(|entry| write_landing_row(page, entry, None));
        self.write_counts(page);
        if summary.unchecked && !summary.landed.is_empty() {
            page.line(UNCHECKED_HINT);
        }
        summary.notes.iter().for_each(|note| page.line(clean(note)));
        summary.updated_checkouts.iter().for_each(|checkout| write_updated_checkout(page, checkout));
        summary.pending_updates.iter().for_each(|pending| write_pending_update(page, pending));
    }
}

impl LandSummaryView {
    /// Queued work without a row of its own yet: what was proposed is still queued.
    fn still_waiting(&self) -> impl Iterator<Item = &ListedLanding> {
        let LandSummary { waiting, bounced, proposed, .. } = &self.0;
        let has_row = move |entry: &ListedLanding| bounced.iter().chain(proposed).any(|row| row.id == entry.landing.id);
        waiting.iter().filter(move |entry| !has_row(entry))
    }

    fn write_counts(&self, page: &mut Page) {
        let LandSummary { landed, bounced, waiting, named, updated_checkouts, checks, .. } = &self.0;
        let any_work = !landed.is_empty() || !bounced.is_empty() || !waiting.is_empty();
        if !any_work {
            if updated_checkouts.is_empty() && named.is_empty() {
                page.line("Nothing is finished and not landed.");
            }
            return;
        }
        let checks = match checks {
            0 => String::new(),
            1 => ", 1 check".to_owned(),
            count => format!(", {count} checks"),
        };
        page.line(format!("{} landed, {} sent back, {} waiting{checks}", landed.len(), bounced.len(), waiting.len()));
    }
}

/// A person's decision about finished work.
pub(crate) struct LandingDecisionView {
    pub(crate) landing: Landing,
    /// A participle: `approved`, `sent back`, `withdrawn`.
    pub(crate) decision: &'static str,
}

impl View for LandingDecisionView {
    fn kind(&self) -> &'static str {
        "reviewed"
    }

    fn json(&self) -> Value {
        json!(self.landing)
    }

    fn ids(&self) -> Vec<String> {
        vec![landing_name(&self.landing)]
    }

    fn text(&self, page: &mut Page) {
        let landing = &self.landing;
        page.line(format!("{} {}  {}", self.decision, id_of(page, landing), clean(&landing.title)));
        if landing.state != LandingState::Withdrawn {
            return;
        }
        if let Some(issue) = &landing.issue {
            page.line(format!("Its issue is closed as if it had landed; toft reopen {issue} opens it again."));
        }
        if let Some(request) = &landing.pull_request {
            page.line(format!("Its pull request stays open: {}", clean(&request.url)));
        }
    }
}

/// Checks that failed and passed on the same files.
pub(crate) struct FlakyChecksView(pub(crate) Vec<Verdict>);

impl View for FlakyChecksView {
    fn kind(&self) -> &'static str {
        "flaky_checks"
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|verdict| verdict.tree.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        if self.0.is_empty() {
            page.line("No check has failed and passed on the same files.");
        }
        for verdict in &self.0 {
            let passed = verdict.runs.iter().filter(|run| run.passed).count();
            page.line(format!("{}  passed {passed} of {}", short_commit(&verdict.tree), verdict.runs.len()));
            if let Some(failed) = verdict.runs.iter().find(|run| !run.passed) {
                page.line(format!("  {}", first_line(&failed.message)));
                page.line(format!("  {}", clean(&failed.log)));
            }
        }
    }
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
    let suffix = suffix.map(|suffix| format!("  {suffix}")).unwrap_or_default();
    let state = page.ink(Ink::Faint, &landing_state(entry));
    page.line(format!("{}  {}  {state}{suffix}", id_of(page, &entry.landing), clean(&entry.landing.title)));
}

fn write_landing_details(page: &mut Page, entry: &ListedLanding) {
    write_landing_row(page, entry, None);
    let landing = &entry.landing;
    page.line(format!("  {} at {}, by {}", landing.id, short_commit(&landing.offer.tip), clean(&landing.author)));
    page.line(format!("  into {}", clean(&landing.offer.target)));
    if let Some(request) = &landing.pull_request {
        page.line(format!("  pull request {}", clean(&request.url)));
    }
    if let Some(id) = &landing.reverted_by {
        page.line(format!("  taken back by {id}; its issue is as it was: toft reopen ID to do it again"));
    }
    if let Some(approval) = &landing.approval {
        page.line(format!("  approved by {}", clean(&approval.by)));
    }
    for bounce in &landing.bounces {
        page.line(format!("  sent back ({}) at {}:", bounce.reason.as_str(), short_commit(&bounce.tip)));
        page.block("    ", &bounce.message);
    }
}

fn write_landed(page: &mut Page, landing: &Landing) {
    let commit = landing.landed.as_ref().map_or("", |landed| short_commit(&landed.commit));
    let landed = page.ink(Ink::Good, "landed");
    page.line(format!("{landed} {}  {}  {commit}", id_of(page, landing), clean(&landing.title)));
}

fn write_proposed(page: &mut Page, landing: &Landing) {
    let url = landing.pull_request.as_ref().map_or("", |request| request.url.as_str());
    page.line(format!("pull request {}  {}  {}", id_of(page, landing), clean(&landing.title), clean(url)));
}

fn write_bounced(page: &mut Page, landing: &Landing) {
    let why = landing.bounces.last().map(|bounce| first_line(&bounce.message)).unwrap_or_default();
    let sent_back = page.ink(Ink::Bad, "sent back");
    page.line(format!("{sent_back} {}  {}  {why}", id_of(page, landing), clean(&landing.title)));
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
    page.ink(Ink::Id, &clean(&landing_name(landing)))
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

    fn text_of(view: &impl View) -> String {
        let mut page = Page::new(false);
        view.text(&mut page);
        page.text().to_owned()
    }

    #[test]
    fn empty_run_says_that_nothing_is_finished() {
        let view = LandSummaryView(LandSummary::default());
        assert_eq!(text_of(&view), "Nothing is finished and not landed.\n");
    }

    #[test]
    fn pending_update_names_the_command_and_the_reason() {
        let pending = PendingUpdate {
            target: "main".into(),
            dir: "/src/shop".into(),
            why: "main is checked out there".into(),
            command: "toft land".into(),
        };
        let view = LandSummaryView(LandSummary { pending_updates: vec![pending], ..LandSummary::default() });
        let line = "main was not updated in /src/shop (main is checked out there). Take it up there: toft land\n";
        assert!(text_of(&view).ends_with(line));
    }

    /// Scripts read these keys: a renamed field keeps its key.
    #[test]
    fn json_keys_of_a_summary_are_stable() {
        let json = LandSummaryView(LandSummary::default()).json();
        let keys: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["bounced", "checks", "landed", "take_up", "unchecked", "updated", "waiting"]);
    }
}
