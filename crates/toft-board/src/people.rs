//! The boards of a server: each person sees what their token may see, and acts with it.

use std::{
    collections::{HashMap, VecDeque},
    io,
    sync::{Arc, Mutex, Weak},
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;
use toft::{Error, session_token::ProviderLogin};
use tokio::sync::Semaphore;

use crate::{
    BoardSource, BoardState, WORKERS,
    access::{BoardAccess, secret},
    blocking, locked,
};

/// Opens the board of a token.
pub type OpenBoard = Arc<dyn Fn(&str) -> Result<BoardSource, Error> + Send + Sync>;

/// Boards that are open at once, and those that are being opened.
const BOARDS: usize = 200;
const OPENING: usize = 4;
/// A board that nobody asked for this long is closed.
const IDLE: Duration = Duration::from_secs(300);
/// How often a board is compared with the repositories that there are.
const COMPARE: Duration = Duration::from_secs(30);
/// Bytes of a token.
const LONGEST_TOKEN: usize = 200;
/// People who are signing in at once. So many do not begin while one of them has time, so nobody's sign-in is forgotten.
const SIGN_INS: usize = 5_000;
/// The time between two that begin: anybody can begin.
const BEGIN_EVERY: Duration = Duration::from_millis(200);

/// The boards of people, by token.
pub(crate) struct PeopleBoards {
    open: OpenBoard,
    /// The server that names an identity provider.
    provider: Option<String>,
    boards: Arc<Mutex<HashMap<blake3::Hash, PersonalBoard>>>,
    opening: Arc<Semaphore>,
    /// Those who wait for a store, of every board.
    workers: Arc<Semaphore>,
    signing_in: Arc<Semaphore>,
    sign_ins: Mutex<VecDeque<SignIn>>,
    last_begun: Mutex<Option<Instant>>,
}

/// A person who is signing in.
#[derive(Clone)]
struct SignIn {
    /// What their browser names it by.
    secret: String,
    login: Arc<Mutex<ProviderLogin>>,
}

/// The board of one token.
struct PersonalBoard {
    state: Arc<BoardState>,
    asked: Instant,
    compared: Instant,
}

impl PeopleBoards {
    pub(crate) fn new(open: OpenBoard, provider: Option<String>) -> Self {
        let [opening, signing_in, workers] = [OPENING, OPENING, WORKERS].map(|count| Arc::new(Semaphore::new(count)));
        Self {
            open,
            provider,
            boards: Arc::default(),
            opening,
            workers,
            signing_in,
            sign_ins: Mutex::default(),
            last_begun: Mutex::default(),
        }
    }

    /// Whether an identity provider knows people.
    pub(crate) fn knows_provider(&self) -> bool {
        self.provider.is_some()
    }

    /// The board of a token; what a stranger is answered.
    pub(crate) async fn board(&self, token: &str) -> Result<Arc<BoardState>, Response> {
        let key = blake3::hash(token.as_bytes());
        let known = locked(&self.boards).get_mut(&key).map(|board| {
            board.asked = Instant::now();
            let old = board.compared.elapsed() >= COMPARE;
            if old {
                board.compared = Instant::now();
            }
            (board.state.clone(), old)
        });
        match known {
            Some((state, false)) => Ok(state),
            Some((state, true)) => {
                // Those who look are not held up.
                tokio::spawn(self.opened(key, token.to_owned(), Some(state.clone())));
                Ok(state)
            }
            None if !is_token(token) => Err((StatusCode::UNAUTHORIZED, UNKNOWN).into_response()),
            None => self.opened(key, token.to_owned(), None).await,
        }
    }

    /// Opens a board, and keeps it unless it shows the same repositories as `before`.
    fn opened(
        &self,
        key: blake3::Hash,
        token: String,
        before: Option<Arc<BoardState>>,
    ) -> impl Future<Output = Result<Arc<BoardState>, Response>> + use<> {
        let (open, boards, opening) = (self.open.clone(), self.boards.clone(), self.opening.clone());
        let workers = self.workers.clone();
        async move {
            let turn = opening.acquire_owned().await;
            // Another tab may have opened it meanwhile.
            if before.is_none()
                && let Some(board) = locked(&boards).get(&key)
            {
                return Ok(board.state.clone());
            }
            let opened = blocking(&workers, move || {
                let _turn = turn;
                open(&token)
            });
            let source = opened.await.inspect_err(|_| {
                locked(&boards).remove(&key);
            })?;
            if let Some(before) = before.filter(|before| before.views.names() == source.views.names()) {
                return Ok(before);
            }
            let state = BoardState::start(source, workers).map_err(|error| broken(&error))?;
            let now = Instant::now();
            tokio::spawn(close_when_idle(Arc::downgrade(&boards), key));
            let mut boards = locked(&boards);
            boards.retain(|_, board| board.asked.elapsed() < IDLE);
            if boards.len() >= BOARDS
                && let Some(oldest) = boards.iter().min_by_key(|(_, board)| board.asked).map(|(key, _)| *key)
            {
                boards.remove(&oldest);
            }
            boards.insert(key, PersonalBoard { state: state.clone(), asked: now, compared: now });
            Ok(state)
        }
    }

    /// Begins to sign a person in.
    async fn begin(&self, provider: String) -> Result<SignIn, Response> {
        let secret = secret().map_err(|error| broken(&error))?;
        let busy = || (StatusCode::SERVICE_UNAVAILABLE, "others are signing in; try again").into_response();
        let place = self.signing_in.clone().try_acquire_owned().map_err(|_| busy())?;
        {
            let mut last = locked(&self.last_begun);
            if last.is_some_and(|last| last.elapsed() < BEGIN_EVERY) {
                return Err(busy());
            }
            *last = Some(Instant::now());
        }
        let begun = blocking(&self.workers, move || {
            let _place = place;
            ProviderLogin::begin(&provider)
        });
        let login = begun.await?;
        let begun = SignIn { secret, login: Arc::new(Mutex::new(login)) };
        let mut sign_ins = locked(&self.sign_ins);
        sign_ins.push_back(begun.clone());
        let old = sign_ins.len().saturating_sub(SIGN_INS);
        sign_ins.drain(..old);
        Ok(begun)
    }

    /// The token of a person, once they have signed in.
    async fn ask(&self, SignIn { secret, login }: SignIn) -> Result<Option<String>, Response> {
        let asked = blocking(&self.workers, move || locked(&login).ask()).await;
        if !matches!(asked, Ok(None)) {
            locked(&self.sign_ins).retain(|known| known.secret != secret);
        }
        Ok(asked?.map(|(_, token)| token))
    }
}

/// Whether a text could be a token: nothing else is asked about.
fn is_token(text: &str) -> bool {
    let sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.len() <= LONGEST_TOKEN && text.bytes().all(sign)
}

/// Closes the board of a token when nobody has asked for it for long: it would hear of every change for nothing.
async fn close_when_idle(boards: Weak<Mutex<HashMap<blake3::Hash, PersonalBoard>>>, key: blake3::Hash) {
    loop {
        tokio::time::sleep(IDLE).await;
        let Some(boards) = boards.upgrade() else { return };
        let mut boards = locked(&boards);
        boards.retain(|_, board| board.asked.elapsed() < IDLE);
        if !boards.contains_key(&key) {
            return;
        }
    }
}

/// What a stranger is told.
const UNKNOWN: &str = "Sign in to see the board.";

/// Begins to sign a person in; with the secret of a sign-in, asks for its token.
pub(crate) async fn sign_in(State(access): State<Arc<BoardAccess>>, secret: String) -> Response {
    let Some((people, provider)) = access.people().and_then(|people| Some((people, people.provider.clone()?))) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if secret.is_empty() {
        return match people.begin(provider).await {
            Ok(SignIn { secret, login }) => {
                let login = locked(&login);
                let (address, code) = login.shown();
                Json(json!({ "secret": secret, "address": address, "code": code })).into_response()
            }
            Err(refused) => refused,
        };
    }
    let known = locked(&people.sign_ins).iter().find(|known| known.secret == secret).cloned();
    let Some(known) = known else {
        return (StatusCode::NOT_FOUND, "This sign-in has ended; begin again.").into_response();
    };
    match people.ask(known).await {
        Ok(Some(token)) => token.into_response(),
        Ok(None) => StatusCode::ACCEPTED.into_response(),
        Err(refused) => refused,
    }
}

/// What is answered if the machine has no random numbers or threads.
fn broken(error: &io::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
}
