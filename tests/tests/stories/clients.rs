//! Real clients through `toft run`, with models on loopback: Claude Code, Codex and Gemini CLI, as npm has them.
//!
//! `.ci/run` installs them below `target/tools/clients`. Elsewhere a story whose client is not installed says so and ends.

#![cfg(unix)]

use toft_stories::lab::{CLIENTS, Lab, installed, work};
use toft_stories::models::{Model, Step};
use toft_stories::prelude::*;

/// Claims, edits, tests, commits and reports.
fn finishes(client: &'static str) {
    let Some(mut lab) = Lab::new(client) else { return };
    let before = fs::read(lab.repo.join(".git/config")).unwrap();
    let model = Model::start(work("the greeting says hello"));
    lab.talk_to(&model);
    let id = add(&lab.home, &lab.repo, &["Say hello", "-d", "greeting.txt has to contain hello"]);
    let said = lab.run(&id);
    let issue = lab.issue(&id);
    assert_eq!(issue["status"], "closed", "{said}");
    let heard = model.heard();
    assert!(heard.contains("greeting.txt has to contain hello"), "{client} got the brief");
    assert!(heard.contains("passed-42"), "{client} ran the test: {said}");
    let text = lab.home.run(&lab.repo, "git", &["show", &format!("{}:greeting.txt", lab.branch())]);
    assert_eq!(text, "hello\n", "{client}");
    assert!(issue.to_string().contains("the greeting says hello"), "{client}: {issue}");
    // Its stream reads as a conversation, in the log and while it runs.
    assert!(said.contains(": sh check.sh") && said.contains("→ passed-42") && said.contains("All done."), "{said}");
    assert!(!said.contains("{\"type\""), "{said}");
    lab.home.toft(&lab.repo, &["show", &id, "--log", "--raw"]).says("{\"type\"");
    let tasks = lab.home.toft(&lab.repo, &["list", "tasks", "--all", "--json"]).data();
    let task = lab.home.toft(&lab.repo, &["show", tasks[0]["id"].as_str().unwrap(), "--json"]).data().to_string();
    assert!(task.contains("\"input_tokens\":") && task.contains("\"output_tokens\":"), "{client}: {task}");
    assert_eq!(fs::read(lab.repo.join(".git/config")).unwrap(), before, "{client} left the configuration alone");
    assert_eq!(lab.home.run(&lab.repo, "git", &["status", "--porcelain"]), "", "{client}");
}

/// Asks a person, and goes on with the answer.
fn asks(client: &'static str) {
    let Some(mut lab) = Lab::new(client) else { return };
    let asking = Model::start(vec![
        Step::shell("toft finish waiting -m 'Which greeting do you want?'"),
        Step::say("I have asked."),
    ]);
    lab.talk_to(&asking);
    let id = add(&lab.home, &lab.repo, &["Greet"]);
    let said = lab.run(&id);
    let status = lab.home.toft(&lab.repo, &["status"]).ok();
    assert!(status.contains("Which greeting do you want?"), "{said}\n{status}");
    lab.home.toft(&lab.repo, &["answer", &id, "The word is hello-from-a-person"]).ok();
    // The conversation goes on: its first step was the question.
    let script = std::iter::once(Step::say("not again")).chain(work("as they said")).collect();
    let working = Model::start(script);
    lab.talk_to(&working);
    let said = lab.run(&id);
    assert_eq!(lab.issue(&id)["status"], "closed", "{said}");
    let first = working.requests()[0].to_string();
    assert!(first.contains("I have asked."), "{client} goes on with its own conversation: {first}");
    assert!(working.heard().contains("hello-from-a-person"), "{client} was told the answer: {said}");
}

/// A message reaches the client while it works, and its delivery is recorded.
fn is_told(client: &'static str) {
    let Some(mut lab) = Lab::new(client) else { return };
    let id = add(&lab.home, &lab.repo, &["Say hello"]);
    // Another agent sends the message while this one works.
    fs::write(lab.repo.join("news.sh"), format!("env -u TOFT_TASK -u TOFT_FENCE -u TOFT_ATTEMPT toft --as bob tell {id} blue-$((6 * 7)) --wait 1s >> /dev/null\nsleep 1\n")).unwrap();
    commit_all(&lab.home, &lab.repo, "news");
    // Claude Code has a hook; the others hear it with their next checkpoint.
    let mut script = vec![Step::shell("sh news.sh"), Step::shell("toft save -m halfway")];
    script.extend(work("hello it is"));
    let model = Model::start(script);
    lab.talk_to(&model);
    let said = lab.run(&id);
    let requests: Vec<String> = model.requests().iter().map(Value::to_string).collect();
    let heard = if client == "claude" { 1 } else { 2 };
    assert!(requests[heard].contains("blue-42"), "{client}: {said}\n{}", requests[heard]);
    let events = lab.home.toft(&lab.repo, &["history", "--json", "--limit", "100"]).data();
    let read = events.as_array().unwrap().iter().find(|event| event["verb"] == "message.read").cloned();
    let read = read.unwrap_or_else(|| panic!("{events}"));
    let proof = lab.home.toft(&lab.repo, &["history", read["entity"].as_str().unwrap()]).ok();
    assert!(proof.contains("message.read") || proof.contains("read"), "{proof}");
}

/// Its work conflicts with what landed meanwhile; it resolves the conflict from what the brief says.
fn resolves_a_conflict(client: &'static str) {
    let Some(mut lab) = Lab::new(client) else { return };
    lab.home.until_landed();
    let model = Model::start(work("the greeting says hello"));
    lab.talk_to(&model);
    let id = add(&lab.home, &lab.repo, &["Say hello", "-d", "greeting.txt has to contain hello"]);
    let said = lab.run(&id);
    assert!(lab.home.toft(&lab.repo, &["land", "list"]).ok().contains("ready to land"), "{said}");
    // Another agent's work lands first, in the same file.
    let body = "Farewells matter: greeting.txt has to contain goodbye";
    let other = add(&lab.home, &lab.repo, &["Say goodbye", "-d", body]);
    let script = "echo goodbye > greeting.txt; git add -A; git commit -qm goodbye; \
                  toft finish --evidence HEAD -m 'the last line is goodbye'";
    lab.home.toft(&lab.repo, &["run", "--once", "--", "sh", "-c", script]).ok();
    lab.home.toft(&lab.repo, &["land", &other]).ok();
    lab.home.toft(&lab.repo, &["land"]).says("sent back");

    // The commit to merge, and what both sides are for, are in what the client was told.
    fn resolve(told: &str) -> String {
        let commit = told.split("git merge ").nth(1).and_then(|rest| rest.split('`').next()).unwrap_or("nothing");
        let both =
            ["contain hello", "contain goodbye", "the last line is goodbye"].iter().all(|fact| told.contains(fact));
        let text = if both { "hello\\ngoodbye\\n" } else { "" };
        format!(
            "git merge -q {commit}; printf '{text}' > greeting.txt; sh check.sh; git add -A; git commit -q -m both; \
             toft finish --evidence HEAD -m 'both greetings'"
        )
    }
    let steps = std::iter::repeat_n(Step::Told(resolve), 12).chain([Step::say("All done.")]);
    let mending = Model::start(steps.collect());
    lab.talk_to(&mending);
    let said = lab.run(&id);
    lab.home.toft(&lab.repo, &["land"]).ok();
    assert_eq!(lab.issue(&id)["status"], "closed", "{client}: {said}\n{}", mending.heard());
    let text = lab.home.run(&lab.repo, "git", &["show", "main:greeting.txt"]);
    assert_eq!(text, "hello\ngoodbye\n", "{client}");
}

/// Over the Agent Client Protocol: works, asks, and goes on with the answer.
fn speaks_acp(client: &'static str, agent: &str, keeps_sessions: bool) {
    let Some(mut lab) = Lab::new(client) else { return };
    let asking = Model::start(vec![
        Step::shell("toft finish waiting -m 'Which greeting do you want?'"),
        Step::say("I have asked."),
    ]);
    lab.talk_to(&asking);
    let id = add(&lab.home, &lab.repo, &["Greet", "-d", "greeting.txt has to contain hello"]);
    let said = lab.run_as(agent, &id);
    assert!(asking.heard().contains("greeting.txt has to contain hello"), "{agent} got the brief: {said}");
    assert!(lab.home.toft(&lab.repo, &["status"]).ok().contains("Which greeting do you want?"), "{said}");
    lab.home.toft(&lab.repo, &["answer", &id, "The word is hello-from-a-person"]).ok();
    // Wherever the conversation goes on, the next step does it all.
    let all = "echo hello > greeting.txt && sh check.sh && git add greeting.txt && git commit -q -m 'say hello'; \
               toft finish --evidence HEAD -m 'as they said'";
    let working = Model::start(vec![Step::shell(all), Step::shell(all), Step::shell(all), Step::say("All done.")]);
    lab.talk_to(&working);
    let said = lab.run_as(agent, &id);
    assert_eq!(lab.issue(&id)["status"], "closed", "{said}");
    let first = working.requests()[0].to_string();
    assert!(first.contains("has to contain hello") && first.contains("hello-from-a-person"), "{agent}: {first}");
    assert!(first.contains("I have asked.") || !keeps_sessions, "{agent}: {first}");
    assert!(working.heard().contains("passed-42") && said.contains("All done."), "{agent}: {said}");
}

/// What one client failed at is in the brief of the next, if that is another one.
#[test]
#[ignore = "wide: coding agents"]
fn another_client_learns_from_the_failure() {
    let (Some(mut lab), Some(_)) = (Lab::new("codex"), installed("claude")) else { return };
    lab.home.set("TOFT_RETRY_BACKOFF", "10ms");
    fs::write(lab.repo.join("paint.sh"), "echo \"error: expected the colour teal-$((6 * 7))\"; exit 1\n").unwrap();
    commit_all(&lab.home, &lab.repo, "a test");
    let failing = Model::start(vec![
        Step::shell("sh paint.sh"),
        Step::shell("toft finish failed -m 'the test fails'"),
        Step::say("I gave up."),
    ]);
    lab.talk_to(&failing);
    let id = add(&lab.home, &lab.repo, &["Say hello"]);
    let said = lab.run(&id);
    assert!(said.contains("failed"), "{said}");
    lab.client = "claude";
    let model = Model::start(work("teal it is"));
    lab.talk_to(&model);
    let said = lab.run(&id);
    assert_eq!(lab.issue(&id)["status"], "closed", "{said}");
    let first = model.requests()[0].to_string();
    assert!(first.contains("expected the colour teal-42") && first.contains("sh paint.sh"), "{first}");
}

/// Its provider refuses: the task is given back uncounted, the agent rests, another agent goes on.
fn is_refused(client: &'static str, body: Value) {
    let Some(mut lab) = Lab::new(client) else { return };
    let model = Model::start(vec![Step::Refuse(429, body)]);
    lab.talk_to(&model);
    let id = add(&lab.home, &lab.repo, &["Say hello"]);
    let said = lab.run(&id);
    assert!(said.contains("its provider refused") && said.contains("agent_rests"), "{said}");
    let task = lab.home.toft(&lab.repo, &["list", "tasks", "--all", "--json"]).data()[0].clone();
    assert_eq!((&task["status"], &task["attempt"]), (&"pending".into(), &0.into()), "{said}");
    let status = lab.home.toft(&lab.repo, &["status"]).ok();
    assert!(status.contains(&format!("{client} rests until")), "{status}");
    let asked = model.requests().len();
    let again = lab.home.toft(&lab.repo, &["run", "--agent", client, "--once"]).fails(7);
    assert!(again.contains("rests until") && model.requests().len() == asked, "{again}");
    let other = ["run", "--once", "--", "sh", "-c", "echo hello > greeting.txt; git add .; git commit -qm hello"];
    lab.home.toft(&lab.repo, &other).ok();
    assert_eq!(lab.issue(&id)["status"], "closed");
    lab.home.toft(&lab.repo, &other).fails(6);
}

#[test]
#[ignore = "wide: coding agents"]
fn a_limit_of_claude_code_is_nobodys_failure() {
    let message = "This request would exceed your account's rate limit. Please try again later.";
    is_refused("claude", json!({ "type": "error", "error": { "type": "rate_limit_error", "message": message } }));
}

#[test]
#[ignore = "wide: coding agents"]
fn a_limit_of_codex_is_nobodys_failure() {
    is_refused(
        "codex",
        json!({ "error": { "type": "usage_limit_reached", "message": "The usage limit has been reached" } }),
    );
}

#[test]
#[ignore = "wide: coding agents"]
fn a_limit_of_gemini_is_nobodys_failure() {
    let violation = json!({ "quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier" });
    let details = json!([{ "@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [violation] }]);
    let message = "Quota exceeded for quota metric 'Requests' and limit 'Requests per day'";
    is_refused(
        "gemini",
        json!({ "error": { "code": 429, "message": message, "status": "RESOURCE_EXHAUSTED", "details": details } }),
    );
}

/// A session of its own: the client accepts what setup wrote, its hooks brief it and deliver messages, it calls a tool.
fn sessions(client: &'static str, title: &str) {
    let Some(mut lab) = Lab::new(client) else { return };
    add(&lab.home, &lab.repo, &["Paint the shed"]);
    // Another agent sends a message; hooks look for messages once a second.
    fs::write(lab.repo.join("news.sh"), "toft --as bob agent send all red-$((6 * 7)); sleep 1\n").unwrap();
    let model = Model::start(vec![
        Step::shell("sh news.sh"),
        Step::Tool("add", json!({ "title": "From a tool", "cwd": lab.repo, "agent": "carl" })),
        Step::say("All done."),
    ]);
    lab.talk_to(&model);
    let setup = lab.home.toft(&lab.repo, &["setup", client, "--yes", "--json"]).data();
    assert_eq!(setup["clients"][0]["status"], "needs_trust", "{setup}");
    assert_eq!(lab.doctor(title)["health"], "warn");
    lab.trust();
    assert_eq!(lab.doctor(title)["health"], "ok", "{}", lab.doctor(title));
    let said = lab.start();
    let requests: Vec<String> = model.requests().iter().map(Value::to_string).collect();
    assert!(requests[0].contains("Paint the shed"), "{client} was briefed when it began: {said}");
    assert!(
        requests.last().unwrap().contains("red-42"),
        "{client} got the message: {said}\n{}",
        requests.last().unwrap()
    );
    let listed = lab.home.toft(&lab.repo, &["list"]).ok();
    assert!(listed.contains("From a tool"), "{client}: {said}\n{listed}\n{}", requests.last().unwrap());
    lab.home.toft(&lab.repo, &["setup", "--remove", "--yes"]).ok();
}

#[test]
#[ignore = "wide: coding agents"]
fn the_clients_are_those_that_toft_has_recipes_for() {
    let (home, repo) = Home::with_repository("shop");
    let known = home.toft(&repo, &["run", "--agent", "nosuch"]).fails(2);
    for client in CLIENTS {
        assert!(known.contains(client), "{known}");
    }
}

/// A story for each client, by what it does.
macro_rules! stories {
    ($($name:ident: $story:ident($($given:expr),+);)+) => {$(
        #[test]
        #[ignore = "wide: coding agents"]
        fn $name() {
            $story($($given),+);
        }
    )+};
}

stories! {
    claude_code_resolves_a_conflict_from_its_brief: resolves_a_conflict("claude");
    codex_resolves_a_conflict_from_its_brief: resolves_a_conflict("codex");
    gemini_resolves_a_conflict_from_its_brief: resolves_a_conflict("gemini");
    copilot_speaks_acp: speaks_acp("copilot", "acp:copilot", true);
    opencode_speaks_acp: speaks_acp("opencode", "acp:opencode", true);
    opencode_finishes: finishes("opencode");
    // Version 0.61 does not always write a session in time: then a new one begins, with the whole brief.
    gemini_speaks_acp: speaks_acp("gemini", "acp:gemini", false);
    claude_code_hears_what_it_is_told: is_told("claude");
    codex_hears_what_it_is_told: is_told("codex");
    gemini_hears_what_it_is_told: is_told("gemini");
    claude_code_uses_what_setup_writes: sessions("claude", "Claude Code");
    gemini_uses_what_setup_writes: sessions("gemini", "Gemini CLI");
    codex_uses_what_setup_writes: sessions("codex", "Codex");
    claude_code_finishes_a_task: finishes("claude");
    codex_finishes_a_task: finishes("codex");
    gemini_finishes_a_task: finishes("gemini");
    claude_code_asks_and_goes_on_with_the_answer: asks("claude");
    codex_asks_and_goes_on_with_the_answer: asks("codex");
    gemini_asks_and_goes_on_with_the_answer: asks("gemini");
}
