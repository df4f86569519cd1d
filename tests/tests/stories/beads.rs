//! Living with beads: imports and exports in both directions, and what other tools leave.

use toft_stories::older;
use toft_stories::prelude::*;

/// A beads file, and a repository that imports it.
struct Both {
    home: Home,
    repo: PathBuf,
    file: PathBuf,
}

impl Both {
    fn new(rows: &[Value]) -> Self {
        let home = Home::new();
        let repo = home.repo("api");
        let file = home.path().join("issues.jsonl");
        let both = Self { home, repo, file };
        both.write(rows);
        both
    }

    fn write(&self, rows: &[Value]) {
        fs::write(&self.file, rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    }

    fn toft(&self, args: &[&str]) -> String {
        self.home.toft(&self.repo, args).ok()
    }

    fn import(&self, rows: &[Value]) -> Value {
        self.write(rows);
        self.home.toft(&self.repo, &["import", "beads", self.file.to_str().unwrap(), "--json"]).data()
    }

    fn show(&self, id: &str) -> Value {
        self.home.toft(&self.repo, &["show", id, "--json"]).data()
    }

    fn export(&self) -> BTreeMap<String, Value> {
        by_id(&self.toft(&["export", "beads"]))
    }

    /// Both ways at once, in the file.
    fn exchange(&self) -> (Value, BTreeMap<String, Value>) {
        let said = self.home.toft(&self.repo, &["export", "beads", self.file.to_str().unwrap(), "--json"]).data();
        (said, by_id(&fs::read_to_string(&self.file).unwrap()))
    }
}

fn by_id(lines: &str) -> BTreeMap<String, Value> {
    let rows = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter_map(|row| Some((row["id"].as_str()?.to_owned(), row))).collect()
}

/// An issue as beads writes it, changed at a second of 2026.
fn row(id: &str, second: u32, more: &Value) -> Value {
    let mut row = json!({
        "id": id, "title": "First title", "description": "as it was", "status": "open", "priority": 2, "issue_type": "task",
        "created_at": "2026-01-01T00:00:00Z", "updated_at": format!("2026-01-01T00:{:02}:{:02}Z", second / 60, second % 60),
        "estimated_minutes": 30,
    });
    for (name, value) in more.as_object().unwrap() {
        match value {
            Value::Null => drop(row.as_object_mut().unwrap().remove(name)),
            value => row[name] = value.clone(),
        }
    }
    row
}

fn needs(id: &str, on: &str, kind: &str) -> Value {
    json!({ "issue_id": id, "depends_on_id": on, "type": kind, "created_at": "2026-01-01T00:00:00Z", "created_by": "kim" })
}

fn notes(said: &Value) -> Vec<&str> {
    said["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect()
}

#[test]
fn an_import_takes_what_beads_changed_and_nothing_else() {
    let all = json!({
        "labels": ["a", "b"], "assignee": "kim", "external_ref": "gh-1", "notes": "n", "owner": "lee",
        "dependencies": [needs("bd-1", "bd-2", "blocks"), needs("bd-1", "bd-9", "parent-child")],
    });
    let both = Both::new(&[]);
    both.import(&[row("bd-1", 0, &all), row("bd-2", 0, &json!({}))]);
    both.toft(&["edit", "bd-1", "--title", "From toft", "-m", "said in toft", "-l", "c", "-q"]);
    // Beads has seen none of that. It changes the priority, and takes away a label, both dependencies and three fields.
    let less = json!({ "labels": ["a"], "priority": 0 });
    let said = both.import(&[row("bd-1", 60, &less)]);
    assert_eq!((said["changed"].as_u64(), notes(&said).len()), (Some(1), 0), "{said}");
    let now = both.show("bd-1");
    assert_eq!((now["title"].as_str(), now["priority"].as_u64()), (Some("From toft"), Some(0)));
    assert_eq!(now["labels"], json!(["a", "c"]));
    assert_eq!(now["comments"][0]["text"], "said in toft");
    for gone in ["deps", "parent", "assignee", "owner", "notes", "external"] {
        assert!(now.get(gone).is_none_or(Value::is_null), "{gone}: {now}");
    }
    let bytes = fs::read(ledger(&both.repo)).unwrap();
    assert_eq!(both.import(&[row("bd-1", 60, &less)])["changed"], 0);
    assert_eq!(both.import(&[row("bd-1", 30, &all)])["changed"], 0, "an older file changes nothing");
    assert_eq!(fs::read(ledger(&both.repo)).unwrap(), bytes);
}

#[test]
fn closing_and_reopening_travel_both_ways() {
    let both = Both::new(&[]);
    let closed = json!({ "status": "closed", "closed_at": "2026-01-01T00:01:00Z", "close_reason": "done" });
    both.import(&[row("bd-1", 0, &json!({}))]);
    both.import(&[row("bd-1", 60, &closed)]);
    assert_eq!(
        (both.show("bd-1")["status"].clone(), both.show("bd-1")["closed"]["reason"].clone()),
        (json!("closed"), json!("done"))
    );
    both.import(&[row("bd-1", 120, &json!({}))]);
    let now = both.show("bd-1");
    assert!(now["status"] == "open" && now.get("closed").is_none_or(Value::is_null), "{now}");
    both.toft(&["close", "bd-1", "-m", "mended", "-q"]);
    let out = &both.export()["bd-1"];
    assert_eq!((&out["status"], &out["close_reason"]), (&json!("closed"), &json!("mended")));
    assert!(out["closed_at"].is_string(), "beads takes no closed issue without it: {out}");
    let taken = out.clone();
    both.import(&[taken]);
    both.toft(&["reopen", "bd-1", "-q"]);
    let out = &both.export()["bd-1"];
    assert_eq!((&out["status"], out.get("closed_at"), &out["close_reason"]), (&json!("open"), None, &json!("")));
}

#[test]
fn an_export_is_newer_than_what_it_is_built_on_and_older_than_what_beads_did_since() {
    let both = Both::new(&[]);
    both.import(&[row("bd-1", 0, &json!({ "owner": "kim" })), row("bd-2", 0, &json!({}))]);
    let before = both.export();
    assert_eq!(before["bd-1"], row("bd-1", 0, &json!({ "owner": "kim" })), "what nobody changed goes out as it came");
    both.toft(&["edit", "bd-1", "--title", "From toft", "--owner", "", "-q"]);
    let out = both.export();
    assert_eq!(out["bd-2"], before["bd-2"]);
    assert_eq!(out["bd-1"]["updated_at"], "2026-01-01T00:00:01Z", "beads takes only what is newer by a second");
    assert_eq!((&out["bd-1"]["owner"], &out["bd-1"]["estimated_minutes"]), (&json!(""), &json!(30)));
    assert_eq!(both.export(), out, "again, and nothing changes");
    // Beads took the export, then changed the title; toft changed the body meanwhile.
    both.toft(&["edit", "bd-1", "--body", "toft says more", "-q"]);
    let mut taken = out["bd-1"].clone();
    taken["title"] = json!("From beads");
    taken["updated_at"] = json!("2026-01-01T00:05:00Z");
    let said = both.import(&[taken.clone()]);
    assert_eq!(notes(&said).len(), 0, "{said}");
    let now = both.show("bd-1");
    assert_eq!((&now["title"], &now["body"]), (&json!("From beads"), &json!("toft says more")));
    // Beads goes back to the title that it had before the export: that is an edit as well.
    both.toft(&["edit", "bd-1", "--title", "From toft again", "-q"]);
    let mut back = both.export()["bd-1"].clone();
    back["title"] = json!("From beads");
    back["priority"] = json!(4);
    back["updated_at"] = json!("2026-01-01T00:09:00Z");
    both.import(&[back]);
    let now = both.show("bd-1");
    assert_eq!((&now["title"], &now["priority"]), (&json!("From beads"), &json!(4)));
}

#[test]
fn where_both_sides_changed_a_field_the_newer_wins_and_a_note_says_so() {
    let both = Both::new(&[]);
    both.import(&[row("bd-1", 0, &json!({}))]);
    both.toft(&["edit", "bd-1", "--title", "From toft", "-p", "3", "-q"]);
    let said = both.import(&[row("bd-1", 60, &json!({ "title": "From beads", "labels": ["x"] }))]);
    assert_eq!(notes(&said), ["bd-1: both sides changed title; toft changed it last and wins"]);
    let now = both.show("bd-1");
    assert_eq!((&now["title"], &now["priority"], &now["labels"]), (&json!("From toft"), &json!(3), &json!(["x"])));
    let later = json!({ "title": "Later in beads", "labels": ["x"], "updated_at": "2100-01-01T00:00:00Z" });
    let said = both.import(&[row("bd-1", 0, &later)]);
    assert_eq!(notes(&said), ["bd-1: both sides changed title; beads changed it last and wins"]);
    assert_eq!(both.show("bd-1")["title"], "Later in beads");
    both.toft(&["edit", "bd-1", "--title", "After that", "-q"]);
    assert_eq!(both.show("bd-1")["title"], "After that", "a clock ahead of ours is not believed");
}

#[test]
fn deleted_here_stays_deleted_and_what_beads_did_since_is_told() {
    let both = Both::new(&[]);
    both.import(&[row("bd-1", 0, &json!({})), row("bd-2", 0, &json!({}))]);
    both.toft(&["delete", "bd-1", "-q"]);
    let said = both.import(&[row("bd-1", 60, &json!({ "title": "Edited in beads" }))]);
    assert!(notes(&said).iter().any(|note| note.contains("toft reopen bd-1")), "{said}");
    assert!(!listed(&both.home, &both.repo).contains_key("bd-1"));
    assert_eq!(both.export()["bd-1"]["status"], "tombstone");
    both.toft(&["reopen", "bd-1", "-q"]);
    assert_eq!(both.show("bd-1")["title"], "Edited in beads");
    let gone = json!({ "status": "tombstone", "deleted_at": "2026-01-01T00:02:00Z", "deleted_by": "kim", "delete_reason": "twice" });
    both.import(&[row("bd-2", 120, &gone)]);
    assert!(!listed(&both.home, &both.repo).contains_key("bd-2"));
    assert_eq!(both.export()["bd-2"], row("bd-2", 120, &gone));
}

#[test]
fn a_removal_that_beads_does_not_import_is_named_with_the_command_for_it() {
    let both = Both::new(&[]);
    let with = json!({ "labels": ["a", "b"], "dependencies": [needs("bd-1", "bd-2", "blocks")] });
    both.import(&[row("bd-1", 0, &with), row("bd-2", 0, &json!({}))]);
    both.toft(&["edit", "bd-1", "--unlabel", "b", "--unneeds", "bd-2", "--title", "From toft", "-q"]);
    let mut taken = both.export()["bd-1"].clone();
    assert_eq!((&taken["labels"], taken.get("dependencies")), (&json!(["a"]), None));
    // bd import takes the fields, and adds labels and dependencies without removing any.
    taken["labels"] = with["labels"].clone();
    taken["dependencies"] = with["dependencies"].clone();
    let said = both.import(&[taken]);
    for command in ["bd label remove bd-1 b", "bd dep remove bd-1 bd-2"] {
        assert!(notes(&said).iter().any(|note| note.contains(command)), "{said}");
    }
    let now = both.show("bd-1");
    assert!(now["labels"] == json!(["a"]) && now.get("deps").is_none_or(Value::is_null), "{now}");
}

#[test]
fn a_comment_that_beads_numbers_anew_is_the_same_comment() {
    let both = Both::new(&[]);
    both.import(&[row("bd-1", 0, &json!({}))]);
    both.toft(&["edit", "bd-1", "-m", "said in toft", "-q"]);
    let mut taken = both.export()["bd-1"].clone();
    assert_eq!(taken["comments"][0]["text"], "said in toft");
    taken["comments"][0]["id"] = json!(17);
    taken["comments"].as_array_mut().unwrap().push(json!({ "id": 18, "issue_id": "bd-1", "author": "kim", "text": "said in beads", "created_at": "2026-01-01T00:03:00Z" }));
    taken["updated_at"] = json!("2026-01-01T00:03:00Z");
    both.import(&[taken]);
    let texts: Vec<Value> =
        both.show("bd-1")["comments"].as_array().unwrap().iter().map(|said| said["text"].clone()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
}

#[test]
fn an_export_into_the_file_of_beads_takes_its_changes_in_first_and_keeps_what_is_no_issue() {
    let both = Both::new(&[]);
    both.import(&[row("bd-1", 0, &json!({})), row("bd-2", 0, &json!({}))]);
    both.toft(&["edit", "bd-1", "--title", "From toft", "-q"]);
    let new = add(&both.home, &both.repo, &["Only here"]);
    let memory = json!({ "_type": "memory", "key": "k", "value": "remember" });
    both.write(&[
        memory.clone(),
        row("bd-2", 60, &json!({ "priority": 0 })),
        row("bd-1", 60, &json!({ "labels": ["x"] })),
        row("bd-3", 60, &json!({})),
    ]);
    let (said, rows) = both.exchange();
    assert_eq!((said["imported"]["changed"].as_u64(), said["written"].as_u64()), (Some(3), Some(2)), "{said}");
    let text = fs::read_to_string(&both.file).unwrap();
    assert!(text.starts_with(&memory.to_string()) && text.lines().nth(1).unwrap().contains("bd-2"), "{text}");
    assert_eq!((&rows["bd-1"]["title"], &rows["bd-1"]["labels"]), (&json!("From toft"), &json!(["x"])));
    assert_eq!(rows["bd-2"], row("bd-2", 60, &json!({ "priority": 0 })), "a line that is right is not written anew");
    assert_eq!((&rows[&new]["title"], &rows[&new]["priority"]), (&json!("Only here"), &json!(2)));
    assert!(rows[&new]["updated_at"].is_string() && listed(&both.home, &both.repo).contains_key("bd-3"));
    let (said, again) = both.exchange();
    assert_eq!((said["written"].as_u64(), again == rows), (Some(0), true));
    // A second clone of the same ledger knows what was taken in.
    let left: Vec<_> = fs::read_dir(both.home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".new")), "{left:?}");
}

#[test]
fn a_month_in_both_with_two_clones_loses_no_edit() {
    let (home, first, second) = two_clones();
    let file = home.path().join("issues.jsonl");
    fs::write(&file, format!("{}\n", row("bd-1", 0, &json!({ "labels": ["a"] })))).unwrap();
    let path = file.to_str().unwrap();
    let change = |at: u32, edit: &dyn Fn(&mut Value)| {
        let mut rows = by_id(&fs::read_to_string(&file).unwrap());
        let row = rows.get_mut("bd-1").unwrap();
        edit(row);
        row["updated_at"] = json!(format!("2026-02-{:02}T00:00:00Z", at));
        fs::write(&file, rows.values().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    };
    let toft = |repo: &Path, args: &[&str]| drop(home.toft(repo, args).ok());
    toft(&first, &["import", "beads", path]);
    toft(&first, &["sync"]);
    toft(&second, &["sync"]);
    for day in 1..=5_u32 {
        let (here, there) = if day % 2 == 0 { (&first, &second) } else { (&second, &first) };
        toft(here, &["edit", "bd-1", "--title", &format!("toft {day}"), "-q"]);
        toft(here, &["edit", "bd-1", if day % 2 == 0 { "--label" } else { "--unlabel" }, "even", "-q"]);
        change(day * 2, &|row| row["notes"] = json!(format!("beads {day}")));
        toft(here, &["export", "beads", path]);
        change(day * 2 + 1, &|row| row["priority"] = json!(day % 5));
        toft(here, &["sync"]);
        toft(there, &["sync"]);
        toft(there, &["import", "beads", path]);
        toft(there, &["sync"]);
        for repo in [here, there] {
            toft(repo, &["sync"]);
            let now = home.toft(repo, &["show", "bd-1", "--json"]).data();
            let said =
                (now["title"].as_str().unwrap(), now["notes"].as_str().unwrap(), now["priority"].as_u64().unwrap());
            assert_eq!(said, (format!("toft {day}").as_str(), format!("beads {day}").as_str(), u64::from(day % 5)));
            let labels = now["labels"].as_array().unwrap();
            assert_eq!(labels.contains(&json!("even")), day % 2 == 0, "{now}");
            assert!(labels.contains(&json!("a")));
        }
        let rows = by_id(&fs::read_to_string(&file).unwrap());
        assert_eq!(
            (&rows["bd-1"]["title"], &rows["bd-1"]["notes"]),
            (&json!(format!("toft {day}")), &json!(format!("beads {day}")))
        );
    }
}

fn two_clones() -> (Home, PathBuf, PathBuf) {
    let (home, (_, mut clones)) = Home::with(|home| cloned(home, &["first-clone", "second-clone"]));
    let second = clones.remove(1);
    (home, clones.remove(0), second)
}

#[test]
fn caw_brings_what_informs_what_came_of_it_and_its_templates() {
    let (home, repo) = Home::with_repository("project");
    let dir = home.path().join("caw");
    older::caw(&home, &dir, &repo.canonicalize().unwrap());
    let import = |more: &[&str]| {
        let mut args = vec!["import", "caw", "../caw/workflows.db", "--json"];
        args.extend(more);
        home.toft(&repo, &args).data()
    };
    let said = import(&[]);
    assert_eq!((said["read"].as_u64(), said["unreadable"].as_array().map(Vec::len)), (Some(4), Some(0)), "{said}");
    assert!(notes(&said).iter().any(|note| note.contains("left 1 workflows") && note.contains("Sing")), "{said}");
    let all = listed(&home, &repo);
    let called = |title: &str| {
        let id = all.values().find(|issue| issue["title"] == title).unwrap()["id"].as_str().unwrap();
        home.toft(&repo, &["show", id, "--json"]).data()
    };
    let (tokens, check, words) = (called("Issue tokens"), called("Check tokens"), called("Write it up"));
    assert_eq!(check["deps"], json!([{ "on": tokens["id"], "kind": "blocks" }]));
    assert_eq!(words["deps"], json!([{ "on": check["id"], "kind": "informs" }]));
    assert_eq!(
        (&tokens["closed"]["reason"], &tokens["closed"]["outcome"]["detail"]["files"]),
        (&json!("Tokens are issued"), &json!(["token.rs"]))
    );
    assert!(words["comments"].to_string().contains("outcome: No examples"), "{words}");
    let ready = home.toft(&repo, &["ready", "-q"]).ok();
    assert!(ready.contains(words["id"].as_str().unwrap()), "what informs does not hold back: {ready}");
    let made = home.toft(&repo, &["flow", "new", "--template", "fix", "--set", "what=the leak", "--json"]).data();
    assert!(made.to_string().contains("Find the leak"), "{made}");
    assert_eq!(import(&[])["changed"], 0);
    let said = import(&["--only", "Si*"]);
    assert_eq!((said["read"].as_u64(), said["changed"].as_u64()), (Some(6), Some(2)), "{said}");
}

#[test]
fn langgraph_gives_threads_of_this_project_or_those_that_are_asked_for() {
    let (home, repo) = Home::with_repository("project");
    older::langgraph(&home, &home.path().join("agentos"), &repo.canonicalize().unwrap());
    let import = |more: &[&str]| {
        let mut args = vec!["import", "langgraph", "../agentos/issue_workflow.db", "--json"];
        args.extend(more);
        home.toft(&repo, &args).data()
    };
    let said = import(&[]);
    assert_eq!(said["read"], 1, "{said}");
    assert_eq!(
        notes(&said),
        ["left 2 threads that do not name this project; --only NAME takes them: issue-12, issue-13"]
    );
    assert_eq!(import(&["--only", "issue-12"])["changed"], 1);
    assert_eq!(import(&["--only", "*"])["changed"], 1);
    // A database in the repository is its own.
    let inside = home.repo("inside");
    older::langgraph(&home, &inside.join(".agentos"), Path::new("/elsewhere"));
    let said = home.toft(&inside, &["import", "langgraph", ".agentos/issue_workflow.db", "--json"]).data();
    assert_eq!((said["read"].as_u64(), notes(&said).len()), (Some(3), 0), "{said}");
}

#[test]
fn a_filter_of_a_move_narrows_the_issues_that_are_named() {
    let (home, repo) = Home::with_repository("api");
    let team = home.path().join("team");
    std::fs::create_dir(&team).unwrap();
    home.toft(&repo, &["ledger", "add", "team", team.to_str().unwrap()]).ok();
    let ids = ["one", "two", "three"].map(|title| {
        add(&home, &repo, &[title, "--ledger", "branch", "-l", if title == "three" { "no" } else { "db" }])
    });
    let said = home.toft(&repo, &["move", &ids[0], &ids[2], "--to", "team", "--filter", "label=db", "--json"]).data();
    assert!(
        said.to_string().contains(&ids[0])
            && !said.to_string().contains(&ids[1])
            && !said.to_string().contains(&ids[2]),
        "{said}"
    );
    home.toft(&repo, &["move", &ids[2], "--to", "team", "--filter", "label=db"]).fails(6);
}

#[test]
fn a_circle_that_a_merge_made_is_named_and_starts_with_the_same_issue_everywhere() {
    let (home, first, second) = two_clones();
    let ids = ["X", "Y", "Z"].map(|title| add(&home, &first, &[title]));
    let [x, y, z] = &ids;
    let toft = |repo: &Path, args: &[&str]| home.toft(repo, args).ok();
    toft(&first, &["edit", y, "--needs", z, "-q"]);
    toft(&first, &["sync"]);
    toft(&second, &["sync"]);
    toft(&first, &["edit", x, "--needs", y, "-q"]);
    toft(&second, &["edit", z, "--needs", x, "-q"]);
    for repo in [&first, &second, &first] {
        toft(repo, &["sync"]);
    }
    let start = ids.iter().min().unwrap();
    for repo in [&first, &second] {
        assert_eq!(toft(repo, &["ready", "-q"]).trim(), start.as_str(), "one of them can start, the same everywhere");
        let doctor = home.toft(repo, &["doctor"]).out;
        assert!(doctor.contains("need each other") && ids.iter().all(|id| doctor.contains(id.as_str())), "{doctor}");
    }
    // Broken at another issue, nothing starts but what needs nothing.
    toft(&first, &["edit", y, "--unneeds", z, "-q"]);
    assert_eq!(toft(&first, &["ready", "-q"]).trim(), y.as_str());
    assert!(!home.toft(&first, &["doctor"]).out.contains("need each other"));
    toft(&first, &["close", y, "-m", "done", "-q"]);
    assert_eq!(toft(&first, &["ready", "-q"]).trim(), x.as_str());
}

#[test]
fn epics_that_a_merge_made_parts_of_each_other_do_not_wait_for_ever() {
    let (home, first, second) = two_clones();
    let ids = ["P", "Q"].map(|title| add(&home, &first, &[title, "-t", "epic"]));
    let toft = |repo: &Path, args: &[&str]| home.toft(repo, args).ok();
    toft(&first, &["sync"]);
    toft(&second, &["sync"]);
    toft(&first, &["edit", &ids[0], "--parent", &ids[1], "-q"]);
    toft(&second, &["edit", &ids[1], "--parent", &ids[0], "-q"]);
    for repo in [&first, &second, &first] {
        toft(repo, &["sync"]);
    }
    for repo in [&first, &second] {
        assert_eq!(toft(repo, &["ready", "-q"]).trim(), ids.iter().min().unwrap().as_str());
    }
}

#[test]
fn a_plan_that_nobody_can_read_any_more_is_said_to_be_one() {
    let (home, repo) = Home::with_repository("api");
    let doctor = |repo: &Path| home.toft(repo, &["doctor"]).out;
    let list: String = (0..1_001).map(|n| format!("- issue {n}\n")).collect();
    fs::write(repo.join("plan.md"), &list).unwrap();
    home.toft(&repo, &["import", "markdown", "plan.md"]).ok();
    let said = doctor(&repo);
    assert!(said.contains("1001 issues are open") && said.contains("toft move"), "{said}");
    let one = listed(&home, &repo).into_keys().next().unwrap();
    home.toft(&repo, &["close", &one, "-m", "done", "-q"]).ok();
    assert!(!doctor(&repo).contains("issues are open"));
}

#[test]
fn a_workspace_that_is_gone_is_not_put_away_again() {
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, &["one"]);
    home.toft(&repo, &["ws", "create", &id]).ok();
    home.toft(&repo, &["ws", "rm", &id]).ok();
    let said = home.toft(&repo, &["ws", "rescue", &id]);
    assert!(said.code != 0 && said.err.contains("removed") && !said.err.contains("git config"), "{said:?}");
}
