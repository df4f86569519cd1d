//! The changes of a workspace.

use serde_json::{Value, json};
use toft::workspace::Workspace;

use super::{
    View,
    page::{Ink, Page, clean},
};

pub(crate) struct DiffShown {
    pub(crate) workspace: Workspace,
    /// In the format of git.
    pub(crate) diff: String,
    /// Only how much each file changed.
    pub(crate) stat: bool,
}

/// How much a file changed.
struct ChangedFile {
    path: String,
    added: usize,
    removed: usize,
    /// It has no lines.
    binary: bool,
}

impl DiffShown {
    fn files(&self) -> Vec<ChangedFile> {
        let mut files: Vec<ChangedFile> = Vec::new();
        // Lines of a file are below the first `@@` of its part; what stands there begins with a sign.
        let mut in_lines = false;
        for line in self.diff.lines() {
            if let Some(names) = line.strip_prefix("diff --git ") {
                let path = names.rsplit_once(" b/").map_or(names, |(_, path)| path).trim_matches('"').to_owned();
                files.push(ChangedFile { path, added: 0, removed: 0, binary: false });
                in_lines = false;
                continue;
            }
            let Some(file) = files.last_mut() else { continue };
            match line.as_bytes().first() {
                Some(b'@') => in_lines = true,
                Some(b'+') if in_lines => file.added += 1,
                Some(b'-') if in_lines => file.removed += 1,
                Some(b'B' | b'G') if !in_lines => {
                    file.binary |= line.starts_with("Binary ") || line.starts_with("GIT ");
                }
                _ => {}
            }
        }
        files
    }
}

impl View for DiffShown {
    fn in_pager(&self) -> bool {
        true
    }

    fn kind(&self) -> &'static str {
        "diff"
    }

    fn json(&self) -> Value {
        let files: Vec<Value> = self
            .files()
            .iter()
            .map(|file| json!({ "path": file.path, "added": file.added, "removed": file.removed, "binary": file.binary }))
            .collect();
        let diff = if self.stat { Value::Null } else { self.diff.as_str().into() };
        json!({ "workspace": self.workspace.name, "base": self.workspace.base, "files": files, "diff": diff })
    }

    fn ids(&self) -> Vec<String> {
        self.files().into_iter().map(|file| clean(&file.path)).collect()
    }

    fn text(&self, page: &mut Page) {
        let files = self.files();
        if files.is_empty() {
            page.line(format!("{} has changed nothing since {}", clean(&self.workspace.name), base(&self.workspace)));
            return;
        }
        if self.stat {
            let width = files.iter().map(|file| clean(&file.path).chars().count()).max().unwrap_or(0);
            for file in &files {
                let path = clean(&file.path);
                let (added, removed) = (format!("+{}", file.added), format!("-{}", file.removed));
                let lines = match file.binary {
                    true => "binary".to_owned(),
                    false => format!("{} {}", page.ink(Ink::Good, &added), page.ink(Ink::Bad, &removed)),
                };
                page.line(format!("{path:width$}  {lines}"));
            }
            let (added, removed) =
                files.iter().fold((0, 0), |(added, removed), file| (added + file.added, removed + file.removed));
            let count = if files.len() == 1 { "1 file".to_owned() } else { format!("{} files", files.len()) };
            page.line(format!("{count}, +{added} -{removed} since {}", base(&self.workspace)));
            return;
        }
        lines(page, &self.diff);
    }
}

/// The lines of a diff.
pub(super) fn lines(page: &mut Page, diff: &str) {
    for line in diff.lines() {
        let ink = match line.as_bytes().first() {
            Some(b'd') if line.starts_with("diff --git ") => Some(Ink::Head),
            Some(b'@') => Some(Ink::Id),
            Some(b'+') => Some(Ink::Good),
            Some(b'-') => Some(Ink::Bad),
            _ => None,
        };
        // An agent wrote it; a tab is one all the same.
        let line = line.split('\t').map(clean).collect::<Vec<_>>().join("\t");
        page.line(ink.map_or(line.clone(), |ink| page.ink(ink, &line)));
    }
}

fn base(workspace: &Workspace) -> String {
    workspace.base.chars().take(12).collect()
}
