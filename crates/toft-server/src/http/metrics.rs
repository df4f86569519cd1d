//! Figures of the server, for Prometheus. Labels are verbs and statuses, never ids.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Upper bounds of the times that are counted, in seconds.
const BOUNDS: [f64; 8] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0];

/// What was counted since the server started.
#[derive(Default)]
pub(super) struct Metrics {
    /// By verb and status.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    times: Mutex<BTreeMap<&'static str, VerbTimes>>,
    pub(super) groups: AtomicU64,
    pub(super) group_writes: AtomicU64,
    pub(super) stale_groups: AtomicU64,
    pub(super) limited: AtomicU64,
}

/// How long the requests of a verb took.
#[derive(Default)]
struct VerbTimes {
    /// How many took at most each bound.
    buckets: [u64; BOUNDS.len()],
    count: u64,
    /// How long all took, in seconds.
    sum: f64,
}

/// What is true right now.
pub(super) struct Gauges {
    pub(super) spaces: usize,
    pub(super) waiting: usize,
    pub(super) ready: bool,
}

impl Metrics {
    /// Counts an answer.
    pub(super) fn answered(&self, verb: &'static str, status: u16, took: Duration) {
        *self.requests.lock().unwrap_or_else(PoisonError::into_inner).entry((verb, status)).or_default() += 1;
        let seconds = took.as_secs_f64();
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        let times = times.entry(verb).or_default();
        for (bucket, bound) in times.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
        times.count += 1;
        times.sum += seconds;
    }

    /// Counts a group that was put down, or was stale.
    pub(super) fn group(&self, writes: usize, done: bool) {
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.group_writes.fetch_add(writes as u64, Ordering::Relaxed);
        self.stale_groups.fetch_add(u64::from(!done), Ordering::Relaxed);
    }

    /// Everything in the text format of Prometheus.
    pub(super) fn text(&self, now: &Gauges) -> String {
        let mut out = String::new();
        head(&mut out, "toft_requests_total", "counter", "Answered requests, by verb and status.");
        for ((verb, status), count) in self.requests.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            line(&mut out, "toft_requests_total", &format!("verb=\"{verb}\",status=\"{status}\""), count);
        }
        head(
            &mut out,
            "toft_request_duration_seconds",
            "histogram",
            "Time to answer, by verb; with the time a claim waited.",
        );
        for (verb, VerbTimes { buckets, count, sum }) in
            self.times.lock().unwrap_or_else(PoisonError::into_inner).iter()
        {
            for (bucket, bound) in buckets.iter().zip(BOUNDS) {
                line(
                    &mut out,
                    "toft_request_duration_seconds_bucket",
                    &format!("verb=\"{verb}\",le=\"{bound}\""),
                    bucket,
                );
            }
            line(&mut out, "toft_request_duration_seconds_bucket", &format!("verb=\"{verb}\",le=\"+Inf\""), count);
            line(&mut out, "toft_request_duration_seconds_sum", &format!("verb=\"{verb}\""), sum);
            line(&mut out, "toft_request_duration_seconds_count", &format!("verb=\"{verb}\""), count);
        }
        let counters = [
            ("toft_write_groups_total", "Groups of writes to spaces in memory.", &self.groups),
            ("toft_grouped_writes_total", "Writes in such groups.", &self.group_writes),
            ("toft_stale_groups_total", "Groups that something else was faster than.", &self.stale_groups),
            ("toft_limited_requests_total", "Requests beyond the limit of their token.", &self.limited),
        ];
        for (name, help, count) in counters {
            head(&mut out, name, "counter", help);
            line(&mut out, name, "", &count.load(Ordering::Relaxed));
        }
        let gauges = [
            ("toft_open_spaces", "Spaces with open connections.", now.spaces),
            ("toft_waiting_claims", "Claims that wait for work.", now.waiting),
            ("toft_ready", "Whether the store answers.", usize::from(now.ready)),
        ];
        for (name, help, value) in gauges {
            head(&mut out, name, "gauge", help);
            line(&mut out, name, "", &value);
        }
        out
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, labels: &str, value: &impl std::fmt::Display) {
    let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
    let _ = writeln!(out, "{name}{labels} {value}");
}
