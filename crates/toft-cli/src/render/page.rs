//! Lines of text: columns, colours, and text from outside made harmless.

pub(crate) use toft::text::{clean, short};
use toft::{flow::TaskStatus, time::Timestamp};

use super::times;

/// Text being put together.
pub(crate) struct Page {
    text: String,
    now: Timestamp,
    color: bool,
}

/// What a piece of text is, for colouring.
#[derive(Clone, Copy)]
pub(crate) enum Ink {
    /// An id.
    Id,
    /// Good news.
    Good,
    /// Work under way.
    Busy,
    /// Needs a look.
    Bad,
    /// Of little weight.
    Faint,
    /// A heading.
    Head,
}

impl Page {
    pub(crate) fn new(color: bool) -> Self {
        Self { text: String::new(), now: times::now(), color }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref().trim_end());
        self.text.push('\n');
    }

    pub(crate) fn ink(&self, ink: Ink, text: &str) -> String {
        if !self.color {
            return text.to_owned();
        }
        let code = match ink {
            Ink::Id => "36",
            Ink::Good => "32",
            Ink::Busy => "33",
            Ink::Bad => "31",
            Ink::Faint => "2",
            Ink::Head => "1",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    pub(crate) fn status(&self, status: TaskStatus) -> String {
        let ink = match status {
            TaskStatus::Done | TaskStatus::Skipped => Ink::Good,
            TaskStatus::Leased | TaskStatus::Running => Ink::Busy,
            TaskStatus::Failed => Ink::Bad,
            TaskStatus::Pending | TaskStatus::Waiting | TaskStatus::Cancelled => Ink::Faint,
        };
        self.ink(ink, &format!("{:9}", status.as_str()))
    }

    /// A moment: the local time, and how far from now that is.
    pub(crate) fn moment(&self, at: Timestamp) -> String {
        times::moment(at, self.now)
    }

    /// A text of toft's own, made harmless, with every time in it told as a moment.
    pub(crate) fn told(&self, text: &impl ToString) -> String {
        clean(&times::tell_times(&text.to_string(), self.now))
    }

    /// Text that was made harmless already.
    pub(crate) fn verbatim(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// The lines of a longer text, indented.
    pub(crate) fn block(&mut self, indent: &str, text: &str) {
        for line in text.lines() {
            self.line(format!("{indent}{}", clean(line)));
        }
    }
}
