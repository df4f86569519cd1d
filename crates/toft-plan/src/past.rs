//! History from version control: changes of an issue, and the plan at an earlier time.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::PathBuf,
    sync::OnceLock,
    time::Duration,
};

use serde::Serialize;
use serde_json::Value;
use toft_core::{issue::Issue, refusal::Refusal};
use toft_ledger::line;
use toft_session::{
    error::{Error, io},
    session::random_ids,
};
use toft_vcs::exchange::{Changed, Files, History};

use super::{Ledger, LedgerKind, Plan, copy::each_line};

/// Temporary files of earlier plans are removed after this time.
const LEFT: Duration = Duration::from_secs(3_600);

/// One change of an issue in version control.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Past {
    /// The commit.
    pub revision: String,
    /// When it was made.
    pub at: String,
    /// Its author.
    pub by: String,
    /// The commit message.
    pub message: String,
    pub ledger: String,
    /// Descriptions of the changes.
    pub changes: Vec<String>,
}

/// Temporary files of an earlier plan.
pub(super) struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        // A copy of what version control has.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Aside {
    /// The path of their index.
    pub(super) fn index(&self) -> PathBuf {
        self.0.join("index.db")
    }
}

impl<'t> Plan<'t> {
    fn history(&self, ledger: &Ledger) -> Result<History, Error> {
        Ok(match ledger.place {
            LedgerKind::Branch => History::of_branch(self.checkout)?,
            _ if let Some(other) = ledger.elsewhere.as_ref().filter(|other| other.place == LedgerKind::Branch) => {
                History::of_branch(&other.checkout)?
            }
            _ if !ledger.dir.exists() => History::of_branch(self.checkout)?,
            LedgerKind::Tree => History::of_dir(&ledger.dir)?,
            LedgerKind::Planning | LedgerKind::Shared => {
                History::of_own_dir(&ledger.dir, ledger.place == LedgerKind::Planning)?
            }
        })
    }

    /// The history of an issue in version control, newest first.
    pub fn past(&self, id: &str, limit: usize) -> Result<Vec<Past>, Error> {
        let mut all = Vec::new();
        for ledger in &self.ledgers {
            let changed = self.history(ledger)?.of_issue(id, limit)?;
            for Changed { revision, at, by, message, told, before, lines } in &changed {
                let changes = match told.is_empty() {
                    true => differences(&state(before), &state(lines), ShownValue::Values),
                    false => told.clone(),
                };
                if changes.is_empty() {
                    continue;
                }
                all.push(Past {
                    revision: revision.chars().take(12).collect(),
                    at: at.clone(),
                    by: by.clone(),
                    message: message.clone(),
                    ledger: ledger.name.clone(),
                    changes,
                });
            }
        }
        all.sort_by(|a, b| b.at.cmp(&a.at));
        all.truncate(limit);
        Ok(all)
    }

    /// The plan at a revision or a time: every ledger under version control, read again.
    pub fn at(&self, when: &str) -> Result<Plan<'t>, Error> {
        let all = self.state.join("past");
        // What somebody who was killed left behind.
        for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
            let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > LEFT) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let dir = all.join(random_ids().word());
        let aside = Aside(dir.clone());
        let mut ledgers = Vec::new();
        for ledger in &self.ledgers {
            let Some((_, files)) = self.history(ledger)?.at(when)? else { continue };
            let place = dir.join(&ledger.name);
            for (name, bytes) in files {
                let path = place.join(&name);
                let parent = path.parent().unwrap_or(&place);
                toft_store::private::create_dir_all(parent).map_err(io("make", parent))?;
                toft_store::private::write(&path, bytes).map_err(io("write", &path))?;
            }
            let lock = place.with_extension("lock");
            ledgers.push(Ledger { dir: place, read_only: true, elsewhere: None, lock, ..ledger.clone() });
        }
        if ledgers.is_empty() {
            return Err(Refusal::NotFound { what: "revision or time".into(), text: when.to_owned() }.into());
        }
        Ok(Plan {
            session: self.session,
            checkout: self.checkout,
            home: self.home,
            ledgers,
            contributor: self.contributor,
            upstream: None,
            routing: self.routing.clone(),
            bad: std::sync::Mutex::default(),
            index: OnceLock::new(),
            state: dir,
            worktree: self.worktree,
            replica: OnceLock::new(),
            written: OnceLock::new(),
            author: OnceLock::new(),
            aside: Some(aside),
        })
    }
}

/// The changes of a commit, for its message: every issue with changed lines, and the differences.
pub(super) fn changes(before: &Files, now: &Files) -> Vec<(String, Vec<String>)> {
    let (old, new): (HashSet<&[u8]>, HashSet<&[u8]>) = (each_line(before).collect(), each_line(now).collect());
    let mut issues: BTreeMap<String, [Vec<String>; 2]> = BTreeMap::new();
    for (side, only) in [old.difference(&new), new.difference(&old)].into_iter().enumerate() {
        for text in only.filter_map(|line| std::str::from_utf8(line).ok()) {
            if let Ok(read) = line::read(text) {
                issues.entry(read.record.id().to_owned()).or_default()[side].push(text.to_owned());
            }
        }
    }
    let told = issues.into_iter().map(|(id, [old, new])| {
        let differs = differences(&state(&old), &state(&new), ShownValue::Short);
        (id, differs)
    });
    told.filter(|(_, differs)| !differs.is_empty()).collect()
}

/// The merged lines of an issue; null if there are none.
fn state(lines: &[String]) -> Value {
    let mut records = lines.iter().filter_map(|text| line::read(text.trim()).ok()).map(|line| line.record);
    let Some(mut first) = records.next() else { return Value::Null };
    records.for_each(|other| first.merge(other));
    let issue = serde_json::from_str::<Issue>(&line::write(&first)).ok();
    issue.and_then(|issue| toft_core::json::to_value(&issue).ok()).unwrap_or_default()
}

/// How much of a value is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ShownValue {
    /// The beginning of every text.
    Values,
    /// Only that a long text changed.
    Short,
}

/// The name of the first change of an issue.
const CREATED: &str = "created";
/// Fields with texts of any length.
const LONG: [&str; 4] = ["body", "design", "acceptance", "notes"];

/// The values of one state that differ from the other.
fn differences(older: &Value, newer: &Value, detail: ShownValue) -> Vec<String> {
    let (older, newer) = match (older.as_object(), newer.as_object()) {
        (Some(older), Some(newer)) => (older, newer),
        (None, Some(_)) => return vec![CREATED.into()],
        (Some(_), None) => return vec!["removed".into()],
        (None, None) => return Vec::new(),
    };
    let mut names: Vec<&String> = newer.keys().chain(older.keys()).collect();
    names.sort();
    names.dedup();
    let differs = names.into_iter().filter(|name| newer.get(*name) != older.get(*name));
    differs
        .map(|name| match newer.get(name) {
            Some(Value::String(_)) if detail == ShownValue::Short && LONG.contains(&name.as_str()) => name.clone(),
            Some(Value::String(text)) => format!("{name}: {}", text.chars().take(60).collect::<String>()),
            Some(Value::Number(number)) => format!("{name}: {number}"),
            Some(Value::Array(members)) => {
                let before = older.get(name).and_then(Value::as_array).map_or(0, Vec::len);
                format!("{name}: {before} → {}", members.len())
            }
            Some(_) => name.clone(),
            None => format!("{name}: none"),
        })
        .collect()
}
