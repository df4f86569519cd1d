//! Where finished work is to land: its target, and its pull request.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find_landing};
use crate::{
    change::Write,
    id::LandingId,
    landing::{Landing, PullRequest},
    may::May,
    refusal::{Refusal, VerbResult},
    rights::{self, Action},
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// Let finished work land in another target, because the configuration says another one now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandRetarget")]
pub struct Retarget {
    pub landing: LandingId,
    pub target: String,
}

impl Verb for Retarget {
    type Outcome = Landing;
    const NAME: &'static str = "land.retarget";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Landing> {
        rights::require(work, Action::Land)?;
        let mut landing = find_landing(work, self.landing.as_str())?;
        if landing.state.live() && landing.offer.target != self.target {
            landing.offer.target = self.target;
            // It was for the other target, and stays what it is there.
            landing.pull_request = None;
            landing.updated = work.now.wall;
            let detail = json!({ "landing": landing.id, "target": landing.offer.target });
            work.record(landing.entity(), "land.queued", detail, vec![Write::Landing(landing.clone())])?;
        }
        Ok(landing)
    }
}

/// Land finished work of another machine in this clone: from now on no other clone lands it unasked.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandTake")]
pub struct Take {
    pub landing: LandingId,
    /// The commit that this clone has got.
    pub tip: String,
    /// The directory of the clone.
    pub clone: String,
    /// A person named this work: it may be that of another clone that lands.
    #[serde(default)]
    pub named: bool,
}

impl Verb for Take {
    type Outcome = Landing;
    const NAME: &'static str = "land.take";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Landing> {
        rights::require(work, Action::Land)?;
        let mut landing = find_landing(work, self.landing.as_str())?;
        let host = work.processes.disks().to_owned();
        let own = landing.offer.host == host && landing.offer.clone == self.clone;
        if own && landing.offer.taken {
            return Ok(landing);
        }
        if !landing.may_be_taken(&self.tip, self.named || own) {
            let (id, state) = (landing.id.to_string(), landing.state.as_str().to_owned());
            let wanted = "work that waits, is on the server, and that no other clone lands".to_owned();
            return Err(Refusal::WrongState { id, state, wanted }.into());
        }
        (landing.offer.host, landing.offer.clone, landing.offer.taken) = (host, self.clone, true);
        landing.updated = work.now.wall;
        let detail = json!({ "landing": landing.id, "host": landing.offer.host, "clone": landing.offer.clone });
        work.record(landing.entity(), "land.taken", detail, vec![Write::Landing(landing.clone())])?;
        Ok(landing)
    }
}

/// Record the pull request that finished work was pushed to.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandRecordPullRequest")]
pub struct RecordPullRequest {
    pub landing: LandingId,
    pub pull_request: PullRequest,
}

impl Verb for RecordPullRequest {
    type Outcome = Landing;
    const NAME: &'static str = "land.record_pull_request";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Landing> {
        rights::require(work, Action::Land)?;
        let mut landing = find_landing(work, self.landing.as_str())?;
        let detail = json!({ "landing": landing.id, "url": self.pull_request.url, "tip": self.pull_request.tip });
        landing.pull_request = Some(Box::new(self.pull_request));
        landing.updated = work.now.wall;
        work.record(landing.entity(), "land.proposed", detail, vec![Write::Landing(landing.clone())])?;
        Ok(landing)
    }
}
