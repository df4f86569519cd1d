//! Many slots of three real clients side by side, in two repositories, killed and started again: every issue is done once.

#![cfg(target_os = "linux")]

use toft_stories::lab::{CLIENTS, Lab, installed};
use toft_stories::models::{Model, Step};
use toft_stories::prelude::*;

/// Runners, one of each client. Whatever becomes of the story, they end.
struct Runners(Vec<ChildGuard>);

impl Runners {
    fn start(home: &Home, repos: &[PathBuf; 2], slots: usize) -> Self {
        let [shop, farm] = repos.each_ref().map(|repo| repo.to_str().unwrap());
        let one = |(n, client): (usize, &&str)| {
            let share = slots / CLIENTS.len() + usize::from(n < slots % CLIENTS.len());
            let (name, slots) = (format!("run-{client}"), share.to_string());
            let args = [
                "run",
                "--as",
                &name,
                "--agent",
                client,
                "--slots",
                &slots,
                "--until-idle",
                "--repo",
                shop,
                "--repo",
                farm,
            ];
            let out = fs::File::options().create(true).append(true).open(home.path().join(&name)).unwrap();
            let err = out.try_clone().unwrap();
            let mut command = home.command(home.path(), toft_bin(), &args);
            ChildGuard(command.stdout(out).stderr(err).spawn().unwrap())
        };
        Self(CLIENTS.iter().enumerate().map(one).collect())
    }

    fn running(&mut self) -> usize {
        self.0.iter_mut().filter_map(|child| child.try_wait().unwrap().is_none().then_some(())).count()
    }
}

/// Issues of a repository; each third needs the one before it.
fn plan(home: &Home, repo: &Path, count: usize) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for n in 0..count {
        let title = format!("Part {n}");
        let id = match ids.last().filter(|_| n % 3 == 2) {
            Some(before) => add(home, repo, &[&title, "--needs", before]),
            None => add(home, repo, &[&title]),
        };
        ids.push(id);
    }
    ids
}

#[test]
#[ignore = "wide: coding agents"]
fn every_issue_is_done_once_by_three_clients_that_are_killed_and_started_again() {
    if CLIENTS.iter().any(|client| installed(client).is_none()) {
        eprintln!("not all clients are installed; nothing was tried");
        return;
    }
    let (slots, issues, kills) = (sized(3, 20), sized(9, 60), sized(1, 2));
    let mut lab = Lab::new(CLIENTS[0]).unwrap();
    let model = Model::start(vec![Step::shell("sh work.sh"), Step::say("All done.")]);
    for client in CLIENTS {
        lab.client = client;
        lab.talk_to(&model);
    }
    // Attempts that are killed count.
    let config = lab.home.path().join("config");
    fs::create_dir_all(config.join("toft")).unwrap();
    fs::write(config.join("toft/config.toml"), "[retry]\nmax_attempts = 9\n").unwrap();
    lab.home.set("XDG_CONFIG_HOME", config.to_str().unwrap());
    lab.home.set("TOFT_RETRY_BACKOFF", "100ms");
    let repos = [lab.repo.clone(), lab.home.repo("farm")];
    let mut ids = Vec::new();
    for (repo, count) in repos.iter().zip([issues * 2 / 3, issues / 3]) {
        fs::write(
            repo.join("work.sh"),
            "date +%s%N >> work-$TOFT_ISSUE; git add -A; git commit -qm done-$TOFT_ISSUE\n",
        )
        .unwrap();
        lab.home.run(repo, "git", &["add", "work.sh"]);
        lab.home.run(repo, "git", &["commit", "-qm", "how to work"]);
        ids.extend(plan(&lab.home, repo, count).into_iter().map(|id| (repo.clone(), id)));
    }
    let home = &lab.home;
    let closed = || -> usize {
        repos
            .iter()
            .map(|repo| home.toft(repo, &["list", "--status", "closed", "-q", "--limit", "100"]).out.lines().count())
            .sum()
    };
    let begun = Instant::now();
    let patience = Duration::from_secs(sized(120, 1_500) as u64);
    let mut runners = Runners::start(home, &repos, slots);
    for kill in 1..=kills {
        while closed() < issues * kill / (kills + 2) {
            assert!(begun.elapsed() < patience, "only {} of {issues} are closed", closed());
            thread::sleep(Duration::from_millis(200));
        }
        drop(runners);
        runners = Runners::start(home, &repos, slots);
    }
    while runners.running() > 0 {
        let told = || CLIENTS.map(|client| fs::read_to_string(home.path().join(format!("run-{client}"))).unwrap());
        assert!(begun.elapsed() < patience, "{} of {issues} are closed: {:?}", closed(), told());
        thread::sleep(Duration::from_millis(200));
    }
    eprintln!("{issues} issues, {slots} slots, {kills} kills: {:.0} s", begun.elapsed().as_secs_f64());
    let mut by: BTreeMap<String, usize> = BTreeMap::new();
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    for repo in &repos {
        let events = home.toft(repo, &["history", "--json", "--limit", "100000"]).data();
        for event in events.as_array().unwrap().iter().filter(|event| event["verb"] == "task.done") {
            *done.entry(event["entity"].as_str().unwrap().to_owned()).or_default() += 1;
            let client = event["actor"].as_str().unwrap().trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
            *by.entry(client.to_owned()).or_default() += 1;
        }
    }
    assert_eq!(done.len(), issues, "every issue is done: {done:?}");
    assert!(done.values().all(|times| *times == 1), "once: {done:?}");
    for (repo, id) in &ids {
        assert_eq!(home.toft(repo, &["show", id, "--json"]).data()["status"], "closed");
        let branches = home.run(repo, "git", &["log", "--branches=toft/*", "--format=%s"]);
        assert!(branches.contains(&format!("done-{id}")), "the work of {id} is on a branch");
    }
    eprintln!("done by {by:?}");
    // With few issues the quick ones may leave none to the slowest.
    assert!(by.len() == CLIENTS.len() || issues < 60, "each client did some: {by:?}");
}
