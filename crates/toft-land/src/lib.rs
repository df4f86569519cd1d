//! Lands finished work: merges it into its target branch, one checked candidate at a time.
//!
//! # Entry points
//!
//! - [`Lander::land`] lands what is ready and returns a [`LandSummary`]; it reports each [`LandEvent`] as it happens.
//! - [`Lander::forecast`] tells what would land, in which order, and what conflicts. It changes nothing.
//! - [`Lander::unlanded_work`] counts what has not landed, for overviews.
//! - [`Lander::revert`] queues a commit that takes a landing back.
//!
//! # How work lands
//!
//! A *candidate* is the commit that the target would have with one more piece of work. [`Lander::land`] takes one target
//! after the other, under its lock, and repeats rounds (`round`) until one changes nothing:
//!
//! 1. `policy` refuses what must not land, whatever the check says.
//! 2. `stack` builds candidates on top of each other.
//! 3. `check` runs the check on exact trees and remembers the verdicts; `batch` checks several candidates at once and
//!    halves a batch that fails until one piece of work is to blame.
//! 4. `target` moves the branch, `record` tells the store, and `pending` updates a checkout that has the branch checked
//!    out, or leaves the result for it.
//!
//! Work that conflicts, fails or must not land is sent back to an agent with the reason (`bounce`). With
//! `how = "pr"`, `pull_request` opens and follows pull requests instead, through the program of a `forge`.
//!
//! # After a crash
//!
//! The target moves before its landings are recorded. A lander that is killed in between leaves merges in the target,
//! whose trailers name their landings: the next round records those first. Everything else is built again.

mod batch;
mod bounce;
mod check;
#[cfg(test)]
mod fake_repository;
mod forecast;
mod forge;
mod lander;
mod pending;
mod policy;
mod pull_request;
mod record;
mod report;
mod repository;
mod revert;
mod round;
mod run;
mod stack;
mod target;

pub use self::{
    forecast::{LandingForecast, UnlandedWork},
    lander::Lander,
    report::{LandEvent, LandSummary, PendingUpdate, UpdatedCheckout},
};
