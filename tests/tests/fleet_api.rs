//! The interface of a server: which token may send which verb, and clients that are made from its description.
#![cfg(target_os = "linux")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use toft_stories::{FleetServer, Home, fleet::Wire};

fn server(home: &Home) -> FleetServer {
    FleetServer::start(home, &home.path().join("fleet.db").display().to_string(), &[])
}

/// The table of the reference: verbs, and the roles that may send them.
fn table() -> BTreeMap<String, Vec<String>> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/tokens.md")).unwrap();
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
    let roles = ["viewer", "worker", "planner", "admin"];
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
    let home = Home::new();
    let server = server(&home);
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
    let token = first.token(&home, "ana", "planner");
    let waiting = {
        let (mut wire, token) = (Wire::to(&first), token.clone());
        std::thread::spawn(move || {
            let begun = Instant::now();
            (wire.send("POST", "/v1/verbs/claim?wait=15000", &token, "{}"), begun.elapsed())
        })
    };
    std::thread::sleep(Duration::from_millis(300));
    let plan = json!({ "request": { "plan": { "title": "late", "tasks": [{ "name": "late" }] }, "source": { "kind": "prompt", "text": "x" } } });
    assert_eq!(Wire::to(&second).verb(&token, "flow.new", &plan).0, 200);
    let ((status, said), took) = waiting.join().unwrap();
    assert_eq!(status, 200, "{said}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_code_makes_a_machine_a_worker_once() {
    let home = Home::new();
    let server = server(&home);
    let store = home.path().join("fleet.db").display().to_string();
    let code =
        home.toft_with(Path::new("/"), &[("TOFT_STORE", &store)], &["token", "create", "build", "--join", "-q"]).ok();
    let code = code.trim().to_owned();
    let machine = Home::new();
    let said = machine.toft(machine.path(), &["join", &server.url, &code]).ok();
    assert!(said.contains("build (worker)"), "{said}");
    let again = Home::new();
    again.toft(again.path(), &["join", &server.url, &code]).fails(4);
    let status = machine.toft(machine.path(), &["status", "--store", &server.url]);
    assert_eq!(status.code, 0, "{status:?}");
    machine.toft(machine.path(), &["flow", "new", "x", "--store", &server.url]).fails(4);
    // The token belongs to that machine.
    let stolen = machine.toft_with(machine.path(), &[("TOFT_HOST", "another")], &["status", "--store", &server.url]);
    assert_eq!(stolen.code, 4, "{stolen:?}");
}

/// The directory of the generators, where `.ci/run` installs them.
fn tools() -> Option<PathBuf> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/openapi");
    let there = tools.join("node_modules").is_dir() && tools.join("venv").is_dir();
    assert!(there || std::env::var_os("TOFT_TEST_ALL").is_none(), "the generators are not installed; .ci/run does it");
    there.then_some(tools)
}

#[test]
fn clients_that_are_made_from_the_description_claim_and_finish() {
    let Some(tools) = tools() else { return };
    let home = Home::new();
    let server = server(&home);
    let token = server.token(&home, "ana", "admin");
    let (status, described) = Wire::to(&server).send("GET", "/v1/openapi.json", "", "");
    assert_eq!(status, 200);
    let dir = home.path().join("api");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("openapi.json"), described.to_string()).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi");
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
