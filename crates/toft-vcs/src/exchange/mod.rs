//! Exchanges a ledger's files with other clones, through any version control.
//!
//! Every implementation has the same steps: [`Exchange::fetch`] fetches what the remote has, [`Exchange::record`] commits
//! our files together with it, [`Exchange::send`] pushes. Nothing here interprets the files: the caller merges them.
//!
//! [`Branch`] is a ledger that no commit of the user holds, under git or Jujutsu; Mercurial and Sapling commit one in a
//! repository of its own. [`Tree`] is a ledger among the user's own files: only the remote's copy is fetched.

mod author;
mod branch;
mod content;
mod hg;
mod history;
mod ledger_repository;
mod owned;
mod patch;
pub(crate) mod refs;
mod rewrite;
mod tag;
mod tree;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use thiserror::Error;

pub(crate) use self::{author::anonymous, refs::ancestor};
pub use self::{
    author::{author, author_email},
    branch::{Branch, Proposal},
    history::{Changed, History, Outgoing, Range, outgoing, told},
    ledger_repository::LEDGER_BRANCH,
    tag::tag_text,
    tree::{Tree, committed},
};
use crate::{Checkout, FindError, RunError, Vcs, lock::io, workspace::WorkspaceError};

/// The main file; others are archives.
const ISSUES: &str = "issues.jsonl";
const ARCHIVE: &str = "archive";
/// The remote of a ledger, and the time limit.
#[derive(Clone, Copy, Debug)]
pub struct Contact<'r> {
    /// The remote, if one was named.
    pub remote: Option<&'r str>,
    /// Name of the remote's branch that contains the ledger beside a repository; [`LEDGER_BRANCH`] unless configured.
    pub branch: Option<&'r str>,
    /// Time limit for an answer of the remote.
    pub patience: Duration,
    /// Nothing of the user's is changed.
    pub dry_run: bool,
}

impl<'r> Contact<'r> {
    /// Contact with `remote` on the default ledger branch, with a timeout of one minute.
    pub fn to(remote: Option<&'r str>) -> Self {
        Self { remote, branch: None, patience: Duration::from_secs(60), dry_run: false }
    }
}

/// A ledger's files, by their name within it.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The state of the remote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// An id of exactly this state; none while it is empty.
    pub tip: Option<String>,
    /// Its history is not a continuation of the previous one.
    pub rewritten: bool,
}

/// The result of sending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was sent.
    Done,
    /// The remote had it already.
    Same,
    /// Another clone pushed first; holds the error message. Fetch and try again.
    LostRace(String),
}

/// Why an exchange failed.
#[derive(Debug, Error)]
pub enum ExchangeError {
    /// The remote cannot be reached.
    #[error("{remote} cannot be reached: {said}")]
    Offline {
        remote: String,
        /// The error message.
        said: String,
    },
    /// There is no repository where the remote's URL points.
    #[error("no repository found at {remote}: {said}")]
    NotFound {
        remote: String,
        /// The error message.
        said: String,
    },
    /// The remote denied access.
    #[error("{remote} denied access: {said}")]
    Denied {
        remote: String,
        /// The error message.
        said: String,
    },
    /// The remote rejected the push.
    #[error("{remote} rejected the push: {said}")]
    Protected {
        remote: String,
        /// The error message.
        said: String,
    },
    /// toft refuses to continue; the text is the reason: other files on the branch, an unknown remote, a shallow clone.
    #[error("{0}")]
    Conflict(String),
    /// A local error.
    #[error(transparent)]
    Failed(#[from] WorkspaceError),
}

impl From<RunError> for ExchangeError {
    fn from(error: RunError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<FindError> for ExchangeError {
    fn from(error: FindError) -> Self {
        Self::Failed(error.into())
    }
}

/// One way to exchange a ledger. No method has a default: a new way answers each, above all what it would publish.
pub trait Exchange {
    /// The remote, if there is one.
    fn remote(&self) -> Option<&str>;

    /// Fetches the state of the remote.
    fn fetch(&mut self) -> Result<Fetched, ExchangeError>;

    /// The files of the remote, as fetched.
    fn theirs(&mut self) -> Result<Files, ExchangeError>;

    /// Commits our files together with the fetched ones. Returns whether there was anything to commit.
    fn record(&mut self, message: &str) -> Result<bool, ExchangeError>;

    /// Sends the recorded commits.
    fn send(&mut self) -> Result<Sent, ExchangeError>;

    /// The last known state of the remote.
    fn seen(&self) -> Option<&str>;

    /// Commits that were not made by toft and that a send would publish: one line each.
    fn foreign_commits(&mut self) -> Result<Vec<String>, ExchangeError>;

    /// Whether sending leaves out commits that were never sent, and publishes the current content only. Otherwise
    /// nothing is recorded before it can be sent.
    fn squashes(&self) -> bool;

    /// Lines of recorded commits that a send would publish; empty if commits are squashed.
    fn unsent_lines(&mut self) -> Result<Vec<String>, ExchangeError>;

    /// Removes lines from the whole history. The next [`Exchange::send`] replaces the remote's history, if it is still
    /// as fetched. Returns the number of changed commits.
    fn purge(&mut self, keep: &dyn Fn(&[u8]) -> bool) -> Result<usize, ExchangeError>;

    /// Branches other than the ledger's own whose history contains this text.
    fn also_in(&self, text: &str) -> Result<Vec<String>, ExchangeError>;

    /// The files of the first parent of a new commit; `None` if they are unknown.
    fn before(&mut self) -> Result<Option<Files>, ExchangeError>;

    /// Takes what became of the ledger's repositories and branches, for the user.
    fn take_notes(&mut self) -> Vec<String>;

    /// Packs recorded and fetched objects if there are enough of them.
    fn tidy(&self);

    /// Deletes recorded content that no commit of the ledger has any more, as after a purge.
    fn forget_unreachable(&self) -> Result<(), ExchangeError>;

    /// Issues that branches of the remote propose.
    fn offered(&self) -> Result<Vec<Proposal>, ExchangeError>;
}

/// The error for a ledger whose history cannot be rewritten.
fn no_purge() -> ExchangeError {
    ExchangeError::Conflict(
        "toft rewrites the history of ledgers under git only; rewriting this one is up to you".to_owned(),
    )
}

/// How a ledger in a directory of its own is exchanged.
pub enum DirectoryExchange {
    /// The repository belongs to the ledger: it is committed and sent.
    Exclusive(Box<dyn Exchange>),
    /// The repository contains other files, or is a parent directory: it is read, and nothing is committed or sent.
    /// With the reason.
    Shared(Box<Tree>, String),
}

/// The exchange of a ledger in `dir`; none without version control. `parts` means that the repository of a ledger may
/// be its parent directory.
pub fn of_directory(dir: &Path, parts: bool, reach: Contact<'_>) -> Result<Option<DirectoryExchange>, ExchangeError> {
    let Some(checkout) = crate::find(dir)? else { return Ok(None) };
    let site = Site::new(checkout, dir)?;
    if let Some(why) = owned::shared_with(&site, parts)? {
        return Ok(Some(DirectoryExchange::Shared(Box::new(Tree::open(&site.checkout, dir, reach)?), why)));
    }
    Ok(match site.checkout.vcs {
        Vcs::Git | Vcs::Jj => Branch::open_own(&site, prefix_on_branch(&site, parts), reach)?
            .map(|branch| DirectoryExchange::Exclusive(Box::new(branch))),
        Vcs::Hg | Vcs::Sl => Some(DirectoryExchange::Exclusive(Box::new(hg::OwnHg::open(site, reach)?))),
        Vcs::None => None,
    })
}

/// The place of a ledger's files on its branch. Of a part it is the fingerprint of its project alone: each clone may
/// call the project something else.
fn prefix_on_branch(site: &Site, parts: bool) -> String {
    match site.prefix.rsplit_once('-') {
        Some((_, print)) if parts => print.to_owned(),
        _ => site.prefix.clone(),
    }
}

/// Creates a git repository for ledgers in `dir`, unless it is the top of one. A repository of a parent directory
/// belongs to other files.
pub fn make_repository(dir: &Path) -> Result<(), ExchangeError> {
    let here = fs::canonicalize(dir).map_err(io("find", dir))?;
    if crate::find(&here)?.is_some_and(|found| found.root == here) {
        return Ok(());
    }
    match crate::git_run::Git::outside(dir).run(["init", "--quiet", "--initial-branch=main"]) {
        Ok(run) => Ok(run.ok().map(drop)?),
        // Without git, the ledger is not versioned.
        Err(RunError::Missing(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Creates a bare git repository whose remote is `url`, unless it exists. Nothing is fetched.
pub fn make_copy(dir: &Path, url: &str) -> Result<(), ExchangeError> {
    if crate::git::is_git_dir(dir) {
        return Ok(());
    }
    crate::git_run::Git::outside(dir).run(["init", "--quiet", "--bare", "--initial-branch=main"])?.ok()?;
    Ok(crate::git_run::Git::of(dir)?.run(["remote", "add", "origin", url])?.ok().map(drop)?)
}

/// The hooks directory of a checkout; none if it is shared by all repositories.
pub fn hooks_dir(checkout: &Checkout) -> Result<Option<PathBuf>, ExchangeError> {
    let git = crate::git_run::Git::of(&checkout.common_dir)?;
    let setting = |scope: &str| git.run(["config", scope, "--type=path", "--get", "core.hooksPath"])?.maybe();
    if let Some(own) = setting("--local")? {
        return Ok(Some(checkout.root.join(own)));
    }
    match setting("--global")?.or(setting("--system")?) {
        Some(_) => Ok(None),
        None => Ok(Some(checkout.common_dir.join("hooks"))),
    }
}

/// Whether git itself fetched a remote's ledger: a ref refs/remotes/REMOTE/toft-ledger exists and holds one.
pub fn ledger_seen(checkout: &Checkout) -> Result<bool, ExchangeError> {
    let Some(git_dir) = git_dir(checkout) else { return Ok(false) };
    let git = crate::git_run::Git::of(&git_dir)?;
    for remote in remotes(checkout)? {
        let name = format!("refs/remotes/{remote}/{LEDGER_BRANCH}");
        // In a partial clone, the content may not be available.
        let other = || owned::not_a_ledger(&git, &name).unwrap_or(None).is_some();
        if refs::resolve(&git, &git_dir, &name)?.is_some() && !other() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks that the remote of a checkout can be reached, and changes nothing. Returns its name; `None` without a remote.
pub fn ask(checkout: &Checkout, reach: Contact<'_>) -> Result<Option<String>, ExchangeError> {
    if let Some(git_dir) = git_dir(checkout) {
        let Some((remote, url)) = refs::choose(&git_dir, reach.remote)? else { return Ok(None) };
        let words = ["ls-remote", "--upload-pack=git-upload-pack", "--quiet", remote.as_str(), "HEAD"];
        refs::remote_git(&git_dir, &url, reach.patience)?
            .run(words)?
            .ok()
            .map_err(|error| classify_failure(error, &remote))?;
        return Ok(Some(remote));
    }
    let remote = hg::default_path(&checkout.common_dir)?;
    if let Some(remote) = &remote {
        let hg = hg::Hg { vcs: checkout.vcs, root: checkout.root.clone(), patience: reach.patience };
        hg.newest(&checkout.common_dir, remote)?;
    }
    Ok(remote)
}

/// The remote with which a checkout is exchanged, and its URL.
pub fn remote(checkout: &Checkout, reach: Contact<'_>) -> Result<Option<(String, String)>, ExchangeError> {
    match git_dir(checkout) {
        Some(git_dir) => refs::choose(&git_dir, reach.remote),
        None => Ok(hg::default_path(&checkout.common_dir)?.map(|url| ("default".to_owned(), url))),
    }
}

/// The names of the remotes of a checkout.
pub fn remotes(checkout: &Checkout) -> Result<Vec<String>, ExchangeError> {
    match git_dir(checkout) {
        Some(git_dir) => Ok(refs::remotes(&git_dir)?.into_iter().map(|(name, _)| name).collect()),
        None => Ok(hg::default_path(&checkout.common_dir)?.map(|_| "default".to_owned()).into_iter().collect()),
    }
}

/// Identifies a project in all its clones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fingerprint {
    /// Its first commit.
    Commit(String),
    /// The canonical URL of its remote, if it has no commit yet.
    Address(String),
}

/// The fingerprint of a project. A shallow clone does not have the first commit, so it queries its remote.
pub fn fingerprint(checkout: &Checkout) -> Result<Option<Fingerprint>, ExchangeError> {
    let said = match checkout.vcs {
        Vcs::Git => {
            let (git_dir, remote) = (&checkout.common_dir, refs::main_remote(&checkout.common_dir)?);
            let roots =
                crate::git_run::Git::inside(git_dir, &checkout.root)?.run(["rev-list", "--max-parents=0", "HEAD"])?;
            match (roots.maybe()?, remote) {
                (Some(_), Some((name, url))) if git_dir.join("shallow").exists() => {
                    Some(refs::first_commits(git_dir, &name, &url)?)
                }
                (None, Some((_, url))) => {
                    let address = crate::identity::normalised(&url, &checkout.root);
                    return Ok(Some(Fingerprint::Address(address)));
                }
                (roots, _) => roots,
            }
        }
        Vcs::Jj => {
            let ask = ["log", "--no-graph", "-r", "roots(::@- ~ root())", "-T", "commit_id ++ \"\\n\""];
            crate::command::Run::jj(&checkout.root)?.args(ask).maybe()?
        }
        Vcs::Hg | Vcs::Sl => hg::first(&checkout.root, checkout.vcs)?,
        Vcs::None => None,
    };
    Ok(said.and_then(|all| all.lines().min().map(|commit| Fingerprint::Commit(commit.to_owned()))))
}

/// The git repository behind a checkout, if there is one.
pub(crate) fn git_dir(checkout: &Checkout) -> Option<PathBuf> {
    match checkout.vcs {
        Vcs::Git => Some(checkout.common_dir.clone()),
        // Colocated, or inside the jj repository.
        Vcs::Jj if checkout.common_dir.join("store").is_dir() => {
            let own = checkout.common_dir.join("store").join("git");
            own.is_dir().then_some(own)
        }
        Vcs::Jj => Some(checkout.common_dir.clone()),
        Vcs::Hg | Vcs::Sl | Vcs::None => None,
    }
}

/// The location of a ledger's files within a checkout.
pub(crate) struct Site {
    checkout: Checkout,
    /// The ledger's directory.
    dir: PathBuf,
    /// The same relative to the checkout: empty, or ending in `/`.
    prefix: String,
}

impl Site {
    fn new(checkout: Checkout, dir: &Path) -> Result<Self, ExchangeError> {
        let dir = fs::canonicalize(dir).map_err(io("find", dir))?;
        let Ok(within) = dir.strip_prefix(&checkout.root) else {
            return Err(ExchangeError::Conflict(format!(
                "{} is not inside of {}; is it behind a link?",
                dir.display(),
                checkout.root.display()
            )));
        };
        let within = within.to_string_lossy().into_owned();
        let prefix = if within.is_empty() { within } else { format!("{within}/") };
        Ok(Self { checkout, dir, prefix })
    }

    /// The local files of the ledger.
    fn files(&self) -> Result<Files, ExchangeError> {
        read_files(&self.dir)
    }

    /// Writes our files, whatever a merge left in their place.
    fn put(&self, files: &Files) -> Result<(), ExchangeError> {
        for (name, bytes) in files {
            let path = self.dir.join(name);
            if fs::read(&path).is_ok_and(|now| now == *bytes) {
                continue;
            }
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir).map_err(io("make", dir))?;
            }
            crate::private::write_like_its_directory(&path, bytes).map_err(io("write", &path))?;
        }
        Ok(())
    }

    /// A path relative to the checkout.
    fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// A ledger's files in a directory.
pub fn read_files(dir: &Path) -> Result<Files, ExchangeError> {
    let mut files = Files::new();
    let mut take = |name: String| -> Result<(), ExchangeError> {
        let path = dir.join(&name);
        match fs::read(&path) {
            Ok(bytes) => drop(files.insert(name, bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(cause) => return Err(io("read", &path)(cause).into()),
        }
        Ok(())
    };
    take(ISSUES.to_owned())?;
    let archive = dir.join(ARCHIVE);
    match fs::read_dir(&archive) {
        Ok(entries) => {
            for entry in entries {
                let name = entry.map_err(io("read", &archive))?.file_name().to_string_lossy().into_owned();
                if is_archive(&name) {
                    take(format!("{ARCHIVE}/{name}"))?;
                }
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(cause) => return Err(io("read", &archive)(cause).into()),
    }
    Ok(files)
}

fn is_archive(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.ends_with(".jsonl") && !name.starts_with(['.', '-']) && name.chars().all(plain)
}

/// Whether this is a file of a ledger.
fn belongs(name: &str) -> bool {
    name == ISSUES || name.strip_prefix(ARCHIVE).and_then(|name| name.strip_prefix('/')).is_some_and(is_archive)
}

/// Classifies a failure of a program that contacted a remote.
pub(crate) fn classify_failure(error: RunError, remote: &str) -> ExchangeError {
    const NOT_FOUND: [&str; 8] = [
        "Could not find repository",
        "does not appear to be a git repository",
        "does not exist",
        "not found",
        "No such file or directory",
        "returned error: 404",
        "returned error: 410",
        "is not a valid repository",
    ];
    const OFFLINE: [&str; 17] = [
        "Could not resolve",
        "Connection refused",
        "Connection timed out",
        "Connection reset",
        "Connection closed",
        "Operation timed out",
        "Network is unreachable",
        "No route to host",
        "Failed to connect",
        "Couldn't connect",
        "Empty reply from server",
        "returned error: 5",
        "timed out",
        "early EOF",
        "hung up unexpectedly",
        "Name or service not known",
        "error: [Errno",
    ];
    const DENIED: [&str; 12] = [
        "Permission denied",
        "Authentication failed",
        "could not read Username",
        "could not read Password",
        "terminal prompts disabled",
        "Host key verification failed",
        "authorization failed",
        "returned error: 401",
        "returned error: 403",
        "access denied",
        "certificate",
        "detected dubious ownership",
    ];
    const PROTECTED: [&str; 8] = [
        "protected branch",
        "hook declined",
        "GH006",
        "remote rejected",
        "prohibited",
        "hook failed",
        "push failed on remote",
        "denying",
    ];
    let remote = remote.to_owned();
    match &error {
        RunError::Late { .. } => ExchangeError::Offline { remote, said: error.to_string() },
        RunError::Failed { said, .. } => {
            let has = |signs: &[&str]| signs.iter().any(|sign| said.contains(sign));
            let said = said.clone();
            // Git prints similar messages for an unknown host and a missing path, so check the network first.
            let unreachable = ["Could not resolve", "Name or service not known"];
            if has(&DENIED) {
                ExchangeError::Denied { remote, said }
            } else if has(&PROTECTED) {
                ExchangeError::Protected { remote, said }
            } else if has(&NOT_FOUND) && !has(&unreachable) {
                ExchangeError::NotFound { remote, said }
            } else if has(&OFFLINE) {
                ExchangeError::Offline { remote, said }
            } else {
                error.into()
            }
        }
        _ => error.into(),
    }
}

/// Refuses a branch that contains other files: it is neither committed to nor pushed to.
fn refuse_foreign(branch: &str, remote: &str, listed: &str) -> Result<(), ExchangeError> {
    match owned::foreign(listed.lines()) {
        Some(path) => Err(ExchangeError::Conflict(format!(
            "`{branch}` of {remote} holds other files ({path}); no ledger is written there"
        ))),
        None => Ok(()),
    }
}

/// Classifies a failed push: a lost race, or an error.
fn unsent(error: RunError, remote: &str) -> Result<Sent, ExchangeError> {
    if lost_race(&error) { Ok(Sent::LostRace(error.to_string())) } else { Err(classify_failure(error, remote)) }
}

/// Whether a push failed because another clone changed the remote after our last fetch.
fn lost_race(error: &RunError) -> bool {
    const SIGNS: [&str; 12] = [
        "non-fast-forward",
        "fetch first",
        "stale info",
        "cannot lock ref",
        "failed to update ref",
        "incorrect old value",
        "reference already exists",
        "failed to lock",
        "creates new remote head",
        "unsynced changes",
        "moved on the remote",
        "unexpectedly moved",
    ];
    matches!(error, RunError::Failed { said, .. } if SIGNS.iter().any(|sign| said.contains(sign)))
}
