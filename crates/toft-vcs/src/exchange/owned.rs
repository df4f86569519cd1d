//! Decides which repositories and branches belong to a ledger. toft never commits or pushes to any other.

use super::{ARCHIVE, ExchangeError, ISSUES, Site, git_dir, hg::Hg, is_archive};
use crate::{RunError, Vcs, command::Run, git_run::Git};

/// Files at the top of a repository that only describe it.
const ABOUT: [&str; 7] = ["README", "LICENSE", "COPYING", ".gitignore", ".gitattributes", ".hgignore", ".hgtags"];

/// Why a repository does not belong to its ledger; none if it does: it contains nothing but ledgers, and the ledger is
/// at its top. A repository further up belongs to other files.
pub(super) fn shared_with(site: &Site, parts: bool) -> Result<Option<String>, ExchangeError> {
    let root = site.checkout.root.display();
    let paths = tracked(site)?;
    if let Some(path) = foreign(paths.iter().map(String::as_str)) {
        return Ok(Some(format!("{root} holds other files ({path})")));
    }
    let depth = site.prefix.matches('/').count();
    let known = paths.iter().any(|path| of_a_ledger(path));
    Ok((depth > usize::from(parts) && !known).then(|| format!("{root} is a repository further up")))
}

/// Every path in the commit that is checked out.
fn tracked(site: &Site) -> Result<Vec<String>, ExchangeError> {
    let root = &site.checkout.root;
    let listed = match site.checkout.vcs {
        Vcs::Git => {
            let git = Git::inside(&site.checkout.common_dir, root)?;
            match git.run(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?.maybe()? {
                Some(head) => return Ok(paths(&git, &head)?),
                None => String::new(),
            }
        }
        Vcs::Jj if git_dir(&site.checkout).is_some() => {
            Run::jj(root)?.args(["file", "list", "--ignore-working-copy", "-r", "@-"]).maybe()?.unwrap_or_default()
        }
        vcs @ (Vcs::Hg | Vcs::Sl) => Hg::here(vcs, root).run(["manifest", "-r", "."])?.maybe()?.unwrap_or_default(),
        Vcs::Jj | Vcs::None => String::new(),
    };
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Every path in a commit.
pub(super) fn paths(git: &Git, commit: &str) -> Result<Vec<String>, RunError> {
    let listed = git.run(["ls-tree", "-r", "-z", "--name-only", "--full-tree", commit])?.ok()?;
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// The first path that does not belong to a ledger.
pub(super) fn foreign<'a>(mut paths: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let about = |path: &str| !path.contains('/') && ABOUT.iter().any(|name| path.starts_with(name));
    paths.find(|path| !of_a_ledger(path) && !about(path))
}

/// Whether a path is a ledger file, in any directory.
pub(super) fn of_a_ledger(path: &str) -> bool {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    name == ISSUES || is_archive(name) && (dir == ARCHIVE || dir.ends_with("/archive"))
}

/// What a commit contains instead of a ledger; none if it is a ledger, or empty.
pub(super) fn not_a_ledger(git: &Git, commit: &str) -> Result<Option<String>, RunError> {
    let listed = git.run(["ls-tree", "-z", "--name-only", "--full-tree", commit])?.ok()?;
    let names: Vec<String> = listed
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect();
    let ledger = |name: &str| name == ISSUES || name == ARCHIVE;
    let about = |name: &str| ABOUT.iter().any(|known| name.starts_with(known));
    let other = names.iter().find(|name| !ledger(name) && !about(name));
    let none = (!names.is_empty() && !names.iter().any(|name| ledger(name))).then(|| names.first()).flatten();
    Ok(other.or(none).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_of_ledgers_holds_nothing_else() {
        for (paths, other) in [
            (&["issues.jsonl", "archive/2025.jsonl", "README.md", ".gitattributes"][..], None),
            (&["red-1a/issues.jsonl", "blue-2b/archive/2025.jsonl"], None),
            (&["issues.jsonl", "src/main.c"], Some("src/main.c")),
            (&["docs/README.md", "issues/issues.jsonl"], Some("docs/README.md")),
            (&[".bashrc"], Some(".bashrc")),
        ] {
            assert_eq!(foreign(paths.iter().copied()), other);
        }
    }
}
