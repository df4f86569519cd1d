//! A command and everything it starts: begun in a group of its own, ended whole.
//!
//! On Linux a slot adopts whatever its command leaves behind, so that nothing can slip away by detaching itself. Elsewhere
//! only the group is ended.

use std::{
    fs, io,
    path::Path,
    process::{Command, ExitStatus, Stdio},
    sync::mpsc::SyncSender,
    thread,
    time::{Duration, Instant},
};

use process_wrap::std::{ChildWrapper, CommandWrap};

use super::log::Voice;
use crate::error::Error;

/// What is heard from a running command.
pub(crate) enum Heard {
    /// It said a line.
    Line(Voice, Vec<u8>),
    /// It ended; what it started may live on.
    Ended,
}

/// How much of a line is read at once.
const CHUNK: usize = 64 << 10;
/// What was told to end is asked after so often.
const LOOK: Duration = Duration::from_millis(5);
/// What does not die when it is killed is given up on.
const GIVE_UP: Duration = Duration::from_secs(10);

/// A workspace of an ordinary user may be a mount that a process serves: it belongs to the workspace, not to an agent.
#[cfg(target_os = "linux")]
const SERVES_MOUNTS: &str = "(fuse-overlayfs";

/// What is to be started.
pub(crate) struct Start<'a> {
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
    /// Starts it; what it says and when it ends is told.
    #[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
    pub(crate) fn start(start: Start<'_>, told: &SyncSender<Heard>) -> io::Result<Self> {
        let [program, words @ ..] = start.command else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
        };
        let mut command = Command::new(program);
        command.args(words).current_dir(start.dir).env("PWD", start.dir).envs(start.variables);
        // Whose process a lease follows was the caller's to say, not the agent's.
        command.env_remove("TOFT_PID").env_remove(super::SLOT).env_remove(super::WARDEN);
        without_callers_repository(&mut command);
        command.stdin(start.stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut wrapped = CommandWrap::from(command);
        #[cfg(unix)]
        wrapped.wrap(process_wrap::std::ProcessGroup::leader());
        #[cfg(windows)]
        wrapped.wrap(process_wrap::std::JobObject);
        let mut child = wrapped.spawn()?;
        listen(child.stdout().take(), Voice::Out, told);
        listen(child.stderr().take(), Voice::Err, told);
        watch(child.id(), told);
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

    #[cfg(unix)]
    fn tell_to_end(&self) {
        // Whoever is gone by now needs no telling.
        let _ = self.child.signal(nix::sys::signal::Signal::SIGTERM as i32);
        for pid in left_behind() {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        }
    }

    #[cfg(not(unix))]
    fn tell_to_end(&mut self) {}

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
    #[cfg(unix)]
    let cause = std::os::unix::process::CommandExt::exec(Command::new(program).args(words));
    #[cfg(not(unix))]
    let cause = io::Error::from(io::ErrorKind::Unsupported);
    Error::Start { command: program.clone(), cause }
}

/// Runs a command line in a shell. With something to read, nothing that it says is kept and it must end soon; without, it
/// speaks and hears as this process does.
#[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
pub fn in_shell(line: &str, dir: &Path, variables: &[(&str, &str)], input: Option<&str>) -> io::Result<ExitStatus> {
    let mut command = Command::new("sh");
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

/// From now on what is left behind by its parent becomes this process's own child.
pub(crate) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
        // Very old kernels; the group is ended all the same.
        debug_assert_eq!(error, nix::errno::Errno::EINVAL);
    }
}

/// Whether nothing is left to be ended; of what has ended, leave is taken.
#[cfg(unix)]
fn nobody_left() -> bool {
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(nix::errno::Errno::ECHILD) => return true,
            Ok(WaitStatus::StillAlive) | Err(_) => return left_behind().is_empty(),
            Ok(_) => {}
        }
    }
}

#[cfg(not(unix))]
fn nobody_left() -> bool {
    true
}

#[cfg(unix)]
fn kill_left_behind() {
    for pid in left_behind() {
        // It may have ended in this moment.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
}

#[cfg(not(unix))]
fn kill_left_behind() {}

/// Every process below this one.
#[cfg(target_os = "linux")]
fn left_behind() -> Vec<nix::unistd::Pid> {
    below(&[], false)
}

/// Every process below this one that is neither in `but` nor below one of those. If told so, takes leave of its own
/// children that ended.
#[cfg(target_os = "linux")]
fn below(but: &[i32], take_leave: bool) -> Vec<nix::unistd::Pid> {
    use nix::{sys::wait, unistd::Pid};
    let me = i32::try_from(std::process::id()).unwrap_or(0);
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
    let mut below = vec![me];
    let mut next = 0;
    while let Some(parent) = below.get(next).copied() {
        below.extend(all.iter().filter(|(pid, of)| *of == parent && !but.contains(pid)).map(|(pid, _)| *pid));
        next += 1;
    }
    below.into_iter().skip(1).map(Pid::from_raw).collect()
}

#[cfg(all(unix, not(target_os = "linux")))]
fn left_behind() -> Vec<nix::unistd::Pid> {
    Vec::new()
}

#[cfg(not(unix))]
fn left_behind() -> Vec<u32> {
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
pub(crate) fn end_stragglers(leases: &[String]) -> usize {
    #[cfg(target_os = "linux")]
    {
        let ours = |environ: &str| {
            environ.split('\0').any(|word| {
                word.strip_prefix(super::attempt::MARK).is_some_and(|value| {
                    value.strip_prefix('=').is_some_and(|lease| leases.iter().any(|known| known == lease))
                })
            })
        };
        let found: Vec<i32> =
            processes("environ").into_iter().filter(|(_, environ)| ours(environ)).map(|(pid, _)| pid).collect();
        for pid in &found {
            // It may have ended in this moment.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(*pid), nix::sys::signal::Signal::SIGKILL);
        }
        found.len()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = leases;
        0
    }
}

/// Every process below this one now.
pub(crate) fn children() -> Vec<u32> {
    #[cfg(target_os = "linux")]
    return below(&[], false).into_iter().filter_map(|pid| u32::try_from(pid.as_raw()).ok()).collect();
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Whether anything is below this process but what is in `known`, or below that.
pub(crate) fn any_children_but(known: &[u32]) -> bool {
    #[cfg(target_os = "linux")]
    {
        let known: Vec<i32> = known.iter().filter_map(|pid| i32::try_from(*pid).ok()).collect();
        !below(&known, true).is_empty()
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = known;
        false
    }
}

/// Kills every process below this one that is neither one of `known` nor below one of them; gives whether there was any.
pub(crate) fn end_children_but(known: &[u32]) -> bool {
    #[cfg(target_os = "linux")]
    {
        let known: Vec<i32> = known.iter().filter_map(|pid| i32::try_from(*pid).ok()).collect();
        let found = below(&known, true);
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

fn listen(from: Option<impl io::Read + Send + 'static>, voice: Voice, told: &SyncSender<Heard>) {
    let Some(mut from) = from else { return };
    let told = told.clone();
    thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        let mut line = Vec::new();
        // What cannot be read was not said.
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            for part in buffer[..count].split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(part);
                let whole = line.ends_with(b"\n") || line.len() >= CHUNK;
                if whole && told.send(Heard::Line(voice, std::mem::take(&mut line))).is_err() {
                    return;
                }
            }
        }
        if !line.is_empty() {
            // Nobody may be listening any more.
            let _ = told.send(Heard::Line(voice, line));
        }
    });
}

/// Tells when a process ends, without taking leave of it.
#[cfg(target_os = "linux")]
fn watch(pid: u32, told: &SyncSender<Heard>) {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};
    let told = told.clone();
    thread::spawn(move || {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap_or(0));
        while waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) == Err(nix::errno::Errno::EINTR) {}
        // Nobody may be listening any more.
        let _ = told.send(Heard::Ended);
    });
}

/// Elsewhere it is asked after.
#[cfg(not(target_os = "linux"))]
fn watch(_pid: u32, _told: &SyncSender<Heard>) {}
