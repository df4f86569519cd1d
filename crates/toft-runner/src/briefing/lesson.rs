//! What a failed attempt leaves for the next: what it tried last, and the end of the output that says why it failed.

use std::{
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use toft_session::transcript::{self, TranscriptEntry};

use crate::log::open_plain;

/// The end of a log that is read.
const END: u64 = 256 << 10;
/// Tool calls that are told.
const TRIED: usize = 8;
/// Lines of output that are told, and their length together.
const LINES: usize = 40;
const LONGEST: usize = 3_000;
/// Words of a line that says why something failed.
const TELLING: [&str; 9] =
    ["error", "fail", "panicked", "assert", "exception", "expected", "traceback", "not found", "denied"];

/// What an attempt tried last, and what came of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lesson {
    /// Its last tool calls, oldest first.
    pub(super) tried: Vec<String>,
    /// The end of the last output that tells of a failure; else of the last output.
    pub(super) output: String,
}

impl Lesson {
    /// Reads the end of a log; nothing if it says nothing.
    pub(super) fn of(log: &Path) -> Option<Self> {
        // A log that cannot be read teaches nothing.
        let text = end_of(log).ok()?;
        let lesson = Self::from(&text);
        (lesson != Self::default()).then_some(lesson)
    }

    fn from(log: &str) -> Self {
        let (mut tried, mut outputs, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        for line in log.lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(_), Some(voice), Some(said)) = (words.next(), words.next(), words.next()) else { continue };
            if !["out", "err"].contains(&voice) {
                continue;
            }
            match transcript::entries(said.trim_end()) {
                None => plain.push(said.trim_end()),
                Some(entries) => entries.into_iter().for_each(|entry| match entry {
                    TranscriptEntry::Tool { .. } => tried.push(entry.line()),
                    TranscriptEntry::Result(text) | TranscriptEntry::Problem(text) => outputs.push(text),
                    TranscriptEntry::Message(_) | TranscriptEntry::Part(_) => {}
                }),
            }
        }
        // A client that streams JSON prints little else; a plain command prints its own output.
        if outputs.is_empty() && !plain.is_empty() {
            outputs.push(plain.join("\n"));
        }
        let telling = outputs.iter().rev().find(|text| tells(text)).or(outputs.last());
        tried.drain(..tried.len().saturating_sub(TRIED));
        Self { tried, output: telling.map(|text| relevant_end(text)).unwrap_or_default() }
    }
}

fn tells(text: &str) -> bool {
    let lower = text.to_lowercase();
    TELLING.iter().any(|word| lower.contains(word))
}

/// The last lines of an output, from a little before the first of them that tells of a failure.
fn relevant_end(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LINES);
    let first = lines[from..].iter().position(|line| tells(line)).map_or(0, |at| at.saturating_sub(3));
    let end = lines[from + first..].join("\n");
    match end.char_indices().rev().nth(LONGEST) {
        Some((at, _)) => format!("…{}", &end[at..]),
        None => end,
    }
}

fn end_of(path: &Path) -> io::Result<String> {
    let mut file = open_plain(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(END)))?;
    let mut bytes = Vec::new();
    file.take(END).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_that_tells_why_is_found() {
        let out = |json: &str| format!("2026-01-01T00:00:00Z out {json}\n");
        let call = |command: &str| {
            out(&format!(r#"{{"type":"item.started","item":{{"type":"command_execution","command":"{command}"}}}}"#))
        };
        let result = |text: &str| {
            out(&format!(
                r#"{{"type":"item.completed","item":{{"type":"command_execution","aggregated_output":"{text}"}}}}"#
            ))
        };
        let noise: String = (0..60).map(|n| format!("ok {n}\\n")).collect();
        let log = [
            call("cargo test"),
            result(&format!("{noise}test adds ... FAILED\\nleft: 3\\nright: 4\\n")),
            call("git status"),
            result("nothing to commit"),
        ];
        let lesson = Lesson::from(&log.concat());
        assert_eq!(lesson.tried, ["shell: cargo test", "shell: git status"]);
        assert_eq!(lesson.output, "ok 57\nok 58\nok 59\ntest adds ... FAILED\nleft: 3\nright: 4");
        let plain = Lesson::from("t out building\nt err error: no such file\nt run the command exited with 1\n");
        assert_eq!(plain.output, "building\nerror: no such file");
        assert_eq!(Lesson::from("t run it began\n"), Lesson::default());
    }
}
