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
    digest::{Digests, Stale},
    record::{Key, Record, Register, Set},
};

/// Fields in the order in which they are written; others follow by name.
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

/// The clocks of keys that are not as old as the record.
const CLOCKS: &str = "clk";
/// The digests of the fields when the line was written.
const WAS: &str = "was";
/// The clock of the record itself.
const BASE: &str = "@";
/// The text before the checksum, which covers everything up to here.
const SUM: &str = ",\"sum\":\"";
const SUM_DIGITS: usize = 8;

/// Why a line cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// Maximum length of a value that is read; a longer one stays in its line.
pub const LONGEST_VALUE: usize = 8 << 20;
/// A record with more text is written as several lines of about this length.
const PART: usize = 1 << 20;
/// Maximum length of an id.
const LONGEST_ID: usize = 100;

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineOrigin {
    /// A replica wrote it, and it was not changed since.
    Written,
    /// It was edited after that; edited fields have a clock of their own in the record.
    Edited,
    /// It was edited, but does not show which fields.
    Unmarked,
    /// It has no readable clocks: another program or a person wrote it.
    Undated,
}

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its content.
    pub record: Record,
    /// Its origin.
    pub made: LineOrigin,
    /// Fields that cannot be read, each with the problem. The line must be kept: the record does not contain them.
    pub broken: Vec<(String, &'static str)>,
    /// A digest of a line without clocks.
    pub(crate) digest: String,
    /// It contains only a part of its record.
    pub(crate) partial: bool,
}

impl Line {
    /// A record of another program, with its own clocks.
    pub fn dated(record: Record) -> Self {
        Self { record, made: LineOrigin::Written, broken: Vec::new(), digest: String::new(), partial: false }
    }

    /// Whether every field has a clock.
    pub fn is_dated(&self) -> bool {
        matches!(self.made, LineOrigin::Written | LineOrigin::Edited)
    }
}

/// Whether this is a valid id: letters, digits, `.`, `_` and `-`, starting with a letter or digit.
pub fn is_id(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() <= LONGEST_ID && text.bytes().all(plain) && text.starts_with(|c: char| c.is_ascii_alphanumeric())
}

/// Whether lists and objects are in one another deeper than those who read a value would follow.
fn is_deep(text: &str) -> bool {
    const DEEPEST: usize = 32;
    let opens = |byte: &u8| matches!(byte, b'[' | b'{');
    if text.bytes().filter(opens).count() <= DEEPEST {
        return false;
    }
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => depth += 1,
            b']' | b'}' if !quoted => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return true;
        }
    }
    false
}

/// Reads a line.
pub fn read(text: &str) -> Result<Line, Unreadable> {
    if is_deep(text) {
        return Err(Unreadable("it is nested too deep".to_owned()));
    }
    let fields: RawFields<'_> = serde_json::from_str(text).map_err(|error| Unreadable(error.to_string()))?;
    let mut fields = fields.0;
    let wrong = |problem: &str| Unreadable(format!("`id` {problem}"));
    let id = fields.remove("id").ok_or_else(|| wrong("is missing"))?;
    let id: String = serde_json::from_str(id.get()).map_err(|_| wrong("is not a text"))?;
    if !is_id(&id) {
        return Err(wrong("has other characters than letters, digits, `.`, `_` and `-`, or is too long"));
    }
    let sum = fields.remove("sum");
    let clocks = fields.remove(CLOCKS).and_then(|clocks| Clocks::read(clocks.get()));
    let digests = fields.get(WAS).and_then(|was| serde_json::from_str::<Digests>(was.get()).ok());
    if digests.is_some() {
        fields.remove(WAS);
    }
    let Clocks { base, own } = clocks.clone().unwrap_or_default();
    let (mut record, mut broken) = (Record::new(id, base), Vec::new());
    for (name, value) in fields {
        let (value, set) = (value.get(), Set::named(&name));
        if value == "null" {
            continue;
        }
        let mut put = |key: Key, value: &str| {
            let clock = own.get(&key).copied().unwrap_or(base);
            record.write(key, clock, Some(on_one_line(value)));
        };
        match set {
            None if value.len() > LONGEST_VALUE => broken.push((name.into_owned(), "is longer than 8 MiB")),
            None => put(Key::field(&name), value),
            Some(set) => match serde_json::from_str::<Vec<&RawValue>>(value) {
                Err(_) => broken.push((name.into_owned(), "is not a list")),
                Ok(members) => {
                    for member in members {
                        match member_key(set, member.get()) {
                            _ if member.get().len() > LONGEST_VALUE => {
                                broken.push((name.to_string(), "has a member that is longer than 8 MiB"));
                            }
                            Some(key) => put(Key::Member(set, key.into()), member.get()),
                            None => broken.push((name.to_string(), "has a member without a name")),
                        }
                    }
                }
            },
        }
    }
    let absent = |key: &Key| !record.registers().contains_key(key);
    for (key, clock) in
        own.iter().filter(|(key, _)| absent(key)).map(|(key, clock)| (key.clone(), *clock)).collect::<Vec<_>>()
    {
        record.write(key, clock, None);
    }
    let partial = digests.as_ref().is_some_and(Digests::partial);
    let sum_holds = || ends_with_its_sum(text) || sum_matches(&written(&record, partial), sum);
    let made = match (&clocks, &digests) {
        (None, _) => LineOrigin::Undated,
        (Some(_), _) if sum.is_some() && sum_holds() => LineOrigin::Written,
        (Some(_), None) => LineOrigin::Unmarked,
        (Some(_), Some(digests)) => match digests.apply(&mut record, &own) {
            Ok(()) => LineOrigin::Edited,
            Err(Stale) => LineOrigin::Unmarked,
        },
    };
    let digest = if made == LineOrigin::Undated { sum_of(text.trim().as_bytes()) } else { String::new() };
    Ok(Line { record, made, broken, digest, partial })
}

/// JSON over several lines, on one line.
pub fn on_one_line(value: &str) -> Box<str> {
    if !value.contains(['\n', '\r']) {
        return value.into();
    }
    let (mut quoted, mut escaped) = (false, false);
    let outside = |c: &char| {
        let blank = !quoted && c.is_ascii_whitespace();
        quoted ^= *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        !blank
    };
    value.chars().filter(outside).collect::<String>().into()
}

/// The objects of a line that contains several: a file without a final newline was merged with another.
pub fn glued(text: &str) -> Option<Vec<&str>> {
    if !text.contains("}{") || untouched(text) {
        return None;
    }
    let objects: Result<Vec<&RawValue>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    objects.ok().filter(|objects| objects.len() > 1).map(|objects| objects.into_iter().map(RawValue::get).collect())
}

/// Whether a replica wrote this line and it was not changed since. Then it is identical to the output of [`write()`].
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

/// Writes a record: always the same lines for the same record. One line, unless it would be very long.
pub fn write_all(record: &Record) -> Vec<String> {
    let size = |(key, register): (&Key, &Register)| {
        register.value.as_deref().map_or(0, str::len) + key.to_string().len() + register.clock.to_string().len() + 16
    };
    if record.registers().iter().map(size).sum::<usize>() <= PART {
        return vec![write(record)];
    }
    let part = || Record::new(record.id(), record.base());
    let (mut parts, mut room) = (vec![part()], PART);
    for (key, register) in record.registers() {
        let size = size((key, register));
        if size > room && room < PART {
            parts.push(part());
            room = PART;
        }
        room = room.saturating_sub(size);
        if let Some(part) = parts.last_mut() {
            part.write(key.clone(), register.clock, register.value.clone());
        }
    }
    parts.iter().map(|part| written(part, true)).collect()
}

/// Writes the part of a record that is not in `known`, in lines to be read after those of `known`.
pub fn write_new(record: &Record, known: &Record) -> Vec<String> {
    let new = record.beyond(known);
    match write_all(&new).as_slice() {
        [_] => vec![written(&new, true)],
        parts => parts.to_vec(),
    }
}

/// Writes a record as one line.
pub fn write(record: &Record) -> String {
    written(record, false)
}

fn written(record: &Record, partial: bool) -> String {
    let mut out = String::with_capacity(768);
    out.push_str("{\"id\":");
    push_text(&mut out, record.id());
    for name in ORDER {
        match Set::named(name) {
            Some(set) => push_members(&mut out, record, set),
            None => push_field(&mut out, name, record.field(name)),
        }
    }
    let others = record.registers().iter().filter_map(|(key, register)| match key {
        Key::Field(name) if !ORDER.contains(&name.as_ref()) => Some((name.as_ref(), register.value.as_deref()?)),
        _ => None,
    });
    let was = serde_json::to_string(&Digests::of(record, partial)).unwrap_or_default();
    let (mut before, mut after) = (Vec::new(), Vec::new());
    others.for_each(|(name, value)| if name < WAS { before.push((name, value)) } else { after.push((name, value)) });
    for (name, value) in before {
        push_field(&mut out, name, Some(value));
    }
    // Nobody else's field of that name is lost to ours.
    if record.field(WAS).is_none() {
        push_field(&mut out, WAS, Some(&was));
    }
    for (name, value) in after {
        push_field(&mut out, name, Some(value));
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
    let sum = sum_of(out.as_bytes());
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

fn sum_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..SUM_DIGITS].to_owned()
}

fn ends_with_its_sum(text: &str) -> bool {
    let Some(at) = text.len().checked_sub(SUM.len() + SUM_DIGITS + 2) else { return false };
    let (Some(body), Some(tail)) = (text.get(..at), text.get(at..)) else { return false };
    tail.strip_prefix(SUM)
        .and_then(|tail| tail.strip_suffix("\"}"))
        .is_some_and(|digits| digits == sum_of(body.as_bytes()))
}

/// Whether the checksum matches after normalization: another tool may have changed only the layout of the line.
fn sum_matches(again: &str, found: Option<&RawValue>) -> bool {
    let expected = again.get(again.len() - SUM_DIGITS - 2..again.len() - 2);
    found.is_some_and(|found| Some(found.get().trim_matches('"')) == expected)
}

/// The key of a member of a set.
fn member_key(set: Set, member: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct DepLine<'a> {
        #[serde(borrow)]
        on: Cow<'a, str>,
        #[serde(borrow)]
        kind: Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct WrittenElsewhere<'a> {
        #[serde(borrow)]
        system: Cow<'a, str>,
        #[serde(borrow, rename = "ref")]
        name: Cow<'a, str>,
    }
    #[derive(Deserialize)]
    struct SaidLine {
        id: String,
    }
    match set {
        Set::Labels => serde_json::from_str(member).ok(),
        Set::Deps => serde_json::from_str(member).ok().map(|DepLine { on, kind }| format!("{kind}:{on}")),
        Set::External => {
            serde_json::from_str(member).ok().map(|WrittenElsewhere { system, name }| format!("{system}:{name}"))
        }
        Set::Comments => serde_json::from_str(member).ok().map(|SaidLine { id }| id),
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

/// The fields of an object, as they were written; an object with a duplicate key is invalid.
struct RawFields<'a>(BTreeMap<Cow<'a, str>, &'a RawValue>);

impl<'de> Deserialize<'de> for RawFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Walk;
        impl<'de> Visitor<'de> for Walk {
            type Value = RawFields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((MemberName(name), value)) = map.next_entry::<MemberName<'de>, &'de RawValue>()? {
                    if let Some(_before) = fields.insert(name.clone(), value) {
                        return Err(A::Error::custom(format!("`{name}` stands there twice")));
                    }
                }
                Ok(RawFields(fields))
            }
        }
        deserializer.deserialize_map(Walk)
    }
}

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);
