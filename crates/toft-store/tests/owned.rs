//! A space that is held in memory and put down in groups: what is on the server afterwards is what was answered.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stderr, reason = "a test that is skipped says so")]

use std::{sync::Arc, time::Duration};

use toft_core::{
    retention::RetentionKind,
    store::{Access, GroupEnd, GroupStore as _, Result, Store, StoreTx},
    testing::{Bytes, ManualClock, MemoryStore, Play, Stage},
    time::Timestamp,
};
use toft_store::{PostgresStore, postgres::OwnedSpace};

/// A space that lives as long as the test's process.
#[derive(Clone, Copy)]
struct Held(&'static OwnedSpace<'static>);

impl Store for Held {
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>> {
        self.0.begin(access)
    }

    fn change_counter(&self) -> Result<u64> {
        self.0.change_counter()
    }

    fn look_again_after(&self) -> Duration {
        self.0.look_again_after()
    }

    fn forget(&self, what: RetentionKind, before: Timestamp, limit: usize) -> Result<usize> {
        self.0.forget(what, before, limit)
    }
}

fn url() -> Option<String> {
    let server = std::env::var("TOFT_TEST_POSTGRES").ok();
    if server.is_none() {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "TOFT_TEST_POSTGRES is not set, and CI tests everything");
        eprintln!("skipped: no PostgreSQL; `cargo xtask check` starts one where it is installed");
    }
    let schema = format!("g{}_{}", std::process::id(), std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos());
    Some(format!("{}?schema={schema}", server?))
}

fn hold(url: &str, clock: &ManualClock) -> Held {
    let store = PostgresStore::create_with(url, Arc::new(clock.clone())).unwrap();
    let store: &'static PostgresStore = Box::leak(Box::new(store));
    Held(Box::leak(Box::new(OwnedSpace::take(store, 100_000).unwrap().unwrap())))
}

fn random(seed: u64) -> impl FnMut() -> [u8; 8] {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    }
}

fn stage(store: Arc<dyn Store>, clock: &ManualClock) -> Play {
    Play::on(Stage::on(store, clock.clone()))
}

#[test]
fn groups_of_random_verbs_answer_as_the_memory_store_does_and_are_on_the_server_afterwards() {
    let Some(url) = url() else { return };
    let seed = std::env::var("TOFT_PLAY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    let mut next = random(seed);
    let (clock, memory_clock) = (ManualClock::default(), ManualClock::default());
    let held = hold(&url, &clock);
    let mut memory = stage(Arc::new(MemoryStore::new(memory_clock.clone())), &memory_clock);
    let mut other = stage(Arc::new(held), &clock);
    for n in 0..600 {
        let random = next();
        let bytes: Bytes = random[..6].try_into().unwrap();
        // What looks into the log of others is not in memory.
        if random[6].is_multiple_of(8) || bytes[0] % 32 == 30 {
            assert!(matches!(held.0.put_down(), GroupEnd::Done), "TOFT_PLAY_SEED={seed}, move {n}");
        }
        let (expected, found) = (memory.step(bytes), other.step(bytes));
        assert_eq!(found, expected, "TOFT_PLAY_SEED={seed}, move {n}: {bytes:?}");
        assert!(!held.0.went_outside(), "TOFT_PLAY_SEED={seed}, move {n}: {bytes:?}");
    }
    assert!(matches!(held.0.put_down(), GroupEnd::Done), "TOFT_PLAY_SEED={seed}");
    let expected = memory.dump();
    assert_eq!(other.dump(), expected, "TOFT_PLAY_SEED={seed}");
    let server = stage(Arc::new(PostgresStore::create_with(&url, Arc::new(clock.clone())).unwrap()), &clock);
    assert_eq!(server.dump(), expected, "TOFT_PLAY_SEED={seed}");
    // Loaded again it is the same.
    assert_eq!(stage(Arc::new(hold(&url, &clock)), &clock).dump(), expected, "TOFT_PLAY_SEED={seed}");
}

#[test]
fn a_group_is_committed_only_if_nothing_else_was_and_else_nothing_of_it_is() {
    let Some(url) = url() else { return };
    let clock = ManualClock::default();
    let (held, second) = (hold(&url, &clock), hold(&url, &clock));
    let direct = || stage(Arc::new(PostgresStore::create_with(&url, Arc::new(clock.clone())).unwrap()), &clock);
    let mut first = stage(Arc::new(held), &clock);
    let a_flow: Bytes = [0, 1, 1, 1, 1, 1];
    first.step(a_flow);
    assert!(matches!(held.0.put_down(), GroupEnd::Done));
    let before = direct().dump();
    // Two that hold it: the second one is stale, and changes nothing.
    let mut other = stage(Arc::new(second), &clock);
    other.step(a_flow);
    assert!(matches!(second.0.put_down(), GroupEnd::Stale));
    assert_eq!(direct().dump(), before);
    // A direct writer: the one that holds it is stale.
    direct().step(a_flow);
    let before = direct().dump();
    first.step([3, 0, 0, 0, 0, 0]);
    assert!(matches!(held.0.put_down(), GroupEnd::Stale));
    assert_eq!(direct().dump(), before);
}
