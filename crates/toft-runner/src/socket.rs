//! The socket of an attempt: how an agent in a sandbox or a container reaches toft.
//!
//! toft inside sends its arguments and its three streams; the slot runs the command outside, in the attempt's workspace
//! and with the attempt's identity. The store, ledgers and locks need not be visible inside. What such a command may do
//! is decided where it runs ([`CONFINED`]).

use std::{
    ffi::OsString,
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use process_wrap::std::CommandWrap;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use super::{process::without_callers_repository, proxy};

/// The variable with the path of the socket: toft inside calls toft outside.
pub const SOCKET: &str = "TOFT_SOCKET";
/// The variable of a command that was called through a socket: it has the rights of its one task.
pub const CONFINED: &str = "TOFT_CONFINED";

/// More bytes of arguments are refused.
const LONGEST: usize = 1 << 20;
/// More commands at once are refused: an agent does not need them.
const MOST: usize = 32;
/// How often a command is checked.
const LOOK: Duration = Duration::from_millis(2);
/// The first byte of a request to run a command; the length of its arguments follows.
const RUN: u8 = b'r';
const HEAD: usize = 5;
/// The request to be told when the attempt is over.
const HOLD: u8 = b'h';

/// What a command that is called through the socket runs with.
pub(super) struct Calls {
    /// This program.
    pub(super) program: PathBuf,
    /// The workspace.
    pub(super) dir: PathBuf,
    pub(super) variables: Vec<(String, String)>,
}

/// The sockets of one attempt. When they are dropped, what they run is ended and what is held inside ends.
pub(super) struct TaskSocket {
    /// Their own directory, which only this user can read.
    dir: tempfile::TempDir,
    shared: Arc<CallServer>,
    _calls: ListeningSocket,
    _proxy: Option<ListeningSocket>,
}

#[derive(Default)]
struct CallServer {
    over: AtomicBool,
    running: AtomicUsize,
    streams: Mutex<Vec<UnixStream>>,
}

impl TaskSocket {
    /// Listens, in a directory with a short name: the length of a socket's path is limited. With `hosts`, connections to
    /// those are passed on.
    pub(super) fn open(calls: Calls, hosts: Option<&[String]>) -> io::Result<Self> {
        let place = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
        let named = |place: &Path| tempfile::Builder::new().prefix("toft-").tempdir_in(place);
        let dir = match place.map(|place| named(&place)) {
            Some(Ok(dir)) => dir,
            _ => named(Path::new("/tmp"))?,
        };
        let shared = Arc::new(CallServer::default());
        let answering = Arc::clone(&shared);
        let calling = ListeningSocket::open(dir.path().join("socket"), move |stream| answering.answer(stream, &calls))?;
        let proxy = match hosts.map(<[String]>::to_vec) {
            Some(hosts) => Some(ListeningSocket::open(proxy_of(&dir.path().join("socket")), move |stream| {
                proxy::pass_on(stream, &hosts)
            })?),
            None => None,
        };
        Ok(Self { dir, shared, _calls: calling, _proxy: proxy })
    }

    /// The directory of its sockets.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// An empty directory that hides `path`, with the directories that are mounted below it.
    pub(super) fn empty_for<'p>(&self, path: &Path, mounted: impl Iterator<Item = &'p PathBuf>) -> io::Result<PathBuf> {
        let empty = tempfile::Builder::new().prefix("hidden-").tempdir_in(self.dir.path())?.keep();
        for below in mounted.filter_map(|mounted| mounted.strip_prefix(path).ok()) {
            std::fs::create_dir_all(empty.join(below))?;
        }
        Ok(empty)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("socket")
    }
}

/// The socket of the proxy, beside the other one.
pub fn proxy_of(socket: &Path) -> PathBuf {
    socket.with_file_name("proxy")
}

impl Drop for TaskSocket {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for stream in self.shared.streams.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // It may be closed by now.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A socket that answers each connection on a thread of its own, until it is dropped.
struct ListeningSocket {
    path: PathBuf,
    over: Arc<AtomicBool>,
}

impl ListeningSocket {
    fn open(path: PathBuf, answer: impl Fn(UnixStream) -> io::Result<()> + Send + Sync + 'static) -> io::Result<Self> {
        let listener = UnixListener::bind(&path)?;
        let (over, answer) = (Arc::new(AtomicBool::new(false)), Arc::new(answer));
        let ended = Arc::clone(&over);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    // What cannot be answered is noticed by the one who asked.
                    let _ = answer(stream);
                });
            }
        });
        Ok(Self { path, over })
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread that listens.
        let _ = UnixStream::connect(&self.path);
    }
}

impl CallServer {
    fn answer(&self, mut stream: UnixStream, calls: &Calls) -> io::Result<()> {
        let (bytes, streams) = receive(&stream)?;
        if bytes == [HOLD] {
            return self.hold(stream);
        }
        let malformed = || io::Error::from(io::ErrorKind::InvalidData);
        let (head, begun) = bytes.split_first_chunk::<HEAD>().ok_or_else(malformed)?;
        let [RUN, length @ ..] = *head else { return Err(malformed()) };
        let length = u32::from_be_bytes(length) as usize;
        let streams = <[OwnedFd; 3]>::try_from(streams).map_err(|_| malformed())?;
        if length > LONGEST || begun.len() > length {
            return Err(malformed());
        }
        let mut sent = begun.to_vec();
        sent.resize(length, 0);
        stream.read_exact(&mut sent[begun.len()..])?;
        let words = sent.split(|byte| *byte == 0).skip(1).map(|word| OsString::from_vec(word.to_vec()));
        let before = self.running.fetch_add(1, Ordering::Relaxed);
        let ended = match before < MOST {
            true => self.run(&mut stream, words.collect(), streams, calls),
            false => Err(io::Error::other("too many commands at once")),
        };
        self.running.fetch_sub(1, Ordering::Relaxed);
        stream.write_all(&code(ended?).to_be_bytes())
    }

    /// Keeps a connection open until the attempt is over: what holds it inside ends with it.
    fn hold(&self, mut stream: UnixStream) -> io::Result<()> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).push(stream.try_clone()?);
        io::copy(&mut stream, &mut io::sink()).map(drop)
    }

    /// Runs a command until it ends, the one who asked is gone, or the attempt is over.
    #[expect(clippy::disallowed_methods, reason = "toft runs itself, for an agent that cannot reach the store")]
    fn run(
        &self,
        stream: &mut UnixStream,
        words: Vec<OsString>,
        streams: [OwnedFd; 3],
        calls: &Calls,
    ) -> io::Result<ExitStatus> {
        let [stdin, stdout, stderr] = streams.map(Stdio::from);
        let mut command = Command::new(&calls.program);
        command.args(words).current_dir(&calls.dir).env("PWD", &calls.dir);
        command.envs(calls.variables.iter().map(|(name, value)| (name, value)));
        command.env(CONFINED, "1").env_remove(SOCKET).env_remove("TOFT_PID").env_remove(super::SLOT);
        command.env_remove(super::SUPERVISOR);
        without_callers_repository(&mut command);
        command.stdin(stdin).stdout(stdout).stderr(stderr);
        let mut wrapped = CommandWrap::from(command);
        wrapped.wrap(process_wrap::std::ProcessGroup::leader());
        let mut child = wrapped.spawn()?;
        // Its copies of the streams are the child's alone: a reader inside waits for their end.
        drop(wrapped);
        stream.set_read_timeout(Some(LOOK))?;
        let mut said = [0];
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let gone = match stream.read(&mut said) {
                Ok(0) => true,
                Ok(_) => false,
                Err(error) => !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut),
            };
            if gone || self.over.load(Ordering::Relaxed) {
                child.start_kill()?;
                return child.wait();
            }
        }
    }
}

/// The first bytes of a request, and the streams that come with them.
fn receive(stream: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let length = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?.bytes;
    bytes.truncate(length);
    let mut streams = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            streams.extend(passed);
        }
    }
    Ok((bytes, streams))
}

/// The code of a command that ended.
fn code(status: ExitStatus) -> i32 {
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0))
}

/// Runs this command outside: its arguments, without the program, and this process's streams. Returns its exit code.
pub fn call_outside(socket: &Path, words: &[OsString]) -> io::Result<i32> {
    let mut stream = UnixStream::connect(socket)?;
    let mut sent: Vec<u8> = Vec::new();
    for word in words {
        sent.push(0);
        sent.extend_from_slice(word.as_bytes());
    }
    if sent.len() > LONGEST {
        return Err(io::Error::other("the arguments are too long"));
    }
    let length = u32::try_from(sent.len()).unwrap_or(u32::MAX).to_be_bytes();
    let head: Vec<u8> = [RUN].into_iter().chain(length).collect();
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&streams)) {
        return Err(io::Error::other("the streams cannot be passed on"));
    }
    rustix::net::sendmsg(&stream, &[IoSlice::new(&head)], &mut control, SendFlags::empty())?;
    stream.write_all(&sent)?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    Ok(i32::from_be_bytes(answer))
}

/// Waits until the runner of this attempt is gone, or the attempt is over.
pub fn wait_for_end(socket: &Path) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(&[HOLD])?;
    io::copy(&mut stream, &mut io::sink()).map(drop)
}
