//! Taking a workspace down. It is put aside, put away if anything in it is nowhere else, read back, and only then
//! deleted. Each step can be told from the disk, so that whoever comes after a crash goes on where it stopped.

use std::{
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use toft_core::workspace::{Fate, Survey, Workspace, WorkspaceKind, WorkspaceState};

use super::{Ground, LIST, WorkspaceError, jj, overlay, rescue, survey};
use crate::{
    Vcs,
    git_run::Git,
    lock::{self, Turn, retry},
};

/// How often a directory is tried that somebody is still writing to, and how long in between.
const TRIES: usize = 50;
/// How often somebody must be seen in a directory to count.
const LOOKS: usize = 10;
const PAUSE: Duration = Duration::from_millis(40);

/// What became of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The commit that holds what was only in it.
    pub rescue: Option<String>,
    /// What was in it.
    pub survey: Option<Survey>,
}

/// Beside the workspace: where it waits to be looked at once more, and where it is once it may be deleted.
pub(super) fn aside(workspace: &Workspace) -> (PathBuf, PathBuf) {
    let path = Path::new(&workspace.path);
    let parent = path.parent().unwrap_or(path);
    (parent.join(format!(".aside-{}", workspace.id)), parent.join(format!(".gone-{}", workspace.id)))
}

/// Beside the workspace: where a clone is until it is whole.
pub(super) fn building(workspace: &Workspace) -> PathBuf {
    let path = Path::new(&workspace.path);
    path.parent().unwrap_or(path).join(format!(".new-{}", workspace.id))
}

pub(super) fn remove(
    ground: &Ground,
    workspace: &Workspace,
    may_rescue: bool,
    put_away: impl FnOnce(&str) -> Result<(), WorkspaceError>,
) -> Result<Removed, WorkspaceError> {
    let path = Path::new(&workspace.path);
    let (waiting, gone) = aside(workspace);
    let mut removed = Removed::default();
    // One whose making had only begun may be the first of all.
    if workspace.state != WorkspaceState::Provisioning && !exists(path.parent().unwrap_or(path))? {
        return Err(WorkspaceError::Stays { why: format!("{} is not there; is its disk?", path.display()) });
    }
    if exists(path)? && !exists(&waiting)? && !exists(&gone)? && overlay::has_layer(workspace) {
        let survey = ground.survey(workspace)?;
        allowed(ground, workspace, &survey, path, may_rescue)?;
        // First where it is: if it cannot be put away, nothing has changed for anybody.
        if survey.only_here() && ground.vcs == Vcs::Git {
            ground.rescue(workspace)?;
        }
        overlay::shift(ground, workspace, path, &waiting)?;
    }
    if exists(&waiting)? && overlay::has_layer(workspace) {
        overlay::ensure_at(ground, workspace, &waiting)?;
        let cleared = clear(ground, workspace, &waiting, may_rescue).and_then(|cleared| {
            nobody_in(&waiting)?;
            cleared.rescue.as_deref().map_or(Ok(()), put_away)?;
            Ok(cleared)
        });
        removed = match cleared {
            Ok(removed) => removed,
            Err(error) => {
                // It is somebody's still.
                overlay::shift(ground, workspace, &waiting, path)?;
                return Err(error);
            }
        };
        overlay::give_up(ground, workspace, &waiting, &gone)?;
    }
    if workspace.stands_on.is_some() {
        overlay::drop_empty(&waiting);
        overlay::drop_empty(path);
    }
    nobody_in(&gone)?;
    if let Some(mount) = mount_below(&gone) {
        return Err(WorkspaceError::Stays { why: format!("{} is mounted in it", mount.display()) });
    }
    tree(&gone)?;
    match (ground.vcs, workspace.kind) {
        (Vcs::Git, WorkspaceKind::Worktree) => {
            unlist(ground, workspace)?;
            if let Some(survey) = removed.survey.as_ref().filter(|survey| survey.landed.is_some()) {
                drop_branch(ground, workspace, &survey.head)?;
            }
        }
        (Vcs::Git, _) => forget_clone(ground, path)?,
        (Vcs::Jj, _) => jj::forget(ground, workspace)?,
        _ => {}
    }
    Ok(removed)
}

/// Nobody is in a directory. Whoever only looks is gone in a moment.
fn nobody_in(dir: &Path) -> Result<(), WorkspaceError> {
    match process_in(dir) {
        Some(pid) => Err(WorkspaceError::InUse { pids: vec![pid], path: dir.to_owned() }),
        None => Ok(()),
    }
}

/// A process that is in a directory and stays there; as far as can be told.
pub(super) fn process_in(dir: &Path) -> Option<u32> {
    let mut found = None;
    for _ in 0..LOOKS {
        found = process_now_in(dir);
        found?;
        thread::sleep(PAUSE);
    }
    found
}

#[cfg(target_os = "linux")]
fn process_now_in(dir: &Path) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?;
    let mut pids = entries.flatten().filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    pids.find(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir)))
}

/// Without `/proc` only this process tells.
#[cfg(not(target_os = "linux"))]
fn process_now_in(dir: &Path) -> Option<u32> {
    std::env::current_dir().is_ok_and(|cwd| cwd.starts_with(dir)).then(std::process::id)
}

/// Something that is mounted below a directory: deleting would reach through it.
pub(super) fn mount_below(dir: &Path) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let at = |line: &str| line.split(' ').nth(4).map(|path| PathBuf::from(path.replace("\\040", " ")));
    mounts.lines().filter_map(at).find(|at| at.starts_with(dir) && at != dir)
}

fn allowed(
    ground: &Ground,
    workspace: &Workspace,
    survey: &Survey,
    dir: &Path,
    may_rescue: bool,
) -> Result<(), WorkspaceError> {
    if !ground.is_here(workspace, dir) {
        return Err(WorkspaceError::Stays { why: format!("{} is something else now", dir.display()) });
    }
    if let Some(mount) = mount_below(dir) {
        return Err(WorkspaceError::Stays { why: format!("{} is mounted in it", mount.display()) });
    }
    if ground.vcs == Vcs::Git
        && let Some(hidden) = survey::hidden_repository(&ground.git_in(workspace, dir)?)?
    {
        return Err(WorkspaceError::Stays { why: format!("{} is a repository of its own", hidden.display()) });
    }
    match survey.fate() {
        Fate::Stay(why) => Err(WorkspaceError::Stays { why }),
        Fate::Rescue if !may_rescue => Err(WorkspaceError::Stays { why: survey.summary() }),
        _ => Ok(()),
    }
}

/// Nobody finds it by its name any more. Looks once more, and puts away what is in it now.
fn clear(ground: &Ground, workspace: &Workspace, dir: &Path, may_rescue: bool) -> Result<Removed, WorkspaceError> {
    let survey = ground.survey_at(workspace, dir)?;
    allowed(ground, workspace, &survey, dir, may_rescue)?;
    let rescue = match ground.vcs {
        Vcs::Git if survey.only_here() => match rescue::all(ground, workspace)?.pop() {
            Some((_, known)) if rescue::verify(ground, workspace, dir, &known).is_ok() => Some(known),
            _ => Some(ground.rescue_at(workspace, dir)?),
        },
        Vcs::Git => None,
        Vcs::Jj => Some(ground.rescue_at(workspace, dir)?),
        _ => None,
    };
    Ok(Removed { rescue, survey: Some(survey) })
}

/// Removes git's link where it is alone: nobody ever had any files there.
pub(super) fn unfilled(path: &Path) -> Result<(), WorkspaceError> {
    let link = path.join(".git");
    let alone = fs::read_dir(path).is_ok_and(|entries| entries.count() == 1) && link.is_file();
    match alone {
        true => fs::remove_file(&link).map_err(lock::io("remove", &link)),
        false => Ok(()),
    }
}

/// Whether something is there, even a link that leads nowhere.
pub(super) fn exists(path: &Path) -> Result<bool, WorkspaceError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(cause) => Err(lock::io("look at", path)(cause)),
    }
}

/// Deletes a directory and everything in it; a directory that forbids it is opened first. Somebody who lost his parent
/// may still be writing there for a moment.
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

/// Lets the owner into every directory below, as programs that make read-only trees forget to.
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

/// Takes a worktree that is gone off git's list; never any other. Git would look whether something is at its place.
pub(super) fn unlist(ground: &Ground, workspace: &Workspace) -> Result<(), WorkspaceError> {
    let _turn = Turn::wait(&ground.state, LIST)?;
    let link = Path::new(&workspace.path).join(".git");
    let Ok(entries) = fs::read_dir(ground.common_dir.join("worktrees")) else { return Ok(()) };
    for own in entries.flatten().map(|entry| entry.path()) {
        if crate::read(&own.join("gitdir")).is_ok_and(|known| known.is_some_and(|known| Path::new(&known) == link)) {
            tree(&own)?;
        }
    }
    Ok(())
}

/// Git's worktrees, and the branch each is on.
fn listed(git: &Git) -> Result<Vec<(String, Option<String>)>, WorkspaceError> {
    let said = git.run(["worktree", "list", "--porcelain", "-z"])?.ok()?;
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

/// Deletes the workspace's branch if it is where it was and nobody has it checked out.
pub(super) fn drop_branch(ground: &Ground, workspace: &Workspace, at: &str) -> Result<(), WorkspaceError> {
    let Some(branch) = workspace.branch.as_ref().filter(|_| workspace.own_branch) else { return Ok(()) };
    let git = ground.git()?;
    let _turn = Turn::wait(&ground.state, LIST)?;
    let in_use = |git: &Git| -> Result<bool, WorkspaceError> {
        Ok(listed(git)?.iter().any(|(_, known)| known.as_ref() == Some(branch)))
    };
    let name = format!("refs/heads/{branch}");
    let known = git.run(["rev-parse", "--verify", "--quiet", &name])?.maybe()?;
    let reached = git.run(["for-each-ref", "--contains", at, "--format=%(refname)"])?.text()?;
    let kept = reached.lines().any(|reached| reached != name);
    if in_use(git)? || known.as_deref() != Some(at) || !kept {
        return Ok(());
    }
    retry(|| git.run(["update-ref", "-d", &name, at])?.ok())?;
    if in_use(git)? {
        // Somebody checked it out in this moment, without waiting for a turn: it is theirs.
        git.run(["update-ref", &name, at, ""])?.ok()?;
    }
    Ok(())
}

fn forget_clone(ground: &Ground, path: &Path) -> Result<(), WorkspaceError> {
    let vouched = crate::git::vouched(&ground.common_dir, path);
    match fs::remove_file(&vouched) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(lock::io("remove", &vouched)(error)),
        _ => Ok(()),
    }
}
