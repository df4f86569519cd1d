//! Large requests: who may send one, and how many are read at once.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes, to_bytes},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use toft_core::{token::TokenRole, wire::LARGEST_BUNDLE};
use tokio::{sync::SemaphorePermit, time::timeout};

use super::{
    answer::plain,
    routes::identify,
    served_objects::{ServedObjects, UploadCount, no_place, on_its_machine},
    served_space::ServedSpace,
    server_state::{Asker, ServerState},
};

/// A large request that was read. Its memory is counted for as long as this is there.
pub(super) struct Upload<'s> {
    pub(super) space: Arc<ServedSpace>,
    pub(super) kept: &'s ServedObjects,
    pub(super) body: Bytes,
    _count: UploadCount,
    _room: SemaphorePermit<'s>,
}

/// Reads a large request of a token whose role `may` send it.
pub(super) async fn receive<'s>(
    state: &'s Arc<ServerState>,
    headers: &HeaderMap,
    may: fn(TokenRole) -> bool,
    body: Body,
    slowest: Duration,
) -> Result<Upload<'s>, Response> {
    let Asker { space, token } = identify(state, headers).await?;
    if !may(token.role) || !on_its_machine(&token, headers) {
        return Err(plain(StatusCode::FORBIDDEN, "this token may not send that"));
    }
    let kept = state.objects.as_ref().ok_or_else(no_place)?;
    let busy = || plain(StatusCode::SERVICE_UNAVAILABLE, "too much is sent at once");
    let count = kept.admit(&token.digest).ok_or_else(busy)?;
    let room = kept.room.acquire().await.map_err(|_| busy())?;
    let body = match timeout(slowest, to_bytes(body, LARGEST_BUNDLE)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return Err(plain(StatusCode::PAYLOAD_TOO_LARGE, "the request is too large, or broke off")),
        Err(_) => return Err(plain(StatusCode::REQUEST_TIMEOUT, "the request took too long")),
    };
    Ok(Upload { space, kept, body, _count: count, _room: room })
}
