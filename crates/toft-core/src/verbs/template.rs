//! Templates: store, list and load them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use serde_json::json;

use super::{Verb, VerbContext};
use crate::{
    change::Write,
    flow::{Template, Variable, WorkflowPlan, check_names},
    id::TemplateId,
    may::May,
    refusal::{Refusal, VerbResult},
    rights::{self, Action},
    schema::JsonSchema,
    store::Access,
    token::TokenRole,
};

/// Maximum number of templates in a chain of extensions.
const DEPTH: usize = 8;

/// Store a template. Storing the same text again changes nothing; a different text is a new version.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TemplatePut")]
pub struct Put {
    pub name: String,
    /// Its purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The template that it extends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
    #[serde(default)]
    pub variables: BTreeMap<String, Variable>,
    pub plan: WorkflowPlan,
}

impl Verb for Put {
    type Outcome = Template;
    const NAME: &'static str = "template.put";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Template> {
        if self.name.is_empty() || self.name.contains('@') {
            return Err(Refusal::Invalid {
                field: "name".into(),
                problem: "a template's name is one word without `@`".into(),
            }
            .into());
        }
        check_names(&self.plan.tasks)?;
        let newest = work.tx.template(&self.name, None)?;
        if let Some(known) = &newest
            && known.removed.is_none()
            && known.description == self.description
            && known.extends == self.extends
            && known.variables == self.variables
            && known.plan == self.plan
        {
            return Ok(known.clone());
        }
        let template = Template {
            id: TemplateId::generate(work.ids),
            name: self.name,
            version: newest.map_or(1, |known| known.version + 1),
            description: self.description,
            removed: None,
            extends: self.extends,
            variables: self.variables,
            plan: self.plan,
            created: work.now.wall,
        };
        work.record(
            template.id.as_str(),
            "template.put",
            json!({ "name": template.name, "version": template.version }),
            vec![Write::Template(template.clone())],
        )?;
        load(work, &template.name)?;
        Ok(template)
    }
}

/// Every template in its newest version.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TemplateList")]
pub struct List {}

impl Verb for List {
    type Outcome = Vec<Template>;
    const NAME: &'static str = "template.list";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Vec<Template>> {
        Ok(work.tx.templates()?.into_iter().filter(|template| template.removed.is_none()).collect())
    }
}

/// One template, merged over those that it extends.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TemplateShow")]
pub struct Show {
    /// `name`, or `name@version`.
    pub name: String,
}

impl Verb for Show {
    type Outcome = Template;
    const NAME: &'static str = "template.show";
    const ACCESS: Access = Access::Read;
    const MAY: May<Self> = May::of(TokenRole::Viewer);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Template> {
        load(work, &self.name)
    }
}

/// Remove a template with all its versions. Workflows that were made from it do not change.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TemplateRemove")]
pub struct Remove {
    pub name: String,
}

impl Verb for Remove {
    type Outcome = Template;
    const NAME: &'static str = "template.remove";
    const ACCESS: Access = Access::Write;
    const MAY: May<Self> = May::of(TokenRole::Coordinator);

    fn run(self, work: &mut VerbContext<'_>) -> VerbResult<Template> {
        rights::require(work, Action::RemoveTemplate)?;
        let mut template = one(work, &self.name)?;
        let known = List {}.run(work)?;
        if let Some(other) = known.into_iter().find(|other| other.extends.as_ref() == Some(&template.name)) {
            let state = format!("extended by `{}`", other.name);
            let wanted = "remove that one first".into();
            return Err(Refusal::WrongState { id: template.name, state, wanted }.into());
        }
        // The newest version says that the name is removed; a version number is never used twice.
        template = work.tx.template(&template.name, None)?.unwrap_or(template);
        template.removed = Some(work.now.wall);
        let detail = json!({ "name": template.name, "version": template.version });
        work.record(template.id.as_str(), "template.removed", detail, vec![Write::Template(template.clone())])?;
        Ok(template)
    }
}

/// A template merged over those that it extends.
pub(super) fn load(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Template> {
    let mut chain = vec![one(work, text)?];
    while let Some(base) = chain[chain.len() - 1].extends.clone() {
        if chain.len() == DEPTH || chain.iter().any(|known| known.name == base) {
            let mut path: Vec<_> = chain.iter().map(|template| template.name.clone()).collect();
            path.push(base);
            return Err(Refusal::Cycle { path }.into());
        }
        chain.push(one(work, &base)?);
    }
    let mut loaded = None;
    for template in chain.into_iter().rev() {
        loaded = Some(match loaded {
            None => template,
            Some(base) => template.over(base),
        });
    }
    loaded.ok_or_else(|| Refusal::NotFound { what: "template".into(), text: text.to_owned() }.into())
}

fn one(work: &mut VerbContext<'_>, text: &str) -> VerbResult<Template> {
    let (name, version) = match text.split_once('@') {
        Some((name, version)) => (name, version.parse().ok().map(Some)),
        None => (text, Some(None)),
    };
    let found = match version {
        Some(version) => work.tx.template(name, version)?,
        None => None,
    };
    let removed = work.tx.template(name, None)?.is_some_and(|newest| newest.removed.is_some());
    let found = found.filter(|_| !removed);
    found.ok_or_else(|| Refusal::NotFound { what: "template".into(), text: text.to_owned() }.into())
}
