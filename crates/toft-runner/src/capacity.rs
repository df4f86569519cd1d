//! Capacities: what there is only so much of on this machine (test databases, devices, accounts), and the units that
//! running attempts hold.
//!
//! A unit is a locked file: it is free again when its slot ends, however it ends.

use std::{collections::BTreeMap, fs};

use toft_session::{
    config::state_home,
    error::{Error, io as failed},
};
use toft_store::private;

/// Tasks with this label and the name of a capacity after it hold a unit of that while they run.
const USES: &str = "uses:";

/// One unit, held.
pub(super) struct CapacityUnit {
    name: String,
    number: u32,
    /// Locked as long as it is open.
    _lock: fs::File,
}

impl CapacityUnit {
    /// The first free unit of a capacity, if there is one.
    fn acquire(name: &str, count: u32) -> Result<Option<Self>, Error> {
        let dir = state_home().join("capacity").join(name);
        private::create_dir_all(&dir).map_err(failed("make", &dir))?;
        for number in 1..=count {
            let path = dir.join(number.to_string());
            let lock = private::options().create(true).truncate(false).write(true).open(&path);
            let lock = lock.map_err(failed("open", &path))?;
            match lock.try_lock() {
                Ok(()) => return Ok(Some(Self { name: name.to_owned(), number, _lock: lock })),
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(cause)) => return Err(failed("lock", &path)(cause)),
            }
        }
        Ok(None)
    }

    /// The variable that tells an agent which unit it holds.
    pub(super) fn variable(&self) -> (String, String) {
        let name = self.name.to_ascii_uppercase().replace('-', "_");
        (format!("TOFT_CAPACITY_{name}"), self.number.to_string())
    }
}

/// A unit of each capacity that has a free one, and the labels of tasks that cannot run now.
#[derive(Default)]
pub(super) struct FreeCapacity {
    pub(super) units: Vec<CapacityUnit>,
    pub(super) without: Vec<String>,
}

impl FreeCapacity {
    /// Takes one unit of each.
    pub(super) fn acquire(capacity: &BTreeMap<String, u32>) -> Result<Self, Error> {
        let mut free = Self::default();
        for (name, count) in capacity {
            match CapacityUnit::acquire(name, *count)? {
                Some(unit) => free.units.push(unit),
                None => free.without.push(format!("{USES}{name}")),
            }
        }
        Ok(free)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.units.iter().any(|unit| unit.name == name)
    }

    /// Releases the units that a task with these labels does not use, and `agent` does not either.
    pub(super) fn keep_for(&mut self, labels: &[String], agent: &str) {
        let uses = |unit: &CapacityUnit| labels.iter().any(|label| label.strip_prefix(USES) == Some(&unit.name));
        self.units.retain(|unit| uses(unit) || unit.name == agent);
    }
}
