//! Any order, any grouping, any number of times: the same record, the same bytes, nothing lost.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use toft_ledger::{
    clock::Clock,
    combine::Lines,
    line::{self, LineOrigin},
    record::{Key, Record, Register, Set},
};

/// So many records are made up for each rule: with `TOFT_LONG`, and without.
const CASES: (u32, u32) = (100_000, 10_000);

fn rules() -> ProptestConfig {
    let cases = if std::env::var_os("TOFT_LONG").is_some() { CASES.0 } else { CASES.1 };
    ProptestConfig { cases, max_shrink_iters: 10_000, failure_persistence: None, ..ProptestConfig::default() }
}

fn clock() -> impl Strategy<Value = Clock> {
    // Few moments, so that ties happen.
    (1u64..6, 0u32..2, prop::sample::select(vec!["a", "b"])).prop_map(|(ms, count, replica)| Clock {
        ms,
        count,
        replica: replica.parse().unwrap(),
    })
}

fn value() -> impl Strategy<Value = Option<Box<str>>> {
    let texts = [
        "\"open\"",
        "\"closed\"",
        "0",
        "2.50",
        "1e3",
        "12345678901",
        "\"\\u00e9 \\\\ \\\" \"",
        "true",
        "{\"b\": 1, \"a\":[ ]}",
        "[1,2]",
        "\"x\\u0000y\"",
    ];
    prop::option::weighted(0.8, prop::sample::select(texts.to_vec()).prop_map(Box::from))
}

fn write() -> impl Strategy<Value = (Key, Option<Box<str>>)> {
    let field = prop::sample::select(vec!["title", "status", "body", "x-new", "a/b", "é", "deleted"]);
    let word = prop::sample::select(vec!["a", "b/c", "no \"x\""]);
    prop_oneof![
        (field, value()).prop_map(|(name, value)| (Key::field(name), value)),
        (word.clone(), any::<bool>()).prop_map(|(word, there)| {
            (Key::label(word), there.then(|| serde_json::to_string(word).unwrap().into()))
        }),
        (word.clone(), any::<bool>()).prop_map(|(on, there)| {
            let member = serde_json::json!({ "on": on, "kind": "blocks", "since": 1 }).to_string();
            (Key::dep(on, "blocks"), there.then(|| member.into()))
        }),
        word.prop_map(|id| {
            let member = serde_json::json!({ "id": id, "text": "said" }).to_string();
            (Key::Member(Set::Comments, id.into()), Some(member.into()))
        }),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    (clock(), prop::collection::vec((write(), clock()), 0..8)).prop_map(|(base, writes)| {
        let mut record = Record::new("tf-1", base);
        for ((key, value), clock) in writes {
            record.write(key, clock, value);
        }
        record
    })
}

fn merged<const N: usize>(records: [&Record; N]) -> Record {
    let mut records = records.into_iter().cloned();
    let mut first = records.next().unwrap();
    records.for_each(|record| first.merge(record));
    first
}

proptest! {
    #![proptest_config(rules())]

    #[test]
    fn merging_is_commutative_associative_and_idempotent(a in record(), b in record(), c in record()) {
        let all = merged([&a, &b, &c]);
        for order in [[&a, &c, &b], [&b, &a, &c], [&c, &b, &a], [&b, &c, &a], [&c, &a, &b]] {
            prop_assert_eq!(line::write(&merged(order)), line::write(&all));
        }
        prop_assert_eq!(&merged([&a, &merged([&b, &c])]), &all);
        prop_assert_eq!(&merged([&all, &all, &a, &b]), &all);
    }

    #[test]
    fn a_purged_issue_says_nothing_else_in_any_order(a in record(), b in record(), c in record(), at in clock()) {
        let mut purged = a.clone();
        purged.set(Key::field("purged"), at, Some("true".into()));
        let all = merged([&purged, &b, &c]);
        for order in [[&purged, &c, &b], [&b, &purged, &c], [&c, &b, &purged]] {
            prop_assert_eq!(line::write(&merged(order)), line::write(&all));
        }
        prop_assert_eq!(&merged([&purged, &merged([&b, &c])]), &all);
        prop_assert!(all.registers().keys().all(|key| [Key::field("purged"), Key::field("deleted")].contains(key)));
    }

    #[test]
    fn merging_loses_nothing_that_is_newest(a in record(), b in record()) {
        let all = merged([&a, &b]);
        let mut newest: BTreeMap<&Key, _> = BTreeMap::new();
        for (key, register) in a.registers().iter().chain(b.registers()) {
            let best = newest.entry(key).or_insert(register);
            *best = (*best).max(register);
        }
        prop_assert_eq!(all.registers().iter().collect::<BTreeMap<_, _>>(), newest);
    }

    #[test]
    fn a_line_says_the_record_and_the_same_record_is_the_same_line(a in record()) {
        let text = line::write(&a);
        prop_assert!(!text.contains('\n'));
        let read = line::read(&text).unwrap();
        prop_assert_eq!(read.made, LineOrigin::Written, "{}", text);
        prop_assert_eq!(line::write(&read.record), text);
        prop_assert_eq!(read.record, a);
    }

    #[test]
    fn an_edit_by_hand_changes_what_was_edited_and_nothing_else(a in record(), edits in edits()) {
        let (text, keys) = edited(&a, &edits);
        let read = line::read(&text).unwrap();
        prop_assert!(matches!(read.made, LineOrigin::Edited | LineOrigin::Written), "{}", text);
        prop_assert!(keys.is_empty() || read.made == LineOrigin::Edited, "{}", text);
        for key in a.registers().keys().chain(read.record.registers().keys()).collect::<BTreeSet<_>>() {
            let (before, after) = (a.registers().get(key), read.record.registers().get(key));
            match keys.get(key) {
                None => {
                    let plain = |register: &Register| {
                        let value = register.value.as_deref().map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
                        (register.clock, value)
                    };
                    prop_assert_eq!(before.map(plain), after.map(plain), "{} in {}", key, &text);
                }
                Some(value) => {
                    let after = after.unwrap();
                    prop_assert_eq!(after.value.as_deref(), value.as_deref());
                    prop_assert!(after.clock > a.newest());
                }
            }
        }
        // Every reader reads the same, and the line that is written of it counts as written, not as edited.
        let again = line::write(&read.record);
        prop_assert_eq!(line::read(&again).unwrap().made, LineOrigin::Written);
        prop_assert_eq!(line::read(&again).unwrap().record, read.record);
    }

    #[test]
    fn edited_lines_merge_in_any_order_and_grouping(
        lines in prop::collection::vec((record(), edits(), any::<bool>(), any::<bool>()), 1..5),
        split in 0usize..5,
        rotate in 0usize..5,
    ) {
        let texts: Vec<String> = lines.iter().map(|(record, edits, by_hand, older)| {
            let text = if *by_hand { edited(record, edits).0 } else { line::write(record) };
            if *older && !*by_hand { as_an_older_toft_writes(&text) } else { text }
        }).collect();
        let all = combined(&texts);
        let mut other = texts.clone();
        other.rotate_left(rotate % texts.len());
        prop_assert_eq!(&combined(&other), &all);
        other.reverse();
        prop_assert_eq!(&combined(&other), &all);
        // Some of them were put in order meanwhile, here and elsewhere, and what came of it is merged with all of them again.
        let split = split % (texts.len() + 1);
        let mut parts: Vec<String> = [&texts[..split], &texts[split..]].into_iter().filter(|part| !part.is_empty()).map(combined).collect();
        prop_assert_eq!(&combined(&parts), &all);
        parts.extend(texts);
        parts.push(all.clone());
        prop_assert_eq!(&combined(&parts), &all);
    }

    #[test]
    fn a_line_without_clocks_is_taken_once_and_erases_nothing(a in record(), b in record(), edits in edits()) {
        let mut object = object(&a);
        ["clk", "sum", "was"].into_iter().for_each(|name| drop(object.remove(name)));
        apply(&mut object, &edits);
        let undated = serde_json::to_string(&object).unwrap();
        let all = combined(&[line::write(&b), undated.clone()]);
        prop_assert_eq!(&combined(&[undated.clone(), line::write(&b)]), &all);
        let record = line::read(&all).unwrap().record;
        for (key, register) in b.registers() {
            prop_assert!(record.registers()[key].value.is_some() || register.value.is_none(), "{} is gone", key);
        }
        // A later write stands, though a merge brings the line back.
        let mut later = record.clone();
        later.set(Key::field("title"), record.newest().next("me".parse().unwrap()), Some("\"later\"".into()));
        let both = combined(&[undated.clone(), line::write(&later), undated]);
        let both = line::read(&both).unwrap().record;
        prop_assert_eq!(both.field("title"), Some("\"later\""));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..rules() })]

    #[test]
    fn a_long_record_is_several_lines_that_are_one_record(a in record(), count in 1usize..40) {
        let mut long = a.clone();
        for n in 0..count {
            let said = serde_json::json!({ "id": format!("c{n}"), "text": "x".repeat(100_000) }).to_string();
            long.set(Key::comment(&format!("c{n}")), a.newest().next("me".parse().unwrap()), Some(said.into()));
        }
        let lines = line::write_all(&long);
        prop_assert!(lines.iter().all(|line| line.len() < 2 << 20));
        prop_assert_eq!(lines.len() > 1, count > 10);
        let mut all = Lines::default();
        lines.iter().rev().for_each(|text| all.add(line::read(text).unwrap()));
        prop_assert_eq!(all.resolve(None).unwrap(), long);
    }
}

/// Edits of a line as a person makes them: a field or a member gets another value, comes, or goes.
fn edits() -> impl Strategy<Value = Vec<(Key, Option<Box<str>>)>> {
    let scalar = prop::sample::select(vec!["title", "status", "body", "x-new"]);
    let text = prop::sample::select(vec!["\"by hand\"", "\"open\"", "7"]);
    let word = prop::sample::select(vec!["a", "b/c", "by-hand"]);
    let edit = prop_oneof![
        (scalar, prop::option::weighted(0.7, text)).prop_map(|(name, value)| (Key::field(name), value.map(Box::from))),
        (word, any::<bool>()).prop_map(|(word, there)| {
            (Key::label(word), there.then(|| serde_json::to_string(word).unwrap().into()))
        }),
    ];
    prop::collection::vec(edit, 0..4)
}

type Object = serde_json::Map<String, serde_json::Value>;

fn object(record: &Record) -> Object {
    serde_json::from_str(&line::write(record)).unwrap()
}

fn apply(object: &mut Object, edits: &[(Key, Option<Box<str>>)]) {
    for (key, value) in edits {
        let value = value.as_deref().map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
        match key {
            Key::Field(name) => match value {
                Some(value) => drop(object.insert(name.to_string(), value)),
                None => drop(object.remove(name.as_ref())),
            },
            Key::Member(_, word) => {
                let labels = object.entry("labels").or_insert_with(|| serde_json::json!([])).as_array_mut().unwrap();
                labels.retain(|label| label.as_str() != Some(word));
                labels.extend(value);
            }
        }
    }
}

/// A line as an editor leaves it, and what really changed in it.
fn edited(record: &Record, edits: &[(Key, Option<Box<str>>)]) -> (String, BTreeMap<Key, Option<Box<str>>>) {
    let mut object = object(record);
    apply(&mut object, edits);
    let text = serde_json::to_string(&object).unwrap();
    let wanted: BTreeMap<Key, Option<Box<str>>> = edits.iter().cloned().collect();
    let changed = wanted.into_iter().filter(|(key, value)| record.get(key) != value.as_deref()).collect();
    (text, changed)
}

/// A line of a toft that knew of no digests, with a sound checksum.
fn as_an_older_toft_writes(text: &str) -> String {
    let mut body = text[..text.rfind(",\"sum\":").unwrap()].to_owned();
    if let (Some(from), Some(to)) = (body.find(",\"was\":["), body.find(",\"clk\":{")) {
        body.replace_range(from..to, "");
    }
    let sum = blake3::hash(body.as_bytes()).to_hex();
    format!("{body},\"sum\":\"{}\"}}", &sum[..8])
}

/// All lines of an issue as one.
fn combined(texts: &[String]) -> String {
    let mut lines = Lines::default();
    texts.iter().for_each(|text| lines.add(line::read(text).unwrap()));
    line::write(&lines.resolve(None).unwrap())
}

#[test]
fn another_layout_is_no_edit() {
    let mut record = Record::new("tf-1", Clock { ms: 5, count: 0, replica: "a".parse().unwrap() });
    record.write(Key::field("title"), record.newest(), Some("\"t\"".into()));
    record.write(Key::label("x"), Clock { ms: 9, ..record.newest() }, Some("\"x\"".into()));
    let text = line::write(&record);
    let spaced = text.replace("\":", "\" : ").replace(",\"", ", \"");
    assert_ne!(spaced, text);
    assert_eq!(line::read(&spaced).unwrap().made, LineOrigin::Written);
    assert_eq!(line::read(&text.replace("\"t\"", "\"u\"")).unwrap().made, LineOrigin::Edited);
}

#[test]
fn what_is_not_understood_is_told() {
    for (text, why) in [
        ("", "EOF"),
        ("[]", "expected an object"),
        ("{\"title\":\"x\"}", "`id` is missing"),
        ("{\"id\":7}", "`id` is not a text"),
        ("{\"id\":\"a b\"}", "`id` has other characters"),
        ("{\"id\":\"-a\"}", "`id` has other characters"),
        ("{\"id\":\"tf-1;touch${IFS}x\"}", "`id` has other characters"),
        ("{\"id\":\"a\",\"x\":1,\"x\":2}", "`x` stands there twice"),
        ("{\"id\":\"a\"} trailing", "trailing"),
    ] {
        let error = line::read(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn one_wrong_field_leaves_the_others_readable() {
    for (text, field, why) in [
        ("{\"id\":\"a\",\"title\":\"t\",\"labels\":\"x\"}", "labels", "is not a list"),
        ("{\"id\":\"a\",\"title\":\"t\",\"deps\":[{\"on\":\"b\"}]}", "deps", "has a member without a name"),
    ] {
        let read = line::read(text).unwrap();
        assert_eq!(read.broken, [(field.to_owned(), why)]);
        assert_eq!(read.record.field("title"), Some("\"t\""));
    }
}

#[test]
fn a_clock_that_no_machine_can_have_is_no_clock() {
    let text = "{\"id\":\"a\",\"title\":\"t\",\"clk\":{\"@\":\"3w5e11264sgsf.1z141z3-zzzzzzzz\"},\"sum\":\"00000000\"}";
    assert_eq!(line::read(text).unwrap().made, LineOrigin::Undated);
}

#[test]
fn a_write_stands_over_a_clock_that_is_ahead() {
    let ahead = Clock { ms: Clock::LAST_MS, count: 0, replica: "zz".parse().unwrap() };
    let mut record = Record::new("tf-1", ahead);
    record.write(Key::field("title"), ahead, Some("\"poisoned\"".into()));
    record.set(Key::field("title"), Clock { ms: 5, count: 0, replica: "me".parse().unwrap() }, Some("\"mine\"".into()));
    let mut other = Record::new("tf-1", ahead);
    other.write(Key::field("title"), ahead, Some("\"poisoned\"".into()));
    other.merge(record);
    assert_eq!(other.field("title"), Some("\"mine\""));
}
