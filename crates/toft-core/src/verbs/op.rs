//! Operations on data outside of the store, such as a ledger. Their answers are stored, so that repeating one returns
//! the same answer, and a different request with the same id is refused.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Operation, Verb, VerbContext};
use crate::{
    change::{Receipt, Write},
    may::May,
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// The verb in receipts of such operations.
const COMMAND: &str = "command";

/// The stored answer of this operation, if it ran before.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OpRecall")]
pub struct Recall {
    /// The operation.
    pub op: Operation,
}

impl Verb for Recall {
    type Outcome = Option<Value>;
    const NAME: &'static str = "op.recall";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Option<Value>> {
        let Some(receipt) = work.tx.receipt(&self.op.id)? else { return Ok(None) };
        let same = receipt.verb == COMMAND && receipt.actor == work.actor && receipt.request == self.op.request;
        if same {
            return Ok(Some(receipt.outcome));
        }
        let Receipt { op, verb, actor, .. } = receipt;
        Err(Refusal::OpReused { op: op.to_string(), verb, actor }.into())
    }
}

/// Store the answer of this operation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OpRemember")]
pub struct Remember {
    /// The operation.
    pub op: Operation,
    pub answer: Value,
}

impl Verb for Remember {
    type Outcome = ();
    const NAME: &'static str = "op.remember";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<()> {
        if work.tx.receipt(&self.op.id)?.is_some() {
            return Ok(());
        }
        if work.op.as_ref() == Some(&self.op.id) {
            let problem = "an operation cannot remember itself".to_owned();
            return Err(Refusal::Invalid { field: "op".into(), problem }.into());
        }
        let Operation { id: op, request } = self.op;
        let (actor, verb, outcome, at) = (work.actor.to_owned(), COMMAND.to_owned(), self.answer, work.now.wall);
        Ok(work.tx.write_derived(&[Write::Receipt(Receipt { op, actor, verb, request, outcome, at })])?)
    }
}
