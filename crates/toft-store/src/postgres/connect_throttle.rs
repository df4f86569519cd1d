//! Processes of one machine that each do one thing and end take turns: a thousand connections at once are turned away, or
//! wait for each other on the server, where each costs more than it does here.

use std::{
    fs::File,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use super::local;

/// So many are connected at the same time.
const WIDTH: u64 = 16;
/// Longer than a thousand others take; after that somebody is stopped in the door, and is gone around.
const PATIENCE: Duration = Duration::from_secs(20);

/// This process is in a door.
static INSIDE: AtomicBool = AtomicBool::new(false);

/// A place in the door, until dropped.
pub(super) struct ConnectThrottle {
    place: Option<File>,
}

impl ConnectThrottle {
    /// Waits for a place in the door of a server. Where no file can be made, nobody waits.
    pub(super) fn enter(server: &str) -> Self {
        if INSIDE.swap(true, Ordering::SeqCst) {
            // This process has a place; a second connection of its own must not wait for it.
            return Self { place: None };
        }
        let number = u64::from(std::process::id()) % WIDTH;
        let place = local::open(&format!("{server}/door-{number}")).and_then(|file| {
            let (entered, waiting) = mpsc::channel();
            thread::spawn(move || {
                let locked = file.lock().is_ok();
                // If nobody waits for it any more, the place is let go here.
                let _ = entered.send(locked.then_some(file));
            });
            waiting.recv_timeout(PATIENCE).ok().flatten()
        });
        if place.is_none() {
            INSIDE.store(false, Ordering::SeqCst);
        }
        Self { place }
    }
}

impl Drop for ConnectThrottle {
    fn drop(&mut self) {
        if self.place.take().is_some() {
            INSIDE.store(false, Ordering::SeqCst);
        }
    }
}
