//! Finished work lands: merged, checked, and in the branch everybody builds on; or it goes back with the reason.

#![cfg(unix)]

use toft_stories::prelude::*;
use toft_stories::yard::CHECKED;

#[test]
fn an_issue_is_closed_when_its_work_has_landed() {
    let yard = Yard::new(CHECKED);
    let first = yard.issue("first", "echo one > one.txt", "false");
    let second = add(&yard.home, &yard.repo, &["second", "--needs", &first]);
    fs::write(yard.home.path().join("home/agents/second"), "cat one.txt > two.txt").unwrap();
    let said = yard.run(&[]);
    assert!(said.contains("1 finished, not landed: 1 clean  (toft land)"), "{said}");
    assert_eq!((yard.status(&first), yard.status(&second)), ("in_progress".into(), "open".into()));
    let status = yard.home.toft(&yard.repo, &["status"]).ok();
    assert!(status.starts_with("1 finished, not landed: 1 clean"), "{status}");
    assert!(!yard.repo.join("one.txt").exists());

    yard.home.toft(&yard.repo, &["land", "-n"]).says_all(&["first", "ready to land"]);
    let before = yard.git(&["rev-parse", "main"]);
    let landed = yard.land();
    assert_eq!((landed["landed"].as_array().unwrap().len(), landed["checks"].as_u64()), (1, Some(1)));
    assert_eq!(yard.status(&first), "closed");
    assert_eq!(fs::read_to_string(yard.repo.join("one.txt")).unwrap(), "one\n");
    assert_eq!(yard.git(&["status", "--porcelain"]), "");
    assert_eq!(yard.git(&["rev-parse", "main^1"]), before, "the target moved forward");
    let message = yard.git(&["log", "-1", "--format=%B", "main"]);
    assert!(message.contains(&format!("Toft-Issue: {first}")) && message.contains("Toft-Landing: ln_"), "{message}");

    // What needs it begins on top of it.
    let said = yard.run(&["--land"]);
    assert!(said.contains("landed") && yard.status(&second) == "closed", "{said}");
    assert!(said.contains("waits: run toft land"), "{said}");
    assert!(!yard.repo.join("two.txt").exists(), "nobody asked for a change of this checkout");
    yard.land();
    assert_eq!(fs::read_to_string(yard.repo.join("two.txt")).unwrap(), "one\n");
    assert_eq!(yard.git(&["for-each-ref", "refs/toft/queue", "refs/toft/landed"]), "", "nothing is left");
    assert_eq!(yard.home.toft(&yard.repo, &["land"]).ok(), "Nothing is finished and not landed.\n");
}

#[test]
fn with_other_configuration_an_issue_is_closed_when_its_work_is_done() {
    let yard = Yard::new("[land]\nclose = \"done\"\ncheck = [\"false\"]\n");
    let id = yard.finish("first", "echo one > one.txt", "echo two > one.txt");
    assert_eq!(yard.status(&id), "closed");
    // Work that is sent back opens it again.
    yard.configure("[land]\nclose = \"done\"\ncheck = [\"! grep -q one one.txt\"]\n");
    let landed = yard.land();
    assert_eq!(landed["bounced"][0]["bounces"][0]["reason"], "check", "{landed}");
    assert_eq!(yard.status(&id), "open");
    yard.run(&["--land"]);
    assert_eq!(yard.status(&id), "closed");
    assert_eq!(yard.landed().len(), 0, "the result waits for the checkout");
    yard.land();
    assert_eq!(fs::read_to_string(yard.repo.join("one.txt")).unwrap(), "two\n");
}

/// The story of the whole night: some work conflicts, some breaks the check only together, all of it appends to one file.
#[test]
fn everything_lands_in_the_end_without_a_person() {
    let all = sized(16, 40);
    let (words, ports, batch) = (sized(3, 6), sized(3, 4), 8);
    let counted = "echo ran >> \"$HOME/checks\"";
    let yard = Yard::new(&format!(
        "[land]\ncheck = ['{counted}', 'sh check.sh']\nunion = [\"CHANGELOG.md\"]\nupdate = \"clean\"\nbatch = {batch}\n"
    ));
    let log = |title: &str| format!("echo '- {title}' >> CHANGELOG.md\n");
    let merged = |title: &str, more: &str| {
        format!(
            "git merge -q --no-edit $newest >/dev/null 2>&1 || {{\n git checkout -q $newest -- shared.txt CHANGELOG.md\n {} }}\n{more}\n",
            log(title)
        )
    };
    for n in 0..all - words - ports {
        yard.issue(&format!("plain{n}"), &format!("{}echo {n} > plain{n}.txt", log(&format!("plain{n}"))), "false");
    }
    for n in 0..words {
        let title = format!("word{n}");
        let add_word = format!("sed -i 's/$/ w{n}/' shared.txt");
        yard.issue(&title, &format!("{}{add_word}", log(&title)), &merged(&title, &add_word));
    }
    for n in 0..ports {
        let title = format!("port{n}");
        let again = merged(&title, &format!("echo {} > ports/{n}", 9_000 + n));
        yard.issue(&title, &format!("{}echo 8000 > ports/{n}", log(&title)), &again);
    }
    let said = yard.run(&["--land", "--slots", "4"]);
    assert_eq!(yard.home.toft(&yard.repo, &["land", "list", "--json"]).data(), serde_json::json!([]), "{said}");
    let landed = yard.landed();
    assert_eq!(landed.len(), all, "{said}");
    assert!(landed.values().all(|count| *count == 1), "{landed:?}");
    let log = fs::read_to_string(yard.repo.join("CHANGELOG.md")).unwrap();
    // Where both sides are kept, a line that both have may be there twice.
    let lines: BTreeSet<&str> = log.lines().filter(|line| line.starts_with("- ")).collect();
    assert_eq!(lines.len(), all + 1, "{log}");
    let shared = fs::read_to_string(yard.repo.join("shared.txt")).unwrap();
    assert!((0..words).all(|n| shared.contains(&format!("w{n}"))), "{shared}");
    let checks = fs::read_to_string(yard.home.path().join("home/checks")).unwrap().lines().count();
    let states = yard.every_state_of_the_target_is_green();
    // Work lands as it comes, so there are more batches than of a whole queue.
    println!("{all} landed in {states} steps of the target with {checks} checks");
    let culprits = ports - 1;
    assert!(checks <= 2 * (states + culprits * 3), "{checks} checks for {states} states");
}

#[test]
fn a_check_that_changes_its_mind_blames_nobody_and_is_listed() {
    let yard = Yard::new("[land]\ncheck = [\"test -e $HOME/seen || { touch $HOME/seen; false; }\"]\n");
    yard.finish("first", "echo one > one.txt", "false");
    let landed = yard.land();
    assert_eq!((landed["landed"].as_array().unwrap().len(), landed["checks"].as_u64()), (1, Some(2)), "{landed}");
    yard.home.toft(&yard.repo, &["land", "flaky"]).says("passed 1 of 2");
}

#[test]
fn a_red_target_stops_the_queue_and_blames_nobody() {
    let yard = Yard::new(CHECKED);
    yard.write("ports/one", "1\n");
    yard.commit("break it");
    let id = yard.finish("first", "echo one > one.txt", "false");
    let said = yard.home.toft(&yard.repo, &["land"]);
    said.refuses_all(1, &["before the target itself is mended", "two services use port 1"]);
    assert_eq!((yard.status(&id), yard.landed().len()), ("in_progress".into(), 0));
    yard.write("ports/one", "2\n");
    yard.commit("mend it");
    yard.land_and_close(&id);
}

#[test]
fn work_that_conflicts_goes_back_with_the_intent_of_both() {
    let yard = Yard::new(CHECKED);
    let other = yard.issue("greet", "echo 'words: hello' > shared.txt", "false");
    yard.home.toft(&yard.repo, &["edit", &other, "--body", "Visitors are to be greeted in English."]).ok();
    let again = "git merge -q --no-edit $newest >/dev/null 2>&1; echo 'words: hello bye' > shared.txt";
    let id = yard.finish("part", "echo 'words: bye' > shared.txt", again);
    yard.home.toft(&yard.repo, &["land", "-n"]).says(format!("conflicts with {other} in shared.txt"));
    let status = yard.home.toft(&yard.repo, &["status"]).ok();
    assert!(status.starts_with("2 finished, not landed: 1 clean, 1 conflict"), "{status}");
    let landed = yard.land();
    assert_eq!(landed["bounced"][0]["issue"].as_str(), Some(id.as_str()), "{landed}");
    yard.home.toft(&yard.repo, &["land", "show", &id]).says_all(&["sent back (conflict)", "shared.txt"]);
    let branch = yard.home.toft(&yard.repo, &["ws", "list", "--json"]).data();
    yard.run(&["--land"]);
    let brief = yard.brief("part");
    for needed in ["conflicts with main in shared.txt", "greet", "Visitors are to be greeted in English.", &other] {
        assert!(brief.contains(needed), "{needed} is missing in: {brief}");
    }
    let same = yard.home.toft(&yard.repo, &["ws", "list", "--json"]).data();
    assert_eq!(same.as_array().unwrap().len(), branch.as_array().unwrap().len(), "it goes on in its workspace");
    yard.land();
    assert_eq!(fs::read_to_string(yard.repo.join("shared.txt")).unwrap(), "words: hello bye\n");
}

#[test]
fn what_was_sent_back_twice_for_the_same_reason_asks_a_person() {
    let yard = Yard::new(CHECKED);
    let id = yard.issue("first", "echo 1 > ports/one", "git merge -q --no-edit $newest; echo again > again.txt");
    yard.run(&["--land"]);
    yard.home.toft(&yard.repo, &["status"]).says_all(&["sent back twice", "toft answer"]);
    // An answer lets an agent try again; work that is as it was is not taken.
    fs::write(yard.home.path().join("home/agents/first.again"), "echo 2 > ports/one").unwrap();
    yard.home.toft(&yard.repo, &["answer", &id, "use another port"]).ok();
    yard.run(&["--land"]);
    assert_eq!(yard.status(&id), "closed");
}

#[test]
fn what_must_not_land_goes_back() {
    let setup = "[workspaces.setup]\nlink = [\"node_modules\"]\n";
    let yard = Yard::new(&format!("[land]\ncheck = [\"true\"]\n{setup}"));
    fs::create_dir(yard.repo.join("node_modules")).unwrap();
    let markers = "printf '<<<<<<< ours\\na\\n=======\\nb\\n>>>>>>> theirs\\n' > a.txt";
    let cases = [
        ("empty", "git commit -q --allow-empty -m nothing", "changes nothing"),
        ("private", "echo SECRET=1 > .env", ".env"),
        ("markers", markers, "conflict markers"),
        ("linked", "git add -f node_modules", "node_modules"),
    ];
    for (title, script, _) in cases {
        yard.issue(title, script, "false");
    }
    let fine = yard.issue("fine", "echo A=1 > .env.example; printf 'a\\n=======\\n' > b.txt", "false");
    yard.run(&[]);
    let landed = yard.land_and_close(&fine);
    for (title, _, said) in cases {
        let bounced = landed["bounced"].as_array().unwrap().iter().find(|row| row["title"] == title).cloned();
        let bounce = bounced.unwrap_or_else(|| panic!("{title}: {landed}"))["bounces"][0].clone();
        assert_eq!(bounce["reason"], "policy", "{title}");
        assert!(bounce["message"].as_str().unwrap().contains(said), "{title}: {bounce}");
    }
    assert_eq!(yard.landed().len(), 1);
}

#[test]
fn a_reviewer_approves_work_or_returns_it_with_comments() {
    let yard = Yard::new("[land]\ncheck = [\"true\"]\nreview = { default = \"none\", \"label:risky\" = \"human\" }\n");
    let id = yard.issue("risky", "printf 'a\\nb\\n' > risky.txt", "printf 'a\\nc\\n' > risky.txt");
    yard.home.toft(&yard.repo, &["edit", &id, "--label", "risky"]).ok();
    let plain = yard.finish("plain", "echo p > plain.txt", "false");
    yard.land();
    assert_eq!((yard.status(&id), yard.status(&plain)), ("in_progress".into(), "closed".into()));
    yard.home.toft(&yard.repo, &["review"]).says_all(&["risky", "waits for review"]);
    yard.home.toft(&yard.repo, &["review", &id]).says("+b");
    yard.home.toft(&yard.repo, &["review", &id, "--return"]).fails(2);
    yard.home
        .toft(&yard.repo, &["review", &id, "--return", "-m", "not like this", "--at", "risky.txt:2", "say c"])
        .ok();
    yard.run(&["--land"]);
    let brief = yard.brief("risky");
    assert!(brief.contains("not like this") && brief.contains("risky.txt:2: say c"), "{brief}");
    assert_eq!(yard.status(&id), "in_progress", "the new commit was not approved");
    yard.home.toft(&yard.repo, &["review", &id, "--approve"]).ok();
    yard.land_and_close(&id);
    assert_eq!(fs::read_to_string(yard.repo.join("risky.txt")).unwrap(), "a\nc\n");
}

#[test]
fn work_is_verified_before_it_is_done() {
    let yard = Yard::new("[land]\ncheck = { run = [\"sh check.sh\"], before = \"done\" }\n");
    let script = "test -e ports/one && echo 2 > ports/one || echo 1 > ports/one";
    let id = yard.issue("first", script, "false");
    let said = yard.run(&[]);
    assert!(said.contains("not verified: `sh check.sh` exited with 1") && said.contains("two services"), "{said}");
    assert_eq!(yard.land()["landed"].as_array().unwrap().len(), 1, "{said}");
    assert_eq!(yard.status(&id), "closed");

    // An agent that finishes itself is verified by its runner, too.
    let reports = "echo 3 > ports/three; git add -A; git commit -q -m three; toft finish -m three --evidence HEAD";
    let id = yard.finish("second", reports, "false");
    let workflow = yard.home.toft(&yard.repo, &["show", &id, "--json"]).data()["workflow"].as_str().unwrap().to_owned();
    let shown = yard.home.toft(&yard.repo, &["flow", "show", &workflow, "--json"]).data().to_string();
    assert!(shown.contains("\"verified\":[{") && shown.contains("sh check.sh"), "{shown}");
    assert_eq!(yard.land()["landed"].as_array().unwrap().len(), 1);

    // By hand it is verified by the command that finishes.
    let id = add(&yard.home, &yard.repo, &["by hand"]);
    let dir = yard.home.claim_workspace(&yard.repo, &[&id]);
    fs::write(dir.join("ports/hand"), "3\n").unwrap();
    let commit = |text: &str| {
        commit_all(&yard.home, &dir, text);
    };
    commit("by hand");
    let said = yard.home.toft(&dir, &["finish", &id, "-m", "x", "--evidence", "HEAD"]);
    said.refuses_all(1, &["not verified", "two services use port 3"]);
    fs::write(dir.join("ports/hand"), "4\n").unwrap();
    commit("mended");
    yard.home.toft(&dir, &["finish", &id, "-m", "x", "--evidence", "HEAD"]).ok();
}

#[test]
fn commands_of_a_repository_run_only_when_they_are_trusted() {
    let yard = Yard::new("");
    yard.write(".toft/config.toml", "[land]\ncheck = [\"touch $HOME/ran\"]\n");
    yard.commit("configure");
    yard.finish("first", "echo one > one.txt", "false");
    yard.home.toft(&yard.repo, &["land"]).refuses_all(4, &["nobody here trusted", "toft trust"]);
    assert!(!yard.home.path().join("home/ran").exists());
    yard.home.toft(&yard.repo, &["trust", "--yes"]).ok();
    yard.land();
    assert!(yard.home.path().join("home/ran").exists());
}

#[test]
fn what_an_agent_writes_into_its_files_does_not_decide_how_it_lands() {
    let yard = Yard::new("[land]\ncheck = [\"sh check.sh\"]\nreview = \"human\"\n");
    let lies = "mkdir -p .toft; printf '[land]\\nclose = \"done\"\\nreview = \"none\"\\ncheck = []\\n' > .toft/config.toml; \
                git add -A; git commit -q -m lies; toft finish -m lies --evidence HEAD";
    let id = yard.finish("first", lies, "false");
    assert_eq!(yard.status(&id), "in_progress");
    let landed = yard.land();
    assert_eq!(landed["landed"], serde_json::json!([]), "{landed}");
}

#[test]
fn withdrawn_work_does_not_land_unless_it_is_named() {
    let yard = Yard::new(CHECKED);
    let id = yard.finish("first", "echo one > one.txt", "false");
    yard.home.toft(&yard.repo, &["land", "withdraw", &id, "-m", "not now"]).ok();
    assert_eq!(yard.status(&id), "closed");
    assert_eq!(yard.land()["landed"], serde_json::json!([]));
    let landed = yard.home.toft(&yard.repo, &["land", &id, "--json"]).data();
    assert_eq!(landed["landed"].as_array().unwrap().len(), 1, "{landed}");

    // What was looked at lands, and nothing that came after it.
    let id = yard.finish("seen", "echo one > seen.txt", "false");
    let queued = yard.home.toft(&yard.repo, &["land", "show", &id, "--json"]).data();
    let tip = queued["landing"]["tip"].as_str().or(queued["tip"].as_str()).unwrap().to_owned();
    yard.home.toft(&yard.repo, &["land", &id, "--commit", "0123456789ab"]).fails(5);
    yard.home.toft(&yard.repo, &["land", &id, "--commit", &tip[..4]]).fails(2);
    yard.home.toft(&yard.repo, &["land", "-n", &id, "--commit", "0123456789ab"]).fails(5);
    assert!(!yard.repo.join("seen.txt").exists());
    yard.home.toft(&yard.repo, &["land", &id, "--commit", &tip[..7]]).ok();
    assert!(yard.repo.join("seen.txt").exists());

    // Work that was sent back goes with its issue.
    let id = yard.finish("second", "echo 1 > ports/two", "false");
    yard.land();
    assert!(yard.home.toft(&yard.repo, &["land", "list"]).ok().contains("sent back: check"));
    yard.home.toft(&yard.repo, &["close", &id, "-m", "not needed"]).ok();
    assert_eq!(yard.home.toft(&yard.repo, &["land", "list", "--json"]).data(), serde_json::json!([]));
}

#[test]
fn what_has_landed_is_taken_back_by_another_landing() {
    for how in ["merge", "squash", "rebase"] {
        let yard = Yard::new(&format!("[land]\nhow = \"{how}\"\ncheck = [\"sh check.sh\"]\n"));
        let id = yard.issue("first", "echo 2 > a; git add a; git commit -q -m a; echo 2 > ports/one", "false");
        yard.run(&["--land"]);
        yard.land();
        yard.finish("second", "echo two > two.txt", "false");
        yard.land();
        assert!(yard.repo.join("ports/one").exists() && yard.repo.join("a").exists(), "{how}");
        assert_eq!(yard.git(&["log", "--merges", "--format=%h", "main"]).is_empty(), how != "merge", "{how}");
        let subjects = yard.git(&["log", "--format=%s", "main"]);
        assert_eq!(subjects.lines().any(|subject| subject == "a"), how != "squash", "{how}: {subjects}");
        yard.home.toft(&yard.repo, &["undo"]).refuses(5, "toft land revert");
        let reverted = yard.home.toft(&yard.repo, &["land", "revert", &id, "--json"]).data();
        assert_eq!((reverted["landed"].as_array().unwrap().len(), reverted["checks"].as_u64()), (1, Some(1)), "{how}");
        assert!(!yard.repo.join("ports/one").exists() && !yard.repo.join("a").exists(), "{how}");
        assert!(yard.repo.join("two.txt").exists(), "{how}");
        yard.home.toft(&yard.repo, &["land", "revert", &id]).refuses(5, "nothing to take back");
        // The next attempt begins where the target is now: what was taken back would not come from the old commits.
        yard.home.toft(&yard.repo, &["reopen", &id]).ok();
        yard.home.toft(&yard.repo, &["--as", "bo", "claim", &id, "--ws"]).ok();
        let workspace = yard.home.toft(&yard.repo, &["--as", "bo", "ws", "path", &id]).ok();
        let workspace = Path::new(workspace.trim());
        assert!(workspace.join("two.txt").exists() && !workspace.join("a").exists(), "{how}");
        yard.every_state_of_the_target_is_green();
    }
}

#[test]
fn work_built_on_what_was_taken_back_is_sent_back() {
    let yard = Yard::new("");
    let id = add(&yard.home, &yard.repo, &["first"]);
    let begin = || {
        let said = yard.home.toft(&yard.repo, &["--as", "bo", "claim", &id, "--ws"]).ok();
        (said, PathBuf::from(yard.home.toft(&yard.repo, &["--as", "bo", "ws", "path", &id]).ok().trim()))
    };
    let finish = |workspace: &Path, file: &str| {
        fs::write(workspace.join(file), "1\n").unwrap();
        yard.home.run(workspace, "git", &["add", file]);
        yard.home.run(workspace, "git", &["commit", "-q", "-m", file]);
        let commit = yard.home.run(workspace, "git", &["rev-parse", "HEAD"]);
        let finish = ["--as", "bo", "finish", &id, "-m", file, "--evidence", commit.trim()];
        yard.home.toft(&yard.repo, &finish).ok();
        yard.land()
    };
    let (_, workspace) = begin();
    finish(&workspace, "one.txt");
    assert!(yard.repo.join("one.txt").exists());
    yard.home.toft(&yard.repo, &["land", "revert", &id]).ok();
    yard.home.toft(&yard.repo, &["reopen", &id]).ok();
    // What is in no commit keeps the workspace, and with it the commits that were taken back.
    fs::write(workspace.join("notes.txt"), "mine\n").unwrap();
    begin();
    assert!(workspace.join("notes.txt").exists() && workspace.join("one.txt").exists());
    let landed = finish(&workspace, "test.txt");
    assert_eq!(landed["bounced"].as_array().unwrap().len(), 1, "{landed}");
    assert!(!yard.repo.join("test.txt").exists(), "a merge would have left one.txt out");
    let (why, _) = begin();
    assert!(why.contains("was taken back from main by"), "{why}");
    // It merges the target, and takes up again what was taken back.
    let by = why.split("git revert ").nth(1).unwrap().split(')').next().unwrap().to_owned();
    yard.home.run(&workspace, "git", &["merge", "-q", "--no-edit", "main"]);
    yard.home.run(&workspace, "git", &["revert", "--no-edit", &by]);
    let landed = finish(&workspace, "more.txt");
    assert_eq!(landed["landed"].as_array().unwrap().len(), 1, "{landed}");
    for file in ["one.txt", "test.txt", "more.txt"] {
        assert!(yard.repo.join(file).exists(), "{file}");
    }
}

#[test]
fn work_that_a_person_merged_is_known_to_have_landed() {
    let yard = Yard::new(CHECKED);
    let id = yard.finish("first", "echo one > one.txt", "false");
    let branch = yard.home.toft(&yard.repo, &["ws", "list", "--json"]).data()[0]["branch"].as_str().unwrap().to_owned();
    yard.git(&["merge", "-q", "--no-edit", &branch]);
    let landed = yard.land();
    assert_eq!((landed["landed"].as_array().unwrap().len(), landed["checks"].as_u64()), (1, Some(0)), "{landed}");
    assert_eq!(yard.status(&id), "closed");
}
