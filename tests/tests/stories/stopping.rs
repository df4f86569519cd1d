//! Work stops when it must: when its lease cannot be kept, when somebody says so, and when what watches it hangs.
#![cfg(target_os = "linux")]

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use toft_stories::agents::{appears, send};
use toft_stories::network::{Network, Weather};
use toft_stories::prelude::*;

/// Ends a runner, whatever becomes of the story.
struct Runner(ChildGuard);

impl Runner {
    fn start(home: &Home, repo: &Path, env: &[(&str, &str)], words: &[&str]) -> Self {
        let out = fs::File::create(home.path().join("runner.out")).unwrap();
        let mut command = home.command(repo, toft_bin(), &[&["run"], words].concat());
        Self(ChildGuard(command.envs(env.iter().copied()).stdout(out).stderr(Stdio::null()).spawn().unwrap()))
    }

    fn ends_within(&mut self, span: Duration) {
        let until = Instant::now() + span;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the runner is still there after {span:?}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn said(home: &Home) -> String {
    fs::read_to_string(home.path().join("runner.out")).unwrap()
}

fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn gone_within(pid: i32, span: Duration) -> Duration {
    let begun = Instant::now();
    while lives(pid) {
        assert!(begun.elapsed() < span, "process {pid} still lives after {span:?}");
        thread::sleep(Duration::from_millis(20));
    }
    begun.elapsed()
}

/// A repository whose store is on a server, with one task, and the address of the store by way of a network.
fn on_server(cluster: &Cluster) -> (Home, PathBuf, Network, String) {
    let mut home = Home::new();
    home.toft_on_path();
    home.behind_a_server(Some(&new_store_on(&cluster.url())));
    let repo = home.repo("api");
    let (network, through) = network_before(&home);
    (home, repo, network, through)
}

/// A network before the server of a home, and the server's address by way of it.
fn network_before(home: &Home) -> (Network, String) {
    let direct = home.variable("TOFT_STORE");
    let port = direct.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let network = Network::before(port.parse().unwrap());
    let through = direct.replace(&port, &network.port().to_string());
    (network, through)
}

/// repro/core 09: a runner is cut off from its store while its agent works.
#[test]
fn a_runner_that_cannot_renew_stops_its_agent_before_another_can_start() {
    let cluster = Cluster::start();
    let (home, repo, network, through) = on_server(&cluster);
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    let began = home.path().join("began");
    let script = format!("echo $$ > {}; exec sleep 1000", began.display());
    let env = [("TOFT_STORE", through.as_str()), ("TOFT_HOST", "host-a")];
    let words = ["--once", "--ttl", "6s", "--grace", "500ms", "--", "sh", "-c", &script];
    let mut runner = Runner::start(&home, &repo, &env, &words);
    let agent: i32 = appears(&began).trim().parse().unwrap();
    // It renews every two seconds, and is cut off between two of them.
    thread::sleep(Duration::from_millis(2_500));
    network.set(Weather::Cut);
    let cut = Instant::now();
    let until = cut + Duration::from_secs(20);
    let taken = loop {
        let said = home.toft_with(&repo, &[("TOFT_HOST", "host-b")], &["--as", "other", "claim"]);
        if said.code == 0 {
            break cut.elapsed();
        }
        assert!(Instant::now() < until, "{said:?}");
    };
    assert!(!lives(agent), "the agent still works, and another was given its task {taken:?} after the cut");
    eprintln!("agent gone before another was given the task, {taken:?} after the cut");
    assert!(said(&home).contains("lost"), "it is said plainly: {}", said(&home));
    // Still cut: it ends all the same.
    send(&runner.0, Signal::SIGINT);
    // Two that come at once are one.
    thread::sleep(Duration::from_millis(300));
    send(&runner.0, Signal::SIGINT);
    runner.ends_within(Duration::from_secs(20));
    agents::none_left(&home);
}

/// repro/core 09: Ctrl-C does not wait for a connect.
#[test]
fn two_interrupts_end_an_agent_within_the_grace_though_the_server_is_away() {
    let cluster = Cluster::start();
    let (home, repo, network, through) = on_server(&cluster);
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    let began = home.path().join("began");
    let script = format!("echo $$ > {}; exec sleep 1000", began.display());
    let words = ["--once", "--ttl", "9s", "--grace", "1s", "--", "sh", "-c", &script];
    let mut runner = Runner::start(&home, &repo, &[("TOFT_STORE", &through)], &words);
    let agent: i32 = appears(&began).trim().parse().unwrap();
    network.set(Weather::Cut);
    // By now a renewal hangs in a connect.
    thread::sleep(Duration::from_millis(3_500));
    assert!(lives(agent), "its deadline is not here yet");
    send(&runner.0, Signal::SIGINT);
    until(20, "the first is heard", || said(&home).contains("Waiting for running agents"));
    send(&runner.0, Signal::SIGINT);
    let took = gone_within(agent, Duration::from_secs(2));
    eprintln!("agent gone {took:?} after two interrupts");
    runner.ends_within(Duration::from_secs(15));
}

/// repro/core 14: lines that are slow to mask.
#[test]
fn masking_never_delays_a_renewal() {
    let (home, repo) = started(&["Talkative"]);
    let began = home.path().join("began");
    let agent = agents::script(
        &home,
        "agent.py",
        &format!(
            "#!/usr/bin/env python3\nimport sys,time\nopen('{}','w').write('x')\nline='token='*10900+'\\n'\nfor i in range(400): sys.stdout.write(line)\nsys.stdout.flush(); time.sleep(600)\n",
            began.display()
        ),
    );
    let words = ["--once", "--ttl", "3s", "--grace", "500ms", "--", &agent];
    let mut runner = Runner::start(&home, &repo, &[("TOFT_HOST", "host-a")], &words);
    appears(&began);
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        let said = home.toft_with(&repo, &[("TOFT_HOST", "host-b")], &["--as", "other", "claim"]);
        assert_eq!(said.code, 6, "another was given the task: {said:?}");
        thread::sleep(Duration::from_millis(300));
    }
    send(&runner.0, Signal::SIGINT);
    send(&runner.0, Signal::SIGTERM);
    runner.ends_within(Duration::from_secs(5));
}

/// repro/core 32 and 33: an agent stops its own slot.
#[test]
fn a_stopped_slot_is_killed_with_its_agent_and_every_restart_counts() {
    let (home, repo) = started(&["Job"]);
    let starts = home.path().join("starts");
    let script = format!("echo $$ >> {}; kill -STOP $PPID; exec sleep 1000", starts.display());
    let mut runner = Runner::start(&home, &repo, &[], &["--until-idle", "--ttl", "5s", "--", "sh", "-c", &script]);
    runner.ends_within(Duration::from_secs(60));
    agents::none_left(&home);
    assert_eq!(fs::read_to_string(&starts).unwrap().lines().count(), 3, "max_attempts is 3");
    assert!(said(&home).contains("did not respond"), "{}", said(&home));
    assert_eq!(data(&home, &repo, &["status"])["needs_you"][0]["kind"], "failed");
}

/// repro/core 33: orders to a slot that does not answer.
#[test]
fn interrupts_end_everything_though_a_slot_is_stopped() {
    for signals in [&[Signal::SIGINT, Signal::SIGINT, Signal::SIGINT][..], &[Signal::SIGTERM][..]] {
        let (home, repo) = started(&["Job"]);
        let began = home.path().join("began");
        let script = format!("kill -STOP $PPID; echo $PPID > {}; exec sleep 1000", began.display());
        let mut runner = Runner::start(&home, &repo, &[], &["--grace", "500ms", "--", "sh", "-c", &script]);
        appears(&began);
        for signal in signals {
            send(&runner.0, *signal);
            // Two that come at once are one.
            thread::sleep(Duration::from_millis(300));
        }
        runner.ends_within(Duration::from_secs(8));
        agents::none_left(&home);
    }
}

#[test]
fn a_stopped_runner_is_ended_by_its_warden_and_its_work_is_given_back() {
    let (home, repo) = started(&["Job"]);
    let began = home.path().join("began");
    let script = format!("echo $PPID > {}; exec sleep 1000", began.display());
    let mut runner = Runner::start(&home, &repo, &[], &["--once", "--grace", "500ms", "--", "sh", "-c", &script]);
    let slot: i32 = appears(&began).trim().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{slot}/stat")).unwrap();
    let inner = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    kill(Pid::from_raw(inner), Signal::SIGSTOP).unwrap();
    runner.ends_within(Duration::from_secs(20));
    agents::none_left(&home);
    let task = data(&home, &repo, &["list", "tasks", "--all"])[0].clone();
    assert_eq!((&task["status"], &task["attempt"]), (&"pending".into(), &0.into()), "{task}");
}

#[test]
fn a_stopped_agent_is_ended_and_may_say_goodbye() {
    let (home, repo) = started(&["Job"]);
    let goodbye = home.path().join("goodbye");
    let script = format!("trap 'echo bye > {}; exit 1' TERM; kill -STOP $$; sleep 1000", goodbye.display());
    let words = ["run", "--once", "--idle", "1s", "--grace", "3s", "--", "sh", "-c", &script];
    home.toft(&repo, &words).says("said nothing for 1 s");
    assert!(goodbye.exists(), "it was told to end before it was killed");
    agents::none_left(&home);
}

/// repro/core 26: the agent fills the disk that its log is on.
#[test]
fn a_log_that_cannot_be_written_ends_no_agent_and_every_attempt_counts() {
    if !may_mount() {
        return;
    }
    let mut home = Home::new();
    home.toft_on_path();
    home.set("TOFT_RETRY_BACKOFF", "50ms");
    let small = home.path().join("small");
    fs::create_dir(&small).unwrap();
    home.run(home.path(), "mount", &["-t", "tmpfs", "-o", "size=12m", "tmpfs", small.to_str().unwrap()]);
    let _unmount = Unmounted(small.clone());
    home.use_store(home.path().join("big.db").to_str().unwrap());
    home.set("XDG_DATA_HOME", small.join("data").to_str().unwrap());
    let repo = home.repo("small/repo");
    home.toft(&repo, &["flow", "new", "F", "--task", "A"]).ok();
    let starts = home.path().join("starts");
    let script = format!(
        "echo start >> {}; echo begin; exec 3>big; rm big; head -c 30M /dev/zero >&3 2>/dev/null; \
         for i in $(seq 1 20); do echo line $i $(head -c 300 /dev/zero | tr '\\0' x); done; sleep 0.3; exec 3>&-; \
         echo end; sleep 0.3; exit 1",
        starts.display()
    );
    let mut runner = Runner::start(&home, &repo, &[], &["--until-idle", "--", "bash", "-c", &script]);
    runner.ends_within(Duration::from_secs(40));
    let ended = said(&home);
    assert_eq!(fs::read_to_string(&starts).unwrap().lines().count(), 3, "max_attempts is 3: {ended}");
    assert!(ended.contains("1 failed (3 attempts)") && ended.contains("exited with 1"), "{ended}");
    let task = data(&home, &repo, &["list", "tasks", "--all"])[0]["id"].as_str().unwrap().to_owned();
    let log = home.toft(&repo, &["show", &task, "--log"]).ok();
    assert!(log.contains("lines are lost: ") && log.contains("out  end"), "the log says what it lost: {log}");
}

struct Unmounted(PathBuf);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").args(["-l", self.0.to_str().unwrap_or_default()]).status();
    }
}

/// repro/core 06: supervisor, runner and slot are killed at one stroke, and the agent lives on.
#[test]
fn a_workspace_is_handed_out_only_when_nobody_works_in_it() {
    let (home, repo) = started(&["Fix it"]);
    let began = home.path().join("began");
    let script =
        format!("echo $$ $PPID $TOFT_WORKSPACE > {}; while :; do echo x >> zombie; sleep 0.1; done", began.display());
    let mut runner = Runner::start(&home, &repo, &[], &["--once", "--", "sh", "-c", &script]);
    let words = appears(&began);
    let words: Vec<&str> = words.split_whitespace().collect();
    let pid = |index: usize| words[index].parse::<i32>().unwrap();
    let (agent, slot) = (pid(0), pid(1));
    let stat = fs::read_to_string(format!("/proc/{slot}/stat")).unwrap();
    let inner = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    let all = [slot, inner, runner.0.id() as i32].map(Pid::from_raw);
    all.iter().for_each(|pid| kill(*pid, Signal::SIGSTOP).unwrap());
    all.iter().for_each(|pid| kill(*pid, Signal::SIGKILL).unwrap());
    runner.0.wait().unwrap();
    assert!(lives(agent), "nobody was left to end it");
    home.toft(&repo, &["--as", "hana", "claim", "--ws"]).ok();
    assert!(!lives(agent), "the agent works on in what hana was given");
    home.toft(&repo, &["--as", "hana", "finish", "release", "-m", "later"]).ok();

    // Somebody else's process keeps it.
    let mut other = home.command(Path::new(words[2]), "sleep", &["1000"]).spawn().unwrap();
    home.toft(&repo, &["--as", "hana", "claim", "--ws"]).refuses(5, other.id().to_string());
    assert!(data(&home, &repo, &["status"])["working"].as_array().unwrap().is_empty(), "nothing is claimed");
    other.kill().unwrap();
    other.wait().unwrap();
    home.toft(&repo, &["--as", "hana", "claim", "--ws"]).ok();
}

/// Simulation, seed 7834: a slot is killed, and its runner takes a moment to end the agent.
#[test]
fn the_task_of_a_killed_slot_is_free_when_its_agent_is_gone() {
    let (home, repo) = started(&["Fix it"]);
    let began = home.path().join("began");
    let script = format!("echo $$ $PPID > {}; exec sleep 1000", began.display());
    let _runner = Runner::start(&home, &repo, &[], &["--once", "--", "sh", "-c", &script]);
    let words = appears(&began);
    let mut words = words.split_whitespace().map(|word| word.parse::<i32>().unwrap());
    let (agent, slot) = (words.next().unwrap(), words.next().unwrap());
    let stat = fs::read_to_string(format!("/proc/{slot}/stat")).unwrap();
    let inner = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    kill(Pid::from_raw(inner), Signal::SIGSTOP).unwrap();
    kill(Pid::from_raw(slot), Signal::SIGKILL).unwrap();
    // Commands on this machine see that the slot is dead, and that its agent is not.
    assert!(!home.toft(&repo, &["ready"]).ok().contains("Fix it"), "nothing is free");
    assert!(lives(agent));
    // A claim on this machine kills the agent before the task is free for any machine.
    home.toft(&repo, &["--as", "hana", "claim", "-l", "nobody"]).fails(6);
    let mut elsewhere = home.command(&repo, "toft", &["--as", "far", "claim"]);
    let claimed = elsewhere.env("TOFT_HOST", "far").output().unwrap();
    assert!(claimed.status.success() && !lives(agent), "two agents work on one task");
    kill(Pid::from_raw(inner), Signal::SIGCONT).unwrap();
}

/// repro/core 11: the answer to a claim is lost, and the network stays away for longer than anybody waits for it.
#[test]
fn a_claim_whose_answer_was_lost_is_worked_on_and_never_kept_by_an_idle_slot() {
    let cluster = Cluster::start();
    let (home, repo, network, through) = on_server(&cluster);
    let began = home.path().join("began");
    let script = format!("echo x > {}; git commit -q --allow-empty -m x", began.display());
    network.set(Weather::LosesTheNextClaim);
    let words = ["--ttl", "20m", "--", "sh", "-c", &script];
    let _runner = Runner::start(&home, &repo, &[("TOFT_STORE", &through), ("TOFT_HOST", "far")], &words);
    until(20, "the runner never waits", || said(&home).contains("waiting for work"));
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    network.wait_until_cut();
    until(150, "it says that the server cannot be reached", || said(&home).contains("cannot be reached"));
    network.set(Weather::Fine);
    let done = || data(&home, &repo, &["list", "tasks", "--all"])[0]["status"] == "done";
    until(60, "the task is done, and no idle slot keeps it", done);
    assert!(began.exists());
}

#[test]
fn toft_stop_ends_one_agent_now_and_gives_its_task_back_or_parks_it() {
    for park in [false, true] {
        let (home, repo) = started(&["Wrong"]);
        let began = home.path().join("began");
        let script = format!("echo $$ > {}; exec sleep 1000", began.display());
        let mut runner = Runner::start(&home, &repo, &[], &["--once", "--grace", "500ms", "--", "sh", "-c", &script]);
        let agent: i32 = appears(&began).trim().parse().unwrap();
        let id = issue(&home, &repo)["id"].as_str().unwrap().to_owned();
        let words: &[&str] = if park { &["stop", "ana-1", "--park"] } else { &["stop", &id, "-m", "wrong branch"] };
        let begun = Instant::now();
        let told = home.toft(&repo, words).ok();
        assert!(begun.elapsed() < Duration::from_secs(10) && !lives(agent), "{:?} {told}", begun.elapsed());
        assert!(told.contains("Stopped ana-1"), "{told}");
        eprintln!("stopped after {:?}: {told}", begun.elapsed());
        runner.ends_within(Duration::from_secs(10));
        let task = data(&home, &repo, &["list", "tasks", "--all"])[0].clone();
        let shown = data(&home, &repo, &["show", task["id"].as_str().unwrap()]);
        assert_eq!(shown["attempts"][0]["result"], "revoked", "{shown}");
        if park {
            assert_eq!((&task["status"], &task["attempt"]), (&"failed".into(), &3.into()), "{task}");
        } else {
            assert_eq!((&task["status"], &task["attempt"]), (&"pending".into(), &0.into()), "{task}");
            assert!(shown["attempts"][0]["reason"].as_str().unwrap().contains("stopped by ana: wrong branch"));
        }
        home.toft(&repo, &["stop", &id]).fails(5);
    }
}

/// Ticks of the processor that everything started in this home has used.
fn ticks(home: &Home) -> u64 {
    let used = |process: &String| -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", process.split(' ').next()?)).ok()?;
        let fields: Vec<&str> = stat.rsplit(") ").next()?.split(' ').collect();
        Some(fields[11].parse::<u64>().ok()? + fields[12].parse::<u64>().ok()?)
    };
    agents::left_over(home).iter().filter_map(used).sum()
}

#[test]
fn a_paused_slot_rests_until_it_is_resumed() {
    let (home, repo) = started(&[]);
    let _runner = Runner::start(&home, &repo, &[], &["--", "sh", "-c", "git commit -q --allow-empty -m x"]);
    let slot = || data(&home, &repo, &["agent", "list"])[0]["name"].as_str().map(str::to_owned);
    until(20, "no slot registered", || slot().is_some());
    let name = slot().unwrap();
    home.toft(&repo, &["pause", &name]).ok();
    home.toft(&repo, &["add", "work"]).ok();
    // Nothing shows that the slot rests.
    thread::sleep(Duration::from_secs(1));
    let before = ticks(&home);
    thread::sleep(Duration::from_secs(3));
    let used = ticks(&home) - before;
    assert!(used < 30, "a paused slot used {used} of 300 ticks");
    home.toft(&repo, &["pause", "--off", &name]).ok();
    until(20, "it goes on once it is resumed", || !(issue(&home, &repo)["status"] != "closed"));
}
