//! Questions about issues: checked against what is known here, counted, and saved under names.
//!
//! Saved queries are this clone's own: `queries.json` beside its store, in no working tree.

use std::{collections::BTreeMap, path::PathBuf};

use toft_core::{issue::NO_AUTO_CLAIM, refusal::Refusal};
use toft_ledger::file::LedgerLock;
use toft_session::{
    config::read_in_tree,
    error::{Error, io},
};
use toft_store::sqlite::index::IssueFilter;

use super::{Ledgers, Plan};

const FILE: &str = "queries.json";

/// Types that are known whether or not an issue has them.
const KINDS: [&str; 6] = ["task", "bug", "feature", "epic", "chore", "decision"];
const STATUSES: [&str; 5] = ["open", "in_progress", "deferred", "closed", "deleted"];
const LABELS: [&str; 4] = ["baseline-failure", "discovered:blocker", "discovered:related", NO_AUTO_CLAIM];

/// A value in a filter that nothing here has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownValue {
    /// What it is a value of.
    pub field: &'static str,
    pub value: String,
    /// Values that are known.
    pub known: Vec<String>,
}

impl Plan<'_> {
    /// The same filter with the parent's whole id and the ledger's own name. Refuses those that are not known.
    pub fn resolve_filter(&self, asked: &IssueFilter) -> Result<IssueFilter, Error> {
        let parent = asked.parent.as_deref().map(|parent| Ok::<_, Error>(self.find(parent)?.issue.id)).transpose()?;
        let ledger = asked.ledger.as_deref().map(|name| match self.called(name) {
            Ok(ledger) => Ok(ledger.name.clone()),
            Err(_) => {
                let known: Vec<&str> = self.ledgers.iter().map(|ledger| ledger.name.as_str()).collect();
                let problem = format!("`{name}` is not known; use {}", known.join(", "));
                Err(Error::from(Refusal::Invalid { field: "ledger".into(), problem }))
            }
        });
        Ok(IssueFilter { parent, ledger: ledger.transpose()?, ..asked.clone() })
    }

    /// How many issues there are of what is asked for, whatever the limit.
    pub fn count(&self, asked: &IssueFilter) -> Result<u64, Error> {
        if self.unwritten() {
            return Ok(0);
        }
        Ok(self.look()?.count(asked)?)
    }

    /// The ids of the issues that match a filter, whatever the limit.
    pub(super) fn matching_ids(&self, asked: &IssueFilter) -> Result<Vec<String>, Error> {
        if self.unwritten() {
            return Ok(Vec::new());
        }
        Ok(self.look()?.matching_ids(asked)?)
    }

    /// The values of a filter that no issue has; `agents` are known besides those that issues are assigned to.
    pub fn unknown_values(&self, asked: &IssueFilter, agents: &[String]) -> Result<Vec<UnknownValue>, Error> {
        let index = self.look()?;
        let all = |always: &[&str], found: Vec<String>| {
            let mut known: Vec<String> = always.iter().map(|&word| word.to_owned()).collect();
            known.extend(found.into_iter().filter(|word| !always.contains(&word.as_str())));
            known
        };
        let mut given: Vec<(&'static str, &String, Vec<String>)> = Vec::new();
        if let Some(status) = &asked.status {
            given.push(("status", status, all(&STATUSES, index.statuses()?)));
        }
        if let Some(kind) = &asked.kind {
            given.push(("type", kind, all(&KINDS, index.kinds()?)));
        }
        if let Some(assignee) = &asked.assignee {
            let mut known = index.ever_assigned()?;
            known.extend(agents.iter().filter(|name| !known.contains(name)).cloned().collect::<Vec<_>>());
            given.push(("assignee", assignee, known));
        }
        if !asked.labels.is_empty() {
            let known = all(&LABELS, index.labels()?.into_iter().collect());
            given.extend(asked.labels.iter().map(|label| ("label", label, known.clone())));
        }
        let unknown = given.into_iter().filter(|(_, value, known)| !known.contains(value));
        Ok(unknown.map(|(field, value, known)| UnknownValue { field, value: value.clone(), known }).collect())
    }
}

impl Ledgers<'_> {
    fn queries_file(&self) -> Result<PathBuf, Error> {
        Ok(self.ledger_home()?.state_dir().join(FILE))
    }

    /// Saved queries, by name.
    pub fn queries(&self) -> Result<BTreeMap<String, IssueFilter>, Error> {
        let path = self.queries_file()?;
        match read_in_tree(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| Error::Config { path: path.display().to_string(), problem: error.to_string() }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(cause) => Err(Error::Io { doing: "read", path, cause }),
        }
    }

    /// A saved query by its name.
    pub fn query(&self, name: &str) -> Result<IssueFilter, Error> {
        let mut queries = self.queries()?;
        queries.remove(name).ok_or_else(|| unknown_query(name, &queries))
    }

    /// Saves a query under a name, in place of an earlier one of that name.
    pub fn save_query(&self, name: &str, query: &IssueFilter) -> Result<(), Error> {
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c)) {
            let problem = format!("`{name}` is not a name: letters, digits, -, _ and .");
            return Err(Refusal::Invalid { field: "save".into(), problem }.into());
        }
        self.change_queries(|queries| {
            queries.insert(name.to_owned(), query.clone());
            Ok(())
        })
    }

    /// Forgets a saved query.
    pub fn forget_query(&self, name: &str) -> Result<(), Error> {
        self.change_queries(|queries| match queries.remove(name) {
            Some(_) => Ok(()),
            None => Err(unknown_query(name, queries)),
        })
    }

    fn change_queries(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, IssueFilter>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = self.queries_file()?;
        let lock = path.with_file_name("locks").join("queries.lock");
        let turn = LedgerLock::take(&lock).map_err(io("lock", &lock))?;
        let mut queries = self.queries()?;
        change(&mut queries)?;
        let unwritable = |error: serde_json::Error| Error::Config { path: FILE.into(), problem: error.to_string() };
        let text = serde_json::to_string_pretty(&queries).map_err(unwritable)?;
        turn.replace(&path, |out| out.write_all(text.as_bytes())).map_err(io("write", &path)).map(drop)
    }
}

fn unknown_query(name: &str, queries: &BTreeMap<String, IssueFilter>) -> Error {
    let known: Vec<String> = queries.keys().map(|name| format!("@{name}")).collect();
    let problem = match known.is_empty() {
        true => format!("no query is saved as `{name}`; toft list --save {name} saves one"),
        false => format!("no query is saved as `{name}`; use {}", known.join(", ")),
    };
    Refusal::Invalid { field: "query".into(), problem }.into()
}
