//! Workflows and templates.

use serde_json::{Value, json};
use toft::{
    flow::{Source, Template, Workflow, WorkflowStatus},
    verbs::{flow, replan},
};

use super::{
    Names, View, data,
    page::{Ink, Page, clean, short},
};

/// One workflow in one line: the progress of its tasks; of an issue with one task, the status of that.
pub(super) fn line(page: &mut Page, listed: &flow::Listed, repository: &str) {
    let flow::Listed { workflow, progress } = listed;
    let id = page.ink(Ink::Id, &workflow.issue().map_or_else(|| workflow.id.to_string(), clean));
    if let (Some(_), 1, Some(status)) = (workflow.issue(), workflow.tasks, progress.keys().next()) {
        let running = workflow.status == WorkflowStatus::Running;
        let status = if running { clean(status) } else { workflow.status.as_str().to_owned() };
        page.line(format!("{id}  {status:9}  {}{}", short(&workflow.title, 60), page.ink(Ink::Faint, repository)));
        return;
    }
    let done = progress.get("done").unwrap_or(&0) + progress.get("skipped").unwrap_or(&0);
    let rest: Vec<_> = progress
        .iter()
        .filter(|(status, _)| !matches!(status.as_str(), "done" | "skipped"))
        .map(|(status, count)| format!("{count} {status}"))
        .collect();
    let rest = if rest.is_empty() { String::new() } else { format!(", {}", rest.join(", ")) };
    let worktree = workflow.place.worktree.as_deref().map(|name| format!("  ({})", clean(name))).unwrap_or_default();
    page.line(format!(
        "{id}  {:9}  {done}/{}  {}{}",
        workflow.status.as_str(),
        workflow.tasks,
        short(&workflow.title, 60),
        page.ink(Ink::Faint, &format!("{rest}{worktree}{repository}"))
    ));
}

pub(crate) struct FlowMade(pub(crate) flow::Outcome);

impl View for FlowMade {
    fn kind(&self) -> &'static str {
        "workflow"
    }

    fn json(&self) -> Value {
        json!({ "workflow": self.0.workflow, "tasks": self.0.tasks })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.workflow.id.to_string()]
    }

    fn text(&self, page: &mut Page) {
        let workflow = &self.0.workflow;
        let tasks = match workflow.tasks {
            1 => "1 task".to_owned(),
            count => format!("{count} tasks"),
        };
        page.line(format!(
            "Created {} \"{}\" with {tasks}, {}",
            workflow.id,
            short(&workflow.title, 70),
            workflow.status.as_str()
        ));
        for task in self.0.tasks.iter().take(20) {
            page.line(format!("  {}  {}", page.ink(Ink::Id, task.id.as_str()), short(&task.spec.name, 70)));
        }
        if self.0.tasks.len() > 20 {
            page.line(format!("  … and {} more: toft flow show {}", self.0.tasks.len() - 20, workflow.id));
        }
    }
}

pub(crate) struct FlowMoved(pub(crate) Workflow);

impl View for FlowMoved {
    fn kind(&self) -> &'static str {
        "workflow"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.id.to_string()]
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("{} \"{}\" is {}", self.0.id, short(&self.0.title, 70), self.0.status.as_str()));
    }
}

pub(crate) struct FlowShown(pub(crate) flow::Shown);

impl View for FlowShown {
    fn kind(&self) -> &'static str {
        "workflow"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.tasks.iter().map(|row| row.task.id.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        let flow::Shown { workflow, progress, tasks } = &self.0;
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
            let holder = row.holder.as_deref().map(|name| format!("  {}", clean(name))).unwrap_or_default();
            let needs =
                if row.needs.is_empty() { String::new() } else { format!("  after {}", clean(&row.needs.join(", "))) };
            page.line(format!(
                "  {}  {}  {}{holder}{}",
                page.ink(Ink::Id, row.task.id.as_str()),
                page.status(row.task.state.status),
                short(&row.task.spec.name, 60),
                page.ink(Ink::Faint, &needs)
            ));
        }
        if tasks.len() < workflow.tasks as usize {
            page.line(format!("  … {} of {} shown; use --limit for more", tasks.len(), workflow.tasks));
        }
    }
}

pub(crate) struct FlowList {
    pub(crate) rows: Vec<flow::Listed>,
    pub(crate) more: bool,
    pub(crate) names: Names,
}

impl View for FlowList {
    fn kind(&self) -> &'static str {
        "workflows"
    }

    fn json(&self) -> Value {
        self.names.json(data(&self.rows))
    }

    fn more(&self) -> Option<bool> {
        Some(self.more)
    }

    fn ids(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.workflow.id.to_string()).collect()
    }

    fn text(&self, page: &mut Page) {
        for listed in &self.rows {
            line(page, listed, &self.names.text(listed.workflow.id.as_str()));
        }
        if self.rows.is_empty() {
            page.line("No workflows. `toft flow new \"title\"` creates one.");
        }
        if self.more {
            page.line(format!("… {} shown; use --limit for more", self.rows.len()));
        }
    }
}

pub(crate) struct Replanned(pub(crate) replan::Outcome);

impl View for Replanned {
    fn kind(&self) -> &'static str {
        "plan"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.workflow.clone()]
    }

    fn text(&self, page: &mut Page) {
        let replan::Outcome { workflow, added, changed, kept, skipped } = &self.0;
        page.line(format!("Planned {workflow}"));
        for (word, names) in [("added", added), ("changed", changed), ("kept", kept), ("skipped", skipped)] {
            if !names.is_empty() {
                page.line(format!("  {word}: {}", clean(&names.join(", "))));
            }
        }
    }
}

pub(crate) struct TemplateKept(pub(crate) Template);

impl View for TemplateKept {
    fn kind(&self) -> &'static str {
        "template"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.id.to_string()]
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("{}@{} with {} tasks", clean(&self.0.name), self.0.version, self.0.plan.tasks.len()));
    }
}

pub(crate) struct TemplateList(pub(crate) Vec<Template>);

impl View for TemplateList {
    fn kind(&self) -> &'static str {
        "templates"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.iter().map(|template| template.name.clone()).collect()
    }

    fn text(&self, page: &mut Page) {
        for template in &self.0 {
            let variables: Vec<_> = template.variables.keys().cloned().collect();
            let variables =
                if variables.is_empty() { String::new() } else { format!("  sets {}", variables.join(", ")) };
            let about = template.description.as_ref().unwrap_or(&template.plan.title);
            page.line(format!(
                "{}@{}  {}{}",
                clean(&template.name),
                template.version,
                short(about, 60),
                clean(&variables)
            ));
        }
        if self.0.is_empty() {
            page.line("No templates. `toft flow template put FILE` stores one.");
        }
    }
}

pub(crate) struct TemplateShown(pub(crate) Template);

impl View for TemplateShown {
    fn kind(&self) -> &'static str {
        "template"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.name.clone()]
    }

    fn text(&self, page: &mut Page) {
        let Template { name, version, description, extends, variables, plan, .. } = &self.0;
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
            let about = variable.about.as_ref().map(|text| format!("  {}", short(text, 60))).unwrap_or_default();
            page.line(format!("  --set {}{default}{about}", clean(name)));
        }
        for task in &plan.tasks {
            let needs = match task.needs.is_empty() {
                true => String::new(),
                false => format!("  after {}", clean(&task.needs.join(", "))),
            };
            page.line(format!("  {}{}", short(&task.name, 60), page.ink(Ink::Faint, &needs)));
        }
    }
}

pub(crate) struct TemplateRemoved(pub(crate) Template);

impl View for TemplateRemoved {
    fn kind(&self) -> &'static str {
        "template"
    }

    fn json(&self) -> Value {
        data(&self.0)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.name.clone()]
    }

    fn text(&self, page: &mut Page) {
        page.line(format!(
            "Removed template {}; storing it again creates version {}",
            clean(&self.0.name),
            self.0.version + 1
        ));
    }
}
