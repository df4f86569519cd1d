//! `toft top`: what agents do, what needs a person, and what to do about it, in the terminal.
//!
//! It shows [`toft::views`] and runs commands of toft: no rule is here. [`state`] is what is seen and what keys do, without a
//! terminal; [`draw`] puts it on a screen; [`refresh`] reads the stores in the background.

mod draw;
mod issue_page;
mod keys;
mod plain;
mod prompt;
mod refresh;
mod rows;
mod state;
#[cfg(test)]
mod tests;

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use crossterm::{
    event::{self, DisableBracketedPaste, EnableBracketedPaste, Event, KeyEventKind},
    execute,
};
use ratatui::DefaultTerminal;
use signal_hook::iterator::Signals;
use toft::views::{CommandResult, CommandRunner, LogLine, Views};

pub use self::plain::run_plain;
use self::{
    draw::draw,
    refresh::Refresher,
    state::{Effect, TopState},
};

/// What `toft top` looks at, and how it does what it is told.
pub struct TopRules {
    pub views: Views,
    pub runner: CommandRunner,
    /// What is looked at, in a few words.
    pub title: String,
    pub color: bool,
}

/// How long a key is waited for before the clock on the screen goes on.
const TICK: Duration = Duration::from_millis(250);

/// What the screen hears of.
pub(crate) enum UiEvent {
    /// A refresh has begun.
    Refreshing(Instant),
    /// A refresh is over.
    Refreshed(Box<refresh::Refreshed>),
    /// What the agent of an issue that is open has said.
    Log { about: (Option<String>, String), log: Vec<LogLine> },
    /// A server does not answer.
    ServerSilent(String),
    /// A command has ended.
    CommandEnded { arguments: Vec<String>, preview: bool, end: CommandResult },
}

/// Who hears that a server does not answer.
static WAITS: Mutex<Option<Sender<UiEvent>>> = Mutex::new(None);

/// Says on the screen that a server does not answer; returns whether there is one.
pub fn tell_wait(text: &str) -> bool {
    let waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
    waits.as_ref().is_some_and(|tell| tell.send(UiEvent::ServerSilent(text.to_owned())).is_ok())
}

/// The signal of a terminal that is gone.
const HANGUP: &[i32] = if cfg!(unix) { &[1] } else { &[] };
/// How long a terminal that is gone may keep us from leaving.
const GONE: Duration = Duration::from_secs(1);
/// How long commands have to end when the person leaves.
const ENDS: Duration = Duration::from_secs(10);

/// Shows screens until the person leaves.
pub fn run(rules: TopRules) -> io::Result<()> {
    let (tell, news) = mpsc::channel();
    let TopRules { views, runner, title, color } = rules;
    let refresher = Refresher::start(Arc::new(views), tell.clone());
    let mut terminal = open_terminal()?;
    let ends = end_by_signals()?;
    let mut top = Top { state: TopState::new(title, color), refresher, runner, tell, stops: Vec::new() };
    *WAITS.lock().unwrap_or_else(PoisonError::into_inner) = Some(top.tell.clone());
    let done = top.show(&mut terminal, &news, &ends.told);
    ends.left.store(true, Ordering::Relaxed);
    *WAITS.lock().unwrap_or_else(PoisonError::into_inner) = None;
    close_terminal()?;
    top.end_commands(&news);
    done
}

/// Whether signals told us to end, and whether we have left the screens.
#[derive(Clone, Default)]
struct SignalEnd {
    told: Arc<AtomicBool>,
    left: Arc<AtomicBool>,
}

/// Ends the screens when a signal says so. Waiting for a key of a terminal that is gone may never end: then the process does.
fn end_by_signals() -> io::Result<SignalEnd> {
    let ending = SignalEnd::default();
    let mut signals = Signals::new(signal_hook::consts::TERM_SIGNALS.iter().chain(HANGUP))?;
    let told = ending.clone();
    thread::spawn(move || {
        for _ in signals.forever() {
            told.told.store(true, Ordering::Relaxed);
            thread::sleep(GONE);
            if !told.left.load(Ordering::Relaxed) {
                // There may be nothing left to restore.
                let _ = close_terminal();
                std::process::exit(0);
            }
        }
    });
    Ok(ending)
}

/// The screens, and those who work for them.
struct Top {
    state: TopState,
    refresher: Refresher,
    runner: CommandRunner,
    tell: Sender<UiEvent>,
    /// Each ends a command that runs.
    stops: Vec<Arc<AtomicBool>>,
}

impl Top {
    /// Ends commands that run, and waits for them.
    fn end_commands(&mut self, news: &Receiver<UiEvent>) {
        self.stop_commands();
        let until = Instant::now() + ENDS;
        while !self.state.running.is_empty() && Instant::now() < until {
            if let Ok(UiEvent::CommandEnded { arguments, preview, end }) = news.recv_timeout(ENDS) {
                self.state.ran(&arguments, preview, &end);
            }
        }
    }

    fn show(&mut self, terminal: &mut DefaultTerminal, news: &Receiver<UiEvent>, ends: &AtomicBool) -> io::Result<()> {
        self.refresh();
        let mut drawn: Option<Instant> = None;
        let mut fresh = true;
        while !ends.load(Ordering::Relaxed) {
            if fresh || drawn.is_none_or(|at| at.elapsed() >= Duration::from_secs(1)) {
                terminal.draw(|frame| draw(frame, &mut self.state))?;
                (drawn, fresh) = (Some(Instant::now()), false);
            }
            // Keys first: they are answered at once.
            while event::poll(Duration::ZERO)? {
                match event::read()? {
                    Event::Key(key) if key.kind != KeyEventKind::Release => {
                        let effects = self.state.key(key);
                        if self.carry_out(effects, terminal)? {
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
                Ok(UiEvent::Refreshing(since)) => {
                    self.state.refreshing = Some(since);
                    continue;
                }
                Ok(UiEvent::Refreshed(refreshed)) => self.state.see(*refreshed),
                Ok(UiEvent::Log { about, log }) => self.state.see_log(&about, &log),
                Ok(UiEvent::ServerSilent(why)) => self.state.trouble = Some(why),
                Ok(UiEvent::CommandEnded { arguments, preview, end }) => {
                    self.state.ran(&arguments, preview, &end);
                    self.refresh();
                }
                Err(RecvTimeoutError::Timeout) => {
                    if !event::poll(TICK)? {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(io::Error::other("the refresher has ended")),
            }
            fresh = true;
        }
        Ok(())
    }

    fn stop_commands(&mut self) {
        self.stops.drain(..).for_each(|stop| stop.store(true, Ordering::Relaxed));
    }

    fn refresh(&mut self) {
        self.refresher.request(self.state.wanted());
    }

    /// Does what a key asked for; returns whether to leave.
    fn carry_out(&mut self, effects: Vec<Effect>, terminal: &mut DefaultTerminal) -> io::Result<bool> {
        for effect in effects {
            match effect {
                Effect::Leave => return Ok(true),
                Effect::Refresh => self.refresh(),
                Effect::Redraw => terminal.clear()?,
                Effect::Suspend => suspend(terminal)?,
                Effect::Stop => self.stop_commands(),
                Effect::Run { arguments, preview } => {
                    let (runner, tell, stop) = (self.runner.clone(), self.tell.clone(), Arc::default());
                    self.stops.push(Arc::clone(&stop));
                    thread::spawn(move || {
                        let end = runner(&arguments, &stop);
                        // Nobody listens any more if the person has left.
                        let _ = tell.send(UiEvent::CommandEnded { arguments, preview, end });
                    });
                }
            }
        }
        Ok(false)
    }
}

/// Takes the terminal over: a text that is pasted comes as one, whatever lines it has.
fn open_terminal() -> io::Result<DefaultTerminal> {
    let terminal = ratatui::try_init()?;
    execute!(io::stdout(), EnableBracketedPaste)?;
    Ok(terminal)
}

fn close_terminal() -> io::Result<()> {
    execute!(io::stdout(), DisableBracketedPaste)?;
    ratatui::try_restore()
}

/// Gives the terminal back to the shell until that lets this program go on.
fn suspend(terminal: &mut DefaultTerminal) -> io::Result<()> {
    close_terminal()?;
    #[cfg(unix)]
    signal_hook::low_level::emulate_default_handler(signal_hook::consts::SIGTSTP)?;
    *terminal = open_terminal()?;
    terminal.clear()
}
