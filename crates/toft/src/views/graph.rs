//! The plan as a graph: parts under wholes, with what each needs.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use toft_core::{
    issue::{chain::longest_chain, ready::Node},
    time::Timestamp,
};
use toft_plan::{FoundIssue, IssueFilter};
use toft_session::Error;

use super::{EdgeKind, RepositorySource};

/// Issues that are shown.
const MOST: usize = 2_000;

/// The open issues of every repository that is looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GraphView {
    pub rows: Vec<GraphRow>,
    /// What ties rows, by their numbers: the first is needed by the second, or the whole of it.
    pub edges: Vec<(usize, usize, EdgeKind)>,
    /// There are more issues.
    pub more: bool,
}

/// An issue at its place in the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    pub id: String,
    /// The id as people see it.
    pub shown: String,
    pub title: String,
    pub priority: u8,
    pub labels: Vec<String>,
    pub mark: GraphMark,
    /// It is on the longest chain of open issues.
    pub critical: bool,
    /// How many wholes it is a part of.
    pub depth: usize,
    /// The issues that are shown and that it needs.
    pub needs: Vec<String>,
    /// The issue that is shown and that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<String>,
}

/// How far an issue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GraphMark {
    Ready,
    /// It cannot start now.
    Waits,
    InProgress,
    Closed,
}

impl GraphMark {
    /// How far an issue is; `started` are those that work was started on and that cannot be claimed now.
    #[must_use]
    pub fn of(found: &FoundIssue, now: Timestamp, started: &BTreeSet<String>) -> Self {
        let begun = started.contains(&found.issue.id);
        match found.issue.status.as_str() {
            "closed" => Self::Closed,
            "in_progress" => Self::InProgress,
            _ if begun => Self::InProgress,
            _ if found.ready(now) => Self::Ready,
            _ => Self::Waits,
        }
    }

    /// The sign before an issue.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Ready => "○",
            Self::Waits => "·",
            Self::InProgress => "◐",
            Self::Closed => "●",
        }
    }

    /// The words users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Waits => "not ready",
            Self::InProgress => "in progress",
            Self::Closed => "closed",
        }
    }
}

impl GraphView {
    /// Looks at repositories.
    pub fn of(sources: &[RepositorySource<'_>]) -> Result<Self, Error> {
        let mut view = Self::default();
        for source in sources.iter().filter(|source| source.ledgers) {
            let Some(plan) = source.toft.plan()? else { continue };
            let mut issues = plan.list(&IssueFilter { limit: MOST + 1, ..IssueFilter::default() })?;
            view.more |= issues.len() > MOST;
            issues.truncate(MOST);
            let mut rows = graph_rows(&issues, plan.now()?, &plan.waiting_after_start(&issues)?);
            let first = view.rows.len();
            let number: BTreeMap<&str, usize> =
                rows.iter().enumerate().map(|(n, row)| (row.id.as_str(), first + n)).collect();
            for row in &rows {
                let needs = row.needs.iter().map(|on| (on.as_str(), EdgeKind::Needs));
                for (from, kind) in needs.chain(row.whole.iter().map(|whole| (whole.as_str(), EdgeKind::Part))) {
                    view.edges.extend(number.get(from).map(|from| (*from, number[row.id.as_str()], kind)));
                }
            }
            let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
            let shown = source.shorten(&ids);
            let short: BTreeMap<String, String> =
                rows.iter().map(|row| row.id.clone()).zip(shown.iter().cloned()).collect();
            for (row, shown) in rows.iter_mut().zip(shown) {
                row.repository.clone_from(&source.name);
                row.shown = shown;
                row.needs = row.needs.iter().map(|id| short.get(id).unwrap_or(id).clone()).collect();
            }
            view.rows.extend(rows);
        }
        Ok(view)
    }
}

/// Issues in the order in which a plan is read: parts follow their whole.
#[must_use]
pub fn graph_rows(issues: &[FoundIssue], now: Timestamp, started: &BTreeSet<String>) -> Vec<GraphRow> {
    let known: BTreeSet<&str> = issues.iter().map(|found| found.issue.id.as_str()).collect();
    let nodes: Vec<Node> = issues.iter().map(|found| Node::of(&found.issue)).collect();
    let critical: BTreeSet<String> =
        Some(longest_chain(&nodes)).filter(|chain| chain.len() > 1).unwrap_or_default().into_iter().collect();
    let mut parts: BTreeMap<Option<&str>, Vec<&FoundIssue>> = BTreeMap::new();
    for found in issues {
        let whole = found.issue.parent.as_deref().filter(|whole| known.contains(whole) && *whole != found.issue.id);
        parts.entry(whole).or_default().push(found);
    }
    let (mut seen, mut ordered) = (BTreeSet::new(), Vec::new());
    let mut stack: Vec<(&FoundIssue, usize)> =
        parts.get(&None).into_iter().flatten().rev().map(|found| (*found, 0)).collect();
    while let Some((found, depth)) = stack.pop() {
        if !seen.insert(found.issue.id.as_str()) {
            continue;
        }
        ordered.push((found, depth));
        let below = parts.get(&Some(found.issue.id.as_str())).into_iter().flatten().rev();
        stack.extend(below.map(|part| (*part, depth + 1)));
    }
    // What is part of itself has no top.
    ordered.extend(issues.iter().filter(|found| !seen.contains(found.issue.id.as_str())).map(|found| (found, 0)));
    let row = |(found, depth): (&FoundIssue, usize)| GraphRow {
        repository: None,
        id: found.issue.id.clone(),
        shown: found.issue.id.clone(),
        title: found.issue.title.clone(),
        priority: found.issue.priority,
        labels: found.issue.labels.clone(),
        mark: GraphMark::of(found, now, started),
        critical: critical.contains(&found.issue.id),
        depth,
        needs: found.issue.blockers().filter(|on| known.contains(on)).map(str::to_owned).collect(),
        whole: found.issue.parent.clone().filter(|whole| known.contains(whole.as_str())),
    };
    ordered.into_iter().map(row).collect()
}
