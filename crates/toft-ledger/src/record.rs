//! One issue as replicas exchange it: every field, and every member of a set, with the clock of its last write.
//!
//! A merge takes the newer value of each, so that any order and any grouping give the same result. The meaning of
//! fields is not known here; unknown fields are kept unchanged.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use crate::clock::{Clock, Replica};

/// A JSON value, as it was written.
pub type Json = Box<str>;

/// Fields that are sets, whose members are added and removed individually.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// Labels.
    Labels,
    /// Dependencies, by kind.
    Deps,
    /// Comments, by id.
    Comments,
    /// Names in other systems.
    External,
}

impl Set {
    pub(crate) const ALL: [Self; 4] = [Self::Labels, Self::Deps, Self::Comments, Self::External];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Deps => "deps",
            Self::Comments => "comments",
            Self::External => "external",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.as_str() == name)
    }
}

/// A field or member that has its own clock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A field.
    Field(Box<str>),
    /// A member of a set, by its key.
    Member(Set, Box<str>),
}

impl Key {
    /// A field, by its name.
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    /// A label.
    pub fn label(word: &str) -> Self {
        Self::Member(Set::Labels, word.into())
    }

    /// A dependency.
    pub fn dep(on: &str, kind: &str) -> Self {
        Self::Member(Set::Deps, format!("{kind}:{on}").into())
    }

    /// A comment.
    pub fn comment(id: &str) -> Self {
        Self::Member(Set::Comments, id.into())
    }

    /// A line without clocks whose content is in the record, by the line's digest.
    pub(crate) fn absorbed(digest: &str) -> Self {
        Self::Field(format!("~{digest}").into())
    }

    fn is_absorbed(&self) -> bool {
        matches!(self, Self::Field(name) if name.starts_with('~'))
    }

    /// Parses a key of the table of clocks.
    pub(crate) fn parse(text: &str) -> Self {
        match text.split_once('/') {
            Some(("", name)) => Self::field(name),
            Some((set, member)) => match Set::named(set) {
                Some(set) => Self::Member(set, member.into()),
                None => Self::field(text),
            },
            None => Self::field(text),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) if name.contains('/') => write!(f, "/{name}"),
            Self::Field(name) => f.write_str(name),
            Self::Member(set, member) => write!(f, "{}/{member}", set.as_str()),
        }
    }
}

/// The last write and its clock. An absent value was removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register {
    pub clock: Clock,
    /// The value; ordered after the clock, so that a tie has the same winner everywhere.
    pub value: Option<Json>,
}

/// One issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    id: String,
    /// When it was created: the clock of every key that was not written since.
    base: Clock,
    registers: BTreeMap<Key, Register>,
}

impl Record {
    /// An empty record.
    pub fn new(id: impl Into<String>, base: Clock) -> Self {
        Self { id: id.into(), base, registers: BTreeMap::new() }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn base(&self) -> Clock {
        self.base
    }

    /// Everything that was ever written, in order.
    pub fn registers(&self) -> &BTreeMap<Key, Register> {
        &self.registers
    }

    /// The value of a key.
    pub fn get(&self, key: &Key) -> Option<&str> {
        self.registers.get(key)?.value.as_deref()
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.get(&Key::field(name))
    }

    /// Members of a set, in order.
    pub fn members(&self, set: Set) -> impl Iterator<Item = (&str, &str)> {
        self.registers.iter().filter_map(move |(key, register)| match key {
            Key::Member(of, member) if *of == set => Some((member.as_ref(), register.value.as_deref()?)),
            _ => None,
        })
    }

    /// Overwrites a value. If the old value has a later clock, because another machine's clock is ahead, the write gets
    /// the next clock after it.
    pub fn set(&mut self, key: Key, clock: Clock, value: Option<Json>) {
        let clock = match self.registers.get(&key) {
            Some(before) if before.clock >= clock => before.clock.next(clock.replica),
            _ => clock,
        };
        self.registers.insert(key, Register { clock, value });
    }

    /// Writes a value, unless a newer one exists.
    pub fn write(&mut self, key: Key, clock: Clock, value: Option<Json>) {
        let new = Register { clock, value };
        match self.registers.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(new)),
            Entry::Occupied(mut entry) if new > *entry.get() => drop(entry.insert(new)),
            Entry::Occupied(_) => {}
        }
    }

    /// The newest clock in it.
    pub fn newest(&self) -> Clock {
        self.registers.values().map(|register| register.clock).max().unwrap_or_default().max(self.base)
    }

    /// Merges another replica's record of the same issue.
    pub fn merge(&mut self, other: Self) {
        self.base = self.base.max(other.base);
        for (key, Register { clock, value }) in other.registers {
            self.write(key, clock, value);
        }
        self.stay_purged();
    }

    /// Removes everything else from a purged issue, whatever other copies still contain.
    pub(crate) fn stay_purged(&mut self) {
        if self.field("purged").is_some() {
            let stays = [Key::field("purged"), Key::field("deleted")];
            self.registers.retain(|key, _| stays.contains(key));
        }
    }

    /// The record without what dated lines of `known` contain: the rest is enough for a reader of those lines.
    #[must_use]
    pub(crate) fn beyond(&self, known: &Self) -> Self {
        let loose: Vec<Clock> = known.loose().map(|(_, clock)| clock).collect();
        let new = |(key, register): &(&Key, &Register)| {
            known.registers.get(*key) != Some(*register) || loose.contains(&register.clock)
        };
        let own = |(key, register): (&Key, &Register)| (key.clone(), register.clone());
        Self { id: self.id.clone(), base: self.base, registers: self.registers.iter().filter(new).map(own).collect() }
    }

    /// Lines without clocks whose content is in no dated line yet, each with the clock at which it counts as written.
    fn loose(&self) -> impl Iterator<Item = (&Key, Clock)> {
        let loose = |(key, register): &(&Key, &Register)| key.is_absorbed() && register.clock.replica == Replica::HAND;
        self.registers.iter().filter(loose).map(|(key, register)| (key, register.clock))
    }

    /// Records that a dated line written at `clock` contains all known lines without clocks.
    pub fn settle(&mut self, clock: Clock) {
        let loose: Vec<Key> = self.loose().map(|(key, _)| key.clone()).collect();
        for key in loose {
            self.set(key, clock, None);
        }
    }

    /// Compares an edited line that does not show which fields were edited with `known`: a field with the same clock
    /// and another value was written right after everything else in the line, and a field of that time that a `whole`
    /// line lacks was removed.
    #[must_use]
    pub(crate) fn compared(mut self, known: &Self, whole: bool) -> Self {
        let newest = self.newest();
        let edited = newest.next(Replica::HAND);
        for (key, register) in &mut self.registers {
            match known.registers.get(key) {
                Some(before) if before.value == register.value => register.clock = register.clock.max(before.clock),
                Some(before) if before.clock != register.clock => {}
                None if register.value.is_none() => {}
                _ => register.clock = edited,
            }
        }
        for (key, before) in known.registers.iter().filter(|(_, before)| whole && before.clock <= newest) {
            let clock = if before.value.is_some() { edited } else { before.clock };
            self.registers.entry(key.clone()).or_insert(Register { clock, value: None });
        }
        self
    }
}
