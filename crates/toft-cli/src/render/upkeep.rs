//! Upgrades and backups of a store, and the schemas of calls.

use serde_json::{Value, json};
use toft::{Backup, Restored};

use super::{
    CommandView,
    page::{clean, counted},
};

pub(crate) fn view_migration(store: &str, from: i64, to: i64) -> CommandView<'_> {
    let line = match from == to {
        true => format!("{} has schema {to} already; nothing to do.", clean(store)),
        false => format!("Upgraded {} from schema {from} to {to}.", clean(store)),
    };
    CommandView::of_line("migrate", json!({ "store": store, "from": from, "to": to }), [store], line)
}

pub(crate) fn view_call_schemas(schemas: &Value) -> CommandView<'_> {
    let names = schemas["calls"].as_object().into_iter().flat_map(|calls| calls.keys());
    CommandView::of_line("schema", schemas, names, format!("{schemas:#}"))
}

pub(crate) fn view_backup(backup: &Backup) -> CommandView<'_> {
    let Backup { file, blobs, files } = backup;
    let data = json!({ "file": file, "blobs": blobs, "files": files });
    CommandView::new("backup", data, [file.display()], move |page| {
        page.line(format!("Wrote and verified {}", clean(&file.display().to_string())));
        if blobs + files > 0 {
            page.line(format!("  with {} and {}", counted(*blobs, "blob"), counted(*files, "other file")));
        }
        page.line("`toft backup restore FILE` restores it.");
    })
}

pub(crate) fn view_restored_store(restored: &Restored) -> CommandView<'_> {
    let Restored { store, made, aside, files, left } = restored;
    let data = json!({ "store": store, "made": made, "aside": aside, "files": files, "left": left });
    CommandView::new("restore", data, [store], move |page| {
        page.line(format!("Restored {} as of {}, with {}", clean(store), clean(made), counted(*files, "file")));
        if let Some(aside) = aside {
            page.line(format!("Previous store kept at {}", clean(aside)));
        }
        for path in left {
            page.line(format!("Not overwritten, differs from the backup: {}", clean(&path.display().to_string())));
        }
    })
}

/// Files that were generated.
pub(crate) fn view_written_files(files: &[String]) -> CommandView<'_> {
    CommandView::new("files", files, files, move |page| files.iter().for_each(|file| page.line(clean(file))))
}
