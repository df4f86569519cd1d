//! A store on a toft server. A verb is sent whole and run there; nothing of the store is read here.
//!
//! A write that gets no answer is sent again with the same operation id, so it is done once. While a server restarts or
//! another takes over, requests are repeated for [`PATIENCE`].

mod address;
mod device;
mod objects;

use std::{
    collections::HashMap,
    io::ErrorKind,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use toft_core::{
    id::RepositoryId,
    refusal::{SentError, VerbError, VerbResult},
    store::{Access, Fault, Result as StoreResult, StoreError},
    verbs::AnyRun,
    wire::{
        LONGEST_WAIT, LedgerEnd, PROTOCOL, PROTOCOL_HEADER, SPACE_HEADER, SentCall, SentChanges, SentOutcome, SentToken,
    },
};
use ureq::{
    Agent, Body,
    http::{Response, StatusCode},
    tls::{Certificate, RootCerts, TlsConfig},
};

pub use address::ServerAddress;
pub use device::DeviceLogin;
pub use objects::{LedgerPart, LogPart};

/// How long a server may be away before a command fails: longer than a database server's failover takes.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a server may take to answer a request that does not wait.
const ANSWER: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
/// Pauses between tries: short at first.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Ledgers that could not be exchanged are tried again after this.
const EXCHANGE_AGAIN: Duration = Duration::from_secs(30);
/// A wait that is longer than this is told.
const TOLD_AFTER: Duration = Duration::from_millis(500);
/// The largest answer that is read.
const LARGEST: u64 = 256 << 20;

/// A store on a toft server.
pub struct RemoteStore {
    address: ServerAddress,
    token: String,
    agent: Agent,
    patience: Duration,
    /// Nobody answered for as long as that: the next request is not as patient.
    gave_up: AtomicBool,
    /// How far ledgers were read, and when.
    ledgers: Mutex<HashMap<RepositoryId, (LedgerEnd, Instant)>>,
    /// When they could not be.
    exchange_failed: Mutex<Option<Instant>>,
}

/// How long a request waits.
struct Patience {
    /// Until one request is answered.
    answer: Duration,
    /// For a server that answers; none: as long as this store usually does.
    tries: Option<Duration>,
}

impl From<Duration> for Patience {
    fn from(answer: Duration) -> Self {
        Self { answer, tries: None }
    }
}

/// What is called when a server does not answer, with its address and the reason.
static ON_WAIT: OnceLock<fn(&str)> = OnceLock::new();

/// From now on `tell` is called once for each request that waits for a server which does not answer.
pub fn on_wait(tell: fn(&str)) {
    // The first one counts.
    let _ = ON_WAIT.set(tell);
}

impl RemoteStore {
    /// A store at `address`. Nothing is sent yet.
    pub fn new(address: ServerAddress, token: String) -> StoreResult<Self> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT))
            .user_agent(concat!("toft/", env!("CARGO_PKG_VERSION")));
        config = match address.encrypted() {
            true => config.tls_config(trusted(&address)?),
            // A proxy would read what stays on this machine.
            false => config.proxy(None),
        };
        let agent = config.build().new_agent();
        let (gave_up, ledgers) = (AtomicBool::new(false), Mutex::default());
        Ok(Self { agent, address, token, patience: PATIENCE, gave_up, ledgers, exchange_failed: Mutex::default() })
    }

    /// Gives up after this long without an answer.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The server.
    pub fn address(&self) -> &ServerAddress {
        &self.address
    }

    /// Runs a verb on the server, and puts the outcome into `run`. If nothing can be done now, the server waits up to
    /// `wait` until something can.
    pub fn call(&self, call: &SentCall, run: &mut dyn AnyRun, wait: Duration) -> VerbResult<()> {
        let wait = wait.min(LONGEST_WAIT);
        let path = match wait.is_zero() {
            true => format!("/v1/verbs/{}", run.name()),
            false => format!("/v1/verbs/{}?wait={}{}", run.name(), wait.as_millis(), self.read_ledger(call)),
        };
        let body = serde_json::to_vec(call).map_err(|error| self.failed("write a request", &error.to_string()))?;
        let repeatable = run.access() == Access::Read || call.op.is_some();
        let answer =
            self.send("POST", &path, &[], Some(&body), ANSWER + wait, repeatable).map_err(|error| match error {
                StoreError::Unreachable { .. } if !repeatable => unknown(call),
                error => error,
            })?;
        let said: SentOutcome = self.read(answer)?;
        run.set_outcome(&said.outcome)
            .map_err(|error| self.failed("read an answer of the server", &error.to_string()).into())
    }

    /// How far the ledger was read in which a claim looked, as a part of a query. It is read again before the next claim.
    fn read_ledger(&self, call: &SentCall) -> String {
        let Some(repository) = &call.caller.place.repository else { return String::new() };
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let read = ledgers.remove(repository);
        read.map(|(end, _)| format!("&ledger={repository}:{end}")).unwrap_or_default()
    }

    fn note_ledger(&self, repository: &RepositoryId, end: LedgerEnd) {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.insert(repository.clone(), (end, Instant::now()));
    }

    /// Notes whether ledgers can be exchanged; after a failure it is not tried again for a while.
    fn note_exchange<T>(&self, done: StoreResult<T>) -> StoreResult<T> {
        let mut failed = self.exchange_failed.lock().unwrap_or_else(PoisonError::into_inner);
        *failed = done.is_err().then(Instant::now);
        done
    }

    /// Whether a ledger was read so short a time ago, or could not be.
    pub fn has_read_ledger(&self, repository: &RepositoryId, age: Duration) -> bool {
        let failed = *self.exchange_failed.lock().unwrap_or_else(PoisonError::into_inner);
        if failed.is_some_and(|at| at.elapsed() < EXCHANGE_AGAIN) {
            return true;
        }
        let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.get(repository).is_some_and(|(_, at)| at.elapsed() < age)
    }

    /// Waits up to `wait` for a change after `counter`; returns the counter of the last change.
    pub fn changes(&self, counter: Option<u64>, wait: Duration) -> StoreResult<u64> {
        let wait = wait.min(LONGEST_WAIT);
        let after = counter.map(|counter| format!("after={counter}&wait={}", wait.as_millis())).unwrap_or_default();
        let answer = self.send("GET", &format!("/v1/changes?{after}"), &[], None, ANSWER + wait, true)?;
        let said: SentChanges = self.read(answer).map_err(only_failed)?;
        Ok(said.counter)
    }

    /// Whose the token is.
    pub fn own_token(&self) -> StoreResult<SentToken> {
        let answer = self.send("GET", "/v1/token", &[], None, ANSWER, true)?;
        self.read(answer).map_err(only_failed)
    }

    /// Keeps a large value under its digest.
    pub fn keep_blob(&self, blob: &str, text: &str) -> StoreResult<()> {
        let answer = self.send("PUT", &format!("/v1/blobs/{blob}"), &[], Some(text.as_bytes()), ANSWER, true)?;
        self.text(answer).map(drop).map_err(only_failed)
    }

    /// A large value.
    pub fn blob(&self, blob: &str) -> StoreResult<String> {
        let answer = self.send("GET", &format!("/v1/blobs/{blob}"), &[], None, ANSWER, true)?;
        let text = self.text(answer).map_err(only_failed)?;
        match blake3::hash(text.as_bytes()).to_hex().as_str() == blob {
            true => Ok(text),
            false => Err(self.failed("read a blob", "it is not what its name says")),
        }
    }

    /// Sends a request, and again for as long as no server answers.
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
        patience: impl Into<Patience>,
        repeatable: bool,
    ) -> StoreResult<Response<Body>> {
        let Patience { answer: for_answer, tries } = patience.into();
        let usual = tries.is_none();
        let gave_up = usual && self.gave_up.load(Ordering::Relaxed);
        let tries = if gave_up { Duration::ZERO } else { tries.unwrap_or(self.patience) };
        let (begun, mut pause, mut told) = (Instant::now(), FIRST_PAUSE, false);
        loop {
            let cause = match self.send_once(method, path, headers, body, for_answer) {
                Ok(answer) if !is_away(answer.status()) => {
                    self.gave_up.store(false, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(answer) => format!("it answers {}", answer.status()),
                Err(error) => {
                    if is_lasting(&error) || was_sent(&error) && !repeatable {
                        self.gave_up.fetch_or(usual, Ordering::Relaxed);
                        return Err(self.unreachable(error.to_string()));
                    }
                    error.to_string()
                }
            };
            if begun.elapsed() + pause >= tries {
                self.gave_up.fetch_or(usual, Ordering::Relaxed);
                return Err(self.unreachable(cause));
            }
            if let Some(tell) = ON_WAIT.get().filter(|_| !told && begun.elapsed() > TOLD_AFTER) {
                told = true;
                let seconds = tries.as_secs();
                tell(&format!("{} does not answer ({cause}); asking again for {seconds} s", self.address));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    fn send_once(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&[u8]>,
        patience: Duration,
    ) -> Result<Response<Body>, ureq::Error> {
        let url = format!("{}{path}", self.address.origin());
        let mut request = ureq::http::Request::builder()
            .method(method)
            .uri(url)
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .header(SPACE_HEADER, self.address.space())
            .header(PROTOCOL_HEADER, PROTOCOL);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(trace) = trace_of_caller() {
            request = request.header("traceparent", trace);
        }
        let configured = |request| self.agent.configure_request(request).timeout_global(Some(patience)).build();
        match body {
            Some(body) => {
                self.agent.run(self.agent.configure_request(request.body(body)?).timeout_global(Some(patience)).build())
            }
            None => self.agent.run(configured(request.body(())?)),
        }
    }

    fn text(&self, mut answer: Response<Body>) -> VerbResult<String> {
        let status = answer.status();
        let text = answer.body_mut().with_config().limit(LARGEST).read_to_string();
        let text = text.map_err(|error| self.unreachable(error.to_string()))?;
        if status.is_success() {
            return Ok(text);
        }
        let sent = serde_json::from_str::<SentError>(&text).ok().filter(|_| status != StatusCode::UNAUTHORIZED);
        if let Some(error) = sent {
            return Err(error.into());
        }
        let cause = match status {
            StatusCode::UNAUTHORIZED => "the server does not know this token".to_owned(),
            _ => format!("{status}: {}", text.chars().take(300).collect::<String>()),
        };
        let doing = format!("ask {}", self.address);
        Err(StoreError::Blocked { fault: Fault::Credentials, doing, cause }.into())
    }

    fn read<T: serde::de::DeserializeOwned>(&self, answer: Response<Body>) -> VerbResult<T> {
        let text = self.text(answer)?;
        serde_json::from_str(&text)
            .map_err(|error| self.failed("read an answer of the server", &error.to_string()).into())
    }

    /// The error of a caller that wants a transaction: a server runs verbs.
    pub fn without_transactions(&self) -> StoreError {
        self.failed("open a transaction", "a server runs verbs, not transactions of its clients")
    }

    fn failed(&self, doing: &str, cause: &str) -> StoreError {
        StoreError::Failed { doing: doing.to_owned(), cause: format!("{}: {cause}", self.address) }
    }

    fn unreachable(&self, cause: String) -> StoreError {
        StoreError::Unreachable { server: self.address.to_string(), cause }
    }
}

/// The trace that this command is a part of, as its caller says it in the environment.
fn trace_of_caller() -> Option<String> {
    let plain = |text: &String| text.len() < 128 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    std::env::var("TRACEPARENT").ok().filter(plain)
}

/// Whether the server may have got the request.
fn was_sent(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => false,
        ureq::Error::Io(cause) => cause.kind() != ErrorKind::ConnectionRefused,
        _ => true,
    }
}

/// Whether asking again does not help: a certificate does not become valid.
fn is_lasting(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Io(cause) => cause.kind() == ErrorKind::InvalidData,
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::BadUri(_) | ureq::Error::Http(_) => true,
        _ => false,
    }
}

/// Whether a server, or what is in front of it, says that nobody can answer now.
fn is_away(status: StatusCode) -> bool {
    let busy = status == StatusCode::TOO_MANY_REQUESTS;
    busy || matches!(status, StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

fn unknown(call: &SentCall) -> StoreError {
    let op = call.op.as_ref().map_or_else(|| "this operation".to_owned(), |op| op.id.to_string());
    StoreError::OutcomeUnknown { op }
}

fn only_failed(error: VerbError) -> StoreError {
    match error {
        VerbError::Failed(error) => error,
        VerbError::Refused(refusal) => {
            StoreError::Failed { doing: "ask the server".into(), cause: refusal.to_string() }
        }
    }
}

/// TLS with the certificates of the system, or of a file; always verified.
fn trusted(address: &ServerAddress) -> StoreResult<TlsConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = match address.authority() {
        Some(file) => {
            let wrong = |cause: String| StoreError::Failed { doing: format!("read {}", file.display()), cause };
            let pem = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
            let read = ureq::tls::parse_pem(&pem).filter_map(|item| match item {
                Ok(ureq::tls::PemItem::Certificate(certificate)) => Some(Ok(certificate)),
                Ok(_) => None,
                Err(error) => Some(Err(wrong(error.to_string()))),
            });
            RootCerts::from(read.collect::<StoreResult<Vec<_>>>()?)
        }
        None => {
            let native = rustls_native_certs::load_native_certs().certs;
            RootCerts::from(native.into_iter().map(|found| Certificate::from_der(&found).to_owned()))
        }
    };
    Ok(TlsConfig::builder().unversioned_rustls_crypto_provider(provider).root_certs(roots).build())
}
