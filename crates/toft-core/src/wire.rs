//! Wire: how a verb is sent to a server, and what comes back.
//!
//! A caller sends facts about itself and its machine; which of them count is decided by the server, from the token. The
//! two ends may have different versions: every field has a default.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    agent::Role,
    json,
    lease::{Fence, Holder, Liveness, Processes},
    refusal::Refusal,
    repository::Place,
    schema::JsonSchema,
    token::TokenRole,
    verbs::{Operation, Policy},
};

/// The version of the protocol: within 1 there are only additions.
pub const PROTOCOL: &str = "1.0";
/// The header in which both ends name their version of the protocol.
pub const PROTOCOL_HEADER: &str = "toft-protocol";
/// The header in which a client names the space of its address; the token decides.
pub const SPACE_HEADER: &str = "toft-space";
/// The header that names the machine of a request without a caller.
pub const MACHINE_HEADER: &str = "toft-machine";
/// The header with the fence under which a log is written.
pub const FENCE_HEADER: &str = "toft-fence";
/// The header that says where the part of a log that was sent ends.
pub const LOG_END_HEADER: &str = "toft-log-end";
/// The header that says where a ledger ends, as [`LedgerEnd`].
pub const LEDGER_END_HEADER: &str = "toft-ledger-end";
/// The largest bundle of commits, or ledger.
pub const LARGEST_BUNDLE: usize = 64 << 20;
/// The largest piece of a log.
pub const LARGEST_LOG_PIECE: usize = 1 << 20;
/// How long a server holds a request that waits, at most.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A verb, sent to a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SentCall {
    pub caller: SentCaller,
    /// Makes a repeated request return the first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<Operation>,
    /// The verb's request.
    pub request: Value,
}

/// How much of a log a server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SentLogLength {
    pub length: u64,
}

/// Where a server's copy of a ledger ends. It is only added to; a generation is replaced by the next one as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerEnd {
    pub generation: u64,
    pub offset: u64,
}

impl fmt::Display for LedgerEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation, self.offset)
    }
}

impl FromStr for LedgerEnd {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (generation, offset) = text.split_once('.').ok_or(())?;
        Ok(Self { generation: generation.parse().map_err(drop)?, offset: offset.parse().map_err(drop)? })
    }
}

/// How much of a ledger a server has, after something was added or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SentLedger {
    /// A [`LedgerEnd`].
    pub end: String,
    /// Whether what was sent is there; otherwise another clone was faster.
    pub added: bool,
    /// Nothing is added to this generation any more: who has read it replaces it.
    pub over: bool,
    /// In how many pieces the generation is: with many it is time to replace it.
    pub pieces: usize,
}

/// The longest text by which something is found: databases keep an index of such texts.
const LONGEST_KEY: usize = 512;
/// Fields whose texts something is found by.
const KEYS: [&str; 10] =
    ["agent", "capabilities", "host", "id", "issue", "key", "labels", "repository", "requires", "worktree"];
/// The largest number of entries in a list of such texts.
const MOST_KEYS: usize = 200;

impl SentCall {
    /// Refuses what no client of ours sends: a request that is no object, texts that no database keeps, keys that no index
    /// holds.
    pub fn check(&self) -> Result<(), Refusal> {
        let invalid = |field: &str, problem: &str| Refusal::Invalid { field: field.into(), problem: problem.into() };
        if !self.request.is_object() {
            return Err(invalid("request", "it has to be an object"));
        }
        let caller = json::to_value(&self.caller).unwrap_or_default();
        let op = self.op.as_ref().map(|op| serde_json::json!({ "id": op.id, "request": op.request }));
        for (name, value) in [("request", &self.request), ("caller", &caller), ("op", &op.unwrap_or_default())] {
            check_texts(name, value)?;
        }
        Ok(())
    }

    /// No lease outlasts what the server allows, however it is asked for.
    pub fn limit(&mut self, server: &Policy) {
        let most = u64::try_from(server.cap.as_millis()).unwrap_or(u64::MAX);
        for name in ["ttl_ms", "cap_ms"] {
            if self.request[name].as_u64().is_some_and(|asked| asked > most) {
                self.request[name] = most.into();
            }
        }
    }
}

/// Checks every text below a field.
fn check_texts(field: &str, value: &Value) -> Result<(), Refusal> {
    let invalid = |problem: String| Err(Refusal::Invalid { field: field.to_owned(), problem });
    match value {
        Value::String(text) if text.contains('\0') => invalid("a text has no zero byte".to_owned()),
        Value::String(text) if KEYS.contains(&field) && text.len() > LONGEST_KEY => {
            invalid(format!("it has more than {LONGEST_KEY} bytes"))
        }
        Value::Array(values) if KEYS.contains(&field) && values.len() > MOST_KEYS => {
            invalid(format!("it has more than {MOST_KEYS} entries"))
        }
        Value::Array(values) => values.iter().try_for_each(|value| check_texts(field, value)),
        Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
            check_texts(field, &Value::String(name.clone()))?;
            check_texts(name, value)
        }),
        _ => Ok(()),
    }
}

/// Who asks, and from where.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SentCaller {
    /// The agent's name; that of the token if empty.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub agent: String,
    pub place: Place,
    /// The machine, as seen by its processes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The machine, as seen by its disks.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disks: String,
    /// What people call the machine.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// The fences that the caller can prove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Fence>,
    /// Processes of its machine that have ended and that leases follow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<Holder>,
    /// Leases whose agents still run on its machine though the process that the lease follows may have ended.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub running: BTreeSet<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SentPolicy>,
}

/// The settings of a caller; durations in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SentPolicy {
    pub ttl: u64,
    pub cap: u64,
    pub backoff: u64,
    pub backoff_max: u64,
    pub max_attempts: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub verify: Vec<String>,
}

impl From<&Policy> for SentPolicy {
    fn from(policy: &Policy) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            ttl: ms(policy.ttl),
            cap: ms(policy.cap),
            backoff: ms(policy.backoff),
            backoff_max: ms(policy.backoff_max),
            max_attempts: policy.max_attempts,
            verify: policy.verify.clone(),
        }
    }
}

impl SentPolicy {
    /// The settings that count: the caller's, but no lease outlasts those of the server, and nothing is tried for ever.
    #[must_use]
    pub fn within(&self, server: &Policy) -> Policy {
        const MOST_ATTEMPTS: u32 = 100;
        const LONGEST_BACKOFF: Duration = Duration::from_secs(24 * 3_600);
        let or = |ms: u64, default: Duration| if ms == 0 { default } else { Duration::from_millis(ms) };
        Policy {
            ttl: or(self.ttl, server.ttl).min(server.cap),
            cap: or(self.cap, server.cap).min(server.cap),
            backoff: or(self.backoff, server.backoff).min(LONGEST_BACKOFF),
            backoff_max: or(self.backoff_max, server.backoff_max).min(LONGEST_BACKOFF),
            max_attempts: if self.max_attempts == 0 {
                server.max_attempts
            } else {
                self.max_attempts.min(MOST_ATTEMPTS)
            },
            verify: self.verify.clone(),
        }
    }
}

/// The answer to a verb.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SentOutcome {
    /// The verb's outcome.
    pub outcome: Value,
}

/// The answer of a server that was asked for changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentChanges {
    /// A number that is different after every change.
    pub counter: u64,
}

/// Where people log in whom an identity provider knows: what a program needs for OAuth's device flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SentLogin {
    pub issuer: String,
    /// The name of this server at the provider.
    pub client: String,
    pub device_endpoint: String,
    pub token_endpoint: String,
    pub scope: String,
}

/// What a provider says of a person, and the digest of the token that they made for themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SentIdentity {
    pub id_token: String,
    pub digest: String,
}

/// Whose a token is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SentToken {
    pub name: String,
    pub role: TokenRole,
    pub space: String,
}

/// The processes of a machine that is elsewhere: nobody here can tell whether they run.
#[derive(Clone, Debug, Default)]
pub struct DistantProcesses {
    pub host: String,
    pub disks: String,
    /// What people call it.
    pub machine: String,
    /// Processes that their own machine says have ended.
    pub ended: Vec<Holder>,
    /// Leases whose agents still run there.
    pub running: BTreeSet<String>,
}

impl Processes for DistantProcesses {
    fn host(&self) -> &str {
        &self.host
    }

    fn disks(&self) -> &str {
        &self.disks
    }

    fn machine_name(&self) -> &str {
        &self.machine
    }

    fn liveness(&self, holder: &Holder) -> Liveness {
        let told = holder.host == self.host && self.ended.contains(holder);
        if told { Liveness::Dead } else { Liveness::Unknown }
    }

    fn attempts(&self) -> BTreeSet<String> {
        self.running.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_does_not_say_is_the_servers_and_no_lease_outlasts_its_cap() {
        let server = Policy::default();
        let nothing: SentCall = serde_json::from_str("{}").unwrap();
        assert_eq!(nothing.caller, SentCaller::default());
        let own = SentPolicy::from(&Policy { ttl: Duration::from_secs(5), ..Policy::default() });
        assert_eq!(own.within(&server).ttl, Duration::from_secs(5));
        let same = SentPolicy::default().within(&server);
        assert_eq!((same.ttl, same.cap, same.max_attempts), (server.ttl, server.cap, server.max_attempts));
        let greedy = SentPolicy { ttl: u64::MAX, cap: u64::MAX, max_attempts: u32::MAX, ..SentPolicy::default() };
        let greedy = greedy.within(&server);
        assert_eq!((greedy.ttl, greedy.cap, greedy.max_attempts), (server.cap, server.cap, 100));
        let year = serde_json::json!({ "ttl_ms": 31_536_000_000_u64, "cap_ms": 5 });
        let mut claim = SentCall { request: year, ..SentCall::default() };
        claim.limit(&server);
        assert_eq!(claim.request["ttl_ms"], server.cap.as_millis() as u64);
        assert_eq!(claim.request["cap_ms"], 5);
    }

    #[test]
    fn only_the_machine_of_a_process_says_that_it_has_ended() {
        let process = |host: &str| Holder { host: host.into(), boot: "b".into(), pid: 7, started: 1 };
        let told = |host: &str, ended: Vec<Holder>| DistantProcesses {
            host: host.into(),
            ended,
            ..DistantProcesses::default()
        };
        assert_eq!(told("a", vec![process("a")]).liveness(&process("a")), Liveness::Dead);
        assert_eq!(told("a", vec![]).liveness(&process("a")), Liveness::Unknown);
        assert_eq!(told("b", vec![process("a")]).liveness(&process("a")), Liveness::Unknown, "another machine's");
    }
}
