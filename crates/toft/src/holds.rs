//! The holds of a session: a claim's fence is kept for the session that claimed, so that people and agents type
//! `toft finish` and no other session can.
//!
//! A session is what `TOFT_SESSION` names, or else a process: the one that runs toft, not counting shells that only carry
//! out one command. A runner's agent has its fence in `TOFT_TASK` and `TOFT_FENCE`. Everybody else's is in a file that only
//! its user can read, and that only the session's own processes are answered from.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use toft_core::{
    id::TaskId,
    lease::{Fence, Holder, Liveness, Processes as _},
    refusal::Refusal,
    store::{self, LeasesOf},
    verbs::{claim::Claimed, find},
};
use toft_store::private;

use crate::{
    config::{state_home, variable},
    error::{Error, io},
    machine::Machine,
    session::Toft,
};

/// A hold's file is removed after so long: no lease lasts without its session.
const FORGOTTEN: Duration = Duration::from_secs(14 * 86_400);

/// A hold that this session can prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The task.
    pub task: TaskId,
    /// The fence of the hold.
    pub fence: Fence,
}

/// A session, as long as one lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Session {
    /// What `TOFT_SESSION` said.
    Named(String),
    /// A process with everything it starts.
    Process(Holder),
}

/// One file: a hold, and whose it is.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    store: String,
    agent: String,
    task: TaskId,
    fence: Fence,
    session: Session,
    /// The hold of the attempt in which it was claimed: another attempt is another session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<Fence>,
}

fn agents_dir(state: &Path, actor: &str) -> PathBuf {
    let name = blake3::hash(actor.as_bytes()).to_hex();
    state.join("holds").join(&name[..12])
}

impl Toft {
    /// Keeps the fences of what was claimed for this session. What cannot be kept is told beside the outcome.
    pub fn keep_holds(&self, actor: &str, claims: &[Claimed]) {
        self.drop_ended_sessions(actor);
        for claimed in claims {
            if let Err(error) = self.keep_hold(actor, claimed) {
                let fence = claimed.lease.fence();
                self.note(format!(
                    "the fence could not be kept ({error}): add --fence {fence} when you save or finish"
                ));
            }
        }
    }

    fn keep_hold(&self, actor: &str, claimed: &Claimed) -> Result<(), Error> {
        let Some(session) = session(self.machine()) else {
            return Err(io("find", Path::new("this session's process"))(std::io::ErrorKind::NotFound.into()));
        };
        let fence = claimed.lease.fence();
        let path = self.holds_dir(actor).join(fence.id.as_str());
        let (store, agent, task) = (self.store_key(), actor.to_owned(), claimed.task.id.clone());
        let attempt = environment().map(|own| own.fence);
        let text = serde_json::to_vec(&Kept { store, agent, task, fence, session, attempt }).unwrap_or_default();
        write_private(&path, &text)
    }

    /// Forgets the fence of a hold that is over.
    pub(crate) fn drop_hold(&self, actor: &str, fence: &Fence) {
        // A hold that came from elsewhere has no file.
        for dir in [self.holds_dir(actor), self.holds_dir_here(actor)] {
            let _ = fs::remove_file(dir.join(fence.id.as_str()));
        }
    }

    /// Which store a hold is in. The repository's own stays the same when the repository is moved.
    fn store_key(&self) -> String {
        let located = self.located();
        if located.own_store() { "own".to_owned() } else { located.store.to_string() }
    }

    /// Each agent has a directory of its own, so that what a command reads does not grow with the fleet.
    /// What is claimed from a store that repositories share may be worked on in another one than it was claimed in.
    fn holds_dir(&self, actor: &str) -> PathBuf {
        match self.located().own_store() {
            true => self.holds_dir_here(actor),
            false => agents_dir(&state_home(), actor),
        }
    }

    /// The same beside the repository.
    fn holds_dir_here(&self, actor: &str) -> PathBuf {
        let state = self.located().checkout.as_ref().map(toft_vcs::Checkout::state_dir);
        agents_dir(&state.unwrap_or_else(state_home), actor)
    }

    fn kept(&self, actor: &str) -> Vec<(PathBuf, Kept)> {
        let mut dirs = vec![self.holds_dir(actor), self.holds_dir_here(actor)];
        dirs.dedup();
        let entries = dirs.into_iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten();
        let read = |path: PathBuf| {
            let kept = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
            Some((path, kept))
        };
        entries.filter_map(|entry| read(entry.path())).collect()
    }

    /// The holds that this session of `actor` can prove, that of the environment first.
    pub fn session_holds(&self, actor: &str) -> Vec<Held> {
        let mut holds: Vec<Held> = environment().into_iter().collect();
        let kept = self.kept(actor);
        if kept.is_empty() {
            return holds;
        }
        let store = self.store_key();
        let above = ancestors(self.machine());
        let named = variable("TOFT_SESSION");
        let attempt = environment().map(|own| own.fence);
        for (_, kept) in kept {
            let own = match &kept.session {
                Session::Named(name) => named.as_ref() == Some(name),
                Session::Process(process) => named.is_none() && above.contains(process),
            };
            if own && kept.agent == actor && kept.store == store && kept.attempt == attempt {
                holds.push(Held { task: kept.task, fence: kept.fence });
            }
        }
        holds
    }

    pub(crate) fn fences(&self, actor: &str) -> Vec<Fence> {
        self.session_holds(actor).into_iter().map(|held| held.fence).collect()
    }

    /// What this session of `actor` holds now.
    pub(crate) fn live_holds(&self, actor: &str) -> Result<Vec<Held>, Error> {
        let mine = self.session_holds(actor);
        if mine.is_empty() {
            return Ok(mine);
        }
        let live = store::ask(self.store(), |tx| match tx.agent_named(actor)? {
            Some(agent) => tx.leases(&LeasesOf::Agent(agent.id)),
            None => Ok(Vec::new()),
        })?;
        Ok(mine.into_iter().filter(|held| live.iter().any(|lease| lease.fence == held.fence)).collect())
    }

    /// Which task is meant, and under which hold of this session: `text` names a task in any way, nothing or `@` the one
    /// that the session holds. The fence follows from the task, however that is spelled.
    pub fn hold_of(&self, actor: &str, text: Option<&str>) -> Result<(Option<String>, Option<Fence>), Error> {
        let mine = self.session_holds(actor);
        let Some(text) = text.filter(|text| *text != "@") else {
            let own = environment().or(match mine.as_slice() {
                [one] => Some(one.clone()),
                _ => None,
            });
            if let Some(held) = own {
                return Ok((Some(held.task.to_string()), Some(held.fence)));
            }
            return match self.live_holds(actor)?.as_slice() {
                [] => Ok((None, mine.last().map(|held| held.fence.clone()))),
                [one] => Ok((Some(one.task.to_string()), Some(one.fence.clone()))),
                many => {
                    let candidates = many.iter().map(|held| held.task.to_string()).collect();
                    Err(Refusal::Ambiguous { text: "@".into(), candidates }.into())
                }
            };
        };
        let task = self.run(actor, None, find::TaskNamed { text: text.to_owned() })?;
        let held = mine.iter().find(|held| held.task == task);
        // Of several holds of one session on one task the newest is meant; that of the environment goes before.
        let newest = mine.iter().filter(|held| held.task == task).max_by_key(|held| held.fence.number);
        let from_environment = environment().is_some_and(|own| own.task == task);
        let fence = if from_environment { held } else { newest }.map(|held| held.fence.clone());
        Ok((Some(task.to_string()), fence))
    }

    /// The process of a session that still runs and holds a task under this name.
    pub(crate) fn living_session(&self, actor: &str, task: &TaskId) -> Option<u32> {
        let own = ancestors(self.machine());
        self.kept(actor).into_iter().find_map(|(_, kept)| match kept.session {
            Session::Process(process) if kept.task == *task && kept.agent == actor && !own.contains(&process) => {
                (self.machine().liveness(&process) == Liveness::Alive).then_some(process.pid)
            }
            _ => None,
        })
    }

    /// Files of sessions whose process has ended, or that nobody used for long, are of no use to anybody.
    fn drop_ended_sessions(&self, actor: &str) {
        for (path, kept) in self.kept(actor) {
            let ended = match &kept.session {
                Session::Process(process) => self.machine().liveness(process) == Liveness::Dead,
                Session::Named(_) => false,
            };
            let written = fs::metadata(&path).and_then(|seen| seen.modified()).ok();
            let old = written.and_then(|at| at.elapsed().ok()).is_some_and(|age| age > FORGOTTEN);
            if ended || old {
                // Another session may have been faster.
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// The hold that a runner gave its agent.
fn environment() -> Option<Held> {
    let (task, fence) = (variable("TOFT_TASK")?, variable("TOFT_FENCE")?);
    Some(Held { task: TaskId::known(task), fence: fence.parse().ok()? })
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(path: &Path, text: &[u8]) -> Result<(), Error> {
    if let Some(dir) = path.parent() {
        private::create_dir_all(dir).map_err(io("make", dir))?;
    }
    private::write(path, text).map_err(io("write", path))
}

/// The session that this process belongs to.
fn session(machine: &Machine) -> Option<Session> {
    if let Some(name) = variable("TOFT_SESSION") {
        return Some(Session::Named(name));
    }
    let above = ancestors(machine);
    // A shell forks itself for `$(…)` and `(…)`: the same words as its parent, and gone in a moment.
    let forked = |n: usize| above.get(n + 1).is_some_and(|parent| same_words(above[n].pid, parent.pid));
    let lasting = (0..above.len()).find(|n| !passes_on(above[*n].pid) && !forked(*n));
    lasting.map(|n| &above[n]).or(above.last()).cloned().map(Session::Process)
}

#[cfg(target_os = "linux")]
fn same_words(pid: u32, parent: u32) -> bool {
    let words = |pid: u32| fs::read(format!("/proc/{pid}/cmdline")).ok().filter(|words| !words.is_empty());
    words(pid).is_some_and(|own| is_shell(&own) && words(parent) == Some(own))
}

#[cfg(not(target_os = "linux"))]
fn same_words(_pid: u32, _parent: u32) -> bool {
    false
}

/// Programs that only start another, and shells that carry out one command, are nobody's session.
#[cfg(target_os = "linux")]
fn passes_on(pid: u32) -> bool {
    const STARTERS: [&str; 9] = ["env", "timeout", "nice", "nohup", "setsid", "sudo", "time", "xargs", "strace"];
    let Ok(words) = fs::read(format!("/proc/{pid}/cmdline")) else { return false };
    STARTERS.contains(&program(&words).as_str()) || is_shell(&words) && carries_out_one_command(&words)
}

#[cfg(target_os = "linux")]
fn program(words: &[u8]) -> String {
    let first = words.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(first).into_owned();
    name.rsplit('/').next().unwrap_or_default().trim_start_matches('-').to_owned()
}

#[cfg(target_os = "linux")]
fn is_shell(words: &[u8]) -> bool {
    ["sh", "bash", "dash", "zsh", "ash", "fish", "ksh"].contains(&program(words).as_str())
}

/// Whether a shell was given its command with `-c`, among its own options: what a script is given is not looked at.
#[cfg(target_os = "linux")]
fn carries_out_one_command(words: &[u8]) -> bool {
    let mut words = words.split(|byte| *byte == 0).skip(1);
    while let Some(word) = words.next().filter(|word| word.starts_with(b"-") || word.starts_with(b"+")) {
        match word {
            b"-o" | b"+o" | b"-O" | b"+O" | b"--rcfile" | b"--init-file" => drop(words.next()),
            _ if word.starts_with(b"--") => {}
            _ if word.contains(&b'c') => return true,
            _ => {}
        }
    }
    false
}

/// In a container the first process may be an agent; on a machine it is everybody's.
#[cfg(target_os = "linux")]
fn is_init(pid: u32) -> bool {
    let name = fs::read_to_string("/proc/1/comm").unwrap_or_default();
    pid == 1 && ["systemd", "init", "launchd", "runit", "openrc-init"].contains(&name.trim())
}

/// The processes above this one, the nearest first.
#[cfg(target_os = "linux")]
fn ancestors(machine: &Machine) -> Vec<Holder> {
    const MOST: usize = 64;
    let mut above = Vec::new();
    let mut pid = std::os::unix::process::parent_id();
    while pid > 0 && above.len() < MOST && !is_init(pid) {
        let Some(process) = machine.holder(pid) else { break };
        above.push(process);
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1)?.parse().ok());
        pid = parent.unwrap_or(0);
    }
    above
}

/// Without `/proc` the session is that of the terminal.
#[cfg(all(unix, not(target_os = "linux")))]
fn ancestors(machine: &Machine) -> Vec<Holder> {
    let leader = nix::unistd::getsid(None).ok().and_then(|pid| u32::try_from(pid.as_raw()).ok());
    leader.and_then(|pid| machine.holder(pid)).into_iter().collect()
}

#[cfg(all(unix, not(target_os = "linux")))]
fn passes_on(_pid: u32) -> bool {
    false
}

#[cfg(not(unix))]
fn ancestors(_machine: &Machine) -> Vec<Holder> {
    Vec::new()
}

#[cfg(not(unix))]
fn passes_on(_pid: u32) -> bool {
    false
}
