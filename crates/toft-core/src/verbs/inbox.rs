//! Inbox: read new messages.

use serde::{Deserialize, Serialize};

use super::{Verb, VerbContext};
use crate::{
    change::Write,
    id::{MessageId, TaskId},
    may::May,
    message::{Address, Delivery, DeliveryState, HUMAN, InboxItem},
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// Read messages. Unread ones are marked as read, unless they need an acknowledgement.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InboxRequest")]
#[serde(default)]
pub struct Request {
    /// The inbox of the person who runs the fleet, instead of the caller's.
    pub human: bool,
    /// Include messages that were read.
    pub all: bool,
    /// Acknowledge this message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ack: Option<MessageId>,
    /// The task of the caller: messages to the holder of another task are left out, and stay unread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Maximum number of messages.
    #[serde(default = "super::usual_limit")]
    pub limit: usize,
}

/// Messages, urgent first, then oldest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InboxOutcome")]
pub struct Outcome {
    /// The messages.
    pub letters: Vec<InboxItem>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "inbox";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::<Self>::of(TokenRole::Worker)
        .or_agent(|request, job| !request.human && request.task.as_ref().is_none_or(|task| *task == job.task))
        .raised(TokenRole::Coordinator, |request| request.human, "the inbox is a person's");

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let recipient = if self.human { HUMAN.to_owned() } else { work.register_caller()?.id.to_string() };
        let now = work.now.wall;
        if let Some(id) = &self.ack {
            let letters = work.tx.inbox(&recipient, false, usize::MAX)?;
            let Some(letter) = letters.into_iter().find(|letter| letter.message.id.as_str().starts_with(id.as_str()))
            else {
                return Err(Refusal::NotFound { what: "message".into(), text: id.to_string() }.into());
            };
            mark(work, &recipient, &letter, DeliveryState::Acked)?;
            let read_at = letter.read_at.or(Some(now));
            return Ok(Outcome { letters: vec![InboxItem { state: DeliveryState::Acked, read_at, ..letter }] });
        }
        let expired = |letter: &InboxItem| letter.message.expires.is_some_and(|expires| expires <= now);
        let mut letters = unread(work, &recipient, !self.all, self.task.as_ref(), self.limit)?;
        while !self.all && letters.iter().any(expired) {
            for letter in letters.iter().filter(|letter| expired(letter)) {
                mark(work, &recipient, letter, DeliveryState::Read)?;
            }
            letters = unread(work, &recipient, true, self.task.as_ref(), self.limit)?;
        }
        letters.retain(|letter| !expired(letter));
        for letter in letters.iter_mut().filter(|letter| letter.state == DeliveryState::Queued) {
            // What wants to be confirmed stays in the inbox until it is.
            match letter.message.needs_ack {
                false => mark(work, &recipient, letter, DeliveryState::Read)?,
                true if letter.read_at.is_none() => mark(work, &recipient, letter, DeliveryState::Queued)?,
                true => {}
            }
            letter.read_at = letter.read_at.or(Some(now));
        }
        Ok(Outcome { letters })
    }
}

/// Unread messages, without marking them as read.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InboxPeek")]
#[serde(default)]
pub struct Peek {
    /// The inbox of the person who runs the fleet, instead of the caller's.
    pub human: bool,
    /// The task of the caller: messages to the holder of another task are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Maximum number of messages.
    #[serde(default = "super::usual_limit")]
    pub limit: usize,
}

/// Messages older than those of the caller's task are looked through up to this number.
const LOOKED_THROUGH: usize = 1_000;

/// The messages of an inbox, without those to the holder of another task.
fn unread(
    work: &mut VerbContext<'_>,
    recipient: &str,
    unread_only: bool,
    task: Option<&TaskId>,
    limit: usize,
) -> VerbResult<Vec<InboxItem>> {
    let Some(task) = task else { return Ok(work.tx.inbox(recipient, unread_only, limit)?) };
    let mut letters = work.tx.inbox(recipient, unread_only, limit.max(LOOKED_THROUGH))?;
    letters.retain(|letter| !matches!(&letter.message.to, Address::Holder(holder) if holder != task));
    letters.truncate(limit);
    Ok(letters)
}

impl Verb for Peek {
    type Outcome = Outcome;
    const NAME: &'static str = "peek";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::<Self>::of(TokenRole::Viewer)
        .or_agent(|request, job| !request.human && request.task.as_ref().is_none_or(|task| *task == job.task))
        .raised(TokenRole::Coordinator, |request| request.human, "the inbox is a person's");

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let recipient = if self.human {
            Some(HUMAN.to_owned())
        } else {
            work.tx.agent_named(work.actor)?.map(|me| me.id.to_string())
        };
        let now = work.now.wall;
        let mut letters = match recipient {
            Some(recipient) => unread(work, &recipient, true, self.task.as_ref(), self.limit)?,
            None => Vec::new(),
        };
        letters.retain(|letter| letter.message.expires.is_none_or(|expires| expires > now));
        Ok(Outcome { letters })
    }
}

pub(super) fn mark(
    work: &mut VerbContext<'_>,
    recipient: &str,
    letter: &InboxItem,
    state: DeliveryState,
) -> VerbResult<()> {
    let delivery = Delivery {
        message: letter.message.id.clone(),
        recipient: recipient.to_owned(),
        state,
        rank: format!("{}{:011x}{}", letter.message.priority, letter.message.created.0.max(0), letter.message.id),
        read_at: letter.read_at.or(Some(work.now.wall)),
    };
    work.record(
        letter.message.id.as_str(),
        if state == DeliveryState::Acked { "message.acked" } else { "message.read" },
        serde_json::json!({}),
        vec![Write::Delivery(delivery)],
    )
}
