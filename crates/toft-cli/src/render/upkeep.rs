//! Upgrades and backups of a store.

use serde_json::{Value, json};

use super::{
    View,
    page::{Page, clean},
};

pub(crate) struct Migrated {
    pub(crate) store: String,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

impl View for Migrated {
    fn kind(&self) -> &'static str {
        "migrate"
    }

    fn json(&self) -> Value {
        json!({ "store": self.store, "from": self.from, "to": self.to })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.store.clone()]
    }

    fn text(&self, page: &mut Page) {
        let Self { store, from, to } = self;
        let store = clean(store);
        page.line(match from == to {
            true => format!("{store} has schema {to} already; nothing to do."),
            false => format!("Upgraded {store} from schema {from} to {to}."),
        });
    }
}
