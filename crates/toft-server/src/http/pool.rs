//! Connections to the store: each answers one request at a time.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use toft_core::store::StoreError;
use toft_session::{
    engine::{Engine, Home, Open},
    error::Error,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::blocking;

/// How long a request waits for a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Open stores, of which each is used by one request at a time; another one is opened when all are in use.
pub(super) struct StorePool {
    home: Home,
    idle: Arc<Mutex<Vec<Engine>>>,
    free: Arc<Semaphore>,
    /// Used by the watch alone.
    watch: Arc<Mutex<Engine>>,
    /// Requests so far.
    used: AtomicU64,
}

impl StorePool {
    pub(super) fn open(home: &Home, connections: usize) -> Result<Self, Error> {
        // A missing store is made; an older one of a server is upgraded by `toft doctor --upgrade` only.
        let first = match Engine::open(home, Open::Known) {
            Err(Error::NotInitialised { .. }) => Engine::open(home, Open::Create)?,
            opened => opened?,
        };
        let idle = vec![first];
        let watch = Arc::new(Mutex::new(Engine::open(home, Open::Known)?));
        let free = Arc::new(Semaphore::new(connections.max(1)));
        Ok(Self { home: home.clone(), idle: Arc::new(Mutex::new(idle)), free, watch, used: AtomicU64::new(0) })
    }

    /// Runs something on a free connection.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.used.fetch_add(1, Ordering::Relaxed);
        let taken = tokio::time::timeout(PATIENCE, self.free.clone().acquire_owned()).await;
        let busy = StoreError::Busy { waited_ms: PATIENCE.as_millis() as u64, writer: None };
        let Ok(Ok(permit)) = taken else { return Err(busy) };
        let (home, idle) = (self.home.clone(), self.idle.clone());
        let done = blocking::run(move || {
            let open = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let engine = match open {
                Some(engine) => engine,
                None => Engine::open(&home, Open::Known).map_err(only_store)?,
            };
            let taken = TakenStore { engine: Some(engine), idle, _permit: permit };
            Ok(taken.engine.as_ref().map(work))
        });
        let broken = StoreError::Failed { doing: "answer".into(), cause: "the server failed; its log says why".into() };
        done.await.transpose()?.flatten().ok_or(broken)
    }

    /// How many requests there were.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Closes the connections that nobody uses now.
    pub(super) async fn rest(&self) {
        let idle = self.idle.clone();
        // A connection has a runtime of its own, which cannot end within this one.
        let rested =
            blocking::run(move || idle.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(Engine::rest));
        rested.await;
    }

    /// Asks the store on a connection that no request uses.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let watch = self.watch.clone();
        let asked = blocking::run(move || question(&watch.lock().unwrap_or_else(PoisonError::into_inner)));
        asked.await.unwrap_or(Err(StoreError::Busy { waited_ms: 0, writer: None }))
    }

    /// The number that changes with every commit.
    pub(super) async fn change_counter(&self) -> Option<u64> {
        self.look(Engine::change_counter).await.ok()
    }
}

/// An error of opening a store, for those who asked it something.
pub(super) fn only_store(error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        other => StoreError::Failed { doing: "open the store".into(), cause: other.to_string() },
    }
}

/// A store in use; it is free again afterwards, whatever happened.
struct TakenStore {
    engine: Option<Engine>,
    idle: Arc<Mutex<Vec<Engine>>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for TakenStore {
    fn drop(&mut self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(self.engine.take());
    }
}
