//! The plan as a drawing, with the layout of `toft list --graph=svg`.

use crate::items::address;
use maud::{Markup, html};
use toft::{
    text::{clean, short},
    views::{EdgeKind, GraphDrawing, GraphView, NODE_SIZE},
};

/// Characters of a title that fit in a node.
const TITLE: usize = 32;

/// Nodes are links; the page pans and zooms.
pub(crate) fn drawing(view: &GraphView) -> Markup {
    let GraphDrawing { nodes, edges, width, height } = view.drawing();
    let (node_width, node_height) = NODE_SIZE;
    html! {
        p.legend { "○ ready · ◐ in progress · thick: the longest chain of open issues · dashed: part of" }
        board-graph {
            svg xmlns="http://www.w3.org/2000/svg" role="group" aria-label="Issues, and what each needs" width=(whole(width)) height=(whole(height))
                viewBox={"0 0 " (whole(width)) " " (whole(height))} {
                defs {
                    marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto" {
                        path d="M0 0L8 4L0 8z" {}
                    }
                }
                @for edge in &edges {
                    @let class = match edge.kind { EdgeKind::Needs => "needs", EdgeKind::Part => "part" };
                    path class={"edge " (class) @if edge.critical { " critical" }} d=(edge.path()) marker-end=[(edge.kind == EdgeKind::Needs).then_some("url(#tip)")] {}
                }
                @for (row, (x, y)) in view.rows.iter().zip(&nodes) {
                    a href=(address(row.repository.as_ref(), &row.id)) {
                        title { (clean(&row.title)) }
                        rect class={"node " (row.mark.as_str().replace(' ', "-")) @if row.critical { " critical" }} x=(whole(*x)) y=(whole(*y)) width=(node_width) height=(node_height) rx="6" {}
                        text.node-id x=(whole(x + 10.0)) y=(whole(y + 16.0)) { (row.mark.sign()) " " (clean(&row.shown)) " · P" (row.priority) " · " (row.mark.as_str()) }
                        text.node-title x=(whole(x + 10.0)) y=(whole(y + 33.0)) { (short(&row.title, TITLE)) }
                    }
                }
            }
        }
    }
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}
