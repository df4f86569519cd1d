//! How a landing ends: in the target, sent back, or withdrawn.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, find_landing, reviewer};
use crate::{
    change::Write,
    flow::{TaskStatus, Workflow, WorkflowStatus, conclude, place_in_queue},
    gate::{Gate, GateKind},
    id::{GateId, LandingId, TaskId, WorkflowId},
    landing::{Bounce, BounceReason, LandedAs, Landing, LandingOffer, LandingState, Verdict},
    may::May,
    message::{Address, HUMAN, MessageKind},
    refusal::{Refusal, VerbResult},
    rights::{self, Action},
    schema::JsonSchema,
    store::{Access, TaskQuery},
    token::TokenRole,
    verbs::{flow::revive, replan::recount_dependents, send},
};

/// Record that work is in its target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandRecordLandings")]
pub struct RecordLandings {
    pub landed: Vec<LandedWork>,
    /// The tree of the target that was checked.
    pub tree: String,
    /// A digest of the commands that checked it; absent if there is no check, or if it was merged without toft.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
}

/// A piece of work that is in its target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LandedWork {
    pub landing: LandingId,
    /// Its newest commit.
    pub tip: String,
    /// The commit of the target that has it.
    pub commit: String,
    /// The commit of the target before it; empty if it was merged without toft.
    #[serde(default)]
    pub before: String,
}

impl Verb for RecordLandings {
    /// What was recorded. Work that has other commits since is left out: they land next.
    type Outcome = Vec<Landing>;
    const NAME: &'static str = "land.record_landings";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Landing>> {
        rights::require(work, Action::Land)?;
        let mut recorded = Vec::new();
        for LandedWork { landing, tip, commit, before } in self.landed {
            let mut landing = find_landing(work, landing.as_str())?;
            if landing.state == LandingState::Landed || landing.offer.tip != tip {
                continue;
            }
            if let Some(check) = &self.check {
                let verdict = work.tx.verdict(&Verdict::key(&landing.repository, &self.tree, check))?;
                if !verdict.is_some_and(|verdict| verdict.passed()) {
                    let (state, wanted) = ("not checked".into(), "its tree has to pass the check first".into());
                    return Err(Refusal::WrongState { id: landing.id.to_string(), state, wanted }.into());
                }
            }
            let waited = landing.state == LandingState::Queued;
            let (by, checked) = (work.actor.to_owned(), self.check.clone());
            landing.state = LandingState::Landed;
            landing.updated = work.now.wall;
            let mut detail = json!({ "landing": landing.id, "commit": commit, "target": landing.offer.target });
            if let Some(reverted) = &landing.reverts {
                detail["reverts"] = reverted.as_str().into();
            }
            landing.landed = Some(LandedAs { commit, before, at: work.now.wall, by, checked });
            reviewer::dismiss(work, &mut landing)?;
            work.record(landing.entity(), "land.landed", detail, vec![Write::Landing(landing.clone())])?;
            if waited && landing.offer.closes {
                no_longer_awaited(work, &landing)?;
            }
            if let Some(reverted) = landing.reverts.as_ref().map(|id| work.tx.landing(id)).transpose()?.flatten() {
                let reverted = Landing { reverted_by: Some(landing.id.clone()), ..reverted };
                work.tx.write_derived(&[Write::Landing(reverted)])?;
            }
            recorded.push(landing);
        }
        Ok(recorded)
    }
}

/// Its workflow is completed without this landing.
fn no_longer_awaited(work: &mut VerbContext<'_>, landing: &Landing) -> VerbResult<()> {
    if let Some(id) = &landing.workflow {
        let mut workflow = work.require_workflow(id)?;
        workflow.unlanded = workflow.unlanded.saturating_sub(1);
        work.tx.write_derived(&[Write::Workflow(workflow)])?;
        conclude(work, id)?;
    }
    Ok(())
}

/// Send work back: its task is open again, with the reason.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandBounce")]
pub struct BounceLanding {
    pub landing: LandingId,
    /// The commit that was tried; nothing happens if it is not the present tip.
    pub tip: String,
    /// The target that it was tried on.
    pub target: String,
    pub reason: BounceReason,
    /// What an agent has to know to mend it.
    pub message: String,
    #[serde(default)]
    pub files: Vec<String>,
    /// Landings that changed these files in the target.
    #[serde(default)]
    pub against: Vec<LandingId>,
    /// A person decides before it is mended.
    #[serde(default)]
    pub asks: bool,
}

impl Verb for BounceLanding {
    type Outcome = Landing;
    const NAME: &'static str = "land.bounce";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Landing> {
        rights::require(work, Action::Land)?;
        let Self { landing, tip, target, reason, message, files, against, asks } = self;
        let landing = find_landing(work, landing.as_str())?;
        if landing.state != LandingState::Queued || landing.offer.tip != tip {
            return Ok(landing);
        }
        let bounce = Bounce { reason, at: work.now.wall, tip, target, message, files, against };
        send_back(work, landing, bounce, asks)
    }
}

/// Opens the task of a landing again. Two bounces for the same reason ask a person first.
pub(super) fn send_back(
    work: &mut VerbContext<'_>,
    mut landing: Landing,
    bounce: Bounce,
    asks: bool,
) -> VerbResult<Landing> {
    let twice = landing.asks_after(bounce.reason, &bounce.message);
    let asks = asks || twice;
    let detail = json!({ "landing": landing.id, "reason": bounce.reason, "message": bounce.message, "asks": asks });
    let message = bounce.message.clone();
    landing.bounces.push(bounce);
    landing.state = LandingState::Bounced;
    landing.approval = None;
    reviewer::dismiss(work, &mut landing)?;
    landing.updated = work.now.wall;
    work.record(landing.entity(), "land.bounced", detail, vec![Write::Landing(landing.clone())])?;
    let Some(task) = landing.task.clone() else { return Ok(landing) };
    let Some(mut task) = work.tx.task(&task)?.filter(|task| task.state.status == TaskStatus::Done) else {
        return Ok(landing);
    };
    let mut workflow = work.require_workflow(&task.workflow)?;
    if landing.offer.closes {
        workflow.unlanded = workflow.unlanded.saturating_sub(1);
    }
    if !reopen(work, &mut workflow)? {
        work.tx.write_derived(&[Write::Workflow(workflow)])?;
        return Ok(landing);
    }
    work.tx.write_derived(&[Write::Workflow(workflow.clone())])?;
    task.state.status = if asks { TaskStatus::Waiting } else { TaskStatus::Pending };
    task.state.attempt = 0;
    task.state.not_before = None;
    task.state.updated = work.now.wall;
    let mut writes = vec![Write::TaskState(task.id.clone(), task.state.clone())];
    if asks {
        let why = if twice { "It was sent back twice for the same reason. " } else { "" };
        let next = "Answer with what the next attempt has to do, or give it up: toft land withdraw";
        let question = format!("{why}{}\n{next} {}", message.trim_end(), landing.entity());
        writes.push(Write::Gate(Gate {
            id: GateId::generate(work.ids),
            task: task.id.clone(),
            kind: GateKind::Human { question: question.clone(), choices: Vec::new() },
            asked_by: "toft".into(),
            place: work.place.clone(),
            created: work.now.wall,
            opened: None,
        }));
        work.tx.write_derived(&writes)?;
        let to = [HUMAN.to_owned()];
        send::deliver(work, &Address::Human, MessageKind::Question, 1, &question, Some(&task.id), &to)?;
    } else {
        work.tx.write_derived(&writes)?;
    }
    recount_dependents(work, &task.id)?;
    place_in_queue(work, &task, &workflow)?;
    Ok(landing)
}

/// Lets a workflow run again; returns whether it does. One that was abandoned, or whose issue another one is on, does not.
fn reopen(work: &mut VerbContext<'_>, workflow: &mut Workflow) -> VerbResult<bool> {
    workflow.ledger_updated = false;
    workflow.updated = work.now.wall;
    Ok(match workflow.status {
        WorkflowStatus::Completed | WorkflowStatus::Failed => revive(work, workflow).is_ok(),
        WorkflowStatus::Abandoned => false,
        _ => true,
    })
}

/// Withdraws work that was sent back, because its task ended without new commits.
pub(in crate::verbs) fn withdraw_bounced(work: &mut VerbContext<'_>, task: &TaskId) -> VerbResult<()> {
    withdraw(work, task, "its task was finished without a change")
}

/// Withdraws the work of a workflow that was abandoned.
pub(in crate::verbs) fn withdraw_all(work: &mut VerbContext<'_>, workflow: &WorkflowId) -> VerbResult<()> {
    for task in work.tx.tasks(&TaskQuery { workflow: Some(workflow.clone()), ..TaskQuery::default() })? {
        withdraw(work, &task.id, "its workflow was abandoned")?;
    }
    Ok(())
}

fn withdraw(work: &mut VerbContext<'_>, task: &TaskId, reason: &str) -> VerbResult<()> {
    let landing = work.tx.landing(&Landing::id_of(task))?;
    let Some(landing) = landing.filter(|landing| landing.state.live()) else { return Ok(()) };
    let was = waited_as(&landing);
    let offer = LandingOffer { closes: false, ..landing.offer.clone() };
    let mut landing = Landing { state: LandingState::Withdrawn, offer, updated: work.now.wall, ..landing };
    reviewer::dismiss(work, &mut landing)?;
    let detail = json!({ "landing": landing.id, "reason": reason, "was": was });
    work.record_system(landing.entity(), "land.withdrawn", detail, vec![Write::Landing(landing.clone())])
}

/// What finished work waits for, in a word.
fn waited_as(landing: &Landing) -> &'static str {
    match landing.state {
        LandingState::Queued if landing.needs_review() => "review",
        state => state.as_str(),
    }
}

/// What becomes of finished work by decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It is not to be landed; its issue is closed as if it had.
    Withdraw,
    /// It is queued again, as it is.
    Queue,
}

/// Withdraw finished work, or queue it again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandMove")]
pub struct Move {
    /// The landing, by id, task or issue.
    pub id: String,
    pub to: Step,
    #[serde(default)]
    pub reason: String,
}

impl Verb for Move {
    type Outcome = Landing;
    const NAME: &'static str = "land.move";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Landing> {
        rights::require(work, Action::Land)?;
        let mut landing = find_landing(work, &self.id)?;
        let fits = match self.to {
            Step::Withdraw => landing.state.live(),
            Step::Queue => landing.state == LandingState::Withdrawn,
        };
        if !fits {
            let wanted = match self.to {
                Step::Withdraw => "only finished work that has not landed can be withdrawn",
                Step::Queue => "only withdrawn work can be queued again",
            };
            let (id, state) = (landing.id.to_string(), landing.state.as_str().to_owned());
            return Err(Refusal::WrongState { id, state, wanted: wanted.into() }.into());
        }
        let waited = landing.state == LandingState::Queued;
        landing.updated = work.now.wall;
        let detail = json!({ "landing": landing.id, "reason": self.reason, "was": waited_as(&landing) });
        match self.to {
            Step::Withdraw => {
                landing.state = LandingState::Withdrawn;
                reviewer::dismiss(work, &mut landing)?;
                work.record(landing.entity(), "land.withdrawn", detail, vec![Write::Landing(landing.clone())])?;
                if waited && landing.offer.closes {
                    no_longer_awaited(work, &landing)?;
                }
                // Its issue was closed with it; if it lands after all, nothing is left to close.
                landing.offer.closes = false;
                work.tx.write_derived(&[Write::Landing(landing.clone())])?;
            }
            Step::Queue => {
                landing.state = LandingState::Queued;
                reviewer::ask(work, &mut landing)?;
                work.record(landing.entity(), "land.queued", detail, vec![Write::Landing(landing.clone())])?;
            }
        }
        Ok(landing)
    }
}
