//! toft as a library: the same store, the same rules, the same verbs as the command line.
//!
//! A worker registers, claims what is ready, and finishes it. Its lease follows its process: if the process
//! dies, the task is free for the next worker at once.
//!
//! ```
//! use toft::{ClaimQuery, Config, StoreLocation, Toft, flow::WorkflowPlan};
//!
//! # fn main() -> Result<(), toft::Error> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("demo.db");
//! let toft = Toft::with(Config { store: Some(StoreLocation::new_path(path)), ..Config::default() })?;
//! toft.start_flow(&WorkflowPlan::single("Sweep the yard"))?;
//!
//! let me = toft.agent("builder-7").register()?;
//! while let Some(job) = me.claim(ClaimQuery::ready())? {
//!     job.save("half of it is swept")?;
//!     job.done("swept").no_change("a yard is not under version control").commit()?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Inside a repository, [`Toft::open`] finds the store exactly as the command line does. Everything the
//! command line can ask is a request in [`verbs`], run with [`Session::perform`].

pub mod doctor;
mod time_zone;
pub mod toft;
pub mod views;
mod worker;

pub use time_zone::local_time_zone;
pub use toft::{Reached, Toft, every_repository};
pub use toft_core::{
    agent, change, checkpoint, events, flow, gate, id, issue, json, landing, lease, login, message, ready, refusal,
    repository, retention, rights, schema, sheet, store, text, time, token, verbs, wire, workspace,
};
pub use toft_land as land;
pub use toft_plan::{self as plan, plan_file};
pub use toft_runner::{self as runner, briefing, hooks};
pub use toft_session::{
    Error, Session,
    backup::{Backup, Restored, restore},
    clones,
    config::{
        Config, ContainerRules, Names, OverlayMode, RunRules, StoreLocation, SyncRules, WorkspaceRules, home,
        state_home,
    },
    config_file::{ConfigKey, KeyScope, config_keys},
    engine::Home,
    events::Events,
    holds::Held,
    land::{CloseRule, ConfiguredCommands, LandHow, LandRules, UpdateRule},
    locate::{Located, StoreSource, locate, migrate},
    machine::Machine,
    mask::{Mask, masked_in_attempt},
    person::MARK,
    provider,
    recipe::{Recipe, UsageLimit, acp_recipe, recipes, unconfined},
    registry::registered_stores,
    setup::Setup,
    token::{self as session_token, on_wait},
    transcript,
};
pub use toft_vcs as vcs;
pub use toft_work::{Assigned, LandingDiff, Work, operation, setup::variables, workspaces};
pub use worker::{AgentBuilder, ClaimQuery, Finish, Job, Kept, Worker};
