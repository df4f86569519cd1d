//! toft over HTTP: verbs are sent, and run here.
//!
//! `routes.rs` has the paths; `server_state.rs` finds out who asks, and for which space; `served_space.rs` runs the verb on one of
//! the stores of `pool.rs`, or hands it to `writer.rs`; a claim that finds nothing waits in `waiting.rs`; `events.rs` streams the log; `commits.rs`, `ledgers.rs` and `logs.rs` keep what
//! machines send beside verbs; `login.rs` makes tokens for people whom an identity provider knows; `server_log.rs`, `metrics.rs` and `traces.rs` say what happens; `openapi.rs` describes it all from the types.

mod answer;
mod commits;
mod connections;
mod events;
mod ledgers;
mod limits;
mod login;
mod logs;
mod metrics;
mod openapi;
mod pool;
mod routes;
mod served_objects;
mod served_space;
mod server_log;
mod server_state;
mod traces;
mod upkeep;
mod upload;
mod waiting;
mod writer;

use std::{future::Future, io, net::SocketAddr, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use serde_json::json;
use toft_core::{retention::Retention, verbs::Policy};
use toft_session::{engine::Home, error::Error};
use tokio::{net::TcpListener, sync::watch};

pub use openapi::openapi;
pub use server_log::ServerLog;

use crate::{blocking, identity::IdentityRules};
use server_state::ServerState;

/// How long what still runs may take to end.
const END: Duration = Duration::from_secs(2);

/// How a server is run.
#[derive(Clone, Debug)]
pub struct ServeRules {
    /// The store that it serves.
    pub store: Home,
    pub listen: SocketAddr,
    /// Certificate chain and key, in PEM.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Connections to the store.
    pub connections: usize,
    /// Writes a second from which a space on PostgreSQL is held in memory.
    pub hold_from: u32,
    /// Where commits and logs are kept: a directory, or `s3://BUCKET/PREFIX`; beside the store if that is a file.
    pub objects: Option<String>,
    /// Where figures for Prometheus are served.
    pub metrics: Option<SocketAddr>,
    /// Requests a second that each token may send; 0 for no limit.
    pub limit: u32,
    pub log: ServerLog,
    /// The collector that traces are sent to.
    pub traces: Option<String>,
    /// The identity provider that knows people.
    pub identity: Option<IdentityRules>,
    /// The settings of callers that bring none.
    pub policy: Policy,
    /// How long history is kept.
    pub retention: Retention,
}

/// A server that listens.
pub struct Listening {
    pub address: SocketAddr,
    /// Becomes true when it ends: what lasts has to end, too.
    pub ending: watch::Receiver<bool>,
}

/// Serves until the process is told to end. `ready` is called once the address is bound, and returns pages to serve beside. The
/// outer error is that of the store.
pub fn serve(rules: &ServeRules, ready: impl FnOnce(Listening) -> Option<Router>) -> Result<io::Result<()>, Error> {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Ok(Err(error)),
    };
    let (opened, served) = runtime.block_on(run(rules, ready));
    runtime.shutdown_timeout(END);
    // A connection to PostgreSQL has a runtime of its own, which ends outside of this one.
    drop(opened);
    served
}

async fn run(
    rules: &ServeRules,
    ready: impl FnOnce(Listening) -> Option<Router>,
) -> (Option<Arc<ServerState>>, Result<io::Result<()>, Error>) {
    // The first process of a container is not ended by a signal that it does not listen to.
    let mut told = pin!(told_to_end());
    let own = rules.clone();
    let open = blocking::run(move || ServerState::open(&own).map(Arc::new));
    let opened = tokio::select! {
        opened = open => opened,
        () = &mut told => return (None, Ok(Ok(()))),
    };
    let state = match opened {
        Some(Ok(state)) => state,
        Some(Err(error)) => return (None, Err(error)),
        None => return (None, Ok(Err(io::Error::other("the store could not be opened")))),
    };
    let served = listen(rules, &state, told, ready).await;
    (Some(state), Ok(served))
}

async fn listen(
    rules: &ServeRules,
    state: &Arc<ServerState>,
    told: impl Future<Output = ()>,
    ready: impl FnOnce(Listening) -> Option<Router>,
) -> io::Result<()> {
    let tls = rules.tls.as_ref().map(|(chain, key)| connections::acceptor(chain, key)).transpose()?;
    let listener = bind(rules.listen).await?;
    if let Some(address) = rules.metrics {
        let (listener, router) = (bind(address).await?, routes::metrics_router(state.clone()));
        tokio::spawn(connections::serve(listener, None, router, std::future::pending()));
    }
    let address = listener.local_addr()?;
    let (end, ending) = watch::channel(false);
    let pages = ready(Listening { address, ending }).unwrap_or_default();
    state.log.event("started", json!({ "address": address.to_string(), "version": env!("CARGO_PKG_VERSION") }));
    state.start();
    let ended = async {
        told.await;
        state.log.event("draining", json!({ "waiting": state.waiting() }));
        state.drain();
        // Nobody may listen.
        let _ = end.send(true);
    };
    connections::serve(listener, tls, routes::router(state.clone()).merge(pages), ended).await;
    state.log.event("stopped", json!({}));
    Ok(())
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{address}: {error}"));
    TcpListener::bind(address).await.map_err(named)
}

fn told_to_end() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let signals = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
    async move {
        let [terminate, interrupt] = signals;
        match (terminate, interrupt) {
            (Ok(mut terminate), Ok(mut interrupt)) => {
                tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
            }
            _ => std::future::pending().await,
        }
    }
}
