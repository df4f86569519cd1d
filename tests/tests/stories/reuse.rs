//! Workspaces used again: made ahead, gone back to, gone on with elsewhere, and who runs into whom.

use toft_stories::prelude::*;
use toft_stories::workspaces::fill;

fn project(home: &Home) -> PathBuf {
    let repo = home.repo("api");
    fill(&repo, 20);
    fs::write(repo.join(".gitignore"), "target/\n").unwrap();
    commit_all(home, &repo, "files");
    repo
}

fn commit(home: &Home, dir: &Path, file: &str, text: &str) {
    fs::write(dir.join(file), text).unwrap();
    home.run(dir, "git", &["add", file]);
    home.run(dir, "git", &["commit", "-q", "-m", &format!("write {file}")]);
}

#[test]
fn one_that_was_made_ahead_is_handed_out_as_if_it_were_fresh() {
    let (home, repo) = Home::with(project);
    home.toft(&repo, &["ws", "create", "--ahead", "3"]).ok();
    assert!(home.toft(&repo, &["ws", "create", "--ahead", "3"]).ok().contains("0 created"));
    // The world goes on while they wait, and somebody spoils one.
    commit(&home, &repo, "later.txt", "later\n");
    let rows = home.toft(&repo, &["ws", "list", "--json"]).data();
    let oldest = rows.as_array().unwrap().last().unwrap()["path"].as_str().unwrap().to_owned();
    fs::write(Path::new(&oldest).join("litter"), "somebody's\n").unwrap();
    for title in ["One", "Two", "Three", "Four"] {
        add(&home, &repo, &[title]);
        let claim = home.toft(&repo, &["claim", "--ws", "--as", title, "--json"]).data();
        let path = PathBuf::from(claim["workspace"]["path"].as_str().unwrap());
        assert!(path.join("later.txt").is_file() && !path.join("litter").exists(), "equal to a fresh one");
        assert_eq!(home.run(&path, "git", &["status", "--porcelain", "--ignored"]), "");
        assert_eq!(home.run(&path, "git", &["branch", "--show-current"]).trim(), claim["workspace"]["branch"]);
        assert_eq!(home.run(&path, "git", &["rev-parse", "HEAD"]), home.run(&repo, "git", &["rev-parse", "HEAD"]));
        let ahead = path.file_name().unwrap().to_string_lossy().starts_with("pool-");
        assert_eq!(ahead, title != "Four");
    }
    let rescued = home.run(&repo, "git", &["for-each-ref", "refs/toft/rescue"]);
    assert_eq!(rescued.lines().count(), 1, "the litter was put away: {rescued}");
}

#[test]
fn one_goes_back_to_any_rescue_beside_what_is_there() {
    let (home, repo) = Home::with(project);
    let path = home.toft(&repo, &["ws", "create", "--name", "work", "-q"]).ok();
    let work = PathBuf::from(path.trim());
    let mut seen = Vec::new();
    for n in 1..=3 {
        fs::write(work.join("draft.txt"), format!("draft {n}\n")).unwrap();
        if n == 2 {
            home.run(&work, "git", &["add", "draft.txt"]);
        }
        home.toft(&repo, &["ws", "rescue", "work"]).ok();
        seen.push(fs::read_to_string(work.join("draft.txt")).unwrap());
    }
    for n in 1..=3 {
        let name = format!("back{n}");
        let args = ["ws", "restore", "work", "--at", &n.to_string(), "--name", &name, "-q"];
        let back = home.toft(&repo, &args).ok();
        assert_eq!(fs::read_to_string(Path::new(back.trim()).join("draft.txt")).unwrap(), seen[n - 1]);
        let staged = home.run(Path::new(back.trim()), "git", &["diff", "--cached", "--name-only"]);
        assert_eq!(!staged.is_empty(), n >= 2);
    }
    assert_eq!(fs::read_to_string(work.join("draft.txt")).unwrap(), "draft 3\n", "what is there stays");
    home.toft(&repo, &["ws", "restore", "work", "--at", "9", "--name", "x"]).fails(3);
    home.toft(&repo, &["ws", "restore", "work", "--at", "1"]).fails(5);
}

#[test]
fn a_task_goes_on_in_the_same_workspace_or_in_one_that_is_built_again() {
    let (home, repo) = Home::with(project);
    add(&home, &repo, &["Long work"]);
    let claim = home.toft(&repo, &["claim", "--ws", "--as", "ann", "--json"]).data();
    let path = PathBuf::from(claim["workspace"]["path"].as_str().unwrap());
    home.toft(&path, &["where", "--as", "ann"]).says_all(&[claim["task"]["id"].as_str().unwrap(), "held by ann"]);
    commit(&home, &path, "half.txt", "half\n");
    let saved = home.toft(&path, &["save", "-m", "half way", "--as", "ann", "--json"]).data();
    let head = home.run(&path, "git", &["rev-parse", "HEAD"]);
    assert_eq!(saved["checkpoint"]["commit"], head.trim());
    home.toft(&path, &["finish", "release", "--as", "ann"]).ok();
    let again = home.toft(&repo, &["claim", "--ws", "--as", "bob", "--json"]).data();
    assert_eq!(
        (&again["workspace"]["path"], &again["workspace"]["existing"]),
        (&claim["workspace"]["path"], &true.into())
    );
    home.toft(&repo, &["finish", "release", "--as", "bob"]).ok();
    // On a machine that has the commit but neither the directory nor the branch.
    let before = whole(&home, &path);
    home.run(&repo, "git", &["update-ref", "refs/heads/kept", head.trim()]);
    home.run(&repo, "git", &["worktree", "remove", "--force", path.to_str().unwrap()]);
    home.run(&repo, "git", &["branch", "-q", "-D", claim["workspace"]["branch"].as_str().unwrap()]);
    home.toft(&repo, &["ws", "gc"]).ok();
    let rebuilt = home.toft(&repo, &["claim", "--ws", "--as", "cid", "--json"]).data();
    assert!(rebuilt["resume"]["summary"] == "half way", "{rebuilt}");
    assert_eq!(whole(&home, &path).differences(&before), Vec::<String>::new());
}

#[test]
fn what_nobody_used_for_long_goes_and_the_users_own_checkout_stays() {
    let (home, repo) = Home::with(project);
    let mut plots = Vec::new();
    for n in 0..4 {
        let path = home.toft(&repo, &["ws", "create", "--name", &format!("p{n}"), "-q"]).ok();
        fs::write(Path::new(path.trim()).join("work.txt"), "work\n").unwrap();
        plots.push(PathBuf::from(path.trim()));
    }
    home.toft(&repo, &["ws", "gc"]).ok();
    assert!(plots.iter().all(|path| path.exists()), "handed out within the hour");
    let script = "UPDATE workspaces SET body = json_set(body, '$.used', '2020-01-01T00:00:00.000Z')
                  WHERE json_extract(body, '$.name') IN ('p0', 'p1')";
    home.run(&repo, "sqlite3", &[".git/toft/toft.db", script]);
    home.toft(&repo, &["ws", "gc", "--older-than", "30d"]).ok();
    assert_eq!(plots.iter().map(|path| path.exists()).collect::<Vec<_>>(), [false, false, true, true]);
    home.toft(&repo, &["ws", "restore", "p0"]).ok();
    assert_eq!(fs::read_to_string(plots[0].join("work.txt")).unwrap(), "work\n");
    // The user's own checkout, if that is what is wanted; it is never taken down.
    let given = home.toft(&repo, &["ws", "create", "--name", "here", "--in-place", "-q"]).ok();
    assert_eq!(Path::new(given.trim()), repo);
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    assert!(home.toft(&repo, &["ws", "list"]).ok().contains("here"));
    home.toft(home.path(), &["-C", repo.to_str().unwrap(), "ws", "rm", "here", "--rescue"]).ok();
    assert!(repo.join(".git").is_dir() && repo.join("src").is_dir());
}

#[test]
fn artefacts_go_before_work_does() {
    let (home, repo) = Home::with(project);
    let config = repo.join(".git/toft/config.toml");
    fs::write(&config, "[workspaces]\nmax_bytes = \"8M\"\n").unwrap();
    let make = |name: &str| {
        let path = PathBuf::from(home.toft(&repo, &["ws", "create", "--name", name, "-q"]).ok().trim());
        fs::create_dir(path.join("target")).unwrap();
        fs::write(path.join("target/large"), vec![1; 5 << 20]).unwrap();
        fs::write(path.join("work.txt"), "work\n").unwrap();
        path
    };
    let (old, new) = (make("old"), make("new"));
    home.toft(&repo, &["ws", "gc", "--older-than", "0s"]).ok();
    assert!(!old.exists() && !new.exists(), "age takes both");
    for name in ["old", "new"] {
        home.toft(&repo, &["ws", "restore", name]).ok();
    }
    for path in [&old, &new] {
        fs::create_dir(path.join("target")).unwrap();
        fs::write(path.join("target/large"), vec![1; 5 << 20]).unwrap();
    }
    // Nobody may be thrown out within the hour but by age; these are made old in the store's eyes.
    let script = "UPDATE workspaces SET body = json_set(body, '$.used', '2020-01-01T00:00:00.000Z')";
    home.run(&repo, "sqlite3", &[".git/toft/toft.db", script]);
    home.toft(&repo, &["ws", "gc"]).ok();
    assert!(!old.join("target").exists() && old.join("work.txt").is_file(), "the oldest gives up what can be built");
    assert!(new.join("target/large").is_file(), "that was enough");
}
