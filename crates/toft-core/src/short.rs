//! Short ids: text shows the shortest unique prefix of an id.

use crate::{
    id::{GateId, TaskId, WORD, WorkflowId},
    issue,
};

/// Minimum number of characters of a prefix after the prefix of its kind.
const SHORTEST: usize = 4;
/// Kinds of ids that text abbreviates: their prefix, and the number of characters that follow.
const KINDS: [(&str, usize); 4] =
    [(issue::PREFIX, issue::WORD), (TaskId::PREFIX, WORD), (WorkflowId::PREFIX, WORD), (GateId::PREFIX, WORD)];

/// Abbreviates every id in a text. `similar` returns the first two ids that begin with a prefix. An id that it does not
/// know stays whole, and so does an id that is part of a path or of another word.
pub fn shorten<E>(text: &str, mut similar: impl FnMut(&str) -> Result<Vec<String>, E>) -> Result<String, E> {
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, id)) = next_id(rest, short.chars().next_back()) {
        let (before, after) = rest.split_at(at);
        short.push_str(before);
        short.push_str(unique_prefix(id, &mut similar)?);
        rest = &after[id.len()..];
    }
    short.push_str(rest);
    Ok(short)
}

/// The shortest unique prefix of an id.
fn unique_prefix<'a, E>(id: &'a str, similar: &mut impl FnMut(&str) -> Result<Vec<String>, E>) -> Result<&'a str, E> {
    let kind = KINDS.iter().find(|(start, _)| id.starts_with(start)).map_or(0, |(start, _)| start.len());
    let mut length = kind + SHORTEST;
    while length < id.len() {
        let found = similar(&id[..length])?;
        let Some(other) = found.iter().find(|other| *other != id) else {
            return Ok(if found.is_empty() { id } else { &id[..length] });
        };
        let common = id.bytes().zip(other.bytes()).take_while(|(mine, theirs)| mine == theirs).count();
        length = length.max(common) + 1;
    }
    Ok(id)
}

/// The first whole id in a text, and its position. `last` is the character before the text.
fn next_id(text: &str, last: Option<char>) -> Option<(usize, &str)> {
    let mut before = last;
    for (at, c) in text.char_indices() {
        if let Some(id) = id_at(&text[at..])
            && apart(text, at, before)
            && !text[at + id.len()..].starts_with(joins)
        {
            return Some((at, id));
        }
        before = Some(c);
    }
    None
}

/// The id that a text begins with.
fn id_at(text: &str) -> Option<&str> {
    let (start, more) = KINDS.iter().find(|(start, _)| text.starts_with(start))?;
    let id = text.get(..start.len() + more)?;
    id[start.len()..].bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()).then_some(id)
}

/// Whether an id at this position begins a word. The final letter of a color escape sequence is not part of the word.
fn apart(text: &str, at: usize, before: Option<char>) -> bool {
    let coloured = || {
        let code = text[..at].rsplit_once('\u{1b}').map_or("", |(_, code)| code);
        code.strip_prefix('[')
            .and_then(|code| code.strip_suffix('m'))
            .is_some_and(|code| code.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'))
    };
    !before.is_some_and(joins) || coloured()
}

/// Whether a character next to an id makes it part of a longer word.
fn joins(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '/' | '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shortened(text: &str) -> String {
        let known = ["tf-0000000000000000", "tf-0000000000000001", "tf-abcd000000000000", "tk_abcd00000000"];
        let similar = |prefix: &str| {
            let found = known.iter().filter(|id| id.starts_with(prefix)).take(2);
            Ok::<_, ()>(found.map(|id| (*id).to_owned()).collect())
        };
        shorten(text, similar).unwrap()
    }

    #[test]
    fn an_id_is_as_short_as_it_can_be() {
        assert_eq!(shortened("tf-abcd000000000000 and tk_abcd00000000"), "tf-abcd and tk_abcd");
        assert_eq!(
            shortened("`tf-0000000000000000`, tf-0000000000000001."),
            "`tf-0000000000000000`, tf-0000000000000001."
        );
        assert_eq!(shortened("\u{1b}[36mtf-abcd000000000000\u{1b}[0m"), "\u{1b}[36mtf-abcd\u{1b}[0m");
    }

    #[test]
    fn what_is_no_id_stays() {
        for text in [
            "tf-wxyz000000000000",
            "/home/tf-abcd000000000000",
            "tf-abcd000000000000/src",
            "toft/tf-abcd000000000000-title",
            "tf-abcd0000000000001",
            "tf-abcd00000000000ä",
            "stf-abcd000000000000",
            "tf-",
            "",
        ] {
            assert_eq!(shortened(text), text);
        }
    }
}
