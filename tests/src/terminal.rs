//! A terminal that a story types into: tmux, with a server of its own.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{Home, toft_bin};

/// How long a screen may take to show something.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program in a terminal.
pub struct Terminal {
    socket: String,
}

impl Terminal {
    /// Starts toft in a terminal of this size.
    pub fn toft(home: &Home, dir: &Path, args: &[&str], (width, height): (u16, u16)) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tmux-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let socket = home.path().join(name).display().to_string();
        let (width, height) = (width.to_string(), height.to_string());
        let program = toft_bin().display().to_string();
        // What the program ends with is seen, too.
        let script = r#""$@"; echo "ended with $?"; read wait"#;
        let mut all = vec!["-S", &socket, "-f", "/dev/null", "new-session", "-d", "-x", &width, "-y", &height];
        all.extend(["sh", "-c", script, "sh", &program]);
        all.extend(args);
        let started = home.command(dir, "tmux", &all).env("LC_ALL", "C.UTF-8").env("TERM", "xterm-256color").status();
        assert!(started.unwrap().success());
        Self { socket }
    }

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux").args(["-S", &self.socket]).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Presses keys, as tmux names them.
    pub fn press(&self, keys: &[&str]) {
        let mut all = vec!["send-keys"];
        all.extend(keys);
        self.tmux(&all);
    }

    /// Types a text.
    pub fn enter(&self, text: &str) {
        self.tmux(&["send-keys", "-l", "--", text]);
    }

    /// Pastes a text, as a terminal does.
    pub fn paste(&self, text: &str) {
        self.tmux(&["set-buffer", "--", text]);
        self.tmux(&["paste-buffer", "-p"]);
    }

    /// The process that runs in it.
    pub fn pid(&self) -> String {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let output = Command::new("pgrep").args(["-P", shell.trim()]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// What is on the screen, with colours.
    pub fn coloured_screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// Makes it larger or smaller.
    pub fn resize(&self, width: u16, height: u16) {
        self.tmux(&["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]);
    }

    /// Waits until the screen has a text; returns the screen.
    pub fn until(&self, text: &str) -> String {
        self.until_it(text, |screen| screen.contains(text))
    }

    /// Waits until the screen does not have a text.
    pub fn until_gone(&self, text: &str) -> String {
        self.until_it(&format!("no {text}"), |screen| !screen.contains(text))
    }

    fn until_it(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let screen = self.screen();
            if holds(&screen) {
                return screen;
            }
            assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}\n{screen}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
