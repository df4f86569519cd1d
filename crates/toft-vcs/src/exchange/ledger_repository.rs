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
const REPOSITORY_NAME: &str = "ledger.git";
/// The ref of a ledger that was kept in its project's repository.
const FORMER_REF: &str = "refs/toft/ledger";
/// The history of that ref, if this repository has one of its own already.
const FORMER_HISTORY: &str = "refs/toft/former-history";
/// Begins the name of a repository that is being created.
const DRAFT_PREFIX: &str = "ledger.new.";
/// A draft or a lock that is older belongs to a process that was killed: syncs of a ledger take turns.
const STALE_AGE: Duration = Duration::from_secs(600);
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
    /// What became of it just now, for the user.
    pub(super) notes: Vec<String>,
}

impl LedgerRepository {
    /// The path of the repository for a project with this state directory.
    pub(super) fn path(state: &Path) -> PathBuf {
        state.join(REPOSITORY_NAME)
    }

    /// Opens the repository of the ledger of `project`, or creates it. One that git does not recognise is set aside: a
    /// ledger is whole in its files. Unless `dry_run`, it takes over the history that the project's repository holds.
    pub(super) fn open(state: &Path, project: &Path, dry_run: bool) -> Result<Self, ExchangeError> {
        let (dir, mut notes) = (Self::path(state), Vec::new());
        if fs::symlink_metadata(&dir).is_ok_and(|found| found.is_symlink()) {
            return Err(ExchangeError::Conflict(format!("{} is a link; toft keeps a directory there", dir.display())));
        }
        if dir.exists() && !is_whole(&dir) {
            let aside = state.join(format!("{REPOSITORY_NAME}.damaged-{}", std::process::id()));
            fs::rename(&dir, &aside).map_err(io("set aside", &dir))?;
            notes.push(format!("the ledger's history was damaged; it is in {}, and begins anew", aside.display()));
        }
        if !dir.exists() {
            Self::create(&dir, state, project)?;
        }
        remove_stale_locks(&dir);
        let repository = Self { git: Git::of(&dir)?, dir, notes };
        if dry_run { Ok(repository) } else { repository.with_former_history(project) }
    }

    /// Creates the repository aside, and renames it: no command meets half of one.
    fn create(dir: &Path, state: &Path, project: &Path) -> Result<(), ExchangeError> {
        private::create_dir_all(state).map_err(io("make", state))?;
        remove_stale_drafts(state);
        let draft = tempfile::Builder::new().prefix(DRAFT_PREFIX).tempdir_in(state).map_err(io("make", state))?;
        let config = fs::read_to_string(project.join("config")).unwrap_or_default().to_ascii_lowercase();
        let config: String = config.split_whitespace().collect();
        // Otherwise neither could fetch from the other.
        let format = if config.contains("objectformat=sha256") { "sha256" } else { "sha1" };
        let branch = format!("--initial-branch={LEDGER_BRANCH}");
        // Readable by its owner alone, whatever the umask.
        let words = ["init", "--quiet", "--bare", "--shared=0600", "--template=", &branch, "--object-format", format];
        Git::outside(state).run(words)?.arg(draft.path()).ok()?;
        let git = Git::of(draft.path())?;
        // A reflog would keep what was purged.
        git.run(["config", "core.logAllRefUpdates", "false"])?.ok()?;
        // What `--shared` sets besides.
        git.run(["config", "receive.denyNonFastForwards", "false"])?.ok()?;
        give_to_owner_of(state, draft.path());
        match fs::rename(draft.path(), dir) {
            Ok(()) => Ok(()),
            // Another command was faster.
            Err(_) if dir.exists() => Ok(()),
            Err(error) => Err(io("make", dir)(error).into()),
        }
    }

    /// Takes over the history of a ledger that is a ref of the project's repository, and removes that ref. Killed in
    /// between, the next command does it again.
    fn with_former_history(mut self, project: &Path) -> Result<Self, ExchangeError> {
        let git = Git::of(project)?;
        let Some(former) = refs::resolve(&git, project, FORMER_REF)? else { return Ok(self) };
        let is_first = refs::resolve(&self.git, &self.dir, LEDGER_REF)?.is_none();
        let to = if is_first { LEDGER_REF } else { FORMER_HISTORY };
        // Pushed, not fetched: a project may hide refs from those who fetch.
        let words = ["push", "--receive-pack=git-receive-pack", "--quiet", "--no-verify", "--force"];
        let into = self.dir.display().to_string();
        git.abroad().run(words.into_iter().chain([into.as_str(), &format!("{former}:{to}")]))?.ok()?;
        forget_former_refs(project)?;
        self.notes.push(format!("the ledger's history moved to {into}"));
        Ok(self)
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

    /// Removes what no ref of the ledger reaches any more, with a history that only lay beside it.
    pub(super) fn forget_unreachable(&self) -> Result<(), RunError> {
        self.git.run(["update-ref", "-d", FORMER_HISTORY])?.ok()?;
        self.dir.parent().into_iter().for_each(remove_stale_drafts);
        self.repack("--prune=now")
    }

    fn repack(&self, prune: &str) -> Result<(), RunError> {
        // Versions of a ledger differ by a few lines, so long chains of deltas cost little and save nearly everything.
        let settings = ["pack.depth=1000", "pack.window=2", "pack.threads=1", "repack.writeBitmaps=false"];
        // A user's own threshold would keep what was purged.
        let settings = settings.into_iter().chain(["gc.bigPackThreshold=0"]);
        let words = settings.flat_map(|setting| ["-c", setting]).chain(["gc", "--quiet", prune]);
        self.git.run(words)?.patience(COLLECT_TIMEOUT).ok().map(drop)
    }
}

/// Tells a repository, as git recognises one, from a damaged directory.
fn is_whole(dir: &Path) -> bool {
    let has_head = fs::read_to_string(dir.join("HEAD")).is_ok_and(|head| head.starts_with("ref: "));
    has_head && dir.join("objects").is_dir() && dir.join("refs").is_dir()
}

/// Tells a file or directory that a killed process left, by its age.
fn is_stale(path: &Path) -> bool {
    let since = || fs::symlink_metadata(path).ok()?.modified().ok()?.elapsed().ok();
    since().is_some_and(|since| since > STALE_AGE)
}

/// Removes repositories that killed processes had begun to create.
fn remove_stale_drafts(state: &Path) {
    for entry in fs::read_dir(state).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(DRAFT_PREFIX) && is_stale(&entry.path()) {
            // It has nothing that its ledger does not have.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes locks that killed processes left, among the files and refs of the repository.
fn remove_stale_locks(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "lock") && is_stale(&path) {
            // A lock that stays makes git fail, with its path.
            let _ = fs::remove_file(&path);
        } else if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !path.ends_with("objects") {
            remove_stale_locks(&path);
        }
    }
}

/// Gives a new repository to the owner of the state directory: root may be the first to sync.
fn give_to_owner_of(state: &Path, path: &Path) {
    private::give_to_owner_of(state, path);
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.for_each(|entry| give_to_owner_of(state, &entry.path()));
}

/// Removes the refs of a ledger from its project's repository; the objects go with the user's next `git gc`.
fn forget_former_refs(project: &Path) -> Result<(), RunError> {
    let git = Git::of(project)?;
    let listed = git.run(["for-each-ref", "--format=%(refname) %(objectname)", FORMER_REF, FORMER_REMOTES])?.text()?;
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
        commit_versions(&git, FORMER_REF, 3);
        let tip = git.run(["rev-parse", FORMER_REF]).unwrap().text().unwrap();
        git.run(["update-ref", "refs/toft/remotes/origin/toft", &tip]).unwrap().ok().unwrap();

        let own = LedgerRepository::open(&state, &git_dir, false).unwrap();
        assert_eq!(own.notes.len(), 1);
        assert_eq!(own.git.run(["rev-parse", LEDGER_REF]).unwrap().text().unwrap(), tip);
        assert_eq!(git.run(["for-each-ref"]).unwrap().text().unwrap(), "", "the project keeps no ref of it");
        assert!(LedgerRepository::open(&state, &git_dir, false).unwrap().notes.is_empty());
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn repository_has_the_object_format_of_its_project() {
        for format in ["sha1", "sha256"] {
            let (_dir, git_dir, state) = project(&["--object-format", format]);
            let own = LedgerRepository::open(&state, &git_dir, false).unwrap();
            let said = own.git.run(["rev-parse", "--show-object-format"]).unwrap().text().unwrap();
            assert_eq!(said, format);
        }
    }

    #[test]
    fn many_packs_become_one_and_history_stays() {
        let (_dir, git_dir, state) = project(&[]);
        let own = LedgerRepository::open(&state, &git_dir, false).unwrap();
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
        let own = LedgerRepository::open(&state, &git_dir, false).unwrap();
        commit_versions(&own.git, LEDGER_REF, 3);
        let lost = own.git.run(["rev-parse", LEDGER_REF]).unwrap().text().unwrap();
        own.git.run(["update-ref", LEDGER_REF, &format!("{LEDGER_REF}~1")]).unwrap().ok().unwrap();
        own.forget_unreachable().unwrap();
        assert_ne!(own.git.run(["cat-file", "-e", &lost]).unwrap().end().unwrap().code, 0);
        let mine = String::from_utf8(mine).unwrap();
        assert_eq!(project_git.run(["cat-file", "-p", mine.trim()]).unwrap().text().unwrap(), "mine");
    }

    #[test]
    fn dry_run_leaves_the_projects_refs_and_a_killed_move_is_finished() {
        let (_dir, git_dir, state) = project(&[]);
        let git = Git::of(&git_dir).unwrap();
        commit_versions(&git, FORMER_REF, 2);
        git.run(["config", "transfer.hideRefs", "refs/toft"]).unwrap().ok().unwrap();
        let refs = || git.run(["for-each-ref"]).unwrap().text().unwrap();
        let before = refs();
        assert!(LedgerRepository::open(&state, &git_dir, true).unwrap().notes.is_empty());
        assert_eq!(refs(), before);
        // As after a kill: the repository is there, and so is the ref.
        let own = LedgerRepository::open(&state, &git_dir, false).unwrap();
        assert_eq!((own.notes.len(), refs().as_str()), (1, ""));
        // An earlier toft recorded once more.
        commit_versions(&git, FORMER_REF, 3);
        let late = git.run(["rev-parse", FORMER_REF]).unwrap().text().unwrap();
        let own = LedgerRepository::open(&state, &git_dir, false).unwrap();
        assert_eq!(own.git.run(["rev-parse", FORMER_HISTORY]).unwrap().text().unwrap(), late);
        // A purge leaves nothing of it.
        own.forget_unreachable().unwrap();
        assert_ne!(own.git.run(["cat-file", "-e", &late]).unwrap().end().unwrap().code, 0);
    }

    #[test]
    fn damaged_repository_is_set_aside_and_stale_locks_go() {
        let (_dir, git_dir, state) = project(&[]);
        let own = LedgerRepository::open(&state, &git_dir, false).unwrap();
        let (old, new) = (own.dir.join("refs/heads/toft-ledger.lock"), own.dir.join("HEAD.lock"));
        for lock in [&old, &new] {
            fs::write(lock, "").unwrap();
        }
        fs::File::open(&old).unwrap().set_modified(std::time::SystemTime::now() - 2 * STALE_AGE).unwrap();
        LedgerRepository::open(&state, &git_dir, false).unwrap();
        assert!(!old.exists() && new.exists());
        fs::remove_dir_all(own.dir.join("objects")).unwrap();
        let again = LedgerRepository::open(&state, &git_dir, false).unwrap();
        assert!(again.notes[0].contains("damaged"), "{:?}", again.notes);
        assert!(LedgerRepository::open(&state, &git_dir, false).unwrap().notes.is_empty());
    }
}
