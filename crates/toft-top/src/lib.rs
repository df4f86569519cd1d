//! `toft top`: what agents do, what needs a person, and what to do about it, in the terminal.
//!
//! It shows [`toft::views`] and runs commands of toft: no rule is here. [`state`] is what is seen and what keys do, without a
//! terminal; [`draw`] puts it on a screen; [`looker`] looks at the stores in the background.

mod draw;
mod issue_page;
mod looker;
mod plain;
mod prompt;
mod rows;
mod state;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use toft::views::Views;

use self::{
    draw::draw,
    looker::{LookOrder, Looker},
    state::{Effect, TopState},
};
pub use self::{looker::ScreenView, plain::run_plain, state::Screen};

/// Runs a command of toft, and returns what it printed. It ends early when the flag becomes true.
pub type Commander = Arc<dyn Fn(&[String], &AtomicBool) -> CommandEnd + Send + Sync>;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    pub succeeded: bool,
    pub text: String,
}

/// What `toft top` looks at, and how it does what it is told.
pub struct TopRules {
    pub views: Views,
    pub commander: Commander,
    /// What is looked at, in a few words.
    pub title: String,
    pub color: bool,
}

/// How long a key is waited for before the clock on the screen goes on.
const TICK: Duration = Duration::from_millis(250);

/// What the screen hears of.
pub(crate) enum News {
    /// A look is over.
    Seen(Box<looker::ScreenLook>),
    /// A command has ended.
    Ran { arguments: Vec<String>, preview: bool, end: CommandEnd },
}

/// Shows screens until the person leaves.
pub fn run(rules: TopRules) -> io::Result<()> {
    let (tell, news) = mpsc::channel();
    let TopRules { views, commander, title, color } = rules;
    let looker = Looker::start(Arc::new(views), tell.clone());
    let mut terminal = ratatui::try_init()?;
    let mut top = Top { state: TopState::new(title, color), looker, commander, tell, stop: Arc::default() };
    let done = top.show(&mut terminal, &news);
    top.stop.store(true, Ordering::Relaxed);
    ratatui::try_restore()?;
    done
}

/// The screens, and those who work for them.
struct Top {
    state: TopState,
    looker: Looker,
    commander: Commander,
    tell: Sender<News>,
    /// Ends a command that runs.
    stop: Arc<AtomicBool>,
}

impl Top {
    fn show(&mut self, terminal: &mut ratatui::DefaultTerminal, news: &Receiver<News>) -> io::Result<()> {
        self.look();
        let mut drawn = Instant::now() - TICK;
        let mut fresh = true;
        loop {
            if fresh || drawn.elapsed() >= Duration::from_secs(1) {
                terminal.draw(|frame| draw(frame, &mut self.state))?;
                (drawn, fresh) = (Instant::now(), false);
            }
            // Keys first: they are answered at once.
            while event::poll(Duration::ZERO)? {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        let effects = self.state.key(key);
                        if self.carry_out(effects) {
                            return Ok(());
                        }
                    }
                    Event::Paste(text) => self.state.paste(&text),
                    _ => {}
                }
                fresh = true;
            }
            if fresh {
                continue;
            }
            match news.recv_timeout(Duration::from_millis(30)) {
                Ok(News::Seen(look)) => self.state.see(*look),
                Ok(News::Ran { arguments, preview, end }) => {
                    self.state.ran(&arguments, preview, &end);
                    self.look();
                }
                Err(RecvTimeoutError::Timeout) => {
                    if !event::poll(TICK)? {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("nobody looks any more")),
            }
            fresh = true;
        }
    }

    fn look(&mut self) {
        self.looker.order(self.state.wanted());
    }

    /// Does what a key asked for; returns whether to leave.
    fn carry_out(&mut self, effects: Vec<Effect>) -> bool {
        for effect in effects {
            match effect {
                Effect::Leave => return true,
                Effect::Look => self.look(),
                Effect::Stop => self.stop.store(true, Ordering::Relaxed),
                Effect::Run { arguments, preview } => {
                    self.stop.store(false, Ordering::Relaxed);
                    let (commander, tell, stop) = (self.commander.clone(), self.tell.clone(), self.stop.clone());
                    thread::spawn(move || {
                        let end = commander(&arguments, &stop);
                        // Nobody listens any more if the person has left.
                        let _ = tell.send(News::Ran { arguments, preview, end });
                    });
                }
            }
        }
        false
    }
}

impl From<Screen> for LookOrder {
    fn from(screen: Screen) -> Self {
        Self { screen, issue: None }
    }
}
