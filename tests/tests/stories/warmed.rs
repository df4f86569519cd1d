//! Setup never lies: what was copied, linked or warmed builds exactly what differs, and is never committed.

use toft_stories::kept::create;
use toft_stories::prelude::*;

fn git(home: &Home, dir: &Path, args: &[&str]) -> String {
    home.run(dir, "git", args)
}

fn has(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        println!("skipped: {program} is not installed");
    }
    there
}

/// Long enough for files to have different times.
fn a_moment() {
    thread::sleep(Duration::from_millis(50));
}

/// The ways artefacts come into a workspace, as far as this machine has them.
fn ways(path: &str) -> Vec<(&'static str, String)> {
    let copied = format!("[workspaces]\ninstant = \"never\"\n[workspaces.setup]\ncopy = [\"{path}\"]\n");
    let both = format!("[workspaces]\ninstant = \"always\"\n[workspaces.setup]\ncopy = [\"{path}\"]\n");
    let warmed = format!("[workspaces]\ninstant = \"always\"\nwarm = [\"{path}\"]\n");
    let mut ways = vec![("copied", copied)];
    if may_mount() {
        ways.extend([("copied into an overlay", both), ("warmed", warmed)]);
    }
    ways
}

fn configure(repo: &Path, text: &str) {
    fs::write(repo.join(".git/toft/config.toml"), text).unwrap();
}

/// Compiles by copying; what is built is on its output.
const MAKEFILE: &str = "out/all: out/a out/b out/c\n\tcat $^ > $@\nout/%: src/%.txt\n\t@mkdir -p out\n\tcp $< $@\n";

fn made(home: &Home, dir: &Path) -> Vec<String> {
    let said = home.run(dir, "make", &[]);
    let steps = said.lines().filter(|line| line.starts_with("cp ")).map(|line| line[7..].to_owned());
    steps.map(|step| step.split('.').next().unwrap().to_owned()).collect()
}

fn with_make(home: &Home) -> PathBuf {
    let repo = home.repo("api");
    fs::create_dir(repo.join("src")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(repo.join(format!("src/{name}.txt")), format!("{name} committed\n")).unwrap();
    }
    fs::write(repo.join("Makefile"), MAKEFILE).unwrap();
    fs::write(repo.join(".gitignore"), "out/\n").unwrap();
    commit_all(home, &repo, "sources");
    repo
}

/// Which crates cargo compiled.
fn compiled(home: &Home, dir: &Path) -> Vec<String> {
    let cargo_home =
        std::env::var("CARGO_HOME").unwrap_or_else(|_| format!("{}/.cargo", std::env::var("HOME").unwrap()));
    let rustup = std::env::var("RUSTUP_HOME").unwrap_or_else(|_| format!("{}/.rustup", std::env::var("HOME").unwrap()));
    let mut command = home.command(dir, "cargo", &["build", "--offline"]);
    let output = command.env("CARGO_HOME", cargo_home).env("RUSTUP_HOME", rustup).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let lines = said.lines().filter_map(|line| line.trim().strip_prefix("Compiling "));
    let mut found: Vec<String> = lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    found.sort();
    found
}

#[test]
fn cargo_builds_exactly_what_differs() {
    if !has("cargo") {
        return;
    }
    for (how, config) in ways("target") {
        let home = Home::new();
        let _unmount = Unmount(&home);
        let repo = home.repo("api");
        fs::write(repo.join("Cargo.toml"), "[workspace]\nmembers = [\"one\", \"two\", \"app\"]\nresolver = \"2\"\n")
            .unwrap();
        for (name, deps) in
            [("one", ""), ("two", ""), ("app", "one = { path = \"../one\" }\ntwo = { path = \"../two\" }\n")]
        {
            fs::create_dir_all(repo.join(name).join("src")).unwrap();
            let manifest = format!(
                "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\n{deps}"
            );
            fs::write(repo.join(name).join("Cargo.toml"), manifest).unwrap();
        }
        // A build script that follows a directory sees its time, too.
        fs::create_dir(repo.join("two/data")).unwrap();
        fs::write(repo.join("two/data/table"), "1\n").unwrap();
        let script = "fn main() { println!(\"cargo:rerun-if-changed=data\"); }\n";
        fs::write(repo.join("two/build.rs"), script).unwrap();
        fs::write(repo.join("one/src/lib.rs"), "pub fn name() -> &'static str { \"one committed\" }\n").unwrap();
        fs::write(repo.join("two/src/lib.rs"), "pub fn name() -> &'static str { \"two committed\" }\n").unwrap();
        let main = "fn main() { println!(\"{} {}\", one::name(), two::name()); }\n";
        fs::write(repo.join("app/src/main.rs"), main).unwrap();
        fs::write(repo.join(".gitignore"), "/target\n").unwrap();
        home.run(&repo, "true", &[]);
        compiled(&home, &repo);
        commit_all(&home, &repo, "sources");
        configure(&repo, &config);
        a_moment();
        let same = create(&home, &repo, "same", &[]);
        assert_eq!(compiled(&home, &same), Vec::<String>::new(), "{how}: nothing differs");
        assert_eq!(git(&home, &same, &["status", "--porcelain"]), "");
        // Another commit than the artefacts are of.
        git(&home, &repo, &["switch", "-q", "-c", "other"]);
        fs::write(repo.join("one/src/lib.rs"), "pub fn name() -> &'static str { \"one of other\" }\n").unwrap();
        commit_all(&home, &repo, "other");
        git(&home, &repo, &["switch", "-q", "main"]);
        compiled(&home, &repo);
        a_moment();
        let args = ["ws", "create", "--name", "other-ws", "--base", "other", "-q"];
        let other = PathBuf::from(home.toft(&repo, &args).ok().trim());
        assert_eq!(compiled(&home, &other), ["app", "one"], "{how}: two is as it was");
        assert_eq!(home.run(&other, "target/debug/app", &[]), "one of other two committed\n", "{how}");
        // What the user built and did not commit.
        fs::write(repo.join("one/src/lib.rs"), "pub fn name() -> &'static str { \"NOT COMMITTED\" }\n").unwrap();
        compiled(&home, &repo);
        a_moment();
        let dirty = create(&home, &repo, "dirty", &[]);
        compiled(&home, &dirty);
        assert_eq!(home.run(&dirty, "target/debug/app", &[]), "one committed two committed\n", "{how}");
    }
}

#[test]
fn npm_installs_exactly_what_differs() {
    if !has("npm") {
        return;
    }
    // npm takes long; the way that is most like a mount comes first.
    let ways = ways("node_modules").into_iter().rev();
    for (how, config) in ways.take(sized(1, 3)) {
        let mut home = Home::new();
        let cache = home.path().join("npm").display().to_string();
        for (name, value) in
            [("cache", cache.as_str()), ("update_notifier", "false"), ("audit", "false"), ("fund", "false")]
        {
            home.set(&format!("npm_config_{name}"), value);
        }
        home.set("npm_config_offline", "true");
        let home = home;
        let _unmount = Unmount(&home);
        let packages = home.path().join("packages");
        for (name, version) in [("demo", 1), ("demo", 2), ("other", 1)] {
            let dir = packages.join(format!("{name}{version}"));
            fs::create_dir_all(&dir).unwrap();
            let manifest = format!("{{\"name\":\"{name}\",\"version\":\"{version}.0.0\",\"main\":\"i.js\"}}");
            fs::write(dir.join("package.json"), manifest).unwrap();
            fs::write(dir.join("i.js"), format!("module.exports = '{name} {version}'\n")).unwrap();
            home.run(&dir, "npm", &["pack", "-s", "--pack-destination", ".."]);
        }
        let archive = |name: &str| packages.join(name).display().to_string();
        let repo = home.repo("web");
        fs::write(repo.join("package.json"), "{\"name\":\"web\",\"version\":\"1.0.0\"}\n").unwrap();
        fs::write(repo.join(".gitignore"), "node_modules/\n").unwrap();
        home.run(&repo, "npm", &["install", "-s", &archive("demo-1.0.0.tgz"), &archive("other-1.0.0.tgz")]);
        commit_all(&home, &repo, "packages");
        configure(&repo, &config);
        a_moment();
        let require = |dir: &Path, name: &str| home.run(dir, "node", &["-p", &format!("require('{name}')")]);
        let w = create(&home, &repo, "w", &[]);
        assert_eq!(require(&w, "demo"), "demo 1\n", "{how}");
        // npm believes its own list of packages only if no package's directory is newer.
        for name in [".package-lock.json", "demo", "other", "other/i.js"] {
            let time = |dir: &Path| fs::metadata(dir.join("node_modules").join(name)).unwrap().modified().unwrap();
            assert_eq!(time(&w), time(&repo), "{how}: {name}");
        }
        let said = home.run(&w, "npm", &["install", "--json"]);
        assert!(said.contains("\"changed\": 0") && said.contains("\"added\": 0"), "{how}: {said}");
        let kept = fs::metadata(w.join("node_modules/other/i.js")).unwrap();
        let said = home.run(&w, "npm", &["install", "--json", &archive("demo-2.0.0.tgz")]);
        assert!(said.contains("\"changed\": 1") && said.contains("\"added\": 0"), "{how}: {said}");
        assert_eq!((require(&w, "demo"), require(&w, "other")), ("demo 2\n".into(), "other 1\n".into()), "{how}");
        let other = fs::metadata(w.join("node_modules/other/i.js")).unwrap();
        assert_eq!((other.mtime_nsec(), other.ino()), (kept.mtime_nsec(), kept.ino()), "{how}: the other is untouched");
        assert_eq!(require(&repo, "demo"), "demo 1\n", "{how}: the user's own is as it was");
        let rename =
            "const fs = require('fs'); fs.renameSync('node_modules', 'nm'); fs.renameSync('nm', 'node_modules')";
        home.run(&w, "node", &["-e", rename]);
        home.run(&w, "npm", &["uninstall", "-s", "demo"]);
        home.run(&w, "npm", &["ci", "-s"]);
        assert_eq!(require(&w, "other"), "other 1\n", "{how}");
    }
}

#[test]
fn links_that_setup_made_are_never_committed_and_replace_nothing_when_the_work_is_merged() {
    let mut home = Home::new();
    home.toft_on_path();
    let home = home;
    let repo = home.repo("web");
    // One that only matches a directory, one that matches a link as well, and one that nothing ignores.
    fs::write(repo.join(".gitignore"), "node_modules/\ncache\n").unwrap();
    commit_all(&home, &repo, "ignored");
    for name in ["node_modules", "cache", "free"] {
        fs::create_dir_all(repo.join(name).join("x")).unwrap();
        fs::write(repo.join(name).join("x/i"), "i\n").unwrap();
    }
    fs::write(repo.join("loose"), "loose\n").unwrap();
    configure(&repo, "[workspaces.setup]\nlink = [\"node_modules\", \"cache\", \"free\", \"loose\"]\n");
    home.toft(&repo, &["add", "A task"]).ok();
    let script = "cat node_modules/x/i cache/x/i free/x/i; echo hi > hi; git add -A; git commit -qm hi";
    home.toft(&repo, &["run", "--once", "--", "sh", "-ec", script]).ok();
    let branches = git(&home, &repo, &["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
    let branch = branches.lines().find(|name| name.contains("tf-")).unwrap();
    assert_eq!(git(&home, &repo, &["diff", "--name-only", "main", branch]), "hi\n");
    git(&home, &repo, &["merge", "-q", "--ff-only", branch]);
    for name in ["node_modules", "cache", "free"] {
        assert!(repo.join(name).join("x/i").is_file() && !repo.join(name).is_symlink(), "{name}");
    }
    assert_eq!(fs::read_to_string(repo.join(".gitignore")).unwrap(), "node_modules/\ncache\n");
    let own = git(&home, &repo, &["status", "--porcelain"]);
    assert!(own.contains("?? free/") && own.contains("?? loose"), "the user's own view is unchanged: {own}");
    // A single file that nothing ignores cannot be hidden: it is said.
    home.toft(&repo, &["ws", "create", "--name", "x"])
        .says("loose is not ignored, and a link to it would be committed");
    let x = PathBuf::from(home.toft(&repo, &["ws", "path", "x"]).ok().trim());
    assert_eq!(git(&home, &x, &["status", "--porcelain"]), "");
    assert!(x.join("cache").is_symlink());
    // What is new in it is its own.
    fs::create_dir(x.join("node_modules/new")).unwrap();
    assert!(!repo.join("node_modules/new").exists());
    home.toft(&repo, &["ws", "rm", "x"]).ok();
    assert!(repo.join("node_modules/x/i").is_file());
}

#[test]
fn the_pool_never_hands_out_stale_artefacts() {
    let (home, repo) = Home::with(with_make);
    let _unmount = Unmount(&home);
    home.toft(&repo, &["ws", "create", "--ahead", "1"]).ok();
    let waiting = || {
        let rows = home.toft(&repo, &["ws", "list", "--json"]).data();
        let row = rows["workspaces"].as_array().or(rows.as_array()).unwrap().iter().find(|row| row["pooled"] == true);
        PathBuf::from(row.unwrap()["path"].as_str().unwrap())
    };
    let pooled = waiting();
    // Somebody built in one that waits: only ignored files are in it.
    fs::create_dir(pooled.join("out")).unwrap();
    fs::write(pooled.join("out/a"), "STALE\n").unwrap();
    home.toft(&repo, &["add", "A task"]).ok();
    let given = home.toft(&repo, &["claim", "--ws", "--as", "a1", "--json"]).data()["workspace"].clone();
    let w = PathBuf::from(given["path"].as_str().unwrap());
    assert!(!w.join("out").exists(), "{given}");
    assert!(given["notes"].to_string().contains("artefacts were put into it"), "{given}");
    // One that is as it was made is handed out as it is.
    home.toft(&repo, &["ws", "create", "--ahead", "1"]).ok();
    let pooled = waiting();
    home.toft(&repo, &["add", "Another task"]).ok();
    let given = home.toft(&repo, &["claim", "--ws", "--as", "a2", "--json"]).data()["workspace"].clone();
    assert_eq!(given["path"].as_str(), pooled.to_str());
    assert_eq!(given["notes"].as_array().unwrap().len(), 0, "{given}");
    if !may_mount() || !has("make") {
        return;
    }
    // Warm ones that waited while main went on build what went on, and only that.
    a_moment();
    made(&home, &repo);
    configure(&repo, "[workspaces]\ninstant = \"always\"\nwarm = [\"out\"]\n");
    for n in 0..40 {
        // Enough files that a base of the commit before is near.
        fs::write(repo.join(format!("src/more{n}")), "x\n").unwrap();
    }
    commit_all(&home, &repo, "more");
    home.toft(&repo, &["ws", "create", "--ahead", "1"]).ok();
    let pooled = waiting();
    fs::write(repo.join("src/b.txt"), "b of later\n").unwrap();
    commit_all(&home, &repo, "later");
    a_moment();
    home.toft(&repo, &["add", "A third task"]).ok();
    let given = home.toft(&repo, &["claim", "--ws", "--as", "a3", "--json"]).data()["workspace"].clone();
    assert_eq!(given["path"].as_str(), pooled.to_str(), "{given}");
    assert_eq!(made(&home, &pooled), ["b"]);
    assert_eq!(fs::read_to_string(pooled.join("out/all")).unwrap(), "a committed\nb of later\nc committed\n");
}
