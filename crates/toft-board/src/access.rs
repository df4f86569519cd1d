//! Who may ask: a browser that opened an address which was printed, or a person with a token of the server; by a host name
//! that is known, from its own page.
//!
//! A cookie would go to every other port of this machine, where agents serve what they write. So the page keeps its secret
//! where only its own origin reads it, and sends it in a header.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{BoardState, locked, people::PeopleBoards};

/// Bytes of a secret, and of another request; how long a body may take.
const LONGEST_SECRET: usize = 1_000;
const LONGEST_BODY: usize = 1 << 20;
const SLOWEST_BODY: Duration = Duration::from_secs(5);
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
    door: BoardDoor,
}

/// What opens the board.
pub(crate) enum BoardDoor {
    Address(PrintedAddresses),
    Token(PeopleBoards),
}

/// Addresses that were printed, and the board that they open.
pub(crate) struct PrintedAddresses {
    /// Their secrets; each counts once.
    invites: Mutex<Vec<String>>,
    /// What each browser that opened one sends with its requests.
    session: String,
    board: Arc<BoardState>,
}

/// The nonce of a response: what it may load carries it.
#[derive(Clone)]
pub(crate) struct Nonce(pub(crate) String);

pub(crate) fn secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(blake3::hash(&bytes).to_hex().to_string())
}

/// Compares without telling by its time how much is right.
fn same(one: &str, other: &str) -> bool {
    blake3::hash(one.as_bytes()) == blake3::hash(other.as_bytes())
}

impl PrintedAddresses {
    pub(crate) fn to(board: Arc<BoardState>) -> io::Result<Self> {
        Ok(Self { invites: Mutex::default(), session: secret()?, board })
    }

    /// A new secret.
    fn invite(&self) -> io::Result<String> {
        let secret = secret()?;
        let mut invites = locked(&self.invites);
        invites.push(secret.clone());
        let old = invites.len().saturating_sub(INVITES);
        invites.drain(..old);
        Ok(secret)
    }

    /// Exchanges the secret of an address for that of a session.
    fn open(&self, secret: &str) -> Option<String> {
        let mut invites = locked(&self.invites);
        let at = invites.iter().position(|known| same(known, secret))?;
        invites.remove(at);
        Some(self.session.clone())
    }
}

impl BoardAccess {
    pub(crate) fn new(address: &BoardAddress, door: BoardDoor) -> Self {
        let port = address.listen.port();
        let mut hosts = vec![address.listen.to_string(), format!("localhost:{port}")];
        let mut origins: Vec<String> = hosts.iter().map(|host| format!("http://{host}")).collect();
        let mut url = format!("http://{}", address.listen);
        if let Some(outside) = &address.url {
            outside.trim_end_matches('/').clone_into(&mut url);
            hosts.extend(url.split_once("://").map(|(_, host)| host.to_owned()));
            origins.push(url.clone());
        }
        Self { hosts, origins, url, door }
    }

    /// The boards of people at an address.
    pub(crate) fn of_people(url: &str, people: PeopleBoards) -> Self {
        let url = url.trim_end_matches('/').to_owned();
        let hosts = url.split_once("://").map(|(_, host)| host.to_owned()).into_iter().collect();
        Self { hosts, origins: vec![url.clone()], url, door: BoardDoor::Token(people) }
    }

    /// An address that opens the board once, if addresses open it.
    pub(crate) fn invite(&self) -> io::Result<String> {
        match &self.door {
            BoardDoor::Address(printed) => Ok(format!("{}/#{}", self.url, printed.invite()?)),
            BoardDoor::Token(_) => Ok(self.url.clone()),
        }
    }

    /// The boards of people, if tokens open them.
    pub(crate) fn people(&self) -> Option<&PeopleBoards> {
        match &self.door {
            BoardDoor::Address(_) => None,
            BoardDoor::Token(people) => Some(people),
        }
    }

    fn knows_host(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        host.is_some_and(|host| self.hosts.iter().any(|known| known == host))
    }

    fn knows_origin(&self, headers: &HeaderMap) -> bool {
        let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
        origin.is_some_and(|origin| self.origins.iter().any(|known| origin == known))
    }

    /// The board that a request may see.
    async fn board(&self, headers: &HeaderMap) -> Result<Arc<BoardState>, Response> {
        let sent = headers.get(header::AUTHORIZATION).and_then(|sent| sent.to_str().ok());
        let sent = sent.and_then(|sent| sent.strip_prefix("Bearer ")).unwrap_or_default();
        match &self.door {
            BoardDoor::Address(printed) if same(sent, &printed.session) => Ok(printed.board.clone()),
            BoardDoor::Address(_) => Err((StatusCode::UNAUTHORIZED, CLOSED).into_response()),
            BoardDoor::Token(people) => people.board(sent).await,
        }
    }
}

/// The secret of an address becomes that of a session, once. A token is one.
pub(crate) async fn open(State(access): State<Arc<BoardAccess>>, secret: String) -> Response {
    match &access.door {
        BoardDoor::Address(printed) => match printed.open(&secret) {
            Some(session) => session.into_response(),
            None => (StatusCode::UNAUTHORIZED, CLOSED).into_response(),
        },
        BoardDoor::Token(people) => match people.board(&secret).await {
            Ok(_) => secret.into_response(),
            Err(refused) => refused,
        },
    }
}

/// What a stranger is told.
const CLOSED: &str = "Open an address that toft board printed. Each opens once; Enter in its terminal prints another.";

/// What everybody gets: the page without anything in it, and what opens it.
fn is_public(path: &str) -> bool {
    matches!(path, "/" | "/issue" | "/open" | "/sign-in" | "/assets/board.css" | "/assets/board.js")
}

/// The request with all of its body, which has to be there soon.
async fn whole(request: Request, longest: usize) -> Result<Request, Response> {
    let (head, body) = request.into_parts();
    match tokio::time::timeout(SLOWEST_BODY, to_bytes(body, longest)).await {
        Ok(Ok(bytes)) => Ok(Request::from_parts(head, Body::from(bytes))),
        Ok(Err(_)) => Err((StatusCode::PAYLOAD_TOO_LARGE, "that is too long").into_response()),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT.into_response()),
    }
}

/// Lets a request through, or says why not.
pub(crate) async fn check(State(access): State<Arc<BoardAccess>>, mut request: Request, next: Next) -> Response {
    let refused = |status: StatusCode, why: &'static str| (status, why).into_response();
    let Ok(nonce) = secret() else { return refused(StatusCode::INTERNAL_SERVER_ERROR, "no random numbers") };
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let mut answer = if hosts != 1 || !access.knows_host(request.headers()) {
        refused(StatusCode::MISDIRECTED_REQUEST, "this board has another address")
    } else if request.method() != Method::GET && !access.knows_origin(request.headers()) {
        refused(StatusCode::FORBIDDEN, "this request comes from another page")
    } else if is_public(request.uri().path()) {
        request.extensions_mut().insert(Nonce(nonce.clone()));
        match whole(request, LONGEST_SECRET).await {
            Ok(request) => next.run(request).await,
            Err(refused) => refused,
        }
    } else {
        match access.board(request.headers()).await {
            Ok(board) => {
                request.extensions_mut().insert(board);
                match whole(request, LONGEST_BODY).await {
                    Ok(request) => next.run(request).await,
                    Err(refused) => refused,
                }
            }
            Err(refused) => refused,
        }
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
        let people = PeopleBoards::new(Arc::new(|_| unreachable!()), None);
        let address = BoardAddress { listen, url: Some("https://board.example/".into()) };
        BoardAccess::new(&address, BoardDoor::Token(people))
    }

    fn header(name: header::HeaderName, value: &str) -> HeaderMap {
        [(name, HeaderValue::from_str(value).unwrap())].into_iter().collect()
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
