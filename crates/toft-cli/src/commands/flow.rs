//! Workflows and templates.

use serde_json::Value;
use toft::{
    flow::{PlanTask, Source, WorkflowPlan, WorkflowStatus},
    plan_file::{load_plan, load_template},
    verbs::{flow, replan, template},
};

use super::{App, Done, RepositorySource, word};
use crate::{
    args::{Apply, FlowCommand, FromTemplate, NewFlow, TemplateCommand},
    render::{
        FlowList, FlowMade, FlowMoved, FlowShown, Names, Replanned, TaskDecided, TemplateKept, TemplateList,
        TemplateRemoved, TemplateShown,
    },
};

pub(super) fn run(app: &App<'_>, command: &FlowCommand) -> Done {
    match command {
        FlowCommand::New(args) => new(app, args),
        FlowCommand::Apply(args) => apply(app, args),
        FlowCommand::From(args) => from(app, args),
        FlowCommand::Show { id, limit } => {
            let id = app.open()?.work().whole_id(id)?;
            let shown = app.perform(app.open()?, flow::Show { id, limit: *limit })?;
            app.show(&FlowShown(shown))
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
            app.show(&FlowList { rows, more, names })
        }
        FlowCommand::Start(one) => step(app, one, flow::Step::Start),
        FlowCommand::Pause(one) => step(app, one, flow::Step::Pause),
        FlowCommand::Resume(one) => step(app, one, flow::Step::Resume),
        FlowCommand::Abandon(one) => step(app, one, flow::Step::Abandon),
        FlowCommand::Limit { id, max_parallel, budget } => {
            let id = app.open()?.work().whole_id(id)?;
            let request = flow::Limit { id, max_parallel: *max_parallel, budget: *budget };
            app.show(&FlowMoved(app.perform(app.open()?, request)?))
        }
        FlowCommand::Add { workflow, name, repository, task } => {
            let tasks = vec![PlanTask { repository: repository.clone(), ..planned(name, task) }];
            let outcome =
                app.perform(app.open()?, replan::Add { workflow: app.open()?.work().whole_id(workflow)?, tasks })?;
            app.show(&Replanned(outcome))
        }
        FlowCommand::Replan { workflow, file } => {
            let tasks = load_plan(file)?.tasks;
            let outcome =
                app.perform(app.open()?, replan::Request { workflow: app.open()?.work().whole_id(workflow)?, tasks })?;
            app.show(&Replanned(outcome))
        }
        FlowCommand::Retry { task, message } => decide(app, task, true, message),
        FlowCommand::Skip { task, message } => decide(app, task, false, message),
        FlowCommand::Template(TemplateCommand::Put { file }) => {
            let template = app.perform(app.open()?, load_template(file)?)?;
            app.show(&TemplateKept(template))
        }
        FlowCommand::Template(TemplateCommand::List) => {
            app.show(&TemplateList(app.perform(app.open()?, template::List {})?))
        }
        FlowCommand::Template(TemplateCommand::Show { name }) => {
            app.show(&TemplateShown(app.perform(app.open()?, template::Show { name: name.clone() })?))
        }
        FlowCommand::Template(TemplateCommand::Remove { name }) => {
            app.show(&TemplateRemoved(app.perform(app.open()?, template::Remove { name: name.clone() })?))
        }
    }
}

pub(super) fn new(app: &App<'_>, args: &NewFlow) -> Done {
    let names: Vec<&String> = match (args.tasks.is_empty(), args.hold) {
        (true, true) => Vec::new(),
        (true, false) => vec![&args.title],
        (false, _) => args.tasks.iter().collect(),
    };
    let plan = WorkflowPlan {
        title: args.title.clone(),
        priority: args.task.priority,
        max_parallel: args.max_parallel,
        budget: args.budget,
        tasks: names.into_iter().map(|name| planned(name, &args.task)).collect(),
        config: args.config.iter().map(|(name, text)| (name.clone(), value(text))).collect(),
        summary: None,
    };
    let source = match &args.external {
        Some(reference) => Source::External { reference: reference.clone() },
        None => Source::Prompt { text: args.title.clone() },
    };
    let made = app.perform(app.open()?, flow::New { plan, source, hold: args.hold })?;
    app.show(&FlowMade(made))
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

fn apply(app: &App<'_>, args: &Apply) -> Done {
    let plan = load_plan(&args.file)?;
    let source = Source::Plan { file: args.file.display().to_string() };
    let made = app.perform(app.open()?, flow::New { plan, source, hold: args.hold })?;
    app.show(&FlowMade(made))
}

fn from(app: &App<'_>, args: &FromTemplate) -> Done {
    let values = args.values.iter().cloned().collect();
    let request = flow::From { template: args.template.clone(), values, hold: args.hold };
    app.show(&FlowMade(app.perform(app.open()?, request)?))
}

fn step(app: &App<'_>, one: &crate::args::One, to: flow::Step) -> Done {
    let id = app.open()?.work().whole_id(&one.id)?;
    let request = flow::Move { id, to, reason: one.message.clone() };
    app.show(&FlowMoved(app.perform(app.open()?, request)?))
}

fn decide(app: &App<'_>, task: &str, retry: bool, message: &str) -> Done {
    let task = app.open()?.work().whole_id(task)?;
    let request = replan::Decide { task, retry, reason: message.to_owned() };
    app.show(&TaskDecided(app.perform(app.open()?, request)?))
}
