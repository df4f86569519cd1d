//! The only place that prints. An outcome comes in as a [`CommandView`]; out goes text for people and agents, or JSON.

mod agents;
mod diff;
mod fleet;
mod flows;
mod graph;
mod history;
mod issues;
mod land;
mod live;
mod names;
mod page;
mod pager;
mod place;
mod run;
mod setup;
mod share;
mod state;
mod status;
mod svg;
mod table;
mod tasks;
mod times;
mod transcript;
mod upkeep;
mod view;
mod workspaces;

use std::{
    cell::RefCell,
    collections::BTreeSet,
    io::{IsTerminal as _, Write as _},
};

use serde_json::{Value, json};
use toft::text::clean_json;

pub(crate) use self::{
    agents::{
        view_agent, view_agents, view_ended_rest, view_inbox, view_sent_message, view_told_agents, view_told_holder,
    },
    diff::view_diff,
    fleet::{
        view_login, view_new_token, view_opened_board, view_repositories, view_revoked_tokens, view_serving,
        view_tokens,
    },
    flows::{
        view_changed_plan, view_flow, view_flows, view_moved_flow, view_new_flow, view_removed_template,
        view_stored_template, view_template, view_templates,
    },
    graph::Graph,
    history::{view_event, view_history},
    issues::{
        IssueList, IssueShown, view_compactions, view_export, view_import, view_ledgers, view_undone,
        view_written_issue, view_written_issues,
    },
    land::{
        view_flaky_checks, view_land_forecast, view_land_summary, view_landing, view_landing_decision, view_landings,
        view_review,
    },
    names::{Names, view_everything},
    page::{Page, clean},
    place::{Initialised, Place, view_doctor, view_forgotten, view_trust},
    run::{RunProgress, Stopped, view_context, view_demo, view_prime},
    setup::{SetupShown, view_push_guard},
    share::{
        view_findings, view_moved_issues, view_outgoing, view_proposals, view_publications, view_purge, view_sync,
    },
    state::view_state_value,
    status::view_status,
    tasks::{
        Claims, TaskList, view_answer, view_assigned_task, view_decided_tasks, view_finish, view_ready,
        view_reported_finish, view_save, view_task, view_tasks_to_retry,
    },
    transcript::{ConversationPrinter, view_attempt_log},
    upkeep::{view_backup, view_call_schemas, view_migration, view_restored_store, view_written_files},
    view::CommandView,
    workspaces::{
        WsList, WsShown, view_given_workspace, view_pin, view_pool, view_rescue, view_rescues, view_shell_function,
        view_tidied, view_workspace_env, view_workspace_path,
    },
};
use crate::{
    args::{Color, Global},
    exit::Failure,
};

/// A line of progress on its way.
pub(crate) struct Soon {
    done: Option<std::sync::mpsc::Sender<()>>,
    teller: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Soon {
    fn drop(&mut self) {
        self.done.take();
        if let Some(teller) = self.teller.take() {
            // It only prints; whether it could is nobody's concern.
            let _ = teller.join();
        }
    }
}

/// Writes over the line of progress.
fn progress(text: &str) {
    use std::io::Write as _;
    // Nobody needs to know that progress could not be shown.
    let _ = write!(std::io::stderr(), "\r\x1b[K{text}");
}

/// A line of a server's log.
pub(crate) fn log_line(text: &str) {
    use std::io::Write as _;
    // A log that cannot be written is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Says at once what a command waits for.
pub(crate) fn tell_wait(text: &str) {
    use std::io::Write as _;
    if !toft_top::tell_wait(text) {
        // Nobody needs to know that it could not be said.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
}

/// Where and how to print.
pub(crate) struct Output {
    json: Option<String>,
    quiet: bool,
    color: bool,
    /// What is shown is kept instead, for another program.
    kept: Option<RefCell<Kept>>,
    /// What is shown is also remembered, to be shown again.
    remembered: RefCell<Option<Value>>,
}

/// What would have been printed.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// As text.
    pub(crate) text: String,
    /// What kind of thing it was.
    pub(crate) kind: String,
    /// As data.
    pub(crate) data: Value,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let color = match global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        let remembered = RefCell::default();
        Self { json: global.json.clone(), quiet: global.quiet, color, kept: None, remembered }
    }

    /// Lines for people, as they come.
    pub(crate) fn stream() -> impl std::io::Write {
        std::io::stdout()
    }

    /// Whether a person sits at a terminal that shows what is printed.
    pub(crate) fn shown_at_terminal() -> bool {
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    /// Whether people see colours.
    pub(crate) fn in_color(&self) -> bool {
        self.color
    }

    /// For when the arguments could not be read.
    pub(crate) fn plain(json: bool) -> Self {
        let (json, remembered) = (json.then(String::new), RefCell::default());
        Self { json, quiet: false, color: false, kept: None, remembered }
    }

    /// Prints nothing: what is shown is kept.
    pub(crate) fn keeping() -> Self {
        Self { kept: Some(RefCell::default()), ..Self::plain(false) }
    }

    /// From now on what is shown is remembered too.
    pub(crate) fn remember(&self) {
        *self.remembered.borrow_mut() = Some(Value::Null);
    }

    /// What was shown, if anything was.
    pub(crate) fn remembered(&self) -> Option<Value> {
        self.remembered.take().filter(|shown| !shown.is_null())
    }

    /// What was kept.
    pub(crate) fn kept(self) -> Kept {
        self.kept.map(RefCell::into_inner).unwrap_or_default()
    }

    /// Says how far something slow is, on one line that is written over; only to a person at a terminal.
    pub(crate) fn progress(&self, text: &str) {
        if self.kept.is_none() && std::io::stderr().is_terminal() && !self.quiet {
            progress(text);
        }
    }

    /// Says what is waited for if it takes longer than a moment; dropped, it says no more.
    pub(crate) fn soon(&self, text: String) -> Option<Soon> {
        const MOMENT: std::time::Duration = std::time::Duration::from_millis(1_500);
        if self.kept.is_some() || !std::io::stderr().is_terminal() || self.quiet {
            return None;
        }
        let (done, waited) = std::sync::mpsc::channel::<()>();
        let teller = std::thread::spawn(move || {
            if waited.recv_timeout(MOMENT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                progress(&clean(&text));
                // Until it is over.
                let _ = waited.recv();
                progress("");
            }
        });
        Some(Soon { done: Some(done), teller: Some(teller) })
    }

    /// Whether another program reads what is printed.
    pub(crate) fn machine(&self) -> bool {
        self.json.is_some()
    }

    /// Whether nothing but ids was asked for.
    pub(crate) fn silent(&self) -> bool {
        self.quiet
    }

    /// Whether JSON was asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.json.is_some()
    }

    /// Prints lines as they are: data for other programs.
    pub(crate) fn lines(&self, lines: &[String]) {
        lines.iter().for_each(|line| self.print(line));
    }

    /// Prints a view and what goes beside it: `notes` in JSON, lines after the text, on stderr where only ids were asked for.
    /// `shorten` abbreviates the ids in a text. Refuses fields that nothing has.
    pub(crate) fn show(
        &self,
        view: &CommandView<'_>,
        notes: &[String],
        shorten: &dyn Fn(&str) -> String,
    ) -> Result<(), Failure> {
        if self.remembered.borrow().is_some() {
            *self.remembered.borrow_mut() = Some(view.remembered());
        }
        let lines = || notes.iter().map(|note| format!("note: {}\n", clean(note))).collect::<String>();
        if let Some(kept) = &self.kept {
            let mut kept = kept.borrow_mut();
            kept.text.push_str(&view.laid_out(false, None, shorten));
            kept.text.push_str(&shorten(&lines()));
            (kept.kind, kept.data) = (view.kind.to_owned(), view.json());
            return Ok(());
        }
        if self.json.is_some() {
            let data = view.json();
            self.check_fields(&data)?;
            let mut envelope = self.envelope(view, data);
            if !notes.is_empty() {
                envelope["notes"] = json!(notes);
            }
            self.print(&clean_json(&envelope.to_string()));
        } else if self.quiet {
            view.ids.iter().for_each(|id| self.print(id));
            // Nobody is left to tell if stderr is gone.
            let _ = std::io::stderr().write_all(lines().as_bytes());
        } else {
            let text = view.laid_out(self.color, page::terminal_width(), shorten) + &shorten(&lines());
            let shown = text.is_empty() || view.for_pager && pager::shown(&text);
            if !shown {
                self.print(text.trim_end_matches('\n'));
            }
        }
        Ok(())
    }

    fn fields(&self) -> Vec<&str> {
        self.json.iter().flat_map(|fields| fields.split(',')).filter(|field| !field.is_empty()).collect()
    }

    fn check_fields(&self, data: &Value) -> Result<(), Failure> {
        let rows = match data {
            Value::Array(rows) => rows.as_slice(),
            other => std::slice::from_ref(other),
        };
        let known: BTreeSet<&str> =
            rows.iter().filter_map(Value::as_object).flat_map(|row| row.keys().map(String::as_str)).collect();
        match self.fields().into_iter().find(|field| !known.is_empty() && !known.contains(field)) {
            Some(field) => {
                let known: Vec<_> = known.into_iter().collect();
                let help = format!("use some of {}", known.join(","));
                Err(Failure::invalid(format!("--json: there is no field `{field}`"), &help))
            }
            None => Ok(()),
        }
    }

    fn envelope(&self, view: &CommandView<'_>, data: Value) -> Value {
        let mut envelope = json!({ "toft": 1, "kind": view.kind, "data": self.select(data) });
        if let Some(page) = view.page() {
            envelope["page"] = page;
        }
        envelope
    }

    /// Keeps only the fields that were asked for, of each row.
    fn select(&self, data: Value) -> Value {
        let fields = self.fields();
        if fields.is_empty() {
            return data;
        }
        match data {
            Value::Array(rows) => rows.into_iter().map(|row| self.select(row)).collect(),
            Value::Object(mut row) => {
                row.retain(|name, _| fields.contains(&name.as_str()));
                Value::Object(row)
            }
            other => other,
        }
    }

    /// Prints why nothing was done: as JSON on stdout if that was asked for, else on stderr.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json.is_some() {
            let mut said = json!({ "toft": 1, "error": failure.json() });
            if let Some(seen) = &failure.seen {
                (said["kind"], said["data"]) = (seen.0.as_str().into(), self.select(seen.1.clone()));
            }
            self.print(&clean_json(&said.to_string()));
            return;
        }
        let page = Page::new(false);
        let mut text = format!("error[{}]: {}\n", failure.code, page.told(&failure.message));
        if let Some(help) = &failure.help {
            text.push_str(&format!("  help: {}\n", page.told(help)));
        }
        // Nobody is left to tell if stderr is gone.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    fn print(&self, text: &str) {
        if let Some(kept) = &self.kept {
            let mut kept = kept.borrow_mut();
            kept.text.push_str(text);
            kept.text.push('\n');
            return;
        }
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            Ok(()) => {}
            // The reader went away; there is nobody to print for.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
            // What was done is done; whoever reads the output did not get it.
            Err(error) => {
                let text = format!("error[output]: the output could not be written: {error}\n");
                let _ = std::io::stderr().write_all(text.as_bytes());
                std::process::exit(i32::from(crate::codes::FAILED));
            }
        }
    }
}
