//! Gc: write into history what was forgotten. Forgetting itself is done in batches before, by the store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Verb, VerbContext};
use crate::{refusal::VerbResult, retention::RetentionKind, store::Access};

/// So many rows of each kind are gone.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GcRequest")]
pub struct Request {
    /// Only kinds of which some are.
    #[serde(default)]
    pub gone: Vec<(RetentionKind, u64)>,
}

/// What was forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GcOutcome")]
pub struct Outcome {
    /// How many rows of each kind.
    pub gone: Vec<(RetentionKind, u64)>,
}

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "gc";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Outcome> {
        let detail = self.gone.iter().map(|(what, count)| (what.as_str().to_owned(), Value::from(*count))).collect();
        work.record("store", "data.forgotten", Value::Object(detail), Vec::new())?;
        Ok(Outcome { gone: self.gone })
    }
}
