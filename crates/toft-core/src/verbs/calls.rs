//! The registry: every verb by its name, with the schema of its request and outcome.
//!
//! A surface that receives calls as text looks up the name here and runs the verb with JSON input and output. `toft
//! schema` prints the registry, and a snapshot test fails if a field is renamed.
//!
//! The two ends may have different versions. Every field of a request has a default, a new field of an outcome gets
//! one, and an enum that only informs (a reason, a refusal) has a variant for values of a newer toft. States are
//! closed: a new one comes with a new schema of the store.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Caller, Verb, agent, answer, assign, audit, claim, contest, context, facts, find, finish, flow, gc, inbox, issue,
    land, list, log, op,
    perform::{AnyRun, VerbRun, perform_run, unwritable},
    ready, renew, replan, report, save, send, show, status, stop, sweep, template, token, undo, visit, workspace,
};
use crate::{
    json,
    refusal::{Refusal, VerbResult},
    schema::checked_in,
    store::{Access, Store},
    token::{Token, TokenRole},
};
#[cfg(feature = "schema")]
use crate::{
    refusal::SentError,
    store::StoreError,
    verbs::Operation,
    wire::{SentCaller, SentToken},
};

/// One entry: a verb, and how to run it from JSON.
pub struct Call {
    /// The verb's name.
    pub name: &'static str,
    /// Whether it writes.
    pub access: Access,
    read: fn(&Value) -> serde_json::Result<Box<dyn AnyRun>>,
    allows: fn(TokenRole) -> bool,
    check_role: fn(&Token) -> Result<(), Refusal>,
    #[cfg(feature = "schema")]
    request: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
    #[cfg(feature = "schema")]
    outcome: fn(&mut schemars::SchemaGenerator) -> schemars::Schema,
}

/// Every verb, in the order of names.
pub static CALLS: [Call; 103] = [
    call::<agent::List>(),
    call::<agent::Mine>(),
    call::<agent::Register>(),
    call::<agent::Remove>(),
    call::<agent::Tell>(),
    call::<agent::TellRunner>(),
    call::<answer::Request>(),
    call::<assign::Request>(),
    call::<assign::Awaited>(),
    call::<assign::Check>(),
    call::<audit::Request>(),
    call::<claim::Request>(),
    call::<facts::Clock>(),
    call::<context::Request>(),
    call::<finish::Request>(),
    call::<replan::Add>(),
    call::<replan::Decide>(),
    call::<flow::From>(),
    call::<flow::Limit>(),
    call::<flow::List>(),
    call::<flow::Move>(),
    call::<flow::New>(),
    call::<replan::Request>(),
    call::<flow::Show>(),
    call::<gc::Request>(),
    call::<facts::Ids>(),
    call::<inbox::Request>(),
    call::<issue::CheckClosing>(),
    call::<contest::Request>(),
    call::<issue::Note>(),
    call::<issue::OnIt>(),
    call::<contest::Open>(),
    call::<issue::Pending>(),
    call::<facts::PendingRepositories>(),
    call::<facts::IssueProgress>(),
    call::<facts::StartedIssues>(),
    call::<issue::Told>(),
    call::<issue::WhyStarted>(),
    call::<land::Begin>(),
    call::<land::BounceLanding>(),
    call::<land::Flaky>(),
    call::<land::List>(),
    call::<land::Move>(),
    call::<land::RecordCheck>(),
    call::<land::RecordLandings>(),
    call::<land::RecordPullRequest>(),
    call::<land::Retarget>(),
    call::<land::Revert>(),
    call::<land::Review>(),
    call::<facts::LandingRow>(),
    call::<land::Take>(),
    call::<land::Verdicts>(),
    call::<facts::LeaseHolders>(),
    call::<facts::LiveLeases>(),
    call::<facts::OwnLeases>(),
    call::<facts::HostProcesses>(),
    call::<list::Request>(),
    call::<log::Request>(),
    call::<op::Recall>(),
    call::<op::Remember>(),
    call::<inbox::Peek>(),
    call::<ready::Request>(),
    call::<renew::Request>(),
    call::<report::Request>(),
    call::<visit::List>(),
    call::<visit::CloneFrom>(),
    call::<save::Request>(),
    call::<send::Request>(),
    call::<show::Request>(),
    call::<status::Request>(),
    call::<ready::Stirring>(),
    call::<stop::Request>(),
    call::<stop::Obey>(),
    call::<sweep::Request>(),
    call::<sweep::Wanted>(),
    call::<facts::TaskAttempts>(),
    call::<facts::TaskLetters>(),
    call::<find::TaskNamed>(),
    call::<facts::TaskNames>(),
    call::<facts::TaskRow>(),
    call::<template::List>(),
    call::<template::Put>(),
    call::<template::Remove>(),
    call::<template::Show>(),
    call::<token::Create>(),
    call::<token::ForJob>(),
    call::<token::Join>(),
    call::<token::List>(),
    call::<token::Revoke>(),
    call::<undo::Undone>(),
    call::<undo::Last>(),
    call::<undo::Take>(),
    call::<visit::Request>(),
    call::<facts::Worktrees>(),
    call::<workspace::RecordLanded>(),
    call::<workspace::List>(),
    call::<workspace::Move>(),
    call::<workspace::Name>(),
    call::<workspace::Pin>(),
    call::<workspace::Provide>(),
    call::<facts::WorkspaceRows>(),
    call::<workspace::Show>(),
    call::<workspace::Unregister>(),
];

const fn call<V: Verb>() -> Call {
    Call {
        name: V::NAME,
        access: V::ACCESS,
        read: read::<V>,
        allows: |role| V::MAY.allows(role),
        check_role: |token| V::MAY.check_role(V::NAME, token),
        #[cfg(feature = "schema")]
        request: schemars::SchemaGenerator::subschema_for::<V>,
        #[cfg(feature = "schema")]
        outcome: schemars::SchemaGenerator::subschema_for::<V::Outcome>,
    }
}

fn read<V: Verb>(request: &Value) -> serde_json::Result<Box<dyn AnyRun>> {
    Ok(Box::new(VerbRun::<V>::new(json::from_value(request)?)))
}

impl Call {
    /// Refuses a token whose role may not call it, whatever the request. What a request is about is checked when it is run.
    pub fn check_role(&self, token: &Token) -> Result<(), Refusal> {
        (self.check_role)(token)
    }

    /// Returns whether tokens of a role may call it, for some requests at least.
    #[must_use]
    pub fn allows(&self, role: TokenRole) -> bool {
        (self.allows)(role)
    }

    /// Runs it with a request and returns the outcome.
    pub fn run(&self, store: &dyn Store, caller: &mut Caller<'_>, request: &Value) -> VerbResult<Value> {
        let mut run = (self.read)(request)
            .map_err(|error| Refusal::Invalid { field: self.name.to_owned(), problem: error.to_string() })?;
        perform_run(store, caller, run.as_mut())?;
        Ok(run.outcome().map_err(|error| unwritable(&error))?)
    }
}

/// The call of that name.
pub fn find(name: &str) -> Option<&'static Call> {
    CALLS.binary_search_by(|call| call.name.cmp(name)).ok().map(|at| &CALLS[at])
}

/// Calls with the JSON schemas of their requests and outcomes, and of errors; shared types are in `$defs`. Returns all
/// calls, or the one with that name.
pub fn schema(name: Option<&str>) -> Value {
    let mut schema = checked_in(include_str!("calls.json"));
    if let (Some(name), Some(calls)) = (name, schema["calls"].as_object_mut()) {
        calls.retain(|call, _| call == name);
        let used = definitions_used(&schema);
        if let Some(definitions) = schema["$defs"].as_object_mut() {
            definitions.retain(|name, _| used.contains(name));
        }
    }
    schema
}

/// The names of the definitions that calls and errors refer to, directly or by another definition.
fn definitions_used(schema: &Value) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    let mut unread = vec![&schema["calls"], &schema["errors"]];
    while let Some(part) = unread.pop() {
        match part {
            Value::Object(fields) => {
                let reference = fields.get("$ref").and_then(Value::as_str);
                if let Some(name) = reference.and_then(|path| path.strip_prefix("#/$defs/"))
                    && used.insert(name.to_owned())
                {
                    unread.push(&schema["$defs"][name]);
                }
                unread.extend(fields.values());
            }
            Value::Array(items) => unread.extend(items),
            _ => {}
        }
    }
    used
}

/// The JSON schemas of what is sent with every verb, by name.
pub fn schema_of_callers() -> Value {
    checked_in(include_str!("callers.json"))
}

/// The schemas of all calls, from the types.
#[cfg(feature = "schema")]
pub fn derive_schema() -> Value {
    let mut generator = schemars::SchemaGenerator::default();
    let mut calls = serde_json::Map::new();
    for call in &CALLS {
        let (request, outcome) = ((call.request)(&mut generator), (call.outcome)(&mut generator));
        let writes = call.access == Access::Write;
        let call_schema = serde_json::json!({ "writes": writes, "request": request, "outcome": outcome });
        calls.insert(call.name.to_owned(), call_schema);
    }
    let error = generator.subschema_for::<SentError>();
    let (refused, failed) = (generator.subschema_for::<Refusal>(), generator.subschema_for::<StoreError>());
    let errors = serde_json::json!({ "sent": error, "refused": refused, "failed": failed });
    serde_json::json!({ "calls": calls, "errors": errors, "$defs": generator.take_definitions(true) })
}

/// The schemas of what is sent with every verb, from the types.
#[cfg(feature = "schema")]
pub fn derive_schema_of_callers() -> Value {
    let mut generator = schemars::SchemaGenerator::default();
    generator.subschema_for::<SentCaller>();
    generator.subschema_for::<Operation>();
    generator.subschema_for::<SentToken>();
    generator.take_definitions(true).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_none_is_there_twice() {
        assert!(CALLS.is_sorted_by(|a, b| a.name < b.name));
        assert!(CALLS.iter().all(|call| find(call.name).is_some_and(|found| found.name == call.name)));
        assert!(find("nothing").is_none());
    }
}
