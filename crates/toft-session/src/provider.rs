//! What a client says when its provider refuses to serve it, and how long the agent rests.
//!
//! Only the lines in which a client reports the end of its own turn are read: an agent may well write about limits and
//! logins without meeting them. The rest of an agent is a file of the user, because an account is a person's, and its
//! limit holds in every repository.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toft_core::{
    flow::{ProviderRefusal, ProviderRefusalKind as Kind},
    time::Timestamp,
};
use toft_store::private;

use crate::{
    config::state_home,
    error::{Error, io},
};

/// Maximum length of the client's words that are kept.
const LONGEST: usize = 300;
/// What clients say, lower case, by kind; the first kind that fits.
const WORDS: [(Kind, &[&str]); 4] = [
    (
        Kind::Login,
        &[
            "unauthorized",
            "unauthenticated",
            "to authenticate",
            "api key not valid",
            "invalid api key",
            "not logged in",
        ],
    ),
    (
        Kind::Quota,
        &["quota exceeded. check", "daily quota", "current quota", "usage limit", "credit balance", "hit your limit"],
    ),
    (Kind::RateLimit, &["rate limit", "too many requests", "resource_exhausted"]),
    (Kind::Overloaded, &["overloaded", "at capacity"]),
];

/// The refusal in a line of a client's stream, if its turn ended with one. `reset` is the time at which the provider
/// serves again, if it said so earlier.
pub(crate) fn refusal(line: &Value, reset: Option<u64>) -> Option<ProviderRefusal> {
    let message = match line["type"].as_str()? {
        "result" if line["is_error"] == true => &line["result"],
        "result" if line["status"] == "error" => &line["error"]["message"],
        "turn.failed" => &line["error"]["message"],
        "error" => [&line["error"]["data"]["message"], &line["error"]["message"], &line["message"]]
            .into_iter()
            .find(|text| text.is_string())?,
        _ => return None,
    };
    let message = message.as_str()?.trim();
    let status = line["api_error_status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let kind = kind(status, message)?;
    let until = reset.and_then(|at| at.checked_sub(now_s())).filter(|seconds| *seconds > 0);
    let wait_s = until.or_else(|| wait(message).map(|wait| wait.as_secs()));
    Some(ProviderRefusal { kind, message: message.chars().take(LONGEST).collect(), wait_s })
}

/// The time at which a provider serves again, from a client's report of its limits.
pub(crate) fn reset(line: &Value) -> Option<u64> {
    let limit = &line["rate_limit_info"];
    (line["type"] == "rate_limit_event" && limit["status"] == "rejected").then(|| limit["resetsAt"].as_u64()).flatten()
}

fn kind(status: Option<u16>, message: &str) -> Option<Kind> {
    let text = message.to_lowercase();
    let number = |number: &str| text.split(|c: char| !c.is_ascii_digit()).any(|word| word == number);
    let said = WORDS.iter().find(|(_, words)| words.iter().any(|word| text.contains(word))).map(|(kind, _)| *kind);
    match status {
        Some(401 | 403) => Some(Kind::Login),
        Some(429) => Some(said.filter(|kind| *kind == Kind::Quota).unwrap_or(Kind::RateLimit)),
        Some(500..) => Some(Kind::Overloaded),
        Some(_) => said.filter(|kind| *kind == Kind::Quota),
        None if said.is_some() => said,
        None if number("401") => Some(Kind::Login),
        None if number("429") => Some(Kind::RateLimit),
        None if ["503", "529"].into_iter().any(number) => Some(Kind::Overloaded),
        None => None,
    }
}

/// How long to wait, from words such as "try again in 1 hour 5 minutes" or "retry in 34.07s".
fn wait(message: &str) -> Option<Duration> {
    let text = message.to_lowercase();
    let from = ["again in ", "retry in ", "resets in "].iter().find_map(|mark| Some(text.find(mark)? + mark.len()))?;
    let mut rest = &text[from..];
    let mut sum = None;
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        let rest_after_and = rest.strip_prefix("and ").unwrap_or(rest);
        let digits = rest_after_and.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest_after_and.len());
        let (number, after) = rest_after_and.split_at(digits);
        let Ok(number) = number.trim_end_matches('.').parse::<f64>() else { return sum };
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let seconds = match unit {
            "ms" | "milliseconds" => 0.001,
            "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600.0,
            "d" | "day" | "days" => 86_400.0,
            _ => return sum,
        };
        // A part of a second is a second.
        let span = Duration::try_from_secs_f64((number * seconds).ceil()).ok()?;
        sum = Some(sum.unwrap_or(Duration::ZERO).saturating_add(span));
        rest = after;
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

fn now_s() -> u64 {
    u64::try_from(now().0 / 1_000).unwrap_or(0)
}

/// An agent that rests because its provider refused it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestingAgent {
    /// The name of its recipe, or of its program.
    pub agent: String,
    pub until: Timestamp,
    /// Number of refusals in a row.
    pub in_a_row: u32,
    #[serde(flatten)]
    pub refusal: ProviderRefusal,
}

fn place() -> PathBuf {
    state_home().join("resting")
}

/// The file of an agent; its name cannot lead elsewhere.
fn file(agent: &str) -> PathBuf {
    let plain: String = agent.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
    place().join(plain)
}

impl RestingAgent {
    /// Notes a refusal; gives how long the agent rests.
    pub fn note(agent: &str, refusal: ProviderRefusal) -> Result<Self, Error> {
        let (now, before) = (now(), Self::read(agent));
        // Slots that were refused at the same time were refused once.
        let again = before.as_ref().filter(|before| before.until > now);
        let in_a_row = match (again, &before) {
            (Some(again), _) => again.in_a_row,
            (None, Some(before)) => before.in_a_row + 1,
            (None, None) => 1,
        };
        let until = now.plus(refusal.rest(in_a_row));
        let until = again.map_or(until, |again| again.until.max(until));
        let resting = Self { agent: agent.to_owned(), until, in_a_row, refusal };
        let (dir, path) = (place(), file(agent));
        private::create_dir_all(&dir).map_err(io("make", &dir))?;
        // A reader sees the file before or after, never half of it.
        let new = path.with_extension(std::process::id().to_string());
        private::write(&new, serde_json::to_vec(&resting).unwrap_or_default()).map_err(io("write", &new))?;
        fs::rename(&new, &path).map_err(io("write", &path))?;
        Ok(resting)
    }

    /// The agent, if it rests now.
    pub fn of(agent: &str) -> Option<Self> {
        Self::read(agent).filter(|resting| resting.until > now())
    }

    /// All agents that rest now.
    pub fn all() -> Vec<Self> {
        let names = fs::read_dir(place()).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut all: Vec<Self> = names
            .filter(|path| path.extension().is_none())
            .filter_map(|path| serde_json::from_slice(&fs::read(path).ok()?).ok())
            .collect();
        all.retain(|resting| resting.until > now());
        all.sort_by(|one, other| one.agent.cmp(&other.agent));
        all
    }

    /// Forgets the refusals of an agent that was served, unless it rests by now: another slot was refused later.
    pub fn served(agent: &str) {
        if Self::of(agent).is_none() {
            // It may never have been there; one that stays only makes the next rest longer.
            let _ = fs::remove_file(file(agent));
        }
    }

    /// Ends the rest of an agent; whether it rested.
    pub fn end(agent: &str) -> Result<bool, Error> {
        let rested = Self::of(agent).is_some();
        match fs::remove_file(file(agent)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io("remove", &file(agent))(error)),
            _ => Ok(rested),
        }
    }

    fn read(agent: &str) -> Option<Self> {
        serde_json::from_slice(&fs::read(file(agent)).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_clients_say_is_understood() {
        let claude = |status: u16, text: &str| json!({ "type": "result", "is_error": true, "api_error_status": status, "result": text });
        let codex = |text: &str| json!({ "type": "turn.failed", "error": { "message": text } });
        let gemini = |text: &str| json!({ "type": "result", "status": "error", "error": { "message": text } });
        for (line, wanted, wait_s) in [
            (
                claude(429, "API Error: Request rejected (429) · This request would exceed your account's rate limit."),
                Kind::RateLimit,
                None,
            ),
            (
                claude(529, "API Error: 529 Overloaded. This is a server-side issue, usually temporary"),
                Kind::Overloaded,
                None,
            ),
            (claude(401, "Failed to authenticate. API Error: 401 OAuth token has expired."), Kind::Login, None),
            (claude(400, "Credit balance is too low"), Kind::Quota, None),
            (codex("exceeded retry limit, last status: 429 Too Many Requests"), Kind::RateLimit, None),
            (codex("Rate limit reached for gpt-5. Please try again in 11.054s."), Kind::RateLimit, Some(12)),
            (codex("Selected model is at capacity. Please try a different model."), Kind::Overloaded, None),
            (codex("Quota exceeded. Check your plan and billing details."), Kind::Quota, None),
            (codex("You’ve hit your usage limit. Try again in 3 days 2 hours 5 minutes."), Kind::Quota, Some(266_700)),
            (codex("unexpected status 401 Unauthorized: Incorrect API key provided: none."), Kind::Login, None),
            (gemini("[API Error: You have exhausted your daily quota on this model.]"), Kind::Quota, None),
            (gemini("[API Error: {\"error\":{\"code\":401,\"message\":\"API key not valid.\"}}]"), Kind::Login, None),
            (gemini("The model is overloaded. Please retry in 34.07s."), Kind::Overloaded, Some(35)),
        ] {
            let refused = refusal(&line, None).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((refused.kind, refused.wait_s), (wanted, wait_s), "{line}");
        }
        for line in [
            codex("stream disconnected before completion"),
            claude(400, "prompt is too long"),
            json!({ "type": "result", "is_error": true, "result": "the test of 4290 rows failed" }),
            json!({ "type": "result", "is_error": false, "result": "wrote a test of the rate limit, 429" }),
            json!({ "type": "assistant", "message": { "content": "429 rate limit" } }),
            json!({ "type": "item.completed", "item": { "type": "error", "message": "429" } }),
        ] {
            assert_eq!(refusal(&line, None), None, "{line}");
        }
        let event = json!({ "type": "rate_limit_event", "rate_limit_info": { "status": "rejected", "resetsAt": now_s() + 500 } });
        let refused = refusal(&claude(429, "limit"), reset(&event)).unwrap();
        assert!(refused.wait_s.is_some_and(|wait| (490..=500).contains(&wait)), "{refused:?}");
        assert_eq!(
            reset(&json!({ "type": "rate_limit_event", "rate_limit_info": { "status": "allowed", "resetsAt": 9 } })),
            None
        );
    }
}
