//! The plan as a drawing: what is needed stands left of what needs it, parts beside their whole.

use std::collections::BTreeMap;

use toft::{
    issue::Issue,
    plan::FoundIssue,
    time::Timestamp,
    views::{NODE_SIZE as BOX, edge_path, graph_layout},
};

use super::page::{Page, clean, short};

/// Draws issues and what ties them: (from, to, kind).
pub(super) fn draw(page: &mut Page, issues: &[FoundIssue], edges: &[(&str, &str, &str)], now: Timestamp) {
    let place: BTreeMap<&str, usize> =
        issues.iter().enumerate().map(|(n, found)| (found.issue.id.as_str(), n)).collect();
    let ties: Vec<(usize, usize, &str)> =
        edges.iter().map(|(from, to, kind)| (place[from], place[to], *kind)).collect();
    let pairs: Vec<(usize, usize)> = ties.iter().map(|(from, to, _)| (*from, *to)).collect();
    let (spots, width, height) = graph_layout(issues.len(), &pairs);
    page.line(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">"
    ));
    page.line("<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#667\"/></marker></defs>");
    page.line(format!("<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>"));
    for (from, to, kind) in &ties {
        let style = if *kind == "part" { "stroke-dasharray=\"3 4\"" } else { "marker-end=\"url(#tip)\"" };
        let path = edge_path(spots[*from], spots[*to]);
        page.line(format!("<path d=\"{path}\" fill=\"none\" stroke=\"#667\" {style}/>"));
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
