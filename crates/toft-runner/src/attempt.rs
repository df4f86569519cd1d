//! One attempt: prepares its command, and watches it until it ends.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver},
    },
    time::{Duration, Instant},
};

use toft_core::{
    flow::{Attempt, Ending, Evidence, ProviderRefusal, Report, Seen, StopOrder, Verified, Word, builds_on},
    keeper::Duty,
    landing::Landing,
    lease::{Fence, Processes as _},
    verbs::{claim::Claimed, facts, finish::How, token::ForJob},
};
use toft_plan::{Ledger, LedgerKind, Plan};
use toft_session::{
    engine::Home,
    error::{Error, io as failed},
    keep::{Keeping, clock},
    locate::Located,
    mask::Mask,
    person,
    recipe::{filled, resuming},
    token,
};
use toft_store::private;
use toft_vcs::{exchange, workspace::Stand};
use toft_work::{
    Work,
    setup::variables,
    workspaces::{Given, Workspaces},
};

use super::{
    Rules, SlotEvent,
    capacity::{CapacityUnit, FreeCapacity},
    container::Contained,
    files::{Conversation, Files, read_word},
    process::{Activity, ProcessStart, Running},
    record::Recorder,
    sandbox::{self, View},
    slot_events::SlotEventSender,
    socket::{Calls, SOCKET, TaskSocket},
};
use crate::briefing::{Briefing, Here};

/// Maximum interval between checks of a watcher.
const TICK: Duration = Duration::from_millis(if cfg!(target_os = "linux") { 200 } else { 20 });
/// How long a command may continue after its agent has ended its own lease.
const FAREWELL: Duration = Duration::from_secs(30);
/// A running attempt.
pub(super) struct AttemptRun<'a> {
    pub(super) work: Work<'a>,
    pub(super) rules: &'a Rules,
    pub(super) actor: &'a str,
    pub(super) claimed: &'a Claimed,
    pub(super) given: &'a Given,
    pub(super) mask: &'a Mask,
    pub(super) events: &'a SlotEventSender,
    pub(super) keeping: &'a Keeping,
    /// What it uses.
    pub(super) capacity: &'a FreeCapacity,
    /// The runner is gone, or must end quickly.
    pub(super) stop: &'a AtomicBool,
}

/// The result of an attempt.
pub(super) struct AttemptEnd {
    pub(super) seen: Seen,
    pub(super) report: Report,
    pub(super) cost: Option<f64>,
    /// The stop order, if there was one.
    pub(super) order: Option<StopOrder>,
    /// Commands that verified its commit.
    pub(super) verified: Vec<Verified>,
}

impl AttemptRun<'_> {
    fn fence(&self) -> Fence {
        self.claimed.lease.fence()
    }

    /// Runs the command until it ends and returns the observations. Once it was started there is always a result.
    pub(super) fn run(&self) -> Result<AttemptEnd, Error> {
        let workspace = &self.given.workspace;
        let workspaces = self.work.workspaces()?;
        let before = self.stood(&workspaces)?;
        let task = self.claimed.task.id.clone();
        let earlier = self.work.perform(facts::TaskAttempts { task })?;
        let goes_on = self.conversation(&earlier);
        let files = self.prepare(goes_on.is_some())?;
        let brief = fs::read_to_string(files.brief()).map_err(failed("read", &files.brief()))?;
        let resuming = goes_on.as_ref().and_then(|found| resuming(&self.rules.resume, &found.session));
        let command = self.command(resuming.as_deref().unwrap_or(&self.rules.command), &brief, &files)?;
        let conversation = Conversation {
            agent: self.rules.agent.clone(),
            session: String::new(),
            workspace: workspace.name.clone(),
            resumed: goes_on.is_some(),
        };
        let recorder = Recorder::start(&files, self.mask.clone(), self.events.clone(), conversation.clone());
        if self.keeping.stopped() {
            return Err(Error::LeaseLost { why: self.keeping.why() });
        }
        if self.stop.load(Ordering::Relaxed) {
            return Err(Error::RunnerStopped);
        }
        let begun = Instant::now();
        let (ending, unwatched) = self.start_and_watch(command, &files, &recorder)?;
        let ran = begun.elapsed();
        let close = format!("the command {ending} after {:.1} s", ran.as_secs_f64());
        let (spoken, last) = recorder.close(close, ending == Ending::Exited(0));
        let (mut word, unread) = match read_word(&files.report(), self.mask) {
            Ok(word) => (word, None),
            Err(problem) => (Word::default(), Some(format!("its report cannot be read: {problem}"))),
        };
        let report = Report {
            ending,
            ran_ms: u64::try_from(ran.as_millis()).unwrap_or(u64::MAX),
            host: self.work.machine().disks().to_owned(),
            log: files.log().display().to_string(),
            workspace: workspace.name.clone(),
            usage: word.usage.or(spoken.usage),
            refused: spoken.refused.filter(|_| self.is_refused(ending)).map(|refused| {
                // The client's words may hold what is nobody's business.
                ProviderRefusal { message: self.mask.mask(&refused.message), ..refused }
            }),
        };
        let cost = word.cost.filter(|cost| cost.is_finite() && *cost >= 0.0).or(spoken.cost);
        let (stand, problem) = match workspaces.own_work(workspace, &before) {
            Ok(stand) => (stand, unread),
            // It ran; what cannot be looked at now counts against it.
            Err(error) => (Stand::default(), Some(format!("its workspace cannot be looked at: {error}"))),
        };
        for text in [&mut word.evidence, &mut word.no_change].into_iter().flatten() {
            *text = self.mask.mask(text);
        }
        let problem = self.check_evidence(&mut word, &workspaces).or(problem).or(unwatched);
        word.message = self.mask.mask(&word.message);
        let said = spoken.words.map_or(last, |words| self.mask.mask(&words));
        let commit = Some(stand.commit).filter(|commit| !commit.is_empty());
        let refused = report.refused.clone();
        let (unverified, reviews) = (None, self.claimed.task.spec.reviews.is_some());
        let mut seen =
            Seen { ending, commit, uncommitted: stand.uncommitted, word, problem, said, refused, unverified, reviews };
        let mut verified = Vec::new();
        if let (How::Done(Evidence::Commit(commit)), _) = seen.judge() {
            let checked = match self.differs_from(&commit, &workspaces)? {
                Some(why) => Err(why),
                None => self.verify(&commit, &files, &conversation)?,
            };
            match checked {
                Ok(runs) => verified = runs,
                Err(why) => seen.unverified = Some(why),
            }
        }
        Ok(AttemptEnd { seen, report, cost, order: self.keeping.order(), verified })
    }

    /// Starts a command in its sandbox or container, and watches it until it and everything that it started has ended.
    /// Returns how it ended, and what is not known of it.
    fn start_and_watch(
        &self,
        command: Vec<String>,
        files: &Files,
        recorder: &Recorder,
    ) -> Result<(Ending, Option<String>), Error> {
        let mut variables = self.variables(files);
        variables.extend(self.capacity.units.iter().map(CapacityUnit::variable));
        let mut socket = self.socket(&variables)?;
        if let Some(socket) = &socket {
            // What reaches toft through a socket has no store, and no password of one.
            let of_store: &[&str] = match &self.work.located().store {
                Home::File(_) => &["TOFT_STORE"],
                Home::Server(_) => &["TOFT_STORE", "PGPASSWORD"],
                Home::Remote(_) => &["TOFT_STORE", "TOFT_TOKEN"],
            };
            variables.retain(|(name, _)| !of_store.contains(&name.as_str()));
            let emptied = of_store.iter().map(|name| (*name, String::new()));
            let put = emptied.chain([(SOCKET, socket.address().to_string())]);
            variables.extend(put.map(|(name, value)| (name.to_owned(), value)));
            if self.rules.container.is_some() {
                variables.extend(self.author());
            }
        } else if let Home::Remote(_) = self.work.located().store {
            variables.push(("TOFT_TOKEN".to_owned(), self.token_for_agent()?));
        }
        let command = match &socket {
            Some(socket) => self.confined(command, files, socket, &variables)?,
            None => command,
        };
        let start = ProcessStart {
            command: &command,
            dir: Path::new(&self.given.workspace.path),
            stdin: fs::File::open(files.brief()).map_err(failed("read", &files.brief()))?,
            variables,
        };
        let ((told, ended), activity) = (mpsc::channel(), Activity::default());
        let not_started = |cause| Error::Start { command: command.first().cloned().unwrap_or_default(), cause };
        let Some(said) = recorder.said() else { return Err(not_started(io::ErrorKind::BrokenPipe.into())) };
        let mut running = Running::start(start, said, &told, &activity).map_err(not_started)?;
        running.container = socket.take_if(|_| self.rules.container.is_some());
        let watched = self.watch(&mut running, &ended, &activity);
        // Whatever happened, nothing of it goes on.
        let rest = running.kill_rest();
        drop(socket);
        Ok(match watched {
            Ok(ending) => (ending, rest.err().map(|error| format!("not all of it could be ended: {error}"))),
            Err(error) => (Ending::Exited(-1), Some(format!("the command could not be watched: {error}"))),
        })
    }

    /// Why commands in the workspace would not verify this commit: its files are others.
    fn differs_from(&self, commit: &str, workspaces: &Workspaces<'_>) -> Result<Option<String>, Error> {
        if self.work.located().verify.commands.is_empty() {
            return Ok(None);
        }
        let (head, changed) = workspaces.stand(&self.given.workspace)?;
        Ok(match changed.as_slice() {
            _ if head != commit => Some("not verified: the workspace is not at the commit that was finished".into()),
            [] => None,
            files => Some(format!("not verified: changed and not committed: {}", files.join(", "))),
        })
    }

    /// Runs the commands that verify work, as the agent ran: in its directory, confined, watched and logged. Returns what
    /// ran, or which one failed and what it said.
    fn verify(
        &self,
        commit: &str,
        files: &Files,
        conversation: &Conversation,
    ) -> Result<Result<Vec<Verified>, String>, Error> {
        let located = self.work.located();
        located.require_trusted_verification()?;
        let mut runs = Vec::new();
        for command in &located.verify.commands {
            self.events.send(SlotEvent::Step { text: format!("verifying: {command}") });
            let recorder = Recorder::start(files, self.mask.clone(), self.events.clone(), conversation.clone());
            let words = ["sh", "-c", command].map(str::to_owned).to_vec();
            let (ending, unwatched) = self.start_and_watch(words, files, &recorder)?;
            let (_, said) = recorder.close(format!("`{command}` {ending}"), false);
            if let (Ending::Exited(exit @ 0), None) = (ending, &unwatched) {
                runs.push(Verified { command: command.clone(), exit, commit: commit.to_owned() });
                continue;
            }
            let why = unwatched.unwrap_or_else(|| ending.to_string());
            return Ok(Err(format!("not verified: `{command}` {why}: {said}")));
        }
        Ok(Ok(runs))
    }

    /// Whether a client ended by itself and not well: only then its last words are the reason. A plain command is nobody's
    /// account.
    fn is_refused(&self, ending: Ending) -> bool {
        !self.rules.agent.is_empty() && matches!(ending, Ending::Exited(code) if code != 0)
    }

    /// The conversation of an earlier attempt that goes on, if the client can.
    fn conversation(&self, earlier: &[Attempt]) -> Option<Conversation> {
        if !self.given.existing || self.rules.resume.is_empty() {
            return None;
        }
        Conversation::to_continue(&self.work, earlier, &self.rules.agent, &self.given.workspace.name)
    }

    /// Checks that a commit which an agent names exists; returns the problem.
    fn check_evidence(&self, word: &mut Word, workspaces: &Workspaces<'_>) -> Option<String> {
        let named = word.evidence.take().filter(|named| !named.trim().is_empty())?;
        match workspaces.commit_in(&self.given.workspace, &named) {
            Ok(Some(commit)) => {
                word.evidence = Some(commit);
                None
            }
            Ok(None) => Some(format!("`{named}`, which it names as evidence, is no commit here")),
            Err(error) => Some(format!("`{named}`, which it names as evidence, cannot be looked at: {error}")),
        }
    }

    /// A token for the agent: for its task alone, and until its lease ends. That of the runner never reaches it.
    fn token_for_agent(&self) -> Result<String, Error> {
        let (secret, digest) = token::new_secret()?;
        let job = ForJob { digest, task: self.claimed.task.id.clone(), fence: self.fence() };
        self.work.perform_as(self.actor, None, job)?;
        Ok(secret)
    }

    /// The commit that this attempt must advance from.
    fn stood(&self, workspaces: &Workspaces<'_>) -> Result<String, Error> {
        if self.given.existing {
            let task = self.claimed.task.id.clone();
            let landing = self.work.perform(facts::LandingRow { landing: Landing::id_of(&task) })?;
            let attempts = self.work.perform(facts::TaskAttempts { task })?;
            // What was sent back is to be followed by something new.
            let bounced = landing.is_some_and(|landing| landing.bounce().is_some());
            if builds_on(&attempts) && !bounced {
                return Ok(self.given.workspace.base.clone());
            }
        }
        workspaces.stands(self.given)
    }

    /// Creates the directory for its files and writes the brief.
    fn prepare(&self, goes_on: bool) -> Result<Files, Error> {
        let task = &self.claimed.task;
        let nowhere = || Error::NoRepository { dir: PathBuf::from(".") };
        let files = Files::of(&self.work, &task.id, self.claimed.lease.fence).ok_or_else(nowhere)?;
        let here = Here { workspace: &self.given.workspace, notes: &self.notes()? };
        let briefing = Briefing::of(self.work);
        let brief = match goes_on {
            true => briefing.continuation(self.actor, task.id.as_str(), here, self.rules.budget)?,
            false => briefing.context(self.actor, task.id.as_str(), Some(here), self.rules.budget)?,
        };
        private::write(&files.brief(), brief).map_err(failed("write", &files.brief()))?;
        if self.rules.confined().is_some() {
            fs::create_dir_all(files.passing()).map_err(failed("make", &files.passing()))?;
        }
        Ok(files)
    }

    /// Unexpected facts about the directory.
    fn notes(&self) -> Result<Vec<String>, Error> {
        let mut notes = self.given.notes.clone();
        let confined = match (&self.rules.container, &self.rules.sandbox) {
            (Some(container), _) => Some(container.promise()),
            (None, Some(sandbox)) => Some(sandbox.promise(sandbox.kind()?)),
            (None, None) => None,
        };
        if let Some(promise) = confined {
            notes.push(format!(
                "You are confined by {promise}. toft's commands work for your own task. If git says that it cannot lock packed-refs, ignore it."
            ));
        }
        if self.given.existing && self.claimed.task.state.fence > 1 {
            let left = self.work.workspaces()?.uncommitted(&self.given.workspace)?;
            if left > 0 {
                notes.push(format!("{left} changed files of an earlier attempt are here and not committed"));
            }
        }
        Ok(notes)
    }

    /// The command, with what is known only now.
    fn command(&self, command: &[String], brief: &str, files: &Files) -> Result<Vec<String>, Error> {
        let located = self.work.located();
        let common = located.checkout.as_ref().map(|checkout| checkout.common_dir.clone()).unwrap_or_default();
        Ok(filled(command, brief, &common, &directories(self.written_unconfined(files)?, located)))
    }

    /// The socket through which a confined agent reaches toft.
    fn socket(&self, variables: &[(String, String)]) -> Result<Option<TaskSocket>, Error> {
        let Some(network) = self.rules.confined() else { return Ok(None) };
        let dir = PathBuf::from(&self.given.workspace.path);
        let calls = Calls { program: this_program()?, dir: dir.clone(), variables: variables.to_vec() };
        TaskSocket::open(calls, network.hosts()).map(Some).map_err(failed("listen for the agent in", &dir))
    }

    /// The command with its sandbox or container around it.
    fn confined(
        &self,
        command: Vec<String>,
        files: &Files,
        socket: &TaskSocket,
        variables: &[(String, String)],
    ) -> Result<Vec<String>, Error> {
        let (program, dir) = (this_program()?, Path::new(&self.given.workspace.path));
        let workspaces = self.work.workspaces()?;
        let mut sandbox = self.rules.sandbox.clone().unwrap_or_default();
        sandbox.fixed = workspaces.fixed(&self.given.workspace);
        sandbox.writable.extend(workspaces.written(&self.given.workspace));
        sandbox.writable.push(files.dir().to_owned());
        let checkout = self.work.located().checkout.as_ref();
        sandbox.hidden = sandbox::toft_files(&self.work);
        sandbox.readable.extend(checkout.iter().map(|checkout| checkout.common_dir.clone()));
        let Some(container) = &self.rules.container else {
            sandbox.readable.extend([program.clone(), socket.dir().to_owned()]);
            return Ok(sandbox.around(sandbox.kind()?, &program, dir, command));
        };
        sandbox.writable.extend(container.writable.iter().cloned());
        let mounts = sandbox.mounts_in_container();
        let hidden = mounts.iter().filter(|(path, view)| **view == View::Hidden && path.is_dir());
        let empty = hidden.map(|(path, _)| Ok((path.clone(), socket.empty_for(path, mounts.keys())?)));
        let empty = empty.collect::<io::Result<_>>().map_err(failed("make", socket.dir()))?;
        let contained = Contained {
            name: format!("toft-{}", self.fence().id),
            toft: &program,
            workspace: dir,
            sockets: socket.dir(),
            mounts,
            empty,
            variables,
        };
        Ok(container.around(&contained, command))
    }

    /// Who makes commits, for a container, which does not have the user's configuration.
    fn author(&self) -> Vec<(String, String)> {
        let Some(checkout) = &self.work.located().checkout else { return Vec::new() };
        let (name, email) = (exchange::author(checkout), exchange::author_email(checkout));
        let set = |names: [&str; 3], value: Option<String>| {
            let value = value.into_iter().flat_map(move |value| names.map(|name| (name.to_owned(), value.clone())));
            value.collect::<Vec<_>>()
        };
        let mut variables = set(["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "JJ_USER"], name);
        variables.extend(set(["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL", "JJ_EMAIL"], email));
        variables
    }

    /// The paths that an agent without a sandbox of toft's writes to for its work: what its own sandbox must allow.
    fn written_unconfined(&self, files: &Files) -> Result<Vec<PathBuf>, Error> {
        let mut writable = self.work.workspaces()?.written(&self.given.workspace);
        writable.extend(sandbox::of_toft(&self.work)?);
        writable.push(files.dir().to_owned());
        if let Some(plan) = Plan::open(self.work.session())? {
            // One in a working tree is in the workspace, too, and that is the agent's.
            let written = |ledger: &&Ledger| !ledger.read_only && ledger.place != LedgerKind::Tree;
            writable.extend(plan.ledgers().iter().filter(written).map(|ledger| ledger.dir.clone()));
        }
        writable.sort();
        writable.dedup();
        Ok(writable)
    }

    fn variables(&self, files: &Files) -> Vec<(String, String)> {
        let store = match &self.work.located().store {
            Home::File(path) => path.display().to_string(),
            Home::Server(url) => url.clone(),
            Home::Remote(address) => address.to_string(),
        };
        let mut set: Vec<(String, String)> = variables(&self.given.workspace).into_iter().collect();
        let fence = self.fence();
        let mut put = |name: &str, value: String| set.push((name.to_owned(), value));
        put("TOFT_TASK", self.claimed.task.id.to_string());
        put("TOFT_FENCE", fence.to_string());
        put("TOFT_AGENT", self.actor.to_owned());
        put("TOFT_STORE", store);
        put("TOFT_BRIEF", files.brief().display().to_string());
        put("TOFT_REPORT", files.report().display().to_string());
        put(person::MARK, fence.id.to_string());
        if self.rules.confined().is_some() {
            put("TMPDIR", files.passing().display().to_string());
        }
        // An agent's git does not tidy up: it would be ended half way, with everything else the agent started.
        let count = std::env::var("GIT_CONFIG_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
        for (n, (key, value)) in (count..).zip([("gc.auto", "0"), ("maintenance.auto", "false")]) {
            put(&format!("GIT_CONFIG_KEY_{n}"), key.to_owned());
            put(&format!("GIT_CONFIG_VALUE_{n}"), value.to_owned());
        }
        put("GIT_CONFIG_COUNT", (count + 2).to_string());
        // An agent that loses its `.git` is in no repository, rather than in one that is around all workspaces.
        let above = Path::new(&self.given.workspace.path).parent().unwrap_or(Path::new("/")).display().to_string();
        let known = std::env::var("GIT_CEILING_DIRECTORIES").map(|known| format!("{above}:{known}"));
        put("GIT_CEILING_DIRECTORIES", known.unwrap_or(above));
        if let Some(issue) = &self.claimed.issue {
            put("TOFT_ISSUE", issue.clone());
        }
        set
    }

    /// Watches the command until it ends, or has to be ended. Waits neither for the store nor for the log.
    fn watch(&self, running: &mut Running, ended: &Receiver<()>, activity: &Activity) -> io::Result<Ending> {
        let begun = Instant::now();
        let mut farewell = None;
        loop {
            // Either it ended, or it is time to look again.
            let _ = ended.recv_timeout(TICK);
            if let Some(status) = running.ended()? {
                return Ok(if self.keeping.stopped() { Ending::Lost } else { ending(status) });
            }
            // The deadline comes before everything else: after a sleep the lease may be gone.
            match self.keeping.look() {
                Duty::Kill => return running.end(Duration::ZERO).map(|_| Ending::Lost),
                Duty::Terminate(hard) => {
                    let left = Duration::from_millis(hard.saturating_sub(clock()));
                    return running.end(left).map(|_| Ending::Lost);
                }
                Duty::Wait(_) | Duty::Renew => {}
            }
            let look = WatchedCommand {
                stopped: self.stop.load(Ordering::Relaxed) || self.keeping.order().is_some(),
                ran: begun.elapsed(),
                silent: activity.silent(begun),
                farewell: farewell.map(|since: Instant| since.elapsed()),
            };
            if let Some(ending) = look.forced_ending(self.rules) {
                running.end(self.rules.grace)?;
                return Ok(if self.keeping.stopped() { Ending::Lost } else { ending });
            }
            if farewell.is_none() && self.keeping.ended() {
                farewell = Some(Instant::now());
            }
            if let Some(text) = self.keeping.take_trouble() {
                self.events.send(SlotEvent::Problem { text });
            }
        }
    }
}

fn this_program() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(failed("find", Path::new("toft")))
}

/// What a watcher sees of a command that runs.
#[derive(Clone, Copy, Debug, Default)]
struct WatchedCommand {
    /// The runner stops, or this attempt was ordered to stop.
    stopped: bool,
    ran: Duration,
    silent: Duration,
    /// How long ago the agent ended its own hold.
    farewell: Option<Duration>,
}

impl WatchedCommand {
    /// The ending of a command that must be stopped now.
    fn forced_ending(self, rules: &Rules) -> Option<Ending> {
        let reached = |limit: Option<Duration>, time: Duration| limit.filter(|limit| time >= *limit);
        if self.stopped {
            Some(Ending::Stopped)
        } else if let Some(total) = reached(rules.total, self.ran) {
            Some(Ending::Overtime(total.as_secs()))
        } else if let Some(idle) = reached(rules.idle, self.silent) {
            Some(Ending::Idle(idle.as_secs()))
        } else {
            reached(Some(FAREWELL), self.farewell.unwrap_or_default()).map(|_| Ending::Stopped)
        }
    }
}

/// How a command ended that the runner did not end.
pub(super) fn ending(status: std::process::ExitStatus) -> Ending {
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Ending::Signalled(signal);
    }
    Ending::Exited(status.code().unwrap_or(-1))
}

/// The directories of paths that exist, for sandboxes that know no files; none that is inside of another. A file stands
/// for its directory only where that is toft's own in the repository: around a store elsewhere there are a user's files.
fn directories(paths: Vec<PathBuf>, located: &Located) -> Vec<PathBuf> {
    let own = located.checkout.as_ref().map(|checkout| checkout.state_dir());
    let dir = |path: PathBuf| match path.is_dir() {
        true => Some(path),
        false => path.parent().filter(|dir| path.exists() && own.as_deref() == Some(*dir)).map(Path::to_owned),
    };
    let mut dirs: Vec<PathBuf> = paths.into_iter().filter_map(dir).collect();
    dirs.sort();
    dirs.dedup_by(|inner, outer| inner.starts_with(outer));
    dirs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_stopped_for_the_first_reason_that_holds() {
        let seconds = Duration::from_secs;
        let limited = Rules { total: Some(seconds(60)), idle: Some(seconds(10)), ..Rules::default() };
        let look =
            |ran, silent| WatchedCommand { ran: seconds(ran), silent: seconds(silent), ..WatchedCommand::default() };
        let cases = [
            (look(59, 9), None),
            (look(60, 0), Some(Ending::Overtime(60))),
            (look(11, 10), Some(Ending::Idle(10))),
            (look(60, 10), Some(Ending::Overtime(60))),
            (WatchedCommand { stopped: true, ..look(60, 10) }, Some(Ending::Stopped)),
            (WatchedCommand { farewell: Some(FAREWELL), ..look(31, 0) }, Some(Ending::Stopped)),
            (WatchedCommand { farewell: Some(FAREWELL - seconds(1)), ..look(31, 0) }, None),
            (WatchedCommand { farewell: Some(FAREWELL), ..look(31, 10) }, Some(Ending::Idle(10))),
        ];
        for (look, wanted) in cases {
            assert_eq!(look.forced_ending(&limited), wanted, "{look:?}");
        }
        let unlimited = Rules { total: None, idle: None, ..Rules::default() };
        assert_eq!(look(1_000_000, 1_000_000).forced_ending(&unlimited), None);
    }

    #[cfg(unix)]
    #[test]
    fn an_exit_status_is_a_code_or_a_signal() {
        use std::os::unix::process::ExitStatusExt as _;
        let status = std::process::ExitStatus::from_raw;
        assert_eq!(ending(status(0)), Ending::Exited(0));
        assert_eq!(ending(status(3 << 8)), Ending::Exited(3));
        assert_eq!(ending(status(9)), Ending::Signalled(9));
        assert_eq!(ending(status(15 | 0x80)), Ending::Signalled(15), "with a core dump");
    }
}
