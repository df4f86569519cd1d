//! Bringing a git workspace back from its rescue: files, permissions, what was staged, what was in progress.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

use toft_core::workspace::{Workspace, WorkspaceKind};

use super::{
    Ground, Made, WorkspaceError,
    git::{add, check_out, empty_clone, fill, open_clone},
    picture::{Name, Picture},
    remove,
    rescue::{Held, below},
    survey::path_of,
};
use crate::{git_run::Git, lock};

pub(super) fn restore(
    ground: &Ground,
    workspace: &Workspace,
    rescue: &str,
    branch: Option<&str>,
) -> Result<Made, WorkspaceError> {
    let repository = ground.git()?;
    let held = Held::of(repository, rescue)?;
    let picture = held.manifest()?;
    let building = remove::building(workspace);
    let dir = match workspace.kind {
        WorkspaceKind::Clone => building.as_path(),
        _ => Path::new(&workspace.path),
    };
    let inside = match workspace.kind {
        WorkspaceKind::Clone => clone(ground, workspace, rescue, &picture)?,
        _ => worktree(ground, repository, workspace, &picture, branch)?,
    };
    if workspace.stands_on.is_some() {
        let here = Workspace { base: picture.head.clone().unwrap_or_default(), ..workspace.clone() };
        fill(ground, &here, &inside)?;
    } else if picture.head.is_some() {
        check_out(&inside)?;
    }
    for name in &picture.deleted {
        take_away(&place(dir, name)?)?;
    }
    let own = inside.git_dir();
    let mut paths: Vec<Vec<u8>> = picture.files.iter().map(|file| below("work/", &file.name.0)).collect();
    paths.extend(picture.own.iter().map(|file| below("own/", &file.name.0)));
    paths.extend(picture.index.then(|| b"index".to_vec()));
    let links = picture.links();
    let target = |path: &[u8]| -> Result<PathBuf, WorkspaceError> {
        let target = match (path.strip_prefix(b"work/"), path.strip_prefix(b"own/")) {
            (Some(name), _) => place(dir, &Name(name.to_vec()))?,
            (_, Some(name)) => place(own, &Name(name.to_vec()))?,
            _ => own.join("index"),
        };
        take_away(&target)?;
        Ok(target)
    };
    let (large, others): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| held.is_large(path));
    for path in &large {
        let target = target(path)?;
        held.write(path, fs::File::create(&target).map_err(lock::io("write", &target))?)?;
    }
    held.each(&others, |path, bytes| {
        let target = target(path)?;
        let put = match links.contains(path) {
            true => std::os::unix::fs::symlink(path_of(bytes), &target),
            false => fs::write(&target, bytes),
        };
        put.map_err(lock::io("write", &target))
    })?;
    let work = picture.files.iter().filter(|file| !file.link()).map(|file| (dir, &file.name, file.mode & 0o7777));
    let own_modes = picture.own.iter().filter(|file| !file.link()).map(|file| (own, &file.name, file.mode & 0o7777));
    let odd = picture.modes.iter().map(|(name, mode)| (dir, name, *mode));
    for (below, name, mode) in work.chain(own_modes).chain(odd) {
        let path = place(below, name)?;
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(lock::io("set permissions of", &path))?;
    }
    if workspace.kind == WorkspaceKind::Clone {
        open_clone(workspace)?;
    }
    Ok(Made::default())
}

/// A worktree on the branch it was on, if that is still where it was and free; else on no branch.
fn worktree(
    ground: &Ground,
    repository: &Git,
    workspace: &Workspace,
    picture: &Picture,
    branch: Option<&str>,
) -> Result<Git, WorkspaceError> {
    let Some(head) = &picture.head else {
        return Err(WorkspaceError::Stays { why: "it had no commit to stand on".into() });
    };
    let wanted = branch.map(str::to_owned).or_else(|| picture.branch.clone());
    let mut again = Workspace { branch: wanted, ..workspace.clone() };
    if let Some(branch) = &again.branch {
        let name = format!("refs/heads/{branch}");
        let tip = repository.run(["rev-parse", "--verify", "--quiet", &name])?.maybe()?;
        if tip.is_some_and(|tip| tip != *head) {
            again.branch = None;
        }
    }
    if add(ground, repository, &again, head).is_err() {
        // Somebody has the branch; the work is worth more than its name.
        add(ground, repository, &Workspace { branch: None, ..again }, head)?;
    }
    ground.git_in(workspace, Path::new(&workspace.path))
}

fn clone(ground: &Ground, workspace: &Workspace, rescue: &str, picture: &Picture) -> Result<Git, WorkspaceError> {
    let named =
        ground.git()?.run(["for-each-ref", "--points-at", rescue, "--format=%(refname)", "refs/toft/rescue"])?;
    let kept = named.text()?.lines().map(super::rescue::refs_of).next().unwrap_or_default();
    let refs = [format!("+{rescue}:refs/toft/rescued"), format!("+{kept}/*:refs/toft/kept/*")];
    let inside = empty_clone(ground, workspace, &refs)?;
    for (name, oid) in &picture.refs {
        inside.run(["update-ref", name, oid])?.ok()?;
    }
    for name in inside.run(["for-each-ref", "--format=%(refname)", "refs/toft/kept"])?.text()?.lines() {
        inside.run(["update-ref", "-d", name])?.ok()?;
    }
    for (oid, text) in picture.stashes.iter().rev() {
        inside.run(["stash", "store", "--quiet", "-m", text, oid])?.ok()?;
    }
    match (&picture.branch, &picture.head) {
        (Some(branch), _) => inside.run(["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")])?.ok()?,
        (None, Some(head)) => inside.run(["update-ref", "--no-deref", "HEAD", head])?.ok()?,
        (None, None) => Vec::new(),
    };
    Ok(inside)
}

/// Where a file belongs: below `dir`, through no link, and never in git's own directory.
fn place(dir: &Path, name: &Name) -> Result<PathBuf, WorkspaceError> {
    let relative = path_of(&name.0);
    let stays = || WorkspaceError::Stays { why: format!("its rescue names {}", relative.display()) };
    let mut path = dir.to_owned();
    let parts: Vec<_> = relative.components().collect();
    for (n, part) in parts.iter().enumerate() {
        let Component::Normal(part) = part else { return Err(stays()) };
        // Where case counts, another `.GIT` is a name like any other.
        let own = if cfg!(target_os = "linux") { *part == ".git" } else { part.eq_ignore_ascii_case(".git") };
        if own {
            return Err(stays());
        }
        path.push(part);
        if n + 1 == parts.len() {
            break;
        }
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => continue,
            Ok(_) => take_away(&path)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(lock::io("look at", &path)(cause)),
        }
        fs::create_dir(&path).map_err(lock::io("make", &path))?;
    }
    Ok(path)
}

/// Makes room for what was there.
fn take_away(path: &Path) -> Result<(), WorkspaceError> {
    let gone = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    gone.map_err(lock::io("replace", path))
}
