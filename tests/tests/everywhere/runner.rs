//! Agents are run: whatever they do, and whatever happens to the runner, every task ends once and nothing is left over.
#![cfg(target_os = "linux")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use toft_stories::agents::{appears, branch_of, seed, send};
use toft_stories::prelude::*;

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
    fs::write(&config, "[retry]\nmax_attempts = 200\n[workspaces]\nkeep = \"failed\"\n").unwrap();
    let mut dice = Dice::new(seed());
    let file = home.path().join("plan.yaml");
    fs::write(&file, plan(tasks as u64, &mut dice)).unwrap();
    home.toft(&repo, &["flow", "new", "--file", file.to_str().unwrap()]).ok();
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
    let events = data(&home, &repo, &["history", "--limit", "1000000"]);
    let mut done: BTreeMap<&str, usize> = BTreeMap::new();
    for event in events.as_array().unwrap().iter().filter(|event| event["verb"] == "task.done") {
        *done.entry(event["entity"].as_str().unwrap()).or_default() += 1;
    }
    let mut attempts = 0usize;
    for task in listed {
        let id = task["id"].as_str().unwrap();
        assert_eq!(task["status"], "done", "{task}");
        assert_eq!(done.get(id), Some(&1), "{id} was done more than once");
        let commits =
            home.run(&repo, "git", &["log", "--format=%s", &format!("main..{}", branch_of(&home, &repo, id))]);
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

#[test]
fn a_task_that_kills_its_worker_each_time_is_parked_and_asks_a_person() {
    let (home, repo) = started(&["Deadly", "Harmless"]);
    let script = r#"case "$(cat)" in *Deadly*) kill -9 $PPID; sleep 100 ;; esac; git commit -q --allow-empty -m fine"#;
    let ended = home.toft(&repo, &["run", "--slots", "2", "--until-idle", "--", "sh", "-c", script]);
    assert!(ended.out.contains("killed; restarting"), "{ended:?}");
    assert!(ended.code == 1 && ended.out.contains("Needs you: tf-"), "{ended:?}");
    agents::none_left(&home);
    let needs = data(&home, &repo, &["status"])["needs_you"].clone();
    assert_eq!(needs.as_array().unwrap().len(), 1, "{needs}");
    assert_eq!((&needs[0]["kind"], &needs[0]["name"]), (&"failed".into(), &"Deadly".into()));
    let all = data(&home, &repo, &["list", "--all"]);
    let status =
        |title: &str| all.as_array().unwrap().iter().find(|row| row["title"] == title).unwrap()["status"].clone();
    assert_eq!(status("Harmless"), "closed");
    let deadly = all.as_array().unwrap().iter().find(|row| row["title"] == "Deadly").unwrap();
    assert_eq!(deadly["comments"].as_array().unwrap().len(), 1, "it is said once, whoever tells it: {deadly}");
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
    let told = home.path().join("told");
    let mut command = home.command(&repo, toft_bin(), &["run", "--", "sh", "-c", &wait]);
    command.stdout(fs::File::create(&told).unwrap()).stderr(Stdio::null());
    let mut runner = command.spawn().unwrap();
    let task = appears(&began);
    send(&runner, Signal::SIGINT);
    until(20, "it is heard", || fs::read_to_string(&told).unwrap().contains("Waiting for running agents"));
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
            // A process that is replaced by another program has no environment for a moment.
            let there = || agents::left_over(&home).iter().any(|line| line.starts_with(&format!("{agent} ")));
            until(5, "it was left alone", there);
        } else {
            agents::none_left(&home);
        }
        fs::remove_file(&began).unwrap();
        let second =
            format!("cat > {}; pwd > {0}.pwd; [ -e half ] && git add half && git commit -qm half", brief.display());
        home.toft(&repo, &["run", "--once", "--", "sh", "-c", &second]).says("done");
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

/// No sockets, and a home that can only be read: what an agent needs works, and what it does not need is kept out.
#[test]
fn what_a_killed_git_left_locked_stops_nobody_after_it() {
    let (home, repo) = started(&["Locked"]);
    let locked = r#"touch "$(git rev-parse --git-dir)/index.lock"; kill -9 $$"#;
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", locked]).ok();
    // The lock is older than the next attempt.
    thread::sleep(Duration::from_millis(50));
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", "echo x > x; git add x && git commit -qm x"])
        .says_all(&["removed a lock", "done"]);
}

/// An agent that always gives its task back would be started for ever.
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

/// A shell that becomes the runner may have started something before.
#[test]
fn what_was_there_before_the_runner_stays() {
    let (home, repo) = started(&["One"]);
    // Without the pipe that the story reads: otherwise the story would wait until it ends by itself.
    let script =
        "sleep 300 >/dev/null 2>&1 & echo $! > before; exec toft run --once -- git commit -q --allow-empty -m x";
    home.run(&repo, "sh", &["-c", script]);
    let pid: i32 = fs::read_to_string(repo.join("before")).unwrap().trim().parse().unwrap();
    // A process that was killed and that nobody waited for has no command line.
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    assert!(line.contains("sleep"), "it was killed");
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}

/// An ordinary user's workspace may be served by a process, which outlives whoever needed it first.
#[test]
fn what_serves_a_mount_is_left_alone() {
    let (home, repo) = started(&["One"]);
    let pid = home.path().join("pid");
    let script = format!(
        "cp /bin/sleep ../fuse-overlayfs; setsid ../fuse-overlayfs 60 & echo $! > {}; until grep -q fuse /proc/$!/comm; do sleep 0.01; done; sleep 1000 & git commit -q --allow-empty -m x",
        pid.display()
    );
    home.toft(&repo, &["run", "--once", "--", "sh", "-c", &script]).ok();
    let left = agents::left_over(&home);
    assert!(left.len() == 1 && left[0].contains("fuse-overlayfs"), "{left:?}");
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
}
