//! The log of an attempt, read as a conversation.

use jiff::tz::TimeZone;
use serde_json::Value;
use toft::transcript::{self, TranscriptEntry};

use super::{
    View, data,
    page::{Ink, Page, clean},
};

/// Lines of a tool's answer that are shown.
const MAX_RESULT_LINES: usize = 8;

/// The log of an attempt.
pub(crate) struct AttemptLog {
    pub(crate) log: toft::runner::AttemptLog,
    /// Line by line, as it was written.
    pub(crate) raw: bool,
}

impl View for AttemptLog {
    fn kind(&self) -> &'static str {
        "attempt_log"
    }

    fn json(&self) -> Value {
        data(&self.log)
    }

    fn ids(&self) -> Vec<String> {
        self.log.files.iter().map(|path| path.display().to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        match self.raw {
            true => self.log.lines.iter().for_each(|line| page.line(clean(line))),
            false => {
                let mut printer = ConversationPrinter::default();
                self.log.lines.iter().for_each(|line| printer.line(page, line));
                printer.end(page);
            }
        }
        if self.log.lines.is_empty() {
            let (attempt, task) = (self.log.attempt, &self.log.task);
            page.line(format!("Attempt {attempt} of {task} has no log: it was not started by a runner."));
        }
    }
}

/// Prints the lines of a log as a conversation. Parts of a message are put together.
#[derive(Default)]
pub(crate) struct ConversationPrinter {
    /// The message whose parts come one by one, and its time.
    parts: Option<(String, String)>,
}

impl ConversationPrinter {
    pub(crate) fn line(&mut self, page: &mut Page, line: &str) {
        let Some((at, voice, said)) = split(page, line) else {
            self.end(page);
            page.line(clean(line));
            return;
        };
        let entries = if voice == "out" { transcript::entries(said.trim_end()) } else { None };
        let Some(entries) = entries else {
            self.end(page);
            page.line(format!("{at}  {voice}  {}", clean(said)));
            return;
        };
        for entry in entries {
            if let TranscriptEntry::Part(text) = entry {
                self.parts.get_or_insert_with(|| (at.clone(), String::new())).1.push_str(&text);
                continue;
            }
            self.end(page);
            match entry {
                TranscriptEntry::Message(text) | TranscriptEntry::Part(text) => {
                    lines(page, &at, "", &text, usize::MAX);
                }
                TranscriptEntry::Tool { name, on } if on.is_empty() => lines(page, &at, "", &name, usize::MAX),
                TranscriptEntry::Tool { name, on } => {
                    lines(page, &at, &format!("{}: ", clean(&name)), &on, usize::MAX);
                }
                TranscriptEntry::Result(text) => lines(page, &at, "→ ", &text, MAX_RESULT_LINES),
                TranscriptEntry::Problem(text) => lines(page, &at, "error: ", &text, usize::MAX),
            }
        }
    }

    /// Prints the message whose parts were collected, if any.
    pub(crate) fn end(&mut self, page: &mut Page) {
        if let Some((at, text)) = self.parts.take() {
            lines(page, &at, "", text.trim(), usize::MAX);
        }
    }
}

/// The local time, the source and the text of a line of a log.
fn split<'l>(page: &Page, line: &'l str) -> Option<(String, &'l str, &'l str)> {
    let mut words = line.splitn(3, ' ');
    let (at, voice, said) = (words.next()?, words.next()?, words.next()?);
    let at = at.parse::<jiff::Timestamp>().ok()?.to_zoned(TimeZone::system());
    Some((page.ink(Ink::Faint, &at.strftime("%H:%M:%S").to_string()), voice, said))
}

/// A text of several lines, the first with the time.
fn lines(page: &mut Page, at: &str, sign: &str, text: &str, most: usize) {
    let all: Vec<&str> = text.lines().collect();
    page.line(format!("{at}  {sign}{}", clean(all.first().unwrap_or(&""))));
    for line in all.iter().skip(1).take(most.saturating_sub(1)) {
        page.line(format!("          {}", clean(line)));
    }
    if all.len() > most {
        page.line(format!("          … {} more lines; --raw shows all", all.len() - most));
    }
}
