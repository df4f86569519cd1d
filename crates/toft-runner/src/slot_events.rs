//! The events that a slot sends to its runner: written by a thread of its own, so that the slot does not wait for a
//! runner that does not read.

use std::{
    io::Write as _,
    sync::mpsc::{self, Sender},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::SlotEvent;

/// How long a slot that ends waits until its last events are written.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// How often this is checked.
const LOOK: Duration = Duration::from_millis(5);

/// The sender of events.
#[derive(Clone)]
pub(super) struct SlotEventSender {
    queue: Sender<Option<SlotEvent>>,
}

/// The thread that writes.
pub(super) struct SlotEventWriter {
    queue: Sender<Option<SlotEvent>>,
    thread: JoinHandle<()>,
}

/// Opens the channel to the runner: standard output.
pub(super) fn open() -> (SlotEventSender, SlotEventWriter) {
    let (queue, events) = mpsc::channel::<Option<SlotEvent>>();
    let thread = thread::spawn(move || {
        let mut out = std::io::stdout();
        for told in events.into_iter().map_while(|told| told) {
            // If nobody listens, the runner is gone, which its other pipe says too.
            if let Ok(line) = serde_json::to_string(&told) {
                let _ = writeln!(out, "{line}").and_then(|()| out.flush());
            }
        }
    });
    (SlotEventSender { queue: queue.clone() }, SlotEventWriter { queue, thread })
}

impl SlotEventSender {
    pub(super) fn send(&self, event: SlotEvent) {
        // The writer ends last.
        let _ = self.queue.send(Some(event));
    }
}

impl SlotEventWriter {
    /// Waits a short time until all events are written.
    pub(super) fn close(self) {
        // One that ended already needs no telling.
        let _ = self.queue.send(None);
        let until = Instant::now() + LAST_EVENTS;
        while !self.thread.is_finished() && Instant::now() < until {
            thread::sleep(LOOK);
        }
    }
}
