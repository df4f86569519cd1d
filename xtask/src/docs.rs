//! Doc comments: public items have one, and none only repeats the name of its field.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// Words that add nothing to the name of a field.
const EMPTY_WORDS: [&str; 35] = [
    "the", "a", "an", "its", "it", "of", "which", "what", "who", "this", "that", "these", "those", "one", "whose",
    "their", "is", "are", "was", "by", "in", "for", "to", "on", "with", "and", "or", "his", "from", "at", "where",
    "why", "when", "how", "not",
];

pub(crate) fn check(sources: &BTreeMap<PathBuf, String>, wrong: &mut Vec<String>) {
    for (path, text) in sources {
        if library(path) {
            file(path, text, wrong);
        }
    }
}

/// Comments on the arguments of a command are its help.
fn library(path: &Path) -> bool {
    let path = path.display().to_string();
    path.contains("crates/") && path.contains("/src/") && !path.contains("toft-cli/src/args")
}

fn file(path: &Path, text: &str, wrong: &mut Vec<String>) {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for (n, line) in lines.iter().enumerate() {
        let place = || format!("{}:{}", path.display(), n + 1);
        let above = lines[..n].iter().rev().find(|line| !is_attribute(line)).copied().unwrap_or_default();
        if let Some(item) = public_item(line)
            && !above.starts_with("///")
            && !["toft-cli", "/conformance/", "toft-core/src/tables/mod.rs"]
                .iter()
                .any(|exempt| path.display().to_string().contains(exempt))
        {
            wrong.push(format!("{}: `{item}` is public and has no doc comment", place()));
        }
        let before = lines[..n].iter().rposition(|line| !is_attribute(line));
        let alone = before.is_some_and(|at| at == 0 || !lines[at - 1].starts_with("///"));
        if let (Some(name), Some(comment), true) = (field(line), above.strip_prefix("/// "), alone)
            && repeats(comment, name)
        {
            wrong.push(format!("{}: `/// {comment}` only repeats the name `{name}`", place()));
        }
    }
}

fn is_attribute(line: &str) -> bool {
    line.starts_with("#[")
}

/// The name of a public item that needs a comment.
fn public_item(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ")?;
    let rest = ["const fn ", "fn ", "struct ", "enum ", "trait ", "type ", "const ", "static "]
        .iter()
        .find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().filter(|name| !name.is_empty())
}

/// The name of a field.
fn field(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub(crate) ").or(line.strip_prefix("pub ")).unwrap_or(line);
    let (name, kind) = rest.strip_suffix(',')?.split_once(": ")?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit());
    let is_type = kind.starts_with(|first: char| first.is_ascii_alphabetic() || "&[(".contains(first));
    (is_name && is_type && !kind.contains('"')).then_some(name)
}

/// Whether every word that says something is part of the name.
fn repeats(comment: &str, name: &str) -> bool {
    let stem = |word: &str| word.trim_end_matches('s').to_lowercase();
    let parts: Vec<String> = name.split('_').map(stem).collect();
    let words = comment.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    words.filter(|word| !EMPTY_WORDS.contains(&word.to_lowercase().as_str())).all(|word| parts.contains(&stem(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_repeats_its_field_is_found() {
        assert!(repeats("The id.", "id") && repeats("Its labels.", "labels") && repeats("Who.", "agent"));
        assert!(!repeats("0 is most urgent.", "priority") && !repeats("The agent, by name.", "agent"));
        assert_eq!(field("pub(crate) id: Option<String>,"), Some("id"));
        assert_eq!(field("id: format!(\"{x}\"),"), None);
    }

    #[test]
    fn a_public_item_without_a_comment_is_found() {
        let mut wrong = Vec::new();
        file(
            Path::new("crates/toft-core/src/x.rs"),
            "/// One.\n#[must_use]\npub fn a() {}\n\npub fn b() {}\n",
            &mut wrong,
        );
        assert_eq!(wrong, ["crates/toft-core/src/x.rs:5: `b` is public and has no doc comment"]);
    }
}
