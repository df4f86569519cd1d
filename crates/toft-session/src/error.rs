//! Errors before and around a verb.

use std::path::PathBuf;

use thiserror::Error as ThisError;
use toft_core::{
    refusal::{Refusal, VerbError},
    store::StoreError,
};

/// Why a command failed.
#[derive(Debug, ThisError)]
pub enum Error {
    /// A rule refused; nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory looks like a checkout, but is not a valid one.
    #[error(transparent)]
    Checkout(#[from] toft_vcs::FindError),
    /// Not in a repository, and no store was named.
    #[error("{dir} is not inside a repository")]
    NoRepository {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no store at the expected location.
    #[error("there is no toft store here yet (looked for {store})")]
    NotInitialised {
        /// That location.
        store: String,
    },
    /// The store does not know this repository, so the repository cannot see or claim anything in it.
    #[error("{store} does not know the repository {name}")]
    UnknownRepository { name: String, store: String },
    /// Nothing here proves to a server who asks.
    #[error("this user has no token for {server}")]
    NoToken { server: String },
    /// A PostgreSQL server: only a toft server opens it, and who looks after it.
    #[error("{store} is opened by `toft serve` alone")]
    OpenedByServer { store: String },
    /// Only the server itself does this.
    #[error("{server} {doing} itself")]
    OnServer {
        server: String,
        /// What it does.
        doing: &'static str,
    },
    /// A restore would replace an intact store.
    #[error("there is a store at {store} already")]
    StoreThere { store: String },
    /// A kind of store that this build cannot open.
    #[error("`{text}` is not a store this toft can open")]
    UnknownStore {
        /// The text that was given.
        text: String,
    },
    /// Configuration that cannot be read.
    #[error("{path}: {problem}")]
    Config {
        /// The file, or the variable.
        path: String,
        problem: String,
    },
    /// A plan or template that cannot be read.
    #[error("{path}: {problem}")]
    PlanFile {
        /// The file.
        path: String,
        problem: String,
    },
    /// A workspace could not be created, examined or removed.
    #[error(transparent)]
    Workspace(#[from] toft_vcs::workspace::WorkspaceError),
    /// A ledger could not be exchanged with others.
    #[error(transparent)]
    Exchange(#[from] toft_vcs::exchange::ExchangeError),
    /// Setup commands of a repository that the user has not trusted.
    #[error("{doing} would run {} that nobody here trusted", if *.count == 1 { "1 command".to_owned() } else { format!("{} commands", .count) })]
    Untrusted {
        /// What would run them.
        doing: &'static str,
        /// Their number.
        count: usize,
    },
    /// A setup command of a workspace failed.
    #[error("setting it up: {why}; what it said is in {log}", log = log.display())]
    Setup {
        /// The log with its output.
        log: PathBuf,
        /// How it failed.
        why: String,
    },
    /// The task belongs to another repository, of which this machine has no clone.
    #[error("it is to be done in the repository {name}{with}, and this machine has no clone of it that the store knows",
        with = remote.as_ref().map(|remote| format!(" (exchanged with {remote})")).unwrap_or_default())]
    NoCloneHere {
        /// The name of that repository.
        name: String,
        /// Its remote, if known.
        remote: Option<String>,
    },
    /// A claim needed a workspace and got none; the claimed task was released.
    #[error("no workspace, so nothing is claimed: {cause}")]
    NoWorkspace {
        /// The reason.
        cause: Box<Self>,
    },
    /// The command of a runner could not be started.
    #[error("could not start `{command}`: {cause}")]
    Start { command: String, cause: std::io::Error },
    /// The lease could not be renewed, so the work under it was stopped.
    #[error("stopped before the task could be given to another: {why}")]
    LeaseLost {
        /// The cause.
        why: String,
    },
    /// The runner was asked to stop before a command was started.
    #[error("the runner was told to stop")]
    RunnerStopped,
    /// A sandbox was requested, and this system has none.
    #[error("no sandbox is available: bubblewrap (bwrap) is not installed or does not work here")]
    NoSandbox,
    /// Landlock was requested, and this kernel has none.
    #[error("this kernel has no Landlock")]
    NoLandlock,
    /// A sandbox could not be entered.
    #[error("the sandbox could not be entered: {cause}")]
    Sandbox { cause: String },
    /// A file that could not be read or written.
    #[error("could not {doing} {path}: {cause}", path = path.display())]
    Io {
        /// The operation: read, write, create.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        cause: std::io::Error,
    },
}

impl From<VerbError> for Error {
    fn from(stop: VerbError) -> Self {
        match stop {
            VerbError::Refused(refusal) => Self::Refused(refusal),
            VerbError::Failed(error) => Self::Store(error),
        }
    }
}

/// Converts an I/O error, adding the operation and the file.
pub fn io<'a>(doing: &'static str, path: &'a std::path::Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |cause| Error::Io { doing, path: path.to_owned(), cause }
}
