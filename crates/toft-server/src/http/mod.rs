//! toft over HTTP: verbs are sent, and run here.
//!
//! `routes.rs` has the paths; `server_state.rs` finds out who asks and runs the verb on one of the `pool.rs`'s stores; a claim that
//! finds nothing waits in `waiting.rs`; `events.rs` streams the log; `openapi.rs` describes it all from the types.

mod answer;
mod events;
mod openapi;
mod pool;
mod routes;
mod server_state;
mod tls;
mod upkeep;
mod waiting;

use std::{future::Future, io, net::SocketAddr, path::PathBuf, sync::Arc};

use axum::serve::ListenerExt as _;
use toft_core::{retention::Retention, verbs::Policy};
use toft_session::engine::Home;
use tokio::net::TcpListener;

pub use openapi::openapi;

use pool::StorePool;
use server_state::ServerState;

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
    /// The settings of callers that bring none.
    pub policy: Policy,
    /// How long what is kept is.
    pub retention: Retention,
}

/// Serves until the process is told to end. `ready` gets the address once it is bound.
pub fn serve(rules: ServeRules, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(run(rules, ready))
}

async fn run(rules: ServeRules, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let pool = StorePool::open(&rules.store, rules.connections).map_err(io::Error::other)?;
    let state = Arc::new(ServerState::new(pool, rules.policy));
    let watch = tokio::spawn(waiting::watch(state.clone()));
    let upkeep = tokio::spawn(upkeep::forget_again_and_again(state.clone(), rules.retention));
    let listener = TcpListener::bind(rules.listen).await?;
    let address = listener.local_addr()?;
    let ended = {
        let state = state.clone();
        async move {
            told_to_end().await;
            state.drain();
        }
    };
    let router = routes::router(state);
    match rules.tls {
        None => {
            // An answer that waits for more bytes to send would take 40 ms.
            let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
            ready(address);
            axum::serve(listener, router).with_graceful_shutdown(ended).await?;
        }
        Some((chain, key)) => {
            let listener = tls::TlsListener::new(listener, &chain, &key)?;
            ready(address);
            axum::serve(listener, router).with_graceful_shutdown(ended).await?;
        }
    }
    watch.abort();
    upkeep.abort();
    Ok(())
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
