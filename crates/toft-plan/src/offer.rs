//! Proposes issues to another ledger: selects the published fields, reports findings, and writes the line or the branch
//! of each proposal.

use std::collections::HashSet;

use serde::Serialize;
use toft_core::{
    issue::{
        Issue, Put,
        proposal::{self, Fields, Publication, Readers},
    },
    refusal::{Refusal, VerbResult},
    store::Access,
    time::Timestamp,
};
use toft_ledger::{
    file::LedgerLock,
    line,
    record::{Record, Set},
};
use toft_session::error::{Error, io};
use toft_store::sqlite::index::Indexed;
use toft_vcs::exchange::{Branch, Exchange as _, ExchangeError, Files};

use super::{
    FoundIssue, IssueFilter, Ledger, LedgerKind, Plan,
    copy::{Lines, lines_of},
    guard::finding_id,
    place::ISSUES,
    propose::{bad_line, merged},
    write::{issue_of, register},
};

/// A contributor's alias for the repository's own ledger.
const UPSTREAM: &str = "upstream";

/// A proposal that was made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposed {
    pub issue: Issue,
    /// The ledger to which it is proposed.
    pub to: String,
    /// The kind of that ledger.
    pub place: LedgerKind,
    /// The proposal branch, if there is one.
    pub branch: Option<String>,
    /// The remote to which that branch was sent.
    pub sent_to: Option<String>,
    /// Dependencies that readers of that ledger cannot see.
    pub private: Vec<String>,
    /// Labels that were left out, because the project does not use them.
    pub labels: Vec<String>,
}

/// How issues are proposed.
#[derive(Clone, Debug, Default)]
pub struct ProposeOptions {
    /// The ledger; the repository's own if absent.
    pub to: Option<String>,
    /// The remote to which proposal branches are sent.
    pub send_to: Option<String>,
    /// The published fields.
    pub fields: Fields,
}

/// One issue that is about to be proposed.
struct Offering {
    issue: Issue,
    ledger: String,
    /// The writes to its own copy.
    marks: Vec<Put>,
    send_to: Option<String>,
    audience: Audience,
    /// When it is proposed.
    now: Timestamp,
}

/// What the readers of the other ledger know of an issue's dependencies and labels.
#[derive(Clone, Default)]
struct Audience {
    ids: HashSet<String>,
    labels: HashSet<String>,
}

impl Readers for Audience {
    fn see(&mut self, id: &str) -> VerbResult<bool> {
        Ok(self.ids.contains(id))
    }

    fn use_label(&mut self, label: &str) -> VerbResult<bool> {
        Ok(self.labels.contains(label))
    }
}

/// A ledger to which branches propose, after it was fetched.
struct FetchedLedger {
    branch: Branch,
    files: Files,
    lines: Lines,
}

impl Plan<'_> {
    /// The target ledger. For a contributor `upstream` names the repository's own.
    fn target(&self, to: Option<&str>) -> Result<&Ledger, Error> {
        match to {
            None => self.own_ledger(),
            Some(UPSTREAM) if self.called(UPSTREAM).is_err() => self.own_ledger(),
            Some(name) => self.called(name),
        }
    }

    /// Proposes issues to another ledger. Everything is checked first: nothing is written while there are findings that
    /// were not allowed.
    pub fn propose(&self, texts: &[String], options: &ProposeOptions) -> Result<Vec<Proposed>, Error> {
        let ids = texts.iter().map(|text| Ok(self.find(text)?.issue.id)).collect::<Result<Vec<_>, Error>>()?;
        let target = self.target(options.to.as_deref())?;
        if target.read_only {
            let problem = format!("`{}` is read and never written here", target.name);
            return Err(Refusal::Invalid { field: "to".into(), problem }.into());
        }
        let mut offerings =
            ids.iter().map(|id| self.offering(id, &ids, target, options)).collect::<Result<Vec<_>, Error>>()?;
        let mut fetched = match self.contributor && target.place == LedgerKind::Branch {
            true => Some(self.fetch_target(target, &offerings)?),
            false => None,
        };
        for offering in &mut offerings {
            self.ask_readers(offering, target, fetched.as_ref())?;
        }
        let mut findings = Vec::new();
        for offering in &offerings {
            let publication = match &fetched {
                Some(fetched) => self.publication(offering, fetched.issue(&offering.issue.id)?.as_ref(), options)?,
                None => self.rehearse(target, |draft| {
                    let id = &offering.issue.id;
                    let there = if draft.has(id)? { Some(draft.issue(id)?) } else { None };
                    self.publication(offering, there.as_ref(), options)
                })?,
            };
            findings.extend(self.findings(&offering.issue, &publication, &ids)?);
        }
        let allowed = self.allowed_findings();
        findings.retain(|(id, _)| !allowed.contains(id));
        if !findings.is_empty() {
            return Err(Refusal::Findings { findings }.into());
        }
        offerings.into_iter().map(|offering| self.propose_one(offering, target, fetched.as_mut(), options)).collect()
    }

    fn offering(
        &self,
        id: &str,
        with: &[String],
        target: &Ledger,
        options: &ProposeOptions,
    ) -> Result<Offering, Error> {
        let FoundIssue { issue, ledger, .. } = self.find(id)?;
        if ledger == target.name {
            let problem = format!("{} is in `{}` already", issue.id, target.name);
            return Err(Refusal::Invalid { field: "to".into(), problem }.into());
        }
        // What was sent once is sent again.
        let sent = issue.origin.as_ref().map(|origin| origin.remote.clone()).filter(|remote| !remote.is_empty());
        let send_to = options.send_to.clone().or(sent);
        let marks = proposal::propose(&issue, &target.name, send_to.as_deref())?;
        if send_to.is_some() && !(self.contributor && target.place == LedgerKind::Branch) {
            let problem = format!("`{}` has no branch to send; commit and push as always", target.name);
            return Err(Refusal::Invalid { field: "push".into(), problem }.into());
        }
        let mut audience = Audience::default();
        let sent = |issue: &Issue| issue.origin.as_ref().is_some_and(|origin| origin.to == target.name);
        for id in issue.deps.iter().map(|dep| &dep.on).chain(&issue.parent) {
            // What is proposed too will be seen.
            if with.contains(id) || self.known(id)?.is_some_and(|found| sent(&found.issue)) {
                audience.ids.insert(id.clone());
            }
        }
        Ok(Offering { issue, ledger, marks, send_to, audience, now: self.now()? })
    }

    /// Determines which of an issue's dependencies and labels the readers of a ledger know.
    fn ask_readers(
        &self,
        offering: &mut Offering,
        target: &Ledger,
        fetched: Option<&FetchedLedger>,
    ) -> Result<(), Error> {
        let Offering { issue, audience, .. } = offering;
        let ties = issue.deps.iter().map(|dep| &dep.on).chain(&issue.parent);
        if let Some(FetchedLedger { lines, .. }) = fetched {
            audience.ids.extend(ties.filter(|id| lines.contains_key(*id)).cloned());
            let used = lines.values().flatten().flat_map(|line| line.record.members(Set::Labels));
            let used: HashSet<&str> = used.map(|(label, _)| label).collect();
            audience.labels.extend(issue.labels.iter().filter(|label| used.contains(label.as_str())).cloned());
            return Ok(());
        }
        let index = self.look()?;
        for id in ties {
            if index.line(&target.name, id)?.is_some() {
                audience.ids.insert(id.clone());
            }
        }
        for label in &issue.labels {
            let (ledger, labels) = (Some(target.name.clone()), vec![label.clone()]);
            // The index knows labels that are laid over; readers know those of the line itself.
            let has = |row: &Indexed| row.issue().is_ok_and(|issue| issue.labels.contains(label));
            if index.list(&IssueFilter { ledger, labels, all: true, ..IssueFilter::default() })?.iter().any(has) {
                audience.labels.insert(label.clone());
            }
        }
        Ok(())
    }

    fn publication(
        &self,
        offering: &Offering,
        there: Option<&Issue>,
        options: &ProposeOptions,
    ) -> Result<Publication, Error> {
        let by = self.by("", offering.now);
        Ok(proposal::publish(&offering.issue, there, &options.fields, &mut offering.audience.clone(), &by)?)
    }

    /// Private data in the text that would be published, each with a short, stable id.
    fn findings(
        &self,
        issue: &Issue,
        publication: &Publication,
        with: &[String],
    ) -> Result<Vec<(String, String)>, Error> {
        let private = self.private()?.without(with);
        let found = private.look_at(&publication.puts, &issue.title);
        let named = |(field, finding): (String, toft_core::issue::private::PrivateText)| {
            let key = format!("{} {field} {}", issue.id, finding.key());
            (finding_id(&key), format!("{}: {field} {finding}", issue.id))
        };
        Ok(found.into_iter().map(named).collect())
    }

    fn propose_one(
        &self,
        offering: Offering,
        target: &Ledger,
        fetched: Option<&mut FetchedLedger>,
        options: &ProposeOptions,
    ) -> Result<Proposed, Error> {
        let (branch, Publication { private, labels, .. }) = match fetched {
            Some(fetched) => {
                let (name, publication) = self.propose_on_branch(&offering, target, fetched, options)?;
                (Some(name), publication)
            }
            None => (None, self.propose_in_place(&offering, target, options)?),
        };
        let Offering { issue, ledger, marks, send_to, .. } = offering;
        let source = self.route(Some(&ledger), None)?;
        let wrote = self.change_in(source, &issue.id, "issue.proposed", |_, _| Ok(marks))?;
        let (to, place, sent_to) = (target.name.clone(), target.place, send_to);
        Ok(Proposed { issue: wrote.issue, to, place, branch, sent_to, private, labels })
    }

    fn propose_in_place(
        &self,
        offering: &Offering,
        target: &Ledger,
        options: &ProposeOptions,
    ) -> Result<Publication, Error> {
        let id = &offering.issue.id;
        let publication = self.write(target, |draft| {
            let there = if draft.has(id)? { Some(draft.issue(id)?) } else { None };
            let publication = self.publication(offering, there.as_ref(), options)?;
            draft.put(id, &publication.puts)?;
            Ok(publication)
        })?;
        if target.place == LedgerKind::Tree {
            self.sort_line(target, id)?;
        }
        Ok(publication)
    }

    /// Sorts an issue's line into the file in the tree: two proposals at the end of a file would always conflict.
    fn sort_line(&self, target: &Ledger, id: &str) -> Result<(), Error> {
        let turn = LedgerLock::take(&target.lock).map_err(io("lock", &target.lock))?;
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

    /// Fetches the ledger to which branches propose.
    fn fetch_target(&self, target: &Ledger, offerings: &[Offering]) -> Result<FetchedLedger, Error> {
        let Some(mut branch) = Branch::open(self.checkout, &target.dir, self.reach())? else {
            return Err(Refusal::Invalid { field: "to".into(), problem: "there is no git here".into() }.into());
        };
        for remote in offerings.iter().filter_map(|offering| offering.send_to.as_deref()) {
            branch.url_of(remote)?;
        }
        match branch.fetch() {
            Ok(_) => {}
            // What was fetched last is good enough.
            Err(ExchangeError::Offline { .. }) if branch.fetched_before() => {}
            Err(error) => return Err(error.into()),
        }
        let files = branch.theirs()?;
        let lines = lines_of(&files)?;
        Ok(FetchedLedger { branch, files, lines })
    }

    /// Creates a branch on top of the remote's newest commit, with one more line.
    fn propose_on_branch(
        &self,
        offering: &Offering,
        target: &Ledger,
        fetched: &mut FetchedLedger,
        options: &ProposeOptions,
    ) -> Result<(String, Publication), Error> {
        let issue = &offering.issue;
        let publication = self.publication(offering, fetched.issue(&issue.id)?.as_ref(), options)?;
        let clock = self.clock(target)?;
        let mut record = fetched.record(&issue.id)?.unwrap_or_else(|| Record::new(&issue.id, clock));
        for put in &publication.puts {
            let (key, value) = register(put);
            record.set(key, clock, value);
        }
        let mut files = fetched.files.clone();
        with_line(&mut files, &record);
        let message = format!("Propose {}: {}", issue.id, issue.title.replace(char::is_control, " "));
        let name = fetched.branch.propose(&issue.id, &files, &message)?;
        if let Some(remote) = &offering.send_to {
            fetched.branch.send_proposal(&issue.id, remote)?;
        }
        Ok((name, publication))
    }
}

impl FetchedLedger {
    fn record(&self, id: &str) -> Result<Option<Record>, Error> {
        self.lines.get(id).map(|lines| merged(lines)).transpose()
    }

    fn issue(&self, id: &str) -> Result<Option<Issue>, Error> {
        self.record(id)?.as_ref().map(issue_of).transpose()
    }
}

/// Inserts a record into the main file in sorted order; other lines do not change.
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
