//! Agents are run: whatever they do, and whatever happens to the runner, every task ends once and nothing is left over.
#![cfg(target_os = "linux")]

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use toft_stories::{Home, agents, sized, workspaces::Dice};

/// An agent that does anything an agent may do. What it does for a task is one commit, whoever did it.
const WILD: &str = r#"#!/bin/sh
cat > /dev/null
echo "attempt at $TOFT_TASK under $TOFT_FENCE"
did() {
    if git cat-file -e "HEAD:did-$TOFT_TASK" 2>/dev/null; then
        toft finish -m "was done already" --evidence HEAD
        exit
    fi
    echo "$TOFT_TASK" > "did-$TOFT_TASK"
    git add "did-$TOFT_TASK" && git commit -qm "did $TOFT_TASK" || exit 9
}
dice=$(od -An -N2 -tu2 /dev/urandom | tr -d ' ')
case $((dice % 16)) in
0) echo "gives up" >&2; exit 1 ;;
1) sleep 1000 ;;
2) (sleep 1000 &) ; setsid sleep 1000 & did; echo "left children behind" ;;
3) trap '' TERM; while :; do sleep 0.2; done ;;
4) echo "nothing to show"; exit 0 ;;
5) kill -9 $$ ;;
6) did; kill -SEGV $$ ;;
7) did; toft finish -m "said so myself" --evidence HEAD; sleep 0.1 ;;
8) kill -9 $PPID; sleep 1000 ;;
9) setsid sh -c 'trap "" TERM HUP; sleep 1000' & sleep 1000 & exit 3 ;;
*) did; toft save -m "did it" >/dev/null; echo done ;;
esac
"#;

fn seed() -> u64 {
    let seed = std::env::var("TOFT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64);
    eprintln!("TOFT_SEED={seed}");
    seed
}

fn data(home: &Home, repo: &Path, words: &[&str]) -> Value {
    home.toft(repo, &[words, &["--json"]].concat()).data()
}

/// A plan of so many tasks, each needing up to two before it.
fn plan(count: u64, dice: &mut Dice) -> String {
    let mut text = String::from("title: Many things\ntasks:\n");
    for n in 0..count {
        text.push_str(&format!("  - name: t{n}\n"));
        let mut needs = Vec::new();
        while n > 0 && needs.len() < 2 && dice.one_in(3) {
            needs.push(format!("t{}", dice.below(n)));
        }
        if !needs.is_empty() {
            text.push_str(&format!("    needs: [{}]\n", needs.join(", ")));
        }
    }
    text
}

#[test]
fn whatever_agents_do_and_runners_suffer_every_task_ends_once_and_nothing_is_left() {
    let (tasks, slots, kills) = (sized(40, 500), sized(6, 20), sized(4, 20));
    let mut home = Home::new();
    home.toft_on_path();
    home.set("TOFT_RETRY_BACKOFF", "50ms");
    let repo = home.repo("api");
    let config = repo.join(".git/toft/config.toml");
    fs::write(&config, "[retry]\nmax_attempts = 200\nbackoff_max = \"500ms\"\n[workspaces]\nkeep = \"failed\"\n")
        .unwrap();
    let mut dice = Dice::new(seed());
    let file = home.path().join("plan.yaml");
    fs::write(&file, plan(tasks as u64, &mut dice)).unwrap();
    home.toft(&repo, &["flow", "apply", file.to_str().unwrap()]).ok();
    let agent = agents::script(&home, "wild", WILD);
    let slots = slots.to_string();
    let words = ["--slots", &slots, "--until-idle", "--idle", "1s", "--grace", "300ms", "--", &agent];
    let begun = Instant::now();
    for n in 0..kills {
        let mut runner = agents::start(&home, &repo, &words);
        thread::sleep(Duration::from_millis(500 + dice.below(2_500)));
        kill(Pid::from_raw(runner.id() as i32), Signal::SIGKILL).unwrap();
        let status = runner.wait().unwrap();
        assert!(status.code().is_none() || n > 0, "the runner was over before it was killed: {status}");
        if n % 4 == 3 {
            agents::none_left(&home);
        }
    }
    let mut runner = agents::start(&home, &repo, &words);
    let status = runner.wait().unwrap();
    assert!(status.success(), "{status}");
    agents::none_left(&home);
    eprintln!("{tasks} tasks, {slots} slots, {kills} kills of the runner: {:.0?}", begun.elapsed());

    let listed = data(&home, &repo, &["list", "tasks", "--all", "--limit", "1000"]);
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.len(), tasks);
    let events = data(&home, &repo, &["log", "--limit", "1000000"]);
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events.as_array().unwrap().iter().filter(|event| event["verb"] == "task.done") {
        *done.entry(event["entity"].as_str().unwrap()).or_default() += 1;
    }
    let mut attempts = 0usize;
    for task in listed {
        let id = task["id"].as_str().unwrap();
        assert_eq!(task["status"], "done", "{task}");
        assert_eq!(done.get(id), Some(&1), "{id} was done more than once");
        let commits = home.run(&repo, "git", &["log", "--format=%s", &format!("main..{id}")]);
        let own = commits.lines().filter(|line| *line == format!("did {id}")).count();
        assert_eq!(own, 1, "the effect of {id} is there once: {commits}");
        let shown = data(&home, &repo, &["show", id]);
        for attempt in shown["attempts"].as_array().unwrap() {
            attempts += 1;
            assert!(attempt["ended"].is_string(), "{attempt}");
            let number = attempt["fence"].as_u64().unwrap();
            let log = data(&home, &repo, &["show", id, &format!("--log={number}")]);
            assert_eq!(log["attempt"], number);
            if attempt["report"].is_object() {
                let lines = log["lines"].as_array().unwrap();
                let says = |text: &str| lines.iter().any(|line| line.as_str().unwrap().contains(text));
                assert!(says(&format!("took {id}")) && says(&format!("attempt at {id}")), "{attempt} {log}");
            }
        }
    }
    eprintln!("{attempts} attempts");
    assert!(attempts > tasks, "nothing went wrong, so nothing was tried");
    assert!(data(&home, &repo, &["status"])["working"].as_array().unwrap().is_empty());
    assert!(
        data(&home, &repo, &["ws", "list"]).as_array().unwrap().is_empty(),
        "{}",
        home.toft(&repo, &["ws", "list"]).out
    );
    assert_eq!(home.run(&repo, "git", &["worktree", "list"]).lines().count(), 1);
    home.toft(&repo, &["doctor"]).ok();
}

/// A home with `toft` on its path, and a repository with these issues.
fn started(titles: &[&str]) -> (Home, std::path::PathBuf) {
    let mut home = Home::new();
    home.toft_on_path();
    home.set("TOFT_RETRY_BACKOFF", "50ms");
    let repo = home.repo("api");
    for title in titles {
        home.toft(&repo, &["add", title]).ok();
    }
    (home, repo)
}

fn issue(home: &Home, repo: &Path) -> Value {
    data(home, repo, &["list", "--all"])[0].clone()
}

/// Waits until a file is there, and gives what is in it.
fn appears(path: &Path) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match fs::read_to_string(path) {
            Ok(text) if !text.is_empty() => return text,
            _ => assert!(Instant::now() < until, "{} never appeared", path.display()),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn send(child: &std::process::Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

#[test]
fn what_is_done_must_be_shown() {
    let (home, repo) = started(&["Mend it"]);
    let run = |script: &str| home.toft(&repo, &["run", "--once", "--", "sh", "-c", script]);
    let failed = run("echo tried; exit 0").ok();
    assert!(failed.contains("ended without a commit, and without a reason"), "{failed}");
    let failed = run("echo x > new; echo more >> new").ok();
    assert!(failed.contains("1 changed file that is not committed"), "{failed}");
    let parked = run("echo going wrong >&2; exit 7");
    assert!(parked.out.contains("exited with 7: going wrong") && parked.out.contains("asks you"), "{parked:?}");
    assert_eq!(parked.code, 1);
    let status = home.toft(&repo, &["status"]).ok();
    assert!(status.contains("going wrong") && status.contains("flow retry"), "{status}");
    let again = home.toft(&repo, &["run", "--until-idle", "--", "false"]).ok();
    assert!(again.contains("Nothing was done"), "what failed for good is taken by nobody unasked: {again}");
    let needs = data(&home, &repo, &["status"]);
    let task = needs["needs_you"][0]["task"].as_str().unwrap().to_owned();
    home.toft(&repo, &["flow", "retry", &task]).ok();
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
    home.toft(&repo, &["agent", "answer", &gate, "blue"]).ok();
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
    let log = home.toft(&repo, &["show", &id, "--log"]).ok();
    assert!(log.contains("exited with 0"), "{log}");
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
    let log = home.toft(&repo, &["show", &id, "--log"]).ok();
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
fn a_task_that_kills_its_worker_each_time_is_parked_and_asks_a_person() {
    let (home, repo) = started(&["Deadly", "Harmless"]);
    let script = r#"case "$(cat)" in *Deadly*) kill -9 $PPID; sleep 100 ;; esac; git commit -q --allow-empty -m fine"#;
    let ended = home.toft(&repo, &["run", "--slots", "2", "--until-idle", "--", "sh", "-c", script]);
    assert!(ended.out.contains("was killed, and is started again"), "{ended:?}");
    agents::none_left(&home);
    let needs = data(&home, &repo, &["status"])["needs_you"].clone();
    assert_eq!(needs.as_array().unwrap().len(), 1, "{needs}");
    assert_eq!((&needs[0]["kind"], &needs[0]["name"]), (&"failed".into(), &"Deadly".into()));
    let all = data(&home, &repo, &["list", "--all"]);
    let status =
        |title: &str| all.as_array().unwrap().iter().find(|row| row["title"] == title).unwrap()["status"].clone();
    assert_eq!(status("Harmless"), "closed");
    let task = needs[0]["task"].as_str().unwrap();
    let attempts = data(&home, &repo, &["show", task])["attempts"].clone();
    assert_eq!(attempts.as_array().unwrap().len(), 3, "{attempts}");
}

#[test]
fn ctrl_c_lets_work_end_and_a_second_one_gives_it_back() {
    let (home, repo) = started(&["First", "Second"]);
    let (began, go) = (home.path().join("began"), home.path().join("go"));
    let wait = format!(
        "echo $TOFT_TASK > {}; while [ ! -e {} ]; do sleep 0.05; done; git commit -q --allow-empty -m x",
        began.display(),
        go.display()
    );
    let mut runner = agents::start(&home, &repo, &["--", "sh", "-c", &wait]);
    appears(&began);
    send(&runner, Signal::SIGINT);
    thread::sleep(Duration::from_millis(400));
    assert!(runner.try_wait().unwrap().is_none(), "it waits for what runs");
    fs::write(&go, "x").unwrap();
    assert!(runner.wait().unwrap().success());
    let closed = |home: &Home| {
        let all = data(home, &repo, &["list", "--all"]);
        all.as_array().unwrap().iter().filter(|row| row["status"] == "closed").count()
    };
    assert_eq!(closed(&home), 1, "what ran ended, and nothing new was taken");

    fs::remove_file(&began).unwrap();
    fs::remove_file(&go).unwrap();
    let mut runner = agents::start(&home, &repo, &["--", "sh", "-c", &wait]);
    let task = appears(&began);
    send(&runner, Signal::SIGINT);
    thread::sleep(Duration::from_millis(200));
    send(&runner, Signal::SIGINT);
    runner.wait().unwrap();
    agents::none_left(&home);
    assert_eq!(closed(&home), 1);
    let shown = data(&home, &repo, &["show", task.trim()]);
    assert_eq!((&shown["task"]["status"], &shown["task"]["attempt"]), (&"pending".into(), &0.into()), "{shown}");
    assert_eq!(shown["attempts"][0]["result"], "released");
    assert_eq!(shown["attempts"][0]["report"]["ending"], "stopped", "{shown}");
}

/// The runner and everything it started are killed at one stroke, but for the agent: nobody is left to end it.
#[test]
fn the_next_run_goes_on_in_the_same_workspace_from_the_last_checkpoint() {
    let (home, repo) = started(&["Long work"]);
    let (began, brief) = (home.path().join("began"), home.path().join("brief"));
    let first = format!(
        "echo half > half; toft save -m 'half of it is done' >/dev/null; echo $$ $PPID $TOFT_WORKSPACE > {}; exec sleep 1000",
        began.display()
    );
    for at_one_stroke in [false, true] {
        let mut runner = agents::start(&home, &repo, &["--", "sh", "-c", &first]);
        let words = appears(&began);
        let mut words = words.split_whitespace();
        let mut pid = || words.next().unwrap().parse::<i32>().unwrap();
        let (agent, slot) = (pid(), pid());
        let workspace = words.next().unwrap().to_owned();
        if at_one_stroke {
            let stat = fs::read_to_string(format!("/proc/{slot}/stat")).unwrap();
            let inner = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
            // A stopped parent cannot end anything before it is killed itself.
            for pid in [slot, inner, runner.id() as i32] {
                kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
            }
            for pid in [slot, inner] {
                kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
            }
        }
        send(&runner, Signal::SIGKILL);
        runner.wait().unwrap();
        if at_one_stroke {
            assert!(
                agents::left_over(&home).iter().any(|line| line.starts_with(&format!("{agent} "))),
                "it was left alone"
            );
        } else {
            agents::none_left(&home);
        }
        fs::remove_file(&began).unwrap();
        let second =
            format!("cat > {}; pwd > {0}.pwd; [ -e half ] && git add half && git commit -qm half", brief.display());
        let ended = home.toft(&repo, &["run", "--once", "--", "sh", "-c", &second]).ok();
        assert!(ended.contains("done"), "{ended}");
        agents::none_left(&home);
        let text = fs::read_to_string(&brief).unwrap();
        assert!(text.contains("half of it is done") && text.contains("Earlier attempts"), "{text}");
        assert_eq!(fs::read_to_string(home.path().join("brief.pwd")).unwrap().trim(), workspace);
        home.toft(&repo, &["add", "More long work"]).ok();
    }
}

/// A tool call of 40 minutes, in small: many times longer than the lease, without a word.
#[test]
fn a_long_silence_of_a_living_agent_loses_nothing() {
    let (home, repo) = started(&["Slow"]);
    let began = home.path().join("began");
    let script = format!("echo x > {}; sleep 4; git commit -q --allow-empty -m slow", began.display());
    let mut runner = agents::start(&home, &repo, &["--once", "--ttl", "1s", "--", "sh", "-c", &script]);
    appears(&began);
    let until = Instant::now() + Duration::from_millis(3_500);
    let mut looks = 0;
    while Instant::now() < until {
        let said = home.toft(&repo, &["--as", "other", "claim"]);
        assert_eq!(said.code, 6, "{said:?}");
        looks += 1;
        thread::sleep(Duration::from_millis(200));
    }
    assert!(looks > 5);
    assert!(runner.wait().unwrap().success());
    assert_eq!(issue(&home, &repo)["status"], "closed");
    let task = data(&home, &repo, &["list", "tasks", "--all"])[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(data(&home, &repo, &["show", &task])["attempts"].as_array().unwrap().len(), 1);
}

#[test]
fn a_command_that_cannot_be_started_costs_the_task_nothing() {
    let (home, repo) = started(&["One"]);
    let said = home.toft(&repo, &["run", "--until-idle", "--", "no-such-agent"]).fails(2);
    assert!(said.contains("there is no program `no-such-agent`"), "{said}");
    let said = home.toft(&repo, &["run", "--until-idle", "--", "./only-in-a-workspace"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.out.contains("could not start `./only-in-a-workspace`"), "{said:?}");
    let ready = data(&home, &repo, &["ready"]);
    assert_eq!(ready.as_array().unwrap().len(), 1, "{ready}");
    assert_eq!(ready[0]["attempt"], 0, "{ready}");
    let said = home.toft(&repo, &["run"]).fails(2);
    assert!(said.contains("--agent claude"), "{said}");
    agents::script(&home, "beside", "#!/bin/sh\ngit commit -q --allow-empty -m beside\n");
    let said = home.toft(&repo, &["run", "--once", "--", "../beside"]).ok();
    assert!(said.contains("done"), "a program is named from where it is typed: {said}");
    let said = home.toft(&repo, &["run", "--agent", "hal"]).fails(2);
    assert!(said.contains("claude, codex, gemini, cursor, opencode"), "{said}");
}

#[test]
fn a_recipe_of_ones_own_replaces_the_built_in_one() {
    let (home, repo) = started(&["One"]);
    let config = home.path().join("home/.config/toft");
    fs::create_dir_all(&config).unwrap();
    let own = "[run.agents.claude]\ncommand = [\"sh\", \"-c\", \"git commit -q --allow-empty -m own; echo '{\\\"result\\\":\\\"my own words\\\",\\\"total_cost_usd\\\":0.5}'\"]\n";
    fs::write(config.join("config.toml"), own).unwrap();
    let said = home.toft(&repo, &["run", "--agent", "claude", "--once"]).ok();
    assert!(said.contains("my own words"), "{said}");
    let tree = repo.join(".toft");
    fs::create_dir_all(&tree).unwrap();
    fs::write(tree.join("config.toml"), "[run.agents.evil]\ncommand = [\"touch\", \"/tmp/evil\"]\n").unwrap();
    let said = home.toft(&repo, &["run", "--agent", "evil"]).fails(2);
    assert!(said.contains("only the user's own configuration"), "{said}");
}

/// No sockets, and a home that can only be read: what an agent needs works, and what it does not need is kept out.
#[test]
fn behind_a_fence_work_goes_on_and_everything_else_can_only_be_read() {
    for without_bubblewrap in [false, true] {
        let (mut home, repo) = started(&["Fenced"]);
        if home.on_server() {
            let said = home.toft(&repo, &["run", "--sandbox=offline", "--", "true"]).fails(2);
            assert!(said.contains("could not reach the store"), "{said}");
            return;
        }
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
            toft finish -m "all of it" --evidence HEAD
            toft claim "$(cat "$TMPDIR/found")" > /dev/null
            toft finish "$(cat "$TMPDIR/found")" --no-change "was enough" > /dev/null
            echo over"#,
            repo = repo.display()
        );
        let before = toft_stories::snapshot(&repo.join(".git/hooks"));
        let said = home.toft(&repo, &["run", "--once", "--sandbox=offline", "--", "bash", "-c", &script]);
        let by = if without_bubblewrap { "sandbox by Landlock" } else { "sandbox by bubblewrap" };
        if !said.out.contains(by) {
            assert!(std::env::var_os("TOFT_TEST_ALL").is_none() || without_bubblewrap, "{said:?}");
            assert_eq!(said.code, 4, "what was asked for and cannot be had is refused: {said:?}");
            continue;
        }
        let ids = home.toft(&repo, &["list", "--all", "-q"]).ok();
        let log = home.toft(&repo, &["show", ids.lines().last().unwrap(), "--log"]).ok();
        assert!(said.code == 0 && log.contains("kept out") && log.contains("out over"), "{said:?}\n{log}");
        let all = data(&home, &repo, &["list", "--all"]);
        assert!(all.as_array().unwrap().iter().all(|row| row["status"] == "closed"), "{all}");
        assert_eq!(before, toft_stories::snapshot(&repo.join(".git/hooks")));
        assert!(!home.path().join("home/evil").exists() && !repo.join("evil").exists());
        drop(listener);
    }
}

#[test]
fn what_a_killed_git_left_locked_stops_nobody_after_it() {
    let (home, repo) = started(&["Locked"]);
    let locked = r#"touch "$(git rev-parse --git-dir)/index.lock"; kill -9 $$"#;
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", locked]).ok();
    thread::sleep(Duration::from_millis(50));
    let said = home.toft(&repo, &["run", "--once", "--", "sh", "-c", "echo x > x; git add x && git commit -qm x"]).ok();
    assert!(said.contains("removed a lock") && said.contains("done"), "{said}");
}

#[test]
fn an_attempts_fence_is_for_its_own_task() {
    let (home, repo) = started(&["Own", "Other"]);
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

/// An agent that always gives its task back would be started for ever.
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
        assert!(needs[0]["text"].as_str().unwrap().contains("given back 3 times"), "{script}: {ended:?} {needs}");
        assert_eq!(issue(&home, &repo)["status"], "open");
        let again = home.toft(&repo, &["run", "--until-idle", "--", "sh", "-c", script]).ok();
        assert!(again.contains("Nothing was done"), "{script}: {again}");
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
    let files = home.run(&repo, "git", &["ls-tree", "--name-only", last["id"].as_str().unwrap()]);
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
fn an_agent_whose_work_was_given_up_is_ended_soon() {
    let (home, repo) = started(&["Given up"]);
    let began = home.path().join("began");
    let script = format!("echo x > {}; sleep 1000", began.display());
    let mut runner = agents::start(&home, &repo, &["--once", "--ttl", "1s", "--", "sh", "-c", &script]);
    appears(&began);
    let flow = data(&home, &repo, &["flow", "list"])[0]["id"].as_str().unwrap().to_owned();
    home.toft(&repo, &["flow", "abandon", &flow]).ok();
    let begun = Instant::now();
    runner.wait().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    agents::none_left(&home);
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
            said.contains("3 failed") && said.contains("Needs you"),
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

/// A shell that becomes the runner may have started something before.
#[test]
fn what_was_there_before_the_runner_stays() {
    let (home, repo) = started(&["One"]);
    let script = "sleep 30 & echo $! > before; exec toft run --once -- git commit -q --allow-empty -m x";
    home.run(&repo, "sh", &["-c", script]);
    let pid: i32 = fs::read_to_string(repo.join("before")).unwrap().trim().parse().unwrap();
    assert!(kill(Pid::from_raw(pid), None).is_ok(), "it was killed");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}
