//! How S3 is reached: by ureq, as everything else that toft asks over HTTP.

use std::{io, sync::Arc, time::Duration};

use axum::body::{Body, to_bytes};
use object_store::{
    ClientOptions,
    client::{HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService},
};
use ureq::{
    Agent,
    http::Response,
    tls::{Certificate, RootCerts, TlsConfig},
};

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(60);
/// The largest answer.
const LARGEST: u64 = 256 << 20;

/// Connects to S3.
#[derive(Debug)]
pub(super) struct UreqConnector;

impl HttpConnector for UreqConnector {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(UreqService(agent(ANSWER))))
    }
}

/// What asks over HTTP, with the certificates of the system, and follows nobody elsewhere.
pub(crate) fn agent(patience: Duration) -> Agent {
    let native = rustls_native_certs::load_native_certs().certs;
    let roots = RootCerts::from(native.into_iter().map(|found| Certificate::from_der(&found).to_owned()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder().unversioned_rustls_crypto_provider(provider).root_certs(roots).build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(patience))
        .tls_config(tls);
    config.build().new_agent()
}

#[derive(Debug)]
struct UreqService(Agent);

#[async_trait::async_trait]
impl HttpService for UreqService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let body = to_bytes(Body::new(body), usize::MAX).await;
        let body = body.map_err(|error| HttpError::new(HttpErrorKind::Request, error))?;
        let agent = self.0.clone();
        let asked = tokio::task::spawn_blocking(move || {
            let request = ureq::http::Request::from_parts(parts, body.as_ref());
            let (parts, mut body) = agent.run(request).map_err(of_ureq)?.into_parts();
            let body = body.with_config().limit(LARGEST).read_to_vec().map_err(of_ureq)?;
            Ok(Response::from_parts(parts, body.into()))
        });
        asked.await.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, io::Error::other(error)))?
    }
}

fn of_ureq(error: ureq::Error) -> HttpError {
    let kind = match &error {
        ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => HttpErrorKind::Connect,
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::Io(_) => HttpErrorKind::Interrupted,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, error)
}
