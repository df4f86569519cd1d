//! Where settings come from, which file may say what, and how a mistake is named.

use super::*;
use crate::config_file::{KeyScope, config_keys};

/// What a configuration file with one key does to the settings.
fn with(name: &str, value: &str, from: From) -> Result<Settings, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.toml");
    let extra = if [".writes", ".resume"].iter().any(|end| name.ends_with(end)) {
        "run.agents.x.command = ['x']\n"
    } else {
        ""
    };
    fs::write(&path, format!("{extra}{} = {value}", name.replace("NAME", "x"))).unwrap();
    let mut settings = Settings::default();
    settings.read(&path, from, &LandSection::default())?;
    settings.files.clear();
    Ok(settings)
}

#[test]
fn the_reference_tells_the_defaults_and_where_a_key_may_be() {
    for key in config_keys() {
        assert!(!key.meaning.is_empty(), "{}", key.name);
        let sample = match key.kind.as_str() {
            "duration" => "'1d'",
            "size" => "'1G'",
            "path" => "'/srv/work'",
            "number" => "7",
            "list of strings" => "['x']",
            "`true` or `false`" => "true",
            _ => "'x'",
        };
        // Of several words, the first.
        let word = key.kind.split('`').nth(1).map(|word| format!("'{}'", word.trim_matches('"')));
        let sample = if sample == "'x'" { word.unwrap_or(sample.to_owned()) } else { sample.to_owned() };
        let value = key.default.as_deref().unwrap_or(&sample);
        let settings = with(&key.name, value, From::User).unwrap_or_else(|error| panic!("{}: {error}", key.name));
        if key.default.is_some() && key.name != "store" {
            assert_eq!(format!("{settings:?}"), format!("{:?}", Settings::default()), "{}", key.name);
        }
        assert_eq!(with(&key.name, value, From::Clone).is_ok(), key.scope != KeyScope::User, "{}", key.name);
        assert_eq!(with(&key.name, value, From::Tree).is_ok(), key.scope == KeyScope::Everywhere, "{}", key.name);
    }
}

#[test]
fn sizes_are_read_as_people_write_them() {
    assert_eq!(parse_size("500M"), Ok(500 << 20));
    assert_eq!(parse_size("20 GB"), Ok(20 << 30));
    assert_eq!(parse_size("7GiB"), Ok(7 << 30));
    assert_eq!(parse_size("12"), Ok(12));
    for wrong in ["", "G", "many", "1.5G", "99999999999T"] {
        assert!(parse_size(wrong).is_err(), "{wrong}");
    }
}

/// A user's directory, a working tree and a clone's state, each with a configuration file if it has a text.
struct ConfigLayers(tempfile::TempDir);

impl ConfigLayers {
    fn new(user: &str, tree: &str, clone: &str) -> Self {
        let layers = Self(tempfile::tempdir().unwrap());
        for (path, text) in layers.paths().iter().zip([user, tree, clone]).filter(|(_, text)| !text.is_empty()) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        layers
    }

    fn paths(&self) -> [PathBuf; 3] {
        ["user/config.toml", "tree/.toft/config.toml", "clone/config.toml"].map(|name| self.0.path().join(name))
    }

    fn load(&self, environment: &[(&str, &str)]) -> Result<Settings, Error> {
        let dir = |name: &str| self.0.path().join(name);
        let variable =
            |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Settings::layered(&dir("user"), Some(&dir("tree")), Some(&dir("clone")), variable)
    }

    fn refused(&self) -> String {
        self.load(&[]).expect_err("it is refused").to_string()
    }
}

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

#[test]
fn later_layers_win_and_leave_alone_what_they_do_not_name() {
    let texts = ["lease.ttl = '1m'", "lease.ttl = '2m'", "lease.ttl = '3m'"];
    for (count, wanted) in [(0, 30), (1, 1), (2, 2), (3, 3)] {
        let text = |n: usize| if n < count { texts[n] } else { "" };
        let layers = ConfigLayers::new(text(0), text(1), text(2));
        let settings = layers.load(&[]).unwrap();
        assert_eq!(settings.policy.ttl, minutes(wanted), "with {count} files");
        assert_eq!(settings.files, layers.paths()[..count], "in the order they were read");
        let settings = layers.load(&[("TOFT_LEASE_TTL", "9m"), ("TOFT_AGENT", "eve")]).unwrap();
        assert_eq!((settings.policy.ttl, settings.agent.as_deref()), (minutes(9), Some("eve")));
    }
    let layers = ConfigLayers::new("store = 'global'", "", "");
    let settings = layers.load(&[]).unwrap();
    let (store, file) = settings.store.unwrap();
    assert_eq!((store, file), (StoreLocation::Global, layers.paths()[0].display().to_string()));
}

#[test]
fn every_optional_key_of_an_earlier_layer_survives_later_ones() {
    let user = "sync.auto = '3m'\nsync.remote = 'up'\nsync.branch = 'plan'\n\
                workspaces.rescue_max_age = '5m'\nworkspaces.max_bytes = '6M'\n\
                workspaces.warm = ['target']\nsync.names = 'agent'\n\
                retry.max_attempts = 0\nrun.agents.claude.command = ['mine']";
    let alone = ConfigLayers::new(user, "", "").load(&[]).unwrap();
    let under = ConfigLayers::new(user, "lease.ttl = '30m'", "lease.ttl = '30m'").load(&[]).unwrap();
    let shown = |settings: &Settings| format!("{:?}", Settings { files: Vec::new(), ..settings.clone() });
    assert_eq!(shown(&alone), shown(&under));
    assert_eq!((alone.sync.auto, alone.workspaces.rescue_max_age), (Some(minutes(3)), Some(minutes(5))));
    assert_eq!(alone.workspaces.max_bytes, Some(6 << 20));
    assert_eq!((alone.sync.remote.as_deref(), alone.sync.branch.as_deref()), (Some("up"), Some("plan")));
    assert_eq!(alone.policy.max_attempts, 1, "nothing is tried less than once");
    let claude: Vec<_> = alone.run.agents.iter().filter(|recipe| recipe.name == "claude").collect();
    assert!(claude.len() == 1 && claude[0].command == ["mine"], "the user's own takes the place of the built-in one");
    assert!(alone.run.agents.len() > 1, "the others stay");
}

#[test]
fn a_check_may_run_before_work_is_done_too() {
    let early = |text: &str| ConfigLayers::new("", "", text).load(&[]).unwrap();
    let both = early("land.check = { run = 'make test', before = 'done' }");
    assert_eq!(
        (both.verify.commands, both.land.check.commands),
        (vec!["make test".to_owned()], vec!["make test".to_owned()])
    );
    let late = early("land.check = { run = ['a', 'b'], before = 'landed' }");
    assert_eq!((late.verify.commands.len(), late.land.check.commands.len()), (0, 2));
    // A later layer replaces both.
    let layers = ConfigLayers::new("land.check = { run = 'a', before = 'done' }", "", "land.check = 'b'");
    let settings = layers.load(&[]).unwrap();
    assert_eq!((settings.verify.commands.len(), settings.land.check.commands), (0, vec!["b".to_owned()]));
}

#[test]
fn a_bad_value_is_named_with_its_file_and_key() {
    let bad = [
        ("lease.ttl = 'soon'", "lease.ttl: `soon` is not a duration"),
        ("[lease]\nttl = '5 parsecs'", "lease.ttl: ` parsecs` is not a unit of time"),
        ("keep = '99999999d'", "keep: `99999999d` is longer than ten years"),
        ("land.timeout = ''", "land.timeout: `` is not a duration"),
        ("keep = '-1s'", "keep: `-1s` is not a duration"),
        ("sync.auto = 'often'", "sync.auto: `often` is not a duration"),
        ("sync.branch = 'a b'", "sync.branch: `a b` is not the name of a branch"),
        ("store = 'mysql://ana:hunter22@db/x'", "store: `mysql:…` is not a store"),
        ("workspaces.root = 'here'", "workspaces.root: `here` is not an absolute path"),
        ("workspaces.rescue_max_age = 'old'", "workspaces.rescue_max_age: `old` is not a duration"),
        ("workspaces.max_bytes = 'much'", "workspaces.max_bytes: `much` is no size"),
        ("workspaces.warm = ['../target']", "workspaces.warm: `../target` is not a path inside the checkout"),
        ("[workspaces.setup]\ncopy = ['/etc']", "workspaces.setup.copy: `/etc` is not a path inside the checkout"),
        ("[workspaces.setup]\nlink = ['.git']", "workspaces.setup.link: `.git` is not a path inside the checkout"),
        ("[workspaces.setup]\nports = ['a b']", "workspaces.setup.ports: `a b` is no name for a variable"),
        ("# mine\n[lease]\nttl = 7", "line 3 (`ttl`): invalid type: integer `7`"),
        ("workspaces.keep = 'sometimes'", "line 1 (`workspaces.keep`): unknown variant `sometimes`"),
        ("workspaces.most = -1", "line 1 (`workspaces.most`): "),
        ("lease.tll = '1m'", "line 1 (`lease.tll`): unknown field `tll`"),
        ("keep = '1d'\ncolour = 'red'", "line 2 (`colour`): unknown field `colour`"),
        ("[leases]\nttl = '1m'", "line 1: unknown field `leases`"),
        ("run.agents.x.shell = 'sh'", "line 1 (`run.agents.x.shell`): unknown field `shell`"),
        ("store = ", "line 1 (`store`): "),
        ("lease", "line 1: "),
    ];
    for (text, problem) in bad {
        let layers = ConfigLayers::new(text, "", "");
        let said = layers.refused();
        assert_eq!(
            said.strip_prefix(&format!("{}: ", layers.paths()[0].display())).map(|rest| rest.starts_with(problem)),
            Some(true),
            "{text}\n{said}"
        );
        assert!(!said.contains("hunter22"), "{said}");
    }
    for name in ["TOFT_LEASE_TTL", "TOFT_LEASE_CAP", "TOFT_RETRY_BACKOFF"] {
        let refused = ConfigLayers::new("", "", "").load(&[(name, "soon")]).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{name}: `soon` is not a duration")), "{refused}");
    }
}

#[test]
fn a_repositorys_file_says_neither_where_nor_as_whom_nor_what_is_run() {
    for text in [
        "store = 'global'",
        "sync.server = 'all'",
        "workspaces.root = '/srv'",
        "workspaces.rescue_max_age = '1d'",
        "sync.remote = 'evil'",
        "sync.branch = 'evil'",
        "sync.names = 'agent'",
        "sync.auto = '1m'",
        "run.agents.claude.command = ['evil']",
    ] {
        let layers = ConfigLayers::new("", text, "");
        let said = layers.refused();
        assert!(said.starts_with(&layers.paths()[1].display().to_string()), "{text}: {said}");
    }
    // Commands of a tree or a clone need trust; the user's own do not.
    let commands = "workspaces.setup.run = ['make']";
    for (user, tree, clone, own) in [(commands, "", "", true), ("", commands, "", false), ("", "", commands, false)] {
        let setup = ConfigLayers::new(user, tree, clone).load(&[]).unwrap().workspaces.setup;
        assert_eq!((setup.commands(), setup.own), (vec!["make".to_owned()], own));
    }
    // What a tree says takes the place of the user's, and its trust with it.
    assert!(!ConfigLayers::new(commands, commands, "").load(&[]).unwrap().workspaces.setup.own);
}

#[cfg(unix)]
#[test]
fn a_repositorys_file_is_read_only_if_it_is_a_plain_file() {
    let layers = ConfigLayers::new("", "lease.ttl = '1m'", "");
    let path = &layers.paths()[1];
    let elsewhere = layers.0.path().join("elsewhere.toml");
    fs::rename(path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, path).unwrap();
    assert!(layers.load(&[]).is_err(), "no link is followed out of a tree");
    fs::remove_file(path).unwrap();
    fs::write(path, b"store = '\xff'").unwrap();
    assert!(layers.refused().contains("UTF-8"));
    // The user's own may be a link, as dotfiles are.
    let layers = ConfigLayers::new("lease.ttl = '1m'", "", "");
    let path = &layers.paths()[0];
    let elsewhere = layers.0.path().join("dotfile.toml");
    fs::rename(path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, path).unwrap();
    assert_eq!(layers.load(&[]).unwrap().policy.ttl, minutes(1));
}

#[test]
fn a_store_is_named_by_word_url_or_path_and_passwords_are_not_repeated() {
    for (text, wanted) in [
        ("repo", StoreLocation::Repo),
        ("worktree", StoreLocation::Worktree),
        ("global", StoreLocation::Global),
        ("postgres://db/x", StoreLocation::server("postgres://db/x")),
        ("postgresql://db/x", StoreLocation::server("postgresql://db/x")),
        ("a/b.db", StoreLocation::path("a/b.db")),
        ("~other/b.db", StoreLocation::path("~other/b.db")),
        ("~/b.db", StoreLocation::Path(home().join("b.db"))),
    ] {
        assert_eq!(StoreLocation::parse(text).unwrap(), wanted, "{text}");
    }
    for wrong in ["mysql://ana:hunter22@db", "postgres:/ana:hunter22@db", "postgresql:ana:hunter22@db"] {
        let said = StoreLocation::parse(wrong).unwrap_err().to_string();
        assert!(!said.contains("hunter22"), "{said}");
    }
}

#[test]
fn names_of_branches_mean_nothing_else_to_any_program() {
    for good in ["toft", "team/plan", "v1.2", "a-b_c"] {
        assert_eq!(branch_name(good).as_deref(), Ok(good));
    }
    for bad in ["", "-x", "a/-x", "a b", "a..b", "a/", "/a", "a//b", ".a", "a.lock", "a.", "a:b", "a~1", "@{0}", "ä"] {
        assert!(branch_name(bad).is_err(), "{bad}");
    }
}
