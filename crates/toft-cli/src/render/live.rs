//! The lines of a run that are written over: how far it is, and what each agent does now.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::page::clean;

/// Below this many columns the head and the lines have fewer parts.
const NARROW: u16 = 80;
/// How often the spinner turns.
const TURN: Duration = Duration::from_millis(120);

/// How far a run is. Counts are of tasks, not of attempts.
#[derive(Debug, Default)]
pub(super) struct RunTally {
    /// How each task ended the last time.
    ended: BTreeMap<String, String>,
    /// Number of attempts that ended.
    attempts: usize,
    running: BTreeSet<usize>,
    /// Tasks that failed and are tried again.
    retried: BTreeSet<String>,
    /// Unfinished issues of the repository.
    open: Option<u64>,
    cost: f64,
    tokens: u64,
    /// How long the attempts ran that did their task.
    worked: Duration,
}

impl RunTally {
    pub(super) fn claimed(&mut self, slot: usize, task: &str) {
        self.running.insert(slot);
        // It is worked on again: how it ended before is not how it ends.
        self.ended.remove(task);
        self.retried.remove(task);
    }

    /// An attempt ended; `again` if its task is tried again.
    pub(super) fn ended(&mut self, slot: usize, task: &str, how: &str, again: bool, ran: Duration) {
        self.running.remove(&slot);
        self.attempts += 1;
        if again {
            self.retried.insert(task.to_owned());
        }
        if how == "done" {
            self.worked += ran;
        }
        self.ended.insert(task.to_owned(), how.to_owned());
    }

    pub(super) fn uses(&mut self, cost: Option<f64>, tokens: Option<u64>) {
        self.cost += cost.unwrap_or(0.0);
        self.tokens = self.tokens.saturating_add(tokens.unwrap_or(0));
    }

    pub(super) fn idle(&mut self, slot: usize) {
        self.running.remove(&slot);
    }

    pub(super) fn unfinished(&mut self, open: Option<u64>) {
        self.open = open;
    }

    /// Number of tasks by how they ended.
    pub(super) fn counts(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for how in self.ended.values() {
            *counts.entry(how.as_str()).or_default() += 1;
        }
        counts
    }

    pub(super) fn attempts(&self) -> usize {
        self.attempts
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Cost and tokens.
    pub(super) fn spent(&self) -> (f64, u64) {
        (self.cost, self.tokens)
    }

    /// Cost and tokens as text; none if nothing was reported.
    pub(super) fn used(&self) -> Option<String> {
        let cost = (self.cost > 0.0).then(|| format!("${:.2}", self.cost));
        let tokens = (self.tokens > 0).then(|| format!("{} tokens", compact(self.tokens)));
        let parts: Vec<String> = [cost, tokens].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// One line for a terminal of that width.
    pub(super) fn line(&self, slots: usize, width: u16) -> String {
        let counts = self.counts();
        let count = |how: &str| counts.get(how).copied().unwrap_or(0);
        let (done, narrow) = (count("done"), width < NARROW);
        let total = self.open.map(|open| done as u64 + open);
        let mut parts = vec![match total {
            Some(total) if narrow => format!("{done}/{total} done"),
            Some(total) => format!("{done} of {total} done"),
            None => format!("{done} done"),
        }];
        parts.push(format!("{} running", self.running.len()));
        let some = |count: usize, text: &str| (count > 0).then(|| format!("{count} {text}"));
        parts.extend(some(count("waiting"), if narrow { "ask" } else { "waiting for you" }));
        parts.extend(some(self.retried.len(), "to retry"));
        parts.extend(some((count("failed") + count("parked")).saturating_sub(self.retried.len()), "failed"));
        if !narrow {
            parts.extend(self.used());
            parts.extend(self.left(done, slots).map(|left| format!("about {} left", toft::time::span(left))));
        }
        parts.join(" · ")
    }

    /// How long the rest takes, if it takes as long as what is done.
    fn left(&self, done: usize, slots: usize) -> Option<Duration> {
        let (open, done, slots) =
            (u32::try_from(self.open?).ok()?, u32::try_from(done).ok()?, u32::try_from(slots).ok()?);
        (done > 0 && open > 0 && slots > 0).then(|| self.worked / done * open / slots)
    }
}

/// A number as people say it: 950, 12k, 3.4M.
fn compact(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{}k", number / 1_000),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

/// The lines themselves.
pub(super) struct LiveView {
    all: MultiProgress,
    head: ProgressBar,
    slots: Vec<ProgressBar>,
}

impl LiveView {
    pub(super) fn new(names: &[String]) -> Self {
        let all = MultiProgress::new();
        let line = |template: &str| {
            let bar = all.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TURN);
            bar
        };
        let head = line("{elapsed:>4.bold} {wide_msg:.bold}");
        let template = match width() < NARROW {
            true => "{prefix:.cyan} {wide_msg}",
            false => "{prefix:.cyan} {spinner} {elapsed:>4} {wide_msg}",
        };
        let slots = names.iter().map(|name| {
            let bar = line(template);
            bar.set_prefix(name.clone());
            bar
        });
        let slots = slots.collect();
        Self { all, head, slots }
    }

    pub(super) fn head(&self, tally: &RunTally) {
        self.head.set_message(tally.line(self.slots.len(), width()));
    }

    /// What a slot does now.
    pub(super) fn slot(&self, index: usize, text: &str) {
        self.slots[index].set_message(clean(text));
    }

    /// A slot begins something: its time counts from here.
    pub(super) fn begins(&self, index: usize, text: &str) {
        self.slots[index].reset_elapsed();
        self.slot(index, text);
    }

    /// A line that stays, above the others.
    pub(super) fn print(&self, text: &str) {
        // A terminal that is gone shows nothing.
        let _ = self.all.println(text);
    }

    pub(super) fn close(&self) {
        self.slots.iter().chain([&self.head]).for_each(ProgressBar::finish_and_clear);
    }
}

/// How many columns the terminal has.
fn width() -> u16 {
    Term::stderr().size_checked().map_or(NARROW, |(_, columns)| columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_counts_tasks_and_has_fewer_parts_on_a_narrow_terminal() {
        let mut tally = RunTally::default();
        let minute = Duration::from_secs(60);
        for (slot, task) in [(0, "a"), (1, "b"), (2, "c"), (3, "d")] {
            tally.claimed(slot, task);
        }
        tally.unfinished(Some(40));
        assert_eq!(tally.line(4, 120), "0 of 40 done · 4 running");
        tally.ended(0, "a", "failed", true, minute);
        assert_eq!(tally.line(4, 120), "0 of 40 done · 3 running · 1 to retry");
        tally.claimed(0, "a");
        tally.ended(0, "a", "done", false, minute);
        tally.ended(1, "b", "waiting", false, minute);
        tally.ended(2, "c", "failed", false, minute);
        tally.uses(Some(1.25), Some(1_200_900));
        tally.unfinished(Some(39));
        let used = "$1.25, 1.2M tokens";
        let wide = format!("1 of 40 done · 1 running · 1 waiting for you · 1 failed · {used} · about 10 min left");
        assert_eq!(tally.line(4, 120), wide);
        assert_eq!(tally.line(4, 60), "1/40 done · 1 running · 1 ask · 1 failed");
        assert_eq!((tally.attempts(), tally.counts()["done"]), (4, 1));
        assert_eq!([950, 12_345, 3_400_000].map(compact), ["950", "12k", "3.4M"]);
    }
}
