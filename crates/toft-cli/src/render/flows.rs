//! Workflows and templates.

use serde_json::json;
use toft::{
    flow::{Source, Template, Workflow, WorkflowStatus},
    verbs::{flow, replan},
};

use super::{
    CommandView, Names,
    page::{Page, after, after_words, clean, counted, cut, short},
    view::data,
};

/// Tasks of a new workflow that are listed.
const MAX_NEW_TASKS: usize = 20;

/// One workflow in one line: the progress of its tasks; of an issue with one task, the status of that.
pub(super) fn line(page: &mut Page, listed: &flow::Listed, repository: &str) {
    let flow::Listed { workflow, progress } = listed;
    let id = page.id(workflow.issue().unwrap_or(workflow.id.as_str()));
    let title = short(&workflow.title, 60);
    if let (Some(_), 1, Some(status)) = (workflow.issue(), workflow.tasks, progress.keys().next()) {
        let running = workflow.status == WorkflowStatus::Running;
        let status = if running { clean(status) } else { workflow.status.as_str().to_owned() };
        return page.row([id, status, String::new(), title, page.faint(repository)]);
    }
    let done = progress.get("done").unwrap_or(&0) + progress.get("skipped").unwrap_or(&0);
    let rest: Vec<_> = progress
        .iter()
        .filter(|(status, _)| !matches!(status.as_str(), "done" | "skipped"))
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    let title = title + &page.faint(after_words(", ", &rest));
    let worktree = workflow.place.worktree.as_deref().map(|name| format!("({})", clean(name))).unwrap_or_default();
    let (status, progress) = (workflow.status.as_str().to_owned(), format!("{done}/{}", workflow.tasks));
    page.row([id, status, progress, title, page.faint(repository), page.faint(worktree)]);
}

pub(crate) fn view_new_flow(made: &flow::Outcome) -> CommandView<'_> {
    let flow::Outcome { workflow, tasks, .. } = made;
    CommandView::new("workflow", json!({ "workflow": workflow, "tasks": tasks }), [&workflow.id], move |page| {
        let (id, title, status) = (&workflow.id, short(&workflow.title, 70), workflow.status.as_str());
        let count = counted(workflow.tasks as usize, "task");
        page.line(format!("Created {id} \"{title}\" with {count}, {status}"));
        for task in tasks.iter().take(MAX_NEW_TASKS) {
            page.row([format!("  {}", page.id(task.id.as_str())), short(&task.spec.name, 70)]);
        }
        if tasks.len() > MAX_NEW_TASKS {
            page.line(format!("  … and {} more: toft flow show {id}", tasks.len() - MAX_NEW_TASKS));
        }
    })
}

pub(crate) fn view_moved_flow(workflow: &Workflow) -> CommandView<'_> {
    let line = format!("{} \"{}\" is {}", workflow.id, short(&workflow.title, 70), workflow.status.as_str());
    CommandView::of_line("workflow", workflow, [&workflow.id], line)
}

pub(crate) fn view_flow(shown: &flow::Shown) -> CommandView<'_> {
    CommandView::new("workflow", shown, shown.tasks.iter().map(|row| &row.task.id), move |page| {
        let flow::Shown { workflow, progress, tasks } = shown;
        line(page, &flow::Listed { workflow: workflow.clone(), progress: progress.clone() }, "");
        if let Some(reason) = &workflow.reason {
            page.line(format!("  because: {}", clean(reason)));
        }
        if let Source::External { reference } = &workflow.source {
            page.line(format!("  from {}", clean(reference)));
        }
        for (name, value) in &workflow.config {
            page.line(format!("  {} = {}", clean(name), clean(&value.to_string())));
        }
        if let Some(limit) = workflow.max_parallel {
            page.line(format!("  at most {limit} tasks at a time"));
        }
        if let Some(budget) = workflow.budget {
            page.line(format!("  spent {} of {budget}", workflow.spent));
        }
        for row in tasks {
            let id = format!("  {}", page.id(row.task.id.as_str()));
            let (status, title) = (page.status(row.task.state.status), short(&row.task.spec.name, 60));
            page.row([
                id,
                status,
                title,
                after("", row.holder.as_ref()),
                page.faint(after_words("after ", &row.needs)),
            ]);
        }
        if tasks.len() < workflow.tasks as usize {
            page.line(format!("  … {} of {} shown; use --limit for more", tasks.len(), workflow.tasks));
        }
    })
}

pub(crate) fn view_flows<'a>(rows: &'a [flow::Listed], more: bool, names: &'a Names) -> CommandView<'a> {
    CommandView::new("workflows", names.json(data(rows)), rows.iter().map(|row| &row.workflow.id), move |page| {
        for listed in rows {
            line(page, listed, &names.text(listed.workflow.id.as_str()));
        }
        if rows.is_empty() {
            page.line("No workflows. `toft flow new \"title\"` creates one.");
        }
        cut(page, more, rows.len());
    })
    .with_more(more)
}

pub(crate) fn view_changed_plan(outcome: &replan::Outcome) -> CommandView<'_> {
    CommandView::new("plan", outcome, [&outcome.workflow], move |page| {
        let replan::Outcome { workflow, added, changed, kept, skipped } = outcome;
        page.line(format!("Planned {workflow}"));
        for (word, names) in [("added", added), ("changed", changed), ("kept", kept), ("skipped", skipped)] {
            if !names.is_empty() {
                page.line(format!("  {word}: {}", clean(&names.join(", "))));
            }
        }
    })
}

pub(crate) fn view_stored_template(template: &Template) -> CommandView<'_> {
    let line = format!("{}@{} with {} tasks", clean(&template.name), template.version, template.plan.tasks.len());
    CommandView::of_line("template", template, [&template.id], line)
}

pub(crate) fn view_templates(templates: &[Template]) -> CommandView<'_> {
    CommandView::new("templates", templates, templates.iter().map(|template| &template.name), move |page| {
        for template in templates {
            let variables: Vec<_> = template.variables.keys().cloned().collect();
            let about = template.description.as_ref().unwrap_or(&template.plan.title);
            let name = format!("{}@{}", clean(&template.name), template.version);
            page.row([name, short(about, 60), after_words("sets ", &variables)]);
        }
        if templates.is_empty() {
            page.line("No templates. `toft flow template put FILE` stores one.");
        }
    })
}

pub(crate) fn view_template(template: &Template) -> CommandView<'_> {
    CommandView::new("template", template, [&template.name], move |page| {
        let Template { name, version, description, extends, variables, plan, .. } = template;
        let extends = extends.as_ref().map(|base| format!(" (extends {})", clean(base))).unwrap_or_default();
        page.line(format!("{}@{version}{extends}  {}", clean(name), short(&plan.title, 70)));
        if let Some(text) = description {
            page.block("  ", text);
        }
        for (name, variable) in variables {
            let default = match &variable.default {
                Some(text) => format!(" = {}", clean(text)),
                None => " (required)".to_owned(),
            };
            let about = variable.about.as_ref().map(|text| short(text, 60)).unwrap_or_default();
            page.row([format!("  --set {}{default}", clean(name)), about]);
        }
        page.end_table();
        for task in &plan.tasks {
            page.row([format!("  {}", short(&task.name, 60)), page.faint(after_words("after ", &task.needs))]);
        }
    })
}

pub(crate) fn view_removed_template(template: &Template) -> CommandView<'_> {
    let (name, next) = (clean(&template.name), template.version + 1);
    let line = format!("Removed template {name}; storing it again creates version {next}");
    CommandView::of_line("template", template, [&template.name], line)
}
