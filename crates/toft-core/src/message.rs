//! Messages: entries of inboxes, each with a state per recipient.

use serde::{Deserialize, Serialize};

use crate::{
    agent::Role,
    id::{AgentId, MessageId, TaskId, WorkflowId},
    schema::JsonSchema,
    time::Timestamp,
};

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Stable id.
    pub id: MessageId,
    /// The first message of its thread.
    pub thread: MessageId,
    /// The sender.
    pub from: AgentId,
    /// The address that the sender gave.
    pub to: Address,
    pub kind: MessageKind,
    /// 0 is most urgent.
    pub priority: u8,
    /// The subject line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// The text.
    pub body: String,
    /// The task that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// The sender asks for an acknowledgement.
    pub needs_ack: bool,
    /// Not shown after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// When it was sent.
    pub created: Timestamp,
}

/// The recipients of a message. Groups are expanded to single recipients when it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    /// One agent.
    Agent(AgentId),
    /// Every agent with this role.
    Role(Role),
    /// The agent that holds this task.
    Holder(TaskId),
    /// Every agent that holds a task of this workflow.
    Workflow(WorkflowId),
    /// The person who runs the fleet.
    Human,
    /// Every agent that was seen recently, and the person who runs the fleet.
    All,
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageKind {
    /// Work to do.
    Assignment,
    /// Information.
    #[default]
    Status,
    /// Asks for an answer.
    Question,
    /// Answers a question.
    Answer,
    /// For all recipients.
    Broadcast,
}

/// The delivery of a message to one recipient.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Delivery {
    pub message: MessageId,
    /// The recipient: an agent's id, or `human`.
    pub recipient: String,
    /// The state of the delivery.
    pub state: DeliveryState,
    /// Sort key of an inbox: urgent first, then oldest first.
    pub rank: String,
    /// When it was first shown to its recipient.
    pub read_at: Option<Timestamp>,
}

/// The address of everyone.
pub const ALL: &str = "all";

/// The inbox of the person who runs the fleet.
pub const HUMAN: &str = "human";

/// The state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// Not read yet.
    Queued,
    /// Was shown to the recipient.
    Read,
    /// Was acknowledged.
    Acked,
}

/// A message as its recipient sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InboxItem {
    #[serde(flatten)]
    pub message: Message,
    /// The sender's name.
    pub from_name: String,
    /// When it was first shown to its recipient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Timestamp>,
    /// The state of the delivery.
    pub state: DeliveryState,
}
