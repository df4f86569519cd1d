//! Mercurial, and Sapling, which keeps the same files under another name.

use std::path::Path;

use crate::{Checkout, FindError, MAIN, Vcs, follow, read};

pub(crate) fn at(dir: &Path, vcs: Vcs, name: &str) -> Result<Option<Checkout>, FindError> {
    let own = dir.join(name);
    if !own.is_dir() {
        return Ok(None);
    }
    let link = own.join("sharedpath");
    let (common_dir, worktree) = match read(&link)? {
        // Mercurial has no name for a share, so the directory's name is used.
        Some(text) => {
            let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
            (follow(&link, &own, &text)?, name.unwrap_or_else(|| "share".into()))
        }
        None => (own, MAIN.into()),
    };
    Ok(Some(Checkout { vcs, root: dir.to_owned(), common_dir, worktree, state: None }))
}
