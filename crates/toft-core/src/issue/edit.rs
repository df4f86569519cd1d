//! The edits of an issue that are allowed, and their consequences.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    BLOCKS, CLOSED, Closed, Comment, DEFERRED, Deleted, Dep, IN_PROGRESS, Issue, NO_AUTO_CLAIM, OPEN, Put,
    proposal::ProposalSide, ready::Nodes,
};
use crate::{
    json,
    refusal::{Refusal, VerbResult},
    store::StoreError,
    time::Timestamp,
};

/// A requested change. Absent fields stay; empty ones are removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    pub title: Option<String>,
    /// task, bug, feature, epic, chore, decision, or any word.
    pub kind: Option<String>,
    /// 0 is most urgent.
    pub priority: Option<u8>,
    /// Texts, by field: body, design, acceptance, notes, assignee, owner, template.
    pub texts: Vec<(&'static str, String)>,
    /// Labels to add.
    pub labels: Vec<String>,
    /// Labels to remove.
    pub unlabel: Vec<String>,
    /// Issues that it needs from now on.
    pub needs: Vec<String>,
    /// Issues that it no longer needs.
    pub unneeds: Vec<String>,
    /// Other relations to add.
    pub relates: Vec<Dep>,
    pub parent: Option<String>,
    /// Defers it until this time; an inner `None` removes the deferral.
    pub defer: Option<Option<Timestamp>>,
    /// The due date.
    pub due: Option<Timestamp>,
    /// The agent it is assigned to; an inner `None` removes the assignment.
    pub assignee: Option<Option<String>>,
    /// A comment to add.
    pub comment: Option<String>,
    /// The status change.
    pub status: Option<Step>,
}

/// A status change that a user can request.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Open it again.
    Reopen,
    /// Close it.
    Close { reason: String },
}

/// The caller, the time, and an id for a comment.
#[derive(Clone, Debug)]
pub struct By<'a> {
    /// The caller.
    pub actor: &'a str,
    /// The time.
    pub now: Timestamp,
    /// The id of a new comment.
    pub word: &'a str,
}

impl By<'_> {
    fn stamp(&self) -> Value {
        json!({ "at": self.now, "by": self.actor })
    }
}

fn invalid(field: &str, problem: impl Into<String>) -> Refusal {
    Refusal::Invalid { field: field.into(), problem: problem.into() }
}

fn text(value: &str) -> Option<Value> {
    (!value.is_empty()).then(|| value.into())
}

pub(super) fn told(value: &impl Serialize) -> VerbResult<Value> {
    json::to_value(value)
        .map_err(|error| StoreError::Failed { doing: "write an issue".into(), cause: error.to_string() }.into())
}

/// The writes that create an issue.
pub fn create<N: Nodes<Error = StoreError>>(nodes: &mut N, id: &str, edit: &Edit, by: &By<'_>) -> VerbResult<Vec<Put>> {
    if edit.title.as_ref().is_none_or(|title| title.trim().is_empty()) {
        return Err(invalid("title", "an issue needs a title").into());
    }
    let blank = Issue { id: id.to_owned(), kind: "task".into(), status: OPEN.into(), priority: 2, ..Issue::default() };
    let mut puts = vec![
        Put::Field("type".into(), Some("task".into())),
        Put::Field("status".into(), Some(OPEN.into())),
        Put::Field("priority".into(), Some(2.into())),
        Put::Field("created".into(), Some(by.stamp())),
    ];
    puts.extend(change(nodes, &blank, edit, by)?);
    Ok(puts)
}

/// The writes of an edit.
pub fn change<N: Nodes<Error = StoreError>>(
    nodes: &mut N,
    issue: &Issue,
    edit: &Edit,
    by: &By<'_>,
) -> VerbResult<Vec<Put>> {
    if issue.deleted.is_some() {
        return Err(deleted(issue).into());
    }
    let mut puts = Vec::new();
    if let Some(title) = &edit.title {
        if title.trim().is_empty() {
            return Err(invalid("title", "an issue needs a title").into());
        }
        if *title != issue.title {
            puts.push(Put::Field("title".into(), text(title)));
        }
    }
    if let Some(kind) = edit.kind.as_ref().filter(|kind| **kind != issue.kind) {
        check_word("type", kind)?;
        puts.push(Put::Field("type".into(), text(kind)));
    }
    if let Some(priority) = edit.priority.filter(|priority| *priority != issue.priority) {
        if priority > 4 {
            return Err(invalid("priority", "priorities go from 0 to 4").into());
        }
        puts.push(Put::Field("priority".into(), Some(priority.into())));
    }
    puts.extend(edit.texts.iter().map(|(field, value)| Put::Field((*field).into(), text(value))));
    for label in &edit.labels {
        check_word("label", label)?;
        if !issue.labels.contains(label) {
            puts.push(Put::Label(label.clone(), true));
        }
    }
    puts.extend(
        edit.unlabel.iter().filter(|label| issue.labels.contains(label)).map(|label| Put::Label(label.clone(), false)),
    );
    relations(nodes, issue, edit, &mut puts)?;
    if let Some(defer) = edit.defer {
        puts.push(Put::Field("defer_until".into(), defer.as_ref().map(told).transpose()?));
        let status = match defer {
            Some(_) if issue.status == OPEN => Some(DEFERRED),
            None if issue.status == DEFERRED => Some(OPEN),
            _ => None,
        };
        puts.extend(status.map(|status| Put::Field("status".into(), Some(status.into()))));
    }
    if let Some(due) = edit.due {
        puts.push(Put::Field("due".into(), Some(told(&due)?)));
    }
    if let Some(to) = &edit.assignee {
        puts.extend(assign(issue, to.as_deref())?);
    }
    if let Some(said) = edit.comment.as_ref().filter(|said| !said.trim().is_empty()) {
        let id = by.word.to_owned();
        puts.push(Put::Comment(Comment { id, at: by.now, by: by.actor.to_owned(), text: said.clone() }));
    }
    match &edit.status {
        Some(Step::Close { reason }) => puts.extend(close(issue, reason, None, by)?),
        Some(Step::Reopen) => puts.extend(reopen(issue)),
        None => {}
    }
    let own = |put: &Put| match put {
        Put::Field(name, _) => name == "notes",
        Put::Comment(_) | Put::Unsay(_) => true,
        Put::Label(..) | Put::Dep(..) => false,
    };
    if !puts.iter().all(own) {
        refuse_mirror(issue)?;
    }
    Ok(puts)
}

/// Refuses to change a mirror: the issue was accepted into another ledger and is changed there.
fn refuse_mirror(issue: &Issue) -> VerbResult<()> {
    if ProposalSide::of(issue) != ProposalSide::Mirror {
        return Ok(());
    }
    let to = issue.origin.as_ref().map(|origin| origin.to.clone()).unwrap_or_default();
    let state = format!("accepted, and follows the ledger `{to}`");
    let wanted = "notes and comments stay yours; the rest is changed there".into();
    Err(Refusal::WrongState { id: issue.id.clone(), state, wanted }.into())
}

/// Writes dependencies, other relations and the parent; refuses cycles.
fn relations<N: Nodes<Error = StoreError>>(
    nodes: &mut N,
    issue: &Issue,
    edit: &Edit,
    puts: &mut Vec<Put>,
) -> VerbResult<()> {
    let needs = edit.needs.iter().map(|on| Dep { on: on.clone(), kind: BLOCKS.into() });
    for dep in needs.chain(edit.relates.iter().cloned()) {
        if dep.on.is_empty() {
            return Err(invalid("related", "an issue must be named").into());
        }
        if dep.blocks() {
            refuse_own_whole(nodes, issue, &dep.on)?;
            refuse_cycle(nodes, &issue.id, &dep.on)?;
        }
        if !issue.deps.contains(&dep) {
            puts.push(Put::Dep(dep, true));
        }
    }
    for dep in issue.deps.iter().filter(|dep| dep.blocks() && edit.unneeds.contains(&dep.on)) {
        puts.push(Put::Dep(dep.clone(), false));
    }
    if let Some(parent) = edit.parent.as_ref().filter(|parent| issue.parent.as_ref() != Some(parent)) {
        if !parent.is_empty() {
            let mut line = vec![issue.id.clone()];
            let mut next = Some(parent.clone());
            while let Some(id) = next {
                if line.contains(&id) {
                    line.push(id);
                    return Err(Refusal::Cycle { path: line }.into());
                }
                if issue.blockers().chain(edit.needs.iter().map(String::as_str)).any(|on| on == id) {
                    line.extend([id, issue.id.clone()]);
                    return Err(Refusal::Cycle { path: line }.into());
                }
                let above = nodes.node(&id)?;
                for on in above.iter().flat_map(|node| &node.needs) {
                    refuse_cycle(nodes, &issue.id, on)?;
                }
                next = above.and_then(|node| node.parent);
                line.push(id);
            }
        }
        puts.push(Put::Field("parent".into(), text(parent)));
    }
    Ok(())
}

/// Refuses a dependency of a part on its parent: a parent waits for its parts.
fn refuse_own_whole<N: Nodes<Error = StoreError>>(nodes: &mut N, issue: &Issue, on: &str) -> VerbResult<()> {
    let mut line = vec![issue.id.clone()];
    let mut next = issue.parent.clone();
    while let Some(id) = next.filter(|id| !line.contains(id)) {
        line.push(id.clone());
        if id == on {
            line.push(issue.id.clone());
            return Err(Refusal::Cycle { path: line }.into());
        }
        next = nodes.node(&id)?.and_then(|node| node.parent);
    }
    Ok(())
}

/// Refuses a dependency of `id` on `on` that would create a cycle. An issue inherits the dependencies of its parents.
fn refuse_cycle<N: Nodes<Error = StoreError>>(nodes: &mut N, id: &str, on: &str) -> VerbResult<()> {
    let mut came_from: BTreeMap<String, String> = BTreeMap::from([(on.to_owned(), id.to_owned())]);
    let mut next = vec![on.to_owned()];
    while let Some(at) = next.pop() {
        if at == id {
            return Err(Refusal::Cycle { path: path(&came_from, id, on) }.into());
        }
        let Some(node) = nodes.node(&at)? else { continue };
        for ahead in node.needs.into_iter().chain(node.parent) {
            if !came_from.contains_key(&ahead) {
                came_from.insert(ahead.clone(), at.clone());
                next.push(ahead);
            }
        }
    }
    Ok(())
}

/// The path of the cycle.
fn path(came_from: &BTreeMap<String, String>, id: &str, on: &str) -> Vec<String> {
    let mut path = vec![id.to_owned()];
    let mut at = id;
    while let Some(before) = came_from.get(at).filter(|_| at != on || path.len() == 1) {
        path.push(before.clone());
        at = before;
    }
    path.push(id.to_owned());
    path.dedup();
    path.reverse();
    path
}

fn check_word(field: &str, word: &str) -> VerbResult<()> {
    let plain =
        !word.is_empty() && word.len() <= 100 && !word.chars().any(|c| c.is_control() || c.is_whitespace() || c == ',');
    if plain { Ok(()) } else { Err(invalid(field, format!("`{word}` is not a single word")).into()) }
}

fn deleted(issue: &Issue) -> Refusal {
    Refusal::WrongState {
        id: issue.id.clone(),
        state: "deleted".into(),
        wanted: "reopen it first (toft reopen)".into(),
    }
}

/// Somebody is on it now.
#[must_use]
pub fn start(issue: &Issue, agent: &str) -> Vec<Put> {
    let mut puts = Vec::new();
    match issue.status.as_str() {
        _ if issue.deleted.is_some() => return puts,
        OPEN | DEFERRED => puts.push(Put::Field("status".into(), Some(IN_PROGRESS.into()))),
        IN_PROGRESS => {}
        _ => return puts,
    }
    if issue.assignee.as_deref() != Some(agent) {
        puts.push(Put::Field("assignee".into(), text(agent)));
    }
    puts
}

/// The writes that assign it while it is not in progress.
pub fn assign(issue: &Issue, to: Option<&str>) -> VerbResult<Vec<Put>> {
    if issue.deleted.is_some() {
        return Err(deleted(issue).into());
    }
    refuse_mirror(issue)?;
    if ![OPEN, DEFERRED].contains(&issue.status.as_str()) {
        let (id, state) = (issue.id.clone(), issue.status.clone());
        let wanted = "only open work that nobody holds is assigned".into();
        return Err(Refusal::WrongState { id, state, wanted }.into());
    }
    Ok(match issue.assignee.as_deref() == to {
        true => Vec::new(),
        false => vec![Put::Field("assignee".into(), to.and_then(text))],
    })
}

/// The writes that close it.
pub fn close(issue: &Issue, reason: &str, outcome: Option<Value>, by: &By<'_>) -> VerbResult<Vec<Put>> {
    if issue.status == CLOSED {
        return Ok(Vec::new());
    }
    let closed = Closed { at: by.now, by: by.actor.to_owned(), reason: reason.to_owned(), outcome, with_parts: false };
    Ok(vec![Put::Field("status".into(), Some(CLOSED.into())), Put::Field("closed".into(), Some(told(&closed)?))])
}

/// Nobody is on it any more. What somebody else decided meanwhile stands.
#[must_use]
pub fn give_back(issue: &Issue) -> Vec<Put> {
    if issue.status == IN_PROGRESS { reopen(issue) } else { Vec::new() }
}

/// It was tried and failed for good: it is open again, says why, and nobody takes it unasked before a person decided.
#[must_use]
pub fn park(issue: &Issue, reason: &str, by: &By<'_>) -> Vec<Put> {
    let mut puts = give_back(issue);
    let known = issue.comments.iter().any(|comment| comment.id == by.word);
    if issue.unfinished() && !known {
        if !issue.labels.iter().any(|label| label == NO_AUTO_CLAIM) {
            puts.push(Put::Label(NO_AUTO_CLAIM.to_owned(), true));
        }
        puts.push(comment(&format!("Failed for good: {reason}"), by));
    }
    puts
}

/// A comment; the same word writes it once.
#[must_use]
pub fn comment(text: &str, by: &By<'_>) -> Put {
    Put::Comment(Comment { id: by.word.to_owned(), at: by.now, by: by.actor.to_owned(), text: text.to_owned() })
}

/// It is to be done after all.
#[must_use]
pub fn reopen(issue: &Issue) -> Vec<Put> {
    if issue.status == OPEN {
        return Vec::new();
    }
    vec![
        Put::Field("status".into(), Some(OPEN.into())),
        Put::Field("closed".into(), None),
        Put::Field("assignee".into(), None),
    ]
}

/// A tombstone. It wins over every edit that was made without knowledge of it.
pub fn delete(issue: &Issue, reason: &str, by: &By<'_>) -> VerbResult<Vec<Put>> {
    if issue.deleted.is_some() {
        return Ok(Vec::new());
    }
    refuse_mirror(issue)?;
    let deleted = Deleted { at: by.now, by: by.actor.to_owned(), reason: reason.to_owned() };
    Ok(vec![Put::Field("deleted".into(), Some(told(&deleted)?))])
}

/// Reverts a deletion.
pub fn restore(issue: &Issue) -> VerbResult<Vec<Put>> {
    match &issue.deleted {
        Some(deleted) if deleted.reason == PURGED => {
            let (id, state) = (issue.id.clone(), "purged: its text is gone".into());
            Err(Refusal::WrongState { id, state, wanted: "write it down anew (toft add)".into() }.into())
        }
        Some(_) => Ok(vec![Put::Field("deleted".into(), None)]),
        None => Ok(Vec::new()),
    }
}

/// The deletion reason of an issue whose text was purged from history.
pub const PURGED: &str = "purged";

/// The current values of everything that is about to be written: writing them again reverts it.
pub fn before(issue: &Issue, puts: &[Put]) -> VerbResult<Vec<Put>> {
    let fields = told(issue)?;
    Ok(puts
        .iter()
        .map(|put| match put {
            Put::Field(name, _) => Put::Field(name.clone(), fields.get(name.as_ref()).cloned()),
            Put::Label(word, _) => Put::Label(word.clone(), issue.labels.contains(word)),
            Put::Dep(dep, _) => Put::Dep(dep.clone(), issue.deps.contains(dep)),
            Put::Comment(said) => Put::Unsay(said.id.clone()),
            Put::Unsay(id) => match issue.comments.iter().find(|said| said.id == *id) {
                Some(said) => Put::Comment(said.clone()),
                None => Put::Unsay(id.clone()),
            },
        })
        .collect())
}

/// Whether an issue still has the values that were written.
pub fn stands(issue: &Issue, puts: &[Put]) -> VerbResult<bool> {
    let fields = told(issue)?;
    Ok(puts.iter().all(|put| match put {
        Put::Field(name, value) => fields.get(name.as_ref()) == value.as_ref(),
        Put::Label(word, there) => issue.labels.contains(word) == *there,
        Put::Dep(dep, there) => issue.deps.contains(dep) == *there,
        Put::Comment(said) => issue.comments.contains(said),
        Put::Unsay(id) => issue.comments.iter().all(|said| said.id != *id),
    }))
}

/// The writes that restore the earlier values of an issue; refuses cycles.
pub fn take_back<N: Nodes<Error = StoreError>>(nodes: &mut N, issue: &Issue, was: &[Put]) -> VerbResult<Vec<Put>> {
    let mut edit = Edit::default();
    for put in was {
        match put {
            Put::Dep(dep, true) => edit.relates.push(dep.clone()),
            Put::Field(name, Some(Value::String(parent))) if name == "parent" => edit.parent = Some(parent.clone()),
            _ => {}
        }
    }
    relations(nodes, issue, &edit, &mut Vec::new())?;
    Ok(was.to_vec())
}
