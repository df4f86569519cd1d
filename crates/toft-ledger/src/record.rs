//! One issue as replicas exchange it: every field, and every member of a set, with the moment it was last written.
//!
//! Merging takes the newer of each, so that any order and any grouping end alike. What a field means is nobody's
//! business here; what is not known is kept as it is.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use crate::clock::Clock;

/// A JSON value, as it was written.
pub type Json = Box<str>;

/// Fields that are sets: members come and go one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Set {
    /// Words.
    Labels,
    /// What it needs, by kind.
    Deps,
    /// What was said, by id.
    Comments,
    /// What it is called elsewhere.
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

/// What can be written on its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A field.
    Field(Box<str>),
    /// A member of a set, by what makes it that member.
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

    /// Something said.
    pub fn comment(id: &str) -> Self {
        Self::Member(Set::Comments, id.into())
    }

    /// As the table of clocks names it.
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

/// What was last written, and when. Absent values were taken away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Register {
    /// When.
    pub clock: Clock,
    /// What; ordered after the clock, so that a tie has one winner everywhere.
    pub value: Option<Json>,
}

/// One issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    id: String,
    /// When it was made: the clock of everything that was not written since.
    base: Clock,
    registers: BTreeMap<Key, Register>,
}

impl Record {
    /// A record that says nothing yet.
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

    /// What stands under a key.
    pub fn get(&self, key: &Key) -> Option<&str> {
        self.registers.get(key)?.value.as_deref()
    }

    /// What stands in a field.
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

    /// Writes over what was there, at a moment after everything that was.
    pub fn set(&mut self, key: Key, clock: Clock, value: Option<Json>) {
        self.registers.insert(key, Register { clock, value });
    }

    /// Writes, unless something newer is there.
    pub fn write(&mut self, key: Key, clock: Clock, value: Option<Json>) {
        let new = Register { clock, value };
        match self.registers.entry(key) {
            Entry::Vacant(entry) => drop(entry.insert(new)),
            Entry::Occupied(mut entry) if new > *entry.get() => drop(entry.insert(new)),
            Entry::Occupied(_) => {}
        }
    }

    /// The newest moment in it.
    pub fn newest(&self) -> Clock {
        self.registers.values().map(|register| register.clock).max().unwrap_or_default().max(self.base)
    }

    /// Takes in what another replica has of the same issue.
    pub fn merge(&mut self, other: Self) {
        self.base = self.base.max(other.base);
        for (key, Register { clock, value }) in other.registers {
            self.write(key, clock, value);
        }
        // A purged issue says nothing else, whatever other copies still have of it.
        if self.field("purged").is_some() {
            let stays = [Key::field("purged"), Key::field("deleted")];
            self.registers.retain(|key, _| stays.contains(key));
        }
    }

    /// Takes a line that was changed without its clocks: what differs from what was known was written now. What was
    /// written here since the line was is none of its business: whoever changed it had not seen that.
    #[must_use]
    pub fn adopted(self, known: Option<&Self>, now: Clock) -> Self {
        self.adopt(known, now, true)
    }

    /// The same for a line of another copy: one without any clocks says nothing of what it leaves out.
    #[must_use]
    pub fn adopted_from_elsewhere(self, known: Option<&Self>, now: Clock) -> Self {
        let dated = self.base != Clock::ZERO;
        self.adopt(known, now, dated)
    }

    fn adopt(mut self, known: Option<&Self>, now: Clock, whole: bool) -> Self {
        let undated = self.base == Clock::ZERO;
        if undated {
            self.base = known.map_or(now, |known| known.base);
        }
        let newest = match (whole, undated) {
            (false, _) => Clock::ZERO,
            (true, true) => now,
            (true, false) => self.newest(),
        };
        let base = self.base;
        for (key, register) in &mut self.registers {
            match known.and_then(|known| known.registers.get(key)) {
                Some(before) if before.value == register.value => register.clock = register.clock.max(before.clock),
                Some(before) if !undated && before.clock > register.clock => {}
                Some(before) if !undated && before.clock < register.clock && register.clock != base => {}
                None if register.value.is_none() => {}
                _ => register.clock = now,
            }
        }
        for (key, before) in
            known.iter().flat_map(|known| &known.registers).filter(|(_, before)| before.clock <= newest)
        {
            let gone = Register { clock: if before.value.is_some() { now } else { before.clock }, value: None };
            self.registers.entry(key.clone()).or_insert(gone);
        }
        self
    }
}
