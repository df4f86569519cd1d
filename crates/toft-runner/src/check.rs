//! Runs the commands of a check: in a process of its own, which ends everything that they start.
//!
//! The caller starts `toft checked` and sends it a [`CheckOrder`]. When the caller dies, its end of the pipe closes and
//! the check is ended.

use std::{
    fs,
    io::{self, BufRead as _, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use toft_core::flow::Ending;
use toft_session::{
    error::{Error, io as failed},
    mask::{Mask, Stream},
    processes,
};
use toft_store::private;

use super::process::{Activity, CommandOutput, ProcessStart, Running};

/// How often a running command is looked at.
const TICK: Duration = Duration::from_millis(20);
/// How long a command has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// Number of bytes of output that are kept for the message.
const TAIL: usize = 4 << 10;
/// Maximum size of a log.
const LOG: u64 = 64 << 20;

/// What is to be checked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckOrder {
    pub dir: PathBuf,
    /// Shell commands, in order; the first that fails ends the check.
    pub commands: Vec<String>,
    /// The sandbox around each: a command that runs the words after it.
    pub around: Vec<String>,
    pub timeout_ms: u64,
    pub log: PathBuf,
}

/// The result of a check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckEnd {
    pub passed: bool,
    pub ms: u64,
    /// Which command failed, how, and the end of its output.
    pub message: String,
    /// It was ended because its caller was stopped, and says nothing.
    #[serde(default)]
    pub stopped: bool,
}

/// A check that runs in another process.
pub struct CheckProcess {
    child: Child,
}

impl CheckProcess {
    /// Starts it.
    #[expect(clippy::disallowed_methods, reason = "toft starts itself again to be the parent of a check")]
    pub fn start(order: &CheckOrder) -> Result<Self, Error> {
        let program = std::env::current_exe().map_err(failed("find", Path::new("toft")))?;
        let mut command = Command::new(&program);
        command.arg("checked").stdin(Stdio::piped()).stdout(Stdio::piped());
        // What is typed at the terminal reaches the caller, who ends it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(failed("start", &program))?;
        let line = serde_json::to_string(order).unwrap_or_default();
        let sent = child.stdin.as_mut().map_or(Ok(()), |stdin| writeln!(stdin, "{line}"));
        sent.map_err(failed("start", &program))?;
        Ok(Self { child })
    }

    /// Its result, once it has ended; it is ended early if `stop` becomes true.
    pub fn wait(mut self, stop: &AtomicBool) -> Result<CheckEnd, Error> {
        let mut said = String::new();
        let out = self.child.stdout.take();
        let reader = thread::spawn(move || {
            let mut text = String::new();
            out.map(|mut out| out.read_to_string(&mut text)).transpose().map(|_| text)
        });
        while !reader.is_finished() {
            if stop.load(Ordering::Relaxed) {
                self.child.stdin.take();
            }
            thread::sleep(TICK);
        }
        if let Ok(Ok(text)) = reader.join() {
            said = text;
        }
        let status = self.child.wait().map_err(failed("wait for", Path::new("the check")))?;
        serde_json::from_str(&said).map_err(|_| Error::Io {
            doing: "run",
            path: "the check".into(),
            cause: io::Error::other(format!("its process ended with {status}")),
        })
    }
}

/// Runs the check that the caller sends over standard input, and returns the result.
pub fn perform_check(mask: &Mask) -> Result<CheckEnd, Error> {
    processes::adopt_orphans();
    let mut line = String::new();
    let pipe = Path::new("standard input");
    io::stdin().lock().read_line(&mut line).map_err(failed("read", pipe))?;
    let order: CheckOrder =
        serde_json::from_str(&line).map_err(|error| failed("read", pipe)(io::Error::other(error)))?;
    // What an earlier check left, because its process was killed.
    processes::end_stragglers(&[mark(&order.dir)]);
    let stop = Arc::new(AtomicBool::new(false));
    let gone = Arc::clone(&stop);
    thread::spawn(move || {
        // Nothing comes any more; the pipe ends with the caller.
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        gone.store(true, Ordering::Relaxed);
    });
    let begun = Instant::now();
    if let Some(dir) = order.log.parent() {
        private::create_dir_all(dir).map_err(failed("make", dir))?;
    }
    let mut log = private::create(&order.log).map_err(failed("write", &order.log))?;
    let until = begun + Duration::from_millis(order.timeout_ms);
    for command in &order.commands {
        let run = CheckedCommand {
            dir: &order.dir,
            command,
            around: &order.around,
            until,
            timeout_ms: order.timeout_ms,
            stop: &stop,
            mask,
        };
        let (ending, tail) = run.run(&mut log)?;
        if ending != Ending::Exited(0) {
            let stopped = ending == Ending::Stopped;
            let message = mask.mask(&format!("`{command}` {ending}\n{tail}"));
            return Ok(CheckEnd { passed: false, ms: millis(begun), message: message.trim_end().to_owned(), stopped });
        }
    }
    Ok(CheckEnd { passed: true, ms: millis(begun), message: String::new(), stopped: false })
}

/// The mark of every process that a check in a directory starts.
fn mark(dir: &Path) -> String {
    format!("check-{}", &blake3::hash(dir.as_os_str().as_encoded_bytes()).to_hex()[..16])
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

struct CheckedCommand<'a> {
    dir: &'a Path,
    command: &'a str,
    around: &'a [String],
    until: Instant,
    timeout_ms: u64,
    stop: &'a AtomicBool,
    mask: &'a Mask,
}

impl CheckedCommand<'_> {
    fn run(&self, log: &mut fs::File) -> Result<(Ending, String), Error> {
        let (said, heard) = mpsc::sync_channel(64);
        let (told, ended) = mpsc::channel();
        let words = ["sh", "-c", self.command].map(str::to_owned);
        let command: Vec<String> = self.around.iter().cloned().chain(words).collect();
        let above = self.dir.parent().unwrap_or(Path::new("/")).display().to_string();
        let nothing = fs::File::open("/dev/null").map_err(failed("read", Path::new("/dev/null")))?;
        let start = ProcessStart {
            command: &command,
            dir: self.dir,
            stdin: nothing,
            // A check that loses its `.git` is in no repository.
            variables: vec![
                ("GIT_CEILING_DIRECTORIES".into(), above),
                ("CI".into(), "true".into()),
                ("TOFT_ATTEMPT".into(), mark(self.dir)),
            ],
        };
        let activity = Activity::default();
        let begun = |cause| Error::Start { command: self.command.to_owned(), cause };
        let mut running = Running::start(start, &said, &told, &activity).map_err(begun)?;
        drop(said);
        let (mask, mut copy) = (self.mask.clone(), log.try_clone().map_err(begun)?);
        let recorder = thread::spawn(move || record(&heard, &mask, &mut copy));
        let ending = loop {
            let _ = ended.recv_timeout(TICK);
            if let Some(status) = running.ended().map_err(begun)? {
                break super::attempt::ending(status);
            }
            if self.stop.load(Ordering::Relaxed) {
                running.end(Duration::ZERO).map_err(begun)?;
                break Ending::Stopped;
            }
            if Instant::now() >= self.until {
                running.end(GRACE).map_err(begun)?;
                break Ending::Overtime(self.timeout_ms / 1_000);
            }
        };
        running.kill_rest().map_err(begun)?;
        let tail = recorder.join().unwrap_or_default();
        Ok((ending, tail))
    }
}

/// Writes output to the log, without secrets, and returns the end of it.
fn record(heard: &mpsc::Receiver<CommandOutput>, mask: &Mask, log: &mut fs::File) -> String {
    let (mut streams, mut tail, mut written) = ([Stream::default(), Stream::default()], String::new(), 0);
    let mut keep = |mut text: String| {
        text.push('\n');
        tail.push_str(&text);
        if tail.len() > 2 * TAIL {
            let cut = tail.len() - TAIL;
            let cut = (cut..tail.len()).find(|at| tail.is_char_boundary(*at)).unwrap_or(tail.len());
            tail.drain(..cut);
        }
        written += text.len() as u64;
        if written <= LOG {
            // A log that cannot be written does not decide about a check.
            let _ = log.write_all(text.as_bytes());
        }
    };
    let mut open = streams.len();
    while open > 0 {
        match heard.recv() {
            Ok(CommandOutput::Bytes(voice, bytes)) => {
                streams[usize::from(voice == super::log::Voice::Err)].take(mask, &bytes, &mut keep);
            }
            Ok(CommandOutput::End(voice)) => {
                streams[usize::from(voice == super::log::Voice::Err)].end(mask, &mut keep);
                open -= 1;
            }
            Err(_) => break,
        }
    }
    tail
}
