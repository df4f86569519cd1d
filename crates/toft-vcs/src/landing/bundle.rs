//! Finished commits as bundles, which travel to clones on other machines.

use std::io::Write as _;

use tempfile::NamedTempFile;

use super::{LandingRepository, QUEUE};
use crate::{exchange::refs, git_run::Git, lock::io, workspace::WorkspaceError};

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

    /// A kept commit with the part of its history that no remote has; without remotes, the part since `bases`.
    pub fn bundle(&self, name: &str, bases: &[String]) -> Result<Vec<u8>, WorkspaceError> {
        let (kept, tip) = (format!("{QUEUE}{name}"), format!("{QUEUE}{name}^@"));
        let known: Vec<&str> = match refs::remotes(&self.common)?.is_empty() {
            true => bases.iter().map(String::as_str).collect(),
            false => vec!["--remotes"],
        };
        let range = [kept.as_str(), "--not"].into_iter().chain(known);
        let new = self.git.run(["rev-list", "--max-count=1"])?.args(range.clone()).text()?;
        let file = NamedTempFile::with_prefix("toft-bundle-").map_err(io("make", &std::env::temp_dir()))?;
        let run = self.git.run(["bundle", "create", "--quiet"])?.arg(file.path());
        // A bundle has one commit at least, also if a remote has that one.
        let run = if new.is_empty() { run.args([&kept, "--not", &tip]) } else { run.args(range) };
        run.ok()?;
        std::fs::read(file.path()).map_err(io("read", file.path()))
    }

    /// Takes a commit from a bundle; with a name, keeps it until it has landed.
    pub fn take_bundle(&self, name: Option<&str>, commit: &str, bundle: &[u8]) -> Result<BundleTaken, WorkspaceError> {
        let mut file = NamedTempFile::with_prefix("toft-bundle-").map_err(io("make", &std::env::temp_dir()))?;
        file.write_all(bundle).map_err(io("write", file.path()))?;
        let verified = self.git.run(["bundle", "verify", "--quiet"])?.arg(file.path()).end()?;
        if verified.code != 0 && verified.err.contains("prerequisite") {
            return Ok(BundleTaken::Lacks);
        }
        let spec = name.map_or_else(|| commit.to_owned(), |name| format!("+{commit}:{QUEUE}{name}"));
        let checked = ["-c", "fetch.fsckObjects=true", "fetch", "--quiet", "--no-tags", "--no-write-fetch-head"];
        Git::of_remotes(&self.common)?.run(checked)?.arg(file.path()).arg(spec).ok()?;
        Ok(BundleTaken::Taken)
    }
}
