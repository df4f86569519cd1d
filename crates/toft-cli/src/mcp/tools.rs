//! The tools: what each takes, and the command it stands for. Models read all of it, so every word counts.

use serde_json::{Map, Value, json};
use toft_server::mcp::ToolSpec;

use crate::exit::Failure;

/// One argument: its name, what it is, and how it is said to the command.
pub(super) struct Argument {
    name: &'static str,
    kind: Kind,
    says: Says,
    /// For models; empty if the name says it.
    about: &'static str,
}

enum Kind {
    Text,
    Texts,
    Number,
    Yes,
    /// One of these words.
    Word(&'static str),
}

enum Says {
    /// A flag with the value; for yes and no, the flag alone.
    Flag(&'static str),
    /// A word of its own, in this order.
    Place,
    /// Which subcommand.
    Verb,
}

/// A tool.
pub(super) struct Tool {
    pub(super) name: &'static str,
    about: &'static str,
    /// The command, and what is always said with it.
    command: &'static [&'static str],
    arguments: &'static [Argument],
    /// Arguments that cannot be left out.
    required: &'static [&'static str],
    read_only: bool,
    destructive: bool,
}

const fn arg(name: &'static str, kind: Kind, says: Says, about: &'static str) -> Argument {
    Argument { name, kind, says, about }
}

const fn tool(
    name: &'static str,
    about: &'static str,
    command: &'static [&'static str],
    arguments: &'static [Argument],
) -> Tool {
    Tool { name, about, command, arguments, required: &[], read_only: false, destructive: false }
}

use Kind::{Number, Text, Texts, Word, Yes};
use Says::{Flag, Place, Verb};

pub(super) const TOOLS: [Tool; 12] = [
    tool("prime", "Who you are, what you hold, messages, ready work, the rules. Call first.", &["prime"], &[]),
    Tool {
        read_only: true,
        ..tool(
            "ready",
            "What can start now, best first",
            &["ready"],
            &[arg("label", Texts, Flag("--label"), ""), arg("limit", Number, Flag("--limit"), "")],
        )
    },
    tool(
        "claim",
        "Take work under a lease: the best ready, or id",
        &["claim"],
        &[
            arg("id", Text, Place, ""),
            arg("label", Texts, Flag("--label"), ""),
            arg("ws", Yes, Flag("--ws"), "with a directory of its own to work in"),
        ],
    ),
    Tool {
        read_only: true,
        ..tool(
            "show",
            "An issue, task, workflow or agent; @ is what you hold",
            &["show"],
            &[
                arg("id", Text, Place, ""),
                arg("context", Yes, Flag("--context"), "all that whoever takes it over must know"),
                arg("why", Yes, Flag("--why"), "why it cannot start"),
            ],
        )
    },
    Tool {
        read_only: true,
        ..tool(
            "search",
            "Find issues",
            &["list"],
            &[
                arg("text", Text, Flag("--search"), ""),
                arg("label", Texts, Flag("--label"), ""),
                arg("status", Text, Flag("--status"), ""),
                arg("all", Yes, Flag("--all"), "closed ones too"),
            ],
        )
    },
    Tool {
        required: &["title"],
        ..tool(
            "add",
            "Write work down as an issue",
            &["add"],
            &[
                arg("title", Text, Place, ""),
                arg("body", Text, Flag("--body"), ""),
                arg("type", Text, Flag("--type"), "task, bug, feature, epic"),
                arg("priority", Number, Flag("--priority"), "0 most urgent to 4"),
                arg("label", Texts, Flag("--label"), ""),
                arg("needs", Texts, Flag("--needs"), "ids it waits for"),
                arg("parent", Text, Flag("--parent"), ""),
            ],
        )
    },
    Tool {
        required: &["id"],
        ..tool(
            "edit",
            "Change an issue",
            &["edit"],
            &[
                arg("id", Text, Place, ""),
                arg("title", Text, Flag("--title"), ""),
                arg("body", Text, Flag("--body"), ""),
                arg("priority", Number, Flag("--priority"), ""),
                arg("label", Texts, Flag("--label"), ""),
                arg("needs", Texts, Flag("--needs"), ""),
                arg("comment", Text, Flag("--comment"), ""),
                arg("close", Text, Flag("--close"), "why it is over"),
                arg("reopen", Yes, Flag("--reopen"), ""),
            ],
        )
    },
    tool(
        "save",
        "Checkpoint what you hold, and renew the lease",
        &["save"],
        &[
            arg("message", Text, Flag("--message"), "done so far, what is next"),
            arg("id", Text, Place, ""),
            arg("fence", Text, Flag("--fence"), ""),
        ],
    ),
    tool(
        "finish",
        "End your hold. Done needs evidence (a commit) or no_change (a reason); waiting asks a person the message",
        &["finish"],
        &[
            arg("id", Text, Place, ""),
            arg("outcome", Word("done|failed|release|handoff|waiting"), Place, ""),
            arg("message", Text, Flag("--message"), ""),
            arg("evidence", Text, Flag("--evidence"), ""),
            arg("no_change", Text, Flag("--no-change"), ""),
            arg("fence", Text, Flag("--fence"), ""),
        ],
    ),
    Tool {
        required: &["action"],
        ..tool(
            "message",
            "Send to an agent, human, role:worker, or a task's holder; or read your inbox",
            &["agent"],
            &[
                arg("action", Word("send|inbox"), Verb, ""),
                arg("to", Text, Place, ""),
                arg("text", Text, Place, ""),
                arg("reply_to", Text, Flag("--reply-to"), ""),
                arg("ack", Text, Flag("--ack"), "message to confirm"),
            ],
        )
    },
    Tool {
        required: &["action"],
        ..tool(
            "flow",
            "Workflows of tasks",
            &["flow"],
            &[
                arg("action", Word("list|show|new|start|pause|resume|retry"), Verb, ""),
                arg("id", Text, Place, "or the title of a new one"),
                arg("task", Texts, Flag("--task"), "names; they may run at the same time"),
            ],
        )
    },
    Tool {
        destructive: true,
        required: &["action"],
        ..tool(
            "workspace",
            "Directories for work; rm keeps a copy of what is only there",
            &["ws"],
            &[arg("action", Word("list|create|show|path|rescue|rm"), Verb, ""), arg("id", Text, Place, "")],
        )
    },
];

impl Argument {
    fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Text => json!({ "type": "string" }),
            Texts => json!({ "type": "array", "items": { "type": "string" } }),
            Number => json!({ "type": "integer" }),
            Yes => json!({ "type": "boolean" }),
            Word(words) => json!({ "enum": words.split('|').collect::<Vec<_>>() }),
        };
        if !self.about.is_empty() {
            schema["description"] = self.about.into();
        }
        schema
    }

    /// The value as words; none if it was left out.
    fn values(&self, given: &Value) -> Result<Vec<String>, Failure> {
        let wrong = |wanted: &str| Failure::invalid(format!("`{}` is not {wanted}: {given}", self.name), "");
        // A dash alone would mean standard input, which belongs to the protocol.
        let text = |value: &Value| value.as_str().filter(|text| *text != "-").map(str::to_owned);
        match (&self.kind, given) {
            (_, Value::Null) => Ok(Vec::new()),
            (Text, value) => Ok(vec![text(value).ok_or_else(|| wrong("a text"))?]),
            (Texts, Value::Array(all)) => {
                all.iter().map(|value| text(value).ok_or_else(|| wrong("a list of texts"))).collect()
            }
            // One of many is often given without a list around it.
            (Texts, value) => Ok(vec![text(value).ok_or_else(|| wrong("a list of texts"))?]),
            (Number, value) => Ok(vec![value.as_u64().ok_or_else(|| wrong("a number"))?.to_string()]),
            (Yes, Value::Bool(true)) => Ok(vec![String::new()]),
            (Yes, Value::Bool(false)) => Ok(Vec::new()),
            (Yes, _) => Err(wrong("true or false")),
            (Word(words), value) => match value.as_str().filter(|word| words.split('|').any(|known| known == *word)) {
                Some(word) => Ok(vec![word.to_owned()]),
                None => Err(wrong(&format!("one of {}", words.replace('|', ", ")))),
            },
        }
    }
}

impl Tool {
    pub(super) fn card(&self) -> ToolSpec {
        let mut properties = Map::new();
        for argument in self.arguments {
            properties.insert(argument.name.to_owned(), argument.schema());
        }
        for everywhere in ["cwd", "agent"] {
            properties.insert(everywhere.to_owned(), json!({ "type": "string" }));
        }
        let mut schema = Map::new();
        schema.insert("type".to_owned(), "object".into());
        schema.insert("properties".to_owned(), Value::Object(properties));
        if !self.required.is_empty() {
            schema.insert("required".to_owned(), json!(self.required));
        }
        ToolSpec {
            name: self.name,
            about: self.about,
            schema,
            read_only: self.read_only,
            destructive: self.destructive,
        }
    }

    /// The command line that a call stands for. What a caller wrote is never taken for a flag.
    pub(super) fn words(
        &self,
        given: &Map<String, Value>,
        who: impl Fn(Option<&str>) -> Option<String>,
    ) -> Result<Vec<String>, Failure> {
        let known = |name: &String| {
            ["cwd", "agent"].contains(&name.as_str()) || self.arguments.iter().any(|argument| argument.name == name)
        };
        if let Some(name) = given.keys().find(|name| !known(name)) {
            let names: Vec<_> = self.arguments.iter().map(|argument| argument.name).chain(["cwd", "agent"]).collect();
            return Err(Failure::invalid(
                format!("{} takes no `{name}`", self.name),
                &format!("use {}", names.join(", ")),
            ));
        }
        if let Some(name) = self.required.iter().find(|name| given.get(**name).is_none_or(Value::is_null)) {
            return Err(Failure::invalid(format!("{} needs `{name}`", self.name), ""));
        }
        let everywhere = |name: &str| match given.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(other) => Err(Failure::invalid(format!("`{name}` is not a text: {other}"), "")),
        };
        let (mut words, mut verbs, mut flags, mut places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let dir = everywhere("cwd")?;
        let agent = everywhere("agent")?.or_else(|| who(dir.as_deref()));
        if let Some(dir) = dir {
            words.extend(["-C".to_owned(), dir]);
        }
        if let Some(agent) = agent {
            words.push(format!("--as={agent}"));
        }
        words.extend(self.command.iter().map(|&word| word.to_owned()));
        for argument in self.arguments {
            for value in argument.values(given.get(argument.name).unwrap_or(&Value::Null))? {
                match (&argument.says, &argument.kind) {
                    (Flag(flag), Yes) => flags.push((*flag).to_owned()),
                    (Flag(flag), _) => flags.push(format!("{flag}={value}")),
                    (Place, _) => places.push(value),
                    (Verb, _) => verbs.push(value),
                }
            }
        }
        if self.name == "claim" {
            flags.extend(client().map(|pid| format!("--pid={pid}")));
        }
        words.extend(verbs);
        words.extend(flags);
        if !places.is_empty() {
            words.push("--".to_owned());
            words.extend(places);
        }
        Ok(words)
    }
}

/// The client, whose life a lease follows: it started this server.
pub(super) fn client() -> Option<u32> {
    Some(std::os::unix::process::parent_id()).filter(|pid| *pid > 1)
}
