//! What the server does unasked: it forgets what is old.

use std::{sync::Weak, time::Duration};

use toft_core::{
    id::IdGenerator,
    repository::Place,
    retention::Retention,
    store,
    verbs::{self, Caller, Policy, gc},
    wire::DistantProcesses,
};
use toft_session::{engine::Engine, error::Error, session::random_ids};
use tokio::time::sleep;

use super::served_space::ServedSpace;

/// A pause after something was forgotten: there may be more.
const MORE: Duration = Duration::from_secs(10);
/// A pause when nothing was old enough.
const NOTHING: Duration = Duration::from_secs(3_600);

/// Forgets a little, and again.
pub(super) async fn forget_again_and_again(space: Weak<ServedSpace>, retention: Retention) {
    loop {
        let Some(open) = space.upgrade() else { return };
        let kept = retention.clone();
        let forgot = open.pool.run(move |engine| forget(engine, &kept)).await;
        // What does not work now is tried the next time.
        drop(open);
        let some = matches!(forgot, Ok(Ok(count)) if count > 0);
        sleep(if some { MORE } else { NOTHING }).await;
    }
}

fn forget(engine: &Engine, retention: &Retention) -> Result<u64, Error> {
    let now = store::ask(engine.store(), |tx| tx.now())?.wall;
    let gone = engine.forget_some(retention, now)?;
    let count = gone.iter().map(|(_, count)| count).sum();
    if count > 0 {
        let mut ids: IdGenerator = random_ids();
        let mut caller = Caller {
            actor: "toft",
            place: Place::default(),
            ids: &mut ids,
            processes: &DistantProcesses::default(),
            policy: &Policy::default(),
            holds: &[],
            role: None,
            token: None,
            op: None,
        };
        verbs::perform(engine.store(), &mut caller, gc::Request { gone })?;
    }
    Ok(count)
}
