//! Have a workspace's commits landed? By ancestry, as other commits with the same changes, or as one.

use std::path::Path;

use toft_core::workspace::{Landed, Workspace, WorkspaceKind};

use super::{Ground, WorkspaceError, survey::Status};
use crate::{command::Run, git_run::Git, lock::io};

/// So many commits of a target are compared with a squashed change.
const LOOKED_AT: &str = "--max-count=2000";

/// Where a workspace's commits are.
#[derive(Debug, Default)]
pub(super) struct Landing {
    pub(super) ahead: usize,
    pub(super) unpushed: usize,
    pub(super) how: Option<Landed>,
}

/// The commits that a workspace's work may have landed in: the branch it is to land on, here and as the remote has it.
/// The branch it is on itself is none of them.
pub(super) fn targets(ground: &Ground, workspace: &Workspace, on: Option<&str>) -> Result<Vec<String>, WorkspaceError> {
    let git = ground.git()?;
    let mut names = vec!["refs/remotes/origin/HEAD".to_owned()];
    if let Some(onto) = &workspace.onto {
        let here = format!("refs/heads/{onto}");
        names.extend([format!("{here}@{{upstream}}"), format!("refs/remotes/origin/{onto}")]);
        names.push(format!("refs/remotes/{onto}"));
        if workspace.branch.as_ref() != Some(onto) && on != Some(onto) {
            names.push(here);
        }
    }
    let mut found: Vec<String> = Vec::new();
    for name in names.iter().rev() {
        let run = git.run(["rev-parse", "--verify", "--quiet", "--end-of-options", &format!("{name}^{{commit}}")])?;
        found.extend(run.maybe()?.filter(|commit| !found.contains(commit)));
    }
    Ok(found)
}

/// Lets a run in a clone see what its parent has.
pub(super) fn sharing(ground: &Ground, run: Run, workspace: &Workspace) -> Run {
    match workspace.kind {
        WorkspaceKind::Clone => run.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", ground.common_dir.join("objects")),
        _ => run,
    }
}

/// Looks where the commits up to its head are.
pub(super) fn look(
    ground: &Ground,
    git: &Git,
    workspace: &Workspace,
    status: &Status,
) -> Result<Landing, WorkspaceError> {
    let Some(head) = status.head.as_deref() else {
        return Ok(Landing { how: Some(Landed::Nothing), ..Landing::default() });
    };
    let asks = Asks { ground, git, workspace, head };
    let remotes = git.run(["for-each-ref", "--count=1", "--format=x", "refs/remotes"])?.maybe()?.is_some();
    let unpushed = if remotes { asks.count(["HEAD", "--not", "--remotes"])? } else { 0 };
    if head == workspace.base {
        return Ok(Landing { ahead: 0, unpushed, how: Some(Landed::Nothing) });
    }
    let targets = targets(ground, workspace, status.branch.as_deref())?;
    let mut ahead = None;
    for target in &targets {
        let count = asks.count([head, &format!("^{target}")])?;
        if count == 0 {
            return Ok(Landing { ahead: 0, unpushed, how: Some(Landed::Merged) });
        }
        ahead = Some(ahead.map_or(count, |fewest: usize| fewest.min(count)));
    }
    let ahead = match ahead {
        Some(ahead) => ahead,
        None => asks.count([head, &format!("^{}", workspace.base)])?,
    };
    for target in &targets {
        if let Some(how) = asks.rewritten(target)? {
            return Ok(Landing { ahead: 0, unpushed, how: Some(how) });
        }
    }
    // With no branch to land on, only what was never begun has landed.
    let how = (ahead == 0 && targets.is_empty()).then_some(Landed::Merged);
    Ok(Landing { ahead, unpushed, how })
}

struct Asks<'a> {
    ground: &'a Ground,
    git: &'a Git,
    workspace: &'a Workspace,
    head: &'a str,
}

impl Asks<'_> {
    fn run<const N: usize>(&self, args: [&str; N]) -> Result<Run, WorkspaceError> {
        Ok(sharing(self.ground, self.git.run(args)?, self.workspace))
    }

    fn count<const N: usize>(&self, range: [&str; N]) -> Result<usize, WorkspaceError> {
        let text = self.run(["rev-list", "--count"])?.args(range).text()?;
        Ok(text.parse().unwrap_or(usize::MAX))
    }

    /// Are the same changes in `target`, as other commits?
    fn rewritten(&self, target: &str) -> Result<Option<Landed>, WorkspaceError> {
        let Some(base) = self.run(["merge-base", target, self.head])?.maybe()? else { return Ok(None) };
        let merges = self.count(["--merges", &format!("{base}..{}", self.head)])?;
        let each = self.run(["cherry", target, self.head])?.text()?;
        if merges == 0 && !each.is_empty() && each.lines().all(|line| line.starts_with('-')) {
            return Ok(Some(Landed::Rebased));
        }
        let tree = self.run(["rev-parse", &format!("{target}^{{tree}}")])?.text()?;
        if self.merged(target)?.is_some_and(|merged| merged == tree) {
            return Ok(Some(Landed::Squashed));
        }
        Ok(self.one_of(target, &base)?.then_some(Landed::Squashed))
    }

    /// The tree that merging would give, unless there are conflicts. Git writes it down where nobody keeps it.
    fn merged(&self, target: &str) -> Result<Option<String>, WorkspaceError> {
        let aside = tempfile::tempdir().map_err(io("make", Path::new("a temporary directory")))?;
        let own = self.git.run(["rev-parse", "--path-format=absolute", "--git-path", "objects"])?.text()?;
        let all = std::env::join_paths([Path::new(&own), &self.ground.common_dir.join("objects")]).unwrap_or_default();
        let run = self.git.run(["merge-tree", "--write-tree", "--no-messages", target, self.head])?;
        Ok(run.env("GIT_OBJECT_DIRECTORY", aside.path()).env("GIT_ALTERNATE_OBJECT_DIRECTORIES", all).maybe()?)
    }

    /// Is the whole change one commit of `target`?
    fn one_of(&self, target: &str, base: &str) -> Result<bool, WorkspaceError> {
        let plain = ["--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none"];
        let whole = self.run(["diff-tree", "-p"])?.args(plain).args([base, self.head]).ok()?;
        let theirs = self.run(["log", "-p", "--no-merges", "--format=commit %H", LOOKED_AT])?.args(plain);
        let theirs = theirs.arg(format!("{base}..{target}")).ok()?;
        let ours = self.patch_ids(&whole)?;
        let theirs = self.patch_ids(&theirs)?;
        Ok(ours.first().is_some_and(|mine| theirs.contains(mine)))
    }

    fn patch_ids(&self, patch: &[u8]) -> Result<Vec<String>, WorkspaceError> {
        let said = self.run(["patch-id", "--verbatim"])?.ok_fed(|to| to.write_all(patch))?;
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok(said.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
    }
}
