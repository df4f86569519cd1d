//! Takes back what has landed, by another landing.

use toft_core::{
    landing::{Landing, LandingState},
    refusal::Refusal,
    verbs::land::Revert,
};
use toft_session::error::Error;
use toft_vcs::landing::Merged;

use crate::{Lander, no_target};

impl Lander<'_> {
    /// Queues a commit that takes a landing back, on top of its target.
    pub fn revert(&self, text: &str) -> Result<Landing, Error> {
        let named = self.work.landings(&[text.to_owned()], 0)?;
        let missing = || Refusal::NotFound { what: "finished work".into(), text: text.to_owned() };
        let landing = named.into_iter().next().ok_or_else(missing)?.landing;
        let refused = |state: &str, wanted: &str| {
            let (id, state, wanted) = (landing.id.to_string(), state.to_owned(), wanted.to_owned());
            Error::from(Refusal::WrongState { id, state, wanted })
        };
        let Some(landed) = landing.landed.as_ref().filter(|_| landing.state == LandingState::Landed) else {
            return Err(refused(landing.state.as_str(), "only what has landed can be taken back"));
        };
        if landed.before.is_empty() {
            return Err(refused("merged by a forge or by hand", "git revert takes it back"));
        }
        let target = &landing.offer.target;
        let newest = self.repository.newest(target)?.ok_or_else(|| no_target(target))?.0;
        let subject = self.repository.subject(&landed.commit)?;
        let subject = format!("Revert: {}", subject.strip_prefix("Merge: ").unwrap_or(&subject));
        let reverted = self.repository.reverted(&newest, &landed.commit, &landed.before, &subject)?;
        let candidate = match reverted {
            Merged::Clean(candidate) => candidate,
            Merged::Nothing => return Err(refused("not in the target any more", "there is nothing to take back")),
            Merged::Conflict(files) => {
                let state = format!("followed by other changes in {}", files.join(", "));
                return Err(refused(&state, "add an issue for what has to change"));
            }
        };
        let pin = Landing::pin_of_revert(&landing.id);
        self.repository.pin(&pin, &candidate.commit)?;
        let sent = self.work.send_kept_commit(&pin, &candidate.commit, target, std::slice::from_ref(&newest))?;
        let clone = self.checkout.common_dir.display().to_string();
        let request = Revert { landing: landing.id.clone(), tip: candidate.commit.clone(), clone, sent };
        self.work.act(self.actor(), None, request)
    }
}
