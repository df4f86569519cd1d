//! toft over HTTP: verbs are sent, and run here.
//!
//! `routes.rs` has the paths; `server_state.rs` finds out who asks, and for which space; `served_space.rs` runs the verb on one of
//! the stores of `pool.rs`, or hands it to `writer.rs`; a claim that finds nothing waits in `waiting.rs`; `events.rs` streams the log; `commits.rs` and `logs.rs` keep what
//! machines send beside verbs; `openapi.rs` describes it all from the types.

mod answer;
mod commits;
mod connections;
mod events;
mod logs;
mod openapi;
mod pool;
mod routes;
mod served_objects;
mod served_space;
mod server_state;
mod upkeep;
mod waiting;
mod writer;

use std::{future::Future, io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use toft_core::{retention::Retention, verbs::Policy};
use toft_session::{engine::Home, error::Error};
use tokio::net::TcpListener;

pub use openapi::openapi;

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
    /// The settings of callers that bring none.
    pub policy: Policy,
    /// How long history is kept.
    pub retention: Retention,
}

/// Serves until the process is told to end. `ready` gets the address once it is bound. The outer error is that of the store.
pub fn serve(rules: &ServeRules, ready: impl FnOnce(SocketAddr)) -> Result<io::Result<()>, Error> {
    // A connection to PostgreSQL has a runtime of its own, which begins and ends outside of this one.
    let state = Arc::new(ServerState::open(rules)?);
    let served = tokio::runtime::Builder::new_multi_thread().enable_all().build().and_then(|runtime| {
        let served = runtime.block_on(run(rules, &state, ready));
        runtime.shutdown_timeout(END);
        served
    });
    Ok(served)
}

async fn run(rules: &ServeRules, state: &Arc<ServerState>, ready: impl FnOnce(SocketAddr)) -> io::Result<()> {
    let tls = rules.tls.as_ref().map(|(chain, key)| connections::acceptor(chain, key)).transpose()?;
    let listener = TcpListener::bind(rules.listen).await?;
    ready(listener.local_addr()?);
    state.start();
    let ended = async {
        told_to_end().await;
        state.drain();
    };
    connections::serve(listener, tls, routes::router(state.clone()), ended).await;
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
