//! Tokens: who may ask a server what.
//!
//! A token is a secret that its owner keeps; a store knows its digest only. A token has a role, which verbs it may send, and
//! a name, under which it acts: nobody takes another's name.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    agent::Role, id::TaskId, landing::Landing, lease::Fence, refusal::Refusal, schema::JsonSchema, time::Timestamp,
    wire::SentCall,
};

/// How every token begins, so that scanners of secrets know one.
pub const TOKEN_PREFIX: &str = "toft_";

/// A token, without its secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Token {
    /// The digest of its secret.
    pub digest: String,
    /// Its owner: an agent, a machine or a person. Agents of the owner are called so, or begin so and with `-`.
    pub name: String,
    pub role: TokenRole,
    /// The machine that alone may use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The one task that it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<TokenJob>,
    pub created: Timestamp,
    /// Who made it.
    pub by: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Timestamp>,
}

/// The task of a token that a running agent has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenJob {
    pub task: TaskId,
    /// The lease: the token ends with it.
    pub fence: Fence,
}

/// What a token may do, from least to most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    /// Nothing but being traded for a token of a machine, once.
    Join,
    /// One task, while its lease is live.
    Job,
    /// Reads.
    #[default]
    Viewer,
    /// Takes tasks and works on them.
    Worker,
    /// Makes plans, answers questions, lands work and stops agents.
    Planner,
    /// Everything, tokens too.
    Admin,
}

impl TokenRole {
    /// Every role, from least to most.
    pub const ALL: [Self; 6] = [Self::Join, Self::Job, Self::Viewer, Self::Worker, Self::Planner, Self::Admin];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Job => "job",
            Self::Viewer => "viewer",
            Self::Worker => "worker",
            Self::Planner => "planner",
            Self::Admin => "admin",
        }
    }

    /// The role with this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Whether a token with this role may send this verb.
    #[must_use]
    pub fn may(self, verb: &str) -> bool {
        match self {
            Self::Join => verb == "token.join",
            Self::Job => OF_A_JOB.contains(&verb),
            role => needed(verb) <= role,
        }
    }

    /// Whether such a token reads anything.
    #[must_use]
    pub fn reads(self) -> bool {
        self != Self::Join
    }

    /// Whether such a token sends commits that were finished.
    #[must_use]
    pub fn sends_commits(self) -> bool {
        self.may("finish")
    }

    /// Whether such a token reads commits of others.
    #[must_use]
    pub fn reads_commits(self) -> bool {
        self >= Self::Worker
    }

    /// Whether such a token reads the ledgers of repositories.
    #[must_use]
    pub fn reads_ledgers(self) -> bool {
        self >= Self::Viewer
    }

    /// Whether such a token adds to the ledgers of repositories.
    #[must_use]
    pub fn writes_ledgers(self) -> bool {
        self >= Self::Worker
    }

    /// Whether such a token reads the logs of agents.
    #[must_use]
    pub fn reads_logs(self) -> bool {
        self >= Self::Viewer
    }

    /// The role that an agent has under such a token, if it says that it has `claimed`; the registered one if absent.
    #[must_use]
    pub fn agent_role(self, claimed: Option<Role>) -> Option<Role> {
        match (self, claimed) {
            (Self::Admin, claimed) => claimed,
            (Self::Planner, Some(role @ (Role::Human | Role::Worker))) => Some(role),
            (Self::Planner, _) => Some(Role::Coordinator),
            _ => Some(Role::Worker),
        }
    }
}

impl fmt::Display for TokenRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Verbs of the token of a running agent: all are about its own task.
const OF_A_JOB: [&str; 21] = [
    "clock",
    "context",
    "finish",
    "inbox",
    "issue.note",
    "issue.pending",
    "issue.pending_repositories",
    "land.row",
    "lease.live",
    "peek",
    "renew",
    "repositories",
    "save",
    "send",
    "show",
    "task.attempts",
    "task.letters",
    "task.named",
    "task.row",
    "worktrees",
    "ws.show",
];

/// Verbs that write and that a worker needs for its work.
const OF_A_WORKER: [&str; 25] = [
    "agent.register",
    "claim",
    "finish",
    "flow.add",
    "inbox",
    "issue.contest",
    "issue.note",
    "issue.told",
    "land.record_check",
    "lease.processes",
    "op.remember",
    "renew",
    "report",
    "save",
    "send",
    "stop.obey",
    "sweep",
    "token.job",
    "undo.done",
    "visit",
    "ws.landed",
    "ws.move",
    "ws.pin",
    "ws.provide",
    "ws.unregister",
];

/// Verbs for those who run the server.
const OF_AN_ADMIN: [&str; 4] = ["gc", "token.create", "token.list", "token.revoke"];

/// The least role that may send a verb.
fn needed(verb: &str) -> TokenRole {
    let read = crate::verbs::calls::find(verb).is_some_and(|call| call.access == crate::store::Access::Read);
    match verb {
        _ if OF_AN_ADMIN.contains(&verb) => TokenRole::Admin,
        _ if OF_A_WORKER.contains(&verb) => TokenRole::Worker,
        _ if read => TokenRole::Viewer,
        _ => TokenRole::Planner,
    }
}

/// The caller, as its token bears out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    pub agent: String,
    /// The role; the registered one if absent.
    pub role: Option<Role>,
}

impl TokenJob {
    /// Whether a request is about this task, and about the lease where it needs one.
    fn covers(&self, verb: &str, request: &Value) -> bool {
        let (task, fence) = (self.task.as_str(), self.fence.to_string());
        let is_task = |value: &Value| value.as_str() == Some(task);
        let own_fence = request["fence"].as_str() == Some(&fence);
        let own_pair = json!([task, fence]);
        let is_own = |all: &Vec<Value>| !all.is_empty() && all.iter().all(|pair| *pair == own_pair);
        let pairs = |all: &Value| all.as_array().is_some_and(is_own);
        match verb {
            "finish" | "save" => own_fence && (request["id"].is_null() || is_task(&request["id"])),
            "renew" | "lease.live" => pairs(&request["holds"]),
            "send" => own_fence && (request["task"].is_null() || is_task(&request["task"])),
            "show" | "context" | "ws.show" => is_task(&request["id"]),
            "task.row" | "task.attempts" | "task.letters" => is_task(&request["task"]),
            // What a name means is no secret; what it names is asked for with the whole id.
            "task.named" | "clock" | "repositories" | "worktrees" => true,
            "issue.pending" | "issue.pending_repositories" => true,
            // What it wrote in its ledger; that an issue is closed is for others to say.
            "issue.note" => matches!(request["what"].as_str(), Some("issue.added" | "issue.edited")),
            "land.row" => request["landing"].as_str() == Some(Landing::id_of(&self.task).as_str()),
            "inbox" | "peek" => request["human"] != true && (request["task"].is_null() || is_task(&request["task"])),
            _ => false,
        }
    }
}

impl Token {
    /// Whether it counts at this time.
    #[must_use]
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.expires.is_none_or(|expires| now < expires)
    }

    /// Whether it may act as an agent of this name.
    #[must_use]
    pub fn owns(&self, agent: &str) -> bool {
        agent == self.name || agent.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with('-'))
    }

    /// Who asks with this token, if it allows the call. The caller's own words count only as far as the token bears them out.
    pub fn admit(&self, verb: &str, call: &SentCall) -> Result<Admitted, Refusal> {
        let denied = |why: String| Refusal::TokenDenied { name: self.name.clone(), role: self.role, why };
        if !self.role.may(verb) {
            return Err(denied(format!("`{verb}` needs the role {}", needed(verb))));
        }
        let caller = &call.caller;
        if self.host.as_ref().is_some_and(|host| *host != caller.disks) {
            return Err(denied("it belongs to another machine".to_owned()));
        }
        let agent = if caller.agent.is_empty() { &self.name } else { &caller.agent };
        // An admin could make itself a token of any name.
        if self.role != TokenRole::Admin && !self.owns(agent) {
            return Err(denied(format!("it may not act as `{agent}`")));
        }
        if let Some(job) = &self.job
            && !job.covers(verb, &call.request)
        {
            return Err(denied(format!("it is for {} only", job.task)));
        }
        if let Some(job) = &self.job
            && caller.holds.iter().any(|held| *held != job.fence)
        {
            return Err(denied("it proves another lease".to_owned()));
        }
        Ok(Admitted { agent: agent.clone(), role: self.role.agent_role(caller.role) })
    }

    /// Whether one of two names is below the other, so that one token could act as the other's agent.
    #[must_use]
    pub fn overlaps(&self, name: &str) -> bool {
        self.owns(name) || Self { name: name.to_owned(), ..Self::default() }.owns(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::calls::CALLS;

    #[test]
    fn every_verb_that_is_named_exists() {
        for verb in OF_A_JOB.iter().chain(&OF_A_WORKER).chain(&OF_AN_ADMIN) {
            assert!(crate::verbs::calls::find(verb).is_some(), "{verb}");
        }
        assert!(OF_A_JOB.is_sorted() && OF_A_WORKER.is_sorted() && OF_AN_ADMIN.is_sorted());
    }

    #[test]
    fn a_higher_role_may_all_that_a_lower_may() {
        for call in &CALLS {
            let may: Vec<bool> = TokenRole::ALL[2..].iter().map(|role| role.may(call.name)).collect();
            assert!(may.is_sorted(), "{}: {may:?}", call.name);
            assert!(TokenRole::Admin.may(call.name) || call.name == "token.join", "{}", call.name);
        }
    }

    #[test]
    fn nobody_has_a_name_below_anothers() {
        let ana = Token { name: "ana".into(), ..Token::default() };
        assert!(ana.owns("ana") && ana.owns("ana-1") && !ana.owns("anabel") && !ana.owns("bob"));
        assert!(ana.overlaps("ana-1") && ana.overlaps("ana") && !ana.overlaps("anabel"));
        assert!(Token { name: "ana-1".into(), ..Token::default() }.overlaps("ana"));
    }

    #[test]
    fn the_token_of_an_agent_is_for_its_own_task_and_lease() {
        let fence: Fence = "3.ls_abc".parse().unwrap();
        let job = TokenJob { task: TaskId::known("tk_1"), fence };
        let token = Token { name: "ana-1".into(), role: TokenRole::Job, job: Some(job), ..Token::default() };
        let may = |verb: &str, request: Value| token.admit(verb, &SentCall { request, ..SentCall::default() }).is_ok();
        assert!(may("save", json!({ "id": "tk_1", "fence": "3.ls_abc" })));
        assert!(may("finish", json!({ "id": null, "fence": "3.ls_abc" })));
        assert!(may("renew", json!({ "holds": [["tk_1", "3.ls_abc"]] })));
        assert!(may("show", json!({ "id": "tk_1" })));
        for (verb, request) in [
            ("save", json!({ "id": "tk_2", "fence": "3.ls_abc" })),
            ("save", json!({ "id": "tk_1" })),
            ("finish", json!({ "id": "tk_1", "fence": "4.ls_other" })),
            ("renew", json!({ "holds": [["tk_1", "3.ls_abc"], ["tk_2", "1.ls_x"]] })),
            ("show", json!({ "id": "tk_2" })),
            ("show", json!({})),
            ("claim", json!({})),
            ("token.create", json!({})),
            ("inbox", json!({ "human": true })),
        ] {
            assert!(!may(verb, request.clone()), "{verb} {request}");
        }
        let other = SentCall {
            caller: crate::wire::SentCaller { agent: "bob".into(), ..crate::wire::SentCaller::default() },
            request: json!({}),
            ..SentCall::default()
        };
        assert!(token.admit("clock", &other).is_err(), "another's name");
    }

    #[test]
    fn an_agent_is_no_person_because_it_says_so() {
        for role in [TokenRole::Worker, TokenRole::Job, TokenRole::Viewer] {
            assert_eq!(role.agent_role(Some(Role::Human)), Some(Role::Worker));
        }
        assert_eq!(TokenRole::Planner.agent_role(None), Some(Role::Coordinator));
        assert_eq!(TokenRole::Planner.agent_role(Some(Role::Human)), Some(Role::Human));
        assert_eq!(TokenRole::Admin.agent_role(None), None);
    }
}
