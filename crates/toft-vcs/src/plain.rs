//! Reads files that an agent can write: regular files only, without following links, and never blocking on a pipe.

use std::{fs, io, io::Read as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use nix::libc::{ELOOP, O_NOFOLLOW, O_NONBLOCK};

/// Opens a regular file. A link, a pipe or a device gives [`io::ErrorKind::InvalidInput`].
pub(crate) fn open(path: &Path) -> io::Result<fs::File> {
    let odd = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
    let opened = fs::File::options().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path);
    let file = opened.map_err(|error| if error.raw_os_error() == Some(ELOOP) { odd("it is a link") } else { error })?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(odd("it is not a file")),
    }
}

/// Reads a regular file.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}
