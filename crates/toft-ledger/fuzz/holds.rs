//! What holds of any bytes that are read as a ledger.

use std::{
    collections::BTreeMap,
    io::{self, Cursor},
};

use toft_ledger::{
    combine::Lines,
    file::{FoundLine, scan},
    line,
    record::Record,
};

/// The reader never panics, and refuses a file whole or not at all; what it understands it writes in one form, which it reads back as
/// the same; and dated lines of one issue become one record in whichever order.
pub fn of_any_bytes(bytes: &[u8]) {
    let mut read: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    let scanned = scan(Cursor::new(bytes), 0, |found| {
        if let FoundLine::Text { text, .. } = found
            && let Ok(line) = line::read(text)
        {
            in_one_form(&line.record);
            if line.is_dated() {
                read.entry(line.record.id().to_owned()).or_default().push(line.record);
            }
        }
        Ok::<_, io::Error>(())
    });
    match scanned {
        Ok(whole) => assert!(whole <= bytes.len() as u64),
        Err(error) => assert!(read.is_empty(), "half of it was read before {error}"),
    }
    for records in read.values() {
        assert_eq!(merged(records.iter()), merged(records.iter().rev()));
    }
}

fn in_one_form(record: &Record) {
    let text = line::write(record);
    assert!(!text.contains('\n'));
    let again = line::read(&text).unwrap();
    assert_eq!(again.made, line::LineOrigin::Written, "{text}");
    assert_eq!(line::write(&again.record), text);
}

fn merged<'a>(records: impl Iterator<Item = &'a Record>) -> Option<String> {
    let all = records.cloned().reduce(|mut all, record| {
        all.merge(record);
        all
    });
    all.map(|record| line::write(&record))
}

/// Two copies of a ledger, as a sync reads them: whichever of them is ours, both sides end with the same lines, and a second exchange
/// changes nothing.
pub fn of_two_copies(ours: &[u8], theirs: &[u8]) {
    let (ours, theirs) = (dated(ours), dated(theirs));
    let both = exchanged(&ours, &theirs);
    assert_eq!(exchanged(&theirs, &ours), both);
    assert_eq!(exchanged(&both, &theirs), both);
}

/// Dated lines of a ledger, by issue, put in order.
fn dated(bytes: &[u8]) -> BTreeMap<String, Vec<String>> {
    let mut read: BTreeMap<String, Lines> = BTreeMap::new();
    // What is refused whole is not exchanged.
    let _ = scan(Cursor::new(bytes), 0, |found| {
        if let FoundLine::Text { text, .. } = found
            && let Ok(line) = line::read(text)
            && line.is_dated()
        {
            read.entry(line.record.id().to_owned()).or_default().add(line);
        }
        Ok::<_, io::Error>(())
    });
    in_order(read)
}

fn exchanged(
    ours: &BTreeMap<String, Vec<String>>,
    theirs: &BTreeMap<String, Vec<String>>,
) -> BTreeMap<String, Vec<String>> {
    let mut both: BTreeMap<String, Lines> = BTreeMap::new();
    for text in ours.values().chain(theirs.values()).flatten() {
        let line = line::read(text).unwrap();
        both.entry(line.record.id().to_owned()).or_default().add(line);
    }
    in_order(both)
}

fn in_order(lines: BTreeMap<String, Lines>) -> BTreeMap<String, Vec<String>> {
    let write = |(id, lines): (String, Lines)| Some((id, line::write_all(&lines.resolve(None)?)));
    lines.into_iter().filter_map(write).collect()
}
