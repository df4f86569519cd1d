//! The plan as a picture.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use toft::{
    issue::{Issue, chain::longest_chain, ready::Node},
    plan::FoundIssue,
    time::Timestamp,
    views::{GraphMark, GraphRow, graph_rows},
};

use super::{
    CommandView,
    page::{Page, after_words, clean, cut, short},
    svg,
};
use crate::args::GraphFormat;

pub(crate) struct Graph {
    pub(crate) issues: Vec<FoundIssue>,
    pub(crate) format: GraphFormat,
    pub(crate) more: bool,
    pub(crate) now: Timestamp,
    /// Issues that a workflow is on.
    pub(crate) started: BTreeSet<String>,
}

impl Graph {
    fn ready(&self, found: &FoundIssue) -> bool {
        found.ready(self.now) && !self.started.contains(&found.issue.id)
    }

    fn known(&self) -> BTreeSet<&str> {
        self.issues.iter().map(|found| found.issue.id.as_str()).collect()
    }

    /// The longest chain of open issues that are shown; nothing if none waits for another.
    fn critical_path(&self) -> Vec<String> {
        let nodes: Vec<Node> = self.issues.iter().map(|found| Node::of(&found.issue)).collect();
        Some(longest_chain(&nodes)).filter(|chain| chain.len() > 1).unwrap_or_default()
    }

    /// Edges between issues that are shown: from what is needed to what needs it, and from whole to part.
    fn edges(&self) -> Vec<(&str, &str, &'static str)> {
        let known = self.known();
        let mut edges = Vec::new();
        for FoundIssue { issue, .. } in &self.issues {
            let needs = issue.blockers().filter(|on| known.contains(on)).map(|on| (on, issue.id.as_str(), "needs"));
            let part = issue.parent.as_deref().filter(|parent| known.contains(parent));
            edges.extend(needs.chain(part.map(|parent| (parent, issue.id.as_str(), "part"))));
        }
        edges
    }

    pub(crate) fn view(&self) -> CommandView<'_> {
        let Self { issues, format, more, now, .. } = self;
        let node = |found: &FoundIssue| {
            let Issue { id, title, status, .. } = &found.issue;
            json!({ "id": id, "title": title, "status": status, "ready": self.ready(found) })
        };
        let nodes: Vec<_> = issues.iter().map(node).collect();
        let edges: Vec<_> =
            self.edges().iter().map(|(from, to, kind)| json!({ "from": from, "to": to, "kind": kind })).collect();
        let data = json!({ "nodes": nodes, "edges": edges, "critical_path": self.critical_path() });
        CommandView::new("graph", data, issues.iter().map(|found| &found.issue.id), move |page| match format {
            GraphFormat::Lines if issues.is_empty() => page.line("No issues."),
            GraphFormat::Lines => {
                self.lines(page);
                cut(page, *more, issues.len());
            }
            GraphFormat::Mermaid => self.mermaid(page),
            GraphFormat::Dot => self.dot(page),
            GraphFormat::Svg => svg::draw(page, issues, &self.edges(), *now),
        })
        .with_more(*more)
    }

    fn mermaid(&self, page: &mut Page) {
        page.line("graph LR");
        let place: BTreeMap<&str, usize> =
            self.issues.iter().enumerate().map(|(n, found)| (found.issue.id.as_str(), n)).collect();
        for (n, found @ FoundIssue { issue, .. }) in self.issues.iter().enumerate() {
            let text = format!("{} {}", issue.id, short(&issue.title, 50))
                .replace('"', "'")
                .replace(['[', ']', '<', '>', '`'], " ");
            page.line(format!("  n{n}[\"{}\"]{}", clean(&text), if self.ready(found) { ":::ready" } else { "" }));
        }
        for (from, to, kind) in self.edges() {
            let arrow = if kind == "part" { "-.-" } else { "-->" };
            page.line(format!("  n{} {arrow} n{}", place[from], place[to]));
        }
        page.line("  classDef ready stroke-width:3px");
    }

    fn dot(&self, page: &mut Page) {
        let quoted = |text: &str| format!("\"{}\"", clean(text).replace('\\', "\\\\").replace('"', "\\\""));
        page.line("digraph plan {\n  rankdir=LR; node [shape=box];");
        for found @ FoundIssue { issue, .. } in &self.issues {
            let text = format!(
                "{}\\n{}",
                quoted(&issue.id).trim_matches('"'),
                quoted(&short(&issue.title, 50)).trim_matches('"')
            );
            page.line(format!(
                "  {} [label=\"{text}\"{}];",
                quoted(&issue.id),
                if self.ready(found) { ", penwidth=3" } else { "" }
            ));
        }
        for (from, to, kind) in self.edges() {
            let style = if kind == "part" { " [style=dotted, arrowhead=none]" } else { "" };
            page.line(format!("  {} -> {}{style};", quoted(from), quoted(to)));
        }
        page.line("}");
    }

    /// Parts under wholes; what each still needs beside it.
    fn lines(&self, page: &mut Page) {
        let rows = graph_rows(&self.issues, self.now, &self.started);
        rows.iter().for_each(|row| line(page, row));
        let used: BTreeSet<GraphMark> = rows.iter().map(|row| row.mark).collect();
        let legend: Vec<String> = used.iter().map(|mark| format!("{} {}", mark.sign(), mark.as_str())).collect();
        page.line(page.faint(legend.join("   ")));
        let critical = rows.iter().filter(|row| row.critical).count();
        if critical > 0 {
            let said = format!("{CRITICAL} critical path: {critical} issues, one after the other");
            page.line(page.faint(said));
        }
    }
}

/// An issue with its whole title, which goes on below where the terminal is narrow.
fn line(page: &mut Page, row: &GraphRow) {
    let needs = after_words("  needs ", &row.needs);
    let labels = if row.labels.is_empty() { String::new() } else { format!(" [{}]", clean(&row.labels.join(", "))) };
    let (indent, id) = (2 * row.depth.min(20), clean(&row.id));
    let sign = format!("{}{}", row.mark.sign(), if row.critical { CRITICAL } else { " " });
    let lead = format!("{}{sign}{}  P{}  ", " ".repeat(indent), page.id(&id), row.priority);
    let visible = indent + 2 + id.chars().count() + 6;
    page.wrapped(&lead, visible, &format!("{}{labels}{needs}", clean(&row.title)), indent + 4);
}

/// Stands beside issues on the critical path.
const CRITICAL: &str = "*";
