//! Another copy of a ledger: its lines, and what is new in it.

use std::{
    collections::{BTreeMap, HashSet},
    io::Cursor,
    path::Path,
};

use toft_core::issue::Issue;
use toft_ledger::{
    file::{Found, scan},
    line::{self, Line},
    record::Record,
};
use toft_vcs::exchange::{self, Files};

use super::{Ledger, compact::set_aside, hydrate::Failed};
use crate::error::Error;

/// Lines of a ledger, by id.
pub(super) type Lines = BTreeMap<String, Vec<Line>>;

/// Lines of another copy that ours does not have letter by letter, and how many of them nobody understands.
pub(super) fn new_lines(ledger: &Ledger, files: &Files, keep: bool) -> Result<(Lines, usize), Error> {
    let ours = exchange::read_files(&ledger.dir).map_err(Error::from)?;
    let known: HashSet<&[u8]> = each_line(&ours).collect();
    let mut new = Files::new();
    for (name, bytes) in files {
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !known.contains(line));
        let mut text: Vec<u8> = Vec::new();
        for line in lines {
            text.extend(line);
            text.push(b'\n');
        }
        new.insert(name.clone(), text);
    }
    let mut unclear = 0;
    let lines = lines_of(&new, |piece| {
        unclear += 1;
        if keep { set_aside(ledger, &[piece.to_vec()]).map(drop) } else { Ok(()) }
    })?;
    Ok((lines, unclear))
}

/// Every line of a ledger's files by id; what nobody understands goes to `bad`.
pub(super) fn lines_of(files: &Files, mut bad: impl FnMut(&[u8]) -> Result<(), Error>) -> Result<Lines, Error> {
    let mut lines = Lines::new();
    for (name, bytes) in files {
        let read = scan::<Failed>(Cursor::new(bytes), 0, |found| {
            match found {
                Found::Marker => {}
                Found::Bad(piece) => {
                    let from = piece.at as usize;
                    bad(&bytes[from..(from + piece.bytes as usize).min(bytes.len())])?;
                }
                Found::Text(text) => match line::read(text) {
                    Ok(line) if serde_json::from_str::<Issue>(&line::write(&line.record)).is_ok() => {
                        lines.entry(line.record.id().to_owned()).or_default().push(line);
                    }
                    _ => bad(text.as_bytes())?,
                },
            }
            Ok(())
        });
        read.map_err(|failed| failed.at(Path::new(name)))?;
    }
    Ok(lines)
}

/// Issues of which something here is not there, with their line.
pub(super) fn news(ours: &Files, theirs: Option<&Files>) -> BTreeMap<String, String> {
    let (here, there): (HashSet<&[u8]>, HashSet<&[u8]>) =
        (each_line(ours).collect(), theirs.into_iter().flat_map(each_line).collect());
    let read = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| line::read(text).ok());
    let changed = there.iter().filter(|text| !here.contains(*text)).filter_map(|text| read(text));
    let theirs: BTreeMap<String, Record> = changed.map(|line| (line.record.id().to_owned(), line.record)).collect();
    let mut news = BTreeMap::new();
    for text in each_line(ours).filter(|text| !there.contains(text)) {
        let written = String::from_utf8_lossy(text).into_owned();
        let Some(Line { record, .. }) = read(text) else {
            news.insert(written.chars().take(20).collect(), written);
            continue;
        };
        let id = record.id().to_owned();
        // Theirs may be the newer one.
        let known = theirs.get(&id).is_some_and(|theirs| {
            let mut both = theirs.clone();
            both.merge(record);
            both == *theirs
        });
        if !known {
            news.insert(id, written);
        }
    }
    news
}

pub(super) fn each_line(files: &Files) -> impl Iterator<Item = &[u8]> {
    files.values().flat_map(|bytes| bytes.split(|byte| *byte == b'\n')).filter(|line| !line.is_empty())
}

/// What a commit says.
pub(super) fn message(news: &BTreeMap<String, String>) -> String {
    match news.len() {
        0 => "toft: merge".to_owned(),
        1 => {
            let (id, line) = news.iter().next().map(|(id, line)| (id.as_str(), line.as_str())).unwrap_or_default();
            let title = serde_json::from_str::<Issue>(line).map(|issue| issue.title).unwrap_or_default();
            let title: String = title.chars().filter(|c| !c.is_control()).take(60).collect();
            format!("toft: {id} {title}").trim_end().to_owned()
        }
        count => format!("toft: {count} issues"),
    }
}
