//! The log as a stream of server-sent events: each has its number as id, so a reader goes on where it stopped.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::response::sse::{Event as SentEvent, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde_json::json;
use toft_core::change::Event;
use tokio::time::timeout;

use super::served_space::{AdmittedCall, ServedSpace};

/// Events that are read at once.
const PAGE: usize = 256;
/// A silent stream says this often that it lives.
const ALIVE: Duration = Duration::from_secs(15);

struct EventReader {
    space: Arc<ServedSpace>,
    call: AdmittedCall,
    cursor: u64,
    read: std::vec::IntoIter<Event>,
}

/// Events after `cursor`, and then those that happen. `call` is a call of `log` whose caller was admitted.
pub(super) fn stream(
    space: Arc<ServedSpace>,
    call: AdmittedCall,
    cursor: u64,
) -> Sse<impl Stream<Item = Result<SentEvent, Infallible>>> {
    let reader = EventReader { space, call, cursor, read: Vec::new().into_iter() };
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        let sent = SentEvent::default().id(event.seq.to_string()).event(event.verb.clone());
        let sent = sent.json_data(&event).unwrap_or_default();
        Some((Ok(sent), reader))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE))
}

impl EventReader {
    async fn next(&mut self) -> Option<Event> {
        let mut changes = self.space.changes();
        loop {
            if let Some(event) = self.read.next() {
                self.cursor = event.seq;
                return Some(event);
            }
            if self.space.draining() || !self.space.still_counts(&self.call.token).await {
                return None;
            }
            changes.mark_unchanged();
            let mut call = self.call.clone();
            call.sent.request["after"] = json!(self.cursor);
            call.sent.request["limit"] = json!(PAGE);
            // A reader that cannot be served connects again.
            let found = self.space.run(call).await.ok()?;
            let found: Vec<Event> = toft_core::json::from_value(&found).ok()?;
            if found.is_empty() {
                let _ = timeout(ALIVE, changes.changed()).await;
                continue;
            }
            self.read = found.into_iter();
        }
    }
}
