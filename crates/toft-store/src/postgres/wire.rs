//! One connection: statements are sent together and their answers are received together.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use toft_core::store::{Result, StoreError};
use tokio::{runtime::Runtime, sync::Notify};
use tokio_postgres::{
    AsyncMessage, Client, NoTls, SimpleQueryMessage, SimpleQueryRow,
    config::SslMode,
    error::{Severity, SqlState},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    quote,
    url::{StoreAddress, reason},
};
use crate::value::Value;

/// Maximum duration of a statement, and of waiting for a lock.
const STATEMENT: Duration = Duration::from_secs(30);
const LOCK: Duration = Duration::from_secs(10);
/// After this long without an answer the connection counts as lost. toft never sends a cancel request: if it arrived
/// while a commit waits for its standby, the server would report success for data that is on one disk only.
const ANSWER: Duration = Duration::from_secs(45);
const CONNECT: Duration = Duration::from_secs(5);

/// A setting that shows that a session is ours from end to end, and not shared by a pooler between transactions.
const MARK: &str = "toft.direct";

/// How every write transaction begins: each statement sees the newest state, whatever the server's default.
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// A statement with its values, to be sent later.
pub(super) type Statement = (String, Vec<Value<'static>>);

/// A statement to send, with its values.
pub(super) type Send<'s> = (&'s str, &'s [Value<'s>]);

/// An error of a connection.
#[derive(Clone, Debug)]
pub(super) enum WireError {
    /// The server answered, with an error.
    Refused { code: SqlState, text: String },
    /// No answer; whether the server executed it is unknown.
    Lost(String),
}

impl WireError {
    /// The rows that were read are inconsistent.
    pub(super) fn inconsistent() -> Self {
        Self::Refused { code: SqlState::T_R_SERIALIZATION_FAILURE, text: "what was read has changed".into() }
    }

    fn from(error: &tokio_postgres::Error) -> Self {
        match error.code() {
            // The server is about to close the connection: what follows is not known.
            Some(code) if !closing(code) => Self::Refused { code: code.clone(), text: reason(error) },
            _ => Self::Lost(reason(error)),
        }
    }
}

fn closing(code: &SqlState) -> bool {
    let word = code.code();
    word.starts_with("57P") || word.starts_with("08") || ["25P03", "25P04"].contains(&word)
}

pub(super) struct Wire {
    client: Client,
    runtime: Runtime,
    /// Names of the prepared statements, by text.
    names: HashMap<String, String>,
    /// Statements are prepared: the session is ours, and lives long enough.
    named: bool,
    /// The statement that makes the settings in every transaction, behind a pooler.
    pub(super) local_settings: Option<String>,
    /// The server sent a warning since the last check.
    warned: Arc<AtomicBool>,
    /// A short-lived process.
    brief: bool,
    /// A transaction has to be ended before the next one begins.
    leftover: bool,
    /// A notification arrived.
    heard: Arc<Notify>,
}

impl Wire {
    /// Connects. `brief` is for a short-lived process.
    pub(super) fn connect(address: &StoreAddress, brief: bool) -> std::result::Result<Self, WireError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| WireError::Lost(error.to_string()))?;
        let ms = |span: Duration| span.as_millis().to_string();
        let settings = [
            ("search_path", format!("\"{}\"", address.schema)),
            // Rows of other spaces are hidden by the server, too.
            ("toft.space", address.space.clone()),
            ("statement_timeout", ms(STATEMENT)),
            ("lock_timeout", ms(LOCK)),
            ("idle_in_transaction_session_timeout", ms(STATEMENT)),
            // Every question has its index. The planner, which may have seen a table when it was empty, must not
            // think that reading it through is cheaper.
            ("enable_seqscan", "off".to_owned()),
            ("enable_bitmapscan", "off".to_owned()),
            ("enable_hashjoin", "off".to_owned()),
            ("enable_mergejoin", "off".to_owned()),
            ("jit", "off".to_owned()),
            // A few rows by an index: starting helpers takes longer than reading them.
            ("max_parallel_workers_per_gather", "0".to_owned()),
            ("standard_conforming_strings", "on".to_owned()),
            ("plan_cache_mode", "force_generic_plan".to_owned()),
        ];
        let set = |local: bool| {
            let each = settings.iter().map(|(name, value)| format!("set_config('{name}', '{value}', {local})"));
            format!("SELECT {}", each.collect::<Vec<_>>().join(", "))
        };
        let warned = Arc::new(AtomicBool::new(false));
        let heard = Arc::new(Notify::new());
        let mut direct = address.server.clone();
        let theirs = direct.get_options().unwrap_or_default().to_owned();
        direct.connect_timeout(CONNECT).options(format!("{theirs} -c {MARK}=yes"));
        let first = runtime.block_on(open(&direct, address, &warned, &heard));
        let client = match first {
            // PgBouncer knows no startup options.
            Err(WireError::Refused { text, .. } | WireError::Lost(text))
                if text.contains("unsupported startup parameter") =>
            {
                let mut plain = address.server.clone();
                plain.connect_timeout(CONNECT);
                runtime.block_on(open(&plain, address, &warned, &heard))?
            }
            other => other?,
        };
        let mut wire = Self {
            client,
            runtime,
            names: HashMap::new(),
            named: false,
            local_settings: Some(set(true)),
            brief,
            leftover: false,
            warned,
            heard,
        };
        let mark = format!("SELECT coalesce(current_setting('{MARK}', true), '')");
        let answers = wire.send(&[(mark.as_str(), &[])])?;
        if answers.iter().flatten().next().is_some_and(|row| row.word(0).is_ok_and(|word| word == "yes")) {
            wire.local_settings = None;
            wire.named = !brief;
            wire.batch(&set(false))?;
        }
        Ok(wire)
    }

    /// Whether a pooler shares the session between transactions.
    pub(super) fn pooled(&self) -> bool {
        self.local_settings.is_some()
    }

    /// Rolls back a transaction; a short-lived process defers that to its next transaction, or its end. False if the
    /// connection is no longer usable.
    pub(super) fn end_transaction(&mut self, holds_the_turn: bool) -> bool {
        self.leftover = self.brief && !holds_the_turn;
        self.leftover || self.send(&[("ROLLBACK", &[])]).is_ok()
    }

    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Whether the server sent a warning since the last call.
    pub(super) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::SeqCst)
    }

    /// Listens for this long, or until a notification arrives; returns whether one did.
    pub(super) fn listen(&mut self, span: Duration) -> bool {
        let heard = self.heard.clone();
        self.runtime.block_on(async { tokio::time::timeout(span, heard.notified()).await }).is_ok()
    }

    /// Several statements without values or answers.
    pub(super) fn batch(&self, text: &str) -> std::result::Result<(), WireError> {
        let done = self.runtime.block_on(async { tokio::time::timeout(ANSWER, self.client.batch_execute(text)).await });
        match done {
            Ok(done) => done.map_err(|error| WireError::from(&error)),
            Err(_) => Err(WireError::Lost(format!("no answer for {} s", ANSWER.as_secs()))),
        }
    }

    /// Sends everything as one message and waits for all answers: one packet in each direction. The first error ends
    /// it; an open transaction must then be rolled back.
    pub(super) fn send(&mut self, batch: &[Send<'_>]) -> std::result::Result<Vec<Vec<WireRow>>, WireError> {
        if self.named {
            self.name_new(batch)?;
        }
        let mut message = String::with_capacity(batch.len() * 200);
        let leftover = usize::from(std::mem::take(&mut self.leftover));
        message.push_str(&"ROLLBACK;"[..leftover * 9]);
        for (text, values) in batch {
            match self.names.get(*text) {
                Some(name) => quote::execute(&mut message, name, values),
                None => quote::inline(&mut message, text, values),
            }
        }
        let answered =
            self.runtime.block_on(async { tokio::time::timeout(ANSWER, self.client.simple_query(&message)).await });
        let messages = match answered {
            Ok(answered) => answered.map_err(|error| WireError::from(&error))?,
            Err(_) => return Err(WireError::Lost(format!("no answer for {} s", ANSWER.as_secs()))),
        };
        let mut answers = Vec::with_capacity(batch.len());
        let mut rows = Vec::new();
        for message in messages {
            match message {
                SimpleQueryMessage::Row(row) => rows.push(WireRow(row)),
                SimpleQueryMessage::CommandComplete(_) => answers.push(std::mem::take(&mut rows)),
                _ => {}
            }
        }
        answers.drain(..leftover.min(answers.len()));
        Ok(answers)
    }

    /// Prepares the statements that have no name yet, so that each is planned once. A server keeps every name, so their
    /// number is limited.
    fn name_new(&mut self, batch: &[Send<'_>]) -> std::result::Result<(), WireError> {
        const NAMES: usize = 256;
        let (mut message, mut new) = (String::new(), Vec::new());
        for (text, values) in batch {
            let transaction = ["BEGIN", "COMMIT", "ROLLBACK"].iter().any(|word| text.starts_with(word));
            let known = self.names.contains_key(*text) || new.iter().any(|(known, _)| known == text);
            if !transaction && !known && self.names.len() + new.len() < NAMES {
                let name = format!("toft_{}", self.names.len() + new.len());
                quote::prepare(&mut message, &name, text, values);
                new.push((*text, name));
            }
        }
        if message.is_empty() {
            return Ok(());
        }
        // Half of them may be known to the server now: the connection is of no use any more.
        self.batch(&message).map_err(|trouble| match trouble {
            WireError::Refused { text, .. } | WireError::Lost(text) => WireError::Lost(text),
        })?;
        self.names.extend(new.into_iter().map(|(text, name)| (text.to_owned(), name)));
        Ok(())
    }
}

/// Opens a connection and runs it on the runtime in the background.
async fn open(
    config: &tokio_postgres::Config,
    address: &StoreAddress,
    warned: &Arc<AtomicBool>,
    heard: &Arc<Notify>,
) -> std::result::Result<Client, WireError> {
    let lost = |error: tokio_postgres::Error| WireError::from(&error);
    if config.get_ssl_mode() == SslMode::Disable {
        let (client, connection) = config.connect(NoTls).await.map_err(lost)?;
        tokio::spawn(attend(connection, warned.clone(), heard.clone()));
        return Ok(client);
    }
    let tls = MakeRustlsConnect::new(tls(address).map_err(WireError::Lost)?);
    let (client, connection) = config.connect(tls).await.map_err(lost)?;
    tokio::spawn(attend(connection, warned.clone(), heard.clone()));
    Ok(client)
}

/// TLS with the certificates of the system, or of the file in the address; always verified.
fn tls(address: &StoreAddress) -> std::result::Result<rustls::ClientConfig, String> {
    let mut roots = rustls::RootCertStore::empty();
    match &address.roots {
        Some(file) => {
            let found = CertificateDer::pem_file_iter(file).map_err(|error| format!("{file}: {error}"))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| format!("{file}: {error}"))?;
                roots.add(certificate).map_err(|error| format!("{file}: {error}"))?;
            }
        }
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(versions.with_root_certificates(roots).with_no_client_auth())
}

async fn attend<S, T>(mut connection: tokio_postgres::Connection<S, T>, warned: Arc<AtomicBool>, heard: Arc<Notify>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        match message {
            AsyncMessage::Notice(notice) if notice.parsed_severity() == Some(Severity::Warning) => {
                warned.store(true, Ordering::SeqCst);
            }
            AsyncMessage::Notification(_) => heard.notify_one(),
            _ => {}
        }
    }
    heard.notify_one();
}

/// One row of an answer; every column as text.
pub(super) struct WireRow(SimpleQueryRow);

impl WireRow {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// A column that is never null.
    pub(super) fn word(&self, column: usize) -> Result<&str> {
        self.cell(column)?.ok_or_else(|| unreadable(format!("column {column} is empty")))
    }

    /// A numeric column that is never null.
    pub(super) fn number(&self, column: usize) -> Result<i64> {
        parsed(self.word(column)?)
    }

    fn cell(&self, column: usize) -> Result<Option<&str>> {
        self.0.try_get(column).map_err(|error| unreadable(reason(&error)))
    }

    fn read<T: std::str::FromStr>(&self, column: usize) -> Result<Option<T>> {
        self.cell(column)?.map(parsed).transpose()
    }
}

fn unreadable(cause: String) -> StoreError {
    StoreError::Failed { doing: "read a column".into(), cause }
}

/// The parsed value of a column.
pub(super) fn parsed<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| unreadable(format!("`{text}` is not what it should be")))
}

/// The number that is the whole answer.
pub(super) fn only_number(rows: &[WireRow]) -> Result<Option<i64>> {
    rows.first().map(|row| row.number(0)).transpose()
}

impl crate::value::Row for WireRow {
    fn text(&self, column: usize) -> Result<Option<String>> {
        self.read(column)
    }

    fn int(&self, column: usize) -> Result<Option<i64>> {
        self.read(column)
    }

    fn real(&self, column: usize) -> Result<Option<f64>> {
        self.read(column)
    }
}
