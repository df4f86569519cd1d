//! Limits how many short-lived processes of one machine connect at the same time. A server refuses a thousand
//! connections at once, or lets them wait for each other, and waiting there costs more than waiting here.

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

/// Maximum number of connected processes.
const WIDTH: u64 = 16;
/// Longer than a thousand other processes take; after that a process in front was probably stopped, and this one
/// proceeds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether this process has a slot.
static INSIDE: AtomicBool = AtomicBool::new(false);

/// A connection slot, released when dropped.
pub(super) struct ConnectThrottle {
    place: Option<File>,
}

impl ConnectThrottle {
    /// Waits for a connection slot of a server. If no file can be created, it does not wait.
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
