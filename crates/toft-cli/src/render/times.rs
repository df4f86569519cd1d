//! Times for people: local, with how long ago or how far ahead. JSON has RFC 3339 in UTC instead.

use std::time::Duration;

use jiff::Zoned;
use toft::{
    local_time_zone,
    time::{Timestamp, ago, span},
};

/// From here on only the date is told.
const FAR: Duration = Duration::from_secs(60 * 86_400);

/// What the wall clock says.
pub(super) fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

fn local(at: Timestamp) -> Option<Zoned> {
    jiff::Timestamp::from_millisecond(at.0).ok().map(|at| at.to_zoned(local_time_zone()))
}

/// The local time of day.
pub(super) fn clock(at: Timestamp) -> String {
    local(at).map_or_else(|| at.to_string(), |at| at.strftime("%H:%M:%S").to_string())
}

/// A moment: the local time, with the date unless it is today, and how far from `now` that is.
pub(super) fn moment(at: Timestamp, now: Timestamp) -> String {
    let (Some(there), Some(here)) = (local(at), local(now)) else { return at.to_string() };
    let near = if at > now { at.since(now) } else { now.since(at) };
    let day = if there.date() == here.date() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M" };
    let told = there.strftime(day);
    match at > now {
        _ if near >= FAR => told.to_string(),
        true => format!("{told}, in {}", span(near)),
        false => format!("{told}, {}", ago(near)),
    }
}

/// A text of toft's own with every UTC time in it told as a moment.
pub(super) fn tell_times(text: &str, now: Timestamp) -> String {
    let mut told = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, time, after)) = first_time(rest) {
        told.push_str(before);
        told.push_str(&moment(time, now));
        rest = after;
    }
    told.push_str(rest);
    told
}

/// The first time in RFC 3339 and UTC, with the texts around it.
fn first_time(text: &str) -> Option<(&str, Timestamp, &str)> {
    /// `2026-11-16T19:41:11Z`, with up to nine more digits and a point.
    const SHORTEST: usize = 20;
    const LONGEST: usize = 30;
    for (sign, _) in text.match_indices('T') {
        let Some(start) = sign.checked_sub(10).filter(|start| text.is_char_boundary(*start)) else { continue };
        let Some(end) = text.as_bytes()[start..].iter().take(LONGEST).position(|byte| *byte == b'Z') else { continue };
        let end = start + end + 1;
        if end - start < SHORTEST {
            continue;
        }
        if let Ok(at) = text[start..end].parse::<jiff::Timestamp>() {
            return Some((&text[..start], Timestamp(at.as_millisecond()), &text[end..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(1_763_294_400_000);

    #[test]
    fn moments_say_how_far_they_are() {
        assert!(moment(NOON.minus(Duration::from_secs(180)), NOON).ends_with(", 3 min ago"));
        assert!(moment(NOON.plus(Duration::from_secs(2 * 86_400)), NOON).ends_with(", in 2 days"));
        assert!(!moment(NOON.plus(FAR), NOON).contains("in "));
    }

    #[test]
    fn times_in_a_text_are_told_and_nothing_else_is_changed() {
        let told = tell_times("Tü not before 2025-11-16T12:03:00.000Z; THE Z", NOON);
        assert!(told.starts_with("Tü not before ") && told.ends_with(", in 3 min; THE Z"), "{told}");
        assert_eq!(tell_times("TZ T 2025-11-16T12:03:00+01:00 Z", NOON), "TZ T 2025-11-16T12:03:00+01:00 Z");
    }
}
