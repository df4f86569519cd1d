//! Landing together with other features: version controls, kinds of workspaces, ledgers, sandboxes.

#![cfg(unix)]

use toft_stories::prelude::*;
use toft_stories::repositories::status_of as status;

fn home() -> Home {
    let mut home = Home::new();
    home.until_landed();
    home.toft_on_path();
    home.set("JJ_USER", "Ana");
    home.set("JJ_EMAIL", "ana@example.org");
    home.configure("[land]\ncheck = [\"test -e one.txt\"]\n");
    home
}

#[test]
fn work_under_jujutsu_lands_in_its_git_branch() {
    for kind in ["--colocate", "--no-colocate"] {
        let home = home();
        let repo = home.path().join("jjrepo");
        home.run(home.path(), "jj", &["git", "init", kind, "jjrepo"]);
        fs::write(repo.join("README"), "a\n").unwrap();
        home.run(&repo, "jj", &["commit", "-m", "start"]);
        home.run(&repo, "jj", &["bookmark", "create", "main", "-r", "@-"]);
        home.toft(&repo, &["init"]).ok();
        let id = add(&home, &repo, &["first"]);
        let script = "echo one > one.txt; jj commit -m one";
        home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", script]).ok();
        assert_eq!(status(&home, &repo, &id), "in_progress", "{kind}");
        let landed = home.toft(&repo, &["land", "--json"]).data();
        assert_eq!(landed["landed"].as_array().unwrap().len(), 1, "{kind}: {landed}");
        assert_eq!(status(&home, &repo, &id), "closed", "{kind}");
        home.run(&repo, "jj", &["git", "import"]);
        let files = home.run(&repo, "jj", &["file", "list", "-r", "main"]);
        assert!(files.contains("one.txt"), "{kind}: {files}");
    }
}

#[test]
fn under_mercurial_an_issue_is_closed_when_its_work_is_done() {
    let home = home();
    let repo = home.path().join("hgrepo");
    home.run(home.path(), "hg", &["init", "hgrepo"]);
    fs::write(repo.join("README"), "a\n").unwrap();
    home.run(&repo, "hg", &["commit", "-q", "-A", "-m", "start"]);
    home.toft(&repo, &["init"]).ok();
    let id = add(&home, &repo, &["first"]);
    let script = "echo one > one.txt; hg commit -q -A -m one";
    home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", script]).ok();
    assert_eq!(status(&home, &repo, &id), "closed");
    home.toft(&repo, &["land"]).refuses(4, "not supported under hg");
}

#[test]
fn work_in_a_clone_lands_in_the_repository_that_it_was_made_from() {
    let home = home();
    let repo = home.repo("shop");
    let id = add(&home, &repo, &["first"]);
    home.toft(&repo, &["claim", &id]).ok();
    home.toft(&repo, &["ws", "create", &id, "--clone"]).ok();
    let dir = PathBuf::from(home.toft(&repo, &["ws", "path", &id]).ok().trim());
    fs::write(dir.join("one.txt"), "one\n").unwrap();
    commit_all(&home, &dir, "one");
    home.toft(&dir, &["finish", &id, "-m", "one", "--evidence", "HEAD"]).ok();
    assert_eq!(status(&home, &repo, &id), "in_progress");
    let landed = home.toft(&repo, &["land", "--json"]).data();
    assert_eq!(landed["landed"].as_array().unwrap().len(), 1, "{landed}");
    assert_eq!(status(&home, &repo, &id), "closed");
    assert!(repo.join("one.txt").exists());
}

#[test]
fn a_ledger_in_the_tree_and_an_agent_in_a_sandbox_land_as_any_other() {
    let mut home = Home::outside_of_tmp();
    home.until_landed();
    home.toft_on_path();
    let repo = home.git("shop");
    home.toft(&repo, &["init", "--tree"]).ok();
    commit_all(&home, &repo, "ledger");
    let id = add(&home, &repo, &["first"]);
    let script = "echo one > one.txt; git add one.txt; git commit -q -m one; toft finish -m one --evidence HEAD";
    home.toft(&repo, &["run", "--until-idle", "--sandbox", "--", "sh", "-c", script]).ok();
    assert_eq!(status(&home, &repo, &id), "in_progress");
    let ledger = fs::read(repo.join(".toft/issues.jsonl")).unwrap();
    let landed = home.toft(&repo, &["land", "--json"]).data();
    assert_eq!(landed["landed"].as_array().unwrap().len(), 1, "{landed}");
    assert_eq!(status(&home, &repo, &id), "closed");
    assert!(repo.join("one.txt").exists());
    assert_ne!(fs::read(repo.join(".toft/issues.jsonl")).unwrap(), ledger, "the ledger says that it is closed");
}

#[test]
fn a_confined_agent_whose_work_is_verified_writes_through_no_link() {
    let mut home = Home::outside_of_tmp();
    home.until_landed();
    home.toft_on_path();
    home.configure("[land]\ncheck = { run = \"test -e one.txt\", before = \"done\" }\n");
    let repo = home.repo("shop");
    let victim = home.path().join("home/victim");
    fs::write(&victim, "mine\n").unwrap();
    let id = add(&home, &repo, &["first"]);
    let script = format!(
        "echo one > one.txt; git add one.txt; git commit -q -m one; \
         rm -f $TOFT_REPORT; ln -s {} $TOFT_REPORT; toft finish -m evil --evidence HEAD; rm -f $TOFT_REPORT; \
         toft finish -m one --evidence HEAD",
        victim.display()
    );
    home.toft(&repo, &["run", "--until-idle", "--sandbox", "--", "sh", "-c", &script]).ok();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine\n", "nothing outside of the sandbox was written");
    assert_eq!(status(&home, &repo, &id), "in_progress", "it was verified, and waits to land");
    home.toft(&repo, &["land"]).ok();
    assert_eq!(status(&home, &repo, &id), "closed");
}

#[test]
fn a_check_is_confined_as_the_agents_are_whose_work_it_runs() {
    let mut home = Home::outside_of_tmp();
    home.until_landed();
    home.toft_on_path();
    home.configure("[land]\ncheck = [\"sh test.sh\"]\n");
    let repo = home.repo("shop");
    fs::write(repo.join("test.sh"), "true\n").unwrap();
    commit_all(&home, &repo, "a test");
    let victim = home.path().join("home/victim");
    fs::write(&victim, "mine\n").unwrap();
    // An agent that may not write there writes a test that does, and reads the store.
    let evil = format!(
        "echo evil > {v}; cp {r}/.git/toft/* .; touch built; cat .git/HEAD > /dev/null",
        v = victim.display(),
        r = repo.display()
    );
    let agent = |file: &str| {
        format!(
            "echo one > {file}; echo '{evil}' > test.sh; echo '# {file}' >> test.sh; git add -A; git commit -q -m {file}"
        )
    };
    add(&home, &repo, &["first"]);
    home.toft(&repo, &["run", "--until-idle", "--sandbox", "--land", "--", "sh", "-c", &agent("one.txt")]).ok();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine\n", "the runner's sandbox holds for the check");
    assert!(
        home.run(&repo, "git", &["ls-tree", "--name-only", "refs/toft/landed/main"]).contains("one.txt"),
        "and it landed"
    );

    home.configure("[land]\ncheck = [\"sh test.sh\"]\nsandbox = \"offline\"\n");
    add(&home, &repo, &["second"]);
    home.toft(&repo, &["run", "--until-idle", "--sandbox", "--", "sh", "-c", &agent("two.txt")]).ok();
    home.toft(&repo, &["land"]).ok();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine\n", "so does the one of the configuration");
    assert!(repo.join("two.txt").exists());

    home.configure("[land]\ncheck = [\"sh test.sh\"]\n");
    add(&home, &repo, &["third"]);
    home.toft(&repo, &["run", "--until-idle", "--sandbox", "--", "sh", "-c", &agent("three.txt")]).ok();
    home.toft(&repo, &["land"]).ok();
    assert_eq!(fs::read_to_string(&victim).unwrap(), "evil\n", "without one, the test does what you may do");
}

#[test]
fn work_that_is_sent_back_goes_on_though_its_workspace_is_gone() {
    let yard = Yard::new("[land]\nreview = \"human\"\n");
    let id = yard.finish("work", "echo long > long-work.txt", "test -e long-work.txt && echo more > more.txt");
    yard.home.toft(&yard.repo, &["ws", "rm", &id, "--rescue"]).ok();
    yard.git(&["branch", "-q", "-D", &yard.git(&["branch", "--list", "toft/*", "--format", "%(refname:short)"])]);
    yard.home.toft(&yard.repo, &["review", &id, "--return", "-m", "more"]).ok();
    yard.run(&[]);
    yard.home.toft(&yard.repo, &["review", &id, "--approve"]).ok();
    yard.land_and_close(&id);
    assert!(yard.repo.join("long-work.txt").exists() && yard.repo.join("more.txt").exists());
}

#[test]
fn a_confined_agent_lands_nothing_by_moving_refs() {
    let mut home = Home::outside_of_tmp();
    home.until_landed();
    home.toft_on_path();
    let land =
        "[land]\ncheck = [\"test ! -e evil.txt\"]\nreview = { default = \"none\", \"label:risky\" = \"human\" }\n";
    home.configure(land);
    let repo = home.repo("shop");
    let risky = add(&home, &repo, &["risky", "-l", "risky"]);
    let evil = "echo evil > evil.txt; git add -A; git commit -q -m evil; git update-ref refs/toft/landed/main HEAD";
    home.toft(&repo, &["run", "--until-idle", "--sandbox", "--", "sh", "-c", evil]).ok();
    assert_eq!(status(&home, &repo, &risky), "in_progress", "it waits for review");
    let fine = add(&home, &repo, &["fine"]);
    let work = "test -e evil.txt && exit 1; echo fine > fine.txt; git add -A; git commit -q -m fine";
    home.toft(&repo, &["run", "--until-idle", "--sandbox", "--", "sh", "-c", work]).ok();
    home.toft(&repo, &["land"]).ok();
    assert_eq!(status(&home, &repo, &fine), "closed");
    assert!(repo.join("fine.txt").exists() && !repo.join("evil.txt").exists());
    // Nor is a result lost that waits for the user's checkout.
    add(&home, &repo, &["waits"]);
    let work = "echo waits > waits.txt; git add -A; git commit -q -m waits";
    home.toft(&repo, &["run", "--until-idle", "--land", "--", "sh", "-c", work]).ok();
    assert!(!repo.join("waits.txt").exists());
    for forged in
        ["git update-ref refs/toft/landed/main HEAD", "rm $(git rev-parse --git-common-dir)/refs/toft/landed/main"]
    {
        add(&home, &repo, &["another", "-l", "risky"]);
        let evil = format!("echo evil > evil.txt; git add -A; git commit -q -m evil; {forged}");
        home.toft(&repo, &["run", "--until-idle", "--sandbox", "--", "sh", "-c", &evil]).ok();
        assert!(home.toft(&repo, &["status"]).ok().contains("What landed in main waits: run toft land"));
    }
    home.toft(&repo, &["land"]).ok();
    assert!(repo.join("waits.txt").exists() && !repo.join("evil.txt").exists());
}

#[test]
fn what_is_returned_while_the_check_runs_does_not_land() {
    let yard = Yard::new("");
    let id = yard.finish("work", "echo one > one.txt", "echo two > two.txt");
    let repo = yard.repo.display();
    let check = format!("test -e two.txt || (cd {repo} && env -u TOFT_ATTEMPT toft review {id} --return -m wrong)");
    yard.configure(&format!("[land]\ncheck = ['{check}']\n"));
    let landed = yard.land();
    assert_eq!(landed["landed"].as_array().unwrap().len(), 0, "{landed}");
    assert_eq!(yard.status(&id), "open");
    assert!(!yard.repo.join("one.txt").exists());
    yard.run(&[]);
    yard.land_and_close(&id);
}

#[test]
fn the_commit_is_verified_and_not_other_files_beside_it() {
    let yard = Yard::new("[land]\ncheck = { run = [\"grep -q good word.txt\"], before = \"done\" }\n");
    let script = "echo bad > word.txt; git add -A; git commit -q -m word; toft finish --evidence HEAD -m done; echo good > word.txt; exit 0";
    let id = add(&yard.home, &yard.repo, &["work"]);
    let said = yard.home.toft(&yard.repo, &["run", "--once", "--", "sh", "-c", script]);
    said.says("changed and not committed: word.txt");
    assert_eq!(yard.status(&id), "open");
}
