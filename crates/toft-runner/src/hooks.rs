//! Hooks of coding agents: a session begins, gets a prompt, stops, ends.
//!
//! A harness calls `toft hook` at these times. Everything here is quick, and a failure must not disturb the harness.

use std::{
    collections::BTreeSet,
    fs,
    ops::Deref,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use toft_core::{
    agent::{AgentState, readable_name},
    checkpoint::CheckpointKind,
    id::{IdGenerator, TaskId},
    message::InboxItem,
    refusal::Refusal,
    text::named,
    verbs::{agent, context, finish, inbox, renew, save},
};
use toft_session::{
    config::variable,
    error::{Error, io},
    holds::Held,
    person::MARK,
};
use toft_work::Work;

use crate::{
    briefing::{Briefing, Here, letter},
    process::harness_process,
};

/// Minimum interval between heartbeats.
const BEAT: Duration = Duration::from_secs(30);
/// Minimum interval between checks for messages after tool calls.
const LOOK: Duration = Duration::from_secs(1);
/// The state of a session is deleted after this time.
const FORGET: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Token budget of a task's context when a session continues after its own context was compacted.
const AGAIN: usize = 4_000;
/// Maximum number of messages that are delivered at once.
const LETTERS: usize = 10;

/// Start of an automatic checkpoint.
const CUT: &str = "The session's context was cut here; ";

/// The event for which a harness calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookEvent {
    /// A session begins or continues.
    Start,
    /// The user sends a prompt.
    Prompt,
    /// Tools were used.
    Tools,
    /// The context is about to be compacted.
    Compact,
    /// The agent is about to stop.
    Stop,
    /// The session ends.
    End,
}

impl HookEvent {
    /// The event with this name; the names differ between harnesses.
    pub fn from_word(word: &str) -> Option<Self> {
        let plain: String = word.chars().filter(char::is_ascii_alphanumeric).collect();
        Some(match plain.to_ascii_lowercase().as_str() {
            "sessionstart" | "sessioncreated" => Self::Start,
            "userpromptsubmit" | "userpromptsubmitted" | "beforesubmitprompt" | "beforeagent" | "prompt" => {
                Self::Prompt
            }
            "posttoolbatch" | "posttooluse" | "aftertool" | "tools" => Self::Tools,
            "precompact" | "precompress" | "compact" => Self::Compact,
            "stop" | "agentstop" | "afteragent" | "sessionidle" => Self::Stop,
            "sessionend" | "sessiondeleted" | "end" => Self::End,
            _ => return None,
        })
    }
}

/// The input of a harness, and the environment of the call. [`Hooks`] asks for nothing else about the outside.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub session: String,
    /// How it begins or why it ends.
    pub source: String,
    /// It continues because a hook asked for it.
    pub again: bool,
    pub harness: String,
    pub process: Option<u32>,
    /// Commands of the session know their agent name.
    pub known: bool,
    /// The task for which a runner started the session.
    pub task: Option<String>,
    /// A runner started the session, or a process above it.
    pub in_attempt: bool,
    /// The time of the call, in milliseconds since 1970.
    pub at: u64,
}

impl Heard {
    /// A call now, from the environment of this process; the harness said nothing yet.
    pub fn here() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            process: harness_process(),
            task: variable("TOFT_TASK"),
            in_attempt: std::env::var_os(MARK).is_some(),
            at: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            ..Self::default()
        }
    }
}

/// The reply to a harness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Context for the agent.
    pub context: Option<String>,
    /// Why it should not stop yet.
    pub hold_on: Option<String>,
}

/// The state of a session between two calls.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SessionMemory {
    /// When it last sent a heartbeat and checked for messages, in milliseconds since 1970.
    beat: u64,
    looked: u64,
    /// Leases of which it was reminded.
    reminded: BTreeSet<String>,
    /// Delivered messages that need an acknowledgement.
    given: BTreeSet<String>,
}

/// The agent name of a session without a given name: readable, and always the same. On a server it begins with that of the
/// token's owner.
pub fn session_name(owner: Option<&str>, session: &str) -> String {
    let mut stream = blake3::Hasher::new().update(session.as_bytes()).finalize_xof();
    let name = readable_name(&mut IdGenerator::new(move |bytes| stream.fill(bytes)));
    match owner {
        Some(owner) => format!("{owner}-{name}"),
        None => name,
    }
}

/// Handles the calls of a harness.
#[derive(Clone, Copy)]
pub struct Hooks<'s> {
    work: Work<'s>,
}

impl<'s> Hooks<'s> {
    /// Hooks in that session.
    pub fn of(work: Work<'s>) -> Self {
        Self { work }
    }
}

impl<'s> Deref for Hooks<'s> {
    type Target = Work<'s>;

    fn deref(&self) -> &Work<'s> {
        &self.work
    }
}

impl Hooks<'_> {
    /// Handles an event.
    pub fn hook(&self, actor: &str, moment: HookEvent, heard: &Heard) -> Result<Reply, Error> {
        match moment {
            HookEvent::Start => self.session_starts(actor, heard),
            HookEvent::Prompt => self.session_hears(actor, heard, Duration::ZERO),
            HookEvent::Tools => self.session_hears(actor, heard, LOOK),
            HookEvent::Compact => self.session_is_cut(actor),
            HookEvent::Stop => self.session_stops(actor, heard),
            HookEvent::End => self.session_ends(actor, heard),
        }
    }

    fn session_starts(&self, actor: &str, heard: &Heard) -> Result<Reply, Error> {
        let known = self.perform_as(actor, None, agent::Mine {})?;
        // What runs the agent of a runner is the runner.
        let runtime = Some(heard.harness.clone()).filter(|name| !name.is_empty() && !heard.in_attempt);
        // Registering would resume it: an agent that was paused stays paused, whatever happens to its session.
        if known.is_none_or(|known| known.agent.state != AgentState::Draining) {
            let name = Some(actor.to_owned());
            self.perform_as(actor, None, agent::Register { name, runtime, ..agent::Register::default() })?;
        }
        self.forget_sessions();
        self.name_process(actor, heard)?;
        let context = match &heard.task {
            // A runner has briefed it already; only what it has forgotten is said again.
            Some(_) if heard.source == "startup" => None,
            Some(task) => {
                let here = self.workspace_here()?.map(|found| found.workspace);
                let here = here.as_ref().map(|workspace| Here { workspace, notes: &[] });
                Some(Briefing::of(self.work).context(actor, task, here, AGAIN)?)
            }
            None => {
                let text = Briefing::of(self.work).prime(actor, true)?.text;
                Some(match heard.known {
                    true => text,
                    false => {
                        format!("{text}\nSay `--as {actor}` with every toft command, or set TOFT_AGENT={actor}.\n")
                    }
                })
            }
        };
        Ok(Reply { context, hold_on: None })
    }

    /// Sends a heartbeat, and returns new messages.
    fn session_hears(&self, actor: &str, heard: &Heard, every: Duration) -> Result<Reply, Error> {
        let mut memory = self.remember(heard);
        if !due(memory.looked, heard.at, every) {
            return Ok(Reply::default());
        }
        memory.looked = heard.at;
        let mut unmarked = false;
        if due(memory.beat, heard.at, BEAT) {
            memory.beat = heard.at;
            // A refused renewal marks nobody, and taking messages would register an unknown agent.
            unmarked = !self.renew_all(actor)? && self.is_registered(actor)?;
        }
        let context = self.letters_for(actor, heard, &mut memory, unmarked)?;
        let kept = self.keep_in_mind(heard, &memory);
        // Messages that were taken are delivered now or never.
        if context.is_none() {
            kept?;
        }
        Ok(Reply { context, hold_on: None })
    }

    /// Takes new messages. With `mark`, the inbox is read for writing in any case, which marks the agent as seen.
    fn letters_for(
        &self,
        actor: &str,
        heard: &Heard,
        memory: &mut SessionMemory,
        mark: bool,
    ) -> Result<Option<String>, Error> {
        let new = |letters: Vec<InboxItem>, memory: &SessionMemory| -> Vec<InboxItem> {
            letters.into_iter().filter(|letter| !memory.given.contains(letter.message.id.as_str())).collect()
        };
        // Looking disturbs nobody; only if something is there it is taken.
        let limit = LETTERS + memory.given.len();
        let task = heard.task.as_ref().map(TaskId::known);
        let peek = inbox::Peek { human: false, task: task.clone(), limit };
        if !mark && new(self.perform_as(actor, None, peek)?.letters, memory).is_empty() {
            return Ok(None);
        }
        let taken = self.perform_as(actor, None, inbox::Request { limit, task, ..inbox::Request::default() })?.letters;
        let letters = new(taken, memory);
        for letter in letters.iter().filter(|letter| letter.message.needs_ack) {
            memory.given.insert(letter.message.id.to_string());
        }
        let text: Vec<String> = letters.iter().map(letter).collect();
        Ok((!text.is_empty()).then(|| format!("Messages for you ({actor}) from toft:\n\n{}\n", text.join("\n\n"))))
    }

    /// Writes a checkpoint, so that the session can continue after its context was compacted.
    fn session_is_cut(&self, actor: &str) -> Result<Reply, Error> {
        for Held { task, fence } in self.live_holds(actor)? {
            let last = self.perform_as(actor, None, context::Request { id: task.to_string() })?;
            let before = match last.checkpoints.first() {
                None => format!("{CUT}there was no checkpoint before"),
                Some((checkpoint, _)) if checkpoint.summary.starts_with(CUT) => checkpoint.summary.clone(),
                Some((checkpoint, _)) => format!("{CUT}the checkpoint before says: {}", checkpoint.summary),
            };
            let request = save::Request {
                id: Some(task.to_string()),
                fence: Some(fence),
                message: Some(before),
                kind: CheckpointKind::Progress,
                commit: self.commit_here()?,
                ..save::Request::default()
            };
            self.perform_as(actor, None, request)?;
        }
        Ok(Reply::default())
    }

    fn session_stops(&self, actor: &str, heard: &Heard) -> Result<Reply, Error> {
        let holds = self.live_holds(actor)?;
        if holds.is_empty() {
            return Ok(Reply::default());
        }
        self.renew_all(actor)?;
        let mut memory = self.remember(heard);
        let (mut rows, mut news) = (Vec::new(), false);
        for Held { task, .. } in holds {
            let facts = self.perform_as(actor, None, context::Request { id: task.to_string() })?;
            news |= memory.reminded.insert(format!("{task}.{}", facts.task.state.fence));
            rows.push(format!("{task} \"{}\"", named(&facts.task.spec.name, 80)));
        }
        if !news || heard.again {
            return Ok(Reply::default());
        }
        self.keep_in_mind(heard, &memory)?;
        let reminder = format!(
            "You still hold {}. Finish it (toft finish -m \"…\" --evidence COMMIT), note where you are (toft save -m \"…\") or \
             give it back (toft finish release -m \"…\"). You are reminded of this once.",
            rows.join(", ")
        );
        Ok(Reply { context: None, hold_on: Some(reminder) })
    }

    /// Releases held tasks, with a note for the next holder; a runner decides for its own agents.
    fn session_ends(&self, actor: &str, heard: &Heard) -> Result<Reply, Error> {
        // A name that somebody gave may be shared: by a session inside of this one, or by a person.
        if heard.task.is_none() && actor == session_name(self.located().owner().as_deref(), &heard.session) {
            for Held { task, fence } in self.live_holds(actor)? {
                let (id, fence) = (Some(task.to_string()), Some(fence));
                let message = "its session ended".to_owned();
                let request = finish::Request { id, fence, message, ..finish::Request::default() };
                self.finish(actor, None, request)?;
            }
        }
        if let Some(path) = self.memory_of(heard) {
            // It may never have been there.
            let _ = fs::remove_file(path);
        }
        Ok(Reply::default())
    }

    /// Stores the session's name for all descendants of the same process: an MCP server cannot get it in another way.
    fn name_process(&self, actor: &str, heard: &Heard) -> Result<(), Error> {
        let Some(path) = heard.process.and_then(|pid| self.name_file(pid)) else { return Ok(()) };
        if let Some(dir) = path.parent() {
            toft_store::private::create_dir_all(dir).map_err(io("make", dir))?;
        }
        toft_store::private::write(&path, actor).map_err(io("write", &path))
    }

    fn name_file(&self, pid: u32) -> Option<PathBuf> {
        let process = self.machine().holder(pid)?;
        self.sessions().map(|dir| dir.join(format!("process-{pid}-{}", process.started)))
    }

    /// The agent name of a process: that of its session, if a hook stored it, otherwise a name of its own.
    pub fn name_of_process(&self, pid: u32) -> Option<String> {
        let process = self.machine().holder(pid)?;
        let named = self.name_file(pid).and_then(|path| fs::read_to_string(path).ok()).filter(|name| !name.is_empty());
        Some(named.unwrap_or_else(|| {
            session_name(self.located().owner().as_deref(), &format!("{} {pid} {}", process.boot, process.started))
        }))
    }

    /// Renews the leases of the session, which marks its agent as seen; returns whether it has any.
    fn renew_all(&self, actor: &str) -> Result<bool, Error> {
        match self.perform_as(actor, None, renew::Request::default()) {
            Ok(_) => Ok(true),
            Err(Error::Refused(Refusal::HoldsNothing { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn is_registered(&self, actor: &str) -> Result<bool, Error> {
        Ok(self.perform_as(actor, None, agent::Mine {})?.is_some())
    }

    fn sessions(&self) -> Option<PathBuf> {
        self.located().checkout.as_ref().map(|checkout| checkout.state_dir().join("sessions"))
    }

    fn memory_of(&self, heard: &Heard) -> Option<PathBuf> {
        let name = blake3::hash(heard.session.as_bytes()).to_hex();
        self.sessions().map(|dir| dir.join(&name.as_str()[..24]))
    }

    /// The state of a session; empty if it cannot be read.
    fn remember(&self, heard: &Heard) -> SessionMemory {
        let text = self.memory_of(heard).and_then(|path| fs::read(path).ok());
        text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    fn keep_in_mind(&self, heard: &Heard, memory: &SessionMemory) -> Result<(), Error> {
        let Some(path) = self.memory_of(heard) else { return Ok(()) };
        if let Some(dir) = path.parent() {
            toft_store::private::create_dir_all(dir).map_err(io("make", dir))?;
        }
        let text = serde_json::to_vec(memory).unwrap_or_default();
        toft_store::private::write(&path, text).map_err(io("write", &path))
    }

    /// Deletes the state of sessions that did not report their end.
    fn forget_sessions(&self) {
        let entries = self.sessions().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten().flatten();
        let old = |entry: &fs::DirEntry| {
            let age = entry.metadata().ok()?.modified().ok()?.elapsed().ok()?;
            (age > FORGET).then(|| entry.path())
        };
        for path in entries.filter_map(|entry| old(&entry)) {
            // Another session may have been faster.
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether something that happened at `last` is due again; also after the clock was set back.
fn due(last: u64, now: u64, every: Duration) -> bool {
    last > now || u128::from(now - last) >= every.as_millis()
}

#[cfg(test)]
mod tests;
