//! Derived values of issues: which can start, when, and in which order.

use std::collections::{BTreeSet, HashMap, HashSet};

use rusqlite::params;
use toft_core::{
    issue::{
        proposal::ProposalSide,
        ready::{DEEPEST, Node, Nodes, circle, rank, readiness},
    },
    ready::QueueClass,
    store::{Result, StoreError},
    time::Timestamp,
};

use super::IndexTx;

/// After more changes than this, all issues are evaluated together instead of each one separately.
const MANY: usize = 500;

/// The issues that a change of an issue can affect.
#[derive(Clone, Debug, Default)]
pub struct Around {
    /// Issues that need it, and therefore their parts.
    pub waiting: BTreeSet<String>,
    /// Issues that it needs, and its parents.
    pub beside: BTreeSet<String>,
}

/// The facts of an issue and its neighbours, queried one at a time.
struct Asking<'t>(&'t IndexTx<'t>);

impl Nodes for Asking<'_> {
    type Error = StoreError;

    fn node(&mut self, id: &str) -> Result<Option<Node>> {
        self.0.node(id)
    }

    fn open_children(&mut self, id: &str) -> Result<u64> {
        let sql = "SELECT count(*) FROM issues WHERE parent = ?1 AND unfinished = 1";
        let found = self.0.rows(sql, params![id], |row| row.get::<_, i64>(0))?;
        Ok(found.first().copied().unwrap_or_default() as u64)
    }
}

/// The facts of all issues.
#[derive(Default)]
struct KnownFacts {
    nodes: HashMap<String, Node>,
    open_children: HashMap<String, u64>,
    /// Issues that wait, directly or not, for a dependency cycle: no other issue is in a cycle.
    stuck: HashSet<String>,
}

impl KnownFacts {
    /// Finds the issues that remain when all issues that can be finished one after the other are removed.
    fn find_stuck(&mut self) {
        let mut left: HashMap<String, usize> = HashMap::new();
        let mut waiting: HashMap<&str, Vec<&str>> = HashMap::new();
        for node in self.nodes.values().filter(|node| node.unfinished()) {
            let mut at = Some(node);
            let (mut on, mut seen) = (HashSet::new(), HashSet::new());
            while let Some(above) = at.filter(|above| seen.len() <= DEEPEST && seen.insert(above.id.as_str())) {
                let open = |id: &&String| self.nodes.get(*id).is_some_and(Node::unfinished);
                if above.unfinished() {
                    on.extend(above.needs.iter().filter(open).map(String::as_str));
                }
                at = above.parent.as_ref().and_then(|parent| self.nodes.get(parent));
            }
            left.insert(node.id.clone(), on.len());
            on.into_iter().for_each(|on| waiting.entry(on).or_default().push(&node.id));
        }
        let mut free: Vec<String> = left.iter().filter(|(_, count)| **count == 0).map(|(id, _)| id.clone()).collect();
        while let Some(id) = free.pop() {
            left.remove(&id);
            for who in waiting.get(id.as_str()).into_iter().flatten() {
                if let Some(count) = left.get_mut(*who) {
                    *count -= 1;
                    if *count == 0 {
                        free.push((*who).to_owned());
                    }
                }
            }
        }
        self.stuck = left.into_keys().collect();
    }
}

impl Nodes for KnownFacts {
    type Error = StoreError;

    fn node(&mut self, id: &str) -> Result<Option<Node>> {
        Ok(self.nodes.get(id).cloned())
    }

    fn open_children(&mut self, id: &str) -> Result<u64> {
        Ok(self.open_children.get(id).copied().unwrap_or_default())
    }

    fn may_circle(&mut self, id: &str) -> bool {
        self.stuck.contains(id)
    }
}

const NODE: &str = "SELECT id, status, epic, deleted, parent, defer_until, priority, created, first, part FROM issues";

fn node(row: &rusqlite::Row<'_>) -> rusqlite::Result<Node> {
    Ok(Node {
        id: row.get(0)?,
        status: row.get(1)?,
        epic: row.get(2)?,
        deleted: row.get(3)?,
        parent: row.get(4)?,
        defer_until: row.get::<_, Option<i64>>(5)?.map(Timestamp),
        priority: row.get(6)?,
        written: Timestamp(row.get(7)?),
        turn: QueueClass::numbered(row.get(8)?),
        part: ProposalSide::named(&row.get::<_, String>(9)?),
        needs: Vec::new(),
    })
}

impl IndexTx<'_> {
    /// The facts about an issue that the ready rule needs.
    pub fn node(&self, id: &str) -> Result<Option<Node>> {
        let found = self
            .rows(&format!("{NODE} WHERE id = ?1 ORDER BY deleted, part, ledger LIMIT 1"), params![id], node)?
            .pop();
        let Some(mut node) = found else { return Ok(None) };
        let needs = "SELECT target FROM issue_deps WHERE id = ?1 AND blocks = 1 ORDER BY target";
        node.needs = self.rows(needs, params![id], |row| row.get(0))?;
        node.needs.dedup();
        Ok(Some(node))
    }

    /// Facts for the rules, queried one at a time.
    pub fn nodes(&self) -> impl Nodes<Error = StoreError> + '_ {
        Asking(self)
    }

    /// The issues that a change of an issue can affect, in their current state.
    pub fn around(&self, id: &str, around: &mut Around) -> Result<()> {
        let waiting = "SELECT id FROM issue_deps WHERE target = ?1 AND blocks = 1";
        around.waiting.extend(self.rows(waiting, params![id], |row| row.get::<_, String>(0))?);
        let beside = "SELECT target FROM issue_deps WHERE id = ?1 AND blocks = 1
            UNION SELECT parent FROM issues WHERE id = ?1 AND parent IS NOT NULL";
        around.beside.extend(self.rows(beside, params![id], |row| row.get::<_, String>(0))?);
        Ok(())
    }

    fn children(&self, id: &str) -> Result<Vec<String>> {
        self.rows("SELECT id FROM issues WHERE parent = ?1", params![id], |row| row.get(0))
    }

    /// Updates the derived values of the changed issues, and of the issues that were around them before.
    pub fn settle(&self, changed: &BTreeSet<String>, before: &Around) -> Result<()> {
        if changed.len() > MANY {
            return self.settle_all();
        }
        let mut around = before.clone();
        for id in changed {
            self.around(id, &mut around)?;
        }
        // What holds an issue back holds its parts back.
        let mut all = BTreeSet::new();
        let mut next: Vec<String> = changed.iter().cloned().chain(around.waiting).collect();
        while let Some(id) = next.pop() {
            if all.insert(id.clone()) {
                next.extend(self.children(&id)?);
            }
        }
        all.extend(around.beside);
        for id in changed {
            all.extend(self.around_circles(id)?);
        }
        for id in &all {
            if let Some(node) = self.node(id)? {
                let needed =
                    "SELECT count(DISTINCT d.id) FROM issue_deps d JOIN issues i ON i.id = d.id AND i.ledger = d.ledger
                    WHERE d.target = ?1 AND d.blocks = 1 AND i.unfinished = 1";
                let unblocks = self.rows(needed, params![id], |row| row.get::<_, i64>(0))?;
                let unblocks = unblocks.first().copied().unwrap_or_default();
                self.place(&mut Asking(self), &node, unblocks as u32)?;
            }
        }
        Ok(())
    }

    /// Issues in a dependency cycle with this one, and those that could start because of such a cycle although they
    /// wait for this one: the cycle may be gone.
    fn around_circles(&self, id: &str) -> Result<BTreeSet<String>> {
        let mut all = circle(&mut Asking(self), id)?;
        let waiting = "WITH RECURSIVE up (id) AS (
                SELECT ?1
                UNION SELECT d.id FROM up JOIN issue_deps d ON d.target = up.id AND d.blocks = 1
                UNION SELECT c.id FROM up JOIN issues c ON c.parent = up.id
            )
            SELECT i.id FROM up JOIN issues i ON i.id = up.id WHERE i.opens IS NOT NULL";
        all.extend(self.rows(waiting, params![id], |row| row.get::<_, String>(0))?);
        Ok(all)
    }

    /// Dependency cycles, each as the ids of its issues; the first of them can start.
    pub fn circles(&self, limit: usize) -> Result<Vec<BTreeSet<String>>> {
        let mut known = self.everything()?;
        known.find_stuck();
        let mut stuck: BTreeSet<String> = known.stuck.iter().cloned().collect();
        let mut circles = Vec::new();
        while let Some(id) = stuck.pop_first().filter(|_| circles.len() < limit) {
            let circle = circle(&mut known, &id)?;
            stuck.retain(|id| !circle.contains(id));
            if !circle.is_empty() {
                circles.push(circle);
            }
        }
        Ok(circles)
    }

    fn everything(&self) -> Result<KnownFacts> {
        let mut known = KnownFacts::default();
        for node in self.rows(&format!("{NODE} ORDER BY id, deleted DESC, part DESC, ledger DESC"), [], node)? {
            known.nodes.insert(node.id.clone(), node);
        }
        let edges = "SELECT id, target FROM issue_deps WHERE blocks = 1 ORDER BY id, target";
        for (id, target) in self.rows(edges, [], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))? {
            if let Some(node) = known.nodes.get_mut(&id)
                && node.needs.last() != Some(&target)
            {
                node.needs.push(target);
            }
        }
        Ok(known)
    }

    fn settle_all(&self) -> Result<()> {
        let mut known = self.everything()?;
        known.find_stuck();
        let mut unblocks: HashMap<String, u32> = HashMap::new();
        let unfinished: Vec<Node> = known.nodes.values().filter(|node| node.unfinished()).cloned().collect();
        for node in &unfinished {
            if let Some(parent) = &node.parent {
                *known.open_children.entry(parent.clone()).or_default() += 1;
            }
            for on in &node.needs {
                *unblocks.entry(on.clone()).or_default() += 1;
            }
        }
        self.execute("UPDATE issues SET opens = NULL WHERE opens IS NOT NULL", [])?;
        for node in &unfinished {
            self.place(&mut known, node, unblocks.get(&node.id).copied().unwrap_or_default())?;
        }
        Ok(())
    }

    /// Writes when an issue can start, and its rank.
    fn place(&self, nodes: &mut impl Nodes<Error = StoreError>, node: &Node, unblocks: u32) -> Result<()> {
        let opens = readiness(nodes, node)?.opens();
        let rank = if opens.is_some() { rank(node, unblocks) } else { String::new() };
        let sql = "UPDATE issues SET opens = ?2, rank = ?3 WHERE id = ?1 AND (opens IS NOT ?2 OR rank <> ?3)";
        self.execute(sql, params![node.id, opens.map(|at| at.0), rank]).map(drop)
    }
}
