//! Agents in sandboxes and containers: they reach toft through a socket, with the rights of their one task.

#![cfg(target_os = "linux")]

use std::net::TcpListener;

use toft_stories::agents::started_in;
use toft_stories::lab::{Lab, work};
use toft_stories::models::Model;
use toft_stories::prelude::*;

/// The sandbox, and the guard that is asked for by its name.
const KINDS: [&str; 2] = ["bubblewrap", "Landlock"];

/// A home where this kind of sandbox is used.
fn with_kind(kind: &str, titles: &[&str]) -> (Home, PathBuf) {
    let (home, repo) = started_in(Home::outside_of_tmp(), titles);
    if kind == "Landlock" {
        // The first on the path that says no.
        agents::script(&home, "bin/bwrap", "#!/bin/sh\nexit 1\n");
    }
    (home, repo)
}

fn option_of(kind: &str) -> &'static str {
    if kind == "Landlock" { "--sandbox=landlock" } else { "--sandbox" }
}

/// Runs an agent once; what it printed, or nothing where there is no such sandbox.
fn run_confined(home: &Home, repo: &Path, kind: &str, options: &[&str], script: &str) -> Option<String> {
    let args = [&["run", "--once"], options, &["--", "bash", "-c", script]].concat();
    let said = home.toft(repo, &args);
    if said.code == 4 && std::env::var_os("TOFT_TEST_ALL").is_none() {
        println!("skipped: no {kind}");
        return None;
    }
    assert!(said.out.contains(&format!("sandbox by {kind}")), "{said:?}");
    let log = said.log(home, repo);
    Some(format!("{}{}\n{log}", said.out, said.err))
}

trait Logged {
    fn log(&self, home: &Home, repo: &Path) -> String;
}

impl Logged for toft_stories::Said {
    fn log(&self, home: &Home, repo: &Path) -> String {
        let claimed = self.out.lines().find(|line| line.contains("claimed")).unwrap_or_else(|| panic!("{self:?}"));
        let id = claimed.split_whitespace().nth(2).unwrap();
        home.toft(repo, &["show", id, "--log", "--raw"]).ok()
    }
}

#[test]
fn an_agent_in_a_sandbox_has_the_rights_of_its_one_task() {
    for kind in KINDS {
        let (home, repo) = with_kind(kind, &["Confined", "Other"]);
        let other = data(&home, &repo, &["list"])[0]["id"].as_str().unwrap().to_owned();
        let state = repo.join(".git/toft");
        let script = format!(
            r#"
            for file in {state}/toft.db {state}/toft.db-wal {state}/ledger/* {state}/locks/x {state}/config.toml; do
                (echo x >> $file) 2>/dev/null && echo "open: $file"
            done
            for pid in /proc/[0-9]*; do (echo x > $pid/root{evil}) 2>/dev/null; done
            mount -o remount,rw / 2>/dev/null && echo "open: mount"; mknod disk b 8 0 2>/dev/null && cat disk | head -c1 && echo "open: disk"
            refused() {{ toft "$@" < /dev/null > out 2>&1; [ $? = 4 ] && grep -q 'error.confined' out || {{ echo "allowed: $*"; cat out; }}; }}
            refused claim {other}; refused stop {other}; refused close {other}; refused edit {other} -m x
            refused ws list; refused run --once -- true; refused undo; refused sync; refused gc; refused delete {other}
            refused --as bob save -m x; refused --store global list; refused list --all-repos; refused show {other} --log
            refused answer {other} yes; refused flow abandon {other}; refused doctor; refused setup claude; refused trust --yes
            refused delete {other} --purge -n; refused gc --ledgers; refused show @ --diff; refused export schema calls; refused setup shell
            refused edit {other} --assignee bob; refused doctor --upgrade; refused login http://127.0.0.1:1 --code x
            toft | grep 'not set up' && echo "allowed: to think that toft is not here"
            refused save --fence 1.stolen -m x; refused backup $PWD/b; refused import jsonl x; refused export jsonl; refused pause; refused edit @ -e
            echo "a --output={evil} b 0" | toft hook pre-push x > /dev/null 2>&1
            head -c 20000000 /dev/zero | toft add - > out 2>&1; grep -q 'longer than' out || echo "allowed: endless input"
            for other in /tmp/toft-*/socket; do
                TOFT_SOCKET=$other#wrong timeout 5 toft save -m stolen > out 2>&1 && echo "allowed: $other"
            done
            rm -f out
            cd /; toft -C / show > /dev/null && echo shown; cd "$OLDPWD"
            toft add "Found more" && toft save -m half && toft list -q > /dev/null && toft ready > /dev/null && toft prime > /dev/null
            echo "- from stdin" | toft add - > /dev/null; toft show {other} > /dev/null && toft edit "$TOFT_ISSUE" -m "a comment" > /dev/null
            toft agent send "$TOFT_AGENT" "hello" > /dev/null; toft status > /dev/null && toft history > /dev/null && echo all allowed
            {{ printf '%s\n' '{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{{}},"clientInfo":{{"name":"t","version":"1"}}}}}}' \
                '{{"jsonrpc":"2.0","method":"notifications/initialized"}}' \
                '{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"claim","arguments":{{"id":"{other}"}}}}}}' \
                '{{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{{"name":"save","arguments":{{"message":"over MCP","cwd":"/"}}}}}}'; sleep 1; }} | toft mcp
            echo x > file; git add file; git commit -qm work
            toft finish --evidence HEAD -m "all of it""#,
            state = state.display(),
            evil = home.path().join("evil").display()
        );
        let Some(said) = run_confined(&home, &repo, kind, &[option_of(kind)], &script) else { continue };
        assert!(!said.contains("allowed:") && !said.contains("open:"), "{said}");
        assert!(!home.path().join("evil").exists());
        assert!(said.contains("shown") && said.contains("all allowed"), "{said}");
        assert!(said.contains("error[confined]") && said.contains("Saved checkpoint"), "over MCP: {said}");
        let all = data(&home, &repo, &["list", "--all"]);
        let status = |title: &str| {
            all.as_array().unwrap().iter().find(|row| row["title"] == title).unwrap()["status"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!((status("Confined").as_str(), status("Found more").as_str()), ("closed", "open"), "{said}");
        assert_eq!(status("Other"), "open", "{said}");
        assert_eq!(status("from stdin"), "open", "{said}");
    }
}

#[test]
fn a_part_of_an_id_that_is_another_issue_is_not_ones_own() {
    let (home, repo) = started(&[]);
    let rows = [("bd-1", "Other", 3), ("bd-12", "Own", 0)].map(|(id, title, priority)| {
        format!(r#"{{"id":"{id}","title":"{title}","status":"open","priority":{priority},"issue_type":"task","created_at":"2026-01-01T00:00:00Z","updated_at":"2026-01-01T00:00:00Z"}}"#)
    });
    let file = home.path().join("issues.jsonl");
    fs::write(&file, rows.join("\n")).unwrap();
    home.toft(&repo, &["import", "beads", file.to_str().unwrap()]).ok();
    let script = "echo $TOFT_ISSUE; toft edit bd-1 --title stolen; toft show bd-1 --log; toft edit bd-12 -m mine; toft finish --no-change x";
    let Some(said) = run_confined(&home, &repo, "bubblewrap", &["--sandbox"], script) else { return };
    assert!(said.contains("out bd-12") && said.matches("error[confined]").count() == 2, "{said}");
    assert!(said.contains("Changed bd-12"), "{said}");
    let other = data(&home, &repo, &["show", "bd-1"]).to_string();
    assert!(other.contains(r#""status":"open""#), "{said}\n{other}");
}

#[test]
fn what_listens_outside_cannot_be_asked_and_nothing_outlives_a_killed_runner() {
    let (home, repo) = with_kind("bubblewrap", &["Asks around"]);
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let outside = place.path().join("shell.sock");
    let listener = std::os::unix::net::UnixListener::bind(&outside).unwrap();
    let script = format!(
        r##"python3 - <<'X'
import socket, glob, os
own = os.environ["TOFT_SOCKET"].split("#")[0]
for path in ["{outside}"] + glob.glob("/tmp/toft-*/socket") + glob.glob("/run/**/*.sock", recursive=True):
    try:
        socket.socket(socket.AF_UNIX).connect(path)
        print("connected to", "its own" if path == own else path)
    except OSError:
        print("kept out of", path)
X
        (toft history --follow > /dev/null &); setsid sleep 600 & echo ready > ready; sleep 600"##,
        outside = outside.display()
    );
    let args = ["run", "--once", "--sandbox", "--", "bash", "-c", &script];
    let mut runner = agents::start(&home, &repo, &args[1..]);
    until(40, "it is there", || {
        home.run(home.path(), "sh", &["-c", "find . -name ready 2>/dev/null"]).contains("ready")
    });
    let id = issue(&home, &repo)["id"].as_str().unwrap().to_owned();
    let log = home.toft(&repo, &["show", &id, "--log", "--raw"]).ok();
    assert!(log.contains("kept out of") && log.matches("connected to").count() == 1, "{log}");
    assert!(log.contains("connected to its own"), "{log}");
    kill_runner(&home);
    let _ = runner.wait();
    agents::none_left(&home);
    drop(listener);
}

#[test]
fn an_agent_has_no_terminal_to_type_at() {
    for sandbox in ["", "--sandbox"] {
        let (home, repo) = with_kind("bubblewrap", &["Types"]);
        let agent = agents::script(
            &home,
            "agent.sh",
            "#!/bin/bash\n(exec 3<> /dev/tty) 2>/dev/null && echo has a terminal\ntoft finish --no-change looked\n",
        );
        let line = format!("{} run --once {sandbox} -- {agent}", toft_stories::toft_bin().display());
        // `script` gives it a terminal, as a person at a shell does.
        let ran = home.command(&repo, "script", &["-qec", &line, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
        let id = issue(&home, &repo)["id"].as_str().unwrap().to_owned();
        let log = home.toft(&repo, &["show", &id, "--log"]).ok();
        assert!(log.contains("is done") && !log.contains("has a terminal"), "{sandbox} {ran:?} {log}");
    }
}

#[test]
fn a_flood_of_connections_costs_nobody_a_lease() {
    let (home, repo) = with_kind("bubblewrap", &["Floods"]);
    let script = r##"python3 - <<'X'
import os, socket
path, key = os.environ["TOFT_SOCKET"].rsplit("#", 1)
held = []
for n in range(3000):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(0.05)
    try:
        s.connect(path); s.sendall(key.encode() + b"\nh")
        if n < 40: held.append(s)
        else: s.close()
    except OSError: pass
for s in held: s.close()
X
        for n in 1 2 3; do timeout 20 toft save -m "still here $n" || echo "refused $n"; done
        toft finish --no-change survived"##;
    let args = ["run", "--once", "--sandbox", "--ttl", "6s", "--", "bash", "-c", script];
    let line = format!("ulimit -n 256; exec {} \"$@\"", toft_stories::toft_bin().display());
    let ran = home.command(&repo, "sh", &[&["-c", &line, "sh"], &args[..]].concat()).output().unwrap();
    let id = issue(&home, &repo)["id"].as_str().unwrap().to_owned();
    let log = home.toft(&repo, &["show", &id, "--log"]).ok();
    assert!(log.matches("Saved checkpoint").count() == 3 && log.contains("is done"), "{ran:?}\n{log}");
}

#[test]
fn a_strict_sandbox_hides_keys_homes_and_tofts_files() {
    let (home, repo) = with_kind("bubblewrap", &["Strict"]);
    let user = home.path().join("home");
    fs::create_dir_all(user.join(".ssh")).unwrap();
    fs::write(user.join(".ssh/id_test"), "a-private-key\n").unwrap();
    fs::create_dir_all(user.join("tools")).unwrap();
    fs::write(user.join("tools/readme"), "may be read\n").unwrap();
    let script = format!(
        "cat ~/.ssh/id_test; cat ~/tools/readme; head -c 6 {}/.git/toft/toft.db && echo seen; cat /proc/$PPID/environ > /dev/null; \
         echo x > file; git add file; git commit -qm work; toft finish --evidence HEAD",
        repo.display()
    );
    let tools = user.join("tools").display().to_string();
    let options = ["--sandbox=strict", "--allow-read", &tools];
    let Some(said) = run_confined(&home, &repo, "bubblewrap", &options, &script) else { return };
    assert!(!said.contains("a-private-key") && said.contains("may be read") && !said.contains("seen"), "{said}");
    assert_eq!(issue(&home, &repo)["status"], "closed", "{said}");
}

/// A server on loopback that answers `hello` to everything.
fn greeter() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut read = [0; 4096];
            let _ = stream.read(&mut read);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n");
        }
    });
    port
}

/// Asks a server directly, through the proxy under two names, and with a tunnel.
fn knocking(port: u16) -> String {
    format!(
        r#"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo "open: directly"
        ask() {{ exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}; printf "$1" >&3; timeout 5 cat <&3; exec 3>&-; }}
        ask 'GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n' | grep -q hello && echo reached
        ask 'CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n' | grep -q hello && echo tunnelled
        ask 'GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost\r\n\r\n' | head -1
        ask 'CONNECT localhost:{port} HTTP/1.1\r\n\r\n' | head -1
        toft finish --no-change looked > /dev/null"#
    )
}

#[test]
fn an_agent_reaches_only_the_hosts_that_it_may() {
    let (home, repo) = with_kind("Landlock", &["Knocks"]);
    let options = ["--sandbox", "--allow-host", "127.0.0.1"];
    let said = home.toft(&repo, &[&["run", "--once"], &options[..], &["--", "true"]].concat()).fails(4);
    assert!(said.contains("no_sandbox") && said.contains("install bubblewrap"), "{said}");
    // Landlock knows no addresses.
    home.toft(&repo, &["run", "--sandbox=landlock", "--allow-host", "127.0.0.1", "--", "true"]).fails(2);
    let (home, repo) = with_kind("bubblewrap", &["Knocks"]);
    let script = knocking(greeter());
    let Some(said) = run_confined(&home, &repo, "bubblewrap", &options, &script) else { return };
    assert!(said.contains("reached") && said.contains("tunnelled") && !said.contains("open:"), "{said}");
    assert_eq!(said.matches("403 Forbidden").count(), 2, "{said}");
    for wrong in ["https://a.b/", "a.b:443", "*"] {
        home.toft(&repo, &["run", "--sandbox", "--allow-host", wrong, "--", "true"]).fails(2);
    }
    home.toft(&repo, &["run", "--sandbox", "--allow", "no/such/path", "--", "true"]).fails(2);
}

/// What podman needs on machines where limits cannot be raised, and an image with nothing but the machine's programs in it.
/// Nothing if podman cannot start a container here.
fn podman(home: &mut Home) -> Option<()> {
    let conf = home.path().join("containers.conf");
    let limits = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n";
    fs::write(&conf, format!("{limits}[engine]\nruntime = \"runc\"\n")).unwrap();
    home.set("CONTAINERS_CONF", conf.to_str().unwrap());
    // Images are kept apart from those of other tests.
    let storage = home.path().join("storage.conf");
    let (graph, run) = (home.path().join("graph"), home.path().join("containers-run"));
    let text =
        format!("[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n", graph.display(), run.display());
    fs::write(&storage, text).unwrap();
    home.set("CONTAINERS_STORAGE_CONF", storage.to_str().unwrap());
    let root = home.path().join("image");
    for dir in ["usr", "etc", "tmp", "proc", "sys", "dev", "root", "run"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for dir in ["bin", "sbin", "lib", "lib64"] {
        std::os::unix::fs::symlink(format!("usr/{dir}"), root.join(dir)).unwrap();
    }
    let tar = home.path().join("image.tar").display().to_string();
    home.run(&root, "tar", &["-cf", &tar, "."]);
    let volumes = ["--volume", "/usr:/usr:ro", "--volume", "/etc:/etc:ro"];
    let args = volumes.map(|word| format!("\"{word}\"")).join(", ");
    home.configure(format!("[run.container]\nimage = \"toft-test\"\nargs = [{args}]\n"));
    let works =
        ["podman import $0 toft-test", "podman run --rm --network none $1 toft-test true"].into_iter().all(|line| {
            let line = line.replace("$1", &volumes.join(" "));
            home.command(home.path(), "sh", &["-c", &line, &tar]).stdout(Stdio::null()).status().unwrap().success()
        });
    // A machine that forbids containers says so above; one without podman lacks what the gate installs.
    let installed = Command::new("podman").arg("--version").output().is_ok();
    assert!(installed || std::env::var_os("TOFT_TEST_ALL").is_none(), "podman is not installed; .ci/run installs it");
    works.then_some(())
}

#[test]
#[ignore = "wide: containers"]
fn an_agent_works_in_a_container() {
    let (mut home, repo) = started(&["Contained"]);
    if podman(&mut home).is_none() {
        println!("skipped: no podman");
        return;
    }
    let other = add(&home, &repo, &["Other", "-p", "P4"]);
    let script = format!(
        r#"for file in {repo}/.git/config {repo}/.git/hooks/evil; do
            (echo x >> $file) 2>/dev/null && echo "open: $file"
        done
        echo x > {repo}/evil; ls {repo}/.git/toft/toft.db 2>/dev/null && echo seen; ls {home} 2>/dev/null | grep -v workspaces
        toft claim {other} 2>&1 | grep confined; toft add "Found more" -q; toft save -m half
        echo x > file; git add file; git commit -qm work
        {knock}
        toft finish --evidence HEAD -m contained"#,
        repo = repo.display(),
        home = home.path().join("home").display(),
        knock = knocking(greeter()).replace("toft finish --no-change looked > /dev/null", ""),
    );
    let said = home
        .toft(&repo, &["run", "--once", "--in", "podman", "--allow-host", "127.0.0.1", "--", "bash", "-c", &script]);
    let log = said.log(&home, &repo);
    assert!(said.out.contains("podman: sees the image toft-test"), "{said:?}");
    let brief = home.run(&repo, "sh", &["-c", "cat .git/toft/attempts/*/*/brief.md"]);
    assert!(brief.contains("You are confined by podman"), "{brief}");
    home.toft(&repo, &["run", "--once", "--in", "podman", "--image", "no-such-image", "--", "true"])
        .refuses(2, "Nothing was claimed");
    assert!(!log.contains("open:") && !log.contains("seen") && log.contains("error[confined]"), "{log}");
    assert!(log.contains("reached") && log.contains("tunnelled") && !repo.join("evil").exists(), "{log}");
    assert_eq!(log.matches("403 Forbidden").count(), 2, "{log}");
    let all = data(&home, &repo, &["list", "--all"]).to_string();
    assert!(all.contains("Found more") && all.contains("\"closed\""), "{all} {log}");
    let commits = home.run(&repo, "git", &["log", "--all", "--format=%an %s"]);
    assert!(commits.contains("Ana work"), "the user's name is on its commits: {commits}");
}

#[test]
#[ignore = "wide: containers"]
fn jujutsu_and_mercurial_commit_in_a_sandbox_and_in_a_container() {
    for (vcs, commit) in [("jj", "jj commit -m work"), ("hg", "hg add -q && hg commit -m work")] {
        let mut home = Home::new();
        home.toft_on_path();
        let jj = home.run(home.path(), "sh", &["-c", "dirname $(command -v jj)"]).trim().to_owned();
        let contained = podman(&mut home).is_some();
        let config = home.path().join("home/.config/toft/config.toml");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, text.replace("args = [", &format!("args = [\"--volume\", \"{jj}:{jj}:ro\", "))).unwrap();
        let repo = home.path().join("work");
        fs::create_dir(&repo).unwrap();
        fs::write(repo.join("first"), "first\n").unwrap();
        match vcs {
            "jj" => {
                home.run(&repo, "jj", &["git", "init", "--quiet", "."]);
                home.run(&repo, "jj", &["commit", "--quiet", "-m", "first"]);
            }
            _ => {
                home.run(&repo, "hg", &["init"]);
                home.run(&repo, "hg", &["commit", "-q", "-A", "-m", "first"]);
            }
        }
        home.toft(&repo, &["init"]).ok();
        let mut kinds = vec![vec!["--sandbox"], vec!["--sandbox=strict"]];
        if contained {
            kinds.push(vec!["--in", "podman", "--offline"]);
        }
        for kind in kinds {
            let id = add(&home, &repo, &["Work"]);
            let script = format!(
                r#"PATH=$PATH:{jj}; (echo x >> {repo}/.{own}/config; echo x >> {repo}/.hg/hgrc; echo x >> {repo}/.{own}/toft/x) 2>/dev/null
                echo $RANDOM > file; {commit} && toft save -m half && toft finish -m done --evidence "$({head})""#,
                repo = repo.display(),
                own = if vcs == "jj" { "git" } else { "hg" },
                head = if vcs == "jj" { "jj log --no-graph -r @- -T commit_id" } else { "hg log -r . -T '{node}'" },
            );
            let said = home.toft(&repo, &[&["run", "--once"], &kind[..], &["--", "bash", "-c", &script]].concat());
            let log = home.toft(&repo, &["show", &id, "--log"]).ok();
            let shown = data(&home, &repo, &["show", &id]).to_string();
            assert!(said.code == 0 && shown.contains("\"closed\""), "{vcs} {kind:?}: {said:?}\n{log}");
            let touched = fs::read_to_string(repo.join(".git/config")).unwrap_or_default().contains("x\n[");
            assert!(!repo.join(".hg/hgrc").exists() && !touched, "{vcs} {kind:?}");
        }
    }
}

/// Kills supervisor, runner and slot at once.
fn kill_runner(home: &Home) {
    let ours =
        |line: &String| line.contains("toft run --once") && !line.contains("podman run") && !line.contains("bwrap");
    let own = agents::left_over(home).into_iter().filter(ours);
    let own: Vec<String> = own.map(|line| line.split_once(' ').unwrap().0.to_owned()).collect();
    assert!(own.len() >= 3, "supervisor, runner and slot: {own:?}");
    Command::new("kill").arg("-9").args(&own).status().unwrap();
}

/// The containers that run.
fn containers(home: &Home) -> usize {
    home.run(home.path(), "podman", &["ps", "-q"]).lines().count()
}

#[test]
#[ignore = "wide: containers"]
fn a_container_ends_with_its_attempt() {
    let (mut home, repo) = started(&["Endless"]);
    if podman(&mut home).is_none() {
        println!("skipped: no podman");
        return;
    }
    // It ignores what it is told, and has a child that left its group.
    let script = "trap '' TERM; setsid sleep 600 & while :; do sleep 0.2; date > alive; done";
    let args =
        ["run", "--once", "--in", "podman", "--offline", "--ttl", "6s", "--grace", "1s", "--", "bash", "-c", script];
    let start = || home.start(&repo, &args);
    let alive =
        || !home.run(home.path(), "sh", &["-c", "find . -name alive -newermt '-2 seconds' 2>/dev/null"]).is_empty();
    // Everything that toft started is killed at once.
    let mut runner = start();
    until(40, "it works", || containers(&home) == 1 && alive());
    let own = agents::left_over(&home)
        .into_iter()
        .filter(|line| line.contains("toft run --once") && !line.contains("podman run"));
    let own: Vec<String> = own.map(|line| line.split_once(' ').unwrap().0.to_owned()).collect();
    assert!(own.len() >= 3, "supervisor, runner and slot: {own:?}");
    Command::new("kill").arg("-9").args(&own).status().unwrap();
    let _ = runner.wait();
    until(40, "the container is gone", || containers(&home) == 0);
    until(40, "the task is free", || !home.toft(&repo, &["ready", "-q"]).out.trim().is_empty());
    // A person stops it.
    let mut runner = start();
    until(40, "it works again", || containers(&home) == 1 && alive());
    let id = issue(&home, &repo)["id"].as_str().unwrap().to_owned();
    home.toft(&repo, &["stop", &id]).ok();
    until(40, "the container is gone again", || containers(&home) == 0);
    runner.wait().unwrap();
}

#[test]
#[ignore = "wide: containers"]
fn a_command_of_ones_own_is_a_container_too() {
    let (home, repo) = started(&["Wrapped"]);
    agents::script(&home, "bin/wrap", "#!/bin/sh\necho \"wrapped in $1\"; shift\nexec \"$@\"\n");
    let script = "toft claim 2>&1 | grep confined; toft finish --no-change looked";
    let said = home.toft(&repo, &["run", "--once", "--in", "wrap {workspace}", "--", "sh", "-c", script]);
    let log = said.log(&home, &repo);
    assert!(log.contains("wrapped in /") && log.contains("error[confined]"), "{log}");
    assert_eq!(issue(&home, &repo)["status"], "closed", "{log}");
    for (args, why) in [
        (&["run", "--in", "podman", "--", "true"][..], "no image"),
        (&["run", "--in", "no-such-program", "--", "true"], "was not found"),
        (&["run", "--allow-host", "x", "--", "true"], "--allow-host"),
    ] {
        home.toft(&repo, args).refuses(2, why);
    }
}

#[test]
#[ignore = "wide: coding agents"]
fn real_clients_work_in_a_sandbox_that_reaches_their_model_only() {
    for client in ["claude", "codex"] {
        let Some(mut lab) = Lab::new(client) else { return };
        if Command::new("bwrap").arg("--version").output().is_err() {
            println!("skipped: no bubblewrap");
            return;
        }
        let model = Model::start(work("confined"));
        lab.talk_to(&model);
        let id = add(&lab.home, &lab.repo, &["Say hello", "-d", "greeting.txt has to contain hello"]);
        let clients = fs::canonicalize(toft_stories::lab::installed(client).unwrap().join("../..")).unwrap();
        let clients = clients.display().to_string();
        let options = ["--sandbox=strict", "--allow-host", "127.0.0.1", "--allow-read", &clients];
        let args = [&["run", "--once", "--agent", client], &options[..]].concat();
        let said = lab.home.toft(&lab.repo, &args);
        let log = lab.home.toft(&lab.repo, &["show", &id, "--log"]).ok();
        assert_eq!(lab.issue(&id)["status"], "closed", "{client}: {said:?}\n{log}");
        assert!(model.heard().contains("passed-42"), "{client}: {log}");
    }
}
