//! Wall-clock timestamps for people, and a lease clock that is not affected by a laptop's sleep or a clock step.
//!
//! Nothing here reads a clock: the store provides the time ([`Now`]), and rules compare.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Milliseconds since 1970, shown as RFC 3339 in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

/// The last moment that can be written, in milliseconds: the end of the year 9999, less a day for time zones.
const LAST: i64 = 253_402_128_000_000;

impl Timestamp {
    /// Whether it was never set.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    /// Earlier by a span.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }

    /// This much later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)).min(LAST.max(self.0)))
    }

    /// How long after `earlier`; nothing if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        jiff::Timestamp::from_str(&text).map(|at| Self(at.as_millisecond())).map_err(de::Error::custom)
    }
}

/// The store's clocks: the wall clock for people, and a tick for leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Now {
    /// Wall-clock time.
    pub wall: Timestamp,
    /// The lease clock.
    pub tick: Tick,
}

/// A point on a monotonic clock.
///
/// Ticks of one epoch (a boot, or a database server) compare exactly; across epochs only the wall clock is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The clock: the machine's boot id, or the database's own.
    pub epoch: String,
    /// Milliseconds on that clock.
    pub ms: i64,
}

impl Now {
    /// Time passed since a tick that was taken when the wall said `wall`.
    #[must_use]
    pub fn since(&self, tick: &Tick, wall: Timestamp) -> Duration {
        if tick.epoch == self.tick.epoch {
            Duration::from_millis(self.tick.ms.saturating_sub(tick.ms).max(0) as u64)
        } else {
            self.wall.since(wall)
        }
    }
}

/// Serde of a duration: whole milliseconds.
pub mod as_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes milliseconds.
    pub fn serialize<S: Serializer>(span: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(span.as_millis().try_into().unwrap_or(u64::MAX))
    }

    /// Reads milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

/// Serde of a duration that may be left out: whole milliseconds.
pub mod as_optional_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Writes milliseconds.
    pub fn serialize<S: Serializer>(span: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => super::as_millis::serialize(span, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

/// A duration as whole milliseconds.
#[must_use]
pub fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// How long ago something was, as a person would say it.
#[must_use]
pub fn ago(past: Duration) -> String {
    if past.as_secs() < 60 { "just now".to_owned() } else { format!("{} ago", span(past)) }
}

/// A span of time in the unit that a person would use.
#[must_use]
pub fn span(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..7_170 => format!("{} min", (seconds + 30) / 60),
        seconds @ 7_170..171_000 => format!("{} h", (seconds + 1_800) / 3_600),
        seconds => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// Reads `90s`, `30m`, `2h`, `1d`, `250ms`, or a bare number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is not a duration; write 90s, 30m, 2h or 1d"))?;
    let factor = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(format!("`{unit}` is not a unit of time; write 90s, 30m, 2h or 1d")),
    };
    number
        .checked_mul(factor)
        .filter(|ms| *ms <= 3_650 * 86_400_000)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is longer than ten years"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_unit_that_a_person_would_use() {
        let told = [5, 61, 7_200, 172_800].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(told, ["5 s", "1 min", "2 h", "2 days"]);
        assert_eq!(ago(Duration::from_secs(59)), "just now");
        assert_eq!(ago(Duration::from_secs(180)), "3 min ago");
    }

    #[test]
    fn timestamps_read_back_what_they_print() {
        let at = Timestamp(1_763_172_000_123);
        let text = serde_json::to_string(&at).unwrap();
        assert_eq!(text, "\"2025-11-15T02:00:00.123Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>(&text).unwrap(), at);
    }

    #[test]
    fn durations_take_the_usual_units() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2h"), Ok(Duration::from_secs(7_200)));
        assert_eq!(parse_duration("7"), Ok(Duration::from_secs(7)));
        assert!(parse_duration("soon").is_err());
        assert!(parse_duration("99999999999d").is_err());
    }

    #[test]
    fn a_clock_jump_does_not_age_a_tick_of_the_same_epoch() {
        let tick = Tick { epoch: "boot".into(), ms: 1_000 };
        let now = Now { wall: Timestamp(86_400_000), tick: Tick { epoch: "boot".into(), ms: 1_500 } };
        assert_eq!(now.since(&tick, Timestamp(0)), Duration::from_millis(500));
    }
}
