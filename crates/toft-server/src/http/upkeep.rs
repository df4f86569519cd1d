//! What the server does unasked: it forgets what is old.

use std::{collections::BTreeSet, io, sync::Weak, time::Duration};

use toft_core::{
    refusal::VerbResult,
    repository::Place,
    retention::Retention,
    store::{self, LandingQuery},
    verbs::{self, Caller, Policy, Verb, gc},
    wire::DistantProcesses,
};
use toft_session::{engine::Engine, error::Error, session::random_ids};
use tokio::time::sleep;

use super::{commits::COMMITS, logs::LOGS, served_space::ServedSpace};
use crate::objects::Objects;

/// A pause after something was forgotten: there may be more.
const MORE: Duration = Duration::from_secs(10);
/// A pause when nothing was old enough.
const NOTHING: Duration = Duration::from_secs(3_600);

/// Forgets a little, and again.
pub(super) async fn forget_again_and_again(space: Weak<ServedSpace>, retention: Retention, objects: Option<Objects>) {
    loop {
        let Some(open) = space.upgrade() else { return };
        let kept = retention.clone();
        let forgot = open.pool.run(move |engine| forget(engine, &kept)).await;
        let some = matches!(forgot, Ok(Ok(count)) if count > 0);
        if let Some(objects) = objects.as_ref().filter(|_| !some) {
            // What does not work now is tried the next time.
            let _ = forget_objects(&open, objects, &retention).await;
        }
        drop(open);
        sleep(if some { MORE } else { NOTHING }).await;
    }
}

/// Forgets logs of attempts that are old, and old commits that wait for nothing.
async fn forget_objects(space: &ServedSpace, objects: &Objects, retention: &Retention) -> io::Result<()> {
    let waiting = space.pool.run(|engine| {
        let live = LandingQuery { repository: None, live: true, limit: 0 };
        store::ask(engine.store()?, |tx| tx.landings(&live))
    });
    let waiting = waiting.await.flatten().map_err(io::Error::other)?;
    let tips: BTreeSet<String> = waiting.into_iter().map(|landing| landing.offer.tip).collect();
    objects.forget(&[&space.name, LOGS], retention.attempts, |_| false).await?;
    objects.forget(&[&space.name, COMMITS], retention.attempts, |commit| tips.contains(commit)).await?;
    Ok(())
}

fn forget(engine: &Engine, retention: &Retention) -> Result<u64, Error> {
    let now = store::ask(engine.store()?, |tx| tx.now())?.wall;
    let gone = engine.forget_some(retention, now)?;
    let count = gone.iter().map(|(_, count)| count).sum();
    if count > 0 {
        perform_unasked(engine, "toft", gc::Request { gone })?;
    }
    Ok(count)
}

/// Runs a verb that nobody sent.
pub(super) fn perform_unasked<V: Verb>(engine: &Engine, actor: &str, verb: V) -> VerbResult<V::Outcome> {
    let mut caller = Caller {
        actor,
        place: Place::default(),
        ids: &mut random_ids(),
        processes: &DistantProcesses::default(),
        policy: &Policy::default(),
        holds: &[],
        role: None,
        token: None,
        op: None,
    };
    verbs::perform(engine.store()?, &mut caller, verb)
}
