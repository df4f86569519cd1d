//! Who may ask: a browser that opened an address which was printed, by a host name that is known, from its own page.
//!
//! A cookie would go to every other port of this machine, where agents serve what they write. So the page keeps its secret
//! where only its own origin reads it, and sends it in a header.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{BoardState, locked};

/// Addresses that were printed and not opened.
const INVITES: usize = 16;

/// Where the board is.
#[derive(Clone, Debug)]
pub struct BoardAddress {
    /// A port of this machine.
    pub listen: SocketAddr,
    /// What browsers of other machines call it, if a proxy with TLS passes their requests on: `https://board.example`.
    pub url: Option<String>,
}

/// What lets a request in.
pub(crate) struct BoardAccess {
    /// The hosts that a request may name.
    hosts: Vec<String>,
    /// The pages that may send writes.
    origins: Vec<String>,
    /// Where the board is opened.
    url: String,
    /// The secrets of addresses that were printed; each counts once.
    invites: Mutex<Vec<String>>,
    /// What each browser that opened one sends with its requests.
    session: String,
}

/// The nonce of a response: what it may load carries it.
#[derive(Clone)]
pub(crate) struct Nonce(pub(crate) String);

fn secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}

/// Compares without telling by its time how much is right.
fn same(one: &str, other: &str) -> bool {
    blake3::hash(one.as_bytes()) == blake3::hash(other.as_bytes())
}

impl BoardAccess {
    pub(crate) fn new(address: &BoardAddress) -> io::Result<Self> {
        let port = address.listen.port();
        let mut hosts = vec![address.listen.to_string(), format!("localhost:{port}")];
        let mut origins: Vec<String> = hosts.iter().map(|host| format!("http://{host}")).collect();
        let mut url = format!("http://{}", address.listen);
        if let Some(outside) = &address.url {
            outside.trim_end_matches('/').clone_into(&mut url);
            hosts.extend(url.split_once("://").map(|(_, host)| host.to_owned()));
            origins.push(url.clone());
        }
        Ok(Self { hosts, origins, url, invites: Mutex::default(), session: secret()? })
    }

    /// An address that opens the board once.
    pub(crate) fn invite(&self) -> io::Result<String> {
        let secret = secret()?;
        let address = format!("{}/#{secret}", self.url);
        let mut invites = locked(&self.invites);
        invites.push(secret);
        let old = invites.len().saturating_sub(INVITES);
        invites.drain(..old);
        Ok(address)
    }

    fn knows_host(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        host.is_some_and(|host| self.hosts.iter().any(|known| known == host))
    }

    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
        origin.is_some_and(|origin| self.origins.iter().any(|known| origin == known))
    }

    fn knows_session(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(header::AUTHORIZATION).and_then(|sent| sent.to_str().ok());
        sent.and_then(|sent| sent.strip_prefix("Bearer ")).is_some_and(|sent| same(sent, &self.session))
    }

    /// Exchanges the secret of an address for that of a session.
    fn open(&self, secret: &str) -> Option<String> {
        let mut invites = locked(&self.invites);
        let at = invites.iter().position(|known| same(known, secret))?;
        invites.remove(at);
        Some(self.session.clone())
    }
}

/// The secret of an address becomes that of a session, once.
pub(crate) async fn open(State(state): State<Arc<BoardState>>, secret: String) -> Response {
    match state.access.open(&secret) {
        Some(session) => session.into_response(),
        None => (StatusCode::UNAUTHORIZED, CLOSED).into_response(),
    }
}

/// What a stranger is told.
const CLOSED: &str = "Open an address that toft board printed. Each opens once; Enter in its terminal prints another.";

/// What everybody on this machine gets: the page without anything in it.
fn is_public(path: &str) -> bool {
    matches!(path, "/" | "/issue" | "/open" | "/assets/board.css" | "/assets/board.js")
}

/// Lets a request through, or says why not.
pub(crate) async fn check(State(state): State<Arc<BoardState>>, mut request: Request, next: Next) -> Response {
    let refused = |status: StatusCode, why: &'static str| (status, why).into_response();
    let access = &state.access;
    let Ok(nonce) = secret() else { return refused(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers") };
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let mut answer = if hosts != 1 || !access.knows_host(request.headers()) {
        refused(StatusCode::MISDIRECTED_REQUEST, "this board has another address")
    } else if request.method() != Method::GET && !access.knows_origin(request.headers()) {
        refused(StatusCode::FORBIDDEN, "this request comes from another page")
    } else if is_public(request.uri().path()) || access.knows_session(request.headers()) {
        request.extensions_mut().insert(Nonce(nonce.clone()));
        next.run(request).await
    } else {
        refused(StatusCode::UNAUTHORIZED, CLOSED)
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self' data:; connect-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    let headers = answer.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> BoardAccess {
        let listen = "127.0.0.1:7000".parse().unwrap();
        BoardAccess::new(&BoardAddress { listen, url: Some("https://board.example/".into()) }).unwrap()
    }

    fn header(name: header::HeaderName, value: &str) -> HeaderMap {
        [(name, HeaderValue::from_str(value).unwrap())].into_iter().collect()
    }

    #[test]
    fn an_address_opens_once() {
        let access = access();
        let url = access.invite().unwrap();
        let secret = url.strip_prefix("https://board.example/#").unwrap();
        assert!(access.open("").is_none() && access.open("x").is_none());
        let session = access.open(secret).unwrap();
        assert!(access.open(secret).is_none(), "it was opened");
        assert!(access.knows_session(&header(header::AUTHORIZATION, &format!("Bearer {session}"))));
        for wrong in ["Bearer ", "Bearer x", &session, secret] {
            assert!(!access.knows_session(&header(header::AUTHORIZATION, wrong)), "{wrong}");
        }
    }

    #[test]
    fn hosts_and_origins_are_exact() {
        let access = access();
        for (host, known) in [
            ("127.0.0.1:7000", true),
            ("localhost:7000", true),
            ("board.example", true),
            ("localhost", false),
            ("localhost:7001", false),
            ("evil.example", false),
            ("127.0.0.1:7000.evil.example", false),
        ] {
            assert_eq!(access.knows_host(&header(header::HOST, host)), known, "{host}");
        }
        for (origin, known) in [
            ("http://127.0.0.1:7000", true),
            ("https://board.example", true),
            ("http://board.example", false),
            ("null", false),
            ("http://localhost:3000", false),
        ] {
            assert_eq!(access.knows_origin(&header(header::ORIGIN, origin)), known, "{origin}");
        }
        assert!(!access.knows_origin(&HeaderMap::new()));
    }
}
