//! Land: the way of finished work into its target branch.

mod check;
mod propose;
mod review;
mod reviewer;
mod settle;

pub use check::{Flaky, RecordCheck, Verdicts};
pub use propose::{RecordPullRequest, Retarget, Take};
pub use review::Review;
pub use settle::{BounceLanding, LandedWork, Move, RecordLandings, Step};
pub(super) use settle::{withdraw_all, withdraw_bounced};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find};
use crate::{
    change::Write,
    flow::{DependencyKind, Task, TaskStatus},
    id::LandingId,
    landing::{Landing, LandingOffer, LandingState, LandingWait, Reviewer, order},
    may::May,
    refusal::{Refusal, VerbError, VerbResult},
    repository::Scope,
    rights::{self, Action},
    schema::JsonSchema,
    store::{Access, LandingQuery},
    token::TokenRole,
};

/// Offers the commits of a finished task. Work that was sent back keeps its place in the queue.
pub(super) fn offer(work: &mut VerbContext<'_>, task: &Task, mut offer: LandingOffer) -> VerbResult<Option<Landing>> {
    let Some(repository) = task.repository().cloned().or_else(|| work.place.repository.clone()) else {
        return Ok(None);
    };
    if task.spec.reviews.is_some() {
        return Ok(None);
    }
    let id = Landing::id_of(&task.id);
    let mut workflow = work.require_workflow(&task.workflow)?;
    let known = work.tx.landing(&id)?;
    let bounced = known.as_ref().and_then(Landing::bounce);
    if let Some(bounce) = bounced.filter(|bounce| bounce.tip == offer.tip) {
        let short: String = offer.tip.chars().take(12).collect();
        let problem = format!("{short} was sent back ({}); commit what mends it first", bounce.reason.as_str());
        return Err(Refusal::Invalid { field: "evidence".into(), problem }.into());
    }
    for base in known.iter().flat_map(|known| &known.offer.bases) {
        if !offer.bases.contains(base) {
            offer.bases.push(base.clone());
        }
    }
    let now = work.now.wall;
    let mut landing = Landing {
        id: id.clone(),
        repository,
        title: task.spec.name.clone(),
        task: Some(task.id.clone()),
        workflow: Some(workflow.id.clone()),
        issue: workflow.issue().map(str::to_owned),
        author: work.actor.to_owned(),
        offer,
        priority: task.spec.priority,
        state: LandingState::Queued,
        approval: known.as_ref().and_then(|known| known.approval.clone()),
        review_task: known.as_ref().and_then(|known| known.review_task.clone()),
        pull_request: known.as_ref().and_then(|known| known.pull_request.clone()),
        reverts: None,
        reverted_by: None,
        bounces: known.as_ref().map(|known| known.bounces.clone()).unwrap_or_default(),
        landed: None,
        created: known.map_or(now, |known| known.created),
        updated: now,
    };
    reviewer::ask(work, &mut landing)?;
    if landing.offer.closes {
        workflow.unlanded += 1;
        work.tx.write_derived(&[Write::Workflow(workflow)])?;
    }
    let detail =
        json!({ "landing": landing.id, "task": task.id, "tip": landing.offer.tip, "target": landing.offer.target });
    work.record(landing.entity(), "land.queued", detail, vec![Write::Landing(landing.clone())])?;
    Ok(Some(landing))
}

/// Offer a commit that takes a landing back.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandRevert")]
pub struct Revert {
    /// The landing to take back.
    pub landing: LandingId,
    /// The commit that does, on top of the target.
    pub tip: String,
    /// The directory of the clone that has it; the one that landed the work if empty.
    #[serde(default)]
    pub clone: String,
    /// The server has it.
    #[serde(default)]
    pub sent: bool,
}

impl Verb for Revert {
    type Outcome = Landing;
    const NAME: &'static str = "land.revert";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Landing> {
        rights::require(work, Action::Land)?;
        let landed = find_landing(work, self.landing.as_str())?;
        if landed.state != LandingState::Landed {
            let (id, state) = (landed.id.to_string(), landed.state.as_str().to_owned());
            return Err(
                Refusal::WrongState { id, state, wanted: "only what has landed can be taken back".into() }.into()
            );
        }
        let now = work.now.wall;
        let (host, clone) = match self.clone.is_empty() {
            true => (landed.offer.host.clone(), landed.offer.clone.clone()),
            false => (work.processes.disks().to_owned(), self.clone),
        };
        let offer = LandingOffer {
            tip: self.tip,
            host,
            clone,
            sent: self.sent,
            taken: false,
            closes: false,
            workspace: None,
            branch: None,
            ..landed.offer.clone()
        };
        let landing = Landing {
            id: LandingId::generate(work.ids),
            title: format!("Revert: {}", landed.title),
            task: None,
            workflow: None,
            author: work.actor.to_owned(),
            offer: LandingOffer { review: Reviewer::None, ..offer },
            state: LandingState::Queued,
            approval: None,
            review_task: None,
            pull_request: None,
            reverts: Some(landed.id.clone()),
            reverted_by: None,
            bounces: Vec::new(),
            landed: None,
            created: now,
            updated: now,
            ..landed
        };
        let detail = json!({ "landing": landing.id, "reverts": landing.reverts, "tip": landing.offer.tip });
        work.record(landing.entity(), "land.queued", detail, vec![Write::Landing(landing.clone())])?;
        Ok(landing)
    }
}

/// The landing that `text` names: by its id, or by its task, workspace or issue.
pub(super) fn find_landing(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Landing> {
    let missing = || Refusal::NotFound { what: "finished work".into(), text: text.to_owned() };
    if text.starts_with(LandingId::PREFIX) {
        let id = LandingId::known(find::unique(work, "landing", LandingId::PREFIX, text)?);
        return work.tx.landing(&id)?.ok_or_else(|| missing().into());
    }
    let task = match find::last_task(work, text) {
        Err(VerbError::Refused(Refusal::NotFound { .. })) => return Err(missing().into()),
        task => task?,
    };
    work.tx.landing(&Landing::id_of(&task.id))?.ok_or_else(|| missing().into())
}

/// Refuses a caller that may not land work, before anything is moved.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandBegin")]
pub struct Begin {}

impl Verb for Begin {
    type Outcome = ();
    const NAME: &'static str = "land.begin";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<()> {
        rights::require(work, Action::Land)
    }
}

/// The landings of a repository, in the order in which they land.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandList")]
#[serde(default)]
pub struct List {
    pub scope: Scope,
    /// Only these, by id, task or issue; all that may still land if empty.
    pub ids: Vec<String>,
    /// Also those that have landed or were withdrawn, newest first, up to this many.
    pub past: usize,
    /// Issues with the issues that they need, from the plan.
    pub needs: BTreeMap<String, Vec<String>>,
}

/// A landing and what it waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListedLanding {
    #[serde(flatten)]
    pub landing: Landing,
    /// What has to happen before it can be merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<LandingWait>,
    /// An agent works on its task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// It was sent back, and an agent works on its task or can.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mending: bool,
    /// Its commits are in another clone, as far as the one who lists knows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
}

impl ListedLanding {
    /// A landing that waits for nothing.
    fn of(landing: Landing) -> Self {
        Self { landing, waits: None, held: false, mending: false, elsewhere: false }
    }
}

impl Verb for List {
    type Outcome = Vec<ListedLanding>;
    const NAME: &'static str = "land.list";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<ListedLanding>> {
        let repository = self.scope.repository.clone();
        let live = LandingQuery { repository: repository.clone(), live: true, limit: 0 };
        let all = work.tx.landings(&live)?;
        let mut needs = BTreeMap::new();
        for landing in &all {
            needs.insert(landing.id.clone(), self.needs_of(work, landing, &all)?);
        }
        let (ordered, cyclic) = order(&all, &needs);
        let mut listed = Vec::new();
        for at in ordered.into_iter().chain(cyclic) {
            let landing = all[at].clone();
            let waits = match needs.get(&landing.id).and_then(|needs| needs.first()) {
                _ if landing.state != LandingState::Queued => None,
                _ if landing.needs_review() => Some(LandingWait::Review),
                Some(needed) => {
                    let issue = all.iter().find(|other| other.id == *needed).and_then(|other| other.issue.clone());
                    Some(LandingWait::Needs { landing: needed.clone(), issue })
                }
                None => {
                    let open = landing.open_pull_request();
                    open.map(|request| LandingWait::PullRequest { url: request.url.clone() })
                }
            };
            let task = landing.task.as_ref().filter(|_| landing.state == LandingState::Bounced);
            let task = task.map(|task| work.tx.task(task)).transpose()?.flatten();
            let status = task.map(|task| task.state.status);
            let held = status.is_some_and(TaskStatus::held);
            let mending = held || status == Some(TaskStatus::Pending);
            listed.push(ListedLanding { waits, held, mending, ..ListedLanding::of(landing) });
        }
        if self.past > 0 {
            let past = LandingQuery { repository, live: false, limit: self.past + all.len() };
            let past = work.tx.landings(&past)?.into_iter().filter(|landing| !landing.state.live());
            listed.extend(past.take(self.past).map(ListedLanding::of));
        }
        if self.ids.is_empty() {
            return Ok(listed);
        }
        let mut named = Vec::new();
        for text in &self.ids {
            let landing = find_landing(work, text)?;
            let entry = listed.iter().find(|entry| entry.landing.id == landing.id).cloned();
            named.push(entry.unwrap_or_else(|| ListedLanding::of(landing)));
        }
        let place = |entry: &ListedLanding| listed.iter().position(|other| other.landing.id == entry.landing.id);
        named.sort_by_key(|entry| place(entry).unwrap_or(usize::MAX));
        named.dedup_by(|a, b| a.landing.id == b.landing.id);
        Ok(named)
    }
}

impl List {
    /// Landings that have to land before this one: of tasks and of issues that it needs.
    fn needs_of(&self, work: &mut VerbContext<'_>, landing: &Landing, all: &[Landing]) -> VerbResult<Vec<LandingId>> {
        let mut needs = Vec::new();
        if let Some(task) = &landing.task {
            for (dependency, _) in work.tx.dependencies(task)? {
                let id = Landing::id_of(&dependency.on);
                if dependency.kind == DependencyKind::Blocks && all.iter().any(|other| other.id == id) {
                    needs.push(id);
                }
            }
        }
        let issues = landing.issue.as_ref().and_then(|issue| self.needs.get(issue)).into_iter().flatten();
        for issue in issues {
            needs.extend(all.iter().filter(|other| other.issue.as_ref() == Some(issue)).map(|other| other.id.clone()));
        }
        needs.retain(|id| *id != landing.id);
        Ok(needs)
    }
}
