//! Processes of one machine that each do one thing and end take turns: a thousand connections at once are turned away, or
//! wait for each other on the server, where each costs more than it does here.

use std::{
    fs::{self, File, OpenOptions},
    path::PathBuf,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use super::url::digest;

/// So many are connected at the same time.
const WIDTH: u64 = 16;
/// Longer than a thousand others take; after that somebody is stopped in the door, and is gone around.
const PATIENCE: Duration = Duration::from_secs(20);

/// This process is, or was, in a door.
static INSIDE: AtomicBool = AtomicBool::new(false);

/// A place in the door, until dropped.
pub(super) struct Door {
    _place: Option<File>,
}

impl Door {
    /// Waits for a place in the door of a server. Where no file can be made, nobody waits.
    pub(super) fn enter(server: &str) -> Self {
        if INSIDE.swap(true, Ordering::SeqCst) {
            // This process has a place; a second connection of its own must not wait for it.
            return Self { _place: None };
        }
        let Some(file) = open(server, u64::from(std::process::id()) % WIDTH) else { return Self { _place: None } };
        let (entered, waiting) = mpsc::channel();
        thread::spawn(move || {
            let locked = file.lock().is_ok();
            // If nobody waits for it any more, the place is let go here.
            let _ = entered.send(locked.then_some(file));
        });
        Self { _place: waiting.recv_timeout(PATIENCE).ok().flatten() }
    }
}

fn open(server: &str, place: u64) -> Option<File> {
    let dir = dir()?;
    OpenOptions::new().create(true).append(true).open(dir.join(format!("{}-{place}", digest(server)))).ok()
}

/// A directory of this user's that goes with the machine's sleep.
fn dir() -> Option<PathBuf> {
    #[cfg(unix)]
    let user = nix::unistd::getuid().to_string();
    #[cfg(not(unix))]
    let user = "user".to_owned();
    let base = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = base.join(format!("toft-doors-{user}"));
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(&dir).ok()?;
    Some(dir)
}
