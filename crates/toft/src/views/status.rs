//! The overview: what needs a person, what is worked on, what has not landed.

use std::collections::BTreeSet;

use toft_core::{
    agent::AgentState,
    time::Timestamp,
    verbs::{agent, status},
};
use toft_land::{Lander, UnlandedWork};
use toft_plan::{FoundIssue, Orphan};
use toft_session::{Error, provider::RestingAgent};
use toft_vcs::Vcs;
use toft_work::workspaces::SeenWorkspace;

use super::RepositorySource;
use crate::Toft;

/// The work in one repository.
pub struct RepositoryStatus {
    /// Where there are several.
    pub name: Option<String>,
    pub outcome: status::Outcome,
    /// Workspaces that are broken.
    pub broken: Vec<SeenWorkspace>,
    /// Proposals of others.
    pub proposals: Vec<FoundIssue>,
    /// Own proposals that are not decided yet.
    pub proposed: Vec<FoundIssue>,
    /// Issues that are in progress and that nobody in this store is on.
    pub orphans: Vec<(FoundIssue, Orphan)>,
    /// Finished work that has not landed.
    pub unlanded: UnlandedWork,
}

/// The work in every repository that is looked at.
pub struct StatusView {
    pub repositories: Vec<RepositoryStatus>,
    /// Agents that their providers refuse for now.
    pub resting: Vec<RestingAgent>,
    /// Agents that claim nothing until they are resumed.
    pub paused: BTreeSet<String>,
    pub now: Timestamp,
}

impl StatusView {
    /// Looks at repositories, with at most `limit` rows of each kind.
    pub fn of(sources: &[RepositorySource<'_>], limit: usize) -> Result<Self, Error> {
        let mut view =
            Self { repositories: Vec::new(), resting: RestingAgent::all(), paused: BTreeSet::new(), now: Timestamp(0) };
        for source in sources {
            view.add(source, limit)?;
        }
        Ok(view)
    }

    fn add(&mut self, source: &RepositorySource<'_>, limit: usize) -> Result<(), Error> {
        let RepositorySource { toft, scope, name, ledgers, .. } = source;
        let me = &toft.located().agent;
        let mut outcome = toft.work().act(me, None, status::Request { scope: scope.clone(), limit })?;
        let (mut broken, unlanded) = (Vec::new(), unlanded(toft)?);
        match toft.workspaces() {
            Ok(all) => {
                broken = all.broken()?;
                self.now = all.now()?;
            }
            Err(_) if name.is_some() => {
                broken = toft.work().workspaces_without_repository(scope.clone())?;
            }
            Err(_) => {}
        }
        let (mut proposals, mut proposed, mut orphans) = (Vec::new(), Vec::new(), Vec::new());
        if let Some(plan) = toft.plan()?.filter(|_| *ledgers) {
            plan.leave_out_closed(&mut outcome)?;
            (proposals, proposed, orphans) = (plan.proposals()?, plan.my_proposals()?, plan.orphans()?);
        }
        let agents = toft.work().act(me, None, agent::List { all: false })?;
        let draining = agents.into_iter().filter(|row| row.agent.state == AgentState::Draining);
        self.paused.extend(draining.map(|row| row.agent.name));
        let name = name.clone();
        self.repositories.push(RepositoryStatus { name, outcome, broken, proposals, proposed, orphans, unlanded });
        Ok(())
    }
}

/// How much finished work of a repository has not landed; nothing where its version control does not land.
pub fn unlanded(toft: &Toft) -> Result<UnlandedWork, Error> {
    let lands = toft.located().checkout.as_ref().is_some_and(|checkout| matches!(checkout.vcs, Vcs::Git | Vcs::Jj));
    // Most of the time nothing has landed yet, and nothing is asked of git.
    let any = || toft.work().landings(&[], 1).map(|known| !known.is_empty());
    Ok(if lands && any()? { Lander::open(toft.work())?.unlanded_work()? } else { UnlandedWork::default() })
}
