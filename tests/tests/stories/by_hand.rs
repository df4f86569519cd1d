//! Lines that people, editors and scripts change: an edit is a change to what it changed and to nothing else.

use toft_stories::prelude::*;

/// Two clones of one repository with its ledger in the tree, which has one issue.
struct Pair {
    home: Home,
    ana: PathBuf,
    ben: PathBuf,
    id: String,
}

impl Pair {
    fn new() -> Self {
        let home = Home::new();
        let (up, base) = (home.path().join("up.git"), home.path().to_owned());
        home.run(&base, "git", &["init", "-q", "--bare", "-b", "main", "up.git"]);
        let ana = home.git("ana");
        home.run(&ana, "git", &["remote", "add", "origin", up.to_str().unwrap()]);
        home.toft(&ana, &["init", "--tree"]).ok();
        let id = add(&home, &ana, &["Title"]);
        let pair = Self { ben: base.join("ben"), home, ana, id };
        pair.commit(&pair.ana, "issues");
        pair.home.run(&pair.ana, "git", &["push", "-q", "-u", "origin", "main"]);
        pair.home.run(&base, "git", &["clone", "-q", "up.git", "ben"]);
        pair.home.toft(&pair.ben, &["init"]).ok();
        pair.home.toft(&pair.ben, &["list"]).ok();
        pair
    }

    fn commit(&self, repo: &Path, message: &str) {
        commit_all(&self.home, repo, message);
    }

    fn push(&self, repo: &Path) {
        self.home.run(repo, "git", &["push", "-q"]);
    }

    fn pull(&self, repo: &Path) {
        self.home.run(repo, "git", &["pull", "-q", "--no-rebase", "--no-edit"]);
    }

    fn edit(&self, repo: &Path, args: &[&str]) {
        let mut all = vec!["edit", self.id.as_str()];
        all.extend(args);
        self.home.toft(repo, &all).ok();
    }

    fn show(&self, repo: &Path) -> Value {
        self.home.toft(repo, &["show", &self.id, "--json"]).data()
    }
}

fn tree(repo: &Path) -> PathBuf {
    repo.join(".toft/issues.jsonl")
}

fn by_hand(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_hand_edit_erases_no_comment_label_or_deletion_it_had_not_seen() {
    for merger_is_ben in [true, false] {
        for what in ["comment", "delete", "label"] {
            let pair = Pair::new();
            let Pair { ana, ben, .. } = &pair;
            match what {
                "comment" => pair.edit(ana, &["-m", "IMPORTANT: do not ship"]),
                "label" => pair.edit(ana, &["-l", "urgent", "-d", "new body"]),
                _ => drop(pair.home.toft(ana, &["delete", &pair.id, "-m", "not wanted"]).ok()),
            }
            pair.commit(ana, "ana");
            pair.edit(ben, &["-p", "0"]);
            pair.home.toft(ben, &["gc", "--ledgers"]).ok();
            by_hand(&tree(ben), "\"title\":\"Title\"", "\"title\":\"By hand\"");
            pair.commit(ben, "ben");
            let (first, merger) = if merger_is_ben { (ana, ben) } else { (ben, ana) };
            pair.push(first);
            pair.pull(merger);
            pair.home.toft(merger, &["gc", "--ledgers"]).ok();
            pair.commit(merger, "merged");
            pair.push(merger);
            pair.pull(first);
            for repo in [merger, first] {
                let issue = pair.show(repo);
                assert_eq!(issue["title"], "By hand", "{what}: {issue}");
                assert_eq!(issue["priority"], 0, "{what}: {issue}");
                match what {
                    "comment" => assert_eq!(issue["comments"][0]["text"], "IMPORTANT: do not ship", "{issue}"),
                    "label" => {
                        assert_eq!(issue["labels"][0], "urgent", "{issue}");
                        assert_eq!(issue["body"], "new body", "{issue}");
                    }
                    _ => assert!(issue["deleted"].is_object(), "{issue}"),
                }
            }
        }
    }
}

#[test]
fn an_old_hand_edit_does_not_beat_a_later_write() {
    let pair = Pair::new();
    let Pair { ana, ben, .. } = &pair;
    by_hand(&tree(ana), "\"title\":\"Title\"", "\"title\":\"Draft by hand\"");
    pair.commit(ana, "by hand, Monday");
    pair.push(ana);
    pair.pull(ben);
    pair.edit(ana, &["--title", "Final wording, Tuesday"]);
    pair.home.toft(ana, &["gc", "--ledgers"]).ok();
    pair.commit(ana, "Tuesday");
    // Wednesday is later by the clock.
    thread::sleep(Duration::from_millis(300));
    pair.edit(ben, &["-p", "0"]);
    pair.home.toft(ben, &["gc", "--ledgers"]).ok();
    pair.commit(ben, "only the priority, Wednesday");
    pair.push(ben);
    pair.pull(ana);
    let issue = pair.show(ana);
    assert_eq!((&issue["title"], &issue["priority"]), (&"Final wording, Tuesday".into(), &0.into()), "{issue}");
}

#[test]
fn a_line_without_clocks_resurrects_nothing() {
    let (home, repo) = Home::with(|home| home.git("api"));
    home.toft(&repo, &["init", "--tree"]).ok();
    add(&home, &repo, &["Something else"]);
    let commit = |message: &str| {
        commit_all(&home, &repo, message);
    };
    commit("one");
    home.run(&repo, "git", &["checkout", "-q", "-b", "feature"]);
    let made = "{\"id\":\"tf-handmade\",\"title\":\"Made by hand\",\"body\":\"long text\"}\n";
    let text = fs::read_to_string(tree(&repo)).unwrap();
    fs::write(tree(&repo), text + made).unwrap();
    commit("made by hand");
    home.run(&repo, "git", &["checkout", "-q", "main"]);
    home.run(&repo, "git", &["merge", "-q", "feature"]);
    home.toft(&repo, &["delete", "tf-handmade", "-m", "no"]).ok();
    home.toft(&repo, &["gc", "--ledgers"]).ok();
    commit("deleted");
    home.run(&repo, "git", &["checkout", "-q", "feature"]);
    by_hand(&tree(&repo), "long text", "longer text");
    commit("edited by hand");
    home.run(&repo, "git", &["merge", "-q", "--no-edit", "main"]);
    let deleted = || home.toft(&repo, &["show", "tf-handmade", "--json"]).data()["deleted"].take();
    assert!(deleted().is_object());
    home.toft(&repo, &["gc", "--ledgers"]).ok();
    assert!(deleted().is_object());
}

#[test]
fn an_edit_on_the_forge_changes_what_was_edited_and_nothing_written_here_meanwhile() {
    let (home, (remote, clones)) = Home::with(|home| cloned(home, &["c1", "c2"]));
    let (base, first, second) = (home.path(), &clones[0], &clones[1]);
    let (id, gone) = (add(&home, first, &["Titel"]), add(&home, first, &["Second"]));
    home.toft(first, &["sync"]).ok();
    home.toft(second, &["sync"]).ok();
    home.toft(first, &["edit", &id, "-m", "written offline"]).ok();
    home.toft(first, &["delete", &gone, "-m", "not wanted"]).ok();
    // What is written there is later by the clock.
    thread::sleep(Duration::from_millis(50));
    for id in [&id, &gone] {
        home.toft(second, &["edit", id, "-p", "0"]).ok();
    }
    home.toft(second, &["sync"]).ok();
    home.run(base, "git", &["clone", "-q", "-b", "toft-ledger", remote.to_str().unwrap(), "web"]);
    let web = base.join("web");
    by_hand(&web.join("issues.jsonl"), "Titel", "Title");
    by_hand(&web.join("issues.jsonl"), "\"Second\"", "\"Second!\"");
    home.run(&web, "git", &["commit", "-q", "-a", "-m", "typo"]);
    home.run(&web, "git", &["push", "-q"]);
    for _ in 0..2 {
        home.toft(first, &["sync"]).ok();
        home.toft(second, &["sync"]).ok();
    }
    for repo in [first, second] {
        let issue = home.toft(repo, &["show", &id, "--json"]).data();
        assert_eq!((&issue["title"], &issue["priority"]), (&"Title".into(), &0.into()), "{issue}");
        assert_eq!(issue["comments"][0]["text"], "written offline", "{issue}");
        let issue = home.toft(repo, &["show", &gone, "--json"]).data();
        assert!(issue["deleted"].is_object(), "{issue}");
        assert_eq!(issue["title"], "Second!");
    }
    assert_eq!(fs::read(ledger(first)).unwrap(), fs::read(ledger(second)).unwrap());
}

#[test]
fn a_reverted_commit_is_followed_and_a_tombstone_that_comes_back_stands() {
    let pair = Pair::new();
    let Pair { home, ana, id, .. } = &pair;
    let second = add(home, ana, &["Two, by mistake"]);
    pair.commit(ana, "two");
    home.run(ana, "git", &["revert", "--no-edit", "HEAD"]);
    home.toft(ana, &["show", &second]).fails(3);
    home.toft(ana, &["delete", id, "-m", "no"]).ok();
    pair.commit(ana, "deleted");
    home.run(ana, "git", &["branch", "old"]);
    home.run(ana, "git", &["revert", "--no-edit", "HEAD"]);
    assert!(pair.show(ana)["deleted"].is_null());
    // A branch that kept the tombstone, changed at the same place.
    home.run(ana, "git", &["checkout", "-q", "old"]);
    add(home, ana, &["x"]);
    home.toft(ana, &["gc", "--ledgers"]).ok();
    let line = fs::read_to_string(tree(ana)).unwrap();
    pair.commit(ana, "x");
    home.run(ana, "git", &["checkout", "-q", "main"]);
    let here = fs::read_to_string(tree(ana)).unwrap();
    fs::write(tree(ana), here + &line).unwrap();
    assert!(pair.show(ana)["deleted"].is_object());
}
