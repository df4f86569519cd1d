//! The process that a user starts and may kill: it has one child, the runner, and ensures that no descendant outlives
//! it.
//!
//! Runner and supervisor watch each other. When the supervisor is killed, its end of a pipe closes and the runner
//! stops; when the runner is killed, its descendants become children of the supervisor and are ended.

use std::{
    ffi::OsString,
    io::{Read as _, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::Receiver,
    thread,
    time::{Duration, Instant},
};

use toft_session::{
    error::{Error, io as failed},
    processes,
};

/// The variable of a process that has a supervisor.
pub const SUPERVISOR: &str = "TOFT_RUN_WARDEN";

/// How long slots that lost their runner have to end.
const LAST_ACTS: Duration = Duration::from_secs(15);
/// How often this is checked.
const LOOK: Duration = Duration::from_millis(10);
/// How often the runner is checked.
const TICK: Duration = Duration::from_millis(100);
/// How often the runner sends a heartbeat.
const SIGN: Duration = Duration::from_secs(1);
/// A runner without a heartbeat for this long is killed.
const SILENT: Duration = Duration::from_secs(5);
/// How long a runner that was asked to stop has after the grace period: longer than it gives its slots.
const STOPPING: Duration = Duration::from_secs(8);
/// The heartbeat of the runner.
const ALIVE: u8 = b'.';

/// The supervisor of a runner.
pub struct Supervisor {
    child: Child,
    /// The channel to the runner; when it closes, the runner knows that the supervisor is gone.
    signs: UnixStream,
    /// Descendants of this process before the start: a shell that was replaced by it may have started some.
    others: Vec<u32>,
}

impl Supervisor {
    /// Starts the runner: `program` with `args`.
    #[expect(clippy::disallowed_methods, reason = "a runner starts itself again below its supervisor")]
    pub fn start(program: &Path, args: Vec<OsString>) -> Result<Self, Error> {
        let others = processes::children();
        processes::adopt_orphans();
        let (signs, theirs) = UnixStream::pair().map_err(failed("start", program))?;
        signs.set_nonblocking(true).map_err(failed("start", program))?;
        let mut command = Command::new(program);
        command.args(args).env(SUPERVISOR, "1").stdin(Stdio::from(OwnedFd::from(theirs)));
        // What is typed at the terminal reaches the supervisor, who passes it on once.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(failed("start", program))?;
        Ok(Self { child, signs, others })
    }

    /// Waits for the runner to end, and ends its remaining descendants. Forwards signals; a runner that does not
    /// respond, or does not end when it is asked to, is killed. Returns its exit code; none if it was killed.
    pub fn wait(mut self, signals: &Receiver<i32>, grace: Duration) -> Result<Option<i32>, Error> {
        let mut watched = Watched::default();
        let status = loop {
            if let Some(status) = self.child.try_wait().map_err(failed("wait for", Path::new("the runner")))? {
                break status;
            }
            let mut read = [0; 64];
            while let Ok(1..) = self.signs.read(&mut read) {
                watched.silent = Some(0);
            }
            if let Ok(signal) = signals.recv_timeout(TICK) {
                pass_on(signal, self.child.id());
                watched.told(signal, grace);
            }
            if watched.overdue() {
                // Its slots notice, end their agents, and give back what they hold.
                self.child.kill().map_err(failed("kill", Path::new("the runner")))?;
            }
        };
        drop(self.signs);
        // If the runner was killed, its slots notice, end their agents, and give back what they hold.
        let until = Instant::now() + if watched.hurry { Duration::ZERO } else { LAST_ACTS };
        while Instant::now() < until && processes::any_children_but(&self.others) {
            thread::sleep(LOOK);
            if signals.try_recv().is_ok() {
                break;
            }
        }
        end_all(&self.others);
        Ok(status.code())
    }
}

/// The state of the runner.
#[derive(Default)]
struct Watched {
    /// Number of ticks without a heartbeat; ticks do not count while this process itself is stopped. Absent until the
    /// runner has started.
    silent: Option<u32>,
    interrupts: u32,
    /// It was asked to stop, and must have ended by this time.
    stop_by: Option<Instant>,
    /// The deadline to stop has passed, so the rest is ended without waiting.
    hurry: bool,
}

impl Watched {
    fn told(&mut self, signal: i32, grace: Duration) {
        let interrupt = signal == nix::sys::signal::Signal::SIGINT as i32;
        self.interrupts += u32::from(interrupt);
        if !interrupt || self.interrupts > 1 {
            match self.stop_by {
                // The runner ends everything at the second order; it has a moment to do so.
                Some(_) => self.stop_by = Some(Instant::now() + 2 * SIGN),
                None => self.stop_by = Some(Instant::now() + grace + STOPPING),
            }
        }
    }

    fn overdue(&mut self) -> bool {
        self.silent = self.silent.map(|ticks| ticks + 1);
        let silent = self.silent.is_some_and(|ticks| ticks * TICK >= SILENT);
        let stopped = self.stop_by.is_some_and(|by| by <= Instant::now());
        self.hurry |= stopped;
        silent || stopped
    }
}

/// Sends a heartbeat to the supervisor every second. Standard input is the channel.
pub fn show_life() -> Result<(), Error> {
    let broken = || failed("reach", Path::new("the supervisor"));
    let mut signs = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().map_err(broken())?);
    thread::spawn(move || {
        loop {
            // A supervisor that is gone is noticed where its orders come from.
            let _ = signs.write(&[ALIVE]);
            thread::sleep(SIGN);
        }
    });
    Ok(())
}

/// Ends every descendant of this process except `others` and their descendants.
pub(super) fn end_all(others: &[u32]) {
    while processes::end_children_but(others) {
        thread::sleep(LOOK);
    }
}

/// Forwards a signal.
pub(super) fn pass_on(signal: i32, to: u32) {
    if let (Ok(signal), Ok(pid)) = (nix::sys::signal::Signal::try_from(signal), i32::try_from(to)) {
        // It may have ended in this moment.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
    }
}
