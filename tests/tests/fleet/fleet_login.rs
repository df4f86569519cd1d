//! People log in with an identity provider: a real one, on this machine.
#![cfg(target_os = "linux")]

use toft_stories::prelude::*;
use toft_stories::provider::Provider;

fn trade(server: &FleetServer, proof: &str, secret: &str) -> (u16, Value) {
    let digest = blake3::hash(secret.as_bytes()).to_hex().to_string();
    Wire::to(server).send("POST", "/v1/login", "", &json!({ "id_token": proof, "digest": digest }).to_string())
}

#[test]
#[ignore = "wide: an identity provider and a browser"]
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
    assert!(said.contains("ana.example.com (coordinator)"), "{said}");
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
#[ignore = "wide: an identity provider and a browser"]
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
#[ignore = "wide: an identity provider and a browser"]
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
