//! What is on the screen, and what keys do. No terminal, no store.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use toft::{
    time::Timestamp,
    views::{CommandResult, LineComments, LogLine, NeedsYouView, RowAction, Screen, ScreenView, command_line},
};

use crate::{
    issue_page::{IssuePage, Pane},
    keys::KEYS,
    prompt::{Prompt, PromptKey, Purpose, words},
    refresh::{OpenIssue, RefreshRequest, Refreshed},
    rows::{TopRow, TopTable},
};

/// What a key asks for beside the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Leave,
    /// Show what is wanted now.
    Refresh,
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
pub(crate) struct Popup {
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
    pub(crate) screens: BTreeMap<Screen, ScreenView>,
    /// The row that is chosen on each screen, and on each column of the board: its number, and what it is about.
    chosen: BTreeMap<(Screen, usize), (usize, String)>,
    pub(crate) column: usize,
    pub(crate) filter: String,
    pub(crate) prompt: Option<Prompt>,
    pub(crate) popup: Option<Popup>,
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
    /// The action whose preview runs.
    previewed: Option<RowAction>,
    /// How often something was seen.
    seen: u64,
    /// The rows that were made last, and for what.
    made: RefCell<Option<(TableKey, Rc<TopTable>)>>,
    /// How many rows fit.
    pub(crate) height: usize,
    /// When the refresh began that is not over.
    pub(crate) refreshing: Option<Instant>,
    /// What the clock says; fixed in tests.
    pub(crate) clock: fn() -> Timestamp,
}

impl TopState {
    pub(crate) fn new(title: String, color: bool) -> Self {
        Self {
            title,
            color,
            screen: Screen::NeedsYou,
            screens: BTreeMap::new(),
            chosen: BTreeMap::new(),
            column: 0,
            filter: String::new(),
            prompt: None,
            popup: None,
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
            refreshing: None,
            clock: || Timestamp(jiff::Timestamp::now().as_millisecond()),
        }
    }

    /// What is to be looked at.
    pub(crate) fn wanted(&self) -> RefreshRequest {
        RefreshRequest { screen: self.screen, issue: self.issue.as_ref().map(|page| page.about.clone()) }
    }

    /// Takes in what was seen.
    pub(crate) fn see(&mut self, refreshed: Refreshed) {
        let Refreshed { request, screens, issue, notes } = refreshed;
        self.said = notes.into_iter().next().or(self.said.take());
        self.seen += 1;
        (self.trouble, self.refreshing) = (None, None);
        for screen in screens {
            match screen {
                Ok(view) => drop(self.screens.insert(view.screen(), view)),
                Err(why) => self.trouble = Some(why),
            }
        }
        if let (Some(issue), Some(page)) = (issue, &mut self.issue)
            && request.issue.as_ref() == Some(&page.about)
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
    pub(crate) fn ran(&mut self, arguments: &[String], preview: bool, end: &CommandResult) {
        let line = command_line(arguments);
        if let Some(at) = self.running.iter().position(|running| *running == line) {
            self.running.remove(at);
        }
        // Other commands may end while a preview runs.
        let action = if preview { self.previewed.take() } else { None };
        let text = end.text.trim_end().to_owned();
        match action {
            Some(mut action) if end.succeeded => {
                if !action.limit_to(&text) {
                    return self.show_text(arguments, text);
                }
                self.show_text(arguments, text);
                self.prompt = Some(Prompt::new(Purpose::Confirm(action), ""));
            }
            _ if end.succeeded && text.lines().count() <= 1 => {
                self.said = Some(if text.is_empty() { "done".to_owned() } else { text });
            }
            _ => self.show_text(arguments, text),
        }
    }

    fn show_text(&mut self, arguments: &[String], text: String) {
        self.popup = Some(Popup { title: command_line(arguments), text, scroll: 0 });
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
        let table = TopTable::of(self.screens.get(&self.screen)?, self.column, now);
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
    pub(crate) fn actions(&self) -> Vec<RowAction> {
        match (&self.popup, &self.issue) {
            (Some(_), _) => Vec::new(),
            (None, Some(page)) => page.actions(),
            (None, None) => self.row().map(|row| row.actions).unwrap_or_default(),
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
        match self.screens.get(&Screen::NeedsYou) {
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
            KeyCode::Char('q') if self.popup.is_none() && self.issue.is_none() => self.leave(),
            KeyCode::Esc | KeyCode::Char('q') => self.back(),
            KeyCode::Down | KeyCode::Char('j') => self.moved(1),
            KeyCode::Up | KeyCode::Char('k') => self.moved(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.moved(self.height.cast_signed()),
            KeyCode::PageUp => self.moved(-self.height.cast_signed()),
            KeyCode::Home | KeyCode::Char('g') => self.moved(isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.moved(isize::MAX),
            KeyCode::Char('?') => {
                self.popup = Some(Popup { title: "Keys".to_owned(), text: KEYS.to_owned(), scroll: 0 });
                Vec::new()
            }
            KeyCode::Char(':') => {
                self.prompt = Some(Prompt::new(Purpose::Command, ""));
                Vec::new()
            }
            KeyCode::Char('1'..='7') | KeyCode::Tab if self.popup.take().is_some() && self.issue.is_none() => {
                self.screen_key(key.code)
            }
            _ if self.popup.is_some() => Vec::new(),
            KeyCode::Char('u') => self.begin(RowAction::undo()),
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
        vec![Effect::Refresh]
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
            KeyCode::Char(sign) => self.action(sign),
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
            KeyCode::Char(sign) => return self.action(sign),
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
        let purpose = match view.line_comments() {
            Some(LineComments::WithReview) => Some(Purpose::Draft { place }),
            Some(LineComments::AtOnce) => view.commented('c', &[(place, String::new())]).map(Purpose::RowAction),
            None => None,
        };
        match purpose {
            Some(purpose) => self.prompt = Some(Prompt::new(purpose, "")),
            None => self.said = Some("nobody works on it; c beside its text comments on the issue".to_owned()),
        }
        Vec::new()
    }

    /// Begins the action of a key.
    fn action(&mut self, sign: char) -> Vec<Effect> {
        match self.actions().into_iter().find(|action| action.key == sign) {
            Some(action) => self.begin(action),
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

    fn begin(&mut self, action: RowAction) -> Vec<Effect> {
        match (action.asks, action.preview_arguments()) {
            (Some(_), _) => self.prompt = Some(Prompt::new(Purpose::RowAction(action), "")),
            (None, Some(arguments)) => {
                self.previewed = Some(action);
                return self.start(arguments, true);
            }
            (None, None) => self.prompt = Some(Prompt::new(Purpose::Confirm(action), "")),
        }
        Vec::new()
    }

    fn start(&mut self, arguments: Vec<String>, preview: bool) -> Vec<Effect> {
        self.running.push(command_line(&arguments));
        vec![Effect::Run { arguments, preview }]
    }

    fn go(&mut self, screen: Screen) -> Vec<Effect> {
        (self.screen, self.filter) = (screen, String::new());
        vec![Effect::Refresh]
    }

    /// Leaves what is on top.
    fn back(&mut self) -> Vec<Effect> {
        if self.popup.take().is_some() {
            return Vec::new();
        }
        self.keep_drafts();
        if self.issue.take().is_some() {
            return vec![Effect::Refresh];
        }
        self.filter.clear();
        Vec::new()
    }

    fn moved(&mut self, by: isize) -> Vec<Effect> {
        match (&mut self.popup, &mut self.issue) {
            (Some(popup), _) => {
                let last = popup.text.lines().count().saturating_sub(1);
                popup.scroll = popup.scroll.saturating_add_signed(by).min(last);
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
        if matches!(prompt.purpose, Purpose::Filter) && typed != PromptKey::Cancelled {
            self.filter.clone_from(&prompt.text);
            self.choose(0);
        }
        if typed == PromptKey::Edited {
            return Vec::new();
        }
        let Some(Prompt { purpose, text, .. }) = self.prompt.take() else { return Vec::new() };
        // A preview is no longer needed.
        if matches!(purpose, Purpose::Confirm(_)) {
            self.popup = None;
        }
        if typed == PromptKey::Cancelled {
            if matches!(purpose, Purpose::Filter) {
                self.filter.clear();
            }
            return Vec::new();
        }
        match purpose {
            Purpose::Filter => Vec::new(),
            Purpose::Confirm(action) => {
                let arguments = action.with("");
                self.sent_drafts(&arguments);
                self.start(arguments, false)
            }
            Purpose::RowAction(action)
                if text.trim().is_empty() && !action.command.iter().any(|word| word == "--at") =>
            {
                self.said = Some("nothing was said, nothing was done".to_owned());
                Vec::new()
            }
            Purpose::RowAction(action) => {
                let arguments = action.with(text.trim());
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
