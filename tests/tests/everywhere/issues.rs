//! Issues: what can start, who may take it, what comes in and goes out.

use toft_stories::prelude::*;

#[test]
fn an_epic_is_claimed_only_by_its_id_or_by_the_agent_it_is_assigned_to() {
    let (home, repo) = Home::with_repository("api");
    let epic = add(&home, &repo, &["The whole", "-t", "epic"]);
    home.toft(&repo, &["claim"]).fails(6);
    assert!(home.toft(&repo, &["list"]).ok().contains("ready, by id only"));
    home.toft(&repo, &["claim", &epic]).ok();
    home.toft(&repo, &["finish", "release", "-m", "x"]).ok();
    home.toft(&repo, &["agent", "register", "ann"]).ok();
    home.toft(&repo, &["edit", &epic, "--assignee", "ann"]).ok();
    home.toft(&repo, &["claim", "--as", "ann"]).ok();
}

#[test]
fn an_edge_to_an_issue_that_is_not_here_is_kept_and_shown() {
    let (home, repo) = Home::with_repository("api");
    fs::create_dir_all(ledger(&repo).parent().unwrap()).unwrap();
    let line = "{\"id\":\"tf-1\",\"title\":\"waits\",\"deps\":[{\"on\":\"tf-elsewhere\",\"kind\":\"blocks\"}]}\n";
    fs::write(ledger(&repo), line).unwrap();
    home.toft(&repo, &["edit", "tf-1", "-p", "0"]).ok();
    home.toft(&repo, &["gc", "--ledgers"]).ok();
    assert!(
        home.toft(&repo, &["show", "tf-1", "--why"]).ok().contains("needs tf-elsewhere, which is in no ledger here")
    );
    assert!(home.toft(&repo, &["doctor"]).ok().contains("tf-elsewhere"));
    assert!(fs::read_to_string(ledger(&repo)).unwrap().contains("tf-elsewhere"));
    home.toft(&repo, &["claim", "tf-1"]).fails(5);
}

#[test]
fn parts_of_what_is_blocked_or_put_off_wait_and_say_why() {
    let (home, repo) = Home::with_repository("api");
    let blocker = add(&home, &repo, &["blocker", "-p", "4"]);
    let epic = add(&home, &repo, &["epic", "-t", "epic", "--needs", &blocker]);
    let child = add(&home, &repo, &["child", "-t", "epic", "--parent", &epic]);
    let grandchild = add(&home, &repo, &["grandchild", "--parent", &child, "-p", "0"]);
    let ready = || home.toft(&repo, &["ready", "-q"]).ok().lines().map(str::to_owned).collect::<Vec<_>>();
    let why = |id: &str| home.toft(&repo, &["show", id, "--why"]).ok();
    assert_eq!(ready(), [blocker.as_str()]);
    assert!(why(&grandchild).contains(&format!("{epic}, of which it is part, needs {blocker}")));
    assert!(why(&child).contains("1 of its parts are not done"));
    home.toft(&repo, &["close", &blocker, "-m", "gone"]).ok();
    assert_eq!(ready(), [grandchild.as_str()]);
    home.toft(&repo, &["edit", &epic, "--defer", "1h"]).ok();
    assert!(home.toft(&repo, &["ready"]).ok().contains("Nothing"));
    assert!(why(&grandchild).contains("is deferred until"));
    home.toft(&repo, &["reopen", &epic]).ok();
    assert_eq!(ready(), [grandchild.as_str()]);
    home.toft(&repo, &["close", &grandchild, "-m", "done"]).ok();
    assert!(ready().is_empty(), "{child} and {epic} closed with it");
    home.toft(&repo, &["edit", &grandchild, "--parent", &grandchild]).refuses(5, "wait for each other");
}

#[test]
fn one_order_of_issues_and_tasks_and_labels_that_say_who_may_take_them() {
    let (home, repo) = Home::with_repository("api");
    home.toft(&repo, &["flow", "new", "a task", "-p", "1"]).ok();
    let urgent = add(&home, &repo, &["urgent", "-p", "0"]);
    let not_me = add(&home, &repo, &["ask first", "-p", "0", "-l", "no-auto-claim"]);
    let found = add(&home, &repo, &["in the way", "-p", "4", "-l", "discovered:blocker"]);
    let broken = add(&home, &repo, &["the build is red", "-p", "4", "-l", "baseline-failure"]);
    let aside = add(&home, &repo, &["could be nicer", "-p", "0", "-l", "discovered:related"]);
    let names = home.toft(&repo, &["ready", "-q"]).ok();
    let names: Vec<_> = names.lines().collect();
    assert_eq!(names[..5], [&broken, &found, &urgent, &not_me, &aside], "listed in one order");
    for id in [&broken, &aside] {
        home.toft(&repo, &["close", id, "-m", "seen"]).ok();
    }
    let claimed = |agent: &str| home.toft(&repo, &["claim", "--as", agent, "--json"]).data();
    assert_eq!(claimed("a")["issue"]["id"], found.as_str());
    assert_eq!(claimed("b")["issue"]["id"], urgent.as_str());
    assert_eq!(claimed("c")["issue"], Value::Null);
    home.toft(&repo, &["claim", "--as", "d"]).fails(6);
    assert_eq!(home.toft(&repo, &["claim", &not_me, "--as", "d", "--json"]).data()["issue"]["status"], "in_progress");
    home.toft(&repo, &["claim", &not_me, "--as", "e"]).fails(5);
    home.toft(&repo, &["finish", "--as", "d", "-m", "asked", "--no-change", "it was a question"]).ok();
    let closed = &listed(&home, &repo)[&not_me];
    assert_eq!((closed["status"].as_str(), closed["closed"]["reason"].as_str()), (Some("closed"), Some("asked")));
    let flow = home.toft(&repo, &["show", &urgent, "--json"]).data()["workflow"].as_str().unwrap().to_owned();
    home.toft(&repo, &["flow", "abandon", &flow]).ok();
    assert_eq!(listed(&home, &repo)[&urgent]["status"], "open", "given up, it is open again");
}

#[test]
fn what_was_done_is_taken_back_unless_somebody_may_have_acted_on_it() {
    let (home, repo) = Home::with_repository("api");
    let undo = |args: &[&str]| home.toft(&repo, &[&["undo"], args].concat());
    undo(&[]).fails(6);
    let before = add(&home, &repo, &["before", "-l", "db"]);
    let was = listed(&home, &repo)[&before].clone();
    let edit =
        ["edit", &before, "--title", "after", "-p", "0", "-l", "ui", "--unlabel", "db", "-m", "why", "--defer", "1h"];
    home.toft(&repo, &edit).ok();
    let changed = listed(&home, &repo)[&before].clone();
    assert!(undo(&["-n"]).ok().contains("issue.edited"));
    assert_eq!(listed(&home, &repo)[&before], changed, "looking changes nothing");
    undo(&[]).ok();
    assert_eq!(listed(&home, &repo)[&before], was);
    undo(&[]).ok();
    assert!(listed(&home, &repo).is_empty(), "what was added is deleted");

    // Many at once go at once, unless something else hangs on one of them.
    fs::write(repo.join("plan.md"), "- `a` first\n- second (needs a)\n").unwrap();
    home.toft(&repo, &["import", "markdown", "plan.md"]).ok();
    let first = home.toft(&repo, &["ready", "-q"]).ok().trim().to_owned();
    let later = add(&home, &repo, &["hangs on it", "--needs", &first, "--as", "bob"]);
    assert!(undo(&[]).fails(5).contains(&later));
    home.toft(&repo, &["undo", "--as", "bob"]).ok();
    undo(&[]).ok();
    assert!(listed(&home, &repo).is_empty());

    // What somebody else wrote over stays.
    let id = add(&home, &repo, &["shared"]);
    home.toft(&repo, &["edit", &id, "--title", "mine"]).ok();
    home.toft(&repo, &["edit", &id, "--title", "theirs", "--as", "bob"]).ok();
    assert!(undo(&[]).fails(5).contains("changed since"));
    assert_eq!(listed(&home, &repo)[&id]["title"], "theirs");

    // A claim is given back; what others may have read or built on stays.
    home.toft(&repo, &["claim", "--as", "eve"]).ok();
    assert_eq!(listed(&home, &repo)[&id]["status"], "in_progress");
    home.toft(&repo, &["undo", "--as", "eve"]).ok();
    assert_eq!(listed(&home, &repo)[&id]["status"], "open");
    home.toft(&repo, &["claim", "--as", "eve"]).ok();
    home.toft(&repo, &["save", "--as", "eve", "-m", "half"]).ok();
    assert!(home.toft(&repo, &["undo", "--as", "eve"]).fails(5).contains("read"));
    home.toft(&repo, &["finish", "--as", "eve", "-m", "done", "--no-change", "a trial"]).ok();
    assert!(home.toft(&repo, &["undo", "--as", "eve"]).fails(5).contains("waited"));
    assert_eq!(listed(&home, &repo)[&id]["status"], "closed");

    // A workflow nobody worked on is given up; one that was paused goes on.
    let flow = home.toft(&repo, &["flow", "new", "a plan", "--as", "max", "-q"]).ok();
    let flow = flow.lines().next().unwrap().to_owned();
    home.toft(&repo, &["flow", "pause", &flow, "--as", "max"]).ok();
    home.toft(&repo, &["undo", "2", "--as", "max"]).ok();
    assert_eq!(home.toft(&repo, &["show", &flow, "--json"]).data()["workflow"]["status"], "abandoned");
    home.toft(&repo, &["doctor"]).ok();
}

#[test]
fn history_of_an_issue_says_what_was_written() {
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, &["one"]);
    home.toft(&repo, &["edit", &id, "--title", "two", "-l", "ui", "--as", "bob"]).ok();
    for args in [["history", &id], ["show", &id]] {
        home.toft(&repo, &args).says_all(&["bob", "title=two +ui"]);
    }
    assert_eq!(home.toft(&repo, &["show", &id, "--json"]).data()["history"].as_array().unwrap().len(), 2);
}

#[test]
fn the_schema_knows_every_field_of_a_real_ledger() {
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, &["one", "-d", "b", "--design", "d", "--acceptance", "a", "--notes", "n", "-l", "x"]);
    add(&home, &repo, &["two", "--needs", &id, "--owner", "o", "--defer", "1h", "--template", "t"]);
    home.toft(&repo, &["edit", &id, "-m", "said"]).ok();
    home.toft(&repo, &["close", &id, "-m", "done"]).ok();
    let schema: Value = serde_json::from_str(&home.toft(&repo, &["export", "schema"]).ok()).unwrap();
    for line in home.toft(&repo, &["export", "jsonl"]).ok().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for name in line.as_object().unwrap().keys() {
            assert!(schema["properties"][name].is_object(), "{name}");
        }
    }
}

#[test]
fn an_issue_given_back_is_open_again_and_one_that_is_held_is_not_closed_by_hand() {
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, &["work"]);
    let later = add(&home, &repo, &["later", "--defer", "1h"]);
    home.toft(&repo, &["claim", &id, "--as", "ana"]).ok();
    assert!(home.toft(&repo, &["claim", &id, "--as", "bob"]).fails(5).contains("held by ana"));
    assert!(home.toft(&repo, &["close", &id, "-m", "no"]).fails(5).contains("held by ana"));
    home.toft(&repo, &["delete", &id]).fails(5);
    home.toft(&repo, &["save", &id, "--as", "ana", "-m", "half"]).ok();
    home.toft(&repo, &["finish", &id, "release", "--as", "ana"]).ok();
    let row = &listed(&home, &repo)[&id];
    assert_eq!((row["status"].as_str(), row.get("assignee")), (Some("open"), None));
    assert!(home.toft(&repo, &["show", &id, "--why"]).ok().contains("It can start now"));
    assert!(home.toft(&repo, &["ready", "--explain"]).ok().contains(&format!("{later}  not ready")));
    assert!(home.toft(&repo, &["claim", &id, "--as", "bob"]).ok().contains("continue from: half"));
    home.toft(&repo, &["finish", &id, "release", "--as", "bob"]).ok();
    home.toft(&repo, &["close", &id, "-m", "not wanted"]).ok();
    assert_eq!(listed(&home, &repo)[&id]["closed"]["reason"], "not wanted");
    home.toft(&repo, &["claim", "--as", "carl"]).fails(6);
    home.toft(&repo, &["delete", &id, "-m", "gone"]).ok();
    assert!(home.toft(&repo, &["list", "--status", "deleted", "-q"]).ok().contains(&id));
}

/// The ledger of another project, as published; one of the same shape where that is not to be had.
fn beads() -> String {
    let path = toft_stories::stories_dir().join("../../shared/data/beads-824.jsonl");
    fs::read_to_string(path).unwrap_or_else(|_| (0..200).map(made_up).collect())
}

fn made_up(n: usize) -> String {
    let at = format!("2025-11-02T21:58:{:02}.295058-08:00", n % 60);
    let kinds = ["task", "bug", "feature", "epic", "chore"];
    let mut issue = serde_json::json!({
        "id": format!("bd-{n:03x}"), "title": format!("Issue {n}"), "description": "a\nb", "priority": n % 5,
        "issue_type": kinds[n % 5], "status": if n.is_multiple_of(3) { "open" } else { "closed" }, "created_at": at, "updated_at": at,
    });
    if !n.is_multiple_of(3) {
        issue["closed_at"] = at.clone().into();
    }
    let dep = |on: usize, kind: &str| serde_json::json!({ "issue_id": format!("bd-{n:03x}"), "depends_on_id": format!("bd-{on:03x}"), "type": kind, "created_at": at, "created_by": "ana" });
    match n % 7 {
        1 if n > 20 => {
            issue["dependencies"] = serde_json::json!([dep(n / 2, "blocks"), dep(n / 10 * 5 + 3, "parent-child")])
        }
        2 => issue["labels"] = serde_json::json!(["a", "b"]),
        3 => {
            issue["comments"] = serde_json::json!([{ "id": n, "issue_id": format!("bd-{n:03x}"), "author": "ana", "text": "said", "created_at": at }])
        }
        4 => issue["deleted_at"] = at.clone().into(),
        5 => issue["notes"] = "noted".into(),
        _ => {}
    }
    format!("{issue}\n")
}

#[test]
fn a_beads_ledger_comes_in_whole_and_goes_out_as_it_was() {
    let text = beads();
    let count = Some(text.lines().count() as u64);
    let (home, repo) = Home::with_repository("api");
    let file = home.path().join("beads.jsonl");
    fs::write(&file, &text).unwrap();
    let import = || home.toft(&repo, &["import", "beads", file.to_str().unwrap(), "--json"]).data();
    let first = import();
    assert_eq!(
        (first["read"].as_u64(), first["changed"].as_u64(), first["unreadable"].as_array().map(Vec::len)),
        (count, count, Some(0))
    );
    let bytes = fs::read(ledger(&repo)).unwrap();
    assert_eq!(import()["changed"], 0, "a second time changes nothing");
    assert_eq!(fs::read(ledger(&repo)).unwrap(), bytes);
    home.toft(&repo, &["gc", "--ledgers"]).ok();
    let row = |line: &str| -> (String, Value) {
        let mut row: Value = serde_json::from_str(line).unwrap();
        for list in ["dependencies", "labels", "comments"] {
            if let Some(members) = row.get_mut(list).and_then(Value::as_array_mut) {
                members.sort_by_key(ToString::to_string);
            }
        }
        (row["id"].as_str().unwrap().to_owned(), row)
    };
    let theirs: BTreeMap<_, _> = text.lines().map(row).collect();
    let out = home.toft(&repo, &["export", "beads"]).ok();
    let ours: BTreeMap<_, _> = out.lines().map(row).collect();
    for (id, issue) in &theirs {
        assert_eq!(ours.get(id), Some(issue));
    }
    assert_eq!(ours.len(), theirs.len());
    let ready: BTreeSet<_> =
        home.toft(&repo, &["ready", "-q", "--limit", "1000"]).ok().lines().map(str::to_owned).collect();
    assert_eq!(ready, ready_by_brute_force(&theirs));
    let page = home.toft(&repo, &["ready"]).ok();
    assert!(page.lines().count() <= 21 && tokens(&page) < 1_000, "{page}");
}

/// The ready rule once more, from the words of the design and nothing else.
fn ready_by_brute_force(issues: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let open =
        |id: &str| issues.get(id).is_some_and(|issue| issue["status"] != "closed" && issue.get("deleted_at").is_none());
    let targets = |id: &str, kind: &str| -> Vec<String> {
        let deps = issues.get(id).and_then(|issue| issue.get("dependencies")).and_then(Value::as_array);
        let of_kind = deps.into_iter().flatten().filter(|dep| dep["type"] == kind);
        of_kind.map(|dep| dep["depends_on_id"].as_str().unwrap().to_owned()).collect()
    };
    let parent = |id: &str| targets(id, "parent-child").pop();
    let blocked = |id: &str| targets(id, "blocks").iter().any(|on| !issues.contains_key(on) || open(on));
    let ready = |id: &String| {
        let mut line = Some(id.clone());
        let mut held = false;
        while let Some(at) = line {
            held |= (at == *id || open(&at)) && blocked(&at);
            line = parent(&at);
        }
        let parts = issues.keys().any(|other| open(other) && parent(other).as_ref() == Some(id));
        open(id) && !held && !(issues[id]["issue_type"] == "epic" && parts)
    };
    issues.keys().filter(|id| ready(id)).cloned().collect()
}

#[test]
fn hostile_text_is_shown_and_never_sent() {
    let (home, repo) = Home::with_repository("api");
    let evil = "\u{1b}[31mred\u{7} \u{202e}esrever <script>\u{0}".replace('\0', "");
    let id = add(&home, &repo, &[&evil, "-d", &evil]);
    for args in [
        vec!["list"],
        vec!["show", &id],
        vec!["ready"],
        vec!["list", "--graph"],
        vec!["list", "--graph=dot"],
        vec!["list", "--graph=mermaid"],
    ] {
        let said = home.toft(&repo, &args).ok();
        assert!(!said.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{args:?}: {said:?}");
    }
    let deep =
        format!("{{\"id\":\"tf-deep\",\"title\":\"deep\",\"x\":{}{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
    let long = format!("{{\"id\":\"tf-long\",\"title\":\"{}\"}}\n", "x".repeat(20 << 20));
    let mut file = fs::OpenOptions::new().append(true).open(ledger(&repo)).unwrap();
    std::io::Write::write_all(&mut file, format!("{deep}{long}\0\0\n").as_bytes()).unwrap();
    let rows = listed(&home, &repo);
    assert!(rows.contains_key(&id) && !rows.contains_key("tf-long"));
    for _ in 0..2 {
        home.toft(&repo, &["doctor"]).says("longer than 16 MiB");
        home.toft(&repo, &["gc", "--ledgers"]).ok();
        assert!(listed(&home, &repo).contains_key(&id));
    }
}

#[test]
fn one_issue_that_cannot_start_stands_in_nobodys_way() {
    let (home, repo) = Home::with_repository("api");
    for n in 0..20 {
        add(&home, &repo, &[&format!("ask {n}"), "-p", "0", "-l", "no-auto-claim"]);
    }
    add(&home, &repo, &["no such template", "-p", "0", "--template", "nope"]);
    let good = add(&home, &repo, &["good", "-p", "4", "-l", "foo"]);
    assert_eq!(home.toft(&repo, &["claim", "-l", "foo", "--as", "a", "--json"]).data()["issue"]["id"], good.as_str());
    home.toft(&repo, &["finish", "--as", "a", "release"]).ok();
    assert_eq!(home.toft(&repo, &["claim", "--as", "b", "--json"]).data()["issue"]["id"], good.as_str());
    // Nothing else is ready: that is the answer, and it names the template.
    home.toft(&repo, &["claim", "--as", "c"]).refuses_all(6, &["nothing is ready", "cannot be started", "`nope`"]);
    assert!(home.toft(&repo, &["claim", "-l", "foo", "--as", "c"]).fails(6).contains("nothing is ready\n"));
    // Closed in the file meanwhile, giving it back does not open it again.
    let text = fs::read_to_string(ledger(&repo)).unwrap();
    let line = text.lines().rfind(|line| line.contains(&good)).unwrap();
    fs::write(ledger(&repo), format!("{text}{}\n", line.replace("\"in_progress\"", "\"closed\""))).unwrap();
    home.toft(&repo, &["finish", "--as", "b", "release"]).ok();
    assert_eq!(listed(&home, &repo)[&good]["status"], "closed");
}

#[test]
fn what_waits_for_itself_is_refused_however_it_is_tied() {
    let (home, repo) = Home::with_repository("api");
    let epic = add(&home, &repo, &["epic", "-t", "epic"]);
    let before = add(&home, &repo, &["before"]);
    let part = add(&home, &repo, &["part", "--parent", &epic]);
    home.toft(&repo, &["edit", &epic, "--needs", &before]).ok();
    assert!(home.toft(&repo, &["edit", &before, "--needs", &part]).fails(5).contains("wait for each other"));
    home.toft(&repo, &["edit", &part, "--needs", &epic]).fails(5);
    home.toft(&repo, &["add", "new", "--parent", &epic, "--needs", &epic]).fails(5);
    home.toft(&repo, &["edit", &before, "--parent", &epic]).fails(5);
    // A closed whole between: what its own whole needs still counts.
    let inner = add(&home, &repo, &["inner", "-t", "epic"]);
    let leaf = add(&home, &repo, &["leaf", "--parent", &inner]);
    home.toft(&repo, &["close", &inner, "-m", "x"]).ok();
    home.toft(&repo, &["edit", &inner, "--parent", &epic]).ok();
    assert!(!home.toft(&repo, &["ready", "-q"]).ok().contains(&leaf));
    let twice = ["edit", &leaf, "-m", "said once", "--op", "op-1"];
    home.toft(&repo, &twice).ok();
    home.toft(&repo, &twice).ok();
    assert_eq!(listed(&home, &repo)[&leaf]["comments"].as_array().unwrap().len(), 1);
}

#[test]
fn a_closed_issue_needs_nobody_any_more() {
    let (home, repo) = toft_stories::agents::started(&["Fails", "Asks"]);
    home.toft(
        &repo,
        &[
            "run",
            "--until-idle",
            "--",
            "sh",
            "-c",
            "case $(toft show \"$TOFT_ISSUE\") in *Asks*) toft finish waiting -m 'Which?';; *) exit 1;; esac",
        ],
    );
    let needs = || home.toft(&repo, &["status", "--json"]).data()["needs_you"].as_array().unwrap().len();
    assert_eq!(needs(), 2, "{}", home.toft(&repo, &["status"]).out);
    for id in home.toft(&repo, &["list", "-q"]).ok().lines() {
        home.toft(&repo, &["close", id, "-m", "no longer wanted"]).ok();
    }
    assert_eq!(needs(), 0);
    let status = home.toft(&repo, &["status"]).ok();
    assert!(!status.contains("Fails") && !status.contains("Asks"), "{status}");
}
