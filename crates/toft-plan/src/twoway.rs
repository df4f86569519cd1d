//! Exchange with beads in both directions: an import is a three-way merge, and an export is never mistaken for an edit
//! in beads.
//!
//! An issue is compared facet by facet (a field, a label, a dependency, a comment). Each issue stores in its ledger the
//! state of every facet in beads at the last import, as short hashes: this is the base. An export that changes
//! something leaves a mark in the issue's metadata, with the hashes of the changed facets. Versions of beads that drop
//! metadata are handled by comparing their issues with the stored exports (`Sent`, a file of this clone). See
//! docs/decisions/0010-the-index-is-local.md.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use toft_core::time::Timestamp;
use toft_ledger::{
    clock::Clock,
    record::{Key, Record, Set},
};

use super::beads::{self, OF_DELETED, PARENT_CHILD, UPDATED};

/// The field of a ledger with the state in beads at the last import.
const BASE: &str = "beads";
/// Represents an unknown value: every value differs from it.
const UNKNOWN: u32 = 2;

/// Maximum number of exports of an issue that are stored between two imports.
const LAST: usize = 20;

type Row = Map<String, Value>;
/// The facets of an issue, in a form that is the same for beads and toft.
type View = BTreeMap<String, Value>;
/// The same as hashes: of a facet's name, and of its value.
type Prints = BTreeMap<u32, u32>;

/// The facet of a key; none if beads has no such facet.
fn facet(key: &Key, value: &Value) -> Option<String> {
    match key {
        Key::Field(name) => match &**name {
            "status" | "closed" => Some("status".into()),
            "deleted" => Some("deleted".into()),
            name if OF_DELETED.contains(&name) => Some("deleted".into()),
            UPDATED => None,
            "parent" | "title" | "body" | "design" | "acceptance" | "notes" | "priority" | "type" | "assignee"
            | "owner" | "due" | "defer_until" => Some(name.to_string()),
            name => name.starts_with("beads.").then(|| name.to_owned()),
        },
        Key::Member(Set::Labels, word) => Some(format!("label {word}")),
        Key::Member(Set::Deps, dep) => match dep.split_once(':') {
            Some((PARENT_CHILD, _)) => Some("parent".into()),
            _ => Some(format!("dependency {dep}")),
        },
        // Beads gives a comment another id when it takes it in, and knows it by its author and text.
        Key::Member(Set::Comments, _) => {
            let text = |name: &str| value[name].as_str().unwrap_or_default().trim().to_owned();
            Some(format!("comment {:08x}", hash(&format!("{}\n{}", text("by"), text("text")))))
        }
        Key::Member(Set::External, name) => name.starts_with("beads:").then(|| "external_ref".into()),
    }
}

/// Whether a facet is a member of a set, which exists or not but has no value of its own.
fn member(facet: &str) -> bool {
    ["label ", "dependency ", "comment "].iter().any(|set| facet.starts_with(set))
}

/// The facets of a record in the form of beads.
fn view(record: &Record) -> View {
    let mut view = View::from([("type".to_owned(), json!("task")), ("priority".to_owned(), json!(2))]);
    let mut status = (json!("open"), Value::Null, String::new());
    let mut parents = BTreeSet::new();
    for (key, register) in record.registers() {
        let Some(text) = &register.value else { continue };
        let value: Value = serde_json::from_str(text).unwrap_or_default();
        let Some(facet) = facet(key, &value) else { continue };
        match (facet.as_str(), key) {
            ("status", Key::Field(name)) if &**name == "status" => status.0 = value,
            ("status", _) => {
                status.1 = seconds(&value["at"]);
                status.2 = value["reason"].as_str().unwrap_or_default().to_owned();
            }
            ("deleted", Key::Field(name)) if &**name == "deleted" => drop(view.insert(facet, json!(true))),
            ("deleted", _) | ("parent", Key::Field(_)) => {}
            ("parent", _) => drop(parents.insert(value["on"].to_string())),
            ("external_ref", _) => drop(view.insert(facet, value["ref"].clone())),
            ("due" | "defer_until", _) => drop(view.insert(facet, seconds(&value))),
            ("priority", _) => drop(view.insert(facet, value)),
            (_, Key::Member(..)) => drop(view.insert(facet, json!(true))),
            _ if [json!(null), json!(""), json!(0), json!(false), json!([]), json!({})].contains(&value) => {}
            _ => drop(view.insert(facet, value)),
        }
    }
    view.insert("status".into(), json!([status.0, status.1, status.2]));
    if !parents.is_empty() {
        view.insert("parent".into(), json!(parents));
    }
    view
}

fn seconds(value: &Value) -> Value {
    serde_json::from_value::<Timestamp>(value.clone()).map_or(Value::Null, |at| json!(whole(at)))
}

fn whole(at: Timestamp) -> i64 {
    at.0.div_euclid(1_000)
}

/// A hash that is never zero, which represents a missing facet, and never `UNKNOWN`.
fn hash(text: &str) -> u32 {
    let hash = blake3::hash(text.as_bytes());
    let [a, b, c, d, ..] = *hash.as_bytes();
    u32::from_be_bytes([a, b, c, d]).max(UNKNOWN + 1)
}

fn fingerprint_of(value: Option<&Value>) -> u32 {
    value.map_or(0, |value| hash(&value.to_string()))
}

fn prints(view: &View) -> Prints {
    view.iter().map(|(facet, value)| (hash(facet), fingerprint_of(Some(value)))).collect()
}

fn written(prints: &Prints) -> String {
    prints.iter().map(|(facet, value)| format!("{facet:08x}{value:08x}")).collect()
}

fn read(text: &str) -> Prints {
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let pair = |at: usize| Some((number(text.get(at..at + 8)?)?, number(text.get(at + 8..at + 16)?)?));
    (0..text.len()).step_by(16).filter_map(pair).collect()
}

/// The state of an issue in beads at the last import.
struct Base {
    prints: Prints,
    mark: Option<String>,
}

impl Base {
    fn of(known: &Record, ours: &View) -> Option<Self> {
        let base = known.field(BASE).and_then(|base| serde_json::from_str::<Value>(base).ok());
        if let Some(base) = base {
            let mark = base["mark"].as_str().map(str::to_owned);
            return Some(Self { prints: read(base["seen"].as_str().unwrap_or_default()), mark });
        }
        // Taken in by an earlier toft, which remembered nothing: what beads wrote last is still what it said.
        known.field(UPDATED)?;
        let mut prints = prints(ours);
        for (key, register) in
            known.registers().iter().filter(|(_, register)| register.clock.replica != beads::replica())
        {
            let value = register.value.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            prints.extend(facet(key, &value).map(|facet| (hash(&facet), UNKNOWN)));
        }
        Some(Self { prints, mark: None })
    }

    fn get(&self, facet: &str) -> u32 {
        self.prints.get(&hash(facet)).copied().unwrap_or_default()
    }
}

/// The exports of this clone to beads.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Exports {
    /// Whether beads keeps the marks of exports; older versions drop them.
    pub(super) marks: Option<bool>,
    /// Exports since the last import, by issue, newest last.
    pub(super) sent: BTreeMap<String, Vec<SentIssue>>,
}

impl Exports {
    /// The exports of an issue since the last import.
    pub(super) fn of(&self, id: &str) -> &[SentIssue] {
        self.sent.get(id).map_or(&[], Vec::as_slice)
    }

    /// Stores an export of an issue.
    pub(super) fn add(&mut self, id: String, sent: SentIssue) {
        let known = self.sent.entry(id).or_default();
        if known.last() != Some(&sent) {
            known.push(sent);
            known.drain(..known.len().saturating_sub(LAST));
        }
    }
}

/// The changes of toft to an issue since the last import, and the time of the export.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct SentIssue {
    at: i64,
    changes: String,
}

impl SentIssue {
    /// The mark of an export in an issue.
    fn mark(&self) -> String {
        format!("{}.{}", self.at, self.changes)
    }

    fn of_mark(mark: &str) -> Option<Self> {
        let (at, changes) = mark.split_once('.')?;
        Some(Self { at: at.parse().ok()?, changes: changes.to_owned() })
    }
}

/// The result of importing one issue.
pub(super) struct MergedImport {
    pub(super) record: Record,
    /// Whether it changed anything except the stored base.
    pub(super) changed: bool,
    /// Whether beads has seen or skipped the last export.
    pub(super) settled: bool,
    /// Whether beads took an export and dropped its mark.
    pub(super) unmarked: bool,
    pub(super) notes: Vec<String>,
}

/// The data for an import besides the ledger.
#[derive(Clone, Copy)]
pub(super) struct Side<'s> {
    /// Exports of this issue from here since the last import, newest last.
    pub(super) sent: &'s [SentIssue],
    /// Whether this version of beads keeps marks, if known.
    pub(super) marks: Option<bool>,
    /// Milliseconds since 1970.
    pub(super) now: u64,
}

/// Merges an issue of beads with that of the ledger. A facet that only one side changed since the last import is taken
/// from that side; if both changed it, the newer wins and a note says so.
pub(super) fn merge(known: Option<Record>, row: &Row, side: Side<'_>) -> Result<MergedImport, String> {
    let theirs = beads::record(row, side.now)?;
    let said = view(&theirs);
    let mark = beads::mark(row);
    let mut base = json!({ "seen": written(&prints(&said)) });
    if let Some(mark) = mark {
        base["mark"] = json!(mark);
    }
    let ms = theirs.newest().ms;
    let clock = |known: Option<Clock>| match known {
        Some(known) => Clock::after(known, ms, beads::replica()),
        None => Clock { ms, count: 0, replica: beads::replica() },
    };
    let Some(known) = known else {
        let mut record = theirs;
        record.set(Key::field(BASE), clock(None), Some(base.to_string().into()));
        return Ok(MergedImport { record, changed: true, settled: true, unmarked: false, notes: Vec::new() });
    };
    let merging = Merging::new(&known, row, &said, side)?;
    let mut notes = Vec::new();
    if let (Some(at), Some(last)) = (merging.at, last_update(&known))
        && at < whole(last)
    {
        return Ok(MergedImport { record: known, changed: false, settled: false, unmarked: false, notes });
    }
    let mut record = known.clone();
    let mut taken = BTreeSet::new();
    for name in said.keys().chain(merging.ours.keys()).collect::<BTreeSet<_>>() {
        if merging.takes(name, ms, &mut notes) {
            take(&mut record, &theirs, name, clock);
            taken.insert(name.as_str());
        }
    }
    if known.field("deleted").is_some() && !taken.contains("deleted") && !taken.is_empty() {
        notes.push(format!("{0} is deleted here and was changed in beads: toft reopen {0} brings it back", known.id()));
    }
    let changed = record != known;
    for (name, value) in [(BASE, Some(base.to_string())), (UPDATED, theirs.field(UPDATED).map(str::to_owned))] {
        let key = Key::field(name);
        if record.get(&key) != value.as_deref() {
            let clock = clock(record.registers().get(&key).map(|register| register.clock));
            record.set(key, clock, value.map(String::into_boxed_str));
        }
    }
    let unmarked = merging.built_on.is_some() && mark.is_none();
    Ok(MergedImport { record, changed, settled: merging.seen_by_beads(), unmarked, notes })
}

/// Whether an issue was ever imported from beads.
pub(super) fn from_beads(known: &Record) -> bool {
    known.field(UPDATED).is_some() || known.field(BASE).is_some()
}

fn last_update(known: &Record) -> Option<Timestamp> {
    serde_json::from_str(known.field(UPDATED)?).ok()
}

/// One import of one issue.
struct Merging<'m> {
    known: &'m Record,
    theirs: &'m View,
    ours: View,
    base: Option<Base>,
    /// The changes of the export from which this state in beads descends.
    built_on: Option<Prints>,
    sent: &'m [SentIssue],
    /// When beads changed the issue, in seconds.
    at: Option<i64>,
}

impl<'m> Merging<'m> {
    fn new(known: &'m Record, row: &Row, theirs: &'m View, side: Side<'m>) -> Result<Self, String> {
        let ours = view(&beads::record(&beads::row(known), side.now)?);
        let base = Base::of(known, &ours);
        let at = row.get("updated_at").and_then(|at| seconds(at).as_i64());
        let sent = side.sent;
        let mut merging = Self { known, theirs, ours, base, built_on: None, sent, at };
        let marked = beads::mark(row)
            .filter(|mark| merging.base.as_ref().is_none_or(|base| base.mark.as_deref() != Some(*mark)));
        let unmarked = || {
            if merging.base.is_none() {
                return sent.last().cloned();
            }
            let took = |sent| Some((merging.took(sent, side.marks == Some(false))?, sent));
            let all = sent.iter().filter(|_| side.marks != Some(true)).filter_map(took);
            all.max_by_key(|(alike, _)| *alike).map(|(_, sent)| sent.clone())
        };
        let built_on = marked.and_then(SentIssue::of_mark).or_else(unmarked);
        merging.built_on = built_on.map(|sent| read(&sent.changes));
        Ok(merging)
    }

    /// Whether beads has seen the last export, or has changed the issue since and will not take it any more.
    fn seen_by_beads(&self) -> bool {
        self.sent.last().is_some_and(|sent| self.passed(sent))
    }

    fn passed(&self, sent: &SentIssue) -> bool {
        self.at.is_some_and(|at| at >= sent.at)
    }

    /// Whether beads took an export without its mark, judging by its issue: it has a change of toft and nothing from
    /// before. For a version of beads that drops marks, also if it has exactly the state from before, and changed the
    /// issue since. Returns the number of matching facets.
    fn took(&self, sent: &SentIssue, drops_marks: bool) -> Option<usize> {
        let base = self.base.as_ref().filter(|_| self.passed(sent))?;
        let changes = read(&sent.changes);
        let (mut alike, mut none_before) = (0, true);
        for name in self.theirs.keys().chain(self.ours.keys()).collect::<BTreeSet<_>>() {
            let Some(sent) = changes.get(&hash(name)) else { continue };
            let theirs = fingerprint_of(self.theirs.get(name));
            alike += usize::from(theirs == *sent);
            // Beads adds members and removes none when it takes an issue in.
            none_before &= theirs != base.get(name) || member(name);
        }
        let undone = drops_marks && self.at.is_some_and(|at| at > sent.at) && prints(self.theirs) == base.prints;
        (alike > 0 && none_before || undone).then_some(alike)
    }

    /// Whether a facet takes the value of beads.
    fn takes(&self, name: &str, ms: u64, notes: &mut Vec<String>) -> bool {
        let (theirs, ours) = (self.theirs.get(name), self.ours.get(name));
        if theirs == ours {
            return false;
        }
        let Some(base) = self.base_of(name) else {
            // Nothing is known of what both had: nothing is taken away.
            return theirs.is_some() && (ours.is_none() || self.newer(name, ms, notes));
        };
        if member(name) && theirs.is_some() && self.removal_sent(name) {
            notes.extend(still_there(self.known.id(), name));
            return false;
        }
        match (fingerprint_of(theirs) != base, fingerprint_of(ours) != base) {
            (true, false) => true,
            (true, true) => self.newer(name, ms, notes),
            (false, _) => false,
        }
    }

    /// The last common state.
    fn base_of(&self, name: &str) -> Option<u32> {
        let sent = self.built_on.as_ref().and_then(|changes| changes.get(&hash(name)).copied());
        sent.or_else(|| self.base.as_ref().map(|base| base.get(name))).or(self.built_on.as_ref().map(|_| 0))
    }

    /// Whether beads had a member, and an export removed it.
    fn removal_sent(&self, name: &str) -> bool {
        let gone = |changes: &Prints| changes.get(&hash(name)) == Some(&0);
        let sent = self.sent.last().filter(|sent| self.passed(sent)).map(|sent| read(&sent.changes));
        self.built_on.as_ref().is_some_and(gone) || sent.as_ref().is_some_and(gone)
    }

    /// Both sides changed a facet: whether the change in beads is later.
    fn newer(&self, name: &str, ms: u64, notes: &mut Vec<String>) -> bool {
        let of = |(key, register): (&Key, &toft_ledger::record::Register)| {
            let value = register.value.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            (facet(key, &value).as_deref() == Some(name)).then_some(register.clock.ms)
        };
        let ours = self.known.registers().iter().filter_map(of).max().unwrap_or_default();
        let theirs = ms > ours;
        let winner = if theirs { "beads" } else { "toft" };
        notes.push(format!("{}: both sides changed {name}; {winner} changed it last and wins", self.known.id()));
        theirs
    }
}

/// The remaining step in beads, which does not import removals.
fn still_there(id: &str, name: &str) -> Option<String> {
    let command = match name.split_once(' ')? {
        ("label", word) => format!("bd label remove {id} {word}"),
        ("dependency", dep) => format!("bd dep remove {id} {}", dep.split_once(':')?.1),
        _ => return None,
    };
    Some(format!("{id}: {name} was removed here and is still in beads, which imports no removals: {command}"))
}

/// Sets a facet of a record to the value of beads.
fn take(record: &mut Record, theirs: &Record, name: &str, clock: impl Fn(Option<Clock>) -> Clock) {
    let keys = |record: &Record| -> BTreeMap<Key, Box<str>> {
        let of = |(key, register): (&Key, &toft_ledger::record::Register)| {
            let text = register.value.clone()?;
            let value = serde_json::from_str(&text).unwrap_or_default();
            (facet(key, &value).as_deref() == Some(name)).then(|| (key.clone(), text))
        };
        record.registers().iter().filter_map(of).collect()
    };
    let (mut old, new) = (keys(record), keys(theirs));
    for (mut key, mut value) in new {
        if matches!(&key, Key::Member(Set::Comments, _)) && record.get(&key).is_some() && !old.contains_key(&key) {
            // Beads counts comments; another one has this number here.
            let id = format!("{:08x}", hash(&value));
            let mut said: Value = serde_json::from_str(&value).unwrap_or_default();
            said["id"] = json!(id);
            (key, value) = (Key::comment(&id), said.to_string().into());
        }
        if old.remove(&key).as_ref() != Some(&value) {
            let clock = clock(record.registers().get(&key).map(|register| register.clock));
            record.set(key, clock, Some(value));
        }
    }
    for key in old.into_keys() {
        let clock = clock(record.registers().get(&key).map(|register| register.clock));
        record.set(key, clock, None);
    }
}

/// A record as an issue for beads, and the changes of toft since the last import; none if there are none. Beads takes
/// an issue only if it is newer than its own by a second: the export is newer than the state from which it descends and
/// older than any change in beads since, which toft has not seen.
pub(super) fn outgoing(record: &Record, sent: &[SentIssue]) -> Option<(Row, Option<SentIssue>)> {
    let sent = sent.last();
    let mut row = beads::row(record);
    let newest = record.newest().ms;
    let ours = view(&beads::record(&row, newest).ok()?);
    let base = Base::of(record, &ours);
    if base.is_none() && sent.is_none() && record.field("deleted").is_some() {
        return None;
    }
    let now_is = prints(&ours);
    let mut changes = now_is.clone();
    let now = |facet: &u32| (*facet, now_is.get(facet).copied().unwrap_or_default());
    if let Some(base) = &base {
        changes.retain(|facet, value| base.prints.get(facet) != Some(value));
        changes.extend(base.prints.keys().map(now).filter(|(_, value)| *value == 0));
    }
    // Beads may have seen an earlier export: what it said and this one takes back is a change as well.
    changes.extend(sent.iter().flat_map(|sent| read(&sent.changes).into_keys()).map(|facet| now(&facet)));
    if changes.is_empty() {
        if let Some(mark) = base.and_then(|base| base.mark) {
            beads::put_mark(&mut row, &mark);
        }
        return Some((row, None));
    }
    let last = last_update(record).map(whole);
    let changes = written(&changes);
    let at = match (sent, last) {
        (Some(sent), last) if sent.changes == changes && last.is_none_or(|last| last < sent.at) => sent.at,
        (Some(sent), last) => last.unwrap_or(sent.at).max(sent.at) + 1,
        (None, Some(last)) => last + 1,
        (None, None) => (newest / 1_000) as i64,
    };
    row.insert("updated_at".into(), beads::at_seconds(at));
    if let Some(base) = &base {
        // An empty text clears a field; one that is left out stays.
        for (name, facet, nothing) in beads::CLEARED {
            if !ours.contains_key(facet) && base.get(facet) != 0 {
                row.insert(name.into(), nothing.map_or(Value::Null, Value::from));
            }
        }
    }
    if base.is_some_and(|base| base.get("status") != fingerprint_of(ours.get("status")))
        && !row.contains_key("closed_at")
    {
        row.insert("close_reason".into(), "".into());
    }
    let sent = SentIssue { at, changes };
    beads::put_mark(&mut row, &sent.mark());
    Some((row, Some(sent)))
}

#[cfg(test)]
mod tests;
