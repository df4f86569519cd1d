//! Workspaces: directories in which tasks are worked on, isolated from each other.
//!
//! The store records only the state of the directory, from its request to its removal. Whether an agent works in it is
//! derived from the lease of its task, and whether it may be removed from its content ([`Survey`]): neither is stored.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    id::{RepositoryId, TaskId, WorkspaceId},
    schema::JsonSchema,
    time::Timestamp,
};

/// A directory in which one task is worked on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Workspace {
    /// Stable id, assigned before the directory is created.
    pub id: WorkspaceId,
    pub repository: RepositoryId,
    /// Its display name: unique among the live workspaces of a repository.
    pub name: String,
    /// How it is isolated.
    pub kind: WorkspaceKind,
    pub path: String,
    /// The machine that it is on.
    pub host: String,
    /// The checkout it was made from.
    pub source: String,
    /// The branch it was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The branch was created for it, and is deleted with it once it has landed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_branch: bool,
    /// The commit it was made from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// The target branch of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onto: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    pub state: WorkspaceState,
    /// Created in advance, for the next task that needs a workspace.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pooled: bool,
    /// It must not be removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// When it was requested.
    pub created: Timestamp,
    /// When an agent last got it.
    pub used: Timestamp,
    /// The reason for its state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The base that an overlay workspace uses.
    #[serde(default, rename = "stands_on", skip_serializing_if = "Option::is_none")]
    pub overlay_base: Option<String>,
    /// Port numbers by name, each unique in this store.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
    /// The rescue commit with everything that was in it, under a ref of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescue: Option<String>,
    /// The commit at which its work was recorded as landed, however that was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<String>,
    /// Files that are in no rescue and were deleted with its directory; recorded before the deletion starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<Left>,
}

impl Workspace {
    /// Stands for a row of the store whose body cannot be read. It is on no machine, so nothing is done with it.
    #[must_use]
    pub fn unreadable(id: WorkspaceId, repository: RepositoryId, created: Timestamp, why: String) -> Self {
        Self {
            name: id.to_string(),
            id,
            repository,
            kind: WorkspaceKind::InPlace,
            path: String::new(),
            host: String::new(),
            source: String::new(),
            branch: None,
            own_branch: false,
            base: String::new(),
            onto: None,
            task: None,
            state: WorkspaceState::Quarantined,
            pooled: false,
            pinned: true,
            created,
            used: created,
            reason: Some(why),
            overlay_base: None,
            ports: BTreeMap::new(),
            rescue: None,
            landed: None,
            left: Vec::new(),
        }
    }

    /// Whether this stands for a row that cannot be read.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.host.is_empty() && self.path.is_empty()
    }
}

/// A file or directory that a rescue does not contain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// Its path relative to the workspace.
    pub path: String,
    /// Its size, including everything below it.
    pub bytes: u64,
}

impl Left {
    /// One line for people: the largest first, with sizes.
    #[must_use]
    pub fn summary(all: &[Self]) -> String {
        const NAMED: usize = 5;
        let mut sorted: Vec<&Self> = all.iter().collect();
        sorted.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.path.cmp(&b.path)));
        let mut words: Vec<String> =
            sorted.iter().take(NAMED).map(|left| format!("{} ({})", left.path, size(left.bytes))).collect();
        if sorted.len() > NAMED {
            let bytes = sorted.iter().skip(NAMED).map(|left| left.bytes).sum();
            words.push(format!("{} more ({})", sorted.len() - NAMED, size(bytes)));
        }
        words.join(", ")
    }
}

/// A size for people.
#[must_use]
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// How a workspace is isolated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceKind {
    /// Another checkout of the same repository: a git worktree, a jj workspace, an hg share.
    #[default]
    Worktree,
    /// A repository of its own.
    Clone,
    /// A checkout that a person made by hand, or the user's own: never removed.
    InPlace,
}

impl WorkspaceKind {
    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Worktree => "worktree",
            Self::Clone => "clone",
            Self::InPlace => "in_place",
        }
    }
}

/// The state of a workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceState {
    /// Requested; its directory is being created.
    Provisioning,
    /// Available for work.
    Ready,
    /// Being removed; everything in it is saved first.
    Removing,
    /// Removed, or never created.
    Removed,
    /// An error occurred; it is kept unchanged until a person looks at it.
    Quarantined,
}

impl WorkspaceState {
    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provisioning => "provisioning",
            Self::Ready => "ready",
            Self::Removing => "removing",
            Self::Removed => "removed",
            Self::Quarantined => "quarantined",
        }
    }

    /// Is there, or may there be, a directory?
    #[must_use]
    pub fn live(self) -> bool {
        self != Self::Removed
    }

    /// Which states may follow.
    #[must_use]
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Provisioning => matches!(next, Self::Ready | Self::Quarantined | Self::Removed),
            Self::Ready => matches!(next, Self::Removing | Self::Quarantined),
            Self::Removing => matches!(next, Self::Ready | Self::Removed | Self::Quarantined),
            Self::Quarantined => matches!(next, Self::Ready | Self::Removing | Self::Provisioning),
            Self::Removed => next == Self::Provisioning,
        }
    }
}

/// Which workspaces are kept when their task ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Every workspace, until a person removes it.
    #[default]
    Always,
    /// Those whose work has not landed.
    Unlanded,
    /// Those whose task did not succeed.
    Failed,
}

impl Keep {
    /// May a workspace go when its task ends so, and may what is in it be put away for that?
    #[must_use]
    pub fn lets_go(self, succeeded: bool) -> Option<bool> {
        match self {
            Self::Always => None,
            Self::Unlanded => Some(false),
            Self::Failed => succeeded.then_some(true),
        }
    }
}

/// The content of a workspace, and how much of it exists nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Survey {
    /// The commit that is checked out.
    pub head: String,
    /// The branch that is checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Number of staged files.
    pub staged: usize,
    /// Number of tracked files that were changed or deleted.
    pub changed: usize,
    /// Number of untracked files.
    pub untracked: usize,
    /// Number of ignored files that a rescue contains: small ones, and those in small directories.
    pub ignored: usize,
    /// Nested repositories, including submodules with work of their own: a rescue contains them byte for byte.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nested: Vec<String>,
    /// Large ignored files and directories, and those that can be rebuilt: a rescue contains them only on request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artefacts: Vec<String>,
    /// Number of stashes made on its branch; in a clone, all stashes.
    pub stashes: usize,
    /// Number of commits that only its own reflog names.
    pub dropped: usize,
    /// In a clone: number of commits that its repository does not have.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub apart: usize,
    /// Of these, the number of commits on branches other than the current one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beside: usize,
    /// Number of commits that have not landed.
    pub ahead: usize,
    /// Number of commits that no remote has.
    pub unpushed: usize,
    /// The upstream of its branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// How its commits landed; absent while they have not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<Landed>,
    /// An operation in progress: a merge, a rebase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// Reasons why it must not be removed: it is locked, or it contains something that no rescue can contain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// How commits got into the target branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Landed {
    /// There are no commits.
    Nothing,
    /// They are ancestors of the target.
    Merged,
    /// Each is in the target as another commit with the same change.
    Rebased,
    /// Merging them into the target, or into an earlier state of it, changes nothing.
    Squashed,
    /// A landing was recorded at its present commit.
    Recorded,
}

impl Landed {
    /// The word users see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing new",
            Self::Merged => "landed",
            Self::Rebased => "landed as other commits",
            Self::Squashed => "landed as one commit",
            Self::Recorded => "landed, as recorded",
        }
    }
}

/// What may happen to a workspace that is no longer needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may be removed: everything in it exists elsewhere.
    Go,
    /// It may be removed after a rescue.
    Rescue,
    /// It must stay, for this reason.
    Stay(String),
}

impl Survey {
    /// May it go? Unlanded commits on a branch stay with the branch, but somebody still wants their files.
    #[must_use]
    pub fn fate(&self) -> Fate {
        if !self.stuck.is_empty() {
            return Fate::Stay(self.stuck.join("; "));
        }
        let clean = self.staged + self.changed + self.untracked + self.nested.len() + self.beside == 0;
        match clean && self.doing.is_none() && self.landed.is_some() {
            true => Fate::Go,
            false => Fate::Rescue,
        }
    }

    /// Is anything in it that goes with its directory, or its branch? Commits that were replaced, or landed as others, and
    /// settings nobody would miss are put away too.
    #[must_use]
    pub fn only_here(&self) -> bool {
        let files = self.staged + self.changed + self.untracked + self.ignored + self.nested.len();
        files + self.dropped + self.apart + self.stashes > 0
            || self.doing.is_some()
            || matches!(self.landed, Some(Landed::Rebased | Landed::Squashed | Landed::Recorded))
            || self.branch.is_none() && self.landed.is_none()
    }

    /// Whether there was something to land, and all of it has.
    #[must_use]
    pub fn has_landed(&self) -> bool {
        self.landed.is_some_and(|how| how != Landed::Nothing)
    }

    /// In words, the branch that keeps commits which have not landed, whatever becomes of the workspace. The branches of a
    /// clone go with it.
    #[must_use]
    pub fn kept_by_branch(&self, of: &Workspace) -> Option<String> {
        let branch = self.branch.as_ref().filter(|_| self.ahead > 0 && of.kind == WorkspaceKind::Worktree)?;
        let commits = if self.ahead == 1 { "the commit" } else { "the commits" };
        Some(format!("branch {branch} keeps {commits}"))
    }

    /// What is in it, in a few words.
    #[must_use]
    pub fn summary(&self) -> String {
        let counted = [
            (self.staged, "staged"),
            (self.changed, "changed"),
            (self.untracked, "untracked"),
            (self.stashes, "stashed"),
            (self.dropped, "in its reflog only"),
            (self.ahead, if self.ahead == 1 { "commit not landed" } else { "commits not landed" }),
            (self.beside, "on other branches"),
        ];
        let mut words: Vec<String> =
            counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        words.extend(self.doing.iter().map(|what| format!("{what} in progress")));
        words.extend(self.nested.iter().cloned());
        words.extend(self.stuck.iter().cloned());
        match self.landed {
            Some(how) if words.is_empty() => format!("clean, {}", how.as_str()),
            None if words.is_empty() => "clean, not landed".into(),
            _ => words.join(", "),
        }
    }
}

/// Limits for workspaces that are not in use.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The current time.
    pub now: Timestamp,
    /// Maximum time since an agent last got one.
    pub max_age: Option<Duration>,
    /// Maximum number of bytes of all workspaces.
    pub max_bytes: Option<u64>,
    /// Their current size in bytes.
    pub bytes: u64,
}

impl Limits {
    /// Returns whether a workspace was not used for longer than the maximum.
    #[must_use]
    pub fn too_old(&self, workspace: &Workspace) -> bool {
        self.max_age.is_some_and(|age| self.now.since(workspace.used) >= age)
    }

    fn too_large(&self) -> bool {
        self.max_bytes.is_some_and(|most| self.bytes > most)
    }

    /// What becomes of one that nobody needs: what is only in it keeps it, unless a limit is reached.
    #[must_use]
    pub fn judge(&self, workspace: &Workspace, survey: &Survey) -> Fate {
        match survey.fate() {
            Fate::Rescue if !self.too_old(workspace) && !self.too_large() => Fate::Stay(survey.summary()),
            fate => fate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_clean_and_landed_goes_without_a_rescue() {
        let landed = Survey { landed: Some(Landed::Merged), ..Survey::default() };
        assert_eq!(landed.fate(), Fate::Go);
        assert!(!landed.only_here());
        let squashed = Survey { landed: Some(Landed::Squashed), ..Survey::default() };
        assert_eq!(squashed.fate(), Fate::Go);
        assert!(squashed.only_here(), "its own commits go with its branch");
        let amended = Survey { dropped: 1, ..landed.clone() };
        assert_eq!(amended.fate(), Fate::Go, "what was replaced does not hold it back");
        assert!(amended.only_here(), "but it is put away");
        let clone = Survey { ahead: 1, apart: 1, branch: Some("b".into()), ..Survey::default() };
        assert!(clone.only_here(), "the branch of a clone goes with it");
        for survey in [
            Survey { staged: 1, ..landed.clone() },
            Survey { changed: 1, ..landed.clone() },
            Survey { untracked: 1, ..landed.clone() },
            Survey { doing: Some("rebase".into()), ..landed.clone() },
            Survey { apart: 1, beside: 1, ..landed.clone() },
            Survey { nested: vec!["sub is a repository of its own".into()], ..landed.clone() },
            Survey { ahead: 1, landed: None, ..Survey::default() },
        ] {
            assert_eq!(survey.fate(), Fate::Rescue, "{survey:?}");
        }
        let stuck = Survey { stuck: vec!["locked".into()], ..landed };
        assert_eq!(stuck.fate(), Fate::Stay("locked".into()));
    }
}
