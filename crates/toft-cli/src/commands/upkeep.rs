//! migrate.

use super::{App, Done};
use crate::render::Migrated;

pub(super) fn migrate(app: &App<'_>) -> Done {
    let located = toft::locate(&app.config()?)?;
    let (from, to) = toft::migrate(&located)?;
    app.show(&Migrated { store: located.store.to_string(), from, to })
}
