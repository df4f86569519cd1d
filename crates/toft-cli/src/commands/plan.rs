//! Issues.

use std::{path::Path, time::Duration};

use toft::{
    Toft,
    id::TaskId,
    issue::{
        DISCOVERED_FROM, Dep,
        edit::{Edit, Step},
        route::Route,
    },
    plan::{BeadsDirectory, Export, FoundIssue, Import, IssueFilter, Older, Plan, Wrote},
    time::Timestamp,
    verbs::{assign, issue::OnIt, log, workspace},
    workspace::Workspace,
};

use super::{App, Done, agent, at_terminal, share, upkeep, word};
use crate::{
    args, editor,
    exit::Failure,
    render::{
        IssueShown, view_compactions, view_export, view_import, view_ledgers, view_publications, view_undone,
        view_written_issue, view_written_issues,
    },
};

/// How much of an issue's history is shown with it.
const HISTORY: usize = 5;

/// The plan here; plans live in repositories.
pub(super) fn plan(toft: &Toft) -> Result<Plan<'_>, Failure> {
    toft.plan()?.ok_or_else(|| {
        Failure::invalid(
            "issues need a repository, and this directory is in none",
            "change to a repository, or run toft init --no-vcs",
        )
    })
}

/// Whether this clone has several ledgers, so that texts must name the one they mean.
pub(super) fn several(toft: &Toft) -> Result<bool, Failure> {
    Ok(toft.plan()?.is_some_and(|plan| plan.ledgers().len() > 1))
}

/// A day, or a time from now on.
fn due(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    if let Ok(day) = text.parse::<jiff::civil::Date>() {
        let end = day.at(23, 59, 59, 0).to_zoned(toft::local_time_zone());
        return end.map(|end| Timestamp(end.timestamp().as_millisecond())).map_err(|error| {
            Failure::invalid(format!("--due: {error}"), "a date such as 2026-12-01, or a time such as 3d")
        });
    }
    let span = toft::time::parse_duration(text).map_err(|problem| {
        Failure::invalid(format!("--due: {problem}"), "a date such as 2026-12-01, or a time such as 3d")
    })?;
    Ok(now.plus(span))
}

fn edit(fields: &args::Fields, now: Timestamp) -> Result<Edit, Failure> {
    let texts = [
        ("body", &fields.body),
        ("design", &fields.design),
        ("acceptance", &fields.acceptance),
        ("notes", &fields.notes),
        ("owner", &fields.owner),
        ("template", &fields.template),
    ];
    let dep = |kind: &str| {
        let kind = kind.to_owned();
        move |on: &String| Dep { on: on.clone(), kind: kind.clone() }
    };
    let discovered = fields.discovered_from.iter().map(dep(DISCOVERED_FROM));
    Ok(Edit {
        priority: fields.priority,
        texts: texts.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect(),
        labels: fields.labels.clone(),
        needs: fields.needs.clone(),
        relates: discovered.chain(fields.related.iter().map(dep("related"))).collect(),
        parent: fields.parent.clone(),
        defer: fields.defer.map(|span| Some(now.plus(span))),
        due: fields.due.as_deref().map(|text| due(text, now)).transpose()?,
        ..Edit::default()
    })
}

/// What was typed for an issue: what I hold, or a task, stands for the issue it is done for.
fn issue_of(toft: &Toft, text: &String) -> Result<String, Failure> {
    if text != "@" && !text.starts_with(TaskId::PREFIX) {
        return Ok(text.clone());
    }
    let facts = toft.perform(toft::verbs::context::Request { id: text.clone() })?;
    facts.workflow.issue().map(str::to_owned).ok_or_else(|| {
        Failure::invalid(format!("{} is not done for an issue", facts.task.id), "name an issue: toft list")
    })
}

pub(super) fn add(app: &App<'_>, args: &args::Add) -> Done {
    let toft = app.open()?;
    let plan = plan(toft)?;
    let mut first = Edit { kind: args.kind.clone(), ..edit(&args.fields, plan.now()?)? };
    for need in first.needs.iter_mut().chain(&mut first.parent).chain(first.relates.iter_mut().map(|dep| &mut dep.on)) {
        *need = issue_of(toft, need)?;
    }
    let op = app.global.op.as_deref();
    if args.title == "-" {
        let edits = toft::plan::many(app.input_text()?, &first).map_err(|problem| {
            Failure::invalid(problem, "a Markdown list, or a JSON object with a title on each line")
        })?;
        let wrote = plan.add(&edits, args.ledger.as_deref(), op)?;
        return app.show(&view_written_issues(&wrote, "Added", several(toft)?));
    }
    let edits = [Edit { title: Some(args.title.clone()), ..first }];
    let mut wrote = plan.add(&edits, args.ledger.as_deref(), op)?;
    match wrote.pop() {
        Some(wrote) => app.show(&view_written_issue(&wrote, "Added", several(toft)?)),
        None => app.show(&view_written_issues(&wrote, "Added", false)),
    }
}

pub(super) fn change(app: &App<'_>, args: &args::EditIssue) -> Done {
    let toft = app.open()?;
    let plan = plan(toft)?;
    let status = match (&args.close, args.reopen) {
        (Some(reason), _) => Some(Step::Close { reason: reason.clone() }),
        (None, true) => Some(Step::Reopen),
        (None, false) => None,
    };
    let mut asked = Edit {
        title: args.title.clone(),
        kind: args.kind.clone(),
        unlabel: args.unlabel.clone(),
        unneeds: args.unneeds.clone(),
        comment: args.comment.clone(),
        status,
        ..edit(&args.fields, plan.now()?)?
    };
    if let Some(name) = &args.assignee {
        let to = Some(name.clone()).filter(|name| !name.is_empty());
        asked.assignee = Some(toft.perform(assign::Check { to })?.map(|agent| agent.name));
    }
    let by_hand =
        asked == Edit::default() && !app.served && !super::confined::is() && at_terminal() && !app.output.machine();
    if let ([id], Some(to)) = (args.ids.as_slice(), &asked.assignee)
        && asked == (Edit { assignee: Some(to.clone()), ..Edit::default() })
    {
        return agent::assign(app, id, to.as_deref());
    }
    if args.editor || by_hand {
        return change_by_hand(app, &plan, args, asked);
    }
    if asked == Edit::default() {
        return Err(Failure::invalid("nothing to change", "toft edit --help lists the fields"));
    }
    if args.title.is_some() && args.ids.len() > 1 {
        return Err(Failure::invalid("one title for several issues", "name one issue, or leave --title out"));
    }
    let ids = each_found(&plan, &args.ids)?;
    write_each(app, &ids, "Changed", |id, op| Ok(plan.edit(id, &asked, op)?))
}

/// Lets the user change an issue's title and description in an editor: the first line, and what follows it.
fn change_by_hand(app: &App<'_>, plan: &Plan<'_>, args: &args::EditIssue, mut asked: Edit) -> Done {
    let [id] = args.ids.as_slice() else {
        return Err(Failure::invalid("the editor opens one issue at a time", "name one issue, or use options"));
    };
    let issue = plan.find(id)?.issue;
    let body = issue.body.clone().unwrap_or_default();
    let text = format!("{}\n\n{body}\n", issue.title);
    let Some(edited) = editor::edited(&issue.id, &text, at_terminal())? else {
        return Err(Failure::stopped("nothing was changed in the editor", ""));
    };
    let (title, rest) = edited.text.trim_start().split_once('\n').unwrap_or((edited.text.trim(), ""));
    let (title, rest) = (title.trim(), rest.trim_matches('\n').trim_end());
    if title != issue.title {
        asked.title = Some(title.to_owned());
    }
    if rest != body.trim_matches('\n').trim_end() {
        asked.texts.push(("body", rest.to_owned()));
    }
    let write = || {
        let now = plan.find(&issue.id)?.issue;
        if (&now.title, &now.body) != (&issue.title, &issue.body) {
            return Err(Failure::stopped(format!("{} was changed while the editor was open", issue.id), ""));
        }
        write_each(app, std::slice::from_ref(&issue.id), "Changed", |id, op| Ok(plan.edit(id, &asked, op)?))
    };
    write().map_err(|failure| edited.kept(failure))
}

/// The issues that are meant: all of them must be there before the first is changed.
fn each_found(plan: &Plan<'_>, ids: &[String]) -> Result<Vec<String>, Failure> {
    ids.iter().map(|id| Ok(plan.find(id)?.issue.id)).collect()
}

/// Writes to each issue under an operation of its own, and shows what was written. Once the first is written, what another one
/// refuses is a note: the outcome stands.
pub(super) fn write_each(
    app: &App<'_>,
    ids: &[String],
    did: &'static str,
    write: impl Fn(&str, Option<&str>) -> Result<Wrote, Failure>,
) -> Done {
    let mut wrote = Vec::new();
    for (n, id) in ids.iter().enumerate() {
        let op = app.global.op.as_ref().map(|op| if n == 0 { op.clone() } else { format!("{op}.{n}") });
        match write(id, op.as_deref()) {
            Ok(written) => wrote.push(written),
            Err(failure) if wrote.is_empty() => return Err(failure),
            Err(failure) => app.open()?.note(format!("{id} was not changed: {}", failure.message)),
        }
    }
    let several = several(app.open()?)?;
    match (ids.len(), wrote.pop()) {
        (1, Some(wrote)) => app.show(&view_written_issue(&wrote, did, several)),
        (_, last) => app.show(&view_written_issues(&wrote.into_iter().chain(last).collect::<Vec<_>>(), did, several)),
    }
}

/// Closes issues that no agent holds work on, and rejects proposals.
pub(super) fn close(app: &App<'_>, args: &args::Close) -> Done {
    // A task of a workflow is skipped.
    let (tasks, issues): (Vec<&String>, Vec<&String>) = args.ids.iter().partition(|id| id.starts_with(TaskId::PREFIX));
    if let ([_, ..], [_, ..]) = (tasks.as_slice(), issues.as_slice()) {
        return Err(Failure::invalid("tasks and issues are closed by commands of their own", "name only one kind"));
    }
    if issues.is_empty() {
        let work = app.open()?.work();
        let tasks: Result<Vec<String>, _> = args.ids.iter().map(|id| work.whole_id(id)).collect();
        return super::flow::decide_each(app, tasks?, false, &args.reason);
    }
    let plan = plan(app.open()?)?;
    let ids = each_found(&plan, &args.ids)?;
    let proposed = plan.proposals()?;
    let all_proposed = ids.iter().all(|id| proposed.iter().any(|found| found.issue.id == *id));
    let did = if all_proposed { "Rejected" } else { "Closed" };
    write_each(app, &ids, did, |id, op| Ok(plan.close(id, &args.reason, op)?))
}

pub(super) fn reopen(app: &App<'_>, args: &args::Reopen) -> Done {
    let plan = plan(app.open()?)?;
    // The text of a deleted issue that nobody else ever had is kept outside of its ledger.
    args.ids.iter().try_for_each(|id| plan.recall(id))?;
    let ids = each_found(&plan, &args.ids)?;
    write_each(app, &ids, "Reopened", |id, op| Ok(plan.reopen(id, args.comment.as_deref(), op)?))
}

pub(super) fn delete(app: &App<'_>, args: &args::Delete) -> Done {
    if args.purge {
        return share::purge(app, args);
    }
    let wrote = plan(app.open()?)?.delete(&args.id, &args.reason)?;
    app.show(&view_written_issue(&wrote, "Deleted", several(app.open()?)?))
}

pub(super) fn undo(app: &App<'_>, args: &args::Undo) -> Done {
    let toft = app.open()?;
    let (work, agent) = (toft.work(), &toft.located().agent);
    let undone = match &args.last {
        Some(op) => work.undo_last(agent, op, args.dry_run)?,
        None if args.redo => work.redo(agent, args.count, args.dry_run)?,
        None => work.undo(agent, args.count, args.dry_run)?,
    };
    if undone.is_empty() {
        let what = if args.redo { "no operation that you undid" } else { "no operation of yours to undo" };
        return Err(Failure::nothing(format!("there is {what}"), "toft history"));
    }
    app.show(&view_undone(&undone, args.dry_run, args.redo))
}

pub(super) fn compact(app: &App<'_>, archive_after: Duration) -> Done {
    app.show(&view_compactions(&plan(app.open()?)?.compact(archive_after)?))
}

pub(super) fn import(app: &App<'_>, args: &args::Import) -> Done {
    let plan = plan(app.open()?)?;
    let path = Path::new(&args.file);
    let older = match args.form.as_str() {
        "caw" => Some(Older::Caw),
        "langgraph" => Some(Older::LangGraph),
        _ => None,
    };
    if let Some(store) = older {
        return match path.is_file() {
            true => app.show(&view_import(&plan.import_store(store, path, args.ledger.as_deref(), &args.only)?)),
            false => Err(Failure::invalid(format!("{} is not a file", args.file), "name the database file")),
        };
    }
    if !args.only.is_empty() {
        return Err(Failure::invalid("--only is for caw and langgraph", "leave --only out"));
    }
    let (text, mut notes) = match args.form.as_str() {
        "beads" if path.is_dir() => {
            let BeadsDirectory { text, notes, .. } = BeadsDirectory::read(path)?;
            (text, notes)
        }
        _ if args.file == "-" => (app.input_text()?.to_owned(), Vec::new()),
        _ => (read_text(&args.file)?, Vec::new()),
    };
    let form = match args.form.as_str() {
        "beads" => Import::Beads,
        "markdown" => Import::Markdown,
        _ => Import::Lines,
    };
    let mut imported = plan.import(form, &text, args.ledger.as_deref())?;
    imported.unreadable.append(&mut notes);
    app.show(&view_import(&imported))
}

fn read_text(file: &str) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::invalid(format!("{file}: {error}"), "name a file of UTF-8 text"))
}

pub(super) fn export(app: &App<'_>, args: &args::Export) -> Done {
    let form = match args.form.as_str() {
        "schema" if args.file.is_some() => return upkeep::schema(app, args.file.as_deref().unwrap_or_default()),
        "schema" => {
            app.output.lines(&[format!("{:#}", toft::issue::schema())]);
            return Ok(std::process::ExitCode::SUCCESS);
        }
        "beads" => Export::Beads,
        "csv" => Export::Csv,
        _ => Export::Lines,
    };
    let plan = plan(app.open()?)?;
    if let Some(file) = &args.file {
        if form != Export::Beads {
            let message = format!("{} goes to standard output", args.form);
            return Err(Failure::invalid(message, &format!("toft export {} > {file}", args.form)));
        }
        let mut path = Path::new(file).to_owned();
        let mut before = None;
        if path.is_dir() {
            let beads = BeadsDirectory::read(&path)?;
            before = Some(plan.import(Import::Beads, &beads.text, args.ledger.as_deref())?);
            path = beads.ledger;
        }
        let mut exported = plan.export_into(&path, args.ledger.as_deref())?;
        if let Some(before) = before {
            exported.imported.changed += before.changed;
            exported.imported.notes.splice(0..0, before.notes);
        }
        return app.show(&view_export(&exported));
    }
    app.output.lines(&match &args.at {
        Some(when) => plan.at(when)?.export(form)?,
        None => plan.export(form)?,
    });
    Ok(std::process::ExitCode::SUCCESS)
}

/// One issue, whole.
pub(super) fn show(app: &App<'_>, toft: &Toft, plan: &Plan<'_>, found: FoundIssue, args: &args::Show) -> Done {
    // What was is shown without what happens now.
    let past = args.at.is_some();
    let on = if past { None } else { toft.perform(OnIt { issue: found.issue.id.clone() })? };
    let why = if args.why { Some(plan.why(&found.issue)?) } else { None };
    let parts =
        IssueFilter { parent: Some(found.issue.id.clone()), all: true, limit: args.limit, ..IssueFilter::default() };
    let children = plan.list(&parts)?;
    let mut needs = Vec::new();
    for dep in &found.issue.deps {
        needs.push((dep.clone(), plan.known(&dep.on)?));
    }
    let needed_by = plan.needed_by(&found.issue.id)?;
    let overlay = plan.overlay(&found.issue.id)?;
    let issue = Some(found.issue.id.clone());
    let history = match past {
        true => Vec::new(),
        false => toft.perform(log::Request { issue, scope: toft.scope(), limit: HISTORY, ..Default::default() })?,
    };
    let workspace = match on.is_some() {
        true => workspace_of(toft, &found.issue.id)?,
        false => None,
    };
    app.show(&IssueShown { found, overlay, why, on, workspace, children, needs, needed_by, history }.view())
}

/// The workspace that an issue is worked on in.
fn workspace_of(toft: &Toft, issue: &str) -> Result<Option<Workspace>, Failure> {
    match toft.perform(workspace::Show { id: issue.to_owned() }) {
        Ok(found) => Ok(Some(found.workspace).filter(|workspace| workspace.state.live())),
        Err(toft::Error::Refused(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn ledger(app: &App<'_>, command: &args::LedgerCommand) -> Done {
    let toft = app.open()?;
    match command {
        args::LedgerCommand::List => {}
        args::LedgerCommand::Show { name } => {
            let plan = plan(toft)?;
            let all = plan.ledgers().iter().map(|ledger| ledger.name.clone());
            let names: Vec<String> = name.clone().map_or_else(|| all.collect(), |name| vec![name]);
            let shown = names.iter().map(|name| plan.publishes(name)).collect::<Result<Vec<_>, _>>()?;
            return app.show(&view_publications(&shown));
        }
        args::LedgerCommand::Add { name, place, read_only } => toft.ledgers().add_ledger(name, place, *read_only)?,
        args::LedgerCommand::Remove { name } => toft.ledgers().remove_ledger(name)?,
        args::LedgerCommand::Default { name } => toft.ledgers().set_default_ledger(name)?,
        args::LedgerCommand::Mode { mode } => toft.ledgers().set_routing_mode(word("mode", mode)?)?,
        args::LedgerCommand::Route { ledger, kind, label, path, role, remove } => {
            let role = role.as_ref().map(|role| word("role", role)).transpose()?;
            let (kind, label, path) = (kind.clone(), label.clone(), path.clone());
            let route = Route { kind, label, path, role, ledger: ledger.clone() };
            if *remove { toft.ledgers().remove_route(&route)? } else { toft.ledgers().add_route(route)? }
        }
    }
    app.show(&view_ledgers(&plan(toft)?.examined_ledgers()?))
}
