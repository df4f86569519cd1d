//! A ledger's files in a commit of git.

use super::{Files, belongs};
use crate::{RunError, git_run::Git};

/// The files of a ledger below `prefix` in a commit; none if it is not there.
pub(super) fn at(git: &Git, commit: &str, prefix: &str) -> Result<Files, RunError> {
    let mut listing = git.run(["ls-tree", "-r", "-z", commit])?;
    if !prefix.is_empty() {
        listing = listing.args(["--", prefix]);
    }
    let listed = listing.ok()?;
    let mut blobs = Vec::new();
    for entry in listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let entry = String::from_utf8_lossy(entry);
        // mode SP kind SP oid TAB path; links and submodules are no ledger's files.
        let Some((facts, path)) = entry.split_once('\t') else { continue };
        let mut facts = facts.split(' ');
        let (mode, oid) = (facts.next().unwrap_or_default(), facts.nth(1).unwrap_or_default());
        if let Some(name) = path.strip_prefix(prefix)
            && mode.starts_with("100")
            && belongs(name)
        {
            blobs.push((name.to_owned(), oid.to_owned()));
        }
    }
    if blobs.is_empty() {
        return Ok(Files::new());
    }
    let said = git.run(["cat-file", "--batch"])?.ok_fed(|to| {
        for (_, oid) in &blobs {
            writeln!(to, "{oid}")?;
        }
        Ok(())
    })?;
    let mut rest = said.as_slice();
    let mut files = Files::new();
    for (name, oid) in blobs {
        let torn = || RunError::Failed { what: format!("git cat-file {oid}"), code: 0, said: "it was cut off".into() };
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or_else(torn)?;
        let size = String::from_utf8_lossy(&rest[..end]).rsplit(' ').next().and_then(|size| size.parse::<usize>().ok());
        let from = end + 1;
        let bytes = size.and_then(|size| rest.get(from..from + size)).ok_or_else(torn)?;
        files.insert(name, bytes.to_vec());
        rest = rest.get(from + bytes.len() + 1..).unwrap_or_default();
    }
    Ok(files)
}
