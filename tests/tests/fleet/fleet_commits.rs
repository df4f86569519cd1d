//! Commits of other machines that do not come as they should: clones that are behind, broken bundles, clones that are gone,
//! and callers that write what is not theirs.
#![cfg(target_os = "linux")]

use toft_stories::prelude::*;

const WRITES: &str = "cat > /dev/null; echo \"$TOFT_TASK\" > \"work-$TOFT_TASK\"; git add -A; git commit -q -m work";

fn works(team: &FleetTeam, agent: &str) {
    team.far.home.toft(&team.there, &["run", "--until-idle", "--", "sh", "-c", agent]).ok();
}

fn land(team: &FleetTeam) -> String {
    team.ana.home.toft(&team.here, &["land"]).ok()
}

/// Puts with curl; returns the status.
fn put(team: &FleetTeam, token: &str, path: &str, headers: &[&str], body: &str) -> u16 {
    let authorization = format!("authorization: Bearer {token}");
    let mut args = vec!["-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "PUT", "-H", &authorization];
    headers.iter().for_each(|header| args.extend(["-H", *header]));
    let url = format!("{}{path}", team.server.url);
    args.extend(["--data-binary", body, &url]);
    team.owner.run(team.owner.path(), "curl", &args).parse().unwrap()
}

fn commit(home: &Home, dir: &Path, file: &str) {
    fs::write(dir.join(file), file).unwrap();
    commit_all(home, dir, file);
}

#[test]
#[ignore = "wide: servers and several clones"]
fn a_clone_that_is_behind_gets_what_the_work_is_built_on() {
    let team = FleetTeam::new();
    let other = team.owner.path().join("seed");
    commit(&team.owner, &other, "moved");
    team.owner.run(&other, "git", &["push", "-q", &team.url, "main"]);
    team.far.home.run(&team.there, "git", &["pull", "-q"]);
    team.plan(&["one"]);
    works(&team, WRITES);
    // Nothing of this clone has moved yet.
    assert!(!team.here.join("moved").exists());
    let landed = land(&team);
    assert!(landed.contains("1 landed"), "{landed}");
    let files = team.ana.home.run(&team.here, "git", &["ls-tree", "--name-only", "main"]);
    assert!(files.contains("moved") && files.contains("work-"), "{files}");
}

#[test]
#[ignore = "wide: servers and several clones"]
fn work_that_cannot_be_taken_stops_nothing_else() {
    let team = FleetTeam::new();
    team.plan(&["odd", "good"]);
    let odd = "cat > /dev/null
        if test -e ../odd-was-made; then echo good > good; else touch ../odd-was-made
            printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = -u./x\\n' > .gitmodules; fi
        git add -A; git commit -q -m work";
    works(&team, odd);
    let landed = team.ana.home.toft(&team.here, &["land"]);
    assert_eq!(landed.code, 0, "{landed:?}");
    let all = landed.out + &landed.err;
    assert!(all.contains("1 landed") && all.contains("does not land here now"), "{all}");
}

#[test]
fn work_whose_clone_was_deleted_comes_from_the_server() {
    let team = FleetTeam::new();
    let (home, there) = (&team.far.home, &team.there);
    team.plan(&["one", "two"]);
    works(&team, WRITES);
    fs::remove_dir_all(there).unwrap();
    for entry in fs::read_dir(home.path()).unwrap().flatten() {
        // Its workspaces went with it.
        if entry.file_name().to_string_lossy().starts_with("shop") {
            fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    let again = team.far.clone_of(&team.url, "again");
    home.toft(&again, &["status"]).says("2 finished, not landed");
    let coordinator = team.server.token(&team.owner, "pia", "coordinator");
    let env = [("TOFT_TOKEN", coordinator.as_str()), ("TOFT_AGENT", "pia")];
    home.toft_with(&again, &env, &["land"]).says("2 landed");
}

#[test]
#[ignore = "wide: servers and several clones"]
fn what_another_clone_landed_is_taken_back_from_here() {
    let team = FleetTeam::new();
    for clone in [&team.here, &team.there] {
        FleetMachine::configure(clone, "[land]\ninto = \"origin/main\"\n");
    }
    let bob = FleetMachine::new(&team.server, &team.owner, "bob", "coordinator");
    let third = bob.clone_of(&team.url, "shop");
    FleetMachine::configure(&third, "[land]\ninto = \"origin/main\"\n");
    team.plan(&["one"]);
    works(&team, WRITES);
    let landing = team.ana.home.toft(&team.here, &["land", "list", "--json"]).data()[0]["id"].clone();
    assert!(land(&team).contains("1 landed"));
    bob.home.run(&third, "git", &["fetch", "-q"]);
    bob.home.toft(&third, &["land", "revert", landing.as_str().unwrap()]).says("1 landed");
    let files = team.owner.run(Path::new(&team.url), "git", &["ls-tree", "--name-only", "main"]);
    assert!(!files.contains("work-"), "{files}");
    assert!(land(&team).contains("Nothing is finished"));
}

#[test]
fn nobody_replaces_commits_or_writes_the_log_of_another() {
    let team = FleetTeam::new();
    team.plan(&["one", "two"]);
    let (ana, far) = (&team.ana, &team.far);
    far.home.toft(&team.there, &["run", "--once", "--", "sh", "-c", WRITES]).ok();
    let landing = ana.home.toft(&team.here, &["land", "list", "--json"]).data()[0].clone();
    let (repository, tip) = (landing["repository"].as_str().unwrap(), landing["tip"].as_str().unwrap());
    let garbage = format!("# v2 git bundle\n{tip} refs/heads/x\n\nPACK");
    let thief = team.server.token(&team.owner, "thief", "worker");
    assert_eq!(put(&team, &thief, &format!("/v1/commits/{repository}/{tip}"), &[], &garbage), 200);
    assert_eq!(put(&team, &thief, &format!("/v1/commits/rp_other/{tip}"), &[], &garbage), 422);
    assert!(land(&team).contains("1 landed"), "what was there was replaced");
    // A fence is for its own task.
    let claim = far.home.toft(&team.there, &["claim", "--json"]).data();
    let (task, fence) = (claim["task"]["id"].as_str().unwrap(), claim["lease"]["token"].as_str().unwrap());
    let (fence, machine) = (format!("toft-fence: {fence}"), "toft-machine: machine-of-far");
    let number = fence.trim_start_matches("toft-fence: ").split('.').next().unwrap();
    let log = |task: &str| format!("/v1/logs/{task}/{number}?offset=0");
    assert_eq!(put(&team, &far.secret, &log(task), &[&fence, machine], "own"), 200);
    let other = landing["task"].as_str().unwrap();
    assert_eq!(put(&team, &far.secret, &log(other), &[&fence, machine], "forged"), 409);
}

#[test]
#[ignore = "wide: servers and several clones"]
fn an_agent_that_pushes_its_branch_has_made_its_commit() {
    let team = FleetTeam::new();
    team.plan(&["one"]);
    let pushes = format!("{WRITES}; git push -q origin HEAD");
    team.far.home.toft(&team.there, &["run", "--once", "--", "sh", "-c", &pushes]).says("1 done");
    assert!(land(&team).contains("1 landed"));
}

#[test]
fn private_work_that_another_machine_lands_is_not_named() {
    let team = FleetTeam::new();
    let (ana, far) = (&team.ana, &team.far);
    far.home.run(far.home.path(), "git", &["clone", "-q", &team.url, "mine"]);
    let mine = far.home.path().join("mine");
    far.home.toft(&mine, &["init", "--contributor"]).ok();
    let (id, _) = toft_stories::repositories::add(&far.home, &mine, &["Overthrow the parser"]);
    far.home.toft(&mine, &["run", "--until-idle", "--", "sh", "-c", WRITES]).ok();
    ana.home.toft(&team.here, &["land"]).says("1 landed");
    let said = ana.home.run(&team.here, "git", &["log", "--format=%B", "main"]);
    assert!(said.contains("Toft-Landing") && !said.contains(&id) && !said.contains("Overthrow"), "{said}");
}
