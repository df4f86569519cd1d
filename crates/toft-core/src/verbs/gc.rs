//! Gc: record in the log what retention deleted. The store deletes rows in batches before this.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Verb, VerbContext};
use crate::{
    may::May,
    schema::JsonSchema,
    token::TokenRole,
    {refusal::VerbResult, retention::RetentionKind, store::Access},
};

/// Record the number of deleted rows of each kind.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GcRequest")]
pub struct Request {
    /// The kinds with deleted rows, and their numbers.
    #[serde(default)]
    pub gone: Vec<(RetentionKind, u64)>,
}

/// The deleted rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GcOutcome")]
pub struct Outcome {
    /// Number of rows per kind.
    pub gone: Vec<(RetentionKind, u64)>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "gc";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Admin);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let detail = self.gone.iter().map(|(what, count)| (what.as_str().to_owned(), Value::from(*count))).collect();
        work.record("store", "data.forgotten", Value::Object(detail), Vec::new())?;
        Ok(Outcome { gone: self.gone })
    }
}
