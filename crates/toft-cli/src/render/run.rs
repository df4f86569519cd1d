//! A runner at work: a line for each slot on a terminal, plain lines elsewhere, and what came of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::IsTerminal as _,
    time::Duration,
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use toft::{
    briefing::Prime,
    flow::{Attempt, AttemptResult},
    runner::{News, Order, SlotEvent},
    verbs::stop,
};

use super::{
    Output, View, data,
    page::{Page, clean, short},
};

/// Follows a runner.
pub(crate) struct Watch<'a> {
    output: &'a Output,
    /// Abbreviates the ids in a text.
    shorten: &'a dyn Fn(&str) -> String,
    names: Vec<String>,
    live: Option<Live>,
    /// What each slot is on: its id and title.
    on: BTreeMap<usize, String>,
    /// The number of each slot's present attempt.
    attempts: BTreeMap<usize, u32>,
    counts: BTreeMap<String, usize>,
    parked: Vec<String>,
    /// Tasks that were said to be parked.
    told: BTreeSet<String>,
}

/// Lines that are written over.
struct Live {
    all: MultiProgress,
    bars: Vec<ProgressBar>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        output: &'a Output,
        shorten: &'a dyn Fn(&str) -> String,
        names: &[String],
        promise: Option<&str>,
    ) -> Self {
        let terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        let live = (terminal && !output.machine()).then(|| {
            let all = MultiProgress::new();
            let bars = names.iter().map(|name| {
                let bar = all.add(ProgressBar::new_spinner());
                if let Ok(style) = ProgressStyle::with_template("{prefix:.cyan} {spinner} {wide_msg}") {
                    bar.set_style(style);
                }
                bar.set_prefix(name.clone());
                bar.enable_steady_tick(Duration::from_millis(120));
                bar
            });
            let bars = bars.collect();
            Live { all, bars }
        });
        let (on, attempts, counts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (names, parked, told) = (names.to_vec(), Vec::new(), BTreeSet::new());
        let watch = Self { output, shorten, names, live, on, attempts, counts, parked, told };
        if let Some(promise) = promise {
            watch.line(&format!("sandbox by {}", clean(promise)));
        }
        watch
    }

    /// Shows what happened.
    pub(crate) fn take(&mut self, news: &News) {
        if self.output.machine() {
            self.count(news);
            let slot = |index: &usize| self.names[*index].clone();
            let line = match news {
                News::Slot(index, told) => json!({ "slot": slot(index), "news": told }),
                News::Again(index) => json!({ "slot": slot(index), "news": { "told": "killed" } }),
                News::Silent(index) => json!({ "slot": slot(index), "news": { "told": "silent" } }),
                News::Over(index, why) => json!({ "slot": slot(index), "news": { "told": "over", "why": why } }),
                News::Heard(order) => {
                    json!({ "news": { "told": if *order == Order::Drain { "draining" } else { "stopping" } } })
                }
            };
            self.output.lines(&[json!({ "toft": 1, "kind": "news", "data": line }).to_string()]);
            return;
        }
        match news {
            News::Slot(index, told) => self.told(*index, told),
            News::Again(index) => self.say(*index, "killed; restarting"),
            News::Silent(index) => self.say(*index, "did not respond; killed with every process it had started"),
            News::Over(index, Some(why)) => {
                let first = why.trim().lines().next().unwrap_or_default();
                self.say(*index, &format!("stopped: {first}"));
            }
            News::Over(index, None) => self.quiet(*index, "finished"),
            News::Heard(Order::Drain) => self
                .line("Waiting for running agents to finish. Press Ctrl-C again to stop them and release their tasks."),
            News::Heard(Order::Stop) => self.line("Stopping all agents."),
        }
        self.count(news);
    }

    fn count(&mut self, news: &News) {
        if let News::Slot(_, SlotEvent::Ended { how, parked, task, issue, .. }) = news {
            *self.counts.entry(how.clone()).or_default() += 1;
            if *parked {
                self.told.insert(task.clone());
                self.parked.push(issue.clone().unwrap_or_else(|| task.clone()));
            }
        }
    }

    fn told(&mut self, index: usize, told: &SlotEvent) {
        match told {
            // Signs of life are for the runner.
            SlotEvent::Alive { .. } => {}
            SlotEvent::Waiting if self.live.is_some() => self.quiet(index, "waiting for work"),
            SlotEvent::Waiting => self.say(index, "waiting for work"),
            SlotEvent::Took { task, issue, title, attempt } => {
                let id = issue.as_deref().unwrap_or(task);
                let again = if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
                let on = (self.shorten)(&format!("{id} {}{again}", short(title, 60)));
                if self.live.is_none() {
                    self.line(&format!("{}  claimed  {on}", self.names[index]));
                }
                self.quiet(index, &on);
                self.on.insert(index, on);
                self.attempts.insert(index, *attempt);
            }
            SlotEvent::Step { text } | SlotEvent::Said { text } => {
                let on = self.on.get(&index).cloned().unwrap_or_default();
                self.quiet(index, &format!("{on}  {}", short(text, 200)));
            }
            SlotEvent::Ended { task, issue, how, message, parked, ran_ms } => {
                let id = issue.as_deref().unwrap_or(task);
                let gave_up = match (*parked, self.attempts.get(&index)) {
                    (false, _) => String::new(),
                    (true, Some(attempts @ 2..)) => format!("; gave up after {attempts} attempts: see `toft status`"),
                    (true, _) => "; gave up: see `toft status`".to_owned(),
                };
                let seconds = *ran_ms as f64 / 1_000.0;
                let said = if message.is_empty() { String::new() } else { format!(": {}", short(message, 160)) };
                self.line(&format!("{}  {how}  {id} after {seconds:.1} s{said}{gave_up}", self.names[index]));
            }
            SlotEvent::Trouble { text } => self.say(index, text),
        }
    }

    fn say(&self, index: usize, text: &str) {
        self.line(&format!("{}  {}", self.names[index], clean(text)));
    }

    /// Something for the line of a slot only.
    fn quiet(&self, index: usize, text: &str) {
        if let Some(live) = &self.live {
            live.bars[index].set_message(clean(text));
        }
    }

    fn line(&self, text: &str) {
        if self.output.silent() {
            return;
        }
        let text = (self.shorten)(text);
        match &self.live {
            // A terminal that is gone shows nothing.
            Some(live) => drop(live.all.println(text)),
            None => self.output.lines(&[text]),
        }
    }

    /// Tasks that failed for good without anybody saying so.
    pub(crate) fn also_parked<'t>(&mut self, tasks: impl Iterator<Item = &'t String>) {
        for task in tasks.filter(|task| !self.told.contains(*task)) {
            self.parked.push(task.clone());
        }
    }

    /// Says what came of it all.
    pub(crate) fn close(&mut self) {
        if let Some(live) = self.live.take() {
            live.bars.iter().for_each(ProgressBar::finish_and_clear);
        }
        if self.output.machine() {
            self.output
                .lines(&[json!({ "toft": 1, "kind": "run", "data": { "ended": self.counts, "parked": self.parked } })
                    .to_string()]);
            return;
        }
        let counts: Vec<String> = self.counts.iter().map(|(how, count)| format!("{count} {how}")).collect();
        let said = if counts.is_empty() {
            "No tasks ran; `toft ready --explain` shows why.".into()
        } else {
            format!("Finished: {}.", counts.join(", "))
        };
        self.line(&said);
        if self.counts.contains_key("done") {
            self.line("The commits of each task are on its own branch; `toft ws list` shows which have not landed.");
        }
        if !self.parked.is_empty() {
            self.line(&format!("Needs you: {}", self.parked.join(", ")));
        }
    }

    /// How many tasks failed for good.
    pub(crate) fn parked(&self) -> usize {
        self.parked.len()
    }
}

/// What came of stopping an agent.
pub(crate) struct Stopped {
    pub(crate) told: stop::Outcome,
    /// How the hold ended, if its runner answered in time.
    pub(crate) ended: Option<Attempt>,
    pub(crate) parked: bool,
}

impl View for Stopped {
    fn kind(&self) -> &'static str {
        "stop"
    }

    fn json(&self) -> Value {
        let done = match (&self.ended, self.told.told) {
            (_, false) => "revoked",
            (Some(_), true) => "stopped",
            (None, true) => "ordered",
        };
        let stop::Outcome { task, name, issue, agent, expires, .. } = &self.told;
        json!({
            "task": task, "name": name, "issue": issue, "agent": agent, "done": done, "parked": self.parked,
            "expires": expires, "attempt": self.ended,
        })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.told.issue.clone().unwrap_or_else(|| self.told.task.to_string())]
    }

    fn text(&self, page: &mut Page) {
        let stop::Outcome { task, name, issue, agent, expires, told, .. } = &self.told;
        let id = issue.clone().unwrap_or_else(|| task.to_string());
        let (name, agent) = (short(name, 60), clean(agent));
        let next = if self.parked {
            "the task is parked: toft flow retry reopens it"
        } else {
            "the task can be claimed again"
        };
        let finished = self.ended.as_ref().is_some_and(|attempt| attempt.result != Some(AttemptResult::Revoked));
        match (&self.ended, told) {
            (_, false) => page.line(format!("Revoked the lease of {agent} on {id} {name}; {next}.")),
            (Some(_), true) if finished => page.line(format!("{agent} finished {id} {name} before it was stopped.")),
            (Some(_), true) => page.line(format!("Stopped {agent} on {id} {name}; {next}.")),
            (None, true) => page.line(format!(
                "Asked the runner of {agent} to stop {id} {name}. It has not answered; the lease expires at {} unless it is renewed.",
                page.moment(*expires)
            )),
        }
    }
}

/// What a session needs to begin.
pub(crate) struct Primed(pub(crate) Prime);

impl View for Primed {
    fn kind(&self) -> &'static str {
        "prime"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.holds.clone()
    }

    fn text(&self, page: &mut Page) {
        page.verbatim(&self.0.text);
    }
}

/// Everything whoever takes over a task must know.
pub(crate) struct Context(pub(crate) String);

impl View for Context {
    fn kind(&self) -> &'static str {
        "context"
    }

    fn json(&self) -> Value {
        json!({ "text": self.0 })
    }

    fn ids(&self) -> Vec<String> {
        Vec::new()
    }

    fn text(&self, page: &mut Page) {
        page.verbatim(&self.0);
    }
}

/// What was said in an attempt.
pub(crate) struct AttemptLog(pub(crate) toft::runner::AttemptLog);

impl View for AttemptLog {
    fn kind(&self) -> &'static str {
        "attempt_log"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.files.iter().map(|path| path.display().to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        self.0.lines.iter().for_each(|line| page.line(clean(line)));
        if self.0.lines.is_empty() {
            page.line(format!(
                "Attempt {} of {} has no log: it was not started by a runner.",
                self.0.attempt, self.0.task
            ));
        }
    }
}

/// What to do next with the demo.
pub(crate) struct TryShown {
    pub(crate) repo: std::path::PathBuf,
    pub(crate) shell: String,
}

impl View for TryShown {
    fn kind(&self) -> &'static str {
        "try"
    }

    fn json(&self) -> Value {
        json!({ "repository": self.repo, "shell": self.shell })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.repo.display().to_string()]
    }

    fn text(&self, page: &mut Page) {
        page.line("");
        page.line("Look around, then answer the question and run the rest:");
        page.line(format!("  cd {}", self.repo.display()));
        page.line(format!("  {:26} # selects the demo's configuration", self.shell));
        page.line("  toft list --all · toft log · toft graph · git log --all --oneline");
        page.line("  toft answer ID \"…\"         # answers the question");
        page.line("  toft run --until-idle -- ../agent");
        page.line("The work of each issue is on its own branch; toft does not merge them.");
        let dir = self.repo.parent().unwrap_or(&self.repo).display();
        page.line(format!("Nothing outside of {dir} was changed. To delete the demo: rm -r {dir}"));
    }
}
