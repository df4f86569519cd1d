//! Where issues stand in a drawing of the plan: what is needed left of what needs it, parts beside their whole.

use std::collections::BTreeSet;

use rust_sugiyama::{configure::Config, from_vertices_and_edges};
use serde::Serialize;

use super::GraphView;

/// The width and the height of a node.
pub const NODE_SIZE: (f64, f64) = (250.0, 44.0);
const GAP: f64 = 26.0;
/// How many issues that hang together with nothing stand in a row.
const IN_A_ROW: usize = 4;

/// What ties two issues of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// The second needs the first.
    Needs,
    /// The second is a part of the first.
    Part,
}

/// A plan with a place for everything.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphDrawing {
    /// The left upper corner of each row of the view.
    pub nodes: Vec<(f64, f64)>,
    pub edges: Vec<DrawnEdge>,
    pub width: f64,
    pub height: f64,
}

/// A line between two issues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DrawnEdge {
    pub kind: EdgeKind,
    /// Both issues are on the critical path.
    pub critical: bool,
    pub from: (f64, f64),
    pub to: (f64, f64),
}

impl DrawnEdge {
    /// The path of SVG.
    #[must_use]
    pub fn path(&self) -> String {
        edge_path(self.from, self.to)
    }
}

/// The path of SVG between two nodes.
#[must_use]
pub fn edge_path((x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    let (x1, x2) = if x2 > x1 { (x1 + NODE_SIZE.0, x2) } else { (x1, x2 + NODE_SIZE.0) };
    let (y1, y2, middle) = (y1 + NODE_SIZE.1 / 2.0, y2 + NODE_SIZE.1 / 2.0, f64::midpoint(x1, x2));
    format!("M{x1:.0} {y1:.0}C{middle:.0} {y1:.0} {middle:.0} {y2:.0} {x2:.0} {y2:.0}")
}

impl GraphView {
    /// Finds a place for each issue.
    #[must_use]
    pub fn drawing(&self) -> GraphDrawing {
        let ties: Vec<(usize, usize)> = self.edges.iter().map(|(from, to, _)| (*from, *to)).collect();
        let (nodes, width, height) = graph_layout(self.rows.len(), &ties);
        let drawn = |(from, to, kind): &(usize, usize, EdgeKind)| DrawnEdge {
            kind: *kind,
            critical: *kind == EdgeKind::Needs && self.rows[*from].critical && self.rows[*to].critical,
            from: nodes[*from],
            to: nodes[*to],
        };
        let edges = self.edges.iter().map(drawn).collect();
        GraphDrawing { nodes, edges, width, height }
    }
}

/// Where each stands, and how large the whole is.
#[must_use]
pub fn graph_layout(count: usize, ties: &[(usize, usize)]) -> (Vec<(f64, f64)>, f64, f64) {
    let mut spots = vec![(GAP, GAP); count];
    let tied: BTreeSet<usize> = ties.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let tied: Vec<usize> = tied.into_iter().collect();
    let number = |place: &usize| tied.binary_search(place).unwrap_or_default() as u32;
    // Layers go down the page; turned, they go to the right.
    let vertices: Vec<(u32, (f64, f64))> = (0..tied.len()).map(|n| (n as u32, (NODE_SIZE.1, NODE_SIZE.0))).collect();
    let mut edges: Vec<(u32, u32)> = ties.iter().map(|(from, to)| (number(from), number(to))).collect();
    edges.sort_unstable();
    edges.dedup();
    let config = Config { vertex_spacing: GAP, ..Config::default() };
    let (mut width, mut top) = (0.0_f64, GAP);
    for (vertices, ..) in from_vertices_and_edges(&vertices, &edges, &config) {
        let least = |of: fn(&(usize, (f64, f64))) -> f64| vertices.iter().map(of).fold(f64::INFINITY, f64::min);
        let (left, first) = (least(|(_, (_, y))| *y), least(|(_, (x, _))| *x));
        let mut bottom = top;
        for (n, (x, y)) in &vertices {
            let spot = ((y - left) * 1.15 + GAP, x - first + top);
            (width, bottom) = (width.max(spot.0 + NODE_SIZE.0), bottom.max(spot.1 + NODE_SIZE.1));
            spots[tied[*n]] = spot;
        }
        top = bottom + GAP;
    }
    for (n, place) in (0..count).filter(|n| !tied.contains(n)).enumerate() {
        let (column, row) = (n % IN_A_ROW, n / IN_A_ROW);
        spots[place] = (GAP + column as f64 * (NODE_SIZE.0 + GAP), top + row as f64 * (NODE_SIZE.1 + GAP / 2.0));
    }
    let far = spots
        .iter()
        .fold((width, 0.0_f64), |far, spot| (far.0.max(spot.0 + NODE_SIZE.0), far.1.max(spot.1 + NODE_SIZE.1)));
    (spots, far.0 + GAP, far.1 + GAP)
}
