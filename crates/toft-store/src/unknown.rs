//! Keeps fields that this version does not know: a newer version wrote them into a body, and they must still be there
//! after this version has written the row back.
//!
//! A transaction keeps the text of every body that it reads. When it writes such a row, the fields of the old text that
//! the type drops are merged into the new text.

use std::{cell::RefCell, collections::HashMap};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use toft_core::{
    agent::Agent,
    checkpoint::Checkpoint,
    flow::{Template, Workflow},
    gate::Gate,
    landing::{Landing, Verdict},
    message::Message,
    repository::{Repository, Worktree},
    store::{Result, StoreError},
    token::Token,
    workspace::Workspace,
};

/// A row that is stored as JSON.
pub(crate) trait StoredBody: Serialize + DeserializeOwned {
    /// Its table.
    const TABLE: &'static str;
    /// Its key in that table.
    fn key(&self) -> String;
}

macro_rules! bodies {
    ($($type:ty, $table:literal, $row:ident => $key:expr;)*) => {
        $(
            impl StoredBody for $type {
                const TABLE: &'static str = $table;
                fn key(&self) -> String {
                    let $row = self;
                    $key
                }
            }
        )*
    };
}

bodies! {
    Repository, "repositories", row => row.id.to_string();
    Worktree, "worktrees", row => format!("{}/{}", row.repository, row.name);
    Workflow, "workflows", row => row.id.to_string();
    Checkpoint, "checkpoints", row => row.id.to_string();
    Agent, "agents", row => row.id.to_string();
    Message, "messages", row => row.id.to_string();
    Gate, "gates", row => row.id.to_string();
    Workspace, "workspaces", row => row.id.to_string();
    Landing, "landings", row => row.id.to_string();
    Verdict, "verdicts", row => row.key.clone();
    Token, "tokens", row => row.digest.clone();
    Template, "templates", row => format!("{}/{}", row.name, row.version);
}

/// Bodies as they were read, by table and row.
#[derive(Default)]
pub(crate) struct Unknown {
    /// Only texts that are not what this version would write.
    odd_only: bool,
    read: RefCell<HashMap<(&'static str, String), String>>,
}

impl Unknown {
    /// For many rows that are kept for long: keeps only texts with something unknown.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_odd_rows() -> Self {
        Self { odd_only: true, ..Self::default() }
    }

    /// Keeps the text of a row, which was read as `row`.
    pub(crate) fn keep(&self, table: &'static str, key: String, text: String, row: &impl Serialize) {
        if !self.odd_only || serde_json::to_string(row).is_ok_and(|known| known != text) {
            self.read.borrow_mut().insert((table, key), text);
        }
    }

    /// A row as JSON, with the unknown fields of its earlier text.
    pub(crate) fn body<T: StoredBody>(&self, row: &T) -> Result<String> {
        self.merged(T::TABLE, row.key(), row)
    }

    /// The same for a body whose row has another key.
    pub(crate) fn merged<T: Serialize + DeserializeOwned>(
        &self,
        table: &'static str,
        key: String,
        row: &T,
    ) -> Result<String> {
        let failed =
            |error: serde_json::Error| StoreError::Failed { doing: "write JSON".into(), cause: error.to_string() };
        let text = serde_json::to_string(row).map_err(failed)?;
        let read = self.read.borrow();
        let Some(old) = read.get(&(table, key)) else { return Ok(text) };
        let known = serde_json::from_str::<T>(old).and_then(|old| serde_json::to_string(&old)).map_err(failed)?;
        if known == *old {
            return Ok(text);
        }
        let parse = |text: &str| serde_json::from_str::<Value>(text).map_err(failed);
        let mut new = parse(&text)?;
        add_unknown(&parse(old)?, &parse(&known)?, &mut new);
        serde_json::to_string(&new).map_err(failed)
    }
}

/// Adds the fields to `new` that `old` has and that `known`, which is `old` with only the known fields, does not have.
fn add_unknown(old: &Value, known: &Value, new: &mut Value) {
    let (Value::Object(old), Value::Object(known), Value::Object(new)) = (old, known, new) else { return };
    for (field, value) in old {
        match (known.get(field), new.get_mut(field)) {
            (None, None) => drop(new.insert(field.clone(), value.clone())),
            (Some(known), Some(new)) => add_unknown(value, known, new),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_are_not_known_stay_at_every_depth_and_others_are_overwritten() {
        let old = json!({ "a": 1, "new": true, "in": { "b": 2, "deep": [1] }, "gone": { "x": 1 } });
        let known = json!({ "a": 1, "in": { "b": 2 }, "gone": { "x": 1 } });
        let mut now = json!({ "a": 9, "in": { "b": 3 } });
        add_unknown(&old, &known, &mut now);
        assert_eq!(now, json!({ "a": 9, "new": true, "in": { "b": 3, "deep": [1] } }));
    }
}
