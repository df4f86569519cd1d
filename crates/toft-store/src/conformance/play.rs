//! Randomized tests in step with the memory store, which is the reference: same answers, same contents.

use std::sync::Arc;

use toft_core::testing::{Bytes, ManualClock, MemoryStore, Play, Stage};

use super::Pair;

/// The steps of one run, from a seed.
fn moves(seed: u64, count: usize) -> Vec<Bytes> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..count)
        .map(|_| {
            let bytes = next();
            [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5]]
        })
        .collect()
}

/// A run long enough to use every verb. CI uses a new seed each time, and prints it if the test fails.
pub fn random_play_answers_as_the_memory_store_does(pair: &Pair) {
    let seed = std::env::var("TOFT_PLAY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(7, |at| at.as_nanos() as u64)
    });
    let memory_clock = ManualClock::default();
    let mut memory = Play::on(Stage::on(Arc::new(MemoryStore::new(memory_clock.clone())), memory_clock));
    let mut other = Play::on(Stage::on(pair.writer.clone(), pair.clock.clone()));
    for (n, bytes) in moves(seed, 400).into_iter().enumerate() {
        let (expected, found) = (memory.step(bytes), other.step(bytes));
        assert_eq!(found, expected, "TOFT_PLAY_SEED={seed}, move {n}: {bytes:?}");
    }
    other.check();
    assert_eq!(other.dump(), memory.dump(), "TOFT_PLAY_SEED={seed}");
}
