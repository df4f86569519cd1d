//! A command and all its descendants: started in a process group of its own, and ended together.
//!
//! On Linux a slot adopts orphaned descendants of its command, so that no process can escape by detaching itself. On
//! other systems only the process group is ended.

use std::{
    fs, io,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, Sender, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use process_wrap::std::{ChildWrapper, CommandWrap};
use toft_session::{
    error::Error,
    processes::{kill_left_behind, left_behind, nobody_left},
};

use super::{log::Voice, socket::TaskSocket};

/// Output of a running command.
pub(crate) enum CommandOutput {
    /// Some bytes.
    Bytes(Voice, Vec<u8>),
    /// The end of this stream.
    End(Voice),
}

/// Number of bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// Maximum number of bytes that are read of what a program prints.
const MOST_OUTPUT: u64 = 8 << 20;
/// How often processes that were asked to end are checked.
const LOOK: Duration = Duration::from_millis(5);
/// How long the engine of a container has to end it.
const CONTAINER_END: Duration = Duration::from_secs(3);
/// How long to wait for killed processes before giving up.
const GIVE_UP: Duration = Duration::from_secs(10);

/// The command to start.
pub(crate) struct ProcessStart<'a> {
    pub(crate) command: &'a [String],
    pub(crate) dir: &'a Path,
    pub(crate) stdin: fs::File,
    pub(crate) variables: Vec<(String, String)>,
}

/// A running command.
pub(crate) struct Running {
    child: Box<dyn ChildWrapper>,
    /// What a container ends with; nothing if it is none.
    pub(super) container: Option<TaskSocket>,
}

impl Running {
    /// Starts it. Its output goes to `said`, which limits its rate; `ended` is notified as soon as it ends.
    #[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
    pub(crate) fn start(
        start: ProcessStart<'_>,
        said: &SyncSender<CommandOutput>,
        ended: &Sender<()>,
        activity: &Activity,
    ) -> io::Result<Self> {
        let [program, words @ ..] = start.command else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
        };
        let mut command = Command::new(program);
        command.args(words).current_dir(start.dir).env("PWD", start.dir).envs(start.variables);
        // Whose process a lease follows was the caller's to say, not the agent's.
        command.env_remove("TOFT_PID").env_remove(super::SLOT).env_remove(super::SUPERVISOR);
        without_callers_repository(&mut command);
        command.stdin(start.stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut wrapped = CommandWrap::from(command);
        // A session of its own: an agent types nothing at the terminal of the one who started the runner.
        wrapped.wrap(process_wrap::std::ProcessSession);
        let mut child = wrapped.spawn()?;
        listen(child.stdout().take(), Voice::Out, said, activity);
        listen(child.stderr().take(), Voice::Err, said, activity);
        watch(child.id(), ended);
        Ok(Self { child, container: None })
    }

    /// The exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.inner_mut().try_wait()
    }

    /// Asks the command and all its descendants to end; the remaining ones are killed after `grace`. Returns the exit
    /// status of the command.
    pub(crate) fn end(&mut self, grace: Duration) -> io::Result<Option<ExitStatus>> {
        self.tell_to_end();
        let until = Instant::now() + grace;
        while Instant::now() < until {
            if self.ended()?.is_some() && !self.any_left() {
                break;
            }
            thread::sleep(LOOK);
        }
        self.end_container()?;
        self.kill_rest()?;
        self.ended()
    }

    /// Ends a container from inside, so that its engine knows that it has ended.
    fn end_container(&mut self) -> io::Result<()> {
        let Some(socket) = self.container.take() else { return Ok(()) };
        drop(socket);
        let until = Instant::now() + CONTAINER_END;
        while self.ended()?.is_none() && Instant::now() < until {
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn tell_to_end(&self) {
        // A stopped process hears only when it goes on. One that is gone by now needs no telling.
        for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGCONT] {
            let _ = self.child.signal(signal as i32);
            // Who watches a container is not to end before it; its engine passes the signal on.
            for pid in if self.container.is_some() { Vec::new() } else { left_behind() } {
                let _ = nix::sys::signal::kill(pid, signal);
            }
        }
    }

    fn any_left(&self) -> bool {
        !left_behind().is_empty()
    }

    /// Kills the remaining processes, until none are left.
    pub(crate) fn kill_rest(&mut self) -> io::Result<()> {
        if self.ended()?.is_some() && nobody_left() {
            return Ok(());
        }
        let until = Instant::now() + GIVE_UP;
        loop {
            // A group that is empty cannot be killed, and need not be.
            let _ = self.child.start_kill();
            kill_left_behind();
            if self.ended()?.is_some() && nobody_left() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a process does not end though it was killed"));
            }
            thread::sleep(LOOK);
        }
    }
}

/// Removes the variables that name the caller's repository, which is not that of the command.
pub(super) fn without_callers_repository(command: &mut Command) {
    for name in [
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_COMMON_DIR",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
        "GIT_QUARANTINE_PATH",
    ] {
        command.env_remove(name);
    }
}

/// Whether this process was started to continue after its terminal is closed.
pub fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Whether the program exists, as far as this is known before it is started.
pub fn can_start(program: &str) -> bool {
    let path = Path::new(program);
    if path.components().count() > 1 {
        return path.is_file();
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs).any(|dir| dir.join(format!("{program}{}", std::env::consts::EXE_SUFFIX)).is_file())
}

/// Replaces this process by another command; returns only the error.
#[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
pub fn become_command(words: &[String]) -> Error {
    let [program, words @ ..] = words else { return Error::NoSandbox };
    let cause = std::os::unix::process::CommandExt::exec(Command::new(program).args(words));
    Error::Start { command: program.clone(), cause }
}

/// Runs a command with more variables, and passes signals on to it; returns its exit code.
#[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
pub fn confined_command(
    words: &[String],
    variables: Vec<(String, String)>,
    signals: &std::sync::mpsc::Receiver<i32>,
) -> Result<i32, Error> {
    let [program, words @ ..] = words else { return Err(Error::NoSandbox) };
    let not_started = |cause| Error::Start { command: program.clone(), cause };
    let mut command = Command::new(program);
    command.args(words).envs(variables);
    let mut child = command.spawn().map_err(not_started)?;
    loop {
        if let Some(status) = child.try_wait().map_err(not_started)? {
            let signal = std::os::unix::process::ExitStatusExt::signal(&status);
            return Ok(status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0)));
        }
        match signals.recv_timeout(LOOK) {
            Ok(signal) => super::supervisor::pass_on(signal, child.id()),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody says anything any more.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(LOOK),
        }
    }
}

/// Runs a command line in a shell. With input, its output is discarded and it has a time limit; without, it inherits
/// the streams of this process.
#[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
pub fn in_shell(line: &str, dir: &Path, variables: &[(&str, &str)], input: Option<&str>) -> io::Result<ExitStatus> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).current_dir(dir);
    without_callers_repository(&mut command);
    command.envs(variables.iter().copied());
    let Some(input) = input else { return command.status() };
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read says so by its end.
        let _ = io::Write::write_all(&mut stdin, input.as_bytes());
    }
    let until = Instant::now() + GIVE_UP;
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(status),
            None if Instant::now() >= until => {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it does not end"));
            }
            None => thread::sleep(LOOK),
        }
    }
}

/// How long a command that calls a person is waited for: what comes of it is for nobody but itself.
const CALL: Duration = Duration::from_secs(2);

/// Starts a command that calls a person, and waits a moment for it: a runner that ends takes everything with it.
#[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
pub fn call(words: &[String]) {
    let Some((program, words)) = words.split_first() else { return };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    without_callers_repository(&mut command);
    let Ok(mut child) = command.spawn() else { return };
    let until = Instant::now() + CALL;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        thread::sleep(LOOK);
    }
    // One that takes longer is waited for beside the runner, so that nothing is left of it.
    thread::spawn(move || child.wait());
}

/// Whether a command succeeds, and what it prints, first on standard output, then on standard error, without waiting
/// longer than `patience`. The program is taken from absolute directories of `PATH` only.
pub fn output(words: &[&str], dir: &Path, patience: Duration) -> io::Result<(bool, String)> {
    let ProgramOutput { success, out, err } = ask_program(words, dir, patience)?;
    Ok((success, out + &err))
}

/// What a program said.
#[derive(Clone, Debug, Default)]
pub struct ProgramOutput {
    pub success: bool,
    pub out: String,
    pub err: String,
}

/// The same as [`output`], with both streams apart.
#[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
pub fn ask_program(words: &[&str], dir: &Path, patience: Duration) -> io::Result<ProgramOutput> {
    let Some((program, words)) = words.split_first() else { return Ok(ProgramOutput::default()) };
    let found = found(program).ok_or(io::ErrorKind::NotFound)?;
    let mut command = Command::new(found);
    command.args(words).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    without_callers_repository(&mut command);
    let mut wrapped = CommandWrap::from(command);
    wrapped.wrap(process_wrap::std::ProcessGroup::leader());
    let mut child = wrapped.spawn()?;
    let until = Instant::now() + patience;
    let streams = [collect(child.stdout().take()), collect(child.stderr().take())];
    let heard = streams.map(|stream| stream.recv_timeout(until.saturating_duration_since(Instant::now())));
    // A process that closed both streams is about to end.
    let end = Instant::now() + Duration::from_secs(1);
    let mut ended = child.try_wait()?;
    while ended.is_none() && heard.iter().all(Result::is_ok) && Instant::now() < end {
        thread::sleep(LOOK);
        ended = child.try_wait()?;
    }
    // Whatever it started goes with it; a group that is empty cannot be killed, and need not be.
    let _ = child.start_kill();
    child.wait()?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
    let [out, err] = heard.map(|text| text.map_err(late));
    Ok(ProgramOutput { success: ended.is_some_and(|status| status.success()), out: out?, err: err? })
}

/// Where a program is installed: what a link on the path leads to.
pub fn program(name: &str) -> Option<std::path::PathBuf> {
    fs::canonicalize(found(name)?).ok()
}

/// The program of a name, from absolute directories of `PATH`: a checkout is no place for programs.
fn found(program: &str) -> Option<std::path::PathBuf> {
    let path = Path::new(program);
    if path.is_absolute() {
        return Some(path.to_owned());
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(&dirs).filter(|dir| dir.is_absolute()).map(|dir| dir.join(program));
    candidates.into_iter().find(|path| path.is_file())
}

/// Reads a stream to its end on a thread of its own.
fn collect(from: Option<impl io::Read + Send + 'static>) -> std::sync::mpsc::Receiver<String> {
    let (said, heard) = std::sync::mpsc::channel();
    if let Some(from) = from {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What cannot be read was not said; nobody may be listening any more.
            let _ = io::Read::read_to_end(&mut io::Read::take(from, MOST_OUTPUT), &mut bytes);
            let _ = said.send(String::from_utf8_lossy(&bytes).into_owned());
        });
    }
    heard
}

/// The harness that started this process: its nearest ancestor that is not a shell.
pub fn harness_process() -> Option<u32> {
    #[cfg(target_os = "linux")]
    {
        const SHELLS: [&str; 6] = ["sh", "bash", "dash", "zsh", "ash", "env"];
        let mut pid = std::os::unix::process::parent_id();
        for _ in 0..8 {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
            if !SHELLS.contains(&name) {
                return (pid > 1).then_some(pid);
            }
            pid = rest.split_ascii_whitespace().nth(1)?.parse().ok()?;
        }
        None
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Whether a command can be started and succeeds.
#[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
pub(crate) fn succeeds(words: &[&str]) -> bool {
    let Some((program, words)) = words.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// When a command last had output.
#[derive(Clone, Default)]
pub(crate) struct Activity {
    last: Arc<Mutex<Option<Instant>>>,
    /// Number of pieces of output that are not stored yet: while there are any, silence is not the command's fault.
    waiting: Arc<AtomicUsize>,
}

impl Activity {
    /// How long it has been silent, if it started at `begun`.
    pub(crate) fn silent(&self, begun: Instant) -> Duration {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.last.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or(begun).elapsed()
    }

    fn heard(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }
}

fn listen(
    from: Option<impl io::Read + Send + 'static>,
    voice: Voice,
    said: &SyncSender<CommandOutput>,
    activity: &Activity,
) {
    let Some(mut from) = from else { return };
    let (said, activity) = (said.clone(), activity.clone());
    thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        // What cannot be read was not said.
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            activity.heard();
            activity.waiting.fetch_add(1, Ordering::Relaxed);
            let passed = said.send(CommandOutput::Bytes(voice, buffer[..count].to_vec()));
            activity.waiting.fetch_sub(1, Ordering::Relaxed);
            activity.heard();
            if passed.is_err() {
                return;
            }
        }
        // Nobody may be listening any more.
        let _ = said.send(CommandOutput::End(voice));
    });
}

/// Notifies when a process ends, without reaping it.
#[cfg(target_os = "linux")]
fn watch(pid: u32, ended: &Sender<()>) {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let ended = ended.clone();
    thread::spawn(move || {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap_or(0));
        while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::errno::Errno::EINTR) {}
        // Nobody may be listening any more.
        let _ = ended.send(());
    });
}

/// On other systems the process is polled.
#[cfg(not(target_os = "linux"))]
fn watch(_pid: u32, _ended: &Sender<()>) {}
