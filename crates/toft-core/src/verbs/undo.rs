//! Undo: which operation was the caller's last, and how it is taken back, if it can be.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Verb, Work};
use crate::{
    change::Event,
    id::{OpId, WorkflowId},
    issue::Put,
    lease::Fence,
    refusal::{Refusal, Verdict},
    repository::Scope,
    store::{Access, EventQuery, TaskQuery},
};

/// How far back in history a look goes: a little at first.
const LOOKS: [usize; 2] = [300, 10_000];
/// What history says when an operation was taken back.
const UNDONE: &str = "undone";
/// What follows from an operation, or only takes notice, and is none of its own.
const NO_OPERATION: [&str; 9] = [
    "issue.started",
    "issue.released",
    "issue.told",
    "issue.reverted",
    "agent.registered",
    "repository.seen",
    "message.read",
    "message.acked",
    UNDONE,
];

/// The caller's last operations that were not taken back, newest first.
#[derive(Clone, Debug)]
pub struct Last {
    /// From where.
    pub scope: Scope,
    /// At most so many.
    pub count: usize,
}

/// One operation, and how it is taken back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Undo {
    /// The operation.
    pub op: OpId,
    /// What it did, in the words of history.
    pub what: String,
    /// To what.
    pub entities: Vec<String>,
    /// What takes it back.
    pub way: Way,
}

/// What takes an operation back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "way")]
pub enum Way {
    /// Issues become what they were.
    Issues {
        /// Which, and what they were.
        issues: Vec<Before>,
    },
    /// Holds are given back.
    Release {
        /// Each task with the fence it is held under.
        holds: Vec<(String, Fence)>,
    },
    /// A workflow that nobody worked on is given up.
    Abandon {
        /// Which.
        workflow: String,
    },
    /// A workflow goes on.
    Resume {
        /// Which.
        workflow: String,
    },
    /// A workflow offers nothing new.
    Pause {
        /// Which.
        workflow: String,
    },
    /// It stays.
    Not {
        /// Why, and what to do instead.
        why: String,
    },
}

/// One issue before something was written about it, and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// Which.
    pub issue: String,
    /// What was there; nothing if it was new.
    pub was: Option<Vec<Put>>,
    /// What was written.
    pub now: Vec<Put>,
}

impl Verb for Last {
    type Outcome = Vec<Undo>;
    const NAME: &'static str = "undo.last";
    const ACCESS: Access = Access::Read;

    fn run(self, work: &mut Work<'_>) -> Verdict<Vec<Undo>> {
        let mut operations: Vec<Vec<Event>> = Vec::new();
        for limit in LOOKS {
            let query = EventQuery { scope: self.scope.clone(), newest: true, limit, ..EventQuery::default() };
            let events = work.tx.events(&query)?;
            let all = events.len() < limit;
            operations = mine(events, work.actor);
            if all || operations.len() >= self.count {
                break;
            }
        }
        operations.truncate(self.count);
        operations.into_iter().map(|events| undo(work, &events)).collect()
    }
}

/// Operations of an actor that were not taken back, newest first.
fn mine(events: Vec<Event>, actor: &str) -> Vec<Vec<Event>> {
    let undone: Vec<String> = events
        .iter()
        .filter(|event| event.verb == UNDONE)
        .flat_map(|event| {
            let by = event.detail["by"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
            by.chain([event.entity.clone()]).collect::<Vec<_>>()
        })
        .collect();
    let mut operations: Vec<Vec<Event>> = Vec::new();
    for event in events.into_iter().rev().filter(|event| event.actor == actor) {
        match operations.last_mut().filter(|events| events[0].op == event.op) {
            Some(events) => events.push(event),
            None => operations.push(vec![event]),
        }
    }
    operations.retain(|events| {
        events.iter().any(|event| !NO_OPERATION.contains(&event.verb.as_str()))
            && !undone.iter().any(|op| *op == events[0].op.as_str())
    });
    operations
}

/// How one operation is taken back. Its events come newest first.
fn undo(work: &mut Work<'_>, events: &[Event]) -> Verdict<Undo> {
    let of = |verb: &str| events.iter().filter(|event| event.verb == verb).collect::<Vec<_>>();
    let claims = of("claim");
    let says = events.iter().rev().find(|event| !NO_OPERATION.contains(&event.verb.as_str()));
    let first = claims.first().copied().or(says).unwrap_or(&events[0]);
    let way = match first.verb.as_str() {
        "issue.added" | "issue.edited" | "issue.deleted" | "issue.restored" => {
            match of(&first.verb).into_iter().map(before).collect() {
                Some(issues) => Way::Issues { issues },
                None => not("history does not say what was there before"),
            }
        }
        "claim" => match claims.iter().map(|event| hold(event)).collect() {
            Some(holds) => Way::Release { holds },
            None => not("history does not say under which fence"),
        },
        "flow.new" if untouched(work, &first.entity)? => Way::Abandon { workflow: first.entity.clone() },
        "flow.new" => not("somebody worked on it; toft flow abandon gives it up with what was done"),
        "flow.paused" => Way::Resume { workflow: first.entity.clone() },
        "flow.resumed" => Way::Pause { workflow: first.entity.clone() },
        "flow.abandoned" => not("holds were revoked; toft flow new plans it anew"),
        "save" | "state" => not("others may have read it; save what is true now"),
        "task.done" => {
            not("what waited for it may have started; write down what is left (toft add), or toft flow retry")
        }
        "task.failed" | "task.released" | "task.handoff" => {
            not("somebody else may hold it by now; toft claim takes it again")
        }
        "task.waiting" | "task.answered" => not("others may have acted on it; toft agent answer, toft agent send"),
        "message.sent" => not("it may have been read; send another"),
        "ledger.imported" => not("it was merged with what was there; toft delete takes single issues away"),
        _ => not("there is no way back; do the opposite by hand"),
    };
    let entities = of(&first.verb).iter().rev().map(|event| event.entity.clone()).collect();
    Ok(Undo { op: first.op.clone(), what: first.verb.clone(), entities, way })
}

fn not(why: &str) -> Way {
    Way::Not { why: why.to_owned() }
}

fn hold(event: &Event) -> Option<(String, Fence)> {
    Some((event.entity.clone(), event.detail["fence"].as_str()?.parse().ok()?))
}

fn before(event: &Event) -> Option<Before> {
    let puts = |name: &str| serde_json::from_value(event.detail.get(name)?.clone()).ok();
    let was = if event.verb == "issue.added" { None } else { Some(puts("was")?) };
    Some(Before { issue: event.entity.clone(), was, now: puts("now")? })
}

/// Has nobody ever held a task of it?
fn untouched(work: &mut Work<'_>, workflow: &str) -> Verdict<bool> {
    let all = TaskQuery { workflow: Some(WorkflowId::known(workflow)), ..TaskQuery::default() };
    Ok(work.tx.tasks(&all)?.iter().all(|task| task.state.attempt == 0))
}

impl Undo {
    /// What can be taken back; a refusal for what cannot.
    pub fn allowed(&self) -> Result<(), Refusal> {
        match &self.way {
            Way::Not { why } => {
                Err(Refusal::CannotUndo { what: self.what.clone(), entity: self.entities.join(", "), why: why.clone() })
            }
            _ => Ok(()),
        }
    }
}

/// An operation was taken back: history says so, and the next undo goes past it.
#[derive(Clone, Debug)]
pub struct Undone {
    /// Which.
    pub undo: Undo,
    /// By which operations.
    pub by: Vec<OpId>,
}

impl Verb for Undone {
    type Outcome = ();
    const NAME: &'static str = "undo.done";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut Work<'_>) -> Verdict<()> {
        let detail = json!({ "what": self.undo.what, "of": self.undo.entities, "by": self.by });
        work.did(self.undo.op.as_str(), UNDONE, detail, Vec::new())
    }
}
