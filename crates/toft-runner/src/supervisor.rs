//! The process that a user starts and may kill: it has one child, the runner, and sees to it that nothing outlives it.
//!
//! Runner and supervisor watch each other. When the supervisor is killed, its end of a pipe closes and the runner stops; when the
//! runner is killed, everything below it becomes the supervisor's own child and is ended.

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

/// The variable that tells a process that it has a supervisor.
pub const SUPERVISOR: &str = "TOFT_RUN_WARDEN";

/// How long slots that lost their runner have to end what they began.
const LAST_ACTS: Duration = Duration::from_secs(15);
/// How often it is looked whether they did.
const LOOK: Duration = Duration::from_millis(10);
/// How often the runner is looked at.
const TICK: Duration = Duration::from_millis(100);
/// How often the runner shows that it lives.
const SIGN: Duration = Duration::from_secs(1);
/// A runner that shows no sign of life for this long is killed.
const SILENT: Duration = Duration::from_secs(5);
/// A runner that was told to stop has this long after the grace: longer than it gives its slots.
const STOPPING: Duration = Duration::from_secs(8);
/// What the runner writes while it lives.
const ALIVE: u8 = b'.';

/// Over a runner.
pub struct Supervisor {
    child: Child,
    /// The way to the runner and back: that it closes tells the runner that nobody watches.
    signs: UnixStream,
    /// What was below this process before: a shell that became it may have started something.
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

    /// Waits for the runner to end, and ends whatever it left. Passes signals on; a runner that does not answer, or does
    /// not end when it is told to, is killed. Gives its exit code; nothing if it was killed.
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

/// What the supervisor knows of its runner.
#[derive(Default)]
struct Watched {
    /// Since when nothing came, in ticks of this process: if it was stopped itself, nobody counted. Only a runner that
    /// has begun can fall silent.
    silent: Option<u32>,
    interrupts: u32,
    /// It was told to stop, and has until then.
    stop_by: Option<Instant>,
    /// Somebody does not want to wait.
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

/// Shows the supervisor every second that this runner lives. Standard input is the way to it.
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

/// Ends everything below this process but what is in `others`, or below that.
pub(super) fn end_all(others: &[u32]) {
    while processes::end_children_but(others) {
        thread::sleep(LOOK);
    }
}

/// Passes a signal on.
fn pass_on(signal: i32, to: u32) {
    if let (Ok(signal), Ok(pid)) = (nix::sys::signal::Signal::try_from(signal), i32::try_from(to)) {
        // It may have ended in this moment.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
    }
}
