//! Visit: register a repository and a worktree in the store.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Verb, VerbContext};
use crate::{
    change::Write,
    id::RepositoryId,
    may::May,
    refusal::{Refusal, VerbResult},
    repository::{Repository, Worktree, check_clone_url},
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// Register this checkout, as the VCS describes it now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "VisitRequest")]
pub struct Request {
    pub repository: Repository,
    pub worktree: Worktree,
}

/// Bytes of the name of a repository: those of a directory.
const LONGEST_NAME: usize = 255;

/// Whether the store was changed.
pub type Outcome = bool;

impl Verb for Request {
    type Outcome = Outcome;
    const NAME: &'static str = "visit";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(mut self, work: &mut VerbContext<'_>) -> VerbResult<bool> {
        let known = work.tx.repositories()?.into_iter().find(|known| known.id == self.repository.id);
        if known.is_none() && !self.repository.id.is_well_formed() {
            let problem = format!("{:?} is no id of a repository", self.repository.id.as_str());
            return Err(Refusal::Invalid { field: "repository.id".into(), problem }.into());
        }
        if self.repository.name.len() > LONGEST_NAME {
            let problem = format!("a name has at most {LONGEST_NAME} bytes");
            return Err(Refusal::Invalid { field: "repository.name".into(), problem }.into());
        }
        let worktrees = work.tx.worktrees(&self.repository.id)?;
        let seen = worktrees.iter().find(|known| known.name == self.worktree.name);
        (self.repository.created, self.repository.clone_url) = (work.now.wall, None);
        let is_maintained = work.require_token(TokenRole::Coordinator, "a coordinator registers a repository");
        match &known {
            Some(known) => {
                // The first clone that was seen names the repository; every other adds what it knows. By that later clones are
                // recognised, so what a worker says of it counts for nothing.
                let new = std::mem::replace(&mut self.repository, known.clone());
                if is_maintained.is_ok() {
                    self.repository.learn(&new.roots, &new.remotes);
                } else if seen.is_some_and(|seen| seen.path != self.worktree.path) {
                    return Ok(false);
                }
            }
            None => is_maintained?,
        }
        self.worktree.seen = seen.map_or(work.now.wall, |known| known.seen);
        if known.as_ref() == Some(&self.repository) && seen == Some(&self.worktree) {
            return Ok(false);
        }
        self.worktree.seen = work.now.wall;
        let id = self.repository.id.clone();
        let detail =
            json!({ "name": self.repository.name, "worktree": self.worktree.name, "path": self.worktree.path });
        work.record(
            id.as_str(),
            "repository.seen",
            detail,
            vec![Write::Repository(self.repository), Write::Worktree(self.worktree)],
        )?;
        Ok(true)
    }
}

/// Say from where machines of the fleet clone a repository.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RepositoryCloneFrom")]
pub struct CloneFrom {
    pub repository: RepositoryId,
    /// The address; from nowhere if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl Verb for CloneFrom {
    type Outcome = Repository;
    const NAME: &'static str = "repository.clone_from";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Repository> {
        if let Some(Err(problem)) = self.url.as_deref().map(check_clone_url) {
            return Err(Refusal::Invalid { field: "url".into(), problem }.into());
        }
        let known = work.tx.repositories()?.into_iter().find(|known| known.id == self.repository);
        let missing = || Refusal::NotFound { what: "repository".into(), text: self.repository.to_string() };
        let mut repository = known.ok_or_else(missing)?;
        if self.url.is_some() && !matches!(repository.vcs.as_str(), "git" | "jj") {
            let problem =
                format!("machines clone with git, and {} is a {} repository", repository.name, repository.vcs);
            return Err(Refusal::Invalid { field: "url".into(), problem }.into());
        }
        if repository.clone_url != self.url {
            repository.clone_url = self.url;
            let detail = json!({ "name": repository.name, "url": repository.clone_url });
            let id = repository.id.to_string();
            work.record(&id, "repository.clone_from", detail, vec![Write::Repository(repository.clone())])?;
        }
        Ok(repository)
    }
}

/// Every repository of the store, with its worktrees.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RepositoryList")]
pub struct List {}

impl Verb for List {
    type Outcome = Vec<(Repository, Vec<Worktree>)>;
    const NAME: &'static str = "repositories";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer).or_agent(|_, _| true);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Self::Outcome> {
        let mut listed = Vec::new();
        for repository in work.tx.repositories()? {
            let worktrees = work.tx.worktrees(&repository.id)?;
            listed.push((repository, worktrees));
        }
        Ok(listed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{refusal::VerbError, testing::Stage, time::Timestamp, token::Token};

    fn visit(id: &str, remotes: &[&str], path: &str) -> Request {
        let id = RepositoryId::known(id);
        let repository = Repository {
            id: id.clone(),
            name: "shop".into(),
            vcs: "git".into(),
            common_dir: "/shop/.git".into(),
            roots: Vec::new(),
            remotes: remotes.iter().map(|&remote| remote.to_owned()).collect(),
            clone_url: None,
            created: Timestamp::default(),
        };
        let (name, path, seen) = ("main".into(), path.into(), Timestamp::default());
        Request { repository, worktree: Worktree { repository: id, name, path, seen } }
    }

    #[test]
    fn worker_names_no_repository_and_teaches_nothing_of_one() {
        let mut stage = Stage::memory();
        let as_role = |stage: &mut Stage, role| stage.token = Some(Token { role, ..Token::default() });
        let (own, other) = ("rp_ana000000000", "rp_000000000000");
        as_role(&mut stage, TokenRole::Coordinator);
        assert!(stage.perform("ana", visit(own, &["one"], "/ana")).unwrap());
        as_role(&mut stage, TokenRole::Worker);
        let refused = stage.perform("bob", visit(other, &["one"], "/bob"));
        assert!(matches!(refused, Err(VerbError::Refused(Refusal::TokenDenied { .. }))), "{refused:?}");
        assert!(!stage.perform("bob", visit(own, &["evil"], "/bob")).unwrap(), "another's checkout stays where it is");
        let listed = stage.perform("bob", List {}).unwrap();
        assert_eq!((listed[0].0.remotes.as_slice(), listed[0].1[0].path.as_str()), (&["one".to_owned()][..], "/ana"));
        as_role(&mut stage, TokenRole::Coordinator);
        assert!(stage.perform("eve", visit(own, &["two"], "/ana")).unwrap());
        assert_eq!(stage.perform("eve", List {}).unwrap()[0].0.remotes.len(), 2);
    }
}
