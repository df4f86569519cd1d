//! Gates: conditions, other than tasks, that a waiting task waits for.

use serde::{Deserialize, Serialize};

use crate::{
    id::{GateId, TaskId},
    repository::Place,
    schema::JsonSchema,
    time::Timestamp,
};

/// A condition that must be met before a waiting task continues. It remains when the agent that asked is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// Stable id.
    pub id: GateId,
    /// The task that waits.
    pub task: TaskId,
    /// The condition.
    #[serde(flatten)]
    pub kind: GateKind,
    /// Name of the agent that created it.
    pub asked_by: String,
    /// Where it was created.
    pub place: Place,
    pub created: Timestamp,
    /// How and when it opened; absent while it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened: Option<Opened>,
}

/// What a gate waits for. Waiting for another task is a dependency, not a gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum GateKind {
    /// A person's answer.
    Human {
        question: String,
        /// Answers that the agent proposes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        choices: Vec<String>,
    },
    /// A time; the gate opens automatically.
    Timer {
        /// The time.
        until: Timestamp,
    },
    /// A command that must succeed. The process that runs it reports success with the verb that a person answers with.
    Command {
        /// The command line.
        command: String,
    },
}

/// How a gate opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Opened {
    /// When it opened.
    pub at: Timestamp,
    /// The agent that opened it.
    pub by: String,
    pub answer: String,
}

impl Gate {
    /// Does it still hold the task back?
    #[must_use]
    pub fn closed(&self, now: Timestamp) -> bool {
        self.opened.is_none()
            && match self.kind {
                GateKind::Timer { until } => now < until,
                GateKind::Human { .. } | GateKind::Command { .. } => true,
            }
    }

    /// Does it wait for somebody to open it?
    #[must_use]
    pub fn asks(&self) -> bool {
        self.opened.is_none() && !matches!(self.kind, GateKind::Timer { .. })
    }

    /// When it opens by itself, if it does.
    #[must_use]
    pub fn opens_at(&self) -> Option<Timestamp> {
        match self.kind {
            _ if self.opened.is_some() => Some(Timestamp(0)),
            GateKind::Timer { until } => Some(until),
            GateKind::Human { .. } | GateKind::Command { .. } => None,
        }
    }
}

impl std::fmt::Display for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            GateKind::Human { question, .. } => write!(f, "an answer to \"{question}\" ({})", self.id),
            GateKind::Timer { until } => write!(f, "{until}"),
            GateKind::Command { command } => write!(f, "`{command}` to succeed ({})", self.id),
        }
    }
}
