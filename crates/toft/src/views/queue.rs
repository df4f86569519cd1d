//! The landing queue: finished work in the order in which it lands.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use serde::Serialize;
use toft_core::{
    id::LandingId,
    landing::{self, Landing, LandingState, LandingWait},
    time::Timestamp,
    verbs::land::ListedLanding,
};
use toft_land::{Lander, LandingForecast};
use toft_session::Error;

use super::{RepositorySource, RowAction};

/// How many past landings are shown.
const PAST: usize = 50;
/// How many characters of a commit are shown.
const SHORT: usize = 10;

/// Finished work, and what landed last.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QueueView {
    pub rows: Vec<QueueRow>,
    /// Targets that do not pass the check.
    pub red: Vec<String>,
}

/// One piece of finished work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// Its issue, or the landing itself.
    pub id: String,
    /// The id as people see it.
    pub shown: String,
    pub title: String,
    pub author: String,
    pub target: String,
    pub state: LandingState,
    /// What it waits for, in a few words.
    pub waits: String,
    /// Files that conflict with the target, or with work that lands before it.
    pub conflicts: Vec<String>,
    /// The work that it conflicts with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// What was said when it was sent back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_back: Option<String>,
    pub updated: Timestamp,
    pub actions: Vec<RowAction>,
}

impl QueueView {
    /// Looks at repositories. Work that has landed comes last, the newest first.
    pub fn of(sources: &[RepositorySource<'_>]) -> Result<Self, Error> {
        let mut view = Self::default();
        for source in sources {
            view.add(source)?;
        }
        Ok(view)
    }

    fn add(&mut self, source: &RepositorySource<'_>) -> Result<(), Error> {
        let work = source.toft.work();
        let mut all = work.landings(&[], PAST)?;
        let forecast = forecast(source, &all)?;
        if !forecast.is_empty() {
            self.red.extend(Lander::open(work)?.unlanded_work()?.red_targets);
        }
        let past = |entry: &ListedLanding| !entry.landing.state.live();
        // What was sent back does not land before an agent has mended it.
        let waits = |entry: &ListedLanding| entry.landing.state == LandingState::Bounced;
        all.sort_by_key(|entry| (waits(entry), past(entry).then_some(Reverse(entry.landing.updated))));
        let ids: Vec<String> = all.iter().map(|entry| landing_name(&entry.landing)).collect();
        let shown = source.shorten(&ids.iter().map(String::as_str).collect::<Vec<_>>());
        let names: BTreeMap<LandingId, String> =
            all.iter().zip(&shown).map(|(entry, shown)| (entry.landing.id.clone(), shown.clone())).collect();
        let dir = source.dir();
        for ((entry, id), shown) in all.into_iter().zip(ids).zip(shown) {
            let known = forecast.get(&entry.landing.id);
            let actions = RowAction::about(actions(&entry, &id), &entry.landing.title, dir.as_ref());
            let waits = landing_state(&entry);
            let ListedLanding { landing, .. } = entry;
            self.rows.push(QueueRow {
                repository: source.name.clone(),
                waits,
                conflicts: known.map(|known| known.conflicts.clone()).unwrap_or_default(),
                against: known.and_then(|known| names.get(known.against.as_ref()?).cloned()),
                sent_back: landing.bounce().map(|bounce| bounce.message.clone()),
                title: landing.title,
                author: landing.author,
                target: landing.offer.target,
                state: landing.state,
                updated: landing.updated,
                actions,
                id,
                shown,
            });
        }
        Ok(())
    }
}

/// What happens when finished work lands. Git is asked only if something may land.
pub(super) fn forecast(
    source: &RepositorySource<'_>,
    all: &[ListedLanding],
) -> Result<BTreeMap<LandingId, LandingForecast>, Error> {
    let work = source.toft.work();
    let queued = all.iter().any(|entry| entry.landing.state == LandingState::Queued);
    if !queued || work.landing_repository()?.is_none() {
        return Ok(BTreeMap::new());
    }
    let known = Lander::open(work)?.forecast(&[])?.into_iter();
    Ok(known.map(|known| (known.entry.landing.id.clone(), known)).collect())
}

/// What a person can do about finished work.
pub(super) fn actions(entry: &ListedLanding, id: &str) -> Vec<RowAction> {
    let tip = &entry.landing.offer.tip;
    match (entry.landing.state, &entry.waits) {
        (LandingState::Queued, Some(LandingWait::Review)) => {
            vec![RowAction::approve(id, tip), RowAction::send_back(id, tip)]
        }
        (LandingState::Queued, Some(LandingWait::Elsewhere { .. })) => vec![RowAction::send_back(id, tip)],
        (LandingState::Queued, _) => vec![RowAction::land(id, tip), RowAction::send_back(id, tip)],
        (LandingState::Landed, _) if entry.landing.reverted_by.is_none() => vec![RowAction::revert(id)],
        (LandingState::Withdrawn, _) => vec![RowAction::land(id, tip)],
        _ => Vec::new(),
    }
}

/// Issues whose last work that landed was taken back.
pub(super) fn taken_back(all: &[ListedLanding]) -> BTreeSet<String> {
    let landings = || all.iter().map(|entry| &entry.landing);
    let back: BTreeSet<&LandingId> = landing::taken_back(landings()).into_iter().map(|(work, _)| &work.id).collect();
    let mut newest: BTreeMap<String, &Landing> = BTreeMap::new();
    for work in landings().filter(|work| work.state == LandingState::Landed && work.reverts.is_none()) {
        let known = newest.entry(landing_name(work)).or_insert(work);
        if work.created > known.created {
            *known = work;
        }
    }
    newest.retain(|_, work| back.contains(&work.id));
    newest.into_keys().collect()
}

/// The issue of a landing, or the landing itself.
#[must_use]
pub fn landing_name(landing: &Landing) -> String {
    landing.issue.clone().unwrap_or_else(|| landing.id.to_string())
}

/// What a landing waits for, in a few words.
#[must_use]
pub fn landing_state(entry: &ListedLanding) -> String {
    let landing = &entry.landing;
    match (&entry.waits, landing.state) {
        (Some(LandingWait::Review), _) => "waits for review".into(),
        (Some(LandingWait::Needs { landing, issue }), _) => {
            format!("waits for {}", issue.as_deref().unwrap_or(landing.as_str()))
        }
        (Some(LandingWait::Fix { landing, issue }), _) => {
            format!("waits for the fix of {}", issue.as_deref().unwrap_or(landing.as_str()))
        }
        (Some(LandingWait::PullRequest { url }), _) => format!("waits for {url}"),
        (Some(LandingWait::Elsewhere { .. }), _) if landing.may_be_taken(&landing.offer.tip, false) => {
            "ready to land in any clone".into()
        }
        (Some(LandingWait::Elsewhere { clone, .. }), _) => format!("is in {clone}"),
        (_, LandingState::Bounced) => {
            let reason = landing.bounce().map_or("", |bounce| bounce.reason.as_str());
            format!("sent back: {reason}{}", if entry.held { ", an agent works on it" } else { "" })
        }
        (_, LandingState::Landed) if landing.reverted_by.is_some() => "landed, and taken back".into(),
        (_, LandingState::Landed) => {
            let commit = landing.landed.as_ref().map_or("", |landed| landed.commit.as_str());
            format!("landed as {}", commit.get(..SHORT).unwrap_or(commit))
        }
        (_, LandingState::Withdrawn) => "withdrawn".into(),
        _ => "ready to land".into(),
    }
}
