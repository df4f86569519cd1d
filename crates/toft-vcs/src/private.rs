//! Files that toft writes beside a repository are private to their owner, whatever the umask.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

/// Options that create a file with mode 0600.
pub(crate) fn options() -> OpenOptions {
    with_mode(0o600)
}

fn with_mode(mode: u32) -> OpenOptions {
    let mut options = OpenOptions::new();
    // An agent in a sandbox can write to some of these directories, so links are not followed.
    use std::os::unix::fs::OpenOptionsExt as _;
    options.mode(mode).custom_flags(nix::libc::O_NOFOLLOW);
    options.write(true).create(true);
    options
}

/// Creates a directory and its missing parents with mode 0700.
pub(crate) fn create_dir_all(dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// If this process is root, gives a file or directory the owner of the directory it is in.
pub(crate) fn give_to_owner_of(dir: &Path, path: &Path) {
    use std::os::unix::fs::MetadataExt;
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    if let (Ok(dir), Ok(made)) = (fs::metadata(dir), fs::symlink_metadata(path))
        && made.uid() == 0
        && dir.uid() != 0
    {
        // If that is not allowed, the owner replaces the file later.
        let _ = std::os::unix::fs::lchown(path, Some(dir.uid()), Some(dir.gid()));
    }
}

/// Writes a file with the permissions of its directory: a ledger is in a private directory, or among the user's files.
pub(crate) fn write_like_its_directory(path: &Path, content: &[u8]) -> io::Result<()> {
    let mode = path.parent().and_then(|dir| fs::metadata(dir).ok()).map_or(0o666, |meta| mode_of(&meta) & 0o666);
    with_mode(mode).truncate(true).open(path)?.write_all(content)
}

fn mode_of(meta: &fs::Metadata) -> u32 {
    std::os::unix::fs::MetadataExt::mode(meta)
}
