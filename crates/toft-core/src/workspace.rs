//! Workspaces: directories in which work is done, each isolated from every other.
//!
//! What is stored is how far a directory is on its way from being asked for to being gone. Whether somebody works in it
//! follows from the lease of its task, and whether it may go from what is in it ([`Survey`]): neither is stored.

use std::{collections::BTreeMap, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    id::{RepositoryId, TaskId, WorkspaceId},
    time::Timestamp,
};

/// A directory in which one task is worked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Workspace {
    /// Stable id; it exists before the directory does.
    pub id: WorkspaceId,
    /// Of which repository.
    pub repository: RepositoryId,
    /// What people call it: unique among those of a repository that are not gone.
    pub name: String,
    /// How it is isolated.
    pub kind: WorkspaceKind,
    /// Where it is.
    pub path: String,
    /// On which machine.
    pub host: String,
    /// The checkout it was made from.
    pub source: String,
    /// The branch it was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The branch was made for it, and goes with it once it has landed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_branch: bool,
    /// The commit it was made from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub base: String,
    /// The branch its work is to land on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onto: Option<String>,
    /// What is done in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// How far it is.
    pub state: WorkspaceState,
    /// Made ahead, for whoever needs one next.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pooled: bool,
    /// Nobody removes it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// When it was asked for.
    pub created: Timestamp,
    /// When it was last handed out.
    pub used: Timestamp,
    /// Why it is as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The frozen checkout it stands on, if it shares its files.
    #[serde(default, rename = "stands_on", skip_serializing_if = "Option::is_none")]
    pub overlay_base: Option<String>,
    /// Numbers that nobody else in this store has, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
    /// The commit that holds everything that was in it, under a reference of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescue: Option<String>,
    /// The commit at which its work was recorded as landed, however that was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<String>,
    /// What no rescue holds and went with its directory; recorded before anything is deleted.
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

/// A file or directory that a rescue does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Left {
    /// Its path in the workspace.
    pub path: String,
    /// Its size, with everything below it.
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
    /// A checkout somebody made by hand, or the user's own: never removed.
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

/// How far a workspace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceState {
    /// Asked for; its directory is being made.
    Provisioning,
    /// There, to be worked in.
    Ready,
    /// Being taken away; everything in it is safe first.
    Removing,
    /// Gone, or never made.
    Removed,
    /// Something went wrong; it is kept as it is until somebody looks.
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
    /// Every one, until somebody tidies up.
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

/// What is in a workspace, and how much of it is nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Survey {
    /// The commit it stands on.
    pub head: String,
    /// The branch it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Files that are staged.
    pub staged: usize,
    /// Files that are tracked and changed, deleted ones among them.
    pub changed: usize,
    /// Files that are not tracked.
    pub untracked: usize,
    /// Ignored files that a rescue holds: small ones, and those in small directories.
    pub ignored: usize,
    /// Repositories inside, submodules with work of their own among them: a rescue holds them byte for byte.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nested: Vec<String>,
    /// Large ignored files and directories, and those that can be built again: a rescue holds them only on request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artefacts: Vec<String>,
    /// Stashes made on its branch; of a clone, all of them.
    pub stashes: usize,
    /// Commits that only its own log knows.
    pub dropped: usize,
    /// Of a clone: commits that its repository does not have.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub apart: usize,
    /// Of these, commits on other branches than the one it is on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub beside: usize,
    /// Commits that have not landed.
    pub ahead: usize,
    /// Commits that no remote has.
    pub unpushed: usize,
    /// The branch that its branch follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// How its commits landed; nothing while they have not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<Landed>,
    /// What was begun and is not over: a merge, a rebase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// Why it must not be removed: somebody locked it, or it holds what no rescue can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// How commits came to be where they were to land.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Landed {
    /// There are none: nothing was committed yet.
    Nothing,
    /// They are ancestors.
    Merged,
    /// Each was put there as another commit with the same change.
    Rebased,
    /// Merging them into what is there, or was there at some time since, changes nothing.
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

/// What may become of a workspace that nobody needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It may go: nothing in it is nowhere else.
    Go,
    /// It may go once everything in it is safe.
    Rescue,
    /// It stays.
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
            (self.dropped, "in its log only"),
            (self.ahead, "not landed"),
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

/// What workspaces may take while nobody needs them.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The time it is.
    pub now: Timestamp,
    /// Not handed out for so long.
    pub max_age: Option<Duration>,
    /// So many bytes together.
    pub max_bytes: Option<u64>,
    /// So many.
    pub max_count: Option<usize>,
    /// What they take now.
    pub bytes: u64,
    /// How many there are now.
    pub count: usize,
}

impl Limits {
    /// Too old, or one too many; the oldest are looked at first.
    #[must_use]
    pub fn too_old(&self, workspace: &Workspace) -> bool {
        self.max_age.is_some_and(|age| self.now.since(workspace.used) >= age)
            || self.max_count.is_some_and(|most| self.count > most)
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
