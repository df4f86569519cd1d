//! People log in with an identity provider: a real one, on this machine.
#![cfg(target_os = "linux")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Stdio},
};

use serde_json::{Value, json};
use toft_stories::{FleetServer, Home, Wire, toft_bin};

/// A provider, which ends with the story.
struct Provider {
    child: Child,
    /// It goes on to say things, and would end if nobody could hear them.
    _said: BufReader<ChildStdout>,
    dir: PathBuf,
    url: String,
}

impl Provider {
    /// Starts it, if `.ci/run` has installed it.
    fn start(home: &Home) -> Option<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let dir = here.join("../target/tools/oidc");
        if !dir.join("node_modules").is_dir() {
            assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "the provider is not installed; .ci/run does it");
            return None;
        }
        let own = home.path().join("oidc");
        fs::create_dir(&own).unwrap();
        for file in ["package.json", "provider.mjs", "person.mjs"] {
            fs::copy(here.join("oidc").join(file), own.join(file)).unwrap();
        }
        std::os::unix::fs::symlink(dir.canonicalize().unwrap().join("node_modules"), own.join("node_modules")).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = home.command(&own, "node", &["provider.mjs", &port.to_string()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        assert!(said.by_ref().lines().any(|line| line.unwrap() == "ready"));
        Some(Self { child, _said: said, dir: own, url: format!("http://127.0.0.1:{port}") })
    }

    fn serve(&self, home: &Home, more: &[&str]) -> FleetServer {
        let mut args = vec!["--oidc", &self.url, "--oidc-client", "toft"];
        args.extend(["--oidc-role", "planner=leads", "--oidc-role", "viewer=staff"]);
        args.extend(more);
        FleetServer::start(home, &home.path().join("fleet.db").display().to_string(), &args)
    }

    /// A person opens an address and logs in.
    fn browse(&self, home: &Home, address: &str, person: &str) {
        home.run(&self.dir, "node", &["person.mjs", address, person]);
    }

    /// What the provider says of a person to a program.
    fn proof(&self, home: &Home, client: &str, person: &str) -> String {
        let post = |path: &str, form: &str| -> Value {
            let said = home.run(home.path(), "curl", &["-sS", "-d", form, &format!("{}{path}", self.url)]);
            serde_json::from_str(&said).unwrap()
        };
        let begun = post("/device/auth", &format!("client_id={client}&scope=openid email groups"));
        self.browse(home, begun["verification_uri_complete"].as_str().unwrap(), person);
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        let code = begun["device_code"].as_str().unwrap();
        let said = post("/token", &format!("client_id={client}&grant_type={grant}&device_code={code}"));
        said["id_token"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn trade(server: &FleetServer, proof: &str, secret: &str) -> (u16, Value) {
    let digest = blake3::hash(secret.as_bytes()).to_hex().to_string();
    Wire::to(server).send("POST", "/v1/login", "", &json!({ "id_token": proof, "digest": digest }).to_string())
}

#[test]
fn a_person_logs_in_at_a_browser_and_works_under_their_name() {
    let owner = Home::new();
    let Some(provider) = Provider::start(&owner) else { return };
    let server = provider.serve(&owner, &[]);
    let home = Home::new();
    let mut login = home.command(home.path(), toft_bin(), &["login", &server.url, "--web"]);
    let mut login = login.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(login.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.split(' ').find(|word| word.starts_with("http")).unwrap().to_owned();
    provider.browse(&home, &address, "ana");
    let mut said = String::new();
    login.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(login.wait().unwrap().success(), "{said}");
    assert!(said.contains("ana.example.com (planner)"), "{said}");
    let repo = home.git("shop");
    home.toft(&repo, &["init", "--store", &server.url]).ok();
    home.toft(&repo, &["flow", "new", "Sell apples", "--store", &server.url]).ok();
    home.toft(&repo, &["claim", "--store", &server.url]).ok();
    assert!(home.toft(&repo, &["status", "--store", &server.url]).ok().contains("ana.example.com"));
    // Whom the provider knows and no rule names stays outside.
    let (status, said) = trade(&server, &provider.proof(&home, "toft", "eve"), "one");
    assert_eq!(status, 403, "{said}");
    // A role in a space that there is not gives none in the one that there is.
    let strange = provider.serve(&home, &["--oidc-role", "ghost/admin=staff"]);
    let proof = provider.proof(&home, "toft", "ben");
    let digest = blake3::hash(b"ghost").to_hex().to_string();
    let body = json!({ "id_token": proof, "digest": digest }).to_string();
    let address = format!("{}/v1/login", strange.url);
    let args = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "toft-space: ghost", "-d", &body, &address];
    assert_eq!(home.run(home.path(), "curl", &args), "403");
    // The role is that of the group.
    let (status, _) = trade(&server, &provider.proof(&home, "toft", "ben"), "two");
    assert_eq!(status, 200);
    assert_eq!(Wire::to(&server).verb("two", "flow.new", &json!({ "request": {} })).0, 403, "he only reads");
}

#[test]
fn only_what_the_provider_says_now_to_this_server_counts_and_once() {
    let owner = Home::new();
    let Some(provider) = Provider::start(&owner) else { return };
    let server = provider.serve(&owner, &["--oidc-expires", "2s"]);
    let good = provider.proof(&owner, "toft", "ana");
    let parts: Vec<&str> = good.split('.').collect();
    let refused = |proof: &str, why: &str| {
        let (status, said) = trade(&server, proof, "stolen");
        assert_eq!(status, 401, "{why}: {said}");
    };
    // Base64 of `{"alg":"none"}` and `{"alg":"HS256"}`.
    refused(&format!("eyJhbGciOiJub25lIn0.{}.", parts[1]), "without a signature");
    refused(&format!("eyJhbGciOiJIUzI1NiJ9.{}.{}", parts[1], parts[2]), "a signature that others can make");
    let other = provider.proof(&owner, "toft", "ben");
    let others: Vec<&str> = other.split('.').collect();
    refused(&format!("{}.{}.{}", parts[0], others[1], parts[2]), "another's words");
    refused(&provider.proof(&owner, "other", "ana"), "said to another program");
    refused(&provider.proof(&owner, "toft", "unverified"), "an address that was not verified");
    for garbage in ["", "a.b.c", &"x".repeat(70_000)] {
        let (status, _) = trade(&server, garbage, "stolen");
        assert!(status == 401 || status == 400 || status == 413, "{status}");
    }
    assert_eq!(trade(&server, &good, "mine").0, 200);
    assert_eq!(Wire::to(&server).verb("mine", "status", &json!({ "request": {} })).0, 200);
    refused(&good, "used twice");
    // Another person with the same address does not get the name.
    let (status, said) = trade(&server, &provider.proof(&owner, "toft", "mallory"), "theirs");
    assert_eq!(status, 422, "{said}");
    // Nor does anybody get the name of a token that an admin made.
    server.token(&owner, "ben.example.com", "admin");
    let (status, said) = trade(&server, &provider.proof(&owner, "toft", "ben"), "bens");
    assert_eq!(status, 422, "{said}");
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(Wire::to(&server).verb("mine", "status", &json!({ "request": {} })).0, 401, "its time is over");
}

#[test]
fn a_server_without_its_provider_says_so() {
    let home = Home::new();
    let store = home.path().join("fleet.db").display().to_string();
    let args = ["serve", "--listen", "127.0.0.1:0", "--oidc", "http://127.0.0.1:9", "--oidc-client", "toft"];
    let said = home.toft_with(Path::new("/"), &[("TOFT_STORE", &store)], &args);
    assert_ne!(said.code, 0);
    assert!(said.err.contains("http://127.0.0.1:9"), "{said:?}");
    let plain = FleetServer::start(&home, &store, &[]);
    let said = home.toft(home.path(), &["login", &plain.url, "--web"]);
    assert!(said.code != 0 && said.err.contains("identity provider"), "{said:?}");
    let open = ["serve", "--listen", "127.0.0.1:0", "--oidc", "http://provider.example", "--oidc-client", "toft"];
    let said = home.toft_with(Path::new("/"), &[("TOFT_STORE", &store)], &open);
    assert!(said.code != 0 && said.err.contains("https"), "{said:?}");
}
