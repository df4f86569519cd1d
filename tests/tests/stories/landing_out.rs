//! Work that lands outside of this machine: pushed to a remote, or by a pull request.

#![cfg(unix)]

use toft_stories::forge::PlayedForge;
use toft_stories::prelude::*;

/// The address of the project on the forge.
const ADDRESS: &str = "https://github.com/acme/shop.git";

/// A yard whose remote is a bare repository, at the address of a forge.
fn with_remote(config: &str) -> (Yard, PathBuf) {
    let yard = Yard::new(config);
    let bare = yard.home.path().join("bare.git");
    let at = bare.display().to_string();
    yard.home.run(yard.home.path(), "git", &["clone", "-q", "--bare", &yard.repo.display().to_string(), &at]);
    yard.home.run(&yard.repo, "git", &["config", "--global", &format!("url.{at}.insteadOf"), ADDRESS]);
    yard.git(&["remote", "add", "origin", ADDRESS]);
    yard.git(&["fetch", "-q", "origin"]);
    (yard, bare)
}

fn in_bare(yard: &Yard, bare: &Path, args: &[&str]) -> String {
    yard.home.run(bare, "git", args).trim().to_owned()
}

/// A commit of another person on the remote's main.
fn push_by_another(yard: &Yard, bare: &Path, file: &str) {
    let other = yard.home.path().join(format!("other-{file}"));
    let at = other.display().to_string();
    yard.home.run(yard.home.path(), "git", &["clone", "-q", &bare.display().to_string(), &at]);
    fs::write(other.join(file), "other\n").unwrap();
    commit_all(&yard.home, &other, "by another");
    yard.home.run(&other, "git", &["push", "-q", "origin", "main"]);
}

#[test]
fn work_is_pushed_to_a_remote_and_a_push_by_another_costs_a_rebuild() {
    // While the check runs for the first time, another person pushes.
    let check = "sh check.sh; test -e $HOME/pushed || { touch $HOME/pushed; git clone -q $HOME/../bare.git $HOME/racer && \
                 cd $HOME/racer && echo race > race.txt && git add -A && git commit -q -m race && git push -q origin main; }";
    let (yard, bare) = with_remote(&format!("[land]\ninto = \"origin/main\"\ncheck = ['{check}']\n"));
    let id = yard.finish("one", "echo one > one.txt", "false");
    push_by_another(&yard, &bare, "earlier.txt");
    let before = yard.git(&["rev-parse", "main"]);
    let landed = yard.land();
    assert_eq!(landed["landed"].as_array().unwrap().len(), 1, "{landed}");
    assert_eq!(yard.status(&id), "closed");
    let files = in_bare(&yard, &bare, &["ls-tree", "--name-only", "main"]);
    for file in ["one.txt", "race.txt", "earlier.txt"] {
        assert!(files.contains(file), "{file} in {files}");
    }
    assert_eq!(yard.git(&["rev-parse", "main"]), before, "the user's branch is the user's");
    assert_eq!(yard.git(&["rev-parse", "origin/main"]), in_bare(&yard, &bare, &["rev-parse", "main"]));
    // New work begins with what has landed.
    yard.finish("two", "test -e one.txt && echo two > two.txt", "false");
    yard.land();
    assert!(in_bare(&yard, &bare, &["ls-tree", "--name-only", "main"]).contains("two.txt"));
}

#[test]
fn a_user_who_force_pushes_the_target_meanwhile_has_the_last_word() {
    // While the check runs for the first time, the user replaces the last commit of the remote.
    let check = "test -e $HOME/forced || { touch $HOME/forced; git clone -q $HOME/../bare.git $HOME/user && cd $HOME/user && \
                 git commit -q --amend -m amended && git push -q --force origin main; }";
    let (yard, bare) = with_remote(&format!("[land]\ninto = \"origin/main\"\ncheck = ['{check}']\n"));
    let id = yard.finish("one", "echo one > one.txt", "git rebase -q --onto origin/main HEAD~1");
    // What the user replaced does not come back with the work.
    yard.home.toft(&yard.repo, &["land"]).refuses(1, "begun on top of a commit that origin/main does not have");
    let subjects = || in_bare(&yard, &bare, &["log", "--topo-order", "--format=%s", "main"]);
    assert_eq!(subjects(), "amended\nfirst of yard");
    yard.home.toft(&yard.repo, &["review", &id, "--return", "-m", "rebase it onto origin/main"]).ok();
    yard.run(&[]);
    yard.land_and_close(&id);
    assert_eq!(subjects(), "Merge: do one\ndo one\namended\nfirst of yard");
}

#[test]
fn what_a_remote_refuses_is_told_and_lands_later() {
    let (yard, bare) = with_remote("[land]\ninto = \"origin/main\"\n");
    let id = yard.finish("one", "echo one > one.txt", "false");
    let hook = bare.join("hooks/pre-receive");
    fs::write(&hook, "#!/bin/sh\necho protected branch; exit 1\n").unwrap();
    yard.home.run(&bare, "chmod", &["+x", "hooks/pre-receive"]);
    let said = yard.home.toft(&yard.repo, &["land"]);
    said.refuses_all(1, &["nothing more lands in origin/main now", "protected branch"]);
    assert_eq!(yard.status(&id), "in_progress");
    fs::remove_file(&hook).unwrap();
    let away = bare.with_extension("away");
    fs::rename(&bare, &away).unwrap();
    yard.home.toft(&yard.repo, &["land"]).refuses(1, "nothing more lands");
    fs::rename(&away, &bare).unwrap();
    yard.land_and_close(&id);
}

#[test]
fn nothing_is_pushed_because_a_repository_says_so() {
    let (yard, bare) = with_remote("");
    fs::create_dir_all(yard.repo.join(".toft")).unwrap();
    fs::write(yard.repo.join(".toft/config.toml"), "[land]\ninto = \"origin/main\"\n").unwrap();
    let before = in_bare(&yard, &bare, &["rev-parse", "main"]);
    yard.finish("one", "echo one > one.txt", "false");
    yard.home.toft(&yard.repo, &["land"]).refuses(1, "only `into` in your own configuration");
    assert_eq!(in_bare(&yard, &bare, &["rev-parse", "main"]), before);
    fs::write(yard.repo.join(".toft/config.toml"), "[land]\nhow = \"pr\"\n").unwrap();
    yard.home.toft(&yard.repo, &["land"]).refuses(2, "may not say that work is published");
    // Nor does it weaken what the user decided.
    yard.configure("[land]\ninto = \"origin/main\"\nreview = \"human\"\n");
    fs::write(yard.repo.join(".toft/config.toml"), "[land]\nreview = \"none\"\nhow = \"merge\"\n").unwrap();
    yard.finish("two", "echo two > two.txt", "false");
    yard.home.toft(&yard.repo, &["land"]).ok();
    assert!(!in_bare(&yard, &bare, &["ls-tree", "--name-only", "main"]).contains("two.txt"), "it waits for review");
}

#[test]
fn finished_work_lands_where_the_configuration_says_now() {
    let (yard, bare) = with_remote("");
    let id = yard.finish("one", "echo one > one.txt", "false");
    yard.configure("[land]\ninto = \"origin/main\"\n");
    yard.land_and_close(&id);
    assert!(in_bare(&yard, &bare, &["ls-tree", "--name-only", "main"]).contains("one.txt"));
    assert!(!yard.repo.join("one.txt").exists());
}

#[test]
fn what_the_user_has_not_pushed_is_not_pushed_with_an_agents_work() {
    let (yard, bare) = with_remote("[land]\ninto = \"origin/main\"\n");
    yard.git(&["checkout", "-q", "-b", "feature"]);
    yard.write("wip.txt", "not yet\n");
    yard.commit("wip");
    let id = yard.finish("one", "echo one > one.txt", "false");
    yard.land_and_close(&id);
    let files = || in_bare(&yard, &bare, &["ls-tree", "--name-only", "main"]);
    assert!(files().contains("one.txt") && !files().contains("wip.txt"), "{}", files());
    // Work that was begun on top of it before it was to be pushed waits until the user has pushed.
    yard.configure("");
    // They were made in the same second, perhaps: no clock decides whose a commit is.
    yard.write("wip.txt", "still not\n");
    yard.commit("more wip");
    let two = yard.finish("two", "echo two > two.txt", "false");
    for config in ["[land]\ninto = \"origin/main\"\n", "[land]\ninto = \"origin/main\"\nhow = \"pr\"\n"] {
        yard.configure(config);
        yard.home.toft(&yard.repo, &["land"]).refuses(1, "begun on top of 2 commits that origin/main does not have");
    }
    let refs = in_bare(&yard, &bare, &["for-each-ref"]);
    assert_eq!(refs.lines().count(), 1, "{refs}");
    yard.configure("[land]\ninto = \"origin/main\"\n");
    yard.git(&["merge", "-q", "--no-edit", "origin/main"]);
    yard.git(&["push", "-q", "origin", "feature:main"]);
    yard.land_and_close(&two);
    assert!(files().contains("wip.txt") && files().contains("two.txt"), "{}", files());
}

#[test]
fn a_private_plan_leaves_by_no_push() {
    let (yard, bare) = with_remote("");
    let clone = yard.home.path().join("clone");
    let at = clone.display().to_string();
    yard.home.run(yard.home.path(), "git", &["clone", "-q", ADDRESS, &at]);
    yard.home.toft(&clone, &["init", "--contributor"]).ok();
    yard.configure("[land]\ninto = \"origin/main\"\n");
    let id = add(&yard.home, &clone, &["Take over the market"]);
    let named = format!("echo 'for {id}' > one.txt; git add -A; git commit -q -m one");
    yard.home.toft(&clone, &["run", "--once", "--", "sh", "-c", &named]).ok();
    yard.home.toft(&clone, &["land"]).says_all(&["sent back", "something private"]);
    let mended = "git reset -q --soft HEAD~1; echo fine > one.txt; git add -A; git commit -q -m one";
    yard.home.toft(&clone, &["run", "--once", "--", "sh", "-c", mended]).ok();
    yard.home.toft(&clone, &["land"]).ok();
    let all = in_bare(&yard, &bare, &["log", "--format=%B", "-p", "main"]);
    assert!(all.contains("+fine") && !all.contains(&id) && !all.contains("market"), "{all}");
}

#[test]
fn a_private_plan_leaves_by_no_pull_request() {
    let (yard, bare, forge) = with_forge();
    let clone = yard.home.path().join("clone");
    yard.home.run(yard.home.path(), "git", &["clone", "-q", ADDRESS, &clone.display().to_string()]);
    yard.home.toft(&clone, &["init", "--contributor"]).ok();
    let id = add(&yard.home, &clone, &["Take over the market", "-d", "before spring"]);
    let work = "echo fine > one.txt; git add -A; git commit -q -m 'add one'";
    yard.home.toft(&clone, &["run", "--once", "--", "sh", "-c", work]).ok();
    yard.home.toft(&clone, &["land"]).ok();
    let pull = forge.state.lock().unwrap().pulls[0].to_string();
    let refs = in_bare(&yard, &bare, &["for-each-ref"]);
    for word in [&id[..7], "market", "spring"] {
        assert!(!pull.contains(word) && !refs.contains(word), "{word} in {pull} or {refs}");
    }
    assert!(pull.contains("add one"), "{pull}");
}

/// A yard whose work lands by pull requests on a forge that `gh` reaches through a socket.
fn with_forge() -> (Yard, PathBuf, PlayedForge) {
    let (mut yard, bare) = with_remote("[land]\ninto = \"origin/main\"\nhow = \"pr\"\n");
    let dir = yard.home.path().join("gh");
    fs::create_dir_all(&dir).unwrap();
    let socket = dir.join("forge.sock");
    fs::write(dir.join("config.yml"), format!("http_unix_socket: {}\n", socket.display())).unwrap();
    yard.home.set("GH_CONFIG_DIR", &dir.display().to_string());
    yard.home.set("GH_TOKEN", "not-a-real-one");
    let forge = PlayedForge::start(&socket, &bare);
    (yard, bare, forge)
}

#[test]
fn a_pull_request_is_opened_and_followed_until_the_forge_has_merged_it() {
    let (yard, bare, forge) = with_forge();
    let id = yard.issue("work", "echo bad > work.txt", "echo better > work.txt");
    yard.home.toft(&yard.repo, &["edit", &id, "--body", "Every shop needs it."]).ok();
    yard.run(&[]);
    yard.home.toft(&yard.repo, &["land"]).says("https://github.com/acme/shop/pull/1");
    let pull = forge.state.lock().unwrap().pulls[0].clone();
    assert_eq!((pull["title"].as_str(), pull["base"]["ref"].as_str()), (Some("work"), Some("main")));
    assert!(pull["body"].as_str().unwrap().contains("Every shop needs it."));
    let branch = pull["head"]["ref"].as_str().unwrap().to_owned();
    assert_eq!(yard.status(&id), "in_progress");
    yard.home.toft(&yard.repo, &["status"]).says("1 in pull requests");
    // Nothing new: no other pull request, nothing sent back.
    yard.home.toft(&yard.repo, &["land"]).says("waits for https://github.com/acme/shop/pull/1");

    // Its CI fails: the end of the log is in the brief.
    let first = in_bare(&yard, &bare, &["rev-parse", &branch]);
    {
        let mut state = forge.state.lock().unwrap();
        state.log = format!("{}\nassertion failed: bad is not better\n", "noise\n".repeat(2_000));
        let run = json!({ "id": 9, "name": "test", "head_sha": first, "conclusion": "failure",
            "app": { "slug": "github-actions" }, "output": { "title": "1 test failed" } });
        state.check_runs.push(run);
    }
    yard.home.toft(&yard.repo, &["land"]).says_all(&["sent back", "test failed"]);
    yard.run(&[]);
    assert!(yard.brief("work").contains("bad is not better"), "{}", yard.brief("work"));
    yard.land();
    let second = in_bare(&yard, &bare, &["rev-parse", &branch]);
    assert_ne!(first, second, "the same branch has the mended work");
    assert_eq!(forge.state.lock().unwrap().pulls.len(), 1);

    // A reviewer asks for changes at a line.
    {
        let mut state = forge.state.lock().unwrap();
        let (by, of) = (json!({ "login": "eve" }), &second);
        state.reviews.push(json!({ "user": by, "state": "CHANGES_REQUESTED", "body": "almost", "commit_id": of }));
        state.comments.push(json!({ "user": by, "path": "work.txt", "line": 1, "body": "say best", "commit_id": of }));
    }
    yard.home.toft(&yard.repo, &["land"]).says("A reviewer asks for changes.");
    fs::write(yard.home.path().join("home/agents/work.again"), "echo best > work.txt").unwrap();
    yard.run(&[]);
    assert!(yard.brief("work").contains("work.txt:1: say best (eve)"), "{}", yard.brief("work"));
    yard.land();

    // The forge squashes it into main: recognised by the record.
    let merger = yard.home.path().join("merger");
    yard.home.run(
        yard.home.path(),
        "git",
        &["clone", "-q", &bare.display().to_string(), &merger.display().to_string()],
    );
    yard.home.run(&merger, "git", &["merge", "-q", "--squash", &format!("origin/{branch}")]);
    yard.home.run(&merger, "git", &["commit", "-q", "-m", "work (#1)"]);
    yard.home.run(&merger, "git", &["push", "-q", "origin", "main"]);
    let squashed = in_bare(&yard, &bare, &["rev-parse", "main"]);
    {
        let mut state = forge.state.lock().unwrap();
        let pull = &mut state.pulls[0];
        (pull["state"], pull["merged"], pull["merge_commit_sha"]) =
            ("closed".into(), true.into(), squashed.clone().into());
    }
    let landed = yard.land();
    assert_eq!(landed["landed"][0]["landed"]["commit"], squashed.as_str());
    assert_eq!(yard.status(&id), "closed");
    assert_eq!(in_bare(&yard, &bare, &["show", "main:work.txt"]), "best");
}

#[test]
fn what_was_mended_after_the_forge_merged_is_another_pull_request() {
    let (yard, bare, forge) = with_forge();
    let id = yard.finish("work", "echo bad > work.txt", "echo good > work.txt");
    yard.land();
    yard.home.toft(&yard.repo, &["review", &id, "--return", "-m", "say good"]).ok();
    yard.run(&[]);
    // Meanwhile the forge merges what it has.
    let branch = forge.state.lock().unwrap().pulls[0]["head"]["ref"].as_str().unwrap().to_owned();
    in_bare(&yard, &bare, &["update-ref", "refs/heads/main", &branch]);
    {
        let mut state = forge.state.lock().unwrap();
        let pull = &mut state.pulls[0];
        (pull["state"], pull["merged"]) = ("closed".into(), true.into());
        pull["merge_commit_sha"] = in_bare(&yard, &bare, &["rev-parse", "main"]).into();
    }
    yard.land();
    assert_eq!(yard.status(&id), "in_progress", "its newest commit has not landed");
    assert_eq!(forge.state.lock().unwrap().pulls.len(), 2);
}

#[test]
fn one_pull_request_keeps_nobody_from_theirs_and_strangers_send_nothing_back() {
    let (yard, bare, forge) = with_forge();
    yard.finish("first", "echo 1 > first.txt", "false");
    yard.land();
    let branch = forge.state.lock().unwrap().pulls[0]["head"]["ref"].as_str().unwrap().to_owned();
    let head = in_bare(&yard, &bare, &["rev-parse", &branch]);
    {
        let mut state = forge.state.lock().unwrap();
        state
            .reviews
            .push(json!({ "user": { "login": "troll" }, "state": "CHANGES_REQUESTED", "body": "delete it all",
            "commit_id": head, "author_association": "NONE" }));
    }
    yard.home.toft(&yard.repo, &["land"]).says("waits for https://");
    // The forge does not know it any more.
    forge.state.lock().unwrap().pulls[0]["head"]["ref"] = "gone".into();
    drop(forge.state.lock().unwrap().pulls.remove(0));
    yard.finish("second", "echo 2 > second.txt", "false");
    yard.home.toft(&yard.repo, &["land"]).refuses(1, "does not land now");
    assert_eq!(forge.state.lock().unwrap().pulls.len(), 1, "the second has its pull request");
}

#[test]
fn what_is_withdrawn_while_the_check_runs_is_not_published() {
    let (yard, bare, forge) = with_forge();
    let id = yard.finish("work", "echo one > one.txt", "false");
    let check = format!("cd {} && env -u TOFT_ATTEMPT toft land withdraw {id}", yard.repo.display());
    yard.configure(&format!("[land]\ninto = \"origin/main\"\nhow = \"pr\"\ncheck = ['{check}']\n"));
    yard.land();
    assert_eq!(forge.state.lock().unwrap().pulls.len(), 0);
    assert_eq!(in_bare(&yard, &bare, &["for-each-ref"]).lines().count(), 1);
}

#[test]
fn a_pull_request_that_conflicts_or_was_closed_goes_back() {
    let (yard, bare, forge) = with_forge();
    let id = yard.issue("work", "echo a > same.txt", "git merge -q $newest; echo both > same.txt");
    yard.run(&[]);
    yard.land();
    push_by_another(&yard, &bare, "same.txt");
    yard.home.toft(&yard.repo, &["land"]).says("conflicts with origin/main in same.txt");
    yard.run(&[]);
    yard.land();
    forge.state.lock().unwrap().pulls[0]["state"] = "closed".into();
    yard.home.toft(&yard.repo, &["land"]).says("was closed and not merged");
    assert_eq!(yard.status(&id), "open");
    // A person closed it, so a person is asked.
    yard.home.toft(&yard.repo, &["status"]).says_all(&["Answer with what the next attempt", "question to you"]);
    fs::write(yard.home.path().join("home/agents/work.again"), "echo again > same.txt").unwrap();
    yard.home.toft(&yard.repo, &["answer", &id, "once more"]).ok();
    yard.run(&[]);
    yard.land();
    assert_eq!(forge.state.lock().unwrap().pulls.len(), 2, "a closed pull request is not used again");
}

/// A program that answers from files, as `glab` and `tea` would.
fn script(yard: &Yard, name: &str, answers: &[(&str, String)]) {
    let dir = yard.home.path().join("home/forge");
    fs::create_dir_all(&dir).unwrap();
    for (path, answer) in answers {
        fs::write(dir.join(path.replace(|c: char| !c.is_ascii_alphanumeric(), "_")), answer).unwrap();
    }
    let program = yard.home.path().join("bin").join(name);
    fs::write(
        &program,
        "#!/bin/sh\necho \"$*\" >> $HOME/forge/calls\nfor word; do case $word in\n  repos/*|projects/*) path=$word;;\nesac; done\n\
         case \"$*\" in *POST*) path=made;; esac\ncat $HOME/forge/$(printf %s \"${path%%\\?*}\" | tr -c 'A-Za-z0-9' _)\n",
    )
    .unwrap();
    yard.home.run(yard.home.path(), "chmod", &["+x", &program.display().to_string()]);
}

#[test]
fn glab_and_tea_open_and_follow_pull_requests_too() {
    let (yard, bare) = with_remote("[land]\ninto = \"origin/main\"\nhow = \"pr\"\nforge = \"glab\"\n");
    let id = yard.finish("work", "echo bad > work.txt", "echo good > work.txt");
    let made = json!({ "iid": 4, "web_url": "https://gitlab.example/4" }).to_string();
    let at = "projects/acme%2Fshop/merge_requests";
    script(&yard, "glab", &[("made", made), (at, "[]".into())]);
    yard.home.toft(&yard.repo, &["land"]).says("https://gitlab.example/4");
    let calls = fs::read_to_string(yard.home.path().join("home/forge/calls")).unwrap();
    assert!(
        calls.contains("api --hostname github.com --method POST projects/acme%2Fshop/merge_requests -f title=work"),
        "{calls}"
    );
    let branches = in_bare(&yard, &bare, &["for-each-ref", "--format=%(refname:short) %(objectname)"]);
    let sha = branches.lines().find(|line| !line.starts_with("main ")).unwrap().split(' ').nth(1).unwrap().to_owned();
    let request = json!({ "state": "opened", "sha": sha, "head_pipeline": { "id": 3, "status": "failed" } });
    let jobs = json!([{ "id": 8, "name": "unit", "web_url": "" }]).to_string();
    let thread = json!([{ "notes": [{ "resolvable": true, "resolved": false, "body": "hm", "author": { "username": "eve" } }] }]);
    let answers = [
        ("projects/acme%2Fshop/merge_requests/4", request.to_string()),
        ("projects/acme%2Fshop/pipelines/3/jobs", jobs),
        ("projects/acme%2Fshop/jobs/8/trace", "it is bad\n".to_owned()),
        ("projects/acme%2Fshop/merge_requests/4/discussions", thread.to_string()),
    ];
    script(&yard, "glab", &answers);
    yard.home.toft(&yard.repo, &["land"]).says("unit failed.");
    yard.run(&[]);
    assert!(yard.brief("work").contains("it is bad"));

    // The same work goes on with tea.
    yard.configure("[land]\ninto = \"origin/main\"\nhow = \"pr\"\nforge = \"tea\"\n");
    let pull = |state: &str, merged: bool, head: &str| {
        json!({ "state": state, "merged": merged, "merge_commit_sha": "", "head": { "sha": head } }).to_string()
    };
    let status = format!("repos/acme/shop/commits/{sha}/status");
    let (reviews, at) = ("repos/acme/shop/pulls/4/reviews", "repos/acme/shop/pulls/4");
    script(&yard, "tea", &[(at, pull("open", false, &sha)), (reviews, "[]".into()), (&status, "{}".into())]);
    yard.land();
    assert_eq!(yard.status(&id), "in_progress");
    let branches = in_bare(&yard, &bare, &["for-each-ref", "--format=%(refname:short) %(objectname)"]);
    let mended = branches.lines().find(|line| !line.starts_with("main ")).unwrap().split(' ').nth(1).unwrap();
    script(&yard, "tea", &[(at, pull("closed", true, mended))]);
    yard.land_and_close(&id);
    let calls = fs::read_to_string(yard.home.path().join("home/forge/calls")).unwrap();
    assert!(calls.contains("api repos/acme/shop/pulls/4"), "{calls}");
}
