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
    CommandView,
    page::{Ink, Page, after, clean},
    view::{NO_IDS, data},
};
use crate::setup::GuardStatus;

const UNCHECKED_PUSHES: &str =
    "Pushes are not checked: `toft setup guard` installs a hook that checks them for private issues.";
const CONTRIBUTOR_HINT: &str = "There is a remote `upstream`: if you do not maintain this project, \
    `toft init --contributor` keeps your planning private.";

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

impl Place {
    pub(crate) fn view(&self) -> CommandView<'_> {
        let mut row = located(&self.located);
        if let Some(workspace) = &self.workspace {
            row["workspace"] = data(workspace);
        }
        CommandView::new("where", row, [&self.located.store], |page| self.write(page))
    }

    fn write(&self, page: &mut Page) {
        let Self { located, workspace } = self;
        let missing = if located.store.missing() { "  (not created yet: toft init)" } else { "" };
        let mut row = |name: &str, value: String| page.line(format!("{name:11} {}", clean(&value)));
        row("store", format!("{}{missing}", located.store));
        row("because", located.source.to_string());
        if let Some(checkout) = &located.checkout {
            let id = located.repository.as_ref().map(|id| format!(" {id}")).unwrap_or_default();
            row("repository", format!("{}{id} ({})", checkout.name(), checkout.vcs.as_str()));
            row("shared", checkout.common_dir.display().to_string());
            row("worktree", format!("{} at {}", checkout.worktree, checkout.root.display()));
        }
        if let Some(Listed { workspace, holder, issue, .. }) = workspace {
            let task = workspace.task.as_ref().map(|task| format!(" for {task}")).unwrap_or_default();
            let issue = after(" of ", issue.as_ref());
            let holder = holder.as_deref().map_or(", not claimed".to_owned(), |name| format!(", held by {name}"));
            row("workspace", format!("{}{task}{issue}{holder}", workspace.name));
        }
        row("agent", located.agent.clone());
        for file in &located.files {
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

impl Initialised {
    pub(crate) fn view(&self) -> CommandView<'_> {
        let mut value = located(&self.located);
        value["new"] = self.new.into();
        value["registered"] = (self.new || self.registered).into();
        value["private"] = self.private.as_ref().map(|dir| dir.display().to_string()).into();
        if let Some(guard) = &self.guard {
            value["guard"] = guard.as_str().into();
        }
        CommandView::new("init", value, [&self.located.store], move |page| {
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
                page.line(format!(
                    "New issues are private from now on, in {place}; `toft propose` proposes one upstream."
                ));
                page.line(match &self.guard {
                    Some(guard) => clean(&guard.explained()),
                    None => UNCHECKED_PUSHES.to_owned(),
                });
            }
            if self.public {
                page.line("New issues go to the repository's own ledger from now on.");
            }
            if self.waiting {
                page.line("A remote has issues already: `toft sync` fetches them.");
            }
            if self.hint {
                page.line(CONTRIBUTOR_HINT);
            }
            if self.located.source == StoreSource::Flag {
                page.line("To use it in other commands, set TOFT_STORE, or `store = \"…\"` in .git/toft/config.toml.");
            }
        })
    }
}

/// The checks of `toft doctor`, and the place that was checked.
pub(crate) fn view_doctor<'a>(place: &'a Place, checks: &'a [Check]) -> CommandView<'a> {
    let failed = checks.iter().filter(|check| check.health == Health::Fail).map(|check| &check.what);
    CommandView::new("doctor", checks, failed, move |page| {
        place.write(page);
        page.line("");
        for check in checks {
            let health = match check.health {
                Health::Ok => page.ink(Ink::Good, "ok  "),
                Health::Warn => page.ink(Ink::Busy, "warn"),
                Health::Fail => page.ink(Ink::Bad, "FAIL"),
            };
            page.line(format!("{health}  {:11} {}", check.what, clean(&check.seen)));
        }
    })
}

/// What a repository would run, and whether it may.
pub(crate) fn view_trust<'a>(commands: &'a [String], ledgers: &'a [String], trusted: bool) -> CommandView<'a> {
    let mut row = json!({ "commands": commands, "trusted": trusted });
    if !ledgers.is_empty() {
        row["ledgers"] = data(ledgers);
    }
    CommandView::new("trust", row, commands, move |page| {
        if !ledgers.is_empty() {
            page.line("This repository adds these ledgers, in .toft/ledgers.toml:");
            ledgers.iter().for_each(|line| page.line(format!("  {}", clean(line))));
            page.line(match trusted {
                true => "They are used. `toft trust --revoke` revokes the trust.",
                false => "None of them is read or written until you run: toft trust --yes",
            });
        }
        if commands.is_empty() {
            page.line("This repository brings no commands.");
            return;
        }
        for command in commands {
            page.line(format!("  {}", clean(command)));
        }
        page.line(match trusted {
            true => "These commands run in new workspaces and in checks. `toft trust --revoke` revokes the trust.",
            false => "These commands do not run, and nothing that needs them happens, until you run: toft trust --yes",
        });
    })
}

pub(crate) fn view_forgotten(gone: &[(RetentionKind, u64)], logs: usize, bytes: u64) -> CommandView<'_> {
    let rows = gone.iter().map(|(what, count)| (what.as_str().to_owned(), Value::from(*count)));
    let rows: Value = rows
        .chain((logs > 0).then(|| ("logs".to_owned(), Value::from(logs))))
        .chain((bytes > 0).then(|| ("bytes".to_owned(), Value::from(bytes))))
        .collect();
    CommandView::new("gc", rows, NO_IDS, move |page| {
        if gone.is_empty() && logs == 0 {
            page.line("Nothing is old enough to be deleted.");
        }
        for (what, count) in gone {
            page.line(format!("Deleted {count} {}", what.as_str()));
        }
        if logs > 0 {
            page.line(format!("Deleted {logs} logs"));
        }
        if bytes > 0 {
            page.line(format!("Freed {:.1} MB", bytes as f64 / 1e6));
        }
    })
}
