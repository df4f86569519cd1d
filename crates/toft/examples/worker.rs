//! A worker loop: claim what is ready in this repository, do it, finish it; stop when nothing came for a while.
//!
//! `cargo run -p toft --example worker -- NAME`, inside a repository with a store. If it is killed, its task is free
//! for the next worker at once.

use std::{process::Command, time::Duration};

use toft::{Error, Query, Toft};

fn main() -> Result<(), Error> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "example-worker".into());
    let toft = Toft::open(".")?;
    let me = toft.agent(name).register()?;
    while let Some(job) = me.claim(Query::ready().wait(Duration::from_secs(5)))? {
        if let Some(checkpoint) = job.resume() {
            job.save(format!("going on from: {}", checkpoint.summary))?;
        }
        match Command::new("git").args(["rev-parse", "HEAD"]).output() {
            Ok(output) if output.status.success() => {
                let commit = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                job.done("looked at").evidence(commit).commit()?;
            }
            Ok(output) => drop(job.failed(String::from_utf8_lossy(&output.stderr))?),
            Err(error) => drop(job.release(error.to_string())?),
        }
    }
    Ok(())
}
