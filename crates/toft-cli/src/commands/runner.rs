//! What `toft top` and `toft board` share: what they look at, and how they run commands of toft.

use std::{
    io::Read as _,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use toft::{
    Toft,
    views::{CommandResult, CommandRunner, Views},
};

use super::App;
use crate::exit::Failure;

/// How often a command is asked whether it has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long a command has to end in order.
const ORDERLY: Duration = Duration::from_secs(5);
/// How long output is waited for after a command has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Bytes of output that are read.
const MOST: u64 = 4 << 20;

/// What is looked at, and what it is called.
pub(super) fn views(app: &App<'_>, all: bool) -> Result<(Views, String), Failure> {
    let config = app.config()?;
    Ok(match all {
        true => {
            let (views, bad) = Views::of_all(&config)?;
            app.notes.borrow_mut().extend(bad);
            (views, "all repositories".to_owned())
        }
        false => {
            let toft = Toft::at(toft::locate(&config)?)?;
            let located = toft.located();
            let name = located.checkout.as_ref().map(|checkout| checkout.name());
            let title = name.unwrap_or_else(|| located.store.to_string());
            (Views::of(toft), title)
        }
    })
}

/// Runs commands as this one was called: in its directory, with its store and agent.
#[expect(clippy::disallowed_methods, reason = "toft itself, for what a person at a screen asked")]
pub(super) fn runner(app: &App<'_>) -> Result<CommandRunner, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::stopped(format!("toft: {error}"), ""))?;
    let mut given = Vec::new();
    if let Some(dir) = &app.global.dir {
        given.extend(["-C".to_owned(), dir.display().to_string()]);
    }
    if let Some(store) = &app.global.store {
        given.extend(["--store".to_owned(), store.clone()]);
    }
    if let Some(agent) = &app.global.agent {
        given.extend(["--as".to_owned(), agent.clone()]);
    }
    Ok(Arc::new(move |arguments: &[String], stop: &AtomicBool| {
        let mut command = Command::new(&program);
        // A directory that the command names itself counts.
        let named = [&given, arguments].iter().all(|all| all.first().is_some_and(|first| first == "-C"));
        command.args(&given[if named { 2 } else { 0 }..]).args(arguments);
        run(command, stop)
    }))
}

/// Runs commands for a person at a server, with their token. They get nothing of the server's own environment, which may have
/// the password of its database.
#[expect(clippy::disallowed_methods, reason = "toft itself, for what a person at a screen asked")]
pub(super) fn runner_of_person(server: &str, token: &str, name: &str, home: &Path) -> CommandRunner {
    let [server, token, name] = [server, token, name].map(str::to_owned);
    let home = home.to_owned();
    Arc::new(move |arguments: &[String], stop: &AtomicBool| {
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => return CommandResult { succeeded: false, text: format!("toft: {error}") },
        };
        let mut command = Command::new(program);
        let kept = ["PATH", "TMPDIR", "TOFT_CA"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.args(arguments).env_clear().envs(kept).current_dir("/").env("HOME", &home).env("USER", &name);
        command.env("TOFT_STORE", &server).env("TOFT_TOKEN", &token);
        run(command, stop)
    })
}

fn run(mut command: Command, stop: &AtomicBool) -> CommandResult {
    command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    match command.spawn() {
        Ok(child) => listen(child, stop),
        Err(error) => CommandResult { succeeded: false, text: format!("toft: {error}") },
    }
}

/// Asks a command to end, and ends it if it does not.
fn end(child: &mut Child) {
    #[cfg(unix)]
    if let Some(pid) = i32::try_from(child.id()).ok().map(nix::unistd::Pid::from_raw) {
        // It may have ended just now.
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let until = Instant::now() + ORDERLY;
        while Instant::now() < until {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(LOOK);
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Waits for a command, and returns what it printed.
fn listen(mut child: Child, stop: &AtomicBool) -> CommandResult {
    let read = |from: Option<Box<dyn std::io::Read + Send>>| {
        let (tell, heard) = mpsc::channel();
        thread::spawn(move || {
            let mut text = Vec::new();
            // What cannot be read counts as empty; nobody may wait for it any more.
            let _ = from.map(|from| from.take(MOST).read_to_end(&mut text));
            let _ = tell.send(text);
        });
        heard
    };
    let out = read(child.stdout.take().map(|out| Box::new(out) as _));
    let err = read(child.stderr.take().map(|err| Box::new(err) as _));
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if stop.load(Ordering::Relaxed) => {
                end(&mut child);
                break None;
            }
            Ok(None) => thread::sleep(LOOK),
            Err(_) => break None,
        }
    };
    // What it started may hold its output open.
    let mut text = out.recv_timeout(LAST_WORDS).unwrap_or_default();
    text.extend(err.recv_timeout(LAST_WORDS).unwrap_or_default());
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if status.is_none() {
        text.push_str("ended before it was done");
    }
    CommandResult { succeeded: status.is_some_and(|status| status.success()), text }
}
