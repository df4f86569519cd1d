//! Send: a message to an agent, a role, a task's holder, a workflow, the person who runs the fleet, or everyone.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use serde_json::json;

use super::{Verb, VerbContext, find};
use crate::{
    agent::{Agent, AgentState, Role},
    change::Write,
    id::{MessageId, TaskId, WorkflowId},
    lease::Fence,
    may::May,
    message::{ALL, Address, Delivery, DeliveryState, HUMAN, Message, MessageKind},
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::{Access, LeasesOf},
    token::TokenRole,
};

/// Send a message.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SendRequest")]
#[serde(default)]
pub struct Request {
    /// `human`, `all`, `role:worker`, a task (its holder), a workflow (all holders of its tasks), or an agent's name or
    /// id.
    pub to: String,
    /// The subject line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The text.
    pub body: String,
    /// The kind of message.
    pub kind: MessageKind,
    /// 0 is most urgent; the default is 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// The message this one answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// Send it as the holder of this task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The fence; that of the caller's own lease if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// The recipient must acknowledge it.
    pub needs_ack: bool,
    /// Not shown after this time.
    #[serde(
        default,
        rename = "expires_ms",
        with = "crate::time::as_optional_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<u64>")]
    pub expires: Option<Duration>,
}

impl Verb for Request {
    type Outcome = Message;
    const NAME: &'static str = "send";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> =
        May::of(TokenRole::Worker).or_agent(|request, job| job.proves(request.fence.as_ref(), request.task.as_deref()));

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Message> {
        if self.body.trim().is_empty() {
            return Err(Refusal::Invalid { field: "text".into(), problem: "the message is empty".into() }.into());
        }
        if self.priority.is_some_and(|priority| priority > 4) {
            return Err(
                Refusal::Invalid { field: "priority".into(), problem: "priorities go from 0 to 4".into() }.into()
            );
        }
        let task = match &self.task {
            Some(text) => {
                let task = find::task(work, text)?;
                work.require_hold(&task.id, self.fence.as_ref())?;
                Some(task.id)
            }
            None => None,
        };
        let (address, recipients) = recipients(work, &self.to)?;
        let kind = match (&address, self.kind) {
            (Address::All, MessageKind::Status) => MessageKind::Broadcast,
            (_, kind) => kind,
        };
        let mut message = draft(work, &address, kind, self.priority.unwrap_or(2), &self.body, task.as_ref())?;
        if let Some(id) = &self.reply_to {
            let Some(first) = work.tx.message(id)? else {
                return Err(Refusal::NotFound { what: "message".into(), text: id.to_string() }.into());
            };
            message.thread = first.thread;
            message.subject = first.subject;
            message.reply_to = Some(first.id);
        }
        if let Some(subject) = self.subject.filter(|subject| !subject.trim().is_empty()) {
            if subject.contains('\n') {
                let problem = "a subject is one line".into();
                return Err(Refusal::Invalid { field: "subject".into(), problem }.into());
            }
            message.subject = Some(subject);
        }
        message.needs_ack = self.needs_ack;
        message.expires = self.expires.map(|span| work.now.wall.plus(span));
        post(work, message, &recipients)
    }
}

fn draft(
    work: &mut VerbContext<'_>,
    to: &Address,
    kind: MessageKind,
    priority: u8,
    body: &str,
    task: Option<&TaskId>,
) -> VerbResult<Message> {
    let id = MessageId::generate(work.ids);
    Ok(Message {
        thread: id.clone(),
        id,
        from: work.register_caller()?.id,
        to: to.clone(),
        kind,
        priority,
        subject: None,
        reply_to: None,
        body: body.to_owned(),
        task: task.cloned(),
        needs_ack: false,
        expires: None,
        created: work.now.wall,
    })
}

/// Delivers a message to inboxes.
pub(super) fn deliver(
    work: &mut VerbContext<'_>,
    to: &Address,
    kind: MessageKind,
    priority: u8,
    body: &str,
    task: Option<&TaskId>,
    recipients: &[String],
) -> VerbResult<Message> {
    let message = draft(work, to, kind, priority, body, task)?;
    post(work, message, recipients)
}

fn post(work: &mut VerbContext<'_>, message: Message, recipients: &[String]) -> VerbResult<Message> {
    let mut writes = vec![Write::Message(message.clone())];
    for recipient in recipients {
        writes.push(Write::Delivery(Delivery {
            message: message.id.clone(),
            recipient: recipient.clone(),
            state: DeliveryState::Queued,
            rank: format!("{}{:011x}{}", message.priority, message.created.0.max(0), message.id),
            read_at: None,
        }));
    }
    work.record(
        message.id.as_str(),
        "message.sent",
        json!({ "to": message.to, "kind": message.kind, "recipients": recipients.len() }),
        writes,
    )?;
    Ok(message)
}

fn recipients(work: &mut VerbContext<'_>, to: &str) -> VerbResult<(Address, Vec<String>)> {
    if to == HUMAN {
        return Ok((Address::Human, vec![HUMAN.to_owned()]));
    }
    if to == ALL {
        let (now, me) = (work.now.wall, work.register_caller()?.id);
        let lately = |agent: &Agent| now.since(agent.seen) < Agent::ASSIGNED_FOR && agent.state != AgentState::Gone;
        let agents = work.tx.agents()?.into_iter().filter(|agent| agent.id != me && lately(agent));
        let mut recipients: Vec<_> = agents.map(|agent| agent.id.to_string()).collect();
        recipients.push(HUMAN.to_owned());
        return Ok((Address::All, recipients));
    }
    if let Some(word) = to.strip_prefix("role:") {
        let role = match word {
            "worker" => Role::Worker,
            "coordinator" => Role::Coordinator,
            "human" => return Ok((Address::Human, vec![HUMAN.to_owned()])),
            _ => return Err(Refusal::NotFound { what: "role".into(), text: word.to_owned() }.into()),
        };
        let agents = work.tx.agents()?;
        let ids = agents.into_iter().filter(|agent| agent.role == role && agent.state != AgentState::Gone);
        return Ok((Address::Role(role), ids.map(|agent| agent.id.to_string()).collect()));
    }
    if to.starts_with(TaskId::PREFIX) {
        let task = find::task(work, to)?;
        let Some(lease) = work.tx.lease(&task.id)? else {
            return Err(Refusal::WrongState {
                id: task.id.to_string(),
                state: task.state.status.as_str().into(),
                wanted: "no agent holds it, so the message has no recipient".into(),
            }
            .into());
        };
        return Ok((Address::Holder(task.id), vec![lease.agent.to_string()]));
    }
    if to.starts_with(WorkflowId::PREFIX) {
        let workflow = find::workflow(work, to)?;
        let leases = work.tx.leases(&LeasesOf::Workflow(workflow.id.clone()))?;
        let mut ids: Vec<_> = leases.into_iter().map(|lease| lease.agent.to_string()).collect();
        ids.sort();
        ids.dedup();
        return Ok((Address::Workflow(workflow.id), ids));
    }
    let agent = find::agent(work, to)?;
    if agent.state == AgentState::Gone {
        let wanted = "it reads nothing any more".into();
        return Err(Refusal::WrongState { id: agent.name, state: "removed".into(), wanted }.into());
    }
    Ok((Address::Agent(agent.id.clone()), vec![agent.id.to_string()]))
}
