//! Workspaces.

use std::collections::BTreeSet;

use toft::{
    Toft,
    lease::Fence,
    workspace::Workspace,
    workspaces::{Wanted, Workspaces},
};

use super::{App, Done};
use crate::{
    args::{CreateWs, From, GcWs, Hold, ListWs, RestoreWs, ShellKind, Show, WsCommand},
    exit::Failure,
    render::{
        WsList, WsShown, view_diff, view_given_workspace, view_pin, view_pool, view_rescue, view_rescues,
        view_shell_function, view_tidied, view_workspace_env, view_workspace_path,
    },
};

/// Shows what was changed in a workspace.
pub(super) fn diff(app: &App<'_>, args: &Show) -> Done {
    let toft = app.open()?;
    let all = toft.workspaces()?;
    let id = Some(args.id.as_str()).filter(|id| *id != "@");
    let workspace = all.open(&all.named(id)?)?;
    let diff = all.diff(&workspace, args.words)?;
    app.show(&view_diff(&workspace, &diff, args.stat))
}

pub(super) fn run(app: &App<'_>, command: &WsCommand) -> Done {
    let toft = app.open()?;
    let all = toft.workspaces()?;
    let me = &toft.located().agent;
    match command {
        WsCommand::Create(CreateWs { adopt: Some(path), .. }) => app.show(&view_given_workspace(&all.adopt(me, path)?)),
        WsCommand::Create(CreateWs { ahead: Some(count), .. }) => {
            let made = all.pool(me, *count, |step| app.output.progress(step));
            app.output.progress("");
            app.show(&view_pool(made?, *count))
        }
        WsCommand::Create(args) => create(app, toft, args),
        WsCommand::List(ListWs { id: Some(id), .. }) => show(app, &all, &all.named(Some(id))?),
        WsCommand::List(args) => {
            let mut seen = all.list(args.all, args.limit + 1)?;
            let more = seen.len() > args.limit;
            seen.truncate(args.limit);
            app.show(&WsList { seen, more, unknown: all.unknown()?, now: all.now()? }.view())
        }
        WsCommand::Path(args) => {
            let workspace = all.open(&all.named(args.one.id.as_deref())?)?;
            match args.env {
                true => app.show(&view_workspace_env(&toft::variables(&workspace))),
                false => app.show(&view_workspace_path(&workspace)),
            }
        }
        WsCommand::Rm(args) => {
            let id = all.named(args.one.id.as_deref())?;
            let _soon = app.output.soon(format!("removing {id}"));
            let workspace = toft.perform(toft::verbs::workspace::Show { id: id.clone() })?.workspace;
            let fence = fence_for(toft, &workspace, &args.hold)?;
            if args.landed {
                all.record_landed(me, &id, fence.clone())?;
            }
            app.show(&view_tidied(&[all.remove(me, &id, fence, args.rescue, args.ignored)?], false))
        }
        WsCommand::Gc(GcWs { rescue: Some(id), at: Some(at), .. }) => {
            let workspaces: BTreeSet<String> = all
                .all_rescues(None)?
                .into_iter()
                .filter_map(|(_, workspace)| workspace)
                .filter(|workspace| workspace.name == *id)
                .map(|workspace| workspace.id.to_string())
                .collect();
            if workspaces.len() > 1 {
                let ids: Vec<String> = workspaces.into_iter().collect();
                let help = format!("name one of them by its id: {}", ids.join(", "));
                return Err(Failure::invalid(format!("several workspaces with rescues were called {id}"), &help));
            }
            let (rescue, workspace) = all.delete_rescue(&all.named(Some(id))?, at)?;
            app.show(&view_rescues(&[(rescue, Some(workspace))], true, all.now()?))
        }
        WsCommand::Gc(args) => {
            let rows = all.tidy(me, args.older_than, args.dry_run, |name| app.output.progress(name))?;
            app.output.progress("");
            app.show(&view_tidied(&rows, args.dry_run))
        }
        WsCommand::Rescue(args) => {
            let (workspace, rescued) = all.rescue(&all.named(args.one.id.as_deref())?, args.ignored)?;
            let number = all.rescues(&workspace)?.last().map_or(0, |rescue| rescue.number);
            app.show(&view_rescue(&workspace, &rescued, number))
        }
        WsCommand::Restore(RestoreWs { id: None, .. }) => {
            app.show(&view_rescues(&all.all_rescues(None)?, false, all.now()?))
        }
        WsCommand::Restore(args) => {
            let id = all.named(args.id.as_deref())?;
            app.show(&view_given_workspace(&all.restore(me, &id, args.at.as_deref(), args.name.as_deref())?))
        }
        WsCommand::Keep(args) => app.show(&view_pin(&all.pin(me, &all.named(args.one.id.as_deref())?, !args.off)?)),
    }
}

/// Shows one workspace, with its rescues and what a rescue of it would leave out.
pub(super) fn show(app: &App<'_>, all: &Workspaces<'_>, id: &str) -> Done {
    let seen = all.show(id)?;
    let bytes = toft::workspaces::own_size(&seen.listed.workspace);
    let rescues = all.rescues(&seen.listed.workspace)?;
    // What cannot be read is said by what was seen in it.
    let left = seen.survey.as_ref().and_then(|_| all.leaves(&seen.listed.workspace).ok()).unwrap_or_default();
    app.show(&WsShown { seen, bytes, rescues, left }.view())
}

/// Prints a shell function for a shell, or for the one that `$SHELL` names.
pub(super) fn shell(app: &App<'_>, shell: Option<ShellKind>) -> Done {
    let own = std::env::var("SHELL").unwrap_or_default();
    let own = match own.rsplit('/').next() {
        Some("fish") => ShellKind::Fish,
        Some("zsh") => ShellKind::Zsh,
        _ => ShellKind::Bash,
    };
    app.show(&view_shell_function(shell.unwrap_or(own)))
}

/// The fence of this session's hold on what is done in a workspace.
fn fence_for(toft: &Toft, workspace: &Workspace, hold: &Hold) -> Result<Option<Fence>, Failure> {
    match (&hold.fence, &workspace.task) {
        (Some(fence), _) => Ok(Some(fence.clone())),
        (None, Some(task)) => Ok(toft.hold_of(&toft.located().agent, Some(task.as_str()))?.1),
        (None, None) => Ok(None),
    }
}

/// What a new one is to be made from.
pub(super) fn wanted(from: &From) -> Wanted {
    Wanted { base: from.base.clone(), clone: from.clone, plain: from.plain, ..Wanted::default() }
}

fn create(app: &App<'_>, toft: &Toft, args: &CreateWs) -> Done {
    let work = args.id.as_deref().map(|id| toft.work().whole_id(id)).transpose()?;
    let fence = match (&args.hold.fence, &work) {
        (Some(fence), _) => Some(fence.clone()),
        // An issue that nobody has begun has no hold.
        (None, Some(work)) => toft.hold_of(&toft.located().agent, Some(work)).ok().and_then(|(_, fence)| fence),
        (None, None) => None,
    };
    let wanted = Wanted { work, name: args.name.clone(), fence, in_place: args.in_place, ..wanted(&args.from) };
    let given = toft.workspaces()?.provide(&toft.located().agent, wanted, |step| app.output.progress(step));
    app.output.progress("");
    app.show(&view_given_workspace(&given?))
}
