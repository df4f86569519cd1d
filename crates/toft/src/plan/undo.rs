//! Taking back what was written about issues, if nobody wrote over it since.

use toft_core::{
    issue::{
        Issue,
        edit::{self, By},
    },
    refusal::Refusal,
    verbs::undo::Before,
};

use super::{Asked, Plan, Wrote, write::issue_from};
use crate::error::Error;

impl Plan<'_> {
    /// Makes issues of one ledger what they were before an operation, all of them or none; new ones are deleted.
    pub(crate) fn take_back(&self, issues: &[Before]) -> Result<Vec<Wrote>, Error> {
        let Some(first) = issues.first() else { return Ok(Vec::new()) };
        let ledger = self.route(Some(&self.find(&first.issue)?.ledger), None)?;
        for before in issues.iter().filter(|before| before.was.is_none()) {
            self.nothing_hangs_on(before, issues)?;
            self.let_go(&before.issue, "it was not meant")?;
        }
        let now = self.now()?;
        let wrote = self.write(ledger, |draft| {
            let mut wrote = Vec::new();
            for before in issues {
                let issue = draft.issue(&before.issue)?;
                if !as_left(before, &issue)? {
                    return Err(stays(before, format!("it was changed since; toft log {}", before.issue)));
                }
                let puts = match &before.was {
                    Some(was) => edit::take_back(draft, &issue, was)?,
                    None => edit::delete(&issue, "undone", &By { actor: &self.toft.located().agent, now, word: "" })?,
                };
                wrote.push(draft.change(&issue, &puts)?);
            }
            Ok(wrote)
        })?;
        self.note("issue.reverted", &wrote);
        Ok(wrote)
    }

    /// Does again what [`Plan::take_back`] took back, all of it or nothing, if nobody wrote over it since.
    pub(crate) fn put_again(&self, issues: &[Before]) -> Result<Vec<Wrote>, Error> {
        let Some(first) = issues.first() else { return Ok(Vec::new()) };
        let ledger = self.route(Some(&self.find(&first.issue)?.ledger), None)?;
        let wrote = self.write(ledger, |draft| {
            let mut wrote = Vec::new();
            for before in issues {
                let issue = draft.issue(&before.issue)?;
                let changed = || stays(before, format!("it was changed since; toft log {}", before.issue));
                let puts = match &before.was {
                    None if issue.deleted.is_some() => edit::restore(&issue),
                    Some(was) if edit::stands(&issue, was)? => edit::take_back(draft, &issue, &before.now)?,
                    _ => return Err(changed()),
                };
                wrote.push(draft.change(&issue, &puts)?);
            }
            Ok(wrote)
        })?;
        self.note("issue.reverted", &wrote);
        Ok(wrote)
    }

    fn nothing_hangs_on(&self, before: &Before, together: &[Before]) -> Result<(), Error> {
        let id = &before.issue;
        let parts = self.list(&Asked { parent: Some(id.clone()), ..Asked::default() })?;
        let goes_too = |id: &str| together.iter().any(|other| other.issue == id);
        let mut hanging = self.needed_by(id)?.into_iter().chain(parts).map(|found| found.issue);
        match hanging.find(|issue| issue.unfinished() && !goes_too(&issue.id)) {
            Some(other) => Err(stays(before, format!("{} hangs on it; toft edit {0}", other.id))),
            None => Ok(()),
        }
    }
}

/// Is everything still as the operation left it?
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
