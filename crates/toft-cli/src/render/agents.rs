//! Agents and messages.

use std::{collections::BTreeSet, time::Duration};

use serde_json::json;
use toft::{
    agent::{Agent, AgentState, Presence, Role},
    change::Event,
    message::{DeliveryState, InboxItem, Message},
    verbs::agent::Listed,
};

use super::{
    CommandView,
    page::{after_words, clean, short},
};

pub(crate) fn view_agent(agent: &Agent) -> CommandView<'_> {
    let Agent { id, name, role, capabilities, state, .. } = agent;
    let can = after_words(", can ", capabilities);
    let state = match state {
        AgentState::Active => "active",
        AgentState::Draining => "paused: it claims nothing new",
        AgentState::Gone => "removed",
    };
    CommandView::of_line("agent", agent, [name], format!("{} ({id}) is {state}, {role}{can}", clean(name)))
}

pub(crate) fn view_agents(agents: &[Listed]) -> CommandView<'_> {
    CommandView::new("agents", agents, agents.iter().map(|row| &row.agent.name), move |page| {
        let machines: BTreeSet<&str> = agents.iter().map(|row| row.agent.machine_name()).collect();
        for Listed { agent, presence, holds, silent_s } in agents {
            let holds: Vec<_> = holds.iter().map(ToString::to_string).collect();
            let doing = match presence {
                Presence::Working if agent.state == AgentState::Draining => {
                    format!("on {}, then paused", holds.join(", "))
                }
                Presence::Working => format!("on {}", holds.join(", ")),
                Presence::Offline if !holds.is_empty() => format!("offline, lost {}", holds.join(", ")),
                Presence::Idle => "idle".to_owned(),
                Presence::Paused => match &agent.note {
                    Some(note) => format!("paused: {}", short(note, 60)),
                    None => "paused".to_owned(),
                },
                Presence::Offline => "offline".to_owned(),
                Presence::Removed => "removed".to_owned(),
            };
            let role = match agent.role {
                Role::Worker => String::new(),
                role => format!("{role}  "),
            };
            let machine = match machines.len() {
                0 | 1 => String::new(),
                _ => format!("on {}", clean(agent.machine_name())),
            };
            let seen = page.faint(format!("seen {}", toft::time::ago(Duration::from_secs(*silent_s))));
            page.row([page.id(&agent.name), format!("{role}{doing}"), machine, seen]);
        }
        if agents.is_empty() {
            page.line("No agents yet. Claiming registers one.");
        }
    })
}

pub(crate) fn view_sent_message(message: &Message) -> CommandView<'_> {
    CommandView::of_line("message", message, [&message.id], format!("Sent {}", message.id))
}

/// An agent whose rest a person ended.
pub(crate) fn view_ended_rest(agent: &str) -> CommandView<'_> {
    let line = format!("{} rests no longer; its runners go on.", clean(agent));
    CommandView::of_line("rest_ended", json!({ "agent": agent }), [agent], line)
}

/// Agents that were paused or resumed.
pub(crate) fn view_told_agents(agents: &[Agent]) -> CommandView<'_> {
    let names = agents.iter().map(|agent| clean(&agent.name)).collect::<Vec<_>>().join(", ");
    let paused = agents.iter().any(|agent| agent.state == AgentState::Draining);
    let note = agents.iter().find_map(|agent| agent.note.as_deref());
    let note = note.map(|note| format!(" ({})", short(note, 80))).unwrap_or_default();
    let line = match paused {
        _ if names.is_empty() => "Nothing changed: toft agent list shows who is paused.".to_owned(),
        true => format!("Paused {names}{note}. What they hold they finish; toft pause --off lets them go on."),
        false => format!("Resumed {names}."),
    };
    CommandView::of_line("agents", agents, agents.iter().map(|agent| &agent.name), line)
}

/// A message to the agent on a task.
pub(crate) fn view_told_holder<'a>(message: &'a Message, read: Option<&'a Event>) -> CommandView<'a> {
    let (by, at) = read.map(|event| (&event.actor, event.at)).unzip();
    let data = json!({ "message": message, "delivered": read.is_some(), "read_by": by, "read_at": at });
    CommandView::new("tell", data, [&message.id], move |page| {
        page.line(match read {
            Some(event) => format!("Delivered to {} at {}.", clean(&event.actor), page.moment(event.at)),
            None => format!("Sent, not read yet; toft history {} shows when it is.", message.id),
        });
    })
}

pub(crate) fn view_inbox(letters: &[InboxItem], confirmed: bool) -> CommandView<'_> {
    CommandView::new("messages", letters, letters.iter().map(|letter| &letter.message.id), move |page| {
        for letter in letters {
            if confirmed {
                page.line(format!("Confirmed {} from {}", letter.message.id, clean(&letter.from_name)));
                continue;
            }
            let id = &letter.message.id;
            let ack = match letter.message.needs_ack && letter.state != DeliveryState::Acked {
                true => format!(" (to confirm: toft agent inbox --ack {id})"),
                false => String::new(),
            };
            let subject = letter.message.subject.as_deref().map(|text| format!(" \"{}\"", clean(text)));
            let (from, subject) = (clean(&letter.from_name), subject.unwrap_or_default());
            page.line(format!("{}  {from}{subject}{ack}:", page.id(id.as_str())));
            page.block("  ", &letter.message.body);
        }
        if letters.is_empty() {
            page.line("No new messages.");
        }
    })
}
