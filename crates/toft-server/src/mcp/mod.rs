//! The Model Context Protocol over standard input and output: the stateless revision and those before it.
//!
//! Requests carry everything they need, so nothing is kept between them. The server ends when its input does, which is
//! when the client is gone.

use std::{borrow::Cow, sync::Arc};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt as _,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource, ResourceContents,
        ResourceTemplate, ServerCapabilities, ServerConfig, Tool, ToolAnnotations,
    },
    service::{RequestContext, ServerInitializeError},
    transport::async_rw::AsyncRwTransport,
};
use serde_json::{Map, Value};

use crate::blocking;

/// A longer request is not read into memory, and has no answer.
const LONGEST: usize = 64 << 20;

/// Whoever answers what is asked.
pub trait ToolHost: Send + Sync + 'static {
    /// What can be asked.
    fn tools(&self) -> Vec<ToolSpec>;
    /// Asks it.
    fn call(&self, tool: &str, arguments: &Map<String, Value>) -> Answer;
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

/// Serves until the client is gone.
pub fn serve(desk: impl ToolHost) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let transport = AsyncRwTransport::<RoleServer, _, _>::new(tokio::io::stdin(), tokio::io::stdout())
            .with_max_line_length(LONGEST);
        let service = match (Speaker { desk: Arc::new(desk) }).serve(transport).await {
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
        let capabilities = ServerCapabilities::builder().enable_tools().enable_resources().build();
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
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let CallToolRequestParams { name, arguments, .. } = request;
        if self.get_tool(&name).is_none() {
            return Err(ErrorData::invalid_params(format!("there is no tool `{name}`"), None));
        }
        let desk = Arc::clone(&self.desk);
        let answer = blocking::run(move || desk.call(&name, &arguments.unwrap_or_default())).await;
        let Answer { text, data, refused } = answer.ok_or_else(lost)?;
        let mut result = CallToolResult::default();
        result.content = vec![ContentBlock::text(text)];
        result.structured_content = Some(data);
        result.is_error = Some(refused);
        Ok(result.into())
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
