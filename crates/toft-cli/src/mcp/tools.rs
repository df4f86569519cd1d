//! The tools. Each is a row: a command, and which of its arguments a model sees. Schemas and descriptions come from the
//! arguments of the command line, and a call is read as a command line is. Models read all of it, so every word counts.

use std::{any::TypeId, sync::LazyLock, time::Duration};

use clap::{Arg, ArgAction, CommandFactory as _, Parser as _};
use serde_json::{Map, Value, json};
use toft_server::mcp::ToolSpec;

use crate::{
    args::{Cli, Command},
    exit::Failure,
};

/// The argument that says how long a claim waits.
pub(super) const WAIT_ARGUMENT: &str = "wait";
/// Seconds that a call may wait.
pub(super) const MAX_WAIT_SECONDS: u64 = 24 * 3600;
/// Arguments that every tool takes.
const COMMON_ARGUMENTS: [&str; 2] = ["cwd", "agent"];

/// Words of help that are for people who type: a tool takes a list, and no standard input.
const TYPED_ONLY: [&str; 5] = [
    "; repeatable",
    ", repeatable",
    "; repeat to require several",
    "; repeat for several",
    "; - reads several issues from standard input",
];

/// What a tool may do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolEffect {
    Reads,
    Writes,
    Deletes,
}

/// An argument that selects words of the command line: of the command itself, a flag, or a word behind the id.
struct ToolChoice {
    name: &'static str,
    /// Values, each with its words.
    values: &'static [(&'static str, &'static str)],
}

/// A tool: a command, and its arguments that a model sees.
pub(super) struct Tool {
    pub(super) name: &'static str,
    about: &'static str,
    effect: ToolEffect,
    /// Empty if the choice selects it.
    command: &'static str,
    choice: Option<ToolChoice>,
    /// Arguments: `NAME`, or `NAME=FLAG` where the command line has another name. `id` is what the command is about.
    shown: &'static [&'static str],
}

use ToolEffect::{Deletes, Reads, Writes};

#[rustfmt::skip]
pub(super) const TOOLS: [Tool; 13] = [
    tool("prime", "Who you are, what you hold, messages, ready work, the rules. Call first.", Writes, "prime", &[]),
    tool("ready", "What can start now, best first", Reads, "ready", &["label", "limit"]),
    tool("claim", "Take work under a lease: the best ready, or id", Writes, "claim", &["id", "label", "ws", WAIT_ARGUMENT]),
    tool("show", "An issue, task, workflow or agent; @ is what you hold", Reads, "show", &["id", "context", "why"]),
    tool("search", "Find issues", Reads, "list", &["text=search", "label", "status", "all"]),
    tool("add", "Write work down as an issue", Writes, "add",
        &["title", "body", "type", "priority", "label", "needs", "parent"]),
    tool("edit", "Change an issue", Writes, "edit",
        &["id", "title", "body", "priority", "label", "needs", "comment", "close=tool-close",
            "reopen=tool-reopen"]),
    tool("save", "Checkpoint what you hold, and renew the lease", Writes, "save", &["message", "id", "fence"]),
    tool("finish",
        "End your hold. Done needs evidence (a commit) or no_change (a reason); waiting asks a person the message",
        Writes, "finish", &["id", "message", "evidence", "no_change", "choices=choice", "fence"])
        .choosing("outcome", &[("done", "done"), ("failed", "failed"), ("release", "release"), ("handoff", "handoff"),
            ("waiting", "waiting")]),
    tool("review", "Finished work and its diff; approve or return it if you review it", Writes, "review",
        &["id", "message", "at"]).choosing("verdict", &[("approve", "--approve"), ("return", "--return")]),
    tool("message", "Send to an agent, human, role:worker, or a task's holder; or read your inbox", Writes, "",
        &["to", "text", "reply_to", "ack"]).choosing("action", &[("send", "agent send"), ("inbox", "agent inbox")]),
    tool("flow", "Workflows of tasks; id is the title of a new one", Writes, "", &["id", "task"])
        .choosing("action", &[("list", "flow list"), ("show", "flow show"), ("new", "flow new"),
            ("pause", "flow pause"), ("resume", "flow resume"), ("retry", "retry")]),
    tool("workspace", "Directories for work; rm keeps a copy of what is only there", Deletes, "", &["id"])
        .choosing("action", &[("list", "ws list"), ("create", "ws create"), ("show", "ws list"), ("path", "ws path"),
            ("rescue", "ws rescue"), ("rm", "ws rm")]),
];

const fn tool(
    name: &'static str,
    about: &'static str,
    effect: ToolEffect,
    command: &'static str,
    shown: &'static [&'static str],
) -> Tool {
    Tool { name, about, effect, command, choice: None, shown }
}

impl Tool {
    const fn choosing(self, name: &'static str, values: &'static [(&'static str, &'static str)]) -> Self {
        Self { choice: Some(ToolChoice { name, values }), ..self }
    }

    pub(super) fn card(&self) -> ToolSpec {
        ToolSpec {
            name: self.name,
            about: self.about,
            schema: self.schema(),
            read_only: self.effect == Reads,
            destructive: self.effect == Deletes,
        }
    }

    /// Its arguments, as a model reads them.
    fn schema(&self) -> Map<String, Value> {
        let commands: Vec<&clap::Command> = match &self.choice {
            Some(choice) if self.command.is_empty() => {
                choice.values.iter().map(|(_, words)| find_command(words)).collect()
            }
            Some(_) | None => vec![find_command(self.command)],
        };
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for shown in self.shown {
            let name = argument_name(shown);
            let Some(argument) = commands.iter().find_map(|command| find_argument(command, shown)) else { continue };
            properties.insert(name.to_owned(), argument_schema(argument));
            if argument.is_required_set() && commands.len() == 1 {
                required.push(name);
            }
        }
        if let Some(ToolChoice { name, values }) = &self.choice {
            let words: Vec<_> = values.iter().map(|(value, _)| *value).collect();
            properties.insert((*name).to_owned(), json!({ "type": "string", "enum": words }));
            required.extend(self.command.is_empty().then_some(*name));
        }
        for name in COMMON_ARGUMENTS {
            properties.insert(name.to_owned(), json!({ "type": "string" }));
        }
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), properties.into());
        if !required.is_empty() {
            schema.insert("required".to_owned(), required.into());
        }
        schema
    }

    /// The command that a call stands for. What is null was left out.
    pub(super) fn command(&self, given: &Map<String, Value>) -> Result<Command, Failure> {
        let schema = self.schema();
        let known: Vec<&String> = schema["properties"].as_object().into_iter().flat_map(Map::keys).collect();
        if let Some(name) = given.keys().find(|name| !known.contains(name)) {
            let known: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
            let help = format!("use {}", known.join(", "));
            return Err(Failure::invalid(format!("{} takes no `{name}`", self.name), &help));
        }
        let mut given = given.clone();
        given.retain(|name, value| !value.is_null() && !COMMON_ARGUMENTS.contains(&name.as_str()));
        // A dash alone would mean standard input, which belongs to the protocol.
        if let Some((name, _)) = given.iter().find(|(_, value)| **value == "-") {
            return Err(Failure::invalid(format!("`{name}` is not a text: -"), ""));
        }
        read_command(&self.words(&given)?)
    }

    /// The command line of a call.
    fn words(&self, given: &Map<String, Value>) -> Result<Vec<String>, Failure> {
        let chosen = self.chosen_words(given)?;
        let command = if self.command.is_empty() { chosen.unwrap_or_default() } else { self.command };
        let parser = find_command(command);
        let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let mut behind = vec!["--".to_owned()];
        for shown in self.shown {
            let name = argument_name(shown);
            let (Some(value), Some(argument)) = (given.get(name), find_argument(parser, shown)) else { continue };
            let values = argument_words(argument, value)
                .ok_or_else(|| Failure::invalid(format!("{}: `{name}` cannot be {value}", self.name), ""))?;
            match argument.get_long().filter(|_| !argument.is_positional()) {
                None => behind.extend(values),
                Some(flag) if matches!(argument.get_action(), ArgAction::SetTrue) => {
                    words.extend(values.iter().map(|_| format!("--{flag}")));
                }
                Some(flag) if takes_pairs(argument) => {
                    words.extend(values.chunks(2).flat_map(|pair| [&[format!("--{flag}")][..], pair].concat()));
                }
                Some(flag) => words.extend(values.iter().map(|value| format!("--{flag}={value}"))),
            }
        }
        match chosen.filter(|_| !self.command.is_empty()) {
            Some(flag) if flag.starts_with("--") => words.push(flag.to_owned()),
            Some(word) => behind.push(word.to_owned()),
            None => {}
        }
        Ok([words, behind].concat())
    }

    fn chosen_words(&self, given: &Map<String, Value>) -> Result<Option<&'static str>, Failure> {
        let Some(ToolChoice { name, values }) = &self.choice else { return Ok(None) };
        let words = match given.get(*name) {
            Some(chosen) => values.iter().find(|(value, _)| chosen == value).map(|(_, words)| Some(*words)),
            None => (!self.command.is_empty()).then_some(None),
        };
        words.ok_or_else(|| {
            let known: Vec<&str> = values.iter().map(|(value, _)| *value).collect();
            Failure::invalid(format!("{} needs `{name}`: {}", self.name, known.join(", ")), "")
        })
    }
}

/// Reads a command line. A claim follows the life of the client.
fn read_command(words: &[String]) -> Result<Command, Failure> {
    let words = ["toft"].into_iter().chain(words.iter().map(String::as_str));
    let mut command = Cli::try_parse_from(words).map_err(|error| Failure::usage(&error, None))?.command;
    if let Command::Claim(claim) = &mut command {
        claim.pid = client().or(claim.pid);
    }
    Ok(command)
}

/// Finds the command of these words, with its arguments.
fn find_command(words: &str) -> &'static clap::Command {
    static COMMAND_LINE: LazyLock<clap::Command> = LazyLock::new(|| {
        let mut command = Cli::command();
        command.build();
        command
    });
    words.split(' ').fold(&*COMMAND_LINE, |command, word| command.find_subcommand(word).unwrap_or(command))
}

fn argument_name(shown: &'static str) -> &'static str {
    shown.split_once('=').map_or(shown, |(name, _)| name)
}

/// The argument that a tool shows: by its flag, else by its name; `id` is the first word of the command.
fn find_argument<'c>(command: &'c clap::Command, shown: &str) -> Option<&'c Arg> {
    let flag = shown.split_once('=').map_or(shown, |(_, flag)| flag).replace('_', "-");
    let is_named = |argument: &&Arg| match argument.get_long() {
        Some(long) => long == flag,
        None => *argument.get_id() == *flag,
    };
    let first_word = || command.get_positionals().next().filter(|_| flag == "id");
    command.get_arguments().find(is_named).or_else(first_word)
}

/// True of a flag each use of which has two values.
fn takes_pairs(argument: &Arg) -> bool {
    argument.get_num_args().is_some_and(|count| count.min_values() == 2)
}

fn is_list(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append) && !argument.is_positional()
}

fn is_span(argument: &Arg) -> bool {
    argument.get_value_parser().type_id() == TypeId::of::<Duration>()
}

fn is_number(argument: &Arg) -> bool {
    let kind = argument.get_value_parser().type_id();
    is_span(argument) || [TypeId::of::<usize>(), TypeId::of::<u8>()].iter().any(|number| kind == *number)
}

fn argument_schema(argument: &Arg) -> Value {
    let text = json!({ "type": "string" });
    let mut schema = match argument.get_action() {
        ArgAction::SetTrue => json!({ "type": "boolean" }),
        _ if takes_pairs(argument) => {
            let pair = json!({ "type": "array", "items": text, "minItems": 2, "maxItems": 2 });
            json!({ "type": "array", "items": pair })
        }
        _ if is_list(argument) => json!({ "type": "array", "items": text }),
        _ if is_number(argument) => json!({ "type": "integer" }),
        _ => text,
    };
    if let Some(help) = argument.get_help() {
        let help = TYPED_ONLY.iter().fold(help.to_string(), |help, words| help.replace(words, ""));
        schema["description"] = if is_span(argument) { format!("{help}, in seconds").into() } else { help.into() };
    }
    schema
}

/// What stands on the command line for a value; nothing if the argument cannot be that.
fn argument_words(argument: &Arg, value: &Value) -> Option<Vec<String>> {
    match (value, argument.get_action()) {
        (Value::Bool(given), ArgAction::SetTrue) => Some(given.then(String::new).into_iter().collect()),
        (_, ArgAction::SetTrue) => None,
        (Value::Number(number), _) if is_span(argument) => {
            Some(vec![format!("{}s", number.as_u64()?.min(MAX_WAIT_SECONDS))])
        }
        (Value::Number(number), _) if is_number(argument) => Some(vec![number.to_string()]),
        (Value::String(text), _) if !takes_pairs(argument) => Some(vec![text.clone()]),
        // One of many is often given without a list around it.
        (Value::Array(pairs), _) if takes_pairs(argument) => {
            let pairs = pairs.iter().map(|pair| pair.as_array().filter(|pair| pair.len() == 2));
            let texts = pairs.collect::<Option<Vec<_>>>()?.into_iter().flatten();
            texts.map(|text| text.as_str().map(str::to_owned)).collect()
        }
        (Value::Array(texts), _) if is_list(argument) => {
            texts.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        }
        _ => None,
    }
}

/// The command that reads a resource, if it is one.
pub(super) fn resource(address: &str) -> Option<Command> {
    let words: &[&str] = match address.strip_prefix("toft://")?.split_once('/') {
        None if address == "toft://inbox" => &["agent", "inbox", "--peek"],
        None if address == "toft://ready" => &["ready"],
        Some(("issue", id)) if !id.is_empty() => &["show", "--", id],
        Some(("flow", id)) if !id.is_empty() => &["flow", "show", "--", id],
        _ => return None,
    };
    read_command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).ok()
}

/// The client, whose life a lease follows: it started this server.
pub(super) fn client() -> Option<u32> {
    Some(std::os::unix::process::parent_id()).filter(|pid| *pid > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_argument_is_one_of_its_command() {
        for tool in &TOOLS {
            let properties = tool.schema()["properties"].clone();
            let choices = usize::from(tool.choice.is_some());
            let count = tool.shown.len() + choices + COMMON_ARGUMENTS.len();
            assert_eq!(properties.as_object().map(Map::len), Some(count), "{}: {properties}", tool.name);
        }
    }
}
