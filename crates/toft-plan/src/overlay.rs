//! Overlays in the plan: a contributor's changes to an issue that others maintain are written to the private ledger,
//! and the issue is shown merged with them. Both records are merged field by field, the newer one wins; an issue that
//! the maintainers closed or deleted stays so (`core/issue/overlay.rs`).
//!
//! In the index, the row of the maintained issue has the columns of the merged record and its own line; the overlay's
//! row has the overlay's line and is hidden. So lists, counts, search and the ready rule see one issue, and files are
//! written from lines with the content of their own ledger.

use serde::Serialize;
use toft_core::{
    issue::{
        Issue, Put,
        overlay::{self, OVERLAY, OWN},
    },
    refusal::Refusal,
};
use toft_ledger::{
    clock::Clock,
    line,
    record::{Key, Record},
};
use toft_session::error::Error;
use toft_store::sqlite::index::{IndexTx, Indexed};

use super::{
    Ledger, LedgerKind, Plan,
    write::{issue_of, record, register},
};

/// Identifies an overlay's line without parsing it: a quotation mark inside a text is escaped.
const SIGN: &str = "\"visibility\":\"overlay\"";

/// The overlay of an issue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overlay {
    /// The ledger with the changes.
    pub ledger: String,
    /// The fields that differ from the issue's own ledger.
    pub fields: Vec<String>,
}

impl Plan<'_> {
    /// The ledger of overlays: the private one.
    pub(super) fn layer(&self) -> Option<&Ledger> {
        self.ledgers.iter().find(|ledger| ledger.place == LedgerKind::Planning)
    }

    /// The ledger for changes to issues of a ledger that others maintain.
    pub(super) fn layer_over(&self, kept: &Ledger) -> Result<&Ledger, Error> {
        let layer = self.layer().filter(|layer| !layer.read_only);
        layer.ok_or_else(|| {
            let problem = format!(
                "others keep `{}`, and no private ledger is here for your changes; toft init --contributor makes one",
                kept.name
            );
            Refusal::Invalid { field: "ledger".into(), problem }.into()
        })
    }

    /// Refuses to write new issues to a ledger that others maintain.
    pub(super) fn refuse_kept(&self, name: Option<&str>) -> Result<(), Error> {
        match name.map(|name| self.called(name)).transpose()? {
            Some(ledger) if ledger.kept_by_others => {
                let problem = format!("others keep `{}`; plan in private, then toft propose ID offers it", ledger.name);
                Err(Refusal::Invalid { field: "ledger".into(), problem }.into())
            }
            _ => Ok(()),
        }
    }

    /// Rows for display: merged with their overlays, and without the overlays' own rows.
    pub(super) fn laid(&self, index: &IndexTx<'_>, rows: Vec<Indexed>) -> Result<Vec<Indexed>, Error> {
        let Some(layer) = self.layer() else { return Ok(rows) };
        let mut laid = Vec::with_capacity(rows.len());
        for mut row in rows {
            if row.ledger != layer.name {
                if let Some(over) = overlay_of(index, layer, &row.id)? {
                    row.line = line::write(&together(&record(&row)?, &record(&over)?)?);
                }
            } else if is_overlay(&row)? {
                continue;
            }
            laid.push(row);
        }
        Ok(laid)
    }

    /// The overlay of an issue, if it differs from the issue's own ledger.
    pub fn overlay(&self, id: &str) -> Result<Option<Overlay>, Error> {
        let Some(layer) = self.layer() else { return Ok(None) };
        let index = self.look()?;
        let Some(over) = overlay_of(&index, layer, id)? else { return Ok(None) };
        let Some(row) = base_of(&index, layer, id)? else { return Ok(None) };
        let base = record(&row)?;
        let view = together(&base, &record(&over)?)?;
        let differs = |key: &&Key| base.get(key) != view.get(key);
        let mut fields: Vec<String> = view.registers().keys().filter(differs).map(name_of).collect();
        fields.sort();
        fields.dedup();
        Ok((!fields.is_empty()).then(|| Overlay { ledger: layer.name.clone(), fields }))
    }

    /// Writes an issue of a ledger to the index, merged with its overlay. `new` means that the index contains nothing
    /// of that ledger.
    pub(super) fn put_row(
        &self,
        index: &IndexTx<'_>,
        ledger: &str,
        file: &str,
        (issue, line): (&Issue, &str),
        new: bool,
    ) -> Result<(), Error> {
        let put = |issue: &Issue| match new {
            true => index.put_new(ledger, file, issue, line),
            false => index.put(ledger, file, issue, line),
        };
        match self.layer() {
            Some(layer) if layer.name == ledger => {
                if overlay::is_overlay(issue) {
                    put(&overlay::hidden(issue))?;
                } else {
                    put(issue)?;
                }
                self.lay_again(index, &issue.id)
            }
            Some(layer) if let Some(over) = overlay_of(index, layer, &issue.id)? => {
                let base = line::read(line).map_err(|error| super::write::unreadable(&issue.id, &error.to_string()))?;
                Ok(put(&issue_of(&together(&base.record, &record(&over)?)?)?)?)
            }
            _ => Ok(put(issue)?),
        }
    }

    /// Updates the rows of an issue in other ledgers after its overlay was added, changed or removed.
    pub(super) fn lay_again(&self, index: &IndexTx<'_>, id: &str) -> Result<(), Error> {
        let layer = self.layer();
        let over = match layer {
            Some(layer) => overlay_of(index, layer, id)?,
            None => None,
        };
        for row in index.copies(id)?.into_iter().filter(|row| layer.is_none_or(|layer| layer.name != row.ledger)) {
            let issue = match &over {
                Some(over) => issue_of(&together(&record(&row)?, &record(over)?)?)?,
                None => row.issue()?,
            };
            index.put(&row.ledger, &row.file, &issue, &row.line)?;
        }
        Ok(())
    }
}

/// Two ledgers with records of one issue, seen from the ledger that is written to: below a private ledger is the
/// maintained one, and above the maintained one is the private ledger.
pub(super) struct Below<'d> {
    index: &'d IndexTx<'d>,
    /// The ledger that is written to, if it is the private one.
    layer: Option<&'d Ledger>,
    /// The private ledger, if another is written to.
    above: Option<&'d Ledger>,
}

impl<'d> Below<'d> {
    /// The ledgers below and above the ledger that is written to.
    pub(super) fn of(index: &'d IndexTx<'d>, ledger: &'d Ledger, layer: Option<&'d Ledger>) -> Self {
        let private = ledger.place == LedgerKind::Planning;
        Self { index, layer: private.then_some(ledger), above: layer.filter(|_| !private) }
    }

    fn base(&self, id: &str) -> Result<Option<Record>, Error> {
        match self.layer {
            Some(layer) => base_of(self.index, layer, id)?.as_ref().map(record).transpose(),
            None => Ok(None),
        }
    }

    /// A record for an issue that the ledger does not contain: an overlay, if another ledger contains it.
    pub(super) fn begin(&self, id: &str, clock: Clock) -> Result<Record, Error> {
        let mut begun = Record::new(id, clock);
        if self.base(id)?.is_some() {
            let (key, value) = register(&Put::Field("visibility".into(), Some(OVERLAY.into())));
            begun.set(key, clock, value);
        }
        Ok(begun)
    }

    /// The issue of a record, merged with the record below or above it.
    pub(super) fn issue(&self, over: &Record) -> Result<Issue, Error> {
        if let Some(above) = self.above
            && let Some(row) = overlay_of(self.index, above, over.id())?
        {
            return issue_of(&together(over, &record(&row)?)?);
        }
        let issue = issue_of(over)?;
        match overlay::is_overlay(&issue) {
            true => match self.base(over.id())? {
                Some(base) => issue_of(&together(&base, over)?),
                None => Err(Refusal::NotFound { what: "issue".into(), text: issue.id }.into()),
            },
            false => Ok(issue),
        }
    }

    /// The issue below, if the ledger has no record of it yet.
    pub(super) fn bare(&self, id: &str) -> Result<Option<Issue>, Error> {
        self.base(id)?.as_ref().map(issue_of).transpose()
    }

    /// Refuses a write that would not be visible.
    pub(super) fn refuse_decided(&self, over: &Record, puts: &[Put]) -> Result<(), Error> {
        match overlay::is_overlay(&issue_of(over)?) {
            true => match self.bare(over.id())? {
                Some(base) => Ok(overlay::refuse_decided(&base, puts)?),
                None => Ok(()),
            },
            false => Ok(()),
        }
    }
}

fn is_overlay(row: &Indexed) -> Result<bool, Error> {
    Ok(row.line.contains(SIGN) && overlay::is_overlay(&row.issue()?))
}

/// The overlay of an issue, if there is one.
fn overlay_of(index: &IndexTx<'_>, layer: &Ledger, id: &str) -> Result<Option<Indexed>, Error> {
    match index.line(&layer.name, id)? {
        Some(row) if is_overlay(&row)? => Ok(Some(row)),
        _ => Ok(None),
    }
}

/// The row that an overlay of an issue overlays.
fn base_of(index: &IndexTx<'_>, layer: &Ledger, id: &str) -> Result<Option<Indexed>, Error> {
    let others = index.copies(id)?.into_iter().filter(|row| row.ledger != layer.name);
    Ok(others.min_by_key(|row| row.issue().map_or(true, |issue| issue.deleted.is_some())))
}

/// An issue merged with its overlay: the newer value of each field, except fields that the maintainers have decided.
fn together(base: &Record, over: &Record) -> Result<Record, Error> {
    let kept = issue_of(base)?;
    let mut view = base.clone();
    for (key, register) in over.registers() {
        let own = matches!(key, Key::Field(name) if OWN.contains(&name.as_ref()) || overlay::decided(&kept, name));
        if !own {
            view.write(key.clone(), register.clock, register.value.clone());
        }
    }
    Ok(view)
}

/// The field of a key.
fn name_of(key: &Key) -> String {
    let name = key.to_string();
    match key {
        Key::Field(name) => name.to_string(),
        Key::Member(..) => name.split('/').next().unwrap_or_default().to_owned(),
    }
}
