//! Workspaces.

use toft::{Toft, workspaces::Wanted};

use super::{App, Done, work::task_or_issue};
use crate::{
    args::{CreateWs, From, WsCommand},
    exit::Failure,
    render::{Rescued, WsEnv, WsGiven, WsList, WsPath, WsPinned, WsPooled, WsShown, WsTidied},
};

pub(super) fn run(app: &App<'_>, command: &WsCommand) -> Done {
    let toft = app.open()?;
    let all = toft.workspaces()?;
    let me = &toft.located().agent;
    match command {
        WsCommand::Create(args) => create(app, toft, args),
        WsCommand::List(args) => {
            let mut seen = all.list(args.all, args.limit + 1)?;
            let more = seen.len() > args.limit;
            seen.truncate(args.limit);
            app.show(&WsList { seen, more, collisions: all.collisions()?, unknown: all.unknown()? })
        }
        WsCommand::Show(one) => {
            let seen = all.show(&named(toft, &one.id)?)?;
            let bytes = toft::workspaces::own_size(&seen.listed.workspace);
            app.show(&WsShown { seen, bytes })
        }
        WsCommand::Path(one) => app.show(&WsPath(all.open(&named(toft, &one.id)?)?)),
        WsCommand::Env(one) => {
            let workspace = all.show(&named(toft, &one.id)?)?.listed.workspace;
            app.show(&WsEnv(toft::variables(&workspace)))
        }
        WsCommand::Rm(args) => {
            let id = named(toft, &args.one.id)?;
            let _soon = app.output.soon(format!("taking {id} down"));
            app.show(&WsTidied { rows: vec![all.remove(me, &id, args.hold.fence.clone(), args.rescue)?], tried: false })
        }
        WsCommand::Gc(args) => {
            let rows = all.tidy(me, args.older_than, args.dry_run, |name| app.output.progress(name))?;
            app.output.progress("");
            app.show(&WsTidied { rows, tried: args.dry_run })
        }
        WsCommand::Rescue(one) => {
            let (workspace, commit) = all.rescue(&named(toft, &one.id)?)?;
            app.show(&Rescued { workspace, commit })
        }
        WsCommand::Restore(args) => {
            let id = named(toft, &args.one.id)?;
            app.show(&WsGiven(all.restore(me, &id, args.at.as_deref(), args.name.as_deref())?))
        }
        WsCommand::Pool { count } => {
            let made = all.pool(me, *count, |step| app.output.progress(step));
            app.output.progress("");
            app.show(&WsPooled { made: made?, count: *count })
        }
        WsCommand::Adopt { path } => app.show(&WsGiven(all.adopt(me, path)?)),
        WsCommand::Pin(one) => app.show(&WsPinned(all.pin(me, &named(toft, &one.id)?, true)?)),
        WsCommand::Unpin(one) => app.show(&WsPinned(all.pin(me, &named(toft, &one.id)?, false)?)),
    }
}

/// What a new one is to be made from.
pub(super) fn wanted(from: &From) -> Wanted {
    Wanted { base: from.base.clone(), clone: from.clone, plain: from.plain, ..Wanted::default() }
}

fn create(app: &App<'_>, toft: &Toft, args: &CreateWs) -> Done {
    let wanted = Wanted {
        work: task_or_issue(toft, args.id.as_ref())?,
        name: args.name.clone(),
        fence: args.hold.fence.clone(),
        ..wanted(&args.from)
    };
    let given = toft.workspaces()?.provide(&toft.located().agent, wanted, |step| app.output.progress(step));
    app.output.progress("");
    app.show(&WsGiven(given?))
}

/// What was typed for a workspace: an issue may be named by a prefix of its id.
fn named(toft: &Toft, text: &str) -> Result<String, Failure> {
    let found = match toft.plan()? {
        Some(plan) if text != "@" && !text.starts_with("ws_") && !text.contains('/') => plan.named(text)?,
        _ => None,
    };
    Ok(found.map_or_else(|| text.to_owned(), |found| found.issue.id))
}
