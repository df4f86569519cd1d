//! Issues in the index.

use std::collections::BTreeSet;

use rusqlite::{Row, params};
use serde::{Deserialize, Serialize};
use toft_core::{
    issue::{Issue, NO_AUTO_CLAIM, ready::Node},
    store::{Result, StoreError},
    time::Timestamp,
};

use super::IndexTx;

/// An issue in the index.
#[derive(Clone, Debug, PartialEq)]
pub struct Indexed {
    pub id: String,
    pub ledger: String,
    /// The file of that ledger.
    pub file: String,
    /// Its rank in the order of ready work.
    pub rank: String,
    /// The time from which it can start, if it is only deferred.
    pub opens: Option<Timestamp>,
    /// The line of the ledger.
    pub line: String,
}

impl Indexed {
    /// The issue in the line, without fields that have an invalid value.
    pub fn issue(&self) -> Result<Issue> {
        Issue::read(&self.line).map(|(issue, _)| issue).map_err(|error| StoreError::Unreadable {
            table: "issues".into(),
            id: self.line.chars().take(40).collect(),
            cause: error.to_string(),
        })
    }
}

/// What issues are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IssueFilter {
    /// Only in this ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<String>,
    /// Only with this status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Those that are over, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Only with all of these labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Only part of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Only with these words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<String>,
    /// Only of this type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only with this priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Only assigned to this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignee: Option<String>,
    /// Only open ones that cannot start now.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub blocked: bool,
    /// The most urgent first, instead of the newest.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_priority: bool,
    /// At most so many; 0 for all.
    #[serde(skip)]
    pub limit: usize,
}

/// Selects issues by their assignee.
#[derive(Clone, Debug)]
pub enum AssignedTo {
    /// Only those assigned to this agent.
    To(String),
    /// All except those assigned to these agents.
    NotTo(Vec<String>),
}

impl AssignedTo {
    fn names(&self) -> &[String] {
        match self {
            Self::To(name) => std::slice::from_ref(name),
            Self::NotTo(names) => names,
        }
    }
}

const COLUMNS: &str = "i.ledger, i.file, i.rank, i.opens, i.line, i.id";

fn indexed(row: &Row<'_>) -> rusqlite::Result<Indexed> {
    let opens = row.get::<_, Option<i64>>(3)?.map(Timestamp);
    Ok(Indexed { id: row.get(5)?, ledger: row.get(0)?, file: row.get(1)?, rank: row.get(2)?, opens, line: row.get(4)? })
}

/// Labels separated and enclosed by spaces, so that one `instr` finds a whole label.
fn words(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!(" {} ", labels.join(" ")) }
}

/// The text that is searched besides the title.
fn rest(issue: &Issue) -> String {
    let texts = [&issue.body, &issue.design, &issue.acceptance, &issue.notes].into_iter().flatten();
    let mut rest = texts.map(String::as_str).collect::<Vec<_>>().join("\n");
    for text in issue.comments.iter().map(|comment| &comment.text).chain(&issue.labels).chain([&issue.id]) {
        rest.push('\n');
        rest.push_str(text);
    }
    rest
}

impl IndexTx<'_> {
    /// Writes the current state of an issue in a ledger.
    pub fn put(&self, ledger: &str, file: &str, issue: &Issue, line: &str) -> Result<()> {
        self.drop_issue(ledger, &issue.id)?;
        self.put_new(ledger, file, issue, line)
    }

    /// Writes an issue that the index does not contain.
    pub fn put_new(&self, ledger: &str, file: &str, issue: &Issue, line: &str) -> Result<()> {
        let node = Node::of(issue);
        let sql = "INSERT INTO issues (id, ledger, file, status, epic, deleted, parent, defer_until, priority, unfinished, created, first, labels, part, assignee, rank, line)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, '', ?16)";
        self.execute(
            sql,
            params![
                node.id,
                ledger,
                file,
                node.status,
                node.epic,
                node.deleted,
                node.parent,
                node.defer_until.map(|at| at.0),
                node.priority,
                node.unfinished(),
                node.written.0,
                node.turn.number(),
                words(&issue.labels),
                node.part.as_str(),
                issue.assignee,
                line
            ],
        )?;
        let place = self.connection().last_insert_rowid();
        for dep in &issue.deps {
            self.execute(
                "INSERT OR REPLACE INTO issue_deps (target, id, ledger, kind, blocks) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![dep.on, issue.id, ledger, dep.kind, dep.blocks()],
            )?;
        }
        if issue.deleted.is_none() {
            let sql = "INSERT INTO issue_words (rowid, title, rest) VALUES (?1, ?2, ?3)";
            self.execute(sql, params![place, issue.title, rest(issue)])?;
        }
        Ok(())
    }

    fn drop_words(&self, ledger: &str, id: &str) -> Result<()> {
        let sql = "DELETE FROM issue_words WHERE rowid = (SELECT n FROM issues WHERE id = ?1 AND ledger = ?2 AND deleted = 0)";
        self.execute(sql, params![id, ledger]).map(drop)
    }

    /// Removes an issue that its ledger no longer contains.
    pub fn drop_issue(&self, ledger: &str, id: &str) -> Result<()> {
        self.drop_words(ledger, id)?;
        self.execute("DELETE FROM issue_deps WHERE id = ?1 AND ledger = ?2", params![id, ledger])?;
        self.execute("DELETE FROM issues WHERE id = ?1 AND ledger = ?2", params![id, ledger]).map(drop)
    }

    /// Every issue of a ledger.
    pub fn all_of(&self, ledger: &str) -> Result<Vec<Indexed>> {
        self.rows(&format!("SELECT {COLUMNS} FROM issues i WHERE i.ledger = ?1"), params![ledger], indexed)
    }

    /// Every id in a file of a ledger.
    pub fn ids_of(&self, ledger: &str, file: &str) -> Result<Vec<String>> {
        self.rows("SELECT id FROM issues WHERE ledger = ?1 AND file = ?2", params![ledger, file], |row| row.get(0))
    }

    /// An issue of a ledger.
    pub fn line(&self, ledger: &str, id: &str) -> Result<Option<Indexed>> {
        let sql = format!("SELECT {COLUMNS} FROM issues i WHERE i.id = ?1 AND i.ledger = ?2");
        Ok(self.rows(&sql, params![id, ledger], indexed)?.pop())
    }

    /// An issue in every ledger that contains it.
    pub fn copies(&self, id: &str) -> Result<Vec<Indexed>> {
        let sql = format!("SELECT {COLUMNS} FROM issues i WHERE i.id = ?1 ORDER BY i.ledger");
        self.rows(&sql, params![id], indexed)
    }

    /// Ids with a prefix, in order.
    pub fn ids(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        let sql = "SELECT DISTINCT id FROM issues WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT ?3";
        self.rows(sql, params![prefix, format!("{prefix}\u{7f}"), limit as i64], |row| row.get(0))
    }

    /// The names that ready issues are assigned to.
    pub fn assignees(&self) -> Result<Vec<String>> {
        let sql = "SELECT DISTINCT assignee FROM issues INDEXED BY issues_assigned WHERE opens IS NOT NULL AND assignee IS NOT NULL";
        self.rows(sql, [], |row| row.get(0))
    }

    /// Issues with all of these labels that can start at `now`, best first; `to_take`: without those that are claimed
    /// only by their id (`Issue::only_by_name`).
    pub fn ready(
        &self,
        now: Timestamp,
        labels: &[String],
        to_take: bool,
        assigned: &AssignedTo,
        limit: usize,
    ) -> Result<Vec<Indexed>> {
        let mut filter = String::new();
        for n in 0..labels.len() {
            filter.push_str(&format!(" AND instr(i.labels, ?{}) > 0", n + 4));
        }
        let names: Vec<String> = (0..assigned.names().len()).map(|n| format!("?{}", n + 4 + labels.len())).collect();
        let names = names.join(", ");
        let index = match assigned {
            AssignedTo::To(_) => "issues_assigned",
            AssignedTo::NotTo(_) => "issues_ready",
        };
        match assigned {
            AssignedTo::To(_) => filter.push_str(&format!(" AND i.assignee IS NOT NULL AND i.assignee = {names}")),
            AssignedTo::NotTo(of) if of.is_empty() => {}
            AssignedTo::NotTo(_) => {
                filter.push_str(&format!(" AND (i.assignee IS NULL OR i.assignee NOT IN ({names}))"));
            }
        }
        let sql = format!(
            "SELECT {COLUMNS} FROM issues i INDEXED BY {index}
            WHERE i.opens IS NOT NULL AND i.opens <= ?1
            AND (?3 IS NULL OR (instr(i.labels, ?3) = 0 AND (i.epic = 0 OR i.assignee IS NOT NULL))){filter}
            ORDER BY i.rank, i.part, i.ledger LIMIT ?2"
        );
        let word = |label: &str| format!(" {label} ");
        let mut values: Vec<rusqlite::types::Value> =
            vec![now.0.into(), (limit as i64).into(), to_take.then(|| word(NO_AUTO_CLAIM)).into()];
        values.extend(labels.iter().map(|label| word(label).into()));
        values.extend(assigned.names().iter().map(|name| name.clone().into()));
        self.rows(&sql, rusqlite::params_from_iter(values), indexed)
    }

    /// Issues, newest first.
    pub fn list(&self, asked: &IssueFilter) -> Result<Vec<Indexed>> {
        let order = if asked.by_priority { "i.priority, " } else { "" };
        let (matching, values) = matching(asked);
        let sql = format!("SELECT {COLUMNS} FROM {matching} ORDER BY {order}i.created DESC, i.id DESC LIMIT ?5");
        self.rows(&sql, rusqlite::params_from_iter(values), indexed)
    }

    /// How many issues there are of what is asked for, whatever the limit.
    pub fn count(&self, asked: &IssueFilter) -> Result<u64> {
        let (matching, values) = matching(asked);
        let sql = format!("SELECT count(DISTINCT i.id) FROM {matching} AND ?5 IS ?5");
        let found = self.rows(&sql, rusqlite::params_from_iter(values), |row| row.get::<_, i64>(0))?;
        Ok(found.first().copied().unwrap_or_default() as u64)
    }

    /// The ids of what is asked for, whatever the limit.
    pub fn matching_ids(&self, asked: &IssueFilter) -> Result<Vec<String>> {
        let (matching, values) = matching(asked);
        let sql = format!("SELECT DISTINCT i.id FROM {matching} AND ?5 IS ?5");
        self.rows(&sql, rusqlite::params_from_iter(values), |row| row.get(0))
    }

    /// Every word that issues have as their type.
    pub fn kinds(&self) -> Result<Vec<String>> {
        let sql =
            "SELECT DISTINCT coalesce(json_extract(line, '$.type'), 'task') FROM issues WHERE deleted = 0 ORDER BY 1";
        self.rows(sql, [], |row| row.get(0))
    }

    /// Every status that issues have.
    pub fn statuses(&self) -> Result<Vec<String>> {
        self.rows("SELECT DISTINCT status FROM issues WHERE deleted = 0 ORDER BY 1", [], |row| row.get(0))
    }

    /// Every agent that issues are assigned to, closed ones too.
    pub fn ever_assigned(&self) -> Result<Vec<String>> {
        let sql = "SELECT DISTINCT assignee FROM issues WHERE deleted = 0 AND assignee IS NOT NULL ORDER BY 1";
        self.rows(sql, [], |row| row.get(0))
    }

    /// Every label that issues have.
    pub fn labels(&self) -> Result<BTreeSet<String>> {
        let sql = "SELECT DISTINCT labels FROM issues WHERE deleted = 0 AND labels <> ''";
        let sets = self.rows(sql, [], |row| row.get::<_, String>(0))?;
        Ok(sets.iter().flat_map(|set| set.split_whitespace()).map(str::to_owned).collect())
    }

    /// What waits for an issue to be closed.
    pub fn needed_by(&self, id: &str) -> Result<Vec<Indexed>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM issue_deps d JOIN issues i ON i.id = d.id AND i.ledger = d.ledger
            WHERE d.target = ?1 AND d.blocks = 1 AND i.deleted = 0 ORDER BY i.id"
        );
        self.rows(&sql, params![id], indexed)
    }

    /// Proposed issues, newest first.
    pub fn offered(&self) -> Result<Vec<Indexed>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM issues i INDEXED BY issues_unfinished
            WHERE i.unfinished = 1 AND i.part = 'offered' ORDER BY i.created DESC, i.id DESC"
        );
        self.rows(&sql, [], indexed)
    }

    /// Every issue, in the order of ids.
    pub fn every(&self) -> Result<Vec<Indexed>> {
        self.rows(&format!("SELECT {COLUMNS} FROM issues i ORDER BY i.id, i.ledger"), [], indexed)
    }

    /// Whether the index contains nothing of a ledger.
    pub fn is_blank(&self, ledger: &str) -> Result<bool> {
        let sql = "SELECT 1 FROM issues WHERE ledger = ?1 LIMIT 1";
        Ok(self.rows(sql, params![ledger], |_| Ok(()))?.is_empty())
    }

    /// Enlarges the cache for reading a whole ledger: pages that spill are read and written repeatedly.
    pub fn make_room(&self) -> Result<()> {
        const KIB: i64 = 128 << 10;
        let doing = crate::sqlite::failed("make room for the index");
        self.connection().pragma_update(None, "cache_size", -KIB).map_err(doing)
    }

    /// Whether there are any issues at all.
    pub fn any(&self) -> Result<bool> {
        Ok(!self.rows("SELECT 1 FROM issues LIMIT 1", [], |_| Ok(()))?.is_empty())
    }

    /// The number of issues, and of unfinished issues.
    pub fn counts(&self) -> Result<(u64, u64)> {
        let sql = "SELECT count(*), coalesce(sum(unfinished), 0) FROM issues WHERE deleted = 0";
        let found = self.rows(sql, [], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))?;
        Ok(found.first().copied().unwrap_or_default())
    }

    /// Blocking dependencies of an unfinished issue on one that no ledger here contains.
    pub fn dangling(&self, limit: usize) -> Result<Vec<(String, String)>> {
        let sql = "SELECT d.id, d.target FROM issue_deps d JOIN issues i ON i.id = d.id AND i.ledger = d.ledger
            WHERE i.unfinished = 1 AND NOT EXISTS (SELECT 1 FROM issues t WHERE t.id = d.target) ORDER BY 1, 2 LIMIT ?1";
        self.rows(sql, params![limit as i64], |row| Ok((row.get(0)?, row.get(1)?)))
    }
}

/// The rows that are asked for, as the end of a query, and its parameters; the fifth is the limit.
fn matching(asked: &IssueFilter) -> (String, Vec<rusqlite::types::Value>) {
    let limit = if asked.limit == 0 { -1 } else { asked.limit as i64 };
    let closed = asked.status.as_deref() == Some(toft_core::issue::CLOSED);
    let unfinished = !asked.all && !closed && asked.status.as_deref() != Some("deleted");
    let (from, first) = match (&asked.search, &asked.parent) {
        (Some(_), _) => ("issue_words w JOIN issues i ON i.n = w.rowid", "w.issue_words MATCH ?1"),
        (None, Some(_)) => ("issues i INDEXED BY issues_by_parent", "i.parent = ?3 AND ?1 IS NULL"),
        (None, None) if unfinished => ("issues i INDEXED BY issues_unfinished", "?1 IS NULL"),
        (None, None) => ("issues i INDEXED BY issues_by_time", "?1 IS NULL"),
    };
    let deleted = asked.status.as_deref() == Some("deleted");
    let mut filter = format!("{first} AND i.deleted = {}", u8::from(deleted));
    for (wanted, more) in [
        (unfinished, " AND i.unfinished = 1"),
        (asked.status.is_some() && !deleted, " AND i.status = ?2"),
        (asked.parent.is_some(), " AND i.parent = ?3"),
        (asked.ledger.is_some(), " AND i.ledger = ?4"),
        (asked.kind.is_some(), " AND coalesce(json_extract(i.line, '$.type'), 'task') = ?6"),
        (asked.priority.is_some(), " AND i.priority = ?7"),
        (asked.assignee.is_some(), " AND i.assignee = ?8"),
        (asked.blocked, " AND i.status = 'open' AND i.opens IS NULL"),
    ] {
        filter.push_str(if wanted { more } else { "" });
    }
    for n in 0..asked.labels.len() {
        filter.push_str(&format!(" AND instr(i.labels, ?{}) > 0", n + 9));
    }
    // Every parameter is named, whether or not this question needs it.
    let sql = format!(
        "{from} WHERE {filter} AND (?2 IS ?2 AND ?3 IS ?3 AND ?4 IS ?4 AND ?6 IS ?6 AND ?7 IS ?7 AND ?8 IS ?8)"
    );
    let search = asked.search.as_ref().map(|text| match_words(text));
    let mut values: Vec<rusqlite::types::Value> = vec![
        search.into(),
        asked.status.clone().into(),
        asked.parent.clone().into(),
        asked.ledger.clone().into(),
        limit.into(),
        asked.kind.clone().into(),
        asked.priority.map(i64::from).into(),
        asked.assignee.clone().into(),
    ];
    values.extend(asked.labels.iter().map(|label| format!(" {label} ").into()));
    (sql, values)
}

/// Every word must be there, as a beginning; nothing a user types is an operator.
fn match_words(text: &str) -> String {
    text.split_whitespace().map(|word| format!("\"{}\"*", word.replace('"', "\"\""))).collect::<Vec<_>>().join(" ")
}
