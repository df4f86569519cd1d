//! Locates ledgers.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toft_core::{
    issue::route::{OWN, ProjectRole, Route, Routing},
    refusal::Refusal,
    verbs::workspace::Show,
};
use toft_ledger::{clock::Replica, open};
use toft_session::{
    config::{data_home, state_home},
    error::{Error, io},
    session::{Session, random_ids},
};
use toft_store::private;
use toft_vcs::{
    Checkout, ID_FILE, MAIN, Vcs,
    exchange::{self, Fingerprint},
};

use super::known::{Also, Carried, check_name, know, known};
use crate::Ledgers;

/// Maximum number of nested workspaces between a checkout and the one from which its work was claimed.
const DEEPEST: usize = 8;

/// The kind of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerKind {
    /// Beside the repository: nothing in the working tree, one for all worktrees.
    Branch,
    /// In the working tree, under its VCS.
    Tree,
    /// In a repository of its own, for the private plans of one person for any repository.
    Planning,
    /// Any other directory.
    Shared,
}

impl LedgerKind {
    /// The name that users see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Branch => "branch",
            Self::Tree => "tree",
            Self::Planning => "planning",
            Self::Shared => "shared",
        }
    }
}

/// One ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ledger {
    pub name: String,
    /// Its kind.
    pub place: LedgerKind,
    /// Its directory.
    pub dir: PathBuf,
    pub read_only: bool,
    /// The default ledger of new issues.
    pub first: bool,
    /// Others maintain it: local writes are not sent.
    pub kept_by_others: bool,
    /// The repository whose own ledger it is, if that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<PathBuf>,
    /// The remote of which it is a local copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Why it cannot be read now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// How the other repository keeps it.
    #[serde(skip)]
    pub(super) elsewhere: Option<LedgerElsewhere>,
    /// The lock file of its writers.
    #[serde(skip)]
    pub(super) lock: PathBuf,
}

/// A ledger that another repository keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LedgerElsewhere {
    pub(super) checkout: Checkout,
    pub(super) place: LedgerKind,
}

/// The directory in a working tree.
pub(super) const IN_TREE: &str = ".toft";
pub(super) const ISSUES: &str = "issues.jsonl";
pub(super) const ARCHIVE: &str = "archive";

impl Ledger {
    /// The repository's own ledger.
    fn own(place: LedgerKind, dir: PathBuf, state: &Path) -> Self {
        let name = place.as_str().to_owned();
        let lock = state.join("locks").join(format!("{name}.lock"));
        Self {
            name,
            place,
            dir,
            read_only: false,
            first: false,
            kept_by_others: false,
            of: None,
            url: None,
            problem: None,
            routes: Vec::new(),
            elsewhere: None,
            lock,
        }
    }

    /// The own ledger of a repository: in its working tree, or beside it.
    fn of_repository(checkout: &Checkout) -> Self {
        let (state, tree) = (checkout.state_dir(), checkout.root.join(IN_TREE));
        let in_tree = !matches!(checkout.vcs, Vcs::Git | Vcs::Jj) || tree.join(ISSUES).exists();
        match in_tree {
            true => Self::own(LedgerKind::Tree, tree, &state),
            false => Self::own(LedgerKind::Branch, state.join("ledger"), &state),
        }
    }

    /// A ledger that several repositories may write to, with the same lock.
    pub(super) fn also(Also { name, place, dir, read_only, repository, url }: Also) -> Self {
        let problem = match repository.then(|| real_ledger(&dir)) {
            Some(Ok(found)) => {
                let of = Some(dir).filter(|_| url.is_none());
                return Self { name, place, read_only, of, url, ..found };
            }
            Some(Err(error)) => Some(error.to_string()),
            None => None,
        };
        let print = blake3::hash(dir.as_os_str().as_encoded_bytes()).to_hex();
        let lock = state_home().join("locks").join(format!("{}.lock", &print[..16]));
        Self { name, read_only, url, problem, lock, ..Self::own(place, dir, Path::new("")) }
    }

    /// Refuses a ledger that is missing now: nothing is read or created in its place. A disk that is not mounted must
    /// not look like an empty ledger.
    pub(super) fn check_there(&self) -> Result<(), Error> {
        let gone = |path: &Path, why: &str| {
            let cause = std::io::Error::new(std::io::ErrorKind::NotFound, why.to_owned());
            Err(Error::Io { doing: "find", path: path.to_owned(), cause })
        };
        if let Some(problem) = &self.problem {
            return gone(&self.dir, problem);
        }
        let shared = matches!(self.place, LedgerKind::Planning | LedgerKind::Shared) && self.elsewhere.is_none();
        if shared && !self.dir.is_dir() {
            return gone(&self.dir, "the directory is gone");
        }
        let path = self.issues();
        match fs::metadata(&path) {
            Ok(seen) if !seen.is_file() => {
                let cause = std::io::Error::other("it is not a regular file");
                Err(Error::Io { doing: "read", path, cause })
            }
            _ => Ok(()),
        }
    }

    /// The main file.
    pub fn issues(&self) -> PathBuf {
        self.dir.join(ISSUES)
    }

    /// Refuses a ledger that cannot be written now, as far as this can be known before a claim: it is read-only, its
    /// file or directory is not writable, or the disk is full.
    pub(super) fn check_writable(&self) -> Result<(), Error> {
        if self.read_only {
            let problem = format!("`{}` is read and never written here", self.name);
            return Err(Refusal::Invalid { field: "ledger".into(), problem }.into());
        }
        self.check_there()?;
        let path = self.issues();
        open::refuse_links(&self.dir, ISSUES).map_err(io("write", &path))?;
        match fs::OpenOptions::new().append(true).open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            opened => drop(opened.map_err(io("write", &path))?),
        }
        check_room(&self.dir).map_err(io("write", &path))
    }

    /// Every file of it, by its path within the ledger; the main file first.
    pub(super) fn files(&self) -> Result<Vec<String>, Error> {
        let mut files = vec![ISSUES.to_owned()];
        let archive = self.dir.join(ARCHIVE);
        let plain = |name: &str| open::refuse_links(&self.dir, name).map_err(io("read", &self.dir));
        plain(ISSUES)?;
        if !open::refuse_links_below(&self.dir, &format!("{ARCHIVE}/")).map_err(io("read", &self.dir))? {
            return Ok(files);
        }
        let found = match fs::read_dir(&archive) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
            Err(cause) => return Err(Error::Io { doing: "read", path: archive, cause }),
        };
        for entry in found {
            let name = entry.map_err(io("read", &archive))?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".jsonl") {
                plain(&format!("{ARCHIVE}/{name}"))?;
                files.push(format!("{ARCHIVE}/{name}"));
            }
        }
        files[1..].sort();
        Ok(files)
    }

    /// The content of one of its files; none if the file does not exist.
    pub(super) fn read(&self, file: &str) -> Result<Option<Vec<u8>>, Error> {
        match open::read(&self.dir, file) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(Error::Io { doing: "read", path: self.dir.join(file), cause }),
        }
    }
}

/// The ledgers of a checkout.
pub(super) struct SeenLedgers {
    /// Ledgers; the default for new issues is the first.
    pub(super) ledgers: Vec<Ledger>,
    pub(super) contributor: bool,
    pub(super) upstream: Option<String>,
    pub(super) routing: Routing,
}

/// The ledgers of a checkout. `home` is the checkout whose own ledger is used: in a workspace, the one from which the
/// work was claimed.
pub(super) fn ledgers(session: &Session, home: &Checkout) -> Result<SeenLedgers, Error> {
    let own = Ledger::of_repository(home);
    let mut known = known(&home.state_dir())?;
    match Carried::in_tree(&home.root) {
        Ok(Some(list)) if list.trusted(&Ledgers::of(session).repository_id()) => {
            known.join(list.parse(&home.main_root())?);
        }
        Ok(Some(list)) => session
            .note(format!("{} names ledgers that you have not trusted; `toft trust` shows them", list.path.display())),
        Ok(None) => {}
        // Whatever a tree has in its place, work goes on without it.
        Err(error) => session.note(format!("the list of ledgers is not read: {error}")),
    }
    for (name, dir) in &session.located().ledgers {
        check_name(name).map_err(|problem| Refusal::Invalid { field: "name".into(), problem })?;
        let repository = !dir.join(ISSUES).exists() && is_initialised(dir);
        let (name, dir) = (name.clone(), dir.clone());
        known.also.retain(|also| also.name != name);
        known.also.push(Also { name, place: LedgerKind::Shared, dir, read_only: false, repository, url: None });
    }
    let own_name = own.name.clone();
    let mut ledgers: Vec<Ledger> = std::iter::once(own).chain(known.also.into_iter().map(Ledger::also)).collect();
    let named = |name: String| if name == OWN { own_name.clone() } else { name };
    let mut routing = Routing {
        routes: known.routes,
        mode: known.mode.unwrap_or_default(),
        role: if known.contributor { ProjectRole::Contributor } else { ProjectRole::Maintainer },
        default: known.default.map(&named),
    };
    for route in &mut routing.routes {
        route.ledger = named(std::mem::take(&mut route.ledger));
    }
    for ledger in &mut ledgers {
        ledger.routes = routing.routes.iter().filter(|route| route.ledger == ledger.name).cloned().collect();
    }
    if known.contributor {
        ledgers[0].kept_by_others = true;
        let planned = |route: &Route| route.role == Some(ProjectRole::Contributor);
        if let Some(planning) = ledgers.iter().find(|ledger| ledger.place == LedgerKind::Planning)
            && !routing.routes.iter().any(planned)
        {
            let ledger = planning.name.clone();
            routing.routes.push(Route { role: Some(ProjectRole::Contributor), ledger, ..Route::default() });
        }
        // Whatever else is said, a private plan does not fall back to the project's own ledger.
        ledgers.sort_by_key(|ledger| ledger.place != LedgerKind::Planning);
    }
    if let Some(usual) = routing.usual() {
        ledgers.sort_by_key(|ledger| ledger.name != usual);
    }
    ledgers[0].first = true;
    Ok(SeenLedgers { ledgers, contributor: known.contributor, upstream: known.upstream, routing })
}

/// Whether a directory is the root of a repository in which toft is set up, according to its files.
pub(super) fn is_initialised(dir: &Path) -> bool {
    let Ok(Some(checkout)) = toft_vcs::find(dir) else { return false };
    let root = fs::canonicalize(dir).is_ok_and(|dir| dir == checkout.root);
    let state = checkout.state_dir();
    let set_up = || state.join(ID_FILE).exists() || state.join("ledger").exists();
    root && (checkout.root.join(IN_TREE).join(ISSUES).exists() || set_up())
}

/// The ledger that another repository uses: its default for new issues unless that is private, otherwise its own.
fn real_ledger(dir: &Path) -> Result<Ledger, Error> {
    let checkout = toft_vcs::find(dir)?.ok_or_else(|| Error::NoRepository { dir: dir.to_owned() })?;
    let known = known(&checkout.state_dir())?;
    let default = known.default.filter(|_| !known.contributor);
    let other = default.and_then(|name| known.also.into_iter().find(|also| also.name == name && !also.repository));
    if let Some(other) = other {
        return Ok(Ledger::also(other));
    }
    let own = Ledger::of_repository(&checkout);
    Ok(Ledger { elsewhere: Some(LedgerElsewhere { place: own.place, checkout }), ..own })
}

/// Settings for planning in private.
#[derive(Clone, Debug, Default)]
pub struct PrivatePlanning {
    /// The repository for private plans, of any kind; toft's own if absent.
    pub dir: Option<PathBuf>,
    /// The remote with the project's own ledger; if absent, `upstream` if it exists.
    pub upstream: Option<String>,
}

impl PrivatePlanning {
    /// Makes a private ledger, with a part for each project, the default for new issues. Returns its directory.
    pub(crate) fn begin(&self, checkout: &Checkout, repository: &str) -> Result<PathBuf, Error> {
        let remotes = remotes(checkout)?;
        if let Some(named) = self.upstream.as_ref().filter(|named| !remotes.contains(named)) {
            return Err(Refusal::NotFound { what: "remote".into(), text: named.clone() }.into());
        }
        let upstream = self.upstream.clone().or_else(|| remotes.into_iter().find(|name| name == UPSTREAM));
        let home = match &self.dir {
            Some(dir) => std::path::absolute(dir).map_err(io("find", dir))?,
            None => data_home().join("planning"),
        };
        private::create_dir_all(&home).map_err(io("make", &home))?;
        refuse_inside(checkout, &home)?;
        // Every clone of a project has the same first commit, so that its part is the same wherever it is planned,
        // whatever the clone is called.
        let print = match exchange::fingerprint(checkout)? {
            Some(Fingerprint::Commit(commit)) => commit,
            Some(Fingerprint::Address(address)) => blake3::hash(address.as_bytes()).to_hex().to_string(),
            None => repository.to_owned(),
        };
        let print = &print[..print.len().min(10)];
        let entries = fs::read_dir(&home).map_err(io("read", &home))?.flatten();
        let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let known = names.find(|name| name.ends_with(&format!("-{print}")));
        let part = home.join(known.unwrap_or_else(|| format!("{}-{print}", checkout.name())));
        private::create_dir_all(&part).map_err(io("make", &part))?;
        if self.dir.is_none() {
            exchange::make_repository(&home)?;
        }
        let dir = fs::canonicalize(&part).map_err(io("find", &part))?;
        let mut place = dir.clone();
        know(&checkout.state_dir(), |known| {
            known.contributor = true;
            known.upstream = upstream;
            let name = LedgerKind::Planning.as_str().to_owned();
            match known.also.iter_mut().find(|also| also.place == LedgerKind::Planning) {
                // Plans that were begun elsewhere stay in sight unless somebody says where they are now.
                Some(also) if self.dir.is_none() => place.clone_from(&also.dir),
                Some(also) => {
                    // The index knows files of the other place: here they begin empty, and are not gone.
                    let first = dir.join(ISSUES);
                    if !first.exists() {
                        private::create(&first).map_err(io("make", &first))?;
                    }
                    also.dir = dir;
                }
                None => known.also.push(Also {
                    name,
                    place: LedgerKind::Planning,
                    dir,
                    read_only: false,
                    repository: false,
                    url: None,
                }),
            }
            Ok(())
        })?;
        Ok(place)
    }
}

/// Refuses a ledger inside a project's own repository, with which it would be published.
pub(super) fn refuse_inside(checkout: &Checkout, dir: &Path) -> Result<(), Error> {
    match toft_vcs::find(dir)? {
        Some(around) if around.common_dir == checkout.common_dir && checkout.vcs != Vcs::None => {
            let problem =
                format!("{} is in this very project; such a ledger needs a place outside of it", dir.display());
            Err(Refusal::Invalid { field: "ledger".into(), problem }.into())
        }
        _ => Ok(()),
    }
}

/// A fork's name for the remote of its original project.
const UPSTREAM: &str = "upstream";

/// Makes the repository's own ledger the default for new issues; private plans stay visible.
pub(crate) fn plan_in_public(checkout: &Checkout) -> Result<(), Error> {
    know(&checkout.state_dir(), |known| {
        (known.contributor, known.upstream) = (false, None);
        Ok(())
    })
}

fn remotes(checkout: &Checkout) -> Result<Vec<String>, Error> {
    Ok(exchange::remotes(checkout)?)
}

/// Whether a remote is known to have issues that were never fetched.
pub fn waiting(checkout: &Checkout) -> Result<bool, Error> {
    Ok(!checkout.state_dir().join("ledger").exists() && exchange::ledger_seen(checkout)?)
}

/// Whether the remotes suggest that the user contributes to a project of others, and this is not configured yet.
pub fn hint(checkout: &Checkout) -> Result<bool, Error> {
    Ok(!known(&checkout.state_dir())?.contributor && remotes(checkout)?.iter().any(|name| name == UPSTREAM))
}

/// Creates an empty ledger in the working tree, unless there is one.
pub(crate) fn make_tree_ledger(checkout: &Checkout) -> Result<(), Error> {
    let dir = checkout.root.join(IN_TREE);
    fs::create_dir_all(&dir).map_err(io("make", &dir))?;
    let path = dir.join(ISSUES);
    fs::OpenOptions::new().create(true).append(true).open(&path).map_err(io("make", &path))?;
    // git need not ask anybody about two lines at one place.
    let attributes = dir.join(".gitattributes");
    match checkout.vcs {
        Vcs::Git | Vcs::Jj if !attributes.exists() => {
            fs::write(&attributes, "*.jsonl merge=union\n").map_err(io("write", &attributes))
        }
        _ => Ok(()),
    }
}

/// Is there room to write in a directory?
fn check_room(dir: &Path) -> std::io::Result<()> {
    match nix::sys::statvfs::statvfs(dir) {
        // Some file systems do not count.
        Ok(seen) if seen.blocks() == 0 => Ok(()),
        // Room for some lines: a block has 4 KiB on most file systems.
        Ok(seen) if seen.blocks_available() < 16 => Err(std::io::ErrorKind::StorageFull.into()),
        // Whatever cannot be asked is found out when it is written.
        _ => Ok(()),
    }
}

/// This clone's name in clocks, made once.
pub(super) fn replica(state: &Path) -> Result<Replica, Error> {
    let path = state.join("replica");
    let read = || fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    if let Some(known) = read() {
        return Ok(known);
    }
    let name = random_ids().word()[..6].to_owned();
    let draft = state.join(format!("replica.{name}"));
    private::create_dir_all(state).map_err(io("make", state))?;
    private::write(&draft, format!("{name}\n")).map_err(io("write", &draft))?;
    // Two that make it at once agree on the first.
    let linked = fs::hard_link(&draft, &path);
    fs::remove_file(&draft).map_err(io("tidy", &draft))?;
    match read() {
        Some(known) => Ok(known),
        None => Err(Error::Io {
            doing: "read",
            path,
            cause: linked.err().unwrap_or_else(|| std::io::Error::other("it is empty")),
        }),
    }
}

impl<'s> Ledgers<'s> {
    fn checkout(self) -> Result<&'s Checkout, Error> {
        let nowhere = || Error::NoRepository { dir: PathBuf::from(".") };
        self.session.located().checkout.as_ref().ok_or_else(nowhere)
    }

    /// The checkout whose ledger is used here: in a workspace, the one from which its work was claimed, through any
    /// number of workspaces in between. Changes of an agent in its workspace are visible there immediately, and its
    /// branch contains none of them.
    pub(crate) fn ledger_home(self) -> Result<&'s Checkout, Error> {
        let checkout = self.checkout()?;
        if checkout.worktree == MAIN {
            return Ok(checkout);
        }
        let home = self.session.ledger_home();
        if home.get().is_none() {
            let found = self.claimed_from(checkout)?;
            home.get_or_init(|| found);
        }
        Ok(home.get().and_then(Option::as_ref).unwrap_or(checkout))
    }

    fn claimed_from(&self, checkout: &Checkout) -> Result<Option<Checkout>, Error> {
        let mut at = checkout.root.display().to_string();
        for _ in 0..DEEPEST {
            let row = match self.run(&self.located().agent, None, Show { id: at.clone() }) {
                Ok(found) => found.workspace,
                Err(Error::Refused(_)) => break,
                Err(error) => return Err(error),
            };
            if !row.state.live() || row.task.is_none() || row.path != at || row.source == at {
                break;
            }
            at = row.source;
        }
        let home = toft_vcs::find(Path::new(&at)).ok().flatten();
        let home = home.filter(|home| home.root != checkout.root && home.common_dir == checkout.common_dir);
        Ok(home.map(|home| Checkout { state: checkout.state.clone(), ..home }))
    }

    /// Keeps issues in the working tree from now on, where they are reviewed and committed like code.
    pub fn keep_issues_in_tree(&self) -> Result<(), Error> {
        make_tree_ledger(self.checkout()?)
    }

    /// Makes a private ledger, which is not part of the repository, the default for new issues. Returns its directory.
    pub fn plan_in_private(&self, how: &PrivatePlanning) -> Result<PathBuf, Error> {
        let repository = self.located().repository.as_ref().map(ToString::to_string).unwrap_or_default();
        how.begin(self.checkout()?, &repository)
    }

    /// Makes the repository's own ledger the default for new issues again.
    pub fn plan_in_public(&self) -> Result<(), Error> {
        plan_in_public(self.checkout()?)
    }
}
