//! Every input the fuzzer found worth keeping, again.

#![expect(clippy::unwrap_used, reason = "a test may fail loudly")]

#[path = "../fuzz/holds.rs"]
mod holds;

use std::{fs, path::Path};

#[test]
fn what_the_fuzzer_found_still_holds() {
    let corpus =
        Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo names the package")).join("fuzz/corpus/reader");
    let mut count = 0;
    for entry in fs::read_dir(corpus).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        holds::of_any_bytes(&bytes);
        let (ours, theirs) = bytes.split_at(bytes.len() / 2);
        holds::of_two_copies(ours, theirs);
        holds::of_two_copies(&bytes, theirs);
        count += 1;
    }
    assert!(count > 50, "the corpus is there");
}
