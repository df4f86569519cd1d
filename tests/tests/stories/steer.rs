//! A person steers agents that run: tells them something, pauses them, follows them, limits what they spend.

#![cfg(unix)]

use toft_stories::prelude::*;

fn start(home: &Home, repo: &std::path::Path, args: &[&str]) -> ChildGuard {
    ChildGuard(home.command(repo, toft_bin(), args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

/// The workspace of the agent that runs, once it is there.
fn workspace(home: &Home, repo: &std::path::Path) -> PathBuf {
    let found = || home.toft(repo, &["ws", "list", "--json"]).data()[0]["path"].as_str().map(PathBuf::from);
    until(20, "its workspace is there", || found().is_some_and(|path| path.is_dir()));
    found().unwrap()
}

const COMMIT: &str = "date +%N > $TOFT_ISSUE; git add -A; git commit -qm work";

#[test]
fn what_an_agent_did_not_read_is_in_the_brief_of_the_next() {
    let (home, repo) = started(&[]);
    let id = add(&home, &repo, &["Paint the shed"]);
    home.toft(&repo, &["tell", &id, "blue"]).fails(5);
    let first = "test -e ../told && grep -q 'use-blue' \"$TOFT_BRIEF\" || {
        touch ../told; env -u TOFT_TASK -u TOFT_FENCE -u TOFT_ATTEMPT toft --as bob tell $TOFT_ISSUE use-blue --wait 0s; exit 3; }";
    let script = format!("{first}; {COMMIT}");
    home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", &script]).says("Finished: 1 done (2 attempts).");
    // Nobody read it as a message, so nothing says so; and the next task of that slot does not get it.
    let events = home.toft(&repo, &["history", "--json", "--limit", "200"]).data().to_string();
    assert!(events.contains("message.sent") && !events.contains("message.read"), "{events}");
    add(&home, &repo, &["Paint the barn"]);
    let script = format!("toft save -m half > ../saved; {COMMIT}");
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", &script]).ok();
    let workspaces = home.toft(&repo, &["ws", "list", "--json"]).data();
    let path = PathBuf::from(workspaces[0]["path"].as_str().unwrap());
    assert!(!fs::read_to_string(path.join("../saved")).unwrap().contains("use-blue"));
}

#[test]
fn a_failed_attempt_leaves_what_the_next_needs() {
    let (home, repo) = started(&[]);
    add(&home, &repo, &["Paint the shed"]);
    let script = format!(
        "colour=$(sed -n 's/.*expected the colour \\([a-z]*\\).*/\\1/p' \"$TOFT_BRIEF\")
        test -n \"$colour\" || {{ for n in $(seq 100); do echo ok $n; done; echo 'error: expected the colour teal' >&2; exit 1; }}
        echo $colour > colour; {COMMIT}"
    );
    home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", &script]).says("Finished: 1 done (2 attempts).");
}

#[test]
fn a_message_is_proved_to_be_read() {
    let (home, repo) = started(&[]);
    let id = add(&home, &repo, &["Paint the shed"]);
    let script =
        format!("touch ../begun; until test -e ../told; do sleep 0.1; done; toft save -m half > ../saved; {COMMIT}");
    let run = start(&home, &repo, &["run", "--once", "--", "sh", "-c", &script]);
    let path = workspace(&home, &repo);
    // What is told before it begins is in its brief.
    until(20, "it runs", || path.join("../begun").exists());
    home.toft(&repo, &["tell", &id, "use-blue", "--wait", "0s"]).says("not read yet");
    fs::write(path.join("../told"), "").unwrap();
    let read = home.toft(&repo, &["tell", &id, "and white", "--wait", "20s"]).out;
    until(20, "it ends", || !home.toft(&repo, &["status"]).out.contains("ana-1"));
    let saved = fs::read_to_string(path.join("../saved")).unwrap();
    assert!(saved.contains("Message from ana: use-blue"), "{saved}");
    // The second was read, unless the agent had saved before it was sent.
    assert!(saved.contains("and white") == read.contains("Delivered to ana-1"), "{read}\n{saved}");
    drop(run);
}

#[test]
fn a_paused_runner_finishes_what_it_has_and_claims_nothing_new() {
    let (home, repo) = started(&[]);
    (0..6).for_each(|n| drop(add(&home, &repo, &[&format!("Part {n}")])));
    let script = format!("touch ../begun-$TOFT_ISSUE; until test -e ../go; do sleep 0.1; done; {COMMIT}");
    let _run = start(&home, &repo, &["run", "--slots", "2", "--until-idle", "--", "sh", "-c", &script]);
    until(20, "both run", || home.toft(&repo, &["list", "--status", "in_progress", "-q"]).out.lines().count() == 2);
    let paused = home.toft(&repo, &["pause"]).ok();
    assert!(paused.contains("ana-1") && paused.contains("ana-2"), "{paused}");
    home.toft(&repo, &["pause", "nobody"]).fails(3);
    let path = workspace(&home, &repo);
    fs::write(path.join("../go"), "").unwrap();
    let closed = || home.toft(&repo, &["list", "--status", "closed", "-q"]).out.lines().count();
    until(20, "both are done", || closed() == 2);
    thread::sleep(Duration::from_secs(2));
    assert_eq!(closed(), 2, "paused agents claim nothing");
    home.toft(&repo, &["pause", "--off", "ana-1"]).ok();
    until(20, "all are done", || closed() == 6);
}

#[test]
fn a_pipe_in_place_of_a_log_holds_nobody_up() {
    let (home, repo) = started(&[]);
    let id = add(&home, &repo, &["Paint the shed"]);
    let trap = "d=$(dirname $TOFT_REPORT); rm $d/log; mkfifo $d/log; exit 1";
    let script = format!("test -e ../trapped && {{ {COMMIT}; exit; }}; touch ../trapped; {trap}");
    let begun = Instant::now();
    home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", &script]).says("Finished: 1 done (2 attempts).");
    home.toft(&repo, &["show", &id, "--log=1"]).ok();
    home.toft(&repo, &["show", &id, "--context"]).ok();
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn a_pause_outlasts_the_runner_and_an_idle_agent_is_told_nothing() {
    let (home, repo) = started(&[]);
    let id = add(&home, &repo, &["Paint the shed"]);
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", COMMIT]).ok();
    home.toft(&repo, &["pause"]).ok();
    let next = add(&home, &repo, &["Paint the barn"]);
    let said = home.toft(&repo, &["run", "--once", "--", "sh", "-c", COMMIT]);
    assert!(said.code == 6 && said.out.contains("toft pause --off ana-1"), "{said:?}");
    home.toft(&repo, &["tell", "ana-1", "use blue"]).fails(5);
    home.toft(&repo, &["pause", "--off"]).ok();
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", COMMIT]).ok();
    for id in [id, next] {
        assert_eq!(home.toft(&repo, &["show", &id, "--json"]).data()["status"], "closed");
    }
    // A missing agent is refused before anything is claimed, whatever it is spoken to with.
    add(&home, &repo, &["Paint the mill"]);
    home.toft(&repo, &["run", "--once", "--agent", "acp:copilot"]).refuses(2, "Nothing was claimed");
}

#[test]
fn a_conversation_goes_on_though_a_claim_came_to_nothing_in_between() {
    let (home, repo) = started(&[]);
    let id = add(&home, &repo, &["Paint the shed"]);
    let agent = home.path().join("agent.sh");
    let script =
        "echo '{\"type\":\"thread.started\",\"thread_id\":\"abc-1\"}'\ntest \"$1 $2\" = '--resume abc-1' || exit 1\n";
    fs::write(&agent, format!("{script}{COMMIT}\n")).unwrap();
    let agent = agent.to_str().unwrap();
    let command =
        format!("command = [\"sh\", \"{agent}\"]\nresume = [\"sh\", \"{agent}\", \"--resume\", \"{{session}}\"]\n");
    home.configure(format!("[run.agents.mine]\n{command}"));
    let run = || home.toft(&repo, &["run", "--agent", "mine", "--once"]);
    assert!(run().ok().contains("1 failed"));
    until(20, "it can be claimed again", || home.toft(&repo, &["claim", &id]).code == 0);
    home.toft(&repo, &["finish", "release"]).ok();
    let said = run().ok();
    assert!(said.contains("Finished: 1 done."), "{said}");
}

#[test]
fn one_runner_works_in_several_repositories() {
    let (home, api) = started(&[]);
    let (farm, mill) = (home.repo("farm"), home.repo("mill"));
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push((api.clone(), add(&home, &api, &[&format!("Api {n}")])));
        ids.push((farm.clone(), add(&home, &farm, &[&format!("Farm {n}")])));
    }
    let (api_dir, farm_dir, mill_dir) = (api.to_str().unwrap(), farm.to_str().unwrap(), mill.to_str().unwrap());
    let repos = ["--repo", api_dir, "--repo", farm_dir, "--repo", mill_dir, "--repo", api_dir];
    let run = [&["run", "--slots", "2", "--until-idle"][..], &repos, &["--", "sh", "-c", COMMIT]].concat();
    // From anywhere, a repository or not.
    let said = home.toft(home.path(), &run).ok();
    assert!(said.contains("Finished: 6 done."), "{said}");
    assert!(said.contains("claimed  api: ") && said.contains("claimed  farm: "), "{said}");
    for (repo, id) in ids {
        assert_eq!(home.toft(&repo, &["show", &id, "--json"]).data()["status"], "closed");
        let log = home.run(&repo, "git", &["log", "--all", "--format=%s"]);
        assert_eq!(log.matches("work").count(), 3, "each in its own repository: {log}");
    }
    // A name is taken in all of them or in none.
    assert_eq!(home.toft(home.path(), &[&["run", "--once"][..], &repos, &["--", "true"]].concat()).code, 6);
}

#[test]
fn logs_are_followed_until_the_agent_ends() {
    let (home, repo) = started(&[]);
    let id = add(&home, &repo, &["Paint the shed"]);
    home.toft(&repo, &["logs"]).fails(6);
    let script = format!("echo first; sleep 2; echo last; {COMMIT}");
    let _run = start(&home, &repo, &["run", "--once", "--", "sh", "-c", &script]);
    until(20, "it runs", || home.toft(&repo, &["logs"]).out.contains("first"));
    let all = home.toft(&repo, &["logs"]).ok();
    assert!(all.lines().all(|line| line.starts_with("ana-1  ")), "{all}");
    home.toft(&repo, &["logs", "-f", &id]).says_all(&["first", "last"]);
    home.toft(&repo, &["logs", &id]).fails(6);
}

#[test]
fn a_run_ends_before_its_budget_is_passed_and_a_person_is_called() {
    let (home, repo) = started(&[]);
    (0..8).for_each(|n| drop(add(&home, &repo, &[&format!("Part {n}")])));
    let calls = home.path().join("calls");
    let command = format!(
        "notify = [\"sh\", \"-c\", 'echo \"$1: $2\" >> {}', \"sh\", \"{{id}}\", \"{{text}}\"]\n",
        calls.display()
    );
    home.configure(&command);
    let script = format!("echo '{{\"cost\": 2.0}}' > $TOFT_REPORT; {COMMIT}");
    let said = home.toft(&repo, &["run", "--until-idle", "--max-cost", "7", "--", "sh", "-c", &script]);
    assert_eq!(said.code, 7, "there is more to do: {said:?}");
    assert!(said.out.contains("Finished: 3 done, $6.00."), "{said:?}");
    assert!(said.out.contains("one more would pass $7.00") && said.err.contains("error[budget]"), "{said:?}");
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", "exec toft finish waiting -m 'Red or blue?'"]).ok();
    until(20, "the person is notified", || {
        fs::read_to_string(&calls).unwrap_or_default().contains("asks: Red or blue?")
    });
    // A repository cannot have commands started.
    fs::create_dir_all(repo.join(".toft")).unwrap();
    fs::write(repo.join(".toft/config.toml"), &command).unwrap();
    home.toft(&repo, &["status"]).refuses(2, "only the user's own configuration");
}

#[test]
fn a_days_budget_holds_for_all_runs_and_a_tasks_budget_asks_a_person() {
    let (home, repo) = started(&[]);
    (0..8).for_each(|n| drop(add(&home, &repo, &[&format!("Part {n}")])));
    let script = format!("echo '{{\"cost\": 2.0}}' > $TOFT_REPORT; {COMMIT}");
    home.configure("[run]\nday_cost = 5.0\n");
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", &script]).ok();
    let second = home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", &script]);
    assert_eq!(second.code, 7, "{second:?}");
    assert!(second.out.contains("Finished: 1 done") && second.out.contains("Budget of today: "), "{second:?}");
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", &script]).refuses(7, "one more would pass $5.00");
    // Nothing was claimed for it.
    let log = home.toft(&repo, &["history", "--json", "--limit", "200"]).data();
    assert_eq!(log.as_array().unwrap().iter().filter(|event| event["verb"] == "claim").count(), 2);
    // A task that fails and fails asks before it passes its own.
    home.configure("[run]\ntask_cost = 2.5\n[retry]\nmax_attempts = 9\n");
    let script = "echo '{\"cost\": 1.0}' > $TOFT_REPORT; exit 1";
    let said = home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", script]);
    let status = home.toft(&repo, &["status"]).ok();
    assert!(
        status.contains("$2.00 are spent, about $1.00 an attempt; one more would pass $2.50"),
        "{said:?}\n{status}"
    );
    // An answer is one more attempt.
    let id = home.toft(&repo, &["status", "--json"]).data()["needs_you"][0]["issue"].as_str().unwrap().to_owned();
    home.toft(&repo, &["answer", &id, "yes"]).ok();
    home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", script]);
    home.toft(&repo, &["status"]).says("$3.00 are spent");
}

#[test]
fn a_capacity_is_never_used_by_more_than_there_are() {
    let (home, repo) = started(&[]);
    for n in 0..6 {
        add(&home, &repo, &[&format!("Migrate {n}"), "-l", "uses:test-db"]);
        add(&home, &repo, &[&format!("Write {n}")]);
    }
    let units = home.path().join("units");
    fs::create_dir(&units).unwrap();
    let script = format!(
        r#"#!/bin/sh
        unit={units}/$TOFT_CAPACITY_TEST_DB; agent={units}/agent-$TOFT_CAPACITY_ME
        mkdir $agent || exit 3
        if [ -n "$TOFT_CAPACITY_TEST_DB" ]; then mkdir $unit || exit 3; sleep 0.3; rmdir $unit; echo $TOFT_CAPACITY_TEST_DB >> {units}/used; fi
        {COMMIT}; code=$?; rmdir $agent; exit $code"#,
        units = units.display()
    );
    let agent = toft_stories::agents::script(&home, "agent.sh", &script);
    home.configure(format!("[capacity]\ntest-db = 2\nme = 3\n[run.agents.me]\ncommand = [\"{agent}\"]\n"));
    // Two runners share them.
    let other = start(&home, &repo, &["run", "--until-idle", "--slots", "3", "--agent", "me", "--as", "bob"]);
    let said = home.toft(&repo, &["run", "--until-idle", "--slots", "3", "--agent", "me"]);
    drop(other);
    let all = home.toft(&repo, &["list", "--all", "--json", "--limit", "50"]).data();
    let closed = all.as_array().unwrap().iter().filter(|issue| issue["status"] == "closed").count();
    assert_eq!(closed, 12, "{said:?}\n{all}");
    let used = fs::read_to_string(units.join("used")).unwrap();
    assert_eq!(used.lines().count(), 6, "{used}");
    assert!(used.contains('1') && used.contains('2') && !used.contains('3'), "{used}");
    let events = home.toft(&repo, &["history", "--json", "--limit", "500"]).data().to_string();
    assert!(!events.contains("exited with 3"), "{events}");
}

#[test]
fn what_waits_for_a_person_is_shown_on_the_desktop_and_pauses_in_the_status() {
    let (home, repo) = started(&[]);
    home.configure("notify = \"desktop\"\n");
    let shown = home.path().join("shown");
    let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", shown.display());
    toft_stories::agents::script(&home, "bin/notify-send", &script);
    add(&home, &repo, &["Paint"]);
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", "exec toft finish waiting -m 'Red or blue?'"]).ok();
    until(20, "it is shown", || fs::read_to_string(&shown).unwrap_or_default().contains("asks: Red or blue?"));
    home.toft(&repo, &["pause", "ana"]).ok();
    let status = home.toft(&repo, &["status"]).ok();
    assert!(status.contains("Paused: ana-1; toft pause --off NAME ends that"), "{status}");
    assert_eq!(home.toft(&repo, &["status", "--json"]).data()["paused"][0], "ana-1");
    home.toft(&repo, &["pause", "--off", "ana"]).ok();
    assert!(!home.toft(&repo, &["status"]).ok().contains("Paused"));
}

#[test]
fn a_machine_is_drained_and_goes_on() {
    let (home, repo) = Home::with_repository("shop");
    let id = add(&home, &repo, &["Sell apples"]);
    for agent in ["bo", "kim", "lee"] {
        home.toft(&repo, &["--as", agent, "agent", "register", "--role", "worker"]).ok();
    }
    home.toft(&repo, &["--as", "bo", "claim", &id]).ok();
    home.toft(&repo, &["pause", "lee", "-m", "lee is broken"]).ok();
    let agents = home.toft(&repo, &["agent", "list", "--json"]).data();
    let machine = agents[0]["machine"].as_str().unwrap().to_owned();
    home.toft(&repo, &["pause", "--machine", "nowhere"]).fails(3);
    let said = home.toft(&repo, &["pause", "--machine", &machine, "-m", "a new disk"]).ok();
    assert!(said.contains("bo") && said.contains("kim") && !said.contains("lee"), "{said}");
    add(&home, &repo, &["Sell pears"]);
    home.toft(&repo, &["--as", "kim", "claim"]).fails(4);
    // Who comes later is paused, too, and people are not.
    home.toft(&repo, &["--as", "max", "claim"]).refuses(4, "a new disk");
    home.toft(&repo, &["--as", "max", "agent", "register", "--role", "worker"]).ok();
    // What is held is finished; who was paused before stays so, and keeps the reason.
    home.toft(&repo, &["tell", &id, "hurry", "--wait", "0s"]).ok();
    let saved = home.toft(&repo, &["--as", "bo", "save", &id, "-m", "half"]).ok();
    assert!(saved.contains("hurry"), "who works by hand hears it here, too: {saved}");
    home.toft(&repo, &["agent", "list"]).says_all(&["then paused", "paused: a new disk"]);
    let said = home.toft(&repo, &["pause", "--off", "--machine", &machine]).ok();
    assert!(said.contains("bo") && said.contains("kim") && said.contains("max") && !said.contains("lee"), "{said}");
    let listed = home.toft(&repo, &["agent", "list"]).ok();
    assert!(listed.contains("paused: lee is broken") && !listed.contains("a new disk"), "{listed}");
    home.toft(&repo, &["--as", "kim", "claim"]).ok();
    let again = home.toft(&repo, &["pause", "--off", "--machine", &machine]).ok();
    assert!(again.contains("Nothing changed"), "{again}");
    // Who registers again is no longer paused with the machine.
    home.toft(&repo, &["pause", "--machine", &machine, "-m", "again"]).ok();
    home.toft(&repo, &["--as", "kim", "claim"]).refuses(4, "again");
    home.toft(&repo, &["--as", "kim", "agent", "register"]).ok();
    let said = home.toft(&repo, &["pause", "--off", "--machine", &machine]).ok();
    assert!(said.contains("bo") && !said.contains("kim"), "{said}");
}

#[test]
fn a_workflow_is_named_by_its_issue_as_lists_show_it() {
    let (home, repo) = Home::with_repository("shop");
    let id = add(&home, &repo, &["Sell apples"]);
    home.toft(&repo, &["--as", "bo", "claim", &id]).ok();
    let short = &id[..7];
    home.toft(&repo, &["flow", "edit", short, "--budget", "5"]).ok();
    home.toft(&repo, &["flow", "pause", short]).ok();
    assert!(home.toft(&repo, &["flow", "list"]).ok().contains("paused"));
}
