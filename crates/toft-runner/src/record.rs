//! Stores the output of a command, on a thread of its own: masking and the disk delay only the command.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, SyncSender, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use toft_session::{
    mask::{Mask, Stream},
    recipe::Spoken,
    transcript,
};
use toft_store::private;

use super::{
    SlotEvent,
    files::{Conversation, Files},
    log::{Log, Voice},
    process::CommandOutput,
    slot_events::SlotEventSender,
};

/// How often events about output are sent.
const EVERY: Duration = Duration::from_millis(250);
/// After a command ended, further output is awaited while it arrives within this interval.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Maximum time to wait for it.
const LONGEST_LAST_WORDS: Duration = Duration::from_secs(10);
/// How often this is checked.
const LOOK: Duration = Duration::from_millis(5);
/// Maximum number of pieces that wait to be stored.
const WAITING: usize = 64;
/// A longer line of JSON is not parsed.
const LONGEST_JSON: usize = 1 << 20;

/// Stores the output of one command.
pub(super) struct Recorder {
    said: Option<SyncSender<CommandOutput>>,
    heard: Arc<Mutex<HeardSoFar>>,
}

/// The output so far.
#[derive(Clone, Default)]
struct HeardSoFar {
    spoken: Spoken,
    out: String,
    err: String,
    pieces: u64,
    /// Number of streams that have ended.
    ended: usize,
    over: bool,
}

impl Recorder {
    pub(super) fn start(files: &Files, mask: Mask, events: SlotEventSender, conversation: Conversation) -> Self {
        // A command that says more than can be kept has to wait.
        let (said, pieces) = mpsc::sync_channel(WAITING);
        let heard = Arc::<Mutex<HeardSoFar>>::default();
        let writing = RecordWriter {
            log: Log::open(&files.log()),
            mask,
            events,
            heard: Arc::clone(&heard),
            told: None,
            troubled: false,
            conversation,
            kept_in: files.conversation(),
        };
        thread::spawn(move || writing.run(&pieces));
        Self { said: Some(said), heard }
    }

    /// The channel for output.
    pub(super) fn said(&self) -> Option<&SyncSender<CommandOutput>> {
        self.said.as_ref()
    }

    /// Waits a short time for remaining output, adds a last line, and returns the command's own report and its last
    /// output: from standard output if it succeeded, otherwise from standard error.
    pub(super) fn close(mut self, last: String, well: bool) -> (Spoken, String) {
        let begun = Instant::now();
        let (mut pieces, mut since) = (0, begun);
        loop {
            let heard = self.heard();
            if heard.pieces != pieces {
                (pieces, since) = (heard.pieces, Instant::now());
            }
            if heard.ended == 2 || since.elapsed() >= LAST_WORDS || begun.elapsed() >= LONGEST_LAST_WORDS {
                break;
            }
            drop(heard);
            thread::sleep(LOOK);
        }
        if let Some(said) = self.said.take() {
            // A disk that hangs keeps nothing, this line neither.
            let _ = said.try_send(CommandOutput::Bytes(Voice::Runner, last.into_bytes()));
            let _ = said.try_send(CommandOutput::End(Voice::Runner));
        }
        let until = Instant::now() + LAST_WORDS;
        while !self.heard().over && Instant::now() < until {
            thread::sleep(LOOK);
        }
        let heard = self.heard().clone();
        let (first, second) = if well { (heard.out, heard.err) } else { (heard.err, heard.out) };
        (heard.spoken, if first.is_empty() { second } else { first })
    }

    fn heard(&self) -> MutexGuard<'_, HeardSoFar> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct RecordWriter {
    log: Log,
    mask: Mask,
    events: SlotEventSender,
    heard: Arc<Mutex<HeardSoFar>>,
    told: Option<Instant>,
    /// Whether a write error of the log was reported.
    troubled: bool,
    /// The conversation of the client, and where it is noted for a later attempt.
    conversation: Conversation,
    kept_in: PathBuf,
}

impl RecordWriter {
    fn run(mut self, pieces: &Receiver<CommandOutput>) {
        let mut voices = [(Stream::default(), Vec::new()), (Stream::default(), Vec::new())];
        loop {
            let piece = match pieces.try_recv() {
                Ok(piece) => piece,
                Err(TryRecvError::Empty) => {
                    self.flush();
                    match pieces.recv() {
                        Ok(piece) => piece,
                        Err(_) => break,
                    }
                }
                Err(TryRecvError::Disconnected) => break,
            };
            match piece {
                CommandOutput::Bytes(Voice::Runner, bytes) => {
                    let text = self.mask.mask(&String::from_utf8_lossy(&bytes));
                    self.log.line(Voice::Runner, text);
                }
                CommandOutput::Bytes(voice, bytes) => {
                    let (stream, json) = &mut voices[usize::from(voice == Voice::Err)];
                    self.hear(json, &bytes);
                    let mut lines = Vec::new();
                    stream.take(&self.mask, &bytes, |line| lines.push(line));
                    lines.into_iter().for_each(|line| self.line(voice, line));
                }
                CommandOutput::End(Voice::Runner) => break,
                CommandOutput::End(voice) => {
                    let (stream, json) = &mut voices[usize::from(voice == Voice::Err)];
                    self.hear(json, b"\n");
                    let mut rest = None;
                    stream.end(&self.mask, |line| rest = Some(line));
                    rest.into_iter().for_each(|line| self.line(voice, line));
                    self.flush();
                    self.lock().ended += 1;
                }
            }
            self.lock().pieces += 1;
        }
        self.flush();
        self.lock().over = true;
    }

    fn lock(&self) -> MutexGuard<'_, HeardSoFar> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&mut self) {
        let trouble = self.log.flush();
        if let Some(why) = trouble.as_ref().filter(|_| !self.troubled) {
            self.events
                .send(SlotEvent::Problem { text: format!("the log cannot be written: {why}; the agent goes on") });
        }
        self.troubled = trouble.is_some();
    }

    /// Reads an agent's own report from lines of JSON.
    fn hear(&mut self, held: &mut Vec<u8>, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if held.len() + part.len() <= LONGEST_JSON {
                held.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                if held.starts_with(b"{") {
                    let session = {
                        let mut heard = self.lock();
                        heard.spoken.hear(held);
                        heard.spoken.session.clone()
                    };
                    self.keep_conversation(session);
                }
                held.clear();
            }
        }
    }

    /// Notes the client's own id of the conversation as soon as it is known: the attempt may be killed.
    fn keep_conversation(&mut self, session: Option<String>) {
        let Some(session) = session.filter(|session| *session != self.conversation.session) else { return };
        self.conversation.session = session;
        let text = serde_json::to_vec(&self.conversation).unwrap_or_default();
        // Without it the next attempt begins a new one.
        let _ = private::write(&self.kept_in, text);
    }

    fn line(&mut self, voice: Voice, text: String) {
        let text = self.log.line(voice, text);
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return;
        }
        {
            let mut heard = self.lock();
            let last = if voice == Voice::Err { &mut heard.err } else { &mut heard.out };
            trimmed.clone_into(last);
        }
        if self.told.is_none_or(|last| last.elapsed() >= EVERY) {
            let text = match transcript::entries(trimmed) {
                None => text,
                Some(entries) => match entries.last() {
                    Some(entry) => self.mask.mask(&entry.line()),
                    None => return,
                },
            };
            self.told = Some(Instant::now());
            self.events.send(SlotEvent::Output { text });
        }
    }
}
