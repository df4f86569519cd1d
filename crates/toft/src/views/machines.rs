//! Machines: where agents are.

use std::collections::BTreeMap;

use serde::Serialize;
use toft_core::{
    agent::{Presence, Role},
    verbs::agent,
};
use toft_session::Error;

use super::{RepositorySource, RowAction};

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
    /// Whether its agents were paused together.
    pub drained: bool,
    /// Why they were paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub actions: Vec<RowAction>,
}

impl MachineRow {
    fn new(host: &str) -> Self {
        Self { name: host.to_owned(), silent_s: u64::MAX, ..Self::default() }
    }

    fn add(&mut self, listed: agent::Listed) {
        self.silent_s = self.silent_s.min(listed.silent_s);
        // People are not counted.
        if listed.agent.role == Role::Human {
            return;
        }
        self.drained |= listed.agent.drained;
        self.note = self.note.take().or(listed.agent.note.filter(|_| listed.agent.drained));
        *match listed.presence {
            Presence::Working => &mut self.working,
            Presence::Idle => &mut self.idle,
            Presence::Paused => &mut self.paused,
            Presence::Offline | Presence::Removed => &mut self.offline,
        } += 1;
    }

    /// Agents of another store on the same machine.
    fn join(&mut self, other: Self) {
        self.silent_s = self.silent_s.min(other.silent_s);
        self.drained |= other.drained;
        self.note = self.note.take().or(other.note);
        self.working += other.working;
        self.idle += other.idle;
        self.paused += other.paused;
        self.offline += other.offline;
        self.actions.extend(other.actions);
    }
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
            let me = &source.toft.located().agent;
            let mut here: BTreeMap<String, MachineRow> = BTreeMap::new();
            for listed in source.toft.work().act(me, None, agent::List { all: false })? {
                let name = listed.agent.machine_name().to_owned();
                here.entry(name.clone()).or_insert_with(|| MachineRow::new(&name)).add(listed);
            }
            for (host, mut row) in here {
                let action = match row.drained {
                    true => Some(RowAction::resume_machine(&host)),
                    false => (row.working + row.idle > 0).then(|| RowAction::drain(&host)),
                };
                row.actions = RowAction::about(action, &host, source.dir().as_ref());
                machines.entry(host.clone()).or_insert_with(|| MachineRow::new(&host)).join(row);
            }
        }
        let mut rows: Vec<MachineRow> = machines.into_values().collect();
        rows.sort_by_key(|row| (row.silent_s, row.name.clone()));
        Ok(Self { rows })
    }
}
