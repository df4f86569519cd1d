//! The log of a command: a time on each line, without secrets, and at most two files.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use toft_core::time::{Timestamp, millis};
use toft_store::private;

/// A file of this size is rotated, and replaces the previously rotated one.
const LARGEST: u64 = 4 << 20;
/// A longer line is truncated.
const LONGEST: usize = 16 << 10;
/// Size of the write buffer.
const BUFFER: usize = 64 << 10;

/// The source of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
    /// The runner.
    Runner,
}

impl Voice {
    fn sign(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::Err => "err",
            Self::Runner => "run",
        }
    }
}

/// A log. A write error does not end the work: lost lines are counted, and reported once the log can be written again.
pub(crate) struct Log {
    path: PathBuf,
    file: Option<fs::File>,
    buffer: Vec<u8>,
    /// Lines in the buffer.
    waiting: u64,
    size: u64,
    largest: u64,
    /// Number of lines that could not be written, and the reason.
    lost: Option<(u64, String)>,
}

impl Log {
    /// Opens a new or an existing log.
    pub(crate) fn open(path: &Path) -> Self {
        Self::sized(path, LARGEST)
    }

    fn sized(path: &Path, largest: u64) -> Self {
        let (path, buffer) = (path.to_owned(), Vec::new());
        Self { path, file: None, buffer, waiting: 0, size: 0, largest, lost: None }
    }

    /// Adds one masked line; returns it as it is stored.
    pub(crate) fn line(&mut self, voice: Voice, mut text: String) -> String {
        if let Some((cut, _)) = text.char_indices().find(|(at, _)| *at >= LONGEST) {
            text.truncate(cut);
            text.push_str(" […]");
        }
        self.add(voice, &text);
        if self.buffer.len() >= BUFFER {
            self.flush();
        }
        text
    }

    fn add(&mut self, voice: Voice, text: &str) {
        // Writing to memory does not fail.
        let _ = writeln!(self.buffer, "{} {} {text}", now(), voice.sign());
        self.waiting += 1;
    }

    /// Writes the buffer; returns the error, if any.
    pub(crate) fn flush(&mut self) -> Option<String> {
        if self.waiting == 0 {
            return None;
        }
        match self.write() {
            Ok(()) => None,
            Err(error) => {
                // A file that is gone or was moved is opened anew.
                self.file = None;
                let (count, _) = self.lost.take().unwrap_or_default();
                self.lost = Some((count + self.waiting, error.to_string()));
                self.buffer.clear();
                self.waiting = 0;
                Some(error.to_string())
            }
        }
    }

    fn write(&mut self) -> io::Result<()> {
        if let Some((count, why)) = self.lost.clone() {
            let note = format!("{} run {count} lines are lost: {why}\n", now());
            self.append(note.as_bytes())?;
            self.lost = None;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let written = self.append(&buffer);
        self.buffer = buffer;
        written?;
        self.buffer.clear();
        self.waiting = 0;
        Ok(())
    }

    /// Writes whole lines or nothing: a partial write is undone.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        for part in parts(bytes, self.largest) {
            if self.file.is_some() && self.size + part.len() as u64 > self.largest {
                self.file = None;
                fs::rename(&self.path, older(&self.path))?;
            }
            let file = match &mut self.file {
                Some(file) => file,
                none => {
                    let file = private::options().append(true).create(true).open(&self.path)?;
                    self.size = file.metadata()?.len();
                    none.insert(file)
                }
            };
            if let Err(error) = file.write_all(part) {
                file.set_len(self.size)?;
                return Err(error);
            }
            self.size += part.len() as u64;
        }
        Ok(())
    }
}

/// Whole lines, in parts that each fit in a file.
fn parts(bytes: &[u8], largest: u64) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let most = rest.len().min(usize::try_from(largest).unwrap_or(usize::MAX) / 2);
        let end = match rest[..most].iter().rposition(|byte| *byte == b'\n') {
            Some(at) => at + 1,
            None => rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1),
        };
        let part;
        (part, rest) = rest.split_at(end);
        (!part.is_empty()).then_some(part)
    })
}

/// Opens a log for reading. Its agent may have put anything in its place: only a plain file is opened, and nothing is
/// waited for.
pub(crate) fn open_plain(path: &Path) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = fs::File::options().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
    }
}

/// The path of the rotated part of a log.
pub(crate) fn older(path: &Path) -> PathBuf {
    path.with_extension("old")
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(millis(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_and_keeps_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Log::sized(&path, 2_000);
        for n in 0..500 {
            log.line(Voice::Out, format!("line {n}"));
            assert_eq!(log.flush(), None);
        }
        log.line(Voice::Err, "x".repeat(100_000));
        assert_eq!(log.flush(), None);
        let (new, old) = (fs::read_to_string(&path).unwrap(), fs::read_to_string(older(&path)).unwrap());
        assert!(old.contains("line 499") && old.len() <= 2_000, "{old}");
        assert!(new.contains(" err xxx") && new.len() < LONGEST + 100, "{}", new.len());
    }

    #[test]
    fn what_could_not_be_written_is_counted_and_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("later/log");
        let mut log = Log::open(&path);
        log.line(Voice::Out, "one".into());
        log.line(Voice::Out, "two".into());
        assert!(log.flush().is_some());
        fs::create_dir(dir.path().join("later")).unwrap();
        log.line(Voice::Out, "three".into());
        assert_eq!(log.flush(), None);
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("run 2 lines are lost: ") && text.contains("out three") && !text.contains("one"),
            "{text}"
        );
    }
}
