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
    View, data,
    page::{Ink, Page, clean, short},
    tasks::cut,
};

/// Where a workspace is and what it is on.
pub(super) fn place(page: &mut Page, workspace: &Workspace) {
    let branch = workspace.branch.as_deref().map(|name| format!(" on branch {}", clean(name))).unwrap_or_default();
    let from = workspace.onto.as_deref().map(|name| format!("{} ", clean(name))).unwrap_or_default();
    let commit = workspace.base.get(..7).unwrap_or(&workspace.base);
    page.line(format!("Workspace {}{branch} (from {from}{commit})", clean(&workspace.path)));
}

/// What is wrong with a workspace, and the command that helps.
pub(super) fn broken(page: &mut Page, seen: &SeenWorkspace) {
    let name = page.ink(Ink::Id, &clean(&seen.listed.workspace.name));
    let title = seen.listed.title.as_deref().map(|title| format!("  {}", short(title, 40))).unwrap_or_default();
    let what = page.ink(Ink::Bad, &short(seen.trouble.as_deref().unwrap_or_default(), 160));
    page.line(format!("  {name}{title}  {what}"));
    if let Some(help) = &seen.help {
        page.line(format!("    {}", clean(help)));
    }
}

pub(crate) struct WsGiven(pub(crate) Given);

impl View for WsGiven {
    fn kind(&self) -> &'static str {
        "workspace"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.workspace.path.clone()]
    }

    fn text(&self, page: &mut Page) {
        place(page, &self.0.workspace);
        if self.0.existing {
            page.line("  it exists already");
        }
        for note in &self.0.notes {
            page.line(format!("  {}", clean(note)));
        }
    }
}

pub(crate) struct WsPath(pub(crate) Workspace);

impl View for WsPath {
    fn kind(&self) -> &'static str {
        "path"
    }

    fn json(&self) -> Value {
        json!({ "path": self.0.path, "id": self.0.id, "name": self.0.name, "state": self.0.state })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.path.clone()]
    }

    fn text(&self, page: &mut Page) {
        page.line(clean(&self.0.path));
    }
}

pub(crate) struct WsEnv(pub(crate) BTreeMap<String, String>);

impl View for WsEnv {
    fn kind(&self) -> &'static str {
        "env"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    fn text(&self, page: &mut Page) {
        for (name, value) in &self.0 {
            page.line(format!("export {name}='{}'", clean(value).replace('\'', "'\\''")));
        }
    }
}

/// A workspace that something was noted of, and what.
pub(crate) struct WsNoted {
    workspace: Workspace,
    what: String,
}

impl WsNoted {
    pub(crate) fn pinned(workspace: Workspace) -> Self {
        let what = if workspace.pinned {
            "is kept; toft ws keep --off ends that"
        } else {
            "may be removed when its work has landed"
        };
        Self { what: what.to_owned(), workspace }
    }
}

impl View for WsNoted {
    fn kind(&self) -> &'static str {
        "workspace"
    }

    fn json(&self) -> Value {
        data(&self.workspace)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.workspace.name.clone()]
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("{} {}", clean(&self.workspace.name), self.what));
    }
}

/// A function that goes to a workspace: a command cannot change its shell's directory.
pub(crate) struct ShellFunction(pub(crate) ShellKind);

impl ShellFunction {
    fn function(&self) -> &'static str {
        match self.0 {
            ShellKind::Bash | ShellKind::Zsh => {
                "tcd() {\n    local dir\n    dir=\"$(command toft ws path \"$@\")\" && cd -- \"$dir\"\n}"
            }
            ShellKind::Fish => {
                "function tcd --description 'Change to the workspace of an issue'\n    set -l dir (command toft ws path $argv)\n    and cd $dir\nend"
            }
        }
    }
}

impl View for ShellFunction {
    fn kind(&self) -> &'static str {
        "shell"
    }

    fn json(&self) -> Value {
        json!({ "function": self.function() })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.function().to_owned()]
    }

    fn text(&self, page: &mut Page) {
        page.line(self.function());
    }
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
            Some(clone) => page.ink(Ink::Faint, &format!("belongs to the clone {}", clean(clone))),
            None => page.ink(Ink::Faint, seen.listed.workspace.state.as_str()),
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

impl View for WsList {
    fn kind(&self) -> &'static str {
        "workspaces"
    }

    fn json(&self) -> Value {
        data(&self.seen)
    }

    fn more(&self) -> Option<bool> {
        Some(self.more)
    }

    fn ids(&self) -> Vec<String> {
        self.seen.iter().map(|seen| seen.listed.workspace.name.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for seen in &self.seen {
            let name = page.ink(Ink::Id, &clean(&seen.listed.workspace.name));
            let title = seen.listed.title.as_deref().map(|title| short(title, 40)).unwrap_or_default();
            let old = toft::time::ago(self.now.since(seen.listed.workspace.created));
            let takes = seen.bytes.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
            let words = [name, title, inside(page, seen), who(seen), page.ink(Ink::Faint, &format!("{old}{takes}"))];
            page.line(words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("  "));
            if let Some(help) = &seen.help {
                page.line(format!("    {}", clean(help)));
            }
        }
        cut(page, self.more, self.seen.len());
        if !self.seen.is_empty() {
            let (count, total) = (self.seen.len(), self.seen.iter().filter_map(|seen| seen.bytes).sum());
            let what = if count == 1 { "workspace" } else { "workspaces" };
            let head = if self.more { "shown" } else { "total" };
            page.line(page.ink(Ink::Faint, &format!("{head}: {count} {what}, {}", size(total))));
        }
        if self.seen.is_empty() {
            page.line("No workspaces. `toft claim --ws` claims a task and creates one.");
        }
        for path in &self.unknown {
            page.line(format!("unknown, left alone: {}", clean(&path.display().to_string())));
        }
    }
}

pub(crate) struct WsShown {
    pub(crate) seen: SeenWorkspace,
    pub(crate) bytes: u64,
    pub(crate) rescues: Vec<Rescue>,
    /// What a rescue would not hold.
    pub(crate) left: Vec<Left>,
}

impl View for WsShown {
    fn kind(&self) -> &'static str {
        "workspace"
    }

    fn json(&self) -> Value {
        let mut row = data(&self.seen);
        row["bytes"] = self.bytes.into();
        row["rescues"] = self.rescues.iter().map(rescue_json).collect();
        if !self.left.is_empty() {
            row["left"] = data(&self.left);
        }
        row
    }

    fn ids(&self) -> Vec<String> {
        vec![self.seen.listed.workspace.name.clone()]
    }

    fn text(&self, page: &mut Page) {
        let workspace = &self.seen.listed.workspace;
        let summary = inside(page, &self.seen);
        page.line(format!("{}  {}", page.ink(Ink::Id, &clean(&workspace.name)), workspace.state.as_str()));
        place(page, workspace);
        let mut row = |name: &str, value: String| page.line(format!("  {name:9} {value}"));
        row("inside", summary);
        // This is what `toft ws list` says already.
        let here = format!("toft ws list {}", self.seen.listed.workspace.name);
        if let Some(help) = self.seen.help.as_ref().filter(|help| **help != here) {
            row("help", clean(help));
        }
        if let Some(survey) = &self.seen.survey {
            let on =
                survey.upstream.as_deref().map_or("no upstream".to_owned(), |name| format!("follows {}", clean(name)));
            if survey.unpushed > 0 {
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
    }
}

pub(crate) struct WsPooled {
    pub(crate) made: usize,
    pub(crate) count: usize,
}

impl View for WsPooled {
    fn kind(&self) -> &'static str {
        "pool"
    }

    fn json(&self) -> Value {
        json!({ "made": self.made, "count": self.count })
    }

    fn ids(&self) -> Vec<String> {
        Vec::new()
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("{} created; {} are prepared", self.made, self.count));
    }
}

pub(crate) struct WsTidied {
    pub(crate) rows: Vec<Tidied>,
    /// Nothing was done.
    pub(crate) tried: bool,
}

impl View for WsTidied {
    fn kind(&self) -> &'static str {
        "tidied"
    }

    fn json(&self) -> Value {
        data(&self.rows)
    }

    fn ids(&self) -> Vec<String> {
        self.rows.iter().filter(|row| row.gone).map(|row| row.name.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for row in &self.rows {
            let what = match (row.gone, self.tried) {
                (true, false) => page.ink(Ink::Good, "removed"),
                (true, true) => page.ink(Ink::Busy, "would remove"),
                (false, _) => page.ink(Ink::Faint, "kept   "),
            };
            let line = format!("{what} {}  {}", clean(&row.name), clean(&row.why));
            page.line(line);
            if let Some(help) = &row.help {
                page.line(format!("        {}", clean(help)));
            }
            if let Some(branch) = &row.deleted_branch {
                let verb = if self.tried { "would delete" } else { "deleted" };
                page.line(format!("        {verb} branch {}, whose work has landed", clean(branch)));
            }
            if let Some(kept) = &row.kept {
                page.line(format!("        {}", clean(kept)));
            }
            if let Some(rescue) = &row.rescue {
                page.line(format!("        saved as {rescue}: toft ws restore {}", clean(&row.name)));
            }
            if let Some(holds) = &row.holds {
                page.line(format!("        contains {}", clean(holds)));
            }
            if !row.left.is_empty() && row.gone {
                let verb = if self.tried { "would not save" } else { "not saved:" };
                page.line(format!("        {verb} {}", short(&Left::summary(&row.left), 400)));
            }
        }
        if self.rows.is_empty() {
            page.line("No workspaces.");
        }
    }
}

pub(crate) struct Rescued {
    pub(crate) workspace: Workspace,
    pub(crate) rescued: RescueMade,
    pub(crate) number: u32,
}

impl View for Rescued {
    fn kind(&self) -> &'static str {
        "rescue"
    }

    fn json(&self) -> Value {
        let Workspace { name, id, .. } = &self.workspace;
        let RescueMade { commit, holds, left, .. } = &self.rescued;
        json!({ "workspace": name, "id": id, "commit": commit, "number": self.number, "holds": holds, "left": left })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.rescued.commit.clone()]
    }

    fn text(&self, page: &mut Page) {
        let name = clean(&self.workspace.name);
        page.line(format!("Saved everything in {name} as {}", self.rescued.commit));
        if !self.rescued.holds.is_empty() {
            page.line(format!("  contains {}", clean(&self.rescued.holds)));
        }
        if !self.rescued.left.is_empty() {
            page.line(format!("  without {}", short(&Left::summary(&self.rescued.left), 400)));
        }
        page.line(format!("  toft ws restore {name} --at {} --name OTHER restores it beside this one", self.number));
    }
}

fn rescue_json(rescue: &Rescue) -> Value {
    let Rescue { number, commit, made, bytes, holds, left, .. } = rescue;
    json!({ "number": number, "commit": commit, "made": made, "bytes": bytes, "holds": holds, "left": left })
}

pub(crate) struct RescuesListed {
    pub(crate) rows: Vec<(Rescue, Option<Workspace>)>,
    /// They are gone now.
    pub(crate) deleted: bool,
    pub(crate) now: Timestamp,
}

impl View for RescuesListed {
    fn kind(&self) -> &'static str {
        "rescues"
    }

    fn json(&self) -> Value {
        let row = |(rescue, workspace): &(Rescue, Option<Workspace>)| {
            let mut row = rescue_json(rescue);
            row["id"] = rescue.workspace.as_str().into();
            row["workspace"] = workspace.as_ref().map(|workspace| workspace.name.as_str()).into();
            row["age_s"] = self.now.since(rescue.made).as_secs().into();
            row["deleted"] = self.deleted.into();
            row
        };
        self.rows.iter().map(row).collect()
    }

    fn ids(&self) -> Vec<String> {
        self.rows.iter().map(|(rescue, _)| rescue.commit.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        let same_name = |name: &str, id: &str| {
            let others = self.rows.iter().filter(|(rescue, _)| rescue.workspace != id);
            others.into_iter().any(|(_, other)| other.as_ref().is_some_and(|other| other.name == name))
        };
        for (rescue, workspace) in &self.rows {
            // A name that another workspace had, too, names neither.
            let own_name = workspace.as_ref().map(|workspace| &workspace.name);
            let name = own_name.filter(|name| !same_name(name, &rescue.workspace)).unwrap_or(&rescue.workspace);
            let name = page.ink(Ink::Id, &clean(name));
            let done = if self.deleted { "deleted  " } else { "" };
            let (age, bytes) = (toft::time::ago(self.now.since(rescue.made)), size(rescue.bytes));
            page.line(format!("{done}{name} --at {}  {age}  {bytes}  {}", rescue.number, clean(&rescue.holds)));
            if !rescue.left.is_empty() {
                page.line(format!("        without {}", short(&rescue.left, 200)));
            }
        }
        let bytes = self.rows.iter().map(|(rescue, _)| rescue.bytes).sum();
        match self.rows.len() {
            0 => page.line("No rescues."),
            1 => {}
            count => page.line(format!("{count} rescues, {} before compression", size(bytes))),
        }
    }
}
