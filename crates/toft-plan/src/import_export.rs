//! Import and export of issues in other formats.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value, json};
use toft_core::{
    issue::{Issue, edit::Edit},
    refusal::Refusal,
    store::Access,
    text::clean_lines,
    verbs::issue::{Note, Noted},
};
use toft_ledger::line::{self, Line};
use toft_session::error::{Error, io};

use super::{
    Ledger, LedgerKind, Plan, beads,
    index_refresh::now_nanos,
    many,
    older::{self, ImportFilter},
    twoway::{self, Exports, Side},
};

/// An issue of beads.
type Row = Map<String, Value>;

/// How often a file is merged again because beads wrote to it in the meantime.
const TRIES: usize = 5;

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Imported {
    pub ledger: String,
    /// Number of issues that were read.
    pub read: usize,
    /// Number of issues that were new or changed.
    pub changed: usize,
    /// Lines that could not be read, with the reason.
    pub unreadable: Vec<String>,
    /// Decisions that were made, and remaining steps.
    pub notes: Vec<String>,
}

/// The result of an export into a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Exported {
    pub file: PathBuf,
    /// Number of its issues.
    pub issues: usize,
    /// Number of lines that were written or replaced.
    pub written: usize,
    /// The result of the import that came first.
    pub imported: Imported,
}

/// A format for import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Import {
    /// The format of beads.
    Beads,
    /// Lines of a ledger.
    Lines,
    /// A Markdown list.
    Markdown,
}

/// A database of another tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// A LangGraph checkpoint database.
    LangGraph,
    /// caw's database.
    Caw,
}

/// A format for export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Export {
    /// The format of beads.
    Beads,
    /// Lines of a ledger.
    Lines,
    /// A table.
    Csv,
}

impl Plan<'_> {
    /// Imports issues. Issues that are already known change nothing.
    pub fn import(&self, form: Import, text: &str, ledger: Option<&str>) -> Result<Imported, Error> {
        match form {
            Import::Beads => return self.import_beads(text, ledger),
            Import::Lines => {}
            Import::Markdown => return self.import_list(text, ledger),
        }
        self.refuse_kept(ledger)?;
        let ledger = self.route(ledger, None)?;
        let mut imported = Imported { ledger: ledger.name.clone(), ..Imported::default() };
        let mut records: Vec<Line> = Vec::new();
        for (number, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            match line_record(text).and_then(readable) {
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

    /// Imports the database of another tool, which is not changed. If it is repeated, only new data changes anything.
    pub fn import_store(
        &self,
        store: Older,
        path: &Path,
        ledger: Option<&str>,
        only: &[String],
    ) -> Result<Imported, Error> {
        self.refuse_kept(ledger)?;
        let ledger = self.route(ledger, None)?;
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let common = &self.checkout.common_dir;
        let inside = common.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let main = common.parent().filter(|_| inside);
        let roots: Vec<PathBuf> = main.into_iter().chain([self.checkout.root.as_path()]).map(real).collect();
        let own = roots.iter().any(|root| real(path).starts_with(root));
        let wanted = ImportFilter { roots, only, own };
        let found = match store {
            Older::LangGraph => older::langgraph(path, &wanted)?,
            Older::Caw => older::caw(path, &wanted)?,
        };
        let mut imported = Imported { ledger: ledger.name.clone(), ..Imported::default() };
        imported.unreadable = found.unreadable;
        imported.notes = found.notes;
        for template in found.templates {
            let name = template.name.clone();
            match self.session.perform(template) {
                Ok(kept) => {
                    imported
                        .notes
                        .push(format!("template {name}, version {}: toft flow new --template {name}", kept.version));
                }
                Err(Error::Refused(refusal)) => imported.unreadable.push(format!("template {name}: {refusal}")),
                Err(error) => return Err(error),
            }
        }
        self.take_records(ledger, found.lines, imported)
    }

    /// Imports a list. An item is identified by its title and parent, so that importing a longer list adds only the new
    /// items.
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
        Ok(Imported { ledger, read: wrote.len(), changed, ..Imported::default() })
    }

    fn note_import(&self, imported: &Imported) -> Result<(), Error> {
        if imported.changed == 0 {
            return Ok(());
        }
        let detail = json!({ "read": imported.read, "changed": imported.changed });
        let notes = vec![Noted { issue: imported.ledger.clone(), detail }];
        self.session.perform(Note { what: "ledger.imported".to_owned(), notes, epics: Vec::new() })
    }

    /// Imports the changes of beads since the last import. An issue that is in another ledger of this checkout is
    /// changed there.
    fn import_beads(&self, text: &str, ledger: Option<&str>) -> Result<Imported, Error> {
        let target = self.route(ledger, None)?;
        let mut imported = Imported { ledger: target.name.clone(), ..Imported::default() };
        if !self.unwritten() {
            self.refresh()?;
        }
        let mut rows: BTreeMap<String, Vec<(usize, Row)>> = BTreeMap::new();
        let mut others = 0;
        let mut changed = BTreeSet::new();
        let mut exports = self.exports();
        let before = exports.clone();
        for (number, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
            match serde_json::from_str(text) {
                // A header, or something to remember: no issue.
                Ok(Value::Object(row)) if !is_issue(&row) => others += 1,
                Ok(Value::Object(row)) => {
                    exports.marks = beads::mark(&row).map_or(exports.marks, |_| Some(true));
                    let home = match ledger {
                        Some(_) => target.name.clone(),
                        None => self.home_of(&row, target)?,
                    };
                    rows.entry(home).or_default().push((number + 1, row));
                }
                Ok(_) => imported.unreadable.push(format!("line {}: not an object", number + 1)),
                Err(problem) => imported.unreadable.push(format!("line {}: {problem}", number + 1)),
            }
        }
        if others > 0 {
            imported.notes.push(format!("{others} lines of beads are no issues and stay there"));
        }
        let now = (now_nanos() / 1_000_000) as u64;
        for (name, rows) in rows {
            self.write(self.called(&name)?, |draft| {
                for (number, row) in rows {
                    let id = row.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                    let known = draft.record(&id)?;
                    let side = Side { sent: exports.of(&id), marks: exports.marks, now };
                    let merged = match twoway::merge(known.clone(), &row, side) {
                        Ok(merged) if serde_json::from_str::<Issue>(&line::write(&merged.record)).is_ok() => merged,
                        Ok(_) => {
                            imported.unreadable.push(format!("line {number}: {id} has a value of another kind"));
                            continue;
                        }
                        Err(problem) => {
                            imported.unreadable.push(format!("line {number}: {problem}"));
                            continue;
                        }
                    };
                    imported.read += 1;
                    if merged.changed {
                        changed.insert(id.clone());
                    }
                    imported.notes.extend(merged.notes);
                    if merged.settled {
                        exports.sent.remove(&id);
                    }
                    if merged.unmarked {
                        exports.marks = exports.marks.or(Some(false));
                    }
                    if known.as_ref() != Some(&merged.record) {
                        draft.replace(merged.record)?;
                    }
                }
                Ok(())
            })?;
        }
        if exports != before {
            self.keep(&exports);
        }
        imported.changed = changed.len();
        self.note_import(&imported)?;
        Ok(imported)
    }

    /// The ledger whose copy of an issue follows beads.
    fn home_of(&self, row: &Map<String, Value>, target: &Ledger) -> Result<String, Error> {
        let id = row.get("id").and_then(Value::as_str).unwrap_or_default();
        let known = if self.unwritten() { None } else { self.preferred(self.index(Access::Read)?.copies(id)?) };
        let writable = |name: &str| self.ledgers.iter().any(|ledger| ledger.name == name && !ledger.read_only);
        Ok(known.map(|row| row.ledger).filter(|name| writable(name)).unwrap_or_else(|| target.name.clone()))
    }

    /// The exports of this clone to beads.
    fn exports(&self) -> Exports {
        let text = fs::read_to_string(self.state.join(EXPORTS)).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Stores the exports. The marks in the issues contain the same, so that little is lost with the file.
    fn keep(&self, exports: &Exports) {
        let path = self.state.join(EXPORTS);
        let draft = path.with_extension(format!("{}.new", std::process::id()));
        let kept = toft_store::private::write(&draft, serde_json::to_string(exports).unwrap_or_default())
            .and_then(|()| fs::rename(&draft, &path));
        if let Err(error) = kept {
            self.session.note(format!("what was exported to beads could not be remembered: {error}"));
        }
    }

    /// Exports every issue, one per line, ordered by id.
    pub fn export(&self, form: Export) -> Result<Vec<String>, Error> {
        self.refresh()?;
        if form == Export::Beads {
            let rows = self.export_beads(|_| true)?;
            return Ok(rows.into_values().map(|row| Value::Object(row).to_string()).collect());
        }
        let index = self.index(Access::Read)?;
        let mut rows = Vec::new();
        for row in self.laid(&index, index.every()?)? {
            match form {
                Export::Csv => rows.push(csv(&row.issue()?)),
                Export::Lines | Export::Beads => rows.push(row.line),
            }
        }
        if form == Export::Csv {
            rows.insert(0, "id,title,type,status,priority,labels,parent,assignee,created,closed".to_owned());
        }
        Ok(rows)
    }

    /// Every issue that `wanted` selects, in the format of beads, by id.
    fn export_beads(
        &self,
        wanted: impl Fn(&toft_store::sqlite::index::Indexed) -> bool,
    ) -> Result<BTreeMap<String, Row>, Error> {
        let mut copies: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for row in self.index(Access::Read)?.every()? {
            copies.entry(row.issue()?.id).or_default().push(row);
        }
        let mut exports = self.exports();
        let before = exports.clone();
        let mut rows = BTreeMap::new();
        let mut imported = exports != Exports::default();
        for (id, copies) in copies {
            let Some(row) = self.preferred(copies).filter(|row| wanted(row)) else { continue };
            let Ok(line) = line::read(&row.line) else { continue };
            imported |= twoway::from_beads(&line.record);
            if let Some((issue, now)) = twoway::outgoing(&line.record, exports.of(&id)) {
                rows.insert(id.clone(), issue);
                if let Some(now) = now {
                    exports.add(id, now);
                }
            }
        }
        // A plan as it was, or one that beads has no part in, is read and nothing is written.
        if exports != before && imported && self.aside.is_none() {
            self.keep(&exports);
        }
        Ok(rows)
    }

    /// Merges a file of beads with the ledgers: imports the file, then rewrites its lines where toft has something
    /// newer. Lines that are not issues are kept, and private issues are not exported.
    pub fn export_into(&self, file: &Path, ledger: Option<&str>) -> Result<Exported, Error> {
        let file = fs::canonicalize(file).map_err(io("read", file))?;
        let mut imported = Imported::default();
        for _ in 0..TRIES {
            let text = fs::read_to_string(&file).map_err(io("read", &file))?;
            let again = self.import_beads(&text, ledger)?;
            imported.ledger = again.ledger;
            imported.read = again.read;
            imported.changed += again.changed;
            imported.unreadable = again.unreadable;
            imported.notes.extend(again.notes);
            self.refresh()?;
            let there: BTreeSet<String> = text.lines().filter_map(id_of_line).collect();
            let private: BTreeSet<&str> =
                self.ledgers.iter().filter(|at| at.place == LedgerKind::Planning).map(|at| at.name.as_str()).collect();
            let mut rows = self.export_beads(|row| {
                !private.contains(row.ledger.as_str()) || row.issue().is_ok_and(|issue| there.contains(&issue.id))
            })?;
            let issues = rows.len();
            let (mut lines, mut written) = (String::new(), 0);
            let mut done = BTreeSet::new();
            for line in text.lines() {
                let id = id_of_line(line);
                match id.as_ref().and_then(|id| rows.remove(id)) {
                    Some(row) if serde_json::from_str::<Map<String, Value>>(line).is_ok_and(|old| same(&old, &row)) => {
                        lines.push_str(line);
                    }
                    Some(row) => {
                        written += 1;
                        lines.push_str(&Value::Object(row).to_string());
                    }
                    // A second line of the same issue: both are in the first.
                    None if id.as_ref().is_some_and(|id| done.contains(id)) => continue,
                    None => lines.push_str(line),
                }
                lines.push('\n');
                done.extend(id);
            }
            for row in rows.into_values() {
                written += 1;
                lines.push_str(&Value::Object(row).to_string());
                lines.push('\n');
            }
            if written == 0 || replace(&file, &text, &lines)? {
                return Ok(Exported { file, issues, written, imported });
            }
        }
        let problem = format!("{} is written again and again; export when beads is idle", file.display());
        Err(Refusal::Invalid { field: "file".into(), problem }.into())
    }
}

/// The file of this clone that records exports to beads.
const EXPORTS: &str = "beads.json";

fn is_issue(row: &Map<String, Value>) -> bool {
    !row.contains_key("_schema") && row.get("_type").is_none_or(|kind| kind == "issue")
}

fn id_of_line(line: &str) -> Option<String> {
    let row: Map<String, Value> = serde_json::from_str(line).ok()?;
    row.get("id").filter(|_| is_issue(&row))?.as_str().map(str::to_owned)
}

/// Whether two issues of beads are equal, except for the order of their lists.
fn same(one: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let sorted = |row: &Map<String, Value>| {
        let mut row = row.clone();
        for list in ["labels", "dependencies", "comments"] {
            if let Some(members) = row.get_mut(list).and_then(Value::as_array_mut) {
                members.sort_by_key(ToString::to_string);
            }
        }
        row
    };
    sorted(one) == sorted(other)
}

/// Replaces a file, unless its content is no longer `text`.
fn replace(path: &Path, text: &str, new: &str) -> Result<bool, Error> {
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mode = fs::metadata(path).map_err(io("read", path))?.permissions();
    let put = toft_store::private::write(&draft, new).and_then(|()| fs::set_permissions(&draft, mode));
    let unchanged = put.and_then(|()| fs::read(path)).map(|now| now == text.as_bytes());
    match unchanged {
        Ok(true) => fs::rename(&draft, path).map(|()| true).map_err(io("write", path)),
        other => {
            let _ = fs::remove_file(&draft);
            other.map_err(io("write", path))
        }
    }
}

fn line_record(text: &str) -> Result<Line, String> {
    let line = line::read(text).map_err(|error| error.to_string())?;
    match line.broken.first() {
        None => Ok(line),
        Some((field, problem)) => Err(format!("`{field}` {problem}")),
    }
}

/// A record, if readers of ledgers can read it too.
fn readable(line: Line) -> Result<Line, String> {
    serde_json::from_str::<Issue>(&line::write(&line.record)).map_err(|error| error.to_string())?;
    Ok(line)
}

/// One line of CSV. A spreadsheet evaluates cells that begin with one of `=+-@`, so an apostrophe is put before them.
fn csv(issue: &Issue) -> String {
    let cell = |text: &str| {
        let text = clean_lines(text);
        let text = if text.starts_with(['=', '+', '-', '@']) { format!("'{text}") } else { text };
        match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text,
        }
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
