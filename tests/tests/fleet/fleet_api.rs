//! The interface of a server: which token may send which verb, and clients that are made from its description.
#![cfg(target_os = "linux")]

use toft_stories::prelude::*;

fn server(home: &Home) -> FleetServer {
    FleetServer::start(home, &home.path().join("fleet.db").display().to_string(), &[])
}

/// The table of the reference: verbs, and the roles that may send them.
fn table() -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(toft_stories::stories_dir().join("../docs/reference/tokens.md")).unwrap();
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let mut rows = text.lines().filter(|line| line.starts_with('|')).map(cells);
    let roles = rows.next().unwrap();
    let verbs = rows.skip(1).map(|row| {
        let may = row.iter().zip(&roles).skip(1).filter(|(cell, _)| *cell == "yes").map(|(_, role)| role.clone());
        (row[0].trim_matches('`').to_owned(), may.collect())
    });
    verbs.collect()
}

/// A task that `ana-1` holds, with the token of its agent.
fn job(wire: &mut Wire, worker: &str, admin: &str, number: Option<u32>) -> (String, Value, Value) {
    let plan = json!({ "request": { "plan": { "title": "held", "tasks": [{ "name": "held" }] }, "source": { "kind": "prompt", "text": "x" } } });
    assert_eq!(wire.verb(admin, "flow.new", &plan).0, 200);
    let (status, claimed) = wire.verb(worker, "claim", &json!({ "request": {} }));
    assert_eq!(status, 200, "{claimed}");
    let claim = &claimed["outcome"]["claims"][0];
    let (task, fence) = (claim["task"]["id"].clone(), claim["lease"]["token"].clone());
    let secret = format!("toft_story_of_a_job_{number:?}");
    let digest = blake3::hash(secret.as_bytes()).to_hex().to_string();
    let made =
        wire.verb(worker, "token.job", &json!({ "request": { "digest": digest, "task": task, "fence": fence } }));
    assert_eq!(made.0, 200, "{}", made.1);
    (secret, task, fence)
}

#[test]
fn every_verb_answers_every_kind_of_token_as_the_table_says() {
    let home = Home::new();
    let (server, elsewhere) = (server(&home), Home::new());
    let other = FleetServer::start(&elsewhere, &elsewhere.path().join("other.db").display().to_string(), &[]);
    let roles = ["viewer", "worker", "coordinator", "admin"];
    let mut tokens: Vec<(&str, String)> =
        roles.iter().map(|role| (*role, server.token(&home, &format!("t{role}"), role))).collect();
    let mut wire = Wire::to(&server);
    let (worker, admin) = (tokens[1].1.clone(), tokens[3].1.clone());
    let mut jobs = 0..;
    tokens.push(("job", job(&mut wire, &worker, &admin, jobs.next()).0));
    let store = home.path().join("fleet.db").display().to_string();
    let owner = |args: &[&str]| home.toft_with(Path::new("/"), &[("TOFT_STORE", &store)], args).ok().trim().to_owned();
    tokens.push(("join", owner(&["token", "create", "tjoin", "--join", "-q"])));
    let unknown = [
        ("none", String::new()),
        ("foreign", other.token(&elsewhere, "ana", "admin")),
        ("expired", owner(&["token", "create", "late", "--role", "admin", "--expires", "1s", "-q"])),
        ("revoked", owner(&["token", "create", "gone", "--role", "admin", "-q"])),
    ];
    owner(&["token", "revoke", "gone"]);
    // The second of the token that expires is over.
    std::thread::sleep(Duration::from_millis(1_100));
    let (table, mut cells) = (table(), 0);
    for (verb, may) in &table {
        for (kind, token) in &unknown {
            let (status, said) = wire.verb(token, verb, &json!({ "request": {} }));
            assert_eq!(status, 401, "{verb} with a token that is {kind}: {said}");
            cells += 1;
        }
        for (role, token) in &mut tokens {
            // What writes is sent with a request that cannot be carried out.
            let request = if verb == "gc" || verb == "sweep" { json!(7) } else { json!({}) };
            let (mut status, mut said) = wire.verb(token, verb, &json!({ "request": request }));
            if *role == "job" && status == 401 {
                // Another's verb ended the lease.
                *token = job(&mut wire, &worker, &admin, jobs.next()).0;
                (status, said) = wire.verb(token, verb, &json!({ "request": request }));
            }
            let denied = said["error"]["code"] == "token_denied";
            // The token of an agent is refused what is not about its task, too.
            let expected = !may.iter().any(|name| name == role);
            assert!(
                status != 401 && (denied == expected || *role == "job" && denied),
                "{verb} as {role}: {status} {said}"
            );
            assert!(status < 500, "{verb} as {role}: {status} {said}");
            cells += 1;
        }
    }
    assert!(table.len() > 90 && cells == table.len() * 10, "{} verbs, {cells} cells", table.len());
}

#[test]
fn a_stolen_token_of_an_agent_reaches_only_its_task_and_only_while_it_is_leased() {
    let (home, server) = Home::with(server);
    let (worker, admin) = (server.token(&home, "ana", "worker"), server.token(&home, "eve", "admin"));
    let mut wire = Wire::to(&server);
    let plan = json!({ "request": { "plan": { "title": "other", "tasks": [{ "name": "other" }] }, "source": { "kind": "prompt", "text": "x" } } });
    wire.verb(&admin, "flow.new", &plan);
    let (_, claimed) = wire.verb(&admin, "claim", &json!({ "request": {} }));
    let other = claimed["outcome"]["claims"][0].clone();
    let (token, task, fence) = job(&mut wire, &worker, &admin, None);
    let (others_task, others_fence) = (&other["task"]["id"], &other["lease"]["token"]);
    let mut denied = |verb: &str, request: Value| {
        let (status, said) = wire.verb(&token, verb, &json!({ "request": request }));
        assert_eq!(status, 403, "{verb}: {said}");
    };
    // Everything about another's task, with its fence or with its own.
    for fence in [others_fence, &fence] {
        denied("finish", json!({ "id": others_task, "fence": fence, "how": "release" }));
        denied("save", json!({ "id": others_task, "fence": fence, "message": "x" }));
        denied("renew", json!({ "holds": [[others_task, fence]] }));
    }
    denied("show", json!({ "id": others_task }));
    denied("context", json!({ "id": others_task }));
    denied("task.row", json!({ "task": others_task }));
    denied("inbox", json!({ "human": true }));
    denied("land.row", json!({ "landing": "ln_other" }));
    // Its own task it can save and end, and then it is nobody.
    let (status, said) =
        wire.verb(&token, "save", &json!({ "request": { "id": task, "fence": fence, "message": "half" } }));
    assert_eq!(status, 200, "{said}");
    let end = json!({ "request": { "id": task, "fence": fence, "how": "release", "message": "enough" } });
    assert_eq!(wire.verb(&token, "finish", &end).0, 200);
    assert_eq!(wire.verb(&token, "clock", &json!({})).0, 401);
    // A fence alone, under another's token, ends nothing.
    let (status, _) = wire.verb(
        &worker,
        "finish",
        &json!({ "request": { "id": others_task, "fence": others_fence, "how": "release" } }),
    );
    assert_eq!(status, 409);
}

#[test]
fn work_that_one_server_gets_is_claimed_by_who_waits_at_another() {
    let home = Home::new();
    let store = home.path().join("fleet.db").display().to_string();
    let (first, second) = (server(&home), FleetServer::start(&home, &store, &[]));
    let token = first.token(&home, "ana", "coordinator");
    let waiting = {
        let (mut wire, token) = (Wire::to(&first), token.clone());
        std::thread::spawn(move || {
            let begun = Instant::now();
            (wire.send("POST", "/v1/verbs/claim?wait=15000", &token, "{}"), begun.elapsed())
        })
    };
    let mut wire = Wire::to(&first);
    until(10, "it waits", || wire.send("GET", "/readyz", "", "").1["waiting"] == 1);
    let plan = json!({ "request": { "plan": { "title": "late", "tasks": [{ "name": "late" }] }, "source": { "kind": "prompt", "text": "x" } } });
    assert_eq!(Wire::to(&second).verb(&token, "flow.new", &plan).0, 200);
    let ((status, said), took) = waiting.join().unwrap();
    assert_eq!(status, 200, "{said}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_code_makes_a_machine_a_worker_once() {
    let (home, server) = Home::with(server);
    let store = home.path().join("fleet.db").display().to_string();
    let code =
        home.toft_with(Path::new("/"), &[("TOFT_STORE", &store)], &["token", "create", "build", "--join", "-q"]).ok();
    let code = code.trim().to_owned();
    let machine = Home::new();
    machine.toft(machine.path(), &["login", &server.url, "--code", &code]).says("build (worker)");
    let again = Home::new();
    again.toft(again.path(), &["login", &server.url, "--code", &code]).fails(4);
    let status = machine.toft(machine.path(), &["status", "--store", &server.url]);
    assert_eq!(status.code, 0, "{status:?}");
    machine.toft(machine.path(), &["flow", "new", "x", "--store", &server.url]).fails(4);
    // The token belongs to that machine.
    let stolen = machine.toft_with(machine.path(), &[("TOFT_HOST", "another")], &["status", "--store", &server.url]);
    assert_eq!(stolen.code, 4, "{stolen:?}");
}

/// A server with an admin, two workers that have nothing to do with each other, and a task that the first one holds.
struct Yard {
    home: Home,
    server: FleetServer,
    admin: String,
    ana: String,
    eve: String,
}

impl Yard {
    fn new() -> Self {
        let home = Home::new();
        let server = server(&home);
        let [admin, ana, eve] = [("root", "admin"), ("ana", "worker"), ("eve", "worker")]
            .map(|(name, role)| server.token(&home, name, role));
        Self { home, server, admin, ana, eve }
    }

    fn plan(&self, title: &str) {
        let plan = json!({ "request": { "plan": { "title": title, "tasks": [{ "name": title }] }, "source": { "kind": "prompt", "text": "x" } } });
        assert_eq!(Wire::to(&self.server).verb(&self.admin, "flow.new", &plan).0, 200);
    }

    /// Ana's task and fence.
    fn claim(&self, request: &Value) -> (Value, Value, Value) {
        let caller = json!({ "host": "machine-a", "disks": "machine-a" });
        let (status, said) =
            Wire::to(&self.server).verb(&self.ana, "claim", &json!({ "caller": caller, "request": request }));
        assert_eq!(status, 200, "{said}");
        let claim = &said["outcome"]["claims"][0];
        (claim["task"]["id"].clone(), claim["lease"]["token"].clone(), claim["lease"].clone())
    }

    fn held(&self, task: &Value) -> bool {
        let (_, said) = Wire::to(&self.server).verb(&self.admin, "task.row", &json!({ "request": { "task": task } }));
        said["outcome"]["status"] == "leased"
    }
}

#[test]
fn nobody_ends_anothers_lease_by_what_they_say_of_a_machine_or_with_a_stolen_fence() {
    let yard = Yard::new();
    yard.plan("one");
    let holder = json!({ "host": "machine-a", "boot": "b", "pid": 7, "started": 1 });
    let (task, fence, _) = yard.claim(&json!({ "holder": holder }));
    let mut wire = Wire::to(&yard.server);
    let lie = json!({ "caller": { "host": "machine-a", "disks": "machine-a", "ended": [holder] }, "request": {} });
    let (_, seen) = wire.verb(&yard.eve, "lease.processes", &lie);
    assert_eq!(seen["outcome"], json!([]));
    wire.verb(&yard.eve, "sweep", &lie);
    wire.verb(&yard.eve, "claim", &lie);
    assert!(yard.held(&task), "a lie ended it");
    let (status, _) = wire.verb(&yard.eve, "renew", &json!({ "request": { "holds": [[task, fence]], "ttl_ms": 1 } }));
    assert_eq!(status, 409);
    // The millisecond that was asked for is over.
    std::thread::sleep(Duration::from_millis(20));
    wire.verb(&yard.eve, "sweep", &json!({ "request": {} }));
    assert!(yard.held(&task), "a stolen fence ended it");
    // Its own machine says it, and is believed.
    assert_eq!(wire.verb(&yard.ana, "lease.processes", &lie).1["outcome"], json!([holder]));
    wire.verb(&yard.ana, "sweep", &lie);
    assert!(!yard.held(&task));
}

#[test]
fn no_time_is_too_long_to_be_read_again_and_no_lease_outlasts_the_server() {
    let yard = Yard::new();
    yard.plan("one");
    let mut wire = Wire::to(&yard.server);
    let (task, fence, lease) = yard.claim(&json!({ "ttl_ms": 31_536_000_000_u64, "cap_ms": u64::MAX }));
    let year = lease["expires"].as_str().unwrap()[..4].parse::<u32>().unwrap();
    let now =
        wire.verb(&yard.ana, "clock", &json!({})).1["outcome"]["now"].as_str().unwrap()[..4].parse::<u32>().unwrap();
    assert!(year <= now + 1, "{lease}");
    let (status, said) =
        wire.verb(&yard.eve, "send", &json!({ "request": { "to": "root", "body": "x", "expires_ms": u64::MAX } }));
    assert!(status < 500, "{said}");
    let for_ever = json!({ "caller": { "policy": { "backoff": u64::MAX, "backoff_max": u64::MAX } },
        "request": { "id": task, "fence": fence, "how": "failed", "message": "x" } });
    assert_eq!(wire.verb(&yard.ana, "finish", &for_ever).0, 200);
    for verb in ["list", "status", "inbox", "ready"] {
        let (status, said) = wire.verb(&yard.admin, verb, &json!({ "request": { "limit": u64::MAX } }));
        assert_eq!(status, 200, "{verb}: {said}");
    }
}

#[test]
fn a_claim_that_waits_gets_what_it_was_given_or_nothing_was_given() {
    let yard = Yard::new();
    for round in 0..40_u64 {
        let waiting = {
            let (mut wire, ana) = (Wire::to(&yard.server), yard.ana.clone());
            std::thread::spawn(move || wire.send("POST", "/v1/verbs/claim?wait=60", &ana, "{}"))
        };
        // About as long as it waits.
        std::thread::sleep(Duration::from_millis(50 + round % 20));
        yard.plan("late");
        let (status, _) = waiting.join().unwrap();
        // Long enough for a claim that went on without its caller.
        std::thread::sleep(Duration::from_millis(30));
        let mut wire = Wire::to(&yard.server);
        let (_, held) = wire.verb(&yard.ana, "lease.own", &json!({}));
        let held = held["outcome"].as_array().unwrap().clone();
        assert_eq!(held.len(), usize::from(status == 200), "round {round}: told {status}, holds {held:?}");
        for lease in held {
            let end = json!({ "request": { "id": lease["task"], "fence": lease["fence"], "how": { "done": { "no_change": "x" } } } });
            assert_eq!(wire.verb(&yard.ana, "finish", &end).0, 200);
        }
        while wire.verb(&yard.ana, "claim", &json!({})).0 == 200 {
            let (_, held) = wire.verb(&yard.ana, "lease.own", &json!({}));
            let lease = &held["outcome"][0];
            let end = json!({ "request": { "id": lease["task"], "fence": lease["fence"], "how": { "done": { "no_change": "x" } } } });
            wire.verb(&yard.ana, "finish", &end);
        }
    }
}

#[test]
fn a_revoked_token_gets_nothing_that_it_waited_for() {
    let yard = Yard::new();
    let waiting = {
        let (mut wire, eve) = (Wire::to(&yard.server), yard.eve.clone());
        std::thread::spawn(move || wire.send("POST", "/v1/verbs/claim?wait=4000", &eve, "{}"))
    };
    let mut wire = Wire::to(&yard.server);
    until(4, "it waits", || wire.send("GET", "/readyz", "", "").1["waiting"] == 1);
    assert_eq!(wire.verb(&yard.admin, "token.revoke", &json!({ "request": { "name": "eve" } })).0, 200);
    // It counts within a second.
    std::thread::sleep(Duration::from_millis(1_200));
    yard.plan("late");
    assert_ne!(waiting.join().unwrap().0, 200);
}

#[test]
fn a_worker_speaks_for_its_own_agents_only() {
    let yard = Yard::new();
    let mut wire = Wire::to(&yard.server);
    let mut eve = |verb: &str, request: Value| wire.verb(&yard.eve, verb, &json!({ "request": request }));
    assert_eq!(eve("agent.register", json!({ "name": "ana-1", "capabilities": ["gpu"] })).0, 403);
    assert_eq!(eve("agent.register", json!({ "name": "eve-1", "role": "human" })).0, 403);
    let (status, said) = eve("agent.register", json!({}));
    assert!(status == 200 && said["outcome"]["name"].as_str().unwrap().starts_with("eve-"), "{said}");
    assert_eq!(eve("inbox", json!({ "human": true })).0, 403);
    // What names the same operation and asks for something else is refused.
    let op = json!({ "id": "op_same", "request": "" });
    let send = |wire: &mut Wire, body: &str| {
        wire.verb(&yard.eve, "send", &json!({ "op": op, "request": { "to": "human", "body": body } })).0
    };
    let mut wire = Wire::to(&yard.server);
    assert_eq!((send(&mut wire, "one"), send(&mut wire, "one"), send(&mut wire, "two")), (200, 200, 409));
    // A viewer reads.
    let viewer = yard.server.token(&yard.home, "bob", "viewer");
    for verb in ["list", "status", "issue.why_started"] {
        assert_ne!(wire.verb(&viewer, verb, &json!({ "request": { "issue": "tf-1" } })).0, 403, "{verb}");
    }
}

#[test]
fn a_server_ends_though_somebody_sent_half_a_request() {
    use std::io::Write as _;
    let (home, mut server) = Home::with(server);
    let address = server.url.trim_start_matches("http://").to_owned();
    let mut half = std::net::TcpStream::connect(&address).unwrap();
    half.write_all(b"POST /v1/verbs/status HTTP/1.1\r\nAuth").unwrap();
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    let token = server.token(&home, "ana", "viewer");
    stream
        .write_all(format!("GET /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n").as_bytes())
        .unwrap();
    // Its answer begins: the server has both connections.
    stream.read_exact(&mut [0; 12]).unwrap();
    let begun = Instant::now();
    home.run(home.path(), "kill", &["-TERM", &server.pid().to_string()]);
    assert!(server.wait(Duration::from_secs(20)), "it does not end");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

#[test]
fn a_proxy_sees_nothing_of_a_server_on_this_machine() {
    let (home, server) = Home::with(server);
    let token = server.token(&home, "ana", "admin");
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let at = format!("http://{}", proxy.local_addr().unwrap());
    let env = [("TOFT_STORE", server.url.as_str()), ("TOFT_TOKEN", &token), ("http_proxy", &at), ("ALL_PROXY", &at)];
    home.toft_with(home.path(), &env, &["status"]).ok();
    assert!(proxy.accept().is_err(), "the proxy was asked");
}

/// Memory in MiB and CPU time of a process, in milliseconds.
fn usage(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let memory: u64 = memory.split_whitespace().next().unwrap().parse().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let words: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = words[11].parse::<u64>().unwrap() + words[12].parse::<u64>().unwrap();
    (memory / 1024, ticks * 10)
}

#[test]
fn a_crowd_of_waiting_claims_costs_little_and_one_is_served_at_once() {
    use std::io::{Read as _, Write as _};
    let yard = Yard::new();
    let count = sized(300, 10_000);
    let address = yard.server.url.trim_start_matches("http://").to_owned();
    let before = usage(yard.server.pid());
    let head = format!(
        "POST /v1/verbs/claim?wait=30000 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 2\r\n\r\n{{}}",
        yard.ana
    );
    let mut crowd = Vec::new();
    for _ in 0..count {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_nonblocking(true).unwrap();
        crowd.push(stream);
    }
    let mut wire = Wire::to(&yard.server);
    until(25, "all wait", || wire.send("GET", "/readyz", "", "").1["waiting"] == count);
    let waiting = usage(yard.server.pid());
    std::thread::sleep(Duration::from_secs(2));
    let idle = usage(yard.server.pid()).1 - waiting.1;
    let begun = Instant::now();
    yard.plan("one");
    let served = loop {
        let answered = |stream: &mut std::net::TcpStream| {
            let mut said = [0; 12];
            stream.read_exact(&mut said).is_ok() && said.ends_with(b"200")
        };
        if crowd.iter_mut().filter_map(|stream| answered(stream).then_some(())).count() == 1 {
            break begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "nobody was served");
    };
    eprintln!(
        "{count} waiting claims: {} MiB more, {idle} ms of CPU in 2 s, one served after {served:.1?}",
        waiting.0.saturating_sub(before.0)
    );
    assert!(idle < 1_000 && waiting.0 < before.0 + 60 + count as u64 / 20, "{before:?} {waiting:?} {idle}");
}

/// The directory of the generators, where `.ci/run` installs them.
fn tools() -> Option<PathBuf> {
    let tools = tool_dir("openapi");
    let there = tools.join("node_modules").is_dir() && tools.join("venv").is_dir();
    assert!(there || std::env::var_os("TOFT_TEST_ALL").is_none(), "the generators are not installed; .ci/run does it");
    there.then_some(tools)
}

#[test]
#[ignore = "wide: generators of clients"]
fn clients_that_are_made_from_the_description_claim_and_finish() {
    let Some(tools) = tools() else { return };
    let (home, server) = Home::with(server);
    let token = server.token(&home, "ana", "admin");
    let (status, described) = Wire::to(&server).send("GET", "/v1/openapi.json", "", "");
    assert_eq!(status, 200);
    let dir = home.path().join("api");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("openapi.json"), described.to_string()).unwrap();
    let here = toft_stories::stories_dir().join("openapi");
    for file in ["package.json", "tsconfig.json", "claim.ts", "claim.py"] {
        fs::copy(here.join(file), dir.join(file)).unwrap();
    }
    std::os::unix::fs::symlink(tools.join("node_modules"), dir.join("node_modules")).unwrap();
    let script = format!(
        "set -e
        node node_modules/@redocly/cli/bin/cli.js lint openapi.json >&2
        node node_modules/openapi-typescript/bin/cli.js openapi.json --default-non-nullable=false -o api.d.ts >&2
        node node_modules/typescript/bin/tsc >&2
        node out/claim.js {url} {token}
        {venv}/bin/openapi-python-client generate --path openapi.json --output-path client >&2
        PYTHONPATH=client {venv}/bin/python claim.py {url} {token}",
        url = server.url,
        venv = tools.join("venv").display()
    );
    let said = home.run(&dir, "sh", &["-c", &script]);
    assert_eq!(said.matches("done").count(), 2, "{said}");
}
