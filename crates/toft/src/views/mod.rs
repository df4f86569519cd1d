//! What people look at: structs that the terminal, the browser and the command line render. They are built from verbs; who
//! renders one decides nothing.

mod action;
mod agents;
mod board;
mod diff;
mod graph;
mod history;
mod issue;
mod layout;
mod log;
mod machines;
mod needs_you;
mod queue;
mod screen;
mod status;

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, Instant},
};

use toft_core::{refusal::Refusal, repository::Scope, token::TokenRole};
use toft_session::{Error, config::Config, repositories::repositories_of_server};

use crate::{Reached, Toft, every_repository};

use self::board::WorkflowFacts;
pub use self::{
    action::{CommandDir, CommandResult, CommandRunner, RowAction, command_line},
    agents::{AgentRow, AgentsView, BudgetRow},
    board::{BoardColumn, BoardView, Card},
    diff::{DiffKind, DiffLine, DiffView},
    graph::{GraphMark, GraphRow, GraphView, graph_rows},
    history::{HistoryRow, HistoryView, particulars},
    issue::{AttemptRow, IssueView, LineComments, NamedIssue, SaidRow},
    layout::{DrawnEdge, EdgeKind, GraphDrawing, NODE_SIZE, edge_path, graph_layout},
    log::{FollowedLog, LogLine, LogReader},
    machines::{MachineRow, MachinesView},
    needs_you::{Need, NeedKind, NeedsYouView},
    queue::{QueueRow, QueueView, landing_name, landing_state},
    screen::{Screen, ScreenView},
    status::{RepositoryStatus, StatusView, unlanded},
};

/// A repository that is looked at.
#[derive(Clone)]
pub struct RepositorySource<'a> {
    pub toft: &'a Toft,
    pub scope: Scope,
    /// What it is called, where there are several.
    pub name: Option<String>,
    /// Whether its issues are wanted, too.
    pub ledgers: bool,
    /// Whether its directory is a clone.
    pub is_clone: bool,
    /// What the token of who looks at it may do; without one, everything.
    pub role: Option<TokenRole>,
}

impl RepositorySource<'_> {
    /// The directory in which commands about it run.
    fn dir(&self) -> Option<CommandDir> {
        let path = || self.toft.located().dir.clone();
        let (is_clone, role) = (self.is_clone, self.role);
        self.name.as_ref().map(|_| CommandDir { path: path(), is_clone, role })
    }

    /// Ids as people see them: as short as is unique.
    fn shorten(&self, ids: &[&str]) -> Vec<String> {
        let shown = self.toft.shorten_ids(&ids.join("\n"));
        let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
        if shown.len() == ids.len() { shown } else { ids.iter().map(|id| (*id).to_owned()).collect() }
    }
}

/// Repositories that are looked at for a while.
pub struct Views {
    repositories: Vec<Reached>,
    several: bool,
    /// Whether their directories are clones.
    are_clones: bool,
    /// What the token of who looks at them may do; without one, everything.
    role: Option<TokenRole>,
}

/// How far the stores were when something was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewCursor(Vec<u64>);

impl Views {
    /// Of one repository.
    #[must_use]
    pub fn of(toft: Toft) -> Self {
        let scope = toft.scope();
        Self {
            repositories: vec![Reached { toft, scope, name: None, ledgers: true }],
            several: false,
            are_clones: true,
            role: None,
        }
    }

    /// Of every repository of this user; the second list has what could not be read.
    pub fn of_all(config: &Config) -> Result<(Self, Vec<String>), Error> {
        let (repositories, bad) = every_repository(config)?;
        Ok((Self { repositories: named(repositories), several: true, are_clones: true, role: None }, bad))
    }

    /// Of every repository of the server of `config`, on a machine without clones: their plans are kept below `plans`.
    pub fn of_server(config: &Config, plans: &Path) -> Result<Self, Error> {
        let reached = repositories_of_server(config, plans)?;
        let role = reached[0].session.token_role()?;
        // What an agent has for its own task shows nothing of the plan.
        if let Some(role) = role.filter(|role| !role.reads_ledgers()) {
            let (name, why) = (config.agent.clone().unwrap_or_default(), "it reads no plans".to_owned());
            return Err(Refusal::TokenDenied { name, role, why }.into());
        }
        let repositories = named(reached.into_iter().map(Reached::from).collect());
        Ok(Self { repositories, several: true, are_clones: false, role })
    }

    /// The repositories.
    #[must_use]
    pub fn sources(&self) -> Vec<RepositorySource<'_>> {
        let mut sources = Vec::new();
        for Reached { toft, scope, name, ledgers } in &self.repositories {
            let name = name.clone().or_else(|| self.several.then(String::new));
            let (scope, is_clone, role) = (scope.clone(), self.are_clones, self.role);
            sources.push(RepositorySource { toft, scope, name, ledgers: *ledgers, is_clone, role });
        }
        sources
    }

    /// Whether they are looked at on a server, each person with a token of theirs.
    #[must_use]
    pub fn are_of_server(&self) -> bool {
        !self.are_clones
    }

    /// What the repositories are called.
    pub fn names(&self) -> Vec<Option<&str>> {
        self.repositories.iter().map(|reached| reached.name.as_deref()).collect()
    }

    /// The repository of this name; the only one if there is one.
    pub fn source(&self, name: Option<&str>) -> Option<RepositorySource<'_>> {
        let mut sources = self.sources();
        match sources.len() {
            1 => sources.pop(),
            _ => sources.into_iter().find(|source| source.name.as_deref() == name),
        }
    }

    /// What can be done wherever one looks; of several repositories, none is meant.
    pub fn actions(&self) -> Vec<RowAction> {
        let mut sources = self.sources();
        let Some(only) = sources.pop().filter(|_| sources.is_empty()) else { return Vec::new() };
        RowAction::about([RowAction::add(), RowAction::undo()], "", only.dir().as_ref())
    }

    /// One repository of each store.
    fn stores(&self) -> Vec<&Reached> {
        let mut known = BTreeSet::new();
        let new = |reached: &&Reached| known.insert(reached.toft.located().store.to_string());
        self.repositories.iter().filter(new).collect()
    }

    /// How far the stores are.
    pub fn cursor(&self) -> Result<ViewCursor, Error> {
        let stores = self.stores().into_iter();
        let cursors = stores.map(|reached| Ok(reached.toft.engine().change_counter()?)).collect::<Result<_, Error>>();
        cursors.map(ViewCursor)
    }

    /// Waits until a store has changed since, or so long. A single store is waited for; of several, each is looked at in turn.
    pub fn wait(&self, cursor: &ViewCursor, patience: Duration) -> Result<ViewCursor, Error> {
        /// How often several stores are looked at.
        const LOOK: Duration = Duration::from_millis(200);
        let until = Instant::now() + patience;
        if let ([only], [pulse]) = (self.stores().as_slice(), cursor.0.as_slice()) {
            return Ok(ViewCursor(vec![only.toft.wait_for_change(*pulse, until)?]));
        }
        loop {
            let now = self.cursor()?;
            if now != *cursor || Instant::now() >= until {
                return Ok(now);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What was said beside the outcomes.
    pub fn take_notes(&self) -> Vec<String> {
        self.repositories.iter().flat_map(|reached| reached.toft.take_notes()).collect()
    }
}

/// Each repository with a name of its own, so that it is found again by it.
fn named(mut repositories: Vec<Reached>) -> Vec<Reached> {
    let mut known: BTreeSet<String> = BTreeSet::new();
    for reached in &mut repositories {
        let name = reached.name.clone().unwrap_or_default();
        let numbered = (2..).map(|count| format!("{name} ({count})"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !known.contains(name));
        known.extend(free.clone());
        if free.as_ref() != Some(&name) {
            reached.name = free;
        }
    }
    repositories
}
