//! Lines of text: columns, colours, and text from outside made harmless.

pub(crate) use toft::text::{clean, short};
use toft::{flow::TaskStatus, time::Timestamp};

use super::{
    table::{CELL_SEPARATOR, TABLE_END, WORDS_MARK},
    times,
};

/// Width of lines that go on below where no terminal says another.
const DEFAULT_COLUMNS: usize = 100;
/// Width that text has at least.
const MIN_TEXT_COLUMNS: usize = 12;

/// Returns the width of the terminal that output goes to, or what `COLUMNS` says instead.
pub(super) fn terminal_width() -> Option<usize> {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    said.or_else(|| console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns)))
}

/// A number with its noun.
pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A text from outside behind its lead; nothing without it.
pub(super) fn after(lead: &str, text: Option<impl AsRef<str>>) -> String {
    text.map(|text| format!("{lead}{}", clean(text.as_ref()))).unwrap_or_default()
}

/// Words from outside behind their lead; nothing without any.
pub(super) fn after_words(lead: &str, words: &[String]) -> String {
    after(lead, (!words.is_empty()).then(|| words.join(", ")))
}

/// Writes that rows of a list were left out, if they were.
pub(super) fn cut(page: &mut Page, more: bool, shown: usize) {
    if more {
        page.line(page.faint(format!("… {shown} shown; use --limit for more")));
    }
}

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
        Self { text: String::new(), now: times::now(), width: terminal_width().unwrap_or(DEFAULT_COLUMNS), color }
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

    /// A row of a table: its cells line up with those of the rows above and below, in [columns](super::table).
    pub(crate) fn row<C: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = C>) {
        for (column, cell) in cells.into_iter().enumerate() {
            if column > 0 {
                self.text.push(CELL_SEPARATOR);
            }
            self.text.push_str(cell.as_ref());
        }
        self.text.push('\n');
    }

    /// A cell of words, the last of its row, which is never cut.
    pub(crate) fn words(text: impl AsRef<str>) -> String {
        if text.as_ref().is_empty() { String::new() } else { format!("{WORDS_MARK}{}", text.as_ref()) }
    }

    /// A line of a text from outside behind its lead, if there is one.
    pub(crate) fn detail(&mut self, lead: &str, text: Option<impl AsRef<str>>) {
        if let Some(text) = text {
            self.line(format!("{lead}{}", clean(text.as_ref())));
        }
    }

    /// Ends a table: rows that follow have columns of their own.
    pub(crate) fn end_table(&mut self) {
        self.line(TABLE_END);
    }

    /// An id, made harmless, in its colour.
    pub(crate) fn id(&self, id: impl AsRef<str>) -> String {
        self.ink(Ink::Id, &clean(id.as_ref()))
    }

    /// Text of little weight.
    pub(crate) fn faint(&self, text: impl AsRef<str>) -> String {
        self.ink(Ink::Faint, text.as_ref())
    }

    pub(crate) fn ink(&self, ink: Ink, text: &str) -> String {
        if !self.color || text.is_empty() {
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
        self.ink(ink, status.as_str())
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
        let width = self.width.max(indent + MIN_TEXT_COLUMNS);
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
