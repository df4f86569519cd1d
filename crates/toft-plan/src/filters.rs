//! Questions about issues: checked against what is known here, and counted.

use toft_core::{issue::NO_AUTO_CLAIM, refusal::Refusal};
use toft_session::error::Error;
use toft_store::sqlite::index::IssueFilter;

use super::Plan;

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
