//! Tokens: who may ask a server what.
//!
//! A token is a secret that its owner keeps; a store knows its digest only. A token has a role, which verbs it may send, and
//! a name, under which it acts: nobody takes another's name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    agent::Role, id::TaskId, lease::Fence, refusal::Refusal, schema::JsonSchema, time::Timestamp, verbs::calls::find,
    wire::SentCaller,
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
    Coordinator,
    /// Everything, tokens too.
    Admin,
}

impl TokenRole {
    /// Every role, from least to most.
    pub const ALL: [Self; 6] = [Self::Join, Self::Job, Self::Viewer, Self::Worker, Self::Coordinator, Self::Admin];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Job => "job",
            Self::Viewer => "viewer",
            Self::Worker => "worker",
            Self::Coordinator => "coordinator",
            Self::Admin => "admin",
        }
    }

    /// The role with this name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // Its name before there was one set of names for roles here and at a server.
        let text = if text == "planner" { Self::Coordinator.as_str() } else { text };
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Returns whether a token with this role may send a verb of this name.
    #[must_use]
    pub fn may(self, verb: &str) -> bool {
        find(verb).is_some_and(|call| call.allows(self))
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
            (Self::Coordinator, Some(role @ (Role::Human | Role::Worker))) => Some(role),
            (Self::Coordinator, _) => Some(Role::Coordinator),
            _ => Some(Role::Worker),
        }
    }
}

impl fmt::Display for TokenRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
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
    /// Returns whether this whole id is that of the task.
    #[must_use]
    pub fn is_for(&self, id: &str) -> bool {
        id == self.task.as_str()
    }

    /// Returns whether a write names the lease, and no other task.
    #[must_use]
    pub fn proves(&self, fence: Option<&Fence>, id: Option<&str>) -> bool {
        fence == Some(&self.fence) && id.is_none_or(|id| self.is_for(id))
    }

    /// Returns whether these are the lease and nothing else.
    #[must_use]
    pub fn holds_alone(&self, holds: &[(TaskId, Fence)]) -> bool {
        !holds.is_empty() && holds.iter().all(|(task, fence)| *task == self.task && *fence == self.fence)
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

    /// Determines the asker. The caller's own words count only as far as the token bears them out; whether it may ask for
    /// that, [`perform`](crate::verbs::perform) decides.
    pub fn admit(&self, caller: &SentCaller) -> Result<Admitted, Refusal> {
        if self.host.as_ref().is_some_and(|host| *host != caller.disks) {
            return Err(self.denied("it belongs to another machine"));
        }
        let agent = if caller.agent.is_empty() { &self.name } else { &caller.agent };
        // An admin could make itself a token of any name.
        if self.role != TokenRole::Admin && !self.owns(agent) {
            return Err(self.denied(&format!("it may not act as `{agent}`")));
        }
        if let Some(job) = &self.job
            && caller.holds.iter().any(|held| *held != job.fence)
        {
            return Err(self.denied("it proves another lease"));
        }
        Ok(Admitted { agent: agent.clone(), role: self.role.agent_role(caller.role) })
    }

    /// The refusal of what this token does not allow.
    pub(crate) fn denied(&self, why: &str) -> Refusal {
        Refusal::TokenDenied { name: self.name.clone(), role: self.role, why: why.to_owned() }
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
    fn another_name_machine_or_lease_is_not_believed() {
        let job = TokenJob { task: TaskId::known("tk_1"), fence: "3.ls_abc".parse().unwrap() };
        let token = Token { name: "ana-1".into(), host: Some("m".into()), job: Some(job), ..Token::default() };
        let own = SentCaller { disks: "m".into(), holds: vec!["3.ls_abc".parse().unwrap()], ..SentCaller::default() };
        assert_eq!(token.admit(&own).unwrap().agent, "ana-1");
        for wrong in [
            SentCaller { agent: "bob".into(), ..own.clone() },
            SentCaller { disks: "other".into(), ..own.clone() },
            SentCaller { holds: vec!["4.ls_other".parse().unwrap()], ..own.clone() },
        ] {
            assert!(token.admit(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_agent_is_no_person_because_it_says_so() {
        for role in [TokenRole::Worker, TokenRole::Job, TokenRole::Viewer] {
            assert_eq!(role.agent_role(Some(Role::Human)), Some(Role::Worker));
        }
        assert_eq!(TokenRole::Coordinator.agent_role(None), Some(Role::Coordinator));
        assert_eq!(TokenRole::Coordinator.agent_role(Some(Role::Human)), Some(Role::Human));
        assert_eq!(TokenRole::Admin.agent_role(None), None);
    }
}
