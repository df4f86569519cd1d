//! Restores a git workspace from a rescue: files, permissions, the index and operations in progress.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
};

use toft_core::workspace::{Workspace, WorkspaceKind};

use super::{
    Made, WorkspaceBackend, WorkspaceError,
    git::{add, check_out, clear_away, empty_clone, fill, has_branch, open_clone},
    remove::{self, GIVEN_UP},
    rescue::{raw_name, update_refs},
    rescue_content::{RescueContent, below},
    snapshot::{PathBytes, RESTORING, Snapshot},
    survey::path_of,
    walk::{Raw, Root},
};
use crate::{git_run::Git, lock};

/// Restores a workspace. A failure leaves nothing behind, so it can be repeated.
pub(super) fn restore(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    rescue: &str,
    branch: Option<&str>,
) -> Result<Made, WorkspaceError> {
    let held = RescueContent::of(backend.git()?, rescue)?;
    let snapshot = held.manifest()?;
    let wanted = branch.map(str::to_owned).or_else(|| snapshot.branch.clone());
    let new = match &wanted {
        Some(name) if workspace.kind == WorkspaceKind::Worktree => !has_branch(backend, name)?,
        _ => false,
    };
    backend.set_mark(workspace, RESTORING)?;
    backend.clear_mark(workspace, GIVEN_UP)?;
    fill_from(backend, workspace, rescue, &held, &snapshot, branch).inspect_err(|_| {
        // A branch that existed before is kept. One that was created for the restore is deleted if it has not moved.
        let undone = Workspace {
            own_branch: new,
            base: snapshot.head.clone().unwrap_or_default(),
            branch: wanted,
            ..workspace.clone()
        };
        // The caller gets the error; the next attempt removes what is left of this one.
        let _ = clear_away(backend, &undone).and_then(|_| backend.clear_mark(workspace, RESTORING));
    })
}

fn fill_from(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    rescue: &str,
    held: &RescueContent<'_>,
    snapshot: &Snapshot,
    branch: Option<&str>,
) -> Result<Made, WorkspaceError> {
    let repository = backend.git()?;
    let building = remove::building(workspace);
    let dir = match workspace.kind {
        WorkspaceKind::Clone => building.as_path(),
        _ => Path::new(&workspace.path),
    };
    let inside = match workspace.kind {
        WorkspaceKind::Clone => clone(backend, workspace, rescue, snapshot)?,
        _ => worktree(backend, repository, workspace, snapshot, branch)?,
    };
    let own = inside.git_dir();
    if workspace.overlay_base.is_some() {
        let here = Workspace { base: snapshot.head.clone().unwrap_or_default(), ..workspace.clone() };
        fill(backend, &here, &inside)?;
    } else if snapshot.head.is_some() {
        check_out(&inside)?;
    }
    for name in &snapshot.deleted {
        take_away(&place(dir, name)?)?;
    }
    let mut paths: Vec<Vec<u8>> = snapshot.files.iter().map(|file| below("work/", &file.name.0)).collect();
    paths.extend(snapshot.own.iter().map(|file| below("own/", &file.name.0)));
    paths.extend(snapshot.index.then(|| b"index".to_vec()));
    let links = snapshot.links();
    let target = |path: &[u8]| -> Result<PathBuf, WorkspaceError> {
        let target = match (path.strip_prefix(b"work/"), path.strip_prefix(b"own/")) {
            (Some(name), _) => place(dir, &PathBytes(name.to_vec()))?,
            (_, Some(name)) => place(own, &PathBytes(name.to_vec()))?,
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
    let work = snapshot.files.iter().filter(|file| !file.link()).map(|file| (dir, &file.name, file.mode & 0o7777));
    let own_modes = snapshot.own.iter().filter(|file| !file.link()).map(|file| (own, &file.name, file.mode & 0o7777));
    let odd = snapshot.modes.iter().map(|(name, mode)| (dir, name, *mode));
    for (below, name, mode) in work.chain(own_modes).chain(odd) {
        let path = place(below, name)?;
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(lock::io("set permissions of", &path))?;
    }
    if snapshot.missing && snapshot.index {
        // The rescue has no files, because the directory was missing, so check out the staged content.
        inside.run(["checkout-index", "--all", "--force", "--quiet"])?.patience(super::git::CHECKOUT).ok()?;
    }
    bring_raw(held, snapshot, dir, own)?;
    if workspace.kind == WorkspaceKind::Worktree {
        let lines: String = snapshot.refs.iter().map(|(name, oid)| format!("update {name} {oid}\n")).collect();
        update_refs(&inside, &lines)?;
        relink(snapshot, dir, own)?;
    }
    backend.clear_mark(workspace, RESTORING)?;
    if workspace.kind == WorkspaceKind::Clone {
        // The clone's own refs and reflogs reach everything now, so the refs of the rescue are not needed.
        let kept = inside.run(["for-each-ref", "--format=delete %(refname)", "refs/toft"])?.text()?;
        update_refs(&inside, format!("{kept}\n").trim_start())?;
        open_clone(workspace)?;
    }
    Ok(Made::default())
}

/// Restores entries that were saved as they are, and directories that a checkout does not create.
fn bring_raw(held: &RescueContent<'_>, snapshot: &Snapshot, dir: &Path, own: &Path) -> Result<(), WorkspaceError> {
    let target = |raw: &Raw| match raw.root {
        Root::Work => placed(dir, &raw.name, true),
        Root::Own if raw.name.0.starts_with(b"modules") => placed(own, &raw.name, true),
        Root::Own => Err(WorkspaceError::Stays { why: "its rescue names a file of git's own".into() }),
    };
    let make = |path: &Path| match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(()),
        _ => take_away(path).and_then(|()| fs::create_dir(path).map_err(lock::io("make", path))),
    };
    let mut modes = Vec::new();
    for (name, mode) in &snapshot.dirs {
        let path = place(dir, name)?;
        // A file at this path is newer than the rescued directory.
        if fs::symlink_metadata(&path).is_ok_and(|meta| !meta.is_dir()) {
            continue;
        }
        make(&path)?;
        modes.push((path, *mode));
    }
    for raw in snapshot.raw.iter().filter(|raw| raw.is_dir()) {
        let path = target(raw)?;
        make(&path)?;
        modes.push((path, raw.mode & 0o7777));
    }
    let files = snapshot.raw.iter().enumerate().filter(|(_, raw)| !raw.is_dir());
    let files: std::collections::BTreeMap<Vec<u8>, &Raw> =
        files.map(|(n, raw)| (raw_name(n).into_bytes(), raw)).collect();
    let (large, others): (Vec<_>, Vec<_>) = files.keys().cloned().partition(|path| held.is_large(path));
    let finish = |path: &Path, raw: &Raw| match raw.is_link() {
        true => Ok(()),
        false => fs::set_permissions(path, Permissions::from_mode(raw.mode & 0o7777))
            .map_err(lock::io("set permissions of", path)),
    };
    for name in &large {
        let path = target(files[name])?;
        take_away(&path)?;
        held.write(name, fs::File::create(&path).map_err(lock::io("write", &path))?)?;
        finish(&path, files[name])?;
    }
    held.each(&others, |name, bytes| {
        let raw = files[name];
        let path = target(raw)?;
        take_away(&path)?;
        let put = match raw.is_link() {
            true => std::os::unix::fs::symlink(path_of(bytes), &path),
            false => fs::write(&path, bytes),
        };
        put.map_err(lock::io("write", &path))?;
        finish(&path, raw)
    })?;
    // Deepest first: a restored mode may deny access to the directories below.
    modes.sort();
    for (path, mode) in modes.into_iter().rev() {
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(lock::io("set permissions of", &path))?;
    }
    Ok(())
}

/// Updates the links between submodules and their repositories if the workspace or its git directory has a new path.
fn relink(snapshot: &Snapshot, dir: &Path, own: &Path) -> Result<(), WorkspaceError> {
    let Some((old_dir, old_own)) = &snapshot.places else { return Ok(()) };
    if path_of(&old_dir.0) == dir && path_of(&old_own.0) == own {
        return Ok(());
    }
    let links = snapshot.raw.iter().filter(|raw| raw.root == Root::Work && !raw.is_dir() && !raw.is_link());
    for raw in links.filter(|raw| path_of(&raw.name.0).ends_with(".git")) {
        let link = placed(dir, &raw.name, true)?;
        let Some(module) = link.parent() else { continue };
        let text = fs::read_to_string(&link).map_err(lock::io("read", &link))?;
        let Some(target) = text.trim_end().strip_prefix("gitdir: ") else { continue };
        let was = path_of(&old_dir.0).join(path_of(&raw.name.0)).parent().map(|at| at.join(target)).unwrap_or_default();
        let was = normal(&was);
        let Ok(rest) = was.strip_prefix(path_of(&old_own.0)) else { continue };
        let repository = own.join(rest);
        fs::write(&link, format!("gitdir: {}\n", repository.display())).map_err(lock::io("write", &link))?;
        let config = repository.join("config");
        // Reads and writes only this one file.
        Git::outside(module).run(["config", "--file"])?.arg(&config).args(["core.worktree"]).arg(module).ok()?;
    }
    Ok(())
}

/// Resolves `..` in a path lexically.
fn normal(path: &Path) -> PathBuf {
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(found.pop()),
            Component::CurDir => {}
            other => found.push(other),
        }
    }
    found
}

/// Creates a worktree on its former branch, if that is still at the same commit and not checked out elsewhere;
/// otherwise with a detached HEAD.
fn worktree(
    backend: &WorkspaceBackend,
    repository: &Git,
    workspace: &Workspace,
    snapshot: &Snapshot,
    branch: Option<&str>,
) -> Result<Git, WorkspaceError> {
    let Some(head) = &snapshot.head else {
        return Err(WorkspaceError::Stays { why: "it had no commit to stand on".into() });
    };
    let wanted = branch.map(str::to_owned).or_else(|| snapshot.branch.clone());
    let mut again = Workspace { branch: wanted, ..workspace.clone() };
    if let Some(branch) = &again.branch {
        let name = format!("refs/heads/{branch}");
        let tip = repository.run(["rev-parse", "--verify", "--quiet", &name])?.maybe()?;
        if tip.is_some_and(|tip| tip != *head) {
            again.branch = None;
        }
    }
    if add(backend, repository, &again, head).is_err() {
        // Another worktree has the branch; use a detached HEAD rather than fail.
        add(backend, repository, &Workspace { branch: None, ..again }, head)?;
    }
    backend.git_in(workspace, Path::new(&workspace.path))
}

fn clone(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    rescue: &str,
    snapshot: &Snapshot,
) -> Result<Git, WorkspaceError> {
    let named =
        backend.git()?.run(["for-each-ref", "--points-at", rescue, "--format=%(refname)", "refs/toft/rescue"])?;
    let kept = named.text()?.lines().map(super::rescue::refs_of).next().unwrap_or_default();
    let refs = [format!("+{rescue}:refs/toft/rescued"), format!("+{kept}/*:refs/toft/kept/*")];
    let inside = empty_clone(backend, workspace, &refs)?;
    let lines: String = snapshot.refs.iter().map(|(name, oid)| format!("update {name} {oid}\n")).collect();
    update_refs(&inside, &lines)?;
    for (name, to) in &snapshot.symrefs {
        inside.run(["symbolic-ref", name, to])?.ok()?;
    }
    for (oid, text) in snapshot.stashes.iter().rev() {
        inside.run(["stash", "store", "--quiet", "-m", text, oid])?.ok()?;
    }
    match (&snapshot.branch, &snapshot.head) {
        (Some(branch), _) => inside.run(["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")])?.ok()?,
        (None, Some(head)) => inside.run(["update-ref", "--no-deref", "HEAD", head])?.ok()?,
        (None, None) => Vec::new(),
    };
    Ok(inside)
}

/// The path of a file below `dir`. Refuses paths that lead through a symbolic link, or into the git directory.
fn place(dir: &Path, name: &PathBytes) -> Result<PathBuf, WorkspaceError> {
    placed(dir, name, false)
}

/// The same; with `inside`, a path into the git directory of a nested repository is allowed.
fn placed(dir: &Path, name: &PathBytes, inside: bool) -> Result<PathBuf, WorkspaceError> {
    let relative = path_of(&name.0);
    let stays = || WorkspaceError::Stays { why: format!("its rescue names {}", relative.display()) };
    let mut path = dir.to_owned();
    let parts: Vec<_> = relative.components().collect();
    for (n, part) in parts.iter().enumerate() {
        let Component::Normal(part) = part else { return Err(stays()) };
        // On a case-sensitive file system, `.GIT` is an ordinary name.
        let own = if cfg!(target_os = "linux") { *part == ".git" } else { part.eq_ignore_ascii_case(".git") };
        if own && !(inside && n > 0) {
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

/// Deletes whatever exists at the path of a restored file.
fn take_away(path: &Path) -> Result<(), WorkspaceError> {
    let gone = match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    gone.map_err(lock::io("replace", path))
}
