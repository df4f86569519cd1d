//! One attempt: what its command is told, and watching it to its end.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use toft_core::{
    flow::{AttemptResult, Ending, Report, Seen, Word, builds_on, renewal},
    lease::{Fence, Processes as _},
    refusal::Refusal,
    store,
    verbs::{claim::Claimed, renew},
};

use toft_vcs::workspace::Stand;

use super::{
    Rules, Told,
    files::{Files, read_word},
    log::{Log, Voice},
    mask::Mask,
    process::{Heard, Running, Start},
    recipe::{Spoken, filled},
    sandbox::Sandbox,
};
use crate::{
    briefing::Here,
    engine::Home,
    error::{Error, io as failed},
    session::Toft,
    setup::variables,
    workspaces::{Given, Workspaces},
};

/// The variable that marks everything an attempt starts.
pub(super) const MARK: &str = "TOFT_ATTEMPT";
/// How often a watcher looks up at least.
const TICK: Duration = Duration::from_millis(if cfg!(target_os = "linux") { 200 } else { 20 });
/// How often news of what is said is passed on.
const NEWS: Duration = Duration::from_millis(250);
/// What is still on its way when a command ended is waited for so long.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// A command whose agent has ended its own hold has so long to end too.
const FAREWELL: Duration = Duration::from_secs(30);
/// So many lines wait to be kept.
const WAITING: usize = 256;

/// One attempt under way.
pub(super) struct Attempt<'a> {
    pub(super) toft: &'a Toft,
    pub(super) rules: &'a Rules,
    pub(super) actor: &'a str,
    pub(super) claimed: &'a Claimed,
    pub(super) given: &'a Given,
    pub(super) mask: &'a Mask,
    /// The runner is gone, or in a hurry.
    pub(super) stop: &'a AtomicBool,
}

/// What came of it.
pub(super) struct Came {
    pub(super) seen: Seen,
    pub(super) report: Report,
    pub(super) cost: Option<f64>,
}

impl Attempt<'_> {
    fn fence(&self) -> Fence {
        self.claimed.lease.fence()
    }

    /// Runs the command to its end and says what was seen.
    pub(super) fn run(&self, tell: &mut dyn FnMut(Told)) -> Result<Came, Error> {
        let workspace = &self.given.workspace;
        let workspaces = self.toft.workspaces()?;
        let before = self.stood(&workspaces)?;
        let files = self.prepare()?;
        let brief = fs::read_to_string(files.brief()).map_err(failed("read", &files.brief()))?;
        let mut log = Log::create(&files.log()).map_err(failed("write", &files.log()))?;
        let command = self.command(&brief)?;
        // One that says more than can be kept has to wait.
        let (told, heard) = mpsc::sync_channel(WAITING);
        let start = Start {
            command: &command,
            dir: Path::new(&workspace.path),
            stdin: fs::File::open(files.brief()).map_err(failed("read", &files.brief()))?,
            variables: self.variables(&files),
        };
        let begun = Instant::now();
        let mut running = Running::start(start, &told)
            .map_err(|cause| Error::Start { command: command.first().cloned().unwrap_or_default(), cause })?;
        drop(told);
        let mut spoken = Spoken::default();
        let watched = self.watch(&mut running, &heard, &mut log, &mut spoken, tell);
        // Whatever happened, nothing of it goes on.
        let rest = running.kill_rest();
        let ending = watched?;
        rest.map_err(|cause| Error::Start { command: command.join(" "), cause })?;
        self.last_words(&heard, &mut log, &mut spoken).map_err(failed("write", &files.log()))?;
        let ran = begun.elapsed();
        let (mut word, unread) = match read_word(&files.report()) {
            Ok(word) => (word, None),
            Err(problem) => (Word::default(), Some(format!("its report cannot be read: {problem}"))),
        };
        let close = format!("the command {ending} after {:.1} s", ran.as_secs_f64());
        log.line(Voice::Runner, close.as_bytes(), self.mask)
            .and_then(|_| log.flush())
            .map_err(failed("write", &files.log()))?;
        let report = Report {
            ending,
            ran_ms: u64::try_from(ran.as_millis()).unwrap_or(u64::MAX),
            host: self.toft.machine().disks().to_owned(),
            log: files.log().display().to_string(),
            workspace: workspace.name.clone(),
            usage: word.usage.or(spoken.usage),
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
        let problem = self.check_evidence(&mut word, &workspaces).or(problem);
        word.message = self.mask.mask(&word.message);
        let said = match spoken.words {
            Some(words) => self.mask.mask(&words),
            None => log.last(ending == Ending::Exited(0)).to_owned(),
        };
        let commit = Some(stand.commit).filter(|commit| !commit.is_empty());
        let seen = Seen { ending, commit, uncommitted: stand.uncommitted, word, problem, said };
        Ok(Came { seen, report, cost })
    }

    /// A commit that an agent names must be there; says what is wrong with it.
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

    /// The commit that this attempt has to go beyond.
    fn stood(&self, workspaces: &Workspaces<'_>) -> Result<String, Error> {
        if self.given.existing {
            let attempts = store::ask(self.toft.store(), |tx| tx.attempts(&self.claimed.task.id))?;
            if builds_on(&attempts) {
                return Ok(self.given.workspace.base.clone());
            }
        }
        workspaces.stands(self.given)
    }

    /// Makes the directory for its files and writes the brief.
    fn prepare(&self) -> Result<Files, Error> {
        let task = &self.claimed.task;
        let nowhere = || Error::NoRepository { dir: PathBuf::from(".") };
        let files = Files::of(self.toft, &task.id, self.claimed.lease.fence).ok_or_else(nowhere)?;
        let here = Here { workspace: &self.given.workspace, notes: &self.notes()? };
        let brief = self.toft.context(self.actor, task.id.as_str(), Some(here), self.rules.budget)?;
        fs::write(files.brief(), brief).map_err(failed("write", &files.brief()))?;
        if self.rules.sandbox.is_some() {
            fs::create_dir_all(files.passing()).map_err(failed("make", &files.passing()))?;
        }
        Ok(files)
    }

    /// What is in the directory that one would not expect.
    fn notes(&self) -> Result<Vec<String>, Error> {
        let mut notes = self.given.notes.clone();
        if self.given.existing && self.claimed.task.state.fence > 1 {
            let left = self.toft.workspaces()?.uncommitted(&self.given.workspace)?;
            if left > 0 {
                notes.push(format!("{left} changed files of an earlier attempt are here and not committed"));
            }
        }
        Ok(notes)
    }

    fn command(&self, brief: &str) -> Result<Vec<String>, Error> {
        let located = self.toft.located();
        let common = located.checkout.as_ref().map(|checkout| checkout.common_dir.clone()).unwrap_or_default();
        let command = filled(&self.rules.command, brief, &common);
        let Some(sandbox) = &self.rules.sandbox else { return Ok(command) };
        let kind = sandbox.kind()?;
        let program = std::env::current_exe().map_err(failed("find", Path::new("toft")))?;
        let dir = Path::new(&self.given.workspace.path);
        let sandbox = Sandbox { writable: self.writable(&sandbox.writable)?, ..sandbox.clone() };
        Ok(sandbox.around(kind, &program, dir, command))
    }

    /// What an agent must write to do its work, and what the user allows besides.
    fn writable(&self, allowed: &[PathBuf]) -> Result<Vec<PathBuf>, Error> {
        let mut writable = self.toft.workspaces()?.written(&self.given.workspace);
        writable.extend(self.toft.located().checkout.as_ref().map(toft_vcs::Checkout::state_dir));
        writable.extend(self.toft.located().store.file().and_then(Path::parent).map(Path::to_owned));
        if let Some(plan) = self.toft.plan()? {
            writable.extend(plan.ledgers().iter().filter(|ledger| !ledger.read_only).map(|ledger| ledger.dir.clone()));
        }
        writable.extend_from_slice(allowed);
        writable.sort();
        writable.dedup();
        Ok(writable)
    }

    fn variables(&self, files: &Files) -> Vec<(String, String)> {
        let store = match &self.toft.located().store {
            Home::File(path) => path.display().to_string(),
            Home::Server(url) => url.clone(),
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
        put(MARK, fence.id.to_string());
        if self.rules.sandbox.is_some() {
            put("TMPDIR", files.passing().display().to_string());
        }
        // An agent's git does not tidy up: it would be ended half way, with everything else the agent started.
        let count = std::env::var("GIT_CONFIG_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(0);
        for (n, (key, value)) in (count..).zip([("gc.auto", "0"), ("maintenance.auto", "false")]) {
            put(&format!("GIT_CONFIG_KEY_{n}"), key.to_owned());
            put(&format!("GIT_CONFIG_VALUE_{n}"), value.to_owned());
        }
        put("GIT_CONFIG_COUNT", (count + 2).to_string());
        if let Some(issue) = &self.claimed.issue {
            put("TOFT_ISSUE", issue.clone());
        }
        set
    }

    /// Renews the lease, keeps what is said, and ends the command when it is time.
    fn watch(
        &self,
        running: &mut Running,
        heard: &Receiver<Heard>,
        log: &mut Log,
        spoken: &mut Spoken,
        tell: &mut dyn FnMut(Told),
    ) -> Result<Ending, Error> {
        let begun = Instant::now();
        let (mut last_said, mut last_renewed) = (begun, begun);
        let mut news: Option<Instant> = None;
        let mut farewell = None;
        loop {
            let mut said = None;
            match heard.recv_timeout(TICK) {
                Ok(Heard::Line(voice, line)) => {
                    spoken.hear(&line);
                    let kept = |error: io::Error| failed("write", Path::new("the log"))(error);
                    said = Some(log.line(voice, &line, self.mask).map_err(kept)?);
                    for heard in heard.try_iter().take(WAITING) {
                        if let Heard::Line(voice, line) = heard {
                            spoken.hear(&line);
                            said = Some(log.line(voice, &line, self.mask).map_err(kept)?);
                        }
                    }
                    log.flush().map_err(kept)?;
                    last_said = Instant::now();
                }
                Ok(Heard::Ended) | Err(RecvTimeoutError::Timeout) => {}
                // Both of its voices are closed; it may still run.
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            }
            if let Some(text) = said.filter(|text| !text.trim().is_empty())
                && news.is_none_or(|last| last.elapsed() >= NEWS)
            {
                news = Some(Instant::now());
                tell(Told::Said { text });
            }
            if let Some(status) = running.ended().map_err(failed("watch", Path::new("the command")))? {
                return Ok(ending(status));
            }
            let forced = if self.stop.load(Ordering::Relaxed) {
                Some(Ending::Stopped)
            } else if self.rules.total.is_some_and(|total| begun.elapsed() >= total) {
                self.rules.total.map(|total| Ending::Overtime(total.as_secs()))
            } else if self.rules.idle.is_some_and(|idle| last_said.elapsed() >= idle) {
                self.rules.idle.map(|idle| Ending::Idle(idle.as_secs()))
            } else if farewell.is_some_and(|since: Instant| since.elapsed() >= FAREWELL) {
                Some(Ending::Stopped)
            } else {
                None
            };
            if let Some(ending) = forced {
                running.end(self.rules.grace).map_err(failed("end", Path::new("the command")))?;
                return Ok(ending);
            }
            if farewell.is_none() && last_renewed.elapsed() >= renewal(self.rules.ttl) {
                last_renewed = Instant::now();
                match self.renew() {
                    Ok(Hold::Stands) => {}
                    Ok(Hold::Ended) => farewell = Some(Instant::now()),
                    Ok(Hold::Lost) => {
                        running.end(self.rules.grace).map_err(failed("end", Path::new("the command")))?;
                        return Ok(Ending::Lost);
                    }
                    // It is tried again before it is too late; whether it was is seen then.
                    Err(error) => tell(Told::Trouble { text: error.to_string() }),
                }
            }
        }
    }

    /// Keeps the lease, or says what became of it.
    fn renew(&self) -> Result<Hold, Error> {
        let holds = vec![(self.claimed.task.id.clone(), self.fence())];
        match self.toft.perform_as(self.actor, None, renew::Request { holds, ttl: None }) {
            Ok(_) => return Ok(Hold::Stands),
            Err(Error::Refused(Refusal::FenceStale { .. } | Refusal::NotHolder { .. })) => {}
            Err(error) => return Err(error),
        }
        let attempts = store::ask(self.toft.store(), |tx| tx.attempts(&self.claimed.task.id))?;
        let own = attempts.into_iter().find(|attempt| attempt.fence() == self.fence());
        Ok(match own.and_then(|attempt| attempt.result).is_some_and(by_its_agent) {
            true => Hold::Ended,
            false => Hold::Lost,
        })
    }

    /// What was still on its way when the command ended.
    fn last_words(&self, heard: &Receiver<Heard>, log: &mut Log, spoken: &mut Spoken) -> io::Result<()> {
        let until = Instant::now() + LAST_WORDS;
        while let Ok(heard) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if Instant::now() >= until {
                break;
            }
            if let Heard::Line(voice, line) = heard {
                spoken.hear(&line);
                log.line(voice, &line, self.mask)?;
            }
        }
        Ok(())
    }
}

/// What became of an attempt's hold.
enum Hold {
    Stands,
    /// The agent ended it itself.
    Ended,
    Lost,
}

/// Whether an agent ends its hold so, and not somebody over its head.
fn by_its_agent(how: AttemptResult) -> bool {
    match how {
        AttemptResult::Done
        | AttemptResult::Failed
        | AttemptResult::Released
        | AttemptResult::Handoff
        | AttemptResult::Waiting => true,
        AttemptResult::Expired | AttemptResult::ProcessGone | AttemptResult::Revoked => false,
    }
}

/// How a command ended by itself.
fn ending(status: std::process::ExitStatus) -> Ending {
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return Ending::Signalled(signal);
    }
    Ending::Exited(status.code().unwrap_or(-1))
}
