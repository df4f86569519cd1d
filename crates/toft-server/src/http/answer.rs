//! Answers: what a verb says, as HTTP.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::Value;
use toft_core::{
    refusal::{Refusal, SentError, VerbError},
    store::StoreError,
    wire::{PROTOCOL, PROTOCOL_HEADER, SentOutcome},
};

/// Seconds after which a caller may ask again.
const AGAIN: &str = "1";

/// A value as JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(PROTOCOL_HEADER, HeaderValue::from_static(PROTOCOL));
    answer
}

/// The outcome of a verb.
pub(super) fn outcome(done: Result<Value, VerbError>) -> Response {
    match done {
        Ok(outcome) => json(StatusCode::OK, &SentOutcome { outcome }),
        Err(error) => failure(&error),
    }
}

/// Why a verb was not done.
pub(super) fn failure(error: &VerbError) -> Response {
    let status = match error {
        VerbError::Refused(refusal) => match refusal {
            Refusal::NotFound { .. } | Refusal::NothingReady { .. } => StatusCode::NOT_FOUND,
            Refusal::Invalid { .. } | Refusal::Ambiguous { .. } => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::NotAllowed { .. } | Refusal::TokenDenied { .. } => StatusCode::FORBIDDEN,
            _ => StatusCode::CONFLICT,
        },
        VerbError::Failed(
            StoreError::Busy { .. }
            | StoreError::Unreachable { .. }
            | StoreError::OutcomeUnknown { .. }
            // Another server may know the schema.
            | StoreError::Newer { .. },
        ) => StatusCode::SERVICE_UNAVAILABLE,
        VerbError::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut answer = json(status, &SentError::from(error));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(AGAIN));
    }
    answer
}

/// Nobody proved who asks.
pub(super) fn unknown_caller() -> Response {
    let error = SentError {
        refused: true,
        message: "the server does not know this token".to_owned(),
        error: serde_json::json!({ "code": "unknown_token" }),
    };
    let mut answer = json(StatusCode::UNAUTHORIZED, &error);
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

/// The token asks more often than it may.
pub(super) fn limited() -> Response {
    let mut answer = plain(StatusCode::TOO_MANY_REQUESTS, "this token asks more often than this server allows");
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(AGAIN));
    answer
}

/// A short word with a status, for callers that sent nonsense.
pub(super) fn plain(status: StatusCode, message: &str) -> Response {
    let error = SentError { refused: true, message: message.to_owned(), error: Value::Null };
    json(status, &error).into_response()
}
