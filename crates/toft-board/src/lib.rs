//! `toft board`: what agents do, what needs a person, and what to do about it, in the browser.
//!
//! It renders [`toft::views`] and runs commands of toft: no rule is here. [`access`] decides who may ask; [`people`] opens a board
//! for each token of a server; [`items`] and
//! [`issue_page`] are views as HTML, item by item; [`changes`] sends the items that changed; [`text`] sends windows of diffs and
//! logs; [`action`] runs what a button asks for.

mod access;
mod action;
mod changes;
mod graph;
mod issue_page;
mod items;
mod page;
mod people;
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
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    http::{HeaderValue, StatusCode, header},
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
use toft::{
    Error,
    store::{Fault, StoreError},
    views::{CommandRunner, Views},
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};

pub use self::{access::BoardAddress, people::OpenBoard};
use self::{
    access::{BoardAccess, BoardDoor, PrintedAddresses},
    changes::RenderCache,
    people::PeopleBoards,
    text::TextCache,
};

/// What a board shows, and how it does what it is told.
pub struct BoardSource {
    pub views: Views,
    pub runner: CommandRunner,
    /// What is shown, in a few words.
    pub title: String,
}

/// How long a change is waited for, and how often changes are told at most.
const WAIT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(50);
/// After a change that takes some time to read, the next one is told after so many times as long.
const SHARE: u32 = 3;
/// Reads of the store at once, and how long a page waits for one. A server that is away is asked again for a minute.
const READERS: usize = 4;
/// Commands at once, and what all boards of a process do at once: a server has its threads for others, too.
const COMMANDS: usize = 4;
const WORKERS: usize = 128;
const PATIENCE: Duration = Duration::from_secs(2);
/// After a store could not be read.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Connections at once, and how long the head of a request may take.
const CONNECTIONS: usize = 256;
const HEAD: Duration = Duration::from_secs(10);
/// Notes that are shown, and for how long.
const NOTES: usize = 10;
const NOTED: Duration = Duration::from_secs(300);
/// A sign of life on a stream without changes.
const ALIVE: Duration = Duration::from_secs(20);

/// One board.
pub(crate) struct BoardState {
    views: Arc<Views>,
    runner: CommandRunner,
    title: String,
    renders: Mutex<RenderCache>,
    texts: Mutex<TextCache>,
    /// What was said beside the outcomes, and when.
    notes: Mutex<Vec<(Instant, String)>>,
    /// Commands that run.
    running: Mutex<HashSet<Vec<String>>>,
    /// Those who read the store.
    readers: Arc<Semaphore>,
    /// Those who run a command.
    commanders: Arc<Semaphore>,
    /// Those who wait for a store or a command, of every board of the process.
    workers: Arc<Semaphore>,
    /// How long the last page took to read, in milliseconds.
    read_ms: Arc<AtomicU64>,
    /// Rises with every change.
    changes: watch::Receiver<u64>,
}

impl BoardState {
    /// A board that hears of changes for as long as it is there.
    fn start(BoardSource { views, runner, title }: BoardSource, workers: Arc<Semaphore>) -> io::Result<Arc<Self>> {
        let (tell, changes) = watch::channel(0);
        let (views, read_ms) = (Arc::new(views), Arc::default());
        let (watched, read) = (views.clone(), Arc::clone(&read_ms));
        thread::spawn(move || watch_stores(&watched, &read, &tell));
        let renders = Mutex::new(RenderCache::new()?);
        let (texts, notes, running) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (readers, commanders) = (Arc::new(Semaphore::new(READERS)), Arc::new(Semaphore::new(COMMANDS)));
        Ok(Arc::new(Self {
            views,
            runner,
            title,
            renders,
            texts,
            notes,
            running,
            readers,
            commanders,
            workers,
            read_ms,
            changes,
        }))
    }

    /// What was said beside the outcomes in the last minutes.
    fn notes(&self) -> Vec<String> {
        let mut notes = locked(&self.notes);
        notes.retain(|(at, _)| at.elapsed() < NOTED);
        for note in self.views.take_notes() {
            notes.retain(|(_, known)| *known != note);
            notes.push((Instant::now(), note));
        }
        let old = notes.len().saturating_sub(NOTES);
        notes.drain(..old);
        notes.iter().map(|(_, note)| note.clone()).collect()
    }
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
pub fn serve(
    source: BoardSource,
    address: BoardAddress,
    ready: impl FnOnce(BoardInvites) -> io::Result<()>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run(source, address, ready))
}

/// The boards of a server at this address: each person signs in with a token, or at the identity provider that the server at
/// `provider` names. Streams end when `ending` becomes true.
pub fn people_router(url: &str, open: OpenBoard, provider: Option<String>, ending: watch::Receiver<bool>) -> Router {
    router(BoardAccess::of_people(url, PeopleBoards::new(open, provider)), ending)
}

fn router(access: impl Into<Arc<BoardAccess>>, ending: watch::Receiver<bool>) -> Router {
    let access = access.into();
    Router::new()
        .route("/", get(page::index))
        .route("/issue", get(page::index))
        .route("/assets/board.css", get(style))
        .route("/assets/board.js", get(script))
        .route("/open", post(access::open))
        .route("/sign-in", post(people::sign_in))
        .route("/changes", get(changes::changes))
        .route("/text", get(text::text))
        .route("/stream", get(move |board| stream_changes(board, ending.clone())))
        .route("/action", post(action::action))
        .route_layer(middleware::from_fn_with_state(access.clone(), access::check))
        .with_state(access)
}

async fn run(
    source: BoardSource,
    address: BoardAddress,
    ready: impl FnOnce(BoardInvites) -> io::Result<()>,
) -> io::Result<()> {
    let listener = TcpListener::bind(address.listen).await?;
    let listen: SocketAddr = listener.local_addr()?;
    let door = BoardDoor::Address(PrintedAddresses::to(BoardState::start(source, Arc::new(Semaphore::new(WORKERS)))?)?);
    let access = Arc::new(BoardAccess::new(&BoardAddress { listen, ..address }, door));
    // It ends with its process.
    let (_lasting, ending) = watch::channel(false);
    let router = router(access.clone(), ending);
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
fn watch_stores(views: &Views, read_ms: &AtomicU64, tell: &watch::Sender<u64>) {
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
async fn stream_changes(
    Extension(board): Extension<Arc<BoardState>>,
    ending: watch::Receiver<bool>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let seen = (board.changes.clone(), ending);
    let events = stream::unfold(seen, |(mut changes, mut ending)| async move {
        tokio::select! {
            changed = changes.changed() => changed.ok()?,
            _ = ending.wait_for(|ending| *ending) => return None,
        }
        let count = *changes.borrow_and_update();
        Some((Ok(Event::default().event("changed").data(count.to_string())), (changes, ending)))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE))
}

/// What is answered if something could not be read.
fn failed(error: &Error) -> Response {
    match error {
        Error::Refused(_) => (StatusCode::NOT_FOUND, error.to_string()),
        Error::Store(StoreError::Blocked { fault: Fault::Credentials, .. }) => (
            StatusCode::UNAUTHORIZED,
            "The server does not know this token: it was revoked, or has expired.".to_owned(),
        ),
        _ => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
    .into_response()
}

/// Reads a store for a page; nothing if that takes long.
async fn read<T: Send + 'static>(
    board: &Arc<BoardState>,
    work: impl FnOnce(&BoardState) -> Result<T, Error> + Send + 'static,
) -> Result<Option<T>, Response> {
    let board = board.clone();
    let done = async move {
        let reader = board.readers.clone().acquire_owned().await;
        let workers = board.workers.clone();
        blocking(&workers, move || {
            let _reader = reader;
            work(&board)
        })
        .await
    };
    tokio::time::timeout(PATIENCE, done).await.ok().transpose()
}

/// Does something that may wait for a store; a failure becomes the answer.
async fn blocking<T: Send + 'static>(
    workers: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Response> {
    waiting(workers, work).await?.map_err(|error| failed(&error))
}

/// Does something that may take long, on a thread. It goes on if nobody waits for it any more, and so does its place.
async fn waiting<T: Send + 'static>(
    workers: &Arc<Semaphore>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Response> {
    let worker = workers.clone().acquire_owned().await;
    let done = tokio::task::spawn_blocking(move || {
        let _worker = worker;
        work()
    });
    done.await.map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, "it broke off").into_response())
}

/// A lock whose holder may have panicked: what it guards is only a cache.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
