//! Abbreviates ids in text, as far as they are unique in this store and its ledgers.

use std::cell::OnceCell;

use toft_core::{issue, short::shorten, store::Access, verbs::facts};
use toft_session::{config::variable, error::Error, session::Session};

use crate::Plan;

/// Abbreviates the ids in a text for display, unless `TOFT_IDS` is set. Ids that cannot be looked up stay whole, and so
/// do ids of a server's tasks, because each would need one more query. The index is as the command left it: an id in a
/// text was read from there.
pub fn shorten_ids(session: &Session, text: &str) -> String {
    if variable("TOFT_IDS").is_some() {
        return text.to_owned();
    }
    let plan: OnceCell<Option<Plan<'_>>> = OnceCell::new();
    let of_tasks = session.located().store.file().is_some();
    let similar = |prefix: &str| match prefix.starts_with(issue::PREFIX) {
        true => match plan.get_or_init(|| Plan::open(session).ok().flatten()) {
            Some(plan) => Ok::<_, Error>(plan.index(Access::Read)?.ids(prefix, 2)?),
            None => Ok(Vec::new()),
        },
        false if of_tasks => session.perform(facts::Ids { prefix: prefix.to_owned(), limit: 2 }),
        false => Ok(Vec::new()),
    };
    shorten(text, similar).unwrap_or_else(|_| text.to_owned())
}
