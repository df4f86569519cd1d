//! One space of a server: its stores, its tokens, and what waits.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::Value;
use toft_core::{
    refusal::{Refusal, VerbError, VerbResult},
    store::{self, Access, Store, StoreError},
    token::{Admitted, Token, TokenRole},
    verbs::{
        Caller, Policy,
        calls::{self, Call},
    },
    wire::{DistantProcesses, LedgerEnd, SentCall},
};
use toft_session::{engine::Engine, session::random_ids};
use tokio::sync::watch;

use super::{pool::StorePool, traces, waiting::Waiting, writer::SpaceWriter};

/// How long a token that was looked up is believed: so long after it is revoked it may still be used.
const BELIEVED: Duration = Duration::from_secs(1);
/// Tokens that are remembered.
const REMEMBERED: usize = 10_000;

/// A space that is served.
pub(super) struct ServedSpace {
    pub(super) name: String,
    pub(super) pool: StorePool,
    /// Who writes, if it is one for all.
    writer: Option<SpaceWriter>,
    policy: Policy,
    tokens: Mutex<HashMap<String, (Token, Instant)>>,
    /// Another number after every change.
    changes: watch::Sender<u64>,
    pub(super) waiting: Waiting,
    /// Where the ledgers of repositories end, as far as this server knows.
    ledgers: Mutex<HashMap<String, LedgerEnd>>,
    draining: Arc<AtomicBool>,
}

/// A call whose caller was admitted.
#[derive(Clone)]
pub(super) struct AdmittedCall {
    pub(super) token: Token,
    pub(super) call: &'static Call,
    pub(super) sent: SentCall,
    pub(super) admitted: Admitted,
}

impl ServedSpace {
    pub(super) fn new(
        name: &str,
        pool: StorePool,
        writer: Option<SpaceWriter>,
        policy: Policy,
        draining: Arc<AtomicBool>,
    ) -> Self {
        // Another server, or this one before, counted from elsewhere.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
        Self {
            name: name.to_owned(),
            pool,
            writer,
            policy,
            tokens: Mutex::default(),
            changes: watch::Sender::new(since),
            waiting: Waiting::default(),
            ledgers: Mutex::default(),
            draining,
        }
    }

    /// Whether a token that counted still does; what cannot be told now is told with the next request.
    pub(super) async fn still_counts(&self, token: &Token) -> bool {
        self.token(token.digest.clone()).await.is_ok_and(|found| found.is_some())
    }

    /// The token with this digest, if it counts.
    pub(super) async fn token(&self, digest: String) -> Result<Option<Token>, StoreError> {
        if let Some(token) = self.remembered(&digest) {
            return Ok(Some(token));
        }
        let asked = digest.clone();
        let found = self.pool.run(move |engine| look_up(engine, &asked)).await??;
        if let Some(token) = &found {
            self.remember(digest, token.clone());
        }
        Ok(found)
    }

    fn remembered(&self, digest: &str) -> Option<Token> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.get(digest).filter(|(_, at)| at.elapsed() < BELIEVED).map(|(token, _)| token.clone())
    }

    fn remember(&self, digest: String, token: Token) {
        // The token of an agent ends with its lease, and a code when it is used: at once.
        if token.role <= TokenRole::Job {
            return;
        }
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        if tokens.len() >= REMEMBERED {
            tokens.retain(|_, (_, at)| at.elapsed() < BELIEVED);
        }
        tokens.insert(digest, (token, Instant::now()));
    }

    /// Checks that a token allows a call.
    pub(super) fn admit(&self, token: Token, name: &str, mut sent: SentCall) -> VerbResult<AdmittedCall> {
        let Some(call) = calls::find(name) else {
            return Err(Refusal::NotFound { what: "verb".into(), text: name.to_owned() }.into());
        };
        call.check_role(&token)?;
        let admitted = token.admit(&sent.caller)?;
        sent.check()?;
        sent.limit(&self.policy);
        if let Some(op) = sent.op.as_mut().filter(|op| op.request.is_empty()) {
            // Another request under the same id is another one, whatever its sender says.
            op.request = blake3::hash(sent.request.to_string().as_bytes()).to_hex()[..32].to_owned();
        }
        Ok(AdmittedCall { token, call, sent, admitted })
    }

    /// Runs an admitted call once.
    pub(super) async fn run(&self, call: AdmittedCall) -> VerbResult<Value> {
        let (policy, writes) = (self.policy.clone(), call.call.access == Access::Write);
        let done = match &self.writer {
            Some(writer) if writes => traces::part("write", writer.run(call)).await,
            _ => traces::part("store", self.pool.run(move |engine| run_on(engine.store()?, &policy, call))).await?,
        };
        if writes && done.is_ok() {
            self.changed();
        }
        done
    }

    /// Says that something changed.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|counter| *counter += 1);
    }

    /// Notes where a ledger ends. If it has grown, claims that wait in its repository are sent back: there may be new issues.
    pub(super) fn note_ledger(&self, repository: &str, end: LedgerEnd) {
        if end == LedgerEnd::default() {
            return;
        }
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ledgers.insert(repository.to_owned(), end);
        drop(ledgers);
        if known.unwrap_or_default() < end {
            self.waiting.send_back(repository);
        }
    }

    /// Whether a ledger has grown since a clone read it up to `end`.
    pub(super) fn ledger_has_grown(&self, repository: &str, end: LedgerEnd) -> bool {
        let ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.get(repository).is_some_and(|known| *known > end)
    }

    /// Follows changes.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Whether nothing is taken up any more: what waits is sent elsewhere.
    pub(super) fn draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }
}

fn look_up(engine: &Engine, digest: &str) -> Result<Option<Token>, StoreError> {
    store::ask(engine.store()?, |tx| {
        let now = tx.now()?.wall;
        let Some(token) = tx.token(digest)?.filter(|token| token.is_live(now)) else { return Ok(None) };
        let ended = match &token.job {
            Some(job) => tx.lease(&job.task)?.is_none_or(|lease| lease.fence != job.fence),
            None => false,
        };
        Ok(Some(token).filter(|_| !ended))
    })
}

/// Runs an admitted call on a store.
pub(super) fn run_on(store: &dyn Store, server: &Policy, call: AdmittedCall) -> VerbResult<Value> {
    let AdmittedCall { token, call, sent, admitted } = call;
    let SentCall { caller, op, request } = sent;
    let policy = caller.policy.as_ref().map_or_else(|| server.clone(), |policy| policy.within(server));
    let processes = DistantProcesses {
        host: caller.host,
        disks: caller.disks,
        machine: caller.machine,
        ended: caller.ended,
        running: caller.running,
    };
    let mut ids = random_ids();
    let mut as_sent = Caller {
        actor: &admitted.agent,
        place: caller.place,
        ids: &mut ids,
        processes: &processes,
        policy: &policy,
        holds: &caller.holds,
        role: admitted.role,
        token: Some(&token),
        op,
    };
    call.run(store, &mut as_sent, &request)
}

/// Whether waiting may help.
pub(super) fn may_wait(done: &VerbResult<Value>) -> bool {
    matches!(
        done,
        Err(VerbError::Refused(
            Refusal::NothingReady { .. }
                | Refusal::LeaseHeld { .. }
                | Refusal::OtherSession { .. }
                | Refusal::NotReady { .. }
                | Refusal::IssueNotReady { .. }
        ))
    )
}
