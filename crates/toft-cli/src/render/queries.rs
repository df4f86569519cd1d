//! Queries that are saved under names.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use toft::plan::IssueFilter;

use super::{
    View, data,
    page::{Ink, Page, clean},
};

/// Saved queries, by name.
pub(crate) struct SavedQueries(pub(crate) BTreeMap<String, IssueFilter>);

impl View for SavedQueries {
    fn kind(&self) -> &'static str {
        "queries"
    }

    fn json(&self) -> Value {
        self.0.iter().map(|(name, query)| json!({ "name": name, "query": data(query) })).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }

    fn text(&self, page: &mut Page) {
        for (name, query) in &self.0 {
            let name = page.ink(Ink::Id, &clean(&format!("@{name}")));
            page.line(format!("{name}  {}", clean(&flags(query))));
        }
        if self.0.is_empty() {
            page.line("No saved queries; `toft list --save NAME` with filters saves one.");
        }
    }
}

/// A filter as it is typed.
fn flags(query: &IssueFilter) -> String {
    let quoted = |text: &str| match text.chars().any(char::is_whitespace) || text.is_empty() {
        true => format!("'{}'", text.replace('\'', "'\\''")),
        false => text.to_owned(),
    };
    let mut flags = Vec::new();
    let mut flag = |name: &str, value: Option<&str>| {
        flags.extend(value.map(|value| format!("--{name} {}", quoted(value))));
    };
    flag("status", query.status.as_deref());
    flag("type", query.kind.as_deref());
    flag("priority", query.priority.map(|priority| format!("P{priority}")).as_deref());
    flag("assignee", query.assignee.as_deref());
    flag("parent", query.parent.as_deref());
    query.labels.iter().for_each(|label| flag("label", Some(label)));
    flag("search", query.search.as_deref());
    flag("ledger", query.ledger.as_deref());
    flag("sort", query.by_priority.then_some("priority"));
    for (wanted, word) in [(query.blocked, "--blocked"), (query.all, "--all")] {
        flags.extend(wanted.then(|| word.to_owned()));
    }
    if flags.is_empty() { "all open issues".to_owned() } else { flags.join(" ") }
}

/// A saved query that was forgotten.
pub(crate) struct QueryForgotten(pub(crate) String);

impl View for QueryForgotten {
    fn kind(&self) -> &'static str {
        "query"
    }

    fn json(&self) -> Value {
        json!({ "name": self.0, "forgotten": true })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.clone()]
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("Deleted the saved query @{}", clean(&self.0)));
    }
}
