//! Who may ask: a browser that opened an address which was printed, by a host name that is known, from its own page.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Redirect, Response},
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
    cookie: &'static str,
    /// Where the board is opened.
    url: String,
    /// The secrets of addresses that were printed; each counts once.
    invites: Mutex<Vec<String>>,
    /// In the cookie of each browser that opened one.
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
        let cookie = match &address.url {
            Some(_) => "Path=/; HttpOnly; SameSite=Strict; Secure",
            None => "Path=/; HttpOnly; SameSite=Strict",
        };
        Ok(Self { hosts, origins, cookie, url, invites: Mutex::default(), session: secret()? })
    }

    /// An address that opens the board once.
    pub(crate) fn invite(&self) -> io::Result<String> {
        let secret = secret()?;
        let address = format!("{}/?token={secret}", self.url);
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

    /// Cookies do not tell ports apart: each board has its own name.
    fn cookie_name(&self) -> String {
        format!("toft_board_{}", self.hosts[0].rsplit(':').next().unwrap_or_default())
    }

    fn knows_session(&self, headers: &HeaderMap) -> bool {
        let wanted = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
        let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, value)| name == wanted && same(value, &self.session))
    }

    /// Exchanges the secret of an address for a cookie.
    fn open(&self, query: &str) -> Option<Response> {
        let token = query.split('&').find_map(|pair| pair.strip_prefix("token="))?;
        let mut invites = locked(&self.invites);
        let at = invites.iter().position(|known| same(known, token))?;
        invites.remove(at);
        let cookie = format!("{}={}; {}", self.cookie_name(), self.session, self.cookie);
        let mut answer = Redirect::to("/").into_response();
        answer.headers_mut().insert(header::SET_COOKIE, HeaderValue::from_str(&cookie).ok()?);
        Some(answer)
    }
}

/// Lets a request through, or says why not.
pub(crate) async fn check(State(state): State<Arc<BoardState>>, mut request: Request, next: Next) -> Response {
    let refused = |status: StatusCode, why: &'static str| (status, why).into_response();
    let access = &state.access;
    let Ok(nonce) = secret() else { return refused(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers") };
    let mut answer = if !access.knows_host(request.headers()) {
        refused(StatusCode::MISDIRECTED_REQUEST, "this board has another address")
    } else if request.method() != Method::GET && !access.knows_origin(request.headers()) {
        refused(StatusCode::FORBIDDEN, "this request comes from another page")
    } else if let Some(opened) = request.uri().query().and_then(|query| access.open(query)) {
        opened
    } else if access.knows_session(request.headers()) {
        request.extensions_mut().insert(Nonce(nonce.clone()));
        next.run(request).await
    } else {
        let why = "Open an address that `toft board` printed. Each opens once; Enter in its terminal prints another.";
        refused(StatusCode::UNAUTHORIZED, why)
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
        let query = url.strip_prefix("https://board.example/?").unwrap();
        assert!(access.open("token=").is_none() && access.open("token=x").is_none());
        let cookie = access.open(query).unwrap().headers()[header::SET_COOKIE].to_str().unwrap().to_owned();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && cookie.contains("Secure"));
        assert!(access.open(query).is_none(), "it was opened");
        let pair = cookie.split(';').next().unwrap();
        assert!(access.knows_session(&header(header::COOKIE, pair)));
        assert!(!access.knows_session(&header(header::COOKIE, "toft_board_7000=")));
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
