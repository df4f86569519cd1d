//! Workspaces: who may ask for one, and how it goes on from there. Directories are made and removed between two of these
//! verbs, never inside one.

mod listing;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

pub use self::listing::{List, Listed, Show};
use super::{Verb, VerbContext, find};
use crate::{
    change::Write,
    flow::Evidence,
    id::{TaskId, WorkspaceId},
    lease::{Fence, LeaseStatus},
    refusal::{Refusal, VerbResult},
    store::{Access, TaskQuery, WorkspaceQuery},
    workspace::{Left, Workspace, WorkspaceKind, WorkspaceState},
};

/// How many may be there at once, unless configuration says otherwise.
pub const MOST: usize = 500;
/// What helps with one that is gone.
const GONE: &str = "toft ws restore brings back what was put away, toft ws create makes one";
/// How many that could go are named when there is no room.
const NAMED: usize = 5;

/// Ask for a workspace: afterwards its row is there, and its directory may be made.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceProvide")]
#[serde(default)]
pub struct Provide {
    /// What to call it.
    pub name: String,
    /// How it is isolated.
    pub kind: WorkspaceKind,
    /// Where it will be.
    pub path: String,
    /// The checkout it is made from.
    pub source: String,
    /// The branch it is made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// That branch is made for it.
    pub own_branch: bool,
    /// The commit it is made from.
    pub base: String,
    /// The branch its work is to land on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onto: Option<String>,
    /// The frozen checkout it is to stand on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay_base: Option<String>,
    /// It is made ahead, for whoever needs one next.
    pub pooled: bool,
    /// Not one that was made ahead.
    pub fresh: bool,
    /// Its directory is there already.
    pub made: bool,
    /// What is done in it, by id or prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// The hold it is asked for under; my own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// At most so many at once.
    pub most: usize,
    /// Names of ports it needs.
    pub ports: Vec<String>,
    /// Numbers that nobody uses now, to choose from.
    pub free: Vec<u16>,
}

/// What a workspace for some work is called.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceName")]
pub struct Name {
    /// The work: a task or an issue, by id; a task by prefix too.
    pub id: String,
}

/// A name, and the task that is worked in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NamedWorkspace")]
pub struct Named {
    /// The name.
    pub name: String,
    /// The task; none if nobody has begun.
    pub task: Option<TaskId>,
    /// The commit that its last holder spoke of.
    pub commit: Option<String>,
    /// The issue it is done for.
    pub issue: Option<String>,
    /// The commits that show that what it needs is done.
    pub needs: Vec<String>,
    /// What the task is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

impl Verb for Name {
    type Outcome = Named;
    const NAME: &'static str = "ws.name";
    const ACCESS: Access = Access::Read;

    /// After the issue, if all of it is one task; else after the task.
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
        let commit = work.tx.checkpoints(&task.id, 1)?.pop().and_then(|checkpoint| checkpoint.commit);
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

/// A workspace that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ProvidedWorkspace")]
pub struct Provided {
    /// The workspace.
    pub workspace: Workspace,
    /// Somebody asked for it before; its directory may be there.
    pub begun: bool,
    /// It was made ahead, and waits to be turned into what is wanted.
    pub ahead: bool,
}

impl Verb for Provide {
    type Outcome = Provided;
    const NAME: &'static str = "ws.provide";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Provided> {
        work.me()?;
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
    /// One that was made ahead becomes what is wanted.
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

/// Fewer are there than may be.
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

/// A number for each name.
fn lease_ports(names: &[String], free: &[u16], taken: &BTreeSet<u16>) -> VerbResult<BTreeMap<String, u16>> {
    let ports: BTreeMap<_, _> =
        names.iter().cloned().zip(free.iter().copied().filter(|port| !taken.contains(port))).collect();
    match ports.len() == names.iter().collect::<BTreeSet<_>>().len() {
        true => Ok(ports),
        false => Err(Refusal::Invalid { field: "ports".into(), problem: "no free numbers are left".into() }.into()),
    }
}

/// A workspace that is there already is used again, unless somebody is in it; one that was never handed over is gone on
/// with.
fn take_up(work: &mut VerbContext<'_>, mut known: Workspace, task: Option<&TaskId>) -> VerbResult<Provided> {
    let handed_over = known.state != WorkspaceState::Provisioning;
    if task.is_none() && handed_over {
        return Err(Refusal::Exists { what: "workspace".into(), name: known.name }.into());
    }
    if let Some(other) = known.task.clone().filter(|other| Some(other) != task) {
        may_work(work, &other, None)?;
    }
    if handed_over && known.state != WorkspaceState::Ready {
        return Err(unfit(&known, "toft ws show says why").into());
    }
    known.task = task.cloned().or(known.task);
    known.used = work.now.wall;
    let detail = json!({ "task": known.task });
    work.record(known.id.as_str(), "ws.reused", detail, vec![Write::Workspace(known.clone())])?;
    Ok(Provided { workspace: known, begun: true, ahead: false })
}

/// Nobody else holds the task; with a fence, that hold is the live one.
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

/// A workspace goes on: its directory was made, is to be removed, is gone, or is not as it should be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceMove")]
pub struct Move {
    /// Which, by name, id or prefix.
    pub id: String,
    /// Where to.
    pub to: WorkspaceState,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The commit that holds everything that was in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescue: Option<String>,
    /// What goes with its directory and no rescue holds.
    #[serde(default)]
    pub left: Vec<Left>,
    /// The hold it is done under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// At most so many may be there, if it comes back.
    pub most: usize,
}

impl Move {
    /// A step without more to say.
    pub fn to(id: &WorkspaceId, to: WorkspaceState) -> Self {
        Self { id: id.to_string(), to, reason: None, rescue: None, left: Vec::new(), fence: None, most: MOST }
    }
}

impl Verb for Move {
    type Outcome = Workspace;
    const NAME: &'static str = "ws.move";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workspace> {
        work.me()?;
        let mut workspace = find::workspace(work, &self.id)?;
        if workspace.state == self.to && self.to != WorkspaceState::Removing {
            return Ok(workspace);
        }
        if workspace.state != self.to && !workspace.state.may_become(self.to) {
            let wanted = match (workspace.state, self.to) {
                (WorkspaceState::Removed, _) => GONE.to_owned(),
                (WorkspaceState::Ready, WorkspaceState::Provisioning) => {
                    format!("it is at {}; toft ws restore --name opens what was put away beside it", workspace.path)
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
    /// Its name and place are free, and there is room.
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

    /// Nobody works in it, and it is toft's to remove.
    fn may_remove(&self, work: &mut VerbContext<'_>, workspace: &Workspace) -> VerbResult<()> {
        if workspace.pinned {
            return Err(refused(workspace, "pinned", "toft ws unpin lets it go").into());
        }
        if workspace.kind == WorkspaceKind::InPlace {
            return Err(refused(workspace, "in place", "a checkout of the user's own stays").into());
        }
        match &workspace.task {
            Some(task) => may_work(work, task, self.fence.as_ref()),
            None => Ok(()),
        }
    }
}

/// A checkout of the user's own is no longer known as a workspace. Nothing on disk changes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceUnregister")]
pub struct Unregister {
    /// Which, by name, id or prefix.
    pub id: String,
    /// The hold it is done under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
}

impl Verb for Unregister {
    type Outcome = Workspace;
    const NAME: &'static str = "ws.unregister";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workspace> {
        work.me()?;
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

/// The work in a workspace has landed, as far as its present commit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspaceLanded")]
pub struct RecordLanded {
    /// Which, by name, id or prefix.
    pub id: String,
    /// The commit that its work is at.
    pub commit: String,
}

impl Verb for RecordLanded {
    type Outcome = Workspace;
    const NAME: &'static str = "ws.landed";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workspace> {
        work.me()?;
        let mut workspace = find::workspace(work, &self.id)?;
        if workspace.landed.as_ref() != Some(&self.commit) {
            workspace.landed = Some(self.commit);
            let detail = json!({ "commit": workspace.landed });
            work.record(workspace.id.as_str(), "ws.landed", detail, vec![Write::Workspace(workspace.clone())])?;
        }
        Ok(workspace)
    }
}

/// Holds a workspace so that it is not removed, or releases it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WorkspacePin")]
pub struct Pin {
    /// Which, by name, id or prefix.
    pub id: String,
    /// Whether it stays.
    #[serde(default)]
    pub pinned: bool,
}

impl Verb for Pin {
    type Outcome = Workspace;
    const NAME: &'static str = "ws.pin";
    const ACCESS: Access = Access::Write;

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Workspace> {
        work.me()?;
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
