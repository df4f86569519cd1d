//! The task of an agent that reviews finished work: its own, with its own lease.

use super::super::{VerbContext, find, finish, flow};
use crate::{
    flow::{Evidence, PlanTask, ReviewedWork, Source, TaskStatus, WorkflowPlan, WorkflowStatus},
    landing::{Landing, Reviewer},
    lease::Lease,
    refusal::VerbResult,
};

/// The label of tasks that review work, so that a runner can take nothing else.
const LABEL: &str = "review";

/// Asks an agent to review finished work, if one has to and none was asked for this commit.
pub(super) fn ask(work: &mut VerbContext<'_>, landing: &mut Landing) -> VerbResult<()> {
    let Reviewer::Agent(capability) = landing.offer.review.clone() else { return dismiss(work, landing) };
    if !landing.needs_review() {
        return dismiss(work, landing);
    }
    let asked = landing.review_task.clone().map(|task| work.tx.task(&task)).transpose()?.flatten();
    let reviews = |reviewed: &ReviewedWork| reviewed.tip == landing.offer.tip;
    if asked.is_some_and(|task| task.state.status.open() && task.spec.reviews.as_ref().is_some_and(reviews)) {
        return Ok(());
    }
    dismiss(work, landing)?;
    let name = format!("Review: {}", landing.title);
    let plan = WorkflowPlan {
        title: name.clone(),
        priority: Some(landing.priority),
        tasks: vec![PlanTask { name, labels: vec![LABEL.into()], requires: vec![capability], ..PlanTask::default() }],
        ..WorkflowPlan::default()
    };
    let (id, tip, authors) = (landing.id.clone(), landing.offer.tip.clone(), authors(work, landing)?);
    let reviewed = ReviewedWork { landing: id, tip, authors };
    let source = Source::External { reference: landing.id.to_string() };
    let made = flow::build(work, &plan, source, None, false)?.reviewing(&reviewed).make(work)?;
    landing.review_task = made.tasks.first().map(|task| task.id.clone());
    Ok(())
}

/// The agents that worked on a landing.
pub(super) fn authors(work: &mut VerbContext<'_>, landing: &Landing) -> VerbResult<Vec<String>> {
    let mut authors = vec![landing.author.clone()];
    if let Some(task) = &landing.task {
        for attempt in work.tx.attempts(task)? {
            authors.push(work.agent_name(&attempt.agent)?);
        }
    }
    authors.sort();
    authors.dedup();
    Ok(authors)
}

/// Ends the review of an agent that has nothing to decide any more.
pub(super) fn dismiss(work: &mut VerbContext<'_>, landing: &mut Landing) -> VerbResult<()> {
    let Some(task) = landing.review_task.take() else { return Ok(()) };
    let Some(task) = work.tx.task(&task)?.filter(|task| task.state.status != TaskStatus::Done) else { return Ok(()) };
    let workflow = work.require_workflow(&task.workflow)?;
    if !workflow.status.may_become(WorkflowStatus::Abandoned) {
        return Ok(());
    }
    let id = workflow.id.to_string();
    let reason = Some("nothing is left to review".to_owned());
    flow::Move { id, to: flow::Step::Abandon, reason }.apply(work).map(drop)
}

/// The lease of the caller on the review of this work.
pub(super) fn lease(work: &mut VerbContext<'_>, landing: &Landing) -> VerbResult<Option<Lease>> {
    let Some(task) = &landing.review_task else { return Ok(None) };
    let Some(lease) = work.tx.lease(task)? else { return Ok(None) };
    let mine = work.holds.contains(&lease.fence) && work.agent_name(&lease.agent)? == work.actor;
    Ok(mine.then_some(lease))
}

/// Finishes the review that the caller holds.
pub(super) fn finish(work: &mut VerbContext<'_>, lease: &Lease, verdict: &str, message: &str) -> VerbResult<()> {
    let request = finish::Request {
        id: Some(lease.task.to_string()),
        fence: Some(lease.fence.clone()),
        how: finish::How::Done(Evidence::NoChange(verdict.to_owned())),
        message: message.to_owned(),
        ..finish::Request::default()
    };
    let task = find::task(work, lease.task.as_str())?;
    request.end(work, task).map(drop)
}
