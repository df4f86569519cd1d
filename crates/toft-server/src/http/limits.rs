//! How often a token may ask: a bucket that fills with time.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// Tokens that are counted at once; those that are full again are forgotten.
const COUNTED: usize = 10_000;

/// The limit of every token.
pub(super) struct TokenLimits {
    /// Requests a second; no limit if 0.
    rate: f64,
    /// What is left of each, and since when.
    left: Mutex<HashMap<String, (f64, Instant)>>,
}

impl TokenLimits {
    pub(super) fn of(rate: u32) -> Self {
        Self { rate: f64::from(rate), left: Mutex::default() }
    }

    /// Counts a request of a token; returns whether it is allowed. Two seconds' worth may come at once.
    pub(super) fn allow(&self, digest: &str) -> bool {
        if self.rate == 0.0 {
            return true;
        }
        let (now, most) = (Instant::now(), self.rate * 2.0);
        let filled = |left: f64, since: Instant| (left + now.duration_since(since).as_secs_f64() * self.rate).min(most);
        let mut all = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= COUNTED {
            all.retain(|_, (left, since)| filled(*left, *since) < most);
        }
        let (left, since) = all.entry(digest.to_owned()).or_insert((most, now));
        *left = filled(*left, *since);
        *since = now;
        let allowed = *left >= 1.0;
        if allowed {
            *left -= 1.0;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_asks_too_often_waits_and_others_do_not() {
        let limits = TokenLimits::of(10);
        assert_eq!((0..100).filter(|_| limits.allow("a")).count(), 20);
        assert!(limits.allow("b"));
        assert!((0..1_000).all(|_| TokenLimits::of(0).allow("a")));
    }
}
