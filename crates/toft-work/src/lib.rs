//! Work: claims and finishes tasks, and updates ledgers and workspaces. Start at [`Work`].
//!
//! `work.rs` claims and finishes, `stop.rs` stops an agent, `landing.rs` offers finished work for landing, `named.rs` resolves user input, `workspaces/` keeps
//! directories and rows consistent, `setup.rs` sets up a new checkout, `elsewhere.rs` handles other repositories of the
//! store.

mod elsewhere;
mod landing;
mod named;
pub mod setup;
mod stop;
pub mod work;
pub mod workspaces;

use std::ops::Deref;

pub use landing::LandingDiff;
pub use named::Assigned;
use toft_session::Session;
pub use work::operation;

/// Work on issues and tasks, from one session.
#[derive(Clone, Copy)]
pub struct Work<'s> {
    session: &'s Session,
}

impl<'s> Work<'s> {
    /// Work from this session.
    pub fn of(session: &'s Session) -> Self {
        Self { session }
    }

    /// The session itself.
    pub fn session(self) -> &'s Session {
        self.session
    }
}

impl Deref for Work<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}
