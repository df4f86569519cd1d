//! Agents and their messages.

use toft::{
    Assigned,
    agent::{AgentState, Role},
    id::MessageId,
    message::MessageKind,
    provider::RestingAgent,
    verbs::{agent, answer, inbox, log, send},
};

use super::{App, Done, plan, word, work::held};
use crate::{
    args::{AgentCommand, Answer, Inbox, Pause, Register, Send, Tell},
    exit::Failure,
    render,
};

/// Events of a message that are looked at: sent, read, confirmed.
const DELIVERIES: usize = 10;

pub(super) fn run(app: &App<'_>, command: &AgentCommand) -> Done {
    match command {
        AgentCommand::Register(args) => register(app, args),
        AgentCommand::List { all } => {
            app.show(&render::view_agents(&app.perform(app.open()?, agent::List { all: *all })?))
        }
        AgentCommand::Send(args) => send(app, args),
        AgentCommand::Inbox(args) => inbox(app, args),
        AgentCommand::Remove { name } => {
            app.show(&render::view_agent(&app.perform(app.open()?, agent::Remove { agent: name.clone() })?))
        }
    }
}

pub(super) fn answer(app: &App<'_>, args: &Answer) -> Done {
    let id = app.open()?.work().whole_id(&args.id)?;
    let request = answer::Request { id, answer: args.text.clone() };
    app.show(&render::view_answer(&app.perform(app.open()?, request)?))
}

/// Sends a message to the holder of a task, and waits for its delivery.
pub(super) fn tell_holder(app: &App<'_>, args: &Tell) -> Done {
    let toft = app.open()?;
    let nobody = |mut failure: Failure| {
        if failure.code == "wrong_state" {
            failure.help = Some("toft edit ID --comment \"…\" tells the next agent".to_owned());
        }
        failure
    };
    let to = toft.work().recipient(&toft.located().agent, &args.id).map_err(|error| nobody(error.into()))?;
    // What is said to an agent is about what it holds, and for nobody's next task.
    let to = match toft.perform(agent::List { all: false })?.into_iter().find(|listed| listed.agent.name == to) {
        None => to,
        Some(listed) => match listed.holds.first() {
            Some(task) => task.to_string(),
            None => return Err(Failure::idle_agent(&to)),
        },
    };
    let request = send::Request { to, body: args.text.clone(), priority: Some(1), ..send::Request::default() };
    let message = app.perform(toft, request).map_err(nobody)?;
    let about = log::Request { id: Some(message.id.to_string()), limit: DELIVERIES, ..log::Request::default() };
    let read = toft.wait_for(args.wait, || {
        Ok(toft.perform(about.clone())?.into_iter().find(|event| event.verb == "message.read"))
    });
    // It is sent; whether it was read cannot always be told.
    let read = read.unwrap_or_default();
    app.show(&render::view_told_holder(&message, read.as_ref()))
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
    app.show(&render::view_agent(&app.perform(app.open()?, request)?))
}

pub(super) fn pause(app: &App<'_>, args: &Pause) -> Done {
    if let Some(name) = args.name.as_ref().filter(|_| args.off)
        && RestingAgent::end(name)?
    {
        return app.show(&render::view_ended_rest(name));
    }
    let toft = app.open()?;
    let runner = match (&args.name, &args.machine) {
        (None, None) => toft.located().agent.clone(),
        (name, _) => name.clone().unwrap_or_default(),
    };
    let state = if args.off { AgentState::Active } else { AgentState::Draining };
    let request = agent::TellRunner { runner, machine: args.machine.clone(), state, note: args.message.clone() };
    app.show(&render::view_told_agents(&app.perform(toft, request)?))
}

pub(super) fn assign(app: &App<'_>, id: &str, to: Option<&str>) -> Done {
    let toft = app.open()?;
    match toft.work().assign(&toft.located().agent, app.op(), id, to)? {
        Assigned::Task(task) => app.show(&render::view_assigned_task(&task)),
        Assigned::Issue(wrote, to_somebody) => {
            let did = if to_somebody { "Assigned" } else { "Unassigned" };
            app.show(&render::view_written_issue(&wrote, did, plan::several(toft)?))
        }
    }
}

fn send(app: &App<'_>, args: &Send) -> Done {
    let (task, fence) = match &args.task {
        Some(_) => held(app.open()?, args.task.as_ref(), &args.hold)?,
        None => (None, None),
    };
    let request = send::Request {
        to: app.open()?.work().recipient(&app.open()?.located().agent, &args.to)?,
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
    app.show(&render::view_sent_message(&app.perform(app.open()?, request)?))
}

fn inbox(app: &App<'_>, args: &Inbox) -> Done {
    let toft = app.open()?;
    let peek = inbox::Peek { human: args.human, task: None, limit: args.limit };
    if let Some(patience) = args.wait {
        toft.wait_for(patience, || Ok((!toft.perform(peek.clone())?.letters.is_empty()).then_some(())))?;
    }
    let ack = args.ack.as_deref().map(MessageId::known);
    let confirmed = ack.is_some();
    let letters = match args.peek {
        true => app.perform(toft, peek)?.letters,
        false => {
            let request = inbox::Request { human: args.human, all: args.all, ack, task: None, limit: args.limit };
            app.perform(toft, request)?.letters
        }
    };
    app.show(&render::view_inbox(&letters, confirmed))
}
