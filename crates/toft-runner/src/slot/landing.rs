//! How a slot lands finished work between two tasks.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use toft_core::landing::LandingWait;
use toft_session::error::Error;

use super::{Slot, SlotEvent};
use crate::{SlotLander, SlotLanding};

/// How often a forge is asked about open pull requests.
const ASK_FORGE: Duration = Duration::from_secs(60);

impl Slot {
    /// The same slot, which also lands finished work.
    #[must_use]
    pub fn landing_with(mut self, lander: Option<Box<dyn SlotLander>>) -> Self {
        self.lander = lander;
        self
    }

    /// Lands what is ready here, if anything changed since that was last tried.
    pub(super) fn land_finished(&self) -> Result<(), Error> {
        let Some(lander) = self.lander.as_ref().filter(|_| !self.over()) else { return Ok(()) };
        let repository = self.repository();
        let before = self.waiting_to_land()?;
        if before.is_none() || before == Some(repository.tried.get()) {
            repository.landing.set(false);
            return Ok(());
        }
        let mut say = |event: SlotEvent| self.events.send(event);
        match lander.land(self.work(), &self.stop, &mut say) {
            Ok(SlotLanding::Busy) => repository.landing.set(true),
            Ok(SlotLanding::Tried) => {
                repository.landing.set(false);
                repository.tried.set(self.waiting_to_land()?.unwrap_or(0));
            }
            // What could not be landed now is tried again when something has changed.
            Err(error) => {
                self.events.send(SlotEvent::Problem { text: format!("nothing landed: {error}") });
                repository.landing.set(false);
                repository.tried.set(before.unwrap_or(0));
            }
        }
        Ok(())
    }

    /// A digest of what waits to land; none if nothing does.
    fn waiting_to_land(&self) -> Result<Option<u64>, Error> {
        let waiting = self.work().landings(&[], 0)?;
        if !waiting.iter().any(|entry| entry.landing.state == toft_core::landing::LandingState::Queued) {
            return Ok(None);
        }
        let mut hasher = DefaultHasher::new();
        let repository = self.work().landing_repository()?;
        let targets: BTreeSet<&String> = waiting.iter().map(|entry| &entry.landing.offer.target).collect();
        if let Some(repository) = &repository {
            for target in targets {
                repository.commit(target)?.hash(&mut hasher);
            }
        }
        // Only the forge knows what became of a pull request.
        if waiting.iter().any(|entry| matches!(entry.waits, Some(LandingWait::PullRequest { .. }))) {
            (std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs() / ASK_FORGE.as_secs()).hash(&mut hasher);
        }
        for entry in waiting {
            serde_json::to_string(&entry).unwrap_or_default().hash(&mut hasher);
        }
        Ok(Some(hasher.finish()))
    }
}
