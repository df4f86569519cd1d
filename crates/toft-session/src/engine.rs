//! The open store of any engine, in this process or on a server.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use toft_client::{RemoteStore, ServerAddress};
use toft_core::{
    checkpoint::{Detail, INLINE_LIMIT},
    refusal::VerbError,
    store::{GroupStore, Store, StoreError},
    verbs::{self, AnyRun, Caller, Verb, VerbRun},
};
use toft_store::{SqliteStore, sqlite::ReadSpan};

use crate::{blobs, distant, error::Error, token};
#[cfg(feature = "postgres")]
use toft_store::PostgresStore;

/// Sleep between two looks at a server that says nothing: leases and timers end without a commit.
const REMOTE_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The location of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// A file.
    File(PathBuf),
    /// A PostgreSQL server, by URL.
    Server(String),
    /// A toft server.
    Remote(ServerAddress),
}

impl Home {
    /// The file, if the store is one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Server(_) | Self::Remote(_) => None,
        }
    }

    /// Returns whether the store is on PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self, Self::Server(_))
    }

    /// Whether one server may hold other spaces beside this one: a PostgreSQL server whose URL names none.
    pub fn holds_spaces(&self) -> bool {
        self.is_postgres() && self.named_space().is_none()
    }

    /// The space that the URL of a PostgreSQL server names.
    pub fn named_space(&self) -> Option<&str> {
        #[cfg(feature = "postgres")]
        if let Self::Server(url) = self {
            return toft_store::postgres::named_space(url);
        }
        None
    }

    /// The same server, with another space.
    #[must_use]
    pub fn in_space(&self, space: &str) -> Self {
        #[cfg(feature = "postgres")]
        if let Self::Server(url) = self {
            return Self::Server(toft_store::postgres::in_space(url, space));
        }
        let _ = space;
        self.clone()
    }

    /// Whether it is known to be missing. A server is not queried.
    pub fn missing(&self) -> bool {
        self.file().is_some_and(|path| !path.exists())
    }
}

/// The location without a password, for display.
impl fmt::Display for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            #[cfg(feature = "postgres")]
            Self::Server(url) => f.write_str(&toft_store::postgres::without_password(url)),
            #[cfg(not(feature = "postgres"))]
            Self::Server(_) => f.write_str("a PostgreSQL server"),
            Self::Remote(address) => address.fmt(f),
        }
    }
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It must exist.
    Known,
    /// It must exist, and the process is short-lived.
    Briefly,
    /// It is created if it does not exist.
    Create,
}

/// An open store.
pub enum Engine {
    /// A SQLite file.
    File(Box<SqliteStore>),
    /// A PostgreSQL server.
    #[cfg(feature = "postgres")]
    Server(Box<PostgresStore>),
    /// A toft server.
    Remote(Box<RemoteStore>),
}

impl Engine {
    /// Opens the store at `home`.
    pub fn open(home: &Home, how: Open) -> Result<Self, Error> {
        match (home, how) {
            (Home::File(path), how) => {
                let opened = match how {
                    Open::Known => SqliteStore::open(path),
                    Open::Briefly => SqliteStore::open_briefly(path),
                    Open::Create => SqliteStore::create(path),
                };
                match opened {
                    Ok(store) => Ok(Self::File(Box::new(store))),
                    Err(StoreError::Missing { .. }) => Err(Error::NotInitialised { store: home.to_string() }),
                    Err(error) => Err(error.into()),
                }
            }
            #[cfg(feature = "postgres")]
            (Home::Server(url), how) => {
                let opened = match how {
                    Open::Known => PostgresStore::open(url),
                    Open::Briefly => PostgresStore::open_briefly(url),
                    Open::Create => PostgresStore::create(url),
                };
                match opened {
                    Ok(store) => Ok(Self::Server(Box::new(store))),
                    Err(StoreError::Missing { path }) => Err(Error::NotInitialised { store: path }),
                    Err(error) => Err(error.into()),
                }
            }
            #[cfg(not(feature = "postgres"))]
            (Home::Server(_), _) => Err(Error::UnknownStore { text: home.to_string() }),
            (Home::Remote(address), _) => {
                let token = token::of(address)?.ok_or_else(|| Error::NoToken { server: address.to_string() })?;
                Ok(Self::Remote(Box::new(RemoteStore::new(address.clone(), token)?)))
            }
        }
    }

    /// Runs a verb. If nothing can be done now, a server waits up to `wait` until something can.
    pub fn perform<V: Verb>(&self, caller: &mut Caller<'_>, verb: V, wait: Duration) -> Result<V::Outcome, VerbError> {
        let mut run = VerbRun::new(verb);
        self.perform_run(caller, &mut run, wait)?;
        run.into_outcome()
    }

    /// Does the same for a verb of any type; the outcome is in the run.
    pub(crate) fn perform_run(
        &self,
        caller: &mut Caller<'_>,
        run: &mut dyn AnyRun,
        wait: Duration,
    ) -> Result<(), VerbError> {
        match self {
            Self::Remote(remote) => distant::perform(remote, caller, run, wait),
            local => verbs::perform_run(local.store()?, caller, run),
        }
    }

    /// Lets the reads that follow share one snapshot, if the store is a file.
    pub fn read_span(&self) -> Option<ReadSpan<'_>> {
        match self {
            Self::File(store) => Some(store.read_span()),
            _ => None,
        }
    }

    /// Whether a verb that finds nothing can wait where the store is.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// Upgrades an existing store; returns the schema version before and after.
    pub(crate) fn migrate(home: &Home) -> Result<(i64, i64), Error> {
        let migrated = match home {
            Home::File(path) => SqliteStore::migrate(path),
            #[cfg(feature = "postgres")]
            Home::Server(url) => PostgresStore::migrate(url),
            #[cfg(not(feature = "postgres"))]
            Home::Server(_) => return Err(Error::UnknownStore { text: home.to_string() }),
            Home::Remote(_) => return Err(Error::OnServer { server: home.to_string(), doing: "upgrades its store" }),
        };
        match migrated {
            Err(StoreError::Missing { .. }) => Err(Error::NotInitialised { store: home.to_string() }),
            other => Ok(other?),
        }
    }

    /// The store, if this process has it open: a server runs verbs, and no transactions of its clients.
    pub fn store(&self) -> Result<&dyn Store, StoreError> {
        match self {
            Self::File(store) => Ok(store.as_ref()),
            #[cfg(feature = "postgres")]
            Self::Server(store) => Ok(store.as_ref()),
            Self::Remote(remote) => Err(remote.without_transactions()),
        }
    }

    /// A number that changes whenever another connection commits, so that a waiting process can poll cheaply.
    pub fn change_counter(&self) -> Result<u64, StoreError> {
        match self {
            Self::Remote(remote) => remote.changes(None, Duration::ZERO),
            local => local.store()?.change_counter(),
        }
    }

    /// How long a waiting process may sleep if nothing changes.
    pub fn look_again_after(&self) -> Duration {
        self.store().map_or(REMOTE_LOOK_INTERVAL, Store::look_again_after)
    }

    /// Takes the space into memory, if this kind of store allows it and the space has no more tasks than `most`.
    pub fn hold(&self, most: usize) -> Result<Option<Box<dyn GroupStore + '_>>, StoreError> {
        #[cfg(feature = "postgres")]
        if let Self::Server(store) = self {
            let held = toft_store::postgres::OwnedSpace::take(store, most)?;
            return Ok(held.map(|held| Box::new(held) as Box<dyn GroupStore + '_>));
        }
        let _ = most;
        Ok(None)
    }

    /// A value for a checkpoint. A large value is stored as a blob first.
    pub(crate) fn keep_detail(&self, value: Value) -> Result<Detail, Error> {
        let text = value.to_string();
        if text.len() <= INLINE_LIMIT {
            return Ok(Detail::Inline(value));
        }
        let blob = blake3::hash(text.as_bytes()).to_hex().to_string();
        self.keep_blob(&blob, &text)?;
        Ok(Detail::Blob { blob, bytes: text.len() as u64 })
    }

    /// Closes the connection to a server that nobody uses now; what is asked next connects again.
    pub fn rest(&self) {
        #[cfg(feature = "postgres")]
        if let Self::Server(store) = self {
            store.rest();
        }
    }

    /// The space of the token with this digest, among all spaces that the server holds.
    pub fn space_of_token(&self, digest: &str) -> Result<Option<String>, StoreError> {
        #[cfg(feature = "postgres")]
        if let Self::Server(store) = self {
            return store.space_of_token(digest);
        }
        let _ = digest;
        Ok(None)
    }

    /// Keeps a large text under its digest.
    pub fn keep_blob(&self, blob: &str, text: &str) -> Result<(), Error> {
        match self {
            Self::File(store) => blobs::keep(store.path(), blob, text)?,
            #[cfg(feature = "postgres")]
            Self::Server(store) => store.keep_blob(blob, text)?,
            Self::Remote(store) => store.keep_blob(blob, text)?,
        }
        Ok(())
    }

    /// The large text with this digest.
    pub fn load_blob(&self, blob: &str) -> Result<String, Error> {
        if blob.len() != 64 || !blob.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(unreadable(blob, "that is no digest"));
        }
        match self {
            Self::File(store) => blobs::load(store.path(), blob),
            #[cfg(feature = "postgres")]
            Self::Server(store) => store.blob(blob)?.ok_or_else(|| unreadable(blob, "it is not there")),
            Self::Remote(store) => Ok(store.blob(blob)?),
        }
    }

    /// The value of a checkpoint's detail.
    pub(crate) fn load_detail(&self, detail: &Detail) -> Result<Value, Error> {
        let blob = match detail {
            Detail::Inline(value) => return Ok(value.clone()),
            Detail::Blob { blob, .. } => blob,
        };
        let text = self.load_blob(blob)?;
        serde_json::from_str(&text).map_err(|error| unreadable(blob, &error.to_string()))
    }
}

fn unreadable(blob: &str, cause: &str) -> Error {
    StoreError::Unreadable { table: "blobs".into(), id: blob.to_owned(), cause: cause.to_owned() }.into()
}
