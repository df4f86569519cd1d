//! A command and everything it starts: begun in a group of its own, ended whole.
//!
//! On Linux a slot adopts whatever its command leaves behind, so that nothing can slip away by detaching itself. Elsewhere
//! only the group is ended.

use std::{
    fs, io,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use process_wrap::std::{ChildWrapper, CommandWrap};
use toft_session::{
    error::Error,
    processes::{kill_left_behind, left_behind, nobody_left},
};

use super::log::Voice;

/// What a running command says.
pub(crate) enum CommandOutput {
    /// Some bytes.
    Bytes(Voice, Vec<u8>),
    /// Nothing more on this one.
    End(Voice),
}

/// How much is read at once.
const CHUNK: usize = 64 << 10;
/// What was told to end is asked after so often.
const LOOK: Duration = Duration::from_millis(5);
/// What does not die when it is killed is given up on.
const GIVE_UP: Duration = Duration::from_secs(10);

/// What is to be started.
pub(crate) struct ProcessStart<'a> {
    pub(crate) command: &'a [String],
    pub(crate) dir: &'a Path,
    pub(crate) stdin: fs::File,
    pub(crate) variables: Vec<(String, String)>,
}

/// A running command.
pub(crate) struct Running {
    child: Box<dyn ChildWrapper>,
}

impl Running {
    /// Starts it. What it says goes to `said`, at whose pace it can speak; that it ended is told to `ended` at once.
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
        wrapped.wrap(process_wrap::std::ProcessGroup::leader());
        let mut child = wrapped.spawn()?;
        listen(child.stdout().take(), Voice::Out, said, activity);
        listen(child.stderr().take(), Voice::Err, said, activity);
        watch(child.id(), ended);
        Ok(Self { child })
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.inner_mut().try_wait()
    }

    /// Tells everything it started to end; what has not after `grace` is killed. Gives how the command itself ended.
    pub(crate) fn end(&mut self, grace: Duration) -> io::Result<Option<ExitStatus>> {
        self.tell_to_end();
        let until = Instant::now() + grace;
        while Instant::now() < until {
            if self.ended()?.is_some() && !self.any_left() {
                break;
            }
            thread::sleep(LOOK);
        }
        self.kill_rest()?;
        self.ended()
    }

    fn tell_to_end(&self) {
        // A stopped process hears only when it goes on. One that is gone by now needs no telling.
        for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGCONT] {
            let _ = self.child.signal(signal as i32);
            for pid in left_behind() {
                let _ = nix::sys::signal::kill(pid, signal);
            }
        }
    }

    fn any_left(&self) -> bool {
        !left_behind().is_empty()
    }

    /// Kills what is left of it, until nothing is.
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

/// Which repository the caller was in means nothing where a command is started.
fn without_callers_repository(command: &mut Command) {
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

/// Whether this process was started to go on when its terminal is gone.
pub fn ignores_hang_up() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Whether there is such a program, as far as can be told before it is started.
pub fn can_start(program: &str) -> bool {
    let path = Path::new(program);
    if path.components().count() > 1 {
        // One that is named from a workspace may be there.
        return path.is_relative() || path.is_file();
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs).any(|dir| dir.join(format!("{program}{}", std::env::consts::EXE_SUFFIX)).is_file())
}

/// Becomes another command; gives back only why that was not possible.
#[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
pub fn become_command(words: &[String]) -> Error {
    let [program, words @ ..] = words else { return Error::NoSandbox };
    let cause = std::os::unix::process::CommandExt::exec(Command::new(program).args(words));
    Error::Start { command: program.clone(), cause }
}

/// Runs a command line in a shell. With something to read, nothing that it says is kept and it must end soon; without, it
/// speaks and hears as this process does.
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

/// The harness that this process was started by: the first above it that is no shell.
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

/// Whether a command can be started, and ends well.
#[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
pub(crate) fn succeeds(words: &[&str]) -> bool {
    let Some((program, words)) = words.split_first() else { return false };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// When a command last said something.
#[derive(Clone, Default)]
pub(crate) struct Activity {
    last: Arc<Mutex<Option<Instant>>>,
    /// What it says waits to be kept: that it says no more is not its fault.
    waiting: Arc<AtomicUsize>,
}

impl Activity {
    /// Since when it has been silent, if it began at `begun`.
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

/// Tells when a process ends, without taking leave of it.
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

/// Elsewhere it is asked after.
#[cfg(not(target_os = "linux"))]
fn watch(_pid: u32, _ended: &Sender<()>) {}
