//! Many repositories are one: ledgers of other repositories, routing, workspaces that write to the ledger their work was
//! claimed from, tasks of several repositories, and what happens when one of them is not there.

use toft_stories::prelude::*;
use toft_stories::repositories::{add, rows, status_of, text, titles};

fn hg(home: &Home, name: &str) -> PathBuf {
    let dir = home.path().join(name);
    fs::create_dir(&dir).unwrap();
    home.run(&dir, "hg", &["init"]);
    fs::write(dir.join("file"), name).unwrap();
    home.run(&dir, "hg", &["commit", "-q", "-A", "-m", "first"]);
    home.toft(&dir, &["init"]).ok();
    dir
}

fn jj(home: &Home, name: &str) -> PathBuf {
    home.run(home.path(), "jj", &["git", "init", "--no-colocate", name]);
    let dir = home.path().join(name);
    fs::write(dir.join("file"), name).unwrap();
    home.run(&dir, "jj", &["commit", "-m", "first"]);
    home.toft(&dir, &["init"]).ok();
    dir
}

#[test]
fn a_repository_is_added_by_its_real_ledger() {
    let (home, project) = Home::with_repository("project");
    // On a branch, in a tree, in Mercurial, in a plain directory.
    let (branch, tree, mercurial) = (home.repo("branch-one"), home.repo("tree-one"), hg(&home, "hg-one"));
    home.toft(&tree, &["init", "--tree"]).ok();
    let plain = home.path().join("plain-one");
    fs::create_dir(&plain).unwrap();
    home.toft(&plain, &["init", "--no-vcs"]).ok();
    for (name, dir) in [("b", &branch), ("t", &tree), ("h", &mercurial), ("p", &plain)] {
        add(&home, dir, &[&format!("theirs {name}")]);
        home.toft(&project, &["ledger", "add", name, text(dir)]).ok();
        assert_eq!(titles(&home, &project, &["--ledger", name]), [format!("theirs {name}")]);
        // What is written here is written there, and the other way round.
        let (id, wrote) = add(&home, &project, &["ours", "--ledger", name]);
        assert_eq!(wrote, name);
        assert_eq!(status_of(&home, dir, &id), "open");
        home.toft(dir, &["close", &id, "-m", "done there"]).ok();
        assert_eq!(status_of(&home, &project, &id), "closed");
        assert!(!dir.join("issues.jsonl").exists(), "{name}");
    }
    // A repository whose own configuration says that its issues go elsewhere.
    let (pointing, team) = (home.repo("pointing"), home.path().join("team"));
    fs::create_dir(&team).unwrap();
    home.toft(&pointing, &["ledger", "add", "team", text(&team)]).ok();
    home.toft(&pointing, &["ledger", "default", "team"]).ok();
    add(&home, &pointing, &["for the team"]);
    home.toft(&project, &["ledger", "add", "pointing", text(&pointing), "--read-only"]).ok();
    assert_eq!(titles(&home, &project, &["--ledger", "pointing"]), ["for the team"]);
    home.toft(&project, &["add", "no", "--ledger", "pointing"]).fails(2);
    let file = team.join("issues.jsonl");
    let before = fs::read_to_string(&file).unwrap() + "{\"id\":\"tf-hand\",\"title\":\"by hand\"}\n";
    fs::write(&file, &before).unwrap();
    home.toft(&project, &["gc", "--ledgers"]).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), before, "a read-only ledger never changes");
    // A directory that is no repository of toft's is a ledger by itself, and none is seen twice.
    let bare = home.git("bare-ledger");
    home.toft(&project, &["ledger", "add", "own", text(&bare)]).ok();
    add(&home, &project, &["in it", "--ledger", "own"]);
    assert!(bare.join("issues.jsonl").exists());
    home.toft(&project, &["ledger", "add", "again", text(&branch)]).fails(2);
    home.toft(&project, &["ledger", "add", "tree", text(&team)]).fails(2);
}

/// Claims in a checkout, finishes inside of the workspace; the checkout sees it, and the workspace's own files are as they were.
fn finish_in_workspace(home: &Home, main: &Path, flags: &[&str]) {
    let (id, _) = add(home, main, &["Fix it"]);
    let mut args = vec!["claim", &id, "--ws", "--json", "--as", "heron"];
    args.extend(flags);
    let claimed = home.toft(main, &args).data();
    let ws = PathBuf::from(claimed["workspace"]["path"].as_str().unwrap_or_else(|| panic!("{claimed}")));
    let own = ws.join(".toft");
    let before = own.is_dir().then(|| snapshot(&own));
    assert_eq!(status_of(home, main, &id), "in_progress", "{main:?}");
    // What is found on the way is written where the work was claimed.
    let found = home.toft(&ws, &["add", "found", "--discovered-from", &id, "--json", "--as", "heron"]).data();
    assert_eq!(status_of(home, main, found["id"].as_str().unwrap()), "open");
    let task = claimed["task"]["id"].as_str().unwrap();
    home.toft(&ws, &["finish", task, "--no-change", "was right", "--as", "heron"]).ok();
    assert_eq!(status_of(home, main, &id), "closed", "{main:?}");
    assert_eq!(status_of(home, &ws, &id), "closed", "{main:?}");
    assert_eq!(own.is_dir().then(|| snapshot(&own)), before, "{main:?}");
}

#[test]
fn what_is_finished_in_a_workspace_is_closed_where_it_was_claimed() {
    let home = Home::new();
    let branch = home.repo("on-a-branch");
    finish_in_workspace(&home, &branch, &[]);
    finish_in_workspace(&home, &branch, &["--clone"]);
    let tree = home.repo("in-the-tree");
    home.toft(&tree, &["init", "--tree"]).ok();
    // Not even committed yet.
    finish_in_workspace(&home, &tree, &[]);
    commit_all(&home, &tree, "issues");
    finish_in_workspace(&home, &tree, &[]);
    finish_in_workspace(&home, &tree, &["--clone"]);
    finish_in_workspace(&home, &hg(&home, "in-mercurial"), &[]);
    finish_in_workspace(&home, &jj(&home, "in-jujutsu"), &[]);
    let tree = jj(&home, "in-jujutsus-tree");
    home.toft(&tree, &["init", "--tree"]).ok();
    finish_in_workspace(&home, &tree, &[]);
}

#[test]
fn a_workspace_made_in_a_workspace_writes_to_where_it_all_began_and_a_users_own_worktree_to_itself() {
    let (home, main) = Home::with_repository("project");
    home.toft(&main, &["init", "--tree"]).ok();
    add(&home, &main, &["first"]);
    add(&home, &main, &["second"]);
    commit_all(&home, &main, "issues");
    let outer = home.claim_workspace(&main, &["--as", "one"]);
    let inner = home.claim_workspace(&outer, &["--as", "two"]);
    let (id, _) = add(&home, &inner, &["from the innermost"]);
    assert_eq!(status_of(&home, &main, &id), "open");
    // A worktree that the user made has a tree of its own, on a branch of its own.
    let side = home.path().join("side");
    home.run(&main, "git", &["worktree", "add", "-q", text(&side)]);
    add(&home, &side, &["on my branch"]);
    assert!(!titles(&home, &main, &[]).contains(&"on my branch".to_owned()));
    assert!(fs::read_to_string(side.join(".toft/issues.jsonl")).unwrap().contains("on my branch"));
}

fn shared(home: &mut Home) -> (PathBuf, PathBuf) {
    home.use_store("global");
    let (api, web) = (home.git("api"), home.git("web"));
    for dir in [&api, &web] {
        home.toft(dir, &["init"]).ok();
    }
    (api, web)
}

#[test]
fn a_task_is_worked_on_in_its_own_repository() {
    let mut home = Home::new();
    let (api, web) = shared(&mut home);
    let flow = home.toft(&api, &["flow", "new", "Ship", "--task", "Pin schema", "--json"]).data();
    let flow = flow["workflow"]["id"].as_str().unwrap().to_owned();
    home.toft(&api, &["flow", "edit", &flow, "--add", "Show it", "--repository", "web"]).ok();
    home.toft(&api, &["flow", "edit", &flow, "--add", "Nowhere", "--repository", "none"]).fails(3);
    // It is seen from each of its repositories.
    for dir in [&api, &web] {
        let listed = home.toft(dir, &["flow", "list", "--json"]).data();
        assert_eq!(rows(&listed).len(), 1, "{listed}");
        let status = home.toft(dir, &["status", "--json"]).data();
        assert_eq!(rows(&status["workflows"]).len(), 1, "{status}");
        home.toft(dir, &["flow", "show", &flow]).ok();
    }
    let ready = home.toft(&web, &["ready", "--json"]).data();
    let task = rows(&ready)[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(rows(&ready)[0]["name"], "Show it");
    assert_eq!(rows(&home.toft(&api, &["ready", "--json"]).data())[0]["name"], "Pin schema");
    // Claimed from the other repository, it is still done in its own.
    let ws = home.claim_workspace(&api, &[&task, "--as", "heron"]);
    let log = home.run(&ws, "git", &["log", "--format=%s", "-1"]);
    assert_eq!(log.trim(), "first of web");
    let common = home.run(&ws, "git", &["rev-parse", "--path-format=absolute", "--git-common-dir"]);
    assert_eq!(Path::new(common.trim()), web.join(".git"));
    // Without a clone on this machine it is refused, and nothing is held.
    home.toft(&api, &["flow", "edit", &flow, "--add", "Show more", "--repository", "web"]).ok();
    let more = home.toft(&web, &["ready", "--json"]).data();
    let more = rows(&more)[0]["id"].as_str().unwrap().to_owned();
    fs::rename(&web, home.path().join("away")).unwrap();
    home.toft(&api, &["claim", &more, "--ws", "--as", "wren"]).refuses_all(3, &["web", "toft init"]);
    assert_eq!(home.toft(&api, &["show", &more, "--json"]).data()["task"]["status"], "pending");
}

#[test]
fn an_issue_of_another_repositorys_ledger_is_worked_on_there_and_closed_from_there() {
    let mut home = Home::new();
    let (api, web) = shared(&mut home);
    let (id, _) = add(&home, &api, &["Fix the schema"]);
    home.toft(&web, &["ledger", "add", "api", text(&api)]).ok();
    let claimed = home.toft(&web, &["claim", &id, "--ws", "--as", "heron", "--json"]).data();
    let ws = PathBuf::from(claimed["workspace"]["path"].as_str().unwrap());
    assert_eq!(home.run(&ws, "git", &["log", "--format=%s", "-1"]).trim(), "first of api");
    assert_eq!(status_of(&home, &api, &id), "in_progress");
    // Its task is of web, where it was claimed; it ends in a workspace of api.
    let task = claimed["task"]["id"].as_str().unwrap();
    home.toft(&ws, &["finish", task, "--no-change", "was right", "--as", "heron"]).ok();
    assert_eq!(status_of(&home, &api, &id), "closed");
    assert_eq!(status_of(&home, &web, &id), "closed");
}

#[test]
fn all_repos_names_every_row_once() {
    let mut home = Home::new();
    let (own, team) = (home.repo("own"), home.repo("team"));
    add(&home, &own, &["an issue of own"]);
    add(&home, &team, &["an issue of team"]);
    home.toft(&own, &["ledger", "add", "team", text(&team)]).ok();
    home.toft(&own, &["flow", "new", "a task of own"]).ok();
    let (api, web) = shared(&mut home);
    home.toft(&api, &["flow", "new", "a task of api"]).ok();
    home.toft(&web, &["flow", "new", "a task of web"]).ok();
    let named = |args: &[&str], field: &str| {
        let mut found: Vec<(String, String)> = Vec::new();
        for row in rows(&home.toft(&web, args).data()) {
            let name = row[field].as_str().or(row["title"].as_str()).unwrap_or_else(|| panic!("{row}"));
            found.push((name.to_owned(), row["repository"].as_str().unwrap_or_default().to_owned()));
        }
        found.sort();
        found
    };
    let pair = |name: &str, repository: &str| (name.to_owned(), repository.to_owned());
    let (tasks, issues) = (
        [pair("a task of api", "api"), pair("a task of own", "own"), pair("a task of web", "web")],
        [pair("an issue of own", "own"), pair("an issue of team", "team")],
    );
    assert_eq!(named(&["list", "tasks", "--all-repos", "--json"], "name"), tasks);
    let found = named(&["list", "issues", "--all-repos", "--json"], "title");
    assert_eq!(
        found.iter().map(|(title, _)| title.as_str()).collect::<Vec<_>>(),
        ["an issue of own", "an issue of team"]
    );
    for args in [&["list", "--all-repos", "--json"][..], &["ready", "--all-repos", "--json"]] {
        let found = named(args, "name");
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        let all: Vec<&str> = tasks.iter().chain(&issues).map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, all, "{args:?}");
        assert!(found.iter().all(|(_, repository)| !repository.is_empty()), "{found:?}");
    }
    let flows = named(&["flow", "list", "--all-repos", "--json"], "title");
    assert_eq!(flows, tasks);
    home.toft(&web, &["list", "--all-repos"]).says_all(&["in api", "in own"]);
    let status = home.toft(&web, &["status", "--all-repos", "--json"]).data();
    let mut names: Vec<&str> = rows(&status).iter().map(|row| row["repository"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["api", "own", "team", "web"]);
    // One store that cannot be read is one note.
    fs::write(own.join(".git/toft/toft.db"), "not a store").unwrap();
    let said = home.toft(&web, &["list", "tasks", "--all-repos", "--json"]);
    assert!(said.err.contains("left out") || said.out.contains("left out"), "{said:?}");
    assert_eq!(rows(&said.data()).len(), 2);
}

#[test]
fn rows_of_one_worktree_are_asked_for_by_its_name_and_a_new_one_of_that_name_begins_empty() {
    let (home, main) = Home::with_repository("project");
    let side = home.path().join("side");
    let make = || home.run(&main, "git", &["worktree", "add", "-q", text(&side), "HEAD"]);
    make();
    home.toft(&side, &["flow", "new", "of the side"]).ok();
    home.toft(&main, &["flow", "new", "of main"]).ok();
    add(&home, &main, &["an issue"]);
    let names = |dir: &Path, args: &[&str], field: &str| {
        let mut all = args.to_vec();
        all.push("--json");
        let data = home.toft(dir, &all).data();
        let list = if data.is_array() { data } else { data["workflows"].clone() };
        rows(&list).iter().map(|row| row[field].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    for dir in [&main, &side] {
        assert_eq!(names(dir, &["list", "--worktree", "side"], "name"), ["of the side"]);
        assert_eq!(names(dir, &["ready", "--worktree", "side"], "name"), ["of the side"]);
        assert_eq!(names(dir, &["flow", "list", "--worktree", "side"], "title"), ["of the side"]);
        assert_eq!(names(dir, &["status", "--worktree", "side"], "title"), ["of the side"]);
        assert_eq!(names(dir, &["flow", "list", "--worktree", "main"], "title"), ["of main"]);
    }
    for args in [&["flow", "list"][..], &["status"]] {
        home.toft(&main, args).says_all(&["(side)", "(main)"]);
    }
    assert_eq!(names(&side, &["flow", "list", "--worktree", "."], "title"), ["of the side"]);
    // Again under the same name: another worktree, that inherits nothing.
    home.run(&main, "git", &["worktree", "remove", "--force", text(&side)]);
    // Its files have other times than those of the one before.
    std::thread::sleep(std::time::Duration::from_millis(20));
    make();
    assert!(names(&side, &["flow", "list", "--worktree", "."], "title").is_empty());
    home.toft(&side, &["flow", "new", "of the new side"]).ok();
    assert_eq!(names(&side, &["flow", "list", "--worktree", "."], "title"), ["of the new side"]);
    assert_eq!(names(&main, &["flow", "list", "--worktree", "side"], "title"), ["of the side"]);
    assert_eq!(home.toft(&side, &["where", "--json"]).data()["worktree"], "side~2");
    // It stays the same from then on.
    assert_eq!(home.toft(&side, &["where", "--json"]).data()["worktree"], "side~2");
    assert_eq!(names(&main, &["flow", "list", "--worktree", "side~2"], "title"), ["of the new side"]);
}

#[test]
fn a_plain_directory_that_becomes_a_repository_keeps_its_store_and_commits_none_of_it() {
    let home = Home::new();
    let dir = home.path().join("notes");
    fs::create_dir(&dir).unwrap();
    home.toft(&dir, &["init", "--no-vcs"]).ok();
    let (id, _) = add(&home, &dir, &["written before"]);
    home.toft(&dir, &["flow", "new", "planned before"]).ok();
    let before = home.toft(&dir, &["where", "--json"]).data();
    home.run(&dir, "git", &["init", "-q", "-b", "main"]);
    let after = home.toft(&dir, &["where", "--json"]).data();
    assert_eq!(after["vcs"], "git");
    assert_eq!((&after["store"], &after["repository"]), (&before["store"], &before["repository"]));
    assert_eq!(status_of(&home, &dir, &id), "open");
    assert_eq!(rows(&home.toft(&dir, &["flow", "list", "--json"]).data()).len(), 1);
    commit_all(&home, &dir, "first");
    let files = home.run(&dir, "git", &["ls-files"]);
    assert_eq!(files.lines().collect::<Vec<_>>(), [".toft/.gitignore", ".toft/issues.jsonl"]);
    // Its worktrees and workspaces find the same store.
    let side = home.path().join("side");
    home.run(&dir, "git", &["worktree", "add", "-q", text(&side)]);
    assert_eq!(home.toft(&side, &["where", "--json"]).data()["store"], before["store"]);
    finish_in_workspace(&home, &dir, &[]);
    // A store that came with a cloned tree is not believed.
    home.run(&dir, "git", &["add", "-f", ".toft/repository", ".toft/toft.db"]);
    home.run(&dir, "git", &["commit", "-q", "-m", "with the store"]);
    home.run(home.path(), "git", &["clone", "-q", text(&dir), "clone"]);
    let clone = home.path().join("clone");
    assert!(clone.join(".toft/toft.db").exists());
    home.toft(&clone, &["flow", "list"]).fails(3);
}

#[test]
fn a_store_for_every_worktree_is_a_setting() {
    let (home, main) = Home::with_repository("project");
    fs::write(main.join(".git/toft/config.toml"), "store = \"worktree\"\n").unwrap();
    let side = home.path().join("side");
    home.run(&main, "git", &["worktree", "add", "-q", text(&side)]);
    home.toft(&side, &["flow", "new", "of the side"]).ok();
    home.toft(&main, &["flow", "new", "of main"]).ok();
    let flows = |dir: &Path| home.toft(dir, &["flow", "list", "-q"]).ok().lines().count();
    assert_eq!((flows(&side), flows(&main)), (1, 1));
    assert_ne!(
        home.toft(&side, &["where", "--json"]).data()["store"],
        home.toft(&main, &["where", "--json"]).data()["store"]
    );
    // The plan is one: issues are the repository's.
    let (id, _) = add(&home, &side, &["seen by both"]);
    assert_eq!(status_of(&home, &main, &id), "open");
    // A worktree made again has a new one.
    for round in 0..2 {
        home.run(&main, "git", &["worktree", "remove", "--force", text(&side)]);
        // Its files have other times than those of the one before.
        std::thread::sleep(std::time::Duration::from_millis(20));
        home.run(&main, "git", &["worktree", "add", "-q", text(&side), "HEAD"]);
        assert_eq!(flows(&side), 0, "{round}");
        home.toft(&side, &["flow", "new", "again"]).ok();
    }
}

#[test]
fn clones_are_one_repository_though_the_remotes_head_names_no_branch() {
    let mut home = Home::new();
    home.use_store("global");
    home.run(home.path(), "git", &["init", "-q", "--bare", "-b", "trunk", "up.git"]);
    let (first, up) = (home.git("first"), home.path().join("up.git"));
    home.toft(&first, &["init"]).ok();
    home.run(&first, "git", &["remote", "add", "origin", text(&up)]);
    home.run(&first, "git", &["push", "-q", "origin", "main"]);
    home.toft(&first, &["flow", "new", "Pin the schema"]).ok();
    add(&home, &first, &["Fix the login"]);
    home.toft(&first, &["sync"]).ok();
    home.run(home.path(), "git", &["clone", "-q", text(&up), "second"]);
    let second = home.path().join("second");
    home.toft(&second, &["init"]).ok();
    let ready = home.toft(&second, &["ready", "--json"]).data();
    assert!(rows(&ready).iter().any(|row| row["name"] == "Pin the schema"), "{ready}");
}

#[test]
fn a_checkout_with_two_stores_gives_an_issue_to_one_agent() {
    let (mut home, project) = Home::with_repository("project");
    let (id, _) = add(&home, &project, &["Fix it"]);
    home.toft(&project, &["init", "--store", "global"]).ok();
    let global = home.toft(&project, &["where", "--store", "global", "--json"]).data();
    let store = global["store"].as_str().unwrap().to_owned();
    home.toft_with(&project, &[("TOFT_STORE", &store)], &["claim", "--as", "one"]).ok();
    home.toft(&project, &["claim", "--as", "two"]).fails(6);
    assert_ne!(home.toft(&project, &["claim", &id, "--as", "two"]).code, 0);
    let issue = home.toft(&project, &["show", &id, "--json"]).data();
    assert_eq!((&issue["status"], &issue["assignee"]), (&"in_progress".into(), &"Ana".into()));
    // Finished there, it is closed here.
    home.set("TOFT_STORE", &store);
    home.toft(&project, &["finish", "--no-change", "was right", "--as", "one"]).ok();
    home.set("TOFT_STORE", "");
    assert_eq!(status_of(&home, &project, &id), "closed");
}

#[test]
fn a_runner_ends_in_a_clone_whose_plan_does_not_know_yet_what_is_closed() {
    let mut home = Home::new();
    home.set("TOFT_STORE", "global");
    let up = home.path().join("up.git");
    home.run(home.path(), "git", &["init", "-q", "--bare", "-b", "main", text(&up)]);
    home.run(home.path(), "git", &["clone", "-q", text(&up), "first"]);
    let first = home.path().join("first");
    home.run(&first, "git", &["commit", "-q", "--allow-empty", "-m", "start"]);
    home.toft(&first, &["init", "--tree"]).ok();
    add(&home, &first, &["Fix it"]);
    commit_all(&home, &first, "plan");
    home.run(&first, "git", &["push", "-q", "origin", "main"]);
    home.run(home.path(), "git", &["clone", "-q", text(&up), "second"]);
    let second = home.path().join("second");
    home.toft(&second, &["init"]).ok();
    home.toft(&first, &["claim", "--as", "one"]).ok();
    home.toft(&first, &["finish", "--no-change", "was right", "--as", "one"]).ok();
    // The file in this clone still says that it is open.
    let run = ["20", &toft_bin().display().to_string(), "run", "--until-idle", "--", "true"];
    let ran = home.command(&second, "timeout", &run).output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "it did not end: {ran:?}");
}
