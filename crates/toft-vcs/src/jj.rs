//! Jujutsu: workspaces, alone or colocated with git.

use std::{fs, path::Path};

use crate::{Checkout, FindError, MAIN, Vcs, follow, read};

pub(crate) fn at(dir: &Path) -> Result<Option<Checkout>, FindError> {
    let own = dir.join(".jj");
    let link = own.join("repo");
    let (repo, worktree) = if link.is_dir() {
        (link, MAIN.into())
    } else if let Some(text) = read(&link)? {
        (follow(&link, &own, &text)?, workspace_name(&own, dir))
    } else {
        return Ok(None);
    };
    let store = repo.join("store");
    let target = store.join("git_target");
    // If jj is colocated with git, git's worktrees of the same repository must find the same store.
    let common_dir = match read(&target)? {
        Some(text) => {
            let git_dir = follow(&target, &store, &text)?;
            if git_dir.starts_with(&repo) { repo } else { git_dir }
        }
        None => repo,
    };
    Ok(Some(Checkout { vcs: Vcs::Jj, root: dir.to_owned(), common_dir, worktree, state: None }))
}

/// The workspace's name as Jujutsu records it, or the directory's name if that cannot be read.
fn workspace_name(own: &Path, dir: &Path) -> String {
    fs::read(own.join("working_copy").join("checkout"))
        .ok()
        .and_then(|bytes| field_three(&bytes))
        .or_else(|| dir.file_name().map(|name| name.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "workspace".into())
}

/// The string in field 3 of a protobuf message whose fields are all length-delimited and short.
fn field_three(mut bytes: &[u8]) -> Option<String> {
    const LENGTH_DELIMITED: u8 = 2;
    while let [tag, length, rest @ ..] = bytes {
        let (field, wire, length) = (tag >> 3, tag & 7, usize::from(*length));
        if wire != LENGTH_DELIMITED || length >= 0x80 || rest.len() < length {
            return None;
        }
        if field == 3 {
            return String::from_utf8(rest[..length].to_vec()).ok();
        }
        bytes = &rest[length..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_name_is_read_from_what_jj_records() {
        let mut bytes = vec![0x12, 3, 1, 2, 3, 0x1a, 5];
        bytes.extend(b"build");
        assert_eq!(field_three(&bytes).as_deref(), Some("build"));
        assert_eq!(field_three(&bytes[..8]), None);
        assert_eq!(field_three(&[]), None);
    }
}
