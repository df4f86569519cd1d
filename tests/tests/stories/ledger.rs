//! Issues as plain lines: nothing a merge, a checkout, a crowd or a crash does to the file loses one.

use std::sync::Mutex;

use toft_stories::prelude::*;

fn ids(path: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(path).unwrap();
    let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
    text.lines().map(id).collect()
}

#[test]
fn ids_the_index_does_not_know_survive_a_write() {
    let (home, repo) = Home::with_repository("api");
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
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, &["aaaa"]);
    home.toft(&repo, &["list"]).ok();
    let text = fs::read_to_string(ledger(&repo)).unwrap();
    let written = fs::metadata(ledger(&repo)).unwrap().modified().unwrap();
    fs::write(ledger(&repo), text.replace("aaaa", "bbbb")).unwrap();
    let file = fs::File::options().append(true).open(ledger(&repo)).unwrap();
    file.set_modified(written - Duration::from_secs(3_600)).unwrap();
    assert_eq!(listed(&home, &repo)[&id]["title"], "bbbb");
}

#[test]
fn the_index_is_made_anew_and_is_the_same() {
    let (home, repo) = Home::with_repository("api");
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
    // As where nobody told git how to merge them.
    fs::remove_file(one.join(".toft/.gitattributes")).unwrap();
    add(home, &one, &["shared", "-l", "a"]);
    commit_all(home, &one, "issues");
    home.run(home.path(), "git", &["clone", "-q", "one", "two"]);
    let two = home.path().join("two");
    home.toft(&two, &["init"]).ok();
    (one, two)
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
            home.toft(repo, &["gc", "--ledgers"]).ok();
            commit_all(&home, repo, "work");
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
            home.toft(repo, &["gc", "--ledgers"]).ok();
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
        home.toft(repo, &["gc", "--ledgers"]).ok();
        hg(repo, &["commit", "-m", "work"]);
    }
    for (repo, other) in [(&one, &two), (&two, &one)] {
        hg(repo, &["pull", other.to_str().unwrap()]);
        hg(repo, &["merge"]);
    }
    both_sides_are_read_and_put_in_order_alike(&home, [&one, &two], &id);
}

/// Two clones that a program left with a conflict end the same, with what both wrote.
fn both_sides_are_read_and_put_in_order_alike(home: &Home, clones: [&Path; 2], id: &str) {
    let texts = clones.map(|repo| {
        let text = || fs::read_to_string(repo.join(".toft/issues.jsonl")).unwrap();
        assert!(text().contains("<<<<<<<"), "a conflict is left: {}", text());
        assert_eq!(listed(home, repo)[id]["labels"], serde_json::json!(["from-one", "from-two"]));
        home.toft(repo, &["doctor"]).fails(8);
        home.toft(repo, &["gc", "--ledgers"]).ok();
        home.toft(repo, &["doctor"]).ok();
        text()
    });
    assert_eq!(texts[0], texts[1]);
}

#[test]
fn a_conflict_of_jujutsu_is_read_from_both_sides_however_it_is_written() {
    for style in ["diff", "snapshot", "git"] {
        let home = Home::new();
        let jj = |dir: &Path, args: &[&str]| {
            let style = format!("ui.conflict-marker-style={style}");
            let mut all =
                vec!["--config", &style, "--config", "user.name=Ana", "--config", "user.email=ana@example.org"];
            all.extend(args);
            home.run(dir, "jj", &all)
        };
        let [hub, one, two] = ["hub.git", "one", "two"].map(|name| home.path().join(name));
        home.run(home.path(), "git", &["init", "-q", "--bare", "hub.git"]);
        jj(home.path(), &["git", "init", "one"]);
        home.toft(&one, &["init", "--tree"]).ok();
        let id = add(&home, &one, &["shared"]);
        let publish = |dir: &Path, name: &str| {
            jj(dir, &["commit", "-m", name]);
            jj(dir, &["bookmark", "create", name, "-r", "@-"]);
            jj(dir, &["git", "push", "--bookmark", name]);
        };
        jj(&one, &["git", "remote", "add", "origin", hub.to_str().unwrap()]);
        publish(&one, "base");
        jj(home.path(), &["git", "clone", "hub.git", "two"]);
        jj(&two, &["new", "base@origin"]);
        home.toft(&two, &["init"]).ok();
        for (repo, name) in [(&one, "from-one"), (&two, "from-two")] {
            home.toft(repo, &["edit", &id, "-l", name]).ok();
            home.toft(repo, &["gc", "--ledgers"]).ok();
            publish(repo, name);
        }
        jj(&one, &["git", "fetch"]);
        jj(&two, &["git", "fetch"]);
        jj(&one, &["new", "from-one", "from-two@origin"]);
        jj(&two, &["new", "from-two", "from-one@origin"]);
        both_sides_are_read_and_put_in_order_alike(&home, [&one, &two], &id);
    }
}

#[test]
fn bad_bytes_stay_where_they_are_and_everything_else_loads() {
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, &["good"]);
    let mut bytes = fs::read(ledger(&repo)).unwrap();
    bytes.extend(b"not json at all\n\xff\xfe broken\n{\"id\":\"tf-x\",\"title\":7}\n{\"id\":\"tf-torn\",\"ti");
    fs::write(ledger(&repo), &bytes).unwrap();
    let mut both = [id.as_str(), "tf-x"];
    both.sort_unstable();
    assert_eq!(listed(&home, &repo).keys().collect::<Vec<_>>(), both);
    let doctor = home.toft(&repo, &["doctor"]).ok();
    for seen in ["issues.jsonl:2: ", "issues.jsonl:3: not UTF-8", "`title` of tf-x", "issues.jsonl:5: "] {
        assert!(doctor.contains(seen), "{seen}: {doctor}");
    }
    add(&home, &repo, &["after the torn line"]);
    for _ in 0..2 {
        assert_eq!(listed(&home, &repo).len(), 3);
        home.toft(&repo, &["gc", "--ledgers"]).ok();
        let now = fs::read(ledger(&repo)).unwrap();
        for kept in [&b"not json at all"[..], b"\xff\xfe broken", b"{\"id\":\"tf-torn\",\"ti"] {
            assert!(now.split(|byte| *byte == b'\n').any(|line| line == kept), "nothing is thrown away");
        }
        assert!(String::from_utf8_lossy(&now).contains("\"title\":7"));
    }
}

/// 150 processes add, edit and close; every acknowledged change is in the file, and nobody is left behind.
#[test]
fn a_crowd_of_writers_loses_no_issue_and_no_edit() {
    let (home, repo) = Home::with_repository("api");
    let (workers, rounds) = (sized(60, 150), sized(2, 7));
    let done: Mutex<Vec<(String, String)>> = Mutex::default();
    let common = add(&home, &repo, &["everyone comments here"]);
    let times: Mutex<Vec<Duration>> = Mutex::default();
    thread::scope(|scope| {
        for worker in 0..workers {
            let (home, repo, done, common, times) = (&home, &repo, &done, &common, &times);
            scope.spawn(move || {
                let start = Instant::now();
                for round in 0..rounds {
                    let word = format!("w{worker}r{round}");
                    let id = add(home, repo, &[&word]);
                    home.toft(repo, &["edit", common, "-m", &word, "-l", &word]).ok();
                    home.toft(repo, &["close", &id, "-m", &word]).ok();
                    done.lock().unwrap().push((id, word));
                }
                times.lock().unwrap().push(start.elapsed());
            });
        }
    });
    let mut times = times.into_inner().unwrap();
    times.sort();
    let (median, slowest) = (times[workers / 2], times[workers - 1]);
    println!(
        "{} writes: half of the workers were done after {median:.1?}, all after {slowest:.1?}",
        workers * rounds * 3
    );
    assert!(slowest <= median * 2, "the slowest worker does at least half of the median's work");
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
            home.toft(&repo, &["gc", "--ledgers"]).ok();
        }
    }
}

#[test]
fn killed_at_any_moment_a_writer_leaves_a_readable_ledger_with_everything_acknowledged() {
    let (home, repo) = Home::with_repository("api");
    let mut known = BTreeSet::new();
    for round in 0..sized(40, 400) {
        let title = format!("title {round}");
        let mut child = home.command(&repo, toft_stories::toft_bin(), &["add", &title, "-q"]);
        let mut child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
        thread::sleep(Duration::from_micros(500 * (round as u64 % 40)));
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
    home.toft(&repo, &["gc", "--ledgers"]).ok();
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

/// Makes every file of a ledger look new, as a checkout does.
fn replace_by_copy(repo: &Path) {
    let copy = ledger(repo).with_extension("copy");
    fs::copy(ledger(repo), &copy).unwrap();
    fs::rename(&copy, ledger(repo)).unwrap();
}

#[test]
fn what_was_edited_by_hand_is_not_taken_twice() {
    let (home, repo) = Home::with_repository("api");
    let (title, closed, gone) =
        (add(&home, &repo, &["one"]), add(&home, &repo, &["two"]), add(&home, &repo, &["three"]));
    let text = fs::read_to_string(ledger(&repo)).unwrap();
    let text = ["one", "two", "three"].iter().fold(text, |text, word| text.replace(word, &format!("{word} by hand")));
    fs::write(ledger(&repo), text).unwrap();
    home.toft(&repo, &["list"]).ok();
    home.toft(&repo, &["edit", &title, "--title", "newer"]).ok();
    home.toft(&repo, &["close", &closed, "-m", "done"]).ok();
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
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, &["first", "-p", "1"]);
    for n in 0..30 {
        add(&home, &repo, &[&format!("filler {n}"), "-d", &"x".repeat(400)]);
    }
    home.toft(&repo, &["edit", &id, "-p", "2"]).ok();
    home.toft(&repo, &["gc", "--ledgers"]).ok();
    let text = fs::read_to_string(ledger(&repo)).unwrap();
    let line = text.lines().find(|line| line.contains(&id)).unwrap();
    let changed = text.replace(line, &line.replace("\"priority\":2", "\"priority\":3"));
    assert_eq!(changed.len(), text.len());
    fs::write(ledger(&repo), format!("{changed}{{\"id\":\"tf-more\",\"title\":\"more\"}}\n")).unwrap();
    let rows = listed(&home, &repo);
    assert_eq!((rows[&id]["priority"].as_u64(), rows.contains_key("tf-more")), (Some(3), true));
    home.toft(&repo, &["gc", "--ledgers"]).ok();
    assert_eq!(listed(&home, &repo)[&id]["priority"], 3);
}

#[test]
fn the_archive_loses_nothing_whatever_is_in_it() {
    let (home, repo) = Home::with_repository("api");
    let archive = ledger(&repo).with_file_name("archive");
    let ids: Vec<_> = (0..4).map(|n| add(&home, &repo, &[&format!("issue {n}")])).collect();
    home.toft(&repo, &["close", &ids[0], "-m", "x"]).ok();
    home.toft(&repo, &["close", &ids[1], "-m", "x"]).ok();
    let compact = || home.toft(&repo, &["gc", "--ledgers", "--archive-after", "0s", "--json"]).data()[0].clone();
    // What was closed in this millisecond is not archived yet.
    thread::sleep(std::time::Duration::from_millis(5));
    assert_eq!(compact()["archived"], 2);
    let year = fs::read_dir(&archive).unwrap().next().unwrap().unwrap().path();
    assert_eq!((ids.len(), fs::read_to_string(&year).unwrap().lines().count()), (4, 2));
    assert_eq!(listed(&home, &repo).len(), 4, "what is archived is still found");
    // What nobody understands is kept, there too.
    let text = fs::read_to_string(&year).unwrap();
    fs::write(&year, format!("{text}garbage\n")).unwrap();
    assert_eq!(compact()["broken"], 1);
    // One comes back to life, though the other file is gone.
    home.toft(&repo, &["reopen", &ids[0]]).ok();
    compact();
    assert_eq!(listed(&home, &repo).len(), 4);
    fs::remove_file(ledger(&repo)).unwrap();
    home.toft(&repo, &["reopen", &ids[1]]).ok();
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
