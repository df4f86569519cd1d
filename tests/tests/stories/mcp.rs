//! `toft mcp` with a real client for every revision, with a hostile one, and with one that dies.
#![cfg(unix)]

use std::process::{ChildStdin, ChildStdout};

use toft_stories::prelude::*;

/// Python with the official client; `.ci/run` installs it.
fn python() -> Option<PathBuf> {
    let known = tool_dir("mcp").join("bin/python");
    let found = std::env::var_os("TOFT_MCP_PYTHON").map_or(known, PathBuf::from);
    let there = found.exists();
    assert!(there || std::env::var_os("TOFT_TEST_ALL").is_none(), "{} is not there", found.display());
    there.then_some(found)
}

#[test]
#[ignore = "wide: the official client"]
fn the_official_client_works_over_every_revision() {
    let Some(python) = python() else { return };
    let (home, repo) = Home::with_repository("api");
    let script = toft_stories::stories_dir().join("mcp/client.py");
    let words = [script.to_str().unwrap(), toft_bin().to_str().unwrap(), repo.to_str().unwrap()].map(str::to_owned);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let talks: Value = serde_json::from_str(&home.run(&repo, python.to_str().unwrap(), &words)).unwrap();
    let talks = talks.as_array().unwrap();
    let spoken: Vec<&str> = talks.iter().map(|talk| talk["spoken"].as_str().unwrap()).collect();
    assert_eq!(spoken, ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "2026-07-28"]);
    for talk in talks {
        let says = |name: &str, text: &str| {
            assert!(talk[name].as_str().unwrap().contains(text), "{}: {name}: {}", talk["revision"], talk[name]);
        };
        let issue = talk["issue"].as_str().unwrap();
        says("primed", "you are heron");
        says("ready", issue);
        says("saved", "Saved checkpoint 1");
        says("context", "half of it");
        says("found", issue);
        says("read", "said over the protocol");
        assert_eq!(talk["claim"]["issue"]["id"], issue);
        assert_eq!(talk["refused"]["is_error"], true);
        assert_eq!(talk["refused"]["data"]["error"]["code"], "needs_evidence");
        assert_eq!(talk["done"]["is_error"], false, "{}", talk["done"]);
        assert!(talk["wrong"]["text"].as_str().unwrap().contains("takes no `colour`"));
        assert_eq!(talk["missing"], "MCPError");
        assert_eq!(talk["templates"], json!(["toft://issue/{id}", "toft://flow/{id}"]));
    }
    let closed = home.toft(&repo, &["list", "--status", "closed", "-q"]).ok();
    assert_eq!(closed.lines().count(), talks.len());
    assert_eq!(home.toft(&repo, &["agent", "inbox", "--human", "-q"]).ok().lines().count(), talks.len());
}

/// A client that speaks lines.
struct Client {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Client {
    fn start(home: &Home, repo: &Path) -> Self {
        let mut command = home.command(repo, toft_bin(), &["mcp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from }
    }

    fn raw(&mut self, bytes: &[u8]) {
        let to = self.to.as_mut().unwrap();
        to.write_all(bytes).unwrap();
        to.write_all(b"\n").unwrap();
        to.flush().unwrap();
    }

    /// A request of the stateless revision.
    fn ask(&mut self, id: u64, method: &str, params: Value) {
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        self.raw(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string().as_bytes());
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// What comes for this request, whatever comes before it.
    fn answer(&mut self, id: u64) -> Value {
        loop {
            let heard = self.hear();
            if heard["id"] == id {
                return heard;
            }
        }
    }
}

#[test]
fn all_tools_together_cost_less_than_two_thousand_tokens() {
    let (home, repo) = Home::with_repository("api");
    let mut client = Client::start(&home, &repo);
    client.ask(1, "tools/list", json!({}));
    let tools = client.answer(1)["result"]["tools"].clone();
    let count = tokens(&tools.to_string());
    eprintln!("{count} tokens in {} bytes", tools.to_string().len());
    assert!(count < 2_000, "{count} tokens");
    insta::assert_snapshot!(format!("{tools:#}"));
    let names: Vec<&str> = tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let expected = [
        "prime",
        "ready",
        "claim",
        "show",
        "search",
        "add",
        "edit",
        "save",
        "finish",
        "review",
        "message",
        "flow",
        "workspace",
    ];
    assert_eq!(names, expected);
    for tool in tools.as_array().unwrap() {
        let read_only = ["ready", "show", "search"].contains(&tool["name"].as_str().unwrap());
        assert_eq!(tool["annotations"]["readOnlyHint"] == true, read_only, "{tool}");
        assert_eq!(tool["annotations"]["destructiveHint"] == true, tool["name"] == "workspace", "{tool}");
        for everywhere in ["cwd", "agent"] {
            assert_eq!(tool["inputSchema"]["properties"][everywhere]["type"], "string");
        }
    }
}

#[test]
fn a_hostile_client_gets_errors_and_a_good_one_after_it_answers() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["add", "Still here"]).ok();
    let mut client = Client::start(&home, &repo);
    client.ask(1, "tools/list", json!({}));
    client.answer(1);
    let huge =
        format!(r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"{}"}}}}"#, "x".repeat(6 << 20));
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    for line in [
        b"{not json".to_vec(),
        b"".to_vec(),
        b"\xff\xfe\x00\x01".to_vec(),
        b"[]".to_vec(),
        b"null".to_vec(),
        b"42".to_vec(),
        br#"{"jsonrpc":"1.0","id":3,"method":"tools/list"}"#.to_vec(),
        br#"{"jsonrpc":"2.0","id":{"a":1},"method":"tools/list"}"#.to_vec(),
        br#"{"jsonrpc":"2.0","method":"notifications/unknown"}"#.to_vec(),
        br#"{"jsonrpc":"2.0","id":999,"result":{}}"#.to_vec(),
        huge.into_bytes(),
        deep.into_bytes(),
    ] {
        client.raw(&line);
    }
    client.ask(10, "no/such/method", json!({}));
    assert!(client.answer(10)["error"]["code"].is_number());
    client.ask(11, "tools/call", json!({ "name": "rm -rf", "arguments": {} }));
    assert!(client.answer(11)["error"]["message"].as_str().unwrap().contains("there is no tool"));
    let wrong = [
        json!({ "name": "add", "arguments": { "title": { "not": "a text" } } }),
        json!({ "name": "add", "arguments": { "title": "-" } }),
        json!({ "name": "add", "arguments": {} }),
        json!({ "name": "flow", "arguments": { "action": "abandon" } }),
        json!({ "name": "ready", "arguments": { "limit": -1 } }),
        json!({ "name": "ready", "arguments": { "cwd": "/no/such/dir" } }),
        json!({ "name": "show", "arguments": { "id": "--help" } }),
        json!({ "name": "claim", "arguments": { "agent": "--json" } }),
    ];
    for (n, call) in wrong.iter().enumerate() {
        let id = 20 + n as u64;
        client.ask(id, "tools/call", call.clone());
        let answer = client.answer(id);
        let refused = answer["result"]["isError"] == true || answer["error"].is_object();
        assert!(refused, "{call}: {answer}");
    }
    // Many at once, whose answers may come in any order.
    for id in 100..160 {
        let title = format!("{id} --as-flag\u{1b}[31m\0{}", "é".repeat(100));
        client.ask(id, "tools/call", json!({ "name": "add", "arguments": { "title": title.replace('\0', "") } }));
    }
    let mut open: std::collections::BTreeSet<u64> = (100..160).collect();
    while !open.is_empty() {
        let heard = client.hear();
        assert_eq!(heard["result"]["isError"], false, "{heard}");
        assert!(open.remove(&heard["id"].as_u64().unwrap()), "{heard} came twice");
    }
    client.ask(200, "tools/call", json!({ "name": "search", "arguments": { "text": "Still here" } }));
    let answer = client.answer(200);
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("Still here"), "{answer}");
    assert_eq!(home.toft(&repo, &["list", "-q", "--limit", "1000"]).ok().lines().count(), 61);
    client.to.take();
    assert!(client.child.wait().unwrap().success());
}

#[test]
fn a_request_of_several_megabytes_gets_an_answer() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "Ship", "--task", "A"]).ok();
    let mut client = Client::start(&home, &repo);
    client.ask(1, "tools/call", json!({ "name": "claim", "arguments": {} }));
    assert_eq!(client.answer(1)["result"]["isError"], false);
    client.ask(2, "tools/call", json!({ "name": "save", "arguments": { "message": "x".repeat(5 << 20) } }));
    let answer = client.answer(2);
    assert!(answer["result"].is_object() || answer["error"].is_object(), "{answer}");
    client.ask(3, "tools/call", json!({ "name": "ready", "arguments": {} }));
    assert_eq!(client.answer(3)["result"]["isError"], false);
    client.to.take();
    assert!(client.child.wait().unwrap().success());
}

#[test]
fn when_its_client_is_killed_the_server_ends_and_the_task_is_free() {
    let (home, repo) = Home::with_repository("api");
    let id = home.toft(&repo, &["add", "Held over the protocol", "-q"]).ok();
    let script = r#"
import json, subprocess, sys, time
server = subprocess.Popen([sys.argv[1], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "claim", "arguments": {"agent": "heron"}, "_meta": meta}}
server.stdin.write(json.dumps(call).encode() + b"\n"); server.stdin.flush()
assert not json.loads(server.stdout.readline())["result"]["isError"]
print(server.pid, flush=True)
time.sleep(1000)
"#;
    let mut command = home.command(&repo, "python3", &["-c", script, toft_bin().to_str().unwrap()]);
    let mut client = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(client.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let server = PathBuf::from(format!("/proc/{}", line.trim()));
    assert!(server.exists(), "{line}");
    assert_eq!(home.toft(&repo, &["claim"]).code, 6, "it is held");
    client.kill().unwrap();
    client.wait().unwrap();
    let over =
        |dir: &Path| std::fs::read_to_string(dir.join("stat")).is_ok_and(|stat| stat.contains(") Z ")) || !dir.exists();
    until(5, "the server ends with its client", || over(&server));
    home.toft(&repo, &["claim", id.trim()]).says("Held over the protocol");
}

/// A request of a client that declares the tasks extension.
fn with_tasks(client: &mut Client, id: u64, method: &str, mut params: Value) {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": { "extensions": { "io.modelcontextprotocol/tasks": {} } },
    });
    client.raw(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string().as_bytes());
}

#[test]
fn a_claim_that_waits_is_a_task_for_clients_that_know_tasks() {
    let (home, repo) = Home::with_repository("api");
    let mut client = Client::start(&home, &repo);
    let claim = |wait: u64| json!({ "name": "claim", "arguments": { "agent": "heron", "cwd": repo, "wait": wait } });
    with_tasks(&mut client, 1, "tools/call", claim(60));
    let begun = client.answer(1)["result"].clone();
    assert_eq!((begun["resultType"].as_str(), begun["status"].as_str()), (Some("task"), Some("working")), "{begun}");
    let task = begun["taskId"].clone();
    let asked = |client: &mut Client, id: u64| {
        with_tasks(client, id, "tasks/get", json!({ "taskId": task }));
        client.answer(id)["result"].clone()
    };
    assert_eq!(asked(&mut client, 2)["status"], "working");
    home.toft(&repo, &["add", "Something to do"]).ok();
    let (mut id, mut done) = (2, Value::Null);
    until(20, "it has claimed", || {
        id += 1;
        done = asked(&mut client, id);
        done["status"] != "working"
    });
    assert!(done["status"] == "completed" && done.to_string().contains("Something to do"), "{done}");
    // One that is cancelled claims nothing.
    with_tasks(&mut client, 100, "tools/call", claim(3600));
    let task = client.answer(100)["result"]["taskId"].clone();
    with_tasks(&mut client, 101, "tasks/cancel", json!({ "taskId": task }));
    assert!(client.answer(101)["error"].is_null());
    let mut id = 101;
    until(20, "it is cancelled", || {
        id += 1;
        with_tasks(&mut client, id, "tasks/get", json!({ "taskId": task }));
        client.answer(id)["result"]["status"] != "working"
    });
    let other = home.toft(&repo, &["add", "For another agent", "-q"]).ok();
    // Long enough for a claim that still waits to get it.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert!(home.toft(&repo, &["ready", "-q"]).ok().contains(other.trim()));
    // A client that does not know tasks waits for its answer, and cannot ask for tasks.
    home.toft(&repo, &["claim", other.trim()]).ok();
    client.ask(500, "tools/call", claim(1));
    assert!(client.answer(500)["result"].to_string().contains("nothing_ready"));
    client.ask(501, "tasks/get", json!({ "taskId": task }));
    assert!(!client.answer(501)["error"].is_null());
}
