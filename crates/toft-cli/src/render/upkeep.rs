//! Upgrades and backups of a store, and the schemas of calls.

use serde_json::{Value, json};
use toft::{Backup, Restored};

use super::{
    View,
    page::{Page, clean},
};

/// A number with its noun.
fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

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

pub(crate) struct CallSchemas(pub(crate) Value);

impl View for CallSchemas {
    fn kind(&self) -> &'static str {
        "schema"
    }

    fn json(&self) -> Value {
        self.0.clone()
    }

    fn ids(&self) -> Vec<String> {
        self.0["calls"].as_object().map(|calls| calls.keys().cloned().collect()).unwrap_or_default()
    }

    fn text(&self, page: &mut Page) {
        page.line(format!("{:#}", self.0));
    }
}

pub(crate) struct BackedUp(pub(crate) Backup);

impl View for BackedUp {
    fn kind(&self) -> &'static str {
        "backup"
    }

    fn json(&self) -> Value {
        let Backup { file, blobs, files } = &self.0;
        json!({ "file": file, "blobs": blobs, "files": files })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.file.display().to_string()]
    }

    fn text(&self, page: &mut Page) {
        let Backup { file, blobs, files } = &self.0;
        page.line(format!("Wrote and verified {}", clean(&file.display().to_string())));
        if blobs + files > 0 {
            page.line(format!("  with {} and {}", counted(*blobs, "blob"), counted(*files, "other file")));
        }
        page.line("`toft backup restore FILE` restores it.");
    }
}

pub(crate) struct RestoredFrom(pub(crate) Restored);

impl View for RestoredFrom {
    fn kind(&self) -> &'static str {
        "restore"
    }

    fn json(&self) -> Value {
        let Restored { store, made, aside, files, left } = &self.0;
        json!({ "store": store, "made": made, "aside": aside, "files": files, "left": left })
    }

    fn ids(&self) -> Vec<String> {
        vec![self.0.store.clone()]
    }

    fn text(&self, page: &mut Page) {
        let Restored { store, made, aside, files, left } = &self.0;
        page.line(format!("Restored {} as of {}, with {}", clean(store), clean(made), counted(*files, "file")));
        if let Some(aside) = aside {
            page.line(format!("Previous store kept at {}", clean(aside)));
        }
        for path in left {
            page.line(format!("Not overwritten, differs from the backup: {}", clean(&path.display().to_string())));
        }
    }
}

/// Files that were generated.
pub(crate) struct FilesWritten(pub(crate) Vec<String>);

impl View for FilesWritten {
    fn kind(&self) -> &'static str {
        "files"
    }

    fn json(&self) -> Value {
        json!(self.0)
    }

    fn ids(&self) -> Vec<String> {
        self.0.clone()
    }

    fn text(&self, page: &mut Page) {
        self.0.iter().for_each(|file| page.line(clean(file)));
    }
}
