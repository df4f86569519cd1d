//! What is secret is kept nowhere: not in logs, however it is written, and not in what sets a workspace up.
#![cfg(unix)]

use toft_stories::prelude::*;

const SECRET: &str = "hunter2hunter2hunter2";

/// Files below the repository's state that have a text in them, and what they say around it.
fn kept(home: &Home, repo: &std::path::Path, text: &str) -> Vec<String> {
    let found = snapshot(&repo.join(".git/toft")).into_iter().filter_map(|(path, content)| {
        let content = String::from_utf8_lossy(&content).into_owned();
        let at = content.find(text)?;
        let around: String = content.chars().skip(at.saturating_sub(60)).take(120).collect();
        Some(format!("{}: {around}", path.strip_prefix(home.path()).unwrap().display()))
    });
    found.collect()
}

/// repro/core 12 and 13.
#[test]
fn a_secret_is_masked_however_reads_and_lines_divide_it() {
    let (mut home, repo) = started(&["Task"]);
    home.set("GITHUB_TOKEN", SECRET);
    let agent = agents::script(
        &home,
        "agent.py",
        r#"#!/usr/bin/env python3
import os, sys, time
s = os.environ['GITHUB_TOKEN'].encode()
os.write(1, b"plain " + s + b"\n")
os.write(1, b"x" * (65536 - 10) + s + b"\n")
os.write(1, b"y" * 65536); time.sleep(.2); os.write(1, b"y" * 65535 + s[:1]); time.sleep(.2); os.write(1, s[1:] + b" end of line\n")
os.write(2, b"split " + s[:9]); time.sleep(.2); os.write(2, s[9:] + b"\n")
os.write(1, b"clone https://ana:pw-of-ana@example.org/x.git\n")
os.write(1, b"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEAkeykeykey\nabcdefghijklmnop==\n-----END RSA PRIVATE KEY-----\nafter the key\n")
open(os.environ['TOFT_REPORT'], 'w').write('{"message": "used %s"}' % s.decode())
os.system('git commit -q --allow-empty -m x')
"#,
    );
    home.toft(&repo, &["run", "--once", "--", &agent]).ok();
    for text in [&SECRET[..12], &SECRET[3..], "pw-of-ana", "MIIEow", "abcdefghijklmnop"] {
        assert!(kept(&home, &repo, text).is_empty(), "{text}: {:?}", kept(&home, &repo, text));
    }
    let task = data(&home, &repo, &["list", "tasks", "--all"])[0]["id"].as_str().unwrap().to_owned();
    let log = home.toft(&repo, &["show", &task, "--log"]).ok();
    for text in ["plain [masked]", "split [masked]", "https://ana:[masked]@example.org", "after the key"] {
        assert!(
            log.contains(text),
            "{text}: {}",
            log.chars().filter(|letter| !"xy".contains(*letter)).collect::<String>()
        );
    }
    assert!(home.toft(&repo, &["show", &task]).ok().contains("used [masked]"));
}

/// repro/core 12: setup logs.
#[test]
fn what_sets_a_workspace_up_keeps_no_secret() {
    use std::os::unix::fs::PermissionsExt as _;
    let (mut home, repo) = started(&["Task"]);
    home.set("GITHUB_TOKEN", SECRET);
    let run = r#"run = ["echo setup says $GITHUB_TOKEN", "echo more >&2; sleep 0.2; echo done"]"#;
    home.configure(format!("[workspaces.setup]\n{run}\n"));
    home.toft(&repo, &["run", "--once", "--", "git", "commit", "-q", "--allow-empty", "-m", "x"]).ok();
    assert!(kept(&home, &repo, SECRET).is_empty(), "{:?}", kept(&home, &repo, SECRET));
    let (path, log) =
        snapshot(&repo.join(".git/toft")).into_iter().find(|(path, _)| path.ends_with("setup.log")).unwrap();
    let log = String::from_utf8(log).unwrap();
    assert!(log.contains("setup says [masked]") && log.contains("more\ndone"), "{log}");
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}
