//! Creates git workspaces: worktrees, and clones with their own refs, hooks and configuration.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use toft_core::workspace::{Workspace, WorkspaceKind};

use super::{LIST, Made, Start, WorkspaceBackend, WorkspaceError, overlay, remove, survey};
use crate::{
    command::RunError,
    git_run::Git,
    git_view::plain_file,
    lock::{RepoLock, io, retry},
};
use crate::{
    exchange::ancestor,
    landing::{has_ref, is_attested, landed_ref},
};

/// Time limit of a checkout: a large repository on a slow disk takes long.
pub(super) const CHECKOUT: Duration = Duration::from_secs(3_600);

pub(super) fn start(backend: &WorkspaceBackend, rev: Option<&str>) -> Result<Start, WorkspaceError> {
    let git = backend.git()?;
    let rev = rev.unwrap_or("HEAD");
    let head = crate::read(&backend.common_dir.join("HEAD"))?.filter(|_| rev == "HEAD");
    let named = head.as_ref().and_then(|text| text.strip_prefix("ref: ")).map(str::to_owned);
    // With the reftable format, HEAD contains only a placeholder.
    let named = named.filter(|name| name != "refs/heads/.invalid");
    // Usually the ref is a loose file, so git need not be started.
    let loose = named.as_ref().map(|name| crate::read(&backend.common_dir.join(name))).transpose()?.flatten();
    let is_commit = |text: &String| text.len() >= 40 && text.chars().all(|letter| letter.is_ascii_hexdigit());
    let commit = match loose.filter(is_commit) {
        Some(commit) => Some(commit),
        None => {
            let name = format!("{rev}^{{commit}}");
            git.run(["rev-parse", "--verify", "--quiet", "--end-of-options", &name])?.maybe()?
        }
    };
    let Some(commit) = commit else { return Err(WorkspaceError::NoBase { text: rev.to_owned() }) };
    let full = match named {
        Some(name) => Some(name),
        // Git prints `--end-of-options` in its answer, so only the last line counts.
        None => {
            let run = git.run(["rev-parse", "--symbolic-full-name", "--end-of-options", rev])?;
            run.maybe()?.and_then(|text| text.lines().last().map(str::to_owned))
        }
    };
    let branch = |name: &String| {
        name.strip_prefix("refs/heads/").or_else(|| name.strip_prefix("refs/remotes/")).map(str::to_owned)
    };
    let onto = full.as_ref().and_then(branch);
    let commit = match onto.as_deref().filter(|_| rev == "HEAD") {
        Some(target) => with_landed(backend, target, commit)?,
        None => commit,
    };
    Ok(Start { commit, onto })
}

/// Tracked files that differ from the commit that is checked out.
pub(super) fn modified(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<Vec<String>, WorkspaceError> {
    let git = backend.git_in(workspace, Path::new(&workspace.path))?;
    let listed = git.run(["diff", "--name-only", "--no-ext-diff", "--no-textconv", "-z", "HEAD", "--"])?.ok()?;
    let names = listed.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// The result that waits for a branch, if there is one on top of its commit: new work begins there.
fn with_landed(backend: &WorkspaceBackend, target: &str, commit: String) -> Result<String, WorkspaceError> {
    let name = landed_ref(target);
    if !has_ref(&backend.common_dir, &name)? {
        return Ok(commit);
    }
    let git = backend.git()?;
    match git.run(["rev-parse", "--verify", "--quiet", &name])?.maybe()? {
        Some(landed) if ancestor(git, &commit, &landed)? && is_attested(&backend.state, target, &landed)? => Ok(landed),
        _ => Ok(commit),
    }
}

pub(super) fn worktree(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    copy_of: Option<&str>,
) -> Result<Made, WorkspaceError> {
    let git = backend.git()?;
    if let Some(branch) = &workspace.branch {
        check_branch(git, branch)?;
    }
    add(backend, git, workspace, &workspace.base)?;
    let inside = backend.git_in(workspace, Path::new(&workspace.path))?;
    let filled = match copy_of {
        Some(base) => overlay::copy_base(workspace, base, &inside),
        None => fill(backend, workspace, &inside),
    };
    filled.map_err(|error| lacking(backend, &workspace.base, error))?;
    Ok(Made { notes: notes(backend, &inside) })
}

/// Creates a worktree without files. An existing branch of that name is continued.
pub(super) fn add(
    backend: &WorkspaceBackend,
    git: &Git,
    workspace: &Workspace,
    at: &str,
) -> Result<(), WorkspaceError> {
    let _turn = RepoLock::wait(&backend.state, LIST)?;
    backend.can_list()?;
    let lock: &[&str] = if workspace.overlay_base.is_some() { &["--lock", "--reason", overlay::LOCKED] } else { &[] };
    let add = || git.run(["worktree", "add", "--quiet", "--no-checkout"]).map(|run| run.args(lock));
    let made = match &workspace.branch {
        Some(branch) => retry(|| add()?.args(["--no-track", "-b", branch, &workspace.path, at]).ok()),
        None => retry(|| add()?.args(["--detach", &workspace.path, at]).ok()),
    };
    match (made, &workspace.branch) {
        (Err(_), Some(branch)) if exists(git, branch)? => {
            let taken = |error: RunError| match error {
                RunError::Failed { said, .. } if said.contains("already") => {
                    WorkspaceError::BranchTaken { branch: branch.clone() }
                }
                other => other.into(),
            };
            retry(|| add()?.arg(&workspace.path).arg(branch).ok()).map_err(taken)?;
        }
        (made, _) => drop(made?),
    }
    Ok(())
}

/// Takes over a worktree that was prepared in advance, if it is unchanged, and switches it to the requested branch and
/// commit.
pub(super) fn take_over(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    made: SystemTime,
) -> Result<Made, WorkspaceError> {
    let path = Path::new(&workspace.path);
    let inside = backend.git_in(workspace, path)?;
    if let Some(found) = survey::not_fresh(&inside, made)? {
        return Err(WorkspaceError::Stays { why: format!("it was made ahead, and {found} since") });
    }
    let git = backend.git()?;
    if let Some(branch) = &workspace.branch {
        check_branch(git, branch)?;
        let switch = ["switch", "--quiet", "--no-guess"];
        let run = inside.run(switch)?.patience(CHECKOUT);
        match has_branch(backend, branch)? {
            true => run.arg(branch).ok()?,
            false => run.args(["--no-track", "--create", branch, &workspace.base]).ok()?,
        };
    }
    match survey::not_fresh(&inside, made)? {
        Some(found) => Err(WorkspaceError::Stays { why: format!("it was made ahead, and {found}") }),
        None => Ok(Made { notes: notes(backend, &inside) }),
    }
}

/// Writes the files of a new worktree.
pub(super) fn fill(backend: &WorkspaceBackend, workspace: &Workspace, inside: &Git) -> Result<(), WorkspaceError> {
    match workspace.overlay_base {
        Some(_) => overlay::fill(backend, workspace, inside),
        None => check_out(inside),
    }
}

/// Checks out the files of a worktree or clone that has none yet.
pub(super) fn check_out(inside: &Git) -> Result<(), WorkspaceError> {
    retry(|| inside.run(["reset", "--hard", "--quiet", "--no-recurse-submodules"])?.patience(CHECKOUT).ok())?;
    Ok(())
}

/// Whether a branch exists, read from git's files if possible.
pub(super) fn has_branch(backend: &WorkspaceBackend, name: &str) -> Result<bool, WorkspaceError> {
    let full = format!("refs/heads/{name}");
    if backend.common_dir.join("reftable").exists() {
        return Ok(exists(backend.git()?, name)?);
    }
    let packed = crate::read(&backend.common_dir.join("packed-refs"))?.unwrap_or_default();
    Ok(backend.common_dir.join(&full).is_file() || packed.lines().any(|line| line.ends_with(&format!(" {full}"))))
}

fn exists(git: &Git, branch: &str) -> Result<bool, RunError> {
    let name = format!("refs/heads/{branch}");
    Ok(git.run(["rev-parse", "--verify", "--quiet", &name])?.maybe()?.is_some())
}

/// Refuses a name that git does not accept for a branch.
fn check_branch(git: &Git, branch: &str) -> Result<(), WorkspaceError> {
    // Most names are simple, so git need not be started.
    let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    let name = branch.strip_prefix("toft/").unwrap_or(branch);
    if name.chars().all(plain) && name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) {
        return Ok(());
    }
    let known =
        !branch.starts_with('-') && git.run(["check-ref-format", &format!("refs/heads/{branch}")])?.end()?.code == 0;
    known.then_some(()).ok_or_else(|| WorkspaceError::BadName { text: branch.to_owned() })
}

pub(super) fn clone(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<Made, WorkspaceError> {
    let branch = format!("refs/heads/{}", workspace.branch.as_deref().unwrap_or(&workspace.name));
    let inside = empty_clone(backend, workspace, &[format!("+{}:{branch}", workspace.base)])?;
    let there = inside.run(["rev-parse", "--verify", "--quiet", &format!("{branch}^{{commit}}")])?.maybe()?;
    if there.as_deref() != Some(workspace.base.as_str()) {
        return Err(WorkspaceError::NotWhole {
            why: format!("the clone did not get commit {}", short(&workspace.base)),
            next: "leave out --clone to get a worktree".to_owned(),
        });
    }
    inside.run(["symbolic-ref", "HEAD", &branch])?.ok()?;
    check_out(&inside).map_err(|error| lacking(backend, &workspace.base, error))?;
    let notes = notes(backend, &inside);
    open_clone(workspace)?;
    Ok(Made { notes })
}

/// Moves a complete clone to its final path.
pub(super) fn open_clone(workspace: &Workspace) -> Result<(), WorkspaceError> {
    let building = remove::building(workspace);
    fs::rename(&building, &workspace.path).map_err(io("open", &building))
}

/// Creates a clone without files at a temporary path. It has these refs of its parent, and the parent's origin. Not
/// with `git clone`, which would treat the parent's branches as those of the origin.
pub(super) fn empty_clone(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    refs: &[String],
) -> Result<Git, WorkspaceError> {
    let building = remove::building(workspace);
    let outside = Git::outside(building.parent().unwrap_or(&building));
    let format = backend.git()?.run(["rev-parse", "--show-object-format"])?.text()?;
    let init = ["init", "--quiet", "--initial-branch=toft-none", &format!("--object-format={format}")];
    outside.run(init)?.arg(&building).ok()?;
    let inside = Git::made(&building);
    let always = ["+refs/tags/*:refs/tags/*", "+refs/remotes/origin/*:refs/remotes/origin/*"];
    // The clone of a shallow repository is shallow too. Without this option, git omits every ref whose history is cut
    // off.
    let run = inside.run(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow"])?;
    let run = run.env("GIT_ALLOW_PROTOCOL", "file").patience(CHECKOUT).arg(&backend.common_dir);
    let fetched = run.args(refs).args(always).ok();
    fetched.map_err(|error| lacking(backend, &workspace.base, error.into()))?;
    let parent = backend.git()?;
    if let Some(url) = parent.run(["config", "--get", "remote.origin.url"])?.maybe()? {
        // A path relative to the parent has to be made absolute.
        let path = backend.root.join(&url);
        let url = if !url.contains(':') && path.exists() { path.display().to_string() } else { url };
        inside.run(["config", "remote.origin.url", &url])?.ok()?;
        inside.run(["config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"])?.ok()?;
    }
    link_back(backend, &building, Path::new(&workspace.path))?;
    Ok(inside)
}

/// Explains a failure in a partial clone: objects are missing, and toft does not use the network to fetch them.
fn lacking(backend: &WorkspaceBackend, commit: &str, error: WorkspaceError) -> WorkspaceError {
    let packs = fs::read_dir(backend.common_dir.join("objects").join("pack")).into_iter().flatten().flatten();
    let partial = packs.into_iter().any(|entry| entry.path().extension().is_some_and(|kind| kind == "promisor"));
    match error {
        WorkspaceError::Run(RunError::Failed { .. }) if partial => WorkspaceError::NotWhole {
            why: format!(
                "this repository is a partial clone and lacks files that a workspace at {} needs",
                short(commit)
            ),
            next: format!("git -C {} fetch --refetch --no-filter", backend.root.display()),
        },
        other => other,
    }
}

/// Fetches refs from another repository on this machine.
pub(super) fn fetch<'a>(
    into: &Git,
    from: &Path,
    refs: impl IntoIterator<Item = &'a str>,
) -> Result<(), WorkspaceError> {
    let run = into.run(["fetch", "--quiet", "--no-tags", "--no-write-fetch-head"])?;
    run.env("GIT_ALLOW_PROTOCOL", "file").patience(CHECKOUT).arg(from).args(refs).ok()?;
    Ok(())
}

/// Records the parent in a clone, and the clone's final path in the parent.
fn link_back(backend: &WorkspaceBackend, building: &Path, path: &Path) -> Result<(), WorkspaceError> {
    let own = building.join(".git").join("toft");
    fs::create_dir_all(&own).map_err(io("make", &own))?;
    let clone_record = crate::git::clone_record(&backend.common_dir, path);
    if let Some(dir) = clone_record.parent() {
        fs::create_dir_all(dir).map_err(io("make", dir))?;
    }
    let parent = own.join(crate::git::PARENT);
    fs::write(&clone_record, path.display().to_string()).map_err(io("write", &clone_record))?;
    fs::write(&parent, backend.common_dir.display().to_string()).map_err(io("write", &parent))
}

/// Notes about content that a fresh checkout lacks.
fn notes(backend: &WorkspaceBackend, inside: &Git) -> Vec<String> {
    let (mut notes, path) = (Vec::new(), inside.dir());
    if path.join(".gitmodules").is_file() {
        notes.push("submodules are not filled: git submodule update --init".to_owned());
    }
    let attributes = fs::read_to_string(path.join(".gitattributes")).unwrap_or_default();
    if attributes.contains("filter=lfs") {
        notes.push("large files are pointers: git lfs pull".to_owned());
    }
    if backend.common_dir.join("shallow").is_file() {
        notes.push("the repository is shallow, and so is this".to_owned());
    }
    if inside.git_dir().join("info").join("sparse-checkout").is_file() {
        notes.push("the checkout is sparse, as the one it was made from".to_owned());
    }
    notes
}

/// The git directory that a checkout's own `.git` names. An agent can write that file, so the result is only compared,
/// or read as untrusted.
pub(super) fn git_dir(path: &Path) -> Result<PathBuf, WorkspaceError> {
    let link = path.join(".git");
    if link.is_dir() {
        return Ok(link);
    }
    let text = plain_file(&link)?.ok_or_else(|| io("read", &link)(std::io::ErrorKind::NotFound.into()))?;
    Ok(path.join(String::from_utf8_lossy(&text).trim_end().trim_start_matches("gitdir: ")))
}

/// Whether a commit contains work that was done here. On the workspace's own branch: a commit that neither `before` nor
/// the target branch has. On another branch or a detached HEAD: a commit that no other branch has.
pub(super) fn is_own(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    before: &str,
    commit: &str,
) -> Result<bool, WorkspaceError> {
    let dir = Path::new(&workspace.path);
    if !backend.is_here(workspace, dir) {
        return Ok(false);
    }
    let git = backend.git_in(workspace, dir)?;
    let text = plain_file(&git.git_dir().join("HEAD"))?.unwrap_or_default();
    let on = String::from_utf8_lossy(&text).trim().strip_prefix("ref: refs/heads/").map(str::to_owned);
    let mut others = vec!["--not".to_owned(), before.to_owned()];
    if on.is_some() && on == workspace.branch {
        // The agent may have pushed its own branch.
        others.extend(on.iter().map(|branch| format!("--exclude=*/{branch}")));
    }
    others.push("--remotes".to_owned());
    match on {
        Some(branch) if Some(&branch) == workspace.branch.as_ref() => {
            // Name the one branch that matters: walking every branch is slow if there are many.
            others.extend(workspace.onto.iter().map(|onto| format!("refs/heads/{onto}")));
        }
        Some(branch) => others.extend([format!("--exclude={branch}"), "--branches".to_owned()]),
        None => others.push("--branches".to_owned()),
    }
    Ok(git.run(["rev-list", "--ignore-missing", "--max-count=1", commit])?.args(others).maybe()?.is_some())
}

/// Chooses the base for work that depends on other commits: each one that is ahead of the current base becomes the
/// base. Diverging commits are only mentioned in notes.
pub(super) fn stack(
    backend: &WorkspaceBackend,
    start: &str,
    needs: &[String],
) -> Result<(String, Vec<String>), WorkspaceError> {
    let git = backend.git()?;
    let within = |old: &str, new: &str| -> Result<Option<bool>, WorkspaceError> {
        let ended = git.run(["merge-base", "--is-ancestor", "--end-of-options", old, new])?.end()?;
        Ok(match ended.code {
            0 => Some(true),
            1 => Some(false),
            _ => None,
        })
    };
    let (mut base, mut beside) = (start.to_owned(), Vec::new());
    for need in needs {
        match within(need, &base)? {
            Some(true) => {}
            Some(false) if within(&base, need)? == Some(true) => base.clone_from(need),
            Some(false) => beside.push(need),
            // The commit is not in this repository.
            None => {}
        }
    }
    let mut notes = Vec::new();
    if base != start {
        notes.push(format!("it starts from {}, the work of what it needs, which has not landed", short(&base)));
    }
    for need in beside {
        if within(need, &base)? == Some(false) {
            notes.push(format!("what it needs is not all in it: git merge {}", short(need)));
        }
    }
    Ok((base, notes))
}

fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// The commit that is checked out, if it can be read from loose files.
pub(super) fn plain_head(backend: &WorkspaceBackend, workspace: &Workspace) -> Option<String> {
    let own = backend.own_dir(workspace).ok()?;
    let text = |file: &Path| Some(String::from_utf8_lossy(&plain_file(file).ok()??).trim().to_owned());
    let text_of_head = text(&own.git_dir.join("HEAD"))?;
    let commit = match text_of_head.strip_prefix("ref: ") {
        // Let git resolve a symbolic ref that points elsewhere.
        Some(name) if name.starts_with("refs/heads/") && !name.contains("..") => text(&own.common.join(name))?,
        Some(_) => return None,
        None => text_of_head,
    };
    let hash = [40, 64].contains(&commit.len()) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    hash.then_some(commit)
}

/// Deletes the lock files that git takes for work in one workspace. A killed git leaves them behind, and they block
/// every later git command.
pub(super) fn clear_locks(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    before: SystemTime,
) -> Result<Vec<String>, WorkspaceError> {
    let own = backend.own_dir(workspace)?;
    let mut locks = vec![own.git_dir.join("index.lock"), own.git_dir.join("HEAD.lock")];
    if let Some(branch) = workspace.branch.as_ref().filter(|_| workspace.own_branch) {
        locks.push(own.common.join("refs").join("heads").join(format!("{branch}.lock")));
    }
    let mut cleared = Vec::new();
    for lock in locks {
        let left = fs::symlink_metadata(&lock).ok().filter(fs::Metadata::is_file).and_then(|meta| meta.modified().ok());
        if left.is_some_and(|left| left < before) {
            fs::remove_file(&lock).map_err(io("remove", &lock))?;
            cleared.push(lock.display().to_string());
        }
    }
    Ok(cleared)
}

/// Removes an incomplete workspace.
pub(super) fn clear_away(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<(), WorkspaceError> {
    overlay::discard(workspace)?;
    remove::tree(&remove::building(workspace))?;
    remove::tree(Path::new(&workspace.path))?;
    if workspace.kind == WorkspaceKind::Worktree {
        remove::unlist(backend, workspace)?;
        remove::drop_branch(backend, workspace, &workspace.base)?;
    }
    Ok(())
}
