//! The server: which space a request is for, and who asks.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, header};
use toft_core::{
    store::{Access, StoreError},
    token::Token,
    wire::{PROTOCOL, PROTOCOL_HEADER, SPACE_HEADER},
};
use toft_session::{
    engine::{Engine, Home, Open},
    error::{Error, io},
    mask::Mask,
};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{sleep, timeout},
};

use super::{
    ServeRules,
    limits::TokenLimits,
    metrics::Metrics,
    pool::{StorePool, only_store},
    served_objects::ServedObjects,
    served_space::ServedSpace,
    server_log::{ServerLog, note_asker},
    traces::Traces,
    upkeep, waiting,
    writer::SpaceWriter,
};
use crate::{blocking, identity::IdentityProvider};

/// The only space of a file, and the first of a PostgreSQL server whose URL names none.
const FIRST_SPACE: &str = "main";
/// How long the store may take to answer a look.
const PROBE: Duration = Duration::from_secs(2);
/// Digests whose space is remembered.
const REMEMBERED: usize = 100_000;
/// A space that nobody asked for this long is closed.
const IDLE: Duration = Duration::from_secs(300);

/// A server over a store and its spaces.
pub(super) struct ServerState {
    rules: ServeRules,
    /// Open spaces, by name, and when each was asked for.
    spaces: Mutex<HashMap<String, (Arc<ServedSpace>, Instant)>>,
    /// Who opens a space: others wait for it.
    opening: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// The space of a token, by digest: it never moves.
    homes: Mutex<HashMap<String, String>>,
    /// Commits and logs, if there is a place for them.
    pub(super) objects: Option<ServedObjects>,
    /// The identity provider that knows people.
    pub(super) identities: Option<Arc<IdentityProvider>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) log: ServerLog,
    pub(super) traces: Option<Traces>,
    limits: TokenLimits,
    /// One look at a time at whether the store answers: it may hang.
    probe: Arc<Semaphore>,
    /// What no log shows.
    pub(super) mask: Mask,
    draining: Arc<AtomicBool>,
}

/// Who asks, and for which space.
pub(super) struct Asker {
    pub(super) space: Arc<ServedSpace>,
    pub(super) token: Token,
}

/// Why a request is not taken.
pub(super) enum NotTaken {
    /// Nobody proved who asks.
    Unknown,
    /// Another version of the protocol.
    Protocol(String),
    /// The token asks more often than it may.
    Limited,
    /// The address names another space than the token's.
    OtherSpace(String),
    Failed(StoreError),
}

impl From<StoreError> for NotTaken {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl ServerState {
    /// Opens the first space, so that a server without its store does not start.
    pub(super) fn open(rules: &ServeRules) -> Result<Self, Error> {
        let state = Self {
            rules: rules.clone(),
            spaces: Mutex::default(),
            opening: Mutex::default(),
            homes: Mutex::default(),
            objects: ServedObjects::open(rules)?,
            identities: open_provider(rules)?,
            metrics: Arc::default(),
            log: rules.log,
            traces: rules.traces.as_ref().map(|collector| Traces::to(collector, rules.log)),
            limits: TokenLimits::of(rules.limit),
            probe: Arc::new(Semaphore::new(1)),
            mask: Mask::from_environment(match &rules.store {
                Home::Server(url) => Some(url.as_str()),
                Home::File(_) | Home::Remote(_) => None,
            }),
            draining: Arc::default(),
        };
        let (name, first) = (state.first_name().to_owned(), state.open_space(state.first_name())?);
        state.spaces.lock().unwrap_or_else(PoisonError::into_inner).insert(name, (first, Instant::now()));
        Ok(state)
    }

    /// Whether there can be other spaces than the first.
    pub(super) fn holds_spaces(&self) -> bool {
        self.rules.store.holds_spaces()
    }

    pub(super) fn first_name(&self) -> &str {
        self.rules.store.named_space().unwrap_or(FIRST_SPACE)
    }

    fn open_space(&self, name: &str) -> Result<Arc<ServedSpace>, Error> {
        let ServeRules { store, connections, policy, hold_from, .. } = &self.rules;
        let home = if store.holds_spaces() { store.in_space(name) } else { store.clone() };
        let pool = StorePool::open(&home, *connections)?;
        let writer = match &home {
            Home::Server(_) => Some(SpaceWriter::start(
                Engine::open(&home, Open::Known)?,
                policy.clone(),
                *hold_from,
                self.metrics.clone(),
            )),
            Home::File(_) | Home::Remote(_) => None,
        };
        Ok(Arc::new(ServedSpace::new(name, pool, writer, policy.clone(), self.draining.clone())))
    }

    /// The space that was opened first; it answers what is about the server as a whole.
    pub(super) async fn first_space(self: &Arc<Self>) -> Result<Arc<ServedSpace>, StoreError> {
        self.space(self.first_name().to_owned()).await
    }

    /// Starts what runs beside requests.
    pub(super) fn start(self: &Arc<Self>) {
        for (space, _) in self.spaces.lock().unwrap_or_else(PoisonError::into_inner).values() {
            self.attend(space);
        }
        let state = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                sleep(IDLE / 5).await;
                let Some(state) = state.upgrade() else { return };
                state.close_idle();
            }
        });
    }

    /// Serves the claims of a space that wait, and forgets what is old, until it is closed.
    fn attend(&self, space: &Arc<ServedSpace>) {
        tokio::spawn(waiting::watch(Arc::downgrade(space)));
        let objects = self.objects.as_ref().map(|kept| kept.objects.clone());
        tokio::spawn(upkeep::forget_again_and_again(Arc::downgrade(space), self.rules.retention.clone(), objects));
    }

    fn close_idle(&self) {
        let mut closed = Vec::new();
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        spaces.retain(|name, (space, asked)| {
            let used = name == self.first_name() || asked.elapsed() < IDLE || Arc::strong_count(space) > 1;
            if !used {
                closed.push(space.clone());
            }
            used
        });
        drop(spaces);
        // A connection to PostgreSQL has a runtime of its own, which cannot end within this one.
        tokio::task::spawn_blocking(move || drop(closed));
    }

    pub(super) async fn space(self: &Arc<Self>, name: String) -> Result<Arc<ServedSpace>, StoreError> {
        if let Some(space) = self.known_space(&name) {
            return Ok(space);
        }
        let turn = self.opening.lock().unwrap_or_else(PoisonError::into_inner).entry(name.clone()).or_default().clone();
        let _turn = turn.lock().await;
        if let Some(space) = self.known_space(&name) {
            return Ok(space);
        }
        let (state, runtime, named) = (self.clone(), Handle::current(), name.clone());
        let opened = blocking::run(move || {
            let space = state.open_space(&name)?;
            let mut spaces = state.spaces.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((space, _)) = spaces.get(&name) {
                return Ok(space.clone());
            }
            let _within = runtime.enter();
            state.attend(&space);
            spaces.insert(name, (space.clone(), Instant::now()));
            Ok(space)
        });
        let interrupted = StoreError::Failed { doing: "open a space".into(), cause: "it was interrupted".into() };
        let opened = opened.await;
        self.opening.lock().unwrap_or_else(PoisonError::into_inner).remove(&named);
        opened.ok_or(interrupted)?.map_err(only_store)
    }

    fn known_space(&self, name: &str) -> Option<Arc<ServedSpace>> {
        let mut spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        let (space, asked) = spaces.get_mut(name)?;
        *asked = Instant::now();
        Some(space.clone())
    }

    /// Who sent a request, and for which space: the token decides.
    pub(super) async fn identify(self: &Arc<Self>, headers: &HeaderMap) -> Result<Asker, NotTaken> {
        let said = |name| headers.get(name).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
        if let Some(version) = said(PROTOCOL_HEADER).filter(|version| major(version) != major(PROTOCOL)) {
            return Err(NotTaken::Protocol(version.to_owned()));
        }
        let proof = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let secret = proof.and_then(|proof| proof.strip_prefix("Bearer ")).map(str::trim).ok_or(NotTaken::Unknown)?;
        let digest = blake3::hash(secret.as_bytes()).to_hex().to_string();
        let space = self.space_of(&digest).await?.ok_or(NotTaken::Unknown)?;
        let token = space.token(digest).await?.ok_or(NotTaken::Unknown)?;
        if said(SPACE_HEADER).is_some_and(|named| named != space.name) {
            return Err(NotTaken::OtherSpace(space.name.clone()));
        }
        note_asker(&token.name, &space.name);
        if !self.limits.allow(&token.digest) {
            self.metrics.limited.fetch_add(1, Ordering::Relaxed);
            return Err(NotTaken::Limited);
        }
        Ok(Asker { space, token })
    }

    /// Whether the store answers, soon.
    pub(super) async fn answers(self: &Arc<Self>) -> bool {
        let Ok(permit) = self.probe.clone().try_acquire_owned() else { return false };
        let state = self.clone();
        let look = tokio::spawn(async move {
            let _permit = permit;
            let space = state.first_space().await?;
            space.pool.look(|engine| engine.store()?.begin(Access::Read)?.now()).await
        });
        matches!(timeout(PROBE, look).await, Ok(Ok(Ok(_))))
    }

    /// How many spaces are open.
    pub(super) fn open_spaces(&self) -> usize {
        self.spaces.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    async fn space_of(self: &Arc<Self>, digest: &str) -> Result<Option<Arc<ServedSpace>>, StoreError> {
        if !self.rules.store.holds_spaces() {
            return self.first_space().await.map(Some);
        }
        let known = self.homes.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned();
        let name = match known {
            Some(name) => name,
            None => {
                let (first, asked) = (self.first_space().await?, digest.to_owned());
                let found = first.pool.run(move |engine| engine.space_of_token(&asked)).await??;
                let Some(name) = found else { return Ok(None) };
                let mut homes = self.homes.lock().unwrap_or_else(PoisonError::into_inner);
                if homes.len() >= REMEMBERED {
                    homes.clear();
                }
                homes.insert(digest.to_owned(), name.clone());
                name
            }
        };
        self.space(name).await.map(Some)
    }

    /// How many claims wait.
    pub(super) fn waiting(&self) -> usize {
        let spaces = self.spaces.lock().unwrap_or_else(PoisonError::into_inner);
        spaces.values().map(|(space, _)| space.waiting.count()).sum()
    }

    /// Takes nothing up any more: what waits is sent elsewhere.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
        for (space, _) in self.spaces.lock().unwrap_or_else(PoisonError::into_inner).values() {
            space.changed();
        }
    }

    pub(super) fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

fn open_provider(rules: &ServeRules) -> Result<Option<Arc<IdentityProvider>>, Error> {
    let Some(wanted) = &rules.identity else { return Ok(None) };
    let opened = IdentityProvider::open(wanted);
    opened.map(|provider| Some(Arc::new(provider))).map_err(io("ask", &PathBuf::from(&wanted.issuer)))
}

fn major(version: &str) -> &str {
    version.split('.').next().unwrap_or(version)
}
