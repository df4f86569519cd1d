//! The head of the queue, as a claim sees it.

use toft_core::{
    change::{QueueEntry, Write},
    flow::Workflow,
    store::Result,
};

use super::{
    facts::{Asked, Candidate},
    load::body,
    sql,
    tx::PostgresTx,
    wire::Row,
};
use crate::{
    query::Query,
    rows::{self, Cells},
    value::{Bind, Value, kept},
};

impl PostgresTx<'_> {
    /// Tasks at the head of a lane that no other claim is looking at; whatever is there if that is not enough.
    pub(super) fn take_candidates(&mut self, lane: &str, after: &str, upto: &str, limit: usize) -> Result<()> {
        let values = kept![lane, after, upto, self.facts.widen(limit)];
        let values: Vec<Value<'static>> = self.bound(&values).iter().map(Value::keep).collect();
        if self.alone {
            let rows = self.fetch(&[(candidates_unmarked(), values)])?.remove(0);
            return self.take_candidate_rows(&rows).map(drop);
        }
        self.facts.marked.insert(lane.to_owned());
        let take = (sql!("queue_take").to_owned(), values.clone());
        let batch = [take.clone(), take];
        let rows = self.fetch(&batch[..self.store.takes()])?.pop().unwrap_or_default();
        let found = self.take_candidate_rows(&rows)?;
        if limit == 0 || found < limit {
            let rows = self.fetch(&[(candidates_unmarked(), values)])?.remove(0);
            self.take_candidate_rows(&rows)?;
        }
        Ok(())
    }

    pub(super) fn take_candidate_rows(&mut self, rows: &[Row]) -> Result<usize> {
        for row in rows {
            let (entry, task) = rows::queued(&mut Cells::of("queue", row))?;
            let at = row.len() - 3;
            let workflow: Workflow = body("workflows", row.word(at + 1))?;
            let (query, values) = (Query::workflow_get, vec![workflow.id.as_str().bind().keep()]);
            if !self.facts.knows(query, &values) {
                self.facts.asked.push(Asked { query, values, print: Some(row.number(at + 2)) });
                self.facts.take_workflow(workflow);
            }
            let QueueEntry { lane, rank, .. } = entry.clone();
            let candidate = Candidate { rank, lane, print: row.number(at) };
            self.facts.candidates.entry(task.id.clone()).or_insert(candidate);
            self.facts.take_task(task);
            self.facts.take(Write::Queue(entry))?;
        }
        Ok(rows.len())
    }
}

/// Candidates though another claim is looking at them.
fn candidates_unmarked() -> String {
    sql!("queue_take").replace("    WHERE pg_try_advisory_xact_lock(hashtextextended($1 || o.task, 1))\n", "")
}
