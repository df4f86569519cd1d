//! Budgets of a run, a day and a task: nothing new is claimed once what runs may use up the rest, and a task that used up
//! its own asks a person.

use std::{collections::BTreeSet, fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};
use toft_core::{flow::Attempt, time::Timestamp};
use toft_session::{config::state_home, recipe::UsageLimit};
use toft_store::private;

use super::{RunnerEvent, SlotEvent};

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Spent {
    pub(super) cost: f64,
    /// Input and output together.
    pub(super) tokens: u64,
    /// Number of attempts.
    pub(super) attempts: u32,
}

impl Spent {
    fn add(&mut self, cost: Option<f64>, tokens: Option<u64>) {
        self.cost += cost.unwrap_or(0.0);
        self.tokens = self.tokens.saturating_add(tokens.unwrap_or(0));
        self.attempts += 1;
    }

    /// What the attempts at a task used.
    pub(super) fn of(attempts: &[Attempt]) -> Self {
        let mut spent = Self::default();
        for attempt in attempts {
            let usage = attempt.report.as_ref().and_then(|report| report.usage);
            spent.add(attempt.cost, usage.map(|usage| usage.input_tokens.saturating_add(usage.output_tokens)));
        }
        spent
    }

    /// Why one more attempt, besides `running` others, would pass a limit, if attempts go on as they were.
    pub(super) fn passes(&self, limit: UsageLimit, running: usize) -> Option<String> {
        let each = f64::from(self.attempts.max(1));
        let next = |used: f64, most: f64| match self.attempts {
            0 => most <= 0.0,
            _ => used + used / each * (running + 1) as f64 > most,
        };
        if let Some(most) = limit.cost.filter(|most| next(self.cost, *most)) {
            let (cost, each) = (self.cost, self.cost / each);
            return Some(format!("${cost:.2} are spent, about ${each:.2} an attempt; one more would pass ${most:.2}"));
        }
        let most = limit.tokens.filter(|most| next(self.tokens as f64, *most as f64))?;
        let each = self.tokens as f64 / each;
        Some(format!("{} tokens are used, about {each:.0} an attempt; one more would pass {most}", self.tokens))
    }
}

/// What all runners of this user used on this machine today, which begins at midnight UTC.
struct DaySpent {
    file: PathBuf,
}

impl DaySpent {
    fn today() -> io::Result<Self> {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
        let now = Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)).to_string();
        let dir = state_home().join("spent");
        private::create_dir_all(&dir)?;
        let file = dir.join(now.get(..10).unwrap_or("unknown"));
        // Other days are over.
        for entry in fs::read_dir(&dir)?.flatten().filter(|entry| entry.path() != file) {
            // Another runner may have removed it.
            let _ = fs::remove_file(entry.path());
        }
        Ok(Self { file })
    }

    /// Adds an attempt, if there is one, and returns the sum.
    fn add(&self, attempt: Option<(Option<f64>, Option<u64>)>) -> io::Result<Spent> {
        let mut file = private::options().create(true).truncate(false).read(true).write(true).open(&self.file)?;
        // One runner after the other; the lock ends with the file.
        file.lock()?;
        let mut text = String::new();
        io::Read::read_to_string(&mut file, &mut text)?;
        // A runner that was killed while it wrote may have left the end of a longer text behind.
        let read = serde_json::Deserializer::from_str(&text).into_iter().next();
        let mut spent: Spent = read.transpose()?.unwrap_or_default();
        if let Some((cost, tokens)) = attempt {
            spent.add(cost, tokens);
            let text = serde_json::to_string(&spent)?;
            io::Seek::rewind(&mut file)?;
            io::Write::write_all(&mut file, text.as_bytes())?;
            // Last: an empty file would say that nothing was spent.
            file.set_len(text.len() as u64)?;
        }
        Ok(spent)
    }
}

/// Follows what a run uses. What an agent uses is known when its attempt ends, so attempts that run count as much as
/// those before them on average.
#[derive(Debug, Default)]
pub struct BudgetMeter {
    run: UsageLimit,
    day: UsageLimit,
    spent: Spent,
    running: BTreeSet<usize>,
    /// Why nothing new may be claimed.
    reached: Option<String>,
}

impl BudgetMeter {
    /// A run that used nothing yet.
    pub fn new(run: UsageLimit, day: UsageLimit) -> Self {
        Self { run, day, ..Self::default() }
    }

    /// Why nothing new may be claimed any more.
    pub fn reached(&self) -> Option<&str> {
        self.reached.as_deref()
    }

    /// Says before the run starts why nothing may be claimed today.
    pub fn begin(&mut self) -> Option<String> {
        self.check(None)
    }

    /// Takes in an event; says once why nothing new may be claimed.
    pub fn hear(&mut self, event: &RunnerEvent) -> Option<String> {
        let RunnerEvent::Slot(slot, event) = event else { return None };
        match event {
            SlotEvent::Claimed { .. } => {
                self.running.insert(*slot);
                self.check(None)
            }
            SlotEvent::Ended { cost, tokens, .. } => {
                self.running.remove(slot);
                self.spent.add(*cost, *tokens);
                self.check(Some((*cost, *tokens)))
            }
            _ => None,
        }
    }

    fn check(&mut self, attempt: Option<(Option<f64>, Option<u64>)>) -> Option<String> {
        let running = self.running.len();
        let mut why = self.spent.passes(self.run, running).map(|why| format!("Budget: {why}"));
        let limited = self.day != UsageLimit::default();
        if limited || attempt.is_some() {
            // It is counted without a limit, too: there may be one later today.
            let today = DaySpent::today().and_then(|today| today.add(attempt));
            why = why.or(match today {
                Ok(today) => today.passes(self.day, running).map(|why| format!("Budget of today: {why}")),
                // What cannot be counted stops the run: a limit that does not hold is none.
                Err(error) if limited => Some(format!("Budget of today cannot be read: {error}")),
                Err(_) => None,
            });
        }
        let why = why.filter(|_| self.reached.is_none())?;
        self.reached = Some(why.clone());
        Some(format!("{why}, with {running} running. Nothing new is claimed."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(slot: usize) -> RunnerEvent {
        let (task, issue, title, attempt) = ("t".into(), None, "x".into(), 1);
        RunnerEvent::Slot(slot, SlotEvent::Claimed { task, issue, title, attempt, repository: None })
    }

    fn ended(slot: usize, cost: f64, tokens: u64) -> RunnerEvent {
        let (task, issue, how, message) = ("t".into(), None, "done".into(), String::new());
        let (parked, ran_ms, cost, tokens) = (false, 1, Some(cost), Some(tokens));
        RunnerEvent::Slot(slot, SlotEvent::Ended { task, issue, how, message, parked, ran_ms, cost, tokens })
    }

    #[test]
    fn what_a_day_cost_is_not_forgotten_though_a_runner_was_killed_while_it_wrote() {
        let dir = tempfile::tempdir().unwrap();
        let today = DaySpent { file: dir.path().join("today") };
        assert_eq!(today.add(None).unwrap(), Spent::default());
        today.add(Some((Some(12.25), Some(1000)))).unwrap();
        let mut text = fs::read_to_string(&today.file).unwrap();
        text.push_str("00}");
        fs::write(&today.file, text).unwrap();
        let sum = today.add(Some((Some(0.75), None))).unwrap();
        assert_eq!(sum, Spent { cost: 13.0, tokens: 1000, attempts: 2 });
        assert_eq!(today.add(None).unwrap(), sum);
        fs::write(&today.file, "{\"cost\":").unwrap();
        assert!(today.add(None).is_err(), "what cannot be read is not nothing");
    }

    #[test]
    fn nothing_new_is_claimed_when_one_more_would_pass_the_limit() {
        // Each costs 2; with two at work, 10 is enough for three that ended.
        let mut meter = BudgetMeter::new(UsageLimit { cost: Some(10.0), tokens: None }, UsageLimit::default());
        for (n, slot) in [0, 1, 0].into_iter().enumerate() {
            assert_eq!(meter.hear(&claimed(slot)), None);
            assert_eq!(meter.hear(&ended(slot, 2.0, 5)), None, "{n}");
        }
        assert_eq!(meter.hear(&claimed(0)), None, "6 spent, one runs, one more makes 10");
        let said = meter.hear(&claimed(1)).unwrap();
        let wanted = "$6.00 are spent, about $2.00 an attempt; one more would pass $10.00, with 2 running";
        assert_eq!(said, format!("Budget: {wanted}. Nothing new is claimed."));
        assert_eq!(meter.hear(&ended(1, 2.0, 5)), None, "once");
        let mut meter = BudgetMeter::new(UsageLimit { cost: None, tokens: Some(100) }, UsageLimit::default());
        assert!(meter.hear(&ended(0, 0.0, 60)).unwrap().contains("60 tokens are used"));
        let mut meter = BudgetMeter::new(UsageLimit::default(), UsageLimit::default());
        assert_eq!(meter.hear(&ended(0, 1e9, 1 << 60)), None);
    }
}
