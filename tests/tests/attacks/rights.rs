//! People and agents: who may do what, who is there, whose work it is, and what two clones tell each other.

use std::{fs, path::Path, thread, time::Duration};

use serde_json::{Value, json};
use toft_cluster::Cluster;
use toft_stories::{Home, agents::data, issues::add, new_store_on, share::Vcs};

/// Tells a story on files, and again on a server where one is installed.
fn on_both_stores(story: impl Fn(&Home)) {
    story(&Home::new());
    let missing = !toft_cluster::available();
    assert!(!(missing && std::env::var_os("TOFT_TEST_ALL").is_some()), "PostgreSQL is not installed");
    if !missing {
        let cluster = Cluster::start();
        let mut home = Home::new();
        home.behind_a_server(Some(&new_store_on(&cluster.url())));
        story(&home);
    }
}

/// A running workflow of these tasks: its id, and theirs.
fn flow(home: &Home, repo: &Path, tasks: &[&str]) -> (String, Vec<String>) {
    let mut words = vec!["flow", "new", "Ship it"];
    for task in tasks {
        words.extend(["--task", task]);
    }
    let made = data(home, repo, &words);
    let id = |row: &Value| row["id"].as_str().unwrap().to_owned();
    (id(&made["workflow"]), made["tasks"].as_array().unwrap().iter().map(id).collect())
}

fn names(rows: &Value) -> Vec<String> {
    let name = |row: &Value| row["name"].as_str().or(row["title"].as_str()).unwrap().to_owned();
    rows.as_array().unwrap().iter().map(name).collect()
}

fn presence(home: &Home, repo: &Path, name: &str) -> Option<String> {
    let rows = data(home, repo, &["agent", "list"]);
    let row = rows.as_array().unwrap().iter().find(|row| row["name"] == name)?;
    Some(row["presence"].as_str().unwrap_or("unknown").to_owned())
}

#[test]
fn a_worker_does_its_own_work_and_ends_nothing_else() {
    let home = Home::new();
    let repo = home.repo("api");
    let (wf, tasks) = flow(&home, &repo, &["a", "b", "c"]);
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
    let said = home.toft(&repo, &["agent", "register", "lee", "--role", "coordinator", "--as", "lee"]).fails(4);
    assert!(said.contains("only a human may"), "{said}");
    // An agent is known by its shell, too.
    for sign in ["TOFT_AGENT", "CLAUDECODE", "GEMINI_CLI"] {
        let said = home.toft_with(&repo, &[(sign, "1")], &["flow", "abandon", &wf]).fails(4);
        assert!(said.contains("a coordinator or a human may"), "{sign}: {said}");
    }
    assert_eq!(data(&home, &repo, &["flow", "show", &wf])["workflow"]["status"], "running");
    // Its own it finishes, fails, saves, asks about, pauses and stops; and it writes work down.
    home.toft(&repo, &["claim", &tasks[2], "--as", "lee"]).ok();
    home.toft(&repo, &["save", &tasks[2], "-m", "half", "--as", "lee"]).ok();
    home.toft(&repo, &["stop", &tasks[2], "--as", "lee"]).ok();
    home.toft(&repo, &["pause", "lee", "--as", "lee"]).ok();
    home.toft(&repo, &["resume", "--as", "lee"]).ok();
    home.toft(&repo, &["agent", "send", "human", "done soon", "--as", "lee"]).ok();
    home.toft(&repo, &["flow", "edit", &wf, "--add", "d", "--as", "lee"]).ok();
    home.toft(&repo, &["flow", "new", "Mine", "--as", "lee"]).ok();
    home.toft(&repo, &["undo", "--as", "lee"]).ok();
    // A coordinator, and the person at the shell.
    home.toft(&repo, &["agent", "register", "lead", "--role", "coordinator"]).ok();
    home.toft(&repo, &["pause", "kim", "--as", "lead"]).ok();
    home.toft(&repo, &["resume", "kim", "--as", "lead"]).ok();
    home.toft(&repo, &["flow", "edit", &wf, "--file", plan, "--as", "lead"]).ok();
    home.toft(&repo, &["flow", "abandon", &wf]).ok();
    let help = home.toft(&repo, &["agent", "--help"]).ok();
    assert!(help.contains("abandon a workflow") && help.contains("coordinator"), "{help}");
}

#[test]
fn an_agent_goes_offline_and_is_unregistered() {
    let home = Home::new();
    let repo = home.repo("api");
    let (_, tasks) = flow(&home, &repo, &["a"]);
    home.toft(&repo, &["claim", "--as", "bob"]).ok();
    assert_eq!(presence(&home, &repo, "bob").as_deref(), Some("working"));
    let said = home.toft(&repo, &["agent", "remove", "bob"]).fails(5);
    assert!(said.contains(&tasks[0]), "{said}");
    home.toft(&repo, &["finish", &tasks[0], "release", "--as", "bob"]).ok();
    assert_eq!(presence(&home, &repo, "bob").as_deref(), Some("idle"));
    thread::sleep(Duration::from_millis(1_200));
    let listed = home.toft_with(&repo, &[("TOFT_LEASE_TTL", "1s")], &["agent", "list"]).ok();
    assert!(listed.contains("bob  offline"), "{listed}");
    home.toft(&repo, &["agent", "remove", "bob"]).ok();
    assert_eq!(presence(&home, &repo, "bob"), None);
    assert!(home.toft(&repo, &["agent", "list", "--all"]).ok().contains("bob  removed"));
    let said = home.toft(&repo, &["claim", "--as", "bob"]).fails(4);
    assert!(said.contains("agent register bob"), "{said}");
    home.toft(&repo, &["agent", "send", "bob", "hello"]).fails(5);
    home.toft(&repo, &["agent", "register", "bob"]).ok();
    home.toft(&repo, &["claim", "--as", "bob"]).ok();
}

#[test]
fn work_is_assigned_to_one_agent() {
    on_both_stores(|home| {
        let repo = home.repo("api");
        for name in ["bob", "amy"] {
            home.toft(&repo, &["agent", "register", name]).ok();
        }
        let (_, tasks) = flow(home, &repo, &["a", "b", "c"]);
        home.toft(&repo, &["edit", &tasks[2], "--assignee", "bob"]).ok();
        let shown = data(home, &repo, &["show", &tasks[2]]);
        assert_eq!(shown["task"]["assigned_to"], "bob");
        assert!(home.toft(&repo, &["agent", "inbox", "--as", "bob"]).ok().contains(&tasks[2]));
        // Others neither see it as ready nor get it.
        assert_eq!(names(&data(home, &repo, &["ready", "--as", "amy"])), ["a", "b"]);
        let why = home.toft(&repo, &["ready", "--explain", "--as", "amy"]).ok();
        assert!(why.contains("assigned to bob"), "{why}");
        let claimed = data(home, &repo, &["claim", "--count", "9", "--as", "amy"]);
        assert_eq!(claimed.as_array().unwrap().len(), 2, "{claimed}");
        home.toft(&repo, &["claim", "--as", "amy"]).fails(6);
        let said = home.toft(&repo, &["claim", &tasks[2], "--as", "amy"]).fails(5);
        assert!(said.contains("assigned to bob"), "{said}");
        // Its agent gets it first; what it gives back is anybody's.
        flow(home, &repo, &["u"]);
        assert_eq!(data(home, &repo, &["claim", "--as", "bob"])["task"]["name"], "c");
        home.toft(&repo, &["finish", &tasks[2], "release", "--as", "bob"]).ok();
        assert_eq!(names(&data(home, &repo, &["ready", "--as", "amy"])), ["c", "u"]);
        // An agent that was removed keeps nothing.
        home.toft(&repo, &["edit", &tasks[2], "--assignee", "bob"]).ok();
        home.toft(&repo, &["agent", "remove", "bob"]).ok();
        assert_eq!(names(&data(home, &repo, &["ready", "--as", "amy"])), ["c", "u"]);
        home.toft(&repo, &["edit", &tasks[2], "--assignee", "bob"]).fails(5);
        home.toft(&repo, &["edit", &tasks[2], "--assignee", "nobody"]).fails(3);
        data(home, &repo, &["doctor"]);
    });
}

#[test]
fn an_issue_is_assigned_before_anybody_starts_it() {
    on_both_stores(|home| {
        let repo = home.repo("api");
        for name in ["bob", "amy"] {
            home.toft(&repo, &["agent", "register", name]).ok();
        }
        let first = add(home, &repo, &["First", "-p", "0"]);
        let second = add(home, &repo, &["Second", "-p", "3"]);
        home.toft(&repo, &["edit", &first, "--assignee", "bob", "--as", "amy"]).fails(4);
        home.toft(&repo, &["edit", &first, "--assignee", "bob"]).ok();
        assert_eq!(data(home, &repo, &["show", &first])["assignee"], "bob");
        assert_eq!(data(home, &repo, &["claim", "--as", "amy"])["issue"]["id"], second.as_str());
        home.toft(&repo, &["claim", "--as", "amy"]).fails(6);
        let said = home.toft(&repo, &["claim", &first, "--as", "amy"]).fails(5);
        assert!(said.contains("assigned to bob"), "{said}");
        home.toft(&repo, &["edit", &first, "--assignee", ""]).ok();
        let third = add(home, &repo, &["Third", "-p", "4"]);
        home.toft(&repo, &["edit", &third, "--assignee", "bob"]).ok();
        assert_eq!(data(home, &repo, &["claim", "--as", "bob"])["issue"]["id"], third.as_str(), "its own goes first");
        // A name that no agent here has keeps nobody from it.
        home.toft(&repo, &["claim", "--as", "amy"]).ok();
    });
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
    let settings = home.path().join("home/.config/toft");
    std::fs::create_dir_all(&settings).unwrap();
    std::fs::write(settings.join("config.toml"), "[sync]\nnames = \"agent\"\n").unwrap();
    home
}

#[test]
fn a_claim_in_a_store_that_two_clones_share_is_one_claim() {
    for names in ["author", "agent"] {
        let mut home = Home::new();
        home.use_store("global");
        let settings = home.path().join("home/.config/toft");
        std::fs::create_dir_all(&settings).unwrap();
        std::fs::write(settings.join("config.toml"), format!("[sync]\nnames = \"{names}\"\n")).unwrap();
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
            let status = home.toft(repo, &["status"]).ok();
            assert!(status.contains("claimed twice"), "{status}");
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
fn a_message_has_a_subject_an_answer_and_a_time_when_it_was_read() {
    on_both_stores(|home| {
        let repo = home.repo("api");
        for name in ["bob", "amy"] {
            home.toft(&repo, &["agent", "register", name]).ok();
        }
        let words = ["agent", "send", "bob", "which one?", "--subject", "The colour", "--as", "amy"];
        let sent = data(home, &repo, &words);
        assert_eq!(sent["subject"], "The colour");
        let id = sent["id"].as_str().unwrap();
        let peeked = data(home, &repo, &["agent", "inbox", "--peek", "--as", "bob"]);
        assert_eq!(peeked[0]["read_at"], Value::Null);
        assert!(home.toft(&repo, &["agent", "inbox", "--as", "bob"]).ok().contains("\"The colour\""));
        let read = data(home, &repo, &["agent", "inbox", "--all", "--as", "bob"]);
        assert!(read[0]["read_at"].as_str().is_some_and(|at| at.starts_with("20")), "{read}");
        let reply = data(home, &repo, &["agent", "send", "amy", "red", "--reply-to", id, "--as", "bob"]);
        assert_eq!((&reply["reply_to"], &reply["thread"]), (&json!(id), &json!(id)));
        assert_eq!(reply["subject"], "The colour");
        // To everyone but the sender, and to the person.
        let sent = data(home, &repo, &["agent", "send", "all", "the build is red", "--as", "amy"]);
        assert_eq!(sent["kind"], "broadcast");
        assert!(home.toft(&repo, &["agent", "inbox", "--as", "bob"]).ok().contains("the build is red"));
        assert!(home.toft(&repo, &["agent", "inbox", "--human"]).ok().contains("the build is red"));
        assert!(!home.toft(&repo, &["agent", "inbox", "--as", "amy"]).ok().contains("the build is red"));
        home.toft(&repo, &["agent", "register", "all"]).fails(2);
    });
}

#[test]
fn a_template_is_described_shown_and_removed() {
    on_both_stores(|home| {
        let repo = home.repo("api");
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
        let made = data(home, &repo, &["flow", "new", "--template", "fix", "--set", "what=it"]);
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
        assert_eq!(data(home, &repo, &["flow", "template", "list"]), json!([]));
        // Put again, it is a new version.
        let again = data(home, &repo, &["flow", "template", "put", file.to_str().unwrap()]);
        assert_eq!(again["version"], 2);
    });
}

#[test]
fn a_workflow_says_where_it_comes_from_and_a_task_where_it_is_done() {
    let home = Home::new();
    let repo = home.repo("api");
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

#[test]
fn a_status_that_does_not_exist_is_an_error_and_each_that_does_has_a_command() {
    let home = Home::new();
    let repo = home.repo("api");
    let id = add(&home, &repo, &["Mend it"]);
    let said = home.toft(&repo, &["list", "--status", "opne"]).fails(2);
    for word in ["opne", "open", "in_progress", "deferred", "closed"] {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(home.toft(&repo, &["list", "--status", "deferred", "-q"]).ok(), "");
    let status = |words: &[&str]| {
        home.toft(&repo, words).ok();
        data(&home, &repo, &["show", &id])["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(status(&["edit", &id, "--defer", "1h"]), "deferred");
    home.toft(&repo, &["claim"]).fails(6);
    assert_eq!(status(&["reopen", &id]), "open");
    assert_eq!(status(&["close", &id, "-m", "not needed"]), "closed");
    assert_eq!(data(&home, &repo, &["show", &id])["closed"]["reason"], "not needed");
    assert_eq!(status(&["reopen", &id]), "open");
}
