//! Finished commits as bundles, which travel to clones on other machines.

use std::{io::Write as _, time::Duration};

use tempfile::NamedTempFile;

use super::{LandingRepository, QUEUE};
use crate::{exchange::refs, git_run::Git, lock::io, workspace::WorkspaceError};

/// How long a remote may take to say what is new.
const ASKED: Duration = Duration::from_secs(120);

/// What became of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleTaken {
    /// This repository has its commit.
    Taken,
    /// The commit is built on others that this repository lacks.
    Lacks,
}

impl LandingRepository {
    /// Whether this repository has a commit.
    pub fn has(&self, commit: &str) -> Result<bool, WorkspaceError> {
        Ok(self.commit_of(commit)?.is_some())
    }

    /// A kept commit with the part of its history that the target's branch on remotes does not have; without remotes, the part
    /// since `bases`.
    pub fn bundle(&self, name: &str, target: &str, bases: &[String]) -> Result<Vec<u8>, WorkspaceError> {
        let (kept, tip) = (format!("{QUEUE}{name}"), format!("{QUEUE}{name}^@"));
        // Other branches of a remote may be gone tomorrow.
        let branch = self.remote_branch(target).map_or(target, |at| at.branch.as_str());
        let listed = self.git.run(["for-each-ref", "--format=%(refname)", "refs/remotes/"])?.text()?;
        let stays = |name: &&str| name.ends_with(&format!("/{branch}")) || name.ends_with("/HEAD");
        let mut known: Vec<String> = listed.lines().filter(stays).map(str::to_owned).collect();
        if known.is_empty() {
            known = bases.to_vec();
        }
        let range = [kept.as_str(), "--not"].into_iter().chain(known.iter().map(String::as_str));
        let new = self.git.run(["rev-list", "--max-count=1"])?.args(range.clone()).text()?;
        let file = NamedTempFile::with_prefix("toft-bundle-").map_err(io("make", &std::env::temp_dir()))?;
        let run = self.git.run(["bundle", "create", "--quiet"])?.arg(file.path());
        // A bundle has one commit at least, also if a remote has that one.
        let run = if new.is_empty() { run.args([&kept, "--not", &tip]) } else { run.args(range) };
        run.ok()?;
        std::fs::read(file.path()).map_err(io("read", file.path()))
    }

    /// Takes a commit from a bundle; with a name, keeps it until it has landed. If the bundle is built on commits that this
    /// repository lacks, its remotes are asked for them first.
    pub fn take_bundle(&self, name: Option<&str>, commit: &str, bundle: &[u8]) -> Result<BundleTaken, WorkspaceError> {
        let needed = prerequisites(bundle);
        let Some(needed) = needed else {
            return Err(WorkspaceError::Stays { why: "what the server has is no plain bundle of git".to_owned() });
        };
        let lacks = || -> Result<bool, WorkspaceError> {
            needed.iter().try_fold(false, |lacks, commit| Ok(lacks || !self.has(commit)?))
        };
        if lacks()? {
            for (remote, url) in refs::remotes(&self.common)? {
                let git = refs::remote_git(&self.common, &url, ASKED)?;
                // Who cannot be asked now may not be needed.
                let _ = git.run(["fetch", "--quiet", "--no-tags", "--no-recurse-submodules", &remote])?.ok();
            }
            if lacks()? {
                return Ok(BundleTaken::Lacks);
            }
        }
        let file = bundle_file(bundle)?;
        let spec = name.map_or_else(|| commit.to_owned(), |name| format!("+{commit}:{QUEUE}{name}"));
        Git::of_remotes(&self.common)?.run(CHECKED)?.arg(file.path()).arg(spec).ok()?;
        Ok(BundleTaken::Taken)
    }

    /// What a commit of a bundle changes since it left `target`, in the format of git; this repository stays as it is. Nothing
    /// if the bundle is built on commits that it lacks.
    pub fn diff_of_bundle(&self, target: &str, commit: &str, bundle: &[u8]) -> Result<Option<Vec<u8>>, WorkspaceError> {
        for needed in prerequisites(bundle).unwrap_or_default().iter().map(String::as_str).chain([target]) {
            if !self.has(needed)? {
                return Ok(None);
            }
        }
        let (file, aside) = (bundle_file(bundle)?, self.objects_aside()?);
        let fetched = Git::of_remotes(&self.common)?.run(CHECKED)?.arg(file.path()).arg(commit);
        aside.of(fetched).ok()?;
        Ok(Some(aside.of(self.run_diff(target, commit)?).ok()?))
    }
}

/// How a bundle is taken: git checks every object in it.
const CHECKED: [&str; 6] = ["-c", "fetch.fsckObjects=true", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head"];

fn bundle_file(bundle: &[u8]) -> Result<NamedTempFile, WorkspaceError> {
    let mut file = NamedTempFile::with_prefix("toft-bundle-").map_err(io("make", &std::env::temp_dir()))?;
    file.write_all(bundle).map_err(io("write", file.path()))?;
    Ok(file)
}

/// The commits that a bundle is built on; none if it is no bundle, or leaves out more than history.
fn prerequisites(bundle: &[u8]) -> Option<Vec<String>> {
    let end = bundle.windows(2).position(|pair| pair == b"\n\n")?;
    let head = String::from_utf8_lossy(&bundle[..end]).into_owned();
    let mut lines = head.lines();
    lines.next().filter(|line| line.starts_with("# v") && line.ends_with(" git bundle"))?;
    let mut needed = Vec::new();
    for line in lines {
        match line.split_at_checked(1)? {
            ("-", rest) => needed.push(rest.split(' ').next().unwrap_or_default().to_owned()),
            ("@", rest) if !rest.starts_with("object-format=") => return None,
            _ => {}
        }
    }
    let plain = |commit: &String| !commit.is_empty() && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    needed.iter().all(plain).then_some(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_bundle_says_what_it_is_built_on() {
        let of = |head: &str| prerequisites(format!("{head}\n\nPACK").as_bytes());
        assert_eq!(of("# v2 git bundle\n-ab12 a - subject\nff00 refs/x"), Some(vec!["ab12".to_owned()]));
        assert_eq!(of("# v3 git bundle\n@object-format=sha256\nff00 refs/x"), Some(Vec::new()));
        assert_eq!(of("# v3 git bundle\n@filter=blob:none\nff00 refs/x"), None);
        assert_eq!(of("# v2 git bundle\n---upload-pack=x\nff00 refs/x"), None);
        assert_eq!(of("PACK"), None);
        assert_eq!(prerequisites(b"# v2 git bundle\n"), None);
    }
}
