//! Landing harms nothing: a lander may be killed, users commit meanwhile, and a check may do anything.

#![cfg(unix)]

use toft_stories::prelude::*;
use toft_stories::yard::{CHECKED, snapshot_of_checkout};

#[test]
fn nothing_of_the_user_is_overwritten_or_moved() {
    let yard = Yard::new(CHECKED);
    yard.issue(
        "first",
        "echo theirs > shared.txt; echo theirs > new.txt; echo theirs > hidden.txt; echo more > more.txt",
        "false",
    );
    yard.write(".gitignore", "hidden.txt\n");
    yard.commit("ignore");
    yard.run(&[]);
    // The agent's branch began before the file was ignored; force it in.
    let workspace =
        yard.home.toft(&yard.repo, &["ws", "list", "--json"]).data()[0]["path"].as_str().unwrap().to_owned();
    let _ = workspace;
    for (name, way) in [("shared.txt", "changed"), ("new.txt", "untracked")] {
        yard.write(name, "mine\n");
        let before = snapshot_of_checkout(&yard.repo);
        let landed = yard.land();
        assert_eq!(snapshot_of_checkout(&yard.repo), before, "{way}");
        let waits = landed["take_up"][0]["why"].as_str().unwrap_or_default().to_owned();
        assert!(waits.contains(name), "{way}: {landed}");
        yard.home.toft(&yard.repo, &["status"]).says("waits: run toft land");
        match way {
            "changed" => drop(yard.git(&["checkout", "shared.txt"])),
            _ => fs::remove_file(yard.repo.join(name)).unwrap(),
        }
    }
    // What is not in the way stays as it is.
    yard.write("mine.txt", "mine\n");
    yard.write("CHANGELOG.md", "mine\n");
    let landed = yard.land();
    assert_eq!(landed["take_up"], serde_json::json!([]), "{landed}");
    assert_eq!(fs::read_to_string(yard.repo.join("shared.txt")).unwrap(), "theirs\n");
    for name in ["mine.txt", "CHANGELOG.md"] {
        assert_eq!(fs::read_to_string(yard.repo.join(name)).unwrap(), "mine\n");
    }
    assert_eq!(yard.git(&["diff", "--cached", "--name-only"]), "");
}

#[test]
fn a_lander_in_another_checkout_leaves_the_users_alone() {
    let yard = Yard::new(CHECKED);
    yard.finish("first", "echo one > one.txt", "false");
    let side = yard.home.path().join("side");
    yard.git(&["worktree", "add", "-q", "-b", "side", &side.display().to_string()]);
    let before = snapshot_of_checkout(&yard.repo);
    let landed = yard.home.toft(&side, &["land", "--json"]).data();
    assert_eq!((landed["landed"].as_array().unwrap().len(), landed["take_up"].as_array().unwrap().len()), (1, 1));
    assert_eq!(snapshot_of_checkout(&yard.repo), before);
    // The user goes on; both are brought together, and checked.
    yard.write("user.txt", "mine\n");
    yard.commit("user");
    yard.finish("second", "echo two > two.txt", "false");
    let landed = yard.land();
    assert_eq!(landed["take_up"], serde_json::json!([]), "{landed}");
    for name in ["one.txt", "two.txt", "user.txt"] {
        assert!(yard.repo.join(name).exists(), "{name}");
    }
    yard.every_state_of_the_target_is_green();
    assert!(yard.landed().values().all(|count| *count == 1));
}

#[test]
fn killed_at_any_point_the_queue_goes_on_and_nothing_lands_twice() {
    let yard = Yard::new(&format!("{CHECKED}batch = 2\nupdate = \"clean\"\n"));
    let all = sized(8, 24);
    for n in 0..all {
        yard.issue(&format!("work{n}"), &format!("echo {n} > plain{n}.txt"), "false");
    }
    yard.run(&["--slots", "2"]);
    let mut dice = Dice::new(u64::from(std::process::id()));
    let (mut kills, begun) = (0, Instant::now());
    while kills < sized(25, 200) && begun.elapsed() < Duration::from_secs(300) {
        let mut lander = yard.home.start(&yard.repo, &["land"]);
        thread::sleep(Duration::from_millis(dice.below(160)));
        if lander.try_wait().unwrap().is_some_and(|status| status.success()) {
            // Everything has landed; go on with new work.
            let n = all + kills;
            yard.finish(&format!("work{n}"), &format!("echo {n} > plain{n}.txt"), "false");
        }
        let _ = lander.kill();
        let _ = lander.wait();
        kills += 1;
    }
    // A kill may leave a lock of git's own, which says so.
    for lock in [".git/index.lock", ".git/HEAD.lock", ".git/refs/heads/main.lock"] {
        let _ = fs::remove_file(yard.repo.join(lock));
    }
    if !yard.git(&["status", "--porcelain"]).is_empty() {
        // Killed while the checkout was updated: nothing of it is the user's.
        yard.git(&["reset", "-q", "--hard"]);
        yard.git(&["clean", "-qfd"]);
    }
    let landed = yard.land();
    assert_eq!(landed["waiting"], serde_json::json!([]), "{landed}");
    let landed = yard.landed();
    assert!(landed.len() >= all && landed.values().all(|count| *count == 1), "{landed:?}");
    yard.every_state_of_the_target_is_green();
}

#[test]
fn of_two_landers_and_a_user_who_commits_nobody_loses() {
    let yard = Yard::new("[land]\ncheck = [\"sleep 0.3; sh check.sh\"]\nbatch = 2\nupdate = \"clean\"\n");
    let all = sized(6, 20);
    for n in 0..all {
        yard.issue(&format!("work{n}"), &format!("echo {n} > plain{n}.txt"), "false");
    }
    yard.run(&["--slots", "2"]);
    let lander = || yard.home.start(&yard.repo, &["land"]);
    let mut landers = [lander(), lander()];
    let mut commits = 0;
    while landers.iter_mut().any(|lander| lander.try_wait().unwrap().is_none()) {
        // A commit that was made while the branch moved is refused by git, and made again.
        let made = yard.home.command(&yard.repo, "git", &["commit", "-q", "--allow-empty", "-m", "user"]).output();
        commits += usize::from(made.unwrap().status.success());
        thread::sleep(Duration::from_millis(200));
    }
    yard.land();
    let users = yard.git(&["log", "--format=%s", "main"]).lines().filter(|line| *line == "user").count();
    assert_eq!(users, commits, "nobody's commit is lost");
    let landed = yard.landed();
    assert!(landed.len() == all && landed.values().all(|count| *count == 1), "{landed:?}");
    yard.every_state_of_the_target_is_green();
}

#[test]
fn a_check_harms_nothing_whatever_it_does() {
    // Times that no other program sleeps.
    let [forked, left, detached] = [1, 2, 3].map(|n| 10 * (10_000_000 + std::process::id()) + n);
    let (forks, detaches) =
        (format!("sleep {forked} & (sleep {left} &) ; true"), format!("setsid sleep {detached} & true"));
    let mut hostile = vec![
        ("writes", "echo x > shared.txt; echo x > new.txt; rm CHANGELOG.md"),
        ("deletes", "rm -rf .git"),
        (
            "commits",
            "git config user.name x; git config user.email x@y; git commit -q --allow-empty -m evil; git branch evil; git tag evil; git stash list",
        ),
        ("forks", forks.as_str()),
    ];
    if nix_root() {
        hostile.push(("detaches", detaches.as_str()));
    }
    let yard = Yard::new("");
    let refs = || yard.git(&["for-each-ref", "--format=%(refname)", "refs/heads", "refs/tags"]);
    for (n, (name, check)) in hostile.iter().enumerate() {
        yard.configure(&format!("[land]\ncheck = ['{check}']\n"));
        let before = refs();
        let id = yard.finish(name, &format!("echo {n} > plain{n}.txt"), "false");
        let config = fs::read(yard.repo.join(".git/config")).unwrap();
        yard.land();
        assert_eq!(yard.status(&id), "closed", "{name}");
        let own =
            |refs: String| refs.lines().filter(|name| !name.contains("/toft/")).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(own(refs()), own(before), "{name}");
        assert_eq!(fs::read(yard.repo.join(".git/config")).unwrap(), config, "{name}");
        assert_eq!(yard.git(&["status", "--porcelain"]), "", "{name}");
    }
    let names = format!("sleep ({forked}|{left}|{detached})");
    let left = Command::new("pgrep").args(["-fx", &names]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "", "nothing that a check started goes on");

    yard.configure("[land]\ncheck = [\"sleep 303\"]\ntimeout = \"1s\"\n");
    let id = yard.finish("hangs", "echo h > h.txt", "false");
    let begun = Instant::now();
    let said = yard.home.toft(&yard.repo, &["land"]).fails(1);
    assert!(said.contains("took longer than 1 s") && begun.elapsed() < Duration::from_secs(30), "{said}");
    assert_eq!(yard.status(&id), "in_progress");
}

fn nix_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|said| said.stdout.starts_with(b"0"))
}

#[test]
fn two_targets_are_checked_apart() {
    let yard = Yard::new("");
    yard.git(&["branch", "dev"]);
    let bad = yard.issue("bad", "touch bad", "false");
    yard.configure("[land]\ninto = \"main\"\n");
    yard.run(&[]);
    let fine = yard.issue("fine", "echo fine > fine.txt", "false");
    yard.configure("[land]\ninto = \"dev\"\n");
    yard.run(&[]);
    // The second lander begins while the first one's check runs, and its check ends first.
    let started = yard.home.path().join("home/started");
    yard.configure("[land]\ncheck = [\"if [ -e bad ]; then touch $HOME/started; while [ ! -e $HOME/ended ]; do sleep 0.05; done; fi; test ! -e bad\"]\n");
    let lander = |id: &str| yard.home.start(&yard.repo, &["land", id]);
    let mut first = lander(&bad);
    until(20, "the first check runs", || started.exists());
    lander(&fine).wait().unwrap();
    fs::write(yard.home.path().join("home/ended"), "").unwrap();
    first.wait().unwrap();
    assert!(!yard.repo.join("bad").exists() && yard.status(&bad) == "open", "what failed did not land");
    assert_eq!(yard.status(&fine), "closed");
}

#[test]
fn ignored_files_of_the_user_are_not_overwritten() {
    let yard = Yard::new(CHECKED);
    yard.write(".gitignore", "*.ign\nbuild\n");
    yard.commit("ignore");
    yard.issue("first", "echo theirs > my.ign; git add -f my.ign; echo theirs > build; git add -f build", "false");
    yard.run(&[]);
    yard.write("my.ign", "mine\n");
    yard.write("build/out", "mine\n");
    let before = snapshot_of_checkout(&yard.repo);
    let landed = yard.land();
    assert_eq!(landed["take_up"].as_array().unwrap().len(), 1, "{landed}");
    assert_eq!(snapshot_of_checkout(&yard.repo), before);
}

#[test]
fn what_a_kill_leaves_does_not_stop_the_queue() {
    let yard = Yard::new(CHECKED);
    let checks = || {
        let root = yard.home.path().join("home/.local/share/toft/checks");
        fs::read_dir(root).unwrap().flatten().next().unwrap().path().join("main")
    };
    let id = yard.finish("first", "echo one > one.txt", "false");
    yard.land_and_close(&id);
    // A lock of git's in the check's directory; then a link in place of the directory.
    fs::write(checks().join("0.index.lock"), "").unwrap();
    let id = yard.finish("second", "echo two > two.txt", "false");
    yard.land_and_close(&id);
    fs::remove_dir_all(checks().join("0")).unwrap();
    std::os::unix::fs::symlink(&yard.repo, checks().join("0")).unwrap();
    let id = yard.finish("third", "echo three > three.txt", "false");
    yard.write("mine.txt", "mine\n");
    yard.land_and_close(&id);
    assert!(yard.repo.join(".git/HEAD").exists() && yard.repo.join("mine.txt").exists());
    // A lock on the target is said, and not waited for without end.
    let id = yard.finish("fourth", "echo four > four.txt", "false");
    yard.git(&["checkout", "-q", "--detach"]);
    fs::write(yard.repo.join(".git/refs/heads/main.lock"), "").unwrap();
    let said = yard.home.toft(&yard.repo, &["land"]);
    assert!(said.code != 0 && said.err.contains("main.lock"), "{said:?}");
    fs::remove_file(yard.repo.join(".git/refs/heads/main.lock")).unwrap();
    yard.land_and_close(&id);
}

#[test]
fn work_without_a_branch_to_land_in_waits_and_is_not_closed() {
    let yard = Yard::new("[land]\ninto = \"relase\"\ncheck = [\"true\"]\n");
    let id = yard.finish("first", "echo one > one.txt", "false");
    assert_eq!(yard.status(&id), "in_progress");
    yard.home.toft(&yard.repo, &["land"]).refuses(1, "there is no branch relase here");
    yard.git(&["branch", "relase"]);
    yard.land_and_close(&id);
    // In a detached checkout, the repository's default branch is the target.
    yard.configure(CHECKED);
    yard.git(&["checkout", "-q", "--detach"]);
    let id = yard.finish("second", "echo two > two.txt", "false");
    yard.land_and_close(&id);
    assert!(yard.git(&["show", "main:two.txt"]).contains("two"));
}

#[test]
fn no_agent_switches_the_check_off_or_lands_anothers_work() {
    let yard = Yard::new(CHECKED);
    yard.issue("config", "mkdir .toft; printf '[land]\\ncheck = []\\n' > .toft/config.toml", "false");
    yard.run(&["--land"]);
    yard.land();
    assert!(yard.repo.join(".toft/config.toml").exists());
    let bad = yard.finish("bad", "echo 1 > ports/bad", "false");
    yard.land();
    assert_eq!(yard.status(&bad), "open", "the user's check counts");

    // A trailer that an agent wrote says nothing.
    let victim = yard.issue("victim", "echo victim > victim.txt", "false");
    yard.home.toft(&yard.repo, &["close", &bad, "-m", "no"]).ok();
    yard.run(&[]);
    let entry = yard.home.toft(&yard.repo, &["land", "show", &victim, "--json"]).data();
    let trailer = format!("Toft-Landing: {} {}", entry["id"].as_str().unwrap(), entry["tip"].as_str().unwrap());
    yard.git(&["commit", "-q", "--allow-empty", "-m", &format!("forged\n\n{trailer}")]);
    yard.land();
    assert!(yard.repo.join("victim.txt").exists() && yard.status(&victim) == "closed");

    // An agent may not land.
    let id = yard.finish("last", "echo last > last.txt", "false");
    let before = yard.git(&["rev-parse", "main"]);
    let agent = [("TOFT_AGENT", "kim"), ("TOFT_ATTEMPT", "ls_1")];
    yard.home.toft_with(&yard.repo, &agent, &["land"]).refuses(4, "may not land");
    assert_eq!((yard.git(&["rev-parse", "main"]), yard.status(&id)), (before, "in_progress".into()));
}

#[test]
fn one_bad_piece_of_work_does_not_stop_the_others() {
    let yard = Yard::new(CHECKED);
    let orphan = "git checkout -q --orphan apart; git rm -rqf .; echo a > apart.txt";
    let subject = "echo s > s.txt; git add -A; git commit -q -m \"$(head -c 200000 /dev/zero | tr '\\0' x)\"";
    let odd = yard.issue("orphan", orphan, "false");
    let long = yard.issue("long", subject, "false");
    let fine = yard.finish("fine", "echo fine > fine.txt", "false");
    yard.land();
    assert_eq!((yard.status(&fine), yard.status(&long)), ("closed".into(), "closed".into()));
    assert_eq!(yard.status(&odd), "open");
}

#[test]
fn a_check_that_failed_for_another_reason_is_believed_no_longer_than_its_lander() {
    let yard = Yard::new("[land]\ncheck = [\"test ! -e $HOME/outage\"]\n");
    let outage = yard.home.path().join("home/outage");
    let ids = [0, 1].map(|n| yard.finish(&format!("work{n}"), &format!("echo {n} > {n}.txt"), "false"));
    fs::write(&outage, "").unwrap();
    yard.home.toft(&yard.repo, &["land"]).refuses(1, "before the target itself is mended");
    fs::remove_file(&outage).unwrap();
    yard.land();
    assert!(ids.iter().all(|id| yard.status(id) == "closed"));
    // A target that passed before is not proof that the check works now.
    let id = yard.finish("work2", "echo 2 > 2.txt", "false");
    fs::write(&outage, "").unwrap();
    yard.home.toft(&yard.repo, &["land"]).fails(1);
    assert_eq!(yard.status(&id), "in_progress", "nobody is blamed for an outage");
    fs::remove_file(&outage).unwrap();
    yard.land_and_close(&id);
}

#[test]
fn a_merge_in_the_work_is_not_lost_when_it_is_rebased() {
    let yard = Yard::new("[land]\nhow = \"rebase\"\ncheck = [\"sh check.sh\"]\n");
    let merge = "git checkout -q -b side; echo side > side.txt; git add -A; git commit -q -m side; git checkout -q -; \
                 git merge -q --no-ff --no-commit side; echo resolved > resolved.txt; git add -A; git commit -q -m merged";
    let id = yard.finish("first", merge, "false");
    yard.land_and_close(&id);
    assert!(yard.repo.join("side.txt").exists() && yard.repo.join("resolved.txt").exists());
}

#[test]
fn a_review_shows_what_would_land_and_not_what_the_workspace_shows() {
    let yard = Yard::new("[land]\ncheck = [\"true\"]\nreview = \"human\"\n");
    let id = yard.finish("first", "echo evil > evil.txt", "false");
    let dir = yard.home.toft(&yard.repo, &["ws", "path", &id]).ok().trim().to_owned();
    yard.home.run(dir.as_ref(), "git", &["reset", "-q", "--hard", "HEAD~1"]);
    yard.home.toft(&yard.repo, &["review", &id]).says("+evil");
}

#[test]
fn work_that_needs_no_change_after_all_holds_up_nobody() {
    let yard = Yard::new(CHECKED);
    let edit = |word: &str| format!("echo 'words: {word}' > shared.txt");
    let _a = yard.issue("a", &edit("a"), "false");
    let b = yard.issue("b", &edit("b"), "toft finish --no-change 'a has it'");
    let both = "git merge -q --no-edit $newest >/dev/null 2>&1; echo 'words: a c' > shared.txt";
    let c = yard.finish("c", &edit("c"), both);
    yard.land();
    yard.run(&["--land"]);
    yard.land();
    assert_eq!((yard.status(&b), yard.status(&c)), ("closed".into(), "closed".into()));
    assert_eq!(fs::read_to_string(yard.repo.join("shared.txt")).unwrap(), "words: a c\n");
}
