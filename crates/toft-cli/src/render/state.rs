//! A value that a task keeps under a key.

use serde_json::Value;

use super::{View, page::Page};

/// A value by itself: plain text for a string, JSON for the rest.
pub(crate) struct StateValue {
    pub(crate) outcome: Value,
    pub(crate) value: Value,
}

impl View for StateValue {
    fn kind(&self) -> &'static str {
        "state"
    }

    fn json(&self) -> Value {
        self.outcome.clone()
    }

    fn ids(&self) -> Vec<String> {
        vec![]
    }

    fn text(&self, page: &mut Page) {
        match &self.value {
            Value::String(text) => page.block("", text),
            other => page.line(other.to_string()),
        }
    }
}
