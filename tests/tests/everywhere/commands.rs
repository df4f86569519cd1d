//! The commands as an agent uses them: plans, templates, messages, JSON, guesses and mistakes.

use std::{fs, path::Path};

use serde_json::json;
use toft_stories::{Home, snapshot};

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_plan_runs_in_the_order_of_its_dependencies() {
    let home = Home::new();
    let repo = home.repo("api");
    let plans = [
        ("plan.toml", "title = \"p\"\n[[tasks]]\nname = \"a\"\n[[tasks]]\nname = \"b\"\nneeds = [\"a\"]\n"),
        ("plan.yaml", "title: p\ntasks:\n  - name: a\n  - name: b\n    needs: [a]\n"),
        ("plan.json", r#"{"title":"p","tasks":[{"name":"a"},{"name":"b","needs":["a"]}]}"#),
    ];
    for (name, text) in plans {
        home.toft(&repo, &["flow", "new", "--file", &write(home.path(), name, text)]).ok();
        for task in ["a", "b"] {
            let claim = home.toft(&repo, &["claim", "--json"]).data();
            assert_eq!(claim["task"]["name"], task, "{name}");
            assert_eq!((&claim["issue"], &claim["workspace"]), (&json!(null), &json!(null)));
            home.toft(&repo, &["claim"]).fails(6);
            home.toft(&repo, &["finish", "-m", "ok", "--no-change", "abc"]).ok();
        }
    }
    let done = home.toft(&repo, &["flow", "list", "--all", "--json=status"]).data();
    assert_eq!(done, json!([{ "status": "completed" }, { "status": "completed" }, { "status": "completed" }]));
    let typo = write(home.path(), "typo.toml", "title = \"p\"\ntaks = []\n");
    assert!(home.toft(&repo, &["flow", "new", "--file", &typo]).fails(2).contains("taks"));
    let cycle = write(
        home.path(),
        "c.json",
        r#"{"title":"p","tasks":[{"name":"a","needs":["b"]},{"name":"b","needs":["a"]}]}"#,
    );
    assert!(home.toft(&repo, &["flow", "new", "--file", &cycle]).fails(5).contains("a -> b"));
}

#[test]
fn explain_says_why_each_open_task_cannot_start() {
    let home = Home::new();
    let repo = home.repo("api");
    let plan = write(
        home.path(),
        "p.json",
        r#"{"title":"p","max_parallel":1,"tasks":[{"name":"a"},{"name":"b"},{"name":"c","needs":["a"]},{"name":"d","requires":["gpu"]}]}"#,
    );
    home.toft(&repo, &["flow", "new", "--file", &plan]).ok();
    home.toft(&repo, &["claim"]).ok();
    let said = home.toft(&repo, &["ready", "--explain"]).ok();
    assert!(said.contains("Nothing is ready."), "{said}");
    assert!(said.contains("b  its workflow has reached its limit (1 at a time)"), "{said}");
    assert!(said.contains("needs tk_") && said.contains("(leased)"), "{said}");
    let d = home.toft(&repo, &["list", "--search", "d", "-q"]).ok();
    home.toft(&repo, &["finish", "--no-change", "x"]).ok();
    assert!(home.toft(&repo, &["claim", d.trim()]).fails(5).contains("needs an agent that can gpu"));
    home.toft(&repo, &["agent", "register", "gina", "--can", "gpu"]).ok();
    home.toft(&repo, &["claim", d.trim(), "--as", "gina"]).ok();
}

#[test]
fn a_template_is_filled_versioned_and_extended() {
    let home = Home::new();
    let repo = home.repo("api");
    let base = "name = \"fix\"\ntitle = \"Fix {{what}}\"\n[variables.what]\n[[tasks]]\nname = \"mend\"\nbrief = \"Mend {{what}}.\"\n";
    home.toft(&repo, &["flow", "template", "put", &write(home.path(), "fix.toml", base)]).ok();
    assert!(home.toft(&repo, &["flow", "new", "--template", "fix"]).fails(2).contains("what"));
    assert!(home.toft(&repo, &["flow", "new", "--template", "fix", "--set", "wat=x"]).fails(2).contains("wat"));
    let made = home.toft(&repo, &["flow", "new", "--template", "fix", "--set", "what=login", "--json"]).data();
    assert_eq!(made["workflow"]["title"], "Fix login");
    assert_eq!(made["tasks"][0]["brief"], "Mend login.");
    assert_eq!(made["workflow"]["template"], "fix@1");
    assert!(
        home.toft(&repo, &["flow", "template", "put", &write(home.path(), "fix.toml", base)]).ok().contains("fix@1")
    );
    let deep = "name = \"deep\"\nextends = \"fix\"\ntitle = \"Fix {{what}} well\"\n[[tasks]]\nname = \"review\"\nneeds = [\"mend\"]\n";
    home.toft(&repo, &["flow", "template", "put", &write(home.path(), "deep.toml", deep)]).ok();
    let made = home.toft(&repo, &["flow", "new", "--template", "deep", "--set", "what=it", "--json"]).data();
    assert_eq!(made["tasks"].as_array().unwrap().len(), 2);
}

#[test]
fn a_workflow_is_held_started_paused_replanned_and_abandoned() {
    let home = Home::new();
    let repo = home.repo("api");
    let wf = home.toft(&repo, &["flow", "new", "p", "--task", "a", "--task", "b", "--hold", "-q"]).ok();
    let wf = wf.trim();
    home.toft(&repo, &["claim"]).fails(6);
    home.toft(&repo, &["flow", "resume", wf]).ok();
    home.toft(&repo, &["flow", "resume", &wf[..7]]).ok();
    home.toft(&repo, &["claim", wf]).ok();
    home.toft(&repo, &["flow", "pause", wf, "-m", "wait"]).ok();
    home.toft(&repo, &["claim"]).fails(6);
    home.toft(&repo, &["save", "-m", "held work goes on"]).ok();
    home.toft(&repo, &["flow", "resume", wf]).ok();
    home.toft(&repo, &["flow", "edit", wf, "--add", "c", "--needs", "b"]).ok();
    let plan = write(home.path(), "new.json", r#"{"title":"x","tasks":[{"name":"a"},{"name":"d"}]}"#);
    let replan = home.toft(&repo, &["flow", "edit", wf, "--file", &plan, "--json"]).data();
    assert_eq!(replan["kept"], json!(["a"]));
    assert_eq!(replan["added"], json!(["d"]));
    assert_eq!(replan["skipped"], json!(["b", "c"]));
    home.toft(&repo, &["flow", "abandon", wf, "-m", "no longer wanted"]).ok();
    assert!(home.toft(&repo, &["save", "-m", "late"]).fails(5).contains("has ended"));
    home.toft(&repo, &["flow", "resume", wf]).fails(5);
    let open = home.toft(&repo, &["flow", "new", "to plan", "--hold", "--json"]).data();
    assert_eq!(open["workflow"]["status"], "planning");
}

#[test]
fn step_values_make_any_workflow_resumable() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "steps"]).ok();
    home.toft(&repo, &["claim"]).ok();
    let put = ["save", "--key", "step-1", "--value", r#"{"rows":12}"#, "--json"];
    assert_eq!(home.toft(&repo, &put).data()["changed"], true);
    let before = home.toft(&repo, &["history", "--json"]).data();
    assert_eq!(home.toft(&repo, &put).data()["changed"], false);
    assert_eq!(home.toft(&repo, &["history", "--json"]).data(), before);
    assert_eq!(home.toft(&repo, &["show", "--state", "step-1"]).ok(), "{\"rows\":12}\n");
    home.toft(&repo, &["show", "--state", "step-2"]).fails(3);
    let large = format!("[{}]", vec!["\"some words to fill the row\""; 2_000].join(","));
    home.toft(&repo, &["save", "-m", "large", "--detail", &large]).ok();
    let shown = home.toft(&repo, &["show", "--json"]).data();
    assert_eq!(shown["checkpoints"][0]["detail"].as_array().unwrap().len(), 2_000);
    let task = shown["task"]["id"].as_str().unwrap().to_owned();
    home.toft(&repo, &["finish", "handoff", "-m", "the rest is easy"]).ok();
    let claim = home.toft(&repo, &["claim", "--as", "next", "--json"]).data();
    assert_eq!((&claim["task"]["id"], &claim["resume"]["summary"]), (&json!(task), &json!("the rest is easy")));
}

#[test]
fn the_same_operation_twice_answers_the_same_and_happens_once() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "two", "--task", "a", "--task", "b"]).ok();
    let once = home.toft(&repo, &["claim", "--op", "op_mine", "--json"]).data();
    let twice = home.toft(&repo, &["claim", "--op", "op_mine", "--json"]).data();
    assert_eq!(once, twice);
    assert_eq!(home.toft(&repo, &["ready", "--json"]).data().as_array().unwrap().len(), 1);
    home.toft(&repo, &["save", "--op", "op_mine"]).fails(5);
}

#[test]
fn messages_reach_agents_holders_and_people() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "talk"]).ok();
    let task = home.toft(&repo, &["claim", "--as", "blue", "-q"]).ok();
    home.toft(&repo, &["agent", "send", "blue", "low", "-p", "4", "--as", "ana"]).ok();
    home.toft(&repo, &["agent", "send", task.trim(), "to the holder", "-p", "0", "--as", "ana"]).ok();
    home.toft(&repo, &["agent", "send", "nobody", "x"]).fails(3);
    let inbox = home.toft(&repo, &["agent", "inbox", "--as", "blue", "--json"]).data();
    let bodies: Vec<_> = inbox.as_array().unwrap().iter().map(|letter| letter["body"].as_str().unwrap()).collect();
    assert_eq!(bodies, ["to the holder", "low"]);
    assert!(home.toft(&repo, &["agent", "inbox", "--as", "blue"]).ok().contains("No new messages"));
    home.toft(&repo, &["agent", "send", "human", "look at this", "--as", "blue"]).ok();
    assert!(home.toft(&repo, &["status"]).ok().contains("look at this"));
    home.toft(&repo, &["agent", "inbox", "--human"]).ok();
    assert!(!home.toft(&repo, &["status"]).ok().contains("look at this"));
    home.toft(&repo, &["pause", "blue"]).ok();
    home.toft(&repo, &["claim", "--as", "blue"]).fails(4);
    home.toft(&repo, &["resume", "blue"]).ok();
}

#[test]
fn issues_are_changed_closed_and_found_as_people_type_it() {
    let home = Home::new();
    let repo = home.repo("api");
    let add = |args: &[&str]| home.toft(&repo, &[&["add", "-q"], args].concat()).ok().trim().to_owned();
    let slow = add(&["Login is slow", "-t", "bug", "-p", "P1"]);
    let guide = add(&["Write the guide", "--due", "2030-01-02"]);
    let part = add(&["A part of it", "--parent", &guide, "--needs", &slow]);
    let ids = |args: &[&str]| home.toft(&repo, &[&["list", "-q"], args].concat()).ok().trim().replace('\n', " ");
    assert_eq!(ids(&["--type", "bug"]), slow);
    assert_eq!(ids(&["-p", "P1"]), slow);
    assert_eq!(ids(&["--parent", &guide]), part);
    assert!(ids(&["--blocked"]).contains(&part) && !ids(&["--blocked"]).contains(&slow));
    home.toft(&repo, &["edit", &part, &guide, "-p", "p0", "-l", "docs"]).ok();
    assert_eq!(ids(&["--sort", "priority"]), [&*part, &guide, &slow].join(" "));
    home.toft(&repo, &["agent", "register", "ann"]).ok();
    home.toft(&repo, &["edit", &slow, "--assignee", "ann"]).ok();
    assert_eq!(ids(&["--assignee", "ann"]), slow);
    assert!(home.toft(&repo, &["show", &guide, "--json"]).data()["due"].as_str().unwrap().starts_with("2030"));
    // Nothing is changed if one of them is not there.
    home.toft(&repo, &["close", &guide, "tf-0000000000000000", "-m", "x"]).fails(3);
    assert!(ids(&[]).contains(&guide));
    // An issue that nobody took has no task to finish; closing it is another command.
    let said = home.toft(&repo, &["done", &slow]).fails(2);
    assert!(said.contains(&format!("toft close {slow}")), "{said}");
    home.toft(&repo, &["claim", &slow, "--as", "ann"]).ok();
    let said = home.toft(&repo, &["close", &slow, "-m", "no"]).fails(5);
    assert!(said.contains("held by ann"), "{said}");
    // What was changed before another one refused is said, and that one beside it.
    let said = home.toft(&repo, &["close", &part, &slow, "-m", "no", "--json"]);
    assert!(said.code == 0 && said.out.contains("was not changed") && said.out.contains(&*part), "{said:?}");
    home.toft(&repo, &["reopen", &part]).ok();
    home.toft(&repo, &["finish", &slow, "--as", "ann", "--no-change", "it is fast"]).ok();
    home.toft(&repo, &["close", &part, &guide, "-m", "not needed"]).ok();
    assert!(ids(&[]).is_empty());
    // What hangs together is drawn whole, closed as it is, however many issues are newer.
    (0..4).for_each(|n| drop(add(&[&format!("newer {n}")])));
    let drawn = home.toft(&repo, &["graph", &slow, "--limit", "3", "--dot"]).ok();
    assert!([&slow, &part, &guide].iter().all(|id| drawn.contains(id.as_str())), "{drawn}");
    assert!(home.toft(&repo, &["show", &guide]).ok().contains("due 2030"));
    assert!(home.toft(&repo, &["history", &part]).ok().lines().any(|line| line.contains("issue.added")));
    assert!(home.toft(&repo, &["list", "-p", "P9"]).fails(2).contains("toft list --help"));
    for (typo, meant) in [("stauts", "status"), ("redy", "ready"), ("merge", "toft land"), ("stats", "toft status")] {
        let said = home.toft(&repo, &[typo]).fails(2);
        assert!(said.contains(meant), "{said}");
    }
}

#[test]
fn what_agents_guess_works_and_mistakes_are_one_line_with_the_remedy() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["new", "guess"]).ok();
    home.toft(&repo, &["next"]).ok();
    home.toft(&repo, &["save", "-m", "n"]).ok();
    home.toft(&repo, &["show", "@"]).ok();
    home.toft(&repo, &["done", "-m", "d", "--no-change", "e"]).ok();
    home.toft(&repo, &["ls"]).ok();
    for (args, remedy) in [
        (&["clam"][..], "claim"),
        (&["ready", "--limt", "3"], "--limit"),
        (&["flow", "show"], "<ID>"),
        (&["claim", "--ttl", "soon"], "30m"),
        (&["finish", "x", "maybe"], "done, failed, release, handoff or waiting"),
        (&["save", "--kind", "poem", "-m", "x"], "progress"),
    ] {
        let error = home.toft(&repo, args).fails(2);
        assert!(error.contains(remedy) && error.lines().count() <= 2, "{args:?}: {error}");
    }
    let error = home.toft(&repo, &["claim", "--json"]);
    assert_eq!(error.code, 6);
    let error: serde_json::Value = serde_json::from_str(&error.out).unwrap();
    assert_eq!(error["error"]["code"], "nothing_ready");
    assert_eq!(error["error"]["retryable"], false);
    let help = home.toft(&repo, &["--help"]).ok();
    assert!(help.contains("toft try") && help.contains("toft help issues|"), "{help}");
    for (topic, command) in [("issues", "ready"), ("agents", "answer"), ("admin", "doctor")] {
        let said = home.toft(&repo, &["help", topic]).ok();
        assert!(said.contains(&format!("\n  {command} ")), "{said}");
    }
    assert!(home.toft(&repo, &["help", "claim"]).ok().contains("Examples:"));
}

#[test]
fn a_log_can_be_followed_and_read_from_a_cursor() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "one"]).ok();
    let mut follower = home.command(&repo, toft_stories::toft_bin(), &["history", "--follow", "--timeout", "2s", "-q"]);
    let follower = follower.stdout(std::process::Stdio::piped()).spawn().unwrap();
    home.toft(&repo, &["claim"]).ok();
    let output = follower.wait_with_output().unwrap();
    // The first event of a server is that of its token.
    let first = 1 + u64::from(home.asks_a_server());
    let numbers: Vec<String> = (first..first + 4).map(|number| number.to_string()).collect();
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().collect::<Vec<_>>(), numbers);
    let rest = home.toft(&repo, &["history", "--after", &numbers[2], "--json"]).data();
    assert_eq!(rest[0]["verb"], "claim");
}

#[test]
fn a_backup_is_a_whole_store() {
    let home = Home::new();
    if home.on_server() {
        return; // A server is copied with its own means.
    }
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "kept"]).ok();
    let copy = home.path().join("copy.db");
    home.toft(&repo, &["backup", copy.to_str().unwrap()]).ok();
    home.toft(&repo, &["backup", copy.to_str().unwrap()]).fails(2);
    let ready = home.toft(&repo, &["ready", "--store", copy.to_str().unwrap(), "--json"]).data();
    assert_eq!(ready[0]["name"], "kept");
}

#[test]
fn working_leaves_the_users_repository_as_it_was() {
    let home = Home::new();
    let repo = home.git("api");
    fs::write(repo.join("staged.txt"), "staged").unwrap();
    home.run(&repo, "git", &["add", "staged.txt"]);
    fs::write(repo.join("untracked.txt"), "untracked").unwrap();
    let users = || {
        let mut files = snapshot(&repo);
        files.retain(|path, _| !path.starts_with(repo.join(".git/toft")));
        files
    };
    let before = users();
    home.toft(&repo, &["init"]).ok();
    home.toft(&repo, &["flow", "new", "x"]).ok();
    home.toft(&repo, &["claim"]).ok();
    home.toft(&repo, &["save", "-m", "y"]).ok();
    home.toft(&repo, &["finish", "--no-change", "it is a look"]).ok();
    home.toft(&repo, &["doctor"]).ok();
    assert_eq!(users(), before);
}

#[test]
fn hostile_text_never_reaches_a_terminal_raw() {
    let home = Home::new();
    let repo = home.repo("api");
    let evil = "boo\u{1b}[2J\u{1b}]0;owned\u{7}\u{202e}txt";
    home.toft(&repo, &["flow", "new", evil, "-d", evil]).ok();
    home.toft(&repo, &["claim"]).ok();
    home.toft(&repo, &["save", "-m", evil]).ok();
    home.toft(&repo, &["agent", "send", "human", evil]).ok();
    for args in [
        &["ready"][..],
        &["status"],
        &["show"],
        &["list"],
        &["history"],
        &["flow", "list"],
        &["agent", "inbox", "--human"],
    ] {
        let said = home.toft(&repo, args).ok();
        assert!(
            !said.contains('\u{1b}') && !said.contains('\u{7}') && !said.contains('\u{202e}'),
            "{args:?}: {said:?}"
        );
    }
}

#[test]
fn no_hint_is_a_destructive_command() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "one", "--task", "a", "--task", "b"]).ok();
    home.toft(&repo, &["claim"]).ok();
    let mut said = String::new();
    for args in [
        &["claim", "nope"][..],
        &["claim", "@"],
        &["finish"],
        &["finish", "--as", "other"],
        &["show", "tk_"],
        &["flow", "resume", "wf_zzz"],
        &["save", "--fence", "9.ls_x", "-m", "x"],
        &["answer", "gt_x", "y"],
        &["ready", "--store", "/nowhere/x.db"],
        &["ready", "--store", "https://x"],
        &["backup", "/dev/null"],
    ] {
        let answer = home.toft(&repo, args);
        assert_ne!(answer.code, 0, "{args:?}");
        said += &answer.err;
    }
    for word in ["abandon", "rm ", "delete", "--force", "reset", "clean", "skip", "remove", "drop"] {
        assert!(!said.contains(word), "a hint says `{word}`: {said}");
    }
}

#[test]
fn old_history_is_forgotten_when_asked_and_numbers_go_on() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["flow", "new", "only"]).ok();
    home.toft(&repo, &["claim"]).ok();
    home.toft(&repo, &["finish", "--no-change", "x"]).ok();
    if home.asks_a_server() {
        // It forgets by itself.
        let said = home.toft(&repo, &["gc", "--data"]);
        assert!(said.code == 0 && said.out.contains("forgets old history itself"), "{said:?}");
        return;
    }
    assert!(home.toft(&repo, &["gc"]).ok().contains("Nothing is old enough"));
    assert!(home.toft(&repo, &["gc", "--data"]).ok().contains("Nothing is old enough"));
    let before = home.toft(&repo, &["history", "--json"]).data().as_array().unwrap().len();
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let gone = home.toft(&repo, &["gc", "--data", "--older-than", "1s", "--json"]).data();
    assert_eq!(gone["events"], before - 1);
    assert_eq!(gone["attempts"], 1);
    let log = home.toft(&repo, &["history", "--json"]).data();
    let seqs: Vec<_> = log.as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [before as u64, before as u64 + 1]);
    assert_eq!(log[1]["verb"], "data.forgotten");
    home.toft(&repo, &["doctor"]).ok();
}

/// Text shows an issue's shortest unique prefix wherever its id is printed, every command takes it, and JSON has the whole.
#[test]
fn text_shows_short_ids_that_every_command_takes() {
    let mut home = Home::new();
    home.show_short_ids();
    let repo = home.repo("api");
    let whole = home.toft(&repo, &["add", "Fix it", "-q"]).ok().trim().to_owned();
    let other = home.toft(&repo, &["add", "Fix more", "--needs", &whole, "-q"]).ok().trim().to_owned();
    let list = home.toft(&repo, &["list"]).ok();
    let short = list.lines().find(|line| line.contains("Fix it")).unwrap().split_whitespace().next().unwrap();
    assert!(whole.starts_with(short) && (7..12).contains(&short.len()), "{list}");
    for (words, with_brief) in [
        (vec!["ready"], false),
        (vec!["show", short], true),
        (vec!["claim", short], false),
        (vec!["status"], true),
        (vec!["save", short, "-m", "half"], false),
        (vec!["show", short, "--context"], false),
        (vec!["prime"], true),
        (vec!["finish", "failed", short, "-m", "no"], false),
        (vec!["flow", "show", short], false),
        (vec!["history", short], false),
        (vec!["ws", "create", short], false),
        (vec!["edit", short, "-p", "P1"], false),
    ] {
        let out = home.toft(&repo, &words).ok();
        let apart = out.split(|c: char| c.is_whitespace() || "`(),:\"".contains(c));
        assert!(apart.into_iter().all(|word| word != whole && word != other), "{words:?}: {out}");
        assert!(!with_brief || out.contains(short), "{words:?}: {out}");
    }
    let refused = home.toft(&repo, &["claim", &other]).fails(5);
    assert!(!refused.contains(&whole) && refused.contains(short), "{refused}");
    assert!(home.toft(&repo, &["list", "--json"]).ok().contains(&whole));
    assert_eq!(home.toft(&repo, &["list", "-q"]).ok().lines().filter(|id| *id == whole).count(), 1);
}

/// An issue with one task has one id: its own.
#[test]
fn an_issue_is_called_by_one_id() {
    let mut home = Home::new();
    home.show_short_ids();
    let repo = home.repo("api");
    let id = home.toft(&repo, &["add", "Fix it", "-q"]).ok();
    for words in [
        vec!["claim"],
        vec!["status"],
        vec!["finish", "waiting", "-m", "which one?"],
        vec!["answer", id.trim(), "the first"],
        vec!["claim"],
        vec!["finish", "-m", "done", "--no-change", "nothing to do"],
    ] {
        let out = home.toft(&repo, &words).ok();
        assert!(out.contains(&id[..7]) || words[0] == "answer", "{words:?}: {out}");
        assert!(!out.contains("tk_") && !out.contains("wf_"), "{words:?}: {out}");
    }
}

/// `toft edit --editor` changes what was changed in the editor, and nothing else.
#[test]
fn an_editor_changes_title_and_description() {
    let mut home = Home::new();
    let repo = home.repo("api");
    let id = home.toft(&repo, &["add", "Fix it", "-d", "It is broken.", "-q"]).ok().trim().to_owned();
    let shown = |home: &Home| {
        let issue = home.toft(&repo, &["show", &id, "--json"]).data();
        (issue["title"].clone(), issue["body"].clone())
    };
    home.set("EDITOR", "sed -i -e s/broken/slow/");
    home.toft(&repo, &["edit", &id, "--editor"]).ok();
    assert_eq!(shown(&home), (json!("Fix it"), json!("It is slow.")));
    home.set("VISUAL", "sed -i -e 1s/it/login/");
    home.toft(&repo, &["edit", &id, "-e", "-p", "P0"]).ok();
    assert_eq!(shown(&home), (json!("Fix login"), json!("It is slow.")));
    home.set("VISUAL", "true");
    assert!(home.toft(&repo, &["edit", &id, "-e"]).fails(1).contains("nothing was changed"));
    home.set("VISUAL", "false");
    assert!(home.toft(&repo, &["edit", &id, "-e"]).fails(1).contains("ended with"));
    // What was typed is never lost: the issue was changed meanwhile, or the editor failed.
    home.toft_on_path();
    for editor in [
        format!("sh -c 'toft edit {id} -p 3 -d meanwhile -q; echo mine >> \"$0\"'"),
        "sh -c 'echo mine >> \"$0\"; false'".into(),
    ] {
        home.set("VISUAL", &editor);
        let refused = home.toft(&repo, &["edit", &id, "-e"]).fails(1);
        let path = refused.split("what you wrote is in ").nth(1).unwrap().trim();
        assert!(fs::read_to_string(path).unwrap().contains("mine"), "{refused}");
        fs::remove_dir_all(Path::new(path).parent().unwrap()).unwrap();
    }
    home.toft(&repo, &["edit", &id, "-d", "It is slow."]).ok();
    // Without an editor and a terminal nothing is started.
    home.set("VISUAL", "");
    home.set("EDITOR", "");
    assert!(home.toft(&repo, &["edit", &id, "-e"]).fails(2).contains("EDITOR"));
    // Without a terminal an editor is opened only if that was asked for.
    home.toft(&repo, &["edit", &id]).fails(2);
    assert_eq!(shown(&home), (json!("Fix login"), json!("It is slow.")));
}

/// An issue whose task waits or rests is not ready in any list.
#[test]
fn an_issue_that_was_started_is_not_listed_as_ready() {
    let home = Home::new();
    let repo = home.repo("api");
    home.toft(&repo, &["add", "Fix it"]).ok();
    assert!(home.toft(&repo, &["list"]).ok().contains("ready"));
    for end in [["waiting", "-m", "which one?"], ["failed", "-m", "no"]] {
        home.toft(&repo, &["claim"]).ok();
        home.toft(&repo, &[["finish"].as_slice(), &end].concat()).ok();
        let listed = home.toft(&repo, &["list"]).ok();
        assert!(listed.contains("started") && !listed.contains("ready"), "{listed}");
        assert!(home.toft(&repo, &["graph"]).ok().contains("in progress"));
        assert!(home.toft(&repo, &["ready"]).ok().contains("Nothing is ready"));
        let id = home.toft(&repo, &["list", "-q"]).ok();
        if end[0] == "waiting" {
            home.toft(&repo, &["answer", id.trim(), "that one"]).ok();
        }
    }
}
