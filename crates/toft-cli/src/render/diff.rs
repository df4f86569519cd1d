//! The changes of a workspace.

use serde_json::{Value, json};
use toft::workspace::Workspace;

use super::{
    CommandView,
    page::{Ink, Page, clean, counted},
};

/// How much a file changed.
struct ChangedFile {
    path: String,
    added: usize,
    removed: usize,
    /// It has no lines.
    binary: bool,
}

/// Reads from a diff which files it changes.
fn changed_files(diff: &str) -> Vec<ChangedFile> {
    let mut files: Vec<ChangedFile> = Vec::new();
    // Lines of a file are below the first `@@` of its part; what stands there begins with a sign.
    let mut in_lines = false;
    for line in diff.lines() {
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

/// The changes of a workspace, in the format of git; with `stat` only how much each file changed.
pub(crate) fn view_diff<'a>(workspace: &'a Workspace, diff: &'a str, stat: bool) -> CommandView<'a> {
    let files = changed_files(diff);
    let ids: Vec<String> = files.iter().map(|file| clean(&file.path)).collect();
    let row = |file: &ChangedFile| {
        let ChangedFile { path, added, removed, binary } = file;
        json!({ "path": path, "added": added, "removed": removed, "binary": binary })
    };
    let rows: Vec<Value> = files.iter().map(row).collect();
    let text = if stat { Value::Null } else { diff.into() };
    let data = json!({ "workspace": workspace.name, "base": workspace.base, "files": rows, "diff": text });
    CommandView::new("diff", data, ids, move |page| match stat {
        _ if files.is_empty() => {
            page.line(format!("{} has changed nothing since {}", clean(&workspace.name), base(workspace)));
        }
        true => {
            for file in &files {
                let lines = match file.binary {
                    true => "binary".to_owned(),
                    false => format!(
                        "{} {}",
                        page.ink(Ink::Good, &format!("+{}", file.added)),
                        page.ink(Ink::Bad, &format!("-{}", file.removed))
                    ),
                };
                page.row([clean(&file.path), lines]);
            }
            let (added, removed) =
                files.iter().fold((0, 0), |(added, removed), file| (added + file.added, removed + file.removed));
            page.line(format!("{}, +{added} -{removed} since {}", counted(files.len(), "file"), base(workspace)));
        }
        false => lines(page, diff),
    })
    .in_pager()
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
