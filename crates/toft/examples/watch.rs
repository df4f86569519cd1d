//! A waiting event iterator: prints what happens in this repository's store, until nothing has for a minute.
//!
//! `cargo run -p toft --example watch`, inside a repository with a store.

use std::{io::Write as _, time::Duration};

use toft::{Error, Toft};

fn main() -> Result<(), Error> {
    let toft = Toft::open(".")?;
    let mut out = std::io::stdout();
    for event in toft.events(0).patience(Duration::from_secs(60)) {
        let event = event?;
        if writeln!(out, "{} {} {} {}", event.seq, event.actor, event.verb, event.entity).is_err() {
            break;
        }
    }
    Ok(())
}
