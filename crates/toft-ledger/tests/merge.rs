//! Any order, any grouping, any number of times: the same record, the same bytes, nothing lost.
#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use toft_ledger::{
    clock::Clock,
    line,
    record::{Key, Record, Set},
};

/// So many records are made up for each rule.
const CASES: u32 = 100_000;

fn rules() -> ProptestConfig {
    ProptestConfig { cases: CASES, max_shrink_iters: 10_000, failure_persistence: None, ..ProptestConfig::default() }
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
        "1e400",
        "123456789012345678901234567890",
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
        prop_assert!(read.sound, "{}", text);
        prop_assert_eq!(line::write(&read.record), text);
        prop_assert_eq!(read.record, a);
    }

    #[test]
    fn an_edit_by_hand_is_taken_as_written_now(a in record(), field in "[a-z]{1,4}", text in "[ -~]{0,12}") {
        let now = Clock { ms: 100, count: 0, replica: "me".parse().unwrap() };
        let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_str::<serde_json::Map<_, _>>(
            // Numbers no computer has stay out of another tool's hands.
            &line::write(&a).replace("1e400", "1")
        ).unwrap();
        object.insert(field.clone(), text.clone().into());
        object.remove("status");
        let edited = line::read(&serde_json::to_string(&object).unwrap());
        prop_assume!(edited.is_ok());
        let edited = edited.unwrap();
        prop_assert!(!edited.sound);
        let taken = edited.record.adopted(Some(&a), now);
        if !["id", "sum", "clk"].contains(&field.as_str()) {
            let text = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(taken.field(&field), Some(text.as_str()));
        }
        let mut known = a.clone();
        known.merge(taken.clone());
        prop_assert_eq!(&known.registers(), &taken.registers(), "what was edited is newer than what was known");
        prop_assert_eq!(known.field("status"), None);
        prop_assert_eq!(line::read(&line::write(&taken)).unwrap().record, taken);
    }
}

#[test]
fn another_layout_is_no_edit() {
    let mut record = Record::new("tf-1", Clock { ms: 5, count: 0, replica: "a".parse().unwrap() });
    record.write(Key::field("title"), record.newest(), Some("\"t\"".into()));
    record.write(Key::label("x"), Clock { ms: 9, ..record.newest() }, Some("\"x\"".into()));
    let text = line::write(&record);
    let spaced = text.replace("\":", "\" : ").replace(",\"", ", \"");
    assert_ne!(spaced, text);
    assert!(line::read(&spaced).unwrap().sound);
    assert!(!line::read(&text.replace("\"t\"", "\"u\"")).unwrap().sound);
}

#[test]
fn what_is_not_understood_is_told() {
    for (text, why) in [
        ("", "EOF"),
        ("[]", "expected an object"),
        ("{\"title\":\"x\"}", "`id` is missing"),
        ("{\"id\":7}", "`id` is not a text"),
        ("{\"id\":\"a b\"}", "`id` is not a word"),
        ("{\"id\":\"a\",\"labels\":\"x\"}", "`labels` is not a list"),
        ("{\"id\":\"a\",\"deps\":[{\"on\":\"b\"}]}", "`deps` has a member without a name"),
        ("{\"id\":\"a\",\"x\":1,\"x\":2}", "`x` stands there twice"),
        ("{\"id\":\"a\"} trailing", "trailing"),
    ] {
        let error = line::read(text).unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
