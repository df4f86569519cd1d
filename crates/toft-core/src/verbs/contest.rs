//! Contest: an issue that was claimed in two clones, each with a store of its own, which no lease can prevent.
//!
//! The clone that reads the other's line notices first; a comment in the ledger informs the other clone.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Verb, VerbContext,
    issue::{On, OnIt},
    send,
};
use crate::{
    change::{Event, Write},
    flow::{Workflow, WorkflowStatus},
    issue::{IN_PROGRESS, Issue, OPEN},
    may::May,
    message::{Address, HUMAN, MessageKind},
    refusal::VerbResult,
    repository::Scope,
    schema::JsonSchema,
    store::{Access, EventQuery, LeasesOf, WorkflowQuery},
    token::TokenRole,
};

/// The detail of `issue.started` that says which replica wrote the claim to a ledger.
pub const REPLICA: &str = "replica";
/// The name of the event.
const VERB: &str = "issue.claimed_twice";
/// Prefix of the id of the comment; the id of the workflow in the clone that noticed follows.
const COMMENT: &str = "claimed-twice-";

/// Issues with an active workflow.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueOpen")]
pub struct Open {
    #[serde(default)]
    pub scope: Scope,
}

impl Verb for Open {
    type Outcome = Vec<String>;
    const NAME: &'static str = "issue.open";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<String>> {
        let statuses = WorkflowStatus::ALL.into_iter().filter(|status| !status.finished()).collect();
        let workflows = work.tx.workflows(&WorkflowQuery { scope: self.scope, statuses, limit: 0 })?;
        Ok(workflows.iter().filter_map(|workflow| workflow.issue().map(str::to_owned)).collect())
    }
}

/// Another clone's state of an issue that has an active workflow here.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ContestRequest")]
pub struct Request {
    /// The issue in the other clone.
    pub issue: Issue,
    /// The other clone wrote its status.
    #[serde(default)]
    pub written_there: bool,
    /// The replica that wrote its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "ContestOutcome")]
pub enum Outcome {
    /// Nothing to do, or both sides are already notified.
    Known,
    /// The other clone opened it again, but it is held here: the ledger has to be updated.
    StillHeld,
    /// It is worked on in two clones.
    Contested(Contest),
}

/// An issue that is worked on in two clones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Contest {
    pub issue: String,
    /// The holder here, if any.
    pub here: Option<String>,
    /// The holder in the other clone.
    pub there: String,
    /// The id of the comment that informs the other clone.
    pub comment: String,
}

impl Contest {
    /// The text of the comment, for both clones.
    pub fn said(&self) -> Option<String> {
        let Self { issue, here, there, .. } = self;
        let here = here.as_ref()?;
        Some(format!("Claimed in two clones, by {here} and by {there}. {}", agree(issue)))
    }
}

impl fmt::Display for Contest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { issue, here, there, .. } = self;
        match here {
            Some(here) => write!(f, "{issue} is claimed twice: by {here} in this clone, by {there} in another.")?,
            None => write!(f, "{issue} is claimed by {there} in another clone, and has an open workflow in this one.")?,
        }
        write!(f, " {}", agree(issue))
    }
}

fn agree(issue: &str) -> String {
    format!("Agree who goes on; the other gives it back: toft finish {issue} release")
}

impl Request {
    /// The workflow and the holder in the other clone, if that clone noticed first.
    fn noticed_there(&self) -> Option<(&str, &str)> {
        let said = self.issue.comments.iter().rev().find(|said| said.id.starts_with(COMMENT))?;
        Some((&said.id[COMMENT.len()..], said.by.as_str()))
    }
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "issue.contest";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    /// Notifies the person who runs the fleet and the holder, once for each workflow.
    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let Some(On { workflow, holder }) = (OnIt { issue: self.issue.id.clone() }).run(work)? else {
            return Ok(Outcome::Known);
        };
        let there = match (self.issue.status.as_str(), self.noticed_there()) {
            (OPEN, _) if self.written_there && holder.is_some() && workflow.ledger_updated => {
                work.tx.write_derived(&[Write::Workflow(Workflow { ledger_updated: false, ..workflow })])?;
                return Ok(Outcome::StillHeld);
            }
            (IN_PROGRESS, _) if self.written_there => self.issue.assignee.clone().unwrap_or_default(),
            // What this store noticed itself is no news.
            (IN_PROGRESS, Some((theirs, by))) if theirs != workflow.id.as_str() => by.to_owned(),
            _ => return Ok(Outcome::Known),
        };
        let told = EventQuery { entity: Some(self.issue.id.clone()), newest: true, limit: 50, ..EventQuery::default() };
        let mut events = work.tx.events(&told)?;
        events.retain(|event| event.detail["workflow"] == workflow.id.as_str());
        if events.iter().any(|event| event.verb == VERB) {
            return Ok(Outcome::Known);
        }
        // A clone that shares this store wrote the claim to its copy of the ledger: it is the same claim.
        let ours = |event: &Event| {
            let replica = event.detail[REPLICA].as_str();
            event.verb == "issue.started" && replica.is_some() && replica == self.replica.as_deref()
        };
        if self.written_there && events.iter().any(ours) {
            return Ok(Outcome::Known);
        }
        let comment = format!("{COMMENT}{}", workflow.id);
        let contest = Contest { issue: self.issue.id.clone(), here: holder, there, comment };
        let detail = json!({ "workflow": workflow.id, "here": contest.here, "there": contest.there });
        work.record(&contest.issue, VERB, detail, Vec::new())?;
        let leases = work.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))?;
        let mut inboxes: Vec<_> = leases.into_iter().map(|lease| lease.agent.to_string()).collect();
        inboxes.push(HUMAN.to_owned());
        let (to, text) = (Address::Workflow(workflow.id), contest.to_string());
        send::deliver(work, &to, MessageKind::Status, 0, &text, None, &inboxes)?;
        Ok(Outcome::Contested(contest))
    }
}
