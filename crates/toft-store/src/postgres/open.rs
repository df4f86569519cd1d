//! A store on a server, with one connection that is re-established when it is lost.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use toft_core::{
    retention::RetentionKind,
    store::{Access, Fault, Result, Store, StoreError, StoreTx},
    time::{Now, Tick, Timestamp},
};
use tokio_postgres::error::SqlState;

use super::{
    connect_throttle::ConnectThrottle,
    migrate::{self, Schema},
    notifier::Notifier,
    sql,
    tx::PostgresTx,
    url::StoreAddress,
    wire::{BEGIN, Send, Statement, Wire, WireError, WireRow, only_number},
};
use crate::{
    clock::{MachineClock, TimeSource},
    value::{Bind, Value, kept},
    write,
};

/// How long one operation retries: connecting, conflicts with other writers, unknown outcomes.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait for a server that never answered: it may be starting, or its standby may be taking over.
const FIRST_PATIENCE: Duration = Duration::from_secs(20);

/// How long a long-lived process keeps its connection while it waits.
const KEEP_WHILE_WAITING: Duration = Duration::from_secs(5);

/// How long a claim may rely on the last check for lost leases and expired timers.
const SKIP_SWEEP: Duration = Duration::from_millis(250);

/// The server's wall clock, in milliseconds.
const WALL: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A store in a PostgreSQL schema.
pub struct PostgresStore {
    address: StoreAddress,
    wire: Mutex<Option<Wire>>,
    brief: bool,
    clock: Option<Arc<dyn TimeSource>>,
    /// This machine's clocks: leases use the monotonic one.
    machine: MachineClock,
    bell: Notifier,
    commits: AtomicU64,
    connected: AtomicBool,
    /// The connection slot of a short-lived process; released when it starts to wait.
    door: Mutex<Option<ConnectThrottle>>,
    /// Since when this process has only been waiting.
    waits_since: Mutex<Option<Instant>>,
    /// Since when, how often and why operations had to run again.
    retry_state: Mutex<Option<RetryState>>,
    /// The lane and the time of the last check that found no overdue lease, no expired timer and no limited workflow
    /// with free capacity.
    skip_sweep_until: Mutex<Option<(String, Instant)>>,
}

struct RetryState {
    since: Instant,
    times: u32,
    cause: String,
}

/// A commit that waits for its standby: when it is through, so is everything before it.
pub(super) const BARRIER: &str = "SELECT pg_logical_emit_message(true, 'toft', '')::text";

impl PostgresStore {
    /// Opens an existing store.
    pub fn open(url: &str) -> Result<Self> {
        Self::with(url, false, None, Schema::Require).map(|(store, _)| store)
    }

    /// Opens an existing store, for a short-lived process.
    pub fn open_briefly(url: &str) -> Result<Self> {
        Self::with(url, true, None, Schema::Require).map(|(store, _)| store)
    }

    /// Opens a store, or creates it.
    pub fn create(url: &str) -> Result<Self> {
        Self::with(url, false, None, Schema::Create).map(|(store, _)| store)
    }

    /// Upgrades an existing store; returns the schema version before and after.
    pub fn migrate(url: &str) -> Result<(i64, i64)> {
        let (_, found) = Self::with(url, false, None, Schema::Upgrade)?;
        Ok((found.unwrap_or_default(), migrate::SCHEMA_VERSION))
    }

    /// Opens or creates a store with another clock.
    pub fn create_with(url: &str, clock: Arc<dyn TimeSource>) -> Result<Self> {
        Self::with(url, false, Some(clock), Schema::Create).map(|(store, _)| store)
    }

    fn with(url: &str, brief: bool, clock: Option<Arc<dyn TimeSource>>, schema: Schema) -> Result<(Self, Option<i64>)> {
        let address = StoreAddress::parse(url)?;
        let store = Self {
            bell: Notifier::of(&address),
            address,
            wire: Mutex::new(None),
            brief,
            clock,
            machine: MachineClock::new(),
            commits: AtomicU64::new(0),
            connected: AtomicBool::new(false),
            door: Mutex::new(None),
            waits_since: Mutex::new(None),
            retry_state: Mutex::new(None),
            skip_sweep_until: Mutex::new(None),
        };
        let (mut wire, until) = (store.lock(), Instant::now() + PATIENCE);
        let found = loop {
            store.connect(&mut wire)?;
            let Some(open) = wire.as_mut() else { continue };
            match migrate::bring_up(open, &store.address, schema) {
                // Lost between two questions.
                Err(StoreError::Unreachable { .. }) if Instant::now() < until => *wire = None,
                done => break done?,
            }
        };
        drop(wire);
        Ok((store, found))
    }

    /// Its address, without the password.
    pub fn shown(&self) -> &str {
        &self.address.shown
    }

    /// The space of the token with this digest, among all spaces of the schema.
    pub fn space_of_token(&self, digest: &str) -> Result<Option<String>> {
        let asked = kept![digest];
        let rows = self.one(&[("SELECT set_config('toft.digest', $1, true)", &asked)], sql!("token_space"), &asked)?;
        rows.first().map(|row| row.word(0).map(str::to_owned)).transpose()
    }

    /// Stores a text under the hash of its content.
    pub fn keep_blob(&self, id: &str, text: &str) -> Result<()> {
        self.now(sql!("blob_put"), &kept![self.space(), id, text]).map(drop)
    }

    /// A stored text.
    pub fn blob(&self, id: &str) -> Result<Option<String>> {
        let rows = self.now(sql!("blob_get"), &kept![self.space(), id])?;
        rows.first().map(|row| row.word(0).map(str::to_owned)).transpose()
    }

    /// Runs one statement in a transaction of its own; it may run twice.
    pub(super) fn now(&self, text: &str, values: &[Value<'_>]) -> Result<Vec<WireRow>> {
        self.one(&[], text, values)
    }

    /// The same, under the lock of the writers.
    fn in_turn(&self, text: &str, values: &[Value<'_>]) -> Result<Vec<WireRow>> {
        let space = kept![self.space()];
        self.one(&[(sql!("turn"), &space), (sql!("version_move"), &space)], text, values)
    }

    fn one(&self, first: &[Send<'_>], text: &str, values: &[Value<'_>]) -> Result<Vec<WireRow>> {
        let mut wire = self.lock();
        loop {
            self.connect(&mut wire)?;
            let Some(open) = wire.as_mut() else { continue };
            let settings = open.local_settings.clone().unwrap_or_else(|| "SELECT 1".into());
            let known = kept![migrate::SCHEMA_VERSION];
            let mut batch: Vec<Send<'_>> = vec![(BEGIN, &[]), (&settings, &[])];
            batch.extend(first);
            batch.extend([(sql!("schema_stands"), known.as_slice()), (text, values)]);
            let asked = batch.len() - 1;
            batch.push(("COMMIT", &[]));
            match open.send(&batch) {
                Ok(mut answers) => {
                    self.clear_retries();
                    return Ok(answers.swap_remove(asked));
                }
                Err(trouble) => {
                    open.end_transaction(false);
                    self.require_schema(&mut wire, &trouble)?;
                    match self.judge(&mut wire, &trouble) {
                        StoreError::Conflict => self.pause()?,
                        error => return Err(error),
                    }
                }
            }
        }
    }

    /// After an error that an upgrade may have caused: a deliberate division by zero, or a statement that no longer
    /// fits the schema.
    pub(super) fn require_schema(&self, wire: &mut Option<Wire>, trouble: &WireError) -> Result<()> {
        let WireError::Refused { code, .. } = trouble else { return Ok(()) };
        let upgraded = code.code().starts_with("42") || *code == SqlState::DIVISION_BY_ZERO;
        match wire.as_mut().filter(|open| upgraded && open.is_open()) {
            Some(open) => migrate::version(open, &self.address)?.map_or(Ok(()), migrate::require_current),
            None => Ok(()),
        }
    }

    pub(super) fn space(&self) -> &str {
        &self.address.space
    }

    /// A statement about this space, which is its first parameter.
    pub(super) fn of_space(&self, text: &str, values: &[Value<'_>]) -> Statement {
        let space = self.space().bind();
        (text.to_owned(), std::iter::once(&space).chain(values).map(Value::keep).collect())
    }

    pub(super) fn channel(&self) -> String {
        self.bell.channel()
    }

    pub(super) fn own_clock(&self) -> Option<Now> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    pub(super) fn tick(&self) -> Tick {
        self.machine.now().tick
    }

    pub(super) fn has_own_clock(&self) -> bool {
        self.clock.is_some()
    }

    pub(super) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    /// True once in this many commits.
    pub(super) fn every(&self, times: u64) -> bool {
        self.commits.load(Ordering::Relaxed).is_multiple_of(times)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Wire>> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn door(&self) -> MutexGuard<'_, Option<ConnectThrottle>> {
        self.door.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.waits_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection, unless it is in use; what is asked next connects again.
    pub fn rest(&self) {
        if let Ok(mut wire) = self.wire.try_lock() {
            *wire = None;
            *self.door() = None;
        }
    }

    /// Closes the connection of a waiting process: a short-lived one from its second check on, others after a while.
    fn let_go_while_waiting(&self) {
        let mut since = self.waits_since();
        match *since {
            None => *since = Some(Instant::now()),
            Some(since) if self.brief || since.elapsed() > KEEP_WHILE_WAITING => {
                // Another thread that uses it needs it.
                self.rest();
            }
            Some(_) => {}
        }
    }

    /// Connects, unless connected; waits and retries while the server is down, starting, or full.
    pub(super) fn connect(&self, wire: &mut Option<Wire>) -> Result<()> {
        if wire.as_ref().is_some_and(Wire::is_open) {
            return Ok(());
        }
        let known = self.connected.load(Ordering::Relaxed);
        let start = Instant::now();
        let mut pause = Duration::from_millis(10);
        loop {
            if self.brief {
                self.door().get_or_insert_with(|| ConnectThrottle::enter(&self.address.shown));
            }
            let trouble = match Wire::connect(&self.address, self.brief) {
                Ok(open) => {
                    *wire = Some(open);
                    self.connected.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(trouble) => trouble,
            };
            // A server that is full or starting is there.
            let there = known || matches!(trouble, WireError::Refused { .. });
            let patience = if there { PATIENCE } else { FIRST_PATIENCE };
            let (worth_waiting, cause) = match trouble {
                WireError::Refused { text, .. } | WireError::Lost(text) if rejected(&text) => {
                    let doing = format!("connect to {}", self.address.shown);
                    return Err(StoreError::Blocked { fault: Fault::Credentials, doing, cause: text });
                }
                WireError::Lost(cause) => {
                    let hopeless = ["invalid peer certificate", "failed to lookup address"];
                    (!hopeless.iter().any(|text| cause.contains(text)), cause)
                }
                WireError::Refused { code, text } => (
                    [SqlState::TOO_MANY_CONNECTIONS, SqlState::CANNOT_CONNECT_NOW, SqlState::PROTOCOL_VIOLATION]
                        .contains(&code),
                    text,
                ),
            };
            if !worth_waiting || start.elapsed() + pause >= patience {
                self.clear_retries();
                return Err(StoreError::Unreachable { server: self.address.shown.clone(), cause });
            }
            thread::sleep(jitter(pause));
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// The connection, opened if it is not.
    pub(super) fn open_wire(&self) -> Result<MutexGuard<'_, Option<Wire>>> {
        let mut wire = self.lock();
        self.connect(&mut wire)?;
        Ok(wire)
    }

    /// Commits nothing, and waits until a standby that has to have it has it: then it has everything before it, too.
    pub(super) fn wait_for_standby(&self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut wire = self.open_wire()?;
            let Some(open) = wire.as_mut() else { continue };
            open.take_warning();
            let settings = open.local_settings.clone().unwrap_or_else(|| "SELECT 1".into());
            let sent = open.send(&[(BEGIN, &[]), (&settings, &[]), (BARRIER, &[]), ("COMMIT", &[])]);
            let warned = open.take_warning();
            match sent {
                Ok(_) if !warned => return Ok(()),
                Ok(_) => {}
                Err(trouble) => match self.judge(&mut wire, &trouble) {
                    StoreError::Conflict => {}
                    error => return Err(error),
                },
            }
            drop(wire);
            if Instant::now() > until {
                let cause = "its standby does not answer".to_owned();
                return Err(StoreError::Unreachable { server: self.address.shown.clone(), cause });
            }
            self.pause()?;
        }
    }

    /// Another connection, besides the one that transactions share.
    pub(super) fn another_wire(&self) -> Result<Wire> {
        let mut wire = None;
        self.connect(&mut wire)?;
        wire.ok_or(StoreError::Conflict)
    }

    /// Maps an error before the commit: usually, the verb runs again.
    pub(super) fn judge(&self, wire: &mut Option<Wire>, trouble: &WireError) -> StoreError {
        let again = [
            // Our own check: what was read has changed.
            SqlState::DIVISION_BY_ZERO,
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::QUERY_CANCELED,
        ];
        let fresh_start = [
            // A server that was the primary no longer is.
            SqlState::READ_ONLY_SQL_TRANSACTION,
            // The session is not what it was: names are gone or taken, plans no longer fit the tables.
            SqlState::INVALID_SQL_STATEMENT_NAME,
            SqlState::DUPLICATE_PSTATEMENT,
            SqlState::FEATURE_NOT_SUPPORTED,
        ];
        let cause = match trouble {
            WireError::Lost(cause) => {
                *wire = None;
                cause
            }
            WireError::Refused { code, text } if fresh_start.contains(code) => {
                *wire = None;
                text
            }
            WireError::Refused { code, text } if again.contains(code) => text,
            WireError::Refused { text, .. } => {
                self.clear_retries();
                return StoreError::Failed { doing: "ask the server".into(), cause: text.clone() };
            }
        };
        let mut retry_state = self.retry_state.lock().unwrap_or_else(PoisonError::into_inner);
        let retry_state =
            retry_state.get_or_insert_with(|| RetryState { since: Instant::now(), times: 0, cause: String::new() });
        retry_state.times += 1;
        retry_state.cause.clone_from(cause);
        StoreError::Conflict
    }

    /// Whether the last attempt of this operation conflicted.
    pub(super) fn was_overtaken(&self) -> bool {
        self.retry_state.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Whether a check a moment ago found no lost lease and no expired timer. Then a claim that finds work immediately
    /// skips the check, because these queries scan every lease that ended since the last vacuum.
    pub(super) fn may_skip_sweep(&self, home: &str) -> bool {
        let skip_sweep_until = self.skip_sweep_until.lock().unwrap_or_else(PoisonError::into_inner);
        skip_sweep_until.as_ref().is_some_and(|(known, at)| known == home && at.elapsed() < SKIP_SWEEP)
    }

    pub(super) fn be_quiet(&self, home: &str) {
        *self.skip_sweep_until.lock().unwrap_or_else(PoisonError::into_inner) = Some((home.to_owned(), Instant::now()));
    }

    pub(super) fn clear_quiet(&self) {
        *self.skip_sweep_until.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records that an operation succeeded.
    pub(super) fn clear_retries(&self) {
        *self.retry_state.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Waits before a retry, longer each time; an error after too long.
    fn pause(&self) -> Result<()> {
        let mut retry_state = self.retry_state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(RetryState { since, times, cause }) = retry_state.as_ref() else { return Ok(()) };
        if since.elapsed() > PATIENCE {
            let cause = format!("{cause}, {times} times in {} s", since.elapsed().as_secs());
            *retry_state = None;
            return Err(StoreError::Unreachable { server: self.address.shown.clone(), cause });
        }
        let rest = Duration::from_micros(200) * 2u32.saturating_pow(times.saturating_sub(1).min(8));
        drop(retry_state);
        thread::sleep(jitter(rest));
        Ok(())
    }
}

/// Whether the server rejected the user or the password.
fn rejected(cause: &str) -> bool {
    const WORDS: [&str; 6] = [
        "password authentication failed",
        "password missing",
        "no pg_hba.conf entry",
        "authentication failed for user",
        "is not permitted to log in",
        "permission denied for",
    ];
    WORDS.iter().any(|word| cause.contains(word)) || cause.contains("role \"") && cause.contains("does not exist")
}

/// A random duration between half of a span and the whole, so that clients that failed together do not retry together.
pub(super) fn jitter(span: Duration) -> Duration {
    let noise = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |at| at.subsec_nanos());
    span.mul_f64(0.5 + f64::from(noise % 1_000) / 2_000.0)
}

impl Store for PostgresStore {
    fn begin(&self, access: Access) -> Result<Box<dyn StoreTx + '_>> {
        if self.waits_since().take().is_some() {
            self.bell.looks();
        }
        self.pause()?;
        let mut wire = self.lock();
        self.connect(&mut wire)?;
        Ok(Box::new(PostgresTx::new(self, wire, access)))
    }

    fn change_counter(&self) -> Result<u64> {
        self.let_go_while_waiting();
        Ok(self.bell.heard(&self.address) << 32 | self.commits.load(Ordering::Relaxed))
    }

    fn look_again_after(&self) -> Duration {
        self.bell.look_again_after()
    }

    fn forget(&self, what: RetentionKind, before: Timestamp, limit: usize) -> Result<usize> {
        let now = match self.own_clock() {
            Some(now) => now.wall,
            None => Timestamp(only_number(&self.now(WALL, &[])?)?.unwrap_or_default()),
        };
        let mut gone = 0;
        let mut run = |text: &str, values: &[Value<'_>]| -> Result<()> {
            let text = format!("WITH gone AS ({text} RETURNING 1) SELECT count(*) FROM gone");
            let (text, values) = self.of_space(&text, values);
            let rows = self.in_turn(&text, &values)?;
            gone = only_number(&rows)?.unwrap_or_default() as usize;
            Ok(())
        };
        if what == RetentionKind::Blobs {
            run(sql!("blob_forget"), &kept![before.0, limit as u64])?;
        }
        for (query, values) in write::forget(what, before, now, limit) {
            run(query.postgres(), &values)?;
        }
        Ok(gone)
    }
}
