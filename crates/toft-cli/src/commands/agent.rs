//! Agents and their messages.

use toft::{
    agent::{AgentState, Role},
    id::MessageId,
    message::MessageKind,
    verbs::{agent, answer, assign, inbox, issue::OnIt, send},
};

use super::{
    App, Done, word,
    work::{held, task_or_issue},
};
use crate::{
    args::{AgentCommand, Assign, Inbox, Register, Send},
    exit::Failure,
    render,
};

pub(super) fn run(app: &App<'_>, command: &AgentCommand) -> Done {
    match command {
        AgentCommand::Register(args) => register(app, args),
        AgentCommand::List { all } => {
            app.show(&render::AgentList(app.perform(app.open()?, agent::List { all: *all })?))
        }
        AgentCommand::Send(args) => send(app, args),
        AgentCommand::Inbox(args) => inbox(app, args),
        AgentCommand::Pause { name } => tell(app, name.as_ref(), AgentState::Draining),
        AgentCommand::Resume { name } => tell(app, name.as_ref(), AgentState::Active),
        AgentCommand::Remove { name } => {
            app.show(&render::AgentView(app.perform(app.open()?, agent::Remove { agent: name.clone() })?))
        }
        AgentCommand::Answer { id, text } => {
            let id = task_or_issue(app.open()?, Some(id))?.unwrap_or_default();
            let request = answer::Request { id, answer: text.clone() };
            app.show(&render::Answered(app.perform(app.open()?, request)?))
        }
    }
}

fn register(app: &App<'_>, args: &Register) -> Done {
    let role = match &args.role {
        Some(text) => Some(word::<Role>("role", text)?),
        None => None,
    };
    let request = agent::Register {
        name: args.name.clone().or_else(|| app.global.agent.clone()),
        role,
        capabilities: args.capabilities.clone(),
        runtime: args.runtime.clone(),
    };
    app.show(&render::AgentView(app.perform(app.open()?, request)?))
}

fn tell(app: &App<'_>, agent: Option<&String>, state: AgentState) -> Done {
    let request = agent::Tell { agent: agent.cloned(), state };
    app.show(&render::AgentView(app.perform(app.open()?, request)?))
}

/// Assigns the task that is worked on for an issue, or the issue itself while nobody started it.
pub(super) fn assign(app: &App<'_>, args: &Assign) -> Done {
    let toft = app.open()?;
    let plan = toft.plan()?;
    let issue = match &plan {
        Some(plan) => plan.named(&args.id)?.map(|found| found.issue.id),
        None => None,
    };
    if let (Some(plan), Some(id)) = (plan, &issue)
        && toft.perform(OnIt { issue: id.clone() })?.is_none()
    {
        let to = toft.perform(assign::Check { to: args.to.clone() })?;
        let wrote = plan.assign(id, to.as_ref().map(|agent| agent.name.as_str()))?;
        return app.show(&render::IssueWritten { wrote, did: if to.is_some() { "Assigned" } else { "Unassigned" } });
    }
    let request = assign::Request { id: issue.unwrap_or_else(|| args.id.clone()), to: args.to.clone() };
    app.show(&render::TaskAssigned(app.perform(toft, request)?))
}

/// Whom a message is for: an issue stands for whoever works on it.
fn recipient(toft: &toft::Toft, to: &str) -> Result<String, Failure> {
    let issue = match toft.plan()?.filter(|_| to.starts_with(toft::issue::PREFIX)) {
        Some(plan) => plan.named(to)?,
        None => None,
    };
    let Some(found) = issue else { return Ok(to.to_owned()) };
    let id = found.issue.id;
    Ok(toft.perform(toft::verbs::context::Request { id: id.clone() }).map_or(id, |facts| facts.task.id.to_string()))
}

fn send(app: &App<'_>, args: &Send) -> Done {
    let (task, fence) = match &args.task {
        Some(_) => held(app.open()?, args.task.as_ref(), &args.hold)?,
        None => (None, None),
    };
    let request = send::Request {
        to: recipient(app.open()?, &args.to)?,
        subject: args.subject.clone(),
        body: args.text.clone(),
        kind: word::<MessageKind>("kind", &args.kind)?,
        priority: args.priority,
        reply_to: args.reply_to.as_deref().map(MessageId::known),
        task,
        fence,
        needs_ack: args.needs_ack,
        expires: args.expires,
    };
    app.show(&render::Sent(app.perform(app.open()?, request)?))
}

fn inbox(app: &App<'_>, args: &Inbox) -> Done {
    let toft = app.open()?;
    let peek = inbox::Peek { human: args.human, limit: args.limit };
    if let Some(patience) = args.wait {
        toft.wait_for(patience, || Ok((!toft.perform(peek.clone())?.letters.is_empty()).then_some(())))?;
    }
    let ack = args.ack.as_deref().map(MessageId::known);
    let confirmed = ack.is_some();
    let letters = match args.peek {
        true => app.perform(toft, peek)?.letters,
        false => {
            let request = inbox::Request { human: args.human, all: args.all, ack, limit: args.limit };
            app.perform(toft, request)?.letters
        }
    };
    app.show(&render::Inbox { letters, confirmed })
}
