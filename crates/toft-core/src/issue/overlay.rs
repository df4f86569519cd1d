//! Overlays: a contributor's changes to an issue of a ledger that others maintain. They are kept in a private ledger,
//! under the same id and with the changed fields only; toft shows the issue merged with them.

use super::{CLOSED, Deleted, Issue, Put};
use crate::refusal::Refusal;

/// The visibility of a record that overlays an issue of another ledger.
pub const OVERLAY: &str = "overlay";
/// Fields of an overlay's own record. They do not override anything.
pub const OWN: [&str; 2] = ["visibility", "origin"];
/// The fields that describe progress.
const PROGRESS: [&str; 3] = ["status", "assignee", "closed"];

/// Whether a record is an overlay.
#[must_use]
pub fn is_overlay(issue: &Issue) -> bool {
    issue.visibility.as_deref() == Some(OVERLAY)
}

/// Whether the ledger's keepers have decided a field for good: what they closed is closed, what they deleted is deleted.
#[must_use]
pub fn decided(base: &Issue, field: &str) -> bool {
    let over = base.status == CLOSED || base.deleted.is_some();
    over && PROGRESS.contains(&field) || base.deleted.is_some() && field == "deleted"
}

/// Refuses a change that would not be visible, because the maintainers of the ledger have decided the field.
pub fn refuse_decided(base: &Issue, puts: &[Put]) -> Result<(), Refusal> {
    let hidden = |put: &Put| matches!(put, Put::Field(name, _) if decided(base, name));
    if !puts.iter().any(hidden) {
        return Ok(());
    }
    let state = if base.deleted.is_some() { "deleted upstream" } else { "closed upstream" };
    let wanted = "its ledger's keepers decide; toft add --discovered-from plans work of your own".to_owned();
    Err(Refusal::WrongState { id: base.id.clone(), state: state.into(), wanted })
}

/// An overlay as an index has it: nothing to list, count, search or start.
#[must_use]
pub fn hidden(overlay: &Issue) -> Issue {
    Issue {
        id: overlay.id.clone(),
        visibility: overlay.visibility.clone(),
        created: overlay.created.clone(),
        deleted: Some(Deleted { at: Default::default(), by: String::new(), reason: String::new() }),
        ..Issue::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_keepers_closed_or_deleted_is_theirs() {
        let open = Issue { id: "tf-1".into(), status: "open".into(), ..Issue::default() };
        let closed = Issue { status: CLOSED.into(), ..open.clone() };
        let deleted = Issue { deleted: hidden(&open).deleted, ..open.clone() };
        let put = |name: &'static str| [Put::Field(name.into(), None)];
        for (base, field, refused) in [
            (&open, "status", false),
            (&open, "deleted", false),
            (&closed, "status", true),
            (&closed, "deleted", false),
            (&closed, "notes", false),
            (&deleted, "status", true),
            (&deleted, "deleted", true),
        ] {
            assert_eq!(refuse_decided(base, &put(field)).is_err(), refused, "{field} of {base:?}");
        }
    }
}
