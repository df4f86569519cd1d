//! Issues: reading a whole ledger in, and single commands, beside the bare work in one run.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use rusqlite::{Connection, params};
use serde_json::Value;
use toft::{Config, Toft};
use toft_bench::timing;

use crate::{beside, toft_bin};

/// The index a bare program fills: the same columns and indexes, without anything derived.
const BARE_INDEX: &str = "\
CREATE TABLE issues (n INTEGER PRIMARY KEY, id TEXT NOT NULL, ledger TEXT NOT NULL, file TEXT NOT NULL, status TEXT NOT NULL,
    parent TEXT, priority INTEGER NOT NULL, unfinished INTEGER NOT NULL, created TEXT NOT NULL, labels TEXT NOT NULL,
    opens INTEGER, rank TEXT NOT NULL, line TEXT NOT NULL);
CREATE UNIQUE INDEX issues_by_id ON issues (id, ledger);
CREATE INDEX issues_ready ON issues (rank) WHERE opens IS NOT NULL;
CREATE INDEX issues_by_parent ON issues (parent, unfinished) WHERE parent IS NOT NULL;
CREATE INDEX issues_unfinished ON issues (created DESC, id DESC) WHERE unfinished = 1;
CREATE INDEX issues_by_time ON issues (created DESC, id DESC);
CREATE TABLE issue_deps (target TEXT NOT NULL, id TEXT NOT NULL, ledger TEXT NOT NULL, kind TEXT NOT NULL, PRIMARY KEY (target, id, ledger, kind)) WITHOUT ROWID;
CREATE INDEX issue_deps_of ON issue_deps (id, ledger);
CREATE VIRTUAL TABLE issue_words USING fts5 (title, rest, content = '', contentless_delete = 1);";

pub(crate) fn run(sizes: &[usize]) {
    println!(
        "| issues | read in | bare | ratio, aim ≤ 1.5 | `ready` | `show` | `add` | `edit` | bare 20 rows | bare row | bare write |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for size in sizes {
        one(*size);
    }
}

fn one(size: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let repo = dir.path().join("r");
    fs::create_dir_all(&repo).expect("a directory");
    let git = Command::new("git").args(["init", "-q"]).current_dir(&repo).status();
    assert!(git.is_ok_and(|status| status.success()), "git init");
    let open = || {
        let config = Config { dir: Some(repo.clone()), agent: Some("bench".into()), ..Config::default() };
        Toft::init(&config, false).expect("a store").0
    };
    let lines: String = (0..size).map(line).collect();
    let toft = open();
    toft.plan()
        .expect("a plan")
        .expect("a checkout")
        .import(toft::plan::Import::Lines, &lines, None)
        .expect("an import");
    drop(toft);
    for file in ["toft.db", "toft.db-wal", "toft.db-shm"] {
        // Some of them may not be there.
        let _ = fs::remove_file(repo.join(".git/toft").join(file));
    }
    let toft = open();
    let start = Instant::now();
    let ready = toft.plan().expect("a plan").expect("a checkout").offers("bench", &[], false, 20).expect("an answer");
    let ours = start.elapsed();
    assert_eq!(ready.len(), 20);
    let bare = bare(&repo.join(".git/toft/ledger/issues.jsonl"), &dir.path().join("bare.db"));
    drop(toft);
    let (at, bin) = (repo.display().to_string(), toft_bin());
    let command = |args: &[&str]| {
        let mut all = vec!["-C", at.as_str()];
        all.extend(args);
        timing::median((0..60).map(|_| timing::process(&bin, &all)).collect())
    };
    let id = format!("tf-{:016}", size / 2);
    let mut n = 0;
    let edits = (0..60).map(|_| {
        n += 1;
        timing::process(&bin, &["-C", &at, "edit", &id, "--title", &format!("title {n}")])
    });
    let edit = timing::median(edits.collect());
    let [many, one, written] = bare_commands(dir.path(), &repo);
    println!(
        "| {size} | {ours:.2?} | {bare:.2?} | {:.2} | {:.1?} | {:.1?} | {:.1?} | {edit:.1?} | {many:.1?} | {one:.1?} | {written:.1?} |",
        ours.as_secs_f64() / bare.as_secs_f64(),
        command(&["ready"]),
        command(&["show", &id]),
        command(&["add", "one more"]),
    );
}

fn line(n: usize) -> String {
    let status = if n % 2 == 1 { "closed" } else { "open" };
    let deps = if n.is_multiple_of(4) && n > 10 {
        format!(",\"deps\":[{{\"on\":\"tf-{:016}\",\"kind\":\"blocks\"}}]", n / 3)
    } else {
        String::new()
    };
    format!(
        "{{\"id\":\"tf-{n:016}\",\"title\":\"Issue number {n} about something\",\"type\":\"task\",\"status\":\"{status}\",\"priority\":{},\"labels\":[\"area-{}\"]{deps},\"created\":{{\"at\":\"2026-01-01T00:00:00Z\",\"by\":\"gen\"}},\"body\":\"{}\"}}\n",
        n % 5,
        n % 7,
        "words of a body ".repeat(20)
    )
}

/// Parses every line and puts the same rows down, in one transaction.
fn bare(ledger: &Path, db: &Path) -> Duration {
    let connection = Connection::open(db).expect("a database");
    connection.pragma_update(None, "journal_mode", "wal").expect("a log");
    connection.execute_batch(BARE_INDEX).expect("a schema");
    let start = Instant::now();
    let text = fs::read_to_string(ledger).expect("a ledger");
    connection.execute_batch("BEGIN").expect("a transaction");
    for line in text.lines() {
        let issue: Value = serde_json::from_str(line).expect("a line");
        let word = |name: &str| issue[name].as_str().unwrap_or_default();
        let open = word("status") != "closed";
        let mut put = connection
            .prepare_cached("INSERT INTO issues (id, ledger, file, status, parent, priority, unfinished, created, labels, opens, rank, line) VALUES (?1, 'b', 'f', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?1, ?9)")
            .expect("a statement");
        put.execute(params![
            word("id"),
            word("status"),
            issue["parent"].as_str(),
            issue["priority"].as_i64().unwrap_or(2),
            open,
            issue["created"]["at"].as_str().unwrap_or_default(),
            issue["labels"].to_string(),
            open.then_some(0),
            line
        ])
        .expect("a row");
        let n = connection.last_insert_rowid();
        for dep in issue["deps"].as_array().into_iter().flatten() {
            let mut put =
                connection.prepare_cached("INSERT INTO issue_deps VALUES (?1, ?2, 'b', ?3)").expect("a statement");
            put.execute(params![dep["on"].as_str(), word("id"), dep["kind"].as_str()]).expect("a row");
        }
        let mut put = connection
            .prepare_cached("INSERT INTO issue_words (rowid, title, rest) VALUES (?1, ?2, ?3)")
            .expect("a statement");
        put.execute(params![n, word("title"), word("body")]).expect("a row");
    }
    connection.execute_batch("COMMIT").expect("a commit");
    start.elapsed()
}

/// Processes that open the database and run one indexed query, for what `ready` and for what `show` shows, and one that
/// does a durable append and transaction.
fn bare_commands(dir: &Path, repo: &Path) -> [Duration; 3] {
    let (store, bare): (PathBuf, PathBuf) = (repo.join(".git/toft/toft.db"), beside("bare"));
    let (store, log) = (store.display().to_string(), dir.join("log").display().to_string());
    let median = |args: &[&str]| timing::median((0..60).map(|_| timing::process(&bare, args)).collect());
    [&["issues", &store, "-"], &["issue", &store, "tf-0000000000000008"], &["append", &store, &log]]
        .map(|args| median(args))
}
