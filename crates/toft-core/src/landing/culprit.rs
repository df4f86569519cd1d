//! Finds the piece of work in a failed batch with which the check fails.

/// The search for the culprit in a batch whose check failed: halves it until one piece of work is left, and asks for one
/// more run before it is blamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CulpritSearch {
    /// The batch passes up to here.
    good: usize,
    /// The batch fails up to here.
    bad: usize,
    len: usize,
    /// The failure of the last one left was confirmed.
    confirmed: bool,
}

/// What a search needs next, or what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CulpritStep {
    /// Check the batch up to the piece of work at `count - 1`. With `blames`, one failure is not enough.
    Check { count: usize, blames: bool },
    /// What stands before this position passes; with it, the check fails.
    Found { at: usize },
    /// The whole batch passes after all.
    Passes,
}

impl CulpritSearch {
    /// A search in a batch of `len`, which failed as a whole.
    #[must_use]
    pub fn of(len: usize) -> Self {
        Self { good: 0, bad: len, len, confirmed: false }
    }

    /// The next step.
    #[must_use]
    pub fn step(&self) -> CulpritStep {
        match self.bad.saturating_sub(self.good) {
            0 => CulpritStep::Passes,
            1 if self.confirmed => CulpritStep::Found { at: self.good },
            1 => CulpritStep::Check { count: self.bad, blames: true },
            _ => CulpritStep::Check { count: usize::midpoint(self.good, self.bad), blames: false },
        }
    }

    /// Takes in the result of the check that was asked for.
    #[must_use]
    pub fn after(mut self, passed: bool) -> Self {
        let CulpritStep::Check { count, blames } = self.step() else { return self };
        match (passed, blames) {
            // The failure was not repeated: the culprit, if there is one, stands behind it.
            (true, true) => (self.good, self.bad) = (count, self.len),
            (true, false) => self.good = count,
            (false, true) => self.confirmed = true,
            (false, false) => self.bad = count,
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_culprit_of_a_batch_is_found_in_few_checks(len in 1_usize..200, at in 0_usize..200) {
            let at = at % len;
            let (mut search, mut checks) = (CulpritSearch::of(len), 0);
            while let CulpritStep::Check { count, .. } = search.step() {
                checks += 1;
                search = search.after(count <= at);
            }
            prop_assert_eq!(search.step(), CulpritStep::Found { at });
            // One more run confirms it.
            prop_assert!(checks <= usize::BITS as usize - (len - 1).leading_zeros() as usize + 1);
        }

        #[test]
        fn a_search_ends_and_blames_only_what_failed_twice(len in 1_usize..50, results in prop::collection::vec(any::<bool>(), 2_000)) {
            let mut search = CulpritSearch::of(len);
            let (mut results, mut last) = (results.into_iter(), None);
            while let CulpritStep::Check { count, blames } = search.step() {
                prop_assert!((1..=len).contains(&count));
                let passed = results.next();
                prop_assert!(passed.is_some(), "it does not end");
                last = passed.map(|passed| (count, blames, passed));
                search = search.after(passed == Some(true));
            }
            match search.step() {
                CulpritStep::Found { at } => prop_assert_eq!(last, Some((at + 1, true, false))),
                _ => prop_assert!(matches!(last, Some((count, true, true)) if count == len)),
            }
        }
    }
}
