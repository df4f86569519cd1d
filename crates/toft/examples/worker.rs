//! A worker loop: claim what is ready in this repository, do it in a workspace, finish it; stop when nothing came for a
//! while.
//!
//! `cargo run -p toft --example worker -- NAME`, inside a repository with a store. If it is killed, its task is free
//! for the next worker at once.

use std::time::Duration;

use toft::{ClaimQuery, Error, Toft};

fn main() -> Result<(), Error> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "example-worker".into());
    let toft = Toft::open(".")?;
    let me = toft.agent(name).register()?;
    while let Some(job) = me.claim(ClaimQuery::ready().wait(Duration::from_secs(5)))? {
        if let Some(checkpoint) = job.resume() {
            job.save(format!("going on from: {}", checkpoint.summary))?;
        }
        let plot = job.workspace()?;
        job.save(format!("working in {}", plot.workspace.path))?;
        job.done("looked at").no_change("an example changes nothing").commit()?;
    }
    Ok(())
}
