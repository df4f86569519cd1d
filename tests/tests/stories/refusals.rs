//! What commands refuse instead of doing something else than was asked.

use toft_stories::prelude::*;

#[test]
fn a_preview_of_a_retry_retries_nothing_and_flags_that_mean_nothing_are_refused() {
    let (home, repo) = Home::with_repository("api");
    let plan = home.path().join("plan.toml");
    std::fs::write(&plan, "title = \"P\"\n[[tasks]]\nname = \"a\"\n").unwrap();
    let plan = plan.to_str().unwrap();
    let made = home.toft(&repo, &["flow", "new", "Ship", "--task", "a", "--json"]).data();
    let workflow = made["workflow"]["id"].as_str().unwrap();
    for refused in [
        &["retry", "-n", workflow][..],
        &["retry", "--failed-by", "x", workflow],
        &["flow", "new", "--file", plan, "--budget", "5"],
        &["flow", "new", "--file", plan, "--task", "b"],
        &["flow", "new", "Title", "--file", plan],
        &["flow", "new", "Title", "--set", "a=b"],
        &["flow", "edit", workflow],
        &["flow", "edit", workflow, "-p", "P0"],
        &["flow", "edit", workflow, "--budget", "3", "--repository", "web"],
        &["ws", "gc", "--at", "1", "-n"],
        &["ws", "gc", "--at", "1"],
        &["ws", "rm", "x", "--landed", "--ignored"],
    ] {
        home.toft(&repo, refused).fails(2);
    }
}

#[test]
fn work_of_another_agent_is_neither_recorded_as_landed_nor_reopened() {
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, &["Mend it"]);
    let claim = home.toft(&repo, &["claim", &id, "--ws", "--as", "bob", "--json"]).data();
    let name = claim["workspace"]["name"].as_str().unwrap();
    home.toft(&repo, &["ws", "rm", name, "--landed", "--as", "eve"]).fails(5);
    assert!(!home.toft(&repo, &["ws", "list"]).ok().contains("as recorded"));
    assert!(home.toft(&repo, &["reopen", &id, "--as", "eve"]).fails(5).contains("held by bob"));
    assert_eq!(home.toft(&repo, &["show", &id, "--json"]).data()["status"], "in_progress");
    home.toft(&repo, &["finish", "--as", "bob", "--no-change", "fine"]).ok();
    home.toft(&repo, &["ws", "rm", name, "--landed"]).ok();
    home.toft(&repo, &["ws", "rm", name, "--landed"]).fails(5);
}
