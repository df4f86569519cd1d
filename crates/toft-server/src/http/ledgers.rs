//! Copies of ledgers: every clone of a repository adds its lines and reads those of the others.
//!
//! A copy is text in pieces, each named by its generation and its offset: two writers cannot add at the same place. Lines merge
//! by themselves, where they are read. A generation ends with an empty piece; the next one begins with all that is left of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Deserialize;
use toft_core::{
    token::TokenRole,
    wire::{LEDGER_END_HEADER, LedgerEnd, SentLedger},
};

use super::{
    answer::{json as as_json, plain},
    commits::unknown_repository,
    routes::identify,
    served_objects::{broken, no_place, on_its_machine},
    server_state::{Asker, ServerState},
    upload::{Upload, receive},
};
use crate::objects::Objects;

/// Where ledgers are, below their space.
const LEDGERS: &str = "ledgers";
/// How long lines may take to arrive.
const SLOWEST: Duration = Duration::from_secs(60);
/// The longest generation.
const LONGEST: u64 = 256 << 20;
/// About how much of a ledger is answered at once.
const AT_ONCE: usize = 8 << 20;

/// Adds lines to a ledger where it ends; with `replace`, they are the next generation.
pub(super) async fn append(
    State(state): State<Arc<ServerState>>,
    Path(repository): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let upload = match receive(&state, &headers, TokenRole::writes_ledgers, body, SLOWEST).await {
        Ok(upload) => upload,
        Err(answer) => return answer,
    };
    let Upload { space, kept, body: lines, .. } = &upload;
    if lines.last() != Some(&b'\n') || std::str::from_utf8(lines).is_err() {
        return plain(StatusCode::UNPROCESSABLE_ENTITY, "a ledger is lines of text");
    }
    if let Some(answer) = unknown_repository(space, &repository).await {
        return answer;
    }
    let at = query.get("at").and_then(|text| text.parse().ok()).unwrap_or_default();
    let replace = query.get("replace").is_some_and(|text| text == "true");
    let copy = LedgerCopy { objects: &kept.objects, path: [&space.name, LEDGERS, &repository] };
    let added = match replace {
        true => copy.replace(at, lines.clone()).await,
        false => copy.append(at, lines.clone()).await.map(Some),
    };
    match added {
        Ok(None) => plain(StatusCode::UNPROCESSABLE_ENTITY, "an issue that is there would be lost"),
        Ok(Some(sent)) => {
            if let Some(end) = sent.end.parse().ok().filter(|_| sent.added) {
                space.note_ledger(&repository, end);
            }
            as_json(StatusCode::OK, &sent)
        }
        Err(error) => broken(&state, &error),
    }
}

/// A ledger from where a clone has read it; a header says where it ends. Of another generation it is the whole.
pub(super) async fn load(
    State(state): State<Arc<ServerState>>,
    Path(repository): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    let Asker { space, token } = match identify(&state, &headers).await {
        Ok(asker) => asker,
        Err(answer) => return answer,
    };
    if !token.role.reads_ledgers() || !on_its_machine(&token, &headers) {
        return plain(StatusCode::FORBIDDEN, "this token reads no ledgers");
    }
    let Some(kept) = &state.objects else { return no_place() };
    let after = query.get("after").and_then(|text| text.parse().ok()).unwrap_or_default();
    let copy = LedgerCopy { objects: &kept.objects, path: [&space.name, LEDGERS, &repository] };
    match copy.read(after).await {
        Ok((text, end, newest)) => {
            space.note_ledger(&repository, newest);
            let mut answer = Response::new(Body::from(text));
            answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            if let Ok(end) = HeaderValue::from_str(&end.to_string()) {
                answer.headers_mut().insert(LEDGER_END_HEADER, end);
            }
            answer
        }
        Err(error) => broken(&state, &error),
    }
}

/// The copy of one ledger.
struct LedgerCopy<'o> {
    objects: &'o Objects,
    path: [&'o str; 3],
}

/// The newest generation: where its pieces begin, and how long they are.
#[derive(Default)]
struct Generation {
    number: u64,
    pieces: Vec<(u64, u64)>,
}

impl Generation {
    fn end(&self) -> LedgerEnd {
        let offset = self.pieces.last().map_or(0, |(offset, length)| offset + length);
        LedgerEnd { generation: self.number, offset }
    }

    /// Whether nothing is added any more.
    fn is_over(&self) -> bool {
        self.pieces.last().is_some_and(|(_, length)| *length == 0)
    }

    /// Whether a clone can have read up to there.
    fn reaches(&self, end: LedgerEnd) -> bool {
        let begins = |(offset, _): &(u64, u64)| *offset == end.offset;
        end.generation == self.number && (end == self.end() || self.pieces.iter().any(begins))
    }

    fn refusal(&self) -> SentLedger {
        let over = self.is_over() || self.end().offset > LONGEST;
        SentLedger { end: self.end().to_string(), added: false, over, pieces: self.pieces.len() }
    }
}

impl LedgerCopy<'_> {
    async fn newest(&self) -> io::Result<Generation> {
        let mut newest = Generation::default();
        for (name, size) in self.objects.list_sizes(&self.path).await? {
            let Some(at) = named(&name) else { continue };
            if at.generation > newest.number {
                newest = Generation { number: at.generation, pieces: Vec::new() };
            }
            newest.pieces.push((at.offset, size));
        }
        Ok(newest)
    }

    /// What follows `after`, where that ends, and where all ends. Who has read something else reads all of it.
    async fn read(&self, after: LedgerEnd) -> io::Result<(Vec<u8>, LedgerEnd, LedgerEnd)> {
        let newest = self.newest().await?;
        let from = if newest.reaches(after) { after.offset } else { 0 };
        let (mut text, mut end) = (Vec::new(), LedgerEnd { generation: newest.number, offset: from });
        for (offset, length) in newest.pieces.iter().filter(|(offset, length)| *offset >= from && *length > 0) {
            if text.len() >= AT_ONCE {
                break;
            }
            match self.piece(LedgerEnd { generation: newest.number, offset: *offset }).await? {
                Some(piece) => text.extend(piece),
                // It was replaced meanwhile: what is asked next reads the next generation.
                None => break,
            }
            end.offset = offset + length;
        }
        Ok((text, end, newest.end()))
    }

    async fn piece(&self, begin: LedgerEnd) -> io::Result<Option<Bytes>> {
        let Some((found, _)) = self.objects.get(&self.below(&name_of(begin))).await? else { return Ok(None) };
        to_bytes(found, usize::MAX).await.map(Some).map_err(io::Error::other)
    }

    async fn append(&self, at: LedgerEnd, lines: Bytes) -> io::Result<SentLedger> {
        let (before, length) = (self.newest().await?, lines.len() as u64);
        let fits = at == before.end() && !before.is_over() && at.offset <= LONGEST;
        if !fits || !self.objects.create(&self.below(&name_of(at)), lines).await? {
            return Ok(before.refusal());
        }
        let after = self.newest().await?;
        if after.number != at.generation {
            // Another server replaced it, and deleted the piece in whose place this one is: nobody reads it.
            self.objects.delete(&self.below(&name_of(at))).await?;
            return Ok(after.refusal());
        }
        let end = LedgerEnd { offset: at.offset + length, ..at };
        Ok(SentLedger { end: end.to_string(), added: true, over: false, pieces: after.pieces.len() })
    }

    /// Begins the next generation, if nobody has added anything; the one before is deleted. Every issue stays, at least as a
    /// tombstone.
    async fn replace(&self, at: LedgerEnd, lines: Bytes) -> io::Result<Option<SentLedger>> {
        let before = self.newest().await?;
        if at != before.end() {
            return Ok(Some(before.refusal()));
        }
        let mut there = Vec::new();
        for (offset, _) in &before.pieces {
            there.extend(
                self.piece(LedgerEnd { generation: before.number, offset: *offset }).await?.unwrap_or_default(),
            );
        }
        let stay = issues_in(&lines);
        if !issues_in(&there).is_subset(&stay) {
            return Ok(None);
        }
        if !before.is_over() && !self.objects.create(&self.below(&name_of(at)), Bytes::new()).await? {
            return Ok(Some(before.refusal()));
        }
        let (next, length) = (LedgerEnd { generation: before.number + 1, offset: 0 }, lines.len() as u64);
        if !self.objects.create(&self.below(&name_of(next)), lines).await? {
            return Ok(Some(self.newest().await?.refusal()));
        }
        let newest = self.newest().await?;
        if newest.number != next.generation {
            // Another server replaced it twice meanwhile: nobody reads this one.
            self.objects.delete(&self.below(&name_of(next))).await?;
            return Ok(Some(newest.refusal()));
        }
        for (name, _) in self.objects.list_sizes(&self.path).await? {
            if named(&name).is_some_and(|at| at.generation < next.generation) {
                self.objects.delete(&self.below(&name)).await?;
            }
        }
        let end = LedgerEnd { offset: length, ..next };
        Ok(Some(SentLedger { end: end.to_string(), added: true, over: false, pieces: 1 }))
    }

    fn below<'s>(&'s self, name: &'s str) -> [&'s str; 4] {
        let [space, ledgers, repository] = self.path;
        [space, ledgers, repository, name]
    }
}

/// The ids in lines; what is no line of an issue has none.
fn issues_in(lines: &[u8]) -> BTreeSet<String> {
    #[derive(Deserialize)]
    struct Named {
        id: String,
    }
    let lines = lines.split(|byte| *byte == b'\n');
    lines.filter_map(|line| serde_json::from_slice::<Named>(line).ok()).map(|named| named.id).collect()
}

/// The name of the piece that begins somewhere: in order of names they follow each other.
fn name_of(begin: LedgerEnd) -> String {
    format!("{:010}-{:020}", begin.generation, begin.offset)
}

fn named(name: &str) -> Option<LedgerEnd> {
    let (generation, offset) = name.split_once('-')?;
    Some(LedgerEnd { generation: generation.parse().ok()?, offset: offset.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_where_a_ledger_ends_and_a_generation_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::open(&dir.path().display().to_string()).unwrap();
        let copy = LedgerCopy { objects: &objects, path: ["main", LEDGERS, "rp_1"] };
        let at = |text: &str| text.parse::<LedgerEnd>().unwrap();
        let lines = |text: &str| Bytes::from(text.to_owned());
        let (a, b) = ("{\"id\":\"a\"}\n", "{\"id\":\"b\"}\n");
        let both = format!("{a}{b}");
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            assert_eq!(copy.read(at("0.0")).await.unwrap(), (Vec::new(), at("0.0"), at("0.0")));
            assert_eq!(copy.append(at("0.0"), lines(a)).await.unwrap().end, "0.11");
            let late = copy.append(at("0.0"), lines("late\n")).await.unwrap();
            assert_eq!((late.added, late.over, late.end.as_str()), (false, false, "0.11"));
            assert!(copy.replace(at("0.11"), lines(b)).await.unwrap().is_none(), "an issue would be lost");
            let replaced = copy.replace(at("0.11"), lines(a)).await.unwrap().unwrap();
            assert_eq!((replaced.added, replaced.end.as_str(), replaced.pieces), (true, "1.11", 1));
            // Who read another generation, or more than there is, reads all of it.
            for after in ["0.11", "0.0", "1.5", "1.99", "7.11"] {
                assert_eq!(copy.read(at(after)).await.unwrap(), (a.as_bytes().to_vec(), at("1.11"), at("1.11")));
            }
            assert_eq!(objects.list(&copy.path).await.unwrap().len(), 1, "the one before is gone");
            // A server that ended between the two: nothing is added, and who has read it replaces it.
            assert!(objects.create(&copy.below(&name_of(at("1.11"))), Bytes::new()).await.unwrap());
            let late = copy.append(at("1.11"), lines(b)).await.unwrap();
            assert_eq!((late.added, late.over), (false, true));
            assert_eq!(copy.read(at("0.0")).await.unwrap().0, a.as_bytes());
            let replaced = copy.replace(at("1.11"), lines(&both)).await.unwrap().unwrap();
            assert_eq!((replaced.added, replaced.end.as_str()), (true, "2.22"));
        });
    }
}
