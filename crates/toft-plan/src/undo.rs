//! Reverts writes to issues, if they were not overwritten since.

use toft_core::{
    issue::{CLOSED, Issue, Put, edit},
    refusal::Refusal,
    verbs::{facts, undo::Before},
};
use toft_session::error::Error;

use super::{IssueFilter, Plan, Wrote, draft::Draft, write::issue_from};

impl Plan<'_> {
    /// Makes issues of one ledger what they were before an operation, all of them or none; new ones are deleted. With
    /// `try_only`, says whether that would be refused, and writes nothing.
    pub fn take_back(&self, issues: &[Before], try_only: bool) -> Result<Vec<Wrote>, Error> {
        let Some(first) = issues.first() else { return Ok(Vec::new()) };
        if !try_only {
            issues.iter().try_for_each(|before| self.recall(&before.issue))?;
        } else if self.named(&first.issue)?.is_none() {
            // It was deleted before anybody else had it, and is recalled when it is needed.
            return Ok(Vec::new());
        }
        let ledger = self.route(Some(&self.find(&first.issue)?.ledger), None)?;
        let now = self.now()?;
        let back = |draft: &mut Draft<'_>| {
            let mut wrote = Vec::new();
            for before in issues {
                let issue = draft.issue(&before.issue)?;
                if !as_left(before, &issue)? {
                    return Err(stays(before, format!("it was changed since; toft history {}", before.issue)));
                }
                let puts = match &before.was {
                    Some(was) => edit::take_back(draft, &issue, was)?,
                    None => edit::delete(&issue, "undone", &self.by("", now))?,
                };
                wrote.push(draft.change(&issue, &puts)?);
            }
            Ok(wrote)
        };
        // Everything that can say no says so before a workflow is given up.
        self.rehearse(ledger, back)?;
        self.nobody_is_on(issues)?;
        for before in issues {
            if before.was.is_none() {
                self.nothing_hangs_on(before, issues)?;
            }
        }
        if try_only {
            return Ok(Vec::new());
        }
        for before in issues.iter().filter(|before| before.was.is_none()) {
            self.let_go(&before.issue, "it was not meant")?;
        }
        let wrote = self.write(ledger, back)?;
        self.note("issue.reverted", &wrote);
        let ids: Vec<&str> = wrote.iter().map(|wrote| wrote.issue.id.as_str()).collect();
        self.forget_uncommitted(ledger, &ids)?;
        Ok(wrote)
    }

    /// Does again what [`Plan::take_back`] took back, all of it or nothing, if nobody wrote over it since. With `try_only`,
    /// says whether that would be refused, and writes nothing.
    pub fn put_again(&self, issues: &[Before], try_only: bool) -> Result<Vec<Wrote>, Error> {
        let Some(first) = issues.first() else { return Ok(Vec::new()) };
        self.nobody_is_on(issues)?;
        if !try_only {
            issues.iter().try_for_each(|before| self.recall(&before.issue))?;
        } else if self.named(&first.issue)?.is_none() {
            // It was deleted before anybody else had it, and is recalled when it is needed.
            return Ok(Vec::new());
        }
        let ledger = self.route(Some(&self.find(&first.issue)?.ledger), None)?;
        let again = |draft: &mut Draft<'_>| {
            let mut wrote = Vec::new();
            for before in issues {
                let issue = draft.issue(&before.issue)?;
                let changed = || stays(before, format!("it was changed since; toft history {}", before.issue));
                let puts = match &before.was {
                    None if issue.deleted.is_some() => edit::restore(&issue)?,
                    Some(was) if edit::stands(&issue, was)? => edit::take_back(draft, &issue, &before.now)?,
                    _ => return Err(changed()),
                };
                wrote.push(draft.change(&issue, &puts)?);
            }
            Ok(wrote)
        };
        if try_only {
            return self.rehearse(ledger, again);
        }
        let wrote = self.write(ledger, again)?;
        self.note("issue.reverted", &wrote);
        Ok(wrote)
    }

    /// Refuses if an agent works, or has worked, on these issues: held or finished work is neither reverted nor
    /// repeated.
    fn nobody_is_on(&self, issues: &[Before]) -> Result<(), Error> {
        for before in issues {
            let progress = facts::IssueProgress { issue: before.issue.clone() };
            if self.session.perform(progress)? == facts::IssueStage::WorkedOn {
                return Err(stays(before, "somebody works on it".to_owned()));
            }
            let decided = before.now.iter().any(|put| matches!(put, Put::Field(name, _) if name == "status"));
            if !decided && self.known(&before.issue)?.is_some_and(|found| found.issue.status == CLOSED) {
                return Err(stays(before, "it was finished since".to_owned()));
            }
        }
        Ok(())
    }

    fn nothing_hangs_on(&self, before: &Before, together: &[Before]) -> Result<(), Error> {
        let id = &before.issue;
        let parts = self.list(&IssueFilter { parent: Some(id.clone()), ..IssueFilter::default() })?;
        let goes_too = |id: &str| together.iter().any(|other| other.issue == id);
        let mut hanging = self.needed_by(id)?.into_iter().chain(parts).map(|found| found.issue);
        match hanging.find(|issue| issue.unfinished() && !goes_too(&issue.id)) {
            Some(other) => Err(stays(before, format!("{} hangs on it; toft edit {0}", other.id))),
            None => Ok(()),
        }
    }
}

/// Whether everything is still as the operation left it.
fn as_left(before: &Before, issue: &Issue) -> Result<bool, Error> {
    match &before.was {
        None => Ok(*issue == issue_from(&before.issue, &before.now)?),
        Some(_) => Ok(edit::stands(issue, &before.now)?),
    }
}

fn stays(before: &Before, why: String) -> Error {
    let what = if before.was.is_none() { "issue.added" } else { "issue.edited" };
    Refusal::CannotUndo { what: what.into(), entity: before.issue.clone(), why }.into()
}
