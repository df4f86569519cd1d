//! Flags of backups, of schemas, and of what packages need.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Write everything the store owns to one file: rows, blobs, and for a repository's own store its id, ledger, settings and
/// the logs of attempts. Work can go on meanwhile.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  toft backup /mnt/backups              a new file in that directory\n  toft backup restore /mnt/backups/toft-20261116t022509123z.backup"
)]
pub(crate) struct Backup {
    #[command(subcommand)]
    pub(crate) command: Option<BackupCommand>,
    /// The file to write, which must not exist, or a directory for it
    #[arg(value_name = "FILE|DIR")]
    pub(crate) target: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupCommand {
    /// Restore a store from a backup
    Restore(RestoreBackup),
}

/// Restore a store from a backup. A damaged store that is in the way is kept under another name; so is a whole one with
/// --replace. Stop running agents first.
#[derive(Args, Debug)]
pub(crate) struct RestoreBackup {
    /// The backup
    pub(crate) file: PathBuf,
    /// Replace a store that is whole; it is kept aside, never deleted
    #[arg(long)]
    pub(crate) replace: bool,
}

/// Print the calls of toft's library and server as JSON schemas: what each takes, gives back, and refuses.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  toft schema -q                        the names of all calls\n  toft schema claim                     one call"
)]
pub(crate) struct Schema {
    /// Only this call
    #[arg(value_name = "CALL")]
    pub(crate) call: Option<String>,
}

/// Write generated files to a directory.
#[derive(Args, Debug)]
pub(crate) struct WriteTo {
    /// The directory; it is created if it does not exist
    #[arg(long = "dir", value_name = "DIR")]
    pub(crate) target: PathBuf,
}
