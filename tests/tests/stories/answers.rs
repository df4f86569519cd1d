//! What each command answers with `--json`, held by a snapshot: a field that is renamed, lost or of another type shows up in
//! review. Calls of the library are held by a snapshot of their schemas, in toft-core.

use toft_stories::prelude::*;

/// The fields of an answer: where each is, and of which types.
type Shape = BTreeMap<String, BTreeSet<&'static str>>;

/// Names that are data: ids, addresses, ports.
fn is_data(parent: &str, name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    parent.ends_with(".progress") || parent.ends_with(".ports") || parent.ends_with(".vars") || digits > 1
}

fn add(shape: &mut Shape, path: &str, value: &Value) {
    let mut note = |kind| {
        shape.entry(path.to_owned()).or_default().insert(kind);
    };
    match value {
        Value::Null => note("null"),
        Value::Bool(_) => note("bool"),
        Value::Number(_) => note("number"),
        Value::String(_) => note("text"),
        Value::Array(items) => {
            note("list");
            items.iter().for_each(|item| add(shape, &format!("{path}[]"), item));
        }
        Value::Object(fields) => {
            note("object");
            for (name, value) in fields {
                let name = if is_data(path, name) { "*" } else { name };
                add(shape, &format!("{path}.{name}"), value);
            }
        }
    }
}

struct Asked {
    home: Home,
    repo: PathBuf,
    shapes: BTreeMap<String, Shape>,
}

impl Asked {
    /// Runs a command, keeps the shape of its answer under its kind, and gives the data.
    fn ask(&mut self, args: &[&str]) -> Value {
        self.ask_in(&self.repo.clone(), args)
    }

    fn ask_in(&mut self, dir: &std::path::Path, args: &[&str]) -> Value {
        let said = self.home.toft(dir, &[args, &["--json"]].concat());
        assert_eq!(said.code, 0, "{said:?}");
        let answer: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        let kind = answer["kind"].as_str().unwrap().to_owned();
        add(self.shapes.entry(kind).or_default(), "", &answer);
        answer["data"].clone()
    }
}

#[test]
fn every_answer_in_json_has_the_fields_it_had() {
    let (home, repo) = Home::with(|home| home.git("api"));
    let mut asked = Asked { home, repo, shapes: BTreeMap::new() };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    asked.ask(&["init"]);
    asked.ask(&["where"]);
    asked.ask(&["doctor", "--upgrade"]);
    let first = text(&asked.ask(&["add", "Pin the orders schema", "-d", "All of it", "-l", "db", "-p", "1"])["id"]);
    let second = text(&asked.ask(&["add", "Write the importer", "--needs", &first, "--due", "2030-01-01"])["id"]);
    asked.ask(&["agent", "register", "bea", "--can", "db"]);
    asked.ask(&["edit", &second, "--comment", "later", "--assignee", "bea"]);
    asked.ask(&["edit", &second, "--assignee", ""]);
    asked.ask(&["list"]);
    asked.ask(&["list", "--graph"]);
    asked.ask(&["show", &second]);
    asked.ask(&["ready", "--explain"]);
    asked.ask(&["prime"]);
    asked.ask(&["status"]);
    let claim = asked.ask(&["claim", "--ws", "--plain"]);
    let task = text(&claim["task"]["id"]);
    asked.ask(&["save", "-m", "half of it", "--file", "orders.sql"]);
    asked.ask(&["save", "--key", "page", "--value", "3"]);
    asked.ask(&["show", &task, "--state", "page"]);
    asked.ask(&["show", &task]);
    asked.ask(&["show", &task, "--context"]);
    asked.ask(&["status"]);
    asked.ask(&["ws", "list"]);
    asked.ask(&["ws", "list", &first]);
    asked.ask(&["ws", "path", &first]);
    asked.ask(&["ws", "path", "--env", &first]);
    asked.ask(&["ws", "keep", &first]);
    asked.ask(&["ws", "keep", "--off", &first]);
    asked.ask(&["ws", "rescue", &first]);
    asked.ask(&["ws", "restore"]);
    asked.ask(&["finish", "waiting", "-m", "which schema?"]);
    let gate = text(&asked.ask(&["status"])["needs_you"][0]["gate"]);
    asked.ask(&["answer", &gate, "the small one"]);
    asked.ask(&["claim", &first]);
    asked.ask(&["finish", "done", "--no-change", "was pinned", "--cost", "0.5"]);
    asked.ask(&["ws", "gc", "--dry-run"]);
    asked.ask(&["close", &second, "-m", "not needed"]);
    asked.ask(&["undo"]);
    asked.ask(&["undo", "--redo"]);
    asked.ask(&["delete", &second]);
    asked.ask(&["reopen", &second]);
    asked.ask(&["history"]);
    let flow = text(&asked.ask(&["flow", "new", "Release", "--task", "build", "--task", "ship"])["workflow"]["id"]);
    asked.ask(&["list", "tasks"]);
    asked.ask(&["flow", "list"]);
    asked.ask(&["flow", "show", &flow]);
    asked.ask(&["flow", "edit", &flow, "--budget", "3"]);
    asked.ask(&["flow", "edit", &flow, "--add", "check"]);
    asked.ask(&["flow", "template", "list"]);
    asked.ask(&["agent", "list"]);
    asked.ask(&["agent", "send", "bea", "hello"]);
    asked.ask(&["agent", "inbox", "--as", "bea"]);
    asked.ask(&["ledger", "list"]);
    asked.ask(&["ledger", "show"]);
    asked.ask(&["sync"]);
    asked.ask(&["gc", "--ledgers"]);
    asked.ask(&["gc", "--data"]);
    asked.ask(&["doctor"]);
    asked.ask(&["setup", "--dry-run", "claude"]);
    let backup = asked.home.path().join("one.backup").display().to_string();
    asked.ask(&["backup", &backup]);
    asked.ask(&["trust"]);
    asked.ask(&["setup", "shell", "bash"]);
    let mut snapshot = String::new();
    for (kind, shape) in &asked.shapes {
        snapshot.push_str(&format!("\n{kind}\n"));
        for (path, types) in shape.iter().filter(|(path, _)| !path.is_empty()) {
            let types: Vec<_> = types.iter().copied().collect();
            snapshot.push_str(&format!("  {path}: {}\n", types.join(" or ")));
        }
    }
    insta::assert_snapshot!(snapshot);
}
