//! What people type for a task, a workflow or a recipient: an issue means the work on it.

use toft_core::{
    flow::Task,
    id::TaskId,
    issue,
    verbs::{Operation, assign, context, issue::OnIt},
};
use toft_plan::{Plan, Wrote};
use toft_session::error::Error;

use crate::Work;

/// What was assigned: the task that is worked on for an issue, or the issue itself while nobody works on it.
pub enum Assigned {
    /// A task.
    Task(Box<Task>),
    /// An issue, and whether anybody has it now.
    Issue(Box<Wrote>, bool),
}

impl Work<'_> {
    /// The whole id of the issue that `text` names; any other text as it is.
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

    /// Assigns a task or an issue to an agent, or to nobody.
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

    /// Whom a message is for: an issue means the agent that works on it.
    pub fn recipient(&self, actor: &str, to: &str) -> Result<String, Error> {
        // Any other word may be an agent's name.
        let issue = if to.starts_with(issue::PREFIX) { self.issue_named(to)? } else { None };
        let Some(id) = issue else { return Ok(to.to_owned()) };
        let facts = self.run(actor, None, context::Request { id: id.clone() });
        Ok(facts.map_or(id, |facts| facts.task.id.to_string()))
    }
}
