//! The protocol: nothing that fits a server's description breaks it.
#![cfg(target_os = "linux")]

use toft_stories::prelude::*;

fn server(home: &Home) -> FleetServer {
    FleetServer::start(home, &home.path().join("fleet.db").display().to_string(), &[])
}

#[test]
#[ignore = "wide: schemathesis"]
fn nothing_that_the_description_allows_or_forbids_breaks_a_server() {
    let program = tool_dir("schemathesis").join("bin/schemathesis");
    if !program.exists() {
        assert!(std::env::var_os("TOFT_TEST_ALL").is_none(), "schemathesis is not installed; .ci/run does it");
        return;
    }
    let (home, server) = Home::with(server);
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
