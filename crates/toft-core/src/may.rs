//! Who may call a verb: each verb says it in [`Verb::MAY`](crate::verbs::Verb::MAY), and nothing else does.

use crate::{
    refusal::Refusal,
    token::{Token, TokenJob, TokenRole},
};

/// The tokens with which a verb may be called. Without a server, everybody who reaches a store is its owner.
#[derive(Debug)]
pub struct May<V> {
    least: TokenRole,
    of_agent: Option<fn(&V, &TokenJob) -> bool>,
    raised: Option<Raised<V>>,
}

/// Requests that need a higher role than others of their verb.
#[derive(Debug)]
struct Raised<V> {
    least: TokenRole,
    counts: fn(&V) -> bool,
    why: &'static str,
}

impl<V> May<V> {
    /// A token of this role, or of a higher one.
    pub const fn of(least: TokenRole) -> Self {
        Self { least, of_agent: None, raised: None }
    }

    /// Also the token of a running agent, for requests that are about its own task.
    #[must_use]
    pub const fn or_agent(self, is_about: fn(&V, &TokenJob) -> bool) -> Self {
        Self { of_agent: Some(is_about), ..self }
    }

    /// A higher role for some requests.
    #[must_use]
    pub const fn raised(self, least: TokenRole, counts: fn(&V) -> bool, why: &'static str) -> Self {
        Self { raised: Some(Raised { least, counts, why }), ..self }
    }

    /// Returns whether tokens of a role may call it, for some requests at least.
    #[must_use]
    pub const fn allows(&self, role: TokenRole) -> bool {
        match role {
            TokenRole::Join => matches!(self.least, TokenRole::Join),
            TokenRole::Job => self.of_agent.is_some(),
            role => self.least as u8 <= role as u8,
        }
    }

    /// Refuses a token whose role may not call it, whatever the request.
    pub fn check_role(&self, verb: &str, token: &Token) -> Result<(), Refusal> {
        match self.allows(token.role) {
            true => Ok(()),
            false => Err(token.denied(&format!("`{verb}` needs the role {}", self.least))),
        }
    }

    /// Refuses a request that this token does not cover.
    pub fn check(&self, verb: &str, token: &Token, request: &V) -> Result<(), Refusal> {
        self.check_role(verb, token)?;
        if let Some(raised) = &self.raised
            && (raised.counts)(request)
            && token.role < raised.least
        {
            return Err(token.denied(raised.why));
        }
        match (token.role, &token.job, self.of_agent) {
            (TokenRole::Job, Some(job), Some(is_about)) if is_about(request, job) => Ok(()),
            (TokenRole::Job, Some(job), _) => Err(token.denied(&format!("it is for {} only", job.task))),
            (TokenRole::Job, None, _) => Err(token.denied("it is for no task")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        id::TaskId,
        lease::Fence,
        verbs::{AnyRun, Verb, VerbRun, calls::CALLS, claim, facts, finish, inbox, renew, save, show, token as tokens},
    };

    fn agent() -> (Token, TaskId, Fence) {
        let (task, fence): (_, Fence) = (TaskId::known("tk_1"), "3.ls_abc".parse().unwrap());
        let job = TokenJob { task: task.clone(), fence: fence.clone() };
        (Token { name: "ana-1".into(), role: TokenRole::Job, job: Some(job), ..Token::default() }, task, fence)
    }

    fn may<V: Verb>(token: &Token, request: V) -> bool {
        VerbRun::new(request).check_token(token).is_ok()
    }

    #[test]
    fn agents_token_covers_its_own_task_and_lease() {
        let (token, task, fence) = agent();
        let other: Fence = "4.ls_other".parse().unwrap();
        let save = |id: Option<&str>, fence: Option<&Fence>| save::Request {
            id: id.map(str::to_owned),
            fence: fence.cloned(),
            ..save::Request::default()
        };
        assert!(may(&token, save(Some("tk_1"), Some(&fence))) && may(&token, save(None, Some(&fence))));
        assert!(!may(&token, save(Some("tk_2"), Some(&fence))) && !may(&token, save(Some("tk_1"), None)));
        assert!(!may(&token, save(Some("tk_1"), Some(&other))));
        let done = |fence: &Fence| finish::Request { fence: Some(fence.clone()), ..finish::Request::default() };
        assert!(may(&token, done(&fence)) && !may(&token, done(&other)));
        let own = (task.clone(), fence.clone());
        let renew = |holds: Vec<(TaskId, Fence)>| renew::Request { holds, ..renew::Request::default() };
        assert!(may(&token, renew(vec![own.clone()])) && !may(&token, renew(vec![])));
        assert!(!may(&token, renew(vec![own.clone(), (TaskId::known("tk_2"), other)])));
        assert!(
            may(&token, facts::TaskRow { task: task.clone() })
                && !may(&token, facts::TaskRow { task: TaskId::known("tk_2") })
        );
        assert!(may(&token, show::Request { id: "tk_1".into(), ..show::Request::default() }));
        assert!(!may(&token, show::Request { id: "tk_2".into(), ..show::Request::default() }));
        assert!(!may(&token, inbox::Peek { human: true, ..inbox::Peek::default() }));
        assert!(!may(&token, claim::Request::default()) && !may(&token, tokens::List::default()));
        let lost = Token { job: None, ..token };
        assert!(!may(&lost, facts::Clock {}), "a token without its task covers nothing");
    }

    #[test]
    fn persons_inbox_is_read_by_coordinators() {
        let token = |role| Token { role, ..Token::default() };
        for human in [false, true] {
            let (peek, inbox) =
                (inbox::Peek { human, ..Default::default() }, inbox::Request { human, ..Default::default() });
            assert_eq!(may(&token(TokenRole::Viewer), peek.clone()), !human);
            assert_eq!(may(&token(TokenRole::Worker), peek.clone()), !human);
            assert_eq!(may(&token(TokenRole::Worker), inbox.clone()), !human);
            assert!(may(&token(TokenRole::Coordinator), peek) && may(&token(TokenRole::Coordinator), inbox));
        }
    }

    #[test]
    fn higher_role_may_all_that_lower_may() {
        for call in &CALLS {
            let may: Vec<bool> = TokenRole::ALL[2..].iter().map(|role| call.allows(*role)).collect();
            assert!(may.is_sorted(), "{}: {may:?}", call.name);
            assert!(call.allows(TokenRole::Admin), "{}", call.name);
        }
        let of_code: Vec<&str> =
            CALLS.iter().filter(|call| call.allows(TokenRole::Join)).map(|call| call.name).collect();
        assert_eq!(of_code, ["token.join"]);
    }
}
