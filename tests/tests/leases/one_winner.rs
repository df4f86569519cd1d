//! Many processes at once: one winner each time, nothing lost, nothing doubled, nobody turned away.

use std::sync::{Barrier, Mutex};

use toft_stories::prelude::*;

#[test]
fn sixty_four_processes_of_one_user_claim_one_task_and_one_wins_each_round() {
    let (home, repo) = Home::with_repository("api");
    let rounds = sized(25, 1_000);
    for round in 0..rounds {
        let made = home.toft(&repo, &["flow", "new", &format!("round {round}"), "--json"]).data();
        let task = made["tasks"][0]["id"].as_str().unwrap().to_owned();
        let claims: Vec<_> = (0..64).map(|_| home.start(&repo, &["claim", &task])).collect();
        let codes: Vec<_> = claims.into_iter().map(|mut claim| claim.wait().unwrap().code()).collect();
        let winners = codes.iter().filter(|code| **code == Some(0)).count();
        let refused = codes.iter().filter(|code| **code == Some(5)).count();
        assert_eq!((winners, refused), (1, 63), "round {round}: {codes:?}");
        home.toft(&repo, &["finish", &task, "-m", "won", "--no-change", "a race"]).ok();
    }
    home.toft(&repo, &["doctor"]).ok();
    eprintln!("{rounds} rounds of 64 processes: one winner each");
}

/// One operation, as the process that did it saw it.
struct Op {
    verb: &'static str,
    task: String,
    fence: u64,
    start: Duration,
    end: Duration,
}

/// `workers` loops of `cycles` claim, save, finish over three repositories with two worktrees each.
fn storm(workers: usize, cycles: usize, longest_wait: Duration) {
    let home = Home::new();
    let mut places: Vec<(PathBuf, PathBuf)> = Vec::new();
    for name in ["api", "web", "app"] {
        let repo = home.repo(name);
        home.run(&repo, "git", &["worktree", "add", "-q", &format!("../{name}-side")]);
        places.push((repo.clone(), repo.clone()));
        places.push((repo, home.path().join(format!("{name}-side"))));
    }
    let each = workers.div_ceil(places.len()) * cycles;
    for (repo, _) in places.iter().step_by(2) {
        let plan = home.path().join("plan.json");
        let tasks: Vec<_> = (0..each * 2).map(|n| serde_json::json!({ "name": format!("t{n}") })).collect();
        fs::write(&plan, serde_json::json!({ "title": "storm", "tasks": tasks }).to_string()).unwrap();
        home.toft(repo, &["flow", "new", "--file", plan.to_str().unwrap()]).ok();
    }
    let ops: Mutex<Vec<(PathBuf, Op)>> = Mutex::default();
    let (start, gate) = (Instant::now(), Barrier::new(workers));
    thread::scope(|scope| {
        for worker in 0..workers {
            let (home, ops, gate) = (&home, &ops, &gate);
            let (repo, dir) = places[worker % places.len()].clone();
            thread::Builder::new()
                .stack_size(256 * 1024)
                .spawn_scoped(scope, move || {
                    gate.wait();
                    let agent = format!("agent-{worker}");
                    let timed = |args: &[&str]| {
                        let from = start.elapsed();
                        (home.toft(&dir, args).data(), from, start.elapsed())
                    };
                    for _ in 0..cycles {
                        let (claim, begin, end) = timed(&["claim", "--as", &agent, "--json"]);
                        let task = claim["task"]["id"].as_str().unwrap().to_owned();
                        let number = claim["lease"]["fence"].as_u64().unwrap();
                        let fence = format!("{number}.{}", claim["lease"]["id"].as_str().unwrap());
                        let mut mine = vec![Op { verb: "claim", task: task.clone(), fence: number, start: begin, end }];
                        let save = ["save", &task, "--fence", &fence, "-m", "half", "--as", &agent, "--json"];
                        let (_, begin, end) = timed(&save);
                        mine.push(Op { verb: "save", task: task.clone(), fence: number, start: begin, end });
                        let finish = [
                            "finish",
                            &task,
                            "--fence",
                            &fence,
                            "-m",
                            "m",
                            "--no-change",
                            "c",
                            "--as",
                            &agent,
                            "--json",
                        ];
                        let (_, begin, end) = timed(&finish);
                        mine.push(Op { verb: "task.done", task, fence: number, start: begin, end });
                        let mine = mine.into_iter().map(|op| (repo.clone(), op));
                        ops.lock().unwrap().extend(mine);
                    }
                })
                .unwrap();
        }
    });
    let total = start.elapsed();
    let ops = ops.into_inner().unwrap();
    assert_eq!(ops.len(), workers * cycles * 3);
    if home.on_server() {
        check(&home, home.path(), ops.iter().map(|(_, op)| op));
        home.toft(home.path(), &["doctor"]).ok();
    }
    for (repo, _) in places.iter().step_by(2).filter(|_| !home.on_server()) {
        check(&home, repo, ops.iter().filter(|(of, _)| of == repo).map(|(_, op)| op));
        home.toft(repo, &["doctor"]).ok();
        let log = fs::metadata(repo.join(".git/toft/toft.db-wal")).map_or(0, |log| log.len());
        assert!(log < 16 << 20, "the log is bounded, not {log} bytes");
    }
    let mut waits: Vec<_> = ops.iter().map(|(_, op)| op.end - op.start).collect();
    waits.sort();
    let (median, longest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    eprintln!(
        "{workers} processes x {cycles} cycles: {} operations in {total:.1?}, whole command median {median:.1?}, longest {longest:.1?}",
        ops.len()
    );
    // On a server every command makes a connection first, with this machine's two cores at both ends.
    let allowed = if home.on_server() { longest_wait * 3 } else { longest_wait };
    assert!(longest < allowed, "{longest:?}");
}

/// Compares what processes saw with the store's history: each operation once, each task one winner, holds never overlap.
fn check<'a>(home: &Home, repo: &std::path::Path, ops: impl Iterator<Item = &'a Op>) {
    let mut history: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut after = 0u64;
    loop {
        let page = home.toft(repo, &["history", "--after", &after.to_string(), "--limit", "5000", "--json"]).data();
        let page = page.as_array().unwrap().clone();
        for event in &page {
            let seq = event["seq"].as_u64().unwrap();
            assert_eq!(seq, after + 1, "events have no gaps");
            after = seq;
            let of = |field: &str| event[field].as_str().unwrap().to_owned();
            *history.entry((of("verb"), of("entity"))).or_default() += 1;
        }
        if page.is_empty() {
            break;
        }
    }
    let mut holds: BTreeMap<&str, Vec<(&Op, &Op)>> = BTreeMap::new();
    let mut claims: BTreeMap<(&str, u64), &Op> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for op in ops {
        assert!(seen.insert((op.verb, &op.task, op.fence)), "{} {} was done twice", op.verb, op.task);
        let recorded = history.get(&(op.verb.to_owned(), op.task.clone())).copied();
        assert_eq!(recorded, Some(1), "{} {} is in history once", op.verb, op.task);
        match op.verb {
            "claim" => drop(claims.insert((&op.task, op.fence), op)),
            "task.done" => holds.entry(&op.task).or_default().push((claims[&(op.task.as_str(), op.fence)], op)),
            _ => {}
        }
    }
    for pairs in holds.values() {
        assert_eq!(pairs.len(), 1, "one process finished each task");
        assert!(pairs[0].0.start <= pairs[0].1.end);
    }
    let recorded = |verb: &str| history.keys().filter(|(of, _)| of == verb).count();
    assert_eq!(recorded("claim"), claims.len(), "nothing is in history that nobody did");
    assert_eq!(recorded("task.done"), holds.len());
}

#[test]
fn a_thousand_processes_work_at_once_and_nothing_is_lost_or_doubled() {
    storm(sized(300, 1_000), sized(1, 5), Duration::from_secs(20));
}

#[test]
fn a_poller_beside_writers_is_never_turned_away() {
    let (home, repo) = Home::with_repository("api");
    let tasks: Vec<String> = (0..200).flat_map(|n| ["--task".to_owned(), format!("t{n}")]).collect();
    let mut args = vec!["flow", "new", "many"];
    args.extend(tasks.iter().map(String::as_str));
    home.toft(&repo, &args).ok();
    let done = Mutex::new(false);
    thread::scope(|scope| {
        let (home, repo, done) = (&home, &repo, &done);
        let writers: Vec<_> = (0..20)
            .map(|n| {
                scope.spawn(move || {
                    for _ in 0..5 {
                        home.toft(repo, &["claim", "--as", &format!("w{n}")]).ok();
                        home.toft(repo, &["finish", "--as", &format!("w{n}"), "--no-change", "x"]).ok();
                    }
                })
            })
            .collect();
        let poller = scope.spawn(move || {
            let mut looks = 0;
            while !*done.lock().unwrap() {
                home.toft(repo, &["status"]).ok();
                home.toft(repo, &["ready"]).ok();
                looks += 1;
            }
            looks
        });
        let ended: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        *done.lock().unwrap() = true;
        assert!(poller.join().unwrap() > 0);
        assert!(ended.iter().all(Result::is_ok));
    });
    let status: Value = home.toft(&repo, &["flow", "list", "--json"]).data();
    assert_eq!(status[0]["progress"]["done"], 100);
}
