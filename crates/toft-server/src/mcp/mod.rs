//! The Model Context Protocol over standard input and output: the stateless revision and those before it.
//!
//! Requests carry everything they need, so nothing is kept between them, except calls that wait: a client that declares the
//! tasks extension (`io.modelcontextprotocol/tasks`) gets a task for such a call, and asks what came of it. The server
//! ends when its input does, which is when the client is gone.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, Instant},
};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock, CreateTaskResult,
        GetTaskParams, GetTaskResult, Implementation, ListResourceTemplatesResult, ListResourcesResult,
        ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult,
        Resource, ResourceContents, ResourceTemplate, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
    },
    service::{RequestContext, ServerInitializeError},
    task_manager::{TaskExit, TaskManager, TaskOptions},
    transport::async_rw::AsyncRwTransport,
};
use serde_json::{Map, Value};

use crate::blocking;

/// A longer request is not read into memory, and has no answer.
const LONGEST: usize = 64 << 20;

/// A call that waits does so in parts of this length: between them it can be cancelled.
const PART: Duration = Duration::from_secs(2);
/// The longest wait for a client without tasks, which gives a call up after a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(50);
/// How long the outcome of a task is kept.
const KEPT: Duration = Duration::from_secs(3600);

/// Whoever answers what is asked.
pub trait ToolHost: Send + Sync + 'static {
    /// What can be asked.
    fn tools(&self) -> Vec<ToolSpec>;
    /// Asks it.
    fn call(&self, tool: &str, arguments: &Map<String, Value>) -> Answer;
    /// How long a call waits if there is nothing to answer yet; nothing if it does not wait.
    fn waits(&self, tool: &str, arguments: &Map<String, Value>) -> Option<Duration>;
    /// Asks it, and waits at most this long; nothing if there is no answer yet.
    fn call_waiting(&self, tool: &str, arguments: &Map<String, Value>, wait: Duration) -> Waited;
    /// What can be read: address, name, what it is. Addresses with `{braces}` are patterns.
    fn resources(&self) -> Vec<(&'static str, &'static str, &'static str)>;
    /// Reads it; nothing if there is no such thing.
    fn read(&self, address: &str) -> Option<Answer>;
    /// What a client should know first.
    fn instructions(&self) -> &'static str;
}

/// A tool as clients see it.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
    /// Its arguments, as a JSON schema.
    pub schema: Map<String, Value>,
    /// It changes nothing.
    pub read_only: bool,
    /// It may take something away.
    pub destructive: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// In words.
    pub text: String,
    /// As data; always an object.
    pub data: Value,
    /// It was not done.
    pub refused: bool,
}

/// What came of a call that waits.
pub enum Waited {
    /// The answer.
    Answered(Answer),
    /// There was nothing to answer with in that time; this is what it says if it is over.
    NotYet(Answer),
}

/// Serves until the client is gone.
pub fn serve(desk: impl ToolHost) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let transport = AsyncRwTransport::<RoleServer, _, _>::new(tokio::io::stdin(), tokio::io::stdout())
            .with_max_line_length(LONGEST);
        let service = match (Speaker { desk: Arc::new(desk), tasks: TaskManager::new() }).serve(transport).await {
            // It never said a word.
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            served => served.map_err(std::io::Error::other)?,
        };
        service.waiting().await.map(drop).map_err(std::io::Error::other)
    });
    // Nobody is left to answer; what is still being read is not waited for.
    runtime.shutdown_background();
    served
}

struct Speaker<D> {
    desk: Arc<D>,
    /// Calls that wait.
    tasks: TaskManager,
}

/// Waits for an answer until the time is over or `cancelled`; nothing if it was.
async fn answered<D: ToolHost>(
    desk: Arc<D>,
    tool: String,
    arguments: Map<String, Value>,
    wait: Duration,
    cancelled: impl Fn() -> bool,
) -> Result<Option<CallToolResult>, ErrorData> {
    let until = Instant::now() + wait;
    let asked = Arc::new((tool, arguments));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let (desk, asked) = (Arc::clone(&desk), Arc::clone(&asked));
        let waited = blocking::run(move || desk.call_waiting(&asked.0, &asked.1, left.min(PART))).await;
        match waited.ok_or_else(lost)? {
            Waited::Answered(answer) => return Ok(Some(result(answer))),
            Waited::NotYet(_) if cancelled() => return Ok(None),
            Waited::NotYet(answer) if left <= PART => return Ok(Some(result(answer))),
            Waited::NotYet(_) => {}
        }
    }
}

fn result(answer: Answer) -> CallToolResult {
    let mut result = CallToolResult::default();
    result.content = vec![ContentBlock::text(answer.text)];
    result.structured_content = Some(answer.data);
    result.is_error = Some(answer.refused);
    result
}

impl<D: ToolHost> Speaker<D> {
    fn named(&self, card: ToolSpec) -> Tool {
        let mut notes = ToolAnnotations::new();
        if card.read_only {
            notes = notes.read_only(true);
        } else {
            notes = notes.destructive(card.destructive);
        }
        Tool::new(card.name, card.about, Arc::new(card.schema)).with_annotations(notes)
    }
}

impl<D: ToolHost> ServerHandler for Speaker<D> {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().enable_tasks().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("toft", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.desk.instructions())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.desk.tools().into_iter().map(|card| self.named(card)).collect()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.desk.tools().into_iter().find(|card| card.name == name).map(|card| self.named(card))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let CallToolRequestParams { name, arguments, .. } = request;
        if self.get_tool(&name).is_none() {
            return Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None));
        }
        let (desk, arguments) = (Arc::clone(&self.desk), arguments.unwrap_or_default());
        let Some(wait) = desk.waits(&name, &arguments) else {
            let answer = blocking::run(move || desk.call(&name, &arguments)).await;
            return Ok(result(answer.ok_or_else(lost)?).into());
        };
        let name = name.to_string();
        if !context.client_capabilities().is_some_and(|client| client.supports_tasks()) {
            let answer = answered(desk, name, arguments, wait.min(LONGEST_WAIT), || false).await?;
            return Ok(answer.ok_or_else(lost)?.into());
        }
        let kept = u64::try_from((wait + KEPT).as_millis()).unwrap_or(u64::MAX);
        let task = self.tasks.spawn(TaskOptions::new().with_ttl_ms(kept), move |context| {
            Box::pin(async move {
                let found = answered(desk, name, arguments, wait, || context.is_cancel_requested()).await?;
                found.ok_or(TaskExit::Cancelled)
            })
        });
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get_task(&request.task_id).map(GetTaskResult::new)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }

    async fn list_resources(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let whole = self.desk.resources().into_iter().filter(|(address, ..)| !address.contains('{'));
        let all = whole.map(|(address, name, about)| Resource::new(address, name).with_description(about));
        Ok(ListResourcesResult::with_all_items(all.collect()))
    }

    async fn list_resource_templates(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let patterns = self.desk.resources().into_iter().filter(|(address, ..)| address.contains('{'));
        let all = patterns.map(|(address, name, about)| ResourceTemplate::new(address, name).with_description(about));
        Ok(ListResourceTemplatesResult::with_all_items(all.collect()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let (desk, address) = (Arc::clone(&self.desk), request.uri.clone());
        let missing = || ErrorData::resource_not_found(format!("there is no `{}`", request.uri), None);
        let answer = blocking::run(move || desk.read(&address)).await.ok_or_else(lost)?.ok_or_else(missing)?;
        if answer.refused {
            return Err(ErrorData::resource_not_found(Cow::from(answer.text), None));
        }
        Ok(ReadResourceResult::new(vec![ResourceContents::text(answer.text, request.uri)]).into())
    }
}

fn lost() -> ErrorData {
    ErrorData::internal_error("the answer was lost; toft doctor says whether the store is well", None)
}
