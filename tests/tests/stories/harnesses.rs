//! Wiring toft into coding agents: their own files keep everything else, every byte comes back, and the hooks fire.
#![cfg(unix)]

use toft_stories::prelude::*;

/// Files as people really have them: comments, tabs, trailing commas, other line ends, no last line end, odd order.
const FIXTURES: [(&str, &str); 17] = [
    ("CLAUDE.md", "# My rules\n\nNever push on Fridays.   \n\n\n"),
    (".claude/CLAUDE.md", "no line end"),
    ("AGENTS.md", "# Agents\r\n\r\n* be kind\r\n"),
    (".codex/AGENTS.md", ""),
    ("GEMINI.md", "\n\n# Gemini\n"),
    (".gemini/GEMINI.md", "mine\n"),
    (".mcp.json", "{\n\t\"mcpServers\" : {\n\t\t\"other\":{\"command\":\"x\",\"args\":[ ]} // mine\n\t}\n}"),
    (".claude.json", r#"{"numStartups":7,"projects":{"/x":{"allowedTools":[]}},"mcpServers":{}}"#),
    (
        ".claude/settings.json",
        "{\n    // what I allow\n    \"permissions\": { \"allow\": [\"Bash(ls:*)\",] },\n    \"hooks\": {\n        \"Stop\": [\n            { \"hooks\": [ { \"type\": \"command\", \"command\": \"say done\" } ] }, /* mine */\n        ],\n    },\n}\n",
    ),
    (
        ".codex/config.toml",
        "# mine\nmodel='o9'   # why\n\n[mcp_servers . other]\ncommand = 'y'\n\n[profiles.\"a b\"]\nx = 1\n",
    ),
    (".codex/hooks.json", "{ }\n"),
    (
        ".gemini/settings.json",
        "{\"theme\":\"x\",\"hooks\":{\"enabled\":[\"a\"]}, \"mcpServers\":{\"a\":{\"url\":\"u\"}}}\n\n",
    ),
    (".cursor/mcp.json", "{\r\n  \"mcpServers\": {\r\n    \"a\": { \"command\": \"b\" }\r\n  }\r\n}\r\n"),
    (".cursor/hooks.json", "{\"hooks\":{\"stop\":[{\"command\":\"mine\"}]},\"version\":1}"),
    (".vscode/mcp.json", "// mine\n{ \"inputs\": [], \"servers\": { } }\n"),
    (".copilot/mcp-config.json", "{\n  \"mcpServers\": {\n    \"b\": { \"command\": \"c\" }\n  }\n}\n"),
    (
        "opencode.json",
        "{\n  \"$schema\": \"https://opencode.ai/config.json\",\n  /* mine */ \"mcp\": {},\n  \"theme\": \"x\"\n}\n",
    ),
];

fn lay(root: &Path) {
    for (name, text) in FIXTURES {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Everything but what belongs to git and to toft itself.
fn own_files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let ours = |path: &Path| path.starts_with(root.join(".git")) || path.starts_with(root.join(".local"));
    snapshot(root).into_iter().filter(|(path, _)| !ours(path)).collect()
}

#[test]
fn every_byte_comes_back_in_a_checkout_and_at_home() {
    for user in [false, true] {
        for laid in [false, true] {
            let mut home = Home::new();
            home.toft_on_path();
            let repo = home.repo("api");
            let root = if user { home.path().join("home") } else { repo.clone() };
            if laid {
                lay(&root);
            }
            let before = own_files(&root);
            let words = |more: &[&'static str]| {
                let mut words = vec!["setup"];
                words.extend(user.then_some("--user"));
                words.extend(more);
                words
            };
            home.toft(&repo, &words(&["--all"])).says_all(&["Nothing was written; use --yes", "+"]);
            assert_eq!(own_files(&root), before, "showing writes nothing");
            home.toft(&repo, &words(&["--all", "-y"])).says("Connected toft to");
            let after = own_files(&root);
            assert_ne!(after, before);
            for (name, text) in FIXTURES.iter().filter(|_| laid) {
                let now = fs::read_to_string(root.join(name)).unwrap();
                for kept in ["mine", "// mine", "/* mine */", "# why", "// what I allow", "be kind", "on Fridays.   \n"]
                {
                    assert_eq!(now.contains(kept), text.contains(kept), "{name}: `{kept}`:\n{now}");
                }
            }
            let again = home.toft(&repo, &words(&["--all", "-y"])).ok();
            assert!(again.contains("Nothing to change"), "{again}");
            assert_eq!(own_files(&root), after, "again changes nothing");
            home.toft(&repo, &words(&["--remove", "-y"])).ok();
            assert_eq!(own_files(&root), before, "user {user}, laid {laid}");
            home.toft(&repo, &words(&["--remove", "-y"])).says("Nothing to remove");
        }
    }
}

#[test]
fn a_file_that_cannot_be_read_stops_everything_before_anything_is_written() {
    let (home, repo) = started(&[]);
    fs::create_dir(repo.join(".claude")).unwrap();
    fs::write(repo.join(".claude/settings.json"), "{ \"hooks\": [ }").unwrap();
    let before = own_files(&repo);
    home.toft(&repo, &["setup", "claude", "-y"]).refuses(1, ".claude/settings.json cannot be changed");
    assert_eq!(own_files(&repo), before);
    assert!(home.toft(&repo, &["setup", "hal"]).fails(2).contains("claude, codex, gemini"));
}

/// The command lines that a harness would run for its events, from its own file.
fn hooks_of(root: &Path, file: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(root.join(file)).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let mut found = Vec::new();
    for (event, entries) in value["hooks"].as_object().unwrap() {
        for entry in entries.as_array().unwrap() {
            let line = entry["command"].as_str().or(entry["bash"].as_str()).or(entry["hooks"][0]["command"].as_str());
            found.push((event.clone(), line.unwrap().to_owned()));
        }
    }
    found
}

struct Session<'a> {
    home: &'a Home,
    repo: &'a Path,
    hooks: Vec<(String, String)>,
    times: Vec<Duration>,
}

impl Session<'_> {
    /// Runs the hook for an event as the harness does, with its event on standard input.
    fn fire(&mut self, names: &[&str], more: &Value) -> Value {
        let (event, line) = self
            .hooks
            .iter()
            .find(|(event, _)| names.contains(&event.as_str()))
            .unwrap_or_else(|| panic!("none of {names:?} in {:?}", self.hooks));
        let mut input = json!({
            "session_id": "0f3c-1", "sessionId": "0f3c-1", "conversation_id": "0f3c-1", "cwd": self.repo,
            "hook_event_name": event, "transcript_path": "/nowhere/transcript.jsonl", "permission_mode": "default",
            "tool_name": "Bash", "tool_input": { "command": "ls" }, "tool_response": { "stdout": "x".repeat(20_000) },
            "timestamp": "2026-11-15T12:00:00Z", "prompt": "go on",
        });
        input.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        let mut command = self.home.command(self.repo, "sh", &["-c", line]);
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        self.times.push(begun.elapsed());
        assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        if said.trim().is_empty() { Value::Null } else { serde_json::from_str(&said).unwrap_or(Value::String(said)) }
    }
}

const START: [&str; 2] = ["SessionStart", "sessionStart"];
const TOOLS: [&str; 3] = ["PostToolUse", "AfterTool", "postToolUse"];
const STOP: [&str; 4] = ["Stop", "AfterAgent", "stop", "agentStop"];
const END: [&str; 2] = ["SessionEnd", "sessionEnd"];

/// What the agent is told, wherever the harness looks for it.
fn context(reply: &Value) -> String {
    let places =
        [&reply["hookSpecificOutput"]["additionalContext"], &reply["additional_context"], &reply["additionalContext"]];
    places.into_iter().find_map(Value::as_str).unwrap_or_default().to_owned()
}

#[test]
fn hooks_fire_as_each_harness_would_fire_them() {
    for (harness, file, stop) in [
        ("claude", ".claude/settings.json", "block"),
        ("codex", ".codex/hooks.json", "block"),
        ("gemini", ".gemini/settings.json", "deny"),
        ("antigravity", ".agents/hooks.json", "deny"),
        ("cursor", ".cursor/hooks.json", ""),
        ("copilot", ".github/hooks/toft.json", "block"),
    ] {
        let mut home = Home::new();
        home.toft_on_path();
        let repo = home.repo("api");
        home.toft(&repo, &["add", "Pin the schema"]).ok();
        home.toft(&repo, &["setup", harness, "-y"]).ok();
        home.toft(&repo, &["doctor"]).says(format!("{file}: all "));
        let hooks = hooks_of(&repo, file);
        let mut session = Session { home: &home, repo: &repo, hooks, times: Vec::new() };

        let primed = context(&session.fire(&START, &json!({ "source": "startup" })));
        assert!(primed.contains("Pin the schema") && primed.contains("--as "), "{harness}: {primed}");
        let me = primed.split("you are ").nth(1).unwrap().split([',', ' ', '\n']).next().unwrap().to_owned();
        let agents = home.toft(&repo, &["agent", "list", "-q"]).ok();
        assert!(agents.lines().any(|name| name == me), "{harness}: {me} in {agents}");

        home.toft(&repo, &["--as", &me, "claim"]).ok();
        home.toft(&repo, &["agent", "send", &me, "use the new index"]).ok();
        let told = context(&session.fire(&TOOLS, &json!({})));
        assert!(told.contains("use the new index") && told.contains("<data from="), "{harness}: {told}");
        let again = session.fire(&TOOLS, &json!({}));
        assert_eq!(context(&again), "", "{harness}: a letter comes once");
        if harness == "gemini" {
            assert_eq!(again, json!({}), "only JSON may be said");
        }

        let reminded = session.fire(&STOP, &json!({ "stop_hook_active": false }));
        let reason = reminded["reason"].as_str().or(reminded["followup_message"].as_str()).unwrap_or_default();
        assert!(reason.contains("You still hold tk_") && reason.contains("Pin the schema"), "{harness}: {reminded}");
        assert_eq!(reminded["decision"].as_str().unwrap_or_default(), stop, "{harness}");
        let quiet = session.fire(&STOP, &json!({ "stop_hook_active": false }));
        assert!(quiet.is_null() || quiet == json!({}), "{harness}: reminded once: {quiet}");

        if let Some((event, _)) =
            session.hooks.iter().find(|(event, _)| event.to_lowercase().starts_with("precomp")).cloned()
        {
            session.fire(&[&event], &json!({ "trigger": "auto" }));
            home.toft(&repo, &["show", "@", "--as", &me]).says("context was cut here");
            let resumed = context(&session.fire(&START, &json!({ "source": "compact" })));
            assert!(resumed.contains("context was cut here"), "{harness}: {resumed}");
        }
        if session.hooks.iter().any(|(event, _)| END.contains(&event.as_str())) {
            session.fire(&END, &json!({ "reason": "exit" }));
            let ready = home.toft(&repo, &["ready"]).ok();
            assert!(ready.contains("Pin the schema"), "{harness}: what the session held is free: {ready}");
        }
        session.times.sort();
        let median = session.times[session.times.len() / 2];
        let beside = median_of_ready(&home, &repo);
        eprintln!(
            "{harness}: {} hooks, median {median:?} beside {beside:?} of `toft ready`, slowest {:?}",
            session.times.len(),
            session.times.last().unwrap()
        );
        assert!(median < beside * 10, "{harness}: {median:?} beside {beside:?}");
    }
}

/// What a command that reads takes on this machine now: how long a hook may take is a ratio to it.
fn median_of_ready(home: &Home, repo: &Path) -> Duration {
    let mut times: Vec<Duration> = (0..7)
        .map(|_| {
            let begun = Instant::now();
            home.toft(repo, &["ready"]);
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

#[test]
fn a_hook_is_never_in_the_way() {
    let (home, repo) = started(&[]);
    let plain = home.path().join("plain");
    fs::create_dir(&plain).unwrap();
    let quiet = |dir: &Path, words: &[&str], input: &str| {
        let mut command = home.command(dir, "toft", words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // It may have ended without reading.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(quiet(&plain, &["hook", "SessionStart"], "{}"), "");
    assert_eq!(quiet(&repo, &["hook", "NoSuchEvent"], "{}"), "");
    assert_eq!(quiet(&repo, &["hook", "Stop", "--for", "hal"], "not json"), "");
    assert_eq!(quiet(&repo, &["hook", "Stop"], &"x".repeat(3 << 20)), "");
    // A store that cannot be opened, and configuration that cannot be read.
    let store = repo.join(".git/toft/toft.db");
    for beside in ["toft.db-wal", "toft.db-shm"] {
        let _ = fs::remove_file(store.with_file_name(beside));
    }
    fs::write(&store, "this is no database").unwrap();
    assert_eq!(quiet(&repo, &["hook", "SessionStart"], "{}"), "");
    fs::write(repo.join(".git/toft/config.toml"), "lease = 7").unwrap();
    assert_eq!(quiet(&repo, &["hook", "SessionStart", "--for", "gemini"], "{}").trim(), "{}");
    // Where nobody says an event and nobody closes the pipe, it does not wait for ever.
    let mut command = home.command(&plain, "toft", &["hook", "SessionStart"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let held = child.stdin.take();
    let begun = Instant::now();
    assert!(child.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(held);
}

#[test]
fn a_session_tells_its_shell_who_it_is_and_its_lease_follows_the_harness() {
    let (home, repo) = started(&[]);
    home.toft(&repo, &["add", "Held by a session"]).ok();
    // The harness is a process that is no shell: it runs the hook, then a command with what the hook left.
    let script = r#"
import os, subprocess, sys
env = dict(os.environ, CLAUDE_ENV_FILE=os.path.join(os.environ["HOME"], "env.sh"))
hook = "toft hook SessionStart --for claude"
subprocess.run(["sh", "-c", hook], input=b'{"session_id":"s-1","source":"startup"}', env=env, check=True, stdout=subprocess.DEVNULL)
subprocess.run(["sh", "-c", ". $CLAUDE_ENV_FILE; toft claim"], env=env, check=True)
print(open(env["CLAUDE_ENV_FILE"]).read(), flush=True)
sys.stdin.read()
"#;
    let mut command = home.command(&repo, "python3", &["-c", script]);
    let mut harness = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(harness.stdout.take().unwrap()));
    let mut said = String::new();
    while !said.contains("TOFT_PID=") {
        said.push_str(&lines.next().unwrap().unwrap());
        said.push('\n');
    }
    assert!(said.contains(&format!("TOFT_PID={}", harness.id())), "{said}");
    assert_eq!(home.toft(&repo, &["claim"]).code, 6, "it is held");
    harness.kill().unwrap();
    harness.wait().unwrap();
    home.toft(&repo, &["claim"]).ok();
}

#[test]
fn the_doctor_runs_nothing_that_a_repository_brings() {
    let (home, repo) = started(&[]);
    fs::create_dir(repo.join(".claude")).unwrap();
    let evil = home.path().join("evil");
    let line = format!("id > {} # toft hook Stop --for claude", evil.display());
    let text = json!({ "hooks": { "Stop": [{ "hooks": [{ "type": "command", "command": line }] }] } });
    fs::write(repo.join(".claude/settings.json"), text.to_string()).unwrap();
    home.toft(&repo, &["doctor"]).says("differs from what toft writes, and is not run");
    assert!(!evil.exists());
}

#[test]
fn what_was_kept_of_private_files_stays_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let (home, repo) = started(&[]);
    let private = home.path().join("home/.claude.json");
    fs::write(&private, "{\"token\": \"s3cr3t-s3cr3t\"}\n").unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    home.toft(&repo, &["setup", "claude", "--user", "-y"]).ok();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&private), 0o600);
    for (path, text) in snapshot(&home.path().join("home")) {
        if String::from_utf8_lossy(&text).contains("s3cr3t-s3cr3t") {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}
