//! Reads the stores in the background: when something has changed, when another screen is wanted, and once in a while.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use toft::{
    Error,
    refusal::Refusal,
    views::{DiffView, FollowedLog, IssueView, LogLine, RepositorySource, Screen, ScreenView, Views},
};

use crate::{UiEvent, state::About};

/// Without a change, time alone may change what is shown: leases end.
const AT_LEAST: Duration = Duration::from_secs(15);
/// The log of an agent grows without a change of the store.
const LOG: Duration = Duration::from_secs(1);
/// After a refresh, the next one comes not before this.
const PAUSE: Duration = Duration::from_millis(100);
/// A refresh of this length is followed by a pause as many times as long: a busy store costs a part of a core, not all of it.
const SHARE: u32 = 4;
/// After a store could not be read.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RefreshRequest {
    pub(crate) screen: Screen,
    /// The issue that is open above the screen.
    pub(crate) issue: Option<About>,
}

/// An issue with its changes and its log.
#[derive(Clone, Debug)]
pub(crate) struct OpenIssue {
    pub(crate) view: IssueView,
    pub(crate) diff: DiffView,
    pub(crate) log: Vec<LogLine>,
}

/// What was read.
pub(crate) struct Refreshed {
    pub(crate) request: RefreshRequest,
    pub(crate) screens: Vec<Result<ScreenView, String>>,
    pub(crate) issue: Option<Result<OpenIssue, String>>,
    pub(crate) notes: Vec<String>,
}

/// What is wanted, and whether something has changed since the last refresh.
#[derive(Default)]
struct RefreshState {
    request: Option<RefreshRequest>,
    /// The request is newer than the last refresh.
    requested: bool,
    changed: bool,
}

/// The state, and how threads wait for it.
type SharedState = (Mutex<RefreshState>, Condvar);

fn locked(shared: &SharedState) -> MutexGuard<'_, RefreshState> {
    shared.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads in the background.
pub(crate) struct Refresher {
    shared: Arc<SharedState>,
}

impl Refresher {
    /// Begins to read, and tells what was read.
    pub(crate) fn start(views: Arc<Views>, tell: Sender<UiEvent>) -> Self {
        let shared = Arc::<SharedState>::default();
        let (watched, watching) = (views.clone(), shared.clone());
        thread::spawn(move || watch(&watched, &watching));
        let reading = shared.clone();
        thread::spawn(move || refresh(&views, &reading, &tell));
        Self { shared }
    }

    /// Says what to read, now.
    pub(crate) fn request(&self, request: RefreshRequest) {
        *locked(&self.shared) = RefreshState { request: Some(request), requested: true, changed: true };
        self.shared.1.notify_all();
    }
}

/// Notes changes of the stores. A store that cannot be read is a change, too: the refresh that follows says why.
fn watch(views: &Views, shared: &SharedState) {
    let mut cursor = None;
    loop {
        let seen = match &cursor {
            None => views.cursor(),
            Some(cursor) => views.wait(cursor, AT_LEAST),
        };
        if seen.as_ref().ok() != cursor.as_ref() {
            locked(shared).changed = true;
            shared.1.notify_all();
        }
        if seen.is_err() {
            thread::sleep(TRY_AGAIN);
        }
        cursor = seen.ok();
    }
}

/// Reads what is wanted, again and again, until nobody listens.
fn refresh(views: &Views, shared: &SharedState, tell: &Sender<UiEvent>) {
    let mut last = Instant::now();
    let mut followed: Option<(About, FollowedLog)> = None;
    loop {
        let (request, changed) = next_request(shared, last);
        if followed.as_ref().map(|(about, _)| about) != request.issue.as_ref() {
            followed = request.issue.clone().map(|about| (about, FollowedLog::default()));
        }
        if let (false, Some((about, log))) = (changed, &mut followed) {
            // Nothing has changed but what the agent says. An error is told by the next refresh.
            let new = source(views, about).and_then(|source| log.read(&source, &about.1)).unwrap_or(false);
            if new && tell.send(UiEvent::Log { about: about.clone(), log: log.lines().to_vec() }).is_err() {
                return;
            }
            continue;
        }
        last = Instant::now();
        if tell.send(UiEvent::Refreshing(last)).is_err() {
            return;
        }
        let read = |screen| ScreenView::of(&views.sources(), screen).map_err(|error| error.to_string());
        let mut screens = vec![read(request.screen)];
        if request.screen != Screen::NeedsYou {
            // It is counted above every screen.
            screens.push(read(Screen::NeedsYou));
        }
        let issue =
            followed.as_mut().map(|(about, log)| read_issue(views, about, log).map_err(|error| error.to_string()));
        let refreshed = Refreshed { request, screens, issue, notes: views.take_notes() };
        if tell.send(UiEvent::Refreshed(Box::new(refreshed))).is_err() {
            return;
        }
        // What a person asks for does not wait.
        let pause = PAUSE.max(last.elapsed() * SHARE);
        drop(shared.1.wait_timeout_while(locked(shared), pause, |state| !state.requested));
    }
}

/// What to read next, when it is time; and whether it is more than a log.
fn next_request(shared: &SharedState, last: Instant) -> (RefreshRequest, bool) {
    let mut state = locked(shared);
    let has_log = state.request.as_ref().is_some_and(|request| request.issue.is_some());
    let log_only = has_log && last.elapsed() < AT_LEAST;
    let until = Instant::now() + if log_only { LOG } else { AT_LEAST };
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if let Some(request) = state.request.clone().filter(|_| state.changed || left.is_zero()) {
            let changed = std::mem::take(&mut state.changed) || !log_only;
            state.requested = false;
            return (request, changed);
        }
        state = shared.1.wait_timeout(state, left.max(PAUSE)).unwrap_or_else(PoisonError::into_inner).0;
    }
}

fn source<'a>(views: &'a Views, (repository, _): &About) -> Result<RepositorySource<'a>, Error> {
    let gone = || Refusal::NotFound { what: "repository".into(), text: repository.clone().unwrap_or_default() };
    Ok(views.source(repository.as_deref()).ok_or_else(gone)?)
}

fn read_issue(views: &Views, about: &About, log: &mut FollowedLog) -> Result<OpenIssue, Error> {
    let (source, id) = (source(views, about)?, &about.1);
    log.read(&source, id)?;
    Ok(OpenIssue { view: IssueView::of(&source, id)?, diff: IssueView::diff(&source, id)?, log: log.lines().to_vec() })
}
