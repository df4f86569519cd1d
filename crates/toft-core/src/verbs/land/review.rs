//! Review: a person or another agent approves finished work.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find_landing, reviewer, settle::send_back};
use crate::{
    change::Write,
    flow::TaskStatus,
    landing::{Bounce, BounceReason, Landing, LandingState, WorkApproval},
    may::May,
    refusal::{Refusal, VerbResult},
    rights::{self, Action},
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// Approve finished work, or return it with comments.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandReview")]
pub struct Review {
    /// The landing, by id, task or issue.
    pub id: String,
    /// The commit that was looked at, whole or its beginning; refused if it is not the present tip.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tip: Option<String>,
    /// Approve it; otherwise it is returned with the message.
    #[serde(default)]
    pub approve: bool,
    #[serde(default)]
    pub message: String,
    /// The files that the comments are about.
    #[serde(default)]
    pub files: Vec<String>,
    /// Only as the holder of the task that reviews it, though other rights would do.
    #[serde(default)]
    pub as_holder: bool,
}

impl Verb for Review {
    type Outcome = Landing;
    const NAME: &'static str = "land.review";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(mut self, work: &mut VerbContext<'_>) -> VerbResult<Landing> {
        let mut landing = find_landing(work, &self.id)?;
        // The agent that was asked may, with any role.
        let asked = reviewer::lease(work, &landing)?;
        if asked.is_none() && self.as_holder {
            let (task, agent) = (landing.review_task.or(landing.task), work.actor.to_owned());
            let missing = Refusal::NotFound { what: "review".into(), text: self.id };
            let Some(task) = task else { return Err(missing.into()) };
            return Err(Refusal::NotHolder { task, agent, status: TaskStatus::Pending }.into());
        }
        if asked.is_none() {
            rights::require(work, Action::Review)?;
        }
        let wrong = |state: String, wanted: &str| Refusal::WrongState {
            id: landing.id.to_string(),
            state,
            wanted: wanted.to_owned(),
        };
        let authors = reviewer::authors(work, &landing)?;
        if authors.iter().any(|author| author == work.actor) && work.role()? != crate::agent::Role::Human {
            return Err(wrong("your own work".into(), "another has to review it").into());
        }
        if landing.state != LandingState::Queued {
            return Err(wrong(landing.state.as_str().into(), "only finished work can be reviewed").into());
        }
        if let Some(reviewed) = asked.as_ref().map(|lease| work.tx.task(&lease.task)).transpose()?.flatten() {
            let looked_at = reviewed.spec.reviews.map(|work| work.tip);
            self.tip = self.tip.or(looked_at);
        }
        if !self.tip.as_ref().map_or(Ok(true), |tip| landing.is_at(tip))? {
            return Err(wrong("changed since you looked at it".into(), "look at it again: toft review").into());
        }
        if !self.approve {
            if self.message.trim().is_empty() {
                let problem = "say what has to change: -m \"…\" or --at FILE:LINE \"…\"".into();
                return Err(Refusal::Invalid { field: "message".into(), problem }.into());
            }
            if let Some(lease) = &asked {
                reviewer::finish(work, lease, "returned", &self.message)?;
            }
            let bounce = Bounce {
                reason: BounceReason::Review,
                at: work.now.wall,
                tip: landing.offer.tip.clone(),
                target: String::new(),
                message: self.message,
                files: self.files,
                against: Vec::new(),
            };
            return send_back(work, landing, bounce, false);
        }
        let approval = WorkApproval { by: work.actor.to_owned(), tip: landing.offer.tip.clone(), at: work.now.wall };
        landing.approval = Some(approval);
        if let Some(lease) = &asked {
            reviewer::finish(work, lease, "approved", &self.message)?;
        }
        reviewer::dismiss(work, &mut landing)?;
        landing.updated = work.now.wall;
        let detail = json!({ "landing": landing.id, "tip": landing.offer.tip, "message": self.message });
        work.record(landing.entity(), "land.approved", detail, vec![Write::Landing(landing.clone())])?;
        Ok(landing)
    }
}
