//! The log of an agent as a conversation.

use serde::Serialize;
use toft_core::time::Timestamp;
use toft_runner::LogTail;
use toft_session::{
    Error,
    transcript::{self, TranscriptEntry},
};

use super::{
    RepositorySource,
    issue::{readable, some},
};

/// Pieces of a conversation that are kept.
const KEPT: usize = 5_000;

/// A piece of a conversation, of one or more lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// What stands before it: the name of a tool, `→` for an answer, `error`.
    pub sign: String,
    pub text: String,
    /// It is an answer of a tool, which may be long.
    pub answer: bool,
}

/// Reads the lines of a log as a conversation. Parts of a message are put together.
#[derive(Debug, Default)]
pub struct LogReader {
    /// The message whose parts come one by one, and its time.
    parts: Option<(Timestamp, String)>,
}

impl LogReader {
    /// What a line of the log adds.
    pub fn line(&mut self, line: &str) -> Vec<LogLine> {
        let mut said = Vec::new();
        let entries = split(line).and_then(|(at, voice, text)| match voice {
            "out" => Some((at, transcript::entries(text.trim_end())?)),
            _ => None,
        });
        let Some((at, entries)) = entries else {
            said.extend(self.end());
            said.push(match split(line) {
                Some((at, voice, text)) => LogLine::new(Some(at), &format!("{voice}  "), text),
                None => LogLine::new(None, "", line),
            });
            return said;
        };
        for entry in entries {
            if let TranscriptEntry::Part(text) = entry {
                self.parts.get_or_insert_with(|| (at, String::new())).1.push_str(&text);
                continue;
            }
            said.extend(self.end());
            let at = Some(at);
            said.push(match entry {
                TranscriptEntry::Message(text) | TranscriptEntry::Part(text) => LogLine::new(at, "", &text),
                TranscriptEntry::Tool { name, on } if on.is_empty() => LogLine::new(at, "", &name),
                TranscriptEntry::Tool { name, on } => LogLine::new(at, &format!("{name}: "), &on),
                TranscriptEntry::Result(text) => LogLine { answer: true, ..LogLine::new(at, "→ ", &text) },
                TranscriptEntry::Problem(text) => LogLine::new(at, "error: ", &text),
            });
        }
        said
    }

    /// The message whose parts were collected so far, if any.
    fn unfinished(&self) -> Option<LogLine> {
        self.parts.as_ref().map(|(at, text)| LogLine::new(Some(*at), "", text.trim()))
    }

    /// The message whose parts were collected, if any.
    pub fn end(&mut self) -> Option<LogLine> {
        self.parts.take().map(|(at, text)| LogLine::new(Some(at), "", text.trim()))
    }
}

/// The log of the newest attempt at an issue, read as it grows.
#[derive(Debug, Default)]
pub struct FollowedLog {
    tail: Option<LogTail>,
    reader: LogReader,
    lines: Vec<LogLine>,
    /// The last piece may go on: the next lines replace it.
    unfinished: bool,
    /// Pieces that are not kept any more.
    dropped: u64,
}

impl FollowedLog {
    /// Reads what was written since; returns whether there is something new.
    pub fn read(&mut self, source: &RepositorySource<'_>, id: &str) -> Result<bool, Error> {
        let toft = source.toft;
        let newest = some(toft.attempts().attempt_tail(&toft.located().agent, id))?;
        let Some(newest) = newest else {
            let had = self.tail.is_some();
            *self = Self::default();
            return Ok(had);
        };
        let mut new = false;
        if self.tail.as_ref().is_none_or(|tail| !tail.is_of_same_attempt(&newest)) {
            (*self, new) = (Self { tail: Some(newest), ..Self::default() }, true);
        }
        while let Some(tail) = &mut self.tail {
            let lines = tail.new_lines(toft)?;
            if lines.is_empty() {
                break;
            }
            new = true;
            self.add(&lines);
        }
        Ok(new)
    }

    fn add(&mut self, lines: &[String]) {
        if std::mem::take(&mut self.unfinished) {
            self.lines.pop();
        }
        // More lines than pieces are kept: none of the earlier ones would be.
        let skipped = lines.len().saturating_sub(KEPT);
        self.dropped += skipped as u64;
        for line in &lines[skipped..] {
            self.lines.extend(self.reader.line(line));
        }
        if let Some(part) = self.reader.unfinished() {
            self.lines.push(part);
            self.unfinished = true;
        }
        let dropped = self.lines.len().saturating_sub(KEPT);
        self.lines.drain(..dropped);
        self.dropped += dropped as u64;
    }

    /// Its last pieces.
    #[must_use]
    pub fn lines(&self) -> &[LogLine] {
        &self.lines
    }

    /// How many pieces came before those.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl LogLine {
    fn new(at: Option<Timestamp>, sign: &str, text: &str) -> Self {
        Self { at, sign: sign.to_owned(), text: readable(&without_colours(text)), answer: false }
    }
}

/// A text without the signs that colour it in a terminal. Other control characters are left for who shows it.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        let end = after.find(|sign: char| !(sign.is_ascii_digit() || sign == ';')).unwrap_or(after.len());
        match after[end..].starts_with('m') {
            true => rest = &after[end + 1..],
            false => {
                plain.push_str("\u{1b}[");
                rest = after;
            }
        }
    }
    plain.push_str(rest);
    plain
}

/// The time, the source and the text of a line of a log.
fn split(line: &str) -> Option<(Timestamp, &str, &str)> {
    let mut words = line.splitn(3, ' ');
    let (at, voice, said) = (words.next()?, words.next()?, words.next()?);
    Some((serde_json::from_value(at.into()).ok()?, voice, said))
}
