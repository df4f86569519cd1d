//! The plan as a drawing: what is needed stands left of what needs it, parts beside their whole.

use std::collections::{BTreeMap, BTreeSet};

use rust_sugiyama::{configure::Config, from_vertices_and_edges};
use toft::{issue::Issue, plan::FoundIssue, time::Timestamp};

use super::page::{Page, clean, short};

const BOX: (f64, f64) = (250.0, 44.0);
const GAP: f64 = 26.0;
/// How many issues that hang together with nothing stand in a row.
const IN_A_ROW: usize = 4;

/// Draws issues and what ties them: (from, to, kind).
pub(super) fn draw(page: &mut Page, issues: &[FoundIssue], edges: &[(&str, &str, &str)], now: Timestamp) {
    let place: BTreeMap<&str, usize> =
        issues.iter().enumerate().map(|(n, found)| (found.issue.id.as_str(), n)).collect();
    let ties: Vec<(usize, usize, &str)> =
        edges.iter().map(|(from, to, kind)| (place[from], place[to], *kind)).collect();
    let (spots, width, height) = layout(issues.len(), &ties);
    page.line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">"
    ));
    page.line("<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#667\"/></marker></defs>");
    page.line(format!("<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>"));
    for (from, to, kind) in &ties {
        let ((x1, y1), (x2, y2)) = (spots[*from], spots[*to]);
        let (x1, x2) = if x2 > x1 { (x1 + BOX.0, x2) } else { (x1, x2 + BOX.0) };
        let (y1, y2, middle) = (y1 + BOX.1 / 2.0, y2 + BOX.1 / 2.0, f64::midpoint(x1, x2));
        let style = if *kind == "part" { "stroke-dasharray=\"3 4\"" } else { "marker-end=\"url(#tip)\"" };
        page.line(format!(
            "<path d=\"M{x1:.0} {y1:.0}C{middle:.0} {y1:.0} {middle:.0} {y2:.0} {x2:.0} {y2:.0}\" fill=\"none\" stroke=\"#667\" {style}/>"
        ));
    }
    for (found, (x, y)) in issues.iter().zip(&spots) {
        let issue = &found.issue;
        let (fill, line) = colours(issue, found.ready(now));
        page.line(format!(
            "<g><title>{}</title><rect x=\"{x:.0}\" y=\"{y:.0}\" width=\"{}\" height=\"{}\" rx=\"6\" fill=\"{fill}\" stroke=\"{line}\" stroke-width=\"1.5\"/>",
            escaped(&issue.title),
            BOX.0,
            BOX.1
        ));
        page.line(format!(
            "<text x=\"{:.0}\" y=\"{:.0}\" fill=\"#556\" font-size=\"10\">{}  P{}  {}</text><text x=\"{0:.0}\" y=\"{:.0}\" fill=\"#112\">{}</text></g>",
            x + 10.0,
            y + 16.0,
            escaped(&short(&issue.id, 24)),
            issue.priority,
            escaped(&issue.status),
            y + 33.0,
            escaped(&short(&issue.title, 34))
        ));
    }
    page.line("</svg>");
}

/// Where each stands, and how large the whole is.
fn layout(count: usize, ties: &[(usize, usize, &str)]) -> (Vec<(f64, f64)>, f64, f64) {
    let mut spots = vec![(GAP, GAP); count];
    let tied: BTreeSet<usize> = ties.iter().flat_map(|(from, to, _)| [*from, *to]).collect();
    let tied: Vec<usize> = tied.into_iter().collect();
    let number = |place: &usize| tied.binary_search(place).unwrap_or_default() as u32;
    // Layers go down the page; turned, they go to the right.
    let vertices: Vec<(u32, (f64, f64))> = (0..tied.len()).map(|n| (n as u32, (BOX.1, BOX.0))).collect();
    let mut edges: Vec<(u32, u32)> = ties.iter().map(|(from, to, _)| (number(from), number(to))).collect();
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
            (width, bottom) = (width.max(spot.0 + BOX.0), bottom.max(spot.1 + BOX.1));
            spots[tied[*n]] = spot;
        }
        top = bottom + GAP;
    }
    for (n, place) in (0..count).filter(|n| !tied.contains(n)).enumerate() {
        let (column, row) = (n % IN_A_ROW, n / IN_A_ROW);
        spots[place] = (GAP + column as f64 * (BOX.0 + GAP), top + row as f64 * (BOX.1 + GAP / 2.0));
    }
    let far = spots.iter().fold((width, 0.0_f64), |far, spot| (far.0.max(spot.0 + BOX.0), far.1.max(spot.1 + BOX.1)));
    (spots, far.0 + GAP, far.1 + GAP)
}

/// Inside and outline: what can start stands out.
fn colours(issue: &Issue, ready: bool) -> (&'static str, &'static str) {
    match (ready, issue.status.as_str()) {
        (true, _) => ("#e6f4ea", "#2e7d4f"),
        (_, "in_progress") => ("#e8f0fe", "#3367b5"),
        (_, "closed") => ("#f1f1f3", "#9a9aa5"),
        _ => ("#fdf6e3", "#b58a2b"),
    }
}

fn escaped(text: &str) -> String {
    clean(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
