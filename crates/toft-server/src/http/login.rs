//! Logging in: what an identity provider says of a person is traded for a token.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, to_bytes},
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde_json::json;
use toft_core::{
    login::role_in,
    refusal::VerbError,
    store::StoreError,
    token::Token,
    verbs::token::ForPerson,
    wire::{SPACE_HEADER, SentIdentity, SentToken},
};
use tokio::time::timeout;

use super::{
    answer::{failure, json as as_json, plain},
    server_state::ServerState,
    upkeep::perform_unasked,
};
use crate::{blocking, identity::Person};

/// The largest proof.
const LARGEST: usize = 64 << 10;
/// How long a proof may take to arrive.
const SLOWEST: Duration = Duration::from_secs(10);

/// Where people log in.
pub(super) async fn ask(State(state): State<Arc<ServerState>>) -> Response {
    match &state.identities {
        Some(provider) => as_json(StatusCode::OK, &provider.login()),
        None => plain(StatusCode::NOT_FOUND, "this server knows no identity provider: toft serve --oidc names one"),
    }
}

/// Trades a proof for a token of the space that the address names.
pub(super) async fn trade(State(state): State<Arc<ServerState>>, headers: HeaderMap, body: Body) -> Response {
    let Some(provider) = state.identities.clone() else {
        return plain(StatusCode::NOT_FOUND, "this server knows no identity provider: toft serve --oidc names one");
    };
    let body = timeout(SLOWEST, to_bytes(body, LARGEST)).await.ok().and_then(Result::ok);
    let Some(sent) = body.and_then(|body| serde_json::from_slice::<SentIdentity>(&body).ok()) else {
        return plain(StatusCode::BAD_REQUEST, "the request cannot be read");
    };
    let (proof, checker) = (sent.id_token, provider.clone());
    let checked = blocking::run(move || checker.check(&proof)).await;
    let person = match checked.unwrap_or_else(|| Err("it could not be checked".to_owned())) {
        Ok(person) => person,
        Err(why) => {
            state.log.event("login_refused", json!({ "why": why }));
            return plain(StatusCode::UNAUTHORIZED, &format!("the identity provider's proof does not count: {why}"));
        }
    };
    let first = state.first_name().to_owned();
    let named = headers.get(SPACE_HEADER).and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let space = named.unwrap_or(&first).to_owned();
    if space != first && !state.holds_spaces() {
        return plain(StatusCode::FORBIDDEN, &format!("this server has no space but {first}"));
    }
    let Some(role) = role_in(&provider.rules.roles, &space, &first, &person.values) else {
        let why = format!("{} has no role in the space {space}: ask an admin of this server", person.name);
        state.log.event("login_refused", json!({ "why": why, "subject": person.subject }));
        return plain(StatusCode::FORBIDDEN, &why);
    };
    let Person { name, subject, .. } = person;
    let lives = u64::try_from(provider.rules.lives.as_millis()).unwrap_or(u64::MAX);
    let made = ForPerson { digest: sent.digest, name, role, subject, lives };
    let space = match state.space(space).await {
        Ok(space) => space,
        Err(error) => return failure(&error.into()),
    };
    let done = space.pool.run(move |engine| perform_unasked(engine, &made.name.clone(), made));
    match done.await.map_err(|error: StoreError| VerbError::from(error)).flatten() {
        Ok(Token { name, role, .. }) => {
            state.log.event("login", json!({ "name": name, "role": role, "space": space.name }));
            as_json(StatusCode::OK, &SentToken { name, role, space: space.name.clone() })
        }
        Err(error) => failure(&error),
    }
}
