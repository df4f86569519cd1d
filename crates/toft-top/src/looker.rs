//! Looks at the stores in the background: when something has changed, when another screen is wanted, and once in a while.

use std::{
    sync::{Arc, Condvar, Mutex, PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use toft::{
    Error,
    views::{
        AgentsView, BoardView, GraphView, HistoryView, IssueView, LogLine, MachinesView, NeedsYouView, QueueView, Views,
    },
};

use crate::{News, state::Screen};

/// Without a change, time alone may change what is seen: leases end.
const LOOK_ANYWAY: Duration = Duration::from_secs(15);
/// The log of an agent grows without a change of the store.
const LOG: Duration = Duration::from_secs(1);
/// After a look, the next one comes not before this.
const PAUSE: Duration = Duration::from_millis(100);
/// A look of this length is followed by a pause as many times as long: a busy store costs a part of a core, not all of it.
const SHARE: u32 = 4;
/// After a store could not be read.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// Events, issues and cards of a column that are shown.
const EVENTS: usize = 1_000;
const CARDS: usize = 500;

/// What is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookOrder {
    pub(crate) screen: Screen,
    /// The issue that is open above the screen: its repository, and its id.
    pub(crate) issue: Option<(Option<String>, String)>,
}

/// What was seen.
#[derive(Clone, Debug)]
pub enum ScreenView {
    NeedsYou(NeedsYouView),
    Agents(AgentsView),
    Board(BoardView),
    Queue(QueueView),
    Graph(GraphView),
    History(HistoryView),
    Machines(MachinesView),
}

impl ScreenView {
    /// The screen that it is for.
    pub(crate) fn screen(&self) -> Screen {
        match self {
            Self::NeedsYou(_) => Screen::NeedsYou,
            Self::Agents(_) => Screen::Agents,
            Self::Board(_) => Screen::Board,
            Self::Queue(_) => Screen::Queue,
            Self::Graph(_) => Screen::Graph,
            Self::History(_) => Screen::History,
            Self::Machines(_) => Screen::Machines,
        }
    }
}

/// An issue with its changes and its log.
#[derive(Clone, Debug)]
pub(crate) struct OpenIssue {
    pub(crate) view: IssueView,
    pub(crate) diff: Option<String>,
    pub(crate) log: Vec<LogLine>,
}

/// One look.
pub(crate) struct ScreenLook {
    pub(crate) order: LookOrder,
    pub(crate) sights: Vec<Result<ScreenView, String>>,
    pub(crate) issue: Option<Result<OpenIssue, String>>,
    pub(crate) notes: Vec<String>,
}

/// What is wanted, and whether there is news.
struct Desk {
    order: Option<LookOrder>,
    /// The order was not looked at yet.
    ordered: bool,
    changed: bool,
}

/// Gives orders to those who look.
pub(crate) struct Looker {
    desk: Arc<(Mutex<Desk>, Condvar)>,
}

impl Looker {
    /// Begins to look, and tells what is seen.
    pub(crate) fn start(views: Arc<Views>, tell: Sender<News>) -> Self {
        let desk = Arc::new((Mutex::new(Desk { order: None, ordered: false, changed: false }), Condvar::new()));
        let (watched, watching) = (views.clone(), desk.clone());
        thread::spawn(move || watch(&watched, &watching));
        let looking = desk.clone();
        thread::spawn(move || look(&views, &looking, &tell));
        Self { desk }
    }

    /// Says what to look at, now.
    pub(crate) fn order(&self, order: LookOrder) {
        let mut desk = self.desk.0.lock().unwrap_or_else(PoisonError::into_inner);
        (desk.order, desk.ordered, desk.changed) = (Some(order), true, true);
        self.desk.1.notify_all();
    }
}

/// Notes changes of the stores.
fn watch(views: &Views, desk: &(Mutex<Desk>, Condvar)) {
    let mut cursor = None;
    loop {
        let seen = match &cursor {
            None => views.cursor(),
            Some(cursor) => views.wait(cursor, LOOK_ANYWAY),
        };
        let Ok(seen) = seen else {
            // The next look says why.
            thread::sleep(TRY_AGAIN);
            continue;
        };
        if cursor.as_ref() != Some(&seen) {
            desk.0.lock().unwrap_or_else(PoisonError::into_inner).changed = true;
            desk.1.notify_all();
        }
        cursor = Some(seen);
    }
}

fn look(views: &Views, desk: &(Mutex<Desk>, Condvar), tell: &Sender<News>) {
    let mut looked = Instant::now();
    loop {
        let order = {
            let mut now = desk.0.lock().unwrap_or_else(PoisonError::into_inner);
            let log_only =
                now.order.as_ref().is_some_and(|order| order.issue.is_some()) && looked.elapsed() < LOOK_ANYWAY;
            let until = Instant::now() + if log_only { LOG } else { LOOK_ANYWAY };
            while !(now.changed && now.order.is_some()) {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() && now.order.is_some() {
                    break;
                }
                now = desk.1.wait_timeout(now, left.max(PAUSE)).unwrap_or_else(PoisonError::into_inner).0;
            }
            now.ordered = false;
            let changed = std::mem::take(&mut now.changed);
            (now.order.clone(), changed || !log_only)
        };
        let (Some(order), changed) = order else { continue };
        if let (false, Some((repository, id))) = (changed, &order.issue) {
            // Nothing has changed but what the agent says.
            let log = views.source(repository.as_deref()).and_then(|source| IssueView::log(&source, id).ok());
            let about = (repository.clone(), id.clone());
            if tell.send(News::Log { about, log: log.unwrap_or_default() }).is_err() {
                return;
            }
            continue;
        }
        let begun = Instant::now();
        looked = begun;
        if tell.send(News::Looks(begun)).is_err() {
            return;
        }
        let mut sights = vec![see(views, order.screen).map_err(|error| error.to_string())];
        if order.screen != Screen::NeedsYou {
            // It is counted above every screen.
            sights.push(see(views, Screen::NeedsYou).map_err(|error| error.to_string()));
        }
        let issue = order
            .issue
            .as_ref()
            .map(|(repository, id)| open(views, repository.as_deref(), id).map_err(|error| error.to_string()));
        let seen = ScreenLook { order, sights, issue, notes: views.take_notes() };
        if tell.send(News::Seen(Box::new(seen))).is_err() {
            return;
        }
        // What a person asks for does not wait.
        let desk_now = desk.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = PAUSE.max(begun.elapsed() * SHARE);
        drop(desk.1.wait_timeout_while(desk_now, pause, |desk| !desk.ordered));
    }
}

pub(crate) fn see(views: &Views, screen: Screen) -> Result<ScreenView, Error> {
    let sources = views.sources();
    Ok(match screen {
        Screen::NeedsYou => ScreenView::NeedsYou(NeedsYouView::of(&sources)?),
        Screen::Agents => ScreenView::Agents(AgentsView::of(&sources)?),
        Screen::Board => ScreenView::Board(BoardView::of(&sources, CARDS)?),
        Screen::Queue => ScreenView::Queue(QueueView::of(&sources)?),
        Screen::Graph => ScreenView::Graph(GraphView::of(&sources)?),
        Screen::History => ScreenView::History(HistoryView::of(&sources, EVENTS)?),
        Screen::Machines => ScreenView::Machines(MachinesView::of(&sources)?),
    })
}

fn open(views: &Views, repository: Option<&str>, id: &str) -> Result<OpenIssue, Error> {
    let gone = || toft::refusal::Refusal::NotFound { what: "repository".into(), text: repository.unwrap_or("").into() };
    let source = views.source(repository).ok_or_else(gone)?;
    Ok(OpenIssue {
        view: IssueView::of(&source, id)?,
        diff: IssueView::diff(&source, id)?,
        log: IssueView::log(&source, id)?,
    })
}
