//! Configuration: built-in defaults, then the user's file, the repository's, this clone's, then the caller's values.

mod land;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};
use toft_core::schema::JsonSchema;

use serde::Deserialize;
use toft_core::{
    retention::Retention,
    time::parse_duration,
    verbs::{Policy, workspace::MOST},
    workspace::Keep,
};

use crate::{
    config_file::{ConfigFile, ContainerSection, LandSection, NotifyPlace, NotifyRule, RunAgent},
    error::Error,
    land::{CloseRule, ConfiguredCommands, LandRules, ServerShare},
    recipe::{Recipe, UsageLimit, recipes},
    setup::{Setup, inside},
};

/// Values that a caller may set. Missing ones are determined as on the command line.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The store; found from `dir` if absent.
    pub store: Option<StoreLocation>,
    /// The token for a toft server; `TOFT_TOKEN` or the one that is kept if absent.
    pub token: Option<String>,
    /// The directory to start from; the current directory if absent.
    pub dir: Option<PathBuf>,
    /// The agent; `TOFT_AGENT`, configuration or the user's name if absent.
    pub agent: Option<String>,
    /// How long a lease lasts.
    pub lease_ttl: Option<Duration>,
    /// How long a live but silent process keeps a lease.
    pub lease_cap: Option<Duration>,
    /// This is a short-lived process, such as a command.
    pub brief: bool,
    /// Cover every repository in the store, whatever the directory.
    pub whole_store: bool,
    /// A program calls on behalf of an agent, as an MCP client does: no caller is a person.
    pub served: bool,
    /// Additional ledgers for this process, by name: repositories, or directories.
    pub ledgers: Vec<(String, PathBuf)>,
}

/// The location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// The repository's own, shared by all its worktrees.
    Repo,
    /// One for this worktree only.
    Worktree,
    /// The user's, for work across repositories.
    Global,
    /// An existing file.
    Path(PathBuf),
    /// A file that is created if it does not exist.
    NewPath(PathBuf),
    /// A PostgreSQL server, by URL.
    Server(String),
    /// A toft server, by URL.
    Remote(String),
}

impl StoreLocation {
    /// An existing file.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self::Path(path.into())
    }

    /// A file that is created if it does not exist.
    pub fn new_path(path: impl Into<PathBuf>) -> Self {
        Self::NewPath(path.into())
    }

    /// A store on a PostgreSQL server.
    pub fn server(url: impl Into<String>) -> Self {
        Self::Server(url.into())
    }

    /// Reads `repo`, `worktree`, `global`, a `postgres://` or `https://` URL or a path; `~` is the home directory.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(match text {
            "repo" => Self::Repo,
            "worktree" => Self::Worktree,
            "global" => Self::Global,
            _ if text.starts_with("postgres://") || text.starts_with("postgresql://") => Self::server(text),
            _ if text.starts_with("https://") || text.starts_with("http://") => Self::Remote(text.to_owned()),
            // Also with a slash too few: nobody names a file so, and the text may hold a password.
            _ if text.contains("://") || text.starts_with("postgres:") || text.starts_with("postgresql:") => {
                let scheme = text.split_once(':').map_or(text, |(scheme, _)| scheme);
                return Err(Error::UnknownStore { text: format!("{scheme}:…") });
            }
            _ => Self::Path(expand_home(text)),
        })
    }
}

/// Which names ledgers contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// The author name of git, for every agent.
    #[default]
    Author,
    /// The name of the agent that wrote.
    Agent,
}

/// How ledgers are exchanged.
#[derive(Clone, Debug, Default)]
pub struct SyncRules {
    /// The remote to which the repository's own ledger is sent.
    pub remote: Option<String>,
    /// Name of the remote's branch that contains the ledger of a repository.
    pub branch: Option<String>,
    /// Which names ledgers contain.
    pub names: Names,
    /// Commands sync automatically when the last sync was this long ago.
    pub auto: Option<Duration>,
    /// The share of the repository that a toft server gets.
    pub server: ServerShare,
}

/// How agents are run.
#[derive(Clone, Debug)]
pub struct RunRules {
    /// How agents are started, by name.
    pub agents: Vec<Recipe>,
    /// The command that is started when something waits for a person.
    pub notify: Vec<String>,
    /// What all runs of a day may use.
    pub day_limit: UsageLimit,
    /// What all attempts at one task may use.
    pub task_limit: UsageLimit,
    pub container: ContainerRules,
    /// How many units there are of each capacity on this machine.
    pub capacity: BTreeMap<String, u32>,
}

/// How an agent's container is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRules {
    pub image: Option<String>,
    /// More options.
    pub args: Vec<String>,
}

impl Default for RunRules {
    fn default() -> Self {
        Self {
            agents: recipes(),
            notify: Vec::new(),
            day_limit: UsageLimit::default(),
            task_limit: UsageLimit::default(),
            container: ContainerRules::default(),
            capacity: BTreeMap::new(),
        }
    }
}

/// Whether workspaces share the files of a base through an overlay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverlayMode {
    /// If it works, and a checkout takes long.
    #[default]
    Auto,
    /// If it works.
    Always,
    /// Nowhere.
    Never,
}

/// How workspaces are managed.
#[derive(Clone, Debug)]
pub struct WorkspaceRules {
    /// The directory of all workspaces; each repository has a subdirectory.
    pub root: PathBuf,
    /// Which workspaces are kept when their task ends.
    pub keep: Keep,
    /// Maximum number of workspaces of a repository on this machine.
    pub most: usize,
    /// Maximum size of all workspaces.
    pub max_bytes: Option<u64>,
    /// `gc` deletes older rescues; none if absent.
    pub rescue_max_age: Option<Duration>,
    /// How a new workspace is set up.
    pub setup: Setup,
    /// Whether they share the files of a base.
    pub instant: OverlayMode,
    /// Directories of build artefacts that are shared with the base.
    pub warm: Vec<String>,
}

impl Default for WorkspaceRules {
    fn default() -> Self {
        let root = data_home().join("workspaces");
        Self {
            root,
            keep: Keep::default(),
            most: MOST,
            max_bytes: None,
            rescue_max_age: None,
            setup: Setup::default(),
            instant: OverlayMode::default(),
            warm: Vec::new(),
        }
    }
}

/// The origin of a configuration file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// The user's file.
    User,
    /// The repository's file, which is part of the tree.
    Tree,
    /// This clone's file. A repository that was copied as a whole contains it, so commands in it need trust too.
    Clone,
}

/// The merged configuration, and the files that were read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) store: Option<(StoreLocation, String)>,
    pub(crate) agent: Option<String>,
    pub(crate) policy: Policy,
    pub(crate) retention: Retention,
    pub(crate) workspaces: WorkspaceRules,
    pub(crate) run: RunRules,
    pub(crate) sync: SyncRules,
    pub(crate) verify: ConfiguredCommands,
    pub(crate) land: LandRules,
    pub(crate) files: Vec<PathBuf>,
}

impl Settings {
    /// Reads every layer; later ones override earlier ones. `tree` is the checkout's root, `state` the directory beside
    /// its store.
    pub(crate) fn load(tree: Option<&Path>, state: Option<&Path>) -> Result<Self, Error> {
        Self::layered(&config_home(), tree, state, variable)
    }

    fn layered(
        user: &Path,
        tree: Option<&Path>,
        state: Option<&Path>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let mut settings = Self::default();
        let none = LandSection::default();
        let decided = settings.read(&user.join("config.toml"), From::User, &none)?;
        if let Some(tree) = tree {
            settings.read(&tree.join(".toft").join("config.toml"), From::Tree, &decided)?;
        }
        if let Some(state) = state {
            settings.read(&state.join("config.toml"), From::Clone, &none)?;
        }
        settings.read_environment(variable)?;
        Ok(settings)
    }

    /// Reads a file, and returns what it says of landing. A file in a repository's tree may configure how work is done, but
    /// not where or under which name, and not what the user `decided` of landing.
    fn read(&mut self, path: &Path, from: From, decided: &LandSection) -> Result<LandSection, Error> {
        let (own, trusted) = (from == From::User, from != From::Tree);
        let read = match from {
            From::Tree => read_in_tree(path),
            From::User | From::Clone => fs::read_to_string(path),
        };
        let text = match read {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(LandSection::default()),
            Err(cause) => return Err(Error::Io { doing: "read", path: path.to_owned(), cause }),
        };
        let wrong = |problem: String| Error::Config { path: path.display().to_string(), problem };
        let wrong_value = |key: &str, problem: String| wrong(format!("{key}: {problem}"));
        let span = |key: &str, text: &Option<String>| -> Result<Option<Duration>, Error> {
            text.as_deref().map(parse_duration).transpose().map_err(|problem| wrong_value(key, problem))
        };
        let file: ConfigFile = toml::from_str(&text).map_err(|error| wrong(with_line(&text, &error)))?;
        if trusted {
            if let Some(store) = &file.store {
                let store = StoreLocation::parse(store).map_err(|error| wrong_value("store", error.to_string()))?;
                self.store = Some((store, path.display().to_string()));
            }
            if let Some(root) = &file.workspaces.root {
                self.workspaces.root =
                    workspace_root(root).map_err(|problem| wrong_value("workspaces.root", problem))?;
            }
            let rescue_max_age = span("workspaces.rescue_max_age", &file.workspaces.rescue_max_age)?;
            self.workspaces.rescue_max_age = rescue_max_age.or(self.workspaces.rescue_max_age);
            self.sync.remote = file.sync.remote.clone().or(self.sync.remote.take());
            if let Some(branch) = &file.sync.branch {
                self.sync.branch = Some(branch_name(branch).map_err(|problem| wrong_value("sync.branch", problem))?);
            }
            self.sync.names = file.sync.names.unwrap_or(self.sync.names);
            self.sync.auto = span("sync.auto", &file.sync.auto)?.or(self.sync.auto);
            self.sync.server = file.sync.server.unwrap_or(self.sync.server);
        } else if file.store.is_some()
            || file.workspaces.root.is_some()
            || file.workspaces.rescue_max_age.is_some()
            || file.sync.remote.is_some()
            || file.sync.branch.is_some()
            || file.sync.names.is_some()
            || file.sync.auto.is_some()
            || file.sync.server.is_some()
        {
            return Err(wrong(
                "a configuration file inside the tree may not name a store, a place for workspaces, an age at which rescues are deleted, a remote, its branch, or what a server gets"
                    .into(),
            ));
        }
        self.read_land(&file, from, decided).map_err(wrong)?;
        self.policy.ttl = span("lease.ttl", &file.lease.ttl)?.unwrap_or(self.policy.ttl);
        if let Some(keep) = span("keep", &file.keep)? {
            self.retention = self.retention.clone().keeping_history(keep);
        }
        self.workspaces.keep = file.workspaces.keep.unwrap_or(self.workspaces.keep);
        self.workspaces.most = file.workspaces.most.unwrap_or(self.workspaces.most);
        if let Some(text) = &file.workspaces.max_bytes {
            self.workspaces.max_bytes =
                Some(parse_size(text).map_err(|problem| wrong_value("workspaces.max_bytes", problem))?);
        }
        self.workspaces.instant = file.workspaces.instant.unwrap_or(self.workspaces.instant);
        if let Some(warm) = file.workspaces.warm {
            warm.iter().try_for_each(|path| inside(path)).map_err(|problem| wrong_value("workspaces.warm", problem))?;
            self.workspaces.warm = warm;
        }
        if let Some(setup) = file.workspaces.setup {
            setup.check().map_err(wrong)?;
            self.workspaces.setup = Setup { own, ..setup };
        }
        let ContainerSection { image, args } = file.run.container;
        let starts = !file.run.agents.is_empty() || file.notify.is_some();
        if !own && (starts || image.is_some() || args.is_some()) {
            return Err(wrong("only the user's own configuration may say which commands are started".into()));
        }
        self.run.notify = match file.notify {
            Some(NotifyRule::Command(command)) => command,
            Some(NotifyRule::Named(NotifyPlace::Desktop)) => desktop_notification(),
            None => std::mem::take(&mut self.run.notify),
        };
        let limits = [(&mut self.run.day_limit, file.run.day_cost), (&mut self.run.task_limit, file.run.task_cost)];
        for (limit, cost) in limits {
            if !own && cost.is_some() {
                return Err(wrong("only the user's own configuration may say what runs may use".into()));
            }
            if cost.is_some_and(|cost| !cost.is_finite() || cost < 0.0) {
                return Err(wrong("run: a cost is a number that is not below 0".into()));
            }
            limit.cost = cost.or(limit.cost);
        }
        if !own && !file.capacity.is_empty() {
            return Err(wrong("only the user's own configuration may say what this machine has".into()));
        }
        for (name, count) in file.capacity {
            // It is a file's name and part of a variable's.
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || [b'-', b'_'].contains(&byte);
            if name.is_empty() || !name.bytes().all(plain) {
                return Err(wrong(format!("capacity: `{name}` is not a name of letters, digits, - and _")));
            }
            if count == 0 {
                return Err(wrong(format!("capacity: {name} = 0 would let no task use it; write 1 or more")));
            }
            self.run.capacity.insert(name, count);
        }
        let container = &mut self.run.container;
        container.image = image.or(container.image.take());
        container.args = args.unwrap_or_else(|| std::mem::take(&mut container.args));
        for (name, RunAgent { command, writes, resume }) in file.run.agents {
            self.run.agents.retain(|known| known.name != name);
            self.run.agents.push(Recipe { name, command, writes, resume });
        }
        self.policy.max_attempts = file.retry.max_attempts.unwrap_or(self.policy.max_attempts).max(1);
        self.files.push(path.to_owned());
        Ok(file.land)
    }

    fn read_environment(&mut self, variable: impl Fn(&str) -> Option<String>) -> Result<(), Error> {
        for (name, into) in [
            ("TOFT_LEASE_TTL", &mut self.policy.ttl),
            ("TOFT_LEASE_CAP", &mut self.policy.cap),
            ("TOFT_RETRY_BACKOFF", &mut self.policy.backoff),
        ] {
            if let Some(text) = variable(name) {
                *into = parse_duration(&text).map_err(|problem| Error::Config { path: name.into(), problem })?;
            }
        }
        if variable("TOFT_RETRY_BACKOFF").is_some() {
            self.policy.backoff_max = self.policy.backoff;
        }
        match variable("TOFT_LAND_CLOSE").as_deref() {
            None => {}
            Some("landed") => self.land.close = CloseRule::Landed,
            Some("done") => self.land.close = CloseRule::Done,
            Some(other) => {
                let problem = format!("`{other}` is neither landed nor done");
                return Err(Error::Config { path: "TOFT_LAND_CLOSE".into(), problem });
            }
        }
        if let Some(agent) = variable("TOFT_AGENT") {
            self.agent = Some(agent);
        }
        Ok(())
    }
}

/// The command that shows a notification on the desktop.
fn desktop_notification() -> Vec<String> {
    let words: &[&str] = if cfg!(target_os = "macos") {
        const SCRIPT: [&str; 3] =
            ["on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run"];
        &["osascript", "-e", SCRIPT[0], "-e", SCRIPT[1], "-e", SCRIPT[2], "toft: {id}", "{text}"]
    } else {
        &["notify-send", "--app-name=toft", "--", "toft: {id}", "{text}"]
    };
    words.iter().map(|&word| word.to_owned()).collect()
}

/// What is wrong with a file, with its line and key. Values are left out: one may be a password.
fn with_line(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message.to_owned() };
    let number = before.matches('\n').count();
    let key = text.lines().nth(number).and_then(|line| line.split_once('='));
    let key = key.map(|(key, _)| format!(" (`{}`)", key.trim())).unwrap_or_default();
    format!("line {}{key}: {message}", number + 1)
}

/// An environment variable; an empty one counts as unset.
pub fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The user's home directory.
pub fn home() -> PathBuf {
    variable("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from)
}

pub(crate) fn config_home() -> PathBuf {
    variable("XDG_CONFIG_HOME").map_or_else(|| home().join(".config"), PathBuf::from).join("toft")
}

/// The directory for data of the user that belongs to no repository.
pub fn data_home() -> PathBuf {
    variable("XDG_DATA_HOME").map_or_else(|| home().join(".local").join("share"), PathBuf::from).join("toft")
}

/// The directory for state that belongs to no repository.
pub fn state_home() -> PathBuf {
    variable("XDG_STATE_HOME").map_or_else(|| home().join(".local").join("state"), PathBuf::from).join("toft")
}

/// A branch name that no program misinterprets.
fn branch_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    let part = |part: &str| !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with(".lock");
    match text.chars().all(plain)
        && !text.starts_with("refs/")
        && text.split('/').all(part)
        && !text.contains("..")
        && !text.ends_with('.')
    {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not the name of a branch")),
    }
}

/// A directory for workspaces: an absolute path that no system service cleans up.
fn workspace_root(text: &str) -> Result<PathBuf, String> {
    let root = expand_home(text);
    let passing = env::temp_dir();
    if !root.is_absolute() {
        Err(format!("`{text}` is not an absolute path"))
    } else if root.starts_with(&passing) && !home().starts_with(&passing) {
        Err(format!("{} is tidied up by the system", passing.display()))
    } else {
        Ok(root)
    }
}

/// Reads a number of bytes: `500M`, `20 GB`.
fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == ' ');
    let unit = text[digits.len()..].trim().to_ascii_lowercase();
    let shift = match unit.trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(format!("`{text}` is no size; write 500M or 20G")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("`{text}` is no size; write 500M or 20G"))?;
    number.checked_shl(shift).filter(|size| size >> shift == number).ok_or_else(|| format!("`{text}` is too much"))
}

fn expand_home(text: &str) -> PathBuf {
    match text.strip_prefix('~') {
        Some("") => home(),
        Some(rest) if rest.starts_with('/') => home().join(&rest[1..]),
        _ => PathBuf::from(text),
    }
}

/// Reads a file of a working tree, which may be untrusted: no link is followed.
pub fn read_in_tree(path: &Path) -> std::io::Result<String> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let bytes = toft_ledger::open::read(dir, &name.to_string_lossy())?;
    String::from_utf8(bytes).map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests;
