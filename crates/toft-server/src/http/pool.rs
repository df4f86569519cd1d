//! Connections to the store: each answers one request at a time.

use std::{
    sync::{Arc, Mutex, PoisonError},
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

/// Open stores, of which each is used by one request at a time.
pub(super) struct StorePool {
    idle: Arc<Mutex<Vec<Engine>>>,
    free: Arc<Semaphore>,
    /// Used by the watch alone.
    watch: Arc<Mutex<Engine>>,
}

impl StorePool {
    pub(super) fn open(home: &Home, connections: usize) -> Result<Self, Error> {
        let count = connections.max(1);
        let first = Engine::open(home, Open::Create)?;
        let mut idle = vec![first];
        for _ in 1..count {
            idle.push(Engine::open(home, Open::Known)?);
        }
        let watch = Arc::new(Mutex::new(Engine::open(home, Open::Known)?));
        Ok(Self { idle: Arc::new(Mutex::new(idle)), free: Arc::new(Semaphore::new(count)), watch })
    }

    /// Runs something on a free connection.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let taken = tokio::time::timeout(PATIENCE, self.free.clone().acquire_owned()).await;
        let busy = StoreError::Busy { waited_ms: PATIENCE.as_millis() as u64, writer: None };
        let Ok(Ok(permit)) = taken else { return Err(busy) };
        let idle = self.idle.clone();
        let done = blocking::run(move || {
            let engine = idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
            let taken = TakenStore { engine: Some(engine), idle, _permit: permit };
            taken.engine.as_ref().map(work)
        });
        done.await.flatten().ok_or(busy)
    }

    /// The number that changes with every commit.
    pub(super) async fn change_counter(&self) -> Option<u64> {
        let watch = self.watch.clone();
        let counted = blocking::run(move || {
            let engine = watch.lock().unwrap_or_else(PoisonError::into_inner);
            engine.store().change_counter().ok()
        });
        counted.await.flatten()
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
