//! Work that is not only on one disk: commits and logs of one machine are had by the others, through the server.
#![cfg(target_os = "linux")]

use toft_stories::prelude::*;
use toft_stories::repositories::add;

/// An agent that writes a file named after its task's title.
const WRITES: &str =
    "cat > /dev/null; echo \"$TOFT_TASK\" > \"work-$TOFT_TASK\"; git add -A; git commit -q -m \"work of $(hostname)\"";

fn subjects(home: &Home, dir: &Path, branch: &str) -> Vec<String> {
    home.run(dir, "git", &["log", "--format=%s", branch]).lines().map(str::to_owned).collect()
}

/// A team with more coordinators.
fn team_with(names: &[&str]) -> (FleetTeam, Vec<(FleetMachine, PathBuf)>) {
    let team = FleetTeam::new();
    let coordinator = |name: &&str| {
        let machine = FleetMachine::new(&team.server, &team.owner, name, "coordinator");
        let clone = machine.clone_of(&team.url, "shop");
        (machine, clone)
    };
    let more = names.iter().map(coordinator).collect();
    (team, more)
}

#[test]
#[ignore = "wide: servers, clones and S3"]
fn one_clone_lands_what_several_could() {
    let (team, more) = team_with(&["bob", "cem"]);
    team.plan(&["one", "two", "three", "four", "five", "six"]);
    team.far.home.toft(&team.there, &["run", "--slots", "2", "--until-idle", "--", "sh", "-c", WRITES]).ok();
    let landers: Vec<(&FleetMachine, &PathBuf)> =
        std::iter::once((&team.ana, &team.here)).chain(more.iter().map(|(lander, clone)| (lander, clone))).collect();
    std::thread::scope(|scope| {
        for (lander, clone) in &landers {
            scope.spawn(|| lander.home.toft(clone, &["land"]));
        }
    });
    // Who came second for a piece says so, and leaves it to the first.
    let merges = |lander: &FleetMachine, clone: &PathBuf| {
        subjects(&lander.home, clone, "main").iter().filter(|subject| subject.starts_with("Merge:")).count()
    };
    let landed: usize = landers.iter().map(|(lander, clone)| merges(lander, clone)).sum();
    let left = team.ana.home.toft(&team.here, &["land", "list", "--json"]).data();
    assert_eq!(landed + left.as_array().unwrap().len(), 6, "{landed} landed, {left}");
    assert!(landed >= 1);
}

#[test]
#[ignore = "wide: servers, clones and S3"]
fn landers_that_push_need_nobody_to_give_up_work() {
    let (team, more) = team_with(&["bob"]);
    let landers = [(&team.ana, &team.here), (&more[0].0, &more[0].1)];
    for (_, clone) in landers {
        FleetMachine::configure(clone, "[land]\ninto = \"origin/main\"\n");
    }
    team.plan(&["one", "two", "three", "four"]);
    team.far.home.toft(&team.there, &["run", "--until-idle", "--", "sh", "-c", WRITES]).ok();
    std::thread::scope(|scope| {
        for (lander, clone) in landers {
            scope.spawn(|| lander.home.toft(clone, &["land"]));
        }
    });
    team.ana.home.toft(&team.here, &["land"]).ok();
    let merges = subjects(&team.owner, Path::new(&team.url), "main");
    assert_eq!(merges.iter().filter(|subject| subject.starts_with("Merge:")).count(), 4, "{merges:?}");
    assert!(team.ana.home.toft(&team.here, &["land", "list"]).ok().contains("Nothing waits"));
}

#[test]
#[ignore = "wide: servers, clones and S3"]
fn work_that_was_sent_back_goes_on_at_another_machine() {
    let FleetTeam { owner, server, url, ana, far, here, there } = FleetTeam::new();
    let near = FleetMachine::new(&server, &owner, "near", "worker");
    let third = near.clone_of(&url, "shop");
    ana.plan(&here, &["one"]);
    let writes = "cat > /dev/null; echo far > file; git add -A; git commit -q -m far";
    far.home.toft(&there, &["run", "--until-idle", "--", "sh", "-c", writes]).ok();
    fs::write(here.join("file"), "ana\n").unwrap();
    commit_all(&ana.home, &here, "ana");
    ana.home.run(&here, "git", &["push", "-q", "origin", "main"]);
    ana.home.toft(&here, &["land"]).says("1 sent back");
    drop(far);
    let mends = "cat > /dev/null; test \"$(cat file)\" = far || exit 1; git fetch -q origin
        git merge -q -s ours origin/main; git commit -q --allow-empty -m mended";
    near.home.run(&third, "git", &["fetch", "-q"]);
    near.home.toft(&third, &["run", "--until-idle", "--", "sh", "-c", mends]).ok();
    ana.home.toft(&here, &["land"]).says("1 landed");
    assert_eq!(ana.home.run(&here, "git", &["show", "main:file"]), "far\n");
}

#[test]
#[ignore = "wide: servers, clones and S3"]
fn the_log_of_an_agent_is_read_on_another_machine_while_it_works_and_later() {
    let FleetTeam { owner: _owner, server: _server, url: _url, ana, far, here, there } = FleetTeam::new();
    let (id, _) = add(&ana.home, &here, &["Talk"]);
    ana.home.toft(&here, &["sync"]).ok();
    far.home.toft(&there, &["sync"]).ok();
    let go = far.home.path().join("go");
    let talks = format!(
        "cat > /dev/null; echo 'first words'; echo token ghp_0123456789012345678901234567890123456789
        until test -e {}; do sleep 0.1; done; echo 'last words'; git commit -q --allow-empty -m talked
        toft finish -m talked --evidence HEAD; echo 'after the end'",
        go.display()
    );
    let mut runs =
        far.home.command(&there, toft_stories::toft_bin(), &["run", "--until-idle", "--", "sh", "-c", &talks]);
    let mut runner = runs.stdout(std::process::Stdio::null()).spawn().unwrap();
    until(40, "its first words are read", || ana.home.toft(&here, &["logs"]).out.contains("first words"));
    fs::write(&go, "").unwrap();
    assert!(runner.wait().unwrap().success());
    drop(far);
    let log = ana.home.toft(&here, &["show", &id, "--log", "--raw"]).ok();
    for word in ["first words", "last words", "after the end"] {
        assert_eq!(log.matches(word).count(), 1, "{word}: {log}");
    }
    // Its token ended with its lease, as it should.
    assert!(!log.contains("does not know this token"), "{log}");
    assert!(!log.contains("ghp_0"), "{log}");
}

#[test]
fn commits_and_logs_are_for_those_whose_token_says_so() {
    let FleetTeam { owner, server, url: _url, ana, far, here, there } = FleetTeam::new();
    ana.plan(&here, &["one"]);
    let keeps = format!("{WRITES}; echo \"$TOFT_TOKEN\" > \"$HOME/job\"");
    far.home.toft(&there, &["run", "--until-idle", "--", "sh", "-c", &keeps]).ok();
    let landing = ana.home.toft(&here, &["land", "list", "--json"]).data()[0].clone();
    let field = |name: &str| landing[name].as_str().unwrap().to_owned();
    let commit = format!("/v1/commits/{}/{}", field("repository"), field("tip"));
    let log = format!("/v1/logs/{}/1", field("task"));
    let job = fs::read_to_string(far.home.path().join("home/job")).unwrap();
    let viewer = server.token(&owner, "eye", "viewer");
    let mut wire = Wire::to(&server);
    let mut get = |token: &str, path: &str| wire.send("GET", path, token, "").0;
    assert_eq!([get(&far.secret, &commit), get(&ana.secret, &commit)], [200, 200]);
    assert_eq!([get(&viewer, &commit), get(job.trim(), &commit), get("none", &commit)], [403, 401, 401]);
    assert_eq!(
        [get(&viewer, &log), get(&ana.secret, &log), get(job.trim(), &log), get("none", &log)],
        [200, 200, 401, 401]
    );
    let mut put = |token: &str, path: &str, body: &str| wire.send("PUT", path, token, body).0;
    // What is no bundle of that commit is not kept under its name, and nobody writes a log without its fence.
    assert_eq!(put(&far.secret, &commit, "# v2 git bundle\n\nPACK"), 422);
    assert_eq!(put(&viewer, &commit, "# v2 git bundle\n\nPACK"), 403);
    assert_eq!([put(&far.secret, &log, "x"), put(&viewer, &log, "x"), put("none", &log, "x")], [422, 422, 401]);
    // Another space has nothing of it; a name leads nowhere else.
    let mut get = |token: &str, path: &str| wire.send("GET", path, token, "").0;
    assert_eq!(get(&far.secret, "/v1/commits/..%2F..%2Ffleet.db/x"), 404);
    assert_eq!(get(&far.secret, "/v1/logs/..%2F../1"), 200);
    assert!(ana.home.toft(&here, &["land"]).ok().contains("1 landed"));
}

#[test]
#[ignore = "wide: servers, clones and S3"]
fn commits_stay_where_they_are_if_the_user_wants_it() {
    let FleetTeam { owner, server: _server, url: _url, ana, far, here, there } = FleetTeam::new();
    FleetMachine::configure(&there, "[sync]\nserver = \"issues\"\n");
    ana.plan(&here, &["one"]);
    far.home.toft(&there, &["run", "--until-idle", "--", "sh", "-c", WRITES]).ok();
    ana.home.toft(&here, &["land", "list"]).says(format!("is in {}", there.display()));
    assert!(ana.home.toft(&here, &["land"]).ok().contains("0 landed"));
    assert!(!owner.path().join("fleet.objects/main/commits").exists());
}

/// A server that speaks S3, with one bucket.
struct S3 {
    _child: ChildGuard,
    endpoint: String,
}

impl S3 {
    fn start(home: &Home) -> Option<Self> {
        let program = tool_dir("s3").join("node_modules/.bin/s3rver");
        if !program.exists() {
            assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "s3rver is not installed: .ci/run installs it");
            return None;
        }
        let port = toft_stories::fleet::free_port().to_string();
        let dir = home.path().join("s3").display().to_string();
        let args = ["-d", &dir, "-a", "127.0.0.1", "-p", &port, "-s", "--configure-bucket", "fleet"];
        let mut command = home.command(home.path(), program, &args);
        let child = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
        until(30, "S3 is not served", || std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
        Some(Self { _child: ChildGuard(child), endpoint: format!("http://127.0.0.1:{port}") })
    }
}

#[test]
#[ignore = "wide: servers, clones and S3"]
fn commits_and_logs_are_kept_in_s3() {
    let mut owner = Home::new();
    let Some(s3) = S3::start(&owner) else { return };
    for (name, value) in [
        ("AWS_ENDPOINT", s3.endpoint.as_str()),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ACCESS_KEY_ID", "S3RVER"),
        ("AWS_SECRET_ACCESS_KEY", "S3RVER"),
        ("AWS_REGION", "us-east-1"),
    ] {
        owner.set(name, value);
    }
    let FleetTeam { owner, mut server, url: _url, ana, far, here, there } =
        FleetTeam::served(owner, &["--objects", "s3://fleet/team/a"]);
    ana.plan(&here, &["one"]);
    // Larger than what is sent at once.
    let talks =
        "cat > /dev/null; seq 1 20000; head -c 3000000 /dev/urandom > large; git add -A; git commit -q -m large";
    far.home.toft(&there, &["run", "--until-idle", "--", "sh", "-c", talks]).ok();
    drop(far);
    let kept = owner.run(&owner.path().join("s3/fleet"), "find", &["team/a", "-type", "f"]);
    assert!(kept.contains("/commits/") && kept.contains("/logs/"), "{kept}");
    assert!(!owner.path().join("fleet.objects").exists());
    let task = ana.home.toft(&here, &["land", "list", "--json"]).data()[0]["task"].as_str().unwrap().to_owned();
    let log = ana.home.toft(&here, &["show", &task, "--log", "--raw"]).ok();
    assert!(log.contains(" 20000") && log.lines().count() > 20_000, "{} lines", log.lines().count());
    assert!(ana.home.toft(&here, &["land"]).ok().contains("1 landed"));
    assert_eq!(ana.home.run(&here, "git", &["cat-file", "-s", "main:large"]), "3000000\n");
    server.kill();
}
