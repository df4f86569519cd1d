//! toft as a library: the same store, the same rules, the same verbs as the command line.
//!
//! A worker registers, claims what is ready, and finishes it. Its lease follows its process: if the process
//! dies, the task is free for the next worker at once.
//!
//! ```
//! use toft::{Config, Query, Store, Toft, flow::Plan};
//!
//! # fn main() -> Result<(), toft::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("demo.db");
//! let toft = Toft::with(Config { store: Some(Store::new_path(path)), ..Config::default() })?;
//! toft.start_flow(&Plan::single("Sweep the yard"))?;
//!
//! let me = toft.agent("builder-7").register()?;
//! while let Some(job) = me.claim(Query::ready())? {
//!     job.save("half of it is swept")?;
//!     job.done("swept").no_change("a yard is not under version control").commit()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Inside a repository, [`Toft::open`] finds the store exactly as the command line does. Everything the
//! command line can ask is a request in [`verbs`], run with [`Toft::perform`].

mod backup;
mod blobs;
pub mod briefing;
mod config;
pub mod doctor;
mod engine;
mod error;
mod events;
mod holds;
pub mod hooks;
mod keep;
mod locate;
mod machine;
mod person;
pub mod plan;
pub mod plan_file;
mod registry;
mod repositories;
pub mod runner;
mod session;
mod setup;
mod stop;
mod upkeep;
mod work;
mod worker;
pub mod workspaces;

pub use backup::{Backup, Restored, restore};
pub use config::{Config, Instant, Names, RunRules, Store, SyncRules, WorkspaceRules};
pub use config::{home, state_home};
pub use engine::Home;
pub use error::Error;
pub use events::Events;
pub use holds::Held;
pub use locate::{Located, Source, locate, migrate};
pub use machine::Machine;
pub use registry::registered_stores;
pub use repositories::{Reached, every_repository};
pub use session::Toft;
pub use setup::{Setup, variables};
pub use toft_core::{
    agent, change, checkpoint, flow, gate, id, issue, lease, message, ready, refusal, repository, retention, rights,
    sheet, store, text, time, verbs, workspace,
};
pub use toft_vcs as vcs;
pub use work::operation;
pub use worker::{AgentBuilder, Finish, Job, Kept, Query, Worker};
