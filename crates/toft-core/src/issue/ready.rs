//! What can start, among issues: the same rule for the list, for a claim and for the explanation.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CLOSED, DEFERRED, EPIC, Issue, OPEN, proposal::ProposalSide};
use crate::{
    ready::{QueueClass, place_in_order},
    time::Timestamp,
};

/// Nothing is nested deeper.
pub const DEEPEST: usize = 100;
/// The search for a dependency cycle visits about this many issues at most.
const WIDEST: usize = 2_000;

/// What the rule must know of an issue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Its id.
    pub id: String,
    /// Its status.
    pub status: String,
    /// Whether it consists of others.
    pub epic: bool,
    /// Whether it is deleted.
    pub deleted: bool,
    /// What it is part of.
    pub parent: Option<String>,
    /// What holds it back until closed.
    pub needs: Vec<String>,
    /// Not before.
    pub defer_until: Option<Timestamp>,
    /// 0 is most urgent.
    pub priority: u8,
    /// When it was written down.
    pub written: Timestamp,
    /// Where its labels put it in the order.
    pub turn: QueueClass,
    /// What it is to whoever sees it.
    pub part: ProposalSide,
}

impl Node {
    /// Taken from an issue.
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

/// Where the rule gets its facts.
pub trait Nodes {
    /// What goes wrong while looking.
    type Error;
    /// An issue, if it is known.
    fn node(&mut self, id: &str) -> Result<Option<Node>, Self::Error>;
    /// How many issues that are part of it are still to be done.
    fn open_children(&mut self, id: &str) -> Result<u64, Self::Error>;
    /// Whether it can be part of a circle of needs; where that is not known, it can.
    fn may_circle(&mut self, _id: &str) -> bool {
        true
    }
}

/// Why an issue cannot start now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "why")]
#[non_exhaustive]
pub enum IssueReason {
    /// It is under way, or over.
    Status {
        /// How far it is.
        status: String,
    },
    /// It was deleted.
    Deleted,
    /// A workflow is on it.
    Running {
        /// Which.
        workflow: String,
    },
    /// A workflow was started for it, and none of its tasks can be claimed now.
    Started {
        /// The workflow.
        workflow: String,
        /// What its tasks wait for.
        waits_for: Vec<String>,
    },
    /// It is assigned to another agent.
    Assigned {
        /// Which, by name.
        to: String,
    },
    /// It, or what it is part of, needs something first.
    Blocked {
        /// Which needs it, if not the issue itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ancestor: Option<String>,
        /// What is needed.
        on: String,
        /// It cannot be found in any ledger here.
        missing: bool,
    },
    /// It, or what it is part of, is put off.
    Deferred {
        /// Which is, if not the issue itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ancestor: Option<String>,
        /// Until when, if anybody said.
        until: Option<Timestamp>,
    },
    /// It consists of others, and some are not done.
    OpenChildren {
        /// How many.
        count: u64,
    },
    /// Somebody proposes it, and whoever keeps the ledger has not decided.
    Proposed,
    /// It is another ledger's.
    Mirror,
    /// One that a newer toft knows.
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
            Self::Running { workflow } => write!(f, "workflow {workflow} is on it"),
            Self::Started { waits_for, .. } => write!(f, "it was started: {}", waits_for.join("; ")),
            Self::Blocked { ancestor, on, missing: false } => write!(f, "{}needs {on}", whose(ancestor)),
            Self::Blocked { ancestor, on, missing: true } => {
                write!(f, "{}needs {on}, which no ledger here has", whose(ancestor))
            }
            Self::Deferred { ancestor, until: Some(at) } => write!(f, "{}is put off until {at}", whose(ancestor)),
            Self::Deferred { ancestor, until: None } => write!(f, "{}is put off", whose(ancestor)),
            Self::OpenChildren { count } => write!(f, "{count} of its parts are not done"),
            Self::Proposed => f.write_str("it is proposed, and nobody has decided (toft accept, toft reject)"),
            Self::Mirror => f.write_str("it was accepted, and is the other ledger's now"),
        }
    }
}

/// Why an issue cannot start: reasons that a person or agent has to resolve, and deferrals that end by themselves.
pub struct Readiness {
    /// What holds it back until somebody does something.
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

/// Judges one issue by its own facts and those of what it is part of.
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

/// What an issue is part of, from the nearest on; the issue itself last if it is part of itself.
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

/// What an unfinished issue waits for: its needs and those of what it is part of.
fn waits_for<N: Nodes>(nodes: &mut N, id: &str) -> Result<Vec<String>, N::Error> {
    let Some(node) = nodes.node(id)?.filter(Node::unfinished) else { return Ok(Vec::new()) };
    let above = line(nodes, &node)?;
    Ok(above.into_iter().filter(Node::unfinished).chain([node]).flat_map(|node| node.needs).collect())
}

/// The unfinished issues that wait for each other, this one among them, in the order of their ids; none if nothing that
/// it waits for waits for it. No command makes such a circle, but a merge of two clones can.
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

/// What an issue's own needs and deferral mean for itself, or for a part of it.
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
