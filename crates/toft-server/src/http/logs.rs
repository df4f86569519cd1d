//! Logs of agents on other machines, which grow while they work.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde_json::json;
use toft_core::{
    lease::Fence,
    wire::{FENCE_HEADER, LARGEST_LOG_PIECE, LOG_END_HEADER, MACHINE_HEADER, SentCall, SentCaller, SentLogLength},
};

use tokio::time::timeout;

use super::{
    answer::{failure, json as as_json, plain},
    routes::identify,
    served_objects::{broken, no_place},
    server_state::{Asker, ServerState},
};

/// Where logs are, below their space.
pub(super) const LOGS: &str = "logs";
/// How long a piece may take to arrive.
const SLOWEST: Duration = Duration::from_secs(30);
/// The longest log.
const LONGEST: u64 = 64 << 20;
/// About how much of a log is answered at once.
const AT_ONCE: usize = 8 << 20;

/// Adds to the log of an attempt, at the place where it ends. Only who holds the task can.
pub(super) async fn append(
    State(state): State<Arc<ServerState>>,
    Path((task, number)): Path<(String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Asker { space, token } = match identify(&state, &headers).await {
        Ok(asker) => asker,
        Err(answer) => return answer,
    };
    let said = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let fence = said(FENCE_HEADER).and_then(|text| text.parse::<Fence>().ok());
    let Some(fence) = fence.filter(|fence| fence.number.to_string() == number) else {
        return plain(StatusCode::UNPROCESSABLE_ENTITY, "the fence of this attempt is missing");
    };
    if !token.role.may("save") {
        return plain(StatusCode::FORBIDDEN, "this token writes no logs");
    }
    let caller = SentCaller { disks: said(MACHINE_HEADER).unwrap_or_default().to_owned(), ..SentCaller::default() };
    let request = json!({ "holds": [[task, fence.to_string()]] });
    let look = SentCall { caller, request, ..SentCall::default() };
    let live = match space.admit(token, "lease.live", look) {
        Ok(call) => space.run(call).await,
        Err(error) => return failure(&error),
    };
    let Some(kept) = &state.objects else { return no_place() };
    let held = format!("{}/{task}/{fence}", space.name);
    match live {
        Ok(live) if live.as_array().is_some_and(|live| !live.is_empty()) => kept.note_live(held),
        Ok(_) if kept.was_live(&held) => {}
        Ok(_) => return plain(StatusCode::CONFLICT, "that lease is over"),
        Err(error) => return failure(&error),
    }
    let path = [space.name.as_str(), LOGS, &task, &number];
    let offset: u64 = query.get("offset").and_then(|text| text.parse().ok()).unwrap_or(0);
    let Ok(Ok(piece)) = timeout(SLOWEST, to_bytes(body, LARGEST_LOG_PIECE)).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the piece is too large, too slow, or broke off");
    };
    let mut length = kept.length(&path).await;
    if length.as_ref().is_ok_and(|length| *length != offset) {
        kept.forget_length(&path);
        length = kept.length(&path).await;
    }
    let length = match length {
        Ok(length) => length,
        Err(error) => return broken(&state, &error),
    };
    // What was sent before, or does not fit to it, is not added: the sender is told where to go on.
    if offset != length || piece.is_empty() || length + piece.len() as u64 > LONGEST {
        return as_json(StatusCode::OK, &SentLogLength { length });
    }
    // The sender has masked it with what it knows; this server knows secrets of its own.
    let masked = state.mask.mask(&String::from_utf8_lossy(&piece));
    match kept.append(&path, offset, piece.len() as u64, masked.into()).await {
        Ok(length) => as_json(StatusCode::OK, &SentLogLength { length }),
        Err(error) => broken(&state, &error),
    }
}

/// The log of an attempt from an offset on; a header says where it ends.
pub(super) async fn load(
    State(state): State<Arc<ServerState>>,
    Path((task, number)): Path<(String, String)>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let Asker { space, token } = match identify(&state, &headers).await {
        Ok(asker) => asker,
        Err(answer) => return answer,
    };
    if !token.role.reads_logs() {
        return plain(StatusCode::FORBIDDEN, "this token reads no logs");
    }
    let Some(kept) = &state.objects else { return no_place() };
    let offset: u64 = query.get("offset").and_then(|text| text.parse().ok()).unwrap_or(0);
    let path = [space.name.as_str(), LOGS, &task, &number];
    let pieces = match kept.pieces(&path).await {
        Ok(pieces) => pieces,
        Err(error) => return broken(&state, &error),
    };
    let mut text = Vec::new();
    let mut end = offset;
    for piece in pieces.into_iter().filter(|piece| piece.offset >= offset) {
        if text.len() >= AT_ONCE {
            break;
        }
        match kept.piece(&path, &piece).await {
            Ok(content) => text.extend(content),
            Err(error) => return broken(&state, &error),
        }
        end = piece.offset + piece.length;
    }
    let mut answer = Response::new(Body::from(text));
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer.headers_mut().insert(LOG_END_HEADER, HeaderValue::from(end));
    answer
}
