//! Commits that a machine finished, as bundles of git: others land them.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde_json::json;
use toft_core::{
    store::{self, StoreError},
    token::TokenRole,
};

use super::{
    answer::{failure, json as as_json, plain},
    routes::identify,
    served_objects::{broken, no_place, on_its_machine},
    served_space::ServedSpace,
    server_state::{Asker, ServerState},
    upload::{Upload, receive},
};

/// How long a bundle may take to arrive.
const SLOWEST: Duration = Duration::from_secs(300);
/// Where bundles are, below their space.
pub(super) const COMMITS: &str = "commits";
/// How much of a bundle is read to find out what is in it.
const HEAD: usize = 1 << 20;

pub(super) async fn keep(
    State(state): State<Arc<ServerState>>,
    Path((repository, commit)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let upload = match receive(&state, &headers, TokenRole::sends_commits, body, SLOWEST).await {
        Ok(upload) => upload,
        Err(answer) => return answer,
    };
    let Upload { space, kept, body, .. } = &upload;
    if !is_bundle_of(body, &commit) {
        return plain(StatusCode::UNPROCESSABLE_ENTITY, "that is no bundle of this commit");
    }
    if let Some(answer) = unknown_repository(space, &repository).await {
        return answer;
    }
    match kept.objects.put(&[&space.name, COMMITS, &repository, &commit], body.clone()).await {
        Ok(()) => as_json(StatusCode::OK, &json!({})),
        Err(error) => broken(&state, &error),
    }
}

pub(super) async fn load(
    State(state): State<Arc<ServerState>>,
    Path((repository, commit)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    let Asker { space, token } = match identify(&state, &headers).await {
        Ok(asker) => asker,
        Err(answer) => return answer,
    };
    if !token.role.reads_commits() || !on_its_machine(&token, &headers) {
        return plain(StatusCode::FORBIDDEN, "this token reads no commits");
    }
    let Some(kept) = &state.objects else { return no_place() };
    match kept.objects.get(&[&space.name, COMMITS, &repository, &commit]).await {
        Ok(Some((body, size))) => ([(header::CONTENT_LENGTH, HeaderValue::from(size))], body).into_response(),
        Ok(None) => plain(StatusCode::NOT_FOUND, "there is no such commit"),
        Err(error) => broken(&state, &error),
    }
}

/// What is said of a repository that a space does not know.
pub(super) async fn unknown_repository(space: &ServedSpace, repository: &str) -> Option<Response> {
    let asked = repository.to_owned();
    let known = space.pool.run(move |engine| {
        let all = store::ask(engine.store()?, |tx| tx.repositories())?;
        Ok::<_, StoreError>(all.iter().any(|known| known.id.as_str() == asked))
    });
    match known.await.flatten() {
        Ok(true) => None,
        Ok(false) => Some(plain(StatusCode::UNPROCESSABLE_ENTITY, "this space has no such repository")),
        Err(error) => Some(failure(&error.into())),
    }
}

/// Whether a bundle says that it has a commit. Git checks the rest when it is taken.
fn is_bundle_of(body: &Bytes, commit: &str) -> bool {
    let known = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let head = String::from_utf8_lossy(&body[..body.len().min(HEAD)]).into_owned();
    let mut lines = head.lines();
    let first = lines.next().is_some_and(|line| line.starts_with("# v") && line.ends_with(" git bundle"));
    let lines: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let tip = |line: &&str| line.strip_prefix(commit).is_some_and(|rest| rest.starts_with(' '));
    // One without its files would be asked for them somewhere else.
    let whole = !lines.iter().any(|line| line.starts_with("@filter"));
    known && first && whole && lines.iter().any(tip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_names_its_commit() {
        let commit = "0123456789012345678901234567890123456789";
        let bundle = |text: &str| is_bundle_of(&Bytes::from(text.to_owned()), commit);
        assert!(bundle(&format!("# v2 git bundle\n-{}\n{commit} refs/toft/queue/x\n\nPACK", "a".repeat(40))));
        assert!(!bundle(&format!("# v2 git bundle\n-{commit} it needs this\n\nPACK")));
        assert!(!bundle(&format!("# v2 git bundle\n\n{commit} refs/heads/main\n")));
        assert!(!bundle(commit));
        assert!(!is_bundle_of(&Bytes::from("# v2 git bundle\n../x refs/heads/main\n"), "../x"));
    }
}
