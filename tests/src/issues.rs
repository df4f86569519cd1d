//! Issues, as stories see them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Home, workspaces::commit_all};

/// The file that is written to in a git repository.
pub fn ledger(repo: &Path) -> PathBuf {
    repo.join(".git/toft/ledger/issues.jsonl")
}

/// Every issue, by id.
pub fn listed(home: &Home, repo: &Path) -> BTreeMap<String, Value> {
    let rows = home.toft(repo, &["list", "issues", "--all", "--limit", "5000", "--json"]).data();
    rows.as_array().unwrap().iter().map(|row| (row["id"].as_str().unwrap().to_owned(), row.clone())).collect()
}

/// Writes an issue down; gives its id.
pub fn add(home: &Home, repo: &Path, args: &[&str]) -> String {
    let mut all = vec!["add"];
    all.extend(args);
    all.push("-q");
    home.toft(repo, &all).ok().trim().to_owned()
}

/// An agent by hand: changes a file in its workspace, commits and finishes; returns what its claim said.
pub fn finish(home: &Home, repo: &Path, id: &str, file: &str, text: &str) -> String {
    let claimed = home.toft(repo, &["--as", "bo", "claim", id, "--ws"]).ok();
    let workspace = home.toft(repo, &["--as", "bo", "ws", "path", id]).ok();
    let workspace = Path::new(workspace.trim());
    std::fs::write(workspace.join(file), text).unwrap();
    commit_all(home, workspace, "work");
    home.toft(workspace, &["--as", "bo", "finish", id, "-m", "sold by the piece", "--evidence", "HEAD"]).ok();
    claimed
}
