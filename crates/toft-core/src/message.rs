//! Messages: lines in inboxes, each with a state per recipient.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    agent::Role,
    id::{AgentId, MessageId, TaskId, WorkflowId},
    time::Timestamp,
};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Stable id.
    pub id: MessageId,
    /// The first message of its thread.
    pub thread: MessageId,
    /// Who sent it.
    pub from: AgentId,
    /// Whom the sender named.
    pub to: Address,
    /// What it is.
    pub kind: MessageKind,
    /// 0 is most urgent.
    pub priority: u8,
    /// What it is about, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// What it says.
    pub body: String,
    /// Which task it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The sender wants to know that it was taken in.
    pub needs_ack: bool,
    /// Pointless after this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When it was sent.
    pub created: Timestamp,
}

/// Whom a message is for. Groups become single recipients when it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    /// One agent.
    Agent(AgentId),
    /// Everyone with this role.
    Role(Role),
    /// Whoever holds this task.
    Holder(TaskId),
    /// Everyone holding a task of this workflow.
    Workflow(WorkflowId),
    /// The person who runs the fleet.
    Human,
    /// Every agent that was seen lately, and the person who runs the fleet.
    All,
}

/// What a message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// Work to take.
    Assignment,
    /// News.
    #[default]
    Status,
    /// Wants an answer.
    Question,
    /// Is one.
    Answer,
    /// To everybody.
    Broadcast,
}

/// A message on its way to one recipient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    /// Which message.
    pub message: MessageId,
    /// Whose inbox: an agent's id, or `human`.
    pub recipient: String,
    /// How far it came.
    pub state: DeliveryState,
    /// Orders an inbox: urgent first, then oldest first.
    pub rank: String,
    /// When it was first shown to its recipient.
    pub read_at: Option<Timestamp>,
}

/// How a message is addressed to everyone.
pub const ALL: &str = "all";

/// The inbox of the person who runs the fleet.
pub const HUMAN: &str = "human";

/// How far a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// Waits in the inbox.
    Queued,
    /// Was shown.
    Read,
    /// Was confirmed.
    Acked,
}

/// A message as its recipient sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxItem {
    /// The message.
    #[serde(flatten)]
    pub message: Message,
    /// The sender's name.
    pub from_name: String,
    /// When it was first shown to its recipient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
    /// How far it came.
    pub state: DeliveryState,
}
