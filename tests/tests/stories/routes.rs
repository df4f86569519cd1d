//! Where ledgers are and which of them a new issue goes to; and what happens when one cannot be read.

use toft_stories::prelude::*;
use toft_stories::repositories::{add, ledger, rows, text, titles};

#[test]
fn new_issues_go_where_they_are_routed_and_every_write_says_where() {
    let (home, project) = Home::with_repository("project");
    for name in ["bugs", "design", "docs", "team", "epics"] {
        let dir = home.repo(&format!("{name}-repo"));
        home.toft(&project, &["ledger", "add", name, text(&dir)]).ok();
    }
    for route in [
        &["bugs", "--type", "bug"][..],
        &["design", "--label", "ux"],
        &["docs", "--path", "docs/guide"],
        &["team", "--role", "maintainer"],
    ] {
        let mut args = vec!["ledger", "route"];
        args.extend(route);
        home.toft(&project, &args).ok();
    }
    home.toft(&project, &["ledger", "default", "epics"]).ok();
    let guide = project.join("docs/guide/deep");
    fs::create_dir_all(&guide).unwrap();
    home.toft(&project, &["add", "x", "-t", "bug"]).says("ledger bugs");
    assert_eq!(add(&home, &project, &["x", "-t", "bug", "-l", "ux"]).1, "bugs");
    assert_eq!(add(&home, &project, &["x", "-l", "ux"]).1, "design");
    assert_eq!(add(&home, &guide, &["x"]).1, "docs");
    assert_eq!(add(&home, &project.join("docs"), &["x"]).1, "team");
    let (parent, _) = add(&home, &project, &["x", "-l", "ux"]);
    assert_eq!(add(&home, &project, &["x", "-t", "bug", "--parent", &parent]).1, "design");
    assert_eq!(add(&home, &project, &["x", "-t", "bug", "--parent", &parent, "--ledger", "."]).1, "branch");
    // Several at once stay together, or are refused.
    let plan = project.join("plan.jsonl");
    fs::write(&plan, "{\"title\":\"a\",\"type\":\"bug\"}\n{\"title\":\"b\"}\n").unwrap();
    let many = |args: &[&str]| {
        let stdin = fs::File::open(&plan).unwrap();
        let mut command = home.command(&project, toft_stories::toft_bin(), args);
        command.stdin(stdin).output().unwrap()
    };
    let refused = many(&["add", "-"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--ledger"));
    assert!(many(&["add", "-", "--ledger", "team"]).status.success());
    // A route is taken back, and one that leads nowhere is refused.
    home.toft(&project, &["ledger", "route", "bugs", "--type", "bug", "--remove"]).ok();
    assert_eq!(add(&home, &project, &["x", "-t", "bug"]).1, "team");
    home.toft(&project, &["ledger", "route", "nowhere", "--type", "bug"]).fails(3);
    home.toft(&project, &["ledger", "route", "team"]).fails(2);
    home.toft(&project, &["ledger", "default", "nowhere"]).fails(3);
    // What led to a ledger that is no longer seen leads nowhere else.
    home.toft(&project, &["ledger", "remove", "team"]).ok();
    assert_eq!(add(&home, &project, &["x"]).1, "epics");
}

#[test]
fn a_list_of_ledgers_in_a_tree_is_believed_once_it_is_trusted_and_only_as_it_was() {
    let home = Home::new();
    let (project, team) = (home.repo("project"), home.repo("team"));
    add(&home, &team, &["theirs"]);
    add(&home, &project, &["ours"]);
    fs::create_dir(project.join(".toft")).unwrap();
    let path = project.join(".toft/ledgers.toml");
    let list = "default = \"team\"\n\n[ledgers.team]\nplace = \"../team\"\n";
    fs::write(&path, list).unwrap();
    // Nobody trusted it: it is as if it were not there, and said.
    home.toft(&project, &["list"]).says("toft trust");
    assert_eq!(titles(&home, &project, &[]), ["ours"]);
    assert_eq!(add(&home, &project, &["mine"]).1, "branch");
    home.toft(&project, &["trust"]).says("../team");
    home.toft(&project, &["trust", "--yes"]).ok();
    assert_eq!(titles(&home, &project, &[]), ["mine", "ours", "theirs"]);
    assert_eq!(add(&home, &project, &["for all"]).1, "team");
    // Worktrees see it from the same place.
    home.run(&project, "git", &["add", ".toft/ledgers.toml"]);
    home.run(&project, "git", &["commit", "-q", "-m", "ledgers"]);
    let side = home.path().join("deep/side");
    home.run(&project, "git", &["worktree", "add", "-q", text(&side)]);
    assert_eq!(add(&home, &side, &["from the side"]).1, "team");
    // One letter more, and it is another list.
    fs::write(&path, list.replace("../team", "../team/")).unwrap();
    assert_eq!(add(&home, &project, &["not any more"]).1, "branch");
    fs::write(&path, list).unwrap();
    assert_eq!(add(&home, &project, &["again"]).1, "team");
    home.toft(&project, &["trust", "--revoke"]).ok();
    assert_eq!(add(&home, &project, &["revoked"]).1, "branch");
    // A closed schema.
    for wrong in [
        "colour = \"red\"\n",
        "[ledgers.team]\nplace = \"../team\"\nrun = \"rm -rf /\"\n",
        "[ledgers.team]\nplace = \"/etc\"\n",
        "[ledgers.team]\nplace = \"~/team\"\n",
        "[ledgers.tree]\nplace = \"../team\"\n",
        "[ledgers.\"a b\"]\nplace = \"../team\"\n",
        "[ledgers.team]\nplace = \"../team\"\naccess = \"root\"\n",
        "[[routes]]\nledger = \"team\"\n",
    ] {
        fs::write(&path, wrong).unwrap();
        assert_ne!(home.toft(&project, &["trust", "--yes"]).code, 0, "{wrong}");
        assert_eq!(add(&home, &project, &["unharmed"]).1, "branch");
    }
    // A link is not followed.
    let outside = home.path().join("outside.toml");
    fs::write(&outside, list).unwrap();
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&outside, &path).unwrap();
    assert_ne!(home.toft(&project, &["trust", "--yes"]).code, 0);
    assert_eq!(add(&home, &project, &["goes on"]).1, "branch");
}

#[test]
fn a_ledger_may_be_a_remotes() {
    let home = Home::new();
    let remote = home.path().join("team.git");
    home.run(home.path(), "git", &["init", "-q", "--bare", "team.git"]);
    let url = format!("file://{}", remote.display());
    let keeper = home.repo("keeper");
    home.run(&keeper, "git", &["remote", "add", "origin", &url]);
    add(&home, &keeper, &["from the keeper"]);
    home.toft(&keeper, &["sync"]).ok();
    let project = home.repo("project");
    home.toft(&project, &["ledger", "add", "team", &url]).ok();
    home.toft(&project, &["sync", "team"]).ok();
    assert_eq!(titles(&home, &project, &[]), ["from the keeper"]);
    add(&home, &project, &["from afar", "--ledger", "team"]);
    home.toft(&project, &["sync"]).ok();
    home.toft(&keeper, &["sync"]).ok();
    assert_eq!(titles(&home, &keeper, &[]), ["from afar", "from the keeper"]);
    // Read-only, by a list that is committed: it follows, and nothing is sent.
    let reader = home.repo("reader");
    fs::create_dir(reader.join(".toft")).unwrap();
    let list = format!("[ledgers.team]\nplace = \"{url}\"\naccess = \"ro\"\n");
    fs::write(reader.join(".toft/ledgers.toml"), list).unwrap();
    home.toft(&reader, &["trust", "--yes"]).ok();
    home.toft(&reader, &["sync", "team"]).ok();
    assert_eq!(titles(&home, &reader, &[]), ["from afar", "from the keeper"]);
    home.toft(&reader, &["add", "no", "--ledger", "team"]).fails(2);
    for wrong in ["ext::sh -c true", "-u", "git://", "javascript:x"] {
        assert_ne!(home.toft(&project, &["ledger", "add", "x", "--", wrong]).code, 0, "{wrong}");
    }
}

#[test]
fn one_bad_ledger_of_twenty_is_one_bad_row_and_a_missing_mount_is_no_new_ledger() {
    let (home, project) = Home::with_repository("project");
    add(&home, &project, &["own"]);
    for n in 1..=20 {
        let dir = home.git(&format!("l{n}"));
        home.toft(&project, &["ledger", "add", &format!("l{n}"), text(&dir)]).ok();
        add(&home, &project, &[&format!("of l{n}"), "--ledger", &format!("l{n}")]);
    }
    let file = |n: usize| home.path().join(format!("l{n}/issues.jsonl"));
    let everything = titles(&home, &project, &[]).len();
    assert_eq!(everything, 21);
    // Bytes, a directory in place of the file, a FIFO, a directory that is gone, a mount point without its disk.
    fs::write(file(1), [0xff, 0xfe, 0x00, 0x80].repeat(5_000)).unwrap();
    fs::remove_file(file(2)).unwrap();
    fs::create_dir(file(2)).unwrap();
    fs::remove_file(file(3)).unwrap();
    home.run(home.path(), "mkfifo", &[text(&file(3))]);
    fs::remove_dir_all(home.path().join("l4")).unwrap();
    fs::remove_file(file(5)).unwrap();
    let said = home.toft(&project, &["list", "issues", "--limit", "100"]);
    for name in ["l2", "l3", "l4", "l5"] {
        assert!(said.out.contains(&format!("`{name}`")), "{said:?}");
    }
    assert_eq!(said.code, 0);
    assert!(said.out.contains("of l20") && said.out.contains("own"));
    home.toft(&project, &["ready"]).ok();
    assert_eq!(add(&home, &project, &["still works"]).1, "branch");
    assert_eq!(add(&home, &project, &["there too", "--ledger", "l20"]).1, "l20");
    home.toft(&project, &["gc", "--ledgers"]).ok();
    home.toft(&project, &["claim", "--as", "heron"]).ok();
    // Nothing is written to where the disk should be.
    for name in ["l2", "l3", "l4", "l5"] {
        assert_ne!(home.toft(&project, &["add", "no", "--ledger", name]).code, 0, "{name}");
        assert!(ledger(&home, &project, name)["problem"].is_string(), "{name}");
    }
    assert!(ledger(&home, &project, "l6")["problem"].is_null());
    assert!(!home.path().join("l4").exists() && !file(5).exists());
    let said: Said = home.toft(&project, &["sync", "--json"]);
    let value: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
    let how = |name: &str| {
        let row = rows(&value["data"]).iter().find(|row| row["ledger"] == name).unwrap_or_else(|| panic!("{value}"));
        row["how"].as_str().unwrap().to_owned()
    };
    assert_eq!((how("l4"), how("l20")), ("failed".into(), "recorded".into()), "{value}");
    let doctor = home.toft(&project, &["doctor"]);
    assert!(doctor.code != 0 && doctor.out.contains("`l4`"), "{doctor:?}");
    // It comes back with its disk.
    fs::create_dir(home.path().join("l4")).unwrap();
    fs::write(file(5), "").unwrap();
    home.toft(&project, &["ledger", "remove", "l4"]).ok();
    assert!(ledger(&home, &project, "l5")["problem"].is_null());
}
