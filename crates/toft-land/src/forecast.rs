//! What would land, in which order, and what conflicts. Nothing here changes anything.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use toft_core::{
    id::LandingId,
    landing::{LandingState, LandingWait, WorkChanges},
    verbs::land::ListedLanding,
};
use toft_session::error::Error;
use toft_vcs::workspace::WorkspaceError;

use crate::{Lander, report::PendingUpdate, repository::MergeRepository};

/// The most pairs of work that a forecast merges.
const MAX_MERGED_PAIRS: usize = 2_000;

/// What is known of a piece of work before it lands.
#[derive(Clone, Debug, Serialize)]
pub struct LandingForecast {
    #[serde(flatten)]
    pub entry: ListedLanding,
    /// The files that conflict with the target as it is now, or with work that lands before it; empty if it merges.
    pub conflicts: Vec<String>,
    /// The work that lands before it and that it conflicts with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<LandingId>,
}

/// How much finished work has not landed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnlandedWork {
    /// Finished and queued. The next four say what of it.
    pub finished: usize,
    /// What merges into its target as it is now.
    pub clean: usize,
    pub conflict: usize,
    /// What a reviewer has to approve.
    pub review: usize,
    /// What has an open pull request.
    pub proposed: usize,
    /// Sent back, and not finished again.
    pub bounced: usize,
    /// Of what was sent back, how much waits for a person's answer.
    #[serde(rename = "asks")]
    pub waits_for_answer: usize,
    /// Targets that fail the check by themselves: nothing lands in them before that is fixed.
    #[serde(rename = "red", skip_serializing_if = "Vec::is_empty")]
    pub red_targets: Vec<String>,
    #[serde(rename = "take_up", skip_serializing_if = "Vec::is_empty")]
    pub pending_updates: Vec<PendingUpdate>,
}

impl Lander<'_> {
    /// Forecasts the landing of work by id, or of all work.
    pub fn forecast(&self, ids: &[String]) -> Result<Vec<LandingForecast>, Error> {
        let mut forecasts: Vec<LandingForecast> = self
            .named_landings(ids)?
            .into_iter()
            .map(|entry| LandingForecast { entry, conflicts: Vec::new(), against: None })
            .collect();
        let targets: BTreeSet<String> =
            forecasts.iter().map(|known| known.entry.landing.offer.target.clone()).collect();
        for target in targets {
            let Some(tip) = self.find_tip(&target)? else { continue };
            let mut queued: Vec<&mut LandingForecast> =
                forecasts.iter_mut().filter(|forecast| forecast.lands_in(&target)).collect();
            predict_conflicts(&self.repository, &tip.base, &self.rules.union, &mut queued)?;
        }
        Ok(forecasts)
    }

    /// Counts finished work that has not landed.
    pub fn unlanded_work(&self) -> Result<UnlandedWork, Error> {
        let (mut unlanded, mut targets) = (UnlandedWork::default(), BTreeSet::new());
        for forecast in self.forecast(&[])? {
            unlanded.count(&forecast);
            if forecast.entry.landing.state == LandingState::Queued {
                targets.insert(forecast.entry.landing.offer.target);
            }
        }
        for target in targets {
            if self.is_known_red(&target)? {
                unlanded.red_targets.push(target);
            }
        }
        for target in self.pending_targets(&BTreeSet::new())? {
            unlanded.pending_updates.extend(self.find_pending_update(&target)?);
        }
        Ok(unlanded)
    }
}

impl LandingForecast {
    /// Returns whether this clone may land it in a target.
    fn lands_in(&self, target: &str) -> bool {
        let landing = &self.entry.landing;
        landing.offer.target == target && landing.state == LandingState::Queued && !self.entry.elsewhere
    }
}

impl UnlandedWork {
    fn count(&mut self, forecast: &LandingForecast) {
        match forecast.entry.landing.state {
            LandingState::Bounced => {
                self.bounced += 1;
                self.waits_for_answer += usize::from(!forecast.entry.mending);
            }
            LandingState::Queued => {
                self.finished += 1;
                match forecast.entry.waits {
                    // Another clone merges it; whether that works is not known here.
                    Some(LandingWait::Elsewhere { .. }) => {}
                    _ if !forecast.conflicts.is_empty() => self.conflict += 1,
                    Some(LandingWait::Review) => self.review += 1,
                    Some(LandingWait::PullRequest { .. }) => self.proposed += 1,
                    _ => self.clean += 1,
                }
            }
            LandingState::Landed | LandingState::Withdrawn => {}
        }
    }

    /// Describes it in one line for people; `None` if everything has landed.
    #[must_use]
    pub fn summary(&self) -> Option<String> {
        let Self { finished, clean, conflict, review, proposed, bounced, waits_for_answer, .. } = self;
        let kinds = [(clean, "clean"), (conflict, "conflict"), (review, "to review"), (proposed, "in pull requests")];
        let kinds: Vec<String> =
            kinds.iter().filter(|(count, _)| **count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(": {}", kinds.join(", ")) };
        let queued = (*finished > 0).then(|| format!("{finished} finished, not landed{kinds}"));
        let sent_back = match (bounced, waits_for_answer) {
            (0, _) => None,
            (_, 0) => Some(format!("{bounced} sent back")),
            _ => Some(format!("{bounced} sent back, {waits_for_answer} of it with a question to you")),
        };
        match (queued, sent_back) {
            (Some(queued), Some(sent_back)) => Some(format!("{queued}; {sent_back}")),
            (queued, sent_back) => queued.or(sent_back),
        }
    }
}

/// Fills in the conflicts of work for one target, in the order in which it lands: first with the target, then with work
/// that lands before it.
fn predict_conflicts(
    repository: &impl MergeRepository,
    base: &str,
    union_patterns: &[String],
    queued: &mut [&mut LandingForecast],
) -> Result<(), WorkspaceError> {
    let tips: Vec<String> = queued.iter().map(|forecast| forecast.entry.landing.offer.tip.clone()).collect();
    let with_base: Vec<(String, String)> = tips.iter().map(|tip| (base.to_owned(), tip.clone())).collect();
    for (forecast, conflicts) in queued.iter_mut().zip(repository.conflicts_of(&with_base)?) {
        forecast.conflicts = conflicts.unwrap_or_default();
    }
    let mut changes = repository.work_changes(base, &tips)?;
    for (forecast, changes) in queued.iter().zip(&mut changes) {
        // What conflicts with the target is sent back, so nothing conflicts with it.
        if !forecast.conflicts.is_empty() {
            changes.files.clear();
        }
    }
    let pairs = overlapping_pairs(&changes, union_patterns);
    let pair_tips: Vec<(String, String)> =
        pairs.iter().map(|(earlier, later)| (tips[*earlier].clone(), tips[*later].clone())).collect();
    for ((earlier, later), conflicts) in pairs.iter().zip(repository.conflicts_of(&pair_tips)?) {
        // The first conflict is enough: it is the one that is met first.
        if let Some(files) = conflicts.filter(|_| queued[*later].conflicts.is_empty()) {
            queued[*later].against = Some(queued[*earlier].entry.landing.id.clone());
            queued[*later].conflicts = files;
        }
    }
    Ok(())
}

/// Lists the pairs, earlier first, that change a common file: no other pair can conflict.
fn overlapping_pairs(changes: &[WorkChanges], union_patterns: &[String]) -> Vec<(usize, usize)> {
    let mut changed_by: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    let mut pairs = Vec::new();
    for (later, WorkChanges { files, .. }) in changes.iter().enumerate() {
        let mut overlapping: BTreeSet<usize> = BTreeSet::new();
        for file in files.iter().filter(|file| !keeps_both_sides(union_patterns, file)) {
            let earlier = changed_by.entry(file).or_default();
            overlapping.extend(earlier.iter().copied());
            earlier.push(later);
        }
        pairs.extend(overlapping.into_iter().map(|earlier| (earlier, later)));
    }
    pairs.truncate(MAX_MERGED_PAIRS);
    pairs
}

/// Returns whether a pattern of `union` makes git keep both sides of a conflict in this file.
fn keeps_both_sides(union_patterns: &[String], file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    union_patterns.iter().any(|pattern| {
        let Some((before, after)) = pattern.split_once('*') else { return pattern == file || pattern == name };
        // Git compares a pattern without a slash with the name only, and `*` matches no slash.
        let text = if pattern.contains('/') { file } else { name };
        let matched = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        matched.is_some_and(|matched| !matched.contains('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_repository::{FakeRepository, landing, listed};

    fn forecasts(tips: &[&str]) -> Vec<LandingForecast> {
        let forecast =
            |tip: &&str| LandingForecast { entry: listed(landing(tip)), conflicts: Vec::new(), against: None };
        tips.iter().map(forecast).collect()
    }

    fn predict(repository: &FakeRepository, union: &[&str], forecasts: &mut [LandingForecast]) {
        let union: Vec<String> = union.iter().map(|pattern| (*pattern).to_owned()).collect();
        let mut queued: Vec<&mut LandingForecast> = forecasts.iter_mut().collect();
        predict_conflicts(repository, "base", &union, &mut queued).unwrap();
    }

    #[test]
    fn a_conflict_names_the_earlier_work() {
        let repository = FakeRepository::new(&[("a", "work-a"), ("a", "work-b"), ("c", "work-c")]);
        let mut known = forecasts(&["work-a", "work-b", "work-c"]);
        predict(&repository, &[], &mut known);
        assert_eq!(known[1].conflicts, ["a"]);
        assert_eq!(known[1].against.as_ref(), Some(&known[0].entry.landing.id));
        assert!(known[0].conflicts.is_empty() && known[2].conflicts.is_empty());
    }

    #[test]
    fn work_that_conflicts_with_the_target_is_in_nobodys_way() {
        let repository =
            FakeRepository::new(&[("a", "work-a"), ("b", "work-b"), ("b", "work-a")]).with_base_change("a");
        let mut known = forecasts(&["work-a", "work-b"]);
        predict(&repository, &[], &mut known);
        assert_eq!((known[0].conflicts.as_slice(), &known[0].against), (&["a".to_owned()][..], &None));
        assert!(known[1].conflicts.is_empty());
    }

    #[test]
    fn files_that_keep_both_sides_are_no_reason_to_merge() {
        let changes = |files: &[&str]| WorkChanges {
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            ..WorkChanges::default()
        };
        let changes = [changes(&["CHANGELOG.md", "a"]), changes(&["CHANGELOG.md"]), changes(&["a"])];
        assert_eq!(overlapping_pairs(&changes, &["CHANGELOG.md".into()]), [(0, 2)]);
        assert_eq!(overlapping_pairs(&changes, &[]), [(0, 1), (0, 2)]);
    }

    #[test]
    fn union_patterns_match_as_git_matches_them() {
        let matches = |pattern: &str, file: &str| keeps_both_sides(&[pattern.to_owned()], file);
        assert!(matches("*.md", "docs/a.md") && matches("docs/*.md", "docs/a.md") && matches("NEWS", "docs/NEWS"));
        assert!(!matches("docs/*.md", "docs/de/a.md") && !matches("*.md", "a.mdx"));
    }

    #[test]
    fn unlanded_work_is_told_in_one_line() {
        assert_eq!(UnlandedWork::default().summary(), None);
        let queued = UnlandedWork { finished: 3, clean: 2, conflict: 1, ..UnlandedWork::default() };
        assert_eq!(queued.summary().unwrap(), "3 finished, not landed: 2 clean, 1 conflict");
        let both = UnlandedWork { bounced: 2, waits_for_answer: 1, ..queued };
        let line = "3 finished, not landed: 2 clean, 1 conflict; 2 sent back, 1 of it with a question to you";
        assert_eq!(both.summary().unwrap(), line);
    }
}
