//! Every process below this one: found, counted, ended.
//!
//! On Linux, from `/proc`; elsewhere there is only the group of a command.

use std::collections::BTreeSet;
#[cfg(target_os = "linux")]
use std::fs;

/// A workspace of an ordinary user may be a mount that a process serves: it belongs to the workspace, not to an agent.
#[cfg(target_os = "linux")]
const SERVES_MOUNTS: &str = "(fuse-overlayfs";

/// How often what is below a process is killed, and how long each time is waited: at most a second together.
#[cfg(target_os = "linux")]
const KILL_ROUNDS: usize = 100;
#[cfg(target_os = "linux")]
const KILL_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// From now on what is left behind by its parent becomes this process's own child.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        // Very old kernels; the group is ended all the same.
        debug_assert_eq!(error, nix::errno::Errno::EINVAL);
    }
}

/// Whether nothing is left to be ended; of what has ended, leave is taken.
pub fn nobody_left() -> bool {
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(nix::errno::Errno::ECHILD) => return true,
            Ok(WaitStatus::StillAlive) | Err(_) => return left_behind().is_empty(),
            Ok(_) => {}
        }
    }
}

/// Kills every descendant process that outlived its parent.
pub fn kill_left_behind() {
    for pid in left_behind() {
        // It may have ended in this moment.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}

/// Every process below this one.
#[cfg(target_os = "linux")]
pub fn left_behind() -> Vec<nix::unistd::Pid> {
    below(own_pid(), &[], false)
}

#[cfg(target_os = "linux")]
fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

/// Every process below `root` that is neither in `but` nor below one of those. If told so, takes leave of this process's
/// own children that ended.
#[cfg(target_os = "linux")]
fn below(root: i32, but: &[i32], take_leave: bool) -> Vec<nix::unistd::Pid> {
    use nix::{sys::wait, unistd::Pid};
    let me = own_pid();
    let mut all = Vec::new();
    for (pid, stat) in processes("stat") {
        let Some((name, rest)) = stat.rsplit_once(')') else { continue };
        if name.ends_with(SERVES_MOUNTS) {
            continue;
        }
        let mut fields = rest.split_ascii_whitespace();
        let over = matches!(fields.next(), Some("Z" | "X"));
        let Some(Ok(parent)) = fields.next().map(str::parse::<i32>) else { continue };
        match over {
            false => all.push((pid, parent)),
            true if take_leave && parent == me && !but.contains(&pid) => {
                // Nobody wants to know how it ended.
                let _ = wait::waitpid(Pid::from_raw(pid), Some(wait::WaitPidFlag::WNOHANG));
            }
            true => {}
        }
    }
    let mut below = vec![root];
    let mut next = 0;
    while let Some(parent) = below.get(next).copied() {
        below.extend(all.iter().filter(|(pid, of)| *of == parent && !but.contains(pid)).map(|(pid, _)| *pid));
        next += 1;
    }
    below.into_iter().skip(1).map(Pid::from_raw).collect()
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn left_behind() -> Vec<nix::unistd::Pid> {
    Vec::new()
}

/// A file of every process in `/proc`; those that end meanwhile are left out.
#[cfg(target_os = "linux")]
fn processes(file: &str) -> Vec<(i32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).ok()?;
        Some((pid, String::from_utf8_lossy(&bytes).into_owned()))
    })
    .collect()
}

/// Kills what runners started under one of these leases and could not end, because they and their slots were killed at
/// one stroke. Gives how many there were.
pub fn end_stragglers(leases: &[String]) -> usize {
    let found: Vec<u32> =
        started_by_attempts().into_iter().filter(|(_, lease)| leases.contains(lease)).map(|(pid, _)| pid).collect();
    kill_processes(&found);
    found.len()
}

/// Leases under which processes were started that still run.
pub fn attempts() -> BTreeSet<String> {
    started_by_attempts().into_iter().map(|(_, lease)| lease).collect()
}

/// The same, but for the attempt that this process belongs to itself.
pub fn attempts_of_others() -> BTreeSet<String> {
    let mut attempts = attempts();
    if let Ok(own) = std::env::var(crate::person::MARK) {
        attempts.remove(&own);
    }
    attempts
}

/// Processes that runners started, each with the lease it was started under.
#[cfg(target_os = "linux")]
fn started_by_attempts() -> Vec<(u32, String)> {
    let found = processes("environ").into_iter();
    found.filter_map(|(pid, environ)| Some((u32::try_from(pid).ok()?, word(&environ, crate::person::MARK)?))).collect()
}

/// Without `/proc` nothing is known.
#[cfg(not(target_os = "linux"))]
fn started_by_attempts() -> Vec<(u32, String)> {
    Vec::new()
}

/// A variable of an environment, as `/proc` shows it.
#[cfg(target_os = "linux")]
fn word(environ: &str, name: &str) -> Option<String> {
    let mut words = environ.split('\0').filter_map(|word| word.split_once('='));
    words.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
}

/// Every process below this one now.
pub fn children() -> Vec<u32> {
    #[cfg(target_os = "linux")]
    return below(own_pid(), &[], false).into_iter().filter_map(|pid| u32::try_from(pid.as_raw()).ok()).collect();
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Whether anything is below this process but what is in `known`, or below that.
pub fn any_children_but(known: &[u32]) -> bool {
    #[cfg(target_os = "linux")]
    {
        let known: Vec<i32> = known.iter().filter_map(|pid| i32::try_from(*pid).ok()).collect();
        !below(own_pid(), &known, true).is_empty()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = known;
        false
    }
}

/// Kills every process below this one that is neither one of `known` nor below one of them; gives whether there was any.
pub fn end_children_but(known: &[u32]) -> bool {
    #[cfg(target_os = "linux")]
    {
        let known: Vec<i32> = known.iter().filter_map(|pid| i32::try_from(*pid).ok()).collect();
        let found = below(own_pid(), &known, true);
        for pid in &found {
            // It may have ended in this moment.
            let _ = nix::sys::signal::kill(*pid, nix::sys::signal::Signal::SIGKILL);
        }
        !found.is_empty()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = known;
        false
    }
}

/// Kills a child of this process with everything below it, whether it answers, hangs or is stopped. What is below goes
/// first: the lease of a slot follows the slot, so nobody is given its task before its agent is gone.
pub fn kill_tree(pid: u32) {
    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };
    let Ok(root) = i32::try_from(pid) else { return };
    // One that ended in this moment needs none of it.
    let _ = kill(Pid::from_raw(root), Signal::SIGSTOP);
    #[cfg(target_os = "linux")]
    for _ in 0..KILL_ROUNDS {
        let found = below(root, &[], false);
        if found.is_empty() {
            break;
        }
        for pid in found {
            let _ = kill(pid, Signal::SIGKILL);
        }
        std::thread::sleep(KILL_PAUSE);
    }
    let _ = kill(Pid::from_raw(root), Signal::SIGKILL);
    // Where only groups are known, a slot leads one.
    let _ = kill(Pid::from_raw(-root), Signal::SIGKILL);
}

/// A process that has to do with a workspace.
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// The task and lease of the attempt that started it.
    pub attempt: Option<(String, String)>,
    /// It has something open in the workspace.
    pub inside: bool,
}

/// Processes that are in a directory or were started by an attempt at a task, as far as `/proc` shows them. This process
/// and those above it ask on behalf of whoever is handed the directory.
#[cfg(target_os = "linux")]
pub fn processes_about(dir: &std::path::Path, task: &str) -> Vec<Process> {
    let asking = above();
    let holders = toft_vcs::workspace::holders(dir);
    let mut found = Vec::new();
    for (pid, stat) in processes("stat") {
        let serves = stat.rsplit_once(')').is_some_and(|(name, _)| name.ends_with(SERVES_MOUNTS));
        let over = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']));
        if asking.contains(&pid) || serves || over {
            continue;
        }
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let environ = String::from_utf8_lossy(&environ);
        let lease = word(&environ, crate::person::MARK);
        let attempt = lease.and_then(|lease| Some((word(&environ, "TOFT_TASK")?, lease)));
        let inside = u32::try_from(pid).is_ok_and(|pid| holders.contains(&pid));
        if inside || attempt.as_ref().is_some_and(|(of, _)| of == task) {
            found.extend(u32::try_from(pid).ok().map(|pid| Process { pid, attempt, inside }));
        }
    }
    found
}

/// This process and all above it.
#[cfg(target_os = "linux")]
fn above() -> Vec<i32> {
    let mut chain = vec![own_pid()];
    while let Some(pid) = chain.last().copied().filter(|pid| *pid > 1) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        match parent {
            Some(parent) => chain.push(parent),
            None => break,
        }
    }
    chain
}

/// Without `/proc` nothing is known.
#[cfg(not(target_os = "linux"))]
pub(crate) fn processes_about(_dir: &std::path::Path, _task: &str) -> Vec<Process> {
    Vec::new()
}

/// Kills processes.
pub fn kill_processes(pids: &[u32]) {
    for pid in pids.iter().filter_map(|pid| i32::try_from(*pid).ok()) {
        // It may have ended in this moment.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
}
