//! Issues as plain lines: nothing a merge, a checkout, a crowd or a crash does to the file loses one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
};

use serde_json::Value;
use toft_stories::{Home, sized, snapshot};

fn ledger(repo: &Path) -> PathBuf {
    repo.join(".git/toft/ledger/issues.jsonl")
}

fn ids(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap();
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
    text.lines().map(id).collect()
}

fn listed(home: &Home, repo: &Path) -> BTreeMap<String, Value> {
    let rows = home.toft(repo, &["list", "issues", "--all", "--limit", "5000", "--json"]).data();
    rows.as_array().unwrap().iter().map(|row| (row["id"].as_str().unwrap().to_owned(), row.clone())).collect()
}

fn add(home: &Home, repo: &Path, args: &[&str]) -> String {
    let mut all = vec!["add"];
    all.extend(args);
    all.push("-q");
    home.toft(repo, &all).ok().trim().to_owned()
}

#[test]
fn ids_the_index_does_not_know_survive_a_write() {
    let home = Home::new();
    let repo = home.repo("api");
    fs::create_dir_all(ledger(&repo).parent().unwrap()).unwrap();
    let lines: String = (0..8).map(|n| format!("{{\"id\":\"tf-hand{n}\",\"title\":\"by hand {n}\"}}\n")).collect();
    fs::write(ledger(&repo), lines).unwrap();
    add(&home, &repo, &["the ninth"]);
    assert_eq!(ids(&ledger(&repo)).len(), 9);
    assert_eq!(listed(&home, &repo).len(), 9);
    // A pull brings four more, and another tool leaves no newline at the end.
    let mut text = fs::read_to_string(ledger(&repo)).unwrap();
    text.push_str("{\"id\":\"tf-pulled0\",\"title\":\"x\"}\n{\"id\":\"tf-pulled1\",\"title\":\"x\"}\n{\"id\":\"tf-pulled2\",\"title\":\"x\"}\n{\"id\":\"tf-pulled3\",\"title\":\"x\"}");
    fs::write(ledger(&repo), text).unwrap();
    add(&home, &repo, &["the fourteenth"]);
    assert_eq!(ids(&ledger(&repo)).len(), 14);
    assert_eq!(listed(&home, &repo).len(), 14);
}

#[test]
fn a_file_of_the_same_size_and_an_older_time_is_seen_to_have_changed() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, &["aaaa"]);
    home.toft(&repo, &["list"]).ok();
    let text = fs::read_to_string(ledger(&repo)).unwrap();
    let written = fs::metadata(ledger(&repo)).unwrap().modified().unwrap();
    fs::write(ledger(&repo), text.replace("aaaa", "bbbb")).unwrap();
    let file = fs::File::options().append(true).open(ledger(&repo)).unwrap();
    file.set_modified(written - std::time::Duration::from_secs(3_600)).unwrap();
    assert_eq!(listed(&home, &repo)[&id]["title"], "bbbb");
}

#[test]
fn an_edit_by_hand_wins_over_what_it_was_made_from_and_stays() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, &["before", "-l", "keep"]);
    let text = fs::read_to_string(ledger(&repo)).unwrap();
    fs::write(ledger(&repo), text.replace("before", "after")).unwrap();
    assert_eq!(listed(&home, &repo)[&id]["title"], "after");
    home.toft(&repo, &["edit", &id, "-p", "0"]).ok();
    home.toft(&repo, &["compact"]).ok();
    let row = &listed(&home, &repo)[&id];
    assert_eq!((row["title"].as_str(), row["priority"].as_u64()), (Some("after"), Some(0)));
    assert_eq!(row["labels"][0], "keep");
    assert_eq!(fs::read_to_string(ledger(&repo)).unwrap().lines().count(), 1, "one line for each issue");
}

#[test]
fn the_index_is_made_anew_and_is_the_same() {
    let home = Home::new();
    let repo = home.repo("api");
    let first = add(&home, &repo, &["first", "-p", "1"]);
    add(&home, &repo, &["second", "--needs", &first]);
    let before = (listed(&home, &repo), home.toft(&repo, &["ready", "--json"]).data());
    for file in ["toft.db", "toft.db-wal", "toft.db-shm"] {
        let _ = fs::remove_file(repo.join(".git/toft").join(file));
    }
    home.toft(&repo, &["init"]).ok();
    assert_eq!((listed(&home, &repo), home.toft(&repo, &["ready", "--json"]).data()), before);
}

/// Two clones of one repository that keep issues in the tree.
fn clones(home: &Home) -> (PathBuf, PathBuf) {
    let one = home.git("one");
    home.toft(&one, &["init", "--tree"]).ok();
    add(home, &one, &["shared", "-l", "a"]);
    home.run(&one, "git", &["add", "-A"]);
    home.run(&one, "git", &["commit", "-qm", "issues"]);
    home.run(home.path(), "git", &["clone", "-q", "one", "two"]);
    let two = home.path().join("two");
    home.toft(&two, &["init"]).ok();
    (one, two)
}

fn commit(home: &Home, repo: &Path) {
    home.run(repo, "git", &["add", "-A"]);
    home.run(repo, "git", &["commit", "-qm", "work"]);
}

/// Merges `other` into `repo` with the real git, whatever it leaves behind.
fn merge(home: &Home, repo: &Path, other: &Path, style: &str) -> String {
    let style = format!("merge.conflictStyle={style}");
    home.run(repo, "git", &["fetch", "-q", other.to_str().unwrap(), "HEAD"]);
    let merged =
        home.command(repo, "git", &["-c", &style, "merge", "-q", "-m", "merge", "FETCH_HEAD"]).output().unwrap();
    let text = fs::read_to_string(repo.join(".toft/issues.jsonl")).unwrap();
    assert!(merged.status.success() || text.contains("<<<<<<<"), "{merged:?}");
    text
}

#[test]
fn clones_that_edited_the_same_issue_offline_end_byte_identical_in_both_orders() {
    for style in ["merge", "diff3", "zdiff3"] {
        let home = Home::new();
        let (one, two) = clones(&home);
        let id = listed(&home, &one).keys().next().unwrap().clone();
        home.toft(&one, &["edit", &id, "-l", "from-one", "-m", "said in one", "--title", "renamed in one"]).ok();
        let child_one = add(&home, &one, &["child of one", "--parent", &id]);
        home.toft(&two, &["edit", &id, "-l", "from-two", "-m", "said in two", "-p", "0", "--unlabel", "a"]).ok();
        let child_two = add(&home, &two, &["child of two", "--parent", &id]);
        for repo in [&one, &two] {
            home.toft(repo, &["compact"]).ok();
            commit(&home, repo);
        }
        let before = (home.run(&one, "git", &["rev-parse", "HEAD"]), home.run(&two, "git", &["rev-parse", "HEAD"]));
        assert!(merge(&home, &one, &two, style).contains("<<<<<<<"), "{style}: git finds a conflict");
        home.run(&one, "git", &["fetch", "-q", two.to_str().unwrap(), "HEAD"]);
        home.run(&two, "git", &["fetch", "-q", one.to_str().unwrap(), before.0.trim()]);
        let style = format!("merge.conflictStyle={style}");
        let _ =
            home.command(&two, "git", &["-c", &style, "merge", "-q", "-m", "merge", "FETCH_HEAD"]).output().unwrap();
        // Both sides are read while the markers are still there, and the doctor says so.
        for repo in [&one, &two] {
            assert_eq!(listed(&home, repo).len(), 3);
            let said = home.toft(repo, &["doctor"]);
            assert!(said.code == 8 && said.out.contains("conflict markers"), "{said:?}");
            home.toft(repo, &["compact"]).ok();
            home.toft(repo, &["doctor"]).ok();
        }
        let [in_one, in_two] = [&one, &two].map(|repo| fs::read_to_string(repo.join(".toft/issues.jsonl")).unwrap());
        assert_eq!(in_one, in_two, "{style}");
        let row = &listed(&home, &one)[&id];
        assert_eq!(row["labels"], serde_json::json!(["from-one", "from-two"]));
        assert_eq!((row["title"].as_str(), row["priority"].as_u64()), (Some("renamed in one"), Some(0)));
        assert_eq!(row["comments"].as_array().unwrap().len(), 2);
        assert_ne!(child_one, child_two);
    }
}

#[test]
fn a_deletion_beats_an_edit_that_did_not_know_of_it() {
    for union in [false, true] {
        let home = Home::new();
        let (one, two) = clones(&home);
        let id = listed(&home, &one).keys().next().unwrap().clone();
        home.toft(&one, &["delete", &id, "-m", "not needed"]).ok();
        home.toft(&two, &["edit", &id, "--title", "edited meanwhile"]).ok();
        for repo in [&one, &two] {
            if union {
                fs::write(repo.join(".gitattributes"), "*.jsonl merge=union\n").unwrap();
            }
            commit(&home, repo);
        }
        merge(&home, &one, &two, "merge");
        let tip = home.run(&one, "git", &["rev-parse", "ORIG_HEAD"]);
        home.run(&two, "git", &["fetch", "-q", one.to_str().unwrap(), tip.trim()]);
        let _ = home.command(&two, "git", &["merge", "-q", "-m", "merge", "FETCH_HEAD"]).output().unwrap();
        for repo in [&one, &two] {
            home.toft(repo, &["compact"]).ok();
            assert!(listed(&home, repo).is_empty(), "it does not come back");
        }
        let [in_one, in_two] = [&one, &two].map(|repo| fs::read_to_string(repo.join(".toft/issues.jsonl")).unwrap());
        assert_eq!(in_one, in_two);
        home.toft(&one, &["restore", &id]).ok();
        assert_eq!(listed(&home, &one)[&id]["title"], "edited meanwhile", "nothing of it was lost");
    }
}

#[test]
fn a_conflict_of_mercurial_is_read_from_both_sides() {
    let home = Home::new();
    let one = home.path().join("one");
    fs::create_dir_all(&one).unwrap();
    let hg = |dir: &Path, args: &[&str]| {
        let mut all = vec!["--config", "ui.username=ana", "--config", "ui.merge=internal:merge", "-q"];
        all.extend(args);
        home.command(dir, "hg", &all).output().unwrap()
    };
    hg(&one, &["init"]);
    home.toft(&one, &["init"]).ok();
    let id = add(&home, &one, &["shared"]);
    hg(&one, &["add", ".toft/issues.jsonl"]);
    hg(&one, &["commit", "-m", "issues"]);
    hg(home.path(), &["clone", "one", "two"]);
    let two = home.path().join("two");
    home.toft(&two, &["init"]).ok();
    home.toft(&one, &["edit", &id, "-l", "from-one"]).ok();
    home.toft(&two, &["edit", &id, "-l", "from-two"]).ok();
    for repo in [&one, &two] {
        home.toft(repo, &["compact"]).ok();
        hg(repo, &["commit", "-m", "work"]);
    }
    hg(&one, &["pull", two.to_str().unwrap()]);
    hg(&one, &["merge"]);
    let text = fs::read_to_string(one.join(".toft/issues.jsonl")).unwrap();
    assert!(text.contains("<<<<<<<"), "hg left a conflict: {text}");
    assert_eq!(listed(&home, &one)[&id]["labels"], serde_json::json!(["from-one", "from-two"]));
}

#[test]
fn bad_bytes_are_set_aside_and_everything_else_loads() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, &["good"]);
    let mut bytes = fs::read(ledger(&repo)).unwrap();
    bytes.extend(b"not json at all\n\xff\xfe broken\n{\"id\":\"tf-x\",\"title\":7}\n{\"id\":\"tf-torn\",\"ti");
    fs::write(ledger(&repo), &bytes).unwrap();
    assert_eq!(listed(&home, &repo).keys().collect::<Vec<_>>(), [&id]);
    home.toft(&repo, &["doctor"]).fails(8);
    let second = add(&home, &repo, &["after the torn line"]);
    assert_eq!(listed(&home, &repo).len(), 2);
    home.toft(&repo, &["compact"]).ok();
    home.toft(&repo, &["doctor"]).ok();
    assert_eq!(ids(&ledger(&repo)), BTreeSet::from([id, second]));
    let kept: usize = fs::read_dir(repo.join(".git/toft/ledger/quarantine")).unwrap().count();
    assert_eq!(kept, 4, "nothing is thrown away");
}

#[test]
fn an_edge_to_an_issue_that_is_not_here_is_kept_and_shown() {
    let home = Home::new();
    let repo = home.repo("api");
    fs::create_dir_all(ledger(&repo).parent().unwrap()).unwrap();
    let line = "{\"id\":\"tf-1\",\"title\":\"waits\",\"deps\":[{\"on\":\"tf-elsewhere\",\"kind\":\"blocks\"}]}\n";
    fs::write(ledger(&repo), line).unwrap();
    home.toft(&repo, &["edit", "tf-1", "-p", "0"]).ok();
    home.toft(&repo, &["compact"]).ok();
    assert!(home.toft(&repo, &["show", "tf-1", "--why"]).ok().contains("needs tf-elsewhere, which no ledger here has"));
    assert!(home.toft(&repo, &["doctor"]).ok().contains("tf-elsewhere"));
    assert!(fs::read_to_string(ledger(&repo)).unwrap().contains("tf-elsewhere"));
    home.toft(&repo, &["claim", "tf-1"]).fails(5);
}

#[test]
fn parts_of_what_is_blocked_or_put_off_wait_and_say_why() {
    let home = Home::new();
    let repo = home.repo("api");
    let blocker = add(&home, &repo, &["blocker", "-p", "4"]);
    let epic = add(&home, &repo, &["epic", "-t", "epic", "--needs", &blocker]);
    let child = add(&home, &repo, &["child", "-t", "epic", "--parent", &epic]);
    let grandchild = add(&home, &repo, &["grandchild", "--parent", &child, "-p", "0"]);
    let ready = || home.toft(&repo, &["ready", "-q"]).ok().lines().map(str::to_owned).collect::<Vec<_>>();
    let why = |id: &str| home.toft(&repo, &["show", id, "--why"]).ok();
    assert_eq!(ready(), [blocker.as_str()]);
    assert!(why(&grandchild).contains(&format!("{epic}, of which it is part, needs {blocker}")));
    assert!(why(&child).contains("1 of its parts are not done"));
    home.toft(&repo, &["edit", &blocker, "--close", "gone"]).ok();
    assert_eq!(ready(), [grandchild.as_str()]);
    home.toft(&repo, &["edit", &epic, "--defer", "1h"]).ok();
    assert!(home.toft(&repo, &["ready"]).ok().contains("Nothing"));
    assert!(why(&grandchild).contains("is put off until"));
    home.toft(&repo, &["edit", &epic, "--undefer"]).ok();
    assert_eq!(ready(), [grandchild.as_str()]);
    home.toft(&repo, &["edit", &grandchild, "--close", "done"]).ok();
    assert_eq!(ready(), [child]);
    let cycle = home.toft(&repo, &["edit", &grandchild, "--parent", &grandchild]).fails(5);
    assert!(cycle.contains("wait for each other"), "{cycle}");
}

#[test]
fn one_order_of_issues_and_tasks_and_labels_that_say_who_may_take_them() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "a task", "-p", "1"]).ok();
    let urgent = add(&home, &repo, &["urgent", "-p", "0"]);
    let not_me = add(&home, &repo, &["ask first", "-p", "0", "-l", "no-auto-claim"]);
    let found = add(&home, &repo, &["in the way", "-p", "4", "-l", "discovered:blocker"]);
    let names = home.toft(&repo, &["ready", "-q"]).ok();
    let names: Vec<_> = names.lines().collect();
    assert_eq!(names[..3], [&found, &urgent, &not_me], "listed in one order");
    let claimed = |agent: &str| home.toft(&repo, &["claim", "--as", agent, "--json"]).data();
    assert_eq!(claimed("a")["issue"]["id"], found.as_str());
    assert_eq!(claimed("b")["issue"]["id"], urgent.as_str());
    assert_eq!(claimed("c")["issue"], Value::Null);
    home.toft(&repo, &["claim", "--as", "d"]).fails(6);
    assert_eq!(home.toft(&repo, &["claim", &not_me, "--as", "d", "--json"]).data()["issue"]["status"], "in_progress");
    home.toft(&repo, &["claim", &not_me, "--as", "e"]).fails(5);
    home.toft(&repo, &["finish", "--as", "d", "-m", "asked", "--no-change", "it was a question"]).ok();
    let closed = &listed(&home, &repo)[&not_me];
    assert_eq!((closed["status"].as_str(), closed["closed"]["reason"].as_str()), (Some("closed"), Some("asked")));
    let flow = home.toft(&repo, &["show", &urgent, "--json"]).data()["workflow"].as_str().unwrap().to_owned();
    home.toft(&repo, &["flow", "abandon", &flow]).ok();
    assert_eq!(listed(&home, &repo)[&urgent]["status"], "open", "given up, it is open again");
}

#[test]
fn an_issue_given_back_is_open_again_and_one_that_is_held_is_not_closed_by_hand() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, &["work"]);
    let later = add(&home, &repo, &["later", "--defer", "1h"]);
    home.toft(&repo, &["claim", &id, "--as", "ana"]).ok();
    assert!(home.toft(&repo, &["claim", &id, "--as", "bob"]).fails(5).contains("held by ana"));
    assert!(home.toft(&repo, &["edit", &id, "--close", "no"]).fails(5).contains("held by ana"));
    home.toft(&repo, &["delete", &id]).fails(5);
    home.toft(&repo, &["save", &id, "--as", "ana", "-m", "half"]).ok();
    home.toft(&repo, &["finish", &id, "release", "--as", "ana"]).ok();
    let row = &listed(&home, &repo)[&id];
    assert_eq!((row["status"].as_str(), row.get("assignee")), (Some("open"), None));
    assert!(home.toft(&repo, &["show", &id, "--why"]).ok().contains("It can start now"));
    assert!(home.toft(&repo, &["ready", "--explain"]).ok().contains(&format!("{later}  not ready")));
    assert!(home.toft(&repo, &["claim", &id, "--as", "bob"]).ok().contains("go on from: half"));
    home.toft(&repo, &["finish", &id, "release", "--as", "bob"]).ok();
    home.toft(&repo, &["edit", &id, "--close", "not wanted"]).ok();
    assert_eq!(listed(&home, &repo)[&id]["closed"]["reason"], "not wanted");
    home.toft(&repo, &["claim", "--as", "carl"]).fails(6);
    home.toft(&repo, &["delete", &id, "-m", "gone"]).ok();
    assert!(home.toft(&repo, &["list", "--status", "deleted", "-q"]).ok().contains(&id));
}

#[test]
fn reading_issues_changes_no_file() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, &["one"]);
    thread::sleep(std::time::Duration::from_millis(30));
    home.toft(&repo, &["list"]).ok();
    let before = snapshot(&repo);
    for args in [
        vec!["list"],
        vec!["list", "--search", "one"],
        vec!["show", &id, "--why"],
        vec!["ready"],
        vec!["graph"],
        vec!["graph", "--mermaid"],
        vec!["export", "jsonl"],
        vec!["export", "beads"],
        vec!["export", "csv"],
    ] {
        home.toft(&repo, &args).ok();
        let after = snapshot(&repo);
        let changed: Vec<_> = after.keys().filter(|path| before.get(*path) != after.get(*path)).collect();
        assert!(changed.is_empty() && before.len() == after.len(), "{args:?} changed {changed:?}");
    }
}

#[test]
fn a_contributor_plans_in_private_and_every_command_finds_the_same_issue() {
    let home = Home::new();
    let repo = home.git("upstream");
    home.toft(&repo, &["init", "--contributor"]).ok();
    let mine = add(&home, &repo, &["my plan"]);
    let theirs = add(&home, &repo, &["for everyone", "--ledger", "branch"]);
    let part = add(&home, &repo, &["a part of theirs", "--parent", &theirs]);
    let found = add(&home, &repo, &["found on the way", "--discovered-from", &theirs]);
    let rows = listed(&home, &repo);
    assert_eq!(rows[&mine]["ledger"], "planning");
    for id in [&theirs, &part, &found] {
        assert_eq!(rows[id]["ledger"], "branch", "it stays with what it belongs to");
    }
    home.toft(&repo, &["edit", &mine, "--needs", &part]).ok();
    assert!(home.toft(&repo, &["show", &mine, "--why"]).ok().contains(&format!("needs {part}")));
    home.toft(&repo, &["edit", &part, "--close", "done"]).ok();
    assert!(home.toft(&repo, &["ready", "-q"]).ok().contains(&mine));
    assert!(!fs::read_to_string(ledger(&repo)).unwrap().contains("my plan"), "nothing private is in the repository");
    assert_eq!(home.run(&repo, "git", &["status", "--porcelain"]), "");
    // A team's ledger, that is only read.
    let team = home.path().join("team");
    fs::create_dir_all(&team).unwrap();
    fs::write(team.join("issues.jsonl"), "{\"id\":\"tf-team\",\"title\":\"of the team\"}\n").unwrap();
    home.toft(&repo, &["ledger", "add", "team", team.to_str().unwrap(), "--read-only"]).ok();
    assert_eq!(listed(&home, &repo)["tf-team"]["ledger"], "team");
    let before = fs::read(team.join("issues.jsonl")).unwrap();
    home.toft(&repo, &["edit", "tf-team", "-p", "0"]).fails(2);
    home.toft(&repo, &["compact"]).ok();
    assert_eq!(fs::read(team.join("issues.jsonl")).unwrap(), before, "a read-only ledger never changes");
    home.toft(&repo, &["ledger", "remove", "team"]).ok();
    assert!(!listed(&home, &repo).contains_key("tf-team"));
}

/// 150 processes add, edit and close; every acknowledged change is in the file.
#[test]
fn a_crowd_of_writers_loses_no_issue_and_no_edit() {
    let home = Home::new();
    let repo = home.repo("api");
    let (workers, rounds) = (sized(60, 150), sized(2, 7));
    let done: Mutex<Vec<(String, String)>> = Mutex::default();
    let common = add(&home, &repo, &["everyone comments here"]);
    thread::scope(|scope| {
        for worker in 0..workers {
            let (home, repo, done, common) = (&home, &repo, &done, &common);
            scope.spawn(move || {
                for round in 0..rounds {
                    let word = format!("w{worker}r{round}");
                    let id = add(home, repo, &[&word]);
                    home.toft(repo, &["edit", common, "-m", &word, "-l", &word]).ok();
                    home.toft(repo, &["edit", &id, "--close", &word]).ok();
                    done.lock().unwrap().push((id, word));
                }
            });
        }
    });
    let done = done.into_inner().unwrap();
    for again in [false, true] {
        let rows = listed(&home, &repo);
        assert_eq!(rows.len(), workers * rounds + 1);
        let said: BTreeSet<_> =
            rows[&common]["comments"].as_array().unwrap().iter().map(|said| said["text"].as_str().unwrap()).collect();
        let labels: BTreeSet<_> =
            rows[&common]["labels"].as_array().unwrap().iter().map(|label| label.as_str().unwrap()).collect();
        for (id, word) in &done {
            assert_eq!(rows[id]["closed"]["reason"], word.as_str());
            assert!(said.contains(word.as_str()) && labels.contains(word.as_str()), "{word}");
        }
        if !again {
            home.toft(&repo, &["compact"]).ok();
        }
    }
}

#[test]
fn killed_at_any_moment_a_writer_leaves_a_readable_ledger_with_everything_acknowledged() {
    let home = Home::new();
    let repo = home.repo("api");
    let mut known = BTreeSet::new();
    for round in 0..sized(40, 400) {
        let title = format!("title {round}");
        let mut child = home.command(&repo, toft_stories::toft_bin(), &["add", &title, "-q"]);
        let mut child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
        thread::sleep(std::time::Duration::from_micros(500 * (round as u64 % 40)));
        child.kill().unwrap();
        let said = child.wait_with_output().unwrap();
        let id = String::from_utf8(said.stdout).unwrap().trim().to_owned();
        if !id.is_empty() {
            known.insert(id);
        }
    }
    known.insert(add(&home, &repo, &["the last"]));
    let rows = listed(&home, &repo);
    assert!(known.iter().all(|id| rows.contains_key(id)), "what was acknowledged is there");
    home.toft(&repo, &["compact"]).ok();
    assert_eq!(listed(&home, &repo), rows);
    // Cut at any byte, as a power cut may: what is whole is there, the rest is told.
    let bytes = fs::read(ledger(&repo)).unwrap();
    for cut in (1..bytes.len()).step_by(bytes.len() / sized(10, 100) + 1) {
        fs::write(ledger(&repo), &bytes[..cut]).unwrap();
        let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        let found = listed(&home, &repo).len();
        assert!(found == whole || found == whole + 1, "{found} of {whole} at {cut}");
    }
}

/// The ledger of another project, as published.
fn beads() -> Option<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/beads-824.jsonl");
    fs::read_to_string(path).ok()
}

#[test]
fn a_beads_ledger_comes_in_whole_and_goes_out_as_it_was() {
    let Some(text) = beads() else { return eprintln!("there is no beads ledger here: nothing is shown") };
    let home = Home::new();
    let repo = home.repo("api");
    let file = home.path().join("beads.jsonl");
    fs::write(&file, &text).unwrap();
    let import = || home.toft(&repo, &["import", "beads", file.to_str().unwrap(), "--json"]).data();
    let first = import();
    assert_eq!(
        (first["read"].as_u64(), first["changed"].as_u64(), first["unreadable"].as_array().map(Vec::len)),
        (Some(824), Some(824), Some(0))
    );
    let bytes = fs::read(ledger(&repo)).unwrap();
    assert_eq!(import()["changed"], 0, "a second time changes nothing");
    assert_eq!(fs::read(ledger(&repo)).unwrap(), bytes);
    home.toft(&repo, &["compact"]).ok();
    let row = |line: &str| -> (String, Value) {
        let mut row: Value = serde_json::from_str(line).unwrap();
        for list in ["dependencies", "labels", "comments"] {
            if let Some(members) = row.get_mut(list).and_then(Value::as_array_mut) {
                members.sort_by_key(ToString::to_string);
            }
        }
        (row["id"].as_str().unwrap().to_owned(), row)
    };
    let theirs: BTreeMap<_, _> = text.lines().map(row).collect();
    let out = home.toft(&repo, &["export", "beads"]).ok();
    let ours: BTreeMap<_, _> = out.lines().map(row).collect();
    for (id, issue) in &theirs {
        assert_eq!(ours.get(id), Some(issue));
    }
    assert_eq!(ours.len(), theirs.len());
    let ready: BTreeSet<_> =
        home.toft(&repo, &["ready", "-q", "--limit", "1000"]).ok().lines().map(str::to_owned).collect();
    assert_eq!(ready, ready_by_brute_force(&theirs));
    let page = home.toft(&repo, &["ready"]).ok();
    assert!(page.lines().count() <= 21 && page.len() < 4_000, "{page}");
}

/// The ready rule once more, from the words of the design and nothing else.
fn ready_by_brute_force(issues: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let open =
        |id: &str| issues.get(id).is_some_and(|issue| issue["status"] != "closed" && issue.get("deleted_at").is_none());
    let targets = |id: &str, kind: &str| -> Vec<String> {
        let deps = issues.get(id).and_then(|issue| issue.get("dependencies")).and_then(Value::as_array);
        let of_kind = deps.into_iter().flatten().filter(|dep| dep["type"] == kind);
        of_kind.map(|dep| dep["depends_on_id"].as_str().unwrap().to_owned()).collect()
    };
    let parent = |id: &str| targets(id, "parent-child").pop();
    let blocked = |id: &str| targets(id, "blocks").iter().any(|on| !issues.contains_key(on) || open(on));
    let ready = |id: &String| {
        let mut line = Some(id.clone());
        let mut held = false;
        while let Some(at) = line {
            held |= (at == *id || open(&at)) && blocked(&at);
            line = parent(&at);
        }
        let parts = issues.keys().any(|other| open(other) && parent(other).as_ref() == Some(id));
        open(id) && !held && !(issues[id]["issue_type"] == "epic" && parts)
    };
    issues.keys().filter(|id| ready(id)).cloned().collect()
}

#[test]
fn hostile_text_is_shown_and_never_sent() {
    let home = Home::new();
    let repo = home.repo("api");
    let evil = "\u{1b}[31mred\u{7} \u{202e}esrever <script>\u{0}".replace('\0', "");
    let id = add(&home, &repo, &[&evil, "-d", &evil]);
    for args in [
        vec!["list"],
        vec!["show", &id],
        vec!["ready"],
        vec!["graph"],
        vec!["graph", "--dot"],
        vec!["graph", "--mermaid"],
    ] {
        let said = home.toft(&repo, &args).ok();
        assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{args:?}: {said:?}");
    }
    let deep =
        format!("{{\"id\":\"tf-deep\",\"title\":\"deep\",\"x\":{}{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
    let long = format!("{{\"id\":\"tf-long\",\"title\":\"{}\"}}\n", "x".repeat(20 << 20));
    let mut file = fs::OpenOptions::new().append(true).open(ledger(&repo)).unwrap();
    std::io::Write::write_all(&mut file, format!("{deep}{long}\0\0\n").as_bytes()).unwrap();
    let rows = listed(&home, &repo);
    assert!(rows.contains_key(&id) && !rows.contains_key("tf-long"));
    home.toft(&repo, &["doctor"]).fails(8);
    home.toft(&repo, &["compact"]).ok();
    home.toft(&repo, &["doctor"]).ok();
    assert!(listed(&home, &repo).contains_key(&id));
}

/// Makes every file of a ledger look new, as a checkout does.
fn replace_by_copy(repo: &Path) {
    let copy = ledger(repo).with_extension("copy");
    fs::copy(ledger(repo), &copy).unwrap();
    fs::rename(&copy, ledger(repo)).unwrap();
}

#[test]
fn what_was_edited_by_hand_is_not_taken_twice() {
    let home = Home::new();
    let repo = home.repo("api");
    let (title, closed, gone) =
        (add(&home, &repo, &["one"]), add(&home, &repo, &["two"]), add(&home, &repo, &["three"]));
    let text = fs::read_to_string(ledger(&repo)).unwrap();
    let text = ["one", "two", "three"].iter().fold(text, |text, word| text.replace(word, &format!("{word} by hand")));
    fs::write(ledger(&repo), text).unwrap();
    home.toft(&repo, &["list"]).ok();
    home.toft(&repo, &["edit", &title, "--title", "newer"]).ok();
    home.toft(&repo, &["edit", &closed, "--close", "done"]).ok();
    home.toft(&repo, &["delete", &gone]).ok();
    for again in 0..3 {
        replace_by_copy(&repo);
        if again == 2 {
            for file in ["toft.db", "toft.db-wal", "toft.db-shm"] {
                let _ = fs::remove_file(repo.join(".git/toft").join(file));
            }
            home.toft(&repo, &["init"]).ok();
        }
        let rows = listed(&home, &repo);
        assert_eq!(rows[&title]["title"], "newer");
        assert_eq!(
            (rows[&closed]["status"].as_str(), rows[&closed]["title"].as_str()),
            (Some("closed"), Some("two by hand"))
        );
        assert!(!rows.contains_key(&gone));
    }
}

#[test]
fn a_change_far_from_the_end_is_seen_though_the_file_grew() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, &["first", "-p", "1"]);
    for n in 0..30 {
        add(&home, &repo, &[&format!("filler {n}"), "-d", &"x".repeat(400)]);
    }
    home.toft(&repo, &["edit", &id, "-p", "2"]).ok();
    home.toft(&repo, &["compact"]).ok();
    let text = fs::read_to_string(ledger(&repo)).unwrap();
    let line = text.lines().find(|line| line.contains(&id)).unwrap();
    let changed = text.replace(line, &line.replace("\"priority\":2", "\"priority\":3"));
    assert_eq!(changed.len(), text.len());
    fs::write(ledger(&repo), format!("{changed}{{\"id\":\"tf-more\",\"title\":\"more\"}}\n")).unwrap();
    let rows = listed(&home, &repo);
    assert_eq!((rows[&id]["priority"].as_u64(), rows.contains_key("tf-more")), (Some(3), true));
    home.toft(&repo, &["compact"]).ok();
    assert_eq!(listed(&home, &repo)[&id]["priority"], 3);
}

#[test]
fn the_archive_loses_nothing_whatever_is_in_it() {
    let home = Home::new();
    let repo = home.repo("api");
    let archive = ledger(&repo).with_file_name("archive");
    let ids: Vec<_> = (0..4).map(|n| add(&home, &repo, &[&format!("issue {n}")])).collect();
    home.toft(&repo, &["edit", &ids[0], "--close", "x"]).ok();
    home.toft(&repo, &["edit", &ids[1], "--close", "x"]).ok();
    let compact = || home.toft(&repo, &["compact", "--archive-after", "0s", "--json"]).data()[0].clone();
    thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(compact()["archived"], 2);
    let year = fs::read_dir(&archive).unwrap().next().unwrap().unwrap().path();
    assert_eq!((ids.len(), fs::read_to_string(&year).unwrap().lines().count()), (4, 2));
    assert_eq!(listed(&home, &repo).len(), 4, "what is archived is still found");
    // What nobody understands is kept, there too.
    let text = fs::read_to_string(&year).unwrap();
    fs::write(&year, format!("{text}garbage\n")).unwrap();
    assert_eq!(compact()["quarantined"], 1);
    // One comes back to life, though the other file is gone.
    home.toft(&repo, &["edit", &ids[0], "--reopen"]).ok();
    compact();
    assert_eq!(listed(&home, &repo).len(), 4);
    fs::remove_file(ledger(&repo)).unwrap();
    home.toft(&repo, &["edit", &ids[1], "--reopen"]).ok();
    compact();
    assert_eq!(listed(&home, &repo)[&ids[1]]["status"], "open");
    // The same issue in both files, and one of them goes: it is still there.
    let hot = fs::read_to_string(ledger(&repo)).unwrap();
    fs::create_dir_all(&archive).unwrap();
    fs::write(archive.join("1999.jsonl"), &hot).unwrap();
    listed(&home, &repo);
    fs::remove_file(archive.join("1999.jsonl")).unwrap();
    fs::write(ledger(&repo), format!("{hot}{{\"id\":\"tf-more\",\"title\":\"more\"}}\n")).unwrap();
    assert_eq!(listed(&home, &repo).len(), hot.lines().count() + 1);
}

#[test]
fn one_issue_that_cannot_start_stands_in_nobodys_way() {
    let home = Home::new();
    let repo = home.repo("api");
    for n in 0..20 {
        add(&home, &repo, &[&format!("ask {n}"), "-p", "0", "-l", "no-auto-claim"]);
    }
    add(&home, &repo, &["no such template", "-p", "0", "--template", "nope"]);
    let good = add(&home, &repo, &["good", "-p", "4", "-l", "foo"]);
    assert_eq!(home.toft(&repo, &["claim", "-l", "foo", "--as", "a", "--json"]).data()["issue"]["id"], good.as_str());
    home.toft(&repo, &["finish", "--as", "a", "release"]).ok();
    assert_eq!(home.toft(&repo, &["claim", "--as", "b", "--json"]).data()["issue"]["id"], good.as_str());
    // Closed in the file meanwhile, giving it back does not open it again.
    let text = fs::read_to_string(ledger(&repo)).unwrap();
    let line = text.lines().rfind(|line| line.contains(&good)).unwrap();
    fs::write(ledger(&repo), format!("{text}{}\n", line.replace("\"in_progress\"", "\"closed\""))).unwrap();
    home.toft(&repo, &["finish", "--as", "b", "release"]).ok();
    assert_eq!(listed(&home, &repo)[&good]["status"], "closed");
}

#[test]
fn what_waits_for_itself_is_refused_however_it_is_tied() {
    let home = Home::new();
    let repo = home.repo("api");
    let epic = add(&home, &repo, &["epic", "-t", "epic"]);
    let before = add(&home, &repo, &["before"]);
    let part = add(&home, &repo, &["part", "--parent", &epic]);
    home.toft(&repo, &["edit", &epic, "--needs", &before]).ok();
    assert!(home.toft(&repo, &["edit", &before, "--needs", &part]).fails(5).contains("wait for each other"));
    home.toft(&repo, &["edit", &part, "--needs", &epic]).fails(5);
    home.toft(&repo, &["add", "new", "--parent", &epic, "--needs", &epic]).fails(5);
    home.toft(&repo, &["edit", &before, "--parent", &epic]).fails(5);
    // A closed whole between: what its own whole needs still counts.
    let inner = add(&home, &repo, &["inner", "-t", "epic"]);
    let leaf = add(&home, &repo, &["leaf", "--parent", &inner]);
    home.toft(&repo, &["edit", &inner, "--close", "x"]).ok();
    home.toft(&repo, &["edit", &inner, "--parent", &epic]).ok();
    assert!(!home.toft(&repo, &["ready", "-q"]).ok().contains(&leaf));
    let twice = ["edit", &leaf, "-m", "said once", "--op", "op-1"];
    home.toft(&repo, &twice).ok();
    home.toft(&repo, &twice).ok();
    assert_eq!(listed(&home, &repo)[&leaf]["comments"].as_array().unwrap().len(), 1);
}
