//! TLS: connections are handed on when their handshake is done, so that a slow one holds up nobody.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes that are done and not taken up yet.
const DONE: usize = 64;

/// A listener whose connections are encrypted.
pub(super) struct TlsListener {
    address: SocketAddr,
    done: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl TlsListener {
    pub(super) fn new(listener: TcpListener, chain: &Path, key: &Path) -> io::Result<Self> {
        let unread = |path: &Path, error: rustls::pki_types::pem::Error| {
            io::Error::other(format!("{}: {error}", path.display()))
        };
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
        let (address, acceptor) = (listener.local_addr()?, TlsAcceptor::from(Arc::new(config)));
        let (sender, done) = mpsc::channel(DONE);
        tokio::spawn(accept(listener, acceptor, sender));
        Ok(Self { address, done })
    }
}

async fn accept(
    mut listener: TcpListener,
    acceptor: TlsAcceptor,
    done: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    loop {
        let (stream, from) = axum::serve::Listener::accept(&mut listener).await;
        let (acceptor, done) = (acceptor.clone(), done.clone());
        drop(stream.set_nodelay(true));
        tokio::spawn(async move {
            // Who cannot speak TLS is not answered.
            if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
                let _ = done.send((stream, from)).await;
            }
        });
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.done.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
