//! Sends work back, with what an agent has to know to mend it.

use toft_core::{
    id::LandingId,
    landing::{BounceReason, Landing},
    verbs::land::BounceLanding,
};
use toft_session::error::Error;

use crate::{Journal, LandEvent, Lander};

/// Why work goes back.
pub(crate) struct WhyBounced {
    pub(crate) reason: BounceReason,
    pub(crate) message: String,
    pub(crate) files: Vec<String>,
    /// A person decides first.
    pub(crate) asks: bool,
}

impl Lander<'_> {
    pub(crate) fn bounce(
        &self,
        landing: &Landing,
        target: &str,
        reason: BounceReason,
        message: String,
        files: Vec<String>,
        journal: &mut Journal<'_>,
    ) -> Result<(), Error> {
        self.send_back(landing, target, WhyBounced { reason, message, files, asks: false }, journal)
    }

    pub(crate) fn send_back(
        &self,
        landing: &Landing,
        target: &str,
        WhyBounced { reason, message, files, asks }: WhyBounced,
        journal: &mut Journal<'_>,
    ) -> Result<(), Error> {
        let against = match reason {
            BounceReason::Conflict => self.changed_by(landing, target, &files)?,
            _ => Vec::new(),
        };
        let request = BounceLanding {
            landing: landing.id.clone(),
            tip: landing.offer.tip.clone(),
            target: target.to_owned(),
            reason,
            message: message.clone(),
            files,
            against,
            asks,
        };
        let landing = self.work.act(self.actor(), None, request)?;
        journal.say(&LandEvent::Bounced { landing: Box::new(landing.clone()), reason, message });
        journal.summary.bounced.push(landing);
        Ok(())
    }

    /// Landings that changed these files since the work began.
    fn changed_by(&self, landing: &Landing, target: &str, files: &[String]) -> Result<Vec<LandingId>, Error> {
        let found = self.repository.landings_of_files(&landing.offer.tip, target, files)?;
        Ok(found.into_iter().map(LandingId::known).filter(|id| *id != landing.id).collect())
    }

    pub(crate) fn bounce_conflict(
        &self,
        landing: &Landing,
        target: &str,
        files: Vec<String>,
        journal: &mut Journal<'_>,
    ) -> Result<(), Error> {
        let message = format!("It conflicts with {} in {}.", landing.offer.target, files.join(", "));
        self.bounce(landing, target, BounceReason::Conflict, message, files, journal)
    }
}
