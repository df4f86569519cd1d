//! What agents are given, what they say, and what counts as done.
#![cfg(target_os = "linux")]

use toft_stories::agents::branch_of;
use toft_stories::prelude::*;

#[test]
fn what_is_done_must_be_shown() {
    let (home, repo) = started(&["Mend it"]);
    let run = |script: &str| home.toft(&repo, &["run", "--once", "--", "sh", "-c", script]);
    let failed = run("echo tried; exit 0").ok();
    assert!(failed.contains("ended without a commit, and without a reason"), "{failed}");
    let failed = run("echo x > new; echo more >> new").ok();
    assert!(failed.contains("1 changed file that is not committed"), "{failed}");
    let parked = run("echo going wrong >&2; exit 7");
    assert!(
        parked.out.contains("exited with 7: going wrong") && parked.out.contains("gave up after 3 attempts"),
        "{parked:?}"
    );
    assert_eq!(parked.code, 1);
    let status = home.toft(&repo, &["status"]).ok();
    assert!(status.contains("going wrong") && status.contains("toft retry"), "{status}");
    let again = home.toft(&repo, &["run", "--until-idle", "--", "false"]).ok();
    assert!(again.contains("No tasks ran"), "what failed for good is taken by nobody unasked: {again}");
    let needs = data(&home, &repo, &["status"]);
    let task = needs["needs_you"][0]["task"].as_str().unwrap().to_owned();
    home.toft(&repo, &["retry", &task]).ok();
    let done = run(r#"git add -A && git commit -qm "mend it" && echo mended"#).ok();
    assert!(done.contains("done") && done.contains("mended"), "{done}");
    let closed = issue(&home, &repo);
    let workspace = home.toft(&repo, &["ws", "path", closed["id"].as_str().unwrap()]).ok();
    let head = home.run(Path::new(workspace.trim()), "git", &["rev-parse", "HEAD"]);
    assert_eq!(closed["closed"]["outcome"]["evidence"]["commit"], head.trim(), "{closed}");
}

#[test]
fn an_agent_may_say_itself_how_it_went() {
    let (home, repo) = started(&["One"]);
    let run = |script: &str| home.toft(&repo, &["run", "--once", "--", "sh", "-c", script]).ok();
    let asks = run(r#"echo '{"outcome":"waiting","message":"which colour?"}' > "$TOFT_REPORT""#);
    assert!(asks.contains("waiting") && asks.contains("which colour?"), "{asks}");
    let gate = data(&home, &repo, &["status"])["needs_you"][0]["gate"].as_str().unwrap().to_owned();
    home.toft(&repo, &["answer", &gate, "blue"]).ok();
    let brief = home.path().join("brief");
    let script = format!(
        r#"cp "$TOFT_BRIEF" {}; cat > {0}.stdin
        echo '{{"no_change":"it is blue already","cost":0.25,"usage":{{"input_tokens":12,"output_tokens":3}}}}' > "$TOFT_REPORT""#,
        brief.display()
    );
    let done = run(&script);
    assert!(done.contains("done"), "{done}");
    let text = fs::read_to_string(&brief).unwrap();
    assert_eq!(text, fs::read_to_string(home.path().join("brief.stdin")).unwrap());
    assert!(text.contains("which colour?") && text.contains("blue"), "{text}");
    let id = issue(&home, &repo)["id"].as_str().unwrap().to_owned();
    home.toft(&repo, &["show", &id, "--log"]).says("exited with 0");
    let task = data(&home, &repo, &["list", "tasks", "--all"])[0]["id"].as_str().unwrap().to_owned();
    let attempts = data(&home, &repo, &["show", &task])["attempts"].clone();
    let last = attempts.as_array().unwrap().last().unwrap();
    assert_eq!((&last["cost"], &last["report"]["usage"]["input_tokens"]), (&0.25.into(), &12.into()), "{last}");
    assert_eq!(last["report"]["ending"], serde_json::json!({ "exited": 0 }), "{last}");
}

#[test]
fn what_is_said_is_kept_with_its_time_and_without_secrets() {
    let (mut home, repo) = started(&["One"]);
    home.set("MY_API_TOKEN", "hunter2-hunter2");
    let script = "echo my token is $MY_API_TOKEN; printf 'no end of line'; exit 1";
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", script]).ok();
    let id = issue(&home, &repo)["id"].as_str().unwrap().to_owned();
    let log = home.toft(&repo, &["show", &id, "--log", "--raw"]).ok();
    assert!(log.contains("out my token is [masked]") && log.contains("out no end of line"), "{log}");
    assert!(log.lines().all(|line| line.starts_with("20") && line.contains("Z ")), "{log}");
    home.toft(&repo, &["gc", "--data", "--older-than", "0s"]).ok();
    assert!(
        home.toft(&repo, &["show", &id, "--log"]).ok().contains("my token"),
        "of an open task nothing is forgotten"
    );
    let everywhere = toft_stories::snapshot(&repo.join(".git/toft/attempts"));
    assert!(!everywhere.is_empty());
    assert!(everywhere.values().all(|text| !String::from_utf8_lossy(text).contains("hunter2-hunter2")));
}

#[test]
fn a_command_that_cannot_be_started_costs_the_task_nothing() {
    let (home, repo) = started(&["One"]);
    home.toft(&repo, &["run", "--until-idle", "--", "no-such-agent"])
        .refuses(2, "program `no-such-agent` was not found");
    for missing in ["./missing", "/no/such/agent"] {
        home.toft(&repo, &["run", "--until-idle", "--", missing])
            .refuses(2, format!("program `{missing}` was not found"));
    }
    // It is there, and cannot be started.
    fs::write(repo.join("text"), "no program\n").unwrap();
    let said = home.toft(&repo, &["run", "--until-idle", "--", "./text"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("could not start"), "{said:?}");
    let ready = data(&home, &repo, &["ready"]);
    assert_eq!(ready.as_array().unwrap().len(), 1, "{ready}");
    assert_eq!(ready[0]["attempt"], 0, "{ready}");
    home.toft(&repo, &["run"]).refuses(2, "--agent claude");
    agents::script(&home, "beside", "#!/bin/sh\ngit commit -q --allow-empty -m beside\n");
    let said = home.toft(&repo, &["run", "--once", "--", "../beside"]).ok();
    assert!(said.contains("done"), "a program is named from where it is typed: {said}");
    home.toft(&repo, &["run", "--agent", "hal"]).refuses(2, "claude, codex, gemini, cursor, opencode");
}

#[test]
fn a_recipe_of_ones_own_replaces_the_built_in_one() {
    let (home, repo) = started(&["One"]);
    let own = "[run.agents.claude]\ncommand = [\"sh\", \"-c\", \"git commit -q --allow-empty -m own; echo '{\\\"result\\\":\\\"my own words\\\",\\\"total_cost_usd\\\":0.5}'\"]\n";
    home.configure(own);
    home.toft(&repo, &["run", "--agent", "claude", "--once"]).says("my own words");
    let tree = repo.join(".toft");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("config.toml"), "[run.agents.evil]\ncommand = [\"touch\", \"/tmp/evil\"]\n").unwrap();
    home.toft(&repo, &["run", "--agent", "evil"]).refuses(2, "only the user's own configuration");
}

#[test]
fn behind_a_fence_work_goes_on_and_everything_else_can_only_be_read() {
    for without_bubblewrap in [false, true] {
        let (mut home, repo) = started(&["Fenced"]);
        let passing = home.path().join("passing");
        fs::create_dir(&passing).unwrap();
        home.set("TMPDIR", passing.to_str().unwrap());
        if without_bubblewrap {
            // The first on the path that says no.
            agents::script(&home, "bin/bwrap", "#!/bin/sh\nexit 1\n");
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let script = format!(
            r#"set -e
            toft add "Found more" -q > "$TMPDIR/found"
            toft save -m "half"
            ! touch "$HOME/evil" 2>/dev/null
            ! touch {repo}/evil 2>/dev/null
            ! touch {repo}/.git/hooks/evil 2>/dev/null
            ! sh -c 'echo evil >> {repo}/.git/config' 2>/dev/null
            ! bash -c ': > /dev/tcp/127.0.0.1/{port}' 2>/dev/null
            echo kept out
            echo x > file; git add file; git commit -qm fenced
            toft claim "$(cat "$TMPDIR/found")" > /dev/null 2>&1 && exit 3
            toft finish -m "all of it" --evidence HEAD
            echo over"#,
            repo = repo.display()
        );
        let before = toft_stories::snapshot(&repo.join(".git/hooks"));
        if without_bubblewrap {
            // Nothing takes its place unasked.
            home.toft(&repo, &["run", "--once", "--sandbox", "--", "true"]).fails(4);
        }
        let (kind, option) = match without_bubblewrap {
            true => ("Landlock", "--sandbox=landlock"),
            false => ("bubblewrap", "--sandbox=files"),
        };
        let said = home.toft(&repo, &["run", "--once", option, "--offline", "--", "bash", "-c", &script]);
        if !said.out.contains(&format!("sandbox by {kind}")) {
            assert_eq!(said.code, 4, "what was asked for and cannot be had is refused: {said:?}");
            continue;
        }
        let ids = home.toft(&repo, &["list", "--all", "-q"]).ok();
        let log = home.toft(&repo, &["show", ids.lines().last().unwrap(), "--log", "--raw"]).ok();
        assert!(said.code == 0 && log.contains("kept out") && log.contains("out over"), "{said:?}\n{log}");
        let all = data(&home, &repo, &["list", "--all"]);
        let closed = all.as_array().unwrap().iter().filter(|row| row["status"] == "closed").count();
        assert_eq!((closed, all.as_array().unwrap().len()), (1, 2), "{all}");
        assert_eq!(before, toft_stories::snapshot(&repo.join(".git/hooks")));
        assert!(!home.path().join("home/evil").exists() && !repo.join("evil").exists());
        drop(listener);
    }
}

#[test]
fn an_attempts_fence_is_for_its_own_task() {
    let (home, repo) = started(&["Own", "Other"]);
    if home.asks_a_server() {
        return; // The token of an agent claims nothing else.
    }
    let script = r#"
        other=$(toft list -q | head -1); [ "$other" = "$TOFT_ISSUE" ] && other=$(toft list -q | tail -1)
        toft claim "$other" > /dev/null || exit 3
        toft finish --no-change "mine is done" > /dev/null || exit 4
        toft finish --no-change "not mine" 2>/dev/null && exit 5
        toft finish "$other" --no-change "named" > /dev/null || exit 6
        echo all of it"#;
    let said = home.toft(&repo, &["run", "--once", "--", "sh", "-c", script]).ok();
    assert!(said.contains("done"), "{said}");
    let all = data(&home, &repo, &["list", "--all"]);
    assert!(all.as_array().unwrap().iter().all(|row| row["status"] == "closed"), "{said} {all}");
}

#[test]
fn what_is_given_back_again_and_again_fails_and_asks_a_person() {
    for script in [
        r#"echo '{"outcome":"release"}' > "$TOFT_REPORT""#,
        "toft finish release",
        r#"echo '{"outcome":"handoff"}' > "$TOFT_REPORT""#,
    ] {
        let (home, repo) = started(&["Nobody wants it"]);
        let ended = home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", script]);
        let needs = data(&home, &repo, &["status"])["needs_you"].clone();
        assert!(needs[0]["text"].as_str().unwrap().contains("released 3 times"), "{script}: {ended:?} {needs}");
        assert_eq!(issue(&home, &repo)["status"], "open");
        home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", script]).says("No tasks ran");
    }
}

#[test]
fn an_agent_that_never_stops_talking_is_kept_within_bounds() {
    let (home, repo) = started(&["Talkative"]);
    let script =
        "yes 'the same line again and again and again' | head -c 60000000; git commit -q --allow-empty -m said";
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", script]).ok();
    let kept: usize = toft_stories::snapshot(&repo.join(".git/toft/attempts")).values().map(Vec::len).sum();
    assert!(kept < 10 << 20, "{kept} bytes");
    assert_eq!(issue(&home, &repo)["status"], "closed");
    let news = home.toft(&repo, &["run", "--until-idle", "--json", "--", "true"]).ok();
    for line in news.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["toft"], 1, "{line}");
    }
}

#[test]
fn work_starts_from_the_work_it_needs() {
    let (home, repo) = started(&[]);
    let rows = [("a", "[]"), ("b", r#"["a"]"#), ("c", r#"["a"]"#), ("d", r#"["b","c"]"#)];
    let lines: String = rows
        .iter()
        .map(|(name, needs)| format!("{{\"title\":\"Do {name}\",\"name\":\"{name}\",\"needs\":{needs}}}\n"))
        .collect();
    let file = home.path().join("plan.jsonl");
    fs::write(&file, lines).unwrap();
    home.run(&repo, "sh", &["-c", &format!("toft add - -q < {}", file.display())]);
    let script = r#"cp "$TOFT_BRIEF" "$HOME/brief-$TOFT_ISSUE"
        for other in $(sed -n 's/^Note: .*git merge \([0-9a-f]*\).*/\1/p' "$TOFT_BRIEF"); do git merge -q --no-edit $other; done
        echo x > "did-$TOFT_ISSUE"; git add -A; git commit -qm "$TOFT_ISSUE"; ls > /dev/null"#;
    home.toft(&repo, &["run", "--slots", "2", "--until-idle", "--", "sh", "-c", script]).ok();
    let all = data(&home, &repo, &["list", "--all"]);
    let last = all.as_array().unwrap().iter().find(|row| row["title"] == "Do d").unwrap();
    let branch = branch_of(&home, &repo, last["id"].as_str().unwrap());
    let files = home.run(&repo, "git", &["ls-tree", "--name-only", &branch]);
    assert_eq!(files.lines().filter(|name| name.starts_with("did-")).count(), 4, "{files}{all}");
    let main = home.run(&repo, "git", &["log", "--oneline", "main"]);
    assert_eq!(main.lines().count(), 1, "landing is the user's: {main}");
}

#[test]
fn what_an_agent_claims_besides_and_leaves_is_given_back() {
    let (home, repo) = started(&["Own", "Besides"]);
    let script = "toft claim > /dev/null; toft claim > /dev/null; git commit -q --allow-empty -m own";
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", script]).ok();
    assert!(data(&home, &repo, &["status"])["working"].as_array().unwrap().is_empty());
    assert_eq!(data(&home, &repo, &["ready"]).as_array().unwrap().len(), 1);
}

#[test]
fn only_work_that_was_done_here_counts() {
    let run = |script: &str| {
        let (home, repo) = started(&["Of its own"]);
        home.run(&repo, "git", &["commit", "-q", "--allow-empty", "-m", "second"]);
        home.run(&repo, "git", &["branch", "other"]);
        home.run(&repo, "git", &["commit", "-q", "--allow-empty", "-m", "third"]);
        home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", script]).out
    };
    for script in [
        "git reset -q --hard HEAD~1",
        "git checkout -q --detach other",
        "rm -f .git; git init -q; git commit -q --allow-empty -m elsewhere",
        "rm -f .git",
        "head -c 3000 /dev/zero > $(git rev-parse --git-dir)/index",
        r#"echo '{"outcome":"done","evidence":"nonsense"}' > "$TOFT_REPORT""#,
        r#"echo garbage > "$TOFT_REPORT""#,
    ] {
        let said = run(script);
        assert!(
            said.contains("1 failed (3 attempts)") && said.contains("Needs you"),
            "it is tried three times, then asks: {script}: {said}"
        );
    }
    let said = run("git checkout -qb mine; git commit -q --allow-empty -m mine");
    assert!(said.contains("1 done"), "a branch of its own counts: {said}");
}

#[test]
fn neither_the_callers_repository_nor_their_own_checkout_is_worked_in() {
    let (mut home, repo) = started(&["In a hook"]);
    home.set("GIT_DIR", repo.join(".git").to_str().unwrap());
    home.set("GIT_INDEX_FILE", repo.join(".git/index").to_str().unwrap());
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", "echo x > x; git add x; git commit -qm x"]).ok();
    assert_eq!(home.run(&repo, "git", &["log", "--oneline", "main"]).lines().count(), 1);
    let (home, repo) = started(&["Mine"]);
    let id = issue(&home, &repo)["id"].as_str().unwrap().to_owned();
    home.toft(&repo, &["claim", &id]).ok();
    home.toft(&repo, &["ws", "create", &id, "--in-place"]).ok();
    home.toft(&repo, &["finish", "release"]).ok();
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", "git commit -q --allow-empty -m agent"]).ok();
    assert_eq!(home.run(&repo, "git", &["log", "--oneline", "main"]).lines().count(), 1, "my checkout is mine");
}
