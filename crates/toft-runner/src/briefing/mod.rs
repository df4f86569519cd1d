//! Briefings: text for agents, within a token budget.
//!
//! [`context`] is for an agent that continues a task, [`prime`] for a session that begins. Text from other authors is
//! quoted and labelled; the same store and ledgers always give the same text.

mod context;
mod lesson;
mod prime;

use std::ops::Deref;

pub(crate) use self::prime::letter;
pub use self::{context::Here, prime::Prime};
use toft_work::Work;

/// Briefings for agents.
#[derive(Clone, Copy)]
pub struct Briefing<'s> {
    work: Work<'s>,
}

impl<'s> Briefing<'s> {
    /// Briefings for agents that work from there.
    pub fn of(work: Work<'s>) -> Self {
        Self { work }
    }
}

impl<'s> Deref for Briefing<'s> {
    type Target = Work<'s>;

    fn deref(&self) -> &Work<'s> {
        &self.work
    }
}

/// Token budget of a session's briefing.
pub const PRIME_TOKENS: usize = 1_500;
/// Default token budget of the context of a task.
pub const CONTEXT_TOKENS: usize = 8_000;
/// Minimum token budget: less has no room for the required text.
pub const LEAST_TOKENS: usize = 300;
