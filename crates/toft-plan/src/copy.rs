//! Another copy of a ledger: its lines, and those that are new.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    io::Cursor,
    path::Path,
};

use toft_core::issue::Issue;
use toft_ledger::{
    file::{FoundLine, is_lines, scan},
    line::{self, Line},
    record::Record,
};
use toft_session::error::{Error, io};
use toft_vcs::exchange::{self, Files};

use super::{Ledger, compact::not_understood, place::ISSUES};

/// Lines of a ledger, by id.
pub(super) type Lines = BTreeMap<String, Vec<Line>>;

/// The new lines in another copy of a ledger.
pub(super) struct New {
    /// Lines that our copy does not contain identically.
    pub(super) lines: Lines,
    /// Those of them that cannot be read, or only in part: they are added to our copy unchanged.
    pub(super) verbatim: BTreeSet<Vec<u8>>,
    /// Issues that are in the other copy's archive and not in ours.
    pub(super) archived: BTreeSet<String>,
}

impl New {
    /// Compares another copy with ours.
    pub(super) fn of(ledger: &Ledger, files: &Files) -> Result<Self, Error> {
        let ours = exchange::read_files(&ledger.dir).map_err(Error::from)?;
        let known: HashSet<&[u8]> = each_line(&ours).collect();
        let mut new = Self { lines: Lines::new(), verbatim: BTreeSet::new(), archived: BTreeSet::new() };
        for (name, bytes) in files {
            let text = match is_lines(bytes) {
                true => without(bytes, |line| known.contains(line)),
                false => bytes.clone(),
            };
            for (id, more) in lines_in(name, &text)? {
                new.lines.entry(id).or_default().extend(more);
            }
            new.verbatim.extend(not_understood(&text).map_err(io("read", Path::new(name)))?);
            if name != ISSUES {
                let archived: HashSet<&[u8]> = ours.get(name).into_iter().flat_map(|ours| split(ours)).collect();
                let text = without(bytes, |line| archived.contains(line));
                new.archived.extend(lines_in(name, &text)?.into_keys());
            }
        }
        Ok(new)
    }
}

/// The lines of a file without those that `left_out` selects.
fn without(bytes: &[u8], left_out: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    split(bytes).filter(|line| !left_out(line)).flat_map(|line| [line, b"\n"]).flatten().copied().collect()
}

fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
}

/// Every readable line of a ledger's files, by id.
pub(super) fn lines_of(files: &Files) -> Result<Lines, Error> {
    let mut lines = Lines::new();
    for (name, bytes) in files {
        for (id, more) in lines_in(name, bytes)? {
            lines.entry(id).or_default().extend(more);
        }
    }
    Ok(lines)
}

fn lines_in(name: &str, bytes: &[u8]) -> Result<Lines, Error> {
    let mut lines = Lines::new();
    let read = scan::<std::io::Error>(Cursor::new(bytes), 0, |found| {
        if let FoundLine::Text { text, .. } = found
            && let Ok(line) = line::read(text)
        {
            lines.entry(line.record.id().to_owned()).or_default().push(line);
        }
        Ok(())
    });
    read.map_err(io("read", Path::new(name)))?;
    Ok(lines)
}

/// Issues with changes that the other copy does not have, with their line.
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

/// Every line of our copy that the other copy does not contain identically, with its id: only these lines are sent.
pub(super) fn new_text(ours: &Files, theirs: Option<&Files>) -> Vec<(String, String)> {
    let there: HashSet<&[u8]> = theirs.into_iter().flat_map(each_line).collect();
    let new = each_line(ours).filter(|text| !there.contains(text));
    let named = |text: &[u8]| {
        let text = String::from_utf8_lossy(text).into_owned();
        let id = line::read(&text).map(|line| line.record.id().to_owned());
        (id.unwrap_or_else(|_| "a line that is no issue".to_owned()), text)
    };
    new.map(named).collect()
}

pub(super) fn each_line(files: &Files) -> impl Iterator<Item = &[u8]> {
    files.values().flat_map(|bytes| split(bytes))
}

/// The message of a commit.
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
