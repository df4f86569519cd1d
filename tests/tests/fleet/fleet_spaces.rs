//! One server, many teams: a token is for one space, and nothing of another is seen through it.
#![cfg(target_os = "linux")]

use toft_stories::prelude::*;

fn token_in(home: &Home, store: &str, space: &str, name: &str) -> String {
    let store = format!("{store}?space={space}");
    let args = ["token", "create", name, "--role", "admin", "-q", "--store", &store];
    home.toft_with(Path::new("/"), &[("TOFT_TOKEN", "")], &args).ok().trim().to_owned()
}

/// Makes a plan, claims its task and tells its agent something, all with this word in it; returns every id that was made.
fn busy(wire: &mut Wire, token: &str, word: &str) -> Vec<String> {
    let plan = json!({ "request": { "plan": { "title": word, "tasks": [{ "name": word, "labels": [word] }, { "name": "later" }] }, "source": { "kind": "prompt", "text": word } } });
    let (status, made) = wire.verb(token, "flow.new", &plan);
    assert_eq!(status, 200, "{made}");
    let (status, claimed) = wire.verb(token, "claim", &json!({ "request": {} }));
    assert_eq!(status, 200, "{claimed}");
    let claim = &claimed["outcome"]["claims"][0];
    let saved = json!({ "request": { "id": claim["task"]["id"], "fence": claim["lease"]["token"], "message": word } });
    assert_eq!(wire.verb(token, "save", &saved).0, 200);
    let text = format!("{made}{claimed}");
    let ids = text.split('"').filter(|word| ["tk_", "wf_", "ag_", "ls_"].iter().any(|kind| word.starts_with(kind)));
    ids.map(str::to_owned).collect()
}

#[test]
fn a_token_sees_one_space_of_a_server_and_no_verb_reaches_another() {
    let Some(cluster) = postgresql() else { return };
    let home = Home::new();
    let server = FleetServer::start(&home, &cluster.url(), &[]);
    let [red, blue] = ["red", "blue"].map(|space| token_in(&home, &cluster.url(), space, "ana"));
    let mut wire = Wire::to(&server);
    let theirs = busy(&mut wire, &blue, "bluesecret");
    busy(&mut wire, &red, "redword");
    let (_, whose) = wire.send("GET", "/v1/token", &red, "");
    assert_eq!((&whose["name"], &whose["space"]), (&json!("ana"), &json!("red")));

    // Everything that can be read, and everything that takes an id, with the ids of the other space.
    let (_, api) = wire.send("GET", "/v1/openapi.json", &red, "");
    let paths: Vec<String> = api["paths"].as_object().unwrap().keys().cloned().collect();
    let (mut asked, mut found) = (0, String::new());
    for path in paths.iter().filter(|path| !path.ends_with("/events") && !path.contains("blobs")) {
        match path.strip_prefix("/v1/verbs/") {
            Some(verb) => {
                for id in theirs.iter().take(3) {
                    let request = json!({ "id": id, "task": id, "workflow": id, "text": id, "name": id, "agent": id,
                        "title": "x", "scope": {}, "all": true, "limit": 100 });
                    let (status, said) = wire.verb(&red, verb, &json!({ "request": request }));
                    assert!(status < 500, "{verb}: {said}");
                    found += &without_echo(&said, id);
                    asked += 1;
                }
            }
            None => found += &wire.send("GET", &path.replace("{id}", &theirs[0]), &red, "").1["outcome"].to_string(),
        }
    }
    assert!(asked > 250, "{asked}");
    found += &wire.verb(&red, "find", &json!({ "request": { "text": "bluesecret" } })).1["outcome"].to_string();
    assert!(!found.contains("bluesecret"), "{found}");
    assert!(found.contains("redword"));
    // The other space is as it was.
    let (_, status) = wire.send("GET", "/v1/tasks", &blue, "");
    assert!(status.to_string().contains("bluesecret") && !status.to_string().contains("redword"), "{status}");

    // Nor is anything of one in the log of the other.
    let (_, log) = wire.send("GET", "/v1/log", &blue, "");
    assert!(!log.to_string().contains("redword"), "{log}");
}

/// The answer, without what it only repeats of the question.
fn without_echo(said: &Value, asked: &str) -> String {
    match said["refused"] == json!(true) {
        true => String::new(),
        false => said.to_string().replace(asked, ""),
    }
}

#[test]
fn an_address_may_name_the_space_and_a_wrong_one_is_said() {
    let Some(cluster) = postgresql() else { return };
    let mut home = Home::new();
    let server = FleetServer::start(&home, &cluster.url(), &[]);
    let red = token_in(&home, &cluster.url(), "red", "ana");
    let repo = home.git("api");
    home.set("TOFT_TOKEN", &red);
    home.set("TOFT_STORE", &format!("{}/red", server.url));
    home.toft(&repo, &["init"]).ok();
    home.toft(&repo, &["add", "Paint it"]).ok();
    home.set("TOFT_STORE", &format!("{}/blue", server.url));
    let said = home.toft(&repo, &["status"]);
    assert_ne!(said.code, 0, "{said:?}");
    assert!(said.err.contains("this token is for the space red"), "{said:?}");
}

#[test]
fn the_database_hides_other_spaces_from_a_session_should_a_statement_forget_its_own() {
    let Some(cluster) = postgresql() else { return };
    let home = Home::new();
    let server = FleetServer::start(&home, &cluster.url(), &[]);
    let [red, blue] = ["red", "blue"].map(|space| token_in(&home, &cluster.url(), space, "ana"));
    let mut wire = Wire::to(&server);
    busy(&mut wire, &blue, "bluesecret");
    busy(&mut wire, &red, "redword");
    let as_toft = |space: &str, sql: &str| {
        let session = format!("set search_path = toft; set role toft; set toft.space = '{space}'; {sql}");
        cluster.try_psql(&session).map(|said| said.lines().last().unwrap_or_default().to_owned())
    };
    let tables = cluster.psql(
        "select table_name from information_schema.columns where table_schema = 'toft' and column_name = 'space'",
    );
    for table in tables.lines() {
        let other = as_toft("red", &format!("select count(*) from {table} where space <> 'red'"));
        assert_eq!(other.as_deref(), Ok("0"), "{table}");
    }
    assert_eq!(as_toft("red", "select count(*) from tasks").as_deref(), Ok("2"));
    assert_eq!(as_toft("", "select count(*) from tasks").as_deref(), Ok("4"));
    let forged = "insert into agents (space, id, name, body) values ('blue', 'x', 'x', '{}')";
    let said = as_toft("red", forged).unwrap_err();
    assert!(said.contains("row-level security"), "{said}");
}

#[test]
fn another_version_of_the_protocol_is_refused_and_additions_are_not() {
    let home = Home::new();
    let server = FleetServer::start(&home, &home.path().join("fleet.db").display().to_string(), &[]);
    let token = server.token(&home, "ana", "admin");
    let asked = |version: &str| {
        let (token, version) = (format!("authorization: Bearer {token}"), format!("toft-protocol: {version}"));
        let url = format!("{}/v1/status", server.url);
        home.run(home.path(), "curl", &["-sS", "-m", "20", "-H", &token, "-H", &version, "-w", "%{http_code}", &url])
    };
    for same in ["1.0", "1.7", "1"] {
        assert!(asked(same).ends_with("200"), "{same}");
    }
    let said = asked("2.0");
    assert!(said.contains("this server speaks protocol 1.") && said.ends_with("400"), "{said}");
}

#[test]
fn a_server_for_one_space_knows_its_name_and_no_other_token() {
    let Some(cluster) = postgresql() else { return };
    let home = Home::new();
    let [red, blue] = ["red", "blue"].map(|space| token_in(&home, &cluster.url(), space, "ana"));
    let server = FleetServer::start(&home, &format!("{}?space=red", cluster.url()), &[]);
    let mut wire = Wire::to(&server);
    let (_, whose) = wire.send("GET", "/v1/token", &red, "");
    assert_eq!(whose["space"], "red");
    assert_eq!(wire.send("GET", "/v1/token", &blue, "").0, 401);
}

#[test]
fn tokens_stay_with_their_space_when_a_backup_is_restored() {
    let Some(cluster) = postgresql() else { return };
    let home = Home::new();
    let [red, gone] = ["ana", "eve"].map(|name| token_in(&home, &cluster.url(), "red", name));
    let store = format!("{}?space=red", cluster.url());
    let repo = home.git("api");
    let toft = |args: &[&str]| home.toft_with(&repo, &[("TOFT_STORE", &store), ("TOFT_TOKEN", "")], args).ok();
    let backup = home.path().join("red.backup").display().to_string();
    toft(&["backup", &backup]);
    toft(&["token", "revoke", "eve"]);
    toft(&["backup", "restore", &backup, "--replace"]);
    let server = FleetServer::start(&home, &cluster.url(), &[]);
    let mut wire = Wire::to(&server);
    let (_, whose) = wire.send("GET", "/v1/token", &red, "");
    assert_eq!(whose["space"], "red", "{whose}");
    assert_eq!(wire.send("GET", "/v1/token", &gone, "").0, 401, "a revoked token came back");
}
