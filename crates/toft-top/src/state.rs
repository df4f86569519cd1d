//! What is on the screen, and what keys do. No terminal, no store.

use std::collections::BTreeMap;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use toft::{
    time::Timestamp,
    views::{Act, NeedsYouView, command_line},
};

use crate::{
    CommandEnd,
    issue_page::{IssuePage, Pane},
    looker::{LookOrder, OpenIssue, ScreenLook, ScreenView},
    prompt::{Prompt, Purpose, Typed, words},
    rows::{TopRow, TopTable},
};

/// A screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// What a key asks for beside the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Leave,
    /// Look at what is wanted now.
    Look,
    Run {
        arguments: Vec<String>,
        preview: bool,
    },
    /// End the command that runs.
    Stop,
}

/// Text above the screen: what a command printed, or the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sheet {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) scroll: usize,
}

/// What is on the screen.
pub(crate) struct TopState {
    /// What is looked at.
    pub(crate) title: String,
    pub(crate) color: bool,
    pub(crate) screen: Screen,
    pub(crate) sights: BTreeMap<Screen, ScreenView>,
    /// The row that is chosen on each screen, and on each column of the board.
    chosen: BTreeMap<(Screen, usize), usize>,
    pub(crate) column: usize,
    pub(crate) filter: String,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) sheet: Option<Sheet>,
    pub(crate) issue: Option<IssuePage>,
    /// What was said last.
    pub(crate) said: Option<String>,
    /// Why nothing new is seen.
    pub(crate) trouble: Option<String>,
    /// The command that runs.
    pub(crate) running: Option<String>,
    /// The act whose preview runs.
    previewed: Option<Act>,
    /// How many rows fit.
    pub(crate) height: usize,
    /// What the clock says; fixed in tests.
    pub(crate) clock: fn() -> Timestamp,
}

impl TopState {
    pub(crate) fn new(title: String, color: bool) -> Self {
        Self {
            title,
            color,
            screen: Screen::NeedsYou,
            sights: BTreeMap::new(),
            chosen: BTreeMap::new(),
            column: 0,
            filter: String::new(),
            prompt: None,
            sheet: None,
            issue: None,
            said: None,
            trouble: None,
            running: None,
            previewed: None,
            height: 20,
            clock: || Timestamp(jiff::Timestamp::now().as_millisecond()),
        }
    }

    /// What is to be looked at.
    pub(crate) fn wanted(&self) -> LookOrder {
        LookOrder { screen: self.screen, issue: self.issue.as_ref().map(|page| page.about.clone()) }
    }

    /// Takes in what was seen.
    pub(crate) fn see(&mut self, look: ScreenLook) {
        let ScreenLook { order, sight, issue, notes } = look;
        self.said = notes.into_iter().next().or(self.said.take());
        match sight {
            Ok(sight) => {
                self.trouble = None;
                self.sights.insert(order.screen, sight);
            }
            Err(why) => self.trouble = Some(why),
        }
        if let (Some(issue), Some(page)) = (issue, &mut self.issue)
            && order.issue.as_ref() == Some(&page.about)
        {
            match issue {
                Ok(issue) => page.see(issue),
                Err(why) => page.trouble = Some(why),
            }
        }
        self.choose(0);
    }

    /// Takes in how a command ended.
    pub(crate) fn ran(&mut self, arguments: &[String], preview: bool, end: &CommandEnd) {
        self.running = None;
        let act = self.previewed.take().filter(|_| preview);
        let text = end.text.trim_end().to_owned();
        match act {
            Some(act) if end.succeeded => {
                self.sheet = Some(Sheet { title: command_line(arguments), text, scroll: 0 });
                self.prompt = Some(Prompt::new(Purpose::Confirm(act), ""));
            }
            _ if end.succeeded && text.lines().count() <= 1 => {
                self.said = Some(if text.is_empty() { "done".to_owned() } else { text });
            }
            _ => self.sheet = Some(Sheet { title: command_line(arguments), text, scroll: 0 }),
        }
    }

    /// The rows of the screen.
    pub(crate) fn table(&self) -> Option<TopTable> {
        let table = TopTable::of(self.sights.get(&self.screen)?, self.column, (self.clock)());
        Some(if self.filter.is_empty() { table } else { table.filtered(&self.filter) })
    }

    /// The number of the row that is chosen.
    pub(crate) fn chosen(&self) -> usize {
        self.chosen.get(&self.place()).copied().unwrap_or(0)
    }

    /// The row that is chosen in a column of the board.
    pub(crate) fn chosen_in(&self, column: usize) -> usize {
        self.chosen.get(&(Screen::Board, column)).copied().unwrap_or(0)
    }

    fn place(&self) -> (Screen, usize) {
        (self.screen, if self.screen == Screen::Board { self.column } else { 0 })
    }

    pub(crate) fn row(&self) -> Option<TopRow> {
        self.table().and_then(|mut table| {
            let chosen = self.chosen();
            (chosen < table.rows.len()).then(|| table.rows.swap_remove(chosen))
        })
    }

    /// What can be done about what is chosen.
    pub(crate) fn acts(&self) -> Vec<Act> {
        match &self.issue {
            Some(page) => page.acts(),
            None => self.row().map(|row| row.acts).unwrap_or_default(),
        }
    }

    /// A command with the id of what is chosen as people see it.
    pub(crate) fn shortened(&self, command: &str) -> String {
        let ids = match &self.issue {
            Some(page) => page.issue.as_ref().map(|open| (open.view.id.clone(), open.view.shown.clone())),
            None => self.row().and_then(|row| Some((row.about?.1, row.shown))),
        };
        match ids {
            Some((id, shown)) if !shown.is_empty() => command.replace(&id, &shown),
            _ => command.to_owned(),
        }
    }

    pub(crate) fn needs_you(&self) -> Option<&NeedsYouView> {
        match self.sights.get(&Screen::NeedsYou) {
            Some(ScreenView::NeedsYou(view)) => Some(view),
            _ => None,
        }
    }

    /// Moves to another row.
    fn choose(&mut self, by: isize) {
        let count = self.table().map_or(0, |table| table.rows.len());
        let to = self.chosen().saturating_add_signed(by).min(count.saturating_sub(1));
        self.chosen.insert(self.place(), to);
    }

    /// Takes in what was pasted.
    pub(crate) fn paste(&mut self, text: &str) {
        if let Some(prompt) = &mut self.prompt {
            prompt.insert(text);
        }
    }

    /// Does what a key means here.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        self.said = None;
        if self.prompt.is_some() {
            return self.typed(key);
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') if self.running.is_some() => vec![Effect::Stop],
                KeyCode::Char('c') => vec![Effect::Leave],
                KeyCode::Char('d') => self.moved(self.height.cast_signed() / 2),
                KeyCode::Char('u') => self.moved(-(self.height.cast_signed() / 2)),
                _ => Vec::new(),
            };
        }
        match key.code {
            KeyCode::Char('q') if self.running.is_some() => {
                self.said = Some("a command runs; Ctrl-C ends it".to_owned());
                Vec::new()
            }
            KeyCode::Char('q') if self.sheet.is_none() && self.issue.is_none() => vec![Effect::Leave],
            KeyCode::Esc | KeyCode::Char('q') => self.back(),
            KeyCode::Down | KeyCode::Char('j') => self.moved(1),
            KeyCode::Up | KeyCode::Char('k') => self.moved(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.moved(self.height.cast_signed()),
            KeyCode::PageUp => self.moved(-self.height.cast_signed()),
            KeyCode::Home | KeyCode::Char('g') => self.moved(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.moved(isize::MAX),
            KeyCode::Char('?') => {
                self.sheet = Some(Sheet { title: "Keys".to_owned(), text: KEYS.to_owned(), scroll: 0 });
                Vec::new()
            }
            KeyCode::Char(':') => {
                self.prompt = Some(Prompt::new(Purpose::Command, ""));
                Vec::new()
            }
            _ if self.sheet.is_some() => Vec::new(),
            KeyCode::Char('u') => self.begin(Act::undo()),
            code => match &mut self.issue {
                Some(_) => self.issue_key(code),
                None => self.screen_key(code),
            },
        }
    }

    fn screen_key(&mut self, code: KeyCode) -> Vec<Effect> {
        let at = Screen::ALL.iter().position(|screen| *screen == self.screen).unwrap_or(0);
        let count = Screen::ALL.len();
        match code {
            KeyCode::Char(digit @ '1'..='7') => self.go(Screen::ALL[digit as usize - '1' as usize]),
            KeyCode::Tab => self.go(Screen::ALL[(at + 1) % count]),
            KeyCode::BackTab => self.go(Screen::ALL[(at + count - 1) % count]),
            KeyCode::Right if self.screen == Screen::Board => {
                self.column = (self.column + 1).min(5);
                Vec::new()
            }
            KeyCode::Left if self.screen == Screen::Board => {
                self.column = self.column.saturating_sub(1);
                Vec::new()
            }
            KeyCode::Char('/') => {
                self.prompt = Some(Prompt::new(Purpose::Filter, &self.filter));
                Vec::new()
            }
            KeyCode::Enter => match self.row().and_then(|row| row.about) {
                Some(about) => {
                    self.issue = Some(IssuePage::new(about));
                    vec![Effect::Look]
                }
                None => Vec::new(),
            },
            KeyCode::Char(sign) => self.act(sign),
            _ => Vec::new(),
        }
    }

    fn issue_key(&mut self, code: KeyCode) -> Vec<Effect> {
        let Some(page) = &mut self.issue else { return Vec::new() };
        match code {
            KeyCode::Tab => page.turn(1),
            KeyCode::BackTab => page.turn(-1),
            KeyCode::Char('d') => page.show(Pane::Diff),
            KeyCode::Char('o') => page.show(Pane::Log),
            KeyCode::Char('i') => page.show(Pane::Text),
            KeyCode::Char('h') => page.show(Pane::History),
            KeyCode::Char('c') if page.pane == Pane::Diff => return self.comment_on_line(),
            KeyCode::Char(sign) => return self.act(sign),
            _ => {}
        }
        Vec::new()
    }

    /// Asks for a comment on the line of the diff that is chosen.
    fn comment_on_line(&mut self) -> Vec<Effect> {
        let Some(page) = &self.issue else { return Vec::new() };
        let (Some(place), Some(OpenIssue { view, .. })) = (page.place(), &page.issue) else {
            self.said = Some("choose a line of a file first".to_owned());
            return Vec::new();
        };
        if view.returnable {
            self.prompt = Some(Prompt::new(Purpose::Draft { place }, ""));
        } else if view.acts.iter().any(|act| act.key == 't') {
            let act = Act::tell_about_line(&view.id, &place);
            self.prompt = Some(Prompt::new(Purpose::Act(act), ""));
        } else {
            self.said = Some("nobody works on it; c beside its text comments on the issue".to_owned());
        }
        Vec::new()
    }

    /// Begins the act of a key.
    fn act(&mut self, sign: char) -> Vec<Effect> {
        match self.acts().into_iter().find(|act| act.key == sign) {
            Some(act) => self.begin(act),
            None => Vec::new(),
        }
    }

    fn begin(&mut self, act: Act) -> Vec<Effect> {
        match (act.asks, &act.preview) {
            (Some(_), _) => self.prompt = Some(Prompt::new(Purpose::Act(act), "")),
            (None, Some(preview)) => {
                let arguments = preview.clone();
                self.previewed = Some(act);
                return self.start(arguments, true);
            }
            (None, None) => self.prompt = Some(Prompt::new(Purpose::Confirm(act), "")),
        }
        Vec::new()
    }

    fn start(&mut self, arguments: Vec<String>, preview: bool) -> Vec<Effect> {
        if let Some(running) = &self.running {
            self.said = Some(format!("{running} runs; wait for it, or end it with Ctrl-C"));
            return Vec::new();
        }
        self.running = Some(command_line(&arguments));
        vec![Effect::Run { arguments, preview }]
    }

    fn go(&mut self, screen: Screen) -> Vec<Effect> {
        (self.screen, self.filter) = (screen, String::new());
        vec![Effect::Look]
    }

    /// Leaves what is on top.
    fn back(&mut self) -> Vec<Effect> {
        if self.sheet.take().is_some() {
            return Vec::new();
        }
        if self.issue.take().is_some() {
            return vec![Effect::Look];
        }
        self.filter.clear();
        Vec::new()
    }

    fn moved(&mut self, by: isize) -> Vec<Effect> {
        match (&mut self.sheet, &mut self.issue) {
            (Some(sheet), _) => {
                let last = sheet.text.lines().count().saturating_sub(1);
                sheet.scroll = sheet.scroll.saturating_add_signed(by).min(last);
            }
            (None, Some(page)) => page.moved(by),
            (None, None) => self.choose(by),
        }
        Vec::new()
    }

    /// A key while a line is typed.
    fn typed(&mut self, key: KeyEvent) -> Vec<Effect> {
        let Some(prompt) = &mut self.prompt else { return Vec::new() };
        let typed = prompt.key(key);
        if matches!(prompt.purpose, Purpose::Filter) && typed != Typed::Given {
            self.filter.clone_from(&prompt.text);
            self.choose(0);
        }
        if typed == Typed::Changed {
            return Vec::new();
        }
        let Some(Prompt { purpose, text, .. }) = self.prompt.take() else { return Vec::new() };
        // A preview is no longer needed.
        if matches!(purpose, Purpose::Confirm(_)) {
            self.sheet = None;
        }
        if typed == Typed::Given {
            if matches!(purpose, Purpose::Filter) {
                self.filter.clear();
            }
            return Vec::new();
        }
        match purpose {
            Purpose::Filter => Vec::new(),
            Purpose::Confirm(act) => self.start(act.command, false),
            _ if text.trim().is_empty() => Vec::new(),
            Purpose::Act(act) => {
                let arguments = act.with(text.trim());
                if let Some(page) = &mut self.issue {
                    // Drafts went with it.
                    page.drafts.retain(|(place, _)| !arguments.contains(place));
                }
                self.start(arguments, false)
            }
            Purpose::Draft { place } => {
                if let Some(page) = &mut self.issue {
                    page.drafts.push((place, text.trim().to_owned()));
                    self.said = Some(format!("{} comments; r returns the work with them", page.drafts.len()));
                }
                Vec::new()
            }
            Purpose::Command => match words(&text) {
                Some(words) if words.first().is_some_and(|word| word == "q" || word == "quit") => vec![Effect::Leave],
                Some(words) => self.start(words, false),
                None => {
                    self.said = Some("a quote does not end".to_owned());
                    Vec::new()
                }
            },
        }
    }
}

/// The keys, for `?`.
const KEYS: &str = "\
1…7, Tab     screens: Needs you, Agents, Board, Queue, Graph, History, Machines
↑ ↓ j k      choose a row; PgUp PgDn g G go further
← →          columns of the board
Enter        open the issue: Tab goes on, i text, d changes, o log, h history
Esc, q       back; q on a screen leaves
/            only rows with this text

a            answer, approve, accept: what the row needs
r            return, reject, retry
t            tell the agent something while it works
s            stop the agent
p            pause or resume an agent
l            land, after a preview
v            revert what landed
c            comment: on a line of the changes, or on the issue
u            undo your last operation, after a preview
:            any command of toft: :add \"Sell apples\"
Ctrl-C       end the command that runs; otherwise leave

The line above the keys is the command that the first key runs.";
