//! The socket of an attempt: how an agent in a sandbox or a container reaches toft.
//!
//! toft inside sends its arguments and its three streams; the slot runs the command outside, in the attempt's workspace
//! and with the attempt's identity. The store, ledgers and locks need not be visible inside. What such a command may do
//! is decided where it runs ([`CONFINED`]). A connection begins with the key of the attempt: where directories cannot be
//! hidden, other agents of the same user see the socket.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt, fs,
    io::{self, IoSlice, IoSliceMut, Read as _, Write as _},
    mem::MaybeUninit,
    net::Shutdown,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::PermissionsExt as _,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use process_wrap::std::CommandWrap;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use toft_session::session::random_ids;

use super::{process::without_callers_repository, proxy};

/// The variable with the [`SocketAddress`]: toft inside calls toft outside.
pub const SOCKET: &str = "TOFT_SOCKET";
/// The variable of a command that was called through a socket: it has the rights of its one task.
pub const CONFINED: &str = "TOFT_CONFINED";

/// More bytes of arguments are refused.
const LONGEST: usize = 1 << 20;
/// More connections at once wait.
const MOST: usize = 64;
/// A longer path cannot be that of a socket.
const LONGEST_PATH: usize = 100;
/// How often a command is checked.
const LOOK: Duration = Duration::from_millis(2);
/// How often a socket that cannot take more connections looks again.
const REST: Duration = Duration::from_millis(20);
/// How long the beginning of a request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The first byte of a request to run a command; the length of its arguments follows.
const RUN: u8 = b'r';
const HEAD: usize = 5;
/// The request to be told when the attempt is over.
const HOLD: u8 = b'h';

/// Where a socket is, and the key that it wants to hear first.
#[derive(Clone, PartialEq, Eq)]
pub struct SocketAddress {
    path: PathBuf,
    key: String,
}

impl SocketAddress {
    /// Reads it as the variable has it.
    pub fn parse(text: &str) -> Option<Self> {
        let (path, key) = text.rsplit_once('#')?;
        Some(Self { path: PathBuf::from(path), key: key.to_owned() })
    }

    /// The address of this process's runner, if it is inside.
    pub fn of_runner() -> Option<Self> {
        std::env::var(SOCKET).ok().and_then(|text| Self::parse(&text))
    }

    /// That of the proxy, beside the other one.
    #[must_use]
    pub fn of_proxy(&self) -> Self {
        Self { path: self.path.with_file_name("proxy"), key: self.key.clone() }
    }

    /// Connects, and says the key.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect(&self.path)?;
        stream.write_all(format!("{}\n", self.key).as_bytes())?;
        Ok(stream)
    }

    /// Whether the one who connected knows the key.
    fn admits(&self, stream: &mut UnixStream) -> io::Result<bool> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut said = vec![0; self.key.len() + 1];
        stream.read_exact(&mut said)?;
        stream.set_read_timeout(None)?;
        Ok(said == format!("{}\n", self.key).as_bytes())
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.path.display(), self.key)
    }
}

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
    address: SocketAddress,
    _calls: ListeningSocket,
    _proxy: Option<ListeningSocket>,
}

impl TaskSocket {
    /// Listens, in a directory with a short name: the length of a socket's path is limited. With `hosts`, connections to
    /// those are passed on.
    pub(super) fn open(calls: Calls, hosts: Option<&[String]>) -> io::Result<Self> {
        let short =
            |dir: &PathBuf| dir.is_absolute() && dir.as_os_str().len() + "/toft-123456/socket".len() < LONGEST_PATH;
        let place = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(short);
        let named = |place: &Path| {
            tempfile::Builder::new().prefix("toft-").permissions(fs::Permissions::from_mode(0o700)).tempdir_in(place)
        };
        let dir = match place.map(|place| named(&place)) {
            Some(Ok(dir)) => dir,
            _ => named(Path::new("/tmp"))?,
        };
        let mut ids = random_ids();
        let address = SocketAddress { path: dir.path().join("socket"), key: ids.word() + &ids.word() };
        let calling = ListeningSocket::open(&address, move |stream, open| answer(stream, &calls, open))?;
        let proxy = match hosts.map(<[String]>::to_vec) {
            Some(hosts) => Some(ListeningSocket::open(&address.of_proxy(), move |stream, open| {
                proxy::pass_on(stream, &hosts, open)
            })?),
            None => None,
        };
        Ok(Self { dir, address, _calls: calling, _proxy: proxy })
    }

    /// The directory of its sockets.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn address(&self) -> &SocketAddress {
        &self.address
    }

    /// An empty directory that hides `path`, with the directories that are mounted below it.
    pub(super) fn empty_for<'p>(&self, path: &Path, mounted: impl Iterator<Item = &'p PathBuf>) -> io::Result<PathBuf> {
        let empty = tempfile::Builder::new().prefix("hidden-").tempdir_in(self.dir.path())?.keep();
        for below in mounted.filter_map(|mounted| mounted.strip_prefix(path).ok()) {
            fs::create_dir_all(empty.join(below))?;
        }
        Ok(empty)
    }
}

/// What closes one connection.
type Closer = Box<dyn Fn() + Send>;

/// The connections that are open, so that they can be closed.
#[derive(Default)]
pub(super) struct OpenConnections {
    over: AtomicBool,
    open: Mutex<BTreeMap<u64, Vec<Closer>>>,
}

impl OpenConnections {
    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Vec<Closer>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `close` when everything is closed, if the connection `number` is still open then.
    pub(super) fn close_with(&self, number: u64, close: impl Fn() + Send + 'static) {
        if self.over.load(Ordering::SeqCst) {
            close();
        }
        self.locked().entry(number).or_default().push(Box::new(close));
    }
}

/// One connection, with its number.
pub(super) struct Connection<'a> {
    pub(super) number: u64,
    pub(super) all: &'a OpenConnections,
}

/// A socket that answers each connection on a thread of its own, until it is dropped.
struct ListeningSocket {
    path: PathBuf,
    open: Arc<OpenConnections>,
}

impl ListeningSocket {
    fn open(
        address: &SocketAddress,
        answer: impl Fn(UnixStream, &Connection<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = UnixListener::bind(&address.path)?;
        let (open, answer) = (Arc::new(OpenConnections::default()), Arc::new(answer));
        let (path, address, all) = (address.path.clone(), address.clone(), Arc::clone(&open));
        thread::spawn(move || {
            for number in 0.. {
                while all.locked().len() >= MOST && !all.over.load(Ordering::SeqCst) {
                    thread::sleep(REST);
                }
                let accepted = listener.accept();
                if all.over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok((mut stream, _)) = accepted else {
                    // There are too many open files, and may be fewer soon.
                    thread::sleep(REST);
                    continue;
                };
                let Ok(closing) = stream.try_clone() else { continue };
                all.close_with(number, move || drop(closing.shutdown(Shutdown::Both)));
                let (answer, address, open) = (Arc::clone(&answer), address.clone(), Arc::clone(&all));
                let started = thread::Builder::new().spawn(move || {
                    if address.admits(&mut stream).is_ok_and(|admits| admits) {
                        // What cannot be answered is noticed by the one who asked.
                        let _ = answer(stream, &Connection { number, all: &open });
                    }
                    open.locked().remove(&number);
                });
                if started.is_err() {
                    all.locked().remove(&number);
                }
            }
        });
        Ok(Self { path, open })
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        self.open.over.store(true, Ordering::SeqCst);
        self.open.locked().values().flatten().for_each(|close| close());
        // Wakes the thread that listens.
        let _ = UnixStream::connect(&self.path);
    }
}

/// Answers one call.
fn answer(mut stream: UnixStream, calls: &Calls, connection: &Connection<'_>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let (bytes, streams) = receive(&stream)?;
    if bytes == [HOLD] {
        // Open until the attempt is over: what holds it inside ends with it.
        stream.set_read_timeout(None)?;
        return io::copy(&mut stream, &mut io::sink()).map(drop);
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
    let ended = run(&mut stream, words.collect(), streams, calls, &connection.all.over)?;
    stream.write_all(&code(ended).to_be_bytes())
}

/// Runs a command until it ends, the one who asked is gone, or the attempt is over.
#[expect(clippy::disallowed_methods, reason = "toft runs itself, for an agent that cannot reach the store")]
fn run(
    stream: &mut UnixStream,
    words: Vec<OsString>,
    streams: [OwnedFd; 3],
    calls: &Calls,
    over: &AtomicBool,
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
        if gone || over.load(Ordering::SeqCst) {
            child.start_kill()?;
            return child.wait();
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
pub fn call_outside(address: &SocketAddress, words: &[OsString]) -> io::Result<i32> {
    let mut stream = address.connect()?;
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
pub fn wait_for_end(address: &SocketAddress) -> io::Result<()> {
    let mut stream = address.connect()?;
    stream.write_all(&[HOLD])?;
    io::copy(&mut stream, &mut io::sink()).map(drop)
}

/// Ends this process with the one that started it: a command that was called through a socket is nobody's without its slot.
pub fn end_with_parent() {
    #[cfg(target_os = "linux")]
    {
        // Where it cannot be asked for, the slot ends it as long as there is one.
        let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
        if std::os::unix::process::parent_id() == 1 {
            std::process::exit(1);
        }
    }
}
