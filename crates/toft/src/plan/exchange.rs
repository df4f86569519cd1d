//! Issues in and out, in other forms.

use serde_json::Value;
use toft_core::{issue::Issue, store::Access};
use toft_ledger::line::{self, Line};

use super::{Plan, beads};
use crate::error::Error;

/// How an import went.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Imported {
    /// Into which ledger.
    pub ledger: String,
    /// How many issues were read.
    pub read: usize,
    /// How many of them were new or changed something.
    pub changed: usize,
    /// Lines that could not be read, and why.
    pub unreadable: Vec<String>,
}

/// A form issues can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As beads has them.
    Beads,
    /// As a ledger has them.
    Lines,
    /// A table.
    Csv,
}

impl Plan<'_> {
    /// Takes issues in. What is already known changes nothing.
    pub fn import(&self, form: Form, text: &str, ledger: Option<&str>) -> Result<Imported, Error> {
        let ledger = self.route(ledger, None)?;
        let mut imported = Imported { ledger: ledger.name.clone(), ..Imported::default() };
        let mut records: Vec<Line> = Vec::new();
        for (number, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            match record(form, text) {
                Ok(record) => records.push(record),
                Err(problem) => imported.unreadable.push(format!("line {}: {problem}", number + 1)),
            }
        }
        imported.read = records.len();
        imported.changed = self.write(ledger, |draft| {
            for record in records {
                draft.take(record)?;
            }
            Ok(draft.changes())
        })?;
        Ok(imported)
    }

    /// Gives every issue out, a line each, in the order of their ids.
    pub fn export(&self, form: Form) -> Result<Vec<String>, Error> {
        self.refresh()?;
        let index = self.index(Access::Read)?;
        let mut rows = Vec::new();
        for row in index.every()? {
            match form {
                Form::Lines => rows.push(row.line),
                Form::Beads => rows.extend(beads::issue(&row.line).map(|issue| issue.to_string())),
                Form::Csv => rows.push(csv(&row.issue()?)),
            }
        }
        if form == Form::Csv {
            rows.insert(0, "id,title,type,status,priority,labels,parent,assignee,created,closed".to_owned());
        }
        Ok(rows)
    }
}

/// A record that a reader of ledgers would take as well.
fn record(form: Form, text: &str) -> Result<Line, String> {
    let read = match form {
        Form::Beads => match serde_json::from_str(text).map_err(|error| error.to_string())? {
            Value::Object(issue) => Line { record: beads::record(&issue)?, sound: true },
            _ => return Err("not an object".into()),
        },
        Form::Lines | Form::Csv => line::read(text).map_err(|error| error.to_string())?,
    };
    serde_json::from_str::<Issue>(&line::write(&read.record)).map_err(|error| error.to_string())?;
    Ok(read)
}

fn csv(issue: &Issue) -> String {
    let cell = |text: &str| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    let at = |at: Option<toft_core::time::Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
    [
        cell(&issue.id),
        cell(&issue.title),
        cell(&issue.kind),
        cell(&issue.status),
        issue.priority.to_string(),
        cell(&issue.labels.join(" ")),
        cell(issue.parent.as_deref().unwrap_or_default()),
        cell(issue.assignee.as_deref().unwrap_or_default()),
        at(issue.created.as_ref().map(|created| created.at)),
        at(issue.closed.as_ref().map(|closed| closed.at)),
    ]
    .join(",")
}
