//! A provider that refuses to serve an agent: no failure of the task, and a rest for that agent.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::schema::JsonSchema;

/// The longest rest that is not the provider's own word.
const LONGEST: Duration = Duration::from_secs(3_600);
/// A provider that says more is believed this far.
const BELIEVED: Duration = Duration::from_secs(7 * 86_400);

/// Why a provider refused to serve an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderRefusal {
    pub kind: ProviderRefusalKind,
    /// The client's own words.
    pub message: String,
    /// How long to wait, in seconds, if the provider said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_s: Option<u64>,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderRefusalKind {
    /// Too many requests in a short time.
    RateLimit,
    /// The provider has too much to do.
    Overloaded,
    /// The allowance or the credit is used up.
    Quota,
    /// The login has expired, or the key is not valid: a person must log in.
    Login,
    /// A kind that a newer toft knows.
    #[serde(other)]
    Other,
}

impl ProviderRefusalKind {
    /// The name that people see.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "rate limit",
            Self::Overloaded => "overloaded",
            Self::Quota => "quota used up",
            Self::Login => "login needed",
            Self::Other => "refused",
        }
    }
}

impl ProviderRefusal {
    /// How long its agent rests: as long as the provider said, but longer with each refusal in a row.
    #[must_use]
    pub fn rest(&self, in_a_row: u32) -> Duration {
        let said = self.wait_s.map(|seconds| Duration::from_secs(seconds.max(1)).min(BELIEVED));
        match said {
            Some(said) if in_a_row <= 1 => said,
            said => self.doubled(in_a_row).max(said.unwrap_or_default()),
        }
    }

    fn doubled(&self, in_a_row: u32) -> Duration {
        let first = match self.kind {
            ProviderRefusalKind::RateLimit | ProviderRefusalKind::Overloaded | ProviderRefusalKind::Other => 60,
            ProviderRefusalKind::Quota | ProviderRefusalKind::Login => 15 * 60,
        };
        let doubled = 2_u32.saturating_pow(in_a_row.saturating_sub(1));
        Duration::from_secs(first).saturating_mul(doubled).min(LONGEST)
    }
}

impl std::fmt::Display for ProviderRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "its provider refused ({}): {}", self.kind.as_str(), self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_rests_as_long_as_its_provider_says_or_longer_each_time() {
        let refused = |kind, wait_s| ProviderRefusal { kind, message: "no".into(), wait_s };
        let seconds = |refusal: &ProviderRefusal, row| refusal.rest(row).as_secs();
        let limit = refused(ProviderRefusalKind::RateLimit, None);
        assert_eq!([1, 2, 3, 30].map(|row| seconds(&limit, row)), [60, 120, 240, 3_600]);
        let quota = refused(ProviderRefusalKind::Quota, None);
        assert_eq!([1, 2, 9].map(|row| seconds(&quota, row)), [900, 1_800, 3_600]);
        let said = |wait| seconds(&refused(ProviderRefusalKind::RateLimit, Some(wait)), 1);
        assert_eq!([0, 11, 90_000, u64::MAX].map(said), [1, 11, 90_000, 7 * 86_400]);
        let again = |wait| seconds(&refused(ProviderRefusalKind::RateLimit, Some(wait)), 3);
        assert_eq!([0, 11, 90_000].map(again), [240, 240, 90_000], "a wait that did not help is not enough");
    }
}
