//! Changing a text so that everything else in it stays: comments, order, blanks, line ends.

use jsonc_parser::{
    ParseOptions,
    cst::{CstInputValue, CstNode, CstObject, CstRootNode},
};
use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::harness::Change;

const BEGIN: &str = "<!-- toft: begin; `toft setup --remove` takes this away -->";
const END: &str = "<!-- toft: end -->";

/// The text with the change in it.
pub(super) fn add(text: Option<&str>, change: &Change) -> Result<Option<String>, String> {
    let now = text.unwrap_or_default();
    Ok(Some(match change {
        Change::Whole(whole) => whole.clone(),
        Change::Block(block) => with_block(now, block),
        Change::Key(keys, value) => json(now, |root| {
            let (last, path) = keys.split_last().ok_or("nothing to write")?;
            let object = descend(root, path)?;
            // Something else of that name is somebody's own.
            if object.get(last).is_none() {
                object.append(last, input(value));
            }
            Ok(())
        })?,
        Change::Item(keys, value, besides) => json(now, |root| {
            if let Some((key, value)) = besides
                && root.get(key).is_none()
            {
                root.append(key, input(value));
            }
            let (last, path) = keys.split_last().ok_or("nothing to write")?;
            let object = descend(root, path)?;
            let list = match object.get(last) {
                Some(known) => known.array_value().ok_or_else(|| format!("`{last}` is not a list"))?,
                None => object.array_value_or_set(last),
            };
            match list.elements().into_iter().find(|node| calls(node, value)) {
                Some(known)
                    if inner(&known, value)
                        .is_some_and(|own| own.to_serde_value().as_ref() == Some(own_part(value))) => {}
                Some(known) => {
                    // Another one of ours; what else stands in the same group stays.
                    remove_own(&known, value);
                    list.append(input(value));
                }
                None => drop(list.append(input(value))),
            }
            Ok(())
        })?,
        Change::Table(outer, name, values) => with_table(now, outer, name, values)?,
        Change::Entry(table, key, entry) => with_entry(now, table, key, entry)?,
    }))
}

/// The text without the change; nothing if there is nothing else. A text that cannot be read is left alone.
pub(super) fn take(text: Option<&str>, change: &Change) -> Option<String> {
    let now = text?;
    if now.trim().is_empty() {
        return Some(now.to_owned());
    }
    let left = match change {
        Change::Whole(whole) if now == whole => return None,
        Change::Whole(_) => return Some(now.to_owned()),
        Change::Block(_) => without_block(now),
        Change::Key(keys, value) => json(now, |root| {
            if let Some((last, path)) = keys.split_last()
                && let Some(object) = existing(root, path)
                && let Some(known) = object.get(last)
                && known.value().and_then(|node| node.to_serde_value()).as_ref() == Some(value)
            {
                known.remove();
                prune(root, path);
            }
            Ok(())
        })
        .unwrap_or_else(|_| now.to_owned()),
        Change::Item(keys, value, _) => json(now, |root| {
            if let Some((last, path)) = keys.split_last()
                && let Some(list) = existing(root, path).and_then(|object| object.array_value(last))
            {
                for node in list.elements().into_iter().filter(|node| calls(node, value)) {
                    remove_own(&node, value);
                }
                prune(root, keys);
            }
            Ok(())
        })
        .unwrap_or_else(|_| now.to_owned()),
        Change::Table(outer, name, values) => {
            without_table(now, outer, name, values).unwrap_or_else(|_| now.to_owned())
        }
        Change::Entry(table, key, entry) => without_entry(now, table, key, entry).unwrap_or_else(|_| now.to_owned()),
    };
    let nothing_else = left != now && (left.trim().is_empty() || left.trim() == "{}");
    (!nothing_else).then_some(left)
}

/// The part of an item that is toft's own: the hook itself, whatever group it stands in.
fn own_part(value: &Value) -> &Value {
    value.get("hooks").and_then(|hooks| hooks.get(0)).unwrap_or(value)
}

/// The hook that a command line calls: `toft hook EVENT`.
fn call(value: &Value) -> Option<Vec<String>> {
    let text = value.to_string();
    let start = text.find("toft hook ")?;
    Some(text[start..].split([' ', ';', '"']).take(3).map(str::to_owned).collect())
}

/// The node below an item of a list, or the item itself, that is toft's own, in whatever version.
fn inner(node: &CstNode, ours: &Value) -> Option<CstNode> {
    let is_ours = |node: &CstNode| node.to_serde_value().is_some_and(|found| call(&found) == call(ours));
    match node.as_object().and_then(|group| group.array_value("hooks")) {
        Some(hooks) => hooks.elements().into_iter().find(is_ours),
        None => is_ours(node).then(|| node.clone()),
    }
}

fn calls(node: &CstNode, ours: &Value) -> bool {
    inner(node, ours).is_some()
}

/// Removes what is toft's own from an item of a list; the item with it, if there was nothing else.
fn remove_own(node: &CstNode, ours: &Value) {
    let alone =
        node.as_object().and_then(|group| group.array_value("hooks")).is_none_or(|hooks| hooks.elements().len() <= 1);
    match inner(node, ours) {
        Some(_) if alone => node.clone().remove(),
        Some(own) => own.remove(),
        None => {}
    }
}

fn json(text: &str, edit: impl FnOnce(&CstObject) -> Result<(), String>) -> Result<String, String> {
    let blank = text.trim().is_empty();
    let root = CstRootNode::parse(if blank { "{}" } else { text }, &ParseOptions::default())
        .map_err(|error| error.to_string())?;
    let object = root.object_value().ok_or("it is not a JSON object")?;
    edit(&object)?;
    let text = root.to_string();
    Ok(if blank { format!("{}\n", text.trim_end()) } else { text })
}

/// The object at the end of a path, made where it is missing.
fn descend(root: &CstObject, path: &[&str]) -> Result<CstObject, String> {
    let mut object = root.clone();
    for key in path {
        object = match object.get(key) {
            Some(known) => known.object_value().ok_or_else(|| format!("`{key}` is not an object"))?,
            None => object.object_value_or_set(key),
        };
    }
    Ok(object)
}

fn existing(root: &CstObject, path: &[&str]) -> Option<CstObject> {
    path.iter().try_fold(root.clone(), |object, key| object.object_value(key))
}

/// Removes what is empty now, from the end of a path up.
fn prune(root: &CstObject, path: &[&str]) {
    for length in (1..=path.len()).rev() {
        let (last, before) = (path[length - 1], &path[..length - 1]);
        let Some(found) = existing(root, before).and_then(|object| object.get(last)) else { return };
        let empty = found.value().and_then(|node| node.to_serde_value()).is_some_and(|value| match value {
            Value::Object(all) => all.is_empty(),
            Value::Array(all) => all.is_empty(),
            _ => false,
        });
        if !empty {
            return;
        }
        found.remove();
    }
}

fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(yes) => CstInputValue::Bool(*yes),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(all) => CstInputValue::Array(all.iter().map(input).collect()),
        Value::Object(all) => {
            CstInputValue::Object(all.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}

/// A TOML file with a table of these values in it.
fn with_table(text: &str, outer: &str, name: &str, values: &[(&'static str, Value)]) -> Result<String, String> {
    let mut document = toml(text)?;
    let tables = document.entry(outer).or_insert_with(|| {
        let mut tables = Table::new();
        tables.set_implicit(true);
        Item::Table(tables)
    });
    let tables = tables.as_table_like_mut().ok_or_else(|| format!("`{outer}` is not a table"))?;
    if tables.get(name).is_none() {
        tables.insert(name, Item::Table(Table::new()));
    }
    let table =
        tables.get_mut(name).and_then(Item::as_table_like_mut).ok_or_else(|| format!("`{name}` is not a table"))?;
    for (key, value) in values {
        if !has(table, key, value) {
            table.insert(key, Item::Value(toml_value(value)));
        }
    }
    Ok(document.to_string())
}

/// The same file without that table, unless somebody gave it other values.
fn without_table(text: &str, outer: &str, name: &str, values: &[(&'static str, Value)]) -> Result<String, String> {
    let mut document = toml(text)?;
    let ours = |table: &dyn TableLike| values.iter().all(|(key, value)| has(table, key, value));
    let tables = document.get_mut(outer).and_then(Item::as_table_like_mut);
    let holds_ours = |tables: &&mut dyn TableLike| tables.get(name).and_then(Item::as_table_like).is_some_and(ours);
    let Some(tables) = tables.filter(holds_ours) else {
        // Not even a missing newline at its end is added.
        return Ok(text.to_owned());
    };
    tables.remove(name);
    if tables.is_empty() {
        document.remove(outer);
    }
    Ok(document.to_string())
}

/// A TOML file with a text in a list of a table.
fn with_entry(text: &str, table: &str, key: &str, entry: &str) -> Result<String, String> {
    let mut document = toml(text)?;
    let values = document.entry(table).or_insert_with(|| Item::Table(Table::new()));
    let values = values.as_table_like_mut().ok_or_else(|| format!("`{table}` is not a table"))?;
    let list = values.entry(key).or_insert_with(|| Item::Value(toml_edit::Array::new().into()));
    let list = list.as_array_mut().ok_or_else(|| format!("`{key}` is not a list"))?;
    if list.iter().any(|known| known.as_str() == Some(entry)) {
        return Ok(text.to_owned());
    }
    list.push(entry);
    Ok(document.to_string())
}

/// The same file without that text; without the list and the table, if nothing else is in them.
fn without_entry(text: &str, table: &str, key: &str, entry: &str) -> Result<String, String> {
    let mut document = toml(text)?;
    let values = document.get_mut(table).and_then(Item::as_table_like_mut);
    let Some(values) = values else { return Ok(text.to_owned()) };
    let list = values.get_mut(key).and_then(Item::as_array_mut);
    let found = list.and_then(|list| {
        let at = list.iter().position(|known| known.as_str() == Some(entry))?;
        list.remove(at);
        Some(list.is_empty())
    });
    match found {
        None => return Ok(text.to_owned()),
        Some(false) => {}
        Some(true) => drop(values.remove(key)),
    }
    if values.is_empty() {
        document.remove(table);
    }
    Ok(document.to_string())
}

fn toml(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())
}

fn has(table: &dyn TableLike, key: &str, value: &Value) -> bool {
    table.get(key).is_some_and(|known| known.to_string().trim() == toml_value(value).to_string().trim())
}

fn toml_value(value: &Value) -> toml_edit::Value {
    match value {
        Value::Array(all) => toml_edit::Value::Array(all.iter().map(toml_value).collect()),
        Value::Bool(yes) => (*yes).into(),
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

fn with_block(text: &str, block: &str) -> String {
    let end_of_line = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let whole = [BEGIN, block, END].join("\n").replace('\n', end_of_line);
    match bounds(text) {
        Some((from, to)) => format!("{}{whole}{}", &text[..from], &text[to..]),
        None if text.trim().is_empty() => format!("{whole}{end_of_line}"),
        None => {
            let gap = if text.ends_with('\n') { end_of_line.to_owned() } else { end_of_line.repeat(2) };
            format!("{text}{gap}{whole}{end_of_line}")
        }
    }
}

fn without_block(text: &str) -> String {
    match bounds(text) {
        Some((from, to)) => {
            // What was put there: a blank line before it, and the end of its own last line.
            let end_of_line = if text.contains("\r\n") { "\r\n" } else { "\n" };
            let (before, after) = (&text[..from], &text[to..]);
            let after = after.strip_prefix(end_of_line).unwrap_or(after);
            let blank = end_of_line.repeat(2);
            let before = if before.ends_with(&blank) { &before[..before.len() - end_of_line.len()] } else { before };
            format!("{before}{after}")
        }
        None => text.to_owned(),
    }
}

/// Where the block is.
fn bounds(text: &str) -> Option<(usize, usize)> {
    // Of an opening mark whose closing one was removed, what follows is the user's.
    text.match_indices(BEGIN).find_map(|(from, _)| {
        let inside = from + BEGIN.len();
        let length = text[inside..].find(END)?;
        (!text[inside..inside + length].contains(BEGIN)).then_some((from, inside + length + END.len()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_order_and_blanks_of_json_stay() {
        let text = "{\n\t// mine\n\t\"z\": 1,   /* why */\n\t\"mcpServers\": { \"other\": {\"command\":\"x\"} },\n}\n";
        let change = Change::Key(vec!["mcpServers", "toft"], json!({ "command": "toft" }));
        let added = add(Some(text), &change).unwrap().unwrap();
        for kept in ["// mine", "\"z\": 1,   /* why */", "{\"command\":\"x\"}"] {
            assert!(added.contains(kept), "{added}");
        }
        assert_eq!(add(Some(&added), &change).unwrap().unwrap(), added, "again changes nothing");
        let taken = take(Some(&added), &change).unwrap();
        assert!(!taken.contains("toft") && taken.contains("\"other\"") && taken.contains("// mine"), "{taken}");
    }

    #[test]
    fn of_a_list_only_our_own_items_are_changed() {
        let ours = |event: &str| json!({ "command": super::super::harness::command(event, "cursor") });
        let change = Change::Item(vec!["hooks", "stop"], ours("stop"), Some(("version", json!(1))));
        let text = r#"{"version":2,"hooks":{"stop":[{"command":"mine"}]}}"#;
        let added = add(Some(text), &change).unwrap().unwrap();
        assert!(
            added.contains("\"mine\"") && added.contains("toft hook stop") && added.contains("\"version\":2"),
            "{added}"
        );
        assert_eq!(add(Some(&added), &change).unwrap().unwrap(), added);
        let older = added.replace("command -v toft", "which toft");
        let mended = add(Some(&older), &change).unwrap().unwrap();
        assert_eq!(mended.matches("toft hook stop").count(), 1, "{mended}");
        let taken = take(Some(&added), &change).unwrap();
        assert!(taken.contains("\"mine\"") && !taken.contains("toft hook"), "{taken}");
        let refused = add(Some(r#"{"hooks":{"stop":"no"}}"#), &change);
        assert!(refused.is_err_and(|problem| problem.contains("not a list")));
    }

    #[test]
    fn toml_and_blocks_keep_what_is_around_them() {
        let change = Change::Table("mcp_servers", "toft", vec![("command", json!("toft")), ("args", json!(["mcp"]))]);
        let text = "# mine\nmodel   = \"x\" # why\n\n[mcp_servers.other]\ncommand = 'y'\n";
        let added = add(Some(text), &change).unwrap().unwrap();
        assert!(added.starts_with(text) && added.contains("[mcp_servers.toft]"), "{added}");
        assert_eq!(add(Some(&added), &change).unwrap().unwrap(), added);
        assert_eq!(take(Some(&added), &change).unwrap(), text);
        let root = Change::Entry("sandbox_workspace_write", "writable_roots", "/shop/.git/toft".into());
        for text in ["# mine\nmodel = \"x\"\n", "[sandbox_workspace_write]\nwritable_roots = [\"/a\"] # why\n"] {
            let added = add(Some(text), &root).unwrap().unwrap();
            assert!(added.contains("\"/shop/.git/toft\""), "{added}");
            assert_eq!(add(Some(&added), &root).unwrap().unwrap(), added);
            assert_eq!(take(Some(&added), &root).unwrap().trim_end(), text.trim_end());
        }
        let block = Change::Block("Hello".into());
        let text = "# Mine\r\n\r\nwords\r\n";
        let added = add(Some(text), &block).unwrap().unwrap();
        assert!(added.starts_with(text) && !added.replace("\r\n", "").contains('\n'), "{added:?}");
        assert_eq!(add(Some(&added), &block).unwrap().unwrap(), added);
        assert_eq!(take(add(None, &block).unwrap().as_deref(), &block), None);
    }

    #[test]
    fn a_block_ends_where_its_own_mark_is() {
        let block = Change::Block("Hello".into());
        // Somebody removed the closing mark: what follows the opening one is theirs.
        let half = format!("{BEGIN}\nHello\n\n# Mine\n");
        let added = add(Some(&half), &block).unwrap().unwrap();
        assert_eq!(add(Some(&added), &block).unwrap().unwrap(), added, "again changes nothing");
        assert_eq!(take(Some(&added), &block).unwrap(), half);
        // A stray closing mark before the block, a stray opening one after it.
        let around = format!("{END}\n\n{BEGIN}\nolder\n{END}\n{BEGIN}\n");
        let added = add(Some(&around), &block).unwrap().unwrap();
        assert_eq!(added, around.replace("older", "Hello"));
        assert_eq!(take(Some(&added), &block).unwrap(), format!("{END}\n{BEGIN}\n"));
    }

    #[test]
    fn in_a_group_of_hooks_only_our_own_is_taken_out() {
        let ours = json!({ "type": "command", "command": super::super::harness::command("Stop", "claude") });
        let change = Change::Item(vec!["hooks", "Stop"], json!({ "hooks": [ours] }), None);
        let text = json!({ "hooks": { "Stop": [{ "matcher": "x", "hooks": [{ "command": "mine" }, ours] }] } });
        let text = text.to_string();
        assert_eq!(add(Some(&text), &change).unwrap().unwrap(), text, "it is there already, in whatever group");
        let taken = take(Some(&text), &change).unwrap();
        let left: Value = serde_json::from_str(&taken).unwrap();
        assert_eq!(left, json!({ "hooks": { "Stop": [{ "matcher": "x", "hooks": [{ "command": "mine" }] }] } }));
    }

    #[test]
    fn a_value_that_somebody_changed_stays() {
        let change = Change::Key(vec!["mcpServers", "toft"], json!({ "command": "toft" }));
        for text in [r#"{"mcpServers":{"toft":{"command":"mine"}}}"#, r#"{"mcpServers":{"toft":null}}"#] {
            assert_eq!(add(Some(text), &change).unwrap().unwrap(), text);
            assert_eq!(take(Some(text), &change).unwrap(), text);
        }
        for broken in ["{", "[]", "nonsense", "{} {}"] {
            assert!(add(Some(broken), &change).is_err(), "{broken}");
            assert_eq!(take(Some(broken), &change).as_deref(), Some(broken));
        }
    }
}
