//! Machines: where agents are.

use std::collections::BTreeMap;

use serde::Serialize;
use toft_core::{agent::Presence, verbs::agent};
use toft_session::Error;

use super::RepositorySource;

/// Every machine on which an agent was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MachinesView {
    pub rows: Vec<MachineRow>,
}

/// One machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MachineRow {
    pub name: String,
    /// Agents by what they do.
    pub working: usize,
    pub idle: usize,
    pub paused: usize,
    pub offline: usize,
    /// Seconds since the last sign of life of any of them.
    pub silent_s: u64,
}

impl MachinesView {
    /// Looks at the stores of repositories.
    pub fn of(sources: &[RepositorySource<'_>]) -> Result<Self, Error> {
        let mut machines: BTreeMap<String, MachineRow> = BTreeMap::new();
        let mut stores = Vec::new();
        for source in sources {
            let store = source.toft.located().store.to_string();
            if stores.contains(&store) {
                continue;
            }
            stores.push(store);
            for listed in source.toft.work().act(&source.toft.located().agent, None, agent::List { all: false })? {
                let host = listed.agent.host.clone();
                let new = || MachineRow { name: host.clone(), silent_s: u64::MAX, ..MachineRow::default() };
                let row = machines.entry(host.clone()).or_insert_with(new);
                row.silent_s = row.silent_s.min(listed.silent_s);
                *match listed.presence {
                    Presence::Working => &mut row.working,
                    Presence::Idle => &mut row.idle,
                    Presence::Paused => &mut row.paused,
                    Presence::Offline | Presence::Removed => &mut row.offline,
                } += 1;
            }
        }
        let mut rows: Vec<MachineRow> = machines.into_values().collect();
        rows.sort_by_key(|row| (row.silent_s, row.name.clone()));
        Ok(Self { rows })
    }
}
