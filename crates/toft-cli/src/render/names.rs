//! Rows of several repositories, each named by its own.

use std::collections::{BTreeMap, btree_map::Entry};

use serde_json::Value;

use super::{
    IssueList, TaskList, View,
    page::{Page, clean},
};

/// What the repository of each row is called, by the row's id; empty where only one repository is looked at.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, String>);

impl Names {
    /// Remembers where a row is from; false if the row was there already, which keeps its first repository.
    pub(crate) fn add(&mut self, id: &str, repository: Option<&String>) -> bool {
        let Some(repository) = repository else { return true };
        match self.0.entry(id.to_owned()) {
            Entry::Vacant(new) => {
                new.insert(repository.clone());
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// What stands after a row.
    pub(super) fn text(&self, id: &str) -> String {
        self.0.get(id).map(|name| format!("  in {}", clean(name))).unwrap_or_default()
    }

    /// The rows of a list with the names of their repositories.
    pub(super) fn json(&self, rows: Value) -> Value {
        let Value::Array(mut rows) = rows else { return rows };
        for row in &mut rows {
            if let Some(name) = row["id"].as_str().and_then(|id| self.0.get(id)) {
                row["repository"] = name.as_str().into();
            }
        }
        rows.into()
    }
}

/// Issues and tasks of every repository.
pub(crate) struct Everything {
    pub(crate) issues: IssueList,
    pub(crate) tasks: TaskList,
}

impl View for Everything {
    fn kind(&self) -> &'static str {
        "everything"
    }

    fn json(&self) -> Value {
        let (issues, tasks) = (self.issues.json(), self.tasks.json());
        issues.as_array().into_iter().chain(tasks.as_array()).flatten().cloned().collect()
    }

    fn more(&self) -> Option<bool> {
        Some(self.issues.more || self.tasks.more)
    }

    fn ids(&self) -> Vec<String> {
        self.issues.ids().into_iter().chain(self.tasks.ids()).collect()
    }

    fn text(&self, page: &mut Page) {
        if !self.issues.issues.is_empty() || self.tasks.tasks.is_empty() {
            self.issues.text(page);
        }
        if !self.tasks.tasks.is_empty() {
            self.tasks.text(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_the_repository_that_named_it_first() {
        let mut names = Names::default();
        assert!(names.add("tf-1", Some(&"own".to_owned())));
        assert!(!names.add("tf-1", Some(&"team".to_owned())));
        assert_eq!(names.text("tf-1"), "  in own");
    }
}
