//! The paths. `/v1/verbs/NAME` runs any verb; the others are names for some of them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::from_fn_with_state,
    response::{IntoResponse as _, Response},
    routing::{get, post, put},
};
use serde_json::{Map, Value, json};
use toft_core::{
    refusal::VerbError,
    wire::{LONGEST_WAIT, PROTOCOL, SentCall, SentChanges, SentToken},
};
use toft_session::engine::Engine;
use tokio::time::{timeout, timeout_at};

use super::{
    answer::{failure, json as as_json, limited, outcome, plain, unknown_caller},
    commits, events, ledgers, login, logs,
    metrics::Gauges,
    openapi::openapi,
    server_log::observe,
    server_state::{Asker, NotTaken, ServerState},
    waiting::{self, ReadLedger},
};

/// The largest request.
const LARGEST: usize = 4 << 20;

/// How long a request may take to arrive.
const SLOWEST: Duration = Duration::from_secs(30);

/// Names for reads: the path, the verb, and the field that the last part of the path is.
pub(super) const RESOURCES: [(&str, &str, Option<&str>); 13] = [
    ("/v1/agents", "agent.list", None),
    ("/v1/landings", "land.list", None),
    ("/v1/log", "log", None),
    ("/v1/ready", "ready", None),
    ("/v1/repositories", "repositories", None),
    ("/v1/status", "status", None),
    ("/v1/tasks", "list", None),
    ("/v1/tasks/{id}", "show", Some("id")),
    ("/v1/templates", "template.list", None),
    ("/v1/tokens", "token.list", None),
    ("/v1/workflows", "flow.list", None),
    ("/v1/workflows/{id}", "flow.show", Some("id")),
    ("/v1/workspaces", "ws.list", None),
];

pub(super) fn router(state: Arc<ServerState>) -> Router {
    let mut router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/v1/openapi.json", get(|| async { as_json(StatusCode::OK, &openapi()) }))
        .route("/v1/verbs/{name}", post(verb))
        .route("/v1/token", get(own_token))
        .route("/v1/login", get(login::ask).post(login::trade))
        .route("/v1/changes", get(changes))
        .route("/v1/events", get(event_stream))
        .route("/v1/blobs/{blob}", put(keep_blob).get(blob))
        .route("/v1/commits/{repository}/{commit}", put(commits::keep).get(commits::load))
        .route("/v1/ledgers/{repository}", put(ledgers::append).get(ledgers::load))
        .route("/v1/logs/{task}/{number}", put(logs::append).get(logs::load));
    for (path, name, field) in RESOURCES {
        let read = move |State(state): State<Arc<ServerState>>,
                         Path(parts): Path<BTreeMap<String, String>>,
                         Query(query): Query<BTreeMap<String, String>>,
                         headers: HeaderMap| async move {
            let mut request = from_query(&query);
            if let Some(field) = field {
                request.insert(field.to_owned(), parts.into_values().next().unwrap_or_default().into());
            }
            let sent = SentCall { request: request.into(), ..SentCall::default() };
            match identify(&state, &headers).await {
                Ok(asker) => run(&asker, name, sent, Duration::ZERO, None).await,
                Err(answer) => answer,
            }
        };
        router = router.route(path, get(read));
    }
    router.layer(from_fn_with_state(state.clone(), observe)).with_state(state)
}

/// Fields that are texts, also if they look like numbers.
const TEXTS: [&str; 5] = ["id", "issue", "name", "search", "workflow"];

/// A query as fields of a request: numbers and truth values are read as such; `repository` and `worktree` are the scope.
fn from_query(query: &BTreeMap<String, String>) -> Map<String, Value> {
    let (mut fields, mut scope) = (Map::new(), Map::new());
    for (name, text) in query {
        let value = match text.as_str() {
            text if TEXTS.contains(&name.as_str()) => text.into(),
            "true" => true.into(),
            "false" => false.into(),
            text => text.parse::<u64>().map_or_else(|_| text.into(), Value::from),
        };
        match name.as_str() {
            "repository" | "worktree" => scope.insert(name.clone(), text.as_str().into()),
            _ => fields.insert(name.clone(), value),
        };
    }
    if !scope.is_empty() {
        fields.insert("scope".to_owned(), scope.into());
    }
    fields
}

async fn ready(State(state): State<Arc<ServerState>>) -> Response {
    match (state.draining(), state.answers().await) {
        (true, _) => plain(StatusCode::SERVICE_UNAVAILABLE, "this server is ending"),
        (false, true) => as_json(StatusCode::OK, &json!({ "ready": true, "waiting": state.waiting() })),
        (false, false) => plain(StatusCode::SERVICE_UNAVAILABLE, "the store does not answer"),
    }
}

/// What Prometheus asks for.
pub(super) fn metrics_router(state: Arc<ServerState>) -> Router {
    Router::new().route("/metrics", get(figures)).with_state(state)
}

async fn figures(State(state): State<Arc<ServerState>>) -> Response {
    let now = Gauges { spaces: state.open_spaces(), waiting: state.waiting(), ready: state.answers().await };
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], state.metrics.text(&now)).into_response()
}

async fn verb(
    State(state): State<Arc<ServerState>>,
    Path(name): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let (asker, body) = match sent_by(&state, &headers, body).await {
        Ok(sent) => sent,
        Err(answer) => return answer,
    };
    match read_call(if body.is_empty() { b"{}" } else { &body }) {
        Ok(sent) => {
            let ledger = query.get("ledger").and_then(|text| ReadLedger::of(text));
            run(&asker, &name, sent, wait_of(&query), ledger.as_ref()).await
        }
        Err(error) => plain(StatusCode::BAD_REQUEST, &format!("the request cannot be read: {error}")),
    }
}

/// Reads a call. Its parts are objects: a list would be read as fields in order, which no check expects.
fn read_call(body: &[u8]) -> Result<SentCall, String> {
    let sent: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let Some(parts) = sent.as_object() else { return Err("it is no object".to_owned()) };
    if let Some((name, _)) = parts.iter().find(|(name, part)| part.is_array() && *name != "request") {
        return Err(format!("`{name}` is no object"));
    }
    toft_core::json::from_value(&sent).map_err(|error| error.to_string())
}

/// Who sent a request, and what it says: only those who proved who they are can send one.
async fn sent_by(state: &Arc<ServerState>, headers: &HeaderMap, body: Body) -> Result<(Asker, Bytes), Response> {
    let asker = identify(state, headers).await?;
    match timeout(SLOWEST, to_bytes(body, LARGEST)).await {
        Ok(Ok(body)) => Ok((asker, body)),
        Ok(Err(_)) => Err(plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large, or broke off")),
        Err(_) => Err(plain(StatusCode::REQUEST_TIMEOUT, "the request took too long")),
    }
}

fn wait_of(query: &BTreeMap<String, String>) -> Duration {
    let wait = query.get("wait").and_then(|text| text.parse().ok()).unwrap_or(0);
    Duration::from_millis(wait).min(LONGEST_WAIT)
}

async fn run(asker: &Asker, name: &str, mut sent: SentCall, wait: Duration, ledger: Option<&ReadLedger>) -> Response {
    if sent.request.is_null() {
        sent.request = json!({});
    }
    let Asker { space, token } = asker;
    match space.admit(token.clone(), name, sent) {
        Ok(call) => outcome(waiting::run(space, call, wait, ledger).await),
        Err(error) => failure(&error),
    }
}

pub(super) async fn identify(state: &Arc<ServerState>, headers: &HeaderMap) -> Result<Asker, Response> {
    state.identify(headers).await.map_err(|not_taken| match not_taken {
        NotTaken::Unknown => unknown_caller(),
        NotTaken::Protocol(version) => {
            let said = format!("this server speaks protocol {PROTOCOL}, and the request is of protocol {version}");
            plain(StatusCode::BAD_REQUEST, &said)
        }
        NotTaken::Limited => limited(),
        NotTaken::OtherSpace(space) => plain(StatusCode::FORBIDDEN, &format!("this token is for the space {space}")),
        NotTaken::Failed(error) => failure(&error.into()),
    })
}

async fn identify_reader(state: &Arc<ServerState>, headers: &HeaderMap) -> Result<Asker, Response> {
    match identify(state, headers).await? {
        asker if asker.token.role.reads() => Ok(asker),
        _ => Err(plain(StatusCode::FORBIDDEN, "this token reads nothing")),
    }
}

async fn own_token(State(state): State<Arc<ServerState>>, headers: HeaderMap) -> Response {
    match identify(&state, &headers).await {
        Ok(Asker { token, space }) => {
            as_json(StatusCode::OK, &SentToken { name: token.name, role: token.role, space: space.name.clone() })
        }
        Err(answer) => answer,
    }
}

async fn changes(
    State(state): State<Arc<ServerState>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let space = match identify_reader(&state, &headers).await {
        Ok(asker) => asker.space,
        Err(answer) => return answer,
    };
    let mut changes = space.changes();
    let after: Option<u64> = query.get("after").and_then(|text| text.parse().ok());
    let until = tokio::time::Instant::now() + wait_of(&query);
    while after == Some(*changes.borrow_and_update()) && !state.draining() {
        if timeout_at(until, changes.changed()).await.is_err() {
            break;
        }
    }
    let counter = *changes.borrow();
    as_json(StatusCode::OK, &SentChanges { counter })
}

async fn event_stream(
    State(state): State<Arc<ServerState>>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let Asker { space, token } = match identify(&state, &headers).await {
        Ok(asker) => asker,
        Err(answer) => return answer,
    };
    let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let cursor = last.or(query.get("after").map(String::as_str)).and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut request = from_query(&query);
    request.remove("after");
    let sent = SentCall { request: request.into(), ..SentCall::default() };
    let call = match space.admit(token, "log", sent) {
        Ok(call) => call,
        Err(error) => return failure(&error),
    };
    // What is wrong with the question is said before the stream begins.
    match space.run(call.clone()).await {
        Ok(_) => events::stream(space, call, cursor).into_response(),
        Err(error) => failure(&error),
    }
}

async fn keep_blob(
    State(state): State<Arc<ServerState>>,
    Path(blob): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let (Asker { space, token }, body) = match sent_by(&state, &headers, body).await {
        Ok(sent) => sent,
        Err(answer) => return answer,
    };
    if !token.role.may("save") {
        return plain(StatusCode::FORBIDDEN, "this token keeps nothing");
    }
    let Ok(text) = String::from_utf8(body.to_vec()) else {
        return plain(StatusCode::UNPROCESSABLE_ENTITY, "a blob is text");
    };
    if blake3::hash(text.as_bytes()).to_hex().as_str() != blob {
        return plain(StatusCode::UNPROCESSABLE_ENTITY, "that is not the digest of this text");
    }
    let kept = space.pool.run(move |engine| Engine::keep_blob(engine, &blob, &text)).await;
    match kept.map_err(toft_session::error::Error::from).flatten() {
        Ok(()) => as_json(StatusCode::OK, &json!({})),
        Err(error) => failed(error),
    }
}

async fn blob(State(state): State<Arc<ServerState>>, Path(blob): Path<String>, headers: HeaderMap) -> Response {
    let space = match identify_reader(&state, &headers).await {
        Ok(asker) => asker.space,
        Err(answer) => return answer,
    };
    let loaded = space.pool.run(move |engine| Engine::load_blob(engine, &blob)).await;
    match loaded.map_err(toft_session::error::Error::from).flatten() {
        Ok(text) => text.into_response(),
        // Where it would be is nobody's concern.
        Err(_) => plain(StatusCode::NOT_FOUND, "there is no such blob"),
    }
}

fn failed(error: toft_session::error::Error) -> Response {
    use toft_session::error::Error;
    match error {
        Error::Refused(refusal) => failure(&VerbError::from(refusal)),
        Error::Store(error) => failure(&VerbError::from(error)),
        other => plain(StatusCode::INTERNAL_SERVER_ERROR, &other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use toft_core::{store::Access, verbs::calls};

    use super::*;

    #[test]
    fn a_name_for_a_verb_only_reads() {
        for (path, name, _) in RESOURCES {
            let call = calls::find(name).unwrap();
            assert_eq!(call.access, Access::Read, "{path}");
        }
    }

    #[test]
    fn a_query_is_read_as_fields() {
        let query = [("limit", "5"), ("all", "true"), ("name", "x"), ("repository", "rp_1")];
        let query = query.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        let fields = from_query(&query);
        let expected = json!({ "limit": 5, "all": true, "name": "x", "scope": { "repository": "rp_1" } });
        assert_eq!(Value::from(fields), expected);
    }
}
