//! Proposals after they were made (`offer.rs`): withdraw, decide and follow them; and move issues permanently.

use std::collections::BTreeMap;

use serde::Serialize;
use toft_core::{
    issue::{
        Issue, Put, edit,
        filter::FieldFilter,
        proposal::{self, LOCAL, PROPOSED, ProposalNews, ProposalSide},
    },
    refusal::Refusal,
    store::Access,
};
use toft_ledger::{
    file::LedgerLock,
    line::{self, Line},
    record::Record,
};
use toft_session::{
    error::{Error, io},
    session::random_ids,
};
use toft_store::sqlite::index::Indexed;
use toft_vcs::exchange::{Branch, Exchange as _, ExchangeError, Files, Tree};

use super::{
    FoundIssue, IssueFilter, Ledger, LedgerKind, Plan, Wrote, copy::lines_of, synced::SyncTrouble, write::issue_of,
};

/// The refusal to move an issue that upstream maintains.
const MOVES: &str = "only its keepers move it; what you change about it is kept in private";

/// The result of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProposalEnd {
    pub issue: String,
    pub title: String,
    /// landed, accepted, rejected, changed.
    pub news: &'static str,
    /// The reason, if one was given.
    pub why: Option<String>,
    /// The remote with the proposal branch.
    #[serde(skip)]
    remote: String,
}

impl Plan<'_> {
    /// The repository's own ledger.
    pub(super) fn own_ledger(&self) -> Result<&Ledger, Error> {
        let own = self.ledgers.iter().find(|ledger| matches!(ledger.place, LedgerKind::Branch | LedgerKind::Tree));
        own.ok_or_else(|| Refusal::NotFound { what: "ledger".into(), text: String::new() }.into())
    }

    /// Withdraws a proposal.
    pub fn withdraw(&self, text: &str) -> Result<Wrote, Error> {
        let id = self.find(text)?.issue.id;
        let copies = self.index(Access::Read)?.copies(&id)?;
        let mine = copies.iter().find_map(|row| {
            let issue = row.issue().ok()?;
            issue.origin.as_ref().is_some_and(|origin| !origin.to.is_empty()).then_some((issue, row.ledger.clone()))
        });
        let Some((mine, ledger)) = mine else {
            proposal::withdraw(&self.find(&id)?.issue)?;
            return Err(Refusal::NotFound { what: "proposal".into(), text: id }.into());
        };
        let puts = proposal::withdraw(&mine)?;
        let origin = mine.origin.clone().unwrap_or_default();
        let landed = || Refusal::WrongState {
            id: mine.id.clone(),
            state: "in their ledger already".into(),
            wanted: "whoever keeps it decides; ask them to reject it".into(),
        };
        if let Ok(target) = self.called(&origin.to) {
            match target.place {
                LedgerKind::Branch if self.contributor => {
                    if origin.landed {
                        return Err(landed().into());
                    }
                    if let Some(mut branch) = Branch::open(self.checkout, &target.dir, self.reach())? {
                        branch.fetch()?;
                        if lines_of(&branch.theirs()?)?.contains_key(&mine.id) {
                            return Err(landed().into());
                        }
                        self.clear_proposals(&branch, &BTreeMap::from([(mine.id.clone(), origin.remote.clone())]))?;
                    }
                }
                LedgerKind::Tree if !origin.landed && !self.published(target, &mine.id)? => {
                    self.take_line_away(target, &mine.id)?;
                }
                _ => {
                    let (now, word) = (self.now()?, random_ids().word());
                    self.change_in(target, &mine.id, "issue.withdrawn", |_, issue| {
                        Ok(proposal::reject(issue, "withdrawn", &self.by(&word, now))?)
                    })?;
                }
            }
        }
        let source = self.route(Some(&ledger), None)?;
        self.change_in(source, &mine.id, "issue.withdrawn", |_, _| Ok(puts))
    }

    /// Whether the remote of a ledger in the tree has an issue.
    fn published(&self, target: &Ledger, id: &str) -> Result<bool, Error> {
        let mut tree = Tree::open(self.home, &target.dir, self.reach())?;
        tree.fetch()?;
        Ok(lines_of(&tree.theirs()?)?.contains_key(id))
    }

    /// Whether the remote of a ledger that others maintain has an issue.
    fn has_upstream(&self, kept: &Ledger, id: &str) -> Result<bool, Error> {
        if kept.place == LedgerKind::Tree {
            return self.published(kept, id);
        }
        match Branch::open(self.checkout, &kept.dir, self.reach())? {
            Some(mut branch) => Ok(lines_of(&branch.theirs()?)?.contains_key(id)),
            None => Ok(false),
        }
    }

    /// Removes the line of a proposal that no other clone has seen; the issue stays in the ledger from which it came.
    fn take_line_away(&self, target: &Ledger, id: &str) -> Result<(), Error> {
        let turn = LedgerLock::take(&target.lock).map_err(io("lock", &target.lock))?;
        let path = target.issues();
        let text = std::fs::read_to_string(&path).map_err(io("read", &path))?;
        let other = |text: &&str| line::read(text.trim_end()).map_or(true, |line| line.record.id() != id);
        let rest: String = text.split_inclusive('\n').filter(other).collect();
        turn.replace(&path, |out| out.write_all(rest.as_bytes())).map_err(io("write", &path))?;
        self.refresh_in_turn(Some(target))
    }

    /// The copy of an issue that is proposed to a ledger here.
    fn offered(&self, text: &str) -> Result<(Issue, &Ledger), Error> {
        let found = self.find(text)?;
        let copies = self.index(Access::Read)?.copies(&found.issue.id)?;
        for row in &copies {
            let issue = row.issue()?;
            if ProposalSide::of(&issue) == ProposalSide::Offered {
                let ledger = self.called(&row.ledger)?;
                if ledger.kept_by_others {
                    let state = "for whoever keeps that ledger to decide".into();
                    let wanted = "toft propose --withdraw takes back what you proposed".into();
                    return Err(Refusal::WrongState { id: issue.id, state, wanted }.into());
                }
                return Ok((issue, self.route(Some(&row.ledger), None)?));
            }
        }
        Ok((found.issue, self.route(Some(&found.ledger), None)?))
    }

    /// Fetches a proposal from a branch of a remote or a URL, so that a maintainer can decide.
    pub fn fetch_proposal(&self, id: &str, from: &str) -> Result<(), Error> {
        let own = self.own_ledger()?;
        let Some(branch) =
            Branch::open(self.checkout, &own.dir, self.reach())?.filter(|_| own.place == LedgerKind::Branch)
        else {
            let problem = "only a ledger beside a git repository is proposed to by branches".to_owned();
            return Err(Refusal::Invalid { field: "from".into(), problem }.into());
        };
        let offered = branch.fetch_proposal(from, id)?;
        self.take_offered(own, &[offered], false).map(drop)
    }

    /// Accepts a proposal into the plan.
    pub fn accept(&self, text: &str) -> Result<Wrote, Error> {
        let (issue, ledger) = self.offered(text)?;
        self.change_in(ledger, &issue.id, "issue.accepted", |_, issue| Ok(proposal::accept(issue)?))
    }

    /// Rejects a proposal; the reason is sent back to the proposer.
    pub fn reject(&self, text: &str, reason: &str) -> Result<Wrote, Error> {
        let (issue, ledger) = self.offered(text)?;
        let (now, word) = (self.now()?, random_ids().word());
        self.change_in(ledger, &issue.id, "issue.rejected", |_, issue| {
            Ok(proposal::reject(issue, reason, &self.by(&word, now))?)
        })
    }

    /// Proposals to ledgers that are maintained here.
    pub fn proposals(&self) -> Result<Vec<FoundIssue>, Error> {
        if self.unwritten() || self.contributor {
            return Ok(Vec::new());
        }
        self.look()?.offered()?.iter().map(FoundIssue::of).collect()
    }

    /// Proposals from here that are not decided.
    pub fn my_proposals(&self) -> Result<Vec<FoundIssue>, Error> {
        if self.unwritten() || !self.contributor {
            return Ok(Vec::new());
        }
        let sent = |issue: &Issue| issue.origin.as_ref().is_some_and(|origin| !origin.to.is_empty());
        let all = self.list(&IssueFilter::default())?;
        Ok(all
            .into_iter()
            .filter(|found| sent(&found.issue) && ProposalSide::of(&found.issue) == ProposalSide::Own)
            .collect())
    }

    /// Reads the state of proposals to a ledger, and updates the copies here.
    pub(super) fn follow_proposals(
        &self,
        target: &Ledger,
        theirs: Option<&Files>,
        gone: impl Fn(&str, &str) -> Result<bool, ExchangeError>,
    ) -> Result<Vec<ProposalEnd>, SyncTrouble> {
        let theirs = theirs.map(lines_of).transpose()?;
        let mut came = Vec::new();
        for ledger in self.ledgers.iter().filter(|ledger| ledger.name != target.name && !ledger.read_only) {
            let asked = IssueFilter { ledger: Some(ledger.name.clone()), all: true, ..IssueFilter::default() };
            let rows = if self.unwritten() { Vec::new() } else { self.look()?.list(&asked).map_err(Error::from)? };
            for row in rows.iter().filter(|row| row.line.contains("\"origin\":{")) {
                let mine = row.issue().map_err(Error::from)?;
                let Some(origin) = mine.origin.as_ref().filter(|origin| origin.to == target.name) else { continue };
                let there = match &theirs {
                    Some(theirs) => {
                        theirs.get(&mine.id).map(|lines| merged(lines).and_then(|record| issue_of(&record)))
                    }
                    None => {
                        let row = self.index(Access::Read)?.line(&target.name, &mine.id).map_err(Error::from)?;
                        row.map(|row| Ok(row.issue()?))
                    }
                };
                let there = there.transpose()?;
                let asked = there.is_none() && !origin.remote.is_empty() && !origin.landed;
                let gone = asked && gone(&origin.remote, &mine.id)?;
                let (now, word) = (self.now()?, random_ids().word());
                let followed =
                    proposal::follow(&mine, there.as_ref(), gone, &self.by(&word, now)).map_err(Error::from)?;
                let Some((puts, news)) = followed else { continue };
                self.change_in(ledger, &mine.id, "issue.followed", |_, _| Ok(puts))?;
                let (news, why) = match news {
                    ProposalNews::Landed => ("landed", None),
                    ProposalNews::Accepted => ("accepted", None),
                    ProposalNews::Changed => ("changed", None),
                    ProposalNews::Rejected(why) => ("rejected", Some(why)),
                };
                let remote = origin.remote.clone();
                came.push(ProposalEnd { issue: mine.id.clone(), title: mine.title.clone(), news, why, remote });
            }
        }
        Ok(came)
    }

    /// Deletes the branches of decided proposals, locally and on the remote.
    pub(super) fn clear_decided(&self, branch: &Branch, came: &[ProposalEnd]) -> Result<(), SyncTrouble> {
        let mut decided = BTreeMap::new();
        for id in branch.proposed_here()? {
            let Some(FoundIssue { issue, .. }) = self.known(&id)? else { continue };
            let origin = issue.origin.clone().unwrap_or_default();
            if issue.visibility.as_deref() == Some(PROPOSED) && !origin.to.is_empty() {
                continue;
            }
            let heard = came.iter().find(|came| came.issue == id).map(|came| came.remote.clone());
            decided.insert(id, heard.unwrap_or(origin.remote));
        }
        // A branch that cannot be taken away now is taken away by the next sync.
        if let Err(error) = self.clear_proposals(branch, &decided) {
            self.session.note(format!("branches of decided proposals are still there: {error}"));
        }
        Ok(())
    }

    fn clear_proposals(&self, branch: &Branch, decided: &BTreeMap<String, String>) -> Result<(), Error> {
        // A branch of that name with anything else on it is not ours.
        let ours = |id: &str, files: &Files| {
            let there = lines_of(files).ok()?.get(id).and_then(|lines| merged(lines).ok())?;
            let (there, mine) = (issue_of(&there).ok()?, self.known(id).ok()??.issue);
            Some(ProposalSide::of(&there) == ProposalSide::Offered && there.written() == mine.written())
        };
        Ok(branch.clear_proposals(decided, |id, files| ours(id, files).unwrap_or(false))?)
    }

    /// The issues outside of ledger `to` that fit every filter, each `FIELD=VALUE`: of those that are named, or of all.
    pub fn fitting(&self, named: &[String], filters: &[String], to: &str, me: &str) -> Result<Vec<String>, Error> {
        let filters = filters.iter().map(|text| FieldFilter::parse(text)).collect::<Result<Vec<_>, _>>()?;
        let named = named.iter().map(|id| Ok(self.find(id)?.issue.id)).collect::<Result<Vec<_>, Error>>()?;
        // My name is the agent's, or the one that ledgers have.
        let is_me = |name: &str| name == me || name == self.name_of(me);
        let all = self.list(&IssueFilter { all: true, ..IssueFilter::default() })?;
        let fits = |found: &FoundIssue| {
            found.ledger != to
                && (named.is_empty() || named.contains(&found.issue.id))
                && filters.iter().all(|filter| filter.fits(&found.issue, &found.ledger, is_me))
        };
        Ok(all.into_iter().filter(fits).map(|found| found.issue.id).collect())
    }

    /// Moves issues to another ledger for good: same ids, same history, a tombstone where they were.
    pub fn move_to(&self, ids: &[String], to: &str, try_only: bool, sure: bool) -> Result<Vec<Wrote>, Error> {
        self.refuse_kept(Some(to))?;
        let target = self.route(Some(to), None)?;
        let mut moving: Vec<(Ledger, Indexed)> = Vec::new();
        for id in ids {
            let found = self.find(id)?;
            if found.ledger == target.name {
                continue;
            }
            let source = self.called(&found.ledger)?;
            if source.kept_by_others && self.has_upstream(source, &found.issue.id)? {
                let (state, wanted) = (format!("in `{}`, which others keep", found.ledger), MOVES.to_owned());
                return Err(Refusal::WrongState { id: found.issue.id, state, wanted }.into());
            }
            let source = source.clone();
            if !sure && source.place == LedgerKind::Planning && target.place != LedgerKind::Planning {
                proposal::refuse_telling(&found.issue)?;
            }
            // A move writes both: neither is written before both can be.
            source.check_writable()?;
            target.check_writable()?;
            let row = self.index(Access::Read)?.line(&source.name, &found.issue.id)?;
            moving.extend(row.map(|row| (source, row)));
        }
        let mut wrote = Vec::new();
        for (_, row) in &moving {
            wrote.push(Wrote { issue: row.issue()?, ledger: target.name.clone(), before: None });
        }
        if try_only || moving.is_empty() {
            return Ok(wrote);
        }
        let private = target.place == LedgerKind::Planning;
        self.write(target, |draft| {
            for (_, row) in &moving {
                let read = line::read(&row.line).map_err(|error| bad_line(&error.to_string()))?;
                let id = read.record.id().to_owned();
                draft.take(Line::dated(read.record))?;
                let visibility = private.then(|| LOCAL.into());
                draft.put(&id, &[Put::Field("visibility".into(), visibility), Put::Field("deleted".into(), None)])?;
            }
            Ok(())
        })?;
        // Nobody is told what a private ledger is called.
        let told = matches!(target.place, LedgerKind::Branch | LedgerKind::Tree);
        let reason = if told { format!("moved to {}", target.name) } else { "moved".to_owned() };
        let now = self.now()?;
        for (source, row) in &moving {
            let id = row.issue()?.id;
            if source.kept_by_others {
                // Its keepers never saw it, and need no tombstone of it.
                self.take_line_away(source, &id)?;
                continue;
            }
            self.change_in(source, &id, "issue.moved", |_, issue| {
                Ok(edit::delete(issue, &reason, &self.by("", now))?)
            })?;
            // Its text is in the other ledger, and nowhere else from now on.
            self.write(source, |draft| draft.clear(&id, &["deleted"]))?;
            self.forget_uncommitted(source, &[&id])?;
        }
        Ok(wrote)
    }
}

pub(super) fn bad_line(cause: &str) -> Error {
    Refusal::Invalid { field: "line".into(), problem: cause.to_owned() }.into()
}

/// The merged lines of an issue.
pub(super) fn merged(lines: &[Line]) -> Result<Record, Error> {
    let mut records = lines.iter().map(|line| line.record.clone());
    let mut first = records.next().ok_or_else(|| bad_line("no line"))?;
    records.for_each(|other| first.merge(other));
    Ok(first)
}
