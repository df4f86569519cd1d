//! Workspaces.

use std::{collections::BTreeMap, path::PathBuf};

use serde_json::{Value, json};
use toft::{
    time::Timestamp,
    workspace::{Fate, Left, Workspace, WorkspaceState, size},
    workspaces::{Given, Rescue, Rescued as RescueMade, SeenWorkspace, Tidied},
};

use crate::args::ShellKind;

use super::{
    CommandView,
    page::{Ink, Page, after, clean, counted, cut, short},
    view::{NO_IDS, data},
};

/// Where a workspace is and what it is on.
pub(super) fn place(page: &mut Page, workspace: &Workspace) {
    let branch = after(" on branch ", workspace.branch.as_ref());
    let from = workspace.onto.as_deref().map(|name| format!("{} ", clean(name))).unwrap_or_default();
    let commit = workspace.base.get(..7).unwrap_or(&workspace.base);
    page.line(format!("Workspace {}{branch} (from {from}{commit})", clean(&workspace.path)));
}

/// What is wrong with a workspace, and the command that helps.
pub(super) fn broken(page: &mut Page, seen: &SeenWorkspace) {
    let title = seen.listed.title.as_deref().map(|title| short(title, 40)).unwrap_or_default();
    let what = page.ink(Ink::Bad, &short(seen.trouble.as_deref().unwrap_or_default(), 160));
    page.row([format!("  {}", page.id(&seen.listed.workspace.name)), title, Page::words(what)]);
    page.detail("    ", seen.help.as_ref());
}

pub(crate) fn view_given_workspace(given: &Given) -> CommandView<'_> {
    CommandView::new("workspace", given, [&given.workspace.path], move |page| {
        place(page, &given.workspace);
        if given.existing {
            page.line("  it exists already");
        }
        given.notes.iter().for_each(|note| page.detail("  ", Some(note)));
    })
}

pub(crate) fn view_workspace_path(workspace: &Workspace) -> CommandView<'_> {
    let Workspace { path, id, name, state, .. } = workspace;
    let data = json!({ "path": path, "id": id, "name": name, "state": state });
    CommandView::of_line("path", data, [path], clean(path))
}

pub(crate) fn view_workspace_env(variables: &BTreeMap<String, String>) -> CommandView<'_> {
    CommandView::new("env", variables, variables.iter().map(|(name, value)| format!("{name}={value}")), move |page| {
        for (name, value) in variables {
            page.line(format!("export {name}='{}'", clean(value).replace('\'', "'\\''")));
        }
    })
}

/// A workspace that is kept from now on, or no more.
pub(crate) fn view_pin(workspace: &Workspace) -> CommandView<'_> {
    let what = match workspace.pinned {
        true => "is kept; toft ws keep --off ends that",
        false => "may be removed when its work has landed",
    };
    let line = format!("{} {what}", clean(&workspace.name));
    CommandView::of_line("workspace", workspace, [&workspace.name], line)
}

/// A function that goes to a workspace: a command cannot change its shell's directory.
pub(crate) fn view_shell_function(shell: ShellKind) -> CommandView<'static> {
    let function = match shell {
        ShellKind::Bash | ShellKind::Zsh => {
            "tcd() {\n    local dir\n    dir=\"$(command toft ws path \"$@\")\" && cd -- \"$dir\"\n}"
        }
        ShellKind::Fish => {
            "function tcd --description 'Change to the workspace of an issue'\n    \
             set -l dir (command toft ws path $argv)\n    and cd $dir\nend"
        }
    };
    CommandView::of_line("shell", json!({ "function": function }), [function], function.to_owned())
}

pub(crate) struct WsList {
    pub(crate) seen: Vec<SeenWorkspace>,
    pub(crate) more: bool,
    pub(crate) unknown: Vec<PathBuf>,
    pub(crate) now: Timestamp,
}

/// What is in a workspace, in a few words and a colour.
fn inside(page: &Page, seen: &SeenWorkspace) -> String {
    match (&seen.survey, &seen.trouble) {
        (Some(survey), _) => {
            let ink = if survey.fate() == Fate::Go { Ink::Good } else { Ink::Busy };
            page.ink(ink, &clean(&survey.summary()))
        }
        (None, Some(trouble)) => page.ink(Ink::Bad, &short(trouble, 160)),
        (None, None) => match &seen.other_clone {
            Some(clone) => page.faint(format!("belongs to the clone {}", clean(clone))),
            None => page.faint(seen.listed.workspace.state.as_str()),
        },
    }
}

fn who(seen: &SeenWorkspace) -> String {
    let workspace = &seen.listed.workspace;
    let mut words = Vec::new();
    if workspace.state != WorkspaceState::Ready && seen.survey.is_some() {
        words.push(workspace.state.as_str().to_owned());
    }
    if workspace.pooled {
        words.push("prepared".to_owned());
    }
    if workspace.pinned {
        words.push("pinned".to_owned());
    }
    match (&seen.listed.holder, seen.listed.open) {
        (Some(holder), _) => words.push(clean(holder)),
        (None, true) => words.push("its task is open".to_owned()),
        (None, false) => {}
    }
    words.join(", ")
}

impl WsList {
    pub(crate) fn view(&self) -> CommandView<'_> {
        let Self { seen: all, more, unknown, now } = self;
        let names = all.iter().map(|seen| &seen.listed.workspace.name);
        CommandView::new("workspaces", all, names, move |page| {
            for seen in all {
                let workspace = &seen.listed.workspace;
                let title = seen.listed.title.as_deref().map(|title| short(title, 40)).unwrap_or_default();
                let old = toft::time::ago(now.since(workspace.created));
                let takes = seen.bytes.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
                let old = page.faint(format!("{old}{takes}"));
                page.row([page.id(&workspace.name), title, inside(page, seen), who(seen), old]);
                page.detail("    ", seen.help.as_ref());
            }
            cut(page, *more, all.len());
            if all.is_empty() {
                page.line("No workspaces. `toft claim --ws` claims a task and creates one.");
            } else {
                let bytes = all.iter().filter_map(|seen| seen.bytes).sum();
                let head = if *more { "shown" } else { "total" };
                page.line(page.faint(format!("{head}: {}, {}", counted(all.len(), "workspace"), size(bytes))));
            }
            for path in unknown {
                page.line(format!("unknown, left alone: {}", clean(&path.display().to_string())));
            }
        })
        .with_more(*more)
    }
}

pub(crate) struct WsShown {
    pub(crate) seen: SeenWorkspace,
    pub(crate) bytes: u64,
    pub(crate) rescues: Vec<Rescue>,
    /// What a rescue would not hold.
    pub(crate) left: Vec<Left>,
}

impl WsShown {
    pub(crate) fn view(&self) -> CommandView<'_> {
        let mut row = data(&self.seen);
        row["bytes"] = self.bytes.into();
        row["rescues"] = self.rescues.iter().map(rescue_json).collect();
        if !self.left.is_empty() {
            row["left"] = data(&self.left);
        }
        CommandView::new("workspace", row, [&self.seen.listed.workspace.name], move |page| {
            let workspace = &self.seen.listed.workspace;
            let summary = inside(page, &self.seen);
            page.line(format!("{}  {}", page.id(&workspace.name), workspace.state.as_str()));
            place(page, workspace);
            let mut row = |name: &str, value: String| page.line(format!("  {name:9} {value}"));
            row("inside", summary);
            // This is what `toft ws list` says already.
            let here = format!("toft ws list {}", self.seen.listed.workspace.name);
            if let Some(help) = self.seen.help.as_ref().filter(|help| **help != here) {
                row("help", clean(help));
            }
            if let Some(survey) = &self.seen.survey {
                if survey.unpushed > 0 {
                    let upstream = survey.upstream.as_deref();
                    let on = upstream.map_or("no upstream".to_owned(), |name| format!("follows {}", clean(name)));
                    row("pushed", format!("{} commits that no remote has, {on}", survey.unpushed));
                }
                if !self.left.is_empty() {
                    let named = short(&Left::summary(&self.left), 200);
                    row("leaves", format!("{named}: not in a rescue, unless with --rescue --ignored"));
                }
                let fate = match survey.fate() {
                    Fate::Go => "can be removed when its task has ended".to_owned(),
                    Fate::Rescue => "kept; removed only after a rescue, with --rescue or by age".to_owned(),
                    Fate::Stay(why) => format!("kept: {}", clean(&why)),
                };
                row("fate", fate);
            }
            if let Some(issue) = &self.seen.listed.issue {
                row("issue", clean(issue));
            }
            if let Some(task) = &workspace.task {
                row("task", task.to_string());
            }
            let who = who(&self.seen);
            if !who.is_empty() {
                row("held", who);
            }
            if let Some(base) = &workspace.overlay_base {
                row("shares", format!("the files of {}", base.get(..7).unwrap_or(base)));
            }
            if self.bytes > 0 {
                row("size", size(self.bytes));
            }
            let ports: Vec<_> = workspace.ports.iter().map(|(name, port)| format!("{} {port}", clean(name))).collect();
            if !ports.is_empty() {
                row("ports", ports.join(", "));
            }
            if self.seen.survey.is_none() && !workspace.left.is_empty() {
                row("left", format!("{}: not in a rescue", short(&Left::summary(&workspace.left), 200)));
            }
            let rescues: Vec<_> = self.rescues.iter().map(|rescue| rescue.number.to_string()).collect();
            if !rescues.is_empty() {
                let name = clean(&workspace.name);
                row("rescues", format!("{} (toft ws restore {name} --at N --name OTHER)", rescues.join(", ")));
            }
            if let Some(rescue) = &workspace.rescue {
                row("rescue", format!("{rescue} (toft ws restore {})", clean(&workspace.name)));
            }
            if let Some(reason) = &workspace.reason {
                row("because", clean(reason));
            }
        })
    }
}

pub(crate) fn view_pool(made: usize, count: usize) -> CommandView<'static> {
    let line = format!("{made} created; {count} are prepared");
    CommandView::of_line("pool", json!({ "made": made, "count": count }), NO_IDS, line)
}

pub(crate) fn view_tidied(rows: &[Tidied], tried: bool) -> CommandView<'_> {
    CommandView::new("tidied", rows, rows.iter().filter(|row| row.gone).map(|row| &row.name), move |page| {
        for row in rows {
            let what = match (row.gone, tried) {
                (true, false) => page.ink(Ink::Good, "removed"),
                (true, true) => page.ink(Ink::Busy, "would remove"),
                (false, _) => page.faint("kept   "),
            };
            page.row([format!("{what} {}", clean(&row.name)), Page::words(clean(&row.why))]);
            page.detail("        ", row.help.as_ref());
            if let Some(branch) = &row.deleted_branch {
                let verb = if tried { "would delete" } else { "deleted" };
                page.line(format!("        {verb} branch {}, whose work has landed", clean(branch)));
            }
            page.detail("        ", row.kept.as_ref());
            if let Some(rescue) = &row.rescue {
                page.line(format!("        saved as {rescue}: toft ws restore {}", clean(&row.name)));
            }
            page.detail("        contains ", row.holds.as_ref());
            if !row.left.is_empty() && row.gone {
                let verb = if tried { "would not save" } else { "not saved:" };
                page.line(format!("        {verb} {}", short(&Left::summary(&row.left), 400)));
            }
        }
        if rows.is_empty() {
            page.line("No workspaces.");
        }
    })
}

pub(crate) fn view_rescue<'a>(workspace: &'a Workspace, rescued: &'a RescueMade, number: u32) -> CommandView<'a> {
    let Workspace { name, id, .. } = workspace;
    let RescueMade { commit, holds, left, .. } = rescued;
    let data = json!({ "workspace": name, "id": id, "commit": commit, "number": number, "holds": holds, "left": left });
    CommandView::new("rescue", data, [commit], move |page| {
        let name = clean(name);
        page.line(format!("Saved everything in {name} as {commit}"));
        page.detail("  contains ", Some(holds).filter(|holds| !holds.is_empty()));
        if !left.is_empty() {
            page.line(format!("  without {}", short(&Left::summary(left), 400)));
        }
        page.line(format!("  toft ws restore {name} --at {number} --name OTHER restores it beside this one"));
    })
}

fn rescue_json(rescue: &Rescue) -> Value {
    let Rescue { number, commit, made, bytes, holds, left, .. } = rescue;
    json!({ "number": number, "commit": commit, "made": made, "bytes": bytes, "holds": holds, "left": left })
}

pub(crate) fn view_rescues(rows: &[(Rescue, Option<Workspace>)], deleted: bool, now: Timestamp) -> CommandView<'_> {
    let row = |(rescue, workspace): &(Rescue, Option<Workspace>)| {
        let mut row = rescue_json(rescue);
        row["id"] = rescue.workspace.as_str().into();
        row["workspace"] = workspace.as_ref().map(|workspace| workspace.name.as_str()).into();
        row["age_s"] = now.since(rescue.made).as_secs().into();
        row["deleted"] = deleted.into();
        row
    };
    let data: Vec<Value> = rows.iter().map(row).collect();
    CommandView::new("rescues", data, rows.iter().map(|(rescue, _)| &rescue.commit), move |page| {
        let same_name = |name: &str, id: &str| {
            let others = rows.iter().filter(|(rescue, _)| rescue.workspace != id);
            others.into_iter().any(|(_, other)| other.as_ref().is_some_and(|other| other.name == name))
        };
        for (rescue, workspace) in rows {
            // A name that another workspace had, too, names neither.
            let own_name = workspace.as_ref().map(|workspace| &workspace.name);
            let name = own_name.filter(|name| !same_name(name, &rescue.workspace)).unwrap_or(&rescue.workspace);
            let name = format!("{} --at {}", page.id(name), rescue.number);
            let done = if deleted { "deleted".to_owned() } else { String::new() };
            let (age, bytes) = (toft::time::ago(now.since(rescue.made)), size(rescue.bytes));
            page.row([done, name, age, bytes, Page::words(clean(&rescue.holds))]);
            if !rescue.left.is_empty() {
                page.line(format!("        without {}", short(&rescue.left, 200)));
            }
        }
        let bytes = rows.iter().map(|(rescue, _)| rescue.bytes).sum();
        match rows.len() {
            0 => page.line("No rescues."),
            1 => {}
            count => page.line(format!("{count} rescues, {} before compression", size(bytes))),
        }
    })
}
