//! One question about issues, put to one plan or to several: each issue is found once, and a value is unknown only if no
//! plan knows it.

use std::{cmp::Reverse, collections::BTreeSet};

use toft_core::refusal::Refusal;
use toft_session::error::Error;

use super::{FoundIssue, IssueFilter, Plan, UnknownValue};

/// Collects what plans answer to one filter.
pub struct IssueSearch<'f> {
    filter: &'f IssueFilter,
    /// Several plans are asked, so the total needs the ids.
    several: bool,
    limit: usize,
    issues: Vec<FoundIssue>,
    ids: BTreeSet<String>,
    /// Matches in the only plan, if not all of them were read.
    counted: Option<u64>,
    resolved: bool,
    /// Parents that were not found, and ledgers that do not exist, in plans that could not read the filter.
    refused: Option<Error>,
    ledgers: BTreeSet<String>,
    /// Values that a plan did not know, and how many plans did not.
    unknown: Vec<(UnknownValue, usize)>,
    /// Plans that found nothing.
    empty: usize,
}

/// What was found.
#[derive(Debug)]
#[non_exhaustive]
pub struct SearchResult {
    /// At most as many as the limit.
    pub issues: Vec<FoundIssue>,
    /// Number of matches, whatever the limit.
    pub total: u64,
    pub more: bool,
}

/// Why a filter matches nothing anywhere.
#[derive(Debug)]
pub enum SearchProblem {
    /// No plan has such an issue or ledger.
    Refused(Error),
    /// No plan knows this value.
    Unknown(UnknownValue),
}

impl<'f> IssueSearch<'f> {
    /// A search for at most `limit` issues; 0 for all.
    pub fn new(filter: &'f IssueFilter, limit: usize, several: bool) -> Self {
        Self {
            filter,
            several,
            limit,
            issues: Vec::new(),
            ids: BTreeSet::new(),
            counted: None,
            resolved: false,
            refused: None,
            ledgers: BTreeSet::new(),
            unknown: Vec::new(),
            empty: 0,
        }
    }

    /// Asks a plan, and returns the issues that earlier plans did not have. `agents` are known besides those that
    /// issues are assigned to; they are fetched only if nothing was found.
    pub fn ask(
        &mut self,
        plan: &Plan<'_>,
        agents: impl FnOnce() -> Result<Vec<String>, Error>,
    ) -> Result<&[FoundIssue], Error> {
        let start = self.issues.len();
        let filter = match plan.resolve_filter(self.filter) {
            Ok(filter) => filter,
            Err(error @ Error::Refused(Refusal::NotFound { .. } | Refusal::Invalid { .. })) => {
                self.ledgers.extend(plan.ledgers().iter().map(|ledger| ledger.name.clone()));
                self.refused.get_or_insert(error);
                return Ok(&[]);
            }
            Err(error) => return Err(error),
        };
        self.resolved = true;
        // One more than is shown says whether there are more.
        let limit = if self.limit == 0 { 0 } else { self.limit.saturating_add(1) };
        let filter = IssueFilter { limit, ..filter };
        let mut found = plan.list(&filter)?;
        if found.is_empty() {
            self.empty += 1;
            plan.unknown_values(&filter, &agents()?)?.into_iter().for_each(|value| self.is_unknown(value));
        }
        let cut = self.limit > 0 && found.len() > self.limit;
        found.retain(|found| !self.ids.contains(&found.issue.id));
        match (cut, self.several) {
            (true, true) => self.ids.extend(plan.matching_ids(&filter)?),
            (true, false) => self.counted = Some(plan.count(&filter)?),
            (false, _) => self.ids.extend(found.iter().map(|found| found.issue.id.clone())),
        }
        self.issues.extend(found);
        Ok(&self.issues[start..])
    }

    fn is_unknown(&mut self, value: UnknownValue) {
        let same = |(other, _): &&mut (UnknownValue, usize)| other.field == value.field && other.value == value.value;
        match self.unknown.iter_mut().find(same) {
            Some((other, times)) => {
                *times += 1;
                let more: Vec<String> = value.known.into_iter().filter(|word| !other.known.contains(word)).collect();
                other.known.extend(more);
            }
            None => self.unknown.push((value, 1)),
        }
    }

    /// The values that no plan knows, or the refusal if no plan could read the filter; nothing if anything was found.
    pub fn problems(&mut self) -> Vec<SearchProblem> {
        if !self.issues.is_empty() {
            return Vec::new();
        }
        if !self.resolved {
            let refused = self.refused.take();
            return refused.map(|error| SearchProblem::Refused(self.named_everywhere(error))).into_iter().collect();
        }
        let nowhere = self.unknown.iter().filter(|(_, times)| *times == self.empty);
        nowhere.map(|(value, _)| SearchProblem::Unknown(value.clone())).collect()
    }

    /// An unknown ledger names those of every plan.
    fn named_everywhere(&self, error: Error) -> Error {
        match (error, &self.filter.ledger) {
            (Error::Refused(Refusal::Invalid { field, .. }), Some(name)) if field == "ledger" => {
                let known: Vec<&str> = self.ledgers.iter().map(String::as_str).collect();
                let problem = format!("`{name}` is not known; use {}", known.join(", "));
                Refusal::Invalid { field, problem }.into()
            }
            (error, _) => error,
        }
    }

    /// The issues of all plans in the order of the filter, as many as the limit allows.
    pub fn finish(mut self) -> SearchResult {
        if self.several {
            let by_priority = self.filter.by_priority;
            self.issues.sort_by_cached_key(|FoundIssue { issue, .. }| {
                let created = issue.created.as_ref().map(|stamp| stamp.at);
                (by_priority.then_some(issue.priority), Reverse((created, issue.id.clone())))
            });
        }
        let total = self.counted.unwrap_or(self.ids.len() as u64);
        if self.limit > 0 {
            self.issues.truncate(self.limit);
        }
        SearchResult { more: (self.issues.len() as u64) < total, issues: self.issues, total }
    }
}

#[cfg(test)]
mod tests {
    use toft_core::issue::edit::Edit;
    use toft_session::session::Session;

    use super::*;
    use crate::fixture::repository;

    fn search(filter: &IssueFilter, limit: usize, sessions: &[&Session]) -> Result<SearchResult, SearchProblem> {
        let mut search = IssueSearch::new(filter, limit, sessions.len() > 1);
        for session in sessions {
            let plan = Plan::open(session).unwrap().unwrap();
            search.ask(&plan, || Ok(Vec::new())).unwrap();
        }
        match search.problems().into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(search.finish()),
        }
    }

    #[test]
    fn an_issue_of_several_plans_counts_once_and_the_limit_is_for_all_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let (one, first) = repository(dir.path(), "one", &["a", "b"]);
        std::thread::sleep(std::time::Duration::from_millis(5));
        let (two, second) = repository(dir.path(), "two", &["c"]);
        let filter = IssueFilter::default();
        let found = search(&filter, 2, &[&one, &two, &one]).unwrap();
        let ids: Vec<&str> = found.issues.iter().map(|found| found.issue.id.as_str()).collect();
        assert_eq!(ids.len(), 2);
        assert_eq!(ids[0], second[0], "the newest comes first, whatever its plan");
        assert!(first.contains(&ids[1].to_owned()));
        assert_eq!((found.total, found.more), (3, true));
        let all = search(&filter, 3, &[&one, &two, &one]).unwrap();
        assert_eq!((all.issues.len(), all.total, all.more), (3, 3, false));
        let alone = search(&filter, 1, &[&one]).unwrap();
        assert_eq!((alone.issues.len(), alone.total, alone.more), (1, 2, true));
    }

    #[test]
    fn a_value_is_unknown_only_if_no_plan_knows_it() {
        let dir = tempfile::tempdir().unwrap();
        let (one, ids) = repository(dir.path(), "one", &["epic"]);
        let (two, _) = repository(dir.path(), "two", &["other"]);
        let plan = Plan::open(&one).unwrap().unwrap();
        let part = Edit { title: Some("part".into()), parent: Some(ids[0].clone()), ..Edit::default() };
        plan.add(&[part], None, None).unwrap();
        let both = [&two, &one];

        let parent = |text: &str| IssueFilter { parent: Some(text.to_owned()), ..IssueFilter::default() };
        let short = &ids[0][..ids[0].len() - 1];
        assert_eq!(search(&parent(short), 10, &both).unwrap().issues[0].issue.title, "part");
        assert!(matches!(
            search(&parent("tf-zzzz"), 10, &both),
            Err(SearchProblem::Refused(Error::Refused(Refusal::NotFound { .. })))
        ));

        let label = |text: &str| IssueFilter { labels: vec![text.to_owned()], all: true, ..IssueFilter::default() };
        assert_eq!(search(&label("two"), 10, &both).unwrap().total, 1);
        let closed_two = IssueFilter { status: Some("closed".into()), ..label("two") };
        assert_eq!(search(&closed_two, 10, &both).unwrap().total, 0);
        let Err(SearchProblem::Unknown(unknown)) = search(&label("three"), 10, &both) else { panic!() };
        assert_eq!((unknown.field, unknown.value.as_str()), ("label", "three"));
        assert!(unknown.known.contains(&"one".to_owned()) && unknown.known.contains(&"two".to_owned()));

        let ledger = IssueFilter { ledger: Some("nosuch".into()), ..IssueFilter::default() };
        let Err(SearchProblem::Refused(error)) = search(&ledger, 10, &both) else { panic!() };
        assert!(error.to_string().contains("nosuch"), "{error}");
    }

    #[test]
    fn each_field_of_a_filter_is_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let (one, ids) = repository(dir.path(), "one", &["The whole"]);
        let add = |edit: Edit| {
            let plan = Plan::open(&one).unwrap().unwrap();
            plan.add(&[edit], None, None).unwrap().remove(0).issue.id
        };
        let whole = &ids[0];
        let bug = add(Edit {
            title: Some("It breaks".into()),
            kind: Some("bug".into()),
            priority: Some(0),
            labels: vec!["db".into()],
            parent: Some(whole.clone()),
            ..Edit::default()
        });
        let waits = add(Edit {
            title: Some("Then this".into()),
            texts: vec![("body", "a mentioned word".into()), ("assignee", "ann".into())],
            needs: vec![bug.clone()],
            ..Edit::default()
        });
        let any = IssueFilter::default;
        for (filter, wanted) in [
            (IssueFilter { kind: Some("bug".into()), ..any() }, &bug),
            (IssueFilter { priority: Some(0), ..any() }, &bug),
            (IssueFilter { assignee: Some("ann".into()), ..any() }, &waits),
            (IssueFilter { parent: Some(whole[..8].to_owned()), ..any() }, &bug),
            (IssueFilter { labels: vec!["db".into()], ..any() }, &bug),
            (IssueFilter { blocked: true, search: Some("Then".into()), ..any() }, &waits),
            (IssueFilter { search: Some("mentioned".into()), ..any() }, &waits),
        ] {
            let found = search(&filter, 10, &[&one]).unwrap();
            let found: Vec<&String> = found.issues.iter().map(|found| &found.issue.id).collect();
            assert_eq!(found, [wanted], "{filter:?}");
        }
        let urgent = search(&IssueFilter { by_priority: true, ..any() }, 1, &[&one]).unwrap();
        assert_eq!((&urgent.issues[0].issue.id, urgent.total, urgent.more), (&bug, 3, true));
        for (filter, known) in [
            (IssueFilter { kind: Some("bugg".into()), ..any() }, "feature"),
            (IssueFilter { status: Some("opne".into()), ..any() }, "in_progress"),
            (IssueFilter { assignee: Some("nobody".into()), ..any() }, "ann"),
        ] {
            let Err(SearchProblem::Unknown(unknown)) = search(&filter, 10, &[&one]) else { panic!("{filter:?}") };
            assert!(unknown.known.iter().any(|value| value == known), "{unknown:?}");
        }
        // A word that is known and has no issue is no mistake.
        assert_eq!(search(&IssueFilter { kind: Some("chore".into()), ..any() }, 10, &[&one]).unwrap().total, 0);
    }
}
