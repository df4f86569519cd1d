//! Rows of several repositories, each named by its own.

use std::collections::{BTreeMap, btree_map::Entry};

use serde_json::Value;

use super::{CommandView, IssueList, TaskList, page::after};

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
        after("in ", self.0.get(id))
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
pub(crate) fn view_everything<'a>(issues: &'a IssueList, tasks: &'a TaskList) -> CommandView<'a> {
    let more = issues.more || tasks.more;
    let (some_issues, some_tasks) = (!issues.issues.is_empty(), !tasks.tasks.is_empty());
    let (issues, tasks) = (issues.view(), tasks.view());
    let rows: Vec<Value> =
        [issues.json(), tasks.json()].iter().filter_map(Value::as_array).flatten().cloned().collect();
    let ids: Vec<String> = [issues.ids.as_slice(), &tasks.ids].concat();
    CommandView::new("everything", rows, ids, move |page| {
        if some_issues || !some_tasks {
            issues.write(page);
            page.end_table();
        }
        if some_tasks {
            tasks.write(page);
        }
    })
    .with_more(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_the_repository_that_named_it_first() {
        let mut names = Names::default();
        assert!(names.add("tf-1", Some(&"own".to_owned())));
        assert!(!names.add("tf-1", Some(&"team".to_owned())));
        assert_eq!(names.text("tf-1"), "in own");
    }
}
