//! Issues of one machine are seen by every other one, through the server, without a remote.
#![cfg(target_os = "linux")]

use toft_stories::prelude::*;

fn serve(home: &Home) -> FleetServer {
    FleetServer::start(home, &home.path().join("fleet.db").display().to_string(), &[])
}

/// The repository that everybody clones.
fn upstream(home: &Home) -> String {
    let seed = home.git("seed");
    let bare = home.path().join("shop.git").display().to_string();
    home.run(&seed, "git", &["clone", "-q", "--bare", ".", &bare]);
    bare
}

/// What the server keeps of ledgers.
fn kept(home: &Home) -> String {
    fn read(dir: &Path, text: &mut String) {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => read(&path, text),
                false => text.push_str(&fs::read_to_string(&path).unwrap_or_default()),
            }
        }
    }
    let mut text = String::new();
    read(&home.path().join("fleet.objects"), &mut text);
    text
}

fn titles(machine: &FleetMachine, clone: &Path) -> BTreeSet<String> {
    let rows = machine.home.toft(clone, &["list", "--all", "--limit", "1000", "--json"]).data();
    rows.as_array().unwrap().iter().map(|row| row["title"].as_str().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "wide: servers and several clones"]
fn an_issue_of_one_machine_is_claimed_at_another_and_closed_at_both() {
    let FleetTeam { owner: _owner, server: _server, url, ana, far, here, there } = FleetTeam::new();
    let id = ana.home.toft(&here, &["add", "Sell apples", "--body", "red ones", "-q"]).ok().trim().to_owned();
    assert!(far.home.toft(&there, &["ready"]).ok().contains("Sell apples"));
    assert!(far.home.toft(&there, &["show", &id]).ok().contains("red ones"));
    let agent = "cat > /dev/null; echo red > apples; git add -A; git commit -q -m apples";
    far.home.toft(&there, &["run", "--until-idle", "--", "sh", "-c", agent]).ok();
    assert!(ana.home.toft(&here, &["land"]).ok().contains("1 landed"));
    for (machine, clone) in [(&ana, &here), (&far, &there)] {
        assert_eq!(machine.home.toft(clone, &["show", &id, "--json"]).data()["status"], "closed");
    }
    // No remote was asked for it, and nothing of the working tree changed.
    let refs = ana.home.run(Path::new(&url), "git", &["for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs.trim(), "refs/heads/main");
    assert_eq!(far.home.run(&there, "git", &["status", "--porcelain"]), "");
}

#[test]
#[ignore = "wide: servers and several clones"]
fn both_sides_of_an_issue_are_kept_and_remotes_still_work() {
    let FleetTeam { owner: _owner, server: _server, url, ana, far, here, there } = FleetTeam::new();
    let id = ana.home.toft(&here, &["add", "Sell apples", "-q"]).ok().trim().to_owned();
    far.home.toft(&there, &["edit", &id, "--label", "fruit", "-m", "from far"]).ok();
    ana.home.toft(&here, &["edit", &id, "-p", "0", "-m", "from ana"]).ok();
    for (machine, clone) in [(&ana, &here), (&far, &there)] {
        let shown = machine.home.toft(clone, &["show", &id]).ok();
        for part in ["fruit", "from far", "from ana", "P0"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
    // A clone without the server gets it by the remote, and what it adds gets here.
    let mut other = Home::new();
    other.set("TOFT_STORE", "");
    other.run(other.path(), "git", &["clone", "-q", &url, "shop"]);
    let clone = other.path().join("shop");
    other.toft(&clone, &["init"]).ok();
    ana.home.toft(&here, &["sync"]).ok();
    other.toft(&clone, &["sync"]).ok();
    assert!(other.toft(&clone, &["show", &id]).ok().contains("from far"));
    other.toft(&clone, &["add", "Sell pears"]).ok();
    other.toft(&clone, &["sync"]).ok();
    ana.home.toft(&here, &["sync"]).ok();
    assert!(titles(&far, &there).contains("Sell pears"));
    // A ledger that was put in order says the same.
    ana.home.toft(&here, &["gc", "--ledgers"]).ok();
    far.home.toft(&there, &["edit", &id, "-p", "1"]).ok();
    assert!(ana.home.toft(&here, &["show", &id]).ok().contains("P1"));
}

#[test]
fn what_is_private_stays_here() {
    let FleetTeam { owner, server, url, ana, far, here, there } = FleetTeam::new();
    // Written and deleted before others had it: with the server away nothing was sent.
    FleetMachine::configure(&here, "[sync]\nserver = \"nothing\"\n");
    let gone = ana.home.toft(&here, &["add", "Buy their shop", "-q"]).ok().trim().to_owned();
    ana.home.toft(&here, &["delete", &gone, "-m", "no"]).ok();
    FleetMachine::configure(&here, "");
    ana.home.toft(&here, &["add", "Sell pears"]).ok();
    assert!(titles(&far, &there).contains("Sell pears"));
    assert!(!kept(&owner).contains(&gone) && !kept(&owner).contains("Buy their shop"));
    // What is purged is gone from the server, too.
    let bad = ana.home.toft(&here, &["add", "Name of a customer", "-q"]).ok().trim().to_owned();
    assert!(titles(&far, &there).contains("Name of a customer"));
    ana.home.toft(&here, &["delete", "--purge", &bad, "--yes"]).ok();
    assert!(!kept(&owner).contains("Name of a customer"));
    assert!(!titles(&far, &there).contains("Name of a customer"));
    far.home.toft(&there, &["add", "Sell plums"]).ok();
    assert!(!kept(&owner).contains("Name of a customer"));
    assert!(titles(&ana, &here).contains("Sell plums"));
    // Something that looks like a secret.
    let token = format!("ghp_{}", "a1B2".repeat(9));
    let said = ana.home.toft(&here, &["add", "Rotate the key", "--body", &token]);
    assert!(said.out.contains("looks like a secret"), "{said:?}");
    ana.home.toft(&here, &["add", "Sell apples"]).ok();
    assert!(titles(&far, &there).contains("Sell apples") && !titles(&far, &there).contains("Rotate the key"));
    assert!(!kept(&owner).contains(&token));
    // A contributor's plan is private.
    let eve = FleetMachine::new(&server, &owner, "eve", "coordinator");
    let clone = eve.clone_of(&url, "shop");
    eve.home.toft(&clone, &["init", "--contributor"]).ok();
    eve.home.toft(&clone, &["add", "My secret plan"]).ok();
    assert!(!kept(&owner).contains("My secret plan"));
}

#[test]
#[ignore = "wide: servers and several clones"]
fn a_runner_that_waits_gets_a_new_issue_at_once() {
    let FleetTeam { owner: _owner, server, url: _url, ana, far, here, there } = FleetTeam::new();
    let args = ["claim", "--wait=60s"];
    let mut child = ChildGuard(far.home.start(&there, &args));
    let mut wire = Wire::to(&server);
    until(20, "it waits", || wire.send("GET", "/readyz", "", "").1["waiting"] == 1);
    ana.home.toft(&here, &["add", "Sell apples"]).ok();
    until(5, "it is served", || child.try_wait().unwrap().is_some());
    assert!(child.wait().unwrap().success());
}

#[test]
fn nothing_is_lost_though_many_clones_write_and_servers_are_killed() {
    let (owner, url) = Home::with(upstream);
    let store = owner.path().join("fleet.db").display().to_string();
    let mut first = serve(&owner);
    let address = first.url.trim_start_matches("http://").to_owned();
    let second = FleetServer::start(&owner, &store, &[]);
    let (clones, each) = (sized(4, 8), sized(6, 40));
    let machines: Vec<(FleetMachine, PathBuf)> = (0..clones)
        .map(|number| {
            let server = if number % 2 == 0 { &first } else { &second };
            // The first registers the repository.
            let role = if number == 0 { "coordinator" } else { "worker" };
            let machine = FleetMachine::new(server, &owner, &format!("m{number}"), role);
            let clone = machine.clone_of(&url, "shop");
            (machine, clone)
        })
        .collect();
    std::thread::scope(|scope| {
        let writers: Vec<_> = machines
            .iter()
            .enumerate()
            .map(|(number, (machine, clone))| {
                scope.spawn(move || {
                    for n in 0..each {
                        machine.home.toft(clone, &["add", &format!("{number}.{n}")]).ok();
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            // They write for a while.
            std::thread::sleep(Duration::from_millis(300));
            first.kill();
            first = FleetServer::listen(&owner, &store, &address, &[]);
        }
    });
    let expected: BTreeSet<String> = (0..clones).flat_map(|m| (0..each).map(move |n| format!("{m}.{n}"))).collect();
    for (machine, clone) in &machines {
        assert_eq!(titles(machine, clone), expected);
    }
    // A new clone has it all, too.
    let late = FleetMachine::new(&second, &owner, "late", "worker");
    let clone = late.clone_of(&url, "shop");
    assert_eq!(titles(&late, &clone), expected);
}

#[test]
fn only_those_who_work_add_to_a_ledger_and_only_lines_to_a_known_one() {
    let FleetTeam { owner, server, url: _url, ana, far: _far, here, there: _there } = FleetTeam::new();
    ana.home.toft(&here, &["add", "Sell apples"]).ok();
    let repository = ana.home.toft(&here, &["where", "--json"]).data()["repository"].as_str().unwrap().to_owned();
    let path = format!("/v1/ledgers/{repository}");
    let mut wire = Wire::to(&server);
    let (viewer, join) = (server.token(&owner, "eve", "viewer"), String::new());
    assert_eq!(wire.send("PUT", &format!("{path}?at=0.0"), &viewer, "{}\n").0, 403);
    assert_eq!(wire.send("GET", &path, &viewer, "").0, 200);
    assert_eq!(wire.send("GET", &path, &join, "").0, 401);
    assert_eq!(wire.send("PUT", "/v1/ledgers/rp_unknown?at=0.0", &ana.secret, "{}\n").0, 422);
    assert_eq!(wire.send("PUT", &format!("{path}?at=0.0"), &ana.secret, "no line").0, 422);
    let (status, said) = wire.send("PUT", &format!("{path}?at=0.0"), &ana.secret, "{}\n");
    assert_eq!((status, &said["added"]), (200, &false.into()), "another clone was faster: {said}");
    for path in ["/v1/ledgers/..%2F..%2Fx", "/v1/ledgers/%00"] {
        assert_ne!(wire.send("GET", path, &ana.secret, "").0, 500, "{path}");
    }
}

/// The pieces of the only ledger that a server keeps, in order.
fn pieces(home: &Home) -> Vec<PathBuf> {
    let dir = fs::read_dir(home.path().join("fleet.objects/main/ledgers")).unwrap().next().unwrap().unwrap().path();
    let mut all: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn title_of(machine: &FleetMachine, clone: &Path, id: &str) -> String {
    machine.home.toft(clone, &["show", id, "--json"]).data()["title"].as_str().unwrap_or_default().to_owned()
}

#[test]
#[ignore = "wide: servers and several clones"]
fn a_generation_that_ended_without_a_next_one_is_replaced() {
    let FleetTeam { owner, server: _server, url: _url, ana, far, here, there } = FleetTeam::new();
    ana.home.toft(&here, &["add", "one"]).ok();
    // As a server leaves it that is killed between the two.
    let last = pieces(&owner).pop().unwrap();
    let end = fs::metadata(&last).unwrap().len();
    fs::write(last.with_file_name(format!("0000000000-{end:020}")), "").unwrap();
    far.home.toft(&there, &["add", "two"]).ok();
    ana.home.toft(&here, &["add", "three"]).ok();
    let all = BTreeSet::from(["one", "two", "three"].map(str::to_owned));
    assert_eq!(titles(&ana, &here), all);
    assert_eq!(titles(&far, &there), all);
    assert_eq!(pieces(&owner)[0].file_name().unwrap().to_str().unwrap(), "0000000001-00000000000000000000");
}

#[test]
#[ignore = "wide: servers and several clones"]
fn what_a_server_or_a_clone_has_lost_comes_back_from_the_other() {
    let FleetTeam { owner, server: _server, url: _url, ana, far, here, there } = FleetTeam::new();
    ana.home.toft(&here, &["add", "one"]).ok();
    let copy = owner.path().join("older");
    owner.run(owner.path(), "cp", &["-r", "fleet.objects", "older"]);
    far.home.toft(&there, &["add", "two"]).ok();
    // The server is restored from a backup.
    fs::remove_dir_all(owner.path().join("fleet.objects/main")).unwrap();
    owner.run(owner.path(), "cp", &["-r", &copy.join("main").display().to_string(), "fleet.objects/"]);
    far.home.toft(&there, &["list"]).ok();
    assert_eq!(titles(&ana, &here), BTreeSet::from(["one", "two"].map(str::to_owned)));
    // It has lost everything.
    fs::remove_dir_all(owner.path().join("fleet.objects/main/ledgers")).unwrap();
    ana.home.toft(&here, &["list"]).ok();
    assert!(kept(&owner).contains("\"two\""));
    // A clone has lost everything, or has an older file.
    let file = there.join(".git/toft/ledger/issues.jsonl");
    let older = fs::read(&file).unwrap();
    ana.home.toft(&here, &["add", "three"]).ok();
    let all = BTreeSet::from(["one", "two", "three"].map(str::to_owned));
    assert_eq!(titles(&far, &there), all);
    for content in [&older[..], b""] {
        fs::write(&file, content).unwrap();
        assert_eq!(titles(&far, &there), all);
    }
    fs::remove_file(&file).unwrap();
    assert_eq!(titles(&far, &there), all);
    // A file that was put in order twice may have the name that it had for the system.
    FleetMachine::configure(&here, "[sync]\nserver = \"nothing\"\n");
    for n in 0..3 {
        ana.home.toft(&here, &["add", &format!("late {n}")]).ok();
        ana.home.toft(&here, &["gc", "--ledgers"]).ok();
    }
    FleetMachine::configure(&here, "");
    assert_eq!(titles(&ana, &here).len(), 6);
    assert_eq!(titles(&far, &there).len(), 6);
}

#[test]
fn an_issue_arrives_whole_or_not_at_all() {
    let FleetTeam { owner, server: _server, url: _url, ana, far, here, there } = FleetTeam::new();
    let toft = |args: &[&str]| ana.home.toft(&here, args).ok().trim().to_owned();
    // One that is held back stays so when something else of it changes, and is whole when it is not held any more.
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let id = toft(&["add", "Rotate the key", "--body", &secret, "-q"]);
    toft(&["edit", &id, "-p", "0"]);
    toft(&["add", "Sell apples"]);
    far.home.toft(&there, &["show", &id]).fails(3);
    toft(&["edit", &id, "--body", "it is rotated"]);
    assert_eq!(title_of(&far, &there, &id), "Rotate the key");
    // One that was deleted before it was sent, and comes back.
    FleetMachine::configure(&here, "[sync]\nserver = \"nothing\"\n");
    let gone = toft(&["add", "Second thought", "-q"]);
    toft(&["delete", &gone, "-m", "no"]);
    FleetMachine::configure(&here, "");
    let bad = toft(&["add", "Name of a customer", "-q"]);
    // A purge sends no other issue.
    toft(&["delete", "--purge", &bad, "--yes"]);
    assert!(!kept(&owner).contains("Second thought") && !kept(&owner).contains(&gone));
    toft(&["reopen", &gone]);
    assert_eq!(title_of(&far, &there, &gone), "Second thought");
    // What one clone allowed, the purge of another does not take away.
    let shared = toft(&["add", "Look at password=hunter22hunter", "-q"]);
    let held = ana.home.toft(&here, &["sync"]);
    let finding = held.out.split("finding ").nth(1).and_then(|rest| rest.split(')').next()).unwrap().to_owned();
    toft(&["sync", "--allow", &finding]);
    toft(&["list"]);
    assert!(title_of(&far, &there, &shared).contains("hunter22"));
    let bad = far.home.toft(&there, &["add", "Another name", "-q"]).ok().trim().to_owned();
    far.home.run(&there, "git", &["remote", "remove", "origin"]);
    far.home.toft(&there, &["delete", "--purge", &bad, "--yes"]).ok();
    assert!(kept(&owner).contains("hunter22hunter"));
    // One that the server has is deleted there, too, though its last text was held back.
    let doomed = toft(&["add", "Doomed", "-q"]);
    assert_eq!(title_of(&far, &there, &doomed), "Doomed");
    toft(&["edit", &doomed, "--body", &secret]);
    toft(&["delete", &doomed, "-m", "no"]);
    assert!(!far.home.toft(&there, &["list", "--limit", "1000"]).ok().contains("Doomed"));
    // Nothing that looks like a secret is in the log, which everybody reads.
    toft(&["edit", &id, "--body", &secret]);
    assert!(!far.home.toft(&there, &["history", "--json"]).out.contains(&secret));
}

#[test]
fn a_strangers_line_or_question_stops_nobody() {
    let FleetTeam { owner, server, url: _url, ana, far, here, there } = FleetTeam::new();
    ana.home.toft(&here, &["add", "one"]).ok();
    let repository = ana.home.toft(&here, &["where", "--json"]).data()["repository"].as_str().unwrap().to_owned();
    let mut wire = Wire::to(&server);
    let end: u64 = pieces(&owner).iter().map(|piece| fs::metadata(piece).unwrap().len()).sum();
    let deep = format!(
        "{{\"id\":\"tf-aaaaaaaaaaaaaaaa\",\"title\":\"deep\",\"body\":{}{}}}\n",
        "[".repeat(100),
        "]".repeat(100)
    );
    let (status, said) = wire.send("PUT", &format!("/v1/ledgers/{repository}?at=0.{end}"), &far.secret, &deep);
    assert_eq!((status, &said["added"]), (200, &true.into()), "{said}");
    far.home.toft(&there, &["add", "two"]).ok();
    let said = ana.home.toft(&here, &["list"]);
    assert!(said.out.contains("two") && !said.out.contains("note:") && said.err.is_empty(), "{said:?}");
    // What only a later toft understands stays, also when the copy is replaced.
    let end: u64 = pieces(&owner).iter().map(|piece| fs::metadata(piece).unwrap().len()).sum();
    let odd = "{\"id\":\"next version: x\",\"v\":2}\n";
    assert_eq!(wire.send("PUT", &format!("/v1/ledgers/{repository}?at=0.{end}"), &far.secret, odd).0, 200);
    let bad = ana.home.toft(&here, &["add", "Name of a customer", "-q"]).ok().trim().to_owned();
    let said = ana.home.toft(&here, &["delete", "--purge", &bad, "--yes"]).ok();
    assert!(!said.contains("still"), "{said}");
    assert!(kept(&owner).contains("next version: x") && !kept(&owner).contains("Name of a customer"));
    // Nobody replaces a ledger by less.
    let end: u64 = pieces(&owner).iter().map(|piece| fs::metadata(piece).unwrap().len()).sum();
    let (status, _) = wire.send("PUT", &format!("/v1/ledgers/{repository}?at=1.{end}&replace=true"), &far.secret, "\n");
    assert_eq!(status, 422);
    assert!(kept(&owner).contains("\"one\""));
    // A claim that waits is not kept busy by who asks for more than there is.
    let viewer = FleetMachine::new(&server, &owner, "vic", "viewer");
    wire.send("GET", &format!("/v1/ledgers/{repository}?after=0.99999999999"), &viewer.secret, "");
    for (machine, clone) in [(&ana, &here), (&far, &there)] {
        machine.home.toft(clone, &["claim"]).ok();
    }
    let before = usage(server.pid());
    far.home.toft(&there, &["claim", "--wait=3s"]).fails(6);
    let used = usage(server.pid()) - before;
    assert!(used < 100, "{used} ticks of CPU while one claim waited");
    // Who only reads reads issues that are claimed, too.
    let rows = far.home.toft(&there, &["list", "--json"]).data();
    for row in rows.as_array().unwrap() {
        far.home.toft(&there, &["edit", row["id"].as_str().unwrap(), "-p", "0"]).ok();
    }
    let env = [("TOFT_TOKEN", viewer.secret.as_str()), ("TOFT_AGENT", "vic")];
    let said = ana.home.toft_with(&here, &env, &["list"]);
    assert!(said.out.matches("P0").count() == 2 && !said.out.contains("note:"), "{said:?}");
}

/// The CPU that a process has used, in ticks.
fn usage(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
