//! A diff line by line, each with its place in a file.

use serde::Serialize;

/// What a diff changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiffView {
    pub lines: Vec<DiffLine>,
    pub files: usize,
    pub added: usize,
    pub removed: usize,
    /// Why it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
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
    /// A diff that cannot be had.
    #[must_use]
    pub fn missing(why: String) -> Self {
        Self { missing: Some(why), ..Self::default() }
    }

    /// How much it changes, or why that is not known.
    #[must_use]
    pub fn summary(&self) -> String {
        match (&self.missing, self.files) {
            (Some(why), _) => why.clone(),
            (None, 0) => "nothing was changed".to_owned(),
            (None, files) => {
                let word = if files == 1 { "file" } else { "files" };
                format!("{files} {word}, +{} −{}", self.added, self.removed)
            }
        }
    }

    /// Reads a diff in the format of git.
    #[must_use]
    pub fn of(diff: &str) -> Self {
        let (mut file, mut old, mut before, mut at, mut in_lines) = (None, None, 0_u64, 0_u64, false);
        let mut view = Self::default();
        for line in diff.lines() {
            let (mut kind, mut place) = (DiffKind::Header, None);
            if line.starts_with("diff --git ") {
                (in_lines, kind, file, old) = (false, DiffKind::File, None, None);
                view.files += 1;
            } else if let (false, Some(name)) = (in_lines, line.strip_prefix("--- ")) {
                old = path(name, "a/");
            } else if let (false, Some(name)) = (in_lines, line.strip_prefix("+++ ")) {
                file = path(name, "b/");
            } else if let Some(hunk) = line.strip_prefix("@@ ") {
                let start = |sign: char| {
                    let word = hunk.split(' ').find_map(|word| word.strip_prefix(sign));
                    word.and_then(|word| word.split(',').next()?.parse().ok()).unwrap_or(0)
                };
                (before, at, in_lines, kind) = (start('-'), start('+'), true, DiffKind::Hunk);
            } else if in_lines && !line.starts_with('\\') {
                kind = match line.as_bytes().first() {
                    Some(b'+') => DiffKind::Added,
                    Some(b'-') => DiffKind::Removed,
                    _ => DiffKind::Context,
                };
                let removed = kind == DiffKind::Removed;
                place = match removed {
                    true => old.as_ref().map(|file| format!("{file}:{before} (removed)")),
                    false => file.as_ref().map(|file| format!("{file}:{at}")),
                };
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

/// The path in a line that names a file; nothing if there is no file on that side.
fn path(name: &str, prefix: &str) -> Option<String> {
    let name = name.trim_end_matches('\t');
    let name = match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => unquoted(quoted),
        None => name.to_owned(),
    };
    name.strip_prefix(prefix).map(str::to_owned)
}

/// A name as it is, which git wrote with escapes.
fn unquoted(name: &str) -> String {
    let (mut bytes, mut signs) = (Vec::new(), name.bytes().peekable());
    while let Some(sign) = signs.next() {
        if sign != b'\\' {
            bytes.push(sign);
            continue;
        }
        let mut octal = 0_u32;
        let mut digits = 0;
        while let Some(digit) = signs.next_if(|sign| digits < 3 && matches!(sign, b'0'..=b'7')) {
            (octal, digits) = (octal * 8 + u32::from(digit - b'0'), digits + 1);
        }
        match digits {
            0 => bytes.extend(signs.next().map(|sign| match sign {
                b'n' => b'\n',
                b't' => b'\t',
                sign => sign,
            })),
            _ => bytes.push((octal & 0xff) as u8),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
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

    #[test]
    fn names_are_those_of_the_files() {
        let diff = "diff --git a/evil b/x.rs b/evil b/x.rs\n--- a/evil b/x.rs\t\n+++ b/evil b/x.rs\t\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\
                    diff --git \"a/\\303\\274.rs\" \"b/q\\\"\\303\\274.rs\"\n--- \"a/\\303\\274.rs\"\n+++ \"b/q\\\"\\303\\274.rs\"\n@@ -7 +7 @@\n-a\n+b\n";
        let view = DiffView::of(diff);
        let places: Vec<_> = view.lines.iter().filter_map(|line| line.place.as_deref()).collect();
        assert_eq!(places, ["evil b/x.rs:1 (removed)", "evil b/x.rs:1", "ü.rs:7 (removed)", "q\"ü.rs:7"]);
    }
}
