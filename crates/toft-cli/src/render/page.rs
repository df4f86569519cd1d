//! Lines of text: columns, colours, and text from outside made harmless.

pub(crate) use toft::text::{clean, short};
use toft::{flow::TaskStatus, time::Timestamp};

use super::times;

/// How wide lines are that go on below, unless `COLUMNS` says it.
const WIDTH: usize = 100;
/// Text gets at least so many columns.
const NARROWEST: usize = 12;

/// The id that people see: that of the issue, if the task has one.
pub(crate) fn shown_id(task: &str, issue: Option<&str>) -> String {
    clean(issue.unwrap_or(task))
}

/// Text being put together.
pub(crate) struct Page {
    text: String,
    now: Timestamp,
    width: usize,
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
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        Self { text: String::new(), now: times::now(), width: columns.unwrap_or(WIDTH), color }
    }

    /// An empty page like this one.
    pub(crate) fn part(&self) -> Self {
        Self { text: String::new(), ..*self }
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

    /// A line that goes on below, indented by `indent`, where it would be wider than the terminal. `lead` is its beginning,
    /// and `visible` how many characters of that are seen.
    pub(crate) fn wrapped(&mut self, lead: &str, visible: usize, text: &str, indent: usize) {
        let width = self.width.max(indent + NARROWEST);
        let (mut line, mut used) = (lead.to_owned(), visible);
        let mut fresh = true;
        for word in text.split(' ') {
            let mut word = word.to_owned();
            while used + usize::from(!fresh) + word.chars().count() > width {
                if used > indent {
                    self.line(&line);
                    (line, used, fresh) = (" ".repeat(indent), indent, true);
                } else {
                    // Not even a line of its own holds it.
                    let rest = word.chars().skip(width - indent).collect();
                    self.line(format!("{line}{}", word.chars().take(width - indent).collect::<String>()));
                    word = rest;
                }
            }
            if !fresh {
                line.push(' ');
                used += 1;
            }
            used += word.chars().count();
            line.push_str(&word);
            fresh = false;
        }
        self.line(line);
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
