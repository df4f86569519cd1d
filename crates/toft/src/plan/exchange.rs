//! Issues in and out, in other forms.

use std::path::Path;

use serde_json::{Value, json};
use toft_core::{
    issue::{Issue, edit::Edit},
    refusal::Refusal,
    store::Access,
    verbs::issue::{Note, Noted},
};
use toft_ledger::line::{self, Line};

use super::{Ledger, Plan, beads, many, older};
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

/// A form issues come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Import {
    /// As beads has them.
    Beads,
    /// As a ledger has them.
    Lines,
    /// A list.
    Markdown,
}

/// A store of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// A LangGraph checkpoint database.
    LangGraph,
    /// caw's database.
    Caw,
}

/// A form issues are given out in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// As beads has them.
    Beads,
    /// As a ledger has them.
    Lines,
    /// A table.
    Csv,
}

impl Plan<'_> {
    /// Takes issues in. What is already known changes nothing.
    pub fn import(&self, form: Import, text: &str, ledger: Option<&str>) -> Result<Imported, Error> {
        let record = match form {
            Import::Beads => beads_record,
            Import::Lines => line_record,
            Import::Markdown => return self.import_list(text, ledger),
        };
        self.refuse_kept(ledger)?;
        let ledger = self.route(ledger, None)?;
        let mut imported = Imported { ledger: ledger.name.clone(), ..Imported::default() };
        let mut records: Vec<Line> = Vec::new();
        for (number, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            match record(text).and_then(readable) {
                Ok(record) => records.push(record),
                Err(problem) => imported.unreadable.push(format!("line {}: {problem}", number + 1)),
            }
        }
        self.take_records(ledger, records, imported)
    }

    fn take_records(&self, ledger: &Ledger, records: Vec<Line>, mut imported: Imported) -> Result<Imported, Error> {
        imported.read = records.len();
        imported.changed = self.write(ledger, |draft| {
            for record in records {
                draft.take(record)?;
            }
            Ok(draft.changes())
        })?;
        self.note_import(&imported)?;
        Ok(imported)
    }

    /// Takes in what another tool kept in a database, which stays as it is. Again and again, only what is new changes
    /// anything.
    pub fn import_store(&self, store: Older, path: &Path, ledger: Option<&str>) -> Result<Imported, Error> {
        self.refuse_kept(ledger)?;
        let ledger = self.route(ledger, None)?;
        let found = match store {
            Older::LangGraph => older::langgraph(path)?,
            Older::Caw => older::caw(path)?,
        };
        let imported = Imported { ledger: ledger.name.clone(), unreadable: found.unreadable, ..Imported::default() };
        self.take_records(ledger, found.lines, imported)
    }

    /// Each item is known by its title and what it is part of, so that a list that grew adds only what is new.
    fn import_list(&self, text: &str, ledger: Option<&str>) -> Result<Imported, Error> {
        let problem = |problem| Refusal::Invalid { field: "list".into(), problem };
        let edits = many(text, &Edit::default()).map_err(problem)?;
        let mut names: Vec<String> = Vec::new();
        for edit in &edits {
            let above = edit.parent.as_ref().and_then(|parent| parent.strip_prefix('#')?.parse::<usize>().ok());
            let above = above.and_then(|place| names.get(place - 1)).map_or("list", String::as_str);
            let name = format!("{above}\n{}", edit.title.as_deref().unwrap_or_default());
            let same = names.iter().filter(|known| **known == name).count();
            names.push(if same == 0 { name } else { format!("{name}\t{same}") });
        }
        let wrote = self.add_as(&edits, ledger, Some(names))?;
        let changed = wrote.iter().filter(|wrote| wrote.before.is_some()).count();
        let ledger = self.route(ledger, None)?.name.clone();
        Ok(Imported { ledger, read: wrote.len(), changed, unreadable: Vec::new() })
    }

    fn note_import(&self, imported: &Imported) -> Result<(), Error> {
        if imported.changed == 0 {
            return Ok(());
        }
        let detail = json!({ "read": imported.read, "changed": imported.changed });
        let notes = vec![Noted { issue: imported.ledger.clone(), detail }];
        self.toft.perform(Note { what: "ledger.imported", notes })
    }

    /// Gives every issue out, a line each, in the order of their ids.
    pub fn export(&self, form: Export) -> Result<Vec<String>, Error> {
        self.refresh()?;
        let index = self.index(Access::Read)?;
        let mut rows = Vec::new();
        for row in self.laid(&index, index.every()?)? {
            match form {
                Export::Lines => rows.push(row.line),
                Export::Beads => rows.extend(beads::issue(&row.line).map(|issue| issue.to_string())),
                Export::Csv => rows.push(csv(&row.issue()?)),
            }
        }
        if form == Export::Csv {
            rows.insert(0, "id,title,type,status,priority,labels,parent,assignee,created,closed".to_owned());
        }
        Ok(rows)
    }
}

fn beads_record(text: &str) -> Result<Line, String> {
    match serde_json::from_str(text).map_err(|error| error.to_string())? {
        Value::Object(issue) => Ok(Line { record: beads::record(&issue)?, sound: true }),
        _ => Err("not an object".into()),
    }
}

fn line_record(text: &str) -> Result<Line, String> {
    line::read(text).map_err(|error| error.to_string())
}

/// A record that a reader of ledgers would take as well.
fn readable(line: Line) -> Result<Line, String> {
    serde_json::from_str::<Issue>(&line::write(&line.record)).map_err(|error| error.to_string())?;
    Ok(line)
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
