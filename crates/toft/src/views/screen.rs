//! The screens: what `toft top` and the board show, one at a time.

use toft_session::Error;

use super::{AgentsView, BoardView, GraphView, HistoryView, MachinesView, NeedsYouView, QueueView, RepositorySource};

/// Events that are shown.
const EVENTS: usize = 1_000;
/// Cards of a column that are shown.
const CARDS: usize = 500;

/// A screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Screen {
    NeedsYou,
    Agents,
    Board,
    Queue,
    Graph,
    History,
    Machines,
}

impl Screen {
    /// Every screen, in the order of their keys.
    pub const ALL: [Self; 7] =
        [Self::NeedsYou, Self::Agents, Self::Board, Self::Queue, Self::Graph, Self::History, Self::Machines];

    /// What it is called.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::NeedsYou => "Needs you",
            Self::Agents => "Agents",
            Self::Board => "Board",
            Self::Queue => "Queue",
            Self::Graph => "Graph",
            Self::History => "History",
            Self::Machines => "Machines",
        }
    }
}

/// What a screen shows.
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
    #[must_use]
    pub fn screen(&self) -> Screen {
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

    /// Looks at repositories for a screen.
    pub fn of(sources: &[RepositorySource<'_>], screen: Screen) -> Result<Self, Error> {
        Ok(match screen {
            Screen::NeedsYou => Self::NeedsYou(NeedsYouView::of(sources)?),
            Screen::Agents => Self::Agents(AgentsView::of(sources)?),
            Screen::Board => Self::Board(BoardView::of(sources, CARDS)?),
            Screen::Queue => Self::Queue(QueueView::of(sources)?),
            Screen::Graph => Self::Graph(GraphView::of(sources)?),
            Screen::History => Self::History(HistoryView::of(sources, EVENTS)?),
            Screen::Machines => Self::Machines(MachinesView::of(sources)?),
        })
    }
}
