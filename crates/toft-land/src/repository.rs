//! The seam between landing and version control.

use toft_core::landing::WorkChanges;
use toft_vcs::{
    landing::{LandingRepository, MergeWay, Merged},
    workspace::WorkspaceError,
};

/// The questions about commits that decide what lands. Answering them moves no branch and touches no checkout.
///
/// [`LandingRepository`] asks git. Unit tests answer from a table of commits (`fake_repository`), so that every
/// decision in `stack` and `forecast` is tested without a process.
pub(crate) trait MergeRepository {
    /// Returns the tree of a commit. Two commits with equal trees have equal files, and share their verdict.
    fn tree_of(&self, commit: &str) -> Result<String, WorkspaceError>;

    /// Builds the commit that has `tip` on top of `base`.
    fn build_candidate(&self, base: &str, tip: &str, spec: &CandidateSpec) -> Result<Merged, WorkspaceError>;

    /// Merges each pair of commits in memory and returns the files in which it conflicts; `None` if it merges.
    fn conflicts_of(&self, pairs: &[(String, String)]) -> Result<Vec<Option<Vec<String>>>, WorkspaceError>;

    /// Returns what the commits of each tip change, without those that `base` has.
    fn work_changes(&self, base: &str, tips: &[String]) -> Result<Vec<WorkChanges>, WorkspaceError>;
}

/// How a candidate's commit is made, and what its message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CandidateSpec {
    pub(crate) way: MergeWay,
    pub(crate) subject: String,
    /// Names and values.
    pub(crate) trailers: Vec<(String, String)>,
}

impl CandidateSpec {
    /// A merge commit without trailers: one that is only checked, or that belongs to no landing.
    pub(crate) fn merge(subject: impl Into<String>) -> Self {
        Self { way: MergeWay::Merge, subject: subject.into(), trailers: Vec::new() }
    }
}

impl MergeRepository for LandingRepository {
    fn tree_of(&self, commit: &str) -> Result<String, WorkspaceError> {
        self.tree(commit)
    }

    fn build_candidate(&self, base: &str, tip: &str, spec: &CandidateSpec) -> Result<Merged, WorkspaceError> {
        self.candidate(base, tip, spec.way, &spec.subject, &spec.trailers)
    }

    fn conflicts_of(&self, pairs: &[(String, String)]) -> Result<Vec<Option<Vec<String>>>, WorkspaceError> {
        self.forecast(pairs)
    }

    fn work_changes(&self, base: &str, tips: &[String]) -> Result<Vec<WorkChanges>, WorkspaceError> {
        self.changes(base, tips)
    }
}
