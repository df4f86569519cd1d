//! A record as one line of JSON: keys in a fixed order, clocks and a checksum last.

use std::{borrow::Cow, collections::BTreeMap, fmt::Write as _};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use thiserror::Error;

use crate::{
    clock::Clock,
    record::{Key, Record, Register, Set},
};

/// Fields in the order they are written; others follow by name.
const ORDER: [&str; 25] = [
    "title",
    "type",
    "status",
    "priority",
    "labels",
    "parent",
    "deps",
    "assignee",
    "owner",
    "created",
    "closed",
    "defer_until",
    "due",
    "estimate",
    "body",
    "design",
    "acceptance",
    "notes",
    "comments",
    "external",
    "visibility",
    "origin",
    "template",
    "deleted",
    "meta",
];

/// When each key was written, unless with the record itself.
const CLOCKS: &str = "clk";
/// When the record itself was written.
const BASE: &str = "@";
/// What stands before the checksum, which covers everything before that.
const SUM: &str = ",\"sum\":\"";
const SUM_DIGITS: usize = 8;

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it says.
    pub record: Record,
    /// It is as a replica wrote it; otherwise somebody changed it and not its clocks.
    pub sound: bool,
}

/// Reads a line.
pub fn read(text: &str) -> Result<Line, Unreadable> {
    let fields: Fields<'_> = serde_json::from_str(text).map_err(|error| Unreadable(error.to_string()))?;
    let mut fields = fields.0;
    let wrong = |field: &str, problem: &str| Unreadable(format!("`{field}` {problem}"));
    let id = fields.remove("id").ok_or_else(|| wrong("id", "is missing"))?;
    let id: String = serde_json::from_str(id.get()).map_err(|_| wrong("id", "is not a text"))?;
    if id.is_empty() || id.len() > 200 || id.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(wrong("id", "is not a word"));
    }
    let sum = fields.remove("sum");
    let clocks = fields.remove(CLOCKS).and_then(|clocks| Clocks::read(clocks.get()));
    let Clocks { base, mut own } = clocks.clone().unwrap_or_default();
    let mut record = Record::new(id, base);
    for (name, value) in fields {
        if value.get() == "null" {
            continue;
        }
        match Set::named(&name) {
            Some(set) => {
                let members: Vec<&RawValue> =
                    serde_json::from_str(value.get()).map_err(|_| wrong(&name, "is not a list"))?;
                for member in members {
                    let key =
                        member_key(set, member.get()).ok_or_else(|| wrong(&name, "has a member without a name"))?;
                    let key = Key::Member(set, key.into());
                    let clock = own.remove(&key).unwrap_or(base);
                    record.write(key, clock, Some(member.get().into()));
                }
            }
            None => {
                let key = Key::field(&name);
                let clock = own.remove(&key).unwrap_or(base);
                record.write(key, clock, Some(value.get().into()));
            }
        }
    }
    for (key, clock) in own {
        record.write(key, clock, None);
    }
    let sound = clocks.is_some() && sum.is_some() && (ends_with_its_sum(text) || sum_matches(&record, sum));
    Ok(Line { record, sound })
}

/// Is this a line that a replica wrote and nobody touched since? Then it is as [`write()`] would write it.
pub fn untouched(text: &str) -> bool {
    ends_with_its_sum(text)
}

/// The newest clock in an untouched line.
pub fn newest(text: &str) -> Option<Clock> {
    let at = text.rfind(",\"clk\":{")?;
    let clocks = text.get(at + ",\"clk\":".len()..text.len() - SUM.len() - SUM_DIGITS - 2)?;
    let Clocks { base, own } = Clocks::read(clocks)?;
    Some(own.into_values().max().unwrap_or_default().max(base))
}

/// Writes a record: the same text for the same record, everywhere.
pub fn write(record: &Record) -> String {
    let mut out = String::with_capacity(512);
    out.push_str("{\"id\":");
    push_text(&mut out, record.id());
    for name in ORDER {
        match Set::named(name) {
            Some(set) => push_members(&mut out, record, set),
            None => push_field(&mut out, name, record.field(name)),
        }
    }
    for (key, register) in record.registers() {
        if let Key::Field(name) = key
            && !ORDER.contains(&name.as_ref())
        {
            push_field(&mut out, name, register.value.as_deref());
        }
    }
    // Writing to a string cannot fail.
    let _ = write!(out, ",\"{CLOCKS}\":{{\"{BASE}\":\"{}\"", record.base());
    for (key, Register { clock, value }) in record.registers() {
        if *clock != record.base() || value.is_none() {
            out.push(',');
            push_text(&mut out, &key.to_string());
            let _ = write!(out, ":\"{clock}\"");
        }
    }
    out.push('}');
    let sum = sum(out.as_bytes());
    let _ = write!(out, "{SUM}{sum}\"}}");
    out
}

fn push_field(out: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value {
        out.push(',');
        push_text(out, name);
        out.push(':');
        out.push_str(value);
    }
}

fn push_members(out: &mut String, record: &Record, set: Set) {
    let mut members = record.members(set).peekable();
    if members.peek().is_none() {
        return;
    }
    out.push(',');
    push_text(out, set.as_str());
    out.push_str(":[");
    for (n, (_, member)) in members.enumerate() {
        if n > 0 {
            out.push(',');
        }
        out.push_str(member);
    }
    out.push(']');
}

fn push_text(out: &mut String, text: &str) {
    // A string always is JSON.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

fn sum(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..SUM_DIGITS].to_owned()
}

fn ends_with_its_sum(text: &str) -> bool {
    let Some(at) = text.len().checked_sub(SUM.len() + SUM_DIGITS + 2) else { return false };
    let (Some(body), Some(tail)) = (text.get(..at), text.get(at..)) else { return false };
    tail.strip_prefix(SUM)
        .and_then(|tail| tail.strip_suffix("\"}"))
        .is_some_and(|digits| digits == sum(body.as_bytes()))
}

/// Another tool may have laid the line out anew and changed nothing.
fn sum_matches(record: &Record, found: Option<&RawValue>) -> bool {
    let again = write(record);
    let expected = again.get(again.len() - SUM_DIGITS - 2..again.len() - 2);
    found.is_some_and(|found| Some(found.get().trim_matches('"')) == expected)
}

/// What makes a member that member.
fn member_key(set: Set, member: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Dep<'a> {
        #[serde(borrow)]
        on: Cow<'a, str>,
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct Elsewhere<'a> {
        #[serde(borrow)]
        system: Cow<'a, str>,
        #[serde(borrow, rename = "ref")]
        name: Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct Said {
        id: String,
    }
    match set {
        Set::Labels => serde_json::from_str(member).ok(),
        Set::Deps => serde_json::from_str(member).ok().map(|Dep { on, kind }| format!("{kind}:{on}")),
        Set::External => serde_json::from_str(member).ok().map(|Elsewhere { system, name }| format!("{system}:{name}")),
        Set::Comments => serde_json::from_str(member).ok().map(|Said { id }| id),
    }
}

#[derive(Clone, Default)]
struct Clocks {
    base: Clock,
    own: BTreeMap<Key, Clock>,
}

impl Clocks {
    fn read(text: &str) -> Option<Self> {
        let mut texts: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let base = texts.remove(BASE)?.parse().ok()?;
        let own = texts.into_iter().map(|(key, clock)| Some((Key::parse(&key), clock.parse().ok()?)));
        Some(Self { base, own: own.collect::<Option<_>>()? })
    }
}

/// An object's fields, each as it was written; one that says something twice is not understood.
struct Fields<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;
        impl<'de> Visitor<'de> for Walk {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    if let Some(_before) = fields.insert(name.clone(), value) {
                        return Err(A::Error::custom(format!("`{name}` stands there twice")));
                    }
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Walk)
    }
}

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
