//! The file: read line by line, appended to under a lock, rewritten whole only to put it in order.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::markers::{Piece, piece};

/// A longer line is not read into memory.
pub const LONGEST_LINE: usize = 16 << 20;

/// How much of a line that cannot be read is looked at to name it.
const SHOWN: usize = 200;

/// One thing found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A record, perhaps: [`crate::line::read`] tells.
    Text(&'a str),
    /// Left by a merge.
    Marker,
    /// Not understood; kept where it is.
    Bad(Bad),
}

/// A line that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Where it begins.
    pub at: u64,
    /// How long it is.
    pub bytes: u64,
    /// Why.
    pub reason: String,
    /// How it begins.
    pub start: String,
}

impl Bad {
    /// A line that begins with `start`.
    pub fn new(at: u64, bytes: u64, reason: String, start: &[u8]) -> Self {
        let start = String::from_utf8_lossy(&start[..start.len().min(SHOWN)]).into_owned();
        Self { at, bytes, reason, start }
    }
}

/// Reads a file from a place on; `found` gets each thing in it. Says where the last whole line ends.
pub fn scan<E: From<io::Error>>(
    file: impl Read + Seek,
    from: u64,
    mut found: impl FnMut(Found<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    reader.seek(SeekFrom::Start(from))?;
    let (mut at, mut whole) = (from, from);
    let mut buffer = Vec::new();
    loop {
        buffer.clear();
        let mut bytes = reader.by_ref().take(LONGEST_LINE as u64 + 1).read_until(b'\n', &mut buffer)? as u64;
        if bytes == 0 {
            return Ok(whole);
        }
        let ended = buffer.last() == Some(&b'\n');
        let bad = |bytes: u64, reason: String, start: &[u8]| Found::Bad(Bad::new(at, bytes, reason, start));
        if !ended && bytes > LONGEST_LINE as u64 {
            let start = buffer[..SHOWN].to_vec();
            let (rest, over) = skip_line(&mut reader)?;
            bytes += rest;
            found(bad(bytes, format!("longer than {} MiB", LONGEST_LINE >> 20), &start))?;
            at += bytes;
            whole = if over { at } else { whole };
            continue;
        }
        let text = buffer.strip_suffix(b"\n").unwrap_or(&buffer);
        match std::str::from_utf8(text) {
            Err(_) => found(bad(bytes, "not UTF-8".into(), text))?,
            Ok(text) => match piece(text) {
                Piece::Blank => {}
                Piece::Marker => found(Found::Marker)?,
                Piece::Content(content) => found(Found::Text(content))?,
            },
        }
        at += bytes;
        if ended {
            whole = at;
        }
    }
}

/// Steps over the rest of a line: how much that was, and whether it ended.
fn skip_line(reader: &mut impl BufRead) -> io::Result<(u64, bool)> {
    let mut skipped = 0;
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            return Ok((skipped, false));
        }
        let (used, over) = match chunk.iter().position(|byte| *byte == b'\n') {
            Some(end) => (end + 1, true),
            None => (chunk.len(), false),
        };
        reader.consume(used);
        skipped += used as u64;
        if over {
            return Ok((skipped, true));
        }
    }
}

/// Which file this is, and what it looked like: if nothing of it changed, neither did the content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Device and number.
    pub identity: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// When it was last changed, in nanoseconds; where the system tells, not what a program can set.
    pub written: i64,
}

impl Look {
    /// A look at a path; `None` if nothing is there.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What metadata say.
    pub fn of(metadata: &fs::Metadata) -> Self {
        let (identity, written) = facts(metadata);
        Self { identity, size: metadata.len(), written }
    }
}

#[cfg(unix)]
fn facts(metadata: &fs::Metadata) -> ((u64, u64), i64) {
    use std::os::unix::fs::MetadataExt as _;
    let changed = metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec());
    ((metadata.dev(), metadata.ino()), changed)
}

#[cfg(not(unix))]
fn facts(metadata: &fs::Metadata) -> ((u64, u64), i64) {
    let nanos = |at: io::Result<std::time::SystemTime>| {
        at.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok()).map_or(0, |at| at.as_nanos())
    };
    ((0, nanos(metadata.created()) as u64), nanos(metadata.modified()) as i64)
}

/// The right to write a ledger, until dropped.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits for the right to write whatever `lock` guards.
    pub fn take(lock: &Path) -> io::Result<Self> {
        let file = Self::open(lock)?;
        file.lock()?;
        Ok(Self { _lock: file })
    }

    /// The same, for as long as `patience` lasts; nothing if it does not come.
    pub fn take_within(lock: &Path, patience: Duration) -> io::Result<Option<Self>> {
        let file = Self::open(lock)?;
        let (until, mut pause) = (Instant::now() + patience, Duration::from_micros(200));
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(Self { _lock: file })),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) if Instant::now() >= until => return Ok(None),
                Err(TryLockError::WouldBlock) => {}
            }
            thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    fn open(lock: &Path) -> io::Result<File> {
        if let Some(dir) = lock.parent() {
            create_dir_all(dir)?;
        }
        options_beside(lock).append(true).open(lock)
    }

    /// Appends lines and sees that they are on disk, in the file that is there now: one that a checkout replaced
    /// meanwhile gets them too. Says where they begin and how the file looks after.
    pub fn append(&self, path: &Path, lines: &[String]) -> io::Result<(u64, Look)> {
        const TRIES: usize = 100;
        let mut text = lines.join("\n");
        text.push('\n');
        for _ in 0..TRIES {
            let new = !path.exists();
            if new && let Some(dir) = path.parent() {
                create_dir_all(dir)?;
            }
            let mut file = options_beside(path).append(true).read(true).open(path)?;
            // What a torn write left must not swallow the next line.
            let size = file.metadata()?.len();
            let torn = size > 0 && !ends_in_newline(&mut file, size)?;
            let message = if torn { format!("\n{text}") } else { text.clone() };
            if let Err(error) = file.write_all(message.as_bytes()).and_then(|()| file.sync_data()) {
                // Half a line, or one whose writer is told that it failed, must not stay.
                file.set_len(size)?;
                return Err(error);
            }
            if new {
                sync_dir(path)?;
            }
            let look = Look::of(&file.metadata()?);
            if Look::at(path)?.is_some_and(|now| now.identity == look.identity) {
                return Ok((look.size - text.len() as u64, look));
            }
        }
        Err(io::Error::other(format!("{} is replaced faster than it can be written", path.display())))
    }

    /// Replaces a file by what `content` writes, all or nothing.
    pub fn replace(&self, path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<Look> {
        let dir = path.parent().unwrap_or(Path::new("."));
        create_dir_all(dir)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary: PathBuf = dir.join(format!(".{name}.{}", std::process::id()));
        let written = (|| {
            let mut file = options_beside(&temporary).write(true).truncate(true).open(&temporary)?;
            let mut out = io::BufWriter::new(&mut file);
            content(&mut out)?;
            out.flush()?;
            drop(out);
            file.sync_all()?;
            let look = Look::of(&file.metadata()?);
            fs::rename(&temporary, path)?;
            sync_dir(path)?;
            Ok(look)
        })();
        if written.is_err() {
            // Ours, unfinished, and of no use to anyone.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

fn ends_in_newline(file: &mut File, size: u64) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::Start(size - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// A new name is on disk once its directory is.
fn sync_dir(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(dir) = path.parent() {
        File::open(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })?.sync_all()?;
    }
    Ok(())
}

/// Options that create a file as private as the directory it is in: a ledger of toft's own is in a private one, and a
/// ledger in the user's tree is as open as that tree.
fn options_beside(path: &Path) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true);
    #[cfg(unix)]
    if let Some(mode) = path.parent().and_then(mode_of) {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode & 0o666);
    }
    options
}

/// Creates missing directories as private as the one they are in.
fn create_dir_all(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    if let Some(mode) = dir.ancestors().find_map(mode_of) {
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, mode & 0o777);
    }
    builder.create(dir)
}

#[cfg(unix)]
fn mode_of(dir: &Path) -> Option<u32> {
    fs::metadata(dir).ok().map(|meta| std::os::unix::fs::MetadataExt::mode(&meta))
}
