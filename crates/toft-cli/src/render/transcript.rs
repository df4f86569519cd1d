//! The log of an attempt, read as a conversation.

use toft::views::{LogLine, LogReader};

use super::{
    CommandView,
    page::{Page, clean},
    times,
};

/// Lines of a tool's answer that are shown.
const MAX_RESULT_LINES: usize = 8;

/// The log of an attempt.
pub(crate) fn view_attempt_log(log: &toft::runner::AttemptLog, raw: bool) -> CommandView<'_> {
    CommandView::new("attempt_log", log, log.files.iter().map(|path| path.display()), move |page| {
        match raw {
            true => log.lines.iter().for_each(|line| page.line(clean(line))),
            false => {
                let mut printer = ConversationPrinter::default();
                log.lines.iter().for_each(|line| printer.line(page, line));
                printer.end(page);
            }
        }
        if log.lines.is_empty() {
            let (attempt, task) = (log.attempt, &log.task);
            page.line(format!("Attempt {attempt} of {task} has no log: it was not started by a runner."));
        }
    })
}

/// Prints the lines of a log as a conversation.
#[derive(Default)]
pub(crate) struct ConversationPrinter(LogReader);

impl ConversationPrinter {
    pub(crate) fn line(&mut self, page: &mut Page, line: &str) {
        self.0.line(line).iter().for_each(|said| print(page, said));
    }

    /// Prints the message whose parts were collected, if any.
    pub(crate) fn end(&mut self, page: &mut Page) {
        self.0.end().iter().for_each(|said| print(page, said));
    }
}

/// A piece of a conversation, the first line with the time.
fn print(page: &mut Page, said: &LogLine) {
    let all: Vec<&str> = said.text.lines().collect();
    let first = format!("{}{}", clean(&said.sign), clean(all.first().unwrap_or(&"")));
    let Some(at) = said.at else { return page.line(first) };
    let at = page.faint(times::clock(at));
    page.line(format!("{at}  {first}"));
    let most = if said.answer { MAX_RESULT_LINES } else { usize::MAX };
    for line in all.iter().skip(1).take(most.saturating_sub(1)) {
        page.line(format!("          {}", clean(line)));
    }
    if all.len() > most {
        page.line(format!("          … {} more lines; --raw shows all", all.len() - most));
    }
}
