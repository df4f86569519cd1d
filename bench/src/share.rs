//! Sharing: a sync with nothing to do, and with one changed issue, beside bare git with the same remote; the log of an issue;
//! and what all of it leaves on disk.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use toft_bench::timing;

use crate::toft_bin;

/// So long after a file changed, a look at it is enough to know that it did not change since.
const SETTLED: Duration = Duration::from_millis(30);

pub(crate) fn run(sizes: &[usize]) {
    println!(
        "| issues | sync, nothing to do | `git fetch` | ratio, aim ≤ 1.2 | sync, one issue, aim ≤ 150 ms | fetch, commit, push | ratio, aim ≤ 1.5 | `log ID`, aim ≤ 100 ms | objects: clone | remote | bare git, unpacked |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for size in sizes {
        one(*size);
    }
}

fn one(size: usize) {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path();
    let git = |dir: &Path, args: &[&str]| {
        let mut all =
            vec!["-C", dir.to_str().expect("a path"), "-c", "user.name=bench", "-c", "user.email=bench@example.org"];
        all.extend(args);
        timing::process(Path::new("git"), &all)
    };
    let (remote, ours, bare) = (base.join("remote.git"), base.join("ours"), base.join("bare"));
    git(base, &["init", "-q", "--bare", "-b", "main", "remote.git"]);
    git(base, &["init", "-q", "-b", "main", "ours"]);
    git(&ours, &["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&ours, &["remote", "add", "origin", remote.to_str().expect("a path")]);
    let (bin, at) = (toft_bin(), ours.display().to_string());
    let toft = |args: &[&str]| {
        let mut all = vec!["-C", at.as_str()];
        all.extend(args);
        timing::process(&bin, &all)
    };
    let list = base.join("list.md");
    let text: String = (0..size).map(|n| format!("- issue {n} with a title as long as titles are\n")).collect();
    fs::write(&list, text).expect("a list");
    toft(&["init"]);
    toft(&["import", "markdown", list.to_str().expect("a path")]);
    let settle = || {
        toft(&["sync", "--yes"]);
        thread::sleep(SETTLED);
        toft(&["sync"]);
    };
    settle();
    git(base, &["clone", "-q", "-b", "toft-ledger", remote.to_str().expect("a path"), "bare"]);
    let (nothing, fetch) =
        timing::side_by_side(60, || toft(&["sync"]), || git(&ours, &["fetch", "-q", "origin", "toft-ledger"]));
    let said = Command::new(&bin).args(["-C", &at, "list", "-q", "--limit", "30"]).output().expect("a list");
    let ids: Vec<String> = String::from_utf8_lossy(&said.stdout).lines().map(str::to_owned).collect();
    let (mut with_toft, mut with_git) = (Vec::new(), Vec::new());
    for (n, id) in ids.iter().enumerate() {
        toft(&["edit", id, "-m", &format!("word {n}")]);
        with_toft.push(toft(&["sync"]));
        settle();
        git(&bare, &["pull", "-q", "--rebase"]);
        let file = bare.join("issues.jsonl");
        let text = fs::read_to_string(&file).expect("a ledger").replacen("issue ", &format!("matter {n} "), 1);
        fs::write(&file, text).expect("a ledger");
        let push = || git(&bare, &["push", "-q", "origin", "toft-ledger"]);
        with_git.push(git(&bare, &["fetch", "-q", "origin"]) + git(&bare, &["commit", "-qam", "one"]) + push());
        settle();
    }
    let (changed, pushed) = (timing::median(with_toft), timing::median(with_git));
    let ratio = |ours: Duration, bare: Duration| ours.as_secs_f64() / bare.as_secs_f64();
    let log = timing::median((0..30).map(|_| toft(&["history", &ids[0]])).collect());
    let objects = |dir: &Path| format!("{:.1} MB", bytes(&dir.join("objects")) as f64 / 1e6);
    println!(
        "| {size} | {nothing:.1?} | {fetch:.1?} | {:.2} | {changed:.1?} | {pushed:.1?} | {:.2} | {log:.1?} | {} | {} | {} |",
        ratio(nothing, fetch),
        ratio(changed, pushed),
        objects(&ours.join(".git")),
        objects(&remote),
        objects(&bare.join(".git")),
    );
}

/// Bytes of all files below a directory.
fn bytes(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.metadata().map_or(0, |meta| if meta.is_dir() { bytes(&entry.path()) } else { meta.len() }))
        .sum()
}
