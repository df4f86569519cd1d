//! One server, many machines: verbs over HTTP, who may ask what, claims that wait, and servers that go away.
#![cfg(target_os = "linux")]

use toft_stories::prelude::*;

/// A home whose user is `name` on a server.
fn user_of(server: &FleetServer, owner: &Home, name: &str, role: &str) -> Home {
    let mut home = Home::new();
    home.toft_on_path();
    let secret = server.token(owner, name, role);
    home.set("TOFT_STORE", &server.url);
    let file = home.path().join("token");
    fs::write(&file, format!("{secret}\n")).unwrap();
    let mut login = home.command(home.path(), toft_stories::toft_bin(), &["login", &server.url]);
    let said = login.stdin(fs::File::open(&file).unwrap()).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    home
}

fn server(home: &Home) -> FleetServer {
    FleetServer::start(home, &home.path().join("fleet.db").display().to_string(), &[])
}

/// What curl gets: the status and the body.
fn curl(home: &Home, url: &str, secret: &str, args: &[&str]) -> (u16, Value) {
    let authorization = format!("authorization: Bearer {secret}");
    let mut all = vec!["-sS", "-m", "40", "-H", &authorization, "-w", "\n%{http_code}"];
    all.extend(args);
    all.push(url);
    let said = home.run(home.path(), "curl", &all);
    let (body, status) = said.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap_or(Value::Null))
}

fn clone_of(home: &Home, name: &str) -> PathBuf {
    let repo = home.git(name);
    home.toft(&repo, &["init"]).ok();
    repo
}

#[test]
fn an_agent_has_a_token_for_its_own_task_that_ends_with_its_lease() {
    let (owner, server) = Home::with(server);
    let home = user_of(&server, &owner, "build", "worker");
    let coordinator = user_of(&server, &owner, "ana", "coordinator");
    let repo = clone_of(&coordinator, "api");
    coordinator.toft(&repo, &["flow", "new", "one"]).ok();
    coordinator.toft(&repo, &["flow", "new", "two"]).ok();
    let at = repo.display().to_string();
    home.run(home.path(), "git", &["clone", "-q", &at, "api"]);
    let clone = home.path().join("api");
    home.toft(&clone, &["init"]).ok();
    // The agent does what agents do, tries what it must not, and leaves its token behind.
    let script = r#"cat > /dev/null
echo "$TOFT_TOKEN" >> "$HOME/tokens"
toft show "$TOFT_TASK" >> "$HOME/said" 2>&1 || echo failed >> "$HOME/said"
toft save -m half >> "$HOME/said" 2>&1 || echo failed >> "$HOME/said"
toft agent inbox >> "$HOME/said" 2>&1 || echo failed >> "$HOME/said"
toft claim > "$HOME/claimed" 2>&1 && echo "claimed another" >> "$HOME/said"
toft token list > "$HOME/listed" 2>&1 && echo "listed tokens" >> "$HOME/said"
git commit -q --allow-empty -m done
toft finish -m done --evidence HEAD >> "$HOME/said" 2>&1 || echo failed >> "$HOME/said"
"#;
    home.toft(&clone, &["run", "--until-idle", "--", "sh", "-c", script]).ok();
    let said = fs::read_to_string(home.path().join("home/said")).unwrap();
    for wrong in ["failed", "claimed another", "listed tokens"] {
        assert!(!said.contains(wrong), "{said}");
    }
    let refused = fs::read_to_string(home.path().join("home/claimed")).unwrap();
    assert!(refused.contains("does not allow"), "{refused}");
    let tokens = fs::read_to_string(home.path().join("home/tokens")).unwrap();
    let tokens: Vec<&str> = tokens.lines().collect();
    let worker = fs::read_to_string(home.path().join("token")).unwrap();
    assert_eq!(tokens.len(), 2);
    for token in tokens {
        assert_ne!(token, worker.trim(), "the worker's own token reached the agent");
        let (status, _) = curl(&home, &format!("{}/v1/status", server.url), token, &[]);
        assert_eq!(status, 401, "its lease has ended");
    }
    let done = coordinator.toft(&repo, &["list", "--json"]).data();
    assert!(done.as_array().unwrap().iter().all(|row| row["status"] == "done"), "{done}");
}

#[test]
fn a_server_that_is_killed_loses_nothing_and_clients_wait_for_the_next() {
    let owner = Home::new();
    let store = owner.path().join("fleet.db").display().to_string();
    let mut server = FleetServer::start(&owner, &store, &[]);
    let address = server.url.trim_start_matches("http://").to_owned();
    let home = user_of(&server, &owner, "ana", "coordinator");
    let repo = clone_of(&home, "api");
    for n in 0..20 {
        home.toft(&repo, &["flow", "new", &format!("t{n}")]).ok();
    }
    // Four agents claim and finish while the server is killed and started again, five times.
    let worker = |n: usize| {
        let script = format!(
            "while out=$(toft claim --as ana-{n} --json 2>&1); do \
             task=$(echo \"$out\" | sed -n 's/.*\"id\":\"\\(tk_[a-z0-9]*\\)\".*/\\1/p' | head -1); \
             toft finish --as ana-{n} --no-change done \"$task\" done >/dev/null 2>>$HOME/errors && echo $task >> $HOME/done; done"
        );
        home.command(&repo, "sh", &["-c", &script]).spawn().unwrap()
    };
    let mut workers: Vec<_> = (1..=4).map(worker).collect();
    for _ in 0..5 {
        // They work for a while.
        std::thread::sleep(Duration::from_millis(150));
        server.kill();
        std::thread::sleep(Duration::from_millis(100));
        server = FleetServer::listen(&owner, &store, &address, &[]);
    }
    for worker in &mut workers {
        worker.wait().unwrap();
    }
    let done = fs::read_to_string(home.path().join("home/done")).unwrap();
    let mut tasks: Vec<&str> = done.lines().collect();
    tasks.sort_unstable();
    let count = tasks.len();
    tasks.dedup();
    let errors = fs::read_to_string(home.path().join("home/errors")).unwrap_or_default();
    assert_eq!((count, tasks.len()), (20, 20), "{errors}");
    home.toft(&repo, &["doctor"]).ok();
}

#[test]
fn events_are_followed_from_where_a_reader_stopped() {
    let (owner, server) = Home::with(server);
    let home = user_of(&server, &owner, "ana", "coordinator");
    let repo = clone_of(&home, "api");
    home.toft(&repo, &["flow", "new", "one"]).ok();
    let secret = fs::read_to_string(home.path().join("token")).unwrap();
    let read = |last: &str| {
        let (authorization, last) =
            (format!("authorization: Bearer {}", secret.trim()), format!("last-event-id: {last}"));
        let url = format!("{}/v1/events", server.url);
        let args = ["-sS", "-N", "-m", "1", "-H", &authorization, "-H", &last, &url];
        let said = home.command(home.path(), "curl", &args).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let all = read("0");
    assert!(all.contains("event: flow.new") && all.contains("id: 1\n"), "{all}");
    let ids: Vec<u64> =
        all.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap()).collect();
    let last = ids.last().unwrap();
    assert_eq!(ids, (1..=*last).collect::<Vec<_>>());
    home.toft(&repo, &["flow", "new", "two"]).ok();
    let rest = read(&last.to_string());
    assert!(rest.contains(&format!("id: {}\n", last + 1)) && !rest.contains(&format!("id: {last}\n")), "{rest}");
}

#[test]
fn tokens_are_needed_kept_apart_and_revoked() {
    let (owner, server) = Home::with(server);
    let home = user_of(&server, &owner, "ana", "coordinator");
    let repo = clone_of(&home, "api");
    // Nobody acts under another's name, and a name below another's is not given away.
    home.toft(&repo, &["claim", "--as", "bob"]).refuses(4, "may not act as `bob`");
    let env = [("TOFT_STORE", owner.path().join("fleet.db").display().to_string())];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    owner.toft_with(Path::new("/"), &env, &["token", "create", "ana-1"]).refuses(2, "another's");
    // A coordinator makes no tokens.
    home.toft(&repo, &["token", "create", "eve"]).fails(4);
    // A token goes to no other server.
    let mut other = home.command(&repo, toft_stories::toft_bin(), &["status"]);
    let other = other.env("TOFT_STORE", "http://127.0.0.1:9").output().unwrap();
    assert_eq!(other.status.code(), Some(4), "{other:?}");
    owner.toft_with(Path::new("/"), &env, &["token", "revoke", "ana"]).ok();
    // It counts within a second.
    std::thread::sleep(Duration::from_millis(1_200));
    home.toft(&repo, &["status"]).refuses(4, "does not know this token");
    let listed = owner.toft_with(Path::new("/"), &env, &["token", "list", "-q"]).ok();
    assert_eq!(listed.trim(), "");
}

#[test]
fn nothing_goes_over_a_network_unencrypted() {
    let home = Home::new();
    home.toft(home.path(), &["serve", "--store", "x.db", "--listen", "0.0.0.0:0"]).refuses(2, "needs a certificate");
    home.toft(home.path(), &["status", "--store", "http://fleet.example"]).refuses(2, "without https");
}

#[test]
fn a_server_speaks_tls_and_its_certificate_is_verified() {
    let mut owner = Home::new();
    let dir = owner.path().to_owned();
    let make = "set -e; curve='-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'
        openssl req -x509 $curve -keyout ca.key -out ca.pem -subj /CN=ca
        openssl req $curve -keyout key.pem -out request.pem -subj /CN=server
        echo 'subjectAltName=IP:127.0.0.1' > names
        openssl x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -days 2 -out cert.pem";
    owner.run(&dir, "sh", &["-c", make]);
    let (cert, key) = (dir.join("cert.pem").display().to_string(), dir.join("key.pem").display().to_string());
    let store = dir.join("fleet.db").display().to_string();
    let server = FleetServer::start(&owner, &store, &["--cert", &cert, "--key", &key]);
    assert!(server.url.starts_with("https://"));
    let secret = server.token(&owner, "ana", "coordinator");
    let url = server.url.clone();
    owner.set("TOFT_STORE", &url);
    owner.set("TOFT_TOKEN", &secret);
    owner.set("TOFT_AGENT", "ana");
    let repo = owner.git("api");
    // Who is not known to be the server gets no token.
    let unverified = owner.command(&repo, "curl", &["-sS", "-m", "5", &format!("{url}/healthz")]).output().unwrap();
    assert!(!unverified.status.success(), "{unverified:?}");
    let begun = Instant::now();
    let said = owner.toft(&repo, &["init"]).fails(7);
    assert!(said.contains("certificate") && begun.elapsed() < Duration::from_secs(10), "{said}");
    owner.set("TOFT_CA", &dir.join("ca.pem").display().to_string());
    owner.toft(&repo, &["init"]).ok();
    owner.toft(&repo, &["flow", "new", "one"]).ok();
    owner.toft(&repo, &["claim"]).ok();
}

#[test]
fn nonsense_is_answered_and_harms_nothing() {
    let (owner, server) = Home::with(server);
    let secret = server.token(&owner, "ana", "admin");
    let verb = |name: &str| format!("{}/v1/verbs/{name}", server.url);
    for (name, body, expected) in [
        ("claim", "{", 400),
        ("claim", r#"{"request": 7}"#, 422),
        ("claim", r#"{"request": {"scope": "x"}}"#, 422),
        ("claim", r#"{"request": {}}"#, 404),
        ("nothing", "{}", 404),
        ("show", r#"{"request": {"id": "tk_none"}}"#, 404),
        ("flow.new", r#"{"request": {"plan": {"title": ""}}}"#, 422),
    ] {
        let (status, said) = curl(&owner, &verb(name), &secret, &["-d", body]);
        assert_eq!(status, expected, "{name} {body}: {said}");
        assert!(said["message"].is_string(), "{said}");
    }
    let large = owner.path().join("large");
    fs::write(&large, vec![b'x'; 5 << 20]).unwrap();
    let (status, _) = curl(&owner, &verb("claim"), &secret, &["--data-binary", &format!("@{}", large.display())]);
    assert_eq!(status, 413);
    let (status, said) = curl(&owner, &format!("{}/v1/blobs/../../etc/passwd", server.url), &secret, &["--path-as-is"]);
    assert!(status >= 400, "{said}");
    let (status, _) = curl(
        &owner,
        &format!("{}/v1/blobs/{}", server.url, "a".repeat(64)),
        &secret,
        &["-T", &large.display().to_string()],
    );
    assert!(status >= 400);
    let (status, said) = curl(&owner, &format!("{}/v1/status", server.url), &secret, &[]);
    assert_eq!(status, 200, "{said}");
}
