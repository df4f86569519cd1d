//! Stories that are told on every store, as those of leases.

mod commands;
mod issues;
mod judged;
mod landing;
mod runner;
