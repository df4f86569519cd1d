//! The only module that starts processes: git, jj and hg, by absolute path, without a shell, prompts or hooks, and
//! without network access except to exchange ledgers.
//!
//! A repository may come from anywhere, so settings in its configuration that name programs are overridden. The user's
//! own configuration applies.

use std::{
    env,
    ffi::OsStr,
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use thiserror::Error;

use crate::{git_run::MOST_SETTINGS, lock, stalled};

/// Default time limit of a run.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often a silent program is checked for a stall.
const TICK: Duration = Duration::from_secs(1);
/// Time limit for writing a large file.
const LONG: Duration = Duration::from_secs(3_600);
/// Maximum size of a program's standard output.
const MOST: u64 = 256 << 20;
/// Maximum size of standard error that is kept.
const MOST_COMPLAINT: u64 = 64 << 10;

/// Why a program failed.
#[derive(Debug, Error)]
pub enum RunError {
    /// It is not installed.
    #[error("{0} is not installed, or not on an absolute PATH")]
    Missing(&'static str),
    /// It could not be started, or communication with it failed.
    #[error("could not run `{what}`: {cause}")]
    Io {
        /// The command line, shortened.
        what: String,
        cause: io::Error,
    },
    /// It exited with an error.
    #[error("{said} (from `{what}`)")]
    Failed {
        /// The command line, shortened.
        what: String,
        code: i32,
        said: String,
    },
    /// It exceeded its time limit and was killed.
    #[error("`{what}` took longer than {seconds} s and was stopped")]
    Late {
        /// The command line, shortened.
        what: String,
        /// The time limit.
        seconds: u64,
    },
    /// It slept without progress and was killed.
    #[error("`{what}` waited for something that does not come, such as a pipe in place of a file, and was ended")]
    Stalled {
        /// The command line, shortened.
        what: String,
    },
    /// Its output was too large.
    #[error("the output of `{what}` is larger than {MOST} bytes")]
    TooMuch {
        /// The command line, shortened.
        what: String,
    },
    /// A git directory contains something that git does not write.
    #[error("{path} is refused: {why}", path = path.display())]
    Odd {
        /// The file or directory.
        path: PathBuf,
        /// The problem with it.
        why: String,
    },
    /// The repository's configuration names an implausible number of programs.
    #[error("the configuration of {dir} names more than {MOST_SETTINGS} programs", dir = dir.display())]
    Hostile { dir: PathBuf },
}

impl RunError {
    /// Whether the error is transient: another program was using the same files, so a retry may succeed.
    pub(crate) fn passes(&self) -> bool {
        const SIGNS: [&str; 7] = [
            ".lock': File exists",
            "Unable to create",
            "could not lock",
            "cannot lock ref",
            "unable to lock",
            "failed to read worktrees",
            "unable to read tree",
        ];
        matches!(self, Self::Failed { said, .. } if SIGNS.iter().any(|sign| said.contains(sign)))
    }
}

/// The result of a program that has ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn ok(self, what: String) -> Result<Vec<u8>, RunError> {
        match self.code {
            0 => Ok(self.out),
            code => {
                // Advice does not explain the failure.
                let said = self.err.lines().filter(|line| !line.starts_with("hint:")).collect::<Vec<_>>().join(" · ");
                Err(RunError::Failed { what, code, said })
            }
        }
    }
}

/// A program to run.
pub(crate) struct Run {
    pub(crate) command: Command,
    what: String,
    patience: Duration,
    /// A git command that only reads local files, so a long sleep means that it is stalled. Jujutsu may wait for locks.
    pub(crate) answers: bool,
    /// Processes that it leaves running must not hold our lock.
    apart: bool,
}

impl Run {
    /// Jujutsu in `dir`. The configuration of a repository or workspace may name programs, so every such setting is
    /// overridden. Settings that define revsets still apply.
    pub(crate) fn jj(dir: &Path) -> Result<Self, RunError> {
        // Prevents jj from using a repository in a parent directory.
        let run = Self::new("jj", dir)?.args(["--no-pager", "--color=never", "--quiet"]).named("-R", dir);
        Ok(run.args([
            "--config=fsmonitor.backend=\"none\"",
            "--config=fsmonitor.watchman.register-snapshot-trigger=false",
            "--config=signing.behavior=\"drop\"",
            "--config=signing.backends.gpg.program=\"false\"",
            "--config=signing.backends.gpgsm.program=\"false\"",
            "--config=signing.backends.ssh.program=\"false\"",
            "--config=git.executable-path=\"git\"",
            "--config=ui.editor=\":\"",
            "--config=ui.diff-formatter=\":git\"",
            "--config=ui.merge-editor=\":builtin\"",
            // Track every file that is not ignored, whatever its size.
            "--config=snapshot.auto-track=\"all()\"",
            "--config=snapshot.max-new-file-size=0",
        ]))
    }

    /// Mercurial in `dir`. The repository's own configuration is not read.
    pub(crate) fn hg(dir: &Path) -> Result<Self, RunError> {
        let run = Self::hg_like("hg", dir)?;
        Ok(run.args(["--noninteractive", "--config", "extensions.share="]))
    }

    /// Sapling in `dir`.
    pub(crate) fn sl(dir: &Path) -> Result<Self, RunError> {
        Ok(Self::hg_like("sl", dir)?.args(["--noninteractive"]))
    }

    fn hg_like(program: &'static str, dir: &Path) -> Result<Self, RunError> {
        let mut run = Self::new(program, dir)?.named("-R", dir);
        run.command.env("HGPLAIN", "1").env("HGRCSKIPREPO", "1").env_remove("HG");
        Ok(run)
    }

    /// The `cp` program.
    pub(crate) fn copying(dir: &Path) -> Result<Self, RunError> {
        Self::new("cp", dir)
    }

    /// A program that mounts or unmounts in `dir` and may stay in the background to serve the mount.
    pub(crate) fn mounting(program: &'static str, dir: &Path) -> Result<Self, RunError> {
        let mut run = Self::new(program, dir)?;
        run.command.stdout(Stdio::null()).stderr(Stdio::null());
        run.apart = true;
        Ok(run)
    }

    #[expect(clippy::disallowed_methods, reason = "the only place a process is started")]
    pub(crate) fn new(program: &'static str, dir: &Path) -> Result<Self, RunError> {
        let mut command = Command::new(absolute(program)?);
        command.current_dir(dir).env("LC_ALL", "C").env("SSH_ASKPASS", "").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Self { command, what: program.to_owned(), patience: PATIENCE, answers: false, apart: false })
    }

    /// Adds arguments.
    pub(crate) fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        for arg in args {
            let arg = arg.as_ref();
            if !arg.to_string_lossy().starts_with("--") && self.what.len() < 120 {
                self.what = format!("{} {}", self.what, arg.to_string_lossy());
            }
            self.command.arg(arg);
        }
        self
    }

    /// Adds an option that error messages do not mention.
    fn named(mut self, option: &str, path: &Path) -> Self {
        self.command.arg(option).arg(path);
        self
    }

    /// Adds an argument.
    pub(crate) fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the time limit.
    pub(crate) fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self.answers = false;
        self
    }

    /// Runs it and returns the result, whatever its exit code.
    pub(crate) fn end(mut self) -> Result<Ended, RunError> {
        // The program does not read this; it inherits the lock file, and so holds the lock for as long as it runs.
        let held = if self.apart { None } else { lock::held() };
        self.command.stdin(held.map_or_else(Stdio::null, Stdio::from));
        self.run(|_| Ok(()))
    }

    /// Runs it with standard input from `feed`.
    pub(crate) fn end_fed(mut self, feed: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Ended, RunError> {
        self.command.stdin(Stdio::piped());
        self.run(feed)
    }

    fn run(mut self, feed: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Ended, RunError> {
        let what = self.what;
        let failed = |cause| RunError::Io { what: what.clone(), cause };
        let mut child = self.command.spawn().map_err(failed)?;
        let (told, telling) = mpsc::channel();
        listen(child.stdout.take(), MOST, 0, &told);
        listen(child.stderr.take(), MOST_COMPLAINT, 1, &told);
        drop(told);
        let until = Instant::now() + self.patience;
        if let Some(stdin) = child.stdin.take() {
            let mut stdin = io::BufWriter::with_capacity(1 << 16, stdin);
            match feed(&mut stdin).and_then(|()| stdin.flush()) {
                // A program that fails stops reading; its own error message explains more.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(cause) => {
                    finish(&mut child);
                    return Err(failed(cause));
                }
                Ok(()) => {}
            }
        }
        let mut said = [None, None];
        let mut watch = (self.answers && !self.apart).then(|| stalled::Watch::new(child.id()));
        while said.iter().any(Option::is_none) {
            let left = until.saturating_duration_since(Instant::now());
            match telling.recv_timeout(left.min(TICK)) {
                Ok((index, heard)) => said[index] = Some(heard),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if left > TICK => {
                    if watch.as_mut().is_some_and(stalled::Watch::is_stalled) {
                        finish(&mut child);
                        return Err(RunError::Stalled { what });
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    finish(&mut child);
                    return Err(RunError::Late { what, seconds: self.patience.as_secs() });
                }
            }
        }
        let status = child.wait().map_err(failed)?;
        let [out, err] = said.map(Option::unwrap_or_default);
        if out.len() as u64 >= MOST {
            return Err(RunError::TooMuch { what });
        }
        let err = String::from_utf8_lossy(&err).trim().to_owned();
        Ok(Ended { code: status.code().unwrap_or(-1), out, err })
    }

    /// Starts it in the background. It continues after this process has ended.
    pub(crate) fn detach(mut self) -> Result<(), RunError> {
        self.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut self.command, 0);
        let mut child = self.command.spawn().map_err(|cause| RunError::Io { what: self.what.clone(), cause })?;
        thread::spawn(move || child.wait());
        Ok(())
    }

    /// Runs it and returns its output. Fails if its exit code is not 0.
    pub(crate) fn ok(self) -> Result<Vec<u8>, RunError> {
        let what = self.what.clone();
        self.end()?.ok(what)
    }

    /// Runs it with its output redirected to a file. Fails if its exit code is not 0.
    pub(crate) fn into_file(mut self, file: fs::File) -> Result<(), RunError> {
        self.command.stdout(file);
        self.patience(LONG).ok().map(drop)
    }

    /// Runs it with standard input from `feed` and returns its output. Fails if its exit code is not 0.
    pub(crate) fn ok_fed(self, feed: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Vec<u8>, RunError> {
        let what = self.what.clone();
        self.end_fed(feed)?.ok(what)
    }

    /// Runs it and returns its output as text without trailing whitespace. Fails if its exit code is not 0.
    pub(crate) fn text(self) -> Result<String, RunError> {
        Ok(String::from_utf8_lossy(&self.ok()?).trim_end().to_owned())
    }

    /// Runs it and returns its output as text; `None` if the output is empty or the exit code is not 0.
    pub(crate) fn maybe(self) -> Result<Option<String>, RunError> {
        let ended = self.end()?;
        let text = String::from_utf8_lossy(&ended.out).trim_end().to_owned();
        Ok(Some(text).filter(|text| ended.code == 0 && !text.is_empty()))
    }
}

/// Reads a program's output up to `most` bytes. Standard error beyond that is discarded; for standard output the pipe
/// is closed, which stops the program.
fn listen(from: Option<impl Read + Send + 'static>, most: u64, index: usize, told: &mpsc::Sender<(usize, Vec<u8>)>) {
    let Some(mut from) = from else { return };
    let told = told.clone();
    thread::spawn(move || {
        let mut heard = Vec::new();
        // Output that cannot be read counts as empty.
        let _ = from.by_ref().take(most).read_to_end(&mut heard);
        if index == 1 {
            let _ = io::copy(&mut from, &mut io::sink());
        }
        drop(from);
        let _ = told.send((index, heard));
    });
}

/// Kills a program.
fn finish(child: &mut Child) {
    // It may have ended just now.
    let _ = child.kill();
    let _ = child.wait();
}

/// Runs a command of the user in a shell, with its output in `told`.
pub fn shell(
    dir: &Path,
    text: &str,
    variables: &std::collections::BTreeMap<String, String>,
    told: fs::File,
    patience: Duration,
) -> Result<(), RunError> {
    let what = text.to_owned();
    let failed = |cause| RunError::Io { what: what.clone(), cause };
    let mut run = Run::new("sh", dir)?.args(["-c", text]).patience(patience);
    run.command.envs(variables).env_remove("LC_ALL").env_remove("SSH_ASKPASS");
    run.command.stdout(told.try_clone().map_err(failed)?).stderr(told);
    run.apart = true;
    match run.end()?.code {
        0 => Ok(()),
        code => Err(RunError::Failed { what, code, said: format!("it ended with {code}") }),
    }
}

/// The path of a program. Relative directories on PATH are ignored: the repository would choose the program.
fn absolute(program: &'static str) -> Result<PathBuf, RunError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let name = format!("{program}{}", env::consts::EXE_SUFFIX);
    let found = env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(&name));
    found.into_iter().find(|file| file.is_file()).ok_or(RunError::Missing(program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_takes_too_long_is_ended() {
        let dir = tempfile::tempdir().unwrap();
        let start = Instant::now();
        let run = Run::new("sleep", dir.path()).unwrap().arg("60").patience(Duration::from_millis(50));
        assert!(matches!(run.end(), Err(RunError::Late { .. })));
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_program_is_found_on_absolute_paths_only() {
        assert!(absolute("sh").unwrap().is_absolute());
        assert!(matches!(absolute("no-such-program"), Err(RunError::Missing(_))));
    }
}
