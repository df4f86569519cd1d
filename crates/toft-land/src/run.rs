//! The state of one run of a lander.

use std::collections::BTreeMap;

use toft_core::id::LandingId;
use toft_session::error::Error;

use crate::report::{LandEvent, LandSummary};

/// What a lander has done since [`Lander::land`](crate::Lander::land) was called, and whom it tells.
pub(crate) struct LandRun<'a> {
    pub(crate) summary: LandSummary,
    /// The target that it works on now.
    pub(crate) target: String,
    /// How many checks of this run failed, by tree.
    pub(crate) failures_by_tree: BTreeMap<String, usize>,
    pub(crate) any_check_passed: bool,
    /// Work that waits, each with the landing whose fix has to land first.
    pub(crate) waits_for_fix: BTreeMap<LandingId, LandingId>,
    on_event: &'a mut dyn FnMut(&LandEvent),
}

/// Whether a target needs another round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoundOutcome {
    /// Something landed, was sent back, or moved: look again.
    Changed,
    /// Nothing more can land in this target now.
    Settled,
}

impl<'a> LandRun<'a> {
    pub(crate) fn new(summary: LandSummary, on_event: &'a mut dyn FnMut(&LandEvent)) -> Self {
        Self {
            summary,
            target: String::new(),
            failures_by_tree: BTreeMap::new(),
            any_check_passed: false,
            waits_for_fix: BTreeMap::new(),
            on_event,
        }
    }

    pub(crate) fn report(&mut self, event: &LandEvent) {
        (self.on_event)(event);
    }

    pub(crate) fn add_note(&mut self, text: String) {
        self.report(&LandEvent::Note { text: text.clone() });
        self.summary.notes.push(text);
    }

    /// Adds why nothing, or one piece of work, lands in a target now. The run goes on with the rest.
    pub(crate) fn add_blocker(&mut self, why: String) {
        self.report(&LandEvent::Note { text: why.clone() });
        self.summary.blocked.push(why);
    }

    /// Turns the failure of a step after a landing into a note: what has landed stays landed.
    pub(crate) fn note_failure(&mut self, step: Result<(), impl Into<Error>>) {
        if let Err(error) = step {
            self.add_note(error.into().to_string());
        }
    }
}
