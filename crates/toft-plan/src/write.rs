//! The only way to change a ledger: acquire the lock, read new lines, decide, append, and update the index.

use std::time::Duration;

use serde_json::{Value, json};
use toft_core::{
    issue::{
        DISCOVERED_FROM, Issue, Put,
        edit::{self, By, Edit},
        generate_id,
        proposal::{LOCAL, ProposalSide},
        route::{NewIssue, OWN},
    },
    refusal::Refusal,
    store::{Access, StoreError},
    time::Timestamp,
    verbs::{
        issue::{CheckClosing, Note, Noted},
        undo::Before,
    },
};
use toft_ledger::{
    clock::Clock,
    file::LedgerLock,
    line,
    record::{Json, Key, Record},
};
use toft_session::{
    error::{Error, io},
    session::random_ids,
};
use toft_store::sqlite::index::{IndexTx, Indexed};

use super::{Ledger, LedgerKind, Plan, draft::Draft, index_refresh::now_nanos, noted::noted};

/// How far ahead of ours another machine's clock is trusted.
const AHEAD: Duration = Duration::from_secs(5 * 60);

/// The result of a write.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Wrote {
    /// The issue afterwards.
    pub issue: Issue,
    pub ledger: String,
    /// The earlier values; absent if nothing had to be written.
    pub before: Option<Before>,
}

pub(super) fn record(row: &Indexed) -> Result<Record, Error> {
    Ok(line::read(&row.line).map_err(|error| unreadable(&row.file, &error.to_string()))?.record)
}

pub(super) fn issue_of(record: &Record) -> Result<Issue, Error> {
    let read = Issue::read(&line::write(record)).map_err(|error| unreadable(record.id(), &error.to_string()))?;
    Ok(read.0)
}

/// An issue with only these writes.
pub(super) fn issue_from(id: &str, puts: &[Put]) -> Result<Issue, Error> {
    issue_of(&record_from(id, puts))
}

/// A record with only these writes.
pub(super) fn record_from(id: &str, puts: &[Put]) -> Record {
    let mut record = Record::new(id, Clock::ZERO);
    for put in puts {
        let (key, value) = register(put);
        record.set(key, Clock::ZERO, value);
    }
    record
}

pub(super) fn unreadable(id: &str, cause: &str) -> Error {
    StoreError::Unreadable { table: "issues".into(), id: id.to_owned(), cause: cause.to_owned() }.into()
}

fn text(value: &Value) -> Json {
    value.to_string().into()
}

/// The key and the value of a write.
pub(super) fn register(put: &Put) -> (Key, Option<Json>) {
    match put {
        Put::Field(name, value) => (Key::field(name), value.as_ref().map(text)),
        Put::Label(word, there) => (Key::label(word), there.then(|| text(&json!(word)))),
        Put::Dep(dep, there) => {
            (Key::dep(&dep.on, &dep.kind), there.then(|| text(&json!({ "on": dep.on, "kind": dep.kind }))))
        }
        Put::Comment(said) => (Key::comment(&said.id), Some(text(&json!(said)))),
        Put::Unsay(id) => (Key::comment(id), None),
    }
}

impl Plan<'_> {
    /// Assembles a change without writing it.
    pub(super) fn rehearse<T>(
        &self,
        ledger: &Ledger,
        build: impl FnOnce(&mut Draft<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.refresh()?;
        let index = self.index(Access::Read)?;
        let clock = self.newest(&index, ledger)?;
        build(&mut Draft::new(&index, ledger, self.layer(), clock))
    }

    /// A clock later than all clocks in a ledger.
    pub(super) fn clock(&self, ledger: &Ledger) -> Result<Clock, Error> {
        self.refresh()?;
        let index = self.index(Access::Read)?;
        Ok(self.draft(&index, ledger)?.clock)
    }

    fn draft<'d>(&'d self, index: &'d IndexTx<'d>, ledger: &'d Ledger) -> Result<Draft<'d>, Error> {
        let (mut seen, layer) = (self.newest(index, ledger)?, self.layer());
        // An overlay is newer than what it is laid over, and what is written below it later is newer than that.
        for other in self.ledgers.iter().filter(|other| layer.is_some() && other.name != ledger.name) {
            seen = seen.max(self.newest(index, other)?);
        }
        let wall = (now_nanos() / 1_000_000) as u64;
        // A clock far ahead of ours is not followed: a write to a field that has it goes just beyond it, and no other does.
        let believed = if seen.ms > wall + AHEAD.as_millis() as u64 { Clock::ZERO } else { seen };
        Ok(Draft::new(index, ledger, layer, Clock::after(believed, wall, self.replica()?)))
    }

    /// Changes a ledger for the caller. The change that `build` assembles is on disk when this returns.
    pub(super) fn write<T>(
        &self,
        ledger: &Ledger,
        build: impl FnOnce(&mut Draft<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.session.check_may_change_plans()?;
        self.write_received(ledger, build)
    }

    /// Does the same for what follows from the store, if `holds` still says so once it is this writer's turn: a later state may
    /// have been written meanwhile.
    pub(super) fn write_if<T>(
        &self,
        ledger: &Ledger,
        holds: impl FnOnce() -> Result<bool, Error>,
        build: impl FnOnce(&mut Draft<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.session.check_may_change_plans()?;
        let turn = LedgerLock::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
        self.store()?.end_snapshot();
        match holds()? {
            true => self.write_in_turn(&turn, ledger, build).map(Some),
            false => Ok(None),
        }
    }

    /// Writes what another copy of the ledger has, which also reaches those who may only read.
    pub(super) fn write_received<T>(
        &self,
        ledger: &Ledger,
        build: impl FnOnce(&mut Draft<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let turn = LedgerLock::take(&ledger.lock).map_err(io("lock", &ledger.lock))?;
        self.write_in_turn(&turn, ledger, build)
    }

    fn write_in_turn<T>(
        &self,
        turn: &LedgerLock,
        ledger: &Ledger,
        build: impl FnOnce(&mut Draft<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let store = self.store()?;
        store.end_snapshot();
        let _span = store.read_span();
        self.refresh_in_turn(Some(ledger))?;
        let index = self.index(Access::Read)?;
        let mut draft = self.draft(&index, ledger)?;
        let built = build(&mut draft)?;
        let mut lines: Vec<Vec<u8>> = std::mem::take(&mut draft.verbatim);
        for written in draft.records.values_mut() {
            written.settle(draft.clock);
            // A line says what is new: an issue with a thousand comments grows by the next one.
            let new = match index.line(&ledger.name, written.id())? {
                Some(row) => line::write_new(written, &record(&row)?),
                None => line::write_all(written),
            };
            lines.extend(new.into_iter().map(String::into_bytes));
        }
        drop(index);
        if !lines.is_empty() {
            let path = ledger.issues();
            let (start, _) = turn.append(&path, &lines).map_err(io("write", &path))?;
            // From here on it is written: an index that cannot follow now is brought up to the file by the next reader.
            if let Err(error) = self.follow(ledger, start) {
                self.session.note(format!("it is written, and the index does not have it yet: {error}"));
            }
        }
        Ok(built)
    }

    /// The newest clock in any file of a ledger.
    fn newest(&self, index: &IndexTx<'_>, ledger: &Ledger) -> Result<Clock, Error> {
        let mut newest = Clock::ZERO;
        for (_, file) in index.files()?.into_iter().filter(|(of, _)| *of == ledger.name) {
            let known = index.file(&ledger.name, &file)?.and_then(|state| state.newest.parse().ok());
            newest = newest.max(known.unwrap_or_default());
        }
        Ok(newest)
    }

    pub(super) fn by<'a>(&'a self, word: &'a str, now: Timestamp) -> By<'a> {
        By { actor: self.name_of(&self.session.located().agent), now, word }
    }

    /// The ledger with that name.
    pub(super) fn called(&self, name: &str) -> Result<&Ledger, Error> {
        let own = |ledger: &Ledger| matches!(ledger.place, LedgerKind::Branch | LedgerKind::Tree);
        let known = self.ledgers.iter().find(|ledger| ledger.name == name || name == OWN && own(ledger));
        known.ok_or_else(|| Refusal::NotFound { what: "ledger".into(), text: name.to_owned() }.into())
    }

    /// The ledger of a write: the named one, else the parent's, else the first.
    pub(super) fn route(&self, name: Option<&str>, parent: Option<&str>) -> Result<&Ledger, Error> {
        let ledger = match (name, parent.filter(|parent| !parent.is_empty())) {
            (Some(name), _) => self.called(name),
            (None, Some(parent)) => self.called(&self.find(parent)?.ledger),
            (None, None) => self
                .ledgers
                .first()
                .ok_or_else(|| Refusal::NotFound { what: "ledger".into(), text: String::new() }.into()),
        }?;
        if ledger.read_only {
            let problem = format!("`{}` is read and never written here; name another", ledger.name);
            return Err(Refusal::Invalid { field: "ledger".into(), problem }.into());
        }
        // What is changed about issues that others keep is kept in private, and laid over them.
        if ledger.kept_by_others { self.layer_over(ledger) } else { Ok(ledger) }
    }

    /// Adds issues. Issues in the list refer to each other by position, as `#1`.
    pub fn add(&self, edits: &[Edit], ledger: Option<&str>, op: Option<&str>) -> Result<Vec<Wrote>, Error> {
        let names = op.map(|op| (0..edits.len()).map(|n| format!("{op}/{n}")).collect());
        self.add_as(edits, ledger, names)
    }

    /// The same; an issue with a name is added only once.
    pub(super) fn add_as(
        &self,
        edits: &[Edit],
        ledger: Option<&str>,
        names: Option<Vec<String>>,
    ) -> Result<Vec<Wrote>, Error> {
        // Parts, and what was found on the way, stay with what they belong to.
        let found_on =
            |edit: &Edit| edit.relates.iter().find(|dep| dep.kind == DISCOVERED_FROM).map(|dep| dep.on.clone());
        self.refuse_kept(ledger)?;
        let home = edits.iter().find_map(|edit| edit.parent.clone().or_else(|| found_on(edit)));
        let home = home.as_deref().filter(|id| !id.starts_with('#'));
        let routed = if ledger.is_none() && home.is_none() { self.routed(edits)? } else { None };
        let ledger = self.route(ledger.or(routed.as_deref()), home)?;
        let now = self.now()?;
        let mut random = random_ids();
        let ids: Vec<String> = match names {
            Some(names) => names.iter().map(|name| id_of(name)).collect(),
            None => edits.iter().map(|_| generate_id(&mut random)).collect(),
        };
        let word = random.word();
        let wrote = self.write(ledger, |draft| {
            let mut wrote = Vec::new();
            for (n, (id, edit)) in ids.iter().zip(edits).enumerate() {
                // One after the other, so that they stay in the order they were written in.
                let now = now.plus(Duration::from_millis(n as u64));
                let edit = self.resolved(draft.index, edit, &ids)?;
                if draft.index.line(&ledger.name, id)?.is_some() {
                    let issue = draft.issue(id)?;
                    wrote.push(Wrote { issue, ledger: ledger.name.clone(), before: None });
                    continue;
                }
                let mut puts = edit::create(draft, id, &edit, &self.by(&word, now))?;
                if ledger.place == LedgerKind::Planning {
                    puts.push(Put::Field("visibility".into(), Some(LOCAL.into())));
                }
                draft.put(id, &puts)?;
                let before = Some(Before { issue: id.clone(), was: None, now: puts });
                wrote.push(Wrote { issue: draft.issue(id)?, ledger: ledger.name.clone(), before });
            }
            Ok(wrote)
        })?;
        self.note("issue.added", &wrote);
        Ok(wrote)
    }

    /// The ledger to which new issues are routed. Several issues that are added at once stay together.
    fn routed(&self, edits: &[Edit]) -> Result<Option<String>, Error> {
        let path = self.path_here();
        let route = |edit: &Edit| {
            let kind = edit.kind.as_deref().unwrap_or("task");
            self.routing.ledger_for(&NewIssue { kind, labels: &edit.labels, path: &path }).map(str::to_owned)
        };
        // A part stays with what it is part of.
        let mut all: Vec<_> = edits.iter().filter(|edit| edit.parent.is_none()).map(route).collect();
        all.dedup();
        match all.as_slice() {
            [] => Ok(None),
            [one] => Ok(one.clone()),
            many => {
                let names: Vec<_> = many.iter().map(|name| name.as_deref().unwrap_or(OWN)).collect();
                let problem = format!(
                    "these issues are routed to several ledgers ({}); name one with --ledger",
                    names.join(", ")
                );
                Err(Refusal::Invalid { field: "ledger".into(), problem }.into())
            }
        }
    }

    /// The edit with whole ids for all other issues.
    fn resolved(&self, index: &IndexTx<'_>, edit: &Edit, new: &[String]) -> Result<Edit, Error> {
        let whole = |text: &String| -> Result<String, Error> {
            match text.strip_prefix('#').and_then(|n| n.parse::<usize>().ok()).and_then(|n| new.get(n.wrapping_sub(1)))
            {
                Some(id) => Ok(id.clone()),
                None if text.is_empty() => Ok(String::new()),
                None => Ok(self.row_of(index, text)?.issue()?.id),
            }
        };
        let mut edit = edit.clone();
        edit.needs = edit.needs.iter().map(whole).collect::<Result<_, _>>()?;
        edit.unneeds =
            edit.unneeds.iter().map(|text| whole(text).or_else(|_| Ok(text.clone()))).collect::<Result<_, Error>>()?;
        edit.parent = edit.parent.as_ref().map(whole).transpose()?;
        for dep in &mut edit.relates {
            dep.on = whole(&dep.on)?;
        }
        Ok(edit)
    }

    /// Changes an issue.
    pub fn edit(&self, id: &str, edit: &Edit, op: Option<&str>) -> Result<Wrote, Error> {
        let word = op.map_or_else(|| random_ids().word(), id_of);
        let now = self.now()?;
        let change = |draft: &mut Draft<'_>, issue: &Issue| {
            let edit = self.resolved(draft.index, edit, &[])?;
            Ok(edit::change(draft, issue, &edit, &self.by(&word, now))?)
        };
        if edit.status.is_some() {
            // What another process is about to write of its work goes before.
            self.tell();
        }
        match &edit.status {
            Some(edit::Step::Close { reason }) => self.let_go_if(id, reason, change)?,
            // What an agent works on is open for it alone.
            Some(edit::Step::Reopen) => self.session.perform(CheckClosing { issue: self.find(id)?.issue.id })?,
            None => {}
        }
        self.change(id, "issue.edited", change)
    }

    /// Closes an issue that no agent holds work on, or rejects a proposal.
    pub fn close(&self, id: &str, reason: &str, op: Option<&str>) -> Result<Wrote, Error> {
        if ProposalSide::of(&self.find(id)?.issue) == ProposalSide::Offered {
            return self.reject(id, reason);
        }
        self.session.perform(CheckClosing { issue: id.to_owned() })?;
        let status = Some(edit::Step::Close { reason: reason.to_owned() });
        self.edit(id, &Edit { status, ..Edit::default() }, op)
    }

    /// Abandons the workflow of an issue that is about to be closed or deleted, after all other checks.
    fn let_go_if(
        &self,
        id: &str,
        why: &str,
        change: impl FnOnce(&mut Draft<'_>, &Issue) -> Result<Vec<Put>, Error>,
    ) -> Result<(), Error> {
        let found = self.find_as_read(id)?;
        let ledger = self.route(Some(&found.ledger), None)?;
        ledger.check_writable()?;
        self.rehearse(ledger, |draft| {
            let issue = draft.issue(&found.issue.id)?;
            change(draft, &issue).map(drop)
        })?;
        self.let_go(&found.issue.id, why)
    }

    /// Deletes an issue: a tombstone wins over concurrent edits.
    pub fn delete(&self, id: &str, reason: &str) -> Result<Wrote, Error> {
        let now = self.now()?;
        let change = |_: &mut Draft<'_>, issue: &Issue| Ok(edit::delete(issue, reason, &self.by("", now))?);
        self.let_go_if(id, reason, change)?;
        let wrote = self.change(id, "issue.deleted", change)?;
        self.forget_uncommitted(self.called(&wrote.ledger)?, &[&wrote.issue.id])?;
        Ok(wrote)
    }

    /// Opens an issue again that was closed, deferred, deleted, or left in progress.
    pub fn reopen(&self, id: &str, comment: Option<&str>, op: Option<&str>) -> Result<Wrote, Error> {
        let comment = comment.map(str::to_owned);
        let found = self.find(id)?.issue;
        if found.deleted.is_some() {
            let restored = self.change(id, "issue.restored", |_, issue| Ok(edit::restore(issue)?))?;
            return match comment {
                Some(_) => self.edit(id, &Edit { comment, ..Edit::default() }, op),
                None => Ok(restored),
            };
        }
        // Only where there is a time: another clone may defer the issue meanwhile.
        let defer = found.defer_until.is_some().then_some(None);
        let edit = Edit { status: Some(edit::Step::Reopen), defer, comment, ..Edit::default() };
        self.edit(id, &edit, op)
    }

    /// Changes one issue in its ledger, and records it in the event log.
    pub(super) fn change(
        &self,
        id: &str,
        what: &'static str,
        build: impl FnOnce(&mut Draft<'_>, &Issue) -> Result<Vec<Put>, Error>,
    ) -> Result<Wrote, Error> {
        let found = self.find_as_read(id)?;
        self.change_in(self.route(Some(&found.ledger), None)?, &found.issue.id, what, build)
    }

    /// Changes one issue of a ledger, and records it in the event log.
    pub(super) fn change_in(
        &self,
        ledger: &Ledger,
        id: &str,
        what: &'static str,
        build: impl FnOnce(&mut Draft<'_>, &Issue) -> Result<Vec<Put>, Error>,
    ) -> Result<Wrote, Error> {
        let wrote = self.write(ledger, |draft| {
            let issue = draft.issue(id)?;
            let puts = build(draft, &issue)?;
            draft.change(&issue, &puts)
        })?;
        self.note(what, std::slice::from_ref(&wrote));
        Ok(wrote)
    }

    /// Changes one issue of a ledger, if `holds` once it is this writer's turn; the caller records it in the event log.
    pub(super) fn change_quietly_if(
        &self,
        ledger: &Ledger,
        id: &str,
        holds: impl FnOnce() -> Result<bool, Error>,
        build: impl FnOnce(&Issue) -> Result<Vec<Put>, Error>,
    ) -> Result<Option<Wrote>, Error> {
        self.write_if(ledger, holds, |draft| {
            let issue = draft.issue(id)?;
            let puts = build(&issue)?;
            draft.change(&issue, &puts)
        })
    }

    /// Lets epics follow what was written, and history say so. It is in the ledger already: if history cannot say so, that
    /// is told beside the outcome.
    pub(super) fn note(&self, what: &'static str, wrote: &[Wrote]) {
        let notes: Vec<Noted> = wrote.iter().filter_map(noted).collect();
        self.note_with(what, notes, self.follow_epics(wrote));
    }

    pub(super) fn note_with(&self, what: &'static str, mut notes: Vec<Noted>, epics: Vec<Noted>) {
        if notes.is_empty() && epics.is_empty() {
            return;
        }
        if self.session.engine().waits() {
            notes.iter_mut().for_each(|noted| self.leave_text_out(noted));
        }
        if let Err(error) = self.session.perform(Note { what: what.to_owned(), notes, epics }) {
            self.session.note(format!("the ledger was written, but the event was not recorded: {error}"));
        }
    }
}

/// The id for an operation, always the same.
pub(super) fn id_of(op: &str) -> String {
    let mut reader = blake3::Hasher::new().update(op.as_bytes()).finalize_xof();
    generate_id(&mut toft_core::id::IdGenerator::new(move |bytes| reader.fill(bytes)))
}
