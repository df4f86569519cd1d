//! One connection: statements go out together and their answers come back together.

use std::{
    collections::HashMap,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use toft_core::store::{Result, StoreError};
use tokio::{runtime::Runtime, sync::Notify};
use tokio_postgres::{
    AsyncMessage, Client, NoTls, Row, Statement,
    config::SslMode,
    error::{Severity, SqlState},
    types::{ToSql, Type},
};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::{Address, reason};
use crate::value::Value;

/// How long the server may take over a statement, and over a lock.
const STATEMENT: Duration = Duration::from_secs(30);
const LOCK: Duration = Duration::from_secs(10);
/// After this long without an answer the connection counts as lost. No cancel is ever sent: one that arrives
/// while a commit waits for its standby would report success for what is on one disk only.
const ANSWER: Duration = Duration::from_secs(45);
const CONNECT: Duration = Duration::from_secs(5);

/// Says that a session is our own from end to end, and not lent out by a pooler between transactions.
const MARK: &str = "toft.direct";

/// A statement to send, with its values.
pub(super) type Send<'s> = (&'s str, &'s [Value<'s>]);

/// An answer, or why there is none.
pub(super) type Answer = std::result::Result<Vec<Row>, Trouble>;

/// What went wrong on the wire.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The server answered, with an error.
    Refused { code: SqlState, text: String },
    /// No answer; whether the server did it is not known.
    Lost(String),
}

impl Trouble {
    /// What was read does not fit together.
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
    [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW].contains(code)
        || code.code().starts_with("08")
}

pub(super) struct Wire {
    client: Client,
    runtime: Runtime,
    statements: HashMap<String, Statement>,
    /// Statements keep their names: the session is ours, and stays long enough to be worth it.
    named: bool,
    /// Behind a pooler settings must be made anew in every transaction, by this statement.
    pub(super) local_settings: Option<String>,
    /// The server warned since this was last looked at.
    warned: Arc<AtomicBool>,
    /// A process that does one thing and ends.
    brief: bool,
    /// A transaction is to be ended before the next begins.
    leftover: bool,
    /// Something arrived unasked.
    heard: Arc<Notify>,
}

impl Wire {
    /// Connects. `brief` is for a process that does one thing and ends.
    pub(super) fn connect(address: &Address, brief: bool) -> std::result::Result<Self, Trouble> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Trouble::Lost(error.to_string()))?;
        let ms = |span: Duration| span.as_millis().to_string();
        let settings = [
            ("search_path", format!("\"{}\"", address.schema)),
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
            ("plan_cache_mode", "force_generic_plan".to_owned()),
        ];
        let set = |local: bool| {
            let each = settings.iter().map(|(name, value)| format!("set_config('{name}', '{value}', {local})"));
            format!("SELECT {}", each.collect::<Vec<_>>().join(", "))
        };
        let warned = Arc::new(AtomicBool::new(false));
        let heard = Arc::new(Notify::new());
        let mut direct = address.server.clone();
        direct.connect_timeout(CONNECT).options(format!("-c {MARK}=yes"));
        let first = runtime.block_on(open(&direct, address, &warned, &heard));
        let client = match first {
            // PgBouncer knows no startup options.
            Err(Trouble::Refused { text, .. } | Trouble::Lost(text))
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
            statements: HashMap::new(),
            named: false,
            local_settings: Some(set(true)),
            brief,
            leftover: false,
            warned,
            heard,
        };
        let mark = format!("SELECT coalesce(current_setting('{MARK}', true), '')");
        let mut answers = wire.send(&[(mark.as_str(), &[])]).into_iter();
        let rows = answers.next().unwrap_or_else(|| Err(Trouble::Lost("no answer".into())))?;
        if rows.first().is_some_and(|row| row.get::<_, &str>(0) == "yes") {
            wire.local_settings = None;
            wire.named = !brief;
            wire.batch(&set(false))?;
        }
        Ok(wire)
    }

    /// Whether the session is lent out to others between transactions.
    pub(super) fn pooled(&self) -> bool {
        self.local_settings.is_some()
    }

    /// Ends a transaction that is not committed; a brief process leaves that to its next one, or its end. False if
    /// the connection is of no use any more.
    pub(super) fn end_transaction(&mut self) -> bool {
        self.leftover = self.brief;
        self.brief || self.send(&[("ROLLBACK", &[])]).iter().all(std::result::Result::is_ok)
    }

    pub(super) fn take_leftover(&mut self) -> bool {
        std::mem::take(&mut self.leftover)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.client.is_closed()
    }

    /// Did the server warn since this was last asked?
    pub(super) fn take_warning(&self) -> bool {
        self.warned.swap(false, Ordering::SeqCst)
    }

    /// Lets the connection listen for so long, or until something arrives; false if it was lost.
    pub(super) fn listen(&mut self, span: Duration) -> bool {
        let heard = self.heard.clone();
        // Running out of time is no news.
        let _ = self.runtime.block_on(async { tokio::time::timeout(span, heard.notified()).await });
        self.is_open()
    }

    /// Several statements without values or answers.
    pub(super) fn batch(&self, text: &str) -> std::result::Result<(), Trouble> {
        let done = self.runtime.block_on(async { tokio::time::timeout(ANSWER, self.client.batch_execute(text)).await });
        match done {
            Ok(done) => done.map_err(|error| Trouble::from(&error)),
            Err(_) => Err(Trouble::Lost(format!("no answer for {} s", ANSWER.as_secs()))),
        }
    }

    /// Sends everything at once and waits for all answers.
    pub(super) fn send(&mut self, batch: &[Send<'_>]) -> Vec<Answer> {
        if self.named
            && let Err(trouble) = self.prepare(batch)
        {
            return vec![Err(trouble)];
        }
        let Self { client, runtime, statements, named, .. } = self;
        let answers = runtime.block_on(async {
            let all = join_all(batch.iter().map(|(text, values)| {
                let statement = statements.get(*text).filter(|_| *named);
                run(client, text, statement, values)
            }));
            tokio::time::timeout(ANSWER, all).await
        });
        match answers {
            Ok(answers) => answers.into_iter().map(|answer| answer.map_err(|error| Trouble::from(&error))).collect(),
            Err(_) => vec![Err(Trouble::Lost(format!("no answer for {} s", ANSWER.as_secs())))],
        }
    }

    /// Names the statements that have no name yet.
    fn prepare(&mut self, batch: &[Send<'_>]) -> std::result::Result<(), Trouble> {
        let mut new: Vec<_> = batch.iter().filter(|(text, _)| !self.statements.contains_key(*text)).collect();
        new.sort_by_key(|(text, _)| *text);
        new.dedup_by_key(|(text, _)| *text);
        if new.is_empty() {
            return Ok(());
        }
        let Self { client, runtime, statements, .. } = self;
        let client = &*client;
        let prepared = runtime.block_on(async {
            let all = join_all(new.iter().map(|(text, values)| async move {
                let types: Vec<Type> = values.iter().map(Value::kind).collect();
                client.prepare_typed(text, &types).await
            }));
            tokio::time::timeout(ANSWER, all).await
        });
        let prepared = prepared.map_err(|_| Trouble::Lost(format!("no answer for {} s", ANSWER.as_secs())))?;
        for ((text, _), statement) in new.into_iter().zip(prepared) {
            statements.insert((*text).to_owned(), statement.map_err(|error| Trouble::from(&error))?);
        }
        Ok(())
    }
}

async fn run(
    client: &Client,
    text: &str,
    statement: Option<&Statement>,
    values: &[Value<'_>],
) -> std::result::Result<Vec<Row>, tokio_postgres::Error> {
    if let Some(statement) = statement {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        client.query(statement, &values).await
    } else {
        let values: Vec<(&(dyn ToSql + Sync), Type)> =
            values.iter().map(|value| (value as &(dyn ToSql + Sync), value.kind())).collect();
        client.query_typed(text, &values).await
    }
}

/// Opens a connection and lets it run beside whoever waits on the runtime.
async fn open(
    config: &tokio_postgres::Config,
    address: &Address,
    warned: &Arc<AtomicBool>,
    heard: &Arc<Notify>,
) -> std::result::Result<Client, Trouble> {
    let lost = |error: tokio_postgres::Error| Trouble::from(&error);
    if config.get_ssl_mode() == SslMode::Disable {
        let (client, connection) = config.connect(NoTls).await.map_err(lost)?;
        tokio::spawn(attend(connection, warned.clone(), heard.clone()));
        return Ok(client);
    }
    let tls = MakeRustlsConnect::new(tls(address).map_err(Trouble::Lost)?);
    let (client, connection) = config.connect(tls).await.map_err(lost)?;
    tokio::spawn(attend(connection, warned.clone(), heard.clone()));
    Ok(client)
}

/// Certificates of the system, or of the file the address names; always verified.
fn tls(address: &Address) -> std::result::Result<rustls::ClientConfig, String> {
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

impl Value<'_> {
    fn kind(&self) -> Type {
        match self {
            Self::Text(_) => Type::TEXT,
            Self::Int(_) => Type::INT8,
            Self::Real(_) => Type::FLOAT8,
        }
    }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut tokio_postgres::types::private::BytesMut,
    ) -> std::result::Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + std::marker::Send>> {
        match self {
            Self::Text(text) => text.as_deref().to_sql(kind, out),
            Self::Int(number) => number.to_sql(kind, out),
            Self::Real(number) => number.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        [Type::TEXT, Type::INT8, Type::FLOAT8].contains(kind)
    }

    tokio_postgres::types::to_sql_checked!();
}

impl crate::value::Row for Row {
    fn text(&self, column: usize) -> Result<Option<String>> {
        self.try_get(column).map_err(|error| unreadable(&error))
    }

    fn int(&self, column: usize) -> Result<Option<i64>> {
        self.try_get(column).map_err(|error| unreadable(&error))
    }

    fn real(&self, column: usize) -> Result<Option<f64>> {
        self.try_get(column).map_err(|error| unreadable(&error))
    }
}

fn unreadable(error: &tokio_postgres::Error) -> StoreError {
    StoreError::Failed { doing: "read a column".into(), cause: reason(error) }
}
