//! The file: read line by line, appended to under a lock, rewritten only to compact it.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde_json::value::RawValue;

use crate::{
    line::glued,
    markers::{Piece, piece},
    open::{self, For},
};

/// A longer line is not read into memory.
pub const LONGEST_LINE: usize = 16 << 20;

/// Length of the part of an unreadable line that is shown.
const SHOWN: usize = 200;

/// A file in another format than lines is read completely, up to this size.
const LARGEST_RESHAPED: u64 = 256 << 20;

/// An item in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundLine<'a> {
    /// Possibly a record: [`crate::line::read`] decides.
    Text {
        /// The offset of its line.
        at: u64,
        text: &'a str,
    },
    /// A conflict marker of a merge.
    Marker,
    /// Unreadable; kept in place.
    Bad(Bad),
}

/// A line that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Its offset.
    pub at: u64,
    /// Its length.
    pub bytes: u64,
    pub reason: String,
    /// Its first characters.
    pub start: String,
}

impl Bad {
    /// A line that begins with `start`.
    pub fn new(at: u64, bytes: u64, reason: String, start: &[u8]) -> Self {
        let start = String::from_utf8_lossy(&start[..start.len().min(SHOWN)]).into_owned();
        Self { at, bytes, reason, start }
    }
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// One object per line, after a UTF-8 mark of this many bytes.
    Lines { mark: u64 },
    /// Objects over several lines, or a list of them.
    Spread,
    /// Either of them in UTF-16.
    Utf16 { big: bool },
}

impl Shape {
    /// Detects the format from the start of a file.
    fn of(start: &[u8]) -> Self {
        let (mark, rest) = match start {
            [0xff, 0xfe, ..] => return Self::Utf16 { big: false },
            [0xfe, 0xff, ..] => return Self::Utf16 { big: true },
            [0xef, 0xbb, 0xbf, rest @ ..] => (3, rest),
            _ => (0, start),
        };
        let mut lines = rest.trim_ascii_start().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        match (lines.next().unwrap_or_default(), lines.next().unwrap_or_default()) {
            (b"{", [b' ' | b'\t', ..]) | ([b'[', ..], _) => Self::Spread,
            // A line that a crash cut short looks so, too.
            _ => Self::Lines { mark },
        }
    }
}

/// Whether a file that starts like this has one object per line.
pub fn is_lines(start: &[u8]) -> bool {
    matches!(Shape::of(start), Shape::Lines { .. })
}

/// Reads a file from an offset; `found` gets each item in it. Returns where the last whole line ends.
///
/// A file that a program rewrote in another format (objects over several lines, a list, UTF-16) is read completely, or
/// refused completely.
pub fn scan<E: From<io::Error>>(
    file: impl Read + Seek,
    from: u64,
    mut found: impl FnMut(FoundLine<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    reader.rewind()?;
    let mark = match Shape::of(reader.fill_buf()?) {
        Shape::Lines { mark } => mark,
        other => return scan_whole(&mut reader, other, found),
    };
    let from = from.max(mark);
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
        let bad = |bytes: u64, reason: String, start: &[u8]| FoundLine::Bad(Bad::new(at, bytes, reason, start));
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
                Piece::Marker => found(FoundLine::Marker)?,
                Piece::Content(content) => match glued(content) {
                    None => found(FoundLine::Text { at, text: content })?,
                    Some(objects) => objects.into_iter().try_for_each(|text| found(FoundLine::Text { at, text }))?,
                },
            },
        }
        at += bytes;
        if ended {
            whole = at;
        }
    }
}

/// Reads a file that does not have one object per line.
fn scan_whole<E: From<io::Error>>(
    reader: &mut (impl Read + Seek),
    shape: Shape,
    mut found: impl FnMut(FoundLine<'_>) -> Result<(), E>,
) -> Result<u64, E> {
    let refused = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, format!("{problem}; nothing was changed"));
    let mut bytes = Vec::new();
    reader.rewind()?;
    let size = reader.take(LARGEST_RESHAPED + 1).read_to_end(&mut bytes)? as u64;
    if size > LARGEST_RESHAPED {
        return Err(refused("the file is not one object a line, and too large to be read otherwise").into());
    }
    let text = match shape {
        Shape::Utf16 { big } => {
            let unit = |pair: &[u8; 2]| if big { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) };
            let units = bytes[2..].as_chunks::<2>().0.iter().map(unit);
            char::decode_utf16(units)
                .collect::<Result<String, _>>()
                .map_err(|_| refused("the file is broken UTF-16"))?
        }
        _ => String::from_utf8(bytes).map_err(|_| refused("the file is not UTF-8"))?,
    };
    let text = text.trim_start_matches('\u{feff}');
    let mut objects = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<&RawValue>() {
        let value =
            value.map_err(|error| refused(&format!("the file is neither lines nor a list of objects: {error}")))?;
        match value.get().starts_with('[') {
            true => objects.extend(
                serde_json::from_str::<Vec<&RawValue>>(value.get()).map_err(|error| refused(&error.to_string()))?,
            ),
            false => objects.push(value),
        }
    }
    for object in objects {
        found(FoundLine::Text { at: 0, text: object.get() })?;
    }
    Ok(size)
}

/// Skips the rest of a line: returns its length, and whether it ended.
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

/// The identity and state of a file: if none of it changed, the content did not change either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileStamp {
    /// Device and inode number.
    pub identity: (u64, u64),
    /// Size in bytes.
    pub size: u64,
    /// The change time in nanoseconds, if the system has one; programs cannot set it.
    pub written: i64,
}

impl FileStamp {
    /// The stamp of a path; `None` if it does not exist.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(Self::of(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The stamp from metadata.
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

/// The write lock of a ledger, released when dropped.
#[derive(Debug)]
pub struct LedgerLock {
    _lock: File,
}

impl LedgerLock {
    /// Waits for the lock.
    pub fn take(lock: &Path) -> io::Result<Self> {
        let file = Self::open(lock)?;
        file.lock()?;
        Ok(Self { _lock: file })
    }

    /// The same, for at most `patience`; none on timeout.
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
        let open = || options_beside(lock).append(true).open(lock);
        match (open(), lock.parent()) {
            (Err(error), Some(dir)) if error.kind() == io::ErrorKind::NotFound => {
                create_dir_all(dir)?;
                open()
            }
            (opened, _) => opened,
        }
    }

    /// Appends lines durably to the current file: if a checkout replaced it in the meantime, the new file gets them
    /// too. Returns their offset and the stamp of the file afterwards.
    pub fn append(&self, path: &Path, lines: &[impl AsRef<[u8]>]) -> io::Result<(u64, FileStamp)> {
        const TRIES: usize = 100;
        let mut text = Vec::new();
        for line in lines {
            text.extend(line.as_ref());
            text.push(b'\n');
        }
        for _ in 0..TRIES {
            let new = !path.exists();
            if new && let Some(dir) = path.parent() {
                create_dir_all(dir)?;
            }
            let mut file = open_to_append(path)?;
            refuse_utf16(&mut file)?;
            // What a torn write left must not swallow the next line.
            let size = file.metadata()?.len();
            let torn = size > 0 && !ends_in_newline(&mut file, size)?;
            let message = if torn { [b"\n", text.as_slice()].concat() } else { text.clone() };
            if let Err(error) = file.write_all(&message).and_then(|()| file.sync_data()) {
                // Half a line, or one whose writer is told that it failed, must not stay.
                file.set_len(size)?;
                return Err(error);
            }
            if new {
                sync_dir(path)?;
            }
            let look = FileStamp::of(&file.metadata()?);
            if FileStamp::at(path)?.is_some_and(|now| now.identity == look.identity) {
                return Ok((look.size - text.len() as u64, look));
            }
        }
        Err(io::Error::other(format!("{} is replaced faster than it can be written", path.display())))
    }

    /// Replaces a file by what `content` writes, atomically.
    pub fn replace(
        &self,
        path: &Path,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<FileStamp> {
        let dir = path.parent().unwrap_or(Path::new("."));
        create_dir_all(dir)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        open::refuse_links(dir, &name)?;
        let temporary: PathBuf = dir.join(format!(".{name}.{}", std::process::id()));
        let written = (|| {
            // One that a crash left is ours; a link of that name is not followed.
            let _ = fs::remove_file(&temporary);
            let mut file = options_beside(&temporary).write(true).create_new(true).open(&temporary)?;
            let mut out = io::BufWriter::new(&mut file);
            content(&mut out)?;
            out.flush()?;
            drop(out);
            file.sync_all()?;
            let look = FileStamp::of(&file.metadata()?);
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

/// Opens a ledger's file below its directory, which for an archive may be one level further up.
fn open_to_append(path: &Path) -> io::Result<File> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    #[cfg(unix)]
    let mode = mode_of(dir).map_or(0o600, |mode| mode & 0o666);
    #[cfg(not(unix))]
    let mode = 0;
    open::open(dir, &name, For::Appending, mode)
}

fn refuse_utf16(file: &mut File) -> io::Result<()> {
    let mut start = [0; 2];
    file.rewind()?;
    let read = file.read(&mut start)?;
    match Shape::of(&start[..read]) {
        Shape::Utf16 { .. } => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is UTF-16; `toft gc --ledgers` writes it as UTF-8",
        )),
        _ => Ok(()),
    }
}

fn ends_in_newline(file: &mut File, size: u64) -> io::Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::Start(size - 1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Syncs the directory, which makes a new name durable.
fn sync_dir(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    if let Some(dir) = path.parent() {
        File::open(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })?.sync_all()?;
    }
    Ok(())
}

/// Options that create a file as private as its directory: a ledger of toft's own is in a private one, and a ledger in
/// the user's tree is as open as that tree. No link is followed, because agents can write to the directories of locks.
fn options_beside(path: &Path) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(nix::libc::O_NOFOLLOW);
        if let Some(mode) = path.parent().and_then(mode_of) {
            options.mode(mode & 0o666);
        }
    }
    options
}

/// Creates missing directories as private as their parent.
fn create_dir_all(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
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
