//! Checks a candidate out in a repository of its own.

use std::{fs, path::Path};

use super::LandingRepository;
use crate::{git_run::Git, lock::io, workspace::WorkspaceError};

impl LandingRepository {
    /// Checks a commit out in a repository of its own, which shares the objects. Ignored files of the last check stay;
    /// everything else is as in the commit.
    pub fn check_out(&self, dir: &Path, commit: &str) -> Result<(), WorkspaceError> {
        if self.check_out_in(dir, commit).is_ok() {
            return Ok(());
        }
        // The last check may have broken it.
        for path in [dir, &dir.with_extension("index")] {
            // What cannot be deleted is moved out of the way.
            if fs::symlink_metadata(path).is_ok() && remove_all(path).is_err() {
                let stamp = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis();
                let aside = path.with_extension(format!("broken-{stamp}"));
                fs::rename(path, &aside).map_err(io("move", path))?;
            }
        }
        self.check_out_in(dir, commit)
    }

    fn check_out_in(&self, dir: &Path, commit: &str) -> Result<(), WorkspaceError> {
        let own = dir.join(".git");
        // A check may have put a link in place of its directory.
        if fs::symlink_metadata(dir).is_ok_and(|meta| !meta.is_dir()) {
            remove_all(dir)?;
        }
        // A lander that was killed may have left a lock; the directory is this one's alone.
        let lock = dir.with_extension("index.lock");
        if fs::symlink_metadata(&lock).is_ok() {
            remove_all(&lock)?;
        }
        fs::create_dir_all(dir).map_err(io("make", dir))?;
        // A repository that the last check wrote to is not used again, only its files are.
        if fs::symlink_metadata(&own).is_ok() {
            remove_all(&own)?;
        }
        let outside = Git::outside(dir);
        outside.run(["init", "--quiet", "--template=", "--initial-branch=check"])?.ok()?;
        let alternates = own.join("objects/info/alternates");
        let objects = self.common.join("objects");
        fs::write(&alternates, format!("{}\n", objects.display())).map_err(io("write", &alternates))?;
        // The index stays where no check sees it, so that files which are the same are not written again.
        let index = dir.with_extension("index");
        let git = Git::made(dir).on_index(&index);
        git.run(["update-ref", "--no-deref", "HEAD", commit])?.ok()?;
        git.run(["reset", "--quiet", "--hard", commit])?.ok()?;
        git.run(["clean", "--quiet", "-ffd"])?.ok()?;
        let tree = git.run(["write-tree"])?.text()?;
        let dirty = git.run(["status", "--porcelain", "--untracked-files=all"])?.text()?;
        if tree != self.tree(commit)? || !dirty.is_empty() {
            let why = "the check's files differ from its commit".into();
            return Err(WorkspaceError::NotWhole { why, next: String::new() });
        }
        fs::copy(&index, own.join("index")).map_err(io("copy", &index)).map(drop)
    }
}

/// Deletes a directory of toft's own with everything in it.
fn remove_all(path: &Path) -> Result<(), WorkspaceError> {
    let gone = match fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
    gone.map_err(io("remove", path))
}
