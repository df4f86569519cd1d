//! Finds, counts and ends the descendants of this process.
//!
//! On Linux, from `/proc`; on other systems only the process group of a command is known.

use std::collections::BTreeSet;
#[cfg(target_os = "linux")]
use std::fs;

/// An overlay workspace may be a mount that this program serves: that process belongs to the workspace, not to an
/// agent.
#[cfg(target_os = "linux")]
const SERVES_MOUNTS: &str = "(fuse-overlayfs";

/// How often the descendants of a process are killed, and the wait each time: at most a second together.
#[cfg(target_os = "linux")]
const KILL_ROUNDS: usize = 100;
#[cfg(target_os = "linux")]
const KILL_PAUSE: std::time::Duration = std::time::Duration::from_millis(10);

/// From now on orphaned descendants become children of this process.
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

/// Every descendant of `root` that is neither in `but` nor a descendant of one of those. With `take_leave`, reaps this
/// process's own children that have ended.
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

/// Kills processes that were started under one of these leases and outlived their runner and slot, because both were
/// killed at the same time. Returns their number.
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

/// The same, except for the attempt to which this process belongs.
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

/// Without `/proc`, nothing is known.
#[cfg(not(target_os = "linux"))]
fn started_by_attempts() -> Vec<(u32, String)> {
    Vec::new()
}

/// A variable in an environment from `/proc`.
#[cfg(target_os = "linux")]
fn word(environ: &str, name: &str) -> Option<String> {
    let mut words = environ.split('\0').filter_map(|word| word.split_once('='));
    words.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
}

/// Every descendant of this process.
pub fn children() -> Vec<u32> {
    #[cfg(target_os = "linux")]
    return below(own_pid(), &[], false).into_iter().filter_map(|pid| u32::try_from(pid.as_raw()).ok()).collect();
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Whether this process has descendants other than `known` and the descendants of those.
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

/// Kills every descendant of this process that is neither in `known` nor a descendant of one of those; returns whether
/// there was any.
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
    /// It has a file or directory of the workspace open.
    pub inside: bool,
}

/// Processes that use a directory or were started by an attempt at a task, as far as `/proc` shows them. This process
/// and its ancestors are excluded, because they act for the agent that gets the directory.
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

/// This process and its ancestors.
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

/// Without `/proc`, nothing is known.
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
