//! What was seen, as rows of a table: each with what can be done about it.

use std::time::Duration;

use ratatui::layout::Constraint;
use toft::{
    agent::Presence,
    landing::LandingState,
    time::{Timestamp, span},
    views::{AgentRow, BoardColumn, Card, GraphRow, HistoryRow, MachineRow, Need, QueueRow, RowAction, ScreenView},
};

/// How a text is meant; colours follow, and nothing is said by colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Id,
    Good,
    Busy,
    Bad,
    Faint,
    Head,
}

/// A piece of text.
pub(crate) type StyledText = (Tone, String);

/// A row that can be chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopRow {
    pub(crate) cells: Vec<StyledText>,
    /// The id as people see it.
    pub(crate) shown: String,
    /// What opens: the repository, and the issue or task.
    pub(crate) about: Option<(Option<String>, String)>,
    pub(crate) actions: Vec<RowAction>,
    /// What is said of it beside the table.
    pub(crate) detail: Vec<StyledText>,
}

impl TopRow {
    /// What it is about, also when its text changes.
    pub(crate) fn key(&self) -> String {
        match &self.about {
            Some((repository, id)) => format!("{} {id}", repository.as_deref().unwrap_or_default()),
            None => self.cells.iter().map(|(_, text)| text.as_str()).next().unwrap_or_default().to_owned(),
        }
    }
}

/// Rows, and what stands above them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TopTable {
    pub(crate) heads: Vec<(&'static str, Constraint)>,
    pub(crate) rows: Vec<TopRow>,
    /// What is said if there is none.
    pub(crate) empty: &'static str,
}

impl TopTable {
    /// The rows of a screen; of the board, those of one column.
    pub(crate) fn of(view: &ScreenView, column: usize, now: Timestamp) -> Self {
        Self::whole(view, column, now).without_empty_columns()
    }

    /// The same table without columns that say nothing: no row has something there, or all have the same machine.
    fn without_empty_columns(mut self) -> Self {
        let says = |n: usize, head: &str| {
            let mut texts = self.rows.iter().filter_map(|row| row.cells.get(n)).map(|(_, text)| text);
            let first = texts.next().cloned().unwrap_or_default();
            match head {
                "machine" if self.heads.len() == 7 => texts.any(|text| *text != first),
                _ => !first.is_empty() || texts.any(|text| !text.is_empty()),
            }
        };
        let kept: Vec<bool> = self.heads.iter().enumerate().map(|(n, (head, _))| says(n, head)).collect();
        if self.rows.is_empty() {
            return self;
        }
        let mut at = kept.iter();
        self.heads.retain(|_| at.next().copied().unwrap_or(true));
        for row in &mut self.rows {
            let mut at = kept.iter();
            row.cells.retain(|_| at.next().copied().unwrap_or(true));
        }
        self
    }

    fn whole(view: &ScreenView, column: usize, now: Timestamp) -> Self {
        use Constraint::{Fill, Length};
        match view {
            ScreenView::NeedsYou(view) => Self {
                heads: vec![
                    ("what", Length(10)),
                    ("id", Length(10)),
                    ("waits", Length(5)),
                    ("since", Length(7)),
                    ("title", Fill(2)),
                    ("says", Fill(3)),
                ],
                rows: view.rows.iter().map(|need| need_row(need, now)).collect(),
                empty: "Nothing needs you.",
            },
            ScreenView::Agents(view) => Self {
                heads: vec![
                    ("agent", Length(16)),
                    ("id", Length(10)),
                    ("for", Length(7)),
                    ("task", Fill(2)),
                    ("last note", Fill(3)),
                    ("cost", Length(6)),
                    ("machine", Length(10)),
                ],
                rows: view.rows.iter().map(|row| agent_row(row, now)).collect(),
                empty: "No agent is at work. `toft run` starts some.",
            },
            ScreenView::Board(view) => Self {
                heads: vec![
                    ("id", Length(10)),
                    ("P", Length(2)),
                    ("title", Fill(3)),
                    ("agent", Length(16)),
                    ("says", Fill(2)),
                ],
                rows: view.columns.get(column).map(column_rows).unwrap_or_default(),
                empty: "Nothing is here.",
            },
            ScreenView::Queue(view) => Self {
                heads: vec![
                    ("id", Length(10)),
                    ("title", Fill(2)),
                    ("by", Length(16)),
                    ("state", Fill(2)),
                    ("since", Length(7)),
                ],
                rows: view.rows.iter().map(|row| queue_row(row, now)).collect(),
                empty: "Nothing is finished and not landed.",
            },
            ScreenView::Graph(view) => Self {
                heads: vec![
                    ("", Length(2)),
                    ("id", Length(10)),
                    ("P", Length(2)),
                    ("title", Fill(3)),
                    ("needs", Fill(1)),
                ],
                rows: view.rows.iter().map(graph_row).collect(),
                empty: "The plan has no open issue. `:add \"title\"` adds one.",
            },
            ScreenView::History(view) => Self {
                heads: vec![
                    ("when", Length(8)),
                    ("who", Length(16)),
                    ("did", Length(20)),
                    ("id", Length(10)),
                    ("what", Fill(1)),
                ],
                rows: view.rows.iter().map(|row| history_row(row, now)).collect(),
                empty: "Nothing has happened yet.",
            },
            ScreenView::Machines(view) => Self {
                heads: vec![
                    ("machine", Fill(1)),
                    ("working", Length(8)),
                    ("idle", Length(6)),
                    ("paused", Length(7)),
                    ("offline", Length(8)),
                    ("seen", Length(8)),
                ],
                rows: view.rows.iter().map(machine_row).collect(),
                empty: "No agent was here yet.",
            },
        }
    }

    /// The same table with the rows that have a text.
    pub(crate) fn filtered(mut self, text: &str) -> Self {
        let wanted = text.to_lowercase();
        let has = |styled: &StyledText| styled.1.to_lowercase().contains(&wanted);
        self.rows.retain(|row| row.cells.iter().chain(&row.detail).any(has));
        self
    }
}

/// How long ago, as short as a column.
pub(crate) fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map(|at| span(now.since(at))).unwrap_or_default()
}

fn lines(tone: Tone, text: &str) -> impl Iterator<Item = StyledText> + '_ {
    text.lines().map(move |line| (tone, line.to_owned()))
}

fn of_repository(repository: Option<&String>) -> Option<StyledText> {
    repository.filter(|name| !name.is_empty()).map(|name| (Tone::Faint, format!("in {name}")))
}

fn need_row(need: &Need, now: Timestamp) -> TopRow {
    let from = need.from.as_ref().map(|from| format!("{from}: ")).unwrap_or_default();
    let behind = if need.behind > 0 { need.behind.to_string() } else { String::new() };
    let mut detail = vec![(Tone::Head, need.title.clone())];
    detail.extend(of_repository(need.repository.as_ref()));
    detail.extend(need.from.iter().map(|from| (Tone::Faint, format!("{from} says"))));
    detail.extend(lines(Tone::Plain, &need.text));
    if need.behind > 0 {
        let wait = if need.behind == 1 { "waits" } else { "wait" };
        detail.push((Tone::Busy, format!("{} {wait} for it", need.behind)));
    }
    TopRow {
        cells: vec![
            (Tone::Bad, need.kind.as_str().to_owned()),
            (Tone::Id, need.shown.clone()),
            (Tone::Busy, behind),
            (Tone::Faint, age(need.since, now)),
            (Tone::Plain, need.title.clone()),
            (Tone::Plain, format!("{from}{}", need.text)),
        ],
        shown: need.shown.clone(),
        about: opens(need.repository.as_ref(), &need.id),
        actions: need.actions.clone(),
        detail,
    }
}

fn opens(repository: Option<&String>, id: &str) -> Option<(Option<String>, String)> {
    (!id.is_empty()).then(|| (repository.cloned(), id.to_owned()))
}

fn agent_row(row: &AgentRow, now: Timestamp) -> TopRow {
    let idle = match row.presence {
        Presence::Working => "",
        Presence::Idle => "idle",
        Presence::Paused => "paused",
        Presence::Offline => "offline",
        Presence::Removed => "removed",
    };
    let (tone, task) = match (row.lost, row.id.is_empty()) {
        (true, _) => (Tone::Bad, format!("lease lost: {}", row.title)),
        _ if row.waits => (Tone::Bad, format!("waits for you: {}", row.title)),
        (_, false) if row.paused => (Tone::Faint, format!("then paused: {}", row.title)),
        (_, true) => (Tone::Faint, idle.to_owned()),
        _ => (Tone::Plain, row.title.clone()),
    };
    let cost = row.cost.map(|cost| format!("{cost:.2}")).unwrap_or_default();
    let mut detail = vec![(Tone::Head, row.title.clone())];
    detail.extend(of_repository(row.repository.as_ref()));
    detail.push((Tone::Faint, format!("{} on {}", row.name, row.machine)));
    detail.extend(row.runtime.iter().map(|runtime| (Tone::Faint, runtime.clone())));
    detail.extend(row.workspace.iter().map(|name| (Tone::Faint, format!("workspace {name}"))));
    let silent = span(Duration::from_secs(row.silent_s));
    detail.push((Tone::Faint, format!("last sign of life {silent} ago")));
    detail.extend(row.note.iter().flat_map(|note| lines(Tone::Plain, note)));
    TopRow {
        cells: vec![
            (Tone::Plain, row.name.clone()),
            (Tone::Id, row.shown.clone()),
            (Tone::Busy, age(row.since, now)),
            (tone, task),
            (Tone::Faint, row.note.clone().unwrap_or_default()),
            (Tone::Plain, cost),
            (Tone::Faint, row.machine.clone()),
        ],
        shown: row.shown.clone(),
        about: opens(row.repository.as_ref(), &row.id),
        actions: row.actions.clone(),
        detail,
    }
}

fn column_rows(column: &BoardColumn) -> Vec<TopRow> {
    column.cards.iter().map(card_row).collect()
}

fn card_row(card: &Card) -> TopRow {
    let mut detail = vec![(Tone::Head, card.title.clone())];
    detail.extend(of_repository(card.repository.as_ref()));
    if !card.labels.is_empty() {
        detail.push((Tone::Faint, card.labels.join(", ")));
    }
    if card.unblocks > 0 {
        let waits =
            if card.unblocks == 1 { "1 issue needs".to_owned() } else { format!("{} issues need", card.unblocks) };
        detail.push((Tone::Busy, format!("{waits} it")));
    }
    detail.extend(card.note.iter().flat_map(|note| lines(Tone::Plain, note)));
    let says = if card.needs_you { "waits for you".to_owned() } else { card.note.clone().unwrap_or_default() };
    TopRow {
        cells: vec![
            (Tone::Id, card.shown.clone()),
            (Tone::Faint, format!("P{}", card.priority)),
            (Tone::Plain, card.title.clone()),
            (Tone::Busy, card.agent.clone().unwrap_or_default()),
            (if card.needs_you { Tone::Bad } else { Tone::Faint }, says),
        ],
        shown: card.shown.clone(),
        about: opens(card.repository.as_ref(), &card.id),
        actions: card.actions.clone(),
        detail,
    }
}

fn queue_row(row: &QueueRow, now: Timestamp) -> TopRow {
    let tone = match row.state {
        LandingState::Queued if row.conflicts.is_empty() => Tone::Busy,
        LandingState::Landed => Tone::Good,
        LandingState::Withdrawn => Tone::Faint,
        LandingState::Queued | LandingState::Bounced => Tone::Bad,
    };
    let against = row.against.as_ref().map(|other| format!(" with {other}")).unwrap_or_default();
    let waits = match row.conflicts.is_empty() {
        true => row.waits.clone(),
        false => format!("conflicts{against} in {}", row.conflicts.join(", ")),
    };
    let mut detail = vec![(Tone::Head, row.title.clone())];
    detail.extend(of_repository(row.repository.as_ref()));
    detail.push((Tone::Faint, format!("by {}, into {}", row.author, row.target)));
    detail.push((tone, waits.clone()));
    detail.extend(row.sent_back.iter().flat_map(|said| lines(Tone::Plain, said)));
    TopRow {
        cells: vec![
            (Tone::Id, row.shown.clone()),
            (Tone::Plain, row.title.clone()),
            (Tone::Faint, row.author.clone()),
            (tone, waits),
            (Tone::Faint, age(Some(row.updated), now)),
        ],
        shown: row.shown.clone(),
        about: opens(row.repository.as_ref(), &row.id),
        actions: row.actions.clone(),
        detail,
    }
}

fn graph_row(row: &GraphRow) -> TopRow {
    let tone = if row.critical { Tone::Busy } else { Tone::Plain };
    let sign = format!("{}{}", row.mark.sign(), if row.critical { "*" } else { "" });
    let title = format!("{}{}", "  ".repeat(row.depth.min(20)), row.title);
    let mut detail = vec![(Tone::Head, row.title.clone()), (Tone::Plain, row.mark.as_str().to_owned())];
    detail.extend(of_repository(row.repository.as_ref()));
    if row.critical {
        detail.push((Tone::Busy, "* on the critical path: the longest chain of open issues".to_owned()));
    }
    if !row.labels.is_empty() {
        detail.push((Tone::Faint, row.labels.join(", ")));
    }
    TopRow {
        cells: vec![
            (tone, sign),
            (Tone::Id, row.shown.clone()),
            (Tone::Faint, format!("P{}", row.priority)),
            (tone, title),
            (Tone::Faint, row.needs.join(", ")),
        ],
        shown: row.shown.clone(),
        about: opens(row.repository.as_ref(), &row.id),
        actions: Vec::new(),
        detail,
    }
}

fn history_row(row: &HistoryRow, now: Timestamp) -> TopRow {
    let mut detail = vec![(Tone::Head, row.verb.clone()), (Tone::Plain, row.meaning.clone())];
    detail.push((Tone::Faint, format!("by {}", row.actor)));
    detail.extend(of_repository(row.repository.as_ref()));
    detail.extend(row.title.iter().map(|title| (Tone::Plain, title.clone())));
    detail.extend(lines(Tone::Plain, &row.text));
    TopRow {
        cells: vec![
            (Tone::Faint, age(Some(row.at), now)),
            (Tone::Plain, row.actor.clone()),
            (Tone::Plain, row.said.clone()),
            (Tone::Id, row.shown.clone()),
            (Tone::Faint, [row.title.as_deref(), Some(&row.text)].into_iter().flatten().collect::<Vec<_>>().join("  ")),
        ],
        shown: row.shown.clone(),
        about: opens(row.repository.as_ref(), &row.entity),
        actions: Vec::new(),
        detail,
    }
}

fn machine_row(row: &MachineRow) -> TopRow {
    let count = |count: usize| if count == 0 { String::new() } else { count.to_string() };
    let seen = span(Duration::from_secs(row.silent_s));
    TopRow {
        cells: vec![
            (Tone::Plain, row.name.clone()),
            (Tone::Busy, count(row.working)),
            (Tone::Plain, count(row.idle)),
            (Tone::Plain, count(row.paused)),
            (Tone::Faint, count(row.offline)),
            (Tone::Faint, seen.clone()),
        ],
        shown: String::new(),
        about: None,
        actions: row.actions.clone(),
        detail: [(Tone::Head, row.name.clone()), (Tone::Faint, format!("last sign of life {seen} ago"))]
            .into_iter()
            .chain(row.note.iter().map(|note| (Tone::Plain, note.clone())))
            .collect(),
    }
}
