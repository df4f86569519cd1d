//! Opens files in an untrusted directory: plain files below it, never links, pipes or devices.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::Path,
};

/// The purpose of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// Reading.
    Reading,
    /// Appending; the file is created if it does not exist.
    Appending,
}

/// Opens the plain file `name`, which may be in a subdirectory of `dir`. No component of the path below `dir` may be a
/// link.
pub fn open(dir: &Path, name: &str, what: For, mode: u32) -> io::Result<File> {
    let path = dir.join(name);
    refuse_links(dir, name)?;
    let mut options = OpenOptions::new();
    match what {
        For::Reading => options.read(true),
        For::Appending => options.read(true).append(true).create(true),
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        // A pipe that nobody writes to would be waited for.
        options.custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY).mode(mode);
    }
    #[cfg(not(unix))]
    let _ = mode;
    let file = options.open(&path).map_err(|error| plainly(error, &path))?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(not_plain(&path)),
    }
}

/// Reads a plain file completely.
pub fn read(dir: &Path, name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut open(dir, name, For::Reading, 0)?, &mut bytes)?;
    Ok(bytes)
}

/// Fails if `dir`, a directory in `name`, or the file itself exists and is not a directory or a plain file. A name that
/// ends in `/` is that of a directory.
pub fn refuse_links(dir: &Path, name: &str) -> io::Result<()> {
    if is_plain(dir, false)? {
        refuse_links_below(dir, name)?;
    }
    Ok(())
}

/// Does the same for a `dir` that was just looked at; returns whether `name` exists.
pub fn refuse_links_below(dir: &Path, name: &str) -> io::Result<bool> {
    let (mut path, directory) = (dir.to_owned(), name.ends_with('/'));
    let mut names = name.split('/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        path.push(name);
        if !is_plain(&path, names.peek().is_none() && !directory)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether a plain file or directory exists; fails if there is anything else in its place.
fn is_plain(path: &Path, file: bool) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(found) if file && found.is_file() || !file && found.is_dir() => Ok(true),
        Ok(_) => Err(not_plain(path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(unix)]
fn plainly(error: io::Error, path: &Path) -> io::Error {
    match error.raw_os_error() {
        Some(nix::libc::ELOOP | nix::libc::ENXIO) => not_plain(path),
        _ => error,
    }
}

#[cfg(not(unix))]
fn plainly(error: io::Error, _path: &Path) -> io::Error {
    error
}

fn not_plain(path: &Path) -> io::Error {
    let problem =
        format!("{} is a link, a pipe or a device; a ledger is plain files in plain directories", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, problem)
}
