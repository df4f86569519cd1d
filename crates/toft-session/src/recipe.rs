//! Recipes: how well-known agents are started without a person, and how their usage reports are read.
//!
//! Each is only a default; `[run.agents.NAME]` in the user's configuration replaces it.

use std::path::{Path, PathBuf};

use serde_json::Value;
use toft_core::flow::{ProviderRefusal, Usage};

use crate::provider;

/// Placeholder for the brief as one argument, for agents that do not read it from their input.
const BRIEF: &str = "{brief}";
/// Placeholder for the directory with the repository's objects: a commit in a linked worktree writes there.
const REPOSITORY: &str = "{repository}";
/// Placeholder for a path outside of the workspace that commits and toft write to. An argument with it is repeated for
/// each such path.
const WRITABLE: &str = "{writable}";
/// Placeholder for the id of a conversation that goes on.
const SESSION: &str = "{session}";

/// A hook for Claude Code: messages reach the agent after its next tool. Without toft on its PATH it does nothing.
const CLAUDE_SETTINGS: &str = r#"{"hooks":{"PostToolUse":[{"hooks":[{"type":"command","command":"if command -v toft >/dev/null 2>&1; then toft hook PostToolUse --for claude; fi"}]}]}}"#;

/// What may be used at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageLimit {
    /// In the currency that agents report, which is US dollars.
    pub cost: Option<f64>,
    /// Input and output together.
    pub tokens: Option<u64>,
}

/// How an agent is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    pub name: String,
    /// Its command; the brief is on its input.
    pub command: Vec<String>,
    /// Directories of its own, below the user's home, that it writes to.
    pub writes: Vec<String>,
    /// Its command to continue the conversation `{session}`; empty if it cannot.
    pub resume: Vec<String>,
}

/// The built-in recipes.
pub fn recipes() -> Vec<Recipe> {
    let words = |command: &str| command.split('|').map(str::to_owned).collect::<Vec<_>>();
    let recipe = |name: &str, command: &str, resume: &str, writes: &[&str]| Recipe {
        name: name.to_owned(),
        command: words(command),
        resume: if resume.is_empty() { Vec::new() } else { words(&format!("{command}|{resume}")) },
        writes: writes.iter().map(|&dir| dir.to_owned()).collect(),
    };
    vec![
        recipe(
            "claude",
            &format!(
                "claude|-p|--output-format|stream-json|--verbose|--permission-mode|acceptEdits|--allowedTools=Bash,mcp__toft|\
                 --settings|{CLAUDE_SETTINGS}"
            ),
            "--resume|{session}",
            &[".claude", ".claude.json"],
        ),
        // A login shell would forget the PATH of the runner, and with it toft.
        Recipe {
            command: words(
                "codex|exec|--json|--sandbox|workspace-write|--add-dir={writable}|-c|allow_login_shell=false|-",
            ),
            ..recipe(
                "codex",
                "codex|exec|--json|--sandbox|workspace-write|--add-dir={writable}|-c|allow_login_shell=false",
                "resume|{session}|-",
                &[".codex"],
            )
        },
        // Without a person, any other mode has no shell tool.
        recipe(
            "gemini",
            "gemini|--approval-mode|yolo|--skip-trust|--output-format|stream-json",
            "--resume|{session}",
            &[".gemini"],
        ),
        recipe(
            "cursor",
            "cursor-agent|-p|--force|--output-format|stream-json|{brief}",
            "",
            &[".cursor", ".config/cursor"],
        ),
        recipe(
            "opencode",
            "opencode|run|--format|json",
            "--session|{session}",
            &[".local/share/opencode", ".config/opencode", ".cache/opencode"],
        ),
    ]
}

/// Agents that speak the Agent Client Protocol, and how they are started.
const ACP_AGENTS: [(&str, &str, &str); 3] = [
    ("gemini", "gemini|--acp|--approval-mode|yolo|--skip-trust", ".gemini"),
    ("opencode", "opencode|acp", ".local/share/opencode"),
    ("copilot", "copilot|--acp|--allow-all-tools", ".copilot"),
];

/// An agent that is spoken to over the Agent Client Protocol, by name: a known one, or one of `agents` whose command
/// speaks it. `toft` is the program of this process, which is the client.
pub fn acp_recipe(name: &str, agents: &[Recipe], toft: &str) -> Option<Recipe> {
    let known = ACP_AGENTS
        .iter()
        .find(|(known, ..)| *known == name)
        .map(|(_, command, writes)| (command.split('|').map(str::to_owned).collect(), vec![(*writes).to_owned()]));
    let own =
        || agents.iter().find(|agent| agent.name == name).map(|agent| (agent.command.clone(), agent.writes.clone()));
    let (command, writes): (Vec<String>, Vec<String>) = known.or_else(own)?;
    let around =
        |words: &[&str]| [toft].iter().chain(words).map(|&word| word.to_owned()).chain(command.clone()).collect();
    Some(Recipe {
        name: format!("acp:{name}"),
        command: around(&["acp", "--"]),
        resume: around(&["acp", "--resume", SESSION, "--"]),
        writes,
    })
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

/// A command for a sandbox or container of toft's: a client's own sandbox neither starts in there nor reaches toft.
pub fn unconfined(command: &[String]) -> Vec<String> {
    const OWN: [&str; 2] = ["--sandbox", "workspace-write"];
    let Some(at) = command.windows(2).position(|words| words == OWN) else { return command.to_vec() };
    let mut words = command.to_vec();
    words[at + 1] = "danger-full-access".to_owned();
    words.retain(|word| !word.contains(WRITABLE));
    words
}

/// The command that continues a conversation, if there is one.
pub fn resuming(resume: &[String], session: &str) -> Option<Vec<String>> {
    let command: Vec<String> = resume.iter().map(|word| word.replace(SESSION, session)).collect();
    (!command.is_empty()).then_some(command)
}

/// An agent's own report in lines of JSON.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spoken {
    /// The tokens that it used.
    pub usage: Option<Usage>,
    pub cost: Option<f64>,
    /// Its last message.
    pub words: Option<String>,
    /// The client's own id of the conversation.
    pub session: Option<String>,
    /// Why its provider refused to serve it, if its last turn ended so.
    pub refused: Option<ProviderRefusal>,
    /// When its provider serves it again, in seconds since 1970.
    reset: Option<u64>,
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
                // OpenCode says it for each step, others for all of them.
                let before = self.usage.filter(|_| value["type"] == "step_finish").unwrap_or_default();
                self.usage = Some(Usage {
                    input_tokens: before.input_tokens.saturating_add(input_tokens),
                    output_tokens: before.output_tokens.saturating_add(output_tokens),
                });
            }
        }
        let cost = [&value["total_cost_usd"], &value["part"]["cost"]].into_iter().find_map(Value::as_f64);
        let cost = cost.filter(|cost| cost.is_finite() && *cost >= 0.0);
        // The same.
        let before = self.cost.filter(|_| value["type"] == "step_finish").unwrap_or(0.0);
        self.cost = cost.map(|cost| before + cost).or(self.cost);
        let session = ["session_id", "thread_id", "sessionID"].iter().find_map(|name| value[*name].as_str());
        if let Some(session) = session.filter(|session| is_session(session)) {
            self.session = Some(session.to_owned());
        }
        if value["type"] == "rate_limit_event" {
            self.reset = provider::reset(&value);
        }
        // A client that goes on was served after all.
        if value["type"] != "system" && value["type"] != "rate_limit_event" {
            self.refused = provider::refusal(&value, self.reset);
        }
        let words = [&value["result"], &value["response"], &value["item"]["text"], &value["part"]["text"]];
        if let Some(words) = words.into_iter().find_map(Value::as_str).filter(|words| !words.trim().is_empty()) {
            self.words = Some(words.trim().to_owned());
        }
    }
}

/// Whether a text can be the id of a conversation: it becomes an argument of a command.
pub fn is_session(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    (1..=128).contains(&text.len()) && text.chars().all(plain) && !text.starts_with('-')
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
        let step = r#"{"type":"step_finish","part":{"tokens":{"input":100,"output":7},"cost":0.25}}"#;
        let opencode = spoken(&[step, r#"{"type":"text","part":{"text":"Done it."}}"#, step]);
        assert_eq!(opencode.usage, Some(Usage { input_tokens: 200, output_tokens: 14 }));
        assert_eq!((opencode.cost, opencode.words.as_deref()), (Some(0.5), Some("Done it.")));
        assert_eq!(spoken(&["plain text", "{broken", r#"{"usage":{"input_tokens":"many"}}"#]), Spoken::default());
    }

    #[test]
    fn a_conversation_is_known_and_a_refusal_only_while_it_is_the_last_word() {
        let codex = spoken(&[
            r#"{"type":"thread.started","thread_id":"01a1-e7"}"#,
            r#"{"type":"error","message":"exceeded retry limit, last status: 429 Too Many Requests"}"#,
            r#"{"type":"turn.failed","error":{"message":"exceeded retry limit, last status: 429 Too Many Requests"}}"#,
        ]);
        assert_eq!((codex.session.as_deref(), codex.refused.is_some()), (Some("01a1-e7"), true));
        let went_on = spoken(&[
            r#"{"type":"error","message":"Reconnecting... 1/5 (unexpected status 429)"}"#,
            r#"{"type":"turn.completed","usage":{}}"#,
        ]);
        assert_eq!(went_on.refused, None);
        assert_eq!(spoken(&[r#"{"type":"init","session_id":"--dangerous"}"#]).session, None);
        let claude = recipes().remove(0);
        assert_eq!(
            resuming(&claude.resume, "ab-1").unwrap().join(" "),
            format!("{} --resume ab-1", claude.command.join(" "))
        );
    }

    #[test]
    fn a_recipe_is_filled_in() {
        let command = ["x", BRIEF, "--in={repository}", "--add={writable}", "-"].map(str::to_owned);
        let writable = ["/r/.git/objects", "/r/.git/refs"].map(PathBuf::from);
        let words = ["x", "do it", "--in=/r/.git", "--add=/r/.git/objects", "--add=/r/.git/refs", "-"];
        assert_eq!(filled(&command, "do it", Path::new("/r/.git"), &writable), words);
    }
}
