//! Ledgers that strangers, other programs and newer tofts wrote: nothing of them is followed, executed or dropped.

use std::os::unix::fs::symlink;

use toft_stories::prelude::*;

fn tree(repo: &Path) -> PathBuf {
    repo.join(".toft/issues.jsonl")
}

/// Clones of a repository, with the ledger on its branch.
fn team(home: &Home) -> Vec<PathBuf> {
    cloned(home, &["c1", "c2"]).1
}

/// Changes the shared branch as another program would.
fn on_the_branch(home: &Home, change: impl FnOnce(&Path)) {
    let (base, web) = (home.path().to_owned(), home.path().join("web"));
    home.run(&base, "git", &["clone", "-q", "-b", "toft-ledger", "remote.git", "web"]);
    change(&web.join("issues.jsonl"));
    home.run(&web, "git", &["commit", "-q", "-a", "-m", "by another program"]);
    home.run(&web, "git", &["push", "-q"]);
    fs::remove_dir_all(&web).unwrap();
}

fn shared(home: &Home) -> String {
    home.run(home.path(), "git", &["-C", "remote.git", "show", "toft-ledger:issues.jsonl"])
}

#[test]
fn links_pipes_and_devices_in_a_tree_are_refused_and_never_written_through() {
    let home = Home::new();
    let victim = home.path().join("victim");
    let evil = "{\"id\":\"tf-a\",\"title\":\"Fix $(touch PWNED)\",\"priority\":0}\n";
    type Plant = fn(&Path, &Path);
    let plants: [(&str, Plant); 7] = [
        ("file", |toft, victim| symlink(victim, toft.join("issues.jsonl")).unwrap()),
        ("directory", |toft, victim| {
            fs::remove_dir(toft).unwrap();
            fs::create_dir(victim.with_extension("d")).unwrap();
            fs::write(victim.with_extension("d").join("issues.jsonl"), "mine\n").unwrap();
            symlink(victim.with_extension("d"), toft).unwrap();
        }),
        ("device", |toft, _| symlink("/dev/zero", toft.join("issues.jsonl")).unwrap()),
        ("archived", |toft, victim| {
            fs::write(toft.join("issues.jsonl"), "").unwrap();
            fs::create_dir(toft.join("archive")).unwrap();
            symlink(victim, toft.join("archive/2026.jsonl")).unwrap();
        }),
        ("archive", |toft, victim| {
            fs::write(toft.join("issues.jsonl"), "").unwrap();
            symlink(victim.parent().unwrap(), toft.join("archive")).unwrap();
        }),
        ("folder", |toft, _| {
            fs::create_dir(toft.join("issues.jsonl")).unwrap();
            fs::write(toft.join("issues.jsonl/x"), "").unwrap();
        }),
        ("pipe", |toft, _| {
            let made = std::process::Command::new("mkfifo").arg(toft.join("issues.jsonl")).status().unwrap();
            assert!(made.success());
        }),
    ];
    for (name, plant) in plants {
        fs::write(&victim, "# mine\n").unwrap();
        let repo = home.git(name);
        fs::create_dir(repo.join(".toft")).unwrap();
        plant(&repo.join(".toft"), &victim);
        if name == "file" {
            fs::create_dir(repo.join(".toft/archive")).unwrap();
            fs::write(repo.join(".toft/archive/2026.jsonl"), evil).unwrap();
        }
        for args in [
            &["init"][..],
            &["list"],
            &["add", "x"],
            &["claim", "--as", "me"],
            &["gc", "--ledgers"],
            &["doctor"],
            &["sync"],
        ] {
            let mut child = home.start(&repo, args);
            until(20, &format!("{name}: {args:?} ends"), || child.try_wait().unwrap().is_some());
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "# mine\n", "{name}");
        assert!(!victim.with_extension("d").exists() || fs::read_dir(victim.with_extension("d")).unwrap().count() == 1);
        let list = home.toft(&repo, &["list"]);
        let said = format!("{}{}", list.out, list.err);
        assert!(said.contains("cannot be read") || said.contains("is a link"), "{name}: {list:?}");
        assert_ne!(home.toft(&repo, &["doctor"]).code, 0, "{name}");
    }
}

#[test]
fn an_id_is_of_a_closed_alphabet_and_others_are_broken() {
    let (home, repo) = Home::with_repository("api");
    add(&home, &repo, &["Real"]);
    let ids = ["tf-1;touch${IFS}PWNED;echo", "../../evil", "--help", "tf-\u{202e}h", "a b", ""];
    let mut text = fs::read_to_string(ledger(&repo)).unwrap();
    for id in ids {
        text += &format!("{}\n", json!({ "id": id, "title": "Nice idea" }));
    }
    fs::write(ledger(&repo), &text).unwrap();
    let listed = home.toft(&repo, &["list", "--json"]).data();
    assert_eq!(listed.as_array().or_else(|| listed["issues"].as_array()).unwrap().len(), 1, "{listed}");
    let doctor = home.toft(&repo, &["doctor"]);
    assert!(doctor.out.contains("issues.jsonl:2: `id` has other characters"), "{doctor:?}");
    home.toft(&repo, &["gc", "--ledgers"]).ok();
    let after = fs::read_to_string(ledger(&repo)).unwrap();
    for line in text.lines().skip(1) {
        assert!(after.lines().any(|kept| kept == line), "{line} is gone");
    }
}

#[test]
fn one_wrong_field_costs_that_field_and_no_clone_removes_it() {
    let home = Home::new();
    let base = home.path().to_owned();
    home.run(&base, "git", &["init", "-q", "--bare", "-b", "main", "up.git"]);
    let ana = home.git("ana");
    home.run(&ana, "git", &["remote", "add", "origin", base.join("up.git").to_str().unwrap()]);
    home.toft(&ana, &["init", "--tree"]).ok();
    let id = add(&home, &ana, &["Precious", "-d", "two pages"]);
    commit_all(&home, &ana, "issues");
    home.run(&ana, "git", &["push", "-q", "-u", "origin", "main"]);
    home.run(&base, "git", &["clone", "-q", "up.git", "ben"]);
    let ben = base.join("ben");
    home.toft(&ben, &["init"]).ok();
    let text = fs::read_to_string(tree(&ana)).unwrap();
    fs::write(tree(&ana), text.replace("\"priority\":2", "\"priority\":\"high\"")).unwrap();
    home.run(&ana, "git", &["commit", "-q", "-a", "-m", "by hand"]);
    home.run(&ana, "git", &["push", "-q"]);
    home.run(&ben, "git", &["pull", "-q"]);
    assert_eq!(home.toft(&ben, &["show", &id, "--json"]).data()["body"], "two pages");
    let doctor = home.toft(&ben, &["doctor"]).out;
    assert!(doctor.contains("issues.jsonl:1: `priority` of"), "{doctor}");
    add(&home, &ben, &["Ben's"]);
    home.toft(&ben, &["sync", "--commit"]).ok();
    assert!(fs::read_to_string(tree(&ben)).unwrap().contains("\"priority\":\"high\""));
    home.toft(&ben, &["edit", &id, "-p", "1"]).ok();
    assert_eq!(home.toft(&ben, &["show", &id, "--json"]).data()["priority"], 1);
    assert!(!home.toft(&ben, &["doctor"]).out.contains("`priority`"));

    // Whatever is wrong, the title is there and the line stays.
    let wrong = [
        "\"priority\":-1",
        "\"priority\":2.5",
        "\"labels\":\"x\"",
        "\"created\":\"yesterday\"",
        "\"status\":3",
        "\"due\":\"soon\"",
        "\"comments\":[{\"text\":\"hi\"}]",
        "\"deps\":[\"tf-1\"]",
    ];
    for field in wrong {
        fs::write(tree(&ben), format!("{{\"id\":\"tf-x\",\"title\":\"Readable\",{field}}}\n")).unwrap();
        for _ in 0..2 {
            assert!(home.toft(&ben, &["list"]).ok().contains("Readable"), "{field}");
            let doctor = home.toft(&ben, &["doctor"]).out;
            let name = field.split('"').nth(1).unwrap();
            assert!(doctor.contains(&format!("`{name}` of tf-x")), "{field}: {doctor}");
            home.toft(&ben, &["gc", "--ledgers"]).ok();
            let text = fs::read_to_string(tree(&ben)).unwrap();
            assert!(text.contains(field), "{field}: {text}");
        }
    }
}

#[test]
fn lines_of_a_newer_toft_stay_on_the_branch_through_every_sync() {
    let (home, clones) = Home::with(team);
    let id = add(&home, &clones[0], &["One"]);
    home.toft(&clones[0], &["sync"]).ok();
    home.toft(&clones[1], &["sync"]).ok();
    let future = "{\"id\":\"tf-future\",\"title\":\"From a newer toft\",\"priority\":{\"level\":\"high\"},\"body\":\"precious\"}";
    let strange = "{\"v\":2,\"ops\":[1,2,3]}";
    on_the_branch(&home, |file| {
        let text = fs::read_to_string(file).unwrap();
        fs::write(file, format!("{text}{future}\n{strange}\nnot JSON at all\n")).unwrap();
    });
    for round in 0..3 {
        for clone in &clones {
            home.toft(clone, &["edit", &id, "-m", &format!("round {round}")]).ok();
            home.toft(clone, &["sync"]).ok();
        }
        let now = shared(&home);
        assert!(now.contains("{\"level\":\"high\"}") && now.contains("precious"), "{now}");
        assert!(now.lines().any(|line| line == strange) && now.lines().any(|line| line == "not JSON at all"), "{now}");
        assert_eq!(now.lines().count(), 4, "{now}");
    }
    for clone in &clones {
        assert!(home.toft(clone, &["list"]).ok().contains("From a newer toft"));
    }
    home.toft(&clones[0], &["sync"]).ok();
    assert_eq!(fs::read(ledger(&clones[0])).unwrap(), fs::read(ledger(&clones[1])).unwrap());
}

#[test]
fn a_file_written_anew_in_another_shape_is_read_whole() {
    let home = Home::new();
    let script = r#"
import json, sys
how, path = sys.argv[1:3]
text = open(path, encoding='utf-8').read()
lines = [json.loads(line) for line in text.splitlines()]
if how == 'bom': data = b'\xef\xbb\xbf' + text.encode()
elif how == 'crlf': data = text.replace('\n', '\r\n').encode()
elif how == 'pretty': data = '\n'.join(json.dumps(line, indent=2, ensure_ascii=False) for line in lines).encode()
elif how == 'list': data = json.dumps(lines, indent=1).encode()
elif how == 'ascii': data = ''.join(json.dumps(line) + '\n' for line in lines).encode()
elif how == 'sorted': data = ''.join(json.dumps(line, sort_keys=True) + '\n' for line in lines).encode()
elif how == 'unended': data = text.rstrip('\n').encode()
elif how == 'utf16': data = text.encode('utf-16')
elif how == 'glued': data = text.replace('}\n{', '}{').encode()
open(path, 'wb').write(data)
"#;
    for how in ["bom", "crlf", "pretty", "list", "ascii", "sorted", "unended", "utf16", "glued"] {
        let repo = home.git(how);
        home.toft(&repo, &["init", "--tree"]).ok();
        let first = add(&home, &repo, &["Élan one", "-d", "body\none", "-l", "x"]);
        let second = add(&home, &repo, &["Two", "--needs", &first]);
        home.toft(&repo, &["edit", &second, "-m", "a comment with é"]).ok();
        home.toft(&repo, &["gc", "--ledgers"]).ok();
        let before = fs::read_to_string(tree(&repo)).unwrap();
        home.run(&repo, "python3", &["-c", script, how, tree(&repo).to_str().unwrap()]);
        let issue = home.toft(&repo, &["show", &first, "--json"]).data();
        assert_eq!((&issue["title"], &issue["body"]), (&"Élan one".into(), &"body\none".into()), "{how}: {issue}");
        let doctor = home.toft(&repo, &["doctor"]).out;
        assert!(doctor.contains("no unreadable lines"), "{how}: {doctor}");
        home.toft(&repo, &["gc", "--ledgers"]).ok();
        let after = fs::read_to_string(tree(&repo)).unwrap();
        let plain =
            |text: &str| text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
        for (before, after) in plain(&before).iter().zip(plain(&after)) {
            for field in ["id", "title", "body", "labels", "deps", "comments", "clk"] {
                assert_eq!(before[field], after[field], "{how}: {field}");
            }
        }
        add(&home, &repo, &["Three"]);
        assert_eq!(home.toft(&repo, &["list"]).ok().lines().filter(|line| line.contains("tf-")).count(), 3, "{how}");
    }
    // An object that is no issue is kept as one line, however often the file is put in order.
    let repo = home.git("kept");
    home.toft(&repo, &["init", "--tree"]).ok();
    let spread = "{\n  \"id\": \"tf-1\",\n  \"title\": \"x\"\n}\n{\n  \"note\": \"no issue\"\n}\n";
    fs::write(tree(&repo), spread).unwrap();
    for _ in 0..2 {
        home.toft(&repo, &["gc", "--ledgers"]).ok();
        let lines = fs::read_to_string(tree(&repo)).unwrap();
        assert_eq!(lines.lines().count(), 2, "{lines}");
        assert_eq!(lines.lines().nth(1), Some("{\"note\":\"no issue\"}"));
    }
    // What cannot be read whole is refused whole, and stays.
    let repo = home.git("broken");
    home.toft(&repo, &["init", "--tree"]).ok();
    let broken = "[\n{\"id\":\"tf-1\",\"title\":\"x\"},\n{\"id\":\n";
    fs::write(tree(&repo), broken).unwrap();
    assert!(home.toft(&repo, &["list"]).ok().contains("nothing was changed"));
    home.toft(&repo, &["gc", "--ledgers"]);
    home.toft(&repo, &["doctor"]).fails(8);
    assert_ne!(home.toft(&repo, &["add", "Another"]).code, 0);
    assert_eq!(fs::read_to_string(tree(&repo)).unwrap(), broken);
}

#[test]
fn no_merge_makes_a_line_that_cannot_be_read() {
    let (home, clones) = Home::with(team);
    let id = add(&home, &clones[0], &["Hot issue"]);
    home.toft(&clones[0], &["sync"]).ok();
    home.toft(&clones[1], &["sync"]).ok();
    // What is too long for a field is refused when it is written.
    let comment = |letter: &str, n: usize, length: usize| json!({ "id": format!("{letter}{n}"), "at": "2026-11-15T00:00:00Z", "by": letter, "text": letter.repeat(length) });
    let import = |repo: &Path, comments: Vec<Value>| {
        let path = home.path().join("import.jsonl");
        fs::write(&path, format!("{}\n", json!({ "id": id, "title": "Hot issue", "comments": comments }))).unwrap();
        home.toft(repo, &["import", "jsonl", path.to_str().unwrap()])
    };
    let refused = import(&clones[0], vec![comment("a", 0, 9_000_000)]);
    assert!(refused.code != 0 || refused.out.contains("longer than"), "{refused:?}");
    for (clone, letter) in clones.iter().zip(["a", "b"]) {
        for batch in 0..3 {
            import(clone, (0..3).map(|n| comment(letter, batch * 3 + n, 1_000_000)).collect()).ok();
        }
    }
    for clone in clones.iter().chain(&clones) {
        home.toft(clone, &["sync", "--yes"]).ok();
    }
    for clone in &clones {
        let issue = home.toft(clone, &["show", &id, "--json"]).data();
        assert_eq!(issue["comments"].as_array().unwrap().len(), 18);
        let text = fs::read_to_string(ledger(clone)).unwrap();
        assert!(text.lines().all(|line| line.len() < 4 << 20));
    }
    assert_eq!(fs::read(ledger(&clones[0])).unwrap(), fs::read(ledger(&clones[1])).unwrap());
}

#[test]
fn a_hot_issue_grows_its_file_by_what_is_said() {
    let (home, repo) = Home::with_repository("api");
    let id = add(&home, &repo, &["Hot"]);
    let size = || fs::metadata(ledger(&repo)).unwrap().len();
    let comments = toft_stories::sized(60, 1_000);
    let mut before = size();
    for n in 0..comments {
        home.toft(&repo, &["edit", &id, "-m", &format!("comment {n}")]).ok();
        let grown = size() - before;
        assert!(grown < 700, "comment {n} took {grown} bytes");
        before = size();
    }
    assert_eq!(home.toft(&repo, &["show", &id, "--json"]).data()["comments"].as_array().unwrap().len(), comments);
    home.toft(&repo, &["gc", "--ledgers"]).ok();
    assert!(size() < before);
}

#[test]
fn a_clock_that_is_far_ahead_spoils_nothing_else() {
    let (home, clones) = Home::with(team);
    let id = add(&home, &clones[0], &["Ordinary", "-d", "zzz first"]);
    home.toft(&clones[0], &["sync"]).ok();
    home.toft(&clones[1], &["sync"]).ok();
    let greatest = "\"clk\":{\"@\":\"3w5e11264sgsf.1z141z3-zzzzzzzz\"}";
    let ahead = "\"clk\":{\"@\":\"zzzzzzzzz.1z141z3-zzzzzzzz\"}";
    on_the_branch(&home, |file| {
        let mut text = fs::read_to_string(file).unwrap();
        for (n, clocks) in [greatest, ahead].iter().enumerate() {
            let body = format!("{{\"id\":\"tf-evil{n}\",\"title\":\"Nice\",\"status\":\"open\",{clocks}");
            let sum = blake3::hash(body.as_bytes()).to_hex()[..8].to_owned();
            text += &format!("{body},\"sum\":\"{sum}\"}}\n");
        }
        fs::write(file, text).unwrap();
    });
    home.toft(&clones[0], &["sync"]).ok();
    for body in ["yyy second", "bbb third", "aaa fourth"] {
        home.toft(&clones[0], &["edit", &id, "-d", body]).ok();
        assert_eq!(home.toft(&clones[0], &["show", &id, "--json"]).data()["body"], body);
    }
    for n in 0..2 {
        let evil = format!("tf-evil{n}");
        for title in ["Zebra", "Apple"] {
            home.toft(&clones[0], &["edit", &evil, "--title", title]).ok();
            assert_eq!(home.toft(&clones[0], &["show", &evil, "--json"]).data()["title"], title);
        }
        home.toft(&clones[0], &["delete", &evil, "-m", "no"]).ok();
    }
    home.toft(&clones[0], &["sync"]).ok();
    home.toft(&clones[1], &["sync"]).ok();
    home.toft(&clones[1], &["edit", &id, "--title", "Aa"]).ok();
    let issue = home.toft(&clones[1], &["show", &id, "--json"]).data();
    assert_eq!((&issue["title"], &issue["body"]), (&"Aa".into(), &"aaa fourth".into()));
    let ours = fs::read_to_string(ledger(&clones[1])).unwrap();
    let line = ours.lines().rfind(|line| line.contains(&id)).unwrap();
    assert!(!line.contains("zzzzzzzzz"), "the clock was followed: {line}");
}

#[test]
fn what_is_archived_in_one_clone_is_archived_in_every_other_and_stays() {
    let (home, clones) = Home::with(team);
    for n in 0..3 {
        let id = add(&home, &clones[0], &[&format!("t{n}")]);
        home.toft(&clones[0], &["close", &id, "-m", "ok"]).ok();
    }
    home.toft(&clones[0], &["sync"]).ok();
    home.toft(&clones[0], &["gc", "--ledgers", "--archive-after", "0s"]).ok();
    home.toft(&clones[0], &["sync"]).ok();
    let hot = |repo: &Path| fs::read_to_string(ledger(repo)).unwrap().lines().count();
    assert_eq!(hot(&clones[0]), 0, "a sync does not bring them back");
    home.toft(&clones[1], &["sync"]).ok();
    assert_eq!(hot(&clones[1]), 0);
    let commits = || home.run(home.path(), "git", &["-C", "remote.git", "rev-list", "--count", "toft-ledger"]);
    let before = commits();
    for _ in 0..3 {
        home.toft(&clones[0], &["sync"]).ok();
        let mut later =
            home.command(&clones[1], "faketime", &["-f", "+20d", toft_stories::toft_bin().to_str().unwrap(), "sync"]);
        assert!(later.output().unwrap().status.success());
    }
    assert_eq!(commits(), before, "two clones whose clocks differ do not undo each other");
}

#[test]
fn no_command_shows_what_a_terminal_would_obey() {
    let (home, repo) = Home::with(|home| home.git("r"));
    home.toft(&repo, &["init", "--tree"]).ok();
    let nasty = "\u{1b}]0;x\u{7}\u{1b}[2J\u{202e}gnp\u{2066} \u{9b}31m \r\n\u{8} \u{200b}";
    let line = json!({
        "id": "tf-h", "title": nasty, "body": nasty, "design": nasty, "acceptance": nasty, "notes": nasty, "owner": nasty,
        "assignee": nasty, "labels": [nasty], "type": nasty, "parent": nasty, "template": nasty, "status": "open",
        "created": {"at": "2026-01-01T00:00:00Z", "by": nasty}, "deps": [{"on": nasty, "kind": nasty}],
        "comments": [{"id": "c", "at": "2026-01-01T00:00:00Z", "by": nasty, "text": nasty}],
    });
    let formula = json!({"id": "tf-f", "title": "=cmd|' /C calc'!A0", "status": "open"});
    fs::write(tree(&repo), format!("{line}\n{formula}\n")).unwrap();
    let commands: [&[&str]; 13] = [
        &["list", "--all"],
        &["list", "--all", "--json"],
        &["show", "tf-h"],
        &["show", "tf-h", "--json"],
        &["show", "tf-\u{202e}", "--json"],
        &["ready"],
        &["status"],
        &["doctor"],
        &["prime"],
        &["list", "--graph"],
        &["history", "tf-h"],
        &["history", "--json"],
        &["export", "csv"],
    ];
    for command in commands {
        let said = home.toft(&repo, command);
        let said = format!("{}{}", said.out, said.err);
        let raw = ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}', '\u{2066}', '\u{8}', '\u{200b}', '\r'];
        assert!(!said.contains(raw), "{command:?}: {said:?}");
    }
    let shown = home.toft(&repo, &["show", "tf-h", "--json"]).data();
    assert_eq!(shown["body"], nasty, "a program reads what was written");
    assert!(home.toft(&repo, &["export", "csv"]).ok().contains("\ntf-f,'=cmd"), "no spreadsheet computes it");
}
