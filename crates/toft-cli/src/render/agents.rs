//! Agents and messages.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};
use toft::{
    agent::{Agent, AgentState, Presence, Role},
    change::Event,
    message::{DeliveryState, InboxItem, Message},
    verbs::agent::Listed,
};

use super::{
    View, data,
    page::{Ink, Page, clean, short},
};

pub(crate) struct AgentView(pub(crate) Agent);

impl View for AgentView {
    fn kind(&self) -> &'static str {
        "agent"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.name.clone()]
    }

    fn text(&self, page: &mut Page) {
        let Agent { id, name, role, capabilities, state, .. } = &self.0;
        let can =
            if capabilities.is_empty() { String::new() } else { format!(", can {}", clean(&capabilities.join(", "))) };
        page.line(format!("{} ({id}) is {}, {role}{can}", clean(name), word(*state)));
    }
}

fn word(state: AgentState) -> &'static str {
    match state {
        AgentState::Active => "active",
        AgentState::Draining => "paused: it claims nothing new",
        AgentState::Gone => "removed",
    }
}

pub(crate) struct AgentList(pub(crate) Vec<Listed>);

impl View for AgentList {
    fn kind(&self) -> &'static str {
        "agents"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|row| row.agent.name.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        let machines: BTreeSet<&str> = self.0.iter().map(|row| row.agent.machine_name()).collect();
        for Listed { agent, presence, holds, silent_s } in &self.0 {
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
                role => format!("  {role}"),
            };
            let machine = match machines.len() {
                0 | 1 => String::new(),
                _ => format!("  on {}", clean(agent.machine_name())),
            };
            page.line(format!(
                "{}{role}  {doing}{machine}  {}",
                page.ink(Ink::Id, &clean(&agent.name)),
                page.ink(Ink::Faint, &format!("seen {}", toft::time::ago(Duration::from_secs(*silent_s))))
            ));
        }
        if self.0.is_empty() {
            page.line("No agents yet. Claiming registers one.");
        }
    }
}

pub(crate) struct Sent(pub(crate) Message);

impl View for Sent {
    fn kind(&self) -> &'static str {
        "message"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.id.to_string()]
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("Sent {}", self.0.id));
    }
}

/// An agent whose rest a person ended.
pub(crate) struct RestEnded(pub(crate) String);

impl View for RestEnded {
    fn kind(&self) -> &'static str {
        "rest_ended"
    }

    fn json(&self) -> Value {
        json!({ "agent": self.0 })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.clone()]
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("{} rests no longer; its runners go on.", clean(&self.0)));
    }
}

/// Agents that were paused or resumed.
pub(crate) struct AgentsTold(pub(crate) Vec<Agent>);

impl View for AgentsTold {
    fn kind(&self) -> &'static str {
        "agents"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|agent| agent.name.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        let names: Vec<String> = self.0.iter().map(|agent| clean(&agent.name)).collect();
        let paused = self.0.iter().any(|agent| agent.state == AgentState::Draining);
        let note = self.0.iter().find_map(|agent| agent.note.as_deref());
        let note = note.map(|note| format!(" ({})", short(note, 80))).unwrap_or_default();
        page.line(match paused {
            _ if names.is_empty() => "Nothing changed: toft agent list shows who is paused.".to_owned(),
            true => {
                format!("Paused {}{note}. What they hold they finish; toft resume lets them go on.", names.join(", "))
            }
            false => format!("Resumed {}.", names.join(", ")),
        });
    }
}

/// A message to the agent on a task.
pub(crate) struct Told {
    pub(crate) message: Message,
    /// The event of its delivery.
    pub(crate) read: Option<Event>,
}

impl View for Told {
    fn kind(&self) -> &'static str {
        "tell"
    }

    fn json(&self) -> Value {
        let (by, at) = self.read.as_ref().map(|event| (&event.actor, event.at)).unzip();
        json!({ "message": self.message, "delivered": self.read.is_some(), "read_by": by, "read_at": at })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.message.id.to_string()]
    }

    fn text(&self, page: &mut Page) {
        page.line(match &self.read {
            Some(event) => format!("Delivered to {} at {}.", clean(&event.actor), page.moment(event.at)),
            None => format!("Sent, not read yet; toft history {} shows when it is.", self.message.id),
        });
    }
}

pub(crate) struct Inbox {
    pub(crate) letters: Vec<InboxItem>,
    /// They were confirmed just now.
    pub(crate) confirmed: bool,
}

impl View for Inbox {
    fn kind(&self) -> &'static str {
        "messages"
    }

    fn json(&self) -> Value {
        data(&self.letters)
    }

    fn ids(&self) -> Vec<String> {
        self.letters.iter().map(|letter| letter.message.id.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        for letter in &self.letters {
            if self.confirmed {
                page.line(format!("Confirmed {} from {}", letter.message.id, clean(&letter.from_name)));
                continue;
            }
            let id = &letter.message.id;
            let ack = match letter.message.needs_ack && letter.state != DeliveryState::Acked {
                true => format!(" (to confirm: toft agent inbox --ack {id})"),
                false => String::new(),
            };
            let subject = letter.message.subject.as_deref().map(|text| format!(" \"{}\"", clean(text)));
            page.line(format!(
                "{}  {}{}{ack}:",
                page.ink(Ink::Id, letter.message.id.as_str()),
                clean(&letter.from_name),
                subject.unwrap_or_default()
            ));
            page.block("  ", &letter.message.body);
        }
        if self.letters.is_empty() {
            page.line("No new messages.");
        }
    }
}
