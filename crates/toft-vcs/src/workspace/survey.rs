//! What is in a git workspace, and how much of it is nowhere else.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use toft_core::workspace::{Survey, Workspace, WorkspaceKind};

use super::{Ground, Stand, WorkspaceError, git::git_dir, landed, overlay, remove};
use crate::git_run::Git;

/// An ignored file by itself is a setting if it is no larger; a directory, or a larger one, is an artefact.
const LARGEST_SETTING: u64 = 1 << 20;

/// What git says is in a checkout.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) head: Option<String>,
    pub(super) branch: Option<String>,
    pub(super) upstream: Option<String>,
    /// Files that are staged otherwise than they were committed.
    pub(super) staged: Vec<Vec<u8>>,
    /// Tracked files that differ from what is staged, and those that git was told not to look at and that differ.
    pub(super) changed: Vec<Vec<u8>>,
    /// Tracked files that are gone.
    pub(super) deleted: Vec<Vec<u8>>,
    pub(super) untracked: Vec<Vec<u8>>,
    /// Ignored files that count.
    pub(super) ignored: Vec<Vec<u8>>,
    /// Ignored directories: artefacts.
    pub(super) artefacts: Vec<Vec<u8>>,
    /// Ignored files that are too large for settings.
    pub(super) large: Vec<Vec<u8>>,
    /// What git could not look at.
    pub(super) unseen: Vec<String>,
    /// Repositories inside that are not this one's.
    pub(super) nested: Vec<String>,
    pub(super) submodules: Vec<Vec<u8>>,
    /// Everything in the index: mode, object, path.
    pub(super) index: Vec<(u32, String, Vec<u8>)>,
}

pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asks git. Changes nothing, not even what git would refresh by the way.
pub(super) fn status(git: &Git) -> Result<Status, WorkspaceError> {
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
            b"!" if rest.ends_with(b"/") => status.artefacts.push(rest.to_vec()),
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
    read_index(git, &mut status)?;
    Ok(status)
}

/// Where a checkout stands, in one question.
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

/// A tracked file: two letters, some columns, then its path.
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

/// Everything in the index; files that git was told not to look at are looked at.
fn read_index(git: &Git, status: &mut Status) -> Result<(), WorkspaceError> {
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
            match fs::symlink_metadata(git.dir().join(path_of(path))) {
                // What a link says is not hashed by name.
                Ok(meta) if meta.is_symlink() => status.changed.push(path.to_vec()),
                Ok(_) => unwatched.push((oid.to_owned(), path.to_vec())),
                Err(_) => {}
            }
        }
        status.index.push((mode, oid.to_owned(), path.to_vec()));
    }
    // Git hashes files by name, one to a line: a name with a line break is taken for changed.
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

/// What was begun in a checkout and is not over.
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

pub(super) fn survey(ground: &Ground, workspace: &Workspace, dir: &Path) -> Result<Survey, WorkspaceError> {
    let git = ground.git_in(workspace, dir)?;
    let own = git.git_dir();
    let mut status = status(&git)?;
    set_up_links(workspace, dir, &mut status);
    let landing = landed::look(ground, &git, workspace, &status)?;
    let mut stuck: Vec<String> =
        status.nested.iter().map(|path| format!("{path} is a repository of its own")).collect();
    stuck.extend(status.unseen.iter().cloned());
    if !ground.is_here(workspace, dir) {
        stuck.push(format!("its {} is not the one that toft made", dir.join(".git").display()));
    }
    if status.head.is_none() {
        stuck.push("it is on a branch that has no commit".to_owned());
    }
    if own.join("worktrees").read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        stuck.push("it has worktrees of its own".to_owned());
    }
    if let Ok(Some(why)) = crate::read(&own.join("locked"))
        && why.trim() != overlay::LOCKED
    {
        stuck.push(format!("locked by git: {}", if why.trim().is_empty() { "no reason given" } else { why.trim() }));
    }
    for path in &status.submodules {
        stuck.extend(submodule(&dir.join(path_of(path)), &shown(path))?);
    }
    stuck.extend(modules(&own.join("modules"))?);
    let dropped = match workspace.kind {
        WorkspaceKind::Clone => apart(ground, &git)?,
        _ => dropped(&git)?.len(),
    };
    Ok(Survey {
        staged: status.staged.len(),
        changed: status.changed.len() + status.deleted.len(),
        untracked: status.untracked.len(),
        ignored: status.ignored.len(),
        artefacts: status.artefacts.iter().chain(&status.large).map(|path| shown(path)).collect(),
        stashes: stashes(&git, workspace, status.branch.as_deref())?.len(),
        dropped,
        ahead: landing.ahead,
        unpushed: landing.unpushed,
        landed: landing.how,
        doing: doing(own).map(str::to_owned),
        head: status.head.unwrap_or_default(),
        branch: status.branch,
        upstream: status.upstream,
        stuck,
    })
}

/// Stashes that go with a workspace: of a clone all, of a worktree none, for they are the repository's. There they are
/// only counted, by the branch they were made on.
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

/// Commits that a checkout's own log knows and no ref reaches: what was amended, reset or rebased away.
pub(super) fn dropped(git: &Git) -> Result<Vec<String>, WorkspaceError> {
    // Git has no log of a branch without a commit; the file says what there was.
    let log = git.git_dir().join("logs").join("HEAD");
    let log = crate::read(&log)?.unwrap_or_default();
    let mut tips: Vec<String> =
        log.lines().rev().filter_map(|line| line.split(' ').nth(1)).map(str::to_owned).collect();
    let own = ["refs/worktree", "refs/bisect", "refs/rewritten"];
    tips.extend(git.run(["for-each-ref", "--format=%(objectname)"])?.args(own).text()?.lines().map(str::to_owned));
    tips.sort();
    tips.dedup();
    tips.retain(|tip| !tip.chars().all(|digit| digit == '0'));
    let head = git.run(["rev-parse", "--verify", "--quiet", "HEAD"])?.maybe()?;
    let mut found = Vec::new();
    for some in tips.chunks(1_000) {
        let run = git.run(["rev-list", "--ignore-missing"])?.args(some).arg("--not").args(&head);
        let run = run.args(own.iter().map(|place| format!("--exclude={place}/*")));
        let known = run.args(["--exclude=refs/toft/*", "--all"]).ok()?;
        found.extend(shown(&known).lines().map(str::to_owned));
    }
    Ok(found)
}

/// How many commits of a clone its parent does not have, whatever in the clone knows them.
fn apart(ground: &Ground, git: &Git) -> Result<usize, WorkspaceError> {
    let theirs = ground.git()?.run(["for-each-ref", "--format=%(refname) %(objectname)"])?.text()?;
    let theirs = theirs.lines().filter(|line| !line.starts_with("refs/toft/")).filter_map(|line| line.split_once(' '));
    let known: String = theirs.map(|(_, oid)| format!("^{oid}\n")).collect();
    let run = git.run(["rev-list", "--count", "--ignore-missing", "--all", "--reflog", "HEAD", "--stdin"])?;
    let run = run.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", ground.common_dir.join("objects"));
    let count = run.ok_fed(|to| to.write_all(known.as_bytes()))?;
    Ok(shown(&count).trim().parse().unwrap_or(usize::MAX))
}

/// Links that setting up made, to what the checkout it was made from has, are no work.
fn set_up_links(workspace: &Workspace, dir: &Path, status: &mut Status) {
    let source = Path::new(&workspace.source);
    let made = |path: &Vec<u8>| {
        fs::read_link(dir.join(path_of(path))).is_ok_and(|target| target == source.join(path_of(path)))
    };
    let (links, others) = std::mem::take(&mut status.untracked).into_iter().partition(made);
    status.untracked = others;
    status.ignored.extend::<Vec<Vec<u8>>>(links);
}

/// Why repositories of submodules that are not filled now would be lost; nothing if remotes have all of them.
fn modules(dir: &Path) -> Result<Option<String>, WorkspaceError> {
    let mut look = vec![dir.to_owned()];
    while let Some(at) = look.pop() {
        if crate::git::is_git_dir(&at) {
            let git = Git::foreign(&at, &at)?;
            let ours = git.run(["rev-list", "--count", "--all", "--reflog", "--not", "--remotes"])?.text()?;
            if ours != "0" {
                return Ok(Some(format!("submodule {} has {ours} commits that no remote has", at.display())));
            }
            look.push(at.join("modules"));
            continue;
        }
        let Ok(entries) = fs::read_dir(&at) else { continue };
        look.extend(entries.flatten().filter(|entry| entry.path().is_dir()).map(|entry| entry.path()));
    }
    Ok(None)
}

/// In what a checkout differs from a fresh one; ignored files count.
pub(super) fn not_fresh(git: &Git) -> Result<Option<&'static str>, WorkspaceError> {
    let status = status(git)?;
    let files = [&status.staged, &status.changed, &status.deleted, &status.untracked, &status.ignored];
    Ok(if files.iter().any(|files| !files.is_empty()) || !status.nested.is_empty() {
        Some("somebody changed files in it")
    } else if doing(git.git_dir()).is_some() {
        Some("something was begun in it")
    } else {
        None
    })
}

/// Removes ignored directories, but those with a repository inside.
pub(super) fn shed(ground: &Ground, workspace: &Workspace) -> Result<(), WorkspaceError> {
    let dir = Path::new(&workspace.path);
    for path in status(&ground.git_in(workspace, dir)?)?.artefacts {
        if repository_below(dir, vec![path_of(&path)]).is_none() && remove::mount_below(dir).is_none() {
            remove::tree(&dir.join(path_of(&path)))?;
        }
    }
    Ok(())
}

/// A repository inside an ignored directory, where git does not look.
pub(super) fn hidden_repository(git: &Git) -> Result<Option<PathBuf>, WorkspaceError> {
    let status = status(git)?;
    Ok(repository_below(git.dir(), status.artefacts.iter().map(|path| path_of(path)).collect()))
}

/// The first repository below one of these directories.
fn repository_below(dir: &Path, mut look: Vec<PathBuf>) -> Option<PathBuf> {
    while let Some(at) = look.pop() {
        let here = dir.join(&at);
        let marked = [".git", ".hg", ".jj", ".sl"].iter().any(|name| here.join(name).exists());
        if marked || crate::git::is_git_dir(&here) {
            return Some(at);
        }
        // What cannot be listed may hold anything.
        let Ok(entries) = fs::read_dir(&here) else { return Some(at) };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        look.extend(below.map(|entry| at.join(entry.file_name())));
    }
    None
}

/// Why a submodule's work would be lost with its directory; nothing if a remote has it all.
fn submodule(dir: &Path, name: &str) -> Result<Option<String>, WorkspaceError> {
    if !dir.join(".git").exists() {
        return Ok(None);
    }
    let git = Git::foreign(dir, &git_dir(dir)?)?;
    let inner = status(&git)?;
    let files = inner.staged.len() + inner.changed.len() + inner.deleted.len() + inner.untracked.len();
    if files + inner.nested.len() > 0 {
        return Ok(Some(format!("submodule {name} has {files} changed files")));
    }
    if git.run(["rev-parse", "--verify", "--quiet", "refs/stash"])?.maybe()?.is_some() {
        return Ok(Some(format!("submodule {name} has a stash")));
    }
    let ours = git.run(["rev-list", "--count", "HEAD", "--branches", "--not", "--remotes"])?.text()?;
    if ours != "0" {
        return Ok(Some(format!("submodule {name} has {ours} commits that no remote has")));
    }
    for path in &inner.submodules {
        if let Some(why) = submodule(&dir.join(path_of(path)), &format!("{name}/{}", shown(path)))? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// Files that differ from where the work left off, committed or not.
pub(super) fn touched(ground: &Ground, workspace: &Workspace) -> Result<Vec<String>, WorkspaceError> {
    let git = ground.git_in(workspace, Path::new(&workspace.path))?;
    let targets = landed::targets(ground, workspace, None)?;
    let head = git.run(["rev-parse", "--verify", "--quiet", "HEAD"])?.maybe()?;
    let base = match (targets.first(), head) {
        (Some(target), Some(head)) => {
            landed::sharing(ground, git.run(["merge-base", target, &head])?, workspace).maybe()?
        }
        _ => None,
    };
    let base = base.unwrap_or_else(|| workspace.base.clone());
    let ask = ["diff", "--name-only", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "-z"];
    let changed = git.run(ask)?.args([base.as_str(), "--"]).ok()?;
    let new = git.run(["ls-files", "--others", "--exclude-standard", "-z"])?.ok()?;
    let names = changed.split(|byte| *byte == 0).chain(new.split(|byte| *byte == 0));
    Ok(names.filter(|name| !name.is_empty()).map(shown).collect())
}
