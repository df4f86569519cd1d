//! Finished work on its way into its target.

use serde_json::{Value, json};
use toft::{
    id::LandingId,
    land::{Forecast, LandSummary, Unlanded},
    landing::{Landing, LandingState, Verdict},
    verbs::land::ListedLanding,
    views::{landing_name, landing_state},
};

use super::{
    View,
    page::{Ink, Page, clean},
};

/// Said where nothing is checked.
const UNCHECKED: &str =
    "No check is configured: set `check` in [land] of .toft/config.toml or ~/.config/toft/config.toml.";
/// How many characters of a commit are shown.
const SHORT: usize = 10;

fn commit(commit: &str) -> &str {
    commit.get(..SHORT).unwrap_or(commit)
}

fn row(page: &mut Page, entry: &ListedLanding, more: &str) {
    let id = page.ink(Ink::Id, &clean(&landing_name(&entry.landing)));
    let more = if more.is_empty() { String::new() } else { format!("  {more}") };
    page.line(format!("{id}  {}  {}{more}", clean(&entry.landing.title), page.ink(Ink::Faint, &landing_state(entry))));
}

/// What has not landed, and the next step.
pub(super) fn unlanded(page: &mut Page, unlanded: &Unlanded) {
    if let Some(summary) = unlanded.summary() {
        let next = match unlanded {
            Unlanded { finished: 0, bounced, asks, .. } if bounced == asks => "  (answer below)",
            Unlanded { finished: 0, .. } => "  (toft run goes on with it)",
            Unlanded { clean: 0, review, .. } if *review > 0 => "  (toft review)",
            _ => "  (toft land)",
        };
        page.line(format!("{}{next}", page.ink(Ink::Head, &summary)));
    }
    for target in &unlanded.red {
        let red = format!("{} does not pass the check: nothing lands before it does", clean(target));
        page.line(format!("{}  (toft land says why)", page.ink(Ink::Bad, &red)));
    }
    for waits in &unlanded.take_up {
        page.line(format!(
            "What landed in {} waits: run {} in {}",
            clean(&waits.target),
            waits.command,
            clean(&waits.dir)
        ));
    }
}

/// What would land.
pub(crate) struct LandForecast {
    pub(crate) forecast: Vec<Forecast>,
    /// No check is configured.
    pub(crate) unchecked: bool,
}

impl View for LandForecast {
    fn kind(&self) -> &'static str {
        "land_forecast"
    }

    fn json(&self) -> Value {
        json!(self.forecast)
    }

    fn ids(&self) -> Vec<String> {
        self.forecast.iter().map(|known| landing_name(&known.entry.landing)).collect()
    }

    fn text(&self, page: &mut Page) {
        if self.forecast.is_empty() {
            page.line("Nothing is finished and not landed.");
            return;
        }
        for known in &self.forecast {
            let more = match known.conflicts.as_slice() {
                [] => String::new(),
                files => {
                    let other = known.against.as_ref().and_then(|id| self.name_of(id));
                    let other = other.map(|name| format!(" with {name}")).unwrap_or_default();
                    page.ink(Ink::Bad, &format!("conflicts{other} in {}", clean(&files.join(", "))))
                }
            };
            row(page, &known.entry, &more);
        }
        if self.unchecked {
            page.line(UNCHECKED);
        }
    }
}

impl LandForecast {
    fn name_of(&self, id: &LandingId) -> Option<String> {
        self.forecast
            .iter()
            .find(|known| known.entry.landing.id == *id)
            .map(|known| clean(&landing_name(&known.entry.landing)))
    }
}

/// A list of landings.
pub(crate) struct LandList(pub(crate) Vec<ListedLanding>);

impl View for LandList {
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
        self.0.iter().for_each(|entry| row(page, entry, ""));
    }
}

/// One landing.
pub(crate) struct LandShown(pub(crate) ListedLanding);

impl View for LandShown {
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
        row(page, &self.0, "");
        let landing = &self.0.landing;
        page.line(format!("  {} at {}, by {}", landing.id, commit(&landing.offer.tip), clean(&landing.author)));
        page.line(format!("  into {}", clean(&landing.offer.target)));
        if let Some(request) = &landing.pull_request {
            page.line(format!("  pull request {}", clean(&request.url)));
        }
        if let Some(id) = &landing.reverted_by {
            page.line(format!(
                "  taken back by {id}; its issue is as it was: toft edit ID --status open to do it again"
            ));
        }
        if let Some(approval) = &landing.approval {
            page.line(format!("  approved by {}", clean(&approval.by)));
        }
        for bounce in &landing.bounces {
            page.line(format!("  sent back ({}) at {}:", bounce.reason.as_str(), commit(&bounce.tip)));
            bounce.message.lines().for_each(|line| page.line(format!("    {}", clean(line))));
        }
    }
}

/// Finished work for a reviewer: what it is, and its diff.
pub(crate) struct ReviewShown {
    pub(crate) entry: ListedLanding,
    pub(crate) diff: String,
}

impl View for ReviewShown {
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
        LandShown(self.entry.clone()).text(page);
        super::diff::lines(page, &self.diff);
    }
}

/// What a lander did.
pub(crate) struct LandDone(pub(crate) LandSummary);

impl View for LandDone {
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
        let LandSummary { landed, proposed, bounced, waiting, checks, unchecked, notes, updated, take_up, .. } =
            &self.0;
        for landing in landed {
            let id = page.ink(Ink::Id, &clean(&landing_name(landing)));
            let commit = landing.landed.as_ref().map_or("", |landed| commit(&landed.commit));
            page.line(format!("{} {id}  {}  {commit}", page.ink(Ink::Good, "landed"), clean(&landing.title)));
        }
        for landing in proposed {
            let id = page.ink(Ink::Id, &clean(&landing_name(landing)));
            let url = landing.pull_request.as_ref().map_or("", |request| request.url.as_str());
            page.line(format!("pull request {id}  {}  {}", clean(&landing.title), clean(url)));
        }
        for landing in bounced {
            let id = page.ink(Ink::Id, &clean(&landing_name(landing)));
            let why = landing.bounces.last().map(|bounce| bounce.message.lines().next().unwrap_or_default());
            let why = clean(why.unwrap_or_default());
            page.line(format!("{} {id}  {}  {why}", page.ink(Ink::Bad, "sent back"), clean(&landing.title)));
        }
        let said =
            |entry: &&ListedLanding| bounced.iter().chain(proposed).any(|landing| landing.id == entry.landing.id);
        let left = waiting.iter().filter(|entry| !said(entry));
        left.for_each(|entry| row(page, entry, ""));
        self.0.named.iter().for_each(|entry| row(page, entry, ""));
        let nothing = landed.is_empty() && bounced.is_empty() && waiting.is_empty() && updated.is_empty();
        if nothing && self.0.named.is_empty() {
            page.line("Nothing is finished and not landed.");
        } else if !landed.is_empty() || !bounced.is_empty() || !waiting.is_empty() {
            let checks = match checks {
                0 => String::new(),
                1 => ", 1 check".to_owned(),
                count => format!(", {count} checks"),
            };
            page.line(format!(
                "{} landed, {} sent back, {} waiting{checks}",
                landed.len(),
                bounced.len(),
                waiting.len()
            ));
        }
        if *unchecked && !landed.is_empty() {
            page.line(UNCHECKED);
        }
        for note in notes {
            page.line(clean(note));
        }
        for at in updated {
            page.line(format!("{} is now at {} in {}", clean(&at.target), commit(&at.commit), clean(&at.dir)));
        }
        for waits in take_up {
            page.line(format!(
                "{} was not updated in {} ({}). Take it up there: {}",
                clean(&waits.target),
                clean(&waits.dir),
                clean(&waits.why),
                waits.command
            ));
        }
    }
}

/// A decision about finished work.
pub(crate) struct Reviewed {
    pub(crate) landing: Landing,
    pub(crate) what: &'static str,
}

impl View for Reviewed {
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
        let id = page.ink(Ink::Id, &clean(&landing_name(&self.landing)));
        page.line(format!("{} {id}  {}", self.what, clean(&self.landing.title)));
        if self.landing.state == LandingState::Withdrawn {
            if let Some(issue) = &self.landing.issue {
                page.line(format!(
                    "Its issue is closed as if it had landed; toft edit {issue} --status open opens it again."
                ));
            }
            if let Some(request) = &self.landing.pull_request {
                page.line(format!("Its pull request stays open: {}", clean(&request.url)));
            }
        }
    }
}

/// Checks that changed their mind.
pub(crate) struct FlakyChecks(pub(crate) Vec<Verdict>);

impl View for FlakyChecks {
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
            page.line(format!("{}  passed {passed} of {}", commit(&verdict.tree), verdict.runs.len()));
            if let Some(failed) = verdict.runs.iter().find(|run| !run.passed) {
                page.line(format!("  {}", clean(failed.message.lines().next().unwrap_or_default())));
                page.line(format!("  {}", clean(&failed.log)));
            }
        }
    }
}
