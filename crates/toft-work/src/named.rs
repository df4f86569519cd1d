//! Resolves user input for a task, a workflow or a recipient: an issue stands for the work on it.

use toft_core::{
    flow::Task,
    id::TaskId,
    issue,
    refusal::Refusal,
    verbs::{Operation, assign, context, issue::OnIt},
};
use toft_plan::{Plan, Wrote};
use toft_session::error::Error;

use crate::Work;

/// The result of an assignment: the active task of an issue, or the issue itself if it is not in progress.
pub enum Assigned {
    /// A task.
    Task(Box<Task>),
    /// An issue, and whether it is assigned now.
    Issue(Box<Wrote>, bool),
}

impl Work<'_> {
    /// The whole id of the issue that `text` names; any other text unchanged.
    pub fn whole_id(&self, text: &str) -> Result<String, Error> {
        Ok(self.issue_named(text)?.unwrap_or_else(|| text.to_owned()))
    }

    /// The whole id of the issue that `text` names, if it names one.
    pub(crate) fn issue_named(&self, text: &str) -> Result<Option<String>, Error> {
        if text == "@" || text.starts_with(TaskId::PREFIX) {
            return Ok(None);
        }
        match Plan::open(self.session)? {
            Some(plan) => Ok(plan.named(text)?.map(|found| found.issue.id)),
            None => Ok(None),
        }
    }

    /// Assigns a task or an issue to an agent, or removes the assignment.
    pub fn assign(&self, actor: &str, op: Option<Operation>, id: &str, to: Option<&str>) -> Result<Assigned, Error> {
        let to = to.map(str::to_owned);
        let issue = self.issue_named(id)?;
        if let Some(id) = &issue
            && let Some(plan) = Plan::open(self.session)?
            && self.run(actor, None, OnIt { issue: id.clone() })?.is_none()
        {
            let to = self.run(actor, None, assign::Check { to })?;
            let wrote = plan.assign(id, to.as_ref().map(|agent| agent.name.as_str()))?;
            return Ok(Assigned::Issue(Box::new(wrote), to.is_some()));
        }
        let request = assign::Request { id: issue.unwrap_or_else(|| id.to_owned()), to };
        Ok(Assigned::Task(Box::new(self.act(actor, op, request)?)))
    }

    /// The recipient of a message: an issue stands for the agent that works on it.
    pub fn recipient(&self, actor: &str, to: &str) -> Result<String, Error> {
        // Any other text may be the name of an agent.
        let issue = if to.starts_with(issue::PREFIX) { self.issue_named(to)? } else { None };
        let Some(id) = issue else { return Ok(to.to_owned()) };
        match self.run(actor, None, context::Request { id: id.clone() }) {
            Ok(facts) => Ok(facts.task.id.to_string()),
            Err(Error::Refused(Refusal::NotFound { .. })) => {
                let (state, wanted) = ("open".into(), "no agent holds it, so the message has no recipient".into());
                Err(Refusal::WrongState { id, state, wanted }.into())
            }
            Err(error) => Err(error),
        }
    }
}
