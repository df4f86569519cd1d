//! What the log says of a write to a ledger.

use serde_json::json;
use toft_core::{
    secret,
    verbs::{issue::Noted, undo::Before},
};

use super::{LedgerKind, Plan, write::Wrote};

impl Plan<'_> {
    /// Removes what was written from an event that others read, if it is private or looks like a secret. It cannot be undone then.
    pub(super) fn leave_text_out(&self, noted: &mut Noted) {
        let Some(fields) = noted.detail.as_object_mut() else { return };
        let ledger = fields.get("ledger").and_then(|name| name.as_str());
        let known = self.ledgers.iter().find(|known| Some(known.name.as_str()) == ledger);
        let private = self.contributor || known.is_some_and(|known| known.place == LedgerKind::Planning);
        let text = |name: &str| fields.get(name).map(ToString::to_string).unwrap_or_default();
        if private || ["was", "now"].iter().any(|name| secret::in_text(&text(name))) {
            fields.remove("was");
            fields.remove("now");
        }
    }
}

/// The event details of a write; none if nothing was written.
pub(super) fn noted(Wrote { issue, ledger, before }: &Wrote) -> Option<Noted> {
    let Before { was, now, .. } = before.as_ref()?;
    let detail = json!({ "ledger": ledger, "title": issue.title, "status": issue.status, "was": was, "now": now });
    Some(Noted { issue: issue.id.clone(), detail })
}
