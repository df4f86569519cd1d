//! A runner at work: a line for each slot on a terminal, plain lines elsewhere, and what came of it.

use std::{collections::BTreeMap, io::IsTerminal as _, path::Path, time::Duration};

use serde_json::json;
use toft::{
    briefing::Prime,
    flow::{Attempt, AttemptResult},
    land::UnlandedWork,
    runner::{Order, RunnerEvent, SlotEvent},
    vcs::workspace::quoted,
    verbs::stop,
};

use super::{
    CommandView, Output,
    live::{LiveView, RunTally},
    page::{Page, clean, short, shown_id},
    times,
    view::NO_IDS,
};

/// Questions that are listed at the end of a run.
const QUESTIONS: usize = 5;

/// Follows a runner.
pub(crate) struct RunProgress<'a> {
    output: &'a Output,
    /// Abbreviates the ids in a text.
    shorten: &'a dyn Fn(&str) -> String,
    /// The number of unfinished issues, if it can be known.
    unfinished: &'a dyn Fn() -> Option<u64>,
    names: Vec<String>,
    live: Option<LiveView>,
    tally: RunTally,
    /// What each slot is on: its id and title.
    on: BTreeMap<usize, String>,
    /// The number of each slot's present attempt.
    attempts: BTreeMap<usize, u32>,
    /// Tasks that failed for good, with the ids that people see.
    parked: Vec<(String, String)>,
    /// Tasks that wait for an answer, with the ids that people see.
    asked: BTreeMap<String, String>,
    /// What has not landed at the end, for each repository.
    unlanded: Vec<UnlandedWork>,
}

impl<'a> RunProgress<'a> {
    pub(crate) fn new(
        output: &'a Output,
        shorten: &'a dyn Fn(&str) -> String,
        unfinished: &'a dyn Fn() -> Option<u64>,
        names: &[String],
        promise: Option<&str>,
    ) -> Self {
        let terminal = std::io::stderr().is_terminal() && std::io::stdout().is_terminal();
        let live = (terminal && !output.machine()).then(|| LiveView::new(names));
        let mut watch = Self {
            output,
            shorten,
            unfinished,
            names: names.to_vec(),
            live,
            tally: RunTally::default(),
            on: BTreeMap::new(),
            attempts: BTreeMap::new(),
            parked: Vec::new(),
            asked: BTreeMap::new(),
            unlanded: Vec::new(),
        };
        if let Some(promise) = promise {
            watch.line(&format!("sandbox by {}", clean(promise)));
        }
        watch.show_head(true);
        watch
    }

    /// Shows how far the run is; counts what is left only when that may have changed.
    fn show_head(&mut self, changed: bool) {
        let Some(live) = &self.live else { return };
        if changed {
            self.tally.unfinished((self.unfinished)());
        }
        live.head(&self.tally);
    }

    /// Shows what happened.
    pub(crate) fn handle(&mut self, event: &RunnerEvent) {
        if self.output.machine() {
            self.count(event);
            let slot = |index: &usize| self.names[*index].clone();
            let line = match event {
                RunnerEvent::Slot(index, event) => json!({ "slot": slot(index), "event": event }),
                RunnerEvent::SlotRestarted(index) => json!({ "slot": slot(index), "event": { "type": "restarted" } }),
                RunnerEvent::SlotUnresponsive(index) => {
                    json!({ "slot": slot(index), "event": { "type": "unresponsive" } })
                }
                RunnerEvent::SlotEnded(index, why) => {
                    json!({ "slot": slot(index), "event": { "type": "slot_ended", "why": why } })
                }
                RunnerEvent::OrderReceived(order) => {
                    json!({ "event": { "type": if *order == Order::Drain { "draining" } else { "stopping" } } })
                }
            };
            self.output.lines(&[json!({ "toft": 1, "kind": "run_event", "data": line }).to_string()]);
            return;
        }
        match event {
            RunnerEvent::Slot(index, event) => self.show_slot_event(*index, event),
            RunnerEvent::SlotRestarted(index) => self.say(*index, "killed; restarting"),
            RunnerEvent::SlotUnresponsive(index) => {
                self.say(*index, "did not respond; killed with every process it had started");
            }
            RunnerEvent::SlotEnded(index, Some(why)) => {
                let first = why.trim().lines().next().unwrap_or_default();
                self.say(*index, &format!("stopped: {first}"));
            }
            RunnerEvent::SlotEnded(index, None) => self.quiet(*index, "finished"),
            RunnerEvent::OrderReceived(Order::Drain) if self.tally.running() == 0 => {}
            RunnerEvent::OrderReceived(Order::Drain) => {
                self.line("Waiting for running agents to finish. Ctrl-C stops them and releases their tasks.");
            }
            RunnerEvent::OrderReceived(Order::Stop) => self.line("Stopping all agents."),
        }
        self.count(event);
    }

    fn count(&mut self, event: &RunnerEvent) {
        match event {
            RunnerEvent::Slot(slot, SlotEvent::Claimed { task, .. }) => {
                self.tally.claimed(*slot, task);
                self.asked.remove(task);
                self.show_head(false);
            }
            RunnerEvent::Slot(slot, SlotEvent::Ended { how, parked, task, issue, ran_ms, cost, tokens, .. }) => {
                let again = how == "failed" && !parked;
                self.tally.ended(*slot, task, how, again, Duration::from_millis(*ran_ms));
                self.tally.uses(*cost, *tokens);
                let shown = shown_id(task, issue.as_deref());
                if *parked {
                    park(&mut self.parked, task, shown);
                } else if how == "waiting" {
                    self.asked.insert(task.clone(), shown);
                }
                self.show_head(true);
            }
            RunnerEvent::Slot(slot, SlotEvent::Waiting)
            | RunnerEvent::SlotRestarted(slot)
            | RunnerEvent::SlotEnded(slot, _) => {
                self.tally.idle(*slot);
                self.show_head(false);
            }
            _ => {}
        }
    }

    fn show_slot_event(&mut self, index: usize, event: &SlotEvent) {
        match event {
            // Signs of life are for the runner.
            SlotEvent::Alive { .. } => {}
            SlotEvent::Waiting => match &self.live {
                Some(live) => live.begins(index, "waiting for work"),
                None => self.say(index, "waiting for work"),
            },
            SlotEvent::Paused => {
                let name = self.names[index].clone();
                self.say(index, &format!("paused; `toft pause --off {name}` lets it claim again"));
                self.quiet(index, "paused");
            }
            SlotEvent::Resting { agent, until, text } => {
                let at = times::moment(*until, times::now());
                self.say(index, &format!("rests until {at}: {}: {}", clean(agent), short(text, 160)));
                self.quiet(index, &format!("rests until {at}: {}", clean(agent)));
            }
            SlotEvent::Claimed { task, issue, title, attempt, repository } => {
                let of = repository.as_ref().map(|name| format!("{}: ", clean(name))).unwrap_or_default();
                let id = format!("{of}{}", shown_id(task, issue.as_deref()));
                let again = if *attempt > 1 { format!(" (attempt {attempt})") } else { String::new() };
                let on = (self.shorten)(&format!("{id} {}{again}", short(title, 60)));
                match &self.live {
                    Some(live) => live.begins(index, &on),
                    None => self.line(&format!("{}  claimed  {on}", self.names[index])),
                }
                self.on.insert(index, on);
                self.attempts.insert(index, *attempt);
            }
            SlotEvent::Step { text } | SlotEvent::Output { text } => {
                let on = self.on.get(&index).cloned().unwrap_or_default();
                self.quiet(index, &format!("{on}  {}", short(text, 200)));
            }
            SlotEvent::Ended { task, issue, how, message, parked, ran_ms, cost, .. } => {
                let id = shown_id(task, issue.as_deref());
                let gave_up = match (*parked, self.attempts.get(&index)) {
                    (false, _) => String::new(),
                    (true, Some(attempts @ 2..)) => format!("; gave up after {attempts} attempts: see `toft status`"),
                    (true, _) => "; gave up: see `toft status`".to_owned(),
                };
                let seconds = *ran_ms as f64 / 1_000.0;
                let said = if message.is_empty() { String::new() } else { format!(": {}", short(message, 160)) };
                let cost = cost.filter(|cost| *cost > 0.0).map(|cost| format!(", ${cost:.2}")).unwrap_or_default();
                self.line(&format!("{}  {how}  {id} after {seconds:.1} s{cost}{said}{gave_up}", self.names[index]));
                if let Some(live) = &self.live {
                    live.begins(index, "");
                }
                if how == "waiting" {
                    self.line(&format!("  toft answer {id} \"…\""));
                }
            }
            SlotEvent::Landed { id, title, target } => {
                self.say(index, &format!("landed {} in {}: {}", clean(id), clean(target), short(title, 60)));
            }
            SlotEvent::Proposed { id, title, url } => {
                self.say(index, &format!("pull request {} for {}: {}", clean(url), clean(id), short(title, 60)));
            }
            SlotEvent::Bounced { id, title, reason } => {
                self.say(index, &format!("sent back ({}) {}: {}", clean(reason), clean(id), short(title, 60)));
            }
            SlotEvent::Problem { text } => self.say(index, text),
        }
    }

    /// Something about the whole run.
    pub(crate) fn announce(&self, text: &str) {
        match self.output.machine() {
            true => {
                let data = json!({ "event": { "type": "announced", "text": text } });
                self.output.lines(&[json!({ "toft": 1, "kind": "run_event", "data": data }).to_string()]);
            }
            false => self.line(text),
        }
    }

    fn say(&self, index: usize, text: &str) {
        self.line(&format!("{}  {}", self.names[index], clean(text)));
    }

    /// Something for the line of a slot only.
    fn quiet(&self, index: usize, text: &str) {
        if let Some(live) = &self.live {
            live.slot(index, text);
        }
    }

    fn line(&self, text: &str) {
        if self.output.silent() {
            return;
        }
        let text = (self.shorten)(text);
        match &self.live {
            Some(live) => live.print(&text),
            None => self.output.lines(&[text]),
        }
    }

    /// Tasks that failed for good in this run, with the ids that people see. No event says so of a task whose slot was
    /// killed.
    pub(crate) fn also_parked(&mut self, tasks: impl Iterator<Item = (String, String)>) {
        tasks.for_each(|(task, shown)| park(&mut self.parked, &task, shown));
    }

    /// What has not landed, at the end of the run.
    pub(crate) fn not_landed(&mut self, unlanded: UnlandedWork) {
        self.unlanded.push(unlanded);
    }

    fn parked_ids(&self) -> Vec<&str> {
        self.parked.iter().map(|(_, shown)| shown.as_str()).collect()
    }

    /// Says what came of it all, and what to do next.
    pub(crate) fn close(&mut self) {
        if let Some(live) = self.live.take() {
            live.close();
        }
        let counts = self.tally.counts();
        if self.output.machine() {
            let (attempts, asked) = (self.tally.attempts(), self.asked.values().collect::<Vec<_>>());
            let (cost, tokens) = self.tally.spent();
            let data = json!({ "ended": counts, "attempts": attempts, "parked": self.parked_ids(), "waiting": asked,
                "cost": cost, "tokens": tokens, "unlanded": self.unlanded });
            self.output.lines(&[json!({ "toft": 1, "kind": "run", "data": data }).to_string()]);
            return;
        }
        if self.tally.attempts() == 0 {
            self.line("No tasks ran; `toft ready --explain` shows why.");
        } else {
            let rows: Vec<String> = counts.iter().map(|(how, count)| format!("{count} {how}")).collect();
            let tasks: usize = counts.values().sum();
            let attempts = self.tally.attempts();
            let again = if attempts > tasks { format!(" ({attempts} attempts)") } else { String::new() };
            let used = self.tally.used().map(|used| format!(", {used}")).unwrap_or_default();
            self.line(&format!("Finished: {}{again}{used}.", rows.join(", ")));
        }
        for unlanded in &self.unlanded {
            let mut page = Page::new(false);
            super::land::write_unlanded_work(&mut page, unlanded);
            page.text().lines().for_each(|line| self.line(line));
        }
        for id in self.asked.values().take(QUESTIONS) {
            self.line(&format!("Waiting for you: toft answer {id} \"…\""));
        }
        if !self.parked.is_empty() {
            self.line(&format!("Needs you: {}", self.parked_ids().join(", ")));
        }
    }

    /// Whether an attempt ended in another way than being given back.
    pub(crate) fn did_any(&self) -> bool {
        self.tally.counts().keys().any(|how| *how != "released")
    }

    /// Whether no task was worked on.
    pub(crate) fn idle(&self) -> bool {
        self.tally.attempts() == 0
    }

    /// How many tasks failed for good.
    pub(crate) fn parked(&self) -> usize {
        self.parked.len()
    }
}

/// Notes a task that failed for good, once.
fn park(parked: &mut Vec<(String, String)>, task: &str, shown: String) {
    match parked.iter_mut().find(|(known, _)| known == task) {
        Some((_, known)) => *known = shown,
        None => parked.push((task.to_owned(), shown)),
    }
}

/// How a stop order ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StopResult {
    /// The hold had no runner, and was ended at once.
    Revoked,
    /// The agent ended before the order reached its runner.
    AlreadyFinished,
    Stopped,
    /// The runner has not answered yet.
    Ordered,
}

/// What came of stopping an agent.
pub(crate) struct Stopped {
    pub(crate) told: stop::Outcome,
    /// How the hold ended, if its runner answered in time.
    pub(crate) ended: Option<Attempt>,
    pub(crate) parked: bool,
}

impl Stopped {
    fn result(&self) -> StopResult {
        match &self.ended {
            _ if !self.told.told => StopResult::Revoked,
            Some(attempt) if attempt.result != Some(AttemptResult::Revoked) => StopResult::AlreadyFinished,
            Some(_) => StopResult::Stopped,
            None => StopResult::Ordered,
        }
    }

    pub(crate) fn view(&self) -> CommandView<'_> {
        let (Self { told, ended, parked }, result) = (self, self.result());
        let stop::Outcome { task, name, issue, agent, expires, .. } = told;
        let done = match result {
            StopResult::Revoked => "revoked",
            StopResult::AlreadyFinished => "already_finished",
            StopResult::Stopped => "stopped",
            StopResult::Ordered => "ordered",
        };
        let data = json!({
            "task": task, "name": name, "issue": issue, "agent": agent, "done": done,
            "parked": *parked && result != StopResult::AlreadyFinished, "expires": expires, "attempt": ended,
        });
        let id = shown_id(task.as_str(), issue.as_deref());
        let next = if *parked { "the task is parked: toft retry reopens it" } else { "the task can be claimed again" };
        let of = format!("{id} {}", short(name, 60));
        CommandView::new("stop", data, [id], move |page| {
            let (agent, until) = (clean(agent), page.moment(*expires));
            page.line(match result {
                StopResult::Revoked => format!("Revoked the lease of {agent} on {of}; {next}."),
                StopResult::AlreadyFinished => format!("{agent} finished {of} before it was stopped."),
                StopResult::Stopped => format!("Stopped {agent} on {of}; {next}."),
                StopResult::Ordered => {
                    let then = format!("the lease expires at {until} unless it is renewed");
                    format!("Asked the runner of {agent} to stop {of}. It has not answered; {then}.")
                }
            });
        })
    }
}

/// What a session needs to begin.
pub(crate) fn view_prime(prime: &Prime) -> CommandView<'_> {
    CommandView::new("prime", prime, &prime.holds, |page| page.verbatim(&prime.text))
}

/// Everything whoever takes over a task must know.
pub(crate) fn view_context(text: &str) -> CommandView<'_> {
    CommandView::new("context", json!({ "text": text }), NO_IDS, |page| page.verbatim(text))
}

/// What to do next with the demo.
pub(crate) fn view_demo<'a>(repo: &'a Path, shell: &'a str) -> CommandView<'a> {
    CommandView::new("try", json!({ "repository": repo, "shell": shell }), [repo.display()], move |page| {
        page.line("");
        page.line("Look around, then answer the question and run the rest:");
        page.line(format!("  cd {} && {}", clean(&quoted(repo)), clean(shell)));
        page.line("  toft list --all · toft history · toft list --graph · git log --all --oneline");
        page.line("  toft answer ID \"…\"         # answers the question");
        page.line("  toft run --land --until-idle -- ../agent");
        page.line("What is finished was checked and has landed in main: git log --first-parent");
        let dir = repo.parent().unwrap_or(repo).display();
        page.line(clean(&format!("Nothing outside of {dir} was changed; deleting that directory removes the demo.")));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stopped(told: bool, result: Option<&str>) -> Stopped {
        let order = json!({
            "task": "tk_1", "name": "mend it", "agent": "ana-1", "fence": "1.ls_1", "told": told,
            "expires": "2026-01-01T00:00:00.000Z",
        });
        let ended = result.map(|result| {
            let attempt = json!({
                "task": "tk_1", "fence": 1, "agent": "ag_1", "place": {}, "started": "2026-01-01T00:00:00.000Z",
                "result": result,
            });
            serde_json::from_value(attempt).unwrap()
        });
        Stopped { told: serde_json::from_value(order).unwrap(), ended, parked: true }
    }

    #[test]
    fn an_agent_that_ended_before_it_was_stopped_is_not_said_to_be_stopped_or_parked() {
        for (told, result, done, parked, text) in [
            (false, None, "revoked", true, "Revoked"),
            (true, Some("done"), "already_finished", false, "before it was stopped"),
            (true, Some("revoked"), "stopped", true, "parked"),
            (true, None, "ordered", true, "has not answered"),
        ] {
            let (order, mut page) = (stopped(told, result), Page::new(false));
            let (view, json) = (order.view(), order.view().json());
            assert_eq!((&json["done"], &json["parked"]), (&done.into(), &parked.into()));
            view.write(&mut page);
            assert!(page.text().contains(text), "{}", page.text());
        }
    }

    #[test]
    fn a_parked_task_is_named_once_by_the_id_that_people_see() {
        let mut parked = Vec::new();
        for (task, shown) in [("tk_1", "tf-1"), ("tk_2", "tk_2"), ("tk_1", "tf-1"), ("tk_2", "tf-2")] {
            park(&mut parked, task, shown.to_owned());
        }
        let shown: Vec<&str> = parked.iter().map(|(_, shown)| shown.as_str()).collect();
        assert_eq!(shown, ["tf-1", "tf-2"]);
    }

    #[test]
    fn a_path_in_a_command_is_quoted() {
        let mut page = Page::new(false);
        view_demo(Path::new("/tmp/ana's demo/village"), ". env").write(&mut page);
        assert!(page.text().contains("  cd '/tmp/ana'\\''s demo/village' && . env"), "{}", page.text());
    }
}
