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
        for line in &self.log.lines {
            match self.raw {
                true => page.line(clean(line)),
                false => told(page, line),
            }
        }
        if self.log.lines.is_empty() {
            let (attempt, task) = (self.log.attempt, &self.log.task);
            page.line(format!("Attempt {attempt} of {task} has no log: it was not started by a runner."));
        }
    }
}

/// A line of a log: its time, its source, and what was said.
fn told(page: &mut Page, line: &str) {
    let mut parts = line.splitn(3, ' ');
    let (Some(at), Some(voice), Some(said)) = (parts.next(), parts.next(), parts.next()) else {
        return page.line(clean(line));
    };
    let Ok(at) = at.parse::<jiff::Timestamp>() else { return page.line(clean(line)) };
    let at = at.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string();
    let at = page.ink(Ink::Faint, &at);
    let Some(entries) = transcript::entries(said.trim_end()).filter(|_| voice == "out") else {
        return page.line(format!("{at}  {voice}  {}", clean(said)));
    };
    for entry in entries {
        match entry {
            TranscriptEntry::Message(text) => lines(page, &at, "", &text, usize::MAX),
            TranscriptEntry::Tool { name, on } => lines(page, &at, &format!("{}: ", clean(&name)), &on, usize::MAX),
            TranscriptEntry::Result(text) => lines(page, &at, "→ ", &text, MAX_RESULT_LINES),
            TranscriptEntry::Problem(text) => lines(page, &at, "error: ", &text, usize::MAX),
        }
    }
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
