//! Takes back what has landed, by another landing that is checked like any other.

use std::slice;

use toft_core::{
    landing::{Landing, LandingState},
    refusal::Refusal,
    verbs::land::Revert,
};
use toft_session::error::Error;
use toft_vcs::landing::Merged;

use crate::Lander;

impl Lander<'_> {
    /// Queues a commit that takes a landing back, on top of its target. `text` names an issue, a task or a landing.
    pub fn revert(&self, text: &str) -> Result<Landing, Error> {
        let named = self.work.landings(&[text.to_owned()], 0)?;
        let missing = || Refusal::NotFound { what: "finished work".into(), text: text.to_owned() };
        let landing = named.into_iter().next().ok_or_else(missing)?.landing;
        let Some(landed) = landing.landed.as_ref().filter(|_| landing.state == LandingState::Landed) else {
            return Err(refuse(&landing, landing.state.as_str(), "only what has landed can be taken back"));
        };
        if landed.before.is_empty() {
            // What the target was before is not known, and so not what came with the merge.
            return Err(refuse(&landing, "merged by a forge or by hand", "git revert takes it back"));
        }
        let target = &landing.offer.target;
        let tip = self.require_tip(target)?;
        let subject = revert_subject(&self.repository.subject(&landed.commit)?);
        let candidate = match self.repository.reverted(&tip.base, &landed.commit, &landed.before, &subject)? {
            Merged::Clean(candidate) => candidate,
            Merged::Nothing => {
                return Err(refuse(&landing, "not in the target any more", "there is nothing to take back"));
            }
            Merged::Conflict(files) => {
                let state = format!("followed by other changes in {}", files.join(", "));
                return Err(refuse(&landing, &state, "add an issue for what has to change"));
            }
        };
        let pin = Landing::pin_of_revert(&landing.id);
        // Nothing refers to the commit until it has landed: without a ref, git would delete it in time.
        self.repository.pin(&pin, &candidate.commit)?;
        let sent = self.work.send_kept_commit(&pin, &candidate.commit, target, slice::from_ref(&tip.base))?;
        let clone = self.checkout.common_dir.display().to_string();
        let request = Revert { landing: landing.id.clone(), tip: candidate.commit, clone, sent };
        self.work.act(self.agent_name(), None, request)
    }
}

fn refuse(landing: &Landing, state: &str, wanted: &str) -> Error {
    let (id, state, wanted) = (landing.id.to_string(), state.to_owned(), wanted.to_owned());
    Refusal::WrongState { id, state, wanted }.into()
}

fn revert_subject(subject: &str) -> String {
    format!("Revert: {}", subject.strip_prefix("Merge: ").unwrap_or(subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revert_names_the_change_and_not_its_merge() {
        assert_eq!(revert_subject("Merge: Add a cart"), "Revert: Add a cart");
        assert_eq!(revert_subject("Add a cart"), "Revert: Add a cart");
    }
}
