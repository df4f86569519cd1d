//! Connections: each is served by a task of its own, with or without TLS; who is slow holds up nobody.

use std::{future::Future, io, path::Path, pin::pin, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
    service::TowerToHyperService,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(20);
/// How long requests may take to end when the server ends.
const DRAIN: Duration = Duration::from_secs(10);
/// A pause if no connection can be accepted: there may be too many open files.
const FULL: Duration = Duration::from_millis(100);

/// Serves connections until `ended`, and then those that are open until their requests are answered.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    ended: impl Future<Output = ()>,
) {
    let (open, mut ended) = (GracefulShutdown::new(), pin!(ended));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut ended => break,
        };
        let Ok((stream, _)) = accepted else {
            sleep(FULL).await;
            continue;
        };
        // An answer that waits for more bytes to send would take 40 ms.
        drop(stream.set_nodelay(true));
        tokio::spawn(connect(stream, tls.clone(), router.clone(), open.watcher()));
    }
    drop(listener);
    // Who has not ended by then is cut off.
    let _ = timeout(DRAIN, open.shutdown()).await;
}

async fn connect(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, watcher: Watcher) {
    match tls {
        None => answer(stream, router, watcher).await,
        Some(tls) => {
            // Who cannot speak TLS is not answered.
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await {
                answer(stream, router, watcher).await;
            }
        }
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, router: Router, watcher: Watcher) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // A client that breaks off is nobody's concern.
    let _ = watcher.watch(connection).await;
}

/// TLS with this certificate chain and key.
pub(super) fn acceptor(chain: &Path, key: &Path) -> io::Result<TlsAcceptor> {
    let unread =
        |path: &Path, error: rustls::pki_types::pem::Error| io::Error::other(format!("{}: {error}", path.display()));
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(chain).and_then(Iterator::collect);
    let certificates = found.map_err(|error| unread(chain, error))?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unread(key, error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(io::Error::other)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
