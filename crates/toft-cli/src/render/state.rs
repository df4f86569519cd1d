//! A value that a task keeps under a key.

use serde_json::Value;

use super::{CommandView, view::NO_IDS};

/// A value by itself: plain text for a string, JSON for the rest.
pub(crate) fn view_state_value<'a>(outcome: &'a Value, value: &'a Value) -> CommandView<'a> {
    CommandView::new("state", outcome, NO_IDS, move |page| match value {
        Value::String(text) => page.block("", text),
        other => page.line(other.to_string()),
    })
}
