//! A client of the Agent Client Protocol, version 1: starts an agent, gives it one prompt, and tells what it does in lines
//! of JSON that a runner understands.
//!
//! Messages are lines of JSON-RPC on the agent's standard input and output. The agent reads and writes files and runs
//! commands itself, in its own process: nothing of that is offered to it here.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// The version of the protocol.
const VERSION: u64 = 1;
/// How often a request is looked after while nothing comes.
const LOOK: Duration = Duration::from_millis(100);
/// How long an agent has to end its turn after it was told to.
const CANCELLED: Duration = Duration::from_secs(3);

/// What is asked of an agent.
pub struct AcpPrompt<'a> {
    /// The agent's command.
    pub command: &'a [String],
    /// Where it works.
    pub dir: &'a Path,
    /// The prompt; for a session that goes on, or for a new one.
    pub text: &'a dyn Fn(bool) -> io::Result<String>,
    /// The session that goes on, if the agent can load it.
    pub session: Option<&'a str>,
    /// The program and arguments of toft's MCP server.
    pub mcp: (String, Vec<String>),
}

/// How a turn ended.
#[derive(Debug, PartialEq, Eq)]
pub enum AcpEnd {
    /// The agent ended its turn.
    Done,
    /// It asks a person something that nobody here can answer.
    Asks(String),
    /// It failed, in its own words.
    Failed(String),
}

/// Runs one prompt to its end; `say` gets a line for everything the agent does. `stopped` says when the turn is to be cancelled.
pub fn prompt(asked: &AcpPrompt<'_>, say: &mut dyn FnMut(&str), stopped: &dyn Fn() -> bool) -> io::Result<AcpEnd> {
    let mut agent = AcpConnection::start(asked)?;
    let ended = agent.turn(asked, say, stopped);
    agent.end();
    match ended {
        Ok(end) => {
            let said = match &end {
                AcpEnd::Failed(message) => {
                    json!({ "type": "result", "status": "error", "error": { "message": message } })
                }
                AcpEnd::Done | AcpEnd::Asks(_) => {
                    let usage = json!({ "input_tokens": agent.tokens.0, "output_tokens": agent.tokens.1 });
                    json!({ "type": "result", "status": "success", "response": agent.last, "usage": usage,
                        "total_cost_usd": agent.cost })
                }
            };
            say(&said.to_string());
            Ok(end)
        }
        Err(error) => Err(error),
    }
}

struct AcpConnection {
    child: Child,
    stdin: Option<ChildStdin>,
    heard: Receiver<Value>,
    next: u64,
    /// Its last message.
    last: String,
    /// Whether the next part of a message begins a new one.
    fresh: bool,
    cost: Option<f64>,
    /// Input and output, as far as it says.
    tokens: (u64, u64),
    question: Option<String>,
}

impl AcpConnection {
    #[expect(clippy::disallowed_methods, reason = "agents are started here, programs of version control in toft-vcs")]
    fn start(asked: &AcpPrompt<'_>) -> io::Result<Self> {
        let Some((program, words)) = asked.command.split_first() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "there is no command"));
        };
        let mut command = Command::new(program);
        // What it prints besides goes where the bridge's own errors go.
        command.args(words).current_dir(asked.dir).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (tell, heard) = mpsc::channel();
        thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|out| BufReader::new(out).lines().map_while(Result::ok));
            // Anything else on that stream is no message.
            for message in lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok()) {
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            stdin,
            heard,
            next: 0,
            last: String::new(),
            fresh: true,
            cost: None,
            tokens: (0, 0),
            question: None,
        })
    }

    fn turn(
        &mut self,
        asked: &AcpPrompt<'_>,
        say: &mut dyn FnMut(&str),
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<AcpEnd> {
        let client = json!({ "name": "toft", "title": "toft", "version": env!("CARGO_PKG_VERSION") });
        let able = json!({ "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false });
        let hello = json!({ "protocolVersion": VERSION, "clientCapabilities": able, "clientInfo": client });
        let known = match self.call("initialize", &hello, say, stopped)? {
            Ok(known) => known,
            Err(message) => return Ok(AcpEnd::Failed(message)),
        };
        if known["protocolVersion"].as_u64() != Some(VERSION) {
            return Ok(AcpEnd::Failed(format!("it speaks version {} of the protocol", known["protocolVersion"])));
        }
        let (session, goes_on) = match self.session(asked, &known, say, stopped)? {
            Ok(found) => found,
            Err(message) => return Ok(AcpEnd::Failed(message)),
        };
        say(&json!({ "type": "init", "session_id": session }).to_string());
        let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": (asked.text)(goes_on)? }] });
        let id = self.send("session/prompt", &prompt)?;
        let mut told_to_end = None;
        loop {
            if stopped() && told_to_end.is_none() {
                self.notify("session/cancel", &json!({ "sessionId": session }))?;
                told_to_end = Some(std::time::Instant::now());
            }
            if told_to_end.is_some_and(|since| since.elapsed() >= CANCELLED) {
                return Ok(AcpEnd::Failed("it was told to end, and did not".into()));
            }
            match self.heard.recv_timeout(LOOK) {
                Ok(message) if message["id"] == id && message["method"].is_null() => {
                    return Ok(match outcome(&message) {
                        _ if let Some(question) = self.question.take() => AcpEnd::Asks(question),
                        Ok(result) => {
                            self.usage(&result["usage"]);
                            ended(&result)
                        }
                        Err(message) => AcpEnd::Failed(message),
                    });
                }
                Ok(message) => self.answer(&message, say)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(AcpEnd::Failed("the agent ended without an answer".into()));
                }
            }
        }
    }

    /// A session in the directory, and whether it is the one that goes on.
    fn session(
        &mut self,
        asked: &AcpPrompt<'_>,
        known: &Value,
        say: &mut dyn FnMut(&str),
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<Result<(String, bool), String>> {
        let (command, args) = &asked.mcp;
        let mcp = json!([{ "name": "toft", "command": command, "args": args, "env": [] }]);
        if let Some(session) = asked.session.filter(|_| known["agentCapabilities"]["loadSession"] == true) {
            let request = json!({ "sessionId": session, "cwd": asked.dir, "mcpServers": mcp });
            // What it tells again of the past is not new.
            match self.call("session/load", &request, &mut |_| {}, stopped)? {
                Ok(_) => {
                    self.last.clear();
                    return Ok(Ok((session.to_owned(), true)));
                }
                Err(why) => say(&format!("session {session} does not go on: {why}; a new one begins")),
            }
        }
        let made = self.call("session/new", &json!({ "cwd": asked.dir, "mcpServers": mcp }), say, stopped)?;
        Ok(made.and_then(|made| {
            let session = made["sessionId"].as_str().ok_or_else(|| "it made no session".to_owned())?;
            Ok((session.to_owned(), false))
        }))
    }

    fn write(&mut self, message: &Value) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else { return Err(io::ErrorKind::BrokenPipe.into()) };
        writeln!(stdin, "{message}").and_then(|()| stdin.flush())
    }

    fn send(&mut self, method: &str, params: &Value) -> io::Result<u64> {
        self.next += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }))?;
        Ok(self.next)
    }

    fn notify(&mut self, method: &str, params: &Value) -> io::Result<()> {
        self.write(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    /// Sends a request and waits for its result, or the agent's words for why there is none.
    fn call(
        &mut self,
        method: &str,
        params: &Value,
        say: &mut dyn FnMut(&str),
        stopped: &dyn Fn() -> bool,
    ) -> io::Result<Result<Value, String>> {
        let id = self.send(method, params)?;
        loop {
            match self.heard.recv_timeout(LOOK) {
                Ok(message) if message["id"] == id && message["method"].is_null() => return Ok(outcome(&message)),
                Ok(message) => self.answer(&message, say)?,
                Err(RecvTimeoutError::Timeout) if stopped() => return Ok(Err("it was stopped".into())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Err("the agent ended without an answer".into())),
            }
        }
    }

    /// Takes in a notification, or answers a request of the agent.
    fn answer(&mut self, message: &Value, say: &mut dyn FnMut(&str)) -> io::Result<()> {
        let result = match message["method"].as_str() {
            Some("session/update") => {
                self.told(&message["params"]["update"], say);
                return Ok(());
            }
            Some("session/request_permission") => json!({ "outcome": permitted(&message["params"]["options"]) }),
            Some("elicitation/create") => {
                let question = message["params"]["message"].as_str().unwrap_or("the agent asks for something");
                self.question = Some(question.to_owned());
                json!({ "action": "cancel" })
            }
            _ if message["id"].is_null() => return Ok(()),
            _ => {
                let error = json!({ "code": -32601, "message": "toft does not do this" });
                return self.write(&json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }));
            }
        };
        self.write(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    }

    /// Tells what the agent does, in the lines that other clients print.
    fn told(&mut self, update: &Value, say: &mut dyn FnMut(&str)) {
        let line = match update["sessionUpdate"].as_str() {
            Some("agent_message_chunk") => {
                let Some(text) = update["content"]["text"].as_str() else { return };
                if std::mem::take(&mut self.fresh) {
                    self.last.clear();
                }
                self.last.push_str(text);
                json!({ "type": "message", "role": "assistant", "delta": true, "content": text })
            }
            Some("tool_call") => {
                self.fresh = true;
                let name = update["title"].as_str().or(update["kind"].as_str()).unwrap_or("tool");
                json!({ "type": "tool_use", "tool_name": name, "parameters": update["rawInput"] })
            }
            Some("tool_call_update") if update["status"] == "completed" || update["status"] == "failed" => {
                let texts = update["content"].as_array().into_iter().flatten();
                let mut texts: Vec<&str> = texts.filter_map(|part| part["content"]["text"].as_str()).collect();
                if texts.is_empty() {
                    texts.extend(update["rawOutput"].as_str().or(update["rawOutput"]["output"].as_str()));
                }
                let status = if update["status"] == "failed" { "error" } else { "success" };
                json!({ "type": "tool_result", "status": status, "output": texts.join("\n") })
            }
            Some("usage_update") => {
                self.cost = update["cost"]["amount"].as_f64().or(self.cost);
                return;
            }
            _ => return,
        };
        say(&line.to_string());
    }

    fn usage(&mut self, usage: &Value) {
        let count = |name: &str| usage[name].as_u64();
        if let (Some(input), Some(output)) = (count("inputTokens"), count("outputTokens")) {
            self.tokens = (input, output);
        }
    }

    /// Ends the agent: its input closes, it is asked to end, and then killed.
    fn end(&mut self) {
        drop(self.stdin.take());
        let pid = i32::try_from(self.child.id()).map(nix::unistd::Pid::from_raw);
        for look in 0..20 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            if let (5, Ok(pid)) = (look, pid) {
                // It may have ended just now.
                let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
            }
            thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a request, or why there is none.
fn outcome(message: &Value) -> Result<Value, String> {
    match &message["error"] {
        Value::Null => Ok(message["result"].clone()),
        error => {
            let details = error["data"]["details"].as_str().or(error["data"].as_str());
            let said = error["message"].as_str().unwrap_or("it refused");
            Err(details.map_or_else(|| said.to_owned(), |details| format!("{said}: {details}")))
        }
    }
}

fn ended(result: &Value) -> AcpEnd {
    match result["stopReason"].as_str() {
        Some("end_turn") => AcpEnd::Done,
        Some(reason) => AcpEnd::Failed(format!("its turn ended with {reason}")),
        None => AcpEnd::Failed("its turn ended without a reason".into()),
    }
}

/// The option that lets the agent go on; for this once if there is one, since a session ends with its task.
fn permitted(options: &Value) -> Value {
    let options: Vec<&Value> = options.as_array().into_iter().flatten().collect();
    let found =
        ["allow_once", "allow_always"].iter().find_map(|kind| options.iter().find(|option| option["kind"] == *kind));
    match found {
        Some(option) => json!({ "outcome": "selected", "optionId": option["optionId"] }),
        None => json!({ "outcome": "cancelled" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_let_go_on_for_this_once() {
        let option = |id: &str, kind: &str| json!({ "optionId": id, "kind": kind });
        let all = json!([option("always", "allow_always"), option("once", "allow_once"), option("no", "reject_once")]);
        assert_eq!(permitted(&all), json!({ "outcome": "selected", "optionId": "once" }));
        assert_eq!(permitted(&json!([option("no", "reject_once")])), json!({ "outcome": "cancelled" }));
    }

    #[test]
    fn a_turn_is_done_only_if_the_agent_ended_it() {
        assert_eq!(ended(&json!({ "stopReason": "end_turn" })), AcpEnd::Done);
        for reason in ["max_tokens", "refusal", "cancelled"] {
            assert!(matches!(ended(&json!({ "stopReason": reason })), AcpEnd::Failed(said) if said.contains(reason)));
        }
        let error =
            json!({ "error": { "code": -32000, "message": "no", "data": { "details": "429 Too Many Requests" } } });
        assert_eq!(outcome(&error), Err("no: 429 Too Many Requests".into()));
    }
}
