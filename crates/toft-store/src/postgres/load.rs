//! Loads answers: assigns columns to rows.

use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use toft_core::{
    change::Write,
    id::{TaskId, WorkflowId},
    message::{Delivery, Message},
    store::{Result, StoreError},
    time::Timestamp,
};

use super::{
    read_set::{Counts, ReadSet},
    wire::parsed,
};
use crate::rows::{self, Cells};

/// Loads one row of an answer.
pub(super) type Load = fn(&mut ReadSet, &mut Cells<'_>) -> Result<()>;

pub(super) fn body<T: DeserializeOwned>(table: &'static str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| StoreError::Unreadable {
        table: table.into(),
        id: text.chars().take(40).collect(),
        cause: error.to_string(),
    })
}

pub(super) fn counts_of(cells: &mut Cells<'_>) -> Result<(WorkflowId, Counts)> {
    let workflow = WorkflowId::known(cells.text()?);
    let text = cells.text()?;
    let mut counts = Counts::default();
    for (count, word) in counts.iter_mut().zip(text.trim_matches(['{', '}']).split(',')) {
        *count = parsed(word)?;
    }
    Ok((workflow, counts))
}

macro_rules! loads {
    ($($name:ident($cells:ident) => $row:expr;)*) => {
        $(
            pub(super) fn $name(reads: &mut ReadSet, $cells: &mut Cells<'_>) -> Result<()> {
                reads.take($row)
            }
        )*
    };
}

loads! {
    load_repository(cells) => Write::Repository(cells.body()?);
    load_worktree(cells) => Write::Worktree(cells.body()?);
    load_workflow(cells) => Write::Workflow(cells.body()?);
    load_task(cells) => Write::Task(rows::task(cells)?);
    load_dependency(cells) => Write::Dependency(rows::dependency(cells)?);
    load_lease(cells) => Write::Lease(rows::lease(cells)?);
    load_attempt(cells) => Write::Attempt(rows::attempt(cells)?);
    load_checkpoint(cells) => Write::Checkpoint(cells.body()?);
    load_state(cells) => Write::State(TaskId::known(cells.text()?), cells.text()?, cells.json()?);
    load_agent(cells) => Write::Agent(cells.body()?);
    load_message(cells) => Write::Message(cells.body()?);
    load_workspace(cells) => Write::Workspace(cells.body()?);
    load_landing(cells) => Write::Landing(cells.body()?);
    load_token(cells) => Write::Token(cells.body()?);
    load_verdict(cells) => Write::Verdict(cells.body()?);
    load_listed_workspace(cells) => Write::Workspace(cells.listed_workspace()?);
    load_gate(cells) => Write::Gate(cells.body()?);
    load_template(cells) => Write::Template(cells.body()?);
    load_queue_entry(cells) => Write::Queue(rows::queue_entry(cells)?);
    load_receipt(cells) => Write::Receipt(rows::receipt(cells)?);
}

pub(super) fn load_queued(reads: &mut ReadSet, cells: &mut Cells<'_>) -> Result<()> {
    let (entry, task) = rows::queued(cells)?;
    reads.take_task(task);
    reads.take(Write::Queue(entry))
}

/// Loads a dependency, and its target task if that exists.
pub(super) fn load_dependency_on(reads: &mut ReadSet, cells: &mut Cells<'_>) -> Result<()> {
    reads.take(Write::Dependency(rows::dependency(cells)?))?;
    if cells.has_text()? { load_task(reads, cells) } else { Ok(()) }
}

pub(super) fn load_letter(reads: &mut ReadSet, cells: &mut Cells<'_>) -> Result<()> {
    let (recipient, rank, state) = (cells.text()?, cells.text()?, cells.text()?);
    let read_at = cells.optional_int()?.map(Timestamp);
    let message: Message = cells.body()?;
    if cells.has_text()? {
        load_agent(reads, cells)?;
    }
    let state = serde_json::from_value(Json::String(state)).map_err(|error| StoreError::Unreadable {
        table: "deliveries".into(),
        id: message.id.to_string(),
        cause: error.to_string(),
    })?;
    let delivery = Delivery { message: message.id.clone(), recipient, state, rank, read_at };
    reads.take(Write::Message(message))?;
    reads.take(Write::Delivery(delivery))
}
