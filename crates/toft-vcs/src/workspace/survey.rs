//! Examines the content of a git workspace, and determines which of it exists nowhere else.

use std::{
    ffi::OsString,
    fs,
    os::unix::{ffi::OsStringExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use toft_core::workspace::{Left, Survey, Workspace, WorkspaceKind};

use super::{
    Stand, WorkspaceBackend, WorkspaceError, git::git_dir, landed, look::SurveyContext, overlay, remove, walk,
};
use crate::{git_run::Git, git_view::plain_file};

/// A single ignored file up to this size counts as a setting. Larger files, and directories, count as artefacts.
const LARGEST_SETTING: u64 = 1 << 20;

/// The status of a checkout according to git.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) head: Option<String>,
    pub(super) branch: Option<String>,
    pub(super) upstream: Option<String>,
    /// Files whose staged content differs from HEAD.
    pub(super) staged: Vec<Vec<u8>>,
    /// Tracked files that differ from the index, including files marked assume-unchanged or skip-worktree.
    pub(super) changed: Vec<Vec<u8>>,
    /// Tracked files that do not exist.
    pub(super) deleted: Vec<Vec<u8>>,
    pub(super) untracked: Vec<Vec<u8>>,
    /// Ignored files that count as settings.
    pub(super) ignored: Vec<Vec<u8>>,
    /// Files in small ignored directories.
    pub(super) small: Vec<Vec<u8>>,
    /// Other ignored directories: artefacts.
    pub(super) artefacts: Vec<Vec<u8>>,
    /// Ignored files that are too large to be settings.
    pub(super) large: Vec<Vec<u8>>,
    /// Paths that git could not read.
    pub(super) unseen: Vec<String>,
    /// Nested repositories that are not submodules.
    pub(super) nested: Vec<String>,
    pub(super) submodules: Vec<Vec<u8>>,
    /// The entries of the index: mode, object, path.
    pub(super) index: Vec<(u32, String, Vec<u8>)>,
    /// Some files are marked assume-unchanged or skip-worktree.
    pub(super) unwatched: bool,
}

pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs `git status` and reads the index. Changes nothing, not even the index's cached file times.
pub(super) fn status(git: &Git) -> Result<Status, WorkspaceError> {
    let mut status = status_of_plain(git)?;
    read_index(git, &mut status)?;
    let hidden = hidden_in(git.dir(), tracked_dirs(&status).into_iter());
    status.nested.extend(hidden);
    Ok(status)
}

/// The same for an index without submodules and without files marked assume-unchanged or skip-worktree.
pub(super) fn status_of_plain(git: &Git) -> Result<Status, WorkspaceError> {
    const ASK: [&str; 8] = [
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=all",
        "--ignored=matching",
        "--ignore-submodules=all",
        "--no-renames",
    ];
    let mut status = Status::default();
    let ended = git.run(ASK)?.end()?;
    status.unseen = ended.err.lines().filter(|line| line.starts_with("warning:")).map(str::to_owned).collect();
    let said = ended.ok("git status".into())?;
    for line in said.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        let (kind, rest) = line.split_at(1);
        let rest = rest.strip_prefix(b" ").unwrap_or(rest);
        match kind {
            b"#" => header(&mut status, &shown(rest)),
            b"1" => entry(&mut status, rest, 7),
            b"u" => entry(&mut status, rest, 9),
            b"?" if rest.ends_with(b"/") => status.nested.push(shown(rest)),
            b"?" => status.untracked.push(rest.to_vec()),
            b"!" if rest.ends_with(b"/") => match walk::small(git.dir(), &path_of(rest)) {
                Some(files) => {
                    status.small.extend(files.into_iter().map(|file| file.into_os_string().into_encoded_bytes()));
                }
                None => status.artefacts.push(rest.to_vec()),
            },
            b"!" => {
                let file = fs::symlink_metadata(git.dir().join(path_of(rest)));
                match file.is_ok_and(|file| !file.is_dir() && file.len() <= LARGEST_SETTING) {
                    true => status.ignored.push(rest.to_vec()),
                    false => status.large.push(rest.to_vec()),
                }
            }
            _ => {}
        }
    }
    Ok(status)
}

/// Directories with tracked files.
pub(super) fn tracked_dirs(status: &Status) -> std::collections::BTreeSet<&[u8]> {
    let mut dirs = std::collections::BTreeSet::new();
    for (_, _, path) in status.index.iter().filter(|(mode, ..)| *mode != 0o160_000) {
        let mut rest = path.as_slice();
        while let Some(end) = rest.iter().rposition(|byte| *byte == b'/') {
            rest = &rest[..end];
            if !dirs.insert(rest) {
                break;
            }
        }
    }
    dirs
}

/// Those of `dirs` that contain a nested repository. Git does not report one in a directory with tracked files.
pub(super) fn hidden_in<'a>(dir: &Path, dirs: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    let hidden = dirs.filter(|name| walk::is_marked(&dir.join(path_of(name))));
    hidden.map(|name| format!("{}/", shown(name))).collect()
}

/// The newest commit and the number of uncommitted changes, from one git command.
pub(super) fn stand(git: &Git) -> Result<Stand, WorkspaceError> {
    let said =
        git.run(["status", "--porcelain=v2", "--branch", "-z", "--ignore-submodules=dirty", "--no-renames"])?.ok()?;
    let lines = said.split(|byte| *byte == 0).filter(|line| !line.is_empty());
    let (headers, files): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with(b"# "));
    let commit = headers.iter().find_map(|line| line.strip_prefix(b"# branch.oid "));
    Ok(Stand { commit: commit.map(shown).unwrap_or_default(), uncommitted: files.len() })
}

fn header(status: &mut Status, text: &str) {
    let (name, value) = text.split_once(' ').unwrap_or((text, ""));
    let value = Some(value.to_owned());
    match name {
        "branch.oid" => status.head = value.filter(|oid| oid != "(initial)"),
        "branch.head" => status.branch = value.filter(|name| name != "(detached)"),
        "branch.upstream" => status.upstream = value,
        _ => {}
    }
}

/// Records a tracked file: two status letters, `columns` columns, then its path.
fn entry(status: &mut Status, rest: &[u8], columns: usize) {
    let mut words = rest.splitn(columns + 1, |byte| *byte == b' ');
    let letters = words.next().unwrap_or_default().to_vec();
    let Some(path) = words.last() else { return };
    let (staged, changed) = (letters.first(), letters.get(1));
    if staged.is_some_and(|letter| *letter != b'.') {
        status.staged.push(path.to_vec());
    }
    match changed {
        Some(b'D') => status.deleted.push(path.to_vec()),
        Some(b'.') | None => {}
        Some(_) => status.changed.push(path.to_vec()),
    }
}

/// Reads the index; returns files marked assume-unchanged or skip-worktree.
pub(super) fn list_index(git: &Git, status: &mut Status) -> Result<Vec<(String, Vec<u8>)>, WorkspaceError> {
    let listed = git.run(["ls-files", "--stage", "-v", "-z"])?.ok()?;
    let mut unwatched = Vec::new();
    for line in listed.split(|byte| *byte == 0).filter(|line| !line.is_empty()) {
        let mut halves = line.splitn(2, |byte| *byte == b'\t');
        let (Some(facts), Some(path)) = (halves.next(), halves.next()) else { continue };
        let facts = shown(facts);
        let words: Vec<_> = facts.split(' ').collect();
        let [flag, mode, oid, _stage] = words[..] else { continue };
        let mode = u32::from_str_radix(mode, 8).unwrap_or_default();
        if mode == 0o160_000 {
            status.submodules.push(path.to_vec());
        } else if flag == "S" || flag.chars().all(|letter| letter.is_ascii_lowercase()) {
            status.unwatched = true;
            unwatched.push((oid.to_owned(), path.to_vec()));
        }
        status.index.push((mode, oid.to_owned(), path.to_vec()));
    }
    Ok(unwatched)
}

/// Reads the index, and compares files marked assume-unchanged or skip-worktree with it.
fn read_index(git: &Git, status: &mut Status) -> Result<(), WorkspaceError> {
    let mut unwatched = Vec::new();
    for (oid, path) in list_index(git, status)? {
        match fs::symlink_metadata(git.dir().join(path_of(&path))) {
            // The content of a symbolic link cannot be hashed by path.
            Ok(meta) if meta.is_symlink() => status.changed.push(path),
            Ok(_) => unwatched.push((oid, path)),
            Err(_) => {}
        }
    }
    // Git reads the paths to hash line by line, so a path with a line break counts as changed.
    let (odd, plain): (Vec<_>, Vec<_>) = unwatched.into_iter().partition(|(_, path)| path.contains(&b'\n'));
    let feed: Vec<u8> = plain.iter().flat_map(|(_, path)| [path.as_slice(), b"\n"].concat()).collect();
    if !plain.is_empty() {
        let run = git.run(["hash-object", "--no-filters", "--stdin-paths"])?;
        let said = shown(&run.ok_fed(|to| to.write_all(&feed))?);
        let differs = plain.iter().zip(said.lines()).filter(|((oid, _), now)| oid != now);
        status.changed.extend(differs.map(|((_, path), _)| path.clone()));
    }
    status.changed.extend(odd.into_iter().map(|(_, path)| path));
    Ok(())
}

/// The operation in progress in a checkout, such as a rebase.
pub(super) fn doing(git_dir: &Path) -> Option<&'static str> {
    const SIGNS: [(&str, &str); 6] = [
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("MERGE_HEAD", "merge"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("BISECT_LOG", "bisect"),
    ];
    SIGNS.iter().find(|(sign, _)| git_dir.join(sign).exists()).map(|(_, what)| *what)
}

pub(super) fn survey(backend: &WorkspaceBackend, workspace: &Workspace, dir: &Path) -> Result<Survey, WorkspaceError> {
    let refs = backend.refs()?;
    Ok(survey_with(backend, workspace, dir, &mut SurveyContext::fresh(backend, workspace, dir, &refs))?.0)
}

/// The same with cached inputs; also returns git's status.
pub(super) fn survey_with(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    dir: &Path,
    aid: &mut SurveyContext<'_>,
) -> Result<(Survey, Status), WorkspaceError> {
    let git = aid.git(backend, workspace, dir)?;
    let own = git.git_dir();
    let mut status = aid.status(&git)?;
    set_up_links(workspace, dir, &mut status);
    let landing = landed::look(backend, &git, workspace, &status, aid)?;
    let mut nested: Vec<String> =
        status.nested.iter().map(|path| format!("{path} is a repository of its own")).collect();
    nested.extend(submodules(dir, own, &status)?.work);
    let mut stuck = status.unseen.clone();
    // The user's own checkout was not created by toft, and is never removed.
    let made = workspace.kind != WorkspaceKind::InPlace;
    if made && !backend.is_here(workspace, dir) {
        stuck.push(format!("its {} is not the one that toft made", dir.join(".git").display()));
    }
    if status.head.is_none() {
        stuck.push("it is on a branch that has no commit".to_owned());
    }
    if made && own.join("worktrees").read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        stuck.push("it has worktrees of its own".to_owned());
    }
    if let Ok(Some(why)) = crate::read(&own.join("locked"))
        && why.trim() != overlay::LOCKED
    {
        stuck.push(format!("locked by git: {}", if why.trim().is_empty() { "no reason given" } else { why.trim() }));
    }
    let Apart { all: apart, beside, dropped } = match workspace.kind {
        WorkspaceKind::Clone => apart(backend, &git)?,
        _ => {
            let dropped = aid.dropped(&git, status.head.as_deref(), &logs(backend, workspace, own))?;
            Apart { dropped, ..Apart::default() }
        }
    };
    let survey = Survey {
        staged: status.staged.len(),
        changed: status.changed.len() + status.deleted.len(),
        untracked: status.untracked.len(),
        ignored: status.ignored.len() + status.small.len(),
        nested,
        artefacts: status.artefacts.iter().chain(&status.large).map(|path| shown(path)).collect(),
        stashes: aid.stashes(&git, workspace, status.branch.as_deref())?,
        dropped,
        apart,
        beside,
        ahead: landing.ahead,
        unpushed: landing.unpushed,
        landed: landing.how,
        doing: doing(own).map(str::to_owned),
        head: status.head.clone().unwrap_or_default(),
        branch: status.branch.clone(),
        upstream: status.upstream.clone(),
        stuck,
    };
    Ok((survey, status))
}

/// Stashes of a workspace: of a clone, all. The stashes of a worktree belong to the repository and stay, so only those
/// made on its branch are listed, for information.
pub(super) fn stashes(
    git: &Git,
    workspace: &Workspace,
    branch: Option<&str>,
) -> Result<Vec<(String, String)>, WorkspaceError> {
    let run = git.run(["log", "--walk-reflogs", "--format=%H %gs", "refs/stash", "--"])?;
    let listed = run.maybe()?.unwrap_or_default();
    let all = listed.lines().filter_map(|line| line.split_once(' '));
    let mine = |(_, text): &(&str, &str)| {
        let on = branch.map(|branch| (format!("WIP on {branch}:"), format!("On {branch}:")));
        workspace.kind == WorkspaceKind::Clone
            || on.is_some_and(|(wip, named)| text.starts_with(&wip) || text.starts_with(&named))
    };
    Ok(all.filter(mine).map(|(oid, text)| (oid.to_owned(), text.to_owned())).collect())
}

/// Reflog files of a workspace: of a clone, all; of a worktree, its own and that of a branch created for it.
pub(super) fn logs(backend: &WorkspaceBackend, workspace: &Workspace, own: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut look = vec![own.join("logs")];
    if let (WorkspaceKind::Worktree, true, Some(branch)) = (workspace.kind, workspace.own_branch, &workspace.branch) {
        look.push(backend.common_dir.join("logs").join("refs").join("heads").join(branch));
    }
    while let Some(at) = look.pop() {
        // Links are not followed: they could lead to files that are not logs of this checkout.
        match fs::symlink_metadata(&at).map(|meta| meta.file_type()) {
            Ok(kind) if kind.is_dir() => {
                look.extend(fs::read_dir(&at).into_iter().flatten().flatten().map(|entry| entry.path()));
            }
            Ok(kind) if kind.is_file() => found.push(at),
            _ => {}
        }
    }
    found
}

/// Every object that reflogs name.
pub(super) fn logged(logs: &[PathBuf]) -> Result<Vec<String>, WorkspaceError> {
    let mut found = std::collections::BTreeSet::new();
    for log in logs {
        let text = shown(&plain_file(log)?.unwrap_or_default());
        found.extend(text.lines().flat_map(|line| line.split(' ').take(2)).map(str::to_owned));
    }
    let hash = |oid: &String| oid.bytes().all(|byte| byte.is_ascii_hexdigit()) && oid.bytes().any(|byte| byte != b'0');
    Ok(found.into_iter().filter(hash).collect())
}

/// Refs that belong to one worktree.
pub(super) const OF_A_WORKTREE: [&str; 3] = ["refs/worktree", "refs/bisect", "refs/rewritten"];

/// Commits in a checkout's reflogs that no ref reaches: amended, reset or rebased away.
pub(super) fn dropped(git: &Git, own: &Path, logs: &[PathBuf]) -> Result<Vec<String>, WorkspaceError> {
    // Git prints no reflog for a branch without a commit, so the files are read. With the reftable format, only git can
    // read them.
    let mut tips = logged(logs)?;
    if own.join("reftable").exists() {
        let listed = git.run(["log", "--walk-reflogs", "--format=%H", "HEAD", "--"])?.maybe()?;
        tips.extend(listed.unwrap_or_default().lines().map(str::to_owned));
    }
    let refs = git.run(["for-each-ref", "--format=%(objectname)"])?.args(OF_A_WORKTREE);
    tips.extend(refs.text()?.lines().map(str::to_owned));
    tips.sort();
    tips.dedup();
    let head = git.run(["rev-parse", "--verify", "--quiet", "HEAD"])?.maybe()?;
    let mut found = Vec::new();
    for some in tips.chunks(1_000) {
        let run = git.run(["rev-list", "--ignore-missing"])?.args(some).arg("--not").args(&head);
        let run = run.args(OF_A_WORKTREE.iter().map(|place| format!("--exclude={place}/*")));
        let known = run.args(["--exclude=refs/toft/*", "--all"]).ok()?;
        found.extend(shown(&known).lines().map(str::to_owned));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Numbers of commits in a clone that its parent does not have.
#[derive(Default)]
struct Apart {
    /// Reachable from any ref or reflog of the clone.
    all: usize,
    /// On branches other than the current one.
    beside: usize,
    /// On no branch.
    dropped: usize,
}

fn apart(backend: &WorkspaceBackend, git: &Git) -> Result<Apart, WorkspaceError> {
    let theirs = backend.git()?.run(["for-each-ref", "--format=%(refname) %(objectname)"])?.text()?;
    let theirs = theirs.lines().filter(|line| !line.starts_with("refs/toft/")).filter_map(|line| line.split_once(' '));
    let known: String = theirs.map(|(_, oid)| format!("^{oid}\n")).collect();
    let count = |what: &[&str]| -> Result<usize, WorkspaceError> {
        let run = git.run(["rev-list", "--count", "--ignore-missing"])?.args(what).arg("--stdin");
        let run = run.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", backend.common_dir.join("objects"));
        let count = run.ok_fed(|to| to.write_all(known.as_bytes()))?;
        Ok(shown(&count).trim().parse().unwrap_or(usize::MAX))
    };
    let all = count(&["--all", "--reflog", "HEAD"])?;
    if all == 0 {
        return Ok(Apart::default());
    }
    let (branches, head) = (count(&["--branches", "HEAD"])?, count(&["HEAD"])?);
    Ok(Apart { all, beside: branches.saturating_sub(head), dropped: all.saturating_sub(branches) })
}

/// Symbolic links that setup made to files of the main checkout count as ignored, not as work.
fn set_up_links(workspace: &Workspace, dir: &Path, status: &mut Status) {
    let source = Path::new(&workspace.source);
    let made = |path: &Vec<u8>| {
        fs::read_link(dir.join(path_of(path))).is_ok_and(|target| target == source.join(path_of(path)))
    };
    let (links, others) = std::mem::take(&mut status.untracked).into_iter().partition(made);
    status.untracked = others;
    status.ignored.extend::<Vec<Vec<u8>>>(links);
}

/// Content of submodules that exists nowhere else.
#[derive(Debug, Default)]
pub(super) struct Submodules {
    /// Descriptions of work that no remote has.
    pub(super) work: Vec<String>,
    /// Artefacts, by path in the workspace.
    pub(super) artefacts: Vec<PathBuf>,
}

/// Examines the submodules of a checkout, and the repositories of submodules that are not checked out.
pub(super) fn submodules(dir: &Path, own: &Path, status: &Status) -> Result<Submodules, WorkspaceError> {
    let mut found = Submodules::default();
    for path in &status.submodules {
        submodule(dir, &path_of(path), &mut found)?;
    }
    if found.work.is_empty() {
        found.work.extend(modules(&own.join("modules"))?);
    }
    Ok(found)
}

/// Why repositories of submodules that are not checked out would be lost; `None` if remotes have all of their commits.
fn modules(dir: &Path) -> Result<Option<String>, WorkspaceError> {
    let mut look = vec![dir.to_owned()];
    while let Some(at) = look.pop() {
        if crate::git::is_git_dir(&at) {
            let git = Git::foreign(&at, &at)?;
            let ours = git.run(["rev-list", "--count", "--all", "--reflog", "--not", "--remotes"])?.text()?;
            let name = at.strip_prefix(dir).unwrap_or(&at).display();
            if ours != "0" {
                return Ok(Some(format!("submodule {name} has {ours} commits that no remote has")));
            }
            if let Some(what) = doing(&at) {
                return Ok(Some(format!("submodule {name} has a {what} in progress")));
            }
            let hooks = fs::read_dir(at.join("hooks")).into_iter().flatten().flatten();
            if hooks.into_iter().any(|hook| !hook.file_name().to_string_lossy().ends_with(".sample")) {
                return Ok(Some(format!("submodule {name} has hooks of its own")));
            }
            look.push(at.join("modules"));
            continue;
        }
        let Ok(entries) = fs::read_dir(&at) else { continue };
        look.extend(entries.flatten().filter(|entry| entry.path().is_dir()).map(|entry| entry.path()));
    }
    Ok(None)
}

/// How a checkout differs from a fresh one, if at all. Ignored files count, and so do artefacts newer than `made`.
pub(super) fn not_fresh(git: &Git, made: SystemTime) -> Result<Option<&'static str>, WorkspaceError> {
    let status = status(git)?;
    let files = [&status.staged, &status.changed, &status.deleted, &status.untracked, &status.ignored];
    Ok(if files.iter().any(|files| !files.is_empty()) || !status.nested.is_empty() {
        Some("files in it were changed")
    } else if status
        .artefacts
        .iter()
        .chain(&status.large)
        .chain(&status.small)
        .any(|path| newer(&git.dir().join(path_of(path)), made))
    {
        Some("artefacts were put into it")
    } else if doing(git.git_dir()).is_some() {
        Some("something was begun in it")
    } else {
        None
    })
}

/// Whether a file, or anything below a directory, was changed after a time. If that cannot be determined, true.
fn newer(path: &Path, moment: SystemTime) -> bool {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let moment = (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos()));
    let mut look = vec![path.to_owned()];
    while let Some(at) = look.pop() {
        let Ok(meta) = fs::symlink_metadata(&at) else { return true };
        if (meta.ctime(), meta.ctime_nsec()) > moment {
            return true;
        }
        if meta.is_dir() {
            let Ok(entries) = fs::read_dir(&at) else { return true };
            look.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    false
}

/// Deletes ignored directories that tools can rebuild, except those that contain a repository. Returns what was
/// deleted.
pub(super) fn shed(backend: &WorkspaceBackend, workspace: &Workspace) -> Result<Vec<Left>, WorkspaceError> {
    let dir = Path::new(&workspace.path);
    let paths = status(&backend.inside(workspace, dir)?)?.artefacts;
    let paths: Vec<PathBuf> = paths.iter().map(|path| path_of(path)).collect();
    let kept = walk::walk(dir, &paths)?.repositories;
    let mut going = Vec::new();
    for path in paths.into_iter().filter(|path| walk::is_rebuilt(&dir.join(path))) {
        let holds_one = kept.iter().any(|repository| repository.starts_with(&path));
        if !holds_one && remove::mount_below(dir).is_none() {
            going.push(path);
        }
    }
    let named = walk::left(dir, going.clone());
    for path in going {
        remove::tree(&dir.join(path))?;
    }
    Ok(named)
}

/// Adds the work in a submodule that no remote has, and its artefacts.
fn submodule(top: &Path, path: &Path, found: &mut Submodules) -> Result<(), WorkspaceError> {
    let (dir, name) = (top.join(path), path.display());
    if fs::symlink_metadata(dir.join(".git")).is_err() {
        return Ok(());
    }
    let own = git_dir(&dir)?;
    let git = Git::foreign(&dir, &own)?;
    let inner = status(&git)?;
    let files = inner.staged.len() + inner.changed.len() + inner.deleted.len() + inner.untracked.len();
    let ignored = inner.ignored.len() + inner.small.len();
    if files + inner.nested.len() + inner.unseen.len() > 0 {
        found.work.push(format!("submodule {name} has {files} changed files"));
    } else if ignored > 0 {
        found.work.push(format!("submodule {name} has {ignored} ignored files"));
    } else if let Some(what) = doing(&own) {
        found.work.push(format!("submodule {name} has a {what} in progress"));
    } else if git.run(["rev-parse", "--verify", "--quiet", "refs/stash"])?.maybe()?.is_some() {
        found.work.push(format!("submodule {name} has a stash"));
    } else {
        let ours = git.run(["rev-list", "--count", "HEAD", "--all", "--reflog", "--not", "--remotes"])?.text()?;
        if ours != "0" {
            found.work.push(format!("submodule {name} has {ours} commits that no remote has"));
        }
    }
    found.artefacts.extend(inner.artefacts.iter().chain(&inner.large).map(|inner| path.join(path_of(inner))));
    for inner in &inner.submodules {
        submodule(top, &path.join(path_of(inner)), found)?;
    }
    Ok(())
}

/// Examines git's data of a worktree whose directory does not exist: index, HEAD, reflogs, operations in progress.
pub(super) fn missing(backend: &WorkspaceBackend, workspace: &Workspace, own: &Path) -> Result<Survey, WorkspaceError> {
    let git = backend.git_without_files(own)?;
    let mut status = Status {
        head: git.run(["rev-parse", "--verify", "--quiet", "HEAD"])?.maybe()?,
        branch: git.run(["symbolic-ref", "--quiet", "--short", "HEAD"])?.maybe()?,
        ..Status::default()
    };
    if status.head.is_some() {
        let staged =
            git.run(["diff-index", "--cached", "--name-only", "-z", "--ignore-submodules=all", "HEAD"])?.ok()?;
        status.staged = staged.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect();
    }
    let refs = backend.refs()?;
    let landing = landed::look(backend, &git, workspace, &status, &mut SurveyContext::none(&refs))?;
    let stuck = status.head.is_none().then(|| "it is on a branch that has no commit".to_owned());
    Ok(Survey {
        staged: status.staged.len(),
        dropped: dropped(&git, own, &logs(backend, workspace, own))?.len(),
        nested: modules(&own.join("modules"))?.into_iter().collect(),
        ahead: landing.ahead,
        unpushed: landing.unpushed,
        landed: landing.how,
        doing: doing(own).map(str::to_owned),
        head: status.head.unwrap_or_default(),
        branch: status.branch,
        stuck: stuck.into_iter().collect(),
        ..Survey::default()
    })
}
