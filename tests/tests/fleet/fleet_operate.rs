//! Running a server: figures, limits, its log, whether it is ready, and how it is replaced by a newer one.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use toft_stories::prelude::*;

fn lacks(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    assert!(found || std::env::var_os("TOFT_TEST_ALL").is_none(), "{program} is not installed");
    !found
}

fn file_store(home: &Home) -> String {
    home.path().join("fleet.db").display().to_string()
}

/// A server whose log goes to a file.
struct LoggedServer {
    child: ChildGuard,
    url: String,
    log: PathBuf,
}

impl LoggedServer {
    fn start(home: &Home, bin: &Path, store: &str, args: &[&str]) -> Self {
        let log = home.path().join(format!("serve-{}.log", toft_stories::fleet::free_port()));
        let mut all = vec!["serve", "-q"];
        all.extend(args);
        let mut command = home.command(Path::new("/"), bin, &all);
        command.env_remove("TOFT_TOKEN").env("TOFT_STORE", store).stdout(Stdio::piped());
        let mut child = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http"), "{}", fs::read_to_string(&log).unwrap());
        Self { child: ChildGuard(child), url: url.trim().to_owned(), log }
    }

    fn terminate(&mut self) -> bool {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), nix::sys::signal::SIGTERM).unwrap();
        self.child.wait().unwrap().success()
    }

    fn events(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.log).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }
}

#[test]
#[ignore = "wide: Prometheus, a collector of traces, PostgreSQL"]
fn figures_are_as_prometheus_wants_them_and_name_no_ids() {
    if lacks("promtool") {
        return;
    }
    let home = Home::new();
    let metrics = format!("127.0.0.1:{}", toft_stories::fleet::free_port());
    let server = FleetServer::start(&home, &file_store(&home), &["--metrics", &metrics]);
    let token = server.token(&home, "ana", "admin");
    let mut wire = Wire::to(&server);
    let plan = json!({ "request": { "plan": { "title": "one", "tasks": [{ "name": "a" }] }, "source": { "kind": "prompt", "text": "x" } } });
    assert_eq!(wire.verb(&token, "flow.new", &plan).0, 200);
    for _ in 0..3 {
        wire.verb(&token, "claim", &json!({ "request": {} }));
    }
    wire.verb(&token, "no.such", &json!({}));
    wire.send("GET", "/v1/tasks/tk_secret", &token, "");
    let text = home.run(home.path(), "curl", &["-sf", &format!("http://{metrics}/metrics")]);
    let mut check = home.command(home.path(), "promtool", &["check", "metrics"]);
    let mut check = check.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}\n{text}", String::from_utf8_lossy(&checked.stderr));
    for line in [
        "toft_requests_total{verb=\"flow.new\",status=\"200\"} 1",
        "toft_requests_total{verb=\"claim\",status=\"200\"} 1",
        "toft_requests_total{verb=\"claim\",status=\"404\"} 2",
        "toft_request_duration_seconds_count{verb=\"claim\"} 3",
        "toft_ready 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert!(!text.contains("tk_") && !text.contains("no.such"), "{text}");
    // Figures are for the operator: the server itself has no such page.
    assert_eq!(wire.send("GET", "/metrics", &token, "").0, 404);
}

/// A collector of traces that is made of OpenTelemetry's own types; it ends with the story.
struct Collector {
    _child: ChildGuard,
    said: BufReader<std::process::ChildStdout>,
    url: String,
}

/// Starts a collector, if `.ci/run` has installed it.
fn collector(home: &Home) -> Option<Collector> {
    let here = toft_stories::stories_dir();
    let python = tool_dir("traces").join("bin/python");
    if !python.exists() {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "the collector is not installed; .ci/run does it");
        return None;
    }
    let script = here.join("traces/collector.py").display().to_string();
    let mut child = home.command(home.path(), &python, &[&script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut port = String::new();
    said.read_line(&mut port).unwrap();
    Some(Collector { _child: ChildGuard(child), said, url: format!("http://127.0.0.1:{}", port.trim()) })
}

#[test]
#[ignore = "wide: Prometheus, a collector of traces, PostgreSQL"]
fn a_collector_gets_a_span_for_each_request_in_the_trace_of_its_caller() {
    let home = Home::new();
    let Some(mut collector) = collector(&home) else { return };
    let server = FleetServer::start(&home, &file_store(&home), &["--traces", &collector.url]);
    let token = server.token(&home, "ana", "coordinator");
    let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
    let parent = format!("00-{trace}-{span}-01");
    let env =
        [("TOFT_STORE", server.url.as_str()), ("TOFT_TOKEN", &token), ("TOFT_AGENT", "ana"), ("TRACEPARENT", &parent)];
    home.toft_with(Path::new("/"), &env, &["flow", "new", "Sell apples"]).ok();
    home.toft_with(Path::new("/"), &env, &["claim"]).ok();
    home.toft_with(Path::new("/"), &env, &["claim", "--wait=1s"]).fails(6);
    // What is no trace is not sent on, and nothing fails.
    let odd = [("TOFT_STORE", server.url.as_str()), ("TOFT_TOKEN", &token), ("TRACEPARENT", "x\u{e4}y")];
    home.toft_with(Path::new("/"), &odd, &["status"]).ok();
    let (mut spans, mut line) = (Vec::new(), String::new());
    let waits = |spans: &[Value]| spans.iter().any(|span| span["name"] == "wait");
    while !waits(&spans) || !spans.iter().any(|span: &Value| span["name"] == "POST status") {
        line.clear();
        assert_ne!(collector.said.read_line(&mut line).unwrap(), 0, "the collector refused: {spans:?}");
        spans.push(serde_json::from_str::<Value>(&line).unwrap());
    }
    let of = |name: &str| spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("{name}: {spans:?}"));
    let claim = of("POST claim");
    assert_eq!((&claim["traceId"], &claim["parentSpanId"], &claim["kind"]), (&json!(trace), &json!(span), &json!(2)));
    assert!(spans.iter().any(|span| span["name"] == "store" && span["parentSpanId"] == claim["spanId"]));
    assert_eq!(of("wait")["traceId"], trace);
    assert_ne!(of("POST status")["traceId"], trace);
    // A collector that is gone stops nobody.
    drop(collector);
    home.toft_with(Path::new("/"), &env, &["status"]).ok();
}

#[test]
#[ignore = "wide: Prometheus, a collector of traces, PostgreSQL"]
fn a_token_that_asks_too_often_waits_and_nobody_else_does() {
    let home = Home::new();
    let server = FleetServer::start(&home, &file_store(&home), &["--limit", "20"]);
    let (greedy, modest) = (server.token(&home, "greedy", "coordinator"), server.token(&home, "modest", "coordinator"));
    let mut wire = Wire::to(&server);
    let statuses: Vec<u16> = (0..200).map(|_| wire.verb(&greedy, "status", &json!({ "request": {} })).0).collect();
    assert!(statuses.contains(&429) && statuses[..30].iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(wire.verb(&modest, "status", &json!({ "request": {} })).0, 200);
    // toft itself waits, and succeeds.
    let mut user = Home::new();
    user.set("TOFT_STORE", &server.url);
    user.set("TOFT_TOKEN", &greedy);
    user.set("TOFT_AGENT", "greedy");
    let repo = user.git("api");
    user.toft(&repo, &["init"]).ok();
    for number in 0..8 {
        user.toft(&repo, &["flow", "new", &number.to_string()]).ok();
    }
}

#[test]
#[ignore = "wide: Prometheus, a collector of traces, PostgreSQL"]
fn a_server_logs_what_fails_and_on_request_everything() {
    let (home, store) = Home::with(file_store);
    let mut quiet = LoggedServer::start(&home, &toft_bin(), &store, &["--listen", "127.0.0.1:0"]);
    let env = [("TOFT_STORE", store.as_str()), ("TOFT_TOKEN", "")];
    let token = home.toft_with(Path::new("/"), &env, &["token", "create", "ana", "-q"]).ok();
    let ask = |url: &str| {
        let authorization = format!("authorization: Bearer {}", token.trim());
        let args = ["-s", "-H", &authorization, "-d", "{}", &format!("{url}/v1/verbs/status")];
        home.run(home.path(), "curl", &args)
    };
    ask(&quiet.url);
    assert!(quiet.terminate());
    let names = |server: &LoggedServer| -> Vec<String> {
        server.events().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&quiet), ["started", "draining", "stopped"]);
    let mut all = LoggedServer::start(&home, &toft_bin(), &store, &["--listen", "127.0.0.1:0", "--log-requests"]);
    ask(&all.url);
    assert!(all.terminate());
    assert_eq!(names(&all), ["started", "request", "draining", "stopped"]);
    let request = &all.events()[1];
    let seen = [&request["method"], &request["path"], &request["status"], &request["name"], &request["space"]];
    assert_eq!(seen.map(|value| value.to_string()), ["\"POST\"", "\"/v1/verbs/status\"", "200", "\"ana\"", "\"main\""]);
    assert!(!fs::read_to_string(&all.log).unwrap().contains(token.trim()));
    // A port that is taken is named.
    let port = all.url.rsplit(':').next().unwrap().to_owned();
    let _taken = std::net::TcpListener::bind(format!("127.0.0.1:{port}")).unwrap();
    home.toft_with(Path::new("/"), &env, &["serve", "--listen", &format!("127.0.0.1:{port}")])
        .refuses(1, format!("127.0.0.1:{port}"));
}

fn threads(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

#[test]
#[ignore = "wide: Prometheus, a collector of traces, PostgreSQL"]
fn a_server_without_its_database_says_so_soon_and_costs_nothing() {
    let Some(mut cluster) = postgresql() else { return };
    let home = Home::new();
    let server = FleetServer::start(&home, &new_store_on(&cluster.url()), &[]);
    let probe = || {
        let begun = Instant::now();
        let args = ["-s", "-m", "10", "-w", "\n%{http_code}", &format!("{}/readyz", server.url)];
        let said = home.run(home.path(), "curl", &args);
        let (body, status) = said.rsplit_once('\n').unwrap();
        (status.parse::<u16>().unwrap(), body.to_owned(), begun.elapsed())
    };
    assert_eq!(probe().0, 200);
    let before = threads(server.pid());
    cluster.kill_server();
    let mut statuses = Vec::new();
    for _ in 0..40 {
        let (status, body, took) = probe();
        assert!(took < Duration::from_secs(4), "{took:?}");
        assert!(!body.contains("127.0.0.1") && !body.contains("postgres"), "{body}");
        statuses.push(status);
    }
    assert!(statuses[1..].iter().all(|status| *status == 503), "{statuses:?}");
    assert!(threads(server.pid()) <= before + 4, "{} threads, {before} before", threads(server.pid()));
    cluster.restart();
    until(30, "the server did not find its database again", || probe().0 == 200);
}

#[test]
#[ignore = "wide: Prometheus, a collector of traces, PostgreSQL"]
fn a_server_that_cannot_start_yet_ends_when_it_is_told_also_as_the_first_process() {
    let home = Home::new();
    let store = format!("postgres://toft@127.0.0.1:{}/toft", toft_stories::fleet::free_port());
    let bin = toft_bin().display().to_string();
    for words in [vec![bin.as_str()], vec!["unshare", "-pf", "--kill-child", bin.as_str()]] {
        if words.len() > 1 && !nix::unistd::Uid::effective().is_root() {
            continue;
        }
        let args: Vec<&str> = words[1..].iter().copied().chain(["serve", "--listen", "127.0.0.1:0"]).collect();
        let mut command = home.command(Path::new("/"), words[0], &args);
        command.env("TOFT_STORE", &store).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        // Long enough for one that does not wait to end.
        thread::sleep(Duration::from_millis(700));
        let pid = match words.len() {
            1 => child.id().to_string(),
            _ => home.run(home.path(), "pgrep", &["-P", &child.id().to_string()]).trim().to_owned(),
        };
        assert!(!pid.is_empty() && child.try_wait().unwrap().is_none(), "it did not wait for its database");
        home.run(home.path(), "kill", &["-TERM", &pid]);
        until(5, "it ends", || child.try_wait().unwrap().is_some());
    }
}

/// A proxy in front of two servers, which asks them whether they are ready.
fn balance(home: &Home, ports: [u16; 2]) -> (Child, String) {
    let port = toft_stories::fleet::free_port();
    let servers: String = ports
        .iter()
        .map(|port| format!("    server s{port} 127.0.0.1:{port} check inter 200ms fall 1 rise 1\n"))
        .collect();
    let text = format!(
        "defaults\n    mode http\n    timeout connect 2s\n    timeout client 60s\n    timeout server 60s\n    retries 3\n    option redispatch\n\
         frontend f\n    bind 127.0.0.1:{port}\n    default_backend b\n\
         backend b\n    option httpchk GET /readyz\n{servers}"
    );
    let file = home.path().join("haproxy.cfg");
    fs::write(&file, text).unwrap();
    let mut command = home.command(home.path(), "haproxy", &["-f", &file.display().to_string()]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    (child, format!("http://127.0.0.1:{port}"))
}

/// Ends the work of threads when it goes out of scope.
struct EndOfWork<'a>(&'a AtomicBool);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
#[ignore = "long: HAProxy"]
fn servers_are_replaced_by_newer_ones_and_clients_at_work_see_nothing_of_it() {
    if !toft_cluster::available() || lacks("haproxy") {
        return;
    }
    // `TOFT_OLD_BIN` names the toft of the release before.
    let new = toft_bin();
    let old = std::env::var_os("TOFT_OLD_BIN").map_or_else(|| new.clone(), PathBuf::from);
    let cluster = Cluster::start();
    let home = Home::new();
    let store = new_store_on(&cluster.url());
    let schema = store.rsplit_once("schema=").unwrap().1.to_owned();
    let ports = [toft_stories::fleet::free_port(), toft_stories::fleet::free_port()];
    let start = |bin: &Path, port: u16| {
        LoggedServer::start(&home, bin, &store, &["--listen", &format!("127.0.0.1:{port}"), "--connections", "4"])
    };
    let mut servers = ports.map(|port| start(&old, port));
    let (mut proxy, url) = balance(&home, ports);
    let env = [("TOFT_STORE", store.as_str()), ("TOFT_TOKEN", "")];
    let token = home.toft_with(Path::new("/"), &env, &["token", "create", "fleet", "--role", "admin", "-q"]).ok();
    let mut user = Home::new();
    user.set("TOFT_STORE", &url);
    user.set("TOFT_TOKEN", token.trim());
    let repo = user.git("api");
    user.toft(&repo, &["init"]).ok();
    let (over, done, tasks) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let failures: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..sized(4, 16))
            .map(|number| {
                let (user, repo, old, over, done, tasks) = (&user, &repo, &old, &over, &done, &tasks);
                scope.spawn(move || {
                    let mut failures = Vec::new();
                    let agent = format!("fleet-{number}");
                    let mut run = |args: &[&str]| {
                        let mut command = user.command(repo, old, args);
                        let said = command.env("TOFT_AGENT", &agent).output().unwrap();
                        let text = String::from_utf8_lossy(&said.stderr).into_owned();
                        // That nothing is ready is an answer.
                        if !said.status.success() && said.status.code() != Some(6) {
                            failures.push(format!("{args:?}: {text}"));
                        }
                        said.status.success()
                    };
                    while !over.load(Ordering::Relaxed) {
                        tasks.fetch_add(usize::from(run(&["flow", "new", "work"])), Ordering::Relaxed);
                        if run(&["claim"]) && run(&["finish", "-m", "done", "--no-change", "a story"]) {
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    failures
                })
            })
            .collect();
        // Also if a server does not come back.
        let work = EndOfWork(&over);
        // They work for a while.
        thread::sleep(Duration::from_secs(2));
        for (server, port) in servers.iter_mut().zip(ports) {
            assert!(server.terminate(), "{:?}", server.events());
            *server = start(&new, port);
            thread::sleep(Duration::from_secs(2));
        }
        drop(work);
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    proxy.kill().unwrap();
    proxy.wait().unwrap();
    assert!(failures.is_empty(), "{failures:#?}");
    let count = |what: &str| cluster.psql(&format!("SELECT count(*) FROM {schema}.events WHERE verb = '{what}'"));
    assert_eq!(count("task.done"), done.load(Ordering::Relaxed).to_string());
    assert!(done.load(Ordering::Relaxed) > 5, "{done:?} of {tasks:?}");
    eprintln!("two servers replaced: {done:?} tasks done, no error shown");
    // One that this release would not understand is refused.
    cluster.psql(&format!("INSERT INTO {schema}.migrations VALUES (100, 'another')"));
    home.toft_with(Path::new("/"), &env, &["token", "list"]).refuses(8, "newer_store");
}
