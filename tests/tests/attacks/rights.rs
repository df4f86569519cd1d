//! People and agents: who may do what, who is there, whose work it is, and what two clones tell each other.

use toft_stories::prelude::*;

#[test]
fn a_worker_does_its_own_work_and_ends_nothing_else() {
    let (home, repo) = Home::with_repository("api");
    let (wf, tasks) = start_flow(&home, &repo, &["a", "b", "c"], &[]);
    let plan = home.path().join("plan.json");
    fs::write(&plan, json!({ "title": "New", "tasks": [{ "name": "z" }] }).to_string()).unwrap();
    let plan = plan.to_str().unwrap();
    home.toft(&repo, &["claim", &tasks[0], "--as", "kim"]).ok();
    home.toft(&repo, &["claim", &tasks[1], "--as", "lee"]).ok();
    home.toft(&repo, &["finish", &tasks[1], "waiting", "-m", "which colour?", "--as", "lee"]).ok();
    let refused = |words: &[&str], may_not: &str| {
        let said = home.toft(&repo, &[words, &["--as", "lee"]].concat()).fails(4);
        let wanted = format!("worker `lee` may not {may_not}; a coordinator or a human may");
        assert!(said.contains("error[not_allowed]") && said.contains(&wanted), "{words:?}: {said}");
    };
    refused(&["flow", "abandon", &wf], "abandon a workflow");
    refused(&["flow", "edit", &wf, "--file", plan], "replan a workflow");
    refused(&["close", &tasks[2]], "retry or skip a task of a plan");
    refused(&["flow", "edit", &wf, "--budget", "9"], "change the limits of a workflow");
    refused(&["answer", &tasks[1], "red"], "answer a question asked of a human");
    refused(&["stop", &tasks[0]], "stop another agent");
    refused(&["pause", "kim"], "pause or resume another agent");
    refused(&["agent", "remove", "kim"], "unregister another agent");
    refused(&["edit", &tasks[2], "--assignee", "kim"], "assign work");
    home.toft(&repo, &["agent", "register", "lee", "--role", "coordinator", "--as", "lee"])
        .refuses(4, "only a human may");
    // An agent is known by its shell, too.
    for sign in ["TOFT_AGENT", "CLAUDECODE", "GEMINI_CLI"] {
        home.toft_with(&repo, &[(sign, "1")], &["flow", "abandon", &wf]).refuses(4, "a coordinator or a human may");
    }
    assert_eq!(data(&home, &repo, &["flow", "show", &wf])["workflow"]["status"], "running");
    // Its own it finishes, fails, saves, asks about, pauses and stops; and it writes work down.
    home.toft(&repo, &["claim", &tasks[2], "--as", "lee"]).ok();
    home.toft(&repo, &["save", &tasks[2], "-m", "half", "--as", "lee"]).ok();
    home.toft(&repo, &["stop", &tasks[2], "--as", "lee"]).ok();
    home.toft(&repo, &["pause", "lee", "--as", "lee"]).ok();
    home.toft(&repo, &["pause", "--off", "--as", "lee"]).ok();
    home.toft(&repo, &["agent", "send", "human", "done soon", "--as", "lee"]).ok();
    home.toft(&repo, &["flow", "edit", &wf, "--add", "d", "--as", "lee"]).ok();
    home.toft(&repo, &["flow", "new", "Mine", "--as", "lee"]).ok();
    home.toft(&repo, &["undo", "--as", "lee"]).ok();
    // A coordinator, and the person at the shell.
    home.toft(&repo, &["agent", "register", "lead", "--role", "coordinator"]).ok();
    home.toft(&repo, &["pause", "kim", "--as", "lead"]).ok();
    home.toft(&repo, &["pause", "--off", "kim", "--as", "lead"]).ok();
    home.toft(&repo, &["flow", "edit", &wf, "--file", plan, "--as", "lead"]).ok();
    home.toft(&repo, &["flow", "abandon", &wf]).ok();
    home.toft(&repo, &["agent", "--help"]).says_all(&["abandon a workflow", "coordinator"]);
}

#[test]
fn an_issue_is_assigned_before_anybody_starts_it() {
    let (home, repo) = Home::with_repository("api");
    for name in ["bob", "amy"] {
        home.toft(&repo, &["agent", "register", name]).ok();
    }
    let first = add(&home, &repo, &["First", "-p", "0"]);
    let second = add(&home, &repo, &["Second", "-p", "3"]);
    home.toft(&repo, &["edit", &first, "--assignee", "bob", "--as", "amy"]).fails(4);
    home.toft(&repo, &["edit", &first, "--assignee", "bob"]).ok();
    assert_eq!(data(&home, &repo, &["show", &first])["assignee"], "bob");
    assert_eq!(data(&home, &repo, &["claim", "--as", "amy"])["issue"]["id"], second.as_str());
    home.toft(&repo, &["claim", "--as", "amy"]).fails(6);
    home.toft(&repo, &["claim", &first, "--as", "amy"]).refuses(5, "assigned to bob");
    home.toft(&repo, &["edit", &first, "--assignee", ""]).ok();
    let third = add(&home, &repo, &["Third", "-p", "4"]);
    home.toft(&repo, &["edit", &third, "--assignee", "bob"]).ok();
    assert_eq!(data(&home, &repo, &["claim", "--as", "bob"])["issue"]["id"], third.as_str(), "its own goes first");
    // A name that no agent here has keeps nobody from it.
    home.toft(&repo, &["claim", "--as", "amy"]).ok();
}

/// Two clones of one project, each with a store of its own, that both know an issue.
fn two_clones(home: &Home) -> (std::path::PathBuf, std::path::PathBuf, String) {
    let remote = Vcs::Git.remote(home, "remote");
    let (a, b) = (Vcs::Git.clone(home, &remote, "a"), Vcs::Git.clone(home, &remote, "b"));
    for repo in [&a, &b] {
        home.run(repo, "git", &["commit", "-q", "--allow-empty", "-m", "first"]);
        home.toft(repo, &["init"]).ok();
    }
    let id = add(home, &a, &["Contested"]);
    home.toft(&a, &["sync"]).ok();
    home.toft(&b, &["sync"]).ok();
    (a, b, id)
}

/// A home whose stores are files, whichever stories are told.
fn own_stores() -> Home {
    let mut home = Home::new();
    home.use_store("repo");
    // Ledgers say which agent wrote.
    home.configure("[sync]\nnames = \"agent\"\n");
    home
}

#[test]
fn a_claim_in_a_store_that_two_clones_share_is_one_claim() {
    for names in ["author", "agent"] {
        let mut home = Home::new();
        home.use_store("global");
        home.configure(format!("[sync]\nnames = \"{names}\"\n"));
        let remote = Vcs::Git.remote(&home, "remote");
        let a = Vcs::Git.clone(&home, &remote, "a");
        home.run(&a, "git", &["commit", "-q", "--allow-empty", "-m", "first"]);
        home.run(&a, "git", &["push", "-q", "origin", "HEAD"]);
        let b = Vcs::Git.clone(&home, &remote, "b");
        for (repo, user) in [(&a, "Ana"), (&b, "Ben")] {
            home.run(repo, "git", &["config", "user.name", user]);
            home.toft(repo, &["init"]).ok();
        }
        // One that the other clone has, and one that it has never seen.
        let known = add(&home, &a, &["Known"]);
        home.toft(&a, &["sync"]).ok();
        home.toft(&b, &["sync"]).ok();
        let new = add(&home, &a, &["New"]);
        for id in [&known, &new] {
            home.toft(&a, &["claim", id, "--as", "kim"]).ok();
        }
        for repo in [&a, &b, &a, &b] {
            let said = home.toft(repo, &["sync"]);
            let all = format!("{}{}", said.out, said.err);
            assert!(said.code == 0 && !all.contains("claimed twice"), "{names}: {all}");
            let status = home.toft(repo, &["status"]).ok();
            assert!(!status.contains("claimed twice"), "{names}: {status}");
        }
    }
}

/// One person on two machines, each with a store of its own outside of the clone.
#[test]
fn a_claim_in_two_stores_is_told_though_one_person_made_both() {
    let mut home = Home::new();
    let remote = Vcs::Git.remote(&home, "remote");
    let stores = ["one.db", "two.db"].map(|name| home.path().join(name).display().to_string());
    home.use_store(&stores[0]);
    let a = Vcs::Git.clone(&home, &remote, "a");
    home.run(&a, "git", &["commit", "-q", "--allow-empty", "-m", "first"]);
    home.run(&a, "git", &["push", "-q", "origin", "HEAD"]);
    home.toft(&a, &["init"]).ok();
    let id = add(&home, &a, &["Contested"]);
    home.toft(&a, &["sync"]).ok();
    home.use_store(&stores[1]);
    let b = Vcs::Git.clone(&home, &remote, "b");
    home.toft(&b, &["init"]).ok();
    home.toft(&b, &["sync"]).ok();
    home.toft(&b, &["claim", &id]).ok();
    home.use_store(&stores[0]);
    home.toft(&a, &["claim", &id]).ok();
    home.toft(&a, &["sync"]).ok();
    home.use_store(&stores[1]);
    let said = home.toft(&b, &["sync"]);
    assert!(format!("{}{}", said.out, said.err).contains("is claimed twice"), "{said:?}");
}

#[test]
fn two_clones_that_claimed_the_same_issue_are_both_told() {
    for (first, names) in [("a", ["kim", "lee"]), ("b", ["kim", "lee"]), ("a", ["same", "same"])] {
        let home = own_stores();
        let (a, b, id) = two_clones(&home);
        let claim = |name: &str| {
            let (repo, agent) = if name == "a" { (&a, names[0]) } else { (&b, names[1]) };
            home.toft(repo, &["claim", &id, "--as", agent]).ok();
            // The clock tells which was first.
            thread::sleep(Duration::from_millis(5));
        };
        claim(first);
        claim(if first == "a" { "b" } else { "a" });
        let said = home.toft(&a, &["sync"]).ok();
        assert!(!said.contains("claimed twice"), "{said}");
        for repo in [&b, &a] {
            let said = home.toft(repo, &["sync"]);
            let all = format!("{}{}", said.out, said.err);
            assert!(all.contains("is claimed twice") && all.contains(names[0]) && all.contains(names[1]), "{all}");
            home.toft(repo, &["status"]).says("claimed twice");
            let agent = if repo == &a { names[0] } else { names[1] };
            assert!(home.toft(repo, &["agent", "inbox", "--as", agent]).ok().contains("claimed twice"));
            assert!(home.toft(repo, &["history", &id]).ok().contains("claimed_twice"));
        }
        // Everybody is told once.
        for repo in [&b, &a, &b, &a] {
            let said = home.toft(repo, &["sync"]);
            assert!(!format!("{}{}", said.out, said.err).contains("claimed twice"), "{said:?}");
        }
        // One gives it back; the other's claim stands, everywhere.
        home.toft(&b, &["finish", &id, "release", "--as", names[1]]).ok();
        for repo in [&b, &a, &b] {
            home.toft(repo, &["sync"]).ok();
        }
        for repo in [&a, &b] {
            let shown = data(&home, repo, &["show", &id]);
            assert_eq!(shown["status"], "in_progress", "{first} {names:?}: {shown}");
            assert_eq!(shown["assignee"], names[0], "{shown}");
        }
    }
}

#[test]
fn closed_by_is_who_closed_it() {
    let home = own_stores();
    let repo = home.repo("api");
    let id = add(&home, &repo, &["Mend it"]);
    home.toft(&repo, &["claim", &id, "--as", "kim"]).ok();
    home.toft(&repo, &["finish", "--no-change", "none", "--as", "kim"]).ok();
    assert_eq!(data(&home, &repo, &["show", &id])["closed"]["by"], "kim");
    let id = add(&home, &repo, &["Do without"]);
    let task = data(&home, &repo, &["claim", &id, "--as", "kim"])["task"]["id"].as_str().unwrap().to_owned();
    home.toft(&repo, &["finish", "release", "--as", "kim"]).ok();
    home.toft(&repo, &["close", &task, "-m", "not needed"]).ok();
    let closed = &data(&home, &repo, &["show", &id])["closed"];
    assert_eq!(closed["by"], "ana", "{closed}");
}

#[test]
fn a_template_is_described_shown_and_removed() {
    let (home, repo) = Home::with_repository("api");
    let file = home.path().join("t.toml");
    let text = |extra: &str| {
        format!(
            "name = \"fix\"\ndescription = \"How we mend things\"\ntitle = \"Fix {{{{what}}}}\"\n{extra}\n[variables.what]\nabout = \"the thing\"\n[config]\nregion = \"{{{{what}}}}\"\n[[tasks]]\nname = \"mend\"\n[[tasks]]\nname = \"review\"\nneeds = [\"mend\"]\n"
        )
    };
    fs::write(&file, text("")).unwrap();
    home.toft(&repo, &["flow", "template", "put", file.to_str().unwrap()]).ok();
    assert!(home.toft(&repo, &["flow", "template", "list"]).ok().contains("How we mend things"));
    let shown = home.toft(&repo, &["flow", "template", "show", "fix"]).ok();
    for word in ["fix@1", "How we mend things", "--set what (required)", "the thing", "review  after mend"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let made = data(&home, &repo, &["flow", "new", "--template", "fix", "--set", "what=it"]);
    assert_eq!(made["workflow"]["config"], json!({ "region": "it" }));
    let base = home.path().join("b.toml");
    fs::write(&base, "name = \"hard\"\nextends = \"fix\"\ntitle = \"Fix {{what}} well\"\n").unwrap();
    home.toft(&repo, &["flow", "template", "put", base.to_str().unwrap()]).ok();
    assert!(home.toft(&repo, &["flow", "template", "remove", "fix"]).fails(5).contains("hard"));
    home.toft(&repo, &["flow", "template", "remove", "hard", "--as", "kim"]).fails(4);
    for name in ["hard", "fix"] {
        home.toft(&repo, &["flow", "template", "remove", name]).ok();
        home.toft(&repo, &["flow", "template", "show", name]).fails(3);
    }
    home.toft(&repo, &["flow", "new", "--template", "fix@1", "--set", "what=it"]).fails(3);
    assert_eq!(data(&home, &repo, &["flow", "template", "list"]), json!([]));
    // Put again, it is a new version.
    let again = data(&home, &repo, &["flow", "template", "put", file.to_str().unwrap()]);
    assert_eq!(again["version"], 2);
}

#[test]
fn a_workflow_says_where_it_comes_from_and_a_task_where_it_is_done() {
    let (home, repo) = Home::with_repository("api");
    let words = ["flow", "new", "Ship", "--external", "PROJ-7", "--config", "region=eu", "--config", "replicas=3"];
    let made = data(&home, &repo, &words);
    let wf = made["workflow"]["id"].as_str().unwrap();
    assert_eq!(made["workflow"]["source"], json!({ "kind": "external", "reference": "PROJ-7" }));
    assert_eq!(made["workflow"]["config"], json!({ "region": "eu", "replicas": 3 }));
    assert!(home.toft(&repo, &["flow", "show", wf]).ok().contains("from PROJ-7"));
    let task = data(&home, &repo, &["claim", "--ws", "--as", "kim"])["task"]["id"].as_str().unwrap().to_owned();
    home.toft(&repo, &["save", "-m", "split the module first", "--kind", "plan", "--as", "kim"]).ok();
    home.toft(&repo, &["save", "-m", "half way", "--as", "kim"]).ok();
    let shown = data(&home, &repo, &["show", &task]);
    assert_eq!(shown["plan_summary"], "split the module first");
    let path = shown["workspace"]["path"].as_str().unwrap_or_else(|| panic!("{shown}"));
    assert!(Path::new(path).is_dir(), "{path}");
}
