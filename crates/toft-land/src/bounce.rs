//! Sends work back, with what an agent has to know to fix it.

use toft_core::{
    id::LandingId,
    landing::{BounceReason, Landing},
    verbs::land::BounceLanding,
};
use toft_session::error::Error;

use crate::{Lander, report::LandEvent, run::LandRun};

/// What an agent is told about work that was sent back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BounceNotice {
    pub(crate) reason: BounceReason,
    pub(crate) message: String,
    /// The files that conflict, or that the comments of a review are about.
    pub(crate) files: Vec<String>,
    /// Whether a person decides before an agent takes it up again.
    pub(crate) asks_person: bool,
}

impl BounceNotice {
    pub(crate) fn conflict(target: &str, files: Vec<String>) -> Self {
        let message = format!("It conflicts with {target} in {}.", files.join(", "));
        Self { files, ..Self::new(BounceReason::Conflict, message) }
    }

    pub(crate) fn failed_check(message: String) -> Self {
        Self::new(BounceReason::Check, message)
    }

    pub(crate) fn policy(message: String) -> Self {
        Self::new(BounceReason::Policy, message)
    }

    fn new(reason: BounceReason, message: String) -> Self {
        Self { reason, message, files: Vec::new(), asks_person: false }
    }
}

impl Lander<'_> {
    /// Sends work back that cannot land on `base`: its task is open again, with the notice.
    pub(crate) fn bounce(
        &self,
        landing: &Landing,
        base: &str,
        notice: BounceNotice,
        run: &mut LandRun<'_>,
    ) -> Result<(), Error> {
        let BounceNotice { reason, message, files, asks_person } = notice;
        // Only a conflict has another side.
        let against = match reason {
            BounceReason::Conflict => self.landings_that_changed(&files, landing, base)?,
            BounceReason::Check | BounceReason::Review | BounceReason::Policy => Vec::new(),
        };
        let request = BounceLanding {
            landing: landing.id.clone(),
            tip: landing.offer.tip.clone(),
            target: base.to_owned(),
            reason,
            message: message.clone(),
            files,
            against,
            asks: asks_person,
        };
        let landing = self.work.act(self.agent_name(), None, request)?;
        run.report(&LandEvent::Bounced { landing: Box::new(landing.clone()), reason, message });
        run.summary.bounced.push(landing);
        Ok(())
    }

    /// Returns the other landings that changed these files in the target since the work began.
    fn landings_that_changed(&self, files: &[String], landing: &Landing, base: &str) -> Result<Vec<LandingId>, Error> {
        let found = self.repository.landings_of_files(&landing.offer.tip, base, files)?;
        Ok(found.into_iter().map(LandingId::known).filter(|id| *id != landing.id).collect())
    }
}
