//! A model on loopback that real clients talk to: it speaks the streaming protocols of Anthropic, OpenAI (responses) and
//! Gemini, and follows a script.
//!
//! The step of the script is the number of tool results in the conversation, so a client may repeat a request, and a
//! conversation that is resumed goes on where it stopped.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

/// What the model does at one step.
#[derive(Clone, Debug)]
pub enum Step {
    /// It has the client run a shell command.
    Shell(String),
    /// The same, with a command that follows from what the client has sent.
    Told(fn(&str) -> String),
    /// It has the client call a tool of toft's MCP server.
    Tool(&'static str, Value),
    /// It ends its turn with a message.
    Say(String),
    /// The provider refuses: status, and body.
    Refuse(u16, Value),
}

impl Step {
    /// A shell command.
    pub fn shell(command: &str) -> Self {
        Self::Shell(command.to_owned())
    }

    /// A last message.
    pub fn say(text: &str) -> Self {
        Self::Say(text.to_owned())
    }
}

/// A model server. It serves until the test ends.
pub struct Model {
    port: u16,
    requests: Arc<Mutex<Vec<Value>>>,
}

/// Which provider's protocol a request speaks.
#[derive(Clone, Copy)]
enum Protocol {
    Anthropic,
    OpenAi,
    Gemini,
}

impl Model {
    /// Starts a model that follows a script; after its end, the last step is repeated.
    pub fn start(script: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::<Mutex<Vec<Value>>>::default();
        let (script, seen) = (Arc::new(script), Arc::clone(&requests));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                // A client that hangs up is no failure of the model.
                thread::spawn(move || drop(serve(stream, &script, &seen)));
            }
        });
        Self { port, requests }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The conversations that clients sent, oldest first.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap().clone()
    }

    /// Everything that clients sent, as one text.
    pub fn heard(&self) -> String {
        self.requests().iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
    }
}

fn serve(stream: TcpStream, script: &[Step], seen: &Mutex<Vec<Value>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut out = stream;
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let protocol = match path.as_str() {
        path if path.contains("count_tokens") => return answer(&mut out, 200, &json!({ "input_tokens": 10 })),
        path if path.contains("countTokens") => return answer(&mut out, 200, &json!({ "totalTokens": 10 })),
        path if path.starts_with("/v1/messages") => Protocol::Anthropic,
        path if path.contains("generateContent") || path.contains("GenerateContent") => Protocol::Gemini,
        path if path.ends_with("/responses") => Protocol::OpenAi,
        _ => return answer(&mut out, 200, &json!({ "data": [], "models": [] })),
    };
    // Side questions, as for a title, come without tools.
    let Some(tools) = tools(protocol, &asked).filter(|tools| !tools.is_empty()) else {
        return spoken(&mut out, protocol, &path, &asked, &Step::say("{}"), &[]);
    };
    seen.lock().unwrap().push(asked.clone());
    let step = results(protocol, &asked).min(script.len() - 1);
    let step = match &script[step] {
        Step::Told(command) => Step::Shell(command(&asked.to_string())),
        step => step.clone(),
    };
    spoken(&mut out, protocol, &path, &asked, &step, &tools)
}

/// The names of the tools that a client offers.
fn tools(protocol: Protocol, asked: &Value) -> Option<Vec<String>> {
    let name = |tool: &Value| tool["name"].as_str().or(tool["type"].as_str()).map(str::to_owned);
    let tools = asked["tools"].as_array()?;
    Some(match protocol {
        Protocol::Gemini => {
            let declared = tools.iter().filter_map(|tool| tool["functionDeclarations"].as_array());
            declared.flatten().filter_map(name).collect()
        }
        Protocol::Anthropic | Protocol::OpenAi => tools.iter().filter_map(name).collect(),
    })
}

/// The number of tool results in a conversation.
fn results(protocol: Protocol, asked: &Value) -> usize {
    let (messages, parts) = match protocol {
        Protocol::Anthropic => ("messages", "content"),
        Protocol::Gemini => ("contents", "parts"),
        Protocol::OpenAi => {
            let items = asked["input"].as_array();
            return items.map_or(0, |items| items.iter().filter(|item| item["type"] == "function_call_output").count());
        }
    };
    let is_result = |part: &&Value| part["type"] == "tool_result" || !part["functionResponse"].is_null();
    let messages = asked[messages].as_array().into_iter().flatten();
    messages.filter_map(|message| message[parts].as_array()).flatten().filter(is_result).count()
}

fn answer(out: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(
        out,
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Refuses for so long that no client waits for it.
fn refuse(out: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    write!(
        out,
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\nretry-after: 2700\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    )
}

/// Answers in the words of a provider.
fn spoken(
    out: &mut TcpStream,
    protocol: Protocol,
    path: &str,
    asked: &Value,
    step: &Step,
    tools: &[String],
) -> std::io::Result<()> {
    let tool = |name: &str| {
        // Each client has its own prefix for a server's tools.
        let found = tools.iter().find(|tool| tool.contains("toft") && tool.ends_with(&format!("_{name}")));
        // One that is not listed yet is called by the name that Claude Code gives it.
        found.cloned().unwrap_or_else(|| format!("mcp__toft__{name}"))
    };
    if let Step::Refuse(status, body) = step {
        return refuse(out, *status, body);
    }
    match protocol {
        Protocol::Anthropic => anthropic(out, asked, step, tools, tool),
        Protocol::OpenAi => openai(out, step, tools, tool),
        Protocol::Gemini => gemini(out, path, step, tool),
    }
}

fn stream(out: &mut TcpStream) -> std::io::Result<()> {
    write!(out, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
}

fn event(out: &mut TcpStream, kind: &str, mut data: Value) -> std::io::Result<()> {
    data["type"] = kind.into();
    write!(out, "event: {kind}\ndata: {data}\n\n")
}

fn anthropic(
    out: &mut TcpStream,
    asked: &Value,
    step: &Step,
    tools: &[String],
    tool: impl Fn(&str) -> String,
) -> std::io::Result<()> {
    let call = |name: &str, input: Value| {
        let id = format!("toolu_{}", results(Protocol::Anthropic, asked));
        (
            json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
            json!({ "type": "input_json_delta", "partial_json": input.to_string() }),
            "tool_use",
        )
    };
    let (block, delta, reason) = match step {
        Step::Shell(command) => {
            let shell = tools.iter().find(|tool| tool.eq_ignore_ascii_case("bash")).map_or("Bash", String::as_str);
            call(shell, json!({ "command": command, "description": "as the script says" }))
        }
        Step::Tool(name, input) => call(&tool(name), input.clone()),
        Step::Say(text) => {
            (json!({ "type": "text", "text": "" }), json!({ "type": "text_delta", "text": text }), "end_turn")
        }
        Step::Refuse(..) | Step::Told(_) => return Ok(()),
    };
    let usage = json!({ "input_tokens": 100, "output_tokens": 7 });
    let message = json!({ "id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": usage });
    if asked["stream"] != true {
        let mut message = message;
        message["content"] = json!([{ "type": "text", "text": "{}" }]);
        message["stop_reason"] = "end_turn".into();
        return answer(out, 200, &message);
    }
    stream(out)?;
    event(out, "message_start", json!({ "message": message }))?;
    event(out, "content_block_start", json!({ "index": 0, "content_block": block }))?;
    event(out, "content_block_delta", json!({ "index": 0, "delta": delta }))?;
    event(out, "content_block_stop", json!({ "index": 0 }))?;
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    event(out, "message_delta", json!({ "delta": delta, "usage": { "output_tokens": 7 } }))?;
    event(out, "message_stop", json!({}))
}

fn openai(out: &mut TcpStream, step: &Step, tools: &[String], tool: impl Fn(&str) -> String) -> std::io::Result<()> {
    let item = match step {
        Step::Shell(command) => {
            let shells = ["exec_command", "shell_command", "shell"];
            let name = shells.into_iter().find(|name| tools.iter().any(|tool| tool == name)).unwrap_or(shells[0]);
            let arguments = match name {
                "exec_command" => json!({ "cmd": command }),
                "shell_command" => json!({ "command": command }),
                _ => json!({ "command": ["sh", "-c", command] }),
            };
            json!({ "type": "function_call", "id": "fc_1", "call_id": format!("call_{}", command.len()), "name": name,
                "arguments": arguments.to_string() })
        }
        Step::Tool(name, input) => {
            let (call, arguments) = (format!("call_{name}"), input.to_string());
            let mut item = json!({ "type": "function_call", "id": "fc_2", "call_id": call, "arguments": arguments });
            match tools.iter().find(|tool| tool.ends_with("toft")) {
                // A server is one tool, and its own tools are named within it.
                Some(server) => (item["namespace"], item["name"]) = (server.as_str().into(), (*name).into()),
                None => item["name"] = tool(name).into(),
            }
            item
        }
        Step::Say(text) => {
            let content = json!([{ "type": "output_text", "text": text }]);
            json!({ "type": "message", "id": "msg_1", "role": "assistant", "content": content })
        }
        Step::Refuse(..) | Step::Told(_) => return Ok(()),
    };
    stream(out)?;
    event(out, "response.created", json!({ "response": { "id": "resp_1" } }))?;
    event(out, "response.output_item.done", json!({ "output_index": 0, "item": item }))?;
    let usage = json!({ "input_tokens": 100, "input_tokens_details": null, "output_tokens": 7,
        "output_tokens_details": null, "total_tokens": 107 });
    event(out, "response.completed", json!({ "response": { "id": "resp_1", "usage": usage } }))
}

fn gemini(out: &mut TcpStream, path: &str, step: &Step, tool: impl Fn(&str) -> String) -> std::io::Result<()> {
    let part = match step {
        Step::Shell(command) => {
            json!({ "functionCall": { "name": "run_shell_command", "args": { "command": command } } })
        }
        Step::Tool(name, input) => json!({ "functionCall": { "name": tool(name), "args": input } }),
        Step::Say(text) => json!({ "text": text }),
        Step::Refuse(..) | Step::Told(_) => return Ok(()),
    };
    let candidate = json!({ "content": { "role": "model", "parts": [part] }, "finishReason": "STOP", "index": 0 });
    let usage = json!({ "promptTokenCount": 100, "candidatesTokenCount": 7, "totalTokenCount": 107 });
    let said = json!({ "candidates": [candidate], "usageMetadata": usage });
    match path.contains("stream") {
        true => {
            stream(out)?;
            write!(out, "data: {said}\r\n\r\n")
        }
        false => answer(out, 200, &said),
    }
}
