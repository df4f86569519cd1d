//! Where issues stand in a drawing of the plan: what is needed left of what needs it, parts beside their whole.

use std::{cmp::Reverse, collections::BTreeSet};

use rust_sugiyama::{configure::Config, from_vertices_and_edges};
use serde::Serialize;

use super::GraphView;

/// The width and the height of a node.
pub const NODE_SIZE: (f64, f64) = (250.0, 44.0);
const GAP: f64 = 26.0;
/// How much wider than high a drawing of many parts is, and how narrow one may be.
const SHAPE: f64 = 1.6;
const NARROWEST: f64 = 4.0 * (NODE_SIZE.0 + GAP);

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

/// Issues that hang together, drawn from a corner of their own.
struct GraphPart {
    spots: Vec<(usize, (f64, f64))>,
    width: f64,
    height: f64,
}

/// Where each stands, and how large the whole is.
#[must_use]
pub fn graph_layout(count: usize, ties: &[(usize, usize)]) -> (Vec<(f64, f64)>, f64, f64) {
    let mut spots = vec![(GAP, GAP); count];
    let tied: BTreeSet<usize> = ties.iter().flat_map(|(from, to)| [*from, *to]).collect();
    let mut parts = tied_parts(&tied.into_iter().collect::<Vec<_>>(), ties);
    // What is larger is seen first; issues that hang together with nothing are at the end.
    parts.sort_by_key(|part| Reverse(part.spots.len()));
    let known: BTreeSet<usize> = parts.iter().flat_map(|part| &part.spots).map(|(place, _)| *place).collect();
    let alone = (0..count).filter(|place| !known.contains(place));
    let area: f64 = parts.iter().map(|part| (part.width + 2.0 * GAP) * (part.height + GAP)).sum::<f64>()
        + (count - known.len()) as f64 * (NODE_SIZE.0 + GAP) * (NODE_SIZE.1 + GAP);
    let widest = parts.iter().map(|part| part.width).fold(NARROWEST, f64::max);
    let until = GAP + widest.max((area * SHAPE).sqrt());
    // Beside each other as long as there is room, then below.
    let (mut left, mut top, mut bottom, mut far) = (GAP, GAP, GAP, 0.0_f64);
    let mut place = |part: &GraphPart, gap: f64, below: bool| {
        if left > GAP && (below || left + part.width > until) {
            (left, top) = (GAP, bottom + GAP);
        }
        for (place, (x, y)) in &part.spots {
            spots[*place] = (left + x, top + y);
        }
        (bottom, far) = (bottom.max(top + part.height), far.max(left + part.width));
        left += part.width + gap;
    };
    parts.iter().for_each(|part| place(part, 2.0 * GAP, false));
    for (n, one) in alone.enumerate() {
        let (width, height) = NODE_SIZE;
        place(&GraphPart { spots: vec![(one, (0.0, 0.0))], width, height }, GAP, n == 0);
    }
    (spots, far + GAP, bottom + GAP)
}

/// Issues that have ties, in parts that have none between them.
fn tied_parts(tied: &[usize], ties: &[(usize, usize)]) -> Vec<GraphPart> {
    let number = |place: &usize| tied.binary_search(place).unwrap_or_default() as u32;
    // Layers go down the page; turned, they go to the right.
    let vertices: Vec<(u32, (f64, f64))> = (0..tied.len()).map(|n| (n as u32, (NODE_SIZE.1, NODE_SIZE.0))).collect();
    let mut edges: Vec<(u32, u32)> = ties.iter().map(|(from, to)| (number(from), number(to))).collect();
    edges.sort_unstable();
    edges.dedup();
    let config = Config { vertex_spacing: GAP, ..Config::default() };
    let part = |vertices: Vec<(usize, (f64, f64))>| {
        let least = |of: fn(&(usize, (f64, f64))) -> f64| vertices.iter().map(of).fold(f64::INFINITY, f64::min);
        let (left, first) = (least(|(_, (_, y))| *y), least(|(_, (x, _))| *x));
        let spot = |(n, (x, y)): &(usize, (f64, f64))| (tied[*n], ((y - left) * 1.15, x - first));
        let spots: Vec<(usize, (f64, f64))> = vertices.iter().map(spot).collect();
        let far = spots.iter().fold((0.0_f64, 0.0_f64), |far, (_, (x, y))| (far.0.max(*x), far.1.max(*y)));
        GraphPart { spots, width: far.0 + NODE_SIZE.0, height: far.1 + NODE_SIZE.1 }
    };
    from_vertices_and_edges(&vertices, &edges, &config).into_iter().map(|(vertices, ..)| part(vertices)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlapping(spots: &[(f64, f64)]) -> usize {
        let near = |(one, other): (&(f64, f64), &(f64, f64))| {
            (one.0 - other.0).abs() < NODE_SIZE.0 && (one.1 - other.1).abs() < NODE_SIZE.1
        };
        let pairs = spots.iter().enumerate().flat_map(|(n, one)| spots[n + 1..].iter().map(move |other| (one, other)));
        pairs.filter(|pair| near(*pair)).count()
    }

    #[test]
    fn many_small_plans_fill_a_page() {
        // Hundred pairs, a chain of five, and fifty issues alone.
        let mut ties: Vec<(usize, usize)> = (0..100).map(|n| (2 * n, 2 * n + 1)).collect();
        ties.extend((200..204).map(|n| (n, n + 1)));
        let (spots, width, height) = graph_layout(255, &ties);
        assert_eq!(overlapping(&spots), 0);
        assert!((0.8..3.0).contains(&(width / height)), "{width} × {height}");
        assert!(ties.iter().all(|(from, to)| spots[*from].0 + NODE_SIZE.0 < spots[*to].0), "needs stand at the left");
        assert!(spots.iter().all(|spot| spot.0 + NODE_SIZE.0 < width && spot.1 + NODE_SIZE.1 < height));
        assert_eq!(spots[200], (GAP, GAP), "the largest part is first");
    }

    #[test]
    fn an_empty_plan_has_a_size() {
        let (spots, width, _) = graph_layout(0, &[]);
        assert!(spots.is_empty() && width > 0.0);
        assert_eq!(graph_layout(1, &[]).0, [(GAP, GAP)]);
    }
}
