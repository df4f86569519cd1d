//! The runner itself: starts a process for each slot, passes news on, and lets them end.

use std::{
    ffi::OsString,
    fs,
    io::{self, BufRead as _, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

use super::{Told, slot::DRAIN, tree, warden};
use crate::{
    error::{Error, io as failed},
    session::Toft,
};

/// A slot that was killed is started again after so long, doubled each time up to the longest.
const AGAIN: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);
/// A slot that lived so long was well.
const WELL: Duration = Duration::from_secs(60);

/// The variable that tells a process which slot it is.
pub const SLOT: &str = "TOFT_RUN_SLOT";

/// What a runner is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Take nothing new, and end when everything that runs has ended.
    Drain,
    /// End what runs, give it back, and go.
    Stop,
}

/// News from a runner.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A slot tells something.
    Slot(usize, Told),
    /// A slot was killed, and is started again.
    Again(usize),
    /// A slot has ended; if it could not go on, why.
    Over(usize, Option<String>),
    /// An order was heard.
    Heard(Order),
}

/// The slots of one runner.
pub struct Fleet {
    program: PathBuf,
    args: Vec<OsString>,
    names: Vec<String>,
    /// Kept for as long as the names are used.
    _taken: Vec<fs::File>,
}

enum Event {
    Told(usize, Told),
    Closed(usize),
    Order(Order),
}

struct Post {
    child: Option<Child>,
    since: Instant,
    rest: Duration,
    again: Option<Instant>,
    complaint: Option<thread::JoinHandle<String>>,
}

impl Fleet {
    /// `count` slots, each with a name of its own on this machine; started as `program` with `args` and its name.
    pub fn new(toft: &Toft, program: PathBuf, args: Vec<OsString>, count: usize) -> Result<Self, Error> {
        let nowhere = || Error::NoRepository { dir: PathBuf::from(".") };
        let checkout = toft.located().checkout.as_ref().ok_or_else(nowhere)?;
        let dir = checkout.state_dir().join("run");
        fs::create_dir_all(&dir).map_err(failed("make", &dir))?;
        let (mut names, mut taken) = (Vec::new(), Vec::new());
        for n in 1.. {
            if names.len() == count {
                break;
            }
            let name = format!("{}-{n}", toft.located().agent);
            let path = dir.join(format!("{name}.lock"));
            let file = fs::File::options().write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(failed("write", &path))?;
            match file.try_lock() {
                Ok(()) => {
                    names.push(name);
                    taken.push(file);
                }
                // Another runner has that name.
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(cause)) => return Err(failed("lock", &path)(cause)),
            }
        }
        Ok(Self { program, args, names, _taken: taken })
    }

    /// What the slots are called.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Runs until every slot has ended; gives whether one of them could not go on.
    pub fn run(self, orders: Receiver<Order>, mut news: impl FnMut(News)) -> Result<bool, Error> {
        tree::adopt_orphans();
        let (events, heard) = mpsc::channel();
        let forward = events.clone();
        thread::spawn(move || orders.into_iter().try_for_each(|order| forward.send(Event::Order(order))));
        let mut posts = Vec::new();
        for index in 0..self.names.len() {
            posts.push(self.start(index, AGAIN, &events)?);
        }
        let (mut draining, mut troubled, mut orphans) = (false, false, false);
        while posts.iter().any(|post| post.child.is_some() || post.again.is_some()) {
            match heard.recv_timeout(Duration::from_millis(100)) {
                Ok(Event::Told(index, told)) => news(News::Slot(index, told)),
                Ok(Event::Order(order)) => {
                    draining = true;
                    posts.iter_mut().for_each(|post| post.obey(order));
                    news(News::Heard(order));
                }
                Ok(Event::Closed(index)) => match posts[index].ended(&mut orphans)? {
                    Ended::Well => news(News::Over(index, None)),
                    Ended::Badly(why) => {
                        troubled = true;
                        news(News::Over(index, Some(why)));
                    }
                    Ended::Killed if draining => news(News::Over(index, None)),
                    Ended::Killed => {
                        posts[index].again = Some(Instant::now() + posts[index].rest);
                        news(News::Again(index));
                    }
                },
                Err(_) => {}
            }
            if orphans {
                // What a killed slot left behind is this process's own child now.
                let known: Vec<u32> = posts.iter().filter_map(|post| post.child.as_ref().map(Child::id)).collect();
                orphans = tree::end_children_but(&known);
            }
            for (index, post) in posts.iter_mut().enumerate() {
                if post.again.is_some_and(|when| when <= Instant::now() || draining) {
                    post.again = None;
                    if !draining {
                        *post = self.start(index, post.rest, &events)?;
                    }
                }
            }
        }
        warden::end_all(&[]);
        Ok(troubled)
    }

    #[expect(clippy::disallowed_methods, reason = "a runner starts itself again for each slot")]
    fn start(&self, index: usize, rest: Duration, events: &Sender<Event>) -> Result<Post, Error> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env(SLOT, &self.names[index]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // What is typed at the terminal is for the runner.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn().map_err(failed("start", &self.program))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let events = events.clone();
        thread::spawn(move || {
            for line in out.into_iter().flat_map(|out| io::BufReader::new(out).lines().map_while(Result::ok)) {
                if let Ok(told) = serde_json::from_str(&line)
                    && events.send(Event::Told(index, told)).is_err()
                {
                    return;
                }
            }
            // Nobody may be listening any more.
            let _ = events.send(Event::Closed(index));
        });
        let complaint = thread::spawn(move || {
            let lines = err.into_iter().flat_map(|err| io::BufReader::new(err).lines().map_while(Result::ok));
            lines.take(50).collect::<Vec<_>>().join("\n")
        });
        Ok(Post { child: Some(child), since: Instant::now(), rest, again: None, complaint: Some(complaint) })
    }
}

enum Ended {
    Well,
    Badly(String),
    Killed,
}

impl Post {
    fn obey(&mut self, order: Order) {
        let Some(child) = &mut self.child else { return };
        match order {
            Order::Drain => {
                // One that is gone needs no telling.
                let _ = child.stdin.as_mut().map(|stdin| writeln!(stdin, "{DRAIN}"));
            }
            Order::Stop => drop(child.stdin.take()),
        }
    }

    fn ended(&mut self, orphans: &mut bool) -> Result<Ended, Error> {
        let Some(mut child) = self.child.take() else { return Ok(Ended::Well) };
        let status = child.wait().map_err(failed("wait for", std::path::Path::new("a slot")))?;
        let said = self.complaint.take().and_then(|complaint| complaint.join().ok()).unwrap_or_default();
        self.rest = if self.since.elapsed() >= WELL { AGAIN } else { (self.rest * 2).min(LONGEST) };
        Ok(match status.code() {
            Some(0) => Ended::Well,
            Some(_) => Ended::Badly(said),
            None => {
                *orphans = true;
                Ended::Killed
            }
        })
    }
}
