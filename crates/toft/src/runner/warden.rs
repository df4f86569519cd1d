//! The process that a user starts and may kill: it has one child, the runner, and sees to it that nothing outlives it.
//!
//! Runner and warden watch each other. When the warden is killed, its end of a pipe closes and the runner stops; when the
//! runner is killed, everything below it becomes the warden's own child and is ended.

use std::{
    ffi::OsString,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use super::process;
use crate::error::{Error, io as failed};

/// The variable that tells a process that it has a warden.
pub const WARDEN: &str = "TOFT_RUN_WARDEN";

/// Over a runner.
pub struct Warden {
    child: Child,
}

impl Warden {
    /// Starts the runner: `program` with `args`.
    #[expect(clippy::disallowed_methods, reason = "a runner starts itself again below its warden")]
    pub fn start(program: &Path, args: Vec<OsString>) -> Result<Self, Error> {
        process::adopt_orphans();
        let mut command = Command::new(program);
        command.args(args).env(WARDEN, "1").stdin(Stdio::piped());
        // What is typed at the terminal reaches the warden, who passes it on once.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn().map_err(failed("start", program))?;
        Ok(Self { child })
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
        end_all();
        Ok(status.code())
    }
}

/// Ends everything below this process.
pub(super) fn end_all() {
    while process::end_children_but(&[]) {
        thread::sleep(Duration::from_millis(5));
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
