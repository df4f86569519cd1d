//! Where things are, and whether they work.

use std::path::PathBuf;

use serde_json::{Value, json};
use toft::{
    Located, StoreSource,
    doctor::{Check, Health},
    retention::RetentionKind,
    verbs::workspace::Listed,
};

use super::{
    View, data,
    page::{Ink, Page, clean},
};
use crate::setup::GuardStatus;

fn located(located: &Located) -> Value {
    let checkout = located.checkout.as_ref();
    json!({
        "store": located.store.to_string(),
        "exists": !located.store.missing(),
        "because": located.source.to_string(),
        "vcs": checkout.map(|checkout| checkout.vcs.as_str()),
        "root": checkout.map(|checkout| &checkout.root),
        "common_dir": checkout.map(|checkout| &checkout.common_dir),
        "worktree": checkout.map(|checkout| &checkout.worktree),
        "repository": located.repository,
        "agent": located.agent,
        "config": located.files,
    })
}

pub(crate) struct Place {
    pub(crate) located: Located,
    /// The workspace it was asked in.
    pub(crate) workspace: Option<Listed>,
}

impl View for Place {
    fn kind(&self) -> &'static str {
        "where"
    }

    fn json(&self) -> Value {
        let mut row = located(&self.located);
        if let Some(workspace) = &self.workspace {
            row["workspace"] = data(workspace);
        }
        row
    }

    fn ids(&self) -> Vec<String> {
        vec![self.located.store.to_string()]
    }

    fn text(&self, page: &mut Page) {
        let missing = if self.located.store.missing() { "  (not created yet: toft init)" } else { "" };
        let mut row = |name: &str, value: String| page.line(format!("{name:11} {}", clean(&value)));
        row("store", format!("{}{missing}", self.located.store));
        row("because", self.located.source.to_string());
        if let Some(checkout) = &self.located.checkout {
            let id = self.located.repository.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
            row("repository", format!("{}{id} ({})", checkout.name(), checkout.vcs.as_str()));
            row("shared", checkout.common_dir.display().to_string());
            row("worktree", format!("{} at {}", checkout.worktree, checkout.root.display()));
        }
        if let Some(Listed { workspace, holder, issue, .. }) = &self.workspace {
            let task = workspace.task.as_ref().map(|task| format!(" for {task}")).unwrap_or_default();
            let issue = issue.as_deref().map(|issue| format!(" of {issue}")).unwrap_or_default();
            let holder = holder.as_deref().map_or(", not claimed".to_owned(), |name| format!(", held by {name}"));
            row("workspace", format!("{}{task}{issue}{holder}", workspace.name));
        }
        row("agent", self.located.agent.clone());
        for file in &self.located.files {
            row("config", file.display().to_string());
        }
    }
}

pub(crate) struct Initialised {
    pub(crate) located: Located,
    pub(crate) new: bool,
    /// The store was there, and knows this repository from now on.
    pub(crate) registered: bool,
    /// Where new issues go, if they are private from now on.
    pub(crate) private: Option<PathBuf>,
    /// Whether pushes are guarded from now on, or why not.
    pub(crate) guard: Option<GuardStatus>,
    /// Whoever works here may want them to be.
    pub(crate) hint: bool,
    /// A role or a place was chosen.
    pub(crate) changed: bool,
    /// A remote has issues that were never brought here.
    pub(crate) waiting: bool,
    /// Whoever works here keeps the repository's own ledger again.
    pub(crate) public: bool,
}

impl View for Initialised {
    fn kind(&self) -> &'static str {
        "init"
    }

    fn json(&self) -> Value {
        let mut value = located(&self.located);
        value["new"] = self.new.into();
        value["registered"] = (self.new || self.registered).into();
        value["private"] = self.private.as_ref().map(|dir| dir.display().to_string()).into();
        if let Some(guard) = &self.guard {
            value["guard"] = guard.as_str().into();
        }
        value
    }

    fn ids(&self) -> Vec<String> {
        vec![self.located.store.to_string()]
    }

    fn text(&self, page: &mut Page) {
        let store = clean(&self.located.store.to_string());
        if self.new {
            page.line(format!("Created store {store}"));
            page.line("Next: `toft add \"title\"` adds an issue, `toft claim` claims it.");
        } else if self.registered {
            page.line(format!("Registered this repository in the existing store {store}."));
        } else {
            let changed = if self.changed { "" } else { "; nothing changed" };
            page.line(format!("The store {store} exists already{changed}."));
        }
        if let Some(private) = &self.private {
            let place = clean(&private.display().to_string());
            page.line(format!("New issues are private from now on, in {place}; `toft propose` proposes one upstream."));
            page.line(match &self.guard {
                Some(guard) => clean(&guard.explained()),
                None => {
                    "Pushes are not checked: `toft setup guard` installs a hook that checks them for private issues."
                        .into()
                }
            });
        }
        if self.public {
            page.line("New issues go to the repository's own ledger from now on.");
        }
        if self.waiting {
            page.line("A remote has issues already: `toft sync` fetches them.");
        }
        if self.hint {
            page.line("There is a remote `upstream`: if you do not maintain this project, `toft init --contributor` keeps your planning private.");
        }
        if self.located.source == StoreSource::Flag {
            page.line("To use it in other commands, set TOFT_STORE, or `store = \"…\"` in .git/toft/config.toml.");
        }
    }
}

/// The checks of `toft doctor`, and the place that was checked.
pub(crate) struct Examined {
    pub(crate) place: Place,
    pub(crate) checks: Vec<Check>,
}

impl View for Examined {
    fn kind(&self) -> &'static str {
        "doctor"
    }

    fn json(&self) -> Value {
        data(&self.checks)
    }

    fn ids(&self) -> Vec<String> {
        self.checks.iter().filter(|check| check.health == Health::Fail).map(|check| check.what.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        self.place.text(page);
        page.line("");
        for check in &self.checks {
            let health = match check.health {
                Health::Ok => page.ink(Ink::Good, "ok  "),
                Health::Warn => page.ink(Ink::Busy, "warn"),
                Health::Fail => page.ink(Ink::Bad, "FAIL"),
            };
            page.line(format!("{health}  {:11} {}", check.what, clean(&check.seen)));
        }
    }
}

/// What a repository would run, and whether it may.
pub(crate) struct Trusted {
    pub(crate) commands: Vec<String>,
    /// What its list of ledgers says, line by line.
    pub(crate) ledgers: Vec<String>,
    pub(crate) trusted: bool,
}

impl View for Trusted {
    fn kind(&self) -> &'static str {
        "trust"
    }

    fn json(&self) -> Value {
        let mut row = json!({ "commands": self.commands, "trusted": self.trusted });
        if !self.ledgers.is_empty() {
            row["ledgers"] = data(&self.ledgers);
        }
        row
    }

    fn ids(&self) -> Vec<String> {
        self.commands.clone()
    }

    fn text(&self, page: &mut Page) {
        if !self.ledgers.is_empty() {
            page.line("This repository adds these ledgers, in .toft/ledgers.toml:");
            self.ledgers.iter().for_each(|line| page.line(format!("  {}", clean(line))));
            page.line(match self.trusted {
                true => "They are used. `toft trust --revoke` revokes the trust.",
                false => "None of them is read or written until you run: toft trust --yes",
            });
        }
        if self.commands.is_empty() {
            page.line("This repository brings no commands.");
            return;
        }
        for command in &self.commands {
            page.line(format!("  {}", clean(command)));
        }
        page.line(match self.trusted {
            true => "These commands run in new workspaces and in checks. `toft trust --revoke` revokes the trust.",
            false => "These commands do not run, and nothing that needs them happens, until you run: toft trust --yes",
        });
    }
}

pub(crate) struct Forgotten {
    pub(crate) gone: Vec<(RetentionKind, u64)>,
    /// Logs of attempts.
    pub(crate) logs: usize,
    /// Given back to the file system.
    pub(crate) bytes: u64,
}

impl View for Forgotten {
    fn kind(&self) -> &'static str {
        "gc"
    }

    fn json(&self) -> Value {
        let rows = self.gone.iter().map(|(what, count)| (what.as_str().to_owned(), Value::from(*count)));
        rows.chain((self.logs > 0).then(|| ("logs".to_owned(), Value::from(self.logs))))
            .chain((self.bytes > 0).then(|| ("bytes".to_owned(), Value::from(self.bytes))))
            .collect()
    }

    fn ids(&self) -> Vec<String> {
        Vec::new()
    }

    fn text(&self, page: &mut Page) {
        if self.gone.is_empty() && self.logs == 0 {
            page.line("Nothing is old enough to be deleted.");
        }
        for (what, count) in &self.gone {
            page.line(format!("Deleted {count} {}", what.as_str()));
        }
        if self.logs > 0 {
            page.line(format!("Deleted {} logs", self.logs));
        }
        if self.bytes > 0 {
            page.line(format!("Freed {:.1} MB", self.bytes as f64 / 1e6));
        }
    }
}
