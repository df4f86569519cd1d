//! Undo and redo: the caller's last operation, whether it can be undone, and how.
//!
//! An operation is not undone if another agent holds, finished or built upon its result. Check and change are one
//! transaction, so no other change can come between. Only changes to ledgers are undone by the caller, which then
//! records it with [`Undone`].

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext, finish, flow};
use crate::{
    change::Event,
    flow::{TaskStatus, WorkflowStatus},
    id::{OpId, TaskId, WorkflowId},
    issue::Put,
    json,
    may::May,
    refusal::{Refusal, VerbResult},
    repository::Scope,
    schema::JsonSchema,
    store::{Access, EventQuery, TaskQuery},
    token::TokenRole,
};

/// Number of events that are read; the second is used if the first is not enough.
const LOOKS: [usize; 2] = [300, 10_000];
/// The event of an operation that was undone or redone.
const UNDONE: &str = "undone";
const REDONE: &str = "redone";
/// Events that are consequences of an operation or only informational, and do not form an operation themselves.
const NO_OPERATION: [&str; 10] = [
    "issue.started",
    "issue.released",
    "issue.told",
    "issue.reverted",
    "agent.registered",
    "repository.seen",
    "message.read",
    "message.acked",
    UNDONE,
    REDONE,
];

/// The caller's last operations that can be undone, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UndoLast")]
pub struct Last {
    #[serde(default)]
    pub scope: Scope,
    /// Maximum number of operations.
    pub count: usize,
    /// Instead, operations that were undone and can be redone.
    #[serde(default)]
    pub undone: bool,
}

/// One operation, and how it is undone or redone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Undo {
    /// The operation.
    pub op: OpId,
    /// Its event name.
    pub what: String,
    /// The changed entities.
    pub entities: Vec<String>,
    /// How it is undone.
    pub way: UndoAction,
}

/// How an operation is undone or redone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "way")]
#[schemars(rename = "UndoWay")]
pub enum UndoAction {
    /// Restore the earlier values of issues.
    Issues {
        /// The issues, with their earlier values.
        issues: Vec<Before>,
    },
    /// Release leases.
    Release {
        /// Each task with the number of its fence.
        holds: Vec<(String, u64)>,
    },
    /// Abandon a workflow that was not worked on.
    Abandon { workflow: String },
    /// Restore an abandoned workflow.
    Revive { workflow: String },
    /// Resume a workflow.
    Resume { workflow: String },
    /// Pause a workflow.
    Pause { workflow: String },
    /// It cannot be undone.
    Not {
        /// The reason, and what to do instead.
        why: String,
    },
}

/// One issue before and after a write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "IssueBefore")]
pub struct Before {
    pub issue: String,
    /// The earlier values; absent if it was new.
    pub was: Option<Vec<Put>>,
    /// The written values.
    pub now: Vec<Put>,
}

impl Verb for Last {
    type Outcome = Vec<Undo>;
    const NAME: &'static str = "undo.last";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);
    const PROVES: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Undo>> {
        let mut operations: Vec<Vec<Event>> = Vec::new();
        for limit in LOOKS {
            let query = EventQuery { scope: self.scope.clone(), newest: true, limit, ..EventQuery::default() };
            let events = work.tx.events(&query)?;
            let all = events.len() < limit;
            operations = mine(events, work.actor, self.undone);
            if all || operations.len() >= self.count {
                break;
            }
        }
        operations.truncate(self.count);
        operations.into_iter().map(|events| judge(work, &events, self.undone)).collect()
    }
}

/// Undo or redo one operation: all of its changes in the store, in one transaction. Operations on ledgers are refused
/// here.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UndoTake")]
pub struct Take {
    /// The operation.
    pub op: OpId,
    #[serde(default)]
    pub scope: Scope,
    /// Redo it after it was undone.
    #[serde(default)]
    pub redo: bool,
}

impl Verb for Take {
    type Outcome = Undo;
    const NAME: &'static str = "undo.take";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);
    const ENDS: bool = true;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Undo> {
        let count = LOOKS[1];
        let query = EventQuery { scope: self.scope.clone(), newest: true, limit: count, ..EventQuery::default() };
        let events = work.tx.events(&query)?;
        let operations = mine(events, work.actor, self.redo);
        let Some(events) = operations.into_iter().find(|events| events[0].op == self.op) else {
            let what = if self.redo { "operation that was undone" } else { "operation of yours" };
            return Err(Refusal::NotFound { what: what.into(), text: self.op.to_string() }.into());
        };
        let undo = judge(work, &events, self.redo)?;
        undo.allowed()?;
        let reason = if self.redo { "redone" } else { "undone" };
        let step = |workflow: &str, to| flow::Move { id: workflow.to_owned(), to, reason: Some(reason.into()) };
        match &undo.way {
            UndoAction::Release { holds } => {
                for (task, _) in holds {
                    let fence = work.tx.lease(&TaskId::known(task.as_str()))?.map(|lease| lease.fence);
                    let request = finish::Request { id: Some(task.clone()), fence, ..finish::Request::default() };
                    finish::Request { message: reason.into(), ..request }.run(work)?;
                }
            }
            UndoAction::Abandon { workflow } => drop(step(workflow, flow::Step::Abandon).apply(work)?),
            UndoAction::Resume { workflow } => drop(step(workflow, flow::Step::Resume).apply(work)?),
            UndoAction::Pause { workflow } => drop(step(workflow, flow::Step::Pause).apply(work)?),
            UndoAction::Revive { workflow } => {
                let made = events.iter().find(|event| event.verb == "flow.new");
                let status = made.and_then(|event| WorkflowStatus::from_word(event.detail["status"].as_str()?));
                flow::restore(work, workflow, status.unwrap_or(WorkflowStatus::Running))?;
            }
            UndoAction::Issues { .. } | UndoAction::Not { .. } => {
                let why = "its ledger takes it back".to_owned();
                let (what, entity) = (undo.what.clone(), undo.entities.join(", "));
                return Err(Refusal::CannotUndo { what, entity, why }.into());
            }
        }
        record(work, &undo, self.redo)?;
        Ok(undo)
    }
}

/// Record that an operation on ledgers was undone or redone, so that the next undo skips it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UndoDone")]
pub struct Undone {
    /// The operation.
    pub undo: Undo,
    /// It was redone.
    #[serde(default)]
    pub redo: bool,
}

impl Verb for Undone {
    type Outcome = ();
    const NAME: &'static str = "undo.done";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<()> {
        record(work, &self.undo, self.redo)
    }
}

fn record(work: &mut VerbContext<'_>, undo: &Undo, redo: bool) -> VerbResult<()> {
    let detail = json!({ "what": undo.what, "of": undo.entities });
    work.record(undo.op.as_str(), if redo { REDONE } else { UNDONE }, detail, Vec::new())
}

/// Operations of an actor, newest first: those in effect, or those that were undone.
fn mine(events: Vec<Event>, actor: &str, undone: bool) -> Vec<Vec<Event>> {
    let mut taken_back: Vec<String> = Vec::new();
    for event in events.iter().filter(|event| event.actor == actor) {
        match event.verb.as_str() {
            UNDONE => taken_back.push(event.entity.clone()),
            REDONE => taken_back.retain(|op| *op != event.entity),
            _ => {}
        }
    }
    // What takes an operation back is none by itself.
    let acts: Vec<OpId> = events
        .iter()
        .filter(|event| [UNDONE, REDONE].contains(&event.verb.as_str()))
        .map(|event| event.op.clone())
        .collect();
    let mut operations: Vec<Vec<Event>> = Vec::new();
    for event in events.into_iter().rev().filter(|event| event.actor == actor) {
        match operations.last_mut().filter(|events| events[0].op == event.op) {
            Some(events) => events.push(event),
            None => operations.push(vec![event]),
        }
    }
    operations.retain(|events| {
        let op = &events[0].op;
        events.iter().any(|event| !NO_OPERATION.contains(&event.verb.as_str()))
            && !acts.contains(op)
            && taken_back.iter().any(|known| known == op.as_str()) == undone
    });
    if undone {
        // The last that was taken back is the first to be done again.
        let place = |events: &Vec<Event>| taken_back.iter().rposition(|op| *op == events[0].op.as_str());
        operations.sort_by_key(|events| std::cmp::Reverse(place(events)));
    }
    operations
}

/// Decides how one operation is undone or redone. Its events come newest first.
fn judge(work: &mut VerbContext<'_>, events: &[Event], redo: bool) -> VerbResult<Undo> {
    let of = |verb: &str| events.iter().filter(|event| event.verb == verb).collect::<Vec<_>>();
    let claims = of("claim");
    let says = events.iter().rev().find(|event| !NO_OPERATION.contains(&event.verb.as_str()));
    let first = claims.first().copied().or(says).unwrap_or(&events[0]);
    let workflow = || first.entity.clone();
    let way = match first.verb.as_str() {
        "issue.added" | "issue.edited" | "issue.deleted" | "issue.restored" => {
            match of(&first.verb).into_iter().map(before).collect() {
                Some(issues) => UndoAction::Issues { issues },
                None => not("the history does not contain the earlier value"),
            }
        }
        "claim" if redo => not("another agent may hold it; claim it again with toft claim"),
        "claim" => release(work, &claims)?,
        "flow.new" if redo => match awaited(work, first)? {
            None => UndoAction::Revive { workflow: workflow() },
            Some(why) => not(&format!("{why}; create a new one with toft flow new")),
        },
        "flow.new" => match used(work, first)? {
            None => UndoAction::Abandon { workflow: workflow() },
            Some(why) => not(&format!("{why}; toft flow abandon abandons it")),
        },
        "flow.paused" | "flow.resumed" if moved_since(work, first)? => not("another agent has changed it since"),
        "flow.paused" if !redo => UndoAction::Resume { workflow: workflow() },
        "flow.resumed" if redo => UndoAction::Resume { workflow: workflow() },
        "flow.paused" | "flow.resumed" => UndoAction::Pause { workflow: workflow() },
        "flow.abandoned" => not("its leases were revoked; create a new one with toft flow new"),
        "save" | "state" => not("others may have read it; save a new checkpoint"),
        "task.done" => {
            not("tasks that waited for it may have started; add an issue for the rest (toft add), or toft retry")
        }
        "task.failed" | "task.released" | "task.handoff" => {
            not("another agent may hold it; claim it again with toft claim")
        }
        "task.waiting" | "task.answered" => not("others may have acted on it; toft answer, toft agent send"),
        "land.landed" => not("it is in the target; toft land revert takes it back"),
        "land.bounced" | "land.approved" | "land.proposed" | "land.queued" | "land.taken" | "land.withdrawn" => {
            not("toft land and toft review go on from here")
        }
        "message.sent" => not("it may have been read; send another"),
        "ledger.imported" => not("it was merged with existing issues; toft delete deletes single issues"),
        _ => not("this operation cannot be undone"),
    };
    let entities = of(&first.verb).iter().rev().map(|event| event.entity.clone()).collect();
    Ok(Undo { op: first.op.clone(), what: first.verb.clone(), entities, way })
}

fn not(why: &str) -> UndoAction {
    UndoAction::Not { why: why.to_owned() }
}

/// Releases claims if this session still holds all of them.
fn release(work: &mut VerbContext<'_>, claims: &[&Event]) -> VerbResult<UndoAction> {
    let mut holds = Vec::new();
    for event in claims {
        let number = event.detail["fence"].as_u64().unwrap_or_default();
        let lease = work.tx.lease(&TaskId::known(event.entity.as_str()))?;
        match lease.filter(|lease| lease.fence.number == number && work.holds.contains(&lease.fence)) {
            Some(_) => holds.push((event.entity.clone(), number)),
            None => return Ok(not("this session no longer holds it")),
        }
    }
    Ok(UndoAction::Release { holds })
}

/// Why a workflow is more than its creator's own: other agents changed it, or a task outside of it waits for it.
fn used(work: &mut VerbContext<'_>, made: &Event) -> VerbResult<Option<&'static str>> {
    let id = WorkflowId::known(made.entity.as_str());
    for task in work.tx.tasks(&TaskQuery { workflow: Some(id), ..TaskQuery::default() })? {
        if task.state.fence > 0 || !matches!(task.state.status, TaskStatus::Pending | TaskStatus::Skipped) {
            return Ok(Some("an agent has worked on it"));
        }
    }
    if let Some(why) = awaited(work, made)? {
        return Ok(Some(why));
    }
    let since =
        EventQuery { entity: Some(made.entity.clone()), after: made.seq, limit: LOOKS[0], ..EventQuery::default() };
    let others = work.tx.events(&since)?.iter().any(|later| later.actor != made.actor);
    Ok(others.then_some("others have changed it"))
}

/// Whether a task outside of a workflow waits for one of its tasks: it depends on the present state of that task.
fn awaited(work: &mut VerbContext<'_>, made: &Event) -> VerbResult<Option<&'static str>> {
    let id = WorkflowId::known(made.entity.as_str());
    for task in work.tx.tasks(&TaskQuery { workflow: Some(id.clone()), ..TaskQuery::default() })? {
        for dependent in work.tx.dependents(&task.id)? {
            if work.tx.task(&dependent.task)?.is_some_and(|other| other.workflow != id) {
                return Ok(Some("something else waits for it"));
            }
        }
    }
    Ok(None)
}

/// Whether another agent, or another operation of the caller, changed the workflow since. Undoing and redoing an
/// operation does not count.
fn moved_since(work: &mut VerbContext<'_>, event: &Event) -> VerbResult<bool> {
    let query =
        EventQuery { entity: Some(event.entity.clone()), after: event.seq, limit: LOOKS[0], ..EventQuery::default() };
    let since = work.tx.events(&query)?;
    let again = |later: &Event| ["undone", "redone"].iter().any(|why| later.detail["reason"] == *why);
    let own = |later: &Event| later.op == event.op || later.actor == event.actor && again(later);
    Ok(since.iter().any(|later| later.verb.starts_with("flow.") && !own(later)))
}

fn before(event: &Event) -> Option<Before> {
    let puts = |name: &str| json::from_value(event.detail.get(name)?).ok();
    let was = if event.verb == "issue.added" { None } else { Some(puts("was")?) };
    Some(Before { issue: event.entity.clone(), was, now: puts("now")? })
}

impl Undo {
    /// Refuses an operation that cannot be undone.
    pub fn allowed(&self) -> Result<(), Refusal> {
        match &self.way {
            UndoAction::Not { why } => {
                Err(Refusal::CannotUndo { what: self.what.clone(), entity: self.entities.join(", "), why: why.clone() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        flow::PlanTask,
        testing::{Stage, plan_tasks, seeded_ids},
        verbs::{Caller, claim::Claimed, perform, replan},
    };

    fn last(stage: &Stage, actor: &str, count: usize, undone: bool) -> Undo {
        let mut undos = stage.perform(actor, Last { scope: stage.scope(), count, undone }).unwrap();
        assert_eq!(undos.len(), count);
        undos.remove(count - 1)
    }

    fn take(stage: &Stage, actor: &str, undo: Undo, redo: bool) -> VerbResult<Undo> {
        stage.perform(actor, Take { op: undo.op, scope: stage.scope(), redo })
    }

    fn give_back(stage: &Stage, claimed: &Claimed) {
        let request = finish::Request { id: Some(claimed.task.id.to_string()), ..finish::Request::default() };
        stage.finish("ann", request).unwrap();
    }

    #[test]
    fn undo_is_no_operation_of_its_own() {
        let stage = Stage::memory();
        let kept = stage.flow("Keep", &["a"]).workflow.id.to_string();
        stage.flow("Drop", &["b"]);
        take(&stage, "planner", last(&stage, "planner", 1, false), false).unwrap();
        assert_eq!(last(&stage, "planner", 1, false).way, UndoAction::Abandon { workflow: kept });
    }

    #[test]
    fn undone_claim_is_not_redone_but_made_again() {
        let stage = Stage::memory();
        stage.flow("Ship", &["build"]);
        stage.claim("ann").unwrap();
        take(&stage, "ann", last(&stage, "ann", 1, false), false).unwrap();
        let undo = last(&stage, "ann", 1, true);
        assert!(matches!(&undo.way, UndoAction::Not { why } if why.contains("toft claim")), "{undo:?}");
        assert!(take(&stage, "ann", undo, true).is_err());
    }

    #[test]
    fn earlier_claim_does_not_give_back_a_later_one() {
        let stage = Stage::memory();
        stage.flow("Ship", &["build"]);
        give_back(&stage, &stage.claim("ann").unwrap());
        stage.claim("ann").unwrap();
        assert!(take(&stage, "ann", last(&stage, "ann", 3, false), false).is_err());
        assert_eq!(stage.holds("ann").len(), 1);
    }

    #[test]
    fn claim_of_another_session_is_not_given_back() {
        let stage = Stage::memory();
        stage.flow("Ship", &["build"]);
        stage.claim("ann").unwrap();
        let mut caller = Caller {
            actor: "ann",
            place: stage.place.clone(),
            ids: &mut seeded_ids(9),
            processes: &stage.processes,
            policy: &stage.policy,
            holds: &[],
            role: None,
            token: None,
            op: None,
        };
        let verb = Last { scope: stage.scope(), count: 1, undone: false };
        let undo = perform(stage.store.as_ref(), &mut caller, verb).unwrap().remove(0);
        assert!(matches!(undo.way, UndoAction::Not { .. }), "{undo:?}");
    }

    #[test]
    fn workflow_that_was_worked_on_is_not_undone() {
        let stage = Stage::memory();
        stage.flow("Ship", &["build"]);
        give_back(&stage, &stage.claim("ann").unwrap());
        let undo = last(&stage, "planner", 1, false);
        assert!(matches!(undo.way, UndoAction::Not { .. }), "it is ready again: {undo:?}");
    }

    #[test]
    fn workflow_with_a_skipped_task_is_undone_and_an_abandoned_one_is_not() {
        let stage = Stage::memory();
        let made = stage.flow("Ship", &["build", "test"]);
        let task = made.tasks[0].id.to_string();
        stage.perform("planner", replan::Decide { task, retry: false, reason: "no".into() }).unwrap();
        assert!(matches!(last(&stage, "planner", 2, false).way, UndoAction::Abandon { .. }));
        let id = made.workflow.id.to_string();
        stage.perform("planner", flow::Move { id, to: flow::Step::Abandon, reason: None }).unwrap();
        assert!(matches!(last(&stage, "planner", 3, false).way, UndoAction::Not { .. }));
    }

    #[test]
    fn workflow_is_undone_until_another_agent_changes_it() {
        let stage = Stage::memory();
        let workflow = stage.flow("Ship", &["build"]).workflow.id.to_string();
        let add = |actor: &str, name: &str| {
            let tasks: Vec<PlanTask> = plan_tasks(&[name]);
            stage.perform(actor, replan::Add { workflow: workflow.clone(), tasks }).unwrap();
        };
        let way = |count: usize| last(&stage, "planner", count, false).way;
        add("planner", "test");
        assert!(matches!(way(2), UndoAction::Abandon { .. }));
        add("other", "document");
        assert!(matches!(way(2), UndoAction::Not { .. }));
    }
}
