//! The leases of a session: the fence of a claim is stored for the session that claimed, so that people and agents can
//! type `toft finish` without it, and no other session can end the lease.
//!
//! A session is named by `TOFT_SESSION`, or else is a process: the one that runs toft, not counting shells that only
//! run one command. A runner's agent has its fence in `TOFT_TASK` and `TOFT_FENCE`. Every other session has a directory
//! that only its user can read, `fences/AGENT/SESSION`, with an empty file for each lease, whose name is the task and
//! the fence. Listing that one directory is enough for every command, however many leases and sessions there are.

use std::{
    cell::OnceCell,
    fs, io as stdio,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use toft_core::{
    id::TaskId,
    lease::{Fence, Holder, Liveness, Processes as _},
    refusal::Refusal,
    verbs::{claim::Claimed, facts, find},
};
use toft_store::private;

use crate::{
    config::{state_home, variable},
    error::{Error, io},
    machine::Machine,
    session::Session,
};

/// Sessions that may still exist are forgotten after this time: no lease lasts that long without renewal.
const FORGOTTEN: Duration = Duration::from_secs(14 * 86_400);
/// A session looks for ended sessions when it first claims, and again after this time.
const LOOK_FOR_ENDED: Duration = Duration::from_secs(600);
/// The file that identifies the session of a directory. The file names of leases contain a dot; this one does not.
const OWNER: &str = "session";

/// A lease that this session can prove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub task: TaskId,
    pub fence: Fence,
}

impl Held {
    /// The name of its file.
    fn file_name(&self) -> Option<String> {
        let name = format!("{}.{}", self.task, self.fence);
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        (name.bytes().all(plain) && name.len() < 200).then_some(name)
    }

    fn from_file_name(name: &str) -> Option<Self> {
        let (task, fence) = name.split_once('.')?;
        Some(Self { task: TaskId::known(task), fence: fence.parse().ok()? })
    }
}

/// The identity of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ShellSession {
    /// The value of `TOFT_SESSION`.
    Named(String),
    /// A process with all its descendants.
    Process(Holder),
}

/// The owner of a directory of fences.
#[derive(Debug, Serialize, Deserialize)]
struct Owner {
    store: String,
    agent: String,
    session: ShellSession,
    /// The lease of the attempt in which they were claimed: another attempt is another session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<Fence>,
}

impl Owner {
    fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Creates its directory, if missing, and a file for each lease.
    fn keep(&self, dir: &Path, holds: &[Held]) -> Result<KeptSession, Error> {
        let owner = dir.join(OWNER);
        // One that is empty was torn by a crash.
        let whole = fs::metadata(&owner).ok().filter(|seen| seen.len() > 0);
        let is_new = whole.is_none() && !dir.exists();
        let is_first = is_new && !dir.parent().is_some_and(Path::exists);
        let recent = whole.and_then(|seen| age(&seen)).is_some_and(|age| age < LOOK_FOR_ENDED);
        if !recent {
            write_private(&owner, &self.text())?;
        }
        for held in holds {
            let name = held.file_name().ok_or_else(|| io("keep", dir)(stdio::ErrorKind::InvalidFilename.into()))?;
            let path = dir.join(name);
            private::create(&path).map_err(io("write", &path))?;
        }
        Ok(KeptSession { is_new, looks_for_ended: !recent && !is_first })
    }
}

/// A session whose leases were stored.
struct KeptSession {
    /// It had none before.
    is_new: bool,
    /// It has not looked for ended sessions for a while, and there may be some.
    looks_for_ended: bool,
}

impl Session {
    /// Stores the fences of claimed tasks for this session; returns how many it has now. A failure becomes a note beside the
    /// outcome.
    pub fn keep_holds(&self, actor: &str, claims: &[Claimed]) -> usize {
        let held = |claimed: &Claimed| Held { task: claimed.task.id.clone(), fence: claimed.lease.fence() };
        let holds: Vec<Held> = claims.iter().map(held).collect();
        match self.keep(actor, &holds) {
            Ok(session) => {
                if session.looks_for_ended {
                    self.drop_ended_sessions(actor);
                }
                if session.is_new && environment().is_none() {
                    return holds.len();
                }
            }
            Err(error) => {
                for Held { fence, .. } in &holds {
                    self.note(format!(
                        "the fence could not be kept ({error}): add --fence {fence} when you save or finish"
                    ));
                }
            }
        }
        self.session_holds(actor).len()
    }

    fn keep(&self, actor: &str, holds: &[Held]) -> Result<KeptSession, Error> {
        let Some(session) = session(self.machine()) else {
            return Err(io("find", Path::new("this session's process"))(stdio::ErrorKind::NotFound.into()));
        };
        let owner = self.owner(actor, session);
        let dir = self.session_dir(&owner);
        owner.keep(&dir, holds)
    }

    /// Deletes the fence of an ended lease.
    pub fn drop_hold(&self, actor: &str, held: &Held) {
        let Some(name) = held.file_name() else { return };
        for dir in self.own_sessions(actor) {
            // A hold that came from elsewhere has no file.
            if fs::remove_file(dir.join(&name)).is_ok() {
                return;
            }
        }
    }

    /// The key of the store of a lease. The repository's own store has the same key after the repository is moved.
    fn store_key(&self) -> String {
        let located = self.located();
        if located.own_store() { "own".to_owned() } else { located.store.to_string() }
    }

    fn owner(&self, actor: &str, session: ShellSession) -> Owner {
        let attempt = environment().map(|own| own.fence);
        Owner { store: self.store_key(), agent: actor.to_owned(), session, attempt }
    }

    /// The directory of fences. A task that was claimed from a shared store may be worked on in a repository other than
    /// the one in which it was claimed.
    fn state_dir(&self) -> PathBuf {
        match &self.located().checkout {
            Some(checkout) if self.located().own_store() => checkout.state_dir(),
            _ => state_home(),
        }
    }

    /// The directory of one agent's sessions.
    fn agent_dir(&self, actor: &str) -> PathBuf {
        self.state_dir().join("fences").join(digest(actor.as_bytes()))
    }

    fn session_dir(&self, owner: &Owner) -> PathBuf {
        self.agent_dir(&owner.agent).join(digest(&owner.text()))
    }

    /// The directories of the sessions that this process belongs to.
    fn own_sessions(&self, actor: &str) -> Vec<PathBuf> {
        if !self.agent_dir(actor).is_dir() {
            return Vec::new();
        }
        let sessions = match variable("TOFT_SESSION") {
            Some(name) => vec![ShellSession::Named(name)],
            None => self.machine().ancestors().iter().cloned().map(ShellSession::Process).collect(),
        };
        sessions.into_iter().map(|session| self.session_dir(&self.owner(actor, session))).collect()
    }

    /// The leases that this session of `actor` can prove, the one in the environment first.
    pub fn session_holds(&self, actor: &str) -> Vec<Held> {
        let kept = self.own_sessions(actor).into_iter().flat_map(|dir| holds_in(&dir));
        environment().into_iter().chain(kept).collect()
    }

    pub(crate) fn fences(&self, actor: &str) -> Vec<Fence> {
        self.session_holds(actor).into_iter().map(|held| held.fence).collect()
    }

    /// The live leases of this session of `actor`.
    pub fn live_holds(&self, actor: &str) -> Result<Vec<Held>, Error> {
        let mine = self.session_holds(actor);
        if mine.is_empty() {
            return Ok(mine);
        }
        let holds = mine.iter().map(|held| (held.task.clone(), held.fence.clone())).collect();
        let live = self.run(actor, None, facts::LiveLeases { holds })?;
        Ok(mine.into_iter().filter(|held| live.contains(&held.fence)).collect())
    }

    /// Resolves a task and the lease of this session on it: `text` names a task in any way; without it, or with `@`, it
    /// is the task that the session holds. The fence is determined by the task, however that is written.
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
                    let tasks = many.iter().map(|held| held.task.clone()).collect();
                    let candidates = self.run(actor, None, facts::TaskNames { tasks, parts: false })?;
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

    /// The running process of another session of this agent that holds the task.
    pub fn living_session(&self, actor: &str, task: &TaskId) -> Option<u32> {
        let own = self.machine().ancestors();
        sessions_in(&self.agent_dir(actor)).into_iter().find_map(|(dir, owner)| match owner?.session {
            ShellSession::Process(process) if !own.contains(&process) => {
                let holds = holds_in(&dir).iter().any(|held| held.task == *task);
                (holds && self.machine().liveness(&process) == Liveness::Alive).then_some(process.pid)
            }
            _ => None,
        })
    }

    /// Removes the directories of sessions whose process has ended, and those that are too old to be of use.
    fn drop_ended_sessions(&self, actor: &str) {
        for (dir, owner) in sessions_in(&self.agent_dir(actor)) {
            let life = match owner.map(|owner| owner.session) {
                Some(ShellSession::Process(process)) => self.machine().liveness(&process),
                _ => Liveness::Unknown,
            };
            // Another session may be faster; what cannot be removed is looked at again.
            match life {
                Liveness::Alive => {}
                Liveness::Dead => drop(fs::remove_dir_all(dir)),
                Liveness::Unknown if forgotten(&dir) => drop(fs::remove_dir_all(dir)),
                Liveness::Unknown => {
                    for held in holds_in(&dir) {
                        let path = held.file_name().map(|name| dir.join(name));
                        let _ = path.filter(|path| forgotten(path)).map(fs::remove_file);
                    }
                }
            }
        }
    }
}

fn digest(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..12].to_owned()
}

/// The leases in a session's directory.
fn holds_in(dir: &Path) -> Vec<Held> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|entry| Held::from_file_name(entry.file_name().to_str()?)).collect()
}

/// The directories of an agent's sessions, with their owners.
fn sessions_in(dir: &Path) -> Vec<(PathBuf, Option<Owner>)> {
    let dirs = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    let owner = |dir: &Path| serde_json::from_slice(&fs::read(dir.join(OWNER)).ok()?).ok();
    dirs.map(|dir| (dir.clone(), owner(&dir))).collect()
}

/// The age of a file or directory; absent if its time is in the future.
fn age(seen: &fs::Metadata) -> Option<Duration> {
    seen.modified().ok()?.elapsed().ok()
}

fn forgotten(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|seen| age(&seen).is_some_and(|age| age > FORGOTTEN))
}

/// The lease that a runner passed to its agent.
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
fn session(machine: &Machine) -> Option<ShellSession> {
    if let Some(name) = variable("TOFT_SESSION") {
        return Some(ShellSession::Named(name));
    }
    let above = machine.ancestors();
    let words: Vec<OnceCell<Vec<u8>>> = vec![OnceCell::new(); above.len()];
    let words = |n: usize| words.get(n).map(|known| known.get_or_init(|| words_of(above[n].pid)));
    // A shell forks itself for `$(…)` and `(…)`: the same words as its parent, and gone in a moment.
    let forked = |n: usize| words(n).is_some_and(|own| is_shell(own) && words(n + 1) == Some(own));
    let lasting = (0..above.len()).find(|n| !words(*n).is_some_and(|own| passes_on(own)) && !forked(*n));
    lasting.map(|n| &above[n]).or(above.last()).cloned().map(ShellSession::Process)
}

/// The command line of a process; empty if it cannot be read.
fn words_of(pid: u32) -> Vec<u8> {
    #[cfg(target_os = "linux")]
    return crate::machine::proc_file(pid, "cmdline").unwrap_or_default();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = pid;
        Vec::new()
    }
}

/// Whether this is a program that only starts another, or a shell that runs one command: these are not sessions.
fn passes_on(words: &[u8]) -> bool {
    const STARTERS: [&str; 9] = ["env", "timeout", "nice", "nohup", "setsid", "sudo", "time", "xargs", "strace"];
    STARTERS.contains(&program(words).as_str()) || is_shell(words) && carries_out_one_command(words)
}

fn program(words: &[u8]) -> String {
    let first = words.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(first).into_owned();
    name.rsplit('/').next().unwrap_or_default().trim_start_matches('-').to_owned()
}

fn is_shell(words: &[u8]) -> bool {
    ["sh", "bash", "dash", "zsh", "ash", "fish", "ksh"].contains(&program(words).as_str())
}

/// Whether a shell was started with `-c`, among its own options; the arguments of a script are ignored.
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
