//! Briefings: what an agent is told, within a budget of tokens.
//!
//! [`context`] is for whoever takes one task over, [`prime`] for a session that begins. What others wrote is quoted and
//! labelled; the same store and ledgers always give the same text.

mod context;
mod prime;

use std::ops::Deref;

pub(crate) use self::prime::letter;
pub use self::{context::Here, prime::Prime};
use toft_work::Work;

/// What agents are told.
#[derive(Clone, Copy)]
pub struct Briefing<'s> {
    work: Work<'s>,
}

impl<'s> Briefing<'s> {
    /// For agents that work from there.
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

/// What a session may cost.
pub const PRIME_TOKENS: usize = 1_500;
/// What the context of a task may cost, unless somebody says otherwise.
pub const CONTEXT_TOKENS: usize = 8_000;
/// Below this there is no room for what must be said.
pub const LEAST_TOKENS: usize = 300;
