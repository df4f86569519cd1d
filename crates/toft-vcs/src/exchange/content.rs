//! Reads a ledger's files in a git commit with one process, or two if there is an archive.

use super::{ARCHIVE, Files, ISSUES, belongs};
use crate::{RunError, git_run::Git};

/// The files of a ledger below `prefix` in a commit; empty if there is none.
pub(super) fn at(git: &Git, commit: &str, prefix: &str) -> Result<Files, RunError> {
    let below = prefix.trim_end_matches('/');
    let wanted = [
        format!("{commit}^{{tree}}"),
        format!("{commit}:{below}"),
        format!("{commit}:{prefix}{ARCHIVE}"),
        format!("{commit}:{prefix}{ISSUES}"),
    ];
    let said = objects(git, &wanted)?;
    let [Some(_), top, archive, issues] = said.as_slice() else {
        return Err(torn(commit, "there is no such commit"));
    };
    let mut files = Files::new();
    // Links and submodules are not files of a ledger.
    if top.as_ref().is_some_and(|tree| tree.entries().any(|entry| entry.name == ISSUES && entry.is_file())) {
        let blob = issues.as_ref().ok_or_else(|| torn(commit, ISSUES))?;
        files.insert(ISSUES.to_owned(), blob.bytes.clone());
    }
    let archived = archive.iter().flat_map(Object::entries).filter(Entry::is_file);
    let (names, oids): (Vec<String>, Vec<String>) = archived
        .map(|entry| (format!("{ARCHIVE}/{}", entry.name), entry.oid))
        .filter(|(name, _)| belongs(name))
        .unzip();
    if !oids.is_empty() {
        for (name, blob) in names.into_iter().zip(objects(git, &oids)?) {
            let blob = blob.ok_or_else(|| torn(commit, &name))?;
            files.insert(name, blob.bytes);
        }
    }
    Ok(files)
}

fn torn(commit: &str, said: &str) -> RunError {
    RunError::Failed { what: format!("git cat-file {commit}"), code: 0, said: said.to_owned() }
}

/// An object as git stores it.
struct Object {
    kind: String,
    bytes: Vec<u8>,
    /// Length of object hashes.
    hash: usize,
}

/// An entry of a tree.
struct Entry {
    mode: String,
    name: String,
    oid: String,
}

impl Entry {
    fn is_file(&self) -> bool {
        self.mode.starts_with("100")
    }
}

impl Object {
    /// The entries of a tree; none for other objects.
    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let mut rest = if self.kind == "tree" { self.bytes.as_slice() } else { &[] };
        std::iter::from_fn(move || {
            let end = rest.iter().position(|byte| *byte == 0)?;
            let head = String::from_utf8_lossy(&rest[..end]).into_owned();
            let (mode, name) = head.split_once(' ')?;
            let oid = rest.get(end + 1..end + 1 + self.hash)?;
            rest = &rest[end + 1 + self.hash..];
            let oid = oid.iter().map(|byte| format!("{byte:02x}")).collect();
            Some(Entry { mode: mode.to_owned(), name: name.to_owned(), oid })
        })
    }
}

/// Objects by name, in that order; none for a missing object.
fn objects(git: &Git, wanted: &[String]) -> Result<Vec<Option<Object>>, RunError> {
    let said = git.run(["cat-file", "--batch", "-z"])?.ok_fed(|to| {
        for name in wanted {
            write!(to, "{name}\0")?;
        }
        Ok(())
    })?;
    let mut rest = said.as_slice();
    let mut found = Vec::new();
    for name in wanted {
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| torn(name, "it was cut off"))?;
        let head = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 1..];
        let words: Vec<&str> = head.split(' ').collect();
        let &[oid, kind @ ("blob" | "tree" | "commit" | "tag"), size] = words.as_slice() else {
            found.push(None);
            continue;
        };
        let size = size.parse().unwrap_or(usize::MAX);
        let bytes = rest.get(..size).ok_or_else(|| torn(name, "it was cut off"))?;
        found.push(Some(Object { kind: kind.to_owned(), bytes: bytes.to_vec(), hash: oid.len() / 2 }));
        rest = rest.get(size + 1..).unwrap_or_default();
    }
    Ok(found)
}
