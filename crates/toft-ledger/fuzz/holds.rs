//! What holds of any bytes that are read as a ledger.

use std::{
    collections::BTreeMap,
    io::{self, Cursor},
};

use toft_ledger::{
    file::{Found, scan},
    line,
    record::Record,
};

/// The reader never panics; what it understands it writes in one form, which it reads back as the same; and what it read
/// of one issue becomes one record in whichever order.
pub fn of_any_bytes(bytes: &[u8]) {
    let mut read: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    let whole = scan(Cursor::new(bytes), 0, |found| {
        if let Found::Text(text) = found
            && let Ok(line) = line::read(text)
        {
            in_one_form(&line.record);
            read.entry(line.record.id().to_owned()).or_default().push(line.record);
        }
        Ok::<_, io::Error>(())
    });
    assert!(whole.unwrap() <= bytes.len() as u64);
    for records in read.values() {
        assert_eq!(merged(records.iter()), merged(records.iter().rev()));
    }
}

fn in_one_form(record: &Record) {
    let text = line::write(record);
    assert!(!text.contains('\n'));
    let again = line::read(&text).unwrap();
    assert!(again.sound, "{text}");
    assert_eq!(line::write(&again.record), text);
}

fn merged<'a>(records: impl Iterator<Item = &'a Record>) -> Option<String> {
    let all = records.cloned().reduce(|mut all, record| {
        all.merge(record);
        all
    });
    all.map(|record| line::write(&record))
}
