//! Lists workspaces with their holders.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::verbs::{Verb, VerbContext, find};
use crate::{
    lease::LeaseStatus,
    may::May,
    refusal::VerbResult,
    repository::Scope,
    schema::JsonSchema,
    store::{Access, WorkspaceQuery},
    time::Timestamp,
    token::TokenRole,
    workspace::{Workspace, WorkspaceKind},
};

/// A workspace without a task is not removed before this age.
const GRACE: Duration = Duration::from_secs(3_600);

/// Workspaces, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceList")]
pub struct List {
    #[serde(default)]
    pub scope: Scope,
    /// Include removed workspaces.
    #[serde(default)]
    pub all: bool,
    /// Maximum number of rows; all if 0.
    #[serde(default)]
    pub limit: usize,
}

/// A workspace with its holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ListedWorkspace")]
pub struct Listed {
    #[serde(flatten)]
    pub workspace: Workspace,
    /// The agent that holds its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Its task has not ended.
    pub open: bool,
    /// The issue of its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issue: Option<String>,
    /// The name of its task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl Listed {
    /// Whether nobody uses it, so that it may be removed; the error is the reason why not. A workspace without a task
    /// is kept for an hour, or for `age` if that is less.
    pub fn idle(&self, host: &str, now: Timestamp, age: Option<Duration>) -> Result<(), String> {
        let grace = age.map_or(GRACE, |age| age.min(GRACE));
        let workspace = &self.workspace;
        if workspace.host != host {
            Err("it is on another machine".into())
        } else if workspace.pinned {
            Err("it is pinned".into())
        } else if workspace.pooled && age.is_none_or(|age| now.since(workspace.used) < age) {
            Err("it is prepared for the next claim".into())
        } else if workspace.kind == WorkspaceKind::InPlace {
            Err("it is your own checkout".into())
        } else if let Some(holder) = &self.holder {
            Err(format!("{holder} works in it"))
        } else if self.open && age.is_none_or(|age| now.since(workspace.used) < age) {
            Err("its task is open".into())
        } else if workspace.task.is_none() && now.since(workspace.used) < grace {
            Err("it was handed out within the hour".into())
        } else {
            Ok(())
        }
    }
}

impl Verb for List {
    type Outcome = Vec<Listed>;
    const NAME: &'static str = "ws.list";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Listed>> {
        let query = WorkspaceQuery { repository: self.scope.repository, live: !self.all, limit: self.limit };
        let rows = work.tx.workspaces(&query)?;
        rows.into_iter().map(|workspace| listed(work, workspace)).collect()
    }
}

/// One workspace.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceShow")]
pub struct Show {
    /// The workspace, by name, path, id or prefix, or by its task or issue.
    pub id: String,
}

impl Verb for Show {
    type Outcome = Listed;
    const NAME: &'static str = "ws.show";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer).or_agent(|request, job| job.is_for(&request.id));

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Listed> {
        let workspace = find::workspace(work, &self.id)?;
        listed(work, workspace)
    }
}

fn listed(work: &mut VerbContext<'_>, workspace: Workspace) -> VerbResult<Listed> {
    let Some(id) = workspace.task.clone() else {
        return Ok(Listed { workspace, holder: None, open: false, issue: None, title: None });
    };
    let lease = work.tx.lease(&id)?.filter(|lease| lease.standing(&work.now, work.processes) == LeaseStatus::Live);
    let holder = lease.map(|lease| work.agent_name(&lease.agent)).transpose()?;
    let task = work.tx.task(&id)?;
    let open = task.as_ref().is_some_and(|task| task.state.status.open());
    let title = task.as_ref().map(|task| task.spec.name.clone());
    let workflow = task.map(|task| work.tx.workflow(&task.workflow)).transpose()?.flatten();
    let issue = workflow.and_then(|workflow| workflow.issue().map(str::to_owned));
    Ok(Listed { workspace, holder, open, issue, title })
}
