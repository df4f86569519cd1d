//! `toft list` and `toft status` over one repository and over all of them: each row once, under its own repository, and
//! no filter is ignored.

use toft_stories::prelude::*;
use toft_stories::project::Project;
use toft_stories::repositories::{add, rows, text};

fn listed(home: &Home, dir: &Path, args: &[&str]) -> Value {
    let said = home.toft(dir, &[&["list", "--json"], args].concat()).ok();
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn titles(answer: &Value) -> Vec<&str> {
    rows(&answer["data"]).iter().map(|row| row["title"].as_str().or(row["name"].as_str()).unwrap()).collect()
}

#[test]
fn issues_belong_to_no_worktree() {
    let (home, main) = Home::with_repository("project");
    let side = home.path().join("side");
    home.run(&main, "git", &["worktree", "add", "-q", text(&side), "HEAD"]);
    add(&home, &main, &["an issue"]);
    home.toft(&main, &["flow", "new", "of main"]).ok();
    home.toft(&side, &["flow", "new", "of the side"]).ok();
    for reach in [&["--worktree", "main"][..], &["--worktree", "."], &["--worktree", "main", "--all-repos"]] {
        home.toft(&main, &[&["list", "issues"], reach].concat())
            .refuses_all(2, &[reach[0], "issues belong to no worktree"]);
    }
    for dir in [&main, &side] {
        assert_eq!(titles(&listed(&home, dir, &["issues"])), ["an issue"]);
    }
    assert_eq!(titles(&listed(&home, &side, &["--worktree", "."])), ["of the side"]);
    assert_eq!(titles(&listed(&home, &side, &["tasks", "--worktree", "."])), ["of the side"]);
}

#[test]
fn a_past_list_is_of_this_repositorys_issues_only() {
    let (home, main) = Home::with_repository("project");
    add(&home, &main, &["an issue"]);
    for reach in [&["--all-repos"][..], &["--worktree", "main"], &["--worktree", "."]] {
        home.toft(&main, &[&["list", "--at", "nosuchrev"], reach].concat()).fails(2);
    }
    home.toft(&main, &["list", "tasks", "--at", "nosuchrev"]).refuses(2, "--at");
}

#[test]
fn filters_and_limits_hold_over_all_repositories_as_in_one() {
    let home = Home::new();
    let (own, team) = (home.repo("own"), home.repo("team"));
    let (epic, _) = add(&home, &own, &["an epic", "-t", "epic"]);
    add(&home, &own, &["a part", "--parent", &epic]);
    let (last, _) = add(&home, &team, &["an issue of team", "-l", "urgent"]);
    // What is in both is one.
    home.toft(&own, &["ledger", "add", "team", text(&team)]).ok();
    home.toft(&own, &["flow", "new", "a task of own"]).ok();
    home.toft(&team, &["flow", "new", "a task of team"]).ok();
    let all = |args: &[&str]| listed(&home, &own, &[&["issues", "--all-repos"], args].concat());

    let every = all(&[]);
    assert_eq!(
        (rows(&every["data"]).len(), &every["page"]["total"], &every["page"]["more"]),
        (3, &3.into(), &false.into()),
        "{every}"
    );
    let one = all(&["--limit", "1"]);
    assert_eq!(
        (titles(&one), &one["page"]["total"], &one["page"]["more"]),
        (vec!["an issue of team"], &3.into(), &true.into())
    );
    let tasks = listed(&home, &own, &["tasks", "--all-repos", "--limit", "1"]);
    assert_eq!((rows(&tasks["data"]).len(), &tasks["page"]["more"]), (1, &true.into()), "{tasks}");

    assert_eq!(titles(&all(&["--parent", &epic[..epic.len() - 1]])), ["a part"]);
    assert_eq!(titles(&all(&["-l", "urgent", "--status", "closed"])), [""; 0]);
    for kind in [&["issues"][..], &[]] {
        let said = home.toft(&own, &[&["list", "--all-repos"], kind, &["--label", "nosuch"]].concat());
        assert!(said.code != 0 && said.err.contains("urgent"), "{said:?}");
    }

    // A status may be that of issues or that of tasks.
    let both = |status: &str| home.toft(&own, &["list", "--all-repos", "--status", status]);
    assert!(both("pending").ok().contains("a task of own"));
    let open = both("open").ok();
    assert!(open.contains("a part") && !open.contains("a task of"), "{open}");
    home.toft(&team, &["close", &last, "-m", "done"]).ok();
    assert!(both("deferred").ok().contains("No issues."));
    let said = both("nosuch").fails(2);
    assert!(said.contains("in_progress") && said.contains("pending"), "{said}");
}

#[test]
fn status_of_all_repositories_names_each_proposal_once_under_its_own() {
    let project = Project::new(false);
    let Project { home, keeper, mine, .. } = &project;
    let (id, _) = add(home, mine, &["A better way"]);
    project.propose(&id);
    project.merge(&id);
    project.sync();
    let other = home.repo("other");
    home.toft(&other, &["flow", "new", "something else"]).ok();

    let said = home.toft(&other, &["status", "--all-repos"]).ok();
    assert_eq!(said.matches("proposes: A better way").count(), 1, "{said}");
    let heading = |line: &&str| line.ends_with(':') && !line.starts_with(' ');
    let above = said[..said.find("proposes:").unwrap()].lines().rfind(heading).unwrap();
    assert_eq!(above, "keeper:", "{said}");
    assert_eq!(said.matches("Proposed tf-").count(), 1, "{said}");

    let all = home.toft(&other, &["status", "--all-repos", "--json"]).data();
    let of = |name: &str| rows(&all).iter().find(|row| row["repository"] == name).unwrap_or_else(|| panic!("{all}"));
    assert_eq!((rows(&of("keeper")["proposals"]).len(), rows(&of("other")["proposals"]).len()), (1, 0));
    let alone = home.toft(keeper, &["status", "--json"]).data();
    assert_eq!(alone["proposals"], of("keeper")["proposals"]);
    let proposed = home.toft(mine, &["status", "--json"]).data()["proposed"].clone();
    assert_eq!(proposed[0]["id"], id.as_str(), "{proposed}");
    for row in rows(&all).iter().chain([&alone]) {
        for field in ["working", "needs_you", "broken", "proposals", "proposed", "orphans"] {
            assert!(row[field].is_array(), "{field}: {row}");
        }
    }
}
