//! A diff line by line, each with its place in a file.

use serde::Serialize;

/// What a diff changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiffView {
    pub lines: Vec<DiffLine>,
    pub files: Vec<DiffFile>,
    pub added: usize,
    pub removed: usize,
    /// Why it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// A file of a diff.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiffFile {
    pub name: String,
    /// What happened to the file itself: it is new, was deleted or renamed, or is no text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    pub added: usize,
    pub removed: usize,
    /// Where it begins in the lines.
    pub line: usize,
}

impl DiffFile {
    /// The file in a few words.
    fn head(&self) -> String {
        let notes = self.notes.iter().map(|note| format!("  {note}")).collect::<String>();
        format!("{}{notes}  +{} −{}", self.name, self.added, self.removed)
    }

    /// Takes in a line about the file itself.
    fn note(&mut self, line: &str) {
        let renamed = |name: &str| match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
            Some(quoted) => unquoted(quoted),
            None => name.to_owned(),
        };
        if let Some(name) = line.strip_prefix("rename from ") {
            self.notes.push(format!("renamed from {}", renamed(name)));
        } else if let Some(name) = line.strip_prefix("copy from ") {
            self.notes.push(format!("copied from {}", renamed(name)));
        } else if let Some(name) = line.strip_prefix("rename to ").or(line.strip_prefix("copy to ")) {
            self.name = renamed(name);
        } else if line.starts_with("new file mode") {
            self.notes.push("new".to_owned());
        } else if line.starts_with("deleted file mode") {
            self.notes.push("deleted".to_owned());
        } else if let Some(mode) = line.strip_prefix("new mode ") {
            self.notes.push(format!("mode {mode}"));
        } else if line.starts_with("Binary files ") || line == "GIT binary patch" {
            self.notes.push("binary".to_owned());
        }
    }
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
    /// A file: its name, and what happened to it.
    File,
    /// What stands before the first file, or cannot be read.
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
        match (&self.missing, self.files.len()) {
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
        let (mut old, mut new, mut before, mut at, mut in_lines) = (None, None, 0_u64, 0_u64, false);
        let mut view = Self::default();
        for text in diff.lines() {
            if let Some(names) = text.strip_prefix("diff --git ") {
                (in_lines, old, new) = (false, None, None);
                view.files.push(DiffFile { name: same_name(names), line: view.lines.len(), ..DiffFile::default() });
                view.add(DiffKind::File, String::new(), None);
                continue;
            }
            if let Some(hunk) = text.strip_prefix("@@ ") {
                let start = |sign: char| {
                    let word = hunk.split(' ').find_map(|word| word.strip_prefix(sign));
                    word.and_then(|word| word.split(',').next()?.parse().ok()).unwrap_or(0)
                };
                (before, at, in_lines) = (start('-'), start('+'), true);
                view.add(DiffKind::Hunk, text.to_owned(), None);
                continue;
            }
            if !in_lines {
                let Some(file) = view.files.last_mut() else {
                    view.add(DiffKind::Header, text.to_owned(), None);
                    continue;
                };
                if let Some(name) = text.strip_prefix("--- ") {
                    old = path(name, "a/");
                    file.name = old.clone().unwrap_or_else(|| file.name.clone());
                } else if let Some(name) = text.strip_prefix("+++ ") {
                    new = path(name, "b/");
                    file.name = new.clone().unwrap_or_else(|| file.name.clone());
                } else {
                    file.note(text);
                }
                continue;
            }
            let kind = match text.as_bytes().first() {
                Some(b'+') => DiffKind::Added,
                Some(b'-') => DiffKind::Removed,
                Some(b'\\') => DiffKind::Header,
                _ => DiffKind::Context,
            };
            let place = match kind {
                DiffKind::Removed => old.as_ref().map(|file| format!("{file}:{before} (removed)")),
                DiffKind::Header => None,
                _ => new.as_ref().map(|file| format!("{file}:{at}")),
            };
            let (added, removed) = (usize::from(kind == DiffKind::Added), usize::from(kind == DiffKind::Removed));
            if kind != DiffKind::Header {
                at += 1 - removed as u64;
                before += 1 - added as u64;
            }
            (view.added, view.removed) = (view.added + added, view.removed + removed);
            if let Some(file) = view.files.last_mut() {
                (file.added, file.removed) = (file.added + added, file.removed + removed);
            }
            view.add(kind, text.to_owned(), place);
        }
        for file in &view.files {
            view.lines[file.line].text = file.head();
        }
        view
    }

    fn add(&mut self, kind: DiffKind, text: String, place: Option<String>) {
        self.lines.push(DiffLine { kind, text, place });
    }
}

/// The name of a file that has the same one on both sides, from the line that has both.
fn same_name(names: &str) -> String {
    let half = |text: &str| {
        let middle = text.len() / 2;
        let (one, other) = (text.get(..middle)?, text.get(middle + 1..)?);
        (path(one, "a/")? == path(other, "b/")?).then(|| path(one, "a/")).flatten()
    };
    half(names).unwrap_or_else(|| names.to_owned())
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
        let diff = "diff --git a/a.rs b/a.rs\nindex 12..34 100644\n--- a/a.rs\n+++ b/a.rs\n@@ -3,3 +3,3 @@ fn f\n same\n-old\n+new\n--- a comment\n";
        let view = DiffView::of(diff);
        let places: Vec<_> = view.lines.iter().map(|line| line.place.as_deref().unwrap_or("")).collect();
        assert_eq!(places, ["", "", "a.rs:3", "a.rs:4 (removed)", "a.rs:4", "a.rs:5 (removed)"]);
        assert_eq!((view.files.len(), view.added, view.removed), (1, 1, 2));
        assert_eq!(view.lines[0].text, "a.rs  +1 −2");
    }

    #[test]
    fn names_are_those_of_the_files() {
        let diff = "diff --git a/evil b/x.rs b/evil b/x.rs\n--- a/evil b/x.rs\t\n+++ b/evil b/x.rs\t\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\
                    diff --git \"a/\\303\\274.rs\" \"b/q\\\"\\303\\274.rs\"\n--- \"a/\\303\\274.rs\"\n+++ \"b/q\\\"\\303\\274.rs\"\n@@ -7 +7 @@\n-a\n+b\n";
        let view = DiffView::of(diff);
        let places: Vec<_> = view.lines.iter().filter_map(|line| line.place.as_deref()).collect();
        assert_eq!(places, ["evil b/x.rs:1 (removed)", "evil b/x.rs:1", "ü.rs:7 (removed)", "q\"ü.rs:7"]);
    }

    #[test]
    fn what_happened_to_a_file_is_said_in_its_line() {
        let diff = "diff --git a/n b/n\nnew file mode 100644\nindex 0000000..e69de29\n\
                    diff --git a/old name b/old name\ndeleted file mode 100644\n--- a/old name\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
                    diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n\
                    diff --git a/p.png b/p.png\nindex 1..2 100644\nBinary files a/p.png and b/p.png differ\n\
                    diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n";
        let files: Vec<String> = DiffView::of(diff).files.iter().map(DiffFile::head).collect();
        assert_eq!(
            files,
            [
                "n  new  +0 −0",
                "old name  deleted  +0 −1",
                "g  renamed from f  +0 −0",
                "p.png  binary  +0 −0",
                "run.sh  mode 100755  +0 −0"
            ]
        );
    }
}
