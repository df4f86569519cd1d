//! This machine: its name, its boot, and the state of its processes.

use std::{collections::BTreeSet, fs, sync::OnceLock};

use toft_core::lease::{Holder, Liveness, Processes};
use toft_store::clock::{boot_id, names_a_boot};

use crate::config::variable;

/// This machine, as recorded in leases.
#[derive(Clone, Debug)]
pub struct Machine {
    host: String,
    disks: String,
    /// What people call it.
    name: String,
    boot: String,
    /// The store is a file, so every process that ever held a lease in it ran on this machine.
    alone: bool,
    this_process: OnceLock<Option<Holder>>,
    ancestors: OnceLock<Vec<Holder>>,
}

impl Machine {
    /// This machine. `TOFT_HOST` overrides its name.
    ///
    /// A host is one boot of one machine, as seen from one pid and time namespace. Images copy a machine's id; only a
    /// snapshot of a running machine copies the id of a boot.
    pub fn this() -> Self {
        let named = variable("TOFT_HOST");
        let boot = boot_id();
        let namespace = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).unwrap_or_default();
        let (pids, clocks) = (namespace("pid"), namespace("time"));
        let host = digest(&format!("{boot} {} {}", pids.display(), clocks.display()));
        Self {
            name: named.clone().or_else(kernel_name).unwrap_or_default(),
            host: named.clone().unwrap_or(host),
            disks: named.unwrap_or_else(|| digest(&machine_id())),
            boot,
            alone: false,
            this_process: OnceLock::new(),
            ancestors: OnceLock::new(),
        }
    }

    /// The same machine, for a store that only its own processes can reach.
    pub(crate) fn alone(self) -> Self {
        Self { alone: true, ..self }
    }

    /// The id of the machine whose disks are visible.
    pub(crate) fn machine_id(&self) -> &str {
        &self.disks
    }

    /// The process with this id, as the holder of a lease; none if it does not run.
    pub fn holder(&self, pid: u32) -> Option<Holder> {
        let Sight::Started(started) = look(pid) else { return None };
        Some(Holder { host: self.host.clone(), boot: self.boot.clone(), pid, started })
    }

    /// This very process.
    pub fn this_process(&self) -> Option<Holder> {
        self.this_process.get_or_init(|| self.holder(std::process::id())).clone()
    }

    /// The ancestors of this process, nearest first, as they were at the first call: a process stays part of the
    /// session that started it.
    pub(crate) fn ancestors(&self) -> &[Holder] {
        self.ancestors.get_or_init(|| self.processes_above())
    }

    #[cfg(target_os = "linux")]
    fn processes_above(&self) -> Vec<Holder> {
        const MOST: usize = 64;
        let mut above = Vec::new();
        let mut pid = std::os::unix::process::parent_id();
        if !proc_is_ours() {
            return above;
        }
        while pid > 0 && above.len() < MOST && !is_init(pid) {
            let Some((started, parent)) = read_stat(pid).and_then(|stat| Some((stat.started?, stat.parent?))) else {
                break;
            };
            above.push(Holder { host: self.host.clone(), boot: self.boot.clone(), pid, started });
            pid = parent;
        }
        above
    }

    /// Without `/proc`, the session is that of the terminal.
    #[cfg(all(unix, not(target_os = "linux")))]
    fn processes_above(&self) -> Vec<Holder> {
        let leader = nix::unistd::getsid(None).ok().and_then(|pid| u32::try_from(pid.as_raw()).ok());
        leader.and_then(|pid| self.holder(pid)).into_iter().collect()
    }
}

impl Processes for Machine {
    fn host(&self) -> &str {
        &self.host
    }

    fn disks(&self) -> &str {
        &self.disks
    }

    fn machine_name(&self) -> &str {
        &self.name
    }

    fn liveness(&self, holder: &Holder) -> Liveness {
        if holder.boot != self.boot {
            // Without the kernel's own name for a boot, two names may mean the same one.
            let told = names_a_boot(&holder.boot) && names_a_boot(&self.boot);
            return if self.alone && told { Liveness::Dead } else { Liveness::Unknown };
        }
        if holder.host != self.host {
            return Liveness::Unknown;
        }
        match look(holder.pid) {
            Sight::Started(at) if at == holder.started => Liveness::Alive,
            // Another process has its number by now.
            Sight::Started(_) | Sight::Gone => Liveness::Dead,
            Sight::Hidden => Liveness::Unknown,
        }
    }

    fn attempts(&self) -> BTreeSet<String> {
        crate::processes::attempts()
    }
}

/// What is known about a process.
enum Sight {
    /// It runs; with its start time, in the kernel's units.
    Started(u64),
    /// It does not exist. A zombie has ended.
    Gone,
    /// It exists, or may exist, but this process may not see it.
    Hidden,
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

fn kernel_name() -> Option<String> {
    nix::unistd::gethostname().ok().map(|name| name.to_string_lossy().into_owned())
}

/// `/proc` may be that of another pid namespace, or may hide the processes of other users (`hidepid`): what is not in it is
/// gone only if the kernel says so too.
#[cfg(target_os = "linux")]
fn look(pid: u32) -> Sight {
    if !proc_is_ours() {
        return Sight::Hidden;
    }
    match read_stat(pid) {
        None => ask_kernel(pid),
        Some(stat) if stat.ended => Sight::Gone,
        Some(stat) => stat.started.map_or(Sight::Hidden, Sight::Started),
    }
}

/// Whether `/proc` shows the processes of this pid namespace.
#[cfg(target_os = "linux")]
fn proc_is_ours() -> bool {
    let own = fs::read_link("/proc/self").ok().and_then(|link| link.to_str()?.parse::<u32>().ok());
    own == Some(std::process::id())
}

/// The fields of `/proc/PID/stat`.
#[cfg(target_os = "linux")]
struct Stat {
    ended: bool,
    parent: Option<u32>,
    started: Option<u64>,
}

/// The first 4 KB of a file in `/proc`, in one call, because every command reads it.
#[cfg(target_os = "linux")]
pub(crate) fn proc_file(pid: u32, name: &str) -> Option<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = vec![0; 4096];
    let read = fs::File::open(format!("/proc/{pid}/{name}")).and_then(|mut file| file.read(&mut bytes)).ok()?;
    bytes.truncate(read);
    Some(bytes)
}

#[cfg(target_os = "linux")]
fn read_stat(pid: u32) -> Option<Stat> {
    let text = String::from_utf8_lossy(&proc_file(pid, "stat")?).into_owned();
    // The name before the last parenthesis may have spaces and parentheses of its own.
    let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    Some(Stat {
        ended: matches!(fields.next(), Some("Z" | "X")),
        parent: fields.next().and_then(|parent| parent.parse().ok()),
        started: fields.nth(17).and_then(|started| started.parse().ok()),
    })
}

/// Whether this is the init process, which belongs to no session. In a container the first process may be an agent.
#[cfg(target_os = "linux")]
fn is_init(pid: u32) -> bool {
    if pid != 1 {
        return false;
    }
    let name = fs::read_to_string("/proc/1/comm").unwrap_or_default();
    ["systemd", "init", "launchd", "runit", "openrc-init"].contains(&name.trim())
}

#[cfg(target_os = "linux")]
fn ask_kernel(pid: u32) -> Sight {
    let Ok(pid) = i32::try_from(pid) else { return Sight::Gone };
    match nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) {
        Err(nix::errno::Errno::ESRCH) => Sight::Gone,
        _ => Sight::Hidden,
    }
}

/// Without `/proc`, a process is identified only by its id.
#[cfg(all(unix, not(target_os = "linux")))]
fn look(pid: u32) -> Sight {
    let Ok(pid) = i32::try_from(pid) else { return Sight::Gone };
    match nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) {
        Ok(()) | Err(nix::errno::Errno::EPERM) => Sight::Started(0),
        Err(_) => Sight::Gone,
    }
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
        let elsewhere = Holder { host: "far".into(), ..me.clone() };
        assert_eq!(machine.liveness(&elsewhere), Liveness::Unknown);
        let before = Holder { boot: "earlier".into(), ..me };
        assert_eq!(machine.liveness(&before), Liveness::Unknown, "it may be a machine made from the same image");
        assert_eq!(machine.alone().liveness(&before), Liveness::Dead, "no other machine can reach a file");
    }
}
