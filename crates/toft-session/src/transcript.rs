//! Reads the JSON lines that coding agents print about their own work as a conversation: messages, tools, results.
//!
//! Known are the streams of Claude Code and Cursor (`assistant`, `user`), Codex (`item.*`), Gemini CLI (`message`,
//! `tool_use`, `tool_result`) and OpenCode (`part`). They change; a line that is not understood is shown as it is.

use serde_json::Value;

/// Arguments of tools that say what a call is about, the most telling first.
const TELLING: [&str; 10] =
    ["command", "cmd", "file_path", "filePath", "path", "absolute_path", "pattern", "query", "url", "id"];

/// A part of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TranscriptEntry {
    /// What the agent says.
    Message(String),
    /// A part of a message that goes on in the next line.
    Part(String),
    /// A tool that it uses, and on what.
    Tool { name: String, on: String },
    /// What a tool answered.
    Result(String),
    /// What went wrong.
    Problem(String),
}

impl TranscriptEntry {
    /// The entry in one line, for a place where only the present counts.
    pub fn line(&self) -> String {
        let first = |text: &str| text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("").to_owned();
        match self {
            Self::Message(text) | Self::Part(text) => first(text),
            Self::Tool { name, on } if on.is_empty() => name.clone(),
            Self::Tool { name, on } => format!("{name}: {}", first(on)),
            Self::Result(text) => format!("→ {}", first(text)),
            Self::Problem(text) => format!("error: {}", first(text)),
        }
    }
}

/// The entries of a line of output. `None` if it is not a line of a known stream; empty if it says nothing that a
/// person would read.
pub fn entries(line: &str) -> Option<Vec<TranscriptEntry>> {
    if !line.starts_with('{') {
        return None;
    }
    let value: Value = serde_json::from_str(line).ok()?;
    let kind = value["type"].as_str()?;
    let mut entries = Vec::new();
    match kind {
        "assistant" | "user" => content(&value["message"]["content"], kind == "user", &mut entries),
        "message" if value["role"] == "assistant" && value["delta"] == true => {
            entries.extend(value["content"].as_str().map(|text| TranscriptEntry::Part(text.to_owned())));
        }
        "message" if value["role"] == "assistant" => message(&value["content"], &mut entries),
        "tool_use" if value["tool_name"].is_string() => entries.push(tool(&value["tool_name"], &value["parameters"])),
        "tool_use" => {
            // OpenCode tells it when it has ended.
            let state = &value["part"]["state"];
            entries.push(tool(&value["part"]["tool"], &state["input"]));
            match state["status"] == "error" {
                true => problem(&state["error"], &state["output"], &mut entries),
                false => result(&state["output"], &mut entries),
            }
        }
        "result" | "tool_result" if value["status"] == "error" => {
            problem(&value["error"]["message"], &value["output"], &mut entries);
        }
        "tool_result" => result(&value["output"], &mut entries),
        "text" => message(&value["part"]["text"], &mut entries),
        "error" => problem(&value["error"]["message"], &value["message"], &mut entries),
        "item.started" | "item.completed" => item(&value["item"], kind == "item.started", &mut entries),
        "turn.failed" => problem(&value["error"]["message"], &Value::Null, &mut entries),
        "result" if value["is_error"] == true => problem(&value["result"], &Value::Null, &mut entries),
        "system" | "init" | "result" | "message" | "thread.started" | "turn.started" | "turn.completed"
        | "item.updated" | "step_start" | "step_finish" | "rate_limit_event" | "stream_event" => {}
        _ => return None,
    }
    // A failure whose reason is elsewhere in the line is shown as it is.
    let failed = ["error", "turn.failed"].contains(&kind)
        || value["is_error"] == true
        || [&value["status"], &value["item"]["status"]]
            .iter()
            .any(|status| ["error", "failed"].iter().any(|word| *status == word))
        || value["level"].is_string();
    (!failed || !entries.is_empty()).then_some(entries)
}

/// The blocks of a message of Claude Code.
fn content(blocks: &Value, from_tools: bool, entries: &mut Vec<TranscriptEntry>) {
    for block in blocks.as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("text") if !from_tools => message(&block["text"], entries),
            Some("tool_use") => entries.push(tool(&block["name"], &block["input"])),
            Some("tool_result") => result(&block["content"], entries),
            _ => {}
        }
    }
}

/// An item of Codex: a command is told when it starts, its output when it ends.
fn item(item: &Value, started: bool, entries: &mut Vec<TranscriptEntry>) {
    match item["type"].as_str() {
        Some("command_execution") if started => {
            let on = unwrapped(item["command"].as_str().unwrap_or_default()).to_owned();
            entries.push(TranscriptEntry::Tool { name: "shell".to_owned(), on });
        }
        Some("command_execution") => result(&item["aggregated_output"], entries),
        Some("mcp_tool_call") if started => entries.push(tool(&item["tool"], &item["arguments"])),
        Some("file_change") if !started => {
            for change in item["changes"].as_array().into_iter().flatten() {
                entries.push(tool(&"edit".into(), change));
            }
        }
        Some("agent_message") if !started => message(&item["text"], entries),
        Some("error") if !started => problem(&item["message"], &Value::Null, entries),
        _ => {}
    }
}

/// A command without the shell and the quotes that Codex puts around it.
fn unwrapped(command: &str) -> &str {
    let inner = ["/bin/bash -c ", "/bin/bash -lc ", "bash -lc "].iter().find_map(|shell| command.strip_prefix(shell));
    let inner = inner.unwrap_or(command);
    let quoted = |quote: char| inner.strip_prefix(quote)?.strip_suffix(quote);
    quoted('\'').or(quoted('"')).unwrap_or(inner)
}

fn message(text: &Value, entries: &mut Vec<TranscriptEntry>) {
    if let Some(text) = text.as_str().map(str::trim).filter(|text| !text.is_empty()) {
        entries.push(TranscriptEntry::Message(text.to_owned()));
    }
}

fn problem(text: &Value, or: &Value, entries: &mut Vec<TranscriptEntry>) {
    if let Some(text) = text.as_str().or(or.as_str()) {
        entries.push(TranscriptEntry::Problem(text.trim().to_owned()));
    }
}

fn tool(name: &Value, input: &Value) -> TranscriptEntry {
    let on = TELLING.iter().find_map(|&name| match &input[name] {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    });
    TranscriptEntry::Tool { name: name.as_str().unwrap_or("tool").to_owned(), on: on.unwrap_or_default() }
}

/// The answer of a tool: a text, or blocks of text.
fn result(output: &Value, entries: &mut Vec<TranscriptEntry>) {
    let text = match output {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => return,
    };
    if !text.trim().is_empty() {
        entries.push(TranscriptEntry::Result(text.trim_end().to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        entries(text).unwrap().iter().map(TranscriptEntry::line).collect()
    }

    #[test]
    fn each_stream_reads_as_a_conversation() {
        let claude = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"I look.\n"},{"type":"tool_use","name":"Bash","input":{"command":"ls -l","description":"d"}}]}}"#;
        assert_eq!(lines(claude), ["I look.", "Bash: ls -l"]);
        let answered = r#"{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"\na.txt\nb.txt"}]}]}}"#;
        assert_eq!(lines(answered), ["→ a.txt"]);
        let codex = r#"{"type":"item.started","item":{"type":"command_execution","command":"/bin/bash -c 'make'","aggregated_output":""}}"#;
        assert_eq!(lines(codex), ["shell: make"]);
        let changed = r#"{"type":"item.completed","item":{"type":"file_change","changes":[{"path":"src/a.rs","kind":"update"}]}}"#;
        assert_eq!(lines(changed), ["edit: src/a.rs"]);
        let gemini =
            r#"{"type":"tool_use","tool_name":"run_shell_command","tool_id":"1","parameters":{"command":"make"}}"#;
        assert_eq!(lines(gemini), ["run_shell_command: make"]);
        assert_eq!(lines(r#"{"type":"message","role":"assistant","content":"Done.","delta":true}"#), ["Done."]);
        let opencode = r#"{"type":"tool_use","part":{"tool":"bash","state":{"input":{"command":"make"}}}}"#;
        assert_eq!(lines(opencode), ["bash: make"]);
        let ended = r#"{"type":"tool_use","part":{"tool":"bash","state":{"status":"completed","input":{"command":"make"},"output":"ok\n"}}}"#;
        assert_eq!(lines(ended), ["bash: make", "→ ok"]);
        let failed = r#"{"type":"tool_use","part":{"tool":"edit","state":{"status":"error","input":{},"error":"no such file"}}}"#;
        assert_eq!(lines(failed), ["edit", "error: no such file"]);
    }

    #[test]
    fn what_nobody_reads_is_empty_and_what_is_unknown_is_told_as_it_is() {
        for quiet in [r#"{"type":"system","subtype":"init"}"#, r#"{"type":"turn.started"}"#, r#"{"type":"assistant"}"#]
        {
            assert_eq!(entries(quiet), Some(Vec::new()), "{quiet}");
        }
        for unknown in ["plain text", "{broken", r#"{"a":1}"#, r#"{"type":"of the future"}"#, "[1]"] {
            assert_eq!(entries(unknown), None, "{unknown}");
        }
        for hidden in [
            r#"{"type":"error","error":{"name":"APIError","data":{"message":"quota exceeded"}}}"#,
            r#"{"type":"result","is_error":true,"subtype":"error_max_turns","errors":["x"]}"#,
            r#"{"type":"item.completed","item":{"type":"command_execution","status":"failed","exit_code":1,"aggregated_output":""}}"#,
            r#"{"type":"system","level":"fatal","text":"no disk"}"#,
        ] {
            assert_eq!(entries(hidden), None, "{hidden}");
        }
        assert_eq!(lines(r#"{"type":"result","is_error":true,"result":"no credit"}"#), ["error: no credit"]);
        assert_eq!(lines(r#"{"type":"result","status":"error","error":{"message":"bad key"}}"#), ["error: bad key"]);
    }
}
