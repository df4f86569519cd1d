//! Log: the event history.

use super::{Verb, VerbContext, find};
use crate::{
    change::Event,
    id::MessageId,
    may::May,
    refusal::{Refusal, VerbResult},
    repository::Scope,
    schema::JsonSchema,
    store::{Access, EventQuery},
    token::TokenRole,
};
use serde::{Deserialize, Serialize};

/// Events: the newest, or those after a cursor; always oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LogRequest")]
#[serde(default)]
pub struct Request {
    /// About this task, workflow or agent, by id, prefix or name, or about this message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// About this issue, by its whole id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
    pub scope: Scope,
    /// After this event number; the newest events if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Maximum number of events.
    #[serde(default = "super::usual_limit")]
    pub limit: usize,
}

impl Verb for Request {
    type Outcome = Vec<Event>;
    const NAME: &'static str = "log";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Event>> {
        let entity = match &self.id {
            Some(text) if text.starts_with(MessageId::PREFIX) => match work.tx.message(&MessageId::known(text))? {
                Some(message) => Some(message.id.to_string()),
                None => return Err(Refusal::NotFound { what: "message".into(), text: text.clone() }.into()),
            },
            Some(text) => Some(match find::anything(work, text)? {
                find::Found::Task(task) => task.id.to_string(),
                find::Found::Workflow(workflow) => workflow.id.to_string(),
                find::Found::Agent(agent) => agent.id.to_string(),
            }),
            None => self.issue,
        };
        Ok(work.tx.events(&EventQuery {
            after: self.after.unwrap_or(0),
            entity,
            scope: self.scope,
            newest: self.after.is_none(),
            limit: self.limit,
        })?)
    }
}
