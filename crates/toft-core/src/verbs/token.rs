//! Token: make, list and revoke tokens.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext};
use crate::{
    agent::check_name,
    change::Write,
    id::TaskId,
    lease::Fence,
    may::May,
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::Access,
    token::{Token, TokenJob, TokenRole},
};

/// How long a code for joining can be used.
const CODE: Duration = Duration::from_secs(600);
/// The length of a digest.
const DIGEST: usize = 64;

/// Make a token. Its secret is made by the caller and never sent.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenCreate")]
#[serde(default)]
pub struct Create {
    /// The digest of its secret.
    pub digest: String,
    /// Its owner.
    pub name: String,
    pub role: TokenRole,
    /// How long it lives, in milliseconds; for ever if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lives: Option<u64>,
}

impl Verb for Create {
    type Outcome = Token;
    const NAME: &'static str = "token.create";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Admin);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Token> {
        if self.role == TokenRole::Job {
            return Err(invalid("role", "a token for one task is made by the worker that holds it"));
        }
        let lives = match self.role {
            TokenRole::Join => Some(CODE),
            _ => self.lives.map(Duration::from_millis),
        };
        let token = Token {
            digest: self.digest,
            name: self.name,
            role: self.role,
            created: work.now.wall,
            by: work.actor.to_owned(),
            expires: lives.map(|lives| work.now.wall.plus(lives)),
            ..Token::default()
        };
        put(work, token, "token.created")
    }
}

/// Trade the code that the caller has for a token of its machine.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenJoin")]
#[serde(default)]
pub struct Join {
    /// The digest of the code.
    pub code: String,
    /// The digest of the new token's secret.
    pub digest: String,
}

impl Verb for Join {
    type Outcome = Token;
    const NAME: &'static str = "token.join";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Join);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Token> {
        let code =
            work.tx.token(&self.code)?.filter(|code| code.role == TokenRole::Join && code.is_live(work.now.wall));
        let Some(code) = code else {
            return Err(Refusal::NotFound { what: "code for joining".into(), text: "that one".into() }.into());
        };
        let token = Token {
            digest: self.digest,
            role: TokenRole::Worker,
            host: Some(work.processes.disks().to_owned()),
            created: work.now.wall,
            expires: None,
            ..code.clone()
        };
        let used = Token { revoked: Some(work.now.wall), ..code };
        let detail = json!({ "name": used.name, "role": used.role });
        work.record(&used.name.clone(), "token.revoked", detail, vec![Write::Token(used)])?;
        put(work, token, "token.created")
    }
}

/// Make the token of a running agent, for a task that the caller holds.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenForJob")]
pub struct ForJob {
    pub digest: String,
    pub task: TaskId,
    pub fence: Fence,
}

impl Verb for ForJob {
    type Outcome = Token;
    const NAME: &'static str = "token.job";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Token> {
        let (lease, task) = (work.tx.lease(&self.task)?, work.tx.task(&self.task)?);
        let Some((lease, task)) = lease.filter(|lease| lease.fence == self.fence).zip(task) else {
            return Err(Refusal::NotFound { what: "lease".into(), text: self.task.to_string() }.into());
        };
        let agent = work.agent_name(&lease.agent)?;
        if agent != work.actor {
            let (agent, status) = (work.actor.to_owned(), task.state.status);
            return Err(Refusal::NotHolder { task: self.task, agent, status }.into());
        }
        let token = Token {
            digest: self.digest,
            name: agent,
            role: TokenRole::Job,
            job: Some(TokenJob { task: self.task, fence: self.fence }),
            created: work.now.wall,
            by: work.actor.to_owned(),
            ..Token::default()
        };
        check_digest(&token.digest)?;
        if work.tx.token(&token.digest)?.is_some() {
            return Err(invalid("digest", "there is such a token already"));
        }
        // One for each attempt: what is derived from a claim leaves no event of its own.
        work.tx.write_derived(&[Write::Token(token.clone())])?;
        Ok(token)
    }
}

/// Make the token of a person whom an identity provider knows. A server runs it when it has seen the proof; nobody sends it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenForPerson")]
#[serde(default)]
pub struct ForPerson {
    pub digest: String,
    pub name: String,
    pub role: TokenRole,
    /// The person, as the provider identifies them.
    pub subject: String,
    /// How long it lives, in milliseconds.
    pub lives: u64,
}

impl Verb for ForPerson {
    type Outcome = Token;
    const NAME: &'static str = "token.person";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Token> {
        // A name stays with who had it first: people may change what a provider calls them.
        if work.tx.tokens()?.iter().any(|other| other.name == self.name && other.by != self.subject) {
            return Err(invalid("name", &format!("{} is another's", self.name)));
        }
        let token = Token {
            digest: self.digest,
            name: self.name,
            role: self.role,
            created: work.now.wall,
            by: self.subject,
            expires: Some(work.now.wall.plus(Duration::from_millis(self.lives))),
            ..Token::default()
        };
        put(work, token, "token.created")
    }
}

/// Every token that counts, by name; those of running agents are not listed.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenList")]
pub struct List {}

impl Verb for List {
    type Outcome = Vec<Token>;
    const NAME: &'static str = "token.list";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Admin);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Token>> {
        let mut all = work.tx.tokens()?;
        all.retain(|token| token.role != TokenRole::Job && token.is_live(work.now.wall));
        // A digest is no secret, and nobody needs it.
        all.iter_mut().for_each(|token| token.digest.truncate(12));
        Ok(all)
    }
}

/// Revoke every token of a name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TokenRevoke")]
#[serde(default)]
pub struct Revoke {
    pub name: String,
}

impl Verb for Revoke {
    type Outcome = usize;
    const NAME: &'static str = "token.revoke";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Admin);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<usize> {
        let mut all = work.tx.tokens()?;
        all.retain(|token| token.name == self.name && token.is_live(work.now.wall));
        if all.is_empty() {
            return Err(Refusal::NotFound { what: "token".into(), text: self.name }.into());
        }
        let count = all.len();
        let revoked = all.into_iter().map(|token| Token { revoked: Some(work.now.wall), ..token });
        let writes = revoked.map(Write::Token).collect();
        work.record(&self.name.clone(), "token.revoked", json!({ "name": self.name, "count": count }), writes)?;
        Ok(count)
    }
}

fn put(work: &mut VerbContext<'_>, token: Token, event: &str) -> VerbResult<Token> {
    check_name(&token.name)?;
    check_digest(&token.digest)?;
    if work.tx.token(&token.digest)?.is_some() {
        return Err(invalid("digest", "there is such a token already"));
    }
    let now = work.now.wall;
    let other = work.tx.tokens()?.into_iter().find(|other| {
        other.role != TokenRole::Job && other.is_live(now) && other.name != token.name && other.overlaps(&token.name)
    });
    if let Some(other) = other {
        let problem = format!("{} is another's: agents of {} may be called so", token.name, other.name);
        return Err(invalid("name", &problem));
    }
    let detail = json!({ "name": token.name, "role": token.role, "expires": token.expires });
    work.record(&token.name, event, detail, vec![Write::Token(token.clone())])?;
    Ok(token)
}

fn check_digest(digest: &str) -> VerbResult<()> {
    match digest.len() == DIGEST && digest.chars().all(|c| c.is_ascii_hexdigit()) {
        true => Ok(()),
        false => Err(invalid("digest", "it is no digest of a secret")),
    }
}

fn invalid(field: &str, problem: &str) -> crate::refusal::VerbError {
    Refusal::Invalid { field: field.to_owned(), problem: problem.to_owned() }.into()
}
