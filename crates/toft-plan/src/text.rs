//! Reads many issues from one text: a Markdown list, or a JSON object on each line.

use std::collections::BTreeMap;

use serde::Deserialize;
use toft_core::issue::{
    EPIC,
    edit::{Edit, Step},
};

/// One issue of a text, with its names there.
struct Item {
    edit: Edit,
    names: Vec<String>,
    needs: Vec<String>,
    parent: Option<usize>,
}

/// Reads many issues. The values of `first` are defaults for each; names refer to positions in the list.
pub fn many(text: &str, first: &Edit) -> Result<Vec<Edit>, String> {
    let items = if text.trim_start().starts_with('{') { lines(text, first)? } else { list(text, first) };
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        for name in &item.names {
            if places.insert(name, place).is_some() {
                return Err(format!("two issues are called `{name}`"));
            }
        }
    }
    let place =
        |name: &String| places.get(name.as_str()).map_or_else(|| name.clone(), |place| format!("#{}", place + 1));
    let resolve = |item: &Item| {
        let mut edit = item.edit.clone();
        edit.needs.extend(item.needs.iter().map(place));
        match item.parent {
            Some(parent) => edit.parent = Some(format!("#{}", parent + 1)),
            None => edit.parent = edit.parent.as_ref().map(place),
        }
        edit
    };
    Ok(items.iter().map(resolve).collect())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextRow {
    title: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    priority: Option<u8>,
    #[serde(default)]
    labels: Vec<String>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    parent: Option<String>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    design: Option<String>,
    #[serde(default)]
    acceptance: Option<String>,
    #[serde(default)]
    notes: Option<String>,
}

fn lines(text: &str, first: &Edit) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let row: TextRow = serde_json::from_str(line).map_err(|error| format!("line {}: {error}", number + 1))?;
        let texts = [("body", row.body), ("design", row.design), ("acceptance", row.acceptance), ("notes", row.notes)];
        let mut edit = first.clone();
        edit.title = Some(row.title);
        edit.kind = row.kind.or(edit.kind);
        edit.priority = row.priority.or(edit.priority);
        edit.labels.extend(row.labels);
        edit.parent = row.parent.or(edit.parent);
        edit.texts.extend(texts.into_iter().filter_map(|(name, text)| Some((name, text?))));
        items.push(Item { edit, names: row.name.into_iter().collect(), needs: row.needs, parent: None });
    }
    Ok(items)
}

/// Headings are epics, list items are issues, nested items are parts of the item above; other lines belong to its
/// description. An item's name is its number, or a word in backticks before its title; it may end in `(needs NAME,
/// NAME)`.
fn list(text: &str, first: &Edit) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut bodies: Vec<Vec<&str>> = Vec::new();
    // Places of the items a line may be part of, with how far each is indented; headings stand before all.
    let mut above: Vec<(isize, usize)> = Vec::new();
    for line in text.lines() {
        let indent = (line.len() - line.trim_start().len()) as isize;
        let (depth, kind, words) = match (heading(line), item(line.trim_start())) {
            (Some((level, words)), _) => (level as isize - 100, Some(EPIC.to_owned()), ("", words)),
            (None, Some(words)) => (indent, first.kind.clone(), words),
            (None, None) => {
                if let Some(body) = bodies.last_mut().filter(|body| !body.is_empty() || !line.trim().is_empty()) {
                    body.push(line.trim());
                }
                continue;
            }
        };
        while above.last().is_some_and(|(known, _)| *known >= depth) {
            above.pop();
        }
        let (number, words) = words;
        let (done, words) = match words.strip_prefix("[x]").or_else(|| words.strip_prefix("[X]")) {
            Some(words) => (true, words.trim()),
            None => (false, words.strip_prefix("[ ]").unwrap_or(words).trim()),
        };
        let (names, title, needs) = parts(number, words);
        let status = done.then(|| Step::Close { reason: "done when it was written down".into() });
        let edit = Edit { title: Some(title), kind, status, ..first.clone() };
        let parent = above.last().map(|(_, place)| *place);
        above.push((depth, items.len()));
        items.push(Item { edit, names, needs, parent });
        bodies.push(Vec::new());
    }
    for (item, body) in items.iter_mut().zip(bodies) {
        let body = body.join("\n").trim().to_owned();
        if !body.is_empty() {
            item.edit.texts.push(("body", body));
        }
    }
    items
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let words = line.get(level..)?.strip_prefix(' ')?.trim();
    ((1..=6).contains(&level) && !words.is_empty()).then_some((level, words))
}

/// The number and the text of a list item.
fn item(line: &str) -> Option<(&str, &str)> {
    let (number, words) = match line.strip_prefix(['-', '*', '+']) {
        Some(words) => ("", words),
        None => {
            let digits = line.bytes().take_while(u8::is_ascii_digit).count();
            (line.get(..digits).filter(|number| !number.is_empty())?, line.get(digits..)?.strip_prefix(['.', ')'])?)
        }
    };
    let words = words.strip_prefix(' ')?.trim();
    (!words.is_empty()).then_some((number, words))
}

fn parts(number: &str, words: &str) -> (Vec<String>, String, Vec<String>) {
    let mut names: Vec<String> = (!number.is_empty()).then(|| number.to_owned()).into_iter().collect();
    let mut title = words;
    if let Some((name, rest)) = title.strip_prefix('`').and_then(|rest| rest.split_once("` ")) {
        names.push(name.to_owned());
        title = rest.trim();
    }
    let mut needs = Vec::new();
    if let Some((rest, list)) = title.strip_suffix(')').and_then(|title| title.rsplit_once("(needs ")) {
        needs = list.split(',').map(|name| name.trim().to_owned()).collect();
        title = rest.trim();
    }
    (names, title.to_owned(), needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_becomes_issues_with_parts_and_needs() {
        let text = "# Orders\n\nAll of it.\n\n1. `schema` Pin the schema\n   with constraints\n2. [ ] Migrate (needs 1)\n   - dry run\n- Ship (needs schema, 2)\n";
        let edits = many(text, &Edit::default()).unwrap();
        let titles: Vec<_> = edits.iter().filter_map(|edit| edit.title.as_deref()).collect();
        assert_eq!(titles, ["Orders", "Pin the schema", "Migrate", "dry run", "Ship"]);
        assert_eq!(edits[0].kind.as_deref(), Some(EPIC));
        assert_eq!(edits[0].texts, [("body", "All of it.".to_owned())]);
        assert_eq!(edits[1].texts, [("body", "with constraints".to_owned())]);
        assert_eq!(edits[2].needs, ["#2"]);
        assert_eq!(edits[3].parent.as_deref(), Some("#3"));
        assert_eq!(edits[4].needs, ["#2", "#3"]);
        assert_eq!(edits[4].parent.as_deref(), Some("#1"));
    }

    #[test]
    fn lines_become_issues_and_wrong_ones_are_named() {
        let edits =
            many("{\"title\":\"a\",\"name\":\"x\"}\n{\"title\":\"b\",\"needs\":[\"x\",\"tf-1\"]}\n", &Edit::default())
                .unwrap();
        assert_eq!(edits[1].needs, ["#1", "tf-1"]);
        assert!(many("{\"title\":\"a\",\"colour\":1}", &Edit::default()).unwrap_err().contains("line 1"));
    }
}
