//! Stages: how far an issue is on its way from the plan into the target branch.

use serde::{Deserialize, Serialize};

use crate::{
    landing::{LandingState, LandingWait},
    schema::JsonSchema,
};

/// How far an issue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IssueStage {
    /// Nobody can start it now.
    Planned,
    /// The next claim may take it.
    Ready,
    /// An agent is on it, or waits for an answer.
    Working,
    /// It is finished, and a reviewer has to approve it.
    Review,
    /// It is finished, and has not landed.
    Landing,
    /// It is in the target branch, or closed.
    Landed,
}

impl IssueStage {
    /// Every stage, in order.
    pub const ALL: [Self; 6] = [Self::Planned, Self::Ready, Self::Working, Self::Review, Self::Landing, Self::Landed];

    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Planned => "planned",
            Self::Ready => "ready",
            Self::Working => "working",
            Self::Review => "review",
            Self::Landing => "landing",
            Self::Landed => "landed",
        }
    }
}

/// What a stage follows from.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageFacts<'a> {
    pub closed: bool,
    /// An agent holds one of its tasks.
    pub held: bool,
    /// Work was started, and none of it can be claimed now.
    pub waiting: bool,
    /// The next claim may take it, or work that was started on it.
    pub ready: bool,
    /// Its finished work, and what that waits for.
    pub landing: Option<(LandingState, Option<&'a LandingWait>)>,
}

impl StageFacts<'_> {
    /// The stage, the one rule.
    #[must_use]
    pub fn stage(self) -> IssueStage {
        match self.landing {
            _ if self.closed => IssueStage::Landed,
            _ if self.held => IssueStage::Working,
            Some((LandingState::Queued, Some(LandingWait::Review))) => IssueStage::Review,
            Some((LandingState::Queued, _)) => IssueStage::Landing,
            _ if self.waiting => IssueStage::Working,
            _ if self.ready => IssueStage::Ready,
            _ => IssueStage::Planned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issue_goes_from_the_plan_into_the_target() {
        let queued = |waits| StageFacts { landing: Some((LandingState::Queued, waits)), ..StageFacts::default() };
        let steps = [
            StageFacts::default(),
            StageFacts { ready: true, ..StageFacts::default() },
            StageFacts { held: true, ready: true, ..StageFacts::default() },
            queued(Some(&LandingWait::Review)),
            queued(None),
            StageFacts { closed: true, ..queued(None) },
        ];
        assert_eq!(steps.map(StageFacts::stage), IssueStage::ALL);
    }

    #[test]
    fn work_that_was_sent_back_is_where_its_task_is() {
        let back = StageFacts { landing: Some((LandingState::Bounced, None)), ..StageFacts::default() };
        assert_eq!(StageFacts { ready: true, ..back }.stage(), IssueStage::Ready);
        assert_eq!(StageFacts { held: true, ..back }.stage(), IssueStage::Working);
        assert_eq!(StageFacts { waiting: true, ..back }.stage(), IssueStage::Working);
        let review = StageFacts {
            held: true,
            landing: Some((LandingState::Queued, Some(&LandingWait::Review))),
            ..StageFacts::default()
        };
        assert_eq!(review.stage(), IssueStage::Working, "it was taken up again");
    }
}
