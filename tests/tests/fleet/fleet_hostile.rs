//! Requests that no client sends: a server refuses them, answers the next one, and nobody else notices.
#![cfg(target_os = "linux")]

use toft_stories::prelude::*;

struct Target {
    _home: Home,
    server: FleetServer,
    admin: String,
    worker: String,
    _cluster: Option<Cluster>,
}

impl Target {
    fn over(cluster: Option<Cluster>) -> Self {
        let home = Home::new();
        let file = home.path().join("fleet.db").display().to_string();
        // Held in memory from the first write on.
        let (store, args) = match &cluster {
            Some(cluster) => (cluster.url(), vec!["--hold-from", "0"]),
            None => (file, Vec::new()),
        };
        let server = FleetServer::start(&home, &store, &args);
        let (admin, worker) = (server.token(&home, "ana", "admin"), server.token(&home, "bob", "worker"));
        Self { _home: home, server, admin, worker, _cluster: cluster }
    }

    fn wire(&self) -> Wire {
        Wire::to(&self.server)
    }

    /// Sends a request that must be refused, quickly, as its sender's fault.
    fn refused(&self, token: &str, verb: &str, body: &Value) -> Value {
        let begun = Instant::now();
        let (status, said) = self.wire().verb(token, verb, body);
        let shown: String = body.to_string().chars().take(200).collect();
        assert!((400..500).contains(&status), "{verb} {shown}: {status} {said}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{verb} {shown}: {:?}", begun.elapsed());
        said
    }

    fn done(&self, token: &str, verb: &str, request: &Value) -> Value {
        let (status, said) = self.wire().verb(token, verb, &json!({ "request": request }));
        assert_eq!(status, 200, "{verb}: {said}");
        said["outcome"].clone()
    }
}

fn plan(tasks: usize) -> Value {
    let tasks: Vec<Value> = (0..tasks).map(|n| json!({ "name": format!("t{n}") })).collect();
    json!({ "plan": { "title": "held", "tasks": tasks }, "source": { "kind": "prompt", "text": "x" } })
}

/// Both kinds of store that are served.
fn targets() -> Vec<Target> {
    let cluster = toft_cluster::available().then(Cluster::start);
    assert!(cluster.is_some() || std::env::var_os("TOFT_TEST_ALL").is_none(), "PostgreSQL is not installed");
    std::iter::once(None).chain(cluster.map(Some)).map(Target::over).collect()
}

#[test]
fn what_a_worker_sends_does_not_end_the_server_or_take_it_from_others() {
    for target in targets() {
        let flow = target.done(&target.admin, "flow.new", &plan(3));
        // What is noted is no object.
        let (_, flows) = target.wire().send("GET", "/v1/workflows", &target.admin, "");
        let workflow = &flows["outcome"][0];
        let workflow = if workflow["workflow"].is_object() { &workflow["workflow"] } else { workflow };
        for detail in [json!([]), json!(7), json!("x"), Value::Null] {
            let told = json!({ "epics": [], "news": { "workflow": workflow }, "noted": { "issue": "tf-1", "detail": detail } });
            let (status, said) = target.wire().verb(&target.worker, "issue.told", &json!({ "request": told }));
            assert!(status < 500 && status != 0, "{status} {said}");
        }
        // The same issue twice.
        let mut twice = plan(1);
        twice["source"] = json!({ "kind": "issue", "id": "tf-1", "ledger": "/r" });
        target.done(&target.admin, "flow.new", &twice);
        let said = target.refused(&target.admin, "flow.new", &json!({ "request": twice }));
        assert_eq!(said["error"]["code"], "issue_not_ready", "{said}");
        // An operation that remembers itself.
        let op = json!({ "id": "o", "request": "" });
        target.refused(
            &target.worker,
            "op.remember",
            &json!({ "op": op, "request": { "answer": 1, "op": { "id": "o", "request": "" } } }),
        );
        // Costs whose sum is no number.
        let claim = target.done(&target.worker, "claim", &json!({}))["claims"][0].clone();
        let end = json!({ "id": claim["task"]["id"], "fence": claim["lease"]["token"], "how": "failed", "message": "x", "cost": 1.7e308 });
        target.refused(&target.worker, "finish", &json!({ "request": end }));
        let (status, _) = target.wire().send("GET", "/readyz", "", "");
        assert_eq!(status, 200, "{flow}");
    }
}

#[test]
fn a_list_in_place_of_an_object_passes_by_no_check() {
    for target in targets() {
        target.done(&target.admin, "flow.new", &plan(2));
        let year = 31_536_000_000_u64;
        let sent = json!({ "request": [null, [], 1, [], [], {}, year, year] });
        target.refused(&target.worker, "claim", &sent);
        for body in ["[]", r#"{"op":["x","y"],"request":{}}"#, r#"{"caller":["ana"],"request":{}}"#] {
            let (status, said) = target.wire().send("POST", "/v1/verbs/claim", &target.worker, body);
            assert_eq!(status, 400, "{body}: {said}");
        }
        let claim = target.done(&target.worker, "claim", &json!({}))["claims"][0].clone();
        let (secret, task, fence) = ("toft_a_job", &claim["task"]["id"], &claim["lease"]["token"]);
        let digest = blake3::hash(secret.as_bytes()).to_hex().to_string();
        target.done(&target.worker, "token.job", &json!({ "digest": digest, "task": task, "fence": fence }));
        target.refused(secret, "peek", &json!({ "request": [true, null, 5] }));
    }
}

#[test]
fn texts_that_no_database_keeps_are_refused_before_anything_is_written() {
    for target in targets() {
        let long: String =
            (0..3_000_u32).map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 27) as u8 % 26)).collect();
        for bad in ["a\0b", long.as_str()] {
            let mut labelled = plan(1);
            labelled["plan"]["tasks"][0]["labels"] = json!([bad]);
            target.refused(&target.admin, "flow.new", &json!({ "request": labelled }));
            let mut of_issue = plan(1);
            of_issue["source"] = json!({ "kind": "issue", "id": bad, "ledger": "/r" });
            target.refused(&target.admin, "flow.new", &json!({ "request": of_issue }));
            let op = json!({ "id": bad, "request": "" });
            target.refused(&target.worker, "op.remember", &json!({ "request": { "answer": 1, "op": op } }));
            target.refused(&target.worker, "claim", &json!({ "op": op, "request": {} }));
            let place = json!({ "place": { "worktree": bad } });
            target.refused(&target.worker, "claim", &json!({ "caller": place, "request": {} }));
            let visit = json!({ "repository": { "id": bad, "name": "x", "roots": [], "remotes": [] }, "worktree": { "repository": bad, "name": "main", "path": "/x" } });
            target.refused(&target.worker, "visit", &json!({ "request": visit }));
        }
        let labels: Vec<String> = (0..10_000).map(|n| format!("l{n}")).collect();
        for verb in ["list", "ready", "claim"] {
            target.refused(&target.worker, verb, &json!({ "request": { "labels": labels } }));
        }
        assert_eq!(target.done(&target.admin, "list", &json!({}))["tasks"], json!([]));
    }
}

#[test]
fn a_claim_of_everything_gets_a_hundred_and_lists_have_a_usual_length() {
    for target in targets() {
        target.done(&target.admin, "flow.new", &plan(150));
        let claims = target.done(&target.worker, "claim", &json!({ "count": u64::MAX }));
        assert_eq!(claims["claims"].as_array().unwrap().len(), 100);
        let get = |path: &str| target.wire().send("GET", path, &target.admin, "");
        let (_, tasks) = get("/v1/tasks");
        assert_eq!(tasks["outcome"]["tasks"].as_array().unwrap().len(), 50, "{tasks}");
        for path in ["/v1/tasks?search=5", "/v1/tasks?search=true", "/v1/workspaces", "/v1/log?limit=3"] {
            let (status, said) = get(path);
            assert_eq!(status, 200, "{path}: {said}");
        }
        let (_, flows) = get("/v1/workflows?limit=1");
        let id = flows["outcome"].to_string();
        let id = id.split('"').find(|word| word.starts_with("wf_")).unwrap().to_owned();
        assert_eq!(get(&format!("/v1/workflows/{id}")).0, 200);
        let (_, past) = get(&format!("/v1/log?after={}", u64::MAX));
        assert_eq!(past["outcome"], json!([]), "{past}");
        // A question that is wrong is said, and not streamed.
        assert_eq!(get("/v1/events?id=tk_none").0, 404);
    }
}
