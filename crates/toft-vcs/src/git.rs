//! Git: the main worktree, linked worktrees, submodules, bare repositories.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Checkout, FindError, MAIN, Vcs, follow, git_view::plain_file, read};

/// File in the toft directory of a clone that toft made: contains the path of its parent repository.
pub(crate) const PARENT: &str = "parent";

/// The file in which a repository records the clone that toft made of it at `path`.
pub(crate) fn clone_record(common_dir: &Path, path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    common_dir.join("toft").join("clones").join(name)
}

/// Whether the repository has recorded a clone of itself at `path`.
pub(crate) fn is_recorded_clone(common_dir: &Path, path: &Path) -> bool {
    read(&clone_record(common_dir, path)).is_ok_and(|known| known.is_some_and(|known| Path::new(&known) == path))
}

/// The files of a worktree's entry that git opens while it lists worktrees.
const OF_AN_ENTRY: [&str; 4] = ["HEAD", "commondir", "gitdir", "index"];

/// Maximum size of these files, except the index; git writes no larger ones.
const LARGEST_LINK: u64 = 64 << 10;

/// The message for a file that would redirect git, block it, or take it very long to read.
pub(crate) const UNEXPECTED_FILE: &str = "it is a link, a pipe, a device or too large for git to have written it";

/// A file of a worktree's entry, or of a clone's git directory, that git did not write.
pub(crate) fn unexpected_file_in(entry: &Path) -> Option<PathBuf> {
    let files = OF_AN_ENTRY.iter().map(|name| entry.join(name));
    files.into_iter().find(|file| {
        let large = |meta: &fs::Metadata| meta.len() > LARGEST_LINK && !file.ends_with("index");
        fs::symlink_metadata(file).is_ok_and(|meta| !meta.is_file() || large(&meta))
    })
}

/// A `.gitignore` or `.gitattributes` at the top of a checkout that is neither a file nor a directory, e.g. a pipe.
pub(crate) fn unexpected_rules_file_in(dir: &Path) -> Option<PathBuf> {
    let files = [".gitignore", ".gitattributes"].map(|name| dir.join(name));
    files.into_iter().find(|file| fs::metadata(file).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()))
}

/// The repository's entry of its worktree at `path`: the one with the directory's name, as git names it, otherwise the
/// one whose content names the path. An agent can write its own entry, so if two entries name the same directory,
/// neither is used.
pub(crate) fn entry_of(common_dir: &Path, path: &Path) -> Option<PathBuf> {
    let entries = common_dir.join("worktrees");
    let names_it = |entry: &PathBuf| {
        let link = plain_file(&entry.join("gitdir")).ok().flatten().unwrap_or_default();
        link_target(entry, &String::from_utf8_lossy(&link)) == path.join(".git")
    };
    if let Some(entry) = path.file_name().map(|name| entries.join(name)).filter(names_it) {
        return Some(entry);
    }
    let mut found = fs::read_dir(entries).ok()?.flatten().map(|entry| entry.path()).filter(names_it);
    found.next().filter(|_| found.next().is_none())
}

/// The path of the worktree's `.git` file that an entry's `gitdir` names. Git may write it relative to the entry.
pub(crate) fn link_target(entry: &Path, link: &str) -> PathBuf {
    let mut target = PathBuf::new();
    for part in entry.join(link.trim_end()).components() {
        match part {
            std::path::Component::ParentDir => drop(target.pop()),
            std::path::Component::CurDir => {}
            part => target.push(part),
        }
    }
    target
}

/// The parent repository of a clone, if that repository has recorded the clone too.
fn parent_of(link: &Path, dir: &Path) -> Result<Option<PathBuf>, FindError> {
    let pointer = link.join("toft").join(PARENT);
    let Some(text) = read(&pointer)? else { return Ok(None) };
    let parent = follow(&pointer, dir, &text)?;
    let known = read(&clone_record(&parent, dir))?.is_some_and(|path| Path::new(&path) == dir);
    Ok(known.then_some(parent))
}

pub(crate) fn at(dir: &Path) -> Result<Option<Checkout>, FindError> {
    let link = dir.join(".git");
    let found = |common_dir: PathBuf, worktree: String| Checkout {
        vcs: Vcs::Git,
        root: dir.to_owned(),
        common_dir,
        worktree,
        state: None,
    };
    if is_git_dir(&link) {
        return Ok(Some(match parent_of(&link, dir)? {
            Some(parent) => {
                let name = dir.file_name().map(|name| name.to_string_lossy().into_owned());
                found(parent, name.unwrap_or_else(|| "clone".into()))
            }
            None => found(link, MAIN.into()),
        }));
    }
    if link.is_file() {
        let text = read(&link)?.unwrap_or_default();
        let Some(target) = text.strip_prefix("gitdir: ") else { return Ok(None) };
        let git_dir = follow(&link, dir, target)?;
        let common = git_dir.join("commondir");
        return Ok(Some(match read(&common)? {
            Some(text) => {
                let name = git_dir.file_name().map(|name| name.to_string_lossy().into_owned());
                let name = name.filter(|name| name != MAIN).unwrap_or_else(|| "main-linked".into());
                found(follow(&common, &git_dir, &text)?, name)
            }
            None => found(git_dir, MAIN.into()),
        }));
    }
    if is_git_dir(dir) {
        let name = if dir.ends_with(".git") { MAIN } else { "bare" };
        return Ok(Some(found(dir.to_owned(), name.into())));
    }
    Ok(None)
}

/// Whether a directory is a git directory.
pub(crate) fn is_git_dir(dir: &Path) -> bool {
    dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir()
}

/// Refuses a worktree whose `.git` file is missing; otherwise it would be treated as part of the checkout around it.
pub(crate) fn refuse_emptied(checkout: &Checkout, start: &Path) -> Result<(), FindError> {
    let Ok(entries) = fs::read_dir(checkout.common_dir.join("worktrees")) else { return Ok(()) };
    for entry in entries.flatten() {
        let Some(link) = read(&entry.path().join("gitdir"))? else { continue };
        let target = link_target(&entry.path(), &link);
        let Some(path) = target.parent() else { continue };
        if start.starts_with(path) && path != checkout.root && path.starts_with(&checkout.root) {
            let name = entry.file_name().to_string_lossy().into_owned();
            return Err(FindError::Emptied { name, path: path.to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_may_name_its_worktree_relative_to_itself() {
        let entry = Path::new("/a/.git/worktrees/w");
        assert_eq!(link_target(entry, "../../../../b/w/.git\n"), Path::new("/b/w/.git"));
        assert_eq!(link_target(entry, "/b/w/.git"), Path::new("/b/w/.git"));
    }
}
