//! Any bytes at all, read as a ledger.

#![no_main]

#[path = "../holds.rs"]
mod holds;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| holds::of_any_bytes(bytes));
