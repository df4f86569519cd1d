//! What a command said: with the time of each line, without secrets, and never more than two files of it.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use toft_core::time::{Timestamp, millis};

use super::mask::Mask;

/// A file that is so large is set aside, and replaces the one that was set aside before.
const LARGEST: u64 = 4 << 20;
/// A longer line is cut.
const LONGEST: usize = 16 << 10;

/// Where a line came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Voice {
    /// Its output.
    Out,
    /// Its complaints.
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

/// A log being written.
pub(crate) struct Log {
    path: PathBuf,
    file: io::BufWriter<fs::File>,
    size: u64,
    largest: u64,
    /// The last line of each voice that said something.
    out: String,
    err: String,
}

impl Log {
    /// A new log.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Self::sized(path, LARGEST)
    }

    fn sized(path: &Path, largest: u64) -> io::Result<Self> {
        let file = fs::File::options().append(true).create(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file: io::BufWriter::new(file),
            size,
            largest,
            out: String::new(),
            err: String::new(),
        })
    }

    /// Keeps one line; gives it as it was kept.
    pub(crate) fn line(&mut self, voice: Voice, said: &[u8], mask: &Mask) -> io::Result<String> {
        let whole = String::from_utf8_lossy(said);
        let mut text = mask.mask(whole.trim_end_matches(['\n', '\r']));
        if let Some((cut, _)) = text.char_indices().find(|(at, _)| *at >= LONGEST) {
            text.truncate(cut);
            text.push_str(" […]");
        }
        let line = format!("{} {} {text}\n", now(), voice.sign());
        if self.size + line.len() as u64 > self.largest {
            self.rotate()?;
        }
        self.file.write_all(line.as_bytes())?;
        self.size += line.len() as u64;
        if !text.trim().is_empty() {
            match voice {
                Voice::Out => text.trim().clone_into(&mut self.out),
                Voice::Err => text.trim().clone_into(&mut self.err),
                Voice::Runner => {}
            }
        }
        Ok(text)
    }

    /// What was said is on its way to the disk.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// The last that the command said: its output if it ended well, its complaint if not, as far as there is one.
    pub(crate) fn last(&self, well: bool) -> &str {
        let (first, second) = if well { (&self.out, &self.err) } else { (&self.err, &self.out) };
        if first.is_empty() { second } else { first }
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        fs::rename(&self.path, older(&self.path))?;
        self.file = io::BufWriter::new(fs::File::create(&self.path)?);
        self.size = 0;
        Ok(())
    }
}

/// Where the first part of a long log is.
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
        let mask = Mask::from_environment([]);
        let mut log = Log::sized(&path, 2_000).unwrap();
        for n in 0..500 {
            log.line(Voice::Out, format!("line {n}\n").as_bytes(), &mask).unwrap();
        }
        log.line(Voice::Err, &[b'x'; 100_000], &mask).unwrap();
        log.flush().unwrap();
        let (new, old) = (fs::read_to_string(&path).unwrap(), fs::read_to_string(older(&path)).unwrap());
        assert!(old.contains("line 499") && old.len() <= 2_000, "{old}");
        assert!(new.contains(" err xxx") && new.len() < LONGEST + 100, "{}", new.len());
        assert!(log.last(false).starts_with("xxx") && log.last(true) == "line 499");
    }
}
