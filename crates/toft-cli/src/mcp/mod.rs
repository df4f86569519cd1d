//! toft over the Model Context Protocol: each tool is a command, with the same answers, refusals and next steps.
//!
//! `tools.rs` has the table of tools: the command that each is, and which of its arguments a client sees. Nothing is
//! kept between two calls.

mod tools;

use std::{process::ExitCode, time::Duration};

use serde_json::{Map, Value, json};
use toft_server::mcp::{Answer, ToolHost, ToolSpec, Waited, serve as serve_desk};

use crate::{
    args::{Cli, Global},
    commands,
    exit::Failure,
    render::Output,
};

/// A longer answer is cut: it would fill a model's context.
const LONGEST: usize = 48 << 10;

const INSTRUCTIONS: &str = "Work here is shared by several agents. Call prime first: it says who you are, what you hold, \
what was said to you and what is ready. Claim before you work, save after each step, finish with evidence. Pass cwd (the \
directory you work in) and agent (your name from prime) with every call.";

/// Serves until the client is gone.
pub(crate) fn serve() -> Result<ExitCode, Failure> {
    serve_desk(Commands).map_err(|error| Failure::stopped(format!("the client cannot be served: {error}"), ""))?;
    Ok(ExitCode::SUCCESS)
}

/// Answers with commands.
struct Commands;

impl ToolHost for Commands {
    fn tools(&self) -> Vec<ToolSpec> {
        tools::TOOLS.iter().map(tools::Tool::card).collect()
    }

    fn call(&self, name: &str, arguments: &Map<String, Value>) -> Answer {
        let Some(tool) = tools::TOOLS.iter().find(|tool| tool.name == name) else {
            return refused(&Failure::invalid(format!("there is no tool `{name}`"), ""));
        };
        match tool.command(arguments).and_then(|command| Ok((everywhere(arguments)?, command))) {
            Ok((global, command)) => answer(&Cli { global, command }),
            Err(failure) => refused(&failure),
        }
    }

    fn waits(&self, name: &str, arguments: &Map<String, Value>) -> Option<Duration> {
        let wait = arguments.get(tools::WAIT_ARGUMENT).filter(|_| name == "claim").and_then(Value::as_u64);
        wait.filter(|wait| *wait > 0).map(|wait| Duration::from_secs(wait.min(tools::MAX_WAIT_SECONDS)))
    }

    fn call_waiting(&self, name: &str, arguments: &Map<String, Value>, wait: Duration) -> Waited {
        let mut arguments = arguments.clone();
        arguments.insert(tools::WAIT_ARGUMENT.to_owned(), wait.as_secs().into());
        let answer = self.call(name, &arguments);
        match answer.data["error"]["code"] == "nothing_ready" {
            true => Waited::NotYet(answer),
            false => Waited::Answered(answer),
        }
    }

    fn resources(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        vec![
            ("toft://inbox", "inbox", "Messages for whoever runs this server, left unread"),
            ("toft://ready", "ready", "What can start now"),
            ("toft://issue/{id}", "issue", "One issue, whole"),
            ("toft://flow/{id}", "workflow", "One workflow with its tasks"),
        ]
    }

    fn read(&self, address: &str) -> Option<Answer> {
        Some(answer(&Cli { global: Global::default(), command: tools::resource(address)? }))
    }

    fn instructions(&self) -> &'static str {
        INSTRUCTIONS
    }
}

/// Who calls, if they do not say: the session of the client, or the client itself.
fn who(dir: Option<&str>) -> Option<String> {
    if std::env::var("TOFT_AGENT").is_ok_and(|name| !name.is_empty()) {
        return None;
    }
    let config = toft::Config { dir: dir.map(Into::into), ..toft::Config::default() };
    let located = toft::locate(&config).ok().filter(|located| !located.store.missing())?;
    toft::Toft::at(located).ok()?.hooks().name_of_process(tools::client()?)
}

/// What every tool takes: where the client works, and as whom.
fn everywhere(arguments: &Map<String, Value>) -> Result<Global, Failure> {
    let text = |name: &str| match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
        Some(other) => Err(Failure::invalid(format!("`{name}` is not a text: {other}"), "")),
    };
    let dir = text("cwd")?;
    let agent = text("agent")?.or_else(|| who(dir.as_deref()));
    Ok(Global { dir: dir.map(Into::into), agent, ..Global::default() })
}

/// Runs a command and keeps what it would have printed.
fn answer(cli: &Cli) -> Answer {
    let output = Output::keeping();
    match commands::run_and_close(cli, &output) {
        Ok(_) => {
            let kept = output.kept();
            let mut text = kept.text;
            if let Some((cut, _)) = text.char_indices().find(|(at, _)| *at >= LONGEST) {
                text.truncate(cut);
                text.push_str("\n… cut here; ask for less of it");
            }
            let data = match kept.data.to_string().len() > 2 * LONGEST {
                true => json!({ "kind": kept.kind, "cut": true }),
                false => json!({ "kind": kept.kind, "data": kept.data }),
            };
            Answer { text, data, refused: false }
        }
        Err(failure) => refused(&failure),
    }
}

fn refused(failure: &Failure) -> Answer {
    let help = failure.help.as_ref().map(|help| format!("\nhelp: {help}")).unwrap_or_default();
    let text = format!("error[{}]: {}{help}", failure.code, failure.message);
    Answer { text, data: json!({ "error": failure.json() }), refused: true }
}
