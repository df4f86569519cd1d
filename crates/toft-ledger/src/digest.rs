//! Digests of the fields as toft wrote them: they show which fields of a line were edited.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    clock::{Clock, Replica},
    record::{Key, Record, Register},
};

/// Characters of one digest: 24 bits.
const LETTERS: usize = 4;
/// Ends the stamp of digests in a line that has only a part of its record.
const PARTIAL: &str = "+";
/// The digest of a key without a value.
const ABSENT: &str = "----";

/// Digests of a record's values, as stored in its line: the stamp of their clocks, the digests of keys that are as old
/// as the record by name, and those of keys with clocks of their own in the order of the clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digests(String, BTreeMap<String, String>, String);

impl Digests {
    /// Computes the digests of a record's values; `partial` means that the line contains only a part of the record.
    pub(crate) fn of(record: &Record, partial: bool) -> Self {
        let (mut as_old, mut own) = (BTreeMap::new(), String::new());
        for (key, Register { clock, value }) in record.registers() {
            match value {
                Some(value) if *clock == record.base() => {
                    as_old.insert(key.to_string(), digest(record.id(), key, value));
                }
                Some(value) => own.push_str(&digest(record.id(), key, value)),
                None => own.push_str(ABSENT),
            }
        }
        Self(stamp(record.base(), record.newest(), clocks_of(record), partial), as_old, own)
    }

    /// Whether the line contains only a part of its record.
    pub(crate) fn partial(&self) -> bool {
        self.0.ends_with(PARTIAL)
    }

    /// Applies an edit: in a record that was read from an edited line, fields that differ from their digests were
    /// written by hand, right after everything else in the line, and missing fields were removed then. `own` are the
    /// line's clocks. Fails if the digests do not belong to that line.
    pub(crate) fn apply(&self, record: &mut Record, own: &BTreeMap<Key, Clock>) -> Result<(), Stale> {
        let newest = own.values().copied().max().unwrap_or_default().max(record.base());
        let clocks = own.iter().map(|(key, clock)| (key, *clock));
        if self.0 != stamp(record.base(), newest, clocks, self.partial()) || self.2.len() != own.len() * LETTERS {
            return Err(Stale);
        }
        let mut were: BTreeMap<Key, &str> = BTreeMap::new();
        for (key, digest) in &self.1 {
            were.insert(Key::parse(key), digest);
        }
        for (n, key) in own.keys().enumerate() {
            let digest = self.2.get(n * LETTERS..(n + 1) * LETTERS).ok_or(Stale)?;
            if digest != ABSENT {
                were.insert(key.clone(), digest);
            }
        }
        let named: BTreeSet<Key> = were.keys().cloned().collect();
        let edited = newest.next(Replica::HAND);
        let mut changes = Vec::new();
        for (key, register) in record.registers() {
            if let Some(value) = &register.value
                && were.remove(key) != Some(digest(record.id(), key, value).as_str())
            {
                changes.push((key.clone(), Some(value.clone())));
            }
        }
        // In a part of a record nobody can tell what was added from what another program put there.
        if self.partial() && changes.iter().any(|(key, _)| !named.contains(key)) {
            return Err(Stale);
        }
        changes.extend(were.into_keys().map(|key| (key, None)));
        for (key, value) in changes {
            record.set(key, edited, value);
        }
        Ok(())
    }
}

/// The digests do not belong to their line: another program wrote the line after they were computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale;

/// The clocks in a record's line.
fn clocks_of(record: &Record) -> impl Iterator<Item = (&Key, Clock)> {
    let named = |(_, register): &(&Key, &Register)| register.clock != record.base() || register.value.is_none();
    record.registers().iter().filter(named).map(|(key, register)| (key, register.clock))
}

/// The stamp of the clocks to which digests belong. A later stamp is a greater text, so that a program that does not
/// know digests and keeps the greater value keeps the later ones.
fn stamp<'k>(base: Clock, newest: Clock, clocks: impl Iterator<Item = (&'k Key, Clock)>, partial: bool) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(base.to_string().as_bytes());
    for (key, clock) in clocks {
        hasher.update(key.to_string().as_bytes()).update(b"\0").update(clock.to_string().as_bytes()).update(b"\0");
    }
    format!("{} {}{}", newest.sortable(), letters(&hasher.finalize()), if partial { PARTIAL } else { "" })
}

fn digest(id: &str, key: &Key, value: &str) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(id.as_bytes()).update(b"\0").update(key.to_string().as_bytes()).update(b"\0");
    hasher.update(plain(value).as_bytes());
    letters(&hasher.finalize())
}

/// One text for every layout of the same value: programs that rewrite a line change blanks, keys and escapes.
fn plain(value: &str) -> Cow<'_, str> {
    match value.as_bytes().first() {
        Some(b'"') if !value.contains('\\') => Cow::Borrowed(value),
        Some(b'"' | b'{' | b'[' | b'-' | b'0'..=b'9') => match serde_json::from_str::<Value>(value) {
            Ok(parsed) => {
                let mut text = String::with_capacity(value.len());
                push_sorted(&mut text, &parsed);
                Cow::Owned(text)
            }
            Err(_) => Cow::Borrowed(value),
        },
        _ => Cow::Borrowed(value),
    }
}

fn push_sorted(out: &mut String, value: &Value) {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<&String, &Value> = fields.iter().collect();
            out.push('{');
            for (name, value) in sorted {
                out.push_str(&Value::from(name.as_str()).to_string());
                push_sorted(out, value);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(members) => {
            out.push('[');
            for member in members {
                push_sorted(out, member);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

fn letters(hash: &blake3::Hash) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._";
    let letter = |bits: u32| ALPHABET[(bits & 63) as usize] as char;
    let [a, b, c, ..] = hash.as_bytes();
    let bits = u32::from_le_bytes([*a, *b, *c, 0]);
    (0..LETTERS).map(|n| letter(bits >> (6 * n))).collect()
}
