//! A diff line by line, each with its place in a file.

use serde::Serialize;

/// What a diff changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiffView {
    pub lines: Vec<DiffLine>,
    pub files: usize,
    pub added: usize,
    pub removed: usize,
}

/// A line of a diff.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DiffLine {
    pub kind: DiffKind,
    pub text: String,
    /// Its file and number: of the new side, or of the old one if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

/// What a line of a diff is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    /// The names of a file, before and after.
    File,
    /// More about a file: its mode, its ids.
    Header,
    /// Where the lines that follow are.
    Hunk,
    Added,
    Removed,
    Context,
}

impl DiffKind {
    /// The word of the format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Header => "header",
            Self::Hunk => "hunk",
            Self::Added => "added",
            Self::Removed => "removed",
            Self::Context => "context",
        }
    }
}

impl DiffView {
    /// Reads a diff in the format of git.
    #[must_use]
    pub fn of(diff: &str) -> Self {
        let (mut file, mut before, mut at, mut in_lines) = (None, 0_u64, 0_u64, false);
        let mut view = Self::default();
        for line in diff.lines() {
            let (mut kind, mut place) = (DiffKind::Header, None);
            if let Some(names) = line.strip_prefix("diff --git ") {
                file = names.rsplit_once(" b/").map(|(_, path)| path.trim_matches('"').to_owned());
                (in_lines, kind) = (false, DiffKind::File);
                view.files += 1;
            } else if let Some(hunk) = line.strip_prefix("@@ ") {
                let start = |sign: char| {
                    let word = hunk.split(' ').find_map(|word| word.strip_prefix(sign));
                    word.and_then(|word| word.split(',').next()?.parse().ok()).unwrap_or(0)
                };
                (before, at, in_lines, kind) = (start('-'), start('+'), true, DiffKind::Hunk);
            } else if in_lines {
                kind = match line.as_bytes().first() {
                    Some(b'+') => DiffKind::Added,
                    Some(b'-') => DiffKind::Removed,
                    _ => DiffKind::Context,
                };
                let removed = kind == DiffKind::Removed;
                place = file.as_ref().map(|file| match removed {
                    true => format!("{file}:{before} (removed)"),
                    false => format!("{file}:{at}"),
                });
                at += u64::from(!removed);
                before += u64::from(kind != DiffKind::Added);
                view.added += usize::from(kind == DiffKind::Added);
                view.removed += usize::from(removed);
            }
            view.lines.push(DiffLine { kind, text: line.to_owned(), place });
        }
        view
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_place() {
        let diff = "diff --git a/a.rs b/a.rs\n--- a/a.rs\n+++ b/a.rs\n@@ -3,3 +3,3 @@ fn f\n same\n-old\n+new\n--- a comment\n";
        let view = DiffView::of(diff);
        let places: Vec<_> = view.lines.iter().map(|line| line.place.as_deref().unwrap_or("")).collect();
        assert_eq!(places, ["", "", "", "", "a.rs:3", "a.rs:4 (removed)", "a.rs:4", "a.rs:5 (removed)"]);
        assert_eq!((view.files, view.added, view.removed), (1, 1, 2));
    }
}
