//! The protocol: a server takes what earlier releases send, and nothing that fits its description breaks it.
#![cfg(target_os = "linux")]

use std::{collections::BTreeSet, fs, path::Path};

use toft_stories::{
    FleetMachine, FleetServer, Home,
    fleet::Wire,
    recorder::{NewNames, RecordedRequest, Recorder},
    sized, tool_dir,
};

fn server(home: &Home) -> FleetServer {
    FleetServer::start(home, &home.path().join("fleet.db").display().to_string(), &[])
}

/// What an agent of the recording does.
const WORKS: &str = r#"cat > /dev/null
toft save -m half
toft agent inbox
echo done > "work-$TOFT_TASK" && git add -A && git commit -q -m work
toft finish -m done --evidence HEAD"#;

/// Uses a server through a proxy, as a person and an agent do.
fn use_it(machine: &FleetMachine) {
    let home = &machine.home;
    let repo = home.git("shop");
    let toft = |args: &[&str]| home.toft(&repo, args).ok();
    toft(&["init"]);
    let issue = toft(&["add", "Sell apples", "--type", "feature", "-q"]).trim().to_owned();
    let other = toft(&["add", "Sell pears", "--needs", &issue, "-q"]).trim().to_owned();
    for args in [&["ready"][..], &["list"], &["show", &issue], &["graph"], &["status"], &["log"]] {
        toft(args);
    }
    toft(&["claim", &issue]);
    toft(&["save", "-m", "half of it"]);
    toft(&["finish", "waiting", "-m", "Which apples?"]);
    toft(&["answer", &issue, "red ones"]);
    toft(&["claim", &issue]);
    home.run(&repo, "git", &["commit", "-q", "--allow-empty", "-m", "apples"]);
    toft(&["finish", "-m", "sold", "--evidence", "HEAD"]);
    let flow = toft(&["flow", "new", "Clean up", "-q"]).trim().to_owned();
    toft(&["flow", "show", &flow]);
    toft(&["flow", "list"]);
    toft(&["agent", "list"]);
    toft(&["agent", "send", "human", "look at the pears"]);
    toft(&["run", "--until-idle", "--land", "--", "sh", "-c", WORKS]);
    for args in
        [&["land", "list"][..], &["ws", "list"], &["show", &other], &["doctor"], &["status"], &["token", "list"]]
    {
        toft(args);
    }
    let extra = toft(&["add", "Sell plums", "-q"]).trim().to_owned();
    toft(&["claim", &extra]);
    toft(&["finish", "release", "-m", "not today"]);
    toft(&["close", &extra, "-m", "no plums"]);
    toft(&["undo"]);
    toft(&["repo", "list"]);
}

/// What each release sent. A new release adds its own: `TOFT_BLESS=1 cargo nextest run -p toft-stories --test fleet_wire`.
fn recordings() -> Vec<std::path::PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded");
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
#[ignore = "wide: schemathesis"]
fn what_clients_of_earlier_releases_send_is_answered_as_before() {
    if std::env::var_os("TOFT_BLESS").is_some() {
        record();
    }
    let files = recordings();
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let all: Vec<RecordedRequest> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let home = Home::new();
        let server = server(&home);
        let token = server.token(&home, "ana", "admin");
        let (mut wire, mut names, mut verbs) = (Wire::to(&server), NewNames::default(), BTreeSet::new());
        for (number, sent) in all.iter().enumerate() {
            let by = if sent.token == all[0].token { &token } else { &sent.token };
            let body = names.translate(&sent.body);
            let (status, answer) = wire.verb(by, &sent.verb, &body);
            let at = format!("{}:{}, {}", file.display(), number + 1, sent.verb);
            assert_eq!(status, sent.status, "{at}: {answer}\nsent: {body}");
            let lacks = names.compare(&sent.answer, &answer, "");
            assert!(lacks.is_empty(), "{at}: the answer lacks {lacks:?}\n{answer}");
            verbs.insert(sent.verb.clone());
        }
        assert!(verbs.len() >= 40, "{} verbs: {verbs:?}", verbs.len());
    }
}

/// Writes down what this release sends.
fn record() {
    let owner = Home::new();
    let server = server(&owner);
    let recorder = Recorder::before(&server);
    let mut machine = FleetMachine::new(&server, &owner, "ana", "admin");
    machine.home.set("TOFT_STORE", &recorder.url);
    // A person, not an agent.
    machine.home.set("TOFT_AGENT", "");
    use_it(&machine);
    let lines: Vec<String> = recorder.recorded().iter().map(|one| serde_json::to_string(one).unwrap() + "\n").collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("recorded");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(concat!(env!("CARGO_PKG_VERSION"), ".jsonl")), lines.concat()).unwrap();
}

#[test]
#[ignore = "wide: schemathesis"]
fn nothing_that_the_description_allows_or_forbids_breaks_a_server() {
    let program = tool_dir("schemathesis").join("bin/schemathesis");
    if !program.exists() {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "schemathesis is not installed; .ci/run does it");
        return;
    }
    let home = Home::new();
    let server = server(&home);
    let token = server.token(&home, "ana", "admin");
    let (described, authorization) =
        (format!("{}/v1/openapi.json", server.url), format!("authorization: Bearer {token}"));
    let (examples, phases) = (sized(2, 20).to_string(), if sized(0, 1) == 1 { "coverage,fuzzing" } else { "fuzzing" });
    let mut args = vec!["run", &described, "-H", &authorization, "--phases", phases, "-n", &examples];
    args.extend([
        "-c",
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
    ]);
    // A stream has no end.
    args.extend(["--continue-on-failure", "--warnings", "off", "--no-color", "--exclude-path", "/v1/events"]);
    let said = home.command(home.path(), &program, &args).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    let end: Vec<&str> = text.lines().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
    assert!(said.status.success(), "{}", end.join("\n"));
    println!("{}", end.join("\n"));
    assert_eq!(Wire::to(&server).send("GET", "/readyz", "", "").0, 200, "the server is still there");
}
