//! Sends the log of an attempt to a toft server while it grows, so that others can read it.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use toft_core::{id::TaskId, lease::Fence};
use toft_session::{engine::Home, error::Error, locate::Located, session::Session};

use crate::tail::LogTail;

/// How often what is new is sent.
const OFTEN: Duration = Duration::from_secs(2);
/// How long the end of an attempt waits for the rest to be sent.
const LAST: Duration = Duration::from_secs(10);
/// The largest piece that is sent at once.
const PIECE: usize = 512 << 10;
/// What could not be sent is kept up to this size.
const KEPT: usize = 8 << 20;

/// A log that is sent until this ends.
pub(crate) struct LogSender {
    end: mpsc::Sender<()>,
    ended: mpsc::Receiver<()>,
}

impl LogSender {
    /// Starts to send a log; none unless the store is a toft server.
    pub(crate) fn start(located: &Located, task: TaskId, fence: Fence, tail: LogTail) -> Option<Self> {
        matches!(located.store, Home::Remote(_)).then_some(())?;
        let ((end, told), (over, ended)) = (mpsc::channel(), mpsc::channel());
        let located = located.clone();
        thread::spawn(move || {
            let mut log = SentLog { located, session: None, task, fence, tail, waiting: Vec::new(), offset: 0 };
            loop {
                let last = told.recv_timeout(OFTEN) != Err(RecvTimeoutError::Timeout);
                // What cannot be sent now is sent the next time: a log ends no work.
                let goes_on = log.send().unwrap_or(true);
                if last || !goes_on {
                    break;
                }
            }
            // Nobody may be waiting any more.
            let _ = over.send(());
        });
        Some(Self { end, ended })
    }

    /// Sends the rest.
    pub(crate) fn finish(self) {
        // A sender that is over has said so.
        let _ = self.end.send(());
        let _ = self.ended.recv_timeout(LAST);
    }
}

struct SentLog {
    located: Located,
    session: Option<Session>,
    task: TaskId,
    fence: Fence,
    tail: LogTail,
    /// What was read and not sent.
    waiting: Vec<u8>,
    /// How much was sent.
    offset: u64,
}

impl SentLog {
    /// Sends what is new; returns whether the server wants more.
    fn send(&mut self) -> Result<bool, Error> {
        let session = match self.session.take() {
            Some(session) => session,
            None => Session::at(self.located.clone())?,
        };
        for line in self.tail.new_lines(&session)? {
            self.waiting.extend_from_slice(line.as_bytes());
            self.waiting.push(b'\n');
        }
        let excess = self.waiting.len().saturating_sub(KEPT);
        self.waiting.drain(..excess);
        while !self.waiting.is_empty() {
            let whole = self.waiting.iter().take(PIECE).rposition(|byte| *byte == b'\n');
            let piece = &self.waiting[..whole.map_or(self.waiting.len().min(PIECE), |end| end + 1)];
            match session.append_log(&self.task, &self.fence, self.offset, piece)? {
                // An answer may have been lost: what the server has is not sent again.
                Some(length) if length > self.offset && length <= self.offset + self.waiting.len() as u64 => {
                    let sent = usize::try_from(length - self.offset).unwrap_or_default();
                    self.offset = length;
                    self.waiting.drain(..sent);
                }
                // The log is full, or the server keeps none.
                _ => return Ok(false),
            }
        }
        self.session = Some(session);
        Ok(true)
    }
}
