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
    wire::{Row, Statement},
};
use crate::{
    query::Query,
    rows::{self, Cells},
    value::{Bind, kept},
};

impl PostgresTx<'_> {
    /// Tasks at the head of a lane that no other claim is looking at; whatever is there if that is not enough.
    pub(super) fn take_candidates(&mut self, lane: &str, after: &str, upto: &str, limit: usize) -> Result<()> {
        let wide = self.facts.widen(limit);
        if !self.alone {
            self.facts.marked.insert(lane.to_owned());
            let rows = self.fetch(&self.take_twice(lane, after, upto, wide))?.pop().unwrap_or_default();
            if limit > 0 && self.take_candidate_rows(&rows)? >= limit {
                return Ok(());
            }
        }
        let rows = self.fetch(&[self.take(lane, after, upto, wide, false)])?.remove(0);
        self.take_candidate_rows(&rows).map(drop)
    }

    /// Looks twice: the first look leaves marks, so that the second cannot see what another claim has just taken.
    pub(super) fn take_twice(&self, lane: &str, after: &str, upto: &str, limit: Option<i64>) -> [Statement; 2] {
        [(); 2].map(|()| self.take(lane, after, upto, limit, true))
    }

    fn take(&self, lane: &str, after: &str, upto: &str, limit: Option<i64>, marking: bool) -> Statement {
        self.store.of_space(sql!("queue_take"), &kept![lane, after, upto, limit, marking])
    }

    pub(super) fn take_candidate_rows(&mut self, rows: &[Row]) -> Result<usize> {
        for row in rows {
            let (entry, task) = rows::queued(&mut Cells::of("queue", row).keeping(Some(&self.unknown)))?;
            let at = row.len() - 3;
            let workflow: Workflow = body("workflows", row.word(at + 1)?)?;
            let (query, values) = (Query::workflow_get, vec![workflow.id.as_str().bind().keep()]);
            if !self.facts.knows(query, &values) {
                self.facts.asked.push(Asked { query, values, print: Some(row.number(at + 2)?) });
                self.facts.take_workflow(workflow);
            }
            let QueueEntry { lane, rank, .. } = entry.clone();
            let candidate = Candidate { rank, lane, print: row.number(at)? };
            self.facts.candidates.entry(task.id.clone()).or_insert(candidate);
            self.facts.take_task(task);
            self.facts.take(Write::Queue(entry))?;
        }
        Ok(rows.len())
    }
}
