//! This machine: its name, its boot, and which of its processes live.

use std::{fs, sync::OnceLock};

use toft_core::lease::{Holder, Liveness, Processes};
use toft_store::clock::boot_id;

use crate::config::variable;

/// This machine, as leases know it.
#[derive(Clone, Debug)]
pub struct Machine {
    host: String,
    disks: String,
    boot: String,
    this_process: OnceLock<Option<Holder>>,
}

impl Machine {
    /// This machine. `TOFT_HOST` gives it another name.
    pub fn this() -> Self {
        let named = variable("TOFT_HOST");
        let namespace = fs::read_link("/proc/self/ns/pid").map(|link| link.to_string_lossy().into_owned());
        let id = machine_id();
        Self {
            // Pids of another namespace mean nothing here; its disks may well.
            host: named.clone().unwrap_or_else(|| digest(&format!("{id}{}", namespace.unwrap_or_default()))),
            disks: named.unwrap_or_else(|| digest(&id)),
            boot: boot_id(),
            this_process: OnceLock::new(),
        }
    }

    /// The process with this id, as a lease's holder; nothing if it does not run.
    pub fn holder(&self, pid: u32) -> Option<Holder> {
        let started = started(pid)?;
        Some(Holder { host: self.host.clone(), boot: self.boot.clone(), pid, started })
    }

    /// This very process.
    pub fn this_process(&self) -> Option<Holder> {
        self.this_process.get_or_init(|| self.holder(std::process::id())).clone()
    }
}

impl Processes for Machine {
    fn host(&self) -> &str {
        &self.host
    }

    fn disks(&self) -> &str {
        &self.disks
    }

    fn liveness(&self, holder: &Holder) -> Liveness {
        if holder.host != self.host {
            Liveness::Elsewhere
        } else if holder.boot == self.boot && started(holder.pid) == Some(holder.started) {
            Liveness::Alive
        } else {
            Liveness::Dead
        }
    }
}

/// The machine's id.
fn machine_id() -> String {
    ["/etc/machine-id", "/var/lib/dbus/machine-id"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
        .map(|id| id.trim().to_owned())
        .filter(|id| !id.is_empty())
        .or_else(kernel_name)
        .unwrap_or_else(|| "this-machine".into())
}

fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..12].to_owned()
}

#[cfg(unix)]
fn kernel_name() -> Option<String> {
    nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned())
}

#[cfg(not(unix))]
fn kernel_name() -> Option<String> {
    variable("COMPUTERNAME")
}

/// When a process started, in the kernel's own units; nothing if it is over. A zombie is over.
#[cfg(target_os = "linux")]
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

/// Without `/proc` a process is known only by its id.
#[cfg(all(unix, not(target_os = "linux")))]
fn started(pid: u32) -> Option<u64> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).ok()?);
    match nix::sys::signal::kill(pid, None) {
        Ok(()) | Err(nix::errno::Errno::EPERM) => Some(0),
        Err(_) => None,
    }
}

#[cfg(not(unix))]
fn started(_pid: u32) -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_one_that_ended_does_not() {
        let machine = Machine::this();
        let me = machine.this_process().unwrap();
        assert_eq!(machine.liveness(&me), Liveness::Alive);
        let reused = Holder { started: me.started + 1, ..me.clone() };
        assert_eq!(machine.liveness(&reused), Liveness::Dead);
        let elsewhere = Holder { host: "far".into(), ..me };
        assert_eq!(machine.liveness(&elsewhere), Liveness::Elsewhere);
    }
}
