//! The process that a user starts and may kill: it has one child, the runner, and sees to it that nothing outlives it.
//!
//! Runner and warden watch each other. When the warden is killed, its end of a pipe closes and the runner stops; when the
//! runner is killed, everything below it becomes the warden's own child and is ended.

use std::{
    ffi::OsString,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::tree;
use crate::error::{Error, io as failed};

/// The variable that tells a process that it has a warden.
pub const WARDEN: &str = "TOFT_RUN_WARDEN";

/// How long slots that lost their runner have to end what they began.
const LAST_ACTS: Duration = Duration::from_secs(15);
/// How often it is looked whether they did.
const LOOK: Duration = Duration::from_millis(10);

/// Over a runner.
pub struct Warden {
    child: Child,
    /// What was below this process before: a shell that became it may have started something.
    others: Vec<u32>,
}

impl Warden {
    /// Starts the runner: `program` with `args`.
    #[expect(clippy::disallowed_methods, reason = "a runner starts itself again below its warden")]
    pub fn start(program: &Path, args: Vec<OsString>) -> Result<Self, Error> {
        let others = tree::children();
        tree::adopt_orphans();
        let mut command = Command::new(program);
        command.args(args).env(WARDEN, "1").stdin(Stdio::piped());
        // What is typed at the terminal reaches the warden, who passes it on once.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(failed("start", program))?;
        Ok(Self { child, others })
    }

    /// Whom to pass signals on to.
    pub fn runner(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the runner to end, and ends whatever it left. Gives its exit code; nothing if it was killed.
    pub fn wait(mut self) -> Result<Option<i32>, Error> {
        // Its input stays open until then: that is how it knows that somebody watches.
        let held = self.child.stdin.take();
        let status = self.child.wait().map_err(failed("wait for", Path::new("the runner")))?;
        drop(held);
        // If the runner was killed, its slots notice, end their agents, and give back what they hold.
        let until = Instant::now() + LAST_ACTS;
        while Instant::now() < until && tree::any_children_but(&self.others) {
            thread::sleep(LOOK);
        }
        end_all(&self.others);
        Ok(status.code())
    }
}

/// Ends everything below this process but what is in `others`, or below that.
pub(super) fn end_all(others: &[u32]) {
    while tree::end_children_but(others) {
        thread::sleep(LOOK);
    }
}

/// Passes a signal on.
pub fn pass_on(signal: i32, to: u32) {
    #[cfg(unix)]
    if let (Ok(signal), Ok(pid)) = (nix::sys::signal::Signal::try_from(signal), i32::try_from(to)) {
        // It may have ended in this moment.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
    }
    #[cfg(not(unix))]
    let _ = (signal, to);
}
