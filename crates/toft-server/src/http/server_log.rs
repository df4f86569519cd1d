//! What a server says of itself: a line of JSON for each event.

use std::{
    cell::RefCell,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use serde_json::{Value, json};
use toft_core::{time::Timestamp, verbs::calls, wire::LONGEST_WAIT};

use super::{
    server_state::ServerState,
    traces::{self, TRACEPARENT, TracedRequest},
};

/// A request that takes longer is logged, if it did not wait for work.
const SLOW: Duration = Duration::from_secs(1);

tokio::task_local! {
    /// Who sends the request that this task answers.
    static ASKER: RefCell<Option<(String, String)>>;
}

/// Where a server's log goes.
#[derive(Clone, Copy, Debug)]
pub struct ServerLog {
    /// Writes a line.
    pub write: fn(&str),
    /// Every request is logged, not only failed and slow ones.
    pub requests: bool,
}

impl ServerLog {
    /// Logs an event.
    pub(super) fn event(&self, event: &str, mut fields: Value) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = Timestamp(i64::try_from(now.as_millis()).unwrap_or(i64::MAX));
        fields["at"] = at.to_string().into();
        fields["event"] = event.into();
        (self.write)(&fields.to_string());
    }
}

/// Notes who sends the request that is answered now.
pub(super) fn note_asker(name: &str, space: &str) {
    // Outside of a request there is nobody.
    let _ = ASKER.try_with(|asker| *asker.borrow_mut() = Some((name.to_owned(), space.to_owned())));
}

/// Counts a request, and logs it if it is worth it.
pub(super) async fn observe(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let (begun, method) = (Instant::now(), request.method().clone());
    let path = request.uri().path().to_owned();
    let waits = request.uri().query().is_some_and(|query| query.contains("wait=")) || path == "/v1/events";
    let verb = path.strip_prefix("/v1/verbs/").and_then(calls::find).map(|call| call.name);
    let parent = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let ((answer, asker), parts) = traces::with_parts(ASKER.scope(RefCell::default(), async {
        let answer = next.run(request).await;
        (answer, ASKER.with(RefCell::take))
    }))
    .await;
    let (status, took) = (answer.status(), begun.elapsed());
    let named = verb.unwrap_or(name_of(&path));
    // Probes come often and say little.
    if path.starts_with("/v1/") {
        state.metrics.answered(named, status.as_u16(), took);
    }
    if let Some(traces) = state.traces.as_ref().filter(|_| path.starts_with("/v1/")) {
        let space = asker.as_ref().map(|(_, space)| space.clone()).unwrap_or_default();
        let name = format!("{method} {named}");
        traces.note(TracedRequest { name, parent, begun, took, status: status.as_u16(), space, parts });
    }
    let slow = took > if waits { LONGEST_WAIT + SLOW } else { SLOW };
    if state.log.requests || status.is_server_error() || slow {
        let (name, space) = asker.unwrap_or_default();
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let fields = json!({
            "method": method.as_str(), "path": path, "status": status.as_u16(), "ms": ms, "name": name, "space": space,
        });
        state.log.event("request", fields);
    }
    answer
}

/// A path that is no verb, for figures: never with an id.
fn name_of(path: &str) -> &'static str {
    const ROUTES: [&str; 10] =
        ["blobs", "changes", "commits", "events", "ledgers", "login", "logs", "openapi.json", "token", "verbs"];
    let first = path.trim_start_matches("/v1/").split('/').next().unwrap_or_default();
    ROUTES.into_iter().find(|known| *known == first).unwrap_or("resource")
}
