//! What wiring changes: each file's difference.

use serde_json::{Value, json};
use similar::TextDiff;

use super::{
    CommandView,
    page::{Ink, Page, clean},
    view::NO_IDS,
};
use crate::setup::{ClientAnswer, FileChange};

/// What was, or would be, written.
pub(crate) struct SetupShown {
    pub(crate) all: Vec<FileChange>,
    pub(crate) names: String,
    pub(crate) written: bool,
    pub(crate) removed: bool,
    /// There is a store that hooks can reach.
    pub(crate) store: bool,
    /// What each client itself says, by its title.
    pub(crate) asked: Vec<(&'static str, ClientAnswer)>,
}

impl SetupShown {
    /// The differences.
    pub(crate) fn diffs(all: &[FileChange], page: &mut Page) {
        for FileChange { name, before, after, .. } in all {
            let what = match (before, after) {
                (None, _) => "new",
                (_, None) => "removed",
                _ => "changed",
            };
            page.line(page.ink(Ink::Head, &format!("{} ({what})", clean(name))));
            let (old, new) = (before.as_deref().unwrap_or_default(), after.as_deref().unwrap_or_default());
            let diff = TextDiff::from_lines(old, new);
            for line in diff.unified_diff().context_radius(2).to_string().lines() {
                let ink = match line.chars().next() {
                    Some('+') => Ink::Good,
                    Some('-') => Ink::Bad,
                    _ => Ink::Faint,
                };
                page.line(page.ink(ink, &format!("  {}", clean(line))));
            }
        }
    }

    pub(crate) fn view(&self) -> CommandView<'_> {
        let files: Vec<Value> =
            self.all.iter().map(|changed| json!({ "file": changed.name, "after": changed.after })).collect();
        let clients: Vec<Value> = self.asked.iter().map(|(client, answer)| client_json(client, answer)).collect();
        let data = json!({ "agents": self.names, "files": files, "written": self.written, "clients": clients });
        CommandView::new("setup", data, self.all.iter().map(|changed| &changed.name), move |page| {
            if self.all.is_empty() {
                let state = if self.removed { "Nothing to remove" } else { "Nothing to change" };
                page.line(format!("{state}: {}.", self.names));
                return;
            }
            if !self.written {
                Self::diffs(&self.all, page);
                page.line("Nothing was written; use --yes to write these changes.");
                return;
            }
            for FileChange { name, before, after, .. } in &self.all {
                let what = match (before, after) {
                    (None, _) => "created",
                    (_, None) => "removed",
                    _ => "changed",
                };
                page.row([what, &clean(name)]);
            }
            for (client, answer) in &self.asked {
                match answer {
                    ClientAnswer::Connected => page.line(format!("{client} uses toft's MCP server.")),
                    ClientAnswer::NeedsTrust(said, step) => {
                        page.line(format!("{client}: {step}. It says: {}", clean(said)));
                    }
                    ClientAnswer::Failed(said) => {
                        page.line(format!("{client} cannot use toft's MCP server: {}", clean(said)));
                    }
                    ClientAnswer::Unknown => {}
                }
            }
            page.line(match self.removed {
                true => "Removed toft's changes.".to_owned(),
                false if self.store => {
                    format!("Connected toft to {}. `toft doctor` checks that the hooks run.", self.names)
                }
                false => format!("Connected toft to {}. `toft init` creates the store they need.", self.names),
            });
        })
    }
}

fn client_json(client: &str, answer: &ClientAnswer) -> Value {
    let (status, said, step) = match answer {
        ClientAnswer::Connected => ("connected", None, None),
        ClientAnswer::NeedsTrust(said, step) => ("needs_trust", Some(said), Some(step)),
        ClientAnswer::Failed(said) => ("failed", Some(said), None),
        ClientAnswer::Unknown => ("unknown", None, None),
    };
    json!({ "client": client, "status": status, "said": said, "step": step })
}

/// The guard before a push.
pub(crate) fn view_push_guard(said: &str, changes: bool, written: bool) -> CommandView<'_> {
    let line = match (changes, written) {
        (false, _) => format!("{}.", clean(said)),
        (true, true) => format!("Done: {}.", clean(said)),
        (true, false) => format!("Would {}; use --yes to do it.", clean(said)),
    };
    CommandView::of_line("guard", json!({ "said": said, "written": written }), NO_IDS, line)
}
