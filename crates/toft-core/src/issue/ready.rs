//! The ready rule for issues: the same for the list, for a claim and for the explanation.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use super::{CLOSED, DEFERRED, EPIC, Issue, OPEN, proposal::ProposalSide};
use crate::{
    ready::{QueueClass, place_in_order},
    schema::JsonSchema,
    time::Timestamp,
};

/// Maximum depth of nesting.
pub const DEEPEST: usize = 100;
/// The search for a dependency cycle visits about this many issues at most.
const WIDEST: usize = 2_000;

/// The facts about an issue that the rule needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub id: String,
    pub status: String,
    /// Whether it consists of other issues.
    pub epic: bool,
    /// Whether it is deleted.
    pub deleted: bool,
    pub parent: Option<String>,
    /// The issues that block it until they are closed.
    pub needs: Vec<String>,
    /// It must not start before this time.
    pub defer_until: Option<Timestamp>,
    /// 0 is most urgent.
    pub priority: u8,
    /// When it was created.
    pub written: Timestamp,
    /// The queue class of its labels.
    pub turn: QueueClass,
    /// Its relation to the ledger.
    pub part: ProposalSide,
}

impl Node {
    /// The facts of an issue.
    pub fn of(issue: &Issue) -> Self {
        Self {
            id: issue.id.clone(),
            status: issue.status.clone(),
            epic: issue.kind == EPIC,
            deleted: issue.deleted.is_some(),
            parent: issue.parent.clone(),
            needs: issue.blockers().map(str::to_owned).collect(),
            defer_until: issue.defer_until,
            priority: issue.priority,
            written: issue.written(),
            turn: QueueClass::of(&issue.labels),
            part: ProposalSide::of(issue),
        }
    }

    /// Is it still to be done?
    #[must_use]
    pub fn unfinished(&self) -> bool {
        self.status != CLOSED && !self.deleted
    }

    /// When its deferral ends, zero if it is not deferred; `None` if it is deferred without a date.
    fn opens(&self) -> Option<Timestamp> {
        match self.defer_until {
            Some(at) => Some(at),
            None if self.status == DEFERRED => None,
            None => Some(Timestamp(0)),
        }
    }
}

/// The source of facts for the rule.
pub trait Nodes {
    /// The error of a lookup.
    type Error;
    /// An issue, if it is known.
    fn node(&mut self, id: &str) -> Result<Option<Node>, Self::Error>;
    /// The number of its parts that are not closed.
    fn open_children(&mut self, id: &str) -> Result<u64, Self::Error>;
    /// Whether it can be part of a dependency cycle; true if unknown.
    fn may_circle(&mut self, _id: &str) -> bool {
        true
    }
}

/// Why an issue cannot start now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "why")]
#[non_exhaustive]
pub enum IssueReason {
    /// It is in progress or closed.
    Status { status: String },
    /// It was deleted.
    Deleted,
    /// A workflow for it is active.
    Running { workflow: String },
    /// A workflow was started for it, and none of its tasks can be claimed now.
    Started {
        workflow: String,
        /// What its tasks wait for.
        waits_for: Vec<String>,
    },
    /// It is assigned to another agent.
    Assigned {
        /// The name of that agent.
        to: String,
    },
    /// It, or one of its parents, needs another issue first.
    Blocked {
        /// The parent with the dependency, if it is not the issue itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ancestor: Option<String>,
        /// The issue that is needed.
        on: String,
        /// No ledger here contains that issue.
        missing: bool,
    },
    /// It, or one of its parents, is deferred.
    Deferred {
        /// The deferred parent, if it is not the issue itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ancestor: Option<String>,
        /// The end of the deferral, if it has one.
        until: Option<Timestamp>,
    },
    /// It consists of other issues, and some are not closed.
    OpenChildren {
        /// Their number.
        count: u64,
    },
    /// It is a proposal, and the maintainers of the ledger have not decided.
    Proposed,
    /// It belongs to another ledger.
    Mirror,
    /// A reason that only a newer toft knows.
    #[serde(other)]
    Other,
}

impl fmt::Display for IssueReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = |ancestor: &Option<String>| {
            ancestor.as_ref().map_or(String::new(), |id| format!("{id}, of which it is part, "))
        };
        match self {
            Self::Assigned { to } => write!(f, "it is assigned to {to}"),
            Self::Status { status } => write!(f, "it is {status}"),
            Self::Deleted => f.write_str("it was deleted"),
            Self::Other => f.write_str("for a reason that only a newer toft knows"),
            Self::Running { workflow } => write!(f, "workflow {workflow} works on it"),
            Self::Started { waits_for, .. } => write!(f, "it was started: {}", waits_for.join("; ")),
            Self::Blocked { ancestor, on, missing: false } => write!(f, "{}needs {on}", whose(ancestor)),
            Self::Blocked { ancestor, on, missing: true } => {
                write!(f, "{}needs {on}, which is in no ledger here", whose(ancestor))
            }
            Self::Deferred { ancestor, until: Some(at) } => write!(f, "{}is deferred until {at}", whose(ancestor)),
            Self::Deferred { ancestor, until: None } => write!(f, "{}is deferred", whose(ancestor)),
            Self::OpenChildren { count } => write!(f, "{count} of its parts are not done"),
            Self::Proposed => f.write_str("it is a proposal without a decision (toft accept, toft close)"),
            Self::Mirror => f.write_str("it was accepted, and belongs to the other ledger now"),
        }
    }
}

/// Why an issue cannot start: reasons that a person or agent has to resolve, and deferrals that end automatically.
pub struct Readiness {
    /// Reasons that need an action.
    pub held: Vec<IssueReason>,
    /// Deferrals with an end: of the issue itself (`None`) or of an ancestor, and when each ends.
    pub deferred: Vec<(Option<String>, Timestamp)>,
}

impl Readiness {
    /// From when on it can start; `None` while something holds it back.
    #[must_use]
    pub fn opens(&self) -> Option<Timestamp> {
        self.held.is_empty().then(|| self.deferred.iter().map(|(_, at)| *at).max().unwrap_or_default())
    }

    /// Everything that keeps it from starting now.
    #[must_use]
    pub fn reasons(self, now: Timestamp) -> Vec<IssueReason> {
        let later = self.deferred.into_iter().filter(|(_, at)| *at > now);
        let later = later.map(|(ancestor, at)| IssueReason::Deferred { ancestor, until: Some(at) });
        self.held.into_iter().chain(later).collect()
    }
}

/// Judges one issue by its own facts and those of its parents.
pub fn readiness<N: Nodes>(nodes: &mut N, node: &Node) -> Result<Readiness, N::Error> {
    let mut found = Readiness { held: Vec::new(), deferred: Vec::new() };
    if node.deleted {
        found.held.push(IssueReason::Deleted);
    } else if ![OPEN, DEFERRED].contains(&node.status.as_str()) {
        found.held.push(IssueReason::Status { status: node.status.clone() });
    }
    match node.part {
        ProposalSide::Own => {}
        ProposalSide::Offered => found.held.push(IssueReason::Proposed),
        ProposalSide::Mirror => found.held.push(IssueReason::Mirror),
    }
    add_reasons(nodes, node, None, &mut found)?;
    let above = line(nodes, node)?;
    if node.epic && !first_of_its_own_parts(node, &above) {
        let count = nodes.open_children(&node.id)?;
        if count > 0 {
            found.held.push(IssueReason::OpenChildren { count });
        }
    }
    for above in above.iter().filter(|above| above.id != node.id && above.unfinished()) {
        add_reasons(nodes, above, Some(&above.id), &mut found)?;
    }
    let blocked = |reason: &IssueReason| matches!(reason, IssueReason::Blocked { missing: false, .. });
    if node.unfinished() && found.held.iter().any(blocked) {
        let circle = circle(nodes, &node.id)?;
        // Clones that merge two halves of a circle see the same one, and start it with the same issue.
        if circle.first() == Some(&node.id) {
            found.held.retain(|reason| !matches!(reason, IssueReason::Blocked { on, .. } if circle.contains(on)));
        }
    }
    Ok(found)
}

/// The parents of an issue, nearest first; the issue itself last if the parents form a cycle.
fn line<N: Nodes>(nodes: &mut N, node: &Node) -> Result<Vec<Node>, N::Error> {
    let (mut line, mut seen, mut next) = (Vec::new(), BTreeSet::new(), node.parent.clone());
    while let Some(id) = next {
        if seen.len() > DEEPEST || !seen.insert(id.clone()) {
            break;
        }
        let Some(above) = nodes.node(&id)? else { break };
        next = above.parent.clone().filter(|_| id != node.id);
        line.push(above);
    }
    Ok(line)
}

/// Whether an issue is in a cycle of parents and has the lowest id in it. Such an issue does not wait for its children.
fn first_of_its_own_parts(node: &Node, above: &[Node]) -> bool {
    above.last().is_some_and(|last| last.id == node.id) && above.iter().all(|above| above.id >= node.id)
}

/// The issues that an unfinished issue waits for: its dependencies and those of its parents.
fn waits_for<N: Nodes>(nodes: &mut N, id: &str) -> Result<Vec<String>, N::Error> {
    let Some(node) = nodes.node(id)?.filter(Node::unfinished) else { return Ok(Vec::new()) };
    let above = line(nodes, &node)?;
    Ok(above.into_iter().filter(Node::unfinished).chain([node]).flat_map(|node| node.needs).collect())
}

/// The unfinished issues of the dependency cycle that contains this one, ordered by id; empty if there is no cycle. No
/// command creates a cycle, but a merge of two clones can.
pub fn circle<N: Nodes>(nodes: &mut N, id: &str) -> Result<BTreeSet<String>, N::Error> {
    let mut waiting: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut next = vec![id.to_owned()];
    while let Some(at) = next.pop() {
        if waiting.len() > WIDEST || waiting.contains_key(&at) || !nodes.may_circle(&at) {
            continue;
        }
        let on = waits_for(nodes, &at)?;
        next.extend(on.iter().cloned());
        waiting.insert(at, on);
    }
    let (mut circle, mut more) = (BTreeSet::new(), vec![id.to_owned()]);
    while let Some(at) = more.pop() {
        for (who, on) in &waiting {
            if on.contains(&at) && circle.insert(who.clone()) {
                more.push(who.clone());
            }
        }
    }
    // Everything in it is reached from this one, so it reaches itself or there is no circle.
    if !circle.contains(id) {
        circle.clear();
    }
    Ok(circle)
}

/// Adds the reasons that follow from an issue's own dependencies and deferral, for itself or for a part of it.
fn add_reasons<N: Nodes>(
    nodes: &mut N,
    node: &Node,
    ancestor: Option<&str>,
    readiness: &mut Readiness,
) -> Result<(), N::Error> {
    let ancestor = ancestor.map(str::to_owned);
    for on in &node.needs {
        let found = nodes.node(on)?;
        if found.as_ref().is_none_or(Node::unfinished) {
            let missing = found.is_none();
            readiness.held.push(IssueReason::Blocked { ancestor: ancestor.clone(), on: on.clone(), missing });
        }
    }
    match node.opens() {
        None => readiness.held.push(IssueReason::Deferred { ancestor, until: None }),
        Some(at) if at > Timestamp(0) => readiness.deferred.push((ancestor, at)),
        Some(_) => {}
    }
    Ok(())
}

/// An issue's place in the order of ready work, the same as a task's.
#[must_use]
pub fn rank(node: &Node, unblocks: u32) -> String {
    place_in_order(node.turn, node.priority, unblocks, node.written, 0, &node.id)
}
