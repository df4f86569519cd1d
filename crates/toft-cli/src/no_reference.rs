//! In place of what writes documentation, where this program is built without the feature `pages`.

use std::{io, path::Path};

/// Fails: the pages are not in this program.
pub(crate) fn write_pages(_: &Path) -> io::Result<Vec<String>> {
    Err(io::Error::other("this toft was built without the feature `pages`"))
}

/// Fails: the man pages are not in this program.
pub(crate) fn write_man(dir: &Path) -> io::Result<Vec<String>> {
    write_pages(dir)
}
