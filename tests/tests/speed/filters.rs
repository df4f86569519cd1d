//! Claims with a filter: by label, capability, worktree and workflow. Each finds the task that matches, wherever it
//! stands in the queue, and takes no longer for what stands before it.

use std::{path::Path, time::Instant};

use serde_json::json;
use toft_cluster::Cluster;
use toft_stories::{Home, Said, new_store_on};

/// Enough for a claim that looks at every task to take many times as long as one that does not.
const QUEUED: usize = 400;

/// A filtered claim may take so many times as long as the slowest ordinary one. It takes about as long; this leaves room
/// for a busy machine.
const SLOWER: u32 = 20;

fn plan(home: &Home, repo: &Path, plan: &serde_json::Value) -> String {
    let file = home.path().join("plan.json");
    std::fs::write(&file, plan.to_string()).unwrap();
    let made = home.toft(repo, &["flow", "new", "--file", file.to_str().unwrap(), "--json"]).data();
    made["workflow"]["id"].as_str().unwrap().to_owned()
}

fn story(home: &Home) {
    let repo = home.repo("api");
    let linked = home.path().join("linked");
    home.run(&repo, "git", &["worktree", "add", "-q", linked.to_str().unwrap()]);
    let last = |name: &str| json!({ "title": name, "priority": 4, "tasks": [{ "name": name }] });
    let tasks: Vec<_> = (0..QUEUED).map(|n| json!({ "name": format!("t{n}"), "labels": ["common"] })).collect();
    plan(home, &repo, &json!({ "title": "load", "tasks": tasks }));
    let mut labelled = last("labelled");
    labelled["tasks"][0]["labels"] = json!(["common", "rare"]);
    plan(home, &repo, &labelled);
    let mut able = last("able");
    able["tasks"][0]["requires"] = json!(["gpu"]);
    able["tasks"][0]["labels"] = json!(["gpu"]);
    plan(home, &repo, &able);
    plan(home, &linked, &last("linked"));
    let workflow = plan(home, &repo, &last("named"));
    home.toft(&repo, &["agent", "register", "able", "--can", "gpu"]).ok();

    let timed = |dir: &Path, args: &[&str]| {
        let start = Instant::now();
        let said = home.toft(dir, &[&["claim", "--json"], args].concat());
        (start.elapsed(), said)
    };
    let name = |said: Said| said.data()["task"]["name"].as_str().unwrap().to_owned();
    let mut ordinary = Vec::new();
    for n in 0..3 {
        let (took, said) = timed(&repo, &[]);
        assert_eq!(name(said), format!("t{n}"));
        ordinary.push(took);
    }
    let patience = ordinary.into_iter().max().unwrap() * SLOWER;
    let found: [(&Path, &[&str], &str); 5] = [
        (&repo, &["-l", "rare"], "labelled"),
        (&repo, &["-l", "gpu", "--as", "able"], "able"),
        (&linked, &["--worktree", "."], "linked"),
        (&repo, &[&workflow], "named"),
        (&repo, &["-l", "common"], "t3"),
    ];
    for (dir, args, expected) in found {
        let (took, said) = timed(dir, args);
        assert_eq!(name(said), expected);
        assert!(took < patience, "claim {args:?} took {took:?}");
    }
    for args in [["-l", "nobody"].as_slice(), &["-l", "common", "-l", "nobody"], &["-l", "gpu"]] {
        let (took, said) = timed(&repo, args);
        said.fails(6);
        assert!(took < patience, "claim {args:?} took {took:?}");
    }
}

#[test]
fn a_claim_with_a_filter_finds_what_matches_wherever_it_stands() {
    story(&Home::new());
}

#[test]
fn a_claim_with_a_filter_costs_what_an_ordinary_claim_costs_on_a_server() {
    if !toft_cluster::available() {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "PostgreSQL is not installed");
        return;
    }
    let cluster = Cluster::start();
    let mut home = Home::new();
    home.behind_a_server(Some(&new_store_on(&cluster.url())));
    story(&home);
}
