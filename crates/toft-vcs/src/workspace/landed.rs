//! Decides whether a workspace's commits have landed: by ancestry, by a person's record, or by a trial merge that
//! changes nothing, into the target branch as it is or as it was at an earlier commit.
//!
//! Similar patches prove nothing: the same lines may have been changed in another place.

use std::path::Path;

use toft_core::workspace::{Landed, Workspace, WorkspaceKind};

use super::{WorkspaceBackend, WorkspaceError, look::Refs, look::SurveyContext, survey::Status, trial_merge};
use crate::{command::Run, git_run::Git};

/// Maximum number of commits of a target that are tried.
const TRIED: &str = "--max-count=200";
/// With more changed files than this, the tried commits are not filtered by path.
const MOST_PATHS: usize = 500;

/// The state of a workspace's commits.
#[derive(Debug, Default)]
pub(super) struct LandedCommits {
    pub(super) ahead: usize,
    pub(super) unpushed: usize,
    pub(super) how: Option<Landed>,
}

/// The commits that may contain the landed work: of the branch on which it is to land, here and on the remote. The
/// workspace's own branch is not among them.
pub(super) fn targets(refs: &Refs, workspace: &Workspace, on: Option<&str>) -> Vec<String> {
    let mut names = Vec::new();
    if let Some(onto) = &workspace.onto {
        let here = format!("refs/heads/{onto}");
        let upstream = refs.upstream(&here).cloned();
        if workspace.branch.as_ref() != Some(onto) && on != Some(onto) {
            names.push(here);
        }
        names.push(format!("refs/remotes/{onto}"));
        names.push(format!("refs/remotes/origin/{onto}"));
        names.extend(upstream);
    }
    names.push("refs/remotes/origin/HEAD".to_owned());
    let mut found: Vec<String> = Vec::new();
    for commit in names.iter().filter_map(|name| refs.commit(name)) {
        if !found.contains(commit) {
            found.push(commit.clone());
        }
    }
    found
}

/// Determines the state of the commits up to the head.
pub(super) fn look(
    backend: &WorkspaceBackend,
    git: &Git,
    workspace: &Workspace,
    status: &Status,
    aid: &mut SurveyContext<'_>,
) -> Result<LandedCommits, WorkspaceError> {
    let Some(head) = status.head.as_deref() else {
        return Ok(LandedCommits { how: Some(Landed::Nothing), ..LandedCommits::default() });
    };
    let targets = targets(aid.refs, workspace, status.branch.as_deref());
    let mut asks = Asks { backend, git, workspace, head, aid };
    let unpushed = asks.unpushed()?;
    if head == workspace.base {
        return Ok(LandedCommits { ahead: 0, unpushed, how: Some(Landed::Nothing) });
    }
    let mut ahead = None;
    for target in &targets {
        let count = asks.count(target)?;
        if count == 0 {
            return Ok(LandedCommits { ahead: 0, unpushed, how: Some(Landed::Merged) });
        }
        ahead = Some(ahead.map_or(count, |fewest: usize| fewest.min(count)));
    }
    let ahead = match ahead {
        Some(ahead) => ahead,
        None => asks.count(&workspace.base)?,
    };
    if workspace.landed.as_deref() == Some(head) {
        return Ok(LandedCommits { ahead: 0, unpushed, how: Some(Landed::Recorded) });
    }
    for target in &targets {
        if let Some(how) = asks.rewritten(target)? {
            return Ok(LandedCommits { ahead: 0, unpushed, how: Some(how) });
        }
    }
    // Without a target branch, the work counts as landed only if there are no commits.
    let how = (ahead == 0 && targets.is_empty()).then_some(Landed::Merged);
    Ok(LandedCommits { ahead, unpushed, how })
}

/// The number of commits up to `newest` that have not landed, and how the others did.
pub(super) fn seen(workspace: &Workspace, newest: &str, ahead: usize, untouched: bool) -> (usize, Option<Landed>) {
    match ahead {
        0 if untouched => (0, Some(Landed::Nothing)),
        0 => (0, Some(Landed::Merged)),
        _ if workspace.landed.as_deref() == Some(newest) => (0, Some(Landed::Recorded)),
        _ => (ahead, None),
    }
}

/// How the work on a branch landed, for a workspace that was removed.
pub(super) fn of_branch(
    backend: &WorkspaceBackend,
    workspace: &Workspace,
    head: &str,
    refs: &Refs,
) -> Result<Option<Landed>, WorkspaceError> {
    let status = Status { head: Some(head.to_owned()), branch: workspace.branch.clone(), ..Status::default() };
    let row = Workspace { kind: WorkspaceKind::Worktree, ..workspace.clone() };
    Ok(look(backend, backend.git()?, &row, &status, &mut SurveyContext::none(refs))?.how)
}

struct Asks<'a, 'r> {
    backend: &'a WorkspaceBackend,
    git: &'a Git,
    workspace: &'a Workspace,
    head: &'a str,
    aid: &'a mut SurveyContext<'r>,
}

impl Asks<'_, '_> {
    /// A git command; in a clone, with access to its parent's objects.
    fn run<const N: usize>(&self, args: [&str; N]) -> Result<Run, WorkspaceError> {
        let run = self.git.run(args)?;
        Ok(match self.workspace.kind {
            WorkspaceKind::Clone => {
                run.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", self.backend.common_dir.join("objects"))
            }
            _ => run,
        })
    }

    /// The cached answer to a question about commits, which never changes.
    fn once(
        &mut self,
        question: &str,
        about: &str,
        ask: impl FnOnce(&Self) -> Result<String, WorkspaceError>,
    ) -> Result<String, WorkspaceError> {
        let mut facts = std::mem::take(&mut self.aid.facts);
        let answer = facts.once(format!("{question} {} {about}", self.head), || ask(self));
        self.aid.facts = facts;
        answer
    }

    /// Number of commits that `target` does not have.
    fn count(&mut self, target: &str) -> Result<usize, WorkspaceError> {
        let text = self.once("ahead", target, |asks| {
            Ok(asks.run(["rev-list", "--count", asks.head, &format!("^{target}")])?.text()?)
        })?;
        Ok(text.parse().unwrap_or(usize::MAX))
    }

    /// Number of commits that no remote has; 0 without remotes.
    fn unpushed(&mut self) -> Result<usize, WorkspaceError> {
        let ask = |asks: &Self| Ok(asks.run(["rev-list", "--count", asks.head, "--not", "--remotes"])?.text()?);
        let text = if self.workspace.kind == WorkspaceKind::Clone {
            // A clone has remotes of its own.
            let any = self.git.run(["for-each-ref", "--count=1", "--format=x", "refs/remotes"])?.maybe()?;
            if any.is_some() { ask(self)? } else { "0".to_owned() }
        } else {
            match self.aid.refs.remotes_hash() {
                Some(remotes) => self.once("unpushed", &remotes, ask)?,
                None => "0".to_owned(),
            }
        };
        Ok(text.parse().unwrap_or(usize::MAX))
    }

    /// Whether `target` contains the work as other commits.
    fn rewritten(&mut self, target: &str) -> Result<Option<Landed>, WorkspaceError> {
        let answer = self.once("landed", target, |asks| asks.proved(target).map(str::to_owned))?;
        Ok(match answer.as_str() {
            "rebased" => Some(Landed::Rebased),
            "squashed" => Some(Landed::Squashed),
            _ => None,
        })
    }

    /// Searches a commit of `target` that contains the work: merging the work into it changes nothing.
    fn proved(&self, target: &str) -> Result<&'static str, WorkspaceError> {
        let Some(base) = self.run(["merge-base", target, self.head])?.maybe()? else { return Ok("no") };
        if base == target {
            // The target has no commits since, so the work has landed if it changes nothing.
            let trees = [target, self.head].map(|commit| format!("{commit}^{{tree}}"));
            let said = self.run(["rev-parse"])?.args(trees).text()?;
            let same = said.lines().collect::<std::collections::BTreeSet<_>>().len() == 1;
            return Ok(if same { "squashed" } else { "no" });
        }
        let changed = self.run(["diff-tree", "-r", "--name-only", "--no-renames", "-z", &base, self.head])?.ok()?;
        let paths: Vec<_> = changed.split(|byte| *byte == 0).filter(|path| !path.is_empty()).collect();
        let run = self.run(["--literal-pathspecs", "log", "--no-walk", "--format=%H %T", target])?;
        let mut tried = run.text()?;
        if !paths.is_empty() {
            let log = self.run(["--literal-pathspecs", "log", "--format=%H %T", "--no-show-signature", TRIED])?;
            let mut log = log.arg(format!("{base}..{target}")).arg("--");
            if paths.len() <= MOST_PATHS {
                log = log.args(paths.iter().map(|path| super::survey::path_of(path)));
            }
            tried = format!("{tried}\n{}", log.text()?);
        }
        let tried: Vec<(&str, &str)> = tried.lines().filter_map(|line| line.split_once(' ')).collect();
        let pairs: Vec<(&str, &str)> = tried.iter().map(|(commit, _)| (*commit, self.head)).collect();
        let objects = self.git.run(["rev-parse", "--path-format=absolute", "--git-path", "objects"])?.text()?;
        let shared = self.backend.common_dir.join("objects");
        let merged = trial_merge::merge(self.git, &[Path::new(&objects), &shared], &pairs)?;
        let nothing =
            |(merged, (_, tree)): (&trial_merge::MergeResult, &(&str, &str))| merged.clean && merged.tree == *tree;
        if !merged.iter().zip(&tried).any(nothing) {
            return Ok("no");
        }
        let merges = self.run(["rev-list", "--count", "--merges", &format!("{base}..{}", self.head)])?.text()?;
        let each = self.run(["cherry", target, self.head])?.text()?;
        let one_by_one = merges == "0" && !each.is_empty() && each.lines().all(|line| line.starts_with('-'));
        Ok(if one_by_one { "rebased" } else { "squashed" })
    }
}
