//! Removes a workspace: rename it, rescue content that exists nowhere else, verify the rescue, delete. Each step is visible on
//! disk, so the next command resumes after a crash.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use toft_core::workspace::{Fate, Left, Survey, Workspace, WorkspaceKind, WorkspaceState};

use super::{
    LIST, WorkspaceBackend, WorkspaceError,
    holders::process_in,
    overlay,
    rescue::{self, RescueSource, Rescued},
    snapshot, survey, walk,
};
use crate::{
    command::Run,
    lock::{self, RepoLock, retry},
};

/// Number of attempts to delete a directory that a process is still writing to, and the pause between them.
const TRIES: usize = 50;
const PAUSE: Duration = Duration::from_millis(40);
/// A background sweep that has not finished after this many seconds was killed, or lacked permissions.
const SWEPT: u64 = 600;
/// Marks a workspace whose files may be deleted: the rescue is complete, and missing files need no second rescue.
pub(super) const GIVEN_UP: &str = "given-up";

/// Options of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Content that exists nowhere else may be rescued; otherwise it prevents the removal.
    pub rescue: bool,
    /// Rescues include large ignored files and directories.
    pub ignored: bool,
}

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The rescue of content that existed nowhere else.
    pub rescue: Option<Rescued>,
    /// Files that no rescue contains.
    pub left: Vec<Left>,
    pub survey: Option<Survey>,
    /// A note for the user.
    pub note: Option<String>,
    /// Its branch was deleted, because the work on it has landed.
    pub branch_deleted: bool,
}

/// Two temporary paths beside the workspace: one where it waits for its final examination, and one where it waits to be
/// deleted.
pub(super) fn aside(workspace: &Workspace) -> (PathBuf, PathBuf) {
    let path = Path::new(&workspace.path);
    let parent = path.parent().unwrap_or(path);
    (parent.join(format!(".aside-{}", workspace.id)), parent.join(format!(".gone-{}", workspace.id)))
}

/// Temporary path beside the workspace of a clone that is not complete.
pub(super) fn building(workspace: &Workspace) -> PathBuf {
    let path = Path::new(&workspace.path);
    path.parent().unwrap_or(path).join(format!(".new-{}", workspace.id))
}

pub(super) fn remove(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    may: Removal,
    put_away: impl FnOnce(&Removed) -> Result<(), WorkspaceError>,
) -> Result<Removed, WorkspaceError> {
    let path = Path::new(&workspace.path);
    let (waiting, gone) = aside(workspace);
    let mut removed = Removed::default();
    // Remount it first if a restart or a killed mount process unmounted it.
    if workspace.state != WorkspaceState::Provisioning {
        backend.open(workspace)?;
    }
    // A workspace whose creation has only begun may be the first one, so its parent directory may not exist.
    if workspace.state != WorkspaceState::Provisioning && !exists(path.parent().unwrap_or(path))? {
        return Err(WorkspaceError::Stays { why: format!("{} is not there; is its disk?", path.display()) });
    }
    overlay::forget_unshifted(workspace, &waiting);
    let begun = exists(&waiting)? || exists(&gone)?;
    if !exists(path)? && !begun && workspace.overlay_base.is_none() {
        removed = without_directory(backend, workspace, may)?;
        put_away(&removed)?;
        return unlisted(backend, workspace, removed);
    }
    if exists(path)? && !begun && overlay::has_layer(workspace) {
        let mut survey = backend.survey(workspace)?;
        allowed(backend, workspace, &mut survey, path, may)?;
        // Rescue it at its usual path first: if that fails, nothing has changed for its users.
        if keeps(&survey, may) && backend.system().has_git_files() {
            rescue::ensure(backend, workspace, &RescueSource::at(backend, workspace, path)?, may.ignored)?;
        }
        overlay::shift(backend, workspace, path, &waiting)?;
    }
    if exists(&waiting)? && overlay::has_layer(workspace) {
        overlay::ensure_at(backend, workspace, &waiting)?;
        let cleared = clear(backend, workspace, &waiting, may).and_then(|cleared| {
            nobody_in(&waiting)?;
            put_away(&cleared)?;
            backend.set_mark(workspace, GIVEN_UP)?;
            Ok(cleared)
        });
        removed = match cleared {
            Ok(removed) => removed,
            Err(error) => {
                // The removal failed, so the workspace stays in use.
                backend.clear_mark(workspace, GIVEN_UP)?;
                overlay::shift(backend, workspace, &waiting, path)?;
                return Err(error);
            }
        };
        overlay::give_up(backend, workspace, &waiting, &gone)?;
    }
    if workspace.overlay_base.is_some() {
        overlay::drop_empty(&waiting);
        overlay::drop_empty(path);
    }
    nobody_in(&gone)?;
    if let Some(mount) = mount_below(&gone) {
        return Err(WorkspaceError::Stays { why: format!("{} is mounted in it", mount.display()) });
    }
    throw_away(&gone)?;
    unlisted(backend, workspace, removed)
}

/// Removes a workspace that was deleted from the version control system's records.
fn unlisted(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    mut removed: Removed,
) -> Result<Removed, WorkspaceError> {
    removed.branch_deleted = backend.system().unlist(backend, workspace, &removed)?;
    backend.clear_mark(workspace, snapshot::RESTORING)?;
    backend.clear_mark(workspace, GIVEN_UP)?;
    Ok(removed)
}

/// Rescues git's data of a worktree whose directory was moved or deleted by hand: index, HEAD, logs and operations in
/// progress.
fn without_directory(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    may: Removal,
) -> Result<Removed, WorkspaceError> {
    if !backend.system().has_git_files() || workspace.kind != WorkspaceKind::Worktree {
        return Ok(Removed::default());
    }
    let Some(own) = backend.entry_of(workspace) else {
        let note = backend.moved_to(workspace).map(|path| {
            format!("it was moved to {}, which is left alone: toft ws create --adopt takes it in", path.display())
        });
        return Ok(Removed { note, ..Removed::default() });
    };
    if backend.mark(workspace, GIVEN_UP).exists() {
        // toft deleted its files after a complete rescue.
        return Ok(Removed::default());
    }
    let survey = survey::missing(backend, workspace, &own)?;
    let said = "its directory was moved or deleted by hand; git has its index and log".to_owned();
    if !may.rescue {
        let why =
            format!("{said}; toft ws create --adopt takes in one that was moved, --rescue puts away what git has");
        return Err(WorkspaceError::Stays { why });
    }
    if !survey.stuck.is_empty() {
        return Err(WorkspaceError::Stays { why: format!("{said}: {}", survey.summary()) });
    }
    let source = RescueSource { dir: None, own };
    let rescue = match survey.only_here() {
        true => Some(rescue::rescue(backend, workspace, &source, false)?),
        false => None,
    };
    Ok(Removed { rescue, survey: Some(survey), note: Some(said), ..Removed::default() })
}

/// Whether a rescue is needed before the removal.
pub(super) fn keeps(survey: &Survey, may: Removal) -> bool {
    survey.only_here() || may.ignored && !survey.artefacts.is_empty()
}

/// Refuses a directory that a process uses. A process that only reads it briefly does not count.
fn nobody_in(dir: &Path) -> Result<(), WorkspaceError> {
    match process_in(dir) {
        Some(pid) => Err(WorkspaceError::InUse { pids: vec![pid], path: dir.to_owned() }),
        None => Ok(()),
    }
}

/// A mount below a directory; deleting the directory would delete the mounted files.
pub(super) fn mount_below(dir: &Path) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let at = |line: &str| line.split(' ').nth(4).map(|path| PathBuf::from(path.replace("\\040", " ")));
    mounts.lines().filter_map(at).find(|at| at.starts_with(dir) && at != dir)
}

/// Refuses a removal that would lose content. Adds repositories in ignored directories to the survey.
fn allowed(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    survey: &mut Survey,
    dir: &Path,
    may: Removal,
) -> Result<(), WorkspaceError> {
    let stays = |why: String| Err(WorkspaceError::Stays { why });
    if !backend.is_here(workspace, dir) {
        return stays(format!("{} is something else now", dir.display()));
    }
    if let Some(mount) = mount_below(dir) {
        return stays(format!("{} is mounted in it", mount.display()));
    }
    if let Fate::Stay(why) = survey.fate() {
        return stays(why);
    }
    if let Some(locked) = walk::undeletable(dir) {
        return stays(format!("{} belongs to another user, who alone can delete what is in it", locked.display()));
    }
    if backend.system().has_git_files() {
        survey.nested.extend(hidden(dir, survey)?);
    }
    match survey.fate() {
        Fate::Stay(why) => stays(why),
        Fate::Rescue if !may.rescue => stays(
            survey.kept_by_branch(workspace).into_iter().fold(survey.summary(), |all, kept| format!("{all}; {kept}")),
        ),
        _ => Ok(()),
    }
}

/// Repositories in ignored directories.
fn hidden(dir: &Path, survey: &Survey) -> Result<Vec<String>, WorkspaceError> {
    let ignored: Vec<PathBuf> = survey.artefacts.iter().map(PathBuf::from).collect();
    let found = walk::walk(dir, &ignored)?.repositories;
    let hidden = found.into_iter().filter(|path| ignored.iter().any(|ignored| path.starts_with(ignored)));
    Ok(hidden.map(|path| format!("{}/ is a repository of its own", path.display())).collect())
}

/// Examines the workspace once more, at a path where no user finds it, and rescues its content.
fn clear(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    dir: &Path,
    may: Removal,
) -> Result<Removed, WorkspaceError> {
    let mut survey = backend.survey_at(workspace, dir)?;
    allowed(backend, workspace, &mut survey, dir, may)?;
    let (rescue, left) = backend.system().save_before_removal(backend, workspace, dir, &survey, may)?;
    Ok(Removed { rescue, left, survey: Some(survey), ..Removed::default() })
}

/// Prefix of a directory that may be deleted at any time, followed by a number and its former name.
const TRASH: &str = ".trash-";
const GONE: &str = ".gone-ws_";

/// Whether a name is that of a directory that waits for deletion.
pub(super) fn is_trash(name: &str) -> bool {
    let rest = name.strip_prefix(TRASH).unwrap_or_default();
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    digits > 0 && rest[digits..].starts_with(GONE)
}

/// Renames a directory for the next sweep to delete: deletion is slow, and no command should wait for it.
fn throw_away(dir: &Path) -> Result<(), WorkspaceError> {
    let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match fs::rename(dir, dir.with_file_name(format!("{TRASH}{now}{name}"))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => tree(dir),
        Ok(()) => Ok(()),
    }
}

/// Directories that wait for deletion.
fn trash_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let trash = entries.filter(|entry| is_trash(&entry.file_name().to_string_lossy()));
    trash.map(|entry| entry.path()).filter(|path| mount_below(path).is_none()).collect()
}

/// Deletes waiting directories in a background process. Those that an earlier sweep left, because it was killed or
/// lacked permissions, are deleted in this process.
pub(super) fn sweep(dir: &Path) -> Result<(), WorkspaceError> {
    let (left, new): (Vec<_>, Vec<_>) = trash_in(dir).into_iter().partition(|path| {
        let age = fs::symlink_metadata(path).ok().and_then(|meta| {
            use std::os::unix::fs::MetadataExt;
            u64::try_from(meta.ctime()).ok()
        });
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        age.is_some_and(|age| age.saturating_add(SWEPT) < now)
    });
    for path in &left {
        // A directory that cannot be deleted stays and does not stop the sweep.
        let _ = tree(path);
    }
    for some in new.chunks(200) {
        Run::new("rm", dir)?.args(["-rf", "--one-file-system", "--"]).args(some).detach()?;
    }
    Ok(())
}

/// Deletes a `.git` file that is alone in its directory: the worktree never had any files.
pub(super) fn unfilled(path: &Path) -> Result<(), WorkspaceError> {
    let link = path.join(".git");
    let alone = fs::read_dir(path).is_ok_and(|entries| entries.count() == 1) && link.is_file();
    match alone {
        true => fs::remove_file(&link).map_err(lock::io("remove", &link)),
        false => Ok(()),
    }
}

/// Whether the path exists, even as a dangling link.
pub(super) fn exists(path: &Path) -> Result<bool, WorkspaceError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(lock::io("look at", path)(cause)),
    }
}

/// Deletes a directory tree, and grants the owner access to directories that deny it. Retries for a while, because an
/// orphaned process may still be writing there.
pub(super) fn tree(path: &Path) -> Result<(), WorkspaceError> {
    for _ in 0..TRIES {
        match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => thread::sleep(PAUSE),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => open_up(path)?,
            Err(cause) => return Err(lock::io("remove", path)(cause)),
        }
    }
    fs::remove_dir_all(path).map_err(lock::io("remove", path))
}

/// Grants the owner access to every directory below; some programs create read-only trees.
fn open_up(path: &Path) -> Result<(), WorkspaceError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(lock::io("open", path))?;
    for entry in fs::read_dir(path).map_err(lock::io("read", path))? {
        let entry = entry.map_err(lock::io("read", path))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes git's entry of a worktree that was deleted, and no other. Git's own commands would check whether anything
/// exists at its path.
pub(super) fn unlist(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<(), WorkspaceError> {
    let _turn = RepoLock::wait(&backend.state, LIST)?;
    let link = Path::new(&workspace.path).join(".git");
    let Ok(entries) = fs::read_dir(backend.common_dir.join("worktrees")) else { return Ok(()) };
    for own in entries.flatten().map(|entry| entry.path()) {
        let known = crate::read(&own.join("gitdir")).ok().flatten();
        if known.is_some_and(|known| crate::git::link_target(&own, &known) == link) {
            tree(&own)?;
        }
    }
    Ok(())
}

/// Git's worktrees, each with its branch.
fn listed(backend: &WorkspaceBackend) -> Result<Vec<(String, Option<String>)>, WorkspaceError> {
    backend.can_list()?;
    let said = backend.git()?.run(["worktree", "list", "--porcelain", "-z"])?.ok()?;
    let said = String::from_utf8_lossy(&said).into_owned();
    let mut all: Vec<(String, Option<String>)> = Vec::new();
    for line in said.split('\0') {
        if let Some(path) = line.strip_prefix("worktree ") {
            all.push((path.to_owned(), None));
        } else if let (Some(branch), Some(last)) = (line.strip_prefix("branch refs/heads/"), all.last_mut()) {
            last.1 = Some(branch.to_owned());
        }
    }
    Ok(all)
}

/// Deletes the workspace's branch if it is still at `at`, another ref contains the commit, and no worktree has it
/// checked out. Returns whether it was deleted.
pub(super) fn drop_branch(backend: &WorkspaceBackend, workspace: &Workspace, at: &str) -> Result<bool, WorkspaceError> {
    let Some(branch) = workspace.branch.as_ref().filter(|_| workspace.own_branch) else { return Ok(false) };
    let git = backend.git()?;
    let _turn = RepoLock::wait(&backend.state, LIST)?;
    let in_use = || -> Result<bool, WorkspaceError> {
        Ok(listed(backend)?.iter().any(|(_, known)| known.as_ref() == Some(branch)))
    };
    let name = format!("refs/heads/{branch}");
    let known = git.run(["rev-parse", "--verify", "--quiet", &name])?.maybe()?;
    let reached = git.run(["for-each-ref", "--contains", at, "--format=%(refname)"])?.text()?;
    let kept = reached.lines().any(|reached| reached != name);
    if in_use()? || known.as_deref() != Some(at) || !kept {
        return Ok(false);
    }
    retry(|| git.run(["update-ref", "-d", &name, at])?.ok())?;
    if in_use()? {
        // Another program that does not use our lock checked the branch out just now, so restore it.
        git.run(["update-ref", &name, at, ""])?.ok()?;
        return Ok(false);
    }
    Ok(true)
}

pub(super) fn forget_clone(backend: &WorkspaceBackend, path: &Path) -> Result<(), WorkspaceError> {
    let clone_record = crate::git::clone_record(&backend.common_dir, path);
    match fs::remove_file(&clone_record) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(lock::io("remove", &clone_record)(error)),
        _ => Ok(()),
    }
}
