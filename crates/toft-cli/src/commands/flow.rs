//! Workflows and templates.

use serde_json::Value;
use toft::{
    flow::{PlanTask, Source, WorkflowPlan, WorkflowStatus},
    id::OpId,
    plan_file::{load_plan, load_template},
    verbs::{
        Operation, flow, replan,
        status::{self, NeedsYou},
        template,
    },
};

use super::{App, Done, RepositorySource, word};
use crate::{
    args::{EditFlow, FlowCommand, NewFlow, Retry, TemplateCommand},
    exit::Failure,
    render::{
        Names, view_changed_plan, view_decided_tasks, view_flow, view_flows, view_moved_flow, view_new_flow,
        view_removed_template, view_stored_template, view_tasks_to_retry, view_template, view_templates,
    },
};

/// How many failed tasks `toft retry --all` finds at once.
const MAX_RETRIED: usize = 500;

pub(super) fn run(app: &App<'_>, command: &FlowCommand) -> Done {
    match command {
        FlowCommand::New(args) => new(app, args),
        FlowCommand::Show { id, limit } => {
            let id = app.open()?.work().whole_id(id)?;
            let shown = app.perform(app.open()?, flow::Show { id, limit: *limit })?;
            app.show(&view_flow(&shown))
        }
        FlowCommand::List { all, status, limit, reach } => {
            let status = match status {
                Some(text) => Some(word::<WorkflowStatus>("status", text)?),
                None => None,
            };
            let (mut rows, mut names) = (Vec::new(), Names::default());
            for RepositorySource { toft, scope, name, .. } in app.reach(reach)? {
                let mut found = app.perform(toft, flow::List { scope, all: *all, status, limit: limit + 1 })?;
                found.retain(|row| names.add(row.workflow.id.as_str(), name.as_ref()));
                rows.extend(found);
            }
            let more = rows.len() > *limit;
            rows.truncate(*limit);
            app.show(&view_flows(&rows, more, &names))
        }
        FlowCommand::Pause(one) => step(app, one, flow::Step::Pause),
        FlowCommand::Resume(one) => step(app, one, flow::Step::Resume),
        FlowCommand::Abandon(one) => step(app, one, flow::Step::Abandon),
        FlowCommand::Edit(args) => edit(app, args),
        FlowCommand::Template(TemplateCommand::Put { file }) => {
            let template = app.perform(app.open()?, load_template(file)?)?;
            app.show(&view_stored_template(&template))
        }
        FlowCommand::Template(TemplateCommand::List) => {
            app.show(&view_templates(&app.perform(app.open()?, template::List {})?))
        }
        FlowCommand::Template(TemplateCommand::Show { name }) => {
            app.show(&view_template(&app.perform(app.open()?, template::Show { name: name.clone() })?))
        }
        FlowCommand::Template(TemplateCommand::Remove { name }) => {
            app.show(&view_removed_template(&app.perform(app.open()?, template::Remove { name: name.clone() })?))
        }
    }
}

pub(super) fn new(app: &App<'_>, args: &NewFlow) -> Done {
    let made = match (&args.title, &args.file, &args.template) {
        (_, Some(file), _) => {
            let source = Source::Plan { file: file.display().to_string() };
            app.perform(app.open()?, flow::New { plan: load_plan(file)?, source, hold: args.hold })?
        }
        (_, _, Some(template)) => {
            let values = args.values.iter().cloned().collect();
            app.perform(app.open()?, flow::From { template: template.clone(), values, hold: args.hold })?
        }
        (title, ..) => app.perform(app.open()?, titled(title.as_deref().unwrap_or_default(), args))?,
    };
    app.show(&view_new_flow(&made))
}

/// A workflow of a title and tasks.
fn titled(title: &str, args: &NewFlow) -> flow::New {
    let names: Vec<&str> = match (args.tasks.is_empty(), args.hold) {
        (true, true) => Vec::new(),
        (true, false) => vec![title],
        (false, _) => args.tasks.iter().map(String::as_str).collect(),
    };
    let plan = WorkflowPlan {
        title: title.to_owned(),
        priority: args.task.priority,
        max_parallel: args.max_parallel,
        budget: args.budget,
        tasks: names.into_iter().map(|name| planned(name, &args.task)).collect(),
        config: args.config.iter().map(|(name, text)| (name.clone(), value(text))).collect(),
        summary: None,
    };
    let source = match &args.external {
        Some(reference) => Source::External { reference: reference.clone() },
        None => Source::Prompt { text: title.to_owned() },
    };
    flow::New { plan, source, hold: args.hold }
}

fn edit(app: &App<'_>, args: &EditFlow) -> Done {
    let toft = app.open()?;
    let workflow = toft.work().whole_id(&args.id)?;
    if args.add.is_none() && args.task.any_given() {
        return Err(Failure::invalid("the fields of a task need a task", "--add NAME adds one with these fields"));
    }
    if args.file.is_none() && args.add.is_none() && args.max_parallel.is_none() && args.budget.is_none() {
        return Err(Failure::invalid("nothing to change", "toft flow edit --help lists what can be changed"));
    }
    match (&args.file, &args.add) {
        (Some(file), _) => app
            .show(&view_changed_plan(&app.perform(toft, replan::Request { workflow, tasks: load_plan(file)?.tasks })?)),
        (None, Some(name)) => {
            let tasks = vec![PlanTask { repository: args.repository.clone(), ..planned(name, &args.task) }];
            app.show(&view_changed_plan(&app.perform(toft, replan::Add { workflow, tasks })?))
        }
        (None, None) => {
            let request = flow::Limit { id: workflow, max_parallel: args.max_parallel, budget: args.budget };
            app.show(&view_moved_flow(&app.perform(toft, request)?))
        }
    }
}

/// JSON, or else the text itself.
fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn planned(name: &str, fields: &crate::args::TaskFields) -> PlanTask {
    PlanTask {
        name: name.to_owned(),
        brief: fields.brief.clone().unwrap_or_default(),
        needs: fields.needs.clone(),
        priority: fields.priority,
        labels: fields.labels.clone(),
        requires: fields.requires.clone(),
        max_attempts: fields.max_attempts,
        ..PlanTask::default()
    }
}

fn step(app: &App<'_>, one: &crate::args::One, to: flow::Step) -> Done {
    let id = app.open()?.work().whole_id(&one.id)?;
    let request = flow::Move { id, to, reason: one.message.clone() };
    app.show(&view_moved_flow(&app.perform(app.open()?, request)?))
}

/// Retries failed work: what is named, or all that failed for good.
pub(super) fn retry(app: &App<'_>, args: &Retry) -> Done {
    let toft = app.open()?;
    let mut tasks: Vec<String> = Vec::new();
    for id in &args.ids {
        tasks.push(toft.work().whole_id(id)?);
    }
    if args.all {
        let request = status::Request { scope: toft.work().scope(), limit: MAX_RETRIED };
        tasks.extend(toft.perform(request)?.needs_you.into_iter().filter_map(|need| match need {
            NeedsYou::Failed { task, text, .. } if args.failed_by.as_ref().is_none_or(|part| text.contains(part)) => {
                Some(task.to_string())
            }
            _ => None,
        }));
        if tasks.is_empty() {
            return Err(Failure::nothing("no work failed for good for such a reason", "toft status"));
        }
        if args.dry_run {
            return app.show(&view_tasks_to_retry(&tasks));
        }
    }
    decide_each(app, tasks, true, &args.message)
}

/// Retries or skips each task under an operation of its own. Once the first is done, what another one refuses is a note.
pub(super) fn decide_each(app: &App<'_>, tasks: Vec<String>, retry: bool, reason: &str) -> Done {
    let toft = app.open()?;
    let mut decided = Vec::new();
    for task in tasks {
        let op = app.op().map(|op| Operation { id: OpId::known(format!("{}.{task}", op.id)), ..op });
        let request = replan::Decide { task: task.clone(), retry, reason: reason.to_owned() };
        match toft.work().act(&toft.located().agent, op, request) {
            Ok(outcome) => decided.push(outcome),
            Err(error) if decided.is_empty() => return Err(error.into()),
            Err(error) => toft.note(format!("{task} was not changed: {error}")),
        }
    }
    app.show(&view_decided_tasks(&decided))
}
