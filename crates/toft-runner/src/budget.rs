//! The budget of a run: nothing new is claimed once what runs may use up the rest.

use std::collections::BTreeSet;

use super::{RunnerEvent, SlotEvent};

/// What a run may use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RunBudget {
    /// In the currency that agents report, which is US dollars.
    pub cost: Option<f64>,
    /// Input and output together.
    pub tokens: Option<u64>,
}

/// Follows what a run uses. What an agent uses is known when its attempt ends, so attempts that run count as much as
/// those before them on average.
#[derive(Debug, Default)]
pub struct BudgetMeter {
    budget: RunBudget,
    cost: f64,
    tokens: f64,
    ended: u32,
    running: BTreeSet<usize>,
    reached: bool,
}

impl BudgetMeter {
    /// A run that used nothing yet.
    pub fn new(budget: RunBudget) -> Self {
        Self { budget, ..Self::default() }
    }

    /// Takes in an event; says once why nothing new may be claimed.
    pub fn hear(&mut self, event: &RunnerEvent) -> Option<String> {
        let RunnerEvent::Slot(slot, event) = event else { return None };
        match event {
            SlotEvent::Claimed { .. } => drop(self.running.insert(*slot)),
            SlotEvent::Ended { cost, tokens, .. } => {
                self.running.remove(slot);
                self.ended += 1;
                self.cost += cost.unwrap_or(0.0);
                self.tokens += tokens.unwrap_or(0) as f64;
            }
            _ => return None,
        }
        let cost = self.budget.cost.filter(|most| self.next_passes(self.cost, *most));
        let tokens = self.budget.tokens.filter(|most| self.next_passes(self.tokens, *most as f64));
        if self.reached || cost.is_none() && tokens.is_none() {
            return None;
        }
        self.reached = true;
        let each = f64::from(self.ended.max(1));
        let spent = match (cost, tokens) {
            (Some(most), _) => {
                format!(
                    "${:.2} are spent, about ${:.2} an attempt; one more would pass ${most:.2}",
                    self.cost,
                    self.cost / each
                )
            }
            (None, most) => format!(
                "{} tokens are used, about {:.0} an attempt; one more would pass {}",
                self.tokens,
                self.tokens / each,
                most.unwrap_or_default()
            ),
        };
        Some(format!("Budget: {spent}, with {} running. Nothing new is claimed.", self.running.len()))
    }

    /// Whether one more attempt would pass the limit, if attempts go on as they were.
    fn next_passes(&self, used: f64, most: f64) -> bool {
        if self.ended == 0 {
            return most <= 0.0;
        }
        let each = used / f64::from(self.ended);
        used + each * (self.running.len() + 1) as f64 > most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimed(slot: usize) -> RunnerEvent {
        let (task, issue, title, attempt) = ("t".into(), None, "x".into(), 1);
        RunnerEvent::Slot(slot, SlotEvent::Claimed { task, issue, title, attempt })
    }

    fn ended(slot: usize, cost: f64, tokens: u64) -> RunnerEvent {
        let (task, issue, how, message) = ("t".into(), None, "done".into(), String::new());
        let (parked, ran_ms, cost, tokens) = (false, 1, Some(cost), Some(tokens));
        RunnerEvent::Slot(slot, SlotEvent::Ended { task, issue, how, message, parked, ran_ms, cost, tokens })
    }

    #[test]
    fn nothing_new_is_claimed_when_one_more_would_pass_the_limit() {
        // Each costs 2; with two at work, 10 is enough for three that ended.
        let mut meter = BudgetMeter::new(RunBudget { cost: Some(10.0), tokens: None });
        for (n, slot) in [0, 1, 0].into_iter().enumerate() {
            assert_eq!(meter.hear(&claimed(slot)), None);
            assert_eq!(meter.hear(&ended(slot, 2.0, 5)), None, "{n}");
        }
        assert_eq!(meter.hear(&claimed(0)), None, "6 spent, one runs, one more makes 10");
        let said = meter.hear(&claimed(1)).unwrap();
        let wanted = "$6.00 are spent, about $2.00 an attempt; one more would pass $10.00, with 2 running";
        assert_eq!(said, format!("Budget: {wanted}. Nothing new is claimed."));
        assert_eq!(meter.hear(&ended(1, 2.0, 5)), None, "once");
        let mut meter = BudgetMeter::new(RunBudget { cost: None, tokens: Some(100) });
        assert!(meter.hear(&ended(0, 0.0, 60)).unwrap().contains("60 tokens are used"));
        let mut meter = BudgetMeter::new(RunBudget::default());
        assert_eq!(meter.hear(&ended(0, 1e9, 1 << 60)), None);
    }
}
