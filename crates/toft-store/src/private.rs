//! Files and directories that only their owner can read, whatever the umask. They contain prompts, notes and logs.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Options that create a file with mode 0600 and follow no link: an agent in a sandbox can write to some of these
/// directories.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    options
}

/// Creates or truncates a file.
pub fn create(path: &Path) -> io::Result<File> {
    options().write(true).create(true).truncate(true).open(path)
}

/// Writes a whole file.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> io::Result<()> {
    create(path)?.write_all(content.as_ref())
}

/// Copies a file's content, but not its mode.
pub fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    io::copy(&mut File::open(from)?, &mut create(to)?)
}

/// Creates a directory and its missing parents with mode 0700. Existing ones are not changed.
pub fn create_dir_all(dir: &Path) -> io::Result<()> {
    if dir.as_os_str().is_empty() || dir.is_dir() { Ok(()) } else { builder(true).create(dir) }
}

/// Creates a new directory with mode 0700; fails if the name exists, even as a link.
pub fn create_dir(dir: &Path) -> io::Result<()> {
    builder(false).create(dir)
}

fn builder(recursive: bool) -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.recursive(recursive);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// A new private directory below the system's temporary directory, removed when dropped.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    /// Creates one. A name that exists, even as a planted link, is skipped.
    pub fn new(purpose: &str) -> io::Result<Self> {
        let base = std::env::temp_dir();
        let mut tries = 0;
        loop {
            let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
            let path = base.join(format!("toft-{purpose}-{}-{now}", std::process::id()));
            match create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < 16 => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // What stays behind is private and in a directory the system clears.
        let _ = fs::remove_dir_all(&self.path);
    }
}
