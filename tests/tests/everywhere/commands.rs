//! The commands as an agent uses them: plans, templates, messages, JSON, guesses and mistakes.

use toft_stories::prelude::*;

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn a_plan_runs_in_the_order_of_its_dependencies() {
    let (home, repo) = Home::with_repository("api");
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
}

#[test]
fn issues_are_changed_closed_and_found_as_people_type_it() {
    let (home, repo) = Home::with_repository("api");
    let add = |args: &[&str]| home.toft(&repo, &[&["add", "-q"], args].concat()).ok().trim().to_owned();
    let slow = add(&["Login is slow", "-t", "bug", "-p", "P1"]);
    let guide = add(&["Write the guide", "--due", "2030-01-02"]);
    let part = add(&["A part of it", "--parent", &guide, "--needs", &slow]);
    let ids = |args: &[&str]| home.toft(&repo, &[&["list", "-q"], args].concat()).ok().trim().replace('\n', " ");
    home.toft(&repo, &["edit", &part, &guide, "-p", "p0", "-l", "docs"]).ok();
    assert_eq!(ids(&["--sort", "priority"]), [&*part, &guide, &slow].join(" "));
    home.toft(&repo, &["agent", "register", "ann"]).ok();
    home.toft(&repo, &["edit", &slow, "--assignee", "ann"]).ok();
    assert_eq!(ids(&["--assignee", "ann"]), slow);
    assert_eq!((ids(&["--type", "bug"]), ids(&["--search", "guide"])), (slow.clone(), guide.clone()));
    assert!(ids(&["--blocked"]).contains(&part) && !ids(&["--blocked"]).contains(&slow));
    home.toft(&repo, &["list", "--limit", "2"]).says("2 of 3 shown");
    home.toft(&repo, &["list", "--type", "bugg"]).refuses_all(2, &["is not known", "use task, bug, feature, epic"]);
    assert!(home.toft(&repo, &["show", &guide, "--json"]).data()["due"].as_str().unwrap().starts_with("2030"));
    // Nothing is changed if one of them is not there.
    home.toft(&repo, &["close", &guide, "tf-0000000000000000", "-m", "x"]).fails(3);
    assert!(ids(&[]).contains(&guide));
    // An issue that nobody took has no task to finish; closing it is another command.
    home.toft(&repo, &["done", &slow]).refuses(2, format!("toft close {slow}"));
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
    let drawn = home.toft(&repo, &["list", "--graph=dot", &slow, "--limit", "3"]).ok();
    assert!([&slow, &part, &guide].iter().all(|id| drawn.contains(id.as_str())), "{drawn}");
    assert!(home.toft(&repo, &["show", &guide]).ok().contains("due 2030"));
    assert!(home.toft(&repo, &["history", &part]).ok().lines().any(|line| line.contains("issue.added")));
    assert!(home.toft(&repo, &["list", "-p", "P9"]).fails(2).contains("toft list --help"));
}

#[test]
fn what_agents_guess_works_and_mistakes_are_one_line_with_the_remedy() {
    let (home, repo) = Home::with_repository("api");
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
        home.toft(&repo, &["help", topic]).says(format!("\n  {command} "));
    }
    assert!(home.toft(&repo, &["help", "claim"]).ok().contains("Examples:"));
}

#[test]
fn a_log_can_be_followed_and_read_from_a_cursor() {
    let (home, repo) = Home::with_repository("api");
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
fn no_hint_is_a_destructive_command() {
    let (home, repo) = Home::with_repository("api");
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
    let (mut home, repo) = Home::with_repository("api");
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
