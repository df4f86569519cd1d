//! A workspace that can be used at once: files, links, ports and commands that the repository declares.

use toft_stories::prelude::*;

/// A repository that declares how its workspaces are set up, in its tree.
fn project(home: &Home, setup: &str) -> PathBuf {
    let repo = home.repo("api");
    fs::write(repo.join(".gitignore"), ".env\nnode_modules\nbuilt\n").unwrap();
    fs::write(repo.join("a.txt"), "one\n").unwrap();
    declare(&repo, setup);
    commit_all(home, &repo, "files");
    fs::write(repo.join(".env"), "TOKEN=1\n").unwrap();
    fs::create_dir_all(repo.join("node_modules/left-pad")).unwrap();
    fs::write(repo.join("node_modules/left-pad/index.js"), "pad\n").unwrap();
    repo
}

fn declare(repo: &Path, setup: &str) {
    fs::create_dir_all(repo.join(".toft")).unwrap();
    fs::write(repo.join(".toft/config.toml"), format!("[workspaces.setup]\n{setup}\n")).unwrap();
}

fn create(home: &Home, repo: &Path, name: &str) -> Value {
    home.toft(repo, &["ws", "create", "--name", name, "--json"]).data()
}

#[test]
fn files_are_copied_links_made_and_ports_are_nobody_elses() {
    let home = Home::new();
    let repo = project(
        &home,
        "copy = [\".env\", \"a.txt\", \"missing\"]\nlink = [\"node_modules\"]\nports = [\"web\", \"db\"]",
    );
    let given: Vec<Value> = ["one", "two", "three"].iter().map(|name| create(&home, &repo, name)).collect();
    let mut ports = Vec::new();
    for given in &given {
        let path = PathBuf::from(given["path"].as_str().unwrap());
        assert_eq!(fs::read_to_string(path.join(".env")).unwrap(), "TOKEN=1\n");
        assert_eq!(fs::read_to_string(path.join("node_modules/left-pad/index.js")).unwrap(), "pad\n");
        assert!(path.join("node_modules").is_symlink());
        let log = repo.join(format!(".git/toft/workspaces/{}/setup.log", given["id"].as_str().unwrap()));
        let log = fs::read_to_string(log).unwrap();
        assert!(log.contains(".env: copied") && log.contains("a.txt: is there already"), "{log}");
        assert!(log.contains("missing: is not there"), "{log}");
        ports.extend(given["ports"].as_object().unwrap().values().map(|port| port.as_u64().unwrap()));
    }
    fs::write(Path::new(given[0]["path"].as_str().unwrap()).join(".env"), "TOKEN=2\n").unwrap();
    assert_eq!(fs::read_to_string(repo.join(".env")).unwrap(), "TOKEN=1\n", "a copy, not the user's own");
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 6);
    home.toft(&repo, &["ws", "path", "--env", "one"]).says_all(&["export TOFT_PORT_WEB='2", "export TOFT_WORKSPACE='"]);
}

#[test]
fn commands_run_only_after_that_exact_text_was_trusted() {
    let home = Home::new();
    let repo = project(&home, "ports = [\"web\"]\nrun = [\"echo $TOFT_PORT_WEB > built\"]\nready = \"test -s built\"");
    add(&home, &repo, &["Build it"]);
    home.toft(&repo, &["claim", "--ws"]).refuses_all(4, &["nothing is claimed", "toft trust"]);
    home.toft(&repo, &["ws", "create", "--name", "x"]).fails(4);
    home.toft(&repo, &["trust"]).says_all(&["echo $TOFT_PORT_WEB > built", "test -s built"]);
    home.toft(&repo, &["ws", "create", "--name", "x"]).fails(4);
    home.toft(&repo, &["trust", "--yes"]).ok();
    let given = home.toft(&repo, &["claim", "--ws", "--json"]).data()["workspace"].clone();
    let built = fs::read_to_string(Path::new(given["path"].as_str().unwrap()).join("built")).unwrap();
    assert_eq!(built.trim(), given["ports"]["web"].to_string());
    // Another text is another matter, whether it comes with the tree or with a copied repository.
    declare(&repo, "run = [\"touch /tmp/never\"]");
    home.toft(&repo, &["ws", "create", "--name", "y"]).fails(4);
    fs::remove_dir_all(repo.join(".toft")).unwrap();
    // A check that precedes the end of work runs under a runner, too.
    let ran = home.path().join("ran");
    let early = format!("[land]\ncheck = {{ run = \"touch {}\", before = \"done\" }}\n", ran.display());
    fs::write(repo.join(".git/toft/config.toml"), &early).unwrap();
    let work = ["run", "--once", "--", "git", "commit", "-q", "--allow-empty", "-m", "x"];
    home.toft(&repo, &work).refuses_all(4, &["trust"]);
    assert!(!ran.exists());
    fs::write(repo.join(".git/toft/config.toml"), "[workspaces.setup]\nrun = [\"touch /tmp/never\"]\n").unwrap();
    home.toft(&repo, &["ws", "create", "--name", "y"]).fails(4);
    home.toft(&repo, &["ws", "create", "--name", "y", "--plain"]).ok();
    // What the user wrote for themselves is theirs.
    fs::remove_file(repo.join(".git/toft/config.toml")).unwrap();
    home.configure("[workspaces.setup]\nrun = [\"touch mine\"]\n");
    let path = home.toft(&repo, &["ws", "create", "--name", "z", "-q"]).ok();
    assert!(Path::new(path.trim()).join("mine").is_file());
}

#[test]
fn a_setup_that_fails_leaves_nothing_but_its_log() {
    let home = Home::new();
    let repo = project(&home, "run = [\"echo before; exit 3\"]");
    add(&home, &repo, &["Build it"]);
    home.toft(&repo, &["trust", "--yes"]).ok();
    let said = home.toft(&repo, &["claim", "--ws"]).fails(1);
    assert!(said.contains("setup.log") && said.contains("nothing is claimed"), "{said}");
    let log = said.split_whitespace().find(|word| word.contains("setup.log")).unwrap();
    assert!(fs::read_to_string(log).unwrap().contains("before"));
    assert!(home.toft(&repo, &["ready"]).ok().contains("Build it"), "the next one may claim it");
    assert!(home.toft(&repo, &["ws", "list"]).ok().contains("No workspaces"));
    assert!(home.run(&repo, "git", &["branch", "--list", "tf-*"]).is_empty());
    declare(&repo, "run = [\"true\"]");
    home.toft(&repo, &["trust", "--yes"]).ok();
    home.toft(&repo, &["claim", "--ws"]).ok();
    for wrong in ["copy = [\"../../etc/passwd\"]", "link = [\"/etc\"]", "ports = [\"a b\"]", "shell = \"x\""] {
        declare(&repo, wrong);
        home.toft(&repo, &["ready"]).fails(2);
    }
}
