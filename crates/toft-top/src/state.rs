//! What is on the screen, and what keys do. No terminal, no store.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use toft::{
    time::Timestamp,
    views::{Act, LogLine, NeedsYouView, command_line},
};

use crate::{
    CommandEnd,
    issue_page::{IssuePage, Pane},
    keys::KEYS,
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
    /// Put everything on the screen anew.
    Redraw,
    /// Give the terminal back to the shell until it continues.
    Suspend,
    /// End the command that runs.
    Stop,
}

/// A repository, and an issue or task in it.
pub(crate) type About = (Option<String>, String);

/// What rows are made for: the screen, its column, the filter, the second, and what was seen.
type TableKey = (Screen, usize, String, i64, u64);

/// Comments, each with its place.
pub(crate) type Drafts = Vec<(String, String)>;

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
    /// The row that is chosen on each screen, and on each column of the board: its number, and what it is about.
    chosen: BTreeMap<(Screen, usize), (usize, String)>,
    pub(crate) column: usize,
    pub(crate) filter: String,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) sheet: Option<Sheet>,
    pub(crate) issue: Option<IssuePage>,
    /// What was said last.
    pub(crate) said: Option<String>,
    /// Why nothing new is seen.
    pub(crate) trouble: Option<String>,
    /// Commands that run.
    pub(crate) running: Vec<String>,
    /// Commands that were typed, the newest last.
    typed: Vec<String>,
    /// Comments on lines that are not sent yet, by issue.
    drafts: BTreeMap<About, Drafts>,
    /// The person was told that something would be lost.
    warned: bool,
    /// The act whose preview runs.
    previewed: Option<Act>,
    /// How often something was seen.
    seen: u64,
    /// The rows that were made last, and for what.
    made: RefCell<Option<(TableKey, Rc<TopTable>)>>,
    /// How many rows fit.
    pub(crate) height: usize,
    /// When the look began that is not over.
    pub(crate) looking: Option<Instant>,
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
            running: Vec::new(),
            typed: Vec::new(),
            drafts: BTreeMap::new(),
            warned: false,
            previewed: None,
            seen: 0,
            made: RefCell::default(),
            height: 20,
            looking: None,
            clock: || Timestamp(jiff::Timestamp::now().as_millisecond()),
        }
    }

    /// What is to be looked at.
    pub(crate) fn wanted(&self) -> LookOrder {
        LookOrder { screen: self.screen, issue: self.issue.as_ref().map(|page| page.about.clone()) }
    }

    /// Takes in what was seen.
    pub(crate) fn see(&mut self, look: ScreenLook) {
        let ScreenLook { order, sights, issue, notes } = look;
        self.said = notes.into_iter().next().or(self.said.take());
        self.seen += 1;
        (self.trouble, self.looking) = (None, None);
        for sight in sights {
            match sight {
                Ok(sight) => drop(self.sights.insert(sight.screen(), sight)),
                Err(why) => self.trouble = Some(why),
            }
        }
        if let (Some(issue), Some(page)) = (issue, &mut self.issue)
            && order.issue.as_ref() == Some(&page.about)
        {
            match issue {
                Ok(issue) => page.see(issue),
                Err(why) => page.trouble = Some(why),
            }
        }
        self.find_chosen();
    }

    /// Takes in what an agent said meanwhile.
    pub(crate) fn see_log(&mut self, about: &(Option<String>, String), log: &[LogLine]) {
        if let Some(page) = self.issue.as_mut().filter(|page| page.about == *about && page.issue.is_some()) {
            page.see_log(log);
        }
    }

    /// Finds the row again that was chosen: others may stand above it now.
    fn find_chosen(&mut self) {
        let (Some(table), Some((_, key))) = (self.table(), self.chosen.get(&self.place()).cloned()) else { return };
        if let Some(at) = table.rows.iter().position(|row| row.key() == key) {
            self.chosen.insert(self.place(), (at, key));
        }
        self.choose(0);
    }

    /// Takes in how a command ended.
    pub(crate) fn ran(&mut self, arguments: &[String], preview: bool, end: &CommandEnd) {
        let line = command_line(arguments);
        if let Some(at) = self.running.iter().position(|running| *running == line) {
            self.running.remove(at);
        }
        // Other commands may end while a preview runs.
        let act = if preview { self.previewed.take() } else { None };
        let text = end.text.trim_end().to_owned();
        match act {
            Some(mut act) if end.succeeded => {
                // The preview names the command that does exactly what it shows.
                let exact = text.lines().filter_map(|line| line.split_once("toft undo ")).next();
                if let Some(words) = exact.filter(|_| act.label == "undo").and_then(|(_, rest)| words(rest)) {
                    act.command.extend(words);
                }
                self.sheet = Some(Sheet { title: command_line(arguments), text, scroll: 0 });
                self.prompt = Some(Prompt::new(Purpose::Confirm(act), ""));
            }
            _ if end.succeeded && text.lines().count() <= 1 => {
                self.said = Some(if text.is_empty() { "done".to_owned() } else { text });
            }
            _ => self.sheet = Some(Sheet { title: command_line(arguments), text, scroll: 0 }),
        }
    }

    /// The rows of the screen. They are made once for each second, and when something was seen: there may be thousands.
    pub(crate) fn table(&self) -> Option<Rc<TopTable>> {
        let now = (self.clock)();
        let made_for = (self.screen, self.column, self.filter.clone(), now.0 / 1_000, self.seen);
        if let Some((known, table)) = self.made.borrow().as_ref()
            && *known == made_for
        {
            return Some(table.clone());
        }
        let table = TopTable::of(self.sights.get(&self.screen)?, self.column, now);
        let table = Rc::new(if self.filter.is_empty() { table } else { table.filtered(&self.filter) });
        *self.made.borrow_mut() = Some((made_for, table.clone()));
        Some(table)
    }

    /// The number of the row that is chosen.
    pub(crate) fn chosen(&self) -> usize {
        self.chosen.get(&self.place()).map_or(0, |(at, _)| *at)
    }

    /// The row that is chosen in a column of the board.
    pub(crate) fn chosen_in(&self, column: usize) -> usize {
        self.chosen.get(&(Screen::Board, column)).map_or(0, |(at, _)| *at)
    }

    fn place(&self) -> (Screen, usize) {
        (self.screen, if self.screen == Screen::Board { self.column } else { 0 })
    }

    pub(crate) fn row(&self) -> Option<TopRow> {
        self.table()?.rows.get(self.chosen()).cloned()
    }

    /// What can be done about what is chosen.
    pub(crate) fn acts(&self) -> Vec<Act> {
        match (&self.sheet, &self.issue) {
            (Some(_), _) => Vec::new(),
            (None, Some(page)) => page.acts(),
            (None, None) => self.row().map(|row| row.acts).unwrap_or_default(),
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
        let table = self.table().unwrap_or_default();
        let to = self.chosen().saturating_add_signed(by).min(table.rows.len().saturating_sub(1));
        let key = table.rows.get(to).map(TopRow::key).unwrap_or_default();
        self.chosen.insert(self.place(), (to, key));
    }

    /// Takes in what was pasted.
    pub(crate) fn paste(&mut self, text: &str) {
        if let Some(prompt) = &mut self.prompt {
            prompt.insert(text);
        }
    }

    /// Does what a key means here.
    pub(crate) fn key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.modifiers == KeyModifiers::ALT {
            // A terminal sends the same for Esc and a key soon after it.
            let mut effects = self.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
            effects.extend(self.key(KeyEvent::new(key.code, KeyModifiers::NONE)));
            return effects;
        }
        self.said = None;
        if key.code != KeyCode::Char('q') {
            self.warned = false;
        }
        if self.prompt.is_some() {
            return self.typed(key);
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') if !self.running.is_empty() => vec![Effect::Stop],
                KeyCode::Char('c') => vec![Effect::Leave],
                KeyCode::Char('l') => vec![Effect::Redraw],
                KeyCode::Char('z') => vec![Effect::Suspend],
                KeyCode::Char('d') => self.moved(self.height.cast_signed() / 2),
                KeyCode::Char('u') => self.moved(-(self.height.cast_signed() / 2)),
                _ => Vec::new(),
            };
        }
        match key.code {
            KeyCode::Char('q') if self.sheet.is_none() && self.issue.is_none() => self.leave(),
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
            KeyCode::Char('1'..='7') | KeyCode::Tab if self.sheet.take().is_some() && self.issue.is_none() => {
                self.screen_key(key.code)
            }
            _ if self.sheet.is_some() => Vec::new(),
            KeyCode::Char('u') => self.begin(Act::undo()),
            code => match &mut self.issue {
                Some(_) => self.issue_key(code),
                None => self.screen_key(code),
            },
        }
    }

    /// Leaves, unless something would be lost.
    fn leave(&mut self) -> Vec<Effect> {
        let drafts: usize = self.drafts.values().map(Vec::len).sum();
        if !self.running.is_empty() {
            self.said = Some("a command runs; Ctrl-C ends it".to_owned());
            return Vec::new();
        }
        if drafts > 0 && !self.warned {
            self.warned = true;
            self.said = Some(format!("{} not sent; q again leaves", counted(drafts, "comment is", "comments are")));
            return Vec::new();
        }
        vec![Effect::Leave]
    }

    /// Opens the issue of the row that is chosen.
    fn open(&mut self, pane: Pane) -> Vec<Effect> {
        let Some(about) = self.row().and_then(|row| row.about) else { return Vec::new() };
        let mut page = IssuePage::new(about.clone());
        page.drafts = self.drafts.get(&about).cloned().unwrap_or_default();
        page.show(pane);
        self.issue = Some(page);
        vec![Effect::Look]
    }

    /// Keeps the comments that are not sent yet.
    fn keep_drafts(&mut self) {
        if let Some(page) = &self.issue {
            match page.drafts.is_empty() {
                true => drop(self.drafts.remove(&page.about)),
                false => drop(self.drafts.insert(page.about.clone(), page.drafts.clone())),
            }
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
            KeyCode::Enter => self.open(Pane::Text),
            KeyCode::Char('d') => self.open(Pane::Diff),
            KeyCode::Char('o') => self.open(Pane::Log),
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
            KeyCode::Char('x') if page.pane == Pane::Diff => {
                let place = page.place();
                page.drafts.retain(|(at, _)| Some(at) != place.as_ref());
                self.keep_drafts();
            }
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

    /// Comments that went with a command are no drafts any more.
    fn sent_drafts(&mut self, arguments: &[String]) {
        if let Some(page) = &mut self.issue {
            page.drafts.retain(|(place, _)| !arguments.contains(place));
        }
        self.keep_drafts();
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
        self.running.push(command_line(&arguments));
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
        self.keep_drafts();
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
        if key.code == KeyCode::Up && prompt.purpose == Purpose::Command {
            // Those before what stands there now.
            let before = self.typed.iter().rposition(|line| *line == prompt.text).unwrap_or(self.typed.len());
            if let Some(line) = before.checked_sub(1).and_then(|at| self.typed.get(at)) {
                *prompt = Prompt::new(Purpose::Command, line);
            }
            return Vec::new();
        }
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
            Purpose::Confirm(act) => {
                self.sent_drafts(&act.command);
                self.start(act.command, false)
            }
            Purpose::Act(act) if text.trim().is_empty() && !act.command.iter().any(|word| word == "--at") => {
                self.said = Some("nothing was said, nothing was done".to_owned());
                Vec::new()
            }
            Purpose::Act(act) => {
                let arguments = act.with(text.trim());
                self.sent_drafts(&arguments);
                self.start(arguments, false)
            }
            _ if text.trim().is_empty() => Vec::new(),
            Purpose::Draft { place } => {
                if let Some(page) = &mut self.issue {
                    page.drafts.push((place, text.trim().to_owned()));
                    let count = counted(page.drafts.len(), "comment", "comments");
                    self.said = Some(format!("{count}: r returns the work with it, a approves it; x removes it"));
                }
                self.keep_drafts();
                Vec::new()
            }
            Purpose::Command => match words(&text) {
                Some(words) if words.first().is_some_and(|word| word == "q" || word == "quit") => vec![Effect::Leave],
                Some(words) => {
                    self.typed.push(text);
                    self.start(words, false)
                }
                None => {
                    self.said = Some("a quote does not end".to_owned());
                    Vec::new()
                }
            },
        }
    }
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
