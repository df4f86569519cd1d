//! The results of checks.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext};
use crate::{
    change::Write,
    id::RepositoryId,
    landing::{CheckRun, Verdict},
    may::May,
    refusal::VerbResult,
    rights::{self, Action},
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// Record a run of the check on a tree.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandRecordCheck")]
pub struct RecordCheck {
    pub repository: RepositoryId,
    pub tree: String,
    /// A digest of the commands.
    pub check: String,
    pub passed: bool,
    #[serde(default)]
    pub ms: u64,
    /// How it ended, and the end of its output if it failed.
    #[serde(default)]
    pub message: String,
    /// The path of the log.
    #[serde(default)]
    pub log: String,
}

impl Verb for RecordCheck {
    type Outcome = Verdict;
    const NAME: &'static str = "land.record_check";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Verdict> {
        rights::require(work, Action::Land)?;
        let Self { repository, tree, check, passed, ms, message, log } = self;
        let key = Verdict::key(&repository, &tree, &check);
        let known = work.tx.verdict(&key)?;
        let mut verdict = known.unwrap_or_else(|| Verdict { key, repository, tree: tree.clone(), runs: Vec::new() });
        verdict.runs.push(CheckRun { passed, at: work.now.wall, ms, message, log });
        let detail = json!({ "passed": passed, "ms": ms, "runs": verdict.runs.len() });
        work.record(&tree, "land.checked", detail, vec![Write::Verdict(verdict.clone())])?;
        Ok(verdict)
    }
}

/// What is known of trees.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandVerdicts")]
pub struct Verdicts {
    pub repository: RepositoryId,
    pub trees: Vec<String>,
    /// A digest of the commands.
    pub check: String,
}

impl Verb for Verdicts {
    type Outcome = Vec<Verdict>;
    const NAME: &'static str = "land.verdicts";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Verdict>> {
        let mut known = Vec::new();
        for tree in &self.trees {
            known.extend(work.tx.verdict(&Verdict::key(&self.repository, tree, &self.check))?);
        }
        Ok(known)
    }
}

/// Checks of a repository that came to different results on the same tree.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LandFlaky")]
pub struct Flaky {
    pub repository: RepositoryId,
}

impl Verb for Flaky {
    type Outcome = Vec<Verdict>;
    const NAME: &'static str = "land.flaky";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Verdict>> {
        Ok(work.tx.flaky_verdicts(&self.repository)?)
    }
}
