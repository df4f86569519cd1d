//! Reads the queue: selects the lanes and the key that a filter needs, so that a claim skips few tasks that it cannot
//! take.

use std::collections::{BTreeSet, VecDeque};

use crate::{
    change::QueueEntry,
    flow::{Task, Workflow},
    ready::{assigned_lane, assignee, homes, rank, required, requiring, workflow_lane},
    repository::Scope,
    store::{QueueKey, QueueScan, Result, StoreTx},
};

/// Number of entries read at a time if some of them may not match.
const PAGE: usize = 64;

/// A search ends after this many entries that matched one key of the filter but not the others.
const MISSES: usize = 1_000;

/// Maximum number of different sets of required capabilities that are read for one lane.
const SETS: usize = 256;

/// Selects tasks of the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filter<'a> {
    /// The scope of the query.
    pub(crate) scope: &'a Scope,
    /// Only tasks of this workflow.
    pub(crate) workflow: Option<&'a Workflow>,
    /// Only tasks with all of these labels.
    pub(crate) labels: &'a [String],
    /// Only tasks without any of these labels.
    pub(crate) without: &'a [String],
    /// Only tasks that require no other capabilities; all tasks if absent.
    pub(crate) capabilities: Option<&'a [String]>,
    /// Also tasks that are assigned to the agent of this name; tasks assigned to other agents are never included.
    pub(crate) mine: Option<&'a str>,
}

impl Filter<'_> {
    /// The keys under which a matching task is indexed: each narrows the queue, and only all of them together decide.
    fn keys(&self) -> Vec<QueueKey> {
        let mut keys: Vec<_> = self.workflow.iter().map(|workflow| QueueKey::Workflow(workflow.id.clone())).collect();
        keys.extend(self.labels.iter().cloned().map(QueueKey::Label));
        keys.extend(self.scope.worktree.clone().map(QueueKey::Worktree));
        if keys.is_empty() { vec![QueueKey::All] } else { keys }
    }

    /// The key under which all matching tasks and no others are indexed, if one is enough.
    pub(crate) fn only_key(&self) -> Option<QueueKey> {
        let mut keys = self.keys();
        if keys.len() == 1 && self.without.is_empty() { keys.pop() } else { None }
    }

    /// Whether the task matches, except for its required capabilities.
    pub(crate) fn fits(&self, task: &Task) -> bool {
        self.workflow.is_none_or(|workflow| workflow.id == task.workflow)
            && self.labels.iter().all(|label| task.spec.labels.contains(label))
            && !self.without.iter().any(|label| task.spec.labels.contains(label))
            && self.scope.covers(&task.place)
            && (task.spec.assigned_to.is_none() || task.spec.assigned_to.as_deref() == self.mine)
    }

    /// The lanes of matching tasks that require no capabilities: every open lane in scope.
    fn bases(&self, tx: &mut dyn StoreTx) -> Result<Vec<String>> {
        let mut bases = self.common(tx)?;
        if let Some(name) = self.mine {
            let own: Vec<_> = bases.iter().map(|base| assigned_lane(base, name)).collect();
            bases.extend(own);
        }
        Ok(bases)
    }

    /// The same for tasks that are not assigned.
    fn common(&self, tx: &mut dyn StoreTx) -> Result<Vec<String>> {
        let homes = homes(tx, self.scope)?;
        Ok(match self.workflow {
            // Whether it has room now, a claim sees when it takes something.
            Some(workflow) if workflow.limited() => {
                homes.iter().map(|home| workflow_lane(home, &workflow.id)).collect()
            }
            Some(_) => homes,
            None => {
                let mut bases = homes.clone();
                for workflow in tx.open_lanes(self.scope)? {
                    bases.extend(homes.iter().map(|home| workflow_lane(home, &workflow.id)));
                }
                bases
            }
        })
    }

    fn satisfied(&self, lane: &str) -> bool {
        self.capabilities.is_none_or(|offered| required(lane).iter().all(|tag| offered.contains(tag)))
    }
}

/// The lanes beside `bases` whose tasks require capabilities.
fn requiring_lanes(tx: &mut dyn StoreTx, bases: &[String]) -> Result<Vec<String>> {
    let prefixes: Vec<_> = bases.iter().map(|base| requiring(base)).collect();
    if prefixes.is_empty() { Ok(Vec::new()) } else { tx.lanes(&prefixes, SETS) }
}

/// The lanes in scope whose tasks are assigned, each with the name of the agent.
pub(crate) fn assigned_lanes(tx: &mut dyn StoreTx, scope: &Scope) -> Result<Vec<(String, String)>> {
    let all = Filter { scope, workflow: None, labels: &[], without: &[], capabilities: None, mine: None };
    let prefixes: Vec<_> = all.common(tx)?.iter().map(|base| assigned_lane(base, "")).collect();
    let lanes = if prefixes.is_empty() { Vec::new() } else { tx.lanes(&prefixes, SETS)? };
    Ok(lanes.into_iter().filter_map(|lane| assignee(&lane).map(str::to_owned).map(|name| (lane, name))).collect())
}

/// Walks the queue in the order of [`rank`], over every open lane that a filter allows.
pub(crate) struct Queue<'a> {
    filter: Filter<'a>,
    bases: Vec<String>,
    lanes: Vec<String>,
    keys: Vec<QueueKey>,
    /// Number of pages read; selects the key of the next page.
    turns: usize,
    page: usize,
    taking: bool,
    /// All matching tasks up to and including this rank have been read.
    after: String,
    heads: VecDeque<(String, Task)>,
    joined: VecDeque<(String, Task)>,
    drained: bool,
    misses: usize,
}

impl<'a> Queue<'a> {
    /// The queue as `filter` sees it, without timers, for a caller that only reads.
    pub(crate) fn open(tx: &mut dyn StoreTx, filter: Filter<'a>, page: usize) -> Result<Self> {
        let bases = filter.bases(tx)?;
        let mut lanes = bases.clone();
        // An agent without capabilities need not know which ones are required.
        if filter.capabilities.is_none_or(|offered| !offered.is_empty()) {
            lanes.extend(requiring_lanes(tx, &bases)?.into_iter().filter(|lane| filter.satisfied(lane)));
        }
        let keys = filter.keys();
        let page = if keys.len() > 1 || !filter.without.is_empty() { PAGE } else { page };
        let (heads, joined) = (VecDeque::new(), VecDeque::new());
        let (after, taking, drained) = (String::new(), false, lanes.is_empty());
        Ok(Self { filter, bases, lanes, keys, turns: 0, page, taking, after, heads, joined, drained, misses: 0 })
    }

    /// The same for a caller that takes `count` tasks. Under one key every entry matches, so only the taken entries are
    /// read.
    pub(crate) fn take(tx: &mut dyn StoreTx, filter: Filter<'a>, count: usize) -> Result<Self> {
        let queue = Self::open(tx, filter, count)?;
        let taking = queue.keys.len() == 1 && filter.without.is_empty();
        Ok(Self { taking, ..queue })
    }

    /// Adds tasks that are in no lane, each at its rank.
    pub(crate) fn join(&mut self, tasks: Vec<Task>) {
        self.joined.extend(tasks.into_iter().map(|task| (rank(&task), task)));
        self.joined.make_contiguous().sort_by(|a, b| a.0.cmp(&b.0));
    }

    /// The next task and its rank.
    pub(crate) fn next(&mut self, tx: &mut dyn StoreTx) -> Result<Option<(String, Task)>> {
        while self.heads.is_empty() && !self.drained && self.misses < MISSES {
            self.read_page(tx)?;
        }
        let joined_first = match (self.heads.front(), self.joined.front()) {
            (Some(head), Some(joined)) => joined.0 < head.0,
            (None, joined) => joined.is_some(),
            (Some(_), None) => false,
        };
        Ok(if joined_first { self.joined.pop_front() } else { self.heads.pop_front() })
    }

    /// Reads the next page under the next key. A matching task is indexed under every key, so a task that one page
    /// excludes is excluded for all keys, and the key with the fewest entries ends the search.
    fn read_page(&mut self, tx: &mut dyn StoreTx) -> Result<()> {
        let key = &self.keys[self.turns % self.keys.len()];
        self.turns += 1;
        let (lanes, after) = (&self.lanes, self.after.as_str());
        let scan = QueueScan { lanes, key, after, upto: None, limit: self.page, taking: self.taking };
        let page = tx.queued(&scan)?;
        self.drained = page.len() < self.page;
        if let Some((QueueEntry { rank, .. }, _)) = page.last() {
            self.after.clone_from(rank);
        }
        for (entry, task) in page {
            if self.filter.fits(&task) {
                self.heads.push_back((entry.rank, task));
            } else {
                self.misses += 1;
            }
        }
        Ok(())
    }

    /// Skips the other queued tasks of a workflow that has no free capacity.
    pub(crate) fn leave_out(&mut self, workflow: &Workflow) {
        let ends = format!("/{}", workflow.id);
        self.lanes.retain(|lane| !lane.split(['+', '@']).next().is_some_and(|base| base.ends_with(&ends)));
        self.heads.retain(|(_, task)| task.workflow != workflow.id);
        self.drained |= self.lanes.is_empty();
    }

    /// Number of entries that did not match, if the search ended before the end of the queue.
    pub(crate) fn cut_after(&self) -> Option<usize> {
        (self.misses >= MISSES && !self.drained).then_some(self.misses)
    }

    /// The capabilities that the caller lacks for the best matching tasks.
    pub(crate) fn lacking(&self, tx: &mut dyn StoreTx) -> Result<BTreeSet<String>> {
        let Some(offered) = self.filter.capabilities else { return Ok(BTreeSet::new()) };
        let mut lanes = requiring_lanes(tx, &self.bases)?;
        lanes.retain(|lane| !self.filter.satisfied(lane));
        if lanes.is_empty() {
            return Ok(BTreeSet::new());
        }
        let (lanes, key) = (&lanes, &self.keys[0]);
        let scan = QueueScan { lanes, key, after: "", upto: None, limit: PAGE, taking: false };
        let found = tx.queued(&scan)?.into_iter().filter(|(_, task)| self.filter.fits(task));
        Ok(found.flat_map(|(_, task)| task.lacking(offered)).collect())
    }
}
