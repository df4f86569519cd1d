//! Two copies of a ledger, exchanged in both directions: the bytes before the first `#` are ours, the rest theirs.

#![no_main]

#[path = "../holds.rs"]
mod holds;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut copies = bytes.splitn(2, |byte| *byte == b'#');
    holds::of_two_copies(copies.next().unwrap_or_default(), copies.next().unwrap_or_default());
});
