//! The registry: every verb by its name, with the schema of its request and outcome.
//!
//! A surface that receives calls as text looks up the name here and runs the verb with JSON input and output. `toft
//! schema` prints the registry, and a snapshot test fails if a field is renamed.
//!
//! The two ends may have different versions. Every field of a request has a default, a new field of an outcome gets
//! one, and an enum that only informs (a reason, a refusal) has a variant for values of a newer toft. States are
//! closed: a new one comes with a new schema of the store.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

use super::{
    Caller, Operation, Verb, agent, answer, assign, audit, claim, contest, context, facts, find, finish, flow, gc,
    inbox, issue, land, list, log, op, perform, ready, renew, replan, report, save, send, show, status, stop, sweep,
    template, token, undo, visit, workspace,
};
use crate::{
    refusal::{Refusal, SentError, VerbResult},
    store::{Access, Store, StoreError},
    wire::{SentCaller, SentToken},
};

/// One entry: a verb, and how to run it from JSON.
pub struct Call {
    /// The verb's name.
    pub name: &'static str,
    /// Whether it writes.
    pub access: Access,
    /// Runs it with a request and returns the outcome.
    pub run: fn(&dyn Store, &mut Caller<'_>, Value) -> VerbResult<Value>,
    request: fn(&mut SchemaGenerator) -> Schema,
    outcome: fn(&mut SchemaGenerator) -> Schema,
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
        run: run::<V>,
        request: SchemaGenerator::subschema_for::<V>,
        outcome: SchemaGenerator::subschema_for::<V::Outcome>,
    }
}

fn run<V: Verb>(store: &dyn Store, caller: &mut Caller<'_>, request: Value) -> VerbResult<Value> {
    let verb: V = serde_json::from_value(request)
        .map_err(|error| Refusal::Invalid { field: V::NAME.to_owned(), problem: error.to_string() })?;
    let outcome = perform(store, caller, verb)?;
    let unserialisable =
        |error: serde_json::Error| StoreError::Failed { doing: "write an outcome".into(), cause: error.to_string() };
    Ok(serde_json::to_value(outcome).map_err(unserialisable)?)
}

/// The call of that name.
pub fn find(name: &str) -> Option<&'static Call> {
    CALLS.binary_search_by(|call| call.name.cmp(name)).ok().map(|at| &CALLS[at])
}

/// Calls with the JSON schemas of their requests and outcomes, and of errors; shared types are in `$defs`. Returns all
/// calls, or the one with that name.
pub fn schema(name: Option<&str>) -> Value {
    let mut generator = SchemaGenerator::default();
    let mut calls = serde_json::Map::new();
    for call in CALLS.iter().filter(|call| name.is_none_or(|name| call.name == name)) {
        let (request, outcome) = ((call.request)(&mut generator), (call.outcome)(&mut generator));
        let writes = call.access == Access::Write;
        calls.insert(call.name.to_owned(), json!({ "writes": writes, "request": request, "outcome": outcome }));
    }
    let error = generator.subschema_for::<SentError>();
    let (refused, failed) = (generator.subschema_for::<Refusal>(), generator.subschema_for::<StoreError>());
    let errors = json!({ "sent": error, "refused": refused, "failed": failed });
    json!({ "calls": calls, "errors": errors, "$defs": generator.take_definitions(true) })
}

/// The JSON schemas of what is sent with every verb, by name.
pub fn schema_of_callers() -> Value {
    let mut generator = SchemaGenerator::default();
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
