//! `toft board`: what agents do, what needs a person, and what to do about it, in the browser.
//!
//! It renders [`toft::views`] and runs commands of toft: no rule is here. [`access`] decides who may ask; [`items`] and
//! [`issue_page`] are views as HTML, item by item; [`changes`] sends the items that changed; [`text`] sends windows of diffs and
//! logs; [`action`] runs what a button asks for.

mod access;
mod action;
mod changes;
mod graph;
mod issue_page;
mod items;
mod page;
mod place;
mod text;

use std::{
    collections::HashSet,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, header},
    middleware,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
    routing::{get, post},
};
use futures_util::{Stream, stream};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use toft::views::{CommandRunner, Views};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};

pub use self::access::BoardAddress;
use self::{access::BoardAccess, changes::Renders, text::Texts};

/// What `toft board` shows, and how it does what it is told.
pub struct BoardRules {
    pub views: Views,
    pub runner: CommandRunner,
    /// What is shown, in a few words.
    pub title: String,
    pub address: BoardAddress,
}

/// How long a change is waited for, and how often changes are told at most.
const WAIT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);
/// After a change that takes some time to read, the next one is told after so many times as long.
const SHARE: u32 = 3;
/// After a store could not be read.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Connections at once, and how long the head of a request may take.
const CONNECTIONS: usize = 256;
const HEAD: Duration = Duration::from_secs(10);
/// A sign of life on a stream without changes.
const ALIVE: Duration = Duration::from_secs(20);

/// What requests share.
pub(crate) struct BoardState {
    views: Views,
    runner: CommandRunner,
    title: String,
    access: Arc<BoardAccess>,
    renders: Mutex<Renders>,
    texts: Mutex<Texts>,
    /// Commands that run.
    running: Mutex<HashSet<String>>,
    /// How long the last page took to read, in milliseconds.
    read_ms: AtomicU64,
    /// Rises with every change.
    changes: watch::Receiver<u64>,
}

/// Makes addresses that open the board in one more browser.
#[derive(Clone)]
pub struct BoardInvites(Arc<BoardAccess>);

impl BoardInvites {
    /// An address that opens the board once.
    pub fn address(&self) -> io::Result<String> {
        self.0.invite()
    }
}

/// Serves until the process ends. `ready` gets what makes addresses to open.
pub fn serve(rules: BoardRules, ready: impl FnOnce(BoardInvites) -> io::Result<()>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(rules, ready))
}

async fn run(rules: BoardRules, ready: impl FnOnce(BoardInvites) -> io::Result<()>) -> io::Result<()> {
    let BoardRules { views, runner, title, address } = rules;
    let listener = TcpListener::bind(address.listen).await?;
    let listen: SocketAddr = listener.local_addr()?;
    let access = Arc::new(BoardAccess::new(&BoardAddress { listen, ..address })?);
    let (tell, changes) = watch::channel(0);
    let state = Arc::new(BoardState {
        views,
        runner,
        title,
        access: access.clone(),
        renders: Mutex::new(Renders::new()?),
        texts: Mutex::default(),
        running: Mutex::default(),
        read_ms: AtomicU64::new(0),
        changes,
    });
    let watched = state.clone();
    thread::spawn(move || watch_stores(&watched, &tell));
    let router = Router::new()
        .route("/", get(page::index))
        .route("/issue", get(page::index))
        .route("/assets/board.css", get(style))
        .route("/assets/board.js", get(script))
        .route("/open", post(access::open))
        .route("/changes", get(changes::changes))
        .route("/text", get(text::text))
        .route("/stream", get(stream_changes))
        .route("/action", post(action::action))
        .layer(middleware::from_fn_with_state(state.clone(), access::check))
        .with_state(state);
    ready(BoardInvites(access))?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // Those who come while there is no room wait.
        let Ok(place) = room.clone().acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // An answer that waits for more bytes to send would take 40 ms.
        drop(stream.set_nodelay(true));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        tokio::spawn(async move {
            // A client that breaks off is nobody's concern.
            let _ = connection.await;
            drop(place);
        });
    }
}

/// Tells changes of the stores. A store that cannot be read is a change, too: the request that follows says why.
fn watch_stores(BoardState { views, read_ms, .. }: &BoardState, tell: &watch::Sender<u64>) {
    let mut cursor = None;
    while !tell.is_closed() {
        let seen = match &cursor {
            None => views.cursor(),
            Some(cursor) => views.wait(cursor, WAIT),
        };
        if seen.as_ref().ok() != cursor.as_ref() {
            tell.send_modify(|count| *count += 1);
        }
        // A page of a large plan is read less often: many changes cost a part of a core, not all of it.
        let read = Duration::from_millis(read_ms.load(Ordering::Relaxed));
        thread::sleep(if seen.is_err() { TRY_AGAIN } else { PAUSE.max(read * SHARE).min(TRY_AGAIN) });
        cursor = seen.ok();
    }
}

async fn style() -> Response {
    asset("text/css; charset=utf-8", include_str!("../assets/board.css"))
}

async fn script() -> Response {
    asset("text/javascript; charset=utf-8", include_str!("../assets/board.js"))
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
}

/// Says that something has changed; tabs ask what.
async fn stream_changes(State(state): State<Arc<BoardState>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let events = stream::unfold(state.changes.clone(), |mut changes| async move {
        changes.changed().await.ok()?;
        let count = *changes.borrow_and_update();
        Some((Ok(Event::default().event("changed").data(count.to_string())), changes))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE))
}

/// A lock whose holder may have panicked: what it guards is only a cache.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
