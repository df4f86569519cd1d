//! Programs and processes: how they are found, run within a time limit, and ended.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, thread};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Looks again and again until `done`, for half a minute at most; returns whether it came about.
pub(crate) fn wait_until(done: impl FnMut() -> bool) -> bool {
    wait_within(Duration::from_secs(30), Duration::from_millis(5), done)
}

/// The same with another limit, and a longer pause between two looks that cost more.
pub(crate) fn wait_within(limit: Duration, pause: Duration, mut done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !done() {
        if start.elapsed() > limit {
            return false;
        }
        thread::sleep(pause);
    }
    true
}

/// The folder of the newest PostgreSQL server's programs.
pub(crate) fn programs() -> Option<PathBuf> {
    let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<_> = installed.map(|version| version.path()).collect();
    versions.sort_by_key(|path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()));
    let packaged = versions.iter().rev().map(|version| version.join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = packaged.chain(env::split_paths(&path));
    folders.find(|folder| folder.join("postgres").is_file())
}

/// Where one of PostgreSQL's programs is.
pub(crate) fn program(name: &str) -> PathBuf {
    programs().expect("no PostgreSQL server is installed").join(name)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A command that the servers' user runs in `folder`. Of our own surroundings it sees only the `PATH`.
pub(crate) fn command(folder: &TempDir, program: &Path) -> Command {
    let mut command = Command::new(if is_root() { "runuser" } else { "env" });
    if is_root() {
        command.args(["-u", "postgres", "--"]);
    }
    command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
    command.current_dir(folder).process_group(0).stdin(Stdio::null());
    command.arg(program);
    command
}

/// Runs one of PostgreSQL's programs in `folder`, for a minute at most. Returns what it printed, or its complaint.
pub(crate) fn try_run(folder: &TempDir, words: &[&str]) -> Result<String, String> {
    try_program(folder, &program(words[0]), &words[1..])
}

/// Runs a program in `folder`, for a minute at most. Returns what it printed, or its complaint.
pub(crate) fn try_program(folder: &TempDir, program: &Path, words: &[&str]) -> Result<String, String> {
    let mut timeout = command(folder, Path::new("timeout"));
    timeout.args(["--kill-after=5", "60"]).arg(program).args(words);
    let line = format!("{} {words:?}", program.display());
    let output = timeout.output().map_err(|error| format!("{line}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{line}: {}\n{complaint}", output.status))
}

/// Runs one of PostgreSQL's programs, given as words with spaces between, and panics if it fails.
pub(crate) fn run(folder: &TempDir, line: &str) {
    let words: Vec<_> = line.split(' ').collect();
    try_run(folder, &words).unwrap_or_else(|error| panic!("{error}"));
}

/// Runs SQL by way of the socket in `folder`, which leads to our own server and no other.
pub(crate) fn psql(folder: &TempDir, port: u16, database: &str, sql: &str) -> Result<String, String> {
    let folder_name = folder.path().display();
    let server = format!("host='{folder_name}' port={port} user=postgres dbname={database}");
    try_run(folder, &["psql", "-XAtq", "-d", &server, "-c", sql])
}

/// A new folder that belongs to the servers' user and that everyone may enter.
pub(crate) fn fresh_folder() -> TempDir {
    let folder = TempDir::with_prefix("toft-").expect("no folder for temporary files");
    give_to_servers(folder.path(), 0o755);
    folder
}

/// Makes an empty folder for a server's data.
pub(crate) fn make_data_folder(path: &Path) {
    fs::create_dir(path).expect("no room for a folder");
    give_to_servers(path, 0o700);
}

fn give_to_servers(folder: &Path, mode: u32) {
    fs::set_permissions(folder, Permissions::from_mode(mode)).expect("the folder is ours");
    if is_root() {
        let chown = Command::new("chown").arg("postgres:").arg(folder).status();
        assert!(chown.is_ok_and(|status| status.success()), "there is no user postgres");
    }
}

/// A loopback port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.expect("no free loopback port").port()
}

/// A server process that we started; dropping it ends it.
pub(crate) struct Daemon {
    child: Mutex<Child>,
    stop: Signal,
    log: PathBuf,
}

impl Daemon {
    /// Starts a server in a process group of its own. `stop` is the signal that makes it end quickly.
    pub(crate) fn spawn(command: &mut Command, stop: Signal, log: PathBuf) -> Self {
        let open = || File::options().create(true).append(true).open(&log);
        let child = open().and_then(|out| command.stdout(out).stderr(open()?).spawn());
        let child = Mutex::new(child.expect("could not start a server"));
        Self { child, stop, log }
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.child().try_wait(), Ok(None))
    }

    /// Waits until it is `ready`, or else panics with the end of its log.
    pub(crate) fn wait_until(&self, mut ready: impl FnMut() -> bool) {
        if !wait_until(|| !self.is_running() || ready()) || !self.is_running() {
            let log = fs::read(&self.log).unwrap_or_default();
            let end = String::from_utf8_lossy(&log[log.len().saturating_sub(4000)..]);
            panic!("the server takes no queries; {} ends:\n{end}", self.log.display());
        }
    }

    /// The server's main process while it runs. As root our own child is `runuser`, and the server is its only child.
    pub(crate) fn pid(&self) -> Option<Pid> {
        if !self.is_running() {
            return None;
        }
        let child = Pid::from_raw(self.child().id().cast_signed());
        if is_root() { children(child).pop() } else { Some(child) }
    }

    /// Ends the server and all its children with no chance to tidy up, and waits until they are gone. Their shared
    /// memory goes too, as it would with the machine. Returns whether all of them went.
    pub(crate) fn kill(&self) -> bool {
        let all_gone = self.pid().is_none_or(kill_family);
        // Our own child may be a `runuser`, which halted along with the server.
        let mut child = self.child();
        all_gone && child.kill().and_then(|()| child.wait()).is_ok()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            send(pid, self.stop);
            wait_until(|| !self.is_running());
        }
        self.kill();
    }
}

/// Sends a signal; a process that has already ended is no matter.
pub(crate) fn send(pid: Pid, signal: Signal) {
    let _ = signal::kill(pid, signal);
}

/// A process's state letter and its parent.
pub(crate) fn stat(pid: Pid) -> Option<(char, Pid)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, Pid::from_raw(fields.next()?.parse().ok()?)))
}

/// The processes whose parent is `parent`.
fn children(parent: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    let is_child = |&pid: &Pid| stat(pid).is_some_and(|(_, its_parent)| its_parent == parent);
    pids.filter(is_child).collect()
}

/// Kills a server and all its children, and waits until they are gone. Their shared memory goes too. Returns whether
/// all of them went.
pub(crate) fn kill_family(server: Pid) -> bool {
    let family = halted_family(server);
    let memory: BTreeSet<_> = family.iter().flat_map(|&pid| shared_memory(pid)).collect();
    for &pid in &family {
        send(pid, Signal::SIGKILL);
    }
    let is_gone = |&pid: &Pid| stat(pid).is_none_or(|(state, _)| state == 'Z');
    let all_gone = wait_until(|| family.iter().all(is_gone));
    for (number, name) in memory {
        let _ = if name.starts_with("/dev/shm") {
            fs::remove_file(name)
        } else {
            Command::new("ipcrm").args(["-m", &number]).status().map(drop)
        };
    }
    all_gone
}

/// Halts a server with all its children, and lists the children and, last, itself. A halted server starts no more
/// children and collects no dead ones, so that none of these numbers can pass to another process.
fn halted_family(server: Pid) -> Vec<Pid> {
    send(server, Signal::SIGSTOP);
    wait_until(|| stat(server).is_none_or(|(state, _)| "TZ".contains(state)));
    let mut family = children(server);
    for &child in &family {
        send(child, Signal::SIGSTOP);
    }
    family.push(server);
    family
}

/// The shared memory of a process that would outlive it, from its memory map: the number and name of each file in
/// `/dev/shm` and each System V segment.
fn shared_memory(pid: Pid) -> Vec<(String, String)> {
    let map = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let shared = |line: &&str| line.contains(" /dev/shm/PostgreSQL.") || line.contains(" /SYSV");
    let number_and_name = |line: &str| {
        let mut fields = line.split_whitespace().skip(4).map(str::to_owned);
        fields.next().zip(fields.next())
    };
    map.lines().filter(shared).filter_map(number_and_name).collect()
}
