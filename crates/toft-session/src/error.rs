//! What can go wrong before and around a verb.

use std::path::PathBuf;

use thiserror::Error as ThisError;
use toft_core::{
    refusal::{Refusal, VerbError},
    store::StoreError,
};

/// Why something was not done.
#[derive(Debug, ThisError)]
pub enum Error {
    /// A rule said no; nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store could not.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The directory claims to be a checkout and is not.
    #[error(transparent)]
    Checkout(#[from] toft_vcs::FindError),
    /// Not in a repository, and no store was named.
    #[error("{dir} is not inside a repository")]
    NoRepository {
        /// Where it was asked.
        dir: PathBuf,
    },
    /// No store where one was looked for.
    #[error("there is no toft store here yet (looked for {store})")]
    NotInitialised {
        /// Where it would be.
        store: String,
    },
    /// The store does not know this repository: nothing in it is shown or given to it.
    #[error("{store} does not know the repository {name}")]
    UnknownRepository {
        /// What people call it.
        name: String,
        /// Which store.
        store: String,
    },
    /// A restore would replace a store that is whole.
    #[error("there is a store at {store} already")]
    StoreThere {
        /// Where.
        store: String,
    },
    /// A store this build cannot open.
    #[error("`{text}` is not a store this toft can open")]
    UnknownStore {
        /// What was named.
        text: String,
    },
    /// Configuration that cannot be read.
    #[error("{path}: {problem}")]
    Config {
        /// The file, or the variable.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A plan or template that cannot be read.
    #[error("{path}: {problem}")]
    PlanFile {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A workspace could not be made, looked at or taken down.
    #[error(transparent)]
    Workspace(#[from] toft_vcs::workspace::WorkspaceError),
    /// A ledger could not be exchanged with others.
    #[error(transparent)]
    Exchange(#[from] toft_vcs::exchange::ExchangeError),
    /// Commands of a repository that nobody trusted.
    #[error("setting a workspace up would run {count} commands that nobody here trusted")]
    Untrusted {
        /// How many.
        count: usize,
    },
    /// A command that sets a workspace up failed.
    #[error("setting it up: {why}; what it said is in {log}", log = log.display())]
    Setup {
        /// Where what it said is.
        log: PathBuf,
        /// How it failed.
        why: String,
    },
    /// A task is to be worked in another repository, which this machine has no clone of.
    #[error("it is to be done in the repository {name}{with}, and this machine has no clone of it that the store knows",
        with = remote.as_ref().map(|remote| format!(" (exchanged with {remote})")).unwrap_or_default())]
    NoCloneHere {
        /// What people call that repository.
        name: String,
        /// Where it is exchanged, if that is known.
        remote: Option<String>,
    },
    /// A claim wanted a workspace and got none; what it had claimed was given back.
    #[error("no workspace, so nothing is claimed: {cause}")]
    NoWorkspace {
        /// Why there is none.
        cause: Box<Self>,
    },
    /// The command of a runner could not be started.
    #[error("could not start `{command}`: {cause}")]
    Start {
        /// Which.
        command: String,
        /// Why.
        cause: std::io::Error,
    },
    /// The lease could not be kept, so the work under it was stopped.
    #[error("stopped before the task could be given to another: {why}")]
    LeaseLost {
        /// What happened.
        why: String,
    },
    /// The runner was told to stop before a command was started.
    #[error("the runner was told to stop")]
    RunnerStopped,
    /// A sandbox was asked for, and nothing here can make one.
    #[error("there is no sandbox to be had here: bubblewrap does not work, and the kernel has no Landlock")]
    NoSandbox,
    /// A sandbox could not be entered.
    #[error("the sandbox could not be entered: {cause}")]
    Sandbox {
        /// Why.
        cause: String,
    },
    /// A file that could not be read or written.
    #[error("could not {doing} {path}: {cause}", path = path.display())]
    Io {
        /// Read, write, make.
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
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

/// Turns an I/O error into one that says what was being done with which file.
pub fn io<'a>(doing: &'static str, path: &'a std::path::Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |cause| Error::Io { doing, path: path.to_owned(), cause }
}
