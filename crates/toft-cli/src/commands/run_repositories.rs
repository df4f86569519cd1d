//! The repositories that a runner works in.

use std::{path::PathBuf, time::Duration};

use toft::{Home, Toft, plan::SyncOptions, runner::SUPERVISOR};

use super::App;
use crate::{
    args::Run,
    exit::Failure,
    render::{clean, tell_wait},
};

/// The repositories that are worked in: those that were named, or the one here. The agent of a slot has the slot's name.
pub(super) fn open(app: &App<'_>, args: &Run, slot: Option<&String>) -> Result<Vec<Toft>, Failure> {
    let config = toft::Config { brief: false, ..app.config()? };
    let agent = slot.cloned().or(config.agent.clone());
    let dirs: Vec<Option<PathBuf>> = match args.repositories.is_empty() {
        true if args.clone => {
            if !matches!(
                toft::locate(&toft::Config { dir: Some("/".into()), ..config.clone() }).map(|located| located.store),
                Ok(Home::Remote(_))
            ) {
                return Err(Failure::invalid(
                    "--clone needs a toft server",
                    "toft run --clone --store https://fleet.example …",
                ));
            }
            let whole = toft::Config { dir: Some("/".into()), whole_store: true, ..config.clone() };
            let make = slot.is_none() && std::env::var_os(SUPERVISOR).is_none();
            let clones = Toft::with(whole)?.fleet_clones(make, |what| tell_wait(&clean(what)))?;
            if clones.is_empty() {
                return Err(Failure::nothing(
                    "no repository of this server has an address to clone from",
                    "toft init --clone-url URL, in a clone of it, as a coordinator",
                ));
            }
            clones.into_iter().map(Some).collect()
        }
        true => vec![config.dir.clone()],
        false => args.repositories.iter().map(|dir| Some(config.dir.clone().unwrap_or_default().join(dir))).collect(),
    };
    let mut all: Vec<Toft> = Vec::new();
    for dir in dirs {
        let toft = Toft::with(toft::Config { dir, agent: agent.clone(), ..config.clone() })?;
        let clone = |toft: &Toft| toft.located().checkout.as_ref().map(|checkout| checkout.common_dir.clone());
        // One that was named twice is one.
        if all.iter().all(|known| clone(known) != clone(&toft)) {
            all.push(toft);
        }
    }
    Ok(all)
}

/// Gets what is new for a clone that toft made: the slots begin with it. What does not work now does while they work.
pub(super) fn bring_up_to_date(toft: &Toft) -> Result<(), Failure> {
    if let Err(error) = toft::clones::refresh_clone(toft, Duration::ZERO) {
        tell_wait(&clean(&format!("not up to date: {error}")));
    }
    if let Some(plan) = toft.plan()?
        && let Err(error) = plan.sync(&SyncOptions::default(), |_, _| {})
    {
        tell_wait(&clean(&format!("the ledger is not up to date: {error}")));
    }
    Ok(())
}
