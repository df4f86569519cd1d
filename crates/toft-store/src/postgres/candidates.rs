//! The head of the queue, for a claim.

use toft_core::{
    change::{QueueEntry, Write},
    flow::Workflow,
    ready,
    store::{Access, QueueKey, QueueScan, Result},
};

use super::{
    load::{body, load_queued},
    read_set::{AskedQuery, Candidate, QueueRange},
    sql,
    tx::{PostgresTx, question},
    wire::{Statement, WireRow},
};
use crate::{
    query::{Query, query_of},
    rows::{self, Cells},
    value::{Bind, kept},
};

impl PostgresTx<'_> {
    /// Loads the entries of a scan. A claim reads candidates; other verbs read a list that is validated at commit.
    pub(super) fn read_queue(&mut self, scan: &QueueScan<'_>) -> Result<()> {
        if self.access == Access::Write && !scan.lanes.iter().any(|lane| ready::holds_timers(lane)) {
            let known = |(look, count): &(QueueRange, usize)| {
                look.lanes == scan.lanes && look.key == *scan.key && *count >= scan.limit
            };
            if !(scan.after.is_empty() && self.reads.heads.iter().any(known)) {
                self.take_candidates(scan)?;
            }
        } else {
            let (query, key) = query_of(scan.key);
            let limit = self.reads.widen(scan.limit);
            let asks = |lane: &String| {
                let mut values = kept![lane, scan.after, scan.upto.unwrap_or("~"), limit].to_vec();
                values.extend(key.map(Bind::bind));
                question("queue", query, &values, load_queued)
            };
            self.ask_all(scan.lanes.iter().map(asks).collect())?;
        }
        Ok(())
    }

    /// Lanes on the server and those of this transaction. The absence of a lane is not validated.
    pub(super) fn find_lanes(&mut self, prefixes: &[String], limit: usize) -> Result<Vec<String>> {
        let asks = |prefix: &String| {
            let limit = i64::try_from(limit).ok().filter(|limit| *limit > 0);
            let values = kept![prefix, format!("{prefix}{}", char::MAX), limit];
            self.store.of_space(Query::queue_lanes.postgres(), &values)
        };
        let batch: Vec<_> = prefixes.iter().map(asks).collect();
        let mut lanes = self.reads.tables.lanes(prefixes, limit)?;
        for row in self.fetch(&batch)?.iter().flatten() {
            lanes.push(row.word(0)?.to_owned());
        }
        lanes.sort();
        lanes.dedup();
        Ok(lanes)
    }

    /// Reads queue entries from which a claim chooses. The entries that it will take are marked, and entries that other
    /// claims have marked are skipped, unless too few are left then.
    fn take_candidates(&mut self, scan: &QueueScan<'_>) -> Result<()> {
        let limit = self.reads.widen(scan.limit);
        let look = QueueRange { lanes: scan.lanes.to_vec(), key: scan.key.clone() };
        let (after, upto) = (scan.after, scan.upto.unwrap_or("~"));
        if scan.taking && !self.alone {
            let rows = self.fetch(&self.take_twice(&look, after, upto, limit))?.pop().unwrap_or_default();
            self.reads.marked.insert(look.clone());
            if scan.limit > 0 && self.take_candidate_rows(&rows, true)? >= scan.limit {
                return Ok(());
            }
        }
        let rows = self.fetch(&[self.take(&look, after, upto, limit, false)])?.remove(0);
        self.take_candidate_rows(&rows, scan.taking).map(drop)
    }

    /// Queries twice: the first query sets the marks, so that the second does not see entries that another claim has
    /// just taken.
    pub(super) fn take_twice(&self, look: &QueueRange, after: &str, upto: &str, limit: Option<i64>) -> [Statement; 2] {
        [(); 2].map(|()| self.take(look, after, upto, limit, true))
    }

    pub(super) fn take(
        &self,
        look: &QueueRange,
        after: &str,
        upto: &str,
        limit: Option<i64>,
        marking: bool,
    ) -> Statement {
        if let ([lane], QueueKey::All) = (look.lanes.as_slice(), &look.key) {
            return self.store.of_space(sql!("queue_take"), &kept![lane, after, upto, limit, marking]);
        }
        let (heads, key) = match &look.key {
            QueueKey::All => (sql!("queue_heads"), None),
            QueueKey::Workflow(id) => (sql!("queue_heads_by_workflow"), Some(id.as_str())),
            QueueKey::Worktree(name) => (sql!("queue_heads_by_worktree"), Some(name.as_str())),
            QueueKey::Label(label) => (sql!("queue_heads_by_label"), Some(label.as_str())),
        };
        let text = format!("WITH heads AS MATERIALIZED (\n{heads})\n{}", sql!("queue_take_heads"));
        let lanes = serde_json::json!(look.lanes).to_string();
        let mut values = kept![lanes, after, upto, limit, marking].to_vec();
        values.extend(key.map(|key| key.bind().keep()));
        self.store.of_space(&text, &values)
    }

    /// Loads workflows only together with tasks that will be claimed, because loaded rows are validated at commit.
    pub(super) fn take_candidate_rows(&mut self, rows: &[WireRow], with_workflows: bool) -> Result<usize> {
        for row in rows {
            let (entry, task) = rows::queued(&mut Cells::of("queue", row).keeping(Some(&self.unknown)))?;
            let at = row.len() - 3;
            let workflow: Workflow = body("workflows", row.word(at + 1)?)?;
            let (query, values) = (Query::workflow_get, vec![workflow.id.as_str().bind().keep()]);
            if with_workflows && !self.reads.knows(query, &values) {
                self.reads.asked.push(AskedQuery { query, values, fingerprint: Some(row.number(at + 2)?) });
                self.reads.take_workflow(workflow);
            }
            let QueueEntry { lane, rank, .. } = entry.clone();
            let candidate = Candidate { rank, lane, fingerprint: row.number(at)? };
            self.reads.candidates.entry(task.id.clone()).or_insert(candidate);
            self.reads.take_task(task);
            self.reads.take(Write::Queue(entry))?;
        }
        Ok(rows.len())
    }
}
