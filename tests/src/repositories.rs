//! Several repositories and their ledgers, as stories see them.

use std::path::Path;

use serde_json::Value;

use crate::Home;

/// The rows of a list.
pub fn rows(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value}"))
}

/// Adds an issue; gives its id and its ledger.
pub fn add(home: &Home, dir: &Path, args: &[&str]) -> (String, String) {
    let mut all = vec!["add", "--json"];
    all.extend(args);
    let row = home.toft(dir, &all).data();
    (row["id"].as_str().unwrap().to_owned(), row["ledger"].as_str().unwrap().to_owned())
}

/// The titles of the issues that are seen from a directory.
pub fn titles(home: &Home, dir: &Path, args: &[&str]) -> Vec<String> {
    let mut all = vec!["list", "issues", "--json", "--limit", "1000"];
    all.extend(args);
    let mut titles: Vec<String> = rows(&home.toft(dir, &all).data())
        .iter()
        .map(|row| row["title"].as_str().unwrap_or_else(|| panic!("{row}")).to_owned())
        .collect();
    titles.sort();
    titles
}

/// A ledger as `toft ledger list` shows it.
pub fn ledger(home: &Home, dir: &Path, name: &str) -> Value {
    let all = home.toft(dir, &["ledger", "list", "--json"]).data();
    rows(&all).iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {all}")).clone()
}

/// How far an issue is, seen from a directory.
pub fn status_of(home: &Home, dir: &Path, id: &str) -> String {
    home.toft(dir, &["show", id, "--json"]).data()["status"].as_str().unwrap().to_owned()
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
