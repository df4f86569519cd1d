//! Far places: network namespaces with a link to the servers that can be slow, lose packets and break.
//!
//! The kernel drops packets (`iptables` in the namespace of a place), so connections stall as they do on a real network.
//! Delay and answers that get lost after the server did its work are made by a proxy in front of each server: not
//! every kernel has `netem`, and a server without a certificate listens on loopback only.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsFd as _, AsRawFd as _},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use nix::sched::{CloneFlags, setns, unshare};

/// Network namespaces that have a link to this one.
pub const PLACES: usize = 4;

/// What the link of a place does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Everything arrives.
    Whole,
    /// Nothing arrives on either side.
    Cut,
    /// Requests arrive, answers do not.
    LosesAnswers,
    /// Answers arrive, requests do not.
    LosesRequests,
    /// Each packet gets lost with this probability, in percent.
    Lossy(u8),
}

/// A namespace, and the proxies through which its workers reach the servers.
pub struct Place {
    namespace: File,
    host: String,
    /// What the proxies add to the way of each message, in milliseconds.
    delay: Arc<AtomicU64>,
    /// How many of the next answers the proxies throw away, each with its connection.
    lost: Arc<AtomicU64>,
}

impl Place {
    /// Makes the namespace of this number and its link. The caller's namespace has to be its own.
    pub fn new(number: usize) -> io::Result<Self> {
        let made = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        let namespace = made.join().expect("a thread that makes a namespace")?;
        let (host, guest) = (format!("10.77.{number}.1"), format!("10.77.{number}.2"));
        let (hub, link) = (format!("hub{number}"), format!("link{number}"));
        let there = format!("/proc/{}/fd/{}", std::process::id(), namespace.as_raw_fd());
        run(&["ip", "link", "add", &hub, "type", "veth", "peer", "name", &link])?;
        run(&["ip", "link", "set", &link, "netns", &there])?;
        run(&["ip", "address", "add", &format!("{host}/24"), "dev", &hub])?;
        run(&["ip", "link", "set", &hub, "up"])?;
        let place = Self { namespace, host, delay: Arc::default(), lost: Arc::default() };
        place.within(|| {
            run(&["ip", "address", "add", &format!("{guest}/24"), "dev", &link])?;
            run(&["ip", "link", "set", "lo", "up"])?;
            run(&["ip", "link", "set", &link, "up"])
        })?;
        Ok(place)
    }

    /// Moves the calling thread into the namespace, for good.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(self.namespace.as_fd(), CloneFlags::CLONE_NEWNET)?)
    }

    fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| self.enter().and_then(|()| work()));
            inside.join().expect("a thread in a namespace")
        })
    }

    /// Puts a proxy in front of a server on loopback; returns the address for the workers of this place.
    pub fn proxy(&self, server: u16) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((self.host.as_str(), server))?;
        let address = listener.local_addr()?;
        let (delay, lost) = (Arc::clone(&self.delay), Arc::clone(&self.lost));
        thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let ends = || Ok::<_, io::Error>((near.try_clone()?, far.try_clone()?));
                let (Ok((request_from, request_to)), Ok((answer_to, answer_from))) = (ends(), ends()) else { continue };
                let none = Arc::new(AtomicU64::new(0));
                let (there, back, lost) = (Arc::clone(&delay), Arc::clone(&delay), Arc::clone(&lost));
                thread::spawn(move || pass(request_from, request_to, &there, &none));
                thread::spawn(move || pass(answer_from, answer_to, &back, &lost));
            }
        });
        Ok(address)
    }

    /// From now on each message takes this much longer.
    pub fn delay(&self, time: Duration) {
        self.delay.store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// The next answers get lost after the server sent them.
    pub fn lose_answers(&self, count: u64) {
        self.lost.store(count, Ordering::SeqCst);
    }

    /// How many answers are still to get lost.
    pub fn answers_to_lose(&self) -> u64 {
        self.lost.load(Ordering::SeqCst)
    }

    /// From now on the link is like this.
    pub fn set(&self, link: Link) -> io::Result<()> {
        let (probability, input, output) = match link {
            Link::Whole => (None, false, false),
            Link::Cut => (None, true, true),
            Link::LosesAnswers => (None, true, false),
            Link::LosesRequests => (None, false, true),
            Link::Lossy(percent) => (Some(format!("{:.2}", f64::from(percent) / 100.0)), true, true),
        };
        self.within(|| {
            run(&["iptables", "-w", "-F"])?;
            for chain in [("INPUT", input), ("OUTPUT", output)].iter().filter(|(_, drops)| *drops) {
                let mut rule = vec!["iptables", "-w", "-A", chain.0];
                if let Some(probability) = &probability {
                    rule.extend(["-m", "statistic", "--mode", "random", "--probability", probability]);
                }
                rule.extend(["-j", "DROP"]);
                run(&rule)?;
            }
            Ok(())
        })
    }
}

/// Passes on what comes, later by `delay`. While answers are to get lost, one is thrown away with its connection.
fn pass(mut from: TcpStream, mut to: TcpStream, delay: &AtomicU64, lost: &AtomicU64) {
    // What waits for more bytes to send would take 40 ms.
    let _ = to.set_nodelay(true);
    let mut buffer = vec![0; 65_536];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            break;
        }
        thread::sleep(Duration::from_millis(delay.load(Ordering::SeqCst)));
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// Runs a program in the namespace of the calling thread.
fn run(words: &[&str]) -> io::Result<()> {
    let said = Command::new(words[0]).args(&words[1..]).output()?;
    match said.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("{words:?}: {}", String::from_utf8_lossy(&said.stderr)))),
    }
}

/// Makes this process's own namespace ready: servers on loopback that keep their ports though they restart.
pub fn prepare_hub(ports: &[u16]) -> io::Result<()> {
    run(&["ip", "link", "set", "lo", "up"])?;
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    std::fs::write("/proc/sys/net/ipv4/ip_local_reserved_ports", ports.join(","))
}

/// Why namespaces with links cannot be made here, if they cannot.
fn missing() -> Option<String> {
    let script = "set -e; ip link set lo up; ip link add hub type veth peer name link; iptables -w -A INPUT -m statistic \
                  --mode random --probability 0.5 -j DROP";
    let tried = alone().args(["sh", "-c", script]).output();
    match tried {
        Err(error) => Some(format!("setpriv: {error}")),
        Ok(said) if !said.status.success() => Some(String::from_utf8_lossy(&said.stderr).trim().to_owned()),
        Ok(_) => None,
    }
}

/// Starts a program in namespaces of its own. If the program or the one who started it ends, however that may be, all its
/// processes end. Namespaces and links end with the last process that uses them.
fn alone() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]);
    command
}

/// Tells a story in namespaces of its own: the test of this name (`module::test`) is started again there, with `inside` set. If that
/// cannot be done here, because of `lacks` or of the machine, it says why.
pub fn tell_alone(name: &str, inside: &str, lacks: Option<String>) {
    let root = nix::unistd::Uid::effective().is_root();
    let reason = (!root).then(|| "only root makes namespaces".to_owned()).or(lacks).or_else(missing);
    if let Some(reason) = reason {
        eprintln!("no network namespaces: {reason}; nothing was tried");
        return;
    }
    // The shell is the first process in there, and collects those whose parent was killed.
    let mut alone = alone();
    alone.args(["sh", "-c", "\"$0\" \"$@\"; exit $?"]);
    let program = std::env::current_exe().expect("this program has a path");
    alone.arg(program).args(["--exact", name, "--nocapture"]).env(inside, "1");
    // It has a database and servers of its own.
    alone.env_remove("TOFT_STORY_SERVER");
    let ended = alone.status().expect("the story in its namespaces");
    assert!(ended.success(), "{ended}");
}
