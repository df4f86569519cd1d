//! Recipes: how well-known agents are started without a person, and how their usage reports are read.
//!
//! Each is only a default; `[run.agents.NAME]` in the user's configuration replaces it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toft_core::flow::Usage;

/// Placeholder for the brief as one argument, for agents that do not read it from their input.
const BRIEF: &str = "{brief}";
/// Placeholder for the directory with the repository's objects: a commit in a linked worktree writes there.
const REPOSITORY: &str = "{repository}";
/// Placeholder for a path outside of the workspace that commits and toft write to. An argument with it is repeated for
/// each such path.
const WRITABLE: &str = "{writable}";

/// How an agent is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    pub name: String,
    /// Its command; the brief is on its input.
    pub command: Vec<String>,
    /// Directories of its own, below the user's home, that it writes to.
    pub writes: Vec<String>,
}

/// The built-in recipes.
pub fn recipes() -> Vec<Recipe> {
    let recipe = |name: &str, command: &str, writes: &[&str]| Recipe {
        name: name.to_owned(),
        command: command.split('|').map(str::to_owned).collect(),
        writes: writes.iter().map(|&dir| dir.to_owned()).collect(),
    };
    vec![
        recipe(
            "claude",
            "claude|-p|--output-format|stream-json|--verbose|--permission-mode|acceptEdits|--allowedTools|Bash|mcp__toft",
            &[".claude", ".claude.json"],
        ),
        // A login shell would forget the PATH of the runner, and with it toft.
        recipe(
            "codex",
            "codex|exec|--json|--sandbox|workspace-write|--add-dir={writable}|-c|allow_login_shell=false|-",
            &[".codex"],
        ),
        // Without a person, any other mode has no shell tool.
        recipe("gemini", "gemini|--approval-mode|yolo|--skip-trust|--output-format|stream-json", &[".gemini"]),
        recipe("cursor", "cursor-agent|-p|--force|--output-format|stream-json|{brief}", &[".cursor", ".config/cursor"]),
        recipe(
            "opencode",
            "opencode|run|--format|json",
            &[".local/share/opencode", ".config/opencode", ".cache/opencode"],
        ),
    ]
}

/// The command for one attempt.
pub fn filled(command: &[String], brief: &str, repository: &Path, writable: &[PathBuf]) -> Vec<String> {
    let shown = |path: &Path| path.display().to_string();
    let mut words = Vec::new();
    for word in command {
        match word.as_str() {
            BRIEF => words.push(brief.to_owned()),
            word if word.contains(WRITABLE) => {
                let word = word.replace(REPOSITORY, &shown(repository));
                words.extend(writable.iter().map(|path| word.replace(WRITABLE, &shown(path))));
            }
            word => words.push(word.replace(REPOSITORY, &shown(repository))),
        }
    }
    words
}

/// An agent's own report in lines of JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spoken {
    /// The tokens that it used.
    pub usage: Option<Usage>,
    pub cost: Option<f64>,
    /// Its last message.
    pub words: Option<String>,
}

impl Spoken {
    /// Reads one line of output. Lines that are not JSON are ignored.
    pub fn hear(&mut self, line: &[u8]) {
        if !line.starts_with(b"{") {
            return;
        }
        let Ok(value) = serde_json::from_slice::<Value>(line) else { return };
        let parts = [&value["usage"], &value["stats"], &value["part"]["tokens"]];
        let count = |part: &Value, names: [&str; 2]| names.iter().find_map(|name| part[*name].as_u64());
        for part in parts {
            let input = count(part, ["input_tokens", "input"]);
            let output = count(part, ["output_tokens", "output"]);
            if input.is_some() || output.is_some() {
                let (input_tokens, output_tokens) = (input.unwrap_or(0), output.unwrap_or(0));
                self.usage = Some(Usage { input_tokens, output_tokens });
            }
        }
        let cost = [&value["total_cost_usd"], &value["part"]["cost"]].into_iter().find_map(Value::as_f64);
        self.cost = cost.filter(|cost| cost.is_finite() && *cost >= 0.0).or(self.cost);
        let words = [&value["result"], &value["response"], &value["item"]["text"], &value["part"]["text"]];
        if let Some(words) = words.into_iter().find_map(Value::as_str).filter(|words| !words.trim().is_empty()) {
            self.words = Some(words.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(lines: &[&str]) -> Spoken {
        let mut spoken = Spoken::default();
        lines.iter().for_each(|line| spoken.hear(line.as_bytes()));
        spoken
    }

    #[test]
    fn what_agents_say_of_themselves_is_taken_in() {
        let claude = spoken(&[
            r#"{"type":"system","subtype":"init"}"#,
            r#"{"type":"result","result":"Mended.","total_cost_usd":0.12,"usage":{"input_tokens":900,"output_tokens":80}}"#,
        ]);
        assert_eq!(claude.usage, Some(Usage { input_tokens: 900, output_tokens: 80 }));
        assert_eq!((claude.cost, claude.words.as_deref()), (Some(0.12), Some("Mended.")));
        let codex = spoken(&[
            r#"{"type":"item.completed","item":{"type":"agent_message","text":"Done it."}}"#,
            r#"{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":5,"output_tokens":7}}"#,
        ]);
        assert_eq!(
            (codex.usage, codex.words.as_deref()),
            (Some(Usage { input_tokens: 10, output_tokens: 7 }), Some("Done it."))
        );
        assert_eq!(spoken(&["plain text", "{broken", r#"{"usage":{"input_tokens":"many"}}"#]), Spoken::default());
    }

    #[test]
    fn a_recipe_is_filled_in() {
        let command = ["x", BRIEF, "--in={repository}", "--add={writable}", "-"].map(str::to_owned);
        let writable = ["/r/.git/objects", "/r/.git/refs"].map(PathBuf::from);
        let words = ["x", "do it", "--in=/r/.git", "--add=/r/.git/objects", "--add=/r/.git/refs", "-"];
        assert_eq!(filled(&command, "do it", Path::new("/r/.git"), &writable), words);
    }
}
