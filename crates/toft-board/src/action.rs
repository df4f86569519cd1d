//! What a button asks for: an action of an item that is there now, exactly as it was shown.

use std::sync::{Arc, atomic::AtomicBool};

use axum::{
    Extension, Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::json;
use toft::views::{IssueView, RowAction};

use crate::{
    BoardState,
    items::{ListItem, lists},
    locked,
    place::{BoardPlace, PlaceQuery, source},
    waiting,
};

/// What a person wants to be done.
#[derive(Debug, Deserialize)]
pub(crate) struct ActionRequest {
    place: PlaceQuery,
    /// The item; without one, the action belongs to the page.
    #[serde(default)]
    item: Option<String>,
    /// The key of the action.
    action: char,
    /// The command that was shown.
    line: String,
    #[serde(default)]
    said: String,
    /// Comments on lines of a diff: the place, and the text.
    #[serde(default)]
    comments: Vec<(String, String)>,
    /// Only show what would happen.
    #[serde(default)]
    preview: bool,
}

pub(crate) async fn action(
    Extension(state): Extension<Arc<BoardState>>,
    Json(request): Json<ActionRequest>,
) -> Response {
    let Ok(place) = state.commanders.clone().try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "several commands run already; try again").into_response();
    };
    let workers = state.workers.clone();
    let done = waiting(&workers, move || {
        let _place = place;
        if request.action == 'n' && request.said.trim() == "-" {
            return Err("a title has a letter or a digit".to_owned());
        }
        let mut action = find(&state, &request)?;
        let arguments = match request.preview {
            true => action.preview_arguments().ok_or("it has no preview")?,
            false => action.with(request.said.trim()),
        };
        if !locked(&state.running).insert(arguments.clone()) {
            return Err(format!("{} runs already", action.line()));
        }
        let result = (state.runner)(&arguments, &AtomicBool::new(false));
        locked(&state.running).remove(&arguments);
        let allowed = !request.preview || result.succeeded && action.limit_to(&result.text);
        let line = allowed.then(|| action.line());
        Ok(json!({ "succeeded": result.succeeded, "text": result.text, "line": line }))
    });
    match done.await {
        Ok(Ok(answer)) => Json(answer).into_response(),
        Ok(Err(why)) => (StatusCode::CONFLICT, why).into_response(),
        Err(broken) => broken,
    }
}

/// The action that was shown, if it is still there.
fn find(state: &BoardState, request: &ActionRequest) -> Result<RowAction, String> {
    let changed = || "it has changed meanwhile; look again".to_owned();
    let ActionRequest { action: key, line, comments, .. } = request;
    let Some(wanted) = &request.item else {
        let mut found = state.views.actions().into_iter().find(|action| action.key == *key).ok_or_else(changed)?;
        // A preview has named what the command is limited to.
        let same = found.line() == *line || found.limit_to(&format!("  only this: {line}")) && found.line() == *line;
        return same.then_some(found).ok_or_else(changed);
    };
    let place = request.place.clone().place().ok_or("there is no such page")?;
    // A comment on a line is told as the page's own action tells something.
    let shown_key = if *key == 'c' && !comments.is_empty() { 't' } else { *key };
    let lists = lists(&state.views, &place).map_err(|error| error.to_string())?;
    // An issue may be in several lists: what landed before may be queued again.
    let items: Vec<ListItem> =
        lists.into_iter().flat_map(|list| list.items).filter(|item| item.key == *wanted).collect();
    if items.is_empty() {
        return Err("it is not there any more".to_owned());
    }
    let shown = |action: &RowAction| action.key == shown_key && action.line() == *line;
    let found = items.into_iter().flat_map(|item| item.actions).find(shown).ok_or_else(changed)?;
    match (&place, comments.is_empty()) {
        (_, true) => Ok(found),
        (BoardPlace::Issue { repository, id }, false) => {
            let view = source(&state.views, repository.as_deref()).and_then(|source| IssueView::of(&source, id));
            view.map_err(|error| error.to_string())?.commented(*key, comments).ok_or_else(changed)
        }
        (_, false) => Err(changed()),
    }
}
