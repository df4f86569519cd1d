//! A change of a ledger, before it is written.

use std::collections::{BTreeMap, BTreeSet};

use toft_core::{
    issue::{
        CLOSED, Issue, Put, edit,
        epic::EpicParts,
        ready::{Node, Nodes},
    },
    refusal::Refusal,
    store::StoreError,
    verbs::undo::Before,
};
use toft_ledger::{
    clock::Clock,
    combine::Lines,
    line::{self, Line},
    record::{Key, Record},
};
use toft_session::error::Error;
use toft_store::sqlite::index::{IndexTx, IssueFilter};

use super::{
    Ledger, Wrote,
    overlay::Below,
    write::{issue_of, record, register},
};

/// Maximum length of a field or comment.
const LONGEST_VALUE: usize = 1 << 20;

/// A change of one ledger that is being assembled.
pub(super) struct Draft<'d> {
    pub(super) index: &'d IndexTx<'d>,
    ledger: &'d Ledger,
    below: Below<'d>,
    pub(super) clock: Clock,
    pub(super) records: BTreeMap<String, Record>,
    issues: BTreeMap<String, Issue>,
    /// Lines that cannot be read and are kept unchanged.
    pub(super) verbatim: Vec<Vec<u8>>,
}

impl Nodes for Draft<'_> {
    type Error = StoreError;

    fn node(&mut self, id: &str) -> Result<Option<Node>, StoreError> {
        match self.issues.get(id) {
            Some(issue) => Ok(Some(Node::of(issue))),
            None => self.index.node(id),
        }
    }

    fn open_children(&mut self, id: &str) -> Result<u64, StoreError> {
        self.index.nodes().open_children(id)
    }
}

impl<'d> Draft<'d> {
    pub(super) fn new(index: &'d IndexTx<'d>, ledger: &'d Ledger, layer: Option<&'d Ledger>, clock: Clock) -> Self {
        let (records, issues, verbatim) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { index, ledger, below: Below::of(index, ledger, layer), clock, records, issues, verbatim }
    }

    /// An issue of this ledger in its current state.
    pub(super) fn issue(&mut self, id: &str) -> Result<Issue, Error> {
        if let Some(issue) = self.issues.get(id) {
            return Ok(issue.clone());
        }
        match self.index.line(&self.ledger.name, id)? {
            Some(row) => self.below.issue(&record(&row)?),
            None => {
                let bare = self.below.bare(id)?;
                bare.ok_or_else(|| Refusal::NotFound { what: "issue".into(), text: id.to_owned() }.into())
            }
        }
    }

    /// Writes to an issue, which is created if the ledger does not contain it.
    pub(super) fn put(&mut self, id: &str, puts: &[Put]) -> Result<(), Error> {
        if puts.is_empty() {
            return Ok(());
        }
        let mut record = match self.records.remove(id) {
            Some(record) => record,
            None => match self.index.line(&self.ledger.name, id)? {
                Some(row) => record(&row)?,
                None => self.below.begin(id, self.clock)?,
            },
        };
        self.below.refuse_decided(&record, puts)?;
        for put in puts {
            let (key, value) = register(put);
            if value.as_ref().is_some_and(|value| value.len() > LONGEST_VALUE) {
                let problem = format!("a text is at most {} KiB long", LONGEST_VALUE >> 10);
                return Err(Refusal::Invalid { field: key.to_string(), problem }.into());
            }
            record.set(key, self.clock, value);
        }
        self.issues.insert(id.to_owned(), self.below.issue(&record)?);
        self.records.insert(id.to_owned(), record);
        Ok(())
    }

    /// Removes all values of an issue of this ledger, except some fields.
    pub(super) fn clear(&mut self, id: &str, but: &[&str]) -> Result<(), Error> {
        let Some(row) = self.index.line(&self.ledger.name, id)? else { return Ok(()) };
        let mut record = self.records.remove(id).map_or_else(|| record(&row), Ok)?;
        let stays = |key: &Key| but.iter().any(|name| *key == Key::field(name));
        let gone: Vec<Key> = record
            .registers()
            .iter()
            .filter(|(key, at)| at.value.is_some() && !stays(key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            record.set(key, self.clock, None);
        }
        self.issues.insert(id.to_owned(), issue_of(&record)?);
        self.records.insert(id.to_owned(), record);
        Ok(())
    }

    /// Merges another copy of an issue; known values change nothing.
    pub(super) fn take(&mut self, line: Line) -> Result<(), Error> {
        let id = line.record.id().to_owned();
        let row = self.index.line(&self.ledger.name, &id)?;
        let known = match (self.records.remove(&id), &row) {
            (Some(known), _) => Some(known),
            (None, Some(row)) => Some(record(row)?),
            (None, None) => None,
        };
        let mut lines = Lines::default();
        if let Some(known) = &known {
            lines.add_record(known.clone());
        }
        lines.add(line);
        let Some(record) = lines.resolve(known.as_ref()) else { return Ok(()) };
        if row.is_none_or(|row| line::write(&record) != row.line) {
            self.records.insert(id, record);
        }
        Ok(())
    }

    /// Adds an unreadable line of another copy unchanged.
    pub(super) fn keep(&mut self, line: Vec<u8>) {
        self.verbatim.push(line);
    }

    /// The record of an issue in this draft.
    pub(super) fn record(&self, id: &str) -> Result<Option<Record>, Error> {
        match self.records.get(id) {
            Some(known) => Ok(Some(known.clone())),
            None => self.index.line(&self.ledger.name, id)?.as_ref().map(record).transpose(),
        }
    }

    /// Replaces the record of an issue.
    pub(super) fn replace(&mut self, record: Record) -> Result<(), Error> {
        self.issues.insert(record.id().to_owned(), issue_of(&record)?);
        self.records.insert(record.id().to_owned(), record);
        Ok(())
    }

    /// Writes to an issue that the ledger contains, and records the earlier values.
    pub(super) fn change(&mut self, issue: &Issue, puts: &[Put]) -> Result<Wrote, Error> {
        self.put(&issue.id, puts)?;
        let before = match puts {
            [] => None,
            puts => Some(Before { issue: issue.id.clone(), was: Some(edit::before(issue, puts)?), now: puts.to_vec() }),
        };
        Ok(Wrote { issue: self.issue(&issue.id)?, ledger: self.ledger.name.clone(), before })
    }

    /// Whether the ledger contains an issue with this id.
    pub(super) fn has(&self, id: &str) -> Result<bool, Error> {
        Ok(self.records.contains_key(id) || self.index.line(&self.ledger.name, id)?.is_some())
    }

    /// The parts of an epic, as they are written.
    pub(super) fn parts_of(&mut self, epic: &str) -> Result<EpicParts, Error> {
        let open = self.open_children(epic)?;
        let closed =
            IssueFilter { parent: Some(epic.to_owned()), status: Some(CLOSED.into()), ..IssueFilter::default() };
        let any_closed = open == 0 && !self.index.list(&IssueFilter { limit: 1, ..closed })?.is_empty();
        Ok(EpicParts { open, any_closed })
    }

    /// What the issues that are written are part of.
    pub(super) fn parents(&self) -> Result<BTreeSet<String>, Error> {
        let of = |record: &Record| Ok(issue_of(record)?.parent);
        self.records.values().filter_map(|record| of(record).transpose()).collect()
    }

    /// How many issues are written.
    pub(super) fn changes(&self) -> usize {
        self.records.len()
    }
}
