//! Diffs and logs, which may be long: the page asks for the lines that it shows.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension, Json,
    extract::Query,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use maud::html;
use serde::{Deserialize, Serialize};
use toft::{
    Error,
    text::clean,
    views::{DiffKind, FollowedLog, IssueView, LogLine, RepositorySource},
};

use crate::{BoardState, locked, place::source, read};

/// Lines that are sent at once.
const AT_ONCE: usize = 500;
/// Characters of a line at least, and at most.
const WIDTHS: (usize, usize) = (20, 400);
/// Files of a diff that are listed.
const FILES: usize = 300;
/// Texts that are remembered.
const TEXTS: usize = 8;
/// A diff is made again after this, or when the stores changed.
const DIFF_FRESH: Duration = Duration::from_secs(3);
/// A log is read again after this.
const LOG_FRESH: Duration = Duration::from_millis(500);

/// The lines that a page wants.
#[derive(Debug, Deserialize)]
pub(crate) struct TextQuery {
    kind: TextKind,
    #[serde(default)]
    repository: Option<String>,
    id: String,
    from: usize,
    /// Characters that fit in a line.
    width: usize,
    /// The version that the page has.
    #[serde(default)]
    known: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TextKind {
    Diff,
    Log,
}

#[derive(Serialize)]
struct TextAnswer {
    /// Differs if any line differs.
    version: String,
    /// Lines of the whole text.
    total: usize,
    /// What stands above it.
    head: String,
    /// Files of a diff, and where they begin; for a page that has another version.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<(String, usize)>>,
    from: usize,
    /// HTML.
    lines: Vec<String>,
}

/// What a text is of.
type TextKey = (TextKind, Option<String>, String);

/// Texts that were asked for last.
#[derive(Default)]
pub(crate) struct TextCache(HashMap<TextKey, Arc<std::sync::Mutex<CachedText>>>);

/// A text, wrapped for the width that was asked for last.
struct CachedText {
    used: Instant,
    read: Option<(Instant, u64)>,
    log: FollowedLog,
    head: String,
    lines: Vec<TextLine>,
    width: usize,
    wrapped: Vec<WrappedLine>,
    version: String,
}

/// A line of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TextLine {
    class: &'static str,
    text: String,
    /// The file and line of a diff.
    place: Option<String>,
}

/// A piece of a line that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WrappedLine {
    line: usize,
    start: usize,
    end: usize,
}

pub(crate) async fn text(Extension(state): Extension<Arc<BoardState>>, Query(query): Query<TextQuery>) -> Response {
    match read(&state, move |state| answer(state, &query)).await {
        Ok(Some(answer)) => Json(answer).into_response(),
        Ok(None) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Err(refused) => refused,
    }
}

fn answer(state: &BoardState, query: &TextQuery) -> Result<TextAnswer, Error> {
    let repository = query.repository.clone().filter(|name| !name.is_empty());
    let source = source(&state.views, repository.as_deref())?;
    let cached = locked(&state.texts).get((query.kind, repository, query.id.clone()));
    let mut cached = locked(&cached);
    cached.read(&source, query, *state.changes.borrow())?;
    cached.wrap(query.width.clamp(WIDTHS.0, WIDTHS.1));
    Ok(cached.answer(query.from, &query.known))
}

impl TextCache {
    fn get(&mut self, key: TextKey) -> Arc<std::sync::Mutex<CachedText>> {
        if !self.0.contains_key(&key)
            && self.0.len() >= TEXTS
            && let Some(oldest) = self.0.iter().min_by_key(|(_, text)| locked(text).used).map(|(key, _)| key.clone())
        {
            self.0.remove(&oldest);
        }
        self.0.entry(key).or_default().clone()
    }
}

impl Default for CachedText {
    fn default() -> Self {
        Self {
            used: Instant::now(),
            read: None,
            log: FollowedLog::default(),
            head: String::new(),
            lines: Vec::new(),
            width: 0,
            wrapped: Vec::new(),
            version: String::new(),
        }
    }
}

impl CachedText {
    /// Reads the text again if it may have changed.
    fn read(&mut self, source: &RepositorySource<'_>, query: &TextQuery, change: u64) -> Result<(), Error> {
        self.used = Instant::now();
        let fresh = if query.kind == TextKind::Diff { DIFF_FRESH } else { LOG_FRESH };
        if self.read.is_some_and(|(at, seen)| seen == change && at.elapsed() < fresh) {
            return Ok(());
        }
        let lines = match query.kind {
            TextKind::Diff => {
                let diff = IssueView::diff(source, &query.id)?;
                self.head = diff.summary();
                let line = |line: toft::views::DiffLine| TextLine {
                    class: line.kind.as_str(),
                    text: line.text.replace('\t', "    "),
                    place: line.place,
                };
                diff.lines.into_iter().map(line).collect()
            }
            TextKind::Log => {
                if !self.log.read(source, &query.id)? && self.read.is_some() {
                    self.read = Some((Instant::now(), change));
                    return Ok(());
                }
                self.head = match self.log.dropped() {
                    0 => String::new(),
                    count => format!("{count} earlier entries are not shown"),
                };
                self.log.lines().iter().flat_map(log_lines).collect::<Vec<_>>()
            }
        };
        self.read = Some((Instant::now(), change));
        if lines != self.lines {
            (self.lines, self.width) = (lines, 0);
        }
        Ok(())
    }

    /// Wraps the lines for a width.
    fn wrap(&mut self, width: usize) {
        if self.width == width {
            return;
        }
        self.width = width;
        self.wrapped.clear();
        let mut digest = blake3::Hasher::new();
        for (line, TextLine { class, text, place }) in self.lines.iter().enumerate() {
            for part in [class.as_bytes(), text.as_bytes(), place.as_deref().unwrap_or_default().as_bytes(), b"\n"] {
                digest.update(part);
            }
            let mut start = 0;
            loop {
                let end = text[start..].char_indices().nth(width).map_or(text.len(), |(byte, _)| start + byte);
                self.wrapped.push(WrappedLine { line, start, end });
                if end == text.len() {
                    break;
                }
                start = end;
            }
        }
        digest.update(&width.to_le_bytes());
        digest.finalize().to_hex()[..16].clone_into(&mut self.version);
    }

    /// The files of a diff, and where they begin.
    fn files(&self) -> Vec<(String, usize)> {
        let lines = self.wrapped.iter().enumerate().filter(|(_, part)| part.start == 0);
        let files = lines.filter(|(_, part)| self.lines[part.line].class == DiffKind::File.as_str());
        files.take(FILES).map(|(at, part)| (clean(&self.lines[part.line].text), at)).collect()
    }

    fn answer(&self, from: usize, known: &str) -> TextAnswer {
        let end = self.wrapped.len().min(from.saturating_add(AT_ONCE));
        let from = from.min(end);
        let html = |WrappedLine { line, start, end }: &WrappedLine| {
            let TextLine { class, text, place } = &self.lines[*line];
            let place = place.as_ref().filter(|_| *start == 0);
            html! {
                @if let Some(place) = place {
                    button type="button" tabindex="-1" data-place=(place) aria-label={"Comment on " (clean(place))} { (number(place)) }
                } @else { span.number {} }
                span class=(class) { (clean(&text[*start..*end])) }
            }
            .into_string()
        };
        TextAnswer {
            version: self.version.clone(),
            total: self.wrapped.len(),
            head: self.head.clone(),
            files: (known != self.version).then(|| self.files()),
            from,
            lines: self.wrapped[from..end].iter().map(html).collect(),
        }
    }
}

/// The number of a place.
fn number(place: &str) -> &str {
    place.trim_end_matches(" (removed)").rsplit(':').next().unwrap_or_default()
}

fn log_lines(entry: &LogLine) -> Vec<TextLine> {
    let class = if entry.answer {
        "result"
    } else if entry.sign.is_empty() {
        "message"
    } else {
        "tool"
    };
    let mut lines = Vec::new();
    for (n, text) in entry.text.lines().enumerate() {
        let text = if n == 0 { format!("{}{text}", entry.sign) } else { format!("  {text}") };
        lines.push(TextLine { class, text: text.replace('\t', "    "), place: None });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit_and_nothing_is_lost() {
        let line = |text: &str| TextLine { class: "context", text: text.into(), place: Some("a.rs:7".into()) };
        let mut text = CachedText { lines: vec![line("añb<script>"), line("")], ..CachedText::default() };
        text.wrap(4);
        let pieces: Vec<&str> =
            text.wrapped.iter().map(|part| &text.lines[part.line].text[part.start..part.end]).collect();
        assert_eq!(pieces, ["añb<", "scri", "pt>", ""]);
        let answer = text.answer(0, "");
        assert_eq!((answer.total, answer.lines.len()), (4, 4));
        assert!(answer.lines[0].contains("añb&lt;") && answer.lines[0].contains("data-place=\"a.rs:7\""));
        assert!(!answer.lines[1].contains("data-place"));
        let before = answer.version;
        text.wrap(5);
        assert_ne!(before, text.version);
        assert_eq!(text.answer(99, "").lines.len(), 0);
    }
}
