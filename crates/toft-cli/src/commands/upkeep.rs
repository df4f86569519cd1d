//! migrate, backup, schema, man.

use std::path::Path;

use toft::{refusal::Refusal, verbs::calls};

use super::{App, Done};
use crate::{
    args::{Backup, BackupCommand, WriteTo},
    exit::Failure,
    render::{view_backup, view_call_schemas, view_migration, view_restored_store, view_written_files},
};

/// Writes generated files, and lists them.
pub(super) fn write(app: &App<'_>, to: &WriteTo, make: fn(&Path) -> std::io::Result<Vec<String>>) -> Done {
    let failed = |error| Failure::stopped(format!("{} cannot be written: {error}", to.target.display()), "");
    app.show(&view_written_files(&make(&to.target).map_err(failed)?))
}

pub(super) fn migrate(app: &App<'_>) -> Done {
    let located = toft::locate(&app.config()?)?;
    let (from, to) = toft::migrate(&located)?;
    app.show(&view_migration(&located.store.to_string(), from, to))
}

/// The word for all calls of the library where one may be named.
const ALL_CALLS: &str = "calls";

pub(super) fn schema(app: &App<'_>, call: &str) -> Done {
    let call = Some(call).filter(|call| *call != ALL_CALLS);
    if let Some(name) = call.filter(|name| calls::find(name).is_none()) {
        let refusal = Refusal::NotFound { what: "call".into(), text: name.to_owned() };
        return Err(toft::Error::Refused(refusal).into());
    }
    app.show(&view_call_schemas(&calls::schema(call)))
}

pub(super) fn backup(app: &App<'_>, args: &Backup) -> Done {
    if let Some(BackupCommand::Restore(args)) = &args.command {
        let located = toft::locate(&app.config()?)?;
        return app.show(&view_restored_store(&toft::restore(&located, &args.file, args.replace)?));
    }
    let Some(target) = &args.target else {
        return Err(Failure::invalid("backup needs a file or a directory", "toft backup FILE"));
    };
    if target.exists() && !target.is_dir() {
        return Err(Failure::invalid(format!("{} exists already", target.display()), "name a new file"));
    }
    if target.parent().is_some_and(|dir| !dir.as_os_str().is_empty() && !dir.is_dir()) {
        return Err(Failure::invalid(format!("{} has no directory to go to", target.display()), "make it first"));
    }
    app.show(&view_backup(&app.open()?.backup(target)?))
}
