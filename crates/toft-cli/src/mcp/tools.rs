//! The tools: what each takes, and the command it is. Models read all of it, so every word counts.

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::{Map, Value};
use toft::schema::{HasSchema, JsonSchema, checked_in};
use toft_server::mcp::ToolSpec;

use crate::{
    args::{
        self, Add, AgentCommand, Claim, Command, CreateWs, EditIssue, Fields, Finish, FlowCommand, Hold, Inbox, List,
        ListWs, NewFlow, One, OneWs, PathWs, Ready, RescueWs, Retry, ReviewArgs, RmWs, Save, Send, Show, WsCommand,
    },
    exit::Failure,
};

/// Arguments of a tool, and the command they stand for.
trait Call: DeserializeOwned + HasSchema {
    const NAME: &'static str;
    const ABOUT: &'static str;
    const READ_ONLY: bool = false;
    const DESTRUCTIVE: bool = false;

    fn command(self) -> Result<Command, Failure>;
}

/// A tool.
pub(super) struct Tool {
    pub(super) name: &'static str,
    about: &'static str,
    read_only: bool,
    destructive: bool,
    #[cfg(all(test, feature = "schema"))]
    pub(super) derive_schema: fn() -> Value,
    read: fn(Value) -> Result<Command, Failure>,
}

pub(super) const TOOLS: [Tool; 13] = [
    tool::<PrimeCall>(),
    tool::<ReadyCall>(),
    tool::<ClaimCall>(),
    tool::<ShowCall>(),
    tool::<SearchCall>(),
    tool::<AddCall>(),
    tool::<EditCall>(),
    tool::<SaveCall>(),
    tool::<FinishCall>(),
    tool::<ReviewCall>(),
    tool::<MessageCall>(),
    tool::<FlowCall>(),
    tool::<WorkspaceCall>(),
];

const fn tool<C: Call>() -> Tool {
    Tool {
        name: C::NAME,
        about: C::ABOUT,
        read_only: C::READ_ONLY,
        destructive: C::DESTRUCTIVE,
        #[cfg(all(test, feature = "schema"))]
        derive_schema: super::derived::derive_schema::<C>,
        read: read::<C>,
    }
}

/// Every tool takes these, too.
pub(super) const EVERYWHERE: [&str; 2] = ["cwd", "agent"];

fn read<C: Call>(arguments: Value) -> Result<Command, Failure> {
    let call: C =
        serde_json::from_value(arguments).map_err(|error| Failure::invalid(format!("{}: {error}", C::NAME), ""))?;
    call.command()
}

impl Tool {
    /// Its arguments, as a model reads them.
    fn schema(&self) -> Map<String, Value> {
        let mut schemas = checked_in(include_str!("tools.json"));
        schemas[self.name].as_object_mut().map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn card(&self) -> ToolSpec {
        ToolSpec {
            name: self.name,
            about: self.about,
            schema: self.schema(),
            read_only: self.read_only,
            destructive: self.destructive,
        }
    }

    /// The command that a call stands for. What is null was left out.
    pub(super) fn command(&self, given: &Map<String, Value>) -> Result<Command, Failure> {
        let schema = self.schema();
        let known: Vec<&String> =
            schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name).collect();
        if let Some(name) = given.keys().find(|name| !known.contains(name)) {
            let known: Vec<&str> = known.iter().map(|name| name.as_str()).collect();
            return Err(Failure::invalid(
                format!("{} takes no `{name}`", self.name),
                &format!("use {}", known.join(", ")),
            ));
        }
        let given = given.iter().filter(|(name, value)| !value.is_null() && !EVERYWHERE.contains(&name.as_str()));
        let given: Map<String, Value> = given.map(|(name, value)| (name.clone(), value.clone())).collect();
        // A dash alone would mean standard input, which belongs to the protocol.
        if let Some((name, _)) = given.iter().find(|(_, value)| *value == "-") {
            return Err(Failure::invalid(format!("`{name}` is not a text: -"), ""));
        }
        (self.read)(Value::Object(given))
    }
}

/// What the command line takes where its user says nothing.
fn defaults<A: clap::Args>() -> Result<A, Failure> {
    let command = A::augment_args(clap::Command::new("toft").no_binary_name(true));
    let matches = command.try_get_matches_from([] as [&str; 0]);
    matches.and_then(|matches| A::from_arg_matches(&matches)).map_err(|error| Failure::usage(&error, None))
}

/// One of many is often given without a list around it.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    })
}

/// A value that this action of a tool cannot do without.
fn needed(value: Option<String>, tool: &str, name: &str) -> Result<String, Failure> {
    value.ok_or_else(|| Failure::invalid(format!("{tool} needs `{name}`"), ""))
}

fn hold(fence: Option<String>) -> Result<Hold, Failure> {
    let fence = fence.map(|text| text.parse().map_err(|problem: String| Failure::invalid(problem, ""))).transpose()?;
    Ok(Hold { fence })
}

fn priority(number: Option<u64>) -> Result<Option<u8>, Failure> {
    let read = |number: u64| args::priority(&number.to_string()).map_err(|problem| Failure::invalid(problem, ""));
    number.map(read).transpose()
}

#[derive(Deserialize, JsonSchema)]
struct PrimeCall {}

impl Call for PrimeCall {
    const NAME: &'static str = "prime";
    const ABOUT: &'static str = "Who you are, what you hold, messages, ready work, the rules. Call first.";

    fn command(self) -> Result<Command, Failure> {
        Ok(Command::Prime(args::Prime { peek: false }))
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ReadyCall {
    #[serde(deserialize_with = "one_or_many")]
    label: Vec<String>,
    limit: Option<u32>,
}

impl Call for ReadyCall {
    const NAME: &'static str = "ready";
    const ABOUT: &'static str = "What can start now, best first";
    const READ_ONLY: bool = true;

    fn command(self) -> Result<Command, Failure> {
        let mut ready: Ready = defaults()?;
        ready.labels = self.label;
        ready.limit = self.limit.map_or(ready.limit, |limit| limit.max(1) as usize);
        Ok(Command::Ready(ready))
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ClaimCall {
    id: Option<String>,
    #[serde(deserialize_with = "one_or_many")]
    label: Vec<String>,
    /// with a directory of its own to work in
    ws: bool,
    /// seconds to wait until work is ready
    wait: Option<u64>,
}

/// The argument that says how long a claim waits, and the longest.
pub(super) const WAIT: &str = "wait";
pub(super) const LONGEST_WAIT: u64 = 24 * 3600;

impl Call for ClaimCall {
    const NAME: &'static str = "claim";
    const ABOUT: &'static str = "Take work under a lease: the best ready, or id";

    fn command(self) -> Result<Command, Failure> {
        let Self { id, label: labels, ws, wait } = self;
        let defaults: Claim = defaults()?;
        let wait = wait.map(|wait| std::time::Duration::from_secs(wait.min(LONGEST_WAIT)));
        Ok(Command::Claim(Claim { id, labels, ws, wait, pid: client().or(defaults.pid), ..defaults }))
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ShowCall {
    id: Option<String>,
    /// all that an agent which takes it over must know
    context: bool,
    /// why it cannot start
    why: bool,
}

impl Call for ShowCall {
    const NAME: &'static str = "show";
    const ABOUT: &'static str = "An issue, task, workflow or agent; @ is what you hold";
    const READ_ONLY: bool = true;

    fn command(self) -> Result<Command, Failure> {
        let Self { id, context, why } = self;
        let mut show: Show = defaults()?;
        if context && why {
            return Err(Failure::invalid("show takes `context` or `why`, not both", ""));
        }
        show.id = id.unwrap_or(show.id);
        Ok(Command::Show(Show { context, why, ..show }))
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct SearchCall {
    text: Option<String>,
    #[serde(deserialize_with = "one_or_many")]
    label: Vec<String>,
    status: Option<String>,
    /// closed ones too
    all: bool,
}

impl Call for SearchCall {
    const NAME: &'static str = "search";
    const ABOUT: &'static str = "Find issues";
    const READ_ONLY: bool = true;

    fn command(self) -> Result<Command, Failure> {
        let Self { text: search, label: labels, status, all } = self;
        Ok(Command::List(List { search, labels, status, all, ..defaults()? }))
    }
}

#[derive(Deserialize, JsonSchema)]
struct AddCall {
    title: String,
    body: Option<String>,
    /// task, bug, feature, epic
    r#type: Option<String>,
    /// 0 most urgent to 4
    priority: Option<u64>,
    #[serde(default, deserialize_with = "one_or_many")]
    label: Vec<String>,
    /// ids it waits for
    #[serde(default, deserialize_with = "one_or_many")]
    needs: Vec<String>,
    parent: Option<String>,
}

impl Call for AddCall {
    const NAME: &'static str = "add";
    const ABOUT: &'static str = "Write work down as an issue";

    fn command(self) -> Result<Command, Failure> {
        let Self { title, body, r#type: kind, priority: urgency, label: labels, needs, parent } = self;
        let fields = Fields { body, priority: priority(urgency)?, labels, needs, parent, ..Fields::default() };
        Ok(Command::Add(Add { title, kind, fields, ledger: None }))
    }
}

#[derive(Deserialize, JsonSchema)]
struct EditCall {
    id: String,
    title: Option<String>,
    body: Option<String>,
    priority: Option<u64>,
    #[serde(default, deserialize_with = "one_or_many")]
    label: Vec<String>,
    #[serde(default, deserialize_with = "one_or_many")]
    needs: Vec<String>,
    comment: Option<String>,
    /// why it is over
    close: Option<String>,
    #[serde(default)]
    reopen: bool,
}

impl Call for EditCall {
    const NAME: &'static str = "edit";
    const ABOUT: &'static str = "Change an issue";

    fn command(self) -> Result<Command, Failure> {
        let Self { id, title, body, priority: urgency, label: labels, needs, comment, close, reopen } = self;
        if close.is_some() && reopen {
            return Err(Failure::invalid("edit takes `close` or `reopen`, not both", ""));
        }
        let fields = Fields { body, priority: priority(urgency)?, labels, needs, ..Fields::default() };
        let ids = vec![id];
        Ok(Command::Edit(EditIssue { ids, title, fields, comment, close, reopen, ..EditIssue::default() }))
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct SaveCall {
    /// done so far, what is next
    message: Option<String>,
    id: Option<String>,
    fence: Option<String>,
}

impl Call for SaveCall {
    const NAME: &'static str = "save";
    const ABOUT: &'static str = "Checkpoint what you hold, and renew the lease";

    fn command(self) -> Result<Command, Failure> {
        let Self { message, id, fence } = self;
        Ok(Command::Save(Save { message, id, hold: hold(fence)?, ..defaults()? }))
    }
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FinishOutcome {
    Done,
    Failed,
    Release,
    Handoff,
    Waiting,
}

impl FinishOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Release => "release",
            Self::Handoff => "handoff",
            Self::Waiting => "waiting",
        }
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct FinishCall {
    id: Option<String>,
    outcome: Option<FinishOutcome>,
    message: Option<String>,
    evidence: Option<String>,
    no_change: Option<String>,
    /// With waiting: answers that a person may choose from.
    choices: Vec<String>,
    fence: Option<String>,
}

impl Call for FinishCall {
    const NAME: &'static str = "finish";
    const ABOUT: &'static str =
        "End your hold. Done needs evidence (a commit) or no_change (a reason); waiting asks a person the message";

    fn command(self) -> Result<Command, Failure> {
        let Self { id, outcome, message, evidence, no_change, choices, fence } = self;
        if evidence.is_some() && no_change.is_some() {
            return Err(Failure::invalid("finish takes `evidence` or `no_change`, not both", ""));
        }
        let words = id.into_iter().chain(outcome.map(|outcome| outcome.as_str().to_owned())).collect();
        let (message, hold) = (message.unwrap_or_default(), hold(fence)?);
        Ok(Command::Finish(Finish { words, message, evidence, no_change, choices, hold, ..defaults()? }))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum MessageAction {
    Send,
    Inbox,
}

#[derive(Deserialize, JsonSchema)]
struct MessageCall {
    action: MessageAction,
    to: Option<String>,
    text: Option<String>,
    reply_to: Option<String>,
    /// message to confirm
    ack: Option<String>,
}

impl Call for MessageCall {
    const NAME: &'static str = "message";
    const ABOUT: &'static str = "Send to an agent, human, role:worker, or a task's holder; or read your inbox";

    fn command(self) -> Result<Command, Failure> {
        let Self { action, to, text, reply_to, ack } = self;
        let command = match action {
            MessageAction::Send => {
                let (to, text) = (needed(to, "send", "to")?, needed(text, "send", "text")?);
                AgentCommand::Send(Send { reply_to, ..Send::plain(to, text) })
            }
            MessageAction::Inbox => AgentCommand::Inbox(Inbox { ack, ..defaults()? }),
        };
        Ok(Command::Agent(args::Agent { command }))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ReviewVerdict {
    Approve,
    Return,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct ReviewCall {
    id: Option<String>,
    verdict: Option<ReviewVerdict>,
    message: Option<String>,
    /// comments, each as FILE:LINE and text
    at: Vec<[String; 2]>,
}

impl Call for ReviewCall {
    const NAME: &'static str = "review";
    const ABOUT: &'static str = "Finished work and its diff; approve or return it if you review it";

    fn command(self) -> Result<Command, Failure> {
        let Self { id, verdict, message, at } = self;
        let (approve, send_back) =
            (matches!(verdict, Some(ReviewVerdict::Approve)), matches!(verdict, Some(ReviewVerdict::Return)));
        if verdict.is_some() && id.is_none() {
            return Err(Failure::invalid("review needs `id` with a verdict", ""));
        }
        Ok(Command::Review(ReviewArgs {
            id,
            approve,
            send_back,
            message,
            commit: None,
            at: at.into_iter().flatten().collect(),
        }))
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum FlowAction {
    List,
    Show,
    New,
    Pause,
    Resume,
    Retry,
}

#[derive(Deserialize, JsonSchema)]
struct FlowCall {
    action: FlowAction,
    /// or the title of a new one
    id: Option<String>,
    /// names; they may run at the same time
    #[serde(default, deserialize_with = "one_or_many")]
    task: Vec<String>,
}

impl Call for FlowCall {
    const NAME: &'static str = "flow";
    const ABOUT: &'static str = "Workflows of tasks";

    fn command(self) -> Result<Command, Failure> {
        let Self { action, id, task: tasks } = self;
        let id = || needed(id, "flow", "id");
        let one = |id: String| One { id, message: None };
        let command = match action {
            FlowAction::List => flows(),
            FlowAction::Show => flow(id()?),
            FlowAction::New => FlowCommand::New(NewFlow { title: Some(id()?), tasks, ..NewFlow::default() }),
            FlowAction::Pause => FlowCommand::Pause(one(id()?)),
            FlowAction::Resume => FlowCommand::Resume(one(id()?)),
            FlowAction::Retry => return Ok(Command::Retry(Retry { ids: vec![id()?], ..Retry::default() })),
        };
        Ok(Command::Flow(args::Flow { command }))
    }
}

fn flows() -> FlowCommand {
    FlowCommand::List { all: false, status: None, limit: args::ROWS, reach: args::Reach::default() }
}

fn flow(id: String) -> FlowCommand {
    FlowCommand::Show { id, limit: args::FLOW_ROWS }
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum WorkspaceAction {
    List,
    Create,
    Show,
    Path,
    Rescue,
    Rm,
}

#[derive(Deserialize, JsonSchema)]
struct WorkspaceCall {
    action: WorkspaceAction,
    id: Option<String>,
}

impl Call for WorkspaceCall {
    const NAME: &'static str = "workspace";
    const ABOUT: &'static str = "Directories for work; rm keeps a copy of what is only there";
    const DESTRUCTIVE: bool = true;

    fn command(self) -> Result<Command, Failure> {
        let Self { action, id } = self;
        let command = match action {
            WorkspaceAction::List => WsCommand::List(ListWs { id: None, all: false, limit: args::ROWS }),
            WorkspaceAction::Create => {
                WsCommand::Create(CreateWs { id: Some(needed(id, "create", "id")?), ..CreateWs::default() })
            }
            WorkspaceAction::Show => {
                WsCommand::List(ListWs { id: Some(needed(id, "show", "id")?), all: false, limit: args::ROWS })
            }
            WorkspaceAction::Path => WsCommand::Path(PathWs { one: OneWs { id }, env: false }),
            WorkspaceAction::Rescue => WsCommand::Rescue(RescueWs { one: OneWs { id }, ignored: false }),
            WorkspaceAction::Rm => WsCommand::Rm(RmWs { one: OneWs { id }, ..RmWs::default() }),
        };
        Ok(Command::Ws(args::Ws { command }))
    }
}

/// The command that reads a resource, if it is one.
pub(super) fn resource(address: &str) -> Option<Command> {
    Some(match address.strip_prefix("toft://")?.split_once('/') {
        None if address == "toft://inbox" => {
            let command = AgentCommand::Inbox(Inbox { peek: true, ..defaults().ok()? });
            Command::Agent(args::Agent { command })
        }
        None if address == "toft://ready" => Command::Ready(defaults().ok()?),
        Some(("issue", id)) if !id.is_empty() => Command::Show(Show { id: id.to_owned(), ..defaults().ok()? }),
        Some(("flow", id)) if !id.is_empty() => Command::Flow(args::Flow { command: flow(id.to_owned()) }),
        _ => return None,
    })
}

/// The client, whose life a lease follows: it started this server.
pub(super) fn client() -> Option<u32> {
    Some(std::os::unix::process::parent_id()).filter(|pid| *pid > 1)
}
