//! Collisions are what `git merge-tree` says of committed work, for every pair; work has landed when that is recorded, or
//! when merging it changes nothing.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use toft_stories::{Home, sized, workspaces::Dice};

fn commit(home: &Home, dir: &Path, message: &str) {
    home.run(dir, "git", &["add", "-A"]);
    home.run(dir, "git", &["commit", "-qm", message]);
}

fn workspace(home: &Home, repo: &Path, name: &str) -> PathBuf {
    PathBuf::from(home.toft(repo, &["ws", "create", "--name", name, "-q"]).ok().trim())
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from} in {}", path.display());
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

fn lines(name: &str, count: usize) -> String {
    (0..count).map(|n| format!("{name} line {n}.\n")).collect()
}

/// Pairs that `ws list` calls collisions.
fn said(home: &Home, repo: &Path) -> BTreeSet<BTreeSet<String>> {
    let text = home.toft(repo, &["ws", "list", "--limit", "100"]).ok();
    let told = text.lines().filter_map(|line| line.strip_prefix("collision: "));
    told.map(|line| line.split(" change ").next().unwrap().split(" and ").map(str::to_owned).collect()).collect()
}

/// Pairs that git cannot merge.
fn truth(home: &Home, repo: &Path, names: &[String]) -> BTreeSet<BTreeSet<String>> {
    let mut pairs = BTreeSet::new();
    for (n, one) in names.iter().enumerate() {
        for other in &names[n + 1..] {
            let ask = ["merge-tree", "--write-tree", "--no-messages", one, other];
            if home.command(repo, "git", &ask).output().unwrap().status.code() == Some(1) {
                pairs.insert([one.clone(), other.clone()].into());
            }
        }
    }
    pairs
}

#[test]
fn collisions_are_what_git_says_for_renames_deletions_and_directories() {
    let home = Home::new();
    let repo = home.repo("repo");
    fs::create_dir_all(repo.join("src/deep")).unwrap();
    for name in ["a", "b", "c", "d"] {
        fs::write(repo.join(format!("src/{name}.txt")), lines(name, 100)).unwrap();
        fs::write(repo.join(format!("src/deep/{name}.txt")), lines(name, 20)).unwrap();
    }
    commit(&home, &repo, "base");
    type Change = fn(&Home, &Path);
    let changes: [Change; 12] = [
        |_, dir| replace(&dir.join("src/a.txt"), "a line 5.", "a line 5 w0"),
        |_, dir| replace(&dir.join("src/a.txt"), "a line 90.", "a line 90 w1"),
        |_, dir| replace(&dir.join("src/a.txt"), "a line 5.", "a line 5 w2"),
        |home, dir| drop(home.run(dir, "git", &["mv", "src/b.txt", "src/bb.txt"])),
        |_, dir| replace(&dir.join("src/b.txt"), "b line 50.", "b line 50 w4"),
        |_, dir| fs::remove_file(dir.join("src/c.txt")).unwrap(),
        |_, dir| replace(&dir.join("src/c.txt"), "c line 1.", "c line 1 w6"),
        |_, dir| {
            fs::create_dir(dir.join("src/new")).unwrap();
            fs::write(dir.join("src/new/x"), "x").unwrap();
        },
        |_, dir| fs::write(dir.join("src/new"), "a file").unwrap(),
        |home, dir| drop(home.run(dir, "git", &["mv", "src/b.txt", "lib.txt"])),
        |home, dir| drop(home.run(dir, "git", &["mv", "src/deep", "src/deeper"])),
        |_, dir| fs::write(dir.join("src/deep/added.txt"), "where the directory was\n").unwrap(),
    ];
    let mut names = Vec::new();
    for (n, change) in changes.iter().enumerate() {
        let dir = workspace(&home, &repo, &format!("w{n}"));
        change(&home, &dir);
        commit(&home, &dir, "work");
        names.push(format!("w{n}"));
    }
    let real = truth(&home, &repo, &names);
    assert!(real.len() >= 4, "{real:?}");
    assert_eq!(said(&home, &repo), real);
    // The same from memory; and after one of them was changed.
    assert_eq!(said(&home, &repo), real);
    let dir = PathBuf::from(home.toft(&repo, &["ws", "path", "w1"]).ok().trim());
    replace(&dir.join("src/a.txt"), "a line 5.", "a line 5 too");
    commit(&home, &dir, "more");
    let now = truth(&home, &repo, &names);
    assert_ne!(now, real);
    assert_eq!(said(&home, &repo), now);
}

#[test]
fn collisions_are_what_git_says_for_many_random_workspaces() {
    let home = Home::new();
    let repo = home.repo("repo");
    fs::create_dir_all(repo.join("src")).unwrap();
    for n in 0..12 {
        fs::write(repo.join(format!("src/f{n}.txt")), lines(&format!("f{n}"), 30)).unwrap();
    }
    commit(&home, &repo, "base");
    let mut dice = Dice::new(7);
    let mut names = Vec::new();
    for n in 0..sized(12, 20) {
        let dir = workspace(&home, &repo, &format!("w{n:02}"));
        for _ in 0..4 {
            let (file, line) = (dice.below(12), dice.below(30));
            let path = dir.join(format!("src/f{file}.txt"));
            let old = format!("f{file} line {line}.");
            if fs::read_to_string(&path).unwrap().contains(&old) {
                replace(&path, &old, &format!("f{file} line {line} of w{n}"));
            }
        }
        commit(&home, &dir, "work");
        if dice.one_in(3) {
            // Where they start differs.
            replace(&repo.join("src/f0.txt"), "line 2", &format!("line {n}0"));
            commit(&home, &repo, "main moves");
        }
        names.push(format!("w{n:02}"));
    }
    let real = truth(&home, &repo, &names);
    assert!(!real.is_empty());
    assert_eq!(said(&home, &repo), real);
}

#[test]
fn both_issues_are_named_and_what_is_not_committed_is_only_possible() {
    let home = Home::new();
    let repo = home.repo("repo");
    fs::write(repo.join("a.txt"), lines("a", 30)).unwrap();
    commit(&home, &repo, "base");
    let mut paths = Vec::new();
    for (agent, title) in [("ann", "Fix the parser"), ("bob", "Speed the parser up")] {
        home.toft(&repo, &["add", title]).ok();
        let claim = home.toft(&repo, &["claim", "--ws", "--as", agent, "--json"]).data();
        paths.push(PathBuf::from(claim["workspace"]["path"].as_str().unwrap()));
    }
    replace(&paths[0].join("a.txt"), "a line 3.", "ours");
    commit(&home, &paths[0], "ours");
    replace(&paths[1].join("a.txt"), "a line 3.", "theirs");
    let status = home.toft(&repo, &["status", "--json"]).data();
    assert_eq!(status["collisions"][0]["kind"], "uncommitted", "{status}");
    assert!(home.toft(&repo, &["status"]).ok().contains("possible collision: "));
    commit(&home, &paths[1], "theirs");
    let status = home.toft(&repo, &["status", "--json"]).data();
    let found = &status["collisions"][0];
    assert_eq!((&found["kind"], status["collisions"].as_array().unwrap().len()), (&"conflict".into(), 1), "{status}");
    let titles: Vec<_> = found["between"].as_array().unwrap().iter().map(|party| party["title"].clone()).collect();
    assert_eq!(titles, ["Fix the parser", "Speed the parser up"]);
    assert!(found["between"].as_array().unwrap().iter().all(|party| party["issue"].is_string()), "{found}");
    for command in [&["status"][..], &["ws", "list"]] {
        let text = home.toft(&repo, command).ok();
        let line = text.lines().find(|line| line.starts_with("collision: ")).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("Fix the parser") && line.contains("Speed the parser up"), "{line}");
    }
    // Also when one of them is finished, and has not landed.
    let head = home.run(&paths[0], "git", &["rev-parse", "HEAD"]);
    let id = found["between"][0]["issue"].as_str().unwrap();
    home.toft(&repo, &["--as", "ann", "finish", id, "-m", "done", "--evidence", head.trim()]).ok();
    let status = home.toft(&repo, &["status", "--json"]).data();
    assert_eq!(status["collisions"][0]["kind"], "conflict", "{status}");
    // One that builds on the other does not run into it.
    home.run(&paths[1], "git", &["reset", "-q", "--hard", "HEAD~1"]);
    let head = home.run(&paths[0], "git", &["rev-parse", "HEAD"]);
    home.run(&paths[1], "git", &["merge", "-q", "--ff-only", head.trim()]);
    replace(&paths[1].join("a.txt"), "ours", "ours and theirs");
    commit(&home, &paths[1], "on top");
    assert_eq!(home.toft(&repo, &["status", "--json"]).data()["collisions"], serde_json::json!([]));
}

/// What `ws list` says of one workspace.
fn landed(home: &Home, repo: &Path, name: &str) -> String {
    let text = home.toft(repo, &["ws", "list", "--limit", "100"]).ok();
    text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn work_has_landed_when_merging_it_changes_nothing_and_not_when_it_only_looks_alike() {
    let home = Home::new();
    let repo = home.repo("repo");
    let block = "    lock();\n    y += 1;\n    check(y);\n    y += 2;\n    unlock();\n";
    let twin: String = (0..3).map(|n| format!("int f{n}(int x) {{\n{block}}}\n\n")).collect();
    fs::write(repo.join("twin.c"), &twin).unwrap();
    fs::write(repo.join("long.txt"), lines("long", 200)).unwrap();
    fs::write(repo.join("b.txt"), "b\n").unwrap();
    commit(&home, &repo, "base");
    // The same fix in another block that looks the same.
    let dir = workspace(&home, &repo, "twin");
    let fixed = |nth: usize| {
        let mut parts: Vec<String> = twin.split("check(y);").map(str::to_owned).collect();
        parts[nth].push_str("check(y, 1);");
        let fixed = parts
            .iter()
            .enumerate()
            .map(|(n, part)| if n == nth || n == parts.len() - 1 { part.clone() } else { format!("{part}check(y);") });
        fixed.collect::<String>()
    };
    fs::write(dir.join("twin.c"), fixed(1)).unwrap();
    commit(&home, &dir, "fix the second");
    fs::write(repo.join("twin.c"), fixed(0)).unwrap();
    commit(&home, &repo, "fix the first");
    assert!(landed(&home, &repo, "twin").contains("1 commit not landed"));
    // The same lines with another indentation.
    let dir = workspace(&home, &repo, "indent");
    fs::write(dir.join("i.py"), "if a:\n    one()\n    two()\n").unwrap();
    commit(&home, &dir, "i");
    fs::write(repo.join("i.py"), "if a:\n    one()\ntwo()\n").unwrap();
    commit(&home, &repo, "i");
    assert!(landed(&home, &repo, "indent").contains("1 commit not landed"));
    // Squashed, and changed since; then more work on top.
    let dir = workspace(&home, &repo, "squashed");
    for n in [20, 21] {
        replace(&dir.join("long.txt"), &format!("long line {n}."), &format!("line {n} x"));
        commit(&home, &dir, "s");
    }
    home.run(&repo, "git", &["merge", "-q", "--squash", "squashed"]);
    commit(&home, &repo, "squash");
    assert!(landed(&home, &repo, "squashed").contains("clean, landed"));
    replace(&repo.join("long.txt"), "line 20 x", "LINE TWENTY");
    commit(&home, &repo, "later");
    assert!(landed(&home, &repo, "squashed").contains("clean, landed"));
    replace(&dir.join("long.txt"), "long line 22.", "line 22 x");
    commit(&home, &dir, "after the squash");
    assert!(landed(&home, &repo, "squashed").contains("not landed"));
    // A binary file, a mode and a rename, squashed, and changed since.
    let dir = workspace(&home, &repo, "odd");
    fs::write(dir.join("bin"), [0_u8, 1, 255, 0, 7]).unwrap();
    home.run(&dir, "git", &["update-index", "--chmod=+x", "b.txt"]);
    home.run(&dir, "git", &["add", "bin"]);
    home.run(&dir, "git", &["commit", "-qm", "bin"]);
    home.run(&dir, "git", &["checkout", "-q", "--", "b.txt"]);
    home.run(&dir, "git", &["mv", "b.txt", "bb.txt"]);
    commit(&home, &dir, "rename");
    home.run(&repo, "git", &["merge", "-q", "--squash", "odd"]);
    commit(&home, &repo, "squash");
    fs::write(repo.join("bb.txt"), "changed since\n").unwrap();
    commit(&home, &repo, "later");
    assert!(landed(&home, &repo, "odd").contains("clean, landed"), "{}", landed(&home, &repo, "odd"));
    // Merged, and main reset: it has not landed any more.
    let dir = workspace(&home, &repo, "reset");
    fs::write(dir.join("r"), "r").unwrap();
    commit(&home, &dir, "r");
    home.run(&repo, "git", &["merge", "-q", "--no-edit", "--no-ff", "reset"]);
    assert!(landed(&home, &repo, "reset").contains("clean, landed"));
    home.run(&repo, "git", &["reset", "-q", "--hard", "HEAD~1"]);
    assert!(landed(&home, &repo, "reset").contains("1 commit not landed"));
}

#[test]
fn a_landing_that_cannot_be_proved_is_recorded_until_more_work_follows() {
    let home = Home::new();
    let repo = home.repo("repo");
    fs::write(repo.join("a.txt"), lines("a", 30)).unwrap();
    commit(&home, &repo, "base");
    let dir = workspace(&home, &repo, "edited");
    replace(&dir.join("a.txt"), "a line 3.", "three");
    commit(&home, &dir, "work");
    home.run(&repo, "git", &["merge", "-q", "--squash", "edited"]);
    replace(&repo.join("a.txt"), "three", "three, as the reviewer likes it");
    commit(&home, &repo, "squashed with an edit");
    assert!(landed(&home, &repo, "edited").contains("1 commit not landed"));
    home.toft(&repo, &["ws", "landed", "edited"]).ok();
    assert!(landed(&home, &repo, "edited").contains("landed, as recorded"));
    replace(&dir.join("a.txt"), "a line 9.", "nine");
    commit(&home, &dir, "more");
    assert!(landed(&home, &repo, "edited").contains("2 commits not landed"));
    home.toft(&repo, &["ws", "landed", "edited"]).ok();
    let gone = home.toft(&repo, &["ws", "rm", "edited", "--json"]).data();
    assert!(gone[0]["gone"] == true && gone[0]["rescue"].is_string(), "its commits are kept: {gone}");
}
