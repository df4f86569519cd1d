//! Proposals: an issue of one ledger, offered to another under the same id; and moving issues for good.

use std::collections::HashSet;

use serde::Serialize;
use toft_core::{
    issue::{
        Issue, Put, edit,
        proposal::{self, LOCAL, News, Part},
    },
    refusal::Refusal,
    store::Access,
};
use toft_ledger::{
    file::Turn,
    line::{self, Line},
    record::Record,
};
use toft_store::sqlite::index::Indexed;
use toft_vcs::exchange::{Branch, Exchange as _, ExchangeError, Files, Tree};

use super::{
    Asked, Found, Ledger, Place, Plan, Wrote,
    copy::lines_of,
    place::ISSUES,
    sync::Trouble,
    write::{issue_of, register},
};
use crate::{
    error::{Error, io},
    session::random_mint,
};

/// A proposal that was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposed {
    /// The issue.
    pub issue: Issue,
    /// The ledger it is proposed to.
    pub to: String,
    /// What kind of place that is in.
    pub place: Place,
    /// The branch that proposes it, where there is one.
    pub branch: Option<String>,
    /// The remote that branch was sent to.
    pub sent_to: Option<String>,
    /// What it needs and nobody there can see.
    pub private: Vec<String>,
}

/// What came of a proposal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Came {
    /// The issue.
    pub issue: String,
    /// What it is about.
    pub title: String,
    /// landed, accepted, rejected, changed.
    pub news: &'static str,
    /// Why, if somebody said.
    pub why: Option<String>,
}

impl Plan<'_> {
    /// The repository's own ledger.
    fn own_ledger(&self) -> Result<&Ledger, Error> {
        let own = self.ledgers.iter().find(|ledger| matches!(ledger.place, Place::Branch | Place::Tree));
        own.ok_or_else(|| Refusal::NotFound { what: "ledger", text: String::new() }.into())
    }

    /// Offers issues to another ledger, the repository's own unless named. With a remote, branches that propose them are
    /// sent there.
    pub fn propose(&self, texts: &[String], to: Option<&str>, send_to: Option<&str>) -> Result<Vec<Proposed>, Error> {
        let ids = texts.iter().map(|text| Ok(self.find(text)?.issue.id)).collect::<Result<Vec<_>, Error>>()?;
        ids.iter().map(|id| self.propose_one(id, &ids, to, send_to)).collect()
    }

    /// Whether whoever reads a ledger will see an issue that is proposed to it too.
    fn goes_along(&self, id: &str, target: &Ledger, with: &[String]) -> Result<bool, Error> {
        let sent = |issue: &Issue| issue.origin.as_ref().is_some_and(|origin| origin.to == target.name);
        Ok(with.iter().any(|other| other == id) || self.known(id)?.is_some_and(|found| sent(&found.issue)))
    }

    fn propose_one(
        &self,
        id: &str,
        with: &[String],
        to: Option<&str>,
        send_to: Option<&str>,
    ) -> Result<Proposed, Error> {
        let target = to.map_or_else(|| self.own_ledger(), |name| self.called(name))?;
        let Found { issue, ledger, .. } = self.find(id)?;
        if ledger == target.name {
            let problem = format!("{} is in `{}` already", issue.id, target.name);
            return Err(Refusal::Invalid { field: "to".into(), problem }.into());
        }
        // What was sent once is sent again.
        let sent = issue.origin.as_ref().map(|origin| origin.remote.clone()).filter(|remote| !remote.is_empty());
        let send_to = send_to.or(sent.as_deref());
        let marks = proposal::propose(&issue, &target.name, send_to)?;
        let on_branch = self.contributor && target.place == Place::Branch;
        if send_to.is_some() && !on_branch {
            let problem = format!("`{}` has no branch to send; commit and push as always", target.name);
            return Err(Refusal::Invalid { field: "push".into(), problem }.into());
        }
        let (branch, private) = match on_branch {
            true => self.propose_on_branch(&issue, target, with, send_to)?,
            false => (None, self.propose_in_place(&issue, target, with)?),
        };
        let source = self.route(Some(&ledger), None)?;
        let wrote = self.change_in(source, &issue.id, "issue.proposed", |_, _| Ok(marks))?;
        let sent_to = send_to.map(str::to_owned);
        Ok(Proposed { issue: wrote.issue, to: target.name.clone(), place: target.place, branch, sent_to, private })
    }

    /// What an issue is tied to and that goes along.
    fn all_along(&self, issue: &Issue, target: &Ledger, with: &[String]) -> Result<HashSet<String>, Error> {
        let mut along = HashSet::new();
        for id in issue.deps.iter().map(|dep| &dep.on).chain(&issue.parent) {
            if self.goes_along(id, target, with)? {
                along.insert(id.clone());
            }
        }
        Ok(along)
    }

    fn propose_in_place(&self, issue: &Issue, target: &Ledger, with: &[String]) -> Result<Vec<String>, Error> {
        let target = self.route(Some(&target.name), None)?;
        let along = self.all_along(issue, target, with)?;
        let (now, word) = (self.now()?, random_mint().word());
        let private = self.write(target, |draft| {
            let there = if draft.has(&issue.id)? { Some(draft.issue(&issue.id)?) } else { None };
            let seen = |id: &str| Ok(draft.has(id).map_err(stopped)? || along.contains(id));
            let (puts, private) = proposal::publish(issue, there.as_ref(), seen, &self.by(&word, now))?;
            draft.put(&issue.id, &puts)?;
            Ok(private)
        })?;
        if target.place == Place::Tree {
            self.sort_line(target, &issue.id)?;
        }
        Ok(private)
    }

    /// Puts an issue's line in the tree where it stands in order: two proposals at the end of a file would always be in each
    /// other's way.
    fn sort_line(&self, target: &Ledger, id: &str) -> Result<(), Error> {
        let turn = Turn::take(&target.lock).map_err(io("lock", &target.lock))?;
        self.refresh_in_turn(Some(target))?;
        let path = target.issues();
        let Some(row) = self.index(Access::Read)?.line(&target.name, id)? else { return Ok(()) };
        let record = line::read(&row.line).map_err(|error| bad_line(&error.to_string()))?.record;
        let mut files = Files::from([(ISSUES.to_owned(), std::fs::read(&path).map_err(io("read", &path))?)]);
        with_line(&mut files, &record);
        let text = files.remove(ISSUES).unwrap_or_default();
        turn.replace(&path, |out| out.write_all(&text)).map_err(io("write", &path))?;
        self.refresh_in_turn(Some(target))
    }

    /// A branch on top of what the other side has, with one more line.
    fn propose_on_branch(
        &self,
        issue: &Issue,
        target: &Ledger,
        with: &[String],
        send_to: Option<&str>,
    ) -> Result<(Option<String>, Vec<String>), Error> {
        let Some(mut branch) = Branch::open(self.checkout, &target.dir, self.reach())? else {
            return Err(Refusal::Invalid { field: "to".into(), problem: "there is no git here".into() }.into());
        };
        if let Some(remote) = send_to {
            branch.url_of(remote)?;
        }
        match branch.fetch() {
            Ok(_) => {}
            // What was fetched last is good enough.
            Err(ExchangeError::Offline { .. }) if branch.fetched_before() => {}
            Err(error) => return Err(error.into()),
        }
        let mut files = branch.theirs()?;
        let lines = lines_of(&files, |_| Ok(()))?;
        let there = lines.get(&issue.id).map(|lines| merged(lines)).transpose()?;
        let word = random_mint().word();
        let by = self.by(&word, self.now()?);
        let there_issue = there.as_ref().map(issue_of).transpose()?;
        let along = self.all_along(issue, target, with)?;
        let seen = |id: &str| Ok(lines.contains_key(id) || along.contains(id));
        let (puts, private) = proposal::publish(issue, there_issue.as_ref(), seen, &by)?;
        let clock = self.clock(target)?;
        let mut record = there.unwrap_or_else(|| Record::new(&issue.id, clock));
        for put in &puts {
            let (key, value) = register(put);
            record.set(key, clock, value);
        }
        with_line(&mut files, &record);
        let message = format!("Propose {}: {}", issue.id, issue.title.replace(char::is_control, " "));
        let name = branch.propose(&issue.id, &files, &message)?;
        if let Some(remote) = send_to {
            branch.send_proposal(&issue.id, remote, true)?;
        }
        Ok((Some(name), private))
    }

    /// Takes a proposal back.
    pub fn withdraw(&self, text: &str) -> Result<Wrote, Error> {
        let id = self.find(text)?.issue.id;
        let copies = self.index(Access::Read)?.copies(&id)?;
        let mine = copies.iter().find_map(|row| {
            let issue = row.issue().ok()?;
            issue.origin.as_ref().is_some_and(|origin| !origin.to.is_empty()).then_some((issue, row.ledger.clone()))
        });
        let Some((mine, ledger)) = mine else {
            proposal::withdraw(&self.find(&id)?.issue)?;
            return Err(Refusal::NotFound { what: "proposal", text: id }.into());
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
                Place::Branch if self.contributor => {
                    if origin.landed {
                        return Err(landed().into());
                    }
                    if let Some(mut branch) = Branch::open(self.checkout, &target.dir, self.reach())? {
                        branch.fetch()?;
                        if lines_of(&branch.theirs()?, |_| Ok(()))?.contains_key(&mine.id) {
                            return Err(landed().into());
                        }
                        branch.withdraw(&mine.id)?;
                        if !origin.remote.is_empty() {
                            branch.send_proposal(&mine.id, &origin.remote, false)?;
                        }
                    }
                }
                Place::Tree if !origin.landed && !self.published(target, &mine.id)? => {
                    self.take_line_away(target, &mine.id)?;
                }
                _ => {
                    let (now, word) = (self.now()?, random_mint().word());
                    self.change_in(target, &mine.id, "issue.withdrawn", |_, issue| {
                        Ok(proposal::reject(issue, "withdrawn", &self.by(&word, now))?)
                    })?;
                }
            }
        }
        let source = self.route(Some(&ledger), None)?;
        self.change_in(source, &mine.id, "issue.withdrawn", |_, _| Ok(puts))
    }

    /// Whether the other side of a ledger in the tree has an issue.
    fn published(&self, target: &Ledger, id: &str) -> Result<bool, Error> {
        let mut tree = Tree::open(self.home, &target.dir, self.reach())?;
        tree.fetch()?;
        Ok(lines_of(&tree.theirs()?, |_| Ok(()))?.contains_key(id))
    }

    /// A proposal that nobody else has seen leaves no trace in the file; the issue stays in the ledger it came from.
    fn take_line_away(&self, target: &Ledger, id: &str) -> Result<(), Error> {
        let turn = Turn::take(&target.lock).map_err(io("lock", &target.lock))?;
        let path = target.issues();
        let text = std::fs::read_to_string(&path).map_err(io("read", &path))?;
        let other = |text: &&str| line::read(text.trim_end()).map_or(true, |line| line.record.id() != id);
        let rest: String = text.split_inclusive('\n').filter(other).collect();
        turn.replace(&path, |out| out.write_all(rest.as_bytes())).map_err(io("write", &path))?;
        self.refresh_in_turn(Some(target))
    }

    /// The copy of an issue that somebody offers here.
    fn offered(&self, text: &str) -> Result<(Issue, &Ledger), Error> {
        let found = self.find(text)?;
        let copies = self.index(Access::Read)?.copies(&found.issue.id)?;
        for row in &copies {
            let issue = row.issue()?;
            if Part::of(&issue) == Part::Offered {
                let ledger = self.route(Some(&row.ledger), None)?;
                if self.contributor && matches!(ledger.place, Place::Branch | Place::Tree) {
                    let state = "for whoever keeps that ledger to decide".into();
                    let wanted = "toft withdraw takes back what you proposed".into();
                    return Err(Refusal::WrongState { id: issue.id, state, wanted }.into());
                }
                return Ok((issue, ledger));
            }
        }
        Ok((found.issue, self.route(Some(&found.ledger), None)?))
    }

    /// Fetches a proposal from a branch elsewhere, a remote's or a URL's, so that it can be decided on.
    pub fn fetch_proposal(&self, id: &str, from: &str) -> Result<(), Error> {
        let own = self.own_ledger()?;
        let Some(branch) = Branch::open(self.checkout, &own.dir, self.reach())?.filter(|_| own.place == Place::Branch)
        else {
            let problem = "only a ledger beside a git repository is proposed to by branches".to_owned();
            return Err(Refusal::Invalid { field: "from".into(), problem }.into());
        };
        let offered = branch.fetch_proposal(from, id)?;
        self.take_offered(own, &[offered], false).map(drop)
    }

    /// Takes what somebody proposed into the plan.
    pub fn accept(&self, text: &str) -> Result<Wrote, Error> {
        let (issue, ledger) = self.offered(text)?;
        self.change_in(ledger, &issue.id, "issue.accepted", |_, issue| Ok(proposal::accept(issue)?))
    }

    /// Does not; the reason goes back to who proposed it.
    pub fn reject(&self, text: &str, reason: &str) -> Result<Wrote, Error> {
        let (issue, ledger) = self.offered(text)?;
        let (now, word) = (self.now()?, random_mint().word());
        self.change_in(ledger, &issue.id, "issue.rejected", |_, issue| {
            Ok(proposal::reject(issue, reason, &self.by(&word, now))?)
        })
    }

    /// What others propose to ledgers that are kept here.
    pub fn proposals(&self) -> Result<Vec<Found>, Error> {
        if self.unwritten() || self.contributor {
            return Ok(Vec::new());
        }
        self.look()?.offered()?.iter().map(Found::of).collect()
    }

    /// What was proposed from here and is not decided.
    pub fn my_proposals(&self) -> Result<Vec<Found>, Error> {
        if self.unwritten() || !self.contributor {
            return Ok(Vec::new());
        }
        let sent = |issue: &Issue| issue.origin.as_ref().is_some_and(|origin| !origin.to.is_empty());
        let all = self.list(&Asked::default())?;
        Ok(all.into_iter().filter(|found| sent(&found.issue) && Part::of(&found.issue) == Part::Own).collect())
    }

    /// Looks at what became of proposals to a ledger, and lets the copies here say so.
    pub(super) fn follow_proposals(
        &self,
        target: &Ledger,
        theirs: Option<&Files>,
        gone: impl Fn(&str, &str) -> Result<bool, ExchangeError>,
    ) -> Result<Vec<Came>, Trouble> {
        let theirs = theirs.map(|files| lines_of(files, |_| Ok(()))).transpose()?;
        let mut came = Vec::new();
        for ledger in self.ledgers.iter().filter(|ledger| ledger.name != target.name && !ledger.read_only) {
            let asked = Asked { ledger: Some(ledger.name.clone()), all: true, ..Asked::default() };
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
                let (now, word) = (self.now()?, random_mint().word());
                let followed =
                    proposal::follow(&mine, there.as_ref(), gone, &self.by(&word, now)).map_err(Error::from)?;
                let Some((puts, news)) = followed else { continue };
                self.change_in(ledger, &mine.id, "issue.followed", |_, _| Ok(puts))?;
                let (news, why) = match news {
                    News::Landed => ("landed", None),
                    News::Accepted => ("accepted", None),
                    News::Changed => ("changed", None),
                    News::Rejected(why) => ("rejected", Some(why)),
                };
                came.push(Came { issue: mine.id.clone(), title: mine.title.clone(), news, why });
            }
        }
        Ok(came)
    }

    /// Moves issues to another ledger for good: same ids, same history, a tombstone where they were.
    pub fn move_to(&self, ids: &[String], to: &str, try_only: bool, sure: bool) -> Result<Vec<Wrote>, Error> {
        let target = self.route(Some(to), None)?;
        let mut moving: Vec<(Ledger, Indexed)> = Vec::new();
        for id in ids {
            let found = self.find(id)?;
            if found.ledger == target.name {
                continue;
            }
            let source = self.route(Some(&found.ledger), None)?.clone();
            if !sure && source.place == Place::Planning && target.place != Place::Planning {
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
        let private = target.place == Place::Planning;
        self.write(target, |draft| {
            for (_, row) in &moving {
                let read = line::read(&row.line).map_err(|error| bad_line(&error.to_string()))?;
                let id = read.record.id().to_owned();
                draft.take(Line { sound: true, ..read })?;
                let visibility = private.then(|| LOCAL.into());
                draft.put(&id, &[Put::Field("visibility".into(), visibility), Put::Field("deleted".into(), None)])?;
            }
            Ok(())
        })?;
        let (now, reason) = (self.now()?, format!("moved to {}", target.name));
        for (source, row) in &moving {
            let id = row.issue()?.id;
            self.change_in(source, &id, "issue.moved", |_, issue| {
                Ok(edit::delete(issue, &reason, &self.by("", now))?)
            })?;
        }
        Ok(wrote)
    }
}

fn stopped(error: Error) -> toft_core::refusal::Stop {
    match error {
        Error::Refused(refusal) => refusal.into(),
        Error::Store(error) => error.into(),
        other => toft_core::store::StoreError::Failed { doing: "look".into(), cause: other.to_string() }.into(),
    }
}

fn bad_line(cause: &str) -> Error {
    Refusal::Invalid { field: "line".into(), problem: cause.to_owned() }.into()
}

/// What all lines of an issue together say.
fn merged(lines: &[Line]) -> Result<Record, Error> {
    let mut records = lines.iter().map(|line| line.record.clone());
    let mut first = records.next().ok_or_else(|| bad_line("no line"))?;
    records.for_each(|other| first.merge(other));
    Ok(first)
}

/// Puts a record into the file that is written to, where it stands in order; other lines stay letter by letter.
fn with_line(files: &mut Files, record: &Record) {
    let file = files.entry(ISSUES.to_owned()).or_default();
    let new = line::write(record).into_bytes();
    let id_of = |line: &[u8]| {
        std::str::from_utf8(line).ok().and_then(|text| line::read(text).ok()).map(|line| line.record.id().to_owned())
    };
    let mut lines: Vec<Vec<u8>> =
        file.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    lines.retain(|line| id_of(line).as_deref() != Some(record.id()));
    let at =
        lines.iter().position(|line| id_of(line).is_some_and(|id| id.as_str() > record.id())).unwrap_or(lines.len());
    lines.insert(at, new);
    *file = lines
        .into_iter()
        .flat_map(|mut line| {
            line.push(b'\n');
            line
        })
        .collect();
}
