//! Workspaces: requests for one, and the changes of its state. Directories are created and removed between two of these
//! verbs, never inside one.

mod listing;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::json;

pub use self::listing::{List, Listed, Show};
use super::{Verb, VerbContext, find};
use crate::{
    change::Write,
    flow::Evidence,
    id::{TaskId, WorkspaceId},
    landing::Landing,
    lease::{Fence, LeaseStatus},
    may::May,
    refusal::{Refusal, VerbResult},
    schema::JsonSchema,
    store::{Access, TaskQuery, WorkspaceQuery},
    token::TokenRole,
    workspace::{Left, Workspace, WorkspaceKind, WorkspaceState},
};

/// Maximum number of workspaces, unless configured.
pub const MOST: usize = 500;
/// Advice for a removed workspace.
const GONE: &str = "toft ws restore restores its rescue, toft ws create creates a new one";
/// Maximum number of removable workspaces that are listed when the limit is reached.
const NAMED: usize = 5;

/// Request a workspace: afterwards its row exists, and its directory may be created.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceProvide")]
#[serde(default)]
pub struct Provide {
    pub name: String,
    /// How it is isolated.
    pub kind: WorkspaceKind,
    pub path: String,
    /// The checkout from which it is created.
    pub source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The branch is created for it.
    pub own_branch: bool,
    /// The commit from which it is created.
    pub base: String,
    /// The target branch of its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onto: Option<String>,
    /// The base that an overlay workspace uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay_base: Option<String>,
    /// It is created in advance, for the next task that needs one.
    pub pooled: bool,
    /// Do not use one that was created in advance.
    pub fresh: bool,
    /// Its directory already exists.
    pub made: bool,
    /// Its task, by id or prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The fence; that of the caller's own lease if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// Maximum number of workspaces.
    pub most: usize,
    /// Names of the ports that it needs.
    pub ports: Vec<String>,
    /// Port numbers that are not in use, to choose from.
    pub free: Vec<u16>,
}

/// The name of a workspace for a task or issue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceName")]
pub struct Name {
    /// A task or an issue, by id; a task also by prefix.
    pub id: String,
}

/// A name, and the task that is worked on in the workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NamedWorkspace")]
pub struct Named {
    pub name: String,
    /// The task; none if it was not claimed yet.
    pub task: Option<TaskId>,
    /// The commit in the last checkpoint of its last holder.
    pub commit: Option<String>,
    /// The issue of the task.
    pub issue: Option<String>,
    /// The evidence commits of the tasks that it depends on.
    pub needs: Vec<String>,
    /// The name of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl Verb for Name {
    type Outcome = Named;
    const NAME: &'static str = "ws.name";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    /// Named after the issue if it has only one task; otherwise after the task.
    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Named> {
        let task = match find::task(work, &self.id) {
            Ok(task) => task,
            Err(_) if is_issue(&self.id) => {
                let issue = Some(self.id.clone());
                return Ok(Named { name: self.id, task: None, commit: None, issue, needs: Vec::new(), title: None });
            }
            Err(stop) => return Err(stop),
        };
        let of = TaskQuery { workflow: Some(task.workflow.clone()), limit: 2, ..TaskQuery::default() };
        let alone = work.tx.tasks(&of)?.len() == 1;
        let workflow = work.require_workflow(&task.workflow)?;
        let issue = workflow.issue().map(str::to_owned);
        let reviewed = task.spec.reviews.as_ref().map(|work| work.tip.clone());
        let saved = work.tx.checkpoints(&task.id, 1)?.pop();
        let sent_back = work.tx.landing(&Landing::id_of(&task.id))?.filter(|landing| landing.bounce().is_some());
        // Work that was sent back begins with its commits, unless something was saved since.
        let since = |at| saved.as_ref().is_some_and(|saved| saved.created > at);
        let offered = sent_back.filter(|landing| !since(landing.updated)).map(|landing| landing.offer.tip);
        let commit = reviewed.or(offered).or(saved.and_then(|saved| saved.commit));
        let mut needs = Vec::new();
        for (dependency, _) in work.tx.dependencies(&task.id)? {
            let outcome = work.tx.task(&dependency.on)?.and_then(|on| on.state.outcome);
            if let Some(Evidence::Commit(commit)) = outcome.and_then(|outcome| outcome.evidence) {
                needs.push(commit);
            }
        }
        let name = issue.clone().filter(|_| alone).unwrap_or_else(|| task.id.to_string());
        Ok(Named { name, task: Some(task.id), commit, issue, needs, title: Some(task.spec.name) })
    }
}

fn is_issue(text: &str) -> bool {
    text.contains('-') && !text.starts_with(TaskId::PREFIX)
}

/// A requested workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ProvidedWorkspace")]
pub struct Provided {
    pub workspace: Workspace,
    /// It was requested before; its directory may exist.
    pub begun: bool,
    /// It was created in advance, and has to be adapted.
    pub ahead: bool,
}

impl Verb for Provide {
    type Outcome = Provided;
    const NAME: &'static str = "ws.provide";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Provided> {
        work.register_caller()?;
        let Some(repository) = work.place.repository.clone() else {
            return Err(Refusal::NotFound { what: "repository".into(), text: "here".into() }.into());
        };
        let task = match &self.task {
            Some(text) => Some(find::task(work, text)?),
            None => None,
        };
        if let Some(task) = &task {
            may_work(work, &task.id, self.fence.as_ref())?;
        }
        let query = WorkspaceQuery { repository: Some(repository.clone()), live: true, ..WorkspaceQuery::default() };
        let live = work.tx.workspaces(&query)?;
        let here = |known: &&Workspace| known.host == work.processes.disks();
        let same = |known: &&Workspace| {
            known.name == self.name || task.as_ref().is_some_and(|task| known.task.as_ref() == Some(&task.id))
        };
        if let Some(known) = live.iter().filter(here).find(same).cloned() {
            return take_up(work, known, task.as_ref().map(|task| &task.id));
        }
        if let Some(known) = live.iter().filter(here).find(|known| known.path == self.path) {
            return Err(Refusal::Exists { what: "workspace".into(), name: known.name.clone() }.into());
        }
        // Other repositories may share the store, and do share the machine.
        let everywhere = WorkspaceQuery { live: true, ..WorkspaceQuery::default() };
        let taken: BTreeSet<u16> = match self.ports.is_empty() {
            true => BTreeSet::new(),
            false => work.tx.workspaces(&everywhere)?.iter().flat_map(|known| known.ports.values().copied()).collect(),
        };
        let fits = |known: &&Workspace| known.pooled && known.state == WorkspaceState::Ready && known.kind == self.kind;
        if !self.fresh
            && let Some(known) = live.iter().filter(here).rev().find(fits).cloned()
        {
            return self.take_over(work, known, task.map(|task| task.id), &taken);
        }
        if self.kind != WorkspaceKind::InPlace {
            room_for_one(&live.iter().filter(here).collect::<Vec<_>>(), self.most)?;
        }
        let workspace = Workspace {
            id: WorkspaceId::generate(work.ids),
            repository,
            name: self.name,
            kind: self.kind,
            path: self.path,
            host: work.processes.disks().to_owned(),
            source: self.source,
            branch: self.branch,
            own_branch: self.own_branch,
            base: self.base,
            onto: self.onto,
            overlay_base: self.overlay_base,
            task: task.map(|task| task.id),
            state: if self.made { WorkspaceState::Ready } else { WorkspaceState::Provisioning },
            pooled: self.pooled,
            // What somebody made by hand stays until they say otherwise.
            pinned: self.made,
            created: work.now.wall,
            used: work.now.wall,
            reason: None,
            ports: lease_ports(&self.ports, &self.free, &taken)?,
            rescue: None,
            landed: None,
            left: Vec::new(),
        };
        let detail = json!({ "name": workspace.name, "path": workspace.path, "task": workspace.task });
        work.record(workspace.id.as_str(), "ws.requested", detail, vec![Write::Workspace(workspace.clone())])?;
        Ok(Provided { workspace, begun: false, ahead: false })
    }
}

impl Provide {
    /// Adapts a workspace that was created in advance.
    fn take_over(
        self,
        work: &mut VerbContext<'_>,
        known: Workspace,
        task: Option<TaskId>,
        taken: &BTreeSet<u16>,
    ) -> VerbResult<Provided> {
        let workspace = Workspace {
            ports: lease_ports(&self.ports, &self.free, taken)?,
            name: self.name,
            branch: self.branch,
            own_branch: self.own_branch,
            base: self.base,
            onto: self.onto,
            task,
            state: WorkspaceState::Provisioning,
            pooled: false,
            used: work.now.wall,
            ..known
        };
        let detail = json!({ "name": workspace.name, "path": workspace.path, "task": workspace.task });
        work.record(workspace.id.as_str(), "ws.taken", detail, vec![Write::Workspace(workspace.clone())])?;
        Ok(Provided { workspace, begun: true, ahead: true })
    }
}

/// Refuses if the maximum number of workspaces is reached.
fn room_for_one(live: &[&Workspace], most: usize) -> VerbResult<()> {
    // A checkout of the user's own takes no room.
    let live: Vec<_> = live.iter().filter(|known| known.kind != WorkspaceKind::InPlace).collect();
    if live.len() < most {
        return Ok(());
    }
    let oldest = live.iter().rev().filter(|known| !known.pinned).take(NAMED);
    let could_go = oldest.map(|known| known.name.clone()).collect();
    Err(Refusal::NoRoom { there: live.len(), most, could_go }.into())
}

/// Assigns a port number to each name.
fn lease_ports(names: &[String], free: &[u16], taken: &BTreeSet<u16>) -> VerbResult<BTreeMap<String, u16>> {
    let ports: BTreeMap<_, _> =
        names.iter().cloned().zip(free.iter().copied().filter(|port| !taken.contains(port))).collect();
    match ports.len() == names.iter().collect::<BTreeSet<_>>().len() {
        true => Ok(ports),
        false => Err(Refusal::Invalid { field: "ports".into(), problem: "no free numbers are left".into() }.into()),
    }
}

/// Reuses a workspace that exists, unless another agent works in it; continues one whose creation was not completed.
fn take_up(work: &mut VerbContext<'_>, mut known: Workspace, task: Option<&TaskId>) -> VerbResult<Provided> {
    let handed_over = known.state != WorkspaceState::Provisioning;
    if task.is_none() && handed_over {
        return Err(Refusal::Exists { what: "workspace".into(), name: known.name }.into());
    }
    if let Some(other) = known.task.clone().filter(|other| Some(other) != task) {
        may_work(work, &other, None)?;
    }
    if handed_over && known.state != WorkspaceState::Ready {
        return Err(unfit(&known, "toft ws list shows why").into());
    }
    known.task = task.cloned().or(known.task);
    known.used = work.now.wall;
    let detail = json!({ "task": known.task });
    work.record(known.id.as_str(), "ws.reused", detail, vec![Write::Workspace(known.clone())])?;
    Ok(Provided { workspace: known, begun: true, ahead: false })
}

/// Checks that no other agent holds the task; with a fence, that the fence is that of the live lease.
fn may_work(work: &mut VerbContext<'_>, task: &TaskId, fence: Option<&Fence>) -> VerbResult<()> {
    if fence.is_some() {
        return work.require_hold(task, fence).map(drop);
    }
    let Some(lease) = work.tx.lease(task)? else { return Ok(()) };
    match lease.standing(&work.now, work.processes) {
        LeaseStatus::Live if work.holds.contains(&lease.fence) => Ok(()),
        LeaseStatus::Live => work.require_hold(task, None).map(drop),
        LeaseStatus::Lost(_) => Ok(()),
    }
}

fn unfit(workspace: &Workspace, wanted: &str) -> Refusal {
    refused(workspace, workspace.state.as_str(), wanted)
}

fn refused(workspace: &Workspace, state: &str, wanted: &str) -> Refusal {
    Refusal::WrongState { id: workspace.name.clone(), state: state.to_owned(), wanted: wanted.to_owned() }
}

/// Change the state of a workspace: its directory was created, is to be removed, is removed, or is damaged.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceMove")]
pub struct Move {
    /// The workspace, by name, id or prefix.
    pub id: String,
    /// The new state.
    pub to: WorkspaceState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rescue commit with everything that was in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescue: Option<String>,
    /// Files that are deleted with its directory and are in no rescue.
    #[serde(default)]
    pub left: Vec<Left>,
    /// The fence of the lease under which this is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// Maximum number of workspaces, if it is restored.
    pub most: usize,
}

impl Move {
    /// A change of state without further details.
    pub fn to(id: &WorkspaceId, to: WorkspaceState) -> Self {
        Self { id: id.to_string(), to, reason: None, rescue: None, left: Vec::new(), fence: None, most: MOST }
    }
}

impl Verb for Move {
    type Outcome = Workspace;
    const NAME: &'static str = "ws.move";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workspace> {
        work.register_caller()?;
        let mut workspace = find::workspace(work, &self.id)?;
        if workspace.state == self.to && self.to != WorkspaceState::Removing {
            return Ok(workspace);
        }
        if workspace.state != self.to && !workspace.state.may_become(self.to) {
            let wanted = match (workspace.state, self.to) {
                (WorkspaceState::Removed, _) => GONE.to_owned(),
                (WorkspaceState::Ready, WorkspaceState::Provisioning) => {
                    format!("it is at {}; toft ws restore --name restores its rescue beside it", workspace.path)
                }
                (_, to) => format!("it cannot become {}", to.as_str()),
            };
            return Err(unfit(&workspace, &wanted).into());
        }
        match (workspace.state, self.to) {
            (_, WorkspaceState::Removing) => self.may_remove(work, &workspace)?,
            (WorkspaceState::Removed, WorkspaceState::Provisioning) => self.may_return(work, &workspace)?,
            _ => {}
        }
        workspace.state = self.to;
        workspace.reason = self.reason;
        workspace.rescue = self.rescue.or(workspace.rescue);
        match self.to {
            WorkspaceState::Provisioning | WorkspaceState::Ready => workspace.left.clear(),
            _ if !self.left.is_empty() => workspace.left = self.left,
            _ => {}
        }
        if self.to == WorkspaceState::Removed {
            // Whoever brings it back finds another place to stand, and other numbers.
            workspace.overlay_base = None;
            workspace.ports.clear();
        }
        let (verb, detail) = match self.to {
            WorkspaceState::Provisioning => ("ws.restoring", json!({})),
            WorkspaceState::Ready => ("ws.ready", json!({})),
            WorkspaceState::Removing => ("ws.removing", json!({})),
            WorkspaceState::Removed => ("ws.removed", json!({ "rescue": workspace.rescue, "left": workspace.left })),
            WorkspaceState::Quarantined => ("ws.quarantined", json!({ "reason": workspace.reason })),
        };
        work.record(workspace.id.as_str(), verb, detail, vec![Write::Workspace(workspace.clone())])?;
        Ok(workspace)
    }
}

impl Move {
    /// Checks that its name and path are free, and that the maximum is not reached.
    fn may_return(&self, work: &mut VerbContext<'_>, workspace: &Workspace) -> VerbResult<()> {
        let query =
            WorkspaceQuery { repository: Some(workspace.repository.clone()), live: true, ..WorkspaceQuery::default() };
        let live = work.tx.workspaces(&query)?;
        let here: Vec<_> = live.iter().filter(|known| known.host == workspace.host).collect();
        if let Some(known) = here.iter().find(|known| known.name == workspace.name || known.path == workspace.path) {
            return Err(Refusal::Exists { what: "workspace".into(), name: known.name.clone() }.into());
        }
        room_for_one(&here, self.most)
    }

    /// Checks that no agent works in it, and that toft may remove it.
    fn may_remove(&self, work: &mut VerbContext<'_>, workspace: &Workspace) -> VerbResult<()> {
        if workspace.kind == WorkspaceKind::InPlace {
            return Err(refused(workspace, "in place", "toft does not remove your own checkout").into());
        }
        removable(work, workspace, self.fence.as_ref())
    }
}

/// Checks that a workspace is not kept, and that nobody else works in it.
fn removable(work: &mut VerbContext<'_>, workspace: &Workspace, fence: Option<&Fence>) -> VerbResult<()> {
    if workspace.pinned {
        return Err(refused(workspace, "pinned", "toft ws keep --off unpins it").into());
    }
    match &workspace.task {
        Some(task) => may_work(work, task, fence),
        None => Ok(()),
    }
}

/// Unregister a checkout of the user's own as a workspace. Nothing on disk changes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceUnregister")]
pub struct Unregister {
    /// The workspace, by name, id or prefix.
    pub id: String,
    /// The fence of the lease under which this is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
}

impl Verb for Unregister {
    type Outcome = Workspace;
    const NAME: &'static str = "ws.unregister";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workspace> {
        work.register_caller()?;
        let mut workspace = find::workspace(work, &self.id)?;
        if workspace.kind != WorkspaceKind::InPlace {
            return Err(unfit(&workspace, "toft ws rm takes it down").into());
        }
        if !workspace.state.live() {
            return Ok(workspace);
        }
        if let Some(task) = &workspace.task {
            may_work(work, task, self.fence.as_ref())?;
        }
        workspace.state = WorkspaceState::Removed;
        workspace.ports.clear();
        work.record(workspace.id.as_str(), "ws.unregistered", json!({}), vec![Write::Workspace(workspace.clone())])?;
        Ok(workspace)
    }
}

/// Record that the work in a workspace has landed, up to its present commit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceLanded")]
pub struct RecordLanded {
    /// The workspace, by name, id or prefix.
    pub id: String,
    /// The present commit of its work.
    pub commit: String,
    /// The fence of the lease on its task, if an agent holds one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
}

impl Verb for RecordLanded {
    type Outcome = Workspace;
    const NAME: &'static str = "ws.landed";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workspace> {
        work.register_caller()?;
        let mut workspace = find::workspace(work, &self.id)?;
        if !workspace.state.live() {
            return Err(unfit(&workspace, GONE).into());
        }
        // While another agent works on it, nobody but that agent can say that it has landed.
        removable(work, &workspace, self.fence.as_ref())?;
        if workspace.landed.as_ref() != Some(&self.commit) {
            workspace.landed = Some(self.commit);
            let detail = json!({ "commit": workspace.landed });
            work.record(workspace.id.as_str(), "ws.landed", detail, vec![Write::Workspace(workspace.clone())])?;
        }
        Ok(workspace)
    }
}

/// Pin a workspace so that it is not removed, or unpin it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspacePin")]
pub struct Pin {
    /// The workspace, by name, id or prefix.
    pub id: String,
    /// Whether it is pinned.
    #[serde(default)]
    pub pinned: bool,
}

impl Verb for Pin {
    type Outcome = Workspace;
    const NAME: &'static str = "ws.pin";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Worker);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workspace> {
        work.register_caller()?;
        let mut workspace = find::workspace(work, &self.id)?;
        if !workspace.state.live() {
            return Err(unfit(&workspace, GONE).into());
        }
        if workspace.pinned != self.pinned {
            workspace.pinned = self.pinned;
            let verb = if self.pinned { "ws.pinned" } else { "ws.unpinned" };
            work.record(workspace.id.as_str(), verb, json!({}), vec![Write::Workspace(workspace.clone())])?;
        }
        Ok(workspace)
    }
}
