//! What many processes saw of a few tasks can be explained by one order of their calls.

use std::sync::Mutex;

use toft_stories::lease_model::{Call, Op, Won, find_order};
use toft_stories::prelude::*;

/// Each of `workers` tries `tries` things with tasks all of them want: claim it, save or renew it, give it back or end
/// it, now and then under a fence that is long over.
fn history(home: &Home, tasks: &[String], workers: usize, tries: usize) -> BTreeMap<String, Vec<Call>> {
    let repo = home.path().join("api");
    let calls: Mutex<BTreeMap<String, Vec<Call>>> = Mutex::default();
    let start = Instant::now();
    let now = || start.elapsed().as_nanos() as u64;
    thread::scope(|scope| {
        for worker in 0..workers {
            let (calls, repo, now) = (&calls, &repo, &now);
            scope.spawn(move || {
                let mut dice = Dice::new(worker as u64 + 7);
                let agent = format!("w{worker}");
                let mut fences: BTreeMap<String, Vec<String>> = BTreeMap::new();
                for _ in 0..tries {
                    let task = &tasks[dice.below(tasks.len() as u64) as usize];
                    let mine = fences.entry(task.clone()).or_default();
                    let (op, begin, end);
                    if mine.is_empty() || dice.below(3) == 0 {
                        begin = now();
                        let said = home.toft(repo, &["claim", task, "--as", &agent, "--json"]);
                        end = now();
                        op = Op::Claim {
                            won: match said.code {
                                0 => {
                                    let lease = said.data()["lease"].clone();
                                    mine.push(lease["token"].as_str().unwrap().to_owned());
                                    Won::Fence(lease["fence"].as_u64().unwrap())
                                }
                                5 => Won::Refused,
                                _ => panic!("{said:?}"),
                            },
                        };
                    } else {
                        let token = mine[dice.below(mine.len() as u64) as usize].clone();
                        let fence = token.split_once('.').unwrap().0.parse().unwrap();
                        let kind = dice.below(8);
                        let args: &[&str] = match kind {
                            0..=2 => &["save", task, "-m", "so far"],
                            3 => &["save", task],
                            4..=6 => &["finish", task, "release"],
                            _ => &["finish", task, "--no-change", "done"],
                        };
                        begin = now();
                        let said = home.toft_with(repo, &[("TOFT_FENCE", &token), ("TOFT_AGENT", &agent)], args);
                        end = now();
                        let ok = match said.code {
                            0 => Some(true),
                            5 => Some(false),
                            _ => panic!("{said:?}"),
                        };
                        op = match kind {
                            0..=2 => Op::Save { fence, ok },
                            3 => Op::Renew { fence, ok },
                            4..=6 => Op::Release { fence, ok },
                            _ => Op::Finish { fence, ok },
                        };
                    }
                    let call = Call { op, begin, end: Some(end) };
                    calls.lock().unwrap().entry(task.clone()).or_default().push(call);
                }
            });
        }
    });
    calls.into_inner().unwrap()
}

#[test]
fn claims_saves_and_finishes_of_many_processes_have_one_order() {
    let (home, repo) = Home::with_repository("api");
    let (rounds, workers, tries) = (sized(2, 20), sized(16, 64), sized(8, 12));
    let (mut total, start) = (0, Instant::now());
    for round in 0..rounds {
        let args = ["flow", "new", &format!("round {round}"), "--task", "a", "--task", "b", "--task", "c", "--json"];
        let made = home.toft(&repo, &args).data();
        let tasks: Vec<String> =
            made["tasks"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap().to_owned()).collect();
        for (task, calls) in history(&home, &tasks, workers, tries) {
            total += calls.len();
            find_order(&calls).unwrap_or_else(|stuck| panic!("{task}: {stuck}\n{calls:#?}"));
        }
    }
    let took: Duration = start.elapsed();
    eprintln!("{total} calls of {workers} processes at a time in {took:.1?}: one order explains them");
}
