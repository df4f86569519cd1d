//! Traces: a span for each request, with what it waited for, sent to a collector as OTLP over HTTP, in JSON.

use std::{
    cell::RefCell,
    future::Future,
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::server_log::ServerLog;
use crate::objects::connector::agent;

/// The header and the variable that name the span which a request belongs to.
pub(super) const TRACEPARENT: &str = "traceparent";
/// Requests whose spans wait to be sent; more are left out.
const WAITING: usize = 4_096;
/// Requests whose spans are sent together, and how long the first of them waits.
const TOGETHER: usize = 512;
const PAUSE: Duration = Duration::from_secs(2);
/// How long a collector may take.
const ANSWER: Duration = Duration::from_secs(5);
/// Kinds of spans: of a server, and within it.
const SERVER: u8 = 2;
const INTERNAL: u8 = 1;

tokio::task_local! {
    /// The parts of the request that this task answers.
    static PARTS: RefCell<Vec<RequestPart>>;
}

/// A part of a request, and how long it took.
pub(super) struct RequestPart {
    name: &'static str,
    begun: Instant,
    took: Duration,
}

/// A request that was answered.
pub(super) struct TracedRequest {
    pub(super) name: String,
    /// What the header says.
    pub(super) parent: Option<String>,
    pub(super) begun: Instant,
    pub(super) took: Duration,
    pub(super) status: u16,
    pub(super) space: String,
    pub(super) parts: Vec<RequestPart>,
}

/// Sends spans to a collector.
pub(super) struct Traces(SyncSender<TracedRequest>);

impl Traces {
    /// Begins to send to a collector, such as `http://127.0.0.1:4318`.
    pub(super) fn to(collector: &str, log: ServerLog) -> Self {
        let (send, taken) = sync_channel(WAITING);
        let url = format!("{}/v1/traces", collector.trim_end_matches('/'));
        thread::spawn(move || send_again_and_again(&url, log, &taken));
        Self(send)
    }

    /// Notes a request. If the collector is too slow, it is left out.
    pub(super) fn note(&self, request: TracedRequest) {
        let _ = self.0.try_send(request);
    }
}

/// Answers a request; returns its parts, too.
pub(super) async fn with_parts<T>(answer: impl Future<Output = T>) -> (T, Vec<RequestPart>) {
    PARTS
        .scope(RefCell::default(), async {
            let answer = answer.await;
            (answer, PARTS.with(RefCell::take))
        })
        .await
}

/// Runs a part of a request.
pub(super) async fn part<T>(name: &'static str, work: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = work.await;
    // Outside of a request nobody asks.
    let _ = PARTS.try_with(|parts| parts.borrow_mut().push(RequestPart { name, begun, took: begun.elapsed() }));
    done
}

fn send_again_and_again(url: &str, log: ServerLog, taken: &Receiver<TracedRequest>) {
    let (agent, mut failed) = (agent(ANSWER), false);
    while let Ok(first) = taken.recv() {
        let until = Instant::now() + PAUSE;
        let mut requests = vec![first];
        while requests.len() < TOGETHER {
            match taken.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(next) => requests.push(next),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let body = document(&requests).to_string();
        let sent = agent.post(url).header("content-type", "application/json").send(body);
        let trouble = match sent {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(answer.status().to_string()),
            Err(error) => Some(error.to_string()),
        };
        // Said once, until it works again.
        if let Some(error) = trouble.as_ref().filter(|_| !failed) {
            log.event("traces_failed", json!({ "collector": url, "error": error }));
        }
        failed = trouble.is_some();
    }
}

/// Spans as a collector takes them.
fn document(requests: &[TracedRequest]) -> Value {
    let clock = (Instant::now(), SystemTime::now());
    let spans: Vec<Value> = requests.iter().flat_map(|request| spans_of(request, clock)).collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": [text("service.name", "toft"), text("service.version", env!("CARGO_PKG_VERSION"))] },
        "scopeSpans": [{ "scope": { "name": "toft" }, "spans": spans }],
    }] })
}

fn spans_of(request: &TracedRequest, clock: (Instant, SystemTime)) -> Vec<Value> {
    let parent = request.parent.as_deref().and_then(parent_of);
    let (trace, own) = (parent.map_or_else(|| random(16), |(trace, _)| trace.to_owned()), random(8));
    let mut whole = span(&trace, &own, &request.name, SERVER, (request.begun, request.took), clock);
    if let Some((_, parent)) = parent {
        whole["parentSpanId"] = parent.into();
    }
    whole["attributes"] = json!([
        { "key": "http.response.status_code", "value": { "intValue": request.status.to_string() } },
        text("toft.space", &request.space),
    ]);
    if request.status >= 500 {
        whole["status"] = json!({ "code": 2 });
    }
    let parts = request.parts.iter().map(|part| {
        let mut inner = span(&trace, &random(8), part.name, INTERNAL, (part.begun, part.took), clock);
        inner["parentSpanId"] = own.as_str().into();
        inner
    });
    std::iter::once(whole.clone()).chain(parts).collect()
}

fn span(
    trace: &str,
    id: &str,
    name: &str,
    kind: u8,
    (begun, took): (Instant, Duration),
    (now, wall): (Instant, SystemTime),
) -> Value {
    let begun = wall.checked_sub(now.saturating_duration_since(begun)).unwrap_or(wall);
    let nanos = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string();
    json!({
        "traceId": trace, "spanId": id, "name": name, "kind": kind,
        "startTimeUnixNano": nanos(begun), "endTimeUnixNano": nanos(begun + took),
    })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Trace and span of a `traceparent`: `00-TRACE-SPAN-FLAGS`.
fn parent_of(text: &str) -> Option<(&str, &str)> {
    let mut parts = text.split('-');
    let (version, trace, span) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
            && text.bytes().any(|byte| byte != b'0')
    };
    (version.len() == 2 && version != "ff" && hex(trace, 32) && hex(span, 16)).then_some((trace, span))
}

/// So many random bytes, as hexadecimal digits.
fn random(bytes: usize) -> String {
    let mut random = vec![0_u8; bytes];
    // Without randomness it is the invalid id, and the collector leaves it out.
    let _ = getrandom::fill(&mut random);
    random.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_continues_the_trace_that_it_names() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        assert_eq!(parent_of(&format!("00-{trace}-{span}-01")), Some((trace, span)));
        for wrong in ["", "00-x-y-01", &format!("ff-{trace}-{span}-01"), &format!("00-{}-{span}-01", "0".repeat(32))] {
            assert_eq!(parent_of(wrong), None, "{wrong}");
        }
        let part = RequestPart { name: "store", begun: Instant::now(), took: Duration::from_millis(1) };
        let request = TracedRequest {
            name: "claim".into(),
            parent: Some(format!("00-{trace}-{span}-01")),
            begun: Instant::now(),
            took: Duration::from_millis(2),
            status: 503,
            space: "main".into(),
            parts: vec![part],
        };
        let spans = document(&[request])["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
        assert_eq!((&spans[0]["traceId"], &spans[0]["parentSpanId"]), (&json!(trace), &json!(span)));
        assert_eq!(spans[1]["parentSpanId"], spans[0]["spanId"]);
        assert_eq!(spans[0]["status"]["code"], 2);
    }
}
