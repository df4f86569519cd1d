//! Simulates a month of use: random edits on both sides, imports and exports in random order, with three kinds of
//! beads.

use serde_json::Value;

use super::*;

/// How a version of beads imports issues.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A database that takes an issue only if it is newer by a second, adds members and removes none, gives comments
    /// new ids, and keeps metadata.
    Database,
    /// An old version: metadata is dropped, and importing an issue changes its time.
    OldDatabase,
    /// Only a file.
    File,
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// An edit: its facet and the new value; the edits of that facet that its author had seen.
struct Made {
    facet: String,
    value: Value,
    seen: BTreeSet<usize>,
}

type Seen = BTreeMap<String, BTreeSet<usize>>;

struct Month {
    kind: Kind,
    dice: Dice,
    ms: u64,
    ledger: Option<Record>,
    exports: Exports,
    there: Row,
    made: Vec<Made>,
    /// The edits that each side has seen, by facet.
    toft: Seen,
    beads: Seen,
    /// A file that toft will import, and one that beads will import.
    to_toft: Option<(Row, Seen)>,
    to_beads: Option<(Row, Seen)>,
    words: u64,
}

const LABELS: [&str; 3] = ["a", "b", "c"];

impl Month {
    fn new(kind: Kind, seed: u64) -> Self {
        let there = json!({ "id": "bd-1", "title": "first", "status": "open", "priority": 1, "issue_type": "task",
            "labels": ["a"], "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z", "estimated_minutes": 5 });
        let Value::Object(there) = there else { unreachable!() };
        Self {
            kind,
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            ms: 1_767_300_000_000,
            ledger: None,
            exports: Exports::default(),
            there,
            made: Vec::new(),
            toft: Seen::new(),
            beads: Seen::new(),
            to_toft: None,
            to_beads: None,
            words: 0,
        }
    }

    fn at(&self) -> Value {
        beads::at_seconds((self.ms / 1_000) as i64)
    }

    fn make(&mut self, facet: &str, value: Value, in_toft: bool) {
        let seen = if in_toft { &mut self.toft } else { &mut self.beads };
        let seen = seen.entry(facet.to_owned()).or_default();
        self.made.push(Made { facet: facet.to_owned(), value, seen: seen.clone() });
        seen.insert(self.made.len() - 1);
    }

    /// Old databases leave no trace of an import: with them, no value is set back to an earlier one.
    fn edit(&mut self, in_toft: bool) {
        self.words += 1;
        let word = format!("word {}", self.words);
        let choice = self.dice.below(if self.kind == Kind::OldDatabase { 3 } else { 7 });
        let field = ["title", "body", "notes"][self.dice.below(3) as usize];
        let there = [("title", "title"), ("body", "description"), ("notes", "notes")];
        let (facet, value) = match choice {
            0..=2 => (field.to_owned(), json!(word)),
            3 if field != "title" => (field.to_owned(), Value::Null),
            3 | 4 => ("priority".to_owned(), json!(self.dice.below(5))),
            5 => {
                let label = LABELS[self.dice.below(3) as usize];
                (format!("label {label}"), json!(self.dice.below(2) == 0))
            }
            _ => ("status".to_owned(), json!(if self.dice.below(2) == 0 { "open" } else { "closed" })),
        };
        if in_toft {
            let Some(mut record) = self.ledger.take() else { return };
            let clock = Clock::after(record.newest(), self.ms, "me".parse().unwrap());
            let mut put = |key: Key, value: Option<Value>| {
                record.set(key, clock, value.map(|value| value.to_string().into()));
            };
            match (facet.split_once(' '), value.as_bool()) {
                (Some((_, label)), there) => put(Key::label(label), (there == Some(true)).then(|| json!(label))),
                (None, _) if facet == "status" => {
                    let closed = json!({ "at": Timestamp(self.ms as i64), "reason": "toft" });
                    put(Key::field("closed"), (value == "closed").then_some(closed));
                    put(Key::field("status"), Some(value.clone()));
                }
                _ => put(Key::field(&facet), (!value.is_null()).then(|| value.clone())),
            }
            self.ledger = Some(record);
        } else {
            // Beads counts seconds and cannot tell two changes in one of them apart.
            let last = self.there.get("updated_at").and_then(|at| seconds(at).as_i64()).unwrap();
            self.ms = self.ms.max((last as u64 + 1) * 1_000);
            let at = self.at();
            let row = &mut self.there;
            match (facet.split_once(' '), value.as_bool()) {
                (Some((_, label)), on) => {
                    let mut labels: BTreeSet<String> = words_of(row);
                    if on == Some(true) {
                        labels.insert(label.into())
                    } else {
                        labels.remove(label)
                    };
                    row.insert("labels".into(), json!(labels));
                }
                (None, _) if facet == "status" => {
                    row.insert("status".into(), value.clone());
                    row.remove("closed_at");
                    row.remove("close_reason");
                    if value == "closed" {
                        row.insert("closed_at".into(), at.clone());
                    }
                }
                _ => {
                    let name = there.iter().find(|(ours, _)| *ours == facet).map_or("priority", |(_, name)| name);
                    row.insert(name.into(), if value.is_null() { json!("") } else { value.clone() });
                }
            }
            row.insert("updated_at".into(), at);
        }
        self.make(&facet, value, in_toft);
    }

    fn import(&mut self) {
        let Some((row, seen)) = self.to_toft.clone() else { return };
        self.exports.marks = beads::mark(&row).map_or(self.exports.marks, |_| Some(true));
        let (marks, now) = (self.exports.marks, self.ms);
        let before = self.ledger.clone();
        let merged = merge(self.ledger.take(), &row, Side { sent: self.exports.of("bd-1"), marks, now }).unwrap();
        if merged.settled {
            self.exports.sent.clear();
        }
        if merged.unmarked {
            self.exports.marks = self.exports.marks.or(Some(false));
        }
        let again =
            merge(Some(merged.record.clone()), &row, Side { sent: self.exports.of("bd-1"), marks, now }).unwrap();
        assert!(again.record == merged.record && !again.changed, "twice is once");
        let stale = before.as_ref().is_some_and(|known| Some(&merged.record) == Some(known));
        self.ledger = Some(merged.record);
        for (facet, seen) in seen {
            if !stale {
                self.toft.entry(facet).or_default().extend(seen);
            }
        }
        // A person does in beads what the notes ask for.
        for note in merged.notes.iter().filter_map(|note| note.split_once("bd label remove bd-1 ")) {
            let mut labels = words_of(&self.there);
            labels.remove(note.1);
            self.there.insert("labels".into(), json!(labels));
            self.make(&format!("label {}", note.1), json!(false), false);
            let at = self.at();
            self.there.insert("updated_at".into(), at);
        }
    }

    fn export(&mut self) {
        let Some(record) = &self.ledger else { return };
        let (row, sent) = outgoing(record, self.exports.of("bd-1")).unwrap();
        if let Some(sent) = sent {
            self.exports.add("bd-1".into(), sent);
        }
        assert_eq!(outgoing(record, self.exports.of("bd-1")).unwrap().0, row, "an export twice is one");
        self.to_beads = Some((row, self.toft.clone()));
    }

    /// Beads imports the pending file.
    fn bd_import(&mut self) {
        let Some((row, seen)) = self.to_beads.clone() else { return };
        let at = |row: &Row| row.get("updated_at").and_then(|at| seconds(at).as_i64()).unwrap();
        if self.kind != Kind::File && at(&row) <= at(&self.there) {
            return;
        }
        let mut new = row;
        if self.kind != Kind::File {
            let mut labels = words_of(&self.there);
            labels.extend(words_of(&new));
            new.insert("labels".into(), json!(labels));
        }
        if self.kind == Kind::OldDatabase {
            new.remove("metadata");
            new.insert("updated_at".into(), beads::at_seconds(at(&new).max((self.ms / 1_000) as i64)));
        }
        let before = words_of(&self.there);
        self.there = new;
        for (facet, seen) in seen {
            // A label that it kept: it has not seen the removal.
            let kept = facet.strip_prefix("label ").is_some_and(|label| {
                self.kind != Kind::File && before.contains(label) && words_of(&self.there).contains(label)
            });
            if !kept {
                self.beads.entry(facet).or_default().extend(seen);
            }
        }
    }

    fn bd_export(&mut self) {
        self.to_toft = Some((self.there.clone(), self.beads.clone()));
    }

    fn step(&mut self) {
        self.ms += self.dice.below(4_000);
        match self.dice.below(9) {
            0..=1 => self.edit(true),
            2..=3 => self.edit(false),
            // Where the file is all there is, an export takes in what it says, and is whole.
            4..=8 if self.kind == Kind::File => self.both(),
            4 => self.bd_export(),
            5 => self.import(),
            6 => self.export(),
            7 => self.bd_import(),
            _ => self.both(),
        }
    }

    fn both(&mut self) {
        self.bd_export();
        self.import();
        self.export();
        self.bd_import();
    }

    fn check(&self, seed: u64) {
        let ours = view(&beads::record(&beads::row(self.ledger.as_ref().unwrap()), self.ms).unwrap());
        let theirs = view(&beads::record(&self.there, self.ms).unwrap());
        assert_eq!(ours, theirs, "{:?} {seed}", self.kind);
        let facets: BTreeSet<&str> = self.made.iter().map(|made| made.facet.as_str()).collect();
        for facet in facets {
            let of = |made: &(usize, &Made)| made.1.facet == facet;
            let overwritten: BTreeSet<usize> =
                self.made.iter().enumerate().filter(of).flat_map(|(_, made)| made.seen.clone()).collect();
            let last: Vec<&Value> = (self.made.iter().enumerate().filter(of))
                .filter(|(n, _)| !overwritten.contains(n))
                .map(|(_, made)| &made.value)
                .collect();
            let now = match (facet, ours.get(facet)) {
                ("status", Some(status)) => status[0].clone(),
                (facet, there) if facet.starts_with("label ") => json!(there.is_some()),
                (_, there) => there.cloned().unwrap_or_default(),
            };
            assert!(last.contains(&&now), "{:?} {seed}: {facet} is {now}, last said {last:?}", self.kind);
        }
        assert_eq!(ours.get("beads.estimated_minutes"), Some(&json!(5)), "what toft does not know stays");
    }
}

fn words_of(row: &Row) -> BTreeSet<String> {
    serde_json::from_value(row.get("labels").cloned().unwrap_or_else(|| json!([]))).unwrap()
}

#[test]
fn a_month_in_both_loses_no_edit() {
    let months = if std::env::var_os("TOFT_LONG").is_some() { 4_000 } else { 60 };
    for kind in [Kind::OldDatabase, Kind::Database, Kind::File] {
        for seed in 1..=months {
            let mut month = Month::new(kind, seed);
            month.both();
            for _ in 0..60 {
                month.step();
            }
            for _ in 0..4 {
                month.ms += 5_000;
                month.both();
            }
            month.bd_export();
            month.import();
            month.check(seed);
        }
    }
}
