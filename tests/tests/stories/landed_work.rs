//! Work has landed when that is recorded, or when merging it changes nothing.

use toft_stories::kept::create;
use toft_stories::prelude::*;

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from} in {}", path.display());
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

fn lines(name: &str, count: usize) -> String {
    (0..count).map(|n| format!("{name} line {n}.\n")).collect()
}

/// What `ws list` says of one workspace.
fn landed(home: &Home, repo: &Path, name: &str) -> String {
    let text = home.toft(repo, &["ws", "list", "--limit", "100"]).ok();
    text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn work_has_landed_when_merging_it_changes_nothing_and_not_when_it_only_looks_alike() {
    let (home, repo) = Home::with_repository("repo");
    let block = "    lock();\n    y += 1;\n    check(y);\n    y += 2;\n    unlock();\n";
    let twin: String = (0..3).map(|n| format!("int f{n}(int x) {{\n{block}}}\n\n")).collect();
    fs::write(repo.join("twin.c"), &twin).unwrap();
    fs::write(repo.join("long.txt"), lines("long", 200)).unwrap();
    fs::write(repo.join("b.txt"), "b\n").unwrap();
    commit_all(&home, &repo, "base");
    // The same fix in another block that looks the same.
    let dir = create(&home, &repo, "twin", &[]);
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
    commit_all(&home, &dir, "fix the second");
    fs::write(repo.join("twin.c"), fixed(0)).unwrap();
    commit_all(&home, &repo, "fix the first");
    assert!(landed(&home, &repo, "twin").contains("1 commit not landed"));
    // The same lines with another indentation.
    let dir = create(&home, &repo, "indent", &[]);
    fs::write(dir.join("i.py"), "if a:\n    one()\n    two()\n").unwrap();
    commit_all(&home, &dir, "i");
    fs::write(repo.join("i.py"), "if a:\n    one()\ntwo()\n").unwrap();
    commit_all(&home, &repo, "i");
    assert!(landed(&home, &repo, "indent").contains("1 commit not landed"));
    // Squashed, and changed since; then more work on top.
    let dir = create(&home, &repo, "squashed", &[]);
    for n in [20, 21] {
        replace(&dir.join("long.txt"), &format!("long line {n}."), &format!("line {n} x"));
        commit_all(&home, &dir, "s");
    }
    home.run(&repo, "git", &["merge", "-q", "--squash", "squashed"]);
    commit_all(&home, &repo, "squash");
    assert!(landed(&home, &repo, "squashed").contains("clean, landed"));
    replace(&repo.join("long.txt"), "line 20 x", "LINE TWENTY");
    commit_all(&home, &repo, "later");
    assert!(landed(&home, &repo, "squashed").contains("clean, landed"));
    replace(&dir.join("long.txt"), "long line 22.", "line 22 x");
    commit_all(&home, &dir, "after the squash");
    assert!(landed(&home, &repo, "squashed").contains("not landed"));
    // A binary file, a mode and a rename, squashed, and changed since.
    let dir = create(&home, &repo, "odd", &[]);
    fs::write(dir.join("bin"), [0_u8, 1, 255, 0, 7]).unwrap();
    home.run(&dir, "git", &["update-index", "--chmod=+x", "b.txt"]);
    home.run(&dir, "git", &["add", "bin"]);
    home.run(&dir, "git", &["commit", "-qm", "bin"]);
    home.run(&dir, "git", &["checkout", "-q", "--", "b.txt"]);
    home.run(&dir, "git", &["mv", "b.txt", "bb.txt"]);
    commit_all(&home, &dir, "rename");
    home.run(&repo, "git", &["merge", "-q", "--squash", "odd"]);
    commit_all(&home, &repo, "squash");
    fs::write(repo.join("bb.txt"), "changed since\n").unwrap();
    commit_all(&home, &repo, "later");
    assert!(landed(&home, &repo, "odd").contains("clean, landed"), "{}", landed(&home, &repo, "odd"));
    // Merged, and main reset: it has not landed any more.
    let dir = create(&home, &repo, "reset", &[]);
    fs::write(dir.join("r"), "r").unwrap();
    commit_all(&home, &dir, "r");
    home.run(&repo, "git", &["merge", "-q", "--no-edit", "--no-ff", "reset"]);
    assert!(landed(&home, &repo, "reset").contains("clean, landed"));
    home.run(&repo, "git", &["reset", "-q", "--hard", "HEAD~1"]);
    assert!(landed(&home, &repo, "reset").contains("1 commit not landed"));
}

#[test]
fn a_landing_that_cannot_be_proved_is_recorded_and_its_commits_are_kept() {
    let (home, repo) = Home::with_repository("repo");
    fs::write(repo.join("a.txt"), lines("a", 30)).unwrap();
    commit_all(&home, &repo, "base");
    let dir = create(&home, &repo, "edited", &[]);
    replace(&dir.join("a.txt"), "a line 3.", "three");
    commit_all(&home, &dir, "work");
    home.run(&repo, "git", &["merge", "-q", "--squash", "edited"]);
    replace(&repo.join("a.txt"), "three", "three, as the reviewer likes it");
    commit_all(&home, &repo, "squashed with an edit");
    assert!(landed(&home, &repo, "edited").contains("1 commit not landed"));
    home.toft(&repo, &["ws", "rm", "edited"]).fails(5);
    // What is not committed keeps it, also where the commits have landed.
    fs::write(dir.join("new.txt"), "not committed\n").unwrap();
    home.toft(&repo, &["ws", "rm", "--landed", "edited"]).fails(5);
    fs::remove_file(dir.join("new.txt")).unwrap();
    assert!(landed(&home, &repo, "edited").contains("landed, as recorded"));
    let gone = home.toft(&repo, &["ws", "rm", "--landed", "edited", "--json"]).data();
    assert!(gone[0]["gone"] == true && gone[0]["rescue"].is_string(), "its commits are kept: {gone}");
}
