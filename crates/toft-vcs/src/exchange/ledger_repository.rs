//! The repository of a ledger beside a project: bare, in toft's own directory, so that toft may collect garbage in it
//! and neither a user's nor an agent's git ever meets its objects and refs.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{ExchangeError, refs};
use crate::{RunError, git_run::Git, lock::io, private};

/// The name of the branch of a ledger, here and on a remote.
pub const LEDGER_BRANCH: &str = "toft-ledger";
/// The ref of a ledger in its repository.
pub(super) const LEDGER_REF: &str = "refs/heads/toft-ledger";
/// The directory of the repository, in the state directory of its project.
const DIRECTORY: &str = "ledger.git";
/// The refs of a ledger that was kept in its project's repository.
const FORMER_REFS: &str = "refs/toft/ledger";
/// Refs of a ledger's remotes in its project's repository.
const FORMER_REMOTES: &str = "refs/toft/remotes";
/// Maximum size of what was not packed together yet, if the ledger is small.
const MAX_UNPACKED_BYTES: u64 = 4 << 20;
/// Maximum number of packs: every look for an object may have to look into each.
const MAX_PACKS: usize = 50;
/// Time limit of collecting garbage. Killed, it has changed nothing.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(60);

/// A bare repository that holds one ledger.
pub(super) struct LedgerRepository {
    pub(super) git: Git,
    pub(super) dir: PathBuf,
    /// Its history came out of the project's repository just now.
    pub(super) has_moved: bool,
}

impl LedgerRepository {
    /// The path of the repository for a project with this state directory.
    pub(super) fn path(state: &Path) -> PathBuf {
        state.join(DIRECTORY)
    }

    /// Opens the repository of the ledger of `project`, or creates it with the history that the project's repository
    /// holds.
    pub(super) fn open(state: &Path, project: &Path) -> Result<Self, ExchangeError> {
        let dir = Self::path(state);
        let has_moved = !dir.exists() && Self::create(&dir, state, project)?;
        Ok(Self { git: Git::of(&dir)?, dir, has_moved })
    }

    /// Creates the repository aside, so that nobody meets half of one. Returns whether it took a history over.
    fn create(dir: &Path, state: &Path, project: &Path) -> Result<bool, ExchangeError> {
        private::create_dir_all(state).map_err(io("make", state))?;
        let draft = tempfile::Builder::new().prefix("ledger.").tempdir_in(state).map_err(io("make", state))?;
        let text = fs::read_to_string(project.join("config")).unwrap_or_default().to_ascii_lowercase();
        // Otherwise neither could fetch from the other.
        let format = if text.contains("objectformat = sha256") { "sha256" } else { "sha1" };
        let branch = format!("--initial-branch={LEDGER_BRANCH}");
        let words = ["init", "--quiet", "--bare", "--template=", &branch, "--object-format", format];
        Git::outside(state).run(words)?.arg(draft.path()).ok()?;
        let former = refs::resolve(&Git::of(project)?, project, FORMER_REFS)?;
        let has_moved = former.is_some() && take_over(draft.path(), project).is_ok();
        give_to_owner_of(state, draft.path());
        match fs::rename(draft.path(), dir) {
            Ok(()) => {}
            // Another command was faster.
            Err(_) if dir.exists() => return Ok(false),
            Err(error) => return Err(io("make", dir)(error).into()),
        }
        if has_moved {
            forget_former_refs(project)?;
        }
        Ok(has_moved)
    }

    /// Packs everything together, once there is more apart than a ledger of `file_bytes` is worth. A failure changes
    /// nothing, and the next sync tries again.
    pub(super) fn collect_garbage(&self, file_bytes: u64) {
        let (mut count, mut apart, mut largest) = (0, 0, 0);
        let packs = self.dir.join("objects").join("pack");
        for entry in fs::read_dir(packs).into_iter().flatten().flatten() {
            let path = entry.path();
            // What nothing refers to any more lies apart until it is old enough to go.
            if path.extension().is_some_and(|end| end == "pack") && !path.with_extension("mtimes").exists() {
                let bytes = entry.metadata().map_or(0, |meta| meta.len());
                (count, apart, largest) = (count + 1, apart + bytes, bytes.max(largest));
            }
        }
        if count > MAX_PACKS || apart - largest > MAX_UNPACKED_BYTES.max(file_bytes.saturating_mul(5) / 4) {
            let _ = self.repack("--prune=1.hour.ago");
        }
    }

    /// Removes what no ref reaches any more.
    pub(super) fn forget_unreachable(&self) -> Result<(), RunError> {
        self.repack("--prune=now")
    }

    fn repack(&self, prune: &str) -> Result<(), RunError> {
        // Versions of a ledger differ by a few lines, so long chains of deltas cost little and save nearly everything.
        let settings = ["pack.depth=1000", "pack.window=2", "pack.threads=1", "repack.writeBitmaps=false"];
        let words = settings.into_iter().flat_map(|setting| ["-c", setting]).chain(["gc", "--quiet", prune]);
        self.git.run(words)?.patience(COLLECT_TIMEOUT).ok().map(drop)
    }
}

/// Gives a new repository to the owner of the state directory: root may sync for somebody who syncs next.
fn give_to_owner_of(state: &Path, path: &Path) {
    private::give_to_owner_of(state, path);
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.for_each(|entry| give_to_owner_of(state, &entry.path()));
}

/// Fetches the history that the project's repository holds.
fn take_over(dir: &Path, project: &Path) -> Result<(), RunError> {
    let from = project.display().to_string();
    let refs = [format!("+{FORMER_REFS}:{LEDGER_REF}"), "+refs/heads/toft-propose/*:refs/heads/toft-propose/*".into()];
    let words = ["fetch", "--upload-pack=git-upload-pack", "--quiet", "--no-tags", "--no-write-fetch-head", &from];
    let words = words.into_iter().chain(refs.iter().map(String::as_str));
    Git::of(dir)?.abroad().run(words)?.ok().map(drop)
}

/// Removes the refs of a ledger from its project's repository; the objects go with the user's next `git gc`.
fn forget_former_refs(project: &Path) -> Result<(), RunError> {
    let git = Git::of(project)?;
    let listed = git.run(["for-each-ref", "--format=%(refname) %(objectname)", FORMER_REFS, FORMER_REMOTES])?.text()?;
    let run = git.run(["update-ref", "--stdin"])?;
    run.ok_fed(|to| listed.lines().try_for_each(|line| writeln!(to, "delete {line}"))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A project, and its state directory.
    fn project(options: &[&str]) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        Git::outside(dir.path()).run(["init", "--quiet"]).unwrap().args(options).ok().unwrap();
        let git_dir = dir.path().join(".git");
        let state = git_dir.join("toft");
        (dir, git_dir, state)
    }

    /// Commits as many versions of a growing ledger to a ref.
    fn commit_versions(git: &Git, name: &str, count: usize) {
        let mut text = String::new();
        for n in 0..count {
            (0..200)
                .for_each(|line| text.push_str(&format!("{{\"id\":\"ab-{n}-{line}\",\"title\":\"{}\"}}\n", n * line)));
            let run = git.run(["fast-import", "--quiet", "--force", "--done"]).unwrap();
            run.ok_fed(|to| {
                writeln!(to, "commit {name}\ncommitter t <t@localhost> {n} +0000\ndata 0")?;
                if n > 0 {
                    writeln!(to, "from {name}^0")?;
                }
                writeln!(to, "M 100644 inline issues.jsonl\ndata {}\n{text}\ndone", text.len())
            })
            .unwrap();
        }
    }

    fn pack_count(repository: &LedgerRepository) -> usize {
        let entries = fs::read_dir(repository.dir.join("objects").join("pack")).unwrap().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "pack")).count()
    }

    #[test]
    fn history_in_the_projects_repository_moves_once() {
        let (_dir, git_dir, state) = project(&[]);
        let git = Git::of(&git_dir).unwrap();
        commit_versions(&git, FORMER_REFS, 3);
        let tip = git.run(["rev-parse", FORMER_REFS]).unwrap().text().unwrap();
        git.run(["update-ref", "refs/toft/remotes/origin/toft", &tip]).unwrap().ok().unwrap();

        let own = LedgerRepository::open(&state, &git_dir).unwrap();
        assert!(own.has_moved);
        assert_eq!(own.git.run(["rev-parse", LEDGER_REF]).unwrap().text().unwrap(), tip);
        assert_eq!(git.run(["for-each-ref"]).unwrap().text().unwrap(), "", "the project keeps no ref of it");
        assert!(!LedgerRepository::open(&state, &git_dir).unwrap().has_moved);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn repository_has_the_object_format_of_its_project() {
        for format in ["sha1", "sha256"] {
            let (_dir, git_dir, state) = project(&["--object-format", format]);
            let own = LedgerRepository::open(&state, &git_dir).unwrap();
            let said = own.git.run(["rev-parse", "--show-object-format"]).unwrap().text().unwrap();
            assert_eq!(said, format);
        }
    }

    #[test]
    fn many_packs_become_one_and_history_stays() {
        let (_dir, git_dir, state) = project(&[]);
        let own = LedgerRepository::open(&state, &git_dir).unwrap();
        commit_versions(&own.git, LEDGER_REF, 12);
        let log = || own.git.run(["log", "-p", LEDGER_REF]).unwrap().text().unwrap();
        let (before, packs) = (log(), pack_count(&own));
        own.collect_garbage(0);
        assert_eq!(pack_count(&own), packs, "a few kilobytes are left as they are");
        own.forget_unreachable().unwrap();
        assert_eq!((pack_count(&own), log()), (1, before));
    }

    #[test]
    fn forgotten_commit_is_gone_and_the_project_is_untouched() {
        let (_dir, git_dir, state) = project(&[]);
        let project_git = Git::of(&git_dir).unwrap();
        let mine =
            project_git.run(["hash-object", "-w", "--stdin"]).unwrap().ok_fed(|to| to.write_all(b"mine")).unwrap();
        let own = LedgerRepository::open(&state, &git_dir).unwrap();
        commit_versions(&own.git, LEDGER_REF, 3);
        let lost = own.git.run(["rev-parse", LEDGER_REF]).unwrap().text().unwrap();
        own.git.run(["update-ref", LEDGER_REF, &format!("{LEDGER_REF}~1")]).unwrap().ok().unwrap();
        own.forget_unreachable().unwrap();
        assert_ne!(own.git.run(["cat-file", "-e", &lost]).unwrap().end().unwrap().code, 0);
        let mine = String::from_utf8(mine).unwrap();
        assert_eq!(project_git.run(["cat-file", "-p", mine.trim()]).unwrap().text().unwrap(), "mine");
    }
}
